// SPDX-License-Identifier: Apache-2.0
//! Segments: what other engines let this one reach.

use crate::counter::Adder;
use crate::engine::Handle;
use crate::error::{check, ErrorKind, Result};
use crate::notify::raw_message;
use crate::paths::{Paths, RawPaths};
use crate::prepared::{Item, Prepared};
use crate::request::milliseconds;
use crate::sys;
use crate::text::{text_of, to_c};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An open segment, closed with its last owner.
pub(crate) struct Opened {
    pub(crate) engine: Arc<Handle>,
    pub(crate) id: sys::te_segment,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the engine lives; no request holds the segment, since a batch shares its ownership.
        unsafe { sys::te_close(self.engine.raw(), self.id) };
    }
}

/// A buffer of a segment, by the addresses of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Where it begins: in the owner's address space, or in the row of a segment's files.
    pub addr: u64,
    /// How many bytes it has.
    pub len: usize,
}

/// How a transport was connected ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warmed {
    /// Its name.
    pub transport: String,
    /// Paths that are up. Without any it has nothing to connect, or could not.
    pub ready: u32,
    /// Paths that are on their way, and go on.
    pub opening: u32,
    /// Paths that could not be made.
    pub failed: u32,
    /// Why the first of these could not.
    pub error: Option<ErrorKind>,
    /// How long that took.
    pub time: Duration,
}

/// The memory that one engine lets others reach, opened with [`Engine::open`]. Clones are the same
/// segment.
///
/// [`Engine::open`]: crate::Engine::open
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let inbox = theirs.register(vec![0; 4096], Access::Write)?;
///
/// let segment = ours.open(&theirs.name()?)?;
/// let buffers = segment.buffers()?;
/// assert_eq!((buffers[0].addr, buffers[0].len), (inbox.addr(), 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Segment {
    pub(crate) inner: Arc<Opened>,
}

impl Segment {
    pub(crate) fn open(engine: &Arc<Handle>, name: &str, paths: &Paths) -> Result<Segment> {
        let (name, paths) = (to_c(name)?, RawPaths::of(paths)?);
        let mut id = sys::TE_LOCAL_SEGMENT;
        // SAFETY: the engine lives; the strings are read during the call only.
        check(unsafe { sys::te_open_with(engine.raw(), name.as_ptr(), &paths.raw, &mut id) })?;
        Ok(Segment { inner: Arc::new(Opened { engine: engine.clone(), id }) })
    }

    pub(crate) fn open_life(
        engine: &Arc<Handle>,
        name: &str,
        incarnation: u64,
        paths: &Paths,
    ) -> Result<Segment> {
        let (name, paths) = (to_c(name)?, RawPaths::of(paths)?);
        let mut id = sys::TE_LOCAL_SEGMENT;
        // SAFETY: the engine lives; the strings are read during the call only.
        check(unsafe {
            sys::te_open_life(engine.raw(), name.as_ptr(), incarnation, &paths.raw, &mut id)
        })?;
        Ok(Segment { inner: Arc::new(Opened { engine: engine.clone(), id }) })
    }

    pub(crate) fn local(engine: &Arc<Handle>) -> Segment {
        let id = sys::TE_LOCAL_SEGMENT;
        Segment { inner: Arc::new(Opened { engine: engine.clone(), id }) }
    }

    /// Whether it is the engine's own one.
    pub fn is_local(&self) -> bool {
        self.inner.id == sys::TE_LOCAL_SEGMENT
    }

    /// The incarnation of its engine: of [`Engine::open_life`] the one that it is of, also once that is over; else
    /// that of the descriptor which was fetched last, 0 if that tells none.
    ///
    /// [`Engine::open_life`]: crate::Engine::open_life
    pub fn incarnation(&self) -> Result<u64> {
        let mut found = 0;
        // SAFETY: the engine lives; the call writes one number.
        check(unsafe {
            sys::te_segment_incarnation(self.inner.engine.raw(), self.inner.id, &mut found)
        })?;
        Ok(found)
    }

