/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_lane.c - lanes: connections to a peer, and what they go through whatever is said on them.
 *
 *        work, no idle lane             connected
 *   OFF ------------------> CONNECTING -----------> IDLE or, with a piece, BUSY
 *                             |    ^
 *                      failed |    | retry_ns
 *                             v    |
 *                            PAUSED <------ BUSY: broken, but may be tried again
 *
 *   IDLE -> BUSY     a piece was taken
 *   BUSY -> BUSY     finished, and there is another piece
 *   BUSY -> IDLE     finished, and there is none
 *   BUSY -> OFF      finished, with a v1 peer; broken for good; late; cancelled
 *   IDLE -> OFF      the peer closed it
 *   PAUSED, CONNECTING -> OFF   failed for the last time, late, cancelled; its engine is known to be elsewhere
 *
 * What is carried, and how, is the exchange's: struct tcp_exchange.
 *
 * A connection that the peer closed while it was idle looks alive until the first use. If nothing
 * of a reply came on a connection that had worked before, the attempt is not counted, and one that
 * was idle for a while is looked at before a request is given to it.
 */
#include "transport/tcp/tcp_auth.h"
#include "base/probe.h"
#include "transport/tcp/tcp_nics.h"
#include "transport/tcp/tcp_warm.h"

#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static const struct tcp_exchange *exchange_of(const struct tcp_lane *l)
{
    return tei_tcp_peer_of(l)->exchange;
}

/* ------------------------------------------------------------------------------ when it is late */

static int64_t lane_late_at(const struct tcp_lane *l)
{
    int64_t late = exchange_of(l)->late_at(l), at = TEI_NEVER;

    if (l->state == LANE_PAUSED)
        at = l->retry_ns;
    else if (l->state == LANE_CONNECTING)
        at = l->attempt_ns + TCP_CONNECT_NS;
    return late < at ? late : at;
}

/* --------------------------------------------------------------------------- ending connections */

void tei_tcp_lane_let_go(struct tcp_lane *l)
{
    tei_watch_del(&l->watch);
    tei_tcp_drive_forget(l);
    l->used = l->proven = false;
}

/* For reason f; NULL: there is none, or what it carries may be tried again. */
static void close_socket(struct tcp_lane *l, const struct tcp_fault *f)
{
    int fd = l->watch.fd;

    if (l->watch.loop)
        exchange_of(l)->cut(l, f);
    if (!l->watch.loop)
        return;
    tei_tcp_lane_let_go(l);
    tei_tcp_nics_close(tei_tcp_worker_of(l), fd);
    tei_fd_close(fd);
}

void tei_tcp_lane_abort(struct tcp_lane *l, const struct tcp_fault *f)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);

    if (l->state == LANE_OFF)
        return;
    close_socket(l, f);
    pthread_mutex_lock(&p->lock);
    exchange_of(l)->end(l, f);
    tei_tcp_lane_set(l, LANE_OFF);
    l->drop = false;
    if (tei_tcp_is_waiting(p) || p->n_wished)
        tei_tcp_bundle_call(l->bundle);
    pthread_mutex_unlock(&p->lock);
}

static void pause_until(struct tcp_lane *l, int64_t retry_ns)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);

    close_socket(l, NULL);
    l->retry_ns = retry_ns;
    pthread_mutex_lock(&p->lock);
    exchange_of(l)->end(l, NULL);
    tei_tcp_lane_set(l, LANE_PAUSED);
    l->drop = false;
    for (unsigned i = 0; p->n_frames && p->n_up && i < p->n_bundles; i++)
        tei_tcp_bundle_call(&p->bundles[i]); /* others may take its frames */
    pthread_mutex_unlock(&p->lock);
    tei_tcp_worker_arm(tei_tcp_worker_of(l), lane_late_at(l));
}

/* Waits before the next attempt, longer each time. */
static void back_off(struct tcp_lane *l, int64_t now)
{
    int64_t wait = TCP_BACKOFF_NS << tei_min(l->tries ? l->tries - 1 : 0, 8);

    pause_until(l, now + (wait < TCP_BACKOFF_MAX_NS ? wait : TCP_BACKOFF_MAX_NS));
}

bool tei_tcp_lane_may_retry(const struct tcp_lane *l, bool stale)
{
    return l->tries + !stale <= (unsigned)tei_tcp_worker_of(l)->t->conf->retry_cnt;
}

static void note_fault(struct tcp_lane *l, const struct tcp_fault *f)
{
    const struct tei_hostport *where = &tei_tcp_peer_of(l)->where;
    /* A refused range is nothing to warn of: the core fetches the descriptor again. */
    enum te_log_level level = f->error == TE_ERR_STALE ? TE_LOG_DEBUG : TE_LOG_WARN;

    tei_tcp_worker_note(tei_tcp_worker_of(l), level, "tcp: %s:%u: %s: %s", where->host,
                        (unsigned)where->port, f->why,
                        f->sys_errno ? tei_errno_text(f->sys_errno) : te_strerror(f->error));
}

