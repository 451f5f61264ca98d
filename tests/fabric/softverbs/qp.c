/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qp.c - queue pairs and their states.
 *
 * Which attributes a transition needs and allows stands in `transitions`, as in the IB
 * specification (table "QP state transition properties") for reliable connections; the values are
 * then checked against the device. State changes happen with the engine off the QP (sv_pause), and
 * those that end traffic wait until no process of the fabric still works on it (sv_fence_qp): once
 * ibv_modify_qp to ERR or RESET, or ibv_destroy_qp, returned, no byte moves through the QP, in
 * either direction. Flush completions follow, as on hardware, a moment later.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------- create, destroy */

#define KNOWN_OPS                                                                           \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)

static int check_caps(const struct sv_context *c, const struct ibv_qp_init_attr_ex *a)
{
    const struct sv_limits *l = &c->nic->limits;

    if (sv_dead(c))
        return EIO;
    if (a->qp_type != IBV_QPT_RC || a->srq ||
        (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) ||
        ((a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
         (a->send_ops_flags & ~(uint64_t)KNOWN_OPS)))
        return EOPNOTSUPP;
    if (!a->pd || !a->send_cq || !a->recv_cq || a->cap.max_send_wr > (uint32_t)l->max_qp_wr ||
        a->cap.max_recv_wr > (uint32_t)l->max_qp_wr || a->cap.max_send_sge > (uint32_t)l->max_sge ||
        a->cap.max_recv_sge > (uint32_t)l->max_sge ||
        a->cap.max_inline_data > (uint32_t)l->max_inline)
        return EINVAL;
    if (sv_denied(c->nic, SV_DENY_create_qp))
        return errno;
    return c->n_qp < l->max_qp ? 0 : ENOMEM;
}

static void free_queues(struct sv_qp *qp)
{
    free(qp->sq);
    free(qp->sges);
    free(qp->inline_data);
    free(qp->rq);
    free(qp->build);
    free(qp->build_sge);
    free(qp->build_data);
    free(qp);
}

static uint32_t round_up(uint32_t n)
{
    uint32_t size = 1;

    while (size < n)
        size *= 2;
    return size;
}

/* The send queue is an array of a power of two, so that running numbers may wrap. */
static struct sv_qp *alloc_queues(const struct ibv_qp_init_attr_ex *a)
{
    const struct ibv_qp_cap *cap = &a->cap;
    struct sv_qp *qp = calloc(1, sizeof(*qp));
    uint32_t size = round_up(cap->max_send_wr + 1);
    uint32_t recvs = round_up(cap->max_recv_wr + 1);

    if (!qp)
        return NULL;
    qp->cap = *cap;
    if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
        qp->ops = a->send_ops_flags;
    qp->sq_mask = size - 1;
    qp->rq_mask = recvs - 1;
    qp->sq = calloc(size, sizeof(*qp->sq));
    qp->sges = calloc((size_t)size * (cap->max_send_sge + 1), sizeof(*qp->sges));
    qp->inline_data = calloc((size_t)size, cap->max_inline_data + 1);
    qp->rq = calloc(recvs, sizeof(*qp->rq));
    if (!qp->sq || !qp->sges || !qp->inline_data || !qp->rq || sv_wr_api(qp)) {
        free_queues(qp);
        return NULL;
    }
    for (uint32_t i = 0; i < size; i++)
        qp->sq[i].sge = &qp->sges[(size_t)i * (cap->max_send_sge + 1)];
    return qp;
}

static void publish(struct sv_qp *qp, const struct sv_context *c)
{
    struct sv_qp_slot *s = qp->slot;

    atomic_store(&s->state, IBV_QPS_RESET);
    atomic_store(&s->proc, c->f->slot);
    atomic_store(&s->nic, c->nic_index);
    atomic_store(&s->nic_generation, c->generation);
    atomic_store(&s->pd, qp->x.qp_base.pd->handle);
    atomic_store(&s->rq_addr, (uintptr_t)qp->rq);
    atomic_store(&s->rq_mask, qp->rq_mask);
    atomic_store(&s->rq_head, 0);
    atomic_store(&s->rq_tail, 0);
    atomic_store(&s->established, 0);
    atomic_store(&s->id, qp->x.qp_base.qp_num);
}

static void enlist(struct sv_qp *qp, struct sv_context *c)
{
    struct sv_fabric *f = c->f;

    pthread_mutex_lock(&f->objects);
    qp->next = f->qps;
    f->qps = qp;
    f->by_slot[qp->slot - f->s->qps] = qp;
    pthread_mutex_unlock(&f->objects);
    sv_cq_of(qp->x.qp_base.send_cq)->users++;
    sv_cq_of(qp->x.qp_base.recv_cq)->users++;
    ((struct sv_pd *)(void *)qp->x.qp_base.pd)->users++;
    c->n_qp++;
}

struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
    struct sv_context *c = sv_context_of(context);
    int rc = check_caps(c, a);
    struct sv_qp *qp = rc ? NULL : alloc_queues(a);
    struct ibv_qp *base;

    if (!qp) {
        errno = rc ? rc : ENOMEM;
        return NULL;
    }
    qp->slot = sv_qp_alloc(c->f);
    if (!qp->slot) {
        free_queues(qp);
        errno = ENOMEM;
        return NULL;
    }
    base = &qp->x.qp_base;
    base->context = context;
    base->qp_context = a->qp_context;
    base->pd = a->pd;
    base->send_cq = a->send_cq;
    base->recv_cq = a->recv_cq;
    base->handle = (uint32_t)(qp->slot - c->f->s->qps);
    base->qp_num = qp->slot->generation << SV_QP_BITS | base->handle;
    base->state = IBV_QPS_RESET;
    base->qp_type = a->qp_type;
    pthread_mutex_init(&base->mutex, NULL);
    pthread_cond_init(&base->cond, NULL);
    pthread_mutex_init(&qp->lock, NULL);
    qp->ctx = c;
    qp->sig_all = a->sq_sig_all != 0;
    qp->due = SV_NEVER;
    publish(qp, c);
    enlist(qp, c);
    return base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = pd};

    return sv_create_qp_ex(pd->context, &ex);
}

