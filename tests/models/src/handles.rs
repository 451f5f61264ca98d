// SPDX-License-Identifier: Apache-2.0
//! Ids of objects, src/base/pool.c: add, pin, unpin and del of one table.
//!
//! Promised: what is pinned is not freed; an id resolves to the object that it was given for, or to nothing; a slot is
//! no two ids' at a time; who pins an id sees the slot's memory, which add() made, and the object.
//!
//! A chunk has two slots here. That calloc() wrote the chunk's zeroes is the cell `zeroed`. Objects are cells of an
//! array: a pin reads one, who has deleted its id writes it, as free() may.
//!
//! Not here: tei_handles_each(), beside which no add or del may run; the pool itself, which is all under its lock.
use crate::kit::{explore, kept};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

const SLOTS: usize = 2;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    PinRelaxed,
    UnpinRelaxed,
    DelRelaxed,
    DelInTwoSteps,
    AddRelaxed,
    AddStateFirst,
    ChunkRelaxed,
    SameGeneration,
}
use Wrong::*;

struct Slot {
    zeroed: UnsafeCell<bool>,
    state: AtomicU64,
    object: UnsafeCell<usize>,
    next_free: UnsafeCell<usize>,
}

struct Book {
    chunk: Option<Box<[Slot; SLOTS]>>,
    used: usize,
    first_free: usize,
}

struct Handles {
    wrong: Wrong,
    lock: Mutex<Book>,
    chunk: AtomicPtr<[Slot; SLOTS]>,
    objects: [UnsafeCell<u32>; SLOTS],
}

fn make_state(generation: u64, pins: u64) -> u64 {
    generation << 32 | pins
}

fn generation_of(state: u64) -> u64 {
    state >> 32
}

fn pins_of(state: u64) -> u64 {
    state & u64::from(u32::MAX)
}

/// The id of a slot in its generation, as make_id().
fn id_of(index: usize, generation: u64) -> u64 {
    generation << 32 | index as u64
}

fn new_chunk() -> Box<[Slot; SLOTS]> {
    let slot = || Slot {
        zeroed: UnsafeCell::new(false),
        state: AtomicU64::new(0),
        object: UnsafeCell::new(0),
        next_free: UnsafeCell::new(0),
    };
    let chunk = Box::new([slot(), slot()]);

    for s in chunk.iter() {
        s.zeroed.with_mut(|z| unsafe { *z = true });
    }
    chunk
}

