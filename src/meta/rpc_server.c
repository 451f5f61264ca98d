/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_server.c - the handshake port.
 *
 * One connection carries one request and its reply. Each is a state machine on the loop:
 *
 *     GREETING  with TE_AUTH: accepted; the client proves   ends 1 s after the accept; 5 s
 *               who it is, and nothing else is read        where it needs no proof
 *     READING   accepted; bytes go to the parser           ends 5 s after the accept
 *     UNREAD    long, and another long one of the same     ends when that one is answered
 *               address is being read or served
 *     QUEUED    complete; takes long, and its turn is not  ends when its turn has come
 *     WAITING   the handler has the call                   ends when the call is answered
 *     WRITING   the reply goes out                         ends 5 s after the last progress
 *     CLOSING   our side is shut; the client is to close   ends 5 s after the reply was sent
 *
 * From every state it may also end because the client went away (in UNREAD, QUEUED and WAITING, because
 * it reset the connection: one that has shut its side gets its reply), because the server closed, or
 * because there are CONNS_MAX others, or HELD_MAX bytes: then it is the oldest of the address that has
 * the most. drop() is the one way out. One that ends before its client has taken a reply, and closed as one
 * does that has it, was of no use: an address that has too many of those is banned (base/bans.h).
 *
 * The call is an object of its own, since it may outlive the connection and the server: the handler
 * may answer from another thread, seconds later. It owns the request's bytes, so that `body` stays
 * valid until the reply. `conn` and `call` point at each other; both pointers belong to the loop,
 * and drop() cuts the link. A reply is brought to the loop with tei_loop_call and finds there
 * whether anybody still waits for it.
 *
 * But the loop itself may be gone by then. So calls do not point to it: they share a `gate` with
 * the server, counted by references, whose lock guards the pointer to the loop. Closing the server
 * empties the gate; a reply that comes later is dropped where it is made. Replies on their way at
 * that time are run, and dropped, by the loop before it ends.
 */
#include "meta/rpc.h"
#include "meta/rpc_source.h"

#include "auth/auth.h"
#include "base/bans.h"
#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX         1024
#define ACCEPTS_PER_EVENT 64
#define READS_PER_EVENT   16
#define WRITES_PER_EVENT  16
#define READ_BYTES        ((size_t)32 << 10)
#define LONG_BYTES        ((size_t)4096) /* more is read from one connection of a source at a time */
#define HELD_MAX          ((size_t)256 << 20) /* bytes of unfinished requests and replies */
#define SMALL_MAX         ((size_t)64 << 10)  /* of a connection or a probe */
#define REPLY_NS          (60 * TEI_NS_PER_S) /* to take a reply, whatever its progress */
#define PATIENCE_NS       (5 * TEI_NS_PER_S)
#define ACCEPT_PAUSE_NS   (100 * TEI_NS_PER_MS) /* after descriptors ran out */

struct gate {
    pthread_mutex_t lock;
    struct tei_loop *loop;         /* NULL: the server is closed */
    struct tei_rpc_server *server; /* the loop's; NULL likewise */
    _Atomic unsigned refs;         /* the server and each call */
};

enum state { READING, UNREAD, QUEUED, WAITING, WRITING, CLOSING, GREETING };

struct conn {
    struct tei_watch watch;
    struct tei_timer timer;
    struct tei_link link; /* in source->conns */
    struct tei_link turn; /* in source->waiting while QUEUED, in source->unread while UNREAD */
    bool is_long;         /* the one of its source that is read */
    bool useful;          /* it has had its reply */
    bool refused;         /* it has not proved who it is */
    struct rpc_source *source;
    struct tei_rpc_server *server;
    struct tei_rpc_call *call; /* set while WAITING */
    struct tei_secure *secure; /* NULL: it speaks in clear */
    struct tei_rpc_parser parser;
    size_t held; /* what this one adds to server->held */
    enum state state;
    char *out; /* the reply's frame */
    size_t out_len, out_sent;
    int64_t until_ns; /* while WRITING */
    struct tei_addr peer;
};

