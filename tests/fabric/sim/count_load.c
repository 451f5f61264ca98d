/* SPDX-License-Identifier: Apache-2.0 */
/*
 * count_load.c - counters of hosts, what users of others add to them behind their batches, and what must be true of
 * them. Each addition to a counter is a bit of its own: so its value says which ones it has, and one that counts twice
 * is seen as another one.
 */
#include "world.h"

#include "load.h"
#include "sim.h"
#include "te.h"
#include "te_counter.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADDITIONS 62 /* of a counter: their sum is below INT64_MAX */
#define SETTLE_NS (300 * SIM_S)
#define OPEN_NS   (120 * SIM_S) /* te_adder_open() returns within */

/* How the batch has ended that it follows. */
enum fate { UNKNOWN, WHOLE, NOT_WHOLE };

struct addition {
    enum fate fate;
    bool is_told;           /* te_adder_after() has been called */
    struct sim_claim claim; /* what must be there once it counts */
};

struct sim_tally {
    struct life *life;
    int number;
    te_counter id;
    unsigned used;
    struct addition additions[ADDITIONS];
    uint64_t seen;       /* additions that it has had */
    uint64_t settled;    /* that te_adder_flush() has told of, if their batches were whole */
    bool is_going, gone; /* te_counter_destroy() is called, has returned */
    bool is_polled;      /* its descriptor */
    uint64_t awaited;    /* what te_counter_wait() is to wait for, 0: nobody waits */
    int64_t reached;     /* since when that is settled, 0: it is not */
};

/* What a user has of a counter of another host, or of its own. */
struct sim_hold {
    struct sim_tally *tally;
    te_segment segment;
    te_adder adder;
    uint64_t mine;            /* additions */
    uint64_t late;            /* of these, made when the counter was gone */
    te_batch followed[SLOTS]; /* batches that additions follow, and that have not been freed */
    size_t n_followed;
};

static const char *const names[SIM_COUNTERS] = {"first", "second"};

/* ------------------------------------------------------------------------------------ what is true */

/* Of a call that was to return at that time. */
static void check_prompt(const char *call, int64_t due, int host, int64_t begin)
{
    if (sim_now() > due + sim_patience() && !sim_stood(host, begin))
        sim_fail("%s has returned %lld ms late", call, (long long)((sim_now() - due) / SIM_MS));
}

/* Additions that the counter must have. */
static uint64_t due(const struct sim_tally *t)
{
    uint64_t bits = 0;

    for (unsigned i = 0; i < t->used; i++)
        bits |= t->additions[i].fate == WHOLE ? UINT64_C(1) << i : 0;
    return bits & t->settled;
}

/* The user knows nothing yet of the end of its batch, but all that it writes is there. */
static void check_claim(const struct sim_claim *c, unsigned i)
{
    const struct life *l = c->to;
    const unsigned char *is = sim_view(l->memory + c->slot * sim_world.slot);
    const unsigned char *want = l->slots[c->slot].want;

    for (size_t k = 0; k < c->n; k++)
        if (memcmp(is + c->ranges[k].at, want + c->ranges[k].at, c->ranges[k].length) != 0)
            sim_fail("torn: addition %u counts, and %zu bytes at %zu are not all there", i,
                     c->ranges[k].length, c->ranges[k].at);
}

static void check_one(const struct sim_tally *t, unsigned i)
{
    const struct addition *a = &t->additions[i];

    if (i >= t->used)
        sim_fail("a counter has addition %u, and there were %u", i, t->used);
    if (!a->is_told)
        sim_fail("addition %u counts, and nobody has asked for it", i);
    if (a->fate == NOT_WHOLE)
        sim_fail("addition %u counts, and not all of its batch is COMPLETED", i);
    if (a->fate == UNKNOWN)
        check_claim(&a->claim, i);
}

/* Its value, which has these at least. */
static void check_value(struct sim_tally *t, uint64_t value, uint64_t must)
{
    sim_trace("counter %s of host %d: %llx", names[t->number], t->life->host,
              (unsigned long long)value);
    if (must & ~value)
        sim_fail("counter %s is %llx and lacks %llx", names[t->number], (unsigned long long)value,
                 (unsigned long long)(must & ~value));
    for (unsigned i = 0; i < 64; i++)
        if (value >> i & 1)
            check_one(t, i);
    sim_world.counts.counted += (unsigned)__builtin_popcountll(value & ~t->seen);
    t->seen |= value;
}

