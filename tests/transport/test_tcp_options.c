/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Options of the native framing, none of which this version knows: as a server in the greeting and in
 * frames, as a client in the answer to the greeting; and what each side says to version 1.
 */
#include "conformance.h"

#include "native_stage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT 0x1122334455667789u
#define MAY    0x1234u
#define MUST   (0x0567u | TCP_OPTION_MUST)

static const struct conformance tcp = {.transport = "tcp"};

/* Lists, and what becomes of them: the kind of the option to be refused. */
enum fate { PASSED_OVER, REFUSED, CLOSED };

struct list {
    uint8_t bytes[256 * TCP_OPTION_UNIT];
    size_t n;
    enum fate fate;
};

static void add(struct list *l, unsigned kind, size_t n)
{
    static const char value[1024] = "value";

    l->n += native_option(l->bytes + l->n, kind, value, n);
}

/* Each in turn; false after the last. */
static bool make_list(struct list *l, unsigned i)
{
    *l = (struct list){0};
    switch (i) {
    case 0: /* one without a value, others with one, of several lengths */
        for (size_t n = 0; n < 14; n++)
            add(l, MAY + (unsigned)n, n);
        return true;
    case 1: /* as long as may be */
        add(l, MAY, TCP_OPTIONS_MAX - TCP_OPTION_LEN);
        return true;
    case 2: /* as many as may be */
        for (size_t n = 0; n < TCP_OPTIONS_MAX / TCP_OPTION_UNIT; n++)
            add(l, MAY, 0);
        return true;
    case 3: /* the last of several, and there is a second one */
        add(l, MAY, 9);
        add(l, MUST, 5);
        add(l, MUST + 1, 0);
        l->fate = REFUSED;
        return true;
    case 4: /* too long */
        add(l, MAY, TCP_OPTIONS_MAX - TCP_OPTION_LEN);
        add(l, MAY, 0);
        l->fate = CLOSED;
        return true;
    case 5: /* ends beyond the list */
        add(l, MAY, 4);
        l->bytes[2] = 5;
        l->fate = CLOSED;
        return true;
    case 6: /* the same, one that must be known */
        add(l, MUST, 60);
        l->bytes[3] = 0xff;
        l->fate = CLOSED;
        return true;
    case 7: /* no kind */
        add(l, MUST, 4);
        add(l, 0, 4);
        l->fate = CLOSED;
        return true;
    default:
        return false;
    }
}

static struct tcp_range at(const char *p, size_t n)
{
    return (struct tcp_range){(uintptr_t)p, (uint32_t)n};
}

/* --------------------------------------------------------------------------------- in the greeting */

static void put_greeting(int fd, const struct pair *p, const struct list *l, unsigned flags,
                         size_t step)
{
    const struct tcp_hello h = {TCP_NATIVE_VERSION, flags, native_id(p->b), CLIENT, 1, l->n};
    uint8_t bytes[TCP_HELLO_LEN + sizeof l->bytes];
    size_t n = TCP_HELLO_LEN + l->n, sent;

    tei_tcp_hello_encode(&h, bytes);
    memcpy(bytes + TCP_HELLO_LEN, l->bytes, l->n);
    for (sent = 0; sent < n; sent += tei_min(step, n - sent))
        if (send(fd, bytes + sent, tei_min(step, n - sent), MSG_NOSIGNAL) < 0)
            return; /* one that is too long is not waited for */
}

static void expect_service(const struct native *c, const struct pair *p)
{
    struct tcp_range r = at(p->bm + 5, 100);
    char got[100], trailer[TCP_TRAILER_LEN];

    native_send(c, TCP_FRAME_READ, 77, &r, 1, NULL);
    native_expect(c, TCP_FRAME_DATA, 77, TCP_OK, 0, 100);
    native_get(c->fd, got, sizeof got);
    if (c->crc)
        native_get(c->fd, trailer, sizeof trailer);
    assert_memory_equal(got, p->bm + 5, sizeof got);
}

static void of_a_greeting(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct list l;

    (void)state;
    fill_pattern(p->bm, 200, 3);
    for (unsigned i = 0; make_list(&l, i / 4); i++) {
        unsigned flags = i % 2 ? TCP_HELLO_CRC32C : 0;
        struct native c = {native_dial(native_port(p->b)), l.fate == PASSED_OVER && flags};

        put_greeting(c.fd, p, &l, flags, i / 2 % 2 ? 7 : SIZE_MAX);
        if (l.fate == PASSED_OVER)
            native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
        if (l.fate == REFUSED)
            native_expect(&c, TCP_FRAME_HELLO, 0, TCP_UNKNOWN, MUST & ~TCP_OPTION_MUST, 0);
        if (l.fate == PASSED_OVER)
            expect_service(&c, p);
        if (l.fate == PASSED_OVER)
            close(c.fd);
        else
            native_expect_end(c.fd);
    }
    pair_close(p);
}

