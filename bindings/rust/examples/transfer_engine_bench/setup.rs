// SPDX-License-Identifier: Apache-2.0
//! Up to the first transfer: engine, transport, buffers, target.

use crate::flags::Flags;
use crate::signals;
use crate::TOOL;
use std::fs;
use std::time::Duration;
use transfer_engine::{
    set_log_sink, Access, Engine, EngineBuilder, Error, Region, RegionOptions, RemoteBuffer,
    Segment,
};

const FILL: u8 = 0xCC;
const P2P: &str = "P2PHANDSHAKE";

/// This side's engine and memory.
pub struct Setup {
    pub engine: Engine,
    pub buffers: Vec<Region<'static>>,
}

/// The other side's memory.
pub struct Target {
    pub segment: Segment,
    pub buffers: Vec<RemoteBuffer>,
}

pub fn is_initiator(flags: &Flags) -> bool {
    flags.text("mode") == "initiator"
}

/// What the command line does not say and has no default.
pub fn check(flags: &Flags) -> Result<(), String> {
    if flags.some_text("metadata_server").is_none() {
        return Err(
            "--metadata_server is missing: give --metadata_server=P2PHANDSHAKE, which needs no \
             server, or one such as http://HOST:8080/metadata"
                .into(),
        );
    }
    if is_initiator(flags) && flags.some_text("segment_id").is_none() {
        return Err("--segment_id is missing: give the name that the target prints, as in \
                    --segment_id=127.0.0.1:15123 (or is this --mode=target?)"
            .into());
    }
    Ok(())
}

/// `--metadata_server`, with the scheme of `--metadata_type` where it has none.
fn metadata(flags: &Flags) -> String {
    let server = flags.text("metadata_server");
    if server.contains("://") || server.eq_ignore_ascii_case(P2P) {
        return server.to_string();
    }
    format!("{}://{server}", flags.text("metadata_type"))
}

/// With `--auto_discovery` the engine takes a matrix, or leaves NICs out, before it installs anything.
fn discovery(flags: &Flags, builder: EngineBuilder) -> EngineBuilder {
    let builder = builder.auto_discover(flags.switch("auto_discovery"));
    if !flags.switch("auto_discovery") {
        return builder;
    }
    if let Some(file) = flags.some_text("nic_priority_matrix") {
        builder.option("MC_CUSTOM_TOPO_JSON", file)
    } else if flags.given("device_name") {
        builder.option("MC_TE_FILTERS", flags.text("device_name"))
    } else {
        builder
    }
}

/// The flag that asks for the transport, by its name or by that of its devices.
fn asked_by(flags: &Flags) -> Option<&'static str> {
    if flags.given("protocol") {
        Some("protocol")
    } else if flags.some_text("nic_priority_matrix").is_some() {
        Some("nic_priority_matrix")
    } else if flags.given("device_name") && flags.some_text("device_name").is_some() {
        Some("device_name")
    } else {
        None
    }
}

/// A transport to other engines that is asked for by name carries everything, within a host too.
fn forced(flags: &Flags, builder: EngineBuilder) -> EngineBuilder {
    match flags.text("protocol") {
        _ if asked_by(flags).is_none() => builder,
        "tcp" => builder.option("MC_FORCE_TCP", "1"),
        "rdma" => builder.option("TE_HOST_PATH", "0").option("MC_FORCE_HCA", "1"),
        _ => builder,
    }
}

fn create_engine(flags: &Flags) -> Result<Engine, String> {
    let mut builder = Engine::builder().metadata(metadata(flags));
    builder = builder.rpc_port(flags.number("rpc_port") as u16);
    if let Some(name) = flags.some_text("local_server_name") {
        builder = builder.name(name);
    }
    if let Some(address) = flags.some_text("ip_or_host_name") {
        builder = builder.address(address);
    }
    let builder = forced(flags, discovery(flags, builder));
    builder.build().map_err(|e| format!("cannot start the engine: {e}"))
}

/// The NUMA nodes that the kernel names, of a list such as "0-3,8".
fn nodes() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    let mut found = Vec::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            found.extend(from..=to);
        }
    }
    found
}

/// A matrix by which every NUMA node prefers all of these devices.
fn device_matrix(devices: &str) -> String {
    let names: Vec<String> = devices
        .split(',')
        .map(|name| name.trim().replace('\\', "\\\\").replace('"', "\\\""))
        .filter(|name| !name.is_empty())
        .map(|name| format!("\"{name}\""))
        .collect();
    let mut places: Vec<String> = nodes().iter().map(|node| format!("cpu:{node}")).collect();
    if places.is_empty() {
        places.push("cpu:0".into());
    }
    places.extend(["cuda:0".into(), "hip:0".into()]);
    let row = format!("[[{}],[]]", names.join(","));
    let rows: Vec<String> = places.iter().map(|place| format!("\"{place}\":{row}")).collect();
    format!("{{{}}}", rows.join(","))
}

