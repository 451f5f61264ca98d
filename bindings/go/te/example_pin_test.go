// SPDX-License-Identifier: Apache-2.0

//go:build go1.21

package te_test

import (
	"fmt"

	"transferengine/te"
)

// A slice of Go's own memory, registered for as long as it is pinned.
func ExamplePin() {
	engine, err := te.New(te.Options{Name: "127.0.0.1"})
	check(err)
	defer engine.Close()

	memory := te.Pin(make([]byte, 4096))
	check(engine.Register(memory, "", te.RemoteRW))
	fmt.Println(memory.Len())
	check(engine.Unregister(memory))
	check(memory.Free())
	// Output: 4096
}
