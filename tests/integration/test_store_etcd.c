/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=90 */
/* The etcd store against a real etcd: values, leases, login, failover, watching. */
#include "meta/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "base/base64.h"
#include "patience.h"
#include "proc.h"
#include "server.h"

#define SOON tei_deadline_ns(PATIENCE_MS)

static struct tei_conf conf;
static struct test_server etcd;
static struct tei_store *store;

static void check_error(int rc, int want, const char *says)
{
    if (rc != want || !strstr(te_errmsg(), says))
        fail_msg("%d: %s (wanted %d and '%s')", rc, te_errmsg(), want, says);
}

static struct tei_store *open_store(const char *conn)
{
    struct tei_store *s = NULL;

    if (tei_store_open(conn, &conf, &s))
        fail_msg("%s: %s", conn, te_errmsg());
    return s;
}

static struct tei_store *open_at(const char *format, unsigned port)
{
    char conn[200];

    snprintf(conn, sizeof conn, format, port);
    return open_store(conn);
}

static void put_text(struct tei_store *s, const char *key, const char *value, int ttl_s)
{
    if (s->ops->put(s, key, value, strlen(value), ttl_s, SOON))
        fail_msg("put %s: %s", key, te_errmsg());
}

static void check_value(struct tei_store *s, const char *key, const char *want)
{
    struct tei_bytes b;

    if (s->ops->get(s, key, SOON, &b, NULL))
        fail_msg("get %s: %s", key, te_errmsg());
    assert_string_equal(b.data, want);
    tei_bytes_fini(&b);
}

static void check_absent(struct tei_store *s, const char *key)
{
    struct tei_bytes b;

    assert_int_equal(s->ops->get(s, key, SOON, &b, NULL), TE_ERR_NOT_FOUND);
}

static int setup(void **state)
{
    (void)state;
    conf.metadata_timeout_ms = PATIENCE_MS;
    conf.metadata_max_value = 16 << 20;
    store = open_at("etcd://127.0.0.1:%u", etcd.port);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tei_store_close(store);
    return 0;
}

/* --------------------------------------------------------------------------------------- values */

static void values_come_back(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 63, 1000, 100001, 1000003};
    uint8_t *data = malloc(1000003);

    (void)state;
    assert_non_null(data);
    tei_random(data, 1000003);
    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++) {
        struct tei_bytes b;
        int64_t revision;

        assert_int_equal(store->ops->put(store, "mooncake/v", (char *)data, sizes[i], 0, SOON), 0);
        assert_int_equal(store->ops->get(store, "mooncake/v", SOON, &b, &revision), 0);
        assert_int_equal(b.len, sizes[i]);
        assert_memory_equal(b.data, data, sizes[i]);
        assert_int_equal(b.data[b.len], 0);
        assert_true(revision > 0);
        tei_bytes_fini(&b);
    }
    free(data);
    assert_int_equal(store->ops->del(store, "mooncake/v", SOON), 0);
    check_absent(store, "mooncake/v");
    assert_int_equal(store->ops->del(store, "mooncake/v", SOON), 0);
    put_text(store, "odd \"key\"\\\n%", "x", 0);
    check_value(store, "odd \"key\"\\\n%", "x");
}

static void too_large_names_the_option(void **state)
{
    static const size_t sizes[] = {1600000, 8000000};
    char *data = calloc(1, 8000000);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++)
        check_error(store->ops->put(store, "big", data, sizes[i], 0, SOON), TE_ERR_TOO_LARGE,
                    "--max-request-bytes");
    free(data);
    put_text(store, "small", "after it", 0);
}

static int count_key(void *arg, const char *key)
{
    size_t *n = arg;

    assert_int_equal(strncmp(key, "list/", 5), 0);
    (*n)++;
    return 0;
}

static int stop_at_once(void *arg, const char *key)
{
    (void)arg, (void)key;
    return 7;
}

static void keys_are_listed(void **state)
{
    char key[32];
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "list/%d", i);
        put_text(store, key, "x", 0);
    }
    put_text(store, "lisu", "next to them", 0);
    assert_int_equal(store->ops->list(store, "list/", SOON, count_key, &n), 0);
    assert_int_equal(n, 50);
    assert_int_equal(store->ops->list(store, "list/", SOON, stop_at_once, NULL), 7);
    n = 0;
    assert_int_equal(store->ops->list(store, "list/none/", SOON, count_key, &n), 0);
    assert_int_equal(n, 0);
}

