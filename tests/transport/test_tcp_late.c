/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=60 */
/*
 * What a WRITE may still bring after it has ended: later WRITEs of the same range wait until the
 * target has said that it is over, others do not.
 */
#include "conformance.h"

#include "base/os.h"
#include "native_stage.h"
#include "patience.h"
#include "transport/tcp/tcp_stream.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LENGTH 100000u

static void cancel(struct stage *s, unsigned task)
{
    s->t->ops.cancel(s->t, &s->tasks[task]);
    assert_int_equal(stage_outcome(s, task), TE_ERR_CANCELED);
}

static void request(struct stage *s, unsigned task, int opcode, size_t at, size_t n)
{
    stage_add(s, task, opcode, at, n)->owner = &s->tasks[task];
    stage_post(s);
}

/* Whether no other transport is to carry a WRITE of that range. */
static bool holds(struct stage *s, size_t at, size_t n)
{
    te_request r = {.opcode = TE_WRITE, .target_offset = stage_remote(at), .length = n};

    return s->t->ops.holds(s->t, s->attach, &r);
}

/* Whether the instance has to stay, for what it knows. */
static bool holds_any(struct stage *s)
{
    return s->t->ops.holds(s->t, NULL, NULL);
}

/* How many bytes have come that nobody has read. */
static int unread(int fd)
{
    int n = 0;

    assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
    return n;
}

/* Whether a thread of the transport does, or is about to do, anything. */
static bool is_awake(const char *thread)
{
    char path[sizeof "/proc/self/task//stat" + NAME_MAX], name[32] = "", state = 'S';
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%31[^)]) %c", name, &state) != 2)
        name[0] = '\0'; /* it has ended */
    if (f)
        fclose(f);
    return strncmp(name, "te/tcp", 6) == 0 && state != 'S';
}

/*
 * A part of a long WRITE has come, and no more of it can be sent: its connection has one frame that is
 * half sent. Before that it might be between two frames.
 */
static bool is_stuck(int fd)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *entry;
    bool awake = false;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        awake |= is_awake(entry->d_name);
    closedir(dir);
    return unread(fd) > 0 && !awake;
}

/* ----------------------------------------------------------------------------- the native framing */

static void acknowledge(struct stage *s, const struct native *c, size_t at)
{
    struct got g = stage_get_request(s, c, TCP_FRAME_WRITE);

    assert_int_equal(g.r[0].addr, stage_remote(at));
    stage_answer(c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
}

/* The answer to the one that was cancelled lets the other go; on the same connection. */
static void an_answer_settles(void **state)
{
    static struct stage s;
    struct got late, read;
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 1000, 500);
    c = stage_take_greeted(&s);
    late = stage_get_request(&s, &c, TCP_FRAME_WRITE);
    assert_false(holds(&s, 1000, 500) || holds_any(&s));
    cancel(&s, 0);
    assert_true(holds_any(&s));
    assert_true(holds(&s, 1499, 1) && holds(&s, 900, 101));
    assert_false(holds(&s, 900, 100) || holds(&s, 1500, 1));
    request(&s, 1, TE_WRITE, 1499, 1);  /* the last byte of it */
    request(&s, 2, TE_WRITE, 900, 101); /* the first */
    request(&s, 3, TE_READ, 1100, 300);
    read = stage_get_request(&s, &c, TCP_FRAME_READ);
    request(&s, 4, TE_WRITE, 900, 100); /* up to it */
    stage_get_request(&s, &c, TCP_FRAME_WRITE);
    native_expect_silence(c.fd);
    stage_answer(&c, TCP_FRAME_ACK, late.h.id, TCP_OK, 0);
    stage_put_data(&c, &read, 3);
    assert_int_equal(stage_outcome(&s, 3), 0);
    stage_answer(&c, TCP_FRAME_ACK, read.h.id + 1, TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 4), 0);
    for (unsigned left = 2; left > 0;) {
        struct got g = stage_get_request(&s, &c, TCP_FRAME_WRITE);

        left -= g.h.count;
        stage_answer(&c, TCP_FRAME_ACK, g.h.id, TCP_OK, 0);
    }
    assert_int_equal(stage_outcome(&s, 1), 0);
    assert_int_equal(stage_outcome(&s, 2), 0);
    assert_false(holds(&s, 1000, 500) || holds_any(&s));
    close(c.fd);
    stage_close(&s);
}

