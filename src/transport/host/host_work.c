/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_work.c - the queue of work, and who empties it.
 *
 * Short work, INLINE_MAX bytes in all for one post(), is copied in the caller's thread. The rest
 * goes into one queue. Workers, and threads in te_wait() by poll(), take runs from it: a chunk of a
 * long work, which then goes to the end of the queue, or several short ones for the same peer.
 *
 * A work is in the queue as long as some of its bytes were not given to a run; `next` is that
 * cursor, `out` the number of runs that carry a part of it. It ends when out is 0 and either an
 * error is set, which takes it out of the queue, or next has reached the end. cancel() and close()
 * must not call back, so what they end waits in `ended` for a worker.
 *
 * Guests are the caller's threads that post or copy: stop() waits for them.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <stdio.h>
#include <unistd.h>

#define INLINE_MAX ((uint64_t)64 << 10)
#define SHARE      ((uint64_t)128 << 10) /* of short works in a row, so that others get some too */

static struct host_peer *peer_of(const struct host_work *w)
{
    return ((struct host_attach *)w->base.attach)->peer;
}

static void give_back(struct host *h, struct tei_list *done)
{
    if (!tei_list_empty(done))
        h->base.host->work_done(h->base.host, done);
}

/* ------------------------------------------------------------------------------------ the queue */

static void put_in(struct host *h, struct host_work *w)
{
    tei_list_push_back(&h->queue, &w->base.link);
    atomic_store_explicit(&h->waiting, ++h->n_queued, memory_order_relaxed);
}

static void take_out(struct host *h, struct host_work *w)
{
    tei_list_del(&w->base.link);
    atomic_store_explicit(&h->waiting, --h->n_queued, memory_order_relaxed);
}

/* The first error of a work; no part of it begins any more. */
static void fail_work(struct host *h, struct host_work *w, int error)
{
    if (w->base.error)
        return;
    w->base.error = error;
    if (tei_link_is_in(&w->base.link))
        take_out(h, w);
}

static bool is_over(const struct host_work *w)
{
    return w->out == 0 && (w->base.error || w->next == w->base.length);
}

static void fail_queued(struct host *h, struct host_work *w, int error)
{
    fail_work(h, w, error);
    if (is_over(w))
        tei_list_push_back(&h->ended, &w->base.link);
}

/* Ends what waits past its deadline. */
static void end_late(struct host *h)
{
    struct tei_link *link, *tmp;
    int64_t now;

    if (h->first_late_ns == TEI_NEVER)
        return;
    now = tei_now_ns();
    if (now < h->first_late_ns)
        return;
    h->first_late_ns = TEI_NEVER;
    TEI_LIST_EACH(&h->queue, link, tmp) {
        struct host_work *w = tei_host_work_of(link);

        if (w->base.deadline_ns <= now)
            fail_queued(h, w, TE_ERR_TIMEOUT);
        else if (w->base.deadline_ns < h->first_late_ns)
            h->first_late_ns = w->base.deadline_ns;
    }
}

static void add_piece(struct host_run *run, struct host_work *w)
{
    size_t n = (size_t)tei_min(w->base.length - w->next, HOST_CHUNK);

    run->pieces[run->n++] = (struct host_piece){.work = w,
                                                .local = w->base.local + w->next,
                                                .remote = w->base.remote + w->next,
                                                .length = n};
    w->next += n;
    w->out++;
}

static bool fits(const struct host_run *run, const struct host_work *w, uint64_t room)
{
    return run->n < HOST_PIECES && peer_of(w) == run->peer && w->base.opcode == run->opcode &&
           w->base.length - w->next <= room;
}

static void begin_run(struct host_run *run, const struct host_work *first)
{
    run->peer = peer_of(first);
    run->opcode = first->base.opcode;
    run->n = 0;
}

/* Takes what to copy next; false if there is nothing. */
static bool take_run(struct host *h, struct host_run *run)
{
    struct tei_link *link;
    struct host_work *w;
    uint64_t room = SHARE;

    end_late(h);
    link = tei_list_first(&h->queue);
    if (!link)
        return false;
    w = tei_host_work_of(link);
    begin_run(run, w);
    do {
        take_out(h, w);
        add_piece(run, w);
        room -= tei_min(room, run->pieces[run->n - 1].length);
        if (w->next < w->base.length)
            put_in(h, w);
        link = tei_list_first(&h->queue);
        w = link ? tei_host_work_of(link) : NULL;
    } while (w && room && fits(run, w, room));
    return true;
}

