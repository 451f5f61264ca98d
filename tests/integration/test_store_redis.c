/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * The redis store against a real redis-server. Each test also checks that it leaves no descriptor
 * open.
 */
#include "meta/meta.h"

#include "base/os.h"
#include "child_engine.h"
#include "patience.h"
#include "proc.h"
#include "server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define SOON    tei_deadline_ns(PATIENCE_MS)
#define SHORT   500 /* ms: a deadline that is to pass */
#define START_S (PATIENCE_MS / 1000)
/* Every password has this in it, and no line of the log may. */
#define SECRET "s3cret"

static struct tei_conf conf = {.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = 16 << 20};
static struct test_server server;
static struct tei_store *store;
static size_t fds_before;
static _Atomic int secrets_logged;

static void on_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level;
    if (strstr(line, SECRET))
        atomic_fetch_add_explicit(&secrets_logged, 1, memory_order_relaxed);
}

/* ---- servers and stores */

static bool have_ipv6(void)
{
    uint16_t port = 0;
    int fd = tei_listen("::1", &port, 1);

    if (fd >= 0)
        tei_fd_close(fd);
    return fd >= 0;
}

/* A redis that keeps nothing, with more arguments, up to a NULL. */
static bool start_redis_at(struct test_server *s, uint16_t port, const char *const more[])
{
    const char *argv[TEST_SERVER_ARGS + 1] = {"redis-server", "--save", "",
                                              "--appendonly", "no",     "--port"};
    char text[8];
    size_t n = 6;

    snprintf(text, sizeof text, "%u", (unsigned)port);
    argv[n++] = text;
    argv[n++] = "--bind";
    argv[n++] = "127.0.0.1";
    for (; *more; more++)
        argv[n++] = *more;
    return test_server_start(s, argv, port, START_S);
}

static bool start_redis(struct test_server *s, const char *const more[])
{
    for (int i = 0; i < TEST_PORT_TRIES; i++) {
        if (start_redis_at(s, test_free_port(), more))
            return true;
        if (!s->port_taken)
            break;
    }
    return false;
}

static struct tei_store *open_at(uint16_t port, const char *login, const char *tail,
                                 const struct tei_conf *c)
{
    struct tei_store *s = NULL;
    char url[512];

    snprintf(url, sizeof url, "redis://%s127.0.0.1:%u%s", login, (unsigned)port, tail);
    if (tei_store_open(url, c, &s))
        fail_msg("%s", te_errmsg());
    return s;
}

static int start_server(void **state)
{
    const char *both[] = {"::1", NULL}, *one[] = {NULL};

    (void)state;
    return start_redis(&server, have_ipv6() ? both : one) ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    test_server_stop(&server);
    return atomic_load_explicit(&secrets_logged, memory_order_relaxed);
}

static int open_store(void **state)
{
    (void)state;
    fds_before = test_count_fds();
    store = open_at(server.port, "", "", &conf);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    tei_store_close(store);
    store = NULL;
    assert_int_equal(test_count_fds(), fds_before);
    return 0;
}

/* ---- calls */

static int put_to(struct tei_store *s, const char *key, const char *value, int ttl_s)
{
    return s->ops->put(s, key, value, strlen(value), ttl_s, SOON);
}

static int get_from(struct tei_store *s, const char *key)
{
    struct tei_bytes b = {0};
    int rc = s->ops->get(s, key, SOON, &b, NULL);

    tei_bytes_fini(&b);
    return rc;
}

static int put(const char *key, const char *value)
{
    return put_to(store, key, value, 0);
}

static int get(const char *key)
{
    return get_from(store, key);
}

static int keep(const char *a, const char *b, int ttl_s)
{
    const char *keys[] = {a, b};

    return store->ops->keep(store, keys, 2, ttl_s, SOON);
}

static void check_error(int rc, int want, const char *says)
{
    if (rc != want || !strstr(te_errmsg(), says) || strstr(te_errmsg(), SECRET))
        fail_msg("%d: %s; should be %d and say %s", rc, te_errmsg(), want, says);
}

