/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * softgpu's HIP runtime: that it is the same machinery under other names, that each release is played
 * as it is, and that the two drivers do not know each other's memory; and the drivers without what
 * newer ones brought. What a release differs in is tried by this program run anew ("as", VERSION).
 */
#include "fabric/softgpu/softcuda.h"
#include "fabric/softgpu/softgpu.h"
#include "fabric/softgpu/softhip.h"
#include "child_engine.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, BAD_DIRECTION = 21, NO_DEVICE = 100 };
enum { INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, ALREADY = 712 };
enum { TO_DEVICE = 1, TO_HOST, WITHIN, BY_ADDRESS };
enum { GRAIN = 2 << 20, BYTES = 5001 };

static void *alloc(size_t n)
{
    void *p = NULL;

    assert_int_equal(hipMalloc(&p, n), 0);
    assert_non_null(p);
    return p;
}

static void devices(void **state)
{
    char pci[16];
    int n, version;

    (void)state;
    assert_int_equal(hipGetDeviceCount(&n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(hipDeviceGetPCIBusId(pci, sizeof(pci), 1), 0);
    assert_string_equal(pci, "0000:c2:00.0");
    assert_int_equal(hipRuntimeGetVersion(&version), 0);
    assert_int_equal(version / 100000, 502);
    assert_int_equal(hipSetDevice(2), INVALID_DEVICE);
    assert_string_equal(hipGetErrorName(INVALID_DEVICE), "hipErrorInvalidDevice");
}

/* A context begins with the first use of a device, not when it is chosen. */
static void contexts(void **state)
{
    int device;
    void *p;

    (void)state;
    assert_int_equal(hipSetDevice(1), 0);
    assert_int_equal(hipGetDevice(&device), 0);
    assert_int_equal(device, 1);
    assert_int_equal(softgpu_contexts(SOFTGPU_HIP, 1), 0);
    p = alloc(1);
    assert_int_equal(softgpu_contexts(SOFTGPU_HIP, 1), 1);
    assert_int_equal(softgpu_contexts(SOFTGPU_HIP, 0), 0);
    assert_int_equal(softgpu_contexts(SOFTGPU_CUDA, 1), -1);
    assert_int_equal(hipFree(p), 0);
    assert_int_equal(hipSetDevice(0), 0);
}

static void copies(void **state)
{
    static unsigned char from[BYTES], to[BYTES];
    unsigned char *a = alloc(BYTES), *b = alloc(BYTES);
    hipStream_t s;
    hipEvent_t e;

    (void)state;
    fill(from, BYTES, 1);
    assert_int_equal(hipStreamCreateWithFlags(&s, 1), 0);
    assert_int_equal(hipEventCreateWithFlags(&e, 2), 0);
    assert_int_equal(hipMemcpyAsync(a, from, BYTES, TO_DEVICE, s), 0);
    assert_int_equal(hipMemcpyAsync(b, a, BYTES, WITHIN, s), 0);
    assert_int_equal(hipMemcpyAsync(to, b, BYTES, BY_ADDRESS, s), 0);
    assert_int_equal(hipEventRecord(e, s), 0);
    assert_int_equal(hipEventSynchronize(e), 0);
    assert_memory_equal(from, to, BYTES);
    assert_int_equal(hipMemcpy(a, from, 1, TO_HOST), BAD_DIRECTION);
    assert_int_equal(hipMemset(a, 0, 2), 0);
    assert_int_equal(hipMemcpy(to, a, 2, TO_HOST), 0);
    assert_int_equal(to[0] + to[1], 0);
    assert_int_equal(hipEventDestroy(e), 0);
    assert_int_equal(hipStreamDestroy(s), 0);
    assert_int_equal(hipFree(a), 0);
    assert_int_equal(hipFree(b), 0);
    assert_int_equal(hipFree(NULL), 0);
}

static void two_drivers(void **state)
{
    static char host[4096];
    hipIpcMemHandle_t handle;
    CUipcMemHandle other;
    void *p = alloc(100);
    CUdeviceptr q;
    CUcontext c;
    int type = 9, name = 2;
    void *data = &type;

    (void)state;
    assert_int_equal(cuInit(0), 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&c, 0), 0);
    assert_int_equal(cuCtxPushCurrent_v2(c), 0);
    assert_int_equal(cuMemAlloc_v2(&q, 100), 0);
    assert_int_equal(cuPointerGetAttributes(1, &name, &data, (CUdeviceptr)(uintptr_t)p), 0);
    assert_int_equal(type, 0);
    assert_int_equal(cuMemcpy(q, (CUdeviceptr)(uintptr_t)p, 1), INVALID_VALUE);
    assert_int_equal(hipMemcpy(p, (void *)(uintptr_t)q, 1, BY_ADDRESS), INVALID_VALUE);
    assert_int_equal(cuMemHostRegister_v2(host, sizeof(host), 1), 0);
    assert_int_equal(hipHostRegister(host, sizeof(host), 1), 0); /* both may */
    assert_int_equal(hipHostRegister(host, 1, 1), ALREADY);
    assert_int_equal(hipMemcpy(p, host, 100, BY_ADDRESS), 0);
    assert_int_equal(hipHostUnregister(host), 0);
    assert_int_equal(cuMemHostUnregister(host), 0);
    assert_int_equal(hipIpcGetMemHandle(&handle, p), 0);
    memcpy(&other, &handle, sizeof(other));
    assert_int_equal(cuIpcOpenMemHandle_v2(&q, other, 1), INVALID_VALUE);
    assert_int_equal(hipIpcOpenMemHandle(&p, handle, 0), INVALID_CONTEXT);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    assert_int_equal(hipFree(p), 0);
}

/* ---- what differs; in a process of its own, whose status is the line that is not so */

#define MUST(x)                                             \
    do {                                                    \
        if (!(x)) {                                         \
            fprintf(stderr, "line %d: " #x "\n", __LINE__); \
            return 1;                                       \
        }                                                   \
    } while (0)

static int pointers(bool new, const void *device, const void *pinned, const void *managed)
{
    hipPointerAttribute_t a;
    int local = 0;

    MUST(hipPointerGetAttributes(&a, device) == 0 && a.type == (new ? 2 : 1) && a.device == 0);
    MUST(a.devicePointer == device && !a.hostPointer && !a.isManaged);
    MUST(hipPointerGetAttributes(&a, pinned) == 0 && a.type == (new ? 1 : 0));
    MUST(a.hostPointer == pinned && !a.isManaged);
    MUST(hipPointerGetAttributes(&a, managed) == 0 && a.type == (new ? 3 : 0) && a.isManaged);
    if (!new)
        MUST(hipPointerGetAttributes(&a, &local) == INVALID_VALUE);
    else
        MUST(hipPointerGetAttributes(&a, &local) == 0 && a.type == 0 && !a.devicePointer);
    return 0;
}

static int mapped(int version)
{
    const hipMemAllocationProp_5_2 before = {
        .location = {1, 0}, .requestedHandleType = 1, .type = 1};
    const hipMemAllocationProp since = {.type = 1, .requestedHandleType = 1, .location = {1, 0}};
    const void *prop = version < 503 ? (const void *)&before : (const void *)&since;
    const void *wrong = version < 503 ? (const void *)&since : (const void *)&before;
    const hipMemAccessDesc access = {{1, 0}, 3};
    hipMemGenericAllocationHandle_t h, again;
    char back[4];
    void *p;
    int fd;

    MUST(hipMemCreate(&h, GRAIN, wrong, 0) != 0);
    MUST(hipMemCreate(&h, GRAIN, prop, 0) == 0);
    MUST(hipMemExportToShareableHandle(&fd, h, 1, 0) == 0);
    MUST(hipMemImportFromShareableHandle(&again, version < 701 ? (void *)&fd : (void *)(intptr_t)fd,
                                         1) == 0);
    close(fd);
    MUST(hipMemRelease(h) == 0);
    MUST(hipMemAddressReserve(&p, GRAIN, 0, NULL, 0) == 0);
    MUST(hipMemMap(p, GRAIN, 0, again, 0) == 0);
    MUST(hipMemcpy(p, "abc", 4, BY_ADDRESS) == INVALID_VALUE);
    MUST(hipMemSetAccess(p, GRAIN, &access, 1) == 0);
    MUST(hipMemcpy(p, "abc", 4, BY_ADDRESS) == 0);
    MUST(hipMemcpy(back, p, 4, BY_ADDRESS) == 0 && strcmp(back, "abc") == 0);
    MUST(hipMemRelease(again) == 0 && hipMemUnmap(p, GRAIN) == 0);
    MUST(hipMemAddressFree(p, GRAIN) == 0);
    return 0;
}

static int play(const char *text)
{
    static char pinned[100];
    void *device, *managed;
    int version, rc;

    MUST(hipRuntimeGetVersion(&version) == 0);
    version /= 100000;
    MUST(version == (int)strtod(text, NULL) * 100 + atoi(strchr(text, '.') + 1));
    MUST(hipMalloc(&device, 10) == 0 && hipMallocManaged(&managed, 10, 1) == 0);
    MUST(hipHostRegister(pinned, sizeof(pinned), 0) == 0);
    rc = pointers(version >= 600, device, pinned, managed);
    MUST(hipFree(device) == 0 && hipFree(managed) == 0 && hipHostUnregister(pinned) == 0);
    return rc ? rc : mapped(version);
}

static int look_for_new(void)
{
    MUST(dlsym(RTLD_DEFAULT, "cuMemcpyAsync") && dlsym(RTLD_DEFAULT, "hipMemcpyAsync"));
    MUST(!dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync"));
    MUST(!dlsym(RTLD_DEFAULT, "cuMemGetHandleForAddressRange"));
    MUST(!dlsym(RTLD_DEFAULT, "hipMemGetHandleForAddressRange"));
    return cuInit(0);
}

static int no_devices(void)
{
    int n = 5;

    MUST(hipInit(0) == NO_DEVICE && hipGetDeviceCount(&n) == NO_DEVICE && n == 0);
    return 0;
}

static void run(const char *name, const char *value, const char *word, const char *more)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        setenv(name, value, 1);
        execl("/proc/self/exe", "test_softgpu_hip", word, more, NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void releases(void **state)
{
    static const char *const all[] = {"5.2.21153", "5.7.0", "6.2.4", "7.0.0", "7.1.0"};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        run("SOFTGPU_HIP_VERSION", all[i], "as", all[i]);
    run("SOFTGPU_DEVICES", "0", "none", NULL);
}

static void old_drivers(void **state)
{
    (void)state;
    run("LD_LIBRARY_PATH", TE_TEST_BUILD "/tests/softgpu/old", "old", NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices),     cmocka_unit_test(contexts), cmocka_unit_test(copies),
        cmocka_unit_test(two_drivers), cmocka_unit_test(releases), cmocka_unit_test(old_drivers),
    };

    if (argc > 2)
        return play(argv[2]);
    if (argc > 1)
        return strcmp(argv[1], "old") == 0 ? look_for_new() : no_devices();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
