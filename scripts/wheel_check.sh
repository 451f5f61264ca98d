#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the portable wheels where they are to run: in old and new systems, and on another architecture.
set -euo pipefail

# A release, its architecture as Debian and as Python name it. The oldest comes first.
roots=("bullseye amd64 x86_64" "bookworm amd64 x86_64" "trixie amd64 x86_64" "bookworm arm64 aarch64")

usage() {
    cat <<USAGE
usage: scripts/wheel_check.sh [DIR]

Looks at the wheels of DIR (default: build/wheel): that they need no newer C library than their name
tells, and nothing else of the host. Then each runs in the systems of its architecture, where two
engines move bytes over TCP and compare them:
$(printf '    Debian %s %s (%s)\n' $(printf '%s\n' "${roots[@]}"))
Those roots are unpacked by mmdebstrap (no root rights are needed) and kept in \$TE_WHEEL_CACHE (default:
\${XDG_CACHE_HOME:-~/.cache}/te-wheel). arm64 runs by qemu-aarch64-static. What cannot be tried here
is told.

  --help   this text
USAGE
}

case "${1-}" in -h | --help) usage; exit 0 ;; esac
dir=$(realpath "${1:-$(dirname "$0")/../build/wheel}")
cache=$(realpath -m "${TE_WHEEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/te-wheel}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "wheel_check: $*" >&2; exit 1; }

# ---- What they need ------------------------------------------------------------------------------
for wheel in "$dir"/transfer_engine-*-manylinux_*.whl; do
    [ -f "$wheel" ] || fail "no wheel in $dir: run scripts/wheel.sh"
    rm -rf "$work/wheel"
    python3 -m zipfile -e "$wheel" "$work/wheel"
    library=$work/wheel/transfer_engine/lib/libtransfer_engine.so.0
    [ "$(find "$work/wheel" -name '*.so*' | wc -l)" = 1 ] || fail "$wheel: more than one library"
    told=$(sed -E 's/.*-manylinux_([0-9]+)_([0-9]+)_.*/\1.\2/' <<<"$wheel")
    highest=$(readelf -VW "$library" | grep -oE 'Name: GLIBC_[0-9.]+' | sed 's/.*_//' | sort -V | tail -n 1)
    [ "$(printf '%s\n' "$told" "$highest" | sort -V | tail -n 1)" = "$told" ] || fail "$wheel needs glibc $highest"
    [ "$told" = 2.28 ] || fail "$wheel is for glibc $told, not for 2.28"
    needed=$(readelf -dW "$library" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p')
    if grep -vE '^(lib(c|m|dl|rt|pthread)\.so\.[0-9]|ld-linux-[a-z0-9-]+\.so\.[0-9])$' <<<"$needed"; then
        fail "$wheel needs these of the host"
    fi
    echo "wheel_check: $(basename "$wheel"): $(du -k "$wheel" | cut -f1) KiB, needs glibc $highest"
done

# ---- Whether they run ----------------------------------------------------------------------------
cat >"$work/move.py" <<'PYTHON'
import ctypes
import os
import platform
import transfer_engine as te

options = {"MC_FORCE_TCP": "1", "TE_HOST_PATH": "off"}
length = 4 << 20
data = os.urandom(length)
page, store = bytearray(data), bytearray(length)
with te.Engine(name="127.0.0.1", options=options) as a, te.Engine(name="127.0.0.1", options=options) as b:
    with b.register(store) as there, a.register(page), a.open(b.name) as segment:
        segment.write(page, there.address, timeout=60)
        if bytes(store) != data:
            raise SystemExit("other bytes arrived")
        page[:] = bytes(length)
        segment.read(page, there.address, timeout=60)
        if bytes(page) != data:
            raise SystemExit("other bytes came back")
libc = ctypes.CDLL(None).gnu_get_libc_version
libc.restype = ctypes.c_char_p
print("moved and compared", 2 * length, "bytes over tcp:", platform.machine(), "glibc", libc().decode(),
      "Python", platform.python_version())
PYTHON

# root RELEASE ARCH: prints where it is; files only, nothing is installed or run in it.
root() {
    local at=$cache/roots/$1-$2
    if [ ! -d "$at" ]; then
        mkdir -p "$cache/roots"
        rm -rf "$at.new"
        mmdebstrap --quiet --variant=extract --architectures="$2" --include=python3,libgcc-s1 \
            "$1" "$at.new" http://deb.debian.org/debian >"$work/log" 2>&1 || return 1
        mv "$at.new" "$at"
    fi
    echo "$at"
}

left_out=0
for entry in "${roots[@]}"; do
    read -r release debian machine <<<"$entry"
    wheels=("$dir"/transfer_engine-*_"$machine".whl)
    [ -f "${wheels[0]}" ] || continue
    for program in mmdebstrap $([ "$machine" = "$(uname -m)" ] || echo "qemu-$machine-static"); do
        command -v "$program" >/dev/null && continue
        echo "wheel_check: not tried in Debian $release $debian: $program is missing here"
        left_out=1
        continue 2
    done
    if ! at=$(root "$release" "$debian"); then
        echo "wheel_check: not tried in Debian $release $debian: $(tail -n 1 "$work/log")"
        left_out=1
        continue
    fi
    # pip says by the name of a wheel whether it is for such a host.
    rm -rf "$work/site"
    python3 -m pip install -q --no-index --no-deps --only-binary=:all: --target "$work/site" --python-version 3.9 \
        --platform "manylinux_2_28_$machine" "${wheels[0]}" 2>"$work/log" || fail "pip: $(cat "$work/log")"
    python=$(realpath "$at/usr/bin/python3")
    if [ "$machine" = "$(uname -m)" ]; then
        # The root's own loader and libraries, without a change of root.
        loader=$(find "$at/usr/lib" "$at/lib" -path "*/$machine-linux-gnu/ld-*.so*" -type f 2>/dev/null | head -n 1) || true
        start=("$loader" --library-path "$at/lib/$machine-linux-gnu:$at/usr/lib/$machine-linux-gnu" "$python")
    else
        start=("qemu-$machine-static" -L "$at" "$python")
    fi
    env -i PATH=/usr/bin:/bin PYTHONHOME="$at/usr" PYTHONPATH="$work/site" PYTHONDONTWRITEBYTECODE=1 \
        timeout 300 "${start[@]}" "$work/move.py" >"$work/log" 2>&1 || fail "Debian $release $debian: $(tail -n 5 "$work/log")"
    grep -q "^moved and compared .* over tcp: $machine " "$work/log" || fail "Debian $release $debian: $(cat "$work/log")"
    echo "wheel_check: Debian $release $debian: $(tail -n 1 "$work/log")"
done
[ $left_out = 0 ] || echo "wheel_check: apt-get install mmdebstrap qemu-user-static makes more of it possible"
