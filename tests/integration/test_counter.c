/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=240 */
/* Counters: what a target is told of has arrived, and is told of once, whatever becomes of the messages. */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"
#include "proc.h"
#include "test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static te_counter make(te_engine *e, const char *name)
{
    te_counter c;

    assert_int_equal(te_counter_create(e, name, &c), 0);
    return c;
}

static te_adder adder(te_engine *e, te_segment seg, const char *name)
{
    te_adder a;

    if (te_adder_open(e, seg, name, &a))
        fail_msg("%s", te_errmsg());
    return a;
}

static uint64_t value(te_engine *e, te_counter c)
{
    uint64_t v;

    assert_int_equal(te_counter_value(e, c, &v), 0);
    return v;
}

static te_batch write_some(te_engine *e, void *from, te_segment seg, const void *to, size_t n)
{
    te_request r = {.opcode = TE_WRITE,
                    .source = from,
                    .target = seg,
                    .target_offset = (uintptr_t)to,
                    .length = n};
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    return b;
}

static void end_batch(te_engine *e, te_batch b)
{
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(e, b), 0);
}

/* ---------------------------------------------------------------------------------- what arrives */

/* A layer at a time, of odd size and place; each is there when the counter says so. */
static void layers_arrive(void **state)
{
    enum { LAYERS = 16, BYTES = 98765 };
    struct pair *p = *state;
    te_counter c = make(p->b, "layers");
    te_adder a = adder(p->a, p->seg, "layers");
    te_batch b[LAYERS];

    for (size_t i = 0; i < LAYERS; i++) {
        fill(p->am + i * BYTES + 1, BYTES, i);
        b[i] = write_some(p->a, p->am + i * BYTES + 1, p->seg, p->bm + i * BYTES + 3, BYTES);
        assert_int_equal(te_adder_after(p->a, b[i], a, (uint64_t)1 << i), 0);
    }
    for (uint64_t v = 0; v < ((uint64_t)1 << LAYERS) - 1;) {
        assert_int_equal(te_counter_wait(p->b, c, v + 1, PATIENCE_MS), 0);
        v = value(p->b, c);
        for (size_t k = 0; k < LAYERS; k++)
            if (v >> k & 1)
                assert_int_equal(first_difference(p->bm + k * BYTES + 3, BYTES, k), BYTES);
    }
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), 0);
    for (size_t i = 0; i < LAYERS; i++)
        end_batch(p->a, b[i]);
    assert_int_equal(te_adder_close(p->a, a), 0);
    assert_int_equal(te_counter_destroy(p->b, c), 0);
}

/* By threads that share adders, and adders that share a counter. */
struct thrower {
    struct pair *p;
    te_adder own, shared;
    size_t n, n_bad;
};

static void *throw(void *arg)
{
    struct thrower *t = arg;

    for (size_t i = 0; i < t->n; i++) {
        te_batch b;

        t->n_bad += te_batch_alloc(t->p->a, 1, &b) != 0;
        t->n_bad += te_adder_after(t->p->a, b, t->own, 1) != 0;
        t->n_bad += te_adder_after(t->p->a, b, t->shared, 1000) != 0;
        t->n_bad += te_batch_free(t->p->a, b) != 0;
    }
    return NULL;
}

static void many_threads(void **state)
{
    enum { THREADS = 4, EACH = 100 };
    struct pair *p = *state;
    struct thrower throwers[THREADS];
    pthread_t threads[THREADS];
    te_counter c = make(p->b, "sum");
    te_adder shared = adder(p->a, p->seg, "sum");

    for (int i = 0; i < THREADS; i++) {
        throwers[i] = (struct thrower){p, adder(p->a, p->seg, "sum"), shared, EACH, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, throw, &throwers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(throwers[i].n_bad, 0);
        assert_int_equal(te_adder_flush(p->a, throwers[i].own, PATIENCE_MS), 0);
    }
    assert_int_equal(te_adder_flush(p->a, shared, PATIENCE_MS), 0);
    assert_int_equal(value(p->b, c), THREADS * EACH * 1001);
}

/* Of this engine's own counter, which is raised at once. */
static void its_own(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->a, "own");
    te_adder a = adder(p->a, TE_LOCAL_SEGMENT, "own");
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 3), 0);
    assert_int_equal(value(p->a, c), 3);
    assert_int_equal(te_adder_flush(p->a, a, 0), 0);
    assert_int_equal(te_counter_destroy(p->a, c), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 3), 0);
    assert_int_equal(te_adder_flush(p->a, a, 0), TE_ERR_STALE);
    end_batch(p->a, b);
}

