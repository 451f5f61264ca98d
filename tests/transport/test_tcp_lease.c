/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Keys of leases over the native framing, each side against one that is spoken by hand: what a client sends and makes
 * of each answer, and what a server does with keys and with those who stand still.
 */
#include "conformance.h"

#include "native_stage.h"
#include "base/traceparent.h"
#include "transport/tcp/tcp_wire.h"

#include <string.h>
#include <unistd.h>

#define CLIENT 0x1122334455667789u

static const te_lease_key one = {{1, 2, 3}}, another = {{1, 2, 3, [23] = 1}};

/* ---------------------------------------------------------------------------------------- the client */

static void expect_key(const struct got *g, const te_lease_key *key)
{
    uint8_t want[TCP_LEASE_OPTIONS];

    if (!key) {
        assert_int_equal(g->h.options, 0);
        return;
    }
    assert_int_equal(g->h.options, sizeof want);
    assert_int_equal(native_option(want, TCP_OPTION_LEASE | TCP_OPTION_MUST, key->bytes,
                                   sizeof key->bytes),
                     sizeof want);
    assert_memory_equal(g->options, want, sizeof want);
}

/* Requests share a frame only if they show the same key; by its bytes, wherever it lies. */
static void a_frame_shows_one(void **state)
{
    static struct stage s;
    te_lease_key same = one;
    const te_lease_key *of[] = {NULL, &one, &same, &another, NULL};
    const te_lease_key *frames[] = {NULL, &one, &another, NULL};
    static const unsigned blocks[] = {1, 2, 1, 1};
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 0; i < TEI_ARRAY_LEN(of); i++)
        stage_add(&s, i, TE_READ, i * 100, 100)->key = of[i];
    stage_post(&s);
    c = stage_take_greeted(&s);
    for (unsigned i = 0; i < TEI_ARRAY_LEN(frames); i++) {
        struct got g = stage_get_request(&s, &c, TCP_FRAME_READ);

        assert_int_equal(g.h.count, blocks[i]);
        expect_key(&g, frames[i]);
        stage_put_data(&c, &g, 7);
    }
    for (unsigned i = 0; i < TEI_ARRAY_LEN(of); i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    close(c.fd);
    stage_close(&s);
}

/* Beside a trace context, and again after the connection broke. */
static void it_is_shown_again(void **state)
{
    static struct stage s;
    struct tei_traceparent trace;
    struct native c;

    (void)state;
    assert_null(
        tei_traceparent_read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", &trace));
    stage_open(&s, NULL);
    for (unsigned i = 0; i < TASKS; i++) {
        struct tei_work *w = stage_add(&s, i, TE_READ, i * 100, 100);

        w->key = &one;
        w->trace = &trace;
    }
    stage_post(&s);
    for (unsigned try = 0; try < 2; try++) {
        struct got g;
        size_t len = 0;

        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_READ);
        assert_int_equal(g.h.count, TASKS);
        assert_int_equal(g.h.options, TCP_TRACE_OPTIONS + TCP_LEASE_OPTIONS);
        assert_memory_equal(tei_tcp_option_find(g.options, g.h.options, TCP_OPTION_LEASE, &len),
                            one.bytes, sizeof one.bytes);
        if (try == 0)
            close(c.fd);
        else
            stage_put_data(&c, &g, 7);
    }
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    close(c.fd);
    stage_close(&s);
}

/* A frame of three WRITEs is refused: which of them end, and how; the others go out again. */
static void a_client_is_refused(void **state)
{
    static const struct {
        enum tcp_verdict verdict;
        uint32_t index;
        bool all; /* else the one of that index */
        int error;
    } rows[] = {
        {TCP_NO_LEASE, 0, true, TE_ERR_ACCESS},
        {TCP_LEASE_LATE, 0, true, TE_ERR_ACCESS},
        {TCP_OUT_OF_LEASE, 1, false, TE_ERR_ACCESS},
        {TCP_OUT_OF_LEASE, 2, false, TE_ERR_ACCESS},
        {TCP_NOT_YOURS, 1, false, TE_ERR_ACCESS},
        {TCP_LEASE_OF_OTHERS, 0, true, TE_ERR_ACCESS},
        {TCP_UNKNOWN, TCP_OPTION_LEASE, true, TE_ERR_UNSUPPORTED},
    };

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        static struct stage s;
        struct native c;
        struct got g;

        stage_open(&s, NULL);
        for (unsigned k = 0; k < 3; k++)
            stage_add(&s, k, TE_WRITE, k * 100, 100)->key = &one;
        stage_post(&s);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        assert_int_equal(g.h.count, 3);
        stage_answer(&c, TCP_FRAME_ACK, g.h.id, rows[i].verdict, rows[i].index);
        if (!rows[i].all) {
            g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
            assert_int_equal(g.h.count, 2);
            expect_key(&g, &one);
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
        }
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(stage_outcome(&s, k),
                             rows[i].all || k == rows[i].index ? rows[i].error : 0);
        close(c.fd);
        stage_close(&s);
    }
}

