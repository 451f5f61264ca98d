// SPDX-License-Identifier: Apache-2.0

//go:build go1.21

package te

import (
	"runtime"
	"unsafe"
)

// Pin is Go's own memory, kept where it is until Free, which must come before the Memory is dropped;
// Go's runtime panics otherwise. An engine drops none that is registered. Needs Go 1.21.
func Pin(b []byte) *Memory {
	var pinner runtime.Pinner
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) > 0 {
		pinner.Pin(p)
	}
	return &Memory{p: p, n: len(b), free: func() error {
		pinner.Unpin()
		return nil
	}}
}
