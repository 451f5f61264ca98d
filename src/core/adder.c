/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adder.c - what an initiator adds to counters of targets: te_adder_open() and what follows.
 *
 * An adder keeps the total of what was added and how much of that its target has. Only the total is sent, and it
 * is sent until the target says what has become of it.
 *
 * All adders of a segment share a teller, which sends what many have to say in one message, and one message at a
 * time. Those that have something to say wait in a row; a few run, each for one message, and then go to the end of
 * the row. Of those whose last try failed fewer may run, and only after a pause that doubles each time: so targets
 * that are dead hold up neither the others nor the threads that do it. The thread that ends a batch looks at the
 * one teller that is concerned; it is a job's end, or the timer, that looks along the row.
 */
#include "core/adder.h"
#include "base/hash.h"
#include "core/core.h"
#include "core/complete.h"
#include "core/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNNING_MAX 4
#define FAILING_MAX 2
/* Between two messages to a target: each is a connection, whose port is not free again for a minute. */
#define SPACE_NS     (3 * TEI_NS_PER_MS)
#define PAUSE_MIN_NS (20 * TEI_NS_PER_MS)
#define PAUSE_MAX_NS (5 * TEI_NS_PER_S)

/* Says to one target what was added. */
struct teller {
    UT_hash_handle hh;   /* in adders.tellers, by segment */
    struct tei_link row; /* in adders.row, unless nothing waits, or it runs */
    te_engine *engine;
    te_segment segment;
    unsigned adders; /* with the last it is gone */
    struct tei_hostport where;
    struct tei_list waiting; /* adders that have something to say */
    struct tei_job job;
    bool running;
    int64_t pause_ns; /* 0: the last try went well */
    int64_t again_ns; /* not before */
};

struct adder {
    struct tei_link link; /* in teller.waiting */
    unsigned
        refs; /* of its id, of calls and additions that have it, of the job that speaks for it */
    unsigned flushing; /* threads */
    struct teller *teller;
    uint64_t id;
    struct tei_count_key key;
    struct tei_list additions; /* that wait for their batch, the oldest first */
    uint64_t n_additions;      /* that there ever were */
    uint64_t promised;         /* the sum of those that were made or may be */
    uint64_t total;            /* of those that were made */
    uint64_t told;             /* what the target has of it */
    bool closed;
    int error; /* of the last try */
    char why[256];
};

/* What follows a batch. */
struct addition {
    struct group group;
    struct tei_link link; /* in adder.additions */
    struct adder *adder;
    const struct batch *batch; /* it lives for as long as the addition is in that list */
    uint64_t number, n;
};

/* Nothing will be counted any more. */
static bool is_over(const struct adder *a)
{
    return a->error == TE_ERR_STALE || a->error == TE_ERR_REJECTED;
}

/* ------------------------------------------------------------------------------------------ the set */

void tei_adders_init(struct adders *s)
{
    tei_handles_init(&s->ids);
    pthread_mutex_init(&s->lock, NULL);
    tei_cond_init(&s->told);
    tei_list_init(&s->row);
}

/* The lock is held, here and in all that follows, if nothing else is said. NULL: no memory. */
static struct teller *teller_of(te_engine *e, te_segment seg)
{
    struct teller *t;

    HASH_FIND(hh, e->adders.tellers, &seg, sizeof(seg), t);
    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->engine = e;
    t->segment = seg;
    tei_list_init(&t->waiting);
    if (TEI_HASH_ADD(e->adders.tellers, &t->segment, sizeof(t->segment), t))
        return t;
    free(t);
    return NULL;
}

/* One adder or job less. */
static void leave(struct teller *t)
{
    if (t->adders == 0 && !t->running) {
        HASH_DEL(t->engine->adders.tellers, t);
        free(t);
    }
}

static void put(struct adder *a)
{
    struct teller *t = a->teller;

    if (--a->refs)
        return;
    free(a);
    t->adders--;
    leave(t);
}

static void free_one(void *object, void *arg)
{
    (void)arg;
    put(object);
}

void tei_adders_fini(struct adders *s)
{
    tei_handles_each(&s->ids, free_one, NULL);
    tei_handles_fini(&s->ids);
    pthread_cond_destroy(&s->told);
    pthread_mutex_destroy(&s->lock);
}

