#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""Engines on two hosts, which are network namespaces: addresses, routes, a link that goes down."""
import unittest
import urllib.request

import te_hosts
import te_proc as te
from te_hosts import HOST_A, HOST_B

SIZE = 1 << 20
COUNT = 200
DEADLINE_MS = 4000


def setUpModule():
    globals()["HOSTS"] = te_hosts.make()


class TwoHosts(unittest.TestCase):
    def tearDown(self):
        HOSTS.link("up")
        HOSTS.route_back()

    def target(self, name=None, **more):
        proc = te.Target(prefix=HOSTS.a, name=name, **more)
        self.addCleanup(proc.close)
        return proc

    @staticmethod
    def read(url):
        with urllib.request.urlopen(url, timeout=te.HANG_S) as reply:
            return reply.read().decode()

    def address_of(self, target):
        return te.split_address(target.segment)

    def test_p2p(self):
        target = self.target()
        self.assertEqual(self.address_of(target)[0], HOST_A)
        for flags in (("--verify",), ("--operation=write",), ("--operation=read",)):
            proc = te.bench(target.segment, *flags, prefix=HOSTS.b, name=None)
            self.assertEqual(proc.rc, 0, proc)
        self.assertEqual(target.stop(), 0, target)

    def test_http(self):
        with te.Metad(host=HOST_A, prefix=HOSTS.a) as metad:
            target = self.target(metadata=metad.url, name="node-a")
            self.assertEqual(target.segment, "node-a")
            value = te_hosts.within(HOSTS.names[1], self.read, f"{metad.url}?key=mooncake%2Frpc_meta%2Fnode-a")
            self.assertIn(f'"ip_or_host_name":"{HOST_A}"', value.replace(" ", ""))
            proc = te.bench("node-a", "--verify", prefix=HOSTS.b, metadata=metad.url, name="node-b")
            self.assertEqual(proc.rc, 0, proc)
            self.assertEqual(target.stop(), 0, target)

    def begin_and_cut(self, peer, *move):
        """A transfer whose link goes down in the middle of it: nothing moves on while both ends are stopped."""
        target = self.targets[-1]
        while True:
            before = te_hosts.carried(HOSTS.names[0], "te0")
            peer.send_move(*move, SIZE, COUNT, DEADLINE_MS)
            te.until(lambda n=before: te_hosts.carried(HOSTS.names[0], "te0") - n > SIZE, "a transfer that has begun")
            for proc in (peer, target):
                proc.freeze()
            midway = te_hosts.carried(HOSTS.names[0], "te0") - before < SIZE * COUNT // 2
            if midway:
                HOSTS.link("down")
            for proc in (peer, target):
                proc.thaw()
            if midway:
                return
            peer.moved()  # it was quicker than this test

    def test_link_down(self):
        self.targets = [self.target(size="256M")]
        peer = te.Peer(prefix=HOSTS.b, name=None)
        self.addCleanup(peer.close)
        self.assertEqual(te.split_address(peer.segment)[0], HOST_B)
        index, _ = peer.region(COUNT * SIZE)
        segment = int(peer.ask("open", self.targets[0].segment)[0])
        remote = int(peer.ask("buffers", segment)[1])
        for opcode in ("read", "write"):
            self.assertEqual(peer.move(opcode, segment, index, 0, remote, SIZE, COUNT)[0], te.COMPLETED)
            self.begin_and_cut(peer, opcode, segment, index, 0, remote)
            self.assertNotEqual(peer.moved()[0], te.COMPLETED)  # while the link is still down
            HOSTS.link("up")
            HOSTS.route_back()
            self.recovers(peer, opcode, segment, index, remote)
        self.assertEqual(peer.quit(), 0, peer)

    def recovers(self, peer, opcode, segment, index, remote):
        """With the link up again the same segment works, without any call but the transfers."""
        te.until(lambda: peer.move(opcode, segment, index, 0, remote, SIZE, 1, deadline_ms=3000)[0] == te.COMPLETED,
                 "a transfer after the link is up again")


if __name__ == "__main__":
    te.main()
