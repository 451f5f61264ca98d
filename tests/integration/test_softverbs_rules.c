/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * The rules of verbs as softverbs keeps them: keys and ranges, queue depths, what an error does to
 * what comes behind it, retries. The states of a QP have a test of their own.
 */
#include "patience.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE  (1u << 20)
#define NICS  "[{\"name\": \"sv0\"}, {\"name\": \"sv1\"}, {\"name\": \"sv2\"}]"
#define REACH 17 /* ms until RETRY_EXC takes one retry less: timeout 12 of rig_default */

#include "fabric/softverbs/rig/pair.h"

static int begin_open(void **state)
{
    (void)state;
    open_both(NICS, NULL);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    connect_both(NICS, NULL);
    return 0;
}

/* ----------------------------------------------------------------------------------- keys and ranges */

/* The request fails with `status`, nothing moved, everything behind is flushed. */
static void fails(struct ibv_send_wr wr, enum ibv_wc_status status)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    wr.wr_id = 11;
    wr.send_flags = 0; /* an error completes even so */
    assert_int_equal(rig_recv(&a, 30, 0, 10), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    wc = rig_expect(a.send_cq, 11, status);
    assert_int_equal(wc.qp_num, a.qp->qp_num);
    assert_int_equal(rig_state(&a), IBV_QPS_ERR);
    rig_expect(a.recv_cq, 30, IBV_WC_WR_FLUSH_ERR);
    untouched();
}

static void bad_lkey(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    sge.lkey += 1 << 20;
    fails(wr, IBV_WC_LOC_PROT_ERR);
}

static void local_range(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_READ, &sge, SIZE - 99, 100, &to_b, 0);

    (void)state;
    fails(wr, IBV_WC_LOC_PROT_ERR);
}

static void local_access(void **state)
{
    struct ibv_mr *mr = ibv_reg_mr(a.pd, a.buf, SIZE, 0);
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_READ, &sge, 0, 100, &to_b, 0);

    (void)state;
    sge.lkey = mr->lkey;
    fails(wr, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void local_pd(void **state)
{
    struct ibv_pd *pd = ibv_alloc_pd(a.ctx);
    struct ibv_mr *mr = ibv_reg_mr(pd, a.buf, SIZE, RIG_ACCESS);
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    sge.lkey = mr->lkey;
    fails(wr, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(ibv_dereg_mr(mr) | ibv_dealloc_pd(pd), 0);
}

static void too_long(void **state)
{
    struct ibv_sge sge[2];
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge[0], 0, 1u << 30, &to_b, 0);

    (void)state;
    sge[1] = sge[0];
    wr.num_sge = 2;
    fails(wr, IBV_WC_LOC_LEN_ERR);
}

/* The target's QP breaks as well, and its owner is told. */
static void fails_there(struct ibv_send_wr wr, enum ibv_wc_status status, enum ibv_event_type event)
{
    assert_int_equal(rig_recv(&b, 40, 0, 10), 0);
    fails(wr, status);
    rig_event(b.ctx, event);
    rig_expect(b.recv_cq, 40, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(rig_state(&b), IBV_QPS_ERR);
}

static void bad_rkey(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    wr.wr.rdma.rkey ^= 1u << 31;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void other_nics_rkey(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_a, 0);

    (void)state;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void remote_range(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_READ, &sge, 0, 100, &to_b, SIZE - 99);

    (void)state;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void remote_before(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    wr.wr.rdma.remote_addr--;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void remote_access(void **state)
{
    unsigned access = IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, SIZE, access);
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    wr.wr.rdma.rkey = mr->rkey;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void remote_pd(void **state)
{
    struct ibv_pd *pd = ibv_alloc_pd(b.ctx);
    struct ibv_mr *mr = ibv_reg_mr(pd, b.buf, SIZE, RIG_ACCESS);
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    wr.wr.rdma.rkey = mr->rkey;
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    assert_int_equal(ibv_dereg_mr(mr) | ibv_dealloc_pd(pd), 0);
}

static void stale_rkey(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);

    (void)state;
    assert_int_equal(ibv_dereg_mr(b.mr), 0);
    b.mr = ibv_reg_mr(b.pd, b.buf, SIZE, RIG_ACCESS); /* the same slot, another key */
    assert_int_not_equal(b.mr->rkey, to_b.rkey);
    fails_there(wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void qp_without_remote_write(void **state)
{
    struct rig_opts o = rig_default;
    struct ibv_sge sge;
    struct ibv_send_wr wr;

    (void)state;
    o.qp_access = IBV_ACCESS_REMOTE_READ;
    connect_both(NICS, &o);
    wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 100, &to_b, 0);
    fails_there(wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    end(NULL);
}

static void zero_length_needs_no_key(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 0, &to_b, 0), *bad;

    (void)state;
    wr.wr.rdma.rkey = 0;
    wr.num_sge = 0;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
}

/* ------------------------------------------------------------------------------------- queue depths */

static void full_queue(void **state)
{
    struct ibv_send_wr wr[66], *bad = NULL;
    struct ibv_sge sge[66];

    (void)state;
    rig_ctl("stall sv0 300");
    for (unsigned i = 0; i < 66; i++) {
        wr[i] = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge[i], i, 1, &to_b, 0);
        wr[i].wr_id = i;
        wr[i].next = i < 65 ? &wr[i + 1] : NULL;
    }
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), ENOMEM);
    assert_ptr_equal(bad, &wr[64]);
    for (unsigned i = 0; i < 64; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    rig_silence(a.send_cq, 5);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(rig_recv(&a, i, 0, 1), 0);
    assert_int_equal(rig_recv(&a, 64, 0, 1), ENOMEM);
}

/* A place is free when a completion at or behind it was polled, not when the request is done. */
static void unsignaled_places(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 1, &to_b, 0), *bad;

    (void)state;
    wr.send_flags = 0;
    for (unsigned i = 0; i < 63; i++)
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 7, 0, 1, &to_b, 0), 0);
    usleep(20000);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), ENOMEM);
    rig_expect(a.send_cq, 7, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    usleep(20000);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), ENOMEM); /* and stays full for ever */
    rig_silence(a.send_cq, 5);
}

