/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/transfer_engine_bench/trace_lru.c"
#include "test.h"

static struct trace_lru cache;

static const te_buffer buffers[] = {
    {.addr = (void *)(uintptr_t)1000, .length = 250},
    {.addr = (void *)(uintptr_t)5000, .length = 99},
    {.addr = (void *)(uintptr_t)9000, .length = 100},
};

static int make(void **state)
{
    (void)state;
    return trace_lru_init(&cache, buffers, 3, 100, 3) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    trace_lru_fini(&cache);
    return 0;
}

/* Adds a block that no request uses. */
static uint64_t add(uint64_t id)
{
    struct trace_block *b = trace_lru_add(&cache, id);
    assert_non_null(b);
    trace_lru_put(b);
    return b->addr;
}

static bool has(uint64_t id)
{
    return find(&cache, id) != NULL;
}

TEST(slots_lie_within_buffers)
{
    assert_int_equal(trace_lru_room(buffers, 3, 100), 3);
    assert_int_equal(trace_lru_room(buffers, 3, 251), 0);
    assert_int_equal(add(1), 1000);
    assert_int_equal(add(2), 1100);
    assert_int_equal(add(3), 9000);
    assert_int_equal(cache.evicted, 0);
}

TEST(least_recently_used_goes)
{
    add(1), add(2), add(3);
    struct trace_block *b = trace_lru_get(&cache, 1);
    assert_int_equal(b->id, 1);
    trace_lru_put(b);
    assert_int_equal(add(4), 1100);
    assert_true(has(1) && !has(2) && has(3) && has(4));
    assert_int_equal(add(5), 9000);
    assert_int_equal(cache.evicted, 2);
    assert_null(trace_lru_get(&cache, 2));
}

TEST(pinned_stays)
{
    add(1), add(2), add(3);
    struct trace_block *one = trace_lru_get(&cache, 1);
    assert_ptr_equal(trace_lru_get(&cache, 1), one);
    struct trace_block *two = trace_lru_get(&cache, 2);
    trace_lru_put(two);
    add(4);
    assert_false(has(3)); /* used before block 2 was, and block 1 is pinned */
    add(5);
    assert_true(has(1) && has(4) && has(5));
    trace_lru_get(&cache, 4);
    trace_lru_get(&cache, 5);
    assert_null(trace_lru_add(&cache, 6));
    trace_lru_put(one);
    assert_null(trace_lru_add(&cache, 6)); /* pinned twice */
    trace_lru_put(one);
    assert_ptr_equal(trace_lru_add(&cache, 6), one);
    assert_int_equal(one->id, 6);
    assert_int_equal(one->length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slots_lie_within_buffers, make, drop),
        cmocka_unit_test_setup_teardown(least_recently_used_goes, make, drop),
        cmocka_unit_test_setup_teardown(pinned_stays, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
