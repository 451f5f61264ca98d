#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""TE_SLOW_MS: a line for each request that takes longer, with what became of it; none without the option."""
import re
import time
import unittest

import te_proc as te

SIZE = 1 << 16
SLOW_MS = 50
BURST = 5  # lines a second
CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LINE = re.compile(
    r"slow request: (?P<opcode>read|write) of (?P<length>\d+) bytes at (?P<at>0x[0-9a-f]+) of segment '(?P<segment>[^']*)'"
    r" took (?P<took>[\d.]+) ms, more than TE_SLOW_MS=(?P<limit>\d+): (?P<error>\w+) by (?P<transport>[\w ]+);"
    r" descriptor (?P<descriptor>[\d.]+) ms, earlier attempts (?P<earlier>[\d.]+) ms, queue (?P<queue>[\d.]+) ms,"
    r" wire (?P<wire>[\d.]+) ms; parts (?P<parts>\d+), retries (?P<retries>\d+), path changes (?P<changes>\d+),"
    r" restarts (?P<restarts>\d+); last way: (?P<way>[^(;]*)(?:; trace (?P<trace>[0-9a-f-]+))?(?: \((?P<dropped>\d+) more like this dropped\))?$")


def slow_lines(peer):
    """What LINE finds in the log of a peer."""
    with peer.changed:
        lines = [line for line in peer.errors if "slow request" in line]
    return [LINE.search(line).groupdict() for line in lines]


class Slow(unittest.TestCase):
    def both(self, limit=None, of_target=None, **more):
        """An initiator with this limit and environment, a target without the path within a host, and its segment
        and memory."""
        target = te.Peer(env={"TE_HOST_PATH": "0", **(of_target or {})})
        self.addCleanup(target.close)
        peer = te.Peer(env={"TE_HOST_PATH": "0", **({} if limit is None else {"TE_SLOW_MS": str(limit)}), **more})
        self.addCleanup(peer.close)
        self.index, _ = peer.region(SIZE)
        self.remote = target.region(SIZE)[1]
        return target, peer, peer.open(target.segment)

    def move_frozen(self, target, peer, *move):
        """A transfer that the target does not answer for a while; what it came to."""
        target.freeze()
        peer.send_move(*move)
        time.sleep(2 * SLOW_MS / 1000)
        target.thaw()
        return peer.moved()

    def until_slow(self, target, peer, *move, **has):
        """Such transfers, until the initiator has one that was begun in time, and its line; (line, outcome)."""
        def found():
            outcome = self.move_frozen(target, peer, *move)
            for line in slow_lines(peer):
                if all(line[name] == value for name, value in has.items()):
                    return line, outcome
            return None

        return te.until(found, lambda: f"a line of a slow request in {peer}")

    def check_times(self, line):
        """The phases are the whole."""
        phases = sum(float(line[name]) for name in ("descriptor", "earlier", "queue", "wire"))
        self.assertGreater(float(line["took"]), SLOW_MS)
        self.assertAlmostEqual(phases, float(line["took"]), delta=0.5, msg=line)

    def test_the_whole_story(self):
        target, peer, segment = self.both(SLOW_MS)
        self.assertEqual(peer.move("write", segment, self.index, 0, self.remote, SIZE)[:2], (te.COMPLETED, 0))
        line, outcome = self.until_slow(target, peer, "read", segment, self.index, 0, self.remote, 1000, opcode="read")
        self.assertEqual(outcome[:2], (te.COMPLETED, 0), outcome)
        self.check_times(line)
        self.assertGreater(float(line["wire"]), 0.0)
        told = {name: line[name] for name in ("length", "at", "segment", "limit", "error", "transport", "parts", "retries",
                                              "changes", "restarts")}
        self.assertEqual(told, {"length": "1000", "at": hex(self.remote), "segment": target.segment,
                                "limit": str(SLOW_MS), "error": "TE_ERR_OK", "transport": "tcp", "parts": "1",
                                "retries": "0", "changes": "0", "restarts": "0"})
        self.assertIsNone(line["trace"])
        self.assertRegex(line["way"], r"^127\.0\.0\.1:\d+ to 127\.0\.0\.1:\d+$")

    def test_a_descriptor_that_is_slow(self):
        """The range is not in the descriptor that is known: another is fetched from a target that does not answer."""
        target, peer, segment = self.both(SLOW_MS)
        line, outcome = self.until_slow(target, peer, "read", segment, self.index, 0, 4096, 1000, at="0x1000",
                                        error="TE_ERR_STALE")
        self.assertNotEqual(outcome[1], 0, outcome)
        self.check_times(line)
        self.assertGreater(float(line["descriptor"]), 0.0)
        self.assertEqual((line["error"], line["transport"], line["parts"], line["restarts"], line["way"]),
                         ("TE_ERR_STALE", "no transport", "0", "0", "not known"))

    def test_lines_are_limited(self):
        target, peer, segment = self.both(SLOW_MS)
        move = ("write", segment, self.index, 0, self.remote, 64, 500)
        begun = time.monotonic()
        self.until_slow(target, peer, *move)

        def dropped():
            self.move_frozen(target, peer, *move)
            return any(line["dropped"] for line in slow_lines(peer))

        te.until(dropped, "the number of lines that were left out")
        self.assertLessEqual(len(slow_lines(peer)), BURST * (time.monotonic() - begun + 2))

    def test_trace_context(self):
        """It is in the line, and in one of the target."""
        target, peer, segment = self.both(SLOW_MS, {"MC_LOG_LEVEL": "TRACE"}, TE_TEST_TRACEPARENT=CONTEXT)
        line, outcome = self.until_slow(target, peer, "read", segment, self.index, 0, self.remote, 1000, opcode="read")
        self.assertEqual(outcome[:2], (te.COMPLETED, 0), outcome)
        self.assertEqual(line["trace"], CONTEXT)
        served = re.compile(r"served: read of 1000 bytes for 127\.0\.0\.1:\d+ took [\d.]+ ms; trace " + CONTEXT)
        te.until(lambda: self.move_frozen(target, peer, "read", segment, self.index, 0, self.remote, 1000) and
                 served.search(target.error_output()), lambda: f"a line of what was served in {target}")

    def test_off(self):
        target, peer, segment = self.both()
        for _ in range(3):
            self.assertEqual(self.move_frozen(target, peer, "read", segment, self.index, 0, self.remote, 1000)[0],
                             te.COMPLETED)
        self.assertEqual(peer.quit(), 0)
        self.assertNotIn("slow request", peer.error_output())


if __name__ == "__main__":
    te.main()