void tei_tcp_lane_fail(struct tcp_lane *l, const struct tcp_fault *f)
{
    note_fault(l, f);
    tei_tcp_lane_abort(l, f);
}

void tei_tcp_lane_retry(struct tcp_lane *l, bool stale, int64_t now)
{
    l->tries += !stale;
    tei_tcp_worker_of(l)->count.retries++;
    TEI_PROBE3(retry, tei_tcp_worker_of(l)->t->base.ops.name, l->sys_errno, l->path);
    l->round_ns = now;
    back_off(l, now);
    if (stale)
        tei_tcp_lane_connect(l, now);
}

/* ----------------------------------------------------------------------------------- connecting */

/*
 * No more attempts. If other connections are up this lane only rests, so as not to try again at
 * once. If none is, and no other lane still tries, the peer is out of reach for all that is queued.
 */
static void connect_gave_up(struct tcp_lane *l, int64_t now)
{
    struct tcp_fault f = {TE_ERR_PEER, l->sys_errno, tei_tcp_connecting};
    struct tcp_peer *p = tei_tcp_peer_of(l);
    bool rest;

    if (l->unanswered)
        f.why = "another program answers at the data port";
    note_fault(l, &f);
    pthread_mutex_lock(&p->lock);
    exchange_of(l)->unreached(l, &f);
    tei_tcp_lane_set(l, LANE_OFF);
    tei_tcp_wish_fail(l, &f);
    rest = p->n_up > 0;
    if (!rest && p->n_opening == 0) {
        tei_tcp_queue_fail(p, tei_tcp_worker_of(l), &f);
        if (l->sys_errno == ECONNREFUSED && l->path == 0 && p->n_addrs == 1)
            tei_tcp_frames_refused(p); /* at the one address where it was */
        p->n_addrs = p->numeric || p->resolving ? p->n_addrs : 0;
    }
    pthread_mutex_unlock(&p->lock);
    if (rest) {
        l->tries = 0;
        l->round_ns = now + TCP_BACKOFF_MAX_NS;
        pause_until(l, l->round_ns);
    }
}

static struct tei_link *any_work(const struct tcp_peer *p)
{
    const struct tei_list *lists[] = {&p->ledger.queue, &p->ledger.whole, &p->held.queue};
    struct tei_link *first = NULL;

    for (unsigned i = 0; !first && i < TEI_ARRAY_LEN(lists); i++)
        first = tei_list_first(lists[i]);
    return first;
}

/*
 * Nobody listens: what waits may be for an engine that is somewhere else by now. False: it is known to be. Asked at every
 * other attempt, so that a peer which is gone costs its metadata server little.
 */
static bool may_come_back(struct tcp_lane *l)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    struct tei_host *h = p->t->base.host;
    struct tei_link *first;
    bool may;

    pthread_mutex_lock(&p->lock);
    may = !p->moved;
    first = any_work(p);
    if (may && first && p->n_up == 0 && l->tries % 2 == 0)
        h->refused(h, tei_tcp_work_of(first)->entry.base.attach);
    pthread_mutex_unlock(&p->lock);
    return may;
}

void tei_tcp_lane_forsake(struct tcp_lane *l, int64_t now)
{
    connect_gave_up(l, now);
}

void tei_tcp_lane_not_connected(struct tcp_lane *l, int err, int64_t now)
{
    bool again = tei_tcp_lane_may_retry(l, false) && now - l->round_ns < l->limit_ns &&
                 (err != ECONNREFUSED || may_come_back(l));

    close_socket(l, NULL);
    l->sys_errno = err;
    l->tries++;
    if (again)
        back_off(l, now);
    else
        connect_gave_up(l, now);
}

static void note_connected(const struct tcp_lane *l)
{
    const struct tei_hostport *where = &tei_tcp_peer_of(l)->where;

    tei_tcp_worker_note(tei_tcp_worker_of(l), TE_LOG_DEBUG, "tcp: %s to the data port %s:%u",
                        l->was_up ? "connected again" : "connected", where->host,
                        (unsigned)where->port);
}

/* What the stories of its works have as the way. */
static void note_ends(struct tcp_lane *l)
{
    struct tei_addr own = {.len = sizeof own.ss}, other = {.len = sizeof other.ss};
    char from[TEI_STORY_PATH / 2 - 2], to[TEI_STORY_PATH / 2 - 2];

    l->ends[0] = '\0';
    if (tei_tcp_worker_of(l)->t->conf->slow_ms > 0 &&
        getsockname(l->watch.fd, (struct sockaddr *)&own.ss, &own.len) == 0 &&
        getpeername(l->watch.fd, (struct sockaddr *)&other.ss, &other.len) == 0)
        snprintf(l->ends, sizeof l->ends, "%s to %s", tei_addr_format(&own, from, sizeof from),
                 tei_addr_format(&other, to, sizeof to));
}

