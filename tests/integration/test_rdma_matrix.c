/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=90 */
/*
 * NIC priority matrices that are given while rdma runs: taken over by opening it anew, or refused with
 * all as it was. Seen in which NICs carry what.
 */
#include "patience.h"
#include "rdma_fabric.h"
#include "rdma_pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LEFT0 "{\"cpu:0\":[[\"left0\"],[]]}"
#define LEFT1 "{\"cpu:0\":[[\"left1\"],[]]}"

static struct rdma_pair p;

static void begin(const char *keys)
{
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 2, keys);
    rdma_pair_begin(&p);
}

static int end(void **state)
{
    (void)state;
    rdma_pair_end(&p);
    return 0;
}

static void move_some(void)
{
    for (size_t i = 0; i < 20; i++)
        rdma_pair_move(&p, i % 2 ? TE_READ : TE_WRITE, 1000 + i);
}

/* All that moves from here on goes through left<nic>. */
static void expect_nic(int nic)
{
    const char *other = nic ? "left0" : "left1";
    uint64_t before = rdma_fabric_count(other, "bytes");

    move_some();
    assert_int_equal(rdma_fabric_count(other, "bytes"), before);
}

static int install(const char *name, const char *matrix)
{
    return te_transport_install(p.a, name, matrix);
}

static void expect_matrix(const char *text, bool there)
{
    char now[1024];

    assert_int_equal(te_topology_json(p.a, now, sizeof(now)), 0);
    assert_int_equal(strstr(now, text) != NULL, there);
}

/* The same once more changes nothing. */
static void given_later(void **state)
{
    (void)state;
    begin(NULL);
    assert_int_equal(install("rdma", "{\"cpu:0\":[]}"), TE_ERR_JSON);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(install("rdma", LEFT1), 0);
        expect_nic(1);
    }
    assert_int_equal(install("rdma", " \n" LEFT0), 0);
    expect_nic(0);
}

/* NICs that there are not: rdma goes on as before, and can still be given others. */
static void failing_open(void **state)
{
    const char *const bad = "{\"cpu:0\":[[\"mlx0\",\"mlx1\"],[\"mlx2\"]]}";

    (void)state;
    begin(NULL);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(install("rdma", bad), TE_ERR_NO_DEVICE);
        assert_non_null(strstr(te_errmsg(), "mlx0"));
    }
    expect_matrix("mlx0", false);
    move_some();
    assert_int_equal(install("rdma", LEFT1), 0);
    assert_int_equal(install("rdma", bad), TE_ERR_NO_DEVICE);
    expect_matrix("left1", true);
    assert_int_equal(install("rdma", LEFT1), 0);
    expect_nic(1);
    /* The same without one that runs. */
    assert_int_equal(te_transport_uninstall(p.a, "rdma"), 0);
    assert_int_equal(install("rdma", bad), TE_ERR_NO_DEVICE);
    assert_int_equal(install("rdma", NULL), 0);
    expect_nic(1);
}

static void many_changes(void **state)
{
    (void)state;
    begin(NULL);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(install("rdma", i % 2 ? LEFT1 : LEFT0), 0);
        rdma_pair_move(&p, i % 4 < 2 ? TE_READ : TE_WRITE, 70001);
    }
    expect_nic(1);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(te_transport_uninstall(p.a, "rdma"), 0);
        assert_int_equal(install("rdma", NULL), 0);
        rdma_pair_move(&p, i % 2 ? TE_READ : TE_WRITE, 70001);
    }
    expect_nic(1);
}

static void by_another_name(void **state)
{
    (void)state;
    begin(NULL);
    assert_int_equal(install("rdma", LEFT0), 0);
    assert_int_equal(install("tcp", LEFT1), 0);
    assert_int_equal(install("rdma", LEFT1), 0);
    expect_nic(1);
    assert_int_equal(install("nvmeof", "\t\r\n " LEFT0), 0);
    assert_int_equal(install("rdma", LEFT0), 0);
    expect_nic(0);
}

