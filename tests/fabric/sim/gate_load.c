/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_load.c - requests that wait for a descriptor and signal one (te_stream.h), and what must be true of them. Until
 * a gate is opened nobody can touch what its requests move at this side, and their target is as it was; what a WRITE
 * sends is written just before. Gates are opened at any time, also by another thread beside te_cancel() and the
 * deadline, or never, or lose their other end.
 */
#include "world.h"

#include "load.h"
#include "sim.h"
#include "te.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define AREA  (SLOTS * sim_world.slot) /* of a user, here and there */
#define LOOKS 60                       /* at `then`, of a second each, before all is waited for */

/* What becomes of a gate. */
enum fate {
    OPENED,
    RACED,    /* by another thread, whatever happens meanwhile */
    NEVER,    /* its requests have a deadline */
    CANCELED, /* while it is closed */
    LEFT,     /* its other end is closed, with nothing to be read */
    FATES
};

struct gate {
    enum fate fate;
    int fd;        /* which is readable once it is open */
    int far;       /* the other end of a pair, -1: it is an eventfd */
    bool is_early; /* raced from before the call on */
    int64_t opens_in_us;
    pthread_t thread;
};

/* The requests of a call that wait for it, in a batch of their own: to slots from `first` on, or of pages. */
struct held {
    struct user *user;
    struct life *to;
    struct gate *gate;
    te_batch batch;
    size_t first, n;
    struct intent intents[SLOTS];
    struct sim_paged *paged;
    unsigned char *was; /* of pages: what was sure at the target before, and whether */
    bool *was_sure;
    int then;      /* -1: none */
    unsigned note; /* that follows them, too */
    int64_t deadline_ms, begin;
    struct sim_judged how;
    bool canceled;
};

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

/* ------------------------------------------------------------------------------------------ a gate */

