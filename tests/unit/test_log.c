/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "test.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
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

static void read_file(const char *path, char *text, size_t n)
{
    FILE *f = fopen(path, "r");
    size_t got;

    assert_non_null(f);
    got = fread(text, 1, n - 1, f);
    text[got] = '\0';
    fclose(f);
}

/* "2026-11-20T13:50:01.123456+01:00", which must be the time of now. */
static void check_time(const char *text)
{
    struct tm tm = {0};
    int us, hours, minutes;
    char sign, *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t there;

    assert_non_null(end);
    assert_int_equal(sscanf(end, ".%6d%c%2d:%2d", &us, &sign, &hours, &minutes), 4);
    there = timegm(&tm) - (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    assert_in_range(time(NULL) - there, 0, 3600);
}

TEST(iso_time_and_json)
{
    char dir[] = "/tmp/te_log_XXXXXX", path[64], text[8192], rest[256];

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    setenv("TZ", "ABC-5:30", 1);
    tzset();
    tei_log_set_file(path);
    tei_log_set_format(TEI_LOG_ISO);
    TEI_WARN("plain");
    read_file(path, text, sizeof text);
    check_time(text);
    assert_non_null(strstr(text, "+05:30 WARN ["));
    snprintf(rest, sizeof rest, " WARN [%d:%ld] te: plain\n", (int)getpid(),
             (long)syscall(SYS_gettid));
    assert_string_equal(strstr(text, " WARN"), rest);
    assert_int_equal(truncate(path, 0), 0);
    tei_log_set_format(TEI_LOG_JSON);
    TEI_ERROR("a \"name\"\\ with\nodd \xc3\xa9 \xff bytes");
    read_file(path, text, sizeof text);
    assert_memory_equal(text, "{\"time\":\"", 9);
    check_time(text + 9);
    snprintf(rest, sizeof rest,
             "+05:30\",\"level\":\"ERROR\",\"pid\":%d,\"tid\":%ld,\"dropped\":0,\"message\":"
             "\"a \\\"name\\\"\\\\ with?odd \xc3\xa9 ? bytes\"}\n",
             (int)getpid(), (long)syscall(SYS_gettid));
    assert_string_equal(strchr(text, '+'), rest);
    tei_log_set_format(TEI_LOG_GLOG);
    tei_log_set_file("");
    unlink(path);
    rmdir(dir);
}

TEST(json_counts_what_was_dropped)
{
    char dir[] = "/tmp/te_log_XXXXXX", path[64], text[16384];
    int calls, told = 0;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    tei_log_set_file(path);
    tei_log_set_format(TEI_LOG_JSON);
    for (calls = 0; calls < 50; calls++)
        warn_from_one_site(calls);
    do { /* until the next second */
        usleep(20000);
        warn_from_one_site(1000);
        calls++;
        read_file(path, text, sizeof text);
    } while (!strstr(text, "line 1000"));
    for (const char *at = text; (at = strstr(at, "\"dropped\":")); at++)
        told += 1 + atoi(at + strlen("\"dropped\":"));
    /* The last one was written: each call is a line, or counted by one. */
    assert_int_equal(told, calls);
    assert_null(strstr(text, "like this dropped"));
    tei_log_set_format(TEI_LOG_GLOG);
    tei_log_set_file("");
    unlink(path);
    rmdir(dir);
}

static void ignore_signal(int signo)
{
    (void)signo;
}

TEST(a_hangup_opens_the_file_anew)
{
    char dir[] = "/tmp/te_log_XXXXXX", path[64], moved[64], text[4096];
    struct captured c = {0};

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    snprintf(moved, sizeof moved, "%s/log.1", dir);
    tei_log_set_file(path);
    tei_log_reopen_on_hangup();
    TEI_WARN("before");
    assert_int_equal(rename(path, moved), 0);
    TEI_WARN("not told yet");
    raise(SIGHUP);
    TEI_WARN("after");
    read_file(path, text, sizeof text);
    assert_non_null(strstr(text, "after\n"));
    assert_null(strstr(text, "before"));
    read_file(moved, text, sizeof text);
    assert_non_null(strstr(text, "not told yet\n"));
    assert_null(strstr(text, "after"));
    /* A handler of the program stays. */
    signal(SIGHUP, ignore_signal);
    te_log_set_sink(capture, &c);
    tei_log_reopen_on_hangup();
    assert_non_null(strstr(c.line, "the program has its own way with SIGHUP"));
    assert_true(signal(SIGHUP, SIG_DFL) == ignore_signal);
    tei_log_set_file("");
    unlink(path);
    unlink(moved);
    rmdir(dir);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

TEST(a_file_that_cannot_be_opened_anew_is_tried_again)
{
    char dir[] = "/tmp/te_log_XXXXXX", sub[64], gone[64], path[80], old[80], text[8192];

    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof sub, "%s/sub", dir);
    snprintf(gone, sizeof gone, "%s/gone", dir);
    snprintf(path, sizeof path, "%s/log", sub);
    snprintf(old, sizeof old, "%s/log", gone);
    assert_int_equal(mkdir(sub, 0700), 0);
    tei_log_set_file(path);
    tei_log_reopen_on_hangup();
    assert_int_equal(rename(sub, gone), 0);
    raise(SIGHUP);
    TEI_WARN("first");
    raise(SIGHUP);
    TEI_WARN("second");
    read_file(old, text, sizeof text);
    assert_int_equal(count(text, "the log file cannot be opened anew (No such file"), 1);
    assert_int_equal(count(text, path), 1);
    assert_non_null(strstr(text, "first\n"));
    assert_non_null(strstr(text, "second\n"));
    assert_int_equal(mkdir(sub, 0700), 0);
    while (access(path, F_OK) != 0) { /* within a second or so */
        usleep(20000);
        TEI_ERROR("third");
    }
    TEI_ERROR("fourth");
    read_file(path, text, sizeof text);
    assert_non_null(strstr(text, "fourth\n"));
    signal(SIGHUP, SIG_DFL);
    tei_log_set_file("");
    unlink(path);
    unlink(old);
    rmdir(sub);
    rmdir(gone);
    rmdir(dir);
}

TEST(a_hangup_without_a_log_file_is_left_alone)
{
    struct captured c = {0};

    te_log_set_sink(capture, &c);
    tei_log_reopen_on_hangup();
    assert_int_equal(c.lines, 1);
    assert_non_null(strstr(c.line, "TE_LOG_REOPEN: no log file is open"));
    assert_true(signal(SIGHUP, SIG_DFL) == SIG_DFL);
}

TEST(what_is_no_file_is_no_log_file)
{
    char dir[] = "/tmp/te_log_XXXXXX", path[64], link[96], target[64];
    struct captured c = {0};

    assert_non_null(mkdtemp(dir));
    te_log_set_sink(capture, &c);
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    tei_log_set_file(path); /* nobody reads */
    assert_non_null(strstr(c.line, "neither a regular file nor a character device"));
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    tei_log_set_file(path);
    assert_int_equal(c.lines, 2);
    assert_non_null(strstr(c.line, "neither a regular file nor a character device"));
    close(reader);
    unlink(path);
    tei_log_set_file("/dev/null");
    assert_int_equal(c.lines, 2);

    /* A name that can be told beforehand. */
    snprintf(target, sizeof target, "%s/target", dir);
    snprintf(link, sizeof link, "%s/transfer_engine.%ld.log", dir, (long)getpid());
    assert_int_equal(symlink(target, link), 0);
    tei_log_set_dir(dir);
    assert_int_equal(c.lines, 3);
    assert_non_null(strstr(c.line, "it is a symbolic link"));
    snprintf(path, sizeof path, "%s/transfer_engine.%%p.log", dir);
    tei_log_set_file(path);
    assert_int_equal(c.lines, 4);
    assert_int_equal(access(target, F_OK), -1);
    tei_log_set_file(link); /* this one was named as it is */
    assert_int_equal(c.lines, 4);
    assert_int_equal(access(target, F_OK), 0);
    tei_log_set_file("");
    unlink(link);
    unlink(target);
    rmdir(dir);
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
        cmocka_unit_test_setup_teardown(iso_time_and_json, defaults, defaults),
        cmocka_unit_test_setup_teardown(json_counts_what_was_dropped, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_hangup_opens_the_file_anew, defaults, defaults),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_anew_is_tried_again, defaults,
                                        defaults),
        cmocka_unit_test_setup_teardown(a_hangup_without_a_log_file_is_left_alone, defaults,
                                        defaults),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_no_log_file, defaults, defaults),
        cmocka_unit_test(levels_parse_in_any_case),
        cmocka_unit_test_setup_teardown(sink_and_argument_change_together, defaults, defaults),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
