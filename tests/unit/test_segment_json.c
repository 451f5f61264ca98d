/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os.h"
#include "segment_text.h"

/* What another engine of this protocol publishes. */
static const char golden_tcp[] =
    "{\"buffers\":[{\"addr\":139930560888832,\"length\":100663296,\"name\":\"127.0.0.1:15591\"}],"
    "\"name\":\"127.0.0.1:15591\",\"protocol\":\"tcp\",\"tcp_data_port\":15609,"
    "\"tcp_proto_version\":2,\"timestamp\":\"2026-11-20 12:48:12.712577\"}\n";
static const char golden_rdma[] =
    "{\"buffers\":[{\"addr\":139820210847744,\"length\":100663296,\"lkey\":[743],\"name\":"
    "\"cpu:0\",\"rkey\":[743]}],\"devices\":[{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:"
    "00:01\",\"lid\":0,\"name\":\"rxe0\"}],\"name\":\"127.0.0.1:16129\",\"priority_matrix\":"
    "{\"cpu:0\":[[\"rxe0\"],[]]},\"protocol\":\"rdma\",\"tcp_data_port\":0,\"tcp_proto_version\":"
    "1,\"timestamp\":\"2026-11-20 12:49:04.355394\"}";

static int decode(const char *text, struct tei_segment **s)
{
    return tei_segment_decode(text, strlen(text), &tei_segment_unlimited, s);
}

static struct tei_segment *decoded(const char *text, size_t len)
{
    struct tei_segment *s = NULL;

    if (tei_segment_decode(text, len, &tei_segment_unlimited, &s))
        fail_msg("%s", te_errmsg());
    return s;
}

/* ---- decoding */

TEST(test_golden_tcp)
{
    struct tei_segment *s = decoded(golden_tcp, strlen(golden_tcp));
    struct tei_page page;

    assert_string_equal(s->name, "127.0.0.1:15591");
    assert_string_equal(s->protocol, "tcp");
    assert_int_equal(s->incarnation, 0);
    assert_int_equal(s->version, 0);
    assert_int_equal(s->n_buffers, 1);
    assert_int_equal(s->buffers[0].addr, 139930560888832);
    assert_int_equal(s->buffers[0].length, 100663296);
    assert_int_equal(s->buffers[0].access, TE_REMOTE_RW);
    assert_int_equal(json_integer_value(json_object_get(s->root, "tcp_data_port")), 15609);
    assert_int_equal(tei_segment_page(s, &page), 0);
    assert_int_equal(page.total, 0);
    tei_segment_put(s);
}

TEST(test_golden_rdma)
{
    struct tei_segment *s = decoded(golden_rdma, strlen(golden_rdma));

    assert_string_equal(s->protocol, "rdma");
    assert_int_equal(s->n_buffers, 1);
    assert_int_equal(json_array_size(json_object_get(s->root, "devices")), 1);
    tei_segment_put(s);
}

#define BUFFER(addr, length) "{\"addr\":" addr ",\"length\":" length ",\"name\":\"x\"}"
#define SEGMENT(buffers)     "{\"buffers\":[" buffers "],\"name\":\"x\",\"protocol\":\"tcp\"}"

#define OURS(buffers)                                                        \
    "{\"buffers\":[" buffers "],\"name\":\"x\",\"protocol\":\"tcp\",\"te\":" \
    "{\"incarnation\":\"000000000000beef\",\"v\":1,\"version\":1}}"

