/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Trace contexts of requests over the native framing: what a client sends, to a target that knows of options
 * and to one that does not; and what a server says of what it has served, whatever it was sent.
 */
#include "conformance.h"

#include "native_stage.h"
#include "base/log.h"
#include "base/traceparent.h"
#include "transport/tcp/tcp_wire.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLIENT 0x1122334455667789u
#define TEXT   "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define OTHER  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"

static const struct conformance tcp = {.transport = "tcp"};

static struct tei_traceparent context(const char *text)
{
    struct tei_traceparent t;

    assert_null(tei_traceparent_read(text, &t));
    return t;
}

/* ---------------------------------------------------------------------------------------- the client */

static void with_checksums(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

static void expect_context(const struct got *g, const struct tei_traceparent *t)
{
    uint8_t want[TCP_TRACE_OPTIONS];

    if (!t) {
        assert_int_equal(g->h.options, 0);
        return;
    }
    assert_int_equal(g->h.options, sizeof want);
    assert_int_equal(native_option(want, TCP_OPTION_TRACE, t, sizeof *t), sizeof want);
    assert_memory_equal(g->options, want, sizeof want);
}

static void answer_well(const struct native *c, const struct got *g)
{
    if (g->h.type == TCP_FRAME_READ)
        stage_put_data(c, g, 7);
    else
        stage_answer(c, TCP_FRAME_ACK, g->h.id, TCP_OK, 0);
}

static void a_client_sends_it(void **state)
{
    static struct stage s;
    struct tei_traceparent t = context(TEXT);

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        unsigned version = i / 4 ? TCP_NATIVE_FIRST : TCP_NATIVE_VERSION;
        unsigned type = i / 2 % 2 ? TCP_FRAME_WRITE : TCP_FRAME_READ;
        struct native c;
        struct got g;

        stage_open_as(&s, i % 2 ? with_checksums : NULL, version);
        stage_add(&s, 0, type == TCP_FRAME_READ ? TE_READ : TE_WRITE, 0, 100)->trace = &t;
        stage_post(&s);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, type);
        expect_context(&g, version == TCP_NATIVE_FIRST ? NULL : &t);
        answer_well(&c, &g);
        assert_int_equal(stage_outcome(&s, 0), 0);
        close(c.fd);
        stage_close(&s);
    }
}

/* Requests share a frame only if they have the same context; by its bytes, wherever it lies. */
static void a_frame_has_one(void **state)
{
    static struct stage s;
    struct tei_traceparent t = context(TEXT), same = context(TEXT), other = context(OTHER);
    const struct tei_traceparent *of[] = {NULL, NULL, &t, &same, &other, NULL, &t};
    static const unsigned blocks[] = {2, 2, 1, 1, 1};
    const struct tei_traceparent *frames[] = {NULL, &t, &other, NULL, &t};
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 0; i < TEI_ARRAY_LEN(of); i++)
        stage_add(&s, i, TE_READ, i * 100, 100)->trace = of[i];
    stage_post(&s);
    c = stage_take_greeted(&s);
    for (unsigned i = 0; i < TEI_ARRAY_LEN(frames); i++) {
        struct got g = stage_get_request(&s, &c, TCP_FRAME_READ);

        assert_int_equal(g.h.count, blocks[i]);
        expect_context(&g, frames[i]);
        answer_well(&c, &g);
    }
    for (unsigned i = 0; i < TEI_ARRAY_LEN(of); i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    close(c.fd);
    stage_close(&s);
}

/* As many blocks as a frame has, and the connection breaks: it goes out again as it was. */
static void it_is_sent_again(void **state)
{
    static struct stage s;
    struct tei_traceparent t = context(TEXT);
    struct native c;
    struct got g;

    (void)state;
    stage_open(&s, with_checksums);
    for (unsigned i = 0; i < TASKS; i++)
        stage_add(&s, i, TE_READ, i * 100, 100)->trace = &t;
    stage_post(&s);
    for (unsigned try = 0; try < 2; try++) {
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_READ);
        assert_int_equal(g.h.count, TASKS);
        expect_context(&g, &t);
        if (try == 0)
            close(c.fd);
    }
    answer_well(&c, &g);
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(stage_outcome(&s, i), 0);
    close(c.fd);
    stage_close(&s);
}

