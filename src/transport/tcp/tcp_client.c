/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_client.c - lanes: connections to a peer, and the exchange on them.
 *
 *        work, no idle lane             connected
 *   OFF ------------------> CONNECTING -----------> IDLE or, with a piece, BUSY
 *                             |    ^
 *                      failed |    | retry_ns
 *                             v    |
 *                            PAUSED <------ BUSY: broken, but may be tried again; keeps its piece
 *
 *   IDLE -> BUSY     a piece was taken
 *   BUSY -> BUSY     finished, and there is another piece
 *   BUSY -> IDLE     finished, and there is none
 *   BUSY -> OFF      finished, with a v1 peer; broken for good; late; cancelled
 *   IDLE -> OFF      the peer closed it
 *   PAUSED, CONNECTING -> OFF   failed for the last time, late, cancelled
 *
 * An exchange is: send header (and payload of a WRITE), then receive status (and payload of a
 * READ). To a v1 peer there is no status: the end of a READ is its last byte, the end of a WRITE is
 * the peer closing in good order after we said that nothing more comes.
 *
 * What may be tried again on a new connection: a READ, since bytes of an attempt that is dead
 * cannot come any more once its socket is closed; a WRITE of which not a single byte was handed to
 * the kernel. Any other WRITE may still arrive at the target after a second attempt has completed,
 * and would undo what was written there since.
 *
 * A first reply that is no status comes from a stranger: the peer is gone and another program, the
 * handshake port of a new engine say, has got its port. No such program applies a WRITE, so to the
 * core that is a peer out of reach, and worth a fresh descriptor.
 *
 * A connection that the peer closed while it was idle looks alive until the first use. If nothing
 * of a reply came on a connection that had worked before, the attempt is not counted, and one that
 * was idle for a while is looked at before a request is given to it.
 */
#include "transport/tcp/tcp_stream.h"

#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum io { IO_AGAIN, IO_DONE, IO_LOST, IO_REJECTED, IO_GARBAGE, IO_STRANGER };

static struct tcp_peer *peer_of(const struct tcp_lane *l)
{
    return l->bundle->peer;
}

static struct tcp_worker *worker_of(const struct tcp_lane *l)
{
    return l->bundle->worker;
}

static bool is_write(const struct tcp_lane *l)
{
    return l->work->base.opcode == TE_WRITE;
}

static bool is_v2(const struct tcp_lane *l)
{
    return peer_of(l)->version >= 2;
}

static bool is_native(const struct tcp_lane *l)
{
    return peer_of(l)->version == TCP_NATIVE;
}

/* Whether the connection is to be used for more than one request. */
static bool is_kept(const struct tcp_lane *l)
{
    return is_v2(l) && worker_of(l)->t->conf->tcp_pool;
}

/* ------------------------------------------------------------------------------ when it is late */

/* When the piece is late, by its deadline or by lack of progress. */
static int64_t piece_late_at(const struct tcp_lane *l)
{
    const struct tcp *t = worker_of(l)->t;
    bool all_sent = l->sent == TCP_HEAD_LEN + (is_write(l) ? l->len : 0);
    int64_t limit = t->no_progress_ns, status = t->conf->tcp_status_timeout_ms * TEI_NS_PER_MS;

    if (is_v2(l) && all_sent && l->got < TCP_STATUS_LEN && status < limit)
        limit = status;
    if (limit == TEI_NEVER || l->work->base.deadline_ns <= l->progress_ns + limit)
        return l->work->base.deadline_ns;
    return l->progress_ns + limit;
}

static int64_t lane_late_at(const struct tcp_lane *l)
{
    int64_t deadline = l->work ? l->work->base.deadline_ns : TEI_NEVER, at = TEI_NEVER;

    switch (l->state) {
    case LANE_BUSY:
        return is_native(l) ? tei_tcp_stream_late_at(l) : piece_late_at(l);
    case LANE_PAUSED:
        at = l->retry_ns;
        break;
    case LANE_CONNECTING:
        at = l->attempt_ns + TCP_CONNECT_NS;
        break;
    case LANE_OFF:
    case LANE_IDLE:
        break;
    }
    return deadline < at ? deadline : at;
}

