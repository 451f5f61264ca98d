/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * 100,000 regions: batch and single registration, lookup, a descriptor of many pages over the P2P
 * handshake, unregistration. The time limit of the test is what catches a quadratic step.
 */
#include "child_engine.h"
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define N      100000
#define STRIDE 128
#define LENGTH 100

static void check_transfers(struct pair *p, unsigned char *m)
{
    for (size_t i = 0; i < 200; i++) {
        size_t at = i * 7919 % N;

        fill(p->am, LENGTH, at);
        assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, m + at * STRIDE, LENGTH).state,
                         TE_COMPLETED);
        assert_int_equal(first_difference(m + at * STRIDE, LENGTH, at), LENGTH);
    }
    /* Between two regions there is nothing to reach. */
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, m + LENGTH, 1).state, TE_INVALID);
}

static void check_count(struct pair *p, size_t want)
{
    size_t total;

    assert_int_equal(te_refresh(p->a, p->bname), 0);
    assert_int_equal(te_segment_buffers(p->a, p->seg, NULL, 0, &total), 0);
    assert_int_equal(total, want);
}

static void by_batch(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages((size_t)N * STRIDE);
    te_buffer *bufs = calloc(N, sizeof(*bufs));
    void **addrs = calloc(N, sizeof(*addrs));

    assert_true(bufs && addrs);
    for (size_t i = 0; i < N; i++) {
        bufs[i] = (te_buffer){.addr = m + i * STRIDE, .length = LENGTH};
        addrs[i] = bufs[i].addr;
    }
    assert_int_equal(te_register_batch(p->b, bufs, N, "*", TE_REMOTE_RW), 0);
    check_count(p, N + 1);
    check_transfers(p, m);
    assert_int_equal(te_unregister_batch(p->b, addrs, N), 0);
    check_count(p, 1);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, m, LENGTH).state, TE_INVALID);
    free(bufs);
    free(addrs);
    munmap(m, (size_t)N * STRIDE);
}

static void one_by_one(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages((size_t)N * STRIDE);

    for (size_t i = 0; i < N; i++)
        assert_int_equal(
            te_register(p->b, m + (i * 7919 % N) * STRIDE, LENGTH, "cpu:0", TE_REMOTE_RW), 0);
    check_count(p, N + 1);
    check_transfers(p, m);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(te_unregister(p->b, m + i * STRIDE), 0);
    check_count(p, 1);
    munmap(m, (size_t)N * STRIDE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_batch, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(one_by_one, pair_setup, pair_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
