#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
# Every function of te.h and transfer_engine_c.h has a man page that tells its right prototype, every tool
# one that tells of its flags; every page renders by itself without a warning, and every page about the
# library that one refers to is there.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
cc=${TE_TEST_CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$src/man"

failed=0
fail() { echo "test_man: $*" >&2; failed=1; }

# functions_of HEADER NUMBER: those that it declares, at least so many; inline ones included.
functions_of() {
    local found
    found=$(grep -v '^ *#' "$src/include/$1" | tr '\n' ' ' | grep -oE '(TE_API|static inline) [^;(]*[ *]\w+\(' |
        grep -oE '\w+\($' | tr -d '(' | sort -u)
    if [ "$(wc -l <<<"$found")" -lt "$2" ]; then
        echo "test_man: found only these functions in $1:" $found >&2
        exit 1
    fi
    echo "$found"
}
functions=$(functions_of te.h 40; functions_of transfer_engine_c.h 27)
for f in $functions; do
    [ -f "man3/$f.3" ] || fail "man/man3/$f.3 is missing"
done

for page in man3/*.3; do
    name=$(basename "$page" .3)
    grep -qx "$name" <<<"$functions" || fail "$page: no header has a function $name"
    target=$page
    if [ -L "$page" ]; then # not .so, which man -l does not find in a tree that is not installed
        target=man3/$(readlink "$page")
        [ -f "$target" ] || { fail "$page is a link to $target, which is not there"; continue; }
    fi
    sed -n '/^\.SH NAME/{n;p}' "$target" | grep -w "$name" >/dev/null || fail "$target does not name $name"
    [ "$page" = "$target" ] || continue
    for section in SYNOPSIS DESCRIPTION 'RETURN VALUE' ERRORS NOTES EXAMPLE; do
        grep -qx ".SH $section" "$page" || fail "$page has no section $section"
    done
done
ours='te_\w+|transfer_engine\w*|[a-z]+[A-Z]\w*'
while read -r page name section; do
    [ -f "man$section/$name.$section" ] || fail "$page refers to $name($section), which is not there"
done < <(
    for page in man?/*.?; do
        sed -nE "s@^\\.BR ($ours) \(([1357])\).*@$page \\1 \\2@p" "$page"
        grep -oE "\\\\fB($ours)\\\\fP\([1357]\)" "$page" | sed -E "s|.fB(\w+).fP.(.).|$page \\1 \\2|" || true
    done
)

# A prototype that differs from the header's does not compile beside it.
{
    echo '#include "te.h"'
    echo '#include "transfer_engine_c.h"'
    for page in man3/*.3; do
        sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page" |
            sed -nE 's/\\-/-/g; s/^\\fB(.*)\\fP$/\1/p' |
            awk '/^[a-z].*[ *][A-Za-z_]+\(/ { inside = 1 } inside { print } /;$/ { inside = 0 }'
    done
} >"$dir/prototypes.c"
"$cc" -std=c17 -I "$src/include" -fsyntax-only "$dir/prototypes.c" ||
    fail "a prototype differs from its header's"
for f in $functions; do
    grep -qE "[ *]$f\(" "$dir/prototypes.c" || fail "no page has a prototype of $f"
done

# The page of the options has each of them; make lint compares its text.
page=man5/transfer_engine.5
while read -r name; do
    grep -qx "\.B $name" $page || fail "$page does not tell of $name"
done < <("${TE_TEST_BIN:-$src/build/bin}/te_info" --config | sed -nE 's/^  ([A-Z_0-9]+) = .*/\1/p')
[ "$(grep -c '^\.TP' $page)" -ge 80 ] || fail "$page tells of too few options"

# The page of the C++ class names every method.
page=man7/transfer_engine_hpp.7
methods=$(sed -n '/^class TransferEngine/,/^  private:/p' "$src/include/transfer_engine.hpp" |
    grep -oE '^    [A-Za-z:]+[^=]*[ *]\w+\(' | grep -oE '\w+\($' | tr -d '(' | sort -u)
[ "$(wc -w <<<"$methods")" -ge 25 ] || fail "found only these methods in transfer_engine.hpp:" $methods
for method in ${methods//TransferEngine/}; do
    grep -w "${method%Batch}" $page >/dev/null || fail "$page does not name $method"
done

# Every flag of a tool is told on its page; the validator's page sends one to that of the benchmark.
for source in "$src"/tools/[!c]*.c; do
    tool=${TE_TEST_BIN:-$src/build/bin}/$(basename "$source" .c)
    [ -x "$tool" ] || continue # this build goes without te_metad
    page=man1/$(basename "$tool").1
    [ -f "$page" ] || { fail "$page is missing"; continue; }
    pages=("$page")
    [ "$page" != man1/transfer_engine_validator.1 ] || pages+=(man1/transfer_engine_bench.1)
    for flag in $("$tool" --help | sed -nE 's/^  --([a-z_]+).*/\1/p'); do
        sed 's/\\-/_/g' "${pages[@]}" | grep -wE "(__)?$flag" >/dev/null || fail "$page does not tell of --$flag"
    done
done

if command -v groff >/dev/null; then
    render() { groff -man -ww -Tutf8 <"$1" >/dev/null; }
elif command -v man >/dev/null; then
    render() { MANROFFSEQ='' man --warnings -l "$1" >/dev/null; }
else
    [ $failed -eq 0 ] || exit 1
    echo "test_man: neither groff nor man is installed: the pages were not rendered"
    exit 77
fi
for page in man?/*.?; do
    render "$page" 2>"$dir/warnings" || fail "$page does not render"
    [ ! -s "$dir/warnings" ] || fail "$page: $(head -n 3 "$dir/warnings")"
done
exit $failed
