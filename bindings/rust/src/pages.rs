// SPDX-License-Identifier: Apache-2.0
//! Pages of a cache, named by their numbers.

use crate::engine::Handle;
use crate::error::{Error, Result};
use crate::region::Region;
use crate::request::{same_engine, Opcode};
use crate::segment::Segment;
use crate::sys;
use std::os::raw::{c_uint, c_void};
use std::sync::Arc;

/// The numbers of the pages of one side.
#[derive(Clone, Copy, Debug, Default)]
pub enum PageNumbers<'n> {
    /// 0, 1, 2 and so on.
    #[default]
    InOrder,
    /// Of 32 bits.
    Narrow(&'n [u32]),
    /// Of 64 bits.
    Wide(&'n [u64]),
}

impl PageNumbers<'_> {
    fn len(&self) -> Option<usize> {
        match self {
            PageNumbers::InOrder => None,
            PageNumbers::Narrow(numbers) => Some(numbers.len()),
            PageNumbers::Wide(numbers) => Some(numbers.len()),
        }
    }

    fn bits(&self) -> c_uint {
        match self {
            PageNumbers::InOrder => 0,
            PageNumbers::Narrow(_) => 32,
            PageNumbers::Wide(_) => 64,
        }
    }

    fn raw(&self) -> *const c_void {
        match self {
            PageNumbers::InOrder => std::ptr::null(),
            PageNumbers::Narrow(numbers) => numbers.as_ptr().cast(),
            PageNumbers::Wide(numbers) => numbers.as_ptr().cast(),
        }
    }
}

/// One side of [`Pages`]: part h of page k in layer l begins at
/// `base + k * stride + h * part_stride + l * layer_stride`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PagePool<'n> {
    /// On the local side an offset in the region, else an address in the segment.
    pub base: u64,
    /// How many pages there are: every number is below.
    pub pages: u64,
    /// Bytes from a page to the next.
    pub stride: u64,
    /// Bytes from a part of a page to the next.
    pub part_stride: u64,
    /// Bytes from a layer to the next.
    pub layer_stride: u64,
    /// Which pages are moved.
    pub numbers: PageNumbers<'n>,
}

/// Pages to be moved as one request by [`Batch::submit_pages`]. On the side that is written the strides
/// must keep the pages apart, and a page should be named once.
///
/// [`Batch::submit_pages`]: crate::Batch::submit_pages
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Opcode, PageNumbers, PagePool, Pages, SubmitOptions};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let cache = ours.register(vec![7; 8 * 4096], Access::LocalOnly)?;
/// let pool = theirs.register(vec![0; 8 * 4096], Access::Write)?;
/// let segment = ours.open(&theirs.name()?)?;
/// let batch = ours.batch(1)?;
/// batch.submit_pages(
///     &Pages {
///         opcode: Opcode::Write,
///         region: &cache,
///         segment: &segment,
///         length: 4096,
///         count: 2,
///         parts: 1,
///         layers: 1,
///         local: PagePool {
///             pages: 8,
///             stride: 4096,
///             numbers: PageNumbers::Narrow(&[5, 2]),
///             ..PagePool::default()
///         },
///         remote: PagePool { base: pool.addr(), pages: 8, stride: 4096, ..PagePool::default() },
///     },
///     &SubmitOptions::new(),
/// )?;
/// assert_eq!(batch.wait()?, 2 * 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pages<'r, 'a> {
    /// Read from the peer, or write to it.
    pub opcode: Opcode,
    /// The local memory.
    pub region: &'r Region<'a>,
    /// Whose the remote memory is.
    pub segment: &'r Segment,
    /// Bytes of a part: of a page, if it has only one.
    pub length: u64,
    /// How many pages are moved: as many as each side's numbers.
    pub count: usize,
    /// Of a page, such as heads; at least 1.
    pub parts: usize,
    /// At least 1.
    pub layers: usize,
    /// The local side.
    pub local: PagePool<'r>,
    /// The remote side.
    pub remote: PagePool<'r>,
}

impl Pages<'_, '_> {
    /// The bytes from the first one of the local pool to its last one.
    fn span(&self) -> Option<usize> {
        let steps = |stride: u64, n: u64| stride.checked_mul(n.saturating_sub(1));
        let span = self
            .length
            .checked_add(steps(self.local.stride, self.local.pages)?)?
            .checked_add(steps(self.local.part_stride, self.parts as u64)?)?
            .checked_add(steps(self.local.layer_stride, self.layers as u64)?)?;
        usize::try_from(span).ok()
    }

    /// Where the local pool begins, all of which is in the region.
    fn place(&self) -> Result<u64> {
        let range = usize::try_from(self.local.base)
            .ok()
            .and_then(|begin| Some(begin..begin.checked_add(self.span()?)?))
            .ok_or_else(|| Error::Invalid("the local pool is longer than any region".into()))?;
        Ok(self.region.inner.part(&range)? as usize as u64)
    }

    fn bits(&self) -> Result<c_uint> {
        let sides = [&self.local.numbers, &self.remote.numbers];
        let (a, b) = (sides[0].bits(), sides[1].bits());
        if a != 0 && b != 0 && a != b {
            return Err(Error::Invalid("page numbers of 32 bits and of 64".into()));
        }
        if sides.iter().any(|side| side.len().map_or(false, |n| n != self.count)) {
            return Err(Error::Invalid(format!("not as many page numbers as {}", self.count)));
        }
        Ok(a.max(b))
    }

    pub(crate) fn raw(&self, engine: &Arc<Handle>) -> Result<sys::te_pages> {
        same_engine(engine, self.region.inner.engine())?;
        same_engine(engine, &self.segment.inner.engine)?;
        let side = |pool: &PagePool<'_>, base| sys::te_page_side {
            base,
            pages: pool.pages,
            stride: pool.stride,
            part_stride: pool.part_stride,
            layer_stride: pool.layer_stride,
            index: pool.numbers.raw(),
        };
        Ok(sys::te_pages {
            size: std::mem::size_of::<sys::te_pages>(),
            opcode: self.opcode.raw(),
            target: self.segment.inner.id,
            length: self.length,
            n: self.count,
            parts: self.parts,
            layers: self.layers,
            index_bits: self.bits()?,
            local: side(&self.local, self.place()?),
            remote: side(&self.remote, self.remote.base),
        })
    }
}
