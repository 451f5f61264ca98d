#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command as root in a root file system that stays as it is: what the command writes goes to a
# folder above it, which is gone afterwards.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/systems/enter.sh [OPTION]... ROOT COMMAND [ARG]...

  --bind FROM:TO      the folder FROM of this host is TO in there
  --bind-ro FROM:TO   the same, to read
  --files FILE:TO     what is in this tar file is unpacked into TO before
  --set NAME=VALUE    for the command's environment, which has little else
  --chdir FOLDER      where it starts (default: /)
  --minutes N         ends it after so long (default: 30); the exit status is 124 then
  --keep              leaves what it wrote, and says where

Exit status: the command's; 77 with the reason when this host cannot do it.
It happens in mount and process namespaces of its own: when it ends, however it ends, its mounts and processes
are gone.
USAGE
}
skip() { echo "systems: skipped: $*"; exit 77; }

arguments=("$@")
binds=() modes=() files=() settings=() start=/ minutes=30 keep=no
while [ $# -gt 0 ]; do
    case "$1" in
        --bind) binds+=("$2"); modes+=(rw); shift 2 ;;
        --bind-ro) binds+=("$2"); modes+=(ro); shift 2 ;;
        --files) files+=("$2"); shift 2 ;;
        --set) settings+=("$2"); shift 2 ;;
        --chdir) start=$2; shift 2 ;;
        --minutes) minutes=$2; shift 2 ;;
        --keep) keep=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "systems: unknown option '$1' (see --help)" >&2; exit 2 ;;
        *) break ;;
    esac
done
[ $# -ge 2 ] || { usage >&2; exit 2; }
root=$1
shift

if [ -z "${TE_SYSTEMS_INSIDE:-}" ]; then
    [ "$(id -u)" -eq 0 ] || skip "not root"
    unshare --mount --pid --fork true 2>/dev/null || skip "no mount or process namespaces here"
    # Beside the root: a folder on an overlay, as containers have for /tmp, cannot be above another one.
    work=$(mktemp -d "$(dirname "$root")/run.XXXXXX")
    cleanup() {
        if [ $keep = yes ]; then echo "systems: left in $work/upper"; else rm -rf --one-file-system "$work"; fi
    }
    trap cleanup EXIT
    # unshare minds no signal but the one that cannot be ignored, and then all in there dies.
    TE_SYSTEMS_INSIDE=$work timeout --foreground --signal=KILL --kill-after=1 "${minutes}m" \
        unshare --mount --propagation private --pid --fork --kill-child "$0" "${arguments[@]}" <&0 &
    child=$!
    trap 'kill -TERM $child; wait $child || true; exit 143' INT TERM HUP
    rc=0
    wait $child || rc=$?
    [ $rc -ne 137 ] || { echo "systems: not done after $minutes minutes"; rc=124; }
    exit $rc
fi
work=$TE_SYSTEMS_INSIDE
new=$work/root
mkdir "$work/upper" "$work/work" "$new"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$new" ||
    skip "no overlay file system in $(dirname "$root"), where \$TE_SYSTEMS_CACHE says"

for file in /etc/resolv.conf /etc/hosts; do
    [ ! -e "$file" ] || cat "$file" >"$new$file"
done
# What a host or a proxy of the network signs with, it may have among its own.
if [ -d "$new/etc/ssl/certs" ] && [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cat /etc/ssl/certs/ca-certificates.crt >"$new/etc/ssl/certs/ca-certificates.crt"
fi
mount -t proc proc "$new/proc"
mount -t sysfs -o ro sysfs "$new/sys" 2>/dev/null || echo "systems: no /sys in there"
mkdir -p "$new/dev/shm" "$new/dev/pts"
for node in null zero full random urandom tty net/tun; do
    if [ -c "/dev/$node" ] && [ ! -c "$new/dev/$node" ]; then
        mkdir -p "$(dirname "$new/dev/$node")"
        touch "$new/dev/$node"
        mount --bind "/dev/$node" "$new/dev/$node"
    fi
done
ln -sfn /proc/self/fd "$new/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$new/dev/shm"
mount -t devpts devpts "$new/dev/pts" 2>/dev/null || echo "systems: no /dev/pts in there"
for i in "${!binds[@]}"; do
    mkdir -p "$new${binds[i]#*:}"
    mount -o "bind,${modes[i]}" "${binds[i]%%:*}" "$new${binds[i]#*:}"
done
for entry in "${files[@]}"; do
    mkdir -p "$new${entry#*:}"
    tar -x -C "$new${entry#*:}" -f "${entry%%:*}"
done
# shellcheck disable=SC2016
exec chroot "$new" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "${settings[@]}" bash -c 'cd "$1" && shift && exec "$@"' bash "$start" "$@"
