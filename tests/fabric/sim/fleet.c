/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet.c - what a cluster of many engines does, in virtual time: figures, not faults by chance.
 *
 * Each engine is a host with a pool of KV blocks, finds the others by a metadata server of HTTP, and opens all of
 * them. Then requests arrive as a trace of a real service has them (requests.txt): each is a READ of as many blocks
 * by one engine, in turn, from another one, which the number of its last block chooses. The same requests come again
 * while one engine is dead, slow or frozen, the metadata server is away, and all engines are started
 * again, some at a time; how long those took that do not concern the engine in question is compared with how long
 * they took when nothing was wrong. All bytes are looked at.
 *
 * A thread has a processor of its own here, which system calls and locks take time of, and not what is
 * computed between them; a NIC sends one packet at a time.
 */
#include "fleet.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"
#include "world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PORT        15001
#define BLOCK       ((size_t)32 * 1024) /* of 512 tokens, scaled down */
#define POOL        16                  /* blocks of an engine that others read */
#define LOCAL       4096                /* blocks that it has place for */
#define REQUESTS    4000                /* of the trace, at most */
#define OF_EACH     50                  /* and for each engine */
#define LATENCY_NS  (10 * SIM_US)
#define BYTES_PER_S INT64_C(12500000000) /* 100 Gb/s */
#define SLOWER      100                  /* times, for both */
#define STORE_NS    (20 * SIM_US)        /* of a request to the metadata server: 50,000 a second */
#define PHASE_NS    (4 * SIM_S)          /* in which the requests of the trace come */
#define AWAY_NS     (2 * SIM_S)          /* of what is frozen, or the metadata server */
#define AT_A_TIME   10                   /* engines that are started again */
#define RESTART_NS  (30 * SIM_MS)        /* between them */
#define LOST        (-1)                 /* did not complete */
#define NOT_ASKED   (-2)                 /* nobody was there to ask */

struct node {
    int host;
    char name[32];
    te_engine *engine;    /* NULL: is not up */
    te_segment *segments; /* of all nodes; -1: not open */
    char *pool, *local;
    bool *used;        /* blocks of `local` */
    size_t next_local; /* where one looks for some */
    unsigned users;    /* requests under way by this engine */
    bool leaves, has_asked;
};

/* A request of the trace. */
struct ask {
    int64_t at; /* after the beginning of a phase */
    int reader, owner;
    size_t first, n; /* blocks of the owner's pool, from that one on, which goes round */
    int64_t took;    /* the last time; or LOST, NOT_ASKED */
};

static struct {
    int n;
    struct node nodes[SIM_LIMIT];
    struct ask asks[REQUESTS];
    int64_t before[REQUESTS]; /* took, when nothing was wrong */
    size_t n_asks, n_over;
    int n_up, n_open;
    bool may_open, is_over;
    struct cost {
        double kib, served; /* of all engines; requests to the metadata server until then */
        unsigned files;
    } costs[4];
    int n_costs;
} fleet;

/* ------------------------------------------------------------------------------------------ trace */

/* Milliseconds, blocks, and the number of one of them, of each request; comments. */
static void read_trace(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long ms, blocks, block, last = 1;
    size_t most = fleet.n * OF_EACH < REQUESTS ? (size_t)fleet.n * OF_EACH : REQUESTS;
    char line[128];

    if (!f)
        sim_fail("%s: %s", path, strerror(errno));
    while (fleet.n_asks < most && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lu %lu %lu", &ms, &blocks, &block) != 3)
            continue;
        if (blocks > LOCAL / 8)
            sim_fail("%s: a request of %lu blocks", path, blocks);
        fleet.asks[fleet.n_asks] = (struct ask){
            .at = (int64_t)ms,
            .reader = (int)(fleet.n_asks * 7919 % (size_t)fleet.n),
            .owner = (int)(block * 2654435761u % (unsigned long)fleet.n),
            .first = block % POOL,
            .n = blocks,
        };
        last = ms ? ms : last;
        if (fleet.asks[fleet.n_asks].reader != fleet.asks[fleet.n_asks].owner)
            fleet.n_asks++;
    }
    fclose(f);
    for (size_t i = 0; i < fleet.n_asks; i++)
        fleet.asks[i].at = fleet.asks[i].at * PHASE_NS / (int64_t)last;
}

