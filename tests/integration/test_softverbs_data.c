/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * What softverbs moves, byte by byte: every opcode, odd sizes and places, several buffers, inline,
 * in one process and between two; and what it says about it in completions and events.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (5u << 18)
#define NICS "[{\"name\": \"sv0\"}, {\"name\": \"sv1\"}]"

#include "fabric/softverbs/rig/pair.h"

static int begin(void **state)
{
    (void)state;
    connect_both(NICS, NULL);
    return 0;
}

/* ----------------------------------------------------------------------------------- one process */

static const struct {
    size_t at, remote;
    uint32_t length;
} shapes[] = {
    {0, 0, 1},        {1, 3, 1},      {7, 0, 4095},           {4095, 1, 4097},     {13, 29, 65536},
    {5, 9, 262144},   {0, 1, 262145}, {3, 0, (1u << 20) + 7}, {11, 17, SIZE - 64}, {SIZE - 1, 0, 1},
    {0, SIZE - 5, 5}, {0, 0, SIZE},   {100, 100, 0},
};

static void expect_only(const uint8_t *buf, uint64_t own, size_t at, size_t n, uint64_t moved,
                        size_t from)
{
    static uint8_t want[SIZE], source[SIZE];

    rig_fill(want, SIZE, own);
    rig_fill(source, SIZE, moved);
    memcpy(want + at, source + from, n);
    for (size_t i = 0; i < SIZE; i++)
        if (buf[i] != want[i])
            fail_msg("byte %zu is %u, not %u", i, buf[i], want[i]);
}

static void one_sided(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        size_t at = shapes[i].at, remote = shapes[i].remote;
        uint32_t n = shapes[i].length;
        struct ibv_wc wc;

        rig_fill(a.buf, SIZE, 2 * i);
        rig_fill(b.buf, SIZE, 2 * i + 1);
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, at, n, &to_b, remote), 0);
        wc = rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
        assert_int_equal(wc.qp_num, a.qp->qp_num);
        expect_only(b.buf, 2 * i + 1, remote, n, 2 * i, at);
        assert_int_equal(rig_differs(a.buf, SIZE, 2 * i), -1);

        rig_fill(b.buf, SIZE, 2 * i + 1);
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, i, at, n, &to_b, remote), 0);
        wc = rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
        assert_int_equal(wc.byte_len, n);
        expect_only(a.buf, 2 * i, at, n, 2 * i + 1, remote);
    }
    rig_silence(b.recv_cq, 5);
}

static void two_sided(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        size_t at = shapes[i].at, remote = shapes[i].remote;
        uint32_t n = shapes[i].length;
        struct ibv_wc wc;

        rig_fill(a.buf, SIZE, 2 * i);
        rig_fill(b.buf, SIZE, 2 * i + 1);
        assert_int_equal(rig_recv(&b, 500 + i, remote, (uint32_t)(SIZE - remote)), 0);
        assert_int_equal(rig_post(&a, IBV_WR_SEND, i, at, n, NULL, 0), 0);
        wc = rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_SEND);
        wc = rig_expect(b.recv_cq, 500 + i, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RECV);
        assert_int_equal(wc.byte_len, n);
        assert_int_equal(wc.wc_flags, 0);
        assert_int_equal(wc.qp_num, b.qp->qp_num);
        assert_int_equal(wc.src_qp, a.qp->qp_num);
        expect_only(b.buf, 2 * i + 1, remote, n, 2 * i, at);
    }
}

