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

/* One new engine meets the target: te_open() and a first read of a block, each timed. */
static void meet(const struct bench *b, int64_t *open_ns, int64_t *move_ns)
{
    struct bench fresh = *b;
    fresh.e = engine_make();
    check(te_register(fresh.e, fresh.base, buffer, "*", TE_LOCAL_ONLY), "te_register");
    int64_t start = bench_now_ns();
    check(te_open(fresh.e, fresh.peer.name, &fresh.target), "te_open");
    int64_t opened = bench_now_ns();
    te_request r = request_at(&fresh, TE_READ, 0, or_default(block, 4096));
    te_batch id = batch_open(&fresh, 1);
    check(te_submit(fresh.e, id, &r, 1, NULL), "te_submit");
    check(te_wait(fresh.e, id, WAIT_MS), "te_wait");
    *open_ns = opened - start;
    *move_ns = bench_now_ns() - opened;
    wait_all(&fresh, id);
    batch_close(&fresh, id);
    te_engine_destroy(fresh.e);
}

/*
 * Nothing else of this process has met the target before, so the first of the engines is cold in
 * every sense, and what a process keeps for all of them shows as its distance from the median.
 */
void measure_first(char **argv, int argc)
{
    struct bench b = {.base = bench_buffer(buffer), .peer = peer_start(argv, argc)};
    b.target_base = b.peer.base;
    size_t times = or_default((size_t)rounds, 20);
    int64_t *opens = calloc(times, sizeof *opens), *moves = calloc(times, sizeof *moves);
    int64_t *totals = calloc(times, sizeof *totals);
    if (opens == NULL || moves == NULL || totals == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < times; i++) {
        meet(&b, &opens[i], &moves[i]);
        totals[i] = opens[i] + moves[i];
    }
    double cold_first = (double)moves[0] / 1e6, cold_total = (double)totals[0] / 1e6;
    bench_sort(opens, times);
    bench_sort(moves, times);
    bench_sort(totals, times);
    printf(
        json ? "{\"bench\": \"first\", \"open_ms\": %.3f, \"first_ms\": %.3f, \"total_ms\": %.3f, "
               "\"cold_first_ms\": %.3f, \"cold_total_ms\": %.3f, \"count\": %zu}\n"
             : "first: te_open %.3f ms, the first transfer %.3f ms, both %.3f ms; cold "
               "%.3f ms, both %.3f ms (p50 of %zu)\n",
        bench_quantile(opens, times, 0.5) / 1e6, bench_quantile(moves, times, 0.5) / 1e6,
        bench_quantile(totals, times, 0.5) / 1e6, cold_first, cold_total, times);
    peer_stop(&b.peer);
    munmap(b.base, buffer);
    free(opens);
    free(moves);
    free(totals);
}
