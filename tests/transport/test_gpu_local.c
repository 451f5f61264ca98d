/* SPDX-License-Identifier: Apache-2.0 */
/* Copies within an engine with memory of devices on one side or both. */
/* te-test: timeout=240 */
#include "conformance.h"

#include "base/os.h"
#include "child_engine.h"
#include "plat/plat.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The cell that the cases below are run for. */
static struct conformance cell = {.transport = "local"};
CONFORMANCE_COMMON(cell)

/* -------------------------------------------------------------------------------- in each cell */

/* Up to three parts of what the devices are given, with odd ends. */
static void lengths_and_offsets(void **state)
{
    static const size_t lengths[] = {
        1, 63, 4097, ((size_t)1 << 20) - 3, ((size_t)8 << 20) + 9, ((size_t)17 << 20) + 5};
    struct pair *p = pair_open(&cell);
    char *bytes = malloc(PAIR_BYTES);

    (void)state;
    assert_non_null(bytes);
    for (unsigned i = 0; i < 2 * TEI_ARRAY_LEN(lengths); i++) {
        enum pair_side to = i % 2 ? INITIATOR : TARGET, from = i % 2 ? TARGET : INITIATOR;
        size_t n = lengths[i / 2],
               at[2] = {tei_random_u64() % 4096 + 1, tei_random_u64() % 511 + 1};

        pair_fill(p, from, at[from], n, i + 1);
        pair_set(p, to, at[to] - 1, 0x77, n + 2);
        assert_int_equal(fake_transfer(p->a, NULL, i % 2 ? TE_READ : TE_WRITE,
                                       p->am + at[INITIATOR], p->bm + at[TARGET], n),
                         0);
        bytes[0] = bytes[n + 1] = 0x77;
        fill_pattern(bytes + 1, n, i + 1);
        pair_expect(p, to, at[to] - 1, bytes, n + 2);
    }
    free(bytes);
    pair_close(p);
}

static void scattered_blocks(void **state)
{
    enum { BLOCKS = 128, BLOCK = 64 << 10, STEP = BLOCK + 4097 };
    struct pair *p = pair_open(&cell);
    struct fake_task *tasks = calloc(BLOCKS, sizeof *tasks);
    char *bytes = malloc(BLOCK);
    struct tei_list list;

    (void)state;
    assert_true(tasks && bytes);
    tei_list_init(&list);
    for (unsigned i = 0; i < BLOCKS; i++) {
        pair_fill(p, INITIATOR, (size_t)i * STEP, BLOCK, i + 1);
        fake_work(&list, p->a, NULL, &tasks[i], TE_WRITE, p->am + (size_t)i * STEP,
                  p->bm + (size_t)(BLOCKS - 1 - i) * STEP + 1, BLOCK);
    }
    p->a->ops.post(p->a, &list);
    assert_true(tei_list_empty(&list));
    assert_true(fake_wait(&p->ha, NULL, tasks, BLOCKS, PATIENCE_MS));
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_int_equal(tasks[i].error, 0);
        fill_pattern(bytes, BLOCK, i + 1);
        pair_expect(p, TARGET, (size_t)(BLOCKS - 1 - i) * STEP + 1, bytes, BLOCK);
    }
    free(bytes);
    free(tasks);
    pair_close(p);
}

static void cancel_and_deadline(void **state)
{
    struct pair *p = pair_open(&cell);
    struct fake_task tasks[66];
    struct tei_list list;
    int mine = 0, other = 0, canceled = 0;

    (void)state;
    tei_list_init(&list);
    for (int i = 0; i < 64; i++)
        fake_work(&list, p->a, NULL, &tasks[i], TE_WRITE, p->am, p->bm, PAIR_BYTES)->owner = &mine;
    fake_work(&list, p->a, NULL, &tasks[64], TE_READ, p->am, p->bm, PAIR_BYTES)->deadline_ns = 1;
    fake_work(&list, p->a, NULL, &tasks[65], TE_WRITE, p->am, p->bm, PAIR_BYTES)->owner = &other;
    p->a->ops.post(p->a, &list);
    p->a->ops.cancel(p->a, &mine);
    assert_true(fake_wait(&p->ha, NULL, tasks, 66, PATIENCE_MS));
    for (int i = 0; i < 64; i++) {
        assert_true(tasks[i].error == 0 || tasks[i].error == TE_ERR_CANCELED);
        canceled += tasks[i].error == TE_ERR_CANCELED;
    }
    assert_true(canceled >= 48);
    assert_int_equal(tasks[64].error, TE_ERR_TIMEOUT);
    assert_int_equal(tasks[64].moved, 0);
    assert_int_equal(tasks[65].error, 0);
    pair_close(p);
}