static void what_fails_adds_nothing(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->b, "none");
    te_adder a = adder(p->a, p->seg, "none");
    te_batch b = write_some(p->a, p->am, p->seg, p->bm + PAIR_SIZE, 64), good;

    assert_int_equal(te_adder_after(p->a, b, a, INT64_MAX), 0);
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), 0);
    assert_int_equal(value(p->b, c), 0);
    end_batch(p->a, b);
    good = write_some(p->a, p->am, p->seg, p->bm, 64);
    assert_int_equal(te_adder_after(p->a, good, a, 100), 0);
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), 0);
    assert_int_equal(value(p->b, c), 100);
    end_batch(p->a, good);
}

/* ------------------------------------------------------------------------------ waiting for values */

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void add_now(te_engine *e, te_adder a, uint64_t n)
{
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_adder_after(e, b, a, n), 0);
    assert_int_equal(te_adder_flush(e, a, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(e, b), 0);
}

static void descriptor(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->b, "fd");
    te_adder a = adder(p->a, p->seg, "fd");
    int fd = te_counter_fd(p->b, c, 5);

    assert_true(fd >= 0);
    assert_false(is_readable(fd));
    add_now(p->a, a, 4);
    assert_false(is_readable(fd));
    add_now(p->a, a, 1);
    assert_true(is_readable(fd));
    assert_int_equal(te_counter_fd(p->b, c, 7), fd);
    assert_false(is_readable(fd));
    assert_int_equal(te_counter_fd(p->b, c, 5), fd);
    assert_true(is_readable(fd));
    assert_int_equal(te_counter_fd(p->b, c, 6), fd);
    add_now(p->a, a, 100);
    assert_true(is_readable(fd));
    assert_int_equal(te_counter_destroy(p->b, c), 0);
}

struct waiter {
    te_engine *e;
    te_counter c;
    uint64_t at_least;
    _Atomic int rc;
};

static void *wait_in_a_thread(void *arg)
{
    struct waiter *w = arg;

    atomic_store(&w->rc, te_counter_wait(w->e, w->c, w->at_least, -1));
    return NULL;
}

static void waiters(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->b, "wait");
    te_adder a = adder(p->a, p->seg, "wait");
    struct waiter low = {p->b, c, 3, 1}, high = {p->b, c, 1000, 1};
    pthread_t threads[2];

    assert_int_equal(te_counter_wait(p->b, c, 0, 0), 0);
    assert_int_equal(te_counter_wait(p->b, c, 1, 1), TE_ERR_TIMEOUT);
    assert_non_null(strstr(te_errmsg(), "'wait' is 0, not yet 1"));
    assert_int_equal(pthread_create(&threads[0], NULL, wait_in_a_thread, &low), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, wait_in_a_thread, &high), 0);
    add_now(p->a, a, 3);
    pthread_join(threads[0], NULL);
    assert_int_equal(low.rc, 0);
    assert_int_equal(atomic_load(&high.rc), 1);
    assert_int_equal(te_counter_destroy(p->b, c), 0);
    pthread_join(threads[1], NULL);
    assert_true(high.rc == TE_ERR_CANCELED || high.rc == TE_ERR_NOT_FOUND);
    assert_int_equal(te_counter_value(p->b, c, &low.at_least), TE_ERR_NOT_FOUND);
}

/* ---------------------------------------------------------------------------------- what is wrong */

