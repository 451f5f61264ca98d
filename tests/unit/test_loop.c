/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"
#include "test.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os.h"
#include "patience.h"

#define MS TEI_NS_PER_MS

static struct tei_loop loop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int open_loop(void **state)
{
    (void)state;
    return tei_loop_init(&loop, NULL);
}

static int open_locked(void **state)
{
    (void)state;
    return tei_loop_init(&loop, &mutex);
}

static int close_loop(void **state)
{
    (void)state;
    tei_loop_fini(&loop);
    tei_loop_fini(&loop); /* zeroed by the first */
    return 0;
}

static int event_fd(unsigned initial)
{
    int fd = eventfd(initial, EFD_NONBLOCK | EFD_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void drain(int fd)
{
    uint64_t n;

    if (read(fd, &n, sizeof n) < 0)
        n = 0;
}

static void signal_fd(int fd)
{
    const uint64_t one = 1;

    assert(write(fd, &one, sizeof one) == sizeof one);
}

/* ---- watches, turned by hand */

static int fired;
static uint32_t last_events;

static void count_watch(struct tei_watch *w, uint32_t events)
{
    (void)w;
    fired++;
    last_events = events;
}

TEST(watches_are_level_triggered)
{
    struct tei_watch w = {0};
    int fd = event_fd(0);

    fired = 0;
    assert_int_equal(tei_watch_add(&loop, &w, fd, EPOLLIN, count_watch), 0);
    assert_false(tei_loop_turn(&loop));
    signal_fd(fd);
    assert_true(tei_loop_turn(&loop));
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 2);
    assert_int_equal(last_events, EPOLLIN);
    drain(fd);
    assert_false(tei_loop_turn(&loop));
    tei_watch_set(&w, EPOLLIN | EPOLLOUT);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(last_events, EPOLLOUT);
    tei_watch_set(&w, 0);
    assert_false(tei_loop_turn(&loop));
    tei_watch_del(&w);
    tei_watch_del(&w);
    assert_null(w.loop);
    assert_int_equal(tei_watch_add(&loop, &w, fd, EPOLLOUT, count_watch), 0);
    assert_true(tei_loop_turn(&loop));
    tei_watch_del(&w);
    close(fd);
}

/* ---- watches that are lent */

TEST(a_lent_watch_is_its_borrowers)
{
    struct tei_watch w = {0};
    struct tei_waker waker;
    struct tei_loan loan;
    int fd = event_fd(1);

    fired = 0;
    assert_int_equal(tei_waker_init(&waker), 0);
    assert_int_equal(tei_watch_add(&loop, &w, fd, EPOLLIN, count_watch), 0);
    tei_watch_lend(&w, &loan, &waker);
    assert_false(tei_loop_turn(&loop)); /* readable, but that is the borrower's concern */
    tei_loan_run(&loan, EPOLLIN);
    assert_int_equal(fired, 1);
    /* More to wait for: the borrower must know. Less is no news. */
    assert_false(waker.rung);
    tei_watch_set(&w, EPOLLIN | EPOLLOUT);
    assert_true(waker.rung);
    tei_waker_drain(&waker);
    tei_watch_set(&w, EPOLLIN);
    assert_false(waker.rung);
    /* Given back it stays hushed until the loop is told. */
    tei_loan_end(&loan);
    assert_false(tei_loop_turn(&loop));
    tei_watch_heed(&w);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 2);
    tei_watch_del(&w);
    close(fd);
    tei_waker_fini(&waker);
}

static void remove_it(struct tei_watch *w, uint32_t events)
{
    (void)events;
    tei_watch_del(w);
}

TEST(a_lent_watch_may_be_removed)
{
    struct tei_watch w = {0};
    struct tei_waker waker;
    struct tei_loan loan;
    int fd = event_fd(1);

    assert_int_equal(tei_waker_init(&waker), 0);
    for (int self = 0; self < 2; self++) {
        assert_int_equal(tei_watch_add(&loop, &w, fd, EPOLLIN, remove_it), 0);
        tei_watch_lend(&w, &loan, &waker);
        if (self)
            tei_loan_run(&loan, EPOLLIN);
        else
            tei_watch_del(&w);
        assert_null(loan.watch);
        assert_int_equal(waker.rung, !self); /* nobody has to be told what he did himself */
        tei_waker_drain(&waker);
        tei_loan_run(&loan, EPOLLIN);
        tei_loan_end(&loan);
    }
    close(fd);
    tei_waker_fini(&waker);
}

