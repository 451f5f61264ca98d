/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of several protocols: which ranges each of them reaches, and what no such descriptor is. */
#include "model/model.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "segment_text.h"

#define DEVICES             "\"devices\":[{\"gid\":\"0\",\"lid\":0,\"name\":\"d\"}],"
#define TE                  ",\"te\":{\"incarnation\":\"0123456789abcdef\",\"v\":1,\"version\":7"
#define OF(list)            "{" DEVICES "\"name\":\"x\",\"protocol\":" list
#define BOTH(all)           OF("[\"tcp\",\"rdma\"]") ",\"buffers\":[" all "]"
#define SEGMENT(all)        BOTH(all) "}"
#define RANGE(addr, length) "{\"addr\":" addr ",\"length\":" length ",\"name\":\"cpu:0\","
#define TCP(addr, length)   RANGE(addr, length) "\"protocol\":\"tcp\"}"
#define RDMA(addr, length)  RANGE(addr, length) "\"lkey\":[1],\"protocol\":\"rdma\",\"rkey\":[2]}"
#define ALL                 (TEI_BY_TCP | TEI_BY_RDMA)

static int decode(const char *text, struct tei_segment **s)
{
    return tei_segment_decode(text, strlen(text), &tei_segment_unlimited, s);
}

static struct tei_segment *decoded(const char *text)
{
    struct tei_segment *s = NULL;

    if (decode(text, &s))
        fail_msg("%s", te_errmsg());
    return s;
}

static void assert_piece(const struct tei_segment *s, size_t i, uint64_t addr, uint64_t length,
                         unsigned by, uint32_t index)
{
    assert_true(i < s->n_buffers);
    assert_int_equal(s->buffers[i].addr, addr);
    assert_int_equal(s->buffers[i].length, length);
    assert_int_equal(s->buffers[i].by, by);
    assert_int_equal(s->buffers[i].index, index);
    assert_int_equal(s->buffers[i].access, TE_REMOTE_RW);
}

/* As another engine publishes one, byte for byte. */
static const char golden[] =
    "{\"buffers\":["
    "{\"addr\":139930560888832,\"length\":1048576,\"name\":\"cpu:0\",\"protocol\":\"tcp\"},"
    "{\"addr\":139930560888832,\"length\":1048576,\"lkey\":[743],\"name\":\"cpu:0\","
    "\"protocol\":\"rdma\",\"rkey\":[744]}],"
    "\"devices\":[{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01\",\"lid\":0,"
    "\"name\":\"rxe0\"}],\"name\":\"127.0.0.1:16129\","
    "\"priority_matrix\":{\"cpu:0\":[[\"rxe0\"],[]]},\"protocol\":[\"tcp\",\"rdma\"],"
    "\"tcp_data_port\":15609,\"tcp_proto_version\":2,"
    "\"timestamp\":\"2026-11-20 12:49:04.355394\"}";

TEST(test_golden)
{
    struct tei_segment *s = decoded(golden);
    json_t *keys;

    assert_true(s->several);
    assert_string_equal(s->protocol, "tcp,rdma");
    assert_true(tei_segment_speaks(s, "tcp") && tei_segment_speaks(s, "rdma"));
    assert_false(tei_segment_speaks(s, "hip") || tei_segment_speaks(s, "tcp,rdma") ||
                 tei_segment_speaks(s, "tc") || tei_segment_speaks(s, ""));
    assert_int_equal(s->n_buffers, 1);
    assert_piece(s, 0, 139930560888832, 1048576, ALL, 1);
    keys = tei_segment_buffer(s, s->buffers[0].index);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(keys, "rkey"), 0)), 744);
    json_decref(keys);
    tei_segment_put(s);
}

/* A name with a comma is one of one protocol. */
TEST(test_one_protocol)
{
    struct tei_segment *s = decoded(OF("\"tcp,rdma\"") "}");

    assert_false(s->several || tei_segment_speaks(s, "tcp"));
    assert_true(tei_segment_speaks(s, "tcp,rdma"));
    tei_segment_put(s);
}

