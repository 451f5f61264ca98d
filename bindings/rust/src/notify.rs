// SPDX-License-Identifier: Apache-2.0
//! Messages of peers.

use crate::engine::Handle;
use crate::error::{check, Result};
use crate::sys;
use std::borrow::Cow;

/// A message that a peer sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// What the sender called it; mostly UTF-8, but any bytes.
    pub name: Vec<u8>,
    /// What it says; likewise.
    pub message: Vec<u8>,
}

impl Notification {
    /// The name as text.
    pub fn name_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// The message as text.
    pub fn message_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.message)
    }
}

pub(crate) fn raw_message(name: &[u8], message: &[u8]) -> sys::te_message {
    sys::te_message {
        name: name.as_ptr().cast(),
        name_len: name.len(),
        msg: message.as_ptr().cast(),
        msg_len: message.len(),
    }
}

/// # Safety
/// `data` has `n` bytes, or `n` is 0.
unsafe fn copy(data: *const std::os::raw::c_void, n: usize) -> Vec<u8> {
    if n == 0 {
        return Vec::new();
    }
    // SAFETY: the caller says so.
    unsafe { std::slice::from_raw_parts(data.cast(), n) }.to_vec()
}

pub(crate) fn receive(engine: &Handle) -> Result<Vec<Notification>> {
    let mut array: *mut sys::te_message = std::ptr::null_mut();
    let mut n = 0;
    // SAFETY: the engine lives.
    check(unsafe { sys::te_notify_recv_bytes(engine.raw(), &mut array, &mut n) })?;
    let mut taken = Vec::with_capacity(n);
    // SAFETY: the array has n rows of bytes, is ours, and is released once, after the copies.
    unsafe {
        for i in 0..n {
            let row = &*array.add(i);
            taken.push(Notification {
                name: copy(row.name, row.name_len),
                message: copy(row.msg, row.msg_len),
            });
        }
        sys::te_message_free(array, n);
    }
    Ok(taken)
}
