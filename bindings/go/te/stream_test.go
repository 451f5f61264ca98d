// SPDX-License-Identifier: Apache-2.0

package te

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestStream(t *testing.T) {
	e := newEngine(t)
	local, target := alloc(t, e, 4096, LocalOnly), alloc(t, e, 4096, LocalOnly)
	ready, computed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer computed.Close()
	b, err := e.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	write := []Request{{Write, local.Bytes(), e.Local(), target.Addr()}}
	after := &Stream{FD: ready.Fd()}
	if err := b.Submit(write, &SubmitOptions{After: after, Timeout: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(context.Background()); !errors.Is(err, ErrTimeout) {
		t.Errorf("never ready: %v", err)
	}
	if err := b.Submit(write, &SubmitOptions{After: after}); err != nil {
		t.Fatal(err)
	}
	ready.Close()
	if s, err := b.Status(1); err != nil || s.State != Pending {
		t.Errorf("%+v, %v", s, err)
	}
	local.Bytes()[7] = 5
	if _, err := computed.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	_ = b.Wait(context.Background())
	if s, err := b.Status(1); err != nil || s.State != Completed || target.Bytes()[7] != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, wrong := range []struct {
		options SubmitOptions
		code    Code
	}{
		{SubmitOptions{After: &Stream{Location: "cpu:0"}}, ErrUnsupported},
		{SubmitOptions{After: &Stream{}}, ErrInvalid},
		{SubmitOptions{Then: &Stream{FD: computed.Fd()}}, ErrInvalid},
		{SubmitOptions{Then: &Stream{Location: "\x00"}}, ErrInvalid},
	} {
		if err := b.Submit(write, &wrong.options); !errors.Is(err, wrong.code) {
			t.Errorf("%+v: %v", wrong.options, err)
		}
	}
}
