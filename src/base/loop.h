/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - epoll, timers and calls from other threads: the only event loop.
 *
 * A loop is turned by one thread at a time: its own (tei_loop_run) or, while that one sleeps, any
 * that holds the owner's lock and calls tei_loop_turn. The owner may give a mutex: it is held
 * during callbacks and released while the loop sleeps in epoll_wait; without one only the loop's
 * thread may touch watches and timers. tei_loop_call() and tei_loop_stop() are safe from any
 * thread. A loop with nothing to do sleeps without a wake-up. A watch may be lent to another thread,
 * which then waits for its descriptor. A callback may release the lock and
 * take it again, but then another thread may turn the loop meanwhile, the same watch included.
 */
#ifndef TEI_LOOP_H
#define TEI_LOOP_H

#include "base/base.h"
#include "base/queue.h"
#include "base/waker.h"

#include <pthread.h>

struct tei_loop;
struct tei_watch;
struct tei_timer;
struct tei_call;

/* `events`: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP as epoll reports them. */
typedef void (*tei_watch_fn)(struct tei_watch *w, uint32_t events);
typedef void (*tei_timer_fn)(struct tei_timer *t);
typedef void (*tei_call_fn)(struct tei_call *c);

struct tei_watch { /* zeroed before first use */
    int fd;
    uint32_t events;
    uint32_t armed; /* what epoll was told: EPOLLRDHUP alone while hushed */
    bool hushed;    /* the loop is not to look for `events`: another thread does, or soon will */
    tei_watch_fn fn;
    struct tei_loop *loop; /* NULL: not watched */
    struct tei_loan *loan; /* NULL: not lent */
};

/* One thread's use of a watch, on its stack. */
struct tei_loan {
    struct tei_watch *watch; /* NULL once the watch was removed: its fd is not to be used again */
    struct tei_waker *waker; /* rung when the watch changes under the thread that has it */
    bool inside;             /* that thread is in the watch's callback */
};

struct tei_timer { /* zeroed before first use */
    int64_t when_ns;
    tei_timer_fn fn;
    size_t slot; /* place in the heap + 1, 0: not armed */
    bool aside;  /* armed by tei_timer_set() */
};

/* zeroed before first use; owned by the loop from tei_loop_call until fn runs */
struct tei_call {
    struct tei_mpsc_link link;
    tei_call_fn fn;
};

struct tei_loop {
    bool open; /* tells an initialised loop from zeroed memory */
    int epfd, wakefd, timerfd;
    pthread_mutex_t *lock;
    pthread_t thread; /* of tei_loop_start() */
    bool running;     /* that thread is there */
    /*
     * May be set after tei_loop_init: run by tei_loop_run after each turn, lock held; may release
     * it and take it again.
     */
    void (*after_turn)(struct tei_loop *l);
    /*
     * May be set after tei_loop_init: after a turn in which something ran, tei_loop_run looks for
     * events for so long without sleeping.
     */
    int64_t spin_ns;
    struct tei_mpsc calls;
    _Atomic bool stop;
    _Atomic bool asleep; /* the loop's thread is, or is about to be, in epoll_wait */
    /* returns from epoll_wait in tei_loop_run, for tests and te_stats */
    _Atomic uint64_t wakeups;

    /* Under the lock. */
    struct tei_timer **heap;
    size_t n_timers, heap_cap;
    size_t n_aside, n_set; /* places that were set aside; those of them in use */
    int64_t alarm_ns; /* what timerfd is set for, no later than the first timer; TEI_NEVER: not */
    /* grows whenever a batch of events fetched before is no longer good */
    uint64_t epoch;
    struct tei_mpsc_link *taken;      /* calls taken off `calls` and not yet run */
    struct tei_dispatch *dispatching; /* batches being worked through, the newest first */
};

/* `lock` may be NULL. TE_ERR_SYSTEM on failure. */
int tei_loop_init(struct tei_loop *l, pthread_mutex_t *lock);
/*
 * Nothing may be watched or armed by then. Zeroed memory is accepted. Calls still queued are run.
 */
void tei_loop_fini(struct tei_loop *l);

/*
 * Watches are level-triggered. TE_ERR_SYSTEM on failure. A watch may be removed, and freed, in any
 * callback, its own or another's.
 */
int tei_watch_add(struct tei_loop *l, struct tei_watch *w, int fd, uint32_t events,
                  tei_watch_fn fn);
void tei_watch_set(struct tei_watch *w, uint32_t events); /* no system call if unchanged */
/* accepted when not watched; does not close the fd */
void tei_watch_del(struct tei_watch *w);

/*
 * Lends a watch to the calling thread, which then waits for `events` on `fd` by itself, without the
 * lock, and calls tei_loan_run() with it. The watch is hushed by that: the loop looks no more for
 * what can be read or written; it still sees the peer's close and errors, and runs the callback for
 * them. Removing the watch, or asking for more events, rings the waker: no thread may sit in
 * poll(2) on a descriptor that was closed, as that would keep the socket open. A watch is lent to
 * one thread at a time. Lock held.
 */
void tei_watch_lend(struct tei_watch *w, struct tei_loan *loan, struct tei_waker *waker);
/* Runs the callback for what the thread has seen; nothing if the watch is gone. Lock held. */
void tei_loan_run(struct tei_loan *loan, uint32_t events);
/* Gives the watch back, still hushed, if it is still there. Lock held. */
void tei_loan_end(struct tei_loan *loan);
/* The loop looks for the watch's events again; accepted when not hushed or removed. Lock held. */
void tei_watch_heed(struct tei_watch *w);

/*
 * Arms or re-arms; TE_ERR_MEMORY on failure, which there is none of with TEI_LOOP_TIMERS timers or fewer.
 * Re-arming later than before costs O(log n).
 */
#define TEI_LOOP_TIMERS 16
int tei_timer_start(struct tei_loop *l, struct tei_timer *t, int64_t when_ns, tei_timer_fn fn);
/* Sets places aside for `n` timers that must not fail, for as long as the loop lives. TE_ERR_MEMORY. */
int tei_loop_set_aside(struct tei_loop *l, size_t n);
/* tei_timer_start() of one of them, which is armed in no other way. */
void tei_timer_set(struct tei_loop *l, struct tei_timer *t, int64_t when_ns, tei_timer_fn fn);
void tei_timer_stop(struct tei_loop *l, struct tei_timer *t); /* accepted when not armed */
/*
 * After a timer was armed later than before: has the loop sleep on until the first one, where it
 * would wake once at the old time. One system call.
 */
void tei_loop_put_off(struct tei_loop *l);

/* Has fn(c) run on the loop soon; calls run in the order made. */
void tei_loop_call(struct tei_loop *l, struct tei_call *c, tei_call_fn fn);

/* Turns until tei_loop_stop(); takes and releases the lock itself. */
void tei_loop_run(struct tei_loop *l);
void tei_loop_stop(struct tei_loop *l);
/* Gives the loop a thread of that name, which runs it. TE_ERR_SYSTEM on failure. */
int tei_loop_start(struct tei_loop *l, const char *name);
/* Stops the loop and waits for that thread to end; accepted when there is none. */
void tei_loop_join(struct tei_loop *l);

/*
 * One turn that does not sleep: due timers, queued calls, ready watches. The lock must be held by
 * the caller and stays held. Returns whether anything ran.
 */
bool tei_loop_turn(struct tei_loop *l);

#endif
