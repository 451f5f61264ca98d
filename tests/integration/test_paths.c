/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=120 */
/* te_paths: requests go by what a program allows and prefers, of a segment and of a call, or they are refused. */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"

#include "base/base.h"

#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static te_paths only(const char *require)
{
    return (te_paths){.size = sizeof(te_paths), .require = require};
}

static te_paths rather(const char *prefer)
{
    return (te_paths){.size = sizeof(te_paths), .prefer = prefer};
}

static te_paths never(const char *forbid)
{
    return (te_paths){.size = sizeof(te_paths), .forbid = forbid};
}

static te_submit_opts by(const te_paths *paths)
{
    return (te_submit_opts){.size = sizeof(te_submit_opts), .paths = paths};
}

/* Both sides hold something else in each byte, and in each call. */
static void fill_both(const struct pair *p)
{
    static unsigned seed;

    seed++;
    for (size_t i = 0; i < PAIR_SIZE; i++) {
        p->am[i] = (unsigned char)(i * 7 + i / 253 + seed);
        p->bm[i] = (unsigned char)~p->am[i];
    }
}

static int submit(const struct pair *p, int opcode, size_t n, const te_paths *paths, te_batch b)
{
    const te_submit_opts opts = by(paths);
    const te_request r = {.opcode = opcode,
                          .source = p->am + 5,
                          .target = p->seg,
                          .target_offset = (uintptr_t)p->bm + 5,
                          .length = n};

    return te_submit(p->a, b, &r, 1, paths ? &opts : NULL);
}

/* Request `task` of the batch, which was the only one, was carried by that transport; the batch is freed. */
static void ends_by(const struct pair *p, te_batch b, size_t task, const char *transport)
{
    struct te_path path = {.size = sizeof(path)};
    struct te_status st;
    char why[512];

    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(p->a, b, task, &st), 0);
    assert_int_equal(te_status_msg(p->a, b, task, why, sizeof(why)), 0);
    if (st.state != TE_COMPLETED)
        fail_msg("state %d: %s", st.state, why);
    assert_int_equal(te_path(p->a, b, task, &path), 0);
    assert_string_equal(path.transport, transport);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* A READ and a WRITE of nearly all, and of one byte, are carried by that transport. */
static void goes_by(const struct pair *p, const te_paths *paths, const char *transport)
{
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
        for (size_t n = 1; n < PAIR_SIZE; n += PAIR_SIZE - 12) {
            te_batch b;

            fill_both(p);
            assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
            if (submit(p, opcode, n, paths, b))
                fail_msg("%s", te_errmsg());
            ends_by(p, b, 0, transport);
            assert_memory_equal(p->am + 5, p->bm + 5, n);
            assert_int_not_equal(p->am[5 + n], p->bm[5 + n]);
            assert_int_not_equal(p->am[4], p->bm[4]);
        }
}

