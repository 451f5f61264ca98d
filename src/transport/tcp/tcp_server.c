/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_server.c - the listener and the sessions: connections from peers, one request at a time on
 * each.
 *
 *        header read, range held              last byte moved
 *   HEAD ----------------------> SEND (READ) -----------------> HEAD
 *     |  \---------------------> RECEIVE (WRITE) -------------> STATUS (v2) -> HEAD;  v1: HEAD
 *     |   range refused, v2
 *     \------------------------> REJECT -> DRAIN -> closed.   v1: closed at once
 *
 * Memory of a device is moved through a stage: tcp_device.c. Everything here is the same with it, but
 * that a copy can fail after the header was found good: then a v2 client is told that the request is
 * rejected, if it has been told nothing yet, and any other one gets a reset.
 *
 * The region is held from the header to the last byte, so it cannot be unregistered under a copy;
 * region_del() ends sessions that are inside instead of waiting for their clients. A status OK goes
 * out after the last byte is in place, never before.
 *
 * A refusal is sent at once. A v1 client learns of it by the connection being closed; as exactly a
 * header is read at first, and never a byte of payload with it, that is a reset for a WRITE. For a
 * v2 client a reset would be a loss: it throws away a status that has not left the host yet, which
 * under a congestion control that paces is a matter of course. So the session only says that
 * nothing more comes from it, and discards what does come until the client has closed, or for
 * TCP_DRAIN_NS.
 *
 * A client that begins a header must finish it in TCP_HEAD_NS, and one that is being served must
 * move a byte within conf->transfer_timeout_ms. One that is silent between two requests stays, as
 * long as there is room: each worker serves its share of conf->tcp_max_sessions, and a newcomer
 * beyond that takes a place of the address that has the most; see victim(). One whose
 * client has not greeted, asked for anything that is refused, or taken what it asked for, was of no use: an
 * address that has too many of those is banned (tcp_ban.c).
 */
#include "transport/tcp/tcp_auth.h"
#include "transport/tcp/tcp_device.h"
#include "transport/tcp/tcp_nics.h"
#include "base/probe.h"

#include "base/err.h"
#include "base/log.h"
#include "base/tsan.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS     256                   /* per event: in the backlog there are no shares */
#define RELISTEN_NS (100 * TEI_NS_PER_MS) /* rest when descriptors have run out */
#define STALLED_NS  (1 * TEI_NS_PER_S) /* without progress: it does not do what it is there for */
#define UNSENT      (1 << 20)  /* bytes that the kernel takes of a connection and cannot send yet */
#define UNSENT_MANY (64 << 10) /* the same of each beyond UNSENT_FEW of an address, on a worker */
#define UNSENT_FEW  8

static struct tcp_session *session_of(struct tei_link *n)
{
    return tei_container_of(n, struct tcp_session, link);
}

/* ----------------------------------------------------------------------------- between requests */

static void release(struct tcp_session *s)
{
    struct tei_host *h = s->worker->t->base.host;

    tei_tcp_stage_close(s);
    if (s->region)
        h->region_release(h, s->region);
    s->region = NULL;
}

void tei_tcp_session_close(struct tcp_session *s)
{
    int fd = s->watch.fd;

    release(s);
    tei_tcp_channel_close(s);
    tei_tcp_auth_forget(s);
    tei_watch_del(&s->watch);
    tei_tcp_nics_close(s->worker, fd);
    tei_fd_close(fd);
    tei_list_del(&s->link);
    if (tei_link_is_in(&s->drop_turn))
        tei_list_del(&s->drop_turn);
    if (tei_link_is_in(&s->turn))
        tei_list_del(&s->turn);
    tei_tcp_ban_leave(s);
    tei_source_leave(&s->source->base);
    s->worker->n_sessions--;
    tei_pool_put(&s->worker->t->sessions, s);
}

static void move_to(struct tcp_session *s, struct tei_list *list)
{
    tei_list_del(&s->link);
    tei_list_push_back(list, &s->link);
}

void tei_tcp_session_serving(struct tcp_session *s, bool serving)
{
    move_to(s, serving ? &s->worker->serving : &s->worker->idle);
}

