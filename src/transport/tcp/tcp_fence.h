/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_fence.h - WRITEs that wait for what earlier ones may still bring; peer's lock held. */
#ifndef TEI_TCP_FENCE_H
#define TEI_TCP_FENCE_H

#include "transport/tcp/tcp_peer.h"

/*
 * What is left of a lane's connection: the target is told that nothing more comes, and its end is
 * awaited, which says that it applies nothing of this connection any more. Both locks, see tcp.h.
 */
struct tcp_remnant {
    struct tei_link link; /* in bundle.remnants */
    struct tcp_bundle *bundle;
    struct tei_watch watch;
    struct tei_span span;
    uint64_t doubt; /* as of a frame */
    struct tei_list waiters;
    int64_t until_ns; /* for as long WRITEs wait for it */
    bool overdue;
};

static inline bool tei_tcp_is_holding(const struct tcp_peer *p)
{
    return tei_ledger_first(&p->held);
}

static inline size_t tei_tcp_unsettled(const struct tcp_peer *p)
{
    return atomic_load_explicit(&p->n_unsettled, memory_order_relaxed);
}
/* Relaxed: it changes under the lock, and whoever looks without it was told of a WRITE's end since. */
static inline void tei_tcp_unsettled_add(struct tcp_peer *p, int change)
{
    atomic_fetch_add_explicit(&p->n_unsettled, (size_t)change, memory_order_relaxed);
}
/* Takes works that have to wait, or cannot be sent, out of the list. */
void tei_tcp_fence_hold(struct tcp_peer *p, struct tei_list *works, int64_t now);
/*
 * Ends a work that moves nothing when what is unsettled of its range by now is settled; from any thread, without
 * the lock.
 */
void tei_tcp_fence_settle(struct tcp_peer *p, struct tcp_work *work);
/* Whether a WRITE of this range would be held; from any thread, without the lock. */
bool tei_tcp_fence_holds(struct tcp_peer *p, struct tei_span span);
/* Something was settled: of those that wait for it, what need not wait for anything else goes on. */
void tei_tcp_fence_release(struct tcp_peer *p, struct tei_list *waiters);
/* There are fewer remnants, or frames in p->unsettled. */
void tei_tcp_fence_thin_out(struct tcp_peer *p);
/* Fails those that wait for it. */
void tei_tcp_fence_fail(struct tcp_peer *p, struct tei_list *waiters, const struct tcp_fault *f);
/*
 * The lane gives up its connection with a part of a WRITE to that range on it, to a peer of version 1
 * or 2, for reason f; the socket is taken over by r if it still matters: true. Both locks.
 */
bool tei_tcp_fence_cut(struct tcp_lane *l, struct tei_span span, const struct tcp_fault *f,
                       struct tcp_remnant *r);
/* What the watchdog does; returns when next. Worker's lock held, the peer's not. */
int64_t tei_tcp_fence_tick(struct tcp_bundle *b, int64_t now);
/* Closes what is left of connections. Worker's lock held, the peer's not. */
void tei_tcp_fence_stop(struct tcp_bundle *b);

#endif