static void bad_requests(void **state)
{
    struct ibv_sge sge[9];
    struct ibv_send_wr wr[3], *bad;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        wr[i] = rig_wr(&a, IBV_WR_RDMA_WRITE, sge, 0, 1, &to_b, 0);
        wr[i].wr_id = i;
        wr[i].next = i < 2 ? &wr[i + 1] : NULL;
    }
    wr[1].num_sge = 9;
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), EINVAL);
    assert_ptr_equal(bad, &wr[1]);
    wr[1].num_sge = 1;
    wr[1].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), EINVAL);
    assert_ptr_equal(bad, &wr[1]);
    rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
    rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
    rig_silence(a.send_cq, 5);
}

static void cq_overrun(void **state)
{
    struct rig_opts o = rig_default;

    (void)state;
    o.cqe = 4;
    connect_both(NICS, &o);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, 0, 1, &to_b, 0), 0);
    rig_event(a.ctx, IBV_EVENT_CQ_ERR);
    for (unsigned i = 0; i < 4; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    WAIT_FOR(rig_state(&a) == IBV_QPS_ERR);
    rig_silence(a.send_cq, 5); /* a broken CQ says nothing more */
    end(NULL);
}

/* With a round trip of 4 ms, one read at a time is as slow as it must be. */
static void reads_at_a_time(void **state)
{
    struct rig_opts o = rig_default;
    int64_t start, ms;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        o.rd_atomic = o.dest_rd_atomic = i ? 16 : 1;
        rig_fabric("[{\"name\": \"sv0\", \"latency_us\": 4000}, {\"name\": \"sv1\"}]");
        rig_open(&a, "sv0", SIZE, &o);
        rig_open(&b, "sv1", SIZE, &o);
        to_b = rig_addr(&b);
        rig_connect_both(&a, &b);
        rig_ctl("hold sv0"); /* until all are posted, and those on the wire that may be */
        start = rig_now_ms();
        for (unsigned k = 0; k < 10; k++)
            assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, k, 0, 1, &to_b, 0), 0);
        WAIT_FOR(rig_stat("sv0", "reads") == (i ? 10 : 1));
        rig_ctl("release sv0");
        for (unsigned k = 0; k < 10; k++)
            rig_expect(a.send_cq, k, IBV_WC_SUCCESS);
        ms = rig_now_ms() - start;
        assert_int_equal(rig_stat("sv0", "reads"), i ? 10 : 1);
        assert_true(ms >= (i ? 4 : 40) - 1);
        end(NULL);
    }
}

