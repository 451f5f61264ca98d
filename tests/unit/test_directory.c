/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of both kinds against a small engine: a handshake port on loopback that serves a
 * segment, in pages or not, and lies on demand.
 */
#include "meta/meta.h"
#include "test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "http_kv.h"
#include "segment_text.h"
#include "patience.h"

#define BUFFERS_MAX 1000

static struct tei_conf conf;

/* ---- a small engine */

struct engine {
    struct tei_loop loop;
    struct tei_rpc_server *server;
    struct tei_hostport addr;
    char name[TEI_HOSTPORT_MAX];
    struct tei_published buffers[BUFFERS_MAX];
    size_t n_buffers;
    _Atomic uint64_t version;
    _Atomic unsigned requests;
    /* Lies. */
    bool knows_no_pages;
    _Atomic unsigned changes; /* so many requests from now on change the version */
    const char *says;         /* this to everything */
};

static struct engine engine;

static void reply_segment(struct engine *e, struct tei_rpc_call *call, const char *body, size_t len)
{
    struct tei_encode enc = {.name = e->name,
                             .incarnation = e->knows_no_pages ? 0 : 77,
                             .version = atomic_load(&e->version),
                             .buffers = e->buffers,
                             .n_buffers = e->n_buffers,
                             .base = json_pack("{s:s}", "protocol", "tcp")};
    char *text = NULL;
    size_t n = 0, from = 0, max_bytes = 0;

    if (!e->knows_no_pages)
        tei_page_request_decode(body, len, &from, &max_bytes);
    if (!segment_page(&enc, from, max_bytes, &text, &n))
        tei_rpc_reply(call, text, n);
    else
        tei_rpc_reply(call, "null", 4);
    free(text);
    json_decref(enc.base);
}

static void serve(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                  size_t len)
{
    struct engine *e = arg;

    atomic_fetch_add(&e->requests, 1);
    if (e->says || type != TEI_RPC_METADATA) {
        tei_rpc_reply(call, e->says ? e->says : "", e->says ? strlen(e->says) : 0);
        return;
    }
    reply_segment(e, call, body, len);
    if (atomic_load(&e->changes)) {
        atomic_fetch_sub(&e->changes, 1);
        atomic_fetch_add(&e->version, 1);
    }
}

static void start_engine(struct engine *e, const char *name, size_t n_buffers)
{
    int fd;

    memset(e, 0, sizeof *e);
    strcpy(e->addr.host, "127.0.0.1");
    fd = tei_listen(e->addr.host, &e->addr.port, 16);
    assert_true(fd >= 0);
    if (name)
        strcpy(e->name, name);
    else
        tei_hostport_format(e->addr.host, e->addr.port, e->name, sizeof e->name);
    for (size_t i = 0; i < n_buffers; i++)
        e->buffers[i] = (struct tei_published){.addr = 4096 + 8192 * i,
                                               .length = 4096,
                                               .access = i % 2 ? TE_REMOTE_RW : TE_REMOTE_READ};
    e->n_buffers = n_buffers;
    atomic_init(&e->version, 1);
    assert_int_equal(tei_loop_init(&e->loop, NULL), 0);
    assert_int_equal(tei_rpc_server_open(&e->loop, fd, &conf,
                                         &(struct tei_rpc_service){.handler = serve, .arg = e},
                                         &e->server),
                     0);
    assert_int_equal(tei_loop_start(&e->loop, "engine"), 0);
}

static void stop_engine(struct engine *e)
{
    tei_loop_join(&e->loop);
    tei_rpc_server_close(e->server);
    tei_loop_fini(&e->loop);
}

/* ---- shared by both kinds */

static struct tei_directory *dir;

static int set_conf(void)
{
    conf = (struct tei_conf){.handshake_max_length = (size_t)1 << 20,
                             .handshake_port = 12001,
                             .handshake_connect_timeout_s = 5,
                             .descriptor_max_bytes = (size_t)1 << 20,
                             .descriptor_max_buffers = 10000,
                             .metadata_timeout_ms = PATIENCE_MS,
                             .metadata_max_value = 4096 * 4};
    return 0;
}

