// SPDX-License-Identifier: Apache-2.0
//! References and users that are counted.
//!
//! Promised: the last reference that goes frees the object, once, after whatever the others did with it; a region, or a
//! transport, is taken away only when all its users have let go of it.
//!
//! Three forms: a count whose last one frees (`Counted`); that of an RDMA peer, which others may take from a list as
//! long as it is in there, so that the last one goes under the list's lock (`Listed`); and users that are counted in
//! under a lock, under which the owner also looks whether there are any (`Used`).
use crate::kit::{explore, kept};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    PutReleases,
    PutAcquires,
    PutInTwoSteps,
    PutWithoutLock,
    LeaveRelaxed,
    LookRelaxed,
}
use Wrong::*;

/// The object: each user reads, who frees writes.
struct Object(UnsafeCell<u32>);

impl Object {
    fn new() -> Self {
        Object(UnsafeCell::new(0))
    }

    fn touch(&self) {
        assert_eq!(self.0.with(|o| unsafe { *o }), 0, "it was freed");
    }

    fn free(&self) {
        self.touch();
        self.0.with_mut(|o| unsafe { *o += 1 });
    }
}

// ---- the last one frees

struct Counted {
    wrong: Wrong,
    refs: AtomicUsize,
    object: Object,
}

impl Counted {
    // C src/model/segment_encode.c tei_segment_text_get: refs.fetch_add relaxed
    // C src/model/segment.c tei_segment_get: refs.fetch_add relaxed
    // C src/meta/rpc_server.c give: refs.fetch_add relaxed
    // C src/core/prep.c take_finding: refs.fetch_add relaxed
    // C src/plat/mem_host.c tei_share_get: refs.fetch_add relaxed
    // C src/transport/gpuipc/gpuipc_export.c tei_gpuipc_table_find: refs.fetch_add relaxed
    fn get(&self) {
        self.refs.fetch_add(1, Relaxed);
    }

    // C src/model/segment_encode.c tei_segment_text_put: refs.fetch_sub acq_rel
    // C src/model/segment.c tei_segment_put: refs.fetch_sub acq_rel
    // C src/meta/rpc_server.c gate_put: refs.fetch_sub acq_rel
    // C src/core/prep.c put_finding: refs.fetch_sub acq_rel
    // C src/core/view.c tei_view_put: refs.fetch_sub acq_rel
    // C src/core/view.c put_loose: refs.fetch_sub acq_rel
    // C src/core/group.h tei_group_done: failed.store relaxed, left.fetch_sub acq_rel, failed.load relaxed
    // C src/plat/mem_host.c tei_share_put: refs.fetch_sub acq_rel
    // C src/transport/gpuipc/gpuipc_export.c tei_gpuipc_table_put: refs.fetch_sub acq_rel
    // C src/core/batch.c tei_batch_put: refs.fetch_sub acq_rel, notes.load relaxed
    // C src/core/peer.c tei_peer_put: refs.fetch_sub acq_rel
    // C src/transport/rdma/rdma_endpoint.c tei_rdma_ep_put: refs.fetch_sub acq_rel
    fn put(&self) {
        let order = match self.wrong {
            PutReleases => Release,
            PutAcquires => Acquire,
            _ => AcqRel,
        };
        let before = if self.wrong == PutInTwoSteps {
            let refs = self.refs.load(Acquire);

            self.refs.store(refs - 1, Release);
            refs
        } else {
            self.refs.fetch_sub(1, order)
        };

        if before == 1 {
            self.object.free();
        }
    }
}

/// Three references, one of them taken by a thread that has one.
fn put_by_each(wrong: Wrong) {
    explore(move || {
        let c = Arc::new(Counted { wrong, refs: AtomicUsize::new(2), object: Object::new() });
        let other = Arc::clone(&c);
        let t = thread::spawn(move || {
            other.get();
            other.object.touch();
            other.put();
            other.put();
        });

        c.object.touch();
        c.put();
        t.join().unwrap();
        assert_eq!(c.object.0.with(|o| unsafe { *o }), 1, "it was not freed once");
    });
}

// ---- the last one goes under the lock of the list

struct Listed {
    wrong: Wrong,
    refs: AtomicUsize,
    is_listed: Mutex<bool>,
    object: Object,
}

impl Listed {
    /// From the list; false if it is not in there.
    // C src/transport/rdma/rdma.h tei_rdma_peer_hold: refs.fetch_add relaxed
    fn find(&self) -> bool {
        let listed = self.is_listed.lock().unwrap();

        if *listed {
            self.object.touch();
            self.refs.fetch_add(1, Relaxed);
        }
        *listed
    }

