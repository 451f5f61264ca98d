/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the event loop.
 *
 * Who turns it. Two kinds of threads work through a loop's events: the one inside tei_loop_run, and
 * any that holds the owner's lock and calls tei_loop_turn to get on without waiting for that one.
 * Callbacks run with the lock held; only the run thread sleeps, and it lets go of the lock while it
 * does.
 *
 * Stale events. epoll_wait fills its array while the lock is free. Before the sleeper has the lock
 * back, another thread may have removed a watch that the array points to, and freed it, or worked
 * through the same events itself. So `epoch` grows, under the lock, with every removal, every
 * change of interest and every turn. A sleeper that finds the epoch moved throws its array away and
 * asks epoll again, now with the lock held; watches are level-triggered, so what is still true
 * comes back. The same array is at risk again while it is worked through, as a callback may remove
 * any watch. Every thread that works through one has it on the list `dispatching`, and
 * tei_watch_del strikes the watch out of each; there can be several, because a callback may release
 * the lock for a while. Asking whether a watch is still there would not do: its memory may already
 * be another watch.
 *
 * Timers. The kernel's timer is set for the first of them, or earlier, and stays set from one sleep
 * to the next: a timeout of epoll_wait would cost setting and clearing one at each sleep. It is set
 * only when a timer comes before it, by whoever arms that, which wakes nobody. One that is stopped
 * or moved later leaves it as it is, for one wake-up too early at most.
 *
 * Waking the sleeper. It must wake for a queued call and for stop. `asleep` tells whether a wake-up
 * is needed at all. Both sides use read-modify-writes on it:
 *
 *     sleeper:  asleep = true,  then looks at calls and stop, then epoll_wait
 *     waker:    pushes a call or sets stop, swaps asleep for false, writes wakefd if it was true
 *
 * The two swaps have an order. If the sleeper's is first, the waker reads true and writes wakefd.
 * If the waker's is first, the sleeper's swap reads from it, acquires what it released, and then
 * sees the call or the stop before it sleeps. Only the run thread reads wakefd and the timer. If
 * tei_loop_turn did, it could swallow a wake-up that the sleeper has yet to notice, and the sleeper
 * would sleep on, past a stop or a timer.
 *
 * Order in a turn: timers due, then calls, then watches. Calls are taken after wakefd was emptied:
 * one pushed later writes it anew. A turn runs no more timers than were armed when it began, and
 * only the calls queued by the time it takes them, so that one that comes back each time cannot
 * starve the watches.
 */
#include "base/loop.h"

#include "base/err.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BATCH 64

/*
 * Events fetched and being worked through. A watch pointer of NULL is the loop's own or that of a removed
 * watch.
 */
struct tei_dispatch {
    struct epoll_event events[BATCH];
    int n;
    struct tei_dispatch *next;
};

/* ------------------------------------------------------------------------------------- sleeping */

/* Fetches ready events; `sleep`: waits for one. */
static void fetch(struct tei_loop *l, struct tei_dispatch *d, bool sleep)
{
    int n = epoll_wait(l->epfd, d->events, BATCH, sleep ? -1 : 0);

    /* An interrupting signal is no event; any other failure would be a closed epfd. */
    assert(n >= 0 || errno == EINTR);
    d->n = n > 0 ? n : 0;
}

static void wake(struct tei_loop *l)
{
    const uint64_t one = 1;

    if (!atomic_exchange_explicit(&l->asleep, false, memory_order_acq_rel))
        return;
    /* It can fail only when the counter is full, and then the sleeper is being woken already. */
    if (write(l->wakefd, &one, sizeof one) < 0)
        assert(errno == EAGAIN);
}

static void drain(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof count) < 0)
        assert(errno == EAGAIN);
}

/* Takes the loop's own events out of the batch; the run thread reads them. Lock held. */
static void take_own(struct tei_loop *l, struct tei_dispatch *d, bool read_them)
{
    for (int i = 0; i < d->n; i++) {
        void *whose = d->events[i].data.ptr;

        if (whose != &l->wakefd && whose != &l->timerfd)
            continue;
        d->events[i].data.ptr = NULL;
        if (read_them)
            drain(*(int *)whose);
        if (read_them && whose == &l->timerfd)
            l->alarm_ns = TEI_NEVER;
    }
}

/* Looks for events without sleeping; d->n is 0 if there were none. */
static void spin(struct tei_loop *l, struct tei_dispatch *d)
{
    int64_t now = tei_now_ns(), end = now + l->spin_ns;

    for (; d->n == 0 && now < end; now = tei_now_ns())
        fetch(l, d, false);
}

