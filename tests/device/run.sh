#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs what concerns accelerators, RDMA NICs and files on a host that has some, which may have neither packages,
# compilers nor a network: tests, tools in two processes, and figures, within 8 minutes.
#
#   run.sh pack FOLDER [BUILD]   on a machine with a build: puts binaries, the shared libraries that
#                                they need and this script into FOLDER, which must not be there yet
#   run.sh run [FOLDER]          on the host with the devices: runs what FOLDER (this script's) holds
#   run.sh [BUILD]               both, on this machine
#
#   --soft    with stand-in drivers, which the folder holds, instead of the host's (also TE_DEVICE_SOFT=1)
#   --short   of the tests only one, all NICs together, and small samples: whether this script is sound
#   --patient on a host that is emulated: twenty times as long for each step, as with --soft
#
# The report, the outputs and the figures go to $OUT, else to FOLDER/report; the report says which rows of
# docs/ it is for. Exits 0 if everything passed or was skipped for want of what the report names, 1 if not: on a
# host without accelerators and NICs, what needs none runs. TE_DEVICE_CUDA and TE_DEVICE_CUFILE name the
# files of libcuda.so.1 and libcufile.so.0 where they are not found by themselves; those of other makers are
# found in LD_LIBRARY_PATH, too. TE_DEVICE_FILES is a folder on the file system or NVMe over fabrics to be tried.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
self=$here/$(basename "${BASH_SOURCE[0]}")
soft=${TE_DEVICE_SOFT:-}
short= patient=

die() {
    echo "run.sh: $*" >&2
    exit 2
}

# Kinds of memory of devices: location, names of the library, that which tests are linked with first, the
# transport within a host, the page of docs/.
kinds="cuda libcuda.so.1 nvlink_intra gpu.md
hip libamdhip64.so.5,libamdhip64.so.6,libamdhip64.so.7,libgalaxyhip.so.5 hip gpu.md
npu libascendcl.so ascend ascend.md
musa libmusa.so.1,libmusa.so.4 musa gpu.md
maca libmcruntime.so maca gpu.md
supa libsupa.so supa gpu.md"

driver_files() {
    awk '{sub(/,.*/, "", $2); print $2}' <<<"$kinds"
}

# ---- pack ------------------------------------------------------------------------------------------

# What the host has to have itself: the C library's family, and drivers.
is_of_host() {
    case $1 in
    linux-vdso.* | ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | \
        libresolv.so.* | libutil.so.* | libanl.so.* | libnss_* | libcuda.so.* | libamdhip64.so.* | \
        libascendcl.so* | libmusa.so.* | libmcruntime.so* | libsupa.so* | libcufile*.so.* | \
        libibverbs.so.* | libsoftgpu.so.* | libnvidia-*) return 0 ;;
    esac
    return 1
}

pack_libraries() { # FOLDER BINARY...
    local folder=$1 name path
    shift
    for binary in "$@"; do
        LD_LIBRARY_PATH=$build/tests/softgpu ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}'
    done | sort -u | while read -r name path; do
        is_of_host "$name" || cp -L "$path" "$folder/$name" || return 1
    done
}

# What cannot be loaded without a maker's driver would fail where it is to be skipped.
check_loads() { # FOLDER BINARY...
    local folder=$1 binary needs
    shift
    for binary in "$@"; do
        needs=$(LD_LIBRARY_PATH=$folder/none:$folder/lib ldd -r "$binary" 2>&1 | grep -m 1 'undefined symbol')
        [ -z "$needs" ] || die "without drivers it cannot be loaded: $needs"
    done
}

