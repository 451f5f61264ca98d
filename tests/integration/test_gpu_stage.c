/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Memory of devices over a transport that does not reach it, when things go wrong: peers that do not
 * answer, copies that fail, engines that end, little memory to stage in. By tcp alone, with two peers.
 */
#include "child_engine.h"
#include "gpu_rig.h"
#include "metric.h"
#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TCP   "MC_FORCE_TCP=1"
#define HALF  (RIG_BYTES / 2)
#define WORKS 40

static struct peer first, second;

static te_batch batch_of(te_engine *e, size_t n)
{
    te_batch b;

    assert_int_equal(te_batch_alloc(e, n, &b), 0);
    return b;
}

/* Writes the first half of the memory at one place, or reads the second, as a peer's host memory. */
static void submit(struct rig *r, te_batch b, int opcode, size_t place, const struct peer *p,
                   int64_t deadline_ms)
{
    te_request req = {.opcode = opcode,
                      .source = r->mine.at[place] + (opcode == TE_READ ? HALF : 0),
                      .target = r->seg,
                      .target_offset = (uintptr_t)p->mem.at[PLACE_HOST],
                      .length = HALF};
    te_submit_opts o = {.size = sizeof o, .deadline_ms = deadline_ms};

    assert_int_equal(te_submit(r->e, b, &req, 1, &o), 0);
}

static int state_of(te_engine *e, te_batch b, size_t i)
{
    struct te_status st;

    assert_int_equal(te_status(e, b, i, &st), 0);
    return st.state;
}

static int thaw(void **state)
{
    (void)state;
    kill(first.pid, SIGCONT);
    soft_control("clear");
    return 0;
}

/* What waits behind a peer that does not answer ends when it is cancelled, or when its time is up. */
static void ends_without_the_peer(struct rig *r, int opcode, size_t place)
{
    te_batch b = batch_of(r->e, WORKS);

    freeze_peer(&first);
    for (int i = 0; i < WORKS - 1; i++)
        submit(r, b, opcode, place, &first, 0);
    submit(r, b, opcode, place, &first, 100);
    WAIT_FOR(state_of(r->e, b, WORKS - 1) == TE_TIMEOUT);
    assert_int_equal(te_wait(r->e, b, 200), TE_ERR_TIMEOUT);
    assert_int_equal(te_cancel(r->e, b), 0);
    assert_int_equal(te_wait(r->e, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < WORKS - 1; i++)
        assert_int_equal(state_of(r->e, b, i), TE_CANCELED);
    assert_int_equal(kill(first.pid, SIGCONT), 0);
    assert_int_equal(te_batch_free(r->e, b), 0);
}

static void test_ends_without_the_peer(void **state)
{
    struct rig r = rig_up(TCP, &first);

    (void)state;
    for (size_t k = 1; k < PLACES; k++)
        for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
            if (r.mine.at[k])
                ends_without_the_peer(&r, opcode, k);
    rig_down(&r);
}

/* One peer that does not answer keeps nobody else from being served. */
static void others_go_on(const char *option)
{
    struct rig r = rig_up(option, &first);
    te_segment other;
    te_batch b;

    assert_int_equal(te_open(r.e, second.name, &other), 0);
    for (size_t k = 1; k < PLACES; k++) {
        if (!r.mine.at[k])
            continue;
        b = batch_of(r.e, WORKS);
        freeze_peer(&first);
        for (int i = 0; i < WORKS; i++)
            submit(&r, b, i % 2 ? TE_READ : TE_WRITE, k, &first, 0);
        fill(r.scratch, HALF, k);
        put(r.e, r.scratch, r.mine.at[k] + HALF, HALF);
        moves(r.e, TE_WRITE, r.mine.at[k] + HALF, other, (uintptr_t)second.mem.at[k], HALF);
        memset(r.scratch, 0, HALF);
        moves(r.e, TE_READ, r.scratch, other, (uintptr_t)second.mem.at[k], HALF);
        assert_int_equal(first_difference(r.scratch, HALF, k), HALF);
        assert_int_equal(te_wait(r.e, b, 0), TE_ERR_TIMEOUT);
        assert_int_equal(te_cancel(r.e, b), 0);
        assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
        assert_int_equal(kill(first.pid, SIGCONT), 0);
        assert_int_equal(te_batch_free(r.e, b), 0);
    }
    rig_down(&r);
}

static void test_others_go_on(void **state)
{
    (void)state;
    others_go_on(TCP);
}

/*
 * te_path() tells that the memory of a device went through the host's, and what has carried it from there;
 * staged_bytes_total has its bytes.
 */
static void test_path_is_told(void **state)
{
    struct rig r = rig_up(TCP, &second);
    size_t staged = 0;

    (void)state;
    for (size_t k = 0; k < PLACES; k++) {
        struct te_path path = {.size = sizeof path};
        te_batch b = batch_of(r.e, 1);

        if (r.mine.at[k]) {
            submit(&r, b, TE_READ, k, &second, 0);
            assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
            assert_int_equal(state_of(r.e, b, 0), TE_COMPLETED);
            assert_int_equal(te_path(r.e, b, 0, &path), 0);
            assert_string_equal(path.transport, "tcp");
            assert_int_equal(path.staged, k != PLACE_HOST);
            staged += path.staged * HALF;
            assert_int_equal(metric_of(r.e, "staged_bytes_total"), staged);
        }
        assert_int_equal(te_batch_free(r.e, b), 0);
    }
    rig_down(&r);
}

/* Four slots for all, and all comes through. */
static void test_little_memory(void **state)
{
    te_engine *e;
    struct memory mine;
    te_segment seg;
    void *scratch;
    te_options o;

    (void)state;
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "MC_FORCE_TCP", "1"), 0);
    assert_int_equal(te_option_set(&o, "TE_GPU_STAGE", "1048576"), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    take_memory(e, &mine);
    assert_int_equal(te_alloc(e, RIG_BYTES, NULL, &scratch), 0);
    assert_int_equal(te_register(e, scratch, RIG_BYTES, NULL, TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(e, second.name, &seg), 0);
    for (size_t k = 1; k < PLACES; k++) {
        if (!mine.at[k])
            continue;
        fill(scratch, RIG_BYTES, 10 + k);
        put(e, scratch, mine.at[k], RIG_BYTES);
        moves(e, TE_WRITE, mine.at[k], seg, (uintptr_t)second.mem.at[PLACE_HOST], RIG_BYTES);
        memset(scratch, 0, RIG_BYTES);
        put(e, scratch, mine.at[k], RIG_BYTES);
        moves(e, TE_READ, mine.at[k], seg, (uintptr_t)second.mem.at[PLACE_HOST], RIG_BYTES);
        get(e, scratch, mine.at[k], RIG_BYTES);
        assert_int_equal(first_difference(scratch, RIG_BYTES, 10 + k), RIG_BYTES);
    }
    te_engine_destroy(e);
}

/* A copy by the device that fails ends its request alone, with a text, and the next one is well. */
static void test_copy_fails(void **state)
{
    struct rig r = rig_up(TCP, &second);

    (void)state;
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        struct te_status st;

        if (!soft_control("fail copy count=1000"))
            break;
        st = move(r.e, opcode, r.mine.at[PLACE_CUDA0], r.seg, (uintptr_t)second.mem.at[PLACE_HOST],
                  RIG_BYTES);
        assert_int_equal(st.state, TE_FAILED);
        assert_int_equal(st.error, TE_ERR_CONTEXT);
        soft_control("clear");
        moves(r.e, opcode, r.mine.at[PLACE_CUDA0], r.seg, (uintptr_t)second.mem.at[PLACE_HOST],
              RIG_BYTES);
    }
    rig_down(&r);
}

