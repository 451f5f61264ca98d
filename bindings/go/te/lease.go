// SPDX-License-Identifier: Apache-2.0

package te

// #include <stdlib.h>
// #include <te.h>
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// A LeaseKey is what the holder of a lease shows (SubmitOptions.Lease): all of it, on every machine. Whoever has it may
// do what the lease allows: send it where others do not read. Formats of package fmt do not show it.
type LeaseKey [24]byte

// Format keeps the key out of logs.
func (k LeaseKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, "LeaseKey") }

// c copies it to memory of C.
func (k *LeaseKey) c() *C.te_lease_key {
	key := (*C.te_lease_key)(C.malloc(C.sizeof_te_lease_key))
	for i, b := range k {
		key.bytes[i] = C.uint8_t(b)
	}
	return key
}

// A Lease lets whoever has its key reach a part of registered memory, until it is revoked.
type Lease struct {
	// Key is for the peer, with Memory.Addr and the length.
	Key LeaseKey

	e  *Engine
	id C.te_lease
}

// GrantLease lets whoever has the key of the lease do what access says, which that of Register may lack, with length
// bytes of registered memory from offset on. It allows nothing any more after lifetime; 0: until it is revoked. Memory
// that is reached by leases alone is registered as LocalOnly. Each lease is to be revoked.
func (e *Engine) GrantLease(m *Memory, offset, length int, access Access, lifetime time.Duration) (*Lease, error) {
	return e.grant(m, offset, length, lifetime, func(at unsafe.Pointer, ms C.int64_t, id *C.te_lease, key *C.te_lease_key) C.int {
		return C.te_lease_grant(e.c, at, C.size_t(length), C.uint(access), ms, id, key)
	})
}

// GrantLeaseAllow is GrantLease with a key that is of use to those peers alone, as of RegisterAllow.
func (e *Engine) GrantLeaseAllow(m *Memory, offset, length int, access Access, lifetime time.Duration, allow ...string) (*Lease, error) {
	names, err := peerNames(allow)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(names))
	return e.grant(m, offset, length, lifetime, func(at unsafe.Pointer, ms C.int64_t, id *C.te_lease, key *C.te_lease_key) C.int {
		return C.te_lease_grant_allow(e.c, at, C.size_t(length), C.uint(access), ms, names, id, key)
	})
}

func (e *Engine) grant(m *Memory, offset, length int, lifetime time.Duration,
	f func(at unsafe.Pointer, ms C.int64_t, id *C.te_lease, key *C.te_lease_key) C.int) (*Lease, error) {
	switch {
	case offset < 0 || length < 0 || offset > m.n || length > m.n-offset:
		return nil, fail(ErrInvalid, "a lease of %d bytes from %d on of memory of %d", length, offset, m.n)
	case lifetime < 0:
		return nil, fail(ErrInvalid, "a lease of %v", lifetime)
	}
	// Rounded up: 0 would be for ever.
	ms := C.int64_t(lifetime / time.Millisecond)
	if lifetime%time.Millisecond != 0 {
		ms++
	}
	var id C.te_lease
	var key C.te_lease_key
	err := e.call(func() C.int { return f(unsafe.Add(m.p, offset), ms, &id, &key) })
	if err != nil {
		return nil, err
	}
	l := &Lease{e: e, id: id}
	for i, b := range key.bytes {
		l.Key[i] = byte(b)
	}
	return l, nil
}

// Revoke ends the lease: when it returns nil no byte is read or written by it, now or later. It waits for no peer,
// whose requests end Invalid with ErrAccess; one that was under way may have moved any part of its bytes. ErrNotFound:
// it was revoked already. Engine.Close ends those that are left.
func (l *Lease) Revoke() error {
	return l.e.call(func() C.int { return C.te_revoke(l.e.c, l.id) })
}