/* ---------------------------------------------------------------------------------------- in frames */

static struct native greet(const struct pair *p, unsigned version, bool crc)
{
    struct native c = {native_dial(native_port(p->b)), crc};

    native_put_hello(c.fd, &(struct tcp_hello){version, crc ? TCP_HELLO_CRC32C : 0, native_id(p->b),
                                               CLIENT, 1, 0});
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
    return c;
}

/* A frame with that list; what a WRITE writes is another thing than what is there. */
static void try_frame(const struct pair *p, unsigned type, const struct list *l, bool crc)
{
    static const unsigned answers[] = {[TCP_FRAME_READ] = TCP_FRAME_DATA,
                                       [TCP_FRAME_WRITE] = TCP_FRAME_ACK,
                                       [TCP_FRAME_DROP] = TCP_FRAME_DROPPED};
    struct native c = greet(p, TCP_NATIVE_VERSION, crc);
    struct tcp_range r = {type == TCP_FRAME_DROP ? 4711 : (uintptr_t)p->bm,
                          type == TCP_FRAME_DROP ? 0 : 50};
    char payload[50], got[50 + TCP_TRAILER_LEN], before[50];
    bool refused = l->fate == REFUSED;

    fill_pattern(p->bm, 200, 3);
    fill_pattern(payload, sizeof payload, 4);
    memcpy(before, p->bm, sizeof before);
    native_send_with(&c, type, 9, r, payload, l->bytes, l->n);
    if (l->fate == CLOSED) {
        native_expect_end(c.fd);
    } else {
        native_expect(&c, answers[type], 9, refused ? TCP_UNKNOWN : TCP_OK,
                      refused ? MUST & ~TCP_OPTION_MUST : 0, type == TCP_FRAME_READ ? 50 : 0);
        if (type == TCP_FRAME_READ)
            native_get(c.fd, got, crc ? sizeof got : 50);
        if (type == TCP_FRAME_READ)
            assert_memory_equal(got, refused ? (char[50]){0} : before, 50);
        expect_service(&c, p);
        close(c.fd);
    }
    assert_memory_equal(p->bm, type == TCP_FRAME_WRITE && l->fate == PASSED_OVER ? payload : before,
                        50);
}

static void of_frames(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct list l;

    (void)state;
    for (unsigned i = 0; make_list(&l, i); i++)
        for (unsigned type = TCP_FRAME_READ; type <= TCP_FRAME_DROP; type++)
            for (int crc = 0; crc < 2; crc++)
                try_frame(p, type, &l, crc);
    pair_close(p);
}

/* The end comes within the list: nothing of the frame is done. */
static void that_are_cut_off(void **state)
{
    struct pair *p = pair_open(&tcp);
    struct list l = {0};
    char before[50];

    (void)state;
    add(&l, MAY, 4);
    fill_pattern(p->bm, 200, 3);
    memcpy(before, p->bm, sizeof before);
    for (size_t n = 0; n < l.n; n++) {
        struct native c = greet(p, TCP_NATIVE_VERSION, false);
        struct tcp_frame_head h = {
            .type = TCP_FRAME_WRITE, .count = 1, .id = 1, .length = 50, .options = l.n};
        uint8_t bytes[TCP_FRAME_LEN + TCP_BLOCK_LEN];

        tei_tcp_frame_encode(&h, bytes);
        tei_tcp_range_encode(&(struct tcp_range){(uintptr_t)p->bm, 50}, bytes + TCP_FRAME_LEN);
        native_put(c.fd, bytes, sizeof bytes);
        native_put(c.fd, l.bytes, n);
        shutdown(c.fd, SHUT_WR);
        native_expect_end(c.fd);
        assert_memory_equal(p->bm, before, sizeof before);
    }
    pair_close(p);
}