/* --------------------------------------------------------------------------- ending connections */

void tei_tcp_lane_let_go(struct tcp_lane *l)
{
    tei_watch_del(&l->watch);
    tei_tcp_drive_forget(l);
    l->used = l->proven = false;
}

static void close_socket(struct tcp_lane *l)
{
    int fd = l->watch.fd;

    if (!l->watch.loop)
        return;
    tei_tcp_lane_let_go(l);
    if (l->stream)
        tei_tcp_zerocopy_end(&l->stream->zero, fd);
    tei_fd_close(fd);
}

/* Ends the piece, if there is one, for reason f; the lane is left without a connection. */
static void give_up(struct tcp_lane *l, const struct tcp_fault *f)
{
    struct tcp_peer *p = peer_of(l);

    if (f && l->state == LANE_BUSY && !l->stream) {
        pthread_mutex_lock(&p->lock);
        tei_tcp_fence_cut(l, f);
        pthread_mutex_unlock(&p->lock);
    }
    close_socket(l);
    pthread_mutex_lock(&p->lock);
    if (l->work)
        tei_tcp_piece_end(l, f);
    if (l->stream)
        tei_tcp_stream_end(l, f);
    tei_tcp_lane_set(l, LANE_OFF);
    l->drop = false;
    if (tei_tcp_is_waiting(p))
        tei_tcp_bundle_call(l->bundle);
    pthread_mutex_unlock(&p->lock);
}

void tei_tcp_lane_abort(struct tcp_lane *l, const struct tcp_fault *f)
{
    if (l->state != LANE_OFF)
        give_up(l, f);
}

static void pause_until(struct tcp_lane *l, int64_t retry_ns)
{
    struct tcp_peer *p = peer_of(l);

    close_socket(l);
    l->retry_ns = retry_ns;
    pthread_mutex_lock(&p->lock);
    if (l->stream)
        tei_tcp_stream_end(l, NULL);
    tei_tcp_lane_set(l, LANE_PAUSED);
    l->drop = false;
    for (unsigned i = 0; p->n_frames && p->n_up && i < p->n_bundles; i++)
        tei_tcp_bundle_call(&p->bundles[i]); /* others may take its frames */
    pthread_mutex_unlock(&p->lock);
    tei_tcp_worker_arm(worker_of(l), lane_late_at(l));
}

/* Waits before the next attempt, longer each time. */
static void back_off(struct tcp_lane *l, int64_t now)
{
    int64_t wait = TCP_BACKOFF_NS << tei_min(l->tries ? l->tries - 1 : 0, 8);

    pause_until(l, now + (wait < TCP_BACKOFF_MAX_NS ? wait : TCP_BACKOFF_MAX_NS));
}

static bool tried_enough(const struct tcp_lane *l)
{
    return l->tries > (unsigned)worker_of(l)->t->conf->retry_cnt;
}

static void note_fault(struct tcp_lane *l, const struct tcp_fault *f)
{
    const struct tei_hostport *where = &peer_of(l)->where;
    /* A refused range is nothing to warn of: the core fetches the descriptor again. */
    enum te_log_level level = f->error == TE_ERR_STALE ? TE_LOG_DEBUG : TE_LOG_WARN;

    tei_tcp_worker_note(worker_of(l), level, "tcp: %s:%u: %s: %s", where->host,
                        (unsigned)where->port, f->why,
                        f->sys_errno ? tei_errno_text(f->sys_errno) : te_strerror(f->error));
}

/* ----------------------------------------------------------------------------------- connecting */

/*
 * No more attempts. If other connections are up this lane only rests, so as not to try again at
 * once. If none is, and no other lane still tries, the peer is out of reach for all that is queued.
 */
