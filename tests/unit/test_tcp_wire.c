/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp_wire.h"
#include "test.h"

#include "base/crc32c.h"
#include "te.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As captured from an engine of this protocol family: 64 bytes at 0x7f441f600000. */
static const uint8_t read_v2[] = {0x40, 0,    0, 0, 0,    0, 0, 0, 0, 0, 0x60, 0x1f,
                                  0x44, 0x7f, 0, 0, 0x80, 0, 0, 0, 0, 0, 0,    0};
static const uint8_t write_v2[] = {0x40, 0,    0, 0, 0,    0, 0, 0, 0, 0, 0x60, 0x1f,
                                   0x44, 0x7f, 0, 0, 0x81, 0, 0, 0, 0, 0, 0,    0};
static const uint8_t status_ok[] = {0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};
static const uint8_t status_rejected[] = {1, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};

TEST(headers_are_the_captured_ones)
{
    struct tcp_head h = {.size = 64, .addr = 0x7f441f600000, .opcode = TE_READ, .version = 2};
    uint8_t out[TCP_HEAD_LEN];

    memset(out, 0xff, sizeof out);
    tei_tcp_head_encode(&h, out);
    assert_memory_equal(out, read_v2, sizeof out);
    h.opcode = TE_WRITE;
    tei_tcp_head_encode(&h, out);
    assert_memory_equal(out, write_v2, sizeof out);
    h.version = 1;
    tei_tcp_head_encode(&h, out);
    assert_int_equal(out[16], 1);
    h.opcode = TE_READ;
    tei_tcp_head_encode(&h, out);
    assert_int_equal(out[16], 0);
}

TEST(status_is_the_captured_one)
{
    uint8_t out[TCP_STATUS_LEN];
    uint32_t code = 7;

    tei_tcp_status_encode(TCP_STATUS_OK, out);
    assert_memory_equal(out, status_ok, sizeof out);
    assert_true(tei_tcp_status_decode(out, &code));
    assert_int_equal(code, TCP_STATUS_OK);
    tei_tcp_status_encode(TCP_STATUS_REJECTED, out);
    assert_memory_equal(out, status_rejected, sizeof out);
    assert_true(tei_tcp_status_decode(out, &code));
    assert_int_equal(code, TCP_STATUS_REJECTED);
    out[7] ^= 1;
    assert_false(tei_tcp_status_decode(out, &code));
}

TEST(padding_and_odd_opcodes)
{
    static const struct {
        uint8_t byte;
        int opcode, version;
    } rows[] = {{0x00, TE_READ, 1}, {0x01, TE_WRITE, 1}, {0x02, TE_READ, 1}, {0x7f, TE_READ, 1},
                {0x80, TE_READ, 2}, {0x81, TE_WRITE, 2}, {0x82, TE_READ, 2}, {0xff, TE_READ, 2}};
    uint8_t in[TCP_HEAD_LEN];

    memcpy(in, read_v2, sizeof in);
    memset(in + 17, 0xee, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tcp_head h;

        in[16] = rows[i].byte;
        tei_tcp_head_decode(in, &h);
        assert_int_equal(h.opcode, rows[i].opcode);
        assert_int_equal(h.version, rows[i].version);
        assert_int_equal(h.size, 64);
        assert_int_equal(h.addr, 0x7f441f600000);
    }
}

TEST(what_is_encoded_is_decoded)
{
    srand(1);
    for (int i = 0; i < 10000; i++) {
        struct tcp_head h = {.opcode = rand() % 2, .version = 1 + rand() % 2}, back;
        uint8_t bytes[TCP_HEAD_LEN];

        h.size = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        h.addr = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        tei_tcp_head_encode(&h, bytes);
        tei_tcp_head_decode(bytes, &back);
        assert_int_equal(h.size, back.size);
        assert_int_equal(h.addr, back.addr);
        assert_int_equal(h.opcode, back.opcode);
        assert_int_equal(h.version, back.version);
    }
}

/* ------------------------------------------------------------------------------- native framing */

static uint64_t draw64(void)
{
    return (uint64_t)rand() << 42 ^ (uint64_t)rand() << 21 ^ (uint64_t)rand();
}