/* It is refused with that error and word, nothing was started, and the batch is as it was. */
static void is_refused(const struct pair *p, const te_paths *paths, int error, const char *says)
{
    struct te_status st;
    te_batch b;
    int rc;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    rc = submit(p, TE_WRITE, 4096, paths, b);
    if (!strstr(te_errmsg(), says))
        fail_msg("%s", te_errmsg());
    assert_int_equal(rc, error);
    assert_int_equal(te_status(p->a, b, 0, &st), TE_ERR_INVALID);
    assert_int_equal(submit(p, TE_WRITE, 4096, NULL, b), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* -------------------------------------------------------------------------------------- of a call */

static void of_a_call(void **state)
{
    const te_paths tcp = only("tcp"), either = only(" host , tcp"), no_host = never("host"),
                   tcp_first = rather("tcp,host"), rdma_first = rather("rdma,tcp"),
                   nothing = only("");
    struct pair *p = *state;

    goes_by(p, NULL, "host");
    goes_by(p, &tcp, "tcp");
    goes_by(p, &either, "host");
    goes_by(p, &no_host, "tcp");
    goes_by(p, &tcp_first, "tcp");
    goes_by(p, &rdma_first, "tcp"); /* the first of those that can */
    goes_by(p, &nothing, "host");
    goes_by(p, NULL, "host");
}

static void prepared(void **state)
{
    const te_paths tcp = only("tcp");
    const te_submit_opts opts = by(&tcp);
    struct pair *p = *state;
    void *local = p->am;
    uint64_t remote = (uintptr_t)p->bm;
    size_t n = 100001;
    te_prep prep;
    te_batch b;

    assert_int_equal(te_prep_create(p->a, p->seg, &local, &remote, &n, 1, &prep), 0);
    for (int round = 0; round < 4; round++) {
        fill_both(p);
        assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
        assert_int_equal(te_prep_submit(p->a, b, prep, TE_WRITE, NULL, 1, round & 1 ? &opts : NULL),
                         0);
        ends_by(p, b, 0, round & 1 ? "tcp" : "host");
        assert_memory_equal(p->am, p->bm, n);
    }
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
}

/* Of all windows that they are cut into. */
static void pages(void **state)
{
    enum { PAGE = 64, PAGES = 9000 };
    const te_paths tcp = only("tcp");
    const te_submit_opts opts = by(&tcp);
    struct pair *p = *state;
    const te_pages order = {
        .size = sizeof(order),
        .opcode = TE_WRITE,
        .target = p->seg,
        .length = PAGE,
        .n = PAGES,
        .local = {.base = (uintptr_t)p->am, .pages = PAGES, .stride = 128},
        .remote = {.base = (uintptr_t)p->bm, .pages = PAGES, .stride = 192},
    };
    te_batch b;

    fill_both(p);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit_pages(p->a, b, &order, &opts), 0);
    ends_by(p, b, 0, "tcp");
    for (size_t i = 0; i < PAGES; i++)
        assert_memory_equal(p->am + i * 128, p->bm + i * 192, PAGE);
}

/* Those of a batch differ. */
static void each_of_a_batch(void **state)
{
    const te_paths tcp = only("tcp");
    const char *carriers[] = {"host", "tcp", "host"};
    struct pair *p = *state;
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 3, &b), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(submit(p, TE_READ, 4096, i == 1 ? &tcp : NULL, b), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 3; i++) {
        struct te_path path = {.size = sizeof(path)};

        assert_int_equal(te_path(p->a, b, i, &path), 0);
        assert_string_equal(path.transport, carriers[i]);
    }
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void impossible(void **state)
{
    const te_paths local = only("local"), neither = never("host,tcp"), unknown = only("tpc"),
                   both = {.size = sizeof(both), .require = "tcp", .forbid = "tcp"},
                   unsized = {.require = "tcp"}, blank = never(" ,");
    struct pair *p = *state;

    is_refused(p, &local, TE_ERR_UNSUPPORTED,
               "local: not possible: reaches this engine itself only");
    is_refused(p, &local, TE_ERR_UNSUPPORTED, p->bname);
    is_refused(p, &local, TE_ERR_UNSUPPORTED, " that te_paths allows: ");
    is_refused(p, &neither, TE_ERR_UNSUPPORTED, "local: ");
    is_refused(p, &unknown, TE_ERR_UNSUPPORTED, "transport 'tpc' is not built in; there are: ");
    is_refused(p, &both, TE_ERR_INVALID, "all that is required, tcp, is forbidden, too");
    is_refused(p, &unsized, TE_ERR_INVALID, "te_paths");
    is_refused(p, &blank, TE_ERR_INVALID, "' ,' names no transport");
}

static void of_ones_own_memory(void **state)
{
    const te_paths tcp = only("tcp"), local = only("local");
    struct pair *p = *state;
    struct pair own = *p;

    own.a = p->b;
    own.am = p->bm;
    own.bm = p->bm + PAIR_SIZE / 2;
    own.seg = TE_LOCAL_SEGMENT;
    is_refused(&own, &tcp, TE_ERR_UNSUPPORTED,
               "tcp: not possible: does not reach this engine itself");
    assert_int_equal(submit(&own, TE_READ, 4096, &local, TE_INVALID_BATCH), TE_ERR_NOT_FOUND);
    assert_int_equal(te_open_with(p->b, p->bname, NULL, &own.seg), 0);
    assert_int_equal(own.seg, TE_LOCAL_SEGMENT);
    assert_int_equal(te_open_with(p->b, p->bname, &tcp, &own.seg), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "is this engine itself"));
}

