// SPDX-License-Identifier: Apache-2.0
//! The end of requests, src/core/complete.c, batch.c and wait.c: pieces of a task, tasks of a batch, those that wait for it, and messages that
//! are sent behind it.
//!
//! Promised: the piece that is folded last sees what all others folded; who sees a task terminal sees its error; who
//! waits is woken, sees all results, and may free the batch while the last one that finished still leaves it; a message
//! behind a batch is sent once, after all that was submitted before it.
//!
//! `left` and `waiters`, and `left` and `after`, are sequentially consistent in C: see kit::seq_cst(). Not here: the
//! deadline of te_wait(), spinning, the event descriptor and freeing by several at a time, which are under locks.
use crate::kit::{explore, kept, seq_cst};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::*};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    FoldReleases,
    FoldLooksRelaxed,
    StateRelaxed,
    StateFirst,
    StatusRelaxed,
    FinishRelaxed,
    FinishUnordered,
    WaitUnordered,
    WakeWithoutLock,
    WaitRelaxed,
    PushUnordered,
    SendUnordered,
    SendTakesLate,
}
use Wrong::*;

// ---- pieces of a task

/// Two pieces write results of their own; the last one reads both.
fn fold_two(wrong: Wrong) {
    struct Task {
        left: AtomicUsize,
        results: [UnsafeCell<u32>; 2],
    }

    // C src/core/complete.c fold: left.load acquire, left.fetch_sub acq_rel
    fn fold(t: &Task, i: usize, wrong: Wrong) -> bool {
        let order = if wrong == FoldReleases { Release } else { AcqRel };

        t.results[i].with_mut(|r| unsafe { *r = 1 });
        let last = t.left.load(kept(wrong != FoldLooksRelaxed, Acquire)) == 1
            || t.left.fetch_sub(1, order) == 1;

        if last {
            assert!(t.results.iter().all(|r| r.with(|r| unsafe { *r }) == 1));
        }
        last
    }

    explore(move || {
        let t = Arc::new(Task {
            left: AtomicUsize::new(2),
            results: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let other = Arc::clone(&t);
        let its = thread::spawn(move || fold(&other, 1, wrong));
        let mine = fold(&t, 0, wrong);

        assert!(mine != its.join().unwrap(), "not one was the last");
    });
}

// ---- the state of a task

/// One ends a task that it has just submitted; one asks for the status of whatever was submitted.
// C src/core/complete.c tei_batch_begin: left.fetch_add seq_cst, refs.fetch_add relaxed, claimed.fetch_add release
// C src/core/complete.c publish_end: error.load relaxed, state.store release
// C src/core/batch.c read_task: state.load acquire, error.load relaxed, moved.load relaxed
fn end_and_ask(wrong: Wrong) {
    const PENDING: usize = 0;
    const FAILED: usize = 1;

    struct Batch {
        claimed: AtomicUsize,
        filled_in: UnsafeCell<bool>,
        state: AtomicUsize,
        error: AtomicUsize,
    }

    explore(move || {
        let b = Arc::new(Batch {
            claimed: AtomicUsize::new(0),
            filled_in: UnsafeCell::new(false),
            state: AtomicUsize::new(PENDING),
            error: AtomicUsize::new(0),
        });
        let other = Arc::clone(&b);
        let t = thread::spawn(move || {
            let order = kept(wrong != StateRelaxed, Release);

            other.filled_in.with_mut(|f| unsafe { *f = true });
            other.claimed.fetch_add(1, order);
            if wrong == StateFirst {
                other.state.store(FAILED, order);
            }
            other.error.store(7, Relaxed);
            other.state.store(FAILED, order);
        });
        let order = kept(wrong != StatusRelaxed, Acquire);

        if b.claimed.load(order) == 1 {
            assert!(b.filled_in.with(|f| unsafe { *f }));
            if b.state.load(order) == FAILED {
                assert_eq!(b.error.load(Relaxed), 7, "terminal without its error");
            }
        }
        t.join().unwrap();
    });
}

// ---- who waits

/// Two tasks of two threads. References: the caller's and that of what is unfinished.
struct Batch {
    wrong: Wrong,
    refs: AtomicUsize,
    left: AtomicUsize,
    waiters: AtomicUsize,
    lock: Mutex<()>,
    cond: Condvar,
    results: [UnsafeCell<u32>; 2],
    memory: UnsafeCell<u32>,
}

impl Batch {
    fn new(wrong: Wrong) -> Self {
        Batch {
            wrong,
            refs: AtomicUsize::new(2),
            left: AtomicUsize::new(2),
            waiters: AtomicUsize::new(0),
            lock: Mutex::new(()),
            cond: Condvar::new(),
            results: [UnsafeCell::new(0), UnsafeCell::new(0)],
            memory: UnsafeCell::new(0),
        }
    }

    fn touch(&self) {
        assert_eq!(self.memory.with(|m| unsafe { *m }), 0, "the batch was freed");
    }

    /// put_batch(), as in refs.rs
    fn put(&self) {
        if self.refs.fetch_sub(1, AcqRel) == 1 {
            self.memory.with_mut(|m| unsafe { *m += 1 });
        }
    }

    // C src/core/complete.c finish_tasks: left.fetch_sub seq_cst, armed.load acquire, waiters.load seq_cst
    fn finish(&self, i: usize) {
        self.touch();
        self.results[i].with_mut(|r| unsafe { *r = 1 });
        if self.left.fetch_sub(1, kept(self.wrong != FinishRelaxed, AcqRel)) != 1 {
            return;
        }
        seq_cst(self.wrong != FinishUnordered);
        self.touch();
        if self.waiters.load(Acquire) > 0 {
            if self.wrong != WakeWithoutLock {
                drop(self.lock.lock().unwrap());
            }
            self.cond.notify_all();
        }
        self.put();
    }

    fn is_done(&self) -> bool {
        self.left.load(kept(self.wrong != WaitRelaxed, Acquire)) == 0
    }

    // C src/core/wait.c sleep_left: left.load seq_cst
    fn sleep(&self) {
        let mut guard = self.lock.lock().unwrap();

        while !self.is_done() {
            guard = self.cond.wait(guard).unwrap();
        }
    }

    // C src/core/wait.c wait_left: left.load acquire, waiters.fetch_add seq_cst, left.load seq_cst,
    // C     left.load seq_cst, waiters.fetch_sub seq_cst
    fn wait(&self) {
        if self.is_done() {
            return;
        }
        self.waiters.fetch_add(1, AcqRel);
        seq_cst(self.wrong != WaitUnordered);
        if !self.is_done() {
            self.sleep();
        }
        self.waiters.fetch_sub(1, AcqRel);
    }
}

/// Two finish a task each; the third one waits, looks at the results and frees the batch.
fn finish_and_wait(wrong: Wrong) {
    explore(move || {
        let b = Arc::new(Batch::new(wrong));
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let b = Arc::clone(&b);

                thread::spawn(move || b.finish(i))
            })
            .collect();

        b.wait();
        b.touch();
        assert!(b.results.iter().all(|r| r.with(|r| unsafe { *r }) == 1));
        b.put();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(b.memory.with(|m| unsafe { *m }), 1, "the batch was not freed once");
    });
}