static void too_many_reads(void **state)
{
    struct rig_opts o = rig_default;
    unsigned failed = 0;

    (void)state;
    o.dest_rd_atomic = 2;
    connect_both(NICS, &o);
    rig_ctl("stall sv0 50"); /* so that all are launched at once */
    for (unsigned k = 0; k < 8; k++)
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, k, 0, 1, &to_b, 0), 0);
    for (unsigned k = 0; k < 8; k++)
        failed += rig_wc(a.send_cq).status == IBV_WC_REM_INV_REQ_ERR;
    assert_int_equal(failed, 1);
    rig_event(b.ctx, IBV_EVENT_QP_REQ_ERR);
    end(NULL);
}

static void no_reads_allowed(void **state)
{
    struct rig_opts o = rig_default;

    (void)state;
    o.rd_atomic = 0;
    connect_both(NICS, &o);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, 0, 1, &to_b, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_LOC_QP_OP_ERR);
    end(NULL);
}

/* -------------------------------------------------------------------------------------------- flush */

/* What is done stays done, the culprit says why, all behind is flushed in order, signaled or not. */
static void flush_in_order(void **state)
{
    struct ibv_send_wr wr[8], *bad;
    struct ibv_sge sge[8];

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        wr[i] = rig_wr(&a, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge[i], i * 100, 100,
                       &to_b, i * 100);
        wr[i].wr_id = i;
        wr[i].next = i < 7 ? &wr[i + 1] : NULL;
        wr[i].send_flags = i == 1 ? IBV_SEND_SIGNALED : 0;
    }
    wr[3].wr.rdma.rkey = 0;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(rig_recv(&a, 20 + i, 0, 10), 0);
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_expect(a.send_cq, 3, IBV_WC_REM_ACCESS_ERR);
    for (unsigned i = 4; i < 8; i++)
        rig_expect(a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
    for (unsigned i = 0; i < 3; i++)
        rig_expect(a.recv_cq, 20 + i, IBV_WC_WR_FLUSH_ERR);
    assert_memory_equal(b.buf, a.buf, 300);
    assert_int_equal(rig_differs(b.buf + 304, SIZE - 304, 2) == -1, 0);
    rig_silence(a.send_cq, 5);
}

/* RESET forgets everything, completions not yet polled included; the QP can be used again. */
static void reset_and_again(void **state)
{
    (void)state;
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 1, &to_b, 0), 0);
    usleep(20000);
    assert_int_equal(rig_recv(&a, 2, 0, 1), 0);
    assert_int_equal(rig_to(&a, IBV_QPS_RESET), 0);
    rig_silence(a.send_cq, 5);
    rig_silence(a.recv_cq, 5);
    assert_int_equal(rig_to(&b, IBV_QPS_RESET), 0);
    rig_connect_both(&a, &b);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, 0, 1, &to_b, 0), 0);
    for (unsigned i = 0; i < 64; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
}

static void destroy_takes_completions(void **state)
{
    (void)state;
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 1, &to_b, 0), 0);
    usleep(20000);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    rig_silence(a.send_cq, 5);
}

/* ---------------------------------------------------------------------------------- retries, receivers */

static void gives_up_after(int64_t least_ms)
{
    int64_t start = rig_now_ms();

    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 100, &to_b, 0), 0);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 2, 0, 100, &to_b, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_true(rig_now_ms() - start >= least_ms);
    rig_expect(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    untouched();
}

static void peer_destroyed(void **state)
{
    (void)state;
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    gives_up_after(4 * (REACH - 1)); /* retry_cnt 3: four times in all */
}

static void peer_not_ready(void **state)
{
    (void)state;
    rig_connect(&a, &to_b);
    assert_int_equal(rig_init(&b), 0);
    gives_up_after(4 * (REACH - 1));
}

static void peer_in_error(void **state)
{
    (void)state;
    assert_int_equal(rig_to(&b, IBV_QPS_ERR), 0);
    gives_up_after(4 * (REACH - 1));
}

