/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier.c - threads that copy work.
 *
 * `lock` guards the copier; it is a leaf. cancel() and close() must not call back, so what they end
 * waits in the ledger for the watcher, whom they wake.
 *
 * Guests are the caller's threads that post or copy: stop() waits for them. Where there are as many
 * as may be, one more posts without copying.
 */
#include "transport/copier.h"

#include "base/err.h"
#include "base/os.h"

#include <stdio.h>

#define INLINE_MAX ((uint64_t)64 << 10)
#define SHARE      ((uint64_t)128 << 10) /* of short works in a row, so that others get some too */

static void copier_give_back(struct tei_copier *c, struct tei_list *done)
{
    if (!tei_list_empty(done))
        c->transport->host->work_done(c->transport->host, done);
}

/* Gives back what is over; false if nothing is. The lock is held, but for the call. */
static bool copier_reap(struct tei_copier *c)
{
    struct tei_list done;

    tei_list_init(&done);
    tei_ledger_reap(&c->ledger, &done);
    if (tei_list_empty(&done))
        return false;
    pthread_mutex_unlock(&c->lock);
    copier_give_back(c, &done);
    pthread_mutex_lock(&c->lock);
    return true;
}

/* After the ledger has changed: what others look at. The lock is held. */
static void copier_note(struct tei_copier *c)
{
    /* Relaxed: a hint; the threads miss nothing. */
    atomic_store_explicit(&c->waiting, tei_ledger_first(&c->ledger) != NULL, memory_order_relaxed);
    if (c->ledger.look_ns < c->watch_ns) {
        c->watch_ns = c->ledger.look_ns;
        pthread_cond_signal(&c->alarm);
    }
}

/* ----------------------------------------------------------------------------------------- runs */

/* Begins a run with this work. */
static void copier_begin(struct tei_copy_run *run, const struct tei_entry *e)
{
    run->attach = e->base.attach;
    run->opcode = e->base.opcode;
    run->n = 0;
}

/* Whether the run may have `n` bytes of this work, too. */
static bool copier_fits(const struct tei_copy_run *run, const struct tei_entry *e, uint64_t n,
                        uint64_t room)
{
    return n <= room && run->n < TEI_COPY_PARTS && e->base.attach == run->attach &&
           e->base.opcode == run->opcode;
}

/* Takes what to copy next, the short works after the first one up to a share; false: nothing. */
static bool copier_take(struct tei_ledger *l, int64_t now, struct tei_copy_run *run)
{
    const struct tei_entry *e = tei_ledger_first(l);
    uint64_t room = SHARE;

    if (!e)
        return false;
    copier_begin(run, e);
    do {
        struct tei_part *part = &run->parts[run->n++];

        tei_ledger_take(l, TEI_COPY_CHUNK, now, part);
        room -= tei_min(room, part->length);
        e = tei_ledger_first(l);
    } while (e && room && copier_fits(run, e, e->base.length - e->next, room));
    return true;
}

/* One run, and gives back what has ended; false if there is neither. The lock is held. */
static bool copier_step(struct tei_copier *c, struct tei_copy_run *run)
{
    int64_t now = tei_now_ns();
    bool taken;

    tei_ledger_tick(&c->ledger, now);
    taken = copier_take(&c->ledger, now, run);
    if (taken) {
        copier_note(c);
        pthread_mutex_unlock(&c->lock);
        c->run(c->transport, run);
        pthread_mutex_lock(&c->lock);
        now = tei_now_ns();
        for (size_t i = 0; i < run->n; i++)
            tei_ledger_back(&c->ledger, &run->parts[i], now);
    }
    copier_note(c);
    return copier_reap(c) || taken;
}

/* Copies all of a list of short works, which nobody else has. */
static void copier_copy_here(struct tei_copier *c, struct tei_list *works)
{
    struct tei_link *link = tei_list_first(works);
    struct tei_copy_run run;

    while (link) {
        copier_begin(&run, tei_entry_of(link));
        do {
            run.parts[run.n++] = tei_part_all(tei_entry_of(link));
            link = tei_list_next(works, link);
        } while (link && copier_fits(&run, tei_entry_of(link), 0, 0));
        c->run(c->transport, &run);
        for (size_t i = 0; i < run.n; i++)
            tei_part_end(&run.parts[i]);
    }
    copier_give_back(c, works);
}

