/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_wire.h"
#include "test.h"

#include "te.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_A "127.0.0.1:16437@rxe1"
#define PATH_B "127.0.0.1:16129@rxe0"
#define GID_A  "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02"
#define GID_B  "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01"

/* What the public engine sends and answers. */
#define REQUEST(ack)                                                                             \
    "{\"local_gid\":\"" GID_A "\",\"local_lid\":0,\"local_nic_path\":\"" PATH_A                  \
    "\",\"payload\":\"\",\"peer_nic_path\":\"" PATH_B "\",\"qp_num\":[17,18],\"ready_ack\":" ack \
    ",\"reply_msg\":\"\"}"
static const char empty_message[] =
    "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\","
    "\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}";

static int decode(const char *text, struct tei_rdma_hello *h)
{
    return tei_rdma_hello_decode(text, strlen(text), h);
}

static void check_encoded(const struct tei_rdma_hello *h, const char *expected)
{
    size_t len = 0;
    char *text = tei_rdma_hello_encode(h, &len);

    assert_non_null(text);
    assert_string_equal(text, expected);
    assert_int_equal(len, strlen(expected));
    free(text);
}

static void check_request(const struct tei_rdma_hello *h)
{
    static const uint8_t gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 2};

    assert_string_equal(h->local_nic_path, PATH_A);
    assert_string_equal(h->peer_nic_path, PATH_B);
    assert_string_equal(h->reply_msg, "");
    assert_int_equal(h->n_qp, 2);
    assert_int_equal(h->qp_num[0], 17);
    assert_int_equal(h->qp_num[1], 18);
    assert_int_equal(h->lid, 0);
    assert_true(h->has_gid);
    assert_memory_equal(h->gid, gid, sizeof(gid));
    assert_true(h->has_ready_ack);
    assert_int_equal(h->incarnation, 0);
}

TEST(the_golden_request_is_read_and_written)
{
    struct tei_rdma_hello h;

    assert_int_equal(decode(REQUEST("false") "\n", &h), 0);
    check_request(&h);
    assert_false(h.ready_ack);
    check_encoded(&h, REQUEST("false"));
    assert_int_equal(decode(REQUEST("true") "\n", &h), 0);
    check_request(&h);
    assert_true(h.ready_ack);
    check_encoded(&h, REQUEST("true"));
}

TEST(the_empty_message_is_all_zero)
{
    static const struct tei_rdma_hello zero;
    struct tei_rdma_hello h;

    memset(&h, 0xff, sizeof(h));
    assert_int_equal(decode(empty_message, &h), 0);
    assert_memory_equal(&h, &zero, sizeof(h));
    check_encoded(&zero, empty_message);
    memset(&h, 0xff, sizeof(h));
    assert_int_equal(decode("{}", &h), 0);
    assert_memory_equal(&h, &zero, sizeof(h));
}

/* Before 2026-05 there were no GID and no LID, before 2026-07 neither payload nor ready_ack. */
TEST(an_older_engine_is_understood)
{
    struct tei_rdma_hello h;

    assert_int_equal(decode("{\"local_nic_path\":\"" PATH_A "\",\"peer_nic_path\":\"" PATH_B
                            "\",\"qp_num\":[5],\"reply_msg\":\"\",\"barex_port\":7}",
                            &h),
                     0);
    assert_string_equal(h.local_nic_path, PATH_A);
    assert_int_equal(h.n_qp, 1);
    assert_false(h.has_gid);
    assert_false(h.has_ready_ack);
    assert_false(h.ready_ack);
}

TEST(our_own_key_is_carried)
{
    struct tei_rdma_hello h = {.incarnation = 0x0123456789abcdef, .lid = 65535}, again;
    size_t len;
    char *text = tei_rdma_hello_encode(&h, &len);

    assert_non_null(text);
    assert_non_null(strstr(text, "\"te\":{\"incarnation\":\"0123456789abcdef\"}"));
    assert_int_equal(tei_rdma_hello_decode(text, len, &again), 0);
    assert_true(again.incarnation == 0x0123456789abcdef);
    assert_int_equal(again.lid, 65535);
    free(text);
}

