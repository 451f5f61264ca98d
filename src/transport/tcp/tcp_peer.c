/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_peer.c - peers: the table of them, their queue of work, and which worker is woken for it.
 *
 * post() puts work in the queue and sees to it that somebody works on it, waking at most one
 * worker: a lane that is busy takes its next piece from the queue by itself, and a worker that was
 * woken and leaves work behind wakes the next one that has a lane free (others_turn). When a lane
 * is idle and its worker's lock is free, post() takes the worker's place: it gives the lane its
 * piece and sends the request in the caller's thread.
 *
 * Connections are opened when there is work and no lane is free. To a peer with no connection up,
 * one lane tries alone; when it gets through the others follow. When it has failed for long enough
 * what is queued ends TE_ERR_PEER.
 *
 * The bundle's call does everything that must happen on its worker: closing lanes whose work has
 * failed or was cancelled, giving back what cancel() ended, opening connections, leaving when the
 * peer is gone. It is embedded and queued at most once (`called`), so asking for it never fails. A
 * peer is freed by the last bundle, or name look-up, to leave it.
 */
#include "transport/tcp/tcp.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ the table */

static struct tei_list *bucket_of(struct tcp *t, const struct tei_hostport *where)
{
    uint32_t h = 2166136261u ^ where->port;

    for (const char *s = where->host; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return &t->peers[h % TCP_PEER_BUCKETS];
}

static struct tcp_peer *find(struct tei_list *bucket, const struct tcp_target *target)
{
    for (struct tei_link *n = tei_list_first(bucket); n; n = tei_list_next(bucket, n)) {
        struct tcp_peer *p = tei_container_of(n, struct tcp_peer, link);

        if (p->where.port == target->where.port && p->version == target->version &&
            p->id == target->id && strcmp(p->where.host, target->where.host) == 0)
            return p;
    }
    return NULL;
}

/* Deals the lanes out to bundles, the bundles to workers. */
static void deal(struct tcp_peer *p, struct tcp_lane *lanes, unsigned n_lanes)
{
    struct tcp *t = p->t;
    unsigned first = atomic_fetch_add_explicit(&t->next_worker, p->n_bundles, memory_order_relaxed);

    for (unsigned i = 0; i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];
        unsigned n = n_lanes / p->n_bundles + (i < n_lanes % p->n_bundles);

        *b = (struct tcp_bundle){.peer = p, .worker = &t->workers[(first + i) % t->n_workers]};
        tei_list_init(&b->remnants);
        b->lanes = lanes;
        b->n_lanes = b->n_off = n;
        for (unsigned k = 0; k < n; k++)
            lanes[k].bundle = b;
        lanes += n;
    }
}

static struct tcp_peer *make(struct tcp *t, const struct tcp_target *target)
{
    unsigned n_lanes = (unsigned)tei_min(
        tei_max((size_t)t->conf->tcp_lanes, (size_t)target->n_more + 1), TCP_LANES_MAX);
    unsigned n_bundles = (unsigned)tei_min(n_lanes, t->n_workers);
    struct tcp_peer *p = calloc(1, sizeof *p + n_bundles * sizeof(struct tcp_bundle));
    struct tcp_lane *lanes = calloc(n_lanes, sizeof *lanes);

    if (!p || !lanes || (target->version == TCP_NATIVE && tei_tcp_streams_make(lanes, n_lanes))) {
        free(p);
        free(lanes);
        return NULL;
    }
    p->t = t;
    p->where = target->where;
    p->version = target->version;
    p->framing = target->framing;
    p->id = target->id;
    p->n_more = target->n_more;
    memcpy(p->more, target->more, sizeof p->more);
    p->numeric = tei_resolve_numeric(p->where.host, p->where.port, &p->addrs[0]);
    p->n_addrs = p->numeric;
    p->bundles = (struct tcp_bundle *)(void *)(p + 1);
    p->n_bundles = p->parts = n_bundles;
    p->check_ns = TEI_NEVER;
    tei_list_init(&p->queue);
    tei_list_init(&p->again);
    tei_list_init(&p->lost);
    tei_list_init(&p->ended);
    tei_list_init(&p->unsettled);
    tei_list_init(&p->held);
    tei_list_init(&p->crowded);
    pthread_mutex_init(&p->lock, NULL);
    deal(p, lanes, n_lanes);
    return p;
}

