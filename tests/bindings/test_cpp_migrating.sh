#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
# What docs/migrating.md says of C and C++: the commands there build programs that know nothing but
# Mooncake's names, and its CMake lines do; these move data, those of C++ between two processes.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
cc=${TE_TEST_CC:-cc}
cxx=${TE_TEST_CXX:-c++}
read -ra flags <<<"${TE_TEST_CFLAGS:-}"
doc=$src/docs/migrating.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_cpp_migrating: $*" >&2; exit 1; }

# blocks SECTION LANGUAGE: all blocks of that language in that section.
blocks() {
    awk -v s="## $1" -v b="^\`\`\`$2\$" '/^## / { here = $0 == s } $0 ~ b { on = here; next }
        /^```/ { on = 0 } on' "$doc"
}

cmake --install "$build" --prefix "$dir/te" >"$dir/log" || fail "$(cat "$dir/log")"
PKG_CONFIG_PATH=$(dirname "$(find "$dir/te" -name transfer_engine.pc)")
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
unset DESTDIR
cd "$dir"
cat >program.c <<'C'
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <transfer_engine_c.h>

enum { LENGTH = 1234567 };

static char ours[LENGTH], theirs[LENGTH];

static int moves(transfer_engine_t e, transfer_engine_t peer)
{
    char name[256];
    transfer_request_t r = {.opcode = OPCODE_WRITE, .source = ours, .length = LENGTH};
    transfer_status_t s = {0};
    batch_id_t batch = allocateBatchID(e, 1);

    if (registerLocalMemory(e, ours, LENGTH, "*", 1) || registerLocalMemory(peer, theirs, LENGTH, "*", 1) ||
        getLocalIpAndPort(peer, name, sizeof(name)))
        return 0;
    r.target_id = openSegment(e, name);
    r.target_offset = (uintptr_t)theirs;
    if (r.target_id < 0 || submitTransfer(e, batch, &r, 1))
        return 0;
    while (s.status != STATUS_COMPLETED && s.status != STATUS_FAILED)
        if (getTransferStatus(e, batch, 0, &s))
            return 0;
    return s.status == STATUS_COMPLETED && !freeBatchID(e, batch) && !memcmp(ours, theirs, LENGTH);
}

int main(void)
{
    transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 1);
    transfer_engine_t peer = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 1);
    FILE *random = fopen("/dev/urandom", "r");
    int good = e && peer && random && fread(ours, LENGTH, 1, random) == 1 && moves(e, peer);

    if (random)
        fclose(random);
    destroyTransferEngine(e);
    destroyTransferEngine(peer);
    return !good;
}
C
cp "$src/tests/bindings/cpp/snippets_two_names.cc" program.cc
cp "$src/tests/bindings/cpp/two.h" .

cc() { command "$cc" -Wall -Wextra -Werror "${flags[@]}" "$@"; }
c++() { command "$cxx" -Wall -Wextra -Werror "${flags[@]}" "$@"; }
try_C() { ./"$1" >out 2>&1 || fail "$2: $(cat out)"; }

# A target, an initiator that compares what it reads, and the target that compares what was written.
try_C++() {
    local arguments=(metadata=P2PHANDSHAKE name=127.0.0.1 "seed=$RANDOM") line peer address
    coproc target { ./"$1" target "${arguments[@]}" 2>out; }
    local pid=$target_PID from=${target[0]} to=${target[1]}

    read -r -t 300 line <&"$from" || fail "$2: the target: $(cat out)"
    read -r _ peer address <<<"$line"
    timeout 300 ./"$1" initiator "${arguments[@]}" peer="$peer" address="$address" </dev/null >initiator 2>&1 ||
        fail "$2: the initiator: $(cat initiator)"
    echo check >&"$to"
    read -r -t 300 line <&"$from" && [ "$line" = ok ] || fail "$2: the target has: $line"
    exec {to}>&-
    wait "$pid" || fail "$2: the target: $(cat out)"
}

for section in C C++; do
    lines=0
    while read -r command; do
        eval "$command" >log 2>&1 || fail "$command: $(cat log)"
        "try_$section" program "$command"
        lines=$((lines + 1))
    done < <(blocks "$section" sh)
    [ "$lines" -eq 2 ] || fail "the section $section has $lines commands"
done

mkdir cmake
{
    echo "cmake_minimum_required(VERSION 3.21)"
    echo "project(program)"
    echo "set(CMAKE_CXX_STANDARD 17)"
    echo "add_executable(program_c ../program.c)"
    blocks C cmake | sed 's/(program /(program_c /'
    echo "add_executable(program_cpp ../program.cc)"
    blocks C++ cmake | sed 's/(program /(program_cpp /'
} >cmake/CMakeLists.txt
cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$dir/te" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_FLAGS="${flags[*]}" >log 2>&1 || fail "$(cat log)"
cmake --build cmake/build >log 2>&1 || fail "$(cat log)"
try_C cmake/build/program_c "C with CMake"
try_C++ cmake/build/program_cpp "C++ with CMake"
