/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/transfer_engine_bench/trace.c"
#include "test.h"

static struct trace t;
static char error[TRACE_ERROR_MAX];

static bool parse(const char *text)
{
    return trace_parse_line(&t, text, strlen(text), 7, error);
}

/* Reads a file with this text. */
static bool read_all(const char *text, size_t max)
{
    FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(in);
    bool ok = trace_read(&t, in, max, error);
    fclose(in);
    return ok;
}

static int empty(void **state)
{
    (void)state;
    trace_free(&t);
    return 0;
}

TEST(request_is_read)
{
    assert_true(
        parse("{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 0, \"hash_ids\": []}"));
    assert_true(
        parse(" {\"hash_ids\": [3, 4, 9007199254740993], \"output_length\": 1, \"other\": {},"
              " \"input_length\": 1025, \"timestamp\": 12} \r\n"));
    assert_int_equal(t.count, 2);
    assert_int_equal(t.blocks_max, 3);
    const struct trace_request *r = &t.requests[1];
    assert_int_equal(r->timestamp_ms, 12);
    assert_int_equal(r->tokens, 1025);
    assert_int_equal(r->blocks, 3);
    assert_int_equal(r->line, 7);
    assert_int_equal(t.ids[r->first_id + 2], 9007199254740993);
    assert_int_equal(trace_block_tokens(r, 0), 512);
    assert_int_equal(trace_block_tokens(r, 1), 512);
    assert_int_equal(trace_block_tokens(r, 2), 1);
}

TEST(nothing_is_read_of_a_blank_line)
{
    assert_true(parse("") && parse("\n") && parse(" \t\r\n"));
    assert_int_equal(t.count, 0);
}

TEST(malformed_lines)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{", "no JSON: "},
        {"{}{}", "no JSON: "},
        {"null", "no JSON"},
        {"17", "no JSON: "},
        {"[]", "no JSON object"},
        {"{\"timestamp\": 1, \"timestamp\": 1}", "no JSON: "},
        {"{}", "field timestamp is missing"},
        {"{\"timestamp\": -1}", "field timestamp must be"},
        {"{\"timestamp\": 1.5}", "field timestamp must be"},
        {"{\"timestamp\": \"1\"}", "field timestamp must be"},
        {"{\"timestamp\": 1}", "field input_length is missing"},
        {"{\"timestamp\": 1, \"input_length\": null}", "field input_length must be"},
        {"{\"timestamp\": 1, \"input_length\": 1}", "field output_length is missing"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}",
         "field hash_ids is missing"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 1}",
         "field hash_ids must be an array"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [-1]}",
         "hash_ids[0] must be"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1, 2]}",
         "hash_ids has 2 ids, but input_length 1 is 1 blocks of 512 tokens"},
        {"{\"timestamp\": 1, \"input_length\": 9223372036854775807, \"output_length\": 1, "
         "\"hash_ids\": [1]}",
         "is 18014398509481984 blocks"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(parse(bad[i].text));
        assert_int_equal(strncmp(error, "line 7: ", 8), 0);
        assert_non_null(strstr(error, bad[i].says));
    }
    assert_false(trace_parse_line(&t, "{}\0", 3, 7, error));
    assert_int_equal(t.count, 0);
    assert_int_equal(t.id_count, 0);
}

#define LINE(time, id) \
    "{\"timestamp\":" #time ",\"input_length\":5,\"output_length\":1,\"hash_ids\":[" #id "]}\n"

TEST(lines_of_a_file_have_numbers)
{
    assert_true(read_all(LINE(1, 1) "\n" LINE(1, 2), 0));
    assert_int_equal(t.count, 2);
    assert_int_equal(t.requests[1].line, 3);
    trace_free(&t);
    assert_false(read_all(LINE(1, 1) "\n\nx", 0));
    assert_non_null(strstr(error, "line 4: no JSON"));
    trace_free(&t);
    assert_false(read_all(LINE(2, 1) LINE(1, 2), 0));
    assert_non_null(strstr(error, "line 2: timestamp 1 lies before"));
    trace_free(&t);
    assert_false(read_all("\n\n", 0));
    assert_non_null(strstr(error, "no request"));
}

TEST(as_many_as_asked_for)
{
    assert_true(read_all(LINE(1, 1) LINE(2, 2) "x", 2));
    assert_int_equal(t.count, 2);
    trace_free(&t);
    assert_false(read_all(LINE(1, 1) LINE(2, 2) "x", 3));
}

TEST(arrays_grow)
{
    for (size_t i = 0; i < 3000; i++)
        assert_true(parse(LINE(1, 8)));
    assert_int_equal(t.count, 3000);
    assert_int_equal(t.id_count, 3000);
    assert_int_equal(t.ids[2999], 8);
    assert_int_equal(t.requests[2999].first_id, 2999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(request_is_read, empty),
        cmocka_unit_test_teardown(nothing_is_read_of_a_blank_line, empty),
        cmocka_unit_test_teardown(malformed_lines, empty),
        cmocka_unit_test_teardown(lines_of_a_file_have_numbers, empty),
        cmocka_unit_test_teardown(as_many_as_asked_for, empty),
        cmocka_unit_test_teardown(arrays_grow, empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
