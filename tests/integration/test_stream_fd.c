/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=120 */
/* te_submit_opts.after and .then by descriptors: requests wait for them, and signal them, whatever ends them. */
#include "base/tsan.h"
#include "draw.h"
#include "pair.h"
#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define MANY 300 /* pages, more than one window has */
#define PAGE 4096

static int event(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static te_stream by_fd(int fd)
{
    return (te_stream){.size = sizeof(te_stream), .fd = fd};
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* Waits until it was written, and reads how often; the descriptor is closed. */
static uint64_t written(int fd)
{
    uint64_t n = 0;

    assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
    close(fd);
    return n;
}

static void write_one(int fd)
{
    assert_int_equal(eventfd_write(fd, 1), 0);
}

/*
 * Every byte of both sides differs, and from call to call. Requests may wait meanwhile: the descriptor that is written
 * later orders them behind this, which the thread sanitizer cannot see.
 */
static void fill_both(const struct pair *p)
{
    static unsigned seed;

    seed++;
    tei_tsan_ignore_begin();
    for (size_t i = 0; i < PAIR_SIZE; i++) {
        p->am[i] = (unsigned char)(i * 7 + i / 253 + seed);
        p->bm[i] = (unsigned char)~p->am[i];
    }
    tei_tsan_ignore_end();
}

static te_request request(const struct pair *p, int opcode, te_segment seg, size_t at, size_t n)
{
    const unsigned char *far = seg == TE_LOCAL_SEGMENT ? p->am + PAIR_SIZE / 2 : p->bm;

    return (te_request){.opcode = opcode,
                        .source = p->am + at,
                        .target = seg,
                        .target_offset = (uintptr_t)far + at,
                        .length = n};
}

static int state_of(const struct pair *p, te_batch b, size_t task)
{
    struct te_status st;

    assert_int_equal(te_status(p->a, b, task, &st), 0);
    return st.state;
}

static te_batch batch(const struct pair *p, size_t n)
{
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, n, &b), 0);
    return b;
}

static void ends(const struct pair *p, te_batch b, int state)
{
    struct te_status st;

    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, state);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* ----------------------------------------------------------------------------------- both directions */

/* What it moves is written after the submit, by who then writes the eventfd; both descriptors are closed at once. */
static void one_waits(const struct pair *p, int opcode, te_segment seg, size_t n)
{
    te_request r = request(p, opcode, seg, 3, n);
    unsigned char *far = (unsigned char *)(uintptr_t)r.target_offset, *near = r.source;
    unsigned char *from = opcode == TE_WRITE ? near : far, *to = opcode == TE_WRITE ? far : near;
    int ready = event(), mine = dup(ready), over = event(), theirs = dup(over);
    te_stream after = by_fd(ready), then = by_fd(theirs);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_batch b = batch(p, 1);

    fill_both(p);
    assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
    close(ready);
    close(theirs);
    assert_int_equal(state_of(p, b, 0), TE_PENDING);
    assert_int_equal(te_batch_free(p->a, b), TE_ERR_BUSY);
    assert_memory_not_equal(from, to, n);
    tei_tsan_ignore_begin();
    memset(from, 0x5a, n);
    tei_tsan_ignore_end();
    assert_false(is_readable(over));
    write_one(mine);
    assert_int_equal(written(over), 1);
    assert_int_equal(state_of(p, b, 0), TE_COMPLETED);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(to[i], 0x5a);
    assert_int_equal(written(mine), 1); /* the engine reads nothing */
    ends(p, b, TE_COMPLETED);
}

static void waits_and_signals(void **state)
{
    const struct pair *p = *state;

    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
        for (size_t n = 1; n < PAIR_SIZE / 2; n += PAIR_SIZE / 2 - 8) {
            one_waits(p, opcode, p->seg, n);
            one_waits(p, opcode, TE_LOCAL_SEGMENT, n);
        }
}

