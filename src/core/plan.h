/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - requests on their way to the transports. */
#ifndef TEI_PLAN_H
#define TEI_PLAN_H

#include "base/pool.h"
#include "core/batch.h"
#include "core/transports.h"
#include "core/view.h"

struct plan {
    te_engine *engine;
    struct batch *batch;
    struct group *group;
    int64_t deadline_ns;
    /* the region that tasks hold which were claimed last: how many holds are not counted on it yet */
    struct tei_region *region;
    uint32_t owed;
    uint32_t used; /* bits by place: which of the next four are set */
    struct tei_list lists[TEI_CARRIERS];
    struct tei_transport *transports[TEI_CARRIERS];
    struct tei_pool_free *spare[TEI_CARRIERS]; /* work taken from the pools in bulk */
    size_t n_spare[TEI_CARRIERS];
    const struct tei_segment *segment; /* in which `buffer` was found last; NULL: none was */
    const struct tei_buffer *buffer;
    size_t expect;            /* requests still to come: how much to take at a time */
    struct tei_list unposted; /* tasks without work: empty ones and those to be parked */
    struct page_list *paged;  /* of the tasks of pages that were cut */
    bool staged;              /* some of the task goes through host memory */
    bool ruled;               /* the requests have rules of their own, see rules.h */
    bool again; /* they had been posted before: by another transport is a change of path */
};
void tei_plan_init(struct plan *p, te_engine *e, struct batch *b, size_t expect);
/*
 * Finds the target range of t->req in t->view and cuts the work: on 0 the pieces are on
 * lists[transport index] and t->left is set. TE_ERR_STALE or TE_ERR_ACCESS when the view does not
 * have it, TE_ERR_UNSUPPORTED when no transport carries it, TE_ERR_BUSY when one would that the rules do not allow,
 * TE_ERR_NOT_REGISTERED when this engine is the target, TE_ERR_MEMORY.
 */
int tei_plan_cut(struct plan *p, struct task *t);
/* Whether te_paths say anything of a task, or of its segment. */
bool tei_plan_is_ruled(const struct task *t);
/* Why a task could not be cut: TE_ERR_UNSUPPORTED or TE_ERR_BUSY. Lives as long as its batch. */
const char *tei_plan_why_unreached(const struct task *t);
/* Whether the range lies in one buffer of the view that allows it. */
bool tei_plan_is_whole(struct plan *p, const struct view *v, const te_request *r);
/*
 * Cuts the next pages of a task of pages: `room` pieces at most, and fewer where many pages are looked
 * at for them. An error leaves the cursor behind the page that has it.
 */
int tei_plan_cut_window(struct plan *p, struct task *t, uint32_t room);
/* Gives back what was cut of a task, which no other has been cut after. */
void tei_plan_uncut(struct plan *p, const struct task *t);
/* What can be said of request number i without looking at anything else. */
int tei_request_check(const te_request *r, size_t i);
/* Counts the holds that are owed. */
static inline void tei_plan_count(struct plan *p)
{
    /* Relaxed: who unregisters looks at the count with regions.lock held exclusively. */
    if (p->owed)
        atomic_fetch_add_explicit(&p->region->local_users, p->owed, memory_order_relaxed);
    p->owed = 0;
}
/*
 * One more hold on a region that cannot go meanwhile, because regions.lock is held or a hold is
 * counted. Counted at the latest by tei_plan_count().
 */
static inline void tei_plan_hold(struct plan *p, struct tei_region *r)
{
    if (r != p->region)
        tei_plan_count(p);
    p->region = r;
    p->owed++;
}
/* Fills in a task, all but the request. One by one: of a struct this large gcc makes a slow loop. */
static inline void tei_plan_claim(const struct plan *p, struct task *t, struct view *v,
                                  struct tei_region *r)
{
    atomic_init(&t->state, TE_WAITING);
    t->restarts = 0;
    t->paged = false;
    t->sample = 0;
    atomic_init(&t->left, 0);
    atomic_init(&t->path, 0);
    atomic_init(&t->error, TE_ERR_OK);
    t->sys_errno = 0;
    t->why = NULL;
    atomic_init(&t->moved, 0);
    t->batch = p->batch;
    t->group = p->group;
    t->view = v;
    t->region = r;
    t->deadline_ns = p->deadline_ns;
    t->link = (struct tei_link){0};
}
/*
 * Puts a task on its way, whose view and region are held. `via` carries it in one piece; NULL: what
 * does is to be found. What is said of an error calls it request i.
 */
int tei_plan_task(struct plan *p, struct task *t, size_t i, const struct via *via);
/* Lets go of what a task holds that was not posted. */
void tei_plan_release(struct task *t);
/* Hands all work to the transports. tei_page_feed_posted() is to follow. */
void tei_plan_post(struct plan *p);
/* Gives all work back unposted, and what is left over. */
void tei_plan_drop(struct plan *p);

#endif
