/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_classic.c - the exchange with peers of version 1 and 2: one piece of work at a time on a lane.
 *
 * An exchange is: send header (and payload of a WRITE), then receive status (and payload of a
 * READ). To a v1 peer there is no status: the end of a READ is its last byte, the end of a WRITE is
 * the peer closing in good order after we said that nothing more comes.
 *
 * What may be tried again on a new connection: a READ, since bytes of an attempt that is dead
 * cannot come any more once its socket is closed; a WRITE of which not a single byte was handed to
 * the kernel. Any other WRITE may still arrive at the target after a second attempt has completed,
 * and would undo what was written there since. A lane whose piece is to be tried again keeps it
 * while it has no connection.
 *
 * A first reply that is no status comes from a stranger: the peer is gone and another program, the
 * handshake port of a new engine say, has got its port. No such program applies a WRITE, so to the
 * core that is a peer out of reach, and worth a fresh descriptor.
 */
#include "transport/tcp/tcp_warm.h"

#include "base/err.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The classic side of a lane. Worker's lock; `work` both. */
struct tcp_classic {
    struct tcp_work *work; /* kept while paused or connecting if it is to be tried again */
    uint64_t at, len;      /* the piece: this part of the work */
    uint8_t head[TCP_HEAD_LEN], status[TCP_STATUS_LEN];
    uint64_t sent, got;          /* of header and payload; of status and payload */
    struct tcp_remnant *remnant; /* for what a WRITE leaves; there before its first byte is sent */
};

enum io { IO_AGAIN, IO_DONE, IO_LOST, IO_REJECTED, IO_GARBAGE, IO_STRANGER };

static bool is_write(const struct tcp_lane *l)
{
    return l->classic->work->entry.base.opcode == TE_WRITE;
}

static bool is_v2(const struct tcp_lane *l)
{
    return tei_tcp_peer_of(l)->version >= 2;
}

/* Bytes of the request: header, and payload of a WRITE. */
static uint64_t to_be_sent(const struct tcp_lane *l)
{
    return TCP_HEAD_LEN + (is_write(l) ? l->classic->len : 0);
}

/* Whether the connection is to be used for more than one request. */
static bool is_kept(const struct tcp_lane *l)
{
    return tei_tcp_peer_keeps(tei_tcp_peer_of(l));
}

/* ------------------------------------------------------------------------------------- lifetime */

static int make(struct tcp_lane *lanes, unsigned n)
{
    struct tcp_classic *c = calloc(n, sizeof *c);

    for (unsigned i = 0; c && i < n; i++)
        lanes[i].classic = &c[i];
    return c ? 0 : TE_ERR_MEMORY;
}

static void unmake(struct tcp_lane *lanes, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (lanes[i].classic->remnant)
            tei_pool_put(&tei_tcp_worker_of(&lanes[i])->t->remnants, lanes[i].classic->remnant);
    free(lanes[0].classic);
}

/* ----------------------------------------------------------------------------------- its piece */

static bool takes_more(const struct tcp_lane *l)
{
    return l->state == LANE_IDLE && !l->drop;
}

static uint64_t load(const struct tcp_lane *l)
{
    return l->classic->len;
}

/* For the story of its work. A classic peer has one path. */
static void tell_way(const struct tcp_lane *l)
{
    if (l->classic->work->entry.base.story)
        tei_story_via(l->classic->work->entry.base.story, l->ends, false);
}

static bool take(struct tcp_lane *l, unsigned frames, int64_t now)
{
    const struct tei_conf *conf = tei_tcp_worker_of(l)->t->conf;
    struct tcp_peer *p = tei_tcp_peer_of(l);
    struct tcp_work *work = tei_tcp_queue_first(p, tei_tcp_worker_of(l), now);
    struct tcp_classic *c = l->classic;
    struct tei_part part;

    (void)frames;
    if (!work)
        return false;
    c->work = work;
    c->at = work->entry.next;
    c->len = tei_slice_len(work->entry.base.length - work->entry.next, conf->tcp_piece_size,
                           conf->fragment_ratio);
    tei_tcp_queue_take(p, c->len, now, &part);
    tell_way(l);
    tei_tcp_lane_set(l, LANE_BUSY);
    (void)tei_tcp_drive_took(l, work->entry.base.owner, 1);
    return true;
}

