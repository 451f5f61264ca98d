/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * Memory of devices between processes, and what a process does to devices and other drivers when it
 * starts with them. Every test is a process of its own ("importer" and others), which has a further
 * one ("exporter") where there is something to share: drivers do not live through a fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/here.h"
#include "base/os.h"
#include "device_kit.h"
#include "fake_sysfs.h"
#include "topology_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE ((size_t)1300001)

#define TREE TE_TEST_SRC "/tests/unit/data/hwloc/8gpu-switches.xml"

struct offer {
    uint8_t handle[TEI_GPU_HANDLE];
    uint64_t length; /* of the allocation */
    char data[SIZE];
};

/* Exits as a test that cannot be done here. */
static void child_skip(const char *why)
{
    fprintf(stderr, "%s\n", why);
    _exit(77);
}

/* --------------------------------------------------------------------------------------- exporter */

static enum tei_gpu_sort sort_of(const char *mode)
{
    return strstr(mode, "ipc") ? TEI_GPU_IPC : TEI_GPU_FABRIC;
}

static int export_memory(const char *mode, const struct device_kit *kit)
{
    static struct offer offer;
    enum tei_gpu_sort sort = sort_of(mode);
    struct tei_mem_info m;
    char answer;
    void *p;

    kit_random(offer.data, SIZE);
    kit_check(tei_gpu_alloc(kit->kind, 0, SIZE, sort == TEI_GPU_FABRIC, &p) == 0, "memory");
    kit_check(tei_mem_copy(p, offer.data, SIZE) == 0, "a copy");
    kit_check(tei_mem_inspect((char *)p + SIZE / 2, 1, &m) == 0, "a look");
    kit_check(tei_gpu_export(&m, sort, offer.handle) == 0, "an export");
    offer.length = m.length;
    kit_send(1, &offer, sizeof(offer));
    if (read(0, &answer, 1) != 1)
        return 0;                     /* the importer wants no more */
    kit_receive(0, offer.data, SIZE); /* what it has written by now */
    kit_expect(p, offer.data, SIZE);
    kit_send(1, "x", 1);
    tei_gpu_unexport(kit->kind, sort, offer.handle);
    tei_gpu_free(kit->kind, p);
    kit_send(1, "x", 1);
    (void)!read(0, &answer, 1); /* lives as long as it */
    return 0;
}

/* --------------------------------------------------------------------------------------- importer */

static struct offer offer;

static struct kit_child start_exporter(const struct device_kit *kit, enum tei_gpu_sort sort,
                                       const char *const *variables)
{
    struct kit_child c =
        kit_child_start(sort == TEI_GPU_IPC ? "export ipc" : "export fabric", kit, variables);

    kit_receive(c.out, &offer, sizeof(offer));
    return c;
}

/* The importer writes all; then the exporter sees it, and gives its memory back. */
static void let_exporter_check(const struct kit_child *c, const char *now)
{
    char seen;

    kit_send(c->in, "x", 1);
    kit_send(c->in, now, SIZE);
    kit_receive(c->out, &seen, 1);
    kit_receive(c->out, &seen, 1);
}

static void expect_refused(const struct device_kit *kit, enum tei_gpu_sort sort,
                           const uint8_t handle[TEI_GPU_HANDLE], size_t length)
{
    void *base;

    kit_check(tei_gpu_import(kit->kind, 0, sort, handle, length, &base) == TE_ERR_UNSUPPORTED,
              "this cannot be imported");
}

