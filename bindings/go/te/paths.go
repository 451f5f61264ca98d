// SPDX-License-Identifier: Apache-2.0

package te

// #include <stdlib.h>
// #include <te.h>
import "C"

import (
	"strings"
	"unsafe"
)

// Paths says which transports may carry requests, by names such as "rdma" and "tcp". Batch.Path tells which has.
type Paths struct {
	// Require: one of these or none, if there is any. A request that none of them can carry is refused where it is
	// submitted.
	Require []string
	// Prefer: the first of these that can carry a request does, before all others that are allowed.
	Prefer []string
	// Forbid: none of these.
	Forbid []string
}

// c copies them to memory of C, which freePaths frees.
func (p *Paths) c() (*C.te_paths, error) {
	var err error
	paths := (*C.te_paths)(C.calloc(1, C.sizeof_te_paths))
	paths.size = C.sizeof_te_paths
	for _, list := range []struct {
		what  string
		names []string
		to    **C.char
	}{{"require", p.Require, &paths.require}, {"prefer", p.Prefer, &paths.prefer}, {"forbid", p.Forbid, &paths.forbid}} {
		if *list.to, err = cstring(list.what, strings.Join(list.names, ",")); err != nil {
			freePaths(paths)
			return nil, err
		}
	}
	return paths, nil
}

func freePaths(p *C.te_paths) {
	if p != nil {
		C.free(unsafe.Pointer(p.require))
		C.free(unsafe.Pointer(p.prefer))
		C.free(unsafe.Pointer(p.forbid))
		C.free(unsafe.Pointer(p))
	}
}

// OpenWith opens a segment whose requests all go by these paths; ErrExists if it is open already with others.
func (e *Engine) OpenWith(name string, p *Paths) (*Segment, error) {
	if p == nil {
		return e.Open(name)
	}
	s := &Segment{e: e, name: name}
	paths, err := p.c()
	if err != nil {
		return nil, err
	}
	defer freePaths(paths)
	var id C.te_segment
	err = e.callNamed("name", name, func(c *C.char) C.int { return C.te_open_with(e.c, c, paths, &id) })
	if err != nil {
		return nil, err
	}
	s.id = id
	return s, nil
}

// Incarnation is the random number of this engine, which the next one of its name has not: for OpenLife. 0 if it is
// closed.
func (e *Engine) Incarnation() uint64 {
	if e.enter() != nil {
		return 0
	}
	defer e.leave()
	return uint64(C.te_incarnation(e.c))
}

// OpenLife opens the segment of one life of its engine, whose Incarnation that is; 0: of the one that has the name now.
// What is meant for it never gets to an engine that is started under its name later, but ends with ErrStale.
func (e *Engine) OpenLife(name string, incarnation uint64, p *Paths) (*Segment, error) {
	s := &Segment{e: e, name: name}
	var paths *C.te_paths
	if p != nil {
		var err error
		if paths, err = p.c(); err != nil {
			return nil, err
		}
		defer freePaths(paths)
	}
	var id C.te_segment
	err := e.callNamed("name", name, func(c *C.char) C.int {
		return C.te_open_life(e.c, c, C.uint64_t(incarnation), paths, &id)
	})
	if err != nil {
		return nil, err
	}
	s.id = id
	return s, nil
}
