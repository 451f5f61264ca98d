/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/meta.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX ((size_t)1 << 20)

/* A request for the descriptor, as captured from another engine. */
static const uint8_t golden[] = {4, 0, 0, 0, 0, 0, 0, 0, 1, '{', '}', '\n'};

static struct tei_rpc_parser p;

static int open_parser(void **state)
{
    (void)state;
    tei_rpc_parser_init(&p, MAX);
    return 0;
}

static int close_parser(void **state)
{
    (void)state;
    tei_rpc_parser_fini(&p);
    return 0;
}

static void check_golden(void)
{
    size_t len;
    const char *body = tei_rpc_parser_body(&p, &len);

    assert_true(p.done);
    assert_true(p.typed);
    assert_int_equal(p.type, TEI_RPC_METADATA);
    assert_int_equal(len, 3);
    assert_string_equal(body, "{}\n");
}

TEST(test_golden_at_once)
{
    size_t used;

    assert_int_equal(tei_rpc_parser_feed(&p, golden, sizeof golden, &used), 1);
    assert_int_equal(used, sizeof golden);
    check_golden();
}

TEST(test_golden_cut_everywhere)
{
    size_t used;

    for (size_t cut = 0; cut <= sizeof golden; cut++) {
        int whole = cut == sizeof golden;

        tei_rpc_parser_init(&p, MAX);
        assert_int_equal(tei_rpc_parser_feed(&p, golden, cut, &used), whole);
        assert_int_equal(used, cut);
        assert_int_equal(tei_rpc_parser_feed(&p, golden + cut, sizeof golden - cut, &used), 1);
        assert_int_equal(used, sizeof golden - cut);
        check_golden();
        tei_rpc_parser_fini(&p);
    }
}

TEST(test_golden_byte_by_byte)
{
    size_t used;

    for (size_t i = 0; i < sizeof golden; i++) {
        assert_int_equal(tei_rpc_parser_feed(&p, golden + i, 1, &used), i + 1 == sizeof golden);
        assert_int_equal(used, 1);
    }
    check_golden();
}

TEST(test_what_follows_is_not_taken)
{
    uint8_t two[2 * sizeof golden];
    size_t used;

    memcpy(two, golden, sizeof golden);
    memcpy(two + sizeof golden, golden, sizeof golden);
    assert_int_equal(tei_rpc_parser_feed(&p, two, sizeof two, &used), 1);
    assert_int_equal(used, sizeof golden);
    assert_int_equal(tei_rpc_parser_feed(&p, two, sizeof two, &used), 1);
    assert_int_equal(used, 0);
    check_golden();
}

TEST(test_old_form_has_no_type)
{
    static const uint8_t old[] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}', '\n'};
    size_t used, len;

    assert_int_equal(tei_rpc_parser_feed(&p, old, sizeof old, &used), 1);
    assert_false(p.typed);
    assert_string_equal(tei_rpc_parser_body(&p, &len), "{}\n");
    assert_int_equal(len, 3);
}

TEST(test_every_first_byte)
{
    for (int first = 0; first < 256; first++) {
        uint8_t frame[] = {2, 0, 0, 0, 0, 0, 0, 0, (uint8_t)first, 'x'};
        size_t used, len;

        tei_rpc_parser_init(&p, MAX);
        assert_int_equal(tei_rpc_parser_feed(&p, frame, sizeof frame, &used), 1);
        assert_int_equal(p.typed, first <= 3);
        tei_rpc_parser_body(&p, &len);
        assert_int_equal(len, first <= 3 ? 1 : 2);
        tei_rpc_parser_fini(&p);
    }
}

TEST(test_type_alone)
{
    static const uint8_t frame[] = {1, 0, 0, 0, 0, 0, 0, 0, 3};
    size_t used, len;

    assert_int_equal(tei_rpc_parser_feed(&p, frame, sizeof frame, &used), 1);
    assert_string_equal(tei_rpc_parser_body(&p, &len), "");
    assert_int_equal(len, 0);
}

static void check_refused(const char *head, int want)
{
    size_t used;

    tei_rpc_parser_init(&p, MAX);
    assert_int_equal(tei_rpc_parser_feed(&p, head, 8, &used), want);
    assert_int_equal(used, 8);
    assert_int_equal(tei_rpc_parser_feed(&p, "{}", 2, &used), want);
    assert_int_equal(p.cap, 0);
}

TEST(test_refused_lengths)
{
    check_refused("\0\0\0\0\0\0\0\0", TE_ERR_PROTOCOL);
    check_refused("\1\0\x10\0\0\0\0\0", TE_ERR_TOO_LARGE);
    check_refused("\xff\xff\xff\xff\xff\xff\xff\xff", TE_ERR_TOO_LARGE);
    check_refused("GET / HTTP/1.1", TE_ERR_TOO_LARGE);
    check_refused("\x16\x03\x01\x02\x00\x01\x00\x01", TE_ERR_TOO_LARGE);
}

/* 1 MiB announced and 100 bytes sent take memory for 100 bytes. */
TEST(test_memory_grows_with_what_arrived)
{
    static const uint8_t head[8] = {0, 0, 0x10};
    char some[100];
    size_t used;

    memset(some, 'a', sizeof some);
    assert_int_equal(tei_rpc_parser_feed(&p, head, sizeof head, &used), 0);
    assert_int_equal(tei_rpc_parser_feed(&p, some, sizeof some, &used), 0);
    assert_in_range(p.cap, 100, 4096);
}

