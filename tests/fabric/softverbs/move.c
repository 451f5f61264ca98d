/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - one step of a work request, as the requesting and the answering NIC carry it out.
 *
 * The engine calls sv_move_some() for the request at the head of a send queue, without the QP's
 * lock. It takes a hold on the target QP, and asks in this order what hardware asks:
 *
 *   own port, target there and answering   else SV_NO_ANSWER; the engine counts retries
 *   own memory (lkey, range, access, PD)   else LOC_PROT_ERR
 *   a receive where one is needed          else SV_NOT_READY; the engine counts RNR retries
 *   what the target QP and MR allow        else REM_INV_REQ_ERR or REM_ACCESS_ERR; the target's
 *                                          QP breaks, too, and its owner gets the event
 *
 * What the target answers may be lost: the request is then sent again like one that nobody answers, and the target
 * answers what it has done already without doing it again.
 *
 * and then copies at most SV_CHUNK bytes under a hold on both MRs. The last step of a SEND mails
 * the receive's completion. All holds are given back before it returns.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct step {
    struct sv_fabric *f;
    struct sv_qp *qp;
    struct sv_wr *wr;
    struct sv_qp_slot *target;
    struct sv_proc *peer;
    uint32_t peer_slot;
    bool same;     /* the target is in this process */
    bool is_heard; /* what the target answers comes */
};

static struct sv_move answer(enum sv_result result)
{
    return (struct sv_move){.result = result};
}

static struct sv_move failure(enum ibv_wc_status status)
{
    return (struct sv_move){.result = SV_FAILED, .status = status};
}

/* ---------------------------------------------------------------------------------- reachability */

static bool nic_has_gid(const struct sv_nic *nic, uint64_t prefix, uint64_t id, uint32_t type)
{
    for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
        if (nic->gids[i].prefix == prefix && nic->gids[i].id == id && nic->gids[i].type == type)
            return true;
    return false;
}

/* Whether packets sent by `from` as its attributes say arrive at the NIC `to`. */
static bool addressed(const struct sv_state *s, const struct sv_qp_slot *from,
                      const struct sv_nic *to)
{
    const struct sv_nic *own = &s->nics[atomic_load(&from->nic)];
    uint32_t gid = atomic_load(&from->sgid_index) % SV_MAX_GIDS;

    if (own->ethernet != to->ethernet)
        return false;
    if (!to->ethernet && from->dlid != to->lid)
        return false;
    return !from->is_global ||
           nic_has_gid(to, from->dgid_prefix, from->dgid_id, own->gids[gid].type);
}

static bool nic_answers(const struct sv_nic *nic)
{
    return nic->port_up && !nic->dead && nic->stall_until <= sv_now();
}

/* Whether what the NIC of a QP sends comes to that of another. */
static bool passes(const struct sv_state *s, const struct sv_qp_slot *from,
                   const struct sv_qp_slot *to)
{
    if (s->nics[from->nic].blocked >> to->nic & 1)
        return false;
    return !sv_world() || sv_world()->reaches(s->procs[from->proc].pid, s->procs[to->proc].pid);
}

/* The target QP, if it is there and what is sent comes to it; NULL else. */
static struct sv_qp_slot *find_target(struct sv_qp *qp)
{
    struct sv_state *s = qp->ctx->f->s;
    uint32_t qpn = qp->slot->dest_qpn, state;
    struct sv_qp_slot *t = &s->qps[qpn & (SV_MAX_QPS - 1)];
    struct sv_nic *nic;

    if (atomic_load(&t->id) != qpn || qpn == 0)
        return NULL;
    state = atomic_load(&t->state);
    nic = &s->nics[atomic_load(&t->nic)];
    if (state < IBV_QPS_RTR || state > IBV_QPS_SQE || t->dest_qpn != qp->x.qp_base.qp_num)
        return NULL;
    if (!nic_answers(nic) || nic->generation != t->nic_generation || !qp->ctx->nic->port_up ||
        !passes(s, qp->slot, t))
        return NULL;
    if (!addressed(s, qp->slot, nic) || !addressed(s, t, qp->ctx->nic))
        return NULL;
    return t->rq_psn == qp->sq_psn ? t : NULL;
}

uint32_t sv_target_nic(struct sv_qp *qp)
{
    struct sv_qp_slot *t = find_target(qp);

    return t ? t->nic : SV_MAX_NICS;
}

/* ---------------------------------------------------------------------------------------- memory */

