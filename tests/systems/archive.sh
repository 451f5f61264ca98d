#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The archive by itself: a program with the C names is linked with it and with no -l at all, and moves data. For any
# sh, busybox's too.
#
# usage: tests/systems/archive.sh COMPILER BUILD [EMULATOR]
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

"$1" -D_GNU_SOURCE -Wall -Wextra -Werror -I "$source/include" "$source/tests/bindings/package/user.c" \
    "$2/lib/libtransfer_engine.a" -o "$work/user"
said=$(${3:-} "$work/user")
if [ "$said" != ok ]; then
    echo "archive: the program said: $said" >&2
    exit 1
fi
echo "the archive alone: ok"
