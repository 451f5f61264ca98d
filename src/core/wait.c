/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - te_wait() and te_cancel(). */
#include "core/core.h"
#include "core/stage.h"

static bool poll_transports(struct transports *s)
{
    struct tei_transport *t;
    bool moved = false;

    for (size_t i = 0; (t = tei_transports_get(s, &i, TEI_HAS_POLL)); i++) {
        moved |= t->ops.poll(t);
        tei_transports_put(s, i);
    }
    return moved;
}

/*
 * Polls transports for a bounded time: a short request then ends without a thread being
 * woken for it.
 */
static void spin(struct batch *b, int64_t deadline_ns)
{
    te_engine *e = b->engine;
    int64_t now = tei_now_ns(), end = now + (int64_t)e->conf.spin_us * 1000;

    while (atomic_load_explicit(&b->left, memory_order_acquire) && now < end && now < deadline_ns) {
        /* As long as bytes move, polling is not idle spinning. */
        if (poll_transports(&e->transports))
            end = tei_now_ns() + (int64_t)e->conf.spin_us * 1000;
        now = tei_now_ns();
    }
}

/* Whether nothing was left once: another thread may have submitted more by the time of the return. */
static bool sleep_left(struct batch *b, int64_t deadline_ns)
{
    bool in_time = true, done;

    pthread_mutex_lock(&b->wait_lock);
    while (!(done = !atomic_load(&b->left)) && in_time)
        in_time = tei_cond_wait_until(&b->wait_cond, &b->wait_lock, deadline_ns);
    pthread_mutex_unlock(&b->wait_lock);
    return done;
}

static int wait_left(struct batch *b, int64_t deadline_ns)
{
    bool done;

    if (!atomic_load_explicit(&b->left, memory_order_acquire))
        return 0;
    atomic_fetch_add(&b->waiters, 1);
    tei_drive(b, deadline_ns);
    if (atomic_load(&b->left))
        spin(b, deadline_ns);
    done = !atomic_load(&b->left) || sleep_left(b, deadline_ns) || tei_batch_has_ended(b);
    atomic_fetch_sub(&b->waiters, 1);
    return done ? 0 : TE_ERR_TIMEOUT;
}

int te_wait(te_engine *e, te_batch id, int64_t timeout_ms)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = wait_left(b, tei_deadline_ns(timeout_ms));
    tei_batch_unpin(&e->batches, id);
    if (rc)
        tei_err_keep(rc, "requests are still unfinished; they go on");
    return rc;
}

static void cancel_posted(te_engine *e, const struct batch *b)
{
    /* What was on its way from a parking place to a transport is with the transport after this. */
    pthread_rwlock_wrlock(&e->parking.repost);
    pthread_rwlock_unlock(&e->parking.repost);
    tei_stage_cancel(e, b);
    pthread_rwlock_rdlock(&e->transports.lock);
    for (size_t i = 0; i < e->transports.n; i++)
        if (e->transports.list[i])
            e->transports.list[i]->ops.cancel(e->transports.list[i], b);
    pthread_rwlock_unlock(&e->transports.lock);
}

int te_cancel(te_engine *e, te_batch id)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    /* Under this lock, so what is below the mark has been posted or parked. */
    pthread_mutex_lock(&b->submit_lock);
    atomic_store(&b->cancel_mark, atomic_load_explicit(&b->claimed, memory_order_relaxed));
    pthread_mutex_unlock(&b->submit_lock);
    tei_gates_cancel(e, b);
    tei_peer_unpark(e, b);
    cancel_posted(e, b);
    tei_batch_unpin(&e->batches, id);
    return 0;
}