/* It is done when the call comes: nothing waits. Requests of no bytes wait as others do. */
static void done_before(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over = event();
    te_stream after = by_fd(ready), then = by_fd(over);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_request r[] = {request(p, TE_READ, p->seg, 0, 0), request(p, TE_WRITE, p->seg, 0, 100)};
    te_batch b = batch(p, 4);

    fill_both(p);
    assert_int_equal(te_submit(p->a, b, r, 2, &opts), 0);
    assert_int_equal(state_of(p, b, 0), TE_PENDING);
    write_one(ready);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    opts.after = &after;
    opts.then = NULL;
    assert_int_equal(te_submit(p->a, b, r, 2, &opts), 0);
    ends(p, b, TE_COMPLETED);
    assert_int_equal(written(over), 1);
    assert_memory_equal(p->am, p->bm, 100);
    close(ready);
}

static void prepared_and_pages(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over = event();
    te_stream after = by_fd(ready), then = by_fd(over);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    void *local = p->am;
    uint64_t remote = (uintptr_t)p->bm;
    size_t length = 777;
    te_pages g = {.size = sizeof(g),
                  .opcode = TE_WRITE,
                  .target = p->seg,
                  .n = MANY,
                  .length = PAGE,
                  .local = {.base = (uintptr_t)p->am + PAGE, .stride = 2 * PAGE, .pages = MANY},
                  .remote = {.base = (uintptr_t)p->bm + PAGE, .stride = 2 * PAGE, .pages = MANY}};
    te_batch b = batch(p, 2);
    te_prep list;

    fill_both(p);
    assert_int_equal(te_prep_create(p->a, p->seg, &local, &remote, &length, 1, &list), 0);
    assert_int_equal(te_prep_submit(p->a, b, list, TE_WRITE, NULL, 1, &opts), 0);
    assert_int_equal(te_submit_pages(p->a, b, &g, &opts), 0);
    assert_int_equal(te_prep_destroy(p->a, list), 0);
    assert_int_equal(state_of(p, b, 0), TE_PENDING);
    assert_int_equal(state_of(p, b, 1), TE_PENDING);
    tei_tsan_ignore_begin();
    for (size_t i = 0; i < PAIR_SIZE; i++)
        p->am[i] = (unsigned char)(p->am[i] * 3 + 1);
    tei_tsan_ignore_end();
    write_one(ready);
    ends(p, b, TE_COMPLETED);
    assert_int_equal(written(over), 2);
    assert_memory_equal(p->am, p->bm, length);
    for (size_t i = 0; i < MANY; i++)
        assert_memory_equal(p->am + (2 * i + 1) * PAGE, p->bm + (2 * i + 1) * PAGE, PAGE);
    close(ready);
}

/* --------------------------------------------------------------------------------- other ends */

/* One that waits for `ready`, and signals *over. */
static te_batch hold(const struct pair *p, int ready, int64_t deadline_ms, int *over)
{
    te_stream after = by_fd(ready), then;
    te_submit_opts opts = {
        .size = sizeof(opts), .deadline_ms = deadline_ms, .after = &after, .then = &then};
    te_request r = request(p, TE_WRITE, p->seg, 0, 5000);
    te_batch b = batch(p, 1);

    *over = event();
    then = by_fd(*over);
    assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
    assert_int_equal(state_of(p, b, 0), TE_PENDING);
    return b;
}

static void deadline_and_cancel(void **state)
{
    const struct pair *p = *state;
    int ready = event(), late, canceled, last;
    char why[512];
    te_batch b = hold(p, ready, 3600000, &last), c = hold(p, ready, 0, &canceled),
             d = hold(p, ready, 30, &late);

    fill_both(p);
    assert_int_equal(written(late), 1);
    assert_int_equal(te_status_msg(p->a, d, 0, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "te_submit_opts.after"));
    ends(p, d, TE_TIMEOUT);
    assert_int_equal(te_cancel(p->a, c), 0);
    assert_int_equal(written(canceled), 1);
    ends(p, c, TE_CANCELED);
    assert_int_equal(state_of(p, b, 0), TE_PENDING);
    assert_false(is_readable(last));
    assert_int_not_equal(p->am[0], p->bm[0]);
    write_one(ready);
    assert_int_equal(written(last), 1);
    ends(p, b, TE_COMPLETED);
    assert_memory_equal(p->am, p->bm, 5000);
    close(ready);
}

