#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest, in the initrd. The host's own root file system, which is only read, below
# a file system in memory, becomes the guest's: what was built or installed on the host is there, and
# nothing that the guest writes is ever seen on the host, but in /run/lab.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module"; done </mod/order
p9=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o ro,cache=loose,$p9 host /host
mount -t tmpfs tmpfs /ovl
mkdir /ovl/upper /ovl/work
mount -t overlay -o lowerdir=/host,upperdir=/ovl/upper,workdir=/ovl/work root /new
for dir in proc sys dev; do mount --move /$dir /new/$dir; done
mkdir /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
for dir in run tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs /new/$dir; done
mount -t debugfs debugfs /new/sys/kernel/debug
mount -t configfs configfs /new/sys/kernel/config
ln -s /proc/self/fd /new/dev/fd
ln -s fd/0 /new/dev/stdin
ln -s fd/1 /new/dev/stdout
ln -s fd/2 /new/dev/stderr
mkdir /new/run/lab
mount -t 9p -o cache=none,$p9 run /new/run/lab
. /new/run/lab/config
mkdir -p "/new/lib/modules/$LAB_RELEASE"
mount --bind "/host$LAB_CACHE/lib/modules/$LAB_RELEASE" "/new/lib/modules/$LAB_RELEASE"
# They may lie where a file system of the guest's own is now.
for dir in "$LAB_SOURCE" "$LAB_BUILD"; do
    mkdir -p "/new$dir"
    mount --bind "/host$dir" "/new$dir"
done
exec switch_root /new /bin/bash "$LAB_SOURCE/tests/lab/guest.sh"
