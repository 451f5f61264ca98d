/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup.c - what beginnings cost: making an engine, and the first transfer to a peer it never met.
 */
#include "micro.h"

void measure_init(void)
{
    size_t times = or_default((size_t)rounds, 20);
    int64_t *samples = calloc(times, sizeof *samples);
    if (samples == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < times; i++) {
        te_engine *e = engine_make_timed(&samples[i]);
        te_engine_destroy(e);
    }
    int64_t first = samples[0];
    bench_sort(samples, times);
    printf(json ? "{\"bench\": \"init\", \"p50_ms\": %.3f, \"first_ms\": %.3f, \"max_ms\": %.3f}\n"
                : "init: p50 %.3f ms, the first %.3f ms, the longest %.3f ms\n",
           bench_quantile(samples, times, 0.5) / 1e6, (double)first / 1e6,
           (double)samples[times - 1] / 1e6);
    free(samples);
}

/* What one meeting took, in ns. */
struct meeting {
    int64_t *open, *warm, *move, *total;
};

/* One new engine meets the target: te_open(), with `ahead` te_warm(), and a first read of a block. */
static void meet(const struct bench *b, bool ahead, size_t i, const struct meeting *m)
{
    struct bench fresh = *b;
    fresh.e = engine_make();
    check(te_register(fresh.e, fresh.base, buffer, "*", TE_LOCAL_ONLY), "te_register");
    int64_t start = bench_now_ns();
    check(te_open(fresh.e, fresh.peer.name, &fresh.target), "te_open");
    int64_t opened = bench_now_ns();
    if (ahead)
        check(te_warm(fresh.e, fresh.target, WAIT_MS, NULL), "te_warm");
    int64_t warmed = bench_now_ns();
    te_request r = request_at(&fresh, TE_READ, 0, or_default(block, 4096));
    te_batch id = batch_open(&fresh, 1);
    check(te_submit(fresh.e, id, &r, 1, NULL), "te_submit");
    check(te_wait(fresh.e, id, WAIT_MS), "te_wait");
    int64_t moved = bench_now_ns();
    m->open[i] = opened - start;
    m->warm[i] = warmed - opened;
    m->move[i] = moved - warmed;
    m->total[i] = moved - start;
    wait_all(&fresh, id);
    batch_close(&fresh, id);
    te_engine_destroy(fresh.e);
}

static void tell_first(const struct meeting *m, size_t times)
{
    double cold_first = (double)m->move[0] / 1e6;
    double cold_total = (double)(m->open[0] + m->move[0]) / 1e6;
    bench_sort(m->open, times);
    bench_sort(m->move, times);
    bench_sort(m->total, times);
    printf(
        json ? "{\"bench\": \"first\", \"open_ms\": %.3f, \"first_ms\": %.3f, \"total_ms\": %.3f, "
               "\"cold_first_ms\": %.3f, \"cold_total_ms\": %.3f, \"count\": %zu}\n"
             : "first: te_open %.3f ms, the first transfer %.3f ms, both %.3f ms; cold "
               "%.3f ms, both %.3f ms (p50 of %zu)\n",
        bench_quantile(m->open, times, 0.5) / 1e6, bench_quantile(m->move, times, 0.5) / 1e6,
        bench_quantile(m->total, times, 0.5) / 1e6, cold_first, cold_total, times);
}

static void tell_warm(const struct meeting *m, size_t times)
{
    bench_sort(m->warm, times);
    bench_sort(m->move, times);
    printf(json ? "{\"bench\": \"warm\", \"warm_ms\": %.3f, \"first_ms\": %.3f, \"count\": %zu}\n"
                : "warm: te_warm %.3f ms, the first transfer after it %.3f ms (p50 of %zu)\n",
           bench_quantile(m->warm, times, 0.5) / 1e6, bench_quantile(m->move, times, 0.5) / 1e6,
           times);
}

/*
 * Nothing else of this process has met the target before, so the first of the engines is cold in
 * every sense, and what a process keeps for all of them shows as its distance from the median.
 */
void measure_first(char **argv, int argc, bool ahead)
{
    struct bench b = {.base = bench_buffer(buffer), .peer = peer_start(argv, argc)};
    b.target_base = b.peer.base;
    size_t times = or_default((size_t)rounds, 20);
    int64_t *all = calloc(4 * times, sizeof *all);
    struct meeting m = {all, all + times, all + 2 * times, all + 3 * times};
    if (all == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < times; i++)
        meet(&b, ahead, i, &m);
    if (ahead)
        tell_warm(&m, times);
    else
        tell_first(&m, times);
    peer_stop(&b.peer);
    munmap(b.base, buffer);
    free(all);
}
