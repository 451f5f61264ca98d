/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.c - streams between hosts: what a network and two kernels do with them.
 *
 * A direction of a connection is a ring of bytes that were sent and not yet read, with three marks: read,
 * arrived, sent. What travels is a packet, an event that moves a mark of the other side when it comes:
 * bytes, an acknowledgement with the window, the end of a stream, a reset, and the three of a connection's
 * begin. Where a path is cut, or the other machine is off, a packet is sent again until it comes through
 * or the sender gives up, as TCP does. A path carries one packet at a time.
 */
#include "net.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define SOCKETS      (1 << 22)
#define RTO_NS       (200 * SIM_MS)
#define RTO_MAX_NS   (120 * SIM_S)
#define GIVE_UP_NS   (900 * SIM_S)
#define SYN_RTO_NS   SIM_S
#define SYN_LIMIT_NS (120 * SIM_S)
#define KEEPALIVE_NS (25 * SIM_S)
#define OWN_NS       (10 * SIM_US) /* to oneself */
#define EVEN_BYTES   ((uint64_t)1 << 18)

enum packet_kind { SYN, SYN_ACK, REFUSED, BYTES, ACK, FIN, RST };

struct packet {
    enum packet_kind kind;
    struct socket *from, *to;
    uint64_t mark, limit;
    int64_t sent, wait; /* first sent, and until it is sent again */
    bool is_again;
};

struct sim_net_faults sim_net;
bool sim_is_v6, sim_is_even;

struct iovec sim_net_shut[SIM_LIMIT];

static struct socket *sockets[SOCKETS];
static int n_sockets;
static struct socket *bound[SIM_LIMIT]; /* those with a port of their own, and some that had one */
static struct sim_path paths[SIM_LIMIT][SIM_LIMIT];
static int64_t nic_free_at[SIM_LIMIT];
static bool is_off[SIM_LIMIT];
static uint16_t last_port[SIM_LIMIT];
static unsigned closed[SIM_LIMIT];

struct sim_path *sim_path(int from, int to)
{
    return &paths[from][to];
}

static int host_of(uint32_t ip)
{
    int host = (int)(ip & 0xffff);

    return (ip & ~0xffffu) == SIM_NET && host < SIM_LIMIT ? host : -1;
}

/* ------------------------------------------------------------------------------------- packets */

static void arrive(void *arg);

static void travel(struct packet *p, size_t bytes)
{
    struct sim_path *path = &paths[p->from->host][p->to ? p->to->host : p->from->host];
    int64_t begin = path->free_at > sim_now() ? path->free_at : sim_now();

    if (p->to && p->to->host == p->from->host) {
        sim_at(sim_now() + OWN_NS, arrive, p);
        return;
    }
    if (sim_is_even && nic_free_at[p->from->host] > begin)
        begin = nic_free_at[p->from->host];
    nic_free_at[p->from->host] = path->free_at =
        begin + (int64_t)bytes * SIM_S / (path->bytes_per_s ? path->bytes_per_s : SIM_S);
    sim_at(path->free_at + path->latency_ns, arrive, p);
}

static void send_packet(enum packet_kind kind, struct socket *from, struct socket *to,
                        uint64_t mark, size_t bytes)
{
    struct packet *p = sim_new(sizeof(*p));

    *p = (struct packet){kind,
                         from,
                         to,
                         mark,
                         from->in.read + from->in.size,
                         sim_now(),
                         kind == SYN ? SYN_RTO_NS : RTO_NS,
                         false};
    travel(p, bytes);
}

/* The application learns of it when it asks next. */
static void fail(struct socket *s, int error)
{
    if (s->state == CLOSED || s->error || s->reset)
        return;
    sim_trace("connection %u-%u of host %d: %s", s->port, s->peer_port, s->host, strerror(error));
    s->error = error;
    s->reset = true;
    s->state = s->state == CONNECTING ? BROKEN : s->state;
    sim_file_notify(&s->file);
}

static bool is_lost(const struct packet *p)
{
    return paths[p->from->host][p->to->host].cut || is_off[p->to->host] || is_off[p->from->host];
}

