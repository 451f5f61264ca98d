/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * softgpu's CUDA driver in one process: devices, contexts, memory that the host cannot touch, what is
 * told of an address, streams, copies, mapped memory, and faults on command.
 */
#include "fabric/softgpu/softcuda.h"
#include "fabric/softgpu/softgpu.h"
#include "child_engine.h"
#include "touch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100 };
enum { INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { NOT_READY = 600, DESTROYED = 709, ALREADY = 712, NOT_REGISTERED = 713 };
enum { LAUNCH_FAILED = 719, NOT_SUPPORTED = 801 };
enum { MEMORY_TYPE = 2, HOST_POINTER = 4, IS_MANAGED = 8, ORDINAL, IPC_CAPABLE, START, SIZE };
enum { HANDLE_TYPES = 14 };
enum { GRAIN = 2 << 20 };

static CUcontext context;

static CUdeviceptr at(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static int begin(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(cuCtxPushCurrent_v2(context), 0);
    return 0;
}

/* Nothing is left of a test, and no other device was used. */
static int end(void **state)
{
    static const char *const all[] = {"allocs", "ipc",     "pins",    "managed", "mappings",
                                      "spaces", "handles", "streams", "events"};

    (void)state;
    assert_int_equal(softgpu_control("clear"), 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_int_equal(softgpu_live(SOFTGPU_CUDA, all[i]), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_int_equal(softgpu_contexts(SOFTGPU_CUDA, 0), 0);
    assert_int_equal(softgpu_contexts(SOFTGPU_CUDA, 1), 0);
    return 0;
}

static CUdeviceptr alloc(size_t n)
{
    CUdeviceptr p = 0;

    assert_int_equal(cuMemAlloc_v2(&p, n), 0);
    return p;
}

/* ---- devices and contexts */

static void before_init(void **state)
{
    int n;

    (void)state;
    assert_int_equal(cuDeviceGetCount(&n), NOT_INITIALIZED);
    assert_int_equal(cuMemFree_v2(4096), NOT_INITIALIZED);
    assert_true(softgpu_plays(SOFTGPU_CUDA));
    assert_true(softgpu_plays(SOFTGPU_HIP));
}

static void devices(void **state)
{
    char pci[2][16];
    CUuuid uuid[2];
    int n, value;

    (void)state;
    assert_int_equal(cuDeviceGetCount(&n), 0);
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuDeviceGetPCIBusId(pci[i], sizeof(pci[i]), i), 0);
        assert_int_equal(cuDeviceGetUuid_v2(&uuid[i], i), 0);
    }
    assert_string_equal(pci[0], "0000:41:00.0");
    assert_string_not_equal(pci[0], pci[1]);
    assert_memory_not_equal(&uuid[0], &uuid[1], sizeof(uuid[0]));
    assert_int_equal(cuDeviceGetAttribute(&value, 33, 1), 0);
    assert_int_equal(value, 0x42);
    assert_int_equal(cuDeviceGet(&value, 2), INVALID_DEVICE);
    assert_int_equal(cuDeviceGetPCIBusId(pci[0], 12, 0), INVALID_VALUE);
}

static void contexts(void **state)
{
    CUcontext other, now;
    CUdeviceptr p;
    unsigned flags;
    int active;

    (void)state;
    assert_int_equal(softgpu_contexts(SOFTGPU_CUDA, 1), 0);
    assert_int_equal(cuDevicePrimaryCtxGetState(1, &flags, &active), 0);
    assert_int_equal(active, 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&other, 1), 0);
    assert_int_equal(cuDevicePrimaryCtxGetState(1, &flags, &active), 0);
    assert_int_equal(active, 1);
    assert_int_equal(cuCtxPushCurrent_v2(other), 0);
    assert_int_equal(cuCtxGetCurrent(&now), 0);
    assert_ptr_equal(now, other);
    p = alloc(100);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(1), 0); /* takes the memory with it */
    assert_int_equal(cuMemAlloc_v2(&p, 100), DESTROYED);
    assert_int_equal(cuCtxPopCurrent_v2(&now), 0);
    assert_int_equal(cuMemFree_v2(p), INVALID_VALUE);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(1), INVALID_CONTEXT);
    assert_int_equal(cuCtxPushCurrent_v2(other), DESTROYED);
}

