#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the unit tests under valgrind.
set -euo pipefail

build=build
case "${1:-}" in
    -h | --help)
        echo "usage: scripts/valgrind.sh [BUILD]"
        echo "Runs every program of BUILD/tests/unit (default: build) under valgrind with a full leak check."
        exit 0
        ;;
    ?*) build=$1 ;;
esac
cd "$(dirname "$0")/.."

run=0
failed=0
for program in "$build"/tests/unit/test_*; do
    [ -x "$program" ] || continue
    run=$((run + 1))
    rc=0
    out=$(CMOCKA_MESSAGE_OUTPUT=STDOUT timeout 300 valgrind --quiet --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible \
        --suppressions=tests/valgrind.supp --track-fds=no --num-callers=30 "$program" 2>&1) || rc=$?
    if [ $rc -eq 0 ] || [ $rc -eq 77 ]; then
        echo "ok      $(basename "$program")"
    else
        failed=$((failed + 1))
        printf '%s\nFAILED  %s (exit %d)\n' "$out" "$(basename "$program")" $rc
    fi
done
[ $run -gt 0 ] || { echo "valgrind: no unit test in $build/tests/unit; build first" >&2; exit 1; }
echo "valgrind: $((run - failed)) passed, $failed failed"
[ $failed -eq 0 ]
