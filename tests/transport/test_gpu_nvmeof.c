/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=240
 *
 * Files and memory of GPUs. By cuFile, for which softcufile stands; and through host memory where
 * that takes the region and not the file. Over io_uring and over threads.
 */
#include "conformance.h"
#include "file_rig.h"

#include "base/err.h"
#include "base/os.h"
#include "fabric/softgpu/softgpu.h"
#include "plat/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_MEMORY ((size_t)24 << 20)
#define FILE_BYTES ((size_t)24 << 20)

/* -------------------------------------------------------------------------------------- softcufile */

/* Of softcufile.h; NULL: the library is a real one. */
static int (*control)(const char *command);
static long (*count_of)(const char *what);

static bool find(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    memcpy(out, &at, sizeof at);
    return at != NULL;
}

#define STAND_IN TE_TEST_BUILD "/tests/softgpu/libcufile.so.0"

/* Where a sanitizer calls dlopen() for us, the program's own search path does not count. */
static bool find_softcufile(void)
{
    void *library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
    bool (*plays)(enum softgpu_kind kind);

    if (!library)
        library = dlopen(STAND_IN, RTLD_NOW | RTLD_LOCAL);
    return library && find(RTLD_DEFAULT, "softgpu_plays", &plays) && plays(SOFTGPU_CUDA) &&
           find(library, "softcufile_control", &control) &&
           find(library, "softcufile_count", &count_of);
}

static void tell(const char *command)
{
    assert_int_equal(control(command), 0);
}

static long count(const char *what)
{
    return count_of ? count_of(what) : 0;
}

/* The library keeps some queues of copies, and their streams have threads: all of them, once. */
static void warm_up(void)
{
    struct tei_gpu_queue *q[8];

    assert_int_equal(tei_gpu_open(TEI_MEM_CUDA), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(q); i++)
        assert_int_equal(tei_gpu_queue_borrow(TEI_MEM_CUDA, 0, &q[i]), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(q); i++)
        tei_gpu_queue_return(q[i]);
}

/* ------------------------------------------------------------------------------------- conformance */

static bool uring = true;

static void with_device(struct tei_conf *c)
{
    c->file_uring = uring;
}

static struct conformance fixture = {
    .transport = "nvmeof", .configure = with_device, .kind = {TEI_MEM_CUDA, TEI_MEM_HOST}};
CONFORMANCE_COMMON(fixture)

/* ------------------------------------------------------------------------------------- one by one */

struct gpu {
    struct file_rig *rig;
    char *memory; /* GPU_MEMORY bytes */
    struct tei_region *region;
    const char *path;
    struct tei_attach *file; /* FILE_BYTES long */
};

static void open_gpu(struct gpu *g, void (*configure)(struct tei_conf *conf))
{
    void *memory;

    g->rig = file_rig_open(configure);
    assert_int_equal(tei_gpu_alloc(TEI_MEM_CUDA, 0, GPU_MEMORY, false, &memory), 0);
    g->memory = memory;
    g->region = fake_region_add(&g->rig->host, g->rig->t, memory, GPU_MEMORY, TE_REMOTE_RW);
    file_rig_make(g->rig, "file", FILE_BYTES);
    g->path = file_rig_path(g->rig, "file");
    g->file = file_rig_attach(g->rig, g->path, FILE_BYTES);
}

static void close_gpu(struct gpu *g)
{
    fake_detach(g->rig->t, g->file);
    fake_region_del(&g->rig->host, g->rig->t, g->region);
    assert_int_equal(count("buffers"), 0);
    tei_gpu_free(TEI_MEM_CUDA, g->memory);
    file_rig_close(g->rig);
    assert_int_equal(count("files"), 0);
    assert_int_equal(count("users"), 0);
}

static bool is_direct(const struct gpu *g)
{
    return g->region->direct & 1u << g->rig->t->index;
}

static void put(struct gpu *g, size_t at, const char *bytes, size_t n)
{
    assert_int_equal(tei_mem_copy(g->memory + at, bytes, n), 0);
}

static void expect(struct gpu *g, size_t at, const char *bytes, size_t n)
{
    char *seen = malloc(n);

    assert_non_null(seen);
    assert_int_equal(tei_mem_copy(seen, g->memory + at, n), 0);
    assert_memory_equal(seen, bytes, n);
    free(seen);
}