/* ---------------------------------------------------------------------------------------- the server */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[512]; /* line about what was served */
static unsigned lines;

static void keep(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (strncmp(line, "served", 6) != 0)
        return;
    pthread_mutex_lock(&lock);
    snprintf(last, sizeof last, "%s", line);
    lines++;
    pthread_mutex_unlock(&lock);
}

static unsigned count(void)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = lines;
    pthread_mutex_unlock(&lock);
    return n;
}

/* What is in the line: the pattern is that of sscanf(), with what was taken in ms and, behind that, the context. */
static void expect_line(const char *pattern, const char *trace)
{
    char got[64] = "";
    double ms = -1;

    pthread_mutex_lock(&lock);
    if (sscanf(last, pattern, &ms, got) != 2)
        fail_msg("'%s' is not '%s'", last, pattern);
    pthread_mutex_unlock(&lock);
    assert_true(ms >= 0);
    assert_string_equal(got, trace);
}

/* A pair whose log is listened to. */
static struct pair *open_heard(const struct conformance *with)
{
    struct pair *p = pair_open(with);

    te_log_set_sink(keep, NULL);
    te_log_set_level(TE_LOG_TRACE);
    return p;
}

static void close_heard(struct pair *p)
{
    pair_close(p);
    te_log_set_sink(NULL, NULL);
}

static void read_with(const struct pair *p, const struct native *c, uint64_t id,
                      const uint8_t *list, size_t n)
{
    struct tcp_range r = {(uintptr_t)p->bm, 50};
    char got[50];

    native_send_with(c, TCP_FRAME_READ, id, r, "", list, n);
    native_expect(c, TCP_FRAME_DATA, id, TCP_OK, 0, 50);
    native_get(c->fd, got, sizeof got);
    assert_memory_equal(got, p->bm, sizeof got);
}

/*
 * Reads with a context until the log, which leaves lines out that come too often, has one. A line comes a moment
 * after its bytes: the last answer, of a request without a context, says that there are no more of them.
 */
static void read_until_told(const struct pair *p, const struct native *c, uint64_t *id)
{
    struct tei_traceparent t = context(OTHER);
    uint8_t list[TCP_TRACE_OPTIONS];
    size_t n = native_option(list, TCP_OPTION_TRACE, &t, sizeof t);
    unsigned before = count();

    while (count() == before) {
        read_with(p, c, ++*id, list, n);
        usleep(1000);
    }
    read_with(p, c, ++*id, list, 0);
    expect_line("served: read of 50 bytes for 127.0.0.1:%*d took %lf ms; trace %63s", OTHER);
}

static void a_server_tells_of_it(void **state)
{
    struct pair *p = open_heard(&tcp);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    struct tei_traceparent t = context(TEXT);
    struct tcp_range r = {(uintptr_t)p->bm, 50};
    uint8_t list[TCP_TRACE_OPTIONS];
    size_t n = native_option(list, TCP_OPTION_TRACE, &t, sizeof t);
    const char payload[50] = "written";
    uint64_t id = 0;
    unsigned before;

    (void)state;
    read_until_told(p, &c, &id);
    before = count();
    while (count() == before) {
        native_send_with(&c, TCP_FRAME_WRITE, ++id, r, payload, list, n);
        native_expect(&c, TCP_FRAME_ACK, id, TCP_OK, 0, 0);
        usleep(1000);
    }
    expect_line("served: write of 50 bytes for 127.0.0.1:%*d took %lf ms; trace %63s", TEXT);
    close(c.fd);
    close_heard(p);
}

static void with_slow(struct tei_conf *c)
{
    c->slow_ms = 1;
}

/* The first half of a WRITE is there some time before the other one. */
static void write_by_halves(const struct pair *p, const struct native *c, const uint8_t *bytes,
                            size_t head, size_t half)
{
    native_put(c->fd, bytes, head + half);
    WAIT_FOR(memcmp(p->bm, bytes + head, half) == 0);
    usleep(5000);
    native_put(c->fd, bytes + head + half, half);
}

