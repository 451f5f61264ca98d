// SPDX-License-Identifier: Apache-2.0

package te

import (
	"context"
	"errors"
	"testing"
)

func goesByTCP(t *testing.T, e *Engine, r Request, o *SubmitOptions) {
	t.Helper()
	b, err := e.NewBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Submit([]Request{r}, o); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Path(0); err != nil || p.Transport != "tcp" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPaths(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local, remote := alloc(t, e, 4096, LocalOnly), alloc(t, peer, 4096, RemoteRead)
	s, err := e.OpenWith(name(t, peer), nil)
	if err != nil {
		t.Fatal(err)
	}
	tcp := &Paths{Require: []string{"tcp"}, Prefer: []string{"tcp", "host"}}
	read := Request{Read, local.Bytes(), s, remote.Addr()}
	goesByTCP(t, e, read, &SubmitOptions{Paths: tcp})
	b, err := e.NewBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, wrong := range []struct {
		paths Paths
		code  Code
	}{
		{Paths{Require: []string{"local"}}, ErrUnsupported},
		{Paths{Forbid: []string{"tpc"}}, ErrUnsupported},
		{Paths{Require: []string{"tcp"}, Forbid: []string{"tcp"}}, ErrInvalid},
		{Paths{Prefer: []string{"\x00"}}, ErrInvalid},
	} {
		if err := b.Submit([]Request{read}, &SubmitOptions{Paths: &wrong.paths}); !errors.Is(err, wrong.code) {
			t.Errorf("%+v: %v", wrong.paths, err)
		}
	}
	if _, err := e.OpenWith(name(t, peer), tcp); !errors.Is(err, ErrExists) {
		t.Errorf("open already: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if read.Target, err = e.OpenWith(name(t, peer), tcp); err != nil {
		t.Fatal(err)
	}
	goesByTCP(t, e, read, nil)
}

func TestOneLife(t *testing.T) {
	e := newEngine(t)
	first, err := New(Options{Name: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	at, number := name(t, first), first.Incarnation()
	s, err := e.OpenLife(at, number, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.OpenLife(at, number^1, &Paths{Forbid: []string{"rdma"}}); !errors.Is(err, ErrStale) {
		t.Errorf("another incarnation: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if first.Incarnation() != 0 {
		t.Error("a closed engine has an incarnation")
	}
	second, err := New(Options{Name: at})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if name(t, second) != at || second.Incarnation() == number {
		t.Errorf("%s, not the next engine of %s", name(t, second), at)
	}
	if err := s.Notify(Notification{Name: "to", Msg: "the first"}); !errors.Is(err, ErrStale) {
		t.Errorf("a message to the engine that is gone: %v", err)
	}
}
