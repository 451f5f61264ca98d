// SPDX-License-Identifier: Apache-2.0
//! Batches: requests that are submitted and watched.
//!
//! A batch shares the ownership of the regions and segments that its requests use until it is freed,
//! and it is freed when its requests are over: whoever drops it early cancels them and waits for the
//! memory to be quiet. One that is leaked keeps all that for ever, or until its scope ends.

use crate::counter::{Adder, OpenAdder};
use crate::engine::Handle;
use crate::error::{check, Error, ErrorKind, Result};
use crate::event::BatchId;
use crate::notify::raw_message;
use crate::pages::Pages;
use crate::prepared::{List, Prepared};
use crate::region::Registered;
use crate::request::{milliseconds, same_engine, Opcode, Request, SubmitOptions};
use crate::scope::Tracker;
use crate::segment::{Opened, Segment};
use crate::sys;
use crate::text::{cut, text_of};
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const REASON: usize = 1024;
const FOR_EVER: i64 = -1;

/// How far a request or a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Handed to a transport or queued for it.
    Waiting,
    /// Accepted; the target's descriptor is being fetched again.
    Pending,
    /// Refused by the target: the range is not there, or the access not allowed.
    Invalid,
    /// Ended by [`Batch::cancel`], or with the engine.
    Canceled,
    /// READ: the bytes are in the region. WRITE: they are in the target's memory.
    Completed,
    /// The deadline passed.
    Timeout,
    /// Anything else.
    Failed,
}

impl State {
    fn of(raw: c_int) -> State {
        match raw {
            sys::TE_WAITING => State::Waiting,
            sys::TE_PENDING => State::Pending,
            sys::TE_INVALID => State::Invalid,
            sys::TE_CANCELED => State::Canceled,
            sys::TE_COMPLETED => State::Completed,
            sys::TE_TIMEOUT => State::Timeout,
            _ => State::Failed,
        }
    }

    /// Whether it is over, well or not.
    pub fn is_terminal(self) -> bool {
        !matches!(self, State::Waiting | State::Pending)
    }
}

/// State of a request or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far it has come.
    pub state: State,
    /// Why it is in a state of failure.
    pub error: Option<ErrorKind>,
    /// Bytes moved so far, a lower bound; all once it is completed.
    pub bytes: u64,
}

impl Status {
    fn empty() -> sys::te_status {
        sys::te_status { state: sys::TE_FAILED, error: 0, bytes: 0 }
    }

    fn of(raw: &sys::te_status) -> Status {
        let error = if raw.error == 0 { None } else { Some(ErrorKind::of(raw.error)) };
        Status { state: State::of(raw.state), error, bytes: raw.bytes }
    }
}

/// What carries a request, or has carried it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// The transport that has it, or had it last; empty: none.
    pub transport: String,
    /// This side's NIC that moved the last part that has ended; empty: none has, or a transport without.
    pub nic: String,
    /// How often, at most 255, it or a part of it had failed and went another way then.
    pub changes: u32,
    /// Whether this side's memory of a device is copied through host memory for the transport.
    pub staged: bool,
}

/// What the requests use. Equal neighbours are kept once.
#[derive(Default)]
struct Held {
    regions: Vec<Arc<Registered>>,
    segments: Vec<Arc<Opened>>,
    lists: Vec<Arc<List>>,
    adders: Vec<Arc<OpenAdder>>,
    tasks: usize,
}

fn hold<T>(held: &mut Vec<Arc<T>>, one: &Arc<T>) {
    if !held.last().map_or(false, |last| Arc::ptr_eq(last, one)) {
        held.push(one.clone());
    }
}

