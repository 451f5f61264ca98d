#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
# Installs into a temporary folder and builds programs against what lies there, as a stranger would:
# statically with pkg-config --static, dynamically, by Mooncake's header names, with CMake, and the headers
# alone as C99 and C++.
set -euo pipefail

case "${1:-}" in
    -h | --help) echo "usage: TE_TEST_BUILD=<build tree> tests/integration/test_install.sh"; exit 0 ;;
esac
src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
cc=${TE_TEST_CC:-cc}
cxx=${TE_TEST_CXX:-c++}
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
[ -f "$root/include/te_counter.h" ] || fail "te_counter.h was not installed"
[ -f "$root/include/te_lease.h" ] || fail "te_lease.h was not installed"
[ -f "$root/include/te_paths.h" ] || fail "te_paths.h was not installed"
[ -f "$root/include/te_stream.h" ] || fail "te_stream.h was not installed"
[ -f "$root/include/transfer_engine_c.h" ] || fail "transfer_engine_c.h was not installed"
for file in bash-completion/completions/te_segment zsh/site-functions/_transfer_engine; do
    [ -f "$root/share/$file" ] || fail "share/$file was not installed"
done
for page in man1/transfer_engine_bench.1 man3/te_submit.3 man7/transfer_engine.7; do
    [ -f "$root/share/man/$page" ] || fail "the man page $page was not installed"
done
[ -f "$root/lib/systemd/system/te_metad.service" ] || [ ! -x "$root/bin/te_metad" ] \
    || fail "the unit of te_metad was not installed"
find "$root" -name LICENSE | grep . >/dev/null || fail "LICENSE was not installed"

export PKG_CONFIG_PATH=$pc
unset DESTDIR
user=$src/tests/bindings/package

# The static archive alone (in a folder that is searched first): pkg-config --static must name all that it needs.
mkdir "$dir/static"
cp "$lib/libtransfer_engine.a" "$dir/static/"
read -ra cflags <<<"$(pkg-config --cflags transfer_engine)"
read -ra libs <<<"$(pkg-config --static --libs transfer_engine)"
"$cc" -std=c99 "${strict[@]}" "$user/user.c" "${cflags[@]}" -L"$dir/static" "${libs[@]}" -o "$dir/user_static" \
    || fail "a program does not link with pkg-config --static --libs: ${libs[*]}"
if ldd "$dir/user_static" | grep libtransfer_engine; then fail "the static program wants the shared library"; fi
[ "$("$dir/user_static")" = ok ] || fail "the statically linked program failed"

# The archive by its own module, although the shared library lies beside it.
read -ra libs <<<"$(pkg-config --libs transfer_engine-static)"
"$cc" -std=c99 "${strict[@]}" "$user/user.c" "${cflags[@]}" "${libs[@]}" -o "$dir/user_archive" \
    || fail "a program does not link with transfer_engine-static: ${libs[*]}"
if ldd "$dir/user_archive" | grep libtransfer_engine; then
    fail "transfer_engine-static wants the shared library"
fi
[ "$("$dir/user_archive")" = ok ] || fail "the program linked with transfer_engine-static failed"

# The shared library, by its SONAME.
read -ra libs <<<"$(pkg-config --libs transfer_engine)"
"$cc" -std=c99 "${strict[@]}" "$user/user.c" "${cflags[@]}" "${libs[@]}" -o "$dir/user_shared"
readelf -d "$dir/user_shared" | grep 'NEEDED.*libtransfer_engine\.so\.0' >/dev/null || fail "the SONAME is not libtransfer_engine.so.0"
# A handler of a signal must not be unloaded.
readelf -d "$lib/libtransfer_engine.so.0" | grep NODELETE >/dev/null || fail "dlclose() unloads the library"
[ "$(LD_LIBRARY_PATH="$lib" "$dir/user_shared")" = ok ] || fail "the dynamically linked program failed"

# Mooncake's header names.
read -ra mooncake <<<"$(pkg-config --cflags --libs mooncake-transfer-engine)"
"$cxx" -std=c++17 "${strict[@]}" "$user/user.cpp" "${mooncake[@]}" -o "$dir/user_mooncake" ||
    fail "a program does not link with mooncake-transfer-engine: ${mooncake[*]}"
[ "$(LD_LIBRARY_PATH="$lib" "$dir/user_mooncake")" = ok ] || fail "the program with Mooncake's header names failed"
if echo '#include <topology.h>' | "$cxx" -fsyntax-only "${cflags[@]}" -x c++ - 2>/dev/null; then
    fail "Mooncake's header names are found by those who did not ask for them"
