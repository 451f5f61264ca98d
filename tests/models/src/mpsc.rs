// SPDX-License-Identifier: Apache-2.0
//! The queue of several pushers and one taker, src/base/queue.h.
//!
//! Promised: what is pushed is taken once, oldest first, with all that its pusher wrote; of the pushes that one take
//! empties, exactly one answers that the queue was empty, so the taker is woken once. A link may be pushed again as
//! soon as it was taken: that its address is the same as before harms nobody, since take() leaves nothing behind.
//!
//! Links are numbers here, 1 and 2; 0 is NULL.
use crate::kit::{explore, kept};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    PushRelaxed,
    PushLinksLate,
    TakeRelaxed,
    TakeInTwoSteps,
}
use Wrong::*;

struct Link {
    next: UnsafeCell<usize>,
    object: UnsafeCell<usize>,
}

struct Queue {
    wrong: Wrong,
    top: AtomicUsize,
    links: [Link; 3],
}

impl Queue {
    fn new(wrong: Wrong) -> Self {
        let link = || Link { next: UnsafeCell::new(0), object: UnsafeCell::new(0) };

        Queue { wrong, top: AtomicUsize::new(0), links: [link(), link(), link()] }
    }

    // C src/base/queue.h tei_mpsc_push: top.load relaxed, top.compare_exchange_weak release relaxed
    fn push(&self, n: usize) -> bool {
        let order = kept(self.wrong != PushRelaxed, Release);
        let set_next = |top| self.links[n].next.with_mut(|x| unsafe { *x = top });
        let mut top = self.top.load(Relaxed);

        loop {
            if self.wrong != PushLinksLate {
                set_next(top);
            }
            match self.top.compare_exchange_weak(top, n, order, Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if self.wrong == PushLinksLate {
            set_next(top);
        }
        top == 0
    }

    // C src/base/queue.h tei_mpsc_take: top.exchange acquire
    fn take(&self) -> Vec<usize> {
        let mut out = Vec::new();
        let mut n = if self.wrong == TakeInTwoSteps {
            let top = self.top.load(Acquire);

            self.top.store(0, Relaxed);
            top
        } else {
            self.top.swap(0, kept(self.wrong != TakeRelaxed, Acquire))
        };

        while n != 0 {
            out.insert(0, n);
            n = self.links[n].next.with(|x| unsafe { *x });
        }
        out
    }

    fn make(&self, n: usize) {
        self.links[n].object.with_mut(|o| unsafe { *o = n });
    }

    fn check(&self, taken: &[usize]) {
        for &n in taken {
            assert_eq!(self.links[n].object.with(|o| unsafe { *o }), n);
        }
    }
}

/// Two push, one takes.
fn push_and_take(wrong: Wrong) {
    explore(move || {
        let q = Arc::new(Queue::new(wrong));
        let pushers: Vec<_> = (1..3)
            .map(|n| {
                let q = Arc::clone(&q);

                thread::spawn(move || {
                    q.make(n);
                    q.push(n)
                })
            })
            .collect();
        let mut taken = q.take();
        let mut takes = usize::from(!taken.is_empty());

        q.check(&taken);
        let woken = pushers.into_iter().map(|p| p.join().unwrap()).filter(|&first| first).count();
        let rest = q.take();

        takes += usize::from(!rest.is_empty());
        q.check(&rest);
        taken.extend(rest);
        taken.sort();
        assert_eq!(taken, [1, 2], "not each was taken once");
        assert_eq!(woken, takes, "the taker is not woken once for each chain");
    });
}

/// One link is pushed, taken and pushed again, while another one is pushed.
fn push_again(wrong: Wrong) {
    explore(move || {
        let q = Arc::new(Queue::new(wrong));

        q.push(1);
        let other = Arc::clone(&q);
        let pusher = thread::spawn(move || other.push(2));
        let mut taken = q.take();

        q.push(1);
        pusher.join().unwrap();
        taken.extend(q.take());
        taken.sort();
        assert_eq!(taken, [1, 1, 2], "not each was taken once");
    });
}

#[test]
fn each_is_taken_once() {
    push_and_take(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn each_is_taken_once_without_release() {
    push_and_take(PushRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn each_is_taken_once_without_acquire() {
    push_and_take(TakeRelaxed);
}

#[test]
#[should_panic]
fn each_is_taken_once_linked_late() {
    push_and_take(PushLinksLate);
}

#[test]
#[should_panic(expected = "not each was taken once")]
fn each_is_taken_once_by_load_and_store() {
    push_and_take(TakeInTwoSteps);
}

#[test]
fn a_link_is_pushed_again() {
    push_again(Nothing);
}

#[test]
#[should_panic]
fn a_link_is_pushed_again_linked_late() {
    push_again(PushLinksLate);
}