/// A bag of requests that are submitted together or one after the other and watched together.
///
/// `'a` is how long the memory of its regions lives at least; one of [`Engine::batch`] takes only
/// regions that own theirs, one of [`Scope::batch`] those of the scope, too. Regions and segments may be
/// dropped while the batch lives; they are ended after it.
///
/// Dropping a batch cancels what is unfinished and waits until the memory is quiet.
///
/// ```compile_fail,E0382
/// # use transfer_engine::{Engine, Request, Result, Segment};
/// # fn f(engine: &Engine, peer: &Segment) -> Result<()> {
/// let region = engine.register(vec![0; 100], transfer_engine::Access::LocalOnly)?;
/// let batch = engine.batch(1)?;
/// let memory = region.into_vec();
/// batch.submit(&[Request::read(&region, 0..100, peer, 0x1000)])?; // the region is gone
/// # Ok(())
/// # }
/// ```
///
/// [`Engine::batch`]: crate::Engine::batch
/// [`Scope::batch`]: crate::Scope::batch
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Error, Request};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let source = ours.register(vec![7; 100], Access::LocalOnly)?;
/// let target = theirs.register(vec![0; 100], Access::Write)?;
/// let segment = ours.open(&theirs.name()?)?;
///
/// let batch = ours.batch(2)?;
/// batch.submit(&[
///     Request::write(&source, 0..50, &segment, target.addr()),
///     Request::write(&source, 50..100, &segment, target.addr() + 50),
/// ])?;
/// assert_eq!(batch.wait()?, 100);
///
/// // What the target refuses fails, and says why.
/// let refused = ours.batch(1)?;
/// refused.submit(&[Request::read(&source, 0..10, &segment, target.addr())])?;
/// assert!(matches!(refused.wait(), Err(Error::Access(_))));
/// println!("{}", refused.reason(0)?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a batch that is dropped is cancelled"]
pub struct Batch<'a> {
    engine: Arc<Handle>,
    id: sys::te_batch,
    held: Mutex<Held>,
    tracker: Option<Arc<Tracker>>,
    /// Neither longer nor shorter: a batch of another lifetime is another type.
    life: PhantomData<fn(&'a ()) -> &'a ()>,
}

