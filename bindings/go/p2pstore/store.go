// SPDX-License-Identifier: Apache-2.0

// Package p2pstore spreads checkpoints among peers without a server that holds them. A trainer
// registers a checkpoint, which stays in its memory; others get replicas into theirs, shard by
// shard, from whoever has a shard, and serve what they have fetched from then on. So the more want
// it, the more give it, and the trainer may leave when others have it all.
//
// Who has what stands in etcd. What a checkpoint is (the sizes of its buffers, its shards and their
// checksums) is one key; each holder has a key of its own, which hangs on a lease, so that one that
// dies is forgotten. Changes are transactions: no two checkpoints of one name ever mix.
package p2pstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"transferengine/te"
)

// Options of a store. Engine is needed, with its Name; the rest has defaults.
type Options struct {
	Engine te.Options
	// Etcd is where checkpoints are announced, "etcd://host:port"; if empty, Engine.Metadata.
	Etcd string
	// TTL is after how long without a sign of life a peer is forgotten: 10 seconds by default, 1 second
	// to a day.
	TTL time.Duration
	// Parallel is how many shards are fetched at once, each by a thread of its own: 8 by default, 1024
	// at most.
	Parallel int
	// Patience is how long GetReplica goes on while nobody gives what is missing; 15 seconds by
	// default, longer than TTL so that who died is known to be dead.
	Patience time.Duration
	// NoChecksums leaves shards unchecked. Needed for memory of devices. A checkpoint that is registered
	// so has one origin, as nothing tells whether a second one has the same bytes.
	NoChecksums bool
	// Warnf, if not nil, is told what a user should know: that the lease was lost, that etcd is away and
	// back, that a checkpoint was deleted. Logf is told what else happens beside the calls.
	Warnf, Logf func(format string, args ...any)
}

const (
	minTTL, maxTTL = time.Second, 24 * time.Hour
	maxParallel    = 1024
)

// setDefaults fills in what is not given, and refuses what cannot work.
func (o *Options) setDefaults() error {
	if o.Etcd == "" {
		o.Etcd = o.Engine.Metadata
	}
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.Patience <= 0 {
		o.Patience = 15 * time.Second
	}
	quiet := func(string, ...any) {}
	if o.Warnf == nil {
		o.Warnf = quiet
	}
	if o.Logf == nil {
		o.Logf = quiet
	}
	if o.TTL < minTTL || o.TTL > maxTTL {
		return fmt.Errorf("p2pstore: a TTL of %v is not from %v to %v", o.TTL, minTTL, maxTTL)
	}
	if o.Parallel < 0 || o.Parallel > maxParallel {
		return fmt.Errorf("p2pstore: %d shards at once are not 1 to %d", o.Parallel, maxParallel)
	}
	return nil
}

// A Store is one peer. All methods may be called from any goroutine.
type Store struct {
	*Directory
	o      Options
	engine *te.Engine
	peer   string

	life context.Context // ends with Close
	end  context.CancelFunc
	busy sync.WaitGroup // the keeper, and calls in progress

	mu     sync.Mutex
	closed bool
	lease  int64
	held   map[string]*held
	gone   map[string]bool // withdrawn, but etcd has not heard of it yet
}

// held is a checkpoint in the memory of this peer, or on its way there.
type held struct {
	name    string
	gold    bool
	buffers []*te.Memory
	*checkpoint
	registered bool // the buffers, with the engine

	// Which shards are here, as bits; nil: all. Only set while fetching.
	bits []byte
	sync.Mutex

	// By Store.mu. Settled: Register or GetReplica is over, and Unregister or DeleteReplica may be
	// called. The lease is the one on which this peer's key hangs; 0 until all is announced.
	settled bool
	lease   int64
	// revision of etcd in which it was announced last; 0 before.
	revision int64
	// over is closed when this peer holds it no more.
	over chan struct{}
	// announcing is held while this peer's key is written.
	announcing sync.Mutex
}

// Open starts an engine, and the lease on which hangs what this peer announces.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	d, err := NewDirectory(o.Etcd)
	if err != nil {
		return nil, err
	}
	engine, err := te.New(o.Engine)
	if err != nil {
		return nil, err
	}
	s := &Store{Directory: d, o: o, engine: engine, held: map[string]*held{},
		gone: map[string]bool{}}
	if s.peer, err = engine.Name(); err == nil {
		err = checkPeer(s.peer)
	}
	if err == nil {
		s.lease, err = d.etcd.grant(ctx, o.TTL)
	}
	if err != nil {
		engine.Close()
		d.Close()
		return nil, err
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.busy.Add(1)
	go s.keep()
	return s, nil
}

