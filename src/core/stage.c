/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - requests from and to memory of devices, by transports that reach host memory only; and within the
 * engine between devices of two makers, to whose target `local` moves them.
 *
 * It stands in a transport's place: submit.c posts the work here, and here it is cut into pieces of
 * at most SLOT bytes, each of which gets a slot of host memory that is pinned for the device and
 * registered with every transport:
 *
 *   WRITE   CUT -> device to slot (mover) -> slot to target (transport) -> over
 *   READ    CUT -> target to slot (transport) -> slot to device (mover) -> over
 *
 * Pieces are cut while there are slots, so both legs of a long work, and of many short ones, are
 * under way at a time. What goes to one target is a flow, which has a ledger. Flows take turns, and
 * one may have as many slots as are free: so k peers that do not answer leave 1 of k + 1 slots to the
 * others.
 *
 * One thread does all of that. Whatever ends a leg (the mover's thread, a transport's) only puts the
 * piece on `back`, so a transport is never called from inside its own work_done(), however deep. All
 * lists are under `lock`; mover, transports and the core are called with it released.
 *
 * What ends a work: its legs heed deadline, lack of progress and cancel by themselves, as the mover
 * and the transport promise; the ledger ends what waits for a slot. Memory is quiet when a work is
 * given back, since each leg's is.
 */
#include "core/stage.h"
#include "core/core.h"
#include "core/register.h"
#include "plat/plat.h"
#include "transport/mover.h"

#include <stdlib.h>

#define SLOT ((uint64_t)256 << 10)

/* Work for one target. */
struct flow {
    struct tei_link link;            /* in stage.flows */
    const struct tei_attach *attach; /* NULL: to a device of this engine itself, which is: */
    uint8_t kind;
    int device;
    struct tei_ledger ledger;
    size_t held; /* slots */
};

enum leg { LEG_DEVICE, LEG_TARGET };

struct piece {
    struct tei_link link; /* in stage.free or .back */
    struct stage *stage;
    struct flow *flow; /* NULL: free */
    char *slot;
    struct tei_part part;
    enum leg leg; /* that is under way, or has ended */
    bool told;    /* of its work's end: see cancel_missed() */
    struct tei_move move;
    _Atomic uint64_t moved; /* for both legs to add to; nobody looks */
};