/* ---------------------------------------------------------------------------------- of its own */

static bool has_device(enum tei_mem_kind kind, int device)
{
    return kind == TEI_MEM_HOST || (!tei_gpu_open(kind) && device < tei_gpu_count(kind));
}

static void no_copies_between_makers(void **state)
{
    static const struct conformance mixed = {.transport = "local",
                                             .kind = {TEI_MEM_CUDA, TEI_MEM_HIP}};
    struct fake_task task;
    struct tei_list list;
    struct pair *p;

    (void)state;
    if (!has_device(TEI_MEM_CUDA, 0) || !has_device(TEI_MEM_HIP, 0))
        return;
    p = pair_open(&mixed);
    tei_list_init(&list);
    fake_work(&list, p->a, NULL, &task, TE_WRITE, p->am, p->bm, 1000);
    p->a->ops.post(p->a, &list);
    assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
    assert_int_equal(task.error, TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(task.why, "two makers"));
    assert_int_equal(fake_transfer(p->a, NULL, TE_READ, p->am, p->am + 5000, 5000), 0);
    assert_int_equal(fake_transfer(p->a, NULL, TE_READ, p->bm, p->bm + 5000, 5000), 0);
    pair_close(p);
}

static bool thread_runs(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *d;
    bool found = false;

    assert_non_null(tasks);
    while ((d = readdir(tasks))) {
        char path[300], is[32] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        f = fopen(path, "re");
        found |= f && fgets(is, sizeof is, f) && strncmp(is, name, strlen(name)) == 0;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return found;
}

static void no_thread_without_memory_of_a_device(void **state)
{
    static const struct conformance host = {.transport = "local"};
    struct pair *p = pair_open(&host);

    (void)state;
    assert_false(thread_runs("te/local-gpu"));
    pair_close(p);
    p = pair_open(&cell);
    assert_true(thread_runs("te/local-gpu"));
    pair_close(p);
    assert_false(thread_runs("te/local-gpu"));
}

/* Whether somebody has pinned it. */
static bool is_pinned(enum tei_mem_kind kind, void *addr, size_t n)
{
    int rc = tei_gpu_pin(kind, addr, n);

    if (rc == 0)
        tei_gpu_unpin(kind, addr);
    assert_true(rc == 0 || rc == TE_ERR_OVERLAP);
    return rc == TE_ERR_OVERLAP;
}

/* The host's jobs have run: one of them may be about to pin. */
static void let_jobs_run(struct tei_jobs *jobs)
{
    bool busy = true;

    for (int i = 0; busy && i < 60000; i++) {
        pthread_mutex_lock(&jobs->lock);
        busy = jobs->queued || jobs->running;
        pthread_mutex_unlock(&jobs->lock);
        if (busy)
            usleep(1000);
    }
    assert_false(busy);
}

/* Moves a little; whether the initiator's memory is pinned after that. */
static bool moving_pins(struct pair *p)
{
    assert_int_equal(fake_transfer(p->a, NULL, TE_WRITE, p->am, p->bm, 100), 0);
    assert_int_equal(fake_transfer(p->a, NULL, TE_READ, p->am, p->bm, 100), 0);
    let_jobs_run(&p->ha.jobs);
    return is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES);
}

static void switch_pins_off(struct tei_conf *c)
{
    c->gpu_pin = false;
}

static void host_memory_is_pinned_until_its_region_goes(void **state)
{
    struct conformance without = cell;
    struct pair *p = pair_open(&cell);

    (void)state;
    assert_false(is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES));
    assert_true(moving_pins(p));
    assert_true(moving_pins(p));
    fake_region_del(&p->ha, p->a, p->ar);
    assert_false(is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES));
    p->ar = fake_region_add(&p->ha, p->a, p->am, PAIR_BYTES, TE_REMOTE_RW);
    assert_true(moving_pins(p));
    pair_close(p);

    without.configure = switch_pins_off;
    p = pair_open(&without);
    assert_false(moving_pins(p));
    pair_close(p);
}

/* The transport neither fails for it, nor undoes it. */
static void somebody_else_has_pinned_it(void **state)
{
    struct pair *p = pair_open(&cell);

    (void)state;
    assert_int_equal(tei_gpu_pin(cell.kind[TARGET], p->am, PAIR_BYTES), 0);
    assert_true(moving_pins(p));
    fake_region_del(&p->ha, p->a, p->ar);
    assert_true(is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES));
    tei_gpu_unpin(cell.kind[TARGET], p->am);
    p->ar = fake_region_add(&p->ha, p->a, p->am, PAIR_BYTES, TE_REMOTE_RW);
    pair_close(p);
}