static void what_is_wrong(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->b, "one"), other;
    te_adder a = adder(p->a, p->seg, "one"), none;
    char long_name[300];
    te_batch b;

    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    assert_int_equal(te_counter_create(p->b, "one", &other), TE_ERR_EXISTS);
    assert_int_equal(te_counter_create(p->b, "", &other), TE_ERR_INVALID);
    assert_int_equal(te_counter_create(p->b, NULL, &other), TE_ERR_INVALID);
    assert_int_equal(te_counter_create(p->b, long_name, &other), TE_ERR_INVALID);
    assert_int_equal(te_counter_create(p->b, "\xff", &other), TE_ERR_INVALID);
    assert_int_equal(te_counter_create(p->b, "two", NULL), TE_ERR_INVALID);
    assert_int_equal(te_counter_create(NULL, "two", &other), TE_ERR_INVALID);
    assert_int_equal(te_counter_value(p->b, c, NULL), TE_ERR_INVALID);
    assert_int_equal(te_counter_value(p->b, c + 12345, &c), TE_ERR_NOT_FOUND);
    assert_int_equal(te_counter_fd(p->b, c + 12345, 1), TE_ERR_NOT_FOUND);
    assert_int_equal(te_counter_wait(p->b, c + 12345, 1, 0), TE_ERR_NOT_FOUND);
    assert_int_equal(te_counter_destroy(p->b, c + 12345), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_open(p->a, p->seg, "two", &none), TE_ERR_NOT_FOUND);
    assert_non_null(strstr(te_errmsg(), "no counter 'two'"));
    assert_int_equal(te_adder_open(p->a, TE_LOCAL_SEGMENT, "one", &none), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_open(p->a, p->seg + 12345, "one", &none), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_open(p->a, p->seg, "", &none), TE_ERR_INVALID);
    assert_int_equal(te_adder_open(p->a, p->seg, "one", NULL), TE_ERR_INVALID);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_adder_after(p->a, b, a + 12345, 1), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_after(p->a, b + 12345, a, 1), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_after(p->a, b, a, (uint64_t)INT64_MAX + 1), TE_ERR_INVALID);
    assert_int_equal(te_adder_after(p->a, b, a, INT64_MAX), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 1), TE_ERR_INVALID);
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), 0);
    assert_true(value(p->b, c) == INT64_MAX);
    assert_int_equal(te_adder_flush(p->a, a + 12345, 0), TE_ERR_NOT_FOUND);
    assert_int_equal(te_adder_close(p->a, a), 0);
    assert_int_equal(te_adder_close(p->a, a), TE_ERR_NOT_FOUND);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void a_counter_that_is_gone(void **state)
{
    struct pair *p = *state;
    te_counter c = make(p->b, "gone");
    te_adder a = adder(p->a, p->seg, "gone");
    te_batch b;

    add_now(p->a, a, 1);
    assert_int_equal(te_counter_destroy(p->b, c), 0);
    c = make(p->b, "gone");
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 1), 0);
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), TE_ERR_STALE);
    assert_non_null(strstr(te_errmsg(), "is gone"));
    assert_int_equal(value(p->b, c), 0);
    assert_int_equal(te_adder_close(p->a, a), 0);
    a = adder(p->a, p->seg, "gone");
    add_now(p->a, a, 1);
    assert_int_equal(value(p->b, c), 1);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* A batch that waits for a target which is stopped. */
static void close_while_a_batch_waits(void **state)
{
    struct child_engine child;
    te_segment seg;
    te_engine *e = child_open(&child, 4096, &seg);
    unsigned char *mem = map_pages(4096);
    te_counter c = make(e, "here");
    te_adder a = adder(e, TE_LOCAL_SEGMENT, "here");
    te_request r = {.opcode = TE_WRITE, .source = mem, .target = seg, .length = 4096};
    te_batch b;

    (void)state;
    r.target_offset = (uintptr_t)child.mem;
    assert_int_equal(te_register(e, mem, 4096, "*", TE_LOCAL_ONLY), 0);
    (void)te_transport_uninstall(e, "host"); /* where there is one */
    child_freeze(&child);
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_adder_after(e, b, a, 1), 0);
    assert_int_equal(te_adder_close(e, a), TE_ERR_BUSY);
    assert_int_equal(te_adder_flush(e, a, 1), TE_ERR_TIMEOUT);
    assert_non_null(strstr(te_errmsg(), "batch"));
    assert_int_equal(value(e, c), 0);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    assert_int_equal(te_adder_flush(e, a, PATIENCE_MS), 0);
    assert_int_equal(value(e, c), 1);
    assert_int_equal(te_adder_close(e, a), 0);
    end_batch(e, b);
    te_engine_destroy(e);
    child_stop(&child);
}

/* ----------------------------------------------------------------------------- messages that are lost */

enum { PASS, SWALLOW_ANSWERS, REFUSE, TWICE, KNOW_NONE };

/* A handshake port in front of another. */
struct relay {
    int listener;
    uint16_t port, to;
    pthread_t thread;
    _Atomic int what, done; /* done: how often that was done to an addition */
    _Atomic bool over;
};