struct stage {
    struct tei_transport base;
    struct tei_sink sink; /* of its pieces, where transports have them */
    te_engine *engine;
    struct tei_transport *own; /* within the engine */
    struct tei_mover *mover;
    pthread_mutex_t lock;
    pthread_cond_t wake, quiet;
    pthread_t thread;
    bool news; /* for the thread to look at */
    bool closed, quit;
    struct tei_list flows; /* that have works or slots */
    struct tei_list ended; /* works that have no flow */
    struct tei_list free, back;
    unsigned cancels; /* calls of cancel() and close() so far */
    size_t live;      /* works posted and not given back */
    int64_t look_ns;  /* no work is late before */
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

static struct stage *stage_of(struct tei_transport *t)
{
    return tei_container_of(t, struct stage, base);
}

static struct flow *flow_of(struct tei_link *l)
{
    return tei_container_of(l, struct flow, link);
}

static const struct tei_work *work_of(const struct piece *x)
{
    return &x->part.entry->base;
}

/* Lock held. */
static void wake(struct stage *s)
{
    s->news = true;
    pthread_cond_signal(&s->wake);
}

/* ------------------------------------------------------------------------------ legs; lock held */

static void end_piece(struct stage *s, struct piece *x)
{
    tei_ledger_back(&x->flow->ledger, &x->part, tei_now_ns());
    x->flow->held--;
    x->flow = NULL;
    tei_list_push_back(&s->free, &x->link);
    s->n_free++;
}

static void begin_move(struct piece *x, struct todo *todo)
{
    const struct tei_work *w = work_of(x);
    char *device = x->part.local;
    bool out = w->opcode == TE_WRITE;

    x->leg = LEG_DEVICE;
    x->move = (struct tei_move){
        .entry.base = {.owner = w->owner,
                       .moved = &x->moved,
                       .local = out ? x->slot : device,
                       .remote = (uintptr_t)(out ? device : x->slot),
                       .length = x->part.length,
                       .deadline_ns = w->deadline_ns,
                       .opcode = TE_READ}, /* to `local` */
        .kind = (enum tei_mem_kind)w->region->kind,
        .device = w->region->device,
        .flow = out ? TEI_FROM_DEVICE : TEI_TO_DEVICE,
    };
    tei_list_push_back(&todo->moves, &x->move.entry.base.link);
}

/* To the transport that moves between host memory and the target. */
static void begin_post(struct stage *s, struct piece *x, struct todo *todo)
{
    const struct tei_work *w = work_of(x);
    struct tei_transport *t = w->attach ? w->attach->transport : s->own;
    struct tei_work *p = tei_pool_get(&s->engine->transports.works[t->index]);

    if (!p) {
        x->part.error = TE_ERR_MEMORY;
        end_piece(s, x);
        s->news = true; /* its work may be over */
        return;
    }
    x->leg = LEG_TARGET;
    *p = (struct tei_work){.owner = w->owner,
                           .task = x,
                           .sink = &s->sink,
                           .transport = t,
                           .attach = w->attach,
                           .region = s->region,
                           .target_region = w->target_region,
                           .moved = &x->moved,
                           .story = w->story,
                           .trace = w->trace,
                           .key = w->key,
                           .local = x->slot,
                           .remote = x->part.remote,
                           .length = x->part.length,
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
    const struct tei_work *w = work_of(x);
    enum leg last = w->opcode == TE_WRITE ? LEG_TARGET : LEG_DEVICE;

    if (!x->part.error && x->leg != last && w->error) {
        x->part.error = w->error; /* another piece has failed, so this one is in vain */
        x->part.why = w->why;
    }
    if (x->part.error || x->leg == last)
        end_piece(s, x);
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

        if (tei_ledger_first(&f->ledger) && f->held < s->n_free)
            return f;
    }
    return NULL;
}

static void cut(struct stage *s, struct flow *f, int64_t now, struct todo *todo)
{
    struct piece *x = tei_container_of(tei_list_pop(&s->free), struct piece, link);

    s->n_free--;
    f->held++;
    tei_list_del(&f->link);
    tei_list_push_back(&s->flows, &f->link);
    x->flow = f;
    x->told = false;
    tei_ledger_take(&f->ledger, SLOT, now, &x->part);
    tei_part_waits(&x->part);
    if (work_of(x)->opcode == TE_WRITE)
        begin_move(x, todo);
    else
        begin_post(s, x, todo);
}

/* ----------------------------------------------------------------------------------- the thread */

/* Ends what is late; takes what is over, and the flows that have nothing. Lock held. */
static void end_works(struct stage *s, int64_t now, struct todo *todo)
{
    struct tei_link *l, *tmp;

    s->look_ns = TEI_NEVER;
    tei_list_splice(&todo->done, &s->ended);
    TEI_LIST_EACH(&s->flows, l, tmp) {
        struct flow *f = flow_of(l);
        int64_t look = tei_ledger_tick(&f->ledger, now);

        s->look_ns = look < s->look_ns ? look : s->look_ns;
        tei_ledger_reap(&f->ledger, &todo->done);
        if (f->held || tei_ledger_first(&f->ledger))
            continue;
        tei_list_del(l);
        free(f);
    }
}

/* Lock held. */
static void gather(struct stage *s, struct todo *todo)
{
    int64_t now = tei_now_ns();
    struct flow *f;
    struct tei_link *l;

    s->news = false;
    todo->cancels = s->cancels;
    while ((l = tei_list_pop(&s->back)))
        go_on(s, tei_container_of(l, struct piece, link), todo);
    end_works(s, now, todo);
    while ((f = next_flow(s)))
        cut(s, f, now, todo);
}

/* One owner whose work was cancelled while a leg of it was begun; NULL if there is none. */
static const void *take_missed(struct stage *s)
{
    for (size_t i = 0; i < s->n_pieces; i++) {
        struct piece *x = &s->pieces[i];

        if (x->flow && work_of(x)->error == TE_ERR_CANCELED && !x->told) {
            x->told = true;
            return work_of(x)->owner;
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
    s->base.host->work_done(s->base.host, done);
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
        while (!s->news && !s->quit && tei_now_ns() < s->look_ns)
            tei_cond_wait_until(&s->wake, &s->lock, s->look_ns);
        quit = s->quit;
        gather(s, &todo);
        pthread_mutex_unlock(&s->lock);
        carry_out(s, &todo);
    }
    return NULL;
}

/* A leg has ended, by the mover or a transport. */
static void come_back(struct piece *x, const struct tei_work *leg)
{
    struct stage *s = x->stage;

    pthread_mutex_lock(&s->lock);
    x->part.error = leg->error;
    x->part.sys_errno = leg->sys_errno;
    x->part.why = leg->why;
    x->part.entry->base.nic = leg->nic ? leg->nic : x->part.entry->base.nic;
    for (unsigned i = 0; i < leg->changes; i++)
        tei_work_changed(&x->part.entry->base);
    tei_list_push_back(&s->back, &x->link);
    wake(s);
    pthread_mutex_unlock(&s->lock);
}

static void moves_ended(void *arg, struct tei_list *moves)
{
    struct tei_link *l;

    (void)arg;
    while ((l = tei_list_pop(moves))) {
        struct tei_move *m = tei_move_of(l);

        come_back(tei_container_of(m, struct piece, move), &m->entry.base);
    }
}

/* A piece has come back from its transport. */
static void piece_done(struct tei_sink *sink, struct tei_work *w)
{
    te_engine *e = tei_container_of(sink, struct stage, sink)->engine;

    tei_metrics_staged(e, w);
    come_back(w->task, w);
    tei_pool_put(&e->transports.works[w->transport->index], w);
}

/* What is said of a piece is said of the work that it belongs to. */
static const char *piece_note(struct tei_sink *sink, const struct tei_work *w, const char *text)
{
    struct tei_host *h = tei_container_of(sink, struct stage, sink)->base.host;

    return h->note(h, work_of(w->task), text);
}

/* ---------------------------------------------------------------------------------------- calls */

/* Acquire: partner of the release with which it is shown. */
static struct stage *stage_in(const te_engine *e)
{
    struct tei_transport *t = atomic_load_explicit(&e->transports.stage, memory_order_acquire);

    return t ? stage_of(t) : NULL;
}

struct tei_region *tei_stage_region(const te_engine *e)
{
    const struct stage *s = stage_in(e);

    return s ? s->region : NULL;
}

static bool goes_to(const struct flow *f, const struct tei_work *w)
{
    const struct tei_region *own = w->target_region;

    return f->attach == w->attach && (!own || (f->kind == own->kind && f->device == own->device));
}

/* The flow to the work's target; NULL when memory is out. Lock held. */
static struct flow *find_flow(struct stage *s, const struct tei_work *w)
{
    struct flow *f;

    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l))
        if (goes_to(flow_of(l), w))
            return flow_of(l);
    f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->attach = w->attach;
    if (w->target_region) {
        f->kind = w->target_region->kind;
        f->device = w->target_region->device;
    }
    tei_ledger_init(&f->ledger, s->engine->conf.transfer_timeout_ms);
    tei_list_push_back(&s->flows, &f->link);
    return f;
}