static void *without_context(void *arg)
{
    CUdeviceptr p;
    CUstream s;

    (void)arg;
    assert_int_equal(cuMemAlloc_v2(&p, 1), INVALID_CONTEXT);
    assert_int_equal(cuStreamCreate(&s, 1), INVALID_CONTEXT);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), INVALID_CONTEXT);
    return NULL;
}

static void contexts_are_of_threads(void **state)
{
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, without_context, NULL), 0);
    pthread_join(thread, NULL);
}

static void forked_child_has_nothing(void **state)
{
    int status, n;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(cuDeviceGetCount(&n) == NOT_INITIALIZED && cuInit(0) == NOT_INITIALIZED ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- memory */

static void host_faults(void **state)
{
    CUdeviceptr p = alloc(5000), big = alloc(3 << 20);
    int pipes[2];

    (void)state;
    assert_int_equal(touch((char *)(uintptr_t)p, false), SIGSEGV);
    assert_int_equal(touch((char *)(uintptr_t)p, true), SIGSEGV);
    assert_int_equal(touch((char *)(uintptr_t)big + (3 << 20) - 1, true), SIGSEGV);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], (void *)(uintptr_t)p, 10), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], (void *)(uintptr_t)big, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(touch(softgpu_alias((void *)(uintptr_t)(p + 7)), true), 0);
    assert_null(softgpu_alias(pipes));
    assert_int_equal(cuMemFree_v2(p), 0);
    assert_int_equal(cuMemFree_v2(big), 0);
}

static void neighbours(void **state)
{
    CUdeviceptr a = alloc(1000), b = alloc(1), base;
    size_t size;

    (void)state;
    assert_int_equal(b, a + 1024);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &size, a + 999), 0);
    assert_int_equal(base, a);
    assert_int_equal(size, 1024);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &size, b + 255), 0);
    assert_int_equal(base, b);
    assert_int_equal(size, 256);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &size, b + 256), NOT_FOUND);
    assert_int_equal(cuMemcpy(a + 1000, b, 25), INVALID_VALUE); /* leaves the allocation */
    assert_int_equal(cuMemcpy(b, a + 1000, 24), 0);
    assert_int_equal(cuMemFree_v2(a + 256), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(a), 0);
    assert_int_equal(cuMemFree_v2(a), INVALID_VALUE);
    assert_int_equal(cuMemsetD8_v2(a, 0, 1), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(b), 0); /* a copy from or to it would end the process */
}

static void memory_ends(void **state)
{
    CUdeviceptr a = alloc((size_t)1 << 29), b;

    (void)state;
    assert_int_equal(cuMemAlloc_v2(&b, ((size_t)1 << 29) + 1), OUT_OF_MEMORY);
    b = alloc((size_t)1 << 29);
    assert_int_equal(cuMemFree_v2(a), 0);
    assert_int_equal(cuMemFree_v2(b), 0);
    assert_int_equal(cuMemAlloc_v2(&b, 0), INVALID_VALUE);
}

/* ---- what is told of an address */

static int int_of(int name, CUdeviceptr p)
{
    int value = -77;

    assert_int_equal(cuPointerGetAttribute(&value, name, p), 0);
    return value;
}

static bool bool_of(int name, CUdeviceptr p)
{
    bool value;

    assert_int_equal(cuPointerGetAttribute(&value, name, p), 0);
    return value;
}

