/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/* What te_stats_text() tells of requests, errors, segments and memory. test_metrics_export.py checks its syntax. */
#include "child_engine.h"
#include "metric.h"
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
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 24 /* more than are told by name */
#define AGAIN 40 /* connections that come and go */

#define TELLS(n, series) assert_int_equal(metric(series), n)

static void test_requests(void **state)
{
    struct pair *p = *state;
    char series[512];

    for (int i = 0; i < 3; i++)
        assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, 500).state, TE_COMPLETED);
    metrics_look(p->a);
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
    TELLS(0, "metadata_name_taken");
    /* The kernel's count of the connections, which the framing has a share in. */
    assert_true(metric("nic_bytes_total{transport=\"tcp\",nic=\"127.0.0.1\",direction="
                       "\"received\"}") >= 3000);
    assert_true(metric("nic_bytes_total{transport=\"tcp\",nic=\"127.0.0.1\",direction="
                       "\"sent\"}") >= 500);
    assert_true(metric("nic_connections{transport=\"tcp\",nic=\"127.0.0.1\"}") >= 1);
    TELLS(1, "nic_up{transport=\"tcp\",nic=\"127.0.0.1\"}");
    snprintf(series, sizeof(series), "peer_bytes_total{peer=\"%s\",opcode=\"read\"}", p->bname);
    assert_int_equal(metric(series), 3000);
    /* The first one is timed, and more of them the slower they come. */
    assert_in_range(metric("request_seconds_count{transport=\"tcp\",opcode=\"read\"}"), 1, 4);
    assert_int_equal(metric("request_size_bytes_sum{transport=\"tcp\",opcode=\"read\"}"),
                     1000 * metric("request_size_bytes_count{transport=\"tcp\",opcode=\"read\"}"));
    /* Errors that have not happened are there, too: a series that begins at 1 has no rate. */
    TELLS(0, "request_errors_total{error=\"TE_ERR_STALE\",class=\"request\"}");
    assert_null(strstr(metrics_text, "error=\"TE_ERR_OK\""));
}

static void test_served(void **state)
{
    struct pair *p = *state;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, 300).state, TE_COMPLETED);
    metrics_look(p->b);
    TELLS(2, "served_requests_total{transport=\"tcp\"}");
    TELLS(1000, "served_sent_bytes_total{transport=\"tcp\"}");
    TELLS(300, "served_received_bytes_total{transport=\"tcp\"}");
    TELLS(0, "requests_submitted_total");
}

/* Of the only address that TCP was used on, whose first direction is "sent". */
static unsigned long long nic_value(const char *metric)
{
    char head[96];
    const char *at;

    snprintf(head, sizeof(head), "\ntransfer_engine_%s{transport=\"tcp\",nic=", metric);
    at = strstr(metrics_text, head);
    assert_non_null(at);
    at = strstr(at, "\"} ");
    assert_non_null(at);
    return strtoull(at + 3, NULL, 10);
}

/* What a transport has counted stays when it goes, and the next one goes on from there. */
static void test_uninstalled(void **state)
{
    struct pair *p = *state;
    struct te_stats s = {.size = sizeof(s)};
    unsigned long long before;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, 300).state, TE_COMPLETED);
    metrics_look(p->b);
    before = nic_value("nic_bytes_total");
    assert_true(before >= 1000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(te_transport_uninstall(p->b, "tcp"), 0);
        metrics_look(p->b);
        TELLS(2, "served_requests_total{transport=\"tcp\"}");
        TELLS(1000, "served_sent_bytes_total{transport=\"tcp\"}");
        TELLS(300, "served_received_bytes_total{transport=\"tcp\"}");
        TELLS(0, "transport_connections{transport=\"tcp\"}");
        assert_int_equal(nic_value("nic_connections"), 0);
        assert_int_equal(nic_value("nic_up"), 0);
        assert_true(nic_value("nic_bytes_total") >= before);
        assert_int_equal(te_transport_install(p->b, "tcp", NULL), 0);
        metrics_look(p->b);
        TELLS(1000, "served_sent_bytes_total{transport=\"tcp\"}");
    }
    assert_int_equal(te_stats(p->b, &s), 0);
    assert_int_equal(s.served_requests, 2);
    assert_int_equal(s.served_bytes_out, 1000);
    assert_int_equal(s.served_bytes_in, 300);
}

struct reader {
    te_engine *e;
    _Atomic bool stop;
    _Atomic unsigned reads;
    bool fell; /* the counter, or there was no text */
};

