/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=240 */
/* te_lease.h: memory, and leases, for peers that prove to be one of a list. */
#include "auth_rig.h"
#include "http_kv.h"
#include "metric.h"
#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "te.h"
#include "te_lease.h"

#define SIZE ((size_t)100000)

/* The target, two peers that are known there, and two of an address that needs no proof, the second without our framing. */
enum { T, B, C, CLASSIC, OLD, ENGINES };

struct world {
    te_engine *of[ENGINES];
    te_segment seg[ENGINES]; /* of the target */
    unsigned char own[SIZE], open[SIZE],
        mem[SIZE]; /* of each peer; of the target: for all, and for some */
};

static const char *const names[] = {
    [T] = "t", [B] = "b", [C] = "c", [CLASSIC] = "classic", [OLD] = "old"};
static const char *const keys[] = {[T] = "t:" KEY_A "\nb:" KEY_B "\nc:" KEY_C "\n",
                                   [B] = "b:" KEY_B "\nt:" KEY_A "\n",
                                   [C] = "c:" KEY_C "\nt:" KEY_A "\n"};
static struct http_kv store;
static const char
    *metadata; /* of all; through a store, so that descriptors tell everybody of everything */
static const char *host_path; /* TE_HOST_PATH */
static const char *classic;   /* TE_AUTH_CLASSIC of the target */

static te_engine *make(int i)
{
    char name[16];
    te_engine *e;
    te_options o;

    snprintf(name, sizeof(name), "keys%d", i);
    te_options_init(&o);
    o.metadata = metadata;
    o.local_server_name = metadata == store.url ? names[i] : "127.0.0.1";
    o.auto_discover = 0;
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", host_path), 0);
    if (i == T)
        assert_int_equal(te_option_set(&o, "TE_AUTH_CLASSIC", classic), 0);
    if (i == OLD)
        assert_int_equal(te_option_set(&o, "TE_TCP_NATIVE", "0"), 0);
    if (i < CLASSIC) {
        assert_int_equal(te_option_set(&o, "TE_AUTH", "psk"), 0);
        assert_int_equal(te_option_set(&o, "TE_AUTH_KEYS", auth_file(name, keys[i])), 0);
    }
    if (te_engine_create(&o, &e) || te_transport_install(e, "tcp", NULL))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return e;
}

static void allow(struct world *w, const char *list, unsigned access)
{
    te_buffer one = {.addr = w->mem, .length = SIZE};

    if (te_register_allow(w->of[T], &one, 1, "cpu:0", access, list))
        fail_msg("%s", te_errmsg());
}

static void add_peer(struct world *w, int i)
{
    char name[300];

    w->of[i] = make(i);
    assert_int_equal(te_engine_name(w->of[T], name, sizeof(name)), 0);
    assert_int_equal(te_register(w->of[i], w->own, SIZE, "cpu:0", 0), 0);
    assert_int_equal(te_open(w->of[i], name, &w->seg[i]), 0);
}

static int set_up(void **state, const char *by, const char *path, const char *nets, bool peers)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        return -1;
    metadata = by;
    host_path = path;
    classic = nets;
    w->of[T] = make(T);
    assert_int_equal(te_register(w->of[T], w->open, SIZE, "cpu:0", TE_REMOTE_RW), 0);
    allow(w, "b", TE_REMOTE_RW);
    for (int i = B; peers && i < CLASSIC; i++)
        add_peer(w, i);
    memset(w->mem, 0xee, SIZE);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return set_up(state, store.url, "0", "", true);
}

static int setup_host(void **state)
{
    return set_up(state, store.url, "1", "", true);
}

static int setup_p2p(void **state)
{
    return set_up(state, "P2PHANDSHAKE", "0", "", true);
}

static int setup_classic(void **state)
{
    return set_up(state, store.url, "0", "127.0.0.1", false);
}

static int teardown(void **state)
{
    struct world *w = *state;

    for (int i = ENGINES - 1; i >= 0; i--)
        te_engine_destroy(w->of[i]);
    free(w);
    return 0;
}