static void unknown_address(void **state)
{
    int names[] = {MEMORY_TYPE, ORDINAL, START, SIZE, IS_MANAGED}, type = 9, ordinal = 9;
    CUdeviceptr start = 9;
    size_t size = 9;
    bool managed = true;
    void *data[] = {&type, &ordinal, &start, &size, &managed};

    (void)state;
    assert_int_equal(cuPointerGetAttributes(5, names, data, at(names)), 0);
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, 0);
    assert_int_equal(start, 0);
    assert_int_equal(size, 0);
    assert_false(managed);
    assert_int_equal(cuPointerGetAttribute(&type, MEMORY_TYPE, at(names)), INVALID_VALUE);
    assert_int_equal(cuMemGetAddressRange_v2(&start, &size, at(names)), NOT_FOUND);
}

static void device_address(void **state)
{
    CUdeviceptr p = alloc(300), start;
    void *host;

    (void)state;
    assert_int_equal(int_of(MEMORY_TYPE, p + 5), 2);
    assert_int_equal(int_of(ORDINAL, p + 5), 0);
    assert_true(bool_of(IPC_CAPABLE, p));
    assert_false(bool_of(IS_MANAGED, p));
    assert_int_equal(cuPointerGetAttribute(&start, START, p + 299), 0);
    assert_int_equal(start, p);
    assert_int_equal(cuPointerGetAttribute(&host, HOST_POINTER, p), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(p), 0);
    assert_int_equal(cuPointerGetAttribute(&start, START, p), INVALID_VALUE);
}

static void pinned_address(void **state)
{
    char *v = map_pages(8192);

    (void)state;
    assert_int_equal(cuMemHostRegister_v2(v, 8192, 1), 0);
    assert_int_equal(cuMemHostRegister_v2(v + 4096, 4096, 1), ALREADY);
    assert_int_equal(int_of(MEMORY_TYPE, at(v + 1)), 1);
    assert_int_equal(cuMemHostUnregister(v + 4096), NOT_REGISTERED);
    assert_int_equal(cuMemHostUnregister(v), 0);
    assert_int_equal(cuMemHostUnregister(v), NOT_REGISTERED);
    munmap(v, 8192);
    assert_int_equal(cuMemHostRegister_v2(v, 8192, 1), INVALID_VALUE);
}

static void managed_address(void **state)
{
    CUdeviceptr p, d = alloc(10);
    char *host;

    (void)state;
    assert_int_equal(cuMemAllocManaged(&p, 10000, 1), 0);
    host = (char *)(uintptr_t)p;
    memcpy(host + 9990, "managed!!", 10);
    assert_true(bool_of(IS_MANAGED, p));
    assert_int_equal(int_of(MEMORY_TYPE, p), 2);
    assert_false(bool_of(IPC_CAPABLE, p));
    assert_int_equal(cuMemcpy(d, p + 9990, 10), 0);
    assert_int_equal(cuMemcpy(p, d, 10), 0);
    assert_string_equal(host, "managed!!");
    assert_int_equal(cuMemFree_v2(p), 0);
    assert_int_equal(cuMemFree_v2(d), 0);
}

/* ---- streams and copies */

static void copies(void **state)
{
    static unsigned char from[70001], to[70001];
    CUdeviceptr a = alloc(sizeof(from)), b = alloc(sizeof(from) + 3);
    CUstream s;

    (void)state;
    assert_int_equal(cuStreamCreate(&s, 1), 0);
    for (unsigned seed = 0; seed < 20; seed++) {
        size_t n = sizeof(from) - seed * 777;

        fill(from, sizeof(from), seed);
        assert_int_equal(cuMemcpyAsync(a + seed, at(from), n - seed, s), 0);
        assert_int_equal(cuMemcpyAsync(b + 3, a + seed, n - seed, s), 0);
        assert_int_equal(cuMemcpyAsync(at(to), b + 3, n - seed, s), 0);
        assert_int_equal(cuStreamSynchronize(s), 0);
        assert_memory_equal(from, to, n - seed);
    }
    assert_int_equal(cuMemsetD8Async(a, 0x3c, 5, s), 0);
    assert_int_equal(cuStreamDestroy_v2(s), 0); /* waits */
    assert_int_equal(cuMemcpy(at(to), a, 5), 0);
    assert_memory_equal(to, "<<<<<", 5);
    assert_int_equal(cuStreamQuery(s), INVALID_HANDLE);
    assert_int_equal(cuMemFree_v2(a), 0);
    assert_int_equal(cuMemFree_v2(b), 0);
}

