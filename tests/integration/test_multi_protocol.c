/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * TE_MULTI_PROTOCOL: engines with rdma and tcp tell their memory for both, peers with both take rdma, and
 * those with one of them that one; with the option on either side, on both, and on none.
 */
#include "rdma_pair.h"

#include "child_engine.h"
#include "pair.h"
#include "patience.h"
#include "rdma_fabric.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define LENGTH ((size_t)1 << 20)

static struct rdma_pair p;
static te_engine *only_tcp;

static int end(void **state)
{
    (void)state;
    te_engine_destroy(only_tcp);
    only_tcp = NULL;
    rdma_pair_end(&p);
    return 0;
}

/* Both with rdma and tcp; the memory of both can be reached. */
static void begin(enum rdma_pair_side told)
{
    if (told)
        rdma_pair_set(told, "TE_MULTI_PROTOCOL", "on");
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 2, NULL);
    rdma_pair_begin(&p);
    assert_int_equal(te_unregister(p.a, p.am), 0);
    assert_int_equal(te_register(p.a, p.am, RDMA_PAIR_SIZE, "cpu:0", TE_REMOTE_RW), 0);
    assert_int_equal(te_transport_install(p.a, "tcp", NULL), 0);
    assert_int_equal(te_transport_install(p.b, "tcp", NULL), 0);
    assert_int_equal(te_refresh(p.a, NULL), 0);
}

static te_segment open_peer(te_engine *e, te_engine *peer)
{
    char name[300];
    te_segment seg;

    assert_int_equal(te_engine_name(peer, name, sizeof name), 0);
    assert_int_equal(te_open(e, name, &seg), 0);
    return seg;
}

/* Data of both directions, by the transport that te_explain() names. */
static void assert_moves(te_engine *e, unsigned char *local, te_segment seg, unsigned char *remote,
                         const char *transport)
{
    static uint64_t seed = 1000;
    te_request r = {TE_WRITE, local + 3, seg, (uintptr_t)remote + 5, LENGTH + 1};
    char text[8192], line[64];
    const char *at;

    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    snprintf(line, sizeof line, "transport %s: score ", transport);
    at = strstr(text, line);
    if (!at || strncmp(at + strcspn(at, ",\n"), ", taken\n", 8) != 0)
        fail_msg("%s is not taken: %s", transport, text);
    fill(local + 3, LENGTH + 1, ++seed);
    assert_int_equal(transfer(e, TE_WRITE, local + 3, seg, remote + 5, LENGTH + 1).state,
                     TE_COMPLETED);
    assert_int_equal(first_difference(remote + 5, LENGTH + 1, seed), LENGTH + 1);
    fill(remote + 7, LENGTH, ++seed);
    assert_int_equal(transfer(e, TE_READ, local + 1, seg, remote + 7, LENGTH).state, TE_COMPLETED);
    assert_int_equal(first_difference(local + 1, LENGTH, seed), LENGTH);
}

static void assert_descriptor(te_engine *e, te_segment seg, bool several)
{
    char text[16384];

    assert_int_equal(te_segment_json(e, seg, text, sizeof text), 0);
    if (!strstr(text, several ? "\"protocol\":[\"tcp\",\"rdma\"]" : "\"protocol\":\"rdma\""))
        fail_msg("%s", text);
    assert_true(!strstr(text, "\"name\":\"cpu:0\",\"protocol\":\"rdma\",\"rkey\":[") == !several);
    assert_true(!strstr(text, "\"protocol\":\"tcp\"}") == !several);
}

static void start_only_tcp(void)
{
    te_options o;

    loopback_options(&o);
    o.auto_discover = 0;
    assert_int_equal(setenv("TE_HOST_PATH", "0", 1), 0);
    assert_int_equal(te_engine_create(&o, &only_tcp), 0);
    assert_int_equal(unsetenv("TE_HOST_PATH"), 0);
    assert_int_equal(te_transport_install(only_tcp, "tcp", NULL), 0);
}