static char *pattern(size_t n, uint32_t seed)
{
    char *p = malloc(n);

    assert_non_null(p);
    fill_pattern(p, n, seed);
    return p;
}

static int move(struct gpu *g, int opcode, size_t at, uint64_t in_file, size_t n)
{
    return file_rig_move(g->rig, g->file, opcode, g->memory + at, in_file, n).error;
}

/* Both ways, anywhere, against copies of memory and file. */
static void check_anywhere(struct gpu *g, int rounds)
{
    char *memory = pattern(GPU_MEMORY, 1), *file = calloc(1, FILE_BYTES), *seen;
    uint32_t x = 42;

    put(g, 0, memory, GPU_MEMORY);
    for (int i = 0; i < rounds; i++) {
        size_t n, at, in_file;

        x = x * 1664525u + 1013904223u;
        n = 1 + (x >> 5) % (1u << (x >> 27) % 24);
        x = x * 1664525u + 1013904223u;
        at = x % (GPU_MEMORY - n);
        x = x * 1664525u + 1013904223u;
        in_file = x % (FILE_BYTES - n);
        if (i % 3 == 0)
            in_file &= ~(size_t)4095;
        if (i % 2) {
            assert_int_equal(move(g, TE_WRITE, at, in_file, n), 0);
            memcpy(file + in_file, memory + at, n);
        } else {
            assert_int_equal(move(g, TE_READ, at, in_file, n), 0);
            memcpy(memory + at, file + in_file, n);
        }
    }
    expect(g, 0, memory, GPU_MEMORY);
    seen = file_rig_bytes(g->path, FILE_BYTES);
    assert_memory_equal(seen, file, FILE_BYTES);
    free(seen);
    free(file);
    free(memory);
}

static void anywhere(void **state)
{
    long writes = count("writes"), reads = count("reads"), parts = count("parts");
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    assert_true(is_direct(&g));
    check_anywhere(&g, 120);
    assert_true(!count_of || (count("writes") > writes && count("reads") > reads));
    assert_int_equal(count("parts"), parts); /* they are not safe there */
    close_gpu(&g);
}

static void flush(struct tei_conf *c)
{
    c->file_flush = true;
}

static void anywhere_and_flushed(void **state)
{
    struct gpu g;

    (void)state;
    open_gpu(&g, flush);
    check_anywhere(&g, 40);
    close_gpu(&g);
}

/* A file that cuFile does not take: its bytes go through host memory. */
static void anywhere_without_the_file(void **state)
{
    long writes = count("writes"), reads = count("reads");
    struct gpu g;

    (void)state;
    tell("file 5008");
    open_gpu(&g, NULL);
    assert_true(is_direct(&g));
    check_anywhere(&g, 80);
    assert_int_equal(count("writes"), writes);
    assert_int_equal(count("reads"), reads);
    close_gpu(&g);
    tell("file 0");
}

static void not_direct(struct tei_conf *c)
{
    c->file_direct = false;
}

static void anywhere_by_the_cache(void **state)
{
    long reads = count("reads");
    struct gpu g;

    (void)state;
    open_gpu(&g, not_direct);
    check_anywhere(&g, 60);
    assert_int_equal(count("reads"), reads);
    close_gpu(&g);
}

static void short_of_what_was_asked(void **state)
{
    long parts = count("parts");
    struct gpu g;

    (void)state;
    tell("short 123457");
    open_gpu(&g, NULL);
    check_anywhere(&g, 40);
    assert_int_equal(count("parts"), parts);
    close_gpu(&g);
    tell("short 0");
}