/* Opens a store, puts one key, and closes it. */
static int put_once(uint16_t port, const char *login, const char *tail, const struct tei_conf *c,
                    const char *key)
{
    struct tei_store *s = open_at(port, login, tail, c);
    int rc = put_to(s, key, "v", 0);

    tei_store_close(s);
    return rc;
}

/* A command to the server itself, which must answer `want`. */
static void admin(const char *command, const char *want)
{
    int fd = tei_connect("127.0.0.1", server.port, NULL, SOON);
    char line[256], reply[64] = "";

    assert_true(fd >= 0);
    snprintf(line, sizeof line, "%s\r\n", command);
    assert_int_equal(tei_write_full(fd, line, strlen(line), SOON), 0);
    assert_int_equal(tei_read_full(fd, reply, strlen(want), SOON), 0);
    assert_string_equal(reply, want);
    tei_fd_close(fd);
}

/* ---- keys and values */

static void check_round_trip(size_t n, uint64_t seed)
{
    struct tei_bytes b = {0};
    int64_t revision = -1;
    char *value = malloc(n + 1);

    assert_non_null(value);
    fill(value, n, seed);
    assert_int_equal(store->ops->put(store, "binary", value, n, 0, SOON), 0);
    assert_int_equal(store->ops->get(store, "binary", SOON, &b, &revision), 0);
    assert_int_equal(b.len, n);
    assert_int_equal(first_difference(b.data, n, seed), n);
    assert_int_equal(b.data[n], 0);
    assert_int_equal(revision, 0);
    tei_bytes_fini(&b);
    free(value);
}

static void test_binary_values(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 1023, 16384, 65537, 1048577, (size_t)8 << 20};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++)
        check_round_trip(sizes[i], tei_random_u64());
    check_round_trip(7, 1);
}

static void test_absent_keys(void **state)
{
    (void)state;
    check_error(get("absent"), TE_ERR_NOT_FOUND, "absent");
    assert_int_equal(store->ops->del(store, "absent", SOON), 0);
    assert_int_equal(put("there", "1"), 0);
    assert_int_equal(get("there"), 0);
    assert_int_equal(store->ops->del(store, "there", SOON), 0);
    assert_int_equal(get("there"), TE_ERR_NOT_FOUND);
}

/* That time has passed is no event: the keys are asked for until they are gone. */
#define TTL_S 2

/* Puts "short" and "kept", and keeps the latter; false if this process was itself late by the TTL. */
static bool put_and_keep(void)
{
    int64_t start = tei_now_ns();
    int kept, got;

    assert_int_equal(put_to(store, "short", "v", TTL_S), 0);
    assert_int_equal(put_to(store, "kept", "v", TTL_S), 0);
    assert_int_equal(put_to(store, "plain", "v", 0), 0);
    kept = keep("kept", "plain", 100);
    got = get("short");
    if ((kept || got) && tei_now_ns() - start >= TTL_S * TEI_NS_PER_S)
        return false;
    assert_int_equal(kept, 0);
    assert_int_equal(got, 0);
    return true;
}

static void test_keys_expire(void **state)
{
    int64_t end = SOON;

    (void)state;
    for (int tries = 0; !put_and_keep(); tries++)
        assert_true(tries < 20);
    while (get("short") == 0 && tei_left_ms(end) > 0)
        usleep(50000);
    check_error(get("short"), TE_ERR_NOT_FOUND, "short");
    usleep(300000);
    assert_int_equal(get("kept"), 0);
    check_error(keep("kept", "short", 100), TE_ERR_NOT_FOUND, "short");
    check_error(keep("short", "kept", 0), TE_ERR_NOT_FOUND, "short");
    assert_int_equal(keep("kept", "plain", 0), 0);
    assert_int_equal(store->ops->keep(store, NULL, 0, 100, SOON), 0);
}