/* A third engine, which has tcp alone, reaches the same memory. */
static void assert_falls_back(te_engine *peer, unsigned char *remote)
{
    unsigned char *memory = map_pages(2 * LENGTH);
    te_segment seg;

    start_only_tcp();
    assert_int_equal(te_register(only_tcp, memory, 2 * LENGTH, "*", TE_LOCAL_ONLY), 0);
    seg = open_peer(only_tcp, peer);
    assert_moves(only_tcp, memory, seg, remote, "tcp");
    te_engine_destroy(only_tcp);
    only_tcp = NULL;
    munmap(memory, 2 * LENGTH);
}

static void both_ways(enum rdma_pair_side told)
{
    te_segment back;

    begin(told);
    back = open_peer(p.b, p.a);
    assert_descriptor(p.a, TE_LOCAL_SEGMENT, told & RDMA_PAIR_A);
    assert_descriptor(p.a, p.seg, told & RDMA_PAIR_B);
    assert_descriptor(p.b, back, told & RDMA_PAIR_A);
    assert_moves(p.a, p.am, p.seg, p.bm, "rdma");
    assert_moves(p.b, p.bm, back, p.am, "rdma");
    assert_falls_back(p.a, p.am);
    assert_falls_back(p.b, p.bm);
}

static void on_both(void **state)
{
    te_buffer buffers[4];
    size_t n;

    (void)state;
    both_ways(RDMA_PAIR_BOTH);
    assert_int_equal(te_segment_buffers(p.a, p.seg, buffers, 4, &n), 0);
    assert_int_equal(n, 1);
    assert_ptr_equal(buffers[0].addr, p.bm);
    assert_int_equal(buffers[0].length, RDMA_PAIR_SIZE);
}

static void on_one(void **state)
{
    (void)state;
    both_ways(RDMA_PAIR_B);
}

static void off(void **state)
{
    (void)state;
    both_ways((enum rdma_pair_side)0);
}

/* When one of both goes, or comes, the descriptor says so, and open peers go on by the other one. */
static void a_transport_goes(void **state)
{
    (void)state;
    begin(RDMA_PAIR_BOTH);
    assert_moves(p.a, p.am, p.seg, p.bm, "rdma");
    assert_int_equal(te_transport_uninstall(p.b, "rdma"), 0);
    assert_int_equal(te_refresh(p.a, NULL), 0);
    assert_moves(p.a, p.am, p.seg, p.bm, "tcp");
    assert_int_equal(te_transport_install(p.b, "rdma", NULL), 0);
    assert_int_equal(te_refresh(p.a, NULL), 0);
    assert_descriptor(p.a, p.seg, true);
    assert_moves(p.a, p.am, p.seg, p.bm, "rdma");
}

static bool is_taken(const char *transport)
{
    te_request r = {TE_WRITE, p.am, p.seg, (uintptr_t)p.bm, LENGTH};
    char text[8192], line[64];
    const char *at;

    assert_int_equal(te_explain(p.a, &r, text, sizeof text), 0);
    snprintf(line, sizeof line, "transport %s: score ", transport);
    at = strstr(text, line);
    return at && strncmp(at + strcspn(at, ",\n"), ", taken\n", 8) == 0;
}

/* Requests do not wait for a NIC, and are not FAILED, where there is another way. */
static void nics_go(void **state)
{
    (void)state;
    begin(RDMA_PAIR_BOTH);
    assert_moves(p.a, p.am, p.seg, p.bm, "rdma");
    rdma_fabric_tell("port left0 down");
    rdma_fabric_tell("port left1 down");
    WAIT_FOR(is_taken("tcp"));
    assert_moves(p.a, p.am, p.seg, p.bm, "tcp");
    rdma_fabric_tell("port left1 up");
    WAIT_FOR(is_taken("rdma"));
    assert_moves(p.a, p.am, p.seg, p.bm, "rdma");
}