/* Half sent: the client has closed the connection, so the target is asked to drop it. */
static void a_drop_settles(void **state)
{
    static struct stage s;
    uint64_t first;
    struct native c;
    struct got g;
    int old;

    (void)state;
    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    old = c.fd;
    first = s.hello.connection;
    WAIT_FOR(is_stuck(old)); /* the target is frozen */
    cancel(&s, 0);
    request(&s, 1, TE_WRITE, 5000, 100);
    for (int i = 0; i < 2; i++) { /* without an answer it is asked again */
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_DROP);
        assert_int_equal(g.r[0].addr, first);
        native_expect_silence(c.fd);
        assert_false(stage_is_done(&s, 1));
        if (i == 0)
            close(c.fd);
    }
    stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
    acknowledge(&s, &c, 5000);
    assert_int_equal(stage_outcome(&s, 1), 0);
    close(old);
    close(c.fd);
    stage_close(&s);
}

/* A work that moves nothing, as te_fence() gives it. */
static void settle(struct stage *s, unsigned task, size_t at, size_t n, int64_t deadline_ns)
{
    struct tei_work *w = stage_add(s, task, TE_WRITE, at, n);

    tei_list_del(&w->link);
    atomic_store(&s->tasks[task].moved, n); /* the host counts what others move */
    w->deadline_ns = deadline_ns;
    s->t->ops.settle(s->t, w);
}

/* The same without time: it has ended already. */
static int look(struct stage *s, unsigned task, size_t at, size_t n)
{
    settle(s, task, at, n, tei_now_ns());
    assert_true(stage_is_done(s, task));
    return s->tasks[task].error;
}

/* A target that is never quiet, since WRITEs are cancelled there all the time, settles what was before. */
static void what_ends_later_is_not_waited_for(void **state)
{
    static struct stage s;
    uint64_t ids[2];
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 0; i < 2; i++) {
        request(&s, i, TE_WRITE, i * 100, 100);
        if (i == 0)
            c = stage_take_greeted(&s);
        ids[i] = stage_get_request(&s, &c, TCP_FRAME_WRITE).h.id;
        cancel(&s, i);
        settle(&s, 2 + i, 0, 200, TEI_NEVER);
        assert_false(stage_is_done(&s, 2 + i));
    }
    stage_answer(&c, TCP_FRAME_ACK, ids[0], TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 2), 0);
    assert_true(holds(&s, 100, 1));
    assert_false(stage_is_done(&s, 3));
    stage_answer(&c, TCP_FRAME_ACK, ids[1], TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, 3), 0);
    close(c.fd);
    stage_close(&s);
}

/* Who has no time to wait has the target asked, once for each look that it has not answered. */
static void a_look_asks_the_target(void **state)
{
    static struct stage s;
    uint64_t first;
    struct native c;
    struct got g;
    int old;

    (void)state;
    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    old = c.fd;
    first = s.hello.connection;
    WAIT_FOR(is_stuck(old));
    cancel(&s, 0);
    for (int i = 0; i < 2; i++) {
        struct pollfd f = {.fd = s.listener, .events = POLLIN};

        /* It may not have seen yet that the one before was closed. */
        WAIT_FOR(look(&s, 1, 0, 8) == TE_ERR_TIMEOUT && poll(&f, 1, 10) == 1);
        c = stage_take_greeted(&s);
        g = stage_get_request(&s, &c, TCP_FRAME_DROP);
        assert_int_equal(g.r[0].addr, first);
        assert_int_equal(look(&s, 1, 0, 8), TE_ERR_TIMEOUT);
        native_expect_silence(c.fd);
        if (i == 0)
            close(c.fd);
    }
    stage_answer(&c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
    WAIT_FOR(look(&s, 1, 0, 8) == 0);
    close(old);
    close(c.fd);
    stage_close(&s);
}

static bool wants_to_ask(const struct stage *s)
{
    struct tcp_peer *p = ((struct tcp_attach *)s->attach)->peer;
    bool yes;

    pthread_mutex_lock(&p->lock);
    yes = tei_tcp_frames_want_drop(p);
    pthread_mutex_unlock(&p->lock);
    return yes;
}

/* Where nobody answers any more it is given up for that look, and not tried for ever. */
static void a_look_at_a_target_that_is_gone(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    s.host.conf.retry_cnt = 2;
    request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    WAIT_FOR(is_stuck(c.fd));
    cancel(&s, 0);
    close(s.listener);
    s.listener = -1;
    assert_false(wants_to_ask(&s));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(look(&s, 1, 0, 8), TE_ERR_TIMEOUT);
        WAIT_FOR(!wants_to_ask(&s));
    }
    s.t->ops.close(s.t);
    assert_int_equal(look(&s, 1, 0, 8), TE_ERR_CANCELED);
    close(c.fd);
    stage_close(&s);
}