pack() {
    local folder=$1 binary name
    [ -e "$folder" ] && die "$folder is there already"
    [ -d "$build/tests/softgpu" ] || die "$build/tests/softgpu is not there: build first"
    mkdir -p "$folder"/{bin,tests,fabric,bench,lib,none} || exit 1
    for binary in "$build"/bin/{transfer_engine_bench,transfer_engine_validator,te_info} \
        "$build"/tests/bench/{raw_gpu,te_gpu} "$build"/tests/transport/{test_rdma,test_nvmeof}; do
        [ -x "$binary" ] || die "$binary is not built"
    done
    cp "$build"/bin/{transfer_engine_bench,transfer_engine_validator,te_info} "$folder/bin" &&
        cp "$build"/tests/bench/{raw_gpu,te_gpu} "$folder/bench" &&
        cp "$build"/tests/transport/{test_rdma,test_nvmeof} "$folder/fabric" &&
        cp "$here/run.sh" "$folder" || exit 1
    for binary in "$build"/tests/*/test_gpu*; do
        [ -f "$binary" ] && [ -x "$binary" ] && { cp "$binary" "$folder/tests" || exit 1; }
    done
    pack_libraries "$folder/lib" "$folder"/{bin,bench,tests,fabric}/* || die "cannot pack a library"
    # Tests are linked with the drivers of all makers. Where there is none, an empty library stands for it.
    for name in $(driver_files); do
        "${TE_TEST_CC:-cc}" -shared -nostdlib -x c /dev/null -Wl,-soname,"$name" -o "$folder/none/$name" ||
            die "cannot make a stand-in for $name"
    done
    check_loads "$folder" "$folder"/{bin,bench,tests,fabric}/*
    cp -r "$build/tests/softgpu" "$folder/softgpu" || exit 1
    strip --strip-debug "$folder"/{bin,bench,tests,fabric,lib}/* "$folder"/softgpu/*.so* 2>/dev/null
    return 0
}

# ---- the host --------------------------------------------------------------------------------------

first_file() {
    local file
    for file in "$@"; do
        [ -f "$file" ] && { readlink -f "$file"; return 0; }
    done
    return 1
}

# NAME [search]: as the loader knows it, or where installers put it, or anywhere where NVIDIA's devices are; no stand-in
# of a build is one.
known_file() {
    local file
    file=$(ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name && /x86-64|AArch64/ {print $NF; exit}')
    first_file ${file:+"$file"} /usr/lib/*-linux-gnu/"$1" /usr/lib64/"$1" /usr/local/nvidia/lib64/"$1" \
        /usr/lib/wsl/lib/"$1" /usr/local/cuda*/lib64/"$1" /usr/local/cuda*/targets/*/lib/"$1" \
        /opt/rocm*/lib/"$1" /opt/dtk*/hip/lib/"$1" /usr/local/Ascend/ascend-toolkit/latest/lib64/"$1" \
        /usr/local/musa*/lib/"$1" /opt/maca*/lib/"$1" ${LD_LIBRARY_PATH:+"${LD_LIBRARY_PATH%%:*}/$1"} ||
        { [ -n "${2:-}" ] && [ -e /dev/nvidiactl ] && timeout 20 find /opt /usr /home /root -xdev -name "$1" -type f ! -path '*/softgpu/*' -print -quit 2>/dev/null | grep .; }
}

# Distributions install AMD's library beside others, on hosts without its devices: there it may end a
# program that has NVIDIA's in it.
has_node() { # KIND
    [ "$1" != hip ] || [ -e /dev/kfd ] || [ -e /dev/dxg ]
}

# NAME...: the file of the first one that is there
first_known() {
    local name
    for name in "$@"; do
        known_file "$name" && return
    done
    return 1
}

