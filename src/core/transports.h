/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transports.h - the transports that an engine has.
 *
 * Index i of the list is a transport's own while it is installed: regions keep its keys there, work
 * comes from pool i. Once nothing of it is left there, the next one gets the index. The list changes
 * with the engine's `admin` held, too: who holds that reads it without the lock.
 */
#ifndef TEI_TRANSPORTS_H
#define TEI_TRANSPORTS_H

#include "base/pool.h"
#include "transport/transport.h"

#include <pthread.h>

/* What work is posted to, by index: the transports, and after them stage.c. */
#define TEI_STAGE_INDEX TEI_TRANSPORTS_MAX
#define TEI_CARRIERS    (TEI_TRANSPORTS_MAX + 1)

/* What the transports of one place in the table have counted that are destroyed; gauges are 0. */
struct transport_past {
    bool there; /* one was */
    struct te_stats stats;
    struct tei_nic_table nics;
};

struct transports {
    pthread_rwlock_t lock;
    struct tei_transport *list[TEI_TRANSPORTS_MAX]; /* by index; NULL where uninstalled */
    size_t n;
    struct tei_transport *leaving;                  /* out of the list, but not in `past` yet */
    struct transport_past past[TEI_TRANSPORTS_MAX]; /* by place */
    struct te_stats past_stats;                     /* of all of them */
    _Atomic unsigned generation;                    /* changes with the list, under the lock */
    _Atomic uint64_t *version;                      /* of our descriptor; grows then, too */
    _Atomic size_t views[TEI_TRANSPORTS_MAX];       /* that name it, and calls that have got it */
    struct tei_pool works[TEI_CARRIERS];
    /* Carries what a transport does not reach by itself; NULL until memory of a device is registered. */
    _Atomic(struct tei_transport *) stage;
    /* Under admin: */
    _Atomic unsigned
        kinds;         /* of devices' memory that was registered, in bits, and TEI_KIND_; grows */
    unsigned served;   /* `kinds` whose transports were installed, or could not be */
    unsigned declined; /* transports uninstalled, in bits by place in the table */
};

void tei_transports_init(struct transports *s, _Atomic uint64_t *version);
/* Memory of these kinds is registered, or has been. Under admin. */
static inline void tei_transports_know(struct transports *s, unsigned kinds)
{
    atomic_fetch_or_explicit(&s->kinds, kinds, memory_order_relaxed);
}
/* Destroys those that are there. */
void tei_transports_fini(struct transports *s);

/* The installed one of that name, NULL if none. The lock or admin is held. */
struct tei_transport *tei_transports_find(const struct transports *s, const char *name);
/*
 * The first transport from place *i on that has one of these ops (TEI_HAS_), and its place; NULL past the end.
 * It stays until tei_transports_put(). For calls that come back into the core, as no lock is held
 * during them.
 */
struct tei_transport *tei_transports_get(struct transports *s, size_t *i, unsigned has);
void tei_transports_put(struct transports *s, size_t i);
/* Whether no driver copies between the two. */
static inline bool tei_regions_apart(const struct tei_region *a, const struct tei_region *b)
{
    return a->kind != b->kind && a->kind != TEI_MEM_HOST && b->kind != TEI_MEM_HOST;
}
/*
 * Who gets the work of a region that `t` is to carry: `t`, or the stage in its place. `target`: NULL unless it
 * is of this engine.
 */
static inline struct tei_transport *tei_transports_carrier(const struct transports *s,
                                                           const struct tei_region *r,
                                                           const struct tei_region *target,
                                                           struct tei_transport *t)
{
    /* Relaxed: a transport gets its bit before there is a view with it. */
    if (r->kind == TEI_MEM_HOST ||
        ((atomic_load_explicit(&r->direct, memory_order_relaxed) & (1u << t->index)) &&
         !(target && tei_regions_apart(r, target))))
        return t;
    /* Acquire: partner of the release with which stage.c shows it. */
    return atomic_load_explicit(&s->stage, memory_order_acquire);
}
/* TE_ERR_ACCESS, which names the file: a segment of files has one that may not be opened. */
int tei_transports_admit(struct transports *s, const char *name, const struct tei_segment *seg);

/* ---- changes; under admin */
/* An index that has none, and nothing of one that had it; TEI_TRANSPORTS_MAX: there is none. */
size_t tei_transports_room(struct transports *s);
/*
 * Takes one out and puts one in; either may be NULL. One that is out counts for te_stats() until it is
 * put in again, or told by tei_transports_keep().
 */
void tei_transports_change(struct transports *s, const struct tei_transport *out,
                           struct tei_transport *in);
/* Keeps what one that is stopped has counted, if it was in the list: the next thing is to destroy it. */
void tei_transports_keep(struct transports *s, struct tei_transport *t);

#endif
