#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""The times of requests in the metrics: what they waited and what they moved are the whole, and each pause is told
where it was."""
import time
import unittest

import te_proc as te
import te_prom

SIZE = 1 << 16
PAUSE_S = 0.1
READ = {"transport": "tcp", "opcode": "read"}


class Times(unittest.TestCase):
    def setUp(self):
        self.target = te.Peer(env={"TE_HOST_PATH": "0"})
        self.addCleanup(self.target.close)
        self.peer = te.Peer(env=te_prom.serve(TE_HOST_PATH="0"))
        self.addCleanup(self.peer.close)
        self.index, _ = self.peer.region(SIZE)
        self.remote = self.target.region(SIZE)[1]
        self.segment = self.peer.open(self.target.segment)
        self.assertEqual(self.read(self.remote), te.COMPLETED)

    def read(self, remote, frozen=False):
        """How a READ ends, of a target that does not answer for a while, or does at once."""
        if frozen:
            self.target.freeze()
        self.peer.send_move("read", self.segment, self.index, 0, remote, 1000)
        if frozen:
            time.sleep(2 * PAUSE_S)
            self.target.thaw()
        return self.peer.moved()[0]

    def sums(self):
        """Seconds of all READs so far: (queue, wire). They are the whole, of the same requests."""
        families = te_prom.parse(te_prom.get(te_prom.address_of(self.peer))[1])
        whole, queue, wire = (families[f"transfer_engine_request_{what}seconds"] for what in ("", "queue_", "wire_"))
        for part in (queue, wire):
            self.assertEqual(part.value("_count", **READ), whole.value("_count", **READ))
        queue, wire, whole = (family.value("_sum", **READ) for family in (queue, wire, whole))
        self.assertAlmostEqual(queue + wire, whole, places=7)
        return queue, wire

    def test_a_target_that_does_not_answer(self):
        """It has the request."""
        def seen():
            before = self.sums()[1]
            self.assertEqual(self.read(self.remote, frozen=True), te.COMPLETED)
            return self.sums()[1] - before >= PAUSE_S

        te.until(seen, lambda: f"a pause in the times of the wire: {self.sums()}")

    def test_a_descriptor_that_is_waited_for(self):
        """Each READ is of memory that the target has registered after its descriptor was fetched."""
        def seen():
            remote, before = self.target.region(SIZE)[1], self.sums()[0]
            self.assertEqual(self.read(remote, frozen=True), te.COMPLETED)
            return self.sums()[0] - before >= PAUSE_S

        te.until(seen, lambda: f"a pause in the times of the queue: {self.sums()}")


if __name__ == "__main__":
    te.main()
