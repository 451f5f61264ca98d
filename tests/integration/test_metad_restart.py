#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The metadata server goes away and comes back: engines that know each other go on."""
import os
import signal
import unittest

import te_proc as te

SIZE = 256 << 10


class Restart(unittest.TestCase):
    def pair(self, metad):
        target = te.Peer(name="node-a", metadata=metad.url)
        peer = te.Peer(name="node-b", metadata=metad.url)
        self.addCleanup(target.close)
        self.addCleanup(peer.close)
        _, remote = target.region(SIZE)
        index, _ = peer.region(2 * SIZE)
        segment = int(peer.ask("open", "node-a")[0])
        peer.round_trip(segment, index, SIZE, remote, 1)
        return target, peer, segment, index, remote

    def gone_and_back(self, sig, data_dir):
        metad = te.Metad(data_dir=data_dir)
        target, peer, segment, index, remote = self.pair(metad)
        if sig == signal.SIGKILL:
            metad.kill()
        else:
            self.assertEqual(metad.stop(sig), 0, metad)
        metad.close()
        for seed in range(5):
            peer.round_trip(segment, index, SIZE, remote, seed)
        # What is new cannot be found now; that is an error, and soon one.
        peer.send("open", "node-c")
        self.assertEqual(peer.reply()[0], "err")
        with te.Metad(port=metad.port, data_dir=data_dir) as again:
            for seed in range(5):
                peer.round_trip(segment, index, SIZE, remote, seed)
            # Newcomers among themselves are not hindered by what the server lost or kept.
            with te.Peer(name="node-d", metadata=again.url) as newcomer:
                _, address = newcomer.region(SIZE)
                found = int(peer.ask("open", "node-d")[0])
                peer.round_trip(found, index, SIZE, address, 7)
                if data_dir:
                    known = int(newcomer.ask("open", "node-a")[0])
                    own, _ = newcomer.region(2 * SIZE)
                    newcomer.round_trip(known, own, SIZE, remote, 8)
                self.assertEqual(newcomer.quit(), 0, newcomer)
            self.assertEqual(peer.quit(), 0, peer)
            self.assertEqual(target.quit(), 0, target)

    def test_without_durable_data(self):
        self.gone_and_back(signal.SIGTERM, None)

    def test_with_durable_data(self):
        self.gone_and_back(signal.SIGTERM, os.path.join(te.Workdir.get(), "term"))

    def test_killed_with_durable_data(self):
        self.gone_and_back(signal.SIGKILL, os.path.join(te.Workdir.get(), "kill"))

    def test_engines_end_without_a_server(self):
        """Closing an engine whose server is gone neither hangs nor fails."""
        metad = te.Metad()
        target, peer, *_ = self.pair(metad)
        metad.kill()
        metad.close()
        self.assertEqual(peer.quit(), 0, peer)
        self.assertEqual(target.quit(), 0, target)


if __name__ == "__main__":
    te.main()
