/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=120
 *
 * What every one-sided transport must do, over a simulated fabric with 1, 2, 4 and 8 NICs a host; or
 * over those of this machine that TE_TEST_RDMA_NICS names (rdma_fabric.h).
 */
#include "conformance.h"
#include "rdma_fabric.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#ifdef __SANITIZE_THREAD__
#define FEWER 4 /* 1 and 4 NICs: under the thread sanitizer all of them would take minutes */
#else
#define FEWER 2
#endif

static unsigned n_nics; /* of each host */
static bool real;
static struct conformance fixture = {.transport = "rdma", .configure = rdma_fabric_configure};
CONFORMANCE_ONE_SIDED(fixture)

/* The peer's threads take no part in it. */
static void a_frozen_peer_holds_up_nothing(void **state)
{
    struct pair *p = pair_fork(&fixture);

    (void)state;
    fill_pattern(p->bm, PAIR_BYTES, 1);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    kill(p->child, SIGSTOP);
    waitpid(p->child, NULL, WUNTRACED);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    fill_pattern(p->am, PAIR_BYTES, 2);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    fill_pattern(p->bm, PAIR_BYTES, 3);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    pair_close(p);
}

static uint64_t bytes_of(unsigned i)
{
    char nic[32];

    snprintf(nic, sizeof nic, "left%u", i);
    return rdma_fabric_count(nic, "bytes");
}

/* Each pair of NICs carries its part of a long transfer. */
static void all_nics_carry(void **state)
{
    struct pair *p = pair_open(&fixture);
    uint64_t before[8];

    (void)state;
    for (unsigned i = 0; i < n_nics; i++)
        before[i] = bytes_of(i);
    for (int i = 0; i < 8; i++)
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2, p->am, p->bm, PAIR_BYTES), 0);
    for (unsigned i = 0; i < n_nics; i++)
        assert_true(bytes_of(i) - before[i] >= 8 * PAIR_BYTES / n_nics / 16);
    pair_close(p);
}

static int set_up(void **state)
{
    (void)state;
    if (!real)
        rdma_fabric_up(n_nics, NULL);
    fixture.topology[0] = rdma_fabric_topology(false);
    fixture.topology[1] = rdma_fabric_topology(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rdma_fabric_down();
    return 0;
}

/* test_rdma [PATTERN [NICS]]: only the cases that match, with so many NICs. */
int main(int argc, char **argv)
{
    unsigned only = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    const struct CMUnitTest tests[] = {
        CONFORMANCE_ONE_SIDED_TESTS,
        cmocka_unit_test(a_frozen_peer_holds_up_nothing),
        cmocka_unit_test(all_nics_carry),
    };
    int failed = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    n_nics = rdma_fabric_real();
    real = n_nics > 0;
    if (real)
        return cmocka_run_group_tests_name("real NICs", tests, set_up, tear_down);
    for (n_nics = 1; n_nics <= 8; n_nics *= FEWER) {
        char name[32];

        if (only && n_nics != only)
            continue;
        snprintf(name, sizeof name, "%u NICs", n_nics);
        failed += cmocka_run_group_tests_name(name, tests, set_up, tear_down);
    }
    return failed;
}