/* Of another make's buffers that overlap, those listed earlier are of an engine that died. */
TEST(test_later_buffers_of_other_makes_count)
{
    static const struct {
        const char *text;
        uint64_t addr[3]; /* what is left, in order */
    } cases[] = {
        {SEGMENT(BUFFER("10", "10") "," BUFFER("10", "10")), {10}},
        {SEGMENT(BUFFER("10", "10") "," BUFFER("19", "5")), {19}},
        {SEGMENT(BUFFER("19", "5") "," BUFFER("10", "10")), {10}},
        {SEGMENT(BUFFER("10", "100") "," BUFFER("20", "5") "," BUFFER("50", "9")), {20, 50}},
        {SEGMENT(BUFFER("20", "5") "," BUFFER("50", "9") "," BUFFER("10", "100")), {10}},
        {SEGMENT(BUFFER("20", "5") "," BUFFER("10", "100") "," BUFFER("50", "9")), {50}},
        {SEGMENT(BUFFER("10", "10") "," BUFFER("20", "5") "," BUFFER("24", "9")), {10, 24}},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        struct tei_segment *s = decoded(cases[i].text, strlen(cases[i].text));
        size_t n = 0;

        for (; n < 3 && cases[i].addr[n]; n++)
            assert_int_equal(s->buffers[n].addr, cases[i].addr[n]);
        assert_int_equal(s->n_buffers, n);
        tei_segment_put(s);
    }
}

TEST(test_buffers_are_sorted_and_keep_their_place)
{
    static const char text[] =
        SEGMENT(BUFFER("300", "1") "," BUFFER("100", "100") "," BUFFER("200", "100"));
    struct tei_segment *s = decoded(text, strlen(text));

    assert_int_equal(s->n_buffers, 3);
    assert_int_equal(s->buffers[0].addr, 100);
    assert_int_equal(s->buffers[0].index, 1);
    assert_int_equal(s->buffers[1].index, 2);
    assert_int_equal(s->buffers[2].addr, 300);
    assert_int_equal(s->buffers[2].index, 0);
    tei_segment_put(s);
}

#define NAMED(addr, name) "{\"addr\":" #addr ",\"length\":4096,\"name\":\"" name "\"}"

TEST(test_kinds_of_memory)
{
    static const char text[] =
        "{\"buffers\":[" NAMED(4096, "cpu:1") "," NAMED(8192, "cuda:3") "," NAMED(12288, "hip:0") "," NAMED(16384, "mlu:0") "," NAMED(20480, "*") "," NAMED(24576, "10.0.0.1:15591") "," NAMED(
            28672,
            "segments:4096:0,1") "," NAMED(32768,
                                           "npu:2") "," NAMED(36864,
                                                              "ascend:1") "," NAMED(40960,
                                                                                    "musa:0") "," NAMED(45056,
                                                                                                        "maca:1") "," NAMED(49152,
                                                                                                                            "supa:0") "],\"name\":\"n\",\"protocol\":\"tcp\"}";
    static const enum tei_mem_kind kinds[] = {TEI_MEM_HOST,  TEI_MEM_CUDA,   TEI_MEM_HIP,
                                              TEI_MEM_OTHER, TEI_MEM_HOST,   TEI_MEM_HOST,
                                              TEI_MEM_HOST,  TEI_MEM_ASCEND, TEI_MEM_ASCEND,
                                              TEI_MEM_MUSA,  TEI_MEM_MACA,   TEI_MEM_SUPA};
    struct tei_segment *s = decoded(text, sizeof text - 1);

    assert_int_equal(s->n_buffers, TEI_ARRAY_LEN(kinds));
    for (size_t i = 0; i < s->n_buffers; i++)
        assert_int_equal(s->buffers[i].kind, kinds[i]);
    assert_int_equal(s->kinds, TEI_MEM_ANY);
    assert_string_equal(tei_mem_word(TEI_MEM_HOST), "cpu");
    assert_string_equal(tei_mem_word(TEI_MEM_ASCEND), "npu");
    assert_string_equal(tei_mem_word(TEI_MEM_SUPA), "supa");
    tei_segment_put(s);
    s = decoded(golden_tcp, sizeof golden_tcp - 1);
    assert_int_equal(s->kinds, TEI_MEM_BIT(TEI_MEM_HOST));
    tei_segment_put(s);
}

TEST(test_older_name_files_and_unknown_keys)
{
    static const char text[] =
        "{\"server_name\":\"s\",\"protocol\":\"nvmeof\",\"new_key\":{\"a\":[1.5,null,true]},"
        "\"buffers\":[{\"length\":4096,\"file_path\":\"/dev/x\",\"local_path_map\":{}}]}";
    struct tei_segment *s = decoded(text, strlen(text));

    assert_string_equal(s->name, "s");
    assert_true(s->files);
    assert_int_equal(s->n_buffers, 1);
    assert_int_equal(s->n_listed, 1);
    tei_segment_put(s);
}