/* Meanwhile nothing that it needs can be taken away; afterwards all can. */
static void holds_on(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over;
    te_batch b = hold(p, ready, 0, &over);

    assert_int_equal(te_unregister(p->a, p->am), TE_ERR_BUSY);
    assert_int_equal(te_close(p->a, p->seg), TE_ERR_BUSY);
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), TE_ERR_BUSY);
    assert_int_equal(te_cancel(p->a, b), 0);
    assert_int_equal(written(over), 1);
    ends(p, b, TE_CANCELED);
    assert_int_equal(te_unregister(p->a, p->am), 0);
    assert_int_equal(te_register(p->a, p->am, PAIR_SIZE, NULL, TE_REMOTE_RW), 0);
    close(ready);
}

/* The other end of a pipe, or of a connection, is closed: `early`, before the call; `said`: after a byte. */
static void one_hangs_up(const struct pair *p, bool connected, bool early, bool said)
{
    te_request r = request(p, TE_WRITE, p->seg, 0, PAGE);
    int ends_of[2], over = event();
    te_stream after, then = by_fd(over);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_batch b = batch(p, 1);
    char why[512];

    assert_int_equal(connected ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends_of) : pipe(ends_of), 0);
    after = by_fd(ends_of[0]);
    if (early && said)
        assert_int_equal(write(ends_of[1], "x", 1), 1);
    if (early)
        close(ends_of[1]);
    assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
    if (!early && said)
        assert_int_equal(write(ends_of[1], "x", 1), 1);
    if (!early)
        close(ends_of[1]);
    assert_int_equal(written(over), 1);
    assert_int_equal(te_status_msg(p->a, b, 0, why, sizeof(why)), 0);
    assert_true(said || strstr(why, "closed at its other end"));
    ends(p, b, said ? TE_COMPLETED : TE_FAILED);
    close(ends_of[0]);
}

static void hangs_up(void **state)
{
    for (int i = 0; i < 8; i++)
        one_hangs_up(*state, i & 1, i & 2, i & 4);
}

/* Whoever is woken by `then` finds the batch ended, in whatever call. */
static void looked_at_once(void **state)
{
    const struct pair *p = *state;
    te_request r = request(p, TE_WRITE, p->seg, 0, 64);
    int over = event();
    te_stream then = by_fd(over);
    te_submit_opts opts = {.size = sizeof(opts), .then = &then};
    struct te_status st;
    eventfd_t n;

    for (int i = 0; i < 3000; i++) {
        te_batch b = batch(p, 1);

        assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
        assert_int_equal(eventfd_read(over, &n), 0);
        if (i % 3 == 0)
            assert_int_equal(te_wait(p->a, b, 0), 0);
        else if (i % 3 == 1)
            assert_int_equal(te_fence(p->a, b, 0, NULL, 0, NULL), 0);
        assert_int_equal(te_batch_status(p->a, b, &st), 0);
        assert_int_equal(st.state, TE_COMPLETED);
        assert_int_equal(te_batch_free(p->a, b), 0);
    }
    close(over);
}

/* What was there at the submit has gone by the time that the requests are begun. */
static void fails_later(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over;
    te_batch b = hold(p, ready, 0, &over);

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    write_one(ready);
    assert_int_equal(written(over), 1);
    ends(p, b, TE_INVALID);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, NULL, TE_REMOTE_RW), 0);
    close(ready);
}

static void destroyed(void **state)
{
    struct pair *p = *state;
    int ready = event(), over[3];

    for (size_t i = 0; i < 3; i++)
        (void)hold(p, ready, i ? 3600000 : 0, &over[i]);
    te_engine_destroy(p->a);
    p->a = NULL;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(written(over[i]), 1);
    close(ready);
}