/* Data on a lent socket does not even wake the loop; the end of the stream does. */
TEST(the_loop_sees_the_end_of_a_lent_socket)
{
    struct tei_watch w = {0};
    struct tei_waker waker;
    struct tei_loan loan;
    int ends[2];

    fired = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(tei_waker_init(&waker), 0);
    assert_int_equal(tei_watch_add(&loop, &w, ends[0], EPOLLIN, count_watch), 0);
    tei_watch_lend(&w, &loan, &waker);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_false(tei_loop_turn(&loop));
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 1);
    assert_int_equal(last_events, EPOLLRDHUP);
    tei_watch_del(&w);
    close(ends[0]);
    close(ends[1]);
    tei_waker_fini(&waker);
}

TEST(a_bad_descriptor_is_an_error)
{
    struct tei_watch w = {0};

    te_log_set_level(TE_LOG_OFF);
    assert_int_equal(tei_watch_add(&loop, &w, 9999, EPOLLIN, count_watch), TE_ERR_SYSTEM);
    assert_null(w.loop);
    te_log_set_level(TE_LOG_WARN);
}

#define CROWD 20

struct member {
    struct tei_watch w;
    int fd;
};

static struct member *crowd[CROWD];

static void remove_member(int i)
{
    tei_watch_del(&crowd[i]->w);
    close(crowd[i]->fd);
    free(crowd[i]);
    crowd[i] = NULL;
}

static void remove_all(struct tei_watch *w, uint32_t events)
{
    (void)w;
    (void)events;
    fired++;
    for (int i = 0; i < CROWD; i++)
        remove_member(i);
}

static void make_crowd(tei_watch_fn fn)
{
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = calloc(1, sizeof *crowd[i]);
        assert_non_null(crowd[i]);
        crowd[i]->fd = event_fd(1);
        assert_int_equal(tei_watch_add(&loop, &crowd[i]->w, crowd[i]->fd, EPOLLIN, fn), 0);
    }
}

/* All are ready in one batch; the first to run frees all, itself too. */
TEST(a_callback_may_free_every_watch)
{
    fired = 0;
    make_crowd(remove_all);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 1);
    assert_false(tei_loop_turn(&loop));
}

static void quiet_the_others(struct tei_watch *w, uint32_t events)
{
    (void)events;
    fired++;
    for (int i = 0; i < CROWD; i++)
        if (&crowd[i]->w != w)
            tei_watch_set(&crowd[i]->w, 0);
}

TEST(a_callback_may_quiet_the_others)
{
    fired = 0;
    make_crowd(quiet_the_others);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 1);
    for (int i = 0; i < CROWD; i++)
        remove_member(i);
}

/* ---- timers */

struct numbered {
    struct tei_timer t;
    int64_t due;
};

static int64_t last_due;

static void check_order(struct tei_timer *t)
{
    struct numbered *n = tei_container_of(t, struct numbered, t);

    assert_true(n->due >= last_due);
    assert_true(n->due <= tei_now_ns());
    assert_int_equal(t->slot, 0);
    last_due = n->due;
    fired++;
}

static void never_fires(struct tei_timer *t)
{
    (void)t;
    fail_msg("a timer for the end of time has fired");
}

/* Whoever starts one of them has no way to say that it could not be. */
TEST(the_first_timers_take_no_memory)
{
    struct tei_timer timers[TEI_LOOP_TIMERS] = {0};
    struct tei_timer **heap = loop.heap;

    assert_non_null(heap);
    for (size_t k = 0; k < TEI_LOOP_TIMERS; k++)
        assert_int_equal(tei_timer_start(&loop, &timers[k], TEI_NEVER, never_fires), 0);
    assert_ptr_equal(loop.heap, heap);
    for (size_t k = 0; k < TEI_LOOP_TIMERS; k++)
        tei_timer_stop(&loop, &timers[k]);
}