/* Requests that meet in pages, at the same time, while cuFile writes fewer bytes than it is asked to. */
static void neighbours_while_writes_are_short(void **state)
{
    enum { N = 40, PART = 100001 };
    char *bytes = pattern(N * PART, 9), *seen;
    long parts = count("parts");
    struct fake_task tasks[N];
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    put(&g, 0, bytes, N * PART);
    for (int round = 0; round < 8; round++) {
        struct tei_list list;

        tell(round % 2 ? "short 5001" : "short 50001");
        assert_int_equal(truncate(g.path, 0), 0);
        assert_int_equal(truncate(g.path, FILE_BYTES), 0);
        memset(tasks, 0, sizeof tasks);
        tei_list_init(&list);
        for (size_t i = 0; i < N; i++)
            fake_work(&list, g.rig->t, g.file, &tasks[i], TE_WRITE, g.memory + i * PART,
                      (void *)(i * PART), PART);
        g.rig->t->ops.post(g.rig->t, &list);
        assert_true(fake_wait(&g.rig->host, NULL, tasks, N, PATIENCE_MS));
        for (size_t i = 0; i < N; i++)
            assert_int_equal(tasks[i].error, 0);
        seen = file_rig_bytes(g.path, N * PART);
        assert_memory_equal(seen, bytes, N * PART);
        free(seen);
    }
    assert_int_equal(count("parts"), parts);
    close_gpu(&g);
    tell("short 0");
    free(bytes);
}

/* Not a page at a time: that is an error, and soon. */
static void short_of_a_page(void **state)
{
    struct fake_task t;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    tell("short 4095");
    t = file_rig_move(g.rig, g.file, TE_WRITE, g.memory, 0, 1 << 20);
    assert_int_equal(t.error, TE_ERR_SYSTEM);
    assert_int_equal(t.sys_errno, EIO);
    tell("short 0");
    assert_int_equal(move(&g, TE_WRITE, 0, 0, 1 << 20), 0);
    close_gpu(&g);
}

/* The file was opened for host memory before there was any of a GPU. */
static void a_file_that_is_open_already(void **state)
{
    long reads = count("reads");
    char *bytes = pattern(1 << 20, 8);
    void *memory;
    struct gpu g;

    (void)state;
    g.rig = file_rig_open(NULL);
    file_rig_make(g.rig, "file", FILE_BYTES);
    g.path = file_rig_path(g.rig, "file");
    g.file = file_rig_attach(g.rig, g.path, FILE_BYTES);
    memcpy(g.rig->memory, bytes, 1 << 20);
    assert_int_equal(file_rig_move(g.rig, g.file, TE_WRITE, g.rig->memory, 0, 1 << 20).error, 0);
    assert_int_equal(count("users"), 0); /* nobody has asked for it */
    assert_int_equal(tei_gpu_alloc(TEI_MEM_CUDA, 0, GPU_MEMORY, false, &memory), 0);
    g.memory = memory;
    g.region = fake_region_add(&g.rig->host, g.rig->t, memory, GPU_MEMORY, TE_REMOTE_RW);
    assert_int_equal(count("files"), 0);
    assert_int_equal(move(&g, TE_READ, 0, 0, 1 << 20), 0);
    expect(&g, 0, bytes, 1 << 20);
    assert_int_equal(count("files"), 1);
    assert_true(count("reads") > reads);
    free(bytes);
    close_gpu(&g);
}

/* --------------------------------------------------------------------------------------- refusals */

static void no_cufile(struct tei_conf *c)
{
    c->file_cufile = false;
}

static void regions_that_are_refused(void **state)
{
    static const struct {
        const char *before, *after, *why;
        void (*configure)(struct tei_conf *c);
    } rows[] = {
        {"open 5001", "open 0", "nvidia-fs", NULL},
        {"buffer 5036", "buffer 0", "pinned", NULL},
        {"short 0", "short 0", "TE_FILE_CUFILE", no_cufile},
    };

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        struct gpu g;

        tell(rows[i].before);
        open_gpu(&g, rows[i].configure);
        assert_false(is_direct(&g));
        assert_int_equal(g.rig->t->ops.region_add(g.rig->t, g.region), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), rows[i].why));
        assert_int_equal(file_rig_move(g.rig, g.file, TE_READ, g.rig->memory, 3, 5000).error, 0);
        close_gpu(&g);
        tell(rows[i].after);
    }
}