static void a_server_tells_of_slow_ones(void **state)
{
    static const struct conformance slow = {.transport = "tcp", .configure = with_slow};
    struct pair *p = open_heard(&slow);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    struct tei_traceparent t = context(OTHER);
    uint8_t bytes[TCP_FRAME_LEN + TCP_BLOCK_LEN + TCP_TRACE_OPTIONS + 200];
    size_t head = sizeof bytes - 200;
    unsigned before = count();

    (void)state;
    tei_tcp_range_encode(&(struct tcp_range){(uintptr_t)p->bm, 200}, bytes + TCP_FRAME_LEN);
    native_option(bytes + TCP_FRAME_LEN + TCP_BLOCK_LEN, TCP_OPTION_TRACE, &t, sizeof t);
    for (unsigned id = 1; count() == before; id++) {
        tei_tcp_frame_encode(&(struct tcp_frame_head){.type = TCP_FRAME_WRITE,
                                                      .count = 1,
                                                      .id = id,
                                                      .length = 200,
                                                      .options = TCP_TRACE_OPTIONS},
                             bytes);
        fill_pattern((char *)bytes + head, 200, id);
        write_by_halves(p, &c, bytes, head, 100);
        native_expect(&c, TCP_FRAME_ACK, id, TCP_OK, 0, 0);
    }
    expect_line("served slowly: write of 200 bytes for 127.0.0.1:%*d took %lf ms, more than "
                "TE_SLOW_MS=1; trace %63s",
                OTHER);
    close(c.fd);
    close_heard(p);
}

struct odd {
    unsigned kind;
    const struct tei_traceparent *value;
    size_t n;
};

/* What is none is served like any other request, and nothing is said of it. */
static void what_makes_no_sense_is_passed_over(void **state)
{
    struct tei_traceparent t = context(TEXT), no_trace = t, no_parent = t, no_version = t;
    const struct odd odds[] = {
        {TCP_OPTION_TRACE, &t, 0},
        {TCP_OPTION_TRACE, &t, sizeof t - 1},
        {TCP_OPTION_TRACE, &no_trace, sizeof t},
        {TCP_OPTION_TRACE, &no_parent, sizeof t},
        {TCP_OPTION_TRACE | TCP_OPTION_MUST, &no_version, sizeof t},
        {TCP_OPTION_LEASE + 1, &t, sizeof t},
    };
    struct pair *p = open_heard(&tcp);
    struct native c = native_greet(p->b, CLIENT, 1, false);
    uint8_t list[TCP_TRACE_OPTIONS];
    uint64_t id = 0;
    unsigned before;

    (void)state;
    memset(no_trace.trace, 0, sizeof no_trace.trace);
    memset(no_parent.parent, 0, sizeof no_parent.parent);
    no_version.version = 0xff;
    read_until_told(p, &c, &id);
    before = count();
    for (size_t i = 0; i < TEI_ARRAY_LEN(odds); i++)
        read_with(p, &c, ++id, list, native_option(list, odds[i].kind, odds[i].value, odds[i].n));
    read_with(p, &c, ++id, list, 0);
    assert_int_equal(count(), before);
    read_until_told(p, &c, &id);
    close(c.fd);
    close_heard(p);
}

/* From one instance to another. */
static void both_sides(void **state)
{
    struct pair *p = open_heard(&tcp);
    struct tei_traceparent t = context(OTHER);
    unsigned before = count();

    (void)state;
    while (count() == before) {
        struct fake_task task = {0};
        struct tei_list list;

        tei_list_init(&list);
        fake_work(&list, p->a, p->attach, &task, TE_READ, p->am, p->bm, 1000)->trace = &t;
        p->a->ops.post(p->a, &list);
        assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
        assert_int_equal(task.error, 0);
        usleep(1000);
    }
    expect_line("served: read of 1000 bytes for 127.0.0.1:%*d took %lf ms; trace %63s", OTHER);
    close_heard(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_sends_it),
        cmocka_unit_test(a_frame_has_one),
        cmocka_unit_test(it_is_sent_again),
        cmocka_unit_test(a_server_tells_of_it),
        cmocka_unit_test(a_server_tells_of_slow_ones),
        cmocka_unit_test(what_makes_no_sense_is_passed_over),
        cmocka_unit_test(both_sides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
