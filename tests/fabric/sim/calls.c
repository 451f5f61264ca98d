/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - the calls on sockets, by the names that the C library has for them. Host h has the addresses
 * 10.77.0.h and fd77::h: the world knows it by the first, and a socket of IPv6 is told the other one.
 */
#include "machine.h"
#include "net.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int failed(int error)
{
    if (!error)
        return 0;
    errno = error;
    return -1;
}

static struct socket *socket_of(int fd)
{
    struct sim_file *f = sim_file_of(fd);

    sim_point();
    if (f && f->kind == SIM_SOCKET)
        return (struct socket *)f;
    sim_fail("%d is no socket", fd);
}

static struct in6_addr six_of(uint32_t ip)
{
    struct in6_addr a = {.s6_addr = {0xfd, 0x77, [14] = (uint8_t)(ip >> 8), (uint8_t)ip}};

    return ip == INADDR_ANY ? in6addr_any : ip >> 24 == 127 ? in6addr_loopback : a;
}

static uint32_t four_of(const struct in6_addr *a)
{
    uint32_t mapped;

    if (IN6_IS_ADDR_UNSPECIFIED(a))
        return INADDR_ANY;
    if (IN6_IS_ADDR_LOOPBACK(a))
        return INADDR_LOOPBACK;
    memcpy(&mapped, &a->s6_addr[12], sizeof(mapped));
    if (IN6_IS_ADDR_V4MAPPED(a))
        return ntohl(mapped);
    return a->s6_addr[0] == 0xfd && a->s6_addr[1] == 0x77
               ? SIM_NET + (uint32_t)(a->s6_addr[14] << 8) + a->s6_addr[15]
               : INADDR_BROADCAST;
}

static void tell(const struct socket *s, uint32_t ip, uint16_t port, struct sockaddr *out,
                 socklen_t *len)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = six_of(ip)};
    socklen_t n = s->is_v6 ? sizeof(in6) : sizeof(in);

    in.sin_addr.s_addr = htonl(ip);
    memcpy(out, s->is_v6 ? (void *)&in6 : (void *)&in, *len < n ? *len : n);
    *len = n;
}

struct place {
    uint32_t ip;
    uint16_t port;
};

static struct place asked(const struct sockaddr *a)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (a->sa_family == AF_INET6) {
        memcpy(&in6, a, sizeof(in6));
        return (struct place){four_of(&in6.sin6_addr), ntohs(in6.sin6_port)};
    }
    memcpy(&in, a, sizeof(in));
    return (struct place){ntohl(in.sin_addr.s_addr), ntohs(in.sin_port)};
}

int socket(int domain, int type, int protocol)
{
    struct socket *s;

    (void)protocol;
    sim_point();
    if (domain == AF_UNIX)
        return sim_unix_open(type);
    if (domain != AF_INET && domain != AF_INET6)
        return failed(EAFNOSUPPORT);
    s = sim_socket_new(sim_host(), (type & 0xf) == SOCK_DGRAM);
    s->is_v6 = domain == AF_INET6;
    return sim_file_open(&s->file, SIM_SOCKET, type & SOCK_NONBLOCK);
}

/* Of a host to itself, whatever kind is asked for. */
int socketpair(int domain, int type, int protocol, int fds[2])
{
    struct socket *a, *b;

    (void)domain, (void)protocol;
    sim_point();
    a = sim_socket_new(sim_host(), false);
    b = sim_socket_new(sim_host(), false);
    sim_socket_join(a, b);
    fds[0] = sim_file_open(&a->file, SIM_SOCKET, type & SOCK_NONBLOCK);
    fds[1] = fds[0] < 0 ? -1 : sim_file_open(&b->file, SIM_SOCKET, type & SOCK_NONBLOCK);
    if (fds[0] >= 0 && fds[1] < 0) {
        close(fds[0]);
        errno = EMFILE;
    }
    return fds[1] < 0 ? -1 : 0;
}

/* Two ends that carry bytes: the library and libcurl ask no more of a pipe. */
int pipe2(int fds[2], int flags)
{
    if (!sim_is_on())
        return REAL(pipe2)(fds, flags);
    return socketpair(AF_UNIX, SOCK_STREAM | (flags & O_NONBLOCK ? SOCK_NONBLOCK : 0), 0, fds);
}

int pipe(int fds[2])
{
    return pipe2(fds, 0);
}

int bind(int fd, const struct sockaddr *a, socklen_t len)
{
    struct place p = asked(a);

    if (sim_unix_is(fd))
        return sim_unix_bind(fd, a, len);
    return failed(sim_socket_bind(socket_of(fd), p.ip, p.port));
}

int listen(int fd, int backlog)
{
    if (sim_unix_is(fd))
        return sim_unix_listen(fd, backlog);
    return failed(sim_socket_listen(socket_of(fd), backlog));
}

int connect(int fd, const struct sockaddr *a, socklen_t len)
{
    struct place p = asked(a);

    if (sim_unix_is(fd))
        return sim_unix_connect(fd, a, len);
    return failed(sim_socket_connect(socket_of(fd), p.ip, p.port));
}

int accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
    struct socket *l, *s;
    int accepted;

    if (sim_unix_is(fd))
        return sim_unix_accept(fd, flags);
    l = socket_of(fd);
    if (!l->n_backlog)
        return failed(EAGAIN);
    s = l->backlog[0];
    accepted = sim_file_open(&s->file, SIM_SOCKET, flags & SOCK_NONBLOCK);
    if (accepted < 0)
        return -1;
    sim_socket_accept(l);
    s->keepalive = l->keepalive;
    s->is_v6 = l->is_v6;
    if (a)
        tell(s, s->peer_ip, s->peer_port, a, len);
    return accepted;
}

