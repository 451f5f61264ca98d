/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence.c - te_fence: waits until nothing of WRITEs that have ended comes to their targets any more.
 *
 * doubt.c says which transports know that of a range. Each is given a work that moves nothing, and ends once what
 * was on the way to the range when it was given is settled (settle() of transport.h). WRITEs that end there later do
 * not count: without a limit of time it would never end where they fail one after the other. Where the peer has got
 * another view meanwhile, that one's transports are asked, too. Where there is no time to wait the work ends at
 * once, and has only had the target asked.
 */
#include "core/core.h"
#include "core/doubt.h"
#include "core/view.h"

#include <stdio.h>

/* One fence, of a batch or a segment. */
struct fence {
    te_engine *engine;
    int64_t deadline_ns;
    int rc; /* of the first range that is not known to be quiet */
    te_range *unsafe;
    size_t room, total;
    te_range first;
};

/* ------------------------------------------------------------------------- waiting for a range */

struct waiter {
    struct tei_sink sink;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool ended;
    int error;
};

static void waiter_done(struct tei_sink *s, struct tei_work *w)
{
    struct waiter *x = tei_container_of(s, struct waiter, sink);

    pthread_mutex_lock(&x->lock);
    x->error = w->error;
    x->ended = true;
    pthread_cond_signal(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

/* Nobody reads why. */
static const char *waiter_note(struct tei_sink *s, const struct tei_work *w, const char *text)
{
    (void)s;
    (void)w;
    (void)text;
    return NULL;
}

static int wait_for(struct waiter *x)
{
    pthread_mutex_lock(&x->lock);
    while (!x->ended)
        pthread_cond_wait(&x->cond, &x->lock);
    pthread_mutex_unlock(&x->lock);
    return x->error;
}

/* By one transport; the view is held. TE_ERR_TIMEOUT: not in time, or its target is silent for too long. */
static int settle_by(const struct fence *f, const struct via *via, struct tei_span d)
{
    struct tei_transport *t = via->transport;
    struct tei_pool *works = &f->engine->transports.works[t->index];
    struct waiter x = {.sink = {.done = waiter_done, .note = waiter_note}};
    struct tei_work *w = tei_pool_get(works);
    int rc;

    if (!w)
        return TE_ERR_MEMORY;
    *w = (struct tei_work){.owner = &x,
                           .sink = &x.sink,
                           .transport = t,
                           .attach = via->attach,
                           .remote = d.begin,
                           .length = d.end - d.begin,
                           .deadline_ns = f->deadline_ns,
                           .opcode = TE_WRITE};
    pthread_mutex_init(&x.lock, NULL);
    pthread_cond_init(&x.cond, NULL);
    t->ops.settle(t, w);
    rc = wait_for(&x);
    pthread_cond_destroy(&x.cond);
    pthread_mutex_destroy(&x.lock);
    tei_pool_put(works, w);
    return rc;
}

/* How little hope there is that asking again helps. */
static int finality(int rc)
{
    return !rc ? 0 : rc == TE_ERR_TIMEOUT ? 1 : rc == TE_ERR_PEER ? 2 : 3;
}

/* By those that `holders` has, as tei_doubts_look(). Of several reasons the most final one. */
static int settle(const struct fence *f, const struct view *v, unsigned holders, struct tei_span d)
{
    int rc = 0;

    for (size_t i = 0; i < v->n_via; i++) {
        int one = holders & 1U << i ? settle_by(f, &v->via[i], d) : 0;

        if (finality(one) > finality(rc))
            rc = one;
    }
    return rc;
}

/* The current view, held. */
static struct view *look(struct peer *p, struct tei_span d, unsigned *holders, bool *lost)
{
    struct view *v;

    pthread_mutex_lock(&p->doubts.lock);
    v = p->view;
    tei_view_hold(v, 1);
    *holders = tei_doubts_look(p, d, lost);
    pthread_mutex_unlock(&p->doubts.lock);
    return v;
}

/* 0: nothing of what had ended by now comes there any more. The caller holds a view of the peer. */
static int quiet(const struct fence *f, struct peer *p, struct tei_span d)
{
    uint64_t settled = 0; /* the view of which that is known */
    unsigned holders;
    bool lost;
    int rc;

    do {
        struct view *v = look(p, d, &holders, &lost);

        if (v->serial == settled)
            holders = 0;
        rc = lost ? TE_ERR_LINK : holders ? settle(f, v, holders, d) : TE_ERR_OK;
        if (!rc)
            settled = v->serial;
        tei_view_put(v, 1);
    } while (holders && (!rc || (rc == TE_ERR_TIMEOUT && tei_now_ns() < f->deadline_ns)));
    return rc;
}

/* ------------------------------------------------------------------------------- what is found */

static void add_unsafe(struct fence *f, te_segment seg, struct tei_span d, int rc)
{
    te_range r = {.target = seg, .target_offset = d.begin, .length = d.end - d.begin};

    if (!f->total++) {
        f->rc = rc;
        f->first = r;
    }
    if (f->total <= f->room)
        f->unsafe[f->total - 1] = r;
}

static const char *reason(int rc)
{
    switch (rc) {
    case TE_ERR_TIMEOUT:
        return "the target has not said in time that it is over; ask again";
    case TE_ERR_LINK:
        return "nobody can tell whether it is over; let the target unregister the range, or end";
    case TE_ERR_PEER:
        return "the target cannot be asked; is it running? ask again, or make sure that it has ended";
    case TE_ERR_CANCELED:
        return "the transport was closed meanwhile";
    default:
        return te_strerror(rc);
    }
}

/* Not logged: who asks in turns would fill the log. */
static int say_unknown(const struct fence *f)
{
    char name[TEI_HOSTPORT_MAX], text[TEI_HOSTPORT_MAX + 256];

    tei_peer_name(&f->engine->peers, f->first.target, name, sizeof(name));
    snprintf(text, sizeof(text),
             "%zu ranges may still change by WRITEs that have ended, first %llu bytes at 0x%llx of "
             "segment '%s': %s",
             f->total, (unsigned long long)f->first.length,
             (unsigned long long)f->first.target_offset, name, reason(f->rc));
    return tei_err_keep(f->rc, text);
}

static int verdict(const struct fence *f, size_t *total)
{
    struct counters *count = &f->engine->count;

    if (total)
        *total = f->total;
    /* Relaxed: figures. */
    atomic_fetch_add_explicit(f->total ? &count->fences_unknown : &count->fences_quiet, 1,
                              memory_order_relaxed);
    return f->total ? say_unknown(f) : 0;
}

static int begin(struct fence *f, te_engine *e, int64_t timeout_ms, te_range *unsafe, size_t n)
{
    *f = (struct fence){
        .engine = e, .deadline_ns = tei_deadline_ns(timeout_ms), .unsafe = unsafe, .room = n};
    return n && !unsafe ? TEI_FAIL(TE_ERR_INVALID, "the place for %zu ranges is NULL", n) : 0;
}

/* --------------------------------------------------------------------------------- of a segment */

static struct tei_span_set open_of(struct peer *p)
{
    struct tei_span_set s;

    pthread_mutex_lock(&p->doubts.lock);
    s = p->doubts.open;
    pthread_mutex_unlock(&p->doubts.lock);
    return s;
}

static struct tei_span_set lost_of(struct peer *p)
{
    struct tei_span_set s;

    pthread_mutex_lock(&p->doubts.lock);
    tei_doubts_prune(p);
    s = p->doubts.lost;
    pthread_mutex_unlock(&p->doubts.lock);
    return s;
}

static void fence_lost(struct fence *f, const struct peer *p, const struct tei_span_set *lost)
{
    for (size_t i = 0; i < lost->n; i++)
        add_unsafe(f, p->id, lost->v[i], TE_ERR_LINK);
}

static bool is_within(const struct tei_span_set *s, struct tei_span d)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].begin <= d.begin && d.end <= s->v[i].end)
            return true;
    return false;
}

