/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * The native framing as a client: an instance whose target is this test, which answers by hand,
 * rightly or not.
 */
#include "conformance.h"

#include "base/crc32c.h"
#include "base/os.h"
#include "native_stage.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------- what goes well */

static void with_checksums(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

static void pipelines(void **state)
{
    static struct stage s;
    struct native c;
    struct got g[3];

    (void)state;
    for (int crc = 0; crc < 2; crc++) {
        stage_open(&s, crc ? with_checksums : NULL);
        stage_request(&s, 0, TE_READ, 0, 1000);
        c = stage_take(&s);
        g[0] =
            stage_get_request(&s, &c, TCP_FRAME_READ); /* does not wait for the greeting's answer */
        stage_answer(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0);
        stage_request(&s, 1, TE_WRITE, 1000, 777);
        stage_request(&s, 2, TE_READ, 2000, 3);
        g[1] = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        g[2] = stage_get_request(&s, &c, TCP_FRAME_READ);
        stage_put_data(&c, &g[0], 1);
        assert_int_equal(stage_outcome(&s, 0), 0);
        assert_false(stage_is_done(&s, 1));
        stage_answer(&c, TCP_FRAME_ACK, g[1].h.id, TCP_OK, 0);
        stage_put_data(&c, &g[2], 2);
        assert_int_equal(stage_outcome(&s, 1), 0);
        assert_int_equal(stage_outcome(&s, 2), 0);
        stage_expect_pattern(s.memory, 1000, 1);
        stage_expect_pattern(s.memory + 2000, 3, 2);
        close(c.fd);
        stage_close(&s);
    }
}

/* A WRITE is not sent to somebody who may be a stranger. */
static void a_write_waits_for_the_greeting(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    stage_request(&s, 0, TE_WRITE, 0, 100);
    c = stage_take(&s);
    native_expect_silence(c.fd);
    stage_answer(&c, TCP_FRAME_HELLO, 0, TCP_STRANGER, 0);
    assert_int_equal(stage_outcome(&s, 0), TE_ERR_PEER);
    native_expect_end(c.fd);
    stage_request(&s, 1, TE_WRITE, 0, 100);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
    stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 1), 0);
    close(c.fd);
    stage_close(&s);
}

/* Small ones and long ones in one list; each arrives, each once. */
static void lists_of_many_sizes(void **state)
{
    static const size_t sizes[] = {1, 4096, 65537, 3000000, 17, 900};
    static struct stage s;
    uint64_t left = 0;
    struct native c;
    size_t at = 0;

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 0; i < TASKS; i++) {
        size_t n = sizes[i % TEI_ARRAY_LEN(sizes)];

        stage_add(&s, i, i % 5 < 3 ? TE_WRITE : TE_READ, at, n);
        left += n;
        at += n + i % 3;
    }
    assert_true(at <= STAGE_BYTES);
    stage_post(&s);
    c = stage_take_greeted(&s);
    while (left > 0) {
        struct got g = stage_get_head(&c);
        char *bytes = malloc(g.total);

        assert_non_null(bytes);
        assert_true(g.total <= left);
        left -= g.total;
        if (g.h.type == TCP_FRAME_READ) {
            stage_put_data(&c, &g, (uint32_t)g.h.id);
        } else {
            native_get(c.fd, bytes, g.total);
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
        }
        free(bytes);
    }
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    native_expect_silence(c.fd);
    close(c.fd);
    stage_close(&s);
}

/* One ACK for several WRITEs. */
static void an_ack_stands_for_all_before(void **state)
{
    static struct stage s;
    struct native c;
    struct got g = {0};

    (void)state;
    stage_open(&s, NULL);
    stage_request(&s, 0, TE_WRITE, 0, 50);
    c = stage_take_greeted(&s);
    stage_get_request(&s, &c, TCP_FRAME_WRITE);
    for (unsigned i = 1; i < 5; i++) {
        stage_request(&s, i, TE_WRITE, i * 100, 50);
        g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
    }
    stage_answer(&c, TCP_FRAME_ACK, g.h.id - 1, TCP_OK, 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    assert_false(stage_is_done(&s, 4));
    stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 4), 0);
    close(c.fd);
    stage_close(&s);
}

static void two_lanes(struct tei_conf *c)
{
    c->tcp_lanes = c->tcp_threads = 2;
}

/* A lane that was alone when it had nothing to do does not stay alone. */
static void a_second_lane_after_a_rest(void **state)
{
    static struct stage s;
    struct native c[2];
    struct got g;

    (void)state;
    stage_open(&s, two_lanes);
    stage_request(&s, 0, TE_READ, 0, 100);
    c[0] = stage_take_greeted(&s);
    g = stage_get_request(&s, &c[0], TCP_FRAME_READ);
    stage_put_data(&c[0], &g, 1);
    assert_int_equal(stage_outcome(&s, 0), 0);
    stage_request(&s, 1, TE_WRITE, 0, STAGE_BYTES); /* more than a connection takes at once */
    c[1] = stage_take_greeted(&s);
    s.t->ops.cancel(s.t, NULL);
    assert_int_equal(stage_outcome(&s, 1), TE_ERR_CANCELED);
    for (unsigned i = 0; i < 2; i++)
        close(c[i].fd);
    stage_close(&s);
}

