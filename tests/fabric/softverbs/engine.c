/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - the thread that stands for the NICs of a process.
 *
 * A send queue is a ring with three running numbers, done <= launched <= posted. Posting appends.
 * Launching a request reserves its time on the wires of both NICs, in the order posted, at most
 * HORIZON ahead of the clock, so that the QPs of a NIC share it. Its time begins when the request
 * could have gone, not when the engine came to see it: on a busy machine that is often later, and
 * the NIC would be slower than it is said to be. The oldest one launched is carried out in steps of SV_CHUNK (move.c), each when its share of the time on the wire is over, and
 * completes when all of it and the latency are; only then is a completion to be seen.
 *
 * The engine sleeps on the process's bell until the next QP is due; `heap` orders them. A QP is in
 * one of these places: nowhere (nothing to do but on a kick), in the heap, or `running`. Posting,
 * and everything else that may give a QP something new to do, kicks it: it is put on a list and
 * looked at next. modify_qp and destroy_qp pause a QP: when sv_pause() returns the engine is off it
 * and stays off until sv_resume(). The engine holds no lock while bytes move, so posting never
 * waits for a copy.
 *
 * When nobody answers, the request stays at the head and is tried again each 4.096 us * 2^timeout,
 * retry_cnt times, after which it fails with RETRY_EXC_ERR; likewise for a receiver that is not
 * ready. A request that fails completes with its status whether it was signaled or not, the QP goes
 * to ERR, and everything behind is flushed in order.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HORIZON  SV_MS        /* how far ahead of the clock a QP may reserve the wire */
#define LATENESS (20 * SV_MS) /* of the engine, that costs the wire nothing */
#define STEPS    16           /* of one QP before others have their turn */
#define COALESCE (20 * SV_US) /* due within this: done at once, for the sake of fewer wake-ups */

/* -------------------------------------------------------------------------------------- the heap */

static void place(struct sv_fabric *f, uint32_t at, struct sv_qp *qp)
{
    f->heap[at] = qp;
    qp->heap_index = at + 1;
}

static void sift(struct sv_fabric *f, uint32_t at)
{
    struct sv_qp *qp = f->heap[at];

    while (at > 0 && f->heap[(at - 1) / 2]->due > qp->due) {
        place(f, at, f->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < f->heap_len && f->heap[child + 1]->due < f->heap[child]->due)
            child++;
        if (child >= f->heap_len || f->heap[child]->due >= qp->due)
            break;
        place(f, at, f->heap[child]);
        at = child;
    }
    place(f, at, qp);
}

static void heap_remove(struct sv_fabric *f, struct sv_qp *qp)
{
    uint32_t at = qp->heap_index - 1;

    if (qp->heap_index == 0)
        return;
    qp->heap_index = 0;
    f->heap_len--;
    if (at != f->heap_len) {
        place(f, at, f->heap[f->heap_len]);
        sift(f, at);
    }
}

static void heap_put(struct sv_fabric *f, struct sv_qp *qp, int64_t due)
{
    qp->due = due;
    if (qp->heap_index == 0) {
        if (f->heap_len == f->heap_cap) {
            f->heap_cap = f->heap_cap * 2 + 64;
            f->heap = realloc(f->heap, f->heap_cap * sizeof(*f->heap));
            if (!f->heap)
                abort();
        }
        place(f, f->heap_len++, qp);
    }
    sift(f, qp->heap_index - 1);
}

/* ------------------------------------------------------------------------------- kick, pause, resume */

void sv_kick(struct sv_qp *qp)
{
    struct sv_fabric *f = qp->ctx->f;
    bool ring = false;

    pthread_mutex_lock(&f->run_lock);
    if (!qp->kicked && !qp->paused) {
        qp->kicked = ring = true;
        qp->kicked_next = f->kicked;
        f->kicked = qp;
    }
    pthread_mutex_unlock(&f->run_lock);
    if (ring)
        sv_ring(f->me);
}

/* run_lock held. */
static void unkick(struct sv_fabric *f, struct sv_qp *qp)
{
    struct sv_qp **at = &f->kicked;

    if (!qp->kicked)
        return;
    while (*at != qp)
        at = &(*at)->kicked_next;
    *at = qp->kicked_next;
    qp->kicked = false;
}