static void *read_again(void *arg)
{
    struct reader *r = arg;

    for (unsigned long long now, last = 0; !atomic_load(&r->stop); last = now) {
        const char *at;

        r->fell |= te_stats_text(r->e, metrics_text, sizeof(metrics_text)) != 0;
        at = strstr(metrics_text, "\ntransfer_engine_nic_bytes_total{transport=\"tcp\"");
        now = at ? strtoull(strstr(at, "\"} ") + 3, NULL, 10) : 0;
        r->fell |= now < last;
        atomic_fetch_add(&r->reads, 1);
    }
    return NULL;
}

/* While connections are closed and made the counters of their address are read: each counts, and only once. */
static void test_nics_meanwhile(void **state)
{
    struct pair *p = *state;
    struct reader r = {.e = p->b};
    unsigned long long sent;
    pthread_t id;

    assert_int_equal(pthread_create(&id, NULL, read_again, &r), 0);
    for (int i = 0; i < AGAIN; i++) {
        unsigned before = atomic_load(&r.reads);

        assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 100000).state, TE_COMPLETED);
        assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
        assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
        while (atomic_load(&r.reads) == before)
            sched_yield();
    }
    atomic_store(&r.stop, true);
    pthread_join(id, NULL);
    assert_false(r.fell);
    metrics_look(p->b);
    sent = nic_value("nic_bytes_total");
    assert_true(sent >= AGAIN * 100000ULL);
    assert_true(sent < AGAIN * 110000ULL); /* of heads and handshakes there is some */
}

static void test_failures(void **state)
{
    struct pair *p = *state;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm + PAIR_SIZE, 16).state,
                     TE_INVALID);
    metrics_look(p->a);
    TELLS(1, "requests_failed_total{opcode=\"read\"}");
    TELLS(0, "requests_failed_total{opcode=\"write\"}");
    TELLS(1, "request_errors_total{error=\"TE_ERR_STALE\",class=\"request\"}");
    TELLS(0, "request_stalls_total");
    TELLS(0, "inflight_requests");
    TELLS(0, "parked_requests");
    /* It was over before any transport had it. */
    TELLS(0, "transport_attempts_total{transport=\"tcp\",opcode=\"read\"}");
}

/* The target does not have any more what its descriptor says: that is fetched again, and the request ends. */
static void test_refused(void **state)
{
    struct pair *p = *state;

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 16).state, TE_INVALID);
    metrics_look(p->a);
    TELLS(1, "request_restarts_total");
    TELLS(1, "transport_attempt_failures_total{transport=\"tcp\",class=\"request\"}");
    TELLS(0, "transport_attempt_failures_total{transport=\"tcp\",class=\"path\"}");
    assert_true(metric("refreshes_total") >= 1);
    assert_int_equal(metric_of(p->b, "served_rejected_total{transport=\"tcp\"}"), 1);
}

static void test_notifications(void **state)
{
    struct pair *p = *state;
    te_notification *got;
    size_t n;

    for (int i = 0; i < 3; i++)
        assert_int_equal(te_notify(p->a, p->seg, "name", "text"), 0);
    metrics_look(p->a);
    TELLS(3, "notifications_sent_total");
    TELLS(0, "notifications_received_total");
    metrics_look(p->b);
    TELLS(0, "notifications_sent_total");
    TELLS(3, "notifications_received_total");
    TELLS(3, "inbox_messages");
    assert_int_equal(te_notify_recv(p->b, &got, &n), 0);
    assert_int_equal(n, 3);
    te_notify_free(got, n);
    assert_int_equal(metric_of(p->b, "inbox_messages"), 0);
}

/* Ends every connection of TCP that this process has. */
static void end_connections(void)
{
    struct sockaddr_in at;

    for (int fd = 0; fd < 1024; fd++) {
        socklen_t n = sizeof(at);

        if (getpeername(fd, (struct sockaddr *)&at, &n) == 0 && at.sin_family == AF_INET)
            shutdown(fd, SHUT_RDWR);
    }
}

/* Whether all of this was seen: a try that failed in the middle, another one, a new connection. */
static bool breaks(struct pair *p)
{
    te_request r = {.opcode = TE_READ,
                    .source = p->am,
                    .target = p->seg,
                    .target_offset = (uintptr_t)p->bm,
                    .length = PAIR_SIZE};
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    end_connections();
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    metrics_look(p->a);
    return metric("transport_retries_total{transport=\"tcp\"}") > 0 &&
           metric("transport_reconnects_total{transport=\"tcp\"}") > 0;
}