static int dial(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A message with its length in front; its length, 0 if there is none. */
static size_t read_message(int fd, unsigned char *buf, size_t room)
{
    uint64_t n = 0;

    if (recv(fd, buf, 8, MSG_WAITALL) != 8)
        return 0;
    memcpy(&n, buf, 8);
    if (n > room - 8 || recv(fd, buf + 8, n, MSG_WAITALL) != (ssize_t)n)
        return 0;
    return (size_t)n + 8;
}

static size_t ask(uint16_t port, const unsigned char *asked, size_t n, unsigned char *buf,
                  size_t room)
{
    int fd = dial(port);
    size_t got = 0;

    if (fd < 0)
        return 0;
    if (send(fd, asked, n, MSG_NOSIGNAL) == (ssize_t)n)
        got = read_message(fd, buf, room);
    close(fd);
    return got;
}

/* As an engine that knows no counters. */
static void know_none(int fd)
{
    static const char answer[] = "\x02{\"name\":\"\",\"notify_msg\":\"success\"}\n";
    uint64_t n = sizeof(answer) - 1;

    (void)!send(fd, &n, sizeof(n), MSG_NOSIGNAL);
    (void)!send(fd, answer, (size_t)n, MSG_NOSIGNAL);
}

static void serve(struct relay *r, int fd)
{
    static unsigned char asked[1 << 16], answer[1 << 16];
    size_t n = read_message(fd, asked, sizeof(asked)), got;
    bool addition = n > 9 && asked[8] == 2;
    int what = addition ? atomic_load(&r->what) : PASS;

    if (n == 0 || what == REFUSE) {
        atomic_fetch_add(&r->done, n > 0);
        return;
    }
    if (what == KNOW_NONE) {
        know_none(fd);
        return;
    }
    got = ask(r->to, asked, n, answer, sizeof(answer));
    if (what == TWICE)
        got = ask(r->to, asked, n, answer, sizeof(answer));
    if (what != SWALLOW_ANSWERS)
        (void)!send(fd, answer, got, MSG_NOSIGNAL);
    atomic_fetch_add(&r->done, what != PASS);
}

static void *relay(void *arg)
{
    struct relay *r = arg;

    while (!atomic_load(&r->over)) {
        int fd = accept(r->listener, NULL, NULL);

        if (fd < 0)
            continue;
        serve(r, fd);
        close(fd);
    }
    return NULL;
}

static void start_relay(struct relay *r, uint16_t to)
{
    struct sockaddr_in at = {.sin_family = AF_INET};

    *r = (struct relay){.to = to, .port = test_free_port()};
    at.sin_port = htons(r->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(r->listener, 64), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, relay, r), 0);
}

static void stop_relay(struct relay *r)
{
    atomic_store(&r->over, true);
    close(dial(r->port));
    pthread_join(r->thread, NULL);
    close(r->listener);
}

/* A counter of b, which a has opened by way of a relay, with a batch that asks for nothing. */
struct far {
    struct relay relay;
    te_segment seg;
    te_counter counter;
    te_adder adder;
    te_batch batch;
};

static void begin_far(struct pair *p, struct far *f, const char *counter)
{
    char name[64];

    start_relay(&f->relay, (uint16_t)atoi(strrchr(p->bname, ':') + 1));
    snprintf(name, sizeof(name), "127.0.0.1:%u", f->relay.port);
    assert_int_equal(te_open(p->a, name, &f->seg), 0);
    f->counter = make(p->b, counter);
    f->adder = adder(p->a, f->seg, counter);
    assert_int_equal(te_batch_alloc(p->a, 1, &f->batch), 0);
}

/* From here on that is done with additions. */
static void set_relay(struct far *f, int what)
{
    atomic_store(&f->relay.what, what);
}

static int done(struct far *f)
{
    return atomic_load(&f->relay.done);
}

static void end_far(struct pair *p, struct far *f)
{
    set_relay(f, PASS);
    assert_int_equal(te_batch_free(p->a, f->batch), 0);
    assert_int_equal(te_adder_close(p->a, f->adder), 0);
    assert_int_equal(te_counter_destroy(p->b, f->counter), 0);
    stop_relay(&f->relay);
}

static void lose(struct pair *p, int what, uint64_t meanwhile)
{
    struct far f;

    begin_far(p, &f, "lossy");
    set_relay(&f, what);
    assert_int_equal(te_adder_after(p->a, f.batch, f.adder, 7), 0);
    WAIT_FOR(done(&f) >= 3);
    assert_int_equal(value(p->b, f.counter), meanwhile);
    assert_int_not_equal(te_adder_flush(p->a, f.adder, 0), 0);
    assert_int_equal(te_adder_after(p->a, f.batch, f.adder, 2), 0);
    set_relay(&f, PASS);
    assert_int_equal(te_adder_flush(p->a, f.adder, PATIENCE_MS), 0);
    assert_int_equal(value(p->b, f.counter), 9);
    end_far(p, &f);
}

