#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_metad when there is no more room: its limits, and a disk that is full."""
import errno
import os
import random
import signal
import subprocess
import unittest

import te_proc as te
from metad_server import Server, ask, get, put, target

KIB, MIB = 1 << 10, 1 << 20
VALUE = 200000


def delete(client, key):
    return ask(client, "DELETE", target(key))[:2]


def put_ttl(client, key, value, ttl):
    return ask(client, "PUT", target(key), value, **{"Metadata-TTL": str(ttl)})[:2]


class Limits(unittest.TestCase):
    def serve(self, *flags):
        self.server = Server(*flags)
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def put(self, key, size):
        return put(self.client, key, b"v" * size)

    def full(self, key, size, option):
        status, text = self.put(key, size)
        self.assertEqual((status, option in text), (507, True), text)

    def test_bytes(self):
        """--max-bytes counts keys and values; what makes them fewer is let in, and so is what takes their place"""
        self.serve("--max-bytes=1000")
        self.assertEqual(self.put("k" * 100, 300)[0], 200)
        self.assertEqual(self.put("b" * 100, 500)[0], 200)
        self.full("c", 0, b"--max-bytes")
        self.full("b" * 100, 501, b"--max-bytes")
        self.assertEqual(get(self.client, "b" * 100), (200, b"v" * 500))
        for size in (500, 400, 499, 0, 500):
            self.assertEqual(self.put("b" * 100, size)[0], 200, size)
        for _ in range(2):
            self.assertEqual(delete(self.client, "k" * 100)[0], 200)
        self.full("c", 400, b"--max-bytes")
        self.assertEqual(self.put("c", 399)[0], 200)
        self.full("d", 1001, b"--max-bytes")

    def test_keys(self):
        """--max-keys"""
        self.serve("--max-keys=3")
        for key in "abc":
            self.assertEqual(self.put(key, 10)[0], 200)
        self.full("d", 0, b"--max-keys")
        self.assertEqual(self.put("a", 100000)[0], 200)
        self.assertEqual(delete(self.client, "b")[0], 200)
        self.assertEqual(self.put("d", 10)[0], 200)
        self.full("b", 10, b"--max-keys")

    def test_expired(self):
        """what has expired takes nobody's place"""
        self.serve("--max-keys=2", "--max-bytes=1000")
        self.assertEqual(put_ttl(self.client, "a", b"v" * 500, 1)[0], 200)
        self.assertEqual(put_ttl(self.client, "b", b"v" * 300, 1)[0], 200)
        te.until(lambda: self.put("c", 900)[0] == 200, "the end of what was there")
        self.full("d", 900, b"--max-bytes")
        self.assertEqual(self.put("d", 10)[0], 200)
        self.full("e", 10, b"--max-keys")

    def test_restart(self):
        """a folder with more than the limits is served, and can only become smaller"""
        folder = os.path.join(te.Workdir.get(), "shrunk")
        self.serve(f"--data-dir={folder}")
        for key in "abcd":
            self.assertEqual(self.put(key, 1000)[0], 200)
        self.assertEqual(self.server.stop(signal.SIGKILL), -signal.SIGKILL)
        self.serve(f"--data-dir={folder}", "--max-bytes=2000", "--max-keys=3")
        self.full("e", 1, b"--max-bytes")
        self.full("a", 1001, b"--max-bytes")
        for key in "abcd":
            self.assertEqual(get(self.client, key), (200, b"v" * 1000))
            self.assertEqual(self.put(key, 1000)[0], 200)
        for key in "abc":
            self.assertEqual(delete(self.client, key)[0], 200)
        self.assertEqual(self.put("a", 998)[0], 200)
        self.full("b", 1, b"--max-bytes")
        self.assertEqual(self.server.stop(), 0, self.server)

    def test_memory(self):
        """the memory of the server is bounded by its limits"""
        self.serve("--max-bytes=64M")
        for n in range(20):
            self.assertEqual(self.put(f"k{n}", 15 * MIB)[0], 200 if n < 4 else 507)
        for n in range(10):
            self.assertEqual(delete(self.client, f"k{n % 4}")[0], 200)
            self.assertEqual(self.put(f"k{n % 4}", 15 * MIB)[0], 200)
        if te.SLOW == 1:  # a sanitizer keeps what was freed
            self.assertLess(self.memory(), 3 * 64 * MIB)

    def memory(self):
        with open(f"/proc/{self.server.pid}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:"))


class Shrinks(unittest.TestCase):
    def test_file(self):
        """the file gives back what was deleted"""
        folder = os.path.join(te.Workdir.get(), "file")
        with Server(f"--data-dir={folder}") as server:
            client = server.client()
            for n in range(40):
                self.assertEqual(put(client, f"k{n}", random.randbytes(VALUE))[0], 200)
            self.assertGreater(os.stat(f"{folder}/metadata.db").st_size, 4 * MIB)
            for n in range(1, 40):
                self.assertEqual(delete(client, f"k{n}")[0], 200)
            self.assertLess(os.stat(f"{folder}/metadata.db").st_size, 2 * MIB)
            self.assertEqual(len(get(client, "k0")[1]), VALUE)
            client.close()


