// SPDX-License-Identifier: Apache-2.0
//! Counters that a peer raises behind its batches.

mod common;

use common::{engine, in_time, pair, random_bytes, readable, Random, LONG};
use std::time::Duration;
use transfer_engine::{Access, Adder, Counter, Engine, Error, Request, Segment, State};

const NO_TIME: Duration = Duration::ZERO;

fn open(near: &Engine, far: &Engine) -> Segment {
    near.open(&far.name().unwrap()).unwrap()
}

/// At once: behind a batch of nothing.
fn add(near: &Engine, adder: &Adder, n: u64) {
    let batch = near.batch(1).unwrap();
    batch.add_after(adder, n).unwrap();
    adder.flush_timeout(LONG).unwrap();
}

#[test]
fn layers_are_there_when_it_says_so() {
    const LAYERS: usize = 8;
    const SIZE: usize = 98_765;
    let (near, far) = pair();
    let bytes = random_bytes(&mut Random::new(), LAYERS * SIZE);
    let local = near.register(bytes.clone(), Access::LocalOnly).unwrap();
    let served = far.register(vec![0; LAYERS * SIZE], Access::Write).unwrap();
    let counter = far.counter("layers").unwrap();
    let peer = open(&near, &far);
    let adder = peer.adder("layers").unwrap();
    let batches: Vec<_> = (0..LAYERS)
        .map(|layer| {
            let (batch, at) = (near.batch(1).unwrap(), layer * SIZE);
            let remote = served.addr() + at as u64;
            batch.submit(&[Request::write(&local, at..at + SIZE, &peer, remote)]).unwrap();
            batch.add_after(&adder, 1 << layer).unwrap();
            batch
        })
        .collect();

    let mut value = 0;
    while value < (1 << LAYERS) - 1 {
        assert!(counter.wait_timeout(value + 1, LONG).unwrap());
        value = counter.value().unwrap();
        for layer in (0..LAYERS).filter(|layer| value >> layer & 1 == 1) {
            let range = layer * SIZE..(layer + 1) * SIZE;
            assert!(served.to_vec(range.clone()).unwrap() == bytes[range], "layer {layer}");
        }
    }
    counter.wait(value).unwrap();
    assert!(batches.iter().all(|b| b.overall().unwrap().state == State::Completed));
    adder.flush().unwrap();
}

#[test]
fn waits_values_and_descriptors() {
    let (near, far) = pair();
    let counter = far.counter("waits").unwrap();
    let adder = open(&near, &far).adder("waits").unwrap(); // which keeps its segment
    assert_eq!((counter.name(), counter.value().unwrap()), ("waits", 0));
    assert!(counter.wait_timeout(0, NO_TIME).unwrap());
    assert!(!counter.wait_timeout(1, NO_TIME).unwrap());
    assert!(!counter.wait_timeout(1, Duration::from_millis(10)).unwrap());
    let fd = counter.fd(3).unwrap();
    assert!(!readable(&fd, 0));
    std::thread::scope(|threads| {
        for value in 1..=3 {
            let counter = &counter;
            threads.spawn(move || assert!(counter.wait_timeout(value, LONG).unwrap()));
        }
        add(&near, &adder, 2);
        assert!(!readable(&fd, 0));
        add(&near, &adder.clone(), 1);
    });
    assert!(readable(&fd, 60_000));
    assert_eq!(counter.value().unwrap(), 3);
    assert!(!readable(&counter.fd(4).unwrap(), 0));
}

#[test]
fn what_fails_adds_nothing() {
    let (near, far) = pair();
    let local = near.register(vec![1; 100], Access::LocalOnly).unwrap();
    let counter = far.counter("none").unwrap();
    let peer = open(&near, &far);
    let adder = peer.adder("none").unwrap();
    let batch = near.batch(1).unwrap();
    batch.submit(&[Request::write(&local, 0..100, &peer, 4096)]).unwrap();
    batch.add_after(&adder, 1).unwrap();
    assert!(batch.wait().is_err());
    add(&near, &adder, 100);
    assert!(counter.wait_timeout(100, LONG).unwrap());
    assert_eq!(counter.value().unwrap(), 100);
    let most = i64::MAX as u64;
    assert!(matches!(batch.add_after(&adder, most - 99), Err(Error::Invalid(_))));
}

#[test]
fn names_and_their_owners() {
    let (near, far) = pair();
    let counter = far.counter("one").unwrap();
    assert!(matches!(far.counter("one"), Err(Error::Exists(_))));
    assert!(matches!(far.counter(""), Err(Error::Invalid(_))));
    assert!(matches!(far.counter("\0"), Err(Error::Invalid(_))));
    let peer = open(&near, &far);
    assert!(matches!(peer.adder("other"), Err(Error::NotFound(_))));
    let adder = peer.adder("one").unwrap();
    assert!(matches!(engine().batch(1).unwrap().add_after(&adder, 1), Err(Error::Invalid(_))));

    // A counter of that name is another one: what was opened before raises it no more.
    drop(counter);
    let counter: Counter = far.counter("one").unwrap();
    near.batch(1).unwrap().add_after(&adder, 1).unwrap();
    let gone = in_time(move || adder.flush());
    assert!(matches!(gone, Err(Error::Stale(_))), "{gone:?}");
    assert_eq!(counter.value().unwrap(), 0);
}

#[test]
fn an_engine_raises_its_own() {
    let near = engine();
    let counter = near.counter("own").unwrap();
    let adder = near.local_segment().adder("own").unwrap();
    add(&near, &adder, 7);
    assert_eq!(counter.value().unwrap(), 7);
}

#[test]
fn an_adder_dropped_too_early_is_closed_after_its_batch() {
    let (near, far) = pair();
    let _counter = far.counter("early").unwrap();
    let open_now = || near.stats().unwrap().segments_open;
    let adder = open(&near, &far).adder("early").unwrap();
    let batch = near.batch(1).unwrap();
    batch.add_after(&adder, 1).unwrap();
    drop(adder);
    assert_eq!(open_now(), 1);
    drop(batch);
    assert_eq!(open_now(), 0);
}
