#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures the engine beside the limits that tests/bench holds, in turns, and prints a table of
# medians, ratios and goals. Many short rounds rather than a few long ones: a machine that is shared
# changes its speed from one second to the next, and what lies close together is alike. It exits 0
# whatever the figures are: a benchmark reports, it asserts nothing. It exits 1 where a part that can
# be measured here has left no sample, and says why.
#
# A part is a function part_NAME, which measures each of its things once; a round is all parts that
# were asked for. Within a part a limit program runs right before what is set beside it. What the
# tags of the samples mean is told by the rows of scripts/bench_table.py.
set -u -o pipefail

all_parts="stream latency delay links host core peers crc auth rdma files"

usage() {
    cat <<TEXT
Usage: scripts/bench.sh [option...]

  --only NAME,...  these parts alone: $all_parts
  --quick          6 short rounds instead of 18: a look, not a measurement
  --rounds N       so many rounds (18)
  --build DIR      the build tree (build)
  --folder DIR     where the part files makes its file, on the disk to measure (the build tree)
  --cc NAME,...    congestion controls that the part stream is run under (the engine's own choice,
                   bbr and reno)
  --json FILE      write all samples of all rounds there too
  --help           this text

  stream   TCP on this host, blocks of 4 KiB to 8 MiB        about 35 s, every 2nd round
  latency  round trips, each wait mode                       12 s, every round
  delay    namespaces with a long cable (needs root)         13 s, every 4th
  links    namespaces with several slow links (needs root)   26 s, every 4th
  host     memory of another process of this host            10 s, every 2nd
  core     submit, create, idle                              3 s, every 2nd
  peers    1,000 targets                                     2 s, every 2nd
  crc      checksums on and off                              3 s, every round
  auth     TE_AUTH=psk and off                               4 s, every round
  rdma     simulated NICs: 1 to 8, slow ones, faults         40 s, every 4th
  files    a file on this disk beside fio (needs fio)        16 s, every 2nd
TEXT
}

fail() {
    echo "bench.sh: $*" >&2
    exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build rounds=18 stream_s=0.4 short_s=0.3 link_s=1 submits=50 cc="" json=""
parts=$all_parts folder=""
while [ $# -gt 0 ]; do
    case $1 in
    --quick) rounds=6 stream_s=0.3 short_s=0.2 link_s=0.6 submits=30 ;;
    --rounds | --build | --cc | --json | --only | --folder)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
        --rounds) rounds=$2 ;;
        --build) build=$2 ;;
        --cc) cc=${2//,/ } ;;
        --folder) folder=$2 ;;
        --json) json=$2 ;;
        --only) parts=${2//,/ } ;;
        esac
        shift
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) fail "unknown option '$1'; try --help" ;;
    esac
    shift
done
case $rounds in
'' | *[!0-9]* | 0) fail "--rounds wants a number" ;;
esac
for part in $parts; do
    case " $all_parts " in
    *" $part "*) ;;
    *) fail "no part '$part'; there are: $all_parts" ;;
    esac
done

bin=$build/tests/bench
[ -x "$bin/te_micro" ] || fail "no benchmark programs in $bin; build first"

export TE_BIND=127.0.0.1 # but within networks of its own

# shellcheck source=scripts/netlab.sh
. "$root/scripts/netlab.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/te-bench.XXXXXX") || fail "no temporary directory"
trap 'lab_close; rm -rf "$work" "${folder:-$build}/te-bench.file"' EXIT
trap 'exit 130' INT TERM
samples=$work/samples
: >"$samples"

# ------------------------------------------------------------------------------------ collecting

# file TAG LINE: one sample, or after a '!' why there is none, under the round.
file() {
    printf '%s\t%s\t%s\n' "$round" "$1" "$2" >>"$samples"
}

# note TAG PROGRAM ARGUMENT...: runs it and files its lines of JSON; if it fails, its complaint.
note() {
    note_at "$1" "$bin/$2" "${@:3}"
}

# The same for a program of this folder.
note_script() {
    note_at "$1" "$root/scripts/$2" "${@:3}"
}