/* Whether the kernel lets this process have descriptors of its children. */
static bool may_fetch(int pid)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0), fd = -1;

    if (process >= 0) {
        fd = (int)syscall(SYS_pidfd_getfd, process, 0, 0);
        close(process);
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void need_sort(const struct device_kit *kit, enum tei_gpu_sort sort)
{
    if (sort == TEI_GPU_FABRIC && !tei_gpu_has_fabric(kit->kind, 0))
        child_skip("there is no memory for the fabric");
}

/* Reads and writes it from this device, here and there. */
static void use_memory(const struct device_kit *kit, int device, char *p, char *model)
{
    char *local = kit_device_memory(kit, device, NULL, SIZE);

    kit_expect(p, model, SIZE);
    for (int i = 0; i < 5; i++) {
        size_t n = 1 + kit_below(SIZE - 1), at = kit_below(SIZE - n);

        kit_check(tei_mem_copy(local, p + at, n) == 0, "a copy from the peer");
        kit_expect(local, model + at, n);
        kit_random(model + at, n);
        kit_check(tei_mem_copy(local, model + at, n) == 0, "a copy here");
        kit_check(tei_mem_copy(p + at, local, n) == 0, "a copy to the peer");
    }
    kit_expect(p, model, SIZE);
    tei_gpu_free(kit->kind, local);
}

/* What a handle says of a descriptor; see mem_hip.c. */
struct place {
    char magic[8];
    uint8_t token[16], life[TEI_HERE_LIFE];
    int32_t note;
};

struct old_place {
    char magic[8];
    uint64_t began;
    int32_t pid, note;
    uint8_t token[16];
};

/* Neither the number of the process nor when it began, which tells since when the host runs. */
static void tells_nothing_of(int pid)
{
    struct tei_process process;

    kit_check(tei_process_look(pid, &process), "a look at the exporter");
    kit_check(!memmem(offer.handle, TEI_GPU_HANDLE, &pid, sizeof(pid)) &&
                  !memmem(offer.handle, TEI_GPU_HANDLE, &process.began, sizeof(process.began)),
              "a handle that tells nothing of its process");
}

static void import_memory(const struct device_kit *kit, enum tei_gpu_sort sort, bool by_file)
{
    for (int d = 0; d < tei_gpu_count(kit->kind); d++) {
        struct kit_child c = start_exporter(kit, sort, NULL);
        struct tei_mem_info m;
        void *base;
        int rc;

        kit_check((memcmp(offer.handle, "te-hipf2", 8) == 0) == by_file, "the sort of handle");
        if (by_file)
            tells_nothing_of(c.pid);
        rc = tei_gpu_import(kit->kind, d, sort, offer.handle, offer.length, &base);
        if (rc && by_file && !may_fetch(c.pid))
            child_skip("the kernel does not hand out descriptors of other processes");
        kit_check(rc == 0, "an import");
        kit_check(tei_mem_inspect((char *)base + 7, SIZE - 7, &m) == 0 && m.kind == kit->kind &&
                      m.base == (uintptr_t)base,
                  "it is memory of a device");
        use_memory(kit, d, base, offer.data);
        let_exporter_check(&c, offer.data);
        /* Freed there, it is here as long as it is imported. */
        if (sort == TEI_GPU_FABRIC)
            kit_expect(base, offer.data, SIZE);
        tei_gpu_unimport(kit->kind, base);
        kit_check(tei_mem_inspect((char *)base + 7, 1, &m) == 0 && m.kind == TEI_MEM_HOST,
                  "it is gone");
        if (sort == TEI_GPU_IPC || by_file)
            expect_refused(kit, sort, offer.handle, offer.length);
        kit_child_end(&c);
    }
}

/* ---------------------------------------------------------------------------------------- hostile */

static void expect_lie(const struct device_kit *kit, const void *place, size_t n)
{
    uint8_t h[TEI_GPU_HANDLE] = {0};

    memcpy(h, place, n);
    expect_refused(kit, TEI_GPU_FABRIC, h, offer.length);
}

static void lie_about_descriptors(const struct device_kit *kit)
{
    struct place right, p;

    memcpy(&right, offer.handle, sizeof(right));
    p = right;
    for (p.note = -3; p.note < 60; p.note++)
        if (p.note != right.note)
            expect_lie(kit, &p, sizeof(p));
    for (size_t i = 0; i < sizeof(p.life); i++) {
        p = right;
        p.life[i] ^= 1;
        expect_lie(kit, &p, sizeof(p));
    }
    for (size_t i = 0; i < sizeof(p.token); i++) {
        p = right;
        p.token[i] ^= 1;
        expect_lie(kit, &p, sizeof(p));
    }
    p = right;
    kit_check(tei_here_life(p.token, getpid(), p.life), "this process");
    expect_lie(kit, &p, sizeof(p));
}

static void lie_in_the_old_way(const struct device_kit *kit, const struct old_place *right)
{
    struct old_place p = *right;

    p.began++;
    expect_lie(kit, &p, sizeof(p));
    p = *right;
    for (p.pid = -2; p.pid < 3; p.pid++)
        expect_lie(kit, &p, sizeof(p));
    p.pid = getpid();
    expect_lie(kit, &p, sizeof(p));
}

/* What an engine of 0.1 says of the same descriptor. */
static void import_old_handle(const struct device_kit *kit)
{
    struct kit_child c = start_exporter(kit, TEI_GPU_FABRIC, NULL);
    struct old_place old = {.pid = c.pid};
    uint8_t h[TEI_GPU_HANDLE] = {0};
    struct tei_process process;
    struct place now;
    void *base;

    if (!may_fetch(c.pid))
        child_skip("the kernel does not hand out descriptors of other processes");
    memcpy(&now, offer.handle, sizeof(now));
    kit_check(tei_process_look(c.pid, &process), "a look at the exporter");
    memcpy(old.magic, "te-hipfd", sizeof(old.magic));
    old.began = process.began;
    old.note = now.note;
    memcpy(old.token, now.token, sizeof(old.token));
    lie_in_the_old_way(kit, &old);
    memcpy(h, &old, sizeof(old));
    kit_check(tei_gpu_import(kit->kind, 0, TEI_GPU_FABRIC, h, offer.length, &base) == 0,
              "an import by the handle of 0.1");
    kit_expect(base, offer.data, SIZE);
    tei_gpu_unimport(kit->kind, base);
    kit_child_end(&c);
}

static void refuse_hostile(const struct device_kit *kit, enum tei_gpu_sort sort, bool by_file)
{
    struct kit_child c = start_exporter(kit, sort, NULL);
    uint8_t h[TEI_GPU_HANDLE] = {0};
    void *base;

    expect_refused(kit, sort, h, offer.length);
    memset(h, 0xff, sizeof(h));
    expect_refused(kit, sort, h, offer.length);
    for (int i = 0; i < 200; i++) {
        kit_random(h, sizeof(h));
        expect_refused(kit, sort, h, offer.length);
    }
    /* A bit here or there may mean nothing. */
    for (size_t i = 0; i < 8 * sizeof(h); i++) {
        memcpy(h, offer.handle, sizeof(h));
        h[i / 8] ^= (uint8_t)(1u << i % 8);
        if (tei_gpu_import(kit->kind, 0, sort, h, offer.length, &base) == 0)
            tei_gpu_unimport(kit->kind, base);
    }
    if (by_file)
        lie_about_descriptors(kit);
    expect_refused(kit, sort, offer.handle, (size_t)1 << 40);
    expect_refused(kit, sort, offer.handle, offer.length + ((size_t)64 << 20));
    expect_refused(kit, sort, offer.handle, SIZE_MAX);
    expect_refused(kit, sort, offer.handle, SIZE_MAX - 4096);
    kit_child_end(&c);
}

/* ------------------------------------------------------------------------- other things of sharing */

/* A process of another host: what a handle of IPC cannot reach, one of the fabric can. */
static void reach_other_host(const struct device_kit *kit, enum tei_gpu_sort sort)
{
    static const char *const elsewhere[] = {"SOFTGPU_HOST=elsewhere", NULL};
    struct kit_child c;
    void *base;

    if (!kit_plays(kit))
        child_skip("there is one host only");
    c = start_exporter(kit, sort, elsewhere);
    if (sort == TEI_GPU_IPC) {
        expect_refused(kit, sort, offer.handle, offer.length);
    } else {
        kit_check(tei_gpu_import(kit->kind, 0, sort, offer.handle, offer.length, &base) == 0,
                  "memory of another host");
        use_memory(kit, 0, base, offer.data);
        tei_gpu_unimport(kit->kind, base);
    }
    kit_child_end(&c);
}

/* Its own memory; memory that was not made for it; and none at all. */
static void export_what_is_not(const struct device_kit *kit)
{
    struct tei_mem_info m;
    uint8_t h[TEI_GPU_HANDLE];
    void *p = kit_device_memory(kit, 0, NULL, SIZE);

    kit_check(tei_mem_inspect(p, SIZE, &m) == 0, "a look");
    kit_check(tei_gpu_export(&m, TEI_GPU_FABRIC, h) == TE_ERR_UNSUPPORTED, "not for the fabric");
    kit_check(tei_gpu_export(&m, TEI_GPU_IPC, h) == 0, "for IPC");
    expect_refused(kit, TEI_GPU_IPC, h, SIZE);
    tei_gpu_unexport(kit->kind, TEI_GPU_IPC, h);
    tei_gpu_free(kit->kind, p);
    kit_check(tei_gpu_export(&m, TEI_GPU_IPC, h) == TE_ERR_UNSUPPORTED, "it is freed");
    m = (struct tei_mem_info){.kind = TEI_MEM_HOST, .device = -1};
    kit_check(tei_gpu_export(&m, TEI_GPU_IPC, h) == TE_ERR_UNSUPPORTED, "memory of the host");
    tei_gpu_unimport(kit->kind, p);
}

static void export_dmabuf(const struct device_kit *kit)
{
    int (*map)(int, uint64_t, size_t, void **) =
        (int (*)(int, uint64_t, size_t, void **))(uintptr_t)kit_symbol("softgpu_dmabuf_map");
    void (*unmap)(void *, size_t) =
        (void (*)(void *, size_t))(uintptr_t)kit_symbol("softgpu_dmabuf_unmap");
    char *data = malloc(SIZE), *p, *seen;
    struct tei_mem_info m;

    kit_random(data, SIZE);
    p = kit_device_memory(kit, 0, data, SIZE);
    kit_check(tei_mem_inspect(p, SIZE, &m) == 0, "a look");
    for (int i = 0; i < 10; i++) {
        size_t at = kit_below(SIZE), n = 1 + kit_below(SIZE - at);
        uint64_t offset = SIZE_MAX;
        void *view;
        int fd = -1;

        if (tei_gpu_dmabuf(&m, (uintptr_t)p + at, n, &fd, &offset) == TE_ERR_UNSUPPORTED)
            child_skip(te_errmsg());
        kit_check(fd >= 0 && offset < 65536, "a dma-buf");
        if (kit_plays(kit)) {
            kit_check(map(fd, offset, n, &view) == 0, "a mapping of it");
            seen = view;
            kit_check(memcmp(seen, data + at, n) == 0, "what is in it");
            kit_random(data + at, n);
            memcpy(seen, data + at, n);
            unmap(view, n);
            kit_expect(p, data, SIZE);
        }
        kit_check(close(fd) == 0, "it is ours");
    }
    kit_check(tei_gpu_dmabuf(&m, (uintptr_t)p, 0, &(int){0}, &(uint64_t){0}) == TE_ERR_INVALID,
              "nothing");
    if (kit_plays(kit)) {
        kit_control(kit, "fail dmabuf");
        kit_check(tei_gpu_dmabuf(&m, (uintptr_t)p, SIZE, &(int){0}, &(uint64_t){0}) ==
                      TE_ERR_UNSUPPORTED,
                  "what the driver refuses");
    }
    tei_gpu_free(kit->kind, p);
    free(data);
}

/* Drivers that are too old for one thing or the other say so, and work. */
static void do_without(const struct device_kit *kit, bool fabric)
{
    char data[100], *p;
    struct tei_mem_info m;
    uint64_t offset;
    void *none = NULL;
    int fd = -1;

    if (!kit_plays(kit))
        child_skip("the driver is what it is");
    kit_random(data, sizeof(data));
    p = kit_device_memory(kit, 0, data, sizeof(data));
    kit_check(tei_mem_inspect(p, sizeof(data), &m) == 0, "a look");
    if (fabric) {
        kit_check(!tei_gpu_has_fabric(kit->kind, 0), "there is no fabric");
        kit_check(tei_gpu_alloc(kit->kind, 0, SIZE, true, &none) == TE_ERR_UNSUPPORTED,
                  "there is no memory for it");
    } else {
        kit_check(tei_gpu_dmabuf(&m, (uintptr_t)p, 10, &fd, &offset) == TE_ERR_UNSUPPORTED,
                  "there are no dma-bufs");
    }
    kit_expect(p, data, sizeof(data));
    tei_gpu_free(kit->kind, p);
}

/* A device that is full at the moment is asked again; one that has no fabric is not. */
static void ask_for_fabric(const struct device_kit *kit)
{
    if (!kit_plays(kit))
        child_skip("a real device is not full");
    kit_control(kit, "fail create count=2");
    kit_check(!tei_gpu_has_fabric(kit->kind, 0) && !tei_gpu_has_fabric(kit->kind, 0),
              "there is no memory");
    kit_check(tei_gpu_has_fabric(kit->kind, 0), "now there is");
    kit_control(kit, "fail create count=2 error=801");
    kit_check(!tei_gpu_has_fabric(kit->kind, 1), "there is no fabric");
    kit_control(kit, "clear");
    kit_check(!tei_gpu_has_fabric(kit->kind, 1), "and that stays so");
}

static void pin_memory(const struct device_kit *kit)
{
    char *data = malloc(SIZE), *other = malloc(SIZE);
    void *p;

    kit_check(tei_gpu_pin(kit->kind, data, SIZE) == TE_ERR_UNSUPPORTED, "no device is in use");
    p = kit_device_memory(kit, tei_gpu_count(kit->kind) - 1, NULL, SIZE);
    for (int i = 0; i < 3; i++) {
        kit_check(tei_gpu_pin(kit->kind, data, SIZE) == 0, "pinned");
        kit_check(tei_gpu_pin(kit->kind, data, SIZE) == TE_ERR_OVERLAP, "pinned twice");
        kit_check(tei_gpu_pin(kit->kind, other, SIZE) == 0, "pinned, too");
        kit_random(data, SIZE);
        kit_check(tei_mem_copy(p, data, SIZE) == 0, "a copy");
        kit_expect(p, data, SIZE);
        tei_gpu_unpin(kit->kind, data);
        tei_gpu_unpin(kit->kind, other);
    }
    tei_gpu_unpin(kit->kind, data); /* warns, no more */
    if (kit_plays(kit)) {
        kit_control(kit, "fail pin");
        kit_check(tei_gpu_pin(kit->kind, data, SIZE) == TE_ERR_MEMORY, "refused");
    }
    tei_gpu_free(kit->kind, p);
    free(data);
    free(other);
}

/* --------------------------------------------------------------------- what starting with it does */

static bool has_context(const struct device_kit *kit, int device)
{
    int (*contexts)(int, int) = (int (*)(int, int))(uintptr_t)kit_symbol("softgpu_contexts");
    int (*state)(int, unsigned *, int *) =
        (int (*)(int, unsigned *, int *))(uintptr_t)kit_symbol("cuDevicePrimaryCtxGetState");
    unsigned flags;
    int active = 0;

    if (kit_plays(kit))
        return contexts((int)kit->kind - 1, device) > 0;
    if (kit->kind == TEI_MEM_CUDA)
        kit_check(state(device, &flags, &active) == 0, "the state of a context");
    return active != 0;
}

/* Everything is done on the second device, and the first notices nothing. */
static void leave_first_alone(const struct device_kit *kit)
{
    char *data = malloc(SIZE), pci[16];
    struct tei_gpu_queue *q;
    struct tei_mem_info m;
    uint8_t uuid[16], h[TEI_GPU_HANDLE];
    void *p;

    if (tei_gpu_count(kit->kind) < 2)
        child_skip("there are not two devices");
    for (int d = 0; d < 2; d++)
        kit_check(tei_gpu_pci(kit->kind, d, pci) == 0 && tei_gpu_uuid(kit->kind, d, uuid) == 0,
                  "names");
    kit_check(tei_mem_inspect(data, 1, &m) == 0, "a look");
    kit_check(!has_context(kit, 0) && !has_context(kit, 1), "no context is made by asking");
    kit_random(data, SIZE);
    p = kit_device_memory(kit, 1, data, SIZE);
    kit_expect(p, data, SIZE);
    kit_check(tei_gpu_queue_open(kit->kind, 1, &q) == 0, "a queue");
    kit_check(tei_mem_inspect(p, SIZE, &m) == 0, "a look");
    kit_check(tei_gpu_export(&m, TEI_GPU_IPC, h) == 0, "an export");
    kit_check(tei_gpu_pin(kit->kind, data, SIZE) == 0, "pinned");
    (void)tei_gpu_has_fabric(kit->kind, 1);
    tei_gpu_unpin(kit->kind, data);
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, p);
    kit_check(has_context(kit, 1) && !has_context(kit, 0), "a context where it was asked for");
    free(data);
}

