// SPDX-License-Identifier: Apache-2.0
//! Measures reads or writes between this process and a target, or checks that they arrive whole. The
//! tool transfer_engine_bench, in Rust: either side may be the other one's.

mod flags;
mod hist;
mod load;
mod setup;
mod signals;
mod units;

use flags::{Asked, Flags};
use load::{Load, Outcome};
use std::process::ExitCode;
use std::time::Duration;
use transfer_engine::{Access, Opcode};

/// What it calls itself.
pub const TOOL: &str = "transfer_engine_bench_rust";

/// How it ends, and why.
struct Failed {
    status: u8,
    why: String,
}

fn wrong_call(why: String) -> Failed {
    Failed { status: 2, why }
}

fn failed(why: String) -> Failed {
    Failed { status: 1, why }
}

/// The bytes that the workers need in a buffer.
fn need_of(flags: &Flags) -> Option<u64> {
    flags
        .number("block_size")
        .checked_mul(flags.number("batch_size"))?
        .checked_mul(flags.number("threads"))
        .filter(|need| *need <= u64::MAX / 4)
}

fn raise(asked: u64, need: u64) -> u64 {
    if asked < need {
        eprintln!("{TOOL}: WARN: buffer_size raised from {asked} to {need}, which this load needs");
    }
    asked.max(need)
}

fn rate(per: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        per as f64 / seconds
    } else {
        0.0
    }
}

fn print_result(flags: &Flags, result: &Outcome) {
    let digits = flags.number("report_precision") as usize;
    let (seconds, batches) = (result.seconds, result.batches);
    if result.failed {
        println!("Test failed after {seconds:.digits$} s and {batches} batches");
        return;
    }
    let unit = flags.text("report_unit");
    let throughput = rate(result.bytes, seconds) / units::report_bytes(unit).unwrap_or(1.0);
    println!(
        "Test completed: duration {seconds:.digits$}, batch count {batches}, \
         throughput {throughput:.digits$} {unit}/s"
    );
    println!("IOPS: {:.0} requests/s", rate(result.requests, seconds));
    result.batch.print("Batch latency");
    result.request.print("Request latency (batch latency / requests)");
    if flags.switch("verify") {
        println!("Verified: {} bytes, 0 errors", result.verified);
    }
}

fn run_target(flags: &Flags) -> Result<(), Failed> {
    let setup = setup::open(flags, flags.number("buffer_size"), Access::ReadWrite);
    setup.and_then(|setup| setup::serve(&setup)).map_err(failed)
}

fn run_initiator(flags: &Flags) -> Result<(), Failed> {
    let need =
        need_of(flags).ok_or_else(|| wrong_call("block * batch * threads is too large".into()))?;
    let verify = flags.switch("verify");
    let length = raise(flags.number("buffer_size"), if verify { 2 * need } else { need });
    let setup = setup::open(flags, length, Access::LocalOnly).map_err(failed)?;
    let target = setup::open_target(&setup, flags, need).map_err(failed)?;
    let write = flags.text("operation") == "write";
    let result = load::run(&Load {
        setup: &setup,
        target: &target,
        opcode: if write { Opcode::Write } else { Opcode::Read },
        block: flags.number("block_size"),
        batch: flags.number("batch_size"),
        threads: flags.number("threads"),
        duration: Duration::from_secs_f64(flags.seconds("duration")),
        batches: flags.number("batches"),
        deadline: Duration::from_millis(flags.number("deadline_ms")),
        verify,
        back: length / 2,
    });
    print_result(flags, &result);
    if result.failed {
        return Err(failed("the test failed".into()));
    }
    Ok(())
}

fn run(flags: &Flags) -> Result<(), Failed> {
    setup::check(flags).map_err(wrong_call)?;
    signals::block();
    if setup::is_initiator(flags) {
        run_initiator(flags)
    } else {
        run_target(flags)
    }
}

fn main() -> ExitCode {
    let result = match flags::parse(std::env::args().skip(1)) {
        Ok(Asked::Run(flags)) => run(&flags),
        Ok(Asked::Help) => {
            flags::print_help();
            Ok(())
        }
        Ok(Asked::Version) => {
            println!("{TOOL} {}", transfer_engine::version());
            Ok(())
        }
        Err(why) => Err(wrong_call(why)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { status, why }) => {
            eprintln!("{TOOL}: {why}");
            ExitCode::from(status)
        }
    }
}
