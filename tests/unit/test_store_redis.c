/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The redis store against fakes that do what no good server does, and its connection strings. What a
 * real server does is in tests/integration/test_store_redis.c.
 */
#include "meta/meta.h"
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "patience.h"
#include "proc.h"

#define SOON  tei_deadline_ns(PATIENCE_MS)
#define SHORT 200 /* ms: a deadline that is to pass */
/* Every password has this in it, and no line of the log may. */
#define SECRET "s3cret"

static const struct tei_conf conf = {.metadata_timeout_ms = PATIENCE_MS,
                                     .metadata_max_value = 16 << 20};
static _Atomic int secrets_logged;
static size_t fds_before;

static void on_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level;
    if (strstr(line, SECRET))
        atomic_fetch_add_explicit(&secrets_logged, 1, memory_order_relaxed);
}

static int before(void **state)
{
    (void)state;
    fds_before = test_count_fds();
    return 0;
}

static int after(void **state)
{
    (void)state;
    assert_int_equal(test_count_fds(), fds_before);
    assert_int_equal(atomic_load_explicit(&secrets_logged, memory_order_relaxed), 0);
    return 0;
}

static struct tei_store *open_at(uint16_t port, const char *login)
{
    struct tei_store *s = NULL;
    char url[128];

    snprintf(url, sizeof url, "redis://%s127.0.0.1:%u", login, (unsigned)port);
    if (tei_store_open(url, &conf, &s))
        fail_msg("%s", te_errmsg());
    return s;
}

static void check_error(int rc, int want, const char *says)
{
    if (rc != want || !strstr(te_errmsg(), says) || strstr(te_errmsg(), SECRET))
        fail_msg("%d: %s; should be %d and say %s", rc, te_errmsg(), want, says);
}

/* Opens a store, puts one key, and closes it. */
static int put_once(uint16_t port, const char *login)
{
    struct tei_store *s = open_at(port, login);
    int rc = s->ops->put(s, "k", "v", 1, 0, SOON);

    tei_store_close(s);
    return rc;
}

/* A put that must end by its deadline. */
static void check_timeout(struct tei_store *s)
{
    int64_t start = tei_now_ns(), took_ms;
    int rc = s->ops->put(s, "k", "v", 1, 0, tei_deadline_ns(SHORT));

    took_ms = (tei_now_ns() - start) / TEI_NS_PER_MS;
    check_error(rc, TE_ERR_TIMEOUT, "TE_METADATA_TIMEOUT_MS");
    assert_in_range(took_ms, SHORT - 1, PATIENCE_MS);
}

/* ---- fakes */

#define BEAT 50 /* ms from one byte to the next */

enum fake_mode { FAKE_SAY, FAKE_DRIP, FAKE_FLOOD, FAKE_CLOSE, FAKE_SILENT };

struct fake {
    enum fake_mode mode;
    const char *text;
    int fd, stop[2];
    uint16_t port;
    pthread_t thread;
    _Atomic int conns;
};