static void check_error(int rc, int want, const char *says)
{
    if (rc != want || !strstr(te_errmsg(), says))
        fail_msg("%d: %s", rc, te_errmsg());
}

/* Looks up and checks that all the engine's buffers are there. */
static struct tei_segment *check_lookup(const char *name, const struct tei_segment *old,
                                        const struct engine *e)
{
    struct tei_hostport where;
    struct tei_segment *s = NULL;

    if (dir->ops->lookup(dir, name, old, &s, &where, NULL))
        fail_msg("%s", te_errmsg());
    assert_string_equal(s->name, e->name);
    assert_string_equal(where.host, e->addr.host);
    assert_int_equal(where.port, e->addr.port);
    assert_int_equal(s->n_buffers, e->n_buffers);
    for (size_t i = 0; i < s->n_buffers; i++) {
        assert_int_equal(s->buffers[i].addr, e->buffers[i].addr);
        assert_int_equal(s->buffers[i].index, i);
        if (s->incarnation)
            assert_int_equal(s->buffers[i].access, e->buffers[i].access);
    }
    return s;
}

static void check_lookup_fails(const char *name, int want, const char *says)
{
    struct tei_segment *s = NULL;
    struct tei_hostport where;

    check_error(dir->ops->lookup(dir, name, NULL, &s, &where, NULL), want, says);
    assert_null(s);
}

/* ---- the peer itself */

static int open_peer(void **state)
{
    (void)state;
    set_conf();
    return tei_directory_open("P2PHANDSHAKE", &conf, &dir);
}

static int close_dir(void **state)
{
    (void)state;
    dir->ops->close(dir);
    return 0;
}

TEST(test_peer_names)
{
    struct tei_hostport v4 = {.host = "10.0.0.2", .port = 15001},
                        v6 = {.host = "fe80::1", .port = 15002}, out;
    char name[64];

    assert_int_equal(dir->ops->own_name(dir, "whatever", &v4, name, sizeof name), 0);
    assert_string_equal(name, "10.0.0.2:15001");
    assert_int_equal(dir->ops->own_name(dir, NULL, &v6, name, sizeof name), 0);
    assert_string_equal(name, "[fe80::1]:15002");
    assert_int_equal(dir->ops->own_name(dir, NULL, &v4, name, 5), TE_ERR_INVALID);
    assert_int_equal(dir->ops->rpc_addr(dir, "[fe80::1]:15002", true, &out), 0);
    assert_string_equal(out.host, "fe80::1");
    assert_int_equal(out.port, 15002);
    assert_int_equal(dir->ops->rpc_addr(dir, "h", false, &out), 0);
    assert_int_equal(out.port, 12001);
    assert_int_equal(dir->ops->rpc_addr(dir, "h:x", false, &out), TE_ERR_INVALID);
    check_lookup_fails("a b:1", TE_ERR_INVALID, "a b");
}

TEST(test_peer_stores_nothing)
{
    struct tei_hostport addr = {.host = "h", .port = 1};
    char host[64];

    assert_false(dir->ops->stores);
    assert_false(dir->ops->route_hint(dir, host, sizeof host));
    assert_int_equal(dir->ops->announce(dir, "h:1", &addr), 0);
    assert_int_equal(dir->ops->publish(dir, "h:1", "{}", 2), 0);
    assert_int_equal(dir->ops->withdraw(dir, "h:1"), 0);
}

TEST(test_peer_lookup)
{
    static const size_t sizes[] = {0, 1, 1000};

    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++) {
        start_engine(&engine, NULL, sizes[i]);
        tei_segment_put(check_lookup(engine.name, NULL, &engine));
        assert_int_equal(atomic_load(&engine.requests), 1);
        stop_engine(&engine);
    }
}

TEST(test_peer_that_knows_no_pages)
{
    start_engine(&engine, NULL, 500);
    engine.knows_no_pages = true;
    tei_segment_put(check_lookup(engine.name, NULL, &engine));
    stop_engine(&engine);
}

