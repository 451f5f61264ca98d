/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of files: a row of them, in which each begins where the one before it ends. */
#include "model/model.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define FILES(buffers) "{\"name\":\"f\",\"protocol\":\"nvmeof\",\"buffers\":[" buffers "]}"
#define ONE(path, length, map) \
    "{\"file_path\":" path ",\"length\":" length ",\"local_path_map\":" map "}"

static struct tei_segment *decoded(const char *text)
{
    struct tei_segment *s = NULL;

    if (tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &s))
        fail_msg("%s", te_errmsg());
    return s;
}

TEST(files_run_on)
{
    static const char text[] = FILES(ONE("\"/z\"", "100", "{}") "," ONE("\"/a\"", "1", "{}") "," //
                                     ONE("\"/m\"", "5000000000", "{\"h\":\"/x\"}"));
    struct tei_segment *s = decoded(text);
    uint64_t part;
    size_t at;

    assert_true(s->files);
    assert_int_equal(s->n_buffers, 3);
    assert_int_equal(s->buffers[0].addr, 0);
    assert_int_equal(s->buffers[1].addr, 100);
    assert_int_equal(s->buffers[2].addr, 101);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(s->buffers[i].index, i);
        assert_int_equal(s->buffers[i].access, TE_REMOTE_RW);
    }
    /* A range over all three is there, one byte more is not. */
    assert_int_equal(tei_segment_allows(s, 0, 5000000101, TE_REMOTE_RW), 0);
    assert_int_equal(tei_segment_allows(s, 0, 5000000102, TE_REMOTE_RW), TE_ERR_STALE);
    assert_int_equal(tei_segment_allows(s, 5000000101, 1, TE_REMOTE_READ), TE_ERR_STALE);
    assert_true(tei_segment_cover(s, 99, 10, &at, &part));
    assert_int_equal(at, 0);
    assert_int_equal(part, 1);
    assert_true(tei_segment_cover(s, 100, 10, &at, &part));
    assert_int_equal(at, 1);
    assert_int_equal(part, 1);
    tei_segment_put(s);
}

TEST(both_names)
{
    struct tei_segment *s = decoded("{\"server_name\":\"old\",\"protocol\":\"nvmeof\",\"buffers\":["
                                    "{\"file_path\":\"/a\",\"length\":1}]}");

    assert_string_equal(s->name, "old");
    assert_int_equal(s->n_buffers, 1);
    tei_segment_put(s);
    s = decoded("{\"server_name\":\"host\",\"name\":\"new\",\"protocol\":\"nvmeof\",\"buffers\":["
                "{\"file_path\":\"/a\",\"length\":1}]}");
    assert_string_equal(s->name, "new");
    assert_string_equal(json_string_value(json_object_get(s->root, "server_name")), "host");
    tei_segment_put(s);
}

/* "addr" of a file, which some writer may add, means nothing; nor has "devices" anything to say. */
TEST(keys_of_others)
{
    struct tei_segment *s =
        decoded("{\"name\":\"f\",\"protocol\":\"nvmeof\",\"devices\":7,\"buffers\":["
                "{\"file_path\":\"/a\",\"length\":10,\"addr\":4096,\"rkey\":1,\"name\":7},"
                "{\"file_path\":\"/b\",\"length\":10,\"addr\":4096,\"offset\":3}]}");

    assert_int_equal(s->buffers[0].addr, 0);
    assert_int_equal(s->buffers[1].addr, 10);
    tei_segment_put(s);
}

TEST(none_at_all)
{
    struct tei_segment *s = decoded(FILES(""));

    assert_true(s->files);
    assert_int_equal(s->n_buffers, 0);
    assert_int_equal(tei_segment_allows(s, 0, 1, TE_REMOTE_READ), TE_ERR_STALE);
    tei_segment_put(s);
    s = decoded("{\"name\":\"f\",\"protocol\":\"nvmeof\"}");
    assert_int_equal(s->n_buffers, 0);
    tei_segment_put(s);
}

/* The same keys under another protocol are no files, and no memory either. */
TEST(other_protocols)
{
    struct tei_segment *s = decoded("{\"name\":\"f\",\"protocol\":\"tcp\",\"buffers\":["
                                    "{\"file_path\":\"/a\",\"length\":10,\"local_path_map\":{}}]}");

    assert_false(s->files);
    assert_int_equal(s->n_buffers, 0);
    tei_segment_put(s);
}