/* Asked about a connection; until it has answered no byte of the WRITE that waits comes. */
static void expect_drop(struct stage *s, const struct native *c, uint64_t connection)
{
    struct got g = stage_get_request(s, c, TCP_FRAME_DROP);

    assert_int_equal(g.r[0].addr, connection);
    native_expect_silence(c->fd);
    stage_answer(c, TCP_FRAME_DROPPED, g.h.id, TCP_OK, 0);
}

/*
 * A target that has closed the connection applies nothing of it any more. A reset may be of something between
 * the two, and what the target has received by then be applied later: it is asked.
 */
static void an_end_settles(void **state)
{
    static struct stage s;
    uint64_t first;
    struct native c;

    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        static const struct linger now = {.l_onoff = 1};

        stage_open(&s, NULL);
        request(&s, 0, TE_WRITE, 0, 100);
        c = stage_take_greeted(&s);
        first = s.hello.connection;
        stage_get_request(&s, &c, TCP_FRAME_WRITE);
        cancel(&s, 0);
        request(&s, 1, TE_WRITE, 50, 100);
        if (reset)
            setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(c.fd);
        c = stage_take_greeted(&s);
        if (reset)
            expect_drop(&s, &c, first);
        acknowledge(&s, &c, 50);
        assert_int_equal(stage_outcome(&s, 1), 0);
        close(c.fd);
        stage_close(&s);
    }
}

/* A reset, and nobody who listens any more: its process has ended. */
static void a_reset_and_a_refusal_settle(void **state)
{
    static const struct linger now = {.l_onoff = 1};
    static struct stage s;
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 0, 100);
    c = stage_take_greeted(&s);
    stage_get_request(&s, &c, TCP_FRAME_WRITE);
    cancel(&s, 0);
    assert_true(holds(&s, 0, 100));
    assert_int_equal(shutdown(s.listener, SHUT_RD), 0); /* listens no more */
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(c.fd);
    request(&s, 1, TE_WRITE, 50, 100);
    assert_int_equal(stage_outcome(&s, 1), TE_ERR_PEER);
    WAIT_FOR(!holds(&s, 0, 100));
    stage_close(&s);
}

/* A target that greets, and says nothing of the old connection. */
static void a_silent_target_fails_them(void **state)
{
    static struct stage s;
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    s.host.conf.retry_cnt = 3;
    request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    WAIT_FOR(is_stuck(c.fd));
    cancel(&s, 0);
    request(&s, 1, TE_WRITE, 5000, 100);
    for (int i = 0; i <= 3; i++) {
        struct native next = stage_take_greeted(&s);

        stage_get_request(&s, &next, TCP_FRAME_DROP);
        close(next.fd);
    }
    assert_int_equal(stage_outcome(&s, 1), TE_ERR_LINK);
    assert_non_null(strstr(s.tasks[1].why, "an earlier WRITE"));
    close(c.fd);
    stage_close(&s);
}