/* The source is read when its turn comes, and not before. */
static void later(void **state)
{
    CUdeviceptr a = alloc(16);
    char text[16] = "early", back[16];
    CUstream s, other;
    CUevent e, f;

    (void)state;
    assert_int_equal(cuStreamCreate(&s, 1), 0);
    assert_int_equal(cuStreamCreate(&other, 1), 0);
    assert_int_equal(cuEventCreate(&e, 2), 0);
    assert_int_equal(cuEventCreate(&f, 2), 0);
    assert_int_equal(cuEventQuery(e), 0); /* never recorded */
    assert_int_equal(softgpu_control("stall"), 0);
    assert_int_equal(cuMemcpyAsync(a, at(text), 16, s), 0);
    assert_int_equal(cuEventRecord(e, s), 0);
    assert_int_equal(cuStreamWaitEvent(other, e, 0), 0);
    assert_int_equal(cuMemcpyAsync(at(back), a, 16, other), 0);
    assert_int_equal(cuEventRecord(f, other), 0);
    assert_int_equal(cuEventQuery(e), NOT_READY);
    assert_int_equal(cuStreamQuery(s), NOT_READY);
    strcpy(text, "late");
    assert_int_equal(softgpu_control("release"), 0);
    assert_int_equal(cuEventSynchronize(f), 0);
    assert_int_equal(cuEventQuery(e), 0);
    assert_string_equal(back, "late");
    assert_int_equal(cuEventDestroy_v2(e), 0);
    assert_int_equal(cuEventDestroy_v2(f), 0);
    assert_int_equal(cuEventQuery(f), INVALID_HANDLE);
    assert_int_equal(cuStreamDestroy_v2(s), 0);
    assert_int_equal(cuStreamDestroy_v2(other), 0);
    assert_int_equal(cuMemFree_v2(a), 0);
}

static void legacy_waits_for_blocking(void **state)
{
    CUdeviceptr a = alloc(4);
    char back[4] = "";
    CUstream s;

    (void)state;
    assert_int_equal(cuStreamCreate(&s, 0), 0);
    assert_int_equal(softgpu_control("stall ms=20"), 0);
    assert_int_equal(cuMemcpyAsync(a, at("abc"), 4, s), 0);
    assert_int_equal(cuMemcpyAsync(at(back), a, 4, NULL), 0);
    assert_string_equal(back, "abc");
    assert_int_equal(cuStreamDestroy_v2(s), 0);
    assert_int_equal(cuMemFree_v2(a), 0);
}

