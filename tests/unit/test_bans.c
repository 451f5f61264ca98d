/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is banned, at made-up times, and what the kernel does to those who are. That nothing is let in is
 * seen by what comes after it: a connection of another address, in the same queue.
 */
#include "base/bans.h"
#include "test.h"

#include <linux/filter.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "patience.h"

#define NOW (1000 * TEI_NS_PER_S)
#define A   "127.0.0.2"
#define B   "127.0.0.3"

static struct tei_bans bans;

static int open_bans(void **state)
{
    (void)state;
    tei_bans_init(&bans);
    return 0;
}

static int close_bans(void **state)
{
    (void)state;
    tei_bans_fini(&bans);
    return 0;
}

/* An address in numbers, with a port. */
static struct tei_addr at(const char *host, uint16_t port)
{
    struct tei_addr a;

    assert_int_equal(tei_resolve(host, port, &a, 1), 1);
    return a;
}

static bool enter(const char *host, int64_t now_ns)
{
    struct tei_addr from = at(host, 1);
    uint8_t key[TEI_SOURCE_KEY];

    tei_source_key(&from, key);
    return tei_bans_enter(&bans, key, now_ns);
}

static bool leave(const char *host, bool useful, int64_t now_ns)
{
    struct tei_addr from = at(host, 1);
    uint8_t key[TEI_SOURCE_KEY];

    tei_source_key(&from, key);
    return tei_bans_leave(&bans, key, useful, now_ns);
}

/* A connection comes and ends; whether that leads to a ban. */
static bool visit(const char *host, bool useful, int64_t now_ns)
{
    bool entering = enter(host, now_ns);

    return leave(host, useful, now_ns) || entering;
}

/* How many visits of no use it takes, so many at most. */
static int visits_until_banned(const char *host, int max, int64_t now_ns)
{
    for (int i = 1; i <= max; i++)
        if (visit(host, false, now_ns))
            return i;
    return 0;
}

TEST(a_burst_is_free_and_then_so_many_each_second)
{
    const int64_t later_ns = NOW + TEI_BAN_NS;

    visit(B, true, NOW);
    assert_int_equal(visits_until_banned(A, 1000, NOW), TEI_BAN_BURST + 1);
    assert_int_equal(tei_bans_enforce(&bans, -1, NOW), later_ns);
    assert_int_equal(visits_until_banned(A, 1000, later_ns - 1), 0); /* it is */
    assert_int_equal(tei_bans_enforce(&bans, -1, later_ns), TEI_NEVER);
    assert_int_equal(visits_until_banned(A, 1000, later_ns), TEI_BAN_NS / TEI_BAN_EACH_NS + 1);
}

/* Twice as long each time, up to a limit; from the start again for who has paused for long. */
TEST(who_goes_on_is_banned_for_longer)
{
    int64_t now_ns = NOW, ban_ns = TEI_BAN_NS;

    for (int i = 0; i < 8; i++) {
        visit(B, true, now_ns);
        assert_true(visits_until_banned(A, 1000, now_ns) > 0);
        assert_int_equal(tei_bans_enforce(&bans, -1, now_ns), now_ns + ban_ns);
        now_ns += ban_ns;
        ban_ns = ban_ns < TEI_BAN_MAX_NS ? 2 * ban_ns : TEI_BAN_MAX_NS;
    }
    now_ns += TEI_BAN_MEMORY_NS;
    visit(B, true, now_ns);
    assert_true(visits_until_banned(A, 1000, now_ns) > 0);
    assert_int_equal(tei_bans_enforce(&bans, -1, now_ns), now_ns + TEI_BAN_NS);
}

/* Until it turns out to be of use. */
TEST(what_comes_after_a_ban_counts_at_once)
{
    const int64_t later_ns = NOW + TEI_BAN_NS + TEI_BAN_BURST * TEI_BAN_EACH_NS;

    visit(B, true, NOW);
    for (int i = 0; i < 1000; i++)
        assert_false(enter(A, NOW));
    for (int i = 0; i <= TEI_BAN_BURST; i++)
        assert_int_equal(leave(A, false, NOW), i == TEI_BAN_BURST);
    tei_bans_enforce(&bans, -1, NOW);
    for (int i = 0; i < 1000; i++)
        assert_false(visit(A, true, later_ns));
    for (int i = 0; i <= TEI_BAN_BURST; i++)
        assert_int_equal(enter(A, later_ns), i == TEI_BAN_BURST);
}

TEST(one_ban_is_told_for_all_until_it_is_enforced)
{
    assert_int_equal(visits_until_banned(A, TEI_BAN_BURST, NOW), 0);
    assert_int_equal(visits_until_banned(B, TEI_BAN_BURST, NOW), 0);
    assert_true(visit(A, false, NOW));
    assert_false(visit(B, false, NOW));
    assert_int_equal(tei_bans_enforce(&bans, -1, NOW), NOW + TEI_BAN_NS);
    visit("127.0.0.4", true, NOW);
    assert_int_equal(visits_until_banned("127.0.0.4", 1000, NOW + 1), TEI_BAN_BURST + 1);
}