/* ---------------------------------------------------------------------------------------- refused */

static void is_refused(const struct pair *p, size_t n, const te_stream *after,
                       const te_stream *then, int error, const char *says)
{
    te_submit_opts opts = {.size = sizeof(opts), .after = after, .then = then};
    te_request r = request(p, TE_WRITE, p->seg, 0, 10);
    te_batch b = batch(p, 1);

    assert_int_equal(te_submit(p->a, b, &r, n, &opts), error);
    if (!strstr(te_errmsg(), says))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void refused(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over = event(), pair_of[2], gone = dup(ready);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    te_stream after = by_fd(ready), then = by_fd(over), none = by_fd(0), closed = by_fd(gone),
              no_event, old = by_fd(ready), of_file = by_fd(file), of_timer = by_fd(timer);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_request bad = request(p, TE_WRITE, p->seg, PAIR_SIZE, 10);
    te_batch b = batch(p, 1);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_of), 0);
    close(gone);
    no_event = by_fd(pair_of[0]);
    old.size = 8;
    is_refused(p, 1, &none, NULL, TE_ERR_INVALID, "neither");
    is_refused(p, 1, NULL, &none, TE_ERR_INVALID, "neither");
    is_refused(p, 1, &closed, NULL, TE_ERR_INVALID, "cannot be waited for");
    is_refused(p, 1, NULL, &closed, TE_ERR_INVALID, "is no eventfd");
    is_refused(p, 1, NULL, &no_event, TE_ERR_INVALID, "is no eventfd");
    is_refused(p, 1, &of_file, NULL, TE_ERR_INVALID, "cannot be waited for");
    is_refused(p, 1, NULL, &of_file, TE_ERR_INVALID, "is no eventfd");
    is_refused(p, 1, NULL, &of_timer, TE_ERR_INVALID, "is no eventfd");
    is_refused(p, 1, &old, NULL, TE_ERR_INVALID, "te_stream");
    is_refused(p, 0, NULL, &then, TE_ERR_INVALID, "at least one request");
    is_refused(p, 0, &after, NULL, 0, "");
    /* The call fails for another reason: nothing is written, nothing waits. */
    assert_int_equal(te_submit(p->a, b, &bad, 1, &opts), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_false(is_readable(over));
    close(ready);
    close(over);
    close(pair_of[0]);
    close(pair_of[1]);
    close(file);
    close(timer);
}

/* A message after the data goes with what is signalled. */
static void with_message(void **state)
{
    const struct pair *p = *state;
    int ready = event(), over = event();
    te_stream after = by_fd(ready), then = by_fd(over);
    te_submit_opts opts = {.size = sizeof(opts),
                           .notify_name = "layer",
                           .notify_msg = "3",
                           .notify_target = TE_LOCAL_SEGMENT,
                           .after = &after,
                           .then = &then};
    te_request r = request(p, TE_WRITE, p->seg, 0, 10);
    te_batch b = batch(p, 1);
    te_notification *got = NULL;
    size_t n = 0;

    assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
    assert_int_equal(te_notify_recv(p->a, &got, &n), 0);
    assert_int_equal(n, 0);
    te_notify_free(got, n);
    write_one(ready);
    assert_int_equal(written(over), 1);
    for (n = 0; n == 0; te_notify_free(got, n))
        assert_int_equal(te_notify_recv(p->a, &got, &n), 0);
    assert_int_equal(n, 1);
    ends(p, b, TE_COMPLETED);
    close(ready);
}

/* --------------------------------------------------------------------------------- random histories */

#define CALLS  40
#define SLOT   ((size_t)8192)
#define EVENTS 6
#define ROUNDS 12

/* What is known of a call. */
struct call {
    te_batch b;
    size_t n;
    int event, over;
    bool canceled, timed;
};