/* The target has counted, and its word of it is lost, time and again. */
static void answers_are_lost(void **state)
{
    lose(*state, SWALLOW_ANSWERS, 7);
}

/* Sent by the engine itself until it gets through. */
static void messages_are_lost(void **state)
{
    lose(*state, REFUSE, 0);
}

static void messages_come_twice(void **state)
{
    struct pair *p = *state;
    struct far f;

    begin_far(p, &f, "twice");
    set_relay(&f, TWICE);
    for (int i = 0; i < 20; i++)
        add_now(p->a, f.adder, 3);
    WAIT_FOR(done(&f) >= 20); /* the last is counted once its answer has gone */
    assert_int_equal(value(p->b, f.counter), 60);
    end_far(p, &f);
}

/* Those of one target wait for each other, and those of another do not. */
static void one_target_is_gone(void **state)
{
    struct pair *p = *state;
    struct far f;
    te_adder more[7], a;
    int n;

    begin_far(p, &f, "both");
    a = adder(p->a, p->seg, "both");
    for (int i = 0; i < 7; i++)
        more[i] = adder(p->a, f.seg, "both");
    set_relay(&f, REFUSE);
    for (int i = 0; i < 7; i++)
        assert_int_equal(te_adder_after(p->a, f.batch, more[i], 1), 0);
    assert_int_equal(te_adder_after(p->a, f.batch, f.adder, 1), 0);
    add_now(p->a, a, 100);
    assert_int_equal(value(p->b, f.counter), 100);
    assert_int_not_equal(te_adder_flush(p->a, more[6], 1), 0);
    assert_int_equal(te_adder_close(p->a, more[6]), 0); /* and is forgotten */
    n = done(&f);
    WAIT_FOR(done(&f) >= n + 2); /* there is one message at a time */
    set_relay(&f, PASS);
    for (int i = 0; i < 6; i++)
        assert_int_equal(te_adder_flush(p->a, more[i], PATIENCE_MS), 0);
    assert_int_equal(te_adder_flush(p->a, f.adder, PATIENCE_MS), 0);
    assert_int_equal(value(p->b, f.counter), 107);
    end_far(p, &f);
}

/* With something that is to be told once more. */
static void the_end_of_the_engine(void **state)
{
    struct pair *p = *state;
    struct far f;

    begin_far(p, &f, "end");
    set_relay(&f, REFUSE);
    assert_int_equal(te_adder_after(p->a, f.batch, f.adder, 1), 0);
    WAIT_FOR(done(&f) >= 2);
    te_engine_destroy(p->a);
    p->a = NULL;
    stop_relay(&f.relay);
}

/* Its port has one now that took the message for an empty one. */
static void an_engine_that_knows_none(void **state)
{
    struct pair *p = *state;
    struct far f;

    begin_far(p, &f, "old");
    set_relay(&f, KNOW_NONE);
    assert_int_equal(te_adder_after(p->a, f.batch, f.adder, 1), 0);
    assert_int_equal(te_adder_flush(p->a, f.adder, -1), TE_ERR_STALE);
    assert_int_equal(value(p->b, f.counter), 0);
    end_far(p, &f);
}

static void start_b(struct pair *p)
{
    te_options o;

    loopback_options(&o);
    o.local_server_name = p->bname;
    assert_int_equal(te_engine_create(&o, &p->b), 0);
    te_options_fini(&o);
}

/* With a counter of the same name; what was added to the old one is of bytes that are no more. */
static void a_target_that_was_started_again(void **state)
{
    struct pair *p = *state;
    te_counter c;
    te_adder a;
    te_batch b;

    te_engine_destroy(p->b);
    snprintf(p->bname, sizeof(p->bname), "127.0.0.1:%u", test_free_port());
    start_b(p);
    (void)make(p->b, "again");
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
    a = adder(p->a, p->seg, "again");
    add_now(p->a, a, 5);
    te_engine_destroy(p->b);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 1), 0);
    assert_int_not_equal(te_adder_flush(p->a, a, 1), 0);
    start_b(p);
    c = make(p->b, "again");
    assert_int_equal(te_adder_flush(p->a, a, -1), TE_ERR_STALE);
    assert_int_equal(value(p->b, c), 0);
}

