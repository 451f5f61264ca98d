/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - requests from and to memory of devices, by transports that reach host memory only.
 *
 * It stands in a transport's place: submit.c posts the work here, and here it is cut into pieces of
 * at most SLOT bytes, each of which gets a slot of host memory that is pinned for the device and
 * registered with every transport:
 *
 *   WRITE   CUT -> device to slot (mover) -> slot to target (transport) -> over
 *   READ    CUT -> target to slot (transport) -> slot to device (mover) -> over
 *
 * Pieces are cut while there are slots, so both legs of a long work, and of many short ones, are
 * under way at a time. What goes to one target is a flow. Flows take turns, and one may have as many
 * slots as are free: so k peers that do not answer leave 1 of k + 1 slots to everybody else. A work is over when none of its pieces is out and none is to be cut: all of it
 * was moved, or an error or the end of its batch has left the rest out.
 *
 * One thread does all of that. Whoever ends a leg (the mover's thread, a transport's) only puts the
 * piece on `back`, so a transport is never called from inside its own work_done(), however deep. All
 * lists are under `lock`; mover, transports and the core are called with it released.
 *
 * What ends a work: its legs heed deadline and cancel by themselves, as the mover and the transport
 * promise; what waits for a slot is ended by the thread. Memory is quiet when a work is told done,
 * since each leg's is.
 */
#include "core/core.h"
#include "plat/plat.h"
#include "transport/mover.h"

#include <assert.h>
#include <stdlib.h>

#define SLOT ((uint64_t)256 << 10)

/* Work for one target. */
struct flow {
    struct tei_link link; /* in stage.flows */
    const struct tei_attach *attach;
    struct tei_list works; /* with bytes to be cut */
    size_t held;           /* slots */
};

struct staged {
    struct tei_work base; /* as the core has cut it */
    struct flow *flow;
    uint64_t next; /* bytes cut so far */
    uint32_t out;  /* pieces */
};

enum leg { LEG_DEVICE, LEG_TARGET };

struct piece {
    struct tei_link link; /* in stage.free or .back */
    struct stage *stage;
    struct staged *work; /* NULL: free */
    char *slot;
    uint64_t at, n; /* of the work */
    enum leg leg;   /* that is under way, or has ended */
    int error, sys_errno;
    const char *why;
    bool told; /* of its work's end: see cancel_missed() */
    struct tei_move move;
    _Atomic uint64_t moved; /* for both legs to add to; nobody looks */
};

struct stage {
    struct tei_transport base;
    te_engine *engine;
    struct tei_mover *mover;
    pthread_mutex_t lock;
    pthread_cond_t wake, quiet;
    pthread_t thread;
    bool closed, quit;
    struct tei_list flows; /* that have works or slots */
    struct tei_list ended; /* works that cancel() has ended */
    struct tei_list free, back;
    unsigned cancels; /* calls of cancel() and close() so far */
    size_t live;      /* works posted and not given back */
    int64_t first_late_ns;
    char *memory;
    size_t length;
    struct tei_region *region;
    unsigned pinned; /* kinds, in bits */
    struct piece *pieces;
    size_t n_pieces, n_free;
};

/* What the thread has to do with the lock released. */
struct todo {
    struct tei_list done, moves;
    struct tei_list posts[TEI_TRANSPORTS_MAX];
    struct tei_transport *transports[TEI_TRANSPORTS_MAX];
    unsigned cancels; /* when that was decided */
};

static struct staged *staged_of(struct tei_link *l)
{
    return tei_container_of(tei_container_of(l, struct tei_work, link), struct staged, base);
}

static struct stage *stage_of(struct tei_transport *t)
{
    return tei_container_of(t, struct stage, base);
}

static struct flow *flow_of(struct tei_link *l)
{
    return tei_container_of(l, struct flow, link);
}

/* The transport that carries it between host memory and the target, which is never this engine. */
static struct tei_transport *carrier_of(const struct staged *w)
{
    assert(w->base.attach);
    return w->base.attach->transport;
}

const struct tei_work *tei_stage_work_of(const struct tei_work *piece)
{
    return &((const struct piece *)piece->task)->work->base;
}

/* ------------------------------------------------------------------------------ ends; lock held */

static bool is_over(const struct staged *w)
{
    return w->out == 0 && w->next == w->base.length;
}

static void leave_out_the_rest(struct staged *w)
{
    if (tei_link_is_in(&w->base.link))
        tei_list_del(&w->base.link);
    w->next = w->base.length;
}