/* Paused. The peers are kept off, what they had sent is delivered. */
static void cut_off(struct sv_qp *qp, enum ibv_qp_state state)
{
    struct sv_fabric *f = qp->ctx->f;

    atomic_store(&qp->slot->state, state);
    sv_fence_qp(f, qp->x.qp_base.qp_num);
    sv_mail_drain(f);
}

static void delist(struct sv_qp *qp)
{
    struct sv_fabric *f = qp->ctx->f;
    struct sv_qp **at;

    pthread_mutex_lock(&f->objects);
    for (at = &f->qps; *at && *at != qp; at = &(*at)->next)
        continue;
    if (*at)
        *at = qp->next;
    f->by_slot[qp->slot - f->s->qps] = NULL;
    pthread_mutex_unlock(&f->objects);
    sv_cq_of(qp->x.qp_base.send_cq)->users--;
    sv_cq_of(qp->x.qp_base.recv_cq)->users--;
    ((struct sv_pd *)(void *)qp->x.qp_base.pd)->users--;
    qp->ctx->n_qp--;
}

/* Off the lists; what peers sent, and completions not yet polled, are gone. */
static void detach_qp(struct sv_qp *qp)
{
    struct ibv_qp *base = &qp->x.qp_base;

    sv_pause(qp);
    atomic_store(&qp->slot->id, 0);
    cut_off(qp, IBV_QPS_RESET);
    delist(qp);
    sv_cq_clean(sv_cq_of(base->send_cq), qp);
    sv_cq_clean(sv_cq_of(base->recv_cq), qp);
    sv_async_forget(qp->ctx, base);
    sv_qp_free(qp->ctx->f->s, qp->slot);
}

static void free_qp(struct sv_qp *qp)
{
    pthread_mutex_destroy(&qp->x.qp_base.mutex);
    pthread_cond_destroy(&qp->x.qp_base.cond);
    pthread_mutex_destroy(&qp->lock);
    free_queues(qp);
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
    struct sv_qp *qp = sv_qp_of(ibqp);

    if (!qp->ctx->f->forked) {
        detach_qp(qp);
        pthread_mutex_lock(&ibqp->mutex);
        while (ibqp->events_completed != qp->async_events)
            pthread_cond_wait(&ibqp->cond, &ibqp->mutex);
        pthread_mutex_unlock(&ibqp->mutex);
    }
    free_qp(qp);
    return 0;
}

static struct sv_qp *first_qp(struct sv_context *c)
{
    struct sv_qp *qp;

