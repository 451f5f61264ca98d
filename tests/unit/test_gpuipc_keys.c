/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "transport/gpuipc/gpuipc_keys.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLE "00112233445566778899AABBCCDDEEFF" /* four times */
#define HEX    HANDLE HANDLE HANDLE HANDLE
#define UUID   "0123456789abcdefFEDCBA9876543210"
#define NONCE  "a0b1c2d3e4f5061728394a5b6c7d8e9f"
#define HASH   "00112233445566778899aabbccddeeff"

static json_t *keys_of(int version, const char *memory)
{
    static const char *const place[] = {NULL,
                                        "\"host\":{\"boot\":\"b\",\"machine\":\"\"},\"pid\":12",
                                        "\"host\":\"" HASH "\",\"machine\":\"\",\"pid_ns\":\"" HASH
                                        "\",\"process\":\"" HASH "\""};
    json_error_t e;
    char text[4096];
    json_t *j;

    snprintf(text, sizeof text,
             "{\"v\":%d,\"sort\":\"ipc\",%s,\"nonce\":\"" NONCE "\",\"fd\":3,\"memory\":%s}",
             version, place[version], memory);
    j = json_loads(text, 0, &e);
    if (!j)
        fail_msg("%s: %s", e.text, text);
    return j;
}

static json_t *keys_with(const char *memory)
{
    return keys_of(GPUIPC_VERSION, memory);
}

TEST(reads_what_is_written)
{
    struct gpuipc_keys k = {.sort = TEI_GPU_FABRIC, .fd = 9};
    struct gpuipc_entry e[2] = {
        {.base = 1 << 20, .length = 4096, .slot = 5, .generation = 1},
        {.base = 1 << 16, .length = 1, .slot = 16383, .generation = UINT32_MAX}};
    json_t *j, *list = json_array();
    struct gpuipc_keys r;

    tei_random(k.nonce, sizeof k.nonce);
    tei_here(k.nonce, &k.here);
    for (size_t i = 0; i < 2; i++) {
        tei_random(e[i].handle, sizeof e[i].handle);
        tei_random(e[i].uuid, sizeof e[i].uuid);
        e[i].device = -1;
        json_array_append_new(list, tei_gpuipc_entry_json(&e[i]));
    }
    j = tei_gpuipc_keys_json(&k);
    json_object_set_new(j, "memory", list);
    assert_null(tei_gpuipc_keys_read(j, &r));
    assert_true(r.ours);
    assert_int_equal(r.sort, TEI_GPU_FABRIC);
    assert_int_equal(r.version, 2);
    assert_string_equal(r.here.host, k.here.host);
    assert_string_equal(r.here.machine, k.here.machine);
    assert_string_equal(r.here.pid_ns, k.here.pid_ns);
    assert_string_equal(r.here.process, k.here.process);
    assert_memory_equal(r.nonce, k.nonce, sizeof k.nonce);
    assert_int_equal(r.fd, 9);
    assert_int_equal(r.n, 2);
    assert_memory_equal(&r.v[0], &e[1], sizeof e[1]);
    assert_memory_equal(&r.v[1], &e[0], sizeof e[0]);
    tei_gpuipc_keys_fini(&r);
    json_decref(j);
}