/* What became of the batch is known. */
static void conclude(struct sim_tally *t, unsigned i, bool whole)
{
    struct addition *a = &t->additions[i];

    a->fate = whole ? WHOLE : NOT_WHOLE;
    free(a->claim.ranges);
    a->claim = (struct sim_claim){.n = 0};
    if (t->seen >> i & 1)
        check_one(t, i);
}

/* The counter has what has been settled. */
static void note_reached(struct sim_tally *t)
{
    if (t->awaited && !t->reached && due(t) >= t->awaited)
        t->reached = sim_now();
}

/* -------------------------------------------------------------------------------------- the target */

static struct sim_tally *make(struct life *l, int number)
{
    struct sim_tally *t = sim_new(sizeof(*t));

    t->life = l;
    t->number = number;
    sim_ok(sim_later.counter_create(l->engine, names[number], &t->id), "te_counter_create");
    return t;
}

void sim_counts_begin(struct life *l)
{
    for (int i = 0; i < SIM_COUNTERS && (sim_world.knobs.fabrics & CALLS_COUNTERS); i++)
        l->tallies[i] = make(l, i);
}

/* True if the call has found that the counter is gone, as it may be. */
static bool has_gone(const struct sim_tally *t, int rc, const char *call)
{
    if ((rc == TE_ERR_NOT_FOUND || rc == TE_ERR_CANCELED) && t->is_going)
        return true;
    if (rc != TE_ERR_TIMEOUT)
        sim_ok(rc, call);
    return false;
}

/* 0: it is gone, or nothing has been added. */
static uint64_t look(struct sim_tally *t)
{
    uint64_t must = t->seen | due(t), value = 0;
    int rc = sim_later.counter_value(t->life->engine, t->id, &value);

    if (has_gone(t, rc, "te_counter_value"))
        return 0;
    check_value(t, value, must);
    return value;
}

/* What it is, or what it will be with one addition more. */
static uint64_t some_value(const struct sim_tally *t)
{
    return t->seen + (sim_one_in(3) ? 0 : UINT64_C(1) << sim_below(t->used + 1));
}

static void check_woken(struct sim_tally *t, int rc, int64_t begin)
{
    if ((rc == 0 || rc == TE_ERR_TIMEOUT) && t->reached &&
        sim_now() > t->reached + sim_patience() && !sim_stood(t->life->host, begin))
        sim_fail("te_counter_wait() has not been woken in %lld ms",
                 (long long)((sim_now() - t->reached) / SIM_MS));
    t->awaited = 0;
    t->reached = 0;
}