/* Nothing is left to do for the request. */
static enum tcp_step await_next(struct tcp_session *s)
{
    s->state = SESSION_HEAD;
    s->head_got = 0;
    s->useful = true;
    move_to(s, &s->worker->idle);
    tei_watch_set(&s->watch, EPOLLIN);
    return STEP_WAIT;
}

static void moved(struct tcp_session *s, size_t n, uint64_t *counter)
{
    if (s->stage)
        tei_tcp_stage_moved(s, n);
    s->data += n;
    s->left -= n;
    *counter += n;
    s->since_ns = tei_now_ns();
}

/* The client sees its connection break, and cannot know why: here is who can mend it. Once a region. */
static void tell_unmapped(const struct tcp_session *s)
{
    struct tei_region *r = s->channel ? tei_tcp_channel_region(s) : s->region;

    if (r && !atomic_exchange_explicit(&r->told, true, memory_order_relaxed))
        TEI_ERROR("tcp: region 0x%zx + %zu is registered, but a peer cannot be served: not all of "
                  "it is mapped and open to this process; te_unregister() memory before it is "
                  "unmapped or protected",
                  (size_t)r->addr, r->length);
}

enum tcp_step tei_tcp_session_stalled(struct tcp_session *s, uint32_t events)
{
    if (errno == EINTR)
        return STEP_MORE;
    if (errno == EFAULT) {
        s->useful = true; /* the fault is ours */
        tell_unmapped(s);
    }
    if (errno != EAGAIN)
        return STEP_CLOSE;
    tei_watch_set(&s->watch, events);
    return STEP_WAIT;
}

/* ---------------------------------------------------------------------------------------- steps */

static enum tcp_step reject(struct tcp_session *s)
{
    s->worker->count.served_rejected++;
    s->useful = tei_tcp_head_is_known(s->head_bytes); /* who asks by an old descriptor is told so */
    if (s->head.version < 2)
        return STEP_CLOSE;
    tei_tcp_status_encode(TCP_STATUS_REJECTED, s->status);
    s->status_left = TCP_STATUS_LEN;
    s->state = SESSION_REJECT;
    return STEP_MORE;
}

/* Memory of a device could not be copied: no client may take this for success. */
static enum tcp_step fail_copy(struct tcp_session *s)
{
    static const struct linger reset = {.l_onoff = 1};

    release(s);
    s->useful = true; /* the fault is ours */
    if (s->status_left == TCP_STATUS_LEN)
        return reject(s);
    setsockopt(s->watch.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return STEP_CLOSE;
}

static bool open_stage(struct tcp_session *s)
{
    const struct tcp_head *head = &s->head;

    return s->region->kind == TEI_MEM_HOST ||
           (tei_tcp_stage_open(s, head->opcode == TE_READ) &&
            tei_tcp_stage_add(s, s->region, head->addr, head->size));
}

/* Versions 1 and 2 have no proof. */
static enum tcp_step refuse_stranger(struct tcp_session *s)
{
    enum tcp_step step;

    tei_tcp_auth_refuse(s, TEI_AUTH_PLAIN);
    tei_tcp_head_decode(s->head_bytes, &s->head);
    step = reject(s);
    s->useful = false;
    return step;
}

/* A header is complete: finds out whether the range is there and open to the peer. */
static enum tcp_step begin(struct tcp_session *s)
{
    struct tei_host *h = s->worker->t->base.host;
    const struct tcp_head *head = &s->head;
    uint64_t end;
    int rc;

