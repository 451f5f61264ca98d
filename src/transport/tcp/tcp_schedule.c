/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_schedule.c - which lane takes what is queued for a peer, and which worker is woken for it.
 *
 * post() puts work in the queue and sees to it that somebody works on it, waking at most one
 * worker: a lane that is busy takes its next piece from the queue by itself, and a worker that was
 * woken and leaves work behind wakes the next one that has a lane free (others_turn). When a lane
 * is idle and its worker's lock is free, post() takes the worker's place: it gives the lane its
 * piece and sends the request in the caller's thread.
 *
 * Connections are opened when there is work and no lane is free, or ahead of work (tcp_warm.c). To a
 * peer with no connection up, one lane tries alone; when it gets through the others follow. When it has
 * failed for long enough what is queued ends TE_ERR_PEER.
 *
 * The bundle's call does everything that must happen on its worker: closing lanes whose work has
 * failed or was cancelled, giving back what cancel() ended, opening connections, leaving when the
 * peer is gone. It is embedded and queued at most once (`called`), so asking for it never fails.
 */
#include "transport/tcp/tcp_stream.h"
#include "transport/tcp/tcp_warm.h"

#include <errno.h>

/* ----------------------------------------------------------------- giving lanes something to do */

/* How many lanes the queue could keep busy. Peer's lock held. */
static size_t wanted(const struct tcp_peer *p)
{
    const struct tei_entry *e = tei_ledger_first(&p->ledger);
    struct tei_link *n, *tmp;
    size_t queued = 0;

    if (!e)
        return p->n_frames;
    if (e->base.length - e->next > p->t->conf->tcp_piece_size)
        return TCP_LANES_MAX;
    TEI_LIST_EACH(&p->ledger.queue, n, tmp)
        if (++queued == TCP_LANES_MAX)
            break;
    return queued;
}

/* Whether a lane of it is up, or on its way, and is to stay. */
static bool has_lane(const struct tcp_bundle *b)
{
    for (unsigned i = 0; i < b->n_lanes; i++)
        if (b->lanes[i].state != LANE_OFF && !b->lanes[i].drop)
            return true;
    return false;
}

/*
 * Within a host only the copies by CPUs count, so one lane for each worker is enough: the buffers of
 * more would only wear out the caches.
 */
static bool has_enough(const struct tcp_bundle *b)
{
    return b->peer->near && b->peer->n_more == 0 && has_lane(b);
}

/* Whether what waits would have a lane opened, whichever that is. */
static bool work_opens(const struct tcp_peer *p)
{
    return p->n_up == 0 ? p->n_opening == 0 && tei_tcp_is_waiting(p) : p->n_opening < wanted(p);
}

/*
 * Whether the bundle may open a lane, if it has one that is off. One goes ahead; the others follow
 * once it got through.
 */
static bool may_open(const struct tcp_bundle *b)
{
    const struct tcp_peer *p = b->peer;

    if (b->n_off == 0 || p->resolving)
        return false; /* while resolving, bundles would take turns until there is an address */
    if (has_enough(b) || (p->n_up && !p->greeted))
        return false;
    return work_opens(p) || (tei_tcp_wishes(b) && (p->n_up || !p->n_opening));
}

void tei_tcp_wishes_trim(struct tcp_peer *p)
{
    for (unsigned i = 0; p->n_wished && i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];

        for (unsigned k = 0; has_enough(b) && k < b->n_lanes; k++)
            if (b->lanes[k].state == LANE_OFF)
                tei_tcp_wish_drop(&b->lanes[k]);
    }
}

/* The lane of the bundle to take more: one that is idle, else the least laden. */
static struct tcp_lane *best_lane(const struct tcp_bundle *b)
{
    const struct tcp_exchange *x = b->peer->exchange;
    struct tcp_lane *best = NULL;

    for (unsigned i = 0; i < b->n_lanes; i++) {
        struct tcp_lane *l = &b->lanes[i];

        if (!x->takes_more(l))
            continue;
        if (l->state == LANE_IDLE)
            return l;
        if (!best || x->load(l) < x->load(best))
            best = l;
    }
    return best;
}

/* Whether it could take what waits, or has lanes to open. */
static bool is_free(const struct tcp_bundle *b)
{
    return (tei_tcp_is_waiting(b->peer) && best_lane(b)) || may_open(b);
}

/*
 * The bundle to work on the queue: one with an idle lane, else one with a lane to open, else the one
 * with the least laden lane that takes more; NULL if there is none. *lane: it need not be opened.
 */
static struct tcp_bundle *pick(const struct tcp_peer *p, struct tcp_lane **lane)
{
    const struct tcp_exchange *x = p->exchange;
    struct tcp_bundle *to_open = NULL;
    struct tcp_lane *best = NULL;