static void connect_gave_up(struct tcp_lane *l, int64_t now)
{
    struct tcp_fault f = {TE_ERR_PEER, l->sys_errno, tei_tcp_connecting};
    struct tcp_peer *p = peer_of(l);
    bool rest;

    if (l->unanswered)
        f.why = "another program answers at the data port";
    note_fault(l, &f);
    pthread_mutex_lock(&p->lock);
    if (l->work)
        tei_tcp_piece_end(l, &f);
    if (l->stream)
        tei_tcp_stream_end(l, NULL);
    tei_tcp_lane_set(l, LANE_OFF);
    rest = p->n_up > 0;
    if (!rest && p->n_opening == 0) {
        tei_tcp_queue_fail(p, worker_of(l), &f);
        p->n_addrs = p->numeric || p->resolving ? p->n_addrs : 0;
    }
    pthread_mutex_unlock(&p->lock);
    if (rest) {
        l->tries = 0;
        l->round_ns = now + TCP_BACKOFF_MAX_NS;
        pause_until(l, l->round_ns);
    }
}

static void connect_failed(struct tcp_lane *l, int err, int64_t now)
{
    close_socket(l);
    l->sys_errno = err;
    l->tries++;
    if (tried_enough(l) || now - l->round_ns >= l->limit_ns)
        connect_gave_up(l, now);
    else
        back_off(l, now);
}

static void note_connected(const struct tcp_lane *l)
{
    const struct tei_hostport *where = &peer_of(l)->where;

    tei_tcp_worker_note(worker_of(l), TE_LOG_DEBUG, "tcp: %s to the data port %s:%u",
                        l->was_up ? "connected again" : "connected", where->host,
                        (unsigned)where->port);
}

/* The piece that was kept through a new connection, or a new one, or none. */
static void connected(struct tcp_lane *l, int64_t now)
{
    /* The work has its error already, and this piece was not begun. */
    static const struct tcp_fault ended = {TE_ERR_PEER, 0, NULL};
    struct tcp_peer *p = peer_of(l);
    bool greeted = true;

    note_connected(l);
    if (l->was_up)
        worker_of(l)->count.reconnects++;
    l->was_up = true;
    l->progress_ns = now;
    tei_watch_set(&l->watch, EPOLLIN);
    pthread_mutex_lock(&p->lock);
    p->first = l->path == 0 ? l->address : p->first;
    if (l->work && l->work->base.error)
        tei_tcp_piece_end(l, &ended);
    if (is_native(l))
        greeted = tei_tcp_stream_greet(l);
    else if (l->work)
        tei_tcp_lane_set(l, LANE_BUSY);
    else if (!tei_tcp_piece_take(l, now))
        tei_tcp_lane_set(l, LANE_IDLE);
    if (!is_native(l))
        tei_tcp_bundle_call(l->bundle); /* others may follow */
    pthread_mutex_unlock(&p->lock);
    if (!greeted) {
        connect_failed(l, ENOMEM, now);
        return;
    }
    l->used = l->state == LANE_IDLE;
    if (l->state == LANE_BUSY)
        tei_tcp_lane_begin(l, now);
    else if (!is_kept(l))
        give_up(l, NULL);
}

/*
 * Where the lane connects to. A peer with further addresses has its lanes dealt out over all, and a
 * lane that fails goes on to the next. Peer's lock held.
 */
static struct tei_addr pick_address(struct tcp_lane *l)
{
    struct tcp_peer *p = peer_of(l);
    unsigned index = (unsigned)(l - p->bundles[0].lanes), paths = 1 + (unsigned)p->n_more;

    l->limit_ns *= paths;
    for (unsigned i = 0; p->n_more && i < paths; i++) {
        l->path = (index + l->tries + i) % paths;
        if (l->path > 0 && !(p->wrong & 1u << l->path))
            return p->more[l->path - 1];
        if (l->path == 0)
            break;
    }
    l->path = 0;
    l->address = (p->first + l->tries) % (unsigned)p->n_addrs;
    l->limit_ns *= p->n_addrs;
    return p->addrs[l->address];
}

static void on_lane(struct tei_watch *watch, uint32_t events);