/* Held, until put(); and the lock is, if there is one. */
static struct adder *find(te_engine *e, te_adder id, int *rc)
{
    struct adder *a = NULL;

    *rc = tei_engine_check(e);
    if (*rc)
        return NULL;
    pthread_mutex_lock(&e->adders.lock);
    a = tei_handles_pin(&e->adders.ids, id);
    if (a) {
        a->refs++;
        tei_handles_unpin(&e->adders.ids, id);
        return a;
    }
    pthread_mutex_unlock(&e->adders.lock);
    *rc = TEI_FAIL(TE_ERR_NOT_FOUND, "adder %llu does not exist", (unsigned long long)id);
    return NULL;
}

/* ----------------------------------------------------------------------------------- what was told */

static struct tei_count count_of(const struct adder *a)
{
    return (struct tei_count){
        .key = a->key, .from = {a->teller->engine->incarnation, a->id}, .total = a->total};
}

static void note(struct adder *a, uint64_t total, int rc, const char *why)
{
    if (is_over(a))
        return;
    a->error = rc;
    if (rc)
        snprintf(a->why, sizeof(a->why), "%s", why);
    else if (total > a->told)
        a->told = total;
}

/* Of an adder of this engine's own counter. */
static void tell_self(struct adder *a)
{
    struct tei_count m = count_of(a);
    int rc = tei_counter_take(&a->teller->engine->counters, &m);

    note(a, m.total, rc, tei_count_answer_text(rc));
    pthread_cond_broadcast(&a->teller->engine->adders.told);
}

/* --------------------------------------------------------------------------------- who says it when */

static bool is_failing(const struct teller *t)
{
    return t->pause_ns > 0;
}

/* Has it wait in the row, or not, as it is to. */
static void line_up(struct teller *t)
{
    bool waits = !t->running && !tei_list_empty(&t->waiting);

    if (waits && !tei_link_is_in(&t->row))
        tei_list_push_back(&t->engine->adders.row, &t->row);
    else if (!waits && tei_link_is_in(&t->row))
        tei_list_del(&t->row);
}

/* Whether one more of the sort may run. */
static bool has_place(const struct adders *s, const struct teller *t)
{
    return s->running < RUNNING_MAX && (!is_failing(t) || s->failing < FAILING_MAX);
}

/*
 * Whether one that waits may run now; it is counted then, and to be posted. Else *next is when it may, if that is
 * sooner: where there is no place for it the next job that ends looks for one.
 */
static bool take(struct adders *s, struct teller *t, int64_t now, int64_t *next)
{
    if (!has_place(s, t))
        return false;
    if (t->again_ns > now) {
        *next = t->again_ns < *next ? t->again_ns : *next;
        return false;
    }
    t->running = true;
    s->running++;
    s->failing += is_failing(t);
    line_up(t);
    return true;
}

/* The first in the row that may. */
static struct teller *take_next(struct adders *s, int64_t now, int64_t *next)
{
    struct tei_link *l, *tmp;

    *next = TEI_NEVER;
    TEI_LIST_EACH(&s->row, l, tmp) {
        struct teller *t = tei_container_of(l, struct teller, row);

        if (take(s, t, now, next))
            return t;
    }
    return NULL;
}

static void teller_job(struct tei_job *j);

/*
 * Posts all that may run, and returns when the next may. No lock is held: where there is no thread for a job it is
 * run here.
 */
static int64_t post_row(te_engine *e)
{
    int64_t next;
    struct teller *t;

    do {
        pthread_mutex_lock(&e->adders.lock);
        t = take_next(&e->adders, tei_now_ns(), &next);
        pthread_mutex_unlock(&e->adders.lock);
        if (t)
            tei_jobs_post(&e->jobs, &t->job, teller_job);
    } while (t);
    return next;
}

/* On te/ctl, whose lock is held. */
static void on_timer(struct tei_timer *timer)
{
    te_engine *e = tei_container_of(timer, te_engine, adders.timer);
    int64_t next;

    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return;
    next = post_row(e);
    if (next != TEI_NEVER)
        tei_timer_set(&e->ctl.loop, timer, next, on_timer);
}

