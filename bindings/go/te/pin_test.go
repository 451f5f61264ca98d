// SPDX-License-Identifier: Apache-2.0

//go:build go1.21

package te

import (
	"errors"
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

// What is registered stays, though the program has dropped it, and is not unpinned before it is not.
func TestPinKept(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	addr := func() uint64 {
		m := Pin(make([]byte, 100003))
		if err := peer.Register(m, "", RemoteRW); err != nil {
			t.Fatal(err)
		}
		return m.Addr()
	}()
	local := alloc(t, e, 300009, LocalOnly)
	s := open(t, e, name(t, peer))
	for i := 0; i < 5; i++ {
		runtime.GC()
		if err := roundTrip(e, local, s, addr, 100003, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	pinned := []*Memory{Pin(make([]byte, 5000)), Pin(make([]byte, 5000)), Pin(make([]byte, 5000))}
	if err := e.RegisterAll(pinned[:2], "", RemoteRW); err != nil {
		t.Fatal(err)
	}
	if err := e.RegisterAll(pinned, "", RemoteRW); !errors.Is(err, ErrOverlap) {
		t.Errorf("twice: %v", err)
	}
	if err := pinned[1].Free(); !errors.Is(err, ErrBusy) {
		t.Errorf("freed while registered: %v", err)
	}
	// One of them is not registered; the others are unregistered all the same.
	if err := e.UnregisterAll(pinned); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("%v", err)
	}
	for i := 0; i < 2; i++ {
		for _, m := range pinned {
			if err := m.Free(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := e.Register(pinned[0], "", RemoteRW); !errors.Is(err, ErrInvalid) {
		t.Errorf("registered after Free: %v", err)
	}
	last := Pin(make([]byte, 5000))
	if err := e.Register(last, "", RemoteRW); err != nil {
		t.Fatal(err)
	}
	if e.Close(); last.Free() != nil {
		t.Error("not to be freed after Close")
	}
	peer.mu.Lock()
	var kept *Memory
	for _, kept = range peer.registered {
	}
	peer.mu.Unlock()
	if err := peer.Unregister(kept); err != nil {
		t.Error(err)
	}
	kept.Free()
}