impl Handles {
    fn new(wrong: Wrong) -> Self {
        Handles {
            wrong,
            lock: Mutex::new(Book { chunk: None, used: 0, first_free: 0 }),
            chunk: AtomicPtr::new(std::ptr::null_mut()),
            objects: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    // C src/base/pool.c slot_at: chunks.load acquire
    fn slot_at(&self, index: usize) -> Option<&Slot> {
        let chunk = self.chunk.load(Acquire);

        unsafe { chunk.as_ref() }.map(|c| {
            assert!(c[index].zeroed.with(|z| unsafe { *z }));
            &c[index]
        })
    }

    // C src/base/pool.c new_slot: chunks.store release
    fn new_slot(&self, book: &mut Book) -> usize {
        if self.slot_at(book.used).is_none() {
            let chunk: *mut _ = &mut **book.chunk.insert(new_chunk());

            self.chunk.store(chunk, kept(self.wrong != ChunkRelaxed, Release));
        }
        book.used += 1;
        book.used - 1
    }

    fn take_slot(&self, book: &mut Book) -> usize {
        if book.first_free == 0 {
            return self.new_slot(book);
        }
        let index = book.first_free - 1;

        book.first_free = self.slot_at(index).unwrap().next_free.with(|n| unsafe { *n });
        index
    }

    // C src/base/pool.c tei_handles_add: state.load relaxed, state.store release
    fn add(&self, object: usize) -> u64 {
        let mut book = self.lock.lock().unwrap();
        let index = self.take_slot(&mut book);
        let s = self.slot_at(index).unwrap();
        let old = generation_of(s.state.load(Relaxed));
        let generation = if self.wrong == SameGeneration && old > 0 { old - 1 } else { old + 1 };
        let order = kept(self.wrong != AddRelaxed, Release);

        if self.wrong == AddStateFirst {
            s.state.store(make_state(generation, 0), order);
        }
        s.object.with_mut(|o| unsafe { *o = object });
        if self.wrong != AddStateFirst {
            s.state.store(make_state(generation, 0), order);
        }
        id_of(index, generation)
    }

    // C src/base/pool.c tei_handles_pin: state.load acquire, state.compare_exchange_weak acquire acquire
    fn pin(&self, id: u64) -> Option<usize> {
        let s = self.slot_at(id as u32 as usize)?;
        let order = kept(self.wrong != PinRelaxed, Acquire);
        let mut state = s.state.load(order);

        loop {
            if generation_of(state) != id >> 32 {
                return None;
            }
            match s.state.compare_exchange_weak(state, state + 1, order, order) {
                Ok(_) => return Some(s.object.with(|o| unsafe { *o })),
                Err(now) => state = now,
            }
        }
    }

    // C src/base/pool.c tei_handles_unpin: state.fetch_sub release
    fn unpin(&self, id: u64) {
        let s = self.slot_at(id as u32 as usize).unwrap();
        let before = s.state.fetch_sub(1, kept(self.wrong != UnpinRelaxed, Release));

        assert!(generation_of(before) == id >> 32 && pins_of(before) > 0);
    }

    // C src/base/pool.c tei_handles_del: state.load relaxed, state.compare_exchange_weak acq_rel relaxed
    fn del(&self, id: u64, own_pins: u64) -> bool {
        let index = id as u32 as usize;
        let s = self.slot_at(index).unwrap();
        let order = kept(self.wrong != DelRelaxed, AcqRel);
        let mut state = s.state.load(Relaxed);

        loop {
            let dead = make_state(generation_of(state) + 1, 0);

            if generation_of(state) != id >> 32 || pins_of(state) > own_pins {
                return false;
            }
            if self.wrong == DelInTwoSteps {
                s.state.store(dead, Release);
                break;
            }
            match s.state.compare_exchange_weak(state, dead, order, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let mut book = self.lock.lock().unwrap();

        s.next_free.with_mut(|n| unsafe { *n = book.first_free });
        book.first_free = index + 1;
        true
    }

    fn look(&self, object: usize) -> u32 {
        self.objects[object].with(|o| unsafe { *o })
    }

    fn free(&self, object: usize) {
        self.objects[object].with_mut(|o| unsafe { *o = 1 });
    }
}

/// One pins, one deletes the id and frees the object.
fn pin_and_del(wrong: Wrong) {
    explore(move || {
        let h = Arc::new(Handles::new(wrong));
        let id = h.add(0);
        let other = Arc::clone(&h);
        let t = thread::spawn(move || {
            if let Some(object) = other.pin(id) {
                assert_eq!(other.look(object), 0, "a freed object was pinned");
                other.unpin(id);
            }
        });

        if h.del(id, 0) {
            h.free(0);
        }
        t.join().unwrap();
    });
}

/// One adds; the other tries the id that this will have, as a program may try any number.
fn pin_what_is_being_added(wrong: Wrong) {
    explore(move || {
        let h = Arc::new(Handles::new(wrong));
        let other = Arc::clone(&h);
        let t = thread::spawn(move || other.pin(id_of(0, 1)));

        h.objects[1].with_mut(|o| unsafe { *o = 7 });
        h.add(1);
        if let Some(object) = t.join().unwrap() {
            assert_eq!(object, 1);
        }
    });
}

/// The slot of a deleted id goes to another object.
fn pin_and_reuse(wrong: Wrong) {
    explore(move || {
        let h = Arc::new(Handles::new(wrong));
        let id = h.add(0);
        let other = Arc::clone(&h);
        let t = thread::spawn(move || {
            if let Some(object) = other.pin(id) {
                assert_eq!(object, 0, "an old id leads to a new object");
                other.unpin(id);
            }
        });

        if h.del(id, 0) {
            assert_ne!(h.add(1), id, "an old id leads to a new object");
        }
        t.join().unwrap();
    });
}

/// Two delete the same id, and each adds another if it has.
fn del_twice(wrong: Wrong) {
    explore(move || {
        let h = Arc::new(Handles::new(wrong));
        let id = h.add(0);
        let other = Arc::clone(&h);
        let t = thread::spawn(move || other.del(id, 0).then(|| other.add(0)));
        let mine = h.del(id, 0).then(|| h.add(1));
        let its = t.join().unwrap();

        assert!(mine.is_some() != its.is_some(), "one id was deleted twice, or never");
    });
}

#[test]
fn what_is_pinned_is_not_freed() {
    pin_and_del(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_pinned_is_not_freed_without_release_of_unpin() {
    pin_and_del(UnpinRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_pinned_is_not_freed_without_acquire_of_del() {
    pin_and_del(DelRelaxed);
}

#[test]
fn a_pin_sees_slot_and_object() {
    pin_what_is_being_added(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pin_sees_slot_and_object_without_acquire_of_pin() {
    pin_what_is_being_added(PinRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pin_sees_slot_and_object_without_release_of_add() {
    pin_what_is_being_added(AddRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pin_sees_slot_and_object_that_is_written_too_late() {
    pin_what_is_being_added(AddStateFirst);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pin_sees_slot_and_object_without_release_of_the_chunk() {
    pin_what_is_being_added(ChunkRelaxed);
}

#[test]
fn an_old_id_leads_nowhere() {
    pin_and_reuse(Nothing);
}

#[test]
#[should_panic(expected = "an old id leads to a new object")]
fn an_old_id_leads_nowhere_with_the_same_generation() {
    pin_and_reuse(SameGeneration);
}

#[test]
fn an_id_is_deleted_once() {
    del_twice(Nothing);
}

#[test]
#[should_panic(expected = "one id was deleted twice")]
fn an_id_is_deleted_once_by_load_and_store() {
    del_twice(DelInTwoSteps);
}
