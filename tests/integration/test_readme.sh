#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
# The examples of README.md, as they stand there, do what they say: that in C built and run by the commands below it,
# that in Python on the package of the tree. Those of examples/ have tests of their own; where links lead is for make lint.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
cc=${TE_TEST_CC:-cc}
read -ra flags <<<"${TE_TEST_CFLAGS:-}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_readme: $*" >&2; exit 1; }

# block LANGUAGE WORD: the first block of that language with a line that begins with WORD.
block() {
    awk -v begin="^\`\`\`$1\$" -v word="$2" '
        $0 ~ begin { inside = 1; text = ""; found = 0; next }
        /^```/ { if (inside && found) { printf "%s", text; exit } inside = 0 }
        inside { text = text $0 "\n"; if (index($0, word) == 1) found = 1 }' "$src/README.md"
}

block c '#include' >"$dir/example.c"
lines=$(grep -c . "$dir/example.c") || fail "README.md has no block of C"
[ "$lines" -le 40 ] || fail "the example has grown to $lines lines"
block sh 'cc example.c' >"$dir/commands"
grep -q '^make install PREFIX=' "$dir/commands" || fail "README.md does not tell how to build it"

# What the commands mean here: the tree that is tested is installed, into a home of its own, and
# the example is compiled with the compiler and the sanitizers of that tree, warnings being errors.
make() {
    [ $# -eq 2 ] && [ "$1" = install ] || fail "README.md says make $*"
    cmake --install "$build" --prefix "${2#PREFIX=}" >"$dir/log" || fail "$(cat "$dir/log")"
}
cc() { command "$cc" -std=c17 -Wall -Wextra -Werror -pedantic "${flags[@]}" "$@"; }

[ -f "$build/lib/libtransfer_engine.a" ] || fail "$build/lib/libtransfer_engine.a is not built"
unset PKG_CONFIG_PATH LD_LIBRARY_PATH DESTDIR
(
    cd "$dir"
    export HOME=$dir/home
    . ./commands
) >"$dir/out" 2>&1 || fail "its commands failed: $(cat "$dir/out")"
grep -Eq '^127\.0\.0\.1:[0-9]+ got: hello from the other side$' "$dir/out" ||
    fail "it printed: $(cat "$dir/out")"
if ldd "$dir/example" | grep libtransfer_engine; then fail "it wants the shared library"; fi

# It tells what is wrong, whether a call fails or the request.
refuted() { # CHANGE TEXT: the example, changed, fails and says that.
    sed "$1" "$dir/example.c" >"$dir/wrong.c"
    ! cmp -s "$dir/example.c" "$dir/wrong.c" || fail "the example has nothing for $1"
    (
        export PKG_CONFIG_PATH=$dir/home/te/lib/pkgconfig
        cd "$dir"
        cc wrong.c $(pkg-config --cflags --libs transfer_engine-static) -o wrong
    ) || fail "the example is not compiled with $1"
    if TE_BIND=127.0.0.1 "$dir/wrong" >"$dir/out" 2>&1; then fail "with $1 it says that all is well"; fi
    grep -q "$2" "$dir/out" || fail "with $1 it printed: $(cat "$dir/out")"
}
refuted 's/{TE_WRITE, ours,/{TE_WRITE, name,/' 'request 0: source .* is not inside one registered region'
refuted 's/(uintptr_t)theirs,/64,/' "^not written: .*segment '127\.0\.0\.1:[0-9]*': target does not have"

block python 'import transfer_engine' >"$dir/example.py"
grep -q 'assert cache' "$dir/example.py" || fail "README.md has no block of Python"
if [[ ${TE_TEST_CFLAGS:-} != *sanitize* ]]; then # Python itself has none
    PYTHONPATH=$src/bindings/python TRANSFER_ENGINE_LIBRARY=$build/lib/libtransfer_engine.so TE_BIND=127.0.0.1 \
        python3 "$dir/example.py" || fail "its Python failed"
fi

for target in demo test; do
    grep -q "^make $target " "$src/README.md" || fail "README.md does not name make $target"
    grep -q "^$target:" "$src/Makefile" || fail "the Makefile has no $target"
done