/* Nothing in what is written is a name of this host, nor the number of this process. */
TEST(tells_no_names)
{
    struct gpuipc_keys k = {.version = GPUIPC_VERSION};
    char boot[64], pid[16], *text;
    json_t *j;

    tei_random(k.nonce, sizeof k.nonce);
    tei_here(k.nonce, &k.here);
    j = tei_gpuipc_keys_json(&k);
    text = json_dumps(j, 0);
    tei_file_word("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(pid, sizeof pid, ": %d", (int)getpid());
    assert_string_not_equal(k.here.process, "");
    assert_null(strstr(text, boot));
    assert_null(strstr(text, pid));
    assert_null(json_object_get(j, "pid"));
    free(text);
    json_decref(j);
}

/* Version 1, as 0.1 writes it. */
TEST(reads_the_first_version)
{
    json_t *j = keys_of(1, "[[4096,4096,\"" HEX "\",0,1,\"" UUID "\"]]");
    struct gpuipc_keys k;

    assert_null(tei_gpuipc_keys_read(j, &k));
    assert_int_equal(k.version, 1);
    assert_string_equal(k.boot, "b");
    assert_string_equal(k.machine, "");
    assert_int_equal(k.pid, 12);
    assert_int_equal(k.fd, 3);
    assert_int_equal(k.n, 1);
    tei_gpuipc_keys_fini(&k);
    json_decref(j);
}

/* In either case, and with elements that are not known yet. */
TEST(reads_what_others_might_write)
{
    json_t *j = keys_with("[[4096,4096,\"" HEX "\",0,1,\"" UUID "\",\"more\"]]");
    struct gpuipc_keys k;

    assert_null(tei_gpuipc_keys_read(j, &k));
    assert_int_equal(k.n, 1);
    assert_int_equal(k.v[0].handle[1], 0x11);
    assert_int_equal(k.v[0].handle[63], 0xff);
    assert_int_equal(k.v[0].uuid[4], 0x89);
    assert_int_equal(k.v[0].uuid[8], 0xfe);
    tei_gpuipc_keys_fini(&k);
    json_decref(j);
    j = keys_with("[]");
    assert_null(tei_gpuipc_keys_read(j, &k));
    assert_int_equal(k.n, 0);
    tei_gpuipc_keys_fini(&k);
    json_decref(j);
}

static void check_bad(json_t *j, const char *what)
{
    struct gpuipc_keys k;

    if (!tei_gpuipc_keys_read(j, &k))
        fail_msg("was taken: %s", what);
    assert_null(k.v);
    json_decref(j);
}

TEST(refuses_bad_memory)
{
    static const char *const bad[] = {
        "{}",
        "[1]",
        "[[]]",
        "[[4096,4096,\"" HEX "\",0,1]]",
        "[[0,4096,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[-4096,4096,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[4096,0,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[4096,-1,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[4096,9223372036854775807,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[4096.0,4096,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[\"4096\",4096,\"" HEX "\",0,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "0\",0,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "00\",0,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HANDLE HANDLE HANDLE "\",0,1,\"" UUID "\"]]",
        "[[4096,4096,\"\",0,1,\"" UUID "\"]]",
        "[[4096,4096,\"G0112233445566778899AABBCCDDEEFF" HANDLE HANDLE HANDLE "\",0,1,\"" UUID
        "\"]]",
        "[[4096,4096,null,0,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "\",16384,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "\",-1,1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "\",0,4294967296,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "\",0,-1,\"" UUID "\"]]",
        "[[4096,4096,\"" HEX "\",0,1,\"\"]]",
        "[[4096,4096,\"" HEX "\",0,1,7]]",
        /* overlapping, the same, and one within the other, in any order */
        "[[4096,4096,\"" HEX "\",0,1,\"" UUID "\"],[8191,1,\"" HEX "\",1,1,\"" UUID "\"]]",
        "[[8191,1,\"" HEX "\",0,1,\"" UUID "\"],[4096,4096,\"" HEX "\",1,1,\"" UUID "\"]]",
        "[[4096,1,\"" HEX "\",0,1,\"" UUID "\"],[4096,1,\"" HEX "\",1,1,\"" UUID "\"]]",
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++)
        check_bad(keys_with(bad[i]), bad[i]);
}

TEST(refuses_too_many)
{
    json_t *j = keys_with("[]"), *list = json_object_get(j, "memory");
    struct gpuipc_entry e = {.length = 4096};
    struct gpuipc_keys k;

    for (uint32_t i = 0; i < GPUIPC_SLOTS; i++) {
        e.base = (i + UINT64_C(1)) << 12;
        e.slot = i;
        json_array_append_new(list, tei_gpuipc_entry_json(&e));
    }
    assert_null(tei_gpuipc_keys_read(j, &k));
    assert_int_equal(k.n, GPUIPC_SLOTS);
    tei_gpuipc_keys_fini(&k);
    json_array_append_new(list, tei_gpuipc_entry_json(&e));
    check_bad(j, "one more than there may be");
}

struct bad_value {
    const char *key, *value;
};

static void refuse_heads(int version, const char *const *keys, size_t n_keys,
                         const struct bad_value *bad, size_t n_bad)
{
    for (size_t i = 0; i < n_keys; i++) {
        json_t *j = keys_of(version, "[]");

        json_object_del(j, keys[i]);
        check_bad(j, keys[i]);
    }
    for (size_t i = 0; i < n_bad; i++) {
        json_t *j = keys_of(version, "[]");

        json_object_set_new(j, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        check_bad(j, bad[i].value);
    }
}

TEST(refuses_bad_heads)
{
    static const char *const keys[] = {"v",       "sort", "host",  "machine", "pid_ns",
                                       "process", "fd",   "nonce", "memory"};
    static const struct bad_value bad[] = {{"v", "3"},
                                           {"v", "\"2\""},
                                           {"v", "1"},
                                           {"sort", "\"IPC\""},
                                           {"host", "1"},
                                           {"host", "\"b\""},
                                           {"host", "{\"boot\":\"b\",\"machine\":\"\"}"},
                                           {"machine", "\"" HASH "0\""},
                                           {"pid_ns", "\"" NONCE "00\""},
                                           {"process", "12"},
                                           {"nonce", "\"\""}};

    refuse_heads(GPUIPC_VERSION, keys, TEI_ARRAY_LEN(keys), bad, TEI_ARRAY_LEN(bad));
    check_bad(json_array(), "an array");
    check_bad(json_null(), "null");
}

TEST(refuses_bad_heads_of_the_first_version)
{
    static const char *const keys[] = {"v", "sort", "host", "nonce", "pid", "fd", "memory"};
    static const struct bad_value bad[] = {{"v", "2"},
                                           {"v", "\"1\""},
                                           {"sort", "\"\""},
                                           {"sort", "\"IPC\""},
                                           {"sort", "1"},
                                           {"host", "\"b\""},
                                           {"host", "{\"boot\":\"b\"}"},
                                           {"host", "{\"boot\":\"a b\",\"machine\":\"\"}"},
                                           {"host", "{\"boot\":\"b\",\"machine\":\"\\n\"}"},
                                           {"nonce", "\"\""},
                                           {"nonce", "\"" NONCE "00\""},
                                           {"pid", "-1"},
                                           {"pid", "2147483648"},
                                           {"fd", "\"3\""},
                                           {"fd", "-1"}};

    refuse_heads(1, keys, TEI_ARRAY_LEN(keys), bad, TEI_ARRAY_LEN(bad));
}

/* ------------------------------------------------------------------------- as others write them */

static struct tei_segment *segment_with(const char *buffers)
{
    struct tei_segment *s = NULL;
    char text[4096];

    snprintf(text, sizeof text, "{\"name\":\"h:1\",\"protocol\":\"nvlink_intra\",\"buffers\":%s}",
             buffers);
    assert_int_equal(tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &s), 0);
    return s;
}

TEST(reads_buffers)
{
    struct tei_segment *s =
        segment_with("[{\"name\":\"cuda:13\",\"addr\":1048576,\"length\":65536,\"shm_name\":\"" HEX
                     "\"},{\"name\":\"cpu:0\",\"addr\":65536,\"length\":4096,\"shm_name\":\"\"},"
                     "{\"name\":\"*\",\"addr\":131072,\"length\":4096},"
                     "{\"name\":\"*\",\"addr\":262144,\"length\":8192,\"shm_name\":\"" HEX "\"}]");
    struct gpuipc_keys k;

    assert_null(tei_gpuipc_keys_of_buffers(s, &k));
    assert_false(k.ours);
    assert_int_equal(k.n, 2);
    assert_int_equal(k.v[0].base, 262144);
    assert_int_equal(k.v[0].device, -1);
    assert_int_equal(k.v[1].base, 1048576);
    assert_int_equal(k.v[1].length, 65536);
    assert_int_equal(k.v[1].device, 13);
    assert_int_equal(k.v[1].slot, GPUIPC_NO_SLOT);
    assert_int_equal(k.v[1].handle[2], 0x22);
    tei_gpuipc_keys_fini(&k);
    tei_segment_put(s);
}

TEST(refuses_bad_buffers)
{
    static const char *const bad[] = {
        "\"00\"", "7",    "\"" HEX "00\"",
        "[]",     "null", "\"zz112233445566778899AABBCCDDEEFF" HANDLE HANDLE HANDLE "\""};
    char text[1024];

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        struct tei_segment *s;
        struct gpuipc_keys k;

        snprintf(text, sizeof text,
                 "[{\"name\":\"cuda:0\",\"addr\":65536,\"length\":4096,\"shm_name\":%s}]", bad[i]);
        s = segment_with(text);
        if (!tei_gpuipc_keys_of_buffers(s, &k))
            fail_msg("was taken: %s", bad[i]);
        tei_segment_put(s);
    }
}

TEST(compares_hosts)
{
    assert_true(tei_gpuipc_same_host_name("Node1:12345", "node1:9"));
    assert_true(tei_gpuipc_same_host_name("node1", "NODE1:9"));
    assert_true(tei_gpuipc_same_host_name("[::1]:12", "[::1]:13"));
    assert_false(tei_gpuipc_same_host_name("node1:12345", "node2:12345"));
    assert_false(tei_gpuipc_same_host_name("node1:1", "node11:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_what_is_written),
                                       cmocka_unit_test(reads_what_others_might_write),
                                       cmocka_unit_test(refuses_bad_memory),
                                       cmocka_unit_test(refuses_too_many),
                                       cmocka_unit_test(refuses_bad_heads),
                                       cmocka_unit_test(refuses_bad_heads_of_the_first_version),
                                       cmocka_unit_test(tells_no_names),
                                       cmocka_unit_test(reads_the_first_version),
                                       cmocka_unit_test(reads_buffers),
                                       cmocka_unit_test(refuses_bad_buffers),
                                       cmocka_unit_test(compares_hosts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
