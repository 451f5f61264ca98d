// SPDX-License-Identifier: Apache-2.0
//! Strings on their way to the C interface and back.

use crate::error::{Error, ErrorKind, Result};
use std::ffi::CString;
use std::os::raw::{c_char, c_int};

const FIRST: usize = 1024;
const LARGEST: usize = 64 << 20;

pub(crate) fn to_c(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Invalid(format!("{text:?} has a NUL byte in it")))
}

/// The pointer to pass, NULL for nothing.
pub(crate) fn or_null(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())
}

/// The text up to the NUL. What is no UTF-8 is replaced.
fn from_buffer(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|b| *b == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// The text of an array that ends with NUL.
pub(crate) fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| *c as u8).collect();
    from_buffer(&bytes)
}

/// The text that `write` puts into a buffer, which grows while it says that it is too small.
pub(crate) fn written(
    too_small: ErrorKind,
    mut write: impl FnMut(*mut c_char, usize) -> c_int,
) -> Result<String> {
    let mut room = FIRST;
    loop {
        let mut buffer = vec![0u8; room];
        let rc = write(buffer.as_mut_ptr().cast(), room);
        if rc >= 0 {
            return Ok(from_buffer(&buffer));
        }
        if rc != too_small.code() || room >= LARGEST {
            return Err(Error::last(rc));
        }
        room *= 8;
    }
}

/// The text that `write` puts into a buffer, cut to fit, and what it returned.
pub(crate) fn cut(room: usize, write: impl FnOnce(*mut c_char, usize) -> c_int) -> (String, c_int) {
    let mut buffer = vec![0u8; room];
    let rc = write(buffer.as_mut_ptr().cast(), room);
    (from_buffer(&buffer), rc)
}
