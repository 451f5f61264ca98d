/* SPDX-License-Identifier: Apache-2.0 */
/* Targets where nobody listens any more: who is told, and what ends once their engine is known to be gone. */
#include "conformance.h"

#include "native_stage.h"
#include "patience.h"

#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define BYTES 100

/* A port of the test's, where nobody listens yet. */
struct quiet {
    int fd;
    uint16_t port;
    struct fake_host host;
    struct tei_transport *t;
    struct tei_attach *attach;
    char bytes[BYTES];
    struct fake_task task;
};

static struct tei_attach *attach_to(const struct quiet *q, uint64_t incarnation)
{
    char name[] = "quiet", protocol[] = "tcp";
    struct tei_segment s = {
        .name = name,
        .protocol = protocol,
        .incarnation = incarnation,
        .root = json_pack("{s:i,s:i,s:s}", "tcp_data_port", q->port, "tcp_proto_version", 2,
                          "tcp_data_host", "127.0.0.1"),
    };
    struct tei_attach *a;

    assert_int_equal(fake_attach_segment(q->t, &s, &a), 0);
    json_decref(s.root);
    return a;
}

static void post(struct quiet *q)
{
    struct tei_list list;

    tei_list_init(&list);
    fake_work(&list, q->t, q->attach, &q->task, TE_READ, q->bytes, q->bytes, BYTES);
    q->t->ops.post(q->t, &list);
}

static void open_quiet(struct quiet *q)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;

    q->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(q->fd >= 0);
    assert_int_equal(bind(q->fd, (struct sockaddr *)&at, length), 0);
    assert_int_equal(getsockname(q->fd, (struct sockaddr *)&at, &length), 0);
    q->port = ntohs(at.sin_port);
    fake_host_init(&q->host);
    q->host.conf.retry_cnt = INT_MAX - 1; /* it never gives up by itself */
    q->t = fake_open(&q->host, "tcp");
    q->attach = attach_to(q, 1);
    fake_region_add(&q->host, q->t, q->bytes, BYTES, 0);
    post(q);
}

static void close_quiet(struct quiet *q)
{
    fake_detach(q->t, q->attach);
    fake_close(q->t);
    fake_host_fini(&q->host);
    close(q->fd);
}

/* The core is asked to look where the engine is, again and again; once it is no more, what waits for it ends. */
static void what_waits_for_it_ends(void **state)
{
    static struct quiet q;

    (void)state;
    open_quiet(&q);
    WAIT_FOR(atomic_load(&q.host.n_refused) >= 2);
    assert_false(q.task.done);
    q.t->ops.peer_gone(q.t, q.attach);
    assert_true(fake_wait(&q.host, NULL, &q.task, 1, PATIENCE_MS));
    assert_int_equal(q.task.error, TE_ERR_PEER);
    post(&q);
    assert_true(fake_wait(&q.host, NULL, &q.task, 1, PATIENCE_MS));
    assert_int_equal(q.task.error, TE_ERR_PEER);
    close_quiet(&q);
}

static bool is_called(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* Another engine has come to that very address, and may not listen yet: that the one before is gone ends nothing. */
static void another_one_is_waited_for(void **state)
{
    static struct quiet q;
    struct tei_attach *second;

    (void)state;
    open_quiet(&q);
    WAIT_FOR(atomic_load(&q.host.n_refused) >= 1);
    second = attach_to(&q, 2);
    q.t->ops.peer_gone(q.t, q.attach);
    assert_int_equal(listen(q.fd, 16), 0);
    WAIT_FOR(is_called(q.fd));
    fake_detach(q.t, second);
    q.t->ops.close(q.t);
    assert_true(fake_wait(&q.host, NULL, &q.task, 1, PATIENCE_MS));
    assert_int_equal(q.task.error, TE_ERR_CANCELED);
    close_quiet(&q);
}

static void tries_for_ever(struct tei_conf *c)
{
    c->retry_cnt = INT_MAX - 1;
}

/* So it is for a READ that was under way when its target ended, of which nothing waits in a queue. */
static void what_was_under_way_is_told(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    stage_open(&s, tries_for_ever);
    stage_request(&s, 0, TE_READ, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    stage_get_request(&s, &c, TCP_FRAME_READ);
    close(s.listener);
    s.listener = -1;
    close(c.fd);
    WAIT_FOR(atomic_load(&s.host.n_refused) >= 2);
    s.t->ops.peer_gone(s.t, s.attach);
    assert_int_equal(stage_outcome(&s, 0), TE_ERR_PEER);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_for_it_ends),
        cmocka_unit_test(what_was_under_way_is_told),
        cmocka_unit_test(another_one_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
