/* SPDX-License-Identifier: Apache-2.0 */
/*
 * park.c - requests that wait for a fresh descriptor of their peer.
 *
 * A request whose range the view lacks, that the target refused, or whose target could not be reached, gets one
 * fresh descriptor, and another one if that was of an engine which is no more, either. It waits in `parked`; one
 * job per peer (te/aux) moves all of `parked` to `fetching`, fetches, swaps the view and routes them anew. What parks meanwhile
 * waits for the next fetch, since the one under way may have read the old state. A task that is
 * cancelled or passes its deadline is taken off either list by whoever notices, under the lock.
 */
#include "core/park.h"
#include "base/probe.h"
#include "core/core.h"
#include "core/complete.h"
#include "core/page_feed.h"
#include "core/life.h"
#include "core/page_list.h"
#include "core/plan.h"
#include "core/slow.h"
#include "core/view.h"

#include <stdio.h>
#include <string.h>

#define EXPIRE_EVERY_NS (10 * TEI_NS_PER_MS)
#define REFUSED_NS      (10 * TEI_NS_PER_MS) /* between two fetches because nobody listens */

static void count_parked(struct parking *s, size_t n)
{
    atomic_fetch_sub_explicit(&s->parked, n, memory_order_relaxed);
}

/* Ends a list of tasks taken off their peer. */
static void end_all(te_engine *e, struct tei_list *tasks, int error, const char *why)
{
    struct tei_link *l;

    while ((l = tei_list_pop(tasks))) {
        count_parked(&e->parking, 1);
        tei_task_end(tei_container_of(l, struct task, link), error, why);
    }
}

/* Ends tasks because of an error of the fetch, which `why` tells. */
static void end_unfetched(te_engine *e, struct tei_list *tasks, int error, const char *why)
{
    struct tei_link *l;

    while ((l = tei_list_pop(tasks))) {
        struct task *t = tei_container_of(l, struct task, link);
        const char *note = error == TE_ERR_CANCELED ? NULL : tei_batch_note(t->batch, why);

        count_parked(&e->parking, 1);
        tei_task_end(t, error, note);
    }
}

/* Buffers that touch count as one. */
static const char *why_stale(const struct task *t)
{
    const struct tei_segment *seg = t->view->seg;
    const struct tei_buffer *last;
    uint64_t done = 0, part;
    size_t at = 0;
    char text[512];

    if (t->view->over) {
        tei_life_text(t->view, text, sizeof(text));
        return tei_batch_note(t->batch, text);
    }
    if (t->paged) {
        int n = snprintf(text, sizeof(text), "not registered by its owner: ");

        tei_page_list_where(t, text + n, sizeof(text) - (size_t)n);
        return tei_batch_note(t->batch, text);
    }
    if (seg->files)
        return "its files end before that";
    while (done < t->req.length &&
           tei_segment_cover(seg, t->req.target_offset + done, t->req.length - done, &at, &part))
        done += part;
    if (done == 0 && t->batch->engine->conf.identity)
        return "its owner has not registered the range, or for other peers alone; te_register() it at the target, or "
               "have this engine named there";
    if (done == 0)
        return "its owner has not registered the range";
    last = &seg->buffers[at];
    snprintf(text, sizeof(text),
             "region 0x%llx + %llu ends %llu bytes before the end of the range; ask for less, or "
             "te_register() more at the target",
             (unsigned long long)last->addr, (unsigned long long)last->length,
             (unsigned long long)(t->req.length - done));
    return tei_batch_note(t->batch, text);
}

/* Cuts a task, without an errmsg: why it cannot be is told with the task. */
static int cut_again(struct plan *plan, struct task *t, const char **why)
{
    int rc = tei_task_canceled(t) ? TE_ERR_CANCELED : tei_plan_cut(plan, t);

    /* What is there for a transport that is not here is not missing there. */
    if (rc == TE_ERR_STALE && t->view->n_via == 0 && t->view->seg->offsets)
        rc = TE_ERR_UNSUPPORTED;
    *why = rc == TE_ERR_STALE                              ? why_stale(t)
           : rc == TE_ERR_UNSUPPORTED || rc == TE_ERR_BUSY ? tei_plan_why_unreached(t)
                                                           : NULL;
    return rc;
}

/* Cuts and posts tasks by the peer's current view. */
static void post_again(struct peer *p, struct tei_list *tasks)
{
    struct plan plan;
    struct tei_link *l;

    tei_plan_init(&plan, p->engine, NULL, 1);
    plan.again = true;
    while ((l = tei_list_pop(tasks))) {
        struct task *t = tei_container_of(l, struct task, link);
        struct view *old = t->view;
        const char *why;
        int rc;

        count_parked(&p->engine->parking, 1);
        t->view = tei_view_current(p);
        tei_view_put(old, 1);
        atomic_store_explicit(&t->error, TE_ERR_OK, memory_order_relaxed);
        atomic_store_explicit(&t->state, TE_WAITING, memory_order_relaxed);
        if (t->batch->stories)
            tei_slow_posted(t);
        if (t->sample)
            tei_metrics_posted(t);
        rc = cut_again(&plan, t, &why);
        if (rc)
            tei_task_end(t, rc, why);
    }
    tei_plan_post(&plan);
    tei_page_feed_posted(&plan);
}

