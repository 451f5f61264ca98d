#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from a copy of this tree, into build/deb.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/deb.sh [--out DIR] [--force]

Builds libtransfer-engine0, libtransfer-engine-dev and transfer-engine-tools, and leaves them in DIR
with their .buildinfo and .changes. Does nothing when they are there and nothing that they are made of
has changed since. The tests are not run.

  --out DIR   where they go (default: build/deb)
  --force     build in any case

DEB_BUILD_OPTIONS and DEB_*FLAGS are heeded, as by dpkg-buildpackage; CMAKE_C_COMPILER_LAUNCHER as by CMake.
USAGE
}

cd "$(dirname "$0")/.."
out=build/deb force=no
while [ $# -gt 0 ]; do
    case "$1" in
        --out) [ $# -ge 2 ] || { echo "deb: --out needs a value" >&2; exit 2; }; out=$2; shift 2 ;;
        --force) force=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "deb: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
for program in dpkg-buildpackage dh; do
    command -v $program >/dev/null || { echo "deb: $program is missing: run scripts/deps.sh build test" >&2; exit 1; }
done

# What the packages are made of: no tests, no bindings.
inputs() {
    find CMakeLists.txt LICENSE ./*.md cmake completions debian docs include man src tools -type f \
        ! -name '*~' ! -name '.*' -print0 | sort -z
}
version=$(dpkg-parsechangelog -S Version)
work=transfer-engine-$version
mkdir -p "$out"
exec 9>"$out/lock"
flock 9
made_of=$(
    {
        inputs | xargs -0 sha256sum
        dpkg-query -W -f='${Package} ${Version}\n' cmake debhelper dpkg-dev gcc 'lib*-dev' 2>/dev/null || true
        env | grep -E '^(DEB_|CC=|C(PP)?FLAGS=|LDFLAGS=)' | sort || true
    } | sha256sum
)
packages() { find "$out" -maxdepth 1 -name "*_${version}_*.deb" | sort; }
if [ $force = no ] && [ "$(cat "$out/made_of" 2>/dev/null)" = "$made_of" ] && [ "$(packages | wc -l)" -ge 3 ]; then
    packages
    exit 0
fi

dir=$out/work # always the same: it is a part of what a compiler cache looks for
rm -rf "$dir"
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/$work"
inputs | xargs -0 cp --parents -p -t "$dir/$work"
rm -f "$out/made_of" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
if ! (cd "$dir/$work" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo) >"$out/log" 2>&1; then
    tail -n 40 "$out/log" >&2
    echo "deb: dpkg-buildpackage failed; all that it said is in $out/log" >&2
    exit 1
fi
mv "$dir"/*.deb "$dir"/*.buildinfo "$dir"/*.changes "$out/"
echo "$made_of" >"$out/made_of"
packages
