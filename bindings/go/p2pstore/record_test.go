// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"encoding/json"
	"math"
	"math/rand"
	"strings"
	"testing"
)

// However buffers are cut, the shards cover each byte once, in order, and none is too large.
func TestShards(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for turn := 0; turn < 300; turn++ {
		c := &checkpoint{ShardSize: 1 + uint64(random.Intn(200))}
		for n := 1 + random.Intn(9); n > 0; n-- {
			c.Sizes = append(c.Sizes, 1+uint64(random.Intn(1000)))
		}
		if turn%10 == 0 {
			c.ShardSize = math.MaxUint64 - uint64(turn)
		}
		if err := c.lay(); err != nil {
			t.Fatal(err)
		}
		buffer, at := 0, uint64(0)
		for _, s := range c.all() {
			if s.buffer != buffer || s.offset != at || s.length == 0 || s.length > c.ShardSize {
				t.Fatalf("%+v of %+v", s, c)
			}
			if at += s.length; at == c.Sizes[buffer] {
				buffer, at = buffer+1, 0
			}
		}
		if buffer != len(c.Sizes) || len(c.all()) != c.shards() {
			t.Fatalf("%d shards of %+v", len(c.all()), c)
		}
	}
}

func TestKeys(t *testing.T) {
	for cluster, want := range map[string]string{
		"": "mooncake/te_p2p/checkpoint/x", "a": "mooncake/a/te_p2p/checkpoint/x",
		"a/b/": "mooncake/a/b/te_p2p/checkpoint/x",
	} {
		t.Setenv("MC_METADATA_CLUSTER_ID", cluster)
		if got := keysOfCluster().checkpointKey("x"); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	k := keysOfCluster()
	for _, name := range []string{"a", "a/b", "ü%2F", "%", " ", "a/", "\xff"} {
		if got, err := k.nameOf([]byte(k.checkpointKey(name))); err != nil || got != name {
			t.Errorf("%q has become %q, %v", name, got, err)
		}
		if got, err := k.checkpointOf([]byte(k.holderKey(name, "x/y"))); err != nil || got != name {
			t.Errorf("%q has become %q, %v", name, got, err)
		}
		if strings.HasPrefix(k.holderKey(name+"/b", "x"), k.holdersKey(name)) {
			t.Errorf("%q has holders of another", name)
		}
	}
}

var brokenCheckpoints = map[string]string{
	"":                               "broken",
	"{":                              "broken",
	"[]":                             "broken",
	"null":                           "0 buffers",
	`{"sizes":"1"}`:                  "broken",
	`{"sizes":[-1],"shard_size":1}`:  "broken",
	`{"sizes":[1.5],"shard_size":1}`: "broken",
	`{"sizes":[],"shard_size":1}`:    "0 buffers",
	`{"sizes":[1]}`:                  "no size",
	`{"sizes":[0],"shard_size":1}`:   "0 bytes",
	`{"sizes":[9223372036854775807,1],"shard_size":9223372036854775807}`: "cannot be",
	`{"sizes":[9223372036854775807],"shard_size":1}`:                     "more than",
	`{"sizes":[1048577],"shard_size":1}`:                                 "more than",
	`{"sizes":[18446744073709551616],"shard_size":1}`:                    "broken",
	`{"sizes":[8],"shard_size":4,"crc32c":"AAAA"}`:                       "3 bytes of checksums",
	`{"sizes":[8],"shard_size":4,"crc32c":"!"}`:                          "broken",
	`{"sizes":[8],"shard_size":4}`:                                       "neither checksums nor an id",
}

func TestBrokenCheckpoints(t *testing.T) {
	for text, want := range brokenCheckpoints {
		_, err := readCheckpoint("it", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"it"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBrokenHolders(t *testing.T) {
	c := &checkpoint{Sizes: []uint64{100, 5}, ShardSize: 10}
	if err := c.lay(); err != nil {
		t.Fatal(err)
	}
	if h, err := readHolder(c, []byte(`{"segment":"s","addresses":[1,2],"shards":"AQI="}`)); err != nil ||
		!h.has(0) || h.has(1) || h.has(8) || !h.has(9) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, text := range []string{"", "7", "{}", `{"segment":"s"}`, `{"segment":"s","addresses":[1]}`,
		`{"segment":"","addresses":[1,2]}`, `{"segment":"a\u0000b","addresses":[1,2]}`,
		`{"segment":"s","addresses":[18446744073709551600,2]}`,
		`{"segment":"file:///etc/passwd","addresses":[0,0]}`, `{"segment":"nvmeof/x","addresses":[0,0]}`,
		`{"segment":"s","addresses":[1,2],"id":"another"}`,
		`{"segment":"s","addresses":[1,2],"shards":"AAAA"}`,
		`{"segment":"s","addresses":[1,2],"shards":7}`,
		`{"segment":"` + strings.Repeat("s", maxName+1) + `","addresses":[1,2]}`} {
		if _, err := readHolder(c, []byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// What is cut off or changed anywhere is refused or harmless, and never a panic.
func TestMangledRecords(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	c := &checkpoint{Sizes: []uint64{100, 5}, ShardSize: 10, Sums: make([]byte, 44)}
	if err := c.lay(); err != nil {
		t.Fatal(err)
	}
	h := &holder{Segment: "s", Addresses: []uint64{1, 2}, Shards: []byte{1, 2}}
	for turn := 0; turn < 20000; turn++ {
		for _, v := range []any{c, h} {
			text, _ := json.Marshal(v)
			for n := random.Intn(4); n >= 0; n-- {
				text[random.Intn(len(text))] = byte(random.Intn(256))
			}
			text = text[:random.Intn(len(text)+1)]
			if got, err := readCheckpoint("it", text); err == nil && len(got.all()) != got.shards() {
				t.Fatalf("%s", text)
			}
			if got, err := readHolder(c, text); err == nil {
				got.has(c.shards() - 1)
			}
		}
	}
}

// What etcd would not take is refused before anything is computed; what is let through fits.
func TestRecordLength(t *testing.T) {
	for _, n := range []struct {
		size, shardSize uint64
		buffers         int
		sums, fits      bool
	}{{1 << 40, 1 << 20, 1, true, false}, {1 << 40, 1 << 20, 1, false, true},
		{1 << 40, 6 << 20, 1, true, true}, {1 << 30, 1 << 30, 100000, true, false},
		{1 << 30, 1 << 30, 40000, true, true}} {
		c := &checkpoint{ShardSize: n.shardSize}
		for len(c.Sizes) < n.buffers {
			c.Sizes = append(c.Sizes, n.size)
		}
		if err := c.lay(); err != nil {
			t.Fatal(err)
		}
		if err := c.checkLength(n.sums); (err == nil) != n.fits {
			t.Errorf("%+v: %v", n, err)
		}
		if !n.fits {
			continue
		}
		h := holder{Segment: strings.Repeat("\x01", maxName), Gold: true, Addresses: make([]uint64, n.buffers)}
		for i := range h.Addresses {
			h.Addresses[i] = math.MaxUint64
		}
		if n.sums {
			c.Sums = make([]byte, 4*c.shards())
		}
		if got := len(toJSON(c)) + len(toJSON(h)); got > maxRecord-8<<10 {
			t.Errorf("%+v: %d bytes", n, got)
		}
	}
}