/* The job that pins may not have begun, or be at it. */
static void regions_go_while_they_are_pinned(void **state)
{
    struct pair *p = pair_open(&cell);

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(fake_transfer(p->a, NULL, TE_WRITE, p->am, p->bm, 100), 0);
        fake_region_del(&p->ha, p->a, p->ar);
        assert_false(is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES));
        p->ar = fake_region_add(&p->ha, p->a, p->am, PAIR_BYTES, TE_REMOTE_RW);
    }
    pair_close(p);
}

/* As an engine ends: closed, the regions out, and only then all copies over. */
static void regions_go_before_copies_end(void **state)
{
    struct pair *p = pair_open(&cell);
    struct fake_task tasks[32];
    struct tei_list list;

    (void)state;
    assert_true(moving_pins(p));
    tei_list_init(&list);
    for (int i = 0; i < 32; i++)
        fake_work(&list, p->a, NULL, &tasks[i], TE_WRITE, p->am, p->bm, PAIR_BYTES);
    p->a->ops.post(p->a, &list);
    p->a->ops.close(p->a);
    assert_int_equal(p->a->ops.region_del(p->a, p->ar), 0);
    (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
    for (int i = 0; i < 32; i++)
        assert_true(tasks[i].done && (!tasks[i].error || tasks[i].error == TE_ERR_CANCELED));
    assert_false(is_pinned(cell.kind[TARGET], p->am, PAIR_BYTES));
    pair_close(p);
}

/* ------------------------------------------------------------------------------ with an engine */

/* Tells the stand-in of a driver what to do wrong; false if the driver is real. */
static bool command(const char *text)
{
    int (*control)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "softgpu_control");

    if (!control) {
        print_message("left out: the driver cannot be told \"%s\"\n", text);
        return false;
    }
    assert_int_equal(control(text), 0);
    return true;
}

struct own {
    te_engine *engine;
    te_segment itself;
    te_batch batch;
    char *near, *far; /* memory of the host, and of a device */
    size_t n;
};

