/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/os.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct captured {
    int lines;
    enum te_log_level level;
    char line[2048];
};

static void capture(void *arg, enum te_log_level level, const char *line)
{
    struct captured *c = arg;

    c->lines++;
    c->level = level;
    strncpy(c->line, line, sizeof c->line - 1);
}

static int silence(void **state)
{
    static struct captured ignored;

    (void)state;
    te_log_set_sink(capture, &ignored);
    tei_err_keep(TE_ERR_OK, "");
    return 0;
}

TEST(the_table_names_every_error_once)
{
    static const int numbers[] = {
#define NUMBER(name, number, class, text) TE_ERR_##name,
        TE_ERR_MAP(NUMBER)
#undef NUMBER
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(numbers); i++) {
        assert_true(numbers[i] <= 0);
        assert_string_not_equal(te_strerror(numbers[i]), te_strerror(1));
        assert_int_equal(strncmp(te_errname(numbers[i]), "TE_ERR_", 7), 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(numbers[i], numbers[k]);
            assert_string_not_equal(te_strerror(numbers[i]), te_strerror(numbers[k]));
        }
    }
    assert_string_equal(te_errname(TE_ERR_TIMEOUT), "TE_ERR_TIMEOUT");
    assert_string_equal(te_errname(1), "TE_ERR_UNKNOWN");
    assert_string_equal(te_strerror(-9999), "unknown error");
}

TEST(numbers_that_others_know_stay)
{
    assert_int_equal(TE_ERR_INVALID, -1);
    assert_int_equal(TE_ERR_NOT_REGISTERED, -3);
    assert_int_equal(TE_ERR_BUSY, -4);
    assert_int_equal(TE_ERR_OVERLAP, -7);
    assert_int_equal(TE_ERR_DNS, -101);
    assert_int_equal(TE_ERR_METADATA, -200);
    assert_int_equal(TE_ERR_MEMORY, -302);
    assert_int_equal(TE_ERR_NOT_IMPLEMENTED, -303);
}

TEST(classes_follow_the_table)
{
    assert_int_equal(tei_err_class(0), TEI_CLASS_OK);
    assert_int_equal(tei_err_class(TE_ERR_INVALID), TEI_CLASS_REQUEST);
    assert_int_equal(tei_err_class(TE_ERR_LINK), TEI_CLASS_PATH);
    assert_int_equal(tei_err_class(TE_ERR_MEMORY), TEI_CLASS_FATAL);
    assert_int_equal(tei_err_class(7), TEI_CLASS_FATAL);
}

TEST(fail_keeps_the_text_logs_it_and_gives_the_code)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    errno = ENOTTY;
    assert_int_equal(TEI_FAIL(TE_ERR_PEER, "node %s is %d away", "a", 3), TE_ERR_PEER);
    assert_int_equal(errno, ENOTTY);
    assert_string_equal(te_errmsg(), "node a is 3 away");
    assert_string_equal(c.line, "TE_ERR_PEER: node a is 3 away");
    assert_int_equal(c.level, TE_LOG_WARN);
    TEI_FAIL(TE_ERR_MEMORY, "none");
    assert_int_equal(c.level, TE_LOG_ERROR);
}

TEST(fail_may_quote_the_last_message)
{
    TEI_FAIL(TE_ERR_DNS, "inner");
    TEI_FAIL(TE_ERR_PEER, "outer: %s", te_errmsg());
    assert_string_equal(te_errmsg(), "outer: inner");
    tei_err_keep(TE_ERR_PEER, te_errmsg() + 7);
    assert_string_equal(te_errmsg(), "inner");
}

TEST(a_long_text_is_cut)
{
    char text[5000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    TEI_FAIL(TE_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(te_errmsg()), 1023);
    tei_err_keep(TE_ERR_OK, "");
    assert_int_equal(tei_err_keep(TE_ERR_STALE, text), TE_ERR_STALE);
    assert_int_equal(strlen(te_errmsg()), 1023);
}

TEST(keep_does_not_log)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    tei_err_keep(TE_ERR_LINK, "told elsewhere");
    assert_string_equal(te_errmsg(), "told elsewhere");
    assert_int_equal(c.lines, 0);
}

TEST(one_site_floods_neither_log_nor_message)
{
    struct captured c = {0};
    int64_t first = tei_now_ns() / TEI_NS_PER_S, seconds;

    te_log_set_sink(capture, &c);
    for (int i = 0; i < 1000; i++) {
        TEI_FAIL(TE_ERR_LINK, "number %d", i);
    }
    seconds = tei_now_ns() / TEI_NS_PER_S - first + 1; /* that the loop was in */
    assert_in_range(c.lines, 1, seconds * TEI_LOG_BURST);
    assert_string_equal(te_errmsg(), "number 999");
}

static void *fail_elsewhere(void *arg)
{
    TEI_FAIL(TE_ERR_LINK, "%s", "of the other thread");
    *(size_t *)arg = strlen(te_errmsg());
    return NULL;
}

TEST(the_text_belongs_to_the_thread)
{
    size_t n = 0;
    pthread_t t;

    TEI_FAIL(TE_ERR_LINK, "mine");
    assert_int_equal(pthread_create(&t, NULL, fail_elsewhere, &n), 0);
    pthread_join(t, NULL);
    assert_int_equal(n, strlen("of the other thread"));
    assert_string_equal(te_errmsg(), "mine");
}

TEST(errno_text_is_text)
{
    assert_string_equal(tei_errno_text(ENOENT), "No such file or directory");
    assert_non_null(tei_errno_text(123456));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_names_every_error_once),
        cmocka_unit_test(numbers_that_others_know_stay),
        cmocka_unit_test(classes_follow_the_table),
        cmocka_unit_test_setup(fail_keeps_the_text_logs_it_and_gives_the_code, silence),
        cmocka_unit_test_setup(fail_may_quote_the_last_message, silence),
        cmocka_unit_test_setup(a_long_text_is_cut, silence),
        cmocka_unit_test_setup(keep_does_not_log, silence),
        cmocka_unit_test_setup(one_site_floods_neither_log_nor_message, silence),
        cmocka_unit_test_setup(the_text_belongs_to_the_thread, silence),
        cmocka_unit_test(errno_text_is_text),
    };

    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
