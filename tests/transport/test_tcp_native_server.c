/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * The native framing as a server: an instance asked by plain sockets, with what a client of ours
 * would send and with what none would.
 */
#include "conformance.h"

#include "base/os.h"
#include "native_mix.h"
#include "transport/tcp/tcp_peer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENT 0x1122334455667789u

static const struct conformance tcp = {.transport = "tcp"};

static struct tcp_range at(const char *p, size_t n)
{
    return (struct tcp_range){(uintptr_t)p, (uint32_t)n};
}

/* The server lives, and answers whoever keeps to the rules. */
static void is_well(struct pair *p)
{
    struct native c = native_greet(p->b, CLIENT, 999, false);
    struct tcp_range r = at(p->bm + PAIR_BYTES - 100, 100);
    char got[100];

    native_send(&c, TCP_FRAME_READ, 1, &r, 1, NULL);
    native_expect(&c, TCP_FRAME_DATA, 1, TCP_OK, 0, 100);
    native_get(c.fd, got, sizeof got);
    assert_memory_equal(got, p->bm + PAIR_BYTES - 100, 100);
    close(c.fd);
}

/* ------------------------------------------------------------------------------------- greetings */

static void greetings(void **state)
{
    struct pair *p = pair_open(&tcp);
    uint64_t id = native_id(p->b);
    const struct {
        struct tcp_hello h;
        enum tcp_verdict v;
    } rows[] = {
        {{TCP_NATIVE_VERSION, 0, id ^ 1, CLIENT, 1, 0}, TCP_STRANGER},
        {{TCP_NATIVE_VERSION, TCP_HELLO_CRC32C, id + 2, CLIENT, 1, 0}, TCP_STRANGER},
        {{TCP_NATIVE_VERSION, 0, 0, CLIENT, 1, 0}, TCP_STRANGER},
        {{TCP_NATIVE_VERSION + 1, 0, id, CLIENT, 1, 0}, TCP_UNKNOWN},
        {{0, 0, id, CLIENT, 1, 0}, TCP_UNKNOWN},
        {{TCP_NATIVE_VERSION, 2, id, CLIENT, 1, 0}, TCP_UNKNOWN},
        {{TCP_NATIVE_VERSION, 0x8001, id, CLIENT, 1, 0}, TCP_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        struct native c = {native_dial(native_port(p->b)), false};

        native_put_hello(c.fd, &rows[i].h);
        native_expect(&c, TCP_FRAME_HELLO, 0, rows[i].v, 0, 0);
        native_expect_end(c.fd);
    }
    is_well(p);
    pair_close(p);
}

/* What follows a greeting that is refused has no effect. */
static void a_stranger_writes_nothing(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native c = {native_dial(native_port(p->b)), false};
    struct tcp_range r = at(p->bm, 100);
    uint8_t bytes[1024], before[100];
    size_t n;

    (void)state;
    fill_pattern(p->bm, 100, 1);
    memcpy(before, p->bm, 100);
    tei_tcp_hello_encode(
        &(struct tcp_hello){TCP_NATIVE_VERSION, 0, native_id(p->b) ^ 4, CLIENT, 1, 0}, bytes);
    n = TCP_HELLO_LEN +
        native_request(bytes + TCP_HELLO_LEN, false, TCP_FRAME_WRITE, 1, &r, 1, (char[100]){0});
    native_put(c.fd, bytes, n);
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_STRANGER, 0, 0);
    native_expect_end(c.fd);
    usleep(20000);
    assert_memory_equal(p->bm, before, 100);
    pair_close(p);
}

