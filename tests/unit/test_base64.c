/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"
#include "base/os.h"
#include "te.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

TEST(vectors_of_rfc_4648)
{
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        char *text = tei_base64_encode(rows[i][0], strlen(rows[i][0]));
        char *data;
        size_t len;

        assert_string_equal(text, rows[i][1]);
        assert_int_equal(tei_base64_decode_new(text, strlen(text), &data, &len), 0);
        assert_string_equal(data, rows[i][0]);
        free(data);
        free(text);
    }
}

TEST(random_bytes_come_back)
{
    uint8_t data[1000];

    for (size_t n = 0; n < sizeof data; n += 7) {
        uint8_t out[sizeof data];
        char *text, *copy;
        size_t len;

        tei_random(data, n);
        text = tei_base64_encode(data, n);
        assert_int_equal(strlen(text), (n + 2) / 3 * 4);
        assert_int_equal(tei_base64_decode_new(text, strlen(text), &copy, &len), 0);
        assert_int_equal(len, n);
        assert_memory_equal(copy, data, n);
        free(copy);
        assert_true(tei_base64_decode(text, strlen(text), true, out, n, &len));
        assert_int_equal(len, n);
        assert_memory_equal(out, data, n);
        assert_true(n == 0 || !tei_base64_decode(text, strlen(text), true, out, n - 1, &len));
        free(text);
    }
}

TEST(malformed_texts_are_refused)
{
    static const char *const texts[] = {
        "Z",     "Zg",     "Zg=",     "=",        "==",   "===",
        "====",  "Z===",   "Zg=a",    "=g==",     "Zm9*", "Zm9v ",
        "Zm 9v", "Zm9v\n", "Zm9vZg=", "Zg==Zg==", "Zm9-", "\xff\xff\xff\xff"};
    char *data = NULL;
    size_t len;

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++)
        if (!tei_base64_decode_new(texts[i], strlen(texts[i]), &data, &len))
            fail_msg("taken: '%s'", texts[i]);
    assert_null(data);
    /* Whatever comes, no byte outside is touched; the sanitizers see to that. */
    for (int i = 0; i < 20000; i++) {
        uint8_t noise[12];

        tei_random(noise, sizeof noise);
        if (!tei_base64_decode_new((char *)noise, noise[0] % sizeof noise, &data, &len))
            free(data);
    }
}

/* Else a key could be written in several ways. */
TEST(exact_texts_have_no_bits_behind_the_last_byte)
{
    uint8_t out[3];
    size_t len;

    assert_true(tei_base64_decode("Zh==", 4, false, out, sizeof out, &len));
    assert_int_equal(len, 1);
    assert_false(tei_base64_decode("Zh==", 4, true, out, sizeof out, &len));
    assert_false(tei_base64_decode("Zm9=", 4, true, out, sizeof out, &len));
    assert_true(tei_base64_decode("Zm8=", 4, true, out, sizeof out, &len));
    assert_true(tei_base64_decode("Zm9v", 4, true, out, sizeof out, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_rfc_4648),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(exact_texts_have_no_bits_behind_the_last_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