TEST(test_largest_address)
{
    static const char text[] = SEGMENT(BUFFER("9223372036854775806", "1"));
    struct tei_segment *s = decoded(text, strlen(text));

    assert_int_equal(s->buffers[0].addr, INT64_MAX - 1);
    tei_segment_put(s);
}

#define TE(te) \
    "{\"buffers\":[" BUFFER("100", "10") "],\"name\":\"x\",\"protocol\":\"tcp\",\"te\":" te "}"

TEST(test_our_own_keys)
{
    static const char text[] = TE("{\"incarnation\":\"0123456789abcdef\",\"version\":7,\"v\":1,"
                                  "\"rights\":[[100,\"r\"]],\"later\":1}");
    struct tei_segment *s = decoded(text, strlen(text));

    assert_int_equal(s->incarnation, 0x0123456789abcdef);
    assert_int_equal(s->version, 7);
    assert_int_equal(s->buffers[0].access, TE_REMOTE_READ);
    tei_segment_put(s);
}

#define KEYS(keys) SEGMENT("{\"addr\":1,\"length\":1,\"name\":\"x\"," keys "}")

TEST(test_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "byte"},
        {"[1]", "no JSON object"},
        {"{\"name\":\"x\"", "byte"},
        {"{} x", "byte"},
        {"{\"name\":\"x\",\"name\":\"y\"}", "duplicate"},
        {"{}", "'server_name' is missing"},
        {"{\"name\":1}", "'name' is an integer"},
        {"{\"name\":\"\"}", "'name' is empty"},
        {"{\"name\":\"x\"}", "'protocol' is missing"},
        {"{\"name\":\"x\",\"protocol\":{}}", "'protocol' is an object"},
        {"{\"name\":\"x\\u0000y\",\"protocol\":\"tcp\"}", "byte"},
        {"{\"name\":\"x\",\"protocol\":\"tcp\",\"buffers\":{}}", "'buffers' is an object"},
        {SEGMENT("1"), "buffers[0] is an integer"},
        {SEGMENT("{\"addr\":1,\"length\":1}"), "buffers[0]: 'name' is missing"},
        {SEGMENT("{\"addr\":1,\"length\":1,\"name\":\"\"}"), "buffers[0]: 'name' is empty"},
        {SEGMENT("{\"length\":1,\"name\":\"x\"}"), "'addr' is missing"},
        {SEGMENT(BUFFER("1", "1") "," BUFFER("0", "1")), "buffers[1]: 'addr' is 0"},
        {SEGMENT(BUFFER("1", "0")), "'length' is 0"},
        {SEGMENT(BUFFER("-5", "1")), "'addr' is -5"},
        {SEGMENT(BUFFER("1.0", "1")), "'addr' is a real"},
        {SEGMENT(BUFFER("\"0x10\"", "1")), "'addr' is a string"},
        {SEGMENT(BUFFER("9223372036854775808", "1")), "byte"},
        {SEGMENT(BUFFER("9223372036854775807", "1")), "wraps"},
        {KEYS("\"rkey\":[1],\"lkey\":[1],\"rkey\":[2]"), "buffers[0]: duplicate object key 'rkey'"},
        {KEYS("\"lkey\":[1],\"lkey\":[1]"), "duplicate object key 'lkey'"},
        {KEYS("\"shm_name\":\"0\",\"shm_name\":\"1\""), "duplicate object key 'shm_name'"},
        {KEYS("\"local_path_map\":{\"h\":\"/a\",\"g\":\"/a\",\"h\":\"/b\"}"),
         "buffers[0]: 'local_path_map': duplicate object key"},
        {OURS(BUFFER("10", "10") "," BUFFER("19", "1")), "overlap"},
        {OURS(BUFFER("10", "10") "," BUFFER("10", "10")), "overlap"},
        {OURS(BUFFER("19", "5") "," BUFFER("10", "10")), "buffers[1] and buffers[0] overlap"},
        {TE("1"), "'te' is an integer"},
        {TE("{}"), "'te.version' is missing"},
        {TE("{\"version\":-1}"), "'te.version'"},
        {TE("{\"version\":1}"), "'te.incarnation' is missing"},
        {TE("{\"version\":1,\"incarnation\":\"12\"}"), "'te.incarnation'"},
        {TE("{\"version\":1,\"incarnation\":\"0123456789ABCDEF\"}"), "'te.incarnation'"},
        {TE("{\"version\":1,\"incarnation\":\"0123456789abcdef\",\"rights\":1}"), "te.rights"},
        {TE("{\"version\":1,\"incarnation\":\"0123456789abcdef\",\"rights\":[[100]]}"),
         "te.rights[0]"},
        {TE("{\"version\":1,\"incarnation\":\"0123456789abcdef\",\"rights\":[[100,\"x\"]]}"),
         "neither"},
        {TE("{\"version\":1,\"incarnation\":\"0123456789abcdef\",\"rights\":[[101,\"r\"]]}"),
         "101"},
    };
    struct tei_segment *s = NULL;

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        if (decode(bad[i].text, &s) != TE_ERR_JSON || !strstr(te_errmsg(), bad[i].says))
            fail_msg("%s: %s", bad[i].text, te_errmsg());
        assert_null(s);
    }
}