/* ----------------------------------------------------------------------------------- of a segment */

static void reopen(struct pair *p, const te_paths *paths)
{
    assert_int_equal(te_close(p->a, p->seg), 0);
    if (te_open_with(p->a, p->bname, paths, &p->seg))
        fail_msg("%s", te_errmsg());
}

static void of_a_segment(void **state)
{
    const te_paths tcp = only("tcp"), host = only("host"), host_first = rather("host"),
                   tcp_first = rather("tcp"), no_tcp = never("tcp");
    struct pair *p = *state;

    reopen(p, &tcp);
    goes_by(p, NULL, "tcp");
    goes_by(p, &host_first, "tcp");
    is_refused(p, &host, TE_ERR_UNSUPPORTED, "no transport is allowed");
    is_refused(p, &no_tcp, TE_ERR_UNSUPPORTED, "no transport is allowed");
    reopen(p, &tcp_first);
    goes_by(p, NULL, "tcp");
    goes_by(p, &host_first, "host");
    goes_by(p, &no_tcp, "host");
    reopen(p, &no_tcp);
    goes_by(p, &tcp_first, "host");
    reopen(p, NULL);
    goes_by(p, NULL, "host");
}

/* A list is looked up by the paths of its segment. */
static void lists_of_a_segment(void **state)
{
    const te_paths tcp = only("tcp");
    struct pair *p = *state;
    void *local = p->am;
    uint64_t remote = (uintptr_t)p->bm;
    size_t n = 4096;
    te_prep prep;
    te_batch b;

    reopen(p, &tcp);
    assert_int_equal(te_prep_create(p->a, p->seg, &local, &remote, &n, 1, &prep), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
        assert_int_equal(te_prep_submit(p->a, b, prep, TE_READ, NULL, 1, NULL), 0);
        ends_by(p, b, 0, "tcp");
    }
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
}

/* te_warm() connects by what is allowed. */
static void warm(void **state)
{
    const te_paths tcp = only("tcp"), local = only("local");
    struct te_warm w = {.size = sizeof(w)};
    struct pair *p = *state;

    reopen(p, &tcp);
    assert_int_equal(te_warm(p->a, p->seg, PATIENCE_MS, &w), 0);
    assert_int_equal(w.n, 1);
    assert_string_equal(w.by[0].transport, "tcp");
    assert_true(w.by[0].ready > 0);
    reopen(p, &local);
    assert_int_equal(te_warm(p->a, p->seg, PATIENCE_MS, &w), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "te_open_with() allows"));
    assert_int_equal(w.n, 0);
}

static void opened_twice(void **state)
{
    const te_paths tcp = only("tcp"),
                   same = {.size = sizeof(same), .forbid = "host", .require = "tcp"},
                   other = {.size = sizeof(other), .require = "tcp", .prefer = "tcp"};
    struct pair *p = *state;
    te_segment seg = 12345;

    assert_int_equal(te_open_with(p->a, p->bname, &tcp, &seg), TE_ERR_EXISTS);
    assert_non_null(strstr(te_errmsg(), "is open already, with other paths: any"));
    assert_int_equal(seg, 12345);
    reopen(p, &tcp);
    assert_int_equal(te_open_with(p->a, p->bname, &same, &seg), 0);
    assert_int_equal(seg, p->seg);
    assert_int_equal(te_open(p->a, p->bname, &seg), 0);
    assert_int_equal(seg, p->seg);
    assert_int_equal(te_open_with(p->a, p->bname, &other, &seg), TE_ERR_EXISTS);
    assert_non_null(strstr(te_errmsg(), "with other paths: only tcp"));
    assert_int_equal(te_close(p->a, seg), 0);
    assert_int_equal(te_close(p->a, seg), 0);
}

