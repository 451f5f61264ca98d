/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=240 */
/* te_warm(): connections are there before the first request, and why they cannot be is told in time. */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"
#include "proc.h"
#if TE_USE_RDMA
#include "rdma_fabric.h"
#include "rdma_pair.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define SHORT_MS 200

static uint64_t connections(te_engine *e)
{
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(te_stats(e, &s), 0);
    return s.connections;
}

/* Which must go well. */
static struct te_warm warm(te_engine *e, te_segment seg)
{
    struct te_warm w = {.size = sizeof(w)};

    if (te_warm(e, seg, PATIENCE_MS, &w))
        fail_msg("%s", te_errmsg());
    assert_int_equal(w.size, sizeof(w));
    for (size_t i = 0; i < w.n; i++) {
        assert_int_equal(w.by[i].error, 0);
        assert_int_equal(w.by[i].opening + w.by[i].failed, 0);
        assert_true(w.by[i].time_ns <= w.time_ns);
    }
    return w;
}

static const struct te_warmed *by(const struct te_warm *w, const char *transport)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->by[i].transport, transport) == 0)
            return &w->by[i];
    fail_msg("it tells nothing of %s", transport);
    return NULL;
}

/* ---------------------------------------------------------------------------------- connections */

/* Requests of all sorts find their connections there. */
static void make_none(struct pair *p)
{
    uint64_t before = connections(p->a);

    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        assert_int_equal(transfer(p->a, opcode, p->am, p->seg, p->bm, PAIR_SIZE).state,
                         TE_COMPLETED);
        assert_int_equal(transfer(p->a, opcode, p->am, p->seg, p->bm, 100).state, TE_COMPLETED);
    }
    assert_int_equal(connections(p->a), before);
}

static void by_tcp(void **state)
{
    struct pair *p = *state;
    struct te_warm w;
    uint32_t ready;

    assert_int_equal(connections(p->a), 0);
    w = warm(p->a, p->seg);
    assert_int_equal(w.n, 1);
    ready = by(&w, "tcp")->ready;
    assert_true(ready > 0);
    assert_int_equal(connections(p->a), ready);
    make_none(p);
    w = warm(p->a, p->seg);
    assert_int_equal(by(&w, "tcp")->ready, ready);
    assert_int_equal(te_warm(p->a, p->seg, 0, NULL), 0);
    assert_int_equal(connections(p->a), ready);
}

/* How many there are to an engine made like that one. */
static uint32_t all_by_tcp(void)
{
    void *state = NULL;
    struct te_warm w;

    pair_setup_tcp(&state);
    w = warm(((struct pair *)state)->a, ((struct pair *)state)->seg);
    pair_teardown(&state);
    return by(&w, "tcp")->ready;
}

/* Nobody asks again: all are made by the engine itself, and then no more. */
static void only_begun(void **state)
{
    struct pair *p = *state;
    struct te_warm w = {.size = sizeof(w)};
    uint32_t all = all_by_tcp();

    assert_int_equal(te_warm(p->a, p->seg, 0, &w), 0);
    assert_int_equal(by(&w, "tcp")->failed, 0);
    assert_true(by(&w, "tcp")->ready + by(&w, "tcp")->opening > 0);
    WAIT_FOR(connections(p->a) == all);
    make_none(p);
}

/* te_open() has made its connection; that of tcp, which would take its place, is made, too. */
static void by_host(void **state)
{
    struct pair *p = *state;
    uint64_t before = connections(p->a);
    struct te_warm w = warm(p->a, p->seg);

    assert_int_equal(w.n, 2);
    assert_string_equal(w.by[0].transport, "host");
    assert_int_equal(by(&w, "host")->ready, 1);
    assert_int_equal(before + by(&w, "tcp")->ready, connections(p->a));
    make_none(p);
}

static void has_none(te_engine *e, te_segment seg, const char *transport)
{
    struct te_warm w = warm(e, seg);

    assert_int_equal(w.n, 1);
    assert_int_equal(by(&w, transport)->ready, 0);
}

static void by_local(void **state)
{
    struct pair *p = *state;

    has_none(p->a, TE_LOCAL_SEGMENT, "local");
}

