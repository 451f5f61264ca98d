#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""te_metad: /metrics for Prometheus, and the lines of --request-log."""
import os
import re
import signal
import unittest

import te_prom
import te_proc as te
from metad_server import Server, WithServer, ask, get, put, target

TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d "
LINE = re.compile(TIME + r"127\.0\.0\.1 \d+ (\S+ \S+ \d+) \d+\.\d{3} ms$")
OWN = re.compile(TIME + r"te_metad: (.+)$")


class Metrics(WithServer):
    flags = ("--max-keys=2",)

    def scrape(self):
        status, body, response = ask(self.client, "GET", "/metrics")
        self.assertEqual((status, response.getheader("Content-Type")),
                         (200, "text/plain; version=0.0.4; charset=utf-8"))
        return te_prom.parse(body.decode())

    def test_counts(self):
        for key, status in (("a", 200), ("b", 200), ("c", 507)):
            self.assertEqual(put(self.client, key, b"12345")[0], status)
        self.assertEqual(get(self.client, "none")[0], 404)
        self.assertEqual(ask(self.client, "GET", "/nowhere")[0], 404)
        families = self.scrape()
        requests = families["te_metad_requests_total"]
        for labels, n in (({"request": "put", "status": "2xx"}, 2), ({"request": "put", "status": "5xx"}, 1),
                          ({"request": "get", "status": "4xx"}, 1), ({"request": "other", "status": "4xx"}, 1)):
            self.assertEqual(requests.value(**labels), n, labels)
        self.assertEqual(families["te_metad_request_seconds"].value("_count"), 5)
        for name, n in (("keys", 2), ("keys_limit", 2), ("bytes", 12), ("connections", 1)):
            self.assertEqual(families[f"te_metad_{name}"].value(), n, name)
        self.assertEqual(self.scrape()["te_metad_requests_total"].value(request="metrics", status="2xx"), 1)

    def test_document(self):
        """docs/metad.md has each metric, with its type and labels."""
        with open(os.path.join(te.SRC, "docs", "metad.md"), encoding="utf-8") as f:
            rows = re.findall(r"^\| (`te_metad_.*) \| (\w+) \| ([^|]*)\| ", f.read(), re.M)
        told = {name: (kind, {label for label in re.split(r"[, ]+", labels) if label})
                for names, kind, labels in rows for name in re.findall(r"`(\w+)`", names)}
        self.scrape()  # so that there is a request to tell of
        found = {family.name: (family.type, {label for _, labels in family.samples for label, _ in labels})
                 for family in self.scrape().values()}
        self.assertEqual(told, found)

    def test_health_leaves_nothing(self):
        self.assertEqual(ask(self.client, "GET", "/health")[:2], (200, b"ok"))
        self.assertEqual(self.scrape()["te_metad_keys"].value(), 0)
        self.assertEqual(ask(self.client, "GET", "/metadata?prefix=")[1], b"")

    def test_method(self):
        status, _, response = ask(self.client, "PUT", "/metrics", b"x")
        self.assertEqual((status, response.getheader("Allow")), (405, "GET, HEAD"))

    def test_promtool(self):
        said = te_prom.promtool(ask(self.client, "GET", "/metrics")[1].decode())
        self.assertIn(said, (None, ""))


class Log(unittest.TestCase):
    def test_lines(self):
        """One for each request; a key cannot make another line, nor reach the terminal."""
        with Server("--request-log") as server:
            self.assertEqual(server.once(put, "mooncake/ram/a", b"1"), (200, b"metadata updated"))
            self.assertEqual(server.once(get, "x\x1b[31m y\n%")[0], 404)
            self.assertEqual(server.once(ask, "GET", "/metadata?prefix=moon")[0], 200)
            self.assertEqual(server.once(ask, "DELETE", target("k" * 1000))[0], 200)
            self.assertEqual(server.once(ask, "GET", "/health")[0], 200)
            self.assertEqual(server.stop(), 0)
            lines = [LINE.match(line) for line in server.errors if not OWN.match(line)]
            self.assertEqual([line and line[1] for line in lines],
                             ["PUT /metadata?key=mooncake/ram/a 200", "GET /metadata?key=x%1B[31m%20y%0A%25 404",
                              "GET /metadata?prefix=moon 200", "DELETE /metadata?key=" + "k" * 256 + " 200",
                              "GET /health 200"], server)

    def test_own_lines(self):
        """All that it says while it serves has the time."""
        with Server("--max-connections=16") as server:  # for which any limit of open files is enough
            os.kill(server.pid, signal.SIGUSR1)
            server.wait_error("no backup")
            self.assertEqual(server.stop(), 0)
            said = [OWN.match(line) for line in server.errors]
            self.assertTrue(all(said), server)
            self.assertEqual([line[1].split(":")[0] for line in said],
                             ["the contents are in memory only (--data-dir=DIR keeps them)", "no backup",
                              "stopped by SIGTERM"])

    def test_without(self):
        with Server() as server:
            self.assertEqual(server.once(put, "a", b"1")[0], 200)
            self.assertEqual(server.stop(), 0)
            self.assertNotIn("PUT", server.error_output())

    def test_flags(self):
        proc = te.run("te_metad", "--quiet", "--request-log")
        self.assertEqual((proc.rc, "exclude each other" in proc.error_output()), (2, True), proc)
        proc = te.run("te_metad", "--path=/metrics")
        self.assertEqual((proc.rc, "--path" in proc.error_output()), (2, True), proc)


if __name__ == "__main__":
    te.main()