/* Those for which another engine's descriptor had come before the fetch. */
static void pick_replaced(struct tei_list *from, struct tei_list *to)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(from, l, tmp) {
        if (!tei_view_is_replaced(tei_container_of(l, struct task, link)->view))
            continue;
        tei_list_del(l);
        tei_list_push_back(to, l);
    }
}

/*
 * The tasks that the fetch was for go on, or end for reason rc. From the moment they leave the list
 * until they are with a transport they hold up te_cancel(), which would miss them in both places.
 */
static bool settle_fetched(struct peer *p, int rc, const char *why)
{
    te_engine *e = p->engine;
    struct tei_list tasks, others;
    bool more;

    tei_list_init(&tasks);
    tei_list_init(&others);
    pthread_rwlock_rdlock(&e->parking.repost);
    pthread_mutex_lock(&p->lock);
    tei_list_splice(&tasks, &p->fetching);
    more = !tei_list_empty(&p->parked) || p->again;
    p->refreshing = more;
    p->fetched = p->fetches;
    pthread_mutex_unlock(&p->lock);
    if (rc && rc != TE_ERR_CANCELED)
        pick_replaced(&tasks, &others);
    if (rc)
        end_unfetched(e, &tasks, rc, why);
    post_again(p, rc ? &others : &tasks);
    pthread_rwlock_unlock(&e->parking.repost);
    return more;
}

static void refresh_job(struct tei_job *j)
{
    struct peer *p = tei_container_of(j, struct peer, job);
    int rc;

    do {
        pthread_mutex_lock(&p->lock);
        tei_list_splice(&p->fetching, &p->parked);
        p->again = false;
        p->fetches++;
        pthread_mutex_unlock(&p->lock);
        rc = atomic_load_explicit(&p->engine->closing, memory_order_relaxed)
                 ? TE_ERR_CANCELED
                 : tei_peer_fetch(p, false);
        /* It is the directory that was late, or lost its connection, not the request. */
        if (rc == TE_ERR_TIMEOUT || rc == TE_ERR_LINK)
            rc = TE_ERR_PEER;
    } while (settle_fetched(p, rc, te_errmsg()));
    tei_peer_put(p);
}

/* Starts the job unless it runs; the lock is held. */
static bool begin_refresh(struct peer *p)
{
    if (p->refreshing)
        return false;
    p->refreshing = true;
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return true;
}

static void on_park_timer(struct tei_timer *t);

/* It has been counted, and no descriptor can help it any more. */
static void end_unparked(struct peer *p, struct task *t, int error)
{
    struct view *v = error == TE_ERR_STALE ? tei_view_current(p) : NULL;
    const char *note = NULL;
    char text[512];

    if (v) {
        tei_life_text(v, text, sizeof(text));
        note = tei_batch_note(t->batch, text);
        tei_view_put(v, 1);
    }
    count_parked(&p->engine->parking, 1);
    tei_task_end(t, error, note);
}