/* Cancelled while the device stalls: it ends once the device has let go, and nothing comes after. */
static void test_cancel_while_the_device_stalls(void **state)
{
    struct rig r = rig_up(TCP, &second);
    te_batch b = batch_of(r.e, 4);

    (void)state;
    if (soft_control("stall ms=300")) {
        for (int i = 0; i < 4; i++)
            submit(&r, b, i % 2 ? TE_READ : TE_WRITE, PLACE_CUDA0, &second, 0);
        assert_int_equal(te_cancel(r.e, b), 0);
        assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(state_of(r.e, b, i), TE_CANCELED);
        soft_control("clear");
    }
    assert_int_equal(te_batch_free(r.e, b), 0);
    rig_down(&r);
}

/* ------------------------------------------------------------- within the engine, of two makers */

static bool has_two_makers(const struct rig *r)
{
    return r->mine.at[PLACE_CUDA0] && r->mine.at[PLACE_NPU];
}

/* From a CUDA device to an NPU, or back; READs have other memory than WRITEs, which they may run beside. */
static void submit_within(struct rig *r, te_batch b, int opcode, int64_t deadline_ms)
{
    size_t at = opcode == TE_READ ? HALF : 0;
    te_request req = {.opcode = opcode,
                      .source = r->mine.at[PLACE_CUDA0] + at,
                      .target = TE_LOCAL_SEGMENT,
                      .target_offset = (uintptr_t)r->mine.at[PLACE_NPU] + at,
                      .length = HALF};
    te_submit_opts o = {.size = sizeof o, .deadline_ms = deadline_ms};

    assert_int_equal(te_submit(r->e, b, &req, 1, &o), 0);
}

