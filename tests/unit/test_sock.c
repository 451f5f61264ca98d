/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sock.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os.h"
#include "patience.h"
#include "proc.h"

static int64_t soon(void)
{
    return tei_deadline_ns(PATIENCE_MS);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;

    if (fd >= 0)
        tei_fd_close(fd);
    return ok;
}

/* ---- text */

TEST(good_texts_parse)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
        bool has_port;
    } rows[] = {
        {"host", "host", 7, false},
        {"host:1", "host", 1, true},
        {"host:65535", "host", 65535, true},
        {"host:0", "host", 0, true},
        {"host:00080", "host", 80, true},
        {"a.b-c_d.example:80", "a.b-c_d.example", 80, true},
        {"10.0.0.1", "10.0.0.1", 7, false},
        {"10.0.0.1:9", "10.0.0.1", 9, true},
        {":80", "", 80, true},
        {"::", "::", 7, false},
        {"::1", "::1", 7, false},
        {"[::1]", "::1", 7, false},
        {"[::1]:80", "::1", 80, true},
        {"[::]:80", "::", 80, true},
        {"fe80::1%eth0", "fe80::1%eth0", 7, false},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, true},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", 7, false},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", 7, false},
        {"m\xc3\xbcnchen:80", "m\xc3\xbcnchen", 80, true},
    };
    struct tei_hostport hp;

    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        assert_int_equal(tei_hostport_parse(rows[i].text, 7, &hp), 0);
        assert_string_equal(hp.host, rows[i].host);
        assert_int_equal(hp.port, rows[i].port);
        assert_int_equal(tei_hostport_has_port(rows[i].text), rows[i].has_port);
    }
}

TEST(bad_texts_are_refused_and_write_nothing)
{
    static const char *const texts[] = {
        "",
        ":",
        "host:",
        "host:65536",
        "host:99999",
        "host:100000",
        "host:4294967376",
        "host:-1",
        "host:+1",
        "host: 1",
        "host:1 ",
        "host:0x10",
        "host:1a",
        "host:80/path",
        " host",
        "host ",
        "ho st:1",
        "ho\tst",
        "host\n",
        "host\x7f",
        "\x01",
        "a/b",
        "http://h:80",
        "[]",
        "[]:80",
        "[::1",
        "[::1:80",
        "::1]",
        "::1]:80",
        "[::1]80",
        "[::1]x",
        "[::1]]",
        "[::1]:",
        "[::1]:x",
        "[[::1]]:80",
        "[host]:80",
        "[10.0.0.1]:80",
        "a:b:c",
        "host:1:2",
        ":::",
        "1:2:3",
        "::g",
        "12345::",
        "fe80::1%",
        "[fe80::1%]:80",
        "1:2:3:4:5:6:7:8:9",
        "[",
    };
    struct tei_hostport hp = {.host = "untouched", .port = 3};

    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        tei_err_keep(TE_ERR_OK, "");
        assert_int_equal(tei_hostport_parse(texts[i], 7, &hp), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), texts[i]));
    }
    assert_string_equal(hp.host, "untouched");
    assert_int_equal(hp.port, 3);
}

TEST(the_longest_host_fits_and_no_longer_one)
{
    char text[TEI_HOST_MAX + 16], back[TEI_HOSTPORT_MAX];
    struct tei_hostport hp;

    memset(text, 'h', sizeof text);
    strcpy(text + TEI_HOST_MAX - 1, ":65535");
    assert_int_equal(tei_hostport_parse(text, 0, &hp), 0);
    assert_int_equal(strlen(hp.host), TEI_HOST_MAX - 1);
    assert_string_equal(tei_hostport_format(hp.host, hp.port, back, sizeof back), text);
    memset(text, 'h', sizeof text);
    strcpy(text + TEI_HOST_MAX, ":65535");
    assert_int_equal(tei_hostport_parse(text, 0, &hp), TE_ERR_INVALID);
}