TEST(secrets_are_carried)
{
    struct tei_rdma_hello h = {.incarnation = 1,
                               .n_qp = 2,
                               .qp_num = {7, 8},
                               .has_psn = true,
                               .psn = {0, TEI_RDMA_PSN_MAX},
                               .has_ticket = true,
                               .has_replaced = true},
                          again;
    size_t len;
    char *text;

    for (size_t i = 0; i < TEI_RDMA_TICKET; i++) {
        h.ticket[i] = (uint8_t)(0xf0 + i);
        h.replaced[i] = (uint8_t)i;
    }
    text = tei_rdma_hello_encode(&h, &len);
    assert_non_null(text);
    assert_non_null(strstr(text,
                           "\"te\":{\"incarnation\":\"0000000000000001\",\"psn\":[0,16777215],"
                           "\"replaces\":\"000102030405060708090a0b0c0d0e0f\","
                           "\"ticket\":\"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\"}"));
    assert_int_equal(tei_rdma_hello_decode(text, len, &again), 0);
    assert_memory_equal(&again, &h, sizeof h);
    free(text);
}

TEST(foreign_values_of_our_own_key_say_nothing)
{
    static const char *const texts[] = {
        "{\"te\":1}",
        "{\"te\":[]}",
        "{\"te\":null}",
        "{\"te\":{}}",
        "{\"te\":{\"incarnation\":5}}",
        "{\"te\":{\"incarnation\":\"\"}}",
        "{\"te\":{\"incarnation\":\"0123456789ABCDEF\"}}",
        "{\"te\":{\"incarnation\":\"0123456789abcdef0\"}}",
        "{\"te\":{\"incarnation\":\"-123456789abcdef\"}}",
        "{\"te\":{\"psn\":[]}}",
        "{\"te\":{\"psn\":[1]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":[1]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":[1,2,3]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":[1,16777216]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":[1,-1]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":[1,\"2\"]}}",
        "{\"qp_num\":[1,2],\"te\":{\"psn\":{\"1\":1}}}",
        "{\"te\":{\"ticket\":5,\"replaces\":null}}",
        "{\"te\":{\"ticket\":\"\",\"replaces\":\"00\"}}",
        "{\"te\":{\"ticket\":\"000102030405060708090A0b0c0d0e0f\"}}",
        "{\"te\":{\"replaces\":\"000102030405060708090a0b0c0d0e0f00\"}}",
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        struct tei_rdma_hello h;

        assert_int_equal(decode(texts[i], &h), 0);
        assert_int_equal(h.incarnation, 0);
        assert_false(h.has_psn || h.has_ticket || h.has_replaced);
    }
}

TEST(wrong_messages_are_refused_by_name)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"", TE_ERR_JSON, "connection message"},
        {"[1]", TE_ERR_JSON, "an array"},
        {"null", TE_ERR_JSON, "null"},
        {"{", TE_ERR_JSON, "byte"},
        {"{} {}", TE_ERR_JSON, "byte"},
        {"{\"qp_num\":[1],\"qp_num\":[2]}", TE_ERR_JSON, "duplicate"},
        {"{\"local_nic_path\":5}", TE_ERR_JSON, "'local_nic_path' is an integer"},
        {"{\"peer_nic_path\":null}", TE_ERR_JSON, "'peer_nic_path' is null"},
        {"{\"local_nic_path\":\"host\"}", TE_ERR_PROTOCOL, "'local_nic_path'"},
        {"{\"peer_nic_path\":\"@dev\"}", TE_ERR_PROTOCOL, "'peer_nic_path'"},
        {"{\"peer_nic_path\":\"host@\"}", TE_ERR_PROTOCOL, "'peer_nic_path'"},
        {"{\"local_nic_path\":\"a\\u0000@b\"}", TE_ERR_JSON, "byte"},
        {"{\"reply_msg\":[]}", TE_ERR_JSON, "'reply_msg' is an array"},
        {"{\"payload\":{}}", TE_ERR_JSON, "'payload' is an object"},
        {"{\"local_gid\":0}", TE_ERR_JSON, "'local_gid' is an integer"},
        {"{\"local_gid\":\"00:01\"}", TE_ERR_PROTOCOL, "'local_gid' is '00:01'"},
        {"{\"local_lid\":\"0\"}", TE_ERR_JSON, "'local_lid' is a string"},
        {"{\"local_lid\":1.0}", TE_ERR_JSON, "'local_lid' is a real"},
        {"{\"local_lid\":-1}", TE_ERR_PROTOCOL, "'local_lid' is -1"},
        {"{\"local_lid\":65536}", TE_ERR_PROTOCOL, "'local_lid' is 65536"},
        {"{\"local_lid\":18446744073709551616}", TE_ERR_JSON, "byte"},
        {"{\"qp_num\":5}", TE_ERR_JSON, "'qp_num' is an integer"},
        {"{\"qp_num\":{\"0\":1}}", TE_ERR_JSON, "'qp_num' is an object"},
        {"{\"qp_num\":[1,\"2\"]}", TE_ERR_JSON, "qp_num[1] is a string"},
        {"{\"qp_num\":[1,16777216]}", TE_ERR_PROTOCOL, "qp_num[1] is 16777216"},
        {"{\"qp_num\":[-1]}", TE_ERR_PROTOCOL, "qp_num[0] is -1"},
        {"{\"ready_ack\":1}", TE_ERR_JSON, "'ready_ack' is an integer"},
        {"{\"ready_ack\":\"true\"}", TE_ERR_JSON, "'ready_ack' is a string"},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        struct tei_rdma_hello h, before;

        memset(&h, 0x5a, sizeof(h));
        memcpy(&before, &h, sizeof(h));
        assert_int_equal(decode(cases[i].text, &h), cases[i].code);
        if (!strstr(te_errmsg(), cases[i].says))
            fail_msg("'%s' of %s does not say '%s'", te_errmsg(), cases[i].text, cases[i].says);
        assert_memory_equal(&h, &before, sizeof(h));
    }
}

