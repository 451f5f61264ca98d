/* SPDX-License-Identifier: Apache-2.0 */
/* park.h - requests that wait for a fresh descriptor of their peer, and fetching it. */
#ifndef TEI_PARK_H
#define TEI_PARK_H

#include "base/jobs.h"
#include "base/loop.h"
#include "te.h"

#include <pthread.h>

struct batch;
struct peer;
struct tei_attach;
struct tei_host;
struct task;

struct parking {
    pthread_rwlock_t repost;  /* shared while parked tasks go to a transport */
    _Atomic size_t parked;    /* tasks waiting for a descriptor */
    struct tei_timer timer;   /* runs while there are any; under ctl.lock, as the next */
    struct tei_timer refresh; /* MC_TE_METADATA_REFRESH_INTERVAL_SECONDS */
    struct tei_list late;     /* tasks that the job ends; under ctl.lock, as the next */
    bool ending;              /* it is posted, and has not taken them yet */
    struct tei_job job;
};

void tei_parking_init(struct parking *s);
/* Begins to refresh every peer each interval, if an option asks for it. Under ctl.lock. */
void tei_parking_start(te_engine *e);
void tei_parking_fini(struct parking *s);

/* Parks a task until its peer's descriptor was fetched again, which is its one refresh. */
void tei_peer_park(struct peer *p, struct task *t);
/* Ends what is parked of a batch (NULL: everything) CANCELED. */
void tei_peer_unpark(te_engine *e, const struct batch *b);
/* Fetches one peer's descriptor again, or every peer's, in the background. The number of the fetch; 0: none is begun. */
uint64_t tei_peer_refresh(struct peer *p);
/* Whether that fetch has ended, and what it brought is in place. */
bool tei_peer_refreshed(struct peer *p, uint64_t number);
void tei_peer_refresh_all(te_engine *e);
/* refused() of struct tei_host. */
void tei_peer_refused(struct tei_host *h, const struct tei_attach *a);
/* The directory says that the descriptor of `name` has changed; arg is the engine. */
void tei_peer_changed(void *arg, const char *name);

#endif
