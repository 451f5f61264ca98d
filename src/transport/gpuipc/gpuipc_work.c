/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_work.c - the initiator: requests on their way to the mover and back.
 *
 * A work is with the memory that it waits for, with the mover, or on a list to give back. A memory
 * that no driver maps, and a fence that says the allocation has gone, end it before it begins.
 */
#include "transport/gpuipc/gpuipc.h"

#include "base/os.h"

#include <string.h>

static struct gpuipc_work *work_of(struct tei_link *link)
{
    return tei_container_of(link, struct gpuipc_work, base.link);
}

static void let_go(struct gpuipc *g, struct gpuipc_work *w)
{
    if (w->uses)
        tei_gpuipc_unuse(g, w->memory);
    w->uses = false;
}

static void end(struct gpuipc *g, struct gpuipc_work *w, int error, const char *why,
                struct tei_list *done)
{
    let_go(g, w);
    w->base.error = error;
    w->base.why = why;
    tei_list_push_back(done, &w->base.link);
}

/* ------------------------------------------------------------------------------- to the mover */

static const struct gpuipc_known *known_of(const struct gpuipc_work *w)
{
    return tei_gpuipc_find((const struct gpuipc_attach *)w->base.attach, w->base.remote,
                           w->base.length);
}

static void fill_move(const struct gpuipc *g, struct gpuipc_work *w)
{
    char *remote = w->memory->at + (w->base.remote - w->memory->entry.base) + w->at;
    bool within = w->base.region && w->base.region->kind == g->kind;
    bool read = w->base.opcode == TE_READ;

    w->move = (struct tei_move){
        .entry.base = {.owner = w->base.owner,
                       .moved = w->base.moved,
                       .local = w->base.local + w->at,
                       .remote = (uintptr_t)remote,
                       .length = tei_min(w->base.length - w->at, GPUIPC_PIECE),
                       .deadline_ns = w->base.deadline_ns,
                       .opcode = w->base.opcode},
        .kind = g->kind,
        .device = within ? w->base.region->device : w->memory->device,
        .flow = within ? TEI_WITHIN
                : read ? TEI_FROM_DEVICE
                       : TEI_TO_DEVICE,
    };
}

/* Whether the owner still has it; what has entered must leave. */
static bool enter(struct gpuipc_work *w)
{
    const struct gpuipc_peer *p = w->memory->peer;
    const struct gpuipc_known *k = known_of(w);

    if (k->stale)
        return false;
    return !p->row || tei_gpuipc_enter(p->page, p->row, k->slot, k->generation, &w->side);
}

/* Gives the work's next piece to the mover, lets it wait for its memory, or ends it. */
static void launch(struct gpuipc *g, struct gpuipc_work *w, struct tei_list *moves,
                   struct tei_list *done)
{
    struct gpuipc_memory *m = w->memory;
    int state = atomic_load_explicit(&m->state, memory_order_relaxed);

    if (g->closed || w->canceled) {
        end(g, w, TE_ERR_CANCELED, NULL, done);
    } else if (state == GPUIPC_UNMAPPED || state == GPUIPC_MAPPING) {
        if (state == GPUIPC_UNMAPPED)
            tei_gpuipc_want(g, m);
        tei_list_push_back(&m->waiting, &w->base.link);
    } else if (state == GPUIPC_REFUSED) {
        end(g, w, TE_ERR_PEER, "the driver does not map the target's memory", done);
    } else if (tei_gpuipc_has_ended(m->peer)) {
        end(g, w, TE_ERR_PEER, "the target's process has ended", done);
    } else if (!enter(w)) {
        end(g, w, TE_ERR_STALE, "the target has unregistered memory of this allocation", done);
    } else {
        if (!w->uses)
            tei_gpuipc_use(g, m);
        w->uses = true;
        fill_move(g, w);
        g->under_way += w->move.entry.base.length;
        tei_list_push_back(&g->flying, &w->base.link);
        tei_list_push_back(moves, &w->move.entry.base.link);
    }
}

/* The mover alone knows when a deadline has passed, so it has such work at once. */
static bool must_be_held(const struct gpuipc *g, const struct gpuipc_work *w)
{
    return w->base.deadline_ns == TEI_NEVER && !g->closed && !w->canceled &&
           (g->under_way >= GPUIPC_WINDOW || !tei_list_empty(&g->held));
}

static void begin(struct gpuipc *g, struct gpuipc_work *w, struct tei_list *moves,
                  struct tei_list *done)
{
    if (must_be_held(g, w))
        tei_list_push_back(&g->held, &w->base.link);
    else
        launch(g, w, moves, done);
}

static void give_to_mover(struct gpuipc *g, struct tei_list *moves)
{
    if (!tei_list_empty(moves))
        tei_mover_post(g->mover, moves);
}

void tei_gpuipc_go_on(struct gpuipc *g, struct gpuipc_memory *m, struct tei_list *done)
{
    struct tei_list moves, all;
    struct tei_link *link;

    tei_list_init(&moves);
    tei_list_init(&all);
    tei_list_splice(&all, &m->waiting);
    while ((link = tei_list_pop(&all)))
        begin(g, work_of(link), &moves, done);
    give_to_mover(g, &moves);
}

