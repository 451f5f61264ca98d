// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// keys of etcd, by the prefix of the cluster. A checkpoint has one description; one key per holder,
// which hangs on the lease of that; and, once it was deleted, for a while one that says so. Names are
// escaped, so that a '/' in them begins nothing new.
type keys string

// keysOfCluster are the keys where the engine, too, has its own.
func keysOfCluster() keys {
	cluster := os.Getenv("MC_METADATA_CLUSTER_ID")
	if cluster != "" && !strings.HasSuffix(cluster, "/") {
		cluster += "/"
	}
	return keys("mooncake/" + cluster + "te_p2p/")
}

func (k keys) checkpoints() string                { return string(k) + "checkpoint/" }
func (k keys) holders() string                    { return string(k) + "holder/" }
func (k keys) checkpointKey(name string) string   { return k.checkpoints() + url.PathEscape(name) }
func (k keys) deletedKey(name string) string      { return string(k) + "deleted/" + url.PathEscape(name) }
func (k keys) holdersKey(name string) string      { return k.holdersFrom(name) + "/" }
func (k keys) holderKey(name, peer string) string { return k.holdersKey(name) + url.PathEscape(peer) }

// holdersFrom is where the keys of the holders of all checkpoints begin whose names begin so.
func (k keys) holdersFrom(prefix string) string { return k.holders() + url.PathEscape(prefix) }

// nameOf is the checkpoint that a key describes.
func (k keys) nameOf(key []byte) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(string(key), k.checkpoints()))
}

// checkpointOf is the checkpoint whose holder has that key.
func (k keys) checkpointOf(key []byte) (string, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.holders()), "/")
	return url.PathUnescape(name)
}

// Limits of what is believed of a record. The description and the first holder go to etcd as one
// request, which by etcd's default has 1.5 MiB at most: enough for 200000 shards with checksums.
const (
	maxShards  = 1 << 20
	maxBuffers = 1 << 20
	maxName    = 512
	maxRecord  = 3 << 19
	maxRequest = maxRecord - 64<<10 // what stands around the records is within the rest
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A checkpoint is the description: what all who hold it agree on.
type checkpoint struct {
	Sizes     []uint64 `json:"sizes"` // of its buffers
	ShardSize uint64   `json:"shard_size"`
	// Sums are the CRC-32C of the shards, 4 bytes each, least first; empty if not to be checked.
	Sums []byte `json:"crc32c,omitempty"`
	// ID is random, where there are no Sums: nothing else tells one content from another then.
	ID string `json:"id,omitempty"`

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
	ID     string `json:"id,omitempty"` // that of the description
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
	if c.ShardSize != other.ShardSize || c.ID != other.ID || string(c.Sums) != string(other.Sums) {
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
	if err == nil && len(c.Sums) == 0 && c.ID == "" {
		err = errors.New("it has neither checksums nor an id")
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
	if err := checkPeer(h.Segment); err != nil {
		return nil, err
	}
	if h.ID != c.ID {
		return nil, errors.New("it belongs to another checkpoint of that name")
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

// newID is for a checkpoint without checksums.
func newID() (string, error) {
	var id [16]byte
	_, err := rand.Read(id[:])
	return hex.EncodeToString(id[:]), err
}

// checkLength tells, before any is computed, whether etcd takes the records of a new checkpoint.
func (c *checkpoint) checkLength(sums bool) error {
	const digits = 21 // of a number, and a comma
	length := digits * len(c.Sizes)
	for _, size := range c.Sizes {
		length += len(strconv.FormatUint(size, 10)) + 1
	}
	if sums {
		length += base64.StdEncoding.EncodedLen(4 * c.shards())
	}
	if length > maxRequest {
		return fmt.Errorf("its %d buffers and %d shards need a record of %d bytes, of which etcd takes %d: "+
			"larger shards, or fewer buffers, need less", len(c.Sizes), c.shards(), length, maxRequest)
	}
	return nil
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

// checkPeer refuses what is no engine: a name with a '/' may be a file of this host, which would be
// read and served.
func checkPeer(name string) error {
	if strings.IndexByte(name, '/') >= 0 {
		return fmt.Errorf("p2pstore: %.40q is not the name of a peer: it has a '/'", name)
	}
	return checkName("the name of a peer,", name)
}

func checkName(what, name string) error {
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("p2pstore: %s %.40q must have 1 to %d bytes, none of them NUL", what, name,
			maxName)
	}
	return nil
}
