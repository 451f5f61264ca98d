#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Removes what make install of this tree has put below PREFIX: those files, and the folders that it made,
# where they are empty.
set -euo pipefail

if [ $# -ne 3 ] || [ "$1" = --help ]; then
    echo "usage: scripts/uninstall.sh BUILD PREFIX DESTDIR" >&2
    exit 2
fi
[ -n "$2" ] || { echo "uninstall: PREFIX= is empty" >&2; exit 2; }
build=$1
prefix=$(realpath -ms "$2")
destdir=
[ -z "$3" ] || destdir=$(realpath -ms "$3")
list=$build/installed/$(printf '%s\n' "$destdir" "$prefix" | sha256sum | cut -c1-16)
if [ ! -f "$list/files" ]; then
    echo "uninstall: this tree has no list of what make install has put into $destdir$prefix: say the same PREFIX=" \
        "and DESTDIR= as then, in the same tree. In another one, make install with these makes the list anew" >&2
    exit 1
fi

removed=0 left=0
while read -r file; do
    if [ -e "$destdir/$file" ] || [ -L "$destdir/$file" ]; then
        if rm -f "$destdir/$file"; then removed=$((removed + 1)); else left=$((left + 1)); fi
    fi
done <"$list/files"
sort -r "$list/new" | while read -r folder; do # the inner ones first
    rmdir "$destdir/$folder" 2>/dev/null || true
done
if [ $left -ne 0 ]; then
    echo "uninstall: $left files could not be removed from $destdir$prefix: run it as their owner" >&2
    exit 1
fi
rm -rf "$list"
echo "uninstall: removed $removed files from $destdir$prefix"
case "$destdir$prefix" in
    /usr | /usr/local) if [ "$(id -u)" -eq 0 ]; then ldconfig; else echo "uninstall: now run ldconfig as root"; fi ;;
esac
