// SPDX-License-Identifier: Apache-2.0

// Command p2p-store registers checkpoints, fetches replicas of them, lists and deletes them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"transferengine/p2pstore"
	"transferengine/te"
)

const usage = `usage: p2p-store COMMAND [options] [argument]...

  register NAME FILE...  read the files into memory, one buffer each, register them as a checkpoint
                         and serve it until SIGINT or SIGTERM, or until it is deleted
  get NAME               fetch a checkpoint from those who have it, then serve it like them
  list [PREFIX]          what checkpoints there are, and who has how much of them
  delete NAME            make everybody forget a checkpoint

options:
`

type options struct {
	metadata, name, address, protocol string
	shardSize, generate, output       string
	seed                              int64
	parallel                          int
	ttl, patience                     time.Duration
	leave, noChecksums, verbose       bool
}

func parse(args []string, out io.Writer) (o options, words []string, err error) {
	f := flag.NewFlagSet("p2p-store", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.metadata, "metadata_server", "etcd://127.0.0.1:2379",
		"where checkpoints are announced and engines find each other: etcd")
	f.StringVar(&o.name, "local_server_name", "", "name of this peer, unique (default: the host's)")
	f.StringVar(&o.address, "ip_or_host_name", "",
		"address told to peers (default: that which routes to the metadata server)")
	f.StringVar(&o.protocol, "protocol", "", "the transport to use, such as tcp (default: all there are)")
	f.StringVar(&o.shardSize, "shard_size", "64M", "register: `bytes` that are fetched at once at most")
	f.StringVar(&o.generate, "generate", "", "register: random buffers of these `sizes`, instead of files")
	f.Int64Var(&o.seed, "seed", 1, "register: of the random bytes")
	f.StringVar(&o.output, "output", "", "get: write the buffers to `folder`/buffer-0 and so on")
	f.BoolVar(&o.leave, "leave", false, "get: end when all is here, do not serve it")
	f.IntVar(&o.parallel, "parallel", 8, "get: how many shards are fetched at once, by a thread each")
	f.DurationVar(&o.patience, "patience", 15*time.Second,
		"get: how long to go on while nobody gives what is missing")
	f.DurationVar(&o.ttl, "ttl", 10*time.Second, "how long a peer that died is remembered, 1s to 24h")
	f.BoolVar(&o.noChecksums, "no_checksums", false, "neither compute checksums of shards nor check them")
	f.BoolVar(&o.verbose, "verbose", false, "say what goes on")
	for {
		if err = f.Parse(args); err != nil {
			break
		}
		if f.NArg() == 0 {
			return o, words, nil
		}
		words, args = append(words, f.Arg(0)), f.Args()[1:]
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		f.SetOutput(out)
		f.PrintDefaults()
	}
	return o, nil, err
}

func main() {
	o, words, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(o, words)
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; nothing is announced any more")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "p2p-store: %s\n", strings.TrimPrefix(err.Error(), "p2pstore: "))
		os.Exit(1)
	}
}

func run(o options, words []string) error {
	// The first signal ends what is done now and withdraws; a second one kills.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		stop()
	}()
	if len(words) == 0 {
		return errors.New("no command; see --help")
	}
	command, words := words[0], words[1:]
	switch {
	case command == "list" && len(words) == 0:
		return list(ctx, o, "")
	case command == "list" && len(words) == 1:
		return list(ctx, o, words[0])
	case command == "delete" && len(words) == 1:
		return remove(ctx, o, words[0])
	case command == "get" && len(words) == 1:
		return get(ctx, o, words[0])
	case command == "register" && len(words) > 0 && (len(words) > 1) != (o.generate != ""):
		return register(ctx, o, words[0], words[1:])
	case command == "register" && len(words) > 0:
		return errors.New("register needs files, or --generate, and not both")
	}
	return fmt.Errorf("not a command, or not its arguments: %s %s; see --help", command,
		strings.Join(words, " "))
}

func list(ctx context.Context, o options, prefix string) error {
	d, err := p2pstore.NewDirectory(o.metadata)
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, info := range all {
		if info.Err != nil {
			fmt.Printf("%s: broken: %v\n", info.Name, info.Err)
			continue
		}
		fmt.Printf("%s: %s\n", info.Name, describe(info))
		for _, h := range info.Holders {
			kind := "replica"
			if h.Gold {
				kind = "gold"
			}
			fmt.Printf("  %s: %s, %d of %d shards\n", h.Peer, kind, h.Shards, info.Shards)
		}
	}
	return nil
}

func describe(info p2pstore.Info) string {
	return fmt.Sprintf("%d bytes, buffers %d, shards %d", info.Size, len(info.Sizes), info.Shards)
}

func remove(ctx context.Context, o options, name string) error {
	d, err := p2pstore.NewDirectory(o.metadata)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Delete(ctx, name); err != nil {
		return err
	}
	fmt.Printf("deleted %s\n", name)
	return nil
}

