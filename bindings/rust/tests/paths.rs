// SPDX-License-Identifier: Apache-2.0
//! Transfers by the transports that a program asks for.

use transfer_engine::{Access, Engine, ErrorKind, Paths, Request, SubmitOptions};

fn engine() -> Engine {
    Engine::builder().name("127.0.0.1").build().unwrap()
}

#[test]
fn of_a_submit_and_of_a_segment() {
    let (near, far) = (engine(), engine());
    let served = far.register(vec![3; 100], Access::ReadWrite).unwrap();
    let local = near.register(vec![0; 100], Access::LocalOnly).unwrap();
    let name = far.name().unwrap();
    let peer = near.open(&name).unwrap();
    let tcp = Paths::new().require("tcp").prefer("tcp,host");
    let batch = near.batch(2).unwrap();
    let request = Request::read(&local, 0..100, &peer, served.addr());
    let requests = std::slice::from_ref(&request);
    batch.submit_with(requests, &SubmitOptions::new().paths(tcp.clone())).unwrap();
    batch.wait().unwrap();
    assert_eq!(batch.path(0).unwrap().transport, "tcp");
    for (paths, kind) in [
        (Paths::new().require("local"), ErrorKind::Unsupported),
        (Paths::new().forbid("tpc"), ErrorKind::Unsupported),
        (Paths::new().require("tcp").forbid("tcp"), ErrorKind::Invalid),
        (Paths::new().require("t\0cp"), ErrorKind::Invalid),
    ] {
        let refused = batch.submit_with(requests, &SubmitOptions::new().paths(paths));
        assert_eq!(refused.unwrap_err().kind(), kind);
    }
    assert_eq!(near.open_with(&name, &tcp).unwrap_err().kind(), ErrorKind::Exists);
    drop((batch, peer));
    let peer = near.open_with(&name, &tcp).unwrap();
    let batch = near.batch(1).unwrap();
    batch.submit(&[Request::read(&local, 0..100, &peer, served.addr())]).unwrap();
    batch.wait().unwrap();
    assert_eq!(batch.path(0).unwrap().transport, "tcp");
}

#[test]
fn of_one_life() {
    let near = engine();
    let first = engine();
    let (name, number) = (first.name().unwrap(), first.incarnation());
    let peer = near.open_life(&name, number, &Paths::new()).unwrap();
    assert_eq!(peer.incarnation().unwrap(), number);
    assert_eq!(near.open(&name).unwrap().incarnation().unwrap(), number);
    assert_ne!(near.incarnation(), number);
    let other = near.open_life(&name, number ^ 1, &Paths::new());
    assert_eq!(other.err().unwrap().kind(), ErrorKind::Stale);
    drop(first);
    let port = name.rsplit(':').next().unwrap().parse().unwrap();
    let second = Engine::builder().name("127.0.0.1").rpc_port(port).build().unwrap();
    assert_eq!(second.name().unwrap(), name);
    assert_eq!(peer.notify("to", "the first").unwrap_err().kind(), ErrorKind::Stale);
    assert!(second.notifications().unwrap().is_empty());
}
