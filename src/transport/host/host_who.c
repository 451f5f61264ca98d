/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_who.c - whether two processes are on one host and may reach each other's memory.
 *
 * The keys of a descriptor only rule out: they are somebody's word, and may be old. That the
 * process is the right one is proved by reading the nonce out of its memory, at the pid that the
 * kernel gives for the socket; that it is this host, by the socket being there. The pid matters to
 * process_vm alone. Where the kernel refuses that, so that nothing is done with the pid, the peer
 * is whoever of our user holds the socket of that name and takes the nonce for its own.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void tei_host_who(struct host_keys *k)
{
    tei_file_word("/proc/sys/kernel/random/boot_id", k->boot, sizeof(k->boot));
    tei_file_word("/etc/machine-id", k->machine, sizeof(k->machine));
    k->pid_ns = tei_file_inode("/proc/self/ns/pid");
    k->net_ns = tei_file_inode("/proc/self/ns/net");
    k->uid = geteuid();
    k->pid = (uint64_t)getpid();
}

/* Both are known and differ. */
static bool differ(uint64_t a, uint64_t b)
{
    return a && b && a != b;
}

bool tei_host_who_fits(const struct host_keys *own, const struct host_keys *peer, char *why,
                       size_t n)
{
    if (strcmp(own->boot, peer->boot) != 0)
        snprintf(why, n, "the peer is on another host (boot id %s here, %s there)", own->boot,
                 peer->boot);
    else if (own->machine[0] && peer->machine[0] && strcmp(own->machine, peer->machine) != 0)
        snprintf(why, n, "the peer is on another machine (machine id %s here, %s there)",
                 own->machine, peer->machine);
    else if (differ(own->net_ns, peer->net_ns))
        snprintf(why, n,
                 "the peer is in another network namespace (%llu here, %llu there), where its "
                 "socket cannot be reached",
                 (unsigned long long)own->net_ns, (unsigned long long)peer->net_ns);
    else if (differ(own->pid_ns, peer->pid_ns))
        snprintf(why, n,
                 "the peer is in another pid namespace (%llu here, %llu there), where its process "
                 "has no number here",
                 (unsigned long long)own->pid_ns, (unsigned long long)peer->pid_ns);
    else
        return true;
    return false;
}

bool tei_host_who_proves(const struct host_keys *own, const struct host_keys *peer, pid_t pid,
                         bool *denied, char *why, size_t n)
{
    unsigned char nonce[HOST_NONCE] = {0};
    struct iovec to = {nonce, sizeof(nonce)};
    struct iovec from = {(void *)(uintptr_t)peer->nonce_at, sizeof(nonce)};
    ssize_t got = process_vm_readv(pid, &to, 1, &from, 1, 0);

    *denied = got < 0 && (errno == EPERM || errno == ENOSYS);
    if (got != (ssize_t)sizeof(nonce))
        snprintf(why, n,
                 "memory of process %d cannot be read: %s (uid %llu here, %llu there); it needs "
                 "the same user, or CAP_SYS_PTRACE",
                 (int)pid, tei_errno_text(errno), (unsigned long long)own->uid,
                 (unsigned long long)peer->uid);
    else if (memcmp(nonce, peer->nonce, sizeof(nonce)) != 0)
        snprintf(why, n, "process %d is not the one that published the descriptor (process %llu)",
                 (int)pid, (unsigned long long)peer->pid);
    else
        return true;
    return false;
}

/* -------------------------------------------------------------------------------- whom to let in */

static bool is_overflow(uid_t uid)
{
    char text[16];

    tei_file_word("/proc/sys/kernel/overflowuid", text, sizeof(text));
    return uid == (text[0] ? strtoul(text, NULL, 10) : 65534);
}

/* Whether every user of the host has a number in our user namespace. */
static bool knows_all_users(void)
{
    FILE *f = fopen("/proc/self/uid_map", "re");
    unsigned long here, there, n = 0;
    bool all = f && fscanf(f, "%lu %lu %lu", &here, &there, &n) == 3 && n == UINT32_MAX;

    if (f)
        fclose(f);
    return all;
}

bool tei_host_who_admits(uid_t uid)
{
    if (uid == 0)
        return true;
    /* Users that our user namespace does not know all show as one, which may be ours. */
    return uid == geteuid() && (!is_overflow(uid) || knows_all_users());
}
