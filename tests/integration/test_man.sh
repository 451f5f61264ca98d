#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=60
# Every function of te.h has a man page that tells its right prototype, every page renders without a
# warning, and every page about the library that one refers to is there.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
cc=${TE_TEST_CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$src/man"

failed=0
fail() { echo "test_man: $*" >&2; failed=1; }

# The functions that te.h declares, those that are defined inline included.
functions=$(tr '\n' ' ' <"$src/include/te.h" |
    grep -oE '(TE_API|static inline) [^;(]*[ *]te_[a-z_]+\(' | grep -oE 'te_[a-z_]+\($' |
    tr -d '(' | sort -u)
[ "$(wc -l <<<"$functions")" -ge 40 ] || fail "found only these functions in te.h:" $functions
for f in $functions; do
    [ -f "man3/$f.3" ] || fail "man/man3/$f.3 is missing"
done

for page in man3/*.3; do
    name=$(basename "$page" .3)
    grep -qx "$name" <<<"$functions" || fail "$page: te.h has no function $name"
    read -r word target <"$page"
    [ "$word" = .so ] || target=$page
    if [ ! -f "$target" ]; then
        fail "$page points at $target, which is not there"
        continue
    fi
    sed -n '/^\.SH NAME/{n;p}' "$target" | grep -w "$name" >/dev/null || fail "$target does not name $name"
    [ "$page" = "$target" ] || continue
    for section in SYNOPSIS DESCRIPTION 'RETURN VALUE' ERRORS NOTES EXAMPLE; do
        grep -qx ".SH $section" "$page" || fail "$page has no section $section"
    done
done
while read -r page name section; do
    [ -f "man$section/$name.$section" ] || fail "$page refers to $name($section), which is not there"
done < <(
    for page in man?/*.?; do
        sed -nE "s|^\\.BR (te_[a-z_]+\|transfer_engine) \\(([37])\\).*|$page \\1 \\2|p" "$page"
    done
)

# A prototype that differs from te.h's does not compile beside it.
{
    echo '#include "te.h"'
    for page in man3/*.3; do
        sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page" |
            sed -nE 's/\\-/-/g; s/^\\fB(.*)\\fP$/\1/p' |
            awk '/^[a-z].* \*?te_[a-z_]+\(/ { inside = 1 } inside { print } /;$/ { inside = 0 }'
    done
} >"$dir/prototypes.c"
"$cc" -std=c17 -I "$src/include" -fsyntax-only "$dir/prototypes.c" ||
    fail "a prototype differs from te.h's"
for f in $functions; do
    grep -qE "[ *]$f\(" "$dir/prototypes.c" || fail "no page has a prototype of $f"
done

if command -v groff >/dev/null; then
    render() { groff -man -ww -Tutf8 "$1" >/dev/null; }
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
