#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python packages: transfer-engine, with the shared library and all that this one needs,
# transfer-engine-mooncake, the shim for programs that import mooncake.engine, and
# transfer-engine-vllm and transfer-engine-sglang, the connectors.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/wheel.sh [--arch ARCH]... [--build DIR] [--out DIR]

Makes portable wheels of transfer-engine for x86_64 and aarch64, which run with glibc 2.28 and newer,
the wheels of transfer-engine-mooncake, transfer-engine-vllm and transfer-engine-sglang, and the archives of
the sources of all.
The libraries that the engine needs are built by scripts/wheel_libs.sh and lie inside of it; the engine
is built as they are, in build/wheel-ARCH. Then scripts/wheel_check.sh tries what was made.

  --arch ARCH   this architecture only (may be given twice)
  --build DIR   instead, one wheel of the library of this build tree, DIR/lib/libtransfer_engine.so.0,
                with the libraries of this host that it needs; nothing is downloaded, nothing tried.
                It runs where the C library is at least the one that the tag in its name tells.
  --out DIR     where they are put (default: build/wheel, or wheel/ in DIR of --build)
  --help        this text

Needs python3, binutils, and patchelf for --build.
USAGE
}

cd "$(dirname "$0")/.."
build='' out='' arches=()
while [ $# -gt 0 ]; do
    case "$1" in
        --arch) arches+=("${2-}"); shift 2 ;;
        --build) build=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        *) echo "wheel: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ -z "$build" ] || build=$(realpath "$build")
[ ${#arches[@]} -gt 0 ] || arches=(x86_64 aarch64)
out=${out:-${build:-build}/wheel}
mkdir -p "$out"
out=$(realpath "$out")
rm -f "$out"/transfer_engine{,_mooncake,_vllm,_sglang}-*

# make PROJECT FUNCTION: calls a function of the build backend in the project's folder.
make() {
    (
        cd "$1"
        PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. python3 -c '
import sys
import build_backend
print("wheel:", getattr(build_backend, sys.argv[1])(sys.argv[2]))' "$2" "$out"
    )
}

# portable ARCH: the engine for it, with all of its libraries inside; those that nothing calls are left out.
portable() {
    local libs tree=build/wheel-$1 log=build/wheel-$1.log
    libs=$(scripts/wheel_libs.sh "$1")
    # A tree made with other libraries names a folder that is gone.
    grep -qsF "$libs/" "$tree/CMakeCache.txt" || rm -rf "$tree"
    echo "wheel: building the library for $1"
    if ! {
        cmake -S . -B "$tree" -DCMAKE_TOOLCHAIN_FILE="$libs/toolchain.cmake" -DCMAKE_C_COMPILER_LAUNCHER= \
            -DCMAKE_BUILD_TYPE=Release -DTE_BUILD_TOOLS=OFF -DTE_BUILD_TESTS=OFF -DTE_WHOLE_ARCHIVE=OFF -DTE_USE_URING=ON \
            -DCMAKE_C_FLAGS="-ffunction-sections -fdata-sections" \
            -DCMAKE_SHARED_LINKER_FLAGS="-Wl,--gc-sections -s" &&
            cmake --build "$tree" --target te_shared --parallel "${JOBS:-$(nproc)}"
    } >"$log" 2>&1; then
        grep -E 'error|undefined' "$log" | head -n 20 >&2 || true
        echo "wheel: the library for $1 does not build; all that was said is in $log" >&2
        exit 1
    fi
    rm -rf "$tree/lib/licences"
    cp -r "$libs/licences" "$tree/lib/"
    TRANSFER_ENGINE_BUNDLE=$PWD/$tree/lib/libtransfer_engine.so.0 make bindings/python build_wheel
}

if [ -n "$build" ]; then
    TRANSFER_ENGINE_BUNDLE=$build/lib/libtransfer_engine.so.0 make bindings/python build_wheel
    make bindings/python/shim build_wheel
    for name in vllm sglang; do make "bindings/connectors/$name" build_wheel; done
    exit 0
fi
mkdir -p build
for arch in "${arches[@]}"; do portable "$arch"; done
make bindings/python/shim build_wheel
for name in vllm sglang; do make "bindings/connectors/$name" build_wheel; done
for project in python python/shim connectors/vllm connectors/sglang; do make "bindings/$project" build_sdist; done
scripts/wheel_check.sh "$out"
