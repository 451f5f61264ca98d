/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of the transport that got no processor: what has come meanwhile was in time, however long ago
 * its deadline has passed. The test holds the thread up where it gives work back.
 */
#include "conformance.h"

#include "base/os.h"
#include "native_stage.h"
#include "patience.h"

#include <unistd.h>

static void (*give_back)(struct tei_host *h, struct tei_list *done);
static _Atomic bool hold_up, is_held_up;

static void work_done(struct tei_host *h, struct tei_list *done)
{
    if (atomic_exchange(&hold_up, false)) {
        atomic_store(&is_held_up, true);
        WAIT_FOR(!atomic_load(&is_held_up));
    }
    give_back(h, done);
}

static void open_held_up(struct stage *s)
{
    stage_open(s, NULL);
    give_back = s->host.base.work_done;
    s->host.base.work_done = work_done;
}

/* Answers the first request, which holds the thread up. */
static void answer_first(const struct native *c, const struct got *g)
{
    atomic_store(&hold_up, true);
    stage_put_data(c, g, 1);
    WAIT_FOR(atomic_load(&is_held_up));
}

/* A request that is late from its beginning has the works of its peer looked at. */
static void post_late(struct stage *s, unsigned task)
{
    stage_add(s, task, TE_READ, 3000, 100)->deadline_ns = tei_now_ns();
    stage_post(s);
}

static void an_answer_that_is_here_was_in_time(void **state)
{
    static struct stage s;
    struct got g[2];
    struct native c;
    struct tei_work *w;

    (void)state;
    open_held_up(&s);
    stage_request(&s, 0, TE_READ, 0, 1000);
    c = stage_take_greeted(&s);
    g[0] = stage_get_request(&s, &c, TCP_FRAME_READ);
    w = stage_add(&s, 1, TE_READ, 1000, 1000);
    stage_post(&s);
    g[1] = stage_get_request(&s, &c, TCP_FRAME_READ);
    answer_first(&c, &g[0]);
    stage_put_data(&c, &g[1], 2);
    w->deadline_ns = tei_now_ns() - 1;
    post_late(&s, 2);
    assert_false(stage_is_done(&s, 1));
    atomic_store(&is_held_up, false);
    assert_int_equal(stage_outcome(&s, 0), 0);
    assert_int_equal(stage_outcome(&s, 1), 0);
    assert_int_equal(stage_outcome(&s, 2), TE_ERR_TIMEOUT);
    stage_expect_pattern(s.memory + 1000, 1000, 2);
    close(c.fd);
    stage_close(&s);
}

/* What has not come by then is late all the same. */
static void without_an_answer_it_is_late(void **state)
{
    static struct stage s;
    struct got g[2];
    struct native c;
    struct tei_work *w;

    (void)state;
    open_held_up(&s);
    stage_request(&s, 0, TE_READ, 0, 1000);
    c = stage_take_greeted(&s);
    g[0] = stage_get_request(&s, &c, TCP_FRAME_READ);
    w = stage_add(&s, 1, TE_READ, 1000, 1000);
    stage_post(&s);
    g[1] = stage_get_request(&s, &c, TCP_FRAME_READ);
    answer_first(&c, &g[0]);
    w->deadline_ns = tei_now_ns() - 1;
    post_late(&s, 2);
    atomic_store(&is_held_up, false);
    assert_int_equal(stage_outcome(&s, 1), TE_ERR_TIMEOUT);
    assert_int_equal(stage_outcome(&s, 2), TE_ERR_TIMEOUT);
    stage_put_data(&c, &g[1], 2);
    stage_request(&s, 3, TE_READ, 5000, 10);
    g[0] = stage_get_request(&s, &c, TCP_FRAME_READ);
    stage_put_data(&c, &g[0], 3);
    assert_int_equal(stage_outcome(&s, 3), 0);
    close(c.fd);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_that_is_here_was_in_time),
        cmocka_unit_test(without_an_answer_it_is_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