static void immediate(void **state)
{
    const enum ibv_wr_opcode ops[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = rig_wr(&a, ops[i], &sge, 10, 1000, &to_b, 20), *bad;
        struct ibv_wc wc;

        rig_fill(a.buf, SIZE, 1);
        rig_fill(b.buf, SIZE, 2);
        wr.imm_data = htobe32(0xdeadbeef);
        assert_int_equal(rig_recv(&b, 77, 20, 1000), 0);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
        wc = rig_expect(b.recv_cq, 77, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, i ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
        assert_int_equal(be32toh(wc.imm_data), 0xdeadbeef);
        assert_int_equal(wc.byte_len, 1000);
        expect_only(b.buf, 2, 20, 1000, 1, 10);
    }
}

static void many_buffers(void **state)
{
    struct ibv_sge sge[8];
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, sge, 0, 0, &to_b, 3), *bad;
    static uint8_t want[SIZE];
    size_t n = 0;

    (void)state;
    for (unsigned op = 0; op < 2; op++) {
        rig_fill(a.buf, SIZE, 1);
        rig_fill(b.buf, SIZE, 2);
        n = 0;
        for (unsigned i = 0; i < 8; i++) {
            sge[i] = (struct ibv_sge){(uintptr_t)a.buf + i * 150000, i * 20001, a.mr->lkey};
            memcpy(want + n, a.buf + i * 150000, i * 20001);
            n += i * 20001;
        }
        wr.num_sge = 8;
        wr.opcode = op ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        if (op)
            memcpy(want, b.buf + 3, n);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
        if (!op)
            assert_memory_equal(b.buf + 3, want, n);
        n = 0;
        for (unsigned i = 0; i < 8; i++) {
            assert_memory_equal(a.buf + i * 150000, want + n, i * 20001);
            n += i * 20001;
        }
    }
}

static void scatter_receive(void **state)
{
    struct ibv_sge to[3] = {{(uintptr_t)b.buf, 5, b.mr->lkey},
                            {(uintptr_t)b.buf + 1000, 0, b.mr->lkey},
                            {(uintptr_t)b.buf + 2000, 600001, b.mr->lkey}};
    struct ibv_recv_wr recv = {.wr_id = 9, .sg_list = to, .num_sge = 3}, *bad;

    (void)state;
    rig_fill(a.buf, SIZE, 1);
    rig_fill(b.buf, SIZE, 2);
    assert_int_equal(ibv_post_recv(b.qp, &recv, &bad), 0);
    assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, 1, 500000, NULL, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    assert_int_equal(rig_expect(b.recv_cq, 9, IBV_WC_SUCCESS).byte_len, 500000);
    assert_memory_equal(b.buf, a.buf + 1, 5);
    assert_memory_equal(b.buf + 2000, a.buf + 6, 499995);
}

static void inline_data(void **state)
{
    uint8_t text[128];
    struct ibv_sge sge[2] = {{(uintptr_t)text, 100, 0xdead}, {(uintptr_t)text + 100, 28, 0xbeef}};
    struct ibv_send_wr wr = {.wr_id = 4,
                             .sg_list = sge,
                             .num_sge = 2,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                             .wr.rdma = {to_b.base + 1, to_b.rkey}},
                       *bad;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        rig_fill(text, sizeof(text), i);
        memset(b.buf, 0, 4096);
        wr.opcode = i ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
        if (i)
            assert_int_equal(rig_recv(&b, 5, 1, 128), 0);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        memset(text, 0xff, sizeof(text)); /* the caller's again at once */
        rig_expect(a.send_cq, 4, IBV_WC_SUCCESS);
        assert_int_equal(rig_differs(b.buf + 1, 128, i), -1);
        assert_int_equal(b.buf[0] | b.buf[129], 0);
    }
    wr.opcode = IBV_WR_RDMA_WRITE;
    sge[1].length = 29;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), ENOMEM);
    sge[1].length = 1;
    wr.opcode = IBV_WR_RDMA_READ;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
}

