/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput.c - batches of blocks, a batch at a time from te_batch_alloc() to te_batch_free(), by
 * some threads.
 */
#include "micro.h"

/* One thread's share: it walks through its own part of both buffers. */
struct lane {
    const struct bench *b;
    int opcode;
    size_t block, batch, step;
    size_t first, bytes; /* its part of the buffers */
    int64_t end_ns;
    uint64_t moved;
};

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    te_request *reqs = calloc(l->batch, sizeof *reqs);
    if (reqs == NULL)
        bench_die("out of memory");
    for (size_t at = 0; bench_now_ns() < l->end_ns; l->moved += l->batch * l->block) {
        for (size_t i = 0; i < l->batch; i++) {
            reqs[i] = request_at(l->b, l->opcode, l->first + at, l->block);
            at = at + l->step + l->block <= l->bytes ? at + l->step : 0;
        }
        move(l->b, reqs, l->batch);
    }
    free(reqs);
    return NULL;
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
    if (lanes[0].step * lanes[0].batch > share)
        bench_die("a batch must fit a thread's part of the buffer, %zu bytes", share);
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
        double rate = throughput(b, op, seconds);
        find_cc(own_cc);
        if (b->peer.pid != 0)
            peer_cc(&b->peer, other_cc);
        printf(json
                   ? "{\"bench\": \"throughput\", \"op\": \"%s\", \"gb_s\": %.4f, \"threads\": %d, "
                     "\"block\": %zu, \"batch\": %zu, \"cc\": \"%s\", \"peer_cc\": \"%s\"}\n"
                   : "throughput: %s %.2f GB/s (%d thread(s), blocks of %zu, batches of %zu, "
                     "congestion control here %s, there %s)\n",
               names[op], rate, threads, or_default(block, 1U << 20), or_default((size_t)batch, 16),
               own_cc, other_cc);
        fflush(stdout);
    }
}
