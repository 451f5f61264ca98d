// SPDX-License-Identifier: Apache-2.0
//! The command line: names, defaults and meaning as of the tool transfer_engine_bench.

use crate::units;
use crate::TOOL;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// One of these words.
    Choice(&'static str),
    /// One of the units of throughput.
    Unit,
    Switch,
    /// At least, at most.
    Count(u64, u64),
    Size,
    Seconds,
}

struct Flag {
    name: &'static str,
    kind: Kind,
    initial: &'static str,
    help: &'static str,
}

const fn flag(name: &'static str, kind: Kind, initial: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, initial, help }
}

const ABOUT: &str =
    "Measures how fast an initiator reads or writes the memory of a target. Start one
with --mode=target, then another with --segment_id set to the name that the
first one prints. Either may be the transfer_engine_bench written in C.";

const TABLE: &[Flag] = &[
    flag(
        "mode",
        Kind::Choice("initiator|target"),
        "initiator",
        "The target serves its memory until SIGINT or SIGTERM; the initiator moves data.",
    ),
    flag(
        "metadata_server",
        Kind::Text,
        "",
        "Must be given: P2PHANDSHAKE, which needs no server, or [scheme://]host:port[/path].",
    ),
    flag(
        "metadata_type",
        Kind::Text,
        "etcd",
        "Scheme of --metadata_server where that names none: etcd, http, redis.",
    ),
    flag(
        "local_server_name",
        Kind::Text,
        "",
        "Name of this side's segment, or host:port; none: the name of this host, with P2PHANDSHAKE
      the address told to peers. With a metadata server each side needs its own.",
    ),
    flag(
        "ip_or_host_name",
        Kind::Text,
        "",
        "Address told to peers; none: the one that routes to them.",
    ),
    flag(
        "rpc_port",
        Kind::Count(0, 65535),
        "0",
        "Handshake port; 0: any free one of the configured range.",
    ),
    flag(
        "segment_id",
        Kind::Text,
        "",
        "The initiator must be given it: the name of the target's segment, as that prints it.",
    ),
    flag(
        "protocol",
        Kind::Text,
        "rdma",
        "Transport: rdma, tcp, host. If not given and rdma cannot run here, tcp is taken.
      tcp and rdma carry everything, within this host too; host is tcp with the path
      within a host, which must be there.",
    ),
    flag(
        "auto_discovery",
        Kind::Switch,
        "false",
        "Let the engine find devices and which is near what, and choose transports unless
      --protocol does.",
    ),
    flag(
        "device_name",
        Kind::Text,
        "mlx5_2",
        "RDMA devices, separated by commas; not used by other transports. Every NUMA node
      prefers them all. If given, one of them must work. With --auto_discovery, if given:
      find no others.",
    ),
    flag(
        "nic_priority_matrix",
        Kind::Text,
        "",
        "File with a NIC priority matrix in JSON, in place of --device_name. One of the devices
      that it names must work.",
    ),
    flag(
        "operation",
        Kind::Choice("read|write"),
        "read",
        "What the initiator does with the target's memory.",
    ),
    flag("block_size", Kind::Size, "65536", "Bytes of one request."),
    flag("batch_size", Kind::Count(1, 1 << 20), "128", "Requests of one batch."),
    flag("threads", Kind::Count(1, 1024), "12", "Worker threads of the initiator."),
    flag(
        "buffer_size",
        Kind::Size,
        "1073741824",
        "Bytes of each buffer, one per NUMA node; the initiator raises it to what it needs.",
    ),
    flag("duration", Kind::Seconds, "10", "How long to measure."),
    flag(
        "batches",
        Kind::Count(0, u64::MAX),
        "0",
        "Stop each worker after so many batches; 0: by --duration alone.",
    ),
    flag(
        "deadline_ms",
        Kind::Count(0, 86_400_000),
        "0",
        "Time that each batch may take; 0: the engine's limit without progress.",
    ),
    flag("report_unit", Kind::Unit, "GB", "Unit of the throughput; Gb, Mb and Kb are bits."),
    flag("report_precision", Kind::Count(0, 9), "2", "Digits after the point."),
    flag(
        "init_mem",
        Kind::Switch,
        "true",
        "Fill the buffers with 0xCC before the test, so that no page is touched first in it.",
    ),
    flag(
        "verify",
        Kind::Switch,
        "false",
        "Write random data, read it back, compare every byte; exit 1 on a difference.",
    ),
];

/// What the command line asks for.
pub enum Asked {
    Run(Flags),
    Help,
    Version,
}