void sv_pause(struct sv_qp *qp)
{
    struct sv_fabric *f = qp->ctx->f;

    pthread_mutex_lock(&f->run_lock);
    while (qp->paused)
        pthread_cond_wait(&f->idle, &f->run_lock);
    atomic_store(&qp->paused, true);
    while (f->running == qp)
        pthread_cond_wait(&f->idle, &f->run_lock);
    heap_remove(f, qp);
    unkick(f, qp);
    pthread_mutex_unlock(&f->run_lock);
}

void sv_resume(struct sv_qp *qp)
{
    struct sv_fabric *f = qp->ctx->f;

    pthread_mutex_lock(&f->run_lock);
    atomic_store(&qp->paused, false);
    pthread_cond_broadcast(&f->idle);
    pthread_mutex_unlock(&f->run_lock);
    sv_kick(qp);
}

/* -------------------------------------------------------------------------------------- launching */

static int64_t reserve(struct sv_wire *w, uint64_t rate, int64_t now, uint64_t bytes)
{
    int64_t from = atomic_load(&w->free), takes, end;

    if (rate == 0)
        return now;
    takes = (int64_t)(bytes * 1000000000 / rate);
    do {
        end = (from > now ? from : now) + takes;
    } while (!atomic_compare_exchange_weak(&w->free, &from, end));
    atomic_fetch_add(&w->taken, takes);
    return end;
}

/* When a NIC would have begun with the request. */
static int64_t ready_time(const struct sv_qp *qp, const struct sv_wr *wr, int64_t now)
{
    int64_t ready = wr->posted_at > qp->ready_at ? wr->posted_at : qp->ready_at;

    return ready > now - LATENESS ? ready : now - LATENESS;
}

static void reserve_wires(struct sv_qp *qp, struct sv_wr *wr, int64_t now)
{
    struct sv_nic *own = qp->ctx->nic, *far;
    bool read = wr->opcode == IBV_WR_RDMA_READ;
    uint32_t index = sv_target_nic(qp);
    int64_t end, ready = ready_time(qp, wr, now);

    wr->begin = wr->end = ready;
    if (index == SV_MAX_NICS)
        return;
    far = &qp->ctx->f->s->nics[index];
    wr->end = reserve(read ? &own->rx : &own->tx, own->rate, ready, wr->length);
    end = reserve(read ? &far->tx : &far->rx, far->rate, ready, wr->length);
    if (end > wr->end)
        wr->end = end;
    if (wr->end < qp->wire_end)
        wr->end = qp->wire_end;
    qp->wire_end = wr->end;
}

static bool port_silent(const struct sv_nic *nic)
{
    return !nic->port_up && !nic->down_retries;
}

/* Returns when to try again what could not be launched now. */
static int64_t launch(struct sv_qp *qp, int64_t now)
{
    while (qp->launched != qp->posted && qp->state == IBV_QPS_RTS) {
        struct sv_wr *wr = &qp->sq[qp->launched & qp->sq_mask];
        bool read = wr->opcode == IBV_WR_RDMA_READ;

        if (qp->launched != qp->done && qp->wire_end > now + HORIZON)
            return qp->wire_end - HORIZON;
        if (read && qp->attr.max_rd_atomic == 0)
            wr->fate = IBV_WC_LOC_QP_OP_ERR;
        else if (qp->reads_out > 0 && ((read && qp->reads_out >= qp->attr.max_rd_atomic) ||
                                       (wr->flags & IBV_SEND_FENCE))) {
            qp->reads_full = true; /* until one completes */
            return SV_NEVER;
        }
        reserve_wires(qp, wr, now);
        qp->reads_out += read;
        sv_count_most(&qp->ctx->counters->reads, qp->reads_out);
        qp->launched++;
    }
    return SV_NEVER;
}

/* ----------------------------------------------------------------------------------- carrying out */

