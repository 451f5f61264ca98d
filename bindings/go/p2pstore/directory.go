// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"
)

// What calls fail with, found by errors.Is.
var (
	ErrNotFound = errors.New("there is no such checkpoint")
	ErrExists   = errors.New("there is another checkpoint of that name")
	ErrDeleted  = errors.New("the checkpoint was deleted")
	ErrNoSource = errors.New("no peer gives what is missing")
	ErrClosed   = errors.New("the store is closed")
)

// An Info describes a checkpoint and who has it.
type Info struct {
	Name      string
	Sizes     []uint64 // of its buffers
	Size      uint64   // the sum
	ShardSize uint64
	Shards    int
	Holders   []Holder
	Err       error // not nil if the record is broken; nothing but Name is known then
}

// A Holder is a peer that has a checkpoint, or a part of it.
type Holder struct {
	Peer   string
	Gold   bool // it registered the checkpoint; others fetched it
	Shards int  // how many it has
}

// A Directory reads and deletes what is known of checkpoints, without an engine.
type Directory struct {
	etcd *etcd
	keys
}

// NewDirectory reaches the directory in etcd: "etcd://host:port[,host:port]...", or "etcds://" for
// TLS. Nothing is asked yet.
func NewDirectory(address string) (*Directory, error) {
	c, err := newEtcd(address)
	if err != nil {
		return nil, err
	}
	return &Directory{c, keysOfCluster()}, nil
}

// Close ends the connections to etcd.
func (d *Directory) Close() { d.etcd.http.CloseIdleConnections() }

func (d *Directory) find(ctx context.Context, name string) (*checkpoint, error) {
	if err := checkName("the name", name); err != nil {
		return nil, err
	}
	kv, err := d.etcd.get(ctx, d.checkpointKey(name))
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, fmt.Errorf("p2pstore: %q: %w", name, ErrNotFound)
	}
	return readCheckpoint(name, kv.Value)
}

// Find tells of one checkpoint. One whose holders have all died is not found.
func (d *Directory) Find(ctx context.Context, name string) (Info, error) {
	c, err := d.find(ctx, name)
	if err != nil {
		return Info{}, err
	}
	info := infoOf(name, c)
	err = d.etcd.list(ctx, d.holdersKey(name), false, func(kv *keyValue) { info.add(c, kv) })
	if err == nil && len(info.Holders) == 0 {
		err = fmt.Errorf("p2pstore: %q: %w", name, ErrNotFound)
	}
	return info, err
}

func infoOf(name string, c *checkpoint) Info {
	return Info{Name: name, Sizes: c.Sizes, Size: c.size(), ShardSize: c.ShardSize, Shards: c.shards()}
}

// add counts a holder in, unless its record is broken.
func (i *Info) add(c *checkpoint, kv *keyValue) {
	h, err := readHolder(c, kv.Value)
	if err != nil {
		return
	}
	n := 0
	for shard := 0; shard < i.Shards; shard++ {
		if h.has(shard) {
			n++
		}
	}
	i.Holders = append(i.Holders, Holder{h.Segment, h.Gold, n})
}

// List tells of all checkpoints whose names begin with prefix, in the order of names. What is left
// of those whose holders have all died is cleared away.
func (d *Directory) List(ctx context.Context, prefix string) ([]Info, error) {
	all, known := map[string]*Info{}, map[string]*checkpoint{}
	err := d.etcd.list(ctx, d.checkpointKey(prefix), false, func(kv *keyValue) {
		name, err := d.nameOf(kv.Key)
		if err != nil {
			return // no key of a store
		}
		c, err := readCheckpoint(name, kv.Value)
		if err != nil {
			all[name] = &Info{Name: name, Err: err}
			return
		}
		info := infoOf(name, c)
		all[name], known[name] = &info, c
	})
	if err != nil {
		return nil, err
	}
	// Second, so that whoever has come between is missing and not taken for dead.
	err = d.etcd.list(ctx, d.holdersFrom(prefix), false, func(kv *keyValue) {
		if name, err := d.checkpointOf(kv.Key); err == nil && known[name] != nil {
			all[name].add(known[name], kv)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(all))
	for name, info := range all {
		if info.Err == nil && len(info.Holders) == 0 {
			d.sweep(ctx, name) // as far as this user may write
			continue
		}
		out = append(out, *info)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// sweep removes the description of a checkpoint that nobody holds. A description is only ever
// written together with a holder, so that there is none that is about to get its first.
func (d *Directory) sweep(ctx context.Context, name string) error {
	_, _, err := d.etcd.txn(ctx, []compare{noneBelow(d.holdersKey(name))}, remove(d.checkpointKey(name)))
	return err
}

// deletedFor is how long etcd remembers that a checkpoint was deleted.
const deletedFor = time.Hour

// Delete makes everybody forget a checkpoint. Those who hold it notice within a few seconds, and
// serve it no more; those who cannot reach etcd now, when they can within the hour.
func (d *Directory) Delete(ctx context.Context, name string) error {
	if err := checkName("the name", name); err != nil {
		return err
	}
	kv, err := d.etcd.get(ctx, d.checkpointKey(name))
	if err != nil {
		return err
	}
	lease, err := d.etcd.grant(ctx, deletedFor)
	if err != nil {
		return err
	}
	_, _, err = d.etcd.txn(ctx, []compare{}, remove(d.checkpointKey(name)),
		removeBelow(d.holdersKey(name)), put(d.deletedKey(name), []byte{}, lease))
	if err == nil && kv == nil {
		err = fmt.Errorf("p2pstore: %q: %w", name, ErrNotFound)
	}
	return err
}
