// SPDX-License-Identifier: Apache-2.0

package p2pstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// The JSON gateway of etcd v3 as far as a store of checkpoints needs it. Keys and values are []byte,
// which encoding/json writes as the gateway wants them; 64-bit numbers are text there.

const (
	maxReply    = 256 << 20
	callTimeout = 10 * time.Second // of one endpoint
	pageLimit   = 1000             // keys of one range
)

type etcd struct {
	endpoints      []string // http://host:port
	user, password string
	http           http.Client

	mu      sync.Mutex
	current int // the endpoint to ask first: none that failed last
	token   string
}

type keyValue struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value"`
	CreateRevision int64  `json:"create_revision,string"`
	ModRevision    int64  `json:"mod_revision,string"`
}

type rangeRequest struct {
	Key       []byte `json:"key"`
	RangeEnd  []byte `json:"range_end,omitempty"`
	Limit     int64  `json:"limit,omitempty,string"`
	KeysOnly  bool   `json:"keys_only,omitempty"`
	CountOnly bool   `json:"count_only,omitempty"`
}

type rangeReply struct {
	KVs   []keyValue `json:"kvs"`
	More  bool       `json:"more"`
	Count int64      `json:"count,string"`
}

// compare holds if every key of the range has that revision; 0 is that of a key that is not there.
type compare struct {
	Target         string `json:"target"` // CREATE or MOD
	Result         string `json:"result"`
	Key            []byte `json:"key"`
	RangeEnd       []byte `json:"range_end,omitempty"`
	CreateRevision *int64 `json:"create_revision,omitempty,string"`
	ModRevision    *int64 `json:"mod_revision,omitempty,string"`
}

func modIs(key string, revision int64) compare {
	return compare{Target: "MOD", Result: "EQUAL", Key: []byte(key), ModRevision: &revision}
}

func noneBelow(prefix string) compare {
	none := int64(0)
	return compare{Target: "CREATE", Result: "EQUAL", Key: []byte(prefix),
		RangeEnd: afterPrefix(prefix), CreateRevision: &none}
}

type operation struct {
	Put    *putRequest   `json:"request_put,omitempty"`
	Delete *rangeRequest `json:"request_delete_range,omitempty"`
}

type putRequest struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	Lease int64  `json:"lease,omitempty,string"`
}

func put(key string, value []byte, lease int64) operation {
	return operation{Put: &putRequest{[]byte(key), value, lease}}
}

func remove(key string) operation {
	return operation{Delete: &rangeRequest{Key: []byte(key)}}
}

func removeBelow(prefix string) operation {
	return operation{Delete: &rangeRequest{Key: []byte(prefix), RangeEnd: afterPrefix(prefix)}}
}

// afterPrefix is the first key that is behind all that begin with prefix, which does not end in 0xff.
func afterPrefix(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

// newEtcd reads "[etcd[s]://][user:password@]host:port[,host:port]..."; what is not given there is
// taken from the variables that the engine, too, reads.
func newEtcd(address string) (*etcd, error) {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		scheme, rest = "etcd", address
	}
	c := &etcd{user: os.Getenv("TE_METADATA_USERNAME"), password: os.Getenv("TE_METADATA_PASSWORD")}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 8
	c.http = http.Client{Transport: transport}
	base := "http://"
	switch scheme {
	case "etcd":
	case "etcds":
		base = "https://"
		var err error
		if transport.TLSClientConfig, err = tlsConfig(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("p2pstore: metadata %q: checkpoints are kept in etcd alone: "+
			"etcd://host:port", withoutLogin(scheme, rest))
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		c.user, c.password, rest = unescape(user), unescape(password), rest[at+1:]
	}
	for _, host := range strings.Split(strings.TrimRight(rest, "/"), ",") {
		u, err := url.Parse(base + host)
		if err != nil || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("p2pstore: metadata %q: %q is no host:port",
				withoutLogin(scheme, rest), host)
		}
		if u.Port() == "" {
			u.Host += ":2379"
		}
		c.endpoints = append(c.endpoints, u.String())
	}
	return c, nil
}

