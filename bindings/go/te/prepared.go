// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <te.h>

// Addresses are numbers here, since Go memory that holds pointers is not given to C.
_Static_assert(sizeof(uintptr_t) == sizeof(void *), "another layout");

static int go_prep_create(te_engine *e, te_segment target, const uintptr_t *local,
                          const uint64_t *remote, const size_t *length, size_t n, te_prep *out)
{
    return te_prep_create(e, target, (void *const *)local, remote, length, n, out);
}
*/
import "C"

import "unsafe"

// A Piece joins a part of registered memory with as many bytes at an address of a peer.
type Piece struct {
	Local  []byte
	Offset uint64
}

// Prepared is a list of pieces that are checked and looked up once, to be moved again and again.
type Prepared struct {
	e  *Engine
	id C.te_prep
	n  int
}

// Prepare makes such a list for one segment. It holds neither the memory nor the segment.
func (s *Segment) Prepare(pieces []Piece) (*Prepared, error) {
	if len(pieces) == 0 {
		return nil, fail(ErrInvalid, "there are no pieces")
	}
	local := make([]C.uintptr_t, len(pieces))
	remote := make([]C.uint64_t, len(pieces))
	length := make([]C.size_t, len(pieces))
	for i, p := range pieces {
		local[i] = C.uintptr_t(uintptr(unsafe.Pointer(dataOf(p.Local))))
		remote[i], length[i] = C.uint64_t(p.Offset), C.size_t(len(p.Local))
	}
	var id C.te_prep
	err := s.e.call(func() C.int {
		return C.go_prep_create(s.e.c, s.id, &local[0], &remote[0], &length[0],
			C.size_t(len(pieces)), &id)
	})
	if err != nil {
		return nil, err
	}
	return &Prepared{s.e, id, len(pieces)}, nil
}

// Close frees the list; what was submitted from it goes on.
func (p *Prepared) Close() error {
	return p.e.call(func() C.int { return C.te_prep_destroy(p.e.c, p.id) })
}

// SubmitPrepared starts the pieces of those numbers, or all of them if index is nil; otherwise it is
// like Submit.
func (b *Batch) SubmitPrepared(p *Prepared, op Opcode, index []uint32, o *SubmitOptions) error {
	if p.e != b.e {
		return fail(ErrInvalid, "the list is another engine's")
	}
	n := p.n
	if index != nil {
		n = len(index)
	}
	if err := o.check(b.e, n); err != nil || n == 0 {
		return err
	}
	var which *C.uint32_t
	if index != nil {
		which = (*C.uint32_t)(&index[0])
	}
	opts, free, err := o.c()
	if err != nil {
		return err
	}
	defer free()
	err = b.e.call(func() C.int {
		return C.te_prep_submit(b.e.c, b.id, p.id, C.int(op), which, C.size_t(n), opts)
	})
	if err == nil {
		b.submitted(n)
	}
	return err
}
