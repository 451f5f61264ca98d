// SPDX-License-Identifier: Apache-2.0
//! Prepared lists: pieces of memory that are moved again and again.

use crate::engine::Handle;
use crate::error::{check, Result};
use crate::region::{Region, Registered};
use crate::request::same_engine;
use crate::segment::{Opened, Segment};
use crate::sys;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::raw::c_void;
use std::sync::Arc;

/// One piece of a prepared list: a part of a region, and where its like is in the segment.
#[derive(Clone, Debug)]
pub struct Item<'r, 'a> {
    /// The region.
    pub region: &'r Region<'a>,
    /// The part of it.
    pub range: Range<usize>,
    /// The address in the segment.
    pub remote: u64,
}

pub(crate) struct List {
    segment: Arc<Opened>,
    /// Without them an address could become that of other memory, which the list does not keep valid.
    _regions: Vec<Arc<Registered>>,
    id: sys::te_prep,
}

impl List {
    pub(crate) fn engine(&self) -> &Arc<Handle> {
        &self.segment.engine
    }

    pub(crate) fn id(&self) -> sys::te_prep {
        self.id
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the engine lives; no other thread is in a call with a list that is being dropped.
        unsafe { sys::te_prep_destroy(self.engine().raw(), self.id) };
    }
}

/// Pieces that were checked and looked up once, from [`Segment::prepare`], for
/// [`Batch::submit_prepared`]. What a submit of them costs does not depend on how many regions and
/// buffers there are.
///
/// It shares the ownership of its regions. Threads may submit from one list at the same time.
///
/// [`Batch::submit_prepared`]: crate::Batch::submit_prepared
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Item, Opcode, SubmitOptions};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let cache = ours.register(vec![7; 8 * 4096], Access::LocalOnly)?;
/// let pool = theirs.register(vec![0; 8 * 4096], Access::Write)?;
/// let segment = ours.open(&theirs.name()?)?;
/// let items: Vec<Item> = (0..8)
///     .map(|i| Item {
///         region: &cache,
///         range: i * 4096..(i + 1) * 4096,
///         remote: pool.addr() + i as u64 * 4096,
///     })
///     .collect();
/// let blocks = segment.prepare(&items)?;
///
/// let batch = ours.batch(2)?;
/// batch.submit_prepared(&blocks, Opcode::Write, &[5, 2], &SubmitOptions::new())?;
/// assert_eq!(batch.wait()?, 2 * 4096);
/// # Ok(())
/// # }
/// ```
pub struct Prepared<'a> {
    pub(crate) inner: Arc<List>,
    len: usize,
    life: PhantomData<&'a ()>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(segment: &Segment, items: &[Item<'_, 'a>]) -> Result<Prepared<'a>> {
        let engine = &segment.inner.engine;
        let mut local: Vec<*mut c_void> = Vec::with_capacity(items.len());
        let mut regions: Vec<Arc<Registered>> = Vec::new();
        for item in items {
            same_engine(engine, item.region.inner.engine())?;
            local.push(item.region.inner.part(&item.range)?.cast());
            regions.push(item.region.inner.clone());
        }
        regions.sort_unstable_by_key(|r| r.addr());
        regions.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let remote: Vec<u64> = items.iter().map(|i| i.remote).collect();
        let length: Vec<usize> = items.iter().map(|i| i.range.len()).collect();
        let mut id = 0;
        // SAFETY: the engine lives; the three arrays have that length and are copied.
        check(unsafe {
            sys::te_prep_create(
                engine.raw(),
                segment.inner.id,
                local.as_ptr(),
                remote.as_ptr(),
                length.as_ptr(),
                items.len(),
                &mut id,
            )
        })?;
        let inner = Arc::new(List { segment: segment.inner.clone(), _regions: regions, id });
        Ok(Prepared { inner, len: items.len(), life: PhantomData })
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("id", &self.inner.id).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{sys, Item};
    use crate::common::engine;
    use crate::{Access, ErrorKind};

    #[test]
    fn a_list_is_destroyed_with_its_last_owner() {
        let engine = engine();
        let region = engine.register(vec![0; 100], Access::LocalOnly).unwrap();
        let item = Item { region: &region, range: 0..10, remote: region.addr() };
        let list = engine.local_segment().prepare(&[item]).unwrap();
        let id = list.inner.id();
        drop(list);
        // SAFETY: the engine lives; any number may be asked for.
        let rc = unsafe { sys::te_prep_destroy(engine.raw(), id) };
        assert_eq!(rc, ErrorKind::NotFound.code());
    }
}
