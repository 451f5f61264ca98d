/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * The states of a QP in softverbs: which transitions there are, with which attributes and values,
 * and what may be posted when; and what creating and registering check.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (1u << 20)
#define NICS "[{\"name\": \"sv0\"}, {\"name\": \"sv1\"}, {\"name\": \"sv2\"}]"

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

/* ------------------------------------------------------------------------------ states, attributes */

static struct ibv_qp_attr full_attr(const struct rig_addr *peer)
{
    return (struct ibv_qp_attr){
        .port_num = 1,
        .qp_access_flags = RIG_ACCESS,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .sq_psn = 5,
        .max_rd_atomic = 4,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .timeout = 10,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 1}}};
}

static int modify(struct rig_end *e, struct ibv_qp_attr attr, enum ibv_qp_state to, int mask)
{
    attr.qp_state = to;
    return ibv_modify_qp(e->qp, &attr, mask | IBV_QP_STATE);
}

static const int to_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const int to_rts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/* Each attribute left out, and one too many, is EINVAL, and the state stays. */
static void step_strictly(enum ibv_qp_state to, int mask)
{
    enum ibv_qp_state from = rig_state(&a);

    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
        if (mask & bit)
            assert_int_equal(modify(&a, full_attr(&to_b), to, mask & ~bit), EINVAL);
    assert_int_equal(modify(&a, full_attr(&to_b), to, mask | IBV_QP_QKEY), EINVAL);
    for (int other = IBV_QPS_RESET; other <= IBV_QPS_SQE; other++)
        if (other != (int)to && other != (int)from && other != IBV_QPS_RESET)
            assert_int_equal(modify(&a, full_attr(&to_b), (enum ibv_qp_state)other, mask), EINVAL);
    assert_int_equal(rig_state(&a), from);
    assert_int_equal(modify(&a, full_attr(&to_b), to, mask), 0);
    assert_int_equal(rig_state(&a), to);
}

