/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sock.h"

#include "base/err.h"
#include "base/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ADDRS_MAX 16

/* -------------------------------------------------------------------------- host and port as text */

static bool byte_ok(unsigned char c)
{
    return c > ' ' && c != 0x7f && c != '[' && c != ']' && c != '/';
}

static bool all_bytes_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!byte_ok((unsigned char)s[i]))
            return false;
    return true;
}

/* An IPv6 address, with or without %scope. */
static bool is_v6(const char *host)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr bin;
    size_t n = strcspn(host, "%");

    if (n >= sizeof address || (host[n] == '%' && host[n + 1] == '\0'))
        return false;
    memcpy(address, host, n);
    address[n] = '\0';
    return inet_pton(AF_INET6, address, &bin) == 1;
}

/* strtol would take signs, spaces and digits beyond number. */
static bool parse_port(const char *s, uint16_t *out)
{
    size_t n = strlen(s);
    uint32_t port = 0;

    if (n == 0 || n > 5)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return false;
        port = port * 10 + (uint32_t)(*s - '0');
    }
    if (port > UINT16_MAX)
        return false;
    *out = (uint16_t)port;
    return true;
}

/*
 * Splits without judging: where the host is, how long it is, and the text behind the port's colon
 * (NULL without one). False if the brackets are not in order.
 */
static bool split(const char *text, const char **host, size_t *n, const char **port)
{
    const char *colon = strchr(text, ':'), *close;

    *port = NULL;
    *host = text;
    *n = strlen(text);
    if (*text == '[') {
        close = strchr(text, ']');
        if (!close || (close[1] != '\0' && close[1] != ':'))
            return false;
        *host = text + 1;
        *n = (size_t)(close - text - 1);
        if (close[1] == ':')
            *port = close + 2;
    } else if (colon && !strchr(colon + 1, ':')) {
        *n = (size_t)(colon - text);
        *port = colon + 1;
    }
    return true;
}

const char *tei_hostport_read(const char *text, uint16_t default_port, struct tei_hostport *out)
{
    struct tei_hostport hp = {.port = default_port};
    const char *host, *port;
    size_t n;

    if (!split(text, &host, &n, &port))
        return "brackets do not match";
    if (n >= sizeof hp.host)
        return "host is too long";
    if (n == 0 && (!port || *text == '['))
        return "host is empty";
    memcpy(hp.host, host, n);
    if (!all_bytes_ok(host, n))
        return "a space, control byte, bracket or '/'";
    if ((*text == '[' || memchr(host, ':', n)) && !is_v6(hp.host))
        return "host is no IPv6 address";
    if (port && !parse_port(port, &hp.port))
        return "port is no number of 0..65535";
    *out = hp;
    return NULL;
}

int tei_hostport_parse(const char *text, uint16_t default_port, struct tei_hostport *out)
{
    const char *why = tei_hostport_read(text, default_port, out);

    return why ? TEI_FAIL(TE_ERR_INVALID, "'%.300s' is no host:port: %s", text, why) : 0;
}

bool tei_hostport_has_port(const char *text)
{
    const char *host, *port;
    size_t n;

    return split(text, &host, &n, &port) && port;
}

char *tei_hostport_format(const char *host, uint16_t port, char *buf, size_t n)
{
    snprintf(buf, n, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    return buf;
}

/* -------------------------------------------------------------------------------------- addresses */

static void set_port(struct sockaddr_storage *ss, uint16_t port)
{
    if (ss->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)ss)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)ss)->sin_port = htons(port);
}

static int copy_addresses(const struct addrinfo *list, uint16_t port, struct tei_addr *out, int max)
{
    int n = 0;

    for (const struct addrinfo *ai = list; ai && n < max; ai = ai->ai_next) {
        if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
            continue;
        memset(&out[n], 0, sizeof out[n]);
        memcpy(&out[n].ss, ai->ai_addr, ai->ai_addrlen);
        out[n].len = ai->ai_addrlen;
        set_port(&out[n].ss, port);
        n++;
    }
    return n;
}

