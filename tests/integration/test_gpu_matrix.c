/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=240 */
/*
 * Every pair of local and remote memory, through whole engines: memory of the host, of two CUDA
 * devices, and of a HIP, an Ascend and a MUSA device, in this process and in another one, by what the engine picks itself,
 * by tcp alone, by nvlink_intra, and to a file. A kind of device that is not there is left out; with
 * none at all there is nothing to test.
 */
#include "child_engine.h"
#include "gpu_rig.h"
#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE RIG_BYTES

#ifdef __SANITIZE_THREAD__ /* all would take minutes */
static const size_t sizes[] = {7, 1000003};
#else
static const size_t sizes[] = {1, 7, 4097, 65536, 262144, 262145, 1000003, 5000011};
#endif

/* ------------------------------------------------------------------------------------- transfers */

/* Out to the target and back to another place; what lies beside it stays as it was. */
static void round_trip(te_engine *e, char *scratch, char *mine, te_segment seg, uint64_t theirs,
                       size_t n, uint64_t seed)
{
    size_t from = 3 + n % 5, to = 1 + n % 3, back = SIZE - n - 2;

    fill(scratch, n, seed);
    put(e, scratch, mine + from, n);
    moves(e, TE_WRITE, mine + from, seg, theirs + to, n);
    memset(scratch, 0x5A, SIZE);
    put(e, scratch, mine, SIZE);
    moves(e, TE_READ, mine + back, seg, theirs + to, n);
    get(e, scratch, mine, SIZE);
    assert_int_equal(first_difference(scratch + back, n, seed), n);
    for (size_t i = 0; i < SIZE; i++)
        if ((i < back || i >= back + n) && scratch[i] != 0x5A)
            fail_msg("byte %zu beside %zu bytes at %zu has changed", i, n, back);
}

static void try_sizes(te_engine *e, char *scratch, char *mine, te_segment seg, uint64_t theirs,
                      size_t from, size_t step)
{
    for (size_t i = from; i < sizeof sizes / sizeof sizes[0]; i += step)
        round_trip(e, scratch, mine, seg, theirs, sizes[i], 1000 * i + (uintptr_t)mine % 97);
}

static void try_pair(te_engine *e, char *scratch, char *mine, te_segment seg, uint64_t theirs)
{
    try_sizes(e, scratch, mine, seg, theirs, 0, 1);
}

/* No driver copies between devices of two makers. */
static bool are_of_two_makers(size_t a, size_t b)
{
    return a != PLACE_HOST && b != PLACE_HOST && strncmp(places[a], places[b], 3) != 0;
}

/* What te_path() and te_explain() say of it. */
static void is_staged(te_engine *e, char *mine, char *theirs, bool staged)
{
    te_request r = {.opcode = TE_WRITE,
                    .source = mine,
                    .target = TE_LOCAL_SEGMENT,
                    .target_offset = (uintptr_t)theirs,
                    .length = 1000};
    struct te_path path = {.size = sizeof path};
    char text[4096];
    te_batch b;

    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    assert_int_equal(strstr(text, "copied through host memory") != NULL, staged);
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_path(e, b, 0, &path), 0);
    assert_int_equal(path.staged, staged);
    assert_int_equal(te_batch_free(e, b), 0);
}

/* The line of te_explain() that tells what carries it. */
static void is_taken(te_engine *e, void *local, te_segment seg, uint64_t remote,
                     const char *transport)
{
    te_request r = {.opcode = TE_WRITE,
                    .source = local,
                    .target = seg,
                    .target_offset = remote,
                    .length = 1000};
    char text[4096], *line;

    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    line = strstr(text, ", taken");
    assert_non_null(line);
    while (line > text && line[-1] != '\n')
        line--;
    if (strncmp(line + strlen("transport "), transport, strlen(transport)) != 0)
        fail_msg("not %s:\n%s", transport, text);
}

/* ----------------------------------------------------------------------------------------- tests */

/* Forked in main(): by no option, MC_FORCE_TCP, MC_INTRA_NVLINK, MC_FORCE_MUSA. */
static struct peer by_itself, by_tcp, by_nvlink, by_musa;

