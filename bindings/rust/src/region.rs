// SPDX-License-Identifier: Apache-2.0
//! Registered memory.
//!
//! Peers read and write it at any time, so it is memory that others use: no reference to its bytes may
//! exist. [`Region::copy_from`] and [`Region::copy_to`] touch it by relaxed atomic accesses of a word
//! each, which assume nothing of what is there: beside a transfer of the same bytes they give some mix
//! of old and new ones. Accesses of different sizes must not meet even if they are atomic, so calls of
//! several threads on one region are put in order by a lock, but for calls that only read.
//!
//! Who uses a region (a batch with requests on it, a prepared list) shares the ownership of its
//! memory, so it is never freed too early, whatever is dropped first. Memory that cannot be
//! unregistered yet is left to the engine's handle, which tries again.

use crate::engine::Handle;
use crate::error::{check, Error, Result};
use crate::lease::Lease;
use crate::scope::Tracker;
use crate::sys;
use crate::text::{or_null, to_c};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

const WORD: usize = std::mem::size_of::<usize>();

/// What peers may do with a region.
///
/// It does not bind the engine itself: requests on [`Engine::local_segment`] reach every region of the
/// engine.
///
/// [`Engine::local_segment`]: crate::Engine::local_segment
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing: it serves the local sides of requests only.
    LocalOnly,
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    pub(crate) fn mask(self) -> u32 {
        match self {
            Access::LocalOnly => sys::TE_LOCAL_ONLY,
            Access::Read => sys::TE_REMOTE_READ,
            Access::Write => sys::TE_REMOTE_WRITE,
            Access::ReadWrite => sys::TE_REMOTE_RW,
        }
    }
}

/// How memory is registered.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RegionOptions<'o> {
    pub(crate) location: Option<&'o str>,
    pub(crate) access: Access,
    allow: Option<&'o str>,
}

impl<'o> RegionOptions<'o> {
    /// Memory with this access for peers, wherever it lies.
    pub fn new(access: Access) -> Self {
        RegionOptions { location: None, access, allow: None }
    }

    /// Where the memory lies or is to lie: `cpu:N`, `cuda:N`, `hip:N`, or `*` for "find out".
    pub fn location(mut self, location: &'o str) -> Self {
        self.location = Some(location);
        self
    }

    /// For these peers alone, with `TE_AUTH`: "NAME,NAME", ids of keys or names of certificates. Others end with
    /// [`ErrorKind::Access`].
    ///
    /// [`ErrorKind::Access`]: crate::ErrorKind::Access
    pub fn allow(mut self, names: &'o str) -> Self {
        self.allow = Some(names);
        self
    }

    pub(crate) fn is_host(&self) -> bool {
        self.location.map_or(true, |l| l == "*" || l.is_empty() || l.starts_with("cpu:"))
    }
}

impl From<Access> for RegionOptions<'_> {
    fn from(access: Access) -> Self {
        RegionOptions::new(access)
    }
}

/// Whose the memory is, which says how to free it.
enum Owner {
    /// A Vec of that capacity.
    Vec(usize),
    /// te_alloc() of the engine that the memory is registered with.
    Engine,
    /// The caller of an unsafe function, or a scope.
    Others,
}

/// Memory that can be registered. Dropping it frees nothing.
pub(crate) struct Memory {
    addr: NonNull<u8>,
    length: usize,
    owner: Owner,
}

