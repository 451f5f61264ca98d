/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * A WRITE that was late or cancelled never overwrites one of the same place that was posted after it
 * and was COMPLETED: the target is stopped and goes on, round after round, with each framing.
 *
 *   test_late_write [ROUNDS]
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
#include <unistd.h>
#include <cmocka.h>

#define SLOTS  8
#define LENGTH ((size_t)128 << 10)
#define BYTES  (SLOTS * LENGTH)

/* Of each framing. Under a sanitizer it is the memory that is looked at. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static unsigned n_rounds = 200;
#else
static unsigned n_rounds = 1000;
#endif

struct rig {
    struct child_engine target;
    te_engine *engine;
    te_segment segment;
    unsigned char *early, *late; /* what the WRITE that ends early sends, and the one after it */
    unsigned n_early;            /* that did end early */
    bool uninstalls;             /* tries to take the transport out between the two */
    unsigned n_busy;             /* in vain */
    uint64_t seed;               /* 0: no round yet */
};

static void open_rig(struct rig *r)
{
    te_log_set_level(TE_LOG_ERROR); /* a warning for each that ends early */
    memset(r, 0, sizeof *r);
    draw_state = 12345;
    r->engine = child_open(&r->target, BYTES, &r->segment);
    r->early = map_pages(BYTES);
    r->late = map_pages(BYTES);
    assert_int_equal(te_register(r->engine, r->early, BYTES, "*", 0), 0);
    assert_int_equal(te_register(r->engine, r->late, BYTES, "*", 0), 0);
}

static void close_rig(struct rig *r)
{
    te_engine_destroy(r->engine);
    child_stop(&r->target);
}

static te_batch write_all(struct rig *r, unsigned char *from, int deadline_ms)
{
    te_submit_opts opts = {.size = sizeof opts, .deadline_ms = deadline_ms};
    te_request requests[SLOTS];
    te_batch batch;

    for (size_t i = 0; i < SLOTS; i++)
        requests[i] = (te_request){TE_WRITE, from + i * LENGTH, r->segment,
                                   (uintptr_t)r->target.mem + i * LENGTH, LENGTH};
    assert_int_equal(te_batch_alloc(r->engine, SLOTS, &batch), 0);
    assert_int_equal(te_submit(r->engine, batch, requests, SLOTS, deadline_ms ? &opts : NULL), 0);
    return batch;
}

/* What the last round has written is there, and nothing else. */
static void check(const struct rig *r)
{
    size_t at = r->seed ? first_difference(r->target.mem, BYTES, r->seed) : BYTES;

    if (at < BYTES)
        fail_msg("round %" PRIu64 ": byte %zu of slot %zu is not what the COMPLETED WRITE wrote",
                 r->seed / 2, at % LENGTH, at / LENGTH);
}

/* By its deadline, or by cancel; some may be through. */
static void end_early(struct rig *r, bool by_deadline)
{
    te_batch batch = write_all(r, r->early, by_deadline ? 1 + (int)draw(4) : 0);
    struct te_status st;

    if (!by_deadline) {
        usleep((useconds_t)draw(3000));
        assert_int_equal(te_cancel(r->engine, batch), 0);
    }
    assert_int_equal(te_wait(r->engine, batch, -1), 0);
    for (size_t i = 0; i < SLOTS; i++) {
        assert_int_equal(te_status(r->engine, batch, i, &st), 0);
        assert_true(st.state == TE_COMPLETED || st.state == TE_TIMEOUT || st.state == TE_CANCELED);
        r->n_early += st.state != TE_COMPLETED;
    }
    assert_int_equal(te_batch_free(r->engine, batch), 0);
}

/* Another instance would know nothing of the WRITEs that ended early. */
static void renew_transport(struct rig *r)
{
    int rc = te_transport_uninstall(r->engine, "tcp");

    if (rc) {
        assert_int_equal(rc, TE_ERR_BUSY);
        r->n_busy++;
    } else {
        assert_int_equal(te_transport_install(r->engine, "tcp", NULL), 0);
    }
}

static void one_round(struct rig *r, unsigned n)
{
    struct te_status st;
    te_batch batch;
    char why[300];

    fill(r->early, BYTES, 2 * n + 1);
    fill(r->late, BYTES, 2 * n + 2);
    child_freeze(&r->target);
    check(r); /* of the round before; what comes late has had its time */
    end_early(r, n % 2);
    if (r->uninstalls)
        renew_transport(r);
    batch = write_all(r, r->late, 0);
    usleep((useconds_t)draw(1500));
    assert_int_equal(kill(r->target.pid, SIGCONT), 0);
    assert_int_equal(te_wait(r->engine, batch, -1), 0);
    r->seed = 2 * n + 2;
    for (size_t i = 0; i < SLOTS; i++) {
        assert_int_equal(te_status(r->engine, batch, i, &st), 0);
        if (st.state == TE_COMPLETED)
            continue;
        te_status_msg(r->engine, batch, i, why, sizeof why);
        fail_msg("round %u: the WRITE after it: %s", n, why);
    }
    check(r);
    assert_int_equal(te_batch_free(r->engine, batch), 0);
}

static void rounds(const char *native, const char *version)
{
    static struct rig r;

    setenv("TE_HOST_PATH", "0", 1);
    setenv("TE_TCP_NATIVE", native, 1);
    setenv("MC_TCP_PROTO", version, 1);
    open_rig(&r);
    for (unsigned n = 0; n < n_rounds; n++)
        one_round(&r, n);
    print_message("%u rounds, %u WRITEs ended early\n", n_rounds, r.n_early);
    assert_true(r.n_early > 0);
    close_rig(&r);
}

/* An instance of the transport that is taken out, and what it knows of such WRITEs with it. */
static void uninstalled(const char *native_framing)
{
    static struct rig r;

    setenv("TE_HOST_PATH", "0", 1);
    setenv("TE_TCP_NATIVE", native_framing, 1);
    setenv("MC_TCP_PROTO", "2", 1);
    open_rig(&r);
    r.uninstalls = true;
    for (unsigned n = 0; n < 20 || (r.n_busy == 0 && n < 1000); n++)
        one_round(&r, n);
    assert_true(r.n_busy > 0);
    /* The target goes on, and has answered all. */
    for (int ms = 0; te_transport_uninstall(r.engine, "tcp"); ms++) {
        assert_in_range(ms, 0, PATIENCE_MS);
        usleep(1000);
    }
    close_rig(&r);
}

static void uninstalled_native(void **state)
{
    (void)state;
    uninstalled("1");
}

static void uninstalled_version_2(void **state)
{
    (void)state;
    uninstalled("0");
}

static void native(void **state)
{
    (void)state;
    rounds("1", "2");
}

static void version_2(void **state)
{
    (void)state;
    rounds("0", "2");
}

static void version_1(void **state)
{
    (void)state;
    rounds("0", "1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uninstalled_native),
        cmocka_unit_test(uninstalled_version_2),
        cmocka_unit_test(native),
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
    };

    if (argc > 1)
        n_rounds = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
