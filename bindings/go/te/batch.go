// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <stddef.h>
#include <stdlib.h>
#include <te.h>

// A te_request whose address is a number, since Go memory that holds pointers is not given to C.
typedef struct go_request {
    int opcode;
    uintptr_t source;
    te_segment target;
    uint64_t target_offset;
    uint64_t length;
} go_request;

_Static_assert(sizeof(go_request) == sizeof(te_request), "another layout");
_Static_assert(offsetof(go_request, source) == offsetof(te_request, source), "another layout");
_Static_assert(offsetof(go_request, length) == offsetof(te_request, length), "another layout");

static int go_submit(te_engine *e, te_batch b, const go_request *reqs, size_t n,
                     const te_submit_opts *opts)
{
    return te_submit(e, b, (const te_request *)reqs, n, opts);
}

static int go_explain(te_engine *e, const go_request *req, char *buf, size_t n)
{
    return te_explain(e, (const te_request *)req, buf, n);
}
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Opcode is the direction of a request.
type Opcode int

// Read takes bytes from the target, Write puts them there.
const (
	Read  Opcode = C.TE_READ
	Write Opcode = C.TE_WRITE
)

// A Request moves len(Local) bytes.
type Request struct {
	Op     Opcode
	Local  []byte   // a part of registered Memory
	Target *Segment // who has the other side
	Offset uint64   // where there: an address in the memory of that process
}

func (r Request) c() C.go_request {
	out := C.go_request{
		opcode:        C.int(r.Op),
		source:        C.uintptr_t(uintptr(unsafe.Pointer(dataOf(r.Local)))),
		target_offset: C.uint64_t(r.Offset),
		length:        C.uint64_t(len(r.Local)),
	}
	if r.Target != nil {
		out.target = r.Target.id
	}
	return out
}

func dataOf(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	return &b[0]
}

// State of a request or a batch.
type State int

// The states of te.h; those after Pending are final.
const (
	Waiting   State = C.TE_WAITING
	Pending   State = C.TE_PENDING
	Invalid   State = C.TE_INVALID
	Canceled  State = C.TE_CANCELED
	Completed State = C.TE_COMPLETED
	Timeout   State = C.TE_TIMEOUT
	Failed    State = C.TE_FAILED
)

var stateNames = [...]string{
	"waiting", "pending", "invalid", "canceled", "completed", "timeout", "failed",
}

// String gives the name of the state, in lower case.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// Done says that the state is final: the engine touches the memory of the request no more.
func (s State) Done() bool { return s > Pending }

// Status tells how far a request or a batch is.
type Status struct {
	State State
	Err   error  // nil, or a Code
	Bytes uint64 // moved so far, a lower bound
}

func statusOf(c C.struct_te_status) Status {
	s := Status{State: State(c.state), Bytes: uint64(c.bytes)}
	if c.error != 0 {
		s.Err = Code(c.error)
	}
	return s
}

// A Batch is a bag of requests that are watched together.
type Batch struct {
	e  *Engine
	id C.te_batch
	n  int // submitted; guarded by e.mu
}

// SubmitOptions go with the requests of one Submit.
type SubmitOptions struct {
	// Timeout, if not 0, is when requests that have not ended do so.
	Timeout time.Duration
	// Notify, if not nil, is sent to NotifyTarget once all requests of the call are completed. It is
	// without NUL; Batch.NotifyAfter takes any bytes.
	Notify       *Notification
	NotifyTarget *Segment
	// Traceparent, if not "", is the trace context of W3C that the requests belong to, "00-...". The line of
	// a slow one has it, and the log and the probes of a target that is reached by TCP.
	Traceparent string
	// Paths, if not nil, are the transports that may carry the requests; they narrow those of Engine.OpenWith.
	Paths *Paths
	// After, if not nil, is what the requests wait for before they are begun; Timeout counts from the submit.
	After *Stream
	// Then, if not nil, goes on once all requests of the call have ended, however each has.
	Then *Stream
	// Lease, if not nil, is the key of a lease of the target, by which the requests reach its memory.
	Lease *LeaseKey
}

