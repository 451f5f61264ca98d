/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - the end of work, of tasks, of batches.
 *
 * A task counts its pieces of work in `left`, one of pages in its list (page_feed.c); tei_work_done() takes
 * finished pieces back, folds the first error into the task and, when none is left, ends it: publishes its state with release
 * (partner: the acquire in te_status) and counts it off its batch. The batch's own `left` reaching
 * 0 is the one place that wakes waiters and tells the event fd.
 *
 * A waiter announces itself in `waiters` before it looks at `left`, the finisher brings `left` to 0
 * before it looks at `waiters`; both sequentially consistent, so at least one of them sees the
 * other and no wake-up is lost.
 */
#include "core/complete.h"
#include "base/probe.h"
#include "core/core.h"
#include "core/group.h"
#include "core/lease.h"
#include "core/page_feed.h"
#include "core/page_list.h"
#include "core/path.h"
#include "core/slow.h"
#include "core/view.h"

#define RESTARTS 4 /* of a request, at most */
#define FITS(name, number, class, text) \
    static_assert((number) <= 0 && (number) >= INT16_MIN, "task.error holds it");
TE_ERR_MAP(FITS)
#undef FITS

/* Counts requests that are about to be posted; one of them may be due to be timed. */
static void count_begun(te_engine *e, struct task *tasks, size_t n)
{
    uint64_t before = atomic_fetch_add_explicit(&e->count.submitted, n, memory_order_relaxed);

    if (before + n > atomic_load_explicit(&e->metrics.due, memory_order_relaxed))
        tei_metrics_sample(e, tasks, before, n);
}

void tei_batch_begin(struct batch *b, size_t n)
{
    size_t first;

    if (atomic_fetch_add(&b->left, n) == 0)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    /* Release: a thread that reads `claimed` sees the tasks filled in. */
    first = atomic_fetch_add_explicit(&b->claimed, n, memory_order_release);
    TEI_PROBE4(submit, b->engine, b->id, &b->tasks[first], n);
    if (b->stories)
        tei_slow_begin(&b->tasks[first], n);
    count_begun(b->engine, &b->tasks[first], n);
}

static void wake_waiters(struct batch *b)
{
    pthread_mutex_lock(&b->wait_lock);
    if (b->driver && !pthread_equal(b->driver->thread, pthread_self()))
        tei_waker_ring(&b->driver->waker);
    pthread_cond_broadcast(&b->wait_cond);
    pthread_mutex_unlock(&b->wait_lock);
}

/* The newest is in front; the oldest is done first. */
static void end_chain(struct group *first, bool failed)
{
    struct group *oldest = NULL;

    for (struct group *g = first, *next; g; g = next) {
        next = g->next;
        g->next = oldest;
        oldest = g;
    }
    for (struct group *g = oldest, *next; g; g = next) {
        next = g->next;
        tei_group_done(g, 1, failed);
    }
}

static struct group *last_of(struct group *g)
{
    while (g->next)
        g = g->next;
    return g;
}

/* Puts a chain, which ends with `last`, in front of what waits. */
static void push_after(struct batch *b, struct group *first, struct group *last)
{
    last->next = atomic_load(&b->after);
    while (!atomic_compare_exchange_weak(&b->after, &last->next, first))
        continue;
}

/*
 * Does what waits for the batch, if nothing is unfinished. Who pushes one looks at `left` after, who
 * brings `left` to 0 looks at `after` then; both sequentially consistent, so one of them sees it. They
 * are taken before `left` is looked at: what was submitted before one that was taken is counted
 * in it. Where that is not 0 they go back, and it is looked at again.
 */
static void end_after(struct batch *b)
{
    while (atomic_load(&b->after) && atomic_load(&b->left) == 0) {
        struct group *first = atomic_exchange(&b->after, NULL);

        if (!first)
            return;
        if (atomic_load(&b->left) == 0)
            end_chain(first, atomic_load(&b->first_bad) != 0);
        else
            push_after(b, first, last_of(first));
    }
}

void tei_batch_after(struct batch *b, struct group *g)
{
    push_after(b, g, g);
    end_after(b);
}

/* `n` tasks of the batch became terminal. */
static void finish_tasks(struct batch *b, size_t n)
{
    if (atomic_fetch_sub(&b->left, n) != n)
        return;
    end_after(b);
    if (atomic_load_explicit(&b->engine->events.armed, memory_order_acquire))
        tei_events_tell(&b->engine->events, b);
    if (atomic_load(&b->waiters))
        wake_waiters(b);
    tei_batch_put(b);
}

static int state_of(const struct task *t, int error)
{
    switch (error) {
    case TE_ERR_OK:
        return TE_COMPLETED;
    case TE_ERR_STALE:
    case TE_ERR_ACCESS:
        return TE_INVALID;
    case TE_ERR_CANCELED:
        return TE_CANCELED;
    case TE_ERR_TIMEOUT:
        /* Lack of progress is a failure; only a deadline that the caller set is a TIMEOUT. */
        return t->deadline_ns == TEI_NEVER ? TE_FAILED : TE_TIMEOUT;
    default:
        return TE_FAILED;
    }
}

