// SPDX-License-Identifier: Apache-2.0
//! The RDMA transport's timer, which stops where there is no work, src/transport/rdma/rdma_monitor.c; and room in a
//! completion queue, src/transport/rdma/rdma_endpoint.c and rdma_worker.c.
//!
//! Promised: with work there is one timer, whoever started it; no more work requests are posted than the queue has
//! room for, and who finds none gets some or is told.
//!
//! `wanted` and `ticking` are sequentially consistent in C: see kit::seq_cst(). `n_work` is relaxed: work is counted under
//! the peer's lock, which each tick takes after it has withdrawn `wanted` (is_idle() in rdma_work.c). `posted` and `starved` are too,
//! but acquire and release are enough for them, as every access of `posted` is a read-modify-write. Not here: room that
//! is given back since posting failed, after which an endpoint that found none waits for a completion or a tick.
use crate::kit::{explore, kept, seq_cst};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    WorkUnlocked,
    TickUnlocked,
    WantUnordered,
    StopUnordered,
    StartsBlindly,
    ReserveRelaxed,
    PollRelaxed,
    StarvedLate,
    ReservesInTwoSteps,
}
use Wrong::*;

// ---- the timer

struct Monitor {
    wrong: Wrong,
    peer: Mutex<()>,
    n_work: AtomicUsize,
    wanted: AtomicBool,
    ticking: AtomicBool,
    timers: AtomicUsize,
}

impl Monitor {
    fn start_timer(&self) {
        assert_eq!(self.timers.fetch_add(1, Relaxed), 0, "two timers");
    }

    // C src/transport/rdma/rdma_work.c post_to_one: n_work.fetch_add relaxed
    // C src/transport/rdma/rdma_monitor.c tei_rdma_monitor_wake: wanted.load seq_cst, wanted.store seq_cst,
    // C     ticking.load seq_cst, ticking.exchange seq_cst
    fn post(&self) {
        let guard = (self.wrong != WorkUnlocked).then(|| self.peer.lock().unwrap());

        self.n_work.fetch_add(1, Relaxed);
        drop(guard);
        if !self.wanted.load(Acquire) {
            self.wanted.store(true, Release);
        }
        seq_cst(self.wrong != WantUnordered);
        if self.wrong == StartsBlindly {
            if !self.ticking.load(Acquire) {
                self.ticking.store(true, Release);
                self.start_timer();
            }
        } else if !self.ticking.load(Acquire) && !self.ticking.swap(true, AcqRel) {
            self.start_timer();
        }
    }

    // C src/transport/rdma/rdma_monitor.c on_tick: wanted.store seq_cst, closing.load seq_cst, n_work.load seq_cst,
    // C     ticking.store seq_cst, wanted.load seq_cst, ticking.exchange seq_cst
    fn tick(&self) {
        self.timers.fetch_sub(1, Relaxed);
        self.wanted.store(false, Release);
        if self.wrong != TickUnlocked {
            drop(self.peer.lock().unwrap());
        }
        if self.n_work.load(Acquire) == 0 {
            self.ticking.store(false, Release);
            seq_cst(self.wrong != StopUnordered);
            if !self.wanted.load(Acquire) || self.ticking.swap(true, AcqRel) {
                return;
            }
        }
        self.start_timer();
    }
}

/// Two post while the timer runs out. `wanted`: somebody has asked before.
fn post_and_tick(wrong: Wrong, wanted: bool) {
    explore(move || {
        let m = Arc::new(Monitor {
            wrong,
            peer: Mutex::new(()),
            n_work: AtomicUsize::new(0),
            wanted: AtomicBool::new(wanted),
            ticking: AtomicBool::new(true),
            timers: AtomicUsize::new(1),
        });
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let m = Arc::clone(&m);

                thread::spawn(move || m.post())
            })
            .collect();

        m.tick();
        posters.into_iter().for_each(|p| p.join().unwrap());
        assert_eq!(m.timers.load(Relaxed), 1, "work without a timer");
    });
}

// ---- room for completions

const DEPTH: usize = 1;

struct Queue {
    wrong: Wrong,
    posted: AtomicUsize,
    starved: AtomicBool,
    in_flight: AtomicUsize,
}