/* Transports come and go under a segment's paths, which name them all the same. */
static void installed_and_not(void **state)
{
    const te_paths host = only("host"), tcp_first = rather("tcp"), either = only("host,tcp");
    struct pair *p = *state;

    reopen(p, &either);
    goes_by(p, &tcp_first, "tcp");
    goes_by(p, &host, "host");
    assert_int_equal(te_transport_uninstall(p->a, "host"), 0);
    is_refused(p, &host, TE_ERR_UNSUPPORTED, "host: not installed");
    goes_by(p, NULL, "tcp");
    assert_int_equal(te_transport_install(p->a, "host", NULL), 0);
    assert_int_equal(te_warm(p->a, p->seg, PATIENCE_MS, NULL), 0);
    goes_by(p, &host, "host");
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    goes_by(p, &tcp_first, "host"); /* what is preferred and missing is passed over */
    assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
}

struct opener {
    struct pair *p;
    const te_paths *paths;
    pthread_barrier_t *together;
    te_segment seg;
    int rc;
};

static void *open_at_once(void *arg)
{
    struct opener *o = arg;

    pthread_barrier_wait(o->together);
    o->rc = te_open_with(o->p->a, o->p->bname, o->paths, &o->seg);
    return NULL;
}

/* Of threads that open at once with two sorts of paths those of one sort have it, with one id, and no other. */
static void opened_at_once(void **state)
{
    const te_paths tcp = only("tcp"), host = only("host");
    struct opener o[6];
    struct pair *p = *state;
    pthread_barrier_t together;

    for (int round = 0; round < 30; round++) {
        const te_paths *won = NULL;
        pthread_t threads[TEI_ARRAY_LEN(o)];

        assert_int_equal(te_close(p->a, p->seg), 0);
        pthread_barrier_init(&together, NULL, TEI_ARRAY_LEN(o));
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++) {
            o[i] = (struct opener){p, i % 2 ? &tcp : &host, &together, 0, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, open_at_once, &o[i]), 0);
        }
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&together);
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++)
            if (o[i].rc == 0) {
                assert_true(!won || (won == o[i].paths && p->seg == o[i].seg));
                won = o[i].paths;
                p->seg = o[i].seg;
            }
        assert_non_null(won);
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++)
            assert_int_equal(o[i].rc, o[i].paths == won ? 0 : TE_ERR_EXISTS);
        goes_by(p, NULL, won->require);
        for (size_t i = 0; i < TEI_ARRAY_LEN(o) / 2 - 1; i++)
            assert_int_equal(te_close(p->a, p->seg), 0); /* pair_teardown() has the last */
    }
}

static void explained(void **state)
{
    const te_paths no_host = never("host"), tcp_first = rather("tcp");
    struct pair *p = *state;
    te_request r = {.source = p->am, .target_offset = (uintptr_t)p->bm, .length = 4096};
    char text[8192];

    reopen(p, &no_host);
    r.target = p->seg;
    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "transport tcp: score 50, taken\n"));
    assert_non_null(strstr(text, ", but it is not allowed by te_open_with()\n"));
    reopen(p, &tcp_first);
    r.target = p->seg;
    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0);
    assert_non_null(strstr(text, ", but tcp is preferred by te_open_with()\n"));
}

/* The descriptor that a request waits for allows it no path: it ends, and goes by no other. */
static void found_later(void **state)
{
    const te_paths host = only("host");
    struct pair *p = *state;
    unsigned char *more = p->bm + PAIR_SIZE / 2;
    struct te_path path = {.size = sizeof(path)};
    struct te_status st;
    char why[1024];
    te_batch b;

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE / 2, "cpu:0", TE_REMOTE_RW), 0);
    reopen(p, NULL);
    assert_int_equal(te_transport_uninstall(p->b, "host"), 0);
    assert_int_equal(te_register(p->b, more, PAIR_SIZE / 2, "cpu:0", TE_REMOTE_RW), 0);
    p->bm = more; /* which the descriptor here does not have */
    fill_both(&(struct pair){.am = p->am, .bm = p->bm - PAIR_SIZE / 2});
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(submit(p, TE_WRITE, 4096, &host, b), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(p->a, b, 0, &st), 0);
    assert_int_equal(st.state, TE_FAILED);
    assert_int_equal(st.error, TE_ERR_UNSUPPORTED);
    assert_int_equal(te_status_msg(p->a, b, 0, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "host: not possible: "));
    assert_int_equal(te_path(p->a, b, 0, &path), 0);
    assert_string_equal(path.transport, "");
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_memory_not_equal(p->am + 5, p->bm + 5, 4096);
    is_refused(p, &host, TE_ERR_UNSUPPORTED, "host: not possible: ");
    p->bm -= PAIR_SIZE / 2;
}

