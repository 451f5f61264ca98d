/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - what meets a descriptor that is being fetched: requests that park, memory that comes when the
 * answer is under way, a segment that is closed.
 */
#include "world.h"

#include "load.h"
#include "sim.h"
#include "te.h"

#include <pthread.h>
#include <unistd.h>

/* Until memory that comes and goes is there, and was not when this began; 0: it has not come. It stays then
 * until what wants it has ended. */
static unsigned await_extra(struct life *to)
{
    unsigned before = to->there;

    for (int64_t end = sim_now() + 20 * SIM_MS; sim_now() < end; usleep(20))
        if (to->there % 2 && to->there != before) {
            to->stays_until = sim_now() + 4 * SIM_S;
            return to->there;
        }
    return 0;
}

static te_batch read_there(struct user *u, te_segment seg, const void *at)
{
    te_batch b = sim_batch(u->host->life, 1, 1);
    te_request r = {TE_READ, u->local, seg, (uintptr_t)at, 8};

    sim_ok(te_submit(u->host->life->engine, b, &r, 1, NULL), "te_submit");
    return b;
}

static void end_read(const struct life *own, te_batch b, bool cancel)
{
    if (cancel)
        sim_ok(te_cancel(own->engine, b), "te_cancel");
    sim_await_end(own->engine, b, 0);
}

static void sleep_some(int from, int to, uint64_t times)
{
    usleep((useconds_t)sim_below(times * (uint64_t)sim_path(from, to)->latency_ns / 1000 + 1));
}

/* The answer, which has been made, does not come through for a while. */
static void hold_answer(const struct life *own, const struct life *to)
{
    sleep_some(to->host, own->host, 8);
    if ((sim_world.knobs.faults & FAULT_CUT) && !sim_one_in(4))
        sim_cut(to->host, own->host, (int64_t)(20 + sim_below(400)) * SIM_MS);
    sleep_some(own->host, to->host, 8);
}

/* One has the descriptor fetched; another one parks meanwhile, for memory that has come since; and
 * the segment is closed while a fetch may go on. */
void sim_park_beside_fetch(struct user *u, struct life *to, te_segment *seg)
{
    struct life *own = u->host->life;
    te_batch vain, other;
    unsigned there;

    if (to == own)
        return;
    sim_allow(u->local, sim_world.slot, true);
    sim_wake(&to->there, true);
    vain = read_there(u, *seg, SIM_NOWHERE);
    hold_answer(own, to);
    sim_wake(&to->there, true);
    there = await_extra(to);
    if (there) {
        other = read_there(u, *seg, to->extra);
        end_read(own, other, false);
        sim_check_extra(own, other, to, there);
        sim_ok(te_batch_free(own->engine, other), "te_batch_free");
    }
    end_read(own, vain, sim_one_in(2));
    sim_ok(te_batch_free(own->engine, vain), "te_batch_free");
    sim_allow(u->local, sim_world.slot, false);
    sim_close(own, to, *seg);
    *seg = SIM_CLOSED;
}

/* --------------------------------------------------------------------------- closed beside a refresh */

struct refresher {
    te_engine *engine;
    const char *name;
    bool over;
};

static void *refresher_main(void *arg)
{
    const struct refresher *r = arg;

    while (!r->over) {
        te_refresh(r->engine, r->name);
        usleep((useconds_t)sim_below(200));
    }
    return NULL;
}

/* What is refreshed can be closed at any time: no request uses it. */
void sim_close_beside_refresh(struct user *u, struct life *to, te_segment *seg)
{
    struct life *own = u->host->life;
    struct refresher r = {own->engine, to->name, false};
    pthread_t thread;

    if (to == own)
        return;
    pthread_create(&thread, NULL, refresher_main, &r);
    for (uint64_t n = 2 + sim_below(10); n > 0 && *seg != SIM_CLOSED; n--) {
        sim_wake(&to->there, true); /* a descriptor that is the same makes no new view */
        sleep_some(own->host, to->host, 12);
        sim_close(own, to, *seg);
        if (to->over || sim_open(own, to, seg) < 0)
            *seg = SIM_CLOSED;
    }
    r.over = true;
    pthread_join(thread, NULL);
}