/*
 * The first error stands, but for one that would let the whole request be tried again: each piece
 * must say so.
 */
static void fail(struct staged *w, int error, int sys_errno, const char *why)
{
    leave_out_the_rest(w);
    if (w->base.error && (!tei_err_is_mild(w->base.error) || tei_err_is_mild(error)))
        return;
    w->base.error = error;
    w->base.sys_errno = sys_errno;
    w->base.why = why;
}

static void end_work(struct staged *w, struct todo *todo)
{
    if (is_over(w))
        tei_list_push_back(&todo->done, &w->base.link);
}

static void end_late_of(struct stage *s, struct flow *f, int64_t now, struct todo *todo)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(&f->works, l, tmp) {
        struct staged *w = staged_of(l);

        if (w->base.deadline_ns <= now) {
            fail(w, TE_ERR_TIMEOUT, 0, NULL);
            end_work(w, todo);
        } else if (w->base.deadline_ns < s->first_late_ns) {
            s->first_late_ns = w->base.deadline_ns;
        }
    }
}

/* Ends what waits for a slot past its deadline. */
static void end_late(struct stage *s, struct todo *todo)
{
    int64_t now = tei_now_ns();

    if (now < s->first_late_ns)
        return;
    s->first_late_ns = TEI_NEVER;
    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l))
        end_late_of(s, flow_of(l), now, todo);
}

static void end_piece(struct stage *s, struct piece *x, struct todo *todo)
{
    struct staged *w = x->work;

    w->out--;
    if (x->error)
        fail(w, x->error, x->sys_errno, x->why);
    else
        atomic_fetch_add_explicit(w->base.moved, x->n, memory_order_relaxed);
    w->flow->held--;
    end_work(w, todo);
    x->work = NULL;
    tei_list_push_back(&s->free, &x->link);
    s->n_free++;
}

/* ------------------------------------------------------------------------------ legs; lock held */

static void begin_move(struct piece *x, struct todo *todo)
{
    const struct tei_work *w = &x->work->base;

    x->leg = LEG_DEVICE;
    x->move = (struct tei_move){
        /* as a READ goes: to `local` */
        .entry.base = {.owner = w->owner,
                       .moved = &x->moved,
                       .local = w->opcode == TE_WRITE ? x->slot : w->local + x->at,
                       .remote = (uintptr_t)(w->opcode == TE_WRITE ? w->local + x->at : x->slot),
                       .length = x->n,
                       .deadline_ns = w->deadline_ns,
                       .opcode = TE_READ},
        .kind = (enum tei_mem_kind)w->region->kind,
        .device = w->region->device,
        .flow = w->opcode == TE_WRITE ? TEI_FROM_DEVICE : TEI_TO_DEVICE,
    };
    tei_list_push_back(&todo->moves, &x->move.entry.base.link);
}

static void begin_post(struct stage *s, struct piece *x, struct todo *todo)
{
    const struct tei_work *w = &x->work->base;
    struct tei_transport *t = carrier_of(x->work);
    struct tei_work *p = tei_pool_get(&s->engine->works[t->index]);

    if (!p) {
        x->error = TE_ERR_MEMORY;
        end_piece(s, x, todo);
        return;
    }
    x->leg = LEG_TARGET;
    atomic_store_explicit(&x->moved, 0, memory_order_relaxed);
    *p = (struct tei_work){.owner = w->owner,
                           .task = x,
                           .transport = t,
                           .attach = w->attach,
                           .region = s->region,
                           .target_region = w->target_region,
                           .moved = &x->moved,
                           .local = x->slot,
                           .remote = w->remote + x->at,
                           .length = x->n,
                           .deadline_ns = w->deadline_ns,
                           .opcode = w->opcode};
    if (!todo->transports[t->index])
        tei_list_init(&todo->posts[t->index]);
    todo->transports[t->index] = t;
    tei_list_push_back(&todo->posts[t->index], &p->link);
}

/* A leg has ended: the other one follows, or the piece is over. */
static void go_on(struct stage *s, struct piece *x, struct todo *todo)
{
    enum leg last = x->work->base.opcode == TE_WRITE ? LEG_TARGET : LEG_DEVICE;

    if (!x->error && x->leg != last && x->work->base.error) {
        x->error = x->work->base.error; /* another piece has failed, so this one is in vain */
        x->why = x->work->base.why;
    }
    if (x->error || x->leg == last)
        end_piece(s, x, todo);
    else if (last == LEG_TARGET)
        begin_post(s, x, todo);
    else
        begin_move(x, todo);
}

