#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds library and tools of a version that has been released, for the tests that run it beside this
# one. Its source is taken from the history of this clone; the working tree is left alone.
set -euo pipefail

# Every version that later ones stay compatible with, and its commit. A new one is a line here, and a
# folder of captures in tests/past (tests/past/README.md).
versions=(
    "0.1 aadf43941f2ba36d9e0fb3c391f0eb4e257e7a80"
)

usage() {
    cat <<'USAGE'
usage: scripts/past.sh [--list] [VERSION|COMMIT]

Builds the library and the tools of a version (default: the first of the list), and prints the folder:
src/ has the source, build/lib and build/bin what was made. What is there already is not built again.

  --list   print the versions and their commits
  --help   this text

TE_PAST_DIR   where the builds are kept (default: build/past)
JOBS          how many compilers at a time (default: one per core)

Exit 3: this clone does not have the commit.
USAGE
}

cd "$(dirname "$0")/.."
case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    --list) printf '%s\n' "${versions[@]}"; exit 0 ;;
    -*) echo "past: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac

name=${1:-${versions[0]%% *}}
commit=$name
for version in "${versions[@]}"; do
    [ "${version%% *}" != "$name" ] || commit=${version#* }
done

absent() { echo "past: $*" >&2; exit 3; }
command -v git >/dev/null || absent "git is missing: it has the source of $name"
if ! why=$(git rev-parse --git-dir 2>&1); then
    absent "this is no git clone, which the source of $name is taken from (${why%%$'\n'*})"
fi
if ! full=$(git rev-parse --quiet --verify "$commit^{commit}"); then
    if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
        absent "this clone is shallow and lacks commit $commit ($name): run git fetch --unshallow"
    fi
    absent "this clone has no commit $commit ($name): fetch it, or see scripts/past.sh --list"
fi

dir=$(realpath -m "${TE_PAST_DIR:-build/past}")/${full:0:12}
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9 # another test may be building it
if [ -f "$dir/done" ]; then
    echo "$dir"
    exit 0
fi

rm -rf "$dir/src" "$dir/build"
mkdir "$dir/src"
git archive "$full" | tar -x -C "$dir/src"
if [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi
export CCACHE_BASEDIR=$dir CCACHE_NOHASHDIR=1
# Newer compilers may warn of what that version's did not know.
if ! { cmake -S "$dir/src" -B "$dir/build" -DTE_WERROR=OFF -DTE_BUILD_TESTS=OFF &&
    cmake --build "$dir/build" -j "${JOBS:-$(nproc)}"; } >"$dir/log" 2>&1; then
    tail -n 30 "$dir/log" >&2
    echo "past: $name could not be built; all that was said is in $dir/log" >&2
    exit 1
fi
touch "$dir/done"
echo "$dir"
