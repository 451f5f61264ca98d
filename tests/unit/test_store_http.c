/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/meta.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "http_kv.h"
#include "patience.h"
#include "proc.h"

#define SOON tei_deadline_ns(PATIENCE_MS)

static const struct tei_conf conf = {.metadata_timeout_ms = PATIENCE_MS,
                                     .metadata_max_value = 16 << 20};
static struct http_kv server;
static struct tei_store *store;

static int open_store(void **state)
{
    (void)state;
    assert_true(http_kv_start(&server));
    assert_int_equal(tei_store_open(server.url, &conf, &store), 0);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    tei_store_close(store);
    http_kv_stop(&server);
    return 0;
}

static int get(const char *key, struct tei_bytes *out)
{
    return store->ops->get(store, key, SOON, out, NULL);
}

static int put(const char *key, const char *value)
{
    return store->ops->put(store, key, value, strlen(value), 0, SOON);
}

static int del(const char *key)
{
    return store->ops->del(store, key, SOON);
}

static void check_error(int rc, int want, const char *says)
{
    if (rc != want || !strstr(te_errmsg(), says))
        fail_msg("%d: %s", rc, te_errmsg());
}

TEST(test_put_get_delete)
{
    struct tei_bytes b;

    check_error(get("k", &b), TE_ERR_NOT_FOUND, "404");
    assert_int_equal(put("k", "{\"a\":1}"), 0);
    assert_int_equal(get("k", &b), 0);
    assert_int_equal(b.len, 7);
    assert_string_equal(b.data, "{\"a\":1}");
    tei_bytes_fini(&b);
    assert_int_equal(put("k", ""), 0);
    assert_int_equal(get("k", &b), 0);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    tei_bytes_fini(&b);
    assert_int_equal(del("k"), 0);
    assert_int_equal(del("k"), 0);
    assert_int_equal(http_kv_count(&server), 0);
}

