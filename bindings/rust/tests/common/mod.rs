// SPDX-License-Identifier: Apache-2.0
//! What the tests share.
#![allow(dead_code)] // each test uses a part

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::raw::{c_int, c_short, c_ulong};
use std::os::unix::io::AsRawFd;
use transfer_engine::Engine;

/// Random numbers from a seed of the standard library's (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random(RandomState::new().build_hasher().finish())
    }

    pub fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

pub fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    }
    bytes
}

pub fn engine() -> Engine {
    Engine::builder().name("127.0.0.1").option("MC_FORCE_TCP", "1").build().unwrap()
}

pub fn pair() -> (Engine, Engine) {
    (engine(), engine())
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

extern "C" {
    fn poll(fds: *mut PollFd, n: c_ulong, timeout_ms: c_int) -> c_int;
}

/// Whether a descriptor becomes readable within so many milliseconds.
pub fn readable(fd: &impl AsRawFd, timeout_ms: i32) -> bool {
    let mut row = PollFd { fd: fd.as_raw_fd(), events: 1, revents: 0 };
    // SAFETY: one row, and that many are told.
    unsafe { poll(&mut row, 1, timeout_ms) == 1 }
}
