#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel
# Installs into a temporary folder and builds programs against what lies there, as a stranger would:
# statically with pkg-config --static, dynamically, with CMake, and the headers alone as C99 and C++.
set -euo pipefail

case "${1:-}" in
    -h | --help) echo "usage: TE_TEST_BUILD=<build tree> tests/integration/test_install.sh"; exit 0 ;;
esac
src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
cc=${TE_TEST_CC:-cc}
read -ra flags <<<"${TE_TEST_CFLAGS:-}"
strict=(-Wall -Wextra -Werror -pedantic "${flags[@]}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_install: $*" >&2; exit 1; }

# DESTDIR and the prefix are told apart: what is staged must still be found where it is staged.
DESTDIR="$dir/stage" cmake --install "$build" --prefix /opt/te >"$dir/install.log" || fail "$(cat "$dir/install.log")"
root=$dir/stage/opt/te
pc=$(dirname "$(find "$root" -name transfer_engine.pc)")
lib=$(dirname "$pc")
[ -f "$lib/libtransfer_engine.a" ] || fail "no libtransfer_engine.a in $lib"
[ -f "$root/include/te.h" ] || fail "te.h was not installed"
[ -f "$root/include/transfer_engine_c.h" ] || fail "transfer_engine_c.h was not installed"
for page in man1/transfer_engine_bench.1 man3/te_submit.3 man7/transfer_engine.7; do
    [ -f "$root/share/man/$page" ] || fail "the man page $page was not installed"
done
find "$root" -name LICENSE | grep . >/dev/null || fail "LICENSE was not installed"

export PKG_CONFIG_PATH=$pc
unset DESTDIR
cat >"$dir/user.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <transfer_engine_c.h>

int main(void)
{
    static char memory[8192];
    transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1:0", "127.0.0.1", 0, 0);
    transfer_request_t request;
    transfer_status_t status;
    batch_id_t batch;
    int polls = 0;

    if (!e)
        return 1;
    if (registerLocalMemory(e, memory, sizeof(memory), "*", 1))
        return 2;
    memset(memory, 7, 4096);
    memset(&request, 0, sizeof(request));
    request.opcode = OPCODE_WRITE;
    request.source = memory;
    request.target_id = LOCAL_SEGMENT;
    request.target_offset = (uint64_t)(uintptr_t)(memory + 4096);
    request.length = 4096;
    batch = allocateBatchID(e, 1);
    if (batch == INVALID_BATCH || submitTransfer(e, batch, &request, 1))
        return 3;
    do {
        if (getTransferStatus(e, batch, 0, &status))
            return 4;
    } while (status.status == STATUS_WAITING && ++polls < 100000000);
    if (status.status != STATUS_COMPLETED || memcmp(memory, memory + 4096, 4096))
        return 5;
    if (freeBatchID(e, batch) || unregisterLocalMemory(e, memory))
        return 6;
    destroyTransferEngine(e);
    puts("ok");
    return 0;
}
C

# The static archive alone (in a folder that is searched first): pkg-config --static must name all that it needs.
mkdir "$dir/static"
cp "$lib/libtransfer_engine.a" "$dir/static/"
read -ra cflags <<<"$(pkg-config --cflags transfer_engine)"
read -ra libs <<<"$(pkg-config --static --libs transfer_engine)"
"$cc" -std=c99 "${strict[@]}" "$dir/user.c" "${cflags[@]}" -L"$dir/static" "${libs[@]}" -o "$dir/user_static" \
    || fail "a program does not link with pkg-config --static --libs: ${libs[*]}"
if ldd "$dir/user_static" | grep libtransfer_engine; then fail "the static program wants the shared library"; fi
[ "$("$dir/user_static")" = ok ] || fail "the statically linked program failed"

# The archive by its own module, although the shared library lies beside it.
read -ra libs <<<"$(pkg-config --libs transfer_engine-static)"
"$cc" -std=c99 "${strict[@]}" "$dir/user.c" "${cflags[@]}" "${libs[@]}" -o "$dir/user_archive" \
    || fail "a program does not link with transfer_engine-static: ${libs[*]}"
if ldd "$dir/user_archive" | grep libtransfer_engine; then
    fail "transfer_engine-static wants the shared library"
fi
[ "$("$dir/user_archive")" = ok ] || fail "the program linked with transfer_engine-static failed"

# The shared library, by its SONAME.
read -ra libs <<<"$(pkg-config --libs transfer_engine)"
"$cc" -std=c99 "${strict[@]}" "$dir/user.c" "${cflags[@]}" "${libs[@]}" -o "$dir/user_shared"
readelf -d "$dir/user_shared" | grep 'NEEDED.*libtransfer_engine\.so\.0' >/dev/null || fail "the SONAME is not libtransfer_engine.so.0"
[ "$(LD_LIBRARY_PATH="$lib" "$dir/user_shared")" = ok ] || fail "the dynamically linked program failed"

# find_package(transfer_engine)
mkdir "$dir/cmake"
cat >"$dir/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(user C)
find_package(transfer_engine 0.1 REQUIRED)
foreach(kind static shared)
    add_executable(user_${kind} ../user.c)
    target_link_libraries(user_${kind} PRIVATE transfer_engine::${kind})
endforeach()
CMAKE
cmake -S "$dir/cmake" -B "$dir/cmake/build" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_C_FLAGS="${flags[*]}" >"$dir/cmake.log" 2>&1 || fail "$(cat "$dir/cmake.log")"
cmake --build "$dir/cmake/build" >"$dir/cmake.log" 2>&1 || fail "$(cat "$dir/cmake.log")"
for kind in static shared; do
    [ "$("$dir/cmake/build/user_$kind")" = ok ] || fail "the program linked with transfer_engine::$kind failed"
done

# The end of make install: says what is left to do, and nothing for a staged installation.
after() { "$src/scripts/after_install.sh" "$build" "$@" 2>&1; }
[ -z "$(after /usr "$dir/stage")" ] || fail "after_install.sh has something to say about DESTDIR"
mkdir "$dir/stub"
printf '#!/bin/sh\necho ran ldconfig\n' >"$dir/stub/ldconfig"
chmod +x "$dir/stub/ldconfig"
PATH=$dir/stub:$PATH after /usr/local "" | grep ldconfig >/dev/null ||
    fail "after_install.sh does not think of ldconfig"
after /opt/te "" | grep "PKG_CONFIG_PATH=/opt/te/.*/pkgconfig" >/dev/null ||
    fail "after_install.sh names no PKG_CONFIG_PATH"

# Each header stands alone.
for header in "$root"/include/*.h; do
    echo "#include <$(basename "$header")>" >"$dir/alone.c"
    "$cc" -std=c99 "${strict[@]}" -fsyntax-only "${cflags[@]}" "$dir/alone.c" || fail "$header alone does not compile as C99"
done
if command -v c++ >/dev/null; then
    for header in "$root"/include/*.h "$root"/include/*.hpp; do
        [ -f "$header" ] || continue
        echo "#include <$(basename "$header")>" >"$dir/alone.cc"
        c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only "${cflags[@]}" "$dir/alone.cc" \
            || fail "$header alone does not compile as C++"
    done
fi
echo "test_install: ok"