static void batches(void **state)
{
    enum { N = 33, EACH = 1021 };
    static unsigned char from[N][EACH], to[N][EACH];
    CUdeviceptr a = alloc(N * 1024), dst[N], src[N];
    CUmemcpyAttributes attr = {.srcAccessOrder = 1};
    size_t sizes[N], starts[] = {0}, failed = 5;
    long before = softgpu_calls(SOFTGPU_CUDA, "copy");
    CUstream s;

    (void)state;
    assert_int_equal(cuStreamCreate(&s, 1), 0);
    fill(from, sizeof(from), 3);
    for (int i = 0; i < N; i++) {
        dst[i] = a + (unsigned)i * 1024;
        src[i] = at(from[i]);
        sizes[i] = EACH;
    }
    assert_int_equal(cuMemcpyBatchAsync(dst, src, sizes, N, &attr, starts, 1, &failed, s), 0);
    for (int i = 0; i < N; i++)
        src[i] = at(to[i]);
    assert_int_equal(cuMemcpyBatchAsync(src, dst, sizes, N, &attr, starts, 1, NULL, s), 0);
    assert_int_equal(cuStreamSynchronize(s), 0);
    assert_memory_equal(from, to, sizeof(from));
    assert_int_equal(softgpu_calls(SOFTGPU_CUDA, "copy"), before + 2);
    sizes[7] = N * 1024;
    assert_int_equal(cuMemcpyBatchAsync(dst, src, sizes, N, &attr, starts, 1, &failed, s),
                     INVALID_VALUE);
    assert_int_equal(failed, 7);
    assert_int_equal(cuMemcpyBatchAsync(dst, src, sizes, 1, &attr, starts, 1, &failed, NULL),
                     INVALID_VALUE);
    assert_int_equal(failed, SIZE_MAX);
    assert_int_equal(cuStreamDestroy_v2(s), 0);
    assert_int_equal(cuMemFree_v2(a), 0);
}

/* Each thread with a stream and memory of its own, at once. */
static void *copy_about(void *arg)
{
    static atomic_uint seeds;
    unsigned seed = atomic_fetch_add(&seeds, 1);
    unsigned char from[3000], to[3000];
    CUstream s;

    (void)arg;
    if (cuCtxPushCurrent_v2(context) || cuStreamCreate(&s, 1))
        return "no stream";
    for (int i = 0; i < 50; i++) {
        CUdeviceptr p;

        fill(from, sizeof(from), seed * 1000 + (unsigned)i);
        if (cuMemAlloc_v2(&p, sizeof(from)) || cuMemcpyAsync(p, at(from), sizeof(from), s) ||
            cuMemcpyAsync(at(to), p, sizeof(from), s) || cuStreamSynchronize(s) ||
            memcmp(from, to, sizeof(from)) != 0 || cuMemFree_v2(p))
            return "a copy failed";
    }
    return cuStreamDestroy_v2(s) || cuCtxPopCurrent_v2(NULL) ? "not undone" : NULL;
}

static void many_threads(void **state)
{
    pthread_t threads[4];
    void *why;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, copy_about, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &why), 0);
        assert_null(why);
    }
}

/* ---- mapped memory */

static CUmemGenericAllocationHandle create(size_t n, int types)
{
    CUmemAllocationProp p = {.type = 1, .requestedHandleTypes = types, .location = {1, 0}};
    CUmemGenericAllocationHandle h;

    assert_int_equal(cuMemCreate(&h, n, &p, 0), 0);
    return h;
}