    if (!s->proven && tei_tcp_hello_begins(s->head_bytes)) {
        if (!tei_tcp_channel_open(s, s->head_bytes, TCP_HEAD_LEN))
            return STEP_CLOSE;
        s->state = SESSION_NATIVE;
        return STEP_MORE;
    }
    if (tei_tcp_auth_is_stranger(s))
        return refuse_stranger(s);
    s->proven = true;
    tei_tcp_head_decode(s->head_bytes, &s->head);
    move_to(s, &s->worker->serving);
    s->since_ns = tei_now_ns();
    s->left = 0;
    s->status_left = 0;
    if (head->size == 0 || !tei_add_ok(head->addr, head->size, &end))
        return reject(s);
    rc = h->region_hold(h, head->addr, head->size,
                        head->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE, s->who,
                        &s->region);
    if (rc == TE_ERR_REJECTED)
        tei_tcp_auth_denied(s);
    if (rc)
        return reject(s);
    s->worker->count.served_requests++;
    TEI_PROBE5(serve, s->worker->t->base.ops.name, head->opcode, 1, head->size, "");
    s->data = (char *)(uintptr_t)head->addr;
    s->left = head->size;
    s->state = head->opcode == TE_READ ? SESSION_SEND : SESSION_RECEIVE;
    if (head->version >= 2) {
        tei_tcp_status_encode(TCP_STATUS_OK, s->status);
        s->status_left = TCP_STATUS_LEN;
    }
    return open_stage(s) ? STEP_MORE : fail_copy(s);
}

static enum tcp_step step_head(struct tcp_session *s)
{
    ssize_t n =
        recv(s->watch.fd, s->head_bytes + s->head_got, TCP_HEAD_LEN - s->head_got, MSG_DONTWAIT);

    if (n == 0)
        return STEP_CLOSE;
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLIN);
    if (s->head_got == 0)
        s->since_ns = tei_now_ns();
    s->head_got += (size_t)n;
    return s->head_got == TCP_HEAD_LEN ? begin(s) : STEP_WAIT;
}

/*
 * The only two places that touch memory a peer asked for.
 */
static ssize_t copy_out(int fd, const struct msghdr *m)
{
    ssize_t n;

    tei_tsan_ignore_begin();
    n = sendmsg(fd, m, MSG_NOSIGNAL | MSG_DONTWAIT);
    tei_tsan_ignore_end();
    return n;
}

static ssize_t copy_in(int fd, void *to, size_t n)
{
    ssize_t got;

    tei_tsan_ignore_begin();
    got = recv(fd, to, n, MSG_DONTWAIT);
    tei_tsan_ignore_end();
    return got;
}

/* The payload of one call; none: a copy has failed. */
static struct iovec next_part(struct tcp_session *s)
{
    size_t n = tei_min(s->left, s->worker->t->conf->tcp_slice_size);
    struct iovec part = {s->data, n};

    if (s->stage && tei_tcp_stage_places(s, &part, 1, n) == 0)
        part.iov_len = 0;
    return part;
}

/* Status and payload in one call. */
static enum tcp_step step_send(struct tcp_session *s)
{
    struct iovec iov[2] = {{s->status + TCP_STATUS_LEN - s->status_left, s->status_left},
                           next_part(s)};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    size_t total = iov[0].iov_len + iov[1].iov_len, of_status;
    ssize_t n;

    if (tei_tcp_stage_failed(s))
        return fail_copy(s);
    n = copy_out(s->watch.fd, &m);
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLOUT);
    of_status = tei_min((size_t)n, s->status_left);
    s->status_left -= of_status;
    moved(s, (size_t)n - of_status, &s->worker->count.served_bytes_out);
    if (s->left == 0) {
        release(s);
        return await_next(s);
    }
    if ((size_t)n == total)
        return STEP_MORE;
    tei_watch_set(&s->watch, EPOLLOUT);
    return STEP_WAIT;
}

static enum tcp_step step_receive(struct tcp_session *s)
{
    struct iovec to = next_part(s);
    ssize_t n;

    if (tei_tcp_stage_failed(s))
        return fail_copy(s);
    n = copy_in(s->watch.fd, to.iov_base, to.iov_len);
    if (n == 0)
        return STEP_CLOSE;
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLIN);
    moved(s, (size_t)n, &s->worker->count.served_bytes_in);
    if (s->left > 0)
        return (size_t)n == to.iov_len ? STEP_MORE : STEP_WAIT;
    if (!tei_tcp_stage_close(s))
        return fail_copy(s);
    release(s);
    if (s->head.version < 2)
        return await_next(s);
    s->state = SESSION_STATUS;
    return STEP_MORE;
}

static enum tcp_step step_status(struct tcp_session *s)
{
    ssize_t n = send(s->watch.fd, s->status + TCP_STATUS_LEN - s->status_left, s->status_left,
                     MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLOUT);
    s->status_left -= (size_t)n;
    if (s->status_left > 0)
        return STEP_MORE;
    if (s->state == SESSION_STATUS)
        return await_next(s);
    shutdown(s->watch.fd, SHUT_WR);
    s->state = SESSION_DRAIN;
    s->since_ns = tei_now_ns();
    return STEP_MORE;
}

