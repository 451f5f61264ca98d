// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <stdlib.h>
#include <te.h>
*/
import "C"

import (
	"sync"
	"time"
	"unsafe"
)

// A Segment is everything that one engine lets others reach.
type Segment struct {
	e    *Engine
	id   C.te_segment
	name string

	mu     sync.Mutex
	closed bool
}

// A Buffer is one range of a segment.
type Buffer struct {
	Addr   uint64
	Length uint64
}

// Open opens the segment of the engine of that name. It blocks while the metadata, or the peer, is
// asked.
func (e *Engine) Open(name string) (*Segment, error) {
	s := &Segment{e: e, name: name}
	var id C.te_segment
	err := e.callNamed("name", name, func(c *C.char) C.int { return C.te_open(e.c, c, &id) })
	if err != nil {
		return nil, err
	}
	s.id = id
	return s, nil
}

// Local is the segment of this engine itself; it need not be closed.
func (e *Engine) Local() *Segment { return &Segment{e: e, id: C.TE_LOCAL_SEGMENT} }

// Close gives the segment back; ErrBusy while transfers use it. Closing twice is no error.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // its number may be another Segment's by now
		return nil
	}
	err := s.e.call(func() C.int { return C.te_close(s.e.c, s.id) })
	s.closed = err == nil
	return err
}

// of refuses the segment of another engine, whose number means something else to e.
func (s *Segment) of(e *Engine, what string) error {
	if s != nil && s.e != e {
		return fail(ErrInvalid, "%s: its segment is another engine's", what)
	}
	return nil
}

// Refresh asks anew what the segment holds. Transfers do that by themselves where it matters.
func (s *Segment) Refresh() error {
	return s.e.callNamed("name", s.name, func(c *C.char) C.int { return C.te_refresh(s.e.c, c) })
}

// A Warmed tells how a transport was connected ahead.
type Warmed struct {
	Transport              string
	Ready, Opening, Failed int  // paths; none: it has nothing to connect
	Err                    Code // why the first of those that failed did; 0: none has
	Time                   time.Duration
}

// Warm connects ahead, by all transports that reach the segment, so that the first request need not. It is an
// error, with the figures all the same, if all paths of one failed, else if some are still opening by then; with 0
// it only begins, and a negative timeout is none.
func (s *Segment) Warm(timeout time.Duration) ([]Warmed, error) {
	w := C.struct_te_warm{size: C.sizeof_struct_te_warm}
	ms := C.int64_t(-1)
	if timeout >= 0 {
		ms = C.int64_t((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	err := s.e.call(func() C.int { return C.te_warm(s.e.c, s.id, ms, &w) })
	var out []Warmed
	for _, by := range w.by[:w.n] {
		out = append(out, Warmed{
			Transport: C.GoString(&by.transport[0]),
			Ready:     int(by.ready),
			Opening:   int(by.opening),
			Failed:    int(by.failed),
			Err:       Code(by.error),
			Time:      time.Duration(by.time_ns),
		})
	}
	return out, err
}

// Buffers lists what the segment holds, in the order of addresses.
func (s *Segment) Buffers() ([]Buffer, error) {
	for room := 64; ; {
		list := (*C.te_buffer)(C.calloc(C.size_t(room), C.sizeof_te_buffer))
		var total C.size_t
		err := s.e.call(func() C.int {
			return C.te_segment_buffers(s.e.c, s.id, list, C.size_t(room), &total)
		})
		var out []Buffer
		if err == nil && int(total) <= room {
			out = make([]Buffer, int(total))
			for i, b := range unsafe.Slice(list, int(total)) {
				out[i] = Buffer{uint64(uintptr(b.addr)), uint64(b.length)}
			}
		}
		C.free(unsafe.Pointer(list))
		if err != nil || int(total) <= room {
			return out, err
		}
		room = int(total)
	}
}

// A Notification is a short message between engines, of any bytes. Engines of other makes take text
// alone, UTF-8 without NUL; what is none is ErrUnsupported there, and nothing is sent.
type Notification struct {
	Name, Msg string
}

// c copies the message to memory of C.
func (n Notification) c() (m *C.te_message, free func()) {
	m = (*C.te_message)(C.calloc(1, C.sizeof_te_message))
	name, msg := C.CBytes([]byte(n.Name)), C.CBytes([]byte(n.Msg))
	m.name, m.name_len = name, C.size_t(len(n.Name))
	m.msg, m.msg_len = msg, C.size_t(len(n.Msg))
	return m, func() {
		C.free(name)
		C.free(msg)
		C.free(unsafe.Pointer(m))
	}
}

// Notify sends a message to the engine behind the segment and returns when that has it.
func (s *Segment) Notify(n Notification) error {
	m, free := n.c()
	defer free()
	return s.e.call(func() C.int { return C.te_notify_bytes(s.e.c, s.id, m) })
}

// NotifyAfter sends a message to the engine behind the segment when every request that the batch has got
// so far is completed; not if any is not. It returns at once. Whatever is wrong with the message, the
// requests go on. Several of these may arrive in any order.
func (b *Batch) NotifyAfter(s *Segment, n Notification) error {
	if err := s.of(b.e, "the notification"); err != nil {
		return err
	}
	var id C.te_segment // of this engine itself
	if s != nil {
		id = s.id
	}
	m, free := n.c()
	defer free()
	return b.e.call(func() C.int { return C.te_notify_after(b.e.c, b.id, id, m) })
}

// Notifications takes what has been received so far, oldest first.
func (e *Engine) Notifications() ([]Notification, error) {
	var list *C.te_message
	var n C.size_t
	if err := e.call(func() C.int { return C.te_notify_recv_bytes(e.c, &list, &n) }); err != nil {
		return nil, err
	}
	defer C.te_message_free(list, n)
	out := make([]Notification, int(n))
	for i, got := range unsafe.Slice(list, int(n)) {
		out[i] = Notification{bytesOf(got.name, got.name_len), bytesOf(got.msg, got.msg_len)}
	}
	return out, nil
}

func bytesOf(data unsafe.Pointer, n C.size_t) string {
	return string(unsafe.Slice((*byte)(data), int(n)))
}

// Probe asks the engine of that name whether it lives.
func (e *Engine) Probe(name string) error {
	return e.callNamed("name", name, func(c *C.char) C.int { return C.te_probe(e.c, c) })
}
