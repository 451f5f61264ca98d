// SPDX-License-Identifier: Apache-2.0
//! Worker threads that move data between this side's buffers and the target's, and what they measure.
//! A plain load reads or writes the same blocks over and over. A verified load writes random bytes, reads
//! them back into other memory and compares, at odd addresses and with the two directions cut into
//! requests differently.

use crate::hist::Hist;
use crate::setup::{Setup, Target};
use crate::signals;
use crate::TOOL;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use transfer_engine::{Batch, Error, Opcode, Region, Request, SubmitOptions};

const SKEW: u64 = 64; // a verified load begins at any of so many byte offsets
const GUARD: u8 = 0xEE;
const POLL: Duration = Duration::from_millis(100); // how often a waiting worker looks for a signal
const TICK: Duration = Duration::from_millis(20); // how often the main thread does

/// What to do.
pub struct Load<'s> {
    pub setup: &'s Setup,
    pub target: &'s Target,
    pub opcode: Opcode,
    pub block: u64,
    pub batch: u64,
    pub threads: u64,
    /// How long to go on,
    pub duration: Duration,
    /// or until each worker did so many; 0: no such limit.
    pub batches: u64,
    /// Of each batch; 0: the engine's.
    pub deadline: Duration,
    pub verify: bool,
    /// Where the part of a buffer that a verified load reads into begins.
    pub back: u64,
}

/// What was measured.
#[derive(Default)]
pub struct Outcome {
    pub seconds: f64,
    pub batches: u64,
    pub requests: u64,
    pub bytes: u64,
    /// Bytes compared.
    pub verified: u64,
    pub failed: bool,
    pub batch: Hist,
    pub request: Hist,
}

struct Shared<'s> {
    load: &'s Load<'s>,
    base: Instant,
    begin_ns: AtomicU64,
    ready: AtomicUsize,
    running: AtomicUsize,
    start: Barrier,
    /// No new batch; also set by the first failure.
    stop: AtomicBool,
    /// And give up those in flight.
    cancel: AtomicBool,
}

impl Shared<'_> {
    fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }
}

/// A request without its region: the same for all of a worker's.
struct Piece {
    opcode: Opcode,
    local: u64,
    remote: u64,
    length: u64,
}

struct Worker<'s> {
    shared: &'s Shared<'s>,
    index: u64,
    region: &'s Region<'static>,
    /// Where this worker's range begins, here and there.
    local: u64,
    remote: u64,
    seed: u64,
    outcome: Outcome,
    last_ns: u64,
}

/// The next of a row of pseudo-random numbers (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn random_bytes(state: &mut u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random(state).to_le_bytes()[..part.len()]);
    }
    bytes
}

