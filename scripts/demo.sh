#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows the engine at work: a target and an initiator on this host, over TCP on loopback, that find
# each other with no server. Random data goes both ways at several sizes and odd offsets, every byte
# is compared, then the throughput is measured. TE_BIN names the folder of the tools to run.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${TE_BIN:-$root/build/bin}
bench=$bin/transfer_engine_bench
if [ ! -x "$bench" ]; then
    echo "demo: $bench is missing: run make first" >&2
    exit 1
fi

work=$(mktemp -d)
target=
cleanup() {
    if [ -n "$target" ]; then
        kill -TERM "$target" 2>/dev/null || true
        wait "$target" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT

export TE_BIND=127.0.0.1 # nobody else is to reach it
good='' bad='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    good=$'\e[32m' bad=$'\e[31m' plain=$'\e[m'
fi

common=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=tcp)

: >"$work/target.out"
"$bench" --mode=target "${common[@]}" --buffer_size=128M >"$work/target.out" 2>"$work/target.err" &
target=$!
name=
for ((i = 0; i < 200; i++)); do
    name=$(sed -n 's/^segment: //p' "$work/target.out")
    [ -z "$name" ] || break
    kill -0 "$target" 2>/dev/null || break
    sleep 0.05
done
if [ -z "$name" ]; then
    echo "demo: the target did not start" >&2
    cat "$work/target.err" >&2
    exit 1
fi
echo "target: $name (process $target)"

total=0
errors=0

# verify BLOCK BATCH THREADS ROUNDS: random data there and back, in requests of BLOCK bytes.
verify() {
    local rc=0 bytes
    "$bench" "${common[@]}" --segment_id="$name" --verify --block_size="$1" --batch_size="$2" \
        --threads="$3" --batches="$4" --duration=30 --buffer_size=128M \
        >"$work/out" 2>"$work/err" || rc=$?
    bytes=$(sed -n 's/^Verified: \([0-9]*\) bytes, 0 errors$/\1/p' "$work/out")
    if [ "$rc" -ne 0 ] || [ -z "$bytes" ]; then
        printf '%12s %8s %8s %14s  %sFAILED%s\n' "$1" "$2" "$3" "-" "$bad" "$plain"
        cat "$work/err" >&2
        errors=$((errors + 1))
        return
    fi
    total=$((total + bytes))
    printf '%12s %8s %8s %14s  %sok%s\n' "$1" "$2" "$3" "$bytes" "$good" "$plain"
}

echo
echo "Random data, written and read back, every byte compared:"
printf '%12s %8s %8s %14s\n' "BlkSize (B)" Batch Threads Bytes
#      block  batch threads rounds
verify 1        128 2       50
verify 7        128 2       50
verify 4095      64 4       50
verify 4096      64 4       50
verify 65537     32 2       40
verify 1048573   16 2       8
verify 1048576    8 1       16
verify 4194301    4 2       8
verify 67108861   1 1       4

if [ "$errors" -eq 0 ]; then
    echo
    echo "Throughput of reads:"
    "$bench" "${common[@]}" --segment_id="$name" --operation=read --sweep \
        --sweep_block_size=4K,64K,1M --sweep_batch_size=1,16 --sweep_threads=1,2 \
        --duration=0.5 --buffer_size=128M 2>"$work/err" || {
        cat "$work/err" >&2
        errors=$((errors + 1))
    }
fi

echo
verdict=$good
[ "$errors" -eq 0 ] || verdict=$bad
echo "demo: $total bytes verified, $verdict$errors errors$plain"
[ "$errors" -eq 0 ]
