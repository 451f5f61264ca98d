/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - te_submit_pages(): what it takes of the caller's processor, and how long until all is moved.
 * Pages are named in an order in which hardly any adjoin, and again where the buffer has fewer.
 */
#include "micro.h"

enum { PAGES = 112000 };

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static te_page_side pool(uint64_t base, size_t bytes, const uint32_t *index)
{
    return (te_page_side){.base = base, .pages = buffer / bytes, .stride = bytes, .index = index};
}

static te_pages make(const struct bench *b, size_t n, size_t bytes, uint32_t *index)
{
    for (size_t i = 0; i < n; i++)
        index[i] = (uint32_t)(i * 7919 % (buffer / bytes));
    return (te_pages){.size = sizeof(te_pages),
                      .opcode = TE_READ,
                      .target = b->target,
                      .length = bytes,
                      .n = n,
                      .index_bits = 32,
                      .local = pool((uintptr_t)b->base, bytes, index),
                      .remote = pool(b->target_base, bytes, index)};
}

void measure_pages(const struct bench *b)
{
    size_t n = or_default((size_t)batch, PAGES), times = or_default((size_t)rounds, 20);
    size_t bytes = or_default(block, 4096);
    uint32_t *index = calloc(n, sizeof *index);
    int64_t *cpu = calloc(times, sizeof *cpu), *all = calloc(times, sizeof *all);
    if (index == NULL || cpu == NULL || all == NULL || bytes > buffer)
        bench_die("no room for %zu pages", n);
    te_pages pages = make(b, n, bytes, index);
    for (size_t i = 0; i < times; i++) {
        te_batch id = batch_open(b, 1);
        int64_t start = bench_now_ns(), begin = cpu_ns();
        check(te_submit_pages(b->e, id, &pages, NULL), "te_submit_pages");
        cpu[i] = cpu_ns() - begin;
        wait_all(b, id);
        all[i] = bench_now_ns() - start;
        batch_close(b, id);
    }
    bench_sort(cpu, times);
    bench_sort(all, times);
    double ns = bench_quantile(cpu, times, 0.5), end = bench_quantile(all, times, 0.5);
    printf(json ? "{\"bench\": \"pages\", \"ns_page\": %.2f, \"submit_ms\": %.3f, "
                  "\"all_ms\": %.3f, \"pages\": %zu, \"bytes\": %zu}\n"
                : "pages: %.2f ns a page, %.3f ms a submit, %.3f ms until moved (%zu pages of %zu "
                  "bytes)\n",
           ns / (double)n, ns / 1e6, end / 1e6, n, bytes);
    free(index);
    free(cpu);
    free(all);
}