impl<'s> Worker<'s> {
    fn new(shared: &'s Shared<'s>, index: u64) -> Worker<'s> {
        let Load { setup, target, block, batch, verify, .. } = shared.load;
        let at = index * if *verify { block * batch } else { *block };
        let remote = &target.buffers[index as usize % target.buffers.len()];
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Worker {
            shared,
            index,
            region: &setup.buffers[index as usize % setup.buffers.len()],
            local: at,
            remote: remote.addr + at,
            seed: clock.as_nanos() as u64 ^ index.wrapping_mul(0xD134_2543_DE82_EF95),
            outcome: Outcome::default(),
            last_ns: 0,
        }
    }

    fn wait(&self, batch: &Batch<'_>) -> Result<u64, Error> {
        let mut canceled = false;
        loop {
            if let Some(bytes) = batch.wait_timeout(POLL)? {
                return Ok(bytes);
            }
            if !canceled && self.shared.cancel.load(Ordering::Relaxed) {
                canceled = true;
                batch.cancel()?;
            }
        }
    }

    /// Submits requests and sees them through. Counts them if `measure`.
    fn run_batch(&mut self, pieces: &[Piece], measure: bool) -> Result<(), String> {
        let Load { setup, target, deadline, .. } = self.shared.load;
        let mut options = SubmitOptions::new();
        if !deadline.is_zero() {
            options = options.deadline(*deadline);
        }
        let requests: Vec<Request> = pieces
            .iter()
            .map(|p| {
                let range = p.local as usize..(p.local + p.length) as usize;
                match p.opcode {
                    Opcode::Read => Request::read(self.region, range, &target.segment, p.remote),
                    Opcode::Write => Request::write(self.region, range, &target.segment, p.remote),
                }
            })
            .collect();
        let begin = self.shared.now_ns();
        let bytes = setup
            .engine
            .batch(requests.len())
            .and_then(|batch| {
                batch.submit_with(&requests, &options)?;
                self.wait(&batch)
            })
            .map_err(|e| format!("FAILED: {e}"))?;
        let end = self.shared.now_ns();
        if measure {
            let n = pieces.len() as u64;
            self.outcome.batch.add(end - begin, 1);
            self.outcome.request.add((end - begin) / n, n);
            self.outcome.batches += 1;
            self.outcome.requests += n;
            self.outcome.bytes += bytes;
            self.last_ns = end;
        }
        Ok(())
    }

    fn lay_out(&self) -> Vec<Piece> {
        let Load { opcode, block, batch, threads, .. } = *self.shared.load;
        let at = |i: u64| i * block * threads;
        (0..batch)
            .map(|i| Piece {
                opcode,
                local: self.local + at(i),
                remote: self.remote + at(i),
                length: block,
            })
            .collect()
    }

    /// Cuts a range into requests of one block; the first is as told, the last may be shorter.
    fn cut(&self, opcode: Opcode, local: u64, remote: u64, length: u64, first: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < length {
            let step = if at == 0 { first } else { self.shared.load.block };
            let step = step.min(length - at);
            pieces.push(Piece { opcode, local: local + at, remote: remote + at, length: step });
            at += step;
        }
        pieces
    }

    /// Random bytes there and back.
    fn verify_round(&mut self) -> Result<(), String> {
        let Load { block, batch, back, .. } = *self.shared.load;
        let range = block * batch;
        let offsets = range.min(SKEW);
        let mut some = || random(&mut self.seed) % offsets;
        let (from, to, skew) = (some(), some(), some());
        let first = 1 + random(&mut self.seed) % block;
        let length = range - (offsets - 1);
        let data = random_bytes(&mut self.seed, length);
        let area = (self.local + back) as usize..(self.local + back + range) as usize;
        let memory = |e: Error| format!("FAILED: {e}");

        self.region.copy_from((self.local + from) as usize, &data).map_err(memory)?;
        let there = self.cut(Opcode::Write, self.local + from, self.remote + to, length, block);
        self.run_batch(&there, true)?;

        let mut want = vec![GUARD; range as usize];
        let part = skew as usize..(skew + length) as usize;
        for (byte, sent) in want[part.clone()].iter_mut().zip(&data) {
            *byte = !sent; // no byte is right by what was there before
        }
        self.region.copy_from(area.start, &want).map_err(memory)?;
        want[part].copy_from_slice(&data);
        let back_at = self.local + back + skew;
        let here = self.cut(Opcode::Read, back_at, self.remote + to, length, first);
        self.run_batch(&here, true)?;
        let have = self.region.to_vec(area).map_err(memory)?;
        self.outcome.verified += length;
        self.compare(&want, &have, skew)
    }

    fn compare(&self, want: &[u8], have: &[u8], skew: u64) -> Result<(), String> {
        let differs = |i: &usize| want[*i] != have[*i];
        match (0..want.len()).find(differs) {
            None => Ok(()),
            Some(i) => Err(format!(
                "Detect data integrity problem: worker {}, round {}: byte at offset {} is \
                 0x{:02x}, expected 0x{:02x}; {} bytes differ",
                self.index,
                self.outcome.batches / 2,
                i as i64 - skew as i64,
                have[i],
                want[i],
                (0..want.len()).filter(differs).count()
            )),
        }
    }

    fn may_go_on(&self, rounds: u64) -> bool {
        let load = self.shared.load;
        let end = self.shared.begin_ns.load(Ordering::Relaxed) + load.duration.as_nanos() as u64;
        !self.shared.stop.load(Ordering::Relaxed)
            && (load.batches == 0 || rounds < load.batches)
            && self.shared.now_ns() < end
    }

    fn measure(&mut self) -> Result<(), String> {
        let verify = self.shared.load.verify;
        let pieces = if verify { Vec::new() } else { self.lay_out() };
        // The first batch finds the peer and connects; it is not measured.
        let ready = if verify { Ok(()) } else { self.run_batch(&pieces, false) };
        self.shared.ready.fetch_add(1, Ordering::Relaxed);
        self.shared.start.wait();
        self.last_ns = self.shared.begin_ns.load(Ordering::Relaxed);
        ready?;
        let mut rounds = 0;
        while self.may_go_on(rounds) {
            if verify {
                self.verify_round()?;
            } else {
                self.run_batch(&pieces, true)?;
            }
            rounds += 1;
        }
        Ok(())
    }

    fn run(mut self) -> (Outcome, u64) {
        let measured = self.measure();
        let mut passed = "";
        match measured {
            Ok(()) if self.shared.load.verify => passed = " Data validation passed",
            Ok(()) => {}
            Err(why) => {
                if !self.shared.cancel.load(Ordering::Relaxed) {
                    eprintln!("{TOOL}: {why}");
                    self.outcome.failed = true;
                }
                self.shared.stop.store(true, Ordering::Relaxed);
            }
        }
        eprintln!("Worker {} stopped!{passed}", self.index);
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
        (self.outcome, self.last_ns)
    }
}