static te_request request(const struct world *w, int who, int opcode, const void *at, size_t n)
{
    return (te_request){.opcode = opcode,
                        .source = (void *)(uintptr_t)w->own,
                        .target = w->seg[who],
                        .target_offset = (uintptr_t)at,
                        .length = n};
}

/* What one request ends with. `text`: what is said of it; `path`: by what it goes; NULL: anything. */
static void does(const struct world *w, int who, int opcode, const void *at, size_t n,
                 const te_lease_key *key, int error, const char *text, const char *path)
{
    const te_submit_opts opts = {.size = sizeof(opts), .lease = key};
    te_request r = request(w, who, opcode, at, n);
    struct te_status st;
    struct te_path took = {.size = sizeof(took)};
    char msg[640] = "";
    te_batch b;

    assert_int_equal(te_batch_alloc(w->of[who], 1, &b), 0);
    if (te_submit(w->of[who], b, &r, 1, &opts))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_wait(w->of[who], b, PATIENCE_MS), 0);
    assert_int_equal(te_status(w->of[who], b, 0, &st), 0);
    (void)te_status_msg(w->of[who], b, 0, msg, sizeof(msg));
    if (st.error != error || (text && !strstr(msg, text)))
        fail_msg("engine %d: error %d, '%s'; wanted %d, '%s'", who, st.error, msg, error,
                 text ? text : "");
    if (path) {
        assert_int_equal(te_path(w->of[who], b, 0, &took), 0);
        assert_string_equal(took.transport, path);
    }
    assert_int_equal(te_batch_free(w->of[who], b), 0);
}

static void denied_are(const struct world *w, unsigned long long n)
{
    assert_int_equal(metric_of(w->of[T], "auth_refused_total{cause=\"denied\"}"), n);
}

#define OTHERS "the target lets others alone do this"

/* ------------------------------------------------------------------------------------------ regions */

static void for_one_of_two(void **state)
{
    struct world *w = *state;

    memset(w->own, 1, SIZE);
    does(w, C, TE_WRITE, w->mem, SIZE, NULL, TE_ERR_ACCESS, OTHERS, NULL);
    does(w, C, TE_READ, w->mem, 1, NULL, TE_ERR_ACCESS, OTHERS, NULL);
    assert_int_equal(w->mem[0], 0xee);
    memset(w->own, 1, SIZE);
    does(w, B, TE_WRITE, w->mem + 1, SIZE - 1, NULL, 0, NULL, "tcp");
    assert_int_equal(w->mem[0], 0xee);
    for (size_t i = 1; i < SIZE; i++)
        assert_int_equal(w->mem[i], 1);
    memset(w->own, 2, SIZE);
    does(w, B, TE_READ, w->mem, SIZE, NULL, 0, NULL, "tcp");
    assert_int_equal(w->own[0], 0xee);
    assert_int_equal(w->own[SIZE - 1], 1);
    does(w, C, TE_WRITE, w->mem, 1, NULL, TE_ERR_ACCESS, OTHERS,
         NULL); /* also once another was let in */
    denied_are(w, 3);
}

/* A frame has requests for memory of both kinds: it is refused for one of them, and the others are done. */
static void beside_memory_of_all(void **state)
{
    struct world *w = *state;
    enum { N = 40 };
    te_request r[N];
    te_batch b;

    for (size_t i = 0; i < N; i++)
        r[i] = request(w, C, TE_WRITE, (i % 3 == 1 ? w->mem : w->open) + 64 * i, 64);
    memset(w->own, 3, SIZE);
    assert_int_equal(te_batch_alloc(w->of[C], N, &b), 0);
    assert_int_equal(te_submit(w->of[C], b, r, N, NULL), 0);
    assert_int_equal(te_wait(w->of[C], b, PATIENCE_MS), 0);
    for (size_t i = 0; i < N; i++) {
        struct te_status st;

        assert_int_equal(te_status(w->of[C], b, i, &st), 0);
        assert_int_equal(st.error, i % 3 == 1 ? TE_ERR_ACCESS : 0);
        assert_int_equal(w->open[64 * i], i % 3 == 1 ? 0 : 3);
        assert_int_equal(w->mem[64 * i], 0xee);
    }
    assert_int_equal(te_batch_free(w->of[C], b), 0);
}