static void test_broken_connections(void **state)
{
    WAIT_FOR(breaks(*state));
}

/* What a closed segment has moved stays in the sums. */
static void test_closed(void **state)
{
    struct pair *p = *state;
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 1000).state, TE_COMPLETED);
    assert_int_equal(te_close(p->a, p->seg), 0);
    metrics_look(p->a);
    TELLS(1, "requests_completed_total{opcode=\"read\"}");
    TELLS(1000, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    assert_null(strstr(metrics_text, p->bname));
    /* What was told under its name does not count twice. */
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 50).state, TE_COMPLETED);
    metrics_look(p->a);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 7).state, TE_COMPLETED);
    assert_int_equal(te_close(p->a, p->seg), 0);
    metrics_look(p->a);
    TELLS(1007, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    assert_int_equal(te_stats(p->a, &s), 0);
    assert_int_equal(s.requests_completed, 3);
    assert_int_equal(s.bytes_read, 1057);
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
}

static void test_memory(void **state)
{
    struct pair *p = *state;
    void *more = NULL;

    assert_int_equal(te_alloc(p->a, 65536, NULL, &more), 0);
    assert_int_equal(te_register(p->a, more, 65536, "*", TE_LOCAL_ONLY), 0);
    metrics_look(p->a);
    TELLS(PAIR_SIZE + 65536, "registered_bytes");
    TELLS(PAIR_SIZE + 65536, "memory_registered_bytes_total");
    TELLS(0, "memory_deregistered_bytes_total");
    assert_int_equal(te_unregister(p->a, more), 0);
    metrics_look(p->a);
    TELLS(PAIR_SIZE, "registered_bytes");
    TELLS(PAIR_SIZE + 65536, "memory_registered_bytes_total");
    TELLS(65536, "memory_deregistered_bytes_total");
    assert_int_equal(te_free(p->a, more), 0);
}

/* Opens a file that it makes, which is a segment of its own, and reads so many bytes. */
static te_segment read_file(struct pair *p, const char *dir, const char *name, size_t n)
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
    return seg;
}

static unsigned long long peer_bytes(const char *dir, int file)
{
    char series[256];

    snprintf(series, sizeof(series), "peer_bytes_total{peer=\"file://%s/f%d\",opcode=\"read\"}",
             dir, file);
    return metric_find(series) ? metric(series) : 0;
}

/* There are no more labels than 21, however many segments; no counter falls when they take turns. */
static void test_many_segments(void **state)
{
    static const char head[] = "\ntransfer_engine_peer_bytes_total{";
    struct pair *p = *state;
    char dir[] = "/tmp/te-metrics-XXXXXX", name[64];
    te_segment segs[FILES + 1];
    size_t lines = 0;

    assert_non_null(mkdtemp(dir));
    for (int i = 1; i <= FILES; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        segs[i] = read_file(p, dir, name, 512);
    }
    metrics_look(p->a);
    for (const char *at = strstr(metrics_text, head); at; at = strstr(at + 1, head))
        lines++;
    assert_int_equal(lines, 21 * 2);
    for (int i = 1; i <= FILES; i++)
        assert_int_equal(peer_bytes(dir, i), i <= 20 ? 512 : 0);
    TELLS(4 * 512, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    /* One with much more gets the place of another one. What it had stays in the sum of others. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(transfer(p->a, TE_READ, p->am, segs[FILES], NULL, 1024).state,
                         TE_COMPLETED);
    metrics_look(p->a);
    assert_int_equal(peer_bytes(dir, FILES), 3 * 1024);
    TELLS(4 * 512, "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    /* A place that becomes free goes to one that was waiting. */
    assert_int_equal(te_close(p->a, segs[FILES]), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, segs[FILES - 1], NULL, 100).state,
                     TE_COMPLETED);
    metrics_look(p->a);
    assert_int_equal(peer_bytes(dir, FILES), 0);
    TELLS(4 * 512 + (peer_bytes(dir, FILES - 1) ? 0 : 100),
          "peer_bytes_total{peer=\"other\",opcode=\"read\"}");
    assert_int_equal(rmdir(dir), 0);
}

