#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=600
"""With framing version 1 and 2 nobody can ask the target what became of a WRITE whose connection this host has given
up, because the path was lost: its range stays closed to WRITEs until the segment is opened again."""
import unittest

import te_hosts
import te_proc as te

SIZE = 1 << 20  # one piece of a request, and more than the sockets of a target that is stopped take
BEGUN = 32 << 10
PAGE = 4096  # the part that has certainly arrived
EARLY, LATE, NEXT = 1, 2, 3  # seeds
TIMEOUT, FAILED = 5, 6
ERR_LINK = -405
WHY = "an earlier WRITE to this range may still arrive: its connection broke"
# How often the kernel sends again before it gives a connection up: for a second or two, not a quarter of an hour.
RETRIES = 2
# The limits of the engine itself are not what ends a request here.
PATIENT = ("TE_TRANSFER_TIMEOUT_MS=0", "MC_TCP_STATUS_TIMEOUT_SEC=3600")


def setUpModule():
    globals()["HOSTS"] = te_hosts.make()
    HOSTS.remember()
    try:
        te_hosts.within(HOSTS.names[1], limit_retries)
    except OSError as e:
        te.skip(f"net.ipv4.tcp_retries2 cannot be set here: {e}")


def limit_retries():
    with open("/proc/sys/net/ipv4/tcp_retries2", "w", encoding="ascii") as f:
        f.write(str(RETRIES))


class LostPath(unittest.TestCase):
    def tearDown(self):
        HOSTS.link("up")
        HOSTS.route_back()

    def start(self, version):
        self.target = te.Peer(prefix=HOSTS.a, name=None)
        self.addCleanup(self.target.close)
        self.theirs, self.remote = self.target.region(2 * SIZE)
        self.peer = te.Peer(prefix=HOSTS.b, name=None, options=("TE_TCP_NATIVE=off", f"MC_TCP_PROTO={version}", *PATIENT))
        self.addCleanup(self.peer.close)
        self.ours, _ = self.peer.region(3 * SIZE)
        for i, seed in enumerate((EARLY, LATE, NEXT)):
            self.peer.ask("fill", self.ours, i * SIZE, SIZE, seed)
        self.segment = self.peer.open(self.target.segment)
        self.assertEqual(self.write(NEXT)[0], te.COMPLETED)

    def send_write(self, seed, at=0, length=SIZE, **more):
        self.peer.send_move("write", self.segment, self.ours, (seed - 1) * SIZE, self.remote + at, length, **more)

    def write(self, *args, **more):
        self.send_write(*args, **more)
        return self.peer.moved()

    def begin(self, **more):
        """A WRITE of which a part has come to a target that is stopped."""
        self.target.freeze()
        before = te_hosts.carried(HOSTS.names[0], "te0")
        self.send_write(EARLY, **more)
        te.until(lambda: te_hosts.carried(HOSTS.names[0], "te0") - before > BEGUN, "a WRITE that has begun")

    def assert_lost(self, got):
        self.assertEqual(got[:2], (FAILED, ERR_LINK), got)
        self.assertIn(WHY, got[3])

    def holds(self, seed, length):
        self.target.send("check", self.theirs, 0, length, seed)
        return self.target.reply()[0] == "ok"

    def is_lost(self):
        """The path is back, the target still stopped: what it has not read yet comes later than any new WRITE."""
        HOSTS.link("up")
        HOSTS.route_back()
        self.assert_lost(self.write(LATE))
        self.target.thaw()
        te.until(lambda: self.holds(EARLY, PAGE), "bytes of the WRITE that had failed")
        self.assert_lost(self.write(LATE))
        self.assert_lost(self.write(LATE, at=SIZE - 1, length=1))
        self.assertEqual(self.write(LATE, at=SIZE)[0], te.COMPLETED)
        self.assertEqual(
            self.peer.move("read", self.segment, self.ours, 0, self.remote, SIZE)[0], te.COMPLETED)

    def is_found_again(self):
        self.peer.ask("close", self.segment)
        self.segment = self.peer.open(self.target.segment)
        self.assertEqual(self.write(LATE)[0], te.COMPLETED)
        self.assertTrue(self.holds(LATE, SIZE))
        self.assertEqual(self.peer.quit(), 0, self.peer)

    def test_connection_given_up(self):
        for version in (1, 2):
            with self.subTest(version=version):
                self.start(version)
                self.begin()
                HOSTS.link("down")
                state, error, _, text = self.peer.moved()
                self.assertEqual((state, error), (FAILED, ERR_LINK), text)
                self.assertIn("Connection timed out", text)
                self.is_lost()
                self.is_found_again()

    def test_connection_given_up_after_the_request(self):
        """The WRITE has ended at its deadline, and the next one waits for the end of its connection."""
        for version in (1, 2):
            with self.subTest(version=version):
                self.start(version)
                self.begin(deadline_ms=100)
                self.assertEqual(self.peer.moved()[0], TIMEOUT)
                self.send_write(LATE)
                HOSTS.link("down")
                self.assert_lost(self.peer.moved())
                self.is_lost()
                self.is_found_again()


if __name__ == "__main__":
    te.main()
