/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest.c - engines that come and go while others are busy with them, beside the one that a host has all
 * its life.
 */
#include "world.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT       15002
#define MEMORY     (SLOTS * USERS * sim_world.slot)
#define DESTROY_NS (120 * SIM_S)
#define ALLOC      65536
#define JSON       ((size_t)1 << 20)

/* An engine that is being ended. */
struct ending {
    const struct host *host;
    const struct life *life;
    int64_t begin;
    bool over;
};

static void on_overdue(void *arg)
{
    struct ending *d = arg;

    if (d->over || d->host->life != d->life) {
        free(d);
        return;
    }
    if (!sim_stood(d->host->number, d->begin))
        sim_fail("te_engine_destroy() on host %d has not returned in %lld s", d->host->number,
                 (long long)(DESTROY_NS / SIM_S));
    d->begin = sim_now();
    sim_at(sim_now() + DESTROY_NS, on_overdue, d);
}

void sim_destroy(te_engine *e, const struct host *h)
{
    struct ending *d = sim_new(sizeof(*d));

    *d = (struct ending){h, h->life, sim_now(), false};
    sim_at(sim_now() + DESTROY_NS, on_overdue, d);
    te_engine_destroy(e);
    d->over = true;
}

/* Memory that two engines of a process have registered is not freed. */
static void share(te_engine *a, te_engine *b)
{
    void *p;
    int rc;

    sim_ok(te_alloc(a, ALLOC, "cpu:0", &p), "te_alloc");
    sim_register(b, p, ALLOC, TE_REMOTE_READ);
    rc = te_free(a, p);
    if (rc != TE_ERR_BUSY)
        sim_fail("te_free() of memory that another engine has registered: %s", te_errname(rc));
    sim_unregister(b, p);
    sim_ok(te_free(a, p), "te_free");
}

/* Asks a host for what it has not, and sends it messages: te/aux is busy with that when the engine ends. */
static void be_busy(te_engine *e, char *memory, int host)
{
    const struct life *to = sim_any_life();
    te_segment seg;
    te_batch b;

    if (!to || te_open(e, to->name, &seg) < 0)
        return;
    for (uint64_t n = 1 + sim_below(6); n > 0; n--) {
        bool vain = n > 1 && sim_one_in(3);
        te_request r = {TE_READ, memory, seg, (uintptr_t)(vain ? SIM_NOWHERE : to->memory), 8};
        te_submit_opts opts = {.size = sizeof(opts), .notify_target = seg};

        opts.notify_name = vain ? NULL : "guest";
        opts.notify_msg = "";
        sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
        sim_ok(te_submit(e, b, &r, 1, &opts), "te_submit");
        if (sim_one_in(2))
            sim_wait(e, b, 1000);
        else
            usleep((useconds_t)(sim_below(60) * sim_below(60)));
    }
    sim_trouble(host, to->host, 100 * SIM_MS << sim_below(5));
}

/* The port that peers move data by, as the descriptor has it. */
static uint16_t data_port(te_engine *e)
{
    char *json = sim_new(JSON), *at;

    sim_segment_json(e, TE_LOCAL_SEGMENT, json, JSON);
    at = strstr(json, "tcp_data_port");
    if (!at)
        sim_fail("a descriptor without a port: %s", json);
    return (uint16_t)strtoul(at + strcspn(at, "0123456789"), NULL, 10);
}

/* In the middle of what peers do; requests of its own that are under way are what keeps it. */
static void uninstall(te_engine *e)
{
    int rc = te_transport_uninstall(e, "tcp");

    if (rc < 0 && rc != TE_ERR_BUSY && !sim_may_try_again(rc))
        sim_fail("te_transport_uninstall: %s: %s", te_errname(rc), te_errmsg());
}

/* What is no engine listens where one was, and hangs up. */
static void be_stranger(struct guest *g, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct pollfd p = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLIN};
    int64_t end = sim_now() + (int64_t)sim_below(3000) * SIM_MS;

    if (p.fd < 0 || bind(p.fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(p.fd, 64) < 0)
        end = 0;
    for (g->is_stranger = end > 0; sim_now() < end;) {
        int fd = poll(&p, 1, 20) > 0 ? accept4(p.fd, NULL, NULL, SOCK_NONBLOCK) : -1;

        if (fd >= 0)
            close(fd);
    }
    g->is_stranger = false;
    if (p.fd >= 0)
        close(p.fd);
}

/* Ends in the middle of what they do, if any come. */
static void await_visitors(const struct guest *g)
{
    for (int i = 0; i < 40 && !g->visitors; i++)
        usleep((useconds_t)sim_below(50000));
    usleep((useconds_t)sim_below(100000));
}

/* After the end of an engine, by a process of its machine that was stopped in the middle of that. */
static bool may_be_written(const struct host *h)
{
    return sim_machine_is_shared(h->number) &&
           (sim_world.knobs.faults & (FAULT_FREEZE | FAULT_AWAY));
}