TEST(test_peer_pages)
{
    start_engine(&engine, NULL, BUFFERS_MAX);
    for (conf.handshake_max_length = 600; conf.handshake_max_length < 40000;
         conf.handshake_max_length *= 5) {
        atomic_store(&engine.requests, 0);
        tei_segment_put(check_lookup(engine.name, NULL, &engine));
        assert_true(atomic_load(&engine.requests) > 1);
    }
    stop_engine(&engine);
}

TEST(test_peer_changes_between_pages)
{
    conf.handshake_max_length = 16384;
    start_engine(&engine, NULL, BUFFERS_MAX);
    atomic_store(&engine.changes, 3);
    tei_segment_put(check_lookup(engine.name, NULL, &engine));
    atomic_store(&engine.changes, 1000);
    atomic_store(&engine.requests, 0);
    check_lookup_fails(engine.name, TE_ERR_METADATA, "changes faster");
    assert_int_equal(atomic_load(&engine.requests), 12);
    stop_engine(&engine);
}

TEST(test_peer_too_large)
{
    start_engine(&engine, NULL, BUFFERS_MAX);
    engine.knows_no_pages = true;
    conf.handshake_max_length = 10000;
    check_lookup_fails(engine.name, TE_ERR_TOO_LARGE, "MC_HANDSHAKE_MAX_LENGTH");
    stop_engine(&engine);
}

/* All pages count together; the first one tells how many buffers there are. */
TEST(test_peer_limits)
{
    start_engine(&engine, NULL, BUFFERS_MAX);
    conf.handshake_max_length = 16384;
    tei_segment_put(check_lookup(engine.name, NULL, &engine));
    assert_true(atomic_load(&engine.requests) > 3);
    conf.descriptor_max_bytes = 32768;
    check_lookup_fails(engine.name, TE_ERR_TOO_LARGE, "TE_DESCRIPTOR_MAX_BYTES");
    conf.descriptor_max_bytes = (size_t)1 << 20;
    conf.descriptor_max_buffers = BUFFERS_MAX;
    tei_segment_put(check_lookup(engine.name, NULL, &engine));
    conf.descriptor_max_buffers = BUFFERS_MAX - 1;
    atomic_store(&engine.requests, 0);
    check_lookup_fails(engine.name, TE_ERR_TOO_LARGE, "TE_DESCRIPTOR_MAX_BUFFERS");
    assert_int_equal(atomic_load(&engine.requests), 1);
    /* Of an engine that knows no pages they are counted as they come. */
    engine.knows_no_pages = true;
    conf.handshake_max_length = (size_t)1 << 20;
    check_lookup_fails(engine.name, TE_ERR_TOO_LARGE, "TE_DESCRIPTOR_MAX_BUFFERS");
    stop_engine(&engine);
}

#define PAGE(buffers, page)                                                                   \
    "{\"buffers\":[" buffers "],\"name\":\"x\",\"protocol\":\"tcp\",\"te\":{\"incarnation\":" \
    "\"00000000000000ff\",\"version\":1,\"page\":" page "}}"
#define BUFFER "{\"addr\":1,\"length\":1,\"name\":\"x\"}"

TEST(test_peer_that_lies)
{
    static const struct {
        const char *says;
        int want;
    } lies[] = {
        {"null", TE_ERR_METADATA},
        {"", TE_ERR_JSON},
        {"[1]", TE_ERR_JSON},
        {"{}", TE_ERR_JSON},
        {PAGE(BUFFER, "{\"from\":0,\"count\":1,\"total\":2}"), TE_ERR_PROTOCOL},
        {PAGE(BUFFER, "{\"from\":1,\"count\":1,\"total\":2}"), TE_ERR_PROTOCOL},
        {PAGE("", "{\"from\":0,\"count\":0,\"total\":2}"), TE_ERR_PROTOCOL},
        {PAGE(BUFFER, "{\"from\":0,\"count\":2,\"total\":2}"), TE_ERR_JSON},
        {PAGE(BUFFER, "{\"from\":0,\"count\":1,\"total\":1099511627776}"), TE_ERR_TOO_LARGE},
    };

    start_engine(&engine, NULL, 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(lies); i++) {
        engine.says = lies[i].says;
        check_lookup_fails(engine.name, lies[i].want, "");
    }
    stop_engine(&engine);
    check_lookup_fails(engine.name, TE_ERR_PEER, engine.name);
}