/* False if there is no descriptor to be had. */
static bool make_gate(struct gate *g)
{
    int ends[2] = {-1, -1};

    g->far = -1;
    g->fate = sim_world.is_quiet ? OPENED : (enum fate)sim_below(FATES);
    if (g->fate != LEFT && sim_one_in(2)) {
        g->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return g->fd >= 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return false;
    g->fd = ends[0];
    g->far = ends[1];
    return true;
}

static void leave(struct gate *g)
{
    close(g->far);
    g->far = -1;
}

/* Of a pair the other end may be closed at once: there is something to be read. */
static void open_gate(struct gate *g)
{
    sim_trace("a gate is opened");
    if (g->far < 0) {
        eventfd_write(g->fd, 1);
        return;
    }
    if (send(g->far, "!", 1, MSG_NOSIGNAL) != 1)
        sim_fail("a pair of sockets takes nothing");
    if (sim_one_in(2))
        leave(g);
}

static void *opener_main(void *arg)
{
    struct gate *g = arg;

    usleep((useconds_t)g->opens_in_us);
    open_gate(g);
    return NULL;
}

static void race(struct gate *g)
{
    g->opens_in_us = (int64_t)(sim_one_in(2) ? sim_below(200) : sim_below(3000000));
    if (g->is_early)
        g->opens_in_us = (int64_t)sim_below(30);
    pthread_create(&g->thread, NULL, opener_main, g);
}

static void end_gate(struct gate *g)
{
    if (g->fate == RACED)
        pthread_join(g->thread, NULL);
    if (g->far >= 0)
        leave(g);
    close(g->fd);
}

/* ---------------------------------------------------------------------------------- what is submitted */

static void choose_slots(struct held *h, bool is_alike)
{
    for (size_t k = 0; k < h->n; k++) {
        size_t slot = h->first + k, at = (size_t)sim_below(sim_world.slot / 2);

        h->intents[k] =
            (struct intent){.opcode = k && is_alike ? h->intents[0].opcode : (int)sim_below(2),
                            .at = at,
                            .length = 1 + (size_t)sim_below(sim_world.slot / 2),
                            .local = h->user->local + slot * sim_world.slot};
        sim_check_slot(h->to, h->user, (int)slot);
    }
}

/* Nothing has come to the target, or all that was sure of it would be there. */
static void check_untouched(const struct held *h)
{
    const unsigned char *is =
        sim_view(h->to->memory + sim_slot_number(h->user, 0) * sim_world.slot);

    for (size_t k = 0; !h->paged && k < h->n; k++)
        sim_check_slot(h->to, h->user, (int)(h->first + k));
    for (size_t i = 0; h->paged && !h->to->over && i < AREA; i++)
        if (h->was_sure[i] && is[i] != h->was[i])
            sim_fail("torn: byte %zu was written by pages that wait", i);
}

/* From now on it may be moved, and what is sent is this. */
static void make_ready(struct held *h)
{
    struct life *own = h->user->host->life;

    check_untouched(h);
    h->how = (struct sim_judged){!h->deadline_ms, own->writes[h->to->host] == 0, sim_now()};
    if (h->paged)
        sim_allow(h->user->local, AREA, true);
    for (size_t k = 0; !h->paged && k < h->n; k++) {
        const struct intent *i = &h->intents[k];

        h->intents[k] =
            sim_intend(h->user, h->to, (int)(h->first + k), i->opcode, i->at, i->length);
        sim_count_write(own, h->to, i->opcode);
    }
}

static int submit_slots(struct held *h, te_segment seg, const te_submit_opts *opts)
{
    bool is_prepared = sim_one_in(3);
    te_request reqs[SLOTS];

    choose_slots(h, is_prepared);
    for (size_t k = 0; k < h->n; k++)
        reqs[k] = sim_request_of(h->user, h->to, seg, &h->intents[k], (int)(h->first + k));
    if (h->gate->is_early) {
        make_ready(h);
        race(h->gate);
    }
    if (is_prepared)
        return sim_submit_prepared(h->user->host->life->engine, h->batch, reqs, h->n, opts);
    return te_submit(h->user->host->life->engine, h->batch, reqs, h->n, opts);
}

static const struct slot *first_slot(const struct held *h)
{
    return &h->to->slots[sim_slot_number(h->user, 0)];
}

static void submit_pages(struct held *h, te_segment seg, const te_submit_opts *opts)
{
    h->was = sim_new(AREA);
    h->was_sure = sim_new(AREA);
    memcpy(h->was, first_slot(h)->want, AREA);
    memcpy(h->was_sure, first_slot(h)->sure, AREA);
    h->paged = sim_pages_submit(h->user, h->to, seg, h->batch, (int)sim_below(2), opts);
    sim_allow(h->user->local, AREA, false);
}

/* Without a descriptor for it the call submits nothing. */
static bool may_refuse(int rc)
{
    return rc == TE_ERR_SYSTEM && (sim_world.knobs.faults & FAULT_FILES);
}

static int64_t some_deadline(const struct gate *g)
{
    if (g->fate == NEVER)
        return 1 + (int64_t)(sim_below(60) * sim_below(60));
    if (g->fate == CANCELED || g->fate == LEFT || sim_world.is_quiet || sim_one_in(2))
        return 0;
    return 1 + (int64_t)sim_below(4000);
}

/* The program's own descriptors are not needed once the call has returned. */
static int submit_to(struct held *h, te_segment seg, bool pages)
{
    int waited = fcntl(h->gate->fd, F_DUPFD_CLOEXEC, 3), rc = 0;
    te_stream after = {.size = sizeof(after), .fd = waited < 0 ? h->gate->fd : waited};
    te_stream then = {.size = sizeof(then), .fd = h->then};
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = h->deadline_ms, .after = &after};
    char note[16];

    h->note = sim_note_new(h->to->host, note);
    opts.notify_name = sim_one_in(2) ? NULL : "behind";
    opts.notify_msg = note;
    opts.notify_target = seg;
    opts.then = h->then < 0 ? NULL : &then;
    if (pages)
        submit_pages(h, seg, &opts);
    else
        rc = submit_slots(h, seg, &opts);
    if (waited >= 0)
        close(waited);
    return rc;
}

/* False if nothing is submitted. */
static bool hold(struct held *h, te_segment seg, bool pages)
{
    struct life *own = h->user->host->life;
    int rc;

    h->deadline_ms = some_deadline(h->gate);
    h->then = sim_one_in(4) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->batch = sim_batch(own, SLOTS, 1);
    h->begin = sim_now();
    rc = submit_to(h, seg, pages);
    sim_trace("user %d: %zu requests to host %d wait: %s", h->user->index, h->n, h->to->host,
              te_errname(rc));
    if (rc == 0)
        return true;
    if (!may_refuse(rc))
        sim_ok(rc, "te_submit");
    if (h->then >= 0 && is_readable(h->then, 0))
        sim_fail("a call has failed, and its descriptor goes on");
    if (h->then >= 0)
        close(h->then);
    sim_ok(te_batch_free(own->engine, h->batch), "te_batch_free");
    for (size_t k = 0; h->gate->is_early && k < h->n; k++)
        sim_conclude(&h->intents[k], TE_FAILED, h->to);
    sim_note_conclude(h->note, false);
    return false;
}

