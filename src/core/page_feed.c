/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_feed.c - the work of requests of pages, a window at a time.
 *
 * A request of pages is one task, whatever the number of its pages. It is cut into pieces of work a window
 * at a time, so that a submit of very many pages takes neither long nor much memory: the first window in
 * the caller's thread, each other one by a job, once half of the last one is back. So a transport is never
 * called from inside its own work_done().
 *
 * The list's lock guards `out`, `feeding` and `ended`. Who sets `feeding` has the cursor alone until it is
 * cleared. The task is over when nothing is out, nobody feeds, and the cursor is at the end or is to go no
 * further, since there is an error; whoever finds that under the lock ends it, and the list is freed with
 * it. If the task is parked instead, it begins anew, at the first page.
 *
 * te_cancel() marks the task, waits until it has parking.repost alone, and tells the transports. A job
 * holds that, shared, from when it looks for the mark until it has posted; what it has cut before goes back
 * if the mark is there.
 */
#include "core/page_feed.h"
#include "core/complete.h"
#include "core/core.h"
#include "core/page_list.h"

enum { WINDOW = TEI_PAGES_OUT / 2 }; /* cut once no more than these are out */

static bool is_over(const struct page_list *l)
{
    return !l->out && !l->feeding && (l->ended || tei_page_list_at_end(l));
}

static void feed_job(struct tei_job *j);

/* Whether the next window is to be cut; then the caller starts that. Lock held. */
static bool wants_feed(struct page_list *l)
{
    bool wants = !l->feeding && !l->ended && !tei_page_list_at_end(l) && l->out <= WINDOW;

    l->feeding |= wants;
    return wants;
}

static void start_feed(struct page_list *l)
{
    tei_jobs_post(&l->task->batch->engine->feeds, &l->job, feed_job);
}

/* Who fed has done so, or has not been able to. */
static void stop_feeding(struct page_list *l, bool ended)
{
    bool feed, over;

    pthread_mutex_lock(&l->lock);
    l->feeding = false;
    l->ended |= ended;
    feed = wants_feed(l);
    over = is_over(l);
    pthread_mutex_unlock(&l->lock);
    if (feed)
        start_feed(l);
    if (over)
        tei_task_over(l->task);
}

void tei_page_feed_posted(struct plan *p)
{
    for (struct page_list *l = p->paged, *next; l; l = next) {
        next = l->next;
        stop_feeding(l, false);
    }
    p->paged = NULL;
}

bool tei_page_feed_back(struct task *t, size_t n)
{
    struct page_list *l = tei_page_list_of(t);
    bool feed, over;

    pthread_mutex_lock(&l->lock);
    l->out -= n;
    l->ended |= atomic_load_explicit(&t->error, memory_order_relaxed) != TE_ERR_OK;
    feed = wants_feed(l);
    over = is_over(l);
    pthread_mutex_unlock(&l->lock);
    if (feed)
        start_feed(l);
    return over;
}

/*
 * The rest will not be cut. Where the descriptor forbids it, that may be old: as one that lacks the page it
 * is fetched again, once, and the restart finds what is true.
 */
static void give_up(struct task *t, int rc)
{
    const char *note = NULL;
    char why[160];

    if (rc == TE_ERR_ACCESS && t->view->seg && t->restarts == 0)
        rc = TE_ERR_STALE;
    if ((rc == TE_ERR_UNSUPPORTED || rc == TE_ERR_BUSY) && tei_plan_is_ruled(t))
        note = tei_plan_why_unreached(t);
    else if (rc != TE_ERR_CANCELED && rc != TE_ERR_MEMORY)
        note = tei_batch_note(t->batch, tei_page_list_where(t, why, sizeof(why)));
    tei_task_fail(t, rc, 0, note);
}

static void drop_window(struct plan *p, struct page_list *l)
{
    tei_plan_drop(p);
    pthread_mutex_lock(&l->lock);
    l->out -= l->cut;
    pthread_mutex_unlock(&l->lock);
}

/* Whether it was posted: not if the task is cancelled. */
static bool post_window(struct plan *p, const struct task *t)
{
    pthread_rwlock_t *repost = &p->engine->parking.repost;
    bool canceled;

    pthread_rwlock_rdlock(repost);
    canceled = tei_task_canceled(t);
    if (!canceled)
        tei_plan_post(p);
    pthread_rwlock_unlock(repost);
    return !canceled;
}

/* Cuts and posts a window. What came back meanwhile has left it to this. */
static void feed_job(struct tei_job *j)
{
    struct page_list *l = tei_container_of(j, struct page_list, job);
    struct task *t = l->task;
    struct plan plan;
    int rc;

    tei_plan_init(&plan, t->batch->engine, t->batch, WINDOW);
    rc = tei_plan_cut_window(&plan, t, WINDOW);
    if (!post_window(&plan, t)) {
        drop_window(&plan, l);
        rc = TE_ERR_CANCELED;
    }
    if (rc)
        give_up(t, rc);
    stop_feeding(l, rc != 0);
}