static void connected(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    const struct tcp_fault *silence;
    bool up, drop;

    note_connected(l);
    note_ends(l);
    if (l->was_up)
        tei_tcp_worker_of(l)->count.reconnects++;
    l->was_up = true;
    l->sys_errno = 0;
    l->progress_ns = now;
    tei_watch_set(&l->watch, EPOLLIN);
    silence = tei_tcp_auth_silence(l);
    if (silence) {
        tei_tcp_auth_mute(l, silence);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->first = l->path == 0 ? l->address : p->first;
    up = exchange_of(l)->up(l, now);
    drop = l->drop;
    pthread_mutex_unlock(&p->lock);
    if (!up) {
        tei_tcp_lane_not_connected(l, ENOMEM, now);
        return;
    }
    l->used = l->state == LANE_IDLE;
    if (l->state == LANE_BUSY)
        exchange_of(l)->begin(l, now);
    else if (drop)
        tei_tcp_lane_abort(l, NULL);
}

/*
 * Where the lane connects to. A peer with further addresses has its lanes dealt out over all, and a
 * lane that fails goes on to the next. Peer's lock held.
 */
static struct tei_addr pick_address(struct tcp_lane *l)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
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
    struct tcp_worker *w = tei_tcp_worker_of(l);
    int fd = tei_connect_start(a);

    if (fd < 0)
        return errno;
    tei_tcp_tune(w->t, fd);
    l->near = tei_tcp_tune_connected(w->t, fd, a);
    if (tei_watch_add(&w->loop, &l->watch, fd, EPOLLOUT, on_lane) < 0) {
        int err = errno;

        tei_fd_close(fd);
        return err;
    }
    return 0;
}

void tei_tcp_lane_connect(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    struct tei_addr a = {0};
    int err = EHOSTUNREACH;

    l->unanswered = false;
    l->limit_ns = TCP_CONNECT_NS;
    pthread_mutex_lock(&p->lock);
    tei_tcp_lane_set(l, LANE_CONNECTING);
    if (p->n_addrs > 0)
        a = pick_address(l);
    pthread_mutex_unlock(&p->lock);
    if (a.len)
        err = start_connect(l, &a);
    if (err) {
        tei_tcp_lane_not_connected(l, err, now);
        return;
    }
    l->attempt_ns = tei_now_ns(); /* this thread may have stood still since now */
    tei_tcp_worker_arm(tei_tcp_worker_of(l), lane_late_at(l));
}

/* --------------------------------------------------------------------------------------- events */

/* Whether the idle connection is still good: nothing to read, not even the end. */
static bool is_quiet(struct tcp_lane *l)
{
    char c;
    ssize_t n = recv(l->watch.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

    l->sys_errno = n < 0 ? errno : 0;
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

bool tei_tcp_lane_is_fresh(struct tcp_lane *l, int64_t now)
{
    return !l->used || now - l->progress_ns <= TCP_FRESH_NS || is_quiet(l);
}

static void on_lane(struct tei_watch *watch, uint32_t events)
{
    struct tcp_lane *l = tei_container_of(watch, struct tcp_lane, watch);
    int64_t now = tei_now_ns();
    int err;

    switch (l->state) {
    case LANE_CONNECTING:
        err = tei_connect_result(l->watch.fd);
        if (err)
            tei_tcp_lane_not_connected(l, err, now);
        else
            connected(l, now);
        break;
    case LANE_BUSY:
        exchange_of(l)->event(l, events, now);
        break;
    case LANE_IDLE: /* the peer has closed it, or sends what nobody asked for */
        if (!is_quiet(l))
            tei_tcp_lane_abort(l, NULL);
        break;
    case LANE_OFF:
    case LANE_PAUSED:
        break;
    }
}

static bool is_wanted(struct tcp_lane *l)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    bool yes;

    pthread_mutex_lock(&p->lock);
    yes = exchange_of(l)->keeps(l) || tei_tcp_is_waiting(p) || l->wish == WISH_OPEN;
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
        tei_tcp_lane_not_connected(l, ETIMEDOUT, now);
}

static void late(struct tcp_lane *l, int64_t now)
{
    if (exchange_of(l)->late_at(l) <= now)
        exchange_of(l)->late(l, now);
    else if (l->state == LANE_CONNECTING)
        connect_late(l, now);
    else if (is_wanted(l))
        tei_tcp_lane_connect(l, now);
    else
        tei_tcp_lane_abort(l, NULL);
}

int64_t tei_tcp_lane_tick(struct tcp_lane *l, int64_t now)
{
    if (lane_late_at(l) <= now)
        late(l, now);
    return lane_late_at(l);
}
