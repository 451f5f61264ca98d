// SPDX-License-Identifier: Apache-2.0
//! A task that waits for the descriptor of its peer, and its cancelling, src/core/park.c and src/core/wait.c.
//!
//! Promised: a task that is parked while its batch is cancelled ends once, by the one or by the other.
//!
//! `parked` and `cancel_mark` are sequentially consistent in C: see kit::seq_cst(). The list is under the peer's lock
//! in C as here.
use crate::kit::{explore, seq_cst};
use loom::sync::atomic::{AtomicUsize, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    ParkUnordered,
    CancelUnordered,
    CountedLate,
    MarkedLate,
}
use Wrong::*;

struct Engine {
    wrong: Wrong,
    parked: AtomicUsize,
    cancel_mark: AtomicUsize,
    list: Mutex<bool>,
    ended: AtomicUsize,
}

impl Engine {
    // C src/core/complete.c tei_task_canceled: cancel_mark.load seq_cst, closing.load relaxed
    fn is_canceled(&self) -> bool {
        self.cancel_mark.load(Acquire) > 0
    }

    fn end(&self) {
        self.parked.fetch_sub(1, Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    // C src/core/park.c tei_peer_park: parked.fetch_add seq_cst
    fn park(&self) {
        if self.wrong != CountedLate {
            self.parked.fetch_add(1, AcqRel);
            seq_cst(self.wrong != ParkUnordered);
        }
        let mut list = self.list.lock().unwrap();
        let canceled = self.is_canceled();

        *list = !canceled;
        drop(list);
        if self.wrong == CountedLate {
            self.parked.fetch_add(1, AcqRel);
        }
        if canceled {
            self.end();
        }
    }

    // C src/core/park.c tei_peer_unpark: parked.load seq_cst
    fn sweep(&self) {
        if self.parked.load(Acquire) == 0 {
            return;
        }
        let mut list = self.list.lock().unwrap();
        let found = *list && self.is_canceled();

        *list &= !found;
        drop(list);
        if found {
            self.end();
        }
    }

    // C src/core/wait.c te_cancel: cancel_mark.store seq_cst, claimed.load relaxed
    fn cancel(&self) {
        if self.wrong == MarkedLate {
            self.sweep();
        }
        self.cancel_mark.store(1, Release);
        seq_cst(self.wrong != CancelUnordered);
        if self.wrong != MarkedLate {
            self.sweep();
        }
    }
}

fn park_and_cancel(wrong: Wrong) {
    explore(move || {
        let e = Arc::new(Engine {
            wrong,
            parked: AtomicUsize::new(0),
            cancel_mark: AtomicUsize::new(0),
            list: Mutex::new(false),
            ended: AtomicUsize::new(0),
        });
        let other = Arc::clone(&e);
        let t = thread::spawn(move || other.park());

        e.cancel();
        t.join().unwrap();
        assert_eq!(e.ended.load(Relaxed), 1, "the task did not end once");
    });
}

#[test]
fn a_cancelled_task_ends_once() {
    park_and_cancel(Nothing);
}

#[test]
#[should_panic(expected = "the task did not end once")]
fn a_cancelled_task_ends_once_without_order_of_parking() {
    park_and_cancel(ParkUnordered);
}

#[test]
#[should_panic(expected = "the task did not end once")]
fn a_cancelled_task_ends_once_without_order_of_cancelling() {
    park_and_cancel(CancelUnordered);
}

#[test]
#[should_panic(expected = "the task did not end once")]
fn a_cancelled_task_ends_once_counted_late() {
    park_and_cancel(CountedLate);
}

#[test]
#[should_panic(expected = "the task did not end once")]
fn a_cancelled_task_ends_once_marked_late() {
    park_and_cancel(MarkedLate);
}
