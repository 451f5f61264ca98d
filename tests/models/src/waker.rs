// SPDX-License-Identifier: Apache-2.0
//! The descriptor that wakes one thread, src/base/waker.c.
//!
//! Promised: no ring is lost: who polls the descriptor, drains it and then looks sees what each ringer did before it
//! rang, or is woken again. And once drained with nobody ringing it is quiet.
use crate::kit::{explore, kept, EventFd};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use loom::thread;
use std::sync::Arc;

const RINGERS: u32 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    RingRelaxed,
    DrainRelaxed,
    DrainReadsLast,
    DrainAtAnyTime,
}
use Wrong::*;

struct Waker {
    wrong: Wrong,
    fd: EventFd,
    rung: AtomicBool,
    done: [AtomicU32; RINGERS as usize],
    ended: AtomicU32,
}

impl Waker {
    fn new(wrong: Wrong) -> Self {
        Waker {
            wrong,
            fd: EventFd::new(),
            rung: AtomicBool::new(false),
            done: [AtomicU32::new(0), AtomicU32::new(0)],
            ended: AtomicU32::new(0),
        }
    }

    // C src/base/waker.c tei_waker_ring: rung.exchange acq_rel
    fn ring(&self) {
        if !self.rung.swap(true, kept(self.wrong != RingRelaxed, AcqRel)) {
            self.fd.write();
        }
    }

    // C src/base/waker.c tei_waker_drain: rung.load relaxed, rung.exchange acq_rel
    fn drain(&self) {
        if !self.rung.load(Relaxed) {
            return;
        }
        if self.wrong != DrainReadsLast {
            self.fd.read();
        }
        self.rung.swap(false, kept(self.wrong != DrainRelaxed, AcqRel));
        if self.wrong == DrainReadsLast {
            self.fd.read();
        }
    }

    fn do_and_ring(&self, i: usize) {
        self.done[i].store(1, Relaxed);
        self.ring();
        self.ended.fetch_add(1, Relaxed);
    }
}

fn start(w: &Arc<Waker>) -> Vec<thread::JoinHandle<()>> {
    (0..RINGERS as usize)
        .map(|i| {
            let w = Arc::clone(w);

            thread::spawn(move || w.do_and_ring(i))
        })
        .collect()
}

/// Sleeps until it has seen what both did.
fn sleep_and_look(wrong: Wrong) {
    explore(move || {
        let w = Arc::new(Waker::new(wrong));
        let ringers = start(&w);

        loop {
            w.fd.wait(&w.ended, RINGERS);
            w.drain();
            if w.done.iter().all(|d| d.load(Relaxed) == 1) {
                break;
            }
        }
        ringers.into_iter().for_each(|r| r.join().unwrap());
    });
}

/// Drains if it is readable (or, in the mutation, at any time), and once more when all are gone.
fn drain_to_the_end(wrong: Wrong) {
    explore(move || {
        let w = Arc::new(Waker::new(wrong));
        let ringers = start(&w);

        if wrong == DrainAtAnyTime || w.fd.is_readable() {
            w.drain();
        }
        ringers.into_iter().for_each(|r| r.join().unwrap());
        if w.fd.is_readable() {
            w.drain();
        }
        assert!(!w.fd.is_readable(), "it stays readable");
        w.ring();
        assert!(w.fd.is_readable(), "a ring is lost");
    });
}

#[test]
fn no_ring_is_lost() {
    sleep_and_look(Nothing);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn no_ring_is_lost_without_release_of_ring() {
    sleep_and_look(RingRelaxed);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn no_ring_is_lost_without_acquire_of_drain() {
    sleep_and_look(DrainRelaxed);
}

#[test]
fn it_gets_quiet_and_rings_again() {
    drain_to_the_end(Nothing);
}

#[test]
#[should_panic(expected = "it stays readable")]
fn it_gets_quiet_and_rings_again_when_drained_at_any_time() {
    drain_to_the_end(DrainAtAnyTime);
}

#[test]
#[should_panic(expected = "a ring is lost")]
fn it_gets_quiet_and_rings_again_when_the_descriptor_is_read_last() {
    drain_to_the_end(DrainReadsLast);
}