fn choose_matrix(flags: &Flags) -> Result<Option<String>, String> {
    if let Some(file) = flags.some_text("nic_priority_matrix") {
        return fs::read_to_string(file)
            .map(Some)
            .map_err(|e| format!("cannot read --nic_priority_matrix={file}: {e}"));
    }
    if flags.text("protocol") == "rdma" && !flags.switch("auto_discovery") {
        return Ok(Some(device_matrix(flags.text("device_name"))));
    }
    Ok(None)
}

fn install_named(engine: &Engine, name: &str, matrix: Option<&str>) -> Result<(), Error> {
    if name == "host" {
        engine.install_transport("tcp", None)?; // the path within a host goes with it
    }
    engine.install_transport(name, matrix)
}

/// What `--protocol` names; where it names nothing rdma, and if that cannot run here, tcp.
fn install(engine: &Engine, flags: &Flags) -> Result<(), String> {
    let (name, asked) = (flags.text("protocol"), asked_by(flags));
    let matrix = choose_matrix(flags)?;
    if flags.switch("auto_discovery") && asked.is_none() {
        return Ok(());
    }
    if let Some(flag) = asked {
        return install_named(engine, name, matrix.as_deref()).map_err(|e| {
            format!("cannot use {name}, which --{flag}={} asks for: {e}", flags.text(flag))
        });
    }
    set_log_sink(Some(|_, _| {})); // what is printed here says more
    let tried = install_named(engine, name, matrix.as_deref());
    set_log_sink(None);
    tried.or_else(|why| {
        eprintln!(
            "{TOOL}: WARN: rdma cannot run here, using tcp, and host to a target on this host ({})",
            why.message()
        );
        engine.install_transport("tcp", None).map_err(|e| format!("cannot install tcp: {e}"))
    })
}

/// One buffer per NUMA node.
fn add_buffers(setup: &mut Setup, length: usize, access: Access, fill: bool) -> Result<(), Error> {
    let mut places: Vec<String> = nodes().iter().map(|node| format!("cpu:{node}")).collect();
    if places.is_empty() {
        places.push("*".into());
    }
    for place in &places {
        let options = RegionOptions::new(access).location(place);
        let region = setup.engine.alloc(length, options)?;
        if fill {
            region.fill(0..length, FILL)?;
        }
        setup.buffers.push(region);
    }
    Ok(())
}

/// Makes the engine, installs the transport and registers buffers of so many bytes.
pub fn open(flags: &Flags, length: u64, access: Access) -> Result<Setup, String> {
    let engine = create_engine(flags)?;
    install(&engine, flags)?;
    let mut setup = Setup { engine, buffers: Vec::new() };
    usize::try_from(length)
        .map_err(|e| e.to_string())
        .and_then(|length| {
            add_buffers(&mut setup, length, access, flags.switch("init_mem"))
                .map_err(|e| e.to_string())
        })
        .map_err(|e| format!("no buffer of {length} bytes: {e}"))?;
    Ok(setup)
}

/// Opens the segment that `--segment_id` names, whose buffers must hold `need` bytes each.
pub fn open_target(setup: &Setup, flags: &Flags, need: u64) -> Result<Target, String> {
    let name = flags.text("segment_id");
    let fail = |e: Error| format!("cannot open segment {name}: {e}");
    let segment = setup.engine.open(name).map_err(fail)?;
    if segment.is_local() {
        return Err(format!(
            "{name} is this engine's own name; give --local_server_name=NAME with another one"
        ));
    }
    let buffers = segment.buffers().map_err(fail)?;
    if buffers.is_empty() {
        return Err(format!(
            "segment {name} has no buffer: its engine is not up, or has registered nothing"
        ));
    }
    match buffers.iter().find(|b| (b.len as u64) < need) {
        Some(small) => Err(format!(
            "a buffer of segment {name} has {} bytes, {need} are needed for this load: start the \
             target with --buffer_size={need}, or ask for less by --threads, --batch_size and \
             --block_size",
            small.len
        )),
        None => Ok(Target { segment, buffers }),
    }
}

/// Prints the name of our segment and waits for SIGINT or SIGTERM.
pub fn serve(setup: &Setup) -> Result<(), String> {
    println!("segment: {}", setup.engine.name().map_err(|e| e.to_string())?);
    while !signals::interrupted(Duration::from_secs(3600)) {}
    Ok(())
}