static void transitions(void **state)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    (void)state;
    step_strictly(IBV_QPS_INIT, to_init);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS), 0);
    step_strictly(IBV_QPS_RTR, to_rtr);
    step_strictly(IBV_QPS_RTS, to_rts);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_RTS, IBV_QP_TIMEOUT), EINVAL);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_SQD, 0), 0);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_SQD, IBV_QP_TIMEOUT), 0);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_RTS, 0), 0);
    assert_int_equal(ibv_query_qp(a.qp, &attr, 0x1fffff, &init), 0);
    assert_int_equal(attr.qp_state, IBV_QPS_RTS);
    assert_int_equal(attr.dest_qp_num, to_b.qpn);
    assert_int_equal(attr.path_mtu, IBV_MTU_1024);
    assert_int_equal(attr.timeout, 10);
    assert_int_equal(attr.cap.max_send_wr, 64);
    assert_ptr_equal(init.send_cq, a.send_cq);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_ERR, IBV_QP_TIMEOUT), EINVAL);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_RTS, to_rts), EINVAL);
    assert_int_equal(modify(&a, full_attr(&to_b), IBV_QPS_INIT, to_init), EINVAL);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
    assert_int_equal(rig_to(&a, IBV_QPS_RESET), 0);
    rig_connect_both(&a, &b);
    attr.cur_qp_state = IBV_QPS_RTR;
    assert_int_equal(modify(&a, attr, IBV_QPS_RTS, IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTS;
    assert_int_equal(modify(&a, attr, IBV_QPS_RTS, IBV_QP_CUR_STATE), 0);
}

static void values(void **state)
{
    struct ibv_qp_attr ok = full_attr(&to_b), bad;

    (void)state;
#define REFUSED(to, mask, field, value)                      \
    do {                                                     \
        bad = ok;                                            \
        bad.field = (value);                                 \
        assert_int_equal(modify(&a, bad, to, mask), EINVAL); \
    } while (0)
    REFUSED(IBV_QPS_INIT, to_init, port_num, 2);
    REFUSED(IBV_QPS_INIT, to_init, port_num, 0);
    REFUSED(IBV_QPS_INIT, to_init, pkey_index, 1);
    REFUSED(IBV_QPS_INIT, to_init, qp_access_flags, 1u << 30);
    assert_int_equal(modify(&a, ok, IBV_QPS_INIT, to_init), 0);
    REFUSED(IBV_QPS_RTR, to_rtr, path_mtu, (enum ibv_mtu)0);
    REFUSED(IBV_QPS_RTR, to_rtr, path_mtu, (enum ibv_mtu)6);
    REFUSED(IBV_QPS_RTR, to_rtr, dest_qp_num, 1u << 24);
    REFUSED(IBV_QPS_RTR, to_rtr, max_dest_rd_atomic, 17);
    REFUSED(IBV_QPS_RTR, to_rtr, min_rnr_timer, 32);
    REFUSED(IBV_QPS_RTR, to_rtr, ah_attr.is_global, 0); /* Ethernet */
    REFUSED(IBV_QPS_RTR, to_rtr, ah_attr.port_num, 2);
    REFUSED(IBV_QPS_RTR, to_rtr, ah_attr.grh.sgid_index, 16);
    REFUSED(IBV_QPS_RTR, to_rtr, ah_attr.grh.sgid_index, 1); /* an empty entry */
    REFUSED(IBV_QPS_RTR, to_rtr, ah_attr.grh.dgid, (union ibv_gid){0});
    assert_int_equal(modify(&a, ok, IBV_QPS_RTR, to_rtr), 0);
    REFUSED(IBV_QPS_RTS, to_rts, timeout, 32);
    REFUSED(IBV_QPS_RTS, to_rts, retry_cnt, 8);
    REFUSED(IBV_QPS_RTS, to_rts, rnr_retry, 8);
    REFUSED(IBV_QPS_RTS, to_rts, max_rd_atomic, 17);
    assert_int_equal(modify(&a, ok, IBV_QPS_RTS, to_rts), 0);
#undef REFUSED
}

static void small_mtu(void **state)
{
    (void)state;
    rig_fabric("[{\"name\": \"sv0\", \"mtu\": 1024}, {\"name\": \"sv1\"}]");
    rig_open(&a, "sv0", SIZE, NULL);
    rig_open(&b, "sv1", SIZE, NULL);
    to_b = rig_addr(&b);
    assert_int_equal(rig_init(&a), 0);
    assert_int_equal(rig_rtr(&a, &to_b), EINVAL); /* 4096 asked, 1024 active */
    a.o.mtu = IBV_MTU_1024;
    assert_int_equal(rig_rtr(&a, &to_b), 0);
    end(NULL);
}

static void posting_by_state(void **state)
{
    (void)state;
    assert_int_equal(rig_recv(&a, 1, 0, 10), EINVAL);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 10, &to_b, 0), EINVAL);
    assert_int_equal(rig_init(&a), 0);
    assert_int_equal(rig_recv(&a, 1, 0, 10), 0);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 10, &to_b, 0), EINVAL);
    assert_int_equal(rig_rtr(&a, &to_b), 0);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 10, &to_b, 0), EINVAL);
    assert_int_equal(rig_rts(&a), 0);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
    rig_expect(a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 2, 0, 10, &to_b, 0), 0);
    rig_expect(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(rig_recv(&a, 3, 0, 10), 0);
    rig_expect(a.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
    untouched();
}

/* A drained queue holds back what is posted, and says when nothing is on its way. */
static void send_queue_drained(void **state)
{
    struct ibv_qp_attr attr = {.en_sqd_async_notify = 1};

    (void)state;
    assert_int_equal(modify(&a, attr, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    rig_event(a.ctx, IBV_EVENT_SQ_DRAINED);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 10, &to_b, 0), 0);
    rig_silence(a.send_cq, 20);
    assert_int_equal(rig_to(&a, IBV_QPS_RTS), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
}

/* --------------------------------------------------------------------------------- what create checks */

static struct ibv_qp *try_qp(struct ibv_qp_init_attr attr)
{
    attr.send_cq = a.send_cq;
    attr.recv_cq = a.recv_cq;
    if (!attr.qp_type)
        attr.qp_type = IBV_QPT_RC;
    errno = 0;
    return ibv_create_qp(a.pd, &attr);
}

static void create_limits(void **state)
{
    (void)state;
    assert_null(try_qp((struct ibv_qp_init_attr){.cap.max_send_wr = 1 << 20}));
    assert_int_equal(errno, EINVAL);
    assert_null(try_qp((struct ibv_qp_init_attr){.cap.max_recv_sge = 31}));
    assert_int_equal(errno, EINVAL);
    assert_null(try_qp((struct ibv_qp_init_attr){.cap.max_inline_data = 513}));
    assert_int_equal(errno, EINVAL);
    assert_null(try_qp((struct ibv_qp_init_attr){.qp_type = IBV_QPT_UD}));
    assert_int_equal(errno, EOPNOTSUPP);
    assert_null(ibv_create_cq(a.ctx, 0, NULL, NULL, 0));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_create_cq(a.ctx, 10, NULL, NULL, 4));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_create_cq(a.ctx, INT32_MAX, NULL, NULL, 0));
}

