// SPDX-License-Identifier: Apache-2.0
//! What is asked of an engine: one transfer, and what goes for several.

use crate::engine::Handle;
use crate::error::{Error, Result};
use crate::lease::LeaseKey;
use crate::paths::{Paths, RawPaths};
use crate::region::Region;
use crate::segment::Segment;
use crate::stream::{RawStream, Stream};
use crate::sys;
use crate::text::to_c;
use std::ffi::CString;
use std::ops::Range;
use std::os::raw::c_int;
use std::sync::Arc;
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// From the segment into the region.
    Read,
    /// From the region into the segment.
    Write,
}

impl Opcode {
    pub(crate) fn raw(self) -> c_int {
        match self {
            Opcode::Read => sys::TE_READ,
            Opcode::Write => sys::TE_WRITE,
        }
    }
}

/// One transfer between a part of a region and as many bytes of a segment.
#[derive(Clone, Debug)]
pub struct Request<'r, 'a> {
    pub(crate) opcode: Opcode,
    pub(crate) region: &'r Region<'a>,
    pub(crate) range: Range<usize>,
    pub(crate) segment: &'r Segment,
    pub(crate) remote: u64,
}

impl<'r, 'a> Request<'r, 'a> {
    /// Reads what is at `remote` in the segment into that part of the region. `remote` is an address of
    /// the segment's owner.
    pub fn read(
        region: &'r Region<'a>,
        range: Range<usize>,
        segment: &'r Segment,
        remote: u64,
    ) -> Self {
        Request { opcode: Opcode::Read, region, range, segment, remote }
    }

    /// Writes that part of the region to `remote` in the segment.
    pub fn write(
        region: &'r Region<'a>,
        range: Range<usize>,
        segment: &'r Segment,
        remote: u64,
    ) -> Self {
        Request { opcode: Opcode::Write, region, range, segment, remote }
    }

    pub(crate) fn raw(&self, engine: &Arc<Handle>) -> Result<sys::te_request> {
        same_engine(engine, self.region.inner.engine())?;
        same_engine(engine, &self.segment.inner.engine)?;
        Ok(sys::te_request {
            opcode: self.opcode.raw(),
            source: self.region.inner.part(&self.range)?.cast(),
            target: self.segment.inner.id,
            target_offset: self.remote,
            length: self.range.len() as u64,
        })
    }
}

/// Ids and registrations are worth nothing to another engine, or worse, name something else there.
pub(crate) fn same_engine(one: &Arc<Handle>, other: &Arc<Handle>) -> Result<()> {
    if !Arc::ptr_eq(one, other) {
        return Err(Error::Invalid("a region or segment of another engine".into()));
    }
    Ok(())
}

/// What goes for all requests of one submit.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Request, SubmitOptions};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let source = ours.register(vec![7; 100], Access::LocalOnly)?;
/// let target = theirs.register(vec![0; 100], Access::Write)?;
/// let segment = ours.open(&theirs.name()?)?;
///
/// let options = SubmitOptions::new()
///     .deadline(std::time::Duration::from_secs(5))
///     .notify(&segment, "block", "17");
/// let batch = ours.batch(1)?;
/// batch.submit_with(&[Request::write(&source, 0..100, &segment, target.addr())], &options)?;
/// batch.wait()?;
/// while theirs.notifications()?.is_empty() {} // it comes a moment after the bytes
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SubmitOptions<'s> {
    deadline: Option<Duration>,
    notify: Option<(&'s Segment, String, String)>,
    traceparent: Option<String>,
    paths: Option<Paths>,
    after: Option<Stream>,
    then: Option<Stream>,
    lease: Option<LeaseKey>,
}

impl<'s> SubmitOptions<'s> {
    /// No deadline, no message.
    pub fn new() -> Self {
        SubmitOptions::default()
    }

    /// The requests end within this time, one way or the other. Else only a long time without any
    /// progress ends them.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time);
        self
    }

    /// Sends a message to the engine behind a segment once every request of the submit is completed;
    /// none if any is not.
    pub fn notify(
        mut self,
        segment: &'s Segment,
        name: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        self.notify = Some((segment, name.into(), message.into()));
        self
    }

    /// The trace context of W3C that the requests belong to, "00-...": the line of a slow one has it, and the
    /// log and the probes of a target that is reached by TCP.
    pub fn traceparent(mut self, context: impl Into<String>) -> Self {
        self.traceparent = Some(context.into());
        self
    }

    /// The transports that may carry the requests; they narrow those of the segment.
    pub fn paths(mut self, paths: Paths) -> Self {
        self.paths = Some(paths);
        self
    }

    /// The requests are begun when this has done what it was given so far; the deadline counts from the
    /// submit.
    pub fn after(mut self, stream: Stream) -> Self {
        self.after = Some(stream);
        self
    }

    /// This goes on once every request of the submit has ended, however each has.
    pub fn then(mut self, stream: Stream) -> Self {
        self.then = Some(stream);
        self
    }

    /// The key of a lease of the target, by which the requests reach its memory.
    pub fn lease(mut self, key: LeaseKey) -> Self {
        self.lease = Some(key);
        self
    }

    /// Calls `f` with the options as the C interface takes them.
    pub(crate) fn with_raw<T>(
        &self,
        engine: &Arc<Handle>,
        f: impl FnOnce(*const sys::te_submit_opts) -> T,
    ) -> Result<T> {
        let mut raw = sys::te_submit_opts {
            size: std::mem::size_of::<sys::te_submit_opts>(),
            deadline_ms: self.deadline.map_or(0, |d| milliseconds(d).max(1)),
            notify_name: std::ptr::null(),
            notify_msg: std::ptr::null(),
            notify_target: sys::TE_LOCAL_SEGMENT,
            traceparent: std::ptr::null(),
            paths: std::ptr::null(),
            after: std::ptr::null(),
            then: std::ptr::null(),
            lease: std::ptr::null(),
        };
        let paths = self.paths.as_ref().map(RawPaths::of).transpose()?;
        if let Some(paths) = &paths {
            raw.paths = &paths.raw;
        }
        let after = self.after.as_ref().map(RawStream::of).transpose()?;
        if let Some(after) = &after {
            raw.after = &after.raw;
        }
        let then = self.then.as_ref().map(RawStream::of).transpose()?;
        if let Some(then) = &then {
            raw.then = &then.raw;
        }
        let lease = self.lease.map(LeaseKey::raw);
        if let Some(lease) = &lease {
            raw.lease = lease;
        }
        let traceparent = self.traceparent.as_deref().map(to_c).transpose()?;
        if let Some(context) = &traceparent {
            raw.traceparent = context.as_ptr();
        }
        let mut texts: Option<(CString, CString)> = None;
        if let Some((segment, name, message)) = &self.notify {
            same_engine(engine, &segment.inner.engine)?;
            let (name, message) = texts.insert((to_c(name)?, to_c(message)?));
            raw.notify_name = name.as_ptr();
            raw.notify_msg = message.as_ptr();
            raw.notify_target = segment.inner.id;
        }
        Ok(f(&raw))
    }
}

/// Whole milliseconds, rounded up, so that no wait is shorter than what was asked for.
pub(crate) fn milliseconds(time: Duration) -> i64 {
    let rounded = time.checked_add(Duration::from_nanos(999_999)).unwrap_or(time);
    i64::try_from(rounded.as_millis()).unwrap_or(i64::MAX)
}