/* As many adders as a counter takes, told by few messages; one more is refused, and holds up none of another counter. */
static void a_full_counter(void **state)
{
    enum { ADDERS = 4096 };
    struct pair *p = *state;
    te_counter c = make(p->b, "full"), other = make(p->b, "other");
    te_adder *all = calloc(ADDERS, sizeof(*all)), more, a = adder(p->a, p->seg, "other");
    te_batch b;

    assert_non_null(all);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    for (size_t i = 0; i < ADDERS; i++) {
        all[i] = adder(p->a, p->seg, "full");
        assert_int_equal(te_adder_after(p->a, b, all[i], 1), 0);
    }
    assert_int_equal(te_counter_wait(p->b, c, ADDERS, PATIENCE_MS), 0);
    more = adder(p->a, p->seg, "full");
    assert_int_equal(te_adder_after(p->a, b, more, 1), 0);
    add_now(p->a, a, 7);
    assert_int_equal(te_adder_flush(p->a, more, -1), TE_ERR_REJECTED);
    assert_int_equal(value(p->b, c), ADDERS);
    assert_int_equal(value(p->b, other), 7);
    free(all);
}

/* ------------------------------------------------------------------------------------------ main */

/* A request that is late while its target is asked ends beside an adder whose target is tried again later. */
static void late_beside_a_target_that_has_gone(void **state)
{
    enum { SIZE = 65536 };
    struct child_engine c;
    te_engine *e = NULL, *gone = NULL;
    unsigned char *from = map_pages(SIZE);
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = 50};
    te_segment seg, frozen;
    struct te_status st;
    te_counter counter;
    te_adder adder;
    te_options o;
    char name[300];
    te_batch b;

    (void)state;
    child_start(&c, SIZE, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &e), 0);
    assert_int_equal(te_engine_create(&o, &gone), 0);
    te_options_fini(&o);
    assert_int_equal(te_register(e, from, SIZE, NULL, TE_REMOTE_RW), 0);
    assert_int_equal(te_counter_create(gone, "layers", &counter), 0);
    assert_int_equal(te_engine_name(gone, name, sizeof(name)), 0);
    assert_int_equal(te_open(e, name, &seg), 0);
    assert_int_equal(te_open(e, c.name, &frozen), 0);
    assert_int_equal(te_adder_open(e, seg, "layers", &adder), 0);
    te_engine_destroy(gone);
    child_freeze(&c);
    for (int i = 0; i < 12; i++) {
        te_request r = {.opcode = TE_WRITE,
                        .source = from,
                        .target = i ? frozen : TE_LOCAL_SEGMENT,
                        .target_offset = i ? (uintptr_t)c.mem + SIZE : (uintptr_t)from + SIZE / 2,
                        .length = 100};

        assert_int_equal(te_batch_alloc(e, 1, &b), 0);
        assert_int_equal(te_submit(e, b, &r, 1, i ? &opts : NULL), 0);
        assert_int_equal(te_adder_after(e, b, adder, 1),
                         0); /* the first one is tried again and again */
        assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
        assert_int_equal(te_status(e, b, 0, &st), 0);
        assert_int_equal(st.state, i ? TE_TIMEOUT : TE_COMPLETED);
        assert_int_equal(te_batch_free(e, b), 0);
    }
    te_engine_destroy(e);
    child_stop(&c);
    munmap(from, SIZE);
}

#define BY_HOST(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)
#define BY_TCP(test)  cmocka_unit_test_setup_teardown(test, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_HOST(layers_arrive),
        {"layers_arrive_by_tcp", layers_arrive, pair_setup_tcp, pair_teardown, NULL},
        BY_TCP(many_threads),
        BY_TCP(its_own),
        BY_TCP(what_fails_adds_nothing),
        BY_TCP(descriptor),
        BY_TCP(waiters),
        BY_TCP(what_is_wrong),
        BY_TCP(a_counter_that_is_gone),
        cmocka_unit_test(close_while_a_batch_waits),
        cmocka_unit_test(late_beside_a_target_that_has_gone),
        BY_TCP(answers_are_lost),
        BY_TCP(messages_are_lost),
        BY_TCP(messages_come_twice),
        BY_TCP(one_target_is_gone),
        BY_TCP(the_end_of_the_engine),
        BY_TCP(an_engine_that_knows_none),
        BY_TCP(a_target_that_was_started_again),
        BY_TCP(a_full_counter),
    };

    engines_are_patient();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