/*
 * Called without the lock, `asleep` having been set while it was still held: that is also so while
 * this spins, so a waker may write wakefd without need.
 */
static void sleep_until_ready(struct tei_loop *l, struct tei_dispatch *d, bool may_spin)
{
    bool idle = !atomic_load_explicit(&l->calls.top, memory_order_relaxed) &&
                !atomic_load_explicit(&l->stop, memory_order_relaxed);

    d->n = 0;
    if (may_spin && idle)
        spin(l, d);
    if (d->n == 0)
        fetch(l, d, idle);
    atomic_exchange_explicit(&l->asleep, false, memory_order_acq_rel);
    atomic_fetch_add_explicit(&l->wakeups, 1, memory_order_relaxed);
}

/* ----------------------------------------------------------------------------------------- life */

static void lock(struct tei_loop *l)
{
    if (l->lock)
        pthread_mutex_lock(l->lock);
}

static void unlock(struct tei_loop *l)
{
    if (l->lock)
        pthread_mutex_unlock(l->lock);
}

/* The loop's own descriptors are known by where it keeps them. */
static int watch_own(struct tei_loop *l, int *fd, const char *what)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

    if (*fd < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "%s: %s", what, tei_errno_text(errno));
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, *fd, &ev) < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "epoll_ctl: %s", tei_errno_text(errno));
    return 0;
}

static void close_all(struct tei_loop *l)
{
    int fds[] = {l->timerfd, l->wakefd, l->epfd};

    for (size_t i = 0; i < TEI_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            tei_fd_close(fds[i]);
}

/* Room for `n` more timers. */
static bool reserve(struct tei_loop *l, size_t n)
{
    size_t cap = l->heap_cap ? l->heap_cap * 2 : TEI_LOOP_TIMERS;
    struct tei_timer **heap;

    if (l->n_timers - l->n_set + l->n_aside + n <= l->heap_cap)
        return true;
    heap = reallocarray(l->heap, cap, sizeof *heap);
    if (!heap)
        return false;
    l->heap = heap;
    l->heap_cap = cap;
    return true;
}

int tei_loop_init(struct tei_loop *l, pthread_mutex_t *mutex)
{
    int rc;

    *l = (struct tei_loop){.lock = mutex, .wakefd = -1, .timerfd = -1, .alarm_ns = TEI_NEVER};
    l->epfd = tei_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (l->epfd < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "epoll_create1: %s", tei_errno_text(errno));
    l->wakefd = tei_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    rc = watch_own(l, &l->wakefd, "eventfd");
    if (!rc) {
        l->timerfd = tei_fd_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
        rc = watch_own(l, &l->timerfd, "timerfd_create");
    }
    if (!rc && !reserve(l, 1))
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for timers");
    if (rc)
        close_all(l);
    l->open = rc == 0;
    return rc;
}

/* -------------------------------------------------------------------------------------- watches */

int tei_watch_add(struct tei_loop *l, struct tei_watch *w, int fd, uint32_t events, tei_watch_fn fn)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    assert(!w->loop);
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "descriptor %d cannot be watched: %s", fd,
                        tei_errno_text(errno));
    *w = (struct tei_watch){.fd = fd, .events = events, .armed = events, .fn = fn, .loop = l};
    return 0;
}

static void arm(struct tei_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    if (w->armed == events)
        return;
    w->armed = events;
    w->loop->epoch++;
    if (epoll_ctl(w->loop->epfd, EPOLL_CTL_MOD, w->fd, &ev) < 0)
        TEI_ERROR("interest in descriptor %d cannot be changed: %s", w->fd, tei_errno_text(errno));
}

void tei_watch_set(struct tei_watch *w, uint32_t events)
{
    bool more = events & ~w->events;

    w->events = events;
    if (!w->hushed)
        arm(w, events);
    else if (w->loan && more && !w->loan->inside)
        tei_waker_ring(w->loan->waker);
}

void tei_watch_del(struct tei_watch *w)
{
    struct tei_loop *l = w->loop;

    if (!l)
        return;
    if (epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL) < 0)
        TEI_ERROR("descriptor %d was closed before its watch was removed: %s", w->fd,
                  tei_errno_text(errno));
    w->loop = NULL;
    if (w->loan) {
        w->loan->watch = NULL;
        if (!w->loan->inside)
            tei_waker_ring(w->loan->waker);
        w->loan = NULL;
    }
    l->epoch++;
    for (struct tei_dispatch *d = l->dispatching; d; d = d->next)
        for (int i = 0; i < d->n; i++)
            if (d->events[i].data.ptr == w)
                d->events[i].data.ptr = NULL;
}

