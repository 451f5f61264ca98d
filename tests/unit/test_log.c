/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "test.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os.h"

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

static int defaults(void **state)
{
    (void)state;
    te_log_set_sink(NULL, NULL);
    te_log_set_level(TE_LOG_WARN);
    tei_log_set_dir(NULL);
    return 0;
}

TEST(the_level_decides)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    TEI_INFO("not wanted");
    assert_int_equal(c.lines, 0);
    TEI_WARN("wanted %d", 1);
    assert_int_equal(c.lines, 1);
    assert_int_equal(c.level, TE_LOG_WARN);
    assert_string_equal(c.line, "wanted 1");
    te_log_set_level(TE_LOG_TRACE);
    TEI_TRACE("all of it");
    assert_string_equal(c.line, "all of it");
    te_log_set_level(TE_LOG_OFF);
    TEI_ERROR("nothing");
    assert_int_equal(c.lines, 2);
}

TEST(an_unwanted_line_costs_no_evaluation)
{
    int evaluated = 0;

    TEI_DEBUG("%d", ++evaluated);
    assert_int_equal(evaluated, 0);
}

TEST(errno_survives)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    errno = EXDEV;
    TEI_WARN("x");
    assert_int_equal(errno, EXDEV);
}

static void warn_from_one_site(int i)
{
    TEI_WARN("line %d", i);
}

static void wait_for_next_second(void)
{
    int64_t s = tei_now_ns() / TEI_NS_PER_S;

    while (tei_now_ns() / TEI_NS_PER_S == s)
        usleep(2000);
}

TEST(dropped_lines_are_counted_and_told)
{
    struct captured c = {0};
    int64_t second;

    te_log_set_sink(capture, &c);
    do { /* all within one second */
        wait_for_next_second();
        c.lines = 0;
        second = tei_now_ns() / TEI_NS_PER_S;
        for (int i = 0; i < TEI_LOG_BURST + 7; i++)
            warn_from_one_site(i);
    } while (tei_now_ns() / TEI_NS_PER_S != second);
    assert_int_equal(c.lines, TEI_LOG_BURST);
    wait_for_next_second();
    warn_from_one_site(100);
    assert_int_equal(c.lines, TEI_LOG_BURST + 1);
    assert_string_equal(c.line, "line 100 (7 more like this dropped)");
    warn_from_one_site(101);
    assert_string_equal(c.line, "line 101");
}

TEST(debug_lines_are_not_limited)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    te_log_set_level(TE_LOG_DEBUG);
    for (int i = 0; i < 50; i++)
        TEI_DEBUG("line %d", i);
    assert_int_equal(c.lines, 50);
}

TEST(a_hostile_name_cannot_forge_a_line)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    TEI_WARN("peer '%s'", "a\nE1120 forged\x1b[2J\x7f");
    assert_string_equal(c.line, "peer 'a?E1120 forged?[2J?'");
}

TEST(a_long_line_is_cut)
{
    struct captured c = {0};
    char text[9000];

    te_log_set_sink(capture, &c);
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    TEI_WARN("%s", text);
    assert_in_range(strlen(c.line), 1024, 1400);
}