/* Those that wait have deadlines, and can be cancelled. */
static void they_end_while_they_wait(void **state)
{
    static struct stage s;
    struct tei_work *w;
    struct native c;

    (void)state;
    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 0, 100);
    c = stage_take_greeted(&s);
    stage_get_request(&s, &c, TCP_FRAME_WRITE);
    cancel(&s, 0);
    w = stage_add(&s, 1, TE_WRITE, 0, 100);
    w->deadline_ns = tei_now_ns() + 50 * TEI_NS_PER_MS;
    stage_post(&s);
    request(&s, 2, TE_WRITE, 0, 100);
    request(&s, 3, TE_WRITE, 0, 100);
    assert_int_equal(stage_outcome(&s, 1), TE_ERR_TIMEOUT);
    assert_non_null(strstr(s.tasks[1].why, "an earlier WRITE"));
    cancel(&s, 2);
    assert_false(stage_is_done(&s, 3));
    s.t->ops.close(s.t);
    assert_int_equal(stage_outcome(&s, 3), TE_ERR_CANCELED);
    close(c.fd);
    stage_close(&s);
}

#define HELD  1000u
#define EARLY 64u /* as many frames as a lane has under way */

static struct {
    void *memory;
    size_t size;
    atomic_uint n; /* times that it was looked into while it was shut */
} shut;

static void open_it(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&shut.n, 1);
    mprotect(shut.memory, shut.size, PROT_READ | PROT_WRITE);
}

/* Posts WRITEs that wait for the one at `at`, in memory which is then shut to everybody. */
static void hold_in_shut_memory(struct stage *s, const struct native *c, struct fake_task *held,
                                size_t at)
{
    shut.size = HELD * s->t->ops.work_size;
    shut.memory = mmap(NULL, shut.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shut.memory, MAP_FAILED);
    s->host.shelf = shut.memory;
    s->host.shelf_size = shut.size;
    for (unsigned i = 0; i < HELD; i++)
        fake_work(&s->list, s->t, s->attach, &held[i], TE_WRITE, s->memory,
                  (void *)(uintptr_t)stage_remote(at), 8);
    stage_post(s);
    native_expect_silence(c->fd);
    mprotect(shut.memory, shut.size, PROT_NONE);
}

/* Each is looked at when what it waits for is over, not whenever something is. */
static void many_can_wait(void **state)
{
    static struct fake_task held[HELD];
    static struct stage s;
    struct sigaction act = {.sa_handler = open_it}, before;
    uint64_t ids[EARLY];
    unsigned last = EARLY - 1,
             seen = EARLY - 2; /* the one that they wait for; the one that is not cancelled */
    struct native c = {0};

    (void)state;
    stage_open(&s, NULL);
    for (unsigned i = 0; i < EARLY; i++) {
        request(&s, i, TE_WRITE, i * 8, 8);
        if (i == 0)
            c = stage_take_greeted(&s);
        ids[i] = stage_get_request(&s, &c, TCP_FRAME_WRITE).h.id;
    }
    for (unsigned i = 0; i < EARLY; i++)
        if (i != seen)
            cancel(&s, i);
    sigaction(SIGSEGV, &act, &before);
    hold_in_shut_memory(&s, &c, held, last * 8);
    for (unsigned i = 0; i <= seen; i++)
        stage_answer(&c, TCP_FRAME_ACK, ids[i], TCP_OK, 0);
    assert_int_equal(stage_outcome(&s, seen),
                     0); /* so the answers before it have been taken, too */
    assert_int_equal(atomic_load(&shut.n), 0);
    open_it(0);
    sigaction(SIGSEGV, &before, NULL);
    stage_answer(&c, TCP_FRAME_ACK, ids[last], TCP_OK, 0);
    stage_get_head(&c);
    s.t->ops.close(s.t);
    assert_true(fake_wait(&s.host, NULL, held, HELD, PATIENCE_MS));
    close(c.fd);
    stage_close(&s);
    munmap(shut.memory, shut.size);
}

/* -------------------------------------------------------------------------------- versions 1 and 2 */

static const uint8_t ok[] = {0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};

static void speak_v2(struct tei_conf *c)
{
    c->tcp_native = false;
    c->tcp_pool = true;
}

static void speak_v1(struct tei_conf *c)
{
    c->tcp_force_v1 = true;
}

static void speak_v2_in_haste(struct tei_conf *c)
{
    speak_v2(c);
    c->tcp_status_timeout_ms = 200;
}