/* A device that stands still has no more than its share of the slots. */
static void test_two_makers_others_go_on(void **state)
{
    struct rig r = rig_up(NULL, NULL);
    te_batch b = batch_of(r.e, WORKS);
    char *cuda = r.mine.at[PLACE_CUDA0], *hip = r.mine.at[PLACE_HIP];

    (void)state;
    if (has_two_makers(&r) && hip && soft_control("stall kind=npu")) {
        for (int i = 0; i < WORKS; i++)
            submit_within(&r, b, TE_WRITE, 0);
        moves(r.e, TE_WRITE, cuda, TE_LOCAL_SEGMENT, (uintptr_t)hip, RIG_BYTES);
        assert_int_equal(te_wait(r.e, b, 0), TE_ERR_TIMEOUT);
        soft_control("release");
        assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
        for (size_t i = 0; i < WORKS; i++)
            assert_int_equal(state_of(r.e, b, i), TE_COMPLETED);
    }
    assert_int_equal(te_batch_free(r.e, b), 0);
    rig_down(&r);
}

static void test_two_makers_cancel(void **state)
{
    struct rig r = rig_up(NULL, NULL);
    te_batch b = batch_of(r.e, WORKS);

    (void)state;
    if (has_two_makers(&r) && soft_control("stall kind=npu")) {
        for (int i = 0; i < WORKS; i++)
            submit_within(&r, b, i % 2 ? TE_READ : TE_WRITE, 0);
        assert_int_equal(te_cancel(r.e, b), 0);
        soft_control("release");
        assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
        for (size_t i = 0; i < WORKS; i++)
            assert_int_equal(state_of(r.e, b, i), TE_CANCELED);
    }
    assert_int_equal(te_batch_free(r.e, b), 0);
    rig_down(&r);
}

/* Whether they were late, which they may not have been when the device went on. */
static bool ends_late(struct rig *r, int64_t stalled_ms)
{
    te_batch b = batch_of(r->e, 2);
    bool late;

    soft_control("stall kind=npu");
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
        submit_within(r, b, opcode, stalled_ms / 4);
    late = te_wait(r->e, b, stalled_ms) == TE_ERR_TIMEOUT; /* else nothing had come to the device */
    soft_control("release");
    assert_int_equal(te_wait(r->e, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 2; i++) {
        int state = state_of(r->e, b, i);

        assert_true(state == TE_TIMEOUT || state == TE_COMPLETED);
        late &= state == TE_TIMEOUT;
    }
    assert_int_equal(te_batch_free(r->e, b), 0);
    return late;
}

static void test_two_makers_deadline(void **state)
{
    struct rig r = rig_up(NULL, NULL);
    bool late = !has_two_makers(&r) || !soft_control("clear");

    (void)state;
    for (int64_t ms = 200; !late && ms < PATIENCE_MS; ms *= 4)
        late = ends_late(&r, ms);
    assert_true(late);
    rig_down(&r);
}

/* Of either device; with the device's error, and the next request is well. */
static void test_two_makers_copy_fails(void **state)
{
    static const char *const faults[] = {"fail copy count=1000 kind=cuda",
                                         "fail copy count=1000 kind=npu"};
    struct rig r = rig_up(NULL, NULL);

    (void)state;
    for (size_t i = 0; i < 4 && has_two_makers(&r) && soft_control(faults[i / 2]); i++) {
        char *cuda = r.mine.at[PLACE_CUDA0], *npu = r.mine.at[PLACE_NPU];
        int opcode = i % 2 ? TE_READ : TE_WRITE;
        struct te_status st = move(r.e, opcode, cuda, TE_LOCAL_SEGMENT, (uintptr_t)npu, RIG_BYTES);

        assert_int_equal(st.state, TE_FAILED);
        assert_int_equal(st.error, TE_ERR_CONTEXT);
        soft_control("clear");
        moves(r.e, opcode, cuda, TE_LOCAL_SEGMENT, (uintptr_t)npu, RIG_BYTES);
    }
    rig_down(&r);
}

/* ------------------------------------------------------------------------------------- no progress */

static te_engine *make_impatient_engine(int64_t no_progress_ms)
{
    char text[24];
    te_engine *e;
    te_options o;

    snprintf(text, sizeof text, "%lld", (long long)no_progress_ms);
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "MC_FORCE_TCP", "1"), 0);
    assert_int_equal(te_option_set(&o, "TE_GPU_STAGE", "1048576"), 0); /* four slots */
    assert_int_equal(te_option_set(&o, "TE_TRANSFER_TIMEOUT_MS", text), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    return e;
}

/*
 * Without a deadline: what waits for a slot ends when nothing has moved for so long, and what the
 * device has once it has let go. Whether anything had come to the device by then, and so long before
 * what waited that it was late, too.
 */