static enum tcp_step step_drain(struct tcp_session *s)
{
    char sink[16384];
    ssize_t n = recv(s->watch.fd, sink, sizeof sink, MSG_DONTWAIT);

    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLIN);
    return n == 0 ? STEP_CLOSE : STEP_MORE;
}

void tei_tcp_session_run(struct tcp_session *s)
{
    static enum tcp_step (*const steps[])(struct tcp_session *) = {
        [SESSION_HEAD] = step_head,
        [SESSION_SEND] = step_send,
        [SESSION_RECEIVE] = step_receive,
        [SESSION_STATUS] = step_status,
        [SESSION_REJECT] = step_status,
        [SESSION_DRAIN] = step_drain,
        [SESSION_NATIVE] = tei_tcp_channel_step,
    };
    /*
     * What each state waits for, where it has used up its calls with more to do. A native one may
     * have read ahead, so it comes back at once.
     */
    static const uint32_t waits_for[] = {
        [SESSION_HEAD] = EPOLLIN,
        [SESSION_SEND] = EPOLLOUT,
        [SESSION_RECEIVE] = EPOLLIN,
        [SESSION_STATUS] = EPOLLOUT,
        [SESSION_REJECT] = EPOLLOUT,
        [SESSION_DRAIN] = EPOLLIN,
        [SESSION_NATIVE] = EPOLLIN | EPOLLOUT,
    };
    enum tcp_step step = STEP_MORE;

    for (int calls = 2 * TCP_CALLS; calls > 0 && step == STEP_MORE; calls--)
        step = steps[s->state](s);
    if (step == STEP_CLOSE) {
        tei_tcp_session_close(s);
        return;
    }
    if (step == STEP_MORE)
        tei_watch_set(&s->watch, waits_for[s->state]);
    tei_tcp_worker_arm(s->worker, tei_tcp_session_late_at(s));
}

/* ---------------------------------------------------------------------------- shares of the time */

/*
 * Where sessions come from several sources, each source is served for TCP_ROUND_NS, and the rest of the
 * step under way, in a round. Its other sessions wait for the next one, which comes with the next turn
 * of the loop; until then the loop does not look at them, for it fetches a few events at a time, and
 * those of others are to be among them.
 */
static void run_counted(struct tcp_session *s)
{
    struct tcp_source *source = s->source;
    int64_t begin_ns = tei_now_ns();

    source->base.users++; /* it would be gone with its last session */
    tei_tcp_session_run(s);
    source->served_ns += tei_now_ns() - begin_ns;
    tei_source_leave(&source->base);
}

static bool has_had_its_share(struct tcp_source *source, const struct tcp_worker *w)
{
    if (source->round != w->round) {
        source->round = w->round;
        source->served_ns = 0;
    }
    return source->served_ns > TCP_ROUND_NS;
}

static void on_round(struct tei_call *c);
static void accept_some(struct tcp *t);

static void await_round(struct tcp_session *s)
{
    struct tcp_worker *w = s->worker;

    s->events = s->watch.events;
    tei_tcp_session_pause(s);
    tei_list_push_back(&s->source->waiting, &s->turn);
    if (!w->round_called)
        tei_loop_call(&w->loop, &w->round_call, on_round);
    w->round_called = true;
}

/* Of one source. */
static void run_waiting(struct tcp_source *source, const struct tcp_worker *w)
{
    struct tei_link *n;

    source->base.users++;
    while (!has_had_its_share(source, w) && (n = tei_list_pop(&source->waiting))) {
        struct tcp_session *s = tei_container_of(n, struct tcp_session, turn);

        tei_tcp_session_resume(s, s->events);
        run_counted(s);
    }
    tei_source_leave(&source->base);
}

static bool some_wait(const struct tcp_worker *w)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&w->sources, n, tmp) {
        struct tei_source *base = tei_container_of(n, struct tei_source, link);

        if (!tei_list_empty(&tei_container_of(base, struct tcp_source, base)->waiting))
            return true;
    }
    return false;
}