/* What a label's value must not have as it is. */
static void test_odd_names(void **state)
{
    struct pair *p = *state;
    char dir[] = "/tmp/te-metrics-XXXXXX", series[256];

    assert_non_null(mkdtemp(dir));
    read_file(p, dir, "a\"b\\c\nd\xc3\xa9", 512);
    metrics_look(p->a);
    snprintf(series, sizeof(series),
             "peer_bytes_total{peer=\"file://%s/a\\\"b\\\\c\\nd\xc3\xa9\",opcode=\"read\"}", dir);
    assert_int_equal(metric(series), 512);
    assert_int_equal(rmdir(dir), 0);
}

static char warned[512];

static void keep_warning(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    if (level == TE_LOG_WARN)
        snprintf(warned, sizeof(warned), "%s", line);
}

/* An engine whose metrics go to that file. */
static te_engine *engine_with_file(const char *path)
{
    char value[PATH_MAX + 8];
    te_options o;
    te_engine *e;

    loopback_options(&o);
    snprintf(value, sizeof(value), "file:%s", path);
    assert_int_equal(te_option_set(&o, "TE_METRICS", value), 0);
    if (te_engine_create(&o, &e))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return e;
}

/* The second engine of a process does not write into the first one's file, but may have one of its own. */
static void test_file_of_two_engines(void **state)
{
    char dir[] = "/tmp/te-metrics-XXXXXX", path[64], each[64];
    te_engine *first, *second, *third;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/te.prom", dir);
    snprintf(each, sizeof(each), "%s/te-%%e.prom", dir);
    te_log_set_sink(keep_warning, NULL);
    first = engine_with_file(path);
    second = engine_with_file(path);
    te_log_set_sink(NULL, NULL);
    assert_non_null(strstr(warned, "another engine of this process writes"));
    assert_non_null(strstr(warned, "put %e in the path, for a file for each engine"));
    te_engine_destroy(second);
    assert_int_equal(access(path, F_OK), 0);
    second = engine_with_file(each);
    third = engine_with_file(each);
    assert_int_equal(rmdir(dir), -1);
    te_engine_destroy(third);
    te_engine_destroy(second);
    te_engine_destroy(first);
    /* The path is free again, and nothing is left. */
    first = engine_with_file(path);
    assert_int_equal(access(path, F_OK), 0);
    te_engine_destroy(first);
    assert_int_equal(rmdir(dir), 0);
}

/* A process that ends by te_shutdown_on_signal() leaves no file behind. */
static void test_file_and_signal(void **state)
{
    char dir[] = "/tmp/te-metrics-XXXXXX", path[64];
    int status;
    pid_t child;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/te.prom", dir);
    child = fork();
    if (child == 0) {
        te_engine *e = engine_with_file(path);

        if (te_shutdown_on_signal(e) || access(path, F_OK))
            _exit(1);
        raise(SIGTERM);
        for (;;)
            pause();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
    assert_int_equal(rmdir(dir), 0);
}

/* A name of our own that is not UTF-8, in a text that must be. */
static void test_bad_utf8(void **state)
{
    te_options o;
    te_engine *e;

    (void)state;
    te_options_init(&o);
    o.metadata = "P2PHANDSHAKE";
    o.ip_or_host_name = "a\xff\xc3\xa9\xe2\x82";
    if (te_engine_create(&o, &e))
        fail_msg("%s", te_errmsg());
    metrics_look(e);
    te_options_fini(&o);
    assert_non_null(
        strstr(metrics_text, ",segment=\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"));
    te_engine_destroy(e);
}

static void test_arguments(void **state)
{
    struct pair *p = *state;

    assert_int_equal(te_stats_text(p->a, metrics_text, 100), TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "needs a buffer of"));
    assert_int_equal(te_stats_text(p->a, NULL, sizeof(metrics_text)), TE_ERR_TOO_LARGE);
    assert_int_equal(te_stats_text(NULL, metrics_text, sizeof(metrics_text)), TE_ERR_INVALID);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, pair_setup_tcp, pair_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_requests),
        CASE(test_served),
        CASE(test_uninstalled),
        CASE(test_nics_meanwhile),
        CASE(test_failures),
        CASE(test_refused),
        CASE(test_notifications),
        CASE(test_broken_connections),
        CASE(test_closed),
        CASE(test_memory),
        CASE(test_odd_names),
        CASE(test_arguments),
        CASE(test_many_segments),
        cmocka_unit_test(test_file_of_two_engines),
        cmocka_unit_test(test_file_and_signal),
        cmocka_unit_test(test_bad_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
