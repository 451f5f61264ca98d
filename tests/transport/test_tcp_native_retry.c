/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * The native framing as a client whose connections break and whose works are cancelled or late: what
 * is sent again, and when, and what is touched no more.
 */
#include "conformance.h"

#include "base/crc32c.h"
#include "base/os.h"
#include "native_stage.h"
#include "transport/tcp/tcp_lane.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void with_checksums(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

/* --------------------------------------------------------------------------- broken connections */

/* The end at each stage of a READ: it is sent again, and nothing of it is seen. */
static void a_read_is_sent_again(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;
    char part[TCP_FRAME_LEN + 60];

    (void)state;
    for (int crc = 0; crc < 2; crc++) {
        stage_open(&s, crc ? with_checksums : NULL);
        stage_request(&s, 0, TE_READ, 0, 100);
        for (size_t n = 0; n < sizeof part; n += 13) {
            c = stage_take_greeted(&s);
            g = stage_get_request(&s, &c, TCP_FRAME_READ);
            memset(part, 0xee, sizeof part);
            tei_tcp_frame_encode(
                &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = g.h.id, .length = 100},
                (uint8_t *)part);
            if (crc)
                tei_tcp_frame_seal((uint8_t *)part, TCP_FRAME_LEN);
            native_put(c.fd, part, n);
            usleep(2000);
            close(c.fd);
        }
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_READ);
        stage_put_data(&c, &g, 3);
        assert_int_equal(stage_outcome(&s, 0), 0);
        stage_expect_pattern(s.memory, 100, 3);
        close(c.fd);
        stage_close(&s);
    }
}

static void with_stories(struct tei_conf *c)
{
    c->slow_ms = 1;
}

/* A READ whose connection breaks once: its story has both tries, and the addresses of the second. */
static void a_story_has_the_tries(void **state)
{
    static struct stage s;
    struct tei_story story = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char way[TEI_STORY_PATH];
    struct tei_addr from = {.len = sizeof from.ss};
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, with_stories);
    stage_add(&s, 0, TE_READ, 0, 100)->story = &story;
    stage_post(&s);
    c = stage_take_greeted(&s);
    (void)stage_get_request(&s, &c, TCP_FRAME_READ);
    close(c.fd);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_READ);
    assert_int_equal(getpeername(c.fd, (struct sockaddr *)&from.ss, &from.len), 0);
    snprintf(way, sizeof way, "%s to 127.0.0.1:", tei_addr_format(&from, (char[80]){0}, 80));
    stage_put_data(&c, &g, 3);
    assert_int_equal(stage_outcome(&s, 0), 0);
    assert_int_equal(story.parts, 1);
    assert_int_equal(story.retries, 1);
    assert_int_equal(story.path_changes, 0);
    assert_true(story.moving_ns > 0);
    assert_ptr_equal(strstr(story.path, way), story.path);
    close(c.fd);
    stage_close(&s);
}

/*
 * A target that was away for longer than connecting may take, and then closes the connection whose
 * greeting it has not answered: that is a try, and others are left.
 */
static void a_late_end_of_the_greeting_is_a_try(void **state)
{
    static struct stage s;
    struct pollfd again = {.events = POLLIN};
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    stage_request(&s, 0, TE_READ, 0, 100);
    c = stage_take(&s);
    usleep((useconds_t)(TCP_CONNECT_NS / 1000 + 100000));
    close(c.fd); /* with bytes that were not read: a reset */
    again.fd = s.listener;
    assert_int_equal(poll(&again, 1, PATIENCE_MS), 1);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_READ);
    stage_put_data(&c, &g, 3);
    assert_int_equal(stage_outcome(&s, 0), 0);
    stage_expect_pattern(s.memory, 100, 3);
    close(c.fd);
    stage_close(&s);
}

static void a_wrong_checksum_is_tried_again(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;
    char data[104] = {1};

    (void)state;
    stage_open(&s, with_checksums);
    stage_request(&s, 0, TE_READ, 0, 100);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_READ);
    native_answer(&c, &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = g.h.id, .length = 100},
                  data);
    assert_int_equal(stage_outcome(&s, 0), 0);
    stage_request(&s, 0, TE_READ, 0, 100);
    g = stage_get_request(&s, &c, TCP_FRAME_READ);
    {
        uint8_t h[TCP_FRAME_LEN];

        tei_tcp_frame_encode(
            &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = g.h.id, .length = 100}, h);
        tei_tcp_frame_seal(h, sizeof h);
        native_put(c.fd, h, sizeof h);
        native_put(c.fd, data, sizeof data);
    }
    native_expect_end(c.fd);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_READ);
    stage_put_data(&c, &g, 5);
    assert_int_equal(stage_outcome(&s, 0), 0);
    stage_expect_pattern(s.memory, 100, 5);
    close(c.fd);
    stage_close(&s);
}

/*
 * A WRITE that was cut off is sent again only once the old connection is known to be dropped. Until
 * then no byte of it.
 */
