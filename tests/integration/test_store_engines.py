#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=240
"""Engines that die, freeze or come back over a metadata store: what becomes of their keys and peers."""
import os
import signal
import time

import te_proc as te
import te_stores as stores

SIZE = 256 << 10
TTL = 2
DEADLINE_MS = 10000


@stores.per_store()
class EngineDies(stores.StoreCase):
    options = (f"TE_METADATA_TTL_S={TTL}",)

    def restart(self, name):
        again = self.peer(name)
        return (again, *again.region(2 * SIZE))

    def test_keys_vanish(self):
        target, other = self.peer("node-a"), self.peer("node-b")
        target.region(SIZE)
        time.sleep(2 * TTL)  # they are kept as long as the engine lives
        self.assertEqual(len(self.there("node-a", "node-b")), 4)
        target.kill()
        self.wait_no_keys("node-a", seconds=TTL + 3)
        self.assertEqual(len(self.there("node-b")), 2)
        self.assertIn("node-a", other.refused("open", "node-a"))
        self.quit(other)

    def test_keys_stay_without_a_ttl(self):
        target = self.peer("node-a", "TE_METADATA_TTL_S=0")
        before = [self.store.get(key) for key in stores.keys_of("node-a")]
        target.kill()
        time.sleep(TTL + 3)
        self.assertEqual([self.store.get(key) for key in stores.keys_of("node-a")], before)
        again = self.peer("node-a", "TE_METADATA_TTL_S=0")
        self.assertNotEqual([self.store.get(key) for key in stores.keys_of("node-a")], before)
        self.quit(again)
        self.assertEqual(self.there("node-a"), [])

    def test_restarted_under_its_name(self):
        """The first submit after the restart finds the new life: new ports, new memory."""
        target, peer = self.peer("node-a"), self.peer("node-b")
        index, segment, _ = self.link(peer, target, SIZE)
        for seed, opcode in enumerate(("read", "write", "write", "read")):
            target.kill()
            target, far, remote = self.restart("node-a")
            source, sink = ((target, far), (peer, index))[::1 if opcode == "read" else -1]
            source[0].ask("fill", source[1], 0, SIZE, seed)
            state, error, moved, text = peer.move(opcode, segment, index, 0, remote, SIZE,
                                                  deadline_ms=DEADLINE_MS)
            self.assertEqual((state, error, moved), (te.COMPLETED, 0, SIZE), f"{opcode}: {text}")
            sink[0].ask("check", sink[1], 0, SIZE, seed)
        # The keys are those of the last life: the lease of an earlier one does not take them along.
        time.sleep(TTL + 2)
        self.assertEqual(len(self.there("node-a")), 2)
        self.quit(peer, target)
        self.assertEqual(self.there("node-a", "node-b"), [])

    def test_frozen_for_longer_than_its_lease(self):
        target, peer = self.peer("node-a"), self.peer("node-b")
        index, segment, remote = self.link(peer, target, SIZE)
        stores.freeze(target)
        self.wait_no_keys("node-a", seconds=TTL + 3)
        os.kill(target.pid, signal.SIGCONT)
        self.wait_keys("node-a", seconds=2 * TTL)
        peer.round_trip(segment, index, SIZE, remote, 2)
        third = self.peer("node-c")
        self.link(third, target, SIZE)
        self.quit(third, peer, target)

    def test_thawed_after_a_successor_came(self):
        """Who wakes up and finds its name taken leaves the successor's keys alone."""
        target, peer = self.peer("node-a"), self.peer("node-b")
        stores.freeze(target)
        self.wait_no_keys("node-a", seconds=TTL + 3)
        again, _, remote = self.restart("node-a")
        where = self.store.get("mooncake/rpc_meta/node-a")
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(2 * TTL)
        self.assertEqual(self.store.get("mooncake/rpc_meta/node-a"), where)
        self.assertIn(str(remote).encode(), self.store.get("mooncake/ram/node-a"))
        self.quit(target)
        self.assertEqual(len(self.there("node-a")), 2)
        self.link(peer, again, SIZE)
        self.quit(peer, again)


if __name__ == "__main__":
    te.main()
