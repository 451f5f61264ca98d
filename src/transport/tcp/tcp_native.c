/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_native.c - the exchange with engines of this library: when the stream of a lane begins, goes on,
 * is late and breaks. What is sent and received on it: tcp_stream.c.
 */
#include "transport/tcp/tcp_auth.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* ------------------------------------------------------------------------------------- lifetime */

static int make(struct tcp_lane *lanes, unsigned n)
{
    struct tcp_stream *s = calloc(n, sizeof *s);

    if (!s)
        return TE_ERR_MEMORY;
    for (unsigned i = 0; i < n; i++) {
        tei_list_init(&s[i].flight);
        tei_list_init(&s[i].pinned);
        lanes[i].stream = &s[i];
    }
    return 0;
}

static void unmake(struct tcp_lane *lanes, unsigned n)
{
    (void)n;
    free(lanes[0].stream);
}

/* ------------------------------------------------------------------------------------ what it carries */

static bool takes_more(const struct tcp_lane *l)
{
    return (l->state == LANE_IDLE || l->state == LANE_BUSY) && tei_tcp_stream_has_room(l);
}

static uint64_t load(const struct tcp_lane *l)
{
    return l->stream->bytes_flight;
}

/* Without a connection it has nothing that other lanes could not take. */
static bool keeps(const struct tcp_lane *l)
{
    (void)l;
    return false;
}

static struct tcp_frame *reach(const struct tcp_lane *l, const struct tei_span *span,
                               uint64_t until, bool exact)
{
    return tei_tcp_frames_last(&l->stream->flight, span, until, exact);
}

/* --------------------------------------------------------------------------------- connections */

/* Begins with the greeting. */
static bool up(struct tcp_lane *l, int64_t now)
{
    struct tcp *t = tei_tcp_worker_of(l)->t;
    struct tcp_stream *s = l->stream;
    struct tcp_frame *hello, *prove;

    (void)now;
    assert(tei_list_empty(&s->flight));
    *s = (struct tcp_stream){.deadline_ns = TEI_NEVER};
    tei_tcp_peer_of(l)->near = l->near;
    if (tei_tcp_peer_of(l)->n_more)
        tei_tcp_path_tune(l->watch.fd);
    tei_list_init(&s->flight);
    tei_list_init(&s->pinned);
    tei_tcp_zerocopy_start(&s->zero, l->watch.fd, (enum tei_zerocopy)t->conf->tcp_zerocopy,
                           l->near);
    s->connection = tei_random_u64(); /* who can name it can end it */
    s->crc = t->conf->tcp_crc32c;
    tei_tcp_window_init(l);
    hello = tei_tcp_frame_hello(l);
    if (!hello)
        return false;
    tei_tcp_stream_add(l, hello);
    prove = s->proof ? tei_tcp_frame_prove(l) : NULL;
    if (s->proof && !prove)
        return false;
    if (prove)
        tei_tcp_stream_add(l, prove);
    tei_tcp_lane_set(l, LANE_BUSY);
    return true;
}

/* The kernel is to let go of the memory with the socket. */
static void cut(struct tcp_lane *l, const struct tcp_fault *f)
{
    (void)f;
    tei_tcp_zerocopy_end(&l->stream->zero, l->watch.fd);
    tei_tcp_auth_end(l->stream);
}

/* Its frames end for reason f, NULL: go out again. never_applied: none of them was. Both locks. */
static void empty(struct tcp_lane *l, const struct tcp_fault *f, bool never_applied)
{
    struct tcp_stream *s = l->stream;

    tei_tcp_frames_leave(l, f, never_applied);
    s->n_flight = 0;
    s->bytes_flight = 0;
    atomic_store_explicit(&s->unsent, 0, memory_order_relaxed);
    s->next = NULL;
    s->head_got = s->trailer_got = 0;
}

static void end(struct tcp_lane *l, const struct tcp_fault *f)
{
    empty(l, f, false);
}

/* Other lanes may get through. */
static void unreached(struct tcp_lane *l, const struct tcp_fault *f)
{
    (void)f;
    empty(l, NULL, false);
}

/* ----------------------------------------------------------------------------------- that it broke */

void tei_tcp_stream_broken(struct tcp_lane *l, const struct tcp_fault *f, bool again, int64_t now)
{
    bool stale = l->used && !l->stream->heard;

    if (!l->proven || stale)
        l->stream->forgive = true;
    if (!l->proven) { /* no WRITE was sent to what is there; the lane counts the tries */
        l->unanswered = true;
        if (l->stream->closed) /* what went by until it closed was no time of connecting */
            l->round_ns += now - l->progress_ns;
        tei_tcp_lane_not_connected(l, l->sys_errno, now);
    } else if (again) { /* frames count their tries themselves, and may go out on another lane */
        tei_tcp_lane_retry(l, stale, now);
    } else {
        tei_tcp_lane_fail(l, f);
    }
}