/* The piece, if there is one, has ended: well if f is NULL. Both locks. */
static void end_piece(struct tcp_lane *l, const struct tcp_fault *f)
{
    struct tcp_work *work = l->classic->work;

    if (!work)
        return;
    l->classic->work = NULL;
    tei_tcp_drive_ended(l, work->entry.base.owner, 1);
    tei_tcp_part_end(tei_tcp_peer_of(l), work, l->classic->len, f);
    tei_tcp_reap(tei_tcp_peer_of(l), tei_tcp_worker_of(l));
}

/* Where a connection ended without a reason the piece is kept. */
static void end(struct tcp_lane *l, const struct tcp_fault *f)
{
    if (f)
        end_piece(l, f);
}

static bool keeps(const struct tcp_lane *l)
{
    return l->classic->work != NULL;
}

static struct tcp_frame *reach(const struct tcp_lane *l, const struct tei_span *span,
                               uint64_t until, bool exact)
{
    (void)l;
    (void)span;
    (void)until;
    (void)exact;
    return NULL; /* see tei_tcp_fence_cut() */
}

/* The work has its error already. */
static const struct tcp_fault ended = {TE_ERR_CANCELED, 0, NULL};

static void sweep(struct tcp_lane *l, int64_t now)
{
    const struct tcp_work *work = l->classic->work;
    bool failed;

    (void)now;
    pthread_mutex_lock(&tei_tcp_peer_of(l)->lock);
    failed = work && tei_tcp_is_given_up(work);
    pthread_mutex_unlock(&tei_tcp_peer_of(l)->lock);
    if (failed)
        tei_tcp_lane_abort(l, &ended);
}

/* --------------------------------------------------------------------------------- connections */

/* The piece that was kept through a new connection, or a new one, or none. */
static bool up(struct tcp_lane *l, int64_t now)
{
    const struct tcp_work *work = l->classic->work;
    /* This piece was not begun. */
    static const struct tcp_fault not_begun = {TE_ERR_PEER, 0, NULL};

    if (work && work->entry.base.error)
        end_piece(l, &not_begun);
    if (keeps(l)) {
        tell_way(l);
        tei_tcp_lane_set(l, LANE_BUSY);
    } else if (!take(l, 1, now)) {
        tei_tcp_lane_set(l, LANE_IDLE);
    }
    l->drop = l->state == LANE_IDLE && !is_kept(l);
    tei_tcp_peer_of(l)->greeted = true;
    tei_tcp_lane_ready(l);
    tei_tcp_bundle_call(l->bundle); /* others may follow */
    return true;
}

/* A piece of a WRITE of which some may still be applied is remembered. */
static void cut(struct tcp_lane *l, const struct tcp_fault *f)
{
    struct tcp_classic *c = l->classic;
    struct tei_span span;

    if (!f || l->state != LANE_BUSY || !is_write(l) || c->sent <= TCP_HEAD_LEN)
        return;
    span.begin = c->work->entry.base.remote + c->at;
    span.end = span.begin + c->len;
    pthread_mutex_lock(&tei_tcp_peer_of(l)->lock);
    if (tei_tcp_fence_cut(l, span, f, c->remnant))
        c->remnant = NULL;
    pthread_mutex_unlock(&tei_tcp_peer_of(l)->lock);
}

/* ------------------------------------------------------------------------------------- lateness */

