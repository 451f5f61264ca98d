// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func client(t *testing.T, address string) *etcd {
	t.Helper()
	c, err := newEtcd(address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"h":                     "[http://h:2379]",
		"etcd://h:1,[::1]:2,i/": "[http://h:1 http://[::1]:2 http://i:2379]",
		"etcds://u:p%40@h:1":    "[https://h:1]",
	} {
		if c := client(t, address); fmt.Sprint(c.endpoints) != want {
			t.Errorf("%s: %v", address, c.endpoints)
		}
	}
	if c := client(t, "etcds://u:p%40@h:1"); c.user != "u" || c.password != "p@" {
		t.Errorf("%s, %s", c.user, c.password)
	}
	for _, address := range []string{"", "http://h:1", "P2PHANDSHAKE://", "etcd://", "h:x", "h/x", "h,,i"} {
		if _, err := newEtcd(address); err == nil {
			t.Errorf("%q was taken", address)
		}
	}
	for _, address := range []string{"http://me:secret@h:1", "etcd://me:secret@h:x", "etcd://me:se@cret@"} {
		_, err := newEtcd(address)
		if err == nil || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// One endpoint that is away or without a leader gives way to the next.
func TestEndpoints(t *testing.T) {
	leaderless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":"etcdserver: no leader","code":14,"message":"etcdserver: no leader"}`)
	})
	good := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"kvs":[{"key":"a2V5","value":"dmFsdWU=","mod_revision":"7"}],"count":"1"}`)
	})
	c := client(t, "127.0.0.1:1,"+leaderless+","+good)
	for i := 0; i < 2; i++ {
		kv, err := c.get(context.Background(), "key")
		if err != nil || string(kv.Value) != "value" || kv.ModRevision != 7 {
			t.Errorf("%+v, %v", kv, err)
		}
	}
	if c.current != 2 {
		t.Errorf("asks endpoint %d first", c.current)
	}
	_, err := client(t, "127.0.0.1:1,"+leaderless).get(context.Background(), "key")
	if err == nil || !strings.Contains(err.Error(), "no leader") {
		t.Error(err)
	}
}

// One that takes connections and says nothing leaves the next its share of the time, and is not asked
// first again.
func TestSilentEndpoint(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	good := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{}`) })
	c := client(t, silent.Addr().String()+","+good)
	get := func(limit time.Duration) error {
		short, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, err := c.get(short, "key")
		return err
	}
	limit := time.Second
	err = get(limit)
	for ; err != nil && limit < time.Minute; limit *= 2 { // a machine may stop for longer than that share
		c.current = 0
		err = get(2 * limit)
	}
	if err != nil || c.current != 1 {
		t.Errorf("%v; asks endpoint %d first", err, c.current)
	}
}

func TestLogin(t *testing.T) {
	logins := 0
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/v3/auth/authenticate":
			logins++
			if string(body) != `{"name":"me","password":"secret"}` {
				t.Errorf("login with %s", body)
			}
			fmt.Fprintf(w, `{"token":"t%d"}`, logins)
		case logins == 0 || r.Header.Get("Authorization") != "t1":
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":"etcdserver: user name is empty","code":3,`+
				`"message":"etcdserver: user name is empty"}`)
		default:
			io.WriteString(w, `{}`)
		}
	})
	c := client(t, "etcd://me:secret@"+address)
	for i := 0; i < 3; i++ {
		if kv, err := c.get(context.Background(), "key"); err != nil || kv != nil {
			t.Errorf("%v, %v", kv, err)
		}
	}
	if logins != 1 {
		t.Errorf("%d logins", logins)
	}
}

// Whatever answers, the error says what it is.
func TestStrangeAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"<html>":                          "is it etcd",
		"":                                "is it etcd",
		"[]":                              "is it etcd",
		`{"kvs":7}`:                       "is it etcd",
		`{"kvs":[{"mod_revision":"x"}]}`:  "is it etcd",
		`{"kvs":[{"value":"!"}]}`:         "is it etcd",
		`{"error":"no","message":"nope"}`: "nope",
		`{"error":{"message":"stream"}}`:  "stream",
	} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, answer) })
		_, err := client(t, address).get(context.Background(), "key")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body) // only then does the server see the client go
		cancel()
		<-r.Context().Done()
	})
	if _, err := client(t, address).get(ctx, "key"); err != context.Canceled {
		t.Error(err)
	}
}