/* However many others are armed before and after them. */
TEST(timers_that_were_set_aside_take_no_memory)
{
    struct tei_timer kept[3] = {0}, others[100] = {0};

    assert_int_equal(tei_loop_set_aside(&loop, 3), 0);
    for (size_t k = 0; k < 100; k++) {
        struct tei_timer **heap;

        assert_int_equal(tei_timer_start(&loop, &others[k], TEI_NEVER, never_fires), 0);
        heap = loop.heap;
        assert_in_range(k + 1 + 3, 4, loop.heap_cap);
        for (size_t i = 0; i < 3; i++)
            tei_timer_set(&loop, &kept[i], TEI_NEVER, never_fires);
        assert_int_equal(loop.n_timers, k + 1 + 3);
        assert_ptr_equal(loop.heap, heap);
        for (size_t i = 0; k % 2 && i < 3; i++)
            tei_timer_stop(&loop, &kept[i]);
        if (k % 2 == 0)
            tei_timer_stop(&loop, &kept[0]);
    }
    for (size_t k = 0; k < 100; k++)
        tei_timer_stop(&loop, &others[k]);
    for (size_t i = 0; i < 3; i++)
        tei_timer_stop(&loop, &kept[i]);
    assert_int_equal(loop.n_timers, 0);
}

/* Starts, moves and stops at random; what remains must fire in order. */
TEST(timers_fire_in_order)
{
    static struct numbered n[500];
    int64_t base = tei_now_ns() - TEI_NS_PER_S;
    int armed = 0;

    srand(7);
    fired = 0;
    last_due = 0;
    for (int i = 0; i < 5000; i++) {
        struct numbered *x = &n[rand() % 500];

        if (rand() % 4 == 0) {
            tei_timer_stop(&loop, &x->t);
        } else {
            x->due = base + rand() % 1000;
            assert_int_equal(tei_timer_start(&loop, &x->t, x->due, check_order), 0);
        }
    }
    for (int i = 0; i < 500; i++)
        armed += n[i].t.slot != 0;
    assert_int_equal(loop.n_timers, armed);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, armed);
    assert_false(tei_loop_turn(&loop));
}

static void arm_again(struct tei_timer *t)
{
    fired++;
    assert_int_equal(tei_timer_start(&loop, t, 0, arm_again), 0);
}

TEST(a_timer_that_rearms_does_not_starve_the_loop)
{
    struct tei_timer t = {0}, u = {0};

    fired = 0;
    tei_timer_start(&loop, &t, INT64_MIN, arm_again);
    tei_timer_start(&loop, &u, TEI_NEVER, arm_again);
    tei_loop_turn(&loop);
    assert_in_range(fired, 1, 2);
    tei_timer_stop(&loop, &t);
    tei_timer_stop(&loop, &t);
    tei_timer_stop(&loop, &u);
    assert_false(tei_loop_turn(&loop));
}

static struct tei_timer victim;

static void stop_victim(struct tei_timer *t)
{
    (void)t;
    fired++;
    tei_timer_stop(&loop, &victim);
}

TEST(a_timer_may_stop_another_that_is_due)
{
    struct tei_timer t = {0};

    fired = 0;
    tei_timer_start(&loop, &t, 1, stop_victim);
    tei_timer_start(&loop, &victim, 2, stop_victim);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(fired, 1);
}

/* ---- calls */

struct numbered_call {
    struct tei_call c;
    int n;
};

static int last_call;

static void check_call(struct tei_call *c)
{
    struct numbered_call *n = tei_container_of(c, struct numbered_call, c);

    assert_int_equal(n->n, last_call + 1);
    last_call = n->n;
    free(n);
}

static void make_call(int n)
{
    struct numbered_call *c = calloc(1, sizeof *c);

    assert(c);
    c->n = n;
    tei_loop_call(&loop, &c->c, check_call);
}