TEST(deep_nesting_is_refused)
{
    struct tei_rdma_hello h;
    char *text = malloc(100000);

    assert_non_null(text);
    memset(text, '[', 100000);
    assert_int_equal(tei_rdma_hello_decode(text, 100000, &h), TE_ERR_JSON);
    free(text);
}

/* {"qp_num":[16777215, ... n of them]} */
static void qp_text(size_t n, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "{\"qp_num\":[");

    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%d", i ? "," : "", TEI_RDMA_QPN_MAX);
    snprintf(out + at, room - at, "]}");
}

TEST(queue_pairs_have_a_limit)
{
    struct tei_rdma_hello h, again;
    char text[4096], *encoded;
    size_t len;

    qp_text(TEI_RDMA_QPS, text, sizeof(text));
    assert_int_equal(decode(text, &h), 0);
    assert_int_equal(h.n_qp, TEI_RDMA_QPS);
    assert_int_equal(h.qp_num[TEI_RDMA_QPS - 1], TEI_RDMA_QPN_MAX);
    encoded = tei_rdma_hello_encode(&h, &len);
    assert_non_null(encoded);
    assert_int_equal(tei_rdma_hello_decode(encoded, len, &again), 0);
    assert_memory_equal(&h, &again, sizeof(h));
    free(encoded);
    h.n_qp++;
    assert_null(tei_rdma_hello_encode(&h, NULL));
    qp_text(TEI_RDMA_QPS + 1, text, sizeof(text));
    assert_int_equal(decode(text, &h), TE_ERR_PROTOCOL);
    assert_non_null(strstr(te_errmsg(), "256 entries"));
}

static int decode_path(size_t bytes, struct tei_rdma_hello *h)
{
    char path[TEI_RDMA_PATH + 8], text[TEI_RDMA_PATH + 64];

    memset(path, 'x', bytes);
    path[3] = '@';
    path[bytes] = '\0';
    snprintf(text, sizeof(text), "{\"peer_nic_path\":\"%s\"}", path);
    return decode(text, h);
}

TEST(a_path_has_a_limit)
{
    struct tei_rdma_hello h;

    assert_int_equal(decode_path(TEI_RDMA_PATH - 1, &h), 0);
    assert_int_equal(strlen(h.peer_nic_path), TEI_RDMA_PATH - 1);
    assert_int_equal(decode_path(TEI_RDMA_PATH, &h), TE_ERR_PROTOCOL);
    assert_non_null(strstr(te_errmsg(), "320 bytes"));
}

