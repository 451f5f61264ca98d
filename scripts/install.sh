#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What make install does with a tree that is built; what it has put where is written down in the tree,
# for scripts/uninstall.sh.
set -euo pipefail

if [ $# -ne 3 ] || [ "$1" = --help ]; then
    echo "usage: scripts/install.sh BUILD PREFIX DESTDIR" >&2
    exit 2
fi
here=$(dirname "$0")
[ -n "$2" ] || { echo "install: PREFIX= is empty" >&2; exit 2; }
build=$(realpath "$1")
prefix=$(realpath -ms "$2") # not through links of this host: with DESTDIR it is another one's
destdir=
[ -z "$3" ] || destdir=$(realpath -ms "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Installed once into a folder of its own, so that it is known which folders are not there yet.
DESTDIR=$work/stage cmake --install "$build" --prefix "$prefix" >"$work/log" || { cat "$work/log" >&2; exit 1; }
: >"$work/new"
(cd "$work/stage" && find . -depth -type d -printf '%P\n') | while read -r folder; do
    [ -z "$folder" ] || [ -d "$destdir/$folder" ] || echo "$folder" >>"$work/new"
done
(cd "$work/stage" && find . ! -type d -printf '%P\n') >"$work/files"

# Written before anything is installed, so that half an installation can be taken away. What an earlier version
# has put there is to be removed as well: a list is only added to.
list=$build/installed/$(printf '%s\n' "$destdir" "$prefix" | sha256sum | cut -c1-16)
mkdir -p "$list"
for kind in files new; do
    touch "$list/$kind"
    sort -u "$list/$kind" "$work/$kind" -o "$list/$kind"
done
DESTDIR=$destdir cmake --install "$build" --prefix "$prefix"
"$here/after_install.sh" "$build" "$prefix" "$destdir"