TEST(a_descriptor_gets_whole_lines_and_nobody_waits_for_it)
{
    char got[9000], expected[64], text[2000];
    int ends[2];
    ssize_t n;

    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    te_log_set_sink(te_log_to_fd, (void *)(intptr_t)ends[1]);
    TEI_WARN("one line");
    TEI_ERROR("another");
    snprintf(expected, sizeof expected, "3 %ld one line\n4 %ld another\n",
             (long)syscall(SYS_gettid), (long)syscall(SYS_gettid));
    n = read(ends[0], got, sizeof got - 1);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(got, expected, (size_t)n);
    memset(text, 'z', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    te_log_set_level(TE_LOG_DEBUG);
    errno = ENOENT;
    for (int i = 0; i < 100; i++) /* more than the pipe takes */
        TEI_DEBUG("%s", text);
    assert_int_equal(errno, ENOENT);
    while ((n = read(ends[0], got, 4096)) > 0)
        assert_non_null(memchr(got, '\n', (size_t)n));
    assert_int_equal(errno, EAGAIN);
    te_log_set_sink(NULL, NULL);
    close(ends[0]);
    close(ends[1]);
}

static int recursions;

static void recursive(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
    recursions++;
    TEI_WARN("a line out of a sink goes to stderr");
}

TEST(a_sink_that_logs_is_not_called_again)
{
    te_log_set_sink(recursive, NULL);
    TEI_WARN("first");
    assert_int_equal(recursions, 1);
    TEI_WARN("second");
    assert_int_equal(recursions, 2);
}

/* Reads a file of the log folder into `text`. */
static void read_log(const char *dir, char *text, size_t n)
{
    char path[512];
    size_t got;
    FILE *f;

    snprintf(path, sizeof path, "%s/transfer_engine.%ld.log", dir, (long)getpid());
    f = fopen(path, "r");
    assert_non_null(f);
    got = fread(text, 1, n - 1, f);
    text[got] = '\0';
    fclose(f);
    unlink(path);
}

TEST(files_take_the_lines_in_the_known_form)
{
    char one[] = "/tmp/te_log_XXXXXX", two[] = "/tmp/te_log_XXXXXX", text[4096], tail[128], letter;
    int mmdd, h, m, s, us, tid;

    assert_non_null(mkdtemp(one));
    assert_non_null(mkdtemp(two));
    tei_log_set_dir(one);
    TEI_ERROR("hello file");
    tei_log_set_dir(two);
    TEI_WARN("hello other file");
    tei_log_set_dir("");
    read_log(one, text, sizeof text);
    assert_int_equal(sscanf(text, "%c%4d %2d:%2d:%2d.%6d %d te] %127[^\n]", &letter, &mmdd, &h, &m,
                            &s, &us, &tid, tail),
                     8);
    assert_int_equal(letter, 'E');
    assert_in_range(mmdd, 101, 1231);
    assert_int_equal(tid, getpid());
    assert_string_equal(tail, "hello file");
    assert_int_equal(text[strlen(text) - 1], '\n');
    read_log(two, text, sizeof text);
    assert_non_null(strstr(text, "hello other file\n"));
    rmdir(one);
    rmdir(two);
}

TEST(a_folder_that_is_not_there_is_told_once)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    tei_log_set_dir("/nonexistent/folder");
    assert_int_equal(c.lines, 1);
    assert_non_null(strstr(c.line, "/nonexistent/folder"));
    assert_non_null(strstr(c.line, "No such file or directory"));
}

TEST(levels_parse_in_any_case)
{
    enum te_log_level level = TE_LOG_OFF;

    assert_true(tei_log_level_parse("trace", &level));
    assert_int_equal(level, TE_LOG_TRACE);
    assert_true(tei_log_level_parse("Warning", &level));
    assert_int_equal(level, TE_LOG_WARN);
    assert_true(tei_log_level_parse("OFF", &level));
    assert_int_equal(level, TE_LOG_OFF);
    assert_false(tei_log_level_parse("", &level));
    assert_false(tei_log_level_parse("warn ", &level));
    assert_false(tei_log_level_parse("2", &level));
    assert_int_equal(level, TE_LOG_OFF);
}

/* A sink that checks that it was given the argument that belongs to it. */
static _Atomic int seen_a, seen_b;

static void sink_a(void *arg, enum te_log_level level, const char *line)
{
    (void)level;
    (void)line;
    assert(arg == (void *)&seen_a);
    seen_a++;
}

static void sink_b(void *arg, enum te_log_level level, const char *line)
{
    (void)level;
    (void)line;
    assert(arg == (void *)&seen_b);
    seen_b++;
}

static void *log_much(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++)
        TEI_DEBUG("line");
    return NULL;
}

TEST(sink_and_argument_change_together)
{
    pthread_t t[3];

    te_log_set_sink(sink_a, (void *)&seen_a);
    te_log_set_level(TE_LOG_DEBUG);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, log_much, NULL), 0);
    for (int i = 0; i < 5000; i++)
        te_log_set_sink(i & 1 ? sink_a : sink_b, i & 1 ? (void *)&seen_a : (void *)&seen_b);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(seen_a + seen_b, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_level_decides, defaults, defaults),
        cmocka_unit_test_setup_teardown(an_unwanted_line_costs_no_evaluation, defaults, defaults),
        cmocka_unit_test_setup_teardown(errno_survives, defaults, defaults),
        cmocka_unit_test_setup_teardown(dropped_lines_are_counted_and_told, defaults, defaults),
        cmocka_unit_test_setup_teardown(debug_lines_are_not_limited, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_hostile_name_cannot_forge_a_line, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_descriptor_gets_whole_lines_and_nobody_waits_for_it,
                                        defaults, defaults),
        cmocka_unit_test_setup_teardown(a_sink_that_logs_is_not_called_again, defaults, defaults),
        cmocka_unit_test_setup_teardown(files_take_the_lines_in_the_known_form, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_folder_that_is_not_there_is_told_once, defaults,
                                        defaults),
        cmocka_unit_test(levels_parse_in_any_case),
        cmocka_unit_test_setup_teardown(sink_and_argument_change_together, defaults, defaults),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