/* When the next step of the oldest request is due. */
static int64_t step_due(const struct sv_qp *qp, const struct sv_wr *wr)
{
    uint32_t next = wr->length - wr->moved > SV_CHUNK ? wr->moved + SV_CHUNK : wr->length;
    double share;
    int64_t due;

    if (next == wr->length) {
        due = wr->end + qp->ctx->nic->latency_ns;
    } else {
        share = (double)next / wr->length;
        due = wr->begin + (int64_t)((double)(wr->end - wr->begin) * share);
    }
    return due > qp->wait_until ? due : qp->wait_until;
}

static void flush(struct sv_qp *qp)
{
    struct sv_mail none = {.status = IBV_WC_WR_FLUSH_ERR};

    pthread_mutex_unlock(&qp->lock);
    sv_mail_drain(qp->ctx->f); /* what was received before comes first */
    pthread_mutex_lock(&qp->lock);
    for (; qp->done != qp->posted; qp->done++)
        sv_complete_send(qp, qp->done, IBV_WC_WR_FLUSH_ERR);
    qp->launched = qp->posted;
    qp->reads_out = 0;
    while (qp->rq_done != qp->rq_posted)
        sv_complete_recv(qp, qp->rq_done, &none);
    atomic_store(&qp->slot->rq_head, qp->rq_posted);
}

static void fail(struct sv_qp *qp, enum ibv_wc_status status)
{
    sv_complete_send(qp, qp->done, status);
    qp->done++;
    atomic_fetch_add_explicit(&qp->ctx->counters->completions, 1, memory_order_relaxed);
    sv_qp_fail(qp);
}

static void succeed(struct sv_qp *qp, const struct sv_wr *wr)
{
    struct sv_counters *n = qp->ctx->counters;

    qp->reads_out -= wr->opcode == IBV_WR_RDMA_READ;
    if (qp->reads_full)
        qp->ready_at = wr->end + qp->ctx->nic->latency_ns;
    qp->reads_full = false;
    atomic_fetch_add_explicit(&n->completions, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n->bytes, wr->length, memory_order_relaxed);
    sv_complete_send(qp, qp->done, IBV_WC_SUCCESS);
    qp->done++;
}

