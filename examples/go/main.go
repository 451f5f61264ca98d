// SPDX-License-Identifier: Apache-2.0

// Reads the memory of target.c and writes it back inverted: go run . NAME, where NAME is what the target prints.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"transferengine/te"
)

const block = 64 << 10

// pattern is what target.c has at i.
func pattern(i int) byte { return byte(i*7 + i/251) }

// move moves all blocks within a minute. Whatever ends it, the memory is quiet when it returns.
func move(engine *te.Engine, op te.Opcode, ours *te.Memory, segment *te.Segment, offset uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var requests []te.Request
	for at := 0; at < ours.Len(); at += block {
		end := at + block
		if end > ours.Len() {
			end = ours.Len()
		}
		requests = append(requests, te.Request{
			Op: op, Local: ours.Bytes()[at:end], Target: segment, Offset: offset + uint64(at),
		})
	}
	return engine.Transfer(ctx, requests...)
}

func run(name string) error {
	engine, err := te.New(te.Options{})
	if err != nil {
		return err
	}
	defer engine.Close()
	segment, err := engine.Open(name)
	if err != nil {
		return err
	}
	there, err := segment.Buffers()
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return fmt.Errorf("%s has registered no memory", name)
	}
	ours, err := engine.Alloc(int(there[0].Length), "")
	if err != nil {
		return err
	}
	if err := engine.Register(ours, "", te.LocalOnly); err != nil {
		return err
	}

	if err := move(engine, te.Read, ours, segment, there[0].Addr); err != nil {
		return err
	}
	wrong := 0
	for i, got := range ours.Bytes() {
		if got != pattern(i) {
			wrong++
		}
		ours.Bytes()[i] = ^got
	}
	if err := move(engine, te.Write, ours, segment, there[0].Addr); err != nil {
		return err
	}
	if err := segment.Notify(te.Notification{Name: "written", Msg: "by the Go program"}); err != nil {
		return err
	}
	fmt.Printf("go: %d bytes read, %d of them wrong, and written back inverted\n", ours.Len(), wrong)
	if wrong > 0 {
		return fmt.Errorf("what was read is not what target.c has")
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . NAME")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
