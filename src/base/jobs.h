/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs.h - threads for work that may block (name lookup, metadata servers, big encodings): the
 * te/aux threads.
 *
 * At most `max` threads; one starts when a job finds none idle and ends after some idle seconds, but
 * for the first. Jobs start in the order posted; up to `max` run at once, so one that
 * waits for a dead host does not hold up the rest.
 */
#ifndef TEI_JOBS_H
#define TEI_JOBS_H

#include "base/base.h"
#include "base/queue.h"

#include <pthread.h>

struct tei_job;
typedef void (*tei_job_fn)(struct tei_job *j);

/* Zeroed before first use; owned by the pool from post until fn is called, then by fn. */
struct tei_job {
    struct tei_link link;
    tei_job_fn fn;
};

struct tei_jobs {
    pthread_mutex_t lock;
    pthread_cond_t wake, quiet;
    struct tei_list queue;
    unsigned max, threads; /* threads: started and not ended */
    unsigned queued, running;
    unsigned keep; /* threads that do not end while idle */
    bool closed, has_ended;
    pthread_t ended; /* the last thread that ended, for the next one or stop to join */
};

void tei_jobs_init(struct tei_jobs *p, unsigned max);

/*
 * Starts one thread that stays until stop, so that no later shortage makes tei_jobs_post() run a
 * job in its caller. TE_ERR_SYSTEM if it cannot be started.
 */
int tei_jobs_start(struct tei_jobs *p);

/*
 * Always takes the job. If no thread at all can be started it is run in the caller's thread. After
 * stop: run in the caller's too.
 */
void tei_jobs_post(struct tei_jobs *p, struct tei_job *j, tei_job_fn fn);

/* Waits until all posted jobs have run and every thread has ended. */
void tei_jobs_stop(struct tei_jobs *p);
void tei_jobs_fini(struct tei_jobs *p);

#endif
