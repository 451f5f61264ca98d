/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common_units.c"
#include "test.h"

TEST(sizes_with_units)
{
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {
        {"0", 0},           {"65536", 65536},
        {"4K", 4096},       {"4k", 4096},
        {"4KiB", 4096},     {"4KB", 4000},
        {"3M", 3ull << 20}, {"1GB", 1000000000},
        {"1G", 1 << 30},    {"2TiB", 2ull << 40},
        {"7B", 7},          {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",           "K",   "-1",  "+1",
                                      " 1",         "1 K", "1.5", "1KK",
                                      "0x10",       "4Kb", "1P",  "18446744073709551616",
                                      "9999999999T"};
    uint64_t got;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(units_parse_size(good[i].text, &got));
        assert_int_equal(got, good[i].want);
    }
    got = 42;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(units_parse_size(bad[i], &got));
    assert_int_equal(got, 42);
}

TEST(counts_have_no_unit)
{
    uint64_t got;
    assert_true(units_parse_count("12", &got));
    assert_int_equal(got, 12);
    assert_false(units_parse_count("12K", &got));
    assert_false(units_parse_count("", &got));
}

static void check_list(const char *text, const uint64_t *want, size_t n)
{
    uint64_t got[8];
    size_t count = 99;
    assert_true(units_parse_list(text, got, 8, &count));
    assert_int_equal(count, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], want[i]);
}

TEST(lists)
{
    uint64_t got[4];
    size_t count;
    check_list("5", (uint64_t[]){5}, 1);
    check_list("1,2K,3", (uint64_t[]){1, 2048, 3}, 3);
    check_list("1..8", (uint64_t[]){1, 2, 4, 8}, 4);
    check_list("1..9", (uint64_t[]){1, 2, 4, 8}, 4);
    check_list("4K..64K*4,1M", (uint64_t[]){4096, 16384, 65536, 1 << 20}, 4);
    check_list("7..7", (uint64_t[]){7}, 1);
    check_list("9223372036854775808..18446744073709551615", (uint64_t[]){1ull << 63}, 1);
    static const char *const bad[] = {"",     ",",    "1,",     "1..",   "..1",
                                      "2..1", "0..4", "1..8*1", "1..8*", "1*2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(units_parse_list(bad[i], got, 4, &count));
    assert_false(units_parse_list("1..16", got, 4, &count));
}

TEST(sizes_as_flags_take_them)
{
    static const struct {
        uint64_t bytes;
        const char *want;
    } all[] = {{1, "1"},           {1000, "1000"},       {1024, "1K"},       {65537, "65537"},
               {1536, "1536"},     {1 << 20, "1M"},      {3ull << 30, "3G"}, {1ull << 40, "1T"},
               {5 << 19, "2560K"}, {1025 << 10, "1025K"}};
    char text[UNITS_SIZE_MAX];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_string_equal(units_size(all[i].bytes, text), all[i].want);
    }
}

TEST(report_units)
{
    assert_true(units_report("GB") == 1e9);
    assert_true(units_report("Gb") == 1e9 / 8);
    assert_true(units_report("MiB") == 1048576);
    assert_true(units_report("") == 0);
    assert_true(units_report("gb") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_with_units),
        cmocka_unit_test(counts_have_no_unit),
        cmocka_unit_test(lists),
        cmocka_unit_test(sizes_as_flags_take_them),
        cmocka_unit_test(report_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
