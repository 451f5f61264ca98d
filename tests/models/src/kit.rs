// SPDX-License-Identifier: Apache-2.0
//! What the models share.
use loom::model::Builder;
use loom::sync::atomic::{fence, AtomicU32, Ordering};

const PREEMPTIONS: usize = 3;

/// Runs `model` in every interleaving with at most LOOM_MAX_PREEMPTIONS preemptions.
pub fn explore<F: Fn() + Sync + Send + 'static>(model: F) {
    let mut builder = Builder::new();

    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(model);
}

/// `order`, or relaxed in the mutation.
pub fn kept(is_kept: bool, order: Ordering) -> Ordering {
    if is_kept {
        order
    } else {
        Ordering::Relaxed
    }
}

/// Between a sequentially consistent store and such a load behind it.
pub fn seq_cst(is_kept: bool) {
    if is_kept {
        fence(Ordering::SeqCst);
    }
}

/// An eventfd. Its count stands under a lock in the kernel: hence acquire and release.
pub struct EventFd(AtomicU32);

impl EventFd {
    pub fn new() -> Self {
        EventFd(AtomicU32::new(0))
    }

    pub fn write(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub fn read(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }

    /// A read-modify-write, so that it is the latest value without ordering anything else.
    pub fn is_readable(&self) -> bool {
        self.0.fetch_add(0, Ordering::Relaxed) > 0
    }

    /// poll(2) or epoll_wait(2) without a timeout. Once all who might write have counted themselves in `ended` it
    /// would never return: that is a lost wake-up.
    pub fn wait(&self, ended: &AtomicU32, writers: u32) {
        while !self.is_readable() {
            let all = ended.fetch_add(0, Ordering::Relaxed) == writers;

            assert!(!all || self.is_readable(), "lost wake-up");
            loom::thread::yield_now();
        }
        self.0.load(Ordering::Acquire);
    }
}
