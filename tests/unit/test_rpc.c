/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake port, server and client, over loopback. The server's loop has a thread of its own.
 * Clients of bad manners are plain sockets here, and servers of bad manners a thread that sends
 * what a test wrote down.
 */
#include "meta/meta.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os.h"
#include "patience.h"
#include "proc.h"

#define MAX  ((size_t)1 << 20)
#define BIG  ((size_t)24 << 20)
#define SOON tei_deadline_ns(PATIENCE_MS)

static const struct tei_conf conf = {.handshake_max_length = MAX};

static struct tei_loop loop;
static struct tei_rpc_server *server;
static struct tei_hostport addr = {.host = "127.0.0.1"};
static char *big;

/* Calls that the handler was told to keep, by the body "hold". */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct tei_rpc_call *held[8];
static char held_body[8][16];
static int n_held;

static void handle(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                   size_t len);
static bool is_heavy(void *arg, enum tei_rpc_type type, size_t len);

static const struct tei_rpc_service service = {
    .handler = handle, .is_heavy = is_heavy, .heavy_max = 1, .arg = &loop};

static bool starts_with(const char *body, size_t len, const char *word)
{
    return len >= strlen(word) && memcmp(body, word, strlen(word)) == 0;
}

static void hold(struct tei_rpc_call *call, const char *body)
{
    pthread_mutex_lock(&lock);
    snprintf(held_body[n_held], sizeof held_body[0], "%s", body);
    held[n_held++] = call;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Answers with the type and the body it was asked with, but for a few words. */
static void handle(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                   size_t len)
{
    char text[256];
    int n;

    assert_ptr_equal(arg, &loop);
    if (starts_with(body, len, "hold")) {
        hold(call, body);
    } else if (starts_with(body, len, "big")) {
        tei_rpc_reply(call, big, BIG);
    } else if (starts_with(body, len, "refuse") || strstr(body, "\"refuse\"")) {
        tei_rpc_reply(call, TEI_NOTIFY_REFUSED, strlen(TEI_NOTIFY_REFUSED));
    } else if (type == TEI_RPC_NOTIFY) {
        tei_rpc_reply(call, TEI_NOTIFY_OK, strlen(TEI_NOTIFY_OK));
    } else {
        n = snprintf(text, sizeof text, "%d:%.*s", (int)type, (int)tei_min(len, 100), body);
        tei_rpc_reply(call, text, (size_t)n);
    }
}

static int open_server(void **state)
{
    int fd;

    (void)state;
    addr.port = 0;
    fd = tei_listen(addr.host, &addr.port, 128);
    assert_true(fd >= 0);
    assert_int_equal(tei_loop_init(&loop, NULL), 0);
    assert_int_equal(tei_rpc_server_open(&loop, fd, &conf, &service, &server), 0);
    assert_int_equal(tei_loop_start(&loop, "loop"), 0);
    n_held = 0;
    return 0;
}

static void end_loop(void)
{
    tei_loop_join(&loop);
    tei_rpc_server_close(server);
    server = NULL;
}

static int close_server(void **state)
{
    (void)state;
    if (server)
        end_loop();
    tei_loop_fini(&loop);
    return 0;
}

static void wait_held(int n)
{
    pthread_mutex_lock(&lock);
    while (n_held < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- raw clients */

static int dial(void)
{
    int fd = tei_connect(addr.host, addr.port, NULL, SOON);

    assert_true(fd >= 0);
    return fd;
}

static void put(int fd, const void *data, size_t n)
{
    assert_int_equal(tei_write_full(fd, data, n, SOON), 0);
}

static void put_frame(int fd, int type, const char *body)
{
    uint64_t n = strlen(body) + (type >= 0);
    uint8_t head[8], byte = (uint8_t)type;

    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(n >> 8 * i);
    put(fd, head, sizeof head);
    if (type >= 0)
        put(fd, &byte, 1);
    put(fd, body, strlen(body));
}

static void check_bytes(int fd, const char *want, size_t n)
{
    char got[512];

    assert_true(n <= sizeof got);
    assert_int_equal(tei_read_full(fd, got, n, SOON), 0);
    assert_memory_equal(got, want, n);
}

static bool is_closed_within(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&p, 1, ms) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static void check_closed(int fd)
{
    assert_true(is_closed_within(fd, PATIENCE_MS));
    close(fd);
}

/* At once and for both directions; close() alone may be one that still listens. */
static void hang_up(int fd)
{
    const struct linger reset = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}

/* ---- good manners */

static void check_request(enum tei_rpc_type type, const char *body, const char *want)
{
    struct tei_bytes reply;

    if (tei_rpc_request(NULL, &addr, type, body, strlen(body), MAX, SOON, &reply))
        fail_msg("%s", te_errmsg());
    assert_string_equal(reply.data, want);
    assert_int_equal(reply.len, strlen(want));
    tei_bytes_fini(&reply);
}

static void check_alive(void)
{
    check_request(TEI_RPC_PROBE, "x", "3:x\n\n");
}

TEST(test_each_type)
{
    check_request(TEI_RPC_CONNECTION, "{\"a\":1}", "0:{\"a\":1}\n\n");
    check_request(TEI_RPC_METADATA, "{}", "1:{}\n\n");
    check_request(TEI_RPC_PROBE, "", "3:\n\n");
}

TEST(test_notify_and_probe)
{
    const te_message hello = {"n1", 2, "hello", 5}, refused = {"refuse", 6, "hello", 5},
                     bytes = {"\xff", 1, "hello", 5};

    assert_int_equal(tei_rpc_notify(NULL, &addr, &hello, 0, SOON), 0);
    assert_int_equal(tei_rpc_notify(NULL, &addr, &refused, 0, SOON), TE_ERR_REJECTED);
    assert_int_equal(tei_rpc_notify(NULL, &addr, &bytes, 0, SOON), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_rpc_probe(NULL, &addr, SOON), 0);
}

TEST(test_bytes_on_the_wire)
{
    int fd = dial();

    put(fd, "\4\0\0\0\0\0\0\0\1{}\n", 12);
    check_bytes(fd,
                "\7\0\0\0\0\0\0\0\1"
                "1:{}\n\n",
                15);
    check_closed(fd);
}

TEST(test_old_form_is_answered_in_kind)
{
    int fd = dial();

    put(fd, "\3\0\0\0\0\0\0\0{}\n", 11);
    check_bytes(fd,
                "\6\0\0\0\0\0\0\0"
                "0:{}\n\n",
                14);
    check_closed(fd);
}

TEST(test_request_in_single_bytes)
{
    static const char frame[] = "\4\0\0\0\0\0\0\0\1{}\n";
    int fd = dial();

    for (size_t i = 0; i < sizeof frame - 1; i++) {
        put(fd, frame + i, 1);
        usleep(500);
    }
    check_bytes(fd, "\7\0\0\0\0\0\0\0\1", 9);
    close(fd);
}

TEST(test_client_that_shuts_its_side_gets_its_reply)
{
    int fd = dial();

    put_frame(fd, 3, "{}");
    shutdown(fd, SHUT_WR);
    check_bytes(fd,
                "\6\0\0\0\0\0\0\0\3"
                "3:{}\n",
                14);
    check_closed(fd);
}

/* The socket takes a little at a time; meanwhile others are served. */
TEST(test_big_reply_to_a_slow_reader)
{
    uint64_t got = 0, want = 8 + 1 + BIG + 1;
    char *buf = malloc(MAX);
    int fd = dial();

    assert_non_null(buf);
    put_frame(fd, 1, "big");
    while (got < want) {
        size_t n = tei_min((size_t)(want - got), MAX);

        assert_int_equal(tei_read_full(fd, buf, n, SOON), 0);
        got += n;
        if (got < 4 * MAX)
            check_alive();
    }
    check_closed(fd);
    free(buf);
}

TEST(test_larger_reply_than_allowed)
{
    struct tei_bytes reply;

    assert_int_equal(tei_rpc_request(NULL, &addr, TEI_RPC_METADATA, "big", 3, MAX, SOON, &reply),
                     TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "MC_HANDSHAKE_MAX_LENGTH"));
    assert_int_equal(
        tei_rpc_request(NULL, &addr, TEI_RPC_METADATA, "big", 3, BIG + 2, SOON, &reply), 0);
    assert_int_equal(reply.len, BIG + 1);
    tei_bytes_fini(&reply);
}

/* ---- replies from elsewhere, and late */

struct asking {
    pthread_t thread;
    int rc;
    struct tei_bytes reply;
};

static void *ask(void *arg)
{
    struct asking *a = arg;

    a->rc = tei_rpc_request(NULL, &addr, TEI_RPC_METADATA, "hold", 4, MAX, SOON, &a->reply);
    return NULL;
}

TEST(test_reply_from_another_thread)
{
    struct asking a[3] = {0};

    for (int i = 0; i < 3; i++)
        assert_int_equal(tei_thread_start(&a[i].thread, "ask", ask, &a[i]), 0);
    wait_held(3);
    check_alive();
    for (int i = 2; i >= 0; i--) {
        assert_string_equal(held_body[i], "hold\n");
        tei_rpc_reply(held[i], "late", 4);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(a[i].thread, NULL);
        assert_int_equal(a[i].rc, 0);
        assert_string_equal(a[i].reply.data, "late\n");
        tei_bytes_fini(&a[i].reply);
    }
}

TEST(test_reply_after_the_client_left)
{
    int quiet = dial(), abrupt = dial();

    put_frame(quiet, 1, "hold");
    put_frame(abrupt, 1, "hold");
    wait_held(2);
    close(quiet);
    hang_up(abrupt);
    usleep(50000);
    assert_string_equal(held_body[0], "hold");
    tei_rpc_reply(held[0], "x", 1);
    tei_rpc_reply(held[1], "x", 1);
    check_alive();
}

TEST(test_reply_after_the_server_closed)
{
    int fds[3] = {dial(), dial(), dial()};

    for (int i = 0; i < 3; i++)
        put_frame(fds[i], 1, "hold");
    wait_held(3);
    tei_loop_join(&loop);
    /*
     * One reply is on its way to the loop when the server closes, one comes after that, one after
     * the loop has gone.
     */
    tei_rpc_reply(held[0], "x", 1);
    tei_rpc_server_close(server);
    server = NULL;
    tei_rpc_reply(held[1], "x", 1);
    tei_loop_fini(&loop);
    tei_rpc_reply(held[2], "x", 1);
    for (int i = 0; i < 3; i++)
        check_closed(fds[i]);
}

/* ---- what takes long */

#define HEAVY 120 /* characters of a body */

static bool is_heavy(void *arg, enum tei_rpc_type type, size_t len)
{
    assert_ptr_equal(arg, &loop);
    return type == TEI_RPC_METADATA && len == HEAVY;
}

/* From an address of this host; the connection may be under way yet. */
static int call_from(const char *host)
{
    struct tei_addr from, to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_true(tei_resolve_numeric(host, 0, &from));
    assert_true(tei_resolve_numeric(addr.host, addr.port, &to));
    assert_int_equal(bind(fd, (struct sockaddr *)&from.ss, from.len), 0);
    if (connect(fd, (struct sockaddr *)&to.ss, to.len) < 0)
        assert_int_equal(errno, EINPROGRESS);
    return fd;
}

static int dial_from(const char *host)
{
    int fd = call_from(host);

    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, PATIENCE_MS), 1);
    return fd;
}

