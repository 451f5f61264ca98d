/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_piece.h - work and its pieces; peer's lock held, and that of the worker unless it is NULL. */
#ifndef TEI_TCP_PIECE_H
#define TEI_TCP_PIECE_H

#include "transport/tcp/tcp_peer.h"

/* The work of which the next piece is to be taken; NULL if there is none. */
struct tcp_work *tei_tcp_queue_first(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Takes its next `len` bytes. */
static inline void tei_tcp_queue_take(struct tcp_peer *p, uint64_t len, int64_t now,
                                      struct tei_part *part)
{
    tei_ledger_take(&p->ledger, len, now, part);
    part->entry->base.why = "waiting for the peer";
    tei_part_waits(part);
}
void tei_tcp_part_fail(struct tcp_peer *p, struct tcp_work *work, const struct tcp_fault *f);
/* When a byte last moved on any lane. */
static inline int64_t tei_tcp_progress(const struct tcp_peer *p)
{
    return atomic_load_explicit(&p->progress_ns, memory_order_relaxed);
}
/* A piece of `len` bytes has ended: well if f is NULL. tei_tcp_reap() follows. */
static inline void tei_tcp_part_end(struct tcp_peer *p, struct tcp_work *work, uint64_t len,
                                    const struct tcp_fault *f)
{
    if (f)
        tei_tcp_part_fail(p, work, f);
    else
        tei_ledger_moved(&p->ledger, &work->entry, len, true, tei_tcp_progress(p));
}
/* Ends what is queued or held, and what waits to be sent once more: no lane gets through. */
void tei_tcp_queue_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *f);
/* Whether there is something for a lane to take. */
bool tei_tcp_is_waiting(const struct tcp_peer *p);
/* Ends work that is late; returns when the next one will be. */
int64_t tei_tcp_queue_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Has the watchdog look in time at what is queued or held. */
void tei_tcp_watch_queue(struct tcp_peer *p);
/* Why no connection came up. Who asks about a work that failed so is told the data port's address. */
extern const char tei_tcp_connecting[];
/* What queued work waits for. */
extern const char tei_tcp_queued[];
/* Cancels the works of an owner, NULL: all. */
void tei_tcp_owner_fail(struct tcp_peer *p, const void *owner);
/* Fails a work of that ledger; tei_tcp_reap() follows. */
void tei_tcp_work_fail(struct tcp_peer *p, struct tei_ledger *l, struct tcp_work *work,
                       const struct tcp_fault *f);
/* What is over goes to the worker, NULL: is left to that of the first bundle. */
void tei_tcp_reap(struct tcp_peer *p, struct tcp_worker *w);
/* Puts the bundle's call in its loop unless it is there already. The peer's lock is enough. */
void tei_tcp_bundle_call(struct tcp_bundle *b);

#endif
