// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand"
	"sync"
	"time"

	"transferengine/te"
)

// Fetching: some goroutines take shards off one list, in random order, so that peers which fetch at
// the same time soon have different ones to give to each other. One more goroutine asks etcd now
// and then who has what, and announces what has come in.

const (
	lookEvery  = 300 * time.Millisecond // at least
	lookShare  = 10                     // looking takes no more than this part of the time
	firstPause = 200 * time.Millisecond // of a source that failed, doubled each time
	lastPause  = 5 * time.Second
)

// A source is a peer that has some of the shards.
type source struct {
	holder   *holder
	revision int64 // of the creation of its key: another one is another life
	load     int   // shards that are being taken from it
	failures int   // in a row
	usable   time.Time

	// alive ends when etcd has it no more: what is being taken from it then is taken elsewhere.
	alive  context.Context
	forget context.CancelFunc

	opening sync.Mutex
	segment *te.Segment
}

type fetching struct {
	*held
	s      *Store
	ctx    context.Context
	cancel context.CancelFunc
	parts  []shard

	mu       sync.Mutex
	changed  sync.Cond
	random   *rand.Rand
	sources  map[string]*source // by key
	opened   []*te.Segment
	todo     []int
	active   int
	done     uint64 // bytes
	fresh    bool   // shards have come in that are not announced
	moved    time.Time
	lastFail error
	err      error
	progress func(done, total uint64)
}

// fetch returns when all shards are in the buffers.
func (s *Store) fetch(ctx context.Context, h *held, progress func(done, total uint64)) error {
	f := &fetching{held: h, s: s, parts: h.all(), sources: map[string]*source{}, progress: progress,
		random: rand.New(rand.NewSource(time.Now().UnixNano())), moved: time.Now()}
	f.changed.L = &f.mu
	f.todo = f.random.Perm(len(f.parts))
	f.ctx, f.cancel = context.WithCancel(ctx)
	defer f.cancel()
	f.look()
	var workers, looker sync.WaitGroup
	looker.Add(1)
	go func() {
		defer looker.Done()
		f.lookAgain()
	}()
	for i := 0; i < s.o.Parallel; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			f.work()
		}()
	}
	workers.Wait()
	f.cancel()
	looker.Wait()
	for _, segment := range f.opened {
		segment.Close()
	}
	if f.err == nil && len(f.todo) > 0 {
		f.err = ctx.Err()
	}
	if f.err == nil {
		h.Lock()
		h.bits = nil
		h.Unlock()
	}
	return f.err
}

// lookAgain also wakes those who wait, so that they see the time that has passed.
func (f *fetching) lookAgain() {
	pause := time.NewTimer(lookEvery)
	defer pause.Stop()
	for {
		select {
		case <-f.ctx.Done():
			f.mu.Lock()
			f.changed.Broadcast()
			f.mu.Unlock()
			return
		case <-pause.C:
		}
		begin := time.Now()
		f.look()
		f.tell()
		f.mu.Lock()
		f.changed.Broadcast()
		f.mu.Unlock()
		next := lookEvery
		if busy := time.Since(begin) * lookShare; busy > next {
			next = busy
		}
		pause.Reset(next)
	}
}

// tell announces the shards that have come in since it did so last.
func (f *fetching) tell() {
	f.mu.Lock()
	fresh := f.fresh
	f.fresh = false
	f.mu.Unlock()
	if !fresh {
		return
	}
	switch err := f.s.announce(f.ctx, f.held, false); {
	case errors.Is(err, ErrDeleted):
		f.fail(err)
	case err != nil && f.ctx.Err() == nil:
		f.s.o.Logf("%v", err)
	}
}

func (f *fetching) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.cancel()
	f.changed.Broadcast()
}