static int ask_much(const char *host, const char *word)
{
    char body[HEAVY + 1];
    int fd = dial_from(host);

    snprintf(body, sizeof body, "hold %-*s", HEAVY - 5, word);
    put_frame(fd, 1, body);
    check_alive(); /* the server has read it */
    return fd;
}

/* Waits until the handler has the request; whether it is that one. Then it is answered. */
static void next_is(int i, const char *word)
{
    char want[16];

    wait_held(i + 1);
    snprintf(want, sizeof want, "hold %-10s", word);
    assert_string_equal(held_body[i], want);
    tei_rpc_reply(held[i], "done", 4);
}

/* However much somebody asks for, who asks for one thing has it next. */
TEST(test_heavy_requests_take_turns)
{
    static const char *const greedy = "127.0.0.2", *const modest = "127.0.0.3";
    int fds[6];

    fds[0] = ask_much(greedy, "a0");
    wait_held(1);
    for (int i = 1; i < 5; i++)
        fds[i] = ask_much(greedy, (const char *[]){"a0", "a1", "a2", "a3", "a4"}[i]);
    fds[5] = ask_much(modest, "b0");
    hang_up(fds[3]); /* nothing is done for who has gone */
    check_alive();
    assert_int_equal(n_held, 1);
    next_is(0, "a0");
    next_is(1, "a1");
    next_is(2, "b0");
    next_is(3, "a2");
    next_is(4, "a4");
    for (int i = 0; i < 6; i++)
        if (i != 3)
            check_bytes(fds[i], "\6\0\0\0\0\0\0\0\1done\n", 14);
    for (int i = 0; i < 6; i++)
        if (i != 3)
            close(fds[i]);
}

