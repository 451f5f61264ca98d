// SPDX-License-Identifier: Apache-2.0

package te

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand"
	"testing"
	"time"
)

func counter(t *testing.T, e *Engine, name string) *Counter {
	t.Helper()
	c, err := e.NewCounter(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func adder(t *testing.T, s *Segment, name string) *Adder {
	t.Helper()
	a, err := s.NewAdder(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func emptyBatch(t *testing.T, e *Engine) *Batch {
	t.Helper()
	b, err := e.NewBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func minute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// addNow raises it at once: behind a batch of nothing.
func addNow(t *testing.T, a *Adder, n uint64) {
	t.Helper()
	if err := emptyBatch(t, a.e).AddAfter(a, n); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(minute(t)); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, c *Counter, want uint64) {
	t.Helper()
	if value, err := c.Value(); err != nil || value != want {
		t.Errorf("%s is %d, not %d; %v", c.Name(), value, want, err)
	}
}

// The layers that the counter says to be there are there.
func TestCounterOfLayers(t *testing.T) {
	const layers, size = 8, 98765
	e, peer := newEngine(t), newEngine(t)
	local, remote := alloc(t, e, layers*size, LocalOnly), alloc(t, peer, layers*size, RemoteWrite)
	rand.New(rand.NewSource(5)).Read(local.Bytes())
	c := counter(t, peer, "layers")
	s := open(t, e, name(t, peer))
	a := adder(t, s, "layers")
	for i := 0; i < layers; i++ {
		b := emptyBatch(t, e)
		r := Request{Write, local.Bytes()[i*size : (i+1)*size], s, remote.Addr() + uint64(i*size)}
		if err := b.Submit([]Request{r}, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.AddAfter(a, 1<<i); err != nil {
			t.Fatal(err)
		}
	}
	for value := uint64(0); value < 1<<layers-1; {
		if err := c.Wait(minute(t), value+1); err != nil {
			t.Fatal(err)
		}
		value, _ = c.Value()
		for i := 0; i < layers; i++ {
			part := func(m *Memory) []byte { return m.Bytes()[i*size : (i+1)*size] }
			if value>>i&1 == 1 && !bytes.Equal(part(local), part(remote)) {
				t.Fatalf("layer %d is not there", i)
			}
		}
	}
	if err := a.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestCounterOfWhatFails(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local := alloc(t, e, 100, LocalOnly)
	c, s := counter(t, peer, "none"), open(t, e, name(t, peer))
	a := adder(t, s, "none")
	b := emptyBatch(t, e)
	if err := b.Submit([]Request{{Write, local.Bytes(), s, 4096}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.AddAfter(a, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(context.Background()); err == nil {
		t.Error("what nobody has registered was written")
	}
	addNow(t, a, 100)
	wantValue(t, c, 100)
	if err := b.AddAfter(a, math.MaxInt64-99); !errors.Is(err, ErrInvalid) {
		t.Errorf("too much: %v", err)
	}
}

// Waits end with their context, with the counter, and with the engine.
func TestCounterWaits(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	c := counter(t, peer, "waits")
	a := adder(t, open(t, e, name(t, peer)), "waits")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Wait(over, 0); err != nil {
		t.Error(err)
	}
	if err := c.Wait(over, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := c.Wait(soon, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in time: %v", err)
	}
	addNow(t, a, 3)
	if err := c.Wait(minute(t), 3); err != nil {
		t.Error(err)
	}
	other := counter(t, peer, "other")
	waitEnds(t, c, c.Close)
	waitEnds(t, other, peer.Close)
}

// waitEnds looks at a wait that is under way when its end comes, or begins then.
func waitEnds(t *testing.T, c *Counter, end func() error) {
	t.Helper()
	ended := make(chan error)
	go func() { ended <- c.Wait(context.Background(), 4) }()
	if err := end(); err != nil {
		t.Error(err)
	}
	err := <-ended
	if !errors.Is(err, ErrCanceled) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotFound) {
		t.Errorf("a wait for what has ended: %v", err)
	}
}

func TestCounterNames(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	c := counter(t, peer, "one")
	for text, code := range map[string]Code{"one": ErrExists, "": ErrInvalid, "\x00": ErrInvalid} {
		if _, err := peer.NewCounter(text); !errors.Is(err, code) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := open(t, e, name(t, peer))
	if _, err := s.NewAdder("other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	a := adder(t, s, "one")
	if err := emptyBatch(t, peer).AddAfter(a, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("of another engine: %v", err)
	}
	// A counter of that name is another one: what was opened before raises it no more.
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c = counter(t, peer, "one")
	if err := emptyBatch(t, e).AddAfter(a, 1); err != nil {
		t.Error(err)
	}
	if err := a.Flush(minute(t)); !errors.Is(err, ErrStale) {
		t.Errorf("of one that is gone: %v", err)
	}
	wantValue(t, c, 0)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); !errors.Is(err, ErrNotFound) {
		t.Errorf("closed twice: %v", err)
	}
}

// An engine raises counters of its own.
func TestCounterOfOneself(t *testing.T) {
	e := newEngine(t)
	c := counter(t, e, "own")
	addNow(t, adder(t, e.Local(), "own"), 7)
	wantValue(t, c, 7)
}
