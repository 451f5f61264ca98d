/* SPDX-License-Identifier: Apache-2.0 */
/* adder.h - what an initiator adds to counters of targets. */
#ifndef TEI_ADDER_H
#define TEI_ADDER_H

#include "base/loop.h"
#include "base/pool.h"
#include "te.h"

#include <pthread.h>

struct teller;

struct adders {
    struct tei_handles ids;
    pthread_mutex_t lock;   /* of all below, and of what adders and tellers have that changes */
    pthread_cond_t told;    /* a target has answered, or was tried in vain */
    struct teller *tellers; /* a hash table; one for each segment that has adders */
    struct tei_list row;    /* those that wait, the next in front */
    unsigned running;       /* of these, at this moment */
    unsigned failing;       /* of those that run: their last try failed */
    struct tei_timer timer; /* runs while one is not due yet; under ctl.lock */
};

void tei_adders_init(struct adders *s);
/* Frees what is left: no batch has any of it by then, and no job runs. */
void tei_adders_fini(struct adders *s);

#endif