/* Checks a range of an MR and translates it to the owner's address. The caller holds the key. */
static bool range_ok(struct sv_state *s, uint32_t key, uint32_t proc, uint32_t pd, uint32_t nic,
                     uint64_t addr, uint64_t length, unsigned access, uint64_t *out)
{
    struct sv_mr *mr = &s->mrs[key & (SV_MAX_MRS - 1)];
    uint64_t iova, size;
    bool ok;

    if (key == 0 || atomic_load(&mr->key) != key)
        return false;
    iova = mr->iova;
    size = mr->length;
    ok = mr->proc == proc && mr->pd == pd && mr->nic == nic && (mr->access & access) == access &&
         addr >= iova && length <= size && addr - iova <= size - length;
    *out = mr->addr + (addr - iova);
    return ok && atomic_load(&mr->key) == key;
}

static bool local_ok(const struct step *st)
{
    const struct sv_qp *qp = st->qp;
    const struct sv_wr *wr = st->wr;
    unsigned access = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
    uint64_t at;

    if (wr->flags & IBV_SEND_INLINE)
        return true;
    for (uint32_t i = 0; i < wr->num_sge; i++)
        if (wr->sge[i].length > 0 &&
            !range_ok(st->f->s, wr->sge[i].lkey, st->f->slot, qp->x.qp_base.pd->handle,
                      qp->ctx->nic_index, wr->sge[i].addr, wr->sge[i].length, access, &at))
            return false;
    return true;
}

/* The part of a list of buffers at an offset; false behind its end. */
static bool piece_at(const struct ibv_sge *sge, uint32_t n, uint32_t offset, struct ibv_sge *out)
{
    for (uint32_t i = 0; i < n; i++) {
        if (offset < sge[i].length) {
            *out = (struct ibv_sge){.addr = sge[i].addr + offset,
                                    .length = sge[i].length - offset,
                                    .lkey = sge[i].lkey};
            return true;
        }
        offset -= sge[i].length;
    }
    return false;
}

/* ----------------------------------------------------------------------------------------- copying */

/* Copies between this process and the peer, whose iovec has its length already. 0, or an errno. */
static int copy(const struct step *st, uint64_t local, uint64_t remote, uint32_t n, bool to_remote)
{
    struct iovec own = {.iov_base = (void *)(uintptr_t)local, .iov_len = n};
    struct iovec *far = &st->f->me->remote_iov;
    pid_t pid = (pid_t)st->peer->pid;
    ssize_t done;

    if (sv_world())
        return to_remote ? sv_world()->copy((void *)(uintptr_t)remote, own.iov_base, n, st->f->pid,
                                            st->peer->pid)
                         : sv_world()->copy(own.iov_base, (void *)(uintptr_t)remote, n,
                                            st->peer->pid, st->f->pid);
    if (st->same) {
        if (to_remote)
            memmove((void *)(uintptr_t)remote, own.iov_base, n);
        else
            memmove(own.iov_base, (void *)(uintptr_t)remote, n);
        return 0;
    }
    far->iov_base = (void *)(uintptr_t)remote;
    if (to_remote)
        done = process_vm_writev(pid, &own, 1, far, 1, 0);
    else
        done = process_vm_readv(pid, &own, 1, far, 1, 0);
    if (done == (ssize_t)n)
        return 0;
    return done < 0 ? errno : EFAULT;
}

/* One piece, of which each end lies in one MR (key 0 for inline data). */
struct piece {
    uint64_t local, remote;
    uint32_t length, local_key, remote_key;
};

static struct sv_move copy_held(const struct step *st, struct piece *p, unsigned remote_access)
{
    const struct sv_qp *qp = st->qp;
    bool read = st->wr->opcode == IBV_WR_RDMA_READ;
    uint64_t local = p->local, remote;
    int rc;

    if (p->local_key &&
        !range_ok(st->f->s, p->local_key, st->f->slot, qp->x.qp_base.pd->handle, qp->ctx->nic_index,
                  p->local, p->length, read ? IBV_ACCESS_LOCAL_WRITE : 0, &local))
        return failure(IBV_WC_LOC_PROT_ERR);
    if (!range_ok(st->f->s, p->remote_key, st->peer_slot, st->target->pd, st->target->nic,
                  p->remote, p->length, remote_access, &remote))
        return failure(IBV_WC_REM_ACCESS_ERR);
    rc = copy(st, local, remote, p->length, !read);
    if (rc == ESRCH)
        return answer(SV_NO_ANSWER);
    return rc ? failure(IBV_WC_REM_OP_ERR) : answer(SV_MOVED);
}

static struct sv_move copy_piece(const struct step *st, struct piece *p, unsigned remote_access)
{
    struct sv_proc *me = st->f->me;
    struct sv_move m;

