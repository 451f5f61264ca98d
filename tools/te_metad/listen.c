/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool parse_port(const char *text, char out[8])
{
    size_t len = strlen(text);
    if (len == 0 || len > 5 || strspn(text, "0123456789") != len || atoi(text) > 65535)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

/* A name, an IPv4 address, or, where brackets stood around it, an IPv6 address. */
static bool parse_host(const char *text, size_t len, char out[LISTEN_HOST_MAX])
{
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (bracketed) {
        text++;
        len -= 2;
    }
    if (len >= LISTEN_HOST_MAX || (bracketed && len == 0))
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    if (bracketed)
        return strspn(out, "0123456789abcdefABCDEF:.") == strcspn(out, "%");
    return strcspn(out, ":/[]@ \t\r\n") == len;
}

bool listen_parse(const char *text, struct listen_addr *out)
{
    struct listen_addr a;
    const char *colon = strrchr(text, ':');
    if (!colon || !parse_port(colon + 1, a.port) ||
        !parse_host(text, (size_t)(colon - text), a.host))
        return false;
    *out = a;
    return true;
}

/* The socket of one address; -1 with errno. */
static int open_one(const struct addrinfo *ai)
{
    const int on = 1, off = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* A restart must not wait for connections of the last run; a live listener still counts. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Tries the addresses of one family; -1 with errno, which stays when there is none. */
static int open_family(const struct addrinfo *list, int family)
{
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        if (ai->ai_family != family)
            continue;
        int fd = open_one(ai);
        if (fd >= 0 || errno == EADDRINUSE)
            return fd;
    }
    return -1;
}

/*
 * All interfaces are reached through IPv6 where the host has it. Of a name with several addresses
 * the IPv4 ones come first: that is what most clients mean by "localhost".
 */
static int open_any(const struct addrinfo *list, bool all_interfaces)
{
    int first = all_interfaces ? AF_INET6 : AF_INET;
    int second = all_interfaces ? AF_INET : AF_INET6;
    errno = EADDRNOTAVAIL;
    int fd = open_family(list, first);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
        fd = open_family(list, second);
    return fd;
}

static void tell_name(int fd, char name[LISTEN_NAME_MAX])
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    char host[LISTEN_NAME_MAX - 10] = "?", port[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
        getnameinfo((struct sockaddr *)&ss, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(name, LISTEN_NAME_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static const char *remedy(int error)
{
    switch (error) {
    case EADDRINUSE:
        return "; another program listens there: stop it, or choose another port with --addr";
    case EACCES:
        return "; ports below 1024 need privileges: choose another one with --addr";
    case EADDRNOTAVAIL:
        return "; --addr must name an address of this host, or none, as in \":8080\"";
    default:
        return "";
    }
}

int listen_open(const struct listen_addr *a, char name[LISTEN_NAME_MAX], char why[LISTEN_WHY_MAX])
{
    const struct addrinfo hints = {
        .ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int rc = getaddrinfo(a->host[0] ? a->host : NULL, a->port, &hints, &list);
    if (rc) {
        snprintf(why, LISTEN_WHY_MAX, "cannot resolve the host '%s' of --addr: %s", a->host,
                 gai_strerror(rc));
        return -1;
    }
    int fd = open_any(list, a->host[0] == '\0');
    if (fd >= 0)
        tell_name(fd, name);
    else
        snprintf(why, LISTEN_WHY_MAX,
                 strchr(a->host, ':') ? "cannot listen on [%s]:%s: %s%s"
                                      : "cannot listen on %s:%s: %s%s",
                 a->host, a->port, strerror(errno), remedy(errno));
    freeaddrinfo(list);
    return fd;
}
