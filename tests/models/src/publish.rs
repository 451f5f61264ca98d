// SPDX-License-Identifier: Apache-2.0
//! What is made once, or put into a list that only grows, and then found by a pointer or a state.
//!
//! Promised: who finds it sees all of it.
//!
//! `Once` is an object with one writer at a time, under a lock; `Roots` a list whose items several push; `Wake` a flag
//! that says there is something to look at. All the C functions of one form do the same.
use crate::kit::{explore, kept};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    StoreRelaxed,
    LoadRelaxed,
    StoredFirst,
    PushedInTwoSteps,
}
use Wrong::*;

// ---- an object

struct Once {
    wrong: Wrong,
    pointer: AtomicUsize,
    object: UnsafeCell<u32>,
}

impl Once {
    // C src/base/log.c te_log_set_sink: current.store release
    // C src/plat/gpu.c set_state: state.store release
    // C src/plat/gpu.c tei_gpu_context: contexts.load acquire, contexts.load relaxed, contexts.store release
    // C src/plat/cuda_scatter.c kernel_of: scatter.load acquire, scatter.load relaxed, scatter.store release
    // C src/core/stage.c begin: stage.store release
    // C src/core/beside.c tei_beside_set: beside.load relaxed, claimed.load relaxed, beside.store release
    // C src/core/lease.c make_secret: secret.load relaxed, secret.store release
    // C src/transport/gpuipc/gpuipc_peer.c map: state.store relaxed, state.store release
    // C src/rail/rail.c tei_path_nic_down: active.exchange relaxed, epoch.fetch_add release
    // C src/archive/curl.c libcurl: opened.load acquire, opened.store release
    // C src/transport/nvmeof/nvmeof.c pin_wanted: chunk.store release
    // C src/transport/nvmeof/nvmeof_cufile.c open_gpu: gpu.load relaxed, gpu.store release
    fn make(&self) {
        let order = kept(self.wrong != StoreRelaxed, Release);

        if self.wrong == StoredFirst {
            self.pointer.store(1, order);
        }
        self.object.with_mut(|o| unsafe { *o = 1 });
        self.pointer.store(1, order);
    }

    // C src/base/log.c hand_over: current.load acquire, format.load relaxed
    // C src/plat/gpu.c state_of: state.load acquire
    // C src/core/stage.c stage_in: stage.load acquire
    // C src/core/beside.h tei_beside_of: beside.load acquire
    // C src/core/lease.c secret_of: secret.load acquire
    // C src/transport/gpuipc/gpuipc.c is_refused: state.load acquire
    // C src/rail/rail.c catch_up: epoch.load acquire
    // C src/transport/nvmeof/nvmeof_cufile.c tei_nvmeof_gpu_pool: gpu.load acquire
    // C src/transport/nvmeof/nvmeof_ring.c memory_slot: chunk.load acquire
    fn find(&self) -> bool {
        let found = self.pointer.load(kept(self.wrong != LoadRelaxed, Acquire)) != 0;

        found && self.object.with(|o| unsafe { *o }) == 1
    }
}

fn make_and_find(wrong: Wrong) {
    explore(move || {
        let once =
            Arc::new(Once { wrong, pointer: AtomicUsize::new(0), object: UnsafeCell::new(0) });
        let other = Arc::clone(&once);
        let t = thread::spawn(move || other.make());

        once.find();
        t.join().unwrap();
        assert!(once.find());
    });
}

// ---- a list

/// Items are numbers from 1 on; 0 is NULL.
struct Roots {
    wrong: Wrong,
    first: AtomicUsize,
    next: [UnsafeCell<usize>; 3],
}

impl Roots {
    // C src/transport/nvmeof/nvmeof_path.c tei_nvmeof_roots_add: first.load relaxed,
    // C     first.compare_exchange_weak release relaxed
    fn add(&self, root: usize) {
        let order = kept(self.wrong != StoreRelaxed, Release);
        let mut first = self.first.load(Relaxed);

        loop {
            self.next[root].with_mut(|n| unsafe { *n = first });
            if self.wrong == PushedInTwoSteps {
                self.first.store(root, Release);
                return;
            }
            match self.first.compare_exchange_weak(first, root, order, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    // C src/transport/nvmeof/nvmeof_path.c is_listed: first.load acquire
    fn count(&self) -> usize {
        let mut root = self.first.load(kept(self.wrong != LoadRelaxed, Acquire));
        let mut n = 0;

        while root != 0 {
            root = self.next[root].with(|n| unsafe { *n });
            n += 1;
        }
        n
    }
}

/// Two push, the third one walks. The second push is over a first one that its thread need not have seen the inside of.
fn add_and_walk(wrong: Wrong) {
    explore(move || {
        let next = || UnsafeCell::new(0);
        let roots =
            Arc::new(Roots { wrong, first: AtomicUsize::new(0), next: [next(), next(), next()] });
        let threads: Vec<_> = (1..4)
            .map(|root| {
                let roots = Arc::clone(&roots);

                thread::spawn(move || match root {
                    1 | 2 => roots.add(root),
                    _ => assert!(roots.count() < 3),
                })
            })
            .collect();

        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(roots.count(), 2, "an item was lost");
    });
}

// ---- a flag

struct Wake {
    wrong: Wrong,
    woken: AtomicBool,
    news: UnsafeCell<u32>,
}

impl Wake {
    // C src/meta/etcd_watch.c tei_etcd_wake: woken.store release
    fn wake(&self) {
        self.news.with_mut(|n| unsafe { *n = 1 });
        self.woken.store(true, kept(self.wrong != StoreRelaxed, Release));
    }

    // C src/meta/etcd_watch.c is_woken: woken.load acquire
    // C src/meta/etcd_watch.c tei_etcd_watch: woken.exchange acq_rel
    fn watch(&self) -> bool {
        if !self.woken.load(kept(self.wrong != LoadRelaxed, Acquire)) {
            return false;
        }
        self.woken.swap(false, kept(self.wrong != LoadRelaxed, AcqRel));
        self.news.with(|n| unsafe { *n }) == 1
    }
}

fn wake_and_watch(wrong: Wrong) {
    explore(move || {
        let w = Arc::new(Wake { wrong, woken: AtomicBool::new(false), news: UnsafeCell::new(0) });
        let other = Arc::clone(&w);
        let t = thread::spawn(move || other.wake());
        let seen = w.watch();

        t.join().unwrap();
        assert!(seen || w.watch(), "a wake was lost");
    });
}

#[test]
fn what_is_found_is_whole() {
    make_and_find(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_found_is_whole_without_release() {
    make_and_find(StoreRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_found_is_whole_without_acquire() {
    make_and_find(LoadRelaxed);
}

#[test]
#[should_panic]
fn what_is_found_is_whole_stored_first() {
    make_and_find(StoredFirst);
}

#[test]
fn a_list_grows() {
    add_and_walk(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_list_grows_without_release() {
    add_and_walk(StoreRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_list_grows_without_acquire() {
    add_and_walk(LoadRelaxed);
}

#[test]
#[should_panic(expected = "an item was lost")]
fn a_list_grows_by_load_and_store() {
    add_and_walk(PushedInTwoSteps);
}

#[test]
fn a_wake_is_seen() {
    wake_and_watch(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_wake_is_seen_without_release() {
    wake_and_watch(StoreRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_wake_is_seen_without_acquire() {
    wake_and_watch(LoadRelaxed);
}