impl Queue {
    // C src/transport/rdma/rdma_endpoint.c try_reserve: posted.fetch_add seq_cst, posted.fetch_sub seq_cst
    fn try_reserve(&self) -> bool {
        let order = kept(self.wrong != ReserveRelaxed, AcqRel);

        if self.wrong == ReservesInTwoSteps {
            let had = self.posted.load(Acquire);

            if had < DEPTH {
                self.posted.store(had + 1, Release);
            }
            return had < DEPTH;
        }
        let has = self.posted.fetch_add(1, order) < DEPTH;

        if !has {
            self.posted.fetch_sub(1, order);
        }
        has
    }

    // C src/transport/rdma/rdma_endpoint.c reserve: starved.store seq_cst
    fn reserve(&self) -> bool {
        if self.try_reserve() {
            return true;
        }
        if self.wrong != StarvedLate {
            self.starved.store(true, Release);
        }
        let has = self.try_reserve();

        if self.wrong == StarvedLate && !has {
            self.starved.store(true, Release);
        }
        has
    }

    /// True if it kicks those that found no room.
    // C src/transport/rdma/rdma_worker.c take_all: posted.fetch_sub seq_cst
    // C src/transport/rdma/rdma_worker.c tei_rdma_cq_poll: starved.load seq_cst, starved.exchange seq_cst
    fn poll(&self) -> bool {
        self.in_flight.fetch_sub(1, Relaxed);
        self.posted.fetch_sub(1, kept(self.wrong != PollRelaxed, AcqRel));
        self.starved.load(Acquire) && self.starved.swap(false, AcqRel)
    }

    fn post(&self) {
        assert!(self.in_flight.fetch_add(1, Relaxed) < DEPTH, "more than there is room for");
    }
}

/// The queue is full; one completion is taken while one asks for room.
fn reserve_and_poll(wrong: Wrong) {
    explore(move || {
        let q = Arc::new(Queue {
            wrong,
            posted: AtomicUsize::new(DEPTH),
            starved: AtomicBool::new(false),
            in_flight: AtomicUsize::new(DEPTH),
        });
        let other = Arc::clone(&q);
        let t = thread::spawn(move || other.reserve());
        let kicked = q.poll();

        assert!(t.join().unwrap() || kicked, "nobody tells that there is room");
    });
}

/// Two ask for the one place that there is.
fn reserve_twice(wrong: Wrong) {
    explore(move || {
        let q = Arc::new(Queue {
            wrong,
            posted: AtomicUsize::new(0),
            starved: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        });
        let take = |q: &Queue| {
            if q.reserve() {
                q.post();
            }
        };
        let other = Arc::clone(&q);
        let t = thread::spawn(move || take(&other));

        take(&q);
        t.join().unwrap();
    });
}

#[test]
fn work_has_a_timer() {
    post_and_tick(Nothing, false);
}

#[test]
#[should_panic(expected = "work without a timer")]
fn work_has_a_timer_without_order_of_who_stops() {
    post_and_tick(StopUnordered, false);
}

#[test]
#[should_panic(expected = "work without a timer")]
fn work_has_a_timer_without_order_of_who_wants() {
    post_and_tick(WantUnordered, false);
}

#[test]
#[should_panic]
fn work_has_a_timer_started_blindly() {
    post_and_tick(StartsBlindly, false);
}

#[test]
fn work_that_was_wanted_before_has_a_timer() {
    post_and_tick(Nothing, true);
}

#[test]
#[should_panic(expected = "work without a timer")]
fn work_that_was_wanted_before_has_a_timer_where_work_takes_no_lock() {
    post_and_tick(WorkUnlocked, true);
}

#[test]
#[should_panic(expected = "work without a timer")]
fn work_that_was_wanted_before_has_a_timer_where_the_tick_takes_no_lock() {
    post_and_tick(TickUnlocked, true);
}

#[test]
fn who_finds_no_room_is_told() {
    reserve_and_poll(Nothing);
}

#[test]
#[should_panic(expected = "nobody tells that there is room")]
fn who_finds_no_room_is_told_without_release() {
    reserve_and_poll(ReserveRelaxed);
}

#[test]
#[should_panic(expected = "nobody tells that there is room")]
fn who_finds_no_room_is_told_without_acquire() {
    reserve_and_poll(PollRelaxed);
}

#[test]
#[should_panic(expected = "nobody tells that there is room")]
fn who_finds_no_room_is_told_if_it_says_so_in_time() {
    reserve_and_poll(StarvedLate);
}

#[test]
fn room_is_given_once() {
    reserve_twice(Nothing);
}

#[test]
#[should_panic(expected = "more than there is room for")]
fn room_is_given_once_by_load_and_store() {
    reserve_twice(ReservesInTwoSteps);
}