/* By its deadline or, of a piece that has begun, by lack of progress. */
static int64_t late_at(const struct tcp_lane *l)
{
    const struct tcp *t = tei_tcp_worker_of(l)->t;
    const struct tcp_classic *c = l->classic;
    int64_t limit = t->no_progress_ns, status = t->conf->tcp_status_timeout_ms * TEI_NS_PER_MS;

    if (!c->work)
        return TEI_NEVER;
    if (is_v2(l) && c->sent == to_be_sent(l) && c->got < TCP_STATUS_LEN && status < limit)
        limit = status;
    if (l->state != LANE_BUSY || limit == TEI_NEVER ||
        c->work->entry.base.deadline_ns <= l->progress_ns + limit)
        return c->work->entry.base.deadline_ns;
    return l->progress_ns + limit;
}

static void late(struct tcp_lane *l, int64_t now)
{
    const struct tcp_fault f = {
        TE_ERR_TIMEOUT, 0, l->state == LANE_BUSY ? "waiting for the peer" : tei_tcp_connecting};

    (void)now;
    tei_tcp_lane_fail(l, &f);
}

/* -------------------------------------------------------------------------------------- sending */

/* What is still to be sent, at most `slice` bytes of payload. Returns the number of parts. */
static int to_send(struct tcp_lane *l, uint64_t slice, struct iovec iov[2], size_t *total)
{
    uint64_t at = l->classic->sent > TCP_HEAD_LEN ? l->classic->sent - TCP_HEAD_LEN : 0;
    int n = 0;

    *total = 0;
    if (l->classic->sent < TCP_HEAD_LEN)
        iov[n++] =
            (struct iovec){l->classic->head + l->classic->sent, TCP_HEAD_LEN - l->classic->sent};
    if (is_write(l))
        iov[n++] = (struct iovec){l->classic->work->entry.base.local + l->classic->at + at,
                                  tei_min(l->classic->len - at, slice)};
    for (int i = 0; i < n; i++)
        *total += iov[i].iov_len;
    return n;
}

static enum io send_some(struct tcp_lane *l)
{
    uint64_t slice = tei_tcp_worker_of(l)->t->conf->tcp_slice_size;

    for (int calls = TCP_CALLS; calls > 0; calls--) {
        struct iovec iov[2];
        size_t total;
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)to_send(l, slice, iov, &total)};
        ssize_t n;

        if (total == 0)
            return IO_DONE;
        n = sendmsg(l->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR) {
            l->sys_errno = errno;
            return errno == EAGAIN ? IO_AGAIN : IO_LOST;
        }
        l->classic->sent += n > 0 ? (size_t)n : 0;
        if (n >= 0 && (size_t)n < total)
            return IO_AGAIN; /* there is no room for more */
    }
    return l->classic->sent < to_be_sent(l) ? IO_AGAIN : IO_DONE;
}

/* ------------------------------------------------------------------------------------ receiving */

static enum io check_status(const struct tcp_lane *l)
{
    uint32_t code;

    if (!tei_tcp_status_decode(l->classic->status, &code))
        return l->proven ? IO_GARBAGE : IO_STRANGER;
    if (code == TCP_STATUS_REJECTED)
        return IO_REJECTED;
    return code == TCP_STATUS_OK ? IO_DONE : IO_GARBAGE;
}

/*
 * The end of a v1 WRITE: the peer has closed in good order, and has taken all that was sent (our
 * FIN may be on the way).
 */
static enum io receive_end(struct tcp_lane *l, bool all_sent)
{
    int unsent = 0;
    ssize_t n = recv(l->watch.fd, l->classic->status, 1, MSG_DONTWAIT);

    if (n > 0)
        return IO_GARBAGE;
    l->sys_errno = n < 0 ? errno : 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? IO_AGAIN : IO_LOST;
    if (!all_sent || ioctl(l->watch.fd, SIOCOUTQ, &unsent) < 0 || unsent > 1)
        return IO_LOST;
    return IO_DONE;
}