    for (unsigned i = 0; i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];
        struct tcp_lane *l = best_lane(b);

        if (l && (!best || l->state == LANE_IDLE || x->load(l) < x->load(best)))
            best = l;
        if (best && best->state == LANE_IDLE)
            break;
        if (!to_open && may_open(b))
            to_open = b;
    }
    *lane = best && (best->state == LANE_IDLE || !to_open) ? best : NULL;
    return *lane ? best->bundle : to_open;
}

/*
 * Another bundle that could take what is still queued, or has lanes to open, for its worker to be woken.
 * Peer's lock held.
 */
static struct tcp_bundle *others_turn(struct tcp_peer *p, const struct tcp_bundle *self)
{
    for (unsigned i = 0; (tei_tcp_is_waiting(p) || p->n_wished) && i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];

        if (b != self && !b->called && is_free(b)) {
            b->called = true;
            return b;
        }
    }
    return NULL;
}

/* Gives the bundle's lanes what they take, for its `begin`. Both locks held. */
static unsigned take_all(struct tcp_bundle *b, struct tcp_lane **lanes, int64_t now)
{
    const struct tcp_exchange *x = b->peer->exchange;
    unsigned n = 0;

    for (unsigned i = 0; i < b->n_lanes && tei_tcp_is_waiting(b->peer); i++) {
        struct tcp_lane *l = &b->lanes[i];

        if (x->takes_more(l) && x->take(l, TCP_FRAMES_MAX, now))
            lanes[n++] = l;
    }
    return n;
}

/* Picks the lanes to open, for tei_tcp_lane_connect(). Both locks held. */
static unsigned open_some(struct tcp_bundle *b, struct tcp_lane **lanes, int64_t now, bool *look_up)
{
    unsigned n = 0;

    for (unsigned i = 0; i < b->n_lanes && may_open(b); i++) {
        struct tcp_lane *l = &b->lanes[i];

        if (l->state != LANE_OFF || !(l->wish == WISH_OPEN || work_opens(b->peer)) ||
            !tei_tcp_peer_has_addrs(b->peer, look_up))
            continue;
        tei_tcp_lane_set(l, LANE_CONNECTING);
        l->round_ns = now;
        l->tries = 0;
        lanes[n++] = l;
    }
    return n;
}

/* Puts everything of the bundle to work that can be. Worker's lock held. */
static void fill(struct tcp_bundle *b, int64_t now)
{
    struct tcp_lane *ready[TCP_LANES_MAX], *opened[TCP_LANES_MAX];
    struct tcp_peer *p = b->peer;
    unsigned n_ready = 0, n_opened = 0;
    struct tcp_bundle *other = NULL;
    bool look_up = false;

    pthread_mutex_lock(&p->lock);
    if (!atomic_load_explicit(&p->t->closed, memory_order_relaxed)) {
        n_ready = take_all(b, ready, now);
        n_opened = open_some(b, opened, now, &look_up);
        tei_tcp_wishes_trim(p);
        other = others_turn(p, b);
    }
    pthread_mutex_unlock(&p->lock);
    if (other) /* first: to send may take as long as a worker needs to wake up, many times over */
        tei_loop_call(&other->worker->loop, &other->call, tei_tcp_bundle_run);
    for (unsigned i = 0; i < n_ready; i++)
        p->exchange->begin(ready[i], now);
    for (unsigned i = 0; i < n_opened; i++)
        tei_tcp_lane_connect(opened[i], now);
    if (look_up)
        tei_tcp_peer_look_up(p);
}

/* Lanes let go of works with an error; idle ones not to be used again are closed. Worker's lock held. */
static void sweep(struct tcp_bundle *b)
{
    struct tcp_peer *p = b->peer;
    bool failing;

    pthread_mutex_lock(&p->lock);
    failing = b->failing;
    b->failing = false;
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < b->n_lanes; i++) {
        struct tcp_lane *l = &b->lanes[i];
        bool drop, forsake;

        if (failing)
            p->exchange->sweep(l, tei_now_ns());
        pthread_mutex_lock(&p->lock);
        drop = l->drop && l->state == LANE_IDLE;
        forsake =
            p->moved && p->n_up == 0 && l->state == LANE_PAUSED && l->sys_errno == ECONNREFUSED;
        pthread_mutex_unlock(&p->lock);
        if (drop)
            tei_tcp_lane_abort(l, NULL);
        else if (forsake)
            tei_tcp_lane_forsake(l, tei_now_ns());
    }
}

