#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""A metadata store that dies, freezes or forgets: who knows each other goes on, and all comes back."""
import threading
import time

import te_proc as te
import te_stores as stores

SIZE = 256 << 10
TTL = 4
TIMEOUT_MS = 5000


class Traffic(threading.Thread):
    """Round trips without end, until stop(), which raises what went wrong. Nobody else may use the peer."""

    def __init__(self, peer, target, segment, index, remote):
        super().__init__(daemon=True)
        self.target = target
        self.args = (peer, segment, index, SIZE, remote)
        self.rounds, self.failure = 0, None
        self.ending = threading.Event()
        self.start()

    def run(self):
        peer, segment, index, size, remote = self.args
        while not self.ending.is_set():
            try:
                peer.round_trip(segment, index, size, remote, self.rounds)
            except BaseException as failure:  # pylint: disable=broad-except
                self.failure = AssertionError(f"{failure}\n{self.args[0]}\n{self.target}")
                return
            self.rounds += 1

    def more(self, count=5):
        """Waits until so many more have ended."""
        wanted = self.rounds + count
        te.until(lambda: self.rounds >= wanted or self.failure, "round trips")
        if self.failure:
            raise self.failure

    def stop(self):
        self.ending.set()
        self.join()
        if self.failure:
            raise self.failure


class Faults(stores.StoreCase):
    options = (f"TE_METADATA_TTL_S={TTL}",)

    def link(self, peer, target, size, seed=1):
        self.wait_keys(target.segment)  # who was late by the TTL tells again who it is
        return super().link(peer, target, size, seed)

    def traffic(self, peer, target):
        index, segment, remote = self.link(peer, target, SIZE)
        traffic = Traffic(peer, target, segment, index, remote)
        self.addCleanup(traffic.ending.set)
        return traffic


@stores.per_store()
class StoreDies(Faults):
    def test_restarted_empty(self):
        """Transfers mind nothing of it, and what the store has forgotten comes back by itself."""
        target, peer = self.peer("node-a"), self.peer("node-b", "MC_DISABLE_METACACHE=1")
        traffic = self.traffic(peer, target)
        traffic.more()
        self.store.kill()
        traffic.more(20)
        time.sleep(TTL + 0.5)  # at least: longer than the keys would live
        traffic.more(20)
        self.store.restart(empty=True)
        self.wait_keys("node-a", "node-b")
        traffic.more()
        third = self.peer("node-c")
        self.link(third, target, SIZE, seed=3)
        traffic.stop()
        self.link(third, peer, SIZE, seed=4)
        te.until(lambda: self.stay("node-a", "node-b", "node-c"), "a while in which no key expires that came back")
        self.quit(third, peer, target)
        self.assertEqual(self.there("node-a", "node-b", "node-c"), [])

    def stay(self, *names):
        """Whether their keys are there for longer than they would live by themselves. Who did not run for so long
        may have lost them, and tells again who it is."""
        self.wait_keys(*names)
        time.sleep(TTL + 1)
        return len(self.there(*names)) == 2 * len(names)

    def test_keys_lost(self):
        """Somebody deletes the keys of an engine that lives."""
        target = self.peer("node-a")
        for key in stores.keys_of("node-a"):
            self.store.delete(key)
            self.wait_keys("node-a")
        self.quit(target)

    def test_region_registered_meanwhile(self):
        """What changed while the store was away is in it afterwards."""
        target = self.peer("node-a")
        self.store.kill()
        target.send("region", SIZE)  # may fail, as the store cannot be told
        answered = target.reply()
        self.store.restart(empty=True)
        self.wait_keys("node-a")
        if answered[0] == "ok":
            te.until(lambda: answered[2].encode() in (self.store.get("mooncake/ram/node-a") or b""),
                     "the new region in the store")
        reader = self.peer("node-b")
        self.link(reader, target, SIZE)
        self.quit(reader, target)


@stores.per_store()
class StoreFrozen(Faults):
    options = (*Faults.options, f"TE_METADATA_TIMEOUT_MS={TIMEOUT_MS}")

    def setUp(self):
        super().setUp()
        self.target, self.node = self.peer("node-a"), self.peer("node-b")
        self.index, self.segment, self.remote = self.link(self.node, self.target, SIZE)

    def tearDown(self):
        self.store.thaw()

    def test_known_peers_go_on(self):
        traffic = Traffic(self.node, self.target, self.segment, self.index, self.remote)
        self.store.freeze()
        end = time.monotonic() + (TTL + 2)
        while time.monotonic() < end:
            traffic.more()
        self.store.thaw()
        traffic.more()
        traffic.stop()
        self.wait_keys("node-a", "node-b")
        self.quit(self.node, self.target)

    def test_open_of_a_new_name(self):
        self.store.freeze()
        text = self.node.refused("open", "node-c")
        self.assertIn(self.store.address, text)
        self.node.round_trip(self.segment, self.index, SIZE, self.remote, 2)
        self.store.thaw()
        self.wait_keys("node-a", "node-b")
        third = self.peer("node-c")
        self.link(self.node, third, SIZE)
        self.quit(third, self.node, self.target)

    def test_end_of_an_engine(self):
        self.store.freeze()
        for peer in (self.node, self.target):
            self.quit(peer)
        self.store.thaw()
        self.wait_no_keys("node-a", "node-b")


if __name__ == "__main__":
    te.main()
