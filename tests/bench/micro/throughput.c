/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput.c - batches of blocks, each from te_batch_alloc() to te_batch_free(), by some threads
 * that have one or several batches under way.
 */
#include "micro.h"

#include <sys/resource.h>

enum { DEPTH_MAX = 64, LISTS = 64 };

/* One thread's share: it walks through its own part of both buffers. */
struct lane {
    const struct bench *b;
    int opcode;
    size_t block, batch, step;
    size_t first, bytes; /* its part of the buffers */
    size_t at;           /* in it, of the next request */
    te_prep lists[LISTS];
    size_t n_lists;
    int64_t end_ns;
    uint64_t moved;
};

static void end_batch(struct lane *l, te_batch id)
{
    wait_all(l->b, id);
    batch_close(l->b, id);
    l->moved += l->batch * l->block;
}

static void fill(struct lane *l, te_request *reqs)
{
    size_t parts = striped ? (size_t)nics : 1, bytes = l->bytes / parts;
    for (size_t i = 0; i < l->batch; i++) {
        size_t part = l->first + i % parts * bytes;
        reqs[i] = request_at(l->b, l->opcode, part + l->at, l->block);
        if ((i + 1) % parts == 0)
            l->at = l->at + l->step + l->block <= bytes ? l->at + l->step : 0;
    }
}

/* As many as walk through the lane's part of the buffers once, at most LISTS. */
static void make_lists(struct lane *l, te_request *reqs)
{
    size_t n = l->bytes / (l->step * l->batch);
    l->n_lists = n < LISTS ? n : LISTS;
    for (size_t i = 0; i < l->n_lists; i++) {
        fill(l, reqs);
        l->lists[i] = prep_make(l->b, reqs, l->batch);
    }
}

static void submit_next(struct lane *l, te_batch id, te_request *reqs, size_t n)
{
    if (prepared) {
        te_prep list = l->lists[n % l->n_lists];
        check(te_prep_submit(l->b->e, id, list, l->opcode, NULL, l->batch, NULL), "te_prep_submit");
        return;
    }
    fill(l, reqs);
    check(te_submit(l->b->e, id, reqs, l->batch, NULL), "te_submit");
}

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    te_batch under_way[DEPTH_MAX];
    te_request *reqs = calloc(l->batch, sizeof *reqs);
    size_t n = 0;
    if (reqs == NULL)
        bench_die("out of memory");
    if (prepared)
        make_lists(l, reqs);
    for (; n == 0 || bench_now_ns() < l->end_ns; n++) {
        te_batch *slot = &under_way[n % (size_t)depth];
        if (n >= (size_t)depth)
            end_batch(l, *slot);
        *slot = batch_open(l->b, l->batch);
        submit_next(l, *slot, reqs, n);
    }
    for (size_t i = n > (size_t)depth ? n - (size_t)depth : 0; i < n; i++)
        end_batch(l, under_way[i % (size_t)depth]);
    for (size_t i = 0; i < l->n_lists; i++)
        check(te_prep_destroy(l->b->e, l->lists[i]), "te_prep_destroy");
    free(reqs);
    return NULL;
}

/* Processor time of this process, in its threads and in the kernel for them. */
static double cpu_s(void)
{
    struct rusage r;
    if (getrusage(RUSAGE_SELF, &r) != 0)
        bench_die_errno("getrusage");
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static double throughput(const struct bench *b, int opcode, double span)
{
    struct lane lanes[BENCH_THREADS_MAX];
    size_t share = buffer / (size_t)threads;
    int64_t start = bench_now_ns();
    uint64_t moved = 0;
    size_t bytes = or_default(block, 1U << 20);
    for (size_t i = 0; i < (size_t)threads; i++)
        lanes[i] = (struct lane){.b = b,
                                 .opcode = opcode,
                                 .block = bytes,
                                 .step = apart ? 2 * bytes : bytes,
                                 .batch = or_default((size_t)batch, 16),
                                 .first = i * share,
                                 .bytes = share,
                                 .end_ns = start + (int64_t)(span * 1e9)};
    if (striped && (threads > 1 || nics == 0))
        bench_die("--striped wants --nics and one thread");
    if (depth < 1 || depth > DEPTH_MAX)
        bench_die("1 to %d batches under way, please", DEPTH_MAX);
    if (lanes[0].step * lanes[0].batch * (size_t)depth > share)
        bench_die("what is under way must fit a thread's part of the buffer, %zu bytes", share);
    bench_threads((size_t)threads, run_lane, lanes, sizeof *lanes);
    int64_t ns = bench_now_ns() - start;
    for (int i = 0; i < threads; i++)
        moved += lanes[i].moved;
    return bench_gb_s(moved, ns);
}

void measure_throughput(struct bench *b)
{
    static const char *const names[] = {"read", "write"};
    char own_cc[BENCH_CC_MAX] = "none", other_cc[BENCH_CC_MAX] = "none";
    for (int op = TE_READ; op <= TE_WRITE; op++) {
        if (only != NULL && strcmp(only, names[op]) != 0)
            continue;
        throughput(b, op, 0.1);
        double cpu = -cpu_s(), ns = -(double)bench_now_ns();
        double rate = throughput(b, op, seconds);
        cpu += cpu_s();
        ns += (double)bench_now_ns();
        double requests_s = rate * 1e9 / (double)or_default(block, 1U << 20);
        find_cc(own_cc);
        if (b->peer.pid != 0)
            peer_cc(&b->peer, other_cc);
        printf(
            json
                ? "{\"bench\": \"throughput\", \"op\": \"%s\", \"gb_s\": %.4f, \"requests_s\": %.0f, \"cpu_us\": %.3f, "
                  "\"threads\": %d, \"block\": %zu, \"batch\": %zu, \"depth\": %d, \"cc\": \"%s\", \"peer_cc\": \"%s\"}\n"
                : "throughput: %s %.2f GB/s, %.0f requests a second, %.3f us of CPU each (%d thread(s), blocks of %zu, "
                  "batches of %zu, %d under way, congestion control here %s, there %s)\n",
            names[op], rate, requests_s, cpu * 1e9 / (requests_s * ns) * 1e6, threads,
            or_default(block, 1U << 20), or_default((size_t)batch, 16), depth, own_cc, other_cc);
        fflush(stdout);
    }
}
