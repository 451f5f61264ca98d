/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* [1000, 1100) rw, [1100, 1150) read, [1150, 1200) write, gap, [2000, 2001) rw */
static const char text[] = "{\"buffers\":[{\"addr\":1000,\"length\":100,\"name\":\"x\"},"
                           "{\"addr\":1100,\"length\":50,\"name\":\"x\"},"
                           "{\"addr\":1150,\"length\":50,\"name\":\"x\"},"
                           "{\"addr\":2000,\"length\":1,\"name\":\"x\"}],"
                           "\"name\":\"x\",\"protocol\":\"tcp\",\"te\":{\"incarnation\":"
                           "\"00000000000000ff\",\"rights\":[[1100,\"r\"],[1150,\"w\"]],\"v\":1,"
                           "\"version\":3}}";
static struct tei_segment *seg;

static int open_segment(void **state)
{
    (void)state;
    return tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &seg);
}

static int close_segment(void **state)
{
    (void)state;
    tei_segment_put(seg);
    return 0;
}

static void check_cover(uint64_t addr, uint64_t length, size_t at, uint64_t part)
{
    size_t got_at = 99;
    uint64_t got_part = 99;

    assert_true(tei_segment_cover(seg, addr, length, &got_at, &got_part));
    assert_int_equal(got_at, at);
    assert_int_equal(got_part, part);
}

static void check_no_cover(uint64_t addr)
{
    size_t at;
    uint64_t part;

    assert_false(tei_segment_cover(seg, addr, 1, &at, &part));
    assert_false(tei_segment_cover(seg, addr, 0, &at, &part));
}

TEST(test_find_wants_one_buffer_for_all_of_it)
{
    assert_ptr_equal(tei_segment_find(seg, 1000, 100), &seg->buffers[0]);
    assert_ptr_equal(tei_segment_find(seg, 1099, 1), &seg->buffers[0]);
    assert_ptr_equal(tei_segment_find(seg, 1149, 1), &seg->buffers[1]);
    assert_ptr_equal(tei_segment_find(seg, 2000, 1), &seg->buffers[3]);
    assert_null(tei_segment_find(seg, 1000, 101));
    assert_null(tei_segment_find(seg, 999, 1));
    assert_null(tei_segment_find(seg, 999, 102));
    assert_null(tei_segment_find(seg, 1200, 1));
    assert_null(tei_segment_find(seg, 2000, UINT64_MAX));
    assert_null(tei_segment_find(seg, UINT64_MAX, 1));
}

TEST(test_cover_finds_the_buffer_and_the_part_in_it)
{
    check_cover(1000, 1, 0, 1);
    check_cover(1000, 100, 0, 100);
    check_cover(1000, 101, 0, 100);
    check_cover(1099, 500, 0, 1);
    check_cover(1100, 500, 1, 50);
    check_cover(1199, UINT64_MAX, 2, 1);
    check_cover(2000, 1, 3, 1);
    check_cover(1050, 0, 0, 0);
}

TEST(test_cover_outside)
{
    check_no_cover(0);
    check_no_cover(999);
    check_no_cover(1200);
    check_no_cover(1999);
    check_no_cover(2001);
    check_no_cover(UINT64_MAX);
}

TEST(test_allows)
{
    assert_int_equal(tei_segment_allows(seg, 1000, 100, TE_REMOTE_RW), 0);
    assert_int_equal(tei_segment_allows(seg, 1000, 150, TE_REMOTE_READ), 0);
    assert_int_equal(tei_segment_allows(seg, 1000, 151, TE_REMOTE_READ), TE_ERR_ACCESS);
    assert_int_equal(tei_segment_allows(seg, 1150, 50, TE_REMOTE_WRITE), 0);
    assert_int_equal(tei_segment_allows(seg, 1100, 1, TE_REMOTE_RW), TE_ERR_ACCESS);
    assert_int_equal(tei_segment_allows(seg, 2000, 1, TE_REMOTE_RW), 0);
    assert_int_equal(tei_segment_allows(seg, 1000, 0, TE_REMOTE_RW), 0);
}

/* What is missing may come with a fresh descriptor, so it is told before a right that is. */
TEST(test_missing_bytes_come_before_missing_rights)
{
    assert_int_equal(tei_segment_allows(seg, 1000, 201, TE_REMOTE_READ), TE_ERR_STALE);
    assert_int_equal(tei_segment_allows(seg, 999, 2, TE_REMOTE_READ), TE_ERR_STALE);
    assert_int_equal(tei_segment_allows(seg, 1200, 0, TE_REMOTE_READ), TE_ERR_STALE);
    assert_int_equal(tei_segment_allows(seg, 2000, UINT64_MAX, TE_REMOTE_READ), TE_ERR_STALE);
}

TEST(test_empty_segment)
{
    static const char empty[] = "{\"buffers\":[],\"name\":\"x\",\"protocol\":\"tcp\"}";
    struct tei_segment *s;
    uint64_t part;
    size_t at;

    assert_int_equal(tei_segment_decode(empty, strlen(empty), &tei_segment_unlimited, &s), 0);
    assert_false(tei_segment_cover(s, 1, 1, &at, &part));
    assert_int_equal(tei_segment_allows(s, 1, 1, TE_REMOTE_READ), TE_ERR_STALE);
    tei_segment_put(s);
}

TEST(test_references)
{
    assert_ptr_equal(tei_segment_get(seg), seg);
    tei_segment_put(seg);
    assert_int_equal(seg->n_buffers, 4);
    tei_segment_put(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_wants_one_buffer_for_all_of_it),
        cmocka_unit_test(test_cover_finds_the_buffer_and_the_part_in_it),
        cmocka_unit_test(test_cover_outside),
        cmocka_unit_test(test_allows),
        cmocka_unit_test(test_missing_bytes_come_before_missing_rights),
        cmocka_unit_test(test_empty_segment),
        cmocka_unit_test(test_references),
    };

    return cmocka_run_group_tests(tests, open_segment, close_segment);
}