    pthread_mutex_lock(&c->f->objects);
    for (qp = c->f->qps; qp && qp->ctx != c; qp = qp->next)
        continue;
    pthread_mutex_unlock(&c->f->objects);
    return qp;
}

void sv_qps_abandon(struct sv_context *c)
{
    struct sv_qp *qp;

    while ((qp = first_qp(c))) {
        detach_qp(qp);
        free_qp(qp);
    }
}

/* ----------------------------------------------------------------------------------- transitions */

#define ALT  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define LIVE (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT)

static const struct transition {
    enum ibv_qp_state from, to;
    int required, optional;
} transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     LIVE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, LIVE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, LIVE},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS |
         IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | ALT},
};

static bool transition_ok(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) == 0;
    for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        const struct transition *t = &transitions[i];

        if (t->from == from && t->to == to)
            return (mask & t->required) == t->required &&
                   (mask & ~(t->required | t->optional | IBV_QP_STATE)) == 0;
    }
    return false;
}

static bool address_ok(const struct sv_nic *nic, const struct ibv_ah_attr *ah)
{
    const struct sv_gid *own;

    if (ah->port_num > 1)
        return false;
    if (!ah->is_global)
        return !nic->ethernet; /* RoCE has no addresses but GIDs */
    if (ah->grh.sgid_index >= SV_MAX_GIDS)
        return false;
    own = &nic->gids[ah->grh.sgid_index];
    if (own->prefix == 0 && own->id == 0)
        return false;
    return ah->grh.dgid.global.subnet_prefix || ah->grh.dgid.global.interface_id;
}

static bool values_ok(const struct sv_nic *nic, const struct ibv_qp_attr *a, int mask)
{
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

    if ((mask & IBV_QP_PORT) && a->port_num != 1)
        return false;
    if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0)
        return false;
    if ((mask & IBV_QP_ACCESS_FLAGS) && (a->qp_access_flags & ~access))
        return false;
    if ((mask & IBV_QP_AV) && !address_ok(nic, &a->ah_attr))
        return false;
    if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > nic->mtu))
        return false;
    if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num > 0xffffff)
        return false;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > nic->limits.max_qp_rd_atom)
        return false;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > nic->limits.max_qp_rd_atom)
        return false;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
        return false;
    if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
        return false;
    if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
        return false;
    return !(mask & IBV_QP_RNR_RETRY) || a->rnr_retry <= 7;
}

/* ---------------------------------------------------------------------------------------- modify */

static void keep(struct ibv_qp_attr *own, const struct ibv_qp_attr *a, int mask)
{
    if (mask & IBV_QP_PORT)
        own->port_num = a->port_num;
    if (mask & IBV_QP_ACCESS_FLAGS)
        own->qp_access_flags = a->qp_access_flags;
    if (mask & IBV_QP_AV)
        own->ah_attr = a->ah_attr;
    if (mask & IBV_QP_PATH_MTU)
        own->path_mtu = a->path_mtu;
    if (mask & IBV_QP_DEST_QPN)
        own->dest_qp_num = a->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN)
        own->rq_psn = a->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        own->sq_psn = a->sq_psn & 0xffffff;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        own->max_dest_rd_atomic = a->max_dest_rd_atomic;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        own->max_rd_atomic = a->max_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        own->min_rnr_timer = a->min_rnr_timer;
    if (mask & IBV_QP_TIMEOUT)
        own->timeout = a->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        own->retry_cnt = a->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY)
        own->rnr_retry = a->rnr_retry;
}

/* What peers look at. */
static void publish_attr(struct sv_qp *qp, int mask)
{
    struct sv_qp_slot *s = qp->slot;
    const struct ibv_qp_attr *a = &qp->attr;
    const struct ibv_ah_attr *ah = &a->ah_attr;

    atomic_store(&s->access, a->qp_access_flags);
    atomic_store(&s->dest_qpn, a->dest_qp_num);
    atomic_store(&s->is_global, ah->is_global);
    atomic_store(&s->dlid, ah->dlid);
    atomic_store(&s->sgid_index, ah->grh.sgid_index);
    atomic_store(&s->dgid_prefix, ah->grh.dgid.global.subnet_prefix);
    atomic_store(&s->dgid_id, ah->grh.dgid.global.interface_id);
    atomic_store(&s->path_mtu, (uint32_t)a->path_mtu);
    atomic_store(&s->dest_rd_atomic, a->max_dest_rd_atomic);
    atomic_store(&s->rnr_timer, a->min_rnr_timer);
    if (mask & IBV_QP_RQ_PSN)
        atomic_store(&s->rq_psn, a->rq_psn);
    if (mask & IBV_QP_SQ_PSN)
        qp->sq_psn = a->sq_psn;
}

