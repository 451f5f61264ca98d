/* SPDX-License-Identifier: Apache-2.0 */
/* What an address is in, and copies in the caller's thread, on both drivers. */

#include "device_kit.h"
#include "plat/gpu.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE ((size_t)1234567)

static const struct device_kit *kit_of(void **state)
{
    const struct device_kit *kit = *state;

    kit_open(kit);
    return kit;
}

static void devices_have_names(void **state)
{
    const struct device_kit *kit = kit_of(state);
    int n = tei_gpu_count(kit->kind);
    uint8_t uuid[2][16] = {{0}};
    char pci[2][16] = {"", ""}, again[16];

    assert_true(tei_gpu_is_loaded(kit->kind));
    assert_int_equal(tei_gpu_open(kit->kind), 0);
    assert_in_range(n, 1, 64);
    for (int i = 0; i < n; i++) {
        unsigned part[4];

        assert_int_equal(tei_gpu_uuid(kit->kind, i, uuid[i % 2]), 0);
        assert_memory_not_equal(uuid[0], uuid[1], 16);
        if (tei_gpu_pci(kit->kind, i, pci[i % 2]) == TE_ERR_UNSUPPORTED) {
            assert_int_equal(kit->kind, TEI_MEM_ASCEND); /* whose runtime does not say */
            continue;
        }
        assert_int_equal(
            sscanf(pci[i % 2], "%4x:%2x:%2x.%x", &part[0], &part[1], &part[2], &part[3]), 4);
        snprintf(again, sizeof(again), "%04x:%02x:%02x.%x", part[0], part[1], part[2], part[3]);
        assert_string_equal(again, pci[i % 2]);
        assert_string_not_equal(pci[0], pci[1]);
    }
    assert_int_equal(tei_gpu_pci(kit->kind, n, pci[0]), TE_ERR_NO_DEVICE);
    assert_int_equal(tei_gpu_uuid(kit->kind, -1, uuid[0]), TE_ERR_NO_DEVICE);
}

static void expect_host(const void *addr, bool managed)
{
    struct tei_mem_info m;

    assert_int_equal(tei_mem_inspect(addr, 1, &m), 0);
    assert_int_equal(m.kind, TEI_MEM_HOST);
    assert_int_equal(m.device, -1);
    assert_int_equal(m.managed, managed);
}

static void host_memory(void **state)
{
    const struct device_kit *kit = kit_of(state);
    int (*managed)(void **, size_t, unsigned) = (int (*)(void **, size_t, unsigned))(
        uintptr_t)kit_call(kit, kit_is_cuda(kit) ? "MemAllocManaged" : "MallocManaged");
    char on_stack = 0, *heap = malloc(SIZE);
    static char fixed;
    void *p = kit_device_memory(kit, 0, NULL, 1), *m = NULL;
    void *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc, was;

    expect_host(&on_stack, false);
    expect_host(&fixed, false);
    expect_host(heap, false);
    expect_host(nothing, false);
    expect_host("text", false);
    expect_host((void *)8, false);
    rc = tei_gpu_pin(kit->kind, heap, SIZE);
    assert_int_equal(rc, 0);
    expect_host(heap, false);
    expect_host(heap + SIZE - 1, false);
    tei_gpu_unpin(kit->kind, heap);
    expect_host(heap, false);
    assert_int_equal(tei_gpu_enter(kit->kind, 0, &was), 0);
    assert_true(managed || kit->kind == TEI_MEM_ASCEND); /* which is not used to have any */
    rc = managed ? managed(&m, 1 << 20, 1) : -1;
    tei_gpu_leave(kit->kind, was);
    if (rc == 0)
        expect_host((char *)m + 4711, true);
    tei_gpu_free(kit->kind, p);
    munmap(nothing, 4096);
    free(heap);
}

static void memory_of_a_device(void **state)
{
    const struct device_kit *kit = kit_of(state);

    for (int d = 0; d < tei_gpu_count(kit->kind); d++) {
        char *p = kit_device_memory(kit, d, NULL, SIZE);
        struct tei_mem_info m;

        for (int i = 0; i < 20; i++) {
            size_t at = kit_below(SIZE), n = 1 + kit_below(SIZE - at);

            assert_int_equal(tei_mem_inspect(p + at, n, &m), 0);
            assert_int_equal(m.kind, kit->kind);
            assert_int_equal(m.device, d);
            assert_int_equal(m.base, (uintptr_t)p);
            assert_true(m.length >= SIZE && m.length < 2 * SIZE);
            assert_true(m.ipc);
            assert_false(m.fabric);
            assert_false(m.managed);
        }
        tei_gpu_free(kit->kind, p);
        expect_host(p, false);
    }
}