static void note_failure(struct task *t)
{
    struct batch *b = t->batch;
    int none = 0, mine = (int)(t - b->tasks) + 1;

    atomic_compare_exchange_strong_explicit(&b->first_bad, &none, mine, memory_order_release,
                                            memory_order_relaxed);
}

/*
 * Tasks of one batch that end together, a chain by task.link. The holds of a run of them go, and
 * their figures are added, in one step each; only then are their states published, since who sees a
 * terminal state may unregister the memory.
 */
struct ending {
    struct batch *batch;
    struct view *view; /* of the last n_view tasks, still held for them */
    size_t n_view;
    struct ended of_view;      /* what they add to the figures of its peer */
    struct tei_region *region; /* likewise */
    uint32_t n_region;
    struct tei_link *first;
    uint32_t n;
    uint64_t bytes;
};

/* Counted before the view goes, since the peer may then be closed. */
static void let_go_view(struct ending *g, struct view *next)
{
    if (g->n_view)
        tei_metrics_ended(g->batch->engine, g->view, &g->of_view);
    if (g->view && g->n_view)
        tei_view_put(g->view, g->n_view);
    g->view = next;
    g->n_view = 0;
}

static void let_go_region(struct ending *g, struct tei_region *next)
{
    if (g->region && g->n_region)
        tei_region_release_local(g->region, g->n_region);
    g->region = next;
    g->n_region = 0;
}

static void add_ending(struct ending *g, struct task *t)
{
    int error = atomic_load_explicit(&t->error, memory_order_acquire);

    if (!g->n)
        *g = (struct ending){.batch = t->batch};
    if (t->view != g->view)
        let_go_view(g, t->view);
    if (t->region != g->region)
        let_go_region(g, t->region);
    g->n_view++;
    g->n_region++;
    t->link.next = g->first;
    g->first = &t->link;
    g->n++;
    if (error) {
        g->of_view.failed[t->req.opcode]++;
        note_failure(t);
        tei_metrics_failed(t->batch->engine, t, error);
    } else {
        atomic_store_explicit(&t->moved, t->req.length, memory_order_relaxed);
        g->of_view.completed[t->req.opcode]++;
        g->of_view.bytes[t->req.opcode] += t->req.length;
    }
    g->bytes += atomic_load_explicit(&t->moved, memory_order_relaxed);
    TEI_PROBE4(complete, t, error, t->req.opcode, t->req.length);
    if (t->batch->stories)
        tei_slow_ended(t, error);
}

/* What follows the requests is told last: whom it wakes sees all of them terminal. */
static void publish_end(struct task *t)
{
    struct group *group = t->group;
    int error = atomic_load_explicit(&t->error, memory_order_relaxed);

    t->link.next = NULL;
    t->region = NULL;
    t->view = NULL;
    if (t->paged)
        tei_page_list_free(tei_page_list_of(t));
    /* Release: partner of the acquire in te_status(). */
    atomic_store_explicit(&t->state, (uint8_t)state_of(t, error), memory_order_release);
    if (group)
        tei_group_done(group, 1, error != 0);
}

/* Ends the tasks that were gathered. The batch may be gone after it. */
static void end_together(struct ending *g)
{
    if (!g->n)
        return;
    let_go_region(g, NULL);
    let_go_view(g, NULL);
    atomic_fetch_add_explicit(&g->batch->bytes, g->bytes, memory_order_relaxed);
    for (struct tei_link *l = g->first, *next; l; l = next) {
        next = l->next;
        publish_end(tei_container_of(l, struct task, link));
    }
    finish_tasks(g->batch, g->n);
    g->n = 0;
}

void tei_task_end(struct task *t, int error, const char *why)
{
    struct ending one = {0};

    t->why = why;
    t->sys_errno = 0;
    atomic_store_explicit(&t->error, (int16_t)error, memory_order_relaxed);
    tei_metrics_unsample(t);
    add_ending(&one, t);
    end_together(&one);
}

bool tei_task_canceled(const struct task *t)
{
    const struct batch *b = t->batch;

    return (size_t)(t - b->tasks) < atomic_load(&b->cancel_mark) ||
           atomic_load_explicit(&b->engine->closing, memory_order_relaxed);
}

/* ----------------------------------------------------------------------------------------- work */

const char *tei_work_note(struct tei_host *h, const struct tei_work *w, const char *text)
{
    const struct task *t = w->task;

    (void)h;
    return w->sink ? w->sink->note(w->sink, w, text) : tei_batch_note(t->batch, text);
}

/*
 * The target refused the range, or could not be reached before a byte was sent: what we know of it
 * may be old; so it may if a peer is known as one that looks at no keys. One refresh is due then, and another one
 * where another engine has come in the target's place meanwhile, RESTARTS at most, after which the whole request
 * starts again; that is safe, since all its attempts are over and moved the same bytes.
 */