/* A refusal of any length is a refusal, and stays UTF-8 when it is cut. */
TEST(long_refusals_are_cut)
{
    static const char euro[] = "\xe2\x82\xac";
    char text[2048] = "{\"reply_msg\":\"x", *again;
    struct tei_rdma_hello h, back;
    size_t len;

    for (int i = 0; i < 300; i++)
        strcat(text, euro);
    strcat(text, "\"}");
    assert_int_equal(decode(text, &h), 0);
    assert_int_equal(strlen(h.reply_msg), 1 + 84 * 3);
    assert_memory_equal(h.reply_msg + 1 + 83 * 3, euro, 4);
    again = tei_rdma_hello_encode(&h, &len);
    assert_non_null(again);
    assert_int_equal(tei_rdma_hello_decode(again, len, &back), 0);
    assert_memory_equal(&h, &back, sizeof(h));
    free(again);
}

static void check_refusal(const char *why, const char *seen)
{
    struct tei_rdma_hello h;
    size_t len;
    char *text = tei_rdma_refusal_encode(why, &len);

    assert_non_null(text);
    assert_int_equal(tei_rdma_hello_decode(text, len, &h), 0);
    assert_string_equal(h.reply_msg, seen);
    assert_string_equal(h.local_nic_path, "");
    assert_string_equal(h.peer_nic_path, "");
    assert_int_equal(h.n_qp, 0);
    assert_false(h.has_ready_ack);
    free(text);
}

TEST(refusals_always_get_through)
{
    char latin[400], marks[TEI_RDMA_REPLY];

    check_refusal("no device 'rxe7'", "no device 'rxe7'");
    check_refusal("", "refused");
    check_refusal("caf\xe9", "caf?");
    check_refusal("a\n\"b\"", "a\n\"b\"");
    memset(latin, 0xbf, sizeof(latin) - 1);
    latin[sizeof(latin) - 1] = '\0';
    memset(marks, '?', sizeof(marks));
    marks[TEI_RDMA_REPLY - 1 - 3] = '\0';
    check_refusal(latin, marks);
}

TEST(no_message_from_paths_that_are_no_utf8)
{
    struct tei_rdma_hello h = {.local_nic_path = "caf\xe9@dev"};

    assert_null(tei_rdma_hello_encode(&h, NULL));
    assert_non_null(strstr(te_errmsg(), "UTF-8"));
}

TEST(nic_paths_part_at_the_first_at)
{
    char server[8], device[8];

    assert_int_equal(tei_rdma_nic_path_split("h:1@mlx@0", server, 8, device, 8), 0);
    assert_string_equal(server, "h:1");
    assert_string_equal(device, "mlx@0");
}

TEST(other_nic_paths_are_refused)
{
    static const char *const bad[] = {"", "@", "a@", "@a", "ab", "12345678@d", "s@12345678"};
    char server[8] = "s", device[8] = "d";

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++)
        assert_int_equal(tei_rdma_nic_path_split(bad[i], server, 8, device, 8), TE_ERR_PROTOCOL);
    assert_string_equal(server, "s");
    assert_string_equal(device, "d");
    assert_int_equal(tei_rdma_nic_path_split("1234567@7654321", server, 8, device, 8), 0);
    assert_string_equal(server, "1234567");
    assert_string_equal(device, "7654321");
}

/* ---- keys of the descriptor */

static json_t *json_of(const char *text)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);

    assert_non_null(j);
    return j;
}

static int decode_devices(const char *text, struct tei_rdma_device **out, size_t *n)
{
    json_t *root = json_of(text);
    int rc = tei_rdma_devices_decode(root, out, n);

    json_decref(root);
    return rc;
}

static void check_json(json_t *j, const char *expected)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);

    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(j);
}

TEST(devices_are_read_and_written)
{
    static const char list[] = "[{\"gid\":\"" GID_B "\",\"lid\":0,\"name\":\"rxe0\"},"
                               "{\"gid\":\"fe:80:00:00:00:00:00:00:00:01:02:03:04:05:06:07\","
                               "\"lid\":65535,\"name\":\"mlx5_1\"}]";
    static const uint8_t gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 1};
    struct tei_rdma_device *d;
    char text[512];
    size_t n;

    snprintf(text, sizeof(text), "{\"devices\":%s}", list);
    assert_int_equal(decode_devices(text, &d, &n), 0);
    assert_int_equal(n, 2);
    assert_string_equal(d[0].name, "rxe0");
    assert_int_equal(d[0].lid, 0);
    assert_memory_equal(d[0].gid, gid, 16);
    assert_string_equal(d[1].name, "mlx5_1");
    assert_int_equal(d[1].lid, 65535);
    assert_int_equal(d[1].gid[15], 7);
    check_json(tei_rdma_devices_json(d, n), list);
    free(d);
    check_json(tei_rdma_devices_json(NULL, 0), "[]");
}

