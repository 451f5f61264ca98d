#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""Metrics that move only when something is wrong: with a target that does not answer, and a metadata server that is
gone. test_metrics.c has those that need nobody else."""
import unittest

import te_proc as te
import te_prom

SIZE = 1 << 16


class Moved(unittest.TestCase):
    def scrape(self):
        return te_prom.parse(te_prom.get(te_prom.address_of(self.peer))[1])

    def value(self, name, **labels):
        return self.scrape()["transfer_engine_" + name].value(**labels)

    def both(self, **env):
        self.target = te.Peer(env={"TE_HOST_PATH": "0"})
        self.addCleanup(self.target.close)
        self.peer = te.Peer(env=te_prom.serve(TE_HOST_PATH="0", **env))
        self.addCleanup(self.peer.close)
        self.index, _ = self.peer.region(SIZE)
        self.remote = self.target.region(SIZE)[1]
        self.segment = self.peer.open(self.target.segment)

    def test_stalled(self):
        """The target has taken the connection, and says nothing."""
        self.both(TE_TRANSFER_TIMEOUT_MS="1000")
        te.until(lambda: self.peer.move("read", self.segment, self.index, 0, self.remote, 1000)[0] == te.COMPLETED,
                 "a READ")
        self.target.freeze()
        te.until(lambda: self.peer.move("read", self.segment, self.index, 0, self.remote, 1000) and
                 self.value("request_stalls_total"), "a stall")
        self.target.thaw()
        self.assertGreater(self.value("request_errors_total", error="TE_ERR_TIMEOUT"), 0)
        self.assertGreater(self.value("transport_attempt_failures_total", transport="tcp", **{"class": "path"}), 0)

    def test_parked(self):
        """The range is not in the descriptor that is known, and the target does not answer when asked for another."""
        self.both()
        self.assertEqual(self.value("parked_requests"), 0)
        self.target.freeze()
        self.peer.send_move("read", self.segment, self.index, 0, 4096, 1000)
        te.until(lambda: self.value("parked_requests") == 1, "a request that is parked")
        self.assertEqual(self.value("inflight_requests"), 1)
        self.target.thaw()
        self.assertNotEqual(self.peer.moved()[1], 0)
        te.until(lambda: self.value("parked_requests") == 0, "that none is parked")
        self.assertGreater(self.value("refreshes_total"), 0)

    def test_no_metadata_server(self):
        """It goes, and another one comes at its address."""
        with te.Metad() as server:
            self.peer = te.Peer(name="moved", metadata=server.url, env=te_prom.serve(TE_METADATA_TTL_S="3"))
            self.addCleanup(self.peer.close)
            te.until(lambda: self.value("metadata_up") == 1, "that the server is up")
            before = self.value("metadata_failures_total")
        te.until(lambda: self.value("metadata_up") == 0, "that the server is down")
        self.assertGreater(self.value("metadata_failures_total"), before)
        with te.Metad(port=server.port):
            te.until(lambda: self.value("metadata_up") == 1, "that the server is back")


if __name__ == "__main__":
    te.main()