/* qp.lock held, paused. */
static void empty_queues(struct sv_qp *qp)
{
    qp->launched = qp->done = qp->posted;
    atomic_store(&qp->sq_freed, qp->posted);
    qp->rq_done = qp->rq_posted;
    atomic_store(&qp->rq_freed, qp->rq_posted);
    atomic_store(&qp->slot->rq_tail, qp->rq_posted);
    atomic_store(&qp->slot->rq_head, qp->rq_posted);
    atomic_store(&qp->slot->established, 0);
    qp->stuck = false;
    qp->reads_out = qp->retries = qp->rnr_retries = 0;
    qp->reads_full = false;
    qp->ready_at = qp->wire_end = qp->wait_until = 0;
}

/* qp.lock held. The engine, when it sees the state, flushes. */
void sv_qp_fail(struct sv_qp *qp)
{
    if (qp->state == IBV_QPS_ERR)
        return;
    atomic_store(&qp->slot->state, IBV_QPS_ERR);
    sv_fence_qp(qp->ctx->f, qp->x.qp_base.qp_num);
    qp->state = IBV_QPS_ERR;
    sv_kick(qp);
}

void sv_qp_event(struct sv_qp *qp, enum ibv_event_type type)
{
    struct ibv_async_event event = {.event_type = type};

    event.element.qp = &qp->x.qp_base;
    sv_async_push(qp->ctx, event);
}

/* Paused. */
static void enter(struct sv_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *a, int mask)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        cut_off(qp, to);
    pthread_mutex_lock(&qp->lock);
    keep(&qp->attr, a, mask);
    publish_attr(qp, mask);
    if (to == IBV_QPS_RESET) {
        empty_queues(qp);
        sv_cq_clean(sv_cq_of(qp->x.qp_base.send_cq), qp);
        sv_cq_clean(sv_cq_of(qp->x.qp_base.recv_cq), qp);
    }
    qp->drain = to == IBV_QPS_SQD && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify;
    qp->state = to;
    qp->x.qp_base.state = to;
    atomic_store(&qp->slot->state, to);
    pthread_mutex_unlock(&qp->lock);
}

int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *a, int mask)
{
    struct sv_qp *qp = sv_qp_of(ibqp);
    enum ibv_qp_state from, to;
    int rc = 0;

    if (sv_dead(qp->ctx))
        return EIO;
    if (sv_denied(qp->ctx->nic, SV_DENY_modify_qp))
        return errno;
    if (!values_ok(qp->ctx->nic, a, mask))
        return EINVAL;
    sv_pause(qp);
    pthread_mutex_lock(&qp->lock);
    from = qp->state;
    pthread_mutex_unlock(&qp->lock);
    to = mask & IBV_QP_STATE ? a->qp_state : from;
    if (((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != from) || !transition_ok(from, to, mask))
        rc = EINVAL;
    else if (to != from || to != IBV_QPS_ERR)
        enter(qp, to, a, mask);
    sv_resume(qp);
    return rc;
}

int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *a, int mask,
                 struct ibv_qp_init_attr *init)
{
    struct sv_qp *qp = sv_qp_of(ibqp);

    (void)mask;
    if (sv_dead(qp->ctx))
        return EIO;
    pthread_mutex_lock(&qp->lock);
    *a = qp->attr;
    a->qp_state = a->cur_qp_state = qp->state;
    a->cap = qp->cap;
    a->sq_psn = qp->sq_psn;
    a->rq_psn = qp->slot->rq_psn;
    a->sq_draining = qp->state == IBV_QPS_SQD && qp->done != qp->launched;
    pthread_mutex_unlock(&qp->lock);
    ibqp->state = a->qp_state;
    memset(init, 0, sizeof(*init));
    init->qp_context = ibqp->qp_context;
    init->send_cq = ibqp->send_cq;
    init->recv_cq = ibqp->recv_cq;
    init->cap = qp->cap;
    init->qp_type = ibqp->qp_type;
    init->sq_sig_all = qp->sig_all;
    return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    return sv_qp_of(qp)->ops ? &sv_qp_of(qp)->x : NULL;
}
