/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - what follows requests, a message or an addition to a counter: done once all of them have ended. */
#ifndef TEI_GROUP_H
#define TEI_GROUP_H

#include "te.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Begins the struct of what follows. */
struct group {
    _Atomic size_t left; /* requests, or 1 for a batch */
    _Atomic bool failed;
    struct group *next; /* in batch.after */
    /* Once; frees it. `good`: all are COMPLETED. */
    void (*end)(struct group *g, bool good);
};

/* `n` of the requests have ended. */
static inline void tei_group_done(struct group *g, size_t n, bool failed)
{
    if (failed)
        atomic_store_explicit(&g->failed, true, memory_order_relaxed);
    /* Acquire-release: the last one sees every `failed`. */
    if (atomic_fetch_sub_explicit(&g->left, n, memory_order_acq_rel) == n)
        g->end(g, !atomic_load_explicit(&g->failed, memory_order_relaxed));
}

/* It follows nothing: the requests were not submitted. NULL is accepted. */
static inline void tei_group_drop(struct group *g)
{
    if (g)
        g->end(g, false);
}

#endif
