/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_peers.c - one engine that meets very many: how long until it has moved a block from each, and how
 * much memory that costs it. A few child processes make the target engines, some hundreds each; every
 * one registers a buffer and tells its name and address through a pipe. Then this process makes its
 * engine, opens all of them by some threads, and submits one batch with a read from each.
 *
 * The clock runs from the first te_open() to the end of that batch. Memory is the growth of the
 * resident set of this process over the same time; its buffers are touched before.
 */
#include "bench.h"
#include "te.h"

#include <inttypes.h>
#include <sys/resource.h>

/* The bounds only end a hang: how long a busy machine takes is what is measured. */
enum { NAME_BYTES = 64, PROCESSES_MAX = 16, GUARD_S = 600, WAIT_MS = 240000 };

static int peers = 1000, processes = 4, threads = 4;
static size_t block = 4096;
static const char *ports = "10000,32000";
static bool json;

static const struct bench_opt options[] = {
    {"peers", BENCH_INT, &peers, "engines to meet (1000)"},
    {"processes", BENCH_INT, &processes, "processes that they are spread over (4)"},
    {"threads", BENCH_INT, &threads, "threads that open them (4)"},
    {"block", BENCH_SIZE, &block, "bytes read from each (4K)"},
    {"ports", BENCH_TEXT, &ports, "A,B: the range of ports for listeners (10000,32000)"},
    {"json", BENCH_FLAG, &json, "print one line of JSON"},
};

struct target {
    char name[NAME_BYTES];
    uint64_t base;
    te_segment segment;
};

static void check(int rc, const char *what)
{
    if (rc < 0)
        bench_die("%s: %s: %s", what, te_errname(rc), te_errmsg());
}

/* A listener or two, a loop or two and some connections an engine: thousands of descriptors. */
static void raise_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        bench_die_errno("RLIMIT_NOFILE");
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0)
        bench_die_errno("RLIMIT_NOFILE");
}

static te_engine *engine_make(const char *io_threads)
{
    te_engine *e = NULL;
    te_options o;
    char low[64], high[64];
    bench_side(ports, 0, low);
    bench_side(ports, 1, high);
    te_options_init(&o);
    o.local_server_name = "127.0.0.1";
    o.auto_discover = 0;
    /* Each bound is checked against the other when the engine is made, not here. */
    check(te_option_set(&o, "MC_MIN_RPC_PORT", low), "MC_MIN_RPC_PORT");
    check(te_option_set(&o, "MC_MAX_RPC_PORT", high), "MC_MAX_RPC_PORT");
    check(te_option_set(&o, "TE_TCP_THREADS", io_threads), "TE_TCP_THREADS");
    check(te_option_set(&o, "TE_HOST_PATH", "0"), "TE_HOST_PATH"); /* tcp alone */
    check(te_option_set(&o, "TE_TRANSFER_TIMEOUT_MS", "240000"), "TE_TRANSFER_TIMEOUT_MS");
    check(te_option_set(&o, "MC_HANDSHAKE_CONNECT_TIMEOUT", "240"), "MC_HANDSHAKE_CONNECT_TIMEOUT");
    check(te_engine_create(&o, &e), "te_engine_create");
    check(te_transport_install(e, "tcp", NULL), "te_transport_install");
    te_options_fini(&o);
    return e;
}

/* --------------------------------------------------------------------------- the other processes */

/* Makes `n` engines, tells about each, and lives until the pipe that nobody writes to ends. */
static void serve(int n, FILE *tell, int until)
{
    char name[NAME_BYTES], byte;
    te_engine **engines = calloc((size_t)n, sizeof *engines);
    if (engines == NULL)
        bench_die("out of memory");
    for (int i = 0; i < n; i++) {
        char *base = bench_buffer(block);
        engines[i] = engine_make("1");
        check(te_register(engines[i], base, block, "*", TE_REMOTE_RW), "te_register");
        check(te_engine_name(engines[i], name, sizeof name), "te_engine_name");
        fprintf(tell, "%s %" PRIuPTR "\n", name, (uintptr_t)base);
    }
    fclose(tell);
    while (read(until, &byte, 1) < 0 && errno == EINTR)
        continue;
    for (int i = 0; i < n; i++)
        te_engine_destroy(engines[i]);
    free(engines);
}

struct child {
    pid_t pid;
    int stop; /* closed when it shall end */
    FILE *told;
    int peers;
};

static struct child child_start(int n)
{
    struct child c = {.peers = n};
    int tell[2], stop[2];
    if (pipe2(tell, O_CLOEXEC) != 0 || pipe2(stop, O_CLOEXEC) != 0)
        bench_die_errno("pipe2");
    c.pid = fork();
    if (c.pid < 0)
        bench_die_errno("fork");
    if (c.pid == 0) {
        bench_guard(GUARD_S, true);
        close(stop[1]);
        FILE *out = fdopen(tell[1], "w");
        if (out == NULL)
            bench_die_errno("fdopen");
        serve(n, out, stop[0]);
        exit(0);
    }
    close(tell[1]);
    close(stop[0]);
    c.stop = stop[1];
    c.told = fdopen(tell[0], "r");
    if (c.told == NULL)
        bench_die_errno("fdopen");
    return c;
}

