/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_peer.h - peers, their work, and who takes what of it. */
#ifndef TEI_TCP_PEER_H
#define TEI_TCP_PEER_H

#include "base/err.h"
#include "transport/ledger.h"
#include "transport/tcp/tcp.h"

#include <errno.h>

#define TCP_SPANS      8                    /* of a peer, lost for good */
#define TCP_LEFT_MAX   64                   /* peers without attachments that are kept */
#define TCP_INLINE_MAX ((uint64_t)64 << 10) /* a WRITE that post() sends itself */

struct tcp_exchange;
struct tcp_frame;
struct tcp_lane;

/* A range of the target's memory: at <= x < end; end is 0 where there is none. */
struct tcp_span {
    uint64_t at, end;
};

struct tcp_work {
    struct tei_entry
        entry; /* in peer.ledger or, while it waits for an earlier WRITE, in peer.held */
    struct tei_link behind; /* held: in the waiters of what it waits for; see tcp_fence.c */
};

struct tcp_attach {
    struct tei_attach base;
    struct tcp_peer *peer;
    struct tei_segment *several; /* of several protocols: not all of it need be of tcp; else NULL */
};

/* What a descriptor says of a peer. */
struct tcp_target {
    struct tei_hostport where;
    int version;
    const struct tcp_exchange *exchange;
    unsigned framing; /* native: the version of it to speak */
    uint64_t id;      /* native; else 0 */
    int n_more;
    struct tei_addr more[TCP_ADDRS_MAX];
};

/* Why an exchange or a connection ended. */
struct tcp_fault {
    int error, sys_errno;
    const char *why;
};

/*
 * What is left of a lane's connection: the target is told that nothing more comes, and its end is
 * awaited, which says that it applies nothing of this connection any more. Both locks, see tcp.h.
 */
struct tcp_remnant {
    struct tei_link link; /* in bundle.remnants */
    struct tcp_bundle *bundle;
    struct tei_watch watch;
    struct tcp_span span;
    struct tei_list waiters;
    int64_t until_ns; /* for as long WRITEs wait for it */
    bool overdue;
};

struct tcp_bundle {
    struct tei_link link; /* in worker.bundles */
    struct tcp_peer *peer;
    struct tcp_worker *worker;
    struct tei_call call;
    bool called;            /* peer's lock: `call` is queued */
    bool failing;           /* peer's lock: lanes may carry pieces of failed works */
    bool to_read;           /* peer's lock: has lanes to read for peer.reading_ns */
    unsigned n_idle, n_off; /* peer's lock: lanes in these states */
    unsigned n_lanes;
    struct tcp_lane *lanes;
    struct tei_list remnants;
};

struct tcp_peer {
    struct tei_link link; /* in tcp.peers */
    struct tei_link left; /* in tcp.left while refs is 0; peers_lock */
    struct tcp *t;
    unsigned refs; /* attachments; peers_lock */
    struct tei_hostport where;
    int version; /* of its engine's tcp_proto_version: 1, 2 */
    const struct tcp_exchange *exchange;
    unsigned framing; /* native: the version of it that both know */
    uint64_t id;      /* native: the instance that is meant */
    bool numeric;     /* the host is an address: addrs[0] for good */

