// SPDX-License-Identifier: Apache-2.0
//! An engine in a process of its own, over each path between processes of one host: this test starts
//! itself again as the peer.

mod common;

use common::{random_bytes, Random};
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use transfer_engine::{Access, Engine, Error, ErrorClass, Request};

const SIZE: usize = 3 << 20;
const SERVE: &str = "TE_RUST_TEST_SERVE";

/// What the test does as the peer: serves random bytes that follow from a seed, until its input ends.
#[test]
fn peer() {
    let seed = match env::var(SERVE) {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => return,
    };
    let engine = Engine::builder().name("127.0.0.1").build().unwrap();
    let region = engine.alloc(SIZE, Access::ReadWrite).unwrap();
    region.copy_from(0, &random_bytes(&mut Random::seeded(seed), SIZE)).unwrap();
    println!("\nsegment {}", engine.name().unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

struct Peer {
    process: Child,
    segment: String,
}

impl Peer {
    fn start(seed: u64) -> Peer {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["peer", "--exact", "--nocapture", "--test-threads=1"])
            .env(SERVE, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let segment = lines
            .find_map(|line| line.unwrap().strip_prefix("segment ").map(String::from))
            .expect("the peer's segment");
        std::thread::spawn(move || lines.for_each(drop)); // its last words find a reader
        Peer { process, segment }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn moves_both_ways(engine: &Engine, transport: &str) {
    let mut random = Random::new();
    let seed = random.next();
    let peer = Peer::start(seed);
    let mut there = random_bytes(&mut Random::seeded(seed), SIZE);
    let segment = engine.open(&peer.segment).unwrap();
    let remote = segment.buffers().unwrap()[0].addr;
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
    let batch = engine.batch(1).unwrap();
    let failed = batch
        .submit(&[Request::read(&local, 0..SIZE, &segment, remote)])
        .and_then(|_| batch.wait())
        .unwrap_err();
    assert_ne!(failed.class(), ErrorClass::Fatal, "{failed}");
    assert!(!matches!(failed, Error::Other(..)) && !failed.message().is_empty());
}

#[test]
fn over_tcp() {
    moves_both_ways(&common::engine(), "tcp");
}

#[test]
fn over_the_path_within_a_host() {
    moves_both_ways(&Engine::builder().name("127.0.0.1").build().unwrap(), "host");
}
