# SPDX-License-Identifier: Apache-2.0
"""Memory that is reached by the key of a lease, and by nothing else, until it is revoked."""

import asyncio
import base64
import os
import shutil
import tempfile
import unittest

import transfer_engine as te
from support import HOST, Case, until
from transfer_engine._errors import in_python

SIZE = 1000


def ended(transfer):
    """How a transfer ended: the name of its error and the text, or the number of bytes."""
    try:
        return transfer()
    except te.TransferError as error:
        return error.name, error.text


class Leases(Case):
    def setUp(self):
        self.engine, self.peer = te.Engine(name=HOST), te.Engine(name=HOST)
        self.addCleanup(self.engine.close)
        self.addCleanup(self.peer.close)
        self.ours, self.theirs = bytearray(SIZE), bytearray(4 * SIZE)
        self.engine.register(self.ours)
        self.remote = self.peer.register(self.theirs, access=te.Access.LOCAL_ONLY).address + SIZE
        self.segment = self.engine.open(self.peer.name)

    def grant(self, access=te.Access.READ_WRITE, seconds=None):
        return self.peer.grant(self.remote, SIZE, access=access, seconds=seconds)

    def write(self, lease):
        return ended(lambda: self.segment.write(self.ours, self.remote, lease=lease))

    def refused(self, got, text):
        self.assertIsInstance(got, tuple, "it was let in")
        self.assertEqual(got[0], "TE_ERR_ACCESS")
        self.assertIn(text, got[1])

    def ways(self):
        """(whether it writes, the function) of each way to begin a transfer of SIZE bytes."""
        segment, ours, remote = self.segment, self.ours, self.remote
        prepared = segment.prepare([ours], [remote])
        self.addCleanup(prepared.close)
        pages = te.Pages(ours, 10, SIZE // 10), te.Pages(remote, 10, SIZE // 10)

        def begin(opcode):
            yield lambda lease: prepared.start(opcode, lease=lease).result()
            yield lambda lease: segment.start_pages(
                opcode, *pages, SIZE // 10, 10, lease=lease
            ).result()

        async def each(transfer, lease):
            return await transfer(ours, remote, lease=lease)

        for writes, opcode, one, many, task in (
            (True, te.Opcode.WRITE, segment.write, segment.start_write, segment.write_async),
            (False, te.Opcode.READ, segment.read, segment.start_read, segment.read_async),
        ):
            yield writes, lambda lease, one=one: one(ours, remote, lease=lease)
            yield writes, lambda lease, many=many: many([ours], [remote], lease=lease).result()
            yield writes, lambda lease, task=task: asyncio.run(each(task, lease))
            for way in begin(opcode):
                yield writes, way

    def test_each_way(self):
        tried = 0
        for writes, way in self.ways():
            tried += 1
            to, at = (self.theirs, SIZE) if writes else (self.ours, 0)
            moved = bytes([tried]) * SIZE

            def fill():
                self.ours[:] = moved if writes else bytes(SIZE)
                self.theirs[:] = bytes(4 * SIZE)
                if not writes:
                    self.theirs[SIZE : 2 * SIZE] = moved

            lease = self.grant(te.Access.WRITE if writes else te.Access.READ)
            for shown in (lease, lease.key):
                fill()
                self.assertEqual(way(shown), SIZE)
                self.assertSameBytes(to[at : at + SIZE], moved)
            self.assertFalse(any(self.theirs[:SIZE]) or any(self.theirs[2 * SIZE :]))
            fill()
            self.assertEqual(ended(lambda: way(None))[0], "TE_ERR_STALE")
            with self.grant(te.Access.READ if writes else te.Access.WRITE) as other:
                self.refused(ended(lambda: way(other)), "the lease does not")
            lease.revoke()
            self.refused(ended(lambda: way(lease)), "it was revoked")
            self.assertFalse(any(to[at : at + SIZE]))
        self.assertEqual(tried, 10)

    def test_a_with_block(self):
        with self.assertRaises(KeyError):
            with self.grant() as lease:
                self.assertEqual(self.write(lease), SIZE)
                raise KeyError
        self.refused(self.write(lease), "it was revoked")
        lease.revoke()
        with self.grant() as other:
            self.assertNotEqual(other.key, lease.key)
            self.refused(self.write(lease), "it was revoked")
            self.assertEqual(self.write(other), SIZE)

    def test_its_time(self):
        with self.grant(seconds=240) as lease:
            self.assertEqual(self.write(lease), SIZE)
        with self.grant(seconds=0.0001) as lease:
            self.refused(
                until(lambda: (got := self.write(lease)) != SIZE and got), "the time of the lease is over"
            )
        for wrong in (0, -1, float("nan")):
            with self.assertRaisesRegex(ValueError, "a lease of .* seconds"):
                self.grant(seconds=wrong)
        with self.assertRaisesRegex(TypeError, "seconds must be a number or None, not str"):
            self.grant(seconds="1")
        for long in (1e9, 1e300, float("inf")):
            with self.grant(seconds=long) as lease:
                self.assertEqual(self.write(lease), SIZE)

    def test_what_it_is_of(self):
        part = memoryview(self.theirs)[SIZE : 2 * SIZE]
        with self.peer.grant(part, access=te.Access.WRITE) as lease:
            self.assertEqual((lease.address, lease.nbytes), (self.remote, SIZE))
            self.assertEqual(self.write(lease), SIZE)
            beyond = ended(lambda: self.segment.write(self.ours, self.remote + 1, lease=lease))
            self.refused(beyond, "the lease does not")
        read_only = bytes(100)
        self.peer.register(read_only)
        with self.assertRaisesRegex(BufferError, "cannot write to the bytes, which is read-only"):
            self.peer.grant(read_only, access=te.Access.READ_WRITE)
        with self.peer.grant(read_only, access=te.Access.READ) as lease:
            self.assertEqual(self.segment.read(self.ours, lease.address, 100, lease=lease), 100)
        with self.assertRaisesRegex(te.NotRegistered, "the range of a lease"):
            self.engine.grant(bytearray(100), access=te.Access.READ)
        with self.assertRaisesRegex(te.RequestError, "TE_ERR_INVALID"):
            self.grant(te.Access.LOCAL_ONLY)

    def test_keys(self):
        with self.grant() as lease:
            self.assertEqual((type(lease.key), len(lease.key)), (bytes, 24))
            got = self.write(lease.key[:-1] + bytes([lease.key[-1] ^ 1]))
            self.refused(got, "no lease with this key")
            self.assertNotIn(lease.key.hex(), got[1])
            for wrong, error in ((lease.key[1:], ValueError), (lease.key.hex(), TypeError), (7, TypeError)):
                with self.assertRaisesRegex(error, "lease"):
                    self.segment.write(self.ours, self.remote, lease=wrong)

    def test_what_it_prints_as(self):
        lease = self.grant()
        text = f"<Lease {self.remote:#x} + {SIZE}"
        self.assertEqual((repr(lease), str(lease)), (text + ">", text + ">"))
        lease.revoke()
        self.assertEqual(repr(lease), text + " revoked>")
        left = self.grant()
        self.peer.close()
        self.assertEqual(repr(left), text + " revoked>")
        left.revoke()
        with self.assertRaises(te.EngineClosed):
            self.grant()
        self.assertEqual(in_python("te_lease_grant() and te_revoke()"), "grant() and Lease.revoke()")


class ForSomePeers(Case):
    """With keys of TE_AUTH: a target, and two peers that it knows by their ids."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te_python_auth_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.target, self.one, self.two = (
            self.member(*ids) for ids in (("t", "a", "b"), ("a", "t"), ("b", "t"))
        )
        self.ours, self.theirs = bytearray(b"x" * SIZE), bytearray(2 * SIZE)
        for engine in (self.one, self.two):
            engine.register(self.ours)

    def member(self, *ids):
        path = os.path.join(self.folder, ids[0])
        with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.writelines(f"{i}:{base64.b64encode(i.encode() * 32).decode()}\n" for i in ids)
        options = {"TE_AUTH": "psk", "TE_AUTH_KEYS": path}
        engine = te.Engine(name=HOST, options=options)
        self.addCleanup(engine.close)
        return engine

    def write(self, engine, remote, lease=None):
        segment = engine.open(self.target.name)
        return ended(lambda: segment.write(self.ours, remote, lease=lease))

    def test_registered(self):
        for allow in ("a", ["a"], ("nobody", "a")):
            with self.target.register(self.theirs, allow=allow) as region:
                self.assertEqual(self.write(self.one, region.address), SIZE)
                self.assertSameBytes(self.theirs[:SIZE], self.ours)
                self.assertNotEqual(self.write(self.two, region.address), SIZE)
        many = self.target.register_many([self.theirs, bytearray(SIZE)], allow=["b"])
        self.assertEqual(self.write(self.two, many[1].address), SIZE)
        self.assertIn(self.write(self.one, many[1].address)[0], ("TE_ERR_ACCESS", "TE_ERR_STALE"))

    def test_leased(self):
        self.target.register(self.theirs, access=te.Access.LOCAL_ONLY)
        with self.target.grant(self.theirs, access=te.Access.WRITE, allow=["a", "c"]) as lease:
            self.assertEqual(self.write(self.one, lease.address, lease), SIZE)
            self.theirs[:] = bytes(2 * SIZE)
            got = self.write(self.two, lease.address, lease)
            self.assertEqual(got[0], "TE_ERR_ACCESS")
            self.assertIn("others alone", got[1])
            self.assertFalse(any(self.theirs))

    def test_wrong_lists(self):
        def register(allow):
            self.target.register(bytearray(10), allow=allow)

        for wrong, error, text in (
            ([""], te.RequestError, "a name of 0 bytes"),
            ("a b", te.RequestError, "is no id of a key file"),
            ("a,b", ValueError, "has a comma"),
            (["a", 5], TypeError, "a name in allow must be a str, not int"),
            (5, TypeError, "allow must be a name or a list of names, not int"),
            ([], ValueError, "allow names nobody"),
            ("", ValueError, "allow names nobody"),
        ):
            with self.assertRaisesRegex(error, text):
                register(wrong)
        with te.Engine(name=HOST) as open_to_all:
            with self.assertRaisesRegex(te.TransferError, "needs TE_AUTH=psk or TE_AUTH=mtls"):
                open_to_all.register(bytearray(10), allow="a")


if __name__ == "__main__":
    unittest.main()