TEST(test_null_means_none_yet)
{
    struct tei_segment *s;

    assert_int_equal(decode("null\n", &s), TE_ERR_METADATA);
}

TEST(test_deep_nesting_is_refused)
{
    static char deep[100 * 1024];
    struct tei_segment *s;

    memset(deep, '[', sizeof deep);
    assert_int_equal(tei_segment_decode(deep, sizeof deep, &tei_segment_unlimited, &s),
                     TE_ERR_JSON);
}

/* ---- encoding */

static const struct tei_published few[] = {
    {.addr = 4096, .length = 100, .access = TE_REMOTE_RW, .location = "cpu:0"},
    {.addr = 8192, .length = 200, .access = TE_REMOTE_READ, .location = "cpu:0"},
    {.addr = 12288, .length = 300, .access = TE_LOCAL_ONLY, .location = "cpu:0"},
    {.addr = 16384, .length = 400, .access = TE_REMOTE_WRITE, .location = "cpu:0"},
};

/* The tests that need no more than a protocol; owned by main(). */
static json_t *plain_base;

static json_t *tcp_base(void)
{
    return json_pack("{s:s,s:i,s:i,s:{s:i}}", "protocol", "tcp", "tcp_data_port", 15609,
                     "tcp_proto_version", 2, "te", "local", 1);
}

static char *encode_page(const struct tei_encode *e, size_t from, size_t max, size_t *len)
{
    char *text = NULL;

    if (segment_page(e, from, max, &text, len))
        fail_msg("%s", te_errmsg());
    assert_int_equal(strlen(text), *len);
    return text;
}

static char *encode(const struct tei_encode *e, size_t *len)
{
    return encode_page(e, 0, 0, len);
}

TEST(test_encoded_text)
{
    static const char want[] =
        "{\"buffers\":[{\"addr\":4096,\"length\":100,\"name\":\"h:1\"},{\"addr\":8192,\"length\":"
        "200,\"name\":\"h:1\"},{\"addr\":16384,\"length\":400,\"name\":\"h:1\"}],\"name\":\"h:1\","
        "\"protocol\":\"tcp\",\"server_name\":\"h:1\",\"tcp_data_port\":15609,"
        "\"tcp_proto_version\":2,\"te\":{\"incarnation\":\"000000000000beef\",\"local\":1,\"rights\":[[8192,\"r\"],[16384,\"w\"]],"
        "\"v\":1,\"version\":5,\"written\":";
    json_t *base = tcp_base();
    struct tei_encode e = {.name = "h:1",
                           .incarnation = 0xbeef,
                           .version = 5,
                           .buffers = few,
                           .n_buffers = TEI_ARRAY_LEN(few),
                           .base = base};
    size_t len;
    char *text = encode(&e, &len), *rest;

    assert_memory_equal(text, want, strlen(want));
    assert_int_equal(strtoll(text + strlen(want), &rest, 10) / 1000000000,
                     tei_wall_ms() / 1000000000);
    assert_memory_equal(rest, "},\"timestamp\":\"", 15);
    assert_int_equal(strlen(rest), strlen("},\"timestamp\":\"2026-11-20 12:48:12.712577\"}"));
    assert_int_equal(json_object_size(json_object_get(base, "te")), 1);
    free(text);
    json_decref(base);
}