/* The driver is in the process, and nobody has started it: asking does not, either. */
static void stay_asleep(const struct device_kit *kit)
{
    int (*count)(int *) = (int (*)(int *))(uintptr_t)kit_symbol("cuDeviceGetCount");
    struct tei_mem_info m = {0};
    int n;

    kit_check(tei_mem_inspect(&m, sizeof(m), &m) == 0 && m.kind == TEI_MEM_HOST, "a look");
    kit_check(tei_gpu_is_loaded(kit->kind), "it is loaded");
    kit_check(count(&n) == 3, "CUDA is not initialised");
}

/* ------------------------------------------------------------------------------------- the matrix */

static void replace(char *text, const char *old, const char *new)
{
    for (char *at = text; (at = strstr(at, old)); at += strlen(new))
        memcpy(at, new, strlen(new));
}

/*
 * A machine with GPUs behind two switches, told at the addresses of the driver's devices 1 and 0,
 * and one more that the driver does not show.
 */
static void write_tree(const struct device_kit *kit, const char *path)
{
    static const char *const in_tree[] = {"0000:13:00.0", "0000:33:00.0"};
    static char text[64 << 10];
    char pci[16];
    FILE *f = fopen(TREE, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    kit_check(n > 0 && n < sizeof(text) - 1, TREE);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        kit_check(tei_gpu_pci(kit->kind, i, pci) == 0, "an address");
        replace(text, in_tree[1 - i], pci);
    }
    f = fopen(path, "we");
    kit_check(f && fwrite(text, 1, n, f) == n && fclose(f) == 0, path);
}

