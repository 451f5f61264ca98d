/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_who.c - whether two processes are on one host and may reach each other's memory.
 *
 * The keys of a descriptor only rule out: they are somebody's word, and may be old. That it is this
 * host is proved by the socket being there. Who is at its other end is what the kernel says: user,
 * process, namespaces; nothing that a process says of itself counts. A number of a process is its only
 * as long as its pidfd has not ended, so what is read of /proc under the number counts only if the
 * pidfd, which was there before, has not ended after it.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

bool tei_host_who_fits(const struct tei_conf *conf, const struct host_keys *peer, char *why,
                       size_t n)
{
    struct tei_here own;
    const char *other;

    tei_here(peer->nonce, &own);
    if (conf->host_any_namespace)
        memcpy(own.pid_ns, peer->here.pid_ns, sizeof(own.pid_ns));
    other = tei_here_differs(&own, &peer->here);
    if (!other)
        return true;
    snprintf(why, n, "the peer is %s%s", other,
             strstr(other, "network") ? ", where its socket cannot be reached"
             : strstr(other, "pid")   ? ", where its process has no number here"
                                      : "");
    return false;
}

/* ---------------------------------------------------------------------------------- a process */

int tei_host_who_pidfd(int socket, pid_t pid, bool *by_number)
{
    int fd = -1;
    socklen_t n = sizeof(fd);

    *by_number = false;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &n) == 0)
        return tei_fd_own(fd);
    if (errno == EINVAL || errno == ENODATA) /* what kernels say of one that has ended */
        errno = ESRCH;
    if (errno == ENOPROTOOPT && pid > 0) { /* an older kernel */
        *by_number = true;
        fd = (int)syscall(SYS_pidfd_open, pid, 0);
    }
    return tei_fd_own(fd);
}

bool tei_host_who_has_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

bool tei_host_who_is_ours(pid_t pid)
{
    unsigned long own = geteuid(), real = own + 1, effective = real, saved = real;
    char path[40], line[256];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Uid: %lu %lu %lu", &real, &effective, &saved) == 3)
            break;
    if (f)
        fclose(f);
    return real == own && effective == own && saved == own;
}

bool tei_host_who_is_among_us(pid_t pid, char *why, size_t n)
{
    static const char *const names[] = {"user", "pid", "mnt"};
    char path[48];

    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++) {
        uint64_t own, peer;

        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        own = tei_file_inode(path);
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
        peer = pid > 0 ? tei_file_inode(path) : 0;
        if (own && own == peer)
            continue;
        snprintf(why, n, "process %d is in %s %s namespace%s (TE_HOST_ANY_NAMESPACE allows it)",
                 (int)pid, own && peer ? "another" : "an unknown", names[i],
                 own && peer ? ""
                             : ": it is another user's, not dumpable, or may do what we may not");
        return false;
    }
    return true;
}