/* Returns 0, connected or on the way, or an errno value. */
static int start_connect(struct tcp_lane *l, const struct tei_addr *a)
{
    struct tcp_worker *w = worker_of(l);
    int fd = tei_connect_start(a);

    if (fd < 0)
        return errno;
    tei_tcp_tune(w->t, fd);
    l->near = tei_tcp_tune_connected(w->t, fd, a);
    if (peer_of(l)->n_more)
        tei_tcp_path_tune(fd);
    if (tei_watch_add(&w->loop, &l->watch, fd, EPOLLOUT, on_lane) < 0) {
        tei_fd_close(fd);
        return ENOMEM;
    }
    return 0;
}

void tei_tcp_lane_connect(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = peer_of(l);
    struct tei_addr a = {0};
    int err = EHOSTUNREACH;

    l->attempt_ns = now;
    l->unanswered = false;
    l->limit_ns = TCP_CONNECT_NS;
    pthread_mutex_lock(&p->lock);
    tei_tcp_lane_set(l, LANE_CONNECTING);
    if (p->n_addrs > 0)
        a = pick_address(l);
    pthread_mutex_unlock(&p->lock);
    if (a.len)
        err = start_connect(l, &a);
    if (err)
        connect_failed(l, err, now);
    else
        tei_tcp_worker_arm(worker_of(l), lane_late_at(l));
}

/* -------------------------------------------------------------------------------------- sending */

/* What is still to be sent, at most `slice` bytes of payload. Returns the number of parts. */
static int to_send(struct tcp_lane *l, uint64_t slice, struct iovec iov[2], size_t *total)
{
    uint64_t at = l->sent > TCP_HEAD_LEN ? l->sent - TCP_HEAD_LEN : 0;
    int n = 0;

    *total = 0;
    if (l->sent < TCP_HEAD_LEN)
        iov[n++] = (struct iovec){l->head + l->sent, TCP_HEAD_LEN - l->sent};
    if (is_write(l))
        iov[n++] = (struct iovec){l->work->base.local + l->at + at, tei_min(l->len - at, slice)};
    for (int i = 0; i < n; i++)
        *total += iov[i].iov_len;
    return n;
}

static enum io send_some(struct tcp_lane *l)
{
    uint64_t slice = worker_of(l)->t->conf->tcp_slice_size;

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
        l->sent += n > 0 ? (size_t)n : 0;
        if (n >= 0 && (size_t)n < total)
            return IO_AGAIN; /* there is no room for more */
    }
    return l->sent < TCP_HEAD_LEN + (is_write(l) ? l->len : 0) ? IO_AGAIN : IO_DONE;
}

/* ------------------------------------------------------------------------------------ receiving */

static enum io check_status(const struct tcp_lane *l)
{
    uint32_t code;

    if (!tei_tcp_status_decode(l->status, &code))
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
    ssize_t n = recv(l->watch.fd, l->status, 1, MSG_DONTWAIT);

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
    uint64_t at = l->got > prefix ? l->got - prefix : 0,
             slice = worker_of(l)->t->conf->tcp_slice_size;
    int n = 0;

    *total = 0;
    if (l->got < prefix)
        iov[n++] = (struct iovec){l->status + l->got, prefix - l->got};
    if (body)
        iov[n++] = (struct iovec){l->work->base.local + l->at + at, tei_min(body - at, slice)};
    for (int i = 0; i < n; i++)
        *total += iov[i].iov_len;
    return n;
}

/* The status of v2, then the payload of a READ, straight into its place. */
static enum io receive_some(struct tcp_lane *l)
{
    size_t prefix = is_v2(l) ? TCP_STATUS_LEN : 0, total;
    uint64_t body = is_write(l) ? 0 : l->len;