/* Release 0.1 would serve the request, and take the option for nothing. */
static void old_framing_gets_none(void **state)
{
    static struct stage s;

    (void)state;
    stage_open_as(&s, NULL, TCP_NATIVE_FIRST);
    stage_add(&s, 0, TE_WRITE, 0, 100)->key = &one;
    stage_post(&s);
    assert_int_equal(stage_outcome(&s, 0), TE_ERR_UNSUPPORTED);
    stage_close(&s);
}

/* ---------------------------------------------------------------------------------------- the server */

static const struct conformance tcp = {.transport = "tcp"};

struct served {
    struct pair *pair;
    struct native c;
    te_lease_key key;
    struct tcp_range inside; /* the lease */
};

/* All memory is open to nobody but by the lease. */
static void serve(struct served *s)
{
    struct pair *p = s->pair = pair_open(&tcp);

    fake_region_del(&p->hb, p->b, p->br);
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, 0);
    s->inside = (struct tcp_range){(uintptr_t)p->bm + 4096, 1 << 20};
    s->key = fake_lease(&p->hb, p->br, p->bm + 4096, 1 << 20, TE_REMOTE_RW);
    s->c = native_greet(p->b, CLIENT, 1, false);
}

static void ask(const struct served *s, unsigned type, uint64_t id, struct tcp_range r,
                const te_lease_key *key, size_t key_bytes)
{
    uint8_t list[64];
    char payload[64] = "payload";
    size_t n = native_option(list, TCP_OPTION_LEASE | TCP_OPTION_MUST, key->bytes, key_bytes);

    assert_true(r.length <= sizeof payload);
    native_send_with(&s->c, type, id, r, type == TCP_FRAME_WRITE ? payload : "", list, n);
}

/* Memory that is for some peers only, of whom whoever asks is none. */
static void a_server_knows_others(void **state)
{
    struct served s;
    struct tei_region *all;
    struct tcp_range r[3];
    char zeros[64] = "", got[64] = "x";

    (void)state;
    serve(&s);
    s.pair->br->allowed = TE_REMOTE_WRITE;
    all = fake_region_add(&s.pair->hb, s.pair->b, s.pair->am, 4096, TE_REMOTE_RW);
    r[0] = r[2] = (struct tcp_range){(uintptr_t)s.pair->am, 8};
    r[1] = (struct tcp_range){s.inside.addr, 8};
    native_send(&s.c, TCP_FRAME_WRITE, 1, r, 3, "payloadpayloadpayload...");
    native_expect(&s.c, TCP_FRAME_ACK, 1, TCP_NOT_YOURS, 1, 0);
    native_send(&s.c, TCP_FRAME_WRITE, 2, r, 1, "payload");
    native_expect(&s.c, TCP_FRAME_ACK, 2, TCP_OK, 0, 0);
    r[1].length = 64;
    native_send(&s.c, TCP_FRAME_READ, 3, &r[1], 1, "");
    native_expect(&s.c, TCP_FRAME_DATA, 3, TCP_REFUSED, 0, 64); /* nobody may read it */
    native_get(s.c.fd, got, sizeof got);
    assert_memory_equal(got, zeros, sizeof zeros);
    assert_memory_equal(s.pair->bm + 4096, zeros, 8);
    assert_int_equal(atomic_load(&all->remote_users), 0);
    close(s.c.fd);
    fake_region_del(&s.pair->hb, s.pair->b, all);
    pair_close(s.pair);
}