fi

# find_package(transfer_engine)
cmake -S "$user" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_FLAGS="${flags[*]}" >"$dir/cmake.log" 2>&1 || fail "$(cat "$dir/cmake.log")"
cmake --build "$dir/cmake" -j 2 >"$dir/cmake.log" 2>&1 || fail "$(cat "$dir/cmake.log")"
for kind in static shared transfer_engine mooncake; do
    [ "$("$dir/cmake/user_$kind")" = ok ] || fail "the program linked with transfer_engine::$kind failed"
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

# make install and make uninstall: all of it goes, and nothing else.
mkdir -p "$dir/gone/opt/te/bin" "$dir/gone/opt/te/share/man/man3"
echo other >"$dir/gone/opt/te/share/man/man3/other.3"
(cd "$dir/gone" && find . | sort) >"$dir/before"
"$src/scripts/install.sh" "$build" /opt/te "$dir/gone" >"$dir/install.log" || fail "install.sh: $(cat "$dir/install.log")"
[ -f "$dir/gone/opt/te/include/te.h" ] || fail "install.sh has installed no te.h"
if "$src/scripts/uninstall.sh" "$build" /opt "$dir/gone" 2>"$dir/install.log"; then
    fail "uninstall.sh believes in an installation that was not made"
fi
grep "no list of what make install has put into $dir/gone/opt:" "$dir/install.log" >/dev/null || fail "uninstall.sh: $(cat "$dir/install.log")"
"$src/scripts/uninstall.sh" "$build" /opt/te "$dir/gone" >"$dir/install.log" || fail "uninstall.sh: $(cat "$dir/install.log")"
(cd "$dir/gone" && find . | sort) >"$dir/after"
diff "$dir/before" "$dir/after" >&2 || fail "uninstall.sh leaves or removes what it should not"
if "$src/scripts/uninstall.sh" "$build" /opt/te "$dir/gone" 2>/dev/null; then fail "uninstall.sh works twice"; fi

# The lists outlive make clean, and nothing else of build/ does.
mkdir -p "$dir/clean/build/installed/0123" "$dir/clean/build/lib" "$dir/clean/build/.hidden"
touch "$dir/clean/build/installed/0123/files" "$dir/clean/build/lib/a" "$dir/clean/build/b"
clean() { make -s -C "$dir/clean" -f "$src/Makefile" clean || fail "make clean fails"; }
clean
[ "$(cd "$dir/clean" && find . | sort | xargs)" = ". ./build ./build/installed ./build/installed/0123 ./build/installed/0123/files" ] ||
    fail "make clean leaves or removes what it should not: $(find "$dir/clean")"
rm "$dir/clean/build/installed/0123/files"
clean
[ ! -e "$dir/clean/build" ] || fail "make clean leaves an empty build"
clean

# Nor is half an installation left: a file is where a folder should be.
mkdir -p "$dir/half/opt/te/share"
touch "$dir/half/opt/te/share/man"
(cd "$dir/half" && find . | sort) >"$dir/before"
if "$src/scripts/install.sh" "$build" /opt/te "$dir/half" >"$dir/install.log" 2>&1; then
    fail "install.sh: a file is taken for a folder: $(cat "$dir/install.log")"
fi
"$src/scripts/uninstall.sh" "$build" /opt/te "$dir/half" >"$dir/install.log" || fail "uninstall.sh: $(cat "$dir/install.log")"
(cd "$dir/half" && find . | sort) >"$dir/after"
diff "$dir/before" "$dir/after" >&2 || fail "uninstall.sh leaves something of half an installation"

# Each header stands alone.
for header in "$root"/include/*.h; do
    echo "#include <$(basename "$header")>" >"$dir/alone.c"
    "$cc" -std=c99 "${strict[@]}" -fsyntax-only "${cflags[@]}" "$dir/alone.c" || fail "$header alone does not compile as C99"
done
while read -r header; do
    echo "#include <${header#"$root/include/"}>" >"$dir/alone.cc"
    "$cxx" -std=c++17 -Wall -Wextra -Werror -fsyntax-only "${cflags[@]}" "$dir/alone.cc" ||
        fail "$header alone does not compile as C++"
done < <(find "$root/include" -name '*.h' -o -name '*.hpp')
echo "test_install: ok"