/* ------------------------------------------------------------------------------------------ nodes */

static void address_of(int host, char out[32])
{
    snprintf(out, 32, "10.77.%d.%d", host >> 8, host & 255);
}

static te_engine *make_engine(struct node *n)
{
    char address[32], store[32], metadata[64];
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    address_of(n->host, address);
    address_of(sim_store_host(), store);
    snprintf(metadata, sizeof(metadata), "http://%s:%d/metadata", store, SIM_STORE_PORT);
    o.metadata = metadata;
    o.local_server_name = n->name;
    o.ip_or_host_name = address;
    o.rpc_port = PORT;
    o.auto_discover = 0;
    sim_ok(te_option_set(&o, "TE_HOST_PATH", "off"), "te_option_set");
    sim_ok(te_option_set(&o, "TE_TRANSFER_TIMEOUT_MS", "1000"), "te_option_set");
    while (te_engine_create(&o, &e) < 0 || te_transport_install(e, "tcp", NULL) < 0)
        usleep(100000);
    te_options_fini(&o);
    return e;
}

static void register_memory(const struct node *n, te_engine *e)
{
    sim_register(e, n->pool, POOL * BLOCK, TE_REMOTE_READ);
    sim_register(e, n->local, LOCAL * BLOCK, 0);
}

/* One that is not there yet is asked for again. */
static te_segment segment_of(struct node *n, int other)
{
    te_segment *s = &n->segments[other];

    if (*s < 0 && te_open(n->engine, fleet.nodes[other].name, s) < 0)
        *s = -1;
    return *s;
}

static void open_all(struct node *n)
{
    while (!fleet.may_open)
        sim_block(&fleet.may_open, "waits for the others", SIM_NEVER);
    for (int i = 0; i < fleet.n; i++)
        while (i != n->host - 1 && segment_of(n, i) < 0)
            usleep(10000);
    fleet.n_open++;
}

static void close_all(struct node *n)
{
    for (int i = 0; i < fleet.n; i++)
        if (n->segments[i] >= 0)
            te_close(n->engine, n->segments[i]);
}

static void live(struct node *n, bool is_first)
{
    te_engine *e = make_engine(n);

    register_memory(n, e);
    for (int i = 0; i < fleet.n; i++)
        n->segments[i] = -1;
    n->engine = e;
    n->leaves = false;
    fleet.n_up++;
    if (is_first)
        open_all(n);
    while (!n->leaves)
        sim_block(&n->leaves, "is up", SIM_NEVER);
    fleet.n_up--;
    while (n->users)
        sim_block(&n->users, "waits for requests", SIM_NEVER);
    close_all(n);
    n->engine = NULL;
    te_engine_destroy(e);
}

static void *node_main(void *arg)
{
    struct node *n = arg;
    bool is_first = !n->segments;

    if (is_first) {
        n->segments = sim_new((size_t)fleet.n * sizeof(*n->segments));
        n->pool = sim_pages(POOL * BLOCK);
        n->local = sim_pages(LOCAL * BLOCK);
        n->used = sim_new(LOCAL * sizeof(*n->used));
        for (size_t i = 0; i < POOL * BLOCK; i += sizeof(uint64_t))
            *(uint64_t *)(void *)(n->pool + i) = (uint64_t)n->host << 32 | i;
    }
    do {
        live(n, is_first);
        is_first = false;
    } while (!fleet.is_over);
    return NULL;
}

/* --------------------------------------------------------------------------------------- requests */

static void check(const struct ask *a, const char *local)
{
    const struct node *owner = &fleet.nodes[a->owner];

    for (size_t i = 0; i < a->n; i++)
        if (memcmp(local + i * BLOCK, owner->pool + (a->first + i) % POOL * BLOCK, BLOCK) != 0)
            sim_fail("torn: block %zu of a request of host %d to host %d", i, a->reader + 1,
                     a->owner + 1);
}

