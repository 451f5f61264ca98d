#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the binary interface of the shared library with the one recorded in abi/, or records it.
#
#   abi/libtransfer_engine.abi   functions, their versions and the types they reach (abidw, abidiff)
#   abi/structs.abi              every struct of the C headers, also those that no function takes
#   abi/constants.txt            integer constants of the C headers, and what types that are macros are,
#                                which is what programs are compiled with and no function tells
#   abi/metrics.txt              the metrics of an engine, their types and labels, which queries and alerts name
#
# The record is of gcc on x86_64. It holds no paths and no names of parameters.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/abi.sh [--record [--break]] [--build DIR] [--lib FILE] [--include DIR] [--against DIR]

Exit 0 if the interface is the recorded one, 1 if it differs, with what differs and what to do; 3 if this
libabigail is too old.

  --record       write the record instead (make abi), unless programs that exist would break
  --break        write it in this case, too: for a release with another SONAME
  --build DIR    build tree, with debug information (default: build); its te_info tells the metrics
  --lib FILE     the library (default: lib/libtransfer_engine.so of the build tree)
  --include DIR  its headers (default: include)
  --against DIR  the record (default: abi)
USAGE
}

cd "$(dirname "$0")/.."
record=no may_break=no build=build lib='' include=include against=abi
while [ $# -gt 0 ]; do
    case "$1" in
        --record) record=yes; shift ;;
        --break) may_break=yes; shift ;;
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
[ -x "$build/bin/te_info" ] || die "$build/bin/te_info is missing: build the tools first"
readelf -S "$lib" | grep -F .debug_info >/dev/null || die "$lib has no debug information: build with -g"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

abidw_options=(--drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path --no-show-locs
    --no-elf-needed --no-parameter-names --no-write-default-sizes)
abidw --help >"$dir/help" 2>&1 || true
for option in "${abidw_options[@]}" --type-id-style; do
    if ! grep -F -e "$option" "$dir/help" >/dev/null; then
        echo "abi: $(abidw --version 2>&1 | head -n 1) does not know $option: libabigail 2.2 is needed" >&2
        exit 3
    fi
done

# interface_of LIBRARY
interface_of() {
    abidw --headers-dir "$include" "${abidw_options[@]}" --type-id-style hash --out-file "$dir/abi" "$1"
    # Which file defines a function, and in which revision of C, is not part of the interface.
    sed -E "s| path='[^']*/(\w+)\.c'| path='\1.c'|; s|LANG_C[0-9]+|LANG_C|" "$dir/abi"
}

headers=(te.h te_counter.h te_lease.h te_paths.h te_stream.h transfer_engine_c.h)
preprocess() { printf '#include <%s>\n' "${@:2}" | "$cc" -std=c17 -I "$include" -x c -E "$1" -; }

# The names of the headers' own macros with a value, those of types apart; those of a version differ in each.
macros() {
    preprocess -dM stddef.h stdint.h | sort >"$dir/macros_of_others"
    preprocess -dM stddef.h stdint.h "${headers[@]}" | sort | comm -13 "$dir/macros_of_others" - |
        awk 'NF > 2 && $2 !~ /\(|^TE_API$|^TE_VERSION_/ { print $2 }'
}
enumerators() {
    preprocess -P "${headers[@]}" | tr '\n' ' ' | grep -oE 'enum( \w+)? \{[^}]*\}' |
        sed -E 's/.*\{(.*)\}/\1/; s/=[^,]*//g' | tr ', ' '\n\n' | sed '/^$/d'
}
structs() { preprocess -P "${headers[@]}" | grep -oE '^(typedef )?struct \w+ \{' | grep -oE 'struct \w+'; }

constants() {
    {
        printf '#include <stdio.h>\n'
        printf '#include <%s>\n' "${headers[@]}"
        echo 'int main(void) {'
        { macros | grep -v '_t$'; enumerators; } | sed 's/.*/printf("%s = %lld\\n", "&", (long long)(&));/'
        macros | grep '_t$' | sed 's/.*/printf("%s is %s, of %zu bytes\\n", "&", (&)-1 < (&)1 ? "signed" : "unsigned", sizeof(&));/'
        echo 'return 0; }'
    } >"$dir/constants.c"
    "$cc" -std=c17 -w -I "$include" "$dir/constants.c" -o "$dir/constants"
    "$dir/constants" | LC_ALL=C sort -u
}