TEST(test_round_trip)
{
    json_t *base = tcp_base();
    struct tei_encode e = {.name = "a \"name\" \xc3\xa9",
                           .incarnation = UINT64_MAX,
                           .version = 5,
                           .buffers = few,
                           .n_buffers = TEI_ARRAY_LEN(few),
                           .base = base};
    struct tei_segment *s;
    size_t len;
    char *text = encode(&e, &len);

    s = decoded(text, len);
    assert_string_equal(s->name, e.name);
    assert_int_equal(s->incarnation, UINT64_MAX);
    assert_int_equal(s->version, 5);
    assert_int_equal(s->n_buffers, 3);
    assert_int_equal(s->buffers[0].access, TE_REMOTE_RW);
    assert_int_equal(s->buffers[1].access, TE_REMOTE_READ);
    assert_int_equal(s->buffers[2].addr, 16384);
    assert_int_equal(s->buffers[2].access, TE_REMOTE_WRITE);
    tei_segment_put(s);
    free(text);
    json_decref(base);
}

TEST(test_no_buffers_and_no_base)
{
    struct tei_encode e = {.name = "x", .incarnation = 1};
    size_t len;
    char *text = encode_page(&e, 0, 4096, &len);

    assert_non_null(strstr(text, "\"buffers\":[]"));
    assert_null(strstr(text, "page"));
    assert_null(strstr(text, "rights"));
    free(text);
}

static int add_key(void *arg, const char *protocol, const struct tei_published *b, json_t *object)
{
    int *left = arg;

    assert_null(protocol);
    if (!(*left)--)
        return TE_ERR_CONTEXT;
    return json_object_set_new(object, "rkey", json_pack("[I]", (json_int_t)b->length));
}

/* With and without keys of the protocol. */
TEST(test_encoded_device)
{
    static const struct tei_published mixed[] = {
        {.addr = 4096, .length = 100, .access = TE_REMOTE_RW, .location = "cuda:1"},
        {.addr = 8192, .length = 200, .access = TE_REMOTE_RW, .location = "cpu:0"},
    };
    int left = 2;
    struct tei_encode e = {.name = "host",
                           .buffers = mixed,
                           .n_buffers = TEI_ARRAY_LEN(mixed),
                           .base = plain_base,
                           .fill = add_key,
                           .arg = &left};
    struct tei_segment *s;
    size_t len;

    for (int i = 0; i < 2; i++) {
        char *text = encode(&e, &len);

        assert_int_equal(tei_segment_decode(text, len, &tei_segment_unlimited, &s), 0);
        assert_int_equal(s->buffers[0].kind, TEI_MEM_CUDA);
        assert_int_equal(s->buffers[1].kind, TEI_MEM_HOST);
        tei_segment_put(s);
        free(text);
        e.fill = NULL;
    }
}

TEST(test_transport_keys_in_buffers)
{
    int left = 3;
    struct tei_encode e = {.name = "x",
                           .incarnation = 1,
                           .buffers = few,
                           .n_buffers = TEI_ARRAY_LEN(few),
                           .fill = add_key,
                           .arg = &left};
    size_t len;
    char *text = encode(&e, &len);

    assert_non_null(strstr(text, "[{\"addr\":4096,\"length\":100,\"name\":\"x\",\"rkey\":[100]},"));
    free(text);
    left = 1;
    assert_int_equal(segment_text(&e, &text, &len), TE_ERR_CONTEXT);
}