/* All in one go: nothing waits for the greeting's answer. */
static void frames_may_follow_the_greeting_at_once(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native c = {native_dial(native_port(p->b)), false};
    struct tcp_range r = at(p->bm + 7, 333);
    uint8_t bytes[2048];
    char block[333], got[333];
    size_t n = TCP_HELLO_LEN;

    (void)state;
    fill_pattern(block, sizeof block, 5);
    tei_tcp_hello_encode(&(struct tcp_hello){TCP_NATIVE_VERSION, 0, native_id(p->b), CLIENT, 1, 0},
                         bytes);
    n += native_request(bytes + n, false, TCP_FRAME_WRITE, 1, &r, 1, block);
    n += native_request(bytes + n, false, TCP_FRAME_READ, 2, &r, 1, NULL);
    native_put(c.fd, bytes, n);
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
    native_expect(&c, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
    native_expect(&c, TCP_FRAME_DATA, 2, TCP_OK, 0, 333);
    native_get(c.fd, got, sizeof got);
    assert_memory_equal(got, block, sizeof got);
    close(c.fd);
    pair_close(p);
}

/* --------------------------------------------------------------------------------- broken frames */

/* A greeting and one frame of `count` blocks, in one send of as many bytes as a server reads. */
static void put_frame_of(struct pair *p, int fd, struct tcp_frame_head h, struct tcp_range r)
{
    uint8_t bytes[TCP_HELLO_LEN + 8192];

    memset(bytes, 0xee, sizeof bytes);
    tei_tcp_frame_encode(&h, bytes);
    for (unsigned i = 0; i < h.count && i < 500; i++)
        tei_tcp_range_encode(&r, bytes + TCP_FRAME_LEN + i * TCP_BLOCK_LEN);
    (void)p;
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void broken_frames_end_the_connection(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct tcp_range r = at(p->bm, 64), none = at(p->bm, 0), big = at(p->bm, 8 << 20);
    const struct {
        struct tcp_frame_head h;
        struct tcp_range r;
    } rows[] = {
        {{.type = TCP_FRAME_READ, .count = 0}, r},
        {{.type = TCP_FRAME_WRITE, .count = 0}, r},
        {{.type = TCP_FRAME_READ, .count = 129}, r},
        {{.type = TCP_FRAME_READ, .count = 254}, r},
        {{.type = TCP_FRAME_WRITE, .count = 254, .length = 254 * 64}, r},
        {{.type = TCP_FRAME_READ, .count = 255}, r},
        {{.type = TCP_FRAME_READ, .count = 65535}, r},
        {{.type = TCP_FRAME_READ, .count = 1, .length = 64}, r},
        {{.type = TCP_FRAME_WRITE, .count = 1, .length = 63}, r},
        {{.type = TCP_FRAME_WRITE, .count = 1, .length = 0}, r},
        {{.type = TCP_FRAME_WRITE, .count = 2, .length = UINT64_MAX}, r},
        {{.type = TCP_FRAME_READ, .count = 3}, big},
        {{.type = TCP_FRAME_READ, .count = 2}, none},
        {{.type = TCP_FRAME_DROP, .count = 2}, none},
        {{.type = TCP_FRAME_DROP, .count = 1}, r},
        {{.type = TCP_FRAME_DROP, .count = 0}, r},
        {{.type = TCP_FRAME_HELLO, .count = 0}, r},
        {{.type = TCP_FRAME_DATA, .count = 1}, r},
        {{.type = 0, .count = 1}, r},
        {{.type = 255, .count = 1}, r},
    };

    (void)state;
    fill_pattern(p->bm, 8192, 1);
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++) {
        struct native c = native_greet(p->b, CLIENT, i + 1, false);

        put_frame_of(p, c.fd, rows[i].h, rows[i].r);
        native_expect_end(c.fd);
    }
    is_well(p);
    pair_close(p);
}

/* One block cannot be had: its number is told, nothing is applied, and the connection goes on. */
static void a_refused_block(void **state)
{
    struct pair *p = pair_open(&tcp);
    char *foreign = calloc(1, 4096), block[300], got[300], before[1000];
    const struct tcp_range bad[] = {
        at(p->bm, 0),     {UINT64_MAX - 10, 100}, {0, 100}, at(p->bm + PAIR_BYTES - 99, 100),
        at(foreign, 100),
    };

    (void)state;
    fill_pattern(p->bm, 1000, 1);
    memcpy(before, p->bm, 1000);
    fill_pattern(block, sizeof block, 2);
    for (int crc = 0; crc < 2; crc++) {
        struct native c = native_greet(p->b, CLIENT, 1, crc);
        uint64_t id = 1;

        for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
            for (unsigned place = 0; place < 3; place++) {
                struct tcp_range r[3] = {at(p->bm, 100), at(p->bm + 300, 100),
                                         at(p->bm + 600, 100)};
                uint64_t len = 200 + bad[i].length;

                r[place] = bad[i];
                native_send(&c, TCP_FRAME_WRITE, id, r, 3, block);
                native_expect(&c, TCP_FRAME_ACK, id++, TCP_REFUSED, place, 0);
                assert_memory_equal(p->bm, before, 1000);
                native_send(&c, TCP_FRAME_READ, id, r, 3, NULL);
                native_expect(&c, TCP_FRAME_DATA, id++, TCP_REFUSED, place, len);
                native_get(c.fd, got, len);
                for (size_t k = 0; k < len; k++)
                    assert_int_equal(got[k], 0);
                if (crc)
                    native_get(c.fd, got, TCP_TRAILER_LEN);
                native_send(&c, TCP_FRAME_READ, id, &(struct tcp_range){(uintptr_t)p->bm, 100}, 1,
                            NULL);
                native_expect(&c, TCP_FRAME_DATA, id++, TCP_OK, 0, 100);
                native_get(c.fd, got, 100u + (crc ? TCP_TRAILER_LEN : 0));
                assert_memory_equal(got, before, 100);
            }
        }
        close(c.fd);
    }
    free(foreign);
    pair_close(p);
}