// NewBatch makes a batch with room for that many requests.
func (e *Engine) NewBatch(capacity int) (*Batch, error) {
	if capacity < 0 {
		return nil, fail(ErrInvalid, "a batch of %d requests", capacity)
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	var id C.te_batch
	err := check(func() C.int { return C.te_batch_alloc(e.c, C.size_t(capacity), &id) })
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[id] = struct{}{}
	if e.closed {
		C.te_cancel(e.c, id)
	}
	return &Batch{e: e, id: id}, nil
}

// Submit starts requests, all or none; o may be nil. It does not wait for the network. The requests
// get the next numbers of the batch, from 0.
func (b *Batch) Submit(reqs []Request, o *SubmitOptions) error {
	if err := o.check(b.e, len(reqs)); err != nil || len(reqs) == 0 {
		return err
	}
	list := make([]C.go_request, len(reqs))
	for i, r := range reqs {
		if err := r.Target.of(b.e, fmt.Sprintf("request %d", i)); err != nil {
			return err
		}
		list[i] = r.c()
	}
	opts, free, err := o.c()
	if err != nil {
		return err
	}
	defer free()
	err = b.e.call(func() C.int {
		return C.go_submit(b.e.c, b.id, &list[0], C.size_t(len(list)), opts)
	})
	runtime.KeepAlive(reqs)
	if err == nil {
		b.submitted(len(reqs))
	}
	return err
}

// submitted counts requests that have been started. Close has not seen them if it came between.
func (b *Batch) submitted(n int) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.n += n
	if b.e.closed && b.e.c != nil {
		C.te_cancel(b.e.c, b.id)
	}
}

// check refuses what cannot be meant.
func (o *SubmitOptions) check(e *Engine, requests int) error {
	switch {
	case o == nil:
		return nil
	case o.Timeout < 0:
		return fail(ErrInvalid, "a timeout of %v", o.Timeout)
	case o.Notify != nil && requests == 0:
		return fail(ErrInvalid, "a notification needs requests; Segment.Notify sends one without")
	}
	return o.NotifyTarget.of(e, "the notification")
}

