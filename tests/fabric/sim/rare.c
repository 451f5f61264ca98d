/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rare.c - what seldom meets by chance: a WRITE that breaks off while its target stands still and the next
 * one to the same place, a submit beside a wait of the same batch, memory that is unregistered at the very
 * end of a request, and calls that must be refused. What meets a descriptor that is fetched is in fetch.c.
 */
#include "world.h"

#include "load.h"
#include "net.h"
#include "machine.h"
#include "sim.h"
#include "te.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_CUT_NS (27 * SIM_S) /* so long that connections are given up */

/* -------------------------------------------------------------- WRITEs of the same place, again */

static void sleep_for(int64_t ns)
{
    usleep((useconds_t)(ns / SIM_US));
}

/* About what a slot takes to get there. */
int64_t sim_time_to(int from, int to)
{
    const struct sim_path *p = sim_path(from, to);

    return p->latency_ns + (int64_t)sim_world.slot * SIM_S / p->bytes_per_s;
}

/* The target stands still, or cannot be heard, or does not hear, or the connection ends. */
void sim_trouble(int from, int to, int64_t ns)
{
    int faults = sim_world.knobs.faults, kind = 1 << sim_below(3);

    if (from == to || !(faults & kind))
        return;
    sim_world.counts.faults++;
    if (kind == FAULT_FREEZE)
        sim_freeze(sim_one_in(4) ? from : to, ns);
    else if (kind == FAULT_RESET)
        sim_reset(from, to);
    else if (sim_one_in(2))
        sim_cut(from, to, ns);
    else
        sim_cut(to, from, ns);
}

/* WRITEs of the same parts of some slots, each slot in a batch of its own. */
struct rewrite {
    struct user *user;
    struct life *to;
    size_t n, at[SLOTS], length[SLOTS];
    struct intent intents[SLOTS];
    te_batch batches[SLOTS];
    int64_t deadline_ms;
    struct sim_judged how;
};

static void choose_parts(struct rewrite *w)
{
    w->n = 1 + (size_t)sim_below(SLOTS);
    for (size_t k = 0; k < w->n; k++) {
        w->at[k] = (size_t)sim_below(sim_world.slot / 2);
        w->length[k] = sim_world.slot / 2 - (size_t)sim_below(100);
    }
}

static void submit_all(struct rewrite *w, te_segment seg, int opcode)
{
    struct life *own = w->user->host->life;
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = w->deadline_ms};

    w->how = (struct sim_judged){w->deadline_ms == 0, own->writes[w->to->host] == 0, sim_now()};
    for (size_t k = 0; k < w->n; k++) {
        struct te_request r;

        sim_check_slot(w->to, w->user, (int)k);
        w->intents[k] = sim_intend(w->user, w->to, (int)k, opcode, w->at[k], w->length[k]);
        r = sim_request_of(w->user, w->to, seg, &w->intents[k], (int)k);
        w->batches[k] = sim_batch(own, 1, 1);
        sim_count_write(own, w->to, opcode);
        sim_ok(te_submit(own->engine, w->batches[k], &r, 1, &opts), "te_submit");
    }
}

static void end_all(struct rewrite *w, bool cancel)
{
    const struct life *own = w->user->host->life;
    struct te_status s;

    for (size_t k = 0; cancel && k < w->n; k++)
        sim_ok(te_cancel(own->engine, w->batches[k]), "te_cancel");
    for (size_t k = 0; k < w->n; k++) {
        if (cancel)
            sim_await_canceled(own, w->batches[k]);
        sim_await_end(own->engine, w->batches[k], w->deadline_ms);
        if (!cancel)
            sim_check_end(own, w->batches[k], 0, w->to, w->how);
        sim_ok(te_status(own->engine, w->batches[k], 0, &s), "te_status");
        sim_conclude(&w->intents[k], s.state, w->to);
        sim_ok(te_batch_free(own->engine, w->batches[k]), "te_batch_free");
        sim_world.counts.batches++;
    }
}

/* False if that life is over: the next one may have another name. */
static bool reopen(struct life *own, const struct life *to, te_segment *seg)
{
    sim_close(own, to, *seg);
    for (*seg = SIM_CLOSED; !to->over; usleep(100000))
        if (sim_open(own, to, seg) == 0)
            return true;
    return false;
}

/* Parts of which none overlaps another's. */
static void choose_others(struct rewrite *w)
{
    for (size_t k = 0; k < w->n; k++)
        w->at[k] += w->length[k], w->length[k] = sim_world.slot - w->at[k];
}

/* One that breaks off: it is cancelled, or late. The path there is cut, or there is other trouble. */
static void break_off(struct rewrite *w, te_segment seg, int64_t trouble_ns, bool cut)
{
    int from = w->user->host->number, to = w->to->host;
    int64_t time = sim_time_to(from, to);

    w->deadline_ms = sim_one_in(2) ? 1 + (int64_t)sim_below(300) : 0;
    submit_all(w, seg, TE_WRITE);
    sleep_for((int64_t)sim_below((uint64_t)time));
    if (cut)
        sim_cut(from, to, trouble_ns);
    else
        sim_trouble(from, to, trouble_ns);
    sleep_for((int64_t)sim_below((uint64_t)time));
    end_all(w, w->deadline_ms == 0);
}

