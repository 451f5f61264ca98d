#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
# The example of bindings/cpp/README.md, as it stands there, is built and run by the commands below it
# and by CMake, and does what it says; and every file that the README points at is there.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
cxx=${TE_TEST_CXX:-c++}
read -ra flags <<<"${TE_TEST_CFLAGS:-}"
readme=$src/bindings/cpp/README.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_cpp_readme: $*" >&2; exit 1; }

# block LANGUAGE: the first block of that language.
block() { awk -v b="^\`\`\`$1\$" '$0 ~ b { on = 1; next } /^```/ && on { exit } on' "$readme"; }

block cpp >"$dir/example.cc"
block sh >"$dir/commands"
grep -q '^make install PREFIX=' "$dir/commands" || fail "the README does not tell how to build it"

# What the commands mean here: the tree that is tested is installed, into a home of its own, and the
# example is compiled with the compiler and the sanitizers of that tree, warnings being errors.
make() {
    [ $# -eq 2 ] && [ "$1" = install ] || fail "the README says make $*"
    cmake --install "$build" --prefix "${2#PREFIX=}" >"$dir/log" || fail "$(cat "$dir/log")"
}
c++() { command "$cxx" -Wall -Wextra -Wshadow -Wconversion -Werror -pedantic "${flags[@]}" "$@"; }

unset PKG_CONFIG_PATH LD_LIBRARY_PATH DESTDIR
(
    cd "$dir"
    export HOME=$dir/home
    . ./commands
) >"$dir/out" 2>&1 || fail "its commands failed: $(cat "$dir/out")"
[ "$(cat "$dir/out")" = "got: hello from the other side" ] || fail "it printed: $(cat "$dir/out")"
if ldd "$dir/example" | grep libtransfer_engine; then fail "it wants the shared library"; fi

{
    echo 'cmake_minimum_required(VERSION 3.21)'
    echo 'project(example CXX)'
    block cmake
} >"$dir/CMakeLists.txt"
cmake -S "$dir" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$dir/home/te" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_CXX_FLAGS="${flags[*]}" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
cmake --build "$dir/cmake" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
[ "$("$dir/cmake/example")" = "got: hello from the other side" ] || fail "with CMake it prints other things"

while read -r path; do
    [ -e "$src/bindings/cpp/$path" ] || fail "the README points at $path, which is not there"
done < <(grep -o '][(][^)#:]*[)]' "$readme" | sed 's/^](//; s/)$//')