static void no_more_than_its_access(void **state)
{
    struct world *w = *state;

    assert_int_equal(te_unregister(w->of[T], w->mem), 0);
    allow(w, "x,b", TE_REMOTE_READ);
    does(w, B, TE_READ, w->mem, 100, NULL, 0, NULL, NULL);
    does(w, B, TE_WRITE, w->mem, 100, NULL, TE_ERR_ACCESS, NULL, NULL);
    assert_int_equal(w->mem[0], 0xee);
    does(w, C, TE_READ, w->mem, 100, NULL, TE_ERR_ACCESS, OTHERS, NULL);
}

static void another_list_later(void **state)
{
    struct world *w = *state;

    does(w, B, TE_READ, w->mem, 100, NULL, 0, NULL, NULL);
    assert_int_equal(te_unregister(w->of[T], w->mem), 0);
    allow(w, "c", TE_REMOTE_RW);
    does(w, B, TE_READ, w->mem, 100, NULL, TE_ERR_ACCESS, OTHERS, NULL);
    does(w, C, TE_READ, w->mem, 100, NULL, 0, NULL, NULL);
    assert_int_equal(te_unregister(w->of[T], w->mem), 0);
    does(w, C, TE_READ, w->mem, 100, NULL, TE_ERR_STALE, NULL, NULL);
    assert_int_equal(te_register(w->of[T], w->mem, SIZE, "cpu:0", TE_REMOTE_RW), 0);
    does(w, B, TE_READ, w->mem, 100, NULL, 0, NULL, NULL);
}

/* Memory that other processes of this host could map is not shown to them. */
static void within_the_host(void **state)
{
    struct world *w = *state;

    does(w, B, TE_WRITE, w->open, SIZE, NULL, 0, NULL, "host");
    does(w, B, TE_WRITE, w->mem, SIZE, NULL, 0, NULL, "tcp");
    does(w, C, TE_WRITE, w->open, SIZE, NULL, 0, NULL, "host");
    does(w, C, TE_WRITE, w->mem, SIZE, NULL, TE_ERR_ACCESS, OTHERS, NULL);
}

/* How many buffers a peer is told of, and whether those of `mem` are among them. */
static void is_told(const struct world *w, int who, size_t total, bool of_it)
{
    te_buffer bufs[8];
    bool found = false;
    size_t n;

    assert_int_equal(te_segment_buffers(w->of[who], w->seg[who], bufs, 8, &n), 0);
    assert_int_equal(n, total);
    for (size_t i = 0; i < n; i++)
        found = found || bufs[i].addr == w->mem;
    assert_int_equal(found, of_it);
}

/* Who asks the target itself is told of what it may reach. */
static void hidden_from_others(void **state)
{
    struct world *w = *state;
    char name[300];

    assert_int_equal(te_engine_name(w->of[T], name, sizeof(name)), 0);
    is_told(w, B, 2, true);
    is_told(w, C, 1, false);
    does(w, B, TE_WRITE, w->mem, SIZE, NULL, 0, NULL, "tcp");
    does(w, C, TE_WRITE, w->mem, 1, NULL, TE_ERR_STALE,
         "registered the range, or for other peers alone; ", NULL);
    assert_int_equal(te_unregister(w->of[T], w->mem), 0);
    allow(w, "c", TE_REMOTE_RW);
    does(w, C, TE_WRITE, w->mem, SIZE, NULL, 0, NULL, "tcp");
    is_told(w, C, 2, true);
    does(w, B, TE_WRITE, w->mem, 1, NULL, TE_ERR_ACCESS, OTHERS,
         NULL); /* it has what it was told before */
    assert_int_equal(te_refresh(w->of[B], name), 0);
    is_told(w, B, 1, false);
}