static void a_write_is_sent_again_after_a_drop(void **state)
{
    static struct stage s;
    uint64_t first;
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    for (int whole = 0; whole < 2; whole++) {
        stage_request(&s, 0, TE_WRITE, 0, 100000);
        c = stage_take_greeted(&s);
        first = s.hello.connection;
        if (whole)
            stage_get_request(&s, &c, TCP_FRAME_WRITE);
        else
            stage_get_head(&c);
        close(c.fd);
        /* Without an answer it is asked again, on the next connection. */
        for (int i = 0; i < 3; i++) {
            c = stage_take_greeted(&s);
            assert_true(s.hello.connection != first);
            assert_true(s.hello.connection >> 16 &&
                        s.hello.connection - first > 1000); /* no count */
            g = stage_get_request(&s, &c, TCP_FRAME_DROP);
            assert_int_equal(g.h.count, 1);
            assert_int_equal(g.r[0].addr, first);
            assert_int_equal(g.r[0].length, 0);
            native_expect_silence(c.fd);
            assert_false(stage_is_done(&s, 0));
            if (i < 2)
                close(c.fd);
        }
        stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
        g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        assert_int_equal(g.total, 100000);
        stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
        assert_int_equal(stage_outcome(&s, 0), 0);
        close(c.fd);
        WAIT_FOR(stage_connections(&s) == 0);
    }
    stage_close(&s);
}

/* A DROP cannot be refused. */
static void a_refused_drop_is_an_error(void **state)
{
    static struct stage s;
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    stage_request(&s, 0, TE_WRITE, 0, 100);
    c = stage_take_greeted(&s);
    stage_get_head(&c);
    close(c.fd);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_DROP);
    stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_REFUSED, 0);
    native_expect_end(c.fd);
    c = stage_take_greeted(&s);
    g = stage_get_request(&s, &c, TCP_FRAME_DROP);
    stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
    g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
    stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 0), 0);
    close(c.fd);
    stage_close(&s);
}

/* A target that never answers a DROP, one that greets and closes: an end comes. */
static void it_does_not_try_for_ever(void **state)
{
    static struct stage s;
    int64_t begin;

    (void)state;
    stage_open(&s, NULL);
    s.host.conf.retry_cnt = 4;
    for (int way = 0; way < 3; way++) {
        int connections = 0;

        begin = tei_now_ns();
        stage_request(&s, 0, way == 2 ? TE_READ : TE_WRITE, 0, 100);
        while (!stage_is_done(&s, 0) && tei_now_ns() - begin < PATIENCE_NS) {
            struct pollfd p = {.fd = s.listener, .events = POLLIN};
            struct native c;

            if (poll(&p, 1, 20) != 1)
                continue;
            c = stage_take(&s);
            /* Answer and end come as one: the client has sent no WRITE yet. */
            setsockopt(c.fd, IPPROTO_TCP, TCP_CORK, &way, sizeof way);
            stage_answer(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0);
            if (way != 1)
                (void)stage_get_head(&c);
            close(c.fd);
            connections++;
        }
        assert_int_equal(stage_outcome(&s, 0), TE_ERR_LINK);
        assert_true(connections >= 2 && connections <= 12);
    }
    stage_close(&s);
}

/* --------------------------------------------------------------------------- cancel and deadline */

/* What comes for a READ that has ended does not land; the connection stays good. */
static void an_ended_read_is_quiet(void **state)
{
    static struct stage s;
    struct native c;
    struct got g[2];

    (void)state;
    for (int how = 0; how < 4; how++) {
        bool by_deadline = how % 2;
        struct tei_work *w;
        char before[5000];
        char *data = malloc(6000);

        assert_non_null(data);
        stage_open(&s, how >= 2 ? with_checksums : NULL);
        w = stage_add(&s, 0, TE_READ, 0, 5000);
        w->owner = &s;
        if (by_deadline)
            w->deadline_ns = tei_now_ns() + 1500 * TEI_NS_PER_MS; /* all of this has begun */
        stage_post(&s);
        c = stage_take_greeted(&s);
        g[0] = stage_get_request(&s, &c, TCP_FRAME_READ);
        stage_request(&s, 1, TE_READ, 8000, 1000);
        g[1] = stage_get_request(&s, &c, TCP_FRAME_READ);
        assert_int_equal(g[1].h.id, 2);
        { /* half of it, then the end, then the rest */
            uint8_t h[TCP_FRAME_LEN];
            uint32_t sum;

            tei_tcp_frame_encode(
                &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = 1, .length = 5000}, h);
            if (s.crc)
                tei_tcp_frame_seal(h, sizeof h);
            memset(data, 0x77, 5000);
            native_put(c.fd, h, sizeof h);
            native_put(c.fd, data, 2500);
            usleep(20000);
            if (!by_deadline)
                s.t->ops.cancel(s.t, &s);
            assert_int_equal(stage_outcome(&s, 0), by_deadline ? TE_ERR_TIMEOUT : TE_ERR_CANCELED);
            fill_pattern(s.memory, 5000, 99);
            memcpy(before, s.memory, 5000);
            sum = htole32(tei_crc32c(0, data, 5000));
            memcpy(data + 5000, &sum, sizeof sum);
            native_put(c.fd, data + 2500, 2500u + (s.crc ? sizeof sum : 0));
        }
        stage_put_data(&c, &g[1], 4);
        assert_int_equal(stage_outcome(&s, 1), 0);
        stage_expect_pattern(s.memory + 8000, 1000, 4);
        assert_memory_equal(s.memory, before, 5000);
        close(c.fd);
        free(data);
        stage_close(&s);
    }
}

