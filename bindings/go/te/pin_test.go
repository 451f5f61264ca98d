// SPDX-License-Identifier: Apache-2.0

//go:build go1.21

package te

import (
	"runtime"
	"testing"
)

// Pinned memory of Go serves both sides while the collector runs.
func TestPin(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local, remote := Pin(make([]byte, 300000)), Pin(make([]byte, 100003))
	if err := e.RegisterAll([]*Memory{local}, "", LocalOnly); err != nil {
		t.Fatal(err)
	}
	if err := peer.Register(remote, "", RemoteRW); err != nil {
		t.Fatal(err)
	}
	s := open(t, e, name(t, peer))
	for i := 0; i < 20; i++ {
		runtime.GC()
		if err := roundTrip(e, local, s, remote.Addr(), 100003, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Unregister(local); err != nil {
		t.Error(err)
	}
	if err := peer.Unregister(remote); err != nil {
		t.Error(err)
	}
	local.Free()
	remote.Free()
}