TEST(formatting_brackets_ipv6)
{
    char buf[TEI_HOSTPORT_MAX], small[6];

    assert_string_equal(tei_hostport_format("h", 80, buf, sizeof buf), "h:80");
    assert_string_equal(tei_hostport_format("::1", 65535, buf, sizeof buf), "[::1]:65535");
    assert_string_equal(tei_hostport_format("", 1, buf, sizeof buf), ":1");
    assert_string_equal(tei_hostport_format("longhost", 1, small, sizeof small), "longh");
}

/* ---- addresses */

TEST(numeric_hosts_resolve)
{
    struct tei_addr a[4];
    char text[TEI_HOSTPORT_MAX];

    assert_int_equal(tei_resolve("127.0.0.1", 80, a, 4), 1);
    assert_string_equal(tei_addr_format(&a[0], text, sizeof text), "127.0.0.1:80");
    assert_int_equal(tei_resolve("::1", 443, a, 4), 1);
    assert_string_equal(tei_addr_format(&a[0], text, sizeof text), "[::1]:443");
    assert_int_equal(tei_resolve("::ffff:127.0.0.1", 80, a, 4), 1);
    assert_string_equal(tei_addr_format(&a[0], text, sizeof text), "127.0.0.1:80");
    assert_int_equal(tei_resolve("fe80::1%lo", 443, a, 4), 1);
    assert_string_equal(tei_addr_format(&a[0], text, sizeof text), "[fe80::1%lo]:443");
    assert_int_equal(tei_resolve("", 80, a, 4), TE_ERR_DNS);
    assert_int_equal(tei_resolve("fe80::1%no-such-link", 1, a, 4), TE_ERR_DNS);
    memset(&a[0], 0, sizeof a[0]);
    assert_string_equal(tei_addr_format(&a[0], text, sizeof text), "(unknown address)");
}

TEST(localhost_resolves_to_a_loopback)
{
    struct tei_addr a[1];
    char text[TEI_HOSTPORT_MAX];

    assert_int_equal(tei_resolve("localhost", 80, a, 1), 1);
    tei_addr_format(&a[0], text, sizeof text);
    assert_true(strcmp(text, "127.0.0.1:80") == 0 || strcmp(text, "[::1]:80") == 0);
}

TEST(the_source_of_a_route_is_found)
{
    char host[TEI_HOST_MAX];

    assert_int_equal(tei_route_source("127.0.0.1", host, sizeof host), 0);
    assert_string_equal(host, "127.0.0.1");
    if (has_ipv6()) {
        assert_int_equal(tei_route_source("::1", host, sizeof host), 0);
        assert_string_equal(host, "::1");
    }
    assert_int_equal(tei_route_source("", host, sizeof host), TE_ERR_DNS);
    assert_int_equal(tei_route_source("127.0.0.1", host, 3), TE_ERR_SOCKET);
}

TEST(an_own_address_is_always_given)
{
    char host[TEI_HOST_MAX];
    struct in6_addr six;
    struct in_addr four;

    tei_default_address(false, host, sizeof host);
    assert_int_equal(inet_pton(AF_INET, host, &four), 1);
    tei_default_address(true, host, sizeof host);
    assert_int_equal(inet_pton(AF_INET6, host, &six), 1);
}

TEST(where_to_listen)
{
    char host[TEI_HOST_MAX];

    assert_int_equal(tei_bind_address("127.0.0.3", false, host, sizeof host), 0);
    assert_string_equal(host, "127.0.0.3");
    assert_int_equal(tei_bind_address("lo", false, host, sizeof host), 0);
    assert_string_equal(host, "127.0.0.1");
    if (has_ipv6()) {
        assert_int_equal(tei_bind_address("lo", true, host, sizeof host), 0);
        assert_string_equal(host, "::1");
    }
    assert_int_equal(tei_bind_address("no-such-card", false, host, sizeof host), TE_ERR_INVALID);
    assert_int_equal(tei_bind_address("localhost", false, host, sizeof host), TE_ERR_INVALID);
    assert_true(tei_is_wildcard("0.0.0.0"));
    assert_true(tei_is_wildcard("::"));
    assert_false(tei_is_wildcard("127.0.0.1"));
    assert_false(tei_is_wildcard("::1"));
    assert_false(tei_is_wildcard("lo"));
}