/* The next source of the round, NULL: it is over. Those that have had their turn are behind the others. */
static struct tcp_source *next_source(const struct tcp_worker *w)
{
    struct tei_link *n = tei_list_first(&w->sources);
    struct tcp_source *source;

    if (!n)
        return NULL;
    source =
        tei_container_of(tei_container_of(n, struct tei_source, link), struct tcp_source, base);
    return source->walked == w->round ? NULL : source;
}

static void give_turn(struct tcp_worker *w, struct tcp_source *source)
{
    source->walked = w->round;
    tei_list_del(&source->base.link);
    tei_list_push_back(&w->sources, &source->base.link);
    run_waiting(source, w);
}

/* A part of a round: it goes on with the next turn of the loop, so that many sources hold up nothing. */
static void on_round(struct tei_call *c)
{
    struct tcp_worker *w = tei_container_of(c, struct tcp_worker, round_call);
    int64_t end_ns = tei_now_ns() + TCP_CALL_NS;
    struct tcp_source *source;

    w->round_called = false;
    if (w->index == 0 && w->t->listener.loop && w->t->listener.events) /* else it rests */
        accept_some(w->t); /* a turn may not look at the listener, with so many others */
    if (!next_source(w))
        w->round++;
    while ((source = next_source(w)) && tei_now_ns() < end_ns)
        give_turn(w, source);
    if (w->round_called || !some_wait(w))
        return;
    tei_loop_call(&w->loop, &w->round_call, on_round);
    w->round_called = true;
}

static void on_session(struct tei_watch *watch, uint32_t events)
{
    struct tcp_session *s = tei_container_of(watch, struct tcp_session, watch);
    const struct tei_list *sources = &s->worker->sources;

    (void)events; /* the calls tell all that is to be known */
    if (!tei_list_next(sources, tei_list_first(sources)))
        tei_tcp_session_run(s);
    else if (!has_had_its_share(s->source, s->worker))
        run_counted(s);
    else if (!tei_link_is_in(&s->turn))
        await_round(s);
}

/* ------------------------------------------------------------------------------------ accepting */

/* Since when the client has done nothing. */
static int64_t still_ns(const struct tcp_session *s)
{
    return tei_tcp_session_is_paused(s) ? TEI_NEVER : s->since_ns;
}

/* The one of that source, NULL: of any, that has been without progress for longest. */
static struct tcp_session *stillest(const struct tei_list *list, const struct tcp_source *source)
{
    struct tcp_session *still = NULL;

    for (struct tei_link *n = tei_list_first(list); n; n = tei_list_next(list, n)) {
        struct tcp_session *s = session_of(n);

        if ((!source || s->source == source) && (!still || still_ns(s) < still_ns(still)))
            still = s;
    }
    return still;
}

/* One that waits for its turn has a request that was not looked at yet. */
static struct tcp_session *stillest_idle(const struct tcp_worker *w,
                                         const struct tcp_source *source)
{
    struct tcp_session *s = stillest(&w->idle, source);

    return s && !tei_tcp_session_is_paused(s) ? s : NULL;
}

/*
 * The session that gives way to a newcomer where all places are taken: one of the source that has the
 * most. One that is idle, if there is any. Else one that is being served is ended: one that has
 * stalled; if all move on, rather any session that has been idle for a while. One that waits for us
 * moves on. A source that has the most itself gets a place only of its own, and none that moves on.
 * NULL: the newcomer is turned away.
 */
static struct tcp_session *victim(const struct tcp_worker *w, const struct tcp_source *newcomer)
{
    struct tei_source *most = tei_source_crowd(&w->sources);
    bool itself = most->users <= newcomer->base.users;
    const struct tcp_source *crowd =
        itself ? newcomer : tei_container_of(most, struct tcp_source, base);
    struct tcp_session *served, *s = stillest_idle(w, crowd);
    int64_t stalled_ns = tei_now_ns() - STALLED_NS;

    if (s)
        return s;
    served = stillest(&w->serving, crowd);
    if (!served)
        served = stillest(&w->idle, crowd);
    if (served && still_ns(served) < stalled_ns)
        return served;
    if (itself)
        return NULL;
    s = stillest_idle(w, NULL);
    return s && s->since_ns < stalled_ns ? s : served;
}