TEST(largest)
{
    struct tei_segment *s = decoded(FILES(ONE("\"/a\"", "9223372036854775806", "{}") "," //
                                          ONE("\"/b\"", "1", "{}")));

    assert_int_equal(s->buffers[1].addr, INT64_MAX - 1);
    assert_int_equal(tei_segment_allows(s, INT64_MAX - 1, 1, TE_REMOTE_WRITE), 0);
    tei_segment_put(s);
}

TEST(refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {FILES("7"), "buffers[0] is an integer"},
        {FILES("null"), "buffers[0] is null"},
        {FILES("{}"), "'file_path' is missing"},
        {FILES(ONE("7", "1", "{}")), "'file_path' is an integer"},
        {FILES(ONE("\"\"", "1", "{}")), "'file_path' is empty"},
        {FILES("{\"file_path\":\"/a\"}"), "'length' is missing"},
        {FILES(ONE("\"/a\"", "0", "{}")), "'length' is 0, must be positive"},
        {FILES(ONE("\"/a\"", "-1", "{}")), "'length' is -1, must be positive"},
        {FILES(ONE("\"/a\"", "1.0", "{}")), "'length' is a real"},
        {FILES(ONE("\"/a\"", "\"1\"", "{}")), "'length' is a string"},
        {FILES(ONE("\"/a\"", "true", "{}")), "'length' is true"},
        {FILES(ONE("\"/a\"", "9223372036854775808", "{}")), "byte"},
        {FILES(ONE("\"/a\"", "9223372036854775807", "{}") "," ONE("\"/b\"", "1", "{}")), "wraps"},
        {FILES(ONE("\"/a\"", "9223372036854775807", "{}") "," //
               ONE("\"/b\"", "9223372036854775807", "{}") "," //
               ONE("\"/c\"", "9223372036854775807", "{}")),
         "buffers[1]"},
        {FILES(ONE("\"/a\\u0000b\"", "1", "{}")), "byte"},
        {FILES(ONE("\"/a\"", "1", "{}") ",{\"addr\":1,\"length\":1,\"name\":\"m\"}"),
         "buffers[1]: 'file_path' is missing"},
    };

    te_log_set_level(TE_LOG_OFF);
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        struct tei_segment *s = NULL;

        if (tei_segment_decode(bad[i].text, strlen(bad[i].text), &tei_segment_unlimited, &s) !=
            TE_ERR_JSON)
            fail_msg("accepted: %s", bad[i].text);
        if (!strstr(te_errmsg(), bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad[i].text, te_errmsg(), bad[i].says);
        assert_null(s);
    }
}

TEST(rights_of_files)
{
    struct tei_segment *s =
        decoded("{\"name\":\"f\",\"protocol\":\"nvmeof\",\"buffers\":["
                "{\"file_path\":\"/a\",\"length\":10},{\"file_path\":\"/b\",\"length\":10}],"
                "\"te\":{\"incarnation\":\"00000000000000ab\",\"version\":3,"
                "\"rights\":[[10,\"r\"]]}}");

    assert_false(s->by_path);
    assert_int_equal(tei_segment_allows(s, 0, 10, TE_REMOTE_WRITE), 0);
    assert_int_equal(tei_segment_allows(s, 5, 10, TE_REMOTE_READ), 0);
    assert_int_equal(tei_segment_allows(s, 5, 10, TE_REMOTE_WRITE), TE_ERR_ACCESS);
    tei_segment_put(s);
}

TEST(of_one_file)
{
    struct tei_segment *s;
    json_t *b;

    te_log_set_level(TE_LOG_OFF);
    assert_int_equal(tei_segment_of_file("file:///a \"b\"", "/a \"b\"", 12345, &s), 0);
    assert_string_equal(s->name, "file:///a \"b\"");
    assert_true(s->files && s->by_path);
    assert_int_equal(s->n_buffers, 1);
    assert_int_equal(s->buffers[0].length, 12345);
    b = tei_segment_buffer(s, 0);
    assert_string_equal(json_string_value(json_object_get(b, "file_path")), "/a \"b\"");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(b, "local_path_map"), "*")), "/a \"b\"");
    json_decref(b);
    tei_segment_put(s);
    /* What JSON cannot say. */
    assert_int_equal(tei_segment_of_file("file:///\xff", "/\xff", 1, &s), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "UTF-8"));
    assert_int_not_equal(tei_segment_of_file("file:///a", "/a", (uint64_t)INT64_MAX + 1, &s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_run_on),    cmocka_unit_test(both_names),
        cmocka_unit_test(keys_of_others),  cmocka_unit_test(none_at_all),
        cmocka_unit_test(other_protocols), cmocka_unit_test(largest),
        cmocka_unit_test(refused),         cmocka_unit_test(rights_of_files),
        cmocka_unit_test(of_one_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