static void memory_is_zeroed(void **state)
{
    const struct device_kit *kit = kit_of(state);
    char *zeros = calloc(1, SIZE), *noise = malloc(SIZE);

    kit_random(noise, SIZE);
    for (int i = 0; i < 4; i++) {
        void *p = kit_device_memory(kit, 0, NULL, SIZE);

        kit_expect(p, zeros, SIZE);
        assert_int_equal(tei_mem_copy(p, noise, SIZE), 0);
        tei_gpu_free(kit->kind, p);
    }
    free(zeros);
    free(noise);
}

static void ranges_that_leave(void **state)
{
    const struct device_kit *kit = kit_of(state);
    char *p = kit_device_memory(kit, 0, NULL, SIZE), text[64];
    char *other = kit_device_memory(kit, 0, NULL, SIZE); /* may be right behind */
    struct tei_mem_info m, untouched = {.device = 77};

    assert_int_equal(tei_mem_inspect(p, SIZE, &m), 0);
    assert_int_equal(tei_mem_inspect(p, m.length, &m), 0);
    assert_int_equal(tei_mem_inspect(p, m.length + 1, &untouched), TE_ERR_INVALID);
    assert_int_equal(untouched.device, 77);
    snprintf(text, sizeof(text), "%zu bytes at 0x%zx", m.length, (size_t)m.base);
    assert_non_null(strstr(te_errmsg(), text));
    assert_int_equal(tei_mem_inspect(p + 5, m.length, &untouched), TE_ERR_INVALID);
    assert_int_equal(tei_mem_inspect(p + 5, SIZE_MAX - 1, &untouched), TE_ERR_INVALID);
    assert_int_equal(tei_mem_inspect(p + 5, SIZE_MAX, &untouched), TE_ERR_INVALID);
    assert_int_equal(tei_mem_copy(p + 5, other, m.length), TE_ERR_INVALID);
    assert_int_equal(tei_mem_copy(p, other + 5, m.length), TE_ERR_INVALID);
    tei_gpu_free(kit->kind, p);
    tei_gpu_free(kit->kind, other);
}

static void no_memory(void **state)
{
    const struct device_kit *kit = kit_of(state);
    void *p = NULL;

    assert_int_equal(tei_gpu_alloc(kit->kind, 0, (size_t)1 << 50, false, &p), TE_ERR_MEMORY);
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, 0, false, &p), TE_ERR_INVALID);
    assert_int_equal(tei_gpu_alloc(kit->kind, 99, 10, false, &p), TE_ERR_NO_DEVICE);
    assert_int_equal(tei_gpu_alloc(TEI_MEM_HOST, 0, 10, false, &p), TE_ERR_UNSUPPORTED);
    tei_gpu_free(kit->kind, NULL);
    if (!kit_plays(kit))
        return;
    kit_control(kit, "fail alloc");
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, 10, false, &p), TE_ERR_MEMORY);
    tei_gpu_free(kit->kind, kit_device_memory(kit, 0, NULL, 10));
    assert_null(p);
}

/* ------------------------------------------------------------------------------ several mappings */

/* The calls of mapped memory, which are the same in both drivers but for their names. */
struct maps {
    int (*reserve)(void **, size_t, size_t, void *, unsigned long long);
    int (*map)(void *, size_t, size_t, void *, unsigned long long);
    int (*unmap)(void *, size_t);
    int (*unreserve)(void *, size_t);
};

static struct maps maps_of(const struct device_kit *kit)
{
    return (struct maps){(int (*)(void **, size_t, size_t, void *, unsigned long long))(
                             uintptr_t)kit_call(kit, "MemAddressReserve"),
                         (int (*)(void *, size_t, size_t, void *, unsigned long long))(
                             uintptr_t)kit_call(kit, "MemMap"),
                         (int (*)(void *, size_t))(uintptr_t)kit_call(kit, "MemUnmap"),
                         (int (*)(void *, size_t))(uintptr_t)kit_call(kit, "MemAddressFree")};
}