func openStore(ctx context.Context, o options) (*p2pstore.Store, error) {
	warnf := func(format string, args ...any) {
		text := strings.TrimPrefix(fmt.Sprintf(format, args...), "p2pstore: ")
		fmt.Fprintf(os.Stderr, "p2p-store: %s\n", text)
	}
	logf := warnf
	if !o.verbose {
		logf = nil
	}
	name := o.name
	if name == "" {
		name, _ = os.Hostname()
	}
	s, err := p2pstore.Open(ctx, p2pstore.Options{
		Engine: te.Options{Metadata: o.metadata, Name: name, Address: o.address,
			NoDiscover: o.protocol != ""},
		TTL: o.ttl, Parallel: o.parallel, Patience: o.patience, NoChecksums: o.noChecksums,
		Warnf: warnf, Logf: logf,
	})
	if err == nil && o.protocol != "" {
		if err = s.Engine().Install(o.protocol, ""); err != nil {
			closeStore(s)
		}
	}
	return s, err
}

// closeStore withdraws what was announced, whatever has ended the program.
func closeStore(s *p2pstore.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "p2p-store: not withdrawn; it is forgotten after --ttl: %v\n", err)
	}
}

func register(ctx context.Context, o options, name string, files []string) error {
	shardSize, err := size(o.shardSize)
	if err != nil {
		return err
	}
	s, err := openStore(ctx, o)
	if err != nil {
		return err
	}
	defer closeStore(s)
	var buffers []*te.Memory
	if o.generate != "" {
		buffers, err = generate(s.Engine(), o)
	} else {
		buffers, err = load(ctx, s.Engine(), files)
	}
	if err != nil {
		return err
	}
	if err := s.Register(ctx, name, buffers, shardSize, progress("checked "+name)); err != nil {
		return err
	}
	info, err := s.Find(ctx, name)
	if err != nil {
		return err
	}
	fmt.Printf("registered %s: %s\n", name, describe(info))
	serve(ctx, s, name)
	return nil
}

// serve returns when the program is to end, or has nothing to serve any more.
func serve(ctx context.Context, s *p2pstore.Store, name string) {
	select {
	case <-ctx.Done():
	case <-s.Done(name):
	}
}

func generate(e *te.Engine, o options) ([]*te.Memory, error) {
	random := rand.New(rand.NewSource(o.seed))
	var out []*te.Memory
	for _, word := range strings.Split(o.generate, ",") {
		n, err := size(word)
		if err != nil {
			return nil, err
		}
		m, err := e.Alloc(int(n), "")
		if err != nil {
			return nil, err
		}
		random.Read(m.Bytes())
		out = append(out, m)
	}
	return out, nil
}

func load(ctx context.Context, e *te.Engine, files []string) ([]*te.Memory, error) {
	var out []*te.Memory
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Size() == 0 {
			return nil, fmt.Errorf("%s is no file, or an empty one", file)
		}
		m, err := e.Alloc(int(info.Size()), "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		show := progress("read " + file)
		const piece = 64 << 20
		for at, b := 0, m.Bytes(); at < len(b) && ctx.Err() == nil; at += piece {
			end := at + piece
			if end > len(b) {
				end = len(b)
			}
			if _, err := io.ReadFull(f, b[at:end]); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			show(uint64(end), uint64(len(b)))
		}
		out = append(out, m)
	}
	return out, ctx.Err()
}

func get(ctx context.Context, o options, name string) error {
	if o.output != "" {
		if err := os.MkdirAll(o.output, 0o777); err != nil {
			return err
		}
	}
	s, err := openStore(ctx, o)
	if err != nil {
		return err
	}
	defer closeStore(s)
	info, err := s.Find(ctx, name)
	if err != nil {
		return err
	}
	var buffers []*te.Memory
	for _, n := range info.Sizes {
		m, err := s.Engine().Alloc(int(n), "")
		if err != nil {
			return err
		}
		buffers = append(buffers, m)
	}
	begin := time.Now()
	if err := s.GetReplica(ctx, name, buffers, progress("got "+name)); err != nil {
		return err
	}
	took := time.Since(begin)
	for i, m := range buffers {
		if o.output == "" {
			break
		}
		file := filepath.Join(o.output, "buffer-"+strconv.Itoa(i))
		if err := os.WriteFile(file, m.Bytes(), 0o666); err != nil {
			return err
		}
	}
	fmt.Printf("got %s: %s, in %.3f s, %.2f GB/s\n", name, describe(info), took.Seconds(),
		float64(info.Size)/1e9/took.Seconds())
	if o.leave {
		return s.DeleteReplica(ctx, name)
	}
	serve(ctx, s, name)
	return nil
}

// progress tells each tenth that is done.
func progress(what string) func(done, total uint64) {
	last := uint64(0)
	return func(done, total uint64) {
		if tenth := uint64(float64(done) / float64(total) * 10); tenth > last {
			last = tenth
			fmt.Fprintf(os.Stderr, "p2p-store: %s: %d %%\n", what, 10*tenth)
		}
	}
}

// size reads "1000", "64K", "64M" or "1G".
func size(text string) (uint64, error) {
	digits, shift := text, 0
	if n := len(text); n > 0 && strings.IndexByte("KMG", text[n-1]) >= 0 {
		digits, shift = text[:n-1], 10*(strings.IndexByte("KMG", text[n-1])+1)
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is no size: 1000, 64K, 64M and 1G are", text)
	}
	return n << shift, nil
}
