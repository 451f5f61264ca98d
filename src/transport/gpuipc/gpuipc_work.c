/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_work.c - the initiator: requests on their way to the mover and back.
 *
 * A work is in a ledger, that of those that wait for their memory to be mapped or that of the others, or
 * on a list to give back. A memory that no driver maps, and a fence that says the allocation has gone, end
 * it before it begins.
 */
#include "transport/gpuipc/gpuipc.h"

#include "base/os.h"

static struct gpuipc_work *work_of(struct tei_link *link)
{
    return tei_container_of(link, struct gpuipc_work, entry.base.link);
}

/* Ends one that is in no ledger. */
static void refuse(struct gpuipc_work *w, int error, const char *why, struct tei_list *done)
{
    w->entry.base.error = error;
    w->entry.base.why = why;
    tei_list_push_back(done, &w->entry.base.link);
}

/* ------------------------------------------------------------------------------- to the mover */

static const struct gpuipc_known *known_of(const struct gpuipc_work *w)
{
    const struct tei_work *base = &w->entry.base;

    return tei_gpuipc_find((const struct gpuipc_attach *)base->attach, base->remote, base->length);
}

static void fill_move(const struct gpuipc *g, struct gpuipc_work *w)
{
    const struct tei_work *base = &w->entry.base;
    char *remote = w->memory->at + (w->piece.remote - w->memory->entry.base);
    bool within = base->region && base->region->kind == g->kind;
    bool read = base->opcode == TE_READ;

    w->move = (struct tei_move){
        .entry.base = {.owner = base->owner,
                       .moved = &w->moved,
                       .local = w->piece.local,
                       .remote = (uintptr_t)remote,
                       .length = w->piece.length,
                       .deadline_ns = base->deadline_ns,
                       .opcode = base->opcode},
        .kind = g->kind,
        .device = within ? base->region->device : w->memory->device,
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

/* The next piece of the first work, or its end. *alive: the peer that was last seen not to have ended. */
static void launch(struct gpuipc *g, struct gpuipc_work *w, int64_t now,
                   const struct gpuipc_peer **alive, struct tei_list *moves)
{
    const struct gpuipc_peer *p = w->memory->peer;

    if (p != *alive && tei_gpuipc_has_ended(p)) {
        tei_ledger_end(&g->ledger, &w->entry, TE_ERR_PEER, 0, "the target's process has ended");
    } else if (!enter(w)) {
        tei_ledger_end(&g->ledger, &w->entry, TE_ERR_STALE, 0,
                       "the target has unregistered memory of this allocation");
    } else {
        *alive = p;
        tei_ledger_take(&g->ledger, GPUIPC_PIECE, now, &w->piece);
        tei_part_waits(&w->piece);
        fill_move(g, w);
        g->under_way += w->piece.length;
        tei_list_push_back(moves, &w->move.entry.base.link);
    }
}

/* What is over goes to `done`, and lets go of its memory. */
static void reap(struct gpuipc *g, struct tei_list *done)
{
    struct tei_list over;
    struct tei_link *link;

    tei_ledger_reap(&g->unmapped, done);
    tei_list_init(&over);
    tei_ledger_reap(&g->ledger, &over);
    for (link = tei_list_first(&over); link; link = tei_list_next(&over, link))
        tei_gpuipc_unuse(g, work_of(link)->memory);
    tei_list_splice(done, &over);
}

/* Begins what may begin now, ends what is late. */
static void advance(struct gpuipc *g, int64_t now, struct tei_list *done)
{
    int64_t look_ns = tei_ledger_tick(&g->unmapped, now);
    const struct gpuipc_peer *alive = NULL; /* asked once in a call: it takes a system call */
    const struct tei_entry *e;
    struct tei_list moves;

    tei_list_init(&moves);
    tei_ledger_tick(&g->ledger, now);
    while (g->under_way < GPUIPC_WINDOW && (e = tei_ledger_first(&g->ledger)))
        launch(g, tei_container_of((struct tei_entry *)e, struct gpuipc_work, entry), now, &alive,
               &moves);
    if (!tei_list_empty(&moves))
        tei_mover_post(g->mover, &moves);
    if (look_ns < TEI_NEVER)
        tei_mover_look(g->mover, look_ns);
    reap(g, done);
}

/* Into the ledger, if its memory is mapped. */
static void begin(struct gpuipc *g, struct gpuipc_work *w, int64_t now, struct tei_list *done)
{
    struct gpuipc_memory *m = w->memory;
    int state = atomic_load_explicit(&m->state, memory_order_relaxed);

    if (g->closed) {
        refuse(w, TE_ERR_CANCELED, NULL, done);
    } else if (state == GPUIPC_UNMAPPED || state == GPUIPC_MAPPING) {
        if (state == GPUIPC_UNMAPPED)
            tei_gpuipc_want(g, m);
        w->entry.base.why = "waiting for the driver to map the target's memory";
        tei_ledger_post(&g->unmapped, &w->entry, now);
    } else if (state == GPUIPC_REFUSED) {
        refuse(w, TE_ERR_PEER, "the driver does not map the target's memory", done);
    } else {
        tei_gpuipc_use(g, m);
        w->entry.base.why = NULL;
        tei_ledger_post(&g->ledger, &w->entry, now);
    }
}

void tei_gpuipc_go_on(struct gpuipc *g, struct gpuipc_memory *m, struct tei_list *done)
{
    int64_t now = tei_now_ns();
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&g->unmapped.queue, link, tmp) {
        if (work_of(link)->memory != m)
            continue;
        tei_ledger_withdraw(&work_of(link)->entry);
        begin(g, work_of(link), now, done);
    }
    advance(g, now, done);
}

bool tei_gpuipc_is_awaited(const struct gpuipc *g, const struct gpuipc_memory *m)
{
    const struct tei_list *all = &g->unmapped.queue;
    struct tei_link *link = tei_list_first(all);

    while (link && work_of(link)->memory != m)
        link = tei_list_next(all, link);
    return link;
}

static bool is_allowed(const struct gpuipc_work *w)
{
    const struct tei_work *base = &w->entry.base;
    const struct gpuipc_attach *a = (const struct gpuipc_attach *)base->attach;
    unsigned access = base->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;

    if (tei_segment_allows(&a->ranges, base->remote, base->length, access) != 0)
        return false;
    return !a->peer->own ||
           tei_gpuipc_table_allows(a->peer->own, base->remote, base->length, access);
}

/* Takes one that was posted. */
static void take(struct gpuipc *g, struct gpuipc_work *w, int64_t now, struct tei_list *done)
{
    const struct gpuipc_known *k = known_of(w);

    w->memory = k ? k->memory : NULL;
    if (k && is_allowed(w))
        begin(g, w, now, done);
    else
        refuse(w, TE_ERR_STALE, "the range is in no allocation that the target shares for this",
               done);
}

/* Gives back what is done, and starts the jobs. Lock held; released here. */
static void leave(struct gpuipc *g, struct tei_list *done)
{
    unsigned jobs = tei_gpuipc_claim_jobs(g);

    pthread_mutex_unlock(&g->lock);
    tei_gpuipc_start_jobs(g, jobs);
    if (done && !tei_list_empty(done))
        g->base.host->work_done(g->base.host, done);
}

void tei_gpuipc_post(struct tei_transport *t, struct tei_list *work)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    int64_t now = tei_now_ns();
    struct tei_list done;
    struct tei_link *link;

    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    g->guests++;
    while ((link = tei_list_pop(work)))
        take(g, work_of(link), now, &done);
    advance(g, now, &done);
    leave(g, &done);
    pthread_mutex_lock(&g->lock);
    if (--g->guests == 0)
        pthread_cond_broadcast(&g->quiet);
    pthread_mutex_unlock(&g->lock);
}