/* Maps new memory of a device there. */
static void map_piece(const struct device_kit *kit, char *at, size_t unit, int device)
{
    const struct tei_driver *row = tei_driver_open(kit->kind);
    uint64_t piece;
    int was;

    assert_int_equal(tei_gpu_enter(kit->kind, device, &was), 0);
    assert_int_equal(row->api->create(row, device, unit, &piece), 0);
    assert_int_equal(maps_of(kit).map(at, unit, 0, (void *)(uintptr_t)piece, 0), 0);
    assert_int_equal(row->api->allow(row, at, unit, device), 0);
    row->api->release(row, piece);
    tei_gpu_leave(kit->kind, was);
}

/* Mappings in a row are one range, as far as they are of one device. */
static void mappings_in_a_row(void **state)
{
    enum { N = 5 }; /* the last is of another device, if there is one; one more is not mapped */
    const struct device_kit *kit = kit_of(state);
    struct maps v = maps_of(kit);
    struct tei_mem_info m;
    int last = tei_gpu_count(kit->kind) > 1 ? 1 : 0;
    size_t unit, reach;
    void *p;
    char *a;

    if (!tei_gpu_has_fabric(kit->kind, 0))
        skip();
    assert_int_equal(
        tei_driver_open(kit->kind)->api->granularity(tei_driver_open(kit->kind), 0, &unit), 0);
    assert_int_equal(v.reserve(&p, (N + 1) * unit, 0, NULL, 0), 0);
    a = p;
    for (int i = 0; i < N; i++)
        map_piece(kit, a + (size_t)i * unit, unit, i == N - 1 ? last : 0);
    reach = (last ? N - 1 : N) * unit;
    assert_int_equal(tei_mem_inspect(a + 3, reach - 3, &m), 0);
    assert_int_equal(m.base, (uintptr_t)a);
    assert_int_equal(m.length, unit);
    assert_true(m.fabric);
    assert_int_equal(tei_mem_inspect(a + unit + 1, unit, &m), 0);
    assert_int_equal(m.base, (uintptr_t)a + unit);
    assert_int_equal(tei_mem_inspect(a + 3, reach - 2, &m), TE_ERR_INVALID);
    assert_int_equal(tei_mem_inspect(a, N * unit + 1, &m), TE_ERR_INVALID);
    for (int i = 0; i < N; i++)
        assert_int_equal(v.unmap(a + (size_t)i * unit, unit), 0);
    assert_int_equal(v.unreserve(p, (N + 1) * unit), 0);
}

static void fabric_memory(void **state)
{
    const struct device_kit *kit = kit_of(state);
    char *data;
    struct tei_mem_info m;
    void *p;

    if (!tei_gpu_has_fabric(kit->kind, 0))
        skip();
    data = malloc(SIZE);
    assert_false(tei_gpu_has_fabric(kit->kind, 99));
    assert_false(tei_gpu_has_fabric(TEI_MEM_HOST, 0));
    kit_random(data, SIZE);
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, SIZE, true, &p), 0);
    assert_int_equal(tei_mem_inspect((char *)p + SIZE - 1, 1, &m), 0);
    assert_int_equal(m.base, (uintptr_t)p);
    assert_true(m.length >= SIZE);
    assert_true(m.fabric);
    assert_false(m.ipc);
    assert_int_equal(tei_mem_copy(p, data, SIZE), 0);
    kit_expect(p, data, SIZE);
    tei_gpu_free(kit->kind, p);
    free(data);
}

static long softgpu_says(const struct device_kit *kit, const char *function, const char *what)
{
    long (*ask)(int, const char *) = (long (*)(int, const char *))(uintptr_t)kit_symbol(function);

    return ask((int)kit->kind - 1, what);
}