/* --------------------------------------------------------------------------------------- leases */

static bool is_absent(struct tei_store *s, const char *key)
{
    struct tei_bytes b;
    int rc = s->ops->get(s, key, SOON, &b, NULL);

    if (rc == 0)
        tei_bytes_fini(&b);
    return rc == TE_ERR_NOT_FOUND;
}

#define TTL_S 5

static void leases(void **state)
{
    static const char *const keys[] = {"lease/a", "lease/b"};
    struct tei_store *other = open_at("etcd://127.0.0.1:%u", etcd.port);

    (void)state;
    assert_int_equal(store->ops->keep(store, keys, 2, 1, SOON), TE_ERR_NOT_FOUND);
    put_text(store, keys[0], "1", TTL_S);
    put_text(store, keys[1], "2", TTL_S);
    put_text(store, "stays", "3", 0);
    for (int i = 0; i < 2 * TTL_S; i++) { /* longer than the lease */
        assert_int_equal(store->ops->keep(store, keys, 2, TTL_S, SOON), 0);
        usleep(600000);
    }
    check_value(other, keys[1], "2");
    put_text(other, keys[1], "of another", TTL_S);
    assert_int_equal(store->ops->keep(store, keys, 2, TTL_S, SOON), TE_ERR_NOT_FOUND);
    put_text(store, keys[1], "ours again", TTL_S);
    assert_int_equal(store->ops->keep(store, keys, 2, TTL_S, SOON), 0);
    WAIT_FOR(is_absent(other, keys[0]));
    check_value(other, "stays", "3");
    /* Put with a lease that is gone. */
    put_text(store, keys[0], "4", TTL_S);
    check_value(other, keys[0], "4");
    assert_int_equal(store->ops->keep(store, keys, 1, TTL_S, SOON), 0);
    tei_store_close(other);
}

/* ------------------------------------------------------------------------------------ endpoints */

static void endpoints_are_read(void **state)
{
    static const char *const bad[] = {"etcd://", "etcd:// , ;", "etcd://h:99999", "etcd://h:x,b:1",
                                      "h:1,:2"};
    struct tei_store *s;

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++)
        check_error(tei_store_open(bad[i], &conf, &s), TE_ERR_INVALID, "host:port");
    s = open_at("127.0.0.1:%u", etcd.port);
    put_text(s, "bare", "address", 0);
    tei_store_close(s);
    s = open_at("etcd:// 127.0.0.1:1 ; http://127.0.0.1:%u/ ", etcd.port);
    check_value(s, "bare", "address");
    tei_store_close(s);
}

static void failover(void **state)
{
    struct test_server second = {0};
    struct tei_store *s;
    char conn[100];
    int64_t begin, took, ms = 3000;
    struct tei_bytes b;
    int rc;

    (void)state;
    assert_true(test_etcd_start(&second, 0, "http", NULL));
    snprintf(conn, sizeof conn, "etcd://127.0.0.1:%u,127.0.0.1:%u", (unsigned)second.port,
             (unsigned)etcd.port);
    s = open_store(conn);
    put_text(s, "where", "second", 0);
    put_text(store, "where", "first", 0);
    check_value(s, "where", "second");
    test_server_freeze(&second);
    do { /* it has half of the time; the other half is little for a machine that stalls */
        ms *= 2;
        begin = tei_now_ns();
        rc = s->ops->get(s, "where", tei_deadline_ns(ms), &b, NULL);
        took = tei_now_ns() - begin;
    } while (rc && ms < PATIENCE_MS);
    assert_int_equal(rc, 0);
    assert_string_equal(b.data, "first");
    tei_bytes_fini(&b);
    assert_true(took > 2 * TEI_NS_PER_S);
    /* Then it is known: else each of these took half of PATIENCE_MS, and all more than the test may. */
    for (int i = 0; i < 20; i++)
        check_value(s, "where", "first");
    test_server_thaw(&second);
    test_server_stop(&second);
    check_value(s, "where", "first");
    tei_store_close(s);
}

