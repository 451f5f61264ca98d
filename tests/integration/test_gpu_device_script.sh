#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
# tests/device/run.sh on stand-in drivers: it packs what it needs, runs it, and writes its report.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
run=$src/tests/device/run.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "test_gpu_device_script: $*" >&2; exit 1; }

"$run" --help | grep -q 'run.sh pack FOLDER' || fail "--help tells nothing of pack"
"$run" pack "$dir/packed" "$build"
rc=0
OUT=$dir/out "$dir/packed/run.sh" --soft --short run >"$dir/said" 2>&1 || rc=$?
cat "$dir/said"
[ "$rc" = 0 ] || { cat "$dir/out/log.txt"; fail "exit status $rc"; }
report=$dir/out/report.md
grep -q '^| GPU | none: stand-in drivers' "$report" || fail "the report does not say what it ran on"
[ "$(grep -c '| passed |' "$report")" -ge 10 ] || { cat "$report"; fail "few steps have passed"; }
grep -q '^    local h2d .* goal ' "$report" || { cat "$report"; fail "no figures in the report"; }

grep -q '^None: stand-ins ran' "$report" || fail "the report says that rows of documents are filled"
for kind in cuda hip npu musa maca supa; do
    grep -q "^| bench, $kind to $kind, [a-z_]* | passed |" "$report" || fail "memory of $kind was not moved"
done
grep -q '^| bench, host to host, tcp | passed |' "$report" || fail "memory of the host was not moved"
grep -q '^| test_nvmeof, .* | passed |' "$report" || fail "no test of files"

# The archive holds the same.
"$src/scripts/kit.sh" "$build" >"$dir/said" || fail "scripts/kit.sh: $(cat "$dir/said")"
tar -tf "$(tail -1 "$dir/said")" >"$dir/listed"
for file in run.sh softgpu/libcuda.so.1; do
    grep -q "^te-kit-[^/]*/$file\$" "$dir/listed" || fail "the archive has no $file"
done
