/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits: there and back, and what is not taken for them. */

#include "base/hex.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

TEST(every_byte_comes_back)
{
    uint8_t bytes[256], again[256];
    char text[2 * sizeof bytes + 1];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    tei_hex_write(bytes, sizeof bytes, text);
    assert_int_equal(strlen(text), 2 * sizeof bytes);
    assert_true(tei_hex_is(text, 2 * sizeof bytes));
    assert_memory_equal(text + 2 * 0xa9, "a9aaab", 6);
    assert_true(tei_hex_read(text, again, sizeof again));
    assert_memory_equal(bytes, again, sizeof bytes);
}

TEST(either_case_is_read)
{
    uint8_t bytes[2];

    assert_true(tei_hex_read("aFFa", bytes, 2));
    assert_int_equal(bytes[0], 0xaf);
    assert_int_equal(bytes[1], 0xfa);
}

TEST(what_ends_early_is_not_read_further)
{
    static const char *const bad[] = {"", "a", "ab", "abc", "abg0", "ab0g", "ab 0", "ab-1", "0x12"};
    uint8_t bytes[2];

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        char *exact = strdup(bad[i]); /* for the address sanitizer */

        assert_non_null(exact);
        assert_false(tei_hex_read(exact, bytes, 2));
        free(exact);
    }
}

TEST(a_number_is_16_digits_in_lower_case)
{
    static const char *const bad[] = {NULL,
                                      "",
                                      "123456789abcdef",
                                      "0123456789abcdef0",
                                      "0123456789ABCDEF",
                                      " 123456789abcdef",
                                      "0x23456789abcdef"};
    uint64_t v = 7;

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++)
        assert_false(tei_hex_number(bad[i], &v));
    assert_int_equal(v, 7);
    assert_true(tei_hex_number("fedcba9876543210", &v));
    assert_true(v == UINT64_C(0xfedcba9876543210));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(either_case_is_read),
        cmocka_unit_test(what_ends_early_is_not_read_further),
        cmocka_unit_test(a_number_is_16_digits_in_lower_case),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