TEST(test_encode_refuses)
{
    struct tei_encode e = {.name = "\xff"};
    char *text;
    size_t len;

    assert_int_equal(segment_text(&e, &text, &len), TE_ERR_INVALID);
    e = (struct tei_encode){.name = "x", .buffers = few, .n_buffers = 4};
    assert_int_equal(segment_page(&e, 0, 100, &text, &len), TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "MC_HANDSHAKE_MAX_LENGTH"));
}

/* ---- pages */

#define MANY 1000

static struct tei_published *make_many(size_t n)
{
    struct tei_published *b = calloc(n, sizeof *b);

    assert_non_null(b);
    for (size_t i = 0; i < n; i++) {
        b[i].addr = 0x7f0000000000 + i * 8192;
        b[i].length = 4096;
        b[i].access = i % 5 == 4 ? TE_LOCAL_ONLY : i % 3 ? TE_REMOTE_RW : TE_REMOTE_READ;
    }
    return b;
}

static size_t read_pages(const struct tei_encode *e, size_t max, struct tei_segment **pages,
                         size_t max_pages)
{
    size_t n = 0, from = 0, total = SIZE_MAX;
    struct tei_segment_text *t;

    assert_int_equal(tei_segment_text_new(e, &t), 0);
    for (; from < total; n++) {
        struct tei_page page;
        size_t len;
        char *text;

        assert_true(n < max_pages);
        assert_int_equal(tei_segment_text_page(t, from, max, &text, &len), 0);
        assert_true(len <= max && strlen(text) == len);
        pages[n] = decoded(text, len);
        free(text);
        assert_int_equal(tei_segment_page(pages[n], &page), 0);
        assert_int_equal(page.from, from);
        assert_true(page.count > 0);
        from += page.count;
        total = page.total;
        /* Nearly full: the next buffer would not have fitted. */
        if (from < total)
            assert_true(len + 120 > max);
    }
    assert_int_equal(from, total);
    tei_segment_text_put(t);
    return n;
}

TEST(test_pages_join_to_the_whole)
{
    struct tei_published *b = make_many(MANY);
    struct tei_segment *pages[MANY], *s;
    json_t *base = tcp_base();

    for (size_t max = 500; max < 200000; max = max * 3 / 2) {
        struct tei_encode e = {.name = "10.0.0.2:15555",
                               .incarnation = 9,
                               .version = 2,
                               .buffers = b,
                               .n_buffers = MANY,
                               .base = base};
        size_t n = read_pages(&e, max, pages, MANY);

        s = pages[0];
        for (size_t i = 1; i < n; i++)
            assert_int_equal(tei_segment_append(s, pages[i]), 0);
        assert_int_equal(tei_segment_complete(s), 0);
        assert_int_equal(s->n_buffers, MANY / 5 * 4);
        assert_int_equal(s->n_listed, MANY / 5 * 4);
        assert_int_equal(s->buffers[0].access, TE_REMOTE_READ);
        assert_int_equal(s->buffers[1].access, TE_REMOTE_RW);
        for (size_t i = 0; i < s->n_buffers; i++)
            assert_int_equal(s->buffers[i].addr, b[i / 4 * 5 + i % 4].addr);
        while (n)
            tei_segment_put(pages[--n]);
    }
    free(b);
    json_decref(base);
}

/*
 * No limit is exceeded by a byte, nor a buffer left out that would have fitted, whatever the limit.
 */
TEST(test_page_limits_byte_by_byte)
{
    struct tei_published *b = make_many(30);
    struct tei_segment *pages[30];

    for (size_t max = 400; max < 900; max++) {
        struct tei_encode e = {.name = "x",
                               .incarnation = 9,
                               .version = 2,
                               .base = plain_base,
                               .buffers = b,
                               .n_buffers = 30};
        size_t n = read_pages(&e, max, pages, 30);

        while (n)
            tei_segment_put(pages[--n]);
    }
    free(b);
}