static bool carry_out(const struct node *n, const struct ask *a, te_segment seg, char *local)
{
    te_request *reqs = sim_new(a->n * sizeof(*reqs));
    struct te_status st = {0};
    te_batch b;

    for (size_t i = 0; i < a->n; i++)
        reqs[i] = (te_request){.opcode = TE_READ,
                               .source = local + i * BLOCK,
                               .target = seg,
                               .target_offset = (uintptr_t)fleet.nodes[a->owner].pool +
                                                (a->first + i) % POOL * BLOCK,
                               .length = BLOCK};
    sim_ok(te_batch_alloc(n->engine, a->n, &b), "te_batch_alloc");
    if (te_submit(n->engine, b, reqs, a->n, NULL) == 0) {
        sim_ok(te_wait(n->engine, b, -1), "te_wait");
        sim_ok(te_batch_status(n->engine, b, &st), "te_batch_status");
    }
    te_batch_free(n->engine, b);
    free(reqs);
    return st.state == TE_COMPLETED;
}

/* The first of `count` blocks to read into, which are now in use. */
static size_t take_blocks(struct node *n, size_t count)
{
    size_t run = 0, at = n->next_local;

    for (size_t looked = 0; run < count && looked < 2 * LOCAL; looked++, at++) {
        if (at == LOCAL)
            at = run = 0;
        run = n->used[at] ? 0 : run + 1;
    }
    if (run < count)
        sim_fail("host %d has more than %d blocks under way", n->host, LOCAL);
    n->next_local = at;
    memset(n->used + at - count, true, count);
    return at - count;
}

static void *ask_main(void *arg)
{
    struct ask *a = arg;
    struct node *n = &fleet.nodes[a->reader];
    int64_t begin = sim_now();
    size_t first = take_blocks(n, a->n);
    char *local = n->local + first * BLOCK;
    te_segment seg = segment_of(n, a->owner);

    if (seg >= 0)
        a->took = carry_out(n, a, seg, local) ? sim_now() - begin : LOST;
    sim_trace("%zu blocks of host %d %s after %lld us", a->n, a->owner + 1,
              a->took < 0 ? "are lost" : "have come", (long long)((sim_now() - begin) / SIM_US));
    if (a->took >= 0)
        check(a, local);
    madvise(local, a->n * BLOCK, MADV_DONTNEED);
    memset(n->used + first, false, a->n);
    if (--n->users == 0)
        sim_wake(&n->users, true);
    fleet.n_over++;
    sim_wake(&fleet.n_over, true);
    return NULL;
}

static void ask(struct ask *a)
{
    struct node *n = &fleet.nodes[a->reader];

    a->took = NOT_ASKED;
    if (!n->engine || n->leaves) {
        fleet.n_over++;
        return;
    }
    n->users++;
    sim_spawn(n->host, ask_main, a);
}

static void await_over(size_t n)
{
    while (fleet.n_over < n)
        sim_block(&fleet.n_over, "waits for requests", SIM_NEVER);
}

/* The first request of each engine, all at once. */
static void ask_one_each(void)
{
    size_t n = 0;

    fleet.n_over = 0;
    for (size_t i = 0; i < fleet.n_asks; i++) {
        struct node *reader = &fleet.nodes[fleet.asks[i].reader];

        if (reader->has_asked)
            continue;
        reader->has_asked = true;
        n++;
        ask(&fleet.asks[i]);
    }
    await_over(n);
}

/* All requests of the trace, each at its time; returns once all are over. */
static void ask_all(void)
{
    int64_t begin = sim_now();

    fleet.n_over = 0;
    for (size_t i = 0; i < fleet.n_asks; i++) {
        if (begin + fleet.asks[i].at > sim_now())
            sim_block(NULL, "waits for a request", begin + fleet.asks[i].at);
        ask(&fleet.asks[i]);
    }
    await_over(fleet.n_asks);
}

/* ---------------------------------------------------------------------------------------- figures */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* In us; `percent` of them took no longer. */
static double percentile(int64_t *took, size_t n, unsigned percent)
{
    qsort(took, n, sizeof(*took), by_value);
    return n ? (double)took[(n - 1) * percent / 100] / (double)SIM_US : 0;
}