/* -------------------------------------------------------------------------------- from the mover */

static void end_piece(struct gpuipc *g, struct gpuipc_work *w, int64_t now)
{
    struct gpuipc_row *row = w->memory->peer->row;

    if (row)
        tei_gpuipc_leave(row, w->side);
    g->under_way -= w->piece.length;
    w->piece.error = w->move.entry.base.error;
    w->piece.why = w->move.entry.base.why;
    tei_ledger_back(&g->ledger, &w->piece, now);
}

void tei_gpuipc_ended(void *arg, struct tei_list *moves)
{
    struct gpuipc *g = arg;
    int64_t now = tei_now_ns();
    struct tei_list done;
    struct tei_link *link;

    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    while ((link = tei_list_pop(moves)))
        end_piece(g, tei_container_of(tei_move_of(link), struct gpuipc_work, move), now);
    advance(g, now, &done);
    leave(g, &done);
}

/* --------------------------------------------------------------------------------- cancel, close */

/* What is over is given back by a job, since this may not. Lock held. */
static void cancel_here(struct gpuipc *g, const void *owner)
{
    tei_ledger_fail(&g->ledger, owner, TE_ERR_CANCELED, NULL);
    tei_ledger_fail(&g->unmapped, owner, TE_ERR_CANCELED, NULL);
    reap(g, &g->over);
}

void tei_gpuipc_cancel(struct tei_transport *t, const void *owner)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    pthread_mutex_lock(&g->lock);
    cancel_here(g, owner);
    tei_mover_cancel(g->mover, owner);
    leave(g, NULL);
}

void tei_gpuipc_close(struct tei_transport *t)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    pthread_mutex_lock(&g->lock);
    g->closed = true;
    cancel_here(g, NULL);
    if (g->mover)
        tei_mover_close(g->mover);
    leave(g, NULL);
}