/* As captured from another engine of this protocol. */
TEST(test_bytes_of_a_request)
{
    struct tei_bytes b;

    assert_int_equal(put("mooncake/rpc_meta/node-a", "{}"), 0);
    assert_string_equal(server.request_line,
                        "PUT /metadata?key=mooncake%2Frpc_meta%2Fnode-a HTTP/1.1");
    assert_non_null(strstr(server.headers, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(server.headers, "Accept: */*\r\n"));
    assert_null(strcasestr(server.headers, "Expect:"));
    assert_int_equal(get("mooncake/ram/[::1]:5", &b), TE_ERR_NOT_FOUND);
    assert_string_equal(server.request_line,
                        "GET /metadata?key=mooncake%2Fram%2F%5B%3A%3A1%5D%3A5 HTTP/1.1");
    assert_int_equal(del("aZ09-._~ \xc3\xa9?&"), 0);
    assert_string_equal(server.request_line,
                        "DELETE /metadata?key=aZ09-._~%20%C3%A9%3F%26 HTTP/1.1");
}

TEST(test_connection_is_kept)
{
    for (int i = 0; i < 20; i++)
        assert_int_equal(put("k", "v"), 0);
    assert_int_equal(http_kv_conns(&server), 1);
}

TEST(test_large_value)
{
    const size_t n = (size_t)8 << 20;
    char *value = malloc(n + 1);
    struct tei_bytes b;

    assert_non_null(value);
    memset(value, 'v', n);
    value[n] = '\0';
    assert_int_equal(put("k", value), 0);
    assert_int_equal(get("k", &b), 0);
    assert_int_equal(b.len, n);
    assert_memory_equal(b.data, value, n + 1);
    tei_bytes_fini(&b);
    free(value);
}

TEST(test_refused_overwrite)
{
    server.refuse_second_rpc_meta = true;
    assert_int_equal(put("mooncake/rpc_meta/x", "1"), 0);
    check_error(put("mooncake/rpc_meta/x", "2"), TE_ERR_EXISTS, "Duplicate rpc_meta key");
    assert_int_equal(del("mooncake/rpc_meta/x"), 0);
    assert_int_equal(put("mooncake/rpc_meta/x", "2"), 0);
}

TEST(test_refused_size)
{
    server.max_value = 4;
    check_error(put("k", "12345"), TE_ERR_TOO_LARGE, "value too large");
    assert_null(strstr(te_errmsg(), "second line"));
    assert_int_equal(put("k", "1234"), 0);
}

TEST(test_only_200_is_success)
{
    static const int codes[] = {201, 204, 301, 400, 401, 403, 500, 503};
    struct tei_bytes b;

    server.body = "oh\r\nmore";
    for (size_t i = 0; i < TEI_ARRAY_LEN(codes); i++) {
        char status[8];

        server.status = codes[i];
        server.body = codes[i] == 204 ? "" : "oh\r\nmore";
        snprintf(status, sizeof status, "%d", codes[i]);
        check_error(get("k", &b), TE_ERR_METADATA, status);
        check_error(put("k", "v"), codes[i] == 400 ? TE_ERR_EXISTS : TE_ERR_METADATA, status);
        check_error(del("k"), TE_ERR_METADATA, status);
        assert_null(strstr(te_errmsg(), "more"));
        assert_non_null(strstr(te_errmsg(), server.url));
    }
}

TEST(test_redirects_are_not_followed)
{
    struct tei_bytes b;

    server.status = 302;
    server.location = "file:///etc/passwd";
    check_error(get("k", &b), TE_ERR_METADATA, "302");
    server.location = server.url;
    check_error(get("k", &b), TE_ERR_METADATA, "302");
    assert_int_equal(http_kv_requests(&server), 2);
}

TEST(test_deadline)
{
    struct tei_bytes b;
    int64_t start = tei_now_ns();

    server.hang = true;
    check_error(store->ops->get(store, "k", tei_deadline_ns(200), &b, NULL), TE_ERR_TIMEOUT,
                "TE_METADATA_TIMEOUT_MS");
    assert_in_range(tei_now_ns() - start, 190 * TEI_NS_PER_MS, PATIENCE_NS);
    check_error(store->ops->get(store, "k", tei_now_ns(), &b, NULL), TE_ERR_TIMEOUT, "GET");
}

TEST(test_server_that_hangs_up)
{
    struct tei_bytes b;

    server.hang_up = true;
    check_error(get("k", &b), TE_ERR_METADATA, server.url);
}

TEST(test_limit_of_values)
{
    struct tei_conf small = {.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = 1000};
    char value[1002];
    struct tei_store *s;
    struct tei_bytes b;
    int requests;

    memset(value, 'v', sizeof value);
    value[1001] = '\0';
    http_kv_set(&server, "more", value);
    value[1000] = '\0';
    http_kv_set(&server, "most", value);
    assert_int_equal(tei_store_open(server.url, &small, &s), 0);
    assert_int_equal(s->ops->get(s, "most", SOON, &b, NULL), 0);
    assert_int_equal(b.len, 1000);
    tei_bytes_fini(&b);
    check_error(s->ops->get(s, "more", SOON, &b, NULL), TE_ERR_TOO_LARGE, "TE_METADATA_MAX_VALUE");
    assert_non_null(strstr(te_errmsg(), "key more"));
    assert_int_equal(s->ops->get(s, "most", SOON, &b, NULL), 0); /* the store works as before */
    tei_bytes_fini(&b);
    assert_int_equal(s->ops->put(s, "k", value, 1000, 0, SOON), 0);
    requests = http_kv_requests(&server);
    check_error(s->ops->put(s, "k", value, 1001, 0, SOON), TE_ERR_TOO_LARGE,
                "TE_METADATA_MAX_VALUE");
    assert_int_equal(http_kv_requests(&server), requests);
    tei_store_close(s);
}

/* A kept connection that the server has closed meanwhile is replaced without anybody noticing. */
TEST(test_stale_connection)
{
    server.hang_up_after = true;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(put("k", "v"), 0);
        usleep(20000);
    }
    assert_int_equal(http_kv_conns(&server), 5);
}