static bool make_room(struct tcp_worker *w, const struct tcp_source *newcomer)
{
    struct tcp_session *s;

    if (w->n_sessions < w->t->max_sessions)
        return true;
    tei_tcp_worker_note(
        w, TE_LOG_WARN,
        "tcp: all %u sessions of a worker are in use (TE_TCP_MAX_SESSIONS); one of the "
        "address that has the most gives way",
        w->t->max_sessions);
    s = victim(w, newcomer);
    if (s)
        tei_tcp_session_close(s);
    return s != NULL;
}

/* The source of the other end of a socket, with one session more; NULL: out of memory. */
static struct tcp_source *enter_source(struct tcp_worker *w, const struct tei_addr *from)
{
    uint8_t key[TEI_SOURCE_KEY];
    struct tei_source *base;
    struct tcp_source *s;

    tei_source_key(from, key);
    base = tei_source_enter(&w->sources, key, sizeof *s);
    if (!base)
        return NULL;
    s = tei_container_of(base, struct tcp_source, base);
    if (base->users == 1)
        tei_list_init(&s->drops);
    if (base->users == 1)
        tei_list_init(&s->waiting);
    return s;
}

static void note_session(struct tcp_worker *w, const struct tei_addr *from)
{
    char text[TEI_HOSTPORT_MAX];

    if (tei_log_wants(TE_LOG_DEBUG))
        tei_tcp_worker_note(w, TE_LOG_DEBUG, "tcp: %s has connected to the data port",
                            tei_addr_format(from, text, sizeof text));
}

/*
 * Replies that nobody takes fill the kernel's buffers, whose bound is one for all connections of the host
 * (net.ipv4.tcp_mem): near it honest ones stand still. What is on its way counts here for nothing.
 */
