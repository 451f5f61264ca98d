// SPDX-License-Identifier: Apache-2.0
//! The page by which initiators and the owner of GPU memory agree, src/transport/gpuipc/gpuipc_page.c.
//!
//! Promised: after the owner has moved a generation on and drained, nobody is at the memory of the old one; who is
//! still being waited for holds up no later drain; a row has one owner at a time, also when the process that had it is
//! gone and several find that out at once.
//!
//! Generation, phase and `busy` are sequentially consistent in C. The model needs that order between generation and
//! `busy` only, and is as safe with a phase that is merely released: see kit::seq_cst(). The deadline of a
//! drain, after which te_unregister() answers TE_ERR_BUSY, is not here: the owner waits for as long as it takes.
use crate::kit::{explore, kept, seq_cst};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use loom::thread;
use std::sync::Arc;

const DEAD: u64 = 1;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    LeaveRelaxed,
    LookRelaxed,
    EnterUnordered,
    OwnerUnordered,
    EnterLooksFirst,
    DrainOneSide,
    ReapFreesFirst,
    ReapStores,
}
use Wrong::*;

struct Page {
    wrong: Wrong,
    phase: AtomicU32,
    generation: [AtomicU32; 2],
    who: AtomicU64,
    busy: [AtomicU32; 2],
    memory: [UnsafeCell<u32>; 2],
}

