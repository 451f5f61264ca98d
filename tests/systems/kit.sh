#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The archive of `make kit` on a host that has nothing else: what needs no device runs and passes, what does is skipped
# by its name, and with the stand-in drivers of the archive memory of every kind is moved. For any sh.
#
# usage: tests/systems/kit.sh ARCHIVE
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
kinds="cuda hip npu musa maca supa"

fail() {
    echo "kit: $*" >&2
    cat "$work/said" >&2
    tail -n 40 "$work"/*/log.txt >&2
    exit 1
}

run() { # NAME OPTION...
    OUT=$work/$1
    report=$OUT/report.md
    shift
    export OUT
    "$kit/run.sh" --short "$@" run >"$work/said" 2>&1 || fail "run.sh --short $* has failed"
    for transport in host tcp; do
        has "bench, host to host, $transport" passed
    done
    has 'test_nvmeof, .*' '\(passed\|skipped\)'
}

# A step of the report has this result.
has() {
    grep -q "^| $1 | $2 |" "$report" || fail "the report has no row '$1' that says: $2"
}

tar -C "$work" -xf "$1"
kit=$(echo "$work"/te-kit-*)

run plain
for kind in $kinds; do
    has "bench, memory of $kind" skipped
done
for name in 'test_rdma and the bench over rdma' 'raw_gpu, te_gpu' 'tests of memory of devices'; do
    has "$name" skipped
done
grep -q '^None: this host has no accelerator' "$report" || fail "the report says that rows of documents are filled"
passed=$(grep -c '| passed |' "$report")

run soft --soft
for kind in $kinds; do
    has "bench, $kind to $kind, [a-z_]*" passed
done
has test_gpu_mem passed
echo "the kit: $passed steps passed without a device, $(grep -c '| passed |' "$report") with stand-ins"