// c copies the options to memory of C.
func (o *SubmitOptions) c() (opts *C.te_submit_opts, free func(), err error) {
	if o == nil {
		return nil, func() {}, nil
	}
	opts = (*C.te_submit_opts)(C.calloc(1, C.sizeof_te_submit_opts))
	free = func() {
		C.free(unsafe.Pointer(opts.notify_name))
		C.free(unsafe.Pointer(opts.notify_msg))
		C.free(unsafe.Pointer(opts.traceparent))
		freePaths(opts.paths)
		freeStream(opts.after)
		freeStream(opts.then)
		C.free(unsafe.Pointer(opts.lease))
		C.free(unsafe.Pointer(opts))
	}
	opts.size = C.sizeof_te_submit_opts
	// Rounded up: 0 would be no deadline at all.
	opts.deadline_ms = C.int64_t(o.Timeout / time.Millisecond)
	if o.Timeout%time.Millisecond != 0 {
		opts.deadline_ms++
	}
	if o.Traceparent != "" {
		if opts.traceparent, err = cstring("traceparent", o.Traceparent); err != nil {
			free()
			return nil, nil, err
		}
	}
	if o.Paths != nil {
		if opts.paths, err = o.Paths.c(); err != nil {
			free()
			return nil, nil, err
		}
	}
	if o.After != nil {
		if opts.after, err = o.After.c(); err != nil {
			free()
			return nil, nil, err
		}
	}
	if o.Then != nil {
		if opts.then, err = o.Then.c(); err != nil {
			free()
			return nil, nil, err
		}
	}
	if o.Lease != nil {
		opts.lease = o.Lease.c()
	}
	if o.Notify == nil {
		return opts, free, nil
	}
	if o.NotifyTarget != nil {
		opts.notify_target = o.NotifyTarget.id
	}
	if opts.notify_name, err = cstring("name", o.Notify.Name); err == nil {
		opts.notify_msg, err = cstring("message", o.Notify.Msg)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return opts, free, nil
}

// Wait waits until every request submitted so far has ended, and tells why the first that did not
// complete did not. When ctx ends first, the requests are canceled; Wait then returns ctx.Err(),
// once their memory is quiet. A goroutine that waits takes a thread of the system meanwhile.
func (b *Batch) Wait(ctx context.Context) error {
	if err := b.e.enter(); err != nil {
		return err
	}
	defer b.e.leave()
	release := b.cancelOn(ctx)
	err := check(func() C.int { return C.te_wait(b.e.c, b.id, -1) })
	release()
	if err == nil {
		err = b.outcome()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// cancelOn cancels the batch when ctx ends, until the function that it returns has been called.
func (b *Batch) cancelOn(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			C.te_cancel(b.e.c, b.id)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// outcome is the error of the first request that has ended otherwise than completed; in a call.
func (b *Batch) outcome() error {
	var s C.struct_te_status
	err := check(func() C.int { return C.te_batch_status(b.e.c, b.id, &s) })
	if err != nil || s.error == 0 {
		return err
	}
	b.e.mu.Lock()
	n := b.n
	b.e.mu.Unlock()
	for i := 0; i < n; i++ {
		var task C.struct_te_status
		if C.te_status(b.e.c, b.id, C.size_t(i), &task) == 0 && task.error != 0 {
			return &Error{Code(task.error), fmt.Sprintf("request %d: %s", i, b.taskText(i))}
		}
	}
	return &Error{Code(s.error), ""}
}

func (b *Batch) taskText(task int) string {
	var buf [1024]C.char
	C.te_status_msg(b.e.c, b.id, C.size_t(task), &buf[0], C.size_t(len(buf)))
	return C.GoString(&buf[0])
}

// Status tells how far request number task is.
func (b *Batch) Status(task int) (Status, error) {
	var s C.struct_te_status
	if task < 0 {
		return Status{}, fail(ErrInvalid, "request %d", task)
	}
	err := b.e.call(func() C.int { return C.te_status(b.e.c, b.id, C.size_t(task), &s) })
	return statusOf(s), err
}

// A Path is what carries a request, or has.
type Path struct {
	Transport string // that has it, or had it last; "": none
	NIC       string // ours, that moved the last part that has ended; "": none has, or a transport without
	Changes   int    // times, at most 255, that it or a part of it had failed and went another way then
	Staged    bool   // our memory of a device is copied through host memory for the transport
}

// Path tells what carries request number task, in whatever state it is.
func (b *Batch) Path(task int) (Path, error) {
	p := C.struct_te_path{size: C.sizeof_struct_te_path}
	if task < 0 {
		return Path{}, fail(ErrInvalid, "request %d", task)
	}
	err := b.e.call(func() C.int { return C.te_path(b.e.c, b.id, C.size_t(task), &p) })
	if err != nil {
		return Path{}, err
	}
	return Path{
		Transport: C.GoString(&p.transport[0]),
		NIC:       C.GoString(&p.nic[0]),
		Changes:   int(p.changes),
		Staged:    p.staged != 0,
	}, nil
}

// Total tells how far the batch is as a whole.
func (b *Batch) Total() (Status, error) {
	var s C.struct_te_status
	err := b.e.call(func() C.int { return C.te_batch_status(b.e.c, b.id, &s) })
	return statusOf(s), err
}

// Cancel asks that requests that have not ended do so; Wait waits for that.
func (b *Batch) Cancel() error {
	return b.e.call(func() C.int { return C.te_cancel(b.e.c, b.id) })
}

// Close cancels what has not ended, waits for its memory to be quiet, and frees the batch. ErrBusy
// while another goroutine waits for it.
func (b *Batch) Close() error {
	if err := b.e.enter(); err != nil {
		return nil // the engine has taken its batches with it
	}
	defer b.e.leave()
	C.te_cancel(b.e.c, b.id)
	err := check(func() C.int { return C.te_wait(b.e.c, b.id, -1) })
	if err == nil {
		err = check(func() C.int { return C.te_batch_free(b.e.c, b.id) })
	}
	if err == nil {
		b.e.mu.Lock()
		defer b.e.mu.Unlock()
		delete(b.e.batches, b.id)
	}
	return err
}

// Transfer carries out requests and waits for them, as a Batch of their own.
func (e *Engine) Transfer(ctx context.Context, reqs ...Request) error {
	b, err := e.NewBatch(len(reqs))
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Submit(reqs, nil); err != nil {
		return err
	}
	return b.Wait(ctx)
}

// Explain says in words which transport would carry a request, and why the others would not. Nothing
// is started; the error is what Submit would give.
func (e *Engine) Explain(r Request) (string, error) {
	if err := r.Target.of(e, "the request"); err != nil {
		return "", err
	}
	if err := e.enter(); err != nil {
		return "", err
	}
	defer e.leave()
	req := r.c()
	var buf [8192]C.char
	err := check(func() C.int {
		return C.go_explain(e.c, &req, &buf[0], C.size_t(len(buf)))
	})
	return C.GoString(&buf[0]), err
}
