// SPDX-License-Identifier: Apache-2.0

package te

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const leased = 1000 // bytes, from as many on

// leaseWorld is an engine that is to reach memory of a peer that is for leases alone.
type leaseWorld struct {
	t             *testing.T
	e, peer       *Engine
	local, remote *Memory
	s             *Segment
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	t.Helper()
	w := &leaseWorld{t: t, e: newEngine(t), peer: newEngine(t)}
	w.local, w.remote = alloc(t, w.e, leased, LocalOnly), alloc(t, w.peer, 4*leased, LocalOnly)
	w.s = open(t, w.e, name(t, w.peer))
	return w
}

func (w *leaseWorld) grant(access Access, lifetime time.Duration) *Lease {
	w.t.Helper()
	l, err := w.peer.GrantLease(w.remote, leased, leased, access, lifetime)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *leaseWorld) revoke(l *Lease) {
	w.t.Helper()
	if err := l.Revoke(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *leaseWorld) at() uint64 { return w.remote.Addr() + leased }

// ends is how a batch ends that is begun so.
func (w *leaseWorld) ends(begin func(b *Batch) error) error {
	w.t.Helper()
	b, err := w.e.NewBatch(1)
	if err != nil {
		w.t.Fatal(err)
	}
	defer b.Close()
	if err := begin(b); err != nil {
		w.t.Fatal(err)
	}
	err = b.Wait(context.Background())
	if s, _ := b.Status(0); errors.Is(err, ErrAccess) != (s.State == Invalid && s.Err == ErrAccess) {
		w.t.Errorf("%+v, %v", s, err)
	}
	return err
}

func (w *leaseWorld) moves(op Opcode, key *LeaseKey) error {
	w.t.Helper()
	r := []Request{{op, w.local.Bytes(), w.s, w.at()}}
	return w.ends(func(b *Batch) error { return b.Submit(r, &SubmitOptions{Lease: key}) })
}

func (w *leaseWorld) refused(err error, text string) {
	w.t.Helper()
	if !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), text) {
		w.t.Errorf("%v, not of %q", err, text)
	}
}

// holds says whether the leased part, and nothing else of the memory, has this value.
func (w *leaseWorld) holds(value byte) bool {
	want := make([]byte, 4*leased)
	copy(want[leased:], bytes.Repeat([]byte{value}, leased))
	return bytes.Equal(w.remote.Bytes(), want)
}

func (w *leaseWorld) fill(value byte) { copy(w.local.Bytes(), bytes.Repeat([]byte{value}, leased)) }

// Each way to begin a WRITE.
func TestLease(t *testing.T) {
	w := newLeaseWorld(t)
	list, err := w.s.Prepare([]Piece{{w.local.Bytes(), w.at()}})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	pages := &Pages{
		Op: Write, Memory: w.local.Bytes(), Target: w.s, Length: 100, Count: 10,
		Local: PagePool{Pages: 10, Stride: 100}, Remote: PagePool{Base: w.at(), Pages: 10, Stride: 100},
	}
	for i, way := range []func(b *Batch, o *SubmitOptions) error{
		func(b *Batch, o *SubmitOptions) error {
			return b.Submit([]Request{{Write, w.local.Bytes(), w.s, w.at()}}, o)
		},
		func(b *Batch, o *SubmitOptions) error { return b.SubmitPrepared(list, Write, nil, o) },
		func(b *Batch, o *SubmitOptions) error { return b.SubmitPages(pages, o) },
	} {
		write := func(key *LeaseKey) error {
			return w.ends(func(b *Batch) error { return way(b, &SubmitOptions{Lease: key}) })
		}
		before, moved := byte(2*i), byte(2*i+1)
		l := w.grant(RemoteRW, 0)
		w.fill(before)
		if err := write(&l.Key); err != nil || !w.holds(before) {
			t.Errorf("way %d: %v", i, err)
		}
		w.fill(moved)
		if err := write(nil); !errors.Is(err, ErrStale) || !w.holds(before) {
			t.Errorf("way %d without a key: %v", i, err)
		}
		if err := write(&l.Key); err != nil || !w.holds(moved) {
			t.Errorf("way %d: %v", i, err)
		}
		w.revoke(l)
		w.fill(before)
		w.refused(write(&l.Key), "it was revoked")
		if !w.holds(moved) {
			t.Errorf("way %d: other bytes", i)
		}
	}
}