/* The lock is not held, nor is that of te/ctl. */
static void set_timer(te_engine *e, int64_t when_ns)
{
    if (when_ns != TEI_NEVER)
        tei_ctl_timer(e, &e->adders.timer, when_ns, on_timer);
}

/* ----------------------------------------------------------------------------------------- telling */

/* One message. */
struct telling {
    struct adder *by[TEI_COUNTS_MAX];
    struct tei_count counts[TEI_COUNTS_MAX];
    int answers[TEI_COUNTS_MAX];
    size_t n;
    struct tei_hostport where;
};

static void gather(struct teller *t, struct telling *x)
{
    struct tei_link *l;

    x->where = t->where;
    for (x->n = 0; x->n < TEI_COUNTS_MAX && (l = tei_list_pop(&t->waiting)); x->n++) {
        struct adder *a = tei_container_of(l, struct adder, link);

        a->refs++;
        x->by[x->n] = a;
        x->counts[x->n] = count_of(a);
    }
}

static bool has_gone(const struct telling *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->answers[i] == TE_ERR_STALE)
            return true;
    return false;
}

/*
 * Whatever went wrong there, the engine may be elsewhere by now; so may it where another one answers, which knows
 * none of the counters. The lock is not held.
 */
static int tell(te_engine *e, const struct teller *t, struct telling *x)
{
    int64_t deadline_ns = tei_deadline_ns((int64_t)e->conf.handshake_connect_timeout_s * 1000);
    struct tei_hostport last = x->where;
    int rc = TE_ERR_PEER;

    if (last.port)
        rc = tei_rpc_counts(e->conf.identity, &last, x->counts, x->answers, x->n, deadline_ns);
    if ((!rc && !has_gone(x)) || tei_peer_where(e, t->segment, true, &x->where) != 0)
        return rc;
    if (x->where.port == last.port && strcmp(x->where.host, last.host) == 0)
        return rc;
    return tei_rpc_counts(e->conf.identity, &x->where, x->counts, x->answers, x->n, deadline_ns);
}

/* It has something to say. */
static void remember(struct adder *a)
{
    if (!tei_link_is_in(&a->link))
        tei_list_push_back(&a->teller->waiting, &a->link);
    line_up(a->teller);
}

static void forget(struct adder *a)
{
    if (tei_link_is_in(&a->link))
        tei_list_del(&a->link);
    line_up(a->teller);
}

/* What has come of it. `rc`: nothing is known of any. */
static void take_answers(struct teller *t, const struct telling *x, int rc, const char *why)
{
    for (size_t i = 0; i < x->n; i++) {
        struct adder *a = x->by[i];
        int one = rc ? rc : x->answers[i];

        note(a, x->counts[i].total, one, rc ? why : tei_count_answer_text(one));
        if (is_over(a))
            forget(a);
        else if (!a->closed && a->total > a->told)
            remember(a);
        put(a);
    }
    pthread_cond_broadcast(&t->engine->adders.told);
}

/* When the next message may follow; `good`: this one got through. */
static void pause_teller(struct teller *t, bool good)
{
    int64_t last_ns = t->pause_ns,
            twice_ns = 2 * last_ns < PAUSE_MAX_NS ? 2 * last_ns : PAUSE_MAX_NS;

    t->pause_ns = good ? 0 : last_ns == 0 ? PAUSE_MIN_NS : twice_ns;
    t->again_ns = tei_now_ns() + (good ? SPACE_NS : t->pause_ns);
}

/* To the end of the row. */
static void step_down(struct teller *t, bool was_failing)
{
    struct adders *s = &t->engine->adders;

    s->running--;
    s->failing -= was_failing;
    t->running = false;
    line_up(t);
    leave(t);
}

/* Of no memory at the target, which is tried again as one that cannot be reached is. */
static bool got_through(const struct telling *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->answers[i] == TE_ERR_MEMORY)
            return false;
    return true;
}