    for (int calls = TCP_CALLS; calls > 0; calls--) {
        struct iovec iov[2];
        int parts = to_receive(l, prefix, body, iov, &total);
        ssize_t n = readv(l->watch.fd, iov, parts);
        bool had_status = l->got >= prefix;

        if (n == 0) {
            l->sys_errno = 0;
            return !is_v2(l) && l->got == 0 ? IO_REJECTED : IO_LOST;
        }
        if (n < 0) {
            l->sys_errno = errno;
            if (errno == EINTR)
                continue;
            return errno == EAGAIN ? IO_AGAIN : IO_LOST;
        }
        l->got += (size_t)n;
        if (!had_status && l->got >= prefix && check_status(l) != IO_DONE)
            return check_status(l);
        if (l->got == prefix + body)
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
    if (l->sent < TCP_HEAD_LEN + (is_write(l) ? l->len : 0))
        return send_request(l, events);
    return receive(l, true);
}

static void finished(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = peer_of(l);
    bool last;

    l->used = l->proven = true;
    l->tries = 0;
    l->progress_ns = now;
    pthread_mutex_lock(&p->lock);
    last = !is_kept(l) || l->drop;
    tei_tcp_piece_end(l, NULL);
    if (!last && !tei_tcp_piece_take(l, now))
        tei_tcp_lane_set(l, LANE_IDLE);
    pthread_mutex_unlock(&p->lock);
    if (last)
        give_up(l, NULL);
    else if (l->state == LANE_BUSY)
        tei_tcp_lane_begin(l, now);
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
                              l->got ? "reading the reply" : "sending the request"};
}

/* What is there does not answer the greeting; no WRITE was sent to it. The lane counts the tries. */
static void not_greeted(struct tcp_lane *l, int64_t now)
{
    l->unanswered = true;
    l->stream->forgive = true;
    connect_failed(l, l->sys_errno, now);
}

void tei_tcp_lane_broken(struct tcp_lane *l, const struct tcp_fault *f, bool again, int64_t now)
{
    bool was_stale = l->used && (is_native(l) ? !l->stream->heard : l->got == 0);

    if (is_native(l) && !l->proven) {
        not_greeted(l, now);
        return;
    }
    if (is_native(l) && was_stale)
        l->stream->forgive = true;
    if (again && !was_stale)
        l->tries++;
    /* Frames count their tries themselves, and may go out on another lane. */
    if (!again || (!is_native(l) && tried_enough(l))) {
        note_fault(l, f);
        give_up(l, f);
        return;
    }
    worker_of(l)->count.retries++;
    l->round_ns = now;
    back_off(l, now);
    if (was_stale)
        tei_tcp_lane_connect(l, now);
}

/* The exchange has failed: tries again on a new connection where that is safe. */
static void broken(struct tcp_lane *l, enum io v, int64_t now)
{
    struct tcp_fault f = fault_of(l, v);

    tei_tcp_lane_broken(l, &f, v == IO_LOST && (!is_write(l) || l->sent == 0), now);
}

/*
 * The greeting was refused, mostly by another engine, so nothing of what was sent here had any
 * effect. At a further address of the peer that is the address's fault; at the one that the peer
 * answers RPCs on, the peer is gone, and all that waits for it may be tried with a fresh descriptor.
 */
void tei_tcp_lane_refused(struct tcp_lane *l, const struct tcp_fault *f, int64_t now)
{
    struct tcp_peer *p = peer_of(l);

    if (l->path > 0) {
        pthread_mutex_lock(&p->lock);
        p->wrong |= 1u << l->path;
        pthread_mutex_unlock(&p->lock);
        l->stream->forgive = true;
        tei_tcp_lane_broken(l, f, true, now);
        return;
    }
    note_fault(l, f);
    pthread_mutex_lock(&p->lock);
    tei_tcp_stream_refuse(l, f);
    tei_tcp_queue_fail(p, worker_of(l), f);
    tei_tcp_frames_settle(p);
    pthread_mutex_unlock(&p->lock);
    give_up(l, f);
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
    uint64_t before = l->sent + l->got;
    enum io v = exchange(l, events);

    if (l->sent + l->got != before) {
        l->progress_ns = now;
        /* Relaxed: the watchdog alone reads it. */
        atomic_store_explicit(&peer_of(l)->progress_ns, now, memory_order_relaxed);
    }
    settle(l, v, now);
}