/* Times of those that do not concern `host`, 0: of all; and what became of these and those. */
static void print_phase(const char *name, int host, uint64_t served)
{
    static int64_t now[REQUESTS], before[REQUESTS];
    size_t n = 0, lost[2] = {0}, all[2] = {0}, idle = 0;
    double p50, p99;

    for (size_t i = 0; i < fleet.n_asks; i++) {
        const struct ask *a = &fleet.asks[i];
        bool is_its = a->reader == host - 1 || a->owner == host - 1;

        if (!is_its && a->took >= 0) {
            now[n] = a->took;
            before[n++] = fleet.before[i];
        }
        idle += a->took == NOT_ASKED;
        all[is_its] += a->took != NOT_ASKED;
        lost[is_its] += a->took == LOST;
    }
    p50 = percentile(now, n, 50);
    p99 = percentile(now, n, 99);
    printf("| %s | %.0f | %.0f | %.3f | %.3f | %zu of %zu | %zu of %zu | %zu | %.2f |\n", name, p50,
           p99, p50 / percentile(before, n, 50), p99 / percentile(before, n, 99), lost[0], all[0],
           lost[1], all[1], idle, (double)(sim_store_served - served) / fleet.n);
}

static unsigned files_of_all(void)
{
    unsigned n = 0;

    for (int i = 1; i <= fleet.n; i++)
        n += sim_files_of(i);
    return n;
}

/* Engines one of which has asked the other. */
static double pairs(void)
{
    static bool seen[SIM_LIMIT][SIM_LIMIT];
    double n = 0;

    for (size_t i = 0; i < fleet.n_asks; i++) {
        bool *at = &seen[fleet.asks[i].reader][fleet.asks[i].owner];

        n += !*at;
        *at = true;
    }
    return n;
}

/* What one engine costs, and each other one that it opens, or moves something from; and what that makes of more. */
static void print_costs(void)
{
    const struct cost *up = &fleet.costs[0], *open = &fleet.costs[1], *one = &fleet.costs[2],
                      *used = &fleet.costs[3];
    double n = fleet.n, opened = n * (n - 1), more_pairs = pairs() - n;
    double base = (up->kib + one->kib - open->kib) / n, kib = (open->kib - up->kib) / opened,
           asks = (open->served - up->served) / opened, more = (used->kib - one->kib) / more_pairs,
           fds = ((double)used->files - (double)one->files) / more_pairs;

    printf(
        "\nAn engine that moves bytes has %.0f KiB and %.0f descriptors; each other one that it opens is %.1f KiB and "
        "%.2f requests\nto the metadata server, each that it reads from %.1f KiB and %.1f descriptors, at both ends "
        "together.\n",
        base, (double)one->files / n, kib, asks, more, fds);
    printf(
        "\n| Engines | MiB of each, all opened | MiB, all read from all | Descriptors then | Requests to the metadata "
        "server while all open all | Takes s |\n| --- | --- | --- | --- | --- | --- |\n");
    for (double many = 1000; many <= 100000; many *= 10)
        printf("| %.0f | %.1f | %.1f | %.0f | %.3g | %.0f |\n", many, (base + many * kib) / 1024,
               (base + many * (kib + more)) / 1024, (double)one->files / n + many * fds,
               many * many * asks, many * many * asks * (double)STORE_NS / (double)SIM_S);
}

static void print_state(const char *name, int64_t begin, uint64_t served)
{
    struct rusage u;

    fleet.costs[fleet.n_costs++] =
        (struct cost){(double)sim_heap_counted() / 1024, (double)sim_store_served, files_of_all()};
    getrusage(RUSAGE_SELF, &u);
    printf("| %s | %.3f | %.2f | %.1f | %u | %u | %.1f |\n", name,
           (double)(sim_now() - begin) / (double)SIM_S,
           (double)(sim_store_served - served) / fleet.n,
           (double)sim_heap_counted() / fleet.n / 1024, sim_threads_of(1), sim_files_of(1),
           (double)u.ru_maxrss / 1048576);
}

/* ----------------------------------------------------------------------------------------- phases */

static void await(const int *what, int value)
{
    while (*what != value)
        usleep(1000);
}

static void storm(void)
{
    int64_t begin = sim_now();

    printf("| State | Took s | Store requests an engine | KiB an engine | Threads | Descriptors | "
           "GiB of the simulation |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < fleet.n; i++) {
        struct node *n = &fleet.nodes[i];

        n->host = i + 1;
        snprintf(n->name, sizeof(n->name), "node-%d", i + 1);
        sim_spawn(n->host, node_main, n);
    }
    await(&fleet.n_up, fleet.n);
    print_state("all are up", begin, 0);
    begin = sim_now();
    fleet.may_open = true;
    sim_wake(&fleet.may_open, true);
    await(&fleet.n_open, fleet.n);
    print_state("all have opened all", begin, 0);
}