/*
 * The greeting was refused, mostly by another engine, so nothing of what was sent here had any
 * effect. At a further address of the peer that is the address's fault; at the one that the peer
 * answers RPCs on, the peer is gone, and all that waits for it may be tried with a fresh descriptor.
 * `another`: the engine that answers has said that it is not the one that earlier WRITEs went to.
 */
static void refused(struct tcp_lane *l, const struct tcp_fault *f, bool another, int64_t now)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);

    if (l->path > 0) {
        pthread_mutex_lock(&p->lock);
        p->wrong |= 1u << l->path;
        pthread_mutex_unlock(&p->lock);
        l->stream->forgive = true;
        tei_tcp_stream_broken(l, f, true, now);
        return;
    }
    pthread_mutex_lock(&p->lock);
    empty(l, f, true);
    tei_tcp_queue_fail(p, tei_tcp_worker_of(l), f);
    if (another)
        tei_tcp_frames_settle(p);
    pthread_mutex_unlock(&p->lock);
    tei_tcp_lane_fail(l, f);
}

static void sweep(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault cut = {TE_ERR_CANCELED, 0, "a WRITE under way was cancelled"};
    struct tcp_peer *p = tei_tcp_peer_of(l);
    struct tei_link *n, *tmp;
    bool half = false;

    if (l->state != LANE_BUSY)
        return;
    pthread_mutex_lock(&p->lock);
    TEI_LIST_EACH(&l->stream->flight, n, tmp) {
        struct tcp_frame *f = tei_tcp_frame_of(n);

        if (tei_tcp_frame_is_half_sent(l->stream, f))
            half = true;
        else if (f->type == TCP_FRAME_WRITE && f->sent == 0)
            tei_tcp_stream_pull_back(l, f);
        else
            tei_tcp_frame_take_out(p, tei_tcp_worker_of(l), f);
    }
    tei_tcp_frames_prune(p, tei_tcp_worker_of(l));
    pthread_mutex_unlock(&p->lock);
    if (!half)
        return;
    l->stream->forgive = true;
    tei_tcp_stream_broken(l, &cut, true, now);
}

/* ------------------------------------------------------------------------------------- lateness */

static int64_t stalled_at(const struct tcp_lane *l)
{
    const struct tcp *t = tei_tcp_worker_of(l)->t;
    int64_t limit = t->no_progress_ns, status = t->conf->tcp_status_timeout_ms * TEI_NS_PER_MS;

    if (!l->stream->next && status < limit)
        limit = status;
    if (!l->proven && TCP_HELLO_NS < limit)
        limit = TCP_HELLO_NS;
    return limit == TEI_NEVER ? TEI_NEVER : l->progress_ns + limit;
}

static int64_t late_at(const struct tcp_lane *l)
{
    int64_t at = stalled_at(l), look = tei_tcp_path_look_at(l);

    if (l->state != LANE_BUSY)
        return TEI_NEVER;
    at = look < at ? look : at;
    return l->stream->deadline_ns < at ? l->stream->deadline_ns : at;
}

static void late(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault stalled = {TE_ERR_TIMEOUT, 0, "waiting for the peer"};
    struct tcp_peer *p = tei_tcp_peer_of(l);

    if (stalled_at(l) <= now) {
        tei_tcp_stream_broken(l, &stalled, false, now);
        return;
    }
    if (tei_tcp_path_leave(l, now))
        return;
    pthread_mutex_lock(&p->lock);
    l->stream->deadline_ns = tei_tcp_queue_tick(p, tei_tcp_worker_of(l), now);
    pthread_mutex_unlock(&p->lock);
    sweep(l, now);
}

/* --------------------------------------------------------------------------------------- events */