// look asks etcd who holds the checkpoint. Without an answer the old one serves on.
func (f *fetching) look() {
	now := map[string]*source{}
	err := f.s.etcd.list(f.ctx, f.s.holdersKey(f.name), false, func(kv *keyValue) {
		h, err := readHolder(f.checkpoint, kv.Value)
		if err != nil {
			f.s.o.Logf("the record of a holder of %q is broken: %s: %v", f.name, kv.Key, err)
			return
		}
		if h.Segment != f.s.peer {
			now[string(kv.Key)] = &source{holder: h, revision: kv.CreateRevision}
		}
	})
	if err != nil {
		if f.ctx.Err() == nil {
			f.s.o.Logf("%v", err)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, fresh := range now {
		if known := f.sources[key]; known != nil && known.revision == fresh.revision {
			known.holder = fresh.holder
			now[key] = known
			continue
		}
		fresh.alive, fresh.forget = context.WithCancel(f.ctx)
	}
	for key, known := range f.sources {
		if now[key] != known {
			known.forget()
		}
	}
	f.sources = now
	f.changed.Broadcast()
}

// work takes shards until there are none left, or no hope.
func (f *fetching) work() {
	for {
		at, from := f.next()
		if from == nil {
			return
		}
		f.over(at, from, f.take(at, from))
	}
}

// next waits for a shard that somebody can give; the source is nil when there is nothing to wait for.
func (f *fetching) next() (int, *source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if f.ctx.Err() != nil || f.err != nil || (len(f.todo) == 0 && f.active == 0) {
			f.changed.Broadcast()
			return 0, nil
		}
		i := -1
		if f.anyUsable() {
			i = len(f.todo) - 1
		}
		for ; i >= 0; i-- {
			at := f.todo[i]
			if from := f.best(at); from != nil {
				f.todo[i] = f.todo[len(f.todo)-1]
				f.todo = f.todo[:len(f.todo)-1]
				f.active++
				from.load++
				return at, from
			}
		}
		if f.active == 0 && time.Since(f.moved) > f.s.o.Patience {
			f.err = f.hopeless()
			continue
		}
		f.changed.Wait()
	}
}

func (f *fetching) anyUsable() bool {
	now := time.Now()
	for _, from := range f.sources {
		if !now.Before(from.usable) {
			return true
		}
	}
	return false
}

// best is the source of a shard that has the least to do, one of several at random.
func (f *fetching) best(at int) *source {
	var best *source
	equal, now := 0, time.Now()
	for _, from := range f.sources {
		switch {
		case !from.holder.has(at) || now.Before(from.usable):
		case best == nil || from.load < best.load:
			best, equal = from, 1
		case from.load == best.load:
			equal++
			if f.random.Intn(equal) == 0 {
				best = from
			}
		}
	}
	return best
}

func (f *fetching) hopeless() error {
	why := "no other peer has them"
	if f.lastFail != nil {
		why = f.lastFail.Error()
	}
	return fmt.Errorf("p2pstore: checkpoint %q: %w: %d of %d shards, of %d other peers, for %v: %s",
		f.name, ErrNoSource, len(f.todo), len(f.parts), len(f.sources), f.s.o.Patience, why)
}

// over counts a shard as here, or puts it back on the list and its source aside for a while.
func (f *fetching) over(at int, from *source, err error) {
	if err == nil {
		f.Lock()
		f.bits[at/8] |= 1 << (at % 8)
		f.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active--
	from.load--
	if err == nil {
		from.failures = 0
		f.done += f.parts[at].length
		f.fresh, f.moved = true, time.Now()
		if f.progress != nil {
			f.progress(f.done, f.size())
		}
	} else {
		f.todo = append(f.todo, at)
		if f.ctx.Err() == nil {
			f.lastFail = fmt.Errorf("%s: %w", from.holder.Segment, err)
			f.s.o.Logf("shard %d of %q: %v", at, f.name, f.lastFail)
		}
		pause := firstPause << from.failures
		if pause < lastPause {
			from.failures++
		}
		from.usable = time.Now().Add(pause)
	}
	f.changed.Broadcast()
}

// take reads one shard from one source and checks it.
func (f *fetching) take(at int, from *source) error {
	segment, err := f.open(from)
	if err != nil {
		return err
	}
	part := f.parts[at]
	local := part.in(f.buffers)
	b, err := f.s.engine.NewBatch(1)
	if err != nil {
		return err
	}
	defer b.Close()
	f.mu.Lock()
	remote := from.holder.Addresses[part.buffer] + part.offset
	f.mu.Unlock()
	// How long a peer may be silent is the engine's to say; a shard may be large.
	err = b.Submit([]te.Request{{Op: te.Read, Local: local, Target: segment, Offset: remote}}, nil)
	if err == nil {
		err = b.Wait(from.alive)
	}
	if err != nil && from.alive.Err() != nil && f.ctx.Err() == nil {
		err = errors.New("it is there no more")
	}
	if err == nil && f.s.checks(f.checkpoint) &&
		crc32.Checksum(local, castagnoli) != f.sum(at) {
		err = errors.New("its bytes are not those that were registered")
	}
	return err
}

// open opens the segment of a source, once.
func (f *fetching) open(from *source) (*te.Segment, error) {
	from.opening.Lock()
	defer from.opening.Unlock()
	if from.segment != nil {
		return from.segment, nil
	}
	f.mu.Lock()
	name := from.holder.Segment
	f.mu.Unlock()
	segment, err := f.s.engine.Open(name)
	if err != nil {
		return nil, err
	}
	from.segment = segment
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, segment)
	return segment, nil
}
