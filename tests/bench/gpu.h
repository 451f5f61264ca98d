/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - CUDA's driver for the programs of tests/bench, by dlopen: no more of it than raw copies
 * between pinned host memory and memory of devices need. A program without a driver exits 77.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "bench.h"

#include <dlfcn.h>

typedef unsigned long long gpu_addr; /* the driver's CUdeviceptr; host memory has its own address */

/* The driver's handle for other processes, which is passed by value. */
struct gpu_handle {
    char bytes[64];
};

enum { GPU_NON_BLOCKING = 1, GPU_LAZY_PEER = 1, GPU_PORTABLE = 1 };

#define GPU_CALLS(X)                                                      \
    X(cuInit, (unsigned flags))                                           \
    X(cuDriverGetVersion, (int *version))                                 \
    X(cuGetErrorName, (int error, const char **name))                     \
    X(cuDeviceGetCount, (int *count))                                     \
    X(cuDeviceGet, (int *device, int number))                             \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))             \
    X(cuCtxPushCurrent_v2, (void *context))                               \
    X(cuMemAlloc_v2, (gpu_addr * addr, size_t bytes))                     \
    X(cuMemHostRegister_v2, (void *addr, size_t bytes, unsigned flags))   \
    X(cuMemcpyAsync, (gpu_addr to, gpu_addr from, size_t n, void *queue)) \
    X(cuStreamCreate, (void **queue, unsigned flags))                     \
    X(cuStreamSynchronize, (void *queue))                                 \
    X(cuIpcGetMemHandle, (struct gpu_handle * handle, gpu_addr addr))     \
    X(cuIpcOpenMemHandle_v2, (gpu_addr * addr, struct gpu_handle handle, unsigned flags))

#define GPU_DECLARE(name, args) int(*name) args;
static struct {
    GPU_CALLS(GPU_DECLARE)
    /* Not every stand-in has it. */
    int (*cuDeviceGetName)(char *name, int room, int device);
} gpu;

static inline void gpu_check(int rc, const char *what)
{
    const char *name = NULL;
    if (rc == 0)
        return;
    if (gpu.cuGetErrorName(rc, &name) != 0 || name == NULL)
        name = "unknown error";
    bench_die("%s: %s (%d)", what, name, rc);
}

#define GPU_DO(call, ...) gpu_check(gpu.call(__VA_ARGS__), #call)

__attribute__((noreturn)) static inline void gpu_absent(const char *why)
{
    fprintf(stderr, "%s: no CUDA device: %s\n", program_invocation_short_name, why);
    exit(77);
}