static void nobody_there(void **state)
{
    int fd;
    struct tei_store *s = open_at("etcd://127.0.0.1:%u", test_dead_port(&fd));
    struct tei_bytes b;

    (void)state;
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "http://127.0.0.1");
    tei_store_close(s);
    tei_fd_close(fd);
    conf.metadata_timeout_ms = 86400000; /* only the deadline of the call ends it */
    s = open_at("etcd://127.0.0.1:%u", etcd.port);
    test_server_freeze(&etcd);
    check_error(s->ops->get(s, "k", tei_deadline_ns(300), &b, NULL), TE_ERR_TIMEOUT,
                "TE_METADATA_TIMEOUT_MS");
    test_server_thaw(&etcd);
    tei_store_close(s);
}

/* ---------------------------------------------------------------------------------------- login */

static void ask_gateway(uint16_t port, const char *path, const char *body)
{
    char command[16384];

    snprintf(command, sizeof command,
             "curl -sS -f -m 60 -o /dev/null -d '%s' http://127.0.0.1:%u/v3/%s", body,
             (unsigned)port, path);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void login(void **state)
{
    struct test_server guarded = {0};
    struct tei_store *s;
    struct tei_bytes b;

    (void)state;
    assert_true(test_etcd_start(&guarded, 0, "http", NULL));
    ask_gateway(guarded.port, "auth/user/add", "{\"name\":\"root\",\"password\":\"top\"}");
    ask_gateway(guarded.port, "auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    ask_gateway(guarded.port, "auth/user/add", "{\"name\":\"joe\",\"password\":\"p@ss\"}");
    s = open_at("etcd://joe:p@ss@127.0.0.1:%u", guarded.port);
    put_text(s, "before", "no login is wanted", 0);
    tei_store_close(s);
    ask_gateway(guarded.port, "auth/enable", "{}");

    s = open_at("etcd://127.0.0.1:%u", guarded.port);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "TE_METADATA_USERNAME");
    tei_store_close(s);
    s = open_at("etcd://root:wrong@127.0.0.1:%u", guarded.port);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "TE_METADATA_PASSWORD");
    assert_null(strstr(te_errmsg(), "wrong"));
    tei_store_close(s);
    s = open_at("etcd://joe:p@ss@127.0.0.1:%u", guarded.port);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "permission denied");
    tei_store_close(s);
    strcpy(conf.metadata_username, "root");
    strcpy(conf.metadata_password, "top");
    s = open_at("127.0.0.1:%u", guarded.port);
    conf.metadata_username[0] = conf.metadata_password[0] = '\0';
    put_text(s, "k", "v", 5);
    check_value(s, "k", "v");
    /* Tokens are of one life of the server. */
    assert_true(test_server_restart(&guarded));
    check_value(s, "k", "v");
    tei_store_close(s);
    test_server_stop(&guarded);
}

/* 100 keys from "many/1000" on, in one transaction. */
static void put_hundred(int first)
{
    char *body = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&body, &len);

    assert_non_null(f);
    for (int i = first; i < first + 100; i++) {
        char key[32], *key64;

        snprintf(key, sizeof key, "many/%d", i);
        key64 = tei_base64_encode(key, strlen(key));
        fprintf(f, "%s{\"request_put\":{\"key\":\"%s\",\"value\":\"eA==\"}}",
                i == first ? "{\"success\":[" : ",", key64);
        free(key64);
    }
    fprintf(f, "]}");
    fclose(f);
    ask_gateway(etcd.port, "kv/txn", body);
    free(body);
}

static int note_key(void *arg, const char *key)
{
    unsigned char *seen = arg;
    int i;

    assert_int_equal(sscanf(key, "many/%d", &i), 1);
    assert_in_range(i, 1000, 3399);
    seen[i - 1000]++;
    return 0;
}

/* A list of several pages has each key once. */
static void long_lists(void **state)
{
    unsigned char seen[2400] = {0};

    (void)state;
    for (int i = 1000; i < 3400; i += 100)
        put_hundred(i);
    put_text(store, "manz", "next to them", 0);
    assert_int_equal(store->ops->list(store, "many/", SOON, note_key, seen), 0);
    for (size_t i = 0; i < sizeof seen; i++)
        assert_int_equal(seen[i], 1);
}

/* ------------------------------------------------------------------------------------- watching */

struct watcher {
    struct tei_store *store;
    struct tei_watched keys[3];
    _Atomic int seen[3];
    pthread_t thread;
    int rc;
};

