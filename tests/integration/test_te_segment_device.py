#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=1200
"""te_segment with real block devices, the loop devices of this host, and file systems on them.

nvme(1) is a stand-in here: what it connects shows the loop devices. Wants root.
"""
import os
import shutil
import subprocess
import unittest

import te_files as files
import te_proc as te
import te_stores as stores
from te_files import MIB, record, target

NQN = "nqn.2026-01.org.example:kv"


def call(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Case(files.FabricCase):
    kind = stores.Metad

    def setUp(self):
        super().setUp()
        for name, package in (("losetup", "mount"), ("findmnt", "util-linux"), ("mkfs.ext4", "e2fsprogs")):
            stores.program(name, package)
        self.path("image", 16 * MIB)
        try:
            self.loop = call("losetup", "--find", "--show", self.path("image"))
        except subprocess.CalledProcessError as e:
            te.skip(f"no loop device: {e.stderr.strip()}")
        self.addCleanup(call, "losetup", "--detach", self.loop)

    def make_tree(self):
        """A file system with the file dir/f, as a target's host makes it."""
        os.makedirs(self.path("tree/dir"))
        with open(self.path("tree/dir/f"), "wb") as f:
            f.write(os.urandom(MIB))
        call("mkfs.ext4", "-q", "-d", self.path("tree"), self.loop)

    def mount_here(self):
        os.mkdir(self.path("at"))
        try:
            call("mount", self.loop, self.path("at"))
        except subprocess.CalledProcessError as e:
            te.skip(f"nothing can be mounted: {e.stderr.strip()}")


class Devices(Case):
    def test_register(self):
        os.symlink(self.loop, self.path("by-id"))
        self.good("register", "kv", f"--file={self.path('by-id')}", "--server_name=x")
        self.assertEqual(self.stored("kv")["buffers"], [
            {"file_path": self.path("by-id"), "length": 16 * MIB, "local_path_map": {"x": self.path("by-id")}}])
        self.bad("register", "twice", f"--file={self.loop},{self.path('by-id')}", says="in the segment twice")
        self.good("mount", "kv", f"--path={self.loop}", "--server_name=y")
        self.assertIn(f"{self.loop} (as y): usable", self.good("show", "nvmeof/kv", "--server_name=y"))

    def test_in_use(self):
        """A device that is mounted is refused: writing to it would destroy the file system."""
        self.make_tree()
        self.mount_here()
        try:
            self.bad("register", "kv", f"--file={self.loop}", says="the device is in use: it is mounted")
            self.put("kv", record("kv", [("/a", MIB, {"y": self.loop})]))
            self.bad("mount", "kv", f"--path={self.loop}", says="the device is in use")
            self.assertIn("not usable: the device is in use", self.good("show", "nvmeof/kv", "--server_name=y"))
        finally:
            call("umount", self.path("at"))


class FileSystems(Case):
    """mount(8) itself, of a file system on the device that the stand-in connects."""

    def setUp(self):
        super().setUp()
        for name in ("mount", "umount"):
            os.unlink(self.path(f"bin/{name}"))
            os.symlink(shutil.which(name), self.path(f"bin/{name}"))
        os.symlink(self.loop, self.path("dev/nvme0n1"))
        self.plan(subsystems={NQN: {"number": 0, "namespaces": {"nvme0n1": 1}}})
        self.put("kv", record("kv", [("/a", MIB, {})], [target(NQN, fs_path="dir/f")]))
        self.mnt = self.path("mnt/kv/0")
        self.addCleanup(lambda: os.path.ismount(self.mnt) and call("umount", self.mnt))

    def connect(self):
        return self.run_tool("mount", "kv", "--connect", "--server_name=me")

    def test_registered_by_its_device(self):
        """As the target's host does, which has no path of the file while the device is not mounted there."""
        self.make_tree()
        self.good("unregister", "kv")
        self.good("register", "kv", f"--file={self.loop}", f"--length={MIB}", "--server_name=x",
                  f"--target=tcp://10.0.0.1:4420/{NQN}?fs_path=dir/f")
        self.assertEqual(self.stored("kv")["te"]["nvmeof"]["file_length"], [None])
        proc = self.connect()
        if "permission denied" in proc.error_output():
            te.skip(f"nothing can be mounted: {proc.error_output()}")
        self.assertEqual(proc.rc, 0, proc)
        self.assertEqual(self.maps("kv")[0]["me"], f"{self.mnt}/dir/f")

    def test_mounts(self):
        self.make_tree()
        proc = self.connect()
        if "permission denied" in proc.error_output():
            te.skip(f"nothing can be mounted: {proc.error_output()}")
        self.assertEqual(proc.rc, 0, proc)
        self.assertEqual(self.maps("kv"), [{"me": f"{self.mnt}/dir/f"}])
        self.assertTrue(os.path.ismount(self.mnt))
        options = call("findmnt", "-n", "-o", "OPTIONS", self.mnt).split(",")
        self.assertLessEqual({"nosuid", "nodev", "noexec"}, set(options))
        with open(self.path("tree/dir/f"), "rb") as a, open(f"{self.mnt}/dir/f", "rb") as b:
            self.assertEqual(a.read(), b.read())
        # Again: it is mounted already, and only once.
        self.assertEqual(self.connect().rc, 0)
        self.assertEqual(call("findmnt", "-n", "-o", "TARGET", self.loop), self.mnt)
        self.calls()
        # While somebody works in it, it stays.
        with open(f"{self.mnt}/dir/f", "rb"):
            proc = self.run_tool("unmount", "kv", "--disconnect", "--server_name=me")
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn("busy", proc.error_output())
        self.assertEqual(self.calls(), [])
        self.assertEqual(self.run_tool("unmount", "kv", "--disconnect", "--server_name=me").rc, 0)
        self.assertFalse(os.path.exists(self.path("mnt/kv")))
        self.assertEqual(self.calls(), [["nvme", "disconnect", "-n", NQN]])

    def test_no_file_system(self):
        proc = self.connect()
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("mount failed with status", proc.error_output())
        self.assertEqual([c[1] for c in self.calls()], ["connect", "disconnect"])
        self.assertEqual(self.maps("kv"), [{}])

    def test_another_is_mounted_there(self):
        self.make_tree()
        os.makedirs(self.mnt)
        try:
            call("mount", "-t", "tmpfs", "tmpfs", self.mnt)
        except subprocess.CalledProcessError as e:
            te.skip(f"nothing can be mounted: {e.stderr.strip()}")
        proc = self.connect()
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn(f"something else is mounted at '{self.mnt}'", proc.error_output())
        self.assertTrue(os.path.ismount(self.mnt))


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    if os.geteuid() != 0:
        print("skipped: not root, who may make loop devices")
        raise SystemExit(77)
    te.main()
