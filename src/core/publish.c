/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.c - telling the directory when our descriptor changes.
 *
 * A directory that stores nothing (P2P) is told nothing: peers fetch the text from us (descriptor.c).
 *
 * A store wants the whole descriptor at each change, so a thousand registrations cost a thousand
 * growing puts. As long as the descriptor is small, or the call has brought a good part of it, that
 * is cheap, and te_register() returns only when the store has it: publishers queue up on
 * their lock, one puts, and the put covers everybody who came before it began. Else the put moves
 * to te/aux: at most one is under way and at most one waits, so any number of registrations cost few
 * puts. A peer that meets a range its copy lacks asks this engine itself, so it does not depend on
 * the store being up to date.
 *
 * A put that fails in the background is tried again after a pause that doubles, until the store
 * takes it; one that is too large for the store waits for a change.
 */
#include "core/publish.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#define SYNC_REGIONS   2048
#define SYNC_PART      8 /* a call that changes 1/8 of all regions may wait for the store */
#define RETRY_FIRST_MS 500
#define RETRY_MAX_MS   30000

/* One put of what is true now; `covers` is the version that the store has after it. */
static int put_now(te_engine *e, uint64_t *covers)
{
    char *text;
    size_t len;
    int rc;

    *covers = atomic_load_explicit(&e->descriptor.version, memory_order_acquire);
    rc = tei_descriptor_text(e, NULL, 0, 0, &text, &len);
    if (rc)
        return rc;
    rc = e->dir->ops->publish(e->dir, e->name, text, len);
    free(text);
    return rc;
}

/* Announces where that is due, and puts; nothing while another engine has our name. */
static int tell_store(te_engine *e, bool announce, uint64_t *covers)
{
    int rc = 0;

    *covers = atomic_load_explicit(&e->descriptor.version, memory_order_acquire);
    if (tei_keep_is_taken(&e->keeper))
        return 0;
    if (announce)
        rc = e->dir->ops->announce(e->dir, e->name, &e->addr);
    if (!rc)
        rc = put_now(e, covers);
    tei_keep_note_put(e, rc);
    return rc == TE_ERR_EXISTS ? 0 : rc; /* ours come back when keep.c finds the others gone */
}

/*
 * Puts, as the only one; publisher.lock is held and dropped meanwhile. Where it is due it also tells
 * again where we are, which a server that was started empty has lost. Nothing is put once the
 * engine is closing: stop() waits for the stretch in which `publishing` is set.
 */
static int put_alone(te_engine *e)
{
    bool announce = e->publisher.announce_due;
    uint64_t covers;
    int rc;

    if (atomic_load(&e->closing))
        return TE_ERR_CLOSED;
    e->publisher.publishing = true;
    e->publisher.announce_due = false;
    pthread_mutex_unlock(&e->publisher.lock);
    rc = tell_store(e, announce, &covers);
    pthread_mutex_lock(&e->publisher.lock);
    e->publisher.publishing = false;
    e->publisher.tried = covers;
    e->publisher.tried_rc = rc;
    if (rc)
        e->publisher.announce_due = true; /* who knows what it has lost when it is back */
    else if (!e->publisher.announce_due)
        e->publisher.published = covers;
    pthread_cond_broadcast(&e->publisher.cond);
    return rc;
}

static void publish_job(struct tei_job *j);

static void post_job(te_engine *e)
{
    bool queue;

    pthread_mutex_lock(&e->publisher.lock);
    queue = !e->publisher.queued && !atomic_load_explicit(&e->closing, memory_order_relaxed);
    e->publisher.queued |= queue;
    pthread_mutex_unlock(&e->publisher.lock);
    if (queue)
        tei_jobs_post(&e->jobs, &e->publisher.job, publish_job);
}

static void on_retry(struct tei_timer *t)
{
    post_job(tei_container_of(t, te_engine, publisher.timer));
}

static int64_t next_pause(int64_t ms)
{
    return ms ? (int64_t)tei_min((size_t)ms * 2, RETRY_MAX_MS) : RETRY_FIRST_MS;
}

