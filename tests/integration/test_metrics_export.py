#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""TE_METRICS: the metrics over HTTP and in a file, their syntax, the table that docs are printed from, bad clients."""
import json
import os
import re
import socket
import unittest
import urllib.error

import te_proc as te
import te_prom
import te_trouble as trouble
from te_prom import address_of, get, serve


def scrape(address):
    return te_prom.parse(get(address)[1])


def exchange(address, data):
    """All that comes back on a connection, up to its end."""
    with te.connect(address) as sock:
        sock.sendall(data)
        got = b""
        while True:
            part = sock.recv(65536)
            if not part:
                return got.decode()
            got += part


class OverHttp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.target = te.Target(env=serve())
        cls.address = address_of(cls.target)

    @classmethod
    def tearDownClass(cls):
        cls.target.close()

    def test_head(self):
        headers, _ = get(self.address)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(get(self.address, "/metrics?name=x")[0]["Connection"], "close")

    def test_every_metric_is_described(self):
        """The text has what te_info --metrics lists, with the same types and helps."""
        proc = te.run("te_info", "--metrics", "--json")
        rows = {row["name"]: row for row in json.loads(proc.output())["metrics"]}
        families = scrape(self.address)
        self.assertEqual(list(families), list(rows))
        for name, family in families.items():
            self.assertEqual((family.type, family.help), (rows[name]["type"], rows[name]["help"]))
            labels = {label for label in rows[name]["labels"].split(", ") if label}
            for _, have in family.samples:
                self.assertLessEqual({label for label, _ in have}, labels, name)

    def test_counterparts(self):
        """What docs/metrics.md calls the metrics of others here is there."""
        text = te.run("te_info", "--metrics", "--markdown").output()
        with open(os.path.join(te.SRC, "docs", "metrics.md"), encoding="utf-8") as f:
            self.assertEqual(f.read().splitlines(), text.splitlines(), "make docs")
        rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", text.split("| Theirs | Here |")[1], re.M)
        theirs = [name for names, _ in rows for name in re.findall(r"`([^`]*)`", names)]
        self.assertEqual(len(theirs), len(set(theirs)))
        self.assertGreater(len(theirs), 40)
        known = set(scrape(self.address))
        for names, here in rows:
            ours = set(re.findall(r"`([^`]*)`", here))
            self.assertTrue(ours or here.startswith("none: "), names)
            self.assertEqual(ours - known, set(), names)

    def test_runbook(self):
        """Every metric that docs/operations.md names is there."""
        with open(os.path.join(te.SRC, "docs", "operations.md"), encoding="utf-8") as f:
            named = set(re.findall(r"\btransfer_engine_\w+", f.read())) - {"transfer_engine_bench"}
        self.assertGreater(len(named), 10)
        known = {re.sub("_bucket$", "", name) for name in named}
        self.assertEqual(known - set(scrape(self.address)), set())

    def test_counts_grow(self):
        before = scrape(self.address)
        proc = te.bench(self.target.segment, env={"TE_HOST_PATH": "0"})
        self.assertEqual(proc.rc, 0, proc)
        name = "transfer_engine_served_requests_total"
        te.until(lambda: scrape(self.address)[name].value(transport="tcp") >= before[name].value(transport="tcp") + 80,
                 "80 more requests served")
        of_nics = scrape(self.address)["transfer_engine_nic_bytes_total"].samples
        names = {dict(labels)["nic"] for _, labels in of_nics if dict(labels)["transport"] == "tcp"}
        self.assertEqual(names, {"127.0.0.1"})  # also where a socket of IPv6 has it as ::ffff:127.0.0.1

    def test_what_is_not_there(self):
        for path, status in (("/", 404), ("/metricsx", 404), ("/metrics/", 404)):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                get(self.address, path)
            self.assertEqual(caught.exception.code, status, path)
            caught.exception.close()
        self.assertRegex(exchange(self.address, b"POST /metrics HTTP/1.1\r\n\r\n"), r"^HTTP/1.1 405 .*\r\nAllow: GET\r\n")
        self.assertRegex(exchange(self.address, b"\0\xff\n\n"), r"^HTTP/1.1 405 ")
        self.assertRegex(exchange(self.address, b"GET /metrics HTTP/1.1\r\nA: " + 5000 * b"a"), r"^HTTP/1.1 431 ")

    def test_silent_clients(self):
        """Those that say nothing, and those that do not read, hold up nobody: the oldest go."""
        silent = [te.connect(self.address) for _ in range(40)]
        for sock in silent:
            self.addCleanup(sock.close)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for sock in silent[20:]:
            try:
                sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            except OSError:
                pass  # it had to make room already
        te.until(lambda: self.scrapes(), "an answer in spite of them")
        self.assertEqual(te.bench(self.target.segment).rc, 0)

    def scrapes(self):
        try:
            return scrape(self.address)
        except OSError:
            return None  # another one of them came after it

    def test_pieces(self):
        """A request that comes byte by byte is answered as any other."""
        with te.connect(self.address) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n":
                sock.sendall(bytes([byte]))
            self.assertEqual(te.read_exactly(sock, 15), b"HTTP/1.1 200 OK")