static void on_change(void *arg, size_t i)
{
    struct watcher *w = arg;

    atomic_fetch_add(&w->seen[i], 1);
}

static void *watch_main(void *arg)
{
    struct watcher *w = arg;

    w->rc = w->store->ops->watch(w->store, w->keys, 3, on_change, w);
    return NULL;
}

/* Watches from the present state of "w/0" to "w/2" on. */
static void start_watch(struct watcher *w, struct tei_store *s)
{
    static char names[3][8] = {"w/0", "w/1", "w/2"};
    struct tei_bytes b;

    w->store = s;
    for (int i = 0; i < 3; i++) {
        w->keys[i].key = names[i];
        put_text(s, names[i], "before", 0);
        assert_int_equal(s->ops->get(s, names[i], SOON, &b, &w->keys[i].revision), 0);
        tei_bytes_fini(&b);
        atomic_store(&w->seen[i], 0);
    }
    assert_int_equal(tei_thread_start(&w->thread, "watch", watch_main, w), 0);
}

static void stop_watch(struct watcher *w, int want)
{
    w->store->ops->wake(w->store);
    pthread_join(w->thread, NULL);
    assert_int_equal(w->rc, want);
}

static void changes_are_told(void **state)
{
    struct watcher w = {0};
    char *big = malloc(1200001);

    (void)state;
    start_watch(&w, store);
    put_text(store, "w/1", "between get and watch, perhaps", 0);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 1);
    assert_non_null(big);
    memset(big, 'x', 1200000);
    big[1200000] = '\0';
    for (int i = 0; i < 5; i++) {
        int had = atomic_load(&w.seen[2]);

        put_text(store, "w/2", big, 0);
        WAIT_FOR(atomic_load(&w.seen[2]) >= had + 1);
    }
    free(big);
    assert_int_equal(store->ops->del(store, "w/0", SOON), 0);
    put_text(store, "w/3", "not watched", 0);
    put_text(store, "w/0", "is back", 0);
    WAIT_FOR(atomic_load(&w.seen[0]) >= 1);
    stop_watch(&w, 0);
    assert_int_equal(atomic_load(&w.seen[1]), 1);
    /* The next one goes on where this one ended. */
    put_text(store, "w/1", "meanwhile", 0);
    atomic_store(&w.seen[0], 0);
    atomic_store(&w.seen[1], 0);
    assert_int_equal(tei_thread_start(&w.thread, "watch", watch_main, &w), 0);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 1);
    stop_watch(&w, 0);
    assert_int_equal(atomic_load(&w.seen[0]), 0);
}

/* More at once than is read: what has changed is found by asking. */
static void changes_that_are_too_large(void **state)
{
    const size_t large = 400000;
    struct watcher w = {0};
    char *big = malloc(large + 1);
    struct tei_store *s;

    (void)state;
    assert_non_null(big);
    memset(big, 'x', large);
    big[large] = '\0';
    conf.metadata_max_value = 65536;
    s = open_at("etcd://127.0.0.1:%u", etcd.port);
    start_watch(&w, s);
    put_text(store, "w/1", "small", 0);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 1);
    conf.metadata_max_value = 16 << 20; /* of the one who puts it */
    put_text(store, "w/2", big, 0);
    WAIT_FOR(atomic_load(&w.seen[2]) >= 1);
    put_text(store, "w/0", "small", 0);
    WAIT_FOR(atomic_load(&w.seen[0]) >= 1);
    stop_watch(&w, 0);
    tei_store_close(s);
    free(big);
}

static void compacted_history(void **state)
{
    struct watcher w = {0};
    struct tei_bytes b;
    int64_t now;
    char body[64];

    (void)state;
    start_watch(&w, store);
    stop_watch(&w, 0);
    for (int i = 0; i < 3; i++)
        put_text(store, "w/1", "again", 0);
    assert_int_equal(store->ops->get(store, "w/1", SOON, &b, &now), 0);
    tei_bytes_fini(&b);
    snprintf(body, sizeof body, "{\"revision\":\"%lld\",\"physical\":true}", (long long)now);
    ask_gateway(etcd.port, "kv/compaction", body);
    assert_int_equal(tei_thread_start(&w.thread, "watch", watch_main, &w), 0);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 1);
    put_text(store, "w/0", "after it", 0);
    WAIT_FOR(atomic_load(&w.seen[0]) >= 2);
    stop_watch(&w, 0);
}

