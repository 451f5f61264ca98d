// SPDX-License-Identifier: Apache-2.0
//! An engine in a process of its own, over each path between processes of one host, and one that is
//! stopped.

mod common;

use common::{engine, in_time, random_bytes, Peer, Random, SERVED as SIZE};
use std::time::Duration;
use transfer_engine::{
    Access, Engine, Error, ErrorClass, ErrorKind, Region, Request, Segment, State, SubmitOptions,
};

fn moves_both_ways(engine: &Engine, transport: &str) {
    let mut random = Random::new();
    let seed = random.next();
    let peer = Peer::start(seed);
    let mut there = random_bytes(&mut Random::seeded(seed), SIZE);
    let (segment, remote) = peer.open(engine);
    let local = engine.register(vec![0; SIZE], Access::LocalOnly).unwrap();
    let explained = engine.explain(&Request::read(&local, 0..1, &segment, remote)).unwrap();
    let taken = |line: &str| line.contains(transport) && line.ends_with("taken");
    assert!(explained.outcome.is_ok() && explained.text.lines().any(taken), "{}", explained.text);
    for round in 0..20 {
        let n = random.below(20) + 1;
        let batch = engine.batch(2 * n).unwrap();
        let mut at = random.below(100);
        let mut requests = Vec::new();
        let bytes = random_bytes(&mut random, SIZE);
        local.copy_from(0, &bytes).unwrap();
        for _ in 0..n {
            let length = random.below((SIZE - at) / (n + 1)) + 1;
            requests.push(Request::write(&local, at..at + length, &segment, remote + at as u64));
            there[at..at + length].copy_from_slice(&bytes[at..at + length]);
            at += length + random.below(9);
        }
        batch.submit(&requests).unwrap();
        batch.wait().unwrap();
        local.fill(0..SIZE, 0).unwrap();
        let batch = engine.batch(1).unwrap();
        batch.submit(&[Request::read(&local, 0..SIZE, &segment, remote)]).unwrap();
        batch.wait().unwrap();
        assert!(local.to_vec(0..SIZE).unwrap() == there, "round {round}");
    }
    drop(peer);
    let read = || {
        let batch = engine.batch(1)?;
        batch.submit(&[Request::read(&local, 0..SIZE, &segment, remote)])?;
        batch.wait()
    };
    // Memory that both have mapped may outlive the peer for a moment.
    let failed = (0..1000)
        .find_map(|_| {
            let failed = read().err();
            std::thread::sleep(Duration::from_millis(if failed.is_none() { 10 } else { 0 }));
            failed
        })
        .expect("a dead peer serves nothing");
    assert_ne!(failed.class(), ErrorClass::Fatal, "{failed}");
    assert!(!matches!(failed, Error::Other(..)) && !failed.message().is_empty());
}

#[test]
fn over_tcp() {
    moves_both_ways(&engine(), "tcp");
}

#[test]
fn over_the_path_within_a_host() {
    moves_both_ways(&Engine::builder().name("127.0.0.1").build().unwrap(), "host");
}

/// A peer that has answered once and then was stopped, and a region as large as what it serves.
fn stopped() -> (Peer, Engine, Segment, u64, Region<'static>) {
    let (peer, near) = (Peer::start(1), engine());
    let (segment, remote) = peer.open(&near);
    let local = near.register(vec![0; SIZE], Access::LocalOnly).unwrap();
    let batch = near.batch(1).unwrap();
    batch.submit(&[Request::read(&local, 0..10, &segment, remote)]).unwrap();
    batch.wait().unwrap();
    drop(batch);
    peer.stop();
    (peer, near, segment, remote, local)
}

#[test]
fn requests_to_a_stopped_peer_end_when_asked() {
    let (_peer, near, segment, remote, local) = stopped();
    in_time(move || {
        let read = || Request::read(&local, 0..SIZE, &segment, remote);
        let cancelled = near.batch(1).unwrap();
        cancelled.submit(&[read()]).unwrap();
        assert_eq!(cancelled.wait_timeout(Duration::from_millis(20)).unwrap(), None);
        assert!(!cancelled.overall().unwrap().state.is_terminal());
        cancelled.cancel().unwrap();
        assert_eq!(cancelled.wait().unwrap_err().kind(), ErrorKind::Canceled);
        assert_eq!(cancelled.overall().unwrap().state, State::Canceled);

        let late = near.batch(1).unwrap();
        let soon = SubmitOptions::new().deadline(Duration::from_millis(20));
        late.submit_with(&[read()], &soon).unwrap();
        assert_eq!(late.wait().unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(late.overall().unwrap().state, State::Timeout);

        let dropped = near.batch(1).unwrap();
        dropped.submit(&[read()]).unwrap();
        drop((cancelled, late, dropped));
        let failed = near.stats().unwrap().requests_failed;
        assert_eq!(failed, 3);
        local.close().unwrap();
    });
}

#[test]
fn a_scope_ends_what_a_stopped_peer_holds_up() {
    let (_peer, near, segment, remote, local) = stopped();
    drop(local);
    let mut memory = in_time(move || {
        let mut memory = vec![7u8; SIZE];
        near.scope(|scope| {
            let region = scope.register(&mut memory, Access::LocalOnly).unwrap();
            let batch = scope.batch(1).unwrap();
            batch.submit(&[Request::read(&region, 0..SIZE, &segment, remote)]).unwrap();
            std::mem::forget((batch, region));
        });
        let stats = near.stats().unwrap();
        assert_eq!((stats.regions, stats.requests_failed), (0, 1));
        memory
    });
    memory.fill(1);
}
