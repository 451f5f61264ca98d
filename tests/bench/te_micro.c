/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_micro.c - what the engine takes and gives, through te.h alone. It starts itself once more with
 * --peer; that process makes an engine, registers a buffer, prints the segment's name and the
 * buffer's address, and lives until its standard input ends. Each measure prints one line, with
 * --json a JSON object.
 *
 *   submit      time of te_submit() for a batch of many small requests, a request
 *   prep        the same for te_prep_submit() of a prepared list
 *   pages       the caller's processor time in te_submit_pages() of 112,000 pages, a page
 *   init        time of te_engine_create()
 *   lease       time of te_lease_grant() and of te_revoke(), a lease
 *   first       time of te_open() and of the first read by an engine that is new to the target
 *   warm        the same with te_warm() before the read: time of both
 *   idle        voluntary context switches a second, over all threads of an engine that moved data
 *   latency     te_submit() + te_wait() of one read, one at a time
 *   throughput  whole batches of blocks, read and written, by some threads
 *   nics        how well the simulated NICs were used (with --nics)
 *   faults      what a port that goes down costs, here and at the target (with --nics)
 */
#include "micro.h"

enum { SAMPLES_MAX = 1 << 20, WARM_UP = 200, SUBMIT_BYTES = 64, SUBMIT_STRIDE = 4096 };

size_t block, buffer = 256U << 20;
int threads = 1, batch, depth = 1, rounds, nics, nic_mbps;
double seconds = 2.0;
const char *transport = "auto", *metadata = "P2PHANDSHAKE", *set_text, *peer_set_text, *only;
const char *memory = "malloc", *spin, *segment;
bool json, be_peer, own_memory, apart, prepared, instant, slow_nic, striped;
char address[64];
static const char *cpus;

static const struct bench_opt options[] = {
    {"transport", BENCH_TEXT, &transport, "install this one alone (auto: as the engine chooses)"},
    {"block", BENCH_SIZE, &block, "bytes a request (latency, pages 4K, throughput 1M)"},
    {"batch", BENCH_INT, &batch,
     "requests a batch (submit, prep 1024, throughput 16), pages (112000), or leases (4096)"},
    {"depth", BENCH_INT, &depth, "batches under way, of each thread (throughput; 1)"},
    {"threads", BENCH_INT, &threads, "threads that submit (throughput; 1)"},
    {"buffer", BENCH_SIZE, &buffer, "bytes of memory a process that is walked through (256M)"},
    {"seconds", BENCH_SECONDS, &seconds, "how long to measure, idle at least 5 (2)"},
    {"rounds", BENCH_INT, &rounds,
     "how often to repeat (submit, prep 200, lease 50, pages, init, first and warm 20)"},
    {"only", BENCH_TEXT, &only, "read or write (throughput; both)"},
    {"apart", BENCH_FLAG, &apart, "leave every other block out, so that none adjoin (throughput)"},
    {"self", BENCH_FLAG, &own_memory,
     "the engine's own memory as the target (throughput, latency)"},
    {"segment", BENCH_TEXT, &segment,
     "this one as the target, such as file:///mnt/x, and no other process (throughput, latency)"},
    {"cpus", BENCH_TEXT, &cpus, "A,B: this process on CPU A, the other on B"},
    {"spin", BENCH_TEXT, &spin,
     "none, one (this process) or both: who spins instead of sleeping (latency)"},
    {"set", BENCH_TEXT, &set_text, "options of the engines, NAME=VALUE[,NAME=VALUE...]"},
    {"peer-set", BENCH_TEXT, &peer_set_text, "the same for the other process's engine alone"},
    {"memory", BENCH_TEXT, &memory, "what the other process offers: malloc or te_alloc's (alloc)"},
    {"prepared", BENCH_FLAG, &prepared, "submit from prepared lists (throughput)"},
    {"nics", BENCH_INT, &nics, "simulated NICs of either process; use with --transport rdma (0)"},
    {"nic-mbps", BENCH_INT, &nic_mbps, "megabytes a second of such a NIC, 0: no limit (0)"},
    {"slow-nic", BENCH_FLAG, &slow_nic, "the first NIC falls to a quarter once engines are there"},
    {"striped", BENCH_FLAG, &striped,
     "tie each such NIC to a part of the buffer, and take the parts in turn (throughput)"},
    {"instant", BENCH_FLAG, &instant, "such NICs complete at once and move nothing"},
    BENCH_NET_OPTIONS,
    {"metadata", BENCH_TEXT, &metadata, "where engines find each other (P2PHANDSHAKE)"},
    {"json", BENCH_FLAG, &json, "print JSON, one line a measure"},
    {"peer", BENCH_FLAG, &be_peer, "be the other process"},
};

