/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Every pair of local and remote memory, through whole engines: memory of the host, of two CUDA
 * devices and of a HIP device, in this process and in another one, by what the engine picks itself,
 * by tcp alone, by nvlink_intra, and to a file. A kind of device that is not there is left out; with
 * none at all there is nothing to test.
 */
#include "child_engine.h"
#include "te.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   ((size_t)6 << 20)
#define PLACES 4

/* Where memory is; those that this machine does not have stay NULL. */
static const char *const places[PLACES] = {"cpu:0", "cuda:0", "cuda:1", "hip:0"};

struct memory {
    char *at[PLACES];
};

/* An engine in a process of its own, with memory at every place. */
struct peer {
    pid_t pid;
    int hold; /* it serves until this is closed */
    char name[300];
    struct memory mem;
};

#ifdef __SANITIZE_THREAD__ /* all would take minutes */
static const size_t sizes[] = {7, 1000003};
#else
static const size_t sizes[] = {1, 7, 4097, 65536, 262144, 262145, 1000003, 5000011};
#endif

static te_engine *make_engine(const char *option)
{
    te_engine *e = NULL;
    te_options o;

    loopback_options(&o);
    if (option)
        assert_int_equal(te_option_set(&o, option, "1"), 0);
    if (te_engine_create(&o, &e))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return e;
}

static void take_memory(te_engine *e, struct memory *m)
{
    for (size_t i = 0; i < PLACES; i++) {
        void *p = NULL;

        m->at[i] = NULL;
        if (te_alloc(e, SIZE, places[i], &p))
            continue;
        if (te_register(e, p, SIZE, i ? "*" : places[i], TE_REMOTE_RW))
            fail_msg("%s: %s", places[i], te_errmsg());
        m->at[i] = p;
    }
}

static void give_memory(te_engine *e, const struct memory *m)
{
    for (size_t i = 0; i < PLACES; i++) {
        if (!m->at[i])
            continue;
        assert_int_equal(te_unregister(e, m->at[i]), 0);
        assert_int_equal(te_free(e, m->at[i]), 0);
    }
}

/* --------------------------------------------------------------------------------------- the peer */

static void serve(const char *option, int out, int hold)
{
    struct peer me = {0};
    te_engine *e;
    char c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    e = make_engine(option);
    take_memory(e, &me.mem);
    if (te_engine_name(e, me.name, sizeof me.name) || write(out, &me, sizeof me) != sizeof me)
        _exit(1);
    while (read(hold, &c, 1) > 0)
        continue;
    give_memory(e, &me.mem);
    te_engine_destroy(e);
    _exit(0);
}

/* Before this process has opened a driver: a forked child could not use it. */
static struct peer start_peer(const char *option)
{
    struct peer p;
    int out[2], hold[2];
    pid_t pid;

    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(hold), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(out[0]);
        close(hold[1]);
        serve(option, out[1], hold[0]);
    }
    close(out[1]);
    close(hold[0]);
    if (read(out[0], &p, sizeof p) != sizeof p)
        fail_msg("the peer did not come up");
    close(out[0]);
    p.pid = pid;
    p.hold = hold[1];
    return p;
}

static void stop_peer(struct peer *p)
{
    int status;

    close(p->hold);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_int_equal(status, 0);
}

/* ------------------------------------------------------------------------------------- transfers */

static struct te_status move(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote,
                             size_t n)
{
    te_request r = {
        .opcode = opcode, .source = local, .target = seg, .target_offset = remote, .length = n};
    struct te_status st;
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    if (te_submit(e, b, &r, 1, NULL))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_wait(e, b, 30000), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    if (st.state != TE_COMPLETED) {
        char msg[512] = "";

        te_status_msg(e, b, 0, msg, sizeof msg);
        print_message("state %d: %s\n", st.state, msg);
    }
    assert_int_equal(te_batch_free(e, b), 0);
    return st;
}