TEST(test_pieces)
{
    struct tei_segment *s = decoded(SEGMENT(RDMA("200", "100") "," TCP("100", "150") "," RDMA(
        "300", "100") "," TCP("350", "100") "," TCP("1000", "10")));

    assert_int_equal(s->n_buffers, 7);
    assert_piece(s, 0, 100, 100, TEI_BY_TCP, 1);
    assert_piece(s, 1, 200, 50, ALL, 0);
    assert_piece(s, 2, 250, 50, TEI_BY_RDMA, 0);
    assert_piece(s, 3, 300, 50, TEI_BY_RDMA, 2);
    assert_piece(s, 4, 350, 50, ALL, 2);
    assert_piece(s, 5, 400, 50, TEI_BY_TCP, 3);
    assert_piece(s, 6, 1000, 10, TEI_BY_TCP, 4);
    tei_segment_put(s);
}

TEST(test_reached_by)
{
    /* One of tcp for two of rdma, as long regions have them. */
    struct tei_segment *s =
        decoded(SEGMENT(TCP("100", "200") "," RDMA("100", "100") "," RDMA("200", "100")));

    assert_true(tei_segment_by(s, 100, 200, TEI_BY_TCP));
    assert_true(tei_segment_by(s, 150, 150, TEI_BY_RDMA));
    assert_false(tei_segment_by(s, 150, 150, TEI_BY_OTHERS));
    assert_false(tei_segment_by(s, 150, 151, TEI_BY_TCP));
    assert_false(tei_segment_by(s, 99, 1, TEI_BY_TCP));
    tei_segment_put(s);
}

/* What is listed later is that of a living engine, and nothing is left of what it overlaps. */
TEST(test_listed_later)
{
    static const char *const texts[] = {
        SEGMENT(RDMA("200", "100") "," RDMA("200", "100")),
        SEGMENT(RDMA("150", "100") "," RDMA("200", "100")),
        SEGMENT(RDMA("150", "1000") "," RDMA("200", "100")),
        SEGMENT(RDMA("220", "10") "," RDMA("200", "100")),
        SEGMENT(RDMA("250", "100") "," RDMA("200", "100")),
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        struct tei_segment *s = decoded(texts[i]);

        assert_int_equal(s->n_buffers, 1);
        assert_piece(s, 0, 200, 100, TEI_BY_RDMA, 1);
        tei_segment_put(s);
    }
}

/* The same of rdma does not touch what is of tcp. */
TEST(test_listed_later_of_one)
{
    struct tei_segment *s =
        decoded(SEGMENT(TCP("150", "100") "," RDMA("150", "100") "," RDMA("200", "100")));

    assert_int_equal(s->n_buffers, 3);
    assert_piece(s, 0, 150, 50, TEI_BY_TCP, 0);
    assert_piece(s, 1, 200, 50, ALL, 2);
    assert_piece(s, 2, 250, 50, TEI_BY_RDMA, 2);
    tei_segment_put(s);
}

#define LIST "[\"cxl\",\"hip\",\"maca\",\"musa\",\"tcp\",\"rdma\"]"
#define CXL  "{\"length\":8,\"name\":\"x\",\"offset\":0,\"protocol\":\"cxl\"}"
#define HIP  RANGE("100", "8") "\"protocol\":\"hip\",\"shm_name\":\"00\"}"
#define MUSA RANGE("100", "4") "\"protocol\":\"musa\",\"shm_name\":\"00\"}"

/* What is only for protocols that are not here is memory that no request reaches. */
TEST(test_others)
{
    static const char all[] =
        OF(LIST) ",\"buffers\":[" CXL "," HIP "," MUSA "," TCP("200", "8") "]}";
    struct tei_segment *s = decoded(all);

    assert_true(s->offsets);
    assert_int_equal(s->n_listed, 4);
    assert_false(tei_segment_by(s, 100, 8, ALL));
    assert_true(tei_segment_by(s, 100, 8, TEI_BY_OTHERS) && tei_segment_by(s, 200, 8, TEI_BY_TCP));
    tei_segment_put(s);
}

