// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/url"
	"strings"
)

// Keys of etcd. A checkpoint has one description, and one key per holder, which hangs on the lease
// of that holder. Names are escaped, so that a '/' in them begins nothing new.
const (
	checkpointKeys = "mooncake/te_p2p/checkpoint/"
	holderKeys     = "mooncake/te_p2p/holder/"
)

func checkpointKey(name string) string { return checkpointKeys + url.PathEscape(name) }
func holdersKey(name string) string    { return holderKeys + url.PathEscape(name) + "/" }
func holderKey(name, peer string) string {
	return holdersKey(name) + url.PathEscape(peer)
}

// checkpointHolders is where the keys of the holders of all checkpoints begin whose names begin so.
func checkpointHolders(prefix string) string { return holderKeys + url.PathEscape(prefix) }

// nameOf is the checkpoint that a key describes.
func nameOf(key []byte) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(string(key), checkpointKeys))
}

// checkpointOf is the checkpoint whose holder has that key.
func checkpointOf(key []byte) (string, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(key), holderKeys), "/")
	return url.PathUnescape(name)
}

// Limits of what is believed of a record; a terabyte in shards of 1 MiB is within them.
const (
	maxShards  = 1 << 20
	maxBuffers = 1 << 20
	maxName    = 512
	maxRecord  = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A checkpoint is the description: what all who hold it agree on.
type checkpoint struct {
	Sizes     []uint64 `json:"sizes"` // of its buffers
	ShardSize uint64   `json:"shard_size"`
	// Sums are the CRC-32C of the shards, 4 bytes each, least first; empty if not to be checked.
	Sums []byte `json:"crc32c,omitempty"`

	first []int // number of the first shard of each buffer, and of all shards at the end
}

// A shard is a part of one buffer.
type shard struct {
	buffer int
	offset uint64
	length uint64
}

// A holder is what one peer has of a checkpoint.
type holder struct {
	Segment   string   `json:"segment"`
	Gold      bool     `json:"gold,omitempty"` // registered by it, not fetched
	Addresses []uint64 `json:"addresses"`      // of its buffers, in its memory
	// Shards that it has, as bits, least first; nil if it has all.
	Shards []byte `json:"shards,omitempty"`
}

func (h *holder) has(i int) bool {
	return h.Shards == nil || (i/8 < len(h.Shards) && h.Shards[i/8]&(1<<(i%8)) != 0)
}

// lay cuts the buffers into shards.
func (c *checkpoint) lay() error {
	if len(c.Sizes) == 0 || len(c.Sizes) > maxBuffers {
		return fmt.Errorf("it has %d buffers, not 1 to %d", len(c.Sizes), maxBuffers)
	}
	if c.ShardSize == 0 {
		return errors.New("its shards have no size")
	}
	total, shards := uint64(0), uint64(0)
	c.first = make([]int, 1, len(c.Sizes)+1)
	for _, size := range c.Sizes {
		if size == 0 || size > math.MaxInt64-total {
			return fmt.Errorf("a buffer of %d bytes cannot be", size)
		}
		total += size
		shards += (size-1)/c.ShardSize + 1
		if shards > maxShards {
			return fmt.Errorf("shards of %d bytes are more than %d", c.ShardSize, maxShards)
		}
		c.first = append(c.first, int(shards))
	}
	if len(c.Sums) != 0 && uint64(len(c.Sums)) != 4*shards {
		return fmt.Errorf("%d bytes of checksums for %d shards", len(c.Sums), shards)
	}
	return nil
}

func (c *checkpoint) shards() int { return c.first[len(c.first)-1] }

func (c *checkpoint) size() uint64 {
	total := uint64(0)
	for _, size := range c.Sizes {
		total += size
	}
	return total
}

// all gives the shards in order.
func (c *checkpoint) all() []shard {
	out := make([]shard, 0, c.shards())
	for b, size := range c.Sizes {
		for at := uint64(0); at < size; at += c.ShardSize {
			length := c.ShardSize
			if size-at < length {
				length = size - at
			}
			out = append(out, shard{b, at, length})
			if size-at == length {
				break // at + ShardSize may be beyond all numbers
			}
		}
	}
	return out
}

func (c *checkpoint) sum(i int) uint32 { return binary.LittleEndian.Uint32(c.Sums[4*i:]) }

func (c *checkpoint) same(other *checkpoint) bool {
	if c.ShardSize != other.ShardSize || string(c.Sums) != string(other.Sums) {
		return false
	}
	return sameSizes(c.Sizes, other.Sizes)
}

func sameSizes(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// readCheckpoint believes nothing of what stands in etcd, where anybody may have written it.
func readCheckpoint(name string, value []byte) (*checkpoint, error) {
	c := &checkpoint{}
	err := readJSON(value, c)
	if err == nil {
		err = c.lay()
	}
	if err != nil {
		return nil, fmt.Errorf("p2pstore: the record of checkpoint %q is broken: %w", name, err)
	}
	return c, nil
}

func readHolder(c *checkpoint, value []byte) (*holder, error) {
	h := &holder{}
	if err := readJSON(value, h); err != nil {
		return nil, err
	}
	if h.Segment == "" || len(h.Segment) > maxName || strings.IndexByte(h.Segment, 0) >= 0 {
		return nil, errors.New("it names no segment")
	}
	if len(h.Addresses) != len(c.Sizes) {
		return nil, fmt.Errorf("%d addresses for %d buffers", len(h.Addresses), len(c.Sizes))
	}
	for i, address := range h.Addresses {
		if address > math.MaxUint64-c.Sizes[i] {
			return nil, fmt.Errorf("no buffer of %d bytes can be at %#x", c.Sizes[i], address)
		}
	}
	if h.Shards != nil && len(h.Shards) != (c.shards()+7)/8 {
		return nil, fmt.Errorf("%d bytes of bits for %d shards", len(h.Shards), c.shards())
	}
	return h, nil
}

func readJSON(value []byte, out any) error {
	if len(value) > maxRecord {
		return fmt.Errorf("%d bytes are too many", len(value))
	}
	return json.Unmarshal(value, out)
}

func toJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, text and bytes can always be written
	}
	return text
}

func checkName(what, name string) error {
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("p2pstore: %s %.40q must have 1 to %d bytes, none of them NUL", what, name,
			maxName)
	}
	return nil
}
