/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unix.c - unix sockets of packets between hosts of one machine, with the descriptors that they carry
 * and what the kernel says of who is at the other end.
 */
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>

#define BACKLOG 256
#define PACKET  256 /* bytes, at most */
#define RIGHTS  4   /* descriptors with one packet, at most */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

struct packet {
    char bytes[PACKET];
    size_t n;
    pid_t sender;
    struct sim_memory *rights[RIGHTS];
    size_t n_rights;
    struct packet *next;
};

struct unix_socket {
    struct sim_file file;
    struct sim_process *owner; /* who has made it */
    char name[sizeof(((struct sockaddr_un *)0)->sun_path)];
    size_t n_name;
    bool listens, closed, tells_sender;
    int64_t patience_ns; /* SO_SNDTIMEO */
    struct unix_socket *peer;
    struct unix_socket *backlog[BACKLOG];
    int n_backlog, backlog_max;
    struct packet *first, *last;
    unsigned n_packets, packets_max;
    struct unix_socket *next;
};

static struct unix_socket *sockets; /* all that ever were */

static struct unix_socket *make_socket(struct sim_process *owner)
{
    struct unix_socket *s = sim_new(sizeof(*s));

    s->owner = owner;
    s->packets_max = 1 + (unsigned)sim_below(16);
    s->patience_ns = SIM_NEVER;
    s->next = sockets;
    sockets = s;
    return s;
}

static int failed(int error)
{
    errno = error;
    return -1;
}

bool sim_unix_is(int fd)
{
    const struct sim_file *f = sim_file_of(fd);

    return f && f->kind == SIM_UNIX;
}

static struct unix_socket *socket_of(int fd)
{
    struct unix_socket *s = (struct unix_socket *)sim_file_of(fd);

    sim_point();
    return s;
}

/* --------------------------------------------------------------------------------- connections */

int sim_unix_open(int type)
{
    if ((type & 0xf) != SOCK_SEQPACKET)
        return failed(EPROTONOSUPPORT);
    return sim_file_open(&make_socket(sim_process())->file, SIM_UNIX, type & SOCK_NONBLOCK);
}

static size_t take_name(const struct sockaddr *a, socklen_t len, char *name)
{
    size_t n = len - offsetof(struct sockaddr_un, sun_path);

    memcpy(name, ((const struct sockaddr_un *)(const void *)a)->sun_path, n);
    return n;
}

/* Names are those of a machine. */
static struct unix_socket *find(int host, const char *name, size_t n)
{
    for (struct unix_socket *s = sockets; s; s = s->next)
        if (!s->closed && s->n_name == n && memcmp(s->name, name, n) == 0 &&
            sim_is_same_machine(s->owner->host, host))
            return s;
    return NULL;
}

int sim_unix_bind(int fd, const struct sockaddr *a, socklen_t len)
{
    struct unix_socket *s = socket_of(fd);
    char name[sizeof(s->name)];
    size_t n = take_name(a, len, name);

    if (find(s->owner->host, name, n))
        return failed(EADDRINUSE);
    memcpy(s->name, name, n);
    s->n_name = n;
    return 0;
}

int sim_unix_listen(int fd, int backlog)
{
    struct unix_socket *s = socket_of(fd);

    s->listens = true;
    s->backlog_max = backlog < BACKLOG ? backlog : BACKLOG;
    return 0;
}

int sim_unix_connect(int fd, const struct sockaddr *a, socklen_t len)
{
    struct unix_socket *s = socket_of(fd), *l, *there;
    char name[sizeof(s->name)];
    size_t n = take_name(a, len, name);
    int64_t until = s->patience_ns == SIM_NEVER ? SIM_NEVER : sim_now() + s->patience_ns;

    while ((l = find(s->owner->host, name, n)) && l->listens && l->n_backlog >= l->backlog_max)
        if (!sim_block(l, "waits for a place in a backlog", until))
            return failed(EAGAIN);
    if (!l || !l->listens)
        return failed(ECONNREFUSED);
    there = make_socket(l->owner);
    there->peer = s;
    there->tells_sender = l->tells_sender;
    s->peer = there;
    l->backlog[l->n_backlog++] = there;
    sim_file_notify(&l->file);
    return 0;
}

int sim_unix_accept(int fd, int flags)
{
    struct unix_socket *l = socket_of(fd);
    int accepted;

    if (!l->n_backlog)
        return failed(EAGAIN);
    accepted = sim_file_open(&l->backlog[0]->file, SIM_UNIX, flags & SOCK_NONBLOCK);
    if (accepted < 0)
        return -1;
    memmove(l->backlog, l->backlog + 1, sizeof(*l->backlog) * (size_t)--l->n_backlog);
    sim_wake(l, true);
    return accepted;
}

int sim_unix_set(int fd, int name, const void *value)
{
    struct unix_socket *s = socket_of(fd);
    struct timeval t;

    if (name == SO_PASSCRED) {
        s->tells_sender = true;
    } else if (name == SO_SNDTIMEO) {
        memcpy(&t, value, sizeof(t));
        s->patience_ns = t.tv_sec * SIM_S + t.tv_usec * SIM_US;
    }
    return 0;
}

/* The kernel of a machine knows SO_PEERPIDFD or does not. */
static int peer_pidfd(const struct unix_socket *s, void *value)
{
    int fd;

    if (!sim_has_peerpidfd)
        return failed(ENOPROTOOPT);
    if (s->peer->owner->ended)
        return failed(sim_one_in(2) ? EINVAL : ENODATA);
    fd = sim_pidfd_open(s->peer->owner);
    if (fd < 0)
        return -1;
    memcpy(value, &fd, sizeof(fd));
    return 0;
}