/* ------------------------------------------------------------------------------- mixed requests */

#define MIX_BYTES ((size_t)1 << 20)

static void mixed_once(struct pair *p, bool crc, unsigned n_frames, unsigned most)
{
    struct native c = native_greet(p->b, CLIENT, 1, crc);
    struct native_area area = {p->bm, malloc(MIX_BYTES)};

    assert_non_null(area.model);
    memcpy(area.model, p->bm, MIX_BYTES);
    native_mix(&c, &(struct native_mix){&area, 1, MIX_BYTES, 40000, n_frames, most});
    assert_memory_equal(p->bm, area.model, MIX_BYTES);
    close(c.fd);
    free(area.model);
}

static void mixed_requests_in_fragments(void **state)
{
    struct pair *p = pair_open(&tcp);

    (void)state;
    srand(7);
    fill_pattern(p->bm, MIX_BYTES, 3);
    for (int crc = 0; crc < 2; crc++) {
        for (int i = 0; i < 8; i++)
            mixed_once(p, crc, 40, 0);
        for (int i = 0; i < 4; i++)
            mixed_once(p, crc, 40, 5000);
        mixed_once(p, crc, 12, 100);
        mixed_once(p, crc, 8, 1);
    }
    pair_close(p);
}

/* WRITEs that come together are acknowledged together, and none is forgotten when they stop. */
static void acknowledgements_are_cumulative(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    uint8_t bytes[100 * 64];
    size_t n = 0;
    uint64_t last = 0;
    unsigned acks = 0;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        struct tcp_range r = at(p->bm + i, 1);

        n += native_request(bytes + n, false, TCP_FRAME_WRITE, i + 1, &r, 1, &i);
    }
    native_put(c.fd, bytes, n);
    for (; last < 100; acks++) {
        struct tcp_frame_head h = native_head(&c);

        assert_int_equal(h.type, TCP_FRAME_ACK);
        assert_true(h.id > last && h.id <= 100);
        last = h.id;
    }
    assert_true(acks < 60);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(p->bm[i], i);
    native_expect_silence(c.fd);
    close(c.fd);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------- checksums */

