/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - a host's life: its engine, its memory, its users, and its end.
 */
#include "world.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORT 15001
#define TAIL ((size_t)96 * 1024) /* behind `extra`, for requests that go beyond its end */
#define MARK 0x77
#define BOTH (TE_REMOTE_READ | TE_REMOTE_WRITE)

static void set(te_options *o, const char *name, const char *value)
{
    sim_ok(te_option_set(o, name, value), name);
}

static const char *any_of(const char *a, const char *b, const char *c)
{
    const char *all[] = {a, b, c};

    return all[sim_below(3)];
}

/* Of the store's host; of an etcd both members. */
static const char *metadata(char out[64])
{
    int host = sim_store_host(), port = SIM_STORE_PORT;

    if (sim_world.store == STORE_HTTP)
        snprintf(out, 64, "http://10.77.0.%d:%d/metadata", host, port);
    else if (sim_world.store == STORE_REDIS)
        snprintf(out, 64, "redis://10.77.0.%d:%d", host, port);
    else
        snprintf(out, 64, "etcd://10.77.0.%d:%d,10.77.0.%d:%d", host, port, host, port + 1);
    return out;
}

te_engine *sim_make_engine(const struct host *h, int port, struct life *l)
{
    const char *tries = any_of("9", "1", sim_is_past() ? "2" : "0"),
               *proto = sim_one_in(6) ? "1" : "2", *native;
    char address[32], name[48], store[64];
    const char *way = sim_world.store ? "node-%s-%d" : sim_is_v6 ? "[%s]:%d" : "%s:%d";
    te_engine *e = NULL;
    te_options o;

    snprintf(address, sizeof(address), sim_is_v6 ? "fd77::%x" : "10.77.0.%d", h->number);
    te_options_init(&o);
    if (sim_world.store)
        o.metadata = metadata(store);
    snprintf(name, sizeof(name), way, address, port);
    o.ip_or_host_name = address;
    o.local_server_name = name;
    o.auto_discover = 0;
    set(&o, "TE_HOST_PATH", sim_machine_is_shared(h->number) ? "on" : "off");
    set(&o, "TE_HOST_THREADS", any_of("0", "1", "2"));
    set(&o, "TE_TRANSFER_TIMEOUT_MS", "3000");
    native = port == PORT ? any_of("on", "on", "off") : "on";
    set(&o, "TE_TCP_NATIVE", native);
    set(&o, "TE_TCP_CRC32C", any_of("on", "off", "off"));
    set(&o, "TE_TCP_PIECE_SIZE", any_of("1000", "5000", "4194304"));
    set(&o, "TE_TCP_ZEROCOPY", any_of("auto", "on", "off"));
    set(&o, "TE_TCP_THREADS", any_of("1", "2", "1"));
    set(&o, "MC_TCP_PROTO", proto);
    set(&o, "MC_TCP_STATUS_TIMEOUT_SEC", any_of("30", "5", "2"));
    set(&o, "MC_RETRY_CNT", tries);
    sim_files_options(&o);
    sim_nics_options(&o);
    sim_gpus_options(&o);
    l->retries = (unsigned)(tries[0] - '0');
    l->is_v1 = proto[0] == '1';
    l->is_native = native[1] == 'n';
    while (te_engine_create(&o, &e) < 0) {
        if (sim_world.is_quiet)
            sim_fail("no engine: %s", te_errmsg());
        usleep(100000);
    }
    te_options_fini(&o);
    while (te_transport_install(e, "tcp", NULL) < 0)
        usleep(100000);
    sim_files_install(e);
    sim_nics_install(e, h->number);
    return e;
}

static struct slot *make_slots(void)
{
    size_t n = sim_memory_size() / sim_world.slot;
    struct slot *slots = sim_new(n * sizeof(*slots));
    char *want = sim_pages(sim_memory_size()), *sure = sim_pages(sim_memory_size());

