/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sock.h - addresses and sockets.
 *
 * Hosts are told as text everywhere; an IPv6 address stands in brackets only where a port follows.
 * All sockets are close-on-exec. Functions that may block take a deadline (tei_now_ns clock).
 */
#ifndef TEI_SOCK_H
#define TEI_SOCK_H

#include "base/base.h"

#include <netdb.h>
#include <sys/socket.h>

#define TEI_HOST_MAX     256
#define TEI_HOSTPORT_MAX (TEI_HOST_MAX + 8)

struct tei_hostport {
    char host[TEI_HOST_MAX]; /* name or address, no brackets; "" for any */
    uint16_t port;
    const char
        *expected; /* whom a certificate shown there is to be of (TE_AUTH=mtls); NULL: of `host` */
};

/*
 * Parses "host", "host:port", "[v6]", "[v6]:port", a bare "v6" (two or more colons), "v6%scope",
 * ":port". Without a port `default_port` is used. TE_ERR_INVALID for anything else: bad port, empty
 * or over-long host, junk after ']', spaces, control bytes, '/'.
 */
int tei_hostport_parse(const char *text, uint16_t default_port, struct tei_hostport *out);
/* The same for a text that may well be something else: NULL, or what keeps it from being one. */
const char *tei_hostport_read(const char *text, uint16_t default_port, struct tei_hostport *out);

/* True if a port was written in the text; it must be one that tei_hostport_parse() accepts. */
bool tei_hostport_has_port(const char *text);

/* "host:port", with brackets for IPv6. Returns buf. */
char *tei_hostport_format(const char *host, uint16_t port, char *buf, size_t n);

/* One address. */
struct tei_addr {
    struct sockaddr_storage ss;
    socklen_t len;
};

/*
 * Resolves to at most `max` stream addresses, in getaddrinfo's order; returns the number or
 * TE_ERR_DNS. Numeric hosts are not looked up. May block on DNS: only from caller threads and
 * te/aux.
 */
int tei_resolve(const char *host, uint16_t port, struct tei_addr *out, int max);

/* Whether such a host can be resolved now. Logs nothing. May block on DNS, too. */
bool tei_is_resolved(const char *host);

/* As tei_resolve() for an address as text alone: asks nobody and logs nothing; false if it is none. */
bool tei_resolve_numeric(const char *host, uint16_t port, struct tei_addr *out);

/* The address of IPv4 that one of IPv6 stands for (::ffff:10.0.0.1), as a socket for both tells it; others stay. */
void tei_addr_unmap(struct tei_addr *a);

/* Numeric text, "10.0.0.1:80", "[::1]:80"; of what the above makes of it. Returns buf. */
char *tei_addr_format(const struct tei_addr *a, char *buf, size_t n);

/*
 * A listening stream socket on all addresses: IPv6 dual stack, or IPv4 where IPv6 is absent; or on
 * `host` alone when it is not NULL or "". Port 0: the kernel's choice. A port that another socket
 * listens on is an error (TE_ERR_BUSY); one whose old connections are timing out is not.
 * Non-blocking. Returns the fd, the port in *port; or a negative te_err (errno kept).
 */
int tei_listen(const char *host, uint16_t *port, int backlog);

/*
 * tei_listen on a port of [min, max], beginning at a random one, each tried once. TE_ERR_BUSY if
 * all are taken, TE_ERR_INVALID for an empty range or one that begins at 0.
 */
int tei_listen_range(const char *host, uint16_t min, uint16_t max, int backlog, uint16_t *port);

/*
 * Starts a non-blocking connect with TCP_NODELAY. Returns the fd, connected or in progress, or -1
 * with errno; not logged: there may be other addresses to try.
 */
int tei_connect_start(const struct tei_addr *a);

/*
 * How that connect ended, asked once the fd is writable: 0 or an errno value. A socket that met
 * itself (Linux lets a port of the ephemeral range connect to itself when nobody listens there)
 * counts as ECONNREFUSED.
 */
int tei_connect_result(int fd);

/* What the text of a failed connection ends in. */
struct tei_remedies {
    const char *refused; /* the host answers, and nobody listens there */
    const char *silent;  /* there was no answer, or no way there */
};

/*
 * Connects to the first address that answers, each given its share of the time. `remedies` may be
 * NULL. Returns a non-blocking fd, TE_ERR_DNS, TE_ERR_PEER or TE_ERR_TIMEOUT.
 */
int tei_connect(const char *host, uint16_t port, const struct tei_remedies *remedies,
                int64_t deadline_ns);

/*
 * Reads or writes exactly n bytes on a non-blocking socket. TE_ERR_TIMEOUT, TE_ERR_LINK (peer
 * closed: errno 0), not logged: the caller knows who the peer is. Never raises SIGPIPE.
 */
int tei_read_full(int fd, void *buf, size_t n, int64_t deadline_ns);
int tei_write_full(int fd, const void *buf, size_t n, int64_t deadline_ns);

/*
 * accept4 with CLOEXEC and NONBLOCK; -1 with errno when none is there. *from, unless NULL, is the other
 * end. The socket has the options of the one that listens, TCP_NODELAY among them: accepting must be
 * cheap, as nobody has a share in the queue of those that wait for it.
 */
int tei_accept(int listen_fd, struct tei_addr *from);

/*
 * The local address the kernel would use to reach `host`; no packet is sent. TE_ERR_DNS or
 * TE_ERR_SOCKET.
 */
int tei_route_source(const char *host, char *out, size_t n);

/*
 * What `where` means to a listener: itself, if it is an address in numbers, or the first address of the
 * network interface of that name, an IPv6 one if that is preferred and there is one. TE_ERR_INVALID if it
 * is neither.
 */
int tei_bind_address(const char *where, bool ipv6, char *out, size_t n);

/* Whether an address in numbers stands for all. */
bool tei_is_wildcard(const char *host);

/*
 * The address that the default route leaves by; without one the first address of an interface that
 * is up and not loopback; loopback if there is none. No packet is sent.
 */
void tei_default_address(bool ipv6, char *out, size_t n);

#endif
