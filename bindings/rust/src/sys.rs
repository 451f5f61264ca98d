// SPDX-License-Identifier: Apache-2.0
//! The declarations of te.h and of the headers that it includes, as far as they are used. The tests
//! beside this file compare them with the headers.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

pub type te_segment = i32;
pub type te_batch = u64;
pub type te_prep = u64;
pub type te_counter = u64;
pub type te_adder = u64;
pub type te_lease = u64;
/// An enum in C, as wide as an int.
pub type te_log_level = c_int;

pub const TE_LOCAL_SEGMENT: te_segment = 0;

pub const TE_LOCAL_ONLY: c_uint = 0;
pub const TE_REMOTE_READ: c_uint = 1;
pub const TE_REMOTE_WRITE: c_uint = 2;
pub const TE_REMOTE_RW: c_uint = 3;

pub const TE_READ: c_int = 0;
pub const TE_WRITE: c_int = 1;

pub const TE_WAITING: c_int = 0;
pub const TE_PENDING: c_int = 1;
pub const TE_INVALID: c_int = 2;
pub const TE_CANCELED: c_int = 3;
pub const TE_COMPLETED: c_int = 4;
pub const TE_TIMEOUT: c_int = 5;
pub const TE_FAILED: c_int = 6;

pub const TE_LOG_TRACE: c_int = 0;
pub const TE_LOG_DEBUG: c_int = 1;
pub const TE_LOG_INFO: c_int = 2;
pub const TE_LOG_WARN: c_int = 3;
pub const TE_LOG_ERROR: c_int = 4;
pub const TE_LOG_OFF: c_int = 5;

/// Opaque.
#[repr(C)]
pub struct te_engine {
    _private: [u8; 0],
}

pub type te_log_sink = extern "C" fn(arg: *mut c_void, level: te_log_level, line: *const c_char);

#[repr(C)]
pub struct te_options {
    pub size: usize,
    pub metadata: *const c_char,
    pub local_server_name: *const c_char,
    pub ip_or_host_name: *const c_char,
    pub rpc_port: u32,
    pub auto_discover: c_int,
    pub set: *mut c_void,
}

#[repr(C)]
pub struct te_buffer {
    pub addr: *mut c_void,
    pub length: usize,
}

#[repr(C)]
pub struct te_request {
    pub opcode: c_int,
    pub source: *mut c_void,
    pub target: te_segment,
    pub target_offset: u64,
    pub length: u64,
}

#[repr(C)]
pub struct te_status {
    pub state: c_int,
    pub error: c_int,
    pub bytes: u64,
}

