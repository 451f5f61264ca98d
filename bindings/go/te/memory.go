// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <stdlib.h>
#include <te.h>
*/
import "C"

import (
	"errors"
	"strings"
	"sync"
	"unsafe"
)

// Memory is a range that may be registered: see the package's text on memory.
type Memory struct {
	p    unsafe.Pointer
	n    int
	free func() error

	mu    sync.Mutex
	users int // registrations, of all engines
	freed bool
}

// use is called before the memory is registered, and unuse once it is not.
func (m *Memory) use() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.freed {
		return fail(ErrInvalid, "the memory was freed")
	}
	m.users++
	return nil
}

func (m *Memory) unuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
}

// At is memory that Go's runtime does not own, such as of mmap, malloc or a device. It must stay
// where it is until it is unregistered. For a slice of syscall.Mmap that is
// te.At(unsafe.Pointer(&b[0]), len(b)).
func At(p unsafe.Pointer, length int) *Memory {
	return &Memory{p: p, n: length, free: func() error { return nil }}
}

// Alloc gives zeroed memory on a NUMA node ("cpu:0"), on a device ("cuda:0", "hip:0"), or on any
// node ("" or "*"). It is gone after Free, and when the engine is closed.
func (e *Engine) Alloc(length int, location string) (*Memory, error) {
	if length <= 0 {
		return nil, fail(ErrInvalid, "memory of %d bytes", length)
	}
	var p unsafe.Pointer
	err := e.callLocated(location, func(where *C.char) C.int {
		return C.te_alloc(e.c, C.size_t(length), where, &p)
	})
	if err != nil {
		return nil, err
	}
	return &Memory{p: p, n: length, free: func() error {
		return e.call(func() C.int { return C.te_free(e.c, p) })
	}}, nil
}

// callLocated is call for a function that takes a location.
func (e *Engine) callLocated(location string, f func(where *C.char) C.int) error {
	if location == "" {
		location = "*"
	}
	return e.callNamed("location", location, f)
}

// Bytes are the memory itself, not a copy; they must not be used after Free, nor touched by the
// program if the memory is a device's.
func (m *Memory) Bytes() []byte { return unsafe.Slice((*byte)(m.p), m.n) }

// Addr is where the memory begins: the Offset of requests of peers.
func (m *Memory) Addr() uint64 { return uint64(uintptr(m.p)) }

// Len is its length in bytes.
func (m *Memory) Len() int { return m.n }

// Free releases memory of Alloc and unpins that of Pin; other memory is left as it is. ErrBusy while
// it is registered. Freeing twice is no error.
func (m *Memory) Free() error {
	if done, err := m.freeing(); done || err != nil {
		return err
	}
	// Without the lock, which is taken within that of an engine.
	err := m.free()
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.freed = false
	}
	return err
}

func (m *Memory) freeing() (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		return false, fail(ErrBusy, "the memory is registered: unregister it, or close the engine, first")
	}
	done, m.freed = m.freed, true
	return done, nil
}

// Access says what peers may do with registered memory.
type Access uint

// LocalOnly memory is the Local side of requests of this engine, and nothing else.
const (
	LocalOnly   Access = C.TE_LOCAL_ONLY
	RemoteRead  Access = C.TE_REMOTE_READ
	RemoteWrite Access = C.TE_REMOTE_WRITE
	RemoteRW    Access = C.TE_REMOTE_RW
)

// Register lets requests, and peers as far as access allows, use the memory until Unregister. The
// location is that of Alloc; if empty it is found out.
func (e *Engine) Register(m *Memory, location string, access Access) error {
	if err := m.use(); err != nil {
		return err
	}
	err := e.callLocated(location, func(where *C.char) C.int {
		return C.te_register(e.c, m.p, C.size_t(m.n), where, C.uint(access))
	})
	e.registering([]*Memory{m}, err)
	return err
}

