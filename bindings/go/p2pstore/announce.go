// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Announcing: this peer's key says what it holds, and hangs on its lease. The key is written by a
// transaction that holds only while the description is the one it belongs to, so that a peer never
// joins a checkpoint that has been replaced meanwhile.

// announceTries bounds how often a transaction that lost a race is tried again.
const announceTries = 100

func (s *Store) leaseNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// renew gets another lease in place of one that has died.
func (s *Store) renew(ctx context.Context, dead int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != dead {
		return nil
	}
	lease, err := s.etcd.grant(ctx, s.o.TTL)
	if err == nil {
		s.lease = lease
	}
	return err
}

// record is what this peer tells of h.
func (s *Store) record(h *held) []byte {
	out := holder{Segment: s.peer, Gold: h.gold, ID: h.ID, Addresses: make([]uint64, len(h.buffers))}
	for i, m := range h.buffers {
		out.Addresses[i] = m.Addr()
	}
	h.Lock()
	out.Shards = append(out.Shards, h.bits...)
	h.Unlock()
	return toJSON(out)
}

// announce writes this peer's key. Of a checkpoint that is gone from etcd the description is written
// again if revive is set, which needs all of it to be here; otherwise that is ErrDeleted.
func (s *Store) announce(ctx context.Context, h *held, revive bool) error {
	h.announcing.Lock()
	defer h.announcing.Unlock()
	for try := 0; try < announceTries; try++ {
		lease := s.leaseNow()
		revision, done, err := s.announceOnce(ctx, h, lease, revive)
		if done && err == nil {
			s.mu.Lock()
			h.lease, h.revision = lease, revision
			s.mu.Unlock()
		}
		if done || (err != nil && !isNotFound(err)) {
			return err
		}
		if err == nil {
			continue // a race was lost
		}
		if err = s.renew(ctx, lease); err != nil { // the lease was what was not found
			return err
		}
	}
	return fmt.Errorf("p2pstore: checkpoint %q changes too often to be announced", h.name)
}

func (s *Store) announceOnce(ctx context.Context, h *held, lease int64, revive bool) (revision int64,
	done bool, err error) {
	key := s.checkpointKey(h.name)
	kv, err := s.etcd.get(ctx, key)
	if err != nil {
		return 0, false, err
	}
	own := put(s.holderKey(h.name, s.peer), s.record(h), lease)
	if kv != nil {
		there, bad := readCheckpoint(h.name, kv.Value)
		if bad == nil && there.same(h.checkpoint) {
			return s.etcd.txn(ctx, []compare{modIs(key, kv.ModRevision)}, own)
		}
	}
	gone := fmt.Errorf("p2pstore: %q: %w", h.name, ErrDeleted)
	if (kv == nil && !revive) || (kv != nil && !h.gold) {
		return 0, true, gone
	}
	deleted, err := s.etcd.get(ctx, s.deletedKey(h.name))
	if err != nil {
		return 0, false, err
	}
	stillSo := modIs(s.deletedKey(h.name), 0)
	if deleted != nil {
		stillSo = modIs(s.deletedKey(h.name), deleted.ModRevision)
		// What this call is the first to announce came after it.
		if since := s.announced(h); since > 0 && deleted.ModRevision > since {
			return 0, true, gone
		}
	}
	if kv == nil {
		return s.etcd.txn(ctx, []compare{modIs(key, 0), stillSo}, put(key, toJSON(h.checkpoint), 0), own)
	}
	return s.replace(ctx, h, []compare{modIs(key, kv.ModRevision), stillSo}, own)
}

func (s *Store) announced(h *held) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.revision
}

// replace takes over the name of another checkpoint, if nobody holds that. A holder of this peer's
// name is an earlier life of it, or was written by a call whose answer was lost.
func (s *Store) replace(ctx context.Context, h *held, when []compare, own operation) (int64, bool, error) {
	mine, holders := s.holderKey(h.name, s.peer), s.holdersKey(h.name)
	if _, _, err := s.etcd.txn(ctx, when, remove(mine)); err != nil {
		return 0, false, err
	}
	revision, done, err := s.etcd.txn(ctx, append(when, noneBelow(holders)),
		put(s.checkpointKey(h.name), toJSON(h.checkpoint), 0), own)
	if done || err != nil {
		return revision, done, err
	}
	others := 0
	again := false
	err = s.etcd.list(ctx, holders, true, func(kv *keyValue) {
		others++
		again = again || string(kv.Key) == mine
	})
	if err != nil || again || others == 0 {
		return 0, false, err
	}
	return 0, true, fmt.Errorf("p2pstore: %q: %w, and %d peers hold it", h.name, ErrExists, others)
}

