/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=60 */
/*
 * The bytes on the wire, byte by byte: the server asked by plain sockets, the client answered by
 * them. What is sent and expected here are the captured bytes of another engine of this protocol
 * family, with the address put in.
 */
#include "conformance.h"

#include "base/os.h"
#include "proc.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct conformance tcp = {.transport = "tcp"};
static const uint8_t ok[] = {0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};
static const uint8_t rejected[] = {1, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};

/* -------------------------------------------------------------------------------- plain sockets */

static uint16_t port_of(struct tei_transport *t)
{
    json_t *root = json_object();
    uint16_t port;

    assert_int_equal(t->ops.describe(t, root), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "tcp_proto_version")), 2);
    port = (uint16_t)json_integer_value(json_object_get(root, "tcp_data_port"));
    json_decref(root);
    return port;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int dial(uint16_t port)
{
    struct sockaddr_in a = loopback(port);
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t n)
{
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

static void expect(int fd, const void *bytes, size_t n)
{
    char got[70000];

    assert_true(n <= sizeof got);
    assert_int_equal(recv(fd, got, n, MSG_WAITALL), n);
    assert_memory_equal(got, bytes, n);
}

static void expect_end(int fd)
{
    char c;

    assert_true(recv(fd, &c, 1, 0) <= 0);
    close(fd);
}

/*
 * A header in the captured form: size, address, opcode, then padding that a server has to ignore.
 */
static void put_head(int fd, uint64_t size, const void *addr, uint8_t opcode)
{
    uint8_t h[24];
    uint64_t a = (uintptr_t)addr;

    memset(h, 0xc3, sizeof h);
    memcpy(h, &size, 8);
    memcpy(h + 8, &a, 8);
    h[16] = opcode;
    put(fd, h, sizeof h);
}

/* ----------------------------------------------------------------------------------- our server */

static void serves_v2_and_v1_on_one_connection(void **state)
{
    struct pair *p = pair_open(&tcp);
    int fd = dial(port_of(p->b));
    char block[64];

    (void)state;
    fill_pattern(p->bm, 4096, 1);
    for (int i = 0; i < 20; i++) {
        fill_pattern(block, sizeof block, (uint32_t)i);
        put_head(fd, 64, p->bm + 128, 0x81);
        put(fd, block, sizeof block);
        expect(fd, ok, sizeof ok);
        assert_memory_equal(p->bm + 128, block, sizeof block);
        put_head(fd, 64, p->bm + 128, 0x80);
        expect(fd, ok, sizeof ok);
        expect(fd, block, sizeof block);
        put_head(fd, 50, p->bm + 130, i % 2 ? 0 : 0x42);
        expect(fd, block + 2, 50);
    }
    put_head(fd, 64, p->bm, 1);
    put(fd, block, 64);
    shutdown(fd, SHUT_WR);
    expect_end(fd);
    assert_memory_equal(p->bm, block, 64);
    pair_close(p);
}

#define SMALL_SLICE ((size_t)4096)

static void small_slices(struct tei_conf *c)
{
    c->tcp_slice_size = SMALL_SLICE;
}

/*
 * A session has a bounded number of socket calls per event. Whatever state it is in when they are
 * used up, it must go on: lengths of 1 to 16 calls, both ways, sent in one go.
 */
static void goes_on_after_its_calls_are_used_up(void **state)
{
    static const struct conformance with = {.transport = "tcp", .configure = small_slices};
    struct pair *p = pair_open(&with);
    int fd = dial(port_of(p->b));
    char *block = malloc(16 * SMALL_SLICE);

    (void)state;
    assert_non_null(block);
    for (size_t calls = 1; calls <= 16; calls++) {
        size_t n = calls * SMALL_SLICE;

        fill_pattern(block, n, (uint32_t)calls);
        put_head(fd, n, p->bm, 0x81);
        put(fd, block, n);
        expect(fd, ok, sizeof ok);
        assert_memory_equal(p->bm, block, n);
        put_head(fd, n, p->bm, 0x80);
        expect(fd, ok, sizeof ok);
        expect(fd, block, n);
    }
    free(block);
    close(fd);
    pair_close(p);
}

static void takes_a_header_in_drops(void **state)
{
    struct pair *p = pair_open(&tcp);
    int fd = dial(port_of(p->b));
    uint8_t h[24 + 5] = {5};
    uint64_t a = (uintptr_t)p->bm;

    (void)state;
    memcpy(h + 8, &a, 8);
    h[16] = 0x81;
    memcpy(h + 24, "hello", 5);
    for (size_t i = 0; i < sizeof h; i++) {
        put(fd, h + i, 1);
        usleep(1000);
    }
    expect(fd, ok, sizeof ok);
    assert_memory_equal(p->bm, "hello", 5);
    close(fd);
    pair_close(p);
}

/* Size 0, a range that wraps, one outside, one that ends outside; each closes its connection. */
static void rejects(void **state)
{
    struct pair *p = pair_open(&tcp);
    uint16_t port = port_of(p->b);
    char *big = calloc(1, 1 << 20);
    const struct {
        uint64_t size;
        const char *addr;
    } bad[] = {{0, p->bm}, {UINT64_MAX, p->bm},           {16, (char *)UINTPTR_MAX - 3},
               {64, big},  {64, p->bm + PAIR_BYTES - 63}, {PAIR_BYTES + 1, p->bm}};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        for (int write = 0; write < 2; write++) {
            int fd = dial(port);

            put_head(fd, bad[i].size, bad[i].addr, (uint8_t)(0x80 | write));
            if (write)
                (void)!send(fd, big, 1 << 20, MSG_NOSIGNAL | MSG_DONTWAIT);
            expect(fd, rejected, sizeof rejected);
            expect_end(fd);
            fd = dial(port);
            put_head(fd, bad[i].size, bad[i].addr, (uint8_t)write);
            expect_end(fd);
        }
    }
    free(big);
    pair_close(p);
}