/* --------------------------------------------------------------------------- what is true while it waits */

static bool is_over(int state)
{
    return state != TE_WAITING && state != TE_PENDING;
}

static bool is_late(const struct held *h)
{
    return h->deadline_ms && sim_now() >= h->begin + h->deadline_ms * SIM_MS;
}

static void check_in_use(const struct held *h)
{
    const struct life *own = h->user->host->life;
    int rc = te_batch_free(own->engine, h->batch);

    if (rc != TE_ERR_BUSY && !is_late(h))
        sim_fail("te_batch_free() of requests that wait: %s", te_errname(rc));
    if (h->deadline_ms)
        return;
    rc = te_unregister(own->engine, h->user->local);
    if (rc != TE_ERR_BUSY && !sim_may_try_again(rc))
        sim_fail("te_unregister() of what requests wait to move: %s", te_errname(rc));
    if (sim_wait(own->engine, h->batch, (int64_t)sim_below(50)) == 0)
        sim_fail("te_wait() has returned, and its requests wait");
}

/* Its gate is closed. */
static void check_held(const struct held *h)
{
    const struct life *own = h->user->host->life;
    struct te_status s;

    for (size_t k = 0; k < (h->paged ? 1 : h->n); k++) {
        sim_ok(te_status(own->engine, h->batch, k, &s), "te_status");
        if (is_over(s.state) ? !is_late(h) : s.state != TE_PENDING)
            sim_fail("a request that waits is in state %d, with error %d", s.state, s.error);
    }
    if (h->then >= 0 && is_readable(h->then, 0) && !is_late(h))
        sim_fail("what follows requests goes on, and they wait");
    if (!h->deadline_ms && sim_one_in(3))
        check_in_use(h);
    check_untouched(h);
}

/* The same place is written and read by others meanwhile, or the two hosts have trouble. */
static void go_by(const struct held *h, te_segment seg)
{
    int from = h->user->host->number, to = h->to->host;

    if (!sim_world.is_quiet && sim_one_in(3))
        sim_trouble(from, to, SIM_MS << sim_below(13));
    if (!h->paged && sim_one_in(3)) {
        h->user->waits = true;
        sim_run_batch(h->user, h->to, seg, sim_one_in(2) ? 0 : 1 + (int64_t)sim_below(500));
        h->user->waits = false;
    }
    usleep((useconds_t)(sim_one_in(3) ? sim_below(6000000) : sim_below(100000)));
}

/* -------------------------------------------------------------------------------------- how it ends */

static void cancel(struct held *h)
{
    const struct life *own = h->user->host->life;

    h->canceled = true;
    sim_ok(te_cancel(own->engine, h->batch), "te_cancel");
    sim_await_canceled(own, h->batch);
}

/* Nothing of it is begun any more, so that it ends at its time. */
static void await_in_time(const struct held *h)
{
    te_engine *e = h->user->host->life->engine;
    int64_t due =
        (h->deadline_ms ? h->begin + h->deadline_ms * SIM_MS : sim_now()) + sim_patience();

    while (sim_wait(e, h->batch, 500) == TE_ERR_TIMEOUT)
        if (sim_now() > due && !sim_stood(sim_host(), h->begin))
            sim_fail("requests that wait have not ended %lld s after they were to",
                     (long long)(sim_patience() / SIM_S));
}

static void check_signalled(const struct held *h)
{
    const struct life *own = h->user->host->life;
    struct te_status s;

    for (size_t k = 0; k < (h->paged ? 1 : h->n); k++) {
        sim_ok(te_status(own->engine, h->batch, k, &s), "te_status");
        if (!is_over(s.state))
            sim_fail("what follows requests goes on, and one is in state %d", s.state);
    }
}

/* By the descriptor, or by the batch, as chance will have it. */
static void await(const struct held *h)
{
    te_engine *e = h->user->host->life->engine;
    int looks = h->then >= 0 && sim_one_in(2) ? LOOKS : 0;

    for (int i = 0; i < looks; i++)
        if (is_readable(h->then, 1000)) {
            check_signalled(h);
            return;
        }
    if (h->paged)
        sim_pages_await(h->paged, h->deadline_ms);
    else
        sim_await_end(e, h->batch, h->deadline_ms);
}

/* 1 is written, once. */
static void check_then(const struct held *h)
{
    int64_t begin = sim_now();
    uint64_t n = 0;

    while (!is_readable(h->then, 1000))
        if (sim_now() > begin + sim_patience() && !sim_stood(sim_host(), begin))
            sim_fail("requests have ended, and what follows them does not go on");
    check_signalled(h);
    if (read(h->then, &n, sizeof(n)) != sizeof(n) || n != 1)
        sim_fail("the descriptor of what follows requests has %llu", (unsigned long long)n);
}