/* One long request of an address is read at a time: who sends many has his own wait. */
TEST(test_long_requests_are_read_one_by_one)
{
    static const char head[] = "\0\0\2\0\0\0\0\0\1";
    char *body = calloc(1, (128 << 10) - 1);
    int fds[2];

    assert_non_null(body);
    memset(body, ' ', (128 << 10) - 1);
    for (int i = 0; i < 2; i++) {
        fds[i] = dial_from("127.0.0.2");
        put(fds[i], head, 9);
        put(fds[i], body, 60000);
    }
    check_alive();
    put(fds[1], body, (128 << 10) - 1 - 60000); /* all of the second, which is not read */
    assert_false(is_closed_within(fds[1], 0));
    check_alive();
    assert_true(poll(&(struct pollfd){.fd = fds[1], .events = POLLIN}, 1, 0) == 0);
    put(fds[0], body, (128 << 10) - 1 - 60000);
    for (int i = 0; i < 2; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};

        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        close(fds[i]);
    }
    free(body);
}

/* What waits to be read counts by what it has announced: the kernel holds it for us. */
TEST(test_long_requests_that_wait_are_bounded)
{
    enum { ALL = 280, HELD = 256 };
    static const char head[8192] = "\0\0\x10\0\0\0\0\0\2"; /* of MAX bytes */
    int fds[ALL], open = 0;

    for (int i = 0; i < ALL; i++) {
        fds[i] = dial_from("127.0.0.2");
        put(fds[i], head, sizeof head);
        check_alive(); /* it was looked at */
    }
    for (int i = 0; i < ALL; i++)
        open += !is_closed_within(fds[i], 0);
    assert_in_range(open, 1, HELD + 1); /* and the one that is being read */
    for (int i = 0; i < ALL; i++)
        close(fds[i]);
}