static void own_open(struct own *o, size_t n)
{
    te_options options;
    char name[256];
    void *p;

    loopback_options(&options);
    assert_int_equal(te_engine_create(&options, &o->engine), 0);
    te_options_fini(&options);
    o->n = n;
    o->near = malloc(n);
    assert_non_null(o->near);
    assert_int_equal(tei_gpu_alloc(cell.kind[TARGET], 0, n, false, &p), 0);
    o->far = p;
    assert_int_equal(te_register(o->engine, o->near, n, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_register(o->engine, o->far, n, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_engine_name(o->engine, name, sizeof name), 0);
    assert_int_equal(te_open(o->engine, name, &o->itself), 0);
    assert_int_equal(te_batch_alloc(o->engine, 16, &o->batch), 0);
}

static void own_submit(struct own *o, int opcode)
{
    te_request r = {.opcode = opcode,
                    .source = o->near,
                    .target = o->itself,
                    .target_offset = (uintptr_t)o->far,
                    .length = o->n};

    assert_int_equal(te_submit(o->engine, o->batch, &r, 1, NULL), 0);
}

static void own_close(struct own *o)
{
    assert_int_equal(te_unregister(o->engine, o->near), 0);
    assert_int_equal(te_unregister(o->engine, o->far), 0);
    assert_int_equal(te_batch_free(o->engine, o->batch), 0);
    te_engine_destroy(o->engine);
    tei_gpu_free(cell.kind[TARGET], o->far);
    free(o->near);
}

/* Its memory stays registered as long as the device may touch it. */
static void an_engine_and_its_own_memory(void **state)
{
    struct own o;
    struct te_status st;
    char *bytes;

    (void)state;
    own_open(&o, 1000003);
    bytes = malloc(o.n);
    assert_non_null(bytes);
    fill_pattern(o.near, o.n, 1);
    own_submit(&o, TE_WRITE);
    assert_int_equal(te_wait(o.engine, o.batch, PATIENCE_MS), 0);
    memset(o.near, 0, o.n);
    own_submit(&o, TE_READ);
    assert_int_equal(te_wait(o.engine, o.batch, PATIENCE_MS), 0);
    fill_pattern(bytes, o.n, 1);
    assert_memory_equal(o.near, bytes, o.n);
    if (command("stall")) {
        own_submit(&o, TE_WRITE);
        assert_int_equal(te_unregister(o.engine, o.near), TE_ERR_BUSY);
        assert_int_equal(te_unregister(o.engine, o.far), TE_ERR_BUSY);
        assert_int_equal(te_cancel(o.engine, o.batch), 0);
        assert_true(command("release"));
        assert_int_equal(te_wait(o.engine, o.batch, PATIENCE_MS), 0);
        assert_int_equal(te_status(o.engine, o.batch, 2, &st), 0);
        assert_true(st.state == TE_CANCELED || st.state == TE_COMPLETED);
    }
    free(bytes);
    own_close(&o);
}

/* ----------------------------------------------------------------------------------------- all */

#ifdef __SANITIZE_THREAD__
#define PATIENT false /* the suite in each of its cells would take minutes */
#else
#define PATIENT true
#endif

/* Initiator and target of each cell; the two sides of one kind, or one of them the host. */
static const struct {
    enum tei_mem_kind kind[2];
    int device[2];
    bool all; /* the conformance suite as well, which takes its time */
} cells[] = {
    {{TEI_MEM_HOST, TEI_MEM_CUDA}, {-1, 0}, true},
    {{TEI_MEM_CUDA, TEI_MEM_HOST}, {0, -1}, true},
    {{TEI_MEM_CUDA, TEI_MEM_CUDA}, {1, 0}, true},
    {{TEI_MEM_CUDA, TEI_MEM_CUDA}, {0, 0}, false},
    {{TEI_MEM_HOST, TEI_MEM_CUDA}, {-1, 1}, false},
    {{TEI_MEM_HOST, TEI_MEM_HIP}, {-1, 0}, true},
    {{TEI_MEM_HIP, TEI_MEM_HOST}, {0, -1}, false},
    {{TEI_MEM_HIP, TEI_MEM_HIP}, {0, 0}, false},
    {{TEI_MEM_HOST, TEI_MEM_ASCEND}, {-1, 0}, false},
    {{TEI_MEM_ASCEND, TEI_MEM_HOST}, {1, -1}, false},
    {{TEI_MEM_ASCEND, TEI_MEM_ASCEND}, {1, 0}, false},
    {{TEI_MEM_HOST, TEI_MEM_MUSA}, {-1, 1}, false},
};

static int run_cell(unsigned i)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_and_offsets),
        cmocka_unit_test(scattered_blocks),
        cmocka_unit_test(cancel_and_deadline),
    };
    const struct CMUnitTest all[] = {CONFORMANCE_COMMON_TESTS};
    int rc;
    char name[64];

    memcpy(cell.kind, cells[i].kind, sizeof cell.kind);
    memcpy(cell.device, cells[i].device, sizeof cell.device);
    snprintf(name, sizeof name, "kind %d device %d and kind %d device %d", (int)cell.kind[0],
             cell.device[0], (int)cell.kind[1], cell.device[1]);
    rc = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    return cells[i].all && (PATIENT || i == 0)
               ? rc | cmocka_run_group_tests_name(name, all, NULL, NULL)
               : rc;
}

/* Cases in which the initiator's memory is the host's. */
static int run_own(enum tei_mem_kind kind)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_copies_between_makers),
        cmocka_unit_test(no_thread_without_memory_of_a_device),
        cmocka_unit_test(host_memory_is_pinned_until_its_region_goes),
        cmocka_unit_test(somebody_else_has_pinned_it),
        cmocka_unit_test(regions_go_while_they_are_pinned),
        cmocka_unit_test(regions_go_before_copies_end),
        cmocka_unit_test(an_engine_and_its_own_memory),
    };

    cell.kind[INITIATOR] = TEI_MEM_HOST;
    cell.kind[TARGET] = kind;
    cell.device[INITIATOR] = -1;
    cell.device[TARGET] = 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    int rc = 0, n = 0;

    pair_prepare();
    for (unsigned i = 0; i < TEI_ARRAY_LEN(cells); i++) {
        if (!has_device(cells[i].kind[0], cells[i].device[0]) ||
            !has_device(cells[i].kind[1], cells[i].device[1]))
            continue;
        rc |= run_cell(i);
        n++;
    }
    if (n == 0) {
        puts("no driver of a device, or no device");
        return 77;
    }
    rc |= run_own(has_device(TEI_MEM_CUDA, 0) ? TEI_MEM_CUDA : TEI_MEM_HIP);
    return rc;
}