static void a_half_header_is_not_waited_for(void **state)
{
    struct pair *p = pair_open(&tcp);
    int slow = dial(port_of(p->b)), silent = dial(port_of(p->b));
    int64_t start = tei_now_ns();
    char block[64];

    (void)state;
    put(slow, "\1\2\3", 3);
    expect_end(slow);
    assert_true(tei_now_ns() - start > 4 * TEI_NS_PER_S);
    /* A connection between two requests may be silent for as long as it likes. */
    put_head(silent, 64, p->bm, 0x80);
    expect(silent, ok, sizeof ok);
    assert_int_equal(recv(silent, block, 64, MSG_WAITALL), 64);
    close(silent);
    pair_close(p);
}

static void few_sessions(struct tei_conf *c)
{
    c->tcp_max_sessions = 2;
    c->tcp_threads = 1;
    c->tcp_lanes = 1;
}

static void the_longest_idle_makes_room(void **state)
{
    const struct conformance with = {.transport = "tcp", .configure = few_sessions};
    struct pair *p = pair_open(&with);
    uint16_t port = port_of(p->b);
    int first = dial(port), second, third;

    (void)state;
    put_head(first, 64, p->bm, 0x80);
    expect(first, ok, sizeof ok);
    second = dial(port);
    put_head(second, 64, p->bm, 0x80);
    expect(second, ok, sizeof ok);
    third = dial(port);
    put_head(third, 64, p->bm, 0x80);
    expect(third, ok, sizeof ok);
    expect(third, p->bm, 64);
    expect(first, p->bm, 64);
    expect_end(first);
    expect(second, p->bm, 64);
    close(second);
    close(third);
    pair_close(p);
}

/*
 * With no descriptor left nothing spins, and when there are some again the waiting client is
 * served.
 */
static void lives_without_descriptors(void **state)
{
    struct pair *p = pair_open(&tcp);
    _Atomic uint64_t *wakeups = &tei_tcp_of(p->b)->workers[0].loop.wakeups; /* which listens */
    struct rlimit limit, none;
    int fd = dial(port_of(p->b)), waiting;
    uint64_t before;
    int64_t start;

    (void)state;
    close(fd);
    waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    struct sockaddr_in a = loopback(port_of(p->b));
    start = tei_now_ns();
    before = atomic_load(wakeups);
    assert_int_equal(connect(waiting, (struct sockaddr *)&a, sizeof a), 0);
    WAIT_FOR(atomic_load(wakeups) > before);
    usleep(500000);
    assert_in_range(atomic_load(wakeups) - before, 1,
                    30 + (tei_now_ns() - start) / (20 * TEI_NS_PER_MS));
    setrlimit(RLIMIT_NOFILE, &limit);
    put_head(waiting, 64, p->bm, 0x80);
    expect(waiting, ok, sizeof ok);
    close(waiting);
    pair_close(p);
}