TEST(test_nobody_there)
{
    struct tei_store *s;
    struct tei_bytes b;
    char url[64];
    int fd;

    snprintf(url, sizeof url, "http://127.0.0.1:%u/x", (unsigned)test_dead_port(&fd));
    assert_int_equal(tei_store_open(url, &conf, &s), 0);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, url);
    check_error(s->ops->put(s, "k", "v", 1, 0, SOON), TE_ERR_METADATA, url);
    tei_store_close(s);
    close(fd);
}

static void *put_many(void *arg)
{
    char key[32];

    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "%d-%d", *(int *)arg, i);
        if (store->ops->put(store, key, key, strlen(key), 0, SOON))
            return arg;
    }
    return NULL;
}

TEST(test_many_threads)
{
    pthread_t threads[8];
    int numbers[8];

    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        assert_int_equal(tei_thread_start(&threads[i], "put", put_many, &numbers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(http_kv_count(&server), 400);
}

TEST(test_credentials_are_sent_and_not_shown)
{
    struct tei_store *s;
    struct tei_bytes b;
    char url[128];

    snprintf(url, sizeof url, "http://joe:secret@127.0.0.1:%u/metadata?tenant=a",
             (unsigned)server.port);
    assert_int_equal(tei_store_open(url, &conf, &s), 0);
    server.status = 403;
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "403");
    assert_null(strstr(te_errmsg(), "secret"));
    assert_null(strstr(te_errmsg(), "joe"));
    assert_non_null(strstr(server.headers, "Authorization: Basic"));
    assert_string_equal(server.request_line, "GET /metadata?tenant=a&key=k HTTP/1.1");
    tei_store_close(s);
}

/* ---- opening */

static void check_open(const char *conn, int want, const char *says)
{
    struct tei_store *s = NULL;

    check_error(tei_store_open(conn, &conf, &s), want, says);
    assert_null(s);
}

TEST(test_open_refuses)
{
#if !TE_USE_ETCD
    check_open("127.0.0.1:2379", TE_ERR_UNSUPPORTED, "'etcd'");
#endif
    check_open("carrier-pigeon://coop", TE_ERR_UNSUPPORTED, "'carrier-pigeon'");
    check_open("carrier-pigeon://coop", TE_ERR_UNSUPPORTED, "http");
    check_open("://", TE_ERR_UNSUPPORTED, "P2PHANDSHAKE");
    check_open("http://", TE_ERR_INVALID, "URL");
    check_open("http://joe:secret@h:port/x", TE_ERR_INVALID, "URL");
    assert_null(strstr(te_errmsg(), "secret"));
    check_open("http://h/x#fragment", TE_ERR_INVALID, "URL");
}

TEST(test_open_accepts)
{
    static const char *const good[] = {"http://h:8080/metadata", "https://h/x", "HTTP://[::1]:5/",
                                       "http://h"};
    struct tei_store *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(good); i++) {
        assert_int_equal(tei_store_open(good[i], &conf, &s), 0);
        tei_store_close(s);
    }
    tei_store_close(NULL);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_put_get_delete),
        SERVED(test_bytes_of_a_request),
        SERVED(test_connection_is_kept),
        SERVED(test_large_value),
        SERVED(test_limit_of_values),
        SERVED(test_refused_overwrite),
        SERVED(test_refused_size),
        SERVED(test_only_200_is_success),
        SERVED(test_redirects_are_not_followed),
        SERVED(test_deadline),
        SERVED(test_server_that_hangs_up),
        SERVED(test_stale_connection),
        SERVED(test_nobody_there),
        SERVED(test_many_threads),
        SERVED(test_credentials_are_sent_and_not_shown),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_open_accepts),
    };

    te_log_set_level(TE_LOG_OFF);
    setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