static void limits_of_the_file(void **state)
{
    struct ibv_context *ctx;
    struct ibv_device_attr attr;
    struct ibv_cq *cq;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    char buf[64];

    (void)state;
    rig_fabric("[{\"name\": \"x\", \"limits\": {\"max_cq\": 1, \"max_mr\": 1, \"max_cqe\": 8,"
               "\"max_mr_size\": 32, \"max_qp\": 77, \"max_qp_rd_atom\": 3}}]");
    ctx = rig_context("x");
    assert_int_equal(ibv_query_device(ctx, &attr), 0);
    assert_int_equal(attr.max_qp, 77);
    assert_int_equal(attr.max_qp_rd_atom, 3);
    assert_int_equal(attr.max_mr_size, 32);
    assert_null(ibv_create_cq(ctx, 9, NULL, NULL, 0));
    cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
    assert_non_null(cq);
    assert_null(ibv_create_cq(ctx, 8, NULL, NULL, 0));
    assert_int_equal(errno, ENOMEM);
    pd = ibv_alloc_pd(ctx);
    assert_null(ibv_reg_mr(pd, buf, 33, 0));
    mr = ibv_reg_mr(pd, buf, 32, 0);
    assert_non_null(mr);
    assert_null(ibv_reg_mr(pd, buf, 32, 0));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(ibv_dereg_mr(mr) | ibv_dealloc_pd(pd) | ibv_destroy_cq(cq), 0);
    assert_int_equal(ibv_close_device(ctx), 0);
    rig_fabric_end();
}

/* ibv_reg_mr() is a macro that joins the access with another enum's bits: some warn of an enumerator. */
static struct ibv_mr *registered(void *addr, size_t length, unsigned access)
{
    return ibv_reg_mr(a.pd, addr, length, access);
}

static void registering(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *gone = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_null(registered(a.buf, 10, IBV_ACCESS_REMOTE_WRITE));
    assert_int_equal(errno, EINVAL);
    assert_null(registered(a.buf, 0, 0));
    assert_int_equal(errno, EINVAL);
    assert_null(registered(a.buf, SIZE_MAX, 0));
    assert_null(registered(a.buf, 10, 1 << 12));
    assert_int_equal(errno, EINVAL);
    assert_null(registered(gone, 2 * page, IBV_ACCESS_LOCAL_WRITE)); /* read-only */
    assert_int_equal(errno, EFAULT);
    munmap(gone + page, page);
    assert_null(registered(gone, 2 * page, IBV_ACCESS_REMOTE_READ));
    assert_int_equal(errno, EFAULT);
    munmap(gone, page);
    assert_null(ibv_reg_dmabuf_mr(a.pd, 0, 10, 0, a.ctx->async_fd, 0)); /* no dma-buf */
    assert_int_equal(errno, EINVAL);
}

static void what_is_in_use(void **state)
{
    (void)state;
    assert_int_equal(ibv_dealloc_pd(a.pd), EBUSY);
    assert_int_equal(ibv_destroy_cq(a.send_cq), EBUSY);
    assert_int_equal(ibv_destroy_comp_channel(a.channel), EBUSY);
}

int main(void)
{
#define CONNECTED(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define OPENED(name)    cmocka_unit_test_setup_teardown(name, begin_open, end)
    const struct CMUnitTest tests[] = {
        OPENED(transitions),
        OPENED(values),
        cmocka_unit_test(small_mtu),
        OPENED(posting_by_state),
        CONNECTED(send_queue_drained),
        OPENED(create_limits),
        cmocka_unit_test(limits_of_the_file),
        OPENED(registering),
        OPENED(what_is_in_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