/* Many connections with these bytes end, all at once; those that wait for the reply one by one. */
static void visit(const char *bytes, size_t n, bool waits)
{
    int fds[40];

    for (unsigned i = 0; i < TEI_ARRAY_LEN(fds); i++) {
        fds[i] = dial_from("127.0.0.2");
        put(fds[i], bytes, n);
        if (waits)
            check_bytes(fds[i], "\5\0\0\0\0\0\0\0\0033:x\n", 13);
    }
    for (unsigned i = 0; i < TEI_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

static _Atomic int n_bans; /* that the server has told of */

static void count_bans(void *arg, enum te_log_level level, const char *message)
{
    (void)arg;
    (void)level;
    if (strstr(message, ": 127.0.0.2") && strstr(message, "is asked to ignore"))
        atomic_fetch_add(&n_bans, 1);
}

/* Whether a connection of their address is, others being served. */
static bool is_ignored(void)
{
    int fd;
    bool ignored;

    check_alive(); /* what is told of has been done */
    fd = call_from("127.0.0.2");
    check_alive();
    ignored = test_was_ignored(fd);
    close(fd);
    return ignored;
}

/*
 * Visits until they are banned, and then ignored. A ban may be over before a slow machine looks: each is
 * twice as long as the one before.
 */
static bool comes_to_be_ignored(const char *bytes, size_t n)
{
    for (int i = 0; i < 8; i++) {
        int before = atomic_load(&n_bans);

        check_alive();
        visit(bytes, n, false);
        for (int ms = 0; ms < 1000 && atomic_load(&n_bans) == before; ms++)
            usleep(1000);
        if (atomic_load(&n_bans) > before && is_ignored())
            return true;
    }
    return false;
}

/* Nothing; what is no request; a request that is not waited for. */
static void test_who_is_of_no_use_is_ignored(void **state)
{
    static const char request[] = "\2\0\0\0\0\0\0\0\3x";
    static const size_t lengths[] = {0, 4, 10};

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lengths); i++) {
        assert_true(comes_to_be_ignored(request, lengths[i]));
        assert_int_equal(close_server(state), 0);
        assert_int_equal(open_server(state), 0);
    }
}