# A line for the type of each metric and for each of its labels.
metrics() {
    "$build/bin/te_info" --metrics | sed -nE 's/^  (transfer_engine_\w+) \((.*)\)$/\1 \2/p' | tr -d , |
        awk '{ print $1, "is a", $2; for (i = 4; i <= NF; i++) print $1, "by", $i }' | LC_ALL=C sort -u
}

# A library with a function for each struct.
all_structs() {
    {
        printf '#include <%s>\n' "${headers[@]}"
        structs | sed -E 's/struct (.*)/void struct_\1(struct \1 *s) { (void)s; }/'
    } >"$dir/structs.c"
    "$cc" -std=c17 -g -fPIC -shared -I "$include" "$dir/structs.c" -o "$dir/structs.so"
    interface_of "$dir/structs.so"
}

interface_of "$lib" >"$dir/libtransfer_engine.abi"
all_structs >"$dir/structs.abi"
constants >"$dir/constants.txt"
metrics >"$dir/metrics.txt"

files=(libtransfer_engine.abi structs.abi constants.txt metrics.txt)
# Structs that begin with their size: the library takes them from programs of other releases. Libabigail before
# 2.4 takes another size for granted.
printf '[suppress_type]\n  type_kind = struct\n  name = %s\n  has_data_member_inserted_at = end\n  has_size_change = yes\n' \
    te_options te_submit_opts te_stats >"$dir/may_grow"

# differ [OPTION]...: whether functions or structs do; how, on standard output.
differ() {
    local file rc=1
    for file in libtransfer_engine.abi structs.abi; do
        abidiff --drop-private-types "$@" "$against/$file" "$dir/$file" || rc=0
    done
    return $rc
}
# lines_gone FOLDER OTHER WORD: those of the constants and metrics in FOLDER that OTHER has not.
lines_gone() {
    local file
    for file in constants.txt metrics.txt; do LC_ALL=C comm -23 "$1/$file" "$2/$file"; done | sed "s/^/  $3: /" | grep .
}

# What programs built against the record, and queries of its metrics, would miss or misread: into the report.
breaks() {
    local broken=1
    differ --no-added-syms --suppressions "$dir/may_grow" >"$dir/report" && broken=0
    lines_gone "$against" "$dir" was >>"$dir/report" && broken=0
    return $broken
}
# What is new to them.
has_grown() {
    local grown=1
    differ >"$dir/report" && grown=0
    lines_gone "$dir" "$against" new >>"$dir/report" && grown=0
    return $grown
}

recorded=yes
for file in "${files[@]}"; do [ -f "$against/$file" ] || recorded=no; done
if [ $record = no ] && [ $recorded = no ]; then die "$against/ lacks a record: make abi makes it"; fi
if [ $recorded = yes ] && [ $may_break = no ] && breaks; then
    cat "$dir/report"
    die "programs built against the recorded interface, or queries of its metrics, break: undo the change, or add" \
        "the new form beside the old one, a function under a symbol node of its own. If it needs a new SONAME" \
        "(the major version)," \
        "scripts/abi.sh --record --break records it"
fi
if [ $record = yes ]; then
    mkdir -p "$against"
    for file in "${files[@]}"; do cp "$dir/$file" "$against/"; done
    echo "abi: recorded in $against/"
    exit 0
fi
if has_grown; then
    cat "$dir/report"
    die "the interface has grown, which breaks no program: make abi records it"
fi
echo "abi: as recorded: $(grep -c '<function-decl ' "$against/libtransfer_engine.abi") functions," \
    "$(grep -c '<function-decl ' "$against/structs.abi") structs, $(wc -l <"$against/constants.txt") constants," \
    "$(grep -c ' is a ' "$against/metrics.txt") metrics"