/* ------------------------------------------------------------------------------------ measures */

/* Requests lie apart, so that they cannot be taken for one. */
static void measure_submit(const struct bench *b, bool from_list)
{
    size_t n = or_default((size_t)batch, 1024), times = or_default((size_t)rounds, 200);
    size_t bytes = or_default(block, SUBMIT_BYTES);
    size_t stride = buffer / n < SUBMIT_STRIDE ? buffer / n & ~(size_t)63 : SUBMIT_STRIDE;
    te_request *reqs = calloc(n, sizeof *reqs);
    int64_t *samples = calloc(times, sizeof *samples);
    if (reqs == NULL || samples == NULL || bytes >= stride)
        bench_die("no room for %zu requests", n);
    for (size_t i = 0; i < n; i++)
        reqs[i] = request_at(b, TE_READ, i * stride, bytes);
    move(b, reqs, n);
    te_prep prep = from_list ? prep_make(b, reqs, n) : TE_INVALID_PREP;
    for (size_t i = 0; i < times; i++) {
        te_batch id = batch_open(b, n);
        int64_t start = bench_now_ns();
        int rc = from_list ? te_prep_submit(b->e, id, prep, TE_READ, NULL, n, NULL)
                           : te_submit(b->e, id, reqs, n, NULL);
        samples[i] = bench_now_ns() - start;
        check(rc, "te_submit");
        wait_all(b, id);
        batch_close(b, id);
    }
    bench_sort(samples, times);
    double p50 = bench_quantile(samples, times, 0.5) / (double)n;
    double p99 = bench_quantile(samples, times, 0.99) / (double)n;
    printf(
        json ? "{\"bench\": \"%s\", \"ns_request\": %.1f, \"p99_ns_request\": %.1f, "
               "\"batch_ms\": %.3f, \"batch\": %zu, \"bytes\": %zu}\n"
             : "%s: %.0f ns a request, p99 %.0f; %.3f ms a batch (of %zu requests of %zu bytes)\n",
        from_list ? "prep" : "submit", p50, p99, p50 * (double)n / 1e6, n, bytes);
    if (from_list)
        check(te_prep_destroy(b->e, prep), "te_prep_destroy");
    free(reqs);
    free(samples);
}

static size_t latency_samples(const struct bench *b, size_t bytes, int64_t *samples)
{
    int64_t end = bench_deadline_ns(seconds);
    size_t n = 0, at = 0;
    for (int i = 0; n < SAMPLES_MAX && bench_now_ns() < end; i++) {
        te_request r = request_at(b, TE_READ, at, bytes);
        te_batch id = batch_open(b, 1);
        int64_t start = bench_now_ns();
        check(te_submit(b->e, id, &r, 1, NULL), "te_submit");
        check(te_wait(b->e, id, WAIT_MS), "te_wait");
        if (i >= WARM_UP)
            samples[n++] = bench_now_ns() - start;
        wait_all(b, id);
        batch_close(b, id);
        at = at + 2 * bytes <= buffer ? at + bytes : 0;
    }
    return n;
}

