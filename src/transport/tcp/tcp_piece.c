/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_piece.c - how work is cut into pieces and counted.
 *
 * A work is in its peer's ledger; a piece is a part, which waits in a lane. That lane is watched for
 * progress, the ledger for that of all.
 *
 * An error takes the work out of the queue, so no piece of it begins any more, and calls the bundles,
 * whose lanes let go of their pieces (only then is the local memory quiet); the last piece ends the work.
 *
 * A WRITE that was refused, or found its peer gone, is patient: the core may post it again, so the
 * pieces that are being sent are not cut off, with bytes of them on the way, but end by themselves.
 * If one of them breaks, that is the work's error instead, with which it is not posted again.
 */
#include "transport/tcp/tcp_stream.h"
#include "transport/tcp/tcp_warm.h"

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
    l->ready = l->ready && (s == LANE_IDLE || s == LANE_BUSY);
    l->bundle->peer->greeted = l->bundle->peer->greeted && l->bundle->peer->n_up > 0;
}

void tei_tcp_bundle_call(struct tcp_bundle *b)
{
    if (b->called)
        return;
    b->called = true;
    tei_loop_call(&b->worker->loop, &b->call, tei_tcp_bundle_run);
}

static bool any_is_given_up(const struct tei_ledger *l)
{
    struct tei_link *n = tei_list_first(&l->failed);

    while (n && !tei_tcp_is_given_up(tei_tcp_work_of(n)))
        n = tei_list_next(&l->failed, n);
    return n;
}

/* Has lanes let go of works that were given up. */
static void tell_lanes(struct tcp_peer *p)
{
    if (!any_is_given_up(&p->ledger))
        return;
    for (unsigned i = 0; i < p->n_bundles; i++) {
        p->bundles[i].failing = true;
        tei_tcp_bundle_call(&p->bundles[i]);
    }
}

void tei_tcp_reap(struct tcp_peer *p, struct tcp_worker *w)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&p->held.over, n, tmp)
        tei_list_del(&tei_tcp_work_of(n)->behind);
    tei_ledger_reap(&p->held, &p->ledger.over);
    if (w)
        tei_ledger_reap(&p->ledger, &w->done);
    else if (!tei_list_empty(&p->ledger.over))
        tei_tcp_bundle_call(&p->bundles[0]);
}

/* After works were failed, lanes and frames let go of them. */
static void settle(struct tcp_peer *p, struct tcp_worker *w)
{
    tei_tcp_reap(p, w); /* first: works that are over wait for nothing any more */
    tei_tcp_frames_prune(p, w);
    tell_lanes(p);
}

void tei_tcp_owner_fail(struct tcp_peer *p, const void *owner)
{
    static const struct tcp_fault closed = {TE_ERR_CANCELED, 0, "the transport was closed"};

    if (!owner)
        tei_tcp_wishes_fail(p, &closed);
    tei_ledger_fail(&p->held, owner, TE_ERR_CANCELED, NULL);
    tei_ledger_fail(&p->ledger, owner, TE_ERR_CANCELED, NULL);
    settle(p, NULL);
}

const char tei_tcp_connecting[] = "connecting to the data port";
const char tei_tcp_queued[] = "waiting for a free connection";

static const char *why_of(const struct tcp_peer *p, const struct tcp_work *work,
                          const struct tcp_fault *f)
{
    struct tei_host *h = p->t->base.host;
    char text[TEI_HOSTPORT_MAX + sizeof tei_tcp_connecting + 8];
    const char *note;

    if (f->why != tei_tcp_connecting)
        return f->why;
    snprintf(text, sizeof text, "%s %s:%u", f->why, p->where.host, (unsigned)p->where.port);
    note = h->note(h, &work->entry.base, text);
    return note ? note : f->why;
}

void tei_tcp_work_fail(struct tcp_peer *p, struct tei_ledger *l, struct tcp_work *work,
                       const struct tcp_fault *f)
{
    tei_ledger_end(l, &work->entry, f->error, f->sys_errno, why_of(p, work, f));
}

struct tcp_work *tei_tcp_queue_first(struct tcp_peer *p, struct tcp_worker *w, int64_t now)
{
    struct tei_link *first;

    if (p->ledger.look_ns <= now)
        tei_tcp_queue_tick(p, w, now);
    first = tei_list_first(&p->ledger.queue);
    return first ? tei_tcp_work_of(first) : NULL;
}

bool tei_tcp_is_waiting(const struct tcp_peer *p)
{
    return tei_ledger_first(&p->ledger) || !tei_list_empty(&p->again) ||
           tei_tcp_frames_want_drop(p);
}

void tei_tcp_part_fail(struct tcp_peer *p, struct tcp_work *work, const struct tcp_fault *f)
{
    struct tei_part part = {.entry = &work->entry, .waits = true};
    bool given_up = tei_tcp_is_given_up(work);

    part.error = f->error;
    part.sys_errno = f->sys_errno;
    if (given_up)
        tei_part_give_up(&part);
    else
        part.why = why_of(p, work, f);
    tei_ledger_back(&p->ledger, &part, tei_tcp_progress(p));
    if (!given_up && tei_tcp_is_given_up(work))
        tell_lanes(p);
}

void tei_tcp_queue_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *f)
{
    struct tei_ledger *ledgers[] = {&p->ledger, &p->held};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(ledgers); i++)
        TEI_LIST_EACH(&ledgers[i]->queue, n, tmp)
            tei_tcp_work_fail(p, ledgers[i], tei_tcp_work_of(n), f);
    tei_tcp_wishes_fail(p, f);
    tei_tcp_reap(p, w); /* before frames go, for which they wait */
    tei_tcp_frames_fail(p, w, f);
    settle(p, w);
}

int64_t tei_tcp_queue_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now)
{
    p->ledger.progress_ns = p->held.progress_ns = tei_tcp_progress(p);
    tei_ledger_tick(&p->held, now);
    tei_ledger_tick(&p->ledger, now);
    settle(p, w); /* held works may have gone over to the other */
    return p->held.look_ns < p->ledger.look_ns ? p->held.look_ns : p->ledger.look_ns;
}

void tei_tcp_watch_queue(struct tcp_peer *p)
{
    int64_t held = tei_tcp_is_holding(p) ? p->held.look_ns : TEI_NEVER;
    int64_t at = tei_tcp_is_waiting(p) ? p->ledger.look_ns : TEI_NEVER;

    at = held < at ? held : at;
    if (at >= p->check_ns)
        return;
    p->check_ns = at;
    tei_tcp_bundle_call(&p->bundles[0]);
}
