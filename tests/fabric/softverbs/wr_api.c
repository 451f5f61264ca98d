/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wr_api.c - the ibv_wr_*() calls of a QP made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS. They collect
 * a list of ordinary work requests, which ibv_wr_complete() posts. Between ibv_wr_start() and
 * ibv_wr_complete() or ibv_wr_abort() a thread has the QP for itself.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sv_qp *qp_of(struct ibv_qp_ex *x)
{
    return (struct sv_qp *)(void *)x;
}

static void start(struct ibv_qp_ex *x)
{
    struct sv_qp *qp = qp_of(x);

    pthread_mutex_lock(&qp->build_lock);
    qp->n_build = 0;
    qp->build_error = 0;
}

static void abort_list(struct ibv_qp_ex *x)
{
    pthread_mutex_unlock(&qp_of(x)->build_lock);
}

static int complete(struct ibv_qp_ex *x)
{
    struct sv_qp *qp = qp_of(x);
    struct ibv_send_wr *bad;
    int rc = qp->build_error;

    for (uint32_t i = 0; i + 1 < qp->n_build; i++)
        qp->build[i].next = &qp->build[i + 1];
    if (!rc && qp->n_build > 0)
        rc = sv_post_send(&x->qp_base, qp->build, &bad);
    pthread_mutex_unlock(&qp->build_lock);
    return rc;
}

/* The next request of the list; after an error it is one that is thrown away. */
static struct ibv_send_wr *add(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint64_t op)
{
    struct sv_qp *qp = qp_of(x);
    uint32_t i = qp->n_build;
    struct ibv_send_wr *wr;

    if (!(qp->ops & op))
        qp->build_error = EINVAL;
    else if (i == qp->cap.max_send_wr)
        qp->build_error = ENOMEM;
    else
        qp->n_build++;
    wr = &qp->build[i];
    *wr = (struct ibv_send_wr){.wr_id = x->wr_id,
                               .opcode = opcode,
                               .send_flags = x->wr_flags,
                               .sg_list = &qp->build_sge[(size_t)i * (qp->cap.max_send_sge + 1)]};
    return wr;
}

static struct ibv_send_wr *current(struct sv_qp *qp)
{
    return &qp->build[qp->n_build ? qp->n_build - 1 : 0];
}

static void add_rdma(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint64_t op, uint32_t rkey,
                     uint64_t addr)
{
    struct ibv_send_wr *wr = add(x, opcode, op);

    wr->wr.rdma.rkey = rkey;
    wr->wr.rdma.remote_addr = addr;
}

static void rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
    add_rdma(x, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, addr);
}

static void rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
    add_rdma(x, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, addr);
}

static void rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm)
{
    add_rdma(x, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, addr);
    current(qp_of(x))->imm_data = imm;
}

static void send_plain(struct ibv_qp_ex *x)
{
    add(x, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void send_imm(struct ibv_qp_ex *x, __be32 imm)
{
    add(x, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM)->imm_data = imm;
}

static void set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
    struct sv_qp *qp = qp_of(x);
    struct ibv_send_wr *wr = current(qp);

    if (n > qp->cap.max_send_sge) {
        qp->build_error = ENOMEM;
        return;
    }
    memcpy(wr->sg_list, list, n * sizeof(*list));
    wr->num_sge = (int)n;
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

    set_sge_list(x, 1, &sge);
}

static void set_inline_data_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list)
{
    struct sv_qp *qp = qp_of(x);
    struct ibv_send_wr *wr = current(qp);
    uint8_t *at = &qp->build_data[(size_t)(wr - qp->build) * (qp->cap.max_inline_data + 1)];
    size_t total = 0;

    for (size_t i = 0; i < n; i++) {
        if (list[i].length > qp->cap.max_inline_data - total) {
            qp->build_error = ENOMEM;
            return;
        }
        memcpy(at + total, list[i].addr, list[i].length);
        total += list[i].length;
    }
    wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)at, .length = (uint32_t)total};
    wr->num_sge = 1;
    wr->send_flags |= IBV_SEND_INLINE;
}

static void set_inline_data(struct ibv_qp_ex *x, void *addr, size_t length)
{
    struct ibv_data_buf one = {addr, length};

    set_inline_data_list(x, 1, &one);
}

int sv_wr_api(struct sv_qp *qp)
{
    size_t n = qp->cap.max_send_wr + 1;
    struct ibv_qp_ex *x = &qp->x;

    pthread_mutex_init(&qp->build_lock, NULL);
    if (!qp->ops)
        return 0;
    qp->build = calloc(n, sizeof(*qp->build));
    qp->build_sge = calloc(n * (qp->cap.max_send_sge + 1), sizeof(*qp->build_sge));
    qp->build_data = calloc(n, qp->cap.max_inline_data + 1);
    if (!qp->build || !qp->build_sge || !qp->build_data)
        return ENOMEM;
    x->wr_start = start;
    x->wr_complete = complete;
    x->wr_abort = abort_list;
    x->wr_rdma_read = rdma_read;
    x->wr_rdma_write = rdma_write;
    x->wr_rdma_write_imm = rdma_write_imm;
    x->wr_send = send_plain;
    x->wr_send_imm = send_imm;
    x->wr_set_sge = set_sge;
    x->wr_set_sge_list = set_sge_list;
    x->wr_set_inline_data = set_inline_data;
    x->wr_set_inline_data_list = set_inline_data_list;
    return 0;
}