impl Page {
    fn new(wrong: Wrong, who: u64, left_busy: u32) -> Self {
        Page {
            wrong,
            phase: AtomicU32::new(0),
            generation: [AtomicU32::new(1), AtomicU32::new(1)],
            who: AtomicU64::new(who),
            busy: [AtomicU32::new(left_busy), AtomicU32::new(0)],
            memory: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    // C src/transport/gpuipc/gpuipc_page.c tei_gpuipc_enter: phase.load seq_cst, busy.fetch_add seq_cst,
    // C     generation.load seq_cst
    fn enter(&self, slot: usize) -> Option<usize> {
        let side = (self.phase.load(Acquire) & 1) as usize;
        let early = self.generation[slot].load(Acquire);

        self.busy[side].fetch_add(1, AcqRel);
        seq_cst(self.wrong != EnterUnordered);
        let now = self.generation[slot].load(Acquire);

        if (if self.wrong == EnterLooksFirst { early } else { now }) == 1 {
            return Some(side);
        }
        self.leave(side);
        None
    }

    // C src/transport/gpuipc/gpuipc_page.c tei_gpuipc_leave: busy.fetch_sub release
    fn leave(&self, side: usize) {
        self.busy[side].fetch_sub(1, kept(self.wrong != LeaveRelaxed, Release));
    }

    // C src/transport/gpuipc/gpuipc_page.c find_busy: busy.load seq_cst
    fn wait_for_side(&self, side: usize) {
        while self.busy[side].load(kept(self.wrong != LookRelaxed, Acquire)) != 0 {
            thread::yield_now();
        }
    }

    // C src/transport/gpuipc/gpuipc_page.c tei_gpuipc_page_drain: phase.store seq_cst
    fn drain(&self, phase: &mut u32) {
        for _ in 0..if self.wrong == DrainOneSide { 1 } else { 2 } {
            let side = (*phase & 1) as usize;

            *phase += 1;
            self.phase.store(*phase, Release);
            self.wait_for_side(side);
        }
    }

    /// The generation moves on, then all who are inside are waited for; then the memory is the owner's.
    // C src/transport/gpuipc/gpuipc_export.c move_on: generation.store seq_cst
    fn cut_off(&self, slot: usize, phase: &mut u32) {
        self.generation[slot].store(2, Release);
        seq_cst(self.wrong != OwnerUnordered);
        self.drain(phase);
        self.memory[slot].with_mut(|m| unsafe { *m = 1 });
    }

    fn copy(&self, slot: usize) {
        if let Some(side) = self.enter(slot) {
            self.memory[slot].with(|m| assert_eq!(unsafe { *m }, 0, "another one's memory"));
            self.leave(side);
        }
    }

    /// True once the row of the process that is gone is free.
    // C src/transport/gpuipc/gpuipc_page.c reap: who.load seq_cst, who.compare_exchange_strong seq_cst seq_cst,
    // C     busy.store seq_cst, busy.store seq_cst, who.store seq_cst
    fn reap(&self, own: u64) -> bool {
        let who = self.who.load(Acquire);

        if who != DEAD {
            return false;
        }
        if self.wrong == ReapStores {
            self.who.store(own, Release);
        } else if self.who.compare_exchange(who, own, AcqRel, Acquire).is_err() {
            return false;
        }
        if self.wrong == ReapFreesFirst {
            self.who.store(0, Release);
        }
        self.busy[0].store(0, Release);
        self.busy[1].store(0, Release);
        if self.wrong != ReapFreesFirst {
            self.who.store(0, Release);
        }
        true
    }

    // C src/transport/gpuipc/gpuipc_page.c take_row: who.load seq_cst, who.compare_exchange_strong seq_cst seq_cst
    fn take_row(&self, own: u64) -> bool {
        if self.who.load(Acquire) != 0 && !self.reap(own) {
            return false;
        }
        self.who.compare_exchange(0, own, AcqRel, Acquire).is_ok()
    }
}

/// One copies while the owner takes the memory back.
fn copy_and_cut_off(wrong: Wrong) {
    explore(move || {
        let p = Arc::new(Page::new(wrong, 2, 0));
        let other = Arc::clone(&p);
        let t = thread::spawn(move || other.copy(0));

        p.cut_off(0, &mut 0);
        t.join().unwrap();
    });
}

/// The owner takes back one memory and then another, which the initiator is at: the phase that this has read may be
/// older than the first drain.
fn copy_and_cut_off_twice(wrong: Wrong) {
    explore(move || {
        let p = Arc::new(Page::new(wrong, 2, 0));
        let other = Arc::clone(&p);
        let t = thread::spawn(move || other.copy(1));
        let mut phase = 0;

        p.cut_off(0, &mut phase);
        p.cut_off(1, &mut phase);
        t.join().unwrap();
    });
}

/// Two processes find a row whose process is gone. Who has got it enters.
fn reap_and_take(wrong: Wrong) {
    explore(move || {
        let p = Arc::new(Page::new(wrong, DEAD, 1));
        let other = Arc::clone(&p);
        let take_and_enter = |p: &Page, own| p.take_row(own) && p.enter(0).is_some();
        let t = thread::spawn(move || take_and_enter(&other, 3));
        let mine = take_and_enter(&p, 2);
        let its = t.join().unwrap();

        assert!(!(mine && its), "a row of two");
        if mine || its {
            assert_eq!(p.busy[0].load(Acquire), 1, "the row was cleared under its owner");
            assert_eq!(p.who.load(Acquire), if mine { 2 } else { 3 });
        }
    });
}

#[test]
fn what_is_cut_off_is_left() {
    copy_and_cut_off(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_cut_off_is_left_without_release() {
    copy_and_cut_off(LeaveRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_cut_off_is_left_without_acquire() {
    copy_and_cut_off(LookRelaxed);
}

#[test]
#[should_panic]
fn what_is_cut_off_is_left_without_order_of_entering() {
    copy_and_cut_off(EnterUnordered);
}

#[test]
#[should_panic]
fn what_is_cut_off_is_left_without_order_of_the_owner() {
    copy_and_cut_off(OwnerUnordered);
}

#[test]
#[should_panic]
fn what_is_cut_off_is_left_by_who_looked_first() {
    copy_and_cut_off(EnterLooksFirst);
}

#[test]
fn an_old_phase_is_waited_for() {
    copy_and_cut_off_twice(Nothing);
}

#[test]
#[should_panic]
fn an_old_phase_is_waited_for_on_one_side() {
    copy_and_cut_off_twice(DrainOneSide);
}

#[test]
fn a_row_has_one_owner() {
    reap_and_take(Nothing);
}

#[test]
#[should_panic(expected = "the row was cleared under its owner")]
fn a_row_has_one_owner_freed_first() {
    reap_and_take(ReapFreesFirst);
}

#[test]
#[should_panic]
fn a_row_has_one_owner_by_load_and_store() {
    reap_and_take(ReapStores);
}