int sim_unix_get(int fd, int name, void *value, socklen_t *len)
{
    struct unix_socket *s = socket_of(fd);
    struct ucred c = {.uid = SIM_USER, .gid = SIM_USER};

    if (name == SO_PEERPIDFD)
        return s->peer ? peer_pidfd(s, value) : failed(ENOTCONN);
    if (name != SO_PEERCRED)
        return failed(ENOPROTOOPT);
    if (s->peer)
        c.pid = s->peer->owner->pid;
    memcpy(value, &c, *len < sizeof(c) ? *len : sizeof(c));
    return 0;
}

/* ------------------------------------------------------------------------------------- packets */

static void free_packet(struct packet *p)
{
    for (size_t i = 0; i < p->n_rights; i++)
        sim_memory_put(p->rights[i]);
    free(p);
}

/* False: one of the descriptors is none that may be sent. */
static bool take_rights(const struct msghdr *m, struct packet *p)
{
    struct msghdr copy = *m;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < n && c->cmsg_type == SCM_RIGHTS; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            p->rights[p->n_rights] = p->n_rights < RIGHTS ? sim_memory_of(fd) : NULL;
            if (!p->rights[p->n_rights])
                return false;
            p->n_rights++;
        }
    }
    return true;
}

ssize_t sim_unix_send(int fd, const struct msghdr *m)
{
    struct unix_socket *s = socket_of(fd), *to = s->peer;
    struct packet *p;

    if (!to || to->closed)
        return failed(to ? EPIPE : ENOTCONN);
    if (to->n_packets >= to->packets_max)
        return failed(EAGAIN);
    if (m->msg_iovlen != 1 || m->msg_iov->iov_len > PACKET)
        return failed(EMSGSIZE);
    p = sim_new(sizeof(*p));
    p->n = m->msg_iov->iov_len;
    memcpy(p->bytes, m->msg_iov->iov_base, p->n);
    p->sender = sim_process()->pid;
    if (!take_rights(m, p)) {
        free_packet(p);
        return failed(EBADF);
    }
    if (to->first)
        to->last->next = p;
    else
        to->first = p;
    to->last = p;
    to->n_packets++;
    if (to->file.fd)
        sim_file_notify(&to->file);
    return (ssize_t)p->n;
}

static struct cmsghdr *put_control(struct msghdr *m, struct cmsghdr *c, int type, const void *data,
                                   size_t n, size_t *used)
{
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(n), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    memcpy(CMSG_DATA(c), data, n);
    *used += CMSG_SPACE(n);
    return (struct cmsghdr *)(void *)((char *)m->msg_control + *used);
}

/* As descriptors of the receiver's; those that find no place are lost. */
static size_t open_rights(struct msghdr *m, const struct packet *p, int fds[RIGHTS])
{
    size_t n = 0;

    while (n < p->n_rights && (fds[n] = sim_memory_open(p->rights[n])) >= 0)
        n++;
    if (n < p->n_rights)
        m->msg_flags |= MSG_CTRUNC;
    return n;
}

static void tell_control(struct msghdr *m, const struct packet *p, bool tells_sender)
{
    struct ucred from = {p->sender, SIM_USER, SIM_USER};
    struct cmsghdr *c = m->msg_control;
    int fds[RIGHTS];
    size_t n, used = 0;

    if (tells_sender)
        c = put_control(m, c, SCM_CREDENTIALS, &from, sizeof(from), &used);
    n = open_rights(m, p, fds);
    if (n)
        put_control(m, c, SCM_RIGHTS, fds, n * sizeof(int), &used);
    m->msg_controllen = used;
}

ssize_t sim_unix_receive(int fd, struct msghdr *m)
{
    struct unix_socket *s = socket_of(fd);
    struct packet *p = s->first;
    size_t n;

    if (!p)
        return !s->peer ? failed(ENOTCONN) : s->peer->closed ? 0 : failed(EAGAIN);
    m->msg_flags = p->n > m->msg_iov->iov_len ? MSG_TRUNC : 0;
    n = p->n < m->msg_iov->iov_len ? p->n : m->msg_iov->iov_len;
    memcpy(m->msg_iov->iov_base, p->bytes, n);
    tell_control(m, p, s->tells_sender);
    s->first = p->next;
    s->n_packets--;
    free_packet(p);
    if (!s->peer->closed)
        sim_file_notify(&s->peer->file);
    return (ssize_t)n;
}

uint32_t sim_unix_ready(struct sim_file *f)
{
    const struct unix_socket *s = (struct unix_socket *)f;
    uint32_t ready = 0;

    if (s->listens)
        return s->n_backlog ? EPOLLIN : 0;
    if (!s->peer)
        return EPOLLOUT | EPOLLHUP;
    if (s->first)
        ready |= EPOLLIN;
    if (s->peer->closed)
        ready |= EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLOUT;
    if (s->peer->n_packets < s->peer->packets_max)
        ready |= EPOLLOUT;
    return ready;
}

static void leave(struct unix_socket *s)
{
    s->closed = true;
    for (int i = 0; i < s->n_backlog; i++)
        leave(s->backlog[i]);
    while (s->first) {
        struct packet *p = s->first;

        s->first = p->next;
        free_packet(p);
    }
    if (s->peer && !s->peer->closed && s->peer->file.fd)
        sim_file_notify(&s->peer->file);
    sim_wake(s, true);
}

void sim_unix_close(struct sim_file *f)
{
    leave((struct unix_socket *)f);
}
