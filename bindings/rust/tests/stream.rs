// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for descriptors, and an eventfd that waits for them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::raw::{c_int, c_uint};
use std::os::unix::io::FromRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use transfer_engine::{Access, Engine, ErrorKind, Request, State, Stream, SubmitOptions};

extern "C" {
    fn eventfd(first: c_uint, flags: c_int) -> c_int;
}

#[test]
fn of_descriptors() {
    let engine = Engine::builder().name("127.0.0.1").build().unwrap();
    let source = engine.register(vec![3; 100], Access::LocalOnly).unwrap();
    let target = engine.register(vec![0; 100], Access::LocalOnly).unwrap();
    let own = engine.local_segment();
    let request = Request::write(&source, 0..100, &own, target.addr());
    let requests = std::slice::from_ref(&request);
    let (ready, mut computed) = UnixStream::pair().unwrap();
    // SAFETY: the descriptor is nobody else's.
    let mut over = unsafe { File::from_raw_fd(eventfd(0, 0)) };
    let after = Stream::descriptor(&ready).unwrap();
    let options =
        SubmitOptions::new().after(after.clone()).then(Stream::descriptor(&over).unwrap());
    drop(ready);
    let batch = engine.batch(3).unwrap();
    batch.submit_with(requests, &options).unwrap();
    assert_eq!(batch.status(0).unwrap().state, State::Pending);
    computed.write_all(b"!").unwrap();
    let mut count = [0; 8];
    over.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    assert_eq!(batch.status(0).unwrap().state, State::Completed);
    batch.wait().unwrap();
    // SAFETY: there is no such device, so the handle is not looked at.
    let nowhere = unsafe { Stream::device("cpu:0", std::ptr::null_mut()) };
    for (options, kind) in [
        (SubmitOptions::new().after(nowhere.clone()), ErrorKind::Unsupported),
        (SubmitOptions::new().then(nowhere), ErrorKind::Unsupported),
        (SubmitOptions::new().then(after), ErrorKind::Invalid),
    ] {
        assert_eq!(batch.submit_with(requests, &options).unwrap_err().kind(), kind);
    }
    let (never, _kept) = UnixStream::pair().unwrap();
    let late = SubmitOptions::new()
        .after(Stream::descriptor(&never).unwrap())
        .deadline(Duration::from_millis(20));
    batch.submit_with(requests, &late).unwrap();
    assert_eq!(batch.wait().unwrap_err().kind(), ErrorKind::Timeout);
}