/* The next flow whose turn it is; NULL if none has both bytes to be cut and slots to take. */
static struct flow *next_flow(const struct stage *s)
{
    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l)) {
        struct flow *f = flow_of(l);

        if (!tei_list_empty(&f->works) && f->held < s->n_free)
            return f;
    }
    return NULL;
}

static void cut(struct stage *s, struct flow *f, struct todo *todo)
{
    struct piece *x = tei_container_of(tei_list_pop(&s->free), struct piece, link);
    struct staged *w = staged_of(tei_list_pop(&f->works));

    s->n_free--;
    f->held++;
    tei_list_del(&f->link);
    tei_list_push_back(&s->flows, &f->link);
    x->work = w;
    x->at = w->next;
    x->n = tei_min(w->base.length - w->next, SLOT);
    x->error = x->sys_errno = 0;
    x->why = NULL;
    x->told = false;
    w->next += x->n;
    w->out++;
    /* Behind the others, so that a long work does not keep short ones waiting. */
    if (w->next < w->base.length)
        tei_list_push_back(&f->works, &w->base.link);
    if (w->base.opcode == TE_WRITE)
        begin_move(x, todo);
    else
        begin_post(s, x, todo);
}

/* ----------------------------------------------------------------------------------- the thread */

/* Whether gather() would find anything. Lock held, as for all up to the next line. */
static bool has_news(const struct stage *s)
{
    return !tei_list_empty(&s->back) || !tei_list_empty(&s->ended) || next_flow(s);
}

static void drop_flows(struct stage *s)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(&s->flows, l, tmp) {
        struct flow *f = flow_of(l);

        if (f->held || !tei_list_empty(&f->works))
            continue;
        tei_list_del(l);
        free(f);
    }
}

static void gather(struct stage *s, struct todo *todo)
{
    struct flow *f;
    struct tei_link *l;

    todo->cancels = s->cancels;
    tei_list_splice(&todo->done, &s->ended);
    while ((l = tei_list_pop(&s->back)))
        go_on(s, tei_container_of(l, struct piece, link), todo);
    end_late(s, todo);
    while ((f = next_flow(s)))
        cut(s, f, todo);
    drop_flows(s);
}

/* One owner whose work was cancelled while a leg of it was begun; NULL if there is none. */
static const void *take_missed(struct stage *s)
{
    for (size_t i = 0; i < s->n_pieces; i++) {
        struct piece *x = &s->pieces[i];

        if (x->work && x->work->base.error == TE_ERR_CANCELED && !x->told) {
            x->told = true;
            return x->work->base.owner;
        }
    }
    return NULL;
}

/*
 * What was cancelled after gather() had decided to begin a leg of it may have been handed over after
 * its mover and transport were told, so they are told again.
 */