static void test_within_the_engine(void **state)
{
    struct rig r = rig_up(NULL, NULL);

    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        void *other = NULL;

        for (size_t k = 0; k < PLACES; k++) {
            bool apart = are_of_two_makers(i, k);

            if (!r.mine.at[i] || te_alloc(r.e, SIZE, places[k], &other))
                continue;
            assert_int_equal(te_register(r.e, other, SIZE, NULL, TE_LOCAL_ONLY), 0);
            try_sizes(r.e, r.scratch, r.mine.at[i], TE_LOCAL_SEGMENT, (uintptr_t)other, apart,
                      apart ? 3 : 1);
            is_staged(r.e, r.mine.at[i], other, apart);
            assert_int_equal(te_unregister(r.e, other), 0);
            assert_int_equal(te_free(r.e, other), 0);
        }
    }
    rig_down(&r);
}

static void over_all_pairs(struct rig *r, const struct peer *p)
{
    for (size_t i = 0; i < PLACES; i++)
        for (size_t k = 0; k < PLACES; k++)
            if (r->mine.at[i] && p->mem.at[k])
                try_pair(r->e, r->scratch, r->mine.at[i], r->seg, (uintptr_t)p->mem.at[k]);
}

static const char *const own_transport[PLACES] = {
    [PLACE_HIP] = "hip", [PLACE_NPU] = "ascend", [PLACE_MUSA] = "musa"};

static void test_what_is_picked(void **state)
{
    struct rig r = rig_up(NULL, &by_itself);

    (void)state;
    over_all_pairs(&r, &by_itself);
    is_taken(r.e, r.mine.at[0], r.seg, (uintptr_t)by_itself.mem.at[0], "host");
    for (size_t k = 1; k <= 2; k++) {
        if (!r.mine.at[k] || !by_itself.mem.at[k])
            continue;
        is_taken(r.e, r.mine.at[k], r.seg, (uintptr_t)by_itself.mem.at[k], "nvlink_intra");
        is_taken(r.e, r.mine.at[0], r.seg, (uintptr_t)by_itself.mem.at[k], "nvlink_intra");
        is_taken(r.e, r.mine.at[k], r.seg, (uintptr_t)by_itself.mem.at[0], "host");
    }
    for (size_t k = PLACE_HIP; k < PLACES; k++)
        if (r.mine.at[k] && by_itself.mem.at[k])
            is_taken(r.e, r.mine.at[k], r.seg, (uintptr_t)by_itself.mem.at[k], own_transport[k]);
    rig_down(&r);
}

static void test_tcp_alone(void **state)
{
    struct rig r = rig_up("MC_FORCE_TCP=1", &by_tcp);

    (void)state;
    over_all_pairs(&r, &by_tcp);
    for (size_t i = 0; i < PLACES; i++)
        for (size_t k = 0; k < PLACES; k++)
            if (r.mine.at[i] && by_tcp.mem.at[k])
                is_taken(r.e, r.mine.at[i], r.seg, (uintptr_t)by_tcp.mem.at[k], "tcp");
    rig_down(&r);
}

static void test_nvlink_intra_asked_for(void **state)
{
    struct rig r;

    (void)state;
    if (!by_nvlink.pid)
        skip();
    r = rig_up("MC_INTRA_NVLINK=1", &by_nvlink);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 1; k < 3; k++) {
            if (!r.mine.at[i] || !by_nvlink.mem.at[k])
                continue;
            try_pair(r.e, r.scratch, r.mine.at[i], r.seg, (uintptr_t)by_nvlink.mem.at[k]);
            is_taken(r.e, r.mine.at[i], r.seg, (uintptr_t)by_nvlink.mem.at[k], "nvlink_intra");
        }
    rig_down(&r);
}

static void test_musa_asked_for(void **state)
{
    static const size_t mine[] = {PLACE_HOST, PLACE_MUSA};
    struct rig r;

    (void)state;
    if (!by_musa.pid)
        skip();
    r = rig_up("MC_FORCE_MUSA=1", &by_musa);
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++) {
        uint64_t theirs = (uintptr_t)by_musa.mem.at[PLACE_MUSA];

        try_pair(r.e, r.scratch, r.mine.at[mine[i]], r.seg, theirs);
        is_taken(r.e, r.mine.at[mine[i]], r.seg, theirs, "musa");
    }
    rig_down(&r);
}

static void test_files(void **state)
{
    struct rig r = rig_up(NULL, NULL);
    char path[] = "/tmp/te-gpu-XXXXXX", uri[64];
    te_segment seg;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && posix_fallocate(fd, 0, (off_t)SIZE) == 0);
    snprintf(uri, sizeof uri, "file://%s", path);
    assert_int_equal(te_open(r.e, uri, &seg), 0);
    for (size_t i = 0; i < PLACES; i++)
        if (r.mine.at[i])
            try_pair(r.e, r.scratch, r.mine.at[i], seg, 0);
    rig_down(&r);
    close(fd);
    unlink(path);
}