static void wrong_checksums(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct tcp_range r = at(p->bm, 100);
    char block[100], got[104];
    uint8_t bytes[512];
    struct native c;
    size_t n;

    (void)state;
    fill_pattern(block, sizeof block, 4);
    for (size_t bit = 0; bit < 8 * (TCP_FRAME_LEN + TCP_BLOCK_LEN); bit += 37) {
        c = native_greet(p->b, CLIENT, 1, true);
        n = native_request(bytes, true, TCP_FRAME_READ, 1, &r, 1, NULL);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        native_put(c.fd, bytes, n);
        if (bit / 8 == 2 || bit / 8 == 3) /* the number of blocks: it waits for more */
            shutdown(c.fd, SHUT_WR);
        native_expect_end(c.fd);
    }
    c = native_greet(p->b, CLIENT, 1, true);
    n = native_request(bytes, true, TCP_FRAME_WRITE, 1, &r, 1, block);
    bytes[n - 50] ^= 1;
    native_put(c.fd, bytes, n);
    native_expect(&c, TCP_FRAME_ACK, 1, TCP_CORRUPT, 0, 0);
    native_send(&c, TCP_FRAME_WRITE, 2, &r, 1, block);
    native_expect(&c, TCP_FRAME_ACK, 2, TCP_OK, 0, 0);
    native_send(&c, TCP_FRAME_READ, 3, &r, 1, NULL);
    native_expect(&c, TCP_FRAME_DATA, 3, TCP_OK, 0, 100);
    native_get(c.fd, got, sizeof got);
    assert_memory_equal(got, block, sizeof block);
    close(c.fd);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------------ DROP */

static void expect_dropped(const struct native *c, uint64_t id, uint64_t connection)
{
    native_send(c, TCP_FRAME_DROP, id, &(struct tcp_range){connection, 0}, 1, NULL);
    native_expect(c, TCP_FRAME_DROPPED, id, TCP_OK, 0, 0);
}

static void await_byte(const char *p, char c)
{
    WAIT_FOR(*(const volatile char *)p == c);
}

/* Once DROPPED is there, no byte of that connection is applied any more. */
static void drop_ends_a_write_under_way(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native asks = native_greet(p->b, CLIENT, 77, false);
    struct tcp_range r = at(p->bm, 1 << 20);
    uint8_t *bytes = malloc((1 << 20) + 256);
    char *block = malloc(1 << 20);
    size_t n;

    (void)state;
    assert_true(bytes && block);
    memset(block, 'x', 1 << 20);
    n = native_request(bytes, false, TCP_FRAME_WRITE, 1, &r, 1, block);
    for (uint64_t i = 1; i <= 20; i++) {
        struct native c = native_greet(p->b, CLIENT, i, false);
        size_t part = 1 + native_draw((unsigned)n - 1);

        memset(p->bm, 0, 1 << 20);
        native_put(c.fd, bytes, part);
        if (part > 48)
            await_byte(p->bm, 'x');
        expect_dropped(&asks, i, i);
        memset(p->bm, 'y', 1 << 20);
        (void)!send(c.fd, bytes + part, n - part, MSG_NOSIGNAL);
        native_expect_end(c.fd);
        usleep(2000);
        for (size_t k = 0; k < 1 << 20; k++)
            assert_int_equal(p->bm[k], 'y');
    }
    free(bytes);
    free(block);
    close(asks.fd);
    pair_close(p);
}

/* Another client's, one that is not there, and the one that asks. */
static void drop_ends_only_what_is_named(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native other = native_greet(p->b, CLIENT + 2, 5, false);
    struct native asks = native_greet(p->b, CLIENT, 6, false);
    struct native idle = native_greet(p->b, CLIENT, 7, false);
    int silent = native_dial(native_port(p->b)); /* has not greeted */

    (void)state;
    native_put(silent, "TENATIV\xff.................", 24);
    expect_dropped(&asks, 1, 5);
    expect_dropped(&asks, 2, 12345);
    expect_dropped(&asks, 3, 0);
    expect_dropped(&other, 1, 7);
    native_expect_silence(idle.fd);
    expect_dropped(&asks, 4, 7);
    native_expect_end(idle.fd);
    native_send(&asks, TCP_FRAME_DROP, 5, &(struct tcp_range){6, 0}, 1, NULL);
    native_expect_end(asks.fd);
    native_expect_silence(other.fd);
    native_expect_silence(silent);
    close(silent);
    close(other.fd);
    is_well(p);
    pair_close(p);
}

struct flood {
    int fd;
    _Atomic bool end;
};

static void *put_drops(void *arg)
{
    struct flood *f = arg;
    struct tcp_range none = {12345, 0};
    uint8_t bytes[200 * 48];
    size_t n = 0;

    while (n < sizeof bytes)
        n += native_request(bytes + n, false, TCP_FRAME_DROP, 1, &none, 1, NULL);
    while (!atomic_load(&f->end) && send(f->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n) {}
    return NULL;
}

static void *read_all(void *arg)
{
    struct flood *f = arg;
    char c[4096];

    while (recv(f->fd, c, sizeof c, 0) > 0) {}
    return NULL;
}

/* A client that asks for one drop after the other does not keep an instance from stopping. */
static void drops_do_not_hold_up_the_end(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    struct flood f = {.fd = c.fd};
    pthread_t puts, reads;

    (void)state;
    assert_int_equal(pthread_create(&puts, NULL, put_drops, &f), 0);
    assert_int_equal(pthread_create(&reads, NULL, read_all, &f), 0);
    usleep(100000);
    pair_close(p);
    atomic_store(&f.end, true);
    pthread_join(puts, NULL);
    pthread_join(reads, NULL);
    close(c.fd);
}

/* -------------------------------------------------------------------------------- end of regions */

static void a_region_is_removed_under_a_frame(void **state)
{
    struct pair *p = pair_open(&tcp);
    char *memory = malloc(1 << 20), *block = malloc(1 << 20);
    uint8_t *bytes = malloc((1 << 20) + 256);

    (void)state;
    assert_true(memory && block && bytes);
    memset(block, 'x', 1 << 20);
    for (int i = 0; i < 20; i++) {
        struct tei_region *region = fake_region_add(&p->hb, p->b, memory, 1 << 20, TE_REMOTE_RW);
        struct native c = native_greet(p->b, CLIENT, 1, false);
        struct tcp_range r[2] = {at(memory, 5000), at(memory + 9000, 1000000)};
        size_t n = native_request(bytes, false, TCP_FRAME_WRITE, 1, r, 2, block);

        memset(memory, 0, 1 << 20);
        if (i % 2) {
            native_put(c.fd, bytes, n - 1 - native_draw(900000));
            await_byte(memory, 'x');
        } else { /* a READ that is not taken */
            for (uint64_t id = 1; id < 12; id++)
                native_send(&c, TCP_FRAME_READ, id, r, 2, NULL);
            usleep(5000);
        }
        fake_region_del(&p->hb, p->b, region);
        memset(memory, 'y', 1 << 20);
        if (i % 2) {
            (void)!send(c.fd, bytes, 10, MSG_NOSIGNAL);
            native_expect_end(c.fd);
            for (size_t k = 0; k < 1 << 20; k++)
                assert_int_equal(memory[k], 'y');
        } else {
            close(c.fd);
        }
    }
    free(memory);
    free(block);
    free(bytes);
    is_well(p);
    pair_close(p);
}

/* ---------------------------------------------------------------------------------------- limits */

static void quick(struct tei_conf *c)
{
    c->transfer_timeout_ms = 300;
    c->tcp_threads = 1;
}

/* Who stops in the middle of a frame, or takes no answer, is not kept for ever. */
static void silence_in_a_frame_ends_it(void **state)
{
    static const struct conformance with = {.transport = "tcp", .configure = quick};
    struct pair *p = pair_open(&with);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    struct native deaf = native_greet(p->b, CLIENT, 2, false);
    struct tcp_range r = at(p->bm, 8 << 20);
    uint8_t head[64];

    (void)state;
    native_request(head, false, TCP_FRAME_READ, 1, &r, 1, NULL);
    native_put(deaf.fd, head, TCP_FRAME_LEN + TCP_BLOCK_LEN);
    tei_tcp_frame_encode(
        &(struct tcp_frame_head){.type = TCP_FRAME_WRITE, .count = 1, .id = 1, .length = r.length},
        head);
    native_put(c.fd, head, TCP_FRAME_LEN + TCP_BLOCK_LEN);
    native_expect_end(c.fd);
    WAIT_FOR(atomic_load(&p->br->remote_users) == 0);
    close(deaf.fd);
    pair_close(p);
}

/* To the target of a pair that has it in a process of its own. */
static struct native greet_child(const struct pair *p)
{
    const struct tcp_peer *peer = ((const struct tcp_attach *)p->attach)->peer;
    struct native c = {native_dial(peer->where.port), false};

    native_put_hello(c.fd, &(struct tcp_hello){.version = TCP_NATIVE_VERSION,
                                               .target = peer->id,
                                               .client = CLIENT,
                                               .connection = 1});
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
    return c;
}

/* Whether a frame is answered whose rest has come in time, and it is the server that was not there. */
static bool outlives_an_absence(struct pair *p)
{
    struct native c = greet_child(p);
    struct tcp_range r = at(p->bm, 100);
    uint8_t bytes[256];
    char block[100], first;
    bool answered;
    size_t n;

    fill_pattern(block, sizeof block, 9);
    pair_set(p, TARGET, 0, 0, sizeof block);
    n = native_request(bytes, false, TCP_FRAME_WRITE, 1, &r, 1, block);
    native_put(c.fd, bytes, n - 10);
    await_byte(p->bm + 89, block[89]);
    assert_int_equal(kill(p->child, SIGSTOP), 0);
    assert_int_equal(waitpid(p->child, NULL, WUNTRACED), p->child);
    (void)!send(c.fd, bytes + n - 10, 10, MSG_NOSIGNAL);
    usleep(400000); /* more than it gives a client */
    assert_int_equal(kill(p->child, SIGCONT), 0);
    answered = recv(c.fd, &first, 1, MSG_PEEK) == 1;
    if (answered) {
        native_expect(&c, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
        assert_memory_equal(p->bm, block, sizeof block);
    }
    close(c.fd);
    return answered;
}

/* This process may have been the one that was not there, but not each time. */
static void its_own_absence_ends_nothing(void **state)
{
    static const struct conformance with = {.transport = "tcp", .configure = quick};
    struct pair *p = pair_fork(&with);
    bool answered = false;

    (void)state;
    for (int i = 0; i < 20 && !answered; i++)
        answered = outlives_an_absence(p);
    assert_true(answered);
    pair_close(p);
}

/* Drop by drop does not do: the whole header has 5 s. */
static void a_header_has_its_time(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    struct tcp_range r = at(p->bm, 100);
    int64_t begin = tei_now_ns();
    uint8_t bytes[64];
    size_t sent = 0;

    (void)state;
    native_request(bytes, false, TCP_FRAME_READ, 1, &r, 1, NULL);
    while (sent < TCP_FRAME_LEN - 1 && send(c.fd, bytes + sent, 1, MSG_NOSIGNAL) == 1) {
        sent++;
        usleep(700000);
    }
    assert_true(sent < TCP_FRAME_LEN - 1);
    native_expect_end(c.fd);
    assert_true(tei_now_ns() - begin > 4 * TEI_NS_PER_S);
    pair_close(p);
}

static void few_sessions(struct tei_conf *c)
{
    c->tcp_max_sessions = 2;
    c->tcp_threads = 1;
}

/* The one idle for longest makes room; one in the middle of a frame does not. */
static void sessions_are_limited(void **state)
{
    static const struct conformance with = {.transport = "tcp", .configure = few_sessions};
    struct pair *p = pair_open(&with);
    struct native busy = native_greet(p->b, CLIENT, 1, false), idle, third;
    struct tcp_range r = at(p->bm, 100);
    uint8_t bytes[256];
    char block[100];
    size_t n;

    (void)state;
    fill_pattern(block, sizeof block, 9);
    n = native_request(bytes, false, TCP_FRAME_WRITE, 1, &r, 1, block);
    native_put(busy.fd, bytes, n - 10);
    await_byte(p->bm + 89, block[89]);
    idle = native_greet(p->b, CLIENT, 2, false);
    third = native_greet(p->b, CLIENT, 3, false);
    native_expect_end(idle.fd);
    native_put(busy.fd, bytes + n - 10, 10);
    native_expect(&busy, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
    assert_memory_equal(p->bm, block, sizeof block);
    close(busy.fd);
    close(third.fd);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greetings),
        cmocka_unit_test(a_stranger_writes_nothing),
        cmocka_unit_test(frames_may_follow_the_greeting_at_once),
        cmocka_unit_test(broken_frames_end_the_connection),
        cmocka_unit_test(a_refused_block),
        cmocka_unit_test(mixed_requests_in_fragments),
        cmocka_unit_test(acknowledgements_are_cumulative),
        cmocka_unit_test(wrong_checksums),
        cmocka_unit_test(drop_ends_a_write_under_way),
        cmocka_unit_test(drop_ends_only_what_is_named),
        cmocka_unit_test(drops_do_not_hold_up_the_end),
        cmocka_unit_test(a_region_is_removed_under_a_frame),
        cmocka_unit_test(silence_in_a_frame_ends_it),
        cmocka_unit_test(its_own_absence_ends_nothing),
        cmocka_unit_test(a_header_has_its_time),
        cmocka_unit_test(sessions_are_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