/* Where pages lie in several buffers each is looked up. */
static void pages_of_two_buffers(void **state)
{
    struct pair *p = *state;

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 192 * 4500, "cpu:0", TE_REMOTE_RW), 0);
    assert_int_equal(te_register(p->b, p->bm + (size_t)192 * 4500, PAIR_SIZE - (size_t)192 * 4500,
                                 "cpu:0", TE_REMOTE_RW),
                     0);
    reopen(p, NULL);
    pages(state);
}

/* ------------------------------------------------------------------------ an earlier WRITE is there */

static te_request write_to(const struct child_engine *c, te_segment seg, const void *from, size_t n)
{
    return (te_request){.opcode = TE_WRITE,
                        .source = (void *)(uintptr_t)from,
                        .target = seg,
                        .target_offset = (uintptr_t)c->mem,
                        .length = n};
}

/* What TCP may still bring to a target that stands still is not overtaken by another way; nor is TCP taken then. */
static void an_earlier_write(void **state)
{
    enum { SIZE = 8 << 20 };
    const te_paths tcp = only("tcp"), no_tcp = never("tcp"), host_first = rather("host");
    const te_submit_opts by_tcp = by(&tcp), without = by(&no_tcp), preferring = by(&host_first);
    struct child_engine c;
    struct te_path path = {.size = sizeof(path)};
    te_segment seg;
    te_engine *e = child_open(&c, SIZE, &seg);
    unsigned char *from = map_pages(SIZE);
    te_request r = write_to(&c, seg, from, SIZE);
    struct te_status st;
    char text[8192];
    te_batch b;

    (void)state;
    fill(from, SIZE, 1);
    assert_int_equal(te_register(e, from, SIZE, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_warm(e, seg, PATIENCE_MS, NULL), 0);
    child_freeze(&c);
    assert_int_equal(te_batch_alloc(e, 3, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &by_tcp), 0);
    WAIT_FOR(te_status(e, b, 0, &st) == 0 && te_path(e, b, 0, &path) == 0 && path.transport[0]);
    usleep(20000); /* longer is as good: some of it is on its way */
    assert_int_equal(te_cancel(e, b), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &without), TE_ERR_BUSY);
    assert_non_null(strstr(te_errmsg(), "an earlier WRITE there, which tcp had, is not over"));
    assert_int_equal(te_submit(e, b, &r, 1, &preferring), 0);
    kill(c.pid, SIGCONT);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_path(e, b, 1, &path), 0);
    assert_string_equal(path.transport, "tcp");
    assert_int_equal(te_fence(e, b, PATIENCE_MS, NULL, 0, NULL), 0);
    fill(from, SIZE, 2);
    assert_int_equal(te_submit(e, b, &r, 1, &without), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_path(e, b, 2, &path), 0);
    assert_string_equal(path.transport, "host");
    assert_int_equal(first_difference(c.mem, SIZE, 2), SIZE);
    assert_int_equal(te_explain(e, &r, text, sizeof(text)), 0);
    te_engine_destroy(e);
    child_stop(&c);
    munmap(from, SIZE);
}

#define IN_HOST(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_HOST(of_a_call),
        IN_HOST(prepared),
        IN_HOST(pages),
        IN_HOST(each_of_a_batch),
        IN_HOST(impossible),
        IN_HOST(of_ones_own_memory),
        IN_HOST(of_a_segment),
        IN_HOST(opened_twice),
        IN_HOST(installed_and_not),
        IN_HOST(opened_at_once),
        IN_HOST(explained),
        IN_HOST(lists_of_a_segment),
        IN_HOST(found_later),
        IN_HOST(warm),
        IN_HOST(pages_of_two_buffers),
        cmocka_unit_test(an_earlier_write),
    };

    engines_are_patient();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
