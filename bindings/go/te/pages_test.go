// SPDX-License-Identifier: Apache-2.0

package te

import (
	"bytes"
	"context"
	"math/rand"
	"strings"
	"testing"
)

// Layers of one side and of the other lie differently; all that is not named stays as it was.
func TestPages(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	const size, count, layers = 301, 40, 3
	local := alloc(t, e, size*count*layers, LocalOnly)
	remote := alloc(t, peer, size*count*layers, RemoteRW)
	s := open(t, e, name(t, peer))
	random := rand.New(rand.NewSource(3))
	p := Pages{
		Memory: local.Bytes(), Target: s, Length: size, Layers: layers,
		Local:  PagePool{Pages: count, Stride: size, LayerStride: size * count},
		Remote: PagePool{Base: remote.Addr(), Pages: count, Stride: size * layers, LayerStride: size},
	}
	move := func() error {
		b, err := e.NewBatch(1)
		if err == nil {
			err = b.SubmitPages(&p, nil)
		}
		if err == nil {
			err = b.Wait(context.Background())
		}
		return err
	}
	for turn := 0; turn < 20; turn++ {
		random.Read(local.Bytes())
		random.Read(remote.Bytes())
		p.Op, p.Count, p.Local.Numbers = Opcode(turn%2), 1+random.Intn(count), nil
		p.Remote.Numbers = make([]uint32, p.Count)
		for i, k := range random.Perm(count)[:p.Count] {
			p.Remote.Numbers[i] = uint32(k)
		}
		here, there := append([]byte(nil), local.Bytes()...), append([]byte(nil), remote.Bytes()...)
		for layer := 0; layer < layers; layer++ {
			for i, k := range p.Remote.Numbers {
				a, b := (layer*count+i)*size, (int(k)*layers+layer)*size
				if p.Op == Read {
					copy(here[a:a+size], there[b:])
				} else {
					copy(there[b:b+size], here[a:])
				}
			}
		}
		if err := move(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(local.Bytes(), here) || !bytes.Equal(remote.Bytes(), there) {
			t.Fatalf("turn %d: other bytes", turn)
		}
	}
	p.Remote.Numbers[0] = count
	if err := move(); err == nil || !strings.Contains(err.Error(), "remote.index[0] is page 40") {
		t.Fatal(err)
	}
	p.Remote.Numbers = p.Remote.Numbers[:0]
	if err := move(); err == nil {
		t.Fatal("no numbers of some pages")
	}
	p.Remote.Numbers, p.Local.LayerStride = nil, 1<<63
	if err := move(); err == nil || !strings.Contains(err.Error(), "ends beyond") {
		t.Fatal(err)
	}
}