/* -------------------------------------------------------------------------------------- threads */

static void *copier_work(void *arg)
{
    struct tei_copier *c = arg;
    struct tei_copy_run run;

    pthread_mutex_lock(&c->lock);
    while (copier_step(c, &run) || !c->quit) {
        /* What is over may be for this thread to give back, where there is no watcher. */
        if (tei_ledger_first(&c->ledger) || !tei_list_empty(&c->ledger.over) || c->quit)
            continue;
        c->idle++;
        pthread_cond_wait(&c->wake, &c->lock);
        c->idle--;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Reports work that has timed out in a copy. The lock is held, but for the call. */
static bool copier_report(struct tei_copier *c, uint64_t *reported)
{
    if (c->ledger.n_stalled == *reported)
        return false;
    *reported = c->ledger.n_stalled;
    pthread_mutex_unlock(&c->lock);
    TEI_WARN("%s: a copy has stalled; its work ends when it returns", c->transport->ops.name);
    pthread_mutex_lock(&c->lock);
    return true;
}

static void *copier_watch(void *arg)
{
    struct tei_copier *c = arg;
    uint64_t reported = 0;

    pthread_mutex_lock(&c->lock);
    while (!c->quit) {
        c->watch_ns = tei_ledger_tick(&c->ledger, tei_now_ns());
        if (!copier_reap(c) && !copier_report(c, &reported))
            tei_cond_wait_until(&c->alarm, &c->lock, c->watch_ns);
    }
    copier_reap(c); /* what close() has ended; the other threads may be stuck in copies */
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/*
 * With the first work that is queued: most engines never have any. Where there can be no thread, the
 * next work tries again, and the threads that copy end what is late or cancelled meanwhile. The lock
 * is held.
 */
static void copier_start_watcher(struct tei_copier *c)
{
    char text[16];

    if (c->watched)
        return;
    snprintf(text, sizeof(text), "%s-late", c->name);
    c->watched = tei_thread_start(&c->watcher, text, copier_watch, c) == 0;
}

int tei_copier_start(struct tei_copier *c, const char *name, unsigned n)
{
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    c->name = name;
    while (!rc && c->n_threads < n && !c->closed) {
        char text[16];

        snprintf(text, sizeof(text), "%s%u", name, c->n_threads);
        rc = tei_thread_start(&c->threads[c->n_threads], text, copier_work, c);
        c->n_threads += rc == 0;
    }
    /* One is enough to go on. */
    rc = c->n_threads ? 0 : rc;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void tei_copier_init(struct tei_copier *c, int64_t no_progress_ms)
{
    pthread_mutex_init(&c->lock, NULL);
    tei_cond_init(&c->wake);
    tei_cond_init(&c->alarm);
    tei_cond_init(&c->quiet);
    tei_ledger_init(&c->ledger, no_progress_ms);
    c->watch_ns = TEI_NEVER;
    c->ready = true;
}

void tei_copier_fini(struct tei_copier *c)
{
    if (!c->ready)
        return;
    pthread_cond_destroy(&c->wake);
    pthread_cond_destroy(&c->alarm);
    pthread_cond_destroy(&c->quiet);
    pthread_mutex_destroy(&c->lock);
}

/* --------------------------------------------------------------------------------------- guests */

/* False if the copier is closed, or full. The lock is held, as for copier_go(). */
static bool copier_come(struct tei_copier *c)
{
    if (c->closed || c->guests == c->guests_max)
        return false;
    c->guests++;
    return true;
}

static void copier_go(struct tei_copier *c)
{
    if (--c->guests == 0 && c->closed)
        pthread_cond_broadcast(&c->quiet);
}

bool tei_copier_enter(struct tei_copier *c)
{
    bool in;

    pthread_mutex_lock(&c->lock);
    in = copier_come(c);
    pthread_mutex_unlock(&c->lock);
    return in;
}

void tei_copier_leave(struct tei_copier *c)
{
    pthread_mutex_lock(&c->lock);
    copier_go(c);
    pthread_mutex_unlock(&c->lock);
}

bool tei_copier_poll(struct tei_copier *c)
{
    struct tei_copy_run run;
    bool moved = false;

    /* Relaxed: a hint; the threads miss nothing. */
    if (!atomic_load_explicit(&c->waiting, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&c->lock);
    if (copier_come(c)) {
        moved = copier_step(c, &run);
        copier_go(c);
    }
    pthread_mutex_unlock(&c->lock);
    return moved;
}

/* Leaves the first short works in the list, which are copied now. Returns the bytes of the others. */
static uint64_t copier_split(struct tei_list *work, struct tei_list *later)
{
    uint64_t budget = INLINE_MAX, bytes = 0;
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(work, link, tmp) {
        uint64_t n = tei_entry_of(link)->base.length;

        if (n <= budget) {
            budget -= n;
            continue;
        }
        bytes += n;
        tei_list_del(link);
        tei_list_push_back(later, link);
    }
    return bytes;
}

/* Returns how many threads are to be woken for it. */
static unsigned copier_enqueue(struct tei_copier *c, struct tei_list *work, uint64_t bytes)
{
    uint64_t n = (bytes + TEI_COPY_CHUNK - 1) / TEI_COPY_CHUNK;

    if (tei_list_empty(work))
        return 0;
    tei_ledger_post_all(&c->ledger, work, tei_now_ns());
    copier_start_watcher(c);
    copier_note(c);
    return n < c->idle ? (unsigned)n : c->idle;
}

static void copier_wake(struct tei_copier *c, unsigned threads)
{
    while (threads--)
        pthread_cond_signal(&c->wake);
}

/*
 * The lock is held, but for waking and copying: a thread that is woken wants it at once, and the
 * guest keeps the transport here.
 */
static void copier_post_as_guest(struct tei_copier *c, struct tei_list *now, struct tei_list *later,
                                 uint64_t bytes)
{
    unsigned threads = copier_enqueue(c, later, bytes);

    pthread_mutex_unlock(&c->lock);
    copier_wake(c, threads);
    copier_copy_here(c, now);
    pthread_mutex_lock(&c->lock);
    copier_go(c);
}

void tei_copier_post(struct tei_copier *c, struct tei_list *work)
{
    struct tei_list later;
    uint64_t bytes;
    bool open;

    tei_list_init(&later);
    bytes = copier_split(work, &later);
    pthread_mutex_lock(&c->lock);
    open = !c->closed;
    if (copier_come(c)) {
        copier_post_as_guest(c, work, &later, bytes);
    } else {
        tei_list_splice(&later, work);
        if (open)
            copier_wake(c, copier_enqueue(c, &later, bytes + INLINE_MAX));
    }
    pthread_mutex_unlock(&c->lock);
    for (struct tei_link *l = tei_list_first(&later); l; l = tei_list_next(&later, l))
        tei_entry_of(l)->base.error = TE_ERR_CANCELED; /* refused */
    copier_give_back(c, &later);
}

/* --------------------------------------------------------------------------------------- ending */

/* The lock is held. */
static void copier_fail(struct tei_copier *c, const void *owner)
{
    tei_ledger_fail(&c->ledger, owner, TE_ERR_CANCELED, NULL);
    copier_note(c);
    pthread_cond_signal(c->watched ? &c->alarm : &c->wake);
}

void tei_copier_cancel(struct tei_copier *c, const void *owner)
{
    pthread_mutex_lock(&c->lock);
    copier_fail(c, owner);
    pthread_mutex_unlock(&c->lock);
}

void tei_copier_close(struct tei_copier *c)
{
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    copier_fail(c, NULL);
    pthread_mutex_unlock(&c->lock);
}

void tei_copier_stop(struct tei_copier *c)
{
    tei_copier_close(c);
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->wake);
    pthread_cond_signal(&c->alarm);
    while (c->guests)
        pthread_cond_wait(&c->quiet, &c->lock);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->n_threads; i++)
        pthread_join(c->threads[i], NULL);
    c->n_threads = 0;
    if (c->watched)
        pthread_join(c->watcher, NULL);
    c->watched = false;
    pthread_mutex_lock(&c->lock);
    copier_reap(c); /* what the last one to leave has left */
    pthread_mutex_unlock(&c->lock);
}