# Those that a kernel makes of network cards (SoftRoCE, SoftiWARP): behind them is no device.
soft_nics() {
    local nic
    for nic in ${nics//,/ }; do
        [ -e "/sys/class/infiniband/$nic/device" ] || echo "$nic"
    done | paste -sd,
}

# Sets `libraries`, what programs are given as LD_LIBRARY_PATH, with the host's drivers before all that
# the programs were linked with, `found`, the kinds that have one, `nics` and `soft_nics`.
find_drivers() {
    local kind files at cufile folders=
    nics=$(ls /sys/class/infiniband 2>/dev/null | paste -sd,)
    known_file libibverbs.so.1 >/dev/null || nics=
    soft_nics=$(soft_nics)
    if [ -n "$soft" ]; then
        libraries=$folder/softgpu:$folder/lib
        cufile_text="the stand-in"
        found=$(awk '{print $1}' <<<"$kinds")
        return
    fi
    mkdir -p "$work/driver"
    while read -r kind files _; do
        case $kind in
        cuda) at=${TE_DEVICE_CUDA:-$(known_file "$files" search)} ;;
        *) at=$(first_known ${files//,/ }) ;;
        esac
        [ -n "$at" ] && has_node "$kind" || continue
        found+=" $kind"
        ln -s "$at" "$work/driver/${files%%,*}"
        folders+=:$(dirname "$at")
    done <<<"$kinds"
    cufile=${TE_DEVICE_CUFILE:-$(known_file libcufile.so.0 search)}
    cufile_text=${cufile:-none}
    [ -n "$cufile" ] && ln -s "$cufile" "$work/driver/libcufile.so.0"
    libraries=$work/driver:$folder/lib:$folder/none$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    cat >"$work/cufile.json" <<END
{"logging": {"dir": "$work", "level": "ERROR"},
 "properties": {"allow_compat_mode": true, "force_compat_mode": true}}
END
    export CUFILE_ENV_PATH_JSON=$work/cufile.json
}

has() { # KIND
    grep -qw "$1" <<<"$found"
}

why_not() { # KIND FILES
    has_node "$1" || { echo "no /dev/kfd and no /dev/dxg"; return; }
    echo "no ${2//,/, }"
}

describe_host() {
    echo "| What | |"
    echo "|---|---|"
    if [ -n "$soft" ]; then
        echo "| GPU | none: stand-in drivers, whose figures mean nothing |"
    elif ! has cuda; then
        echo "| Accelerators | ${found:-none} |"
    elif command -v nvidia-smi >/dev/null; then
        nvidia-smi -L 2>&1 | sed 's/ (UUID.*//; s/^/| GPU | /; s/$/ |/'
        echo "| Driver | $(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>&1 | head -1) |"
    else
        echo "| GPU | $(head -1 "$out/raw_gpu.txt" 2>/dev/null) |"
        echo "| Driver | $(head -1 /proc/driver/nvidia/version 2>/dev/null || echo unknown) |"
    fi
    echo "| Kinds of memory | host $(paste -sd' ' <<<"$found") |"
    echo "| NICs | ${nics:-none}${soft_nics:+; made by the kernel, without hardware: $soft_nics} |"
    echo "| cuFile | $cufile_text |"
    echo "| CPU | $(nproc) of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1) |"
    echo "| Memory | $(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo) |"
    echo "| Kernel | $(uname -srm) |"
    echo "| Engine | $(program "$folder/bin/te_info" --version 2>&1 | head -1) |"
    echo "| Date | $(date -u +%Y-%m-%d) |"
}

program() {
    LD_LIBRARY_PATH=$libraries "$@"
}

# ---- steps -----------------------------------------------------------------------------------------

failed=0
rows=""

# What cmocka counted in the last step, over all its groups.
count_cases() {
    awk '/^\[  PASSED  \] [0-9]+ test/ {passed += $4}
         /^\[  SKIPPED \] [0-9]+ test/ {skipped += $4}
         END {if (passed + skipped) printf "%d cases passed, %d skipped", passed, skipped}' "$work/step"
}

# NAME SECONDS COMMAND...: one row of the report.
step() {
    local name=$1 limit=$2 left begin seconds rc result note
    shift 2
    limit=$((limit * patience))
    left=$((deadline - SECONDS))
    [ "$limit" -gt "$left" ] && limit=$left
    begin=$(date +%s%N)
    rc=124
    : >"$work/step"
    if [ "$limit" -gt 0 ]; then
        (cd "$work/files" && program timeout -k 5 "$limit" "$@") >"$work/step" 2>&1 </dev/null
        rc=$?
    fi
    seconds=$((($(date +%s%N) - begin) / 100000000))
    note=""
    case $rc in
    0) result=passed note=$(count_cases) ;;
    77) result=skipped note=$(tail -1 "$work/step" | tr '|' '/') ;;
    124 | 137) result="**out of time**" failed=1 note="$limit s" ;;
    *) result="**failed**" failed=1 note="exit status $rc" ;;
    esac
    rows+="| $name | $result | $((seconds / 10)).$((seconds % 10)) | $note |"$'\n'
    { echo "==== $name: $result"; cat "$work/step"; } >>"$out/log.txt"
    echo "$name: $result ($((seconds / 10)).$((seconds % 10)) s)${note:+: $note}"
}

# NAME REASON: a row of what cannot run here.
skip() {
    rows+="| $1 | skipped | | $2 |"$'\n'
    echo "$1: skipped: $2"
}

