// SPDX-License-Identifier: Apache-2.0
//! Borrowed memory, registered for as long as a closure runs.
//!
//! A value's destructor may never run: safe code can leak it. So borrowed memory cannot be left to the
//! destructor of its region, and neither can the requests on it to that of their batch. The scope keeps
//! a list of both and sees to what is left when the closure has returned or panicked, while the borrow
//! still lasts.

use crate::batch::{self, Batch};
use crate::engine::{Engine, Handle};
use crate::error::{Error, Result};
use crate::region::{self, Memory, Region, RegionOptions};
use crate::sys;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Left {
    regions: HashSet<usize>,
    batches: HashSet<sys::te_batch>,
}

/// What a scope has to end.
pub(crate) struct Tracker(Mutex<Left>);

impl Tracker {
    /// A panic of another thread leaves the sets as they are between two calls.
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_region(&self, addr: usize) {
        self.left().regions.insert(addr);
    }

    pub(crate) fn remove_region(&self, addr: usize) {
        self.left().regions.remove(&addr);
    }

    pub(crate) fn add_batch(&self, id: sys::te_batch) {
        self.left().batches.insert(id);
    }

    pub(crate) fn remove_batch(&self, id: sys::te_batch) {
        self.left().batches.remove(&id);
    }

    /// Ends what was leaked. Returns only when nobody can touch the memory any more.
    fn end(&self, engine: &Handle) {
        let left = std::mem::take(&mut *self.left());
        for id in left.batches {
            batch::end(engine, id);
        }
        for addr in left.regions {
            let mut pause = AGAIN;
            while region::unregister(engine, addr).is_err() {
                thread::sleep(pause);
                pause = AGAIN_MAX.min(2 * pause);
            }
        }
    }
}

/// Where borrowed memory can be registered; see [`Engine::scope`].
///
/// Its end waits for requests that were leaked with their batch, which it cancels, and until no peer can
/// touch the memory: longer than a moment only where a process of this host is stopped in the middle of
/// writing to it.
///
/// Threads of [`std::thread::scope`] may share it, and its regions and batches.
pub struct Scope<'scope, 'env: 'scope> {
    engine: &'env Engine,
    tracker: Arc<Tracker>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The engine.
    pub fn engine(&self) -> &'env Engine {
        self.engine
    }

    /// Registers borrowed memory until the region is dropped or the scope ends.
    pub fn register<'o>(
        &'scope self,
        memory: &'env mut [u8],
        options: impl Into<RegionOptions<'o>>,
    ) -> Result<Region<'scope>> {
        let options = options.into();
        if !options.is_host() {
            return Err(Error::Invalid("borrowed memory is the host's".into()));
        }
        let memory = Memory::of_others(memory.as_mut_ptr(), memory.len())?;
        Region::tracked(&self.engine.handle, memory, &options, Some(&self.tracker))
    }

    /// A batch with room for so many requests in total, on regions of this scope and on those that own
    /// their memory.
    pub fn batch(&'scope self, capacity: usize) -> Result<Batch<'scope>> {
        Batch::new(&self.engine.handle, capacity, Some(&self.tracker))
    }
}

/// Ends the scope whatever way the closure is left.
struct AtEnd<'e> {
    engine: &'e Handle,
    tracker: Arc<Tracker>,
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.tracker.end(self.engine);
    }
}

pub(crate) fn run<'env, F, T>(engine: &'env Engine, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let tracker = Arc::new(Tracker(Mutex::default()));
    let _at_end = AtEnd { engine: &engine.handle, tracker: tracker.clone() };
    let scope = Scope { engine, tracker, scope: PhantomData, env: PhantomData };
    f(&scope)
}