static void server_started_empty(void **state)
{
    struct test_server own = {0};
    struct watcher w = {0};
    struct tei_store *s;
    uint16_t port;

    (void)state;
    assert_true(test_etcd_start(&own, 0, "http", NULL));
    port = own.port;
    s = open_at("etcd://127.0.0.1:%u", port);
    for (int i = 0; i < 20; i++)
        put_text(s, "w/2", "history", 0);
    start_watch(&w, s);
    test_server_stop(&own);
    pthread_join(w.thread, NULL);
    assert_true(w.rc < 0);
    assert_true(test_etcd_start(&own, port, "http", NULL));
    assert_int_equal(tei_thread_start(&w.thread, "watch", watch_main, &w), 0);
    for (int i = 0; i < 3; i++)
        WAIT_FOR(atomic_load(&w.seen[i]) >= 1);
    put_text(s, "w/1", "new", 0);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 2);
    stop_watch(&w, 0);
    tei_store_close(s);
    test_server_stop(&own);
}

/* ------------------------------------------------------------------------------------------ TLS */

/* A certificate for 127.0.0.1 that is its own authority: DIR/cert.pem and DIR/key.pem. */
static void make_certificate(const char *dir)
{
    char command[512];

    snprintf(command, sizeof command,
             "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
             "-addext subjectAltName=IP:127.0.0.1 -keyout %s/key.pem -out %s/cert.pem 2>%s/log",
             dir, dir, dir);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static bool start_tls(struct test_server *s, const char *dir)
{
    char cert[64], key[64];
    const char *more[] = {"--cert-file",       cert, "--key-file",         key,
                          "--trusted-ca-file", cert, "--client-cert-auth", NULL};

    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    return test_etcd_start(s, 0, "https", more);
}

static void tls(void **state)
{
    char dir[] = "/tmp/te-test-tls-XXXXXX", command[64];
    struct test_server guarded = {0};
    struct watcher w = {0};
    struct tei_store *s;
    struct tei_bytes b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    make_certificate(dir);
    assert_true(start_tls(&guarded, dir));
    s = open_at("etcds://127.0.0.1:%u", guarded.port);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "certificate");
    snprintf(conf.metadata_ca, sizeof conf.metadata_ca, "%s/cert.pem", dir);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "");
    snprintf(conf.metadata_cert, sizeof conf.metadata_cert, "%s/cert.pem", dir);
    snprintf(conf.metadata_key, sizeof conf.metadata_key, "%s/key.pem", dir);
    start_watch(&w, s);
    put_text(s, "w/1", "over TLS", 5);
    WAIT_FOR(atomic_load(&w.seen[1]) >= 1);
    stop_watch(&w, 0);
    tei_store_close(s);
    strcpy(conf.metadata_ca, "/nonexistent/ca.pem");
    s = open_at("etcd://https://127.0.0.1:%u", guarded.port);
    check_error(s->ops->get(s, "k", SOON, &b, NULL), TE_ERR_METADATA, "/nonexistent/ca.pem");
    tei_store_close(s);
    conf.metadata_ca[0] = conf.metadata_cert[0] = conf.metadata_key[0] = '\0';
    test_server_stop(&guarded);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* -------------------------------------------------------------------------------- odd servers */

/*
 * A server that sends `reply` to whatever comes, or, with a NULL, passes all on but watches. Before,
 * `elections` times, it says that it has no leader.
 */
struct odd_server {
    const char *reply;
    _Atomic int elections;
    int listen_fd;
    uint16_t port;
    pthread_t thread;
    _Atomic bool stop;
};