# TARGET-FLAGS -- INITIATOR-FLAGS: the bench, or what $PAIR_TOOL names, in two processes.
pair() {
    local target_flags=() tool=$folder/bin/${PAIR_TOOL:-transfer_engine_bench} waited=0
    local common=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1)
    while [ "$1" != -- ]; do
        target_flags+=("$1")
        shift
    done
    shift
    told=$(mktemp)
    "$tool" --mode=target "${common[@]}" "${target_flags[@]}" >"$told" &
    pid=$!
    trap 'kill $pid; wait $pid; rm -f "$told"' EXIT # both outlive this function
    trap 'exit 124' TERM
    while ! grep -q '^segment: ' "$told"; do
        kill -0 $pid 2>/dev/null || { echo "the target has ended"; return 1; }
        [ $((waited += 1)) -gt 1200 ] && { echo "the target says nothing"; return 1; }
        sleep 0.1
    done
    "$tool" --segment_id="$(sed -n 's/^segment: //p' "$told")" "${common[@]}" "$@"
}

tests() {
    local test
    [ -n "$found" ] || { skip "tests of memory of devices" "no driver of an accelerator"; return; }
    for test in "$folder"/tests/${short:+test_gpu_mem}*; do
        step "$(basename "$test")" 120 "$test"
    done
}

pairs() {
    local load=(--buffer_size="$pair_buffer" --block_size=1M --batch_size=4 --threads=4)
    local checked=("${load[@]}" --verify --batches="$pair_batches" --duration="$pair_seconds")
    local kind files transport
    for transport in host tcp; do
        step "bench, host to host, $transport" 60 "$self" pair --protocol="$transport" "${load[@]}" -- \
            --protocol="$transport" "${checked[@]}"
    done
    while read -r kind files transport _; do
        has "$kind" || { skip "bench, memory of $kind" "$(why_not "$kind" "$files")"; continue; }
        step "bench, $kind to $kind, $transport" 60 "$self" pair --protocol="$transport" "${load[@]}" -- \
            --protocol="$transport" "${checked[@]}"
        step "bench, host to $kind, $transport" 60 "$self" pair --protocol="$transport" "${load[@]}" -- \
            --protocol="$transport" --use_vram=false "${checked[@]}"
    done <<<"$kinds"
    [ -n "$found" ] || return
    step "bench, device to device, tcp" 60 "$self" pair --protocol=tcp --use_vram "${load[@]}" -- \
        --protocol=tcp --use_vram "${checked[@]}"
    step "bench, device to host, tcp" 60 "$self" pair --protocol=tcp "${load[@]}" -- \
        --protocol=tcp --use_vram "${checked[@]}"
    step "bench, host to device, tcp" 60 "$self" pair --protocol=tcp --use_vram "${load[@]}" -- \
        --protocol=tcp "${checked[@]}"
    has cuda || return
    step "bench, GPU to GPU, nvlink by IPC" 60 env MC_USE_NVLINK_IPC=1 "$self" pair --protocol=nvlink \
        "${load[@]}" -- --protocol=nvlink "${checked[@]}"
    step "validator, GPU to GPU, every GPU" 60 env PAIR_TOOL=transfer_engine_validator "$self" pair \
        --protocol=nvlink_intra --gpu_id=-1 "${load[@]}" -- --protocol=nvlink_intra --gpu_id=-1 \
        "${load[@]}" --batches="$pair_batches" --duration="$pair_seconds"
}

# Every NIC by itself and all together: what a transport has to do, and the bench from and to this host.
over_nics() {
    local nic load=(--buffer_size="$pair_buffer" --block_size=1M --batch_size=4 --threads=4)
    local checked=("${load[@]}" --verify --batches="$pair_batches" --duration="$pair_seconds")
    local sets=$nics what="test_rdma and the bench over rdma"
    [ -n "$nics" ] || { skip "$what" "no RDMA NIC, or no libibverbs.so.1"; return; }
    [ -n "$short" ] || sets=$(sort -u <<<"${nics//,/$'\n'}"$'\n'"$nics")
    for nic in $sets; do
        step "test_rdma, $nic" 200 env TE_TEST_RDMA_NICS="$nic" "$folder/fabric/test_rdma"
        step "bench, rdma, $nic" 60 "$self" pair --protocol=rdma --device_name="$nic" "${load[@]}" -- \
            --protocol=rdma --device_name="$nic" "${checked[@]}"
        [ -z "$found" ] || step "bench, rdma, $nic, memory of devices" 60 "$self" pair --protocol=rdma \
            --device_name="$nic" --use_vram "${load[@]}" -- --protocol=rdma --device_name="$nic" --use_vram \
            "${checked[@]}"
    done
}

files() {
    step "test_nvmeof, ${TE_DEVICE_FILES:-files of $work}" 120 "$self" in "${TE_DEVICE_FILES:-.}" \
        "$folder/fabric/test_nvmeof"
}