#if TE_USE_NVMEOF
static void by_nvmeof(void **state)
{
    struct pair *p = *state;
    char file[] = "/tmp/te_warm_XXXXXX", name[64];
    int fd = mkstemp(file);
    te_segment seg;

    assert_int_equal(ftruncate(fd, 4096), 0);
    snprintf(name, sizeof(name), "file://%s", file);
    assert_int_equal(te_open(p->a, name, &seg), 0);
    has_none(p->a, seg, "nvmeof");
    assert_int_equal(te_close(p->a, seg), 0);
    close(fd);
    unlink(file);
}
#endif

/* Each request would have a connection of its own all the same. */
static void to_one_that_keeps_none(void **state)
{
    struct pair *p = *state;
    te_engine *e = pair_third("MC_TCP_PROTO", "1");
    te_segment seg;

    assert_int_equal(te_open(e, p->bname, &seg), 0);
    has_none(e, seg, "tcp");
    te_engine_destroy(e);
}

#if TE_USE_RDMA
static struct rdma_pair r;

static int end_rdma(void **state)
{
    (void)state;
    rdma_pair_end(&r);
    return 0;
}

static void begin_rdma(unsigned n)
{
    rdma_pair_fabric(RDMA_PAIR_PLAIN, n, NULL);
    rdma_pair_begin(&r);
    assert_int_equal(connections(r.a), 0);
}

/* By both paths. False: one has failed, as it may on a machine that stalls. */
static bool warm_rdma(void)
{
    struct te_warm w = {.size = sizeof(w)};
    int rc = te_warm(r.a, r.seg, PATIENCE_MS, &w);

    assert_int_equal(w.n, 1);
    if (by(&w, "rdma")->failed)
        return false;
    assert_int_equal(rc, 0);
    assert_int_equal(by(&w, "rdma")->ready, 2);
    assert_int_equal(by(&w, "rdma")->opening, 0);
    return true;
}

/* That work finds all there, each NIC to one of the peer's. False: a connection broke and was made again. */
static bool finds_all_by_rdma(void)
{
    struct te_stats before = {.size = sizeof(before)}, after = before;

    if (!warm_rdma())
        return false;
    assert_int_equal(te_stats(r.a, &before), 0);
    rdma_pair_move(&r, TE_READ, RDMA_PAIR_SIZE);
    rdma_pair_move(&r, TE_WRITE, RDMA_PAIR_SIZE);
    assert_int_equal(te_stats(r.a, &after), 0);
    if (after.retries != before.retries)
        return false;
    assert_int_equal(after.connections, before.connections);
    assert_int_equal(after.reconnects, before.reconnects);
    return warm_rdma();
}

static void by_rdma(void **state)
{
    bool found = false;

    (void)state;
    for (int i = 0; i < 8 && !found; i++) {
        begin_rdma(2);
        found = finds_all_by_rdma();
        rdma_pair_end(&r);
    }
    assert_true(found);
}

/* One NIC to two of the peer's, with room for one endpoint: one gives way to the other, and both were there. */
static void by_rdma_without_room(void **state)
{
    bool found = false;

    (void)state;
    for (int i = 0; i < 8 && !found; i++) {
        rdma_pair_set(RDMA_PAIR_A, "MC_MAX_EP_PER_CTX", "1");
        rdma_pair_set(RDMA_PAIR_A, "MC_TE_FILTERS", "left0");
        begin_rdma(2);
        found = true;
        for (int k = 0; k < 10 && found; k++)
            found = warm_rdma();
        rdma_pair_move(&r, TE_READ, RDMA_PAIR_SIZE);
        rdma_pair_end(&r);
    }
    assert_true(found);
}

static void by_rdma_to_nobody(void **state)
{
    struct te_warm w = {.size = sizeof(w)};

    (void)state;
    begin_rdma(2);
    te_engine_destroy(r.b);
    r.b = NULL;
    assert_int_equal(te_warm(r.a, r.seg, PATIENCE_MS, &w), TE_ERR_PEER);
    assert_int_equal(w.n, 1);
    assert_int_equal(by(&w, "rdma")->error, TE_ERR_PEER);
    assert_int_equal(by(&w, "rdma")->failed, 2);
    assert_int_equal(by(&w, "rdma")->ready + by(&w, "rdma")->opening, 0);
}

static void only_begun_by_rdma(void **state)
{
    (void)state;
    begin_rdma(2);
    assert_int_equal(te_warm(r.a, r.seg, 0, NULL), 0);
    rdma_pair_move(&r, TE_READ, RDMA_PAIR_SIZE);
    assert_int_equal(te_warm(r.a, r.seg, 0, NULL), 0); /* and is destroyed */
}
#endif

