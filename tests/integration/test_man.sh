#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
# Every function of te.h, te_counter.h, te_lease.h, te_paths.h and transfer_engine_c.h has a man page that tells its prototype as the header
# does, which threads may call it and how long things live; every option is in transfer_engine(5). Every page renders by
# itself, by each program that shows pages, without a warning and under its own name, and every page about the library
# that one refers to is there. What the pages of tools say of flags is for make lint.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
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
functions=$(functions_of te.h 40; functions_of te_counter.h 9; functions_of te_lease.h 2; functions_of te_paths.h 1; functions_of transfer_engine_c.h 27)
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

# The NOTES of a function tell which threads may call it, and what stays valid for how long.
lives="valid (until|during)|stays valid|read during the call only|the caller's|is static|copies|borrowed|must stay mapped"
lives+='|te_engine_destroy\(\).fP (must be the last call|is called)|for the whole process'
for page in man3/te_*.3; do
    notes=$(sed -n '/^\.SH NOTES/,/^\.SH EXAMPLE/p' "$page")
    grep -qw 'threads\?' <<<"$notes" || fail "$page: NOTES does not tell which threads may call it"
    grep -qE "$lives" <<<"$notes" || fail "$page: NOTES does not tell how long what it takes or gives stays valid"
done

# The prototypes, one a line, are those of the headers but for blanks.
blanks() { sed -E 's/[[:space:]]+/ /g; s/ ?([(),*]) ?/\1/g; s/ ?; *$/;/' | sort -u; }
for header in te.h te_counter.h te_lease.h te_paths.h transfer_engine_c.h; do
    grep -v '^ *#' "$src/include/$header" | tr '\n' ' ' | grep -oE '(TE_API|static inline) [^;(]*[ *]\w+\([^;{]*'
done | sed -E 's/^(TE_API|static inline) //; s/$/;/' | blanks >"$dir/declared"
for page in man3/*.3; do
    sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page" | sed -nE 's/\\-/-/g; s/^\\fB(.*)\\fP$/\1/p' |
        awk '/^[a-z].*[ *][A-Za-z_]+\(/ { inside = 1 } inside { printf "%s ", $0 } inside && /;$/ { print ""; inside = 0 }'
done | blanks >"$dir/told"
[ "$(wc -l <"$dir/told")" -eq "$(wc -w <<<"$functions")" ] || fail "the pages have $(wc -l <"$dir/told") prototypes"
differ=$(diff "$dir/declared" "$dir/told") || fail "prototypes of the headers (<) and of the pages (>) differ:"$'\n'"$differ"

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

# Every tool has a page; what it says of flags is compared by make lint.
for source in "$src"/tools/te_*.c "$src"/tools/transfer_engine_*.c; do
    [ -f "man1/$(basename "$source" .c).1" ] || fail "man1/$(basename "$source" .c).1 is missing"
done

# A page that is shown has its own name in its heading, or where it is a link, that of the page it leads to; the name
# of the tool, function or file is under NAME; and a function's prototype is there.
readers=()
if command -v groff >/dev/null; then readers+=(groff); fi
if man --version 2>/dev/null | grep '^man ' >/dev/null; then readers+=(man); fi # not what says that it was removed
if command -v mandoc >/dev/null; then readers+=(mandoc); fi
show() {
    case $1 in
        groff) groff -man -ww -rHY=0 -Tutf8 <"$2" ;;
        man) MANROFFSEQ='' LC_ALL=C.UTF-8 man --warnings --no-hyphenation -E UTF-8 -l "$2" ;;
        mandoc) mandoc -T utf8 -W warning "$2" ;;
    esac | sed -E 's/.\x08//g; s/\x1b\[[0-9;]*m//g'
}
check_shown() {
    local page=$1 title name section=${1##*.}
    name=$(basename "$page" ".$section")
    title=$(basename "$(readlink -f "$page")" ".$section")
    head -n 3 "$dir/shown" | grep -iE "^$title\($section\) .* $title\($section\)$" >/dev/null ||
        fail "$reader $page: the heading is not $title($section), but: $(head -n 3 "$dir/shown")"
    sed -n '/^NAME$/,/^[A-Z]/{/^NAME$/d;p}' "$dir/shown" | grep -w "$name" >/dev/null ||
        fail "$reader $page: $name is not under NAME"
    [ "$section" != 3 ] || sed -n '/^SYNOPSIS$/,/^DESCRIPTION$/p' "$dir/shown" | grep -E "[ *]$name\(" >/dev/null ||
        fail "$reader $page: SYNOPSIS does not show $name()"
}
for reader in "${readers[@]}"; do
    for page in man?/*.?; do
        show "$reader" "$page" >"$dir/shown" 2>"$dir/warnings" || fail "$reader $page does not render"
        [ ! -s "$dir/warnings" ] || fail "$reader $page: $(head -n 3 "$dir/warnings")"
        check_shown "$page"
    done
done
[ $failed -eq 0 ] || exit 1
if [ ${#readers[@]} -eq 0 ]; then
    echo "test_man: neither groff nor man nor mandoc is installed: the pages were not shown"
    exit 77
fi