static void mapped(void **state)
{
    CUmemGenericAllocationHandle h[2] = {create(GRAIN, 0), create(2 * GRAIN, 9)}, again;
    const CUmemAccessDesc ours = {{1, 0}, 3}, wrong = {{1, 1}, 3};
    CUmemAllocationProp prop;
    CUdeviceptr p, base;
    uint64_t types;
    char back[9];
    size_t size;

    (void)state;
    assert_int_equal(cuMemAddressReserve(&p, 4 * GRAIN, 0, 0, 0), 0);
    assert_int_equal(cuMemMap(p, GRAIN, 0, h[0], 0), 0);
    assert_int_equal(cuMemMap(p, GRAIN, 0, h[0], 0), INVALID_VALUE);
    assert_int_equal(cuMemMap(p + GRAIN, 2 * GRAIN, 0, h[1], 0), 0);
    assert_int_equal(cuMemMap(p + 4 * GRAIN, GRAIN, 0, h[0], 0), INVALID_VALUE);
    assert_int_equal(cuMemcpy(p + GRAIN - 4, at("12345678"), 8), INVALID_VALUE); /* no access */
    assert_int_equal(cuMemSetAccess(p, 3 * GRAIN, &wrong, 1), 0);
    assert_int_equal(cuMemcpy(p + GRAIN - 4, at("12345678"), 8), INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(p, 3 * GRAIN, &ours, 1), 0);
    assert_int_equal(cuMemcpy(p + GRAIN - 4, at("12345678"), 8), 0); /* over both */
    assert_int_equal(cuMemcpy(at(back), p + GRAIN - 4, 8), 0);
    assert_memory_equal(back, "12345678", 8);
    assert_int_equal(touch((char *)(uintptr_t)p, false), SIGSEGV);
    assert_int_equal(cuMemcpy(p + 3 * GRAIN - 1, at("12"), 2), INVALID_VALUE);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &size, p + GRAIN + 5), 0);
    assert_int_equal(base, p + GRAIN);
    assert_int_equal(size, 2 * GRAIN);
    assert_false(bool_of(IPC_CAPABLE, p));
    assert_int_equal(cuPointerGetAttribute(&types, HANDLE_TYPES, p + GRAIN), 0);
    assert_int_equal(types, 9);
    assert_int_equal(cuMemRelease(h[0]), 0); /* the mapping keeps it */
    assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + GRAIN + 1)), 0);
    assert_int_equal(again, h[1]);
    assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&prop, again), 0);
    assert_int_equal(prop.requestedHandleTypes, 9);
    assert_int_equal(cuMemRelease(again), 0);
    assert_int_equal(cuMemRelease(h[1]), 0);
    assert_int_equal(cuMemRelease(h[1]), INVALID_VALUE);
    assert_int_equal(cuMemcpy(at(back), p + GRAIN - 4, 8), 0);
    assert_int_equal(cuMemAddressFree(p, 4 * GRAIN), INVALID_VALUE);
    assert_int_equal(cuMemUnmap(p, 2 * GRAIN), INVALID_VALUE); /* half of the second */
    assert_int_equal(cuMemUnmap(p, 3 * GRAIN), 0);
    assert_int_equal(cuMemcpy(at(back), p, 8), INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(p, 4 * GRAIN), 0);
}

static void bad_wishes(void **state)
{
    CUmemAllocationProp p = {.type = 1, .location = {1, 0}};
    CUmemGenericAllocationHandle h;
    size_t grain;

    (void)state;
    assert_int_equal(cuMemGetAllocationGranularity(&grain, &p, 0), 0);
    assert_int_equal(grain, GRAIN);
    assert_int_equal(cuMemCreate(&h, grain + 4096, &p, 0), INVALID_VALUE);
    p.location.id = 7;
    assert_int_equal(cuMemCreate(&h, grain, &p, 0), INVALID_DEVICE);
    p.location = (CUmemLocation){3, 0};
    assert_int_equal(cuMemCreate(&h, grain, &p, 0), INVALID_VALUE);
}

static void dmabufs(void **state)
{
    CUdeviceptr a = alloc(5000), b = alloc(100000);
    size_t unit = (size_t)sysconf(_SC_PAGESIZE), n = (100000 + unit - 1) / unit * unit;
    CUdeviceptr page = b / unit * unit;
    char *nic;
    int fd;

    (void)state;
    assert_int_equal(cuMemcpy(b + 4096, at("through"), 8), 0);
    assert_int_equal(cuMemGetHandleForAddressRange(&fd, b + 256, unit, 1, 0), INVALID_VALUE);
    assert_int_equal(cuMemGetHandleForAddressRange(&fd, page, 4 << 20, 1, 0), INVALID_VALUE);
    assert_int_equal(cuMemGetHandleForAddressRange(&fd, page, n, 1, 0), 0);
    assert_int_equal(softgpu_dmabuf_map(fd, b + 4096 - page, 8, (void **)&nic), 0);
    assert_string_equal(nic, "through");
    memcpy(nic, "back to", 8);
    assert_string_equal(softgpu_alias((void *)(uintptr_t)(b + 4096)), "back to");
    softgpu_dmabuf_unmap(nic, 8);
    assert_int_equal(softgpu_dmabuf_map(fd, n - 1, 2, (void **)&nic), EINVAL);
    close(fd);
    fd = open("/dev/null", O_RDONLY);
    assert_int_equal(softgpu_dmabuf_map(fd, 0, 1, (void **)&nic), ENOTSUP);
    close(fd);
    assert_true(softgpu_peermem((void *)(uintptr_t)b, 100000));
    assert_false(softgpu_peermem((void *)(uintptr_t)b, 200000));
    assert_false(softgpu_peermem(nic, 1));
    assert_int_equal(cuMemFree_v2(a), 0);
    assert_int_equal(cuMemFree_v2(b), 0);
}