static bool is_allowed(const struct gpuipc_work *w)
{
    const struct gpuipc_attach *a = (const struct gpuipc_attach *)w->base.attach;
    unsigned access = w->base.opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;

    if (tei_segment_allows(&a->ranges, w->base.remote, w->base.length, access) != 0)
        return false;
    return !a->peer->own ||
           tei_gpuipc_table_allows(a->peer->own, w->base.remote, w->base.length, access);
}

/* Takes one that was posted. */
static void take(struct gpuipc *g, struct gpuipc_work *w, struct tei_list *moves,
                 struct tei_list *done)
{
    const struct gpuipc_known *k = known_of(w);

    w->memory = k ? k->memory : NULL;
    w->canceled = w->uses = false;
    w->at = 0;
    memset(&w->move, 0, sizeof(w->move));
    if (k && is_allowed(w))
        begin(g, w, moves, done);
    else
        end(g, w, TE_ERR_STALE, "the range is in no allocation that the target shares for this",
            done);
}

void tei_gpuipc_post(struct tei_transport *t, struct tei_list *work)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    struct tei_list moves, done;
    struct tei_link *link;
    unsigned jobs;

    tei_list_init(&moves);
    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    g->guests++;
    while ((link = tei_list_pop(work)))
        take(g, work_of(link), &moves, &done);
    give_to_mover(g, &moves);
    jobs = tei_gpuipc_claim_jobs(g);
    pthread_mutex_unlock(&g->lock);
    tei_gpuipc_start_jobs(g, jobs);
    if (!tei_list_empty(&done))
        t->host->work_done(t->host, &done);
    pthread_mutex_lock(&g->lock);
    if (--g->guests == 0)
        pthread_cond_broadcast(&g->quiet);
    pthread_mutex_unlock(&g->lock);
}

/* -------------------------------------------------------------------------------- from the mover */

/* A piece has ended; whether the work has. */
static bool finish(struct gpuipc *g, struct gpuipc_work *w)
{
    struct gpuipc_row *row = w->memory->peer->row;
    const struct tei_work *piece = &w->move.entry.base;

    if (row)
        tei_gpuipc_leave(row, w->side);
    tei_list_del(&w->base.link);
    g->under_way -= piece->length;
    w->at += piece->length;
    w->base.error = piece->error;
    w->base.why = piece->why;
    if (!piece->error && w->at < w->base.length)
        return false;
    let_go(g, w);
    return true;
}

/* What may begin now. */
static void refill(struct gpuipc *g, struct tei_list *done)
{
    struct tei_list moves;
    struct tei_link *link;

    tei_list_init(&moves);
    while (g->under_way < GPUIPC_WINDOW && (link = tei_list_pop(&g->held)))
        launch(g, work_of(link), &moves, done);
    give_to_mover(g, &moves);
}

void tei_gpuipc_ended(void *arg, struct tei_list *moves)
{
    struct gpuipc *g = arg;
    struct tei_list next, done;
    struct tei_link *link;
    unsigned jobs;

    tei_list_init(&next);
    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    while ((link = tei_list_pop(moves))) {
        struct gpuipc_work *w = tei_container_of(tei_move_of(link), struct gpuipc_work, move);

        if (finish(g, w))
            tei_list_push_back(&done, &w->base.link);
        else
            begin(g, w, &next, &done);
    }
    give_to_mover(g, &next);
    refill(g, &done);
    jobs = tei_gpuipc_claim_jobs(g);
    pthread_mutex_unlock(&g->lock);
    if (!tei_list_empty(&done))
        g->base.host->work_done(g->base.host, &done);
    tei_gpuipc_start_jobs(g, jobs);
}

/* --------------------------------------------------------------------------------- cancel, close */

/* What is in the list, the owner's or all, is over; a job says so, since this may not. Lock held. */
static void cancel_list(struct gpuipc *g, struct tei_list *list, const void *owner, bool all)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(list, link, tmp) {
        if (!all && work_of(link)->base.owner != owner)
            continue;
        tei_list_del(link);
        end(g, work_of(link), TE_ERR_CANCELED, NULL, &g->over);
    }
}

/* What is not with the mover ends, and what is begins no further piece. Lock held. */
static void cancel_here(struct gpuipc *g, const void *owner, bool all)
{
    struct tei_link *link, *tmp;

    cancel_list(g, &g->held, owner, all);
    for (struct gpuipc_peer *p = g->peers; p; p = p->hh.next)
        for (struct gpuipc_memory *m = p->memory; m; m = m->hh.next)
            cancel_list(g, &m->waiting, owner, all);
    TEI_LIST_EACH(&g->flying, link, tmp) {
        if (all || work_of(link)->base.owner == owner)
            work_of(link)->canceled = true;
    }
}

void tei_gpuipc_cancel(struct tei_transport *t, const void *owner)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    unsigned jobs;

    pthread_mutex_lock(&g->lock);
    cancel_here(g, owner, false);
    tei_mover_cancel(g->mover, owner);
    jobs = tei_gpuipc_claim_jobs(g);
    pthread_mutex_unlock(&g->lock);
    tei_gpuipc_start_jobs(g, jobs);
}

void tei_gpuipc_close(struct tei_transport *t)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    unsigned jobs;

    pthread_mutex_lock(&g->lock);
    g->closed = true;
    cancel_here(g, NULL, true);
    if (g->mover)
        tei_mover_close(g->mover);
    jobs = tei_gpuipc_claim_jobs(g);
    pthread_mutex_unlock(&g->lock);
    tei_gpuipc_start_jobs(g, jobs);
}
