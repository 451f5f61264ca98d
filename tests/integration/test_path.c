/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=120 */
/* te_path(): what has carried a request, over each transport, and after a change of the NIC. */
#include "child_engine.h"
#include "metric.h"
#include "pair.h"
#include "patience.h"
#if TE_USE_RDMA
#include "rdma_fabric.h"
#include "rdma_pair.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct te_path path_of(te_engine *e, te_batch b, size_t task)
{
    struct te_path path = {.size = sizeof(path)};

    if (te_path(e, b, task, &path))
        fail_msg("%s", te_errmsg());
    assert_int_equal(path.size, sizeof(path));
    return path;
}

static te_batch submit(te_engine *e, int opcode, void *local, te_segment seg, const void *remote,
                       size_t n)
{
    te_request r = {.opcode = opcode,
                    .source = local,
                    .target = seg,
                    .target_offset = (uintptr_t)remote,
                    .length = n};
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    if (te_submit(e, b, &r, 1, NULL))
        fail_msg("%s", te_errmsg());
    return b;
}

/* Waits for its end, which must be a good one. */
static struct te_path end_of(te_engine *e, te_batch b)
{
    struct te_path path;
    struct te_status st;
    char why[512];

    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    assert_int_equal(te_status_msg(e, b, 0, why, sizeof(why)), 0);
    if (st.state != TE_COMPLETED)
        fail_msg("state %d: %s", st.state, why);
    path = path_of(e, b, 0);
    assert_int_equal(te_batch_free(e, b), 0);
    return path;
}

static void is_plain(const struct te_path *path, const char *transport)
{
    assert_string_equal(path->transport, transport);
    assert_string_equal(path->nic, "");
    assert_int_equal(path->changes, 0);
    assert_int_equal(path->staged, 0);
}

/* Told from its submit on, and once it has ended. */
static void goes_by(const struct pair *p, const char *transport)
{
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        te_batch b = submit(p->a, opcode, p->am, p->seg, p->bm, PAIR_SIZE);
        struct te_path path = path_of(p->a, b, 0);

        is_plain(&path, transport);
        path = end_of(p->a, b);
        is_plain(&path, transport);
    }
}

static void by_host(void **state)
{
    goes_by(*state, "host");
}

static void by_tcp(void **state)
{
    goes_by(*state, "tcp");
}

static void by_local(void **state)
{
    struct pair *p = *state;
    struct te_path path =
        end_of(p->b, submit(p->b, TE_WRITE, p->bm, TE_LOCAL_SEGMENT, p->bm + 8192, 4096));

    is_plain(&path, "local");
}

static void nothing_to_move(void **state)
{
    struct pair *p = *state;
    struct te_path path = end_of(p->a, submit(p->a, TE_READ, p->am, p->seg, p->bm, 0));

    is_plain(&path, "");
}

/* Each of a batch has its own, prepared or of pages. */
static void each_of_a_batch(void **state)
{
    struct pair *p = *state;
    te_request own = {.opcode = TE_READ,
                      .source = p->bm,
                      .target = TE_LOCAL_SEGMENT,
                      .target_offset = (uintptr_t)p->bm + 8192,
                      .length = 100};
    te_pages pages = {.size = sizeof(pages),
                      .opcode = TE_WRITE,
                      .target = TE_LOCAL_SEGMENT,
                      .length = 64,
                      .n = 8,
                      .local = {.base = (uintptr_t)p->bm, .pages = 8, .stride = 128},
                      .remote = {.base = (uintptr_t)p->bm + 8192, .pages = 8, .stride = 256}};
    void *local = p->bm;
    uint64_t remote = (uintptr_t)p->bm + 4096;
    size_t n = 10;
    te_prep prep;
    te_batch b;

    assert_int_equal(te_prep_create(p->b, TE_LOCAL_SEGMENT, &local, &remote, &n, 1, &prep), 0);
    assert_int_equal(te_batch_alloc(p->b, 4, &b), 0);
    assert_int_equal(te_submit(p->b, b, &own, 1, NULL), 0);
    assert_int_equal(te_submit_pages(p->b, b, &pages, NULL), 0);
    assert_int_equal(te_prep_submit(p->b, b, prep, TE_WRITE, NULL, 1, NULL), 0);
    own.length = 0;
    assert_int_equal(te_submit(p->b, b, &own, 1, NULL), 0);
    assert_int_equal(te_wait(p->b, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 4; i++) {
        struct te_path path = path_of(p->b, b, i);

        is_plain(&path, i < 3 ? "local" : "");
    }
    assert_int_equal(te_batch_free(p->b, b), 0);
    assert_int_equal(te_prep_destroy(p->b, prep), 0);
}

/* What the peer refuses was carried, what it never had was not. */
static void of_a_failure(void **state)
{
    struct pair *p = *state;
    te_batch b = submit(p->a, TE_READ, p->am, p->seg, p->bm + PAIR_SIZE - 1, 2);
    struct te_status st;
    struct te_path path;

    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(p->a, b, 0, &st), 0);
    assert_int_equal(st.state, TE_INVALID);
    path = path_of(p->a, b, 0);
    is_plain(&path, "");
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    b = submit(p->a, TE_READ, p->am, p->seg, p->bm, 2);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(p->a, b, 0, &st), 0);
    assert_int_equal(st.state, TE_INVALID);
    path = path_of(p->a, b, 0);
    is_plain(&path, "tcp");
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void refused(te_engine *e, te_batch b, size_t task, struct te_path *out, int error,
                    const char *says)
{
    assert_int_equal(te_path(e, b, task, out), error);
    assert_non_null(strstr(te_errmsg(), says));
}

