// SPDX-License-Identifier: Apache-2.0

package te

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// The test program is its own peer: run with peerVariable set it is the other process.
const peerVariable = "TE_GO_TEST_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) != "" {
		if err := servePeer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Options{Name: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func name(t *testing.T, e *Engine) string {
	t.Helper()
	s, err := e.Name()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func alloc(t *testing.T, e *Engine, length int, access Access) *Memory {
	t.Helper()
	m, err := e.Alloc(length, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Register(m, "", access); err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, e *Engine, name string) *Segment {
	t.Helper()
	s, err := e.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// roundTrip writes random bytes to a range of a peer, reads them back and compares; the memory has
// room for both, and a guard around what is read that must stay as it was.
func roundTrip(e *Engine, m *Memory, s *Segment, remote uint64, length int, seed int64) error {
	const guard = 64
	random := rand.New(rand.NewSource(seed))
	out, back := m.Bytes()[:length], m.Bytes()[length:2*length+2*guard]
	random.Read(out)
	random.Read(back)
	before := append([]byte(nil), back...)
	ctx := context.Background()
	err := e.Transfer(ctx, Request{Write, out, s, remote})
	if err == nil {
		err = e.Transfer(ctx, Request{Read, back[guard : guard+length], s, remote})
	}
	if err != nil {
		return err
	}
	copy(before[guard:], out)
	if !bytes.Equal(before, back) {
		return fmt.Errorf("%d bytes at %#x came back otherwise", length, remote)
	}
	return nil
}

func TestCodes(t *testing.T) {
	header, err := os.ReadFile("../../../include/te.h")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("error.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`X\((\w+), (-\d+), \w+, +"([^"]+)"\)`).FindAllSubmatch(header, -1)
	if len(rows) < 30 {
		t.Fatalf("te.h has %d errors", len(rows))
	}
	for _, row := range rows {
		number, _ := strconv.Atoi(string(row[2]))
		code := Code(number)
		if code.Name() != "TE_ERR_"+string(row[1]) || code.Error() != string(row[3]) {
			t.Errorf("%s is %s, %q", row[0], code.Name(), code.Error())
		}
		if !bytes.Contains(source, []byte("C.TE_ERR_"+string(row[1])+"\n")) {
			t.Errorf("there is no name for %s", row[1])
		}
	}
}

func TestErrorsTellWhy(t *testing.T) {
	_, err := New(Options{Name: "a/b"})
	var detail *Error
	if !errors.As(err, &detail) || !errors.Is(err, ErrInvalid) || errors.Is(err, ErrTimeout) {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(detail.Text, "a/b") {
		t.Errorf("the text is %q", detail.Text)
	}
	if _, err = New(Options{Set: map[string]string{"NO_SUCH_OPTION": "1"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown option: %v", err)
	}
	if _, err = New(Options{Name: "a\x00b"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("NUL: %v", err)
	}
	e := newEngine(t)
	if err := e.Install("carrier-pigeon", ""); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown transport: %v", err)
	}
	if err := e.Uninstall("tcp\x00"); !errors.Is(err, ErrInvalid) {
		t.Errorf("NUL: %v", err)
	}
}

func TestMemory(t *testing.T) {
	e := newEngine(t)
	m := alloc(t, e, 4096, RemoteRW)
	if err := e.Register(m, "", RemoteRW); !errors.Is(err, ErrOverlap) {
		t.Errorf("registered twice: %v", err)
	}
	if err := m.Free(); !errors.Is(err, ErrBusy) {
		t.Errorf("freed while registered: %v", err)
	}
	if err := e.Unregister(m); err != nil {
		t.Error(err)
	}
	if err := e.Unregister(m); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("unregistered twice: %v", err)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
	if _, err := e.Alloc(0, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := e.Alloc(1, "nowhere"); err == nil {
		t.Error("an unknown location was taken")
	}
	// What nobody registered is refused, Go's own memory included.
	b := make([]byte, 100)
	err := e.Transfer(context.Background(), Request{Read, b, e.Local(), 0})
	if !errors.Is(err, ErrNotRegistered) {
		t.Errorf("memory of Go: %v", err)
	}
}

func TestManyRegions(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	whole, err := peer.Alloc(200*4096, "")
	if err != nil {
		t.Fatal(err)
	}
	var parts []*Memory
	for i := 0; i < 100; i++ {
		parts = append(parts, At(unsafe.Pointer(&whole.Bytes()[i*8192]), 4096))
	}
	if err := peer.RegisterAll(parts, "", RemoteRW); err != nil {
		t.Fatal(err)
	}
	s := open(t, e, name(t, peer))
	buffers, err := s.Buffers()
	if err != nil || len(buffers) != len(parts) {
		t.Fatalf("%d buffers, %v", len(buffers), err)
	}
	warmed, err := s.Warm(time.Minute)
	if err != nil || len(warmed) == 0 || warmed[len(warmed)-1].Transport == "" {
		t.Errorf("warm: %+v, %v", warmed, err)
	}
	for _, by := range warmed {
		if by.Transport == "tcp" && (by.Ready == 0 || by.Err != 0 || by.Time <= 0) {
			t.Errorf("warm by tcp: %+v", by)
		}
	}
	for i, b := range buffers {
		if b != (Buffer{parts[i].Addr(), 4096}) {
			t.Errorf("buffer %d is %v", i, b)
		}
	}
	if err := peer.UnregisterAll(parts); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	if buffers, err = s.Buffers(); err != nil || len(buffers) != 0 {
		t.Errorf("%d buffers, %v", len(buffers), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// servePeer has a region, prints its name and where that is, and moves bytes itself when it is told
// to: each line of its input is "name address length seed".
func servePeer() error {
	e, err := New(Options{Name: "127.0.0.1"})
	if err != nil {
		return err
	}
	defer e.Close()
	m, err := e.Alloc(8<<20, "")
	if err != nil {
		return err
	}
	if err := e.Register(m, "", RemoteRW); err != nil {
		return err
	}
	own, err := e.Name()
	if err != nil {
		return err
	}
	fmt.Println(own, m.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var peer string
		var remote uint64
		var length int
		var seed int64
		if _, err := fmt.Sscan(in.Text(), &peer, &remote, &length, &seed); err != nil {
			return err
		}
		s, err := e.Open(peer)
		if err != nil {
			return err
		}
		if err := roundTrip(e, m, s, remote, length, seed); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

func TestTwoProcesses(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)
	var peer string
	var remote uint64
	if !lines.Scan() {
		t.Fatal("the peer said nothing")
	}
	if _, err := fmt.Sscan(lines.Text(), &peer, &remote); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	m, theirs := alloc(t, e, 8<<20, LocalOnly), alloc(t, e, 4<<20, RemoteRW)
	s := open(t, e, peer)
	if err := e.Probe(peer); err != nil {
		t.Error(err)
	}
	for i, length := range []int{1, 7, 4095, 65536, 65537, 1<<20 + 13, 3 << 20} {
		if err := roundTrip(e, m, s, remote+uint64(i), length, int64(i)); err != nil {
			t.Errorf("%d bytes: %v", length, err)
		}
		fmt.Fprintln(in, name(t, e), theirs.Addr()+uint64(i), length, i+100)
		if !lines.Scan() || lines.Text() != "done" {
			t.Fatalf("the peer fails with %d bytes", length)
		}
	}
}

func TestBatch(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local, remote := alloc(t, e, 1<<20, LocalOnly), alloc(t, peer, 1<<20, RemoteRead)
	rand.New(rand.NewSource(5)).Read(remote.Bytes())
	s := open(t, e, name(t, peer))
	b, err := e.NewBatch(3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	read := Request{Read, local.Bytes()[1:1001], s, remote.Addr() + 3}
	if err := b.Submit([]Request{read, read, read, read}, nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("four for three: %v", err)
	}
	if err := b.Submit([]Request{read}, &SubmitOptions{
		Timeout: time.Minute, Notify: &Notification{"there", "it is"}, NotifyTarget: s,
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st, err := b.Status(0); err != nil || st != (Status{Completed, nil, 1000}) || !st.State.Done() {
		t.Errorf("%+v, %v", st, err)
	}
	if !bytes.Equal(local.Bytes()[1:1001], remote.Bytes()[3:1003]) {
		t.Error("other bytes were read")
	}
	// Beyond the region; and where only reading is allowed.
	beyond := Request{Read, local.Bytes()[:100], s, remote.Addr() + 1<<20 - 50}
	denied := Request{Write, local.Bytes()[:100], s, remote.Addr()}
	if err := b.Submit([]Request{beyond, denied}, nil); err != nil {
		t.Fatal(err)
	}
	err = b.Wait(context.Background())
	if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "request 1: ") {
		t.Errorf("beyond the region: %v", err)
	}
	if p, err := b.Path(0); err != nil || p.Transport == "" || p.Changes != 0 || p.Staged {
		t.Errorf("path of request 0: %+v, %v", p, err)
	}
	if _, err := b.Path(-1); !errors.Is(err, ErrInvalid) {
		t.Errorf("path of request -1: %v", err)
	}
	if st, err := b.Status(2); err != nil || st.State != Invalid || st.Err != ErrAccess {
		t.Errorf("writing where only reading is allowed: %+v, %v", st, err)
	}
	if st, err := b.Total(); err != nil || st.State.String() != "invalid" || st.Bytes != 1000 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := b.Status(3); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
		t.Errorf("request 3: %v", err)
	}
	foreign, _ := peer.NewBatch(1)
	if err := foreign.Submit([]Request{read}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a segment of another engine: %v", err)
	}
}

func TestNotifications(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	s := open(t, e, name(t, peer))
	want := []Notification{{"first", ""}, {"zweite", "größer als ASCII"}, {"third", strings.Repeat("x", 5000)}}
	for _, n := range want {
		if err := s.Notify(n); err != nil {
			t.Fatal(err)
		}
	}
	got, err := peer.Notifications()
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = peer.Notifications(); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNotificationsOfBytes(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	s := open(t, e, name(t, peer))
	want := []Notification{{"", "\x00\xff\xc3"}, {"a\x00b", ""}, {"\xff", strings.Repeat("\xfe\x00", 700)}}
	if err := s.Notify(want[0]); err != nil {
		t.Fatal(err)
	}
	b, err := e.NewBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, n := range want[1:] {
		if err := b.NotifyAfter(s, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.NotifyAfter(s, Notification{"", strings.Repeat("x", 2<<20)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	var all []Notification
	for i := 0; len(all) < len(want) && i < 2000; i++ {
		got, err := peer.Notifications()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
		time.Sleep(10 * time.Millisecond)
	}
	// Those that follow a batch come in any order.
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	if fmt.Sprint(all) != fmt.Sprint(want) {
		t.Errorf("%q", all)
	}
}

func TestObserve(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local, remote := alloc(t, e, 4096, LocalOnly), alloc(t, peer, 4096, RemoteRW)
	s := open(t, e, name(t, peer))
	request := Request{Write, local.Bytes(), s, remote.Addr()}
	text, err := e.Explain(request)
	if err != nil || !strings.Contains(text, "tcp") {
		t.Errorf("%q, %v", text, err)
	}
	if err := e.Transfer(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	metrics, err := e.MetricsText()
	if err != nil || !strings.Contains(metrics, "\ntransfer_engine_bytes_total{opcode=\"write\"} 4096\n") {
		t.Errorf("%s, %v", metrics, err)
	}
	stats, err := e.Stats()
	if err != nil || stats.RequestsCompleted != 1 || stats.BytesWritten != 4096 || stats.Regions != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	if text, err = e.Topology(); err != nil || !strings.HasPrefix(text, "{") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err = e.Links(); err != nil || !strings.Contains(text, "local_nics") {
		t.Errorf("%q, %v", text, err)
	}
	if Version() == "" {
		t.Error("no version")
	}
}

// A wait whose context ends cancels, and the memory may be reused when it returns.
func TestCancel(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	const size = 64 << 20
	local, remote := alloc(t, e, size, LocalOnly), alloc(t, peer, size, RemoteRW)
	s := open(t, e, name(t, peer))
	ended := 0
	for i := 0; i < 20 || (i < 1000 && ended == 0); i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%20)*100*time.Microsecond)
		for j := range local.Bytes()[:4096] {
			local.Bytes()[j] = byte(i + 1)
		}
		err := e.Transfer(ctx, Request{Read, local.Bytes(), s, remote.Addr()})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			ended++
		} else if err != nil {
			t.Fatal(err)
		}
		before := append([]byte(nil), local.Bytes()...)
		time.Sleep(time.Millisecond)
		if !bytes.Equal(before, local.Bytes()) {
			t.Fatal("the memory was not quiet")
		}
	}
	if ended == 0 {
		t.Error("no transfer was canceled")
	}
}

// Close ends the waits of others, and every call after it says so.
func TestClose(t *testing.T) {
	e, peer := newEngine(t), newEngine(t)
	local, remote := alloc(t, e, 32<<20, LocalOnly), alloc(t, peer, 32<<20, RemoteRW)
	s := open(t, e, name(t, peer))
	var all sync.WaitGroup
	started := make(chan struct{}, 8)
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for turn := 0; turn < 10000; turn++ {
				err := e.Transfer(context.Background(), Request{Read, local.Bytes(), s, remote.Addr()})
				if turn == 0 {
					started <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrCanceled) {
						t.Error(err)
					}
					return
				}
			}
			t.Error("went on after Close")
		}()
	}
	<-started
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Name(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := e.NewBatch(1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What belongs to another engine, makes no sense, or is over already.
func TestMisuse(t *testing.T) {
	e, other := newEngine(t), newEngine(t)
	local := alloc(t, e, 1000, LocalOnly)
	remote := alloc(t, other, 1000, RemoteRead)
	s, self := open(t, e, name(t, other)), open(t, other, name(t, other))
	read := Request{Read, local.Bytes(), s, remote.Addr()}
	note := &Notification{"there", "it is"}
	b, err := e.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, o := range []*SubmitOptions{{Notify: note, NotifyTarget: self}, {Timeout: -1}, {Traceparent: "00-1"}, {Traceparent: "\x00"}} {
		if err := b.Submit([]Request{read}, o); !errors.Is(err, ErrInvalid) {
			t.Errorf("options %d: %v", i, err)
		}
	}
	if err := b.Submit(nil, &SubmitOptions{Notify: note, NotifyTarget: s}); !errors.Is(err, ErrInvalid) {
		t.Errorf("notification of nothing: %v", err)
	}
	foreign := read
	foreign.Target = self
	if text, err := e.Explain(foreign); !errors.Is(err, ErrInvalid) {
		t.Errorf("explained: %s, %v", text, err)
	}
	if err := b.Submit([]Request{read}, &SubmitOptions{Timeout: math.MaxInt64}); err != nil {
		t.Error(err)
	} else if err := b.Wait(context.Background()); err != nil {
		t.Error(err)
	}
	// Two of one name count; closing one of them twice leaves the other open.
	again := open(t, e, name(t, other))
	for i := 0; i < 2; i++ {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := e.Transfer(context.Background(), read); err != nil {
		t.Error(err)
	}
}
