/* SPDX-License-Identifier: Apache-2.0 */
/* Trace contexts: text and bytes, there and back, and what is not one. */

#include "base/traceparent.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
#define GOOD   "00-" TRACE "-" PARENT "-01"

static const uint8_t bytes[TEI_TRACEPARENT_LEN] = {0,    0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3,
                                                   0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e,
                                                   0x0e, 0x47, 0x36, 0x00, 0xf0, 0x67, 0xaa,
                                                   0x0b, 0xa9, 0x02, 0xb7, 0x01};

/* Of memory that ends with the text, for the address sanitizer. */
static const char *reads(const char *text, struct tei_traceparent *out)
{
    char *exact = strdup(text);
    const char *wrong;

    assert_non_null(exact);
    wrong = tei_traceparent_read(exact, out);
    free(exact);
    return wrong;
}

TEST(there_and_back)
{
    struct tei_traceparent t, again;
    char text[TEI_TRACEPARENT_TEXT];

    assert_null(reads(GOOD, &t));
    assert_memory_equal(&t, bytes, sizeof bytes);
    assert_string_equal(tei_traceparent_write(&t, text), GOOD);
    assert_true(tei_traceparent_take(bytes, sizeof bytes, &again));
    assert_true(tei_traceparent_same(&t, &again));
}

/* As W3C has it: what is known of a later version counts, and goes on as version 00. */
TEST(a_later_version)
{
    static const char *const texts[] = {"01-" TRACE "-" PARENT "-01",
                                        "fe-" TRACE "-" PARENT "-01-more"};
    uint8_t longer[TEI_TRACEPARENT_LEN + 3] = {0};
    struct tei_traceparent t;

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        assert_null(reads(texts[i], &t));
        assert_memory_equal(&t, bytes, sizeof bytes);
    }
    memcpy(longer, bytes, sizeof bytes);
    longer[0] = 7;
    assert_true(tei_traceparent_take(longer, sizeof longer, &t));
    assert_memory_equal(&t, bytes, sizeof bytes);
}

TEST(texts_that_are_none)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "it is not 00-"},
        {"00", "it is not 00-"},
        {"00-" TRACE "-" PARENT "-0", "it is not 00-"},
        {"00-" TRACE "-" PARENT, "it is not 00-"},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", "it is not 00-"},
        {"00-" TRACE "_" PARENT "-01", "it is not 00-"},
        {"0x-" TRACE "-" PARENT "-01", "it is not 00-"},
        {" " GOOD, "it is not 00-"},
        {GOOD " ", "goes on behind"},
        {GOOD "-", "goes on behind"},
        {"01-" TRACE "-" PARENT "-01x", "goes on behind"},
        {"ff-" TRACE "-" PARENT "-01", "of no version"},
        {"00-00000000000000000000000000000000-" PARENT "-01", "all zeros"},
        {"00-" TRACE "-0000000000000000-01", "all zeros"},
    };
    struct tei_traceparent t;

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        const char *why = reads(bad[i].text, &t);

        assert_non_null(why);
        assert_non_null(strstr(why, bad[i].why));
    }
}

TEST(bytes_that_are_none)
{
    uint8_t bad[TEI_TRACEPARENT_LEN];
    struct tei_traceparent t;

    for (size_t n = 0; n < sizeof bytes; n++) {
        uint8_t *exact = malloc(n ? n : 1);

        assert_non_null(exact);
        memcpy(exact, bytes, n);
        assert_false(tei_traceparent_take(exact, n, &t));
        free(exact);
    }
    memcpy(bad, bytes, sizeof bad);
    bad[0] = 0xff;
    assert_false(tei_traceparent_take(bad, sizeof bad, &t));
    memcpy(bad, bytes, sizeof bad);
    memset(bad + 1, 0, 16);
    assert_false(tei_traceparent_take(bad, sizeof bad, &t));
    memcpy(bad, bytes, sizeof bad);
    memset(bad + 17, 0, 8);
    assert_false(tei_traceparent_take(bad, sizeof bad, &t));
}

TEST(which_are_the_same)
{
    struct tei_traceparent a, b;

    assert_null(reads(GOOD, &a));
    b = a;
    assert_true(tei_traceparent_same(NULL, NULL));
    assert_true(tei_traceparent_same(&a, &b));
    assert_false(tei_traceparent_same(&a, NULL));
    assert_false(tei_traceparent_same(NULL, &a));
    b.flags ^= 1;
    assert_false(tei_traceparent_same(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),      cmocka_unit_test(a_later_version),
        cmocka_unit_test(texts_that_are_none), cmocka_unit_test(bytes_that_are_none),
        cmocka_unit_test(which_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