TEST(calls_run_in_order)
{
    last_call = 0;
    for (int i = 1; i <= 100; i++)
        make_call(i);
    assert_true(tei_loop_turn(&loop));
    assert_int_equal(last_call, 100);
    assert_false(tei_loop_turn(&loop));
}

static void again(struct tei_call *c)
{
    if (++fired < 5)
        tei_loop_call(&loop, c, again);
}

TEST(a_call_may_queue_itself)
{
    struct tei_call c = {0};

    fired = 0;
    tei_loop_call(&loop, &c, again);
    tei_loop_turn(&loop);
    assert_int_equal(fired, 1);
    while (tei_loop_turn(&loop))
        continue;
    assert_int_equal(fired, 5);
}

TEST(fini_runs_what_is_queued)
{
    struct tei_call c = {0};

    fired = 0;
    assert_int_equal(tei_loop_init(&loop, &mutex), 0);
    tei_loop_call(&loop, &c, again);
    tei_loop_fini(&loop);
    assert_int_equal(fired, 5);
}

/* ---- with a thread in tei_loop_run */

static void *run_loop(void *arg)
{
    (void)arg;
    tei_loop_run(&loop);
    return NULL;
}

static pthread_t start_thread(void)
{
    pthread_t t;

    assert_int_equal(tei_thread_start(&t, "te/loop", run_loop, NULL), 0);
    return t;
}

static void stop_thread(pthread_t t)
{
    tei_loop_stop(&loop);
    pthread_join(t, NULL);
}

/* Until the loop's thread sleeps, so far as can be seen from outside. */
static void wait_asleep(void)
{
    while (!loop.asleep)
        usleep(200);
    usleep(5000);
}

TEST(stop_before_run_is_kept)
{
    tei_loop_stop(&loop);
    tei_loop_run(&loop);
    assert_false(loop.stop);
}

/* One that the kernel stops and lets go on wakes, but not each time that it is looked at. */
static bool comes_true(bool (*sleeps)(void))
{
    bool ok = false;

    for (int i = 0; i < 50 && !ok; i++)
        ok = sleeps();
    return ok;
}

static bool sleeps_through_nothing(void)
{
    uint64_t before = loop.wakeups;

    usleep(50000);
    return loop.wakeups == before;
}

/* Timers that are not due wake it neither when they are armed nor when they move. */
static bool sleeps_through_timers(void)
{
    struct tei_timer far = {0};
    uint64_t before = loop.wakeups, after;

    pthread_mutex_lock(&mutex);
    tei_timer_start(&loop, &far, tei_deadline_ns(600000), arm_again);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&mutex);
    tei_timer_start(&loop, &far, tei_deadline_ns(300000), arm_again);
    tei_timer_start(&loop, &far, tei_deadline_ns(900000), arm_again);
    pthread_mutex_unlock(&mutex);
    usleep(20000);
    after = loop.wakeups;
    pthread_mutex_lock(&mutex);
    tei_timer_stop(&loop, &far);
    pthread_mutex_unlock(&mutex);
    return after == before;
}

TEST(an_idle_loop_does_not_wake)
{
    pthread_t t = start_thread();

    wait_asleep();
    assert_true(comes_true(sleeps_through_nothing));
    assert_true(comes_true(sleeps_through_timers));
    stop_thread(t);
}

static _Atomic bool called;

static void note_call(struct tei_call *c)
{
    (void)c;
    called = true;
}

static bool falls_asleep_after_a_call(void)
{
    struct tei_call call = {0};
    uint64_t before = loop.wakeups;

    called = false;
    tei_loop_call(&loop, &call, note_call);
    WAIT_FOR(called);
    wait_asleep();
    usleep(50000);
    /* One for the call, one at the most for the wakefd that was written while it span. */
    return loop.wakeups - before <= 2;
}

/* A loop that spins does so after an event, not for ever. */
TEST(a_spinning_loop_goes_to_sleep)
{
    pthread_t t;

    loop.spin_ns = 20 * MS;
    t = start_thread();
    wait_asleep();
    assert_true(comes_true(falls_asleep_after_a_call));
    stop_thread(t);
}

