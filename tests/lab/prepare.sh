#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fills the cache of the lab: a Debian kernel with its modules, and the initrd that its guests start from.
# Prints where the cache is. What is missing is told on stderr with exit status 77.
set -euo pipefail

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/te-lab}
here=$(cd "$(dirname "$0")" && pwd)
# What it takes to reach the root file system; all other modules are loaded from there.
boot_modules="virtio_pci virtio_console 9pnet_virtio 9p overlay configfs"

missing() {
    echo "lab: $*" >&2
    exit 77
}

# What the cloud flavour does not have: SoftRoCE, 9p and NVMe. So it must be the plain one.
newest_kernel() {
    apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2 }' || true
}

# Unpacks the kernel's package into the cache, and the kernel itself to the plain ELF file that QEMU can
# start: to emulate the decompression takes four seconds at every boot.
fetch_kernel() {
    local name tmp offset
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || missing "it takes Debian or Ubuntu on amd64"
    name=$(newest_kernel)
    if [ -z "$name" ]; then
        apt-get -qq update >&2 || true
        name=$(newest_kernel)
    fi
    [ -n "$name" ] || missing "apt knows no package linux-image-amd64, which holds the kernel of the guests"
    tmp=$(mktemp -d "$cache/tmp.XXXXXX")
    (cd "$tmp" && apt-get -qq -o Acquire::Retries=3 download "$name") >&2 ||
        (apt-get -qq update && cd "$tmp" && apt-get -qq download "$name") >&2 ||
        missing "the package $name cannot be downloaded"
    dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp" ./boot ./lib/modules
    depmod -b "$tmp" "${name#linux-image-}"
    # The last line: xz tells of the bytes behind its stream, which are not its own.
    offset=$(LC_ALL=C grep -abo $'\xfd7zXZ' "$tmp"/boot/vmlinuz-* | head -n 1)
    tail -c +$((${offset%%:*} + 1)) "$tmp"/boot/vmlinuz-* | xz -dc --single-stream >"$tmp/vmlinux" 2>/dev/null || true
    [ "$(head -c 4 "$tmp/vmlinux")" = $'\x7fELF' ] || missing "the kernel in $name cannot be unpacked"
    rm -rf "${cache:?}/lib"
    mv "$tmp/lib" "$tmp/vmlinux" "$cache/"
    echo "${name#linux-image-}" >"$cache/release" # last: who finds it finds all
}

make_initrd() {
    local tmp module
    tmp=$(mktemp -d "$cache/tmp.XXXXXX")
    mkdir -p "$tmp"/{bin,mod,proc,sys,dev,host,ovl,new}
    cp "$(command -v busybox)" "$tmp/bin/busybox"
    for module in $boot_modules; do
        modprobe -d "$cache" -S "$(cat "$cache/release")" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
        cp "$module" "$tmp/mod/"
        echo "/mod/${module##*/}" >>"$tmp/mod/order"
    done
    install -m 755 "$here/init.sh" "$tmp/init"
    (cd "$tmp" && find . | cpio -o -H newc --quiet) >"$cache/initrd.new"
    mv "$cache/initrd.new" "$cache/initrd"
}

for program in qemu-system-x86_64 busybox cpio modprobe depmod xz ip rdma dpkg-deb; do
    PATH=$PATH:/sbin:/usr/sbin command -v "$program" >/dev/null ||
        missing "no $program (scripts/deps.sh lab installs it)"
done
PATH=$PATH:/sbin:/usr/sbin
mkdir -p "$cache"
trap 'rm -rf "$cache"/tmp.*' EXIT
exec 9>"$cache/lock"
flock 9
[ -e "$cache/release" ] || fetch_kernel
[ -e "$cache/initrd" ] && [ "$cache/initrd" -nt "$here/init.sh" ] && [ "$cache/initrd" -nt "$here/prepare.sh" ] &&
    [ "$cache/initrd" -nt "$cache/release" ] || make_initrd
echo "$cache"