/* The last one is let go on, and is there after the trouble is over. */
static void let_end(struct rewrite *w, te_segment seg, int64_t trouble_ns)
{
    w->deadline_ms = 0;
    submit_all(w, seg, TE_WRITE);
    end_all(w, false);
    submit_all(w, seg, TE_READ);
    if (sim_one_in(3))
        sim_trouble(w->user->host->number, w->to->host, SIM_MS << sim_below(9));
    end_all(w, false);
    sleep_for((int64_t)sim_below(2 * (uint64_t)trouble_ns));
    for (size_t k = 0; k < w->n; k++)
        sim_check_slot(w->to, w->user, (int)k);
}

/* Ranges that are lost are forgotten with the segment, whatever else is not settled then. */
static void lose_and_reopen(struct rewrite *w, te_segment *seg)
{
    struct rewrite others = *w;

    break_off(w, *seg, LONG_CUT_NS, true);
    sleep_for(LONG_CUT_NS);
    choose_others(&others);
    break_off(&others, *seg, SIM_MS, false);
    if (reopen(w->user->host->life, w->to, seg))
        let_end(w, *seg, SIM_MS);
}

void sim_rewrite(struct user *u, struct life *to, te_segment *seg)
{
    struct rewrite w = {.user = u, .to = to};
    int64_t trouble_ns =
        sim_one_in(4) ? SIM_S + (int64_t)sim_below(3 * SIM_S) : SIM_US << sim_below(21);

    choose_parts(&w);
    if ((sim_world.knobs.faults & FAULT_CUT) && to->host != u->host->number && sim_one_in(6)) {
        lose_and_reopen(&w, seg);
        return;
    }
    for (uint64_t n = 1 + sim_below(3); n > 0; n--)
        break_off(&w, *seg, trouble_ns, false);
    if (!sim_one_in(3) || reopen(u->host->life, to, seg))
        let_end(&w, *seg, trouble_ns);
}

/* ------------------------------------------------------------------------ a submit beside a wait */

struct waiter {
    te_engine *engine;
    te_batch batch;
    bool over;
};

static void *waiter_main(void *arg)
{
    const struct waiter *w = arg;

    while (!w->over)
        if (sim_wait(w->engine, w->batch, 100 + (int64_t)sim_below(5000)) == 0)
            usleep((useconds_t)sim_below(50));
    return NULL;
}

/* Spins until it has ended. */
static struct te_status see_end(te_engine *e, te_batch b, size_t task)
{
    struct te_status s;

    for (int tries = 0;; tries++) {
        sim_ok(te_status(e, b, task, &s), "te_status");
        if (s.state != TE_WAITING && s.state != TE_PENDING)
            return s;
        usleep(tries < 200 ? 2 : 500);
    }
}

void sim_submit_beside_wait(struct user *u, struct life *to, te_segment seg)
{
    struct life *own = u->host->life;
    const size_t n = 12;
    struct waiter w = {own->engine, sim_batch(own, n, (unsigned)n), false};
    pthread_t thread;

    pthread_create(&thread, NULL, waiter_main, &w);
    for (size_t k = 0; k < n; k++) {
        struct intent i = sim_intend(u, to, 0, TE_READ, 0, 64);
        struct te_request r = sim_request_of(u, to, seg, &i, 0);

        sim_ok(te_submit(own->engine, w.batch, &r, 1, NULL), "te_submit");
        sim_conclude(&i, see_end(own->engine, w.batch, k).state, to);
    }
    w.over = true;
    pthread_join(thread, NULL);
    sim_ok(te_wait(own->engine, w.batch, -1), "te_wait");
    sim_ok(te_batch_free(own->engine, w.batch), "te_batch_free");
    sim_world.counts.batches++;
}

/* Again and again, for it must be the connection of one of them. */
void sim_read_beside_reset(struct user *u, struct life *to, te_segment seg)
{
    int from = u->host->number;
    struct rewrite w = {.user = u, .to = to};

    for (uint64_t n = 1 + sim_below(8); n > 0; n--) {
        choose_parts(&w);
        submit_all(&w, seg, TE_READ);
        sleep_for((int64_t)sim_below((uint64_t)sim_time_to(from, to->host)));
        if ((sim_world.knobs.faults & FAULT_RESET) && from != to->host)
            sim_reset(from, to->host);
        end_all(&w, false);
    }
}

/* WRITEs wait in a path that is cut, the connection breaks at this end, and the path is back at once: these
 * bytes come late, when all has been sent again, and other bytes behind that. */
void sim_write_beside_break(struct user *u, struct life *to, te_segment seg)
{
    int from = u->host->number;
    int64_t ns = SIM_MS + (int64_t)sim_below(150) * SIM_MS;
    struct rewrite w = {.user = u, .to = to};

    for (uint64_t n = 1 + sim_below(6); n > 0 && !sim_is_same_machine(from, to->host); n--) {
        choose_parts(&w);
        sim_cut(from, to->host, ns);
        submit_all(&w, seg, TE_WRITE);
        sleep_for(SIM_MS);
        sim_write_unreadable(u, to, seg);
        end_all(&w, false);
        let_end(&w, seg, 500 * SIM_MS);
    }
}

