#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""Which keys an engine leaves on a metadata server, and whose they are."""
import unittest
import urllib.error
import urllib.parse
import urllib.request

import te_proc as te


class Keys(unittest.TestCase):
    def setUp(self):
        self.metad = te.Metad()
        self.addCleanup(self.metad.close)

    def get(self, key):
        url = f"{self.metad.url}?key={urllib.parse.quote(key, safe='')}"
        try:
            with urllib.request.urlopen(url, timeout=te.HANG_S) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as e:
            self.assertEqual(e.code, 404)
            return None

    def keys_of(self, name):
        return [self.get(f"mooncake/{kind}/{name}") for kind in ("rpc_meta", "ram")]

    def peer(self, name, *options):
        peer = te.Peer(name=name, metadata=self.metad.url, options=options)
        self.addCleanup(peer.close)
        return peer

    def test_gone_after_destroy(self):
        peer = self.peer("node-a")
        for _ in range(20):
            peer.region(4096)
        self.assertNotIn(None, self.keys_of("node-a"))
        self.assertEqual(peer.quit(), 0, peer)
        self.assertEqual(self.keys_of("node-a"), [None, None])

    def test_failed_create_leaves_others_alone(self):
        peer = self.peer("node-b")
        before = self.keys_of("node-b")
        other = te.run("transfer_engine_bench", "--mode=target", "--auto_discovery",
                       f"--metadata_server={self.metad.url}", "--local_server_name=node-b",
                       env={"MC_FORCE_HCA": "1"})
        self.assertNotEqual(other.rc, 0, other)
        self.assertIn("rdma", other.error_output())
        self.assertEqual(self.keys_of("node-b"), before)
        self.assertEqual(peer.quit(), 0, peer)


if __name__ == "__main__":
    te.main()