/* ---- a store */

static struct http_kv kv;

static int open_store(void **state)
{
    (void)state;
    set_conf();
    assert_true(http_kv_start(&kv));
    return tei_directory_open(kv.url, &conf, &dir);
}

static int close_store(void **state)
{
    close_dir(state);
    http_kv_stop(&kv);
    return 0;
}

static void check_key(const char *key, const char *want)
{
    char *value = http_kv_get(&kv, key);

    if (want) {
        assert_non_null(value);
        assert_string_equal(value, want);
    } else {
        assert_null(value);
    }
    free(value);
}

/* What an engine does that starts: it announces itself and publishes. */
static void publish(const struct engine *e)
{
    struct tei_encode enc = {.name = e->name,
                             .incarnation = e->knows_no_pages ? 0 : 77,
                             .version = 1,
                             .buffers = e->buffers,
                             .n_buffers = e->n_buffers,
                             .base = json_pack("{s:s}", "protocol", "tcp")};
    char *text;
    size_t len;

    assert_int_equal(segment_text(&enc, &text, &len), 0);
    assert_int_equal(dir->ops->announce(dir, e->name, &e->addr), 0);
    assert_int_equal(dir->ops->publish(dir, e->name, text, len), 0);
    free(text);
    json_decref(enc.base);
}

TEST(test_store_keys)
{
    struct tei_hostport addr = {.host = "10.0.0.2", .port = 15321}, out;

    assert_true(dir->ops->stores);
    assert_int_equal(dir->ops->announce(dir, "node-a", &addr), 0);
    check_key("mooncake/rpc_meta/node-a", "{\"ip_or_host_name\":\"10.0.0.2\",\"rpc_port\":15321}");
    assert_int_equal(dir->ops->publish(dir, "node-a", "{\"x\":1}", 7), 0);
    check_key("mooncake/ram/node-a", "{\"x\":1}");
    assert_int_equal(dir->ops->publish(dir, "nvmeof/disk", "{}", 2), 0);
    check_key("mooncake/nvmeof/disk", "{}");
    assert_int_equal(dir->ops->rpc_addr(dir, "node-a", true, &out), 0);
    assert_string_equal(out.host, "10.0.0.2");
    assert_int_equal(out.port, 15321);
    assert_int_equal(dir->ops->withdraw(dir, "node-a"), 0);
    check_key("mooncake/rpc_meta/node-a", NULL);
    check_key("mooncake/ram/node-a", NULL);
    assert_int_equal(dir->ops->withdraw(dir, "node-a"), 0);
}

static void check_prefix(const char *cluster, const char *key)
{
    struct tei_conf other = conf;
    struct tei_directory *d;

    snprintf(other.cluster_id, sizeof other.cluster_id, "%s", cluster);
    assert_int_equal(tei_directory_open(kv.url, &other, &d), 0);
    assert_int_equal(d->ops->publish(d, "n", "{}", 2), 0);
    check_key(key, "{}");
    d->ops->close(d);
}

TEST(test_store_cluster_prefix)
{
    check_prefix("blue", "mooncake/blue/ram/n");
    check_prefix("red/", "mooncake/red/ram/n");
    check_prefix("a/b", "mooncake/a/b/ram/n");
}

TEST(test_store_own_name)
{
    struct tei_hostport addr = {.host = "10.0.0.2", .port = 15321};
    char name[TEI_HOST_MAX], host[TEI_HOST_MAX] = "";

    assert_int_equal(dir->ops->own_name(dir, "10.0.0.9:77", &addr, name, sizeof name), 0);
    assert_string_equal(name, "10.0.0.9:77");
    gethostname(host, sizeof host - 1);
    assert_int_equal(dir->ops->own_name(dir, NULL, &addr, name, sizeof name), 0);
    assert_string_equal(name, host);
    assert_int_equal(dir->ops->own_name(dir, "", &addr, name, sizeof name), 0);
    assert_string_equal(name, host);
    check_error(dir->ops->own_name(dir, "a/b", &addr, name, sizeof name), TE_ERR_INVALID, "a/b");
    check_error(dir->ops->own_name(dir, "long", &addr, name, 4), TE_ERR_INVALID, "long");
}