static void end_piece(struct host *h, const struct host_piece *x, struct tei_list *done)
{
    struct host_work *w = x->work;

    w->out--;
    if (!x->error) {
        atomic_fetch_add_explicit(w->base.moved, x->length, memory_order_relaxed);
    } else if (!w->base.error) {
        w->base.sys_errno = x->sys_errno;
        w->base.why = x->why;
        fail_work(h, w, x->error);
    }
    if (is_over(w))
        tei_list_push_back(done, &w->base.link);
}

static void end_run(struct host *h, const struct host_run *run, struct tei_list *done)
{
    for (size_t i = 0; i < run->n; i++)
        end_piece(h, &run->pieces[i], done);
}

/* One run from the queue, and what has ended; false if there is neither. queue_lock is held. */
static bool do_one(struct host *h, struct host_run *run)
{
    struct tei_list done;
    bool taken;

    tei_list_init(&done);
    taken = take_run(h, run);
    if (taken) {
        pthread_mutex_unlock(&h->queue_lock);
        tei_host_run(run);
        pthread_mutex_lock(&h->queue_lock);
        end_run(h, run, &done);
    }
    tei_list_splice(&done, &h->ended);
    if (tei_list_empty(&done))
        return taken;
    pthread_mutex_unlock(&h->queue_lock);
    give_back(h, &done);
    pthread_mutex_lock(&h->queue_lock);
    return true;
}

/* -------------------------------------------------------------------------------------- workers */

static void *work(void *arg)
{
    struct host *h = ((struct host_worker *)arg)->h;
    struct host_run run;

    pthread_mutex_lock(&h->queue_lock);
    for (;;) {
        if (do_one(h, &run))
            continue;
        if (h->quit)
            break;
        h->idle++;
        pthread_cond_wait(&h->wake, &h->queue_lock);
        h->idle--;
    }
    pthread_mutex_unlock(&h->queue_lock);
    return NULL;
}

static unsigned count_workers(const struct tei_conf *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (c->host_threads > 0)
        return (unsigned)tei_min((size_t)c->host_threads, HOST_WORKERS_MAX);
    return (unsigned)tei_min((size_t)(cores > 0 ? cores : 1), 4);
}

int tei_host_workers_start(struct host *h)
{
    unsigned n = count_workers(h->conf);
    int rc = 0;

    pthread_mutex_lock(&h->queue_lock);
    while (!rc && h->n_workers < n && !h->closed) {
        struct host_worker *w = &h->workers[h->n_workers];
        char name[16];

        w->h = h;
        snprintf(name, sizeof(name), "te/host%u", h->n_workers);
        rc = tei_thread_start(&w->thread, name, work, w);
        h->n_workers += rc == 0;
    }
    /* One is enough to go on. */
    rc = h->n_workers ? 0 : rc;
    pthread_mutex_unlock(&h->queue_lock);
    return rc;
}

void tei_host_workers_stop(struct host *h)
{
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_lock(&h->queue_lock);
    h->quit = true;
    pthread_cond_broadcast(&h->wake);
    while (h->guests)
        pthread_cond_wait(&h->quiet, &h->queue_lock);
    pthread_mutex_unlock(&h->queue_lock);
    for (unsigned i = 0; i < h->n_workers; i++)
        pthread_join(h->workers[i].thread, NULL);
    h->n_workers = 0;
    /* What a guest left behind. */
    tei_list_splice(&done, &h->ended);
    give_back(h, &done);
}

/* --------------------------------------------------------------------------------------- guests */

/* As many threads as have a hazard each. queue_lock is held, as for leave(). */
static bool come_in(struct host *h)
{
    if (h->guests == HOST_GUESTS_MAX)
        return false;
    h->guests++;
    return true;
}

static void leave(struct host *h)
{
    if (--h->guests == 0)
        pthread_cond_broadcast(&h->quiet);
}