TEST(no_devices_is_no_error)
{
    static const char *const texts[] = {"{}", "{\"devices\":[]}"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        struct tei_rdma_device dummy, *d = &dummy;
        size_t n = 1;

        assert_int_equal(decode_devices(texts[i], &d, &n), 0);
        assert_null(d);
        assert_int_equal(n, 0);
    }
}

#define DEVICE(name, gid) "{\"name\":\"" name "\",\"lid\":0,\"gid\":\"" gid "\"}"

TEST(wrong_devices_are_refused_by_name)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"{\"devices\":{}}", TE_ERR_JSON, "'devices' is an object"},
        {"{\"devices\":\"a\"}", TE_ERR_JSON, "'devices' is a string"},
        {"{\"devices\":[5]}", TE_ERR_JSON, "devices[0] is an integer"},
        {"{\"devices\":[{}]}", TE_ERR_PROTOCOL, "devices[0]: key 'name'"},
        {"{\"devices\":[{\"name\":1}]}", TE_ERR_JSON, "devices[0]: key 'name' is an integer"},
        {"{\"devices\":[{\"name\":\"a\",\"lid\":0}]}", TE_ERR_PROTOCOL, "key 'gid'"},
        {"{\"devices\":[{\"name\":\"a\",\"lid\":0,\"gid\":7}]}", TE_ERR_JSON, "key 'gid'"},
        {"{\"devices\":[{\"name\":\"a\",\"lid\":\"0\"}]}", TE_ERR_JSON, "key 'lid'"},
        {"{\"devices\":[{\"name\":\"a\",\"lid\":65536}]}", TE_ERR_PROTOCOL, "key 'lid'"},
        {"{\"devices\":[" DEVICE("", GID_A) "]}", TE_ERR_PROTOCOL, "key 'name'"},
        {"{\"devices\":[" DEVICE("a", "") "]}", TE_ERR_PROTOCOL, "key 'gid'"},
        {"{\"devices\":[" DEVICE("a", GID_A) "," DEVICE("b", GID_A) "," DEVICE("a", GID_B) "]}",
         TE_ERR_PROTOCOL, "devices[2]: key 'name' is 'a', as that of devices[0]"},
        {"{\"devices\":[" DEVICE("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                                 GID_A) "]}",
         TE_ERR_PROTOCOL, "1 to 63 bytes"},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        struct tei_rdma_device dummy, *d = &dummy;
        size_t n = 7;

        assert_int_equal(decode_devices(cases[i].text, &d, &n), cases[i].code);
        if (!strstr(te_errmsg(), cases[i].says))
            fail_msg("'%s' of %s does not say '%s'", te_errmsg(), cases[i].text, cases[i].says);
        assert_ptr_equal(d, &dummy);
        assert_int_equal(n, 7);
    }
}

TEST(devices_have_a_limit)
{
    json_t *root = json_pack("{s:[]}", "devices"), *list = json_object_get(root, "devices");
    struct tei_rdma_device *d;
    char name[16];
    size_t n;

    for (int i = 0; i < TEI_RDMA_DEVICES; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:s}", "name", name, "lid", i, "gid", GID_A));
    }
    assert_int_equal(tei_rdma_devices_decode(root, &d, &n), 0);
    assert_int_equal(n, TEI_RDMA_DEVICES);
    assert_string_equal(d[255].name, "d255");
    free(d);
    json_array_append_new(list,
                          json_pack("{s:s, s:i, s:s}", "name", "more", "lid", 0, "gid", GID_A));
    assert_int_equal(tei_rdma_devices_decode(root, &d, &n), TE_ERR_PROTOCOL);
    assert_non_null(strstr(te_errmsg(), "257 entries"));
    json_decref(root);
}