static void test_who_waits_for_replies_is_not_ignored(void **state)
{
    size_t fds = test_count_fds();

    (void)state;
    atomic_store(&n_bans, 0);
    check_alive();
    for (int i = 0; i < 5; i++)
        visit("\2\0\0\0\0\0\0\0\3x", 10, true);
    WAIT_FOR(test_count_fds() <= fds); /* all are seen to have ended */
    assert_int_equal(atomic_load(&n_bans), 0);
}

/* The handler may ask whether anybody still waits. */
TEST(test_an_answer_that_nobody_waits_for)
{
    int fd = dial();

    put_frame(fd, 1, "hold");
    wait_held(1);
    assert_false(tei_rpc_is_moot(held[0]));
    hang_up(fd);
    WAIT_FOR(tei_rpc_is_moot(held[0]));
    tei_rpc_reply(held[0], "", 0);
    check_alive();
}

/* What is small by its nature is not read when it is large, nor is it waited for. */
TEST(test_a_large_connection_is_cut_off)
{
    static const uint8_t types[] = {TEI_RPC_CONNECTION, TEI_RPC_PROBE, '{'};

    for (size_t i = 0; i < sizeof types; i++) {
        int fd = dial();

        put(fd, "\2\0\1\0\0\0\0\0", 8); /* 64 KiB and 2 */
        put(fd, &types[i], 1);
        check_closed(fd);
    }
    check_alive();
}

/* ---- bad manners */

TEST(test_garbage_is_cut_off)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02zzzzzz",
                                          "\xff\xff\xff\xff\xff\xff\xff\xff"};
    int fd;

    for (size_t i = 0; i < TEI_ARRAY_LEN(garbage); i++) {
        fd = dial();
        put(fd, garbage[i], strlen(garbage[i]));
        check_closed(fd);
    }
    fd = dial();
    put(fd, "\0\0\0\0\0\0\0\0", 8);
    check_closed(fd);
    fd = dial();
    put(fd, "\1\0\x10\0\0\0\0\0", 8);
    check_closed(fd);
    check_alive();
}

/* Each is given 5 s, all of them at the same time, and nobody else notices. */
TEST(test_patience_ends)
{
    int64_t start = tei_now_ns();
    int silent = dial(), half = dial(), lingering = dial(), not_reading = dial();

    put(half, "\4\0\0\0\0\0\0\0\1{", 10);
    put_frame(lingering, 3, "x");
    check_bytes(lingering,
                "\5\0\0\0\0\0\0\0\3"
                "3:x\n",
                13);
    put_frame(not_reading, 1, "big");
    while (!is_closed_within(silent, 100) && !is_closed_within(half, 0))
        check_alive();
    assert_in_range(tei_now_ns() - start, 5 * TEI_NS_PER_S, PATIENCE_NS);
    check_closed(silent);
    check_closed(half);
    usleep(500000);
    end_loop(); /* all were dropped or are dropped now; leaks would show */
    close(lingering);
    close(not_reading);
}

static void raise_nofile(void)
{
    struct rlimit lim;

    getrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_cur >= 4096)
        return;
    lim.rlim_cur = tei_min(lim.rlim_max, 4096);
    setrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_cur < 4096)
        skip();
}

/* Whether the server has closed what it should. All that begins here is silent, and so closed after 5 s:
 * if it takes nearly that long to count, nothing is to be learnt. */
