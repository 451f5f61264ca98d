/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_piece.c - how work is cut into pieces and counted.
 *
 * A work is in its peer's queue as long as some of its bytes were not given to a lane; `next` is
 * that cursor, `out` the number of lanes that carry a piece of it. It ends when out is 0 and either
 * an error is set or next has reached the end. Each of the functions that change one of the three
 * looks at that condition with the peer's lock held, so it becomes true exactly once, and
 * work_is_over() is where.
 *
 * An error takes the work out of the queue, so no piece of it begins any more, and calls the
 * bundles whose lanes carry one: they close those lanes (only then is the local memory quiet) and
 * the last of them ends the work.
 *
 * A WRITE that was refused, or found its peer gone, is patient: the core may post it again, so the
 * pieces that are being sent are not cut off, with bytes of them on the way, but end by themselves.
 * If one of them breaks, that is the work's error instead, with which it is not posted again.
 *
 * Long works take turns in the queue piece by piece, so that a short one behind a long one does not
 * wait for the whole of it.
 */
#include "transport/tcp/tcp_stream.h"

#include <stdio.h>

/* A lane's part in the counts of its peer, bundle and worker. */
static void count_lane(struct tcp_lane *l, unsigned one)
{
    struct tcp_bundle *b = l->bundle;
    struct tcp_peer *p = b->peer;
    bool up = l->state == LANE_IDLE || l->state == LANE_BUSY;
    bool opening = l->state == LANE_PAUSED || l->state == LANE_CONNECTING;

    b->n_idle += l->state == LANE_IDLE ? one : 0;
    b->n_off += l->state == LANE_OFF ? one : 0;
    p->n_up += up ? one : 0;
    p->n_opening += opening ? one : 0;
    b->worker->n_lanes += up ? one : 0;
    /* Relaxed: read by poll() as a hint. */
    if (l->state == LANE_BUSY)
        atomic_fetch_add_explicit(&b->worker->n_active, one, memory_order_relaxed);
}

void tei_tcp_lane_set(struct tcp_lane *l, enum lane_state s)
{
    if (l->state == s)
        return;
    count_lane(l, UINT32_MAX); /* minus one */
    l->state = s;
    count_lane(l, 1);
    l->bundle->peer->greeted = l->bundle->peer->greeted && l->bundle->peer->n_up > 0;
}

static bool work_is_over(const struct tcp_work *work)
{
    return work->out == 0 && (work->base.error || work->next == work->base.length);
}

static void unqueue(struct tcp_peer *p, struct tcp_work *work)
{
    tei_list_del(&work->base.link);
    if (work->held)
        tei_tcp_fence_leave(p, work);
    else
        p->n_queued--;
}

void tei_tcp_bundle_call(struct tcp_bundle *b)
{
    if (b->called)
        return;
    b->called = true;
    tei_loop_call(&b->worker->loop, &b->call, tei_tcp_bundle_run);
}

static bool carries(const struct tcp_bundle *b, const struct tcp_work *work)
{
    for (unsigned i = 0; i < b->n_lanes; i++)
        if (b->peer->exchange->carries(&b->lanes[i], work))
            return true;
    return false;
}

/* Has the lanes that carry pieces of a failed work let go of them. */
static void tell_lanes(struct tcp_peer *p, const struct tcp_work *work)
{
    for (unsigned i = 0; i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];

        if (!carries(b, work))
            continue;
        b->failing = true;
        tei_tcp_bundle_call(b);
    }
}

/*
 * Faults after which the core may post the work again. A WRITE must not end with one of them while
 * some of its bytes are on the way: they could arrive after the second attempt was reported done.
 */
bool tei_tcp_may_come_again(const struct tcp_fault *f)
{
    return f->error == TE_ERR_STALE || f->error == TE_ERR_PEER;
}

const char tei_tcp_connecting[] = "connecting to the data port";

static const char *why_of(const struct tcp_peer *p, const struct tcp_work *work,
                          const struct tcp_fault *f)
{
    struct tei_host *h = p->t->base.host;
    char text[TEI_HOSTPORT_MAX + sizeof tei_tcp_connecting + 8];
    const char *note;

    if (f->why != tei_tcp_connecting)
        return f->why;
    snprintf(text, sizeof text, "%s %s:%u", f->why, p->where.host, (unsigned)p->where.port);
    note = h->note(h, &work->base, text);
    return note ? note : f->why;
}