/* Where the next bytes go: what is missing of the status, then the payload. */
static int to_receive(struct tcp_lane *l, size_t prefix, uint64_t body, struct iovec iov[2],
                      size_t *total)
{
    uint64_t at = l->classic->got > prefix ? l->classic->got - prefix : 0,
             slice = tei_tcp_worker_of(l)->t->conf->tcp_slice_size;
    int n = 0;

    *total = 0;
    if (l->classic->got < prefix)
        iov[n++] = (struct iovec){l->classic->status + l->classic->got, prefix - l->classic->got};
    if (body)
        iov[n++] = (struct iovec){l->classic->work->entry.base.local + l->classic->at + at,
                                  tei_min(body - at, slice)};
    for (int i = 0; i < n; i++)
        *total += iov[i].iov_len;
    return n;
}

/* The status of v2, then the payload of a READ, straight into its place. */
static enum io receive_some(struct tcp_lane *l)
{
    size_t prefix = is_v2(l) ? TCP_STATUS_LEN : 0, total;
    uint64_t body = is_write(l) ? 0 : l->classic->len;

    for (int calls = TCP_CALLS; calls > 0; calls--) {
        struct iovec iov[2];
        int parts = to_receive(l, prefix, body, iov, &total);
        ssize_t n = readv(l->watch.fd, iov, parts);
        bool had_status = l->classic->got >= prefix;

        if (n == 0) {
            l->sys_errno = 0;
            return !is_v2(l) && l->classic->got == 0 ? IO_REJECTED : IO_LOST;
        }
        if (n < 0) {
            l->sys_errno = errno;
            if (errno == EINTR)
                continue;
            return errno == EAGAIN ? IO_AGAIN : IO_LOST;
        }
        l->classic->got += (size_t)n;
        if (!had_status && l->classic->got >= prefix && check_status(l) != IO_DONE)
            return check_status(l);
        if (l->classic->got == prefix + body)
            return IO_DONE;
        if ((size_t)n < total)
            return IO_AGAIN; /* that was all there is */
    }
    return IO_AGAIN;
}

static enum io receive(struct tcp_lane *l, bool all_sent)
{
    if (is_write(l) && !is_v2(l))
        return receive_end(l, all_sent);
    return receive_some(l);
}

/* ------------------------------------------------------------------------------------- exchange */

/* A status that comes while the payload of a WRITE is still being sent can only be a refusal. */
static enum io early_reply(struct tcp_lane *l)
{
    enum io v = receive(l, false);

    return v == IO_DONE ? IO_GARBAGE : v;
}

static enum io send_request(struct tcp_lane *l, uint32_t events)
{
    enum io v;

    if (is_write(l) && (events & ~(uint32_t)EPOLLOUT)) {
        v = early_reply(l);
        if (v != IO_AGAIN)
            return v;
    }
    v = send_some(l);
    if (v == IO_LOST) {
        /* The peer may have said why before it closed. */
        int err = l->sys_errno;

        v = early_reply(l);
        l->sys_errno = err;
        return v == IO_REJECTED || v == IO_GARBAGE || v == IO_STRANGER ? v : IO_LOST;
    }
    if (v == IO_AGAIN) {
        tei_watch_set(&l->watch, EPOLLIN | EPOLLOUT);
        return IO_AGAIN;
    }
    if (is_write(l) && !is_v2(l))
        shutdown(l->watch.fd, SHUT_WR);
    tei_watch_set(&l->watch, EPOLLIN);
    return IO_AGAIN;
}

static enum io exchange(struct tcp_lane *l, uint32_t events)
{
    if (l->classic->sent < to_be_sent(l))
        return send_request(l, events);
    return receive(l, true);
}

static void begin(struct tcp_lane *l, int64_t now);

static void finished(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    bool last;

    l->used = l->proven = true;
    l->tries = 0;
    l->progress_ns = now;
    pthread_mutex_lock(&p->lock);
    last = !is_kept(l) || l->drop;
    end_piece(l, NULL);
    if (!last && !take(l, 1, now))
        tei_tcp_lane_set(l, LANE_IDLE);
    pthread_mutex_unlock(&p->lock);
    if (last)
        tei_tcp_lane_abort(l, NULL);
    else if (l->state == LANE_BUSY)
        begin(l, now);
}