static void check_hint(const char *conn, const char *want)
{
    struct tei_directory *d;
    char host[TEI_HOST_MAX] = "";

    assert_int_equal(tei_directory_open(conn, &conf, &d), 0);
    assert_int_equal(d->ops->route_hint(d, host, sizeof host), want != NULL);
    if (want)
        assert_string_equal(host, want);
    assert_false(d->ops->route_hint(d, host, 1));
    d->ops->close(d);
}

TEST(test_store_route_hint)
{
    check_hint("http://10.0.0.1:8080/metadata", "10.0.0.1");
    check_hint("https://meta.example/metadata?x=a@b", "meta.example");
    check_hint("http://user:p%40ss@[fe80::1]:80/", "fe80::1");
    check_hint("http://h", "h");
}

TEST(test_store_lookup)
{
    start_engine(&engine, "node-a", 10);
    check_lookup_fails("node-a", TE_ERR_NOT_FOUND, "mooncake/ram/node-a");
    publish(&engine);
    tei_segment_put(check_lookup("node-a", NULL, &engine));
    assert_int_equal(atomic_load(&engine.requests), 0);
    /* The segment is there, but nobody says where its engine is. */
    http_kv_set(&kv, "mooncake/ram/node-b",
                "{\"buffers\":[" BUFFER "],\"name\":\"node-b\",\"protocol\":\"tcp\"}");
    check_lookup_fails("node-b", TE_ERR_NOT_FOUND, "mooncake/rpc_meta/node-b");
    stop_engine(&engine);
}

/* te_segment registers such a segment; peers may open it before its engine is up. */
TEST(test_store_lookup_before_the_engine)
{
    static const char *const texts[] = {
        "{\"server_name\":\"node-c\",\"protocol\":\"rdma\"}",
        "{\"buffers\":[],\"name\":\"node-c\",\"protocol\":\"tcp\",\"server_name\":\"node-c\","
        "\"tcp_data_port\":0,\"tcp_proto_version\":1}"};
    struct tei_hostport where, addr = {.host = "10.0.0.2", .port = 15321};
    struct tei_segment *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        http_kv_set(&kv, "mooncake/ram/node-c", texts[i]);
        where = addr;
        assert_int_equal(dir->ops->lookup(dir, "node-c", NULL, &s, &where, NULL), 0);
        assert_string_equal(s->name, "node-c");
        assert_int_equal(s->n_buffers, 0);
        assert_string_equal(where.host, "");
        assert_int_equal(where.port, 0);
        tei_segment_put(s);
    }
    check_error(dir->ops->rpc_addr(dir, "node-c", true, &where), TE_ERR_NOT_FOUND, "not up yet");
    http_kv_set(&kv, "mooncake/rpc_meta/node-c", "{}");
    check_lookup_fails("node-c", TE_ERR_JSON, "rpc_meta of node-c");
    assert_int_equal(dir->ops->announce(dir, "node-c", &addr), 0);
    assert_int_equal(dir->ops->lookup(dir, "node-c", NULL, &s, &where, NULL), 0);
    assert_int_equal(where.port, 15321);
    tei_segment_put(s);
}

static void check_name(const char *prefix, const char *key, const char *want)
{
    const char *name = tei_keys_name(prefix, key);

    if (!want)
        assert_null(name);
    else
        assert_string_equal(name, want);
}

TEST(test_names_of_keys)
{
    check_name("mooncake/", "mooncake/ram/x", "x");
    check_name("mooncake/", "mooncake/nvmeof/x", "nvmeof/x");
    check_name("mooncake/", "mooncake/ramp/x", "ramp/x");
    check_name("mooncake/", "mooncake/rpc_meta/x", NULL);
    check_name("mooncake/", "mooncake/blue/ram/x", NULL);
    check_name("mooncake/", "mooncake/blue/rpc_meta/x", NULL);
    check_name("mooncake/", "mooncake/ram/", NULL);
    check_name("mooncake/", "mooncake//x", NULL);
    check_name("mooncake/", "mooncake/x", NULL);
    check_name("mooncake/", "other/ram/x", NULL);
    check_name("mooncake/blue/", "mooncake/blue/ram/x", "x");
    check_name("mooncake/blue/", "mooncake/ram/x", NULL);
    check_name("mooncake/blue/", "mooncake/blue/red/ram/x", NULL);
}

