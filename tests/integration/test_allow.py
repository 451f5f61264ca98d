#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""Memory for some peers only (te_register_allow), between processes: by certificates, and where RDMA leads, too."""
import unittest

import te_auth
import te_mtls
import te_proc as te
import te_rdma
from te_auth import TCP_ONLY, lines

SIZE = te_auth.SIZE
HIDDEN = "target does not have this address range"


class Case(te_mtls.Case):
    def let(self, target, names):
        """(index, address) of new memory of the target for those peers."""
        return tuple(int(word) for word in target.ask("region_for", names, SIZE))

    def comes_in(self, peer, target, names, seed=1):
        self.moves(peer, target, seed, self.let(target, names))

    def stays_out(self, peer, target, names):
        self.fails_to_move(peer, target, HIDDEN, self.let(target, names))


class Certificates(Case):
    def test_names_of_hosts(self):
        for name in ("decode-0", "decode-1"):
            self.make("cert", f"{name},127.0.0.1")
        target = self.member("127.0.0.1", *TCP_ONLY)
        a, b = (self.member(name, *TCP_ONLY) for name in ("decode-0", "decode-1"))
        self.comes_in(a, target, "prefill-0,decode-0", 1)
        self.stays_out(b, target, "prefill-0,decode-0")
        self.comes_in(b, target, "DECODE-1", 2)
        self.stays_out(b, target, "decode,decode-11,.decode-1")
        for peer in (a, b):
            self.comes_in(peer, target, "127.0.0.1:12345", 3)
        self.assertIn("has what no name of a certificate has", target.refused("region_for", "a,\vb", SIZE))
        self.assertIn("it has no '*'", target.refused("region_for", "a,*.example", SIZE))
        self.moves(b, target, 4)

    def test_what_was_told_before(self):
        """Who has the descriptor of when it was named is refused by the target itself, and counted."""
        self.make("cert", "decode-0,127.0.0.1")
        target, peer = self.member("127.0.0.1", *TCP_ONLY), self.member("decode-0", *TCP_ONLY)
        index, remote = self.let(target, "decode-0")
        mine, _ = peer.region(2 * SIZE)
        segment = peer.open(target.segment)
        peer.round_trip(segment, mine, SIZE, remote, 1)
        target.ask("let", index, "decode-1")
        state, _, moved, text = peer.move("write", segment, mine, 0, remote, SIZE)
        self.assertNotEqual(state, te.COMPLETED)
        self.assertEqual(moved, 0)
        self.assertIn("the target lets others alone do this", text)
        self.assertEqual(self.refusals(target), {"denied": 1})
        target.wait_error("certificate '/CN=decode-0' is refused (denied")
        target.ask("check", index, 0, SIZE, 1)

    def test_files_that_are_read_anew(self):
        """Certificates of before are forgotten with their tickets; who asks for another one is known again."""
        self.make("cert", "decode-0,127.0.0.1")
        target = self.member("127.0.0.1", f"TE_AUTH_CRL={self.revoke()}", *TCP_ONLY)
        peer = self.member("decode-0", *TCP_ONLY)
        self.comes_in(peer, target, "decode-0", 1)
        self.revoke()
        target.wait_error("the certificates were read anew")
        another = self.member("decode-0", *TCP_ONLY)
        self.comes_in(another, target, "decode-0", 2)
        self.comes_in(peer, target, "decode-0", 3)

    def test_within_the_host(self):
        self.make("cert", "decode-0,127.0.0.1")
        target, peer = self.member("127.0.0.1"), self.member("decode-0")
        self.comes_in(peer, target, "decode-0")
        self.stays_out(peer, target, "decode-1")
        self.moves(peer, target, 5)


class Nics(Case):
    def test_rdma_leaves_it_to_tcp(self):
        """A NIC cannot tell peers apart: it has no key for such memory. The target installs tcp for it by itself."""
        fabric = te_rdma.Fabric(nics=1)
        self.addCleanup(fabric.remove)
        a, b = (self.engine(f"transport={by}", *fabric.options(side), keys=keys, env=fabric.environment(side))
                for by, side, keys in (("rdma+tcp", "a", lines("a", "b")), ("rdma", "b", lines("b", "a"))))
        self.comes_in(a, b, "a", 1)
        before = sum(nic["bytes"] for nic in fabric.stats().values())
        self.stays_out(a, b, "c")
        self.assertEqual(sum(nic["bytes"] for nic in fabric.stats().values()), before)
        self.moves(a, b, 2)
        self.assertGreater(sum(nic["bytes"] for nic in fabric.stats().values()), before)
        self.comes_in(a, b, "c,a", 3)


class WithoutIdentity(Case):
    def test_is_refused(self):
        peer = self.engine(*TCP_ONLY)
        self.assertIn("needs TE_AUTH=psk or TE_AUTH=mtls", peer.refused("region_for", "b", SIZE))
        self.assertIn("is no id", self.engine(*TCP_ONLY, keys=lines("a")).refused(
            "region_for", "b;c", SIZE))


if __name__ == "__main__":
    unittest.main()