bool tei_resolve_numeric(const char *host, uint16_t port, struct tei_addr *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list = NULL;
    int n;

    if (!*host || getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    n = copy_addresses(list, port, out, 1);
    freeaddrinfo(list);
    return n == 1;
}

/* As getaddrinfo(), but it asks nobody for a numeric host. */
static int look_up(const char *host, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    int err = EAI_NONAME;

    if (*host)
        err = getaddrinfo(host, NULL, &hints, list);
    if (err == EAI_NONAME && *host) {
        hints.ai_flags = AI_ADDRCONFIG;
        err = getaddrinfo(host, NULL, &hints, list);
    }
    return err;
}

bool tei_is_resolved(const char *host)
{
    struct addrinfo *list = NULL;

    if (look_up(host, &list))
        return false;
    freeaddrinfo(list);
    return true;
}

int tei_resolve(const char *host, uint16_t port, struct tei_addr *out, int max)
{
    struct addrinfo *list = NULL;
    int err = look_up(host, &list), n;

    if (err == EAI_MEMORY || (err == EAI_SYSTEM && errno == ENOMEM))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to resolve host '%s'", host);
    if (err)
        return TEI_FAIL(TE_ERR_DNS, "host '%s' cannot be resolved: %s", host,
                        err == EAI_SYSTEM ? tei_errno_text(errno) : gai_strerror(err));
    n = copy_addresses(list, port, out, max);
    freeaddrinfo(list);
    if (n == 0)
        return TEI_FAIL(TE_ERR_DNS, "host '%s' has no IPv4 or IPv6 address", host);
    return n;
}

void tei_addr_unmap(struct tei_addr *a)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six;

    if (a->ss.ss_family != AF_INET6 || a->len < sizeof six)
        return;
    memcpy(&six, &a->ss, sizeof six);
    if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return;
    four.sin_port = six.sin6_port;
    memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof four.sin_addr);
    memset(&a->ss, 0, sizeof a->ss);
    memcpy(&a->ss, &four, sizeof four);
    a->len = sizeof four;
}

