// SPDX-License-Identifier: Apache-2.0
//! Zero-copy transfers between the memory of processes, hosts and devices: safe wrappers over
//! libtransfer_engine.
//!
//! An [`Engine`] moves bytes between [`Region`]s, which is memory that this process has registered, and
//! the [`Segment`]s of other engines, which is memory that they have registered. A [`Batch`] takes
//! [`Request`]s and tells how they end.
//!
//! # Memory that others write
//!
//! A peer with the right to do so writes into a region at any time, without this process taking part.
//! For Rust this is memory that another thread writes: a `&[u8]` or `&mut [u8]` of it would be undefined
//! behaviour. So a region takes its memory away, or borrows it for all of its life, and gives its bytes
//! only by copy: [`Region::copy_to`] and [`Region::copy_from`] use relaxed atomic accesses, which at worst
//! give a mix of old and new bytes while a transfer is under way. Of threads of this process one writes
//! a region at a time, or several read it; the others wait. A program that knows the memory to be quiet
//! avoids the copy with the unsafe [`Region::as_slice`], or takes the memory back with
//! [`Region::into_vec`].
//!
//! # Memory that is not freed too early
//!
//! Safe Rust may leak any value, so no promise rests on a destructor alone:
//!
//! - A region that owns its memory ([`Engine::register`], [`Engine::alloc`]) shares the ownership with
//!   every batch that has requests on it and every prepared list. Whatever is dropped first or leaked,
//!   the memory stays until all of them are gone and no peer can touch it.
//! - Borrowed memory is registered in a [`Scope`] ([`Engine::scope`]). The scope ends its registrations
//!   and requests itself before the borrow ends, also of batches and regions that were leaked.
//! - Dropping a [`Batch`] cancels its unfinished requests and waits for the memory to be quiet.
//!
//! # Threads
//!
//! Everything here is `Send` and `Sync`: the C interface allows every call from any thread at any time,
//! but for the end of an engine, which comes with its last owner. In a forked child every call of an
//! engine of its parent fails with [`Error::Closed`], copies out of and into a region included.
//!
//! # Finding the library
//!
//! The build looks in the folder `TRANSFER_ENGINE_LIB_DIR`, else asks pkg-config, else leaves it to the
//! linker. The feature `static` links the archive.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

// The helpers of the tests name the crate as its users do.
#[cfg(test)]
extern crate self as transfer_engine;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod batch;
mod counter;
mod engine;
mod error;
mod event;
mod lease;
mod log;
mod notify;
mod observe;
mod pages;
mod paths;
mod prepared;
mod region;
mod request;
mod scope;
mod segment;
mod stream;
mod sys;
mod text;

pub use batch::{Batch, Path, State, Status};
pub use counter::{Adder, Counter};
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, ErrorClass, ErrorKind, Result};
pub use event::{BatchId, Events};
pub use lease::{Lease, LeaseKey};
pub use log::{set_log_level, set_log_sink, LogLevel, LogSink};
pub use notify::Notification;
pub use observe::{Explanation, Stats};
pub use pages::{PageNumbers, PagePool, Pages};
pub use paths::Paths;
pub use prepared::{Item, Prepared};
pub use region::{Access, CloseError, OwnedBytes, Region, RegionOptions};
pub use request::{Opcode, Request, SubmitOptions};
pub use scope::Scope;
pub use segment::{RemoteBuffer, Segment, Warmed};
pub use stream::Stream;

/// The version of the library that is linked at run time.
pub fn version() -> &'static str {
    // SAFETY: never NULL, and static.
    unsafe { error::static_text(sys::te_version()) }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