static bool is_behind(te_engine *e)
{
    return e->publisher.announce_due ||
           e->publisher.published <
               atomic_load_explicit(&e->descriptor.version, memory_order_acquire);
}

static void publish_job(struct tei_job *j)
{
    te_engine *e = tei_container_of(j, te_engine, publisher.job);
    int64_t pause_ms;
    int rc = 0;

    pthread_mutex_lock(&e->publisher.lock);
    while (e->publisher.publishing)
        pthread_cond_wait(&e->publisher.cond, &e->publisher.lock);
    /* From here on a new change queues a new job. */
    e->publisher.queued = false;
    if (is_behind(e))
        rc = put_alone(e);
    pause_ms =
        rc && rc != TE_ERR_TOO_LARGE && rc != TE_ERR_CLOSED ? next_pause(e->publisher.retry_ms) : 0;
    e->publisher.retry_ms = pause_ms;
    pthread_mutex_unlock(&e->publisher.lock);
    if (pause_ms)
        tei_ctl_timer(e, &e->publisher.timer, tei_now_ns() + pause_ms * TEI_NS_PER_MS, on_retry);
}

void tei_publish_later(te_engine *e)
{
    if (e->dir->ops->stores)
        post_job(e);
}

void tei_publish_changed(struct tei_host *h)
{
    te_engine *e = tei_host_engine(h);

    atomic_fetch_add_explicit(&e->descriptor.version, 1, memory_order_acq_rel);
    tei_publish_later(e);
}

void tei_publish_again(te_engine *e)
{
    pthread_mutex_lock(&e->publisher.lock);
    e->publisher.announce_due = true;
    pthread_mutex_unlock(&e->publisher.lock);
    post_job(e);
}

int tei_publish_now(te_engine *e)
{
    int rc = 0;

    if (!e->dir->ops->stores)
        return 0;
    pthread_mutex_lock(&e->publisher.lock);
    while (e->publisher.publishing)
        pthread_cond_wait(&e->publisher.cond, &e->publisher.lock);
    e->publisher.announce_due = true;
    rc = put_alone(e);
    pthread_mutex_unlock(&e->publisher.lock);
    return rc;
}

int tei_publish(te_engine *e, size_t n)
{
    uint64_t mine = atomic_load_explicit(&e->descriptor.version, memory_order_acquire);
    bool waited = false;
    int rc = 0;

    if (!e->dir->ops->stores)
        return 0;
    if (e->regions.n > SYNC_REGIONS && n < e->regions.n / SYNC_PART) {
        post_job(e);
        return 0;
    }
    pthread_mutex_lock(&e->publisher.lock);
    while (e->publisher.publishing && e->publisher.published < mine) {
        pthread_cond_wait(&e->publisher.cond, &e->publisher.lock);
        waited = true;
    }
    /* A try that was for this change, too, has failed for all who waited for it. */
    if (e->publisher.published < mine && waited && e->publisher.tried >= mine &&
        e->publisher.tried_rc)
        rc = tei_err_keep(e->publisher.tried_rc,
                          "the metadata server does not take this engine's descriptor; "
                          "the log says why");
    else if (e->publisher.published < mine)
        rc = put_alone(e);
    pthread_mutex_unlock(&e->publisher.lock);
    return rc;
}

/* Waits for the put under way; none begins after it, since the engine is closing. */
static void stop(struct publisher *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->publishing)
        pthread_cond_wait(&s->cond, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Best effort: the store may be away, and each try has its deadline. */
void tei_publish_withdraw(te_engine *e)
{
    atomic_store(&e->closing, true);
    stop(&e->publisher);
    if (e->publisher.announced)
        e->dir->ops->withdraw(e->dir, e->name);
    e->publisher.announced = false;
}

void tei_publisher_init(struct publisher *p)
{
    pthread_mutex_init(&p->lock, NULL);
    tei_cond_init(&p->cond);
}

void tei_publisher_fini(struct publisher *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->cond);
}