    // C src/transport/rdma/rdma_peer.c tei_rdma_peer_put: refs.load relaxed,
    // C     refs.compare_exchange_weak release relaxed, refs.fetch_sub acq_rel
    fn put(&self) {
        let release = kept(self.wrong != LeaveRelaxed, Release);
        let mut refs = self.refs.load(Relaxed);

        while refs > 1 {
            match self.refs.compare_exchange_weak(refs, refs - 1, release, Relaxed) {
                Ok(_) => return,
                Err(now) => refs = now,
            }
        }
        if self.wrong == PutWithoutLock {
            if self.refs.fetch_sub(1, AcqRel) == 1 {
                *self.is_listed.lock().unwrap() = false;
                self.object.free();
            }
            return;
        }
        let mut listed = self.is_listed.lock().unwrap();
        let last = self.refs.fetch_sub(1, kept(self.wrong != LookRelaxed, AcqRel)) == 1;

        if last {
            *listed = false;
        }
        drop(listed);
        if last {
            self.object.free();
        }
    }
}

/// One has the last reference and puts it, one finds the object in the list.
fn put_and_find(wrong: Wrong) {
    explore(move || {
        let l = Arc::new(Listed {
            wrong,
            refs: AtomicUsize::new(1),
            is_listed: Mutex::new(true),
            object: Object::new(),
        });
        let other = Arc::clone(&l);
        let t = thread::spawn(move || {
            if other.find() {
                other.object.touch();
                other.put();
            }
        });

        l.object.touch();
        l.put();
        t.join().unwrap();
    });
}

// ---- users

struct Used {
    wrong: Wrong,
    users: AtomicUsize,
    is_there: Mutex<bool>,
    object: Object,
}

impl Used {
    // C src/core/region.c tei_region_hold_local: local_users.fetch_add relaxed
    // C src/core/region.c tei_region_hold_part: local_users.fetch_add relaxed
    // C src/core/region.c tei_region_hold: remote_users.fetch_add relaxed
    // C src/core/transports.c tei_transports_get: views.fetch_add relaxed
    fn hold(&self) -> bool {
        let there = self.is_there.lock().unwrap();

        if *there {
            self.users.fetch_add(1, Relaxed);
        }
        *there
    }

    // C src/core/region.c tei_region_release_local: local_users.fetch_sub release
    // C src/core/region.c tei_region_release: remote_users.fetch_sub release
    // C src/core/transports.c tei_transports_put: views.fetch_sub release
    fn release(&self) {
        let order: Ordering = kept(self.wrong != LeaveRelaxed, Release);

        self.users.fetch_sub(1, order);
    }

    // C src/core/region.c tei_region_hide: local_users.load acquire
    fn take_out(&self) -> bool {
        let mut there = self.is_there.lock().unwrap();
        let free = self.users.load(kept(self.wrong != LookRelaxed, Acquire)) == 0;

        *there &= !free;
        free
    }
}

fn use_and_take_out(wrong: Wrong) {
    explore(move || {
        let u = Arc::new(Used {
            wrong,
            users: AtomicUsize::new(0),
            is_there: Mutex::new(true),
            object: Object::new(),
        });
        let other = Arc::clone(&u);
        let t = thread::spawn(move || {
            if other.hold() {
                other.object.touch();
                other.release();
            }
        });

        if u.take_out() {
            u.object.free();
        }
        t.join().unwrap();
    });
}

#[test]
fn the_last_one_frees() {
    put_by_each(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_last_one_frees_without_acquire() {
    put_by_each(PutReleases);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_last_one_frees_without_release() {
    put_by_each(PutAcquires);
}

#[test]
#[should_panic]
fn the_last_one_frees_by_load_and_store() {
    put_by_each(PutInTwoSteps);
}

#[test]
fn who_is_listed_is_there() {
    put_and_find(Nothing);
}

#[test]
#[should_panic]
fn who_is_listed_is_there_without_lock() {
    put_and_find(PutWithoutLock);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn who_is_listed_is_there_without_release() {
    put_and_find(LeaveRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn who_is_listed_is_there_without_acquire() {
    put_and_find(LookRelaxed);
}

#[test]
fn users_are_waited_for() {
    use_and_take_out(Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn users_are_waited_for_without_release() {
    use_and_take_out(LeaveRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn users_are_waited_for_without_acquire() {
    use_and_take_out(LookRelaxed);
}