// SAFETY: an address that one owner has; any thread may free what is below it.
unsafe impl Send for Memory {}
// SAFETY: nothing can be done with a reference but to read where the memory is.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn of_vec(vec: Vec<u8>) -> Memory {
        let mut vec = ManuallyDrop::new(vec);
        Memory {
            // SAFETY: a Vec's pointer is never NULL.
            addr: unsafe { NonNull::new_unchecked(vec.as_mut_ptr()) },
            length: vec.len(),
            owner: Owner::Vec(vec.capacity()),
        }
    }

    pub(crate) fn alloc(engine: &Handle, length: usize, location: Option<&str>) -> Result<Memory> {
        let location = location.map(to_c).transpose()?;
        let mut out = std::ptr::null_mut();
        // SAFETY: the engine lives; the string is read during the call only.
        check(unsafe { sys::te_alloc(engine.raw(), length, or_null(&location), &mut out) })?;
        Memory::at(out.cast(), length, Owner::Engine)
    }

    pub(crate) fn of_others(addr: *mut u8, length: usize) -> Result<Memory> {
        Memory::at(addr, length, Owner::Others)
    }

    fn at(addr: *mut u8, length: usize, owner: Owner) -> Result<Memory> {
        let addr =
            NonNull::new(addr).ok_or_else(|| Error::Invalid("the address is NULL".into()))?;
        if length > isize::MAX as usize {
            return Err(Error::Invalid(format!("a region of {length} bytes")));
        }
        Ok(Memory { addr, length, owner })
    }

    pub(crate) fn addr(&self) -> usize {
        self.addr.as_ptr() as usize
    }

    /// The Vec that it was.
    fn into_vec(self) -> Option<Vec<u8>> {
        match self.owner {
            Owner::Vec(capacity) => {
                let start = self.addr.as_ptr();
                // SAFETY: the parts of the Vec that of_vec() took apart, put together once.
                Some(unsafe { Vec::from_raw_parts(start, self.length, capacity) })
            }
            Owner::Engine | Owner::Others => None,
        }
    }

    /// Frees memory that is not registered any more.
    pub(crate) fn free(self, engine: &Handle) {
        if let Owner::Engine = self.owner {
            // SAFETY: from te_alloc() of this engine, and not registered any more.
            unsafe { sys::te_free(engine.raw(), self.addr.as_ptr().cast()) };
        }
        drop(self.into_vec());
    }
}

/// A registration, and the memory below it.
pub(crate) struct Registered {
    engine: Arc<Handle>,
    addr: NonNull<u8>,
    length: usize,
    /// None once it was given back.
    memory: Option<Memory>,
    /// For whoever writes the memory through the region.
    lock: RwLock<()>,
    host: bool,
    registered: bool,
    tracker: Option<Arc<Tracker>>,
}

// SAFETY: the memory is touched under the lock only, but for what unsafe functions are told; the
// engine's calls come from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

fn register(engine: &Handle, addr: usize, n: usize, options: &RegionOptions<'_>) -> Result<()> {
    let location = options.location.map(to_c).transpose()?;
    let allow = options.allow.map(to_c).transpose()?;
    let (at, access, one) = (addr as *mut c_void, options.access.mask(), or_null(&location));
    let buffer = sys::te_buffer { addr: at, length: n };
    // SAFETY: the memory stays valid until it is unregistered; the strings and the buffer are read during the call.
    let rc = unsafe {
        match &allow {
            None => sys::te_register(engine.raw(), at, n, one, access),
            Some(names) => {
                sys::te_register_allow(engine.raw(), &buffer, 1, one, access, names.as_ptr())
            }
        }
    };
    check(rc).map(|_| ())
}