TEST(native_round_trips)
{
    for (int i = 0; i < 10000; i++) {
        struct tcp_hello h = {(unsigned)rand() & 0xffff,
                              (unsigned)rand() & 0xffff,
                              draw64(),
                              draw64(),
                              draw64(),
                              (size_t)(rand() % 65536) * TCP_OPTION_UNIT},
                         h2;
        struct tcp_frame_head f = {(unsigned)rand() & 0xff,
                                   (unsigned)rand() & 0xffff,
                                   (uint32_t)draw64(),
                                   draw64(),
                                   draw64(),
                                   (uint32_t)draw64(),
                                   (uint32_t)draw64(),
                                   (size_t)(rand() % 256) * TCP_OPTION_UNIT},
                              f2;
        struct tcp_range r = {draw64(), (uint32_t)draw64()}, r2;
        uint8_t bytes[TCP_HELLO_LEN];

        tei_tcp_hello_encode(&h, bytes);
        assert_true(tei_tcp_hello_begins(bytes));
        tei_tcp_hello_decode(bytes, &h2);
        assert_true(h.version == h2.version && h.flags == h2.flags && h.target == h2.target &&
                    h.client == h2.client && h.connection == h2.connection &&
                    h2.options == (h.version == TCP_NATIVE_FIRST ? 0 : h.options));
        tei_tcp_frame_encode(&f, bytes);
        tei_tcp_frame_decode(bytes, &f2);
        assert_true(f.type == f2.type && f.count == f2.count && f.crc == f2.crc && f.id == f2.id &&
                    f.length == f2.length && f.verdict == f2.verdict && f.index == f2.index &&
                    f.options == f2.options);
        tei_tcp_range_encode(&r, bytes);
        tei_tcp_range_decode(bytes, &r2);
        assert_true(r.addr == r2.addr && r.length == r2.length);
    }
}

/* Any bytes can be decoded. */
TEST(hostile_bytes)
{
    uint8_t bytes[TCP_HELLO_LEN], again[TCP_HELLO_LEN];
    struct tcp_frame_head f;

    for (int i = 0; i < 10000; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)(rand() >> 5);
        tei_tcp_frame_decode(bytes, &f);
        tei_tcp_frame_encode(&f, again);
        assert_memory_equal(again, bytes, TCP_FRAME_LEN);
    }
}

