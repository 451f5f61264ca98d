/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_qp.c - the queue pairs of an endpoint. Queue pair i is connected with the peer's number i.
 * The attributes are those that engines of this family expect of each other; the local timeouts are
 * shorter, so that a dead way is told within about a quarter of a second. Packet sequence numbers
 * are random where the peer knows them, and 0 with engines that do not tell theirs.
 */
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACK_TIMEOUT   13 /* 4.096 us * 2^13 = 34 ms for each of the tries */
#define RETRIES       6  /* 7 would be for ever at some devices */
#define RNR_RETRIES   7
#define MIN_RNR_TIMER 12
#define HOP_LIMIT     16
#define RD_ATOMIC     16

static uint8_t least_u8(int a, int b)
{
    return (uint8_t)(a < b ? a : b);
}

static struct ibv_qp *create_one(struct rdma_endpoint *ep, struct rdma_cq *cq)
{
    struct rdma_nic *n = ep->nic;
    const struct tei_conf *c = n->t->conf;
    struct ibv_qp_init_attr a = {
        .qp_context = ep,
        .send_cq = cq->cq,
        .recv_cq = cq->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = n->depth,
                .max_recv_wr = 1, /* none is ever posted */
                .max_send_sge = (uint32_t)tei_min((size_t)c->max_sge, (size_t)n->limits.max_sge),
                .max_recv_sge = 1,
                .max_inline_data = (uint32_t)c->max_inline}};
    struct ibv_qp *qp = n->t->verbs.create_qp(n->pd, &a);

    if (!qp && a.cap.max_inline_data) {
        a.cap.max_inline_data = 0;
        qp = n->t->verbs.create_qp(n->pd, &a);
    }
    ep->inline_max = (uint32_t)tei_min(a.cap.max_inline_data, (size_t)c->max_inline);
    return qp;
}

static uint32_t random_psn(void)
{
    return (uint32_t)tei_random_u64() & TEI_RDMA_PSN_MAX;
}

int tei_rdma_qps_create(struct rdma_endpoint *ep)
{
    struct rdma_nic *n = ep->nic;
    unsigned want = (unsigned)n->t->conf->num_qp_per_ep;

    if (ep->qps)
        return 0;
    if (!n->pd)
        return TEI_FAIL(TE_ERR_CONTEXT, "rdma: NIC %s is not open: %s", n->name, n->why);
    ep->qps = calloc(want, sizeof *ep->qps);
    if (!ep->qps)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %u queue pairs", want);
    for (; ep->n_qps < want; ep->n_qps++) {
        struct rdma_qp *q = &ep->qps[ep->n_qps];

        q->psn = random_psn();
        q->cq = &n->cqs[atomic_fetch_add_explicit(&n->next_cq, 1, memory_order_relaxed) % n->n_cqs];
        q->qp = create_one(ep, q->cq);
        if (!q->qp)
            return TEI_FAIL(TE_ERR_ENDPOINT,
                            "rdma: NIC %s makes no queue pair: %s; fewer endpoints "
                            "(MC_MAX_EP_PER_CTX, MC_NUM_QP_PER_EP) or a smaller MC_MAX_WR may help",
                            n->name, tei_errno_text(errno));
    }
    return 0;
}

void tei_rdma_qps_renumber(struct rdma_endpoint *ep)
{
    for (unsigned i = 0; i < ep->n_qps; i++)
        ep->qps[i].psn = random_psn();
}

void tei_rdma_qps_destroy(struct rdma_endpoint *ep)
{
    for (unsigned i = 0; i < ep->n_qps; i++)
        ep->nic->t->verbs.destroy_qp(ep->qps[i].qp);
}

