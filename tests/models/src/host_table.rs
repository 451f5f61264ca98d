// SPDX-License-Identifier: Apache-2.0
//! The owner's table of regions that peers of this host read, src/transport/host/host_table.c and host_peer.c, and the
//! fence around a region that goes, host_run.c.
//!
//! Promised:
//! - what a peer reads of a slot is of one use of it, and whole;
//! - who has caught up has looked at each slot after every change that the end of the log told him of, also when the
//!   ring was written over meanwhile;
//! - no peer writes into a region that is unregistered, and who waits for one that does is woken;
//! - what a peer has read of memory that its owner uses again is not told to anybody.
//!
//! The table is of one slot, or of three and a log of two entries. Memory of a region that a peer writes is a cell; that
//! which it reads while the owner changes it is a relaxed atomic, as bytes of another process are in the end. A futex
//! is loom's lock and condition. The naps of 20 ms after which the C code looks again are left out, since they would
//! hide a lost wake-up; so are sessions that close, and the second after which te_unregister() answers TE_ERR_BUSY.
use crate::kit::{explore, kept, seq_cst};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    FillUnfenced,
    FillAfterEpoch,
    EpochRelaxed,
    WordsRelaxed,
    LogUnfenced,
    LogEndRelaxed,
    LogNarrow,
    HazardUnordered,
    OwnerUnordered,
    HazardLate,
    ClearRelaxed,
    MarkFailsRelaxed,
    WakeUnasked,
    ReadUnfenced,
}
use Wrong::*;

// ---- a slot

/// `addr` and `length` stand for all words of the slot.
struct Slot {
    wrong: Wrong,
    epoch: AtomicU32,
    addr: AtomicU64,
    length: AtomicU64,
}

impl Slot {
    fn new(wrong: Wrong) -> Self {
        Slot { wrong, epoch: AtomicU32::new(0), addr: AtomicU64::new(0), length: AtomicU64::new(0) }
    }

    // C src/transport/host/host_table.c move_epoch: epoch.fetch_add seq_cst
    fn move_epoch(&self) {
        self.epoch.fetch_add(1, kept(self.wrong != EpochRelaxed, AcqRel));
    }

    // C src/transport/host/host_table.c fill_slot: fence release, addr.store relaxed, length.store relaxed,
    // C     access.store relaxed, memory.store relaxed, offset.store relaxed
    fn fill(&self, value: u64) {
        if self.wrong == FillAfterEpoch {
            self.move_epoch();
        }
        if self.wrong != FillUnfenced {
            fence(Release);
        }
        self.addr.store(value, Relaxed);
        self.length.store(value, Relaxed);
        if self.wrong != FillAfterEpoch {
            self.move_epoch();
        }
    }

    // C src/transport/host/host_peer.c read_slot: epoch.load acquire, addr.load acquire, length.load acquire,
    // C     access.load acquire, memory.load acquire, offset.load acquire, epoch.load acquire
    fn read(&self) -> Option<(u32, u64, u64)> {
        let order = kept(self.wrong != WordsRelaxed, Acquire);
        let epoch = self.epoch.load(Acquire);
        let addr = self.addr.load(order);
        let length = self.length.load(order);

        (epoch % 2 == 1 && epoch == self.epoch.load(Acquire)).then_some((epoch, addr, length))
    }
}

/// A slot is used, freed and used again while it is read.
fn read_while_reused(wrong: Wrong) {
    explore(move || {
        let s = Arc::new(Slot::new(wrong));

        s.fill(1);
        let other = Arc::clone(&s);
        let t = thread::spawn(move || other.read());

        s.move_epoch();
        s.fill(3);
        if let Some((epoch, addr, length)) = t.join().unwrap() {
            assert_eq!((addr, length), (epoch.into(), epoch.into()), "of two uses");
        }
    });
}

// ---- the log

const LOG: usize = 2;
const SLOTS: usize = 3;
/// In which order they change; the log begins with zeroes, so slot 0 comes last.
const CHANGES: [usize; SLOTS] = [1, 2, 0];

struct Table {
    wrong: Wrong,
    epoch: [AtomicU32; SLOTS],
    log: [AtomicUsize; LOG],
    log_end: AtomicUsize,
}

impl Table {
    fn new(wrong: Wrong) -> Self {
        let epoch = || AtomicU32::new(0);
        let log = || AtomicUsize::new(0);

        Table { wrong, epoch: [epoch(), epoch(), epoch()], log: [log(), log()], log_end: log() }
    }