/* Children started later hold the write end of the pipes of those before them: from last to first. */
static void children_stop(struct child *c, int n)
{
    while (n-- > 0) {
        close(c[n].stop);
        bench_reap(c[n].pid);
    }
}

static void children_listen(struct child *c, int n, struct target *t)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < c[i].peers; k++, t++)
            if (fscanf(c[i].told, "%63s %" SCNu64, t->name, &t->base) != 2)
                bench_die("a target engine did not start");
        fclose(c[i].told);
    }
}

/* ----------------------------------------------------------------------------------- measuring */

static size_t resident(void)
{
    unsigned long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL || fscanf(f, "%lu %lu", &size, &pages) != 2)
        bench_die_errno("/proc/self/statm");
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

struct opener {
    te_engine *e;
    struct target *targets;
    size_t first, end;
};

static void *open_some(void *arg)
{
    struct opener *o = arg;
    for (size_t i = o->first; i < o->end; i++)
        check(te_open(o->e, o->targets[i].name, &o->targets[i].segment), "te_open");
    return NULL;
}

static void open_all(te_engine *e, struct target *t, size_t n)
{
    struct opener o[BENCH_THREADS_MAX];
    for (size_t i = 0; i < (size_t)threads; i++)
        o[i] = (struct opener){.e = e,
                               .targets = t,
                               .first = n * i / (size_t)threads,
                               .end = n * (i + 1) / (size_t)threads};
    bench_threads((size_t)threads, open_some, o, sizeof *o);
}

static void read_all(te_engine *e, const te_request *reqs, size_t n)
{
    te_batch id = TE_INVALID_BATCH;
    struct te_status s = {.state = TE_WAITING};
    check(te_batch_alloc(e, n, &id), "te_batch_alloc");
    check(te_submit(e, id, reqs, n, NULL), "te_submit");
    check(te_wait(e, id, WAIT_MS), "te_wait");
    check(te_batch_status(e, id, &s), "te_batch_status");
    if (s.state != TE_COMPLETED)
        bench_die("the batch ended in state %d, %s", s.state, te_errname(s.error));
    check(te_batch_free(e, id), "te_batch_free");
}

static void measure(struct target *t, size_t n)
{
    te_request *reqs = calloc(n, sizeof *reqs);
    char *base = bench_buffer(n * block);
    te_engine *e = engine_make("0");
    if (reqs == NULL)
        bench_die("out of memory");
    memset(reqs, 1, n * sizeof *reqs); /* in place before the memory is counted */
    check(te_register(e, base, n * block, "*", TE_LOCAL_ONLY), "te_register");
    size_t before = resident();
    int64_t start = bench_now_ns();
    open_all(e, t, n);
    int64_t opened = bench_now_ns();
    for (size_t i = 0; i < n; i++)
        reqs[i] = (te_request){.opcode = TE_READ,
                               .source = base + i * block,
                               .target = t[i].segment,
                               .target_offset = t[i].base,
                               .length = block};
    read_all(e, reqs, n);
    int64_t end = bench_now_ns();
    double grown = ((double)resident() - (double)before) / 1024.0 / (double)n;
    printf(
        json ? "{\"bench\": \"te_peers\", \"peers\": %zu, \"open_s\": %.3f, \"connected_s\": %.3f, "
               "\"kib_peer\": %.1f}\n"
             : "%zu peers: opened in %.3f s, a block read from each after %.3f s, %.1f KiB each\n",
        n, (double)(opened - start) / 1e9, (double)(end - start) / 1e9, grown);
    fflush(stdout);
    te_engine_destroy(e);
    free(reqs);
}

int main(int argc, char **argv)
{
    const char *about =
        "[option...]\n\nOpens many engines on 127.0.0.1 from one, moves a block from "
        "each, and prints time and memory.";
    struct child children[PROCESSES_MAX];
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (processes < 1 || processes > PROCESSES_MAX || peers < processes || peers > 20000)
        bench_die("1 to %d processes and at most 20000 peers, please", PROCESSES_MAX);
    bench_guard(GUARD_S, false);
    raise_limit();
    struct target *targets = calloc((size_t)peers, sizeof *targets);
    if (targets == NULL)
        bench_die("out of memory");
    for (int i = 0; i < processes; i++)
        children[i] = child_start(peers * (i + 1) / processes - peers * i / processes);
    children_listen(children, processes, targets);
    measure(targets, (size_t)peers);
    children_stop(children, processes);
    free(targets);
    return 0;
}