// withdraw removes this peer's key of what is gone, and the description if it was the last one. A key
// that a new call has written meanwhile stays.
func (s *Store) withdraw(ctx context.Context, name string) error {
	key := s.holderKey(name, s.peer)
	kv, err := s.etcd.get(ctx, key)
	if err != nil || !s.isGone(name) {
		return err
	}
	if kv != nil {
		_, _, err = s.etcd.txn(ctx, []compare{modIs(key, kv.ModRevision)}, remove(key))
	}
	if err == nil {
		err = s.sweep(ctx, name)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, name)
	return nil
}

func (s *Store) isGone(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[name]
}

// keep keeps the lease alive until the store is closed, and looks after what is announced.
func (s *Store) keep() {
	defer s.busy.Done()
	tick := time.NewTicker(s.o.TTL / 3)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		err := s.look()
		switch {
		case s.life.Err() != nil:
			return
		case err == nil && away:
			s.o.Warnf("all is well again")
		case err != nil && !away:
			s.o.Warnf("%v; it is tried again", err)
		case err != nil:
			s.o.Logf("%v", err)
		}
		away = err != nil
	}
}

// look gives a third of the TTL to the lease, and as much to all else: the lease does not end in
// between.
func (s *Store) look() error {
	lease := s.leaseNow()
	ctx, cancel := context.WithTimeout(s.life, s.o.TTL/3)
	alive, err := s.etcd.keepAlive(ctx, lease)
	cancel()
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(s.life, s.o.TTL/3)
	defer cancel()
	if !alive {
		s.o.Warnf("the lease was lost; what is held is announced again")
		if err := s.renew(ctx, lease); err != nil {
			return err
		}
	}
	for _, h := range s.settledNow() {
		if err := s.lookAt(ctx, h); err != nil {
			return err
		}
	}
	return s.tellGone(ctx)
}

func (s *Store) settledNow() []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*held
	for _, h := range s.held {
		if h.settled && !s.gone[h.name] {
			out = append(out, h)
		}
	}
	return out
}

func (s *Store) tellGone(ctx context.Context) error {
	s.mu.Lock()
	var names []string
	for name := range s.gone {
		if s.held[name] == nil {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		if err := s.withdraw(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// lookAt announces again what hangs on a lease that is lost, or could not be announced in full, and
// drops what somebody has deleted: its key is gone though the lease lives.
func (s *Store) lookAt(ctx context.Context, h *held) error {
	s.mu.Lock()
	lease, now := h.lease, s.lease
	s.mu.Unlock()
	if lease != now {
		// A replica whose end was never announced may have been deleted; what had been is alive.
		err := s.announce(ctx, h, h.gold || lease != 0)
		if errors.Is(err, ErrDeleted) || errors.Is(err, ErrExists) {
			return s.drop(h)
		}
		return err
	}
	kv, err := s.etcd.get(ctx, s.holderKey(h.name, s.peer))
	if err != nil || kv != nil {
		return err
	}
	// Or else the key went with the lease, which the next look finds out.
	if alive, err := s.etcd.keepAlive(ctx, lease); err != nil || !alive {
		return err
	}
	return s.drop(h)
}

func (s *Store) drop(h *held) error {
	s.mu.Lock()
	if !h.settled || s.gone[h.name] {
		s.mu.Unlock()
		return nil // released meanwhile
	}
	h.settled = false
	s.mu.Unlock()
	err := s.engine.UnregisterAll(h.buffers)
	s.mu.Lock()
	if err != nil {
		h.settled = true
		s.mu.Unlock()
		return err
	}
	delete(s.held, h.name)
	close(h.over)
	s.mu.Unlock()
	s.o.Warnf("checkpoint %q was deleted; it is served no more", h.name)
	return nil
}
