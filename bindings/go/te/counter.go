// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <te.h>
*/
import "C"

import (
	"context"
	"errors"
	"time"
)

// A wait of a counter looks so often whether its context has ended, or the engine is being closed.
const counterSlice = 200 * time.Millisecond

// A Counter is a sum that peers raise when their batches are done; the bytes are in our memory by then. Each
// addition counts once, however often it must be sent. Batches end in any order, so a sum of ones tells how
// many have ended, not which: who has to know that gives each a bit of its own.
type Counter struct {
	e    *Engine
	id   C.te_counter
	name string
}

// NewCounter makes a counter of that name, which is 0, for peers to raise (Segment.NewAdder). The name has 1 to
// 255 bytes; who reaches the handshake port and knows it can raise the counter.
func (e *Engine) NewCounter(name string) (*Counter, error) {
	var id C.te_counter
	err := e.callNamed("name", name, func(c *C.char) C.int { return C.te_counter_create(e.c, c, &id) })
	if err != nil {
		return nil, err
	}
	return &Counter{e, id, name}, nil
}

// Name is what peers open it by.
func (c *Counter) Name() string { return c.name }

// Value is the sum of what was added so far; never less than before.
func (c *Counter) Value() (uint64, error) {
	var value C.uint64_t
	err := c.e.call(func() C.int { return C.te_counter_value(c.e.c, c.id, &value) })
	return uint64(value), err
}

// Wait waits until the counter is at least that, or ctx ends: ctx.Err(). ErrCanceled: the counter was closed
// meanwhile. Any number of goroutines may wait, for different values; each takes a thread of the system.
func (c *Counter) Wait(ctx context.Context, atLeast uint64) error {
	return c.e.inSlices(ctx, func(ms C.int64_t) C.int {
		return C.te_counter_wait(c.e.c, c.id, C.uint64_t(atLeast), ms)
	})
}

// Close ends the counter: its name is free, and adders that were opened before raise nothing more. ErrNotFound:
// it is closed already. Engine.Close closes those that are left.
func (c *Counter) Close() error {
	return c.e.call(func() C.int { return C.te_counter_destroy(c.e.c, c.id) })
}

// An Adder is a counter of a peer, to be raised with Batch.AddAfter.
type Adder struct {
	e  *Engine
	id C.te_adder
}

// NewAdder opens the counter of that name that the peer, or this engine itself, has made. It may block while the
// directory and the peer are asked. A counter takes 4,096 adders in its life: open one and keep it. Close it
// before the segment.
func (s *Segment) NewAdder(name string) (*Adder, error) {
	var id C.te_adder
	err := s.e.callNamed("name", name, func(c *C.char) C.int { return C.te_adder_open(s.e.c, s.id, c, &id) })
	if err != nil {
		return nil, err
	}
	return &Adder{s.e, id}, nil
}

// AddAfter has the counter raised by n once nothing of the batch is unfinished; not at all if any request that it
// ever got has failed. It returns at once. What the peer does not get is sent again, and counts once all the same.
func (b *Batch) AddAfter(a *Adder, n uint64) error {
	if a.e != b.e {
		return fail(ErrInvalid, "the adder is another engine's")
	}
	return b.e.call(func() C.int { return C.te_adder_after(b.e.c, b.id, a.id, C.uint64_t(n)) })
}

// Flush waits until the batches of all that was to be added before have ended, and the peer has counted what they
// added. ErrStale: the counter was closed, or its engine started anew; ErrRejected: it takes no other adder. It
// will never be counted then. When ctx ends first the error is ctx.Err(), and what was not counted is still tried.
func (a *Adder) Flush(ctx context.Context) error {
	return a.e.inSlices(ctx, func(ms C.int64_t) C.int { return C.te_adder_flush(a.e.c, a.id, ms) })
}

// Close gives the adder up: what the peer has not counted is not sent any more. ErrBusy: a batch that is to raise
// it is not done yet.
func (a *Adder) Close() error {
	return a.e.call(func() C.int { return C.te_adder_close(a.e.c, a.id) })
}

// forGood are errors of a wait of counters: waiting longer is in vain.
var forGood = []Code{ErrInvalid, ErrCanceled, ErrClosed, ErrNotFound, ErrRejected, ErrStale}

func isForGood(err error) bool {
	for _, code := range forGood {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// inSlices calls a wait of so many milliseconds until it does well, or fails for good, or ctx ends.
func (e *Engine) inSlices(ctx context.Context, wait func(ms C.int64_t) C.int) error {
	for {
		slice := counterSlice
		if end, ok := ctx.Deadline(); ok && time.Until(end) < slice {
			slice = time.Until(end)
		}
		ms := C.int64_t(0)
		if slice > 0 && ctx.Err() == nil {
			ms = C.int64_t((slice + time.Millisecond - 1) / time.Millisecond)
		}
		err := e.call(func() C.int { return wait(ms) })
		if err == nil || isForGood(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