/* Of many regions, so that the text goes in pages and on another thread. */
static void hidden_among_many(void **state)
{
    enum { N = 3000, EACH = 16 };
    static unsigned char memory[N * EACH];
    static te_buffer bufs[N], seen[N];
    static void *at[N];
    struct world *w = *state;
    char name[300];
    size_t n;

    for (size_t i = 0; i < N; i++)
        bufs[i] = (te_buffer){.addr = at[i] = memory + EACH * i, .length = EACH};
    for (size_t i = 0; i < N; i++)
        assert_int_equal(te_register_allow(w->of[T], &bufs[i], 1, "cpu:0", TE_REMOTE_RW,
                                           i % 3 ? "c" : "b,x"),
                         0);
    assert_int_equal(te_engine_name(w->of[T], name, sizeof(name)), 0);
    for (int who = B; who <= C; who++) {
        assert_int_equal(te_refresh(w->of[who], name), 0);
        assert_int_equal(te_segment_buffers(w->of[who], w->seg[who], seen, N, &n), 0);
        assert_int_equal(n, who == B ? N / 3 + 2 : N - N / 3 + 1);
        for (size_t i = 0; i < n; i++) {
            size_t place = (size_t)((unsigned char *)seen[i].addr - memory) / EACH;

            assert_true(place >= N || (place % 3 ? C : B) == who);
        }
    }
    assert_int_equal(te_unregister_batch(w->of[T], at, N), 0);
}

static void for_nobody(void **state, int who, int error, const char *text)
{
    struct world *w = *state;

    add_peer(w, who);
    does(w, who, TE_WRITE, w->open, 100, NULL, 0, NULL, "tcp");
    does(w, who, TE_WRITE, w->mem, 100, NULL, error, text, NULL);
    assert_int_equal(w->mem[0], 0xee);
    denied_are(w, 1);
}

/* Who needs no proof is nobody that a list could name. */
static void for_nobody_that_is_unknown(void **state)
{
    for_nobody(state, CLASSIC, TE_ERR_ACCESS, OTHERS);
}

/* Nor who speaks as engines of other makes do: that is told as they know it. */
static void for_nobody_of_another_make(void **state)
{
    for_nobody(state, OLD, TE_ERR_STALE, NULL);
}

/* ------------------------------------------------------------------------------------------- leases */