static void set_speed(int host, int64_t times)
{
    for (int i = 1; i <= fleet.n; i++) {
        sim_path(host, i)->latency_ns = sim_path(i, host)->latency_ns = LATENCY_NS * times;
        sim_path(host, i)->bytes_per_s = sim_path(i, host)->bytes_per_s = BYTES_PER_S / times;
    }
}

static void kill_node(struct node *n)
{
    while (!sim_kill(n->host))
        usleep(1);
    sim_files_close(n->host);
    n->engine = NULL;
    n->users = 0;
    fleet.n_up--;
}

static void *restart_main(void *arg)
{
    for (int i = 0; i < fleet.n; i++) {
        fleet.nodes[i].leaves = true;
        sim_wake(&fleet.nodes[i].leaves, true);
        if (i % AT_A_TIME == AT_A_TIME - 1)
            usleep((useconds_t)(RESTART_NS / SIM_US));
    }
    return arg;
}

static void thaw(void *host)
{
    sim_continue((int)(intptr_t)host);
}

static void phases(void)
{
    int odd = fleet.asks[fleet.n_asks / 2].owner + 1;
    uint64_t served = sim_store_served;
    int64_t begin = sim_now();

    ask_one_each();
    print_state("each has asked one", begin, served);
    begin = sim_now();
    served = sim_store_served;
    ask_all();
    print_state("each has asked some", begin, served);
    printf(
        "\n| Phase | p50 us | p99 us | p50, before = 1 | p99, before = 1 | Failed | From or to that engine "
        "failed | Not asked | Store requests an engine |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    ask_all();
    for (size_t i = 0; i < fleet.n_asks; i++)
        fleet.before[i] = fleet.asks[i].took;
    served = sim_store_served;
    ask_all();
    print_phase("nothing is wrong", 0, served);
    served = sim_store_served;
    set_speed(odd, SLOWER);
    ask_all();
    print_phase("one is slow", odd, served);
    set_speed(odd, 1);
    served = sim_store_served;
    sim_stop(odd);
    sim_at(sim_now() + AWAY_NS, thaw, (void *)(intptr_t)odd);
    ask_all();
    print_phase("one is frozen", odd, served);
    served = sim_store_served;
    kill_node(&fleet.nodes[odd - 1]);
    ask_all();
    print_phase("one is dead", odd, served);
    sim_spawn(odd, node_main, &fleet.nodes[odd - 1]);
    await(&fleet.n_up, fleet.n);
    served = sim_store_served;
    ask_all();
    print_phase("it is back", odd, served);
    served = sim_store_served;
    sim_store_take_down(AWAY_NS);
    ask_all();
    print_phase("the metadata server is away", 0, served);
    served = sim_store_served;
    sim_spawn(0, restart_main, NULL);
    ask_all();
    await(&fleet.n_up, fleet.n);
    print_phase("all start again", 0, served);
    served = sim_store_served;
    ask_all();
    print_phase("after that", 0, served);
}

static void end_all(void)
{
    int64_t begin = sim_now();

    fleet.is_over = true;
    for (int i = 0; i < fleet.n; i++) {
        fleet.nodes[i].leaves = true;
        sim_wake(&fleet.nodes[i].leaves, true);
    }
    for (int i = 1; i <= fleet.n; i++)
        while (sim_threads_of(i))
            usleep(1000);
    printf("\nAll have ended within %.3f s, and left %u descriptors and %zu KiB.\n",
           (double)(sim_now() - begin) / (double)SIM_S, sim_files_of(1), sim_heap_counted() / 1024);
}

static void on_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level;
    sim_trace("log: %s", line);
}

void sim_fleet(int n, const char *trace)
{
    sim_by_time();
    sim_burns = UINT64_MAX;
    sim_heap_counts = true;
    sim_is_even = true;
    sim_store_cost_ns = STORE_NS;
    fleet.n = n;
    sim_world.knobs.hosts = n;
    sim_world.store = STORE_HTTP;
    read_trace(trace);
    sim_spawn(sim_store_host(), sim_store_main, NULL);
    for (int i = 1; i <= n; i++)
        set_speed(i, 1);
    set_speed(sim_store_host(), 1);
    te_log_set_sink(on_log, NULL);
    te_log_set_level(sim_trace_on ? TE_LOG_DEBUG : TE_LOG_ERROR);
    storm();
    phases();
    print_costs();
    end_all();
}
