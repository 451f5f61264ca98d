/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=240 */
/* Lanes that are opened ahead of work, towards targets that are the test: how many, in what order, how often. */
#include "conformance.h"

#include "native_stage.h"
#include "proc.h"
#include "transport/tcp/tcp_stream.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LANES 4

static void four_lanes(struct tei_conf *c)
{
    c->tcp_lanes = LANES;
    c->tcp_threads = LANES; /* within a host there is one for each */
}

static void ask(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w)
{
    t->ops.warm(t, a, w);
    w->begun = true;
}

static void ask_through(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w)
{
    ask(t, a, w);
    WAIT_FOR((ask(t, a, w), w->opening == 0));
}

/* A transport and a target of version 1 or 2, or at a host of another name. */
struct classic {
    struct fake_host host;
    struct tei_transport *t;
    struct tei_attach *attach;
};

static void open_classic(struct classic *c, uint16_t port, int version, const char *host)
{
    fake_host_init(&c->host);
    four_lanes(&c->host.conf);
    c->t = fake_open(&c->host, "tcp");
    assert_int_equal(fake_attach_json(c->t,
                                      json_pack("{s:i,s:i}", "tcp_data_port", port,
                                                "tcp_proto_version", version),
                                      host, &c->attach),
                     0);
}

static void close_classic(struct classic *c)
{
    fake_detach(c->t, c->attach);
    fake_close(c->t);
    fake_host_fini(&c->host);
}

/* Whether somebody connects within a moment. */
static bool is_dialled(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};

    return poll(&p, 1, 100) > 0;
}

static void one_that_keeps_no_connection_gets_none(void **state)
{
    struct tei_warmth w = {0};
    struct classic c;
    int listener;
    uint16_t port = test_dead_port(&listener);

    (void)state;
    assert_int_equal(listen(listener, 16), 0);
    open_classic(&c, port, 1, "127.0.0.1");
    ask(c.t, c.attach, &w);
    assert_int_equal(w.ready + w.opening + w.failed, 0);
    assert_false(is_dialled(listener));
    close_classic(&c);
    close(listener);
}

/* Each lane is made once, and not again. */
static void one_that_closes_at_once_is_not_dialled_again(void **state)
{
    struct tei_warmth w = {0};
    struct classic c;
    int listener;
    uint16_t port = test_dead_port(&listener);

    (void)state;
    assert_int_equal(listen(listener, 16), 0);
    open_classic(&c, port, 2, "127.0.0.1");
    ask_through(c.t, c.attach, &w);
    assert_int_equal(w.ready, LANES);
    for (int i = 0; i < LANES; i++)
        close(accept(listener, NULL, NULL));
    WAIT_FOR((ask(c.t, c.attach, &w), w.failed == LANES));
    assert_int_equal(w.ready, 0);
    assert_int_equal(w.error, TE_ERR_LINK);
    assert_non_null(strstr(w.why, "closed a connection"));
    assert_false(is_dialled(listener));
    close_classic(&c);
    close(listener);
}

static void one_that_refuses_has_failed(void **state)
{
    struct tei_warmth w = {0};
    struct classic c;
    int held;
    uint16_t port = test_dead_port(&held);

    (void)state;
    open_classic(&c, port, 2, "127.0.0.1");
    ask_through(c.t, c.attach, &w);
    assert_int_equal(w.failed, LANES);
    assert_int_equal(w.error, TE_ERR_PEER);
    assert_non_null(strstr(w.why, "Connection refused"));
    /* What has failed is tried again, if it is asked for anew. */
    w = (struct tei_warmth){0};
    assert_int_equal(listen(held, 16), 0);
    ask_through(c.t, c.attach, &w);
    assert_int_equal(w.ready, LANES);
    assert_int_equal(w.error, 0);
    close_classic(&c);
    close(held);
}

static void a_name_that_is_unknown_has_failed(void **state)
{
    struct tei_warmth w = {0};
    struct classic c;

    (void)state;
    open_classic(&c, 9, 2, "fe80::1%nowhere");
    ask_through(c.t, c.attach, &w);
    assert_int_equal(w.failed, LANES);
    assert_int_equal(w.error, TE_ERR_DNS);
    close_classic(&c);
}

/* Whether this test may have been too slow to greet in time. */
static bool is_late(int64_t since)
{
    return tei_now_ns() - since >= TCP_HELLO_NS;
}

/* One goes ahead; the others follow by themselves once it was greeted. False: the test was too slow for it. */
static bool they_follow(struct stage *s, struct native *lanes, struct tei_warmth *w)
{
    int64_t start = tei_now_ns();
    bool early;

    ask(s->t, s->attach, w);
    assert_int_equal(w->opening, LANES);
    lanes[0] = stage_take(s);
    early = is_dialled(s->listener);
    ask(s->t, s->attach, w);
    if (is_late(start))
        return false;
    assert_false(early);
    assert_int_equal(w->opening, LANES);
    stage_answer(&lanes[0], TCP_FRAME_HELLO, 0, TCP_OK, 0);
    for (int i = 1; i < LANES; i++)
        lanes[i] = stage_take_greeted(s);
    WAIT_FOR(is_late(start) || (ask(s->t, s->attach, w), w->opening == 0));
    if (is_late(start))
        return false;
    assert_int_equal(w->ready, LANES);
    assert_int_equal(stage_connections(s), LANES);
    return true;
}

static void the_others_follow(void **state)
{
    bool followed = false;

    (void)state;
    for (int i = 0; i < 8 && !followed; i++) {
        struct native lanes[LANES] = {{.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}};
        struct tei_warmth w = {0};
        struct stage s;

        stage_open(&s, four_lanes);
        followed = they_follow(&s, lanes, &w);
        for (int k = 0; k < LANES; k++)
            if (lanes[k].fd >= 0)
                close(lanes[k].fd);
        if (followed) {
            WAIT_FOR((ask(s.t, s.attach, &w), w.failed == LANES));
            assert_false(is_dialled(s.listener));
        }
        stage_close(&s);
    }
    assert_true(followed);
}

/* Of two that wish at a time neither takes the other's answer for its own, or waits for it. */
static void two_at_a_time(void **state)
{
    struct tei_warmth first = {0}, second = {0};
    struct classic c;
    int held;
    uint16_t port = test_dead_port(&held);

    (void)state;
    open_classic(&c, port, 2, "127.0.0.1");
    ask(c.t, c.attach, &first);
    ask_through(c.t, c.attach, &second);
    assert_int_equal(second.failed, LANES);
    second = (struct tei_warmth){0};
    ask(c.t, c.attach, &second);
    assert_int_equal(second.opening, LANES);
    ask(c.t, c.attach, &first);
    assert_int_equal(first.opening, 0);
    assert_int_equal(first.failed, LANES);
    close_classic(&c);
    close(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_keeps_no_connection_gets_none),
        cmocka_unit_test(one_that_closes_at_once_is_not_dialled_again),
        cmocka_unit_test(one_that_refuses_has_failed),
        cmocka_unit_test(a_name_that_is_unknown_has_failed),
        cmocka_unit_test(the_others_follow),
        cmocka_unit_test(two_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