    pthread_mutex_t lock;
    bool gone;      /* no attachment is left: bundles close their lanes and leave */
    unsigned parts; /* bundles, and the job if it runs: the last to leave frees the peer */
    struct tei_ledger ledger; /* work; its parts are pieces that lanes and frames have */
    struct tei_list again;    /* frames to be sent once more */
    struct tei_list lost;     /* WRITE frames of broken connections, which may still bring them */
    size_t n_frames;          /* in both */
    /* What may still be written there for works that have ended, and what waits for it: tcp_fence.c. */
    _Atomic size_t n_unsettled; /* frames of which a part is, remnants and spans: 0 nearly always */
    struct tei_list unsettled;  /* WRITE frames of broken connections, of which all is */
    size_t n_left_over;         /* in it */
    unsigned n_remnants, n_spans;
    struct tcp_span spans[TCP_SPANS];
    struct tei_ledger held;  /* WRITEs */
    struct tei_list crowded; /* those of them that wait for there to be fewer remnants or frames */
    int64_t check_ns; /* when the first bundle looks at the ledgers; TEI_NEVER: it does not */
    /* All that had come on any lane by read_ns was read; n_to_read bundles read for reading_ns. */
    int64_t read_ns, reading_ns;
    unsigned n_to_read;
    unsigned n_up, n_opening; /* lanes connected; paused or connecting */
    bool greeted;             /* one of those that are up is known to lead to it */
    bool near;                /* native: the last one that came up leads to this host */
    bool resolving;
    struct tei_job job;
    int n_addrs;
    struct tei_addr addrs[TCP_ADDRS_MAX];
    int n_more; /* native: further addresses of the peer, all used at once */
    struct tei_addr more[TCP_ADDRS_MAX];
    unsigned wrong;              /* bits: those of `more` where another engine answers */
    unsigned first;              /* the address to begin with: the last one that answered */
    _Atomic int64_t progress_ns; /* when a byte last moved on any lane */
    unsigned n_bundles;
    struct tcp_bundle *bundles;
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

static inline bool tei_tcp_is_holding(const struct tcp_peer *p)
{
    return tei_ledger_first(&p->held);
}

/* ---- tcp_address.c: the addresses of native peers */
/* Those that this engine announces: t->addresses. */
int tei_tcp_addresses_find(struct tcp *t);
/* What a descriptor says; false if its engine does not speak the native framing. */
bool tei_tcp_addresses_read(const json_t *root, struct tcp_target *target);

/* ---- tcp_peer.c */
int tei_tcp_peer_get(struct tcp *t, const struct tcp_target *target, struct tcp_peer **out);
void tei_tcp_peer_put(struct tcp_peer *p);
void tei_tcp_peer_free(struct tcp_peer *p);
/* Whether a WRITE that has ended may still be applied at any peer. */
bool tei_tcp_peers_hold(struct tcp *t);
/* One bundle, or the look-up, has let go of the peer. */
void tei_tcp_peer_leave(struct tcp_peer *p);
/*
 * Whether there are addresses; *look_up: the caller is to ask for them once the lock is free. Peer's
 * lock held.
 */
bool tei_tcp_peer_has_addrs(struct tcp_peer *p, bool *look_up);
void tei_tcp_peer_look_up(struct tcp_peer *p);
/* Ends the work of `owner`, NULL: of everybody. */
void tei_tcp_peer_cancel(struct tcp_peer *p, const void *owner);
void tei_tcp_peer_drop_idle(struct tcp_peer *p);

/* ---- tcp_schedule.c */
/* Takes `n` pieces of work. */
void tei_tcp_peer_post(struct tcp_peer *p, struct tei_list *works, size_t n, int64_t now);
/* Does what there is to do for a bundle on its worker. */
void tei_tcp_bundle_run(struct tei_call *c);
/* What the watchdog does for a bundle; returns when next. Worker's lock held. */
int64_t tei_tcp_bundle_tick(struct tcp_bundle *b, int64_t now);
/* Ends all lanes and their work. Worker's lock held. */
void tei_tcp_bundle_stop(struct tcp_bundle *b);

/* ---- tcp_piece.c: work and its pieces; peer's lock held, and that of the worker unless it is NULL */
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
/* Ends work that is late; returns when the next one will be, or is, until all lanes were read. */
int64_t tei_tcp_queue_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Its lanes were read since tei_tcp_queue_tick() asked for that. */
void tei_tcp_bundle_has_read(struct tcp_bundle *b);
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

/* ---- tcp_fence.c: WRITEs that wait for what earlier ones may still bring; peer's lock held */
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
/* Whether a WRITE of this range would be held; from any thread, without the lock. */
bool tei_tcp_fence_holds(struct tcp_peer *p, struct tcp_span span);
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
bool tei_tcp_fence_cut(struct tcp_lane *l, struct tcp_span span, const struct tcp_fault *f,
                       struct tcp_remnant *r);
/* What the watchdog does; returns when next. Worker's lock held, the peer's not. */
int64_t tei_tcp_fence_tick(struct tcp_bundle *b, int64_t now);
/* Closes what is left of connections. Worker's lock held, the peer's not. */
void tei_tcp_fence_stop(struct tcp_bundle *b);

#endif
