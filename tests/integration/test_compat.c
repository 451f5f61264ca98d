/* SPDX-License-Identifier: Apache-2.0 */
/* The C names of Mooncake's engine: every function once, the old polling loop, and the errors. */
#include "patience.h"
#include "te.h"
#include "transfer_engine_c.h"

#include "base/tsan.h"
#include "child_engine.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SIZE ((size_t)1 << 20)

struct two {
    transfer_engine_t a, b;
    unsigned char *am, *bm;
    char name[300];
    segment_id_t seg;
};

static int setup(void **state)
{
    struct two *t = calloc(1, sizeof(*t));

    assert_non_null(t);
    /* Both ask for the same port: each must come up. */
    t->a = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 12345, 1);
    t->b = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 12345, 0);
    assert_true(t->a && t->b);
    assert_int_equal(discoverTopology(t->b), 0);
    assert_non_null(installTransport(t->b, "tcp", NULL));
    t->am = map_pages(SIZE);
    t->bm = map_pages(SIZE);
    assert_int_equal(registerLocalMemory(t->a, t->am, SIZE, "*", 1), 0);
    assert_int_equal(registerLocalMemory(t->b, t->bm, SIZE, "cpu:0", 1), 0);
    assert_int_equal(getLocalIpAndPort(t->b, t->name, sizeof(t->name)), 0);
    t->seg = openSegment(t->a, t->name);
    assert_true(t->seg > 0);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct two *t = *state;

    destroyTransferEngine(t->a);
    destroyTransferEngine(t->b);
    munmap(t->am, SIZE);
    munmap(t->bm, SIZE);
    free(t);
    return 0;
}

static void poll_to_end(struct two *t, batch_id_t b, size_t task, int want)
{
    transfer_status_t st = {0};

    do
        assert_int_equal(getTransferStatus(t->a, b, task, &st), 0);
    while (st.status != STATUS_COMPLETED && st.status != STATUS_FAILED);
    assert_int_equal(st.status, want);
}

static void write_and_read(void **state)
{
    struct two *t = *state;
    batch_id_t b = allocateBatchID(t->a, 2);
    transfer_request_t r = {.opcode = OPCODE_WRITE,
                            .source = t->am,
                            .target_id = t->seg,
                            .target_offset = (uintptr_t)t->bm + 3,
                            .length = 500001};

    assert_true(b != INVALID_BATCH);
    fill(t->am, 500001, 1);
    assert_int_equal(submitTransfer(t->a, b, &r, 1), 0);
    poll_to_end(t, b, 0, STATUS_COMPLETED);
    assert_int_equal(first_difference(t->bm + 3, 500001, 1), 500001);
    fill(t->bm, 1000, 2);
    r.opcode = OPCODE_READ;
    r.target_offset = (uintptr_t)t->bm;
    r.length = 1000;
    assert_int_equal(submitTransfer(t->a, b, &r, 1), 0);
    poll_to_end(t, b, 1, STATUS_COMPLETED);
    assert_int_equal(first_difference(t->am, 1000, 2), 1000);
    assert_int_equal(freeBatchID(t->a, b), 0);
    assert_true(freeBatchID(t->a, b) < 0);
    assert_true(freeBatchID(t->a, INVALID_BATCH) < 0);
}

static void refused_range_shows_failed(void **state)
{
    struct two *t = *state;
    batch_id_t b = allocateBatchID(t->a, 1);
    transfer_request_t r = {.opcode = OPCODE_READ,
                            .source = t->am,
                            .target_id = t->seg,
                            .target_offset = 4096,
                            .length = 64};

    assert_int_equal(submitTransfer(t->a, b, &r, 1), 0);
    poll_to_end(t, b, 0, STATUS_FAILED);
    assert_true(submitTransfer(t->a, b, &r, 1) < 0);
    assert_int_equal(freeBatchID(t->a, b), 0);
}

