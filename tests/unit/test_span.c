/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranges: what is joined, and that nothing is forgotten. */

#include "base/span.h"
#include "test.h"

TEST(ranges_that_touch_are_one)
{
    struct tei_span_set s = {0};

    tei_span_set_add(&s, (struct tei_span){10, 20});
    tei_span_set_add(&s, (struct tei_span){30, 40});
    assert_int_equal(s.n, 2);
    assert_false(tei_span_set_reaches(&s, (struct tei_span){20, 30}));
    tei_span_set_add(&s, (struct tei_span){20, 30});
    assert_int_equal(s.n, 1);
    assert_int_equal(s.v[0].begin, 10);
    assert_int_equal(s.v[0].end, 40);
}

TEST(a_full_set_joins_the_nearest)
{
    struct tei_span_set s = {0};

    for (uint64_t i = 0; i < TEI_SPANS_MAX; i++)
        tei_span_set_add(&s, (struct tei_span){i * 100, i * 100 + 10});
    tei_span_set_add(&s, (struct tei_span){320, 330});
    assert_int_equal(s.n, TEI_SPANS_MAX);
    for (uint64_t i = 0; i < TEI_SPANS_MAX; i++)
        assert_true(tei_span_set_reaches(&s, (struct tei_span){i * 100, i * 100 + 1}));
    assert_true(tei_span_set_reaches(&s, (struct tei_span){320, 330}));
    assert_true(tei_span_set_reaches(&s, (struct tei_span){310, 320}));
    assert_false(tei_span_set_reaches(&s, (struct tei_span){330, 400}));
}

/* What it touches on both sides may touch one another by then. */
TEST(one_that_covers_all_is_all)
{
    struct tei_span_set s = {0};

    for (uint64_t i = 0; i < TEI_SPANS_MAX; i++)
        tei_span_set_add(&s, (struct tei_span){i * 100, i * 100 + 10});
    tei_span_set_add(&s, (struct tei_span){0, TEI_SPANS_MAX * 100});
    assert_int_equal(s.n, 1);
    assert_int_equal(s.v[0].begin, 0);
    assert_int_equal(s.v[0].end, TEI_SPANS_MAX * 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_touch_are_one),
        cmocka_unit_test(a_full_set_joins_the_nearest),
        cmocka_unit_test(one_that_covers_all_is_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
