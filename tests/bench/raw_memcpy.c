/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_memcpy.c - the limit of moving bytes within one process: memcpy of whole blocks from one big
 * buffer to another. Each thread walks through its own part of both.
 */
#include "bench.h"

static size_t block = 1U << 20, buffer = 256U << 20;
static int threads = 1;
static double seconds = 1.0;
static bool json;

static const struct bench_opt options[] = {
    {"block", BENCH_SIZE, &block, "bytes a memcpy (1M)"},
    {"buffer", BENCH_SIZE, &buffer, "bytes of source and as many of destination (256M)"},
    {"threads", BENCH_INT, &threads, "threads, each with its part of the buffers (1)"},
    {"seconds", BENCH_SECONDS, &seconds, "how long to copy (1)"},
    {"json", BENCH_FLAG, &json, "print one line of JSON"},
};

struct part {
    char *from, *to;
    size_t bytes;
    int64_t end_ns;
    uint64_t copied;
};

static void *copy(void *arg)
{
    struct part *p = arg;
    for (size_t at = 0; p->copied == 0 || bench_now_ns() < p->end_ns; p->copied += block) {
        memcpy(p->to + at, p->from + at, block);
        at = at + 2 * block <= p->bytes ? at + block : 0;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct part parts[BENCH_THREADS_MAX];
    const char *about = "[option...]\n\nCopies blocks between cold buffers and prints the rate.";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (threads < 1 || threads > BENCH_THREADS_MAX || buffer / (size_t)threads < block)
        bench_die("1 to %d threads, each with room for a block, please", BENCH_THREADS_MAX);
    bench_guard((unsigned)seconds + 120, false);
    size_t share = buffer / (size_t)threads;
    char *from = bench_buffer(buffer), *to = bench_buffer(buffer);
    int64_t start = bench_now_ns();
    for (size_t i = 0; i < (size_t)threads; i++)
        parts[i] = (struct part){.from = from + i * share,
                                 .to = to + i * share,
                                 .bytes = share,
                                 .end_ns = start + (int64_t)(seconds * 1e9)};
    bench_threads((size_t)threads, copy, parts, sizeof *parts);
    uint64_t bytes = 0;
    int64_t ns = bench_now_ns() - start;
    for (int i = 0; i < threads; i++)
        bytes += parts[i].copied;
    printf(json ? "{\"bench\": \"raw_memcpy\", \"gb_s\": %.4f, \"threads\": %d, \"block\": %zu}\n"
                : "%.2f GB/s: %d thread(s), blocks of %zu bytes\n",
           bench_gb_s(bytes, ns), threads, block);
    return 0;
}
