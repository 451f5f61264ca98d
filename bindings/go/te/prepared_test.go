// SPDX-License-Identifier: Apache-2.0

package te

import (
	"bytes"
	"context"
	"errors"
	"math/rand"
	"testing"
)

// Pieces of odd sizes, chosen by number, in both directions; all that is not named stays as it was.
func TestPrepared(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	const size, count = 1 << 20, 100
	local, remote := alloc(t, e, size, LocalOnly), alloc(t, peer, size, RemoteRW)
	s := open(t, e, name(t, peer))
	random := rand.New(rand.NewSource(9))
	pieces, at := make([]Piece, count), make([]int, count)
	for i := range pieces {
		at[i] = i * (size / count)
		length := 1 + random.Intn(size/count)
		pieces[i] = Piece{local.Bytes()[at[i] : at[i]+length], remote.Addr() + uint64(at[i])}
	}
	p, err := s.Prepare(pieces)
	if err != nil {
		t.Fatal(err)
	}
	for turn := 0; turn < 20; turn++ {
		random.Read(local.Bytes())
		random.Read(remote.Bytes())
		op, from, to := Read, remote.Bytes(), local.Bytes()
		if turn%2 == 1 {
			op, from, to = Write, to, from
		}
		var index []uint32
		for i := random.Perm(count); turn > 1 && len(index) < 1+turn; i = i[1:] {
			index = append(index, uint32(i[0]))
		}
		want := append([]byte(nil), to...)
		for i, piece := range pieces {
			if index == nil || contains(index, uint32(i)) {
				copy(want[at[i]:at[i]+len(piece.Local)], from[at[i]:])
			}
		}
		b, err := e.NewBatch(count)
		if err != nil {
			t.Fatal(err)
		}
		if err = b.SubmitPrepared(p, op, index, nil); err == nil {
			err = b.Wait(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(to, want) {
			t.Fatalf("turn %d: other bytes", turn)
		}
		if err := b.SubmitPrepared(p, op, []uint32{count}, nil); err == nil {
			t.Error("a number beyond the list was taken")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Prepare([]Piece{{make([]byte, 1), 0}}); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("memory of Go: %v", err)
	}
	if _, err := s.Prepare(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no pieces: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); !errors.Is(err, ErrNotFound) {
		t.Errorf("closed twice: %v", err)
	}
}

func contains(index []uint32, i uint32) bool {
	for _, j := range index {
		if i == j {
			return true
		}
	}
	return false
}
