// SPDX-License-Identifier: Apache-2.0
//! The declarations against the headers themselves, by a C program that prints what the compiler makes of it.
use super::*;
use crate::error::{ErrorClass, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::{size_of, MaybeUninit};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// te.h in TRANSFER_ENGINE_INCLUDE_DIR, where it has to be, else where the crate lies in the tree that
/// it belongs to.
fn header() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("TRANSFER_ENGINE_INCLUDE_DIR") {
        let path = PathBuf::from(folder).join("te.h");
        assert!(path.exists(), "{} is missing", path.display());
        return Some(path);
    }
    let tree = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../include/te.h");
    Some(tree).filter(|path| path.exists())
}

/// A folder that goes with its last use.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = env::temp_dir().join(format!("te-rust-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles C that includes te.h; what the compiler says if it does not take it.
fn compile(folder: &Folder, body: &str, flags: &[&str]) -> Option<Result<(), String>> {
    let source = folder.0.join("abi.c");
    let header = header()?;
    fs::write(&source, format!("#include <stdio.h>\n#include \"{}\"\n{body}", header.display()))
        .unwrap();
    let cc = env::var("TE_TEST_CC").or_else(|_| env::var("CC")).unwrap_or_else(|_| "cc".into());
    let built = Command::new(cc).current_dir(&folder.0).args(flags).arg(&source).output();
    let built = built.expect("a C compiler");
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    Some(if built.status.success() { Ok(()) } else { Err(said) })
}

/// What the program prints: a name and a number on each line.
fn ask_compiler(name: &str, body: &str) -> Option<BTreeMap<String, i64>> {
    let folder = Folder::new(name);
    let body = format!(
        "#define P(name, value) printf(\"%s %lld\\n\", name, (long long)(value))\n\
         int main(void)\n{{\n{body}return 0;\n}}\n"
    );
    compile(&folder, &body, &["-o", "abi"])?.unwrap();
    let out = Command::new(folder.0.join("abi")).output().unwrap();
    let rows = String::from_utf8(out.stdout).unwrap();
    Some(
        rows.lines()
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                (name.to_string(), value.parse().unwrap())
            })
            .collect(),
    )
}

/// Sizes and offsets: what Rust has, and the C that prints the same.
macro_rules! layout {
    ($rows:ident, $body:ident, $($kind:literal $type:ident { $($field:ident),+ })+) => {
        $(
            let name = concat!($kind, stringify!($type));
            $rows.insert(name.to_string(), size_of::<$type>() as i64);
            $body += &format!("P(\"{name}\", sizeof({name}));\n");
            let place = MaybeUninit::<$type>::uninit();
            let start = place.as_ptr();
            $(
                // SAFETY: only addresses inside the struct are computed.
                let field = unsafe { std::ptr::addr_of!((*start).$field) };
                let field_name = concat!($kind, stringify!($type), ".", stringify!($field));
                $rows.insert(field_name.to_string(), field as i64 - start as i64);
                $body += &format!("P(\"{field_name}\", offsetof({name}, {}));\n", stringify!($field));
            )+
        )+
    };
}

macro_rules! constants {
    ($rows:ident, $body:ident, $($name:ident)+) => {
        $(
            $rows.insert(stringify!($name).to_string(), $name as i64);
            $body += &format!("P(\"{0}\", {0});\n", stringify!($name));
        )+
    };
}

#[test]
fn layouts_and_constants_are_those_of_the_header() {
    let mut rows = BTreeMap::new();
    let mut body = String::new();
    layout! { rows, body,
        "" te_options { size, metadata, local_server_name, ip_or_host_name, rpc_port, auto_discover, set }
        "" te_buffer { addr, length }
        "" te_request { opcode, source, target, target_offset, length }
        "struct " te_status { state, error, bytes }
        "struct " te_path { size, transport, nic, changes, staged }
        "struct " te_warmed { transport, error, ready, opening, failed, time_ns, reserved }
        "struct " te_warm { size, n, time_ns, by }
        "" te_submit_opts { size, deadline_ms, notify_name, notify_msg, notify_target, traceparent, paths, after, then, lease }
        "" te_lease_key { bytes }
        "" te_stream { size, location, stream, fd }
        "" te_paths { size, require, prefer, forbid }
        "" te_page_side { base, pages, stride, part_stride, layer_stride, index }
        "" te_pages { size, opcode, target, length, n, parts, layers, index_bits, local, remote }
        "" te_message { name, name_len, msg, msg_len }
        "struct " te_stats { size, requests_submitted, requests_completed, requests_failed, bytes_read,
            bytes_written, served_requests, served_bytes_out, served_bytes_in, served_rejected, retries,
            reconnects, refreshes, connections, regions, segments_open, notifications_sent,
            notifications_received, metadata_failures, metadata_down }
    }
    constants! { rows, body,
        TE_LOCAL_SEGMENT TE_LOCAL_ONLY TE_REMOTE_READ TE_REMOTE_WRITE TE_REMOTE_RW TE_READ TE_WRITE
        TE_WAITING TE_PENDING TE_INVALID TE_CANCELED TE_COMPLETED TE_TIMEOUT TE_FAILED TE_LOG_TRACE
        TE_LOG_DEBUG TE_LOG_INFO TE_LOG_WARN TE_LOG_ERROR TE_LOG_OFF
    }
    for (name, size) in [
        ("te_segment", size_of::<te_segment>()),
        ("te_batch", size_of::<te_batch>()),
        ("te_prep", size_of::<te_prep>()),
        ("te_counter", size_of::<te_counter>()),
        ("te_adder", size_of::<te_adder>()),
        ("te_lease", size_of::<te_lease>()),
    ] {
        rows.insert(name.to_string(), size as i64);
        body += &format!("P(\"{name}\", sizeof({name}));\n");
    }
    match ask_compiler("layout", &body) {
        Some(compiler) => assert_eq!(rows, compiler),
        None => eprintln!("te.h is not here: nothing to compare with"),
    }
}