static void errors(void **state)
{
    static const struct {
        const char *command;
        int error, sys_errno;
        const char *says;
    } rows[] = {
        {"io 5 2", TE_ERR_SYSTEM, 5, NULL},
        {"io -1 1", TE_ERR_SYSTEM, EIO, NULL},
        {"io 5011 1", TE_ERR_CONTEXT, 0, "driver of the GPU"},
        {"io 5025", TE_ERR_ACCESS, 0, "permission"},
    };
    struct fake_task t;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
        for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
            tell(rows[i].command);
            t = file_rig_move(g.rig, g.file, opcode, g.memory, 0, 16 << 20);
            assert_int_equal(t.error, rows[i].error);
            assert_int_equal(t.sys_errno, rows[i].sys_errno);
            assert_non_null(strstr(t.note, g.path));
            if (rows[i].says)
                assert_non_null(strstr(t.note, rows[i].says));
            tell("io 0");
            assert_int_equal(move(&g, opcode, 0, 0, 16 << 20), 0);
        }
    close_gpu(&g);
}

/* cuFile takes the file and then not its I/O: that fails, and what comes later goes without it. */
static void a_file_that_is_refused_late(void **state)
{
    struct tei_attach *again;
    struct fake_task t;
    struct gpu g;
    long reads;

    (void)state;
    open_gpu(&g, NULL);
    tell("io 5008");
    t = file_rig_move(g.rig, g.file, TE_READ, g.memory, 0, 1 << 20);
    assert_int_equal(t.error, TE_ERR_UNSUPPORTED);
    tell("io 0");
    reads = count("reads");
    check_anywhere(&g, 20);
    assert_int_equal(count("reads"), reads);

    /* Another file at its path is asked about anew. */
    file_rig_make(g.rig, "another", FILE_BYTES);
    assert_int_equal(rename(file_rig_path(g.rig, "another"), g.path), 0);
    again = file_rig_attach(g.rig, g.path, FILE_BYTES);
    fake_detach(g.rig->t, g.file);
    g.file = again;
    check_anywhere(&g, 20);
    assert_true(count("reads") > reads);
    close_gpu(&g);
}

static void past_the_end(void **state)
{
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    assert_int_equal(truncate(g.path, 5000), 0);
    assert_int_equal(move(&g, TE_READ, 0, 0, 5000), 0);
    assert_int_equal(move(&g, TE_READ, 0, 1, 5000), TE_ERR_STALE);
    assert_int_equal(move(&g, TE_READ, 0, 4096, 100000), TE_ERR_STALE);
    assert_int_equal(truncate(g.path, FILE_BYTES), 0);
    assert_int_equal(move(&g, TE_READ, 0, 4096, 100000), 0);
    /* Cut while it is open. */
    assert_int_equal(truncate(g.path, 8192), 0);
    assert_int_equal(move(&g, TE_READ, 0, 4096, 100000), TE_ERR_STALE);
    close_gpu(&g);
}

/* ---------------------------------------------------------------------------------- ending in time */

/* One long read, of which some is under way and held there; false if it was over before that. */
static bool take_off(struct gpu *g, struct fake_task *task, const void *owner, int64_t deadline_ns)
{
    int64_t until = tei_deadline_ns(PATIENCE_MS);
    struct tei_list list;
    struct tei_work *w;

    tell("hold");
    *task = (struct fake_task){0};
    tei_list_init(&list);
    w = fake_work(&list, g->rig->t, g->file, task, TE_READ, g->memory, NULL, GPU_MEMORY);
    w->owner = owner;
    w->deadline_ns = deadline_ns;
    g->rig->t->ops.post(g->rig->t, &list);
    while (count("held") < 1) {
        if (fake_wait(&g->rig->host, NULL, task, 1, 1)) {
            tell("release");
            return false;
        }
        assert_true(tei_now_ns() < until);
    }
    return true;
}

/* It ends once what is under way is back, and not before. */
static void land(struct gpu *g, struct fake_task *task, int error, int64_t wait_ms)
{
    char *bytes = pattern(GPU_MEMORY, 6);

    assert_false(fake_wait(&g->rig->host, NULL, task, 1, wait_ms));
    tell("release");
    assert_true(fake_wait(&g->rig->host, NULL, task, 1, PATIENCE_MS));
    assert_int_equal(task->error, error);
    put(g, 0, bytes, GPU_MEMORY);
    usleep(20000);
    expect(g, 0, bytes, GPU_MEMORY);
    free(bytes);
}

