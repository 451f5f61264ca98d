/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/* What te_stats_text() tells of requests, errors, segments and memory. test_metrics_export.py checks its syntax. */
#include "pair.h"
#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)1 << 20)
#define FILES    24 /* more than are told by name */

static char text[TEXT_MAX];

static void look(te_engine *e)
{
    assert_int_equal(te_stats_text(e, text, sizeof(text)), 0);
}

/* The line of a series, behind its name and labels; NULL if there is none. */
static const char *find(const char *series)
{
    size_t n = strlen(series);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, series, n) == 0 && line[n] == ' ')
            return line + n + 1;
    }
    return NULL;
}

static unsigned long long value(const char *series)
{
    const char *at = find(series);

    if (!at)
        fail_msg("no %s in\n%s", series, text);
    return strtoull(at, NULL, 10);
}

#define TELLS(n, series) assert_int_equal(value("transfer_engine_" series), n)

static void test_requests(void **state)
{
    struct pair *p = *state;
    char series[512];

    for (int i = 0; i < 3; i++)
        assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, 500).state, TE_COMPLETED);
    look(p->a);
    TELLS(4, "requests_submitted_total");
    TELLS(3, "requests_completed_total{opcode=\"read\"}");
    TELLS(1, "requests_completed_total{opcode=\"write\"}");
    TELLS(0, "requests_failed_total{opcode=\"read\"}");
    TELLS(3000, "bytes_total{opcode=\"read\"}");
    TELLS(500, "bytes_total{opcode=\"write\"}");
    TELLS(0, "inflight_requests");
    TELLS(3, "transport_attempts_total{transport=\"tcp\",opcode=\"read\"}");
    TELLS(500, "transport_bytes_total{transport=\"tcp\",opcode=\"write\"}");
    TELLS(0, "transport_attempts_total{transport=\"local\",opcode=\"read\"}");
    TELLS(PAIR_SIZE, "registered_bytes");
    TELLS(1, "regions");
    TELLS(1, "segments_open");
    TELLS(1, "metadata_up");
    snprintf(series, sizeof(series),
             "transfer_engine_peer_bytes_total{peer=\"%s\",opcode=\"read\"}", p->bname);
    assert_int_equal(value(series), 3000);
    /* The first one is timed, and more of them the slower they come. */
    assert_in_range(
        value("transfer_engine_request_seconds_count{transport=\"tcp\",opcode=\"read\"}"), 1, 4);
    assert_null(strstr(text, "transfer_engine_request_errors_total{"));
}

static void test_served(void **state)
{
    struct pair *p = *state;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, 300).state, TE_COMPLETED);
    look(p->b);
    TELLS(2, "served_requests_total{transport=\"tcp\"}");
    TELLS(1000, "served_sent_bytes_total{transport=\"tcp\"}");
    TELLS(300, "served_received_bytes_total{transport=\"tcp\"}");
    TELLS(0, "requests_submitted_total");
}

static void test_failures(void **state)
{
    struct pair *p = *state;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm + PAIR_SIZE, 16).state,
                     TE_INVALID);
    look(p->a);
    TELLS(1, "requests_failed_total{opcode=\"read\"}");
    TELLS(0, "requests_failed_total{opcode=\"write\"}");
    TELLS(1, "request_errors_total{error=\"TE_ERR_STALE\",class=\"request\"}");
    TELLS(0, "request_stalls_total");
    TELLS(0, "inflight_requests");
    TELLS(0, "parked_requests");
    /* It was over before any transport had it. */
    TELLS(0, "transport_attempts_total{transport=\"tcp\",opcode=\"read\"}");
}

/* What a closed segment has moved stays in the sums. */
static void test_closed(void **state)
{
    struct pair *p = *state;
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(te_close(p->a, p->seg), 0);
    look(p->a);
    TELLS(1, "requests_completed_total{opcode=\"read\"}");
    TELLS(1000, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    assert_null(strstr(text, p->bname));
    assert_int_equal(te_stats(p->a, &s), 0);
    assert_int_equal(s.requests_completed, 1);
    assert_int_equal(s.bytes_read, 1000);
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
}

static void test_memory(void **state)
{
    struct pair *p = *state;
    void *more = NULL;

    assert_int_equal(te_alloc(p->a, 65536, NULL, &more), 0);
    assert_int_equal(te_register(p->a, more, 65536, "*", TE_LOCAL_ONLY), 0);
    look(p->a);
    TELLS(PAIR_SIZE + 65536, "registered_bytes");
    assert_int_equal(te_unregister(p->a, more), 0);
    look(p->a);
    TELLS(PAIR_SIZE, "registered_bytes");
    assert_int_equal(te_free(p->a, more), 0);
}

/* Reads so many bytes of a file that it makes, which is a segment of its own. */
static void read_file(struct pair *p, const char *dir, const char *name, size_t n)
{
    char path[PATH_MAX], uri[PATH_MAX + 16];
    te_segment seg;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(uri, sizeof(uri), "file://%s", path);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0 && posix_fallocate(fd, 0, 65536) == 0);
    close(fd);
    if (te_open(p->a, uri, &seg))
        fail_msg("%s", te_errmsg());
    assert_int_equal(transfer(p->a, TE_READ, p->am, seg, NULL, n).state, TE_COMPLETED);
    assert_int_equal(unlink(path), 0);
}

/* There are no more labels than 21, however many segments: those with the most bytes are told. */
static void test_many_segments(void **state)
{
    static const char head[] = "\ntransfer_engine_peer_bytes_total{";
    struct pair *p = *state;
    char dir[] = "/tmp/te-metrics-XXXXXX", name[64], series[256];
    size_t lines = 0;

    assert_non_null(mkdtemp(dir));
    for (size_t i = 1; i <= FILES; i++) {
        snprintf(name, sizeof(name), "f%zu", i);
        read_file(p, dir, name, i * 512);
    }
    look(p->a);
    for (const char *at = strstr(text, head); at; at = strstr(at + 1, head))
        lines++;
    assert_int_equal(lines, 21 * 2);
    snprintf(series, sizeof(series),
             "transfer_engine_peer_bytes_total{peer=\"file://%s/f%d\",opcode=\"read\"}", dir,
             FILES);
    assert_int_equal(value(series), FILES * 512);
    TELLS((1 + 2 + 3 + 4) * 512, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    assert_int_equal(rmdir(dir), 0);
}

/* What a label's value must not have as it is. */
static void test_odd_names(void **state)
{
    struct pair *p = *state;
    char dir[] = "/tmp/te-metrics-XXXXXX", series[256];

    assert_non_null(mkdtemp(dir));
    read_file(p, dir, "a\"b\\c\nd\xc3\xa9", 512);
    look(p->a);
    snprintf(
        series, sizeof(series),
        "transfer_engine_peer_bytes_total{peer=\"file://%s/a\\\"b\\\\c\\nd\xc3\xa9\",opcode=\"read\"}",
        dir);
    assert_int_equal(value(series), 512);
    assert_int_equal(rmdir(dir), 0);
}

static void test_arguments(void **state)
{
    struct pair *p = *state;

    assert_int_equal(te_stats_text(p->a, text, 100), TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "needs a buffer of"));
    assert_int_equal(te_stats_text(p->a, NULL, sizeof(text)), TE_ERR_TOO_LARGE);
    assert_int_equal(te_stats_text(NULL, text, sizeof(text)), TE_ERR_INVALID);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, pair_setup_tcp, pair_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_requests), CASE(test_served),    CASE(test_failures),  CASE(test_closed),
        CASE(test_memory),   CASE(test_odd_names), CASE(test_arguments), CASE(test_many_segments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
