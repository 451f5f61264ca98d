#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""Engines that die, freeze or come back over a metadata store: what becomes of their keys and peers."""
import time

import te_proc as te
import te_stores as stores

SIZE = 256 << 10
TTL = 2
SHORT = f"TE_METADATA_TTL_S={TTL}"  # of who is to be forgotten
DEADLINE_MS = 1000 * te.HANG_S


@stores.per_store()
class EngineDies(stores.StoreCase):
    def restart(self, name, *options):
        again = self.peer(name, *options)
        return (again, *again.region(2 * SIZE))

    def test_keys_vanish(self):
        target, other = self.peer("node-a", SHORT), self.peer("node-b")
        target.region(SIZE)
        time.sleep(2 * TTL)  # at least: they are kept as long as the engine lives
        self.wait_keys("node-a", "node-b")
        target.kill()
        self.wait_no_keys("node-a")
        self.assertEqual(len(self.there("node-b")), 2)
        self.assertIn("node-a", other.refused("open", "node-a"))
        self.quit(other)

    def test_keys_stay_without_a_ttl(self):
        target = self.peer("node-a", "TE_METADATA_TTL_S=0")
        before = [self.store.get(key) for key in stores.keys_of("node-a")]
        other = self.peer("node-b", SHORT)
        target.kill()
        other.kill()
        self.wait_no_keys("node-b")  # but those of another are gone by then
        self.assertEqual([self.store.get(key) for key in stores.keys_of("node-a")], before)
        again = self.peer("node-a", "TE_METADATA_TTL_S=0")
        self.assertNotEqual([self.store.get(key) for key in stores.keys_of("node-a")], before)
        self.quit(again)
        self.assertEqual(self.there("node-a"), [])

    def test_restarted_under_its_name(self):
        """The first submit after the restart finds the new life: new ports, new memory."""
        target, peer = self.peer("node-a", SHORT), self.peer("node-b")
        index, segment, _ = self.link(peer, target, SIZE)
        for seed, opcode in enumerate(("read", "write", "write", "read")):
            target.kill()
            target, far, remote = self.restart("node-a", SHORT)
            source, sink = ((target, far), (peer, index))[::1 if opcode == "read" else -1]
            source[0].ask("fill", source[1], 0, SIZE, seed)
            state, error, moved, text = peer.move(opcode, segment, index, 0, remote, SIZE,
                                                  deadline_ms=DEADLINE_MS)
            self.assertEqual((state, error, moved), (te.COMPLETED, 0, SIZE), f"{opcode}: {text}")
            sink[0].ask("check", sink[1], 0, SIZE, seed)
        # The keys are those of the last life: the lease of an earlier one does not take them along.
        time.sleep(TTL + 2)  # at least
        self.wait_keys("node-a")
        self.quit(peer, target)
        self.assertEqual(self.there("node-a", "node-b"), [])

    def test_frozen_for_longer_than_its_lease(self):
        target, peer = self.peer("node-a", SHORT), self.peer("node-b")
        index, segment, remote = self.link(peer, target, SIZE)
        target.freeze()
        self.wait_no_keys("node-a")
        target.thaw()
        peer.round_trip(segment, index, SIZE, remote, 2)
        third = self.peer("node-c")
        self.wait_keys("node-a")
        self.link(third, target, SIZE)
        self.quit(third, peer, target)

    def test_thawed_after_a_successor_came(self):
        """Who wakes up and finds its name taken leaves the successor's keys alone."""
        target, peer = self.peer("node-a", SHORT), self.peer("node-b")
        target.freeze()
        self.wait_no_keys("node-a")
        again, _, remote = self.restart("node-a")
        where = self.store.get("mooncake/rpc_meta/node-a")
        target.thaw()
        target.wait_error("another engine has taken this name")
        self.assertEqual(self.store.get("mooncake/rpc_meta/node-a"), where)
        self.assertIn(str(remote).encode(), self.store.get("mooncake/ram/node-a"))
        self.quit(target)
        self.assertEqual(len(self.there("node-a")), 2)
        self.link(peer, again, SIZE)
        self.quit(peer, again)


if __name__ == "__main__":
    te.main()