/* ----------------------------------------------------------------------------- memory at the end */

static bool is_under_way(te_engine *e, te_batch b, size_t n)
{
    struct te_status s;
    bool yes = false;

    for (size_t k = 0; k < n; k++) {
        sim_ok(te_status(e, b, k, &s), "te_status");
        yes = yes || s.state == TE_WAITING || s.state == TE_PENDING;
    }
    return yes;
}

/* Its source can be let go of as soon as no request uses it, which is then about to end, and no sooner. */
void sim_unregister_beside(struct user *u, te_batch b, size_t n)
{
    te_engine *e = u->host->life->engine;
    bool in_use = true;
    int rc;

    if (sim_one_in(2)) { /* at once when that is seen */
        for (size_t k = 0; k < n; k++)
            see_end(e, b, k);
        in_use = false;
    }
    rc = te_unregister(e, u->local);
    if (rc == TE_ERR_BUSY ? in_use : sim_may_try_again(rc))
        return;
    sim_ok(rc, "te_unregister");
    sim_allow(u->local, SLOTS * sim_world.slot, false);
    for (int tries = 0; is_under_way(e, b, n); tries++, usleep(10))
        if (tries == 1000)
            sim_fail("memory was unregistered while a request uses it");
    sim_allow(u->local, n * sim_world.slot, true);
    sim_register(e, u->local, SLOTS * sim_world.slot, 0);
}

/* Others' requests may be on connections that break now, or have broken. */
static void break_all(void)
{
    for (int i = 0; i < RESETS; i++)
        sim_world.resets[i].at = sim_now() + 60 * SIM_S, sim_world.resets[i].a = 0;
}

/* Connections that have it on them break, and it is FAILED: neither is it touched here. */
void sim_write_unreadable(struct user *u, const struct life *to, te_segment seg)
{
    te_engine *e = u->host->life->engine;
    struct iovec *shut = &sim_net_shut[u->host->number];
    char *page = sim_pages(4096);
    te_request r = {TE_WRITE, page, seg, (uintptr_t)to->extra, 4096};
    te_batch b = sim_batch(u->host->life, 1, 1);
    struct te_status s;

    if (shut->iov_base || (sim_world.knobs.fabrics & FABRIC_NICS) ||
        sim_is_same_machine(to->host, u->host->number)) /* a copy faults */
        return;
    *shut = (struct iovec){page, 4096};
    break_all();
    sim_register(e, page, 4096, 0);
    sim_allow(page, 4096, false);
    sim_ok(te_submit(e, b, &r, 1, NULL), "te_submit");
    sim_await_end(e, b, 0);
    sim_ok(te_status(e, b, 0, &s), "te_status");
    if (s.state == TE_COMPLETED)
        sim_fail("a WRITE of memory that cannot be read is COMPLETED");
    sim_ok(te_batch_free(e, b), "te_batch_free");
    sim_unregister(e, page);
    break_all();
    shut->iov_base = NULL;
}

/* -------------------------------------------------------------------------- calls that are refused */

static void refuse(int rc, int as, const char *what)
{
    if (rc != as)
        sim_fail("%s: %s instead of %s", what, te_errname(rc), te_errname(as));
}

/* Options of another release, and a message that is too large, which concern no request. */
static void submit_oddly(struct user *u, te_segment seg)
{
    te_engine *e = u->host->life->engine;
    te_batch b = sim_batch(u->host->life, 1, 1);
    struct {
        te_submit_opts opts;
        char more[32];
    } later = {.opts = {.size = sizeof(later), .notify_target = seg}};
    te_request r = {TE_READ, u->local, seg, (uintptr_t)u->local, 1}; /* which is not there */
    char *text = sim_one_in(8) ? sim_new((2 << 20) + 1) : NULL;

    if (text) {
        memset(text, 'x', 2 << 20);
        later.opts.notify_name = "behind";
        later.opts.notify_msg = text;
    }
    sim_allow(u->local, sim_world.slot, true);
    sim_ok(te_submit(e, b, &r, 1, &later.opts), "te_submit");
    sim_await_end(e, b, 0);
    sim_allow(u->local, sim_world.slot, false);
    sim_ok(te_batch_free(e, b), "te_batch_free");
    free(text);
}

void sim_refused_calls(struct user *u, te_segment seg)
{
    te_engine *e = u->host->life->engine;

    refuse(te_register(e, SIM_NOWHERE, 4096, "cpu:0", 0), TE_ERR_INVALID,
           "memory that is not mapped");
    refuse(te_register(e, u->local + 1, 1, "cpu:0", 0), TE_ERR_OVERLAP, "memory once more");
    refuse(te_unregister(e, u->local + 1), TE_ERR_NOT_REGISTERED, "no region begins there");
    if (seg != TE_LOCAL_SEGMENT)
        submit_oddly(u, seg);
}