/* --------------------------------------------------------------------------------- wrong answers */

static struct tcp_frame_head head(unsigned type, uint64_t id, uint64_t length, uint32_t verdict,
                                  uint32_t index)
{
    return (struct tcp_frame_head){
        .type = type, .id = id, .length = length, .verdict = verdict, .index = index};
}

/* To a READ with id 1, then to a WRITE with id 1. */
static void wrong_answers(void **state)
{
    static struct stage s;
    struct tcp_frame_head to_read[] = {head(TCP_FRAME_DATA, 2, 100, TCP_OK, 0),
                                       head(TCP_FRAME_DATA, 1, 99, TCP_OK, 0),
                                       head(TCP_FRAME_DATA, 1, 0, TCP_OK, 0),
                                       head(TCP_FRAME_DATA, 1, 101, TCP_OK, 0),
                                       head(TCP_FRAME_ACK, 1, 0, TCP_OK, 0),
                                       head(TCP_FRAME_DATA, 1, 100, 99, 0),
                                       head(TCP_FRAME_DATA, 1, 100, TCP_REFUSED, 1),
                                       head(TCP_FRAME_DATA, 1, 100, TCP_NOT_YOURS, 1),
                                       head(TCP_FRAME_DATA, 1, 100, TCP_LEASE_OF_OTHERS, 0),
                                       head(TCP_FRAME_HELLO, 0, 0, TCP_OK, 0),
                                       head(TCP_FRAME_DATA, 1, 100, TCP_STRANGER, 0)};
    struct tcp_frame_head to_write[] = {
        head(TCP_FRAME_ACK, 0, 0, TCP_OK, 0),      head(TCP_FRAME_ACK, 2, 0, TCP_OK, 0),
        head(TCP_FRAME_ACK, 1, 1, TCP_OK, 0),      head(TCP_FRAME_DATA, 1, 0, TCP_OK, 0),
        head(TCP_FRAME_ACK, 1, 0, TCP_REFUSED, 5), head(TCP_FRAME_ACK, 1, 0, 7, 0),
        head(TCP_FRAME_DROPPED, 1, 0, TCP_OK, 0),  head(TCP_FRAME_ACK, UINT64_MAX, 0, TCP_OK, 0)};
    char data[101] = {0};

    (void)state;
    for (unsigned i = 0; i < TEI_ARRAY_LEN(to_read) + TEI_ARRAY_LEN(to_write); i++) {
        bool read = i < TEI_ARRAY_LEN(to_read);
        struct native c;

        stage_open(&s, NULL); /* one that has no earlier WRITE to ask about */
        stage_request(&s, 0, read ? TE_READ : TE_WRITE, 0, 100);
        c = stage_take_greeted(&s);
        stage_get_request(&s, &c, read ? TCP_FRAME_READ : TCP_FRAME_WRITE);
        native_answer(&c, read ? &to_read[i] : &to_write[i - TEI_ARRAY_LEN(to_read)], data);
        assert_int_equal(stage_outcome(&s, 0), TE_ERR_PROTOCOL);
        native_expect_end(c.fd);
        stage_close(&s);
    }
}

/* Before a WRITE has been sent it cannot have been applied. */
static void an_ack_that_comes_too_early(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        stage_open(&s, NULL); /* one that has no earlier WRITE to ask about */
        stage_request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
        c = stage_take_greeted(&s);
        usleep(20000);
        stage_answer(&c, TCP_FRAME_ACK, i ? 100 * i : 1, TCP_OK, 0);
        if (i) {
            assert_int_equal(stage_outcome(&s, 0), TE_ERR_PROTOCOL);
        } else { /* the first frame may be with the kernel */
            stage_answer(&c, TCP_FRAME_ACK, 1, TCP_OK, 0);
            assert_int_equal(stage_outcome(&s, 0), TE_ERR_PROTOCOL);
        }
        close(c.fd);
        stage_close(&s);
    }
}

/* Bytes that nobody asked for, when all is done. */
static void unasked_bytes_end_the_connection(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 1; i < 40; i += 13) {
        uint8_t bytes[TCP_FRAME_LEN + 40];

        stage_request(&s, 0, TE_WRITE, 0, 100);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        memset(bytes, 0x12, sizeof bytes);
        tei_tcp_frame_encode(&(struct tcp_frame_head){.type = TCP_FRAME_ACK, .id = g.h.id}, bytes);
        native_put(c.fd, bytes, TCP_FRAME_LEN + i);
        assert_int_equal(stage_outcome(&s, 0), 0);
        native_expect_end(c.fd);
    }
    stage_close(&s);
}

