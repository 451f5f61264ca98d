#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=900
"""A target is killed and started again under the same name, ports and addresses: what was meant for the first one."""
import signal
import unittest

import te_proc as te
import te_rdma

SIZE = 1 << 20
COUNT = 32
# Where no program has anything, and the thread sanitizer lets one have it.
AT = 0x4000000000 if "-fsanitize=thread" in te.CFLAGS else 0x200000000000
STALE = -407


class Lives(unittest.TestCase):
    by_tcp = True
    stands_still = True  # what a target does that is stopped, on this path

    def side(self, _side):
        return {"options": ["TE_HOST_PATH=0"]}

    def setUp(self):
        first = te.Peer.at_a_port()
        self.name = first.segment
        first.close()
        ports = iter(te.free_ports())
        self.data = next(p for p in ports if not self.name.endswith(f":{p}"))
        self.peer = te.Peer(**self.side("a"))
        self.addCleanup(self.peer.close)
        self.index, _ = self.peer.region(COUNT * SIZE)
        self.peer.ask("fill", self.index, 0, COUNT * SIZE, 5)

    def start(self, seed):
        """The target, whose memory has what the seed tells, at the ports and addresses of the one before."""
        how = self.side("b")
        how["options"] += [f"MC_MIN_PRC_PORT={self.data}", f"MC_MAX_PRC_PORT={self.data}"]
        target = te.Peer(name=self.name, **how)
        self.addCleanup(target.close)
        self.assertEqual(target.segment, self.name)
        self.assertEqual(te.descriptor(te.split_address(self.name))["tcp_data_port"], self.data if self.by_tcp else 0)
        target.ask("region_at", AT, COUNT * SIZE)
        target.ask("fill", 0, 0, COUNT * SIZE, seed)
        return target

    def open_both(self, target):
        life = target.ask("incarnation")[0]
        segments = int(self.peer.ask("open_life", self.name, life)[0]), self.peer.open(self.name)
        self.assertNotEqual(*segments)
        return segments

    def move(self, opcode, segment, count=1):
        return self.peer.move(opcode, segment, self.index, 0, AT, SIZE, count, 20000)

    def is_stale(self, opcode, segment):
        state, error, _, text = self.move(opcode, segment)
        self.assertNotEqual(state, te.COMPLETED, text)
        self.assertIn("te_open_life()", text)
        self.assertEqual(error, STALE, text)

    def is_untouched(self, target, seed):
        target.ask("check", 0, 0, COUNT * SIZE, seed)

    def goes_on(self, target, seed):
        """By the name, as ever; and what was there comes back."""
        _, whatever = self.open_both(target)
        state, _, _, text = self.move("write", whatever)
        self.assertEqual(state, te.COMPLETED, text)
        target.ask("check", 0, 0, SIZE, 5)
        target.ask("fill", 0, 0, COUNT * SIZE, seed)

    def test_opened_before(self):
        """A WRITE by the name lands in the process that has it now; one by the life that was opened does not."""
        target = self.start(1)
        one, whatever = self.open_both(target)
        self.assertEqual(self.move("write", one)[0], te.COMPLETED)
        target.ask("check", 0, 0, SIZE, 5)
        target.kill()
        target.close()
        target = self.start(2)
        self.is_stale("write", one)
        self.is_stale("read", one)
        self.assertIn("te_open_life()", self.peer.refused("notify", one, "for", "one"))
        self.assertEqual(target.ask("inbox")[0], "0")
        self.is_untouched(target, 2)
        state, _, _, text = self.move("write", whatever)
        self.assertEqual(state, te.COMPLETED, text)
        target.ask("check", 0, 0, SIZE, 5)
        self.peer.ask("notify", whatever, "for", "any")
        self.assertEqual(target.ask("inbox")[0], "1")

    def test_message_first(self):
        target = self.start(1)
        one, _ = self.open_both(target)
        target.kill()
        target.close()
        target = self.start(2)
        self.assertIn("te_open_life()", self.peer.refused("notify", one, "for", "one"))
        self.assertEqual(target.ask("inbox")[0], "0")

    def test_under_way(self):
        """WRITEs of which some have arrived, some are on their way and some wait, while the target stands still."""
        target = self.start(1)
        for seed in range(2, 6):
            one, _ = self.open_both(target)
            target.process.send_signal(signal.SIGSTOP)
            self.peer.send_move("write", one, self.index, 0, AT, SIZE, COUNT, 20000)
            target.kill()
            target.close()
            target = self.start(seed)
            state, error, _, text = self.peer.moved()
            if self.stands_still:
                self.assertNotEqual(state, te.COMPLETED)
                self.assertLess(error, 0, text)
            self.is_untouched(target, seed)
            self.is_stale("write", one)
            self.is_untouched(target, seed)
            self.peer.ask("close", one)
            self.goes_on(target, seed)


class LivesOfThisHost(Lives):
    stands_still = False

    def side(self, _side):
        return {"options": ["TE_HOST_PATH=1"]}


class LivesByRdma(Lives):
    by_tcp = stands_still = False

    def setUp(self):
        self.fabric = te_rdma.Fabric(nics=1, same_keys=True)
        self.addCleanup(self.fabric.remove)
        super().setUp()

    def carried(self):
        return sum(row["bytes"] for row in self.fabric.stats().values())

    def move(self, opcode, segment, count=1):
        before = self.carried()
        how = super().move(opcode, segment, count)
        self.assertGreaterEqual(self.carried() - before, SIZE if how[0] == te.COMPLETED else 0)
        return how

    def side(self, side):
        return {"options": [*self.fabric.options(side), "transport=rdma"], "env": self.fabric.environment(side)}


if __name__ == "__main__":
    te.main()
