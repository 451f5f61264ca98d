#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=180
"""Engines on two hosts, which are network namespaces: addresses, routes, a link that goes down."""
import subprocess
import time
import unittest

import te_hosts
import te_proc as te
from te_hosts import HOST_A, HOST_B

SIZE = 1 << 20
COUNT = 64
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
            value = subprocess.run([*HOSTS.b, "curl", "-sf", "-m", "10",
                                    f"{metad.url}?key=mooncake%2Frpc_meta%2Fnode-a"],
                                   capture_output=True, text=True, check=True, timeout=20).stdout
            self.assertIn(f'"ip_or_host_name":"{HOST_A}"', value.replace(" ", ""))
            proc = te.bench("node-a", "--verify", prefix=HOSTS.b, metadata=metad.url, name="node-b")
            self.assertEqual(proc.rc, 0, proc)
            self.assertEqual(target.stop(), 0, target)

    def test_link_down(self):
        target = self.target(size="128M")
        peer = te.Peer(prefix=HOSTS.b, name=None)
        self.addCleanup(peer.close)
        self.assertEqual(te.split_address(peer.segment)[0], HOST_B)
        index, _ = peer.region(COUNT * SIZE)
        segment = int(peer.ask("open", target.segment)[0])
        remote = int(peer.ask("buffers", segment)[1])
        for opcode in ("read", "write"):
            self.assertEqual(peer.move(opcode, segment, index, 0, remote, SIZE, COUNT)[0], te.COMPLETED)
            begin = time.monotonic()
            for _ in range(1000):
                peer.send_move(opcode, segment, index, 0, remote, SIZE, COUNT, DEADLINE_MS)
                if time.monotonic() - begin < 0.2:
                    self.assertEqual(peer.moved()[0], te.COMPLETED)
                    continue
                time.sleep(0.003)
                HOSTS.link("down")
                down = time.monotonic()
                state = peer.moved(DEADLINE_MS / 1000 + 5)[0]
                if state != te.COMPLETED:
                    break
            self.assertNotEqual(state, te.COMPLETED)
            self.assertLess(time.monotonic() - down, (DEADLINE_MS / 1000 + 3) * te.SLOW)
            HOSTS.link("up")
            HOSTS.route_back()
            self.recovers(peer, opcode, segment, index, remote)
        self.assertEqual(peer.quit(), 0, peer)

    def recovers(self, peer, opcode, segment, index, remote):
        """With the link up again the same segment works, without any call but the transfers."""
        end = time.monotonic() + 15 * te.SLOW
        state = None
        while state != te.COMPLETED and time.monotonic() < end:
            state = peer.move(opcode, segment, index, 0, remote, SIZE, 1, deadline_ms=3000)[0]
        self.assertEqual(state, te.COMPLETED)


if __name__ == "__main__":
    te.main()
