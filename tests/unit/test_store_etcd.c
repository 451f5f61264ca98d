/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The etcd store against a server whose answers are too large. What a real one does, and smaller
 * oddities, are in tests/integration/test_store_etcd.c.
 */
#include "meta/meta.h"
#include "test.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "patience.h"

#define SOON    tei_deadline_ns(PATIENCE_MS)
#define OK_HEAD "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
#define SMALL   65536
#define LARGE   400000

static struct tei_conf conf = {.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = SMALL};

/* Answers everything alike. */
static struct {
    const char *reply;
    int listen_fd;
    uint16_t port;
    pthread_t thread;
    _Atomic bool stop;
} server;

static void *serve(void *arg)
{
    struct pollfd p = {.fd = server.listen_fd, .events = POLLIN};
    char request[4096];

    (void)arg;
    while (!atomic_load(&server.stop)) {
        int fd = poll(&p, 1, 50) > 0 ? tei_accept(server.listen_fd, NULL) : -1;
        struct pollfd q = {.fd = fd, .events = POLLIN};

        if (fd < 0)
            continue;
        if (poll(&q, 1, PATIENCE_MS) == 1 && recv(fd, request, sizeof request, 0) > 0)
            (void)tei_write_full(fd, server.reply, strlen(server.reply), SOON); /* or it hangs up */
        tei_fd_close(fd);
    }
    return NULL;
}

static struct tei_store *open_on(const char *reply)
{
    struct tei_store *s = NULL;
    char url[64];

    server.reply = reply;
    server.port = 0;
    atomic_store(&server.stop, false);
    server.listen_fd = tei_listen("127.0.0.1", &server.port, 16);
    assert_true(server.listen_fd >= 0);
    assert_int_equal(tei_thread_start(&server.thread, "serve", serve, NULL), 0);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%u", (unsigned)server.port);
    assert_int_equal(tei_store_open(url, &conf, &s), 0);
    return s;
}

static void close_both(struct tei_store *s)
{
    tei_store_close(s);
    atomic_store(&server.stop, true);
    pthread_join(server.thread, NULL);
    tei_fd_close(server.listen_fd);
}

static int no_key(void *arg, const char *key)
{
    (void)arg, (void)key;
    return 0;
}

static void no_change(void *arg, size_t i)
{
    (void)arg, (void)i;
}

/* No call takes the answer, for the reason that is given; the text is freed. */
static void check_refused(char *reply, const char *says)
{
    struct tei_watched watched = {.key = (char *)"k"};
    struct tei_store *s = open_on(reply);
    struct tei_bytes b;
    int rcs[] = {s->ops->get(s, "k", SOON, &b, NULL), s->ops->put(s, "k", "v", 1, 5, SOON),
                 s->ops->list(s, "k", SOON, no_key, NULL),
                 s->ops->watch(s, &watched, 1, no_change, NULL)};

    for (size_t i = 0; i < TEI_ARRAY_LEN(rcs); i++)
        assert_int_equal(rcs[i], TE_ERR_TOO_LARGE);
    assert_int_equal(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_TOO_LARGE);
    if (!strstr(te_errmsg(), says) || !strstr(te_errmsg(), "key k"))
        fail_msg("%s", te_errmsg());
    close_both(s);
    free(reply);
}

static char *large_answer(const char *head)
{
    char *reply = malloc(LARGE + 200);
    int n;

    assert_non_null(reply);
    n = sprintf(reply, "%s", head);
    memset(reply + n, ' ', LARGE);
    reply[n + LARGE] = '\0';
    return reply;
}

TEST(more_bytes_than_a_value_has)
{
    char head[100];

    check_refused(large_answer(OK_HEAD), "TE_METADATA_MAX_VALUE");
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", LARGE);
    check_refused(large_answer(head), "TE_METADATA_MAX_VALUE");
}

/* "[],[],...": a list of so many values, behind a string that only looks like more of them. */
static char *many_values(const char *head, size_t n)
{
    char *reply = malloc(3 * n + 200), *p = reply;

    assert_non_null(reply);
    p = stpcpy(stpcpy(p, head), "{\"a\":\"[,,{:\\\"[[\\\\\",\"kvs\":[");
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, "[],");
    stpcpy(p, "{}]}\n");
    return reply;
}

TEST(more_values_than_an_answer_has)
{
    struct tei_store *s;
    struct tei_bytes b;
    char *reply;

    conf.metadata_max_value = LARGE;
    check_refused(many_values(OK_HEAD, 33000), "JSON values");
    check_refused(many_values(OK_HEAD, 100000), "JSON values");
    reply = many_values(OK_HEAD, 32700);
    s = open_on(reply);
    assert_int_equal(s->ops->get(s, "k", SOON, &b, NULL), 0); /* its first key has no value */
    assert_int_equal(b.len, 0);
    tei_bytes_fini(&b);
    close_both(s);
    free(reply);
    conf.metadata_max_value = SMALL;
}

/* Nothing is put that nobody would read; the server is not asked. */
TEST(value_that_is_too_large)
{
    char *value = calloc(1, SMALL + 1);
    struct tei_store *s = open_on("");

    assert_non_null(value);
    assert_int_equal(s->ops->put(s, "k", value, SMALL, 0, SOON), TE_ERR_METADATA);
    assert_int_equal(s->ops->put(s, "k", value, SMALL + 1, 0, SOON), TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "TE_METADATA_MAX_VALUE"));
    close_both(s);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_bytes_than_a_value_has),
        cmocka_unit_test(more_values_than_an_answer_has),
        cmocka_unit_test(value_that_is_too_large),
    };

    te_log_set_level(TE_LOG_OFF);
    setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