    for (size_t i = 0; i < n; i++) {
        slots[i].want = (unsigned char *)want + i * sim_world.slot;
        slots[i].sure = (bool *)(void *)(sure + i * sim_world.slot);
    }
    return slots;
}

/* In many regions across which slots lie, so that requests are cut. */
static void register_parts(const struct life *l)
{
    te_buffer parts[SIM_HOSTS * LIVES * USERS * SLOTS];
    size_t n = 0, size = sim_memory_size(), part = sim_world.slot / 2 * 5;
    int rc;

    for (size_t at = 0; at < size; at += part)
        parts[n++] = (te_buffer){l->memory + at, size - at < part ? size - at : part};
    while ((rc = te_register_batch(l->engine, parts, n, sim_location(l->memory),
                                   TE_REMOTE_READ | TE_REMOTE_WRITE)) < 0 &&
           sim_may_try_again(rc))
        usleep(100000);
    sim_ok(rc, "te_register_batch");
}

/* That of te_alloc() can be mapped by others of its machine, if all of it is registered. */
static char *find_memory(const struct life *l, size_t size)
{
    te_alloc_opts opts = {.size = sizeof(opts), .location = "*"};
    char *device = sim_gpu_memory(size);

    if (device)
        return device;
    if (!sim_machine_is_shared(l->host) || sim_one_in(3))
        return sim_pages(size);
    opts.flags = sim_one_in(4) ? TE_ALLOC_PEERS_READ : 0;
    return sim_alloc(l->engine, size, &opts);
}

static struct life *begin_life(struct host *h)
{
    struct life *l = sim_new(sizeof(*l));

    h->takes_away = 0; /* it may have been killed in that */
    l->engine = sim_make_engine(h, PORT, l);
    l->host = h->number;
    sim_ok(te_engine_name(l->engine, l->name, sizeof(l->name)), "te_engine_name");
    l->memory = find_memory(l, sim_memory_size());
    l->extra = find_memory(l, EXTRA + TAIL);
    l->slots = make_slots();
    register_parts(l);
    sim_register(l->engine, l->extra + EXTRA, TAIL, BOTH);
    sim_counts_begin(l);
    if (sim_world.knobs.fabrics & CALLS_LEASES)
        sim_leases_begin(l, find_memory(l, sim_leases_size()), sim_leases_size());
    return l;
}

/* Others may write without a fault what they have mapped. */
static void check_marked(const char *extra)
{
    size_t i = 0;

    if (extra[0] == MARK && memcmp(extra, extra + 1, EXTRA - 1) == 0)
        return;
    while (extra[i] == MARK)
        i++;
    sim_fail("memory was written after te_unregister() had returned: byte %zu", i);
}

unsigned sim_breaks_begin(struct host *h)
{
    unsigned closed = sim_net_closed(h->number);

    if (h->takes_away++ == 0)
        h->had_closed = closed;
    return closed;
}

void sim_breaks_end(struct host *h, unsigned had_closed)
{
    h->takes_away--;
    if (sim_net_closed(h->number) != had_closed)
        h->broke_at = sim_now();
}

/* It ends the connections on which somebody is in the middle of it, with all else that is on them. */
static void take_away(struct life *l)
{
    struct host *h = &sim_world.hosts[l->host];
    unsigned had_closed = sim_breaks_begin(h);

    sim_unregister(l->engine, l->extra);
    sim_breaks_end(h, had_closed);
}

/* Memory of the host comes, and goes after `us` at most. */
static void come_and_go(struct life *l, uint64_t us)
{
    sim_register(l->engine, l->extra, EXTRA, TE_REMOTE_READ | TE_REMOTE_WRITE);
    l->there++;
    sim_block(&l->there, "keeps memory", sim_now() + (int64_t)sim_below(us) * SIM_US);
    while (sim_now() < l->stays_until)
        usleep(1000);
    l->there++;
    take_away(l);
    memset(sim_view(l->extra), MARK, EXTRA);
    sim_allow(l->extra, EXTRA, false);
    sim_block(&l->there, "is without memory", sim_now() + (int64_t)sim_below(us / 8) * SIM_US);
    sim_allow(l->extra, EXTRA, true);
    check_marked(sim_view(l->extra));
}