static bool room_was_made(void)
{
    enum { ROOM = 1024, MORE = 20 };
    static int fds[ROOM + MORE];
    int64_t start = tei_now_ns();
    bool oldest, newest, in_time, other;
    int gone = 0, modest = dial_from("127.0.0.3");

    for (int i = 0; i < ROOM + MORE; i++) {
        fds[i] = dial();
        if (i % 64 == 63)
            check_alive(); /* the server has accepted those before */
    }
    check_alive();
    for (int i = 0; i < ROOM + MORE; i++)
        gone += is_closed_within(fds[i], 0);
    oldest = is_closed_within(fds[0], 0);
    newest = is_closed_within(fds[ROOM + MORE - 1], 0);
    other = is_closed_within(modest, 0);
    close(modest);
    in_time = tei_now_ns() - start < 4 * TEI_NS_PER_S;
    for (int i = 0; i < ROOM + MORE; i++)
        close(fds[i]);
    if (in_time) {
        assert_in_range(gone, MORE, MORE + 1 + ROOM / 64 + 1);
        assert_true(oldest);
        assert_false(newest);
        assert_false(other); /* it was there first, but from an address that has no other */
    }
    return in_time;
}

TEST(test_who_has_the_most_makes_room)
{
    raise_nofile();
    while (!room_was_made()) {}
}

static void connect_to_server(int fd)
{
    struct tei_addr a;

    assert_int_equal(tei_resolve(addr.host, addr.port, &a, 1), 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&a.ss, a.len), 0);
}

/* Without a free descriptor the server waits, without spinning, and goes on when there is one. */
TEST(test_no_descriptor_left)
{
    struct rlimit old, tight;
    uint64_t before;
    int64_t start;
    size_t fds;
    int fd;

    if (test_under_valgrind())
        skip(); /* it drops the connection that there was no descriptor for */
    fds = test_count_fds();
    fd = dial();
    put_frame(fd, 3, "x");
    check_bytes(fd,
                "\5\0\0\0\0\0\0\0\3"
                "3:x\n",
                13);
    close(fd);
    WAIT_FOR(test_count_fds() <= fds); /* until the server has closed its end, too */
    getrlimit(RLIMIT_NOFILE, &old);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tight = old;
    for (tight.rlim_cur = 3; fcntl((int)tight.rlim_cur, F_GETFD) >= 0; tight.rlim_cur++) {}
    setrlimit(RLIMIT_NOFILE, &tight);
    start = tei_now_ns();
    before = atomic_load(&loop.wakeups);
    connect_to_server(fd);
    put_frame(fd, 3, "x");
    WAIT_FOR(atomic_load(&loop.wakeups) > before);
    usleep(350000);
    assert_in_range(atomic_load(&loop.wakeups) - before, 1,
                    30 + (tei_now_ns() - start) / (20 * TEI_NS_PER_MS));
    setrlimit(RLIMIT_NOFILE, &old);
    check_bytes(fd,
                "\5\0\0\0\0\0\0\0\3"
                "3:x\n",
                13);
    close(fd);
}

/* ---- the client against servers of bad manners */

struct rude {
    int fd;
    struct tei_hostport addr;
    const char *bytes;
    size_t n;
    bool hang; /* keep the connection open */
    pthread_t thread;
    int conn;
};

static void *be_rude(void *arg)
{
    struct rude *r = arg;
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    char buf[512];

    poll(&p, 1, PATIENCE_MS);
    r->conn = tei_accept(r->fd, NULL);
    p.fd = r->conn;
    poll(&p, 1, PATIENCE_MS);
    if (recv(r->conn, buf, sizeof buf, 0) > 0)
        tei_write_full(r->conn, r->bytes, r->n, SOON);
    if (!r->hang) {
        shutdown(r->conn, SHUT_WR);
        /* What the client still sends must not turn the end into a reset. */
        while (poll(&p, 1, PATIENCE_MS) > 0 && recv(r->conn, buf, sizeof buf, 0) > 0) {}
    }
    return NULL;
}

