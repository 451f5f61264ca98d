#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""Engines on one host, the store on another, and the link between them goes down."""
import socket
import time

import te_hosts
import te_proc as te
import te_stores as stores

SIZE = 256 << 10
TTL = 4


def setUpModule():
    globals()["HOSTS"] = te_hosts.make()


@stores.per_store()
class Partition(stores.StoreCase):
    options = (f"TE_METADATA_TTL_S={TTL}", "TE_METADATA_TIMEOUT_MS=5000")

    def link(self, peer, target, size, seed=1):
        self.wait_keys(target.segment)  # who was late by the TTL tells again who it is
        return super().link(peer, target, size, seed)

    def make_store(self):
        return self.Store(host=te_hosts.HOST_B, netns=HOSTS.names[1])

    def setUp(self):
        super().setUp()
        te.until(lambda: te_hosts.within(HOSTS.names[0], self.reached), "a way to the store")

    def reached(self):
        """A neighbour that was lost with the link is asked for again only after a second."""
        try:
            socket.create_connection((te_hosts.HOST_B, self.store.port), timeout=5).close()
            return True
        except OSError:
            return False

    def tearDown(self):
        HOSTS.link("up", side=1)
        HOSTS.route_back()

    def test_link_down(self):
        target, node = (self.peer(name, prefix=HOSTS.a) for name in ("node-a", "node-b"))
        index, segment, remote = self.link(node, target, SIZE)
        HOSTS.link("down", side=1)
        self.wait_no_keys("node-a", "node-b")
        end = time.monotonic() + 2 * TTL
        seed = 0
        while time.monotonic() < end:
            node.round_trip(segment, index, SIZE, remote, seed)
            seed += 1
        self.assertIn(self.store.address, node.refused("open", "node-c"))
        HOSTS.link("up", side=1)
        HOSTS.route_back()
        self.wait_keys("node-a", "node-b")
        node.round_trip(segment, index, SIZE, remote, 1)
        third = self.peer("node-c", prefix=HOSTS.a)
        self.link(third, target, SIZE)
        self.quit(third, node, target)
        self.assertEqual(self.there("node-a", "node-b", "node-c"), [])

    def test_end_while_down(self):
        target = self.peer("node-a", prefix=HOSTS.a)
        HOSTS.link("down", side=1)
        self.quit(target)
        self.wait_no_keys("node-a")


if __name__ == "__main__":
    te.main()
