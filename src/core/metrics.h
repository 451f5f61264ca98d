/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - what is counted while requests run, and how it is told.
 *
 * The path of a request adds to counters in runs: what ends together is added together, with relaxed
 * atomics and no lock. Requests are counted at their peer, pieces of work at the transport that carried
 * them, in one of a few shards, which the thread picks. Whoever reads sums them up (metrics.c), and
 * metrics_text.c writes the sums by the table of metrics.def.
 *
 * Times are sampled: from one request that is timed to the next there are as many as chance says, of a
 * mean that follows from how quickly samples come, about a thousand a second at most. A sample counts for
 * all requests since the last one, so rates and quantiles of the histogram are those of all requests,
 * within what a sample can tell. The time of a sample is told in two, too: until a transport took the first
 * part of it, the last time that it was posted, and from then on.
 */
#ifndef TEI_METRICS_H
#define TEI_METRICS_H

#include "base/base.h"
#include "te.h"
#include "transport/transport.h"

#include <pthread.h>

enum {
    METRICS_CARRIERS = TEI_TRANSPORTS_MAX + 1, /* the transports by their place, and the stage */
    METRICS_SHARDS = 8,
    METRICS_CLASSES = 3, /* of errors: enum tei_err_class without OK */
    METRICS_SLOTS = 64,  /* requests that are timed at once */
    METRICS_PEERS = 20,  /* told by name */
    /* Bounds of histograms: 2^k and 1.5 * 2^k nanoseconds, from 2^10 (1 us) to 2^36 (69 s), or as many bytes. */
    METRICS_FIRST = 10,
    METRICS_OCTAVES = 26,
    METRICS_BOUNDS = 2 * METRICS_OCTAVES + 1,
};

struct peer;
struct task;

/* A row for each error that is one. */
enum metrics_error {
#define METRICS_ERROR(name, number, class, text) METRICS_ERROR_##name,
    TE_ERR_MAP(METRICS_ERROR)
#undef METRICS_ERROR
        METRICS_ERRORS
};

/* Requests to one segment, by opcode. */
struct figures {
    _Atomic uint64_t completed[2], failed[2], bytes[2];
};

/* What they were at one moment. */
struct totals {
    uint64_t completed[2], failed[2], bytes[2];
};

/*
 * Under which labels the figures of a segment are told: by its name, or as part of "other". Where that
 * changes, what was told stays where it was told, so that no counter falls or jumps.
 */
struct told {
    bool named;
    struct totals last; /* its figures when they were told last */
    struct totals
        apart; /* what of them was told the other way: in "other" while it is named, else by its name */
};

/* The same of requests that end together. */
struct ended {
    uint32_t completed[2], failed[2];
    uint64_t bytes[2]; /* of the COMPLETED ones */
};

/* Pieces of work that one transport has given back, bytes of those without an error, changes of their path. */
struct carried {
    _Atomic uint64_t attempts[2], carried_bytes[2], path_changes;
};

/* Pieces of work that came back from one transport one after the other, in the calling thread. */
struct returned {
    size_t place;
    uint32_t attempts[2], path_changes;
    uint64_t bytes[2];
};

struct shard {
    struct carried by[METRICS_CARRIERS];
    char apart[64]; /* no line of the cache has parts of two */
};

struct histogram {
    _Atomic uint64_t counts[METRICS_BOUNDS + 1];
    /*
     * The sum of nanoseconds, or bytes: each adds its whole thousands to one, which lasts for many years of
     * many requests at once, and what is beyond these to the other, less than 1000 for a sample.
     */
    _Atomic uint64_t sum_k, sum_rest;
};

/*
 * A request that is timed; its task holds the slot's number + 1. Where all are taken, one whose request
 * has not ended for long is taken from it.
 */
struct slot {
    _Atomic(struct task *) owner; /* NULL: free */
    _Atomic int64_t begin_ns;
    _Atomic int64_t posted_ns; /* the last time; begin_ns, unless it began anew */
    _Atomic int64_t
        taken_ns; /* its first part, since then: by tei_work.taken_ns; 0: not yet, or at once */
    _Atomic uint64_t weight; /* requests that it stands for */
};

