#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long campaigns: what a test samples, in full. One after the other, all of them, so that one run tells all.
set -euo pipefail

campaigns=(
    # name   what it runs
    "oom     python3 tests/integration/test_oom.py --whole"
    "calls   python3 tests/integration/test_calls.py --whole"
    "late    build/tests/integration/test_late_write 100000"
    "sim     build/tests/sim/sim --batches=2000000 --from=\$(date +%s) --jobs=\$(nproc)"
)

usage() {
    cat <<'USAGE'
usage: scripts/soak.sh [--list] [NAME...]

Runs the named campaigns (default: all) of a tree in which `make tests` has run; `make soak` does both. What each
says is kept in build/soak/NAME.log. Exit 1 when one failed.

  oom    each allocation of each phase of an engine fails, alone and with all after it (about an hour)
  calls  each call of the system of each sort fails, alone and with all after it (about an hour)
  late   WRITEs that end early, towards a target that is stopped and goes on, 100,000 rounds of each framing (75 minutes)
  sim    the simulation, with other seeds each time, until 2,000,000 batches have run (about an hour of a processor)
USAGE
}

cd "$(dirname "$0")/.."
case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    --list) for row in "${campaigns[@]}"; do echo "${row%% *}"; done; exit 0 ;;
    -*) echo "soak: unknown option '$1' (see --help)" >&2; exit 2 ;;
esac

for want in "$@"; do
    printf '%s\n' "${campaigns[@]}" | grep -q "^$want " || { echo "soak: no campaign '$want' (see --list)" >&2; exit 2; }
done

mkdir -p build/soak
failed=()
for row in "${campaigns[@]}"; do
    read -r name command <<<"$row"
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    echo "soak: ---- $name: $command"
    start=$SECONDS
    if bash -euo pipefail -c "$command" 2>&1 | tee "build/soak/$name.log"; then
        echo "soak: ---- $name ok, $((SECONDS - start)) s"
    else
        failed+=("$name")
        echo "soak: ---- $name FAILED, $((SECONDS - start)) s; build/soak/$name.log has it"
    fi
done
[ ${#failed[@]} -eq 0 ] || { echo "soak: failed: ${failed[*]}" >&2; exit 1; }