void sim_keep_guest(struct user *u)
{
    struct guest *g = &u->host->guests[u->index];
    struct life options;
    uint16_t port = 0;
    te_engine *e = sim_make_engine(u->host, PORT + u->index, &options);

    *g = (struct guest){.memory = sim_pages(MEMORY), .host = u->host->number};
    sim_register(e, g->memory, MEMORY, TE_REMOTE_READ | TE_REMOTE_WRITE);
    if (!sim_is_past())
        share(e, u->host->life->engine);
    sim_ok(te_engine_name(e, g->name, sizeof(g->name)), "te_engine_name");
    await_visitors(g);
    if (!sim_one_in(3))
        be_busy(e, g->memory, g->host);
    if (!sim_is_past())
        port = data_port(e);
    if (sim_one_in(3))
        uninstall(e);
    sim_destroy(e, u->host);
    if (!may_be_written(u->host))
        sim_allow(g->memory, MEMORY, false);
    if (port)
        be_stranger(g, port);
    g->name[0] = '\0';
}

/* Of a guest nothing is left to reach it by, once it has uninstalled that. */
static void submit_there(te_engine *e, te_batch b, const te_request *r)
{
    int rc = te_submit(e, b, r, 1, NULL);

    if (rc != TE_ERR_UNSUPPORTED)
        sim_ok(rc, "te_submit");
}

/* Much at a time, to places of its own. */
static void write_some(const struct user *u, te_segment seg, char *there, te_batch *batches)
{
    te_engine *e = u->host->life->engine;

    for (size_t k = 0; k < SLOTS; k++) {
        size_t at = k * sim_world.slot;
        te_request r = {sim_one_in(5) ? TE_READ : TE_WRITE, u->local + at, seg,
                        (uintptr_t)there + (size_t)u->index * SLOTS * sim_world.slot + at,
                        sim_world.slot};

        batches[k] = sim_batch(u->host->life, 1, 1);
        submit_there(e, batches[k], &r);
    }
}

static void end_some(const struct user *u, const te_batch *batches, bool cancel)
{
    te_engine *e = u->host->life->engine;

    for (size_t k = 0; cancel && k < SLOTS; k++)
        sim_ok(te_cancel(e, batches[k]), "te_cancel");
    for (size_t k = 0; k < SLOTS; k++) {
        char why[512] = "";

        if (cancel)
            sim_await_canceled(u->host->life, batches[k]);
        sim_await_end(e, batches[k], 0);
        te_status_msg(e, batches[k], 0, why, sizeof(why));
        sim_check_connected(why);
        sim_ok(te_batch_free(e, batches[k]), "te_batch_free");
        sim_world.counts.batches++;
    }
}

/* A stranger is told from a connection that breaks. */
static void ask_stranger(const struct user *u, te_segment seg, const struct guest *g, char *there)
{
    te_engine *e = u->host->life->engine;
    te_request r = {TE_READ, u->local, seg, (uintptr_t)there, 8};
    te_batch b = sim_batch(u->host->life, 1, 1);
    char why[512] = "";

    usleep(300000);
    sim_allow(u->local, SLOTS * sim_world.slot, true);
    submit_there(e, b, &r);
    sim_await_end(e, b, 0);
    sim_allow(u->local, SLOTS * sim_world.slot, false);
    te_status_msg(e, b, 0, why, sizeof(why));
    sim_trace("a stranger: %s", why);
    if (g->is_stranger && sim_world.knobs.faults == 0 && strstr(why, "broke too often"))
        sim_fail("a stranger was asked, and nothing says so: %s", why);
    sim_ok(te_batch_free(e, b), "te_batch_free");
}

/* Any that is up, of another host; NULL: none. */
static struct guest *any_guest(const struct user *u)
{
    uint64_t n = (uint64_t)sim_world.knobs.hosts * USERS, from = sim_below(n);

    for (uint64_t i = 0; i < n; i++) {
        struct host *h = &sim_world.hosts[1 + (from + i) % n / USERS];
        struct guest *g = &h->guests[(from + i) % USERS];

        if (h != u->host && g->name[0])
            return g;
    }
    return NULL;
}

void sim_visit_guest(struct user *u)
{
    te_engine *e = u->host->life->engine;
    struct guest *g = any_guest(u);
    te_batch batches[SLOTS];
    char name[64], *there;
    te_segment seg;

    if (!g)
        return;
    there = g->memory;
    snprintf(name, sizeof(name), "%s", g->name);
    if (te_open(e, name, &seg) < 0)
        return;
    g->visitors++;
    for (uint64_t n = 3 + sim_below(12); n > 0 && strcmp(name, g->name) == 0; n--) {
        bool cancel = !sim_one_in(3);

        sim_allow(u->local, SLOTS * sim_world.slot, true);
        write_some(u, seg, there, batches);
        usleep((useconds_t)(sim_below((uint64_t)sim_time_to(u->host->number, g->host)) / 1000));
        if ((sim_world.knobs.faults & FAULT_FREEZE) &&
            sim_one_in(12)) /* so that it connects late */
            sim_freeze(u->host->number, SIM_S + (int64_t)sim_below(3) * SIM_S);
        end_some(u, batches, cancel);
        sim_allow(u->local, SLOTS * sim_world.slot, false);
    }
    g->visitors -= strcmp(name, g->name) == 0;
    if (g->is_stranger && strcmp(name, g->name) == 0)
        ask_stranger(u, seg, g, there);
    sim_ok(te_close(e, seg), "te_close");
}