static void submit_random(const struct pair *p, size_t i, struct call *c, const int *events)
{
    te_stream after = by_fd(events[c->event]), then = by_fd(c->over);
    te_submit_opts opts = {.size = sizeof(opts), .after = &after, .then = &then};
    te_request r[3];

    c->timed = draw(5) == 0;
    opts.deadline_ms = c->timed ? (int64_t)draw(3) + 1 : draw(2) ? 3600000 : 0;
    for (size_t k = 0; k < c->n; k++)
        r[k] = request(p, TE_WRITE, p->seg, (i * 3 + k) * SLOT, draw(SLOT + 1));
    assert_int_equal(te_submit(p->a, c->b, r, c->n, &opts), 0);
}

/* Each request ends once, as its history allows, and each call signals once. */
static void check_call(const struct pair *p, const struct call *c, size_t i)
{
    struct te_status st;

    assert_int_equal(te_wait(p->a, c->b, PATIENCE_MS), 0);
    assert_int_equal(written(c->over), 1);
    for (size_t k = 0; k < c->n; k++) {
        size_t at = (i * 3 + k) * SLOT;

        assert_int_equal(te_status(p->a, c->b, k, &st), 0);
        if (st.state == TE_COMPLETED) {
            assert_memory_equal(p->am + at, p->bm + at, st.bytes);
        } else if (st.state == TE_CANCELED) {
            assert_true(c->canceled);
        } else {
            assert_int_equal(st.state, TE_TIMEOUT);
            assert_true(c->timed);
        }
        if (!c->canceled && !c->timed)
            assert_int_equal(st.state, TE_COMPLETED);
    }
    assert_int_equal(te_batch_free(p->a, c->b), 0);
}

static void one_history(const struct pair *p)
{
    struct call calls[CALLS];
    int events[EVENTS];
    bool is_written[EVENTS] = {false};

    fill_both(p);
    for (size_t k = 0; k < EVENTS; k++)
        events[k] = event();
    for (size_t i = 0; i < CALLS; i++) {
        struct call *c = &calls[i];

        *c = (struct call){.n = 1 + draw(3), .event = (int)draw(EVENTS), .over = event()};
        c->b = batch(p, c->n);
        submit_random(p, i, c, events);
        if (draw(3) == 0) {
            struct call *other = &calls[draw(i + 1)];

            other->canceled = true;
            assert_int_equal(te_cancel(p->a, other->b), 0);
        }
        if (draw(8) == 0) {
            size_t k = draw(EVENTS);

            is_written[k] = true;
            write_one(events[k]);
        }
    }
    for (size_t i = 0; i < CALLS; i++)
        for (size_t k = 0; k < calls[i].n && !is_written[calls[i].event]; k++)
            assert_int_not_equal(state_of(p, calls[i].b, k), TE_COMPLETED);
    for (size_t k = 0; k < EVENTS; k++)
        if (!is_written[k])
            write_one(events[k]);
    for (size_t i = 0; i < CALLS; i++)
        check_call(p, &calls[i], i);
    for (size_t k = 0; k < EVENTS; k++)
        close(events[k]);
}

static void random_histories(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        one_history(*state);
}

#define ON(setup, test)                                       \
    {                                                         \
#test " by " #setup, test, setup, pair_teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(pair_setup, waits_and_signals),   ON(pair_setup_tcp, waits_and_signals),
        ON(pair_setup, done_before),         ON(pair_setup_tcp, prepared_and_pages),
        ON(pair_setup, prepared_and_pages),  ON(pair_setup_tcp, deadline_and_cancel),
        ON(pair_setup_tcp, holds_on),        ON(pair_setup_tcp, hangs_up),
        ON(pair_setup_tcp, looked_at_once),  ON(pair_setup, looked_at_once),
        ON(pair_setup_tcp, fails_later),     ON(pair_setup_tcp, destroyed),
        ON(pair_setup, destroyed),           ON(pair_setup_tcp, refused),
        ON(pair_setup_tcp, with_message),    ON(pair_setup, random_histories),
        ON(pair_setup_tcp, random_histories)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