/// The first signal asks for no more batches, the second cancels those in flight.
fn heed_signals(shared: &Shared<'_>, seen: &mut bool) {
    if signals::interrupted(TICK) {
        let flag = if *seen { &shared.cancel } else { &shared.stop };
        flag.store(true, Ordering::Relaxed);
        *seen = true;
    }
}

fn oversee(shared: &Shared<'_>) {
    let threads = shared.load.threads as usize;
    let mut seen = false;
    while shared.ready.load(Ordering::Relaxed) < threads {
        heed_signals(shared, &mut seen);
    }
    shared.begin_ns.store(shared.now_ns(), Ordering::Relaxed);
    shared.start.wait();
    while shared.running.load(Ordering::Relaxed) > 0 {
        heed_signals(shared, &mut seen);
    }
}

/// Runs it to its end.
pub fn run(load: &Load<'_>) -> Outcome {
    let threads = load.threads as usize;
    let shared = Shared {
        load,
        base: Instant::now(),
        begin_ns: AtomicU64::new(0),
        ready: AtomicUsize::new(0),
        running: AtomicUsize::new(threads),
        start: Barrier::new(threads + 1),
        stop: AtomicBool::new(false),
        cancel: AtomicBool::new(false),
    };
    let mut total = Outcome::default();
    let mut last = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..load.threads)
            .map(|index| Worker::new(&shared, index))
            .map(|worker| scope.spawn(|| worker.run()))
            .collect();
        oversee(&shared);
        for worker in workers {
            let (part, ended) = worker.join().expect("a worker");
            last = last.max(ended);
            total.batches += part.batches;
            total.requests += part.requests;
            total.bytes += part.bytes;
            total.verified += part.verified;
            total.failed |= part.failed;
            total.batch.merge(&part.batch);
            total.request.merge(&part.request);
        }
    });
    total.seconds = last.saturating_sub(shared.begin_ns.load(Ordering::Relaxed)) as f64 / 1e9;
    total
}