static int ask_rude(const char *bytes, size_t n, bool hang, int ms)
{
    struct rude r = {.bytes = bytes, .n = n, .hang = hang, .addr = {.host = "127.0.0.1"}};
    struct tei_bytes reply = {0};
    int rc;

    r.fd = tei_listen("127.0.0.1", &r.addr.port, 1);
    assert_true(r.fd >= 0);
    assert_int_equal(tei_thread_start(&r.thread, "rude", be_rude, &r), 0);
    rc = tei_rpc_request(NULL, &r.addr, TEI_RPC_PROBE, "{}", 2, MAX, tei_deadline_ns(ms), &reply);
    pthread_join(r.thread, NULL);
    close(r.conn);
    close(r.fd);
    tei_bytes_fini(&reply);
    return rc;
}

TEST(test_servers_of_bad_manners)
{
    int64_t start;

    assert_int_equal(ask_rude("\3\0\0\0\0\0\0\0\3{}", 11, false, PATIENCE_MS), 0);
    assert_int_equal(ask_rude("\3\0\0\0\0\0\0\0\2{}", 11, false, PATIENCE_MS), TE_ERR_PROTOCOL);
    assert_int_equal(ask_rude("\2\0\0\0\0\0\0\0{}", 10, false, PATIENCE_MS), TE_ERR_PROTOCOL);
    assert_int_equal(ask_rude("\0\0\0\0\0\0\0\0", 8, false, PATIENCE_MS), TE_ERR_PROTOCOL);
    assert_int_equal(ask_rude("HTTP/1.1 400 Bad Request", 24, false, PATIENCE_MS), TE_ERR_PROTOCOL);
    assert_int_equal(ask_rude("", 0, false, PATIENCE_MS), TE_ERR_LINK);
    assert_int_equal(ask_rude("\3\0\0", 3, false, PATIENCE_MS), TE_ERR_LINK);
    assert_int_equal(ask_rude("\3\0\0\0\0\0\0\0\3{", 10, false, PATIENCE_MS), TE_ERR_LINK);
    start = tei_now_ns();
    assert_int_equal(ask_rude("\3\0\0\0\0\0\0\0\3{", 10, true, 200), TE_ERR_TIMEOUT);
    assert_in_range(tei_now_ns() - start, 190 * TEI_NS_PER_MS, PATIENCE_NS);
}

TEST(test_nobody_there)
{
    struct tei_hostport nobody = {.host = "127.0.0.1"};
    int fd;

    nobody.port = test_dead_port(&fd);
    assert_int_equal(tei_rpc_probe(NULL, &nobody, SOON), TE_ERR_PEER);
    close(fd);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, open_server, close_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_each_type),
        SERVED(test_notify_and_probe),
        SERVED(test_bytes_on_the_wire),
        SERVED(test_old_form_is_answered_in_kind),
        SERVED(test_request_in_single_bytes),
        SERVED(test_client_that_shuts_its_side_gets_its_reply),
        SERVED(test_big_reply_to_a_slow_reader),
        SERVED(test_larger_reply_than_allowed),
        SERVED(test_reply_from_another_thread),
        SERVED(test_reply_after_the_client_left),
        SERVED(test_reply_after_the_server_closed),
        SERVED(test_garbage_is_cut_off),
        SERVED(test_patience_ends),
        SERVED(test_who_has_the_most_makes_room),
        SERVED(test_heavy_requests_take_turns),
        SERVED(test_long_requests_are_read_one_by_one),
        SERVED(test_an_answer_that_nobody_waits_for),
        SERVED(test_long_requests_that_wait_are_bounded),
        SERVED(test_who_is_of_no_use_is_ignored),
        SERVED(test_who_waits_for_replies_is_not_ignored),
        SERVED(test_a_large_connection_is_cut_off),
        SERVED(test_no_descriptor_left),
        cmocka_unit_test(test_servers_of_bad_manners),
        cmocka_unit_test(test_nobody_there),
    };
    int failed;

    te_log_set_sink(count_bans, NULL);
    te_log_set_level(TE_LOG_WARN);
    big = malloc(BIG);
    if (!big)
        return 1;
    memset(big, 'x', BIG);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(big);
    return failed;
}