char *tei_addr_format(const struct tei_addr *a, char *buf, size_t n)
{
    char host[TEI_HOST_MAX], port[8];
    struct tei_addr plain = *a;
    int saved = errno;

    tei_addr_unmap(&plain);
    if (getnameinfo((const struct sockaddr *)&plain.ss, plain.len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(buf, n, "(unknown address)");
    else
        snprintf(buf, n, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    errno = saved; /* it serves in messages that are about errno */
    return buf;
}

/* -------------------------------------------------------------------------------------- listening */

/* Closes and returns -1, errno kept. */
static int close_failed(int fd)
{
    int saved = errno;

    tei_fd_close(fd);
    errno = saved;
    return -1;
}

static void set_nodelay(int fd)
{
    const int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* A listening socket on one address, or -1 with errno. */
static int listen_on(const struct tei_addr *a, int backlog)
{
    const int off = 0, on = 1;
    int fd = tei_fd_own(socket(a->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd < 0)
        return -1;
    /*
     * So that a process started again gets the port on which old connections are still timing out.
     */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ss.ss_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0)
        return close_failed(fd);
    /*
     * listen too says EADDRINUSE, when two sockets were bound to the port before either listened: a
     * port that somebody listens on is never shared.
     */
    if (bind(fd, (const struct sockaddr *)&a->ss, a->len) < 0 || listen(fd, backlog) < 0)
        return close_failed(fd);
    set_nodelay(fd);
    return fd;
}

/*
 * Where to listen for `host`, in order of preference: for none, the IPv6 wildcard, then the IPv4
 * one.
 */
static int listen_addresses(const char *host, struct tei_addr *out)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};

    if (host && *host)
        return tei_resolve(host, 0, out, ADDRS_MAX);
    memset(out, 0, 2 * sizeof *out);
    memcpy(&out[0].ss, &any6, sizeof any6);
    out[0].len = sizeof any6;
    memcpy(&out[1].ss, &any4, sizeof any4);
    out[1].len = sizeof any4;
    return 2;
}

/*
 * Listens on the first address that this host has. A port in use ends the search: the next address
 * may have it free, but peers who try the first one would meet somebody else.
 */
static int listen_first(struct tei_addr *addrs, int n, uint16_t port, int backlog)
{
    int fd = -1;

    for (int i = 0; i < n; i++) {
        set_port(&addrs[i].ss, port);
        fd = listen_on(&addrs[i], backlog);
        if (fd >= 0 || errno == EADDRINUSE)
            break;
    }
    return fd;
}

static uint16_t local_port(int fd)
{
    struct tei_addr a = {.len = sizeof a.ss};

    getsockname(fd, (struct sockaddr *)&a.ss, &a.len);
    return ntohs(a.ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a.ss)->sin6_port
                                            : ((struct sockaddr_in *)(void *)&a.ss)->sin_port);
}

static const char *host_text(const char *host)
{
    return host && *host ? host : "any address";
}

/* The host listened on is what TE_BIND says, whichever port it is. */
static int cannot_listen(const char *host, uint16_t port)
{
    if (errno == EADDRNOTAVAIL)
        return TEI_FAIL(TE_ERR_SOCKET,
                        "cannot listen on %s: it is no address of this host; set TE_BIND to an "
                        "address or an interface of it, or to nothing",
                        host_text(host));
    return TEI_FAIL(errno == EADDRINUSE ? TE_ERR_BUSY : TE_ERR_SOCKET,
                    "cannot listen on port %u of %s: %s", (unsigned)port, host_text(host),
                    tei_errno_text(errno));
}

int tei_listen(const char *host, uint16_t *port, int backlog)
{
    struct tei_addr addrs[ADDRS_MAX];
    int n = listen_addresses(host, addrs), fd;

    if (n < 0)
        return n;
    fd = listen_first(addrs, n, *port, backlog);
    if (fd < 0)
        return cannot_listen(host, *port);
    *port = local_port(fd);
    return fd;
}

int tei_listen_range(const char *host, uint16_t min, uint16_t max, int backlog, uint16_t *port)
{
    uint32_t span = (uint32_t)max - min + 1, start;
    struct tei_addr addrs[ADDRS_MAX];
    int n, fd;

    if (min == 0 || min > max)
        return TEI_FAIL(TE_ERR_INVALID, "%u..%u is no range of ports", (unsigned)min,
                        (unsigned)max);
    n = listen_addresses(host, addrs);
    if (n < 0)
        return n;
    start = (uint32_t)(tei_random_u64() % span);
    for (uint32_t i = 0; i < span; i++) {
        uint16_t p = (uint16_t)(min + (start + i) % span);

        fd = listen_first(addrs, n, p, backlog);
        if (fd >= 0) {
            *port = p;
            return fd;
        }
        if (errno != EADDRINUSE)
            return cannot_listen(host, p);
    }
    return TEI_FAIL(
        TE_ERR_BUSY,
        "ports %u..%u of %s are all in use; widen the range (an engine needs two ports)",
        (unsigned)min, (unsigned)max, host_text(host));
}

/* ------------------------------------------------------------------------------------- connecting */

int tei_connect_start(const struct tei_addr *a)
{
    int fd = tei_fd_own(socket(a->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd < 0)
        return -1;
    set_nodelay(fd);
    if (connect(fd, (const struct sockaddr *)&a->ss, a->len) < 0 && errno != EINPROGRESS &&
        errno != EINTR)
        return close_failed(fd);
    return fd;
}

int tei_connect_result(int fd)
{
    struct tei_addr here = {.len = sizeof here.ss}, there = {.len = sizeof there.ss};
    socklen_t len = sizeof(int);
    int err = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        return errno;
    if (err)
        return err;
    if (getsockname(fd, (struct sockaddr *)&here.ss, &here.len) < 0 ||
        getpeername(fd, (struct sockaddr *)&there.ss, &there.len) < 0)
        return errno;
    if (here.len == there.len && memcmp(&here.ss, &there.ss, here.len) == 0)
        return ECONNREFUSED;
    return 0;
}

/* Waits for poll `events`; false once the deadline has passed. */
static bool wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;

    do {
        n = poll(&p, 1, tei_left_ms(deadline_ns));
    } while ((n < 0 && errno == EINTR) || (n == 0 && tei_left_ms(deadline_ns) != 0));
    return n != 0;
}

/* A connected socket, or -1 with errno. */
static int connect_one(const struct tei_addr *a, int64_t deadline_ns)
{
    int fd = tei_connect_start(a);

    if (fd < 0)
        return -1;
    errno = wait_for(fd, POLLOUT, deadline_ns) ? tei_connect_result(fd) : ETIMEDOUT;
    return errno ? close_failed(fd) : fd;
}

/*
 * An equal share of what is left for each address still to try, so that one that is silent leaves
 * time for the others.
 */
static int64_t share_of(int64_t deadline_ns, int addresses_left)
{
    int64_t now;

    if (deadline_ns == TEI_NEVER)
        return TEI_NEVER;
    now = tei_now_ns();
    return deadline_ns <= now ? deadline_ns : now + (deadline_ns - now) / addresses_left;
}

/* What has nothing to do with the peer, such as too many open files, tells enough by itself. */
static const char *remedy_of(const struct tei_remedies *remedies, int error)
{
    if (remedies && error == ECONNREFUSED)
        return remedies->refused;
    if (remedies && (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH))
        return remedies->silent;
    return "";
}

static int fail_connect(const char *host, uint16_t port, const struct tei_remedies *remedies,
                        bool late)
{
    const char *remedy = remedy_of(remedies, errno);
    char text[TEI_HOSTPORT_MAX];

    tei_hostport_format(host, port, text, sizeof text);
    if (late)
        return TEI_FAIL(TE_ERR_TIMEOUT, "no connection to %s in time%s", text, remedy);
    return TEI_FAIL(TE_ERR_PEER, "cannot connect to %s: %s%s", text, tei_errno_text(errno), remedy);
}

int tei_connect(const char *host, uint16_t port, const struct tei_remedies *remedies,
                int64_t deadline_ns)
{
    struct tei_addr addrs[ADDRS_MAX];
    int n = tei_resolve(host, port, addrs, ADDRS_MAX), fd;

    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        fd = connect_one(&addrs[i], share_of(deadline_ns, n - i));
        if (fd >= 0)
            return fd;
    }
    return fail_connect(host, port, remedies, errno == ETIMEDOUT && tei_left_ms(deadline_ns) == 0);
}

