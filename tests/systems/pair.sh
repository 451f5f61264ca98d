#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two engines in two processes: data of odd sizes goes there and back, and every byte is compared. For any sh,
# busybox's too.
#
# usage: tests/systems/pair.sh BIN PROTOCOL [EMULATOR]   (BIN: the folder of the tools)
set -eu

bench=$1/transfer_engine_bench
protocol=$2
emulator=${3:-}
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
trap 'exit 130' INT TERM

run() {
    mode=$1
    shift
    $emulator "$bench" --mode="$mode" --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 \
        --protocol="$protocol" --buffer_size=16M "$@"
}

: >"$work/target.out" # which is read before the target writes
# In this shell's own process, so that the signal at the end comes to the bench.
(exec >"$work/target.out" 2>"$work/target.err"
exec $emulator "$bench" --mode=target --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 \
    --protocol="$protocol" --buffer_size=16M) &
target=$!
name=
while [ -z "$name" ]; do
    name=$(sed -n 's/^segment: //p' "$work/target.out")
    if [ -z "$name" ] && ! kill -0 "$target" 2>/dev/null; then
        echo "pair: the target did not start" >&2
        cat "$work/target.err" >&2
        exit 1
    fi
    [ -n "$name" ] || sleep 0.1
done

total=0
for block in 1 4095 65537 1048573; do
    run initiator --segment_id="$name" --verify --block_size=$block --batch_size=4 --threads=2 --batches=6 \
        --duration=120 >"$work/out" 2>"$work/err" || {
        echo "pair: $protocol, blocks of $block bytes: failed" >&2
        cat "$work/out" "$work/err" "$work/target.err" >&2
        exit 1
    }
    bytes=$(sed -n 's/^Verified: \([0-9]*\) bytes, 0 errors$/\1/p' "$work/out")
    if [ "${bytes:-0}" -eq 0 ]; then
        echo "pair: $protocol, blocks of $block bytes: nothing was verified" >&2
        cat "$work/out" >&2
        exit 1
    fi
    total=$((total + bytes))
done
echo "$total bytes verified"