// Engine is the engine of the store, for memory from its Alloc.
func (s *Store) Engine() *te.Engine { return s.engine }

// Close withdraws everything and ends the engine; memory of its Alloc is gone then. Calls in
// progress fail.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.busy.Wait()
	err := s.etcd.revoke(ctx, s.lease)
	for name, h := range s.held {
		s.gone[name] = true
		close(h.over)
	}
	for name := range s.gone {
		if err == nil {
			err = s.sweep(ctx, name)
		}
	}
	s.engine.Close()
	s.Directory.Close()
	return err
}

// Done is closed when this peer does not hold the checkpoint, or no more: it was withdrawn here, or
// deleted by anybody, or the store is closed.
func (s *Store) Done(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		return h.over
	}
	none := make(chan struct{})
	close(none)
	return none
}

// begin reserves a name for a call, whose context ends with the store; done must be called after it.
func (s *Store) begin(ctx context.Context, h *held) (_ context.Context, done func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("p2pstore: %w", ErrClosed)
	}
	if s.held[h.name] != nil {
		return nil, nil, fmt.Errorf("p2pstore: %q is held by this peer already", h.name)
	}
	h.over = make(chan struct{})
	s.held[h.name] = h
	delete(s.gone, h.name)
	s.busy.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		select {
		case <-s.life.Done():
			cancel()
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		cancel()
		s.busy.Done()
	}, nil
}

func (s *Store) register(h *held) error {
	err := s.engine.RegisterAll(h.buffers, "", te.RemoteRead)
	h.registered = err == nil
	return err
}

// settle ends a call on h: it is held from now on, or, after an error, not.
func (s *Store) settle(h *held, err error) error {
	if err != nil && h.registered {
		if bad := s.engine.UnregisterAll(h.buffers); bad != nil {
			s.o.Logf("checkpoint %q: %v", h.name, bad)
		}
	}
	s.mu.Lock()
	if err == nil {
		h.settled = true
		s.mu.Unlock()
		return nil
	}
	s.gone[h.name] = true // whatever was announced of it
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.life, s.o.TTL)
	defer cancel()
	if bad := s.withdraw(ctx, h.name); bad != nil && s.life.Err() == nil {
		s.o.Logf("%v", bad)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h.name)
	close(h.over)
	if s.closed {
		return fmt.Errorf("p2pstore: %q: %w", h.name, ErrClosed)
	}
	return err
}

func sizesOf(buffers []*te.Memory) []uint64 {
	out := make([]uint64, len(buffers))
	for i, m := range buffers {
		out[i] = uint64(m.Len())
	}
	return out
}

// Register announces the buffers as a checkpoint, to be fetched in shards of at most maxShardSize
// bytes. They must stay as they are until Unregister. Another peer may register the same bytes under
// the same name, as a second origin; other bytes are refused with ErrExists. If progress is not nil
// it is told how many bytes have their checksums, by one goroutine at a time.
func (s *Store) Register(ctx context.Context, name string, buffers []*te.Memory,
	maxShardSize uint64, progress func(done, total uint64)) error {
	if err := checkName("the name", name); err != nil {
		return err
	}
	c := &checkpoint{Sizes: sizesOf(buffers), ShardSize: maxShardSize}
	err := c.lay()
	if err == nil {
		err = c.checkLength(!s.o.NoChecksums)
	}
	if err != nil {
		return fmt.Errorf("p2pstore: checkpoint %q: %w", name, err)
	}
	h := &held{name: name, gold: true, buffers: buffers, checkpoint: c}
	ctx, done, err := s.begin(ctx, h)
	if err != nil {
		return err
	}
	defer done()
	if s.o.NoChecksums {
		c.ID, err = newID()
	} else {
		c.Sums, err = sums(ctx, c, buffers, progress)
	}
	if err == nil {
		err = s.register(h)
	}
	if err == nil {
		err = s.announce(ctx, h, true)
	}
	return s.settle(h, err)
}

// sums computes the checksums of all shards, by all CPUs.
func sums(ctx context.Context, c *checkpoint, buffers []*te.Memory,
	progress func(done, total uint64)) ([]byte, error) {
	shards := c.all()
	out := make([]byte, 4*len(shards))
	var next int64 = -1
	var all sync.WaitGroup
	var telling sync.Mutex
	done, total := uint64(0), c.size()
	tell := func(n int) {
		telling.Lock()
		defer telling.Unlock()
		if done += uint64(n); progress != nil {
			progress(done, total)
		}
	}
	for i := 0; i < runtime.GOMAXPROCS(0); i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for at := int(atomic.AddInt64(&next, 1)); at < len(shards); at = int(atomic.AddInt64(&next, 1)) {
				sum := sumOf(ctx, shards[at].in(buffers), tell)
				binary.LittleEndian.PutUint32(out[4*at:], sum)
			}
		}()
	}
	all.Wait()
	return out, ctx.Err()
}