static struct tcp_fault fault_of(const struct tcp_lane *l, enum io v)
{
    if (v == IO_REJECTED)
        return (struct tcp_fault){TE_ERR_STALE, 0, "the target refused the address range"};
    if (v == IO_STRANGER)
        return (struct tcp_fault){TE_ERR_PEER, 0, "another program answers at the data port"};
    if (v == IO_GARBAGE)
        return (struct tcp_fault){TE_ERR_PROTOCOL, 0, "the reply is no status of this protocol"};
    return (struct tcp_fault){TE_ERR_LINK, l->sys_errno,
                              l->classic->got ? "reading the reply" : "sending the request"};
}

/* The exchange has failed: tries again on a new connection where that is safe. */
static void broken(struct tcp_lane *l, enum io v, int64_t now)
{
    const struct tcp_fault f = fault_of(l, v);
    bool stale = l->used && l->classic->got == 0;
    bool again = v == IO_LOST && (!is_write(l) || l->classic->sent == 0);

    if (!again || !tei_tcp_lane_may_retry(l, stale)) {
        tei_tcp_lane_fail(l, &f);
        return;
    }
    if (l->classic->work->entry.base.story)
        tei_story_again(l->classic->work->entry.base.story);
    tei_tcp_lane_retry(l, stale, now);
}

static void settle(struct tcp_lane *l, enum io v, int64_t now)
{
    if (v == IO_DONE)
        finished(l, now);
    else if (v != IO_AGAIN)
        broken(l, v, now);
}

static void advance(struct tcp_lane *l, uint32_t events, int64_t now)
{
    uint64_t before = l->classic->sent + l->classic->got;
    enum io v = exchange(l, events);

    if (l->classic->sent + l->classic->got != before) {
        l->progress_ns = now;
        /* Relaxed: the watchdog alone reads it. */
        atomic_store_explicit(&tei_tcp_peer_of(l)->progress_ns, now, memory_order_relaxed);
    }
    settle(l, v, now);
}

/* What a WRITE may leave behind is followed without memory. */
static bool make_ready(struct tcp_lane *l)
{
    struct tcp_classic *c = l->classic;

    if (is_write(l) && !c->remnant)
        c->remnant = tei_pool_get(&tei_tcp_worker_of(l)->t->remnants);
    return !is_write(l) || c->remnant;
}

static void begin(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault memory = {TE_ERR_MEMORY, 0, "making ready to follow a WRITE"};
    struct tcp_classic *c = l->classic;
    struct tcp_head h = {c->len, c->work->entry.base.remote + c->at, c->work->entry.base.opcode,
                         tei_tcp_peer_of(l)->version};
    bool fresh = tei_tcp_lane_is_fresh(l, now);

    tei_tcp_drive_begin(l, now);
    tei_tcp_head_encode(&h, c->head);
    c->sent = c->got = 0;
    l->progress_ns = now;
    if (!fresh) {
        broken(l, IO_LOST, now);
        return;
    }
    if (!make_ready(l)) {
        tei_tcp_lane_fail(l, &memory);
        return;
    }
    advance(l, 0, now);
    if (l->state == LANE_BUSY)
        tei_tcp_worker_arm(tei_tcp_worker_of(l), late_at(l));
}

const struct tcp_exchange tei_tcp_classic = {
    .make = make,
    .unmake = unmake,
    .takes_more = takes_more,
    .load = load,
    .take = take,
    .keeps = keeps,
    .reach = reach,
    .up = up,
    .cut = cut,
    .end = end,
    .unreached = end_piece,
    .begin = begin,
    .event = advance,
    .late_at = late_at,
    .late = late,
    .sweep = sweep,
};