/* ---- faults */

static void commands(void **state)
{
    CUdeviceptr p, q;
    CUevent e;

    (void)state;
    assert_int_equal(softgpu_control("fail nothing"), EINVAL);
    assert_int_equal(softgpu_control("fail alloc nth=x"), EINVAL);
    assert_int_equal(softgpu_control("fail alloc nth=2 count=2; fail pin error=304"), 0);
    p = alloc(1);
    assert_int_equal(cuMemAlloc_v2(&q, 1), OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&q, 1), OUT_OF_MEMORY);
    q = alloc(1);
    assert_int_equal(cuMemHostRegister_v2(&q, 1, 0), 304);
    assert_int_equal(softgpu_control("fail copy nth=2; fail query; fail alloc kind=hip"), 0);
    assert_int_equal(cuMemcpy(p, q, 1), 0);
    assert_int_equal(cuMemcpy(p, q, 1), LAUNCH_FAILED);
    assert_int_equal(cuMemcpy(p, q, 1), 0);
    assert_int_equal(cuEventCreate(&e, 0), 0);
    assert_int_equal(cuEventQuery(e), LAUNCH_FAILED);
    assert_int_equal(cuEventQuery(e), 0);
    assert_int_equal(cuEventDestroy_v2(e), 0);
    assert_int_equal(cuMemFree_v2(p), 0);
    p = alloc(1);
    assert_int_equal(cuMemFree_v2(p), 0);
    assert_int_equal(cuMemFree_v2(q), 0);
}

/* A copy that fails when it is carried out takes the context with it. */
static void dead_context(void **state)
{
    CUdeviceptr p = alloc(10);
    CUstream s;
    CUevent e;

    (void)state;
    assert_int_equal(cuStreamCreate(&s, 1), 0);
    assert_int_equal(cuEventCreate(&e, 2), 0);
    assert_int_equal(softgpu_control("fail copy nth=2 async=1 error=700"), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuMemcpyAsync(p, at("123456789"), 10, s), 0);
    assert_int_equal(cuStreamSynchronize(s), 700);
    assert_int_equal(cuMemcpy(p, p, 1), 700);
    assert_int_equal(cuMemFree_v2(p), 700);
    assert_int_equal(cuEventQuery(e), 700);
    assert_int_equal(cuEventDestroy_v2(e), 700);
    assert_int_equal(cuStreamDestroy_v2(s), 700);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0); /* a new one lives again */
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    p = alloc(10);
    assert_int_equal(cuMemFree_v2(p), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_init),
        TEST(devices),
        TEST(contexts),
        TEST(contexts_are_of_threads),
        TEST(forked_child_has_nothing),
        TEST(host_faults),
        TEST(neighbours),
        TEST(memory_ends),
        TEST(unknown_address),
        TEST(device_address),
        TEST(pinned_address),
        TEST(managed_address),
        TEST(copies),
        TEST(later),
        TEST(legacy_waits_for_blocking),
        TEST(batches),
        TEST(many_threads),
        TEST(mapped),
        TEST(bad_wishes),
        TEST(dmabufs),
        TEST(commands),
        TEST(dead_context),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