static _Atomic int64_t fired_at;

static void note_time(struct tei_timer *t)
{
    (void)t;
    fired_at = tei_now_ns();
}

TEST(a_timer_of_another_thread_is_on_time)
{
    pthread_t t = start_thread();
    struct tei_timer far = {0}, near = {0};
    int64_t due, too_late;

    fired_at = 0;
    pthread_mutex_lock(&mutex);
    too_late = tei_deadline_ns(PATIENCE_MS);
    tei_timer_start(&loop, &far, too_late, note_time);
    pthread_mutex_unlock(&mutex);
    wait_asleep();
    pthread_mutex_lock(&mutex);
    due = tei_deadline_ns(10);
    tei_timer_start(&loop, &near, due, note_time);
    pthread_mutex_unlock(&mutex);
    while (!fired_at)
        usleep(200);
    assert_true(fired_at >= due && fired_at < too_late);
    pthread_mutex_lock(&mutex);
    tei_timer_stop(&loop, &far);
    pthread_mutex_unlock(&mutex);
    stop_thread(t);
}

/*
 * The thread that arms the timer turns the loop at once. If that turn emptied the wake fd, the
 * sleeper would sleep through the timer.
 */
TEST(a_turn_does_not_swallow_a_wake_up)
{
    pthread_t t = start_thread();

    for (int i = 0; i < 200; i++) {
        struct tei_timer near = {0};

        fired_at = 0;
        while (!loop.asleep)
            sched_yield();
        pthread_mutex_lock(&mutex);
        tei_timer_start(&loop, &near, tei_now_ns() + MS / 4, note_time);
        tei_loop_turn(&loop);
        pthread_mutex_unlock(&mutex);
        WAIT_FOR(fired_at > 0);
    }
    stop_thread(t);
}

#define CALLERS 4
#define CALLS   5000

struct stamped_call {
    struct tei_call c;
    int from, n;
};

static int next_of[CALLERS];
static _Atomic int calls_run;

static void check_stamp(struct tei_call *c)
{
    struct stamped_call *s = tei_container_of(c, struct stamped_call, c);

    assert(s->n == next_of[s->from]++);
    free(s);
    calls_run++;
}