/* Sent again later, unless the sender has given up. */
static void again(struct packet *p)
{
    int64_t limit = p->kind == SYN ? SYN_LIMIT_NS : GIVE_UP_NS;

    if (sim_now() - p->sent > limit || p->from->reset || p->kind == RST || p->from->is_lost) {
        if (sim_now() - p->sent > limit)
            fail(p->from, ETIMEDOUT);
        free(p);
        return;
    }
    sim_at(sim_now() + p->wait, arrive, p);
    p->is_again = true;
    p->wait = p->wait * 2 > RTO_MAX_NS ? RTO_MAX_NS : p->wait * 2;
}

static bool is_bound(const struct socket *s)
{
    return s->state == BOUND || s->state == LISTENING;
}

static struct socket *bound_at(int host, uint16_t port)
{
    for (struct socket **at = &bound[host]; *at;) {
        if (!is_bound(*at))
            *at = (*at)->next_bound;
        else if ((*at)->port == port)
            return *at;
        else
            at = &(*at)->next_bound;
    }
    return NULL;
}

static struct socket *listener_at(int host, uint16_t port)
{
    struct socket *s = bound_at(host, port);

    return s && s->state == LISTENING ? s : NULL;
}

static void join(struct socket *a, struct socket *b)
{
    a->peer = b;
    b->peer = a;
    a->peer_ip = b->ip, a->peer_port = b->port;
    b->peer_ip = a->ip, b->peer_port = a->port;
    a->limit = b->in.size;
    b->limit = a->in.size;
}

/* True if it is done with. */
static bool come_to_listener(struct packet *p)
{
    struct socket *client = p->from, *l = listener_at(p->to->host, client->peer_port), *s;

    if (client->state != CONNECTING)
        return true;
    if (!l) {
        send_packet(REFUSED, p->to, client, 0, 0);
        return true;
    }
    if (l->n_backlog >= l->backlog_max)
        return false;
    s = sim_socket_new(l->host, false);
    s->ip = client->peer_ip;
    s->port = l->port;
    s->state = CONNECTED;
    join(client, s);
    l->backlog[l->n_backlog++] = s;
    sim_file_notify(&l->file);
    send_packet(SYN_ACK, s, client, 0, 0);
    return true;
}

/* Into the ring, which wraps. */
static void put(struct stream *to, uint64_t at, const char *from, uint64_t n)
{
    uint64_t begin = at % to->size, first = n < to->size - begin ? n : to->size - begin;

    if (!to->bytes)
        return; /* nobody will read them */
    memcpy(to->bytes + begin, from, first);
    memcpy(to->bytes, from + first, n - first);
}

/* What was lent and arrives now is read now. */
static void read_lent(const struct socket *from, struct stream *to, uint64_t mark)
{
    for (const struct lent *l = from->lent; l && l->begin < mark; l = l->next) {
        uint64_t begin = l->begin > to->arrived ? l->begin : to->arrived;
        uint64_t end = l->end < mark ? l->end : mark;

        if (begin < end)
            put(to, begin, l->from + (begin - l->begin), end - begin);
    }
}

/* The sender's kernel needs what was lent no more; it says so some time later. */
static void on_notice(void *arg)
{
    struct socket *s = arg;

    sim_file_notify(&s->file);
}

static void give_back(struct socket *s)
{
    while (s->lent && s->lent->end <= s->acked) {
        struct lent *l = s->lent;
        bool is_last = !l->next || l->next->call != l->call;

        s->lent = l->next;
        if (is_last && s->n_notices < SIM_NOTICES)
            s->notices[s->n_notices++] = (struct notice){l->call, l->call, sim_one_in(8)};
        free(l);
    }
    sim_at(sim_now() + (int64_t)sim_below(5) * SIM_MS, on_notice, s);
}

bool sim_socket_notice(struct socket *s, struct notice *out)
{
    int i = s->n_notices ? (int)sim_below((uint64_t)s->n_notices) : 0; /* out of order */

    if (!s->n_notices)
        return false;
    *out = s->notices[i];
    s->notices[i] = s->notices[--s->n_notices];
    return true;
}