void tei_peer_park(struct peer *p, struct task *t)
{
    te_engine *e = p->engine;
    bool start = false;
    int error;

    t->restarts++;
    TEI_PROBE2(park, t, p->name);
    if (t->batch->stories)
        tei_slow_parked(t);
    /*
     * Counted before it is looked at, both in the one order of all such accesses, as te_cancel()
     * marks before it looks at the count: one of the two gets the task.
     */
    atomic_fetch_add(&e->parking.parked, 1);
    pthread_mutex_lock(&p->lock);
    error = tei_task_canceled(t) ? TE_ERR_CANCELED : p->view && p->view->over ? TE_ERR_STALE : 0;
    if (!error) {
        tei_list_push_back(&p->parked, &t->link);
        start = begin_refresh(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (error) {
        end_unparked(p, t, error);
        return;
    }
    /* Which watches deadlines as long as anything is parked. */
    tei_ctl_timer(e, &e->parking.timer, tei_now_ns() + EXPIRE_EVERY_NS, on_park_timer);
    if (start)
        tei_jobs_post(&e->fetches, &p->job, refresh_job);
}

/* Moves what is cancelled, or past `now`, or everything, off one list. */
static void pick_off(struct tei_list *from, struct tei_list *to, const struct batch *b,
                     int64_t now_ns)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(from, l, tmp) {
        struct task *t = tei_container_of(l, struct task, link);

        if (now_ns ? t->deadline_ns > now_ns : (b && (t->batch != b || !tei_task_canceled(t))))
            continue;
        tei_list_del(l);
        tei_list_push_back(to, l);
    }
}

/* now_ns 0: those of `b` that are cancelled (NULL: all); else those whose deadline has passed. */
static void take_parked(te_engine *e, const struct batch *b, int64_t now_ns, struct tei_list *out)
{
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers.lock);
    for (size_t i = 0; (p = tei_peer_from(&e->peers, &i));) {
        pthread_mutex_lock(&p->lock);
        pick_off(&p->parked, out, b, now_ns);
        pick_off(&p->fetching, out, b, now_ns);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_rwlock_unlock(&e->peers.lock);
}

static const char waiting[] = "waiting for its descriptor";

void tei_peer_unpark(te_engine *e, const struct batch *b)
{
    struct tei_list out;

    if (atomic_load(&e->parking.parked) == 0)
        return;
    tei_list_init(&out);
    take_parked(e, b, 0, &out);
    end_all(e, &out, TE_ERR_CANCELED, waiting);
}

static void end_late_job(struct tei_job *j)
{
    te_engine *e = tei_container_of(j, te_engine, parking.job);
    struct tei_list late;

    tei_list_init(&late);
    pthread_mutex_lock(&e->ctl.lock);
    tei_list_splice(&late, &e->parking.late);
    e->parking.ending = false;
    pthread_mutex_unlock(&e->ctl.lock);
    end_all(e, &late, TE_ERR_TIMEOUT, waiting);
}

/* On te/ctl, under its lock. What follows the end of a request may need that lock, so a job ends those that are late. */
static void on_park_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, parking.timer);
    struct parking *s = &e->parking;

    if (atomic_load(&s->parked) == 0 || atomic_load(&e->closing))
        return;
    take_parked(e, NULL, tei_now_ns(), &s->late);
    if (!tei_list_empty(&s->late) && !s->ending) {
        s->ending = true;
        tei_jobs_post(&e->feeds, &s->job, end_late_job);
    }
    tei_timer_set(&e->ctl.loop, t, tei_now_ns() + EXPIRE_EVERY_NS, on_park_timer);
}
/* -------------------------------------------------------------------------------------- refresh */

uint64_t tei_peer_refresh(struct peer *p)
{
    te_engine *e = p->engine;
    uint64_t number;
    bool start;

    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&p->lock);
    start = begin_refresh(p);
    p->again = !start; /* the fetch under way may have read the old state */
    number = p->fetches + 1;
    pthread_mutex_unlock(&p->lock);
    if (start)
        tei_jobs_post(&e->fetches, &p->job, refresh_job);
    return number;
}

/* Connections that are refused together ask once; who asks during a fetch is served by that, or asks again. */
void tei_peer_refused(struct tei_host *h, const struct tei_attach *a)
{
    struct peer *p = a->peer;
    te_engine *e = p->engine;
    int64_t now = tei_now_ns();
    bool start;

    (void)h;
    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return;
    pthread_mutex_lock(&p->lock);
    start = now >= p->refused_until_ns && begin_refresh(p);
    if (start)
        p->refused_until_ns = now + REFUSED_NS;
    pthread_mutex_unlock(&p->lock);
    if (start)
        tei_jobs_post(&e->fetches, &p->job, refresh_job);
}

bool tei_peer_refreshed(struct peer *p, uint64_t number)
{
    bool yes;

    pthread_mutex_lock(&p->lock);
    yes = p->fetched >= number;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

void tei_peer_refresh_all(te_engine *e)
{
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers.lock);
    for (size_t i = 1; (p = tei_peer_from(&e->peers, &i));)
        tei_peer_refresh(p);
    pthread_rwlock_unlock(&e->peers.lock);
}

static void on_refresh_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, parking.refresh);

    tei_peer_refresh_all(e);
    tei_parking_start(e);
}

void tei_peer_changed(void *arg, const char *name)
{
    te_engine *e = arg;
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers.lock);
    HASH_FIND_STR(e->peers.by_name, name, p);
    if (p)
        tei_peer_refresh(p);
    for (size_t i = 1; e->peers.n_lives && (p = tei_peer_from(&e->peers, &i));)
        if (p->one_life && strcmp(p->name, name) == 0)
            tei_peer_refresh(p);
    pthread_rwlock_unlock(&e->peers.lock);
}

/* ------------------------------------------------------------------------------------- lifetime */

void tei_parking_init(struct parking *s)
{
    pthread_rwlock_init(&s->repost, NULL);
    tei_list_init(&s->late);
}

void tei_parking_start(te_engine *e)
{
    if (e->conf.metadata_refresh_s > 0)
        tei_timer_set(&e->ctl.loop, &e->parking.refresh,
                      tei_now_ns() + e->conf.metadata_refresh_s * TEI_NS_PER_S, on_refresh_timer);
}

void tei_parking_fini(struct parking *s)
{
    pthread_rwlock_destroy(&s->repost);
}