/* Chains, all posted with one call, complete in the order posted; so do chains of both ends. */
static void order(void **state)
{
    enum { N = 60 };
    struct ibv_send_wr wr[N], *bad;
    struct ibv_sge sge[N];

    (void)state;
    rig_fill(a.buf, SIZE, 1);
    rig_fill(b.buf, SIZE, 2);
    for (unsigned i = 0; i < N; i++) {
        wr[i] = rig_wr(&a, i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge[i], i * 1000, 1000,
                       &to_b, i * 1000);
        wr[i].wr_id = i;
        wr[i].next = i + 1 < N ? &wr[i + 1] : NULL;
        wr[i].send_flags = i % 2 || i == N - 1 ? IBV_SEND_SIGNALED : IBV_SEND_FENCE;
    }
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), 0);
    for (unsigned i = 0; i < N; i++)
        if (wr[i].send_flags & IBV_SEND_SIGNALED)
            rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    assert_memory_equal(a.buf, b.buf, N * 1000);
    rig_silence(a.send_cq, 5);
}

/* A write after a write to the same place wins; each read sees what came before it. */
static void overwrite(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        a.buf[i] = (uint8_t)(i + 1);
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, i, 1, &to_b, 0), 0);
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, i, 1000 + i, 1, &to_b, 0), 0);
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(a.buf[1000 + i], i + 1);
    }
}

static void own_memory_iova(void **state)
{
    struct ibv_mr *mr = ibv_reg_mr_iova2(b.pd, b.buf + 4096, 8192, 0x1000, RIG_ACCESS);
    struct rig_addr shifted = to_b;

    (void)state;
    assert_non_null(mr);
    shifted.rkey = mr->rkey;
    shifted.base = 0x1000;
    rig_fill(a.buf, SIZE, 1);
    rig_fill(b.buf, SIZE, 2);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 5, 8191, &shifted, 1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    expect_only(b.buf, 2, 4097, 8191, 1, 5);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ------------------------------------------------------------------------------------ ibv_wr_*() */

static int begin_ops(void **state)
{
    struct rig_opts o = rig_default;

    (void)state;
    o.send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND |
                 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    connect_both(NICS, &o);
    return 0;
}

static void wr_calls(void **state)
{
    struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a.qp);
    struct ibv_sge two[2] = {{(uintptr_t)a.buf + 2000, 10, a.mr->lkey},
                             {(uintptr_t)a.buf + 3000, 20, a.mr->lkey}};
    char text[] = "inline text";

    (void)state;
    assert_non_null(x);
    rig_fill(a.buf, SIZE, 1);
    rig_fill(b.buf, SIZE, 2);
    assert_int_equal(rig_recv(&b, 50, 60000, 100), 0);
    ibv_wr_start(x);
    x->wr_id = 1;
    x->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(x, to_b.rkey, to_b.base);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 1000);
    x->wr_id = 2;
    ibv_wr_rdma_write(x, to_b.rkey, to_b.base + 1000);
    ibv_wr_set_sge_list(x, 2, two);
    x->wr_id = 3;
    ibv_wr_rdma_read(x, to_b.rkey, to_b.base + 5000);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf + 5000, 500);
    x->wr_id = 4;
    ibv_wr_send_imm(x, 0x1234);
    ibv_wr_set_inline_data(x, text, sizeof(text));
    assert_int_equal(ibv_wr_complete(x), 0);
    memset(text, 0, sizeof(text));
    for (unsigned i = 1; i <= 4; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    assert_int_equal(rig_expect(b.recv_cq, 50, IBV_WC_SUCCESS).imm_data, 0x1234);
    assert_string_equal((char *)b.buf + 60000, "inline text");
    assert_memory_equal(b.buf, a.buf, 1000);
    assert_memory_equal(b.buf + 1000, a.buf + 2000, 10);
    assert_memory_equal(b.buf + 1010, a.buf + 3000, 20);
    assert_memory_equal(a.buf + 5000, b.buf + 5000, 500);

    ibv_wr_start(x);
    ibv_wr_rdma_write(x, to_b.rkey, to_b.base);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 1000);
    ibv_wr_abort(x);
    rig_silence(a.send_cq, 5);
}

/* ----------------------------------------------------------------------------------------- threads */