/* What cannot be mapped is given back, and once only: the addresses may be somebody else's by then. */
static void fabric_without_access(void **state)
{
    static const char *const what[] = {"mappings", "spaces", "handles"};
    const struct device_kit *kit = kit_of(state);
    long live[TEI_ARRAY_LEN(what)], unmapped;
    void *p = NULL;

    if (!kit_plays(kit) || !tei_gpu_has_fabric(kit->kind, 0))
        skip();
    for (size_t i = 0; i < TEI_ARRAY_LEN(what); i++)
        live[i] = softgpu_says(kit, "softgpu_live", what[i]);
    unmapped = softgpu_says(kit, "softgpu_calls", "unmap");
    kit_control(kit, "fail access");
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, SIZE, true, &p), TE_ERR_UNSUPPORTED);
    assert_null(p);
    assert_int_equal(softgpu_says(kit, "softgpu_calls", "unmap"), unmapped + 1);
    for (size_t i = 0; i < TEI_ARRAY_LEN(what); i++)
        assert_int_equal(softgpu_says(kit, "softgpu_live", what[i]), live[i]);
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, SIZE, true, &p), 0);
    tei_gpu_free(kit->kind, p);
}

/* -------------------------------------------------------------------------------------- locations */

static void locations(void **state)
{
    const struct device_kit *kit = kit_of(state);
    int d = tei_gpu_count(kit->kind) - 1;
    char *p = kit_device_memory(kit, d, NULL, SIZE), here[TEI_LOCATION_MAX], is[TEI_LOCATION_MAX];
    char host[10] = "", other[TEI_LOCATION_MAX];

    snprintf(is, sizeof(is), "%s:%d", kit->name, d);
    assert_int_equal(tei_mem_locate(p + 77, "*", here), 0);
    assert_string_equal(here, is);
    assert_int_equal(tei_mem_locate(p, NULL, here), 0);
    assert_string_equal(here, is);
    assert_int_equal(tei_mem_locate(p, is, here), 0);
    assert_string_equal(here, is);
    assert_int_equal(tei_mem_locate(p, "cpu:0", here), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), is));
    assert_non_null(strstr(te_errmsg(), "cpu:0"));
    assert_int_equal(tei_mem_locate(p, "cuda:7", here), TE_ERR_INVALID);
    snprintf(other, sizeof(other), "ascend:%d", d);
    assert_int_equal(tei_mem_locate(p, other, here),
                     kit->kind == TEI_MEM_ASCEND ? 0 : TE_ERR_INVALID);
    if (kit->kind == TEI_MEM_ASCEND)
        assert_string_equal(here, is); /* one word for both */
    assert_int_equal(tei_mem_locate(p, "cpu:0", here), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), is));
    assert_int_equal(tei_mem_locate(host, "ascend:0", here), TE_ERR_INVALID);
    assert_int_equal(tei_mem_locate(host, is, here), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), is));
    assert_int_equal(tei_mem_locate(host, "cpu:0", here), 0);
    assert_string_equal(here, "cpu:0");
    assert_int_equal(tei_mem_locate(host, "*", here), 0);
    assert_true(strncmp(here, "cpu:", 4) == 0 || strcmp(here, "*") == 0);
    tei_gpu_free(kit->kind, p);
}

/* ----------------------------------------------------------------------------------------- copies */

/* From one end to the other and on to a third, odd sizes at odd places; what is beside stays. */
static void copy_between(char *a, char *b, char *model_a, char *model_b)
{
    for (int i = 0; i < 6; i++) {
        size_t n = 1 + kit_below(i < 3 ? 1000 : SIZE / 2), from = kit_below(SIZE - n),
               to = kit_below(SIZE - n);

        assert_int_equal(tei_mem_copy(b + to, a + from, n), 0);
        memcpy(model_b + to, model_a + from, n);
    }
    assert_int_equal(tei_mem_copy(b, a, 0), 0);
    kit_expect(b, model_b, SIZE);
    kit_expect(a, model_a, SIZE);
}

static void copies(void **state)
{
    enum { PLACES = 4 };
    const struct device_kit *kit = kit_of(state);
    int last = tei_gpu_count(kit->kind) - 1;
    char *model[PLACES], *place[PLACES];

    for (int i = 0; i < PLACES; i++) {
        model[i] = malloc(SIZE);
        kit_random(model[i], SIZE);
        place[i] = i < 2 ? malloc(SIZE) : kit_device_memory(kit, i == 2 ? 0 : last, model[i], SIZE);
        if (i < 2)
            memcpy(place[i], model[i], SIZE);
    }
    assert_int_equal(tei_gpu_pin(kit->kind, place[1], SIZE), 0);
    for (int i = 0; i < PLACES; i++)
        for (int k = 0; k < PLACES; k++)
            if (i != k)
                copy_between(place[i], place[k], model[i], model[k]);
    tei_gpu_unpin(kit->kind, place[1]);
    for (int i = 0; i < PLACES; i++) {
        if (i < 2)
            free(place[i]);
        else
            tei_gpu_free(kit->kind, place[i]);
        free(model[i]);
    }
}