static void cancel_missed(struct stage *s, const struct todo *todo)
{
    const void *owner;

    pthread_mutex_lock(&s->lock);
    while (s->cancels != todo->cancels && (owner = take_missed(s))) {
        pthread_mutex_unlock(&s->lock);
        tei_mover_cancel(s->mover, owner);
        for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
            if (todo->transports[i])
                todo->transports[i]->ops.cancel(todo->transports[i], owner);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

static void give_back(struct stage *s, struct tei_list *done)
{
    size_t n = 0;

    for (struct tei_link *l = tei_list_first(done); l; l = tei_list_next(done, l))
        n++;
    if (n == 0)
        return;
    tei_work_done(&s->engine->host, done);
    pthread_mutex_lock(&s->lock);
    s->live -= n;
    if (s->live == 0)
        pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
}

static void carry_out(struct stage *s, struct todo *todo)
{
    if (!tei_list_empty(&todo->moves))
        tei_mover_post(s->mover, &todo->moves);
    for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
        if (todo->transports[i])
            todo->transports[i]->ops.post(todo->transports[i], &todo->posts[i]);
    cancel_missed(s, todo);
    give_back(s, &todo->done);
}

static void *run(void *arg)
{
    struct stage *s = arg;
    bool quit = false;

    while (!quit) {
        struct todo todo = {0};

        tei_list_init(&todo.done);
        tei_list_init(&todo.moves);
        pthread_mutex_lock(&s->lock);
        while (!has_news(s) && !s->quit && tei_now_ns() < s->first_late_ns)
            tei_cond_wait_until(&s->wake, &s->lock, s->first_late_ns);
        quit = s->quit;
        gather(s, &todo);
        pthread_mutex_unlock(&s->lock);
        carry_out(s, &todo);
    }
    return NULL;
}

/* A leg has ended, whoever says so. */
static void come_back(struct piece *x, int error, int sys_errno, const char *why)
{
    x->error = error;
    x->sys_errno = sys_errno;
    x->why = why;
    tei_list_push_back(&x->stage->back, &x->link);
}

/* From the mover's thread. */
static void moves_ended(void *arg, struct tei_list *moves)
{
    struct stage *s = arg;
    struct tei_link *l;

    pthread_mutex_lock(&s->lock);
    while ((l = tei_list_pop(moves))) {
        struct tei_move *m = tei_move_of(l);

        come_back(tei_container_of(m, struct piece, move), m->entry.base.error, 0,
                  m->entry.base.why);
    }
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void tei_stage_back(te_engine *e, struct tei_work *w)
{
    struct piece *x = w->task;
    struct stage *s = x->stage;

    pthread_mutex_lock(&s->lock);
    come_back(x, w->error, w->sys_errno, w->why);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    tei_pool_put(&e->works[w->transport->index], w);
}

/* ---------------------------------------------------------------------------------------- calls */

/* Acquire: partner of the release with which it is shown. */
static struct stage *stage_in(const te_engine *e)
{
    return atomic_load_explicit(&e->stage, memory_order_acquire);
}

struct tei_transport *tei_stage_for(const te_engine *e, const struct tei_region *r,
                                    struct tei_transport *t)
{
    /* Relaxed: a transport gets its bit before there is a view with it. */
    if (r->kind == TEI_MEM_HOST ||
        (atomic_load_explicit(&r->direct, memory_order_relaxed) & (1u << t->index)))
        return t;
    return &stage_in(e)->base;
}

/* The flow to this target; NULL when memory is out. Lock held. */
static struct flow *find_flow(struct stage *s, const struct tei_attach *attach)
{
    struct flow *f;

    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l))
        if (flow_of(l)->attach == attach)
            return flow_of(l);
    f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->attach = attach;
    tei_list_init(&f->works);
    tei_list_push_back(&s->flows, &f->link);
    return f;
}

/* Lock held. */
static void take(struct stage *s, struct staged *w)
{
    w->next = 0;
    w->out = 0;
    w->flow = find_flow(s, w->base.attach);
    s->live++;
    if (!w->flow || s->closed) {
        fail(w, s->closed ? TE_ERR_CANCELED : TE_ERR_MEMORY, 0, NULL);
        tei_list_push_back(&s->ended, &w->base.link);
        return;
    }
    if (w->base.deadline_ns < s->first_late_ns)
        s->first_late_ns = w->base.deadline_ns;
    tei_list_push_back(&w->flow->works, &w->base.link);
}

static void post(struct tei_transport *t, struct tei_list *work)
{
    struct stage *s = stage_of(t);
    struct tei_link *l;

    pthread_mutex_lock(&s->lock);
    while ((l = tei_list_pop(work)))
        take(s, staged_of(l));
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void cancel_waiting(struct stage *s, struct flow *f, const void *owner)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(&f->works, l, tmp) {
        struct staged *w = staged_of(l);

        if (owner && w->base.owner != owner)
            continue;
        fail(w, TE_ERR_CANCELED, 0, NULL);
        if (is_over(w))
            tei_list_push_back(&s->ended, l);
    }
}

/* NULL: of everybody. Lock held. */
static void cancel(struct stage *s, const void *owner)
{
    s->cancels++;
    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l))
        cancel_waiting(s, flow_of(l), owner);
    for (size_t i = 0; i < s->n_pieces; i++) {
        struct piece *x = &s->pieces[i];

        if (x->work && (!owner || x->work->base.owner == owner))
            fail(x->work, TE_ERR_CANCELED, 0, NULL);
    }
    pthread_cond_signal(&s->wake);
}

void tei_stage_cancel(te_engine *e, const void *owner)
{
    struct stage *s = stage_in(e);

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    cancel(s, owner);
    pthread_mutex_unlock(&s->lock);
    tei_mover_cancel(s->mover, owner);
}

void tei_stage_close(te_engine *e)
{
    struct stage *s = stage_in(e);

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    cancel(s, NULL);
    pthread_mutex_unlock(&s->lock);
    tei_mover_close(s->mover);
}

