/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd.c - what an etcd answers by its JSON gateway to the calls that the library makes: keys, leases,
 * transactions that compare leases or read revisions, and streams of watches.
 *
 * Its members share all of this, as they agree on it. When one goes away there is no leader for a while, now
 * and then: calls are refused, streams are ended, and leases last for their whole time from then on. What a
 * call asked for that failed has been done, or not. History is compacted at any time; a watch of what is gone
 * is cancelled. A stream may never be answered, as if a proxy held it back.
 */
#include "store.h"

#include "load.h"
#include "sim.h"
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEASES  128
#define STREAMS 64
#define WATCHES 32  /* of a stream */
#define EVENTS  256 /* that are kept */
#define TEXT    ((size_t)1 << 17)

#define LONG_IN_USE 1000000 /* its revision: one that begins anew does not get there */

struct lease {
    int64_t id, ttl_s, until;
};

/* A key that has changed; without a value: it has gone. */
struct event {
    char name[256];
    char *value;
    size_t length;
    int64_t revision;
};

struct watch {
    char name[256];
    int64_t id, next; /* revision to be told */
};

struct stream {
    int fd;
    struct watch watches[WATCHES];
    int n;
};

static struct {
    int64_t revision, compacted; /* what is before that is not told any more */
    struct lease leases[LEASES];
    struct event events[EVENTS]; /* a ring, by revision */
    struct stream streams[STREAMS];
    int n_streams;
    int64_t elects_until;
} etcd = {.revision = LONG_IN_USE, .compacted = LONG_IN_USE};

/* ------------------------------------------------------------------------------------------ base64 */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t encode(const char *from, size_t n, char *out)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;

        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned char)from[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            out[at++] = i + k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    out[at] = '\0';
    return at;
}

/* Ends where the text does, with a NUL that is not counted. */
static size_t decode(const char *from, char *out, size_t room)
{
    static unsigned char values[256]; /* of a digit, and one more; 0: it is none */
    uint32_t bits = 0;
    size_t n = 0;
    int have = 0;

    /* '/' is the last */
    for (unsigned char i = 0; !values['/'] && digits[i]; i++)
        values[(unsigned char)digits[i]] = (unsigned char)(i + 1);
    for (unsigned value; (value = values[(unsigned char)*from]) != 0; from++) {
        bits = bits << 6 | (value - 1);
        have += 6;
        if (have >= 8 && n + 1 < room)
            out[n++] = (char)(bits >> (have -= 8));
    }
    out[n] = '\0';
    return n;
}

/* --------------------------------------------------------------------------- what JSON says, and says it */

/* Where the value of a field begins, behind its quote if it has one; NULL: it is not there. */
static const char *field(const char *text, const char *name)
{
    char quoted[64];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    at = strstr(text, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " :\"") : NULL;
}

static int64_t number(const char *text, const char *name)
{
    const char *at = field(text, name);

    return at ? strtoll(at, NULL, 10) : 0;
}

static bool name_of(const char *text, const char *what, char out[256])
{
    const char *at = field(text, what);

    out[0] = '\0';
    return at && decode(at, out, 256) > 0;
}

/* A text that grows. */
struct text {
    char at[TEXT];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(t->at + t->n, TEXT - t->n, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= TEXT - t->n)
        sim_fail("an answer of etcd has more than %zu bytes", TEXT);
    t->n += (size_t)n;
}

static void add_base64(struct text *t, const char *from, size_t n)
{
    if (n / 3 * 4 + 8 > TEXT - t->n)
        sim_fail("an answer of etcd has more than %zu bytes", TEXT);
    t->n += encode(from, n, t->at + t->n);
}

static void add_header(struct text *t)
{
    add(t, "\"header\":{\"revision\":\"%" PRId64 "\"}", etcd.revision);
}

static void add_kv(struct text *t, const char *name, const char *value, size_t n, int64_t revision)
{
    add(t, "{\"key\":\"");
    add_base64(t, name, strlen(name));
    add(t, "\",\"mod_revision\":\"%" PRId64 "\"", revision);
    if (value) {
        add(t, ",\"value\":\"");
        add_base64(t, value, n);
        add(t, "\"");
    }
    add(t, "}");
}

/* ---------------------------------------------------------------------------------------- streams */

