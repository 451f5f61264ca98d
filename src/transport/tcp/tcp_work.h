/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_work.h - a work, and why what carries it ended. */
#ifndef TEI_TCP_WORK_H
#define TEI_TCP_WORK_H

#include "base/err.h"
#include "transport/ledger.h"
#include "transport/tcp/tcp.h"

#include <errno.h>

struct tcp_work {
    struct tei_entry
        entry; /* in peer.ledger or, while it waits for an earlier WRITE, in peer.held */
    struct tei_link behind; /* held: in the waiters of what it waits for; see tcp_fence.c */
    bool only_waits;        /* held: it sends nothing afterwards; see tei_tcp_fence_settle() */
    uint64_t doubts;        /* then it waits for the peer's up to this one: peer.n_doubts */
};

/* Why an exchange or a connection ended. */
struct tcp_fault {
    int error, sys_errno;
    const char *why;
};

/*
 * Whether a connection that broke with this errno value, 0: its end was read, was closed by the
 * peer. Else it is this host that has given it up, and the peer may know nothing of that.
 */
static inline bool tei_tcp_is_end(int sys_errno)
{
    return sys_errno == 0 || sys_errno == ECONNRESET || sys_errno == EPIPE;
}

static inline struct tcp_work *tei_tcp_work_of(struct tei_link *l)
{
    return tei_container_of(l, struct tcp_work, entry.base.link);
}

/*
 * Whether it has failed, and its pieces are to let go of it. A WRITE that was refused, or found its peer
 * gone, lets them end by themselves: see tcp_piece.c.
 */
static inline bool tei_tcp_is_given_up(const struct tcp_work *work)
{
    int error = work->entry.base.error;

    return error && !(tei_err_is_mild(error) && work->entry.base.opcode == TE_WRITE);
}

#endif
