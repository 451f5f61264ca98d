/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of requests that are timed: that some never end does not keep others from being timed. */

#include "core/core.h"
#include "test.h"

#include <stdlib.h>

static te_engine *engine;
static struct task *tasks;
static struct batch *batch;

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof(*engine));
    tasks = aligned_alloc(64, (METRICS_SLOTS + 2) * sizeof(*tasks));
    batch = aligned_alloc(64, sizeof(*batch));
    if (!engine || !tasks || !batch)
        return -1;
    memset(tasks, 0, (METRICS_SLOTS + 2) * sizeof(*tasks));
    batch->engine = engine;
    for (size_t i = 0; i < METRICS_SLOTS + 2; i++)
        tasks[i].batch = batch;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(engine);
    free(tasks);
    free(batch);
    return 0;
}

/* All slots are taken by as many requests. */
static void fill(void)
{
    for (size_t i = 0; i < METRICS_SLOTS; i++) {
        tei_metrics_sample(engine, &tasks[i], i, 1);
        assert_int_equal(tasks[i].sample, i + 1);
    }
}

static uint64_t nanoseconds(struct histogram (*of)[2])
{
    return 1000 * atomic_load(&of[0][TE_READ].sum_k) + atomic_load(&of[0][TE_READ].sum_rest);
}

static uint64_t count(void)
{
    uint64_t sum = 0;

    for (size_t k = 0; k <= METRICS_BOUNDS; k++)
        sum += atomic_load(&engine->metrics.latency[0][TE_READ].counts[k]);
    return sum;
}

/* The sum of nanoseconds would be beyond 64 bits. */
TEST(the_sum_of_times_lasts)
{
    for (size_t i = 0; i < 3; i++) {
        struct slot *s;

        tei_metrics_sample(engine, &tasks[i], i, 1);
        s = &engine->metrics.slots[tasks[i].sample - 1];
        atomic_store(&s->begin_ns, tei_now_ns() - 3 * TEI_NS_PER_S);
        atomic_store(&s->weight, UINT64_C(4000000000));
        tei_metrics_sampled(engine, &tasks[i], 0);
    }
    assert_true(atomic_load(&engine->metrics.latency[0][TE_READ].sum_k) >=
                3 * UINT64_C(12000000000000000));
}

/* A request that was submitted 40 s ago, posted at these times, and taken; in seconds. 0: not, or not again. */
static void ends(int64_t posted_s, int64_t taken_s)
{
    struct slot *s;
    int64_t begin_ns = tei_now_ns() - 40 * TEI_NS_PER_S;

    tei_metrics_sample(engine, &tasks[0], 0, 1);
    s = &engine->metrics.slots[tasks[0].sample - 1];
    atomic_store(&s->begin_ns, begin_ns);
    atomic_store(&s->posted_ns, begin_ns + posted_s * TEI_NS_PER_S);
    atomic_store(&s->taken_ns, taken_s ? begin_ns + taken_s * TEI_NS_PER_S : 0);
    tei_metrics_sampled(engine, &tasks[0], 0);
}

static void waited(uint64_t seconds)
{
    struct metrics *m = &engine->metrics;
    uint64_t queue_ns = nanoseconds(m->queue);

    assert_int_equal(queue_ns, seconds * TEI_NS_PER_S);
    assert_int_equal(queue_ns + nanoseconds(m->wire), nanoseconds(m->latency));
}

TEST(the_two_parts_are_the_whole)
{
    ends(0, 10);
    waited(10);
    /* Copied at once. */
    ends(0, 0);
    waited(10);
    /* The second of two attempts, the first of which had been taken. */
    ends(15, 17);
    waited(27);
    /* The time that a transport had taken before it was given the work. */
    ends(5, 4);
    waited(32);
}

TEST(one_that_begins_anew_is_taken_anew)
{
    _Atomic int64_t *taken_ns;

    tei_metrics_sample(engine, &tasks[0], 0, 1);
    taken_ns = tei_metrics_taken(&tasks[0]);
    assert_non_null(taken_ns);
    atomic_store(taken_ns, 1);
    tei_metrics_posted(&tasks[0]);
    assert_int_equal(atomic_load(taken_ns), 0);
}

/* Who has lost the slot has written a time of its own there. */
TEST(a_time_from_before_it_began_is_none)
{
    struct slot *s;

    tei_metrics_sample(engine, &tasks[0], 0, 1);
    s = &engine->metrics.slots[tasks[0].sample - 1];
    atomic_store(&s->posted_ns, atomic_load(&s->begin_ns) - TEI_NS_PER_S);
    tei_metrics_sampled(engine, &tasks[0], 0);
    assert_int_equal(nanoseconds(engine->metrics.queue), 0);
    assert_int_equal(nanoseconds(engine->metrics.wire), nanoseconds(engine->metrics.latency));
}

TEST(no_slot_is_taken_from_a_young_request)
{
    fill();
    tei_metrics_sample(engine, &tasks[METRICS_SLOTS], METRICS_SLOTS, 1);
    assert_int_equal(tasks[METRICS_SLOTS].sample, 0);
    tei_metrics_sampled(engine, &tasks[3], 0);
    assert_int_equal(tasks[3].sample, 0);
    assert_int_equal(count(), 1);
    tei_metrics_sample(engine, &tasks[METRICS_SLOTS], METRICS_SLOTS, 1);
    assert_int_equal(tasks[METRICS_SLOTS].sample, 4);
}

TEST(a_stuck_request_loses_its_slot)
{
    fill();
    for (size_t i = 0; i < METRICS_SLOTS; i++)
        atomic_fetch_sub(&engine->metrics.slots[i].begin_ns, (i == 7 ? 120 : 60) * TEI_NS_PER_S);
    tei_metrics_sample(engine, &tasks[METRICS_SLOTS], METRICS_SLOTS, 1);
    assert_int_equal(tasks[METRICS_SLOTS].sample, 8);
    assert_null(tei_metrics_taken(&tasks[7]));
    /* The one that had it ends after all, and does not count. */
    tei_metrics_sampled(engine, &tasks[7], 0);
    assert_int_equal(count(), 0);
    assert_int_equal(tasks[7].sample, 0);
    /* The one that has it is not disturbed by that; it counts for itself alone. */
    tei_metrics_sampled(engine, &tasks[METRICS_SLOTS], 0);
    assert_int_equal(count(), 1);
}

TEST(one_that_does_not_complete_gives_its_slot_back)
{
    fill();
    tei_metrics_unsample(&tasks[0]);
    tei_metrics_unsample(&tasks[0]);
    tei_metrics_sample(engine, &tasks[METRICS_SLOTS], METRICS_SLOTS, 1);
    assert_int_equal(tasks[METRICS_SLOTS].sample, 1);
    assert_int_equal(count(), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(no_slot_is_taken_from_a_young_request),
        CASE(a_stuck_request_loses_its_slot),
        CASE(one_that_does_not_complete_gives_its_slot_back),
        CASE(the_sum_of_times_lasts),
        CASE(the_two_parts_are_the_whole),
        CASE(one_that_begins_anew_is_taken_anew),
        CASE(a_time_from_before_it_began_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