    atomic_store(&me->hold_mr[0], p->local_key);
    atomic_store(&me->hold_mr[1], p->remote_key);
    /* Before anything is looked at: who deregisters while this is stopped makes it 0, for good. */
    __atomic_store_n(&me->remote_iov.iov_len, p->length, __ATOMIC_SEQ_CST);
    m = copy_held(st, p, remote_access);
    atomic_store(&me->hold_mr[0], 0);
    atomic_store(&me->hold_mr[1], 0);
    return m;
}

/* ---------------------------------------------------------------------------------------- one-sided */

/* The target's QP breaks, as on hardware, when it was asked for what it does not allow. */
static struct sv_move refuse(const struct step *st, enum ibv_wc_status status, uint32_t event)
{
    struct sv_mail m = {.kind = SV_MAIL_QP_ERROR, .qpn = st->target->id, .status = event};

    sv_mail_post(st->peer, &m, NULL);
    return failure(status);
}

static struct sv_move move_rdma(const struct step *st)
{
    struct sv_wr *wr = st->wr;
    bool read = wr->opcode == IBV_WR_RDMA_READ;
    unsigned access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    uint32_t stop = wr->length - wr->moved > SV_CHUNK ? wr->moved + SV_CHUNK : wr->length;
    uint64_t whole;

