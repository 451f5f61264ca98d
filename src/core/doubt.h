/* SPDX-License-Identifier: Apache-2.0 */
/* doubt.h - ranges of a peer's memory that WRITEs which have ended may still change. */
#ifndef TEI_DOUBT_H
#define TEI_DOUBT_H

#include "base/span.h"
#include "te.h"
#include "transport/transport.h"

#include <pthread.h>

struct peer;
struct view;
struct via;

struct doubts {
    /* This, and the peer's view, which changes with the peer's lock held, too. Transports are asked with it held. */
    pthread_mutex_t lock;
    struct tei_span_set open; /* a transport of the current view knows whether that is over */
    unsigned hold_off;        /* notes until `open`, which was full, is pruned once more */
    struct tei_span_set lost; /* nobody can say, for as long as the segment is open */
};

/* A piece of work of a request that was routed by this view has failed. */
void tei_doubts_note(struct view *v, const struct tei_work *w);
/* The peer's view is another one now. Lock held. */
void tei_doubts_move(struct peer *p, const struct view *from, const struct view *to);
/*
 * The transports of the peer's current view that can say when nothing of an ended WRITE comes to that range any
 * more, by their places in it: bits; none: nothing does, or, where *lost is set, nobody can say. Lock held.
 */
unsigned tei_doubts_look(const struct peer *p, struct tei_span d, bool *lost);
/* Forgets those of `open` that are over. Lock held. */
void tei_doubts_prune(struct peer *p);

#endif