/* The first range of both sets that goes on at `at`, or begins behind it. */
static const struct tei_span *next_of(const struct tei_span_set *const sets[2], uint64_t at)
{
    const struct tei_span *next = NULL;

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sets[k]->n; i++)
            if (sets[k]->v[i].end > at && (!next || sets[k]->v[i].begin < next->begin))
                next = &sets[k]->v[i];
    return next;
}

/*
 * What is in neither set may still be known to a transport: of an engine that was opened before by
 * another name, or by this one, and closed. So what lies between their ranges is looked at, too.
 */
static void fence_rest(struct fence *f, struct peer *p, const struct tei_span_set *open,
                       const struct tei_span_set *lost)
{
    const struct tei_span_set *const sets[] = {open, lost};
    const struct tei_span *next;
    struct tei_span d = {0, 0};

    do {
        int rc;

        next = next_of(sets, d.begin);
        d.end = next ? next->begin : UINT64_MAX;
        rc = d.begin < d.end ? quiet(f, p, d) : 0;
        if (rc)
            add_unsafe(f, p->id, d, rc);
        d.begin = next ? next->end : UINT64_MAX;
    } while (next);
}

static void fence_peer(struct fence *f, struct peer *p)
{
    struct tei_span_set open = open_of(p), lost;
    int rc[TEI_SPANS_MAX];

    for (size_t i = 0; i < open.n; i++)
        rc[i] = quiet(f, p, open.v[i]);
    lost = lost_of(p);
    for (size_t i = 0; i < open.n; i++)
        if (rc[i] && !is_within(&lost, open.v[i]))
            add_unsafe(f, p->id, open.v[i], rc[i]);
    fence_lost(f, p, &lost);
    fence_rest(f, p, &open, &lost);
}

