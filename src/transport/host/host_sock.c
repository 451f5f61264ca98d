/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_sock.c - the unix socket: packets with descriptors.
 *
 * The socket keeps the bounds of packets (SOCK_SEQPACKET), so there is nothing to put together. Its
 * name is abstract and random: it needs no directory and cannot be taken before its owner has it.
 */
#include "transport/host/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 256

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int) * HOST_FDS) + CMSG_SPACE(sizeof(struct ucred))];
};

static socklen_t make_address(const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int make_socket(int flags)
{
    return tei_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

static int close_keeping_errno(int fd)
{
    int keep = errno;

    if (fd >= 0)
        tei_fd_close(fd);
    errno = keep;
    return -1;
}

int tei_host_listen(char name[HOST_SOCKET + 1])
{
    struct sockaddr_un a;
    socklen_t len;
    int on = 1, fd = make_socket(SOCK_NONBLOCK);

    snprintf(name, HOST_SOCKET + 1, "te-host-%016llx%016llx", (unsigned long long)tei_random_u64(),
             (unsigned long long)tei_random_u64());
    len = make_address(name, &a);
    /* The connections inherit it: each packet tells who has sent it. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, BACKLOG) != 0)
        return close_keeping_errno(fd);
    return fd;
}

int tei_host_connect(const char *name, int64_t timeout_ms)
{
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    struct sockaddr_un a;
    socklen_t len = make_address(name, &a);
    int fd = make_socket(0);

    /* A unix socket connects at once, or waits for a place in the backlog. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
        connect(fd, (struct sockaddr *)&a, len) != 0)
        return close_keeping_errno(fd);
    return fd;
}

bool tei_host_credentials(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred c;
    socklen_t n = sizeof(c);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) != 0)
        return false;
    *pid = c.pid;
    *uid = c.uid;
    return true;
}

bool tei_host_send(int fd, const struct host_msg *m, const int *fds, size_t n_fds)
{
    union control control;
    struct iovec v = {(void *)(uintptr_t)m, sizeof(*m)};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

    if (n_fds) {
        memset(&control, 0, sizeof(control));
        h.msg_control = &control;
        h.msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * n_fds);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * n_fds);
    }
    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*m);
}

/* The descriptors of a packet; those beyond what has room were never made. Its sender, if it is told. */
static size_t take_control(struct msghdr *h, int fds[HOST_FDS], pid_t *sender)
{
    struct ucred from;
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
            memcpy(&from, CMSG_DATA(c), sizeof(from));
            *sender = from.pid;
        }
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < here && n < HOST_FDS; i++) {
            memcpy(&fds[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            tei_fd_own(fds[n++]);
        }
    }
    return n;
}

int tei_host_recv(int fd, bool from_owner, struct host_msg *m, int fds[HOST_FDS], size_t *n_fds,
                  pid_t *sender)
{
    union control control;
    char packet[sizeof(*m) + 1]; /* so that one that is too long is seen */
    struct iovec v = {packet, sizeof(packet)};
    struct msghdr h = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    *sender = 0;
    *n_fds = take_control(&h, fds, sender);
    if (!(h.msg_flags & MSG_CTRUNC) &&
        tei_host_msg_read(packet, (size_t)got, *n_fds, from_owner, m))
        return 1;
    while (*n_fds)
        tei_fd_close(fds[--*n_fds]);
    /* One whose descriptors found no place here is lost, and its sender not to blame. */
    return from_owner && (h.msg_flags & MSG_CTRUNC) ? 0 : -1;
}