static void come_to_peer(const struct packet *p)
{
    struct socket *s = p->to;

    if (s->state == CLOSED) {
        if (p->kind == BYTES)
            send_packet(RST, s, p->from, 0, 0);
        return;
    }
    switch (p->kind) {
    case SYN_ACK:
        s->state = s->state == CONNECTING ? CONNECTED : s->state;
        break;
    case REFUSED:
        fail(s, ECONNREFUSED);
        break;
    case BYTES:
        if (p->from->was_reset || p->mark <= s->in.arrived)
            break; /* what the sender had queued is gone */
        read_lent(p->from, &s->in, p->mark);
        s->in.arrived = p->mark;
        send_packet(ACK, s, p->from, p->mark, 0);
        break;
    case ACK:
        s->acked = p->mark > s->acked ? p->mark : s->acked;
        s->limit = p->limit > s->limit ? p->limit : s->limit;
        if (s->lent)
            give_back(s);
        break;
    case FIN:
        s->in.ended = true;
        break;
    default:
        fail(s, ECONNRESET);
    }
    sim_file_notify(&s->file);
}

static void arrive(void *arg)
{
    struct packet *p = arg;

    if (p->is_again && p->from->reset) { /* who has given up sends nothing again */
        free(p);
        return;
    }
    if (is_lost(p) || (p->kind == SYN && sim_one_in(sim_net.lost_in))) {
        again(p);
        return;
    }
    if (p->kind == FIN &&
        p->to->in.arrived < p->mark) { /* what was sent before it is still under way */
        again(p);
        return;
    }
    if (p->kind == SYN) {
        if (!come_to_listener(p)) {
            again(p);
            return;
        }
    } else if (p->to->is_lost && !p->from->is_lost) {
        fail(p->from, ECONNRESET); /* the machine is back, and knows nothing of it */
    } else {
        come_to_peer(p);
    }
    free(p);
}

/* ------------------------------------------------------------------------------ what sockets do */

struct socket *sim_socket_new(int host, bool is_packet)
{
    struct socket *s = sim_new(sizeof(*s));

    if (n_sockets == SOCKETS)
        sim_fail("more than %d sockets", SOCKETS);
    sockets[n_sockets++] = s;
    s->host = host;
    s->is_packet = is_packet;
    s->in.size = sim_is_even ? EVEN_BYTES : (uint64_t)4096 << sim_below(7);
    s->in.bytes = sim_new(s->in.size);
    return s;
}

void sim_socket_join(struct socket *a, struct socket *b)
{
    join(a, b);
    a->state = b->state = CONNECTED;
}

static uint16_t ephemeral(int host)
{
    do {
        if (last_port[host] < 32768 || ++last_port[host] >= 60999)
            last_port[host] = (uint16_t)(32768 + sim_below(1000));
    } while (bound_at(host, last_port[host]));
    return last_port[host];
}

int sim_socket_bind(struct socket *s, uint32_t ip, uint16_t port)
{
    if (ip != INADDR_ANY && (ip >> 24) != 127 && host_of(ip) != s->host)
        return EADDRNOTAVAIL;
    if (port && bound_at(s->host, port))
        return EADDRINUSE;
    s->ip = ip;
    s->port = port ? port : ephemeral(s->host);
    s->state = BOUND;
    s->next_bound = bound[s->host];
    bound[s->host] = s; /* once for each */
    return 0;
}

int sim_socket_listen(struct socket *s, int backlog)
{
    s->backlog_max = backlog < 1 ? 1 : backlog > SIM_BACKLOG ? SIM_BACKLOG : backlog;
    s->state = LISTENING;
    return 0;
}

int sim_socket_connect(struct socket *s, uint32_t ip, uint16_t port)
{
    int to = (ip >> 24) == 127 ? s->host : host_of(ip);
    struct socket *there;

    if (to < 0)
        return ENETUNREACH;
    if (!s->port)
        s->port = ephemeral(s->host);
    s->ip = SIM_NET + (uint32_t)s->host;
    s->peer_ip = ip;
    s->peer_port = port;
    if (s->is_packet)
        return 0;
    s->state = CONNECTING;
    there = sim_new(sizeof(*there)); /* the machine, which answers where nobody listens */
    there->host = to;
    send_packet(SYN, s, there, 0, 0);
    return EINPROGRESS;
}

struct socket *sim_socket_accept(struct socket *l)
{
    struct socket *s = l->n_backlog ? l->backlog[0] : NULL;

    if (s)
        memmove(l->backlog, l->backlog + 1, sizeof(*l->backlog) * (size_t)--l->n_backlog);
    return s;
}