#[test]
fn errors_are_those_of_the_header() {
    let body = "#define OK 0\n#define REQUEST 1\n#define PATH 2\n#define FATAL 3\n\
                #define ROW(name, number, class, text) P(\"TE_ERR_\" #name, (number) * 10 - class);\n\
                TE_ERR_MAP(ROW)\n";
    let mut rows = BTreeMap::new();
    rows.insert("TE_ERR_OK".to_string(), 0);
    for kind in ErrorKind::all() {
        let class = match kind.class() {
            ErrorClass::Request => 1,
            ErrorClass::Path => 2,
            ErrorClass::Fatal => 3,
        };
        rows.insert(kind.name().to_string(), i64::from(kind.code()) * 10 - class);
        assert_eq!(ErrorKind::of(kind.code()), kind);
    }
    if let Some(compiler) = ask_compiler("errors", body) {
        assert_eq!(rows, compiler);
    }
}

/// The C type of one of Rust.
fn c_type(rust: &str) -> String {
    for (before, after) in [("*mut ", " *"), ("*const ", " *")] {
        if let Some(pointee) = rust.strip_prefix(before) {
            let constant = if before == "*const " { " const" } else { "" };
            return c_type(pointee) + constant + after;
        }
    }
    let named = match rust {
        "c_int" => "int",
        "c_uint" => "unsigned",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "te_log_level" => "enum te_log_level",
        "te_status" => "struct te_status",
        "te_path" => "struct te_path",
        "te_warm" => "struct te_warm",
        "te_stats" => "struct te_stats",
        "Option<te_log_sink>" => "te_log_sink",
        other => other,
    };
    named.to_string()
}

/// The functions of sys.rs: a name, and a declaration in C.
fn prototypes() -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    for part in include_str!("../sys.rs").split("    pub fn ").skip(1) {
        let head = part.split(';').next().unwrap();
        let (name, rest) = head.split_once('(').unwrap();
        let (inside, result) = rest.rsplit_once(')').unwrap();
        let types: Vec<String> = inside
            .split(',')
            .filter_map(|argument| argument.split_once(':'))
            .map(|(_, rust)| c_type(rust.trim()))
            .collect();
        let types = if types.is_empty() { "void".into() } else { types.join(", ") };
        let result = result.trim().strip_prefix("-> ").map_or("void".into(), c_type);
        found.insert(name, format!("{result} {name}({types});\n"));
    }
    found
}

#[test]
fn functions_are_those_of_the_header() {
    let ours = prototypes();
    let folder = Folder::new("functions");
    // Of the same type, or it does not compile.
    let sink = "typedef void (*te_log_sink)(void *, enum te_log_level, const char *);\n";
    let body: String = std::iter::once(sink).chain(ours.values().map(String::as_str)).collect();
    match compile(&folder, &body, &["-fsyntax-only"]) {
        Some(taken) => taken.unwrap(),
        None => return,
    }
    let other = body.replacen("size_t", "int", 1);
    assert!(compile(&folder, &other, &["-fsyntax-only"]).unwrap().is_err());

    let header = header().unwrap();
    let texts = ["te.h", "te_counter.h", "te_paths.h", "te_lease.h"]
        .map(|name| fs::read_to_string(header.with_file_name(name)).unwrap());
    let theirs: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("\nTE_API ").skip(1))
        .filter_map(|part| part.split('(').next()?.rsplit([' ', '*']).next())
        // Not offered here: a segment is opened by te_open_with(), regions come one by one, memory is allocated without options, log lines
        // go to functions, messages are taken as bytes, descriptors and keys are for those who look
        // after a cluster, and whether a target is quiet is asked in C.
        .filter(|name| {
            ![
                "te_open",
                "te_register_batch",
                "te_unregister_batch",
                "te_alloc_with",
                "te_fence",
                "te_fence_segment",
                "te_log_to_fd",
                "te_notify_recv",
                "te_notify_free",
                "te_option_get",
                "te_segment_json",
                "te_metadata_get",
                "te_metadata_put",
            ]
            .contains(name)
        })
        .collect();
    assert_eq!(ours.keys().copied().collect::<BTreeSet<_>>(), theirs);
}
