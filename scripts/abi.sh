#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the binary interface of the shared library with the one recorded in abi/, or records it.
#
#   abi/libtransfer_engine.abi   functions, their versions and the types they reach (abidw, abidiff)
#   abi/constants.txt            integer constants of the C headers, and the sizes of their types, which
#                                is what programs are compiled with and no function tells
#
# The record is of gcc on x86_64. It holds no paths and no names of parameters.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/abi.sh [--record] [--build DIR] [--lib FILE] [--include DIR] [--against DIR]

Exit 0 if the interface is the recorded one, 1 if it differs, with what differs and what to do.

  --record       write the record instead (make abi)
  --build DIR    build tree, with debug information (default: build)
  --lib FILE     the library (default: lib/libtransfer_engine.so of the build tree)
  --include DIR  its headers (default: include)
  --against DIR  the record (default: abi)
USAGE
}

cd "$(dirname "$0")/.."
record=no build=build lib='' include=include against=abi
while [ $# -gt 0 ]; do
    case "$1" in
        --record) record=yes; shift ;;
        --build | --lib | --include | --against)
            [ $# -ge 2 ] || { echo "abi: $1 needs a value (see --help)" >&2; exit 2; }
            printf -v "${1#--}" %s "$2"; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        *) echo "abi: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ -n "$lib" ] || lib=$build/lib/libtransfer_engine.so
cc=${CC:-cc}

die() { echo "abi: $*" >&2; exit 1; }
command -v abidiff >/dev/null || die "abidiff is missing: run scripts/deps.sh test"
[ -f "$lib" ] || die "$lib is missing: build first"
readelf -S "$lib" | grep -F .debug_info >/dev/null || die "$lib has no debug information: build with -g"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

library_interface() {
    abidw --headers-dir "$include" --drop-private-types --exported-interfaces-only --no-corpus-path \
        --no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names --type-id-style hash \
        --no-write-default-sizes --out-file "$dir/abi" "$lib"
    # Which file defines a function, and in which revision of C, is not part of the interface.
    sed -E "s| path='[^']*/(\w+)\.c'| path='\1.c'|; s|LANG_C[0-9]+|LANG_C|" "$dir/abi"
}

headers=(te.h transfer_engine_c.h)
preprocess() { printf '#include <%s>\n' "${@:2}" | "$cc" -std=c17 -I "$include" -x c -E "$1" -; }

# The names of the headers' own macros with a value; those of a version differ in each, and those of
# types are no numbers.
macros() {
    preprocess -dM stddef.h stdint.h | sort >"$dir/macros_of_others"
    preprocess -dM stddef.h stdint.h "${headers[@]}" | sort | comm -13 "$dir/macros_of_others" - |
        awk 'NF > 2 && $2 !~ /\(|_t$|^TE_API$|^TE_VERSION_/ { print $2 }'
}
enumerators() {
    preprocess -P "${headers[@]}" | tr '\n' ' ' | grep -oE 'enum( \w+)? \{[^}]*\}' |
        sed -E 's/.*\{(.*)\}/\1/; s/=[^,]*//g' | tr ', ' '\n\n' | sed '/^$/d'
}
types() { preprocess -P "${headers[@]}" | grep -oE '^(typedef )?struct \w+ \{' | grep -oE 'struct \w+'; }

constants() {
    {
        printf '#include <stdio.h>\n'
        printf '#include <%s>\n' "${headers[@]}"
        echo 'int main(void) {'
        { macros; enumerators; } | sed 's/.*/printf("%s = %lld\\n", "&", (long long)(&));/'
        types | sed 's/.*/printf("sizeof(%s) = %zu\\n", "&", sizeof(&));/'
        echo 'return 0; }'
    } >"$dir/constants.c"
    "$cc" -std=c17 -I "$include" "$dir/constants.c" -o "$dir/constants"
    "$dir/constants" | LC_ALL=C sort -u
}

library_interface >"$dir/libtransfer_engine.abi"
constants >"$dir/constants.txt"
if [ $record = yes ]; then
    mkdir -p "$against"
    cp "$dir/libtransfer_engine.abi" "$dir/constants.txt" "$against/"
    echo "abi: recorded in $against/"
    exit 0
fi
for file in libtransfer_engine.abi constants.txt; do
    [ -f "$against/$file" ] || die "$against/$file is missing: make abi records it"
done

# What programs built against the record would miss or misread, then what is new to them.
compare() { abidiff --drop-private-types "$@" "$against/libtransfer_engine.abi" "$dir/libtransfer_engine.abi"; }
broken=no
compare --no-added-syms >"$dir/report" || broken=yes
if LC_ALL=C comm -23 "$against/constants.txt" "$dir/constants.txt" | grep . >"$dir/lost"; then
    broken=yes
    sed 's/^/  was: /' "$dir/lost" >>"$dir/report"
fi
if [ $broken = yes ]; then
    cat "$dir/report"
    die "programs built against the recorded interface break: undo the change, or add the new form beside the" \
        "old one, under a symbol node of its own. make abi records what needs a new SONAME (the major version)," \
        "and a struct that begins with its size and has grown at its end"
fi
added=no
compare >"$dir/report" || added=yes
if LC_ALL=C comm -13 "$against/constants.txt" "$dir/constants.txt" | grep . >"$dir/new"; then
    added=yes
    sed 's/^/  new: /' "$dir/new" >>"$dir/report"
fi
if [ $added = yes ]; then
    cat "$dir/report"
    die "the interface has grown, which breaks no program: make abi records it"
fi
echo "abi: as recorded: $(grep -c '<function-decl ' "$against/libtransfer_engine.abi") functions," \
    "$(wc -l <"$against/constants.txt") constants and sizes"
