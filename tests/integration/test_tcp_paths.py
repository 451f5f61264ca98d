#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""An engine with several addresses: all links carry bytes, and one that goes down is not noticed."""
import unittest

import te_hosts
import te_proc as te
from te_hosts import HOST_A, HOST_B

SECOND_A, SECOND_B = "10.231.78.1", "10.231.78.2"
NOBODY = "10.231.78.77"
SIZE = 1 << 20
COUNT = 64 if te.SLOW == 1 else 16


def setUpModule():
    hosts = te_hosts.make()
    first, second = hosts.names
    te_hosts.ip("link", "add", "te1", "netns", first, "type", "veth", "peer", "name", "te1", "netns", second)
    for name, own in ((first, SECOND_A), (second, SECOND_B)):
        te_hosts.ip("-n", name, "addr", "add", f"{own}/24", "dev", "te1")
        te_hosts.ip("-n", name, "link", "set", "te1", "up")
    globals()["HOSTS"] = hosts


def set_link(name, state):
    te_hosts.ip("-n", HOSTS.names[1], "link", "set", name, state)
    if state == "up":
        HOSTS.route_back()


def carried(name):
    """Bytes that an interface of the first host has sent and received."""
    return te_hosts.carried(HOSTS.names[0], name)


class Paths(unittest.TestCase):
    def tearDown(self):
        for name in ("te0", "te1"):
            set_link(name, "up")

    def engines(self, addresses, size=COUNT * SIZE, a_env=None, b_env=None):
        """A target with these further addresses, an initiator, and what a transfer needs."""
        target = te.Peer(prefix=HOSTS.a, name=HOST_A, env={"TE_TCP_ADDRESSES": addresses, **(a_env or {})})
        self.addCleanup(target.close)
        peer = te.Peer(prefix=HOSTS.b, name=HOST_B, env=b_env)
        self.addCleanup(peer.close)
        target.region(size)
        index, _ = peer.region(2 * size)
        segment = peer.open(target.segment)
        remote = int(peer.ask("buffers", segment)[1])
        return target, peer, segment, index, remote

    def engine_at(self, port):
        """An engine of the second host with that data port."""
        for _ in range(40):
            engine = te.Peer(prefix=HOSTS.b, name=HOST_B,
                             env={"MC_MIN_RPC_PORT": str(port - 1), "MC_MAX_RPC_PORT": str(port)})
            self.addCleanup(engine.close)
            address = te.split_address(engine.segment)
            if te_hosts.within(HOSTS.names[1], te.descriptor, address)["tcp_data_port"] == port:
                return engine
            self.end(engine)
        raise AssertionError(f"no engine gets data port {port}")

    def end(self, *peers):
        for peer in peers:
            self.assertEqual(peer.quit(), 0, peer)

    def well(self, moved):
        self.assertEqual(moved[:3], (te.COMPLETED, 0, SIZE * COUNT), moved[3])

    def cut_midway(self, target, peer, link, *move):
        """A transfer in the middle of which a link that carries a part of it goes down; it ends well."""
        te.until(lambda: self.cut_once(target, peer, link, *move), f"a transfer to cut on {link}")

    def cut_once(self, target, peer, link, *move):
        """Whether the transfer was cut: it may take the other link only, or be too far when both ends are stopped."""
        before, total = carried(link), carried("te0") + carried("te1")

        def begun():
            return carried(link) - before > SIZE // 4

        peer.send_move(*move, SIZE, COUNT)
        te.until(lambda: begun() or peer.has_replied(), f"bytes on {link}, or the end of a transfer")
        for proc in (peer, target):
            proc.freeze()
        midway = begun() and carried("te0") + carried("te1") - total < SIZE * COUNT // 2
        if midway:
            set_link(link, "down")
        for proc in (peer, target):
            proc.thaw()
        self.well(peer.moved())
        return midway

    def test_both_links_carry(self):
        target, peer, segment, index, remote = self.engines(f"{HOST_A},{SECOND_A}")
        before = [carried("te0"), carried("te1")]
        for seed in range(8):
            peer.round_trip(segment, index, COUNT * SIZE, remote, seed)
        total = 16 * COUNT * SIZE
        shares = [(carried(n) - b) / total for n, b in zip(("te0", "te1"), before)]
        self.assertGreater(min(shares), 0.02, shares)  # far more than what keeps a connection
        self.assertGreater(sum(shares), 1.0, shares)
        self.end(peer, target)

    def test_a_link_goes_down(self):
        for name in ("te1", "te0"):
            for opcode in ("write", "read"):
                with self.subTest(link=name, opcode=opcode):
                    target, peer, segment, index, remote = self.engines(SECOND_A)
                    size = COUNT * SIZE
                    peer.round_trip(segment, index, size, remote, 1)
                    peer.ask("fill", index, 0, size, 7)
                    target.ask("fill", 0, 0, size, 8)
                    self.cut_midway(target, peer, name, opcode, segment, index, 0, remote)
                    for _ in range(10):  # while it is down
                        self.well(peer.move(opcode, segment, index, 0, remote, SIZE, COUNT))
                    if opcode == "write":
                        target.ask("check", 0, 0, size, 7)
                    else:
                        peer.ask("check", index, 0, size, 8)
                    peer.round_trip(segment, index, size, remote, 3)
                    set_link(name, "up")
                    peer.round_trip(segment, index, size, remote, 4)
                    self.end(peer, target)

    def test_an_address_that_nobody_answers_at(self):
        target, peer, segment, index, remote = self.engines(NOBODY)
        for seed in range(4):
            peer.round_trip(segment, index, COUNT * SIZE, remote, seed)
        self.end(peer, target)

    def test_an_address_of_another_engine(self):
        """The target announces an address of the initiator's host, where another engine has the port."""
        target, peer, segment, index, remote = self.engines(SECOND_B)
        address = te.split_address(target.segment)
        port = te_hosts.within(HOSTS.names[0], te.descriptor, address)["tcp_data_port"]
        other = self.engine_at(port)
        for seed in range(4):
            peer.round_trip(segment, index, COUNT * SIZE, remote, seed)
        self.end(peer, target, other)

    def test_versions_mix(self):
        off = {"TE_TCP_NATIVE": "0"}
        for a_env, b_env in ((off, None), (None, off), (off, off), (None, {"MC_TCP_PROTO": "1"})):
            with self.subTest(a=a_env, b=b_env):
                target, peer, segment, index, remote = self.engines(SECOND_A, a_env=a_env, b_env=b_env)
                before = carried("te1")
                peer.round_trip(segment, index, COUNT * SIZE, remote, 5)
                self.assertLess(carried("te1") - before, SIZE)
                self.end(peer, target)


if __name__ == "__main__":
    te.main()