struct tei_rpc_call {
    struct tei_call posted;
    struct gate *gate;
    struct conn *conn; /* NULL: nobody waits any more */
    _Atomic bool moot; /* the same, for whoever has the call */
    bool heavy, typed;
    uint8_t type, source[TEI_SOURCE_KEY];
    char *frame; /* the reply; NULL when there was no memory for it */
    size_t frame_len;
};

struct tei_rpc_server {
    struct tei_loop *loop;
    struct gate *gate;
    struct tei_watch listen_watch;
    int listen_fd;
    struct tei_timer accept_timer, ban_timer;
    struct rpc_sources sources;
    struct tei_bans bans;
    struct tei_auth *auth; /* NULL: off */
    size_t n_conns, held, max_len;
    unsigned n_heavy; /* in the handler's hands */
    struct tei_rpc_service service;
};

static void on_conn(struct tei_watch *w, uint32_t events);

#define PORT    "handshake port"
#define PEER(c) tei_addr_format(&(c)->peer, (char[TEI_HOSTPORT_MAX]){""}, TEI_HOSTPORT_MAX)

static struct gate *gate_create(struct tei_loop *loop)
{
    struct gate *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->loop = loop;
    atomic_init(&g->refs, 1);
    return g;
}

static void gate_put(struct gate *g)
{
    /* Both orders: whoever frees does so after everything the others did with it. */
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void call_free(struct tei_rpc_call *call)
{
    gate_put(call->gate);
    free(call->frame);
    free(call);
}

static void read_on(struct conn *c);

/* The long request has been served, or is none any more: the next one of its source is read. */
static void end_long(struct conn *c)
{
    struct tei_link *next;

    if (!c->is_long)
        return;
    c->is_long = c->source->reads_long = false;
    next = tei_list_pop(&c->source->unread);
    if (next)
        read_on(tei_container_of(next, struct conn, turn));
}

static void enforce_bans(struct tei_rpc_server *s);

static void on_ban_over(struct tei_timer *t)
{
    enforce_bans(tei_container_of(t, struct tei_rpc_server, ban_timer));
}

static void enforce_bans(struct tei_rpc_server *s)
{
    int64_t now_ns = tei_now_ns(), next_ns = tei_bans_enforce(&s->bans, s->listen_fd, now_ns);

    if (next_ns != TEI_NEVER && tei_timer_start(s->loop, &s->ban_timer, next_ns, on_ban_over))
        (void)tei_bans_enforce(&s->bans, s->listen_fd, TEI_NEVER); /* nothing would end it */
}

static void tell_ban(struct tei_rpc_server *s, const struct tei_addr *whose)
{
    char text[TEI_HOSTPORT_MAX];

    TEI_WARN(
        "handshake port: %s has had too many connections that got no reply; the kernel is asked to "
        "ignore what it opens for a while",
        tei_addr_format(whose, text, sizeof text));
    enforce_bans(s);
}

/* Ends a connection, whatever its state. */
static void drop(struct conn *c)
{
    struct tei_rpc_server *s = c->server;

    if (c->call) {
        c->call->conn = NULL;
        atomic_store_explicit(&c->call->moot, true, memory_order_relaxed);
    }
    if (c->state == QUEUED)
        tei_rpc_source_unwait(c->source, &c->turn);
    if (c->state == UNREAD)
        tei_list_del(&c->turn);
    end_long(c);
    tei_timer_stop(s->loop, &c->timer);
    tei_watch_del(&c->watch);
    tei_secure_free(c->secure);
    tei_fd_close(c->watch.fd);
    tei_list_del(&c->link);
    s->n_conns--;
    s->held -= c->held;
    c->source->held -= c->held;
    if (tei_bans_leave(&s->bans, c->source->base.key, c->useful, tei_now_ns()))
        tell_ban(s, &c->peer);
    tei_rpc_source_leave(c->source);
    tei_rpc_parser_fini(&c->parser);
    free(c->out);
    free(c);
}

/* The oldest connection of a source. */
static struct conn *oldest_of(const struct rpc_source *source)
{
    return tei_container_of(tei_list_first(&source->conns), struct conn, link);
}

/* It needs no proof. */
static bool is_classic(const struct conn *c)
{
    return tei_auth_is_classic(c->server->auth, &c->peer);
}

static void on_late(struct tei_timer *t)
{
    static const char *const doing[] = {
        "its request", "us", "us", "us", "taking the reply", "closing", "proving itself"};
    struct conn *c = tei_container_of(t, struct conn, timer);

    if (c->state == GREETING && !is_classic(c))
        tei_auth_refused(c->server->auth, TEI_AUTH_LATE, PORT, PEER(c));
    TEI_DEBUG("handshake port: %s is too slow with %s", PEER(c), doing[c->state]);
    drop(c);
}

static bool give_time(struct conn *c)
{
    bool is_short = (c->state == GREETING && !is_classic(c)) || c->refused;
    int64_t when_ns = tei_now_ns() + (is_short ? TEI_AUTH_NS : PATIENCE_NS);

    if (c->state == WRITING && when_ns > c->until_ns)
        when_ns = c->until_ns;
    return !tei_timer_start(c->server->loop, &c->timer, when_ns, on_late);
}

static void set_held(struct conn *c, size_t bytes)
{
    c->server->held += bytes - c->held;
    c->source->held += bytes - c->held;
    c->held = bytes;
}

/*
 * Counts the bytes that the connection makes us keep. Where they are too many, those go first that the
 * source with the most holds; false: that is this connection, which is to be dropped.
 */
static bool hold(struct conn *c, size_t bytes)
{
    struct tei_rpc_server *s = c->server;

    set_held(c, bytes);
    while (s->held > HELD_MAX) {
        struct conn *victim = oldest_of(tei_rpc_source_hoarder(&s->sources));

        TEI_WARN("handshake port: %zu bytes of unfinished requests and replies, dropping %s",
                 s->held, PEER(victim));
        if (victim == c)
            return false;
        drop(victim);
    }
    return true;
}

static void take_turns(struct tei_rpc_server *s);

/* ---- the reply */

static ssize_t send_once(struct conn *c, const char *bytes, size_t n)
{
    return c->secure ? tei_secure_send(c->secure, bytes, n)
                     : send(c->watch.fd, bytes, n, MSG_NOSIGNAL);
}

/* Sends what the socket takes. False: the connection is to be dropped. */
static bool send_some(struct conn *c)
{
    for (int i = 0; i < WRITES_PER_EVENT && c->out_sent < c->out_len; i++) {
        ssize_t n = send_once(c, c->out + c->out_sent, c->out_len - c->out_sent);

        if (n > 0) {
            c->out_sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            TEI_DEBUG("handshake port: writing to %s: %s", PEER(c), tei_errno_text(errno));
            return false;
        }
    }
    return true;
}

static void continue_reply(struct conn *c)
{
    size_t before = c->out_sent;

    if (!send_some(c)) {
        drop(c);
        return;
    }
    if (c->out_sent < c->out_len) {
        tei_watch_set(&c->watch, c->secure ? tei_secure_events(c->secure) : EPOLLOUT);
    } else {
        /*
         * The client closes first, so that the waiting of closed connections (TIME_WAIT) is spread
         * over the clients.
         */
        shutdown(c->watch.fd, SHUT_WR);
        c->state = CLOSING;
        c->useful = true;
        tei_watch_set(&c->watch, EPOLLIN);
    }
    if (c->out_sent > before && !give_time(c))
        drop(c);
}

/* On the loop: the reply has come. */
static void on_reply(struct tei_call *posted)
{
    struct tei_rpc_call *call = tei_container_of(posted, struct tei_rpc_call, posted);
    struct tei_rpc_server *s = call->gate->server;
    struct conn *c = call->conn;

    if (s && call->heavy) {
        s->n_heavy--;
        take_turns(s);
    }
    if (c) {
        end_long(c);
        c->call = NULL;
        c->out = call->frame;
        c->out_len = call->frame_len;
        call->frame = NULL;
        c->state = WRITING;
        c->until_ns = tei_now_ns() + REPLY_NS;
        if (!c->out || !hold(c, c->out_len) || !give_time(c))
            drop(c);
        else
            continue_reply(c);
    }
    call_free(call);
}

const uint8_t *tei_rpc_source(const struct tei_rpc_call *call)
{
    return call->source;
}

bool tei_rpc_call_who(const struct tei_rpc_call *call, struct tei_who **out)
{
    const struct tei_secure *secure = call->conn->secure;

    *out = secure ? tei_secure_who(secure) : NULL;
    return *out || !secure;
}

void tei_rpc_reply(struct tei_rpc_call *call, const char *text, size_t len)
{
    struct gate *g = call->gate;
    bool open;

    call->frame = tei_rpc_frame(call->typed, call->type, text, len, &call->frame_len);
    if (!call->frame)
        TEI_ERROR("handshake port: no memory for a reply of %zu bytes", len);
    pthread_mutex_lock(&g->lock);
    open = g->loop != NULL;
    /*
     * Counted for this function: as soon as it is posted the call may be gone, and its gate with
     * it.
     */
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    if (open)
        tei_loop_call(g->loop, &call->posted, on_reply);
    pthread_mutex_unlock(&g->lock);
    gate_put(g);
    if (!open)
        call_free(call);
}

/* ---- the request */

bool tei_rpc_is_moot(const struct tei_rpc_call *call)
{
    return atomic_load_explicit(&call->moot, memory_order_relaxed);
}

static enum tei_rpc_type type_of(const struct tei_rpc_parser *p)
{
    return p->typed ? (enum tei_rpc_type)p->type : TEI_RPC_CONNECTION;
}

/* Hands the complete request to the handler. */
static void give(struct conn *c, bool heavy)
{
    struct tei_rpc_server *s = c->server;
    struct tei_rpc_call *call = calloc(1, sizeof *call);
    struct tei_rpc_parser request = c->parser;
    const char *body;
    size_t len;

    if (!call) {
        TEI_ERROR("handshake port: no memory for a request of %s", PEER(c));
        drop(c);
        return;
    }
    call->gate = s->gate;
    atomic_fetch_add_explicit(&s->gate->refs, 1, memory_order_relaxed);
    call->conn = c;
    call->heavy = heavy;
    s->n_heavy += heavy;
    call->typed = request.typed;
    call->type = request.type;
    memcpy(call->source, c->source->base.key, sizeof call->source);
    tei_rpc_parser_init(&c->parser, s->max_len);
    set_held(c, 0);
    c->call = call;
    c->state = WAITING;
    body = tei_rpc_parser_body(&request, &len);
    /* The call may be answered, and gone, and the connection with it, when this returns. */
    s->service.handler(s->service.arg, call, type_of(&request), body, len);
    tei_rpc_parser_fini(&request);
}

/* Gives as much as may be out of what takes long. */
static void take_turns(struct tei_rpc_server *s)
{
    struct tei_link *turn;

    while (s->n_heavy < s->service.heavy_max && (turn = tei_rpc_source_next(&s->sources))) {
        struct conn *c = tei_container_of(turn, struct conn, turn);

        c->state = WAITING; /* it is in no queue any more */
        give(c, true);
    }
}

/* The request is complete. */
static void dispatch(struct conn *c)
{
    struct tei_rpc_server *s = c->server;
    const struct tei_rpc_service *service = &s->service;
    size_t len;

    tei_rpc_parser_body(&c->parser, &len);
    tei_timer_stop(s->loop, &c->timer);
    tei_watch_set(&c->watch, 0);
    if (!service->is_heavy || !service->is_heavy(service->arg, type_of(&c->parser), len)) {
        give(c, false);
        return;
    }
    c->state = QUEUED;
    tei_rpc_source_wait(&s->sources, c->source, &c->turn);
    take_turns(s);
}

/*
 * Feeds what came in; 1: the request is complete, 0: not yet, negative: the connection is to be
 * dropped.
 */
static int feed(struct conn *c, const char *data, size_t n)
{
    struct tei_rpc_server *s = c->server;
    size_t used;
    int rc = tei_rpc_parser_feed(&c->parser, data, n, &used);

    if (rc < 0 && tei_secure_is_hello(c->parser.want))
        TEI_WARN(
            "handshake port: %s speaks TLS, as TE_AUTH there makes it, and it is off here; set it "
            "here as it is there, or have this address in TE_AUTH_CLASSIC there",
            PEER(c));
    if (rc < 0) {
        TEI_DEBUG("handshake port: request of %s: %s (%llu bytes announced, at most %zu)", PEER(c),
                  te_strerror(rc), (unsigned long long)c->parser.want, s->max_len);
        return rc;
    }
    return hold(c, c->parser.cap) ? rc : TE_ERR_TOO_LARGE;
}

/*
 * 1: bytes in buf, *n of them; 0: none now; -1: the client closed or failed. What libssl has and did not give, the
 * loop would not see: so it gives all that a record has.
 */
static int receive(struct conn *c, char *buf, size_t *n)
{
    size_t room = c->is_long ? READ_BYTES : LONG_BYTES;
    ssize_t got;

    do {
        got = c->secure ? tei_secure_recv(c->secure, buf, READ_BYTES)
                        : recv(c->watch.fd, buf, room, 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        *n = (size_t)got;
        return 1;
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

/* Goes on with a request that was left unread. */
static void read_on(struct conn *c)
{
    c->state = READING;
    c->is_long = c->source->reads_long = true;
    set_held(c, c->parser.cap);
    tei_watch_set(&c->watch, EPOLLIN);
    if (!give_time(c))
        shutdown(c->watch.fd, SHUT_RDWR); /* its end is read next */
}

/* Whether more of the request may be read now; else it is left until its turn has come, or dropped. */
static bool may_read(struct conn *c)
{
    if (c->is_long || c->parser.want <= LONG_BYTES)
        return true;
    if (!c->source->reads_long) {
        c->is_long = c->source->reads_long = true;
        return true;
    }
    c->state = UNREAD;
    tei_timer_stop(c->server->loop, &c->timer);
    tei_watch_set(&c->watch, 0);
    tei_list_push_back(&c->source->unread, &c->turn);
    if (!hold(c, (size_t)c->parser.want)) /* the kernel may have all of it meanwhile */
        drop(c);
    return false;
}

static void read_request(struct conn *c)
{
    char buf[READ_BYTES];
    size_t n;

    for (int i = 0; i < READS_PER_EVENT && may_read(c); i++) {
        int rc = receive(c, buf, &n);

        if (!rc)
            return;
        if (rc > 0)
            rc = feed(c, buf, n);
        if (rc < 0) {
            drop(c);
            return;
        }
        if (rc > 0) {
            dispatch(c);
            return;
        }
    }
}

/* Whether the client's system has all of the reply; the end of our side may be on its way. */
static bool has_arrived(const struct conn *c)
{
    int unconfirmed;

    return ioctl(c->watch.fd, SIOCOUTQ, &unconfirmed) < 0 || unconfirmed <= 1;
}

/*
 * What a client sends behind its request is thrown away; the timer runs meanwhile. One that has not waited
 * for the reply is told by a reset, or by its end having come before the reply was there.
 */
static void read_to_end(struct conn *c)
{
    char buf[READ_BYTES];
    ssize_t n;

    do {
        n = recv(c->watch.fd, buf, sizeof buf, 0);
    } while (n < 0 && errno == EINTR);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)))
        return;
    c->useful = n == 0 && !c->refused && has_arrived(c);
    drop(c);
}

/* ---- who it is */

/* It is known, or need not be: its request may be read. */
static void admit(struct conn *c)
{
    c->state = READING;
    set_held(c, 0);
    tei_watch_set(&c->watch, EPOLLIN);
    if (!give_time(c))
        drop(c);
}

/* One that speaks in clear is served if its address is in TE_AUTH_CLASSIC; it has said a few bytes by now. */
static void admit_classic(struct conn *c)
{
    uint8_t first[TEI_SECURE_FIRST];
    size_t n;

    memcpy(first, tei_secure_first(c->secure, &n), sizeof(first));
    tei_secure_free(c->secure);
    c->secure = NULL;
    if (feed(c, (const char *)first, n) < 0)
        drop(c);
    else
        admit(c);
}

/* It is told in a way that engines understand which speak in clear, and may read that before the end. */
static void turn_away(struct conn *c, enum tei_auth_cause cause)
{
    tei_auth_refused(c->server->auth, cause, PORT, PEER(c));
    c->refused = true;
    if (cause == TEI_AUTH_PLAIN)
        (void)send(c->watch.fd, TEI_SECURE_ALERTS, sizeof(TEI_SECURE_ALERTS) - 1,
                   MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(c->watch.fd, SHUT_WR);
    c->state = CLOSING;
    tei_watch_set(&c->watch, EPOLLIN);
}

static void greet(struct conn *c)
{
    enum tei_secure_state state = tei_secure_greet(c->secure);
    enum tei_auth_cause cause = tei_secure_cause(c->secure);

    if (state == TEI_SECURE_WAIT)
        tei_watch_set(&c->watch, tei_secure_events(c->secure));
    else if (state == TEI_SECURE_DONE)
        admit(c);
    else if (state == TEI_SECURE_LOST)
        drop(c);
    else if (cause == TEI_AUTH_PLAIN && is_classic(c))
        admit_classic(c);
    else
        turn_away(c, cause);
}

static void on_conn(struct tei_watch *w, uint32_t events)
{
    struct conn *c = tei_container_of(w, struct conn, watch);

    switch (c->state) {
    case GREETING:
        greet(c);
        break;
    case READING:
        read_request(c);
        break;
    case WRITING:
        continue_reply(c);
        break;
    case CLOSING:
        read_to_end(c);
        break;
    case UNREAD:
    case QUEUED:
    case WAITING:
        /* Nothing was asked for, so this is an error or the end of both directions. */
        TEI_DEBUG("handshake port: %s left before its reply (0x%x)", PEER(c), events);
        drop(c);
        break;
    }
}

/* ---- accepting */

/* With TE_AUTH by the proof, which takes memory of its own; false: there is none. */
static bool begin(struct conn *c)
{
    struct tei_auth *auth = c->server->auth;

    if (!auth)
        return true;
    c->state = GREETING;
    c->secure = tei_secure_open(auth, c->watch.fd, true, NULL);
    return c->secure && hold(c, SMALL_MAX);
}

static void add_conn(struct tei_rpc_server *s, int fd, const struct tei_addr *from)
{
    struct rpc_source *source = tei_rpc_source_enter(&s->sources, from);
    struct conn *c = source ? calloc(1, sizeof *c) : NULL;

    if (!c || tei_watch_add(s->loop, &c->watch, fd, EPOLLIN, on_conn)) {
        if (source)
            tei_rpc_source_leave(source);
        free(c);
        tei_fd_close(fd);
        return;
    }
    c->server = s;
    c->source = source;
    if (tei_bans_enter(&s->bans, source->base.key, tei_now_ns()))
        tell_ban(s, from);
    c->peer = *from;
    tei_rpc_parser_init(&c->parser, s->max_len);
    c->parser.small_len = SMALL_MAX;
    tei_list_push_back(&source->conns, &c->link);
    s->n_conns++;
    TEI_DEBUG("handshake port: %s has connected", PEER(c));
    if (!begin(c) || !give_time(c))
        drop(c);
}

static void make_room(struct tei_rpc_server *s)
{
    struct conn *oldest = oldest_of(tei_rpc_source_crowd(&s->sources));

    TEI_WARN(
        "handshake port: %d connections at once, dropping the oldest of %s, which has the most",
        CONNS_MAX, PEER(oldest));
    drop(oldest);
}

static void on_accept_again(struct tei_timer *t)
{
    struct tei_rpc_server *s = tei_container_of(t, struct tei_rpc_server, accept_timer);

    tei_watch_set(&s->listen_watch, EPOLLIN);
}

/*
 * Descriptors or memory ran out. The listening socket stays readable, so it must not be watched for
 * a while.
 */
static void pause_accepting(struct tei_rpc_server *s)
{
    TEI_WARN("handshake port: cannot accept: %s; trying again in 100 ms", tei_errno_text(errno));
    if (!tei_timer_start(s->loop, &s->accept_timer, tei_now_ns() + ACCEPT_PAUSE_NS,
                         on_accept_again))
        tei_watch_set(&s->listen_watch, 0);
}

static void on_listen(struct tei_watch *w, uint32_t events)
{
    struct tei_rpc_server *s = tei_container_of(w, struct tei_rpc_server, listen_watch);

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct tei_addr from;
        int fd = tei_accept(s->listen_fd, &from);

        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                pause_accepting(s);
            return;
        }
        if (s->n_conns == CONNS_MAX)
            make_room(s);
        add_conn(s, fd, &from);
    }
}

