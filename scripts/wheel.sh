#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python packages: transfer-engine, with the shared library and all that this one needs,
# and transfer-engine-mooncake, the shim for programs that import mooncake.engine.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/wheel.sh [--build DIR] [--out DIR]

  --build DIR   the build tree whose lib/libtransfer_engine.so.0 is taken (default: build)
  --out DIR     where the wheels are put (default: DIR of --build, wheel/)
  --help        this text

Needs python3, patchelf and binutils; nothing is downloaded. What is built here runs on hosts whose
C library is at least the one that the tag in the wheel's name tells (manylinux_2_36: glibc 2.36).
USAGE
}

cd "$(dirname "$0")/.."
build=build
out=
while [ $# -gt 0 ]; do
    case "$1" in
        --build) build=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        *) echo "wheel: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
build=$(realpath "$build")
out=${out:-$build/wheel}
mkdir -p "$out"
out=$(realpath "$out")
export TRANSFER_ENGINE_BUNDLE=$build/lib/libtransfer_engine.so.0
rm -f "$out"/transfer_engine-*.whl "$out"/transfer_engine_mooncake-*.whl
for project in bindings/python bindings/python/shim; do
    (
        cd "$project"
        PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. python3 -c '
import sys
import build_backend
print("wheel:", build_backend.build_wheel(sys.argv[1]))' "$out"
    )
done
