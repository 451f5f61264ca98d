// SPDX-License-Identifier: Apache-2.0
//! What requests wait for, and what waits for them.

use crate::error::Result;
use crate::sys;
use crate::text::to_c;
use std::ffi::CString;
use std::io;
use std::os::raw::c_void;
use std::os::unix::io::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// A stream of a device, or a descriptor: requests are begun after what it does
/// ([`SubmitOptions::after`]), or it goes on when they have ended ([`SubmitOptions::then`]).
///
/// [`SubmitOptions::after`]: crate::SubmitOptions::after
/// [`SubmitOptions::then`]: crate::SubmitOptions::then
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
/// use transfer_engine::{Access, Engine, Request, Stream, SubmitOptions};
///
/// let engine = Engine::builder().name("127.0.0.1").build()?;
/// let source = engine.register(vec![7; 100], Access::LocalOnly)?;
/// let target = engine.register(vec![0; 100], Access::LocalOnly)?;
/// let own = engine.local_segment();
/// let (ready, mut computed) = std::os::unix::net::UnixStream::pair()?;
/// let options = SubmitOptions::new().after(Stream::descriptor(&ready)?);
/// let batch = engine.batch(1)?;
/// batch.submit_with(&[Request::write(&source, 0..100, &own, target.addr())], &options)?;
/// computed.write_all(b"!")?; // now they are begun
/// batch.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Device(String, usize),
    Descriptor(Arc<OwnedFd>),
}

impl Stream {
    /// A duplicate of a descriptor, which is waited for until it can be read, but not read; to be
    /// signalled it must be an eventfd, to which 1 is written.
    pub fn descriptor(fd: impl AsFd) -> io::Result<Stream> {
        let own = fd.as_fd().try_clone_to_owned()?;
        Ok(Stream { place: Place::Descriptor(Arc::new(own)) })
    }

    /// A stream of the primary context of a device, "cuda:0": what is submitted to it before the
    /// requests is waited for, and what is submitted after them waits.
    ///
    /// # Safety
    ///
    /// The handle is one of that device's driver, and its stream is there when requests are submitted
    /// with it.
    pub unsafe fn device(location: impl Into<String>, handle: *mut c_void) -> Stream {
        Stream { place: Place::Device(location.into(), handle as usize) }
    }
}

/// The same as the C interface takes it; `raw` points into the text.
pub(crate) struct RawStream {
    pub(crate) raw: sys::te_stream,
    _location: Option<CString>,
}

impl RawStream {
    pub(crate) fn of(stream: &Stream) -> Result<RawStream> {
        let mut raw = sys::te_stream {
            size: std::mem::size_of::<sys::te_stream>(),
            location: std::ptr::null(),
            stream: std::ptr::null_mut(),
            fd: 0,
        };
        let mut location = None;
        match &stream.place {
            Place::Descriptor(fd) => raw.fd = fd.as_raw_fd(),
            Place::Device(at, handle) => {
                raw.location = location.insert(to_c(at)?).as_ptr();
                raw.stream = *handle as *mut c_void;
            }
        }
        Ok(RawStream { raw, _location: location })
    }
}
