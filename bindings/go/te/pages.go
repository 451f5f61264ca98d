// SPDX-License-Identifier: Apache-2.0

package te

/*
#include <te.h>

// The numbers are arguments of their own, since Go memory that holds pointers is not given to C.
static int go_submit_pages(te_engine *e, te_batch b, const te_pages *pages, const void *local,
                           const void *remote, const te_submit_opts *opts)
{
    te_pages all = *pages;

    all.local.index = local;
    all.remote.index = remote;
    return te_submit_pages(e, b, &all, opts);
}
*/
import "C"

import (
	"math/bits"
	"runtime"
	"unsafe"
)

// A PagePool is one side of Pages: part h of page k in layer l begins at
// Base + k*Stride + h*PartStride + l*LayerStride.
type PagePool struct {
	Base        uint64   // of the local side an offset in Pages.Memory, else an address at the target
	Pages       uint64   // how many there are: every number is below
	Stride      uint64   // bytes from a page to the next
	PartStride  uint64   // from a part of a page to the next
	LayerStride uint64   // from a layer to the next
	Numbers     []uint32 // of the pages to move; nil: 0, 1, 2 and so on
}

func (p *PagePool) c(base uint64) C.te_page_side {
	return C.te_page_side{
		base:         C.uint64_t(base),
		pages:        C.uint64_t(p.Pages),
		stride:       C.uint64_t(p.Stride),
		part_stride:  C.uint64_t(p.PartStride),
		layer_stride: C.uint64_t(p.LayerStride),
	}
}

func (p *PagePool) index() unsafe.Pointer {
	if len(p.Numbers) == 0 {
		return nil
	}
	return unsafe.Pointer(&p.Numbers[0])
}

// Pages are moved as one request. On the side that is written the strides must keep them apart, and a
// page should be named once.
type Pages struct {
	Op     Opcode
	Memory []byte   // a part of registered Memory, which has all of the local pool
	Target *Segment // who has the other side
	Length uint64   // bytes of a part: of a page, if it has only one
	Count  int      // pages to move: as many as each side's numbers
	Parts  int      // of a page, such as heads; 0: 1
	Layers int      // 0: 1
	Local  PagePool
	Remote PagePool
}

// end is that of the local pool in Memory; false if it is beyond 64 bits.
func (p *Pages) end() (uint64, bool) {
	end, carry := bits.Add64(p.Local.Base, p.Length, 0)
	for _, row := range [][2]uint64{
		{p.Local.Stride, p.Local.Pages},
		{p.Local.PartStride, uint64(p.Parts)},
		{p.Local.LayerStride, uint64(p.Layers)},
	} {
		if row[1] == 0 {
			continue
		}
		high, low := bits.Mul64(row[0], row[1]-1)
		var over uint64
		end, over = bits.Add64(end, low, 0)
		carry |= high | over
	}
	return end, carry == 0
}

func (p *Pages) check(e *Engine) error {
	if p.Count < 0 || p.Parts < 0 || p.Layers < 0 {
		return fail(ErrInvalid, "pages: a count below 0")
	}
	for _, pool := range []*PagePool{&p.Local, &p.Remote} {
		if pool.Numbers != nil && len(pool.Numbers) != p.Count {
			return fail(ErrInvalid, "pages: %d numbers of %d pages", len(pool.Numbers), p.Count)
		}
	}
	if end, ok := p.end(); !ok || end > uint64(len(p.Memory)) {
		return fail(ErrInvalid, "pages: the local pool ends beyond the %d bytes of Memory", len(p.Memory))
	}
	return p.Target.of(e, "pages")
}

// SubmitPages starts to move pages, named by their numbers, as one request; otherwise it is like Submit.
func (b *Batch) SubmitPages(p *Pages, o *SubmitOptions) error {
	if err := o.check(b.e, 1); err != nil {
		return err
	}
	if err := p.check(b.e); err != nil {
		return err
	}
	opts, free, err := o.c()
	if err != nil {
		return err
	}
	defer free()
	base := uint64(uintptr(unsafe.Pointer(dataOf(p.Memory)))) + p.Local.Base
	pages := C.te_pages{
		size:       C.sizeof_te_pages,
		opcode:     C.int(p.Op),
		length:     C.uint64_t(p.Length),
		n:          C.size_t(p.Count),
		parts:      C.size_t(p.Parts),
		layers:     C.size_t(p.Layers),
		index_bits: 32,
		local:      p.Local.c(base),
		remote:     p.Remote.c(p.Remote.Base),
	}
	if p.Target != nil {
		pages.target = p.Target.id
	}
	err = b.e.call(func() C.int {
		return C.go_submit_pages(b.e.c, b.id, &pages, p.Local.index(), p.Remote.index(), opts)
	})
	runtime.KeepAlive(p)
	if err == nil {
		b.submitted(1)
	}
	return err
}
