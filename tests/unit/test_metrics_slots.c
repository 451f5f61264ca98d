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
    assert_true(atomic_load(&engine->metrics.latency[0][TE_READ].sum_us) >=
                3 * UINT64_C(12000000000000000));
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