/* No lock is held. */
static void teller_job(struct tei_job *j)
{
    struct teller *t = tei_container_of(j, struct teller, job);
    te_engine *e = t->engine;
    bool was_failing = is_failing(t); /* changed by this job alone */
    struct telling x;
    int rc = 0;

    pthread_mutex_lock(&e->adders.lock);
    gather(t, &x);
    pthread_mutex_unlock(&e->adders.lock);
    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        rc = tei_engine_check(e);
    else if (x.n)
        rc = tell(e, t, &x);
    pthread_mutex_lock(&e->adders.lock);
    t->where = x.where;
    take_answers(t, &x, rc, rc ? te_errmsg() : NULL);
    pause_teller(t, rc == 0 && got_through(&x));
    step_down(t, was_failing);
    pthread_mutex_unlock(&e->adders.lock);
    if (!atomic_load_explicit(&e->closing, memory_order_relaxed))
        set_timer(e, post_row(e));
}

/* --------------------------------------------------------------------------------------- additions */

static void make(struct adder *a, uint64_t n)
{
    a->total += n;
    if (a->teller->segment == TE_LOCAL_SEGMENT)
        tell_self(a);
    else if (!is_over(a))
        remember(a);
}

/* What a batch does in the end, in the thread that ends it: one teller may have something to do then. */
static void end_addition(struct group *g, bool good)
{
    struct addition *x = tei_container_of(g, struct addition, group);
    struct adder *a = x->adder;
    struct teller *t = a->teller;
    te_engine *e = t->engine;
    int64_t next = TEI_NEVER;
    bool now;

    pthread_mutex_lock(&e->adders.lock);
    if (good && !a->closed)
        make(a, x->n);
    else
        a->promised -= x->n;
    tei_list_del(&x->link);
    now = tei_link_is_in(&t->row) && take(&e->adders, t, tei_now_ns(), &next);
    put(a);
    pthread_cond_broadcast(&e->adders.told);
    pthread_mutex_unlock(&e->adders.lock);
    free(x);
    if (now)
        tei_jobs_post(&e->jobs, &t->job, teller_job);
    set_timer(e, next);
}

/* It takes one reference to the adder over. */
static int promise(struct adder *a, const struct batch *b, uint64_t n, struct addition **out)
{
    struct addition *x;

    if (n > (uint64_t)INT64_MAX - a->promised)
        return TEI_FAIL(TE_ERR_INVALID, "adder: with %llu more the sum is above %lld",
                        (unsigned long long)n, (long long)INT64_MAX);
    x = calloc(1, sizeof(*x));
    if (!x)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for an addition");
    *x = (struct addition){
        .group = {.end = end_addition}, .adder = a, .batch = b, .number = a->n_additions++, .n = n};
    atomic_init(&x->group.left, 1);
    a->promised += n;
    tei_list_push_back(&a->additions, &x->link);
    *out = x;
    return 0;
}

int te_adder_after(te_engine *e, te_batch id, te_adder adder, uint64_t n)
{
    struct addition *x = NULL;
    struct adder *a;
    struct batch *b;
    int rc;

    b = tei_batch_pin_checked(e, id, &rc);
    if (!b)
        return rc;
    a = find(e, adder, &rc);
    if (a) {
        rc = promise(a, b, n, &x);
        if (rc)
            put(a);
        pthread_mutex_unlock(&e->adders.lock);
    }
    if (!rc)
        tei_batch_after(b, &x->group);
    tei_batch_unpin(&e->batches, id);
    return rc;
}

/* -------------------------------------------------------------------------- opening, waiting, closing */

/* Asks the target for the key. The lock is not held. */
static int ask_key(te_engine *e, te_segment seg, const char *name, struct tei_hostport *where,
                   struct tei_count_key *key)
{
    int rc;

    if (seg == TE_LOCAL_SEGMENT) {
        rc = tei_counter_key(&e->counters, name, key);
        return rc ? TEI_FAIL(rc, "this engine has no counter '%s'", name) : 0;
    }
    rc = tei_peer_where(e, seg, true, where);
    if (rc)
        return rc;
    return tei_rpc_count_open(e->conf.identity, where, name, tei_peer_life(&e->peers, seg),
                              tei_deadline_ns((int64_t)e->conf.handshake_connect_timeout_s * 1000),
                              key);
}

static int add(te_engine *e, te_segment seg, const struct tei_hostport *where, struct adder *a)
{
    int rc = TE_ERR_MEMORY;

    a->teller = teller_of(e, seg);
    if (a->teller)
        rc = tei_handles_add(&e->adders.ids, a, &a->id);
    if (rc && a->teller)
        leave(a->teller);
    if (rc)
        return TEI_FAIL(rc, "no memory for an adder, or too many are open; te_adder_close()");
    a->refs = 1;
    a->teller->adders++;
    a->teller->where = *where;
    return 0;
}

