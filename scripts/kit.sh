#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs build/te-kit-VERSION-MACHINE.tar.gz of a build: what tests/device/run.sh needs on a host with
# accelerators or NICs, which need not have a compiler, packages or a network. There:
#
#   tar xf te-kit-*.tar.gz && te-kit-*/run.sh run
#
# usage: kit.sh [BUILD]
set -euo pipefail

src=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$src/build}" && pwd)
version=$(LD_LIBRARY_PATH= "$build/bin/te_info" --version | sed -n '1s/.* \([0-9][0-9.]*\).*/\1/p')
name=te-kit-${version:-unknown}-$(uname -m)
work=$(mktemp -d "$build/kit.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$src/tests/device/run.sh" pack "$work/$name" "$build"
tar -C "$work" --owner=0 --group=0 --numeric-owner -czf "$work/$name.tar.gz" "$name"
mv "$work/$name.tar.gz" "$build" # at once: somebody may be reading the one before
echo "$build/$name.tar.gz"
