/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_process_vm.c - the limit of moving bytes between two processes of this host without a shared
 * mapping: process_vm_readv (or _writev) of whole blocks, one or a list of them a call. Each thread walks through its own part of
 * the buffers. Exits 77 where the host forbids the call.
 */
#include "bench.h"

#include <sys/uio.h>

static size_t block = 1U << 20, buffer = 256U << 20;
static int threads = 1, list = 1;
static double seconds = 1.0;
static bool json, write_side;

static const struct bench_opt options[] = {
    {"block", BENCH_SIZE, &block, "bytes a block (1M)"},
    {"list", BENCH_INT, &list, "blocks a call, every other block of the buffer if several (1)"},
    {"buffer", BENCH_SIZE, &buffer, "bytes of memory a process (256M)"},
    {"threads", BENCH_INT, &threads, "threads, each with its part of the buffers (1)"},
    {"seconds", BENCH_SECONDS, &seconds, "how long to copy (1)"},
    {"write", BENCH_FLAG, &write_side, "process_vm_writev instead"},
    {"json", BENCH_FLAG, &json, "print one line of JSON"},
};

enum { LIST_MAX = 1024 }; /* IOV_MAX of Linux */

struct part {
    char *base; /* at the same address in both processes */
    size_t bytes;
    pid_t pid;
    int64_t end_ns;
    uint64_t copied;
};

/* Blocks of a list lie apart, so that the kernel cannot take them for one. */
static size_t stride(void)
{
    return list > 1 ? 2 * block : block;
}

static size_t bytes_a_call(void)
{
    return block * (size_t)list;
}

static ssize_t copy_list(const struct part *p, size_t at)
{
    struct iovec v[LIST_MAX];
    for (size_t i = 0; i < (size_t)list; i++)
        v[i] = (struct iovec){p->base + at + i * stride(), block};
    return write_side ? process_vm_writev(p->pid, v, (unsigned long)list, v, (unsigned long)list, 0)
                      : process_vm_readv(p->pid, v, (unsigned long)list, v, (unsigned long)list, 0);
}

static void *copy(void *arg)
{
    struct part *p = arg;
    size_t step = stride() * (size_t)list;
    for (size_t at = 0; p->copied == 0 || bench_now_ns() < p->end_ns; p->copied += bytes_a_call()) {
        if (copy_list(p, at) != (ssize_t)bytes_a_call())
            bench_die_errno("process_vm");
        at = at + 2 * step <= p->bytes ? at + step : 0;
    }
    return NULL;
}

/* The process that is read from: owns its own copy of the pages and sleeps until it is killed. */
static void be_target(char *base, pthread_barrier_t *gate)
{
    memset(base, 0x3c, buffer);
    pthread_barrier_wait(gate);
    for (;;)
        pause();
}

static void measure(char *base, pid_t pid)
{
    struct part parts[BENCH_THREADS_MAX];
    size_t share = buffer / (size_t)threads;
    uint64_t bytes = 0;
    int64_t start = bench_now_ns();
    for (size_t i = 0; i < (size_t)threads; i++)
        parts[i] = (struct part){.base = base + i * share,
                                 .bytes = share,
                                 .pid = pid,
                                 .end_ns = start + (int64_t)(seconds * 1e9)};
    bench_threads((size_t)threads, copy, parts, sizeof *parts);
    int64_t ns = bench_now_ns() - start;
    for (int i = 0; i < threads; i++)
        bytes += parts[i].copied;
    printf(
        json
            ? "{\"bench\": \"raw_process_vm\", \"gb_s\": %.4f, \"threads\": %d, \"block\": %zu, \"list\": %d}\n"
            : "%.2f GB/s: %d thread(s), blocks of %zu bytes, %d a call\n",
        bench_gb_s(bytes, ns), threads, block, list);
}

int main(int argc, char **argv)
{
    const char *about = "[option...]\n\nCopies blocks from another process and prints the rate.";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (list < 1 || list > LIST_MAX)
        bench_die("1 to %d blocks a call, please", LIST_MAX);
    if (threads < 1 || threads > BENCH_THREADS_MAX ||
        buffer / (size_t)threads < stride() * (size_t)list)
        bench_die("1 to %d threads, each with room for a call, please", BENCH_THREADS_MAX);
    char *base = bench_buffer(buffer);
    pthread_barrier_t *gate = bench_gate(2);
    pid_t pid = fork();
    if (pid < 0)
        bench_die_errno("fork");
    bench_guard((unsigned)seconds + 120, pid == 0);
    if (pid == 0)
        be_target(base, gate);
    pthread_barrier_wait(gate);
    struct part probe = {.base = base, .bytes = buffer, .pid = pid};
    ssize_t got = copy_list(&probe, 0);
    int why = errno;
    if (got == (ssize_t)bytes_a_call())
        measure(base, pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (got != (ssize_t)bytes_a_call())
        fprintf(stderr, "process_vm is not allowed here: %s\n", strerror(why));
    return got == (ssize_t)bytes_a_call() ? 0 : 77;
}