void tei_tcp_peer_free(struct tcp_peer *p)
{
    tei_tcp_frames_settle(p);
    pthread_mutex_destroy(&p->lock);
    tei_tcp_streams_free(p->bundles[0].lanes);
    free(p->bundles[0].lanes);
    free(p);
}

/*
 * A peer whose last attachment has gone is freed, unless a WRITE to it may still arrive: it is kept
 * for the time being, at most TCP_LEFT_MAX of that kind, so that the range is known when the peer is
 * opened again. What is lost for good is forgotten. peers_lock held.
 */
static bool is_to_stay(struct tcp_peer *p)
{
    bool yes;

    pthread_mutex_lock(&p->lock);
    p->n_unsettled -= p->n_spans;
    p->n_spans = 0;
    yes = p->n_unsettled > 0;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

static void let_go(struct tcp_peer *p)
{
    tei_list_del(&p->link);
    pthread_mutex_lock(&p->lock);
    p->gone = true;
    for (unsigned i = 0; i < p->n_bundles; i++)
        tei_tcp_bundle_call(&p->bundles[i]);
    pthread_mutex_unlock(&p->lock);
}

/* Lets go of peers that need not stay any more, and of the oldest where there are too many. */
static void sort_out(struct tcp *t)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&t->left, n, tmp) {
        struct tcp_peer *p = tei_container_of(n, struct tcp_peer, left);

        if (t->n_left <= TCP_LEFT_MAX && is_to_stay(p))
            continue;
        tei_list_del(&p->left);
        t->n_left--;
        let_go(p);
    }
}

int tei_tcp_peer_get(struct tcp *t, const struct tcp_target *target, struct tcp_peer **out)
{
    struct tei_list *bucket = bucket_of(t, &target->where);
    struct tcp_peer *p;

    pthread_mutex_lock(&t->peers_lock);
    sort_out(t);
    p = find(bucket, target);
    if (!p) {
        p = make(t, target);
        if (p)
            tei_list_push_back(bucket, &p->link);
    }
    if (p && p->refs++ == 0 && tei_link_is_in(&p->left)) {
        tei_list_del(&p->left);
        t->n_left--;
    }
    pthread_mutex_unlock(&t->peers_lock);
    if (!p)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for connections to %s:%u", target->where.host,
                        target->where.port);
    *out = p;
    return 0;
}

void tei_tcp_peer_put(struct tcp_peer *p)
{
    struct tcp *t = p->t;

    pthread_mutex_lock(&t->peers_lock);
    if (--p->refs == 0) {
        tei_tcp_peer_drop_idle(p);
        tei_list_push_back(&t->left, &p->left);
        t->n_left++;
        sort_out(t);
    }
    pthread_mutex_unlock(&t->peers_lock);
}

/* One bundle, or the look-up, has let go of the peer. */
static void leave_peer(struct tcp_peer *p)
{
    bool last;

    pthread_mutex_lock(&p->lock);
    last = --p->parts == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        tei_tcp_peer_free(p);
}

/* ------------------------------------------------------------------------------------ addresses */

/* Ends what is queued from a thread that has no worker. Peer's lock held. */
static void end_queue(struct tcp_peer *p, const void *owner, const struct tcp_fault *f)
{
    struct tei_list *lists[] = {&p->queue, &p->held};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++) {
        TEI_LIST_EACH(lists[i], n, tmp) {
            struct tcp_work *work = tei_tcp_work_of(n);

            if (owner && work->base.owner != owner)
                continue;
            tei_tcp_work_fail(p, work, f);
            if (work->out == 0)
                tei_list_push_back(&p->ended, n);
        }
    }
    tei_tcp_frames_cancel(p, owner, f);
    if (!tei_list_empty(&p->ended))
        tei_tcp_bundle_call(&p->bundles[0]);
}