TEST(test_largest_message)
{
    static const uint8_t head[8] = {0, 0, 0x10};
    char *text = malloc(MAX);
    size_t used, len;

    assert_non_null(text);
    memset(text, ' ', MAX);
    assert_int_equal(tei_rpc_parser_feed(&p, head, sizeof head, &used), 0);
    assert_int_equal(tei_rpc_parser_feed(&p, text, MAX - 1, &used), 0);
    assert_int_equal(tei_rpc_parser_feed(&p, text, 5, &used), 1);
    assert_int_equal(used, 1);
    assert_int_equal(strlen(tei_rpc_parser_body(&p, &len)), MAX);
    assert_int_equal(len, MAX);
    free(text);
}

/* ---- bodies */

static void check_message(const te_message *m, const char *want)
{
    char *text = NULL;
    te_message got;

    assert_int_equal(tei_notify_encode(m, 0, &text), 0);
    assert_string_equal(text, want);
    assert_int_equal(tei_notify_decode(text, strlen(text), &got, NULL), 0);
    assert_int_equal(got.name_len, m->name_len);
    assert_memory_equal(got.name, m->name, m->name_len + 1);
    assert_int_equal(got.msg_len, m->msg_len);
    assert_memory_equal(got.msg, m->msg, m->msg_len + 1);
    tei_message_fini(&got);
    free(text);
}

static void check_notify(const char *name, const char *msg, const char *want)
{
    check_message(&(te_message){name, strlen(name), msg, strlen(msg)}, want);
}

TEST(test_notify_round_trip)
{
    check_notify("n1", "hello", "{\"name\":\"n1\",\"notify_msg\":\"hello\"}");
    check_notify("", "", "{\"name\":\"\",\"notify_msg\":\"\"}");
    check_notify("q\"", "a\n\\", "{\"name\":\"q\\\"\",\"notify_msg\":\"a\\n\\\\\"}");
    check_notify("\xff", "x",
                 "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"bytes\":[\"/w==\",\"eA==\"]}}");
    check_message(&(te_message){"", 0, "\0a", 2},
                  "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"bytes\":[\"\",\"AGE=\"]}}");
}

TEST(test_notify_absent_keys_are_empty)
{
    te_message m;

    assert_int_equal(tei_notify_decode("{}\n", 3, &m, NULL), 0);
    assert_string_equal(m.name, "");
    assert_string_equal(m.msg, "");
    assert_true(m.name_len == 0 && m.msg_len == 0);
    tei_message_fini(&m);
}

TEST(test_notify_refused)
{
    static const char *const bad[] = {
        "",
        "[1]",
        "null",
        "{",
        "{\"name\":1,\"notify_msg\":\"x\"}",
        "{\"name\":\"x\",\"notify_msg\":[]}",
        "{\"name\":\"x\\u0000\",\"notify_msg\":\"\"}",
        "{\"name\":\"\xff\",\"notify_msg\":\"\"}",
        "{\"te\":{\"bytes\":[\"/w==\",5]}}",
    };
    te_message m = {0};

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        assert_int_equal(tei_notify_decode(bad[i], strlen(bad[i]), &m, NULL), TE_ERR_JSON);
        assert_null(m.name);
        assert_null(m.msg);
    }
}

/* A text of up to a MiB whose values would take a hundred; the same that breaks off at its end. */
TEST(test_notify_of_much)
{
    static const char *const values[] = {"{},", "[],", "0,", "\"\","};
    static char text[1 << 20];

    for (size_t i = 0; i < TEI_ARRAY_LEN(values); i++) {
        size_t step = strlen(values[i]), len = 0;
        te_message m = {0};

        for (len += (size_t)sprintf(text, "{\"name\":\"a\",\"x\":["); len < sizeof text - 10;
             len += step)
            memcpy(text + len, values[i], step);
        assert_int_equal(tei_notify_decode(text, len, &m, NULL), TE_ERR_TOO_LARGE);
        memcpy(text + len - 1, "]}", 2);
        assert_int_equal(tei_notify_decode(text, len + 1, &m, NULL), TE_ERR_TOO_LARGE);
        assert_null(m.name);
    }
}

/* So long a message has nothing else in it. */
TEST(test_long_notify)
{
    static char text[1 << 20];
    te_message m = {.name = text, .name_len = 10, .msg = text, .msg_len = sizeof text - 1}, got;
    char *all;

    memset(text, 'm', sizeof text - 1);
    text[10] = 0;
    assert_int_equal(tei_notify_encode(&m, 0, &all), 0);
    assert_int_equal(tei_notify_decode(all, strlen(all), &got, NULL), 0);
    assert_int_equal(got.msg_len, m.msg_len);
    assert_memory_equal(got.msg, text, m.msg_len);
    tei_message_fini(&got);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden_at_once, open_parser, close_parser),
        cmocka_unit_test(test_golden_cut_everywhere),
        cmocka_unit_test_setup_teardown(test_golden_byte_by_byte, open_parser, close_parser),
        cmocka_unit_test_setup_teardown(test_what_follows_is_not_taken, open_parser, close_parser),
        cmocka_unit_test_setup_teardown(test_old_form_has_no_type, open_parser, close_parser),
        cmocka_unit_test(test_every_first_byte),
        cmocka_unit_test_setup_teardown(test_type_alone, open_parser, close_parser),
        cmocka_unit_test(test_refused_lengths),
        cmocka_unit_test_setup_teardown(test_memory_grows_with_what_arrived, open_parser,
                                        close_parser),
        cmocka_unit_test_setup_teardown(test_largest_message, open_parser, close_parser),
        cmocka_unit_test(test_notify_round_trip),
        cmocka_unit_test(test_notify_absent_keys_are_empty),
        cmocka_unit_test(test_notify_refused),
        cmocka_unit_test(test_notify_of_much),
        cmocka_unit_test(test_long_notify),
    };

    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
