/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "test.h"

TEST(test_short_transfers_are_one_slice)
{
    assert_int_equal(tei_slice_len(1, 65536, 4), 1);
    assert_int_equal(tei_slice_len(65535, 65536, 4), 65535);
    assert_int_equal(tei_slice_len(65536, 65536, 4), 65536);
}

TEST(test_a_tiny_tail_is_merged)
{
    assert_int_equal(tei_slice_len(65536 + 16384, 65536, 4), 65536 + 16384);
    assert_int_equal(tei_slice_len(65536 + 16385, 65536, 4), 65536);
    assert_int_equal(tei_slice_len(3 * 65536, 65536, 4), 65536);
}

TEST(test_ratio_0_never_merges)
{
    assert_int_equal(tei_slice_len(65537, 65536, 0), 65536);
    assert_int_equal(tei_slice_len(65536, 65536, 0), 65536);
}

TEST(test_extremes)
{
    assert_int_equal(tei_slice_len(0, 65536, 4), 0);
    assert_int_equal(tei_slice_len(100, 0, 4), 100);
    assert_int_equal(tei_slice_len(UINT64_MAX, UINT64_MAX - 1, 4), UINT64_MAX);
    assert_int_equal(tei_slice_len(UINT64_MAX, 1, 1), 1);
    assert_int_equal(tei_slice_len(2, 1, 1), 2);
}

/* However it is cut, all bytes are there and no slice is 0 or longer than allowed. */
TEST(test_slices_add_up)
{
    for (uint64_t slice = 1; slice < 40; slice += 3) {
        for (uint64_t ratio = 0; ratio < 6; ratio++) {
            for (uint64_t length = 1; length < 300; length += 7) {
                uint64_t left = length, longest = ratio ? slice + slice / ratio : slice;

                while (left) {
                    uint64_t n = tei_slice_len(left, slice, ratio);

                    assert_in_range(n, 1, longest);
                    left -= n;
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_transfers_are_one_slice),
        cmocka_unit_test(test_a_tiny_tail_is_merged),
        cmocka_unit_test(test_ratio_0_never_merges),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_slices_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