// ---- messages behind a batch

/// One message; `after` is 1 while it waits.
struct Behind {
    wrong: Wrong,
    left: AtomicUsize,
    after: AtomicUsize,
    sent: AtomicUsize,
    result: UnsafeCell<u32>,
}

impl Behind {
    // C src/core/complete.c push_after: after.load seq_cst, after.compare_exchange_weak seq_cst seq_cst
    fn push_after(&self) {
        let next = self.after.load(Acquire);

        assert!(self.after.compare_exchange_weak(next, 1, AcqRel, Acquire).is_ok());
        seq_cst(self.wrong != PushUnordered);
    }

    // C src/core/complete.c end_after: after.load seq_cst, left.load seq_cst, after.exchange seq_cst,
    // C     left.load seq_cst, first_bad.load seq_cst
    fn end_after(&self) {
        while self.after.load(Acquire) != 0 && self.left.load(Acquire) == 0 {
            if self.wrong != SendTakesLate && self.after.swap(0, AcqRel) == 0 {
                return;
            }
            if self.left.load(Acquire) == 0 {
                self.result.with(|r| assert_eq!(unsafe { *r }, 1));
                self.sent.fetch_add(1, Relaxed);
                if self.wrong == SendTakesLate {
                    self.after.store(0, Release);
                }
            } else {
                self.push_after();
            }
        }
    }
}

fn finish_and_send(wrong: Wrong) {
    explore(move || {
        let b = Arc::new(Behind {
            wrong,
            left: AtomicUsize::new(1),
            after: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            result: UnsafeCell::new(0),
        });
        let other = Arc::clone(&b);
        let t = thread::spawn(move || {
            other.result.with_mut(|r| unsafe { *r = 1 });
            other.left.fetch_sub(1, AcqRel);
            seq_cst(wrong != SendUnordered);
            other.end_after();
        });

        b.push_after();
        b.end_after();
        t.join().unwrap();
        assert_eq!(b.sent.load(Relaxed), 1, "the message was not sent once");
    });
}

#[test]
fn the_last_piece_sees_all() {
    fold_two(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_last_piece_sees_all_without_acquire() {
    fold_two(FoldReleases);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_last_piece_sees_all_with_a_relaxed_look() {
    fold_two(FoldLooksRelaxed);
}

#[test]
fn a_terminal_task_has_its_error() {
    end_and_ask(Nothing);
}

#[test]
#[should_panic]
fn a_terminal_task_has_its_error_without_release() {
    end_and_ask(StateRelaxed);
}

#[test]
#[should_panic]
fn a_terminal_task_has_its_error_without_acquire() {
    end_and_ask(StatusRelaxed);
}

#[test]
#[should_panic(expected = "terminal without its error")]
fn a_terminal_task_has_its_error_too_late() {
    end_and_ask(StateFirst);
}

#[test]
fn who_waits_is_woken() {
    finish_and_wait(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn who_waits_is_woken_without_release_of_left() {
    finish_and_wait(FinishRelaxed);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_waits_is_woken_without_order_of_the_finisher() {
    finish_and_wait(FinishUnordered);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_waits_is_woken_without_order_of_the_waiter() {
    finish_and_wait(WaitUnordered);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_waits_is_woken_without_the_lock() {
    finish_and_wait(WakeWithoutLock);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn who_waits_is_woken_without_acquire_of_left() {
    finish_and_wait(WaitRelaxed);
}

#[test]
fn a_message_is_sent_once() {
    finish_and_send(Nothing);
}

#[test]
#[should_panic(expected = "the message was not sent once")]
fn a_message_is_sent_once_without_order_of_the_pusher() {
    finish_and_send(PushUnordered);
}

#[test]
#[should_panic(expected = "the message was not sent once")]
fn a_message_is_sent_once_without_order_of_the_finisher() {
    finish_and_send(SendUnordered);
}

#[test]
#[should_panic(expected = "the message was not sent once")]
fn a_message_is_sent_once_taken_late() {
    finish_and_send(SendTakesLate);
}
