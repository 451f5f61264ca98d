// SPDX-License-Identifier: Apache-2.0
//! What the tests share.
#![allow(dead_code)] // each test uses a part

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Read};
use std::os::raw::{c_int, c_short, c_ulong};
use std::os::unix::io::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use transfer_engine::{Access, Engine, Segment};

/// Longer than anything takes, so that a test which hangs fails instead.
pub const LONG: Duration = Duration::from_secs(60);

const SERVE: &str = "TE_RUST_TEST_SERVE";
const SIGSTOP: c_int = 19;
const WUNTRACED: c_int = 2;
const SIGKILL: c_ulong = 9;
const PR_SET_PDEATHSIG: c_int = 1;

/// How many bytes a peer serves.
pub const SERVED: usize = 3 << 20;

extern "C" {
    fn poll(fds: *mut PollFd, n: c_ulong, timeout_ms: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn prctl(what: c_int, value: c_ulong, ...) -> c_int;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn alarm(seconds: u32) -> u32;
}

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

/// An engine that no silence of a peer ends the requests of.
pub fn engine() -> Engine {
    let tcp = Engine::builder().name("127.0.0.1").option("MC_FORCE_TCP", "1");
    let patient =
        tcp.option("TE_TRANSFER_TIMEOUT_MS", "0").option("MC_TCP_STATUS_TIMEOUT_SEC", "600");
    patient.build().unwrap()
}

/// One whose name no other engine gets: its port is outside of the range that they take theirs from.
pub fn engine_with_a_port() -> Engine {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Engine::builder().name(free.to_string()).option("MC_FORCE_TCP", "1").build().unwrap()
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

/// Whether a descriptor becomes readable within so many milliseconds.
pub fn readable(fd: &impl AsRawFd, timeout_ms: i32) -> bool {
    let mut row = PollFd { fd: fd.as_raw_fd(), events: 1, revents: 0 };
    // SAFETY: one row, and that many are told.
    unsafe { poll(&mut row, 1, timeout_ms) == 1 }
}

/// Runs `f` in a forked child; whether it found what it looked for. It must not panic.
pub fn in_a_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs only what the caller passes, is bounded in time, and never returns.
    unsafe {
        let pid = fork();
        if pid == 0 {
            alarm(30);
            _exit(if f() { 0 } else { 1 });
        }
        let mut status = -1;
        pid > 0 && waitpid(pid, &mut status, 0) == pid && status == 0
    }
}

/// Runs what could hang in a thread of its own, and panics if it does or panics.
pub fn in_time<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(f()));
    receiver.recv_timeout(LONG).expect("done in time")
}

/// What a test does as the peer: serves random bytes that follow from a seed, until its input ends.
#[test]
fn serve() {
    let seed = match std::env::var(SERVE) {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => return,
    };
    let engine = Engine::builder().name("127.0.0.1").build().unwrap();
    let region = engine.alloc(SERVED, Access::ReadWrite).unwrap();
    region.copy_from(0, &random_bytes(&mut Random::seeded(seed), SERVED)).unwrap();
    println!("\nsegment {}", engine.name().unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// An engine in a process of its own, which is this program once more. It ends with the thread that
/// started it at the latest.
pub struct Peer {
    process: Child,
    pub segment: String,
}

impl Peer {
    pub fn start(seed: u64) -> Peer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["common::serve", "--exact", "--nocapture", "--test-threads=1"])
            .env(SERVE, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // SAFETY: a system call, which any forked child may make.
        unsafe {
            command.pre_exec(|| {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                Ok(())
            });
        }
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut peer = Peer { process, segment: String::new() };
        let (sender, receiver) = mpsc::channel();
        // Reads to the end, so that the last words find a reader.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(name) = line.strip_prefix("segment ") {
                    let _ = sender.send(name.to_string());
                }
            }
        });
        peer.segment = receiver.recv_timeout(LONG).expect("the peer's segment");
        peer
    }

    /// The peer's segment and the address of what it serves.
    pub fn open(&self, engine: &Engine) -> (Segment, u64) {
        let segment = engine.open(&self.segment).unwrap();
        let remote = segment.buffers().unwrap()[0].addr;
        (segment, remote)
    }

    /// From now on it answers nothing, so that requests to it stay open.
    pub fn stop(&self) {
        let (pid, mut status) = (self.process.id() as c_int, 0);
        // SAFETY: a process that was started here and not waited for.
        unsafe {
            assert_eq!(kill(pid, SIGSTOP), 0);
            // Its threads go on until this returns.
            assert_eq!(waitpid(pid, &mut status, WUNTRACED), pid);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