static void notifications(void **state)
{
    struct two *t = *state;
    notify_msg_t out = {.name = "n1", .msg = "hello"}, *in;
    transfer_request_t r = {.opcode = OPCODE_WRITE,
                            .source = t->am,
                            .target_id = t->seg,
                            .target_offset = (uintptr_t)t->bm,
                            .length = 1};
    batch_id_t b = allocateBatchID(t->a, 1);
    int n = -1;

    assert_null(getNotifsFromEngine(t->b, &n));
    assert_int_equal(n, 0);
    assert_int_equal(genNotifyInEngine(t->a, (uint64_t)t->seg, out), 0);
    in = getNotifsFromEngine(t->b, &n);
    assert_int_equal(n, 1);
    assert_string_equal(in[0].name, "n1");
    assert_string_equal(in[0].msg, "hello");
    assert_int_equal(freeNotifsMsgBuf(in, n), 0);
    assert_true(submitTransferWithNotify(t->a, b, &r, 0, out) < 0);
    assert_int_equal(submitTransferWithNotify(t->a, b, &r, 1, out), 0);
    poll_to_end(t, b, 0, STATUS_COMPLETED);
    WAIT_FOR((in = getNotifsFromEngine(t->b, &n)));
    assert_int_equal(n, 1);
    freeNotifsMsgBuf(in, n);
    assert_int_equal(freeBatchID(t->a, b), 0);
}

static void segments_and_memory(void **state)
{
    struct two *t = *state;
    unsigned char *m = map_pages(4 * 4096);
    buffer_entry_t bufs[2] = {{m, 4096}, {m + 8192, 4096}};
    void *addrs[2] = {m, m + 8192};
    nic_load_stat_t nic[2];
    size_t nics = 2;
    char text[1024];

    assert_int_equal(registerLocalMemoryBatch(t->b, bufs, 2, "*"), 0);
    assert_int_equal(registerLocalMemory(t->b, m, 1, "*", 1), -7);
    assert_int_equal(openSegmentNoCache(t->a, t->name), t->seg);
    assert_int_equal(syncSegmentCache(t->a), 0);
    assert_int_equal(removeLocalSegment(t->a, t->name), 0);
    assert_true(removeLocalSegment(t->a, "") < 0);
    assert_int_equal(unregisterLocalMemoryBatch(t->b, addrs, 2), 0);
    assert_int_equal(unregisterLocalMemory(t->b, m), -3);
    assert_int_equal(closeSegment(t->a, t->seg), 0);
    assert_int_equal(closeSegment(t->a, t->seg), 0);
    assert_true(closeSegment(t->a, t->seg) < 0);
    assert_int_equal(openSegment(t->a, ""), -1);
    assert_int_equal(openSegment(t->a, NULL), -1);
    assert_int_equal(openSegmentNoCache(t->a, "127.0.0.1:1"), -1);
    assert_int_equal(warmupEfaSegment(t->a, t->name), 0);
    assert_int_equal(warmupEfaSegment(t->a, "127.0.0.1:1"), 0);
    assert_int_equal(getNicLoadStats(t->a, nic, &nics), 0);
    assert_int_equal(nics, 0);
    assert_int_equal(getNicLoadStats(t->a, NULL, &nics), -1);
    assert_int_equal(showLinks(t->a, text, sizeof(text), 1), 0);
    assert_null(installTransport(t->a, "ascend", NULL));
    assert_int_equal(uninstallTransport(t->a, "tcp"), 0);
    munmap(m, 4 * 4096);
}

static void count_line(void *lines, enum te_log_level level, const char *line)
{
    (void)line;
    if (level >= TE_LOG_WARN)
        ++*(size_t *)lines;
}

/* A look at the machine that finds what there is gives no cause for a warning. */
static void discovery_is_silent(void **state)
{
    struct two *t = *state;
    size_t lines = 0;

    te_log_set_sink(count_line, &lines);
    assert_int_equal(discoverTopology(t->a), 0);
    te_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 0);
    assert_true(discoverTopology(NULL) < 0);
}