int te_adder_open(te_engine *e, te_segment seg, const char *name, te_adder *out)
{
    struct tei_hostport where = {0};
    struct tei_count_key key;
    struct adder *a;
    int rc = tei_engine_check(e);

    if (!rc && !out)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the adder is NULL");
    if (!rc)
        rc = tei_count_name_check(name);
    if (!rc)
        rc = ask_key(e, seg, name, &where, &key);
    if (rc)
        return rc;
    a = calloc(1, sizeof(*a));
    if (!a)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for an adder");
    a->key = key;
    tei_list_init(&a->additions);
    pthread_mutex_lock(&e->adders.lock);
    rc = add(e, seg, &where, a);
    if (!rc)
        *out = a->id;
    pthread_mutex_unlock(&e->adders.lock);
    if (rc)
        free(a);
    return rc;
}

/* Whether one of the additions below `number` waits for its batch. */
static bool waits_for_batch(const struct adder *a, uint64_t number)
{
    const struct tei_link *first = a->additions.head.next;

    return !tei_list_empty(&a->additions) &&
           tei_container_of(first, const struct addition, link)->number < number;
}

/* Why not all is counted that was to be added. */
static int tell_why(const struct adder *a, uint64_t number)
{
    if (waits_for_batch(a, number))
        return TEI_FAIL(TE_ERR_TIMEOUT, "a batch that is to add something is not done yet");
    if (a->error)
        return TEI_FAIL(a->error, "%s", a->why);
    return TEI_FAIL(TE_ERR_TIMEOUT, "the target has counted %llu of %llu so far",
                    (unsigned long long)a->told, (unsigned long long)a->total);
}

static int flush(struct adder *a, int64_t deadline_ns)
{
    struct adders *s = &a->teller->engine->adders;
    uint64_t number = a->n_additions, want = UINT64_MAX;
    bool in_time = true;

    for (;;) {
        if (want == UINT64_MAX && !waits_for_batch(a, number))
            want = a->total;
        if (a->told >= want)
            return 0;
        if ((want != UINT64_MAX && is_over(a)) || !in_time)
            return tell_why(a, number);
        in_time = tei_cond_wait_until(&s->told, &s->lock, deadline_ns);
    }
}

int te_adder_flush(te_engine *e, te_adder id, int64_t timeout_ms)
{
    int64_t deadline_ns = tei_deadline_ns(timeout_ms);
    int rc;
    struct adder *a = find(e, id, &rc);

    if (!a)
        return rc;
    a->flushing++;
    if (a->teller->segment == TE_LOCAL_SEGMENT && a->told < a->total)
        tell_self(a);
    rc = flush(a, deadline_ns);
    a->flushing--;
    put(a);
    pthread_mutex_unlock(&e->adders.lock);
    return rc;
}

/*
 * Whether a batch that is not done is to raise it. Of one that is, as te_status() or te_wait() may have said, the thread
 * that ends it comes here later, and makes nothing of it then: what was just added would not be sent either.
 */
static bool is_to_be_raised(const struct adder *a)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(&a->additions, l, tmp) {
        const struct batch *b = tei_container_of(l, struct addition, link)->batch;

        if (atomic_load(&b->left) > 0 && !tei_batch_all_terminal(b))
            return true;
    }
    return false;
}

static int end(te_engine *e, struct adder *a)
{
    if (a->flushing || is_to_be_raised(a))
        return TEI_FAIL(
            TE_ERR_BUSY,
            "a batch that is to raise this adder is not done, or a thread is in te_adder_flush()");
    (void)tei_handles_del(&e->adders.ids, a->id, 0); /* pinned with the lock held only */
    a->closed = true;
    forget(a);
    a->refs--; /* that of its creator; the caller has one still */
    return 0;
}

int te_adder_close(te_engine *e, te_adder id)
{
    int rc;
    struct adder *a = find(e, id, &rc);

    if (!a)
        return rc;
    rc = end(e, a);
    put(a);
    pthread_mutex_unlock(&e->adders.lock);
    return rc;
}
