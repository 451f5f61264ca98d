// SPDX-License-Identifier: Apache-2.0
//! Reads the memory of target.c and writes it back inverted: `cargo run NAME`, where NAME is what the
//! target prints.

use std::error::Error;
use std::time::Duration;
use transfer_engine::{Access, Engine, Opcode, Region, Request, Segment, SubmitOptions};

const BLOCK: usize = 64 << 10;

/// Moves all blocks. When it returns, the memory is quiet, whatever the outcome; an error says which
/// request failed, and why.
fn move_all(
    engine: &Engine,
    opcode: Opcode,
    region: &Region<'static>,
    segment: &Segment,
    options: &SubmitOptions,
) -> Result<u64, Box<dyn Error>> {
    let there = segment.buffers()?[0].addr;
    let mut requests = Vec::new();
    for at in (0..region.len()).step_by(BLOCK) {
        let part = at..region.len().min(at + BLOCK);
        let remote = there + at as u64;
        requests.push(match opcode {
            Opcode::Read => Request::read(region, part, segment, remote),
            Opcode::Write => Request::write(region, part, segment, remote),
        });
    }
    let batch = engine.batch(requests.len())?;
    batch.submit_with(&requests, options)?;
    Ok(batch.wait()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: cargo run NAME")?;
    let engine = Engine::builder().build()?;
    let segment = engine.open(&name)?;
    let size = segment
        .buffers()?
        .first()
        .ok_or("that segment has no memory")?
        .len;
    let region = engine.register(vec![0; size], Access::LocalOnly)?;
    let deadline = SubmitOptions::new().deadline(Duration::from_secs(60));

    let read = move_all(&engine, Opcode::Read, &region, &segment, &deadline)?;
    let mut bytes = region.to_vec(0..size)?;
    let wrong = bytes
        .iter()
        .enumerate()
        .filter(|&(i, &b)| b != (i * 7 + i / 251) as u8)
        .count();

    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    region.copy_from(0, &bytes)?;
    let then = deadline.notify(&segment, "written", "by the Rust program"); // after the last byte
    move_all(&engine, Opcode::Write, &region, &segment, &then)?;
    println!("rust: {read} bytes read, {wrong} of them wrong, and written back inverted");
    if wrong > 0 {
        return Err("what was read is not what target.c has".into());
    }
    Ok(())
}
