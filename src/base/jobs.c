/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs.c - the te/aux threads.
 *
 * All counters are under the lock. A thread is counted in `threads` from before it is started until
 * it has decided to end, a job in `queued` while it is on the queue and in `running` while its
 * function runs. threads - running is therefore the number of threads that are idle or about to
 * look at the queue, and a new one is needed exactly when there are more queued jobs than that.
 * Counting sleeping threads instead would be wrong: two jobs posted in a row would both count on
 * the one sleeper that has not woken up yet, and the second would wait for the first.
 *
 * Nobody may be waiting when an idle thread ends, yet each must be joined, or its last instructions
 * could run after stop() returned and the library was unloaded. So a thread that ends leaves its id
 * in `ended` and joins the one found there, which is past its last use of the lock: at any time at
 * most one finished thread is not joined, and stop() joins the last.
 *
 * Starting a thread can fail, and logs when it does, so it happens without the lock. When it fails
 * and there is no other thread the caller runs the queue, with what others put there meanwhile
 * relying on that thread.
 */
#include "base/jobs.h"

#include "base/os.h"

#define IDLE_S 2

static void *aux_thread(void *arg);

void tei_jobs_init(struct tei_jobs *p, unsigned max)
{
    *p = (struct tei_jobs){.max = max ? max : 1};
    pthread_mutex_init(&p->lock, NULL);
    tei_cond_init(&p->wake);
    tei_cond_init(&p->quiet);
    tei_list_init(&p->queue);
}

int tei_jobs_start(struct tei_jobs *p)
{
    pthread_t thread;
    int rc;

    pthread_mutex_lock(&p->lock);
    p->keep = 1;
    p->threads++;
    pthread_mutex_unlock(&p->lock);
    rc = tei_thread_start(&thread, "te/aux", aux_thread, p);
    if (rc) {
        pthread_mutex_lock(&p->lock);
        p->threads--;
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

/* Takes the first job and runs it without the lock. */
static void run_first(struct tei_jobs *p)
{
    struct tei_job *j = tei_container_of(tei_list_pop(&p->queue), struct tei_job, link);

    p->queued--;
    p->running++;
    pthread_mutex_unlock(&p->lock);
    j->fn(j);
    pthread_mutex_lock(&p->lock);
    p->running--;
}

static void tell_if_quiet(struct tei_jobs *p)
{
    if (!p->threads && !p->running && !p->queued)
        pthread_cond_broadcast(&p->quiet);
}

/* Unlocks. */
static void leave(struct tei_jobs *p)
{
    pthread_t before = p->ended;
    bool join = p->has_ended;

    p->ended = pthread_self();
    p->has_ended = true;
    p->threads--;
    tell_if_quiet(p);
    pthread_mutex_unlock(&p->lock);
    if (join)
        pthread_join(before, NULL);
}

static void *aux_thread(void *arg)
{
    struct tei_jobs *p = arg;
    bool in_time = true;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        if (p->queued) {
            run_first(p);
            in_time = true;
        } else if (p->closed || (!in_time && p->threads > p->keep)) {
            break;
        } else {
            int64_t until = p->threads > p->keep ? tei_deadline_ns(IDLE_S * 1000) : TEI_NEVER;

            in_time = tei_cond_wait_until(&p->wake, &p->lock, until);
        }
    }
    leave(p);
    return NULL;
}

/*
 * After a thread could not be started: what waits is run here unless some thread is there to do it.
 */
static void do_without(struct tei_jobs *p)
{
    pthread_mutex_lock(&p->lock);
    p->threads--;
    while (!p->threads && p->queued)
        run_first(p);
    tell_if_quiet(p);
    pthread_mutex_unlock(&p->lock);
}

void tei_jobs_post(struct tei_jobs *p, struct tei_job *j, tei_job_fn fn)
{
    bool more = false, inline_run;
    pthread_t thread;

    j->fn = fn;
    pthread_mutex_lock(&p->lock);
    inline_run = p->closed;
    if (!inline_run) {
        tei_list_push_back(&p->queue, &j->link);
        p->queued++;
        more = p->queued > p->threads - p->running && p->threads < p->max;
        p->threads += more;
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
    if (inline_run)
        fn(j);
    else if (more && tei_thread_start(&thread, "te/aux", aux_thread, p))
        do_without(p);
}

void tei_jobs_stop(struct tei_jobs *p)
{
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    pthread_cond_broadcast(&p->wake);
    while (p->threads || p->running || p->queued)
        pthread_cond_wait(&p->quiet, &p->lock);
    if (p->has_ended)
        pthread_join(p->ended, NULL);
    p->has_ended = false;
    pthread_mutex_unlock(&p->lock);
}

void tei_jobs_fini(struct tei_jobs *p)
{
    if (!p->max)
        return;
    pthread_cond_destroy(&p->quiet);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    *p = (struct tei_jobs){0};
}