/* ---------------------------------------------------------------------------- reading and writing */

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

int tei_read_full(int fd, void *buf, size_t n, int64_t deadline_ns)
{
    char *p = buf;
    size_t left = n;

    while (left > 0) {
        ssize_t got = recv(fd, p, left, 0);

        if (got > 0) {
            p += got;
            left -= (size_t)got;
        } else if (got == 0) {
            errno = 0;
            return TE_ERR_LINK;
        } else if (would_block(got)) {
            if (!wait_for(fd, POLLIN, deadline_ns))
                return TE_ERR_TIMEOUT;
        } else if (errno != EINTR) {
            return TE_ERR_LINK;
        }
    }
    return 0;
}

int tei_write_full(int fd, const void *buf, size_t n, int64_t deadline_ns)
{
    const char *p = buf;
    size_t left = n;

    while (left > 0) {
        ssize_t put = send(fd, p, left, MSG_NOSIGNAL);

        if (put >= 0) {
            p += put;
            left -= (size_t)put;
        } else if (would_block(put)) {
            if (!wait_for(fd, POLLOUT, deadline_ns))
                return TE_ERR_TIMEOUT;
        } else if (errno != EINTR) {
            return TE_ERR_LINK;
        }
    }
    return 0;
}

int tei_accept(int listen_fd, struct tei_addr *from)
{
    struct sockaddr *ss = from ? (struct sockaddr *)&from->ss : NULL;
    int fd;

    /* A client that left while it waited is no reason to stop asking for the next one. */
    do {
        if (from)
            from->len = sizeof from->ss;
        fd = tei_fd_own(
            accept4(listen_fd, ss, from ? &from->len : NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd;
}

/* ---------------------------------------------------------------------------------- own addresses */

/* Connecting a datagram socket only looks up the route. False with errno. */
static bool source_for(const struct tei_addr *to, struct tei_addr *from)
{
    int fd = tei_fd_own(socket(to->ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    bool ok;

    if (fd < 0)
        return false;
    from->len = sizeof from->ss;
    ok = connect(fd, (const struct sockaddr *)&to->ss, to->len) == 0 &&
         getsockname(fd, (struct sockaddr *)&from->ss, &from->len) == 0;
    close_failed(fd);
    return ok;
}

static bool host_of(const struct sockaddr *sa, socklen_t len, char *out, size_t n)
{
    return getnameinfo(sa, len, out, (socklen_t)n, NULL, 0, NI_NUMERICHOST) == 0;
}

int tei_route_source(const char *host, char *out, size_t n)
{
    struct tei_addr to[ADDRS_MAX], from;
    int count = tei_resolve(host, 9, to, ADDRS_MAX);

    if (count < 0)
        return count;
    for (int i = 0; i < count; i++)
        if (source_for(&to[i], &from) &&
            host_of((const struct sockaddr *)&from.ss, from.len, out, n))
            return 0;
    return TEI_FAIL(TE_ERR_SOCKET, "no route to %s: %s", host, tei_errno_text(errno));
}

/* Link-local IPv6 addresses mean something else on each link, so no peer could be told one. */
static bool is_of(const struct ifaddrs *ifa, int family)
{
    if (!ifa->ifa_addr || ifa->ifa_addr->sa_family != family)
        return false;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)ifa->ifa_addr)->sin6_addr);
}

static bool is_good_own(const struct ifaddrs *ifa, int family)
{
    return is_of(ifa, family) && !(ifa->ifa_flags & IFF_LOOPBACK) && (ifa->ifa_flags & IFF_UP) &&
           (ifa->ifa_flags & IFF_RUNNING);
}

/*
 * Addresses that documentation is written with: nobody has them, so only a default route leads to
 * them.
 */
#define NOWHERE_V4 "192.0.2.1"
#define NOWHERE_V6 "2001:db8::1"

static bool default_route_source(bool ipv6, char *out, size_t n)
{
    struct tei_addr to, from;

    return tei_resolve_numeric(ipv6 ? NOWHERE_V6 : NOWHERE_V4, 9, &to) && source_for(&to, &from) &&
           host_of((const struct sockaddr *)&from.ss, from.len, out, n);
}

static bool first_interface(bool ipv6, char *out, size_t n)
{
    socklen_t len = ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int family = ipv6 ? AF_INET6 : AF_INET;
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) < 0)
        return false;
    for (const struct ifaddrs *ifa = list; ifa && !found; ifa = ifa->ifa_next)
        found = is_good_own(ifa, family) && host_of(ifa->ifa_addr, len, out, n);
    freeifaddrs(list);
    return found;
}

