#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of the arm64 guest, in its initrd: a root of tests/systems/roots.py becomes its root, below a
# file system in memory, with busybox in place of the programs, which are of another processor. The source tree is
# /src, the build tree /build, and what is written into /out is on the host.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module"; done </mod/order
p9=trans=virtio,version=9p2000.L,msize=524288
mkdir /host /low /mem /new
mount -t 9p -o ro,cache=loose,$p9 root /host
mount -t 9p -o ro,cache=loose,$p9 build /low
mount -t tmpfs tmpfs /mem
mkdir /mem/root /mem/root-work /mem/build /mem/build-work
mount -t overlay -o lowerdir=/host,upperdir=/mem/root,workdir=/mem/root-work root /new
mkdir -p /new/src /new/build /new/out /new/busybox /new/dev/shm /new/dev/pts
mount -t overlay -o lowerdir=/low,upperdir=/mem/build,workdir=/mem/build-work build /new/build
mount -t 9p -o ro,cache=loose,$p9 src /new/src
mount -t 9p -o cache=none,$p9 out /new/out
for dir in proc sys dev; do mount --move /$dir /new/$dir; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
for dir in run tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs /new/$dir; done
ln -s /proc/self/fd /new/dev/fd
cp /bin/busybox /new/busybox/busybox
chroot /new /busybox/busybox --install -s /busybox
ln -sf /busybox/busybox /new/usr/bin/sh
ip link set lo up
ulimit -l unlimited
PATH=/busybox chroot /new /busybox/sh /src/tests/lab/arm64_guest.sh >/new/out/log 2>&1
sync
poweroff -f