/* ------------------------------------------------------------------------------- of what goes wrong */

/* Each fails by itself: in the end, and not for lack of time. */
static void to_nobody(void **state)
{
    struct te_warm w = {.size = sizeof(w)};
    struct child_engine c;
    te_segment seg;
    te_engine *e = child_open(&c, 4096, &seg);

    (void)state;
    child_stop(&c);
    assert_int_equal(te_warm(e, seg, -1, &w), TE_ERR_PEER);
    assert_non_null(strstr(te_errmsg(), c.name));
    assert_int_equal(by(&w, "tcp")->error, TE_ERR_PEER);
    assert_true(by(&w, "tcp")->failed > 0);
    assert_int_equal(by(&w, "tcp")->ready + by(&w, "tcp")->opening, 0);
    assert_int_equal(by(&w, "host")->error, TE_ERR_PEER);
    assert_int_equal(by(&w, "host")->failed, 1);
    te_engine_destroy(e);
}

static uint64_t refreshes(te_engine *e)
{
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(te_stats(e, &s), 0);
    return s.refreshes;
}

/* A call that only begins has the descriptor fetched, too; and the transport that is through says why first. */
static void to_nobody_without_waiting(void **state)
{
    struct te_warm w = {.size = sizeof(w)};
    struct child_engine c;
    te_segment seg;
    te_engine *e = child_open(&c, 4096, &seg);
    uint64_t before = refreshes(e);

    (void)state;
    child_stop(&c);
    WAIT_FOR(te_warm(e, seg, 0, &w) == TE_ERR_PEER);
    assert_int_equal(by(&w, "host")->failed, 1);
    WAIT_FOR(refreshes(e) > before);
    te_engine_destroy(e);
}

/* What was begun while the target was stopped is there once it goes on. */
static void to_one_that_is_stopped(void **state)
{
    struct te_warm w = {.size = sizeof(w)};
    struct child_engine c;
    te_segment seg;
    te_engine *e = child_open(&c, 4096, &seg);

    (void)state;
    child_freeze(&c);
    assert_int_equal(te_warm(e, seg, SHORT_MS, &w), TE_ERR_TIMEOUT);
    assert_true(by(&w, "tcp")->opening > 0);
    assert_int_equal(by(&w, "tcp")->ready, 0);
    assert_int_equal(by(&w, "host")->ready, 1);
    assert_true(by(&w, "host")->time_ns < by(&w, "tcp")->time_ns);
    assert_true(w.time_ns >= SHORT_MS * INT64_C(1000000));
    assert_int_equal(kill(c.pid, SIGCONT), 0);
    (void)warm(e, seg);
    te_engine_destroy(e);
    child_stop(&c);
}

/* With all of it on the way. */
static void the_end_of_the_engine(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct child_engine c;
        te_segment seg;
        te_engine *e = child_open(&c, 4096, &seg);

        if (i % 2)
            child_freeze(&c);
        assert_int_equal(te_warm(e, seg, 0, NULL), 0);
        if (i / 2)
            assert_int_equal(te_close(e, seg), 0);
        te_engine_destroy(e);
        child_stop(&c);
    }
}

struct asked {
    te_engine *engine;
    te_segment seg;
    int rc;
};

static void *warm_in_a_thread(void *arg)
{
    struct asked *x = arg;

    x->rc = te_warm(x->engine, x->seg, PATIENCE_MS, NULL);
    return NULL;
}

/* Neither goes on while somebody waits, who has his answer all the same; both do afterwards. */
static void uninstall_and_close(void **state)
{
    struct child_engine c;
    struct asked x = {0};
    uint64_t before;
    pthread_t thread;

    (void)state;
    x.engine = child_open(&c, 4096, &x.seg);
    before = connections(x.engine);
    child_freeze(&c);
    assert_int_equal(pthread_create(&thread, NULL, warm_in_a_thread, &x), 0);
    WAIT_FOR(connections(x.engine) > before);
    assert_int_equal(te_transport_uninstall(x.engine, "tcp"), TE_ERR_BUSY);
    assert_int_equal(te_close(x.engine, x.seg), TE_ERR_BUSY);
    assert_int_equal(kill(c.pid, SIGCONT), 0);
    pthread_join(thread, NULL);
    assert_int_equal(x.rc, 0);
    assert_int_equal(te_warm(x.engine, x.seg, 0, NULL), 0);
    assert_int_equal(te_transport_uninstall(x.engine, "tcp"), 0);
    assert_int_equal(te_close(x.engine, x.seg), 0);
    te_engine_destroy(x.engine);
    child_stop(&c);
}