static void peer_ready_in_time(void **state)
{
    struct rig_opts o = rig_default;

    (void)state;
    o.timeout = 17; /* 0.5 s */
    o.retry_cnt = 7;
    open_both(NICS, &o);
    rig_connect(&a, &to_b);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 100, &to_b, 0), 0);
    rig_silence(a.send_cq, 30);
    rig_connect(&b, &to_a);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    end(NULL);
}

static void wrong_address(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct rig_addr wrong = to_b, other = to_a;

        if (i == 0)
            wrong.gid.raw[15] ^= 0x40;
        else if (i == 1)
            wrong.qpn ^= 1u << 20;
        else if (i == 2)
            other.psn++; /* the peer waits for another number */
        else
            other.qpn++; /* the peer is connected to somebody else */
        rig_connect(&a, &wrong);
        rig_connect(&b, &other);
        gives_up_after(4 * (REACH - 1));
        assert_int_equal(rig_to(&a, IBV_QPS_RESET), 0);
        assert_int_equal(rig_to(&b, IBV_QPS_RESET), 0);
    }
}

static void mtu_of_the_peer(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 5000, &to_b, 0);

    (void)state;
    b.o.mtu = IBV_MTU_1024;
    rig_connect_both(&a, &b);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, &to_b, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    fails_there(wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

static void receiver_not_ready(void **state)
{
    struct rig_opts o = rig_default;
    int64_t start;

    (void)state;
    o.rnr_retry = 3;
    o.min_rnr_timer = 20; /* 10 ms */
    connect_both(NICS, &o);
    start = rig_now_ms();
    assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, 0, 100, NULL, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_true(rig_now_ms() - start >= 29);
    end(NULL);
}

static void receiver_ready_later(void **state)
{
    (void)state; /* rnr_retry 7: for ever */
    assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, 0, 100, NULL, 0), 0);
    rig_silence(a.send_cq, 60);
    assert_int_equal(rig_recv(&b, 2, 50, 100), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_expect(b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_memory_equal(b.buf + 50, a.buf, 100);
}

static void receive_too_small(void **state)
{
    (void)state;
    assert_int_equal(rig_recv(&b, 2, 0, 99), 0);
    assert_int_equal(rig_recv(&b, 3, 0, 99), 0);
    assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, 0, 100, NULL, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
    rig_expect(b.recv_cq, 2, IBV_WC_LOC_LEN_ERR);
    rig_expect(b.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
    untouched();
}

static void receive_with_bad_key(void **state)
{
    struct ibv_sge sge = {(uintptr_t)b.buf, 100, 12345};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

    (void)state;
    assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
    assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, 0, 100, NULL, 0), 0);
    rig_expect(a.send_cq, 1, IBV_WC_REM_OP_ERR);
    rig_expect(b.recv_cq, 2, IBV_WC_LOC_PROT_ERR);
    untouched();
}

int main(void)
{
#define CONNECTED(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define OPENED(name)    cmocka_unit_test_setup_teardown(name, begin_open, end)
    const struct CMUnitTest tests[] = {
        CONNECTED(bad_lkey),
        CONNECTED(local_range),
        CONNECTED(local_access),
        CONNECTED(local_pd),
        CONNECTED(too_long),
        CONNECTED(bad_rkey),
        CONNECTED(other_nics_rkey),
        CONNECTED(remote_range),
        CONNECTED(remote_before),
        CONNECTED(remote_access),
        CONNECTED(remote_pd),
        CONNECTED(stale_rkey),
        cmocka_unit_test(qp_without_remote_write),
        CONNECTED(zero_length_needs_no_key),
        CONNECTED(full_queue),
        CONNECTED(unsignaled_places),
        CONNECTED(bad_requests),
        cmocka_unit_test(cq_overrun),
        cmocka_unit_test(reads_at_a_time),
        cmocka_unit_test(too_many_reads),
        cmocka_unit_test(no_reads_allowed),
        CONNECTED(flush_in_order),
        CONNECTED(reset_and_again),
        CONNECTED(destroy_takes_completions),
        CONNECTED(peer_destroyed),
        OPENED(peer_not_ready),
        CONNECTED(peer_in_error),
        cmocka_unit_test(peer_ready_in_time),
        OPENED(wrong_address),
        OPENED(mtu_of_the_peer),
        cmocka_unit_test(receiver_not_ready),
        CONNECTED(receiver_ready_later),
        CONNECTED(receive_too_small),
        CONNECTED(receive_with_bad_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
