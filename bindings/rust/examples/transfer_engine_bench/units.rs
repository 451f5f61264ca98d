// SPDX-License-Identifier: Apache-2.0
//! Sizes and rates in text.

const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("k", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("m", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("g", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("t", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
];

const RATES: &[(&str, f64)] = &[
    ("GB", 1e9),
    ("GiB", 1_073_741_824.0),
    ("Gb", 1e9 / 8.0),
    ("MB", 1e6),
    ("MiB", 1_048_576.0),
    ("Mb", 1e6 / 8.0),
    ("KB", 1e3),
    ("KiB", 1024.0),
    ("Kb", 1e3 / 8.0),
];

/// A number of bytes such as 64K or 1GB.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// The bytes of a unit of throughput.
pub fn report_bytes(name: &str) -> Option<f64> {
    RATES.iter().find(|(unit, _)| *unit == name).map(|(_, bytes)| *bytes)
}

/// The names of these units, as a list of choices.
pub fn report_names() -> String {
    RATES.iter().map(|(unit, _)| *unit).collect::<Vec<_>>().join("|")
}
