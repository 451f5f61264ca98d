// SPDX-License-Identifier: Apache-2.0
//! Finished batches, told by a descriptor.

use crate::engine::Handle;
use crate::error::{check, Result};
use crate::sys;
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

const AT_A_TIME: usize = 64;

/// Names a batch among those of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub(crate) sys::te_batch);

/// A descriptor that polls readable when at least one batch has finished since [`Events::take`] last
/// took it; for `poll(2)`, `epoll(7)` and the event loops above them.
///
/// An engine has one. Batches that finished before [`Engine::events`] was first called are not told of.
/// Never read, write or close the descriptor.
///
/// [`Engine::events`]: crate::Engine::events
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Request};
///
/// let engine = Engine::builder().name("127.0.0.1").build()?;
/// let region = engine.register(vec![7; 200], Access::ReadWrite)?;
/// let here = engine.local_segment();
/// let events = engine.events()?;
/// let batch = engine.batch(1)?;
/// batch.submit(&[Request::write(&region, 0..100, &here, region.addr() + 100)])?;
///
/// let mut done = Vec::new();
/// while done.is_empty() {
///     done = events.take()?; // an event loop does so when the descriptor polls readable
/// }
/// assert_eq!(done, [batch.id()]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Events {
    engine: Arc<Handle>,
    fd: RawFd,
}

impl Events {
    pub(crate) fn new(engine: &Arc<Handle>) -> Result<Events> {
        // SAFETY: the engine lives.
        let fd = check(unsafe { sys::te_event_fd(engine.raw()) })?;
        Ok(Events { engine: engine.clone(), fd })
    }

    /// Takes the batches that finished: all requests that they had are over. Each finish is told once.
    pub fn take(&self) -> Result<Vec<BatchId>> {
        let mut taken = Vec::new();
        loop {
            let mut ids = [0; AT_A_TIME];
            // SAFETY: the engine lives; there is room for so many.
            let n = unsafe { sys::te_done(self.engine.raw(), ids.as_mut_ptr(), ids.len()) };
            let n = check(n)? as usize;
            taken.extend(ids[..n].iter().copied().map(BatchId));
            if n < ids.len() {
                return Ok(taken);
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the engine's own, open as long as the engine lives, which `self` sees to.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("fd", &self.fd).finish()
    }
}