class InFile(unittest.TestCase):
    def test_file(self):
        """It is there when the engine is, whole, with the number of the process, and goes with the engine."""
        folder = te.Workdir.get()
        path = os.path.join(folder, "te-%p.prom")
        with te.Target(env={"TE_METRICS": f"file:{path}"}) as target:
            mine = path.replace("%p", str(target.pid))
            with open(mine, encoding="utf-8") as f:
                families = te_prom.parse(f.read())
            labels = [dict(have) for _, have in families["transfer_engine_info"].samples]
            self.assertEqual([have["segment"] for have in labels], [target.segment])
            self.assertEqual([n for n in os.listdir(folder) if n.endswith(".tmp")], [])
            self.assertEqual(target.stop(), 0)
            self.assertFalse(os.path.exists(mine))

    def test_no_folder(self):
        """The engine works without what it cannot write."""
        with te.Target(env={"TE_METRICS": "file:/proc/nowhere/te.prom"}) as target:
            target.wait_error("TE_METRICS: /proc/nowhere/te.prom cannot be written: No such file or directory")
            self.assertEqual(te.bench(target.segment).rc, 0)


class Store(unittest.TestCase):
    def test_name_taken(self):
        """It is told while another engine has the name, and the server is not said to be down meanwhile."""
        own = "mooncake/rpc_meta/node"  # where the server keeps that an engine named "node" is up
        with trouble.Keys() as server, te.Peer(
                name="node", metadata=server.url, env=serve(TE_METADATA_TTL_S="3")) as peer:
            address = address_of(peer)
            self.assertEqual(self.told(address), (0, 1))
            server.keys[own] = '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
            te.until(lambda: self.told(address) == (1, 1), "that the name is taken")
            del server.keys[own]
            te.until(lambda: self.told(address) == (0, 1), "that it is free again")
            peer.quit()

    def told(self, address):
        families = scrape(address)
        return tuple(families[f"transfer_engine_metadata_{name}"].value() for name in ("name_taken", "up"))


class Option(unittest.TestCase):
    def test_taken_port(self):
        with te.Target(env=serve()) as first:
            host, port = address_of(first)
            with te.Target(env={"TE_METRICS": f"{host}:{port}"}) as second:
                second.wait_error(f"TE_METRICS: {host}:{port} cannot be listened on (Address already in use)")
                self.assertEqual(te.bench(second.segment).rc, 0)

    def test_loopback(self):
        """Without an address it is for this host alone."""
        with te.Target(env=serve(TE_METRICS=":0")) as target:
            self.assertEqual(address_of(target)[0], "127.0.0.1")

    def test_bad(self):
        for text in ("9464", "127.0.0.1", "nobody.invalid:1", "file:relative", "file:"):
            proc = te.run("transfer_engine_bench", "--mode=target", "--metadata_server=P2PHANDSHAKE",
                          "--protocol=tcp", "--local_server_name=127.0.0.1", env={"TE_METRICS": text})
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn(f"TE_METRICS: '{text}' is neither ADDRESS:PORT", proc.error_output())


if __name__ == "__main__":
    te.main()
