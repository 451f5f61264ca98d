// SPDX-License-Identifier: Apache-2.0
//! Models of the lock-free structures of `src/`, explored by loom: every interleaving of two to four threads
//! within a bound of preemptions, and for each of them every value that the C11 memory orders let a load return.
//!
//! A model repeats the atomic operations of the C code, in the same order and with the same memory orders. A line
//!
//! ```text
//! // C src/base/pool.c tei_handles_unpin: state.fetch_sub release
//! ```
//!
//! tells which function it stands for, and all atomic operations of that function in the order of its text.
//! `tests/lint/test_models.py` compares the lines with the sources: who changes an order in C has to look at the model.
//!
//! Each property has its mutations: the same model with one order weakened or one step moved, in which loom must find
//! the failure. They are the tests with `#[should_panic]`.
//!
//! What loom cannot express, for all models:
//!
//! - It takes sequentially consistent accesses for acquire and release. Where the code relies on the one order of such
//!   accesses, `kit::seq_cst()`, a fence of that order, stands between the store and the load. Only there: the fence
//!   of loom also synchronizes, and would hide a missing release elsewhere.
//! - A read-modify-write reads the latest value always, which C11 says as well; a weak compare-exchange never fails
//!   without a reason.
//! - It does not keep a read-modify-write beside the value that it has read, where another thread stores meanwhile: it
//!   may report what C11 rules out. A model that exchanges looks first, as the code does.
//! - Of the interleavings it leaves out those that it takes for the same as others, by the last access of each atomic.
//!   A store behind a load of the same thread may so hide that an earlier reader could have come later. Hence readers
//!   are the threads that are started last, and hence the mutations: what they find is explored.
//! - Memory that is not atomic is a `loom::cell::UnsafeCell`, of which loom reports each access that races. Bytes that
//!   another process reads while they change are relaxed atomics instead.
//! - The kernel's objects (eventfd, futex) are made of loom's own; each module says how.
#![cfg(test)]
// Loom's cells are for one thread as the compiler sees them, and loom watches how they are shared.
#![allow(clippy::arc_with_non_send_sync)]

mod batch;
mod event_loop;
mod gpuipc_page;
mod handles;
mod host_table;
mod kit;
mod mpsc;
mod park;
mod publish;
mod rdma;
mod refresh;
mod refs;
mod waker;