TEST(between_the_drivers)
{
    size_t n = ((size_t)5 << 20) + 77;
    char *data = malloc(n), *cuda, *hip;

    kit_open(&kit_cuda);
    kit_open(&kit_hip);
    kit_random(data, n);
    cuda = kit_device_memory(&kit_cuda, 0, data, n);
    hip = kit_device_memory(&kit_hip, 0, NULL, n);
    assert_int_equal(tei_mem_copy(hip, cuda, n), 0);
    kit_expect(hip, data, n);
    kit_random(data + 33, 1000);
    assert_int_equal(tei_mem_copy(hip + 33, data + 33, 1000), 0);
    assert_int_equal(tei_mem_copy(cuda + 1, hip + 1, n - 1), 0);
    kit_expect(cuda, data, n);
    tei_gpu_free(TEI_MEM_CUDA, cuda);
    tei_gpu_free(TEI_MEM_HIP, hip);
    free(data);
}

static void *copy_in_thread(void *arg)
{
    const struct device_kit *kit = arg;
    int d = (int)kit_below((size_t)tei_gpu_count(kit->kind));
    char *data = malloc(SIZE), *p = kit_device_memory(kit, d, NULL, SIZE);

    for (int i = 0; i < 20; i++) {
        size_t n = 1 + kit_below(20000), at = kit_below(SIZE - n);
        struct tei_mem_info m;

        kit_random(data, n);
        if (tei_mem_inspect(p + at, n, &m) != 0 || m.device != d ||
            tei_mem_copy(p + at, data, n) != 0)
            return NULL;
        kit_expect(p + at, data, n);
    }
    tei_gpu_free(kit->kind, p);
    free(data);
    return arg;
}

static void many_threads(void **state)
{
    enum { N = 8 };
    pthread_t t[N];
    void *good;

    kit_of(state);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&t[i], NULL, copy_in_thread, *state), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(t[i], &good), 0);
        assert_ptr_equal(good, *state);
    }
}

/*
 * While the program captures a stream, here or elsewhere, all goes on and does the capture no harm.
 * What the thread had for its mode of captures it has again.
 */
static void while_captured(void **state)
{
    enum { THREAD_LOCAL = 1 };
    const struct device_kit *kit = kit_of(state);
    const struct tei_driver *row = tei_driver_open(kit->kind);
    bool npu = kit->kind == TEI_MEM_ASCEND;
    int (*exchange)(int *) = (int (*)(int *))(uintptr_t)kit_call(
        kit, npu ? "mdlRICaptureThreadExchangeMode" : "ThreadExchangeStreamCaptureMode");
    bool (*capture)(int, bool) = (bool (*)(int, bool))(uintptr_t)kit_symbol("softgpu_capture");
    char *host = malloc(SIZE);
    int mode = THREAD_LOCAL, was;
    pthread_t t;
    void *good;

    if (!kit_plays(kit))
        skip();
    assert_int_equal(exchange(&mode), 0);
    assert_true(capture((int)kit->kind - 1, true));
    assert_int_equal(pthread_create(&t, NULL, copy_in_thread, *state), 0);
    assert_ptr_equal(copy_in_thread(*state), *state);
    assert_int_equal(tei_gpu_pin(kit->kind, host, SIZE), 0);
    tei_gpu_unpin(kit->kind, host);
    assert_int_equal(pthread_join(t, &good), 0);
    assert_ptr_equal(good, *state);
    assert_true(capture((int)kit->kind - 1, false));
    assert_int_equal(exchange(&mode), 0);
    assert_int_equal(mode, THREAD_LOCAL);
    /* What would have happened: `mode` is the default here. */
    mode = 0;
    assert_true(capture((int)kit->kind - 1, true));
    assert_int_equal(tei_gpu_enter(kit->kind, 0, &was), 0);
    assert_int_equal(exchange(&mode), 0);
    assert_int_equal(row->api->pin(row, host, SIZE), npu ? 500004 : 900);
    tei_gpu_leave(kit->kind, was);
    assert_false(capture((int)kit->kind - 1, false));
    free(host);
}