static void expect_row(const struct tei_topology *t, const char *name, int number, const char *nic)
{
    char location[32];
    const struct tei_topology_row *row;

    snprintf(location, sizeof(location), "%s:%d", name, number);
    row = topology_row(t, location);
    kit_check(nic ? row && row->n_preferred == 2 && strcmp(row->preferred[0], nic) == 0 : !row,
              location);
}

/* In order of the addresses, device 1 would be the first. */
static void number_devices(const struct device_kit *kit)
{
    static const char *const nics[] = {"0000:15:00.0", "0000:16:00.0", "0000:35:00.0",
                                       "0000:36:00.0"};
    struct fake_sysfs s;
    struct tei_topology t;
    struct tei_look look;
    char path[128], name[16];

    if (tei_gpu_count(kit->kind) != 2)
        child_skip("there are not two devices");
    fake_sysfs_make(&s);
    for (size_t i = 0; i < TEI_ARRAY_LEN(nics); i++) {
        snprintf(name, sizeof(name), "mlx5_%zu", i);
        fake_sysfs_nic(&s, name, nics[i], 0);
    }
    snprintf(path, sizeof(path), "%s/tree.xml", s.root);
    write_tree(kit, path);
    look =
        (struct tei_look){.sysfs = s.sysfs, .dev = s.dev, .xml = path, .port = 1, .gid_index = -1};
    kit_check(tei_discover(&look, NULL, &t) == 0, "a matrix");
    expect_row(&t, kit->name, 0, "mlx5_2");
    expect_row(&t, kit->name, 1, "mlx5_0");
    expect_row(&t, kit->name, 2, NULL);
    tei_topology_fini(&t);
    fake_sysfs_remove(&s);
}