static void a_server_decides(void **state)
{
    struct served s;
    struct tcp_range beyond, wraps;
    char zeros[64] = "", got[64] = "x";

    (void)state;
    serve(&s);
    beyond = (struct tcp_range){s.inside.addr + s.inside.length - 10, 11};
    wraps = (struct tcp_range){UINT64_MAX - 5, 60};
    ask(&s, TCP_FRAME_WRITE, 1, (struct tcp_range){s.inside.addr, 8}, &s.key, 24);
    native_expect(&s.c, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
    assert_memory_equal(s.pair->bm + 4096, "payload", 8);
    ask(&s, TCP_FRAME_WRITE, 2, beyond, &s.key, 24);
    native_expect(&s.c, TCP_FRAME_ACK, 2, TCP_OUT_OF_LEASE, 0, 0);
    ask(&s, TCP_FRAME_WRITE, 3, wraps, &s.key, 24);
    native_expect(&s.c, TCP_FRAME_ACK, 3, TCP_OUT_OF_LEASE, 0, 0);
    ask(&s, TCP_FRAME_WRITE, 4, (struct tcp_range){s.inside.addr, 8}, &another, 24);
    native_expect(&s.c, TCP_FRAME_ACK, 4, TCP_NO_LEASE, 0, 0);
    fake_lease_over(&s.pair->hb, TE_ERR_TIMEOUT);
    ask(&s, TCP_FRAME_READ, 5, (struct tcp_range){s.inside.addr, 64}, &s.key, 24);
    native_expect(&s.c, TCP_FRAME_DATA, 5, TCP_LEASE_LATE, 0, 64);
    native_get(s.c.fd, got, sizeof got);
    assert_memory_equal(got, zeros, sizeof zeros);
    fake_lease_over(&s.pair->hb, TE_ERR_REJECTED);
    ask(&s, TCP_FRAME_WRITE, 6, (struct tcp_range){s.inside.addr, 8}, &s.key, 24);
    native_expect(&s.c, TCP_FRAME_ACK, 6, TCP_LEASE_OF_OTHERS, 0, 0);
    assert_int_equal(fake_lease_over(&s.pair->hb, 0), 0);
    assert_memory_equal(s.pair->bm + beyond.addr - (uintptr_t)s.pair->bm, zeros, 11);
    close(s.c.fd);
    pair_close(s.pair);
}

/* A key of another length is none: the connection ends. */
static void a_malformed_key(void **state)
{
    static const size_t lengths[] = {0, 23, 25};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(lengths); i++) {
        struct served s;
        te_lease_key longer[2];

        serve(&s);
        longer[0] = longer[1] = s.key;
        ask(&s, TCP_FRAME_READ, 1, (struct tcp_range){s.inside.addr, 8}, longer, lengths[i]);
        native_expect_end(s.c.fd);
        pair_close(s.pair);
    }
}

/* A client that stands still in the middle of its WRITE, or takes nothing of its READ, holds up nothing. */
static void who_stands_still_is_ended(void **state)
{
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        struct served s;
        struct pair *p;
        uint8_t bytes[TCP_FRAME_LEN + TCP_BLOCK_LEN + TCP_LEASE_OPTIONS + 1000] = {0};

        serve(&s);
        p = s.pair;
        pair_set(p, TARGET, 0, 'x', 4096 + s.inside.length);
        tei_tcp_frame_encode(&(struct tcp_frame_head){.type =
                                                          reads ? TCP_FRAME_READ : TCP_FRAME_WRITE,
                                                      .count = 1,
                                                      .id = 1,
                                                      .length = reads ? 0 : s.inside.length,
                                                      .options = TCP_LEASE_OPTIONS},
                             bytes);
        tei_tcp_range_encode(&s.inside, bytes + TCP_FRAME_LEN);
        native_option(bytes + TCP_FRAME_LEN + TCP_BLOCK_LEN, TCP_OPTION_LEASE | TCP_OPTION_MUST,
                      s.key.bytes, 24);
        for (int i = 0; i < (reads ? 64 : 1); i++) /* more than the sockets hold */
            native_put(s.c.fd, bytes, sizeof bytes - (reads ? 1000 : 0));
        WAIT_FOR(fake_lease_over(&p->hb, 0) > 0);
        if (!reads)
            WAIT_FOR(p->bm[4096 + 999] == 0);
        fake_lease_over(&p->hb, TE_ERR_NOT_FOUND);
        p->b->ops.lease_del(p->b, &p->hb.lease);
        assert_int_equal(fake_lease_over(&p->hb, 0), 0);
        assert_int_equal(p->bm[4096 + 1000], 'x');
        close(s.c.fd);
        pair_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_shows_one),     cmocka_unit_test(it_is_shown_again),
        cmocka_unit_test(a_client_is_refused),   cmocka_unit_test(old_framing_gets_none),
        cmocka_unit_test(a_server_knows_others), cmocka_unit_test(a_server_decides),
        cmocka_unit_test(a_malformed_key),       cmocka_unit_test(who_stands_still_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
