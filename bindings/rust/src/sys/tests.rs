// SPDX-License-Identifier: Apache-2.0
//! The declarations against te.h itself, by a C program that prints what the compiler makes of it.
use super::*;
use crate::error::{ErrorClass, ErrorKind};
use std::collections::BTreeMap;
use std::mem::{size_of, MaybeUninit};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// te.h, where the crate lies in the tree that it belongs to.
fn header() -> Option<PathBuf> {
    let folder = env::var_os("TRANSFER_ENGINE_INCLUDE_DIR").map(PathBuf::from);
    let tree = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../include");
    Some(folder.unwrap_or(tree).join("te.h")).filter(|path| path.exists())
}

/// What the program prints: a name and a number on each line.
fn ask_compiler(name: &str, body: &str) -> Option<BTreeMap<String, i64>> {
    let header = header()?;
    let folder = env::temp_dir().join(format!("te-rust-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("abi.c"), folder.join("abi"));
    let text = format!(
        "#include <stdio.h>\n#include \"{}\"\n#define P(name, value) \
         printf(\"%s %lld\\n\", name, (long long)(value))\nint main(void)\n{{\n{body}return 0;\n}}\n",
        header.display()
    );
    fs::write(&source, text).unwrap();
    let cc = env::var("TE_TEST_CC").or_else(|_| env::var("CC")).unwrap_or_else(|_| "cc".into());
    let built = Command::new(cc).arg(&source).arg("-o").arg(&program).status();
    assert!(built.expect("a C compiler").success());
    let out = Command::new(&program).output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
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
        "" te_submit_opts { size, deadline_ms, notify_name, notify_msg, notify_target }
        "" te_notification { name, msg }
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

/// Names of functions, and how many arguments each has, of text in which declarations end in ");" or
/// ") -> ...".
fn functions<'t>(text: &'t str, before: &str) -> BTreeMap<&'t str, usize> {
    let mut found = BTreeMap::new();
    for part in text.split(before).skip(1) {
        let head = part.split(';').next().unwrap();
        let (name, rest) = head.split_once('(').unwrap();
        let arguments = rest.rsplit_once(')').map_or("", |(inside, _)| inside).trim();
        let count = arguments.split(',').filter(|a| !matches!(a.trim(), "" | "void")).count();
        let name = name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        found.insert(name, count);
    }
    found
}

#[test]
fn functions_are_those_of_the_header() {
    let header = match header() {
        Some(path) => fs::read_to_string(path).unwrap(),
        None => return,
    };
    let mut theirs = functions(&header, "\nTE_API ");
    for several in ["te_register_batch", "te_unregister_batch"] {
        assert!(theirs.remove(several).is_some()); // of no use here: regions come one by one
    }
    assert_eq!(functions(include_str!("../sys.rs"), "    pub fn "), theirs);
}