/* A put without a ttl makes a key that had one stay. */
static void test_put_ends_ttl(void **state)
{
    (void)state;
    assert_int_equal(put_to(store, "k", "v", 1), 0);
    assert_int_equal(put_to(store, "k", "v", 0), 0);
    usleep(1500000);
    assert_int_equal(get("k"), 0);
}

#define MANY 2500

struct listed {
    size_t n;
    char last[64];
    bool seen[MANY];
    int answer;
};

static int on_key(void *arg, const char *key)
{
    struct listed *l = arg;
    const char *number = strrchr(key, '/');
    unsigned long i = number ? strtoul(number + 1, NULL, 10) : 0;

    snprintf(l->last, sizeof l->last, "%s", key);
    if (i < MANY && !l->seen[i]) {
        l->seen[i] = true;
        l->n++;
    }
    return l->answer;
}

static struct listed list(const char *prefix, int answer)
{
    struct listed l = {.answer = answer};

    assert_int_equal(store->ops->list(store, prefix, SOON, on_key, &l), answer);
    return l;
}

static void test_list_takes_prefix_literally(void **state)
{
    static const char *const keys[] = {"a*b/1", "a*b/2", "axb/3",  "a[x]/4", "ax/5",
                                       "a?c/6", "abc/7", "a\\d/8", "ad/9",   "a^[-]/10"};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(keys); i++)
        assert_int_equal(put(keys[i], "v"), 0);
    assert_int_equal(list("a*b/", 0).n, 2);
    assert_string_equal(list("a[x]/", 0).last, "a[x]/4");
    assert_int_equal(list("a[x]/", 0).n, 1);
    assert_string_equal(list("a?c/", 0).last, "a?c/6");
    assert_int_equal(list("a?c/", 0).n, 1);
    assert_string_equal(list("a\\d/", 0).last, "a\\d/8");
    assert_string_equal(list("a^[-]", 0).last, "a^[-]/10");
    assert_int_equal(list("nothing", 0).n, 0);
}

static void test_list_of_many(void **state)
{
    char key[64];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many/%d", i);
        assert_int_equal(put(key, "v"), 0);
    }
    assert_int_equal(list("many/", 0).n, MANY);
    assert_int_equal(list("many/", 7).n, 1);
}

/* ---- logins and databases */

static const char *const password_args[] = {
    "--requirepass", "a@b/" SECRET "%:", "--user", "te", "on",
    ">te-" SECRET,   "~mooncake/*",      "+@all",  NULL};

static void check_logins(uint16_t port)
{
    static struct tei_conf c;

    c = conf;
    check_error(put_once(port, "", "", &c, "k"), TE_ERR_METADATA, "MC_REDIS_PASSWORD");
    check_error(put_once(port, ":wrong-" SECRET "@", "", &c, "k"), TE_ERR_METADATA,
                "MC_REDIS_USERNAME");
    assert_int_equal(put_once(port, ":a%40b%2f" SECRET "%25:@", "", &c, "k"), 0);
    assert_int_equal(put_once(port, ":a@b%2F" SECRET "%25:@", "/2", &c, "k"), 0);
    assert_int_equal(put_once(port, "te:te-" SECRET "@", "", &c, "mooncake/k"), 0);
    check_error(put_once(port, "te:te-" SECRET "@", "", &c, "k"), TE_ERR_METADATA, "NOPERM");
    check_error(put_once(port, "nobody:te-" SECRET "@", "", &c, "k"), TE_ERR_METADATA, "WRONGPASS");
    strcpy(c.redis_password, "a@b/" SECRET "%:");
    assert_int_equal(put_once(port, "", "", &c, "k"), 0);
    check_error(put_once(port, ":wrong-" SECRET "@", "", &c, "k"), TE_ERR_METADATA, "WRONGPASS");
    strcpy(c.redis_username, "te");
    check_error(put_once(port, "", "", &c, "k"), TE_ERR_METADATA, "WRONGPASS");
    assert_int_equal(put_once(port, ":te-" SECRET "@", "", &c, "mooncake/k"), 0);
    assert_int_equal(put_once(port, "default@", "", &c, "k"), 0);
}

