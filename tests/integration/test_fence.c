/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=240 */
/*
 * After te_fence() has given its certificate nothing of what was cancelled touches memory on either side:
 * round after round, WRITEs and READs of odd sizes are cancelled, some while the target is stopped; both
 * sides' memory is used for something else at once, and looked at a round later. A target that is
 * stopped, or was killed, gives no certificate.
 *
 *   test_fence [ROUNDS]
 */
#include "child_engine.h"
#include "draw.h"
#include "patience.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define WRITES 12
#define READS  4
#define SLOT   ((size_t)128 << 10)
#define BYTES  (WRITES * SLOT)

/* Of each path; 16 requests a round. Under a sanitizer it is the memory that is looked at. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static unsigned n_rounds = 20;
#else
static unsigned n_rounds = 60;
#endif

static unsigned all_ended; /* requests that were cancelled in time, of all paths */

struct rig {
    struct child_engine target;
    te_engine *engine;
    te_segment segment;
    unsigned char *from, *to; /* what WRITEs send, where READs put it; BYTES each */
    unsigned n_ended;         /* requests that did not complete */
    uint64_t seed;            /* what both memories have been given since; 0: nothing yet */
};

static void open_rig(struct rig *r)
{
    te_log_set_level(TE_LOG_ERROR); /* a warning for each that ends early */
    memset(r, 0, sizeof *r);
    draw_state = 4711;
    r->engine = child_open(&r->target, BYTES, &r->segment);
    r->from = map_pages(BYTES);
    r->to = map_pages(BYTES);
    assert_int_equal(te_register(r->engine, r->from, BYTES, "*", 0), 0);
    assert_int_equal(te_register(r->engine, r->to, BYTES, "*", 0), 0);
}

static void close_rig(struct rig *r)
{
    te_engine_destroy(r->engine);
    child_stop(&r->target);
    munmap(r->from, BYTES);
    munmap(r->to, BYTES);
}

static void thaw(const struct rig *r)
{
    assert_int_equal(kill(r->target.pid, SIGCONT), 0);
}

/* An odd part of slot `i`. */
static te_request request(struct rig *r, int opcode, size_t i)
{
    size_t at = i * SLOT + draw(4000);
    size_t length = 1 + draw(draw(4) ? SLOT - 4000 : 3000);

    return (te_request){opcode, (opcode == TE_WRITE ? r->from : r->to) + at, r->segment,
                        (uintptr_t)r->target.mem + at, length};
}

static te_batch submit(struct rig *r, const te_request *requests, size_t n)
{
    te_batch batch;

    assert_int_equal(te_batch_alloc(r->engine, n, &batch), 0);
    assert_int_equal(te_submit(r->engine, batch, requests, n, NULL), 0);
    return batch;
}

static te_batch submit_mix(struct rig *r)
{
    te_request requests[WRITES + READS];

    for (size_t i = 0; i < WRITES; i++)
        requests[i] = request(r, TE_WRITE, i);
    for (size_t i = 0; i < READS; i++)
        requests[WRITES + i] = request(r, TE_READ, i * (WRITES / READS));
    return submit(r, requests, WRITES + READS);
}

static void cancel(struct rig *r, te_batch batch, size_t n)
{
    struct te_status st;

    assert_int_equal(te_cancel(r->engine, batch), 0);
    assert_int_equal(te_wait(r->engine, batch, -1), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(te_status(r->engine, batch, i, &st), 0);
        r->n_ended += st.state != TE_COMPLETED;
    }
}

static int ask(struct rig *r, te_batch batch, unsigned n)
{
    size_t total = 99;
    int rc = n % 2 ? te_fence(r->engine, batch, 1000, NULL, 0, &total)
                   : te_fence_segment(r->engine, r->segment, 1000, NULL, 0, &total);

    assert_true(rc ? total > 0 : total == 0);
    return rc;
}

/* A machine that is slow enough can find the target silent, or connect to it in vain: asks again. */
static void certify(struct rig *r, te_batch batch, unsigned n)
{
    WAIT_FOR(ask(r, batch, n) == 0);
}

/* What it was given after the certificate, or the end, is there, and nothing else. */
static void look(const struct rig *r, const char *whose, const unsigned char *memory)
{
    size_t at = r->seed ? first_difference(memory, BYTES, r->seed) : BYTES;

    if (at < BYTES)
        fail_msg("round %" PRIu64 ": byte %zu of slot %zu at the %s was touched", r->seed / 2,
                 at % SLOT, at / SLOT, whose);
}

