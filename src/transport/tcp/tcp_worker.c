/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_worker.c - a thread, its loop and its lock.
 *
 * Callbacks of the loop run with the worker's lock held, by the worker's thread or by one that
 * polls. They must neither call back into the core nor log. Work that has finished gathers in
 * `done` and a line to log in `note`; whoever lets go of the lock (tei_tcp_worker_leave,
 * after_turn) delivers both.
 *
 * A thread under load takes its lock again a moment after letting go of it, and one that waits for
 * the lock might never get in between. Hence the turnstile: who must have the lock waits for it
 * holding the turnstile, and the worker's thread passes through the turnstile between two turns if
 * anybody is there. Those who can do without the lock only try for it.
 *
 * Lateness is watched by one timer per worker. It is armed for the first moment at which anything
 * now under way could be late, and looks at everything when it fires. It is not moved when a piece
 * ends in time, so that the usual case costs nothing; it then fires once, finds out how long there
 * still is, or that there is nothing to watch and stays off.
 */
#include "transport/tcp/tcp_peer.h"
#include "transport/tcp/tcp_device.h"

#include "base/err.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void after_turn(struct tei_loop *loop);

int tei_tcp_worker_init(struct tcp_worker *w, struct tcp *t, unsigned index)
{
    int rc;

    w->t = t;
    w->index = index;
    w->sink = malloc(TCP_SINK);
    if (!w->sink)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for worker %u", index);
    tei_list_init(&w->bundles);
    tei_list_init(&w->idle);
    tei_list_init(&w->serving);
    tei_list_init(&w->sources);
    tei_list_init(&w->done);
    tei_list_init(&w->hushed);
    tei_list_init(&w->looks);
    pthread_mutex_init(&w->turnstile, NULL);
    pthread_mutex_init(&w->lock, NULL);
    w->ready = true;
    rc = tei_loop_init(&w->loop, &w->lock);
    if (rc)
        return rc;
    w->loop.after_turn = after_turn;
    return tei_loop_set_aside(&w->loop, 2); /* watchdog and hush_timer */
}

int tei_tcp_worker_start(struct tcp_worker *w)
{
    char name[16];

    w->loop.spin_ns = (int64_t)w->t->conf->tcp_spin_us * 1000;
    snprintf(name, sizeof name, "te/tcp%u", w->index);
    return tei_loop_start(&w->loop, name);
}

void tei_tcp_worker_fini(struct tcp_worker *w)
{
    if (!w->ready)
        return;
    tei_loop_fini(&w->loop);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->turnstile);
    free(w->sink);
    free(w->closed);
    tei_tcp_staging_fini(w);
}

/* --------------------------------------------------------------------------- lock and hand-over */

void tei_tcp_worker_enter(struct tcp_worker *w)
{
    /* Relaxed: a thread that misses it here sees it a turn later. */
    atomic_fetch_add_explicit(&w->waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&w->turnstile);
    pthread_mutex_lock(&w->lock);
    pthread_mutex_unlock(&w->turnstile);
    atomic_fetch_sub_explicit(&w->waiting, 1, memory_order_relaxed);
}

bool tei_tcp_worker_try(struct tcp_worker *w)
{
    return pthread_mutex_trylock(&w->lock) == 0;
}

void tei_tcp_worker_leave(struct tcp_worker *w)
{
    char note[sizeof w->note];
    enum te_log_level level = w->note_level;
    struct tei_list done;

    tei_list_init(&done);
    tei_list_splice(&done, &w->done);
    note[0] = '\0';
    if (w->note[0])
        snprintf(note, sizeof note, "%s", w->note);
    w->note[0] = '\0';
    pthread_mutex_unlock(&w->lock);
    if (note[0])
        TEI_LOG(level, "%s", note);
    tei_tcp_give_back(w->t, &done);
}

static void after_turn(struct tei_loop *loop)
{
    struct tcp_worker *w = tei_container_of(loop, struct tcp_worker, loop);
    bool waiting = atomic_load_explicit(&w->waiting, memory_order_relaxed) > 0;

    if (tei_list_empty(&w->done) && !w->note[0] && !waiting)
        return;
    tei_tcp_worker_leave(w);
    if (waiting) {
        pthread_mutex_lock(&w->turnstile);
        pthread_mutex_unlock(&w->turnstile);
    }
    pthread_mutex_lock(&w->lock);
}

void tei_tcp_worker_note(struct tcp_worker *w, enum te_log_level level, const char *fmt, ...)
{
    va_list ap;

    if (!tei_log_wants(level) || (w->note[0] && level <= w->note_level))
        return;
    w->note_level = level;
    va_start(ap, fmt);
    vsnprintf(w->note, sizeof w->note, fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------------------------- watchdog */

static void on_watchdog(struct tei_timer *t)
{
    struct tcp_worker *w = tei_container_of(t, struct tcp_worker, watchdog);
    int64_t now = tei_now_ns(), next = tei_tcp_sessions_tick(w, now);
    int64_t unused = tei_tcp_staging_tick(w, now);
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&w->bundles, n, tmp) {
        struct tcp_bundle *b = tei_container_of(n, struct tcp_bundle, link);
        int64_t at = tei_tcp_bundle_tick(b, now);

        if (at < next)
            next = at;
    }
    if (unused < next)
        next = unused;
    if (next < now + TCP_TICK_NS)
        next = now + TCP_TICK_NS;
    tei_tcp_worker_arm(w, next);
}

void tei_tcp_worker_arm(struct tcp_worker *w, int64_t when_ns)
{
    if (when_ns == TEI_NEVER || (w->watchdog.slot && w->watchdog.when_ns <= when_ns))
        return;
    tei_timer_set(&w->loop, &w->watchdog, when_ns, on_watchdog);
}