static void cancel(void **state)
{
    struct fake_task task;
    struct gpu g;
    int me = 0; /* an owner is an address */

    (void)state;
    open_gpu(&g, NULL);
    assert_true(take_off(&g, &task, &me, TEI_NEVER));
    g.rig->t->ops.cancel(g.rig->t, &me);
    land(&g, &task, TE_ERR_CANCELED, 400);
    assert_int_equal(move(&g, TE_READ, 0, 0, GPU_MEMORY), 0);
    close_gpu(&g);
}

static void deadline(void **state)
{
    int64_t ms = 2000;
    struct fake_task task;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    while (!take_off(&g, &task, NULL, tei_deadline_ns(ms))) {
        assert_int_equal(task.error, TE_ERR_TIMEOUT); /* of a machine that is slower than that */
        assert_true((ms *= 2) < PATIENCE_MS);
    }
    land(&g, &task, TE_ERR_TIMEOUT, ms + 400);
    assert_int_equal(move(&g, TE_READ, 0, 0, GPU_MEMORY), 0);
    close_gpu(&g);
}

/* Of a closed transport memory may go while cuFile is at it: it is waited for. */
static void *release_soon(void *arg)
{
    usleep(50000);
    control("release");
    return arg;
}

static void a_region_goes_from_a_closed_transport(void **state)
{
    struct fake_task task;
    pthread_t thread;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    assert_true(take_off(&g, &task, NULL, TEI_NEVER));
    g.rig->t->ops.close(g.rig->t);
    assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
    assert_int_equal(g.rig->t->ops.region_del(g.rig->t, g.region), 0);
    assert_int_equal(count("held"), 0);
    pthread_join(thread, NULL);
    assert_true(fake_wait(&g.rig->host, NULL, &task, 1, PATIENCE_MS));
    assert_int_equal(task.error, TE_ERR_CANCELED);
    close_gpu(&g);
}

/* Two engines have the same memory: neither takes it back while the other uses it. */
static void two_engines(void **state)
{
    struct tei_region *more, *part;
    struct tei_transport *t;
    struct fake_host other;
    struct fake_task task;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    fake_host_init(&other);
    t = fake_open(&other, "nvmeof");
    more = fake_region_add(&other, t, g.memory, GPU_MEMORY, TE_REMOTE_RW);
    assert_true(more->direct & 1u << t->index);
    assert_int_equal(count("buffers"), 1);
    fake_region_del(&other, t, more);
    assert_int_equal(count("buffers"), 1);
    assert_int_equal(move(&g, TE_READ, 0, 0, 1 << 20), 0);

    /* The first goes while the second, which has a part of it, is at work. */
    part = fake_region_add(&other, t, g.memory, GPU_MEMORY / 2, TE_REMOTE_RW);
    assert_true(part->direct & 1u << t->index);
    fake_region_del(&g.rig->host, g.rig->t, g.region);
    assert_int_equal(count("buffers"), 1);
    g.region = fake_region_add(&g.rig->host, g.rig->t, g.memory, GPU_MEMORY, TE_REMOTE_RW);
    assert_true(take_off(&g, &task, NULL, TEI_NEVER));
    fake_region_del(&other, t, part);
    assert_int_equal(count("buffers"), 1);
    tell("release");
    assert_true(fake_wait(&g.rig->host, NULL, &task, 1, PATIENCE_MS));
    assert_int_equal(task.error, 0);
    fake_region_del(&g.rig->host, g.rig->t, g.region);
    assert_int_equal(count("buffers"), 0);

    /* What is longer than the other's cuFile would not move: it is staged. */
    part = fake_region_add(&other, t, g.memory, GPU_MEMORY / 2, TE_REMOTE_RW);
    g.region = fake_region_add(&g.rig->host, g.rig->t, g.memory, GPU_MEMORY, TE_REMOTE_RW);
    assert_true(part->direct & 1u << t->index);
    assert_false(is_direct(&g));
    fake_region_del(&other, t, part);
    fake_close(t);
    fake_host_fini(&other);
    close_gpu(&g);
}

