/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - counting and timing requests; metrics.h tells how. */
#include "core/metrics.h"
#include "core/core.h"
#include "core/view.h"

#define SAMPLE_EACH_NS (1 * TEI_NS_PER_MS)  /* samples that come quicker become fewer */
#define SAMPLE_SLOW_NS (16 * TEI_NS_PER_MS) /* those that come slower become more */
#define INTERVAL_MAX   ((UINT64_C(1) << 20) - 1)
#define STUCK_NS       (10 * TEI_NS_PER_S) /* a request that takes longer may lose its slot */
#define BUSY           ((struct task *)(uintptr_t)1) /* owner of a slot that is being filled in */

static_assert(METRICS_CARRIERS == TEI_CARRIERS, "a shard has a place for each carrier");
static_assert(METRICS_SLOTS <= UINT8_MAX, "a task has a byte for its slot");

static void add(uint64_t n, _Atomic uint64_t *to)
{
    if (n)
        atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static uint64_t now_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------- requests */

void tei_metrics_ended(te_engine *e, struct view *v, struct ended *n)
{
    struct figures *f = v ? &v->peer->figures : &e->metrics.gone;

    for (int op = 0; op < 2; op++) {
        add(n->completed[op], &f->completed[op]);
        add(n->failed[op], &f->failed[op]);
        add(n->bytes[op], &f->bytes[op]);
    }
    *n = (struct ended){0};
}

static enum metrics_error index_of(int error)
{
    switch (error) {
#define INDEX_CASE(name, number, class, text) \
    case (number):                            \
        return METRICS_ERROR_##name;
        TE_ERR_MAP(INDEX_CASE)
#undef INDEX_CASE
    default:
        return METRICS_ERROR_SYSTEM;
    }
}

void tei_metrics_failed(te_engine *e, const struct task *t, int error)
{
    add(1, &e->metrics.errors[index_of(error)]);
    if (error == TE_ERR_TIMEOUT && t->deadline_ns == TEI_NEVER)
        add(1, &e->metrics.stalls);
}

void tei_metrics_add(struct totals *to, const struct figures *f)
{
    for (int op = 0; op < 2; op++) {
        to->completed[op] += now_of(&f->completed[op]);
        to->failed[op] += now_of(&f->failed[op]);
        to->bytes[op] += now_of(&f->bytes[op]);
    }
}

/* None of its requests is unfinished, so nothing is added to its figures any more. */
void tei_metrics_fold(te_engine *e, struct peer *p)
{
    struct totals last = {0};

    tei_metrics_add(&last, &p->figures);
    for (int op = 0; op < 2; op++) {
        add(last.completed[op], &e->metrics.gone.completed[op]);
        add(last.failed[op], &e->metrics.gone.failed[op]);
        add(last.bytes[op], &e->metrics.gone.bytes[op]);
    }
    tei_metrics_peer_left(e, &p->told, &last);
}

void tei_metrics_totals(te_engine *e, struct totals *out)
{
    *out = (struct totals){0};
    pthread_rwlock_rdlock(&e->peers.lock);
    tei_metrics_add(out, &e->metrics.gone);
    for (const struct peer *p = e->peers.by_name; p; p = p->hh.next)
        tei_metrics_add(out, &p->figures);
    pthread_rwlock_unlock(&e->peers.lock);
}

/* ----------------------------------------------------------------------------------- transports */

/* Threads that carry much at once should not share a line of the cache: most do not, by this. */
static struct shard *shard_of(te_engine *e)
{
    uint64_t thread = (uintptr_t)pthread_self();

    return &e->metrics.shards[(thread * UINT64_C(0x9e3779b97f4a7c15)) >> 61];
}

void tei_metrics_carried(te_engine *e, struct returned *r)
{
    struct carried *c = &shard_of(e)->by[r->place];

    for (int op = 0; op < 2; op++) {
        add(r->attempts[op], &c->attempts[op]);
        add(r->bytes[op], &c->carried_bytes[op]);
    }
    add(r->path_changes, &c->path_changes);
    *r = (struct returned){0};
}

void tei_metrics_path_changed(te_engine *e, size_t from, size_t to)
{
    add(1, &shard_of(e)->by[to].path_changes);
    if (from != to)
        add(1, &e->metrics.failovers[from][to]);
}

void tei_metrics_attempt_failed(te_engine *e, const struct tei_work *w)
{
    add(1, &e->metrics.attempt_failures[w->transport->place][tei_err_class(w->error) - 1]);
}

void tei_metrics_staged(te_engine *e, const struct tei_work *w)
{
    struct returned r = {0};

    tei_metrics_return(e, &r, w);
    tei_metrics_carried(e, &r);
}

/* ---------------------------------------------------------------------------------------- times */

/* Acquire: partner of the release with which it was given back. */
static bool take(struct slot *s, struct task *from)
{
    return from != BUSY && atomic_compare_exchange_strong_explicit(
                               &s->owner, &from, BUSY, memory_order_acquire, memory_order_relaxed);
}

/* A free slot, taken, else that of a request that is stuck; NULL if there is none. */
static struct slot *take_slot(struct metrics *m, int64_t now_ns)
{
    struct slot *oldest = &m->slots[0];
    int64_t begin_ns = TEI_NEVER;

    for (size_t i = 0; i < METRICS_SLOTS; i++) {
        struct slot *s = &m->slots[i];
        int64_t began_ns = atomic_load_explicit(&s->begin_ns, memory_order_relaxed);

        if (!atomic_load_explicit(&s->owner, memory_order_relaxed) && take(s, NULL))
            return s;
        if (began_ns < begin_ns) {
            oldest = s;
            begin_ns = began_ns;
        }
    }
    return now_ns - begin_ns > STUCK_NS &&
                   take(oldest, atomic_load_explicit(&oldest->owner, memory_order_relaxed))
               ? oldest
               : NULL;
}

/*
 * False: it was taken from the task meanwhile, and its figures may be those of another one. Release: partner
 * of the acquire in take().
 */
static bool give_slot(struct metrics *m, struct task *t)
{
    struct task *mine = t;
    struct slot *s = &m->slots[t->sample - 1];

    t->sample = 0;
    return atomic_compare_exchange_strong_explicit(&s->owner, &mine, NULL, memory_order_release,
                                                   memory_order_relaxed);
}

/*
 * How many requests there are from one sample to the next. The number is one of chance, since requests
 * may take turns in a pattern.
 */
static void set_due(struct metrics *m, uint64_t number, int64_t now_ns)
{
    int64_t since = now_ns - atomic_exchange_explicit(&m->sampled_ns, now_ns, memory_order_relaxed);
    uint64_t interval = now_of(&m->interval);

    if (since < SAMPLE_EACH_NS && interval < INTERVAL_MAX)
        interval = 2 * interval + 1;
    else if (since > SAMPLE_SLOW_NS)
        interval /= 2;
    atomic_store_explicit(&m->interval, interval, memory_order_relaxed);
    number += 1 + ((uint64_t)now_ns * UINT64_C(0x9e3779b97f4a7c15) >> 40) % (2 * interval + 1);
    atomic_store_explicit(&m->due, number, memory_order_relaxed);
}

static struct slot *slot_of(const struct task *t)
{
    return &t->batch->engine->metrics.slots[t->sample - 1];
}

/* Another request may get the slot after the answer: then this one may be told in its place as what was taken. */
static bool has_slot(const struct task *t)
{
    return atomic_load_explicit(&slot_of(t)->owner, memory_order_relaxed) == t;
}

_Atomic int64_t *tei_metrics_taken(const struct task *t)
{
    return has_slot(t) ? &slot_of(t)->taken_ns : NULL;
}

void tei_metrics_posted(const struct task *t)
{
    if (!has_slot(t))
        return;
    atomic_store_explicit(&slot_of(t)->posted_ns, tei_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&slot_of(t)->taken_ns, 0, memory_order_relaxed);
}

/* What was cut before the slot was known is not posted yet. */
static void tell_first_piece(const struct task *t, struct slot *s)
{
    if (atomic_load_explicit(&t->path, memory_order_relaxed))
        tei_container_of(t->link.prev, struct tei_work, link)->taken_ns = &s->taken_ns;
}

/* Threads that submit at the same time may each find that one is due, or that it was: no harm is done. */
void tei_metrics_sample(te_engine *e, struct task *tasks, uint64_t first, size_t n)
{
    struct metrics *m = &e->metrics;
    uint64_t due = now_of(&m->due), number = due > first && due < first + n ? due : first, before;
    int64_t now_ns = tei_now_ns();
    struct slot *s = take_slot(m, now_ns);

    set_due(m, first + n - 1, now_ns);
    if (!s)
        return;
    /* Only forwards: no request is told for twice. */
    before = now_of(&m->told_for);
    while (before <= number &&
           !atomic_compare_exchange_weak_explicit(&m->told_for, &before, number + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    atomic_store_explicit(&s->begin_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&s->posted_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&s->taken_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&s->weight, number + 1 > before ? number + 1 - before : 1,
                          memory_order_relaxed);
    atomic_store_explicit(&s->owner, &tasks[number - first], memory_order_release);
    tasks[number - first].sample = (uint8_t)(s - m->slots + 1);
    tell_first_piece(&tasks[number - first], s);
}

/* The first bound that is not below the time, or the bytes; METRICS_BOUNDS: none. */
static size_t bound_of(uint64_t value)
{
    unsigned k;

    if (value <= UINT64_C(1) << METRICS_FIRST)
        return 0;
    k = 63U - (unsigned)__builtin_clzll(value - 1);
    if (k >= METRICS_FIRST + METRICS_OCTAVES)
        return METRICS_BOUNDS;
    return 2 * (size_t)(k - METRICS_FIRST) + (value <= UINT64_C(3) << (k - 1) ? 1 : 2);
}

static void add_value(struct histogram *h, uint64_t value, uint64_t weight)
{
    uint64_t rest = value % 1000 * weight; /* the product of both could be too large */

    add(weight, &h->counts[bound_of(value)]);
    add(value / 1000 * weight + rest / 1000, &h->sum_k);
    add(rest % 1000, &h->sum_rest);
}

static void add_time(struct histogram *h, int64_t ns, uint64_t weight)
{
    add_value(h, (uint64_t)ns, weight);
}

/*
 * When it began to move. A transport may have taken the time before it was given the work, and one that moves
 * a short work at once, in the calling thread, takes no part of it. Who has lost the slot meanwhile may have
 * left an older time.
 */
static int64_t moving_since(const struct slot *s, int64_t begin_ns, int64_t end_ns)
{
    int64_t posted_ns = atomic_load_explicit(&s->posted_ns, memory_order_relaxed);
    int64_t taken_ns = atomic_load_explicit(&s->taken_ns, memory_order_relaxed);
    int64_t since_ns = taken_ns > posted_ns ? taken_ns : posted_ns;

    since_ns = since_ns > begin_ns ? since_ns : begin_ns;
    return since_ns < end_ns ? since_ns : end_ns;
}

void tei_metrics_sampled(te_engine *e, struct task *t, size_t place)
{
    const struct slot *s = &e->metrics.slots[t->sample - 1];
    struct metrics *m = &e->metrics;
    uint64_t weight = now_of(&s->weight);
    int op = t->req.opcode;
    int64_t begin_ns = atomic_load_explicit(&s->begin_ns, memory_order_relaxed);
    int64_t end_ns = tei_now_ns(), moving_ns = moving_since(s, begin_ns, end_ns);

    if (give_slot(m, t) && atomic_load_explicit(&t->error, memory_order_relaxed) == TE_ERR_OK) {
        add_time(&m->latency[place][op], end_ns - begin_ns, weight);
        add_time(&m->queue[place][op], moving_ns - begin_ns, weight);
        add_time(&m->wire[place][op], end_ns - moving_ns, weight);
        add_value(&m->size[place][op], t->req.length, weight);
    }
}

void tei_metrics_unsample(struct task *t)
{
    if (t->sample)
        (void)give_slot(&t->batch->engine->metrics, t);
}