/* A WRITE half sent takes its connection with it; what else was on it is not lost. */
static void an_ended_write_costs_the_others_nothing(void **state)
{
    static struct stage s;
    uint64_t first;
    struct native c;
    struct tei_work *w;
    struct got g;

    (void)state;
    stage_open(&s, NULL);
    stage_request(&s, 0, TE_READ, 0, 1000);
    c = stage_take_greeted(&s);
    first = s.hello.connection;
    stage_get_request(&s, &c, TCP_FRAME_READ);
    stage_request(&s, 1, TE_WRITE, 10000, 100);
    stage_get_request(&s, &c, TCP_FRAME_WRITE);
    w = stage_add(&s, 2, TE_WRITE, 0, STAGE_BYTES);
    w->owner = &s;
    stage_post(&s);
    stage_request(&s, 3, TE_WRITE, 20000, 100);
    usleep(50000); /* the sockets are full */
    s.t->ops.cancel(s.t, &s);
    assert_int_equal(stage_outcome(&s, 2), TE_ERR_CANCELED);
    fill_pattern(s.memory + 30000, 100000, 5); /* may be used again */
    close(c.fd);
    c = stage_take_greeted(&s);
    for (int left = 4; left > 0; left--) {
        g = stage_get_head(&c);
        if (g.h.type == TCP_FRAME_DROP) {
            assert_int_equal(g.r[0].addr, first);
            stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
        } else if (g.h.type == TCP_FRAME_READ) {
            stage_put_data(&c, &g, 6);
        } else {
            char bytes[200];

            assert_true(g.total <= sizeof bytes);
            native_get(c.fd, bytes, g.total);
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
            left -= (int)g.h.count - 1;
        }
    }
    assert_int_equal(stage_outcome(&s, 0), 0);
    assert_int_equal(stage_outcome(&s, 1), 0);
    assert_int_equal(stage_outcome(&s, 3), 0);
    stage_expect_pattern(s.memory, 1000, 6);
    close(c.fd);
    stage_close(&s);
}

/* Deadlines are kept also where a work has only frames that wait for a DROP. */
static void a_deadline_while_waiting_for_a_drop(void **state)
{
    static struct stage s;
    struct tei_work *w;
    struct native c;
    int64_t begin;

    (void)state;
    stage_open(&s, NULL);
    begin = tei_now_ns();
    w = stage_add(&s, 0, TE_WRITE, 0, 100);
    w->deadline_ns = begin + 3000 * TEI_NS_PER_MS;
    stage_post(&s);
    c = stage_take_greeted(&s);
    stage_get_head(&c);
    close(c.fd);
    c = stage_take_greeted(&s);
    stage_get_request(&s, &c, TCP_FRAME_DROP);
    assert_true(fake_wait(&s.host, NULL, &s.tasks[0], 1, PATIENCE_MS));
    /* Its bytes may have arrived: it is not said to be late only. */
    assert_true(s.tasks[0].error == TE_ERR_TIMEOUT || s.tasks[0].error == TE_ERR_LINK);
    assert_true(tei_now_ns() - begin > 2990 * TEI_NS_PER_MS);
    close(c.fd);
    stage_close(&s);
}

/* Ending while frames wait in all the places where they can. */
static void closing_ends_all(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    for (int i = 0; i < 4; i++) {
        stage_open(&s, NULL);
        stage_request(&s, 0, TE_WRITE, 0, 100);
        stage_request(&s, 1, TE_READ, 1000, 100);
        c = stage_take_greeted(&s);
        stage_get_head(&c);
        if (i > 0)
            close(c.fd);
        if (i > 1)
            c = stage_take_greeted(&s);
        if (i > 2)
            stage_get_head(&c);
        s.t->ops.close(s.t);
        assert_true(stage_outcome(&s, 0) != 0);
        assert_true(stage_outcome(&s, 1) != 0);
        stage_close(&s);
        if (i != 1)
            close(c.fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_story_has_the_tries),
        cmocka_unit_test(a_read_is_sent_again),
        cmocka_unit_test(a_late_end_of_the_greeting_is_a_try),
        cmocka_unit_test(a_wrong_checksum_is_tried_again),
        cmocka_unit_test(a_write_is_sent_again_after_a_drop),
        cmocka_unit_test(a_refused_drop_is_an_error),
        cmocka_unit_test(it_does_not_try_for_ever),
        cmocka_unit_test(an_ended_read_is_quiet),
        cmocka_unit_test(an_ended_write_costs_the_others_nothing),
        cmocka_unit_test(a_deadline_while_waiting_for_a_drop),
        cmocka_unit_test(closing_ends_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