/* What requests of a gate that was not opened end as. */
static void check_fate(const struct held *h, size_t task)
{
    static const int states[] = {
        [NEVER] = TE_TIMEOUT, [CANCELED] = TE_CANCELED, [LEFT] = TE_FAILED};
    static const int errors[] = {
        [NEVER] = TE_ERR_TIMEOUT, [CANCELED] = TE_ERR_CANCELED, [LEFT] = TE_ERR_SYSTEM};
    const struct life *own = h->user->host->life;
    enum fate fate = h->gate->fate;
    struct te_status s;

    sim_ok(te_status(own->engine, h->batch, task, &s), "te_status");
    if (s.state != states[fate] || s.error != errors[fate] || s.bytes)
        sim_fail("a request that was not begun has ended in state %d with error %d, %llu bytes",
                 s.state, s.error, (unsigned long long)s.bytes);
    sim_world.counts.ended++;
}

static bool is_begun(const struct held *h)
{
    return h->gate->fate == OPENED || h->gate->fate == RACED;
}

static bool end_requests(struct held *h)
{
    size_t n = h->paged ? 1 : h->n;
    bool whole = true;

    if (!is_begun(h)) {
        check_untouched(h);
        for (size_t k = 0; k < n; k++)
            check_fate(h, k);
    }
    if (h->paged) {
        sim_allow(h->user->local, AREA, true);
        whole = sim_pages_end(h->paged, h->canceled || !is_begun(h)) == TE_COMPLETED;
    } else if (is_begun(h)) {
        whole = sim_end_slots(h->user, h->batch, h->to, h->intents, h->first, h->n,
                              h->canceled ? NULL : &h->how);
    }
    return whole && is_begun(h);
}

/* Bytes are looked at as soon as what follows goes on, before anybody waits for the batch. */
static bool end(struct held *h)
{
    te_engine *e = h->user->host->life->engine;
    bool whole;

    if (is_begun(h) && !h->canceled)
        await(h);
    else if (!is_begun(h))
        await_in_time(h);
    if (h->then >= 0)
        check_then(h);
    else
        sim_await_end(e, h->batch, h->deadline_ms);
    whole = end_requests(h);
    sim_note_conclude(h->note, whole);
    sim_await_end(e, h->batch, h->deadline_ms);
    sim_ok(te_batch_free(e, h->batch), "te_batch_free");
    sim_world.counts.batches++;
    if (h->then >= 0 && is_readable(h->then, sim_one_in(4) ? 100 : 0))
        sim_fail("what follows requests goes on twice");
    if (h->then >= 0)
        close(h->then);
    free(h->was);
    free(h->was_sure);
    return whole;
}

/* ------------------------------------------------------------------------------------- all that wait */

/* Before it is raced or opened; what was cancelled and goes on all the same does not end soon then. */
static void disturb(const struct held *h)
{
    if (!sim_world.is_quiet && !sim_one_in(3))
        sim_trouble(h->user->host->number, h->to->host, SIM_S << sim_below(4));
}

/* What waits for a gate meets its fate. */
static void decide(struct gate *g, struct held *all, size_t n)
{
    if (!g->is_early && (g->fate == OPENED || g->fate == RACED))
        for (size_t i = 0; i < n; i++)
            make_ready(&all[i]);
    if (n)
        disturb(&all[0]);
    if (g->fate == OPENED) {
        open_gate(g);
    } else if (g->fate == RACED && !g->is_early) {
        race(g);
    } else if (g->fate == LEFT) {
        leave(g);
    }
    if (g->fate == RACED || (g->fate == OPENED && !sim_world.is_quiet && sim_one_in(3)))
        usleep((useconds_t)(sim_one_in(2) ? sim_below(200) : sim_below(1000000)));
    for (size_t i = 0; i < n; i++)
        if (g->fate == CANCELED || (g->fate == RACED && sim_one_in(2)) ||
            (g->fate == OPENED && !sim_world.is_quiet && sim_one_in(3)))
            cancel(&all[i]);
}

/* Requests of one call to several slots or of pages, or a call for each of several slots. */
static size_t hold_all(struct user *u, struct life *to, te_segment seg, struct gate *g,
                       struct held all[SLOTS])
{
    bool pages = (sim_world.knobs.fabrics & CALLS_PAGES) &&
                 !(sim_world.knobs.faults & FAULT_FILES) && sim_one_in(3);
    size_t calls = !pages && sim_one_in(3) ? 2 + (size_t)sim_below(SLOTS - 1) : 1, n = 0;