/* A batch of 64 MiB at 2 Gb/s on each NIC, which takes some tenths of a second. */
static te_batch begin_transfer(void)
{
    te_request r[8];
    te_batch b;

    for (size_t i = 0; i < 8; i++)
        r[i] = (te_request){.opcode = TE_WRITE,
                            .source = p.am,
                            .target = p.seg,
                            .target_offset = (uintptr_t)p.bm,
                            .length = RDMA_PAIR_SIZE};
    assert_int_equal(te_batch_alloc(p.a, 8, &b), 0);
    assert_int_equal(te_submit(p.a, b, r, 8, NULL), 0);
    return b;
}

static void end_transfer(te_batch b)
{
    assert_int_equal(te_wait(p.a, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 8; i++) {
        struct te_status s;

        assert_int_equal(te_status(p.a, b, i, &s), 0);
        assert_int_equal(s.state, TE_COMPLETED);
        assert_int_equal(s.bytes, RDMA_PAIR_SIZE);
    }
    assert_int_equal(te_batch_free(p.a, b), 0);
    assert_memory_equal(p.am, p.bm, RDMA_PAIR_SIZE);
}

static void busy(void **state)
{
    te_batch b;

    (void)state;
    begin("\"gbps\":2");
    assert_int_equal(install("rdma", LEFT0), 0);
    b = begin_transfer();
    assert_int_equal(install("rdma", LEFT1), TE_ERR_BUSY);
    assert_int_equal(te_transport_uninstall(p.a, "rdma"), TE_ERR_BUSY);
    assert_int_equal(install("rdma", LEFT0), 0);
    expect_matrix("left1", false);
    end_transfer(b);
    expect_nic(0);
    assert_int_equal(install("rdma", LEFT1), 0);
    expect_nic(1);
}

/* What was discovered, given back: nothing to open anew. */
static void as_discovered(void **state)
{
    char found[1024];
    te_batch b;

    (void)state;
    begin("\"gbps\":2");
    assert_int_equal(te_topology_json(p.a, found, sizeof(found)), 0);
    b = begin_transfer();
    assert_int_equal(install("rdma", found), 0);
    end_transfer(b);
}

struct requester {
    pthread_t thread;
    _Atomic bool stop;
    _Atomic size_t done;
    int rc; /* the first that was not well */
};

static int request_one(void)
{
    te_request r = {.opcode = TE_WRITE,
                    .source = p.am,
                    .target = p.seg,
                    .target_offset = (uintptr_t)p.bm,
                    .length = 70001};
    struct te_status s = {0};
    te_batch b;
    int rc = te_batch_alloc(p.a, 1, &b);

    if (!rc)
        rc = te_submit(p.a, b, &r, 1, NULL);
    if (!rc)
        rc = te_wait(p.a, b, PATIENCE_MS);
    if (!rc)
        rc = te_status(p.a, b, 0, &s);
    if (!rc && s.state != TE_COMPLETED)
        rc = s.error ? s.error : -1;
    return rc ? rc : te_batch_free(p.a, b);
}

static void *request(void *arg)
{
    struct requester *q = arg;

    while (!q->rc && !atomic_load(&q->stop)) {
        q->rc = request_one();
        atomic_fetch_add(&q->done, 1);
    }
    return NULL;
}

/* Requests of other threads do well, whether a change is made or refused because of them. */
static void while_others_request(void **state)
{
    struct requester q[2] = {0};
    size_t changes = 0;

    (void)state;
    begin(NULL);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&q[i].thread, NULL, request, &q[i]), 0);
    for (size_t i = 0; (i < 2000 && changes < 10) || !q[0].done || !q[1].done; i++) {
        int rc = install("rdma", changes % 2 ? LEFT1 : LEFT0);

        assert_true(rc == 0 || rc == TE_ERR_BUSY);
        changes += rc == 0;
    }
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&q[i].stop, true);
        assert_int_equal(pthread_join(q[i].thread, NULL), 0);
        assert_int_equal(q[i].rc, 0);
        assert_true(q[i].done > 0);
    }
    assert_int_equal(install("rdma", LEFT1), 0);
    expect_nic(1);
}

#define TEST(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(given_later), TEST(failing_open),  TEST(many_changes),         TEST(by_another_name),
        TEST(busy),        TEST(as_discovered), TEST(while_others_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