static void what_is_wrong(void **state)
{
    struct pair *p = *state;
    te_batch b = submit(p->a, TE_READ, p->am, p->seg, p->bm, 4096);
    union {
        struct te_path path;
        char bytes[sizeof(struct te_path) + 64];
    } longer;

    (void)end_of(p->a, submit(p->a, TE_READ, p->am, p->seg, p->bm, 4096));
    memset(&longer, 0x55, sizeof(longer));
    longer.path.size = 0;
    refused(p->a, b, 0, &longer.path, TE_ERR_INVALID, "struct te_path");
    refused(p->a, b, 0, NULL, TE_ERR_INVALID, "NULL");
    longer.path.size = sizeof(longer);
    refused(p->a, b, 1, &longer.path, TE_ERR_INVALID, "task 1 of a batch with 1");
    refused(p->a, b + 12345, 0, &longer.path, TE_ERR_NOT_FOUND, "does not exist");
    assert_int_equal(te_path(NULL, b, 0, &longer.path), TE_ERR_INVALID);
    /* Of a program made for a newer library: what this one does not know is 0. */
    assert_int_equal(te_path(p->a, b, 0, &longer.path), 0);
    assert_string_equal(longer.path.transport, "tcp");
    for (size_t i = sizeof(longer.path); i < sizeof(longer); i++)
        assert_int_equal(longer.bytes[i], 0);
    (void)end_of(p->a, b);
}

/* -------------------------------------------------------------------------------------------- NICs */

#if TE_USE_RDMA
static struct rdma_pair r;

static int end_rdma(void **state)
{
    (void)state;
    rdma_pair_end(&r);
    return 0;
}

static void by_rdma(void **state)
{
    (void)state;
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 1, NULL);
    rdma_pair_begin(&r);
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        struct te_path path = end_of(r.a, submit(r.a, opcode, r.am, r.seg, r.bm, RDMA_PAIR_SIZE));

        assert_string_equal(path.transport, "rdma");
        assert_string_equal(path.nic, "left0");
        assert_int_equal(path.staged, 0);
    }
}

static unsigned long long changes; /* of all requests */

static bool has_changed(void)
{
    struct te_path path = end_of(r.a, submit(r.a, TE_WRITE, r.am, r.seg, r.bm, 4096));

    changes += path.changes;
    assert_int_equal(metric_of(r.a, "transport_path_changes_total{transport=\"rdma\"}"), changes);
    assert_true(metric("transport_retries_total{transport=\"rdma\"}") >= changes);
    assert_string_equal(path.transport, "rdma");
    assert_string_equal(path.nic, "left1");
    return path.changes > 0;
}

/* What fails on a NIC goes by the other one. */
static void another_nic(void **state)
{
    (void)state;
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 2, NULL);
    rdma_pair_begin(&r);
    rdma_fabric_tell("fail left0 status=RETRY_EXC nth=1 count=1000000");
    WAIT_FOR(has_changed());
}
#endif

/* ------------------------------------------------------------------------------------------ main */

#define IN_HOST(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)
#define BY_TCP(test)  cmocka_unit_test_setup_teardown(test, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_HOST(by_host),
        BY_TCP(by_tcp),
        IN_HOST(by_local),
        BY_TCP(nothing_to_move),
        BY_TCP(each_of_a_batch),
        BY_TCP(of_a_failure),
        BY_TCP(what_is_wrong),
#if TE_USE_RDMA
        cmocka_unit_test_teardown(by_rdma, end_rdma),
        cmocka_unit_test_teardown(another_nic, end_rdma),
#endif
    };

    engines_are_patient();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