/* Garbage, the end, or nothing instead of the greeting's answer: the peer is not there. */
static void what_does_not_greet_is_no_peer(void **state)
{
    static const char garbage[TCP_FRAME_LEN + 1] = "HTTP/1.1 400 Bad Request........";
    static struct stage s;

    (void)state;
    stage_open(&s, NULL);
    for (int i = 0; i < 6; i++) {
        struct native c;

        stage_request(&s, 0, i % 2 ? TE_WRITE : TE_READ, 0, 100);
        if (i < 2) {
            c = stage_take(&s);
            native_put(c.fd, garbage, TCP_FRAME_LEN);
            assert_int_equal(stage_outcome(&s, 0), TE_ERR_PEER);
            close(c.fd);
        } else if (i < 4) {
            for (int k = 0; k < PATIENCE_MS / 20 && !stage_is_done(&s, 0); k++) {
                struct pollfd p = {.fd = s.listener, .events = POLLIN};

                if (poll(&p, 1, 20) == 1)
                    close(accept(s.listener, NULL, NULL));
            }
            assert_int_equal(stage_outcome(&s, 0), TE_ERR_PEER);
        } else {
            c = stage_take(&s);
            assert_int_equal(stage_outcome(&s, 0), TE_ERR_PEER);
            close(c.fd);
        }
    }
    stage_close(&s);
}

static void a_version_that_the_peer_does_not_know(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    for (int crc = 0; crc < 2; crc++) {
        stage_open(&s, crc ? with_checksums : NULL);
        stage_request(&s, 0, TE_WRITE, 0, 100);
        c = stage_take(&s);
        c.crc = false; /* what a server does not know it does not do */
        stage_answer(&c, TCP_FRAME_HELLO, 0, TCP_UNKNOWN, 0);
        assert_int_equal(stage_outcome(&s, 0),
                         TE_ERR_PEER); /* an older engine may have its place */
        assert_string_equal(s.tasks[0].why, "the peer does not know this version of the framing");
        native_expect_end(c.fd);
        stage_close(&s);
    }
}

/* ----------------------------------------------------------------------------------- refused ones */

static void small_pieces(struct tei_conf *c)
{
    c->tcp_piece_size = 100;
}

static const char zeros[8192];

/* The others of the frame go out again. */
static void a_refused_block_fails_alone(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    for (int write = 0; write < 2; write++) {
        unsigned type = write ? TCP_FRAME_WRITE : TCP_FRAME_READ;

        for (unsigned i = 0; i < 5; i++)
            stage_add(&s, i, write ? TE_WRITE : TE_READ, i * 1000, 100 + i);
        stage_post(&s);
        if (!write)
            c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, type);
        if (g.h.count == 1) { /* the first went alone */
            if (write)
                stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
            else
                stage_put_data(&c, &g, 1);
            g = stage_get_request(&s, &c, type);
        }
        assert_true(g.h.count >= 4);
        if (write)
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_REFUSED, g.h.count - 2);
        else
            native_answer(&c,
                          &(struct tcp_frame_head){.type = TCP_FRAME_DATA,
                                                   .id = g.h.id,
                                                   .length = g.total,
                                                   .verdict = TCP_REFUSED,
                                                   .index = g.h.count - 2},
                          zeros);
        assert_int_equal(stage_outcome(&s, 3), TE_ERR_STALE);
        g = stage_get_request(&s, &c, type);
        if (write)
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
        else
            stage_put_data(&c, &g, 2);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(stage_outcome(&s, i), i == 3 ? TE_ERR_STALE : 0);
    }
    close(c.fd);
    stage_close(&s);
}

/*
 * What was refused was not applied: the request may be tried with a fresh descriptor, also when the
 * connection ends before its other pieces were refused, too.
 */
static void a_refused_write_stays_refused(void **state)
{
    static struct stage s;

    (void)state;
    for (int i = 0; i < 5; i++) {
        uint8_t bytes[TCP_FRAME_LEN];
        struct native c;
        struct got g;

        stage_open(&s, small_pieces);
        stage_request(&s, 0, TE_WRITE, 0, 700);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        tei_tcp_frame_encode(
            &(struct tcp_frame_head){
                .type = TCP_FRAME_ACK, .id = g.h.id, .verdict = TCP_REFUSED, .index = 2},
            bytes);
        setsockopt(c.fd, IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int)); /* answer and end as one */
        native_put(c.fd, bytes, sizeof bytes);
        close(c.fd);
        assert_int_equal(stage_outcome(&s, 0), TE_ERR_STALE);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines),
        cmocka_unit_test(a_write_waits_for_the_greeting),
        cmocka_unit_test(lists_of_many_sizes),
        cmocka_unit_test(a_second_lane_after_a_rest),
        cmocka_unit_test(an_ack_stands_for_all_before),
        cmocka_unit_test(wrong_answers),
        cmocka_unit_test(an_ack_that_comes_too_early),
        cmocka_unit_test(unasked_bytes_end_the_connection),
        cmocka_unit_test(what_does_not_greet_is_no_peer),
        cmocka_unit_test(a_version_that_the_peer_does_not_know),
        cmocka_unit_test(a_refused_block_fails_alone),
        cmocka_unit_test(a_refused_write_stays_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