#[repr(C)]
pub struct te_path {
    pub size: usize,
    pub transport: [c_char; 32],
    pub nic: [c_char; 64],
    pub changes: u32,
    pub staged: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct te_warmed {
    pub transport: [c_char; 32],
    pub error: c_int,
    pub ready: u32,
    pub opening: u32,
    pub failed: u32,
    pub time_ns: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
pub struct te_warm {
    pub size: usize,
    pub n: usize,
    pub time_ns: u64,
    pub by: [te_warmed; 16],
}

#[repr(C)]
pub struct te_paths {
    pub size: usize,
    pub require: *const c_char,
    pub prefer: *const c_char,
    pub forbid: *const c_char,
}

#[repr(C)]
pub struct te_stream {
    pub size: usize,
    pub location: *const c_char,
    pub stream: *mut c_void,
    pub fd: c_int,
}

#[repr(C)]
pub struct te_submit_opts {
    pub size: usize,
    pub deadline_ms: i64,
    pub notify_name: *const c_char,
    pub notify_msg: *const c_char,
    pub notify_target: te_segment,
    pub traceparent: *const c_char,
    pub paths: *const te_paths,
    pub after: *const te_stream,
    pub then: *const te_stream,
    pub lease: *const te_lease_key,
}

#[repr(C)]
pub struct te_lease_key {
    pub bytes: [u8; 24],
}

#[repr(C)]
pub struct te_page_side {
    pub base: u64,
    pub pages: u64,
    pub stride: u64,
    pub part_stride: u64,
    pub layer_stride: u64,
    pub index: *const c_void,
}

#[repr(C)]
pub struct te_pages {
    pub size: usize,
    pub opcode: c_int,
    pub target: te_segment,
    pub length: u64,
    pub n: usize,
    pub parts: usize,
    pub layers: usize,
    pub index_bits: c_uint,
    pub local: te_page_side,
    pub remote: te_page_side,
}

#[repr(C)]
pub struct te_message {
    pub name: *const c_void,
    pub name_len: usize,
    pub msg: *const c_void,
    pub msg_len: usize,
}

#[repr(C)]
#[derive(Default)]
pub struct te_stats {
    pub size: usize,
    pub requests_submitted: u64,
    pub requests_completed: u64,
    pub requests_failed: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub served_requests: u64,
    pub served_bytes_out: u64,
    pub served_bytes_in: u64,
    pub served_rejected: u64,
    pub retries: u64,
    pub reconnects: u64,
    pub refreshes: u64,
    pub connections: u64,
    pub regions: u64,
    pub segments_open: u64,
    pub notifications_sent: u64,
    pub notifications_received: u64,
    pub metadata_failures: u64,
    pub metadata_down: u64,
}

extern "C" {
    pub fn te_version() -> *const c_char;
    pub fn te_strerror(err: c_int) -> *const c_char;
    pub fn te_errname(err: c_int) -> *const c_char;
    pub fn te_errmsg() -> *const c_char;
    pub fn te_log_set_sink(sink: Option<te_log_sink>, arg: *mut c_void);
    pub fn te_log_set_level(level: te_log_level);
    pub fn te_options_init_size(o: *mut te_options, size: usize);
    pub fn te_option_set(o: *mut te_options, name: *const c_char, value: *const c_char) -> c_int;
    pub fn te_options_fini(o: *mut te_options);
    pub fn te_engine_create(o: *const te_options, out: *mut *mut te_engine) -> c_int;
    pub fn te_engine_destroy(e: *mut te_engine);
    pub fn te_engine_addr(e: *mut te_engine, buf: *mut c_char, n: usize) -> c_int;
    pub fn te_engine_name(e: *mut te_engine, buf: *mut c_char, n: usize) -> c_int;
    pub fn te_transport_install(
        e: *mut te_engine,
        name: *const c_char,
        arg: *const c_char,
    ) -> c_int;
    pub fn te_transport_uninstall(e: *mut te_engine, name: *const c_char) -> c_int;
    pub fn te_topology_json(e: *mut te_engine, buf: *mut c_char, n: usize) -> c_int;
    pub fn te_register(
        e: *mut te_engine,
        addr: *mut c_void,
        length: usize,
        location: *const c_char,
        access: c_uint,
    ) -> c_int;
    pub fn te_register_allow(
        e: *mut te_engine,
        bufs: *const te_buffer,
        n: usize,
        location: *const c_char,
        access: c_uint,
        allow: *const c_char,
    ) -> c_int;
    pub fn te_unregister(e: *mut te_engine, addr: *mut c_void) -> c_int;
    pub fn te_alloc(
        e: *mut te_engine,
        length: usize,
        location: *const c_char,
        out: *mut *mut c_void,
    ) -> c_int;
    pub fn te_free(e: *mut te_engine, addr: *mut c_void) -> c_int;
    pub fn te_open_with(
        e: *mut te_engine,
        name: *const c_char,
        paths: *const te_paths,
        out: *mut te_segment,
    ) -> c_int;
    pub fn te_open_life(
        e: *mut te_engine,
        name: *const c_char,
        incarnation: u64,
        paths: *const te_paths,
        out: *mut te_segment,
    ) -> c_int;
    pub fn te_incarnation(e: *const te_engine) -> u64;
    pub fn te_segment_incarnation(e: *mut te_engine, segment: te_segment, out: *mut u64) -> c_int;
    pub fn te_close(e: *mut te_engine, seg: te_segment) -> c_int;
    pub fn te_refresh(e: *mut te_engine, name: *const c_char) -> c_int;
    pub fn te_segment_buffers(
        e: *mut te_engine,
        seg: te_segment,
        bufs: *mut te_buffer,
        n: usize,
        total: *mut usize,
    ) -> c_int;
    pub fn te_batch_alloc(e: *mut te_engine, capacity: usize, out: *mut te_batch) -> c_int;
    pub fn te_submit(
        e: *mut te_engine,
        b: te_batch,
        reqs: *const te_request,
        n: usize,
        opts: *const te_submit_opts,
    ) -> c_int;
    pub fn te_submit_pages(
        e: *mut te_engine,
        b: te_batch,
        pages: *const te_pages,
        opts: *const te_submit_opts,
    ) -> c_int;
    pub fn te_prep_create(
        e: *mut te_engine,
        target: te_segment,
        local: *const *mut c_void,
        remote: *const u64,
        length: *const usize,
        n: usize,
        out: *mut te_prep,
    ) -> c_int;
    pub fn te_prep_submit(
        e: *mut te_engine,
        b: te_batch,
        prep: te_prep,
        opcode: c_int,
        index: *const u32,
        n: usize,
        opts: *const te_submit_opts,
    ) -> c_int;
    pub fn te_prep_destroy(e: *mut te_engine, prep: te_prep) -> c_int;
    pub fn te_status(e: *mut te_engine, b: te_batch, task: usize, out: *mut te_status) -> c_int;
    pub fn te_batch_status(e: *mut te_engine, b: te_batch, out: *mut te_status) -> c_int;
    pub fn te_status_msg(
        e: *mut te_engine,
        b: te_batch,
        task: usize,
        buf: *mut c_char,
        n: usize,
    ) -> c_int;
    pub fn te_path(e: *mut te_engine, b: te_batch, task: usize, out: *mut te_path) -> c_int;
    pub fn te_warm(e: *mut te_engine, seg: te_segment, timeout_ms: i64, out: *mut te_warm)
        -> c_int;
    pub fn te_wait(e: *mut te_engine, b: te_batch, timeout_ms: i64) -> c_int;
    pub fn te_cancel(e: *mut te_engine, b: te_batch) -> c_int;
    pub fn te_batch_free(e: *mut te_engine, b: te_batch) -> c_int;
    pub fn te_event_fd(e: *mut te_engine) -> c_int;
    pub fn te_done(e: *mut te_engine, ids: *mut te_batch, n: usize) -> c_int;
    pub fn te_notify(
        e: *mut te_engine,
        seg: te_segment,
        name: *const c_char,
        msg: *const c_char,
    ) -> c_int;
    pub fn te_notify_bytes(e: *mut te_engine, seg: te_segment, m: *const te_message) -> c_int;
    pub fn te_notify_after(
        e: *mut te_engine,
        b: te_batch,
        seg: te_segment,
        m: *const te_message,
    ) -> c_int;
    pub fn te_notify_recv_bytes(
        e: *mut te_engine,
        out: *mut *mut te_message,
        n: *mut usize,
    ) -> c_int;
    pub fn te_message_free(arr: *mut te_message, n: usize);
    pub fn te_probe(e: *mut te_engine, name: *const c_char) -> c_int;
    pub fn te_stats(e: *mut te_engine, out: *mut te_stats) -> c_int;
    pub fn te_explain(
        e: *mut te_engine,
        req: *const te_request,
        buf: *mut c_char,
        n: usize,
    ) -> c_int;
    pub fn te_stats_text(e: *mut te_engine, buf: *mut c_char, n: usize) -> c_int;
    pub fn te_links(e: *mut te_engine, json: c_int, buf: *mut c_char, n: usize) -> c_int;
    pub fn te_shutdown_on_signal(e: *mut te_engine) -> c_int;

    pub fn te_counter_create(e: *mut te_engine, name: *const c_char, out: *mut te_counter)
        -> c_int;
    pub fn te_counter_destroy(e: *mut te_engine, c: te_counter) -> c_int;
    pub fn te_counter_value(e: *mut te_engine, c: te_counter, value: *mut u64) -> c_int;
    pub fn te_counter_wait(
        e: *mut te_engine,
        c: te_counter,
        at_least: u64,
        timeout_ms: i64,
    ) -> c_int;
    pub fn te_counter_fd(e: *mut te_engine, c: te_counter, at_least: u64) -> c_int;
    pub fn te_adder_open(
        e: *mut te_engine,
        seg: te_segment,
        name: *const c_char,
        out: *mut te_adder,
    ) -> c_int;
    pub fn te_adder_after(e: *mut te_engine, b: te_batch, a: te_adder, n: u64) -> c_int;
    pub fn te_adder_flush(e: *mut te_engine, a: te_adder, timeout_ms: i64) -> c_int;
    pub fn te_adder_close(e: *mut te_engine, a: te_adder) -> c_int;

    pub fn te_lease_grant(
        e: *mut te_engine,
        addr: *mut c_void,
        length: usize,
        access: c_uint,
        lifetime_ms: i64,
        out: *mut te_lease,
        key: *mut te_lease_key,
    ) -> c_int;
    pub fn te_lease_grant_allow(
        e: *mut te_engine,
        addr: *mut c_void,
        length: usize,
        access: c_uint,
        lifetime_ms: i64,
        allow: *const c_char,
        out: *mut te_lease,
        key: *mut te_lease_key,
    ) -> c_int;
    pub fn te_revoke(e: *mut te_engine, lease: te_lease) -> c_int;
}

#[cfg(test)]
mod tests;