static void measure_latency(const struct bench *b)
{
    size_t bytes = or_default(block, 4096);
    int64_t *samples = (int64_t *)(void *)bench_buffer(SAMPLES_MAX * sizeof *samples);
    if (bytes > buffer)
        bench_die("a block must fit the buffer");
    size_t n = latency_samples(b, bytes, samples);
    bench_sort(samples, n);
    printf(json ? "{\"bench\": \"latency\", \"p50_us\": %.2f, \"p99_us\": %.2f, \"count\": %zu, "
                  "\"block\": %zu}\n"
                : "latency: p50 %.1f us, p99 %.1f us (%zu reads of %zu bytes)\n",
           bench_quantile(samples, n, 0.5) / 1e3, bench_quantile(samples, n, 0.99) / 1e3, n, bytes);
    munmap(samples, SAMPLES_MAX * sizeof *samples);
}

/* Which library and which path was measured, once a run. */
static void tell_path(const struct bench *b)
{
    char why[512] = "";
    te_request r = request_at(b, TE_READ, 0, 4096);
    te_explain(b->e, &r, why, sizeof why);
    for (char *p = why; *p != '\0'; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ')
            *p = ' ';
    printf(json ? "{\"bench\": \"path\", \"version\": \"%s\", \"optimized\": %s, "
                  "\"path\": \"%s\"}\n"
                : "engine %s, optimized: %s; %s\n",
           te_version(), BENCH_OPTIMIZED ? "true" : "false", why);
}

static void measure(const char *what, struct bench *b)
{
    if (strcmp(what, "submit") == 0)
        measure_submit(b, false);
    else if (strcmp(what, "prep") == 0)
        measure_submit(b, true);
    else if (strcmp(what, "pages") == 0)
        measure_pages(b);
    else if (strcmp(what, "latency") == 0)
        measure_latency(b);
    else if (strcmp(what, "throughput") == 0)
        measure_throughput(b);
    else if (strcmp(what, "path") == 0)
        tell_path(b);
    else if (strcmp(what, "faults") == 0 && nics > 0)
        measure_faults(b);
    else if (strcmp(what, "nics") == 0 && nics > 0)
        measure_nics();
    else if (strcmp(what, "idle") == 0 && !own_memory && segment == NULL)
        measure_idle(b);
    else if (strcmp(what, "init") != 0 && strcmp(what, "lease") != 0 &&
             strcmp(what, "first") != 0 && strcmp(what, "warm") != 0)
        bench_usage_error(
            "no such measure (options come first; idle goes without --self, nics with --nics)",
            what);
    fflush(stdout);
}

/* Measures what needs no engine that has opened a peer; true if something else was asked for too. */
static bool measure_alone(int argc, char **argv, int at)
{
    bool more = false;
    for (int i = at; i < argc; i++) {
        if (strcmp(argv[i], "init") == 0)
            measure_init();
        else if (strcmp(argv[i], "lease") == 0)
            measure_lease();
        else if (strcmp(argv[i], "first") == 0)
            measure_first(argv, at, false);
        else if (strcmp(argv[i], "warm") == 0)
            measure_first(argv, at, true);
        else
            more = true;
    }
    fflush(stdout);
    return more;
}

int main(int argc, char **argv)
{
    const char *about =
        "[option...] MEASURE...\n\nMeasures the engine against a second process that it starts.\n"
        "MEASURE: submit prep pages init lease first warm idle latency throughput path nics faults";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    bench_guard(be_peer ? 300 : 180, be_peer);
    bench_pin(cpus, be_peer);
    bench_side(bench_addresses, be_peer, address);
    bench_enter(be_peer);
    fabric_begin();
    if (be_peer) {
        run_peer();
        return 0;
    }
    if (at == argc)
        bench_usage_error("no measure given", "");
    if (threads < 1 || threads > BENCH_THREADS_MAX)
        bench_die("1 to %d threads, please", BENCH_THREADS_MAX);
    if (!measure_alone(argc, argv, at))
        return 0;
    struct bench b = bench_open(argv, at);
    for (int i = at; i < argc; i++)
        measure(argv[i], &b);
    bench_close(&b);
    return 0;
}
