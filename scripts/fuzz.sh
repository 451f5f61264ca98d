#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each libFuzzer target of build/fuzz for a bounded time.
set -euo pipefail

seconds=60
build=build/fuzz
names=()
usage() {
    cat <<'USAGE'
usage: scripts/fuzz.sh [--seconds N] [--build DIR] [TARGET]...

Runs the named targets (default: all) of the fuzz build, N seconds each (default 60), from the seeds of
tests/fuzz/corpus/<target without fuzz_>/. What it finds new stays in DIR/corpus/, an input that breaks
the target in DIR/artifacts/. Exit 1 when a target broke.
USAGE
}
while [ $# -gt 0 ]; do
    case "$1" in
        --seconds) seconds=$2; shift 2 ;;
        --build) build=$2; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "fuzz: unknown argument '$1' (see --help)" >&2; exit 2 ;;
        *) names+=("$1"); shift ;;
    esac
done
cd "$(dirname "$0")/.."

if [ ${#names[@]} -eq 0 ]; then
    for program in "$build"/tests/fuzz/fuzz_*; do
        if [ -x "$program" ]; then names+=("$(basename "$program")"); fi
    done
fi
[ ${#names[@]} -gt 0 ] || { echo "fuzz: no target in $build/tests/fuzz" >&2; exit 1; }

failed=0
for name in "${names[@]}"; do
    short=${name#fuzz_}
    mkdir -p "$build/corpus/$short" "$build/artifacts/$short"
    seeds=()
    [ ! -d "tests/fuzz/corpus/$short" ] || seeds=("tests/fuzz/corpus/$short")
    echo "fuzz: $name for $seconds s"
    if ! timeout $((seconds + 60)) "$build/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$build/artifacts/$short/" "$build/corpus/$short" "${seeds[@]}"; then
        echo "fuzz: $name FAILED; the input is in $build/artifacts/$short/" >&2
        failed=$((failed + 1))
    fi
done
echo "fuzz: ${#names[@]} targets, $failed failed"
[ $failed -eq 0 ]
