// SPDX-License-Identifier: Apache-2.0

package te

// #include <stdlib.h>
// #include <te.h>
import "C"

import "unsafe"

// A Stream is a stream of a device, or a descriptor: requests are begun after what it does (SubmitOptions.After), or it
// goes on when they have ended (SubmitOptions.Then).
type Stream struct {
	// Location is the device, "cuda:0"; with "" FD is meant.
	Location string
	// Handle is a stream of the device's primary context.
	Handle unsafe.Pointer
	// FD is waited for until it can be read, but not read; as Then it is an eventfd, to which 1 is written. It is
	// duplicated by the call.
	FD uintptr
}

// c copies it to memory of C, which freeStream frees.
func (s *Stream) c() (*C.te_stream, error) {
	var err error
	stream := (*C.te_stream)(C.calloc(1, C.sizeof_te_stream))
	stream.size = C.sizeof_te_stream
	stream.fd = C.int(s.FD)
	if s.Location != "" {
		stream.stream = s.Handle
		if stream.location, err = cstring("location", s.Location); err != nil {
			freeStream(stream)
			return nil, err
		}
	}
	return stream, nil
}

func freeStream(s *C.te_stream) {
	if s != nil {
		C.free(unsafe.Pointer(s.location))
		C.free(unsafe.Pointer(s))
	}
}
