/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - ibv_post_send and ibv_post_recv.
 *
 * What real providers check in these calls is checked here: state, opcode, number of entries, room.
 * Keys and ranges are the NIC's business, and fail as completions. Posting to a QP in the error
 * state works; such requests are flushed. On a NIC that is `instant`, a request to a QP that is
 * connected and idle completes here, without a byte being copied.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <string.h>

static const uint8_t wc_opcodes[] = {
    [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
    [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
    [IBV_WR_SEND] = IBV_WC_SEND,
    [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
    [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
};

/* ----------------------------------------------------------------------------------------- send */

/* Sum of the lengths; more than a message may have is clipped to one byte more. */
static uint32_t total_length(const struct ibv_send_wr *wr)
{
    uint64_t n = 0;

    for (int i = 0; i < wr->num_sge; i++)
        n += wr->sg_list[i].length;
    return n > SV_MAX_MSG ? SV_MAX_MSG + 1 : (uint32_t)n;
}

static int check_send(const struct sv_qp *qp, const struct ibv_send_wr *wr, uint32_t length)
{
    if ((uint32_t)wr->opcode > IBV_WR_RDMA_READ || wr->num_sge < 0 ||
        (uint32_t)wr->num_sge > qp->cap.max_send_sge)
        return EINVAL;
    if (qp->posted - atomic_load_explicit(&qp->sq_freed, memory_order_acquire) >=
        qp->cap.max_send_wr)
        return ENOMEM;
    if (!(wr->send_flags & IBV_SEND_INLINE))
        return 0;
    if (wr->opcode == IBV_WR_RDMA_READ)
        return EINVAL;
    return length > qp->cap.max_inline_data ? ENOMEM : 0;
}

static void keep_inline(struct sv_qp *qp, struct sv_wr *w, const struct ibv_send_wr *wr)
{
    uint8_t *at =
        &qp->inline_data[(qp->posted & qp->sq_mask) * (size_t)(qp->cap.max_inline_data + 1)];

    w->sge[0] = (struct ibv_sge){.addr = (uintptr_t)at, .length = w->length};
    w->num_sge = 1;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        at += wr->sg_list[i].length;
    }
}

static void append(struct sv_qp *qp, const struct ibv_send_wr *wr, uint32_t length, int64_t now)
{
    struct sv_wr *w = &qp->sq[qp->posted & qp->sq_mask];

    w->wr_id = wr->wr_id;
    w->posted_at = now;
    w->opcode = wr->opcode;
    w->flags = wr->send_flags;
    w->imm = wr->imm_data;
    w->remote_addr = wr->wr.rdma.remote_addr;
    w->rkey = wr->wr.rdma.rkey;
    w->length = length;
    w->moved = 0;
    w->phase = SV_WR_NEW;
    w->fate_late = w->arrived = false;
    w->fate = length > SV_MAX_MSG ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
    w->num_sge = (uint32_t)wr->num_sge;
    if (wr->send_flags & IBV_SEND_INLINE)
        keep_inline(qp, w, wr);
    else if (wr->num_sge > 0)
        memcpy(w->sge, wr->sg_list, w->num_sge * sizeof(*w->sge));
    qp->posted++;
}

static void count_posts(const struct sv_qp *qp, uint64_t wrs, uint64_t done, uint64_t bytes)
{
    struct sv_counters *n = qp->ctx->counters;

    atomic_fetch_add_explicit(&n->doorbells, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n->wrs, wrs, memory_order_relaxed);
    if (done) {
        atomic_fetch_add_explicit(&n->completions, done, memory_order_relaxed);
        atomic_fetch_add_explicit(&n->bytes, bytes, memory_order_relaxed);
    }
}

/* qp.lock held. */
static bool is_instant(const struct sv_qp *qp)
{
    const struct sv_nic *nic = qp->ctx->nic;

    return nic->instant && qp->state == IBV_QPS_RTS && qp->done == qp->posted &&
           !atomic_load_explicit(&nic->faults, memory_order_relaxed) &&
           atomic_load_explicit(&nic->port_up, memory_order_relaxed);
}

static int post_instant(struct sv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct sv_cq *cq = sv_cq_of(qp->x.qp_base.send_cq);
    struct sv_cqe cqe = {.qp = qp, .wc.qp_num = qp->x.qp_base.qp_num};
    uint64_t bytes = 0;
    uint32_t from = qp->posted;
    int rc = 0;

    for (; wr; wr = wr->next) {
        uint32_t length = total_length(wr);

        rc = check_send(qp, wr, length);
        if (rc)
            break;
        bytes += length;
        cqe.index = qp->posted++;
        if (!(wr->send_flags & IBV_SEND_SIGNALED) && !qp->sig_all)
            continue;
        cqe.wc.wr_id = wr->wr_id;
        cqe.wc.opcode = (enum ibv_wc_opcode)wc_opcodes[wr->opcode];
        cqe.wc.byte_len = wr->opcode == IBV_WR_RDMA_READ ? length : 0;
        sv_cq_push(cq, &cqe, false);
    }
    qp->done = qp->launched = qp->posted;
    count_posts(qp, qp->posted - from, qp->posted - from, bytes);
    if (rc)
        *bad = wr;
    return rc;
}

static int post_queued(struct sv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    uint32_t from = qp->posted, length;
    bool idle = qp->launched == from;
    int64_t now = sv_now();
    int rc = 0;

    for (; wr; wr = wr->next) {
        length = total_length(wr);
        rc = check_send(qp, wr, length);
        if (rc) {
            *bad = wr;
            break;
        }
        append(qp, wr, length, now);
    }
    count_posts(qp, qp->posted - from, 0, 0);
    if (qp->posted != from && (idle || qp->state == IBV_QPS_ERR))
        sv_kick(qp);
    return rc;
}

int sv_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct sv_qp *qp = sv_qp_of(ibqp);
    int rc;

    pthread_mutex_lock(&qp->lock);
    if (sv_dead(qp->ctx) || qp->state < IBV_QPS_RTS) {
        *bad = wr;
        rc = sv_dead(qp->ctx) ? EIO : EINVAL;
    } else if (is_instant(qp)) {
        rc = post_instant(qp, wr, bad);
    } else {
        rc = post_queued(qp, wr, bad);
    }
    pthread_mutex_unlock(&qp->lock);
    return rc;
}

/* ----------------------------------------------------------------------------------------- recv */

static int append_recv(struct sv_qp *qp, const struct ibv_recv_wr *wr)
{
    struct sv_recv *r = &qp->rq[qp->rq_posted & qp->rq_mask];

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_recv_sge)
        return EINVAL;
    if (qp->rq_posted - atomic_load_explicit(&qp->rq_freed, memory_order_acquire) >=
        qp->cap.max_recv_wr)
        return ENOMEM;
    r->wr_id = wr->wr_id;
    r->num_sge = (uint32_t)wr->num_sge;
    if (wr->num_sge > 0)
        memcpy(r->sge, wr->sg_list, r->num_sge * sizeof(*r->sge));
    qp->rq_posted++;
    atomic_store(&qp->slot->rq_tail, qp->rq_posted);
    return 0;
}

int sv_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct sv_qp *qp = sv_qp_of(ibqp);
    int rc = 0;

    pthread_mutex_lock(&qp->lock);
    if (sv_dead(qp->ctx))
        rc = EIO;
    else if (qp->state == IBV_QPS_RESET)
        rc = EINVAL;
    for (; wr && !rc; wr = rc ? wr : wr->next)
        rc = append_recv(qp, wr);
    if (rc)
        *bad = wr;
    if (qp->state == IBV_QPS_ERR)
        sv_kick(qp);
    pthread_mutex_unlock(&qp->lock);
    return rc;
}

