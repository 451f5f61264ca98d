// SPDX-License-Identifier: Apache-2.0

package te_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"transferengine/te"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// pair makes two engines, which could as well be on two hosts, with n bytes each: ours, known to our
// engine alone, and theirs, which the segment leads to and peers may read and write.
func pair(n int) (engine, peer *te.Engine, ours, theirs *te.Memory, segment *te.Segment) {
	var err error
	peer, err = te.New(te.Options{Name: "127.0.0.1"})
	check(err)
	theirs, err = peer.Alloc(n, "")
	check(err)
	check(peer.Register(theirs, "", te.RemoteRW))

	engine, err = te.New(te.Options{Name: "127.0.0.1"})
	check(err)
	ours, err = engine.Alloc(n, "")
	check(err)
	check(engine.Register(ours, "", te.LocalOnly))

	name, err := peer.Name() // what a peer is told, by any means
	check(err)
	segment, err = engine.Open(name)
	check(err)
	return engine, peer, ours, theirs, segment
}

// One engine reads what another one offers.
func Example() {
	target, err := te.New(te.Options{Name: "127.0.0.1"})
	check(err)
	defer target.Close()
	theirs, err := target.Alloc(1<<20, "")
	check(err)
	check(target.Register(theirs, "", te.RemoteRead))
	copy(theirs.Bytes(), "hello from the other side")

	engine, err := te.New(te.Options{Name: "127.0.0.1"})
	check(err)
	defer engine.Close()
	ours, err := engine.Alloc(1<<20, "")
	check(err)
	check(engine.Register(ours, "", te.LocalOnly))

	name, err := target.Name() // what a peer is told, by any means
	check(err)
	segment, err := engine.Open(name)
	check(err)
	check(engine.Transfer(context.Background(), te.Request{
		Op: te.Read, Local: ours.Bytes()[:25], Target: segment, Offset: theirs.Addr(),
	}))
	fmt.Printf("%s\n", ours.Bytes()[:25])
	// Output: hello from the other side
}

// Many pieces at once, some of which the peer refuses.
func ExampleBatch() {
	engine, peer, ours, theirs, segment := pair(8192)
	defer engine.Close()
	defer peer.Close()

	batch, err := engine.NewBatch(2)
	check(err)
	defer batch.Close()
	check(batch.Submit([]te.Request{
		{Op: te.Write, Local: ours.Bytes()[:4096], Target: segment, Offset: theirs.Addr()},
		{Op: te.Write, Local: ours.Bytes()[:4096], Target: segment, Offset: theirs.Addr() + 8000},
	}, &te.SubmitOptions{Timeout: time.Minute}))
	fmt.Println("whole:", errors.Is(batch.Wait(context.Background()), te.ErrStale))
	for task := 0; task < 2; task++ {
		status, err := batch.Status(task)
		check(err)
		fmt.Println(task, status.State, status.Bytes)
	}
	// Output:
	// whole: true
	// 0 completed 4096
	// 1 invalid 0
}

// A wait with a context. Whatever ends it, the memory is quiet when it returns.
func ExampleBatch_Wait() {
	engine, peer, ours, theirs, segment := pair(4096)
	defer engine.Close()
	defer peer.Close()
	copy(ours.Bytes(), "in time")

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	batch, err := engine.NewBatch(1)
	check(err)
	defer batch.Close()
	check(batch.Submit([]te.Request{
		{Op: te.Write, Local: ours.Bytes()[:7], Target: segment, Offset: theirs.Addr()},
	}, nil))
	check(batch.Wait(ctx))
	fmt.Printf("%s\n", theirs.Bytes()[:7])
	// Output: in time
}

// Blocks of a cache, looked up once and then moved by their numbers.
func ExamplePrepared() {
	const size, blocks = 4096, 16
	engine, peer, ours, theirs, segment := pair(size * blocks)
	defer engine.Close()
	defer peer.Close()
	ours.Bytes()[5*size] = 'x'

	pieces := make([]te.Piece, blocks)
	for i := range pieces {
		pieces[i].Local = ours.Bytes()[i*size : (i+1)*size]
		pieces[i].Offset = theirs.Addr() + uint64(i*size)
	}
	prepared, err := segment.Prepare(pieces)
	check(err)
	defer prepared.Close()

	batch, err := engine.NewBatch(2)
	check(err)
	defer batch.Close()
	check(batch.SubmitPrepared(prepared, te.Write, []uint32{5, 2}, nil))
	check(batch.Wait(context.Background()))
	total, err := batch.Total()
	check(err)
	fmt.Printf("%d bytes, %c\n", total.Bytes, theirs.Bytes()[5*size])
	// Output: 8192 bytes, x
}

// Where the memory of a peer is, from the peer's record.
func ExampleSegment_Buffers() {
	engine, peer, _, theirs, segment := pair(4096)
	defer engine.Close()
	defer peer.Close()

	buffers, err := segment.Buffers()
	check(err)
	for _, b := range buffers {
		fmt.Println(b.Addr == theirs.Addr(), b.Length)
	}
	// Output: true 4096
}

// A message to a peer, which waits there until it is asked for.
func ExampleSegment_Notify() {
	engine, peer, _, _, segment := pair(4096)
	defer engine.Close()
	defer peer.Close()

	check(segment.Notify(te.Notification{Name: "block", Msg: "17 is full"}))
	messages, err := peer.Notifications()
	check(err)
	for _, m := range messages {
		fmt.Printf("%s: %s\n", m.Name, m.Msg)
	}
	// Output: block: 17 is full
}

// A counter tells a peer that bytes have arrived, also of batches that end in another order.
func ExampleBatch_AddAfter() {
	engine, peer, ours, theirs, segment := pair(8192)
	defer engine.Close()
	defer peer.Close()

	arrived, err := peer.NewCounter("layers") // it gives the name away, by any means
	check(err)
	adder, err := segment.NewAdder("layers")
	check(err)
	defer adder.Close()
	copy(ours.Bytes()[4096:], "layer 1")
	for layer := 0; layer < 2; layer++ {
		batch, err := engine.NewBatch(1)
		check(err)
		defer batch.Close()
		at := layer * 4096
		check(batch.Submit([]te.Request{{
			Op: te.Write, Local: ours.Bytes()[at : at+4096], Target: segment, Offset: theirs.Addr() + uint64(at),
		}}, nil))
		check(batch.AddAfter(adder, 1<<layer))
	}

	check(arrived.Wait(context.Background(), 0b11))
	fmt.Printf("%s\n", theirs.Bytes()[4096:4103])
	check(adder.Flush(context.Background()))
	// Output: layer 1
}

// The code of an error tells what to do, its text says what was wrong.
func ExampleError() {
	engine, peer, _, theirs, segment := pair(4096)
	defer engine.Close()
	defer peer.Close()

	err := engine.Transfer(context.Background(), te.Request{
		Op: te.Read, Local: make([]byte, 10), Target: segment, Offset: theirs.Addr(),
	})
	var failed *te.Error
	fmt.Println(errors.As(err, &failed), failed.Code.Name())
	fmt.Println(errors.Is(err, te.ErrNotRegistered), errors.Is(err, te.ErrTimeout))
	// Output:
	// true TE_ERR_NOT_REGISTERED
	// true false
}