static uint64_t room(const struct socket *s)
{
    const struct stream *to = &s->peer->in;
    uint64_t held = to->sent - to->read; /* the ring's own limit, where a window is not yet told */

    return s->limit > to->sent && held < to->size ? s->limit - to->sent : 0;
}

static void lend(struct socket *s, uint64_t at, const char *from, uint64_t n)
{
    struct lent *l = sim_new(sizeof(*l));

    *l = (struct lent){at, at + n, from, s->calls, NULL};
    if (s->lent)
        s->last_lent->next = l;
    else
        s->lent = l;
    s->last_lent = l;
}

static bool is_shut(const struct iovec *iov, size_t n)
{
    const struct iovec *shut = &sim_net_shut[sim_host()];
    uintptr_t at = (uintptr_t)shut->iov_base;

    for (size_t i = 0; shut->iov_base && i < n; i++)
        if ((uintptr_t)iov[i].iov_base < at + shut->iov_len &&
            at < (uintptr_t)iov[i].iov_base + iov[i].iov_len)
            return true;
    return false;
}

/* 0 with errno if nothing could be taken. */
size_t sim_socket_send(struct socket *s, const struct iovec *iov, size_t n_iov, bool is_lent)
{
    size_t taken = 0, free_bytes;
    struct stream *to;

    if (s->reset || s->has_ended || s->state != CONNECTED) {
        errno = s->error ? s->error : s->state == CONNECTED ? EPIPE : ENOTCONN;
        s->error = 0;
        return 0;
    }
    if (is_shut(iov, n_iov)) {
        errno = EFAULT;
        return 0;
    }
    if (is_lent && s->zerocopy && sim_one_in(sim_net.no_room_in)) {
        errno = ENOBUFS; /* no memory for another notice */
        return 0;
    }
    to = &s->peer->in;
    free_bytes = room(s);
    if (free_bytes > 1 && sim_one_in(sim_net.short_in))
        free_bytes = 1 + sim_below(free_bytes);
    for (size_t i = 0; i < n_iov && taken < free_bytes; i++) {
        size_t n = iov[i].iov_len < free_bytes - taken ? iov[i].iov_len : free_bytes - taken;

        if (is_lent && s->zerocopy)
            lend(s, to->sent, iov[i].iov_base, n);
        else
            put(to, to->sent, iov[i].iov_base, n);
        to->sent += n, taken += n;
    }
    if (taken)
        send_packet(BYTES, s, s->peer, to->sent, taken);
    else
        errno = EAGAIN;
    s->calls += taken && is_lent && s->zerocopy;
    return taken;
}

/* Bytes, 0 at the end, -1 with errno. */
ssize_t sim_socket_receive(struct socket *s, const struct iovec *iov, size_t n_iov, bool peek)
{
    uint64_t at = s->in.read, end = s->in.arrived;

    if (at == end || s->state != CONNECTED) {
        errno = s->error ? s->error : s->state == CONNECTED ? EAGAIN : ENOTCONN;
        if (s->state == CONNECTED && !s->error && (s->in.ended || s->reset))
            return 0;
        s->error = 0;
        return -1;
    }
    if (end - at > 1 && sim_one_in(sim_net.short_in))
        end = at + 1 + sim_below(end - at);
    for (size_t i = 0; i < n_iov; i++)
        for (size_t k = 0; k < iov[i].iov_len && at < end;) {
            uint64_t n = s->in.size - at % s->in.size;

            n = n < iov[i].iov_len - k ? n : iov[i].iov_len - k;
            n = n < end - at ? n : end - at;
            memcpy((char *)iov[i].iov_base + k, s->in.bytes + at % s->in.size, n);
            at += n, k += n;
        }
    end = at - s->in.read;
    if (peek)
        return (ssize_t)end;
    s->in.read = at;
    if (s->peer->state != CLOSED)
        send_packet(ACK, s, s->peer, s->in.arrived, 0);
    return (ssize_t)end;
}

int sim_socket_shutdown(struct socket *s)
{
    if (s->state != CONNECTED || s->reset)
        return ENOTCONN;
    if (!s->has_ended)
        send_packet(FIN, s, s->peer, s->peer->in.sent, 0);
    s->has_ended = true;
    sim_file_notify(&s->file);
    return 0;
}

uint64_t sim_socket_unacked(const struct socket *s)
{
    return s->peer ? s->peer->in.sent - s->acked : 0;
}

