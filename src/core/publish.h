/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h - telling the directory of our descriptor. */
#ifndef TEI_PUBLISH_H
#define TEI_PUBLISH_H

#include "base/jobs.h"
#include "base/loop.h"
#include "te.h"
#include "transport/transport.h"

#include <pthread.h>

struct publisher {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t published; /* the version the store has */
    bool publishing, queued;
    bool announced;    /* the directory has our keys */
    bool announce_due; /* the store has lost where we are */
    uint64_t tried;    /* the version that the last put was to cover, and what came of it */
    int tried_rc;
    int64_t retry_ms;
    struct tei_job job;
    struct tei_timer timer;
};

void tei_publisher_init(struct publisher *p);
void tei_publisher_fini(struct publisher *p);

/*
 * Tells the directory of a change of our descriptor by `n` regions, as te_register() promises.
 */
int tei_publish(te_engine *e, size_t n);
/* Marks a change and publishes in the background: for changes that must not fail. */
void tei_publish_later(te_engine *e);
/* struct tei_host op. */
void tei_publish_changed(struct tei_host *h);
/* The store has lost all that it had of us: announces and publishes anew, in the background. */
void tei_publish_again(te_engine *e);
/* The same in the calling thread. */
int tei_publish_now(te_engine *e);
/* Refuses calls from now on, and takes our keys out of the directory. */
void tei_publish_withdraw(te_engine *e);

#endif