func TestLeaseAllowsNoMore(t *testing.T) {
	w := newLeaseWorld(t)
	in, out := w.grant(RemoteWrite, 0), w.grant(RemoteRead, time.Hour)
	defer w.revoke(out)
	w.refused(w.moves(Write, &out.Key), "the lease does not")
	w.refused(w.moves(Read, &in.Key), "the lease does not")
	w.fill(5) // a READ that has failed may have left anything there
	if err := w.moves(Write, &in.Key); err != nil || !w.holds(5) {
		t.Error(err)
	}
	w.fill(6)
	if err := w.moves(Read, &out.Key); err != nil || w.local.Bytes()[leased-1] != 5 {
		t.Error(err)
	}
	other := in.Key
	other[len(other)-1] ^= 1
	w.refused(w.moves(Write, &other), "no lease with this key")
	w.revoke(in)
	if err := in.Revoke(); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	short := w.grant(RemoteWrite, time.Nanosecond)
	defer w.revoke(short)
	var err error
	for i := 0; err == nil && i < 1000000; i++ { // until a millisecond is over
		err = w.moves(Write, &short.Key)
	}
	w.refused(err, "the time of the lease is over")
}

func TestLeaseThatIsWrong(t *testing.T) {
	w := newLeaseWorld(t)
	for _, wrong := range []struct {
		offset, length int
		access         Access
		lifetime       time.Duration
	}{
		{0, 0, RemoteRW, 0},
		{0, 4*leased + 1, RemoteRW, 0},
		{4*leased + 1, 0, RemoteRW, 0},
		{-1, 1, RemoteRW, 0},
		{0, -1, RemoteRW, 0},
		{0, 1, LocalOnly, 0},
		{0, 1, RemoteRW, -1},
	} {
		_, err := w.peer.GrantLease(w.remote, wrong.offset, wrong.length, wrong.access, wrong.lifetime)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if _, err := w.e.GrantLease(w.remote, 0, 1, RemoteRW, 0); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("of another engine: %v", err)
	}
	left := w.grant(RemoteRW, 0)
	w.peer.Close()
	if err := left.Revoke(); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed engine: %v", err)
	}
}

func TestLeaseKeyIsNotShown(t *testing.T) {
	w := newLeaseWorld(t)
	l := w.grant(RemoteRead, 0)
	defer w.revoke(l)
	shown := fmt.Sprintf("%v %+v %x %s", l.Key, SubmitOptions{Lease: &l.Key}, &l.Key, l.Key)
	shown += fmt.Sprintf("%v %+v %#v", struct{ Key LeaseKey }{l.Key}, *l, l.Key)
	if n := strings.Count(shown, "LeaseKey"); n < 7 {
		t.Errorf("%d times in %s", n, shown)
	}
	for _, form := range []string{"%d", "%x", "%X", "%#v", "%q"} {
		if text := strings.Trim(fmt.Sprintf(form, l.Key[:3]), "[]{}"); strings.Contains(shown, text) {
			t.Errorf("%s is in %s", text, shown)
		}
	}
}

// member makes an engine with TE_AUTH that shows the first of these ids, and knows them all.
func member(t *testing.T, ids ...string) *Engine {
	t.Helper()
	var lines strings.Builder
	for _, id := range ids {
		key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id), 32))
		fmt.Fprintf(&lines, "%s:%s\n", id, key)
	}
	path := filepath.Join(t.TempDir(), ids[0])
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Name: "127.0.0.1", Set: map[string]string{"TE_AUTH": "psk", "TE_AUTH_KEYS": path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestForSomePeers(t *testing.T) {
	target, a, b := member(t, "t", "a", "b"), member(t, "a", "t"), member(t, "b", "t")
	pool, err := target.Alloc(2*leased, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := target.RegisterAllow([]*Memory{pool}, "", RemoteRW, "nobody", "b"); err != nil {
		t.Fatal(err)
	}
	l, err := target.GrantLeaseAllow(pool, leased, leased, RemoteWrite, 0, "a")
	if err != nil {
		t.Fatal(err)
	}
	write := func(e *Engine, offset uint64, key *LeaseKey) error {
		local := alloc(t, e, leased, LocalOnly)
		w := &leaseWorld{t: t, e: e, local: local, s: open(t, e, name(t, target))}
		r := Request{Write, local.Bytes(), w.s, pool.Addr() + offset}
		return w.ends(func(b *Batch) error { return b.Submit([]Request{r}, &SubmitOptions{Lease: key}) })
	}
	if write(a, 0, nil) == nil {
		t.Error("a peer was let in that is not named")
	}
	if err := write(b, 0, nil); err != nil {
		t.Error(err)
	}
	if err := write(b, leased, &l.Key); !errors.Is(err, ErrAccess) {
		t.Errorf("a key of others: %v", err)
	}
	if err := write(a, leased, &l.Key); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]string{{}, {""}, {"a b"}, {"a,b"}, {"a\x00"}} {
		if err := target.RegisterAllow([]*Memory{pool}, "", RemoteRW, wrong...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
		if _, err := target.GrantLeaseAllow(pool, 0, 1, RemoteWrite, 0, wrong...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