/* Whether the idle connection is still good: nothing to read, not even the end. */
static bool is_quiet(struct tcp_lane *l)
{
    char c;
    ssize_t n = recv(l->watch.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

    l->sys_errno = n < 0 ? errno : 0;
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void begin_exchange(struct tcp_lane *l, int64_t now)
{
    struct tcp_head h = {l->len, l->work->base.remote + l->at, l->work->base.opcode,
                         peer_of(l)->version};
    bool rested = l->used && now - l->progress_ns > TCP_FRESH_NS;

    tei_tcp_drive_begin(l, now);
    tei_tcp_head_encode(&h, l->head);
    l->sent = l->got = 0;
    l->progress_ns = now;
    if (rested && !is_quiet(l)) {
        broken(l, IO_LOST, now);
        return;
    }
    advance(l, 0, now);
    if (l->state == LANE_BUSY)
        tei_tcp_worker_arm(worker_of(l), piece_late_at(l));
}

static void begin_stream(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault closed = {TE_ERR_LINK, 0, "the peer has closed the connection"};
    bool begins = tei_tcp_stream_begins(l);
    bool rested = l->used && now - l->progress_ns > TCP_FRESH_NS;

    tei_tcp_drive_begin(l, now);
    if (begins)
        l->progress_ns = now;
    if (begins && rested && !is_quiet(l))
        tei_tcp_lane_broken(l, &closed, true, now);
    else
        tei_tcp_stream_send(l, now);
}

void tei_tcp_lane_begin(struct tcp_lane *l, int64_t now)
{
    if (is_native(l))
        begin_stream(l, now);
    else
        begin_exchange(l, now);
}

/* --------------------------------------------------------------------------------------- events */

static void on_lane(struct tei_watch *watch, uint32_t events)
{
    struct tcp_lane *l = tei_container_of(watch, struct tcp_lane, watch);
    int64_t now = tei_now_ns();
    int err;

    switch (l->state) {
    case LANE_CONNECTING:
        err = tei_connect_result(l->watch.fd);
        if (err)
            connect_failed(l, err, now);
        else
            connected(l, now);
        break;
    case LANE_BUSY:
        if (is_native(l))
            tei_tcp_stream_event(l, now);
        else
            advance(l, events, now);
        break;
    case LANE_IDLE: /* the peer has closed it, or sends what nobody asked for */
        if (!is_quiet(l))
            give_up(l, NULL);
        break;
    case LANE_OFF:
    case LANE_PAUSED:
        break;
    }
}

static bool is_wanted(struct tcp_lane *l)
{
    struct tcp_peer *p = peer_of(l);
    bool yes;

    pthread_mutex_lock(&p->lock);
    yes = l->work || tei_tcp_is_waiting(p);
    pthread_mutex_unlock(&p->lock);
    return yes;
}

/* It may be this thread that got no processor, and not the peer that did not answer. */
static void connect_late(struct tcp_lane *l, int64_t now)
{
    struct pollfd p = {.fd = l->watch.fd, .events = POLLOUT};

    if (poll(&p, 1, 0) > 0)
        on_lane(&l->watch, EPOLLOUT);
    else
        connect_failed(l, ETIMEDOUT, now);
}

static void late(struct tcp_lane *l, int64_t now)
{
    struct tcp_fault f = {TE_ERR_TIMEOUT, 0, "waiting for the peer"};

    if (l->state == LANE_BUSY && is_native(l)) {
        tei_tcp_stream_late(l, now);
    } else if (l->state == LANE_BUSY || (l->work && l->work->base.deadline_ns <= now)) {
        if (l->state != LANE_BUSY)
            f.why = tei_tcp_connecting;
        note_fault(l, &f);
        give_up(l, &f);
    } else if (l->state == LANE_CONNECTING) {
        connect_late(l, now);
    } else if (is_wanted(l)) {
        tei_tcp_lane_connect(l, now);
    } else {
        give_up(l, NULL);
    }
}

int64_t tei_tcp_lane_tick(struct tcp_lane *l, int64_t now)
{
    if (lane_late_at(l) <= now)
        late(l, now);
    return lane_late_at(l);
}