static int take(struct stage *s)
{
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = accept(s->listener, NULL, NULL);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

/* The next request is that one; takes its payload, if it has one. */
static void take_request(struct stage *s, int fd, int opcode, size_t at, size_t n)
{
    uint8_t bytes[TCP_HEAD_LEN];
    struct tcp_head h;
    char *payload = malloc(n);

    assert_non_null(payload);
    native_get(fd, bytes, sizeof bytes);
    tei_tcp_head_decode(bytes, &h);
    assert_int_equal(h.opcode, opcode);
    assert_int_equal(h.addr, stage_remote(at));
    assert_int_equal(h.size, n);
    if (opcode == TE_WRITE) {
        native_get(fd, payload, n);
        assert_memory_equal(payload, s->memory + at, n);
    }
    free(payload);
}

/* The client says that nothing more comes, and stays. */
static void expect_half_close(int fd)
{
    char c;

    assert_int_equal(recv(fd, &c, 1, 0), 0);
}

/* Bytes that went out on all connections, as far as the kernel knows that they have come. */
static uint64_t told_as_sent(struct stage *s)
{
    struct tei_nic_table found = {0};
    uint64_t sum = 0;

    s->t->ops.nics(s->t, &found);
    for (size_t i = 0; i < found.n; i++)
        sum += found.v[i].bytes[0];
    return sum;
}

/* A connection with a WRITE that was cancelled, and one of which a byte lies in its range. */
static int begin_late(struct stage *s)
{
    int fd;

    request(s, 0, TE_WRITE, 0, LENGTH);
    fd = take(s);
    take_request(s, fd, TE_WRITE, 0, LENGTH);
    cancel(s, 0);
    expect_half_close(fd);
    assert_true(told_as_sent(s) > 0); /* it counts, although it carries nothing any more */
    assert_true(holds(s, LENGTH - 1, 1));
    assert_false(holds(s, LENGTH, 1));
    request(s, 1, TE_WRITE, LENGTH - 1, 100);
    return fd;
}

static void the_end_of_the_old_connection_settles(void **state)
{
    static const struct linger now = {.l_onoff = 1};
    static struct stage s;

    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        int old, fd;

        stage_open(&s, speak_v2);
        old = begin_late(&s);
        request(&s, 2, TE_READ, 0, 8);
        fd = take(&s);
        take_request(&s, fd, TE_READ, 0, 8);
        native_put(fd, ok, sizeof ok);
        native_put(fd, "12345678", 8);
        assert_int_equal(stage_outcome(&s, 2), 0);
        request(&s, 3, TE_WRITE, LENGTH, 8);
        take_request(&s, fd, TE_WRITE, LENGTH, 8);
        native_put(fd, ok, sizeof ok);
        assert_int_equal(stage_outcome(&s, 3), 0);
        native_put(old, ok, sizeof ok); /* to no effect: what counts is the end */
        native_expect_silence(fd);
        assert_false(stage_is_done(&s, 1));
        if (reset)
            setsockopt(old, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(old);
        take_request(&s, fd, TE_WRITE, LENGTH - 1, 100);
        assert_false(holds(&s, LENGTH - 1, 1));
        native_put(fd, ok, sizeof ok);
        assert_int_equal(stage_outcome(&s, 1), 0);
        close(fd);
        stage_close(&s);
    }
}

static void the_end_settles_with_version_1(void **state)
{
    static struct stage s;
    int old, fd;

    (void)state;
    stage_open(&s, speak_v1);
    old = begin_late(&s);
    assert_int_equal(poll(&(struct pollfd){.fd = s.listener, .events = POLLIN}, 1, 50), 0);
    close(old);
    fd = take(&s);
    take_request(&s, fd, TE_WRITE, LENGTH - 1, 100);
    expect_half_close(fd);
    close(fd);
    assert_int_equal(stage_outcome(&s, 1), 0);
    stage_close(&s);
}

/* They wait for so long, and then fail at once, until the end is seen after all. */
static void the_wait_is_bounded(void **state)
{
    static struct stage s;
    int old, fd;

    (void)state;
    stage_open(&s, speak_v2_in_haste);
    old = begin_late(&s);
    for (unsigned i = 1; i < 3; i++) {
        if (i == 2)
            request(&s, i, TE_WRITE, 0, 8);
        assert_int_equal(stage_outcome(&s, i), TE_ERR_LINK);
        assert_non_null(strstr(s.tasks[i].why, "an earlier WRITE to this range"));
    }
    close(old);
    for (unsigned i = 3; i < TASKS; i++) {
        int came;

        request(&s, i, TE_WRITE, 0, 8);
        came = poll(&(struct pollfd){.fd = s.listener, .events = POLLIN}, 1, 50);
        if (came == 0) {
            assert_int_equal(stage_outcome(&s, i), TE_ERR_LINK);
            continue;
        }
        fd = take(&s);
        take_request(&s, fd, TE_WRITE, 0, 8);
        native_put(fd, ok, sizeof ok);
        assert_int_equal(stage_outcome(&s, i), 0);
        close(fd);
        stage_close(&s);
        return;
    }
    fail_msg("the WRITE still fails after the end of the old connection");
}

/* ------------------------------------------------------------------------------------ both of them */

static struct tei_attach *attach_anew(struct stage *s)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    struct tei_attach *out;

    fake_detach(s->t, s->attach);
    getsockname(s->listener, (struct sockaddr *)&a, &n);
    assert_int_equal(fake_attach_json(s->t,
                                      json_pack("{s:i,s:i,s:{s:{s:i,s:s}}}", "tcp_data_port",
                                                ntohs(a.sin_port), "tcp_proto_version", 2, "te",
                                                "tcp", "framing", 1, "id", "0123456789abcdef"),
                                      "127.0.0.1", &out),
                     0);
    return out;
}