/* ---- listening */

static void assert_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

TEST(a_listener_takes_both_families)
{
    uint16_t port = 0;
    int l = tei_listen(NULL, &port, 8), c, s, nodelay = 0;
    socklen_t len = sizeof nodelay;
    char text[TEI_HOSTPORT_MAX];
    struct tei_addr from;

    assert_true(l >= 0);
    assert_true(port > 0);
    assert_flags(l);
    assert_int_equal(tei_accept(l, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    c = tei_connect("127.0.0.1", port, NULL, soon());
    assert_true(c >= 0);
    assert_flags(c);
    s = tei_accept(l, &from);
    assert_true(s >= 0);
    assert_flags(s);
    assert_ptr_equal(strstr(tei_addr_format(&from, text, sizeof text), "127.0.0.1:"), text);
    assert_int_equal(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len), 0);
    assert_int_equal(nodelay, 1);
    tei_fd_close(c);
    tei_fd_close(s);
    if (has_ipv6()) {
        c = tei_connect("::1", port, NULL, soon());
        assert_true(c >= 0);
        tei_fd_close(c);
    }
    tei_fd_close(l);
}

TEST(a_port_in_use_is_busy)
{
    uint16_t port = 0, again;
    int l = tei_listen("127.0.0.1", &port, 8);

    assert_true(l >= 0);
    again = port;
    assert_int_equal(tei_listen("127.0.0.1", &again, 8), TE_ERR_BUSY);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(tei_listen(NULL, &again, 8), TE_ERR_BUSY);
    assert_int_equal(tei_listen("", &again, 8), TE_ERR_BUSY);
    tei_fd_close(l);
}

TEST(a_port_in_use_on_every_address_is_busy)
{
    uint16_t port = 0;
    int l = tei_listen(NULL, &port, 8);

    assert_true(l >= 0);
    assert_int_equal(tei_listen("127.0.0.1", &port, 8), TE_ERR_BUSY);
    assert_int_equal(tei_listen(NULL, &port, 8), TE_ERR_BUSY);
    tei_fd_close(l);
}

TEST(a_port_that_was_closed_can_be_had_again)
{
    uint16_t port, again;
    int l, tries = 0;

    /* Between the close and the second listen, another program may take the port: then with another one. */
    do {
        assert_true(tries++ < 1000);
        port = 0;
        l = tei_listen("127.0.0.1", &port, 8);
        assert_true(l >= 0);
        tei_fd_close(l);
        again = port;
        l = tei_listen(NULL, &again, 8);
    } while (l == TE_ERR_BUSY);
    assert_true(l >= 0);
    assert_int_equal(again, port);
    tei_fd_close(l);
}

enum { N = 4 }; /* neighbours, below the ports that the kernel and tests hand out */

/* All of a range, and then the third of them anew; false if another program has one of the ports. */
static bool take_a_range(uint16_t base, int l[N], uint16_t *port)
{
    uint16_t last = (uint16_t)(base + N - 1), other;

    for (int i = 0; i < N; i++)
        l[i] = tei_listen_range("127.0.0.1", base, last, 1, port);
    if (l[N - 1] < 0)
        return false;
    assert_int_equal(tei_listen_range("127.0.0.1", base, last, 1, &other), TE_ERR_BUSY);
    tei_fd_close(l[2]);
    l[2] = tei_listen_range("127.0.0.1", base, last, 1, port);
    if (l[2] < 0)
        assert_int_equal(l[2], TE_ERR_BUSY);
    return l[2] >= 0;
}

TEST(a_range_is_used_up_port_by_port)
{
    bool seen[N] = {false};
    uint16_t base = 0, port;
    int l[N], tries = 0;

    while (!take_a_range(base = (uint16_t)(10000 + tei_random_u64() % 4000), l, &port)) {
        assert_true(tries++ < 1000);
        for (int i = 0; i < N; i++)
            if (l[i] >= 0)
                tei_fd_close(l[i]);
    }
    for (int i = 0; i < N; i++) {
        struct sockaddr_in a;
        socklen_t len = sizeof a;

        assert_int_equal(getsockname(l[i], (struct sockaddr *)&a, &len), 0);
        assert_in_range(ntohs(a.sin_port), base, base + N - 1);
        assert_false(seen[ntohs(a.sin_port) - base]);
        seen[ntohs(a.sin_port) - base] = true;
        if (i == 2)
            assert_int_equal(port, ntohs(a.sin_port));
        tei_fd_close(l[i]);
    }
}

TEST(impossible_listeners_say_why)
{
    uint16_t port = 0;

    assert_int_equal(tei_listen_range(NULL, 10, 9, 1, &port), TE_ERR_INVALID);
    assert_int_equal(tei_listen_range(NULL, 0, 9, 1, &port), TE_ERR_INVALID);
    assert_int_equal(tei_listen("not a host name", &port, 1), TE_ERR_DNS);
    /* A documentation address, which no interface has. */
    assert_int_equal(tei_listen("192.0.2.1", &port, 1), TE_ERR_SOCKET);
    assert_int_equal(errno, EADDRNOTAVAIL);
    assert_int_equal(tei_listen_range("192.0.2.1", 1024, 65535, 1, &port), TE_ERR_SOCKET);
    assert_int_equal(port, 0);
}

/* ---- connecting */

TEST(nobody_listening_is_a_peer_error)
{
    int fd;

    assert_int_equal(tei_connect("127.0.0.1", test_dead_port(&fd), NULL, soon()), TE_ERR_PEER);
    assert_non_null(strstr(te_errmsg(), "127.0.0.1"));
    tei_fd_close(fd);
    assert_int_equal(tei_connect("", 1, NULL, soon()), TE_ERR_DNS);
}

/* Without a check, one try in some ten thousand would connect to itself. */
TEST(a_socket_does_not_meet_itself)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(tei_connect_result(fd), ECONNREFUSED);
    tei_fd_close(fd);
}