/// Undoes a registration. Whether peers are certain to be off the memory.
pub(crate) fn unregister(engine: &Handle, addr: usize) -> Result<()> {
    // SAFETY: the engine lives; any address may be asked for.
    let rc = unsafe { sys::te_unregister(engine.raw(), addr as *mut c_void) };
    match check(rc) {
        // A forked child has a copy of the memory, which no engine knows.
        Err(Error::NotRegistered(_) | Error::Closed(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

impl Registered {
    fn end(&mut self) -> Result<()> {
        if self.registered {
            unregister(&self.engine, self.addr())?;
            self.registered = false;
            if let Some(tracker) = &self.tracker {
                tracker.remove_region(self.addr());
            }
        }
        Ok(())
    }

    pub(crate) fn addr(&self) -> usize {
        self.addr.as_ptr() as usize
    }

    pub(crate) fn engine(&self) -> &Arc<Handle> {
        &self.engine
    }

    /// The address of a part, which has to lie inside.
    pub(crate) fn part(&self, range: &Range<usize>) -> Result<*mut u8> {
        if range.start > range.end || range.end > self.length {
            return Err(Error::Invalid(format!(
                "bytes {}..{} of a region of {}",
                range.start, range.end, self.length
            )));
        }
        // SAFETY: inside the memory, as has just been seen.
        Ok(unsafe { self.addr.as_ptr().add(range.start) })
    }

    /// The same for the processor to touch, which it cannot in memory of a device, nor in a forked
    /// child, which has no memory of te_alloc().
    fn host_part(&self, start: usize, length: usize) -> Result<*mut u8> {
        if !self.engine.is_here() {
            return Err(Error::Closed("this is a forked child of the engine's process".into()));
        }
        if !self.host {
            return Err(Error::Unsupported(
                "the memory is a device's: move it by a request from or to memory of the host"
                    .into(),
            ));
        }
        self.part(&(start..start.saturating_add(length)))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let ended = self.end().is_ok();
        match self.memory.take() {
            Some(memory) if ended => memory.free(&self.engine),
            // A scope tries again at its end, by itself.
            Some(memory) if self.tracker.is_none() => self.engine.leave(memory),
            _ => {}
        }
        self.engine.end_left();
    }
}

/// Registered memory: where requests take bytes from and put them, and what peers read and write.
///
/// Peers may touch it at any time, so there are no references to its bytes: [`copy_from`] and
/// [`copy_to`] move them in and out. Dropping the region unregisters the memory, once no batch and no
/// prepared list uses it any more. A region that is leaked stays registered, and so does its memory. One
/// that is dropped while it cannot be unregistered, as the target of an unfinished request on the engine's
/// own segment for instance, stays so until the engine can: that is tried with each region or batch of
/// the engine that is dropped after it.
///
/// `'a` is how long the memory lives: `'static` where the region owns it, else the [`Scope`].
///
/// [`copy_from`]: Region::copy_from
/// [`copy_to`]: Region::copy_to
/// [`Scope`]: crate::Scope
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine};
///
/// let engine = Engine::builder().name("127.0.0.1").build()?;
/// let region = engine.register(vec![0; 4096], Access::ReadWrite)?;
/// region.copy_from(100, b"a page")?;
/// assert_eq!(region.to_vec(98..106)?, b"\0\0a page");
/// println!("peers write to {:#x}", region.addr());
/// let memory = region.into_vec()?; // no peer reaches it any more
/// assert_eq!(memory.len(), 4096);
/// # Ok(())
/// # }
/// ```
#[must_use = "a region that is dropped is unregistered"]
pub struct Region<'a> {
    pub(crate) inner: Arc<Registered>,
    life: PhantomData<&'a ()>,
}

impl<'a> Region<'a> {
    pub(crate) fn new(
        engine: &Arc<Handle>,
        memory: Memory,
        options: &RegionOptions<'_>,
    ) -> Result<Region<'a>> {
        Region::tracked(engine, memory, options, None)
    }

    pub(crate) fn tracked(
        engine: &Arc<Handle>,
        memory: Memory,
        options: &RegionOptions<'_>,
        tracker: Option<&Arc<Tracker>>,
    ) -> Result<Region<'a>> {
        let mut inner = Registered {
            engine: engine.clone(),
            addr: memory.addr,
            length: memory.length,
            memory: Some(memory),
            lock: RwLock::new(()),
            host: options.is_host(),
            registered: false,
            tracker: tracker.cloned(),
        };
        register(engine, inner.addr(), inner.length, options)?;
        inner.registered = true;
        if let Some(tracker) = tracker {
            tracker.add_region(inner.addr());
        }
        Ok(Region { inner: Arc::new(inner), life: PhantomData })
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Never: memory without bytes cannot be registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it begins: what peers add offsets to for the remote side of a request.
    pub fn addr(&self) -> u64 {
        self.inner.addr() as u64
    }

    /// The same as a pointer. Whoever uses it has to mind peers, who read and write as their access
    /// allows, and requests.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.addr.as_ptr()
    }

    /// Copies bytes into the region, from `offset` on. [`Error::Invalid`] if they do not fit,
    /// [`Error::Unsupported`] for memory of a device, [`Error::Closed`] in a forked child. Other threads
    /// that copy into or out of the region at the time wait.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.inner.host_part(offset, bytes.len())?;
        let _alone = self.inner.lock.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: inside memory of the host that the region keeps valid, and no other thread is here.
        unsafe { store(to, bytes) };
        Ok(())
    }

    /// Copies bytes out of the region, from `offset` on. Errors as of [`copy_from`].
    ///
    /// [`copy_from`]: Region::copy_from
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.inner.host_part(offset, bytes.len())?;
        let _no_writer = self.inner.lock.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: inside memory of the host that the region keeps valid, and no thread writes here.
        unsafe { load(from, bytes) };
        Ok(())
    }

    /// The bytes of a range as they are now. Errors as of [`copy_from`].
    ///
    /// [`copy_from`]: Region::copy_from
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>> {
        self.inner.part(&range)?;
        let mut bytes = vec![0; range.len()];
        self.copy_to(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets the bytes of a range. Errors as of [`copy_from`].
    ///
    /// [`copy_from`]: Region::copy_from
    pub fn fill(&self, range: Range<usize>, value: u8) -> Result<()> {
        self.inner.part(&range)?;
        let some = [value; 4096];
        for at in range.clone().step_by(some.len()) {
            self.copy_from(at, &some[..some.len().min(range.end - at)])?;
        }
        Ok(())
    }

    /// The bytes, without a copy.
    ///
    /// # Safety
    ///
    /// The memory is the host's, this process is not a forked child of the engine's, and as long as the
    /// reference lives nothing writes to it: no peer (by the region's access if there is no lease, or since the
    /// program knows), no unfinished READ, no unfinished WRITE on the engine's own segment, which [`Access`]
    /// does not bind, with this memory as its target, no `copy_from`.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised memory of that length; the caller says that it is quiet.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    /// The bytes, to be changed without a copy.
    ///
    /// # Safety
    ///
    /// The memory is the host's, this process is not a forked child of the engine's, and as long as the
    /// reference lives nothing else touches it: no peer (by the region's access if there is no lease, or since the
    /// program knows) and no unfinished request, be it as its region or, on the engine's own segment, as its
    /// target.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the caller says that nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// Lets whoever has the key of the lease do `access` in that part, which the region's own access may lack, for
    /// `lifetime` from now on; `None`: until it is revoked. Memory that is reached by leases alone is registered as
    /// [`Access::LocalOnly`].
    pub fn lease(
        &self,
        range: Range<usize>,
        access: Access,
        lifetime: Option<Duration>,
    ) -> Result<Lease> {
        Lease::grant(self, range, access, lifetime, None)
    }

    /// The same, and the key is of use to those peers alone, as of [`RegionOptions::allow`].
    pub fn lease_for(
        &self,
        allow: &str,
        range: Range<usize>,
        access: Access,
        lifetime: Option<Duration>,
    ) -> Result<Lease> {
        Lease::grant(self, range, access, lifetime, Some(allow))
    }

    /// Unregisters the memory: when this returns `Ok`, no peer can touch it any more. Else the region
    /// comes back with the error, [`Error::Busy`] while a batch or a prepared list uses it.
    pub fn close(self) -> Result<(), CloseError<'a>> {
        self.unregistered().map(drop)
    }

    /// The same, and gives the memory back if it came as `Vec` or `Box`; [`Error::Unsupported`] if not.
    pub fn into_vec(self) -> Result<Vec<u8>, CloseError<'a>> {
        if !matches!(self.inner.memory, Some(Memory { owner: Owner::Vec(_), .. })) {
            let error = Error::Unsupported("the region was not made of a Vec".into());
            return Err(CloseError { region: self, error });
        }
        let memory = self.unregistered()?.memory.take();
        Ok(memory.and_then(Memory::into_vec).unwrap_or_default())
    }

    fn unregistered(self) -> Result<Registered, CloseError<'a>> {
        let life = self.life;
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| {
            let error = Error::Busy("a batch or a prepared list uses the region".into());
            CloseError { region: Region { inner, life }, error }
        })?;
        match inner.end() {
            Ok(()) => Ok(inner),
            Err(error) => {
                Err(CloseError { region: Region { inner: Arc::new(inner), life }, error })
            }
        }
    }
}