static void say_chunk(int fd, const struct text *t)
{
    char size[32];

    sim_store_say(fd, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", t->n));
    sim_store_say(fd, t->at, t->n);
    sim_store_say(fd, "\r\n", 2);
}

static void say_event(const struct stream *s, const struct watch *w, const struct event *e)
{
    static struct text t;

    t.n = 0;
    add(&t, "{\"result\":{");
    add_header(&t);
    add(&t, ",\"watch_id\":\"%" PRId64 "\",\"events\":[{%s\"kv\":", w->id,
        e->value ? "" : "\"type\":\"DELETE\",");
    add_kv(&t, e->name, e->value, e->length, e->revision);
    add(&t, "}]}}\n");
    say_chunk(s->fd, &t);
}

static void say_cancelled(const struct stream *s, const struct watch *w)
{
    static struct text t;

    t.n = 0;
    add(&t, "{\"result\":{");
    add_header(&t);
    add(&t,
        ",\"watch_id\":\"%" PRId64 "\",\"canceled\":true,\"compact_revision\":\"%" PRId64 "\"}}\n",
        w->id, etcd.compacted);
    say_chunk(s->fd, &t);
}

/* Tells what it was not told; false if that is gone. */
static bool tell(const struct stream *s, struct watch *w)
{
    if (w->next < etcd.compacted) {
        sim_trace("etcd: a watch of %s from %" PRId64 " is cancelled", w->name, w->next);
        say_cancelled(s, w);
        return false;
    }
    for (; w->next <= etcd.revision; w->next++) {
        const struct event *e = &etcd.events[w->next % EVENTS];

        if (e->revision == w->next && strcmp(e->name, w->name) == 0)
            say_event(s, w, e);
    }
    return true;
}

static void tell_all(void)
{
    for (int i = 0; i < etcd.n_streams; i++) {
        struct stream *s = &etcd.streams[i];

        for (int k = 0; k < s->n; k++)
            if (!tell(s, &s->watches[k]))
                s->watches[k--] = s->watches[--s->n];
    }
}

static void watch(int fd, const char *body)
{
    struct stream *s = &etcd.streams[etcd.n_streams++];
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    static struct text t;

    if (etcd.n_streams == STREAMS)
        sim_fail("more than %d streams of etcd", STREAMS - 1);
    *s = (struct stream){.fd = fd};
    if (sim_one_in(sim_store_fault_in * 20))
        return; /* never answered */
    sim_store_say(fd, head, sizeof(head) - 1);
    while ((body = strstr(body, "create_request")) && s->n < WATCHES) {
        struct watch *w = &s->watches[s->n++];

        body += strlen("create_request");
        name_of(body, "key", w->name);
        w->id = number(body, "watch_id");
        w->next = number(body, "start_revision");
        w->next = w->next ? w->next : etcd.revision + 1;
        sim_trace("etcd: %s is watched from %" PRId64, w->name, w->next);
        t.n = 0;
        add(&t, "{\"result\":{");
        add_header(&t);
        add(&t, ",\"watch_id\":\"%" PRId64 "\",\"created\":true}}\n", w->id);
        say_chunk(fd, &t);
    }
    tell_all();
}

void sim_etcd_left(int fd)
{
    for (int i = 0; i < etcd.n_streams; i++)
        if (etcd.streams[i].fd == fd)
            etcd.streams[i--] = etcd.streams[--etcd.n_streams];
}

/* Who watches has asked for this where there is no leader. */
static void end_streams(void)
{
    static struct text t;

    t.n = 0;
    add(&t, "{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\"}}\n");
    for (int i = 0; i < etcd.n_streams; i++) {
        say_chunk(etcd.streams[i].fd, &t);
        sim_store_hang_up(etcd.streams[i].fd);
    }
    etcd.n_streams = 0;
}

/* ------------------------------------------------------------------------------------------- keys */

static void forget_before(int64_t revision)
{
    etcd.compacted = revision > etcd.compacted ? revision : etcd.compacted;
}

static void note(const char *name, const char *value, size_t n)
{
    struct event *e = &etcd.events[++etcd.revision % EVENTS];

    free(e->value);
    *e = (struct event){.length = n, .revision = etcd.revision};
    snprintf(e->name, sizeof(e->name), "%s", name);
    if (value)
        e->value = memcpy(sim_new(n + 1), value, n);
    forget_before(etcd.revision - EVENTS + 1);
}

static void drop_key(struct sim_key *k)
{
    sim_store_del(k->name);
    k->lease = 0;
    note(k->name, NULL, 0);
    k->revision = etcd.revision;
}

static struct sim_key *find(const char *name)
{
    struct sim_key *k = sim_store_find(name);

    return sim_store_has(k) ? k : NULL;
}

/* ----------------------------------------------------------------------------------------- leases */

static struct lease *lease_of(int64_t id)
{
    for (int i = 0; id && i < LEASES; i++)
        if (etcd.leases[i].id == id)
            return &etcd.leases[i];
    return NULL;
}

static int64_t grant(int64_t ttl_s)
{
    for (int i = 0; i < LEASES; i++) {
        struct lease *l = &etcd.leases[i];

        if (l->id)
            continue;
        *l = (struct lease){(int64_t)(sim_random() >> 1) | 1, ttl_s, sim_now() + ttl_s * SIM_S};
        return l->id;
    }
    sim_fail("more than %d leases", LEASES);
}

static void end_lease(struct lease *l)
{
    struct sim_key *k;

    for (size_t i = 0; (k = sim_store_key(i)); i++)
        if (sim_store_has(k) && k->lease == l->id)
            drop_key(k);
    sim_trace("etcd: lease %" PRId64 " has ended", l->id);
    *l = (struct lease){0};
}

/* ------------------------------------------------------------------------------------------ calls */

static void do_range(struct text *t, const char *body)
{
    char from[256], to[256] = "";
    bool many = field(body, "range_end"), bare = field(body, "keys_only");
    const struct sim_key *k;
    unsigned n = 0;

    name_of(body, "key", from);
    name_of(body, "range_end", to);
    add_header(t);
    add(t, ",\"kvs\":[");
    for (size_t i = 0; (k = sim_store_key(i)); i++) {
        bool in = many ? strcmp(k->name, from) >= 0 && (!to[0] || strcmp(k->name, to) < 0)
                       : strcmp(k->name, from) == 0;

        if (!in || !sim_store_has(k))
            continue;
        add(t, n++ ? "," : "");
        add_kv(t, k->name, bare ? NULL : k->value, k->length, k->revision);
    }
    add(t, "],\"count\":\"%u\"", n);
}

/* False: its lease is not there. */
static bool do_put(int fd, struct text *t, const char *body)
{
    const char *value = field(body, "value");
    char name[256], *plain = sim_new(TEXT);
    int64_t lease = number(body, "lease");
    bool is_good = !lease || lease_of(lease);
    size_t n = decode(value ? value : "", plain, TEXT);

    name_of(body, "key", name);
    if (is_good) {
        sim_store_put(fd, name, plain, n, 0);
        note(name, plain, n);
        find(name)->revision = etcd.revision;
        find(name)->lease = lease;
        add_header(t);
    }
    free(plain);
    return is_good;
}

static void do_delete(struct text *t, const char *body)
{
    struct sim_key *k;
    char name[256];

    name_of(body, "key", name);
    k = find(name);
    if (k)
        drop_key(k);
    add_header(t);
    add(t, ",\"deleted\":\"%d\"", k != NULL);
}

/* Whether keys hang on a lease, or what the revisions of keys are. */
static void do_transaction(struct text *t, const char *body)
{
    bool compares = field(body, "compare"), holds = true;
    unsigned n = 0;
    char name[256];

    add_header(t);
    add(t, ",\"responses\":[");
    for (const char *at = body; (at = strstr(at, "\"key\"")); at++) {
        const struct sim_key *k = name_of(at, "key", name) ? find(name) : NULL;

        holds = holds && (!compares || (k && k->lease == number(body, "lease")));
        if (compares)
            continue;
        add(t, "%s{\"response_range\":{\"kvs\":[", n++ ? "," : "");
        if (k)
            add_kv(t, name, NULL, 0, k->revision);
        add(t, "]}}");
    }
    add(t, "],\"succeeded\":%s", holds ? "true" : "false");
}

static void do_grant(struct text *t, const char *body)
{
    int64_t ttl_s = number(body, "TTL");

    add_header(t);
    add(t, ",\"ID\":\"%" PRId64 "\",\"TTL\":\"%" PRId64 "\"", grant(ttl_s), ttl_s);
}

static void do_keep(struct text *t, const char *body)
{
    struct lease *l = lease_of(number(body, "ID"));

    add(t, "\"result\":{");
    add_header(t);
    if (l) {
        l->until = sim_now() + l->ttl_s * SIM_S;
        add(t, ",\"TTL\":\"%" PRId64 "\"", l->ttl_s);
    }
    add(t, "}");
}

static bool do_revoke(struct text *t, const char *body)
{
    struct lease *l = lease_of(number(body, "ID"));

    add_header(t);
    if (l)
        end_lease(l);
    return l != NULL;
}

/* False: there is no such lease. */
static bool run(int fd, struct text *t, const char *call, const char *body)
{
    if (strcmp(call, "kv/put") == 0)
        return do_put(fd, t, body);
    if (strcmp(call, "lease/revoke") == 0)
        return do_revoke(t, body);
    if (strcmp(call, "kv/range") == 0)
        do_range(t, body);
    else if (strcmp(call, "kv/deleterange") == 0)
        do_delete(t, body);
    else if (strcmp(call, "kv/txn") == 0)
        do_transaction(t, body);
    else if (strcmp(call, "lease/grant") == 0)
        do_grant(t, body);
    else if (strcmp(call, "lease/keepalive") == 0)
        do_keep(t, body);
    else
        sim_fail("etcd is asked to %s", call);
    return true;
}

static const char no_lease[] = "{\"code\":5,\"message\":\"etcdserver: requested lease not found\"}";
static const char no_leader[] = "{\"code\":14,\"message\":\"etcdserver: no leader\"}";
#define BUSY "{\"code\":14,\"message\":\"etcdserver: request timed out\"}"

static void call(int fd, const char *name, const char *body, bool is_silent)
{
    static struct text t;
    bool found;

    t.n = 0;
    add(&t, "{");
    found = run(fd, &t, name, body);
    add(&t, "}");
    if (!is_silent && found)
        sim_http_answer(fd, 200, t.at, t.n);
    else if (!is_silent)
        sim_http_answer(fd, 404, no_lease, sizeof(no_lease) - 1);
    tell_all();
}

static void answer(int fd, const struct sim_http *x)
{
    static const char busy[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 53\r\n\r\n" BUSY;
    const char *name = x->path + strlen("/v3/");
    char *body = memcpy(sim_new(x->length + 1), x->body, x->length);
    bool is_watch = strcmp(name, "watch") == 0;

    sim_trace("etcd at revision %" PRId64 ": %s", etcd.revision, name);
    _Static_assert(sizeof(BUSY) - 1 == 53, "what the head says");
    if (sim_now() < etcd.elects_until)
        sim_http_answer(fd, 503, no_leader, sizeof(no_leader) - 1);
    else if (!sim_store_fails(fd, busy))
        is_watch ? watch(fd, body) : call(fd, name, body, false);
    else if (!is_watch && sim_one_in(2))
        call(fd, name, body, true);
    free(body);
}

size_t sim_etcd_serve(int fd, const char *in, size_t got)
{
    struct sim_http x;

    if (!sim_http_read(in, got, &x))
        return 0;
    answer(fd, &x);
    return x.whole;
}

/* ------------------------------------------------------------------------------------------- time */

void sim_etcd_tick(void)
{
    int64_t before = etcd.revision;

    for (int i = 0; i < LEASES; i++) {
        struct lease *l = &etcd.leases[i];

        if (l->id && (l->until <= sim_now() || sim_one_in(sim_store_fault_in * 200)))
            end_lease(l);
    }
    if (sim_one_in(8))
        forget_before(etcd.revision - (int64_t)sim_below(4));
    if (etcd.revision != before)
        tell_all();
}

void sim_etcd_member_away(void)
{
    if (sim_one_in(2))
        return;
    sim_trace("etcd elects a leader");
    etcd.elects_until = sim_now() + (int64_t)sim_below(3000) * SIM_MS;
    end_streams();
    for (int i = 0; i < LEASES; i++)
        if (etcd.leases[i].id)
            etcd.leases[i].until = sim_now() + etcd.leases[i].ttl_s * SIM_S;
}

void sim_etcd_forget(void)
{
    sim_trace("etcd begins anew");
    for (int i = 0; i < EVENTS; i++)
        free(etcd.events[i].value);
    memset(etcd.events, 0, sizeof(etcd.events));
    memset(etcd.leases, 0, sizeof(etcd.leases));
    etcd.revision = etcd.compacted = 1;
}
