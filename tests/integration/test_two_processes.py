#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""Two engines in two processes: segments, rights, regions that come and go, notifications, probes."""
import unittest
from random import Random

import te_proc as te

SIZE = 64 << 10
INVALID = 2
READ_ONLY, WRITE_ONLY, LOCAL_ONLY = 1, 2, 0


class TwoProcesses(unittest.TestCase):
    metadata = te.P2P
    names = ("127.0.0.1", "127.0.0.1")

    def setUp(self):
        self.target = te.Peer(name=self.names[0], metadata=self.metadata)
        self.addCleanup(self.target.close)
        self.peer = te.Peer(name=self.names[1], metadata=self.metadata)
        self.addCleanup(self.peer.close)
        self.index, _ = self.peer.region(2 * SIZE)

    def tearDown(self):
        self.assertEqual(self.peer.quit(), 0, self.peer)
        self.assertEqual(self.target.quit(), 0, self.target)

    def open(self):
        return int(self.peer.ask("open", self.target.segment)[0])

    def region(self, access):
        return int(self.target.ask("region", SIZE, access)[1])

    def state(self, opcode, segment, remote):
        return self.peer.move(opcode, segment, self.index, 0, remote, SIZE)[0]

    def test_both_directions(self):
        _, remote = self.target.region(SIZE)
        self.peer.round_trip(self.open(), self.index, SIZE, remote, 1)
        back = int(self.target.ask("open", self.peer.segment)[0])
        own, address = self.peer.region(SIZE)
        index, _ = self.target.region(2 * SIZE)
        self.target.round_trip(back, index, SIZE, address, 2)
        self.peer.ask("check", own, 0, SIZE, 2)

    def test_same_id_until_closed(self):
        segment = self.open()
        self.assertEqual(self.open(), segment)
        for _ in range(2):
            self.peer.ask("close", segment)
        self.peer.send("close", segment)
        self.assertEqual(self.peer.reply()[0], "err")
        _, remote = self.target.region(SIZE)
        self.peer.round_trip(self.open(), self.index, SIZE, remote, 3)

    def test_own_name_is_the_local_segment(self):
        self.assertEqual(self.peer.ask("open", self.peer.segment), ["0"])

    def test_buffers(self):
        regions = sorted(self.target.region(SIZE)[1] for _ in range(5))
        got = self.peer.ask("buffers", self.open())
        self.assertEqual(got, ["5"] + [str(x) for r in regions for x in (r, SIZE)])

    def test_region_that_came_after_the_open(self):
        segment = self.open()
        _, remote = self.target.region(SIZE)
        self.peer.round_trip(segment, self.index, SIZE, remote, 4)

    def test_region_that_went(self):
        segment = self.open()
        index, remote = self.target.region(SIZE)
        self.peer.round_trip(segment, self.index, SIZE, remote, 5)
        self.target.ask("drop", index)
        for opcode in ("read", "write"):
            state, error, moved, text = self.peer.move(opcode, segment, self.index, 0, remote, SIZE)
            self.assertEqual((state, moved), (INVALID, 0), text)
            self.assertLess(error, 0)
            self.assertNotEqual(text, "")

    def test_rights(self):
        segment = self.open()
        for access, reads, writes in ((READ_ONLY, te.COMPLETED, INVALID),
                                      (WRITE_ONLY, INVALID, te.COMPLETED),
                                      (LOCAL_ONLY, INVALID, INVALID)):
            remote = self.region(access)
            self.assertEqual(self.state("read", segment, remote), reads, access)
            self.assertEqual(self.state("write", segment, remote), writes, access)

    def test_notifications(self):
        segment = self.open()
        for i in range(20):
            self.peer.ask("notify", segment, f"n{i}", f"text{i}")
        self.assertEqual(self.target.ask("inbox"), ["20"] + [f"n{i}=text{i}" for i in range(20)])
        self.assertEqual(self.target.ask("inbox"), ["0"])

    def test_notifications_of_bytes(self):
        segment = self.open()
        random = Random(7)
        sent = [(b"", b""), (b"text", "größer".encode()), (b"\0", b"\0" * 9), (b"\xff", b""), (b"", b"\xc3"),
                (b"n", bytes(range(256)))]
        sent += [(random.randbytes(random.randrange(40)), random.randbytes(random.randrange(1500)))
                 for _ in range(30)]
        for name, msg in sent:
            self.peer.ask("notify_bytes", segment, name.hex() or "-", msg.hex() or "-")
        self.assertEqual(self.target.ask("inbox_bytes"),
                         [str(len(sent))] + [f"{name.hex()}={msg.hex()}" for name, msg in sent])
        # The calls with strings see what is in front of a NUL.
        self.peer.ask("notify_bytes", segment, b"a\0b".hex(), b"c\0\xff".hex())
        self.assertEqual(self.target.ask("inbox"), ["1", "a=c"])

    def test_probe(self):
        self.peer.ask("probe", self.target.segment)
        self.target.kill()
        self.peer.send("probe", self.target.segment)
        self.assertEqual(self.peer.reply()[0], "err")
        self.target = te.Peer(name=self.names[0], metadata=self.metadata)
        self.addCleanup(self.target.close)

    def test_refresh(self):
        self.open()
        self.peer.ask("refresh")
        self.peer.ask("refresh", self.target.segment)


class OverHttp(TwoProcesses):
    names = ("node-a", "node-b")

    @classmethod
    def setUpClass(cls):
        cls.metad = te.Metad()
        cls.metadata = cls.metad.url

    @classmethod
    def tearDownClass(cls):
        cls.metad.close()


if __name__ == "__main__":
    te.main()