/* ---------------------------------------------------------------------------------- completions */

/* Called by the engine, qp.lock held. */
void sv_complete_send(struct sv_qp *qp, uint32_t index, enum ibv_wc_status status)
{
    const struct sv_wr *w = &qp->sq[index & qp->sq_mask];
    struct sv_cqe cqe = {.qp = qp, .index = index};

    if (status == IBV_WC_SUCCESS && !qp->sig_all && !(w->flags & IBV_SEND_SIGNALED))
        return;
    cqe.wc.wr_id = w->wr_id;
    cqe.wc.status = status;
    cqe.wc.qp_num = qp->x.qp_base.qp_num;
    if (status == IBV_WC_SUCCESS) {
        cqe.wc.opcode = (enum ibv_wc_opcode)wc_opcodes[w->opcode];
        cqe.wc.byte_len = w->opcode == IBV_WR_RDMA_READ ? w->length : 0;
    } else {
        cqe.wc.vendor_err = 0x5600u | status;
    }
    sv_cq_push(sv_cq_of(qp->x.qp_base.send_cq), &cqe, false);
}

void sv_complete_recv(struct sv_qp *qp, uint32_t index, const struct sv_mail *m)
{
    struct sv_cqe cqe = {.qp = qp, .index = index, .recv = true};

    cqe.wc.wr_id = qp->rq[index & qp->rq_mask].wr_id;
    cqe.wc.status = (enum ibv_wc_status)m->status;
    cqe.wc.qp_num = qp->x.qp_base.qp_num;
    if (m->status == IBV_WC_SUCCESS) {
        cqe.wc.opcode = (enum ibv_wc_opcode)m->opcode;
        cqe.wc.byte_len = m->byte_len;
        cqe.wc.imm_data = m->imm;
        cqe.wc.wc_flags = m->wc_flags;
        cqe.wc.src_qp = m->src_qp;
    }
    qp->rq_done = index + 1;
    sv_cq_push(sv_cq_of(qp->x.qp_base.recv_cq), &cqe, m->solicited != 0);
}