/* Loads the driver; how many devices there are. */
static inline int gpu_open(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int n = 0;
    if (lib == NULL)
        gpu_absent(dlerror());
#define GPU_LOAD(call, args)                         \
    *(void **)(void *)&gpu.call = dlsym(lib, #call); \
    if (gpu.call == NULL)                            \
        gpu_absent("the driver is too old: it has no " #call);
    GPU_CALLS(GPU_LOAD)
#undef GPU_LOAD
    *(void **)(void *)&gpu.cuDeviceGetName = dlsym(lib, "cuDeviceGetName");
    if (gpu.cuInit(0) != 0 || gpu.cuDeviceGetCount(&n) != 0 || n == 0)
        gpu_absent("the driver finds none");
    return n;
}

/* Makes a device the one of this thread. */
static inline void gpu_use(int number)
{
    void *context;
    int device;
    GPU_DO(cuDeviceGet, &device, number);
    GPU_DO(cuDevicePrimaryCtxRetain, &context, device);
    GPU_DO(cuCtxPushCurrent_v2, context);
}

static inline void gpu_name(int number, char out[128])
{
    int device;
    snprintf(out, 128, "device %d", number);
    if (gpu.cuDeviceGetName != NULL && gpu.cuDeviceGet(&device, number) == 0)
        gpu.cuDeviceGetName(out, 128, device);
}

static inline gpu_addr gpu_memory(size_t bytes)
{
    gpu_addr addr;
    GPU_DO(cuMemAlloc_v2, &addr, bytes);
    return addr;
}

static inline gpu_addr gpu_host_memory(size_t bytes)
{
    char *p = bench_buffer(bytes);
    GPU_DO(cuMemHostRegister_v2, p, bytes, GPU_PORTABLE);
    return (gpu_addr)(uintptr_t)p;
}

static inline void *gpu_queue(void)
{
    void *queue;
    GPU_DO(cuStreamCreate, &queue, GPU_NON_BLOCKING);
    return queue;
}

/* ------------------------------------------------------------------------------------- samples */

/* `n` copies of `bytes`, the i-th at place i modulo `places`; places are `stride` apart. */
struct gpu_shape {
    size_t bytes, n, stride, places;
};

/* As many copies of one size, side by side in a buffer, as make `total` bytes, at least one. */
static inline struct gpu_shape gpu_dense(size_t bytes, size_t total, size_t buffer)
{
    return (struct gpu_shape){.bytes = bytes,
                              .n = total > bytes ? total / bytes : 1,
                              .stride = bytes,
                              .places = buffer / bytes};
}

#define GPU_SCATTER_BYTES ((size_t)64 << 10)
#define GPU_SCATTER_N     ((size_t)128)

/* Blocks that do not adjoin. */
static inline struct gpu_shape gpu_scattered(void)
{
    return (struct gpu_shape){GPU_SCATTER_BYTES, GPU_SCATTER_N, 2 * GPU_SCATTER_BYTES,
                              GPU_SCATTER_N};
}

/* The same bytes in one piece. */
static inline struct gpu_shape gpu_whole(void)
{
    return (struct gpu_shape){GPU_SCATTER_BYTES * GPU_SCATTER_N, 1, 0, 1};
}

/* Bytes that a buffer must have for it. */
static inline size_t gpu_room(struct gpu_shape s)
{
    return s.stride * (s.places - 1) + s.bytes;
}

/* Gigabytes a second of the driver's own copies, from the first submission to the last byte. */
static inline double gpu_raw(void *queue, gpu_addr to, gpu_addr from, struct gpu_shape s)
{
    int64_t start = bench_now_ns();
    for (size_t i = 0; i < s.n; i++) {
        size_t at = i % s.places * s.stride;
        GPU_DO(cuMemcpyAsync, to + at, from + at, s.bytes, queue);
    }
    GPU_DO(cuStreamSynchronize, queue);
    return bench_gb_s(s.bytes * s.n, bench_now_ns() - start);
}

static inline int gpu_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double gpu_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, gpu_compare);
    return v[n / 2];
}

/* ------------------------------------------------------------------------------ another process */

/* Writes or reads all of it. */
static inline void gpu_tell(int fd, const void *p, size_t n)
{
    if (write(fd, p, n) != (ssize_t)n)
        bench_die_errno("writing to the other process");
}

static inline void gpu_hear(int fd, void *p, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = read(fd, (char *)p + got, n - got);
        if (k <= 0)
            bench_die("the other process has ended");
        got += (size_t)k;
    }
}

/* Waits until the other process closes its end. */
static inline void gpu_linger(int fd)
{
    char c;
    while (read(fd, &c, 1) > 0)
        continue;
}

struct gpu_peer {
    pid_t pid;
    int in, out;
};

/*
 * Starts a process that runs `be` once it is woken; before this one loads a driver, which does not
 * survive a fork.
 */
static inline struct gpu_peer gpu_fork(void (*be)(int in, int out))
{
    struct gpu_peer p;
    int there[2], back[2];
    char go;
    if (pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
        bench_die_errno("pipe2");
    p.pid = fork();
    if (p.pid < 0)
        bench_die_errno("fork");
    if (p.pid == 0) {
        bench_guard(300, true);
        close(there[1]);
        close(back[0]);
        if (read(there[0], &go, 1) == 1)
            be(there[0], back[1]);
        exit(0);
    }
    close(there[0]);
    close(back[1]);
    p.out = there[1];
    p.in = back[0];
    return p;
}

static inline void gpu_wake(const struct gpu_peer *p)
{
    gpu_tell(p->out, "", 1);
}

static inline void gpu_dismiss(const struct gpu_peer *p)
{
    close(p->out);
    bench_reap(p->pid);
    close(p->in);
}

/* Memory of this process that the other one opens by the handle. */
static inline struct gpu_handle gpu_export(gpu_addr addr)
{
    struct gpu_handle h;
    GPU_DO(cuIpcGetMemHandle, &h, addr);
    return h;
}

static inline gpu_addr gpu_import(struct gpu_handle h)
{
    gpu_addr addr;
    GPU_DO(cuIpcOpenMemHandle_v2, &addr, h, GPU_LAZY_PEER);
    return addr;
}

#endif