/* A NIC that fails, and has not told so: memory is registered with the other. */
static void a_nic_is_dead(void **state)
{
    unsigned char *more = map_pages(LENGTH);

    (void)state;
    begin((enum rdma_pair_side)0);
    rdma_fabric_tell("deny left0 reg_mr errno=%d", EIO);
    assert_int_equal(te_register(p.a, more, LENGTH, "cpu:0", TE_REMOTE_RW), 0);
    assert_int_equal(transfer(p.a, TE_WRITE, more, p.seg, p.bm, LENGTH).state, TE_COMPLETED);
    assert_int_equal(te_unregister(p.a, more), 0);
    rdma_fabric_tell("deny left1 reg_mr errno=%d", EIO);
    assert_int_equal(te_register(p.a, more, LENGTH, "cpu:0", TE_REMOTE_RW), TE_ERR_MEMORY);
    rdma_fabric_tell("allow left1 reg_mr");
    rdma_fabric_tell("deny left0 reg_mr errno=%d", ENOMEM);
    assert_int_equal(te_register(p.a, more, LENGTH, "cpu:0", TE_REMOTE_RW), TE_ERR_MEMORY);
    munmap(more, LENGTH);
}

/* The rights of memory are those of all protocols. */
static void rights(void **state)
{
    (void)state;
    begin(RDMA_PAIR_BOTH);
    assert_int_equal(te_unregister(p.b, p.bm), 0);
    assert_int_equal(te_register(p.b, p.bm, RDMA_PAIR_SIZE, "cpu:0", TE_REMOTE_READ), 0);
    assert_int_equal(te_refresh(p.a, NULL), 0);
    assert_int_equal(transfer(p.a, TE_READ, p.am, p.seg, p.bm, LENGTH).state, TE_COMPLETED);
    assert_int_equal(transfer(p.a, TE_WRITE, p.am, p.seg, p.bm, LENGTH).state, TE_INVALID);
}

/* Memory that no protocol is told of, beside other memory that is: by the key of a lease, and so by tcp. */
static void leased(void **state)
{
    unsigned char *more = map_pages(LENGTH);
    te_lease_key key;
    te_lease lease;

    (void)state;
    for (int side = 0; side <= RDMA_PAIR_BOTH; side += RDMA_PAIR_BOTH) {
        const te_submit_opts opts = {.size = sizeof(opts), .lease = &key};
        te_request r = {TE_WRITE, NULL, 0, (uintptr_t)more, LENGTH};
        struct te_status st;
        te_batch b;

        begin((enum rdma_pair_side)side);
        r.source = p.am;
        r.target = p.seg;
        assert_int_equal(te_register(p.b, more, LENGTH, "cpu:0", TE_LOCAL_ONLY), 0);
        assert_int_equal(te_lease_grant(p.b, more, LENGTH, TE_REMOTE_WRITE, 0, &lease, &key), 0);
        assert_int_equal(te_batch_alloc(p.a, 1, &b), 0);
        assert_int_equal(te_submit(p.a, b, &r, 1, &opts), 0);
        assert_int_equal(te_wait(p.a, b, PATIENCE_MS), 0);
        assert_int_equal(te_status(p.a, b, 0, &st), 0);
        assert_int_equal(st.state, TE_COMPLETED);
        assert_memory_equal(more, p.am, LENGTH);
        assert_int_equal(te_batch_free(p.a, b), 0);
        assert_int_equal(te_revoke(p.b, lease), 0);
        assert_int_equal(te_unregister(p.b, more), 0);
        end(NULL);
    }
    munmap(more, LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(on_both, end), cmocka_unit_test_teardown(on_one, end),
        cmocka_unit_test_teardown(off, end),     cmocka_unit_test_teardown(a_transport_goes, end),
        cmocka_unit_test_teardown(rights, end),  cmocka_unit_test(leased),
        cmocka_unit_test_teardown(nics_go, end), cmocka_unit_test_teardown(a_nic_is_dead, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