figures() {
    local name
    has cuda || { skip "raw_gpu, te_gpu" "no libcuda.so.1"; return; }
    for name in raw_gpu te_gpu; do
        step "$name" 120 "$folder/bench/$name" "${samples[@]}"
        cp "$work/step" "$out/$name.txt"
    done
}

# Which statements and rows of the documents a report of this host is for.
rows_filled() {
    local kind page
    if [ -n "$soft" ]; then
        echo "None: stand-ins ran in the place of drivers."
        return
    elif [ -z "$found$nics${TE_DEVICE_FILES:-}" ]; then
        echo "None: this host has no accelerator and no RDMA NIC, and no folder was named."
        return
    fi
    while read -r kind _ _ page; do
        has "$kind" && echo "- docs/gpu.md, the column \"Seen so far\" of $kind; docs/$page, \"No run on a real ...\""
    done <<<"$kinds"
    has cuda && echo "- docs/gpu.md, \"Figures\": all rows, from raw_gpu and te_gpu"
    [ "$nics" != "$soft_nics" ] &&
        echo "- docs/performance.md, \"RDMA\"; docs/rdma.md, \"None has run on a NIC made of hardware\": NICs $nics"
    [ -n "$soft_nics" ] && echo "- docs/rdma.md, \"SoftRoCE devices in virtual machines\", without figures: NICs $soft_nics"
    [ -n "${TE_DEVICE_FILES:-}" ] && echo "- docs/nvmeof.md: what was tried on ${TE_DEVICE_FILES}"
    return 0
}

write_report() {
    {
        echo "# Device run"
        echo
        describe_host
        echo
        echo "| Step | Result | Seconds | |"
        echo "|---|---|---|---|"
        printf '%s' "$rows"
        echo
        echo "Send this file, with log.txt beside it, to the project. It fills:"
        echo
        rows_filled
        has cuda || return
        echo
        echo "The driver's copies, pinned host memory:"
        echo
        sed 's/^/    /' "$out/raw_gpu.txt"
        echo
        echo "The engine, beside the limit that took turns with it:"
        echo
        sed 's/^/    /' "$out/te_gpu.txt"
    } >"$out/report.md"
}

run() {
    local deadline libraries="" cufile_text="" found="" nics="" soft_nics=""
    local patience=1 pair_buffer=256M pair_batches=8 pair_seconds=20 samples=()
    [ -z "$soft$patient" ] || patience=20 # nobody waits for it: only a hang is to end
    if [ -n "$short$soft" ]; then
        pair_seconds=600
        pair_buffer=48M pair_batches=2 samples=(--buffer=16M --bytes=4M --rounds=2)
    fi
    deadline=$((SECONDS + patience * 460))
    [ -d "$folder/tests" ] || die "$folder holds nothing to run: fill it by 'run.sh pack'"
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/files" "$out" || exit 1
    find_drivers
    export folder
    : >"$out/log.txt"
    pairs
    figures
    over_nics
    files
    tests
    write_report
    echo "report: $out/report.md"
    return $failed
}

# ---- the command line ------------------------------------------------------------------------------

words=()
if [ "${1:-}" = pair ]; then
    shift
    pair "$@"
    exit
fi
if [ "${1:-}" = in ]; then # FOLDER COMMAND...
    cd "$2" && exec "${@:3}"
    exit 1
fi
for word in "$@"; do
    case $word in
    --soft) soft=1 ;;
    --short) short=1 ;;
    --patient) patient=1 ;;
    --help | -h)
        sed -n '3,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$self"
        exit 0
        ;;
    -*) die "no such option: $word" ;;
    *) words+=("$word") ;;
    esac
done

case ${words[0]:-} in
pack)
    [ ${#words[@]} -ge 2 ] || die "pack needs the name of a folder"
    build=$(cd "${words[2]:-$here/../../build}" && pwd) || exit 2
    pack "${words[1]}"
    du -sh "${words[1]}"
    ;;
run)
    folder=$(cd "${words[1]:-$here}" && pwd) || exit 2
    out=${OUT:-$folder/report}
    run
    ;;
*)
    build=$(cd "${words[0]:-$here/../../build}" && pwd) || exit 2
    both=$(mktemp -d) || exit 1
    (
        pack "$both/te"
        folder=$both/te out=${OUT:-$PWD/report}
        run
    )
    rc=$?
    rm -rf "$both"
    exit $rc
    ;;
esac