/* The local memory is quiet at once: nobody may even look at it. */
static void close_local(struct rig *r)
{
    assert_int_equal(mprotect(r->from, BYTES, PROT_NONE), 0);
    fill(r->to, BYTES, r->seed);
}

static void one_round(struct rig *r, unsigned n)
{
    bool stopped = n % 4 == 0;
    te_batch batch;

    assert_int_equal(mprotect(r->from, BYTES, PROT_READ | PROT_WRITE), 0);
    fill(r->from, BYTES, 2 * n + 1);
    if (stopped)
        child_freeze(&r->target);
    batch = submit_mix(r);
    if (draw(3))
        usleep((useconds_t)draw(1500));
    cancel(r, batch, WRITES + READS);
    r->seed = 2 * n + 2;
    close_local(r);
    if (stopped)
        thaw(r);
    certify(r, batch, n);
    fill(r->target.mem, BYTES, r->seed);
    assert_int_equal(te_batch_free(r->engine, batch), 0);
    usleep((useconds_t)draw(300));
    look(r, "target", r->target.mem);
    look(r, "initiator", r->to);
}

static void use(const char *host, const char *native, const char *version)
{
    setenv("TE_HOST_PATH", host, 1);
    setenv("TE_TCP_NATIVE", native, 1);
    setenv("MC_TCP_PROTO", version, 1);
}

static void rounds(const char *host, const char *native, const char *version)
{
    static struct rig r;

    use(host, native, version);
    open_rig(&r);
    for (unsigned n = 0; n < n_rounds; n++)
        one_round(&r, n);
    print_message("%u rounds, %u requests ended early\n", n_rounds, r.n_ended);
    assert_true(r.n_ended > 0 || host[0] == '1'); /* threads may be late to cancel a copy */
    all_ended += r.n_ended;
    close_rig(&r);
}

static void native(void **state)
{
    (void)state;
    rounds("0", "1", "2");
}

static void version_2(void **state)
{
    (void)state;
    rounds("0", "0", "2");
}

static void version_1(void **state)
{
    (void)state;
    rounds("0", "0", "1");
}

static void same_host(void **state)
{
    (void)state;
    rounds("1", "1", "2");
}

/* ------------------------------------------------------------------------ targets that do not answer */

/* A batch of one WRITE that was cancelled; *at is where it went. */
static te_batch cancelled_write(struct rig *r, te_request *q)
{
    te_batch batch;

    *q = request(r, TE_WRITE, draw(WRITES));
    batch = submit(r, q, 1);
    usleep(1000);
    cancel(r, batch, 1);
    return batch;
}

/*
 * The target is stopped with one of the WRITEs in its socket: cancels one after the other until there is
 * no certificate, since one may end before a byte of it was sent.
 */
static te_batch leave_unsettled(struct rig *r, te_request *q)
{
    te_batch batch;
    int rc = 0;

    for (int tries = PATIENCE_MS / 2; !rc && tries > 0; tries--) {
        batch = cancelled_write(r, q);
        rc = te_fence(r->engine, batch, 0, NULL, 0, NULL);
        if (!rc)
            assert_int_equal(te_batch_free(r->engine, batch), 0);
    }
    assert_int_equal(rc, TE_ERR_TIMEOUT);
    return batch;
}

