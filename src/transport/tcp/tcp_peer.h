/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_peer.h - peers, their work, and who takes what of it. */
#ifndef TEI_TCP_PEER_H
#define TEI_TCP_PEER_H

#include "base/span.h"
#include "transport/tcp/tcp_work.h"

#define TCP_LEFT_MAX   64                   /* peers without attachments that are kept */
#define TCP_INLINE_MAX ((uint64_t)64 << 10) /* a WRITE that post() sends itself */

struct tcp_exchange;
struct tcp_frame;
struct tcp_lane;

struct tcp_attach {
    struct tei_attach base;
    struct tcp_peer *peer;
    uint64_t incarnation;        /* of the engine that it is to */
    struct tei_segment *several; /* of several protocols: not all of it need be of tcp; else NULL */
};

/* What a descriptor says of a peer. */
struct tcp_target {
    struct tei_hostport where;
    int version;
    const struct tcp_exchange *exchange;
    unsigned framing; /* native: the version of it to speak */
    uint64_t id;      /* native; else 0 */
    uint64_t incarnation;
    struct tei_ticket *ticket; /* the segment's, or NULL */
    int n_more;
    struct tei_addr more[TCP_ADDRS_MAX];
};

struct tcp_bundle {
    struct tei_link link; /* in worker.bundles */
    struct tcp_peer *peer;
    struct tcp_worker *worker;
    struct tei_call call;
    bool called;            /* peer's lock: `call` is queued */
    bool failing;           /* peer's lock: lanes may carry pieces of failed works */
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
    unsigned framing;          /* native: the version of it that both know */
    uint64_t id;               /* native: the instance that is meant */
    bool numeric;              /* the host is an address: addrs[0] for good */
    struct tei_ticket *ticket; /* the last one that was given for it, or NULL; under the lock */

    pthread_mutex_t lock;
    bool gone;            /* no attachment is left: bundles close their lanes and leave */
    uint64_t incarnation; /* of the engine that was attached to last */
    bool moved;           /* that is no more, and no other has come to this address */
    unsigned parts;       /* bundles, and the job if it runs: the last to leave frees the peer */
    struct tei_ledger ledger; /* work; its parts are pieces that lanes and frames have */
    struct tei_list again;    /* frames to be sent once more */
    struct tei_list lost;     /* WRITE frames of broken connections, which may still bring them */
    size_t n_frames;          /* in both */
    /* What may still be written there for works that have ended, and what waits for it: tcp_fence.c. */
    _Atomic size_t n_unsettled; /* frames of which a part is, remnants and spans: 0 nearly always */
    uint64_t
        n_doubts; /* how often one of these has begun: those of a time are told from later ones */
    struct tei_list unsettled; /* WRITE frames of broken connections, of which all is */
    size_t n_left_over;        /* in it */
    unsigned n_remnants;
    struct tei_span_set spans; /* lost for good */
    struct tei_ledger held;    /* WRITEs */
    struct tei_list crowded; /* those of them that wait for there to be fewer remnants or frames */
    int64_t check_ns; /* when the first bundle looks at the ledgers; TEI_NEVER: it does not */
    unsigned n_up, n_opening; /* lanes connected; paused or connecting */
    unsigned n_wished;        /* lanes that are to be opened though no work waits: tcp_warm.c */
    struct tcp_fault cold;    /* why a wish has failed last */
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

/* Whether connections stay for the next request. */
static inline bool tei_tcp_peer_keeps(const struct tcp_peer *p)
{
    return p->version >= 2 && p->t->conf->tcp_pool;
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
/* Whether a WRITE that has ended may still be applied at any peer, which is asked then. */
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
/* That engine, to which there are attachments, is no more. */
void tei_tcp_peer_moved(struct tcp_peer *p, uint64_t incarnation);

/* ---- tcp_schedule.c */
/* Takes `n` pieces of work. */
void tei_tcp_peer_post(struct tcp_peer *p, struct tei_list *works, size_t n, int64_t now);
/* Drops wishes for lanes that no work would open. Peer's lock held. */
void tei_tcp_wishes_trim(struct tcp_peer *p);
/* Does what there is to do for a bundle on its worker. */
void tei_tcp_bundle_run(struct tei_call *c);
/* What the watchdog does for a bundle; returns when next. Worker's lock held. */
int64_t tei_tcp_bundle_tick(struct tcp_bundle *b, int64_t now);
/* Ends all lanes and their work. Worker's lock held. */
void tei_tcp_bundle_stop(struct tcp_bundle *b);

#endif
