// SPDX-License-Identifier: Apache-2.0

package te

// #include <te.h>
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// A Code says what kind of error happened. It is itself an error, so that
// errors.Is(err, te.ErrTimeout) tells one kind from the others.
type Code int

// The codes of te.h, which says of each what a caller may do about it.
const (
	ErrInvalid        Code = C.TE_ERR_INVALID
	ErrTooMany        Code = C.TE_ERR_TOO_MANY
	ErrNotRegistered  Code = C.TE_ERR_NOT_REGISTERED
	ErrBusy           Code = C.TE_ERR_BUSY
	ErrNoDevice       Code = C.TE_ERR_NO_DEVICE
	ErrOverlap        Code = C.TE_ERR_OVERLAP
	ErrDNS            Code = C.TE_ERR_DNS
	ErrSocket         Code = C.TE_ERR_SOCKET
	ErrJSON           Code = C.TE_ERR_JSON
	ErrRejected       Code = C.TE_ERR_REJECTED
	ErrMetadata       Code = C.TE_ERR_METADATA
	ErrEndpoint       Code = C.TE_ERR_ENDPOINT
	ErrContext        Code = C.TE_ERR_CONTEXT
	ErrNUMA           Code = C.TE_ERR_NUMA
	ErrClock          Code = C.TE_ERR_CLOCK
	ErrMemory         Code = C.TE_ERR_MEMORY
	ErrNotImplemented Code = C.TE_ERR_NOT_IMPLEMENTED
	ErrTimeout        Code = C.TE_ERR_TIMEOUT
	ErrCanceled       Code = C.TE_ERR_CANCELED
	ErrClosed         Code = C.TE_ERR_CLOSED
	ErrNotFound       Code = C.TE_ERR_NOT_FOUND
	ErrProtocol       Code = C.TE_ERR_PROTOCOL
	ErrLink           Code = C.TE_ERR_LINK
	ErrPeer           Code = C.TE_ERR_PEER
	ErrStale          Code = C.TE_ERR_STALE
	ErrAccess         Code = C.TE_ERR_ACCESS
	ErrUnsupported    Code = C.TE_ERR_UNSUPPORTED
	ErrTooLarge       Code = C.TE_ERR_TOO_LARGE
	ErrExists         Code = C.TE_ERR_EXISTS
	ErrSystem         Code = C.TE_ERR_SYSTEM
)

// Error gives the general text of the code.
func (c Code) Error() string { return C.GoString(C.te_strerror(C.int(c))) }

// Name gives the name that te.h has for the code, "TE_ERR_TIMEOUT" for instance.
func (c Code) Name() string { return C.GoString(C.te_errname(C.int(c))) }

// An Error is what every call of this package fails with, unless a context ended it.
type Error struct {
	Code Code
	Text string // what exactly was wrong, with names and the remedy; may be empty
}

// Error gives the text, or that of the code where there is none.
func (e *Error) Error() string {
	if e.Text == "" {
		return "te: " + e.Code.Error()
	}
	return "te: " + e.Text
}

// Unwrap gives the Code, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Code }

func fail(code Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// check runs one call of the library. Its text of an error belongs to the thread, hence the lock.
func check(f func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if rc := f(); rc < 0 {
		return &Error{Code(rc), C.GoString(C.te_errmsg())}
	}
	return nil
}

// cstring copies a string for C; freed with free. A NUL inside would cut it short unnoticed.
func cstring(what, s string) (*C.char, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, fail(ErrInvalid, "%s %q has a NUL byte in it", what, s)
	}
	return C.CString(s), nil
}

// growing fills a buffer that is doubled for as long as the library calls it too small.
func growing(f func(buf *C.char, n C.size_t) C.int) (string, error) {
	for size := 4 << 10; ; size *= 2 {
		buf := make([]byte, size)
		p := (*C.char)(unsafe.Pointer(&buf[0]))
		err := check(func() C.int { return f(p, C.size_t(size)) })
		if err == nil {
			return C.GoString(p), nil
		}
		if code := err.(*Error).Code; code != ErrTooLarge || size >= 64<<20 {
			return "", err
		}
	}
}