TEST(test_page_past_the_end_is_empty)
{
    struct tei_encode e = {
        .name = "x", .incarnation = 1, .base = plain_base, .buffers = few, .n_buffers = 4};
    struct tei_segment *s;
    struct tei_page page;
    size_t len;
    char *text = encode_page(&e, 50, 4096, &len);

    s = decoded(text, len);
    assert_int_equal(tei_segment_page(s, &page), 0);
    assert_int_equal(page.from, 50);
    assert_int_equal(page.count, 0);
    assert_int_equal(page.total, 3);
    tei_segment_put(s);
    free(text);
}

static struct tei_segment *page_of(uint64_t version, size_t from, size_t max)
{
    static const struct tei_published two[] = {{.addr = 1, .length = 1, .access = 3},
                                               {.addr = 2, .length = 1, .access = 3}};
    struct tei_encode e = {.name = "x",
                           .incarnation = 1,
                           .version = version,
                           .base = plain_base,
                           .buffers = two,
                           .n_buffers = 2};
    struct tei_segment *s;
    size_t len;
    char *text = encode_page(&e, from, max, &len);

    s = decoded(text, len);
    free(text);
    return s;
}

static void check_join(struct tei_segment *a, struct tei_segment *b, int want)
{
    int rc = b ? tei_segment_append(a, b) : 0;

    assert_int_equal(rc ? rc : tei_segment_complete(a), want);
    tei_segment_put(a);
    tei_segment_put(b);
}

TEST(test_join_refuses_what_does_not_fit)
{
    const size_t one = 240; /* room for one buffer */

    check_join(page_of(1, 0, one), page_of(1, 1, one), 0);
    check_join(page_of(1, 0, one), page_of(2, 1, one), TE_ERR_STALE);
    check_join(page_of(1, 0, one), page_of(1, 0, one), TE_ERR_STALE);
    check_join(page_of(1, 1, one), page_of(1, 0, one), TE_ERR_STALE);
    check_join(page_of(1, 0, one), NULL, TE_ERR_JSON);
    check_join(page_of(1, 1, one), NULL, TE_ERR_STALE);
}

#define PAGE(page) TE("{\"incarnation\":\"0123456789abcdef\",\"version\":1,\"page\":" page "}")

TEST(test_wrong_page_keys)
{
    static const char *const bad[] = {
        PAGE("1"),
        PAGE("{}"),
        PAGE("{\"from\":0,\"count\":1}"),
        PAGE("{\"from\":0,\"count\":1,\"total\":0}"),
        PAGE("{\"from\":0,\"count\":2,\"total\":2}"),
        PAGE("{\"from\":2,\"count\":1,\"total\":2}"),
        PAGE("{\"from\":-1,\"count\":1,\"total\":2}"),
        PAGE("{\"from\":9223372036854775807,\"count\":1,\"total\":9223372036854775807}"),
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        struct tei_segment *s = decoded(bad[i], strlen(bad[i]));
        struct tei_page page = {.total = 77};

        assert_int_equal(tei_segment_page(s, &page), TE_ERR_JSON);
        assert_int_equal(page.total, 77);
        tei_segment_put(s);
    }
}

TEST(test_page_requests)
{
    size_t from = 1, max = 2;
    char *text = tei_page_request_encode(12, 1048574);

    assert_string_equal(text, "{\"te\":{\"page\":{\"from\":12,\"max\":1048574}}}");
    assert_true(tei_page_request_decode(text, strlen(text), &from, &max));
    assert_int_equal(from, 12);
    assert_int_equal(max, 1048574);
    free(text);
}

TEST(test_other_bodies_ask_for_no_page)
{
    static const char *const other[] = {
        "",
        "{}",
        "x",
        "[1]",
        "null",
        "{\"te\":1}",
        "{\"te\":{\"page\":{\"from\":0}}}",
        "{\"te\":{\"page\":{\"from\":0,\"max\":0}}}",
        "{\"te\":{\"page\":{\"from\":-1,\"max\":5}}}",
        "{\"te\":{\"page\":{\"from\":\"0\",\"max\":5}}}",
        golden_tcp,
    };
    size_t from = 77, max = 78;

    for (size_t i = 0; i < TEI_ARRAY_LEN(other); i++)
        assert_false(tei_page_request_decode(other[i], strlen(other[i]), &from, &max));
    assert_int_equal(from, 77);
    assert_int_equal(max, 78);
}