static void on_te_aux(struct tei_job *j)
{
    static const struct tcp_fault unknown = {TE_ERR_DNS, 0, "looking up the peer's host name"};
    struct tcp_peer *p = tei_container_of(j, struct tcp_peer, job);
    struct tei_addr addrs[TCP_ADDRS_MAX];
    struct tcp *t = p->t;
    int n = tei_resolve(p->where.host, p->where.port, addrs, TCP_ADDRS_MAX);

    pthread_mutex_lock(&p->lock);
    p->resolving = false;
    p->n_addrs = n > 0 ? n : 0;
    memcpy(p->addrs, addrs, (size_t)p->n_addrs * sizeof addrs[0]);
    /* Bundles of a peer that is gone have been called for the last time; its queue is empty. */
    if (!p->gone) {
        if (p->n_addrs == 0)
            end_queue(p, NULL, &unknown);
        tei_tcp_bundle_call(&p->bundles[0]);
    }
    pthread_mutex_unlock(&p->lock);
    leave_peer(p);
    tei_tcp_job_ended(t);
}

/*
 * Whether there are addresses; *look_up: the caller is to post the job once the lock is free.
 * Peer's lock held.
 */
static bool has_addrs(struct tcp_peer *p, bool *look_up)
{
    if (p->n_addrs > 0)
        return true;
    if (!p->resolving) {
        p->resolving = *look_up = true;
        p->parts++;
    }
    return false;
}

static void post_look_up(struct tcp_peer *p)
{
    tei_tcp_job_begun(p->t);
    tei_jobs_post(p->t->base.host->jobs, &p->job, on_te_aux);
}

/* ----------------------------------------------------------------- giving lanes something to do */