TEST(who_is_of_use_is_not_banned)
{
    visit(B, true, NOW);
    for (int i = 0; i < 1000; i++)
        assert_false(visit(A, true, NOW));
}

/* It takes nothing from anybody. */
TEST(who_is_alone_is_not_banned)
{
    assert_int_equal(visits_until_banned(A, 1000, NOW), 0);
    enter(B, NOW - 2 * TEI_BAN_MEMORY_NS); /* long ago, and still there */
    assert_true(visit(A, false, NOW));
    tei_bans_enforce(&bans, -1, NOW);
    assert_false(leave(B, true, NOW));
    assert_true(visits_until_banned(A, 1000, NOW + TEI_BAN_MEMORY_NS - 1) > 0);
    tei_bans_enforce(&bans, -1, NOW + TEI_BAN_MEMORY_NS - 1);
    assert_int_equal(visits_until_banned(A, 1000, NOW + 2 * TEI_BAN_MEMORY_NS), 0);
}

/* However many others come and stay. */
TEST(who_is_of_no_use_is_not_forgotten)
{
    char host[32];

    assert_int_equal(visits_until_banned(A, TEI_BAN_BURST, NOW), 0);
    for (int i = 0; i < 4 * TEI_BANS; i++) {
        snprintf(host, sizeof host, "127.0.1.%d", i);
        enter(host, NOW + i);
    }
    assert_true(visit(A, false, NOW + 4 * TEI_BANS));
    for (int i = 0; i < 4 * TEI_BANS; i++) {
        snprintf(host, sizeof host, "127.0.1.%d", i);
        assert_false(leave(host, true, NOW + i));
    }
    assert_int_equal(bans.users, 0);
}

/* A socket that was handed in, and has no address. */
TEST(nobody_is_not_banned)
{
    static const uint8_t nobody[TEI_SOURCE_KEY];

    visit(B, true, NOW);
    for (int i = 0; i < 1000; i++) {
        assert_false(tei_bans_enter(&bans, nobody, NOW));
        assert_false(tei_bans_leave(&bans, nobody, false, NOW));
    }
}

/* ---------------------------------------------------------------------------------- the kernel */

/* A connection that is under way. */
static int dial(const char *from, const char *to, uint16_t port)
{
    struct tei_addr own = at(from, 0), peer = at(to, port);
    int fd = socket(own.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own.ss, own.len), 0);
    if (connect(fd, (struct sockaddr *)&peer.ss, peer.len) < 0)
        assert_int_equal(errno, EINPROGRESS);
    return fd;
}

/* The next one in the queue. */
static int next_in(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int fd;

    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    fd = tei_accept(listener, NULL);
    assert_true(fd >= 0);
    return fd;
}

/* Bytes get from one to the other. */
static void check_linked(int a, int b)
{
    struct pollfd p = {.fd = b, .events = POLLIN};
    char c = 0;

    assert_int_equal(write(a, "x", 1), 1);
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    assert_int_equal(read(b, &c, 1), 1);
    assert_int_equal(c, 'x');
}

static void check_filter(const char *where, const char *to, const char *bad, const char *good)
{
    enum { EARLY, EARLY_END, LATE, LATE_END, OTHER, OTHER_END, ALL };
    int64_t now_ns = tei_now_ns(), until_ns;
    uint16_t port = 0;
    int listener = tei_listen(where, &port, 16), fds[ALL];

    assert_true(listener >= 0);
    visit(good, true, now_ns);
    fds[EARLY] = dial(bad, to, port);
    fds[EARLY_END] = next_in(listener);
    assert_true(visits_until_banned(bad, 1000, now_ns) > 0);
    until_ns = tei_bans_enforce(&bans, listener, now_ns);
    assert_in_range(until_ns, now_ns + TEI_BAN_NS, now_ns + TEI_BAN_MAX_NS);
    fds[LATE] = dial(bad, to, port);
    fds[OTHER] = dial(good, to, port);
    fds[OTHER_END] = next_in(listener);
    check_linked(fds[OTHER], fds[OTHER_END]);
    assert_int_equal(tei_accept(listener, NULL), -1); /* LATE is not there */
    check_linked(fds[EARLY], fds[EARLY_END]);
    assert_int_equal(tei_bans_enforce(&bans, listener, until_ns), TEI_NEVER);
    fds[LATE_END] = next_in(listener); /* its system has tried again */
    check_linked(fds[LATE], fds[LATE_END]);
    check_linked(fds[OTHER_END], fds[OTHER]);
    close(listener);
    for (unsigned i = 0; i < ALL; i++)
        close(fds[i]);
}

TEST(the_kernel_ignores_an_ipv4_address)
{
    check_filter("127.0.0.1", "127.0.0.1", A, B);
}

