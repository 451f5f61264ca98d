#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional timeout=300
"""Every query of the Grafana dashboard, asked of a Prometheus that scrapes two engines under load, and te_metad."""
import math
import re
import unittest

import te_proc as te
import te_prom
import te_prometheus


def address_text(proc):
    host, port = te_prom.address_of(proc)
    return f"{host}:{port}"


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.metad = te.Metad()
        cls.target = te.Target(metadata=cls.metad.url, name="grafana-target", env=te_prom.serve())
        cls.bench = te.Proc([te.tool("transfer_engine_bench"), f"--metadata_server={cls.metad.url}", "--protocol=tcp",
                             f"--segment_id={cls.target.segment}", "--local_server_name=grafana-bench",
                             "--buffer_size=8M", "--threads=1", te.FOREVER], env=te_prom.serve(TE_HOST_PATH="0"))
        engines = [address_text(cls.target), address_text(cls.bench)]
        cls.prometheus = te_prometheus.Prometheus(transfer_engine=engines, te_metad=[cls.metad.url.split("/")[2]])

    @classmethod
    def tearDownClass(cls):
        for proc in (cls.prometheus, cls.bench, cls.target, cls.metad):
            proc.close()

    def test_every_query(self):
        """Each gives numbers: a name or label that is misspelt gives none."""
        queries = te_prometheus.queries()
        self.assertGreater(len(queries), 25)
        for title, query in queries:
            with self.subTest(title):
                found = te.until(lambda query=query: self.numbers(query), lambda query=query: f"an answer to {query}")
                self.assertTrue(all(n >= 0 for n in found), found)

    def numbers(self, query):
        return [n for _, n in self.prometheus.now(query) if not math.isnan(n)]

    def test_the_load_is_seen(self):
        """What went out of one engine came into the other."""
        rate = te.until(lambda: self.numbers("sum(rate(transfer_engine_bytes_total[10s])) > 0"), "a rate")[0]
        served = te.until(lambda: self.numbers("sum(rate(transfer_engine_served_sent_bytes_total[10s])) > 0"), "a rate")[0]
        self.assertGreater(rate / served, 0.2)
        self.assertLess(rate / served, 5)
        peers = self.prometheus.now("sum by (peer) (transfer_engine_peer_bytes_total) > 0")
        self.assertEqual([labels["peer"] for labels, _ in peers], ["grafana-target"])

    def test_every_metric_is_known(self):
        """No query has a name that engines and te_metad do not tell."""
        texts = [te_prom.get(te_prom.address_of(self.target))[1],
                 te_prom.get(te.split_address(self.metad.url.split("/")[2]))[1]]
        known = set(re.findall(r"^# TYPE (\S+)", "".join(texts), re.M))
        for _, query in te_prometheus.queries():
            for name in re.findall(r"\b(?:transfer_engine|te_metad)_\w+", query):
                self.assertIn(re.sub("_bucket$", "", name), known, query)


if __name__ == "__main__":
    te.main()