static bool wants_refresh(const struct task *t, int error)
{
    bool may_be_old =
        tei_err_is_mild(error) || (error == TE_ERR_UNSUPPORTED && tei_lease_key_of(t));

    return may_be_old && t->view->seg && !tei_task_canceled(t) &&
           (t->restarts == 0 || (t->restarts < RESTARTS && tei_view_is_replaced(t->view)));
}

void tei_task_fail(struct task *t, int error, int sys_errno, const char *why)
{
    pthread_mutex_t *lock = &t->batch->wait_lock;
    int was;

    pthread_mutex_lock(lock);
    was = atomic_load_explicit(&t->error, memory_order_relaxed);
    if (was == TE_ERR_OK || (tei_err_is_mild(was) && !tei_err_is_mild(error))) {
        atomic_store_explicit(&t->error, (int16_t)error, memory_order_relaxed);
        t->sys_errno = (int16_t)sys_errno;
        t->why = why;
    }
    pthread_mutex_unlock(lock);
}

/* Folds one finished piece into its task; true if it was the last. */
static bool fold(struct tei_work *w)
{
    struct task *t = w->task;

    if (w->target_region)
        tei_region_release_local(w->target_region, 1);
    if (w->error) {
        tei_doubts_note(t->view, w); /* first: who sees the task end may ask for a fence */
        tei_task_fail(t, w->error, w->sys_errno, w->why);
    }
    if (w->nic | w->changes)
        tei_path_went(t, w);
    if (w->story)
        tei_story_carried(w->story, w->transport->ops.name);
    /* Of pages the list counts, in runs. */
    if (t->paged)
        return false;
    /*
     * Acquire-release: the last one sees what all others folded in. Who holds the only piece left
     * need not count: nobody else can.
     */
    return atomic_load_explicit(&t->left, memory_order_acquire) == 1 ||
           atomic_fetch_sub_explicit(&t->left, 1, memory_order_acq_rel) == 1;
}

/* All pieces of the task are back: it ends, true; or is parked for another go, false. */
static bool ends_now(struct task *t)
{
    int error = atomic_load_explicit(&t->error, memory_order_relaxed);

    if (!wants_refresh(t, error)) {
        /* Too late for this one, but the next should know whether the peer is another by now. */
        if ((error == TE_ERR_LINK || error == TE_ERR_PROTOCOL) && t->view->seg)
            tei_peer_refresh(t->view->peer);
        return true;
    }
    atomic_store_explicit(&t->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&t->state, TE_PENDING, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->batch->engine->metrics.restarts, 1, memory_order_relaxed);
    TEI_PROBE2(restart, t, error);
    tei_peer_park(t->view->peer, t);
    return false;
}

void tei_task_over(struct task *t)
{
    struct ending one = {0};

    if (!ends_now(t))
        return;
    tei_metrics_unsample(t);
    add_ending(&one, t);
    end_together(&one);
}

/* Work of one transport is freed in bulk, tasks end in runs. */
struct sweep {
    te_engine *engine;
    size_t index;
    struct tei_pool_free *first;
    size_t n;
    struct returned returned; /* the n, in figures */
    struct ending ending;
    struct task *paged; /* of pages, to which n_paged pieces have come back */
    size_t n_paged;
};

static void flush_works(struct sweep *s)
{
    if (!s->n)
        return;
    tei_pool_put_many(&s->engine->transports.works[s->index], s->first, s->n);
    tei_metrics_carried(s->engine, &s->returned);
    s->first = NULL;
    s->n = 0;
}

static void end_one(struct sweep *s, struct task *t)
{
    if (!ends_now(t))
        return;
    if (t->sample)
        tei_metrics_sampled(s->engine, t, s->returned.place);
    if (t->batch != s->ending.batch)
        end_together(&s->ending);
    add_ending(&s->ending, t);
}

static void flush_paged(struct sweep *s, struct task *next)
{
    struct task *t = s->paged;
    size_t n = s->n_paged;

    s->paged = next;
    s->n_paged = 0;
    if (t && tei_page_feed_back(t, n))
        end_one(s, t);
}

static void sweep_one(struct sweep *s, struct tei_work *w)
{
    struct tei_pool_free *f = (struct tei_pool_free *)(void *)w;
    struct task *t = w->task;
    size_t index = w->transport->index;
    bool paged = t->paged, last = fold(w);

    if (index != s->index)
        flush_works(s);
    s->index = index;
    tei_metrics_return(s->engine, &s->returned, w);
    f->next = s->first;
    s->first = f;
    s->n++;
    if (last)
        end_one(s, t);
    if (!paged)
        return;
    if (t != s->paged)
        flush_paged(s, t);
    s->n_paged++;
}

void tei_work_done(struct tei_host *h, struct tei_list *done)
{
    struct sweep s = {.engine = tei_host_engine(h)};
    struct tei_link *l;

    while ((l = tei_list_pop(done))) {
        struct tei_work *w = tei_container_of(l, struct tei_work, link);

        if (w->sink)
            w->sink->done(w->sink, w);
        else
            sweep_one(&s, w);
    }
    flush_paged(&s, NULL);
    flush_works(&s);
    end_together(&s.ending);
}