class Disk:
    """A small disk of its own: a tmpfs that only this process and those with its prefix see."""

    def __init__(self, size):
        self.place = os.path.join(te.Workdir.get(), "disk")
        os.makedirs(self.place, exist_ok=True)
        script = f"mount -t tmpfs -o size={size} tmpfs '{self.place}' && echo mounted && exec cat"
        for namespaces in (("--user", "--map-root-user", "--mount"), ("--mount",)):
            self.holder = te.Proc(["unshare", *namespaces, "sh", "-c", script], stdin=True)
            try:
                self.holder.wait_line("^mounted$")
                break
            except AssertionError:
                self.holder.close()
        else:
            te.skip("no tmpfs can be mounted here: neither in a user namespace of its own nor without one")
        entered = ("--user", "--preserve-credentials", "--mount") if "--user" in namespaces else ("--mount",)
        self.prefix = ("nsenter", f"--target={self.holder.pid}", *entered, "--root")  # which a chroot needs
        self.root = f"/proc/{self.holder.pid}/root{self.place}"

    def fill(self):
        """A stranger writes to it until there is no room at all."""
        script = f"cat /dev/zero >>'{self.place}/junk'"
        done = subprocess.run([*self.prefix, "sh", "-c", script], capture_output=True, text=True, check=False,
                              timeout=te.HANG_S)
        assert os.strerror(errno.ENOSPC) in done.stderr, done.stderr
        assert self.free() == 0, self.free()

    def free(self):
        stat = os.statvfs(self.root)
        return stat.f_bavail * stat.f_frsize


class FullDisk(unittest.TestCase):
    def serve(self, size="4m"):
        self.disk = Disk(size)
        self.addCleanup(self.disk.holder.close)
        self.start()

    def start(self):
        self.server = Server(f"--data-dir={self.disk.place}/data", prefix=self.disk.prefix)
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def put_until_full(self, more=put):
        """What was acknowledged."""
        there = {}
        while True:
            key, value = f"k{len(there)}", random.randbytes(VALUE)
            status, text = more(self.client, key, value)
            if status == 507:
                self.assertIn(b"the disk of --data-dir of te_metad is full", text)
                return there
            self.assertEqual(status, 200, text)
            there[key] = value

    def check(self, there):
        for key, value in there.items():
            self.assertTrue(get(self.client, key) == (200, value), key)

    def test_delete_makes_room(self):
        """what was deleted makes room for as much, again and again"""
        self.serve()
        there = self.put_until_full()
        self.assertGreater(len(there), 5)
        for n in range(20):
            self.assertEqual(delete(self.client, f"k{n % 5}"), (200, b"metadata deleted"))
            value = random.randbytes(VALUE)
            self.assertEqual(put(self.client, f"k{n % 5}", value)[0], 200, n)
            there[f"k{n % 5}"] = value
        self.check(there)

    def test_not_a_byte_is_free(self):
        """all can be deleted while a stranger takes every byte; then it is there for others"""
        self.serve()
        there = self.put_until_full()
        for key in list(there):
            self.disk.fill()
            self.assertEqual(delete(self.client, key), (200, b"metadata deleted"))
            self.assertEqual(get(self.client, key)[0], 404)
            del there[key]
            self.check(there)
        os.unlink(f"{self.disk.root}/junk")
        self.assertEqual(put(self.client, "k", b"v" * VALUE)[0], 200)
        self.assertEqual(self.server.stop(), 0, self.server)

    def test_health(self):
        """/health tries the store: it tells of a disk without room, and of room that there is again"""
        self.serve()
        self.assertEqual(self.health(), (200, b"ok"))
        self.put_until_full()
        self.disk.fill()
        status, text = te.until(lambda: self.health()[0] != 200 and self.health(), "/health that tells of the full disk")
        self.assertEqual(status, 507)
        self.assertIn(b"cannot store: the disk of --data-dir of te_metad is full", text)
        self.assertEqual(delete(self.client, "k0")[0], 200)
        te.until(lambda: self.health() == (200, b"ok"), "/health in order again")
        self.assertEqual(ask(self.client, "GET", "/metadata?prefix=k0")[1], b"")

    def health(self):
        return ask(self.client, "GET", "/health")[:2]

    def test_restarts(self):
        """it starts on a full disk, with all that was acknowledged, and deletes"""
        self.serve()
        there = self.put_until_full()
        for sig, key in ((signal.SIGKILL, "k0"), (signal.SIGTERM, "k1"), (signal.SIGKILL, "k2")):
            self.server.stop(sig)
            self.disk.fill()
            self.start()
            self.check(there)
            self.disk.fill()
            self.assertEqual(delete(self.client, key), (200, b"metadata deleted"))
            del there[key]
        self.check(there)

    def test_large_value(self):
        """one that is larger than what is kept in reserve"""
        self.serve("8m")
        self.assertEqual(put(self.client, "k", random.randbytes(2 * MIB))[0], 200)
        self.assertEqual(self.server.stop(), 0, self.server)
        self.disk.fill()
        self.start()
        self.disk.fill()
        self.assertEqual(delete(self.client, "k"), (200, b"metadata deleted"))

    def test_expired(self):
        """what expires makes room, too"""
        self.serve()
        self.put_until_full(lambda client, key, value: put_ttl(client, key, value, 5))
        self.disk.fill()
        te.until(lambda: put(self.client, "k", b"v" * VALUE)[0] == 200, "room")


if __name__ == "__main__":
    te.main()