uint32_t sim_socket_ready(struct sim_file *f)
{
    const struct socket *s = (struct socket *)f;
    uint32_t ready = s->error || s->n_notices ? EPOLLERR : 0u;

    if (s->state == LISTENING)
        return s->n_backlog ? EPOLLIN : 0;
    if (s->state == CONNECTING)
        return ready;
    if (s->state != CONNECTED || s->reset)
        return ready | EPOLLHUP | EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    if (s->in.arrived > s->in.read || s->in.ended)
        ready |= EPOLLIN;
    if (s->in.ended)
        ready |= EPOLLRDHUP;
    if (s->in.ended && s->has_ended)
        ready |= EPOLLHUP;
    if (s->has_ended || room(s) >= s->peer->in.size / 3)
        ready |= EPOLLOUT;
    return ready;
}

/* The application has closed it, or is gone. */
static void leave(struct socket *s, bool is_silent)
{
    bool unread = s->in.read < s->in.arrived, was_connected = s->state == CONNECTED;

    for (int i = 0; i < s->n_backlog; i++)
        leave(s->backlog[i], is_silent);
    s->state = CLOSED;
    if (!was_connected || s->reset || is_silent)
        return;
    s->was_reset = s->resets; /* else what is queued goes on being sent */
    if (unread || s->resets)
        send_packet(RST, s, s->peer, 0, 0);
    else if (!s->has_ended)
        send_packet(FIN, s, s->peer, s->peer->in.sent, 0);
    s->has_ended = true;
}

void sim_socket_close(struct sim_file *f)
{
    struct socket *s = (struct socket *)f;

    closed[s->host] += !sim_is_engine();
    leave(s, is_off[s->host]);
    free(s->in.bytes);
    s->in.bytes = NULL;
    s->is_lost = is_off[s->host];
}

/* ---------------------------------------------------------------------------------------- faults */

/* Connections on which nothing is under way ask whether the other side is there, which nobody answers. */
static void keep_alive(void *arg)
{
    (void)arg;
    for (int i = 0; i < n_sockets; i++) {
        struct socket *s = sockets[i];

        if (s->state == CONNECTED && s->keepalive && s->peer->host != s->host &&
            (is_off[s->peer->host] ||
             (paths[s->host][s->peer->host].cut &&
              sim_now() - paths[s->host][s->peer->host].cut_since >= KEEPALIVE_NS)))
            fail(s, ETIMEDOUT);
    }
}

void sim_path_cut(int from, int to)
{
    sim_trace("the path %d-%d is cut", from, to);
    paths[from][to].cut = true;
    paths[from][to].cut_since = sim_now();
    sim_at(sim_now() + KEEPALIVE_NS, keep_alive, NULL);
}

void sim_path_heal(int from, int to)
{
    paths[from][to].cut = false;
}

static bool is_between(const struct socket *s, int a, int b)
{
    return !a || (s->host == a && s->peer->host == b);
}

bool sim_net_reset(int a, int b)
{
    uint64_t from = n_sockets ? sim_below((uint64_t)n_sockets) : 0;

    for (int i = 0; i < n_sockets; i++) {
        struct socket *s = sockets[(from + (uint64_t)i) % (uint64_t)n_sockets];

        if (s->state == CONNECTED && s->peer->state == CONNECTED && !s->reset &&
            s->host != s->peer->host && is_between(s, a, b)) {
            /* What was under way, or not yet read, is gone: where the other side could still read it, a
             * RST would not say that it has ended. */
            s->was_reset = s->peer->was_reset = true;
            s->in.read = s->in.arrived;
            s->peer->in.read = s->peer->in.arrived;
            send_packet(RST, s, s->peer, 0, 0);
            fail(s, ECONNRESET);
            return true;
        }
    }
    return false;
}

unsigned sim_net_closed(int host)
{
    return closed[host];
}

bool sim_net_is_left(int fd)
{
    const struct socket *s = (const struct socket *)sim_file_of(fd);

    return s->peer->state == CLOSED || s->peer->reset;
}

void sim_net_power_off(int host)
{
    sim_trace("host %d is switched off", host);
    is_off[host] = true;
    sim_files_close(host);
    sim_at(sim_now() + KEEPALIVE_NS, keep_alive, NULL);
}

void sim_net_power_on(int host)
{
    is_off[host] = false;
}
