/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=300 */
/*
 * Trace contexts given to te_submit() and its likes: which texts are taken, and that each request has that of
 * its own submit, however it gets to a transport; seen in the log of its target.
 */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MINE  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define OTHER "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
#define BYTES 1000

/* ------------------------------------------------------------------------------ the target's log */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned mine, other; /* lines of requests with these */

static void on_line(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (strncmp(line, "served: ", 8) != 0)
        return;
    pthread_mutex_lock(&lock);
    mine += strstr(line, "; trace " MINE) != NULL;
    other += strstr(line, "; trace " OTHER) != NULL;
    pthread_mutex_unlock(&lock);
}

static unsigned count(const unsigned *n)
{
    unsigned now;

    pthread_mutex_lock(&lock);
    now = *n;
    pthread_mutex_unlock(&lock);
    return now;
}

static int set_up(void **state)
{
    pair_setup_tcp(state);
    mine = other = 0;
    te_log_set_sink(on_line, NULL);
    te_log_set_level(TE_LOG_TRACE);
    return 0;
}

static int tear_down(void **state)
{
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(NULL, NULL);
    return pair_teardown(state);
}

/* -------------------------------------------------------------------------------------- requests */

static te_request request(const struct pair *p)
{
    return (te_request){.opcode = TE_READ,
                        .source = p->am,
                        .target = p->seg,
                        .target_offset = (uintptr_t)p->bm,
                        .length = BYTES};
}

static int submit(const struct pair *p, te_batch b, const char *traceparent)
{
    te_submit_opts o = {.size = sizeof o, .traceparent = traceparent};
    te_request r = request(p);

    return te_submit(p->a, b, &r, 1, &o);
}

static void finish(const struct pair *p, te_batch b)
{
    struct te_status st;

    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static te_batch batch(const struct pair *p)
{
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 4, &b), 0);
    return b;
}

static void texts_that_are_none(void **state)
{
    static const char *const bad[] = {"",
                                      "4bf92f3577b34da6a3ce929d0e0e4736",
                                      (MINE "-01"),
                                      ("ff" OTHER),
                                      "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"};
    const struct pair *p = *state;
    te_batch b = batch(p);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(submit(p, b, bad[i]), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), "te_submit_opts: traceparent '"));
    }
    assert_non_null(strstr(te_errmsg(), "all zeros"));
    for (int i = 0; i < 4; i++) /* there is room for all: nothing was started */
        assert_int_equal(submit(p, b, i % 2 ? MINE : NULL), 0);
    assert_int_equal(submit(p, b, MINE), TE_ERR_TOO_MANY);
    finish(p, b);
}

/* A program of an earlier release has no such member: what is behind its struct is not looked at. */
static void a_struct_without_it(void **state)
{
    const struct pair *p = *state;
    te_submit_opts o = {.size = offsetof(te_submit_opts, traceparent), .traceparent = "none"};
    te_request r = request(p);
    te_batch b = batch(p);

    assert_int_equal(te_submit(p->a, b, &r, 1, &o), 0);
    finish(p, b);
}

/*
 * In one batch a submit that fails, one without a context in its place, and one with another. The log leaves
 * lines out that come too often: again, until it has one.
 */
static void each_submit_has_its_own(void **state)
{
    const struct pair *p = *state;
    te_submit_opts o = {.size = sizeof o, .traceparent = MINE};
    te_request wrong = request(p);

    wrong.target = 4711;
    while (count(&other) == 0) {
        te_batch b = batch(p);

        assert_int_equal(te_submit(p->a, b, &wrong, 1, &o), TE_ERR_NOT_FOUND);
        assert_int_equal(submit(p, b, NULL), 0);
        assert_int_equal(submit(p, b, OTHER), 0);
        finish(p, b);
        usleep(1000);
    }
    assert_int_equal(count(&mine), 0);
}

static void of_prepared_lists(void **state)
{
    const struct pair *p = *state;
    void *local[] = {p->am};
    uint64_t remote[] = {(uintptr_t)p->bm};
    size_t length[] = {BYTES};
    te_submit_opts o = {.size = sizeof o, .traceparent = MINE};
    te_prep prep;

    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, 1, &prep), 0);
    while (count(&mine) == 0) {
        te_batch b = batch(p);

        assert_int_equal(te_prep_submit(p->a, b, prep, TE_READ, NULL, 1, &o), 0);
        finish(p, b);
        usleep(1000);
    }
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
}

static void of_pages(void **state)
{
    const struct pair *p = *state;
    te_submit_opts o = {.size = sizeof o, .traceparent = MINE};
    te_pages pages = {.size = sizeof pages,
                      .opcode = TE_WRITE,
                      .target = p->seg,
                      .length = BYTES,
                      .n = 10,
                      .local = {(uintptr_t)p->am, 10, BYTES, 0, 0, NULL},
                      .remote = {(uintptr_t)p->bm, 10, 2 * BYTES, 0, 0, NULL}};

    while (count(&mine) == 0) {
        te_batch b = batch(p);

        assert_int_equal(te_submit_pages(p->a, b, &pages, &o), 0);
        finish(p, b);
        usleep(1000);
    }
}

/* Each is posted by another thread, once the descriptor of its target was fetched. */
static void of_requests_that_were_parked(void **state)
{
    struct pair *with = *state, p = *with;
    te_options o;

    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", "0"), 0);
    assert_int_equal(te_option_set(&o, "MC_DISABLE_METACACHE", "1"), 0);
    assert_int_equal(te_engine_create(&o, &p.a), 0);
    te_options_fini(&o);
    te_log_set_level(TE_LOG_TRACE);
    p.am = with->am + PAIR_SIZE / 2; /* overlaps a region of another engine, which is no matter */
    assert_int_equal(te_register(p.a, p.am, BYTES, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(p.a, p.bname, &p.seg), 0);
    while (count(&mine) == 0) {
        te_batch b = batch(&p);

        assert_int_equal(submit(&p, b, MINE), 0);
        finish(&p, b);
        usleep(1000);
    }
    te_engine_destroy(p.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(texts_that_are_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_struct_without_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_submit_has_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_prepared_lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_requests_that_were_parked, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