static bool ends_without_progress(int64_t no_progress_ms)
{
    struct rig r = {.e = make_impatient_engine(no_progress_ms)};
    te_batch b = batch_of(r.e, WORKS);
    bool stalled;

    take_memory(r.e, &r.mine);
    assert_int_equal(te_open(r.e, second.name, &r.seg), 0);
    soft_control("stall kind=cuda");
    for (int i = 0; i < WORKS; i++)
        submit(&r, b, TE_WRITE, PLACE_CUDA0, &second, 0);
    WAIT_FOR(state_of(r.e, b, WORKS - 1) == TE_FAILED);
    stalled = te_wait(r.e, b, 0) == TE_ERR_TIMEOUT;
    soft_control("release");
    assert_int_equal(te_wait(r.e, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < WORKS; i++) {
        struct te_status st;

        assert_int_equal(te_status(r.e, b, i, &st), 0);
        assert_true(st.error == TE_ERR_TIMEOUT || st.state == TE_COMPLETED);
        stalled &= st.error == TE_ERR_TIMEOUT;
    }
    assert_int_equal(te_batch_free(r.e, b), 0);
    te_engine_destroy(r.e);
    return stalled;
}

static void test_no_progress_while_the_device_stalls(void **state)
{
    bool stalled = !soft_control("clear"); /* a driver that is not to be told */

    (void)state;
    for (int64_t ms = 200; !stalled && ms < PATIENCE_MS; ms *= 4)
        stalled = ends_without_progress(ms);
    assert_true(stalled);
}

/* An engine that ends with requests under way leaves its host memory alone from then on. */
static void test_destroyed_under_way(void **state)
{
    te_engine *e = make_engine(TCP);
    char *mine = map_pages(RIG_BYTES);
    struct memory m;
    te_segment seg;
    te_batch b;

    (void)state;
    take_memory(e, &m);
    assert_int_equal(te_register(e, mine, RIG_BYTES, NULL, TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(e, first.name, &seg), 0);
    b = batch_of(e, 2 * PLACES);
    freeze_peer(&first);
    for (size_t k = 0; k < PLACES; k++) {
        te_request req = {.opcode = TE_READ,
                          .source = k ? m.at[k] : mine,
                          .target = seg,
                          .target_offset = (uintptr_t)first.mem.at[k],
                          .length = HALF};

        if (!m.at[k])
            continue;
        assert_int_equal(te_submit(e, b, &req, 1, NULL), 0);
        req.opcode = TE_WRITE;
        req.source = (char *)req.source + HALF;
        assert_int_equal(te_submit(e, b, &req, 1, NULL), 0);
    }
    assert_int_equal(state_of(e, b, 2), TE_WAITING);
    te_engine_destroy(e);
    memset(mine, 0x77, RIG_BYTES);
    assert_int_equal(kill(first.pid, SIGCONT), 0);
    usleep(50000);
    for (size_t i = 0; i < RIG_BYTES; i++)
        assert_int_equal(mine[i], 0x77);
    munmap(mine, RIG_BYTES);
}

/* What the engine keeps to stage in is no region of the caller's. */
static void test_its_own_memory_is_not_ours(void **state)
{
    struct rig r = rig_up(TCP, NULL);
    size_t known = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx", &from, &to) != 2 || (uintptr_t)r.scratch == from)
            continue;
        for (size_t k = 0; k < PLACES; k++)
            if ((uintptr_t)r.mine.at[k] == from)
                from = 0;
        if (from)
            assert_int_not_equal(te_unregister(r.e, (void *)from), 0);
        known += from == 0;
    }
    fclose(f);
    assert_true(known > 0);
    rig_down(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_ends_without_the_peer, thaw),
        cmocka_unit_test_teardown(test_others_go_on, thaw),
        cmocka_unit_test(test_path_is_told),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test_teardown(test_copy_fails, thaw),
        cmocka_unit_test_teardown(test_cancel_while_the_device_stalls, thaw),
        cmocka_unit_test_teardown(test_two_makers_others_go_on, thaw),
        cmocka_unit_test_teardown(test_two_makers_cancel, thaw),
        cmocka_unit_test_teardown(test_two_makers_deadline, thaw),
        cmocka_unit_test_teardown(test_two_makers_copy_fails, thaw),
        cmocka_unit_test_teardown(test_no_progress_while_the_device_stalls, thaw),
        cmocka_unit_test_teardown(test_destroyed_under_way, thaw),
        cmocka_unit_test(test_its_own_memory_is_not_ours),
    };
    int rc;

    first = start_peer(TCP);
    second = start_peer(TCP);
    if (!has_devices(&first.mem)) {
        puts("there is no CUDA or HIP device");
        return 77;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    stop_peer(&second);
    stop_peer(&first);
    return rc;
}