int getsockname(int fd, struct sockaddr *a, socklen_t *len)
{
    const struct socket *s = socket_of(fd);

    tell(s, s->ip, s->port, a, len);
    return 0;
}

int getpeername(int fd, struct sockaddr *a, socklen_t *len)
{
    const struct socket *s = socket_of(fd);

    if (s->state != CONNECTED)
        return failed(ENOTCONN);
    tell(s, s->peer_ip, s->peer_port, a, len);
    return 0;
}

/* ---------------------------------------------------------------------------------------- options */

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    struct linger linger;
    struct socket *s;

    (void)len;
    if (sim_unix_is(fd))
        return sim_unix_set(fd, name, value);
    s = socket_of(fd);
    if (level == SOL_SOCKET && name == SO_LINGER) {
        memcpy(&linger, value, sizeof(linger));
        s->resets = linger.l_onoff && linger.l_linger == 0;
    } else if (level == SOL_SOCKET && name == SO_KEEPALIVE) {
        s->keepalive = true;
    } else if (level == SOL_SOCKET && name == SO_ZEROCOPY) {
        s->zerocopy = true;
    }
    return 0;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct socket *s;

    if (sim_unix_is(fd))
        return sim_unix_get(fd, name, value, len);
    s = socket_of(fd);
    if (level == SOL_SOCKET && name == SO_ERROR) {
        memcpy(value, &s->error, sizeof(int));
        s->error = 0;
        return 0;
    }
    if (level == IPPROTO_TCP && name == TCP_INFO) {
        memset(value, 0, *len);
        return 0;
    }
    return failed(ENOPROTOOPT);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    int *out;

    va_start(args, request);
    out = va_arg(args, int *);
    va_end(args);
    if (!sim_file_is_ours(fd))
        return ((int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl"))(fd, request, out);
    if (request == FIONREAD) {
        const struct socket *s = socket_of(fd);

        *out = (int)(s->in.arrived - s->in.read);
        return 0;
    }
    if (request != SIOCOUTQ)
        return failed(EINVAL);
    *out = (int)sim_socket_unacked(socket_of(fd));
    return 0;
}

/* ------------------------------------------------------------------------------------------ bytes */

static ssize_t send_all(int fd, const struct iovec *iov, size_t n, int flags)
{
    size_t sent = sim_socket_send(socket_of(fd), iov, n, flags & MSG_ZEROCOPY);

    return sent ? (ssize_t)sent : -1;
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    return send_all(fd, &(struct iovec){(void *)(uintptr_t)buf, n}, 1, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    if (sim_unix_is(fd))
        return sim_unix_send(fd, m);
    return send_all(fd, m->msg_iov, m->msg_iovlen, flags);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return sim_socket_receive(socket_of(fd), &(struct iovec){buf, n}, 1, flags & MSG_PEEK);
}

static ssize_t receive_notice(struct socket *s, struct msghdr *m)
{
    struct sock_extended_err e = {.ee_origin = SO_EE_ORIGIN_ZEROCOPY};
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    struct notice n;

    if (!sim_socket_notice(s, &n))
        return failed(EAGAIN);
    e.ee_info = n.first;
    e.ee_data = n.last;
    e.ee_code = n.copied ? SO_EE_CODE_ZEROCOPY_COPIED : 0;
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(e)), .cmsg_level = SOL_IP, .cmsg_type = IP_RECVERR};
    memcpy(CMSG_DATA(c), &e, sizeof(e));
    m->msg_controllen = CMSG_SPACE(sizeof(e));
    return 0;
}

ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);

ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
    (void)size;
    return recv(fd, buf, n, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    struct socket *s;

    if (sim_unix_is(fd))
        return sim_unix_receive(fd, m);
    s = socket_of(fd);
    return flags & MSG_ERRQUEUE ? receive_notice(s, m)
                                : sim_socket_receive(s, m->msg_iov, m->msg_iovlen, false);
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
    return sim_socket_receive(socket_of(fd), iov, (size_t)n, false);
}

ssize_t sim_socket_read(struct sim_file *f, void *buf, size_t n)
{
    return sim_socket_receive((struct socket *)f, &(struct iovec){buf, n}, 1, false);
}

int shutdown(int fd, int how)
{
    struct socket *s = socket_of(fd);

    return failed(how == SHUT_RD ? 0 : sim_socket_shutdown(s));
}

/* ------------------------------------------------------------------------------------- interfaces */

struct interface {
    struct ifaddrs base;
    struct sockaddr_in address, mask;
    struct sockaddr_in6 address6, mask6;
    char name[8];
};

int getifaddrs(struct ifaddrs **out)
{
    struct interface *i = sim_new(sizeof(*i));

    strcpy(i->name, "sim0");
    i->address.sin_family = i->mask.sin_family = AF_INET;
    i->address.sin_addr.s_addr = htonl(SIM_NET + (uint32_t)sim_host());
    i->mask.sin_addr.s_addr = htonl(0xffffff00u);
    i->address6.sin6_family = i->mask6.sin6_family = AF_INET6;
    i->address6.sin6_addr = six_of(SIM_NET + (uint32_t)sim_host());
    memset(&i->mask6.sin6_addr, 0xff, 8);
    i->base = (struct ifaddrs){
        .ifa_name = i->name,
        .ifa_flags = IFF_UP | IFF_RUNNING,
        .ifa_addr = (struct sockaddr *)(sim_is_v6 ? (void *)&i->address6 : (void *)&i->address),
        .ifa_netmask = (struct sockaddr *)(sim_is_v6 ? (void *)&i->mask6 : (void *)&i->mask)};
    *out = &i->base;
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    free(list);
}
