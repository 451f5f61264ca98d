// SPDX-License-Identifier: Apache-2.0
//! Which transports may carry requests.

use crate::error::Result;
use crate::sys;
use crate::text::to_c;
use std::ffi::CString;

/// Which transports may carry requests, by names such as "rdma" and "tcp", with commas between: of a segment
/// ([`Engine::open_with`]) or of one submit ([`SubmitOptions::paths`]). [`Batch::path`] tells which has.
///
/// [`Engine::open_with`]: crate::Engine::open_with
/// [`SubmitOptions::paths`]: crate::SubmitOptions::paths
/// [`Batch::path`]: crate::Batch::path
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Engine, Paths};
///
/// let ours = Engine::builder().name("127.0.0.1").build()?;
/// let theirs = Engine::builder().name("127.0.0.1").build()?;
/// let segment = ours.open_with(&theirs.name()?, &Paths::new().require("tcp,rdma"))?;
/// # drop(segment);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Paths {
    require: String,
    prefer: String,
    forbid: String,
}

impl Paths {
    /// Whichever is best.
    pub fn new() -> Self {
        Paths::default()
    }

    /// One of these or none: a request that none of them can carry is refused where it is submitted.
    pub fn require(mut self, names: impl Into<String>) -> Self {
        self.require = names.into();
        self
    }

    /// The first of these that can carry a request does, before all others that are allowed.
    pub fn prefer(mut self, names: impl Into<String>) -> Self {
        self.prefer = names.into();
        self
    }

    /// None of these.
    pub fn forbid(mut self, names: impl Into<String>) -> Self {
        self.forbid = names.into();
        self
    }
}

/// The same as the C interface takes it; `raw` points into the texts.
pub(crate) struct RawPaths {
    pub(crate) raw: sys::te_paths,
    _texts: [CString; 3],
}

impl RawPaths {
    pub(crate) fn of(paths: &Paths) -> Result<RawPaths> {
        let texts = [to_c(&paths.require)?, to_c(&paths.prefer)?, to_c(&paths.forbid)?];
        let raw = sys::te_paths {
            size: std::mem::size_of::<sys::te_paths>(),
            require: texts[0].as_ptr(),
            prefer: texts[1].as_ptr(),
            forbid: texts[2].as_ptr(),
        };
        Ok(RawPaths { raw, _texts: texts })
    }
}