/* ------------------------------------------------------------------------------------- the list */

static int be_child(const char *mode, const struct device_kit *kit)
{
    if (strcmp(mode, "asleep") == 0) {
        stay_asleep(kit);
        return 0;
    }
    if (tei_gpu_open(kit->kind) != 0)
        child_skip(te_errmsg());
    if (strcmp(mode, "pin") == 0)
        pin_memory(kit);
    else if (strcmp(mode, "second") == 0)
        leave_first_alone(kit);
    else if (strcmp(mode, "dmabuf") == 0)
        export_dmabuf(kit);
    else if (strncmp(mode, "without", 7) == 0)
        do_without(kit, strstr(mode, "fabric") != NULL);
    else if (strcmp(mode, "not") == 0)
        export_what_is_not(kit);
    else if (strcmp(mode, "full") == 0)
        ask_for_fabric(kit);
    else if (strcmp(mode, "numbers") == 0)
        number_devices(kit);
    else
        need_sort(kit, sort_of(mode));
    if (strncmp(mode, "export", 6) == 0)
        return export_memory(mode, kit);
    if (strcmp(mode, "old handle") == 0)
        import_old_handle(kit);
    if (strncmp(mode, "import", 6) == 0)
        import_memory(kit, sort_of(mode), strstr(mode, "file") != NULL);
    if (strncmp(mode, "hostile", 7) == 0)
        refuse_hostile(kit, sort_of(mode), strstr(mode, "file") != NULL);
    if (strncmp(mode, "far", 3) == 0)
        reach_other_host(kit, sort_of(mode));
    return 0;
}