/* A listener whose queue is full neither answers nor refuses. */
TEST(silence_ends_at_the_deadline)
{
    uint16_t port = 0;
    int l = tei_listen("127.0.0.1", &port, 0), fill[8];
    struct tei_addr a;
    int64_t start, took;

    assert_int_equal(tei_resolve("127.0.0.1", port, &a, 1), 1);
    for (int i = 0; i < 8; i++)
        fill[i] = tei_connect_start(&a);
    start = tei_now_ns();
    assert_int_equal(tei_connect("127.0.0.1", port, NULL, tei_deadline_ns(100)), TE_ERR_TIMEOUT);
    took = tei_now_ns() - start;
    assert_true(took >= 100 * TEI_NS_PER_MS && took < PATIENCE_NS);
    for (int i = 0; i < 8; i++)
        if (fill[i] >= 0)
            tei_fd_close(fill[i]);
    tei_fd_close(l);
}

TEST(a_connect_under_way_tells_its_end)
{
    uint16_t port = 0;
    int l = tei_listen("127.0.0.1", &port, 1), fd, on = 0;
    socklen_t len = sizeof on;
    struct tei_addr a;

    assert_int_equal(tei_resolve("127.0.0.1", port, &a, 1), 1);
    fd = tei_connect_start(&a);
    assert_true(fd >= 0);
    assert_flags(fd);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    assert_int_not_equal(on, 0);
    assert_int_equal(tei_write_full(fd, "x", 1, soon()), 0);
    assert_int_equal(tei_connect_result(fd), 0);
    tei_fd_close(fd);
    tei_fd_close(l);
    assert_int_equal(tei_connect_result(-1), EBADF);
}

/* ---- reading and writing */

struct pair {
    int a, b;
};

static struct pair connected(void)
{
    uint16_t port = 0;
    int l = tei_listen("127.0.0.1", &port, 1);
    struct pair p;

    p.a = tei_connect("127.0.0.1", port, NULL, soon());
    p.b = tei_accept(l, NULL);
    assert_true(p.a >= 0 && p.b >= 0);
    tei_fd_close(l);
    return p;
}