/* In version 1 these bytes mean nothing, whatever is in them. */
static void version_1_has_none(void **state)
{
    struct pair *p = pair_open(&tcp);
    const struct tcp_hello h = {TCP_NATIVE_FIRST, 0, native_id(p->b), CLIENT, 1, 200};
    struct native c = {native_dial(native_port(p->b)), false};
    struct tcp_range r = at(p->bm, 50);
    char got[50];

    (void)state;
    native_put_hello(c.fd, &h);
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
    for (unsigned i = 0; i < 256; i += 17) {
        uint8_t bytes[TCP_FRAME_LEN + TCP_BLOCK_LEN];

        native_request(bytes, false, TCP_FRAME_READ, i + 1, &r, 1, NULL);
        bytes[1] = (uint8_t)i;
        native_put(c.fd, bytes, sizeof bytes);
        native_expect(&c, TCP_FRAME_DATA, i + 1, TCP_OK, 0, 50);
        native_get(c.fd, got, sizeof got);
        assert_memory_equal(got, p->bm, sizeof got);
    }
    close(c.fd);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------ of the answer */

static void put_answer(const struct native *c, enum tcp_verdict verdict, const struct list *l)
{
    struct tcp_frame_head h = {.type = TCP_FRAME_HELLO, .verdict = verdict, .options = l->n};
    uint8_t bytes[TCP_FRAME_LEN + sizeof l->bytes];

    tei_tcp_frame_encode(&h, bytes);
    memcpy(bytes + TCP_FRAME_LEN, l->bytes, l->n);
    if (c->crc)
        tei_tcp_frame_seal(bytes, TCP_FRAME_LEN + l->n);
    for (size_t at = 0; at < TCP_FRAME_LEN + l->n; at += 9)
        (void)!send(c->fd, bytes + at, tei_min(9, TCP_FRAME_LEN + l->n - at), MSG_NOSIGNAL);
}

static void with_checksums(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

/* A READ, of which the answer follows at once, and a WRITE, which waits. */
static void of_an_answer(void **state)
{
    static struct stage s;
    struct list l;

    (void)state;
    for (unsigned i = 0; make_list(&l, i / 4); i++) {
        bool crc = i % 2, read = i / 2 % 2;
        struct native c;
        struct got g;

        stage_open(&s, crc ? with_checksums : NULL);
        stage_request(&s, 0, read ? TE_READ : TE_WRITE, 0, 100);
        c = stage_take(&s);
        if (read)
            g = stage_get_request(&s, &c, TCP_FRAME_READ);
        put_answer(&c, TCP_OK, &l);
        if (l.fate != PASSED_OVER) {
            assert_int_equal(stage_outcome(&s, 0),
                             l.fate == REFUSED ? TE_ERR_PROTOCOL : TE_ERR_PEER);
            if (l.fate == REFUSED)
                assert_string_equal(
                    s.tasks[0].why,
                    "the peer demands an option of the framing that is not known here");
            native_expect_end(c.fd);
            stage_close(&s);
            continue;
        }
        if (!read)
            g = stage_get_request(&s, &c, TCP_FRAME_WRITE);
        if (read)
            stage_put_data(&c, &g, 7);
        else
            stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
        assert_int_equal(stage_outcome(&s, 0), 0);
        close(c.fd);
        stage_close(&s);
    }
}

/* No other answer has any: the client would take them for payload. */
static void of_an_answer_that_has_none(void **state)
{
    static struct stage s;

    (void)state;
    for (unsigned type = TCP_FRAME_READ; type <= TCP_FRAME_WRITE; type++) {
        struct native c;
        struct got g;

        stage_open(&s, NULL);
        stage_request(&s, 0, type == TCP_FRAME_READ ? TE_READ : TE_WRITE, 0, 100);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, type);
        native_answer(&c,
                      &(struct tcp_frame_head){.type = type == TCP_FRAME_READ ? TCP_FRAME_DATA
                                                                              : TCP_FRAME_ACK,
                                               .id = g.h.id,
                                               .length = type == TCP_FRAME_READ ? 100 : 0,
                                               .options = TCP_OPTION_UNIT},
                      (char[100]){0});
        assert_int_equal(stage_outcome(&s, 0), TE_ERR_PROTOCOL);
        native_expect_end(c.fd);
        stage_close(&s);
    }
}

/* The client speaks the highest version that both know; stage_take() looks at the greeting. */
static void versions(void **state)
{
    static const unsigned announced[] = {TCP_NATIVE_FIRST, TCP_NATIVE_VERSION,
                                         TCP_NATIVE_VERSION + 1, 1000};
    static struct stage s;

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(announced); i++) {
        struct native c;
        struct got g;

        stage_open_as(&s, NULL, announced[i]);
        stage_request(&s, 0, TE_READ, 0, 100);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_READ);
        if (announced[i] == TCP_NATIVE_FIRST) { /* a byte without a meaning */
            uint8_t head[TCP_FRAME_LEN], data[100] = {0};

            tei_tcp_frame_encode(
                &(struct tcp_frame_head){
                    .type = TCP_FRAME_DATA, .id = g.h.id, .length = 100, .options = 40},
                head);
            native_put(c.fd, head, sizeof head);
            native_put(c.fd, data, sizeof data);
        } else {
            stage_put_data(&c, &g, 7);
        }
        assert_int_equal(stage_outcome(&s, 0), 0);
        close(c.fd);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_greeting),    cmocka_unit_test(of_frames),
        cmocka_unit_test(that_are_cut_off), cmocka_unit_test(version_1_has_none),
        cmocka_unit_test(of_an_answer),     cmocka_unit_test(of_an_answer_that_has_none),
        cmocka_unit_test(versions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