static void stop(struct stage *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->live)
        pthread_cond_wait(&s->quiet, &s->lock);
    s->quit = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    tei_mover_destroy(s->mover);
}

void tei_stage_stop(te_engine *e)
{
    if (stage_in(e))
        stop(stage_in(e));
}

/* --------------------------------------------------------------------------------------- lifetime */

static void free_stage(struct stage *s)
{
    for (unsigned kind = 0; kind < TEI_MEM_KINDS; kind++)
        if (s->pinned & TEI_MEM_BIT(kind))
            tei_gpu_unpin((enum tei_mem_kind)kind, s->memory);
    if (s->memory)
        tei_mem_free(s->memory, s->length);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->quiet);
    pthread_mutex_destroy(&s->lock);
    drop_flows(s);
    free(s->region);
    free(s->pieces);
    free(s);
}

void tei_stage_fini(te_engine *e)
{
    if (stage_in(e))
        free_stage(stage_in(e));
    tei_pool_fini(&e->works[TEI_STAGE_INDEX]);
}

static struct stage *make_stage(te_engine *e)
{
    struct stage *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->engine = e;
    s->base.host = &e->host;
    s->base.index = TEI_STAGE_INDEX;
    s->base.ops.name = "stage";
    s->base.ops.post = post;
    s->n_pieces = e->conf.gpu_stage / SLOT;
    s->length = s->n_pieces * SLOT;
    s->first_late_ns = TEI_NEVER;
    pthread_mutex_init(&s->lock, NULL);
    tei_cond_init(&s->wake);
    tei_cond_init(&s->quiet);
    tei_list_init(&s->flows);
    tei_list_init(&s->ended);
    tei_list_init(&s->free);
    tei_list_init(&s->back);
    s->pieces = calloc(s->n_pieces, sizeof *s->pieces);
    return s;
}

/* Memory that cannot be pinned will do, more slowly. */
static void pin(struct stage *s, enum tei_mem_kind kind)
{
    if (s->pinned & TEI_MEM_BIT(kind))
        return;
    if (tei_gpu_pin(kind, s->memory, s->length) == 0)
        s->pinned |= TEI_MEM_BIT(kind);
}

static int take_memory(struct stage *s)
{
    void *memory;
    int rc = s->pieces ? tei_mem_alloc(s->length, NULL, false, &memory)
                       : TEI_FAIL(TE_ERR_MEMORY, "no memory to stage memory of devices");

    if (rc)
        return rc;
    s->memory = memory;
    s->n_free = s->n_pieces;
    for (size_t i = 0; i < s->n_pieces; i++) {
        s->pieces[i].stage = s;
        s->pieces[i].slot = s->memory + i * SLOT;
        tei_list_push_back(&s->free, &s->pieces[i].link);
    }
    return 0;
}

static int start_threads(struct stage *s)
{
    int rc =
        tei_mover_start("te/mover", s->engine->conf.transfer_timeout_ms, moves_ended, s, &s->mover);

    if (rc)
        return rc;
    rc = tei_thread_start(&s->thread, "te/stage", run, s);
    if (rc)
        tei_mover_destroy(s->mover);
    return rc;
}

/* Nobody sees it before all of it is there. */
static int begin(te_engine *e, enum tei_mem_kind kind)
{
    struct stage *s = make_stage(e);
    int rc = s ? take_memory(s) : TEI_FAIL(TE_ERR_MEMORY, "no memory to stage memory of devices");

    if (!s)
        return rc;
    if (!rc)
        rc = start_threads(s);
    if (rc)
        goto err_free;
    pin(s, kind);
    rc = tei_region_make_own(e, s->memory, s->length, &s->region);
    if (rc)
        goto err_stop;
    tei_pool_init(&e->works[TEI_STAGE_INDEX], sizeof(struct staged));
    /* Release: partners of the acquires in batch.c and stage_in(). */
    atomic_store_explicit(&e->stage_region, s->region, memory_order_release);
    atomic_store_explicit(&e->stage, s, memory_order_release);
    return 0;

err_stop:
    stop(s);
err_free:
    free_stage(s);
    return rc;
}

int tei_stage_start(te_engine *e, enum tei_mem_kind kind)
{
    struct stage *s = stage_in(e);

    if (!s)
        return begin(e, kind);
    pin(s, kind);
    return 0;
}