#define MUCH (8u << 20)

static void *write_much(void *arg)
{
    unsigned char *data = malloc(MUCH);

    for (size_t i = 0; data && i < MUCH; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    if (!data || tei_write_full(*(int *)arg, data, MUCH, soon()) != 0)
        abort();
    free(data);
    return NULL;
}

TEST(much_data_arrives_whole)
{
    struct pair p = connected();
    unsigned char *data = malloc(MUCH);
    pthread_t t;

    assert_non_null(data);
    assert_int_equal(pthread_create(&t, NULL, write_much, &p.a), 0);
    assert_int_equal(tei_read_full(p.b, data, MUCH, soon()), 0);
    pthread_join(t, NULL);
    for (size_t i = 0; i < MUCH; i++)
        if (data[i] != (unsigned char)(i * 31 >> 3))
            fail();
    free(data);
    tei_fd_close(p.a);
    tei_fd_close(p.b);
}

TEST(a_slow_peer_times_out)
{
    struct pair p = connected();
    char buf[8], *much = calloc(1, 4 * MUCH);

    assert_int_equal(tei_write_full(p.a, "abc", 3, soon()), 0);
    assert_int_equal(tei_read_full(p.b, buf, 8, tei_deadline_ns(30)), TE_ERR_TIMEOUT);
    assert_int_equal(tei_read_full(p.b, buf, 0, 0), 0);
    assert_int_equal(tei_write_full(p.b, much, 4 * MUCH, tei_deadline_ns(30)), TE_ERR_TIMEOUT);
    free(much);
    tei_fd_close(p.a);
    tei_fd_close(p.b);
}

TEST(a_closed_peer_is_a_lost_link)
{
    struct pair p = connected();
    char buf[8];
    int rc = 0;

    assert_int_equal(tei_write_full(p.a, "abc", 3, soon()), 0);
    tei_fd_close(p.a);
    errno = EXDEV;
    assert_int_equal(tei_read_full(p.b, buf, 8, soon()), TE_ERR_LINK);
    assert_int_equal(errno, 0);
    assert_memory_equal(buf, "abc", 3);
    /* The default action of SIGPIPE would end the test here. */
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = tei_write_full(p.b, "x", 1, soon());
    assert_int_equal(rc, TE_ERR_LINK);
    assert_true(errno == EPIPE || errno == ECONNRESET);
    tei_fd_close(p.b);
}

static void nothing(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_parse),
        cmocka_unit_test(bad_texts_are_refused_and_write_nothing),
        cmocka_unit_test(the_longest_host_fits_and_no_longer_one),
        cmocka_unit_test(formatting_brackets_ipv6),
        cmocka_unit_test(numeric_hosts_resolve),
        cmocka_unit_test(localhost_resolves_to_a_loopback),
        cmocka_unit_test(the_source_of_a_route_is_found),
        cmocka_unit_test(an_own_address_is_always_given),
        cmocka_unit_test(where_to_listen),
        cmocka_unit_test(a_listener_takes_both_families),
        cmocka_unit_test(a_port_in_use_is_busy),
        cmocka_unit_test(a_port_in_use_on_every_address_is_busy),
        cmocka_unit_test(a_port_that_was_closed_can_be_had_again),
        cmocka_unit_test(a_range_is_used_up_port_by_port),
        cmocka_unit_test(impossible_listeners_say_why),
        cmocka_unit_test(nobody_listening_is_a_peer_error),
        cmocka_unit_test(a_socket_does_not_meet_itself),
        cmocka_unit_test(silence_ends_at_the_deadline),
        cmocka_unit_test(a_connect_under_way_tells_its_end),
        cmocka_unit_test(much_data_arrives_whole),
        cmocka_unit_test(a_slow_peer_times_out),
        cmocka_unit_test(a_closed_peer_is_a_lost_link),
    };

    te_log_set_sink(nothing, NULL);
    return cmocka_run_group_tests_name("sock", tests, NULL, NULL);
}