static const char *const none[] = {NULL};
static const char *const backwards[] = {"CUDA_VISIBLE_DEVICES=1,0", "HIP_VISIBLE_DEVICES=1,0",
                                        NULL};
static const char *const rocm_5[] = {"SOFTGPU_HIP_VERSION=5.7.1", NULL};
static const char *const rocm_6[] = {"SOFTGPU_HIP_VERSION=6.2.1", NULL};
static const char *const rocm_7[] = {"SOFTGPU_HIP_VERSION=7.2.0", NULL};
static const char *const no_fabric[] = {"SOFTGPU_HIP_VERSION=7.2.0", "SOFTGPU_FABRIC=0", NULL};
static const char *const old[] = {"LD_LIBRARY_PATH=" TE_TEST_BUILD "/tests/softgpu/old", NULL};

static struct row {
    const char *mode;
    const struct device_kit *kit;
    const char *const *variables;
} rows[] = {
    {"asleep", &kit_cuda, none},
    {"pin", &kit_cuda, none},
    {"pin", &kit_hip, none},
    {"full", &kit_cuda, none},
    {"full", &kit_hip, rocm_6},
    {"second", &kit_cuda, none},
    {"second", &kit_hip, none},
    {"numbers", &kit_cuda, none},
    {"numbers", &kit_cuda, backwards},
    {"numbers", &kit_hip, none},
    {"numbers", &kit_hip, backwards},
    {"dmabuf", &kit_cuda, none},
    {"without dmabuf", &kit_cuda, old},
    {"dmabuf", &kit_hip, rocm_7},
    {"without dmabuf", &kit_hip, old},
    {"not", &kit_cuda, none},
    {"not", &kit_hip, none},
    {"not", &kit_hip, rocm_6},
    {"import ipc", &kit_cuda, none},
    {"import ipc", &kit_hip, none},
    {"import ipc", &kit_hip, rocm_6},
    {"import ipc", &kit_npu, none},
    {"import ipc", &kit_musa, none},
    {"import fabric", &kit_cuda, none},
    {"without fabric", &kit_hip, rocm_5},
    {"import fabric file", &kit_hip, rocm_6},
    {"import fabric file", &kit_hip, no_fabric},
    {"old handle", &kit_hip, rocm_6},
    {"import fabric", &kit_hip, rocm_7},
    {"hostile ipc", &kit_cuda, none},
    {"hostile ipc", &kit_hip, none},
    {"hostile ipc", &kit_npu, none},
    {"hostile ipc", &kit_musa, none},
    {"hostile fabric", &kit_cuda, none},
    {"hostile fabric file", &kit_hip, rocm_6},
    {"hostile fabric", &kit_hip, rocm_7},
    {"far ipc", &kit_cuda, none},
    {"far ipc", &kit_hip, none},
    {"far ipc", &kit_npu, none},
    {"far ipc", &kit_musa, none},
    {"far fabric", &kit_cuda, none},
    {"far fabric", &kit_hip, rocm_7},
};

static void run_row(void **state)
{
    const struct row *row = *state;
    struct kit_child c;

    if (row->variables == old && !kit_plays(row->kit))
        skip(); /* the driver is what it is */
    c = kit_child_start(row->mode, row->kit, row->variables);
    kit_child_end(&c);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[TEI_ARRAY_LEN(rows)];
    static char names[TEI_ARRAY_LEN(rows)][64];
    const struct device_kit *kit;
    const char *mode;

    if (kit_is_child(argc, argv, &mode, &kit))
        return be_child(mode, kit);
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        snprintf(names[i], sizeof(names[i]), "%s %s %.30s", rows[i].kit->name, rows[i].mode,
                 rows[i].variables[0] ? rows[i].variables[0] : "");
        tests[i] = (struct CMUnitTest){names[i], run_row, NULL, NULL, &rows[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