/* The connection is up, so that bytes are sent at once. */
static void open_stopped(struct rig *r)
{
    te_request q;
    te_batch batch;
    struct te_status st;

    open_rig(r);
    q = (te_request){TE_WRITE, r->from, r->segment, (uintptr_t)r->target.mem, 1};
    batch = submit(r, &q, 1);
    assert_int_equal(te_wait(r->engine, batch, -1), 0);
    assert_int_equal(te_batch_status(r->engine, batch, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(te_fence(r->engine, batch, 0, NULL, 0, NULL), 0);
    assert_int_equal(te_batch_free(r->engine, batch), 0);
    child_freeze(&r->target);
}

static bool is_unknown(int rc)
{
    return rc == TE_ERR_TIMEOUT || rc == TE_ERR_PEER || rc == TE_ERR_LINK;
}

/* Whoever has stopped goes on: then there is a certificate, however often one has to ask. */
static void until_certified(struct rig *r)
{
    size_t total = 0;

    WAIT_FOR(te_fence_segment(r->engine, r->segment, 1000, NULL, 0, &total) == 0);
    assert_int_equal(total, 0);
}

static void stopped_with(const char *native, const char *version)
{
    static struct rig r;
    te_range unsafe = {0};
    size_t total = 0;
    te_request q;
    te_batch batch;
    int rc;

    use("0", native, version);
    open_stopped(&r);
    batch = leave_unsettled(&r, &q);
    rc = te_fence(r.engine, batch, 50, &unsafe, 1, &total);
    assert_true(is_unknown(rc));
    assert_non_null(strstr(te_errmsg(), r.target.name));
    assert_int_equal(total, 1);
    assert_int_equal(unsafe.target, r.segment);
    assert_int_equal(unsafe.target_offset, q.target_offset);
    assert_int_equal(unsafe.length, q.length);
    assert_int_equal(te_batch_free(r.engine, batch), 0);

    /* Of the segment it is known still, and maybe told with more around it. */
    rc = te_fence_segment(r.engine, r.segment, 50, &unsafe, 1, &total);
    assert_true(is_unknown(rc));
    assert_true(total > 0);
    assert_true(unsafe.length >= q.length || total > 1);
    thaw(&r);
    until_certified(&r);
    close_rig(&r);
}

/* Who only looks has the target asked, too: it gets its certificate without ever waiting. */
static void polled(void **state)
{
    static struct rig r;
    te_request q;
    te_batch batch;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    batch = leave_unsettled(&r, &q);
    thaw(&r);
    WAIT_FOR(te_fence(r.engine, batch, 0, NULL, 0, NULL) == 0);
    WAIT_FOR(te_fence_segment(r.engine, r.segment, 0, NULL, 0, NULL) == 0);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    close_rig(&r);
}

static void stopped(void **state)
{
    (void)state;
    stopped_with("1", "2");
}

static void stopped_version_2(void **state)
{
    (void)state;
    stopped_with("0", "2");
}

static void killed(void **state)
{
    static struct rig r;
    size_t total = 0;
    te_request q;
    te_batch batch;
    int rc;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    batch = leave_unsettled(&r, &q);
    assert_int_equal(kill(r.target.pid, SIGKILL), 0);
    /* Its connections end with it, which is a certificate where one was open; else nobody answers. */
    rc = te_fence(r.engine, batch, 2000, NULL, 0, &total);
    assert_true(rc == 0 || is_unknown(rc));
    assert_int_equal(total, rc ? 1 : 0);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    close_rig(&r);
}

/* What is asked of it in vain. */
static void misuse(void **state)
{
    static struct rig r;
    te_range unsafe;
    size_t total = 7;
    te_request q;
    te_batch batch;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    q = request(&r, TE_WRITE, 0);
    batch = submit(&r, &q, 1);
    assert_int_equal(te_fence(r.engine, batch, -1, &unsafe, 1, &total), TE_ERR_BUSY);
    assert_int_equal(te_fence(r.engine, batch, 0, NULL, 1, &total), TE_ERR_INVALID);
    assert_int_equal(te_fence_segment(r.engine, r.segment, 0, NULL, 1, &total), TE_ERR_INVALID);
    assert_int_equal(te_fence(r.engine, batch + 1000, 0, NULL, 0, &total), TE_ERR_NOT_FOUND);
    assert_int_equal(te_fence_segment(r.engine, 12345, 0, NULL, 0, &total), TE_ERR_NOT_FOUND);
    assert_int_equal(te_fence(NULL, batch, 0, NULL, 0, &total), TE_ERR_INVALID);
    assert_int_equal(te_fence_segment(NULL, r.segment, 0, NULL, 0, &total), TE_ERR_INVALID);
    assert_int_equal(total, 7);
    cancel(&r, batch, 1);
    thaw(&r);
    certify(&r, batch, 1);
    assert_int_equal(te_fence_segment(r.engine, TE_LOCAL_SEGMENT, 0, &unsafe, 1, &total), 0);
    assert_int_equal(total, 0);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    close_rig(&r);
}

/* Of a segment that is closed nobody can tell; opened again, it is known that something is on the way. */
static void closed_segment(void **state)
{
    static struct rig r;
    te_range unsafe = {0};
    size_t total = 0;
    te_request q;
    te_batch batch;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    batch = leave_unsettled(&r, &q);
    assert_int_equal(te_close(r.engine, r.segment), 0);
    assert_int_equal(te_fence(r.engine, batch, 0, &unsafe, 1, &total), TE_ERR_LINK);
    assert_int_equal(total, 1);
    assert_int_equal(unsafe.target_offset, q.target_offset);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    thaw(&r);
    assert_int_equal(te_open(r.engine, r.target.name, &r.segment), 0);
    until_certified(&r);
    close_rig(&r);
}

static bool is_covered(const te_range *ranges, size_t n, uint64_t at)
{
    for (size_t i = 0; i < n; i++)
        if (ranges[i].target_offset <= at && at - ranges[i].target_offset < ranges[i].length)
            return true;
    return false;
}

/* Why tcp cannot be taken out is said with the segment that it is for, and what helps. */
static bool is_refused(te_engine *e, const char *what)
{
    assert_int_equal(te_transport_uninstall(e, "tcp"), TE_ERR_BUSY);
    return strstr(te_errmsg(), what);
}

static void transport_stays(void **state)
{
    static struct rig r;
    char what[400];
    te_request q;
    te_batch batch;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    batch = leave_unsettled(&r, &q);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    snprintf(what, sizeof what, "applied at segment '%s'; try again when its engine has",
             r.target.name);
    WAIT_FOR(is_refused(r.engine, what));
    assert_non_null(strstr(te_errmsg(), "once the segment is closed"));
    assert_int_equal(te_close(r.engine, r.segment), 0);
    WAIT_FOR(is_refused(r.engine, "at a segment that was closed since; try again when its engine"));
    thaw(&r);
    WAIT_FOR(te_transport_uninstall(r.engine, "tcp") == 0);
    assert_int_equal(te_transport_install(r.engine, "tcp", NULL), 0);
    assert_int_equal(te_open(r.engine, r.target.name, &r.segment), 0);
    close_rig(&r);
}

/* All WRITEs to the segment count then, once. */
static void requests_of_pages(void **state)
{
    static struct rig r;
    te_range unsafe[8];
    size_t total = 0;
    te_batch batch;
    int rc = 0;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r);
    for (int tries = PATIENCE_MS / 2; !rc && tries > 0; tries--) {
        te_pages pages = {.size = sizeof pages,
                          .opcode = TE_WRITE,
                          .target = r.segment,
                          .length = SLOT,
                          .n = 2,
                          .index_bits = 32};

        pages.local = (te_page_side){.base = (uintptr_t)r.from, .pages = 2, .stride = SLOT};
        pages.remote = (te_page_side){.base = (uintptr_t)r.target.mem, .pages = 2, .stride = SLOT};
        assert_int_equal(te_batch_alloc(r.engine, 3, &batch), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(te_submit_pages(r.engine, batch, &pages, NULL), 0);
        usleep(1000);
        cancel(&r, batch, 3);
        rc = te_fence(r.engine, batch, 0, unsafe, 8, &total);
        assert_int_equal(te_batch_free(r.engine, batch), 0);
    }
    assert_true(is_unknown(rc));
    assert_in_range(total, 1, 8);
    for (size_t i = 0; i < total; i++)
        assert_false(is_covered(unsafe, i, unsafe[i].target_offset));
    thaw(&r);
    until_certified(&r);
    close_rig(&r);
}

/* The metrics tell how often. */
static void counted(void **state)
{
    static struct rig r;
    static char text[256 << 10];
    te_request q;
    te_batch batch;

    (void)state;
    use("0", "1", "2");
    open_stopped(&r); /* one that is quiet */
    batch = leave_unsettled(&r, &q);
    assert_int_equal(te_stats_text(r.engine, text, sizeof text), 0);
    assert_non_null(strstr(text, "\ntransfer_engine_fences_unknown_total 1\n"));
    assert_null(strstr(text, "\ntransfer_engine_fences_quiet_total 0\n"));
    thaw(&r);
    assert_int_equal(te_batch_free(r.engine, batch), 0);
    close_rig(&r);
}

/* What the rounds were for. */
static void enough(void **state)
{
    (void)state;
    print_message("%u requests ended early\n", all_ended);
    assert_true(all_ended > n_rounds);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native),
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(same_host),
        cmocka_unit_test(enough),
        cmocka_unit_test(stopped),
        cmocka_unit_test(stopped_version_2),
        cmocka_unit_test(polled),
        cmocka_unit_test(killed),
        cmocka_unit_test(misuse),
        cmocka_unit_test(closed_segment),
        cmocka_unit_test(transport_stays),
        cmocka_unit_test(requests_of_pages),
        cmocka_unit_test(counted),
    };

    if (argc > 1)
        n_rounds = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