TEST(test_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {OF("[]") "}", "an array of 0, must have two or more"},
        {OF("[\"tcp\"]") "}", "an array of 1, must have two or more"},
        {OF("[\"tcp\",\"tcp\"]") "}", "protocol[1] is 'tcp' once more"},
        {OF("[\"tcp\",\"efa\"]") "}", "protocol[1] is 'efa', must be"},
        {OF("[\"nvmeof\",\"tcp\"]") "}", "protocol[0] is 'nvmeof', must be"},
        {OF("[\"tcp\",1]") "}", "protocol[1] is '', must be"},
        {OF("[\"tcp\",[\"rdma\"]]") "}", "protocol[1] is '', must be"},
        {OF("[\"tcp,rdma\",\"rdma\"]") "}", "protocol[0] is 'tcp,rdma', must be"},
        {SEGMENT("1"), "buffers[0] is an integer"},
        {SEGMENT(RANGE("1", "1") "\"x\":1}"), "buffers[0]: 'protocol' is missing"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":1}"), "'protocol' is an integer"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":\"hip\"}"), "'hip', which is none of the segment's"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":\"\"}"), "'', which is none"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":\",\"}"), "',', which is none"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":\"tcp,rdma\"}"), "which is none"},
        {SEGMENT(RANGE("1", "1") "\"protocol\":\"tcp\",\"protocol\":\"tcp\"}"), "duplicate"},
        {SEGMENT(TCP("0", "1")), "'addr' is 0"},
        {SEGMENT(TCP("1", "0")), "'length' is 0"},
        {SEGMENT(TCP("9223372036854775807", "1")), "wraps"},
        {BOTH(RDMA("10", "10") "," TCP("10", "10") "," RDMA("19", "1")) TE "}}",
         "buffers[0] and buffers[2] of one protocol overlap at 19"},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        struct tei_segment *s = NULL;

        assert_int_equal(decode(bad[i].text, &s), TE_ERR_JSON);
        assert_null(s);
        if (!strstr(te_errmsg(), bad[i].says))
            fail_msg("%s: %s", bad[i].text, te_errmsg());
    }
}

/* Every text that is one byte less, or one byte different, is read or refused, and no more. */
TEST(test_hostile_bytes)
{
    char text[sizeof golden];

    for (size_t i = 0; i + 1 < sizeof golden; i++) {
        static const char others[] = "\"[]{},:0-\\\xff";

        for (size_t k = 0; k < sizeof others; k++) {
            struct tei_segment *s = NULL;

            memcpy(text, golden, sizeof golden);
            text[i] = others[k];
            if (!tei_segment_decode(text, sizeof golden - 1, &tei_segment_unlimited, &s))
                tei_segment_put(s);
        }
        assert_int_not_equal(tei_segment_decode(golden, i, &tei_segment_unlimited,
                                                &(struct tei_segment *){NULL}),
                             0);
    }
}

/* ---- written */

static int add_key(void *arg, const char *protocol, const struct tei_published *b, json_t *object)
{
    (void)arg;
    if (strcmp(protocol, "rdma") != 0)
        return 0;
    return json_object_set_new(object, "lkey", json_pack("[I]", (json_int_t)b->length)) |
           json_object_set_new(object, "rkey", json_pack("[I]", (json_int_t)b->length));
}

static const struct tei_published regions[] = {
    {.addr = 4096, .length = 100, .access = TE_REMOTE_RW, .location = "cpu:0"},
    {.addr = 8192, .length = 200, .access = TE_REMOTE_READ, .location = "cpu:0"},
    {.addr = 16384, .length = 300, .access = TE_LOCAL_ONLY, .location = "cpu:0"},
    {.addr = 32768, .length = 400, .access = TE_REMOTE_WRITE, .location = "cpu:0"},
};
static const char *const two[] = {"tcp", "rdma"};