/* Many short blocks at odd places, in one batch, both ways. */
static void scatter(struct rig *r, int opcode, char *mine, uint64_t theirs)
{
    enum { BLOCKS = 300, LEN = 9001 };
    te_request reqs[BLOCKS];
    struct te_status st;
    te_batch b;

    for (size_t i = 0; i < BLOCKS; i++)
        reqs[i] = (te_request){.opcode = opcode,
                               .source = mine + i * LEN,
                               .target = r->seg,
                               .target_offset = theirs + (BLOCKS - 1 - i) * LEN,
                               .length = LEN - i % 100};
    assert_int_equal(te_batch_alloc(r->e, BLOCKS, &b), 0);
    assert_int_equal(te_submit(r->e, b, reqs, BLOCKS, NULL), 0);
    assert_int_equal(te_wait(r->e, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(r->e, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(te_batch_free(r->e, b), 0);
    for (size_t i = 0; i < BLOCKS && opcode == TE_READ; i++) {
        get(r->e, r->scratch, mine + i * LEN, LEN - i % 100);
        assert_int_equal(first_difference(r->scratch, LEN - i % 100, i), LEN - i % 100);
    }
}

static void test_scattered(void **state)
{
    struct rig r = rig_up("MC_FORCE_TCP=1", &by_tcp);

    (void)state;
    for (size_t k = 1; k < PLACES; k++) {
        if (!r.mine.at[k])
            continue;
        for (size_t i = 0; i < 300; i++) {
            fill(r.scratch, 9001, i);
            put(r.e, r.scratch, r.mine.at[k] + i * 9001, 9001);
        }
        scatter(&r, TE_WRITE, r.mine.at[k], (uintptr_t)by_tcp.mem.at[k]);
        scatter(&r, TE_READ, r.mine.at[k], (uintptr_t)by_tcp.mem.at[k]);
    }
    rig_down(&r);
}

static void test_bad_places(void **state)
{
    te_engine *e = make_engine(NULL);
    void *p = NULL, *host = NULL;

    (void)state;
    assert_int_not_equal(te_alloc(e, 4096, "cuda:99", &p), 0);
    assert_non_null(strstr(te_errmsg(), "99"));
    assert_int_equal(te_alloc(e, 4096, "cuda:x", &p), TE_ERR_INVALID);
    assert_int_equal(te_alloc(e, 4096, "mlu:0", &p), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_alloc(e, 65536, NULL, &host), 0);
    assert_int_equal(te_register(e, host, 65536, "cuda:0", TE_REMOTE_RW), TE_ERR_INVALID);
    if (te_alloc(e, 65536, "cuda:0", &p) == 0) {
        assert_int_equal(te_register(e, p, 65536, "cpu:0", TE_REMOTE_RW), TE_ERR_INVALID);
        assert_int_equal(te_register(e, p, (size_t)1 << 40, NULL, TE_REMOTE_RW), TE_ERR_INVALID);
        assert_int_equal(te_free(e, p), 0);
    }
    assert_int_equal(te_free(e, host), 0);
    te_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_the_engine), cmocka_unit_test(test_what_is_picked),
        cmocka_unit_test(test_tcp_alone),         cmocka_unit_test(test_nvlink_intra_asked_for),
        cmocka_unit_test(test_musa_asked_for),    cmocka_unit_test(test_files),
        cmocka_unit_test(test_scattered),         cmocka_unit_test(test_bad_places),
    };
    int rc;

    by_itself = start_peer(NULL);
    by_tcp = start_peer("MC_FORCE_TCP=1");
    if (!has_devices(&by_itself.mem)) {
        printf("there is no device\n");
        return 77;
    }
    if (by_itself.mem.at[1])
        by_nvlink = start_peer("MC_INTRA_NVLINK=1");
    if (by_itself.mem.at[PLACE_MUSA])
        by_musa = start_peer("MC_FORCE_MUSA=1");
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    /* Each has what keeps the ones before it going. */
    if (by_musa.pid)
        stop_peer(&by_musa);
    if (by_nvlink.pid)
        stop_peer(&by_nvlink);
    stop_peer(&by_tcp);
    stop_peer(&by_itself);
    return rc;
}