static void a_key_of_others(void **state)
{
    struct world *w = *state;
    te_lease_key both, only;
    te_lease leases[2];

    assert_int_equal(te_lease_grant(w->of[T], w->mem, 4096, TE_REMOTE_RW, 0, &leases[0], &both), 0);
    assert_int_equal(te_lease_grant_allow(w->of[T], w->open + 100, 4096, TE_REMOTE_WRITE, 60000,
                                          "b,nobody", &leases[1], &only),
                     0);
    memset(w->own, 4, SIZE);
    does(w, C, TE_WRITE, w->mem, 4096, &both, 0, NULL, NULL);
    does(w, C, TE_WRITE, w->open + 100, 4096, &only, TE_ERR_ACCESS, OTHERS, NULL);
    assert_int_equal(w->open[100], 0);
    does(w, B, TE_WRITE, w->open + 100, 4096, &only, 0, NULL, NULL);
    assert_int_equal(w->open[4195], 4);
    does(w, B, TE_READ, w->open + 100, 4096, &only, TE_ERR_ACCESS, "the lease does not", NULL);
    denied_are(w, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(te_revoke(w->of[T], leases[i]), 0);
    does(w, B, TE_WRITE, w->open + 100, 4096, &only, TE_ERR_ACCESS, "it was revoked", NULL);
}

/* ---------------------------------------------------------------------------------------- bad input */

static void is_bad(te_engine *e, unsigned access, const char *list, int error, const char *text)
{
    static unsigned char memory[4096];
    te_buffer one = {.addr = memory, .length = sizeof(memory)};
    te_lease_key key;
    te_lease lease;

    assert_int_equal(te_register_allow(e, &one, 1, NULL, access, list), error);
    assert_non_null(strstr(te_errmsg(), text));
    assert_int_equal(te_unregister(e, memory), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_register(e, memory, sizeof(memory), NULL, 0), 0);
    assert_int_equal(te_lease_grant_allow(e, memory, 1, access, 0, list, &lease, &key), error);
    assert_int_equal(te_unregister(e, memory), 0);
}

static void bad_lists(void **state)
{
    struct world *w = *state;
    te_engine *t = w->of[T];
    char text[400];

    is_bad(t, TE_REMOTE_RW, NULL, TE_ERR_INVALID, "NULL");
    is_bad(t, TE_REMOTE_RW, "", TE_ERR_INVALID, "a name of 0 bytes");
    is_bad(t, TE_REMOTE_RW, "b,", TE_ERR_INVALID, "a name of 0 bytes");
    is_bad(t, TE_REMOTE_RW, ",b", TE_ERR_INVALID, "a name of 0 bytes");
    is_bad(t, TE_REMOTE_RW, "b, c", TE_ERR_INVALID, "' c' in a list of peers is no id");
    is_bad(t, TE_REMOTE_RW, "b;c", TE_ERR_INVALID, "'b;c' in a list of peers is no id");
    is_bad(t, 0, "b", TE_ERR_INVALID, "access");
    is_bad(t, 4, "b", TE_ERR_INVALID, "access");
    memset(text, 'x', 256);
    text[256] = '\0';
    is_bad(t, TE_REMOTE_RW, text, TE_ERR_INVALID, "a name of 256 bytes");
    text[65] = '\0';
    is_bad(t, TE_REMOTE_RW, text, TE_ERR_INVALID, "is no id");
    for (size_t i = 0; i < 130; i++)
        text[i] = i % 2 ? ',' : 'a';
    text[129] = '\0';
    is_bad(t, TE_REMOTE_RW, text, TE_ERR_INVALID, "more than 64 names");
    w->of[CLASSIC] = make(CLASSIC);
    is_bad(w->of[CLASSIC], TE_REMOTE_RW, "b", TE_ERR_UNSUPPORTED, "needs TE_AUTH=psk");
    assert_int_equal(te_register_allow(t, NULL, 1, NULL, TE_REMOTE_RW, "b"), TE_ERR_INVALID);
    assert_int_equal(te_register_allow(NULL, NULL, 0, NULL, TE_REMOTE_RW, "b"), TE_ERR_INVALID);
    assert_int_equal(te_register_allow(t, NULL, 0, NULL, TE_REMOTE_RW, "b"), 0);
    assert_int_equal(te_register_allow(t, NULL, 0, NULL, TE_REMOTE_RW, "b,"), TE_ERR_INVALID);
    text[127] = '\0'; /* 64 names */
    {
        te_buffer two[] = {{.addr = text, .length = 10}, {.addr = text + 10, .length = 20}};
        void *at[] = {text, text + 10};

        assert_int_equal(te_register_allow(t, two, 2, NULL, TE_REMOTE_RW, text), 0);
        assert_int_equal(te_unregister_batch(t, at, 2), 0);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int start_store(void **state)
{
    (void)state;
    return http_kv_start(&store) ? 0 : -1;
}

static int stop_store(void **state)
{
    (void)state;
    http_kv_stop(&store);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(for_one_of_two),
        CASE(beside_memory_of_all),
        CASE(no_more_than_its_access),
        CASE(another_list_later),
        cmocka_unit_test_setup_teardown(within_the_host, setup_host, teardown),
        cmocka_unit_test_setup_teardown(for_nobody_that_is_unknown, setup_classic, teardown),
        cmocka_unit_test_setup_teardown(for_nobody_of_another_make, setup_classic, teardown),
        cmocka_unit_test_setup_teardown(hidden_from_others, setup_p2p, teardown),
        cmocka_unit_test_setup_teardown(hidden_among_many, setup_p2p, teardown),
        CASE(a_key_of_others),
        CASE(bad_lists),
    };

    return cmocka_run_group_tests(tests, start_store, stop_store);
}