static struct tei_encode encoding(json_t *base)
{
    return (struct tei_encode){.name = "x",
                               .incarnation = 1,
                               .version = 2,
                               .buffers = regions,
                               .n_buffers = TEI_ARRAY_LEN(regions),
                               .base = base,
                               .protocols = two,
                               .n_protocols = TEI_ARRAY_LEN(two),
                               .fill = add_key};
}

static json_t *make_base(void)
{
    json_t *base = json_pack("{s[ss] s[{ss si ss}]}", "protocol", "tcp", "rdma", "devices", "gid",
                             "0", "lid", 0, "name", "d");

    assert_non_null(base);
    return base;
}

static void assert_as_written(const struct tei_segment *s)
{
    assert_int_equal(s->n_listed, 6);
    assert_int_equal(s->n_buffers, 3);
    assert_piece(s, 0, 4096, 100, ALL, 1);
    assert_int_equal(s->buffers[1].access, TE_REMOTE_READ);
    assert_int_equal(s->buffers[1].index, 3);
    assert_int_equal(s->buffers[2].access, TE_REMOTE_WRITE);
    assert_int_equal(s->buffers[2].by, ALL);
}

TEST(test_written)
{
    json_t *base = make_base();
    struct tei_encode e = encoding(base);
    struct tei_segment *s;
    size_t len;
    char *text;

    assert_int_equal(segment_text(&e, &text, &len), 0);
    assert_non_null(
        strstr(text, "{\"buffers\":[{\"addr\":4096,\"length\":100,\"name\":\"x\",\"protocol\":"
                     "\"tcp\"},{\"addr\":4096,\"length\":100,\"lkey\":[100],\"name\":\"x\","
                     "\"protocol\":\"rdma\",\"rkey\":[100]},"));
    assert_non_null(strstr(text, "\"protocol\":[\"tcp\",\"rdma\"]"));
    assert_non_null(strstr(text, "\"rights\":[[8192,\"r\"],[32768,\"w\"]]"));
    s = decoded(text);
    assert_as_written(s);
    tei_segment_put(s);
    free(text);
    json_decref(base);
}

/* In pages of `max` bytes at most; NULL where a buffer needs more. */
static struct tei_segment *read_pages(const struct tei_encode *e, size_t max, size_t *pages)
{
    struct tei_segment *s = NULL;
    size_t len, at = 0;
    char *text;

    while (at < 6) {
        struct tei_segment *page;
        int rc = segment_page(e, at, max, &text, &len);

        if (rc) {
            assert_int_equal(rc, TE_ERR_TOO_LARGE);
            tei_segment_put(s);
            return NULL;
        }
        page = decoded(text);
        free(text);
        if (s) {
            assert_int_equal(tei_segment_append(s, page), 0);
            tei_segment_put(page);
        } else {
            s = page;
        }
        at = s->n_listed;
        ++*pages;
    }
    return s;
}

/* Wherever they are cut: also between the two of one region. */
TEST(test_pages)
{
    json_t *base = make_base();
    struct tei_encode e = encoding(base);
    size_t read = 0, most = 0;

    for (size_t max = 300; max < 900; max += 10) {
        size_t pages = 0;
        struct tei_segment *s = read_pages(&e, max, &pages);

        if (!s)
            continue;
        assert_int_equal(tei_segment_complete(s), 0);
        assert_as_written(s);
        tei_segment_put(s);
        read++;
        most = pages > most ? pages : most;
    }
    assert_true(read > 5 && most > 3);
    json_decref(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_one_protocol),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_reached_by),
        cmocka_unit_test(test_listed_later),  cmocka_unit_test(test_listed_later_of_one),
        cmocka_unit_test(test_others),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile_bytes), cmocka_unit_test(test_written),
        cmocka_unit_test(test_pages),
    };

    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
