// SPDX-License-Identifier: Apache-2.0
//! Registered memory.
//!
//! Peers read and write it at any time, so it is memory that other threads use: no reference to its
//! bytes may exist, and what Rust does with them has to be atomic. [`Region::copy_from`] and
//! [`Region::copy_to`] use relaxed atomic accesses of a word each. They never give undefined
//! behaviour; beside a transfer of the same bytes they give some mix of old and new ones.
//!
//! Who uses a region (a batch with requests on it, a prepared list) shares the ownership of its
//! memory, so it is never freed too early, whatever is dropped first. A region that cannot be
//! unregistered keeps its memory for ever.

use crate::engine::Handle;
use crate::error::{check, Error, Result};
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
use std::sync::Arc;

const WORD: usize = std::mem::size_of::<usize>();

/// What peers may do with a region.
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
    fn mask(self) -> u32 {
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
}

impl<'o> RegionOptions<'o> {
    /// Memory with this access for peers, wherever it lies.
    pub fn new(access: Access) -> Self {
        RegionOptions { location: None, access }
    }

    /// Where the memory lies or is to lie: `cpu:N`, `cuda:N`, `hip:N`, or `*` for "find out".
    pub fn location(mut self, location: &'o str) -> Self {
        self.location = Some(location);
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
    /// te_alloc().
    Engine(Arc<Handle>),
    /// The caller of an unsafe function, or a scope.
    Others,
}

/// Memory that can be registered.
pub(crate) struct Memory {
    addr: NonNull<u8>,
    length: usize,
    owner: Owner,
}

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

    pub(crate) fn alloc(
        engine: &Arc<Handle>,
        length: usize,
        location: Option<&str>,
    ) -> Result<Memory> {
        let location = location.map(to_c).transpose()?;
        let mut out = std::ptr::null_mut();
        // SAFETY: the engine lives; the string is read during the call only.
        check(unsafe { sys::te_alloc(engine.raw(), length, or_null(&location), &mut out) })?;
        Memory::at(out.cast(), length, Owner::Engine(engine.clone()))
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

    fn into_vec(self) -> Option<Vec<u8>> {
        let memory = ManuallyDrop::new(self);
        match memory.owner {
            Owner::Vec(capacity) => {
                let start = memory.addr.as_ptr();
                // SAFETY: the parts of the Vec that of_vec() took apart, which nobody else frees.
                Some(unsafe { Vec::from_raw_parts(start, memory.length, capacity) })
            }
            _ => None,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Vec(capacity) => {
                // SAFETY: the parts of the Vec that of_vec() took apart, freed once.
                drop(unsafe { Vec::from_raw_parts(self.addr.as_ptr(), self.length, *capacity) });
            }
            Owner::Engine(engine) => {
                // SAFETY: from te_alloc() of this engine, and not registered any more.
                unsafe { sys::te_free(engine.raw(), self.addr.as_ptr().cast()) };
            }
            Owner::Others => {}
        }
    }
}

/// A registration, and the memory below it.
pub(crate) struct Registered {
    engine: Arc<Handle>,
    addr: NonNull<u8>,
    length: usize,
    memory: Option<Memory>,
    host: bool,
    registered: bool,
    tracker: Option<Arc<Tracker>>,
}

// SAFETY: the memory is touched by atomic accesses only, but for what unsafe functions are told; the
// engine's calls come from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

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

    /// The same for the processor to touch, which it cannot in memory of a device.
    fn host_part(&self, start: usize, length: usize) -> Result<*mut u8> {
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
        if self.end().is_err() {
            // Memory that peers may still touch is left to them.
            std::mem::forget(self.memory.take());
        }
    }
}

/// Registered memory: where requests take bytes from and put them, and what peers read and write.
///
/// Peers may touch it at any time, so there are no references to its bytes: [`copy_from`] and
/// [`copy_to`] move them in and out. Dropping the region unregisters the memory, once no batch and no
/// prepared list uses it any more. A region that is leaked stays registered, and so does its memory.
///
/// `'a` is how long the memory lives: `'static` where the region owns it, else the [`Scope`].
///
/// [`copy_from`]: Region::copy_from
/// [`copy_to`]: Region::copy_to
/// [`Scope`]: crate::Scope
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
        let location = options.location.map(to_c).transpose()?;
        let mut inner = Registered {
            engine: engine.clone(),
            addr: memory.addr,
            length: memory.length,
            memory: Some(memory),
            host: options.is_host(),
            registered: false,
            tracker: tracker.cloned(),
        };
        // SAFETY: the memory stays valid until it is unregistered; the string is read during the call.
        let rc = unsafe {
            sys::te_register(
                engine.raw(),
                inner.addr() as *mut c_void,
                inner.length,
                or_null(&location),
                options.access.mask(),
            )
        };
        check(rc)?;
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
    /// [`Error::Unsupported`] for memory of a device.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.inner.host_part(offset, bytes.len())?;
        // SAFETY: inside memory of the host that the region keeps valid.
        unsafe { store(to, bytes) };
        Ok(())
    }

    /// Copies bytes out of the region, from `offset` on. Errors as of [`copy_from`].
    ///
    /// [`copy_from`]: Region::copy_from
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.inner.host_part(offset, bytes.len())?;
        // SAFETY: inside memory of the host that the region keeps valid.
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
    /// The memory is the host's, and as long as the reference lives nothing writes to it: no peer (by
    /// the region's access, or since the program knows), no unfinished READ, no `copy_from`.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised memory of that length; the caller says that it is quiet.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    /// The bytes, to be changed without a copy.
    ///
    /// # Safety
    ///
    /// The memory is the host's, and as long as the reference lives nothing else touches it: no peer (by
    /// the region's access, or since the program knows) and no unfinished request.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the caller says that nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// Unregisters the memory: when this returns `Ok`, no peer can touch it any more. Else the region
    /// comes back with the error, [`Error::Busy`] while a batch or a prepared list uses it.
    pub fn close(self) -> Result<(), (Region<'a>, Error)> {
        self.unregistered().map(drop)
    }

    /// The same, and gives the memory back if it came as `Vec` or `Box`; [`Error::Unsupported`] if not.
    pub fn into_vec(self) -> Result<Vec<u8>, (Region<'a>, Error)> {
        if !matches!(self.inner.memory, Some(Memory { owner: Owner::Vec(_), .. })) {
            let why = Error::Unsupported("the region was not made of a Vec".into());
            return Err((self, why));
        }
        let memory = self.unregistered()?.memory.take();
        Ok(memory.and_then(Memory::into_vec).unwrap_or_default())
    }

    fn unregistered(self) -> Result<Registered, (Region<'a>, Error)> {
        let life = self.life;
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| {
            let why = Error::Busy("a batch or a prepared list uses the region".into());
            (Region { inner, life }, why)
        })?;
        match inner.end() {
            Ok(()) => Ok(inner),
            Err(why) => Err((Region { inner: Arc::new(inner), life }, why)),
        }
    }
}

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
/// `to` is valid for writes of as many bytes as there are, and others access them atomically if at all.
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
/// `from` is valid for reads of as many bytes as there is room for, and others access them atomically
/// if at all.
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
    use super::{load, store};

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
