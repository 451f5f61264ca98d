// SPDX-License-Identifier: Apache-2.0
//! SIGINT and SIGTERM, waited for instead of being delivered. The declarations are Linux's.

use std::os::raw::{c_int, c_long, c_void};
use std::time::Duration;

const SIG_BLOCK: c_int = 0;
const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;

/// 128 bytes with glibc and with musl.
#[repr(C)]
struct SigSet([u64; 16]);

#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

extern "C" {
    fn sigemptyset(set: *mut SigSet) -> c_int;
    fn sigaddset(set: *mut SigSet, signal: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SigSet, old: *mut SigSet) -> c_int;
    fn sigtimedwait(set: *const SigSet, info: *mut c_void, limit: *const Timespec) -> c_int;
}

fn stop_signals() -> SigSet {
    let mut set = SigSet([0; 16]);
    // SAFETY: a set of the size that the calls know.
    unsafe {
        sigemptyset(&mut set);
        sigaddset(&mut set, SIGINT);
        sigaddset(&mut set, SIGTERM);
    }
    set
}

/// Blocks them in this thread and those that it starts.
pub fn block() {
    // SAFETY: a set of the size that the call knows; NULL: the old one is not wanted.
    unsafe { pthread_sigmask(SIG_BLOCK, &stop_signals(), std::ptr::null_mut()) };
}

/// Whether one came within that time.
pub fn interrupted(limit: Duration) -> bool {
    let limit = Timespec {
        seconds: limit.as_secs() as c_long,
        nanoseconds: limit.subsec_nanos() as c_long,
    };
    // SAFETY: as above.
    unsafe { sigtimedwait(&stop_signals(), std::ptr::null_mut(), &limit) > 0 }
}
