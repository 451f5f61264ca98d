/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=60 */
/*
 * What an address may take of the data port where there is not enough for all: places, and the time
 * that DROPs cost.
 */
#include "conformance.h"

#include "native.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 8
#define BYTES  ((size_t)32 << 20) /* more than any socket holds */

static const uint8_t ok[] = {0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};

static void few_places(struct tei_conf *c)
{
    c->tcp_threads = 1;
    c->tcp_max_sessions = PLACES;
}

struct port {
    struct fake_host host;
    struct tei_transport *t;
    struct tei_region *region;
    char *memory;
    uint16_t number;
};

static void port_open(struct port *p)
{
    fake_host_init(&p->host);
    few_places(&p->host.conf);
    p->t = fake_open(&p->host, "tcp");
    p->memory = malloc(BYTES);
    assert_non_null(p->memory);
    fill_pattern(p->memory, BYTES, 7);
    p->region = fake_region_add(&p->host, p->t, p->memory, BYTES, TE_REMOTE_READ);
    p->number = native_port(p->t);
}

static void port_close(struct port *p)
{
    fake_region_del(&p->host, p->t, p->region);
    fake_close(p->t);
    fake_host_fini(&p->host);
    free(p->memory);
}

/* A connection from 127.0.0.`host`. */
static int dial_from(const struct port *p, unsigned host)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->number)};
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static void ask(const struct port *p, int fd, uint64_t n)
{
    struct tcp_head h = {n, (uintptr_t)p->memory, TE_READ, 2};
    uint8_t bytes[TCP_HEAD_LEN];

    tei_tcp_head_encode(&h, bytes);
    native_put(fd, bytes, sizeof bytes);
}

/* Whether a request is answered, well; false: the connection has ended. */
static bool is_served(const struct port *p, int fd)
{
    char got[sizeof ok + 64];
    ssize_t n;

    ask(p, fd, 64);
    n = recv(fd, got, sizeof got, MSG_WAITALL);
    if (n != (ssize_t)sizeof got) {
        assert_true(n == 0 || errno == ECONNRESET);
        return false;
    }
    assert_memory_equal(got, ok, sizeof ok);
    assert_memory_equal(got + sizeof ok, p->memory, 64);
    return true;
}

/* Takes all places there are with a READ of everything, of which the first bytes are read. */
static void hog(const struct port *p, unsigned host, int fds[PLACES])
{
    uint8_t status[sizeof ok];

    for (unsigned i = 0; i < PLACES; i++) {
        fds[i] = dial_from(p, host);
        ask(p, fds[i], BYTES);
        native_get(fds[i], status, sizeof status); /* it is being served */
    }
}

static void close_all(const int fds[PLACES])
{
    for (unsigned i = 0; i < PLACES; i++)
        close(fds[i]);
}

/* Others get a place at once, each time, and keep it. */
static void a_hog_gives_way_to_others(void **state)
{
    int fds[PLACES], others[PLACES / 2];
    struct port p;

    (void)state;
    port_open(&p);
    hog(&p, 2, fds);
    for (unsigned i = 0; i < 50; i++) {
        int fd = dial_from(&p, 1);

        assert_true(is_served(&p, fd));
        close(fd);
    }
    for (unsigned i = 0; i < PLACES / 2; i++)
        assert_true(is_served(&p, others[i] = dial_from(&p, 1)));
    /* It comes back again and again, and gets none of theirs. */
    for (unsigned i = 0; i < 50; i++) {
        int fd = dial_from(&p, 2);

        (void)is_served(&p, fd);
        close(fd);
        assert_true(is_served(&p, others[i % (PLACES / 2)]));
    }
    for (unsigned i = 0; i < PLACES / 2; i++)
        close(others[i]);
    close_all(fds);
    port_close(&p);
}

/* Who has them all gets those of its own that have stalled, and otherwise none. */
static void a_hog_shares_with_itself(void **state)
{
    int fds[PLACES], fd;
    struct port p;

    (void)state;
    port_open(&p);
    hog(&p, 2, fds);
    do { /* a second later */
        fd = dial_from(&p, 2);
        usleep(20000);
    } while (!is_served(&p, fd) && close(fd) == 0);
    close(fd);
    close_all(fds);
    port_close(&p);
}

/* While there is room nobody is limited. */
static void one_address_may_have_all(void **state)
{
    struct port p;
    int fds[PLACES];

    (void)state;
    port_open(&p);
    for (unsigned i = 0; i < PLACES; i++)
        assert_true(is_served(&p, fds[i] = dial_from(&p, 2)));
    for (unsigned i = 0; i < PLACES; i++)
        assert_true(is_served(&p, fds[i]));
    close_all(fds);
    port_close(&p);
}

/* DROPs of many sessions of one address: all are answered, also where some do not wait for it. */
static void drops_take_turns(void **state)
{
    struct native c[PLACES / 2]; /* those of the round before may be there still */
    struct port p;

    (void)state;
    port_open(&p);
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < PLACES / 2; i++)
            c[i] = native_greet(p.t, 100 + i, 1000 + i, false);
        for (unsigned i = 0; i < PLACES / 2; i++)
            native_send(&c[i], TCP_FRAME_DROP, 1, &(struct tcp_range){.addr = 5}, 1, NULL);
        for (unsigned i = 0; i < PLACES / 2; i++) {
            if ((i + round) % 3)
                native_expect(&c[i], TCP_FRAME_DROPPED, 1, TCP_OK, 0, 0);
            close(c[i].fd);
        }
    }
    port_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hog_gives_way_to_others),
        cmocka_unit_test(a_hog_shares_with_itself),
        cmocka_unit_test(one_address_may_have_all),
        cmocka_unit_test(drops_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