/* ----------------------------------------------------------------------------------- our client */

#define STAGE_BYTES ((size_t)64 << 20) /* more than any socket holds */

struct stage {
    struct fake_host host;
    struct tei_transport *t;
    struct tei_attach *attach;
    char *memory;
    int listener;
    struct fake_task task;
};

/* Up to where somebody listens; its port. */
static uint16_t prepare_stage(struct stage *s, int version, void (*configure)(struct tei_conf *))
{
    uint16_t port = test_dead_port(&s->listener);

    fake_host_init(&s->host);
    s->host.conf.tcp_lanes = 1;
    if (configure)
        configure(&s->host.conf);
    s->t = fake_open(&s->host, "tcp");
    s->memory = calloc(1, STAGE_BYTES);
    assert_int_equal(fake_attach_json(s->t,
                                      json_pack("{s:i,s:i}", "tcp_data_port", port,
                                                "tcp_proto_version", version),
                                      "127.0.0.1", &s->attach),
                     0);
    return port;
}

static void open_stage(struct stage *s, int version, void (*configure)(struct tei_conf *))
{
    prepare_stage(s, version, configure);
    assert_int_equal(listen(s->listener, 16), 0);
}

static void close_stage(struct stage *s)
{
    close(s->listener);
    fake_detach(s->t, s->attach);
    fake_close(s->t);
    fake_host_fini(&s->host);
    free(s->memory);
}

static void request(struct stage *s, int opcode, size_t n)
{
    struct tei_list list;

    tei_list_init(&list);
    fake_work(&list, s->t, s->attach, &s->task, opcode, s->memory, (void *)0x7f441f600000, n);
    s->t->ops.post(s->t, &list);
}

static int outcome(struct stage *s)
{
    assert_true(fake_wait(&s->host, NULL, &s->task, 1, PATIENCE_MS));
    return s->task.error;
}