/* Waits until `fd` can be read, at most `ms`; false when the fake is to stop. */
static bool fake_wait(const struct fake *f, int fd, int ms, bool *readable)
{
    struct pollfd p[] = {{.fd = f->stop[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};

    poll(p, 2, ms);
    *readable = p[1].revents != 0;
    return !p[0].revents;
}

/* Takes what the client sends, for at most `ms`; false when it is gone or the fake is to stop. */
static bool fake_take(const struct fake *f, int fd, int ms)
{
    char buf[4096];
    bool readable;

    if (!fake_wait(f, fd, ms, &readable))
        return false;
    return !readable || recv(fd, buf, sizeof buf, 0) > 0;
}

static bool fake_send(const struct fake *f, int fd)
{
    static char block[65536];
    size_t n = strlen(f->text);

    switch (f->mode) {
    case FAKE_SAY:
        return tei_write_full(fd, f->text, n, SOON) == 0;
    case FAKE_DRIP:
        for (size_t i = 0; fake_take(f, fd, BEAT); i++)
            if (tei_write_full(fd, &f->text[i % n], 1, SOON))
                return false;
        return false;
    case FAKE_FLOOD:
        memset(block, 'a', sizeof block);
        for (*block = '+'; tei_write_full(fd, block, sizeof block, SOON) == 0; *block = 'a')
            continue;
        return false;
    default:
        return f->mode == FAKE_SILENT;
    }
}

static void *fake_serve(void *arg)
{
    struct fake *f = arg;
    bool readable;

    while (fake_wait(f, f->fd, -1, &readable)) {
        int fd = tei_accept(f->fd, NULL);

        if (fd < 0)
            continue;
        atomic_fetch_add_explicit(&f->conns, 1, memory_order_relaxed);
        while (fake_take(f, fd, -1) && fake_send(f, fd))
            continue;
        tei_fd_close(fd);
    }
    return NULL;
}

static void fake_start(struct fake *f, enum fake_mode mode, const char *text)
{
    *f = (struct fake){.mode = mode, .text = text};
    f->fd = tei_listen("127.0.0.1", &f->port, 8);
    assert_true(f->fd >= 0);
    assert_int_equal(pipe(f->stop), 0);
    assert_int_equal(tei_thread_start(&f->thread, "fake", fake_serve, f), 0);
}

static void fake_stop(struct fake *f)
{
    assert_int_equal(write(f->stop[1], "", 1), 1);
    pthread_join(f->thread, NULL);
    close(f->stop[0]);
    close(f->stop[1]);
    tei_fd_close(f->fd);
}

TEST(test_error_replies)
{
    static const struct {
        const char *says;
        int code;
        const char *text;
    } replies[] = {
        {"-READONLY You can't write against a read only replica.\r\n", TE_ERR_METADATA, "primary"},
        {"-MOVED 866 127.0.0.1:7001\r\n", TE_ERR_METADATA, "cluster mode"},
        {"-CLUSTERDOWN Hash slot not served\r\n", TE_ERR_METADATA, "cluster mode"},
        {"-LOADING Redis is loading the dataset in memory\r\n", TE_ERR_METADATA, "is loading"},
        {"-OOM command not allowed\r\n", TE_ERR_METADATA, "maxmemory"},
        {"-ERR string exceeds maximum allowed size (512MB)\r\n", TE_ERR_TOO_LARGE,
         "proto-max-bulk-len"},
        {"-ERR max number of clients reached\r\n", TE_ERR_METADATA, "maxclients"},
        {"-ERR odd weather\r\n", TE_ERR_METADATA, "odd weather"},
        {"-\r\n", TE_ERR_METADATA, "the server says"},
        {"$-1\r\n", TE_ERR_METADATA, "is it a redis server?"},
        {"*1\r\n+OK\r\n", TE_ERR_METADATA, "is it a redis server?"},
        {"+OK\r\n+OK\r\n", TE_ERR_METADATA, "is it a redis server?"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", TE_ERR_METADATA, "is it a redis server"},
    };
    struct fake f;

    for (size_t i = 0; i < TEI_ARRAY_LEN(replies); i++) {
        fake_start(&f, FAKE_SAY, replies[i].says);
        check_error(put_once(f.port, ""), replies[i].code, replies[i].text);
        fake_stop(&f);
    }
}

static int no_key(void *arg, const char *key)
{
    (void)arg, (void)key;
    return 0;
}

TEST(test_malformed_lists)
{
    static const char *const replies[] = {
        "*0\r\n",
        "*2\r\n:0\r\n*0\r\n",
        "*2\r\n$1\r\n0\r\n+OK\r\n",
        "*2\r\n$1\r\n0\r\n*1\r\n*0\r\n",
        "*2\r\n$30\r\n012345678901234567890123456789\r\n*0\r\n",
    };
    struct tei_store *s;
    struct fake f;

    for (size_t i = 0; i < TEI_ARRAY_LEN(replies); i++) {
        fake_start(&f, FAKE_SAY, replies[i]);
        s = open_at(f.port, "");
        check_error(s->ops->list(s, "k", SOON, no_key, NULL), TE_ERR_METADATA, "SCAN");
        tei_store_close(s);
        fake_stop(&f);
    }
}

/* A list whose cursor never comes back to 0. */
TEST(test_endless_list)
{
    struct tei_store *s;
    struct fake f;

    fake_start(&f, FAKE_SAY, "*2\r\n$1\r\n5\r\n*1\r\n$1\r\nk\r\n");
    s = open_at(f.port, "");
    check_error(s->ops->list(s, "k", tei_deadline_ns(SHORT), no_key, NULL), TE_ERR_TIMEOUT, "SCAN");
    tei_store_close(s);
    fake_stop(&f);
}

/* A server without AUTH may repeat the password in what it says. */
TEST(test_repeated_password)
{
    struct fake f;

    fake_start(&f, FAKE_SAY, "-ERR unknown command 'AUTH', with args: '" SECRET "'\r\n");
    check_error(put_once(f.port, "u:" SECRET "@"), TE_ERR_METADATA, "MC_REDIS_PASSWORD");
    fake_stop(&f);
}

TEST(test_slow_servers)
{
    static const struct {
        enum fake_mode mode;
        const char *text;
    } fakes[] = {{FAKE_DRIP, "$1000\r\n"}, {FAKE_DRIP, "+OK"}, {FAKE_SILENT, ""}};
    struct tei_store *s;
    struct fake f;

    for (size_t i = 0; i < TEI_ARRAY_LEN(fakes); i++) {
        fake_start(&f, fakes[i].mode, fakes[i].text);
        s = open_at(f.port, "");
        check_timeout(s);
        check_timeout(s);
        WAIT_FOR(f.conns >= 2);
        assert_int_equal(f.conns, 2); /* none is used again */
        tei_store_close(s);
        s = open_at(f.port, ":" SECRET "@");
        check_timeout(s);
        tei_store_close(s);
        fake_stop(&f);
    }
}

/* A line without end; the deadline or the limit of a reply ends that, whichever is first. */
TEST(test_flood)
{
    struct tei_store *s;
    struct fake f;
    int rc;

    fake_start(&f, FAKE_FLOOD, "");
    s = open_at(f.port, "");
    rc = s->ops->put(s, "k", "v", 1, 0, tei_deadline_ns(SHORT));
    if (rc != TE_ERR_TIMEOUT && rc != TE_ERR_TOO_LARGE)
        fail_msg("%d: %s", rc, te_errmsg());
    tei_store_close(s);
    fake_stop(&f);
}

/* What is announced is refused before there is room for it, and so is what comes to as much. */
TEST(test_large_arrays)
{
    static const char *const replies[] = {
        "*1000000000\r\n:1\r\n",
        "*2147483647\r\n",
        "*65537\r\n",
        "*2\r\n$1\r\n0\r\n*65535\r\n",
        "*2\r\n*1\r\n*60000\r\n",
        "*4\r\n*2\r\n*0\r\n:1\r\n*2\r\n*65530\r\n",
    };
    struct tei_store *s;
    struct tei_bytes b;
    struct fake f;

    for (size_t i = 0; i < TEI_ARRAY_LEN(replies); i++) {
        bool fits = i == 4;

        fake_start(&f, FAKE_SAY, replies[i]);
        s = open_at(f.port, "");
        check_error(s->ops->list(s, "k", fits ? tei_deadline_ns(SHORT) : SOON, no_key, NULL),
                    fits ? TE_ERR_TIMEOUT : TE_ERR_TOO_LARGE, fits ? "SCAN" : "elements");
        if (!fits)
            check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_TOO_LARGE, "key k");
        tei_store_close(s);
        fake_stop(&f);
    }
}

/* The last array of a list that is as long as it may be. */
TEST(test_longest_list)
{
    static const char head[] = "*2\r\n$1\r\n0\r\n*65534\r\n";
    char *text = malloc(sizeof head + 65534 * 7), *p;
    struct tei_store *s;
    struct fake f;

    assert_non_null(text);
    p = stpcpy(text, head);
    for (int i = 0; i < 65534; i++)
        p = stpcpy(p, "$1\r\nk\r\n");
    fake_start(&f, FAKE_SAY, text);
    s = open_at(f.port, "");
    for (int i = 0; i < 3; i++) /* each call has that much */
        assert_int_equal(s->ops->list(s, "k", SOON, no_key, NULL), 0);
    tei_store_close(s);
    fake_stop(&f);
    free(text);
}

TEST(test_limit_of_values)
{
    const size_t n = 20000;
    struct tei_conf small = {.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = n};
    char *text = malloc(3 * n), url[64];
    struct tei_store *s;
    struct tei_bytes b;
    struct fake f;

    assert_non_null(text);
    for (size_t length = n; length <= 2 * n; length += n) {
        int head = sprintf(text, "$%zu\r\n", length);

        memset(text + head, 'v', length);
        memcpy(text + (size_t)head + length, "\r\n", 3);
        fake_start(&f, FAKE_SAY, text);
        snprintf(url, sizeof url, "redis://127.0.0.1:%u", (unsigned)f.port);
        assert_int_equal(tei_store_open(url, &small, &s), 0);
        if (length == n) {
            assert_int_equal(s->ops->get(s, "k", SOON, &b, NULL), 0);
            assert_int_equal(b.len, n);
            tei_bytes_fini(&b);
        } else {
            check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_TOO_LARGE,
                        "TE_METADATA_MAX_VALUE");
        }
        check_error(s->ops->put(s, "k", text, n + 1, 0, SOON), TE_ERR_TOO_LARGE,
                    "TE_METADATA_MAX_VALUE");
        assert_int_equal(f.conns, 1);
        tei_store_close(s);
        fake_stop(&f);
    }
    free(text);
}

TEST(test_server_that_hangs_up)
{
    const size_t n = (size_t)2 << 20;
    char *value = calloc(1, n);
    struct tei_store *s;
    struct fake f;

    assert_non_null(value);
    fake_start(&f, FAKE_CLOSE, "");
    s = open_at(f.port, "");
    check_error(s->ops->put(s, "k", "v", 1, 0, SOON), TE_ERR_METADATA, "is the metadata server up");
    assert_int_equal(f.conns, 1);
    check_error(s->ops->put(s, "k", value, n, 0, SOON), TE_ERR_METADATA, "proto-max-bulk-len");
    tei_store_close(s);
    fake_stop(&f);
    free(value);
}

/* ---- connection strings */

TEST(test_open_refuses)
{
    static const struct {
        const char *url, *says;
    } bad[] = {
        {"redis://", "there is no host"},
        {"redis:///3", "there is no host"},
        {"redis://:6379", "there is no host"},
        {"redis://u:" SECRET "@", "there is no host"},
        {"redis://u:" SECRET "@:6379/0", "there is no host"},
        {"redis://h:0", "the port is 0"},
        {"redis://h:65536", "port is no number"},
        {"redis://u:" SECRET "@h:x", "port is no number"},
        {"redis://[::1", "brackets"},
        {"redis://[::g]:1", "IPv6"},
        {"redis://h/256", "0 to 255"},
        {"redis://h/-1", "0 to 255"},
        {"redis://h/ 1", "0 to 255"},
        {"redis://h/x", "0 to 255"},
        {"redis://h/1/2", "0 to 255"},
        {"redis://h?db=3", "'?' and '#'"},
        {"redis://h#3", "'?' and '#'"},
        {"redis://u:" SECRET "/x@h", "%2F"},
        {"redis://:" SECRET "?x@h/1", "%2F"},
        {"redis://:%" SECRET "@h", "%25"},
        {"redis://:" SECRET "%2@h", "%25"},
        {"redis://:" SECRET "%00@h", "%25"},
        {"redis://u%zz:" SECRET "@h", "%25"},
        {"redis://h1:1,h2:2", "one server"},
    };
    struct tei_store *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        int rc = tei_store_open(bad[i].url, &conf, &s);

        check_error(rc, TE_ERR_INVALID, bad[i].says);
        check_error(rc, TE_ERR_INVALID, "redis://user:password@host:6379/0");
    }
}

TEST(test_open_accepts)
{
    static const char *const good[] = {"redis://h",
                                       "redis://h/",
                                       "redis://h:1/0",
                                       "redis://h/255",
                                       "redis://[::1]",
                                       "redis://[::1]:1/2",
                                       "redis://fe80::1%lo",
                                       "redis://user@h",
                                       "redis://:" SECRET "@h",
                                       "redis://u:" SECRET "%40:@@h:7/1",
                                       "Redis://@h"};
    struct tei_store *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(good); i++) {
        if (tei_store_open(good[i], &conf, &s))
            fail_msg("%s", te_errmsg());
        tei_store_close(s);
    }
}

#define CHECKED(test) cmocka_unit_test_setup_teardown(test, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_error_replies),   CHECKED(test_malformed_lists),
        CHECKED(test_endless_list),    CHECKED(test_repeated_password),
        CHECKED(test_slow_servers),    CHECKED(test_flood),
        CHECKED(test_large_arrays),    CHECKED(test_longest_list),
        CHECKED(test_limit_of_values), CHECKED(test_server_that_hangs_up),
        CHECKED(test_open_refuses),    CHECKED(test_open_accepts),
    };

    te_log_set_level(TE_LOG_DEBUG);
    te_log_set_sink(on_log, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