#define THREADS 4

/* Everything that a program does, in a thread with objects of its own. */
static void *live(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    struct rig_end c, d;
    struct rig_addr to_d;
    struct ibv_mr *mr;

    rig_open(&c, "sv0", 65536, NULL);
    rig_open(&d, "sv1", 65536, NULL);
    for (unsigned i = 0; i < 40; i++) {
        to_d = rig_addr(&d);
        rig_connect_both(&c, &d);
        rig_fill(c.buf, 65536, seed * 1000 + i);
        assert_int_equal(rig_recv(&d, 1, 0, 65536), 0);
        for (unsigned k = 0; k < 8; k++)
            assert_int_equal(rig_post(&c, IBV_WR_RDMA_WRITE, k, k * 8192, 8192, &to_d, k * 8192),
                             0);
        assert_int_equal(rig_post(&c, IBV_WR_SEND, 8, 0, 100, NULL, 0), 0);
        mr = ibv_reg_mr(c.pd, c.buf, 1000, RIG_ACCESS);
        for (unsigned k = 0; k <= 8; k++)
            rig_expect(c.send_cq, k, IBV_WC_SUCCESS);
        rig_expect(d.recv_cq, 1, IBV_WC_SUCCESS);
        assert_int_equal(rig_differs(d.buf, 65536, seed * 1000 + i), -1);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        if (i % 2) /* in the midst of it */
            rig_post(&c, IBV_WR_RDMA_READ, 9, 0, 65536, &to_d, 0);
        assert_int_equal(rig_to(&d, i % 3 ? IBV_QPS_ERR : IBV_QPS_RESET), 0);
        assert_int_equal(rig_to(&d, IBV_QPS_RESET), 0);
        assert_int_equal(rig_to(&c, IBV_QPS_RESET), 0);
    }
    rig_close(&c);
    rig_close(&d);
    return NULL;
}

static void lives(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, live, (void *)(i + 1));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(rig_stat("sv0", "qps"), 1);
}

static _Atomic unsigned credits;

static void *post_many(void *arg)
{
    uintptr_t place = (uintptr_t)arg;

    for (unsigned i = 0; i < 300; i++) {
        while (atomic_fetch_sub(&credits, 1) - 1 > 64) { /* below 0 */
            atomic_fetch_add(&credits, 1);
            usleep(20);
        }
        assert_int_equal(
            rig_post(&a, IBV_WR_RDMA_WRITE, place, place * 4096, 4096, &to_b, place * 4096), 0);
    }
    return NULL;
}

/* Several threads post to one QP while another one takes the completions. */
static void one_queue(void **state)
{
    unsigned seen[THREADS] = {0};
    pthread_t threads[THREADS];

    (void)state;
    rig_fill(a.buf, SIZE, 1);
    credits = 60;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, post_many, (void *)i);
    for (unsigned i = 0; i < THREADS * 300; i++) {
        struct ibv_wc wc = rig_wc(a.send_cq);

        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        seen[wc.wr_id]++;
        atomic_fetch_add(&credits, 1);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(seen[i], 300);
    }
    assert_memory_equal(a.buf, b.buf, THREADS * 4096);
}

/* ----------------------------------------------------------------------------------- two processes */

static void put(int fd, const void *p, size_t n)
{
    if (write(fd, p, n) != (ssize_t)n)
        _exit(3);
}

static void get(int fd, void *p, size_t n)
{
    if (read(fd, p, n) != (ssize_t)n)
        _exit(4);
}

/* The other process: memory filled with seed 900, receives posted; afterwards it tells what it
 * holds. It does not touch verbs in between, so that everything one-sided happens to it. */