/* Makes the driver refuse one thing and the other, in this thread. */
static void be_refused(const struct device_kit *kit, char *host)
{
    char *p = kit_device_memory(kit, 0, NULL, SIZE);
    uint8_t handle[TEI_GPU_HANDLE] = {0};
    struct tei_mem_info m;
    uint64_t offset;
    void *none;
    int fd;

    assert_int_equal(tei_gpu_pin(kit->kind, host, SIZE), 0);
    assert_int_equal(tei_gpu_pin(kit->kind, host, SIZE), TE_ERR_OVERLAP);
    tei_gpu_unpin(kit->kind, host);
    tei_gpu_unpin(kit->kind, host);
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, (size_t)1 << 50, false, &none), TE_ERR_MEMORY);
    assert_int_equal(tei_gpu_alloc(kit->kind, 0, (size_t)1 << 50, true, &none), TE_ERR_MEMORY);
    for (int sort = TEI_GPU_IPC; sort <= TEI_GPU_FABRIC; sort++)
        assert_int_equal(tei_gpu_import(kit->kind, 0, (enum tei_gpu_sort)sort, handle, 1, &none),
                         TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_mem_inspect(p, SIZE, &m), 0);
    tei_gpu_free(kit->kind, p);
    assert_int_equal(tei_gpu_export(&m, TEI_GPU_IPC, handle), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_gpu_dmabuf(&m, m.base, 1, &fd, &offset), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_mem_inspect(host, SIZE, &m), 0);
    p = kit_device_memory(kit, 0, NULL, SIZE);
    kit_control(kit, "fail copy");
    assert_int_equal(tei_mem_copy(p, host, SIZE), TE_ERR_CONTEXT);
    tei_gpu_free(kit->kind, p);
}

/* HIP keeps the last error of the thread: the program is not to find ours, and to keep its own. */
static void last_error(void **state)
{
    const struct device_kit *kit = kit_of(state);
    int (*fetch)(void) = (int (*)(void))(uintptr_t)kit_symbol("hipGetLastError");
    int (*give_back)(void *) = (int (*)(void *))(uintptr_t)kit_symbol("hipFree");
    char *host = malloc(SIZE);
    int rc;

    if (!kit_plays(kit))
        skip();
    (void)fetch();
    be_refused(kit, host);
    assert_int_equal(fetch(), 0);
    rc = give_back(host);
    assert_int_not_equal(rc, 0);
    assert_int_equal(tei_gpu_pin(kit->kind, host, SIZE), 0);
    tei_gpu_unpin(kit->kind, host);
    assert_int_equal(fetch(), rc);
    free(host);
}

/* A forked child has no driver, and no memory of devices. */
static void forked_child(void **state)
{
    const struct device_kit *kit = kit_of(state);
    void *p = kit_device_memory(kit, 0, NULL, SIZE);
    struct tei_mem_info m;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        char a[2] = {1, 2};

        _exit(tei_mem_inspect(p, 1, &m) == 0 && m.kind == TEI_MEM_HOST &&
                      tei_gpu_open(kit->kind) == TE_ERR_UNSUPPORTED &&
                      strstr(te_errmsg(), "fork") && tei_gpu_count(kit->kind) == 0 &&
                      tei_mem_copy(a, a + 1, 1) == 0 && a[0] == 2
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(tei_mem_inspect(p, SIZE, &m), 0);
    assert_int_equal(m.kind, kit->kind);
    tei_gpu_free(kit->kind, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_ALL(devices_have_names),
        KIT_ALL(host_memory),
        KIT_ALL(memory_of_a_device),
        KIT_ALL(memory_is_zeroed),
        KIT_ALL(ranges_that_leave),
        KIT_ALL(no_memory),
        KIT_ALL(mappings_in_a_row),
        KIT_ALL(fabric_memory),
        KIT_ALL(fabric_without_access),
        KIT_ALL(locations),
        KIT_ALL(copies),
        KIT_ALL(many_threads),
        KIT_ALL(while_captured),
        KIT_TEST(last_error, kit_hip),
        KIT_ALL(forked_child),
        KIT_TEST(between_the_drivers, kit_cuda),
    };

    setenv("SOFTGPU_HIP_VERSION", "6.2.1", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
