// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"transferengine/te"
)

// The tests with engines need an etcd, whose address this variable has.
const etcdVariable = "TE_TEST_ETCD"

var ctx = context.Background()

var peers int64

func openStore(t *testing.T, change func(o *Options)) *Store {
	t.Helper()
	address := os.Getenv(etcdVariable)
	if address == "" {
		t.Skip(etcdVariable + " names no etcd")
	}
	o := Options{
		Engine: te.Options{Metadata: address, Address: "127.0.0.1",
			Name: fmt.Sprintf("go-%d-%d", os.Getpid(), atomic.AddInt64(&peers, 1))},
		TTL: 6 * time.Second, Patience: time.Minute, // more than a machine stalls for
	}
	var quiet int32
	o.Logf = func(format string, args ...any) {
		if atomic.LoadInt32(&quiet) == 0 {
			t.Logf(format, args...)
		}
	}
	o.Warnf = o.Logf
	if change != nil {
		change(&o)
	}
	s, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		atomic.StoreInt32(&quiet, 1)
	})
	return s
}

func memory(t *testing.T, s *Store, sizes ...int) []*te.Memory {
	t.Helper()
	var out []*te.Memory
	for _, n := range sizes {
		m, err := s.Engine().Alloc(n, "")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func randomMemory(t *testing.T, s *Store, seed int64, sizes ...int) []*te.Memory {
	t.Helper()
	random := rand.New(rand.NewSource(seed))
	out := memory(t, s, sizes...)
	for _, m := range out {
		random.Read(m.Bytes())
	}
	return out
}

func compareAll(t *testing.T, got, want []*te.Memory) {
	t.Helper()
	for i := range want {
		if !bytes.Equal(got[i].Bytes(), want[i].Bytes()) {
			t.Errorf("buffer %d differs", i)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something that others do in their own time.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(240 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

var sizes = []int{1, 4096, 1<<20 + 77, 3}

func TestSpread(t *testing.T) {
	trainer := openStore(t, nil)
	gold := randomMemory(t, trainer, 1, sizes...)
	must(t, trainer.Register(ctx, t.Name(), gold, 10007, nil))
	var all sync.WaitGroup
	stores, replicas := make([]*Store, 4), make([][]*te.Memory, 4)
	for i := range stores {
		stores[i] = openStore(t, nil)
		replicas[i] = memory(t, stores[i], sizes...)
	}
	for i := range stores {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			last := uint64(0)
			err := stores[i].GetReplica(ctx, t.Name(), replicas[i], func(done, total uint64) {
				if done <= last || done > total {
					t.Errorf("%d of %d bytes after %d", done, total, last)
				}
				last = done
			})
			if err != nil {
				t.Error(err)
			}
			if last != uint64(1+4096+1<<20+77+3) {
				t.Errorf("the progress ends at %d", last)
			}
		}(i)
	}
	all.Wait()
	info, err := trainer.Find(ctx, t.Name())
	must(t, err)
	golds := 0
	for _, h := range info.Holders {
		if h.Shards != info.Shards {
			t.Errorf("%+v of %d", h, info.Shards)
		}
		if h.Gold {
			golds++
		}
	}
	if len(info.Holders) != 5 || golds != 1 {
		t.Errorf("%+v", info.Holders)
	}
	for i := range replicas {
		compareAll(t, replicas[i], gold)
	}
	// The origin goes; a replica of a replica is as good, and then that is the only one.
	must(t, trainer.Unregister(ctx, t.Name()))
	for i := 1; i < len(stores); i++ {
		must(t, stores[i].DeleteReplica(ctx, t.Name()))
	}
	last := openStore(t, nil)
	copied := memory(t, last, sizes...)
	must(t, last.GetReplica(ctx, t.Name(), copied, nil))
	compareAll(t, copied, gold)
	must(t, stores[0].Close(ctx))
	again := memory(t, trainer, sizes...)
	must(t, trainer.GetReplica(ctx, t.Name(), again, nil))
	compareAll(t, again, gold)
}

func TestNames(t *testing.T) {
	s, other := openStore(t, nil), openStore(t, nil)
	buffers := randomMemory(t, s, 2, 100, 200)
	for _, name := range []string{"n/a", "n/a/b", "n/ä%"} {
		must(t, s.Register(ctx, name, buffers[:1], 64, nil))
		must(t, s.Unregister(ctx, name))
	}
	must(t, s.Register(ctx, "n/a", buffers[:1], 64, nil))
	must(t, other.Register(ctx, "n/a/b", randomMemory(t, other, 3, 5), 64, nil))
	all, err := s.List(ctx, "n/a")
	must(t, err)
	if len(all) != 2 || all[0].Name != "n/a" || all[1].Name != "n/a/b" || len(all[0].Holders) != 1 ||
		all[0].Size != 100 || all[0].Shards != 2 {
		t.Errorf("%+v", all)
	}
	for _, bad := range []struct{ err, want error }{
		{s.Unregister(ctx, "n/b"), ErrNotFound},
		{s.DeleteReplica(ctx, "n/a"), ErrNotFound},
		{s.GetReplica(ctx, "n/b", buffers[1:], nil), ErrNotFound},
		{s.Delete(ctx, "n/b"), ErrNotFound},
	} {
		if !errors.Is(bad.err, bad.want) {
			t.Errorf("%v, not %v", bad.err, bad.want)
		}
	}
	if err := s.Register(ctx, "n/a", buffers[1:], 64, nil); err == nil {
		t.Error("one name twice")
	}
	if err := s.Register(ctx, "", buffers[1:], 64, nil); err == nil {
		t.Error("no name")
	}
	if err := s.Register(ctx, "n/x", nil, 64, nil); err == nil {
		t.Error("no buffers")
	}
	if err := s.Register(ctx, "n/x", buffers[1:], 0, nil); err == nil {
		t.Error("shards of no size")
	}
	// The memory is in use for n/a, which must stay as it is.
	if err := s.Register(ctx, "n/x", buffers, 64, nil); !errors.Is(err, te.ErrOverlap) {
		t.Errorf("the same memory twice: %v", err)
	}
	err = other.GetReplica(ctx, "n/a", memory(t, other, 99), nil)
	if err == nil || !strings.Contains(err.Error(), "[100]") {
		t.Errorf("another size: %v", err)
	}
	got := memory(t, other, 100)
	must(t, other.GetReplica(ctx, "n/a", got, nil))
	compareAll(t, got, buffers[:1])
}

// Of many that register different bytes under one name one wins; the same bytes may join it.
func TestOneContent(t *testing.T) {
	var all sync.WaitGroup
	var won int64 = -1
	stores := make([]*Store, 5)
	for i := range stores {
		stores[i] = openStore(t, nil)
	}
	for i := range stores {
		buffers := randomMemory(t, stores[i], int64(i), 1000)
		all.Add(1)
		go func(i int) {
			defer all.Done()
			switch err := stores[i].Register(ctx, t.Name(), buffers, 100, nil); {
			case err == nil:
				if !atomic.CompareAndSwapInt64(&won, -1, int64(i)) {
					t.Error("two have won")
				}
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		}(i)
	}
	all.Wait()
	if won < 0 {
		t.Fatal("none has won")
	}
	other := stores[(won+1)%5]
	must(t, other.Register(ctx, t.Name(), randomMemory(t, other, won, 1000), 100, nil))
	must(t, stores[won].Unregister(ctx, t.Name()))
	third := stores[(won+2)%5]
	if err := third.Register(ctx, t.Name(), memory(t, third, 1000), 100, nil); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	must(t, other.Unregister(ctx, t.Name()))
	must(t, third.Register(ctx, t.Name(), memory(t, third, 1000), 100, nil))
}

// Bytes that have changed since Register are not taken, and those of another holder are.
func TestWrongBytes(t *testing.T) {
	bad, s := openStore(t, nil), openStore(t, nil)
	hasty := openStore(t, func(o *Options) { o.Patience = 3 * time.Second })
	buffers := randomMemory(t, bad, 5, 5000)
	must(t, bad.Register(ctx, t.Name(), buffers, 1000, nil))
	buffers[0].Bytes()[4321]++
	err := hasty.GetReplica(ctx, t.Name(), memory(t, hasty, 5000), nil)
	if !errors.Is(err, ErrNoSource) || !strings.Contains(err.Error(), "not those that were registered") {
		t.Errorf("%v", err)
	}
	if info, err := s.Find(ctx, t.Name()); err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	good := openStore(t, nil)
	want := randomMemory(t, good, 5, 5000)
	must(t, good.Register(ctx, t.Name(), want, 1000, nil))
	got := memory(t, s, 5000)
	must(t, s.GetReplica(ctx, t.Name(), got, nil))
	compareAll(t, got, want)
}

// Delete is noticed by who holds the checkpoint: the memory may be freed then.
func TestDelete(t *testing.T) {
	trainer, s := openStore(t, nil), openStore(t, nil)
	gold := randomMemory(t, trainer, 6, 3000)
	must(t, trainer.Register(ctx, t.Name(), gold, 1000, nil))
	replica := memory(t, s, 3000)
	must(t, s.GetReplica(ctx, t.Name(), replica, nil))
	must(t, s.Delete(ctx, t.Name()))
	if _, err := s.Find(ctx, t.Name()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	until(t, "the replica is dropped", func() bool { return replica[0].Free() == nil })
	until(t, "the origin is dropped", func() bool { return gold[0].Free() == nil })
	if err := s.DeleteReplica(ctx, t.Name()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// A peer that was thought dead, and is not, announces everything again: also what has been swept.
func TestLeaseLost(t *testing.T) {
	s := openStore(t, nil)
	must(t, s.Register(ctx, t.Name(), randomMemory(t, s, 7, 3000), 1000, nil))
	must(t, s.Register(ctx, t.Name()+"2", randomMemory(t, s, 8, 3000), 1000, nil))
	must(t, s.etcd.revoke(ctx, s.leaseNow()))
	if all, err := s.List(ctx, t.Name()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	// A call that needs the lease first must not hide from the keeper that it was lost.
	must(t, s.Register(ctx, t.Name()+"3", randomMemory(t, s, 9, 3000), 1000, nil))
	until(t, "all is announced again", func() bool {
		all, err := s.List(ctx, t.Name())
		return err == nil && len(all) == 3
	})
}

// A call whose context ends leaves nothing behind.
func TestCancel(t *testing.T) {
	trainer, s := openStore(t, nil), openStore(t, func(o *Options) { o.Parallel = 1 })
	must(t, trainer.Register(ctx, t.Name(), randomMemory(t, trainer, 10, 8<<20), 4096, nil))
	replica := memory(t, s, 8<<20)
	canceled, cancel := context.WithCancel(ctx)
	err := s.GetReplica(canceled, t.Name(), replica, func(done, total uint64) {
		if done > total/4 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(t, replica[0].Free())
	info, err := s.Find(ctx, t.Name())
	if err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A store that is closed in the middle of a call ends that.
func TestCloseEnds(t *testing.T) {
	trainer, s := openStore(t, nil), openStore(t, func(o *Options) { o.Parallel = 1 })
	must(t, trainer.Register(ctx, t.Name(), randomMemory(t, trainer, 11, 8<<20), 4096, nil))
	replica := memory(t, s, 8<<20)
	begun := make(chan struct{}, 1)
	ended := make(chan error)
	go func() {
		ended <- s.GetReplica(ctx, t.Name(), replica, func(done, total uint64) {
			select {
			case begun <- struct{}{}:
			default:
			}
		})
	}()
	<-begun
	must(t, s.Close(ctx))
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := s.Register(ctx, "x", replica, 4096, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	info, err := trainer.Find(ctx, t.Name())
	if err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Records that anybody may have written into etcd cost an error, or are passed over.
func TestHostileRecords(t *testing.T) {
	s, trainer := openStore(t, nil), openStore(t, nil)
	write := func(key, value string) {
		t.Helper()
		_, _, err := s.etcd.txn(ctx, []compare{}, put(key, []byte(value), 0))
		must(t, err)
		t.Cleanup(func() { s.etcd.txn(ctx, []compare{}, remove(key)) })
	}
	for text, want := range brokenCheckpoints {
		write(s.checkpointKey(t.Name()), text)
		_, err := s.Find(ctx, t.Name())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if err := s.GetReplica(ctx, t.Name(), memory(t, s, 8), nil); err == nil {
			t.Errorf("%s was fetched", text)
		}
		all, err := s.List(ctx, t.Name())
		if err != nil || len(all) != 1 || all[0].Err == nil {
			t.Errorf("%s: %+v, %v", text, all, err)
		}
	}
	write(s.checkpoints()+"%zz", "{}")
	if _, err := s.List(ctx, ""); err != nil {
		t.Error(err)
	}
	// What nobody holds is replaced; holders that lie are passed over, or found out.
	gold := randomMemory(t, trainer, 12, 5000)
	must(t, trainer.Register(ctx, t.Name(), gold, 1000, nil))
	own, err := trainer.Engine().Name()
	must(t, err)
	write(s.holdersKey(t.Name())+"broken", "{")
	write(s.holdersKey(t.Name())+"few", `{"segment":"`+own+`","addresses":[]}`)
	write(s.holdersKey(t.Name())+"nobody", `{"segment":"no-such-engine","addresses":[4096]}`)
	write(s.holdersKey(t.Name())+"elsewhere", `{"segment":"`+own+`","addresses":[4096]}`)
	write(s.holdersKey(t.Name())+"shifted",
		fmt.Sprintf(`{"segment":"%s","addresses":[%d]}`, own, gold[0].Addr()+1))
	got := memory(t, s, 5000)
	must(t, s.GetReplica(ctx, t.Name(), got, nil))
	compareAll(t, got, gold)
}

// Without checksums nothing is compared, which memory of devices needs.
func TestNoChecksums(t *testing.T) {
	none := func(o *Options) { o.NoChecksums = true }
	trainer, s := openStore(t, none), openStore(t, none)
	gold := randomMemory(t, trainer, 13, 5000)
	must(t, trainer.Register(ctx, t.Name(), gold, 1000, nil))
	gold[0].Bytes()[1]++
	got := memory(t, s, 5000)
	must(t, s.GetReplica(ctx, t.Name(), got, nil))
	compareAll(t, got, gold)
	// Of the same sizes, and so not to be told from it.
	other := openStore(t, none)
	err := other.Register(ctx, t.Name(), randomMemory(t, other, 14, 5000), 1000, nil)
	if !errors.Is(err, ErrExists) {
		t.Errorf("another content: %v", err)
	}
	// One that takes its place in the middle of a fetch is not mixed with it.
	big, name := randomMemory(t, trainer, 15, 4<<20), t.Name()+"2"
	must(t, trainer.Register(ctx, name, big, 4096, nil))
	last, anew := openStore(t, func(o *Options) { o.NoChecksums, o.Parallel = true, 1 }), false
	got = memory(t, last, 4<<20)
	err = last.GetReplica(ctx, name, got, func(done, total uint64) {
		if done > total/2 && !anew {
			anew = true
			must(t, other.Delete(ctx, name))
			must(t, other.Register(ctx, name, randomMemory(t, other, 16, 4<<20), 4096, nil))
		}
	})
	if !errors.Is(err, ErrDeleted) {
		t.Errorf("mixed: %v", err)
	}
}

// Who holds a checkpoint while it comes in is announced before the first byte.
func TestAnnouncedFirst(t *testing.T) {
	trainer, s := openStore(t, nil), openStore(t, func(o *Options) { o.Parallel = 1 })
	gold, first := randomMemory(t, trainer, 17, 9000), true
	must(t, trainer.Register(ctx, t.Name(), gold, 1000, nil))
	must(t, s.GetReplica(ctx, t.Name(), memory(t, s, 9000), func(done, total uint64) {
		if info, err := s.Find(ctx, t.Name()); first && (err != nil || len(info.Holders) != 2) {
			t.Errorf("%+v, %v", info, err)
		}
		first = false
	}))
}

func TestRegisterProgress(t *testing.T) {
	s, last := openStore(t, nil), uint64(0)
	buffers := randomMemory(t, s, 18, 50<<20, 3)
	must(t, s.Register(ctx, t.Name(), buffers, 40<<20, func(done, total uint64) {
		if done <= last || done > total || total != 50<<20+3 {
			t.Errorf("%d of %d bytes after %d", done, total, last)
		}
		last = done
	}))
	if last != 50<<20+3 {
		t.Errorf("the progress ends at %d", last)
	}
	select {
	case <-s.Done(t.Name()):
		t.Error("done while it is held")
	default:
	}
	must(t, s.Unregister(ctx, t.Name()))
	<-s.Done(t.Name())
	canceled, cancel := context.WithCancel(ctx)
	err := s.Register(canceled, t.Name(), buffers, 40<<20, func(done, total uint64) {
		if cancel(); done == total {
			t.Error("all was checked after the end of its context")
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A holder that could not hear of Delete does not undo it; later ones of the name are not bothered.
func TestDeletedUnheard(t *testing.T) {
	s, other := openStore(t, nil), openStore(t, nil)
	buffers := randomMemory(t, s, 19, 3000)
	must(t, s.Register(ctx, t.Name(), buffers, 1000, nil))
	must(t, s.etcd.revoke(ctx, s.leaseNow()))
	must(t, other.Delete(ctx, t.Name()))
	<-s.Done(t.Name())
	if _, err := s.Find(ctx, t.Name()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	must(t, s.Register(ctx, t.Name(), buffers, 1000, nil))
	must(t, s.etcd.revoke(ctx, s.leaseNow()))
	until(t, "it is announced again", func() bool {
		info, err := s.Find(ctx, t.Name())
		return err == nil && len(info.Holders) == 1
	})
}

// A key that went with the lease has not been deleted by anybody.
func TestLeaseEndsBetween(t *testing.T) {
	s := openStore(t, func(o *Options) { o.TTL = time.Minute })
	must(t, s.Register(ctx, t.Name(), randomMemory(t, s, 20, 3000), 1000, nil))
	must(t, s.etcd.revoke(ctx, s.leaseNow()))
	must(t, s.lookAt(ctx, s.settledNow()[0]))
	must(t, s.look())
	if info, err := s.Find(ctx, t.Name()); err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// between is an endpoint in front of etcd. Its answer is what etcd gave, unless hide says otherwise.
func between(t *testing.T, hide func(w http.ResponseWriter, r *http.Request, body string) bool) string {
	t.Helper()
	real := strings.TrimPrefix(os.Getenv(etcdVariable), "etcd://")
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer, err := http.Post("http://"+real+r.URL.Path, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		if !hide(w, r, string(body)) {
			w.WriteHeader(answer.StatusCode)
			io.Copy(w, answer.Body)
		}
	})
}

// viaBetween has that endpoint in front of the real one.
func viaBetween(t *testing.T, ttl time.Duration,
	hide func(w http.ResponseWriter, r *http.Request, body string) bool) *Store {
	return openStore(t, func(o *Options) {
		o.TTL = ttl
		o.Etcd = "etcd://" + between(t, hide) + "," + strings.TrimPrefix(o.Engine.Metadata, "etcd://")
	})
}

// A lease survives an endpoint that falls silent.
func TestSilentMember(t *testing.T) {
	var silent int32
	s := viaBetween(t, 2*time.Second, func(w http.ResponseWriter, r *http.Request, body string) bool {
		if atomic.LoadInt32(&silent) == 0 {
			return false
		}
		<-r.Context().Done()
		return true
	})
	must(t, s.Register(ctx, t.Name(), randomMemory(t, s, 21, 3000), 1000, nil))
	atomic.StoreInt32(&silent, 1)
	survives := func() bool {
		lease := s.leaseNow()
		time.Sleep(2 * s.o.TTL)
		alive, err := s.etcd.keepAlive(ctx, lease)
		return err == nil && alive && s.leaseNow() == lease
	}
	// A machine may stop for as long as a lease lasts, but not each time.
	for i := 0; !survives(); i++ {
		if i == 10 {
			t.Fatal("no lease survives")
		}
	}
}

// What was done, though the answer was lost, is not taken for somebody else's doing.
func TestLostAnswers(t *testing.T) {
	var lost int32
	s := viaBetween(t, time.Minute, func(w http.ResponseWriter, r *http.Request, body string) bool {
		if r.URL.Path != "/v3/kv/txn" || !strings.Contains(body, "request_put") ||
			!atomic.CompareAndSwapInt32(&lost, 0, 1) {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "{}")
		return true
	})
	// What nobody holds any more is replaced.
	other := openStore(t, nil)
	_, _, err := other.etcd.txn(ctx, []compare{},
		put(other.checkpointKey(t.Name()), []byte(`{"sizes":[1],"shard_size":1,"id":"x"}`), 0))
	must(t, err)
	must(t, s.Register(ctx, t.Name(), randomMemory(t, s, 22, 3000), 1000, nil))
	if atomic.LoadInt32(&lost) == 0 {
		t.Error("no answer was lost")
	}
}

// Options that cannot work are refused before anything is started.
func TestOptions(t *testing.T) {
	for _, o := range []Options{{TTL: 1}, {TTL: 5 * time.Millisecond}, {TTL: -time.Second},
		{TTL: 48 * time.Hour}, {Parallel: 1025}, {Parallel: -1}} {
		o.Engine.Metadata = "etcd://127.0.0.1:1"
		if s, err := Open(ctx, o); err == nil ||
			!strings.Contains(err.Error(), "TTL") && !strings.Contains(err.Error(), "at once") {
			t.Errorf("%+v: %v, %v", o, s, err)
		}
	}
}

func TestOpenFails(t *testing.T) {
	for _, address := range []string{"", "http://127.0.0.1:1/metadata", "etcd://127.0.0.1:1"} {
		o := Options{Engine: te.Options{Name: "127.0.0.1"}, Etcd: address}
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		if s, err := Open(short, o); err == nil {
			s.Close(ctx)
			t.Errorf("%q was opened", address)
		}
		cancel()
	}
}