    if (!(st->target->access & access) || (read && st->qp->reads_out > st->target->dest_rd_atomic))
        return refuse(st, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    if (wr->moved == 0 && wr->length > 0 &&
        !range_ok(st->f->s, wr->rkey, st->peer_slot, st->target->pd, st->target->nic,
                  wr->remote_addr, wr->length, access, &whole))
        return refuse(st, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    if (read && !st->is_heard) /* the bytes are the answer */
        return answer(SV_NO_ANSWER);
    while (wr->moved < stop) {
        struct piece p = {.remote = wr->remote_addr + wr->moved, .remote_key = wr->rkey};
        struct ibv_sge own;
        struct sv_move m;

        if (!piece_at(wr->sge, wr->num_sge, wr->moved, &own))
            break;
        p.local = own.addr;
        p.local_key = own.lkey;
        p.length = own.length < stop - wr->moved ? own.length : stop - wr->moved;
        m = copy_piece(st, &p, access);
        if (m.result == SV_FAILED && m.status == IBV_WC_REM_ACCESS_ERR)
            return refuse(st, m.status, IBV_EVENT_QP_ACCESS_ERR);
        if (m.result != SV_MOVED)
            return m;
        wr->moved += p.length;
    }
    return answer(SV_MOVED);
}

/* ---------------------------------------------------------------------------------------- two-sided */

static bool takes_receive(const struct sv_wr *wr)
{
    return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM ||
           wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The receive that comes next. False when there is none. */
static bool next_receive(const struct step *st, struct sv_recv *out, int *error)
{
    struct sv_qp_slot *t = st->target;
    uint32_t head = atomic_load(&t->rq_head);

    *error = 0;
    if (head == atomic_load(&t->rq_tail))
        return false;
    st->f->me->remote_iov.iov_len = sizeof(*out);
    *error = copy(st, (uintptr_t)out, t->rq_addr + (head & t->rq_mask) * sizeof(*out), sizeof(*out),
                  false);
    if (!*error && out->num_sge > SV_MAX_SGE)
        *error = EFAULT;
    return true;
}

static bool mail_receive(const struct step *st, enum ibv_wc_status status, uint32_t length)
{
    const struct sv_wr *wr = st->wr;
    bool imm = wr->opcode != IBV_WR_SEND;
    struct sv_mail m = {.kind = SV_MAIL_RECV,
                        .qpn = st->target->id,
                        .rq_index = st->target->rq_head,
                        .status = status,
                        .opcode = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM
                                      ? IBV_WC_RECV_RDMA_WITH_IMM
                                      : IBV_WC_RECV,
                        .byte_len = length,
                        .imm = imm ? wr->imm : 0,
                        .wc_flags = imm ? IBV_WC_WITH_IMM : 0,
                        .src_qp = st->qp->x.qp_base.qp_num,
                        .solicited = (wr->flags & IBV_SEND_SOLICITED) != 0};

    return sv_mail_post(st->peer, &m, &st->target->rq_head);
}

/* The receive cannot take the message: it ends with `own`, the QPs break, the sender gets `far`. */
static struct sv_move spoil_receive(const struct step *st, enum ibv_wc_status own,
                                    enum ibv_wc_status far)
{
    mail_receive(st, own, 0);
    return refuse(st, far, UINT32_MAX);
}

static struct sv_move move_send(const struct step *st, const struct sv_recv *r)
{
    struct sv_wr *wr = st->wr;
    uint32_t stop = wr->length - wr->moved > SV_CHUNK ? wr->moved + SV_CHUNK : wr->length;
    uint64_t room = 0;

    for (uint32_t i = 0; i < r->num_sge; i++)
        room += r->sge[i].length;
    if (room < wr->length)
        return spoil_receive(st, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    while (wr->moved < stop) {
        struct ibv_sge own, far;
        struct piece p;
        struct sv_move m;

        if (!piece_at(wr->sge, wr->num_sge, wr->moved, &own) ||
            !piece_at(r->sge, r->num_sge, wr->moved, &far))
            break;
        p = (struct piece){own.addr, far.addr, stop - wr->moved, own.lkey, far.lkey};
        if (own.length < p.length)
            p.length = own.length;
        if (far.length < p.length)
            p.length = far.length;
        m = copy_piece(st, &p, IBV_ACCESS_LOCAL_WRITE);
        if (m.result == SV_FAILED && m.status == IBV_WC_REM_ACCESS_ERR)
            return spoil_receive(st, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
        if (m.result != SV_MOVED)
            return m;
        wr->moved += p.length;
    }
    return answer(SV_MOVED);
}

/* -------------------------------------------------------------------------------------------- a step */

static uint32_t packets(const struct sv_qp *qp, uint32_t length)
{
    uint32_t mtu = 128u << qp->attr.path_mtu;

    return length == 0 ? 1 : (length + mtu - 1) / mtu;
}

/* The last byte is there: count the message in both QPs. */
static void finish(const struct step *st)
{
    uint32_t next = (st->qp->sq_psn + packets(st->qp, st->wr->length)) & 0xffffff;

    st->wr->arrived = true;
    st->qp->sq_psn = next;
    atomic_store(&st->target->rq_psn, next);
}

static void establish(const struct step *st)
{
    struct sv_mail m = {.kind = SV_MAIL_ESTABLISHED, .qpn = st->target->id};

    if (!atomic_exchange(&st->target->established, 1) && st->target->state == IBV_QPS_RTR)
        sv_mail_post(st->peer, &m, NULL);
}

static struct sv_move carry_out(struct step *st)
{
    struct sv_wr *wr = st->wr;
    struct sv_recv recv = {0};
    struct sv_move m;
    int error;

    if (wr->moved == 0 && !local_ok(st))
        return failure(IBV_WC_LOC_PROT_ERR);
    if (wr->length > 128u << st->target->path_mtu && st->qp->attr.path_mtu > st->target->path_mtu)
        return refuse(st, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    establish(st);
    if (takes_receive(wr)) {
        if (!next_receive(st, &recv, &error))
            return (struct sv_move){.result = SV_NOT_READY, .rnr_timer = st->target->rnr_timer};
        if (error)
            return answer(SV_NO_ANSWER);
    }
    if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM)
        m = move_send(st, &recv);
    else
        m = move_rdma(st);
    if (m.result != SV_MOVED || wr->moved < wr->length)
        return m;
    if (takes_receive(wr) && !mail_receive(st, IBV_WC_SUCCESS, wr->length))
        return answer(SV_BUSY);
    finish(st);
    return m;
}

/* What the requester learns of it: what it has seen itself, and what it is answered. */
static struct sv_move hear(const struct step *st, struct sv_move m)
{
    bool is_own = m.result == SV_FAILED && m.status == IBV_WC_LOC_PROT_ERR;
    bool goes_on = m.result == SV_MOVED && st->wr->moved < st->wr->length;

    return st->is_heard || is_own || goes_on || m.result == SV_BUSY ? m : answer(SV_NO_ANSWER);
}

struct sv_move sv_move_some(struct sv_qp *qp, struct sv_wr *wr)
{
    struct step st = {.f = qp->ctx->f, .qp = qp, .wr = wr};
    struct sv_move m = answer(SV_NO_ANSWER);

    atomic_store(&st.f->me->hold_qp, qp->slot->dest_qpn);
    st.target = find_target(qp);
    if (st.target) {
        st.peer_slot = st.target->proc;
        st.peer = &st.f->s->procs[st.peer_slot];
        st.same = st.peer_slot == st.f->slot;
        st.is_heard = passes(st.f->s, st.target, qp->slot);
        if (sv_peer_alive(st.f, st.peer_slot))
            m = hear(&st, wr->arrived ? answer(SV_MOVED) : carry_out(&st));
    }
    atomic_store(&st.f->me->hold_qp, 0);
    return m;
}