note_at() {
    local tag=$1 path=$2 program=${2##*/} line
    shift 2
    if ! "$path" --json "$@" </dev/null >"$work/out" 2>"$work/err"; then
        line=$(grep -m 1 "^$program: " "$work/err" || head -n 1 "$work/err")
        file "$tag" "!${line//$'\t'/ }"
    fi
    while IFS= read -r line; do
        file "$tag" "$line"
    done <"$work/out"
}

# engine TAG ARGUMENT...: te_micro over TCP.
engine() {
    local tag=$1
    shift
    note "$tag" te_micro --transport tcp "$@"
}

# not_here PART REASON: none of its rows can be measured.
not_here() {
    file "part:$1" "!$2"
}

progress() {
    echo "bench.sh: $*" >&2
}

# ----------------------------------------------------------------------------------------- parts

# The raw sockets use what the engine's use, else congestion control would be compared. A raw stream
# never waits, so neither does the caller: it has several batches under way.
stream_under() {
    local cc=$1 set=()
    [ "$cc" = "$engine_cc" ] || set=(--set "TE_TCP_CONGESTION=$cc")
    set+=(--seconds "$stream_s")
    raw_under "$cc" 1 1M
    engine "e1M@$cc" "${set[@]}" --depth 4 throughput
    raw_under "$cc" 1 4M
    engine "e64K@$cc" "${set[@]}" --depth 4 --block 64K --batch 128 throughput
    raw_under "$cc" 1 256K
    engine "e4K@$cc" "${set[@]}" --depth 4 --block 4K --batch 128 --apart throughput
    engine "e8M@$cc" "${set[@]}" --block 8M throughput
    raw_under "$cc" 4 1M
    engine "e4T@$cc" "${set[@]}" --depth 2 --threads 4 throughput
    raw_under "$cc" 4 256K
}

# lockstep TAG WINDOW CHUNK ARGUMENT...: a batch at a time, and a raw stream that waits as often.
lockstep() {
    note "raw_lock_$1" raw_stream --cc "$engine_cc" --window "$2" --ack "$2" --chunk "$3" --seconds "$stream_s"
    engine "lock_$1" --seconds "$stream_s" "${@:4}" throughput
}

# raw_under CC STREAMS CHUNK: the best chunk counts.
raw_under() {
    note "raw$2_$3@$1" raw_stream --cc "$1" --streams "$2" --chunk "$3" --seconds "$stream_s"
}

part_stream() {
    local one
    for one in $cc; do
        stream_under "$one"
    done
    lockstep 1M 16M 1M
    lockstep 64K 8M 1M --block 64K --batch 128
    lockstep 4K 512K 256K --block 4K --batch 128 --apart
}

# Where two processes run decides what a round trip takes; spinning ones must not share a CPU.
part_latency() {
    local mode size
    for size in 4K 64; do
        for mode in none one both; do
            note "ping_${mode}_$size" raw_pingpong --spin "$mode" --size "$size" --cpus 0,1 \
                --cc "$engine_cc" --seconds "$short_s"
            engine "lat_${mode}_$size" --spin "$mode" --block "$size" --cpus 0,1 \
                --seconds "$short_s" latency
        done
        note "ping_same_$size" raw_pingpong --spin none --size "$size" --cpus 0,0 \
            --cc "$engine_cc" --seconds "$short_s"
        engine "lat_same_$size" --spin none --block "$size" --cpus 0,0 --seconds "$short_s" latency
    done
}

# The programs within the network that netlab.sh has made.
in_lab() {
    local tag=$1 program=$2
    shift 2
    TE_BIND='' note "$tag" "$program" --netns "$TE_NETNS" --address "$TE_ADDRESS" "$@"
}

# A batch asks for 8 MiB, and when all has come for the next: so does raw_stream with this window.
delay_of() {
    local us=$1
    lab_delay "$us" 9000 "$bin/delay_relay" || {
        not_here delay "the relay cannot be set up"
        return
    }
    in_lab "d${us}_ping" raw_pingpong --size 64 --seconds "$short_s"
    in_lab "d${us}_raw" raw_stream --seconds "$link_s"
    in_lab "d${us}_window" raw_stream --window 8M --ack 8M --seconds "$link_s"
    in_lab "d${us}_engine" te_micro --transport tcp --block 64K --batch 128 --seconds "$link_s" throughput
    in_lab "d${us}_first" te_micro --transport tcp --buffer 1M --rounds 10 first
    in_lab "d${us}_warm" te_micro --transport tcp --buffer 1M --rounds 10 warm
    lab_close
    [ -z "$lab_report" ] || file "d${us}_relay" "$lab_report"
}

part_delay() {
    local why
    why=$(lab_can) || {
        not_here delay "$why"
        return
    }
    delay_of 100
    delay_of 1000
}

# links_engine TAG COUNT MBIT MBIT_OF_THE_LAST: the engine over all links of a new network.
links_engine() {
    local tag=$1 count=$2 set=()
    lab_links "$count" "$3" "$4" || {
        not_here links "the links cannot be set up"
        return 1
    }
    [ "$count" -eq 1 ] || set=(--peer-set "TE_TCP_ADDRESSES=$TE_TARGETS")
    in_lab "$tag" te_micro --transport tcp "${set[@]}" --batch 32 --seconds "$link_s" throughput
}

part_links() {
    local why
    why=$(lab_can) || {
        not_here links "$why"
        return
    }
    links_engine l1_engine 1 400 400 || return
    in_lab l1_raw raw_stream --seconds "$link_s"
    links_engine l2_engine 2 400 400 || return
    links_engine l4_engine 4 400 400 || return
    links_engine l4slow_engine 4 400 100 || return
    TE_ADDRESS=10.231.83.1,10.231.83.2
    in_lab slow_raw raw_stream --seconds "$link_s"
    lab_close
}

part_host() {
    local n
    for n in 1 2; do
        note "memcpy$n" raw_memcpy --threads "$n" --seconds "$short_s"
        note "shared$n" te_micro --transport host --memory alloc --threads "$n" --seconds "$short_s" \
            throughput
    done
    note self te_micro --self --seconds "$short_s" throughput
    note vm_1M.read raw_process_vm --seconds "$short_s"
    note vm_1M.write raw_process_vm --write --seconds "$short_s"
    note host_1M te_micro --transport host --seconds "$short_s" throughput
    note vm_4K.read raw_process_vm --block 4K --list 128 --seconds "$short_s"
    note vm_4K.write raw_process_vm --write --block 4K --list 128 --seconds "$short_s"
    note host_4K te_micro --transport host --block 4K --batch 128 --apart --seconds "$short_s" \
        throughput
    note host_first te_micro --transport host --memory alloc --buffer 1M first
    note host_first_vm te_micro --transport host --buffer 1M first
}

part_core() {
    engine submit256 --batch 256 --rounds "$submits" submit
    engine submit1024 --rounds "$submits" submit
    engine prepared --rounds "$submits" prep
    engine post --batch 100000 --cpus 0,1 --rounds 3 submit
    engine pages --rounds 10 pages
    note init te_micro init
    note lease te_micro lease
    [ "$round" -gt 4 ] || engine idle idle
}

part_peers() {
    note peers te_peers
}

part_crc() {
    engine crc_off --seconds "$stream_s" throughput
    engine crc_on --set TE_TCP_CRC32C=1 --seconds "$stream_s" throughput
}

part_auth() {
    local keys=$work/bench.keys
    [ -e "$keys" ] || "$build/bin/te_keys" make --group bench --dir="$work" >/dev/null 2>"$work/err" || {
        not_here auth "$(head -n 1 "$work/err")"
        return
    }
    set -- --set "TE_AUTH=psk,TE_AUTH_KEYS=$keys"
    engine auth_off --seconds "$stream_s" throughput
    engine auth_on "$@" --seconds "$stream_s" throughput
    engine auth_off_first --buffer 1M --rounds 10 first
    engine auth_on_first "$@" --buffer 1M --rounds 10 first
}

# nics TAG COUNT ARGUMENT...: te_micro over so many simulated NICs on either side.
nics() {
    local tag=$1 count=$2
    shift 2
    note "$tag" te_micro --transport rdma --nics "$count" "$@"
}

# Paced well below what one thread copies between processes, which raw_process_vm tells.
part_rdma() {
    local n mbps=200
    note rdma_vm.read raw_process_vm --block 64K --seconds "$short_s"
    note rdma_vm.write raw_process_vm --block 64K --write --seconds "$short_s"
    for n in 1 2 4 8; do
        nics "rdma$n" "$n" --nic-mbps "$mbps" --depth 4 --seconds "$link_s" throughput nics
    done
    nics rdma_slow 4 --nic-mbps "$mbps" --slow-nic --depth 4 --seconds "$link_s" throughput nics
    nics rdma_static 4 --nic-mbps "$mbps" --slow-nic --striped --depth 4 --seconds "$link_s" \
        throughput nics
    nics rdma_faults 4 --nic-mbps "$mbps" --depth 16 faults
    set -- --instant --cpus 0,1 --depth 4 --block 4K --batch 256 --apart --seconds "$short_s"
    nics rdma_4K 1 "$@" throughput nics
    nics rdma_4K_prep 1 "$@" --prepared throughput
    nics rdma_64K 1 --instant --depth 4 --block 64K --batch 256 --seconds "$short_s" throughput nics
    [ "$round" -gt 1 ] || note_script rdma_slice bench_instructions.py --build "$build"
}

# One thread, 32 requests under way, direct, by io_uring with registered file and memory: fio and
# the engine in turns, over the same file. Whole batches would let the queue run dry, hence two of
# them, of which the engine has TE_FILE_DEPTH requests under way.
part_files() {
    local block size=268435456 path=${folder:-$build}/te-bench.file
    fallocate -l "$size" "$path" && dd if=/dev/urandom of="$path" bs=1M count=256 conv=notrunc \
        status=none || { file part:files "!no room for $path"; return; }
    for block in 4K 64K 1M; do
        note_script "fio_$block" bench_fio.py --file "$path" --block "$block" --depth 32 \
            --seconds "$link_s"
        note "file_$block" te_micro --segment "file://$(realpath "$path")" --buffer "$size" --block "$block" \
            --batch 32 --depth 2 --set TE_FILE_DEPTH=32 --seconds "$link_s" throughput
    done
    rm -f "$path"
}

# ------------------------------------------------------------------------------------------- run

round=0
progress "looking at the engine's path and sockets"
engine probe --seconds 0.2 --only read throughput path
system_cc=$(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || echo unknown)
engine_cc=$(sed -n 's/.*"peer_cc": "\([a-z0-9_-]*\)".*/\1/p' "$samples" | head -n 1)
case $engine_cc in
'' | none) engine_cc=$system_cc ;;
esac
known_cc=" $(cat /proc/sys/net/ipv4/tcp_available_congestion_control 2>/dev/null) "
if [ -z "$cc" ]; then
    cc=$engine_cc
    for name in bbr reno; do
        [ "$name" = "$engine_cc" ] || [[ $known_cc != *" $name "* ]] || cc="$cc $name"
    done
fi

# What wavers is measured the most often.
period_of() {
    case $1 in
    latency | crc | auth) echo 1 ;;
    delay | links | rdma) echo 4 ;;
    *) echo 2 ;;
    esac
}

for round in $(seq "$rounds"); do
    for part in $parts; do
        [ $(((round - 1) % $(period_of "$part"))) -eq 0 ] || continue
        progress "round $round of $rounds: $part ($((SECONDS / 60)) min $((SECONDS % 60)) s gone)"
        "part_$part"
    done
done

python3 "$root/scripts/bench_table.py" --parts "${parts// /,}" --cc "${cc// /,}" \
    --engine-cc "$engine_cc" --system-cc "$system_cc" --json "$json" "$samples"