/* How many lanes the queue could keep busy. Peer's lock held. */
static size_t wanted(const struct tcp_peer *p)
{
    struct tei_link *first = tei_list_first(&p->queue);
    const struct tcp_work *work;

    if (!first)
        return p->n_frames;
    work = tei_tcp_work_of(first);
    return work->base.length - work->next > p->t->conf->tcp_piece_size ? TCP_LANES_MAX
                                                                       : p->n_queued;
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
 * Whether the bundle may open a lane, if it has one that is off. One goes ahead; the others follow
 * once it got through. Within a host only the copies by CPUs count, so one lane for each worker is
 * enough: the buffers of more would only wear out the caches.
 */
static bool may_open(const struct tcp_bundle *b)
{
    const struct tcp_peer *p = b->peer;

    if (b->n_off == 0 || p->resolving)
        return false; /* while resolving, bundles would take turns until there is an address */
    if (p->near && p->n_more == 0 && has_lane(b))
        return false;
    if (p->version == TCP_NATIVE && p->n_up && !p->greeted)
        return false;
    return p->n_up == 0 ? p->n_opening == 0 && tei_tcp_is_waiting(p) : p->n_opening < wanted(p);
}

/* Whether the lane would take something from the queue now. Peer's lock held. */
static bool takes_more(const struct tcp_lane *l)
{
    if (l->stream && (l->state == LANE_IDLE || l->state == LANE_BUSY))
        return tei_tcp_stream_has_room(l);
    return l->state == LANE_IDLE && !l->drop;
}

/* The lane of the bundle to take more: one that is idle, else the least laden. */
static struct tcp_lane *best_lane(const struct tcp_bundle *b)
{
    struct tcp_lane *best = NULL;

    if (b->n_idle == 0 && b->peer->version != TCP_NATIVE)
        return NULL;
    for (unsigned i = 0; i < b->n_lanes; i++) {
        struct tcp_lane *l = &b->lanes[i];

        if (!takes_more(l))
            continue;
        if (l->state == LANE_IDLE)
            return l;
        if (!best || tei_tcp_stream_load(l) < tei_tcp_stream_load(best))
            best = l;
    }
    return best;
}

static bool is_free(const struct tcp_bundle *b)
{
    return best_lane(b) || may_open(b);
}

/*
 * The bundle to work on the queue: one with an idle lane, else one with a lane to open, else the one
 * with the least laden lane that takes more; NULL if there is none. *lane: it need not be opened.
 */
static struct tcp_bundle *pick(const struct tcp_peer *p, struct tcp_lane **lane)
{
    struct tcp_bundle *to_open = NULL;
    struct tcp_lane *best = NULL;

    for (unsigned i = 0; i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];
        struct tcp_lane *l = best_lane(b);

        if (l &&
            (!best || l->state == LANE_IDLE || tei_tcp_stream_load(l) < tei_tcp_stream_load(best)))
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
 * Another bundle that could take what is still queued, for its worker to be woken. Peer's lock
 * held.
 */
static struct tcp_bundle *others_turn(struct tcp_peer *p, const struct tcp_bundle *self)
{
    for (unsigned i = 0; tei_tcp_is_waiting(p) && i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];

        if (b != self && !b->called && is_free(b)) {
            b->called = true;
            return b;
        }
    }
    return NULL;
}

/* Gives the lane a piece, or at most so many frames. */
static bool give(struct tcp_lane *l, unsigned frames, int64_t now)
{
    return l->stream ? tei_tcp_stream_fill(l, frames, now) : tei_tcp_piece_take(l, now);
}

/* Gives the bundle's lanes what they take, for tei_tcp_lane_begin(). Both locks held. */
static unsigned take_all(struct tcp_bundle *b, struct tcp_lane **lanes, int64_t now)
{
    unsigned n = 0;

    for (unsigned i = 0; i < b->n_lanes && tei_tcp_is_waiting(b->peer); i++) {
        struct tcp_lane *l = &b->lanes[i];

        if (takes_more(l) && give(l, TCP_FRAMES_MAX, now))
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

        if (l->state != LANE_OFF || !has_addrs(b->peer, look_up))
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
        other = others_turn(p, b);
    }
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < n_ready; i++)
        tei_tcp_lane_begin(ready[i], now);
    for (unsigned i = 0; i < n_opened; i++)
        tei_tcp_lane_connect(opened[i], now);
    if (other)
        tei_loop_call(&other->worker->loop, &other->call, tei_tcp_bundle_run);
    if (look_up)
        post_look_up(p);
}

/* Closes lanes whose work has an error, and idle ones not to be used again. Worker's lock held. */
static void sweep(struct tcp_bundle *b)
{
    /* The work has its error already. */
    static const struct tcp_fault ended = {TE_ERR_CANCELED, 0, NULL};
    struct tcp_lane *bad[TCP_LANES_MAX];
    unsigned n = 0;
    bool failing;

    pthread_mutex_lock(&b->peer->lock);
    failing = b->failing;
    b->failing = false;
    pthread_mutex_unlock(&b->peer->lock);
    for (unsigned i = 0; failing && i < b->n_lanes; i++)
        if (b->lanes[i].state == LANE_BUSY)
            tei_tcp_stream_sweep(&b->lanes[i], tei_now_ns());
    pthread_mutex_lock(&b->peer->lock);
    for (unsigned i = 0; i < b->n_lanes; i++) {
        struct tcp_lane *l = &b->lanes[i];

        if ((l->work && l->work->base.error && !l->work->patient) ||
            (l->drop && l->state == LANE_IDLE))
            bad[n++] = l;
    }
    pthread_mutex_unlock(&b->peer->lock);
    for (unsigned i = 0; i < n; i++)
        tei_tcp_lane_abort(bad[i], &ended);
}