/* A greeting is no header that anybody sends: its size wraps. And the other way round. */
TEST(a_greeting_is_no_header)
{
    struct tcp_hello h = {.version = TCP_NATIVE_VERSION, .target = 1};
    uint8_t bytes[TCP_HELLO_LEN];
    struct tcp_head head;
    uint64_t end;

    tei_tcp_hello_encode(&h, bytes);
    tei_tcp_head_decode(bytes, &head);
    assert_false(tei_add_ok(head.size, UINT64_C(1) << 56, &end)); /* addresses end before that */
    for (size_t bit = 0; bit < 64; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(tei_tcp_hello_begins(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_false(tei_tcp_hello_begins(read_v2));
}

/* Each bit of a header and its blocks counts, those of the checksum itself included. */
TEST(seals)
{
    struct tcp_frame_head f = {.type = TCP_FRAME_READ, .count = 3, .id = 77};
    uint8_t bytes[TCP_FRAME_LEN + 3 * TCP_BLOCK_LEN];

    tei_tcp_frame_encode(&f, bytes);
    for (size_t i = TCP_FRAME_LEN; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rand();
    tei_tcp_frame_seal(bytes, sizeof bytes);
    assert_true(tei_tcp_frame_intact(bytes, sizeof bytes));
    tei_tcp_frame_seal(bytes, sizeof bytes); /* the field counts as 0 */
    assert_true(tei_tcp_frame_intact(bytes, sizeof bytes));
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(tei_tcp_frame_intact(bytes, sizeof bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* -------------------------------------------------------------------------------------- options */

/* Kind and length of each, two bytes each; then padding, zeros or not. */
TEST(lists_of_options)
{
    static const struct {
        uint8_t bytes[32];
        size_t n;
        bool good;
        uint32_t unknown;
    } rows[] = {
        {{0}, 0, true, 0},
        {{1, 0, 0, 0, 9, 9, 9, 9}, 8, true, 0},
        {{1, 0, 4, 0, 9, 9, 9, 9}, 8, true, 0},
        {{0xff, 0x7f, 4, 0}, 8, true, 0},
        {{1, 0x80, 4, 0}, 8, true, 1},
        {{0xff, 0xff, 4, 0}, 8, true, 0x7fff},
        {{1, 0, 5, 0}, 16, true, 0},
        {{1, 0, 12, 0}, 16, true, 0},
        {{1, 0, 4, 0, 9, 9, 9, 9, 7, 0x80, 0, 0}, 16, true, 7},
        {{1, 0, 12, 0, 9, 9, 9, 9, 7, 0x80, 0, 0}, 16, true, 0}, /* a value, not an option */
        {{3, 0x80, 0, 0, 0, 0, 0, 0, 2, 0x80}, 16, true, 3},
        {{2, 0x80, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x80},
         32,
         true,
         2},
        {{0}, 8, false, 0},
        {{0, 0x80, 4, 0}, 8, false, 0},
        {{1, 0, 5, 0}, 8, false, 0},
        {{1, 0, 0xff, 0xff}, 8, false, 0},
        {{1, 0, 13, 0}, 16, false, 0},
        {{1, 0, 4, 0}, 16, false, 0}, /* what is left of it is none */
        {{1, 0, 4, 0, 9, 9, 9, 9, 1, 0, 5, 0}, 16, false, 0},
    };
    uint32_t unknown = 99;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *exact = malloc(rows[i].n + 1); /* for a sanitizer to see the end of */

        assert_non_null(exact);
        memcpy(exact, rows[i].bytes, rows[i].n);
        assert_int_equal(tei_tcp_options_read(exact, rows[i].n, 0, &unknown), rows[i].good);
        if (rows[i].good)
            assert_int_equal(unknown, rows[i].unknown);
        free(exact);
    }
}

/* A list that is cut off between two options is one, any other is not. */
TEST(lists_cut_off)
{
    uint8_t bytes[TCP_OPTIONS_MAX] = {0};
    bool ends[TCP_OPTIONS_MAX / TCP_OPTION_UNIT + 1] = {true};
    uint32_t unknown;
    size_t n = 0;

    for (size_t len; n + 64 < sizeof bytes; n += len) {
        unsigned value = (unsigned)rand() % 40;

        bytes[n] = (uint8_t)(1 + rand() % 255);
        bytes[n + 2] = (uint8_t)value;
        len = (TCP_OPTION_LEN + value + TCP_OPTION_UNIT - 1) / TCP_OPTION_UNIT * TCP_OPTION_UNIT;
        ends[(n + len) / TCP_OPTION_UNIT] = true;
    }
    for (size_t at = 0; at <= n; at += TCP_OPTION_UNIT)
        assert_int_equal(tei_tcp_options_read(bytes, at, 0, &unknown), ends[at / TCP_OPTION_UNIT]);
}

/* ------------------------------------------------------------------------------ the documentation */

static char *read_text(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "r");

    assert_non_null(text);
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* As docs/protocol.md writes bytes: 16 a line. */
static void expect_in(const char *text, const uint8_t *bytes, size_t n)
{
    char lines[512], *p = lines;

    for (size_t i = 0; i < n; i++)
        p += sprintf(p, "%s%02x%s", i % 16 ? " " : "    ", bytes[i],
                     i % 16 == 15 || i == n - 1 ? "\n" : "");
    if (!strstr(text, lines))
        fail_msg("docs/protocol.md does not have these bytes:\n%s", lines);
}

static void expect_frame(const char *text, const struct tcp_frame_head *h,
                         const struct tcp_range *r, const char *payload)
{
    uint8_t bytes[TCP_FRAME_LEN + 2 * TCP_BLOCK_LEN], data[64];
    size_t n = TCP_FRAME_LEN, len = strlen(payload);
    uint32_t sum = htole32(tei_crc32c(0, payload, len));

    tei_tcp_frame_encode(h, bytes);
    for (unsigned i = 0; i < h->count; i++, n += TCP_BLOCK_LEN)
        tei_tcp_range_encode(&r[i], bytes + n);
    tei_tcp_frame_seal(bytes, n);
    expect_in(text, bytes, n);
    if (len == 0)
        return;
    memcpy(data, payload, len);
    memcpy(data + len, &sum, sizeof sum);
    expect_in(text, data, len + sizeof sum);
}

/* A READ with an option that may be passed over. */
static void expect_option(const char *text)
{
    static const uint8_t option[] = {0x34, 0x12, 3, 0, 'a', 'b', 'c', 0};
    const struct tcp_frame_head h = {
        .type = TCP_FRAME_READ, .count = 1, .id = 4, .options = sizeof option};
    uint8_t bytes[TCP_FRAME_LEN + TCP_BLOCK_LEN + sizeof option];

    tei_tcp_frame_encode(&h, bytes);
    tei_tcp_range_encode(&(struct tcp_range){0x7f441f600000, 5}, bytes + TCP_FRAME_LEN);
    memcpy(bytes + sizeof bytes - sizeof option, option, sizeof option);
    tei_tcp_frame_seal(bytes, sizeof bytes);
    expect_in(text, bytes, sizeof bytes);
}

/* The example of the section "Native framing". */
TEST(the_example_is_right)
{
    char *text = read_text(TE_TEST_SRC "/docs/protocol.md");
    const struct tcp_hello hello = {
        TCP_NATIVE_VERSION, TCP_HELLO_CRC32C, 0x6f3c0a94d2e81b57, 0x1d4e9b02c3a5f687, 5, 0};
    const struct tcp_range r[2] = {{0x7f441f600000, 5}, {0x7f441f700000, 3}};
    uint8_t bytes[TCP_HELLO_LEN];

    tei_tcp_hello_encode(&hello, bytes);
    expect_in(text, bytes, sizeof bytes);
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_HELLO}, r, "");
    expect_frame(
        text, &(struct tcp_frame_head){.type = TCP_FRAME_WRITE, .count = 2, .id = 1, .length = 8},
        r, "helloyou");
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_ACK, .id = 1}, r, "");
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_READ, .count = 1, .id = 2}, r,
                 "");
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = 2, .length = 5}, r,
                 "hello");
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_DROP, .count = 1, .id = 3},
                 &(struct tcp_range){.addr = 4}, "");
    expect_option(text);
    expect_frame(text, &(struct tcp_frame_head){.type = TCP_FRAME_DROPPED, .id = 3}, r, "");
    free(text);
}

