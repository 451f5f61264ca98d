/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of JSON: what jansson reads is read the same, and when memory is out nothing is left out. */
#include "model/model.h"
#include "test.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static long left = -1; /* allocations until one fails; negative: none does */
static size_t live;

static void *take(size_t n)
{
    void *p = left-- == 0 ? NULL : malloc(n);

    live += p != NULL;
    return p;
}

static void give(void *p)
{
    live -= p != NULL;
    free(p);
}

static const char *const texts[] = {
    "{}",
    "[]",
    " [ ] ",
    "{\"a\":1}",
    "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":true,\"e\":false}",
    "[-0,0,-1,9223372036854775807,-9223372036854775808]",
    "[1.5,-2e3,1E-2,0.0,123456789.123456789]",
    "[\"\",\"plain\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\ud83d\\ude00\",\"\xc3\xa9\"]",
    ("{\"a long key of many bytes, which no small buffer holds: 0123456789012345678901234567890123456789"
     "0123456789012345678901234567890123456789\":\"a long text, for which the reader's room has to grow\"}"),
    "{\"\\u0061\":1,\"b\":[\"0123456789012345678901234567890123456789\",1234567890123456789]}",
    /* wrong */
    "",
    " ",
    "{",
    "[",
    "[1",
    "[1,",
    "[1,]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "[01]",
    "[1.]",
    "[.5]",
    "[1e]",
    "[+1]",
    "[9223372036854775808]",
    "[1e999]",
    "[\"\\x\"]",
    "[\"\\u0000\"]",
    "[\"\\ud800\"]",
    "[\"\xff\"]",
    "[\"\xc0\x80\"]",
    "[\"a\nb\"]",
    "[tru]",
    "[nul]",
    "1",
    "\"a\"",
    "null",
    "[] []",
    "{\"a\":1}x",
    "{\"a\":1,\"a\":2}",
    "[\"a]",
};

static const size_t flags[] = {0, JSON_REJECT_DUPLICATES, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES};

TEST(reads_what_jansson_reads)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        for (size_t k = 0; k < TEI_ARRAY_LEN(flags); k++) {
            size_t n = strlen(texts[i]);
            json_t *want = json_loadb(texts[i], n, flags[k], NULL), *got;
            json_error_t why = {.position = -1};
            int rc = tei_json_load(texts[i], n, flags[k], &got, &why);

            if ((rc == 0) != (want != NULL) || (rc && rc != TE_ERR_JSON) || (got && rc))
                fail_msg("%s: %d (%s)", texts[i], rc, rc ? why.text : "");
            if (want && !json_equal(want, got))
                fail_msg("%s is read as something else", texts[i]);
            if (rc && (!why.text[0] || why.position < 0 || (size_t)why.position > n))
                fail_msg("%s: '%s' at %d", texts[i], why.text, why.position);
            json_decref(want);
            json_decref(got);
        }
    }
}

TEST(nests_as_deep)
{
    static char deep[2 * 2049];
    json_t *j;

    for (size_t n = 2048; n <= 2049; n++) {
        memset(deep, '[', n);
        memset(deep + n, ']', n);
        assert_int_equal(tei_json_load(deep, 2 * n, 0, &j, NULL), n > 2048 ? TE_ERR_JSON : 0);
        json_decref(j);
    }
}

/* In a locale whose point is a comma, if there is one here. */
TEST(numbers_have_points)
{
    json_t *j;

    setlocale(LC_NUMERIC, "de_DE.UTF-8");
    assert_int_equal(tei_json_load("[1.5]", 5, 0, &j, NULL), 0);
    assert_true(json_real_value(json_array_get(j, 0)) == 1.5);
    json_decref(j);
    setlocale(LC_NUMERIC, "C");
}

/* Each allocation of jansson fails once: all of the text is there, or TE_ERR_MEMORY. */
TEST(whole_or_out_of_memory)
{
    json_set_alloc_funcs(take, give);
    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        size_t n = strlen(texts[i]);
        json_t *want, *got, *copy;
        int rc = tei_json_load(texts[i], n, JSON_DECODE_ANY, &want, NULL);

        for (long fail = 0; !rc; fail++) {
            left = fail;
            rc = tei_json_load(texts[i], n, JSON_DECODE_ANY, &got, NULL);
            copy = rc ? NULL : tei_json_clone(got);
            if (left >= 0) {
                left = -1;
                assert_true(json_equal(want, got) && json_equal(want, copy));
                json_decref(got);
                json_decref(copy);
                break;
            }
            left = -1;
            assert_true(rc == TE_ERR_MEMORY || (!rc && json_equal(want, got)));
            assert_true(rc || !copy || json_equal(want, copy));
            json_decref(got);
            json_decref(copy);
            rc = 0;
        }
        json_decref(want);
        assert_int_equal(live, 0);
    }
    json_set_alloc_funcs(malloc, free);
}

TEST(text_that_is_not_utf8)
{
    json_t *j;

    assert_int_equal(tei_json_string("\xc3\xa9", &j), 0);
    assert_string_equal(json_string_value(j), "\xc3\xa9");
    json_decref(j);
    assert_int_equal(tei_json_string("\xff", &j), TE_ERR_INVALID);
    json_set_alloc_funcs(take, give);
    left = 0;
    assert_int_equal(tei_json_string("a", &j), TE_ERR_MEMORY);
    left = -1;
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_jansson_reads), cmocka_unit_test(nests_as_deep),
        cmocka_unit_test(numbers_have_points),      cmocka_unit_test(whole_or_out_of_memory),
        cmocka_unit_test(text_that_is_not_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