/* Fails the works of an owner, NULL: all. Lock held. */
static void cancel(struct stage *s, const void *owner)
{
    s->cancels++;
    for (struct tei_link *l = tei_list_first(&s->flows); l; l = tei_list_next(&s->flows, l))
        tei_ledger_fail(&flow_of(l)->ledger, owner, TE_ERR_CANCELED, NULL);
    wake(s);
}

/* Lock held. */
static void take(struct stage *s, struct tei_entry *e, int64_t now)
{
    struct flow *f = find_flow(s, &e->base);

    s->live++;
    if (f) {
        tei_ledger_post(&f->ledger, e, now);
        return;
    }
    e->base.error = TE_ERR_MEMORY;
    tei_list_push_back(&s->ended, &e->base.link);
}

static void post(struct tei_transport *t, struct tei_list *work)
{
    struct stage *s = stage_of(t);
    int64_t now = tei_now_ns();
    struct tei_link *l;

    pthread_mutex_lock(&s->lock);
    while ((l = tei_list_pop(work)))
        take(s, tei_entry_of(l), now);
    if (s->closed)
        cancel(s, NULL);
    wake(s);
    pthread_mutex_unlock(&s->lock);
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
    struct tei_link *l;

    for (unsigned kind = 0; kind < TEI_MEM_KINDS; kind++)
        if (s->pinned & TEI_MEM_BIT(kind))
            tei_gpu_unpin((enum tei_mem_kind)kind, s->memory);
    if (s->memory)
        tei_mem_free(s->memory, s->length);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->quiet);
    pthread_mutex_destroy(&s->lock);
    while ((l = tei_list_pop(&s->flows)))
        free(flow_of(l));
    free(s->region);
    free(s->pieces);
    free(s);
}

void tei_stage_fini(te_engine *e)
{
    if (stage_in(e))
        free_stage(stage_in(e));
}

static struct stage *make_stage(te_engine *e)
{
    struct stage *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->engine = e;
    s->base.host = &e->host;
    s->base.index = s->base.place = TEI_STAGE_INDEX;
    s->base.ops.name = "stage";
    s->base.ops.post = post;
    s->sink = (struct tei_sink){.done = piece_done, .note = piece_note};
    s->n_pieces = e->conf.gpu_stage / SLOT;
    s->length = s->n_pieces * SLOT;
    s->look_ns = TEI_NEVER;
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
    int rc = tei_mover_start("te/mover", &s->engine->conf, moves_ended, s, &s->mover);

    if (rc)
        return rc;
    rc = tei_thread_start(&s->thread, "te/stage", run, s);
    if (rc)
        tei_mover_destroy(s->mover);
    return rc;
}

/* It is there from the first to the last. */
static struct tei_transport *find_own(const struct transports *s)
{
    size_t i = 0;

    while (!s->list[i] || !(s->list[i]->ops.caps & TEI_CAP_LOCAL_ONLY))
        i++;
    return s->list[i];
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
    s->own = find_own(&e->transports);
    pin(s, kind);
    rc = tei_register_own(e, s->memory, s->length, &s->region);
    if (rc)
        goto err_stop;
    tei_pool_init(&e->transports.works[TEI_STAGE_INDEX], sizeof(struct tei_entry));
    /* Release: partner of the acquires in stage_in() and tei_transports_carrier(). */
    atomic_store_explicit(&e->transports.stage, &s->base, memory_order_release);
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