static void test_logins(void **state)
{
    struct test_server s;

    (void)state;
    assert_true(start_redis(&s, password_args));
    check_logins(s.port);
    test_server_stop(&s);
}

static void test_login_not_asked_for(void **state)
{
    (void)state;
    check_error(put_once(server.port, ":" SECRET "@", "", &conf, "k"), TE_ERR_METADATA,
                "leave out MC_REDIS_PASSWORD");
}

static void test_databases(void **state)
{
    static struct tei_conf c;
    struct tei_store *s;

    (void)state;
    c = conf;
    c.redis_db_index = 3;
    assert_int_equal(put_once(server.port, "", "/3", &conf, "in-3"), 0);
    check_error(get("in-3"), TE_ERR_NOT_FOUND, "in-3");
    s = open_at(server.port, "", "", &c);
    assert_int_equal(get_from(s, "in-3"), 0);
    tei_store_close(s);
    s = open_at(server.port, "", "/0", &c);
    assert_int_equal(get_from(s, "in-3"), TE_ERR_NOT_FOUND);
    tei_store_close(s);
    check_error(put_once(server.port, "", "/255", &conf, "k"), TE_ERR_METADATA,
                "MC_REDIS_DB_INDEX");
}

static void test_ipv6(void **state)
{
    char url[64];
    struct tei_store *s;

    (void)state;
    if (!have_ipv6())
        skip();
    snprintf(url, sizeof url, "REDIS://[::1]:%u/0", (unsigned)server.port);
    assert_int_equal(tei_store_open(url, &conf, &s), 0);
    assert_int_equal(put_to(s, "v6", "v", 0), 0);
    tei_store_close(s);
}

/* ---- errors of a real server */

static void test_values_that_are_too_large(void **state)
{
    const size_t n = (size_t)4 << 20;
    char *value = calloc(1, n);
    int rc;

    (void)state;
    assert_non_null(value);
    admin("CONFIG SET proto-max-bulk-len 1048576", "+OK\r\n");
    rc = store->ops->put(store, "large", value, n, 0, SOON);
    check_error(rc, TE_ERR_TOO_LARGE, "proto-max-bulk-len");
    assert_int_equal(put("small", "v"), 0);
    rc = store->ops->put(store, "large", value, n, 0, SOON);
    check_error(rc, TE_ERR_TOO_LARGE, "proto-max-bulk-len");
    admin("CONFIG SET proto-max-bulk-len 536870912", "+OK\r\n");
    assert_int_equal(store->ops->put(store, "large", value, n, 0, SOON), 0);
    free(value);
}

static void test_memory_full(void **state)
{
    (void)state;
    admin("CONFIG SET maxmemory 1", "+OK\r\n");
    check_error(put("k", "v"), TE_ERR_METADATA, "maxmemory");
    admin("CONFIG SET maxmemory 0", "+OK\r\n");
    assert_int_equal(put("k", "v"), 0);
}

static void test_key_of_another_program(void **state)
{
    (void)state;
    admin("LPUSH queue 1", ":1\r\n");
    check_error(get("queue"), TE_ERR_METADATA, "WRONGTYPE");
    assert_int_equal(put("queue", "v"), 0);
}

static void test_replica(void **state)
{
    static const char *const args[] = {"--replicaof", "127.0.0.1", "1", NULL};
    struct test_server s;

    (void)state;
    assert_true(start_redis(&s, args));
    check_error(put_once(s.port, "", "", &conf, "k"), TE_ERR_METADATA, "name its primary");
    test_server_stop(&s);
}

/* ---- a server that comes and goes */

static void test_idle_connection_is_closed(void **state)
{
    (void)state;
    assert_int_equal(put("k", "v"), 0);
    admin("CLIENT KILL TYPE normal SKIPME yes", ":1\r\n");
    assert_int_equal(get("k"), 0);
    admin("CLIENT KILL TYPE normal SKIPME yes", ":1\r\n");
    check_round_trip((size_t)8 << 20, 3);
}