/*
 * Where the engine answers is found under the name in the descriptor, not under the one looked up.
 */
TEST(test_store_lookup_goes_by_the_name_inside)
{
    struct tei_hostport addr = {.host = "10.0.0.2", .port = 15321}, where;
    struct tei_segment *s;

    assert_int_equal(dir->ops->announce(dir, "inside", &addr), 0);
    http_kv_set(&kv, "mooncake/nvmeof/alias", "{\"name\":\"inside\",\"protocol\":\"tcp\"}");
    assert_int_equal(dir->ops->lookup(dir, "nvmeof/alias", NULL, &s, &where, NULL), 0);
    assert_int_equal(where.port, 15321);
    tei_segment_put(s);
}

/* A bare name is that of files only if they were asked for, and no engine is announced under it. */
TEST(test_store_bare_names_of_files)
{
    struct tei_hostport addr = {.host = "10.0.0.2", .port = 15321}, where;
    struct tei_segment *s;

    http_kv_set(&kv, "mooncake/nvmeof/n",
                "{\"name\":\"nvmeof/n\",\"protocol\":\"nvmeof\","
                "\"buffers\":[{\"file_path\":\"/a\",\"length\":1}]}");
    check_lookup_fails("n", TE_ERR_NOT_FOUND, "opened as nvmeof/n");
    dir->bare_files = true;
    assert_int_equal(dir->ops->lookup(dir, "n", NULL, &s, &where, NULL), 0);
    assert_true(s->files);
    tei_segment_put(s);
    assert_int_equal(dir->ops->announce(dir, "n", &addr), 0);
    check_lookup_fails("n", TE_ERR_NOT_FOUND, "an engine is announced as n");
    check_lookup_fails("nobody", TE_ERR_NOT_FOUND, "key mooncake/nvmeof/nobody");
    dir->bare_files = false;
    check_lookup_fails("n", TE_ERR_NOT_FOUND, "opened as nvmeof/n");
    /* An engine's key that holds files is none. */
    http_kv_set(&kv, "mooncake/ram/n",
                "{\"name\":\"n\",\"protocol\":\"nvmeof\","
                "\"buffers\":[{\"file_path\":\"/a\",\"length\":1}]}");
    check_lookup_fails("n", TE_ERR_METADATA, "made of files");
}

TEST(test_store_replaces_keys_of_an_earlier_life)
{
    struct tei_hostport one = {.host = "h", .port = 1}, two = {.host = "h", .port = 2};

    kv.refuse_second_rpc_meta = true;
    assert_int_equal(dir->ops->announce(dir, "n", &one), 0);
    assert_int_equal(dir->ops->announce(dir, "n", &two), 0);
    check_key("mooncake/rpc_meta/n", "{\"ip_or_host_name\":\"h\",\"rpc_port\":2}");
    kv.status = 400;
    kv.body = "no";
    assert_true(dir->ops->announce(dir, "n", &one) < 0);
}

TEST(test_store_leaves_keys_of_a_successor)
{
    struct tei_hostport one = {.host = "h", .port = 1};

    assert_int_equal(dir->ops->announce(dir, "n", &one), 0);
    assert_int_equal(dir->ops->publish(dir, "n", "{}", 2), 0);
    http_kv_set(&kv, "mooncake/rpc_meta/n", "{\"rpc_port\": 2, \"ip_or_host_name\": \"h\"}\n");
    assert_int_equal(dir->ops->withdraw(dir, "n"), 0);
    assert_int_equal(http_kv_count(&kv), 2);
    /* Another text of the same address is no successor. */
    http_kv_set(&kv, "mooncake/rpc_meta/n", "{\"rpc_port\": 1, \"ip_or_host_name\": \"h\"}\n");
    assert_int_equal(dir->ops->withdraw(dir, "n"), 0);
    assert_int_equal(http_kv_count(&kv), 0);
}