static void failed(struct tcp_lane *l, enum tcp_reply v, int64_t now)
{
    static const struct tcp_fault faults[] = {
        [REPLY_WRONG] = {TE_ERR_PROTOCOL, 0, "the reply is no answer of this protocol"},
        [REPLY_STRANGER] = {TE_ERR_PEER, 0, "another engine answers at the data port"},
        [REPLY_FOREIGN] = {TE_ERR_PEER, 0, "another program answers at the data port"},
        /* An older engine may have come in its place: worth a fresh descriptor. */
        [REPLY_UNKNOWN] = {TE_ERR_PEER, 0, "the peer does not know this version of the framing"},
        [REPLY_DEMANDING] = {TE_ERR_PROTOCOL, 0,
                             "the peer demands an option of the framing that is not known here"},
        [REPLY_CORRUPT] = {TE_ERR_LINK, 0, "a checksum is wrong"},
        [REPLY_SECURED] = {TE_ERR_REJECTED, 0,
                           "the peer serves only those who prove who they are; set TE_AUTH here as "
                           "it is there, or have our address in TE_AUTH_CLASSIC there"},
        [REPLY_OPEN] =
            {TE_ERR_REJECTED, 0,
             "the peer proves nothing, since TE_AUTH is off there; set it there as it is here, "
             "or have its address in TE_AUTH_CLASSIC here"},
        [REPLY_NO_ID] = {TE_ERR_REJECTED, 0,
                         "our id is not in the key file of the peer; add its line there"},
        [REPLY_OTHER_KEY] =
            {TE_ERR_REJECTED, 0,
             "the peer has another key for our id; give the id the same key in both "
             "files of TE_AUTH_KEYS"},
        [REPLY_TICKET] = {TE_ERR_PEER, 0, "the ticket for the data port is outdated"},
        [REPLY_OWN] = {TE_ERR_REJECTED, 0,
                       "our id is the peer's own; give each side an id of its own, or repeat the "
                       "first line of its key file for a group that shares one"},
    };
    struct tcp_fault lost = {TE_ERR_LINK, l->sys_errno,
                             l->stream->next ? "sending the request" : "reading the reply"};

    switch (v) {
    case REPLY_STRANGER:
    case REPLY_FOREIGN:
    case REPLY_UNKNOWN:
    case REPLY_DEMANDING:
    case REPLY_SECURED:
    case REPLY_OPEN:
    case REPLY_NO_ID:
    case REPLY_OTHER_KEY:
    case REPLY_OWN:
        refused(l, &faults[v], v == REPLY_STRANGER, now);
        break;
    case REPLY_TICKET:
        if (l->path > 0) /* there is nothing wrong with the address */
            tei_tcp_stream_broken(l, &faults[v], true, now);
        else
            refused(l, &faults[v], false, now);
        break;
    case REPLY_WRONG:
    case REPLY_CORRUPT:
        tei_tcp_stream_broken(l, &faults[v], v == REPLY_CORRUPT, now);
        break;
    case REPLY_LOST:
    case REPLY_NONE:
        tei_tcp_stream_broken(l, &lost, true, now);
        break;
    }
}

/* What the lane waits for from now on; true if it is to be closed. */
static bool rest(struct tcp_lane *l)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    bool idle = tei_list_empty(&l->stream->flight) && tei_list_empty(&l->stream->pinned), drop;

    pthread_mutex_lock(&p->lock);
    if (idle)
        tei_tcp_lane_set(l, LANE_IDLE);
    drop = idle && l->drop;
    pthread_mutex_unlock(&p->lock);
    if (idle) {
        l->used = true;
        l->stream->heard = false;
    }
    return drop;
}

static void wait_on(struct tcp_lane *l)
{
    tei_watch_set(&l->watch, l->stream->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (l->state == LANE_BUSY)
        tei_tcp_worker_arm(tei_tcp_worker_of(l), late_at(l));
}

/* Whether it has frames and has not sent a byte of them. */
static bool begins(const struct tcp_lane *l)
{
    const struct tcp_frame *f = tei_tcp_frame_of(tei_list_first(&l->stream->flight));

    return f && f == l->stream->next && f->sent == 0;
}

static void begin(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault closed = {TE_ERR_LINK, 0, "the peer has closed the connection"};
    bool fresh = !begins(l) || tei_tcp_lane_is_fresh(l, now);

    tei_tcp_drive_begin(l, now);
    if (begins(l))
        l->progress_ns = now;
    if (!fresh)
        tei_tcp_stream_broken(l, &closed, true, now);
    else if (!tei_tcp_stream_pump(l, now))
        failed(l, REPLY_LOST, now);
    else
        wait_on(l);
}

static void event(struct tcp_lane *l, uint32_t events, int64_t now)
{
    enum tcp_reply v = REPLY_NONE;
    bool more = true;

    (void)events; /* the calls tell all that is to be known */
    tei_tcp_stream_unpin(l);
    for (int calls = 2 * TCP_CALLS; calls > 0 && more && v == REPLY_NONE; calls--)
        v = tei_tcp_stream_receive(l, now, &more);
    l->stream->blocked = false;
    if (v == REPLY_NONE && !tei_tcp_stream_pump(l, now))
        v = REPLY_LOST;
    if (v != REPLY_NONE)
        failed(l, v, now);
    else if (rest(l))
        tei_tcp_lane_abort(l, NULL);
    else
        wait_on(l);
}

const struct tcp_exchange tei_tcp_native = {
    .make = make,
    .unmake = unmake,
    .takes_more = takes_more,
    .load = load,
    .take = tei_tcp_stream_fill,
    .keeps = keeps,
    .reach = reach,
    .up = up,
    .cut = cut,
    .end = end,
    .unreached = unreached,
    .begin = begin,
    .event = event,
    .late_at = late_at,
    .late = late,
    .sweep = sweep,
};