void tei_watch_lend(struct tei_watch *w, struct tei_loan *loan, struct tei_waker *waker)
{
    assert(w->loop && !w->loan);
    *loan = (struct tei_loan){.watch = w, .waker = waker};
    w->loan = loan;
    w->hushed = true;
    /* Data that comes does not wake a sleeper who asks for this alone; the peer's close does. */
    arm(w, EPOLLRDHUP);
}

void tei_loan_run(struct tei_loan *loan, uint32_t events)
{
    struct tei_watch *w = loan->watch;

    if (!w)
        return;
    loan->inside = true;
    w->fn(w, events);
    loan->inside = false;
}

void tei_loan_end(struct tei_loan *loan)
{
    if (loan->watch)
        loan->watch->loan = NULL;
}

void tei_watch_heed(struct tei_watch *w)
{
    if (!w->loop || !w->hushed)
        return;
    w->hushed = false;
    arm(w, w->events);
}

/*
 * A callback may have changed the interest of a watch further on, so what it no longer asks for is
 * masked out.
 */
static bool run_watches(struct tei_dispatch *d)
{
    bool ran = false;

    for (int i = 0; i < d->n; i++) {
        struct tei_watch *w = d->events[i].data.ptr;
        uint32_t events = w ? d->events[i].events & (w->armed | EPOLLERR | EPOLLHUP) : 0;

        if (events) {
            w->fn(w, events);
            ran = true;
        }
    }
    return ran;
}

/* --------------------------------------------------------------------------------------- timers */