/* What the caller has already tells which engine to ask; the server's copy may be old. */
TEST(test_store_asks_the_engine_itself)
{
    struct tei_segment *old, *s;

    start_engine(&engine, "node-a", 10);
    publish(&engine);
    old = check_lookup("node-a", NULL, &engine);
    assert_int_equal(old->incarnation, 77);
    engine.n_buffers = 5;
    s = check_lookup("node-a", old, &engine);
    assert_int_equal(atomic_load(&engine.requests), 1);
    tei_segment_put(s);
    tei_segment_put(old);
    stop_engine(&engine);
}

TEST(test_store_is_asked_about_other_engines)
{
    struct tei_segment *old;

    start_engine(&engine, "node-a", 10);
    engine.knows_no_pages = true;
    publish(&engine);
    old = check_lookup("node-a", NULL, &engine);
    assert_int_equal(old->incarnation, 0);
    tei_segment_put(check_lookup("node-a", old, &engine));
    assert_int_equal(atomic_load(&engine.requests), 0);
    tei_segment_put(old);
    stop_engine(&engine);
}

/*
 * A restarted engine is at another port; one that is gone, or whose port another has, is looked up
 * in the store.
 */
TEST(test_store_follows_a_restart)
{
    static struct engine second, stranger;
    struct tei_segment *old;

    start_engine(&engine, "node-a", 10);
    publish(&engine);
    old = check_lookup("node-a", NULL, &engine);
    stop_engine(&engine);
    tei_segment_put(check_lookup("node-a", old, &engine));
    start_engine(&second, "node-a", 7);
    publish(&second);
    tei_segment_put(check_lookup("node-a", old, &second));
    assert_int_equal(atomic_load(&second.requests), 1);
    start_engine(&stranger, "node-z", 7);
    assert_int_equal(dir->ops->announce(dir, "node-a", &stranger.addr), 0);
    stop_engine(&second);
    second.addr = stranger.addr;
    tei_segment_put(check_lookup("node-a", old, &second));
    assert_int_equal(atomic_load(&stranger.requests), 1);
    stop_engine(&stranger);
    tei_segment_put(old);
}

TEST(test_store_with_bad_values)
{
    static const char *const bad[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"ip_or_host_name\":\"h\"}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":0}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":65536}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":\"1\"}",
        "{\"ip_or_host_name\":\"\",\"rpc_port\":1}",
        "{\"ip_or_host_name\":5,\"rpc_port\":1}",
    };
    struct tei_hostport out;
    char long_host[600], padded[4098];

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        http_kv_set(&kv, "mooncake/rpc_meta/n", bad[i]);
        check_error(dir->ops->rpc_addr(dir, "n", true, &out), TE_ERR_JSON, "rpc_meta of n");
    }
    snprintf(long_host, sizeof long_host, "{\"ip_or_host_name\":\"%0400d\",\"rpc_port\":1}", 0);
    http_kv_set(&kv, "mooncake/rpc_meta/n", long_host);
    check_error(dir->ops->rpc_addr(dir, "n", true, &out), TE_ERR_JSON, "no host");
    snprintf(padded, sizeof padded, "%-4097s", "{\"ip_or_host_name\":\"h\",\"rpc_port\":1}");
    http_kv_set(&kv, "mooncake/rpc_meta/n", padded);
    check_error(dir->ops->rpc_addr(dir, "n", true, &out), TE_ERR_JSON, "at most 4096");
    padded[4096] = '\0';
    http_kv_set(&kv, "mooncake/rpc_meta/n", padded);
    assert_int_equal(dir->ops->rpc_addr(dir, "n", true, &out), 0);
    http_kv_set(&kv, "mooncake/ram/n", "null\n");
    check_lookup_fails("n", TE_ERR_METADATA, "no segment");
}