    // C src/transport/host/host_table.c log_change: log_end.load relaxed, fence release, log.store relaxed,
    // C     log_end.store release
    fn change(&self, slot: usize) {
        self.epoch[slot].fetch_add(1, AcqRel);
        let end = self.log_end.load(Relaxed);

        if self.wrong != LogUnfenced {
            fence(Release);
        }
        self.log[end % LOG].store(slot, Relaxed);
        self.log_end.store(end + 1, kept(self.wrong != LogEndRelaxed, Release));
    }

    /// look_at(); what is looked at here is the epoch alone.
    fn look_at(&self, seen: &mut [u32; SLOTS], slot: usize) {
        seen[slot] = self.epoch[slot].load(Acquire);
    }

    /// The end that is known now, and the epochs.
    // C src/transport/host/host_peer.c catch_up: log_end.load acquire, log.load acquire, log_end.load relaxed
    // C src/transport/host/host_peer.c look_at_all: high.load acquire, epoch.load acquire
    fn catch_up(&self, from: usize) -> (usize, [u32; SLOTS]) {
        let mut seen = [0; SLOTS];
        let known = self.log_end.load(Acquire);

        if known == from {
            return (known, seen);
        }
        for i in from..if known - from <= LOG { known } else { from } {
            self.look_at(&mut seen, self.log[i % LOG].load(Acquire));
        }
        let end = self.log_end.load(Relaxed);

        if end - from >= LOG + usize::from(self.wrong == LogNarrow) {
            (0..SLOTS).for_each(|slot| self.look_at(&mut seen, slot));
        }
        (known, seen)
    }
}

/// Three slots change, one more than the ring has entries.
fn catch_up_while_changing(wrong: Wrong) {
    explore(move || {
        let t = Arc::new(Table::new(wrong));
        let other = Arc::clone(&t);
        let peer = thread::spawn(move || other.catch_up(0));

        CHANGES.iter().for_each(|&slot| t.change(slot));
        let (known, seen) = peer.join().unwrap();

        assert!(CHANGES[..known].iter().all(|&slot| seen[slot] == 1), "a change was missed");
    });
}

// ---- the fence

const BUSY: u32 = 1;
const WAITED: u32 = 2;

struct Region {
    wrong: Wrong,
    epoch: AtomicU32,
    word: AtomicU32,
    futex: Mutex<()>,
    sleepers: Condvar,
    memory: UnsafeCell<u32>,
}

impl Region {
    fn new(wrong: Wrong) -> Self {
        Region {
            wrong,
            epoch: AtomicU32::new(1),
            word: AtomicU32::new(0),
            futex: Mutex::new(()),
            sleepers: Condvar::new(),
            memory: UnsafeCell::new(0),
        }
    }

