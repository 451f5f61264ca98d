/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common_hist.c"
#include "test.h"

#include <math.h>

static struct hist h, other;

static void assert_near(double got, double want)
{
    assert_true(fabs(got - want) <= want / 64 + 1e-3);
}

TEST(empty_tells_zero)
{
    hist_reset(&h);
    assert_true(hist_quantile_us(&h, 0.5) == 0);
    assert_true(hist_mean_us(&h) == 0);
}

TEST(one_sample_is_every_quantile)
{
    static const uint64_t samples[] = {0, 1, 63, 64, 65, 127, 128, 1000, 123456789, 1ull << 41};
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        hist_reset(&h);
        hist_add(&h, samples[i], 1);
        assert_true(hist_quantile_us(&h, 0) == (double)samples[i] / 1e3);
        assert_true(hist_quantile_us(&h, 0.5) == (double)samples[i] / 1e3);
        assert_true(hist_quantile_us(&h, 1) == (double)samples[i] / 1e3);
    }
}

TEST(quantiles_of_a_line)
{
    hist_reset(&h);
    for (uint64_t us = 1; us <= 10000; us++)
        hist_add(&h, us * 1000, 1);
    assert_near(hist_quantile_us(&h, 0.5), 5000);
    assert_near(hist_quantile_us(&h, 0.99), 9900);
    assert_near(hist_quantile_us(&h, 0.999), 9990);
    assert_near(hist_mean_us(&h), 5000.5);
    assert_int_equal(h.min_ns, 1000);
    assert_int_equal(h.max_ns, 10000000);
}

TEST(buckets_are_in_order)
{
    size_t last = 0;
    for (uint64_t ns = 0; ns < 1ull << 43; ns += ns / 100 + 1) {
        size_t at = bucket_of(ns);
        assert_true(at >= last && at < HIST_BUCKETS);
        last = at;
        if (at + 1 < HIST_BUCKETS)
            assert_near((double)value_of(at), (double)ns);
    }
    assert_int_equal(bucket_of(UINT64_MAX), HIST_BUCKETS - 1);
}

TEST(merge_is_the_sum)
{
    hist_reset(&h);
    hist_reset(&other);
    hist_merge(&h, &other);
    assert_int_equal(h.count, 0);
    hist_add(&other, 500, 3);
    hist_merge(&h, &other);
    hist_reset(&other);
    hist_add(&other, 100, 1);
    hist_merge(&h, &other);
    assert_int_equal(h.count, 4);
    assert_int_equal(h.min_ns, 100);
    assert_int_equal(h.max_ns, 500);
    assert_int_equal(h.sum_ns, 1600);
    assert_true(hist_quantile_us(&h, 0.25) == 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_tells_zero),    cmocka_unit_test(one_sample_is_every_quantile),
        cmocka_unit_test(quantiles_of_a_line), cmocka_unit_test(buckets_are_in_order),
        cmocka_unit_test(merge_is_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