/* What a server has is bounded as what a peer says. */
TEST(test_store_descriptor_limits)
{
    http_kv_set(&kv, "mooncake/ram/n",
                "{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":[" BUFFER "]}");
    conf.descriptor_max_buffers = 0;
    check_lookup_fails("n", TE_ERR_TOO_LARGE, "TE_DESCRIPTOR_MAX_BUFFERS");
    assert_non_null(strstr(te_errmsg(), "mooncake/ram/n"));
    conf.descriptor_max_bytes = 20;
    check_lookup_fails("n", TE_ERR_TOO_LARGE, "TE_DESCRIPTOR_MAX_BYTES");
}

TEST(test_store_limits_and_failures)
{
    struct tei_hostport one = {.host = "h", .port = 1};
    int before, calls = 0;

    kv.max_value = 10;
    check_error(dir->ops->publish(dir, "n", "{\"long\":\"value\"}", 16), TE_ERR_TOO_LARGE, "413");
    assert_int_equal(dir->ops->publish(dir, "n", "{}", 2), 0);
    assert_int_equal(dir->ops->withdraw(dir, "n"), 0);
    kv.max_value = 0;
    assert_int_equal(dir->ops->announce(dir, "n", &one), 0);
    /* A server that is away is waited for once, not for every key. */
    kv.hang = true;
    before = http_kv_requests(&kv);
    for (int ms = 1000; http_kv_requests(&kv) == before && ms < PATIENCE_MS; ms *= 2) {
        conf.metadata_timeout_ms = ms; /* in which a machine that stalls may not get to ask */
        assert_int_equal(dir->ops->withdraw(dir, "n"), TE_ERR_TIMEOUT);
        calls++;
    }
    WAIT_FOR(http_kv_requests(&kv) > before);
    assert_in_range(http_kv_requests(&kv), before + 1, before + calls);
}

TEST(test_unknown_scheme)
{
    struct tei_directory *d = NULL;

    set_conf();
    check_error(tei_directory_open("gopher://h", &conf, &d), TE_ERR_UNSUPPORTED, "gopher");
    assert_null(d);
#if TE_USE_ETCD /* is meant by an address alone; opening asks nobody */
    assert_int_equal(tei_directory_open("10.0.0.1:2379", &conf, &d), 0);
    d->ops->close(d);
#else
    check_error(tei_directory_open("10.0.0.1:2379", &conf, &d), TE_ERR_UNSUPPORTED, "etcd");
    assert_null(d);
#endif
}

#define PEER(test)  cmocka_unit_test_setup_teardown(test, open_peer, close_dir)
#define STORE(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest peer_tests[] = {
        PEER(test_peer_names),
        PEER(test_peer_stores_nothing),
        PEER(test_peer_lookup),
        PEER(test_peer_that_knows_no_pages),
        PEER(test_peer_pages),
        PEER(test_peer_changes_between_pages),
        PEER(test_peer_too_large),
        PEER(test_peer_limits),
        PEER(test_peer_that_lies),
        cmocka_unit_test(test_unknown_scheme),
        cmocka_unit_test(test_names_of_keys),
    };
    const struct CMUnitTest store_tests[] = {
        STORE(test_store_keys),
        STORE(test_store_cluster_prefix),
        STORE(test_store_own_name),
        STORE(test_store_route_hint),
        STORE(test_store_lookup),
        STORE(test_store_lookup_before_the_engine),
        STORE(test_store_lookup_goes_by_the_name_inside),
        STORE(test_store_bare_names_of_files),
        STORE(test_store_replaces_keys_of_an_earlier_life),
        STORE(test_store_leaves_keys_of_a_successor),
        STORE(test_store_asks_the_engine_itself),
        STORE(test_store_is_asked_about_other_engines),
        STORE(test_store_follows_a_restart),
        STORE(test_store_with_bad_values),
        STORE(test_store_descriptor_limits),
        STORE(test_store_limits_and_failures),
    };
    int failed;

    te_log_set_level(TE_LOG_OFF);
    setenv("no_proxy", "*", 1);
    failed = cmocka_run_group_tests(peer_tests, NULL, NULL);
    if (TE_USE_HTTP)
        failed += cmocka_run_group_tests(store_tests, NULL, NULL);
    return failed;
}