static void place(struct tei_loop *l, size_t i, struct tei_timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

static void sift_up(struct tei_loop *l, size_t i, struct tei_timer *t)
{
    while (i > 0 && l->heap[(i - 1) / 2]->when_ns > t->when_ns) {
        place(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(l, i, t);
}

static void sift_down(struct tei_loop *l, size_t i, struct tei_timer *t)
{
    for (size_t child = 2 * i + 1; child < l->n_timers; child = 2 * i + 1) {
        if (child + 1 < l->n_timers && l->heap[child + 1]->when_ns < l->heap[child]->when_ns)
            child++;
        if (l->heap[child]->when_ns >= t->when_ns)
            break;
        place(l, i, l->heap[child]);
        i = child;
    }
    place(l, i, t);
}

/* Puts `t` where it belongs, `i` being a free place of the heap. */
static void settle(struct tei_loop *l, size_t i, struct tei_timer *t)
{
    if (i > 0 && l->heap[(i - 1) / 2]->when_ns > t->when_ns)
        sift_up(l, i, t);
    else
        sift_down(l, i, t);
}

/* Has the kernel wake the sleeper at `when_ns`. */
static void move_alarm(struct tei_loop *l, int64_t when_ns)
{
    struct itimerspec at = {.it_value = {when_ns / TEI_NS_PER_S, when_ns % TEI_NS_PER_S}};

    l->alarm_ns = when_ns;
    if (when_ns <= 0) /* all zero would be no alarm */
        at.it_value = (struct timespec){.tv_nsec = 1};
    if (timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &at, NULL) < 0)
        TEI_ERROR("timerfd_settime: %s", tei_errno_text(errno));
}

static void set_alarm(struct tei_loop *l, int64_t when_ns)
{
    if (when_ns < l->alarm_ns)
        move_alarm(l, when_ns);
}

void tei_loop_put_off(struct tei_loop *l)
{
    if (l->n_timers && l->heap[0]->when_ns != TEI_NEVER && l->heap[0]->when_ns > l->alarm_ns)
        move_alarm(l, l->heap[0]->when_ns);
}

/* There is room for it. */
static void arm_timer(struct tei_loop *l, struct tei_timer *t, int64_t when_ns, tei_timer_fn fn)
{
    if (!t->slot)
        t->slot = ++l->n_timers;
    t->when_ns = when_ns;
    t->fn = fn;
    settle(l, t->slot - 1, t);
    set_alarm(l, when_ns);
}

int tei_timer_start(struct tei_loop *l, struct tei_timer *t, int64_t when_ns, tei_timer_fn fn)
{
    if (!t->slot && !reserve(l, 1))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for timer %zu", l->n_timers + 1);
    arm_timer(l, t, when_ns, fn);
    return 0;
}

int tei_loop_set_aside(struct tei_loop *l, size_t n)
{
    assert(n < TEI_LOOP_TIMERS);
    if (!reserve(l, n))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu timers", n);
    l->n_aside += n;
    return 0;
}

void tei_timer_set(struct tei_loop *l, struct tei_timer *t, int64_t when_ns, tei_timer_fn fn)
{
    assert(t->slot || l->n_set < l->n_aside);
    l->n_set += !t->slot;
    t->aside = true;
    arm_timer(l, t, when_ns, fn);
}

void tei_timer_stop(struct tei_loop *l, struct tei_timer *t)
{
    size_t i = t->slot - 1;
    struct tei_timer *last;

    if (!t->slot)
        return;
    t->slot = 0;
    l->n_set -= t->aside;
    last = l->heap[--l->n_timers];
    if (last != t)
        settle(l, i, last);
}

static bool run_timers(struct tei_loop *l)
{
    int64_t now = l->n_timers ? tei_now_ns() : 0;
    bool ran = false;

    for (size_t left = l->n_timers; left > 0 && l->n_timers > 0 && l->heap[0]->when_ns <= now;
         left--) {
        struct tei_timer *t = l->heap[0];

        tei_timer_stop(l, t);
        t->fn(t);
        ran = true;
    }
    return ran;
}

/* ---------------------------------------------------------------------------------------- calls */

void tei_loop_call(struct tei_loop *l, struct tei_call *c, tei_call_fn fn)
{
    c->fn = fn;
    if (tei_mpsc_push(&l->calls, &c->link))
        wake(l);
}

/*
 * Runs the calls queued up to now. They wait in l->taken, not in a local, so that a thread which
 * turns the loop while a call has released the lock goes on with the next call instead of
 * overtaking it.
 */
static bool run_calls(struct tei_loop *l)
{
    bool ran = false;

    if (!l->taken)
        l->taken = tei_mpsc_take(&l->calls);
    while (l->taken) {
        struct tei_call *c = tei_container_of(l->taken, struct tei_call, link);

        l->taken = l->taken->next;
        c->fn(c);
        ran = true;
    }
    return ran;
}

/* -------------------------------------------------------------------------------------- turning */

static void forget(struct tei_loop *l, const struct tei_dispatch *d)
{
    struct tei_dispatch **at = &l->dispatching;

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
}

/* One turn over events that were fetched in the present epoch. */
static bool turn(struct tei_loop *l, struct tei_dispatch *d)
{
    bool ran;

    d->next = l->dispatching;
    l->dispatching = d;
    l->epoch++;
    ran = run_timers(l);
    ran = run_calls(l) || ran;
    ran = run_watches(d) || ran;
    forget(l, d);
    return ran;
}

bool tei_loop_turn(struct tei_loop *l)
{
    struct tei_dispatch d;

    fetch(l, &d, false);
    take_own(l, &d, false);
    return turn(l, &d);
}

void tei_loop_run(struct tei_loop *l)
{
    struct tei_dispatch d;
    bool ran = false;

    lock(l);
    while (!atomic_load_explicit(&l->stop, memory_order_acquire)) {
        uint64_t epoch = l->epoch;

        if (l->n_timers)
            set_alarm(l, l->heap[0]->when_ns);
        atomic_exchange_explicit(&l->asleep, true, memory_order_acq_rel);
        unlock(l);
        sleep_until_ready(l, &d, ran && l->spin_ns > 0);
        lock(l);
        take_own(l, &d, true);
        if (l->epoch != epoch) {
            fetch(l, &d, false);
            take_own(l, &d, true);
        }
        ran = turn(l, &d);
        if (l->after_turn)
            l->after_turn(l);
    }
    atomic_store_explicit(&l->stop, false, memory_order_relaxed);
    unlock(l);
}

void tei_loop_stop(struct tei_loop *l)
{
    atomic_store_explicit(&l->stop, true, memory_order_release);
    wake(l);
}

static void *run(void *arg)
{
    tei_loop_run(arg);
    return NULL;
}

int tei_loop_start(struct tei_loop *l, const char *name)
{
    int rc = tei_thread_start(&l->thread, name, run, l);

    l->running = rc == 0;
    return rc;
}

void tei_loop_join(struct tei_loop *l)
{
    if (!l->running)
        return;
    tei_loop_stop(l);
    pthread_join(l->thread, NULL);
    l->running = false;
}

void tei_loop_fini(struct tei_loop *l)
{
    if (!l->open)
        return;
    assert(l->n_timers == 0 && !l->dispatching);
    lock(l);
    while (run_calls(l)) {}
    unlock(l);
    free(l->heap);
    close_all(l);
    memset(l, 0, sizeof *l);
}
