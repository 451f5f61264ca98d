#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=240
"""An engine with several addresses: all links carry bytes, and one that goes down is not noticed."""
import json
import time
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
    out = te_hosts.ip("-n", HOSTS.names[0], "-s", "-j", "link", "show", name).stdout
    stats = json.loads(out)[0]["stats64"]
    return stats["tx"]["bytes"] + stats["rx"]["bytes"]


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

    def moves(self, peer, opcode, segment, index, remote, seconds, event=None):
        """Transfers for so long, with something that happens to them on the way; all must be well."""
        begin = time.monotonic()
        slowest = 0
        done = 0
        while time.monotonic() - begin < seconds:
            start = time.monotonic()
            peer.send_move(opcode, segment, index, 0, remote, SIZE, COUNT)
            if event and start - begin > seconds / 4:
                time.sleep(0.005)
                event()
                event = None
            state, error, moved, text = peer.moved(100)
            self.assertEqual((state, error, moved), (te.COMPLETED, 0, SIZE * COUNT), text)
            slowest = max(slowest, time.monotonic() - start)
            done += 1
        return slowest, done

    def test_both_links_carry(self):
        target, peer, segment, index, remote = self.engines(f"{HOST_A},{SECOND_A}")
        before = [carried("te0"), carried("te1")]
        for seed in range(8):
            peer.round_trip(segment, index, COUNT * SIZE, remote, seed)
        total = 16 * COUNT * SIZE
        shares = [(carried(n) - b) / total for n, b in zip(("te0", "te1"), before)]
        self.assertGreater(min(shares), 0.1, shares)
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
                    slowest, done = self.moves(peer, opcode, segment, index, remote, 3,
                                               lambda link=name: set_link(link, "down"))
                    print(f"{name} {opcode}: {done} transfers, the slowest {slowest:.1f} s")
                    self.assertLess(slowest, 12 * te.SLOW)
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