// withoutLogin is an address as it may be shown.
func withoutLogin(scheme, rest string) string {
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

func tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := os.Getenv("TE_METADATA_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("p2pstore: TE_METADATA_CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("p2pstore: TE_METADATA_CA: %s holds no certificate", file)
		}
	}
	if file := os.Getenv("TE_METADATA_CERT"); file != "" {
		pair, err := tls.LoadX509KeyPair(file, os.Getenv("TE_METADATA_KEY"))
		if err != nil {
			return nil, fmt.Errorf("p2pstore: TE_METADATA_CERT, TE_METADATA_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// An etcdError is an answer of etcd that is no success.
type etcdError struct {
	endpoint string
	status   int
	code     int // of gRPC
	text     string
}

func (e *etcdError) Error() string {
	return fmt.Sprintf("p2pstore: etcd at %s: status %d: %s", e.endpoint, e.status, e.text)
}

const (
	codeDeadline        = 4
	codeNotFound        = 5
	codePrecondition    = 9
	codeUnavailable     = 14
	codeUnauthenticated = 16
)

// isAway: another endpoint may do better.
func isAway(err error) bool {
	var told *etcdError
	if !errors.As(err, &told) {
		return true
	}
	return told.code == codeUnavailable || told.code == codeDeadline || told.status >= 500
}

func isNotFound(err error) bool {
	var told *etcdError
	return errors.As(err, &told) && told.code == codeNotFound
}

func (c *etcd) wantsLogin(err error) bool {
	var told *etcdError
	return c.user != "" && errors.As(err, &told) &&
		(told.code == codeUnauthenticated || strings.Contains(told.text, "user name is empty") ||
			strings.Contains(told.text, "revision in header is old"))
}

// call asks the endpoint that answered last, or else the others in turn; they share the time that ctx
// leaves. Whatever is asked here may be asked twice.
func (c *etcd) call(ctx context.Context, path string, request, reply any) error {
	err := c.callAny(ctx, path, request, reply)
	if err == nil || !c.wantsLogin(err) {
		return err
	}
	if err = c.logIn(ctx); err != nil {
		return err
	}
	return c.callAny(ctx, path, request, reply)
}

func (c *etcd) logIn(ctx context.Context) error {
	c.mu.Lock()
	c.token = ""
	c.mu.Unlock()
	var got struct {
		Token string `json:"token"`
	}
	who := map[string]string{"name": c.user, "password": c.password}
	err := c.callAny(ctx, "auth/authenticate", who, &got)
	var told *etcdError
	if errors.As(err, &told) && told.code == codePrecondition {
		return nil // it wants no login
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = got.Token
	return nil
}

func (c *etcd) callAny(ctx context.Context, path string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	c.mu.Lock()
	first, token := c.current, c.token
	c.mu.Unlock()
	for i := range c.endpoints {
		at := (first + i) % len(c.endpoints)
		one, cancel := context.WithTimeout(ctx, share(ctx, len(c.endpoints)-i))
		err = c.callOne(one, c.endpoints[at], path, token, body, reply)
		cancel()
		if err == nil || !isAway(err) {
			c.askFirst(at)
			return err
		}
		if ctx.Err() == context.Canceled {
			return ctx.Err()
		}
		c.askFirst((at + 1) % len(c.endpoints))
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (c *etcd) askFirst(at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = at
}

// share is the time for one of the endpoints that are left to ask.
func share(ctx context.Context, endpoints int) time.Duration {
	end, limited := ctx.Deadline()
	if each := time.Until(end) / time.Duration(endpoints); limited && each < callTimeout {
		return each
	}
	return callTimeout
}

func (c *etcd) callOne(ctx context.Context, endpoint, path, token string, body []byte,
	reply any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/v3/"+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("p2pstore: etcd cannot be reached: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReply+1))
	if err != nil {
		return fmt.Errorf("p2pstore: etcd at %s: %w", endpoint, err)
	}
	told := &etcdError{endpoint: endpoint, status: answer.StatusCode}
	if len(text) > maxReply {
		told.text = fmt.Sprintf("its answer is longer than %d bytes", maxReply)
		return told
	}
	return told.read(text, reply)
}

// read tells a success, which goes to reply, from an error, which is e then.
func (e *etcdError) read(text []byte, reply any) error {
	var failure struct {
		Error   json.RawMessage `json:"error"` // text, or an object where the answer is a stream
		Message string          `json:"message"`
		Code    int             `json:"code"`
	}
	bad := json.Unmarshal(text, &failure)
	if e.status == http.StatusOK && bad == nil && failure.Error == nil {
		if bad = json.Unmarshal(text, reply); bad == nil {
			return nil
		}
	}
	if bad != nil {
		e.text = fmt.Sprintf("is it etcd? The answer is no such JSON: %v: %.100q", bad, text)
		return e
	}
	e.code, e.text = failure.Code, failure.Message
	if len(failure.Error) > 0 && failure.Error[0] == '{' &&
		json.Unmarshal(failure.Error, &failure) == nil {
		e.code, e.text = failure.Code, failure.Message
	}
	if e.text == "" {
		e.text = fmt.Sprintf("%.200s", text)
	}
	return e
}

// get finds one key; nil if it is not there.
func (c *etcd) get(ctx context.Context, key string) (*keyValue, error) {
	var reply rangeReply
	err := c.call(ctx, "kv/range", rangeRequest{Key: []byte(key)}, &reply)
	if err != nil || len(reply.KVs) == 0 {
		return nil, err
	}
	return &reply.KVs[0], nil
}

// list hands out all keys that begin with prefix, in pages.
func (c *etcd) list(ctx context.Context, prefix string, keysOnly bool,
	each func(kv *keyValue)) error {
	from := []byte(prefix)
	for {
		var reply rangeReply
		err := c.call(ctx, "kv/range", rangeRequest{Key: from, RangeEnd: afterPrefix(prefix),
			Limit: pageLimit, KeysOnly: keysOnly}, &reply)
		if err != nil {
			return err
		}
		for i := range reply.KVs {
			each(&reply.KVs[i])
		}
		if !reply.More || len(reply.KVs) == 0 {
			return nil
		}
		from = append(reply.KVs[len(reply.KVs)-1].Key, 0)
	}
}

// txn does all operations if all comparisons hold, and says whether they did, in which revision.
func (c *etcd) txn(ctx context.Context, when []compare, then ...operation) (revision int64, done bool,
	err error) {
	var reply struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		Succeeded bool `json:"succeeded"`
	}
	err = c.call(ctx, "kv/txn", map[string]any{"compare": when, "success": then}, &reply)
	return reply.Header.Revision, reply.Succeeded, err
}

func (c *etcd) grant(ctx context.Context, ttl time.Duration) (int64, error) {
	var reply struct {
		ID int64 `json:"ID,string"`
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	err := c.call(ctx, "lease/grant", map[string]any{"TTL": seconds}, &reply)
	return reply.ID, err
}

// keepAlive says whether the lease lives; it has its full time again then.
func (c *etcd) keepAlive(ctx context.Context, lease int64) (bool, error) {
	var reply struct {
		Result struct {
			TTL int64 `json:"TTL,string"`
		} `json:"result"`
	}
	err := c.call(ctx, "lease/keepalive", map[string]any{"ID": lease}, &reply)
	if isNotFound(err) {
		return false, nil
	}
	return reply.Result.TTL > 0, err
}

// revoke ends a lease, and all keys that hang on it.
func (c *etcd) revoke(ctx context.Context, lease int64) error {
	err := c.call(ctx, "lease/revoke", map[string]any{"ID": lease}, &struct{}{})
	if isNotFound(err) {
		return nil
	}
	return err
}