void tei_default_address(bool ipv6, char *out, size_t n)
{
    if (!default_route_source(ipv6, out, n) && !first_interface(ipv6, out, n))
        snprintf(out, n, "%s", ipv6 ? "::1" : "127.0.0.1");
}

bool tei_is_wildcard(const char *host)
{
    struct tei_addr a;

    if (!tei_resolve_numeric(host, 0, &a))
        return false;
    return a.ss.ss_family == AF_INET6
               ? IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)(void *)&a.ss)->sin6_addr)
               : ((struct sockaddr_in *)(void *)&a.ss)->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* The first address of the interface in that family; false if it has none. */
static bool address_of(const struct ifaddrs *list, const char *interface, int family, char *out,
                       size_t n)
{
    socklen_t len = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (strcmp(i->ifa_name, interface) == 0 && is_of(i, family) &&
            host_of(i->ifa_addr, len, out, n))
            return true;
    return false;
}

int tei_bind_address(const char *where, bool ipv6, char *out, size_t n)
{
    struct ifaddrs *list = NULL;
    struct tei_addr unused;
    bool found;

    if (tei_resolve_numeric(where, 0, &unused)) {
        snprintf(out, n, "%s", where);
        return 0;
    }
    if (getifaddrs(&list) < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "the network interfaces cannot be listed: %s",
                        tei_errno_text(errno));
    found = address_of(list, where, ipv6 ? AF_INET6 : AF_INET, out, n) ||
            address_of(list, where, ipv6 ? AF_INET : AF_INET6, out, n);
    freeifaddrs(list);
    if (found)
        return 0;
    return TEI_FAIL(TE_ERR_INVALID,
                    "TE_BIND: '%.64s' is neither an address in numbers, such as 10.0.0.1, nor a "
                    "network interface that has one",
                    where);
}