static void wait_for_it(struct sim_tally *t)
{
    int64_t ms = (int64_t)(sim_below(60) * sim_below(60)), begin = sim_now(), end;
    uint64_t at_least = some_value(t);
    bool was_there = t->seen >= at_least;
    int rc;

    t->awaited = at_least;
    rc = sim_later.counter_wait(t->life->engine, t->id, at_least, ms);
    end = begin + ms * SIM_MS;
    check_prompt("te_counter_wait()", end, t->life->host, begin);
    check_woken(t, rc, begin);
    if (has_gone(t, rc, "te_counter_wait"))
        return;
    if (rc == TE_ERR_TIMEOUT && was_there)
        sim_fail("te_counter_wait() has waited for what the counter was already");
    if (rc == TE_ERR_TIMEOUT && sim_now() < end)
        sim_fail("te_counter_wait() has given up before its time");
    if (rc == 0 && look(t) < at_least && !t->is_going)
        sim_fail("te_counter_wait() has returned, and the counter is less than %llx",
                 (unsigned long long)at_least);
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

/* It tells of that value, and of none below. */
static void poll_it(struct sim_tally *t)
{
    uint64_t at_least = some_value(t), value;
    int fd = sim_later.counter_fd(t->life->engine, t->id, at_least);
    bool is;

    if (fd == TE_ERR_SYSTEM && (sim_world.knobs.faults & FAULT_FILES))
        return; /* no descriptor is to be had */
    if (has_gone(t, fd, "te_counter_fd"))
        return;
    is = is_readable(fd, (int)sim_below(1000));
    value = look(t);
    if (is && value < at_least)
        sim_fail("the descriptor tells of %llx, and the counter is %llx",
                 (unsigned long long)at_least, (unsigned long long)value);
    if (value >= at_least && !is_readable(fd, 0))
        sim_fail("the descriptor does not tell of %llx, and the counter is %llx",
                 (unsigned long long)at_least, (unsigned long long)value);
}

static void watch(struct sim_tally *t)
{
    uint64_t chance = sim_below(3);

    if (t->is_going)
        return;
    if (chance == 0) {
        look(t);
    } else if (chance == 1) {
        wait_for_it(t);
    } else {
        t->is_polled = true; /* its descriptor is not closed meanwhile */
        poll_it(t);
        t->is_polled = false;
    }
}

void *sim_counts_main(void *arg)
{
    struct life *l = arg;

    while (!sim_world.is_quiet) {
        watch(l->tallies[sim_below(SIM_COUNTERS)]);
        usleep((useconds_t)(sim_one_in(2) ? sim_below(300) : sim_below(300000)));
    }
    return NULL;
}

/* One that has no additions left, if there is any. */
static struct sim_tally *to_renew(const struct life *l)
{
    for (int i = 0; i < SIM_COUNTERS; i++)
        if (l->tallies[i]->used == ADDITIONS)
            return l->tallies[i];
    return sim_one_in(10) ? l->tallies[sim_below(SIM_COUNTERS)] : NULL;
}

/* A counter ends, also while somebody waits for it, and one of its name begins. */
static void renew(struct life *l)
{
    struct sim_tally *t = to_renew(l);

    if (!t || t->is_going || t->is_polled)
        return;
    t->is_going = true; /* for others: it is there until the next call */
    look(t);
    sim_ok(sim_later.counter_destroy(l->engine, t->id), "te_counter_destroy");
    t->gone = true;
    if (sim_one_in(2))
        usleep((useconds_t)sim_below(200000));
    l->tallies[t->number] = make(l, t->number);
}

/* Nobody adds anything any more. */
void sim_counts_end(struct life *l)
{
    for (int i = 0; i < SIM_COUNTERS && (sim_world.knobs.fabrics & CALLS_COUNTERS); i++) {
        look(l->tallies[i]);
        if (sim_one_in(2))
            sim_ok(sim_later.counter_destroy(l->engine, l->tallies[i]->id), "te_counter_destroy");
    }
}

/* ----------------------------------------------------------------------------------- the initiator */

/* Whether what has not been counted by now never is. */
static bool is_over(const struct sim_hold *h)
{
    return h->tally->is_going || h->tally->life->over;
}

static int flush(struct user *u, struct sim_hold *h, int64_t ms)
{
    int64_t begin = sim_now(), end = begin + ms * SIM_MS;
    uint64_t mine = h->mine;
    te_engine *e = u->host->life->engine;
    struct te_status s;
    int rc = sim_later.adder_flush(e, h->adder, ms);

    check_prompt("te_adder_flush()", end, u->host->number, begin);
    sim_trace("user %d: flush: %s", u->index, te_errname(rc));
    if (rc == TE_ERR_STALE && !is_over(h))
        sim_fail("an adder is stale, and its counter is there: %s", te_errmsg());
    if (rc == TE_ERR_REJECTED || rc == TE_ERR_INVALID || rc == TE_ERR_NOT_FOUND)
        sim_fail("te_adder_flush: %s: %s", te_errname(rc), te_errmsg());
    if (rc && rc != TE_ERR_STALE && sim_now() < end)
        sim_fail("te_adder_flush() has given up before its time: %s", te_errmsg());
    if (rc)
        return rc;
    h->tally->settled |= mine;
    note_reached(h->tally);
    if (due(h->tally) & h->late)
        sim_fail("te_adder_flush() tells that a counter has %llx, which was gone by then",
                 (unsigned long long)(due(h->tally) & h->late));
    for (size_t i = 0; i < h->n_followed; i++)
        if (te_batch_status(e, h->followed[i], &s) == 0 &&
            (s.state == TE_WAITING || s.state == TE_PENDING))
            sim_fail("te_adder_flush() has returned, and a batch is under way");
    return 0;
}

/* The counter that was there when this began is the one that it is of. */
static bool is_of(const struct sim_tally *t)
{
    return !t->life->over && !t->is_going && t->life->tallies[t->number] == t;
}

static int open_adder(const struct user *u, te_segment seg, const struct sim_tally *t,
                      te_adder *adder)
{
    int64_t begin = sim_now();
    int rc = sim_later.adder_open(u->host->life->engine, seg, names[t->number], adder);

    if (sim_now() > begin + OPEN_NS && !sim_stood(u->host->number, begin))
        sim_fail("te_adder_open() has returned after %lld s",
                 (long long)((sim_now() - begin) / SIM_S));
    if (rc == TE_ERR_NOT_FOUND && is_of(t) && strstr(te_errmsg(), "counter"))
        sim_fail("te_adder_open: %s", te_errmsg());
    return rc;
}

static struct sim_hold *hold(struct user *u, struct life *to)
{
    struct life *own = u->host->life;
    struct sim_tally *t = to->tallies[sim_below(SIM_COUNTERS)];
    struct sim_hold *h = sim_new(sizeof(*h));

    h->tally = t;
    if (t->used == ADDITIONS || sim_open(own, to, &h->segment) < 0) {
        free(h);
        return NULL;
    }
    if (open_adder(u, h->segment, t, &h->adder) == 0) {
        if (is_of(t) && t->used < ADDITIONS) /* others have added to it meanwhile */
            return u->holds[to->host] = h;
        sim_ok(sim_later.adder_close(own->engine, h->adder), "te_adder_close");
    }
    sim_close(own, to, h->segment);
    free(h);
    return NULL;
}

static void let_go(struct user *u, int host)
{
    struct sim_hold *h = u->holds[host];
    struct life *own = u->host->life;

    u->holds[host] = NULL;
    sim_ok(sim_later.adder_close(own->engine, h->adder), "te_adder_close");
    sim_close(own, h->tally->life, h->segment);
    free(h);
}

/* ----------------------------------------------------------------------------------- what is added */

/* A batch, and what follows it. */
struct work {
    struct user *user;
    struct sim_hold *hold;
    struct life *to;
    unsigned number; /* of the addition */
    te_batch batch;
    struct intent intents[SLOTS];
    size_t first, n;         /* slots; n 0: any number of all */
    struct sim_paged *paged; /* instead */
    struct sim_judged how;
    int64_t deadline_ms; /* 0: none */
    bool is_told, canceled;
};

static struct sim_claim claim_of(const struct work *w)
{
    struct sim_claim c = {.to = w->to, .slot = sim_slot_number(w->user, 0)};

    if (w->paged)
        return sim_pages_claim(w->paged);
    c.ranges = sim_new(SLOTS * sizeof(*c.ranges));
    for (size_t k = 0; k < w->n; k++)
        if (w->intents[k].opcode == TE_WRITE)
            c.ranges[c.n++] = (struct sim_range){(w->first + k) * sim_world.slot + w->intents[k].at,
                                                 w->intents[k].length};
    return c;
}

static void submit_slots(struct work *w, const te_submit_opts *opts)
{
    struct life *own = w->user->host->life;
    te_request reqs[SLOTS];

    w->n = w->n ? w->n : 1 + (size_t)sim_below(SLOTS);
    for (size_t k = 0; k < w->n; k++) {
        int slot = (int)(w->first + k);
        size_t at = (size_t)sim_below(sim_world.slot / 2);
        size_t length = 1 + (size_t)sim_below(sim_world.slot / 2);

        sim_check_slot(w->to, w->user, slot);
        w->intents[k] =
            sim_intend(w->user, w->to, slot, sim_one_in(5) ? TE_READ : TE_WRITE, at, length);
        sim_count_write(own, w->to, w->intents[k].opcode);
        reqs[k] = sim_request_of(w->user, w->to, w->hold->segment, &w->intents[k], slot);
    }
    sim_ok(te_submit(own->engine, w->batch, reqs, w->n, opts), "te_submit");
}

static void submit(struct work *w)
{
    struct life *own = w->user->host->life;
    te_submit_opts opts = {.size = sizeof(opts)};

    w->deadline_ms = opts.deadline_ms =
        sim_world.is_quiet || sim_one_in(2) ? 0 : 1 + (int64_t)sim_below(2000);
    w->how = (struct sim_judged){!opts.deadline_ms, own->writes[w->to->host] == 0, sim_now()};
    w->batch = sim_batch(own, SLOTS, 1);
    if (!w->n && (sim_world.knobs.fabrics & CALLS_PAGES) && sim_one_in(2))
        w->paged = sim_pages_submit(w->user, w->to, w->hold->segment, w->batch,
                                    sim_one_in(5) ? TE_READ : TE_WRITE, &opts);
    else
        submit_slots(w, &opts);
}

/* The addition follows the batch. */
static void tell(struct work *w)
{
    struct sim_hold *h = w->hold;
    te_engine *e = w->user->host->life->engine;

    if (sim_one_in(8) && sim_later.adder_after(e, w->batch, h->adder, UINT64_MAX) != TE_ERR_INVALID)
        sim_fail("te_adder_after() takes more than INT64_MAX");
    h->tally->additions[w->number].is_told = true;
    h->mine |= UINT64_C(1) << w->number;
    h->late |= h->tally->gone || h->tally->life->over ? UINT64_C(1) << w->number : 0;
    sim_ok(sim_later.adder_after(e, w->batch, h->adder, UINT64_C(1) << w->number),
           "te_adder_after");
    h->followed[h->n_followed++] = w->batch;
    w->is_told = true;
}

/* It is about to be freed. */
static void forget(struct sim_hold *h, te_batch b)
{
    size_t i = 0;

    while (h->followed[i] != b)
        i++;
    h->followed[i] = h->followed[--h->n_followed];
}

/* What there is to tell meets trouble on its way there, or the answer on its way back. */
static void disturb(const struct work *w)
{
    int from = w->user->host->number, to = w->to->host;
    uint64_t us = 1 + (uint64_t)sim_path(from, to)->latency_ns / SIM_US;

    if (sim_world.is_quiet || from == to)
        return;
    usleep((useconds_t)sim_below(8 * us));
    if ((sim_world.knobs.faults & FAULT_CUT) && sim_one_in(2))
        sim_cut(to, from, (int64_t)(20 + sim_below(4000)) * SIM_MS);
    else
        sim_trouble(from, to, SIM_MS << sim_below(12));
}

/* Whether all of it is COMPLETED. */
static bool end_requests(struct work *w)
{
    if (w->paged)
        return sim_pages_end(w->paged, w->canceled) == TE_COMPLETED;
    return sim_end_slots(w->user, w->batch, w->to, w->intents, w->first, w->n,
                         w->canceled ? NULL : &w->how);
}

static bool end_batch(struct work *w)
{
    const struct life *own = w->user->host->life;
    bool whole;

    w->canceled = !sim_world.is_quiet && sim_one_in(8);
    if (w->canceled) {
        usleep((useconds_t)sim_below(20000));
        sim_ok(te_cancel(own->engine, w->batch), "te_cancel");
        sim_await_canceled(own, w->batch);
    }
    if (w->paged)
        sim_pages_await(w->paged, w->deadline_ms);
    else
        sim_await_end(own->engine, w->batch, w->deadline_ms);
    whole = end_requests(w);
    conclude(w->hold->tally, w->number, whole);
    return whole;
}

static void begin(struct work *w)
{
    submit(w);
    w->hold->tally->additions[w->number].claim = claim_of(w);
}

static void try_to_flush(const struct work *w)
{
    if (w->is_told && sim_one_in(4))
        flush(w->user, w->hold, (int64_t)sim_below(500));
}

/* Whether its batch was whole. */
static bool end(struct work *w)
{
    bool whole = end_batch(w);

    if (!w->is_told)
        tell(w);
    forget(w->hold, w->batch);
    sim_ok(te_batch_free(w->user->host->life->engine, w->batch), "te_batch_free");
    sim_world.counts.batches++;
    if (sim_one_in(2))
        disturb(w);
    return whole;
}

/* So many at a time, each behind a batch of its own; whether all were whole. They are asked for in one order, and end in
 * another. */
static bool add(struct user *u, struct sim_hold *h, struct life *to, size_t n)
{
    struct work all[SLOTS];
    bool whole = true;

    for (size_t i = 0; i < n; i++) /* numbers first, for others add to it, too */
        all[i] = (struct work){
            .user = u, .hold = h, .to = to, .number = h->tally->used++, .first = i, .n = n > 1};
    for (size_t i = 0; i < n; i++)
        begin(&all[i]);
    for (size_t i = n; i-- > 0;) {
        if (!sim_one_in(4))
            tell(&all[i]);
        if (sim_one_in(4))
            disturb(&all[i]);
        try_to_flush(&all[i]);
    }
    for (size_t i = 0, from = n > 1 ? (size_t)sim_below(n) : 0; i < n; i++)
        whole = end(&all[(from + i) % n]) && whole;
    return whole;
}

/* How many at a time. */
static size_t some(const struct sim_hold *h)
{
    size_t left = ADDITIONS - h->tally->used,
           n = sim_one_in(2) ? 1 : 2 + (size_t)sim_below(SLOTS - 1);

    return n < left ? n : left;
}

/* Once more after it is gone, which must be told of. */
static bool has_room(const struct sim_hold *h, const struct life *to)
{
    return h->tally->life == to && h->tally->used < ADDITIONS && (!h->tally->gone || sim_one_in(2));
}

/* Its engine has started anew: what is added further never counts. */
static void add_stale(struct user *u, struct sim_hold *h, struct life *to)
{
    if (h->tally->life == to || strcmp(h->tally->life->name, to->name) != 0 ||
        h->tally->used == ADDITIONS)
        return;
    add(u, h, to, some(h));
    flush(u, h, (int64_t)sim_below(2000));
}

static void use(struct user *u, struct life *to)
{
    struct sim_hold *h = u->holds[to->host];

    if (h && !has_room(h, to)) {
        add_stale(u, h, to);
        flush(u, h, (int64_t)sim_below(2000));
        if (sim_one_in(4)) /* once faults have stopped all is told */
            return;
        let_go(u, to->host);
        h = NULL;
    }
    h = h ? h : hold(u, to);
    for (uint64_t n = 1 + sim_below(4); h && n > 0 && has_room(h, to); n--) {
        add(u, h, to, some(h));
        if (sim_one_in(2))
            flush(u, h, sim_one_in(3) ? 0 : (int64_t)(sim_below(60) * sim_below(60)));
    }
    if (h && sim_one_in(3))
        let_go(u, to->host);
}

void sim_counts_use(struct user *u, struct life *to)
{
    if (sim_one_in(3))
        renew(u->host->life);
    use(u, to);
}

/* -------------------------------------------------------------------------- once nothing is wrong */

/* All of it is counted, or told to be stale if its counter is gone; one of an engine that has another name
 * now is not found. */
static void settle(struct user *u, struct sim_hold *h)
{
    const struct life *to = h->tally->life, *is = sim_world.hosts[to->host].life;
    int rc = TE_ERR_TIMEOUT;

    while (rc && rc != TE_ERR_STALE) {
        rc = flush(u, h, 2000);
        if (to->over && strcmp(to->name, is->name) != 0)
            return;
        if (rc && sim_now() > sim_world.quiet_since + SETTLE_NS)
            sim_fail("host %d is not told by host %d what became of its additions: %s: %s",
                     u->host->number, to->host, te_errname(rc), te_errmsg());
    }
}

/* True once a batch was whole. */
static bool reach(struct user *u, struct life *to)
{
    struct sim_hold *h = u->holds[to->host];
    bool whole;

    if (h) {
        settle(u, h);
        let_go(u, to->host);
    }
    h = hold(u, to);
    if (!h)
        return to->tallies[0]->used == ADDITIONS && to->tallies[1]->used == ADDITIONS;
    whole = add(u, h, to, 1);
    settle(u, h);
    if (!sim_one_in(4))
        let_go(u, to->host);
    return whole;
}

void sim_counts_reach(struct user *u)
{
    for (int i = 1; i <= sim_world.knobs.hosts; i++)
        while (!reach(u, sim_world.hosts[i].life)) {
            if (sim_now() > sim_world.quiet_since + 2 * SETTLE_NS)
                sim_fail("host %d cannot add to a counter of host %d", u->host->number, i);
            usleep(100000);
        }
}