static int answer(struct stage *s)
{
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = accept(s->listener, NULL, NULL);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

static void expect_head(int fd, uint8_t size, uint8_t opcode)
{
    uint8_t h[24] = {size, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0x1f, 0x44, 0x7f, 0, 0, opcode};

    expect(fd, h, sizeof h);
}

static void asks_v2_on_one_connection(void **state)
{
    struct stage s = {0};
    char block[64];
    int fd;

    (void)state;
    open_stage(&s, 2, NULL);
    request(&s, TE_READ, 64);
    fd = answer(&s);
    for (uint32_t i = 0; i < 5; i++) {
        fill_pattern(block, 64, i);
        expect_head(fd, 64, 0x80);
        put(fd, ok, 3);
        usleep(2000);
        put(fd, ok + 3, 5);
        put(fd, block, 64);
        assert_int_equal(outcome(&s), 0);
        assert_memory_equal(s.memory, block, 64);
        request(&s, TE_WRITE, 64);
        expect_head(fd, 64, 0x81);
        expect(fd, block, 64);
        assert_false(s.task.done);
        put(fd, ok, sizeof ok);
        assert_int_equal(outcome(&s), 0);
        request(&s, TE_READ, 64);
    }
    expect_head(fd, 64, 0x80);
    put(fd, rejected, sizeof rejected);
    assert_int_equal(outcome(&s), TE_ERR_STALE);
    expect_end(fd);
    close_stage(&s);
}

static void asks_v1_on_a_connection_each(void **state)
{
    struct stage s = {0};
    char block[64];
    int fd;

    (void)state;
    open_stage(&s, 1, NULL);
    fill_pattern(block, 64, 1);
    request(&s, TE_READ, 64);
    fd = answer(&s);
    expect_head(fd, 64, 0);
    put(fd, block, 64);
    assert_int_equal(outcome(&s), 0);
    assert_memory_equal(s.memory, block, 64);
    expect_end(fd);
    request(&s, TE_WRITE, 64);
    fd = answer(&s);
    expect_head(fd, 64, 1);
    expect(fd, block, 64);
    assert_false(fake_wait(&s.host, NULL, &s.task, 1, 0));
    expect_end(fd); /* it says that nothing more comes, and waits for the same */
    assert_int_equal(outcome(&s), 0);
    close_stage(&s);
}

/* What a v1 server can say by closing. */
static void understands_a_v1_refusal(void **state)
{
    const struct linger reset = {.l_onoff = 1};
    struct stage s = {0};
    int fd;

    (void)state;
    open_stage(&s, 1, NULL);
    request(&s, TE_READ, 64);
    fd = answer(&s);
    expect_head(fd, 64, 0);
    close(fd);
    assert_int_equal(outcome(&s), TE_ERR_STALE);
    request(&s, TE_WRITE, 64);
    fd = answer(&s);
    expect_head(fd, 64, 1);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    assert_int_equal(outcome(&s), TE_ERR_LINK);
    /* Closed in good order, but with payload unread: that is a reset. */
    request(&s, TE_WRITE, 64);
    fd = answer(&s);
    expect_head(fd, 64, 1);
    close(fd);
    assert_int_equal(outcome(&s), TE_ERR_LINK);
    close_stage(&s);
}

static void in_one_piece(struct tei_conf *c)
{
    c->tcp_piece_size = STAGE_BYTES;
}

/* A status before the payload is through can only be bad news, and is heeded at once. */
static void heeds_an_early_status(void **state)
{
    struct stage s = {0};
    int fd;

    (void)state;
    open_stage(&s, 2, in_one_piece);
    for (int i = 0; i < 3; i++) {
        static const uint8_t *const replies[] = {rejected, ok, (const uint8_t *)"HTTP/1.1"};
        static const int errors[] = {TE_ERR_STALE, TE_ERR_PROTOCOL, TE_ERR_PEER};
        char head[24];

        request(&s, TE_WRITE, STAGE_BYTES);
        fd = answer(&s);
        assert_int_equal(recv(fd, head, sizeof head, MSG_WAITALL), sizeof head);
        usleep(20000);
        put(fd, replies[i], 8);
        assert_int_equal(outcome(&s), errors[i]);
        close(fd);
    }
    close_stage(&s);
}

static void garbage_is_an_error(void **state)
{
    static const uint8_t odd_code[] = {9, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};
    struct stage s = {0};
    int fd;

    (void)state;
    open_stage(&s, 2, NULL);
    for (int i = 0; i < 4; i++) {
        request(&s, i % 2 ? TE_WRITE : TE_READ, 64);
        fd = answer(&s);
        expect_head(fd, 64, (uint8_t)(0x80 | i % 2));
        if (i % 2)
            assert_int_equal(recv(fd, (char[64]){0}, 64, MSG_WAITALL), 64);
        put(fd, i < 2 ? (const uint8_t *)"garbage." : odd_code, 8);
        assert_int_equal(outcome(&s), i < 2 ? TE_ERR_PEER : TE_ERR_PROTOCOL);
        close(fd);
    }
    close_stage(&s);
}

/* From one who has spoken the protocol before it is not a stranger's. */
static void garbage_after_a_status_is_the_peers(void **state)
{
    struct stage s = {0};
    char block[64];
    int fd;

    (void)state;
    open_stage(&s, 2, NULL);
    request(&s, TE_WRITE, 64);
    fd = answer(&s);
    for (int i = 0; i < 2; i++) {
        expect_head(fd, 64, 0x81);
        assert_int_equal(recv(fd, block, 64, MSG_WAITALL), 64);
        put(fd, i ? (const uint8_t *)"garbage." : ok, 8);
        assert_int_equal(outcome(&s), i ? TE_ERR_PROTOCOL : TE_ERR_OK);
        if (!i)
            request(&s, TE_WRITE, 64);
    }
    close(fd);
    close_stage(&s);
}

/*
 * A READ survives the loss of its connection; a WRITE that was on the way does not, and is not sent
 * twice.
 */
static void what_is_tried_again(void **state)
{
    struct pollfd silence = {.events = POLLIN};
    struct stage s = {0};
    char block[64];
    int fd;

    (void)state;
    open_stage(&s, 2, NULL);
    fill_pattern(block, 64, 3);
    request(&s, TE_READ, 64);
    fd = answer(&s);
    expect_head(fd, 64, 0x80);
    put(fd, ok, sizeof ok);
    put(fd, block, 30);
    close(fd);
    fd = answer(&s);
    expect_head(fd, 64, 0x80);
    put(fd, ok, sizeof ok);
    put(fd, block, 64);
    assert_int_equal(outcome(&s), 0);
    assert_memory_equal(s.memory, block, 64);
    request(&s, TE_WRITE, 64);
    expect_head(fd, 64, 0x81);
    close(fd);
    assert_int_equal(outcome(&s), TE_ERR_LINK);
    silence.fd = s.listener;
    assert_int_equal(poll(&silence, 1, 300), 0);
    close_stage(&s);
}

static uint64_t connections(struct tei_transport *t)
{
    struct te_stats s = {.size = sizeof s};

    t->ops.stats(t, &s);
    return s.connections;
}

/* A connection closed by the peer between two requests costs neither. */
static void a_stale_connection_is_replaced(void **state)
{
    struct stage s = {0};
    char block[64];

    (void)state;
    open_stage(&s, 2, NULL);
    fill_pattern(block, 64, 3);
    for (int i = 0; i < 6; i++) {
        int fd;

        request(&s, i % 2 ? TE_READ : TE_WRITE, 64);
        fd = answer(&s);
        expect_head(fd, 64, i % 2 ? 0x80 : 0x81);
        if (i % 2 == 0)
            assert_int_equal(recv(fd, block, 64, MSG_WAITALL), 64);
        put(fd, ok, sizeof ok);
        if (i % 2)
            put(fd, block, 64);
        assert_int_equal(outcome(&s), 0);
        close(fd);
        if (i >= 3 || i % 2 == 1) /* before a WRITE; a READ need not wait */
            WAIT_FOR(connections(s.t) == 0);
    }
    close_stage(&s);
}

static void quick_to_lose_patience(struct tei_conf *c)
{
    c->transfer_timeout_ms = 2000;
}

/* One on the wire and those behind it: one after the other they would take longer than is waited for. */
static void lack_of_progress_ends_it(void **state)
{
    enum { TASKS = PATIENCE_MS / 2000 + 10 };
    static struct fake_task tasks[TASKS];
    struct tei_list list;
    struct stage s = {0};
    int64_t start = tei_now_ns();
    int fd;

    (void)state;
    open_stage(&s, 2, quick_to_lose_patience);
    tei_list_init(&list);
    for (int i = 0; i < TASKS; i++)
        fake_work(&list, s.t, s.attach, &tasks[i], i % 2 ? TE_READ : TE_WRITE, s.memory, s.memory,
                  100);
    s.t->ops.post(s.t, &list);
    fd = answer(&s);
    assert_true(fake_wait(&s.host, NULL, tasks, TASKS, PATIENCE_MS));
    assert_true(tei_now_ns() - start > 1990 * TEI_NS_PER_MS);
    for (int i = 0; i < TASKS; i++)
        assert_int_equal(tasks[i].error, TE_ERR_TIMEOUT);
    close(fd);
    close_stage(&s);
}

/* A READ whose bytes come one by one, in 3 s, more than any patience; its outcome. */
static int read_slowly(struct stage *s, const char *block, size_t n)
{
    int fd, rc;

    request(s, TE_READ, n);
    fd = answer(s);
    put(fd, ok, sizeof ok);
    for (size_t i = 0; i < n; i++) {
        usleep(300000);
        (void)!send(fd, block + i, 1, MSG_NOSIGNAL);
    }
    rc = outcome(s);
    close(fd);
    return rc;
}

/* As long as bytes move, however slowly, nothing is late. A machine may stop for so long, but not each time. */
static void slow_progress_does_not(void **state)
{
    struct stage s = {0};
    char block[10] = "abcdefghi";
    int rc = TE_ERR_TIMEOUT;

    (void)state;
    open_stage(&s, 2, quick_to_lose_patience);
    for (int i = 0; i < 10 && rc == TE_ERR_TIMEOUT; i++)
        rc = read_slowly(&s, block, sizeof block);
    assert_int_equal(rc, 0);
    assert_memory_equal(s.memory, block, 10);
    close_stage(&s);
}

static void nobody_there(void **state)
{
    struct stage s = {0};
    int64_t start = tei_now_ns();
    char text[64];
    uint16_t port;

    (void)state;
    port = prepare_stage(&s, 2, NULL);
    request(&s, TE_READ, 10);
    assert_int_equal(outcome(&s), TE_ERR_PEER);
    assert_true(tei_now_ns() - start > 200 * TEI_NS_PER_MS);
    assert_int_equal(s.task.sys_errno, ECONNREFUSED);
    snprintf(text, sizeof text, "connecting to the data port 127.0.0.1:%u", (unsigned)port);
    assert_string_equal(s.task.why, text);
    close_stage(&s);
}

static void names_are_looked_up(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct tei_attach *by_name, *v6 = NULL;

    (void)state;
    assert_int_equal(fake_attach_json(p->a,
                                      json_pack("{s:i,s:i}", "tcp_data_port", port_of(p->b),
                                                "tcp_proto_version", 2),
                                      "localhost", &by_name),
                     0);
    fill_pattern(p->bm, 1000, 8);
    assert_int_equal(fake_transfer(p->a, by_name, TE_READ, p->am, p->bm, 1000), 0);
    assert_memory_equal(p->am, p->bm, 1000);
    fake_detach(p->a, by_name);
    /* An address with a scope that is not there fails, and does not hang. */
    assert_int_equal(
        fake_attach_json(p->a, json_pack("{s:i}", "tcp_data_port", 9), "fe80::1%nowhere", &v6), 0);
    assert_int_equal(fake_transfer(p->a, v6, TE_READ, p->am, p->bm, 1000), TE_ERR_DNS);
    fake_detach(p->a, v6);
    pair_close(p);
}

/* A descriptor may send the data elsewhere than to the host of the RPCs. */
static void data_has_a_host_of_its_own(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", ""};
    struct pair *p = pair_open(&tcp);
    struct tei_attach *a;

    (void)state;
    fill_pattern(p->bm, 1000, 9);
    for (size_t i = 0; i < TEI_ARRAY_LEN(hosts); i++) {
        assert_int_equal(fake_attach_json(p->a,
                                          json_pack("{s:i,s:i,s:s}", "tcp_data_port", port_of(p->b),
                                                    "tcp_proto_version", 2, "tcp_data_host",
                                                    hosts[i]),
                                          *hosts[i] ? "fe80::1%nowhere" : "127.0.0.1", &a),
                         0);
        memset(p->am, 0, 1000);
        assert_int_equal(fake_transfer(p->a, a, TE_READ, p->am, p->bm, 1000), 0);
        assert_memory_equal(p->am, p->bm, 1000);
        fake_detach(p->a, a);
    }
    pair_close(p);
}

static void descriptors_are_checked(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct tei_attach *a = NULL;

    (void)state;
    assert_int_equal(fake_attach_json(p->a, json_object(), "127.0.0.1", &a), TE_ERR_UNSUPPORTED);
    assert_int_equal(fake_attach_json(p->a, json_pack("{s:i}", "tcp_data_port", 0), "127.0.0.1",
                                      &a),
                     TE_ERR_UNSUPPORTED);
    assert_int_equal(fake_attach_json(p->a, json_pack("{s:i}", "tcp_data_port", 65536), "127.0.0.1",
                                      &a),
                     TE_ERR_JSON);
    assert_int_equal(fake_attach_json(p->a, json_pack("{s:i}", "tcp_data_port", -1), "127.0.0.1",
                                      &a),
                     TE_ERR_JSON);
    assert_int_equal(fake_attach_json(p->a, json_pack("{s:s}", "tcp_data_port", "80"), "127.0.0.1",
                                      &a),
                     TE_ERR_JSON);
    assert_int_equal(
        fake_attach_json(p->a,
                         json_pack("{s:i,s:s}", "tcp_data_port", 80, "tcp_proto_version", "2"),
                         "127.0.0.1", &a),
        TE_ERR_JSON);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_v2_and_v1_on_one_connection),
        cmocka_unit_test(goes_on_after_its_calls_are_used_up),
        cmocka_unit_test(takes_a_header_in_drops),
        cmocka_unit_test(rejects),
        cmocka_unit_test(a_half_header_is_not_waited_for),
        cmocka_unit_test(the_longest_idle_makes_room),
        cmocka_unit_test(lives_without_descriptors),
        cmocka_unit_test(asks_v2_on_one_connection),
        cmocka_unit_test(asks_v1_on_a_connection_each),
        cmocka_unit_test(understands_a_v1_refusal),
        cmocka_unit_test(heeds_an_early_status),
        cmocka_unit_test(garbage_is_an_error),
        cmocka_unit_test(garbage_after_a_status_is_the_peers),
        cmocka_unit_test(what_is_tried_again),
        cmocka_unit_test(a_stale_connection_is_replaced),
        cmocka_unit_test(lack_of_progress_ends_it),
        cmocka_unit_test(slow_progress_does_not),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(names_are_looked_up),
        cmocka_unit_test(data_has_a_host_of_its_own),
        cmocka_unit_test(descriptors_are_checked),
    };

    signal(SIGPIPE, SIG_DFL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