static void nonsense_is_an_error(void **state)
{
    transfer_status_t st;
    notify_msg_t n = {0};

    (void)state;
    assert_null(createTransferEngine("nosuch://x", "a", "", 0, 1));
    assert_null(createTransferEngine(NULL, "a", "", 0, 1));
    assert_true(allocateBatchID(NULL, 1) == INVALID_BATCH);
    assert_true(submitTransfer(NULL, 1, NULL, 0) < 0);
    assert_true(getTransferStatus(NULL, 1, 0, &st) < 0);
    assert_int_equal(openSegment(NULL, "a"), -1);
    assert_true(registerLocalMemory(NULL, &st, 1, "*", 1) < 0);
    assert_true(genNotifyInEngine(NULL, 1, n) < 0);
    destroyTransferEngine(NULL);
}

/* The call before fails, too, with a text of its own. */
#define FAILS_WITH(engine, call, text)                 \
    do {                                               \
        assert_int_equal(openSegment(engine, ""), -1); \
        assert_int_equal(call, TE_ERR_INVALID);        \
        assert_non_null(strstr(te_errmsg(), text));    \
    } while (0)

static void errors_have_their_texts(void **state)
{
    struct two *t = *state;
    transfer_request_t r = {.opcode = OPCODE_WRITE, .source = t->am, .target_id = t->seg};
    notify_msg_t good = {.name = "n", .msg = "m"}, bad = {.name = "n"};
    batch_id_t b = allocateBatchID(t->a, 1);
    nic_load_stat_t nic[1];
    size_t nics = 1;

    FAILS_WITH(t->a, submitTransferWithNotify(t->a, b, &r, 0, good), "first entry");
    FAILS_WITH(t->a, submitTransferWithNotify(t->a, b, NULL, 1, good), "first entry");
    FAILS_WITH(t->a, submitTransferWithNotify(t->a, b, &r, 1, bad), "notification is NULL");
    FAILS_WITH(t->a, getTransferStatus(t->a, b, 0, NULL), "status is NULL");
    FAILS_WITH(t->a, genNotifyInEngine(t->a, (uint64_t)INT32_MAX + 1, good), "2147483648 is no id");
    FAILS_WITH(t->a, getNicLoadStats(t->a, NULL, &nics), "stats or count is NULL");
    FAILS_WITH(t->a, getNicLoadStats(t->a, nic, NULL), "stats or count is NULL");
    FAILS_WITH(t->a, getNicLoadStats(NULL, nic, &nics), "engine is NULL");
    assert_int_equal(closeSegment(t->a, 77), TE_ERR_NOT_FOUND);
    assert_int_equal(removeLocalSegment(t->a, NULL), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "name is empty"));
    assert_int_equal(freeBatchID(t->a, b), 0);
}

/* In a process of its own, for it ends the process. */
static void graceful_shutdown(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);

        enableGracefulShutdown(e);
        kill(getpid(), SIGTERM);
        sleep(PATIENCE_MS / 1000);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

#ifndef __SANITIZE_THREAD__ /* which holds signals back in the child of a process that has threads */
/* A child that has forked off inherits the handler; its signals end it, and not the parent. */
static void signal_of_a_child(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
        pid_t child;

        enableGracefulShutdown(e);
        child = fork();
        if (child == 0) {
            raise(SIGTERM);
            _exit(3);
        }
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 128 + SIGTERM)
            _exit(4);
        usleep(200000);
        destroyTransferEngine(e);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(write_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_range_shows_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(notifications, setup, teardown),
        cmocka_unit_test_setup_teardown(segments_and_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(discovery_is_silent, setup, teardown),
        cmocka_unit_test(nonsense_is_an_error),
        cmocka_unit_test_setup_teardown(errors_have_their_texts, setup, teardown),
        cmocka_unit_test(graceful_shutdown),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(signal_of_a_child),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