/* What Mooncake's engine for Ascend publishes of its NPU is read, and told to who asks. */
TEST(test_ranks)
{
#define RANKED(rank)                                                                                  \
    "{\"name\":\"n\",\"protocol\":\"ascend\",\"devices\":[{\"name\":\"d\",\"lid\":0}],\"buffers\":[{" \
    "\"name\":\"npu:0\",\"addr\":4096,\"length\":4096,\"device_id\":0}],\"rank_info\":" rank "}"
    static const char full[] = RANKED(
        "{\"rankId\":3,\"hostIp\":\"10.0.0.1\",\"hostPort\":20003,\"deviceLogicId\":1,"
        "\"devicePhyId\":5,\"deviceType\":3,\"deviceIp\":\"192.168.1.5\",\"devicePort\":16666,"
        "\"pid\":77,\"endpoints\":[{},{}]}");
    static const char odd[] = RANKED("{\"hostIp\":[1],\"rankId\":\"7\"}");
    static const char none[] = RANKED("null");
    static const char direct[] =
        "{\"name\":\"n\",\"protocol\":\"ascend_direct\",\"buffers\":[" BUFFER("4096", "4096") "]}";
    char text[256];
    struct tei_segment *s = decoded(full, strlen(full));

    assert_int_equal(s->n_buffers, 1);
    assert_int_equal(s->buffers[0].kind, TEI_MEM_ASCEND);
    assert_true(tei_segment_rank(s, text, sizeof text));
    assert_string_equal(text, "HCCL: rank 3 on 10.0.0.1:20003, device 1 (physical 5) at "
                              "192.168.1.5:16666, 2 endpoints");
    tei_segment_put(s);
    s = decoded(odd, strlen(odd));
    assert_true(tei_segment_rank(s, text, sizeof text));
    assert_string_equal(text, "HCCL: rank 7 on ?:?, device ? (physical ?) at ?:?, 0 endpoints");
    tei_segment_put(s);
    s = decoded(direct, strlen(direct));
    assert_true(tei_segment_rank(s, text, sizeof text));
    assert_string_equal(text, "ascend_direct (HCCS): no rank is told");
    tei_segment_put(s);
    s = decoded(none, strlen(none));
    assert_true(tei_segment_rank(s, text, sizeof text));
    assert_string_equal(text, "HCCL: no rank is told");
    tei_segment_put(s);
    s = decoded(golden_tcp, strlen(golden_tcp));
    assert_false(tei_segment_rank(s, text, sizeof text));
    tei_segment_put(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_golden_tcp),
        cmocka_unit_test(test_golden_rdma),
        cmocka_unit_test(test_buffers_are_sorted_and_keep_their_place),
        cmocka_unit_test(test_later_buffers_of_other_makes_count),
        cmocka_unit_test(test_kinds_of_memory),
        cmocka_unit_test(test_older_name_files_and_unknown_keys),
        cmocka_unit_test(test_largest_address),
        cmocka_unit_test(test_our_own_keys),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_null_means_none_yet),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_encoded_text),
        cmocka_unit_test(test_encoded_device),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_buffers_and_no_base),
        cmocka_unit_test(test_transport_keys_in_buffers),
        cmocka_unit_test(test_encode_refuses),
        cmocka_unit_test(test_pages_join_to_the_whole),
        cmocka_unit_test(test_page_limits_byte_by_byte),
        cmocka_unit_test(test_page_past_the_end_is_empty),
        cmocka_unit_test(test_join_refuses_what_does_not_fit),
        cmocka_unit_test(test_wrong_page_keys),
        cmocka_unit_test(test_page_requests),
        cmocka_unit_test(test_other_bodies_ask_for_no_page),
    };

    int failed;

    te_log_set_level(TE_LOG_OFF);
    plain_base = json_pack("{s:s}", "protocol", "tcp");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(plain_base);
    return failed;
}