    /// Its buffers, in the order of their addresses, as far as they are known here; of the engine's own
    /// segment those that others may see.
    pub fn buffers(&self) -> Result<Vec<RemoteBuffer>> {
        let mut found: Vec<sys::te_buffer> = Vec::new();
        loop {
            let room = found.capacity();
            let mut total = 0;
            // SAFETY: there is room for so many; the call writes no more.
            check(unsafe {
                sys::te_segment_buffers(
                    self.inner.engine.raw(),
                    self.inner.id,
                    found.as_mut_ptr(),
                    room,
                    &mut total,
                )
            })?;
            if total <= room {
                // SAFETY: the call has written them.
                unsafe { found.set_len(total) };
                break;
            }
            found.reserve(total);
        }
        Ok(found.iter().map(|b| RemoteBuffer { addr: b.addr as u64, len: b.length }).collect())
    }

    /// Connects ahead, by all transports that reach the segment, so that the first request need not. It is
    /// an error if all paths of one failed, else if some are still opening by then; without any time it
    /// only begins.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use transfer_engine::Engine;
    ///
    /// let ours = Engine::builder().name("127.0.0.1").build()?;
    /// let theirs = Engine::builder().name("127.0.0.1").build()?;
    /// let warmed = ours.open(&theirs.name()?)?.warm(Duration::from_secs(60))?;
    /// assert!(warmed.iter().any(|by| by.transport == "tcp" && by.ready > 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn warm(&self, timeout: Duration) -> Result<Vec<Warmed>> {
        // SAFETY: plain numbers and arrays of them, for which all zeros are a value.
        let mut raw: sys::te_warm = unsafe { std::mem::zeroed() };
        raw.size = std::mem::size_of::<sys::te_warm>();
        let engine = self.inner.engine.raw();
        // SAFETY: the engine lives; the struct says how large it is.
        check(unsafe { sys::te_warm(engine, self.inner.id, milliseconds(timeout), &mut raw) })?;
        Ok(raw.by[..raw.n]
            .iter()
            .map(|by| Warmed {
                transport: text_of(&by.transport),
                ready: by.ready,
                opening: by.opening,
                failed: by.failed,
                error: (by.error != 0).then(|| ErrorKind::of(by.error)),
                time: Duration::from_nanos(by.time_ns),
            })
            .collect())
    }

    /// Sends a message to the engine behind the segment; returns when that has it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use transfer_engine::Engine;
    ///
    /// let ours = Engine::builder().name("127.0.0.1").build()?;
    /// let theirs = Engine::builder().name("127.0.0.1").build()?;
    /// ours.open(&theirs.name()?)?.notify("block", "17 is full")?;
    /// assert_eq!(theirs.notifications()?[0].message_text(), "17 is full");
    /// # Ok(())
    /// # }
    /// ```
    pub fn notify(&self, name: &str, message: &str) -> Result<()> {
        let (name, message) = (to_c(name)?, to_c(message)?);
        let engine = self.inner.engine.raw();
        // SAFETY: the engine lives; the strings are read during the call only.
        check(unsafe { sys::te_notify(engine, self.inner.id, name.as_ptr(), message.as_ptr()) })?;
        Ok(())
    }

    /// The same of any bytes. An engine of another make takes text alone, UTF-8 without NUL: that is
    /// [`Error::Unsupported`](crate::Error::Unsupported), and nothing is sent.
    pub fn notify_bytes(&self, name: &[u8], message: &[u8]) -> Result<()> {
        let raw = raw_message(name, message);
        let engine = self.inner.engine.raw();
        // SAFETY: the engine lives; the bytes are read during the call only.
        check(unsafe { sys::te_notify_bytes(engine, self.inner.id, &raw) })?;
        Ok(())
    }

    /// Opens the counter of that name that the peer, or this engine itself, has made, to be raised behind batches. May
    /// block while the directory and the peer are asked.
    pub fn adder(&self, name: &str) -> Result<Adder> {
        Adder::open(self, name)
    }

    /// Checks and looks up a list of pieces once, to be submitted again and again by number.
    pub fn prepare<'a>(&self, items: &[Item<'_, 'a>]) -> Result<Prepared<'a>> {
        Prepared::new(self, items)
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("id", &self.inner.id).finish()
    }
}