/// Cancels and frees a batch once its requests are over; whether that could be done.
pub(crate) fn end(engine: &Handle, id: sys::te_batch) -> bool {
    let mut status = Status::empty();
    // SAFETY: the engine lives; ids are checked by it.
    unsafe {
        if sys::te_batch_status(engine.raw(), id, &mut status) != 0 {
            return false;
        }
        if !State::of(status.state).is_terminal() {
            sys::te_cancel(engine.raw(), id);
        }
        sys::te_wait(engine.raw(), id, FOR_EVER) == 0 && sys::te_batch_free(engine.raw(), id) == 0
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        engine: &Arc<Handle>,
        capacity: usize,
        tracker: Option<&Arc<Tracker>>,
    ) -> Result<Batch<'a>> {
        let mut id = 0;
        // SAFETY: the engine lives.
        check(unsafe { sys::te_batch_alloc(engine.raw(), capacity, &mut id) })?;
        if let Some(tracker) = tracker {
            tracker.add_batch(id);
        }
        Ok(Batch {
            engine: engine.clone(),
            id,
            held: Mutex::default(),
            tracker: tracker.cloned(),
            life: PhantomData,
        })
    }

    /// By which [`Events::take`] names it.
    ///
    /// [`Events::take`]: crate::Events::take
    pub fn id(&self) -> BatchId {
        BatchId(self.id)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests were submitted so far.
    pub fn len(&self) -> usize {
        self.held().tasks
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Submits requests: all of them, or on an error none. They are numbered in the order in which they
    /// were submitted, and carry no order between each other. Never waits for the network.
    ///
    /// A target range that the peer has not got is no error here: such a request ends
    /// [`State::Invalid`].
    ///
    /// On the engine's own segment the target is a region of this engine, whatever its access. The batch
    /// holds the regions of its requests, not these: one that is dropped too early stays registered
    /// until the request is over.
    pub fn submit(&self, requests: &[Request<'_, 'a>]) -> Result<()> {
        self.submit_with(requests, &SubmitOptions::new())
    }

    /// The same with a deadline, or a message that follows.
    pub fn submit_with(
        &self,
        requests: &[Request<'_, 'a>],
        options: &SubmitOptions<'_>,
    ) -> Result<()> {
        let raw = requests.iter().map(|r| r.raw(&self.engine)).collect::<Result<Vec<_>>>()?;
        self.submitting(
            options,
            raw.len(),
            |held| {
                for request in requests {
                    hold(&mut held.regions, &request.region.inner);
                    hold(&mut held.segments, &request.segment.inner);
                }
            },
            // SAFETY: the engine lives; the arrays are read during the call; the regions are held.
            |options| unsafe {
                sys::te_submit(self.engine.raw(), self.id, raw.as_ptr(), raw.len(), options)
            },
        )
    }

    /// Submits items of a prepared list by their numbers, in this order and each as often as it is
    /// named.
    pub fn submit_prepared(
        &self,
        list: &Prepared<'a>,
        opcode: Opcode,
        items: &[u32],
        options: &SubmitOptions<'_>,
    ) -> Result<()> {
        same_engine(&self.engine, list.inner.engine())?;
        self.submitting(
            options,
            items.len(),
            |held| hold(&mut held.lists, &list.inner),
            // SAFETY: as above, and the list holds its regions.
            |options| unsafe {
                sys::te_prep_submit(
                    self.engine.raw(),
                    self.id,
                    list.inner.id(),
                    opcode.raw(),
                    items.as_ptr(),
                    items.len(),
                    options,
                )
            },
        )
    }

    /// Submits pages, named by their numbers, as one request. What adjoins on both sides is moved in one
    /// piece.
    pub fn submit_pages(&self, pages: &Pages<'_, 'a>, options: &SubmitOptions<'_>) -> Result<()> {
        let raw = pages.raw(&self.engine)?;
        self.submitting(
            options,
            1,
            |held| {
                hold(&mut held.regions, &pages.region.inner);
                hold(&mut held.segments, &pages.segment.inner);
            },
            // SAFETY: the engine lives; struct and numbers are read during the call, and there are as many
            // numbers as the struct says; all of the local pool is in the region, which is held.
            |options| unsafe { sys::te_submit_pages(self.engine.raw(), self.id, &raw, options) },
        )
    }

    /// Takes hold of what the requests use before they start, and lets go if they do not.
    fn submitting(
        &self,
        options: &SubmitOptions<'_>,
        tasks: usize,
        keep: impl FnOnce(&mut Held),
        submit: impl FnOnce(*const sys::te_submit_opts) -> c_int,
    ) -> Result<()> {
        options.with_raw(&self.engine, |options| {
            let mut held = self.held();
            let before = (held.regions.len(), held.segments.len(), held.lists.len());
            keep(&mut held);
            if let Err(error) = check(submit(options)) {
                held.regions.truncate(before.0);
                held.segments.truncate(before.1);
                held.lists.truncate(before.2);
                return Err(error);
            }
            held.tasks += tasks;
            Ok(())
        })?
    }

    /// State of request number `task`, from 0.
    pub fn status(&self, task: usize) -> Result<Status> {
        let mut raw = Status::empty();
        // SAFETY: the engine lives; id and number are checked by it.
        check(unsafe { sys::te_status(self.engine.raw(), self.id, task, &mut raw) })?;
        Ok(Status::of(&raw))
    }

    /// State of the whole batch: waiting while any request is unfinished, completed if all are, else the
    /// first failure's.
    pub fn overall(&self) -> Result<Status> {
        let mut raw = Status::empty();
        // SAFETY: as above.
        check(unsafe { sys::te_batch_status(self.engine.raw(), self.id, &mut raw) })?;
        Ok(Status::of(&raw))
    }

    /// Why a request did not complete, in one line; empty while it is unfinished or if it did.
    pub fn reason(&self, task: usize) -> Result<String> {
        let (text, rc) = cut(REASON, |buf, n| {
            // SAFETY: as above; the buffer has the room that is told.
            unsafe { sys::te_status_msg(self.engine.raw(), self.id, task, buf, n) }
        });
        check(rc)?;
        Ok(text)
    }

    /// What carries request number `task`, or has, in whatever state it is.
    pub fn path(&self, task: usize) -> Result<Path> {
        let size = std::mem::size_of::<sys::te_path>();
        let mut raw =
            sys::te_path { size, transport: [0; 32], nic: [0; 64], changes: 0, staged: 0 };
        // SAFETY: as above; the struct says how large it is.
        check(unsafe { sys::te_path(self.engine.raw(), self.id, task, &mut raw) })?;
        Ok(Path {
            transport: text_of(&raw.transport),
            nic: text_of(&raw.nic),
            changes: raw.changes,
            staged: raw.staged != 0,
        })
    }

    /// Waits until every request submitted so far is over. The bytes moved if all completed, else why
    /// the first one that did not failed.
    pub fn wait(&self) -> Result<u64> {
        loop {
            // SAFETY: as above.
            check(unsafe { sys::te_wait(self.engine.raw(), self.id, FOR_EVER) })?;
            if let Some(bytes) = self.outcome()? {
                return Ok(bytes);
            }
        }
    }

    /// The same, for so long at most: `None` if some are unfinished then. Nothing is cancelled.
    pub fn wait_timeout(&self, time: Duration) -> Result<Option<u64>> {
        let end = Instant::now().checked_add(time);
        loop {
            let rest = end.map_or(time, |end| end.saturating_duration_since(Instant::now()));
            // SAFETY: as above.
            let rc = unsafe { sys::te_wait(self.engine.raw(), self.id, milliseconds(rest)) };
            match check(rc) {
                Ok(_) => {}
                Err(Error::Timeout(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(bytes) = self.outcome()? {
                return Ok(Some(bytes));
            }
        }
    }

    /// How the batch ended; `None` if it goes on, since another thread has submitted more.
    fn outcome(&self) -> Result<Option<u64>> {
        let overall = self.overall()?;
        let kind = match overall.error {
            None if overall.state == State::Completed => return Ok(Some(overall.bytes)),
            None if !overall.state.is_terminal() => return Ok(None),
            kind => kind.unwrap_or(ErrorKind::System),
        };
        for task in 0..self.len() {
            if self.status(task)?.error == Some(kind) {
                return Err(Error::new(kind, self.reason(task)?));
            }
        }
        Err(Error::new(kind, kind.to_string()))
    }

    /// Sends a message of any bytes to the engine behind `segment` once every request submitted so far has
    /// completed; not if any has not. Returns at once; that a peer does not take it is told in the log.
    /// Whatever is wrong with the message, the requests go on. Several of these may arrive in any order.
    pub fn notify_after(&self, segment: &Segment, name: &[u8], message: &[u8]) -> Result<()> {
        same_engine(&self.engine, &segment.inner.engine)?;
        let raw = raw_message(name, message);
        // SAFETY: the engine lives; the bytes are read during the call only.
        check(unsafe { sys::te_notify_after(self.engine.raw(), self.id, segment.inner.id, &raw) })?;
        Ok(())
    }

    /// Has the counter of a peer raised by `n` once nothing of the batch is unfinished; not at all if any request that
    /// it ever got has failed. Returns at once. What the peer does not get is sent again, and counts once all the
    /// same. [`Error::Invalid`]: the sum of all that the adder was to add would be above `i64::MAX`.
    pub fn add_after(&self, adder: &Adder, n: u64) -> Result<()> {
        same_engine(&self.engine, &adder.inner.segment.engine)?;
        let mut held = self.held();
        // SAFETY: the engine lives; the ids are checked by it.
        check(unsafe { sys::te_adder_after(self.engine.raw(), self.id, adder.inner.id, n) })?;
        hold(&mut held.adders, &adder.inner);
        Ok(())
    }

    /// Asks that unfinished requests end soon; returns at once. Some may still complete. Wait for the
    /// batch, then the memory is quiet.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { sys::te_cancel(self.engine.raw(), self.id) })?;
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if end(&self.engine, self.id) {
            if let Some(tracker) = &self.tracker {
                tracker.remove_batch(self.id);
            }
        } else {
            // What requests may still use is left to them.
            std::mem::forget(std::mem::take(&mut *self.held()));
        }
        self.engine.end_left();
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("id", &self.id).field("len", &self.len()).finish()
    }
}