struct metrics {
    struct shard shards[METRICS_SHARDS];
    struct figures gone; /* of segments that were closed */
    pthread_mutex_t told_lock;
    struct totals other; /* of these, what is told as part of "other"; under told_lock */
    _Atomic uint64_t errors[METRICS_ERRORS];
    _Atomic uint64_t attempt_failures[METRICS_CARRIERS][METRICS_CLASSES];
    _Atomic uint64_t stalls, restarts;
    _Atomic uint64_t due;      /* number of the request, in order of submission, to be timed next */
    _Atomic uint64_t told_for; /* requests that samples stand for */
    _Atomic uint64_t interval; /* requests from one sample to the next, in the mean, less one */
    _Atomic int64_t sampled_ns; /* when the last sample began */
    struct slot slots[METRICS_SLOTS];
    struct histogram latency[METRICS_CARRIERS][2], queue[METRICS_CARRIERS][2],
        wire[METRICS_CARRIERS][2], size[METRICS_CARRIERS][2];
    _Atomic uint64_t failovers[TEI_TRANSPORTS_MAX][TEI_TRANSPORTS_MAX]; /* from, to */
};

struct view;

/* ---- the path of a request */
/* Adds what has ended together to the figures of the peer of its view (NULL: it is gone), and empties it. */
void tei_metrics_ended(te_engine *e, struct view *v, struct ended *n);
/* A request has failed, in one way or another. */
void tei_metrics_failed(te_engine *e, const struct task *t, int error);
/* Adds what came back to the figures of its transport, and empties it. */
void tei_metrics_carried(te_engine *e, struct returned *r);
void tei_metrics_attempt_failed(te_engine *e, const struct tei_work *w);
static inline void tei_metrics_return(te_engine *e, struct returned *r, const struct tei_work *w)
{
    r->place = w->transport->place;
    r->attempts[w->opcode]++;
    r->path_changes += w->changes;
    if (w->error)
        tei_metrics_attempt_failed(e, w);
    else
        r->bytes[w->opcode] += w->length;
}
/* A request is given to the transport in the place `to`, after that in `from` has failed it; or to the same,
 * with its memory staged now, or not any more. */
void tei_metrics_path_changed(te_engine *e, size_t from, size_t to);
/* One that belongs to staged work, whether it has an error or not. */
void tei_metrics_staged(te_engine *e, const struct tei_work *w);
/* Times one of `n` requests that are submitted together, the first of which has this number, before they
 * are posted. */
void tei_metrics_sample(te_engine *e, struct task *tasks, uint64_t first, size_t n);
/* Where it is noted when a transport takes the first part of a timed request; NULL: it has lost its slot. */
_Atomic int64_t *tei_metrics_taken(const struct task *t);
/* A timed request is about to be posted anew. */
void tei_metrics_posted(const struct task *t);
/* A timed request has ended, carried by the transport in this place. */
void tei_metrics_sampled(te_engine *e, struct task *t, size_t place);
/* A request has ended otherwise: if it was timed, it does not count. */
void tei_metrics_unsample(struct task *t);

/* ---- reading, by te_stats() and te_stats_text() */
/* Of all peers, closed ones included. */
void tei_metrics_totals(te_engine *e, struct totals *out);
void tei_metrics_add(struct totals *to, const struct figures *f);
/* A peer leaves the table; peers.lock is held for writing. */
void tei_metrics_fold(te_engine *e, struct peer *p);

/* ---- metrics_peers.c */
struct by_peer {
    char *name;
    struct totals told;
};
/*
 * What is told of the peers now: at most METRICS_PEERS by name, malloc'ed, and the sum of all others. False:
 * memory is out; the names that are there are the caller's all the same.
 */
bool tei_metrics_peers(te_engine *e, struct by_peer *named, size_t *n, struct totals *others);
/* A peer leaves the table with these figures. */
void tei_metrics_peer_left(te_engine *e, const struct told *told, const struct totals *last);

/* ---- the table, for te_info: docs/metrics.md */
struct tei_metric_row {
    const char *name, *type, *labels, *help;
};
/* False past the end. */
bool tei_metric_row(size_t i, struct tei_metric_row *out);

#endif