static int to_init(struct rdma_nic *n, struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = n->port,
                            .pkey_index = (uint16_t)n->t->conf->pkey_index,
                            .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                               IBV_ACCESS_REMOTE_WRITE};

    return n->t->verbs.modify_qp(
        qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static enum ibv_mtu path_mtu(struct rdma_nic *n)
{
    static const struct {
        int bytes;
        enum ibv_mtu mtu;
    } all[] = {{512, IBV_MTU_512}, {1024, IBV_MTU_1024}, {2048, IBV_MTU_2048}};
    enum ibv_mtu wanted = IBV_MTU_4096, active = tei_rdma_nic_port(n).active_mtu;

    for (size_t i = 0; i < TEI_ARRAY_LEN(all); i++)
        if (all[i].bytes == n->t->conf->mtu)
            wanted = all[i].mtu;
    return wanted < active ? wanted : active;
}

static int to_rtr(struct rdma_endpoint *ep, unsigned i)
{
    struct rdma_nic *n = ep->nic;
    const struct tei_conf *c = n->t->conf;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = path_mtu(n),
        .dest_qp_num = ep->peer_qps[i].number,
        .rq_psn = ep->peer_qps[i].psn,
        .max_dest_rd_atomic = least_u8(RD_ATOMIC, n->limits.max_qp_rd_atom),
        .min_rnr_timer = MIN_RNR_TIMER,
        .ah_attr = {.dlid = (uint16_t)ep->peer_lid,
                    .sl = (uint8_t)(c->ib_sl >= 0 ? c->ib_sl : n->default_tos >> 5),
                    .port_num = n->port,
                    .is_global = 1,
                    .grh = {.sgid_index = (uint8_t)ep->gid.index,
                            .hop_limit = HOP_LIMIT,
                            .traffic_class =
                                (uint8_t)(c->ib_tc >= 0 ? c->ib_tc : n->default_tos)}}};

    memcpy(a.ah_attr.grh.dgid.raw, ep->peer_gid, sizeof ep->peer_gid);
    return n->t->verbs.modify_qp(ep->qps[i].qp, &a,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct rdma_endpoint *ep, unsigned i)
{
    struct rdma_nic *n = ep->nic;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = ep->numbered ? ep->qps[i].psn : 0,
                            .timeout = ACK_TIMEOUT,
                            .retry_cnt = RETRIES,
                            .rnr_retry = RNR_RETRIES,
                            .max_rd_atomic = least_u8(RD_ATOMIC, n->limits.max_qp_init_rd_atom)};

    return n->t->verbs.modify_qp(ep->qps[i].qp, &a,
                                 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int connect_one(struct rdma_endpoint *ep, unsigned i, const char **step)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_qp *qp = ep->qps[i].qp;
    int rc;

    *step = "RESET";
    rc = ep->nic->t->verbs.modify_qp(qp, &reset, IBV_QP_STATE);
    if (!rc) {
        *step = "INIT";
        rc = to_init(ep->nic, qp);
    }
    if (!rc) {
        *step = "RTR";
        rc = to_rtr(ep, i);
    }
    if (!rc) {
        *step = "RTS";
        rc = to_rts(ep, i);
    }
    return rc;
}

/* All of them with one GID of ours; an errno value or 0. */
static int connect_all(struct rdma_endpoint *ep, const char **step)
{
    int rc = 0;

    for (unsigned i = 0; i < ep->n_qps && !rc; i++)
        rc = connect_one(ep, i, step);
    return rc;
}

int tei_rdma_qps_connect(struct rdma_endpoint *ep)
{
    struct rdma_nic *n = ep->nic;
    uint64_t tried[TEI_GID_WORDS] = {0};
    bool choose = n->t->conf->gid_index < 0;
    const char *step = "";
    int rc;

    if (choose)
        (void)tei_rdma_nic_gid(n, ep->peer_gid, tried, &ep->gid);
    rc = connect_all(ep, &step);
    for (int i = 0; rc == EINVAL && choose && i < n->t->conf->auto_gid_max_retries; i++) {
        if (!tei_rdma_nic_gid(n, ep->peer_gid, tried, &ep->gid))
            break;
        rc = connect_all(ep, &step);
    }
    if (!rc) {
        tei_rdma_mlx5_spread(ep);
        return 0;
    }
    return TEI_FAIL(TE_ERR_ENDPOINT, "rdma: %s to %s: queue pair to %s: %s%s", n->name,
                    ep->peer_path, step, tei_errno_text(rc),
                    rc == EINVAL ? "; MC_GID_INDEX, MC_MTU, MC_IB_PORT and MC_PKEY_INDEX must suit "
                                   "both ends"
                                 : "");
}

void tei_rdma_qps_flush(struct rdma_endpoint *ep)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

    for (unsigned i = 0; i < ep->n_qps; i++)
        (void)ep->nic->t->verbs.modify_qp(ep->qps[i].qp, &a, IBV_QP_STATE);
}