// registering keeps memory that has been registered, for which its use was counted before.
func (e *Engine) registering(ms []*Memory, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range ms {
		// After Close the library holds nothing any more.
		if err != nil || e.c == nil {
			m.unuse()
			continue
		}
		e.registered[m.p] = m
	}
}

// RegisterAll registers all of them or none, and tells peers once.
func (e *Engine) RegisterAll(ms []*Memory, location string, access Access) error {
	return e.registerAll(ms, location, func(list *C.te_buffer, where *C.char) C.int {
		return C.te_register_batch(e.c, list, C.size_t(len(ms)), where, C.uint(access))
	})
}

// RegisterAllow is RegisterAll for those peers alone, with TE_AUTH: allow names them, by the ids of their keys or names
// of their certificates. The requests of others end with ErrAccess.
func (e *Engine) RegisterAllow(ms []*Memory, location string, access Access, allow ...string) error {
	names, err := peerNames(allow)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(names))
	return e.registerAll(ms, location, func(list *C.te_buffer, where *C.char) C.int {
		return C.te_register_allow(e.c, list, C.size_t(len(ms)), where, C.uint(access), names)
	})
}

// peerNames is the list as C takes it, which is to be freed.
func peerNames(allow []string) (*C.char, error) {
	for _, name := range allow {
		if strings.ContainsAny(name, ",\x00") {
			return nil, fail(ErrInvalid, "%q is no name of a peer", name)
		}
	}
	return C.CString(strings.Join(allow, ",")), nil
}

func (e *Engine) registerAll(ms []*Memory, location string, f func(list *C.te_buffer, where *C.char) C.int) error {
	if len(ms) == 0 {
		return nil
	}
	for i, m := range ms {
		if err := m.use(); err != nil {
			e.registering(ms[:i], err)
			return err
		}
	}
	// In memory of C, since Go's must not hold pointers to pinned memory when C is given it.
	list := (*C.te_buffer)(C.calloc(C.size_t(len(ms)), C.sizeof_te_buffer))
	defer C.free(unsafe.Pointer(list))
	for i, m := range ms {
		at := &unsafe.Slice(list, len(ms))[i]
		at.addr, at.length = m.p, C.size_t(m.n)
	}
	err := e.callLocated(location, func(where *C.char) C.int { return f(list, where) })
	e.registering(ms, err)
	return err
}

// Unregister undoes Register. When it returns nil no peer touches the memory any more. ErrBusy while
// requests of this engine use it.
func (e *Engine) Unregister(m *Memory) error {
	kept := e.unregistering(m)
	err := e.call(func() C.int { return C.te_unregister(e.c, m.p) })
	e.unregistered(kept, err)
	return err
}

// unregistering takes out what is kept for a range, before the range may be registered anew.
func (e *Engine) unregistering(m *Memory) *Memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.registered[m.p]
	delete(e.registered, m.p)
	return kept
}

// unregistered lets go of it, or keeps it on if the library does.
func (e *Engine) unregistered(kept *Memory, err error) {
	if kept == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil || errors.Is(err, ErrNotRegistered) || e.c == nil {
		kept.unuse()
		return
	}
	e.registered[kept.p] = kept
}

// UnregisterAll unregisters all of them, tells peers once, and returns the first error.
func (e *Engine) UnregisterAll(ms []*Memory) error {
	if len(ms) == 0 {
		return nil
	}
	list := (*unsafe.Pointer)(C.calloc(C.size_t(len(ms)), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(list))
	kept := make([]*Memory, len(ms))
	for i, m := range ms {
		unsafe.Slice(list, len(ms))[i] = m.p
		kept[i] = e.unregistering(m)
	}
	err := e.call(func() C.int { return C.te_unregister_batch(e.c, list, C.size_t(len(ms))) })
	for _, m := range kept {
		if m == nil {
			continue
		}
		one := err
		if err != nil { // of which of them is not told; asked again, each tells
			one = e.call(func() C.int { return C.te_unregister(e.c, m.p) })
		}
		e.unregistered(m, one)
	}
	return err
}
