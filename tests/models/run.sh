#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The models of the lock-free structures, under loom: make models. Exits 77 with the reason where there is no cargo
# that builds loom, or crates.io is not reached.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: tests/models/run.sh [FILTER]...     runs all models, or those whose name contains FILTER
LOOM_MAX_PREEMPTIONS (4) bounds how often a thread is interrupted: with 5 it takes four times as long.
What is built lies in build/models; TE_TEST_BUILD names another build folder.
TEXT
}

skip() {
    echo "models: $*" >&2
    exit 77
}

case ${1:-} in -h | --help) usage; exit 0 ;; esac
cd "$(dirname "$0")"
out=${TE_TEST_BUILD:-$PWD/../../build}/models
mkdir -p "$out"
export CARGO_TARGET_DIR=$out RUST_BACKTRACE=0 LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-4}

command -v cargo >/dev/null || skip "cargo is missing"
cargo metadata --locked --offline --no-deps --format-version 1 >"$out/cargo.log" 2>&1 ||
    skip "this cargo cannot read the crate ($(cargo --version)): $(tail -n 1 "$out/cargo.log")"
if ! cargo fetch --locked --offline >"$out/cargo.log" 2>&1; then
    timeout 120 cargo fetch --locked >"$out/cargo.log" 2>&1 ||
        skip "cargo does not get loom from crates.io: $(tail -n 1 "$out/cargo.log")"
fi
need=$(sed -n 's/^rust-version = "1\.\([0-9]*\)"$/\1/p' Cargo.toml)
minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge "$need" ] || skip "rustc 1.$need or later builds loom; this is $(rustc --version)"
cargo test --locked --offline --quiet -- "$@"