/* Host memory and a GPU's, to one file and at the same time. */
static void beside_host_memory(void **state)
{
    enum { N = 40, PART = 100001 };
    struct fake_task tasks[2 * N];
    char *bytes = pattern(2 * N * PART, 5), *seen;
    struct tei_list list;
    struct gpu g;

    (void)state;
    open_gpu(&g, NULL);
    put(&g, 0, bytes, N * PART);
    memcpy(g.rig->memory, bytes + N * PART, N * PART);
    memset(tasks, 0, sizeof tasks);
    tei_list_init(&list);
    for (size_t i = 0; i < N; i++) {
        fake_work(&list, g.rig->t, g.file, &tasks[2 * i], TE_WRITE, g.memory + i * PART,
                  (void *)(2 * i * PART), PART);
        fake_work(&list, g.rig->t, g.file, &tasks[2 * i + 1], TE_WRITE, g.rig->memory + i * PART,
                  (void *)((2 * i + 1) * PART), PART);
    }
    g.rig->t->ops.post(g.rig->t, &list);
    assert_true(fake_wait(&g.rig->host, NULL, tasks, TEI_ARRAY_LEN(tasks), PATIENCE_MS));
    seen = file_rig_bytes(g.path, 2 * N * PART);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(tasks[2 * i].error, 0);
        assert_int_equal(tasks[2 * i + 1].error, 0);
        assert_memory_equal(seen + 2 * i * PART, bytes + i * PART, PART);
        assert_memory_equal(seen + (2 * i + 1) * PART, bytes + (N + i) * PART, PART);
    }
    free(seen);
    free(bytes);
    close_gpu(&g);
}

/* Without softcufile: whether cuFile takes memory at all; else why not. */
static bool is_taken(void)
{
    struct gpu g;
    bool taken;

    open_gpu(&g, NULL);
    taken = is_direct(&g);
    if (!taken && g.rig->t->ops.region_add(g.rig->t, g.region))
        printf("cuFile does not take memory here: %s\n", te_errmsg());
    close_gpu(&g);
    return taken;
}

static int conform(const char *name, const char *folder, const char *command)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_COMMON_TESTS};
    int failed = 0;

    fixture.folder = folder;
    if (control)
        tell(command);
    for (int i = 0; i < 2; i++) {
        char text[80];

        uring = i == 0;
        snprintf(text, sizeof text, "%s, %s", name, uring ? "io_uring" : "threads");
        failed += cmocka_run_group_tests_name(text, tests, NULL, NULL);
    }
    return failed;
}

static int run_real(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(anywhere),
                                       cmocka_unit_test(anywhere_and_flushed),
                                       cmocka_unit_test(anywhere_by_the_cache),
                                       cmocka_unit_test(past_the_end),
                                       cmocka_unit_test(beside_host_memory)};

    if (!is_taken())
        return 77;
    return FILE_RIG_RUN(tests) + conform("cuFile", ".", "");
}

/* test_gpu_nvmeof [PATTERN]: only the cases that match. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anywhere),
        cmocka_unit_test(anywhere_and_flushed),
        cmocka_unit_test(anywhere_without_the_file),
        cmocka_unit_test(anywhere_by_the_cache),
        cmocka_unit_test(short_of_what_was_asked),
        cmocka_unit_test(neighbours_while_writes_are_short),
        cmocka_unit_test(short_of_a_page),
        cmocka_unit_test(a_file_that_is_open_already),
        cmocka_unit_test(regions_that_are_refused),
        cmocka_unit_test(errors),
        cmocka_unit_test(a_file_that_is_refused_late),
        cmocka_unit_test(past_the_end),
        cmocka_unit_test(cancel),
        cmocka_unit_test(deadline),
        cmocka_unit_test(a_region_goes_from_a_closed_transport),
        cmocka_unit_test(two_engines),
        cmocka_unit_test(beside_host_memory),
    };
    int failed;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    pair_prepare();
    warm_up();
    if (!find_softcufile())
        return run_real();
    failed = FILE_RIG_RUN(tests);
    failed += conform("cuFile", ".", "file 0");
    failed += conform("not cuFile's", ".", "file 5008");
    return failed + conform("tmpfs", "/dev/shm", "file 0");
}