int te_fence_segment(te_engine *e, te_segment seg, int64_t timeout_ms, te_range *unsafe, size_t n,
                     size_t *total)
{
    struct fence f;
    struct view *v;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = begin(&f, e, timeout_ms, unsafe, n);
    if (rc)
        return rc;
    v = tei_view_get(&e->peers, seg);
    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "segment %d is not open; te_open() gives its id",
                        (int)seg);
    fence_peer(&f, v->peer);
    tei_view_put(v, 1);
    return verdict(&f, total);
}

/* ----------------------------------------------------------------------------------- of a batch */

static bool is_in_doubt(const struct task *t)
{
    return t->req.opcode == TE_WRITE &&
           atomic_load_explicit(&t->state, memory_order_acquire) != TE_COMPLETED;
}

/* Whether an earlier one of pages has had all of the segment looked at. */
static bool is_covered(const struct batch *b, size_t i)
{
    const struct task *t = b->tasks;

    for (size_t k = 0; t[i].paged && k < i; k++)
        if (t[k].paged && t[k].req.target == t[i].req.target && is_in_doubt(&t[k]))
            return true;
    return false;
}

/* Of pages it is not known any more where they went: all of the segment counts. */
static void fence_task(struct fence *f, const struct task *t)
{
    struct tei_span d = {t->req.target_offset, t->req.target_offset + t->req.length};
    struct view *v = tei_view_get(&f->engine->peers, t->req.target);
    int rc = !v ? TE_ERR_LINK : t->paged ? TE_ERR_OK : quiet(f, v->peer, d);

    if (rc)
        add_unsafe(f, t->req.target, d, rc);
    else if (t->paged)
        fence_peer(f, v->peer);
    if (v)
        tei_view_put(v, 1);
}

static int fence_batch(struct fence *f, struct batch *b)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_acquire);

    if (!tei_batch_has_ended(b))
        return TEI_FAIL(TE_ERR_BUSY,
                        "batch %llu has unfinished requests; te_cancel() and te_wait() first",
                        (unsigned long long)b->id);
    atomic_fetch_add(&b->waiters, 1); /* so that te_batch_free() is not held up */
    for (size_t i = 0; i < n; i++)
        if (is_in_doubt(&b->tasks[i]) && !is_covered(b, i))
            fence_task(f, &b->tasks[i]);
    atomic_fetch_sub(&b->waiters, 1);
    return 0;
}

int te_fence(te_engine *e, te_batch id, int64_t timeout_ms, te_range *unsafe, size_t n,
             size_t *total)
{
    struct fence f;
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = begin(&f, e, timeout_ms, unsafe, n);
    if (!rc)
        rc = fence_batch(&f, b);
    tei_batch_unpin(&e->batches, id);
    return rc ? rc : verdict(&f, total);
}
