// SPDX-License-Identifier: Apache-2.0
//! Memory that one peer reaches by a key, until it is revoked.

use crate::engine::Handle;
use crate::error::{check, Error, Result};
use crate::region::{Access, Region};
use crate::request::milliseconds;
use crate::sys;
use crate::text::to_c;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What the holder of a lease shows ([`SubmitOptions::lease`]). Whoever has it may do what the lease allows: send it
/// where others do not read, and keep it out of logs. [`fmt::Debug`] does not show it.
///
/// [`SubmitOptions::lease`]: crate::SubmitOptions::lease
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    bytes: [u8; 24],
}

impl LeaseKey {
    /// All of it, on every machine, to be sent to the peer.
    pub fn to_bytes(self) -> [u8; 24] {
        self.bytes
    }

    pub(crate) fn raw(self) -> sys::te_lease_key {
        sys::te_lease_key { bytes: self.bytes }
    }
}

impl From<[u8; 24]> for LeaseKey {
    fn from(bytes: [u8; 24]) -> LeaseKey {
        LeaseKey { bytes }
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseKey").finish_non_exhaustive()
    }
}

/// What whoever has its key may do in a part of a region, beside what [`Access`] lets all peers do; from
/// [`Region::lease`]. It is revoked when it is dropped; one that is leaked lasts until its time is over, its region is
/// unregistered or its engine ends.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, LeaseKey, Request, SubmitOptions};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let source = ours.register(vec![7; 100], Access::LocalOnly)?;
/// let pool = theirs.register(vec![0; 4096], Access::LocalOnly)?;
///
/// let lease = pool.lease(1000..1100, Access::Write, None)?;
/// let (key, at) = (lease.key().to_bytes(), pool.addr() + 1000); // as a part of the request, to the peer
///
/// let segment = ours.open(&theirs.name()?)?;
/// let batch = ours.batch(1)?;
/// let options = SubmitOptions::new().lease(LeaseKey::from(key));
/// batch.submit_with(&[Request::write(&source, 0..100, &segment, at)], &options)?;
/// batch.wait()?;
///
/// lease.revoke()?;
/// assert_eq!(pool.to_vec(1000..1100)?, [7; 100]);
/// # Ok(())
/// # }
/// ```
#[must_use = "a lease is revoked when it is dropped"]
pub struct Lease {
    engine: Arc<Handle>,
    id: sys::te_lease,
    key: LeaseKey,
    revoked: bool,
}

impl Lease {
    pub(crate) fn grant(
        region: &Region<'_>,
        range: Range<usize>,
        access: Access,
        lifetime: Option<Duration>,
        allow: Option<&str>,
    ) -> Result<Lease> {
        if lifetime == Some(Duration::ZERO) {
            return Err(Error::Invalid("a lease of no time; None: until it is revoked".into()));
        }
        let engine = region.inner.engine();
        let (mut id, mut key) = (0, sys::te_lease_key { bytes: [0; 24] });
        let allow = allow.map(to_c).transpose()?;
        let (e, addr, n) = (engine.raw(), region.inner.part(&range)?.cast(), range.len());
        let (access, ms) = (access.mask(), lifetime.map_or(0, milliseconds));
        // SAFETY: the engine lives, and finds the memory among what is registered; two values are written.
        check(unsafe {
            match &allow {
                None => sys::te_lease_grant(e, addr, n, access, ms, &mut id, &mut key),
                Some(names) => {
                    let names = names.as_ptr();
                    sys::te_lease_grant_allow(e, addr, n, access, ms, names, &mut id, &mut key)
                }
            }
        })?;
        Ok(Lease { engine: engine.clone(), id, key: key.bytes.into(), revoked: false })
    }

    /// What its holder shows.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// When it returns no byte is read or written by the lease, now or later; it waits for no peer. The requests of
    /// the holder end [`State::Invalid`] with [`ErrorKind::Access`]; one that was under way may have moved any part of
    /// its bytes.
    ///
    /// [`State::Invalid`]: crate::State::Invalid
    /// [`ErrorKind::Access`]: crate::ErrorKind::Access
    pub fn revoke(mut self) -> Result<()> {
        self.revoked = true;
        // SAFETY: the engine lives; the id is checked by it.
        check(unsafe { sys::te_revoke(self.engine.raw(), self.id) })?;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.revoked {
            // SAFETY: as above.
            unsafe { sys::te_revoke(self.engine.raw(), self.id) };
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("id", &self.id).finish_non_exhaustive()
    }
}
