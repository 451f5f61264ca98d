// SPDX-License-Identifier: Apache-2.0

package p2pstore_test

import (
	"context"
	"fmt"
	"log"

	"transferengine/p2pstore"
	"transferengine/te"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A peer that fetches a checkpoint, serves it to others until it is deleted, and leaves.
func Example() {
	ctx := context.Background()
	store, err := p2pstore.Open(ctx, p2pstore.Options{
		Engine: te.Options{Metadata: "etcd://10.0.0.9:2379", Name: "node-a"},
		Warnf:  log.Printf,
	})
	check(err)
	defer store.Close(ctx)

	directory, err := p2pstore.NewDirectory("etcd://10.0.0.9:2379")
	check(err)
	defer directory.Close()
	found, err := directory.Find(ctx, "llm/100")
	check(err)
	var buffers []*te.Memory
	for _, size := range found.Sizes {
		memory, err := store.Engine().Alloc(int(size), "")
		check(err)
		buffers = append(buffers, memory)
	}
	check(store.GetReplica(ctx, "llm/100", buffers, nil))
	fmt.Println("fetched, and served from now on")
	<-store.Done("llm/100")
}

// A trainer that offers what it has in its memory.
func ExampleStore_Register() {
	ctx := context.Background()
	store, err := p2pstore.Open(ctx, p2pstore.Options{
		Engine: te.Options{Metadata: "etcd://10.0.0.9:2379", Name: "trainer"},
	})
	check(err)
	defer store.Close(ctx)

	weights, err := store.Engine().Alloc(1<<30, "")
	check(err)
	check(store.Register(ctx, "llm/100", []*te.Memory{weights}, 64<<20, nil))
	<-store.Done("llm/100")
}