void tei_tcp_work_fail(struct tcp_peer *p, struct tcp_work *work, const struct tcp_fault *f)
{
    bool again = tei_tcp_may_come_again(f);

    if (work->base.error && (!work->patient || again))
        return;
    work->base.error = f->error;
    work->base.sys_errno = f->sys_errno;
    work->base.why = why_of(p, work, f);
    work->patient = again && work->base.opcode == TE_WRITE;
    if (tei_link_is_in(&work->base.link))
        unqueue(p, work);
    if (work->out && !work->patient)
        tell_lanes(p, work);
}

/* Fails work of the queue and ends it if no lane is at it. */
static void fail_queued(struct tcp_peer *p, struct tcp_worker *w, struct tcp_work *work,
                        const struct tcp_fault *f)
{
    tei_tcp_work_fail(p, work, f);
    if (work_is_over(work))
        tei_tcp_worker_done(w, work);
}

struct tcp_work *tei_tcp_queue_first(struct tcp_peer *p, struct tcp_worker *w, int64_t now)
{
    static const struct tcp_fault late = {TE_ERR_TIMEOUT, 0, "waiting for a free connection"};
    struct tei_link *link;

    while ((link = tei_list_first(&p->queue))) {
        struct tcp_work *work = tei_tcp_work_of(link);

        if (work->base.deadline_ns > now)
            return work;
        fail_queued(p, w, work, &late);
    }
    return NULL;
}

void tei_tcp_queue_take(struct tcp_peer *p, struct tcp_work *work, uint64_t len)
{
    work->next += len;
    work->out++;
    unqueue(p, work);
    if (work->next < work->base.length) {
        tei_list_push_back(&p->queue, &work->base.link);
        p->n_queued++;
    }
}

bool tei_tcp_is_waiting(const struct tcp_peer *p)
{
    return p->n_queued > 0 || !tei_list_empty(&p->again) || tei_tcp_frames_want_drop(p);
}

static void work_over(struct tcp_peer *p, struct tcp_worker *w, struct tcp_work *work)
{
    if (w) {
        tei_tcp_worker_done(w, work);
        return;
    }
    tei_list_push_back(&p->ended, &work->base.link);
    tei_tcp_bundle_call(&p->bundles[0]);
}

void tei_tcp_part_end(struct tcp_peer *p, struct tcp_worker *w, struct tcp_work *work, uint64_t len,
                      const struct tcp_fault *f)
{
    assert(work->out > 0);
    work->out--;
    if (f)
        tei_tcp_work_fail(p, work, f);
    else /* Relaxed: whoever needs it exact waits for the work to end. */
        atomic_fetch_add_explicit(work->base.moved, len, memory_order_relaxed);
    if (work_is_over(work))
        work_over(p, w, work);
}

void tei_tcp_queue_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *f)
{
    struct tei_list *lists[] = {&p->queue, &p->held};
    struct tei_link *link;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++)
        while ((link = tei_list_first(lists[i])))
            fail_queued(p, w, tei_tcp_work_of(link), f);
    tei_tcp_frames_fail(p, w, f);
}

/*
 * When queued work is late: at its deadline, or when for long enough nothing has moved on any lane
 * of the peer.
 */
static int64_t late_at(const struct tcp_peer *p, const struct tcp_work *work)
{
    int64_t moved = atomic_load_explicit(&p->progress_ns, memory_order_relaxed);
    int64_t limit = p->t->no_progress_ns, since = moved > work->posted_ns ? moved : work->posted_ns;

    if (limit == TEI_NEVER || work->base.deadline_ns <= since + limit)
        return work->base.deadline_ns;
    return since + limit;
}

static void fail_late(struct tcp_peer *p, struct tcp_worker *w, struct tei_list *works,
                      const struct tcp_fault *f, int64_t now)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(works, n, tmp) {
        struct tcp_work *work = tei_tcp_work_of(n);
        int64_t at = late_at(p, work);

        if (at <= now)
            fail_queued(p, w, work, f);
        else if (at < p->check_ns)
            p->check_ns = at;
    }
}

int64_t tei_tcp_queue_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now)
{
    static const struct tcp_fault busy = {TE_ERR_TIMEOUT, 0, "waiting for a free connection"};
    static const struct tcp_fault held = {
        TE_ERR_TIMEOUT, 0, "waiting for the target's word that an earlier WRITE there is over"};

    if (p->check_ns > now)
        return p->check_ns;
    p->check_ns = tei_tcp_frames_tick(p, w, now);
    fail_late(p, w, &p->queue, &busy, now);
    fail_late(p, w, &p->held, &held, now);
    return p->check_ns;
}
