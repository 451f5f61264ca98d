// SPDX-License-Identifier: Apache-2.0
//! Counters: how a target learns that bytes have arrived.

use crate::engine::Handle;
use crate::error::{check, Error, Result};
use crate::request::milliseconds;
use crate::segment::{Opened, Segment};
use crate::sys;
use crate::text::to_c;
use std::fmt;
use std::os::unix::io::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

const FOR_EVER: i64 = -1;

/// A sum that peers raise when their batches are done; the bytes are in our memory by then.
///
/// [`Engine::counter`] makes one, and peers open it by its name with [`Segment::adder`]. Each addition counts
/// once, however often it must be sent. Dropping the counter frees its name, and adders that were opened before
/// raise nothing more.
///
/// Batches end in any order, so a sum of ones tells how many have ended, not which. Who has to know that gives
/// each a bit of its own:
///
/// [`Engine::counter`]: crate::Engine::counter
/// [`Segment::adder`]: crate::Segment::adder
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Request};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let source = ours.register(vec![7; 200], Access::LocalOnly)?;
/// let target = theirs.register(vec![0; 200], Access::Write)?;
/// let arrived = theirs.counter("layers")?;
///
/// let segment = ours.open(&theirs.name()?)?;
/// let adder = segment.adder("layers")?;
/// let mut batches = Vec::new();
/// for layer in 0..2 {
///     let (batch, at) = (ours.batch(1)?, layer * 100);
///     let remote = target.addr() + at as u64;
///     batch.submit(&[Request::write(&source, at..at + 100, &segment, remote)])?;
///     batch.add_after(&adder, 1 << layer)?;
///     batches.push(batch);
/// }
///
/// arrived.wait(0b11)?;
/// assert_eq!(target.to_vec(0..200)?, [7; 200]);
/// # Ok(())
/// # }
/// ```
pub struct Counter {
    engine: Arc<Handle>,
    id: sys::te_counter,
    name: String,
}

impl Counter {
    pub(crate) fn new(engine: &Arc<Handle>, name: &str) -> Result<Counter> {
        let c = to_c(name)?;
        let mut id = 0;
        // SAFETY: the engine lives; the string is read during the call only.
        check(unsafe { sys::te_counter_create(engine.raw(), c.as_ptr(), &mut id) })?;
        Ok(Counter { engine: engine.clone(), id, name: name.into() })
    }

    /// By which peers open it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sum of what was added so far; never less than before. It stays at `u64::MAX`.
    pub fn value(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the engine lives; the id is checked by it.
        check(unsafe { sys::te_counter_value(self.engine.raw(), self.id, &mut value) })?;
        Ok(value)
    }

    /// Waits until it is at least that. Any number of threads may wait, for different values.
    pub fn wait(&self, at_least: u64) -> Result<()> {
        self.wait_ms(at_least, FOR_EVER)
    }

    /// The same, for so long at most; whether it is.
    pub fn wait_timeout(&self, at_least: u64, time: Duration) -> Result<bool> {
        match self.wait_ms(at_least, milliseconds(time)) {
            Ok(()) => Ok(true),
            Err(Error::Timeout(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn wait_ms(&self, at_least: u64, ms: i64) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { sys::te_counter_wait(self.engine.raw(), self.id, at_least, ms) })?;
        Ok(())
    }

    /// A descriptor that polls readable once the counter is at least that. There is one for each counter: with
    /// another value it is the same, and tells of that from then on. Never read, write or close it.
    pub fn fd(&self, at_least: u64) -> Result<BorrowedFd<'_>> {
        // SAFETY: as above.
        let fd = check(unsafe { sys::te_counter_fd(self.engine.raw(), self.id, at_least) })?;
        // SAFETY: the engine's own, open as long as the counter is, which `self` sees to.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: the engine lives; nobody waits, since who does borrows the counter.
        unsafe { sys::te_counter_destroy(self.engine.raw(), self.id) };
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An open counter of a peer, closed with its last owner.
pub(crate) struct OpenAdder {
    pub(crate) segment: Arc<Opened>,
    pub(crate) id: sys::te_adder,
}

impl Drop for OpenAdder {
    fn drop(&mut self) {
        // SAFETY: the engine lives; what batches have to add is over, since they share the ownership.
        unsafe { sys::te_adder_close(self.segment.engine.raw(), self.id) };
    }
}

/// A counter of a peer, to be raised with [`Batch::add_after`]; [`Segment::adder`] opens one. Clones are the same
/// adder; a counter takes 4,096 adders in its life, so open one and keep it.
///
/// When the last owner is dropped, and no batch is to raise it, what the peer has not counted is not sent any more.
///
/// [`Batch::add_after`]: crate::Batch::add_after
/// [`Segment::adder`]: crate::Segment::adder
#[derive(Clone)]
pub struct Adder {
    pub(crate) inner: Arc<OpenAdder>,
}

impl Adder {
    pub(crate) fn open(segment: &Segment, name: &str) -> Result<Adder> {
        let name = to_c(name)?;
        let segment = segment.inner.clone();
        let mut id = 0;
        let engine = segment.engine.raw();
        // SAFETY: the engine lives; the string is read during the call only.
        check(unsafe { sys::te_adder_open(engine, segment.id, name.as_ptr(), &mut id) })?;
        Ok(Adder { inner: Arc::new(OpenAdder { segment, id }) })
    }

    /// Waits until the batches of all that was to be added before have ended, and the peer has counted what they
    /// added. [`Error::Stale`]: the counter is gone, or its engine was started anew; [`Error::Rejected`]: it takes no
    /// other adder. It will never be counted then.
    pub fn flush(&self) -> Result<()> {
        self.flush_ms(FOR_EVER)
    }

    /// The same, for so long at most: else [`Error::Timeout`], or why the last try failed, which is tried again.
    pub fn flush_timeout(&self, time: Duration) -> Result<()> {
        self.flush_ms(milliseconds(time))
    }

    fn flush_ms(&self, ms: i64) -> Result<()> {
        let engine = self.inner.segment.engine.raw();
        // SAFETY: the engine lives; the id is checked by it.
        check(unsafe { sys::te_adder_flush(engine, self.inner.id, ms) })?;
        Ok(())
    }
}

impl fmt::Debug for Adder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adder").field("id", &self.inner.id).finish()
    }
}
