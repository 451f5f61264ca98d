/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h - opened segments: their ids and their views. */
#ifndef TEI_PEER_H
#define TEI_PEER_H

#include "base/hash.h"
#include "base/jobs.h"
#include "base/queue.h"
#include "base/sock.h"
#include "core/doubt.h"
#include "core/metrics.h"
#include "te.h"

#include <pthread.h>

struct view;

struct peer {
    te_engine *engine;
    te_segment id; /* TE_LOCAL_SEGMENT: this engine itself */
    char *name;    /* of one life with its number behind the NUL, so that its key is another one */
    bool one_life; /* of te_open_life() */
    uint64_t life; /* the incarnation; 0: not known yet, or of any */
    struct rules *rules;   /* of te_open_with(), or NULL; the peer's, never changed */
    unsigned opens;        /* under peers.lock */
    UT_hash_handle hh;     /* in peers.by_name, under peers.lock */
    _Atomic uint32_t refs; /* the table's, the refresh job's, one for each view */
    pthread_mutex_t lock;  /* the rest */
    struct view *view;     /* changes under doubts.lock, too */
    struct view *prepared; /* who makes views for other transports has one here; that thread's */
    struct tei_hostport where;
    int64_t revision;         /* of the fetch by te_open(), for following it; that thread's */
    size_t views;             /* alive, the current one included */
    size_t loose;             /* of them: being made or replaced at this moment */
    bool closed;              /* no view is put in place any more */
    bool refreshing;          /* the job is posted or runs */
    uint64_t fetches;         /* that the job has begun */
    uint64_t fetched;         /* of these, how many have ended */
    bool again;               /* asked for once more since the fetch under way began */
    int64_t refused_until_ns; /* tei_peer_refused() begins none before */
    struct tei_list parked;   /* tasks that wait for the next fetch */
    struct tei_list fetching; /* tasks that the fetch under way is for */
    struct tei_job job;
    struct doubts doubts;
    struct figures figures; /* of requests that have ended */
    struct told told;       /* under metrics.told_lock */
};

struct peers {
    pthread_rwlock_t lock;
    struct peer **list; /* by index; 0 is this engine */
    uint32_t *gens;     /* by index: generation of the next id */
    size_t n, cap;
    struct peer *by_name;
    size_t n_lives; /* of them: of one life */
    _Atomic uint64_t views_made;
};

void tei_peers_init(struct peers *s);
/* Enters this engine itself. */
int tei_peers_start(te_engine *e);
void tei_peers_fini(te_engine *e);

/* The current view of a segment, referenced; NULL if there is no such segment. */
struct view *tei_view_get(struct peers *s, te_segment id);
void tei_peer_put(struct peer *p);
/* The next peer from place *i on, which is moved behind it; NULL past the end. The lock is held. */
struct peer *tei_peer_from(const struct peers *s, size_t *i);
/* Fetches the descriptor and puts a view of it in place. Blocks. `opening`: nobody else knows the peer yet. */
int tei_peer_fetch(struct peer *p, bool opening);
/* The name of a segment for a text, cut to fit; its number if it is not open any more. */
void tei_peer_name(struct peers *s, te_segment id, char *buf, size_t n);
/* The one life that a segment is of; 0: of any, or it is not open. */
uint64_t tei_peer_life(struct peers *s, te_segment id);
/* Strips leading '/'; TE_ERR_INVALID for a name that is NULL or empty. */
int tei_peer_check_name(const char **name);
/*
 * Makes every peer's view anew with the transports there are now, or, if memory is out, none. Under
 * admin.
 */
int tei_peer_rebuild(struct peers *s);
/* Whether requests hold views with the transport of this index, as far as can be told in passing. */
bool tei_peer_uses(te_engine *e, size_t index);
/*
 * The name of an open segment to which a WRITE by this transport that has ended may still be applied (op holds()),
 * cut to fit; false if there is none.
 */
bool tei_peer_held(struct peers *s, const struct tei_transport *t, char *name, size_t n);
/*
 * Where a segment's engine answers RPCs; asks the directory anew, and blocks, when `fresh`.
 * TE_ERR_UNSUPPORTED: it is of files. TE_ERR_STALE: it is of one life, which is over.
 */
int tei_peer_where(te_engine *e, te_segment id, bool fresh, struct tei_hostport *out);

#endif