static int decode_keys(const char *text, size_t n, uint32_t *keys)
{
    json_t *buffer = json_of(text);
    int rc = tei_rdma_keys_decode(buffer, n, keys);

    json_decref(buffer);
    return rc;
}

TEST(keys_are_read_and_written)
{
    static const uint32_t rkeys[] = {743, UINT32_MAX}, lkeys[] = {0, 5};
    uint32_t got[3] = {1, 1, 1};
    json_t *buffer = json_object();

    assert_int_equal(tei_rdma_keys_encode(buffer, rkeys, lkeys, 2), 0);
    assert_int_equal(tei_rdma_keys_decode(buffer, 2, got), 2);
    assert_memory_equal(got, rkeys, sizeof(rkeys));
    assert_int_equal(got[2], 1);
    check_json(buffer, "{\"lkey\":[0,5],\"rkey\":[743,4294967295]}");
}

TEST(memory_not_for_peers_has_no_rkey)
{
    static const uint32_t lkeys[] = {8, 9};
    uint32_t got[3] = {1, 1, 1};
    json_t *buffer = json_object();

    assert_int_equal(tei_rdma_keys_encode(buffer, NULL, lkeys, 2), 0);
    assert_int_equal(tei_rdma_keys_decode(buffer, 2, got), 0);
    assert_int_equal(got[0], 0);
    assert_int_equal(got[1], 0);
    assert_int_equal(got[2], 1);
    check_json(buffer, "{\"lkey\":[8,9],\"rkey\":[]}");
    got[0] = 1;
    assert_int_equal(decode_keys("{}", 1, got), 0);
    assert_int_equal(got[0], 0);
    assert_int_equal(decode_keys("{}", 0, NULL), 0);
}

TEST(wrong_keys_are_refused_by_name)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"{\"rkey\":7}", TE_ERR_JSON, "'rkey' is an integer"},
        {"{\"rkey\":null}", TE_ERR_JSON, "'rkey' is null"},
        {"{\"rkey\":[1]}", TE_ERR_PROTOCOL, "1 entries for 2 devices"},
        {"{\"rkey\":[1,2,3]}", TE_ERR_PROTOCOL, "3 entries for 2 devices"},
        {"{\"rkey\":[1,\"2\"]}", TE_ERR_JSON, "rkey[1] is a string"},
        {"{\"rkey\":[1,4294967296]}", TE_ERR_PROTOCOL, "rkey[1] is 4294967296"},
        {"{\"rkey\":[-1,1]}", TE_ERR_PROTOCOL, "rkey[0] is -1"},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        uint32_t got[2] = {3, 4};

        assert_int_equal(decode_keys(cases[i].text, 2, got), cases[i].code);
        if (!strstr(te_errmsg(), cases[i].says))
            fail_msg("'%s' of %s does not say '%s'", te_errmsg(), cases[i].text, cases[i].says);
        assert_int_equal(got[0], 3);
        assert_int_equal(got[1], 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_golden_request_is_read_and_written),
        cmocka_unit_test(the_empty_message_is_all_zero),
        cmocka_unit_test(an_older_engine_is_understood),
        cmocka_unit_test(our_own_key_is_carried),
        cmocka_unit_test(secrets_are_carried),
        cmocka_unit_test(foreign_values_of_our_own_key_say_nothing),
        cmocka_unit_test(wrong_messages_are_refused_by_name),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(queue_pairs_have_a_limit),
        cmocka_unit_test(a_path_has_a_limit),
        cmocka_unit_test(long_refusals_are_cut),
        cmocka_unit_test(refusals_always_get_through),
        cmocka_unit_test(no_message_from_paths_that_are_no_utf8),
        cmocka_unit_test(nic_paths_part_at_the_first_at),
        cmocka_unit_test(other_nic_paths_are_refused),
        cmocka_unit_test(devices_are_read_and_written),
        cmocka_unit_test(no_devices_is_no_error),
        cmocka_unit_test(wrong_devices_are_refused_by_name),
        cmocka_unit_test(devices_have_a_limit),
        cmocka_unit_test(keys_are_read_and_written),
        cmocka_unit_test(memory_not_for_peers_has_no_rkey),
        cmocka_unit_test(wrong_keys_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
