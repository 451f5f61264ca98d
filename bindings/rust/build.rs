// SPDX-License-Identifier: Apache-2.0
//! Finds libtransfer_engine: in TRANSFER_ENGINE_LIB_DIR, else by pkg-config, else where the linker
//! looks by itself.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "transfer_engine";

/// What pkg-config prints, or why it prints nothing.
fn pkg_config(args: &[&str], folders: &[&Path]) -> Result<String, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let mut command = Command::new(&program);
    command.args(args).arg(NAME);
    if !folders.is_empty() {
        let before = env::var_os("PKG_CONFIG_PATH").unwrap_or_default();
        let before = env::split_paths(&before).filter(|p| !p.as_os_str().is_empty());
        let all = folders.iter().map(PathBuf::from).chain(before);
        let path = env::join_paths(all).map_err(|e| e.to_string())?;
        command.env("PKG_CONFIG_PATH", path);
    }
    let out = command.output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_string());
    }
    String::from_utf8(out.stdout).map_err(|e| e.to_string())
}

/// The arguments of a linker, as far as they say where to look and which libraries to take.
fn link_with(flags: &str, but: &str) {
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            if library != but {
                println!("cargo:rustc-link-lib={library}");
            }
        }
    }
}

/// The archive, and by pkg-config the libraries that it needs in turn.
fn link_static(dir: Option<&str>) {
    let mut beside = Vec::new();
    if let Some(dir) = dir.map(Path::new) {
        println!("cargo:rustc-link-search=native={}", dir.display());
        println!("cargo:rerun-if-changed={}", dir.join(format!("lib{NAME}.a")).display());
        beside.push(dir.join("pkgconfig"));
        beside.extend(dir.parent().map(Path::to_path_buf));
    }
    let folders: Vec<&Path> = beside.iter().map(|p| p.as_path()).collect();
    println!("cargo:rustc-link-lib=static={NAME}");
    match pkg_config(&["--static", "--libs"], &folders) {
        Ok(flags) => link_with(&flags, NAME),
        Err(why) => panic!("the feature \"static\" needs pkg-config and {NAME}.pc: {why}"),
    }
}

fn link_shared(dir: Option<&str>) {
    println!("cargo:rustc-link-lib=dylib={NAME}");
    if let Some(dir) = dir {
        println!("cargo:rustc-link-search=native={dir}");
        // The tests and examples of this package find it at run time, too.
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    } else if let Ok(flags) = pkg_config(&["--libs"], &[]) {
        link_with(&flags, NAME);
    }
}

/// TRANSFER_ENGINE_LIB_DIR as an absolute path. It may be relative to this package, where cargo runs
/// this program; empty is the same as unset.
fn folder() -> Option<String> {
    let dir = env::var("TRANSFER_ENGINE_LIB_DIR").ok().filter(|dir| !dir.is_empty())?;
    match std::fs::canonicalize(&dir) {
        Ok(path) => Some(path.to_str().expect("a path in UTF-8").to_string()),
        Err(why) => panic!("TRANSFER_ENGINE_LIB_DIR={dir}: {why}"),
    }
}

fn main() {
    for name in ["TRANSFER_ENGINE_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let dir = folder();
    if env::var_os("CARGO_FEATURE_STATIC").is_some() {
        link_static(dir.as_deref());
    } else {
        link_shared(dir.as_deref());
    }
}