/* ---- open and close */

int tei_rpc_server_open(struct tei_loop *loop, int listen_fd, const struct tei_conf *conf,
                        const struct tei_rpc_service *service, struct tei_rpc_server **out)
{
    struct tei_rpc_server *s = calloc(1, sizeof *s);
    int rc = TE_ERR_MEMORY;

    if (s)
        s->gate = gate_create(loop);
    if (!s || !s->gate) {
        TEI_ERROR("no memory for the handshake port");
        goto free_server;
    }
    s->loop = loop;
    s->listen_fd = listen_fd;
    s->max_len = conf->handshake_max_length;
    s->auth = conf->identity;
    s->service = *service;
    s->gate->server = s;
    tei_rpc_sources_init(&s->sources);
    tei_bans_init(&s->bans);
    rc = tei_watch_add(loop, &s->listen_watch, listen_fd, EPOLLIN, on_listen);
    if (rc)
        goto put_gate;
    *out = s;
    return 0;

put_gate:
    tei_bans_fini(&s->bans);
    gate_put(s->gate);
free_server:
    free(s);
    tei_fd_close(listen_fd);
    return rc;
}

void tei_rpc_server_close(struct tei_rpc_server *s)
{
    struct rpc_source *source;

    if (!s)
        return;
    pthread_mutex_lock(&s->gate->lock);
    s->gate->loop = NULL;
    s->gate->server = NULL;
    pthread_mutex_unlock(&s->gate->lock);
    while ((source = tei_rpc_source_crowd(&s->sources))) {
        struct conn *c = oldest_of(source);

        c->useful = true; /* it is we who end it */
        drop(c);
    }
    tei_timer_stop(s->loop, &s->ban_timer);
    tei_bans_fini(&s->bans);
    tei_timer_stop(s->loop, &s->accept_timer);
    tei_watch_del(&s->listen_watch);
    tei_fd_close(s->listen_fd);
    gate_put(s->gate);
    free(s);
}