static void start_b(struct pair *p)
{
    te_options o;

    loopback_options(&o);
    o.local_server_name = p->bname;
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", "0"), 0);
    assert_int_equal(te_engine_create(&o, &p->b), 0);
    te_options_fini(&o);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_RW), 0);
}

/* Its data port is another: the descriptor is fetched again. */
static void to_one_that_was_restarted(void **state)
{
    struct pair *p = *state;

    te_engine_destroy(p->b);
    snprintf(p->bname, sizeof(p->bname), "127.0.0.1:%u", test_free_port());
    start_b(p);
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
    (void)warm(p->a, p->seg);
    te_engine_destroy(p->b);
    WAIT_FOR(connections(p->a) == 0); /* which would else be found ready */
    start_b(p);
    (void)warm(p->a, p->seg);
    make_none(p);
}

static void many_at_a_time(void **state)
{
    struct pair *p = *state;
    struct asked asked[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        asked[i] = (struct asked){p->a, p->seg, 1};
        assert_int_equal(pthread_create(&threads[i], NULL, warm_in_a_thread, &asked[i]), 0);
    }
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, PAIR_SIZE).state, TE_COMPLETED);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(asked[i].rc, 0);
    }
    make_none(p);
}

static void refused(te_engine *e, te_segment seg, struct te_warm *out, int error, const char *says)
{
    assert_int_equal(te_warm(e, seg, PATIENCE_MS, out), error);
    assert_non_null(strstr(te_errmsg(), says));
}

static void what_is_wrong(void **state)
{
    struct pair *p = *state;
    union {
        struct te_warm warm;
        char bytes[sizeof(struct te_warm) + 64];
    } longer;

    memset(&longer, 0x55, sizeof(longer));
    longer.warm.size = 0;
    refused(p->a, p->seg, &longer.warm, TE_ERR_INVALID, "struct te_warm");
    assert_int_equal(connections(p->a), 0);
    longer.warm.size = sizeof(longer);
    refused(p->a, p->seg + 12345, &longer.warm, TE_ERR_NOT_FOUND, "is not open");
    assert_int_equal(te_warm(NULL, p->seg, 0, NULL), TE_ERR_INVALID);
    /* Of a program made for a newer library: what this one does not know is 0. */
    assert_int_equal(te_warm(p->a, p->seg, PATIENCE_MS, &longer.warm), 0);
    assert_int_equal(longer.warm.n, 1);
    for (size_t i = sizeof(longer.warm); i < sizeof(longer); i++)
        assert_int_equal(longer.bytes[i], 0);
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    refused(p->a, p->seg, NULL, TE_ERR_UNSUPPORTED, "te_explain()");
}

/* ------------------------------------------------------------------------------------------ main */

#define BY_TCP(test) cmocka_unit_test_setup_teardown(test, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_TCP(by_tcp),
        BY_TCP(only_begun),
        cmocka_unit_test_setup_teardown(by_host, pair_setup, pair_teardown),
        BY_TCP(by_local),
#if TE_USE_NVMEOF
        BY_TCP(by_nvmeof),
#endif
        BY_TCP(to_one_that_keeps_none),
#if TE_USE_RDMA
        cmocka_unit_test_teardown(by_rdma, end_rdma),
        cmocka_unit_test_teardown(by_rdma_without_room, end_rdma),
        cmocka_unit_test_teardown(by_rdma_to_nobody, end_rdma),
        cmocka_unit_test_teardown(only_begun_by_rdma, end_rdma),
#endif
        cmocka_unit_test(to_nobody),
        cmocka_unit_test(to_nobody_without_waiting),
        cmocka_unit_test(to_one_that_is_stopped),
        cmocka_unit_test(the_end_of_the_engine),
        cmocka_unit_test(uninstall_and_close),
        BY_TCP(to_one_that_was_restarted),
        BY_TCP(many_at_a_time),
        BY_TCP(what_is_wrong),
    };

    engines_are_patient();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