void tei_tcp_bundle_run(struct tei_call *c)
{
    struct tcp_bundle *b = tei_container_of(c, struct tcp_bundle, call);
    struct tcp_worker *w = b->worker;
    struct tcp_peer *p = b->peer;
    int64_t check_ns;
    bool gone;

    if (!tei_link_is_in(&b->link))
        tei_list_push_back(&w->bundles, &b->link);
    pthread_mutex_lock(&p->lock);
    b->called = false;
    gone = p->gone;
    check_ns = b == &p->bundles[0] ? p->check_ns : TEI_NEVER;
    tei_ledger_reap(&p->ledger, &w->done);
    pthread_mutex_unlock(&p->lock);
    if (gone) {
        tei_tcp_bundle_stop(b);
        tei_list_del(&b->link);
        tei_tcp_peer_leave(p);
        return;
    }
    sweep(b);
    tei_tcp_worker_arm(w, check_ns);
    fill(b, tei_now_ns());
}

int64_t tei_tcp_bundle_tick(struct tcp_bundle *b, int64_t now)
{
    struct tcp_peer *p = b->peer;
    int64_t next = TEI_NEVER, at;

    for (unsigned i = 0; i < b->n_lanes; i++) {
        at = tei_tcp_lane_tick(&b->lanes[i], now);
        next = at < next ? at : next;
    }
    at = tei_tcp_fence_tick(b, now);
    next = at < next ? at : next;
    if (b == &p->bundles[0]) {
        pthread_mutex_lock(&p->lock);
        at = p->check_ns = tei_tcp_queue_tick(p, b->worker, now);
        pthread_mutex_unlock(&p->lock);
        next = at < next ? at : next;
    }
    return next;
}

void tei_tcp_bundle_stop(struct tcp_bundle *b)
{
    static const struct tcp_fault closed = {TE_ERR_CANCELED, 0, "the transport was closed"};

    for (unsigned i = 0; i < b->n_lanes; i++)
        tei_tcp_lane_abort(&b->lanes[i], &closed);
    tei_tcp_fence_stop(b);
}

/* ------------------------------------------------------------------------------ post and cancel */

static void refuse(struct tcp *t, struct tei_list *works)
{
    struct tei_list done;
    struct tei_link *link;

    tei_list_init(&done);
    while ((link = tei_list_pop(works))) {
        struct tei_work *w = tei_container_of(link, struct tei_work, link);

        w->error = TE_ERR_CANCELED;
        w->why = "the transport was closed";
        tei_list_push_back(&done, link);
    }
    tei_tcp_give_back(t, &done);
}

/*
 * Whether the next piece is one to send in the caller's thread. Of many at a time none is: making
 * frames costs a caller more than waking the worker, which makes them all. Peer's lock held.
 */
static bool is_quick(const struct tcp_peer *p, size_t posted)
{
    const struct tei_entry *e = tei_ledger_first(&p->ledger);

    if (!e || posted > TCP_FRAME_BLOCKS)
        return false;
    return e->base.opcode == TE_READ || e->base.length - e->next <= TCP_INLINE_MAX;
}

void tei_tcp_peer_post(struct tcp_peer *p, struct tei_list *works, size_t n, int64_t now)
{
    struct tcp_lane *ready[TCP_LANES_MAX];
    struct tcp_worker *inside = NULL;
    struct tcp_lane *lane;
    struct tcp_bundle *b;
    unsigned n_ready = 0;
    const struct tei_work *first = &tei_tcp_work_of(tei_list_first(works))->entry.base;
    const void *owner = first->owner;
    uint64_t length = first->length;
    bool alone;

    pthread_mutex_lock(&p->lock);
    if (atomic_load_explicit(&p->t->closed, memory_order_relaxed)) {
        pthread_mutex_unlock(&p->lock);
        refuse(p->t, works);
        return;
    }
    if (tei_tcp_unsettled(p))
        tei_tcp_fence_hold(p, works, now);
    tei_ledger_post_all(&p->ledger, works, now);
    b = pick(p, &lane);
    if (lane && is_quick(p, n) && tei_tcp_worker_try(b->worker)) {
        inside = b->worker;
        if (p->exchange->take(lane, 1,
                              now)) /* so that something is on its way; the worker has the rest */
            ready[n_ready++] = lane;
        b = tei_ledger_first(&p->ledger) ? pick(p, &lane) : NULL;
    }
    tei_tcp_watch_queue(p);
    /* Under the lock: after it the work may be done and the transport gone. */
    if (b)
        tei_tcp_bundle_call(b);
    alone = n == 1 && n_ready == 1 && !tei_ledger_first(&p->ledger);
    pthread_mutex_unlock(&p->lock);
    if (alone)
        tei_tcp_drive_expect(ready[0], owner, length);
    for (unsigned i = 0; i < n_ready; i++)
        p->exchange->begin(ready[i], now);
    if (alone)
        tei_tcp_drive_look(ready[0]);
    if (inside)
        tei_tcp_worker_leave(inside);
}