static void wait_for_answer(struct sv_qp *qp)
{
    int64_t tick = qp->attr.timeout ? INT64_C(4096) << qp->attr.timeout : 10 * SV_MS;

    if (qp->attr.timeout && qp->retries > qp->attr.retry_cnt) {
        fail(qp, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    qp->retries++;
    qp->wait_until = sv_now() + tick;
}

static void wait_for_receiver(struct sv_qp *qp, uint32_t timer)
{
    static const int64_t us[] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                 160,    240,   320,   480,    640,    960,    1280,   1920,
                                 2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                 40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};

    if (qp->attr.rnr_retry != 7 && qp->rnr_retries >= qp->attr.rnr_retry) {
        fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    qp->rnr_retries++;
    qp->wait_until = sv_now() + us[timer & 31] * SV_US;
}

/* What was ordered by softverbs_ctl for the request that begins now. */
static void take_fate(struct sv_qp *qp, struct sv_wr *wr)
{
    struct sv_nic *nic = qp->ctx->nic;

    wr->phase = SV_WR_MOVING;
    if (!nic->faults || wr->fate)
        return;
    if (nic->drop_left > 0 && atomic_fetch_sub(&nic->drop_left, 1) > 0) {
        qp->stuck = true;
    } else if (nic->fail_count > 0 && atomic_fetch_sub(&nic->fail_in, 1) <= 1 &&
               atomic_fetch_sub(&nic->fail_count, 1) > 0) {
        wr->fate = nic->fail_status;
        wr->fate_late = nic->fail_moved;
    }
    if (nic->drop_left <= 0 && nic->fail_count <= 0)
        nic->faults = 0;
}

/* Whether the step that is due has to wait, as ordered by softverbs_ctl. */
static bool is_held(struct sv_nic *nic)
{
    int64_t left = atomic_load(&nic->hold_after);

    while (left > 1 && !atomic_compare_exchange_weak(&nic->hold_after, &left, left - 1))
        ;
    if (left == 1)
        atomic_store(&nic->held, 1);
    return left == 1;
}

/* qp.lock held; it is released while bytes move. */
static void advance(struct sv_qp *qp, struct sv_wr *wr)
{
    struct sv_move m = {.result = SV_FAILED, .status = (enum ibv_wc_status)wr->fate};

    if (!wr->fate || wr->fate_late) {
        pthread_mutex_unlock(&qp->lock);
        m = sv_move_some(qp, wr);
        pthread_mutex_lock(&qp->lock);
    }
    if (qp->state == IBV_QPS_ERR)
        return; /* broken meanwhile: it is flushed */
    switch (m.result) {
    case SV_MOVED:
        qp->retries = qp->rnr_retries = 0;
        qp->wait_until = 0;
        if (wr->moved < wr->length)
            break;
        if (wr->fate)
            fail(qp, (enum ibv_wc_status)wr->fate);
        else
            succeed(qp, wr);
        break;
    case SV_NO_ANSWER:
        wait_for_answer(qp);
        break;
    case SV_NOT_READY:
        wait_for_receiver(qp, m.rnr_timer);
        break;
    case SV_BUSY:
        qp->wait_until = sv_now() + 50 * SV_US;
        break;
    case SV_FAILED:
        fail(qp, m.status);
        break;
    }
}

static void tell_drained(struct sv_qp *qp)
{
    if (qp->drain && qp->done == qp->launched) {
        qp->drain = false;
        sv_qp_event(qp, IBV_EVENT_SQ_DRAINED);
    }
}

/* Looks at a QP; returns when to look again. */
static int64_t look_at(struct sv_qp *qp)
{
    struct sv_nic *nic = qp->ctx->nic;
    int64_t due = SV_NEVER, next, now = sv_now();

    pthread_mutex_lock(&qp->lock);
    for (unsigned i = 0; !atomic_load(&qp->paused) && !sv_dead(qp->ctx); i++) {
        struct sv_wr *wr = &qp->sq[qp->done & qp->sq_mask];

        if (qp->state == IBV_QPS_ERR) {
            flush(qp);
            break;
        }
        if (qp->stuck || port_silent(nic) || nic->stall_until > now) {
            due = qp->stuck || port_silent(nic) ? SV_NEVER : nic->stall_until;
            break;
        }
        next = launch(qp, now);
        if (qp->done == qp->launched) {
            tell_drained(qp);
            due = next;
            break;
        }
        due = step_due(qp, wr);
        if (due > now + COALESCE) {
            due = due < next ? due : next;
            break;
        }
        due = now;
        if (i == STEPS)
            break;
        due = SV_NEVER;
        if (is_held(nic))
            break;
        if (wr->phase == SV_WR_NEW)
            take_fate(qp, wr);
        if (qp->stuck)
            break;
        advance(qp, wr);
        now = sv_now();
    }
    pthread_mutex_unlock(&qp->lock);
    return due;
}

/* ------------------------------------------------------------------------------------------ events */

static void break_qps(struct sv_fabric *f, const struct sv_context *c, uint32_t qpn)
{
    for (struct sv_qp *qp = f->qps; qp; qp = qp->next) {
        if (qp->ctx != c || (qpn && qp->x.qp_base.qp_num != qpn))
            continue;
        pthread_mutex_lock(&qp->lock);
        sv_qp_event(qp, IBV_EVENT_QP_FATAL);
        sv_qp_fail(qp);
        pthread_mutex_unlock(&qp->lock);
    }
}

static void act(struct sv_fabric *f, struct sv_context *c, uint32_t type, uint32_t arg)
{
    struct ibv_async_event event = {.element.port_num = 1};

    if (type == SV_EVENT_CQ_ERR) {
        for (struct sv_cq *cq = f->cqs; cq; cq = cq->next)
            if (cq->ctx == c)
                sv_cq_fail(cq);
    } else if (type == SV_EVENT_QP_FATAL) {
        break_qps(f, c, arg);
    } else if (type < SV_EVENT_CQ_ERR) {
        event.event_type = (enum ibv_event_type)type;
        sv_async_push(c, event);
    }
}

/* objects held. */
static void take_events(struct sv_fabric *f, struct sv_context *c)
{
    uint64_t seq = atomic_load(&c->nic->event_seq);

    if (seq == c->event_seq)
        return;
    if (seq - c->event_seq > SV_EVENTS)
        c->event_seq = seq - SV_EVENTS;
    for (; c->event_seq != seq; c->event_seq++) {
        struct sv_event *e = &c->nic->events[c->event_seq % SV_EVENTS];

        if (c->generation == c->nic->generation || e->type == IBV_EVENT_DEVICE_FATAL)
            act(f, c, e->type, e->arg);
    }
    for (struct sv_qp *qp = f->qps; qp; qp = qp->next)
        if (qp->ctx == c)
            sv_kick(qp);
}

static void break_overrun(struct sv_fabric *f)
{
    for (struct sv_qp *qp = f->qps; qp; qp = qp->next)
        if (sv_cq_of(qp->x.qp_base.send_cq)->dead || sv_cq_of(qp->x.qp_base.recv_cq)->dead) {
            pthread_mutex_lock(&qp->lock);
            sv_qp_fail(qp);
            pthread_mutex_unlock(&qp->lock);
        }
}

static void look_around(struct sv_fabric *f)
{
    sv_mail_drain(f);
    pthread_mutex_lock(&f->objects);
    for (struct sv_context *c = f->contexts; c; c = c->next)
        take_events(f, c);
    if (atomic_exchange(&f->cq_overrun, false))
        break_overrun(f);
    pthread_mutex_unlock(&f->objects);
}

/* ------------------------------------------------------------------------------------------ thread */

/* run_lock held. Returns when the next QP is due, or 0 if something new is to be looked at. */
static int64_t run_due(struct sv_fabric *f, uint32_t bell)
{
    while (f->heap_len > 0 && f->heap[0]->due <= sv_now() + COALESCE) {
        struct sv_qp *qp = f->heap[0];
        int64_t due;

        heap_remove(f, qp);
        f->running = qp;
        pthread_mutex_unlock(&f->run_lock);
        due = look_at(qp);
        pthread_mutex_lock(&f->run_lock);
        f->running = NULL;
        if (qp->paused)
            pthread_cond_broadcast(&f->idle);
        else if (due != SV_NEVER && !qp->kicked)
            heap_put(f, qp, due);
        if (atomic_load(&f->me->bell) != bell)
            return 0;
    }
    return f->heap_len > 0 ? f->heap[0]->due : SV_NEVER;
}

static void take_kicked(struct sv_fabric *f)
{
    struct sv_qp *qp;

    while ((qp = f->kicked)) {
        f->kicked = qp->kicked_next;
        qp->kicked = false;
        heap_put(f, qp, 0);
    }
}

static void *run(void *arg)
{
    struct sv_fabric *f = arg;
    int64_t until;
    uint32_t bell;
    bool quit = false;

    pthread_setname_np(pthread_self(), "softverbs");
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    f->me->engine_tid = (uint32_t)syscall(SYS_gettid);
    while (!quit) {
        bell = atomic_load(&f->me->bell);
        look_around(f);
        pthread_mutex_lock(&f->run_lock);
        take_kicked(f);
        until = run_due(f, bell);
        quit = f->quit;
        pthread_mutex_unlock(&f->run_lock);
        if (quit || until == 0)
            continue;
        atomic_store(&f->me->sleeping, 1);
        sv_futex_wait(&f->me->bell, bell, until);
        atomic_store(&f->me->sleeping, 0);
    }
    return NULL;
}

int sv_engine_start(struct sv_fabric *f)
{
    sigset_t all, old;
    int rc;

    pthread_mutex_init(&f->run_lock, NULL);
    pthread_cond_init(&f->idle, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&f->engine, NULL, run, f);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = rc;
    return rc ? -1 : 0;
}

void sv_engine_stop(struct sv_fabric *f)
{
    pthread_mutex_lock(&f->run_lock);
    f->quit = true;
    pthread_mutex_unlock(&f->run_lock);
    sv_ring(f->me);
    pthread_join(f->engine, NULL);
    pthread_mutex_destroy(&f->run_lock);
    pthread_cond_destroy(&f->idle);
    free(f->heap);
}