/* However the payload is cut. */
TEST(checksums_of_parts)
{
    uint8_t payload[1000], trailer[TCP_TRAILER_LEN];

    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)rand();
    for (int round = 0; round < 1000; round++) {
        uint32_t crc = 0;

        for (size_t moved = 0, n; moved < sizeof payload; moved += n) {
            struct iovec parts[5];
            size_t given = 0;

            for (int i = 0; i < 5; i++) {
                size_t len = tei_min((size_t)rand() % 100, sizeof payload - moved - given);

                parts[i] = (struct iovec){payload + moved + given, len};
                given += len;
            }
            n = given ? (size_t)rand() % (given + 1) : 0;
            crc = tei_tcp_sum(crc, parts, n);
        }
        assert_int_equal(crc, tei_crc32c(0, payload, sizeof payload));
        tei_tcp_trailer_encode(crc, trailer);
        assert_int_equal(tei_tcp_trailer_decode(trailer), crc);
        trailer[rand() % TCP_TRAILER_LEN] ^= 1;
        assert_int_not_equal(tei_tcp_trailer_decode(trailer), crc);
    }
}

TEST(options_are_found_and_written)
{
    static const uint8_t wanted[] = {1, 0x80, 3, 0, 'a', 'b', 'c', 0,
                                     2, 0,    4, 0, 'd', 'e', 'f', 'g'};
    uint8_t list[32];
    uint32_t unknown;
    size_t n = tei_tcp_option_put(list, 1 | TCP_OPTION_MUST, "abc", 3), len = 99;

    assert_int_equal(n, 8);
    n += tei_tcp_option_put(list + n, 2, "defg", 4);
    assert_int_equal(n, sizeof wanted);
    assert_memory_equal(list, wanted, n);
    assert_memory_equal(tei_tcp_option_find(list, n, 1, &len), "abc", 3);
    assert_int_equal(len, 3);
    assert_memory_equal(tei_tcp_option_find(list, n, 2, &len), "defg", 4);
    assert_int_equal(len, 4);
    assert_null(tei_tcp_option_find(list, n, 3, &len));
    assert_null(tei_tcp_option_find(list, 0, 1, &len));
    assert_true(tei_tcp_options_read(list, n, 0, &unknown));
    assert_int_equal(unknown, 1);
    assert_true(tei_tcp_options_read(list, n, TCP_KNOWN(1), &unknown));
    assert_int_equal(unknown, 0);
    list[2] = 100; /* longer than the list */
    assert_null(tei_tcp_option_find(list, n, 1, &len));
    assert_false(tei_tcp_options_read(list, n, TCP_KNOWN(1), &unknown));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_found_and_written),
        cmocka_unit_test(headers_are_the_captured_ones),
        cmocka_unit_test(status_is_the_captured_one),
        cmocka_unit_test(padding_and_odd_opcodes),
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(native_round_trips),
        cmocka_unit_test(hostile_bytes),
        cmocka_unit_test(a_greeting_is_no_header),
        cmocka_unit_test(seals),
        cmocka_unit_test(lists_of_options),
        cmocka_unit_test(lists_cut_off),
        cmocka_unit_test(checksums_of_parts),
        cmocka_unit_test(the_example_is_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