static void take_ended(struct tcp_peer *p, struct tcp_worker *w)
{
    struct tei_link *link;

    while ((link = tei_list_pop(&p->ended)))
        tei_tcp_worker_done(w, tei_tcp_work_of(link));
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
    take_ended(p, w);
    pthread_mutex_unlock(&p->lock);
    if (gone) {
        tei_tcp_bundle_stop(b);
        tei_list_del(&b->link);
        leave_peer(p);
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
        at = tei_tcp_queue_tick(p, b->worker, now);
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

static void refuse(struct tcp *t, struct tei_list *works, size_t n)
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
    tei_tcp_give_back(t, &done, n);
}

/*
 * Whether the next piece is one to send in the caller's thread. Of many at a time none is: making
 * frames costs a caller more than waking the worker, which makes them all. Peer's lock held.
 */
static bool is_quick(const struct tcp_peer *p, size_t posted)
{
    const struct tcp_work *work = tei_tcp_work_of(tei_list_first(&p->queue));

    if (posted > TCP_FRAME_BLOCKS)
        return false;
    return work->base.opcode == TE_READ || work->base.length - work->next <= TCP_INLINE_MAX;
}

void tei_tcp_peer_post(struct tcp_peer *p, struct tei_list *works, size_t n, int64_t now,
                       int64_t late_ns)
{
    struct tcp_lane *ready[TCP_LANES_MAX];
    struct tcp_worker *inside = NULL;
    struct tcp_lane *lane;
    struct tcp_bundle *b;
    unsigned n_ready = 0;
    const struct tei_work *first = &tei_tcp_work_of(tei_list_first(works))->base;
    const void *owner = first->owner;
    uint64_t length = first->length;
    bool alone;

    pthread_mutex_lock(&p->lock);
    if (atomic_load_explicit(&p->t->closed, memory_order_relaxed)) {
        pthread_mutex_unlock(&p->lock);
        refuse(p->t, works, n);
        return;
    }
    if (p->n_unsettled)
        n = tei_tcp_fence_hold(p, works, n);
    tei_list_splice(&p->queue, works);
    p->n_queued += n;
    b = pick(p, &lane);
    if (lane && p->n_queued && is_quick(p, n) && tei_tcp_worker_try(b->worker)) {
        inside = b->worker;
        if (give(lane, 1, now)) /* so that something is on its way; the worker has the rest */
            ready[n_ready++] = lane;
        b = p->n_queued ? pick(p, &lane) : NULL;
    }
    if (p->n_queued + p->n_held && late_ns < p->check_ns) {
        p->check_ns = late_ns;
        tei_tcp_bundle_call(&p->bundles[0]);
    }
    /* Under the lock: after it the work may be done and the transport gone. */
    if (b)
        tei_tcp_bundle_call(b);
    alone = n == 1 && n_ready == 1 && !p->n_queued;
    pthread_mutex_unlock(&p->lock);
    if (alone)
        tei_tcp_drive_expect(ready[0], owner, length);
    for (unsigned i = 0; i < n_ready; i++)
        tei_tcp_lane_begin(ready[i], now);
    if (alone)
        tei_tcp_drive_look(ready[0]);
    if (inside)
        tei_tcp_worker_leave(inside);
}

void tei_tcp_peer_cancel(struct tcp_peer *p, const void *owner)
{
    static const struct tcp_fault canceled = {TE_ERR_CANCELED, 0, NULL};

    pthread_mutex_lock(&p->lock);
    end_queue(p, owner, &canceled);
    for (unsigned i = 0; i < p->n_bundles; i++) {
        for (unsigned k = 0; k < p->bundles[i].n_lanes; k++) {
            struct tcp_work *work = p->bundles[i].lanes[k].work;

            if (work && (!owner || work->base.owner == owner))
                tei_tcp_work_fail(p, work, &canceled);
            if (p->bundles[i].lanes[k].stream)
                tei_tcp_stream_cancel(&p->bundles[i].lanes[k], owner, &canceled);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

void tei_tcp_peer_drop_idle(struct tcp_peer *p)
{
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n_bundles; i++) {
        for (unsigned k = 0; k < p->bundles[i].n_lanes; k++) {
            struct tcp_lane *l = &p->bundles[i].lanes[k];

            l->drop = l->state == LANE_IDLE || l->state == LANE_BUSY;
        }
        tei_tcp_bundle_call(&p->bundles[i]);
    }
    pthread_mutex_unlock(&p->lock);
}