static void limit_unsent(int fd, int bytes)
{
    /* A system that lacks it works, and has no such bound. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static void start_session(struct tcp_session *s)
{
    struct tcp_worker *w = s->worker;
    int fd = s->watch.fd;

    s->watch = (struct tei_watch){0};
    s->source = enter_source(w, &s->from);
    if (!s->source || atomic_load_explicit(&w->t->closed, memory_order_relaxed) ||
        !make_room(w, s->source) ||
        tei_watch_add(&w->loop, &s->watch, fd, EPOLLIN, on_session) < 0) {
        if (s->source)
            tei_source_leave(&s->source->base);
        tei_fd_close(fd);
        tei_pool_put(&w->t->sessions, s);
        return;
    }
    (void)tei_tcp_tune_connected(w->t, fd, &s->from);
    if (s->source->base.users > UNSENT_FEW)
        limit_unsent(fd, UNSENT_MANY);
    tei_list_push_back(&w->idle, &s->link);
    s->since_ns = tei_now_ns();
    tei_tcp_auth_enter(s);
    tei_tcp_ban_enter(s);
    s->serial = ++w->next_serial;
    w->n_sessions++;
    note_session(w, &s->from);
}

static void on_handed_over(struct tei_call *c)
{
    start_session(tei_container_of(c, struct tcp_session, call));
}

static struct tcp_session *make(struct tcp_worker *w, int fd, const struct tei_addr *from)
{
    struct tcp_session *s = tei_pool_get(&w->t->sessions);

    if (!s) {
        tei_fd_close(fd);
        return NULL;
    }
    *s = (struct tcp_session){.worker = w, .watch = {.fd = fd}, .from = *from};
    return s;
}

void tei_tcp_session_open(struct tcp_worker *w, int fd)
{
    struct tcp_session *s = make(w, fd, &(struct tei_addr){0});

    if (s)
        start_session(s);
}

/* Deals an accepted socket to the next worker. */
static void hand_over(struct tcp *t, int fd, const struct tei_addr *from)
{
    unsigned i = atomic_fetch_add_explicit(&t->next_worker, 1, memory_order_relaxed) % t->n_workers;
    struct tcp_session *s = make(&t->workers[i], fd, from);

    if (s && i == 0)
        start_session(s);
    else if (s)
        tei_loop_call(&s->worker->loop, &s->call, on_handed_over);
}

static void on_relisten(struct tei_timer *timer)
{
    struct tcp *t = tei_container_of(timer, struct tcp, relisten);

    if (t->listener.loop)
        tei_watch_set(&t->listener, EPOLLIN);
}

/*
 * Out of descriptors or memory: looks away for a while, else the waiting client would keep the loop
 * spinning.
 */
static void rest(struct tcp *t, int err)
{
    struct tcp_worker *w = &t->workers[0];
    struct tcp_session *oldest = stillest_idle(w, NULL);

    tei_tcp_worker_note(w, TE_LOG_WARN, "tcp: accepting a connection: %s", tei_errno_text(err));
    if (oldest)
        tei_tcp_session_close(oldest);
    if (tei_timer_start(&w->loop, &t->relisten, tei_now_ns() + RELISTEN_NS, on_relisten) == 0)
        tei_watch_set(&t->listener, 0);
}

static void accept_some(struct tcp *t)
{
    for (int i = 0; i < ACCEPTS; i++) {
        struct tei_addr from;
        int fd = tei_accept(t->listener.fd, &from);

        if (fd >= 0) {
            hand_over(t, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            rest(t, errno);
        return;
    }
}

static void on_listener(struct tei_watch *watch, uint32_t events)
{
    (void)events;
    accept_some(tei_container_of(watch, struct tcp, listener));
}

int tei_tcp_listen(struct tcp *t)
{
    const struct tei_conf *c = t->conf;
    int fd = tei_listen_range(t->base.host->bind_host, c->min_rpc_port, c->max_rpc_port, SOMAXCONN,
                              &t->port);
    int rc;

    if (fd < 0)
        return fd;
    tei_tcp_tune(t, fd); /* which the accepted ones inherit */
    limit_unsent(fd, UNSENT);
    tei_tcp_worker_enter(&t->workers[0]);
    rc = tei_watch_add(&t->workers[0].loop, &t->listener, fd, EPOLLIN, on_listener);
    tei_tcp_worker_leave(&t->workers[0]);
    if (rc)
        tei_fd_close(fd);
    else
        t->listen_fd = fd;
    return rc;
}

void tei_tcp_unlisten(struct tcp *t)
{
    tei_timer_stop(&t->workers[0].loop, &t->relisten);
    tei_tcp_ban_stop(t);
    tei_watch_del(&t->listener);
    if (t->listen_fd >= 0)
        tei_fd_close(t->listen_fd);
    t->listen_fd = -1;
}

/* --------------------------------------------------------------------- all sessions of a worker */

static bool holds(const struct tcp_session *s, const struct tei_region *r)
{
    return s->channel ? tei_tcp_channel_holds(s, r) : s->region == r;
}

/* It ends by no fault of its client's. */
static void end_unblamed(struct tcp_session *s)
{
    s->useful = true;
    tei_tcp_session_close(s);
}

void tei_tcp_sessions_close(struct tcp_worker *w, const struct tei_region *r)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&w->serving, n, tmp)
        if (!r || holds(session_of(n), r))
            end_unblamed(session_of(n));
    TEI_LIST_EACH(&w->idle, n, tmp)
        if (!r)
            end_unblamed(session_of(n));
}

void tei_tcp_sessions_revoke(struct tcp_worker *w, const struct tei_lease *l)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&w->serving, n, tmp)
        if (tei_tcp_channel_lease(session_of(n)) == l)
            end_unblamed(session_of(n));
}

void tei_tcp_sessions_drop(struct tcp_worker *w, uint64_t client, uint64_t connection)
{
    struct tei_list *lists[] = {&w->serving, &w->idle};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++)
        TEI_LIST_EACH(lists[i], n, tmp)
            if (tei_tcp_channel_is(session_of(n), client, connection))
                end_unblamed(session_of(n));
}

struct tcp_session *tei_tcp_session_find(struct tcp_worker *w, uint64_t serial)
{
    struct tei_list *lists[] = {&w->serving, &w->idle};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++)
        TEI_LIST_EACH(lists[i], n, tmp)
            if (session_of(n)->serial == serial)
                return session_of(n);
    return NULL;
}