/* A filter that could not be replaced ends with its bans all the same. */
TEST(a_filter_that_stays_is_taken_away)
{
    struct sock_filter of[64];
    socklen_t n = TEI_ARRAY_LEN(of);
    int64_t until_ns;
    uint16_t port = 0;
    int listener = tei_listen("127.0.0.1", &port, 1);

    assert_true(listener >= 0);
    visit(B, true, NOW);
    assert_true(visits_until_banned(A, 1000, NOW) > 0);
    until_ns = tei_bans_enforce(&bans, listener, NOW);
    assert_int_equal(tei_bans_enforce(&bans, -1, NOW), until_ns); /* the kernel refuses */
    if (getsockopt(listener, SOL_SOCKET, SO_GET_FILTER, of, &n) < 0) {
        close(listener);
        skip(); /* an emulator */
    }
    assert_int_not_equal(n, 0);
    assert_int_equal(tei_bans_enforce(&bans, listener, until_ns), TEI_NEVER);
    n = TEI_ARRAY_LEN(of);
    assert_int_equal(getsockopt(listener, SOL_SOCKET, SO_GET_FILTER, of, &n), 0);
    assert_int_equal(n, 0);
    close(listener);
}

TEST(it_is_the_same_where_both_kinds_are_listened_to)
{
    check_filter("::", "127.0.0.1", A, B);
}

/* As in linux/ipv6.h, which cannot be had beside netinet/in.h. */
struct in6_ifreq {
    struct in6_addr address;
    uint32_t prefix;
    int interface;
};

/* A network of our own, with these addresses; false: not to be had here. */
static bool make_network(const char *const addresses[], size_t n)
{
    struct ifreq up = {.ifr_name = "lo"};
    int fd;
    bool well;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    up.ifr_flags = IFF_UP;
    well = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &up) == 0 && ioctl(fd, SIOCGIFINDEX, &up) == 0;
    for (size_t i = 0; i < n && well; i++) {
        union {
            struct in6_ifreq of;
            struct ifreq ipv4; /* what valgrind takes it for, which is longer */
        } request = {.ipv4 = {.ifr_flags = 0}};

        request.of = (struct in6_ifreq){.prefix = 128, .interface = up.ifr_ifindex};
        inet_pton(AF_INET6, addresses[i], &request.of.address);
        well = ioctl(fd, SIOCSIFADDR, &request) == 0;
    }
    if (fd >= 0)
        close(fd);
    return well;
}

static bool connects(int listener, uint16_t port, const char *from, const char *to)
{
    struct tei_addr own = at(from, 0), peer = at(to, port);
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int fd = socket(own.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), end = -1;

    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&own.ss, own.len) == 0 &&
        (connect(fd, (struct sockaddr *)&peer.ss, peer.len) == 0 || errno == EINPROGRESS) &&
        poll(&p, 1, 100) == 1)
        end = tei_accept(listener, NULL);
    close(fd);
    if (end >= 0)
        close(end);
    return end >= 0;
}

/* The kernel takes a moment until it takes anything for a new address. */
static void wait_for_path(const char *from, const char *to)
{
    uint16_t port = 0;
    int listener = tei_listen("::", &port, 16);

    assert_true(listener >= 0);
    WAIT_FOR(connects(listener, port, from, to));
    close(listener);
}

/* The first 64 bits count. Last, as the process stays in that network. */
TEST(the_kernel_ignores_an_ipv6_network)
{
    static const char *const addresses[] = {"fd00:0:0:1::1", "fd00:0:0:1::2", "fd00:0:0:2::1"};

    if (!make_network(addresses, TEI_ARRAY_LEN(addresses)))
        skip();
    for (size_t i = 0; i < TEI_ARRAY_LEN(addresses); i++)
        wait_for_path(addresses[i], addresses[2]);
    check_filter("::", addresses[2], addresses[0], addresses[2]);
    check_filter("::", addresses[2], addresses[1], addresses[2]);
}

int main(void)
{
#define ONE(f) cmocka_unit_test_setup_teardown(f, open_bans, close_bans)
    const struct CMUnitTest tests[] = {
        ONE(a_burst_is_free_and_then_so_many_each_second),
        ONE(who_goes_on_is_banned_for_longer),
        ONE(what_comes_after_a_ban_counts_at_once),
        ONE(one_ban_is_told_for_all_until_it_is_enforced),
        ONE(who_is_of_use_is_not_banned),
        ONE(who_is_alone_is_not_banned),
        ONE(who_is_of_no_use_is_not_forgotten),
        ONE(nobody_is_not_banned),
        ONE(the_kernel_ignores_an_ipv4_address),
        ONE(a_filter_that_stays_is_taken_away),
        ONE(it_is_the_same_where_both_kinds_are_listened_to),
        ONE(the_kernel_ignores_an_ipv6_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