static void passive(int in, int out)
{
    struct rig_addr peer, own;
    struct rig_end e;
    char go;

    rig_open(&e, "sv1", SIZE, NULL);
    rig_fill(e.buf, SIZE, 900);
    own = rig_addr(&e);
    put(out, &own, sizeof(own));
    get(in, &peer, sizeof(peer));
    rig_connect(&e, &peer);
    for (unsigned i = 0; i < 8; i++)
        if (rig_recv(&e, i, SIZE / 2 + i * 80000, 80000))
            _exit(5);
    put(out, "c", 1);
    get(in, &go, 1);
    for (unsigned i = 0; i < 8; i++)
        if (rig_expect(e.recv_cq, i, IBV_WC_SUCCESS).byte_len != 70000 + i)
            _exit(6);
    for (size_t at = 0; at < SIZE; at += 4096)
        put(out, e.buf + at, 4096);
    get(in, &go, 1);
    rig_close(&e);
}

static void two_processes(void **state)
{
    static uint8_t want[SIZE], got[SIZE];
    int to[2], from[2], status;
    struct rig_addr own, peer;
    pid_t child;
    char c;

    (void)state;
    rig_fabric("[{\"name\": \"sv0\"}, {\"name\": \"sv1\"}]");
    assert_int_equal(pipe(to) | pipe(from), 0);
    child = fork();
    if (child == 0) {
        passive(to[0], from[1]);
        _exit(0);
    }
    rig_open(&a, "sv0", SIZE, NULL);
    own = rig_addr(&a);
    get(from[0], &peer, sizeof(peer));
    put(to[1], &own, sizeof(own));
    rig_connect(&a, &peer);
    get(from[0], &c, 1);

    rig_fill(want, SIZE, 900);
    for (unsigned i = 0; i < 200; i++) { /* writes and reads of random pieces of the lower half */
        size_t at = (size_t)rand() % (SIZE / 2), n = (size_t)rand() % (i % 10 ? 5000 : 400000);
        size_t remote = (size_t)rand() % (SIZE / 2);

        if (n > SIZE / 2 - at)
            n = SIZE / 2 - at;
        if (n > SIZE / 2 - remote)
            n = SIZE / 2 - remote;
        rig_fill(a.buf, SIZE, i);
        assert_int_equal(rig_post(&a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, i, at,
                                  (uint32_t)n, &peer, remote),
                         0);
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        if (i % 2)
            memcpy(want + remote, a.buf + at, n);
        else
            assert_memory_equal(a.buf + at, want + remote, n);
    }
    for (unsigned i = 0; i < 8; i++) {
        memcpy(want + SIZE / 2 + i * 80000, a.buf + i, 70000 + i);
        assert_int_equal(rig_post(&a, IBV_WR_SEND, i, i, 70000 + i, NULL, 0), 0);
    }
    for (unsigned i = 0; i < 8; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    put(to[1], "x", 1);
    for (size_t at = 0; at < SIZE; at += 4096)
        get(from[0], got + at, 4096);
    assert_memory_equal(got, want, SIZE);
    put(to[1], "x", 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig_close(&a);
    assert_int_equal(rig_stat("sv1", "qps") | rig_stat("sv1", "mrs") | rig_stat("sv1", "cqs"), 0);
    rig_fabric_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_sided, begin, end),
        cmocka_unit_test_setup_teardown(two_sided, begin, end),
        cmocka_unit_test_setup_teardown(immediate, begin, end),
        cmocka_unit_test_setup_teardown(many_buffers, begin, end),
        cmocka_unit_test_setup_teardown(scatter_receive, begin, end),
        cmocka_unit_test_setup_teardown(inline_data, begin, end),
        cmocka_unit_test_setup_teardown(order, begin, end),
        cmocka_unit_test_setup_teardown(overwrite, begin, end),
        cmocka_unit_test_setup_teardown(own_memory_iova, begin, end),
        cmocka_unit_test_setup_teardown(wr_calls, begin_ops, end),
        cmocka_unit_test_setup_teardown(lives, begin, end),
        cmocka_unit_test_setup_teardown(one_queue, begin, end),
        cmocka_unit_test(two_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