// sumOf is of no use once ctx has ended.
func sumOf(ctx context.Context, b []byte, tell func(n int)) uint32 {
	const piece = 16 << 20
	sum := uint32(0)
	for len(b) > 0 && ctx.Err() == nil {
		n := len(b)
		if n > piece {
			n = piece
		}
		sum = crc32.Update(sum, castagnoli, b[:n])
		tell(n)
		b = b[n:]
	}
	return sum
}

func (p shard) in(buffers []*te.Memory) []byte {
	return buffers[p.buffer].Bytes()[p.offset : p.offset+p.length]
}

// GetReplica fetches a checkpoint into the buffers, whose sizes must be those of Find. From the
// first shard on this peer serves what it has. Shards are taken from whoever has them; one that
// fails, or gives other bytes than were registered, is replaced by others. If progress is not nil it
// is told of bytes now and then, by one goroutine at a time.
func (s *Store) GetReplica(ctx context.Context, name string, buffers []*te.Memory,
	progress func(done, total uint64)) error {
	c, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	if sizes := sizesOf(buffers); !sameSizes(sizes, c.Sizes) {
		return fmt.Errorf("p2pstore: checkpoint %q: its buffers have %s bytes, those given %s", name,
			brief(c.Sizes), brief(sizes))
	}
	h := &held{name: name, buffers: buffers, checkpoint: c, bits: make([]byte, (c.shards()+7)/8)}
	ctx, done, err := s.begin(ctx, h)
	if err != nil {
		return err
	}
	defer done()
	if err = s.register(h); err == nil {
		// Before the first shard: the origin may leave, and the description does not go with it.
		err = s.announce(ctx, h, false)
	}
	if err == nil {
		err = s.fetch(ctx, h, progress)
	}
	if err == nil {
		err = s.announceReplica(ctx, h)
	}
	return s.settle(h, err)
}

// announceReplica tells that all is here. Where etcd cannot be told now, the keeper tells it later; but
// without checksums, nothing other than that it is still the same checkpoint says that nothing is mixed.
func (s *Store) announceReplica(ctx context.Context, h *held) error {
	s.mu.Lock()
	h.lease = 0
	s.mu.Unlock()
	err := s.announce(ctx, h, false)
	if err == nil || errors.Is(err, ErrDeleted) || ctx.Err() != nil || !s.checks(h.checkpoint) {
		return err
	}
	s.o.Warnf("checkpoint %q is here; it is announced when etcd allows: %v", h.name, err)
	return nil
}

func (s *Store) checks(c *checkpoint) bool { return len(c.Sums) > 0 && !s.o.NoChecksums }

func brief(sizes []uint64) string {
	if len(sizes) > 8 {
		return fmt.Sprintf("%v and %d more", sizes[:8], len(sizes)-8)
	}
	return fmt.Sprint(sizes)
}

// Unregister withdraws what Register announced. When it returns nil nobody reads the buffers any
// more. An error of etcd is told, but the buffers are free then, too; etcd is told later.
func (s *Store) Unregister(ctx context.Context, name string) error {
	return s.release(ctx, name, true)
}

// DeleteReplica stops to serve what GetReplica fetched; otherwise it is like Unregister.
func (s *Store) DeleteReplica(ctx context.Context, name string) error {
	return s.release(ctx, name, false)
}

func (s *Store) release(ctx context.Context, name string, gold bool) error {
	s.mu.Lock()
	h := s.held[name]
	switch {
	case s.closed:
		s.mu.Unlock()
		return fmt.Errorf("p2pstore: %w", ErrClosed)
	case h == nil || h.gold != gold || !h.settled:
		s.mu.Unlock()
		return fmt.Errorf("p2pstore: %q: this peer holds none that it %s: %w", name,
			map[bool]string{true: "registered", false: "fetched"}[gold], ErrNotFound)
	}
	h.settled = false // nobody else releases it
	s.gone[name] = true
	s.busy.Add(1)
	s.mu.Unlock()
	defer s.busy.Done()
	told := s.withdraw(ctx, name)
	err := s.engine.UnregisterAll(h.buffers)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		h.settled = true // it may be tried again
		return err
	}
	delete(s.held, name)
	close(h.over)
	return told
}