static void *call_many(void *arg)
{
    int self = (int)(intptr_t)arg;

    for (int i = 0; i < CALLS; i++) {
        struct stamped_call *s = calloc(1, sizeof *s);

        assert(s);
        s->from = self;
        s->n = i;
        tei_loop_call(&loop, &s->c, check_stamp);
        if (i % 97 == 0)
            usleep(100); /* lets the loop fall asleep now and then */
        if (i % 31 == 0 && loop.lock) {
            pthread_mutex_lock(&mutex);
            tei_loop_turn(&loop);
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

/* Nothing is lost, and each caller's calls keep their order, whoever runs them. */
TEST(calls_of_many_threads_all_run)
{
    pthread_t t = start_thread(), c[CALLERS];

    calls_run = 0;
    memset(next_of, 0, sizeof next_of);
    for (intptr_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&c[i], NULL, call_many, (void *)i), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(c[i], NULL);
    WAIT_FOR(calls_run >= CALLERS * CALLS);
    assert_int_equal(calls_run, CALLERS * CALLS);
    stop_thread(t);
}

/*
 * One watch that its owner frees and makes anew, under the lock, while the loop's thread has its
 * events in hand.
 */
struct owned {
    struct tei_watch w;
    int fd;
    uint64_t guard;
};

static _Atomic int owned_fired;

static void on_owned(struct tei_watch *w, uint32_t events)
{
    struct owned *o = tei_container_of(w, struct owned, w);

    (void)events;
    assert(o->guard == 0x600d);
    drain(o->fd);
    owned_fired++;
}

static struct owned *own(void)
{
    struct owned *o = calloc(1, sizeof *o);

    assert(o);
    o->guard = 0x600d;
    o->fd = eventfd(1, EFD_NONBLOCK);
    assert(o->fd >= 0);
    pthread_mutex_lock(&mutex);
    assert(tei_watch_add(&loop, &o->w, o->fd, EPOLLIN, on_owned) == 0);
    pthread_mutex_unlock(&mutex);
    return o;
}

static void disown(struct owned *o)
{
    pthread_mutex_lock(&mutex);
    tei_watch_del(&o->w);
    o->guard = 0;
    close(o->fd);
    free(o);
    pthread_mutex_unlock(&mutex);
}

static void *own_and_disown(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3000 || owned_fired < 100; i++) {
        struct owned *o[4];

        for (int k = 0; k < 4; k++)
            o[k] = own();
        if (i % 3 == 0) {
            pthread_mutex_lock(&mutex);
            tei_loop_turn(&loop);
            pthread_mutex_unlock(&mutex);
        }
        for (int k = 0; k < 4; k++)
            disown(o[k]);
    }
    return NULL;
}

TEST(watches_may_go_while_their_events_are_in_hand)
{
    pthread_t t = start_thread(), o[3];

    owned_fired = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&o[i], NULL, own_and_disown, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(o[i], NULL);
    assert_true(owned_fired >= 100);
    stop_thread(t);
}

/*
 * A callback lets go of the lock, as one that reports to the owner's caller must; others turn the
 * loop and free watches.
 */
static _Atomic int released;

static void release_lock(struct tei_watch *w, uint32_t events)
{
    (void)w;
    (void)events;
    released++;
    pthread_mutex_unlock(&mutex);
    usleep(200);
    pthread_mutex_lock(&mutex);
}

TEST(a_callback_may_release_the_lock)
{
    struct tei_watch w[2] = {{0}};
    pthread_t t = start_thread(), o[2];
    int fd[2] = {event_fd(1), event_fd(1)};

    owned_fired = 0;
    released = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tei_watch_add(&loop, &w[i], fd[i], EPOLLIN, release_lock), 0);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&o[i], NULL, own_and_disown, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(o[i], NULL);
    assert_true(released > 0);
    stop_thread(t);
    for (int i = 0; i < 2; i++) {
        tei_watch_del(&w[i]);
        close(fd[i]);
    }
    assert_null(loop.dispatching);
}

TEST(a_stopped_loop_may_run_again)
{
    for (int i = 0; i < 300; i++) {
        pthread_t t = start_thread();

        if (i % 3 == 0)
            wait_asleep();
        stop_thread(t);
    }
    assert_false(tei_loop_turn(&loop));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(watches_are_level_triggered, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_lent_watch_is_its_borrowers, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_lent_watch_may_be_removed, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(the_loop_sees_the_end_of_a_lent_socket, open_loop,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_bad_descriptor_is_an_error, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_callback_may_free_every_watch, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_callback_may_quiet_the_others, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(timers_fire_in_order, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(the_first_timers_take_no_memory, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(timers_that_were_set_aside_take_no_memory, open_loop,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_timer_that_rearms_does_not_starve_the_loop, open_loop,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_timer_may_stop_another_that_is_due, open_loop,
                                        close_loop),
        cmocka_unit_test_setup_teardown(calls_run_in_order, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_call_may_queue_itself, open_loop, close_loop),
        cmocka_unit_test(fini_runs_what_is_queued),
        cmocka_unit_test_setup_teardown(stop_before_run_is_kept, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(an_idle_loop_does_not_wake, open_locked, close_loop),
        cmocka_unit_test_setup_teardown(a_spinning_loop_goes_to_sleep, open_locked, close_loop),
        cmocka_unit_test_setup_teardown(a_timer_of_another_thread_is_on_time, open_locked,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_turn_does_not_swallow_a_wake_up, open_locked, close_loop),
        cmocka_unit_test_setup_teardown(calls_of_many_threads_all_run, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(calls_of_many_threads_all_run, open_locked, close_loop),
        cmocka_unit_test_setup_teardown(watches_may_go_while_their_events_are_in_hand, open_locked,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_callback_may_release_the_lock, open_locked, close_loop),
        cmocka_unit_test_setup_teardown(a_stopped_loop_may_run_again, open_locked, close_loop),
    };

    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