bool tei_host_poll(struct tei_transport *t)
{
    struct host *h = tei_host_of(t);
    struct host_run run;
    bool moved = false;

    /* Relaxed: a hint; the workers miss nothing. */
    if (atomic_load_explicit(&h->waiting, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&h->queue_lock);
    if (come_in(h)) {
        moved = do_one(h, &run);
        leave(h);
    }
    pthread_mutex_unlock(&h->queue_lock);
    return moved;
}

/* Splits what was posted: the first short ones are copied now, the rest by whoever is free. */
static void split(struct tei_list *work, struct tei_list *now, struct tei_list *later)
{
    uint64_t budget = INLINE_MAX;
    struct tei_link *link;

    while ((link = tei_list_pop(work))) {
        struct host_work *w = tei_host_work_of(link);
        bool here = w->base.length <= budget;

        w->next = 0;
        w->out = 0;
        w->base.error = w->base.sys_errno = 0;
        w->base.why = NULL;
        budget -= here ? w->base.length : 0;
        tei_list_push_back(here ? now : later, link);
    }
}

/* Returns how many workers are to be woken for it. */
static unsigned enqueue(struct host *h, struct tei_list *later)
{
    uint64_t bytes = 0;
    struct tei_link *link;

    while ((link = tei_list_pop(later))) {
        struct host_work *w = tei_host_work_of(link);

        if (w->base.deadline_ns < h->first_late_ns)
            h->first_late_ns = w->base.deadline_ns;
        bytes += w->base.length;
        put_in(h, w);
    }
    return (unsigned)tei_min(h->idle, (bytes + HOST_CHUNK - 1) / HOST_CHUNK);
}

/* Copies all of a list of short works; they are done after that. */
static void run_inline(struct host *h, struct tei_list *now, struct tei_list *done)
{
    struct host_run run;
    struct tei_link *link = tei_list_pop(now);

    while (link) {
        begin_run(&run, tei_host_work_of(link));
        do {
            add_piece(&run, tei_host_work_of(link));
            link = tei_list_pop(now);
        } while (link && fits(&run, tei_host_work_of(link), INLINE_MAX));
        tei_host_run(&run);
        end_run(h, &run, done); /* these works are nobody else's, so no lock */
    }
}

static void cancel_list(struct tei_list *work)
{
    for (struct tei_link *link = tei_list_first(work); link; link = tei_list_next(work, link))
        tei_host_work_of(link)->base.error = TE_ERR_CANCELED;
}

static void wake(struct host *h, unsigned workers)
{
    while (workers--)
        pthread_cond_signal(&h->wake);
}

/*
 * What a guest posts. queue_lock is held, but for waking and copying: who is woken wants it at once,
 * and the guest keeps the transport here.
 */
static void post_as_guest(struct host *h, struct tei_list *now, struct tei_list *later)
{
    unsigned workers = enqueue(h, later);
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_unlock(&h->queue_lock);
    wake(h, workers);
    run_inline(h, now, &done);
    give_back(h, &done);
    pthread_mutex_lock(&h->queue_lock);
    leave(h);
}

void tei_host_post(struct tei_transport *t, struct tei_list *work)
{
    struct host *h = tei_host_of(t);
    struct tei_list now, later, done;
    unsigned workers;

    tei_list_init(&now);
    tei_list_init(&later);
    tei_list_init(&done);
    split(work, &now, &later);
    pthread_mutex_lock(&h->queue_lock);
    if (h->closed) {
        tei_list_splice(&done, &now);
        tei_list_splice(&done, &later);
        cancel_list(&done);
    } else if (come_in(h)) {
        post_as_guest(h, &now, &later);
    } else {
        tei_list_splice(&later, &now);
        workers = enqueue(h, &later);
        wake(h, workers);
    }
    pthread_mutex_unlock(&h->queue_lock);
    give_back(h, &done);
}

/* --------------------------------------------------------------------------------------- ending */

/* All of an owner, or all. queue_lock is held. */
static void cancel_queued(struct host *h, const void *owner, bool all)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&h->queue, link, tmp) {
        struct host_work *w = tei_host_work_of(link);

        if (all || w->base.owner == owner)
            fail_queued(h, w, TE_ERR_CANCELED);
    }
    if (!tei_list_empty(&h->ended))
        pthread_cond_signal(&h->wake);
}

void tei_host_cancel(struct tei_transport *t, const void *owner)
{
    struct host *h = tei_host_of(t);

    pthread_mutex_lock(&h->queue_lock);
    cancel_queued(h, owner, false);
    pthread_mutex_unlock(&h->queue_lock);
}

void tei_host_close(struct tei_transport *t)
{
    struct host *h = tei_host_of(t);

    pthread_mutex_lock(&h->queue_lock);
    h->closed = true;
    cancel_queued(h, NULL, true);
    pthread_mutex_unlock(&h->queue_lock);
}
