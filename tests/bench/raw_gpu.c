/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_gpu.c - the limit of moving bytes to, from and between GPUs: the driver's asynchronous copies on
 * one stream, with host memory pinned. What te_gpu is measured against.
 */
#include "gpu.h"

static size_t buffer = 64U << 20, total = 256U << 20;
static int rounds = 7, device;
static bool json;

static const struct bench_opt options[] = {
    {"buffer", BENCH_SIZE, &buffer,
     "bytes of each buffer, and the largest copy; at least 16M (64M)"},
    {"bytes", BENCH_SIZE, &total, "bytes of a sample (256M)"},
    {"rounds", BENCH_INT, &rounds, "samples of which the median is told (7)"},
    {"device", BENCH_INT, &device, "number of the GPU (0)"},
    {"json", BENCH_FLAG, &json, "print JSON, one line a figure"},
};

enum { ROUNDS_MAX = 1000 };

static void tell(const char *path, const char *shape, struct gpu_shape s, double *v)
{
    double median = gpu_median(v, (size_t)rounds);
    printf(json ? "{\"bench\": \"raw_gpu\", \"path\": \"%s\", \"shape\": \"%s\", \"block\": %zu, "
                  "\"blocks\": %zu, \"gb_s\": %.3f, \"min\": %.3f, \"max\": %.3f}\n"
                : "%-5s %-9s %9zu x %-5zu %9.2f GB/s  (%.2f to %.2f)\n",
           path, shape, s.bytes, s.n, median, v[0], v[rounds - 1]);
    fflush(stdout);
}

static void measure(const char *path, const char *shape, gpu_addr to, gpu_addr from,
                    struct gpu_shape s)
{
    double v[ROUNDS_MAX];
    void *queue = gpu_queue();
    gpu_raw(queue, to, from, s);
    for (int i = 0; i < rounds; i++)
        v[i] = gpu_raw(queue, to, from, s);
    tell(path, shape, s, v);
}

static void measure_path(const char *path, gpu_addr to, gpu_addr from)
{
    static const size_t sizes[] = {64U << 10, 1U << 20, 16U << 20, 64U << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] <= buffer)
            measure(path, "dense", to, from, gpu_dense(sizes[i], total, buffer));
    measure(path, "scattered", to, from, gpu_scattered());
    measure(path, "whole", to, from, gpu_whole());
}

/* The other process: memory of its own on the same GPU, until this one is through. */
static void be_peer(int in, int out)
{
    gpu_open();
    gpu_use(device);
    struct gpu_handle h = gpu_export(gpu_memory(buffer));
    gpu_tell(out, &h, sizeof h);
    gpu_linger(in);
}

static void measure_peer_device(int devices, gpu_addr mine)
{
    if (devices < 2)
        return;
    gpu_use((device + 1) % devices);
    gpu_addr other = gpu_memory(buffer);
    gpu_use(device);
    measure_path("peer", other, mine);
}

int main(int argc, char **argv)
{
    struct gpu_handle h;
    char name[128];
    int at = bench_options(argc, argv, "[option...]\n\nMeasures the driver's copies of a GPU.",
                           options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("surplus word", argv[at]);
    if (rounds < 1 || rounds > ROUNDS_MAX || buffer < gpu_room(gpu_scattered()))
        bench_die("between 1 and %d rounds, and buffers of at least 16M, please", ROUNDS_MAX);
    bench_guard(280, false);
    struct gpu_peer peer = gpu_fork(be_peer);
    int devices = gpu_open();
    gpu_wake(&peer);
    gpu_use(device);
    gpu_name(device, name);
    if (!json)
        printf("%s, %d of them; medians of %d\n", name, devices, rounds);
    gpu_addr host = gpu_host_memory(buffer), mine = gpu_memory(buffer), too = gpu_memory(buffer);
    measure_path("h2d", mine, host);
    measure_path("d2h", host, mine);
    measure_path("d2d", too, mine);
    measure_peer_device(devices, mine);
    gpu_hear(peer.in, &h, sizeof h);
    measure_path("ipc", gpu_import(h), mine);
    gpu_dismiss(&peer);
    return 0;
}
