/* SPDX-License-Identifier: Apache-2.0 */
/* counter.h - the counters of a target. */
#ifndef TEI_COUNTER_H
#define TEI_COUNTER_H

#include "base/pool.h"
#include "meta/meta.h"
#include "te.h"

#include <pthread.h>
#include <stdatomic.h>

struct counter;

struct counter_set {
    pthread_mutex_t lock;
    struct tei_handles ids;
    struct counter *by_name; /* a hash table */
    _Atomic uint32_t shares; /* that all of them have */
};

void tei_counters_init(struct counter_set *s);
/* Frees what is left. */
void tei_counters_fini(struct counter_set *s);

/* What names the counter in messages; TE_ERR_NOT_FOUND: there is none of that name. Sets no text, as the next. */
int tei_counter_key(struct counter_set *s, const char *name, struct tei_count_key *out);
/*
 * Takes in what an initiator has added by now. TE_ERR_STALE: there is no such counter any more. TE_ERR_REJECTED: too
 * many have added to it. TE_ERR_MEMORY, also where there is no room for one more share.
 */
int tei_counter_take(struct counter_set *s, const struct tei_count *m);

#endif