#define NO_LEADER                                                   \
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n" \
    "{\"error\":\"etcdserver: leader changed\",\"code\":14,\"message\":\"etcdserver: leader changed\"}"

static void pass_on(int from, int to)
{
    struct pollfd fds[] = {{.fd = from, .events = POLLIN}, {.fd = to, .events = POLLIN}};
    char buf[65536];

    while (poll(fds, 2, PATIENCE_MS) > 0) {
        for (int i = 0; i < 2; i++) {
            ssize_t n = fds[i].revents ? read(fds[i].fd, buf, sizeof buf) : -2;

            if (n == 0 || n == -1 || (n > 0 && write(fds[!i].fd, buf, (size_t)n) != n))
                return;
        }
    }
}

static void *serve_one(void *arg)
{
    int *fds = arg;

    pass_on(fds[0], fds[1]);
    close(fds[0]);
    close(fds[1]);
    free(fds);
    return NULL;
}

/* To etcd, unless it is a watch. */
static void serve_proxy(int fd)
{
    static const char none[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    char head[64];
    pthread_t thread;
    int *fds;

    if (recv(fd, head, sizeof head, MSG_PEEK) > 15 && memmem(head, sizeof head, "/v3/watch", 9)) {
        assert_int_equal(write(fd, none, sizeof none - 1), sizeof none - 1);
        shutdown(fd, SHUT_WR);
        while (read(fd, head, sizeof head) > 0)
            continue;
        close(fd);
        return;
    }
    fds = malloc(2 * sizeof *fds);
    assert_non_null(fds);
    fds[0] = fd;
    fds[1] = tei_connect("127.0.0.1", etcd.port, NULL, SOON);
    assert_true(fds[1] >= 0);
    assert_int_equal(pthread_create(&thread, NULL, serve_one, fds), 0);
    pthread_detach(thread);
}

static void serve_reply(int fd, const char *reply)
{
    char head[4096];

    if (read(fd, head, sizeof head) > 0)
        (void)tei_write_full(fd, reply, strlen(reply), SOON); /* who has enough hangs up */
    close(fd);
}

static void *odd_main(void *arg)
{
    struct odd_server *o = arg;
    struct pollfd pfd = {.fd = o->listen_fd, .events = POLLIN};

    while (!atomic_load(&o->stop)) {
        int fd = poll(&pfd, 1, 50) > 0 ? accept(o->listen_fd, NULL, NULL) : -1;

        if (fd >= 0 && atomic_load(&o->elections)) {
            atomic_fetch_sub(&o->elections, 1);
            serve_reply(fd, NO_LEADER);
        } else if (fd >= 0 && o->reply)
            serve_reply(fd, o->reply);
        else if (fd >= 0)
            serve_proxy(fd);
    }
    return NULL;
}

static void start_odd(struct odd_server *o, const char *reply)
{
    memset(o, 0, sizeof *o);
    o->reply = reply;
    o->listen_fd = tei_listen("127.0.0.1", &o->port, 16);
    assert_true(o->listen_fd >= 0);
    assert_int_equal(tei_thread_start(&o->thread, "odd", odd_main, o), 0);
}

static void stop_odd(struct odd_server *o)
{
    atomic_store(&o->stop, true);
    pthread_join(o->thread, NULL);
    tei_fd_close(o->listen_fd);
}

static void polling_behind_a_proxy(void **state)
{
    struct odd_server proxy;
    struct watcher w = {0};
    struct tei_store *s;

    (void)state;
    start_odd(&proxy, NULL);
    s = open_at("etcd://127.0.0.1:%u", proxy.port);
    start_watch(&w, s);
    for (int i = 0; i < 3; i++) {
        int had = atomic_load(&w.seen[1]);

        do { /* once more, should the first have come before the first look at the revisions */
            put_text(store, "w/1", "seen by polling", 0);
            for (int k = 0; k < 3000 && atomic_load(&w.seen[1]) == had; k++)
                usleep(1000);
        } while (atomic_load(&w.seen[1]) == had);
    }
    stop_watch(&w, 0);
    tei_store_close(s);
    stop_odd(&proxy);
}

/* While a leader is elected calls wait, as long as they may. */
static void elections_are_waited_for(void **state)
{
    struct odd_server odd;
    struct tei_store *s;
    struct tei_bytes b;
    int rc = TE_ERR_TIMEOUT;

    (void)state;
    start_odd(&odd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"kvs\":[{\"value\":\"YQ==\"}]}");
    s = open_at("etcd://127.0.0.1:%u", odd.port);
    atomic_store(&odd.elections, 3);
    check_value(s, "k", "a");
    assert_int_equal(atomic_load(&odd.elections), 0);
    atomic_store(&odd.elections, 1000000);
    /* Its time may end while it waits for one more answer of a server that does not run. */
    for (int ms = 2000; rc == TE_ERR_TIMEOUT && ms < PATIENCE_MS; ms *= 2)
        rc = s->ops->get(s, "k", tei_deadline_ns(ms), &b, NULL);
    check_error(rc, TE_ERR_METADATA, "leader changed");
    assert_true(atomic_load(&odd.elections) < 1000000);
    tei_store_close(s);
    /* the last one asked is the leader that died */
    s = open_at("etcd://127.0.0.1:%u,127.0.0.1:1", odd.port);
    atomic_store(&odd.elections, 3);
    check_value(s, "k", "a");
    assert_int_equal(atomic_load(&odd.elections), 0);
    tei_store_close(s);
    stop_odd(&odd);
}

#define OK_HEAD "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

static void hostile_answers(void **state)
{
    static const struct {
        const char *reply, *says;
        int want;
    } cases[] = {
        {"garbage\r\n\r\n", "", TE_ERR_METADATA},
        {OK_HEAD "no json", "JSON", TE_ERR_METADATA},
        {OK_HEAD "[1,2]", "JSON", TE_ERR_METADATA},
        {OK_HEAD "{}", "no key", TE_ERR_NOT_FOUND},
        {OK_HEAD "{\"kvs\":7}", "no key", TE_ERR_NOT_FOUND},
        {OK_HEAD "{\"kvs\":[{\"value\":\"@@@@\"}]}", "base64", TE_ERR_METADATA},
        {OK_HEAD "{\"kvs\":[{\"value\":\"YQ=\"}]}", "base64", TE_ERR_METADATA},
        {OK_HEAD "{\"kvs\":[{\"value\":\"Y===\"}]}", "base64", TE_ERR_METADATA},
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", "3.4", TE_ERR_METADATA},
        {"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nnope", "500", TE_ERR_METADATA},
        {"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nnope", "", TE_ERR_METADATA},
    };

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        struct odd_server odd;
        struct tei_store *s;
        struct tei_bytes b;

        start_odd(&odd, cases[i].reply);
        s = open_at("etcd://127.0.0.1:%u", odd.port);
        check_error(s->ops->get(s, "k", SOON, &b, NULL), cases[i].want, cases[i].says);
        assert_int_not_equal(s->ops->put(s, "k", "v", 1, 5, SOON), cases[i].want == 0);
        tei_store_close(s);
        stop_odd(&odd);
    }
}

static void hostile_watches(void **state)
{
    static const char *const replies[] = {
        OK_HEAD "no json\n",
        OK_HEAD "{\"result\":{\"watch_id\":\"99\",\"created\":true}}\n{}\n",
        OK_HEAD "{\"result\":{\"watch_id\":\"1\",\"canceled\":true,\"cancel_reason\":\"no\"}}\n",
        OK_HEAD "{\"result\":{\"watch_id\":\"-1\",\"events\":[{\"kv\":{}}]}}\n[]\n",
        OK_HEAD "{\"error\":{\"message\":\"permission denied\"}}\n",
    };

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(replies); i++) {
        struct odd_server odd;
        struct watcher w = {0};

        start_watch(&w, store); /* for the keys */
        stop_watch(&w, 0);
        start_odd(&odd, replies[i]);
        w.store = open_at("etcd://127.0.0.1:%u", odd.port);
        watch_main(&w);
        assert_int_equal(w.rc, TE_ERR_METADATA);
        tei_store_close(w.store);
        stop_odd(&odd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(too_large_names_the_option),
        cmocka_unit_test(keys_are_listed),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(leases),
        cmocka_unit_test(endpoints_are_read),
        cmocka_unit_test(failover),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(login),
        cmocka_unit_test(changes_are_told),
        cmocka_unit_test(changes_that_are_too_large),
        cmocka_unit_test(compacted_history),
        cmocka_unit_test(server_started_empty),
        cmocka_unit_test(polling_behind_a_proxy),
        cmocka_unit_test(tls),
        cmocka_unit_test(elections_are_waited_for),
        cmocka_unit_test(hostile_answers),
        cmocka_unit_test(hostile_watches),
    };
    int rc;

    if (!test_program_found("etcd") || !test_program_found("curl")) {
        printf("etcd or curl is missing (Debian: etcd-server, curl)\n");
        return 77;
    }
    if (!test_etcd_start(&etcd, 0, "http", NULL))
        return 1;
    rc = cmocka_run_group_tests(tests, setup, teardown);
    test_server_stop(&etcd);
    return rc;
}