    g->is_early = g->fate == RACED && calls == 1 && !pages && sim_one_in(2);

    for (size_t i = 0; i < calls; i++) {
        struct held *h = &all[n];

        *h = (struct held){.user = u, .to = to, .gate = g, .first = i};
        h->n = calls > 1 ? 1 : 1 + (size_t)sim_below(SLOTS);
        n += hold(h, seg, pages);
    }
    return n;
}

/* Whether all was COMPLETED. */
static bool run(struct user *u, struct life *to, te_segment seg)
{
    struct held all[SLOTS];
    struct gate g = {0};
    bool whole = true;
    size_t n;

    if (!make_gate(&g))
        return false;
    n = hold_all(u, to, seg, &g, all);
    for (uint64_t times = g.is_early ? 0 : sim_below(4); n && times > 0; times--) {
        go_by(&all[0], seg);
        for (size_t i = 0; i < n; i++)
            check_held(&all[i]);
    }
    if (g.fate == RACED && !g.is_early && !n)
        g.fate = OPENED; /* nobody waits: there is no race */
    decide(&g, all, n);
    for (size_t i = 0; i < n; i++)
        whole = end(&all[i]) && whole;
    end_gate(&g);
    return whole && n;
}

/* ------------------------------------------------------------------------------ calls that are refused */

static void refuse(const struct user *u, te_segment seg, int opcode, te_stream *after,
                   te_stream *then, const char *what)
{
    te_engine *e = u->host->life->engine;
    te_request r = {opcode, u->local, seg, (uintptr_t)u->local, 1};
    te_submit_opts opts = {.size = sizeof(opts), .after = after, .then = then};
    te_batch b;
    int rc;

    sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
    rc = te_submit(e, b, &r, 1, &opts);
    if (rc != TE_ERR_INVALID && !may_refuse(rc))
        sim_fail("%s: %s instead of TE_ERR_INVALID", what, te_errname(rc));
    sim_ok(te_batch_free(e, b), "te_batch_free");
}

static void refused_calls(const struct user *u, te_segment seg)
{
    te_stream after = {.size = sizeof(after)}, then = {.size = sizeof(then)};
    int ends[2], over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (over < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        if (over >= 0)
            close(over);
        return;
    }
    after.fd = ends[0];
    then.fd = over;
    refuse(u, seg, 7, &after, &then, "an opcode that there is not");
    then.fd = ends[1];
    refuse(u, seg, TE_READ, &after, &then, "a socket to be written to");
    after.fd = 0;
    then.fd = over;
    refuse(u, seg, TE_READ, &after, &then, "no descriptor to wait for");
    if (is_readable(over, 0))
        sim_fail("a call has failed, and its descriptor goes on");
    close(ends[0]);
    close(ends[1]);
    close(over);
}

void sim_gates_use(struct user *u, struct life *to, te_segment seg)
{
    if (sim_one_in(10))
        refused_calls(u, seg);
    for (uint64_t n = 1 + sim_below(3); n > 0; n--)
        run(u, to, seg);
}

bool sim_gates_reach(struct user *u, struct life *to, te_segment seg)
{
    return run(u, to, seg);
}

/* ------------------------------------------------------------------------- when the engine ends */

struct sim_left {
    int gate, then;
};

struct sim_left *sim_gates_leave(const struct user *u, te_engine *e, const struct life *to)
{
    struct sim_left *l;
    te_stream after = {.size = sizeof(after)}, then = {.size = sizeof(then)};
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_request r = {.opcode = (int)sim_below(2), .source = u->local, .length = AREA};
    te_batch b;

    if (!to || te_open(e, to->name, &r.target) < 0)
        return NULL;
    l = sim_new(sizeof(*l));
    l->gate = after.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->then = then.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r.target_offset = (uintptr_t)to->memory + sim_slot_number(u, 0) * (uint64_t)sim_world.slot;
    sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
    sim_ok(te_submit(e, b, &r, 1, &opts), "te_submit");
    if (sim_one_in(2))
        usleep((useconds_t)sim_below(2000));
    if (sim_one_in(3))
        eventfd_write(l->gate, 1);
    return l;
}

void sim_gates_left(struct sim_left *l)
{
    uint64_t n = 0;

    if (!l)
        return;
    if (read(l->then, &n, sizeof(n)) != sizeof(n) || n != 1)
        sim_fail("te_engine_destroy() has returned, and what follows requests has %llu",
                 (unsigned long long)n);
    close(l->gate);
    close(l->then);
    free(l);
}