/* Whether who follows others by an etcd has still to be told of something. */
static bool is_followed(void)
{
    return sim_world.store == STORE_ETCD && sim_world.n_told < sim_world.knobs.hosts;
}

/* Until the load is over; now and then so fast that what arrives meets the memory on its way. */
static void *keeper_main(void *arg)
{
    struct life *l = arg;

    while (!sim_world.is_quiet || is_followed()) {
        sim_notes_take(l->engine);
        come_and_go(l, 2000000);
        for (uint64_t n = sim_one_in(3) ? sim_below(60) : 0, us = 16u << sim_below(8);
             n > 0 && !sim_world.is_quiet; n--)
            come_and_go(l, us);
    }
    return NULL;
}

static char *find_local(size_t size)
{
    char *device = sim_gpu_memory(size);

    return device ? device : sim_pages(size);
}

/* A batch is under way when its engine ends; its memory is not touched after that. */
static void end_under_way(const struct user *u, te_engine *e, const struct life *to)
{
    te_submit_opts opts = {.size = sizeof(opts)};
    struct sim_left *left = NULL;
    te_segment seg;
    te_batch b;

    sim_allow(u->local, SLOTS * sim_world.slot, true);
    if (to && te_open(e, to->name, &seg) == 0) {
        te_request r = {.opcode = sim_one_in(2) ? TE_READ : TE_WRITE,
                        .source = u->local,
                        .target = seg,
                        .target_offset = (uintptr_t)(sim_one_in(2) ? to->memory : to->extra),
                        .length = SLOTS * sim_world.slot};

        sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
        (void)te_submit(e, b, &r, 1, &opts);
    }
    sim_files_leave((struct user *)(uintptr_t)u, e);
    if (sim_world.knobs.fabrics & CALLS_STREAMS)
        left = sim_gates_leave(u, e, to);
    sim_destroy(e, u->host);
    sim_gates_left(left);
    sim_allow(u->local, SLOTS * sim_world.slot, false);
}

void *sim_host_main(void *arg)
{
    struct host *h = arg;
    struct life *l = begin_life(h);
    bool counts = sim_world.knobs.fabrics & CALLS_COUNTERS;
    pthread_t keeper, counter, lessor;

    h->lives++;
    for (int i = 0; i < USERS; i++) {
        h->users[i].done = false;
        h->guests[i].name[0] = '\0';
    }
    h->book = (struct sim_book){.rules = {{0}}};
    memset(h->n_paged, 0, sizeof(h->n_paged));
    h->spoke_classic |= l->is_v1 || !l->is_native;
    h->life = l;
    pthread_create(&keeper, NULL, keeper_main, l);
    if (counts)
        pthread_create(&counter, NULL, sim_counts_main, l);
    if (l->lent)
        pthread_create(&lessor, NULL, sim_leases_main, l);
    for (int i = 0; i < USERS; i++) {
        struct user *u = &h->users[i];

        *u = (struct user){.host = h, .index = i, .local = find_local(SLOTS * sim_world.slot)};
        sim_register(l->engine, u->local, SLOTS * sim_world.slot, 0);
        sim_allow(u->local, SLOTS * sim_world.slot, false);
        pthread_create(&u->thread, NULL, sim_user_main, u);
    }
    for (int i = 0; i < USERS; i++)
        pthread_join(h->users[i].thread, NULL);
    pthread_join(keeper, NULL);
    if (counts)
        pthread_join(counter, NULL);
    if (l->lent)
        pthread_join(lessor, NULL);
    h->through = true;
    for (int i = 1; i <= sim_world.knobs.hosts; i++)
        while (!sim_world.hosts[i].through)
            usleep(10000);
    sim_counts_end(l);
    sim_leases_end(l);
    end_under_way(&h->users[0], l->engine, sim_any_life());
    sim_gpus_end();
    h->life = NULL;
    return NULL;
}