/// A value for each row of the table, which fits its kind.
pub struct Flags {
    values: Vec<String>,
    given: Vec<bool>,
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "t" => Some(true),
        "false" | "0" | "no" | "n" | "f" => Some(false),
        _ => None,
    }
}

impl Kind {
    fn describe(self) -> String {
        match self {
            Kind::Text => "TEXT".into(),
            Kind::Choice(words) => words.into(),
            Kind::Unit => units::report_names(),
            Kind::Switch => "true|false".into(),
            Kind::Count(..) => "NUMBER".into(),
            Kind::Size => "BYTES".into(),
            Kind::Seconds => "SECONDS".into(),
        }
    }

    fn fits(self, text: &str) -> bool {
        match self {
            Kind::Text => true,
            Kind::Choice(words) => words.split('|').any(|word| word == text),
            Kind::Unit => units::report_bytes(text).is_some(),
            Kind::Switch => parse_switch(text).is_some(),
            Kind::Count(least, most) => {
                text.parse::<u64>().map_or(false, |n| n >= least && n <= most)
            }
            Kind::Size => units::parse_size(text).map_or(false, |n| n > 0),
            Kind::Seconds => text.parse::<f64>().map_or(false, |s| (0.0..=1e9).contains(&s)),
        }
    }
}

fn find(name: &str) -> Option<usize> {
    let name = name.replace('-', "_");
    TABLE.iter().position(|flag| flag.name == name)
}

impl Flags {
    fn new() -> Flags {
        Flags {
            values: TABLE.iter().map(|flag| flag.initial.to_string()).collect(),
            given: vec![false; TABLE.len()],
        }
    }

    fn set(&mut self, row: usize, value: &str) -> Result<(), String> {
        let Flag { name, kind, .. } = &TABLE[row];
        if !kind.fits(value) {
            return Err(format!("bad value '{value}' for --{name}: expected {}", kind.describe()));
        }
        self.values[row] = value.to_string();
        self.given[row] = true;
        Ok(())
    }

    /// Takes one flag, and its value if that stands apart.
    fn take(&mut self, flag: &str, rest: &mut dyn Iterator<Item = String>) -> Result<(), String> {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (flag, None),
        };
        let negated = name.strip_prefix("no").map(|n| n.trim_start_matches(['-', '_']));
        if let Some(row) = find(name) {
            let value = match (value, TABLE[row].kind) {
                (Some(value), _) => value,
                (None, Kind::Switch) => "true".into(),
                (None, _) => rest.next().ok_or(format!("flag --{name} needs a value"))?,
            };
            return self.set(row, &value);
        }
        match negated.and_then(find) {
            Some(row) if value.is_none() && matches!(TABLE[row].kind, Kind::Switch) => {
                self.set(row, "false")
            }
            _ => Err(format!("unknown flag --{name} (--help lists all)")),
        }
    }

    fn row(name: &str) -> usize {
        find(name).expect("a flag of the table")
    }

    pub fn given(&self, name: &str) -> bool {
        self.given[Flags::row(name)]
    }

    pub fn text(&self, name: &str) -> &str {
        &self.values[Flags::row(name)]
    }

    /// The text, unless it is empty.
    pub fn some_text(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn switch(&self, name: &str) -> bool {
        parse_switch(self.text(name)).unwrap_or(false)
    }

    pub fn number(&self, name: &str) -> u64 {
        units::parse_size(self.text(name)).unwrap_or(0)
    }

    pub fn seconds(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }
}

/// Reads the command line, or says what is wrong with it.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut flags = Flags::new();
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        match name {
            Some("help" | "h") => return Ok(Asked::Help),
            Some("version") => return Ok(Asked::Version),
            Some(name) if !name.is_empty() => flags.take(name, &mut arguments)?,
            _ => {
                return Err(format!("unexpected argument '{argument}' (--help lists all flags)"));
            }
        }
    }
    Ok(Asked::Run(flags))
}

pub fn print_help() {
    println!("usage: {TOOL} [--FLAG=VALUE]...\n\n{ABOUT}\n\nFlags:");
    for flag in TABLE {
        let initial = if flag.initial.is_empty() { "none" } else { flag.initial };
        println!("  --{}={}", flag.name, flag.kind.describe());
        println!("      {} (default: {initial})", flag.help);
    }
    println!("  --help\n      Print this text.\n  --version\n      Print the version.\n");
    println!(
        "BYTES may end in K, M, G or T (powers of 1024, also KiB ...) or KB, MB, GB, TB (powers of"
    );
    println!("1000).");
}
