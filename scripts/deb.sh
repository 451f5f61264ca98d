#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from a copy of this tree, into build/deb.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/deb.sh [--out DIR] [--force]

Builds libtransfer-engine0, libtransfer-engine-dev and transfer-engine-tools, and leaves them in DIR
with their .buildinfo and .changes. Does nothing when they are there and nothing that they are made of
has changed since. The tests are not run. Of what DIR holds only earlier packages of these names are
removed.

  --out DIR   where they go (default: build/deb of this tree)
  --force     build in any case

DEB_BUILD_OPTIONS and DEB_*FLAGS are heeded, as by dpkg-buildpackage; CMAKE_C_COMPILER_LAUNCHER as by CMake,
and is ccache where it is not set and there is one.
USAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build/deb force=no
while [ $# -gt 0 ]; do
    case "$1" in
        --out) [ -n "${2-}" ] || { echo "deb: --out needs a value" >&2; exit 2; }; out=$(realpath -m -- "$2"); shift 2 ;;
        --force) force=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "deb: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
cd "$root"
for program in dpkg-buildpackage dh; do
    command -v $program >/dev/null || { echo "deb: $program is missing: run scripts/deps.sh build test" >&2; exit 1; }
done
if [ -z "${CMAKE_C_COMPILER_LAUNCHER+set}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi

# What the packages are made of: no tests, no bindings.
inputs() {
    find CMakeLists.txt LICENSE ./*.md cmake completions debian docs include man service src tools \( -type f -o -type l \) \
        ! -name '*~' ! -name '.*' -print0 | sort -z
}
source=$(dpkg-parsechangelog -S Source)
version=$(dpkg-parsechangelog -S Version)
mapfile -t names < <(sed -n 's/^Package: //p' debian/control)
own=$out/.$source # all that lies in DIR and is no result
mkdir -p "$own"
exec 9>"$own/lock"
flock 9
made_of=$(
    {
        inputs | xargs -0 sha256sum
        dpkg-query -W -f='${Package} ${Version}\n' cmake debhelper dpkg-dev gcc 'lib*-dev' 2>/dev/null || true
        env | grep -E '^(DEB_|CC=|C(PP)?FLAGS=|LDFLAGS=)' | sort || true
    } | sha256sum
)
# results [VERSION]: packages, those with debugging symbols, and what tells of them.
results() {
    local name
    for name in "${names[@]}"; do
        find "$out" -maxdepth 1 \( -name "${name}_${1-*}_*.deb" -o -name "$name-dbgsym_${1-*}_*.*deb" \) -print0
    done
    find "$out" -maxdepth 1 \( -name "${source}_${1-*}_*.buildinfo" -o -name "${source}_${1-*}_*.changes" \) -print0
}
show() { results "$version" | tr '\0' '\n' | grep -E 'deb$' | sort; }
are_there() {
    local name
    for name in "${names[@]}"; do
        compgen -G "$out/${name}_${version}_*.deb" >/dev/null || return
    done
}
if [ $force = no ] && [ "$(cat "$own/made_of" 2>/dev/null)" = "$made_of" ] && are_there; then
    show
    exit 0
fi

work=$own/work # always the same: it is a part of what a compiler cache looks for
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/$source-$version"
inputs | xargs -0 cp --parents -d -p -t "$work/$source-$version"
rm -f "$own/made_of"
if ! (cd "$work/$source-$version" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo) >"$own/log" 2>&1; then
    tail -n 40 "$own/log" >&2
    echo "deb: dpkg-buildpackage failed; all that it said is in $own/log" >&2
    exit 1
fi
results | xargs -0r rm -f
find "$work" -maxdepth 1 -type f -print0 | xargs -0 mv -t "$out"
echo "$made_of" >"$own/made_of"
show