static void moves(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote, size_t n)
{
    struct te_status st = move(e, opcode, local, seg, remote, n);

    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, n);
}

/* What the host wants in memory at any place of its own, or wants to see of it. */
static void put(te_engine *e, char *scratch, char *to, size_t n)
{
    moves(e, TE_WRITE, scratch, TE_LOCAL_SEGMENT, (uintptr_t)to, n);
}

static void get(te_engine *e, char *scratch, const char *from, size_t n)
{
    moves(e, TE_READ, scratch, TE_LOCAL_SEGMENT, (uintptr_t)from, n);
}

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

static void try_pair(te_engine *e, char *scratch, char *mine, te_segment seg, uint64_t theirs)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        round_trip(e, scratch, mine, seg, theirs, sizes[i], 1000 * i + (uintptr_t)mine % 97);
}

static bool has_devices(const struct memory *m)
{
    for (size_t i = 1; i < PLACES; i++)
        if (m->at[i])
            return true;
    return false;
}

static bool may_meet(size_t a, size_t b)
{
    /* No driver copies between devices of two makers. */
    return !((a == 3 && (b == 1 || b == 2)) || (b == 3 && (a == 1 || a == 2)));
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

/* Forked in main(): by no option, MC_FORCE_TCP, MC_INTRA_NVLINK. */
static struct peer by_itself, by_tcp, by_nvlink;

struct rig {
    te_engine *e;
    struct memory mine;
    char *scratch;
    te_segment seg;
};

static struct rig rig_up(const char *option, const struct peer *p)
{
    struct rig r = {.e = make_engine(option)};
    void *scratch;

    take_memory(r.e, &r.mine);
    assert_int_equal(te_alloc(r.e, SIZE, "cpu:0", &scratch), 0);
    assert_int_equal(te_register(r.e, scratch, SIZE, "cpu:0", TE_LOCAL_ONLY), 0);
    r.scratch = scratch;
    if (p)
        assert_int_equal(te_open(r.e, p->name, &r.seg), 0);
    return r;
}

static void rig_down(struct rig *r)
{
    give_memory(r->e, &r->mine);
    assert_int_equal(te_unregister(r->e, r->scratch), 0);
    assert_int_equal(te_free(r->e, r->scratch), 0);
    te_engine_destroy(r->e);
}

static void test_within_the_engine(void **state)
{
    struct rig r = rig_up(NULL, NULL);

    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        void *other = NULL;

        for (size_t k = 0; k < PLACES; k++) {
            if (!r.mine.at[i] || !may_meet(i, k) || te_alloc(r.e, SIZE, places[k], &other))
                continue;
            assert_int_equal(te_register(r.e, other, SIZE, NULL, TE_LOCAL_ONLY), 0);
            try_pair(r.e, r.scratch, r.mine.at[i], TE_LOCAL_SEGMENT, (uintptr_t)other);
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
    if (r.mine.at[3] && by_itself.mem.at[3])
        is_taken(r.e, r.mine.at[3], r.seg, (uintptr_t)by_itself.mem.at[3], "hip");
    rig_down(&r);
}

static void test_tcp_alone(void **state)
{
    struct rig r = rig_up("MC_FORCE_TCP", &by_tcp);

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
    r = rig_up("MC_INTRA_NVLINK", &by_nvlink);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 1; k < 3; k++) {
            if (!r.mine.at[i] || !by_nvlink.mem.at[k])
                continue;
            try_pair(r.e, r.scratch, r.mine.at[i], r.seg, (uintptr_t)by_nvlink.mem.at[k]);
            is_taken(r.e, r.mine.at[i], r.seg, (uintptr_t)by_nvlink.mem.at[k], "nvlink_intra");
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
    assert_int_equal(te_wait(r->e, b, 30000), 0);
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
    struct rig r = rig_up("MC_FORCE_TCP", &by_tcp);

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

/* What waits behind a peer that does not answer ends when it is cancelled, or when its time is up. */
static void test_ends_without_the_peer(void **state)
{
    struct rig r = rig_up("MC_FORCE_TCP", &by_tcp);

    (void)state;
    for (size_t k = 1; k < PLACES; k++)
        for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
            te_request req = {.opcode = opcode,
                              .source = r.mine.at[k],
                              .target = r.seg,
                              .target_offset = (uintptr_t)by_tcp.mem.at[0],
                              .length = SIZE};
            te_submit_opts late = {.size = sizeof late, .deadline_ms = 100};
            struct te_status st;
            te_batch b;

            if (!r.mine.at[k])
                continue;
            assert_int_equal(kill(by_tcp.pid, SIGSTOP), 0);
            assert_int_equal(te_batch_alloc(r.e, 40, &b), 0);
            for (int i = 0; i < 39; i++)
                assert_int_equal(te_submit(r.e, b, &req, 1, NULL), 0);
            assert_int_equal(te_submit(r.e, b, &req, 1, &late), 0);
            te_wait(r.e, b, 400);
            assert_int_equal(te_status(r.e, b, 39, &st), 0);
            assert_int_equal(st.state, TE_TIMEOUT);
            assert_int_equal(te_cancel(r.e, b), 0);
            assert_int_equal(te_wait(r.e, b, 10000), 0);
            assert_int_equal(te_status(r.e, b, 0, &st), 0);
            assert_int_equal(st.state, TE_CANCELED);
            assert_int_equal(kill(by_tcp.pid, SIGCONT), 0);
            assert_int_equal(te_batch_free(r.e, b), 0);
        }
    rig_down(&r);
}

static void test_destroyed_under_way(void **state)
{
    te_engine *e = make_engine("MC_FORCE_TCP");
    struct memory mine;
    te_segment seg;
    te_batch b;

    (void)state;
    take_memory(e, &mine);
    assert_int_equal(te_open(e, by_tcp.name, &seg), 0);
    assert_int_equal(te_batch_alloc(e, PLACES, &b), 0);
    for (size_t k = 1; k < PLACES; k++) {
        te_request req = {.opcode = TE_WRITE,
                          .source = mine.at[k],
                          .target = seg,
                          .target_offset = (uintptr_t)by_tcp.mem.at[k],
                          .length = SIZE};

        if (mine.at[k])
            assert_int_equal(te_submit(e, b, &req, 1, NULL), 0);
    }
    te_engine_destroy(e);
}

static void test_bad_places(void **state)
{
    te_engine *e = make_engine(NULL);
    void *p = NULL, *host = NULL;

    (void)state;
    assert_int_not_equal(te_alloc(e, 4096, "cuda:99", &p), 0);
    assert_non_null(strstr(te_errmsg(), "99"));
    assert_int_equal(te_alloc(e, 4096, "cuda:x", &p), TE_ERR_INVALID);
    assert_int_equal(te_alloc(e, 4096, "musa:0", &p), TE_ERR_UNSUPPORTED);
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
        cmocka_unit_test(test_within_the_engine),
        cmocka_unit_test(test_what_is_picked),
        cmocka_unit_test(test_tcp_alone),
        cmocka_unit_test(test_nvlink_intra_asked_for),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_scattered),
        cmocka_unit_test(test_ends_without_the_peer),
        cmocka_unit_test(test_destroyed_under_way),
        cmocka_unit_test(test_bad_places),
    };
    int rc;

    by_itself = start_peer(NULL);
    by_tcp = start_peer("MC_FORCE_TCP");
    if (!has_devices(&by_itself.mem)) {
        printf("there is no CUDA or HIP device\n");
        return 77;
    }
    if (by_itself.mem.at[1])
        by_nvlink = start_peer("MC_INTRA_NVLINK");
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    /* Each has what keeps the ones before it going. */
    if (by_nvlink.pid)
        stop_peer(&by_nvlink);
    stop_peer(&by_tcp);
    stop_peer(&by_itself);
    return rc;
}
