// SPDX-License-Identifier: Apache-2.0
//! Messages of peers.

use crate::engine::Handle;
use crate::error::{check, Result};
use crate::sys;
use crate::text::bytes_of;
use std::borrow::Cow;

/// A message that a peer sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// What the sender called it; mostly UTF-8.
    pub name: Vec<u8>,
    /// What it says; mostly UTF-8.
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

pub(crate) fn receive(engine: &Handle) -> Result<Vec<Notification>> {
    let mut array: *mut sys::te_notification = std::ptr::null_mut();
    let mut n = 0;
    // SAFETY: the engine lives.
    check(unsafe { sys::te_notify_recv(engine.raw(), &mut array, &mut n) })?;
    let mut taken = Vec::with_capacity(n);
    // SAFETY: the array has n rows of strings, is ours, and is released once, after the copies.
    unsafe {
        for i in 0..n {
            let row = &*array.add(i);
            taken.push(Notification { name: bytes_of(row.name), message: bytes_of(row.msg) });
        }
        sys::te_notify_free(array, n);
    }
    Ok(taken)
}
