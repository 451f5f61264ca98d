// SPDX-License-Identifier: Apache-2.0
//! A loop that goes to sleep, and those that give it work, src/base/loop.c.
//!
//! Promised: a call that was pushed is run, and a stop is seen, without another wake-up: who finds `asleep` writes the
//! descriptor, and whom the loop did not see asleep it has seen the call of. No access has to be sequentially
//! consistent, since both sides exchange `asleep`: the later of the two sees what the earlier one did before.
//!
//! The queue of calls is `top` alone (mpsc.rs has the rest). Waiting in epoll_wait is EventFd::wait().
use crate::kit::{explore, kept, EventFd};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    WakeRelaxed,
    SleepRelaxed,
    SleepIsAStore,
    LookBeforeAsleep,
    WakeBeforePush,
}
use Wrong::*;

struct Loop {
    wrong: Wrong,
    wakefd: EventFd,
    asleep: AtomicBool,
    stop: AtomicBool,
    top: AtomicUsize,
    ended: AtomicU32,
    callers: u32,
}

impl Loop {
    fn new(wrong: Wrong, callers: u32) -> Self {
        Loop {
            wrong,
            wakefd: EventFd::new(),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            top: AtomicUsize::new(0),
            ended: AtomicU32::new(0),
            callers,
        }
    }

    // C src/base/loop.c wake: asleep.exchange acq_rel
    fn wake(&self) {
        if self.asleep.swap(false, kept(self.wrong != WakeRelaxed, AcqRel)) {
            self.wakefd.write();
        }
    }

    /// tei_loop_call(): who finds the queue empty wakes. The push is one that counts.
    fn call(&self) {
        if self.wrong == WakeBeforePush {
            self.wake();
        }
        if self.top.fetch_add(1, Release) == 0 && self.wrong != WakeBeforePush {
            self.wake();
        }
        self.ended.fetch_add(1, Relaxed);
    }

    // C src/base/loop.c tei_loop_stop: stop.store release
    fn stop(&self) {
        self.stop.store(true, Release);
        self.wake();
        self.ended.fetch_add(1, Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.top.load(Relaxed) == 0 && !self.stop.load(Relaxed)
    }

    // C src/base/loop.c sleep_until_ready: top.load relaxed, stop.load relaxed, asleep.exchange acq_rel,
    // C     wakeups.fetch_add relaxed
    fn sleep_until_ready(&self, idle: bool) {
        if idle {
            self.wakefd.wait(&self.ended, self.callers);
        }
        self.asleep.swap(false, AcqRel);
    }

    // C src/base/loop.c tei_loop_run: stop.load acquire, asleep.exchange acq_rel, stop.store relaxed
    fn run(&self, calls: usize) {
        let mut ran = 0;

        while !self.stop.load(Acquire) && (calls == 0 || ran < calls) {
            let before = self.is_idle();

            if self.wrong == SleepIsAStore {
                self.asleep.store(true, Release);
            } else {
                self.asleep.swap(true, kept(self.wrong != SleepRelaxed, AcqRel));
            }
            self.sleep_until_ready(if self.wrong == LookBeforeAsleep {
                before
            } else {
                self.is_idle()
            });
            if self.wakefd.is_readable() {
                self.wakefd.read();
            }
            ran += self.top.swap(0, Acquire);
        }
    }
}

/// Two give the loop a call each.
fn call_twice(wrong: Wrong) {
    explore(move || {
        let l = Arc::new(Loop::new(wrong, 2));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let l = Arc::clone(&l);

                thread::spawn(move || l.call())
            })
            .collect();

        l.run(2);
        callers.into_iter().for_each(|c| c.join().unwrap());
    });
}

fn stop_it(wrong: Wrong) {
    explore(move || {
        let l = Arc::new(Loop::new(wrong, 1));
        let other = Arc::clone(&l);
        let t = thread::spawn(move || other.stop());

        l.run(0);
        t.join().unwrap();
    });
}

#[test]
fn calls_are_run() {
    call_twice(Nothing);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn calls_are_run_without_release_of_wake() {
    call_twice(WakeRelaxed);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn calls_are_run_without_acquire_of_the_sleeper() {
    call_twice(SleepRelaxed);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn calls_are_run_when_asleep_is_stored() {
    call_twice(SleepIsAStore);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn calls_are_run_when_the_sleeper_looks_first() {
    call_twice(LookBeforeAsleep);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn calls_are_run_when_the_wake_comes_first() {
    call_twice(WakeBeforePush);
}

#[test]
fn a_stop_is_seen() {
    stop_it(Nothing);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn a_stop_is_seen_without_release_of_wake() {
    stop_it(WakeRelaxed);
}
