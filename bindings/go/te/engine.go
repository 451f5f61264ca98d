// SPDX-License-Identifier: Apache-2.0

// Package te moves bytes between memory of this process and memory of others, on this host or
// across the network. It is a thin wrapper of libtransfer_engine; te.h documents the model: an
// Engine registers Memory, opens the Segment of another engine by its name, and carries out the
// requests of a Batch.
//
// # Memory
//
// What is registered is read and written by threads, processes and devices that the Go runtime
// knows nothing of, for as long as it is registered. Go's own memory must not be handed out so:
// it may be freed, and reused, while a peer still writes to it. A Memory is therefore one of three:
// from Engine.Alloc (the quickest for peers on the same host), not Go's at all (At: mmap, malloc, a
// device), or a slice of Go that is pinned until Free (Pin, with Go 1.21 or newer). The Local side
// of a Request is a part of registered memory; anything else is refused with ErrNotRegistered.
//
// # Contexts
//
// A wait that its context ends cancels the transfers and still returns only once the engine touches
// their memory no more, so that a caller may reuse it at once.
//
// All methods may be called from any goroutine at any time.
package te

/*
#cgo pkg-config: transfer_engine
#include <stdlib.h>
#include <te.h>
*/
import "C"

import (
	"sync"
	"unsafe"
)

// Options say how to make an engine; the zero value is a good start.
type Options struct {
	// Metadata says where engines find each other: "etcd://host:port", "http://host:port/path",
	// "redis://host:port", or "P2PHANDSHAKE" (also if empty): no server, names are addresses.
	Metadata string
	// Name of this engine's segment, unique in the cluster. "host:port" asks for that port, too.
	Name string
	// Address told to peers; if empty, found from Name or from the route to the metadata.
	Address string
	// Port for handshakes, 0 for any.
	Port uint16
	// NoDiscover leaves out all transports but "local"; Install adds others.
	NoDiscover bool
	// Set gives options by the names of their environment variables, which they beat.
	Set map[string]string
}

// An Engine owns threads, sockets and registered memory. One per process is usual.
type Engine struct {
	c *C.te_engine

	mu      sync.Mutex
	idle    sync.Cond // calls has become 0
	calls   int       // in the library now
	closed  bool
	batches map[C.te_batch]struct{}
	// What the library holds, by its address: Go's collector must not take it for garbage.
	registered map[unsafe.Pointer]*Memory
}

// running are the engines that are not closed: also one that the program has dropped goes on.
var running sync.Map

// Version of the library, "major.minor.patch".
func Version() string { return C.GoString(C.te_version()) }

// New makes and starts an engine. It may block for as long as the metadata server takes to answer.
func New(o Options) (*Engine, error) {
	var c C.te_options
	C.te_options_init(&c)
	defer C.te_options_fini(&c)
	for _, field := range []struct {
		what, value string
		at          **C.char
	}{
		{"Metadata", o.Metadata, &c.metadata},
		{"Name", o.Name, &c.local_server_name},
		{"Address", o.Address, &c.ip_or_host_name},
	} {
		if field.value == "" {
			continue
		}
		s, err := cstring(field.what, field.value)
		if err != nil {
			return nil, err
		}
		defer C.free(unsafe.Pointer(s))
		*field.at = s
	}
	c.rpc_port = C.uint32_t(o.Port)
	if o.NoDiscover {
		c.auto_discover = 0
	}
	for name, value := range o.Set {
		if err := setOption(&c, name, value); err != nil {
			return nil, err
		}
	}
	e := &Engine{batches: map[C.te_batch]struct{}{}, registered: map[unsafe.Pointer]*Memory{}}
	e.idle.L = &e.mu
	// The library writes to C's memory, not to e: a pointer of C is all that e holds.
	var out *C.te_engine
	if err := check(func() C.int { return C.te_engine_create(&c, &out) }); err != nil {
		return nil, err
	}
	e.c = out
	running.Store(e, nil)
	return e, nil
}

func setOption(o *C.te_options, name, value string) error {
	n, err := cstring("option", name)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(n))
	v, err := cstring("value of "+name, value)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(v))
	return check(func() C.int { return C.te_option_set(o, n, v) })
}

// enter begins a call of the library; leave ends it. Close waits for all of them.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return &Error{ErrClosed, ""}
	}
	e.calls++
	return nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls--
	if e.calls == 0 {
		e.idle.Broadcast()
	}
}

func (e *Engine) call(f func() C.int) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	return check(f)
}

// callNamed is call for a function that takes one string.
func (e *Engine) callNamed(what, s string, f func(s *C.char) C.int) error {
	c, err := cstring(what, s)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(c))
	return e.call(func() C.int { return f(c) })
}

// Close cancels all transfers, takes the engine's segment out of the metadata and frees everything,
// memory of Alloc included. Calls in progress end first; waits end with ErrCanceled. Closing twice
// is no error.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		for id := range e.batches {
			C.te_cancel(e.c, id)
		}
	}
	for e.calls > 0 {
		e.idle.Wait()
	}
	if e.c != nil {
		C.te_engine_destroy(e.c)
		e.c = nil
		for p, m := range e.registered {
			m.unuse()
			delete(e.registered, p)
		}
		running.Delete(e)
	}
	return nil
}

// Name of this engine's segment, which peers give to Open.
func (e *Engine) Name() (string, error) {
	return e.text(func(buf *C.char, n C.size_t) C.int { return C.te_engine_name(e.c, buf, n) })
}

// Addr is the "host:port" of handshakes, as peers are told it.
func (e *Engine) Addr() (string, error) {
	return e.text(func(buf *C.char, n C.size_t) C.int { return C.te_engine_addr(e.c, buf, n) })
}

func (e *Engine) text(f func(buf *C.char, n C.size_t) C.int) (string, error) {
	if err := e.enter(); err != nil {
		return "", err
	}
	defer e.leave()
	return growing(f)
}

// Install adds a transport that was not discovered, "tcp" for instance. What arg means depends on
// the transport (te_transport_install in te.h); empty is always allowed.
func (e *Engine) Install(transport, arg string) error {
	var a *C.char
	if arg != "" {
		var err error
		if a, err = cstring("argument", arg); err != nil {
			return err
		}
		defer C.free(unsafe.Pointer(a))
	}
	return e.callNamed("transport", transport, func(name *C.char) C.int {
		return C.te_transport_install(e.c, name, a)
	})
}

// Uninstall removes a transport; ErrBusy while transfers use it.
func (e *Engine) Uninstall(transport string) error {
	return e.callNamed("transport", transport, func(name *C.char) C.int {
		return C.te_transport_uninstall(e.c, name)
	})
}