    /// FUTEX_WAIT
    fn sleep(&self, word: u32) {
        let guard = self.futex.lock().unwrap();

        if self.word.load(Relaxed) == word {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    /// FUTEX_WAKE
    fn wake(&self) {
        drop(self.futex.lock().unwrap());
        self.sleepers.notify_all();
    }

    // C src/transport/host/host_run.c is_current: epoch.load seq_cst
    fn is_current(&self) -> bool {
        self.epoch.load(Acquire) == 1
    }

    // C src/transport/host/host_run.c write_run: word.store seq_cst, word.exchange seq_cst
    fn write(&self) {
        let early = self.is_current();

        self.word.store(BUSY, Release);
        seq_cst(self.wrong != HazardUnordered);
        if if self.wrong == HazardLate { early } else { self.is_current() } {
            self.memory.with_mut(|m| unsafe { *m += 1 });
        }
        let waited = self.word.swap(0, kept(self.wrong != ClearRelaxed, AcqRel)) & WAITED != 0;

        if waited && self.wrong != WakeUnasked {
            self.wake();
        }
    }

    // C src/transport/host/host_table.c mark: word.compare_exchange_strong seq_cst seq_cst
    fn mark(&self, word: u32) -> bool {
        let failed = kept(self.wrong != MarkFailsRelaxed, Acquire);

        word & WAITED != 0
            || self.word.compare_exchange(word, word | WAITED, AcqRel, failed).is_ok()
    }

    /// leave_table(): the epoch, the fence, and then the memory is the owner's.
    // C src/transport/host/host_table.c next_holder: word.load seq_cst
    // C src/transport/host/host_table.c is_there: word.load seq_cst
    fn unregister(&self) {
        self.epoch.fetch_add(1, AcqRel);
        seq_cst(self.wrong != OwnerUnordered);
        let word = self.word.load(Acquire);

        if word & BUSY != 0 && self.mark(word) {
            while self.word.load(Acquire) == word | WAITED {
                self.sleep(word | WAITED);
            }
        }
        self.memory.with_mut(|m| unsafe { *m = 0 });
    }
}

fn write_and_unregister(wrong: Wrong) {
    explore(move || {
        let r = Arc::new(Region::new(wrong));
        let other = Arc::clone(&r);
        let t = thread::spawn(move || other.write());

        r.unregister();
        t.join().unwrap();
    });
}

/// What a peer reads without a hazard: it looks at the epoch afterwards. The owner's log_change() has a release fence
/// between the epoch and whatever the program does with its memory, and that is what the reader's fence meets.
// C src/transport/host/host_run.c tei_host_copy: fence acquire
fn read_and_unregister(wrong: Wrong) {
    explore(move || {
        let shared = Arc::new((Table::new(wrong), AtomicU32::new(0)));
        let other = Arc::clone(&shared);
        let t = thread::spawn(move || {
            let got = other.1.load(Relaxed);

            if wrong != ReadUnfenced {
                fence(Acquire);
            }
            (other.0.epoch[0].load(Acquire) == 0).then_some(got)
        });

        shared.0.change(0);
        shared.1.store(1, Relaxed);
        assert_ne!(t.join().unwrap(), Some(1), "memory of another use was read");
    });
}

#[test]
fn a_slot_is_read_whole() {
    read_while_reused(Nothing);
}

#[test]
#[should_panic(expected = "of two uses")]
fn a_slot_is_read_whole_without_fence() {
    read_while_reused(FillUnfenced);
}

#[test]
#[should_panic(expected = "of two uses")]
fn a_slot_is_read_whole_filled_late() {
    read_while_reused(FillAfterEpoch);
}

#[test]
#[should_panic(expected = "of two uses")]
fn a_slot_is_read_whole_with_a_relaxed_epoch() {
    read_while_reused(EpochRelaxed);
}

#[test]
#[should_panic(expected = "of two uses")]
fn a_slot_is_read_whole_with_relaxed_words() {
    read_while_reused(WordsRelaxed);
}

#[test]
fn no_change_is_missed() {
    catch_up_while_changing(Nothing);
}

#[test]
#[should_panic(expected = "a change was missed")]
fn no_change_is_missed_without_fence() {
    catch_up_while_changing(LogUnfenced);
}

#[test]
#[should_panic(expected = "a change was missed")]
fn no_change_is_missed_with_a_relaxed_end() {
    catch_up_while_changing(LogEndRelaxed);
}

#[test]
#[should_panic(expected = "a change was missed")]
fn no_change_is_missed_but_the_one_in_the_making() {
    catch_up_while_changing(LogNarrow);
}

#[test]
fn nobody_writes_after_unregistering() {
    write_and_unregister(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn nobody_writes_after_unregistering_without_order_of_the_peer() {
    write_and_unregister(HazardUnordered);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn nobody_writes_after_unregistering_without_order_of_the_owner() {
    write_and_unregister(OwnerUnordered);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn nobody_writes_after_unregistering_looked_first() {
    write_and_unregister(HazardLate);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn nobody_writes_after_unregistering_with_a_relaxed_end() {
    write_and_unregister(ClearRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn nobody_writes_after_unregistering_with_a_relaxed_failure() {
    write_and_unregister(MarkFailsRelaxed);
}

#[test]
#[should_panic(expected = "deadlock")]
fn nobody_writes_after_unregistering_and_wakes_nobody() {
    write_and_unregister(WakeUnasked);
}

#[test]
fn what_was_read_late_is_not_told() {
    read_and_unregister(Nothing);
}

#[test]
#[should_panic(expected = "memory of another use was read")]
fn what_was_read_late_is_not_told_without_fence_of_the_reader() {
    read_and_unregister(ReadUnfenced);
}

#[test]
#[should_panic(expected = "memory of another use was read")]
fn what_was_read_late_is_not_told_without_fence_of_the_owner() {
    read_and_unregister(LogUnfenced);
}