/* A segment that is closed and opened again is the same target. */
static void closing_the_segment_forgets_nothing(void **state)
{
    static struct stage s;
    struct native c, next;
    int old, fd;

    (void)state;
    stage_open(&s, speak_v2);
    request(&s, 0, TE_WRITE, 0, LENGTH);
    old = take(&s);
    take_request(&s, old, TE_WRITE, 0, LENGTH);
    cancel(&s, 0);
    s.attach = attach_anew(&s);
    request(&s, 1, TE_WRITE, 0, 8);
    assert_int_equal(poll(&(struct pollfd){.fd = s.listener, .events = POLLIN}, 1, 50), 0);
    close(old);
    fd = take(&s);
    take_request(&s, fd, TE_WRITE, 0, 8);
    native_put(fd, ok, sizeof ok);
    assert_int_equal(stage_outcome(&s, 1), 0);
    close(fd);
    stage_close(&s);

    stage_open(&s, NULL);
    request(&s, 0, TE_WRITE, 0, STAGE_BYTES);
    c = stage_take_greeted(&s);
    WAIT_FOR(is_stuck(c.fd));
    cancel(&s, 0);
    s.attach = attach_anew(&s);
    request(&s, 1, TE_WRITE, 0, 8);
    next = stage_take_greeted(&s);
    stage_answer(&next, TCP_FRAME_DROPPED, stage_get_request(&s, &next, TCP_FRAME_DROP).h.id,
                 TCP_OK, 0);
    acknowledge(&s, &next, 0);
    assert_int_equal(stage_outcome(&s, 1), 0);
    close(c.fd);
    close(next.fd);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_settles),
        cmocka_unit_test(a_drop_settles),
        cmocka_unit_test(what_ends_later_is_not_waited_for),
        cmocka_unit_test(a_look_asks_the_target),
        cmocka_unit_test(a_look_at_a_target_that_is_gone),
        cmocka_unit_test(an_end_settles),
        cmocka_unit_test(a_reset_and_a_refusal_settle),
        cmocka_unit_test(a_silent_target_fails_them),
        cmocka_unit_test(they_end_while_they_wait),
        cmocka_unit_test(many_can_wait),
        cmocka_unit_test(the_end_of_the_old_connection_settles),
        cmocka_unit_test(the_end_settles_with_version_1),
        cmocka_unit_test(the_wait_is_bounded),
        cmocka_unit_test(closing_the_segment_forgets_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
