#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""TE_BIND: on which addresses an engine listens, and what peers are told."""
import ipaddress
import os
import struct
import unittest

import te_proc as te

SIZE = 100001
LISTEN = "0A"


def address(text):
    """Of the hexadecimal words of /proc/net/tcp: each of 4 bytes in the order of this processor."""
    words = [struct.pack("=I", int(text[at:at + 8], 16)) for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def listeners(proc):
    """The addresses that the process listens on."""
    own = {os.readlink(f"/proc/{proc.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{proc.pid}/fd")}
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{proc.pid}/net/{table}", encoding="utf-8") as f:
                rows = [line.split() for line in f][1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        found |= {address(row[1].split(":")[0]) for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in own}
    return found


class Bind(unittest.TestCase):
    def engine(self, *options, name=None):
        peer = te.Peer(name=name, options=options)
        self.addCleanup(peer.close)
        return peer

    def moves(self, target):
        target_index, remote = (int(word) for word in target.ask("region", SIZE))
        peer = self.engine("TE_BIND=127.0.0.1", "TE_HOST_PATH=0")
        index, _ = (int(word) for word in peer.ask("region", 2 * SIZE))
        peer.round_trip(peer.open(target.segment), index, SIZE, remote, 1)
        target.ask("check", target_index, 0, SIZE, 1)

    def test_nothing_said(self):
        self.assertTrue(all(ipaddress.ip_address(a).is_unspecified for a in listeners(self.engine(name="127.0.0.1"))))

    def test_an_address(self):
        target = self.engine("TE_BIND=127.0.0.7")
        self.assertEqual(listeners(target), {"127.0.0.7"})
        self.assertRegex(target.segment, r"^127\.0\.0\.7:")
        self.assertEqual(te.descriptor(te.split_address(target.segment))["te"]["tcp"]["addresses"], [])
        self.moves(target)

    def test_an_interface(self):
        target = self.engine("TE_BIND=lo")
        self.assertEqual(listeners(target), {"127.0.0.1"})
        self.moves(target)

    def test_another_address_is_told(self):
        """Who says what peers are told is believed: a translation of addresses may stand between."""
        target = self.engine("TE_BIND=127.0.0.7", name="127.0.0.8")
        self.assertEqual(listeners(target), {"127.0.0.7"})
        self.assertRegex(target.segment, r"^127\.0\.0\.8:")

    def test_a_wanted_port(self):
        for port in te.free_ports():
            target = self.engine("TE_BIND=127.0.0.7", name=f"127.0.0.7:{port}")
            if target.segment.endswith(f":{port}"):
                break
        self.assertEqual(listeners(target), {"127.0.0.7"})

    def test_what_cannot_be(self):
        absent = "cannot listen on 192.0.2.1: it is no address of this host; set TE_BIND to "
        for where, name, says in (("no-such-card", "127.0.0.1", "neither an address in numbers"),
                                  ("192.0.2.1", "127.0.0.1", absent), ("192.0.2.1", "127.0.0.1:15001", absent)):
            proc = te.Proc([te.tool("transfer_engine_bench"), "--mode=target", "--metadata_server=P2PHANDSHAKE",
                            f"--local_server_name={name}"], env=dict(os.environ, TE_BIND=where))
            self.addCleanup(proc.close)
            self.assertNotEqual(proc.wait(), 0)
            self.assertIn(says, proc.error_output())
            self.assertNotIn("taking one of", proc.error_output())


if __name__ == "__main__":
    te.main()