static void test_restarted_server(void **state)
{
    (void)state;
    assert_int_equal(put("k", "v"), 0);
    assert_true(test_server_restart(&server));
    assert_int_equal(get("k"), TE_ERR_NOT_FOUND);
    assert_int_equal(put("k", "v"), 0);
    test_server_kill(&server);
    check_error(put("k", "v"), TE_ERR_METADATA, "is the metadata server up");
    check_error(get("k"), TE_ERR_METADATA, "is the metadata server up");
    assert_true(test_server_restart(&server));
    assert_int_equal(put("k", "v"), 0);
    assert_int_equal(get("k"), 0);
}

/* A put that must end by its deadline. */
static void check_timeout(struct tei_store *s, size_t n)
{
    int64_t start = tei_now_ns(), took_ms;
    char *value = calloc(1, n);
    int rc;

    assert_non_null(value);
    rc = s->ops->put(s, "k", value, n, 0, tei_deadline_ns(SHORT));
    took_ms = (tei_now_ns() - start) / TEI_NS_PER_MS;
    check_error(rc, TE_ERR_TIMEOUT, "TE_METADATA_TIMEOUT_MS");
    assert_in_range(took_ms, SHORT - 1, PATIENCE_MS);
    free(value);
}

static void test_frozen_server(void **state)
{
    (void)state;
    assert_int_equal(put("k", "v"), 0);
    test_server_freeze(&server);
    check_timeout(store, 1);                /* a connection that was kept */
    check_timeout(store, 1);                /* a new one */
    check_timeout(store, (size_t)16 << 20); /* more than the sockets hold */
    test_server_thaw(&server);
    assert_int_equal(put("k", "v2"), 0);
    assert_int_equal(get("k"), 0);
}

static void test_deadline_that_has_passed(void **state)
{
    (void)state;
    check_error(store->ops->put(store, "k", "v", 1, 0, tei_now_ns() - 1), TE_ERR_TIMEOUT,
                "TE_METADATA_TIMEOUT_MS");
}

/* ---- threads */

#define THREADS 8
#define PUTS    50

static void *put_many(void *arg)
{
    uintptr_t id = (uintptr_t)arg;
    char key[64], value[128];
    int bad = 0;

    for (int i = 0; i < PUTS; i++) {
        struct tei_bytes b = {0};

        snprintf(key, sizeof key, "thread/%u/%d", (unsigned)id, i);
        snprintf(value, sizeof value, "value of %s", key);
        if (put(key, value) || store->ops->get(store, key, SOON, &b, NULL) ||
            strcmp(b.data, value) != 0)
            bad++;
        tei_bytes_fini(&b);
    }
    return (void *)(intptr_t)bad;
}

static void test_many_threads(void **state)
{
    pthread_t threads[THREADS];
    void *bad;

    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(tei_thread_start(&threads[i], "put", put_many, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_binary_values),
        SERVED(test_absent_keys),
        SERVED(test_keys_expire),
        SERVED(test_put_ends_ttl),
        SERVED(test_list_takes_prefix_literally),
        SERVED(test_list_of_many),
        SERVED(test_logins),
        SERVED(test_login_not_asked_for),
        SERVED(test_databases),
        SERVED(test_ipv6),
        SERVED(test_values_that_are_too_large),
        SERVED(test_memory_full),
        SERVED(test_key_of_another_program),
        SERVED(test_replica),
        SERVED(test_idle_connection_is_closed),
        SERVED(test_restarted_server),
        SERVED(test_frozen_server),
        SERVED(test_deadline_that_has_passed),
        SERVED(test_many_threads),
    };

    if (!test_program_found("redis-server")) {
        puts("redis-server is not installed");
        return 77;
    }
    te_log_set_level(TE_LOG_DEBUG);
    te_log_set_sink(on_log, NULL);
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
