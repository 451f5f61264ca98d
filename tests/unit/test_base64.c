/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/base64.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"

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
        struct tei_bytes b;

        assert_string_equal(text, rows[i][1]);
        assert_int_equal(tei_base64_decode(text, strlen(text), &b), 0);
        assert_string_equal(b.data, rows[i][0]);
        tei_bytes_fini(&b);
        free(text);
    }
}

TEST(random_bytes_come_back)
{
    uint8_t data[1000];

    for (size_t n = 0; n < sizeof data; n += 7) {
        struct tei_bytes b;
        char *text;

        tei_random(data, n);
        text = tei_base64_encode(data, n);
        assert_int_equal(strlen(text), (n + 2) / 3 * 4);
        assert_int_equal(tei_base64_decode(text, strlen(text), &b), 0);
        assert_int_equal(b.len, n);
        assert_memory_equal(b.data, data, n);
        tei_bytes_fini(&b);
        free(text);
    }
}

TEST(malformed_texts_are_refused)
{
    static const char *const texts[] = {
        "Z",     "Zg",     "Zg=",     "=",        "==",   "===",
        "====",  "Z===",   "Zg=a",    "=g==",     "Zm9*", "Zm9v ",
        "Zm 9v", "Zm9v\n", "Zm9vZg=", "Zg==Zg==", "Zm9-", "\xff\xff\xff\xff"};
    struct tei_bytes b = {0};

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++)
        if (!tei_base64_decode(texts[i], strlen(texts[i]), &b))
            fail_msg("taken: '%s'", texts[i]);
    assert_null(b.data);
    /* Whatever comes, no byte outside is touched; the sanitizers see to that. */
    for (int i = 0; i < 20000; i++) {
        uint8_t noise[12];

        tei_random(noise, sizeof noise);
        if (!tei_base64_decode((char *)noise, noise[0] % sizeof noise, &b))
            tei_bytes_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_rfc_4648),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(malformed_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