/// Why a region could not be closed, and the region, which is as it was. `?` turns it into an
/// [`Error`]; that drops the region.
#[derive(Debug)]
pub struct CloseError<'a> {
    /// The region, for another try.
    pub region: Region<'a>,
    /// What stood in the way.
    pub error: Error,
}

impl fmt::Display for CloseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CloseError<'_> {}

impl From<CloseError<'_>> for Error {
    fn from(failed: CloseError<'_>) -> Error {
        failed.error
    }
}

mod sealed {
    pub trait Sealed {
        fn into_bytes(self) -> Vec<u8>;
    }
}

/// Bytes on the heap that their owner gives away: `Vec<u8>` and `Box<[u8]>`. What would have to be
/// copied is not among them.
pub trait OwnedBytes: sealed::Sealed {}

impl sealed::Sealed for Vec<u8> {
    fn into_bytes(self) -> Vec<u8> {
        self
    }
}

impl OwnedBytes for Vec<u8> {}

impl sealed::Sealed for Box<[u8]> {
    fn into_bytes(self) -> Vec<u8> {
        self.into_vec()
    }
}

impl OwnedBytes for Box<[u8]> {}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("addr", &self.as_ptr()).field("len", &self.len()).finish()
    }
}

/// How many bytes there are before the first whole word, `length` at most.
fn unaligned(addr: *const u8, length: usize) -> usize {
    addr.align_offset(WORD).min(length)
}

/// # Safety
/// `to` is valid for writes of as many bytes as there are, and no other thread accesses them here.
unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let (head, rest) = bytes.split_at(unaligned(to, bytes.len()));
    let words = rest.chunks_exact(WORD);
    let tail = words.remainder();
    // SAFETY: each access lies in the range; words begin where `unaligned` says that they may.
    unsafe {
        for (i, byte) in head.iter().enumerate() {
            (*to.add(i).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
        let to = to.add(head.len());
        for (i, word) in words.enumerate() {
            let word = word.as_ptr().cast::<usize>().read_unaligned();
            (*to.cast::<AtomicUsize>().add(i)).store(word, Ordering::Relaxed);
        }
        let to = to.add(rest.len() - tail.len());
        for (i, byte) in tail.iter().enumerate() {
            (*to.add(i).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
    }
}

/// # Safety
/// `from` is valid for reads of as many bytes as there is room for, and no other thread calls store()
/// on them.
unsafe fn load(from: *const u8, bytes: &mut [u8]) {
    let length = bytes.len();
    let (head, rest) = bytes.split_at_mut(unaligned(from, length));
    let whole = rest.len() - rest.len() % WORD;
    let (words, tail) = rest.split_at_mut(whole);
    // SAFETY: as in store().
    unsafe {
        for (i, byte) in head.iter_mut().enumerate() {
            *byte = (*from.add(i).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
        let from = from.add(head.len());
        for (i, word) in words.chunks_exact_mut(WORD).enumerate() {
            let value = (*from.cast::<AtomicUsize>().add(i)).load(Ordering::Relaxed);
            word.as_mut_ptr().cast::<usize>().write_unaligned(value);
        }
        let from = from.add(whole);
        for (i, byte) in tail.iter_mut().enumerate() {
            *byte = (*from.add(i).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{check, load, store, sys};
    use crate::common::{engine, engine_with_a_port, in_time, Peer, LONG, SERVED};
    use crate::{Access, Engine, ErrorKind, Region, Segment};
    use std::thread;
    use std::time::Duration;

    /// A batch that nothing of this crate knows, with a request on memory of this address to a peer that
    /// does not answer.
    fn unknown_batch(engine: &Engine, peer: &Peer, source: u64) -> (sys::te_batch, Segment) {
        let (segment, remote) = peer.open(engine);
        let request = sys::te_request {
            opcode: sys::TE_WRITE,
            source: source as *mut _,
            target: segment.inner.id,
            target_offset: remote,
            length: SERVED as u64,
        };
        peer.stop();
        let mut id = 0;
        // SAFETY: the engine lives; the request is read during the call, its memory stays registered.
        unsafe {
            check(sys::te_batch_alloc(engine.raw(), 1, &mut id)).unwrap();
            check(sys::te_submit(engine.raw(), id, &request, 1, std::ptr::null())).unwrap();
        }
        (id, segment)
    }

    fn cancel(engine: &Engine, id: sys::te_batch) {
        // SAFETY: the engine lives.
        unsafe {
            check(sys::te_cancel(engine.raw(), id)).unwrap();
            check(sys::te_wait(engine.raw(), id, LONG.as_millis() as i64)).unwrap();
            check(sys::te_batch_free(engine.raw(), id)).unwrap();
        }
    }

    fn is_freed(engine: &Engine, addr: u64) -> bool {
        // SAFETY: the engine lives; any address may be asked for.
        let rc = unsafe { sys::te_free(engine.raw(), addr as *mut _) };
        rc == ErrorKind::NotFound.code()
    }

    #[test]
    fn memory_of_the_engine_is_freed_with_its_region() {
        let engine = engine();
        for how in 0..3 {
            let region = engine.alloc(100, Access::ReadWrite).unwrap();
            let addr = region.addr();
            match how {
                0 => drop(region),
                1 => region.close().unwrap(),
                _ => drop(region.into_vec().unwrap_err()),
            }
            assert!(is_freed(&engine, addr));
        }
    }

    fn is_kept_while_busy(
        make: impl FnOnce(&Engine) -> Region<'static>,
        drops: impl Fn(&Engine),
    ) -> (Engine, u64) {
        let (engine, peer) = (engine(), Peer::start(1));
        let region = make(&engine);
        let addr = region.addr();
        let (id, _segment) = unknown_batch(&engine, &peer, addr);
        let again = region.close().unwrap_err();
        assert_eq!(again.error.kind(), ErrorKind::Busy);
        drop(again);
        let left = || engine.handle.left().iter().map(|m| m.addr() as u64).collect::<Vec<_>>();
        assert_eq!((left(), engine.stats().unwrap().regions), (vec![addr], 1));
        drops(&engine);
        assert_eq!(left(), [addr]);
        cancel(&engine, id);
        drops(&engine);
        assert_eq!((left(), engine.stats().unwrap().regions), (vec![], 0));
        (engine, addr)
    }

    #[test]
    fn memory_that_is_busy_is_kept_until_it_is_not() {
        is_kept_while_busy(
            |e| e.register(vec![1; SERVED], Access::LocalOnly).unwrap(),
            |e| drop(e.register(vec![1; 10], Access::Read).unwrap()),
        );
        let (engine, addr) = is_kept_while_busy(
            |e| e.alloc(SERVED, Access::LocalOnly).unwrap(),
            |e| drop(e.batch(1).unwrap()),
        );
        assert!(is_freed(&engine, addr));
    }

    #[test]
    fn an_engine_ends_that_has_memory_left() {
        let (engine, peer) = (engine_with_a_port(), Peer::start(1));
        let region = engine.register(vec![1; SERVED], Access::LocalOnly).unwrap();
        drop(unknown_batch(&engine, &peer, region.addr()));
        drop(region);
        let name = engine.name().unwrap();
        let other = crate::common::engine();
        other.probe(&name).unwrap();
        drop(engine);
        assert!(other.probe(&name).is_err());
    }

    #[test]
    fn a_scope_waits_until_its_memory_is_quiet() {
        let (engine, peer) = (engine(), Peer::start(1));
        in_time(move || {
            let mut memory = vec![1u8; SERVED];
            let ending = engine.scope(|scope| {
                let region = scope.register(&mut memory, Access::LocalOnly).unwrap();
                let engine = engine.clone();
                let (id, _) = unknown_batch(&engine, &peer, region.addr());
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(300));
                    cancel(&engine, id);
                })
            });
            assert_eq!(engine.stats().unwrap().regions, 0);
            ending.join().unwrap();
        });
    }

    #[test]
    fn copies_at_every_offset_and_size() {
        let source: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
        for offset in 0..17 {
            for length in 0..47 {
                let mut memory = [0xeeu8; 80];
                let mut back = vec![0u8; length];
                let at = memory.as_mut_ptr();
                // SAFETY: the sums of both stay below 80.
                unsafe {
                    store(at.add(offset), &source[..length]);
                    load(at.add(offset), &mut back);
                }
                assert_eq!(back, source[..length]);
                assert!(memory[..offset].iter().all(|b| *b == 0xee));
                assert!(memory[offset + length..].iter().all(|b| *b == 0xee));
            }
        }
    }
}
