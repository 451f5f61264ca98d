#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""Engines over real metadata stores: keys, descriptors, round trips, tools, what is refused."""
import json
import socket
import sys
import time
import unittest

import te_proc as te
import te_stores as stores

SIZES = (1, 7, 4095, 65537, 1 << 20, (3 << 20) + 13)
ODD_NAME = "a b%c?d#\u00e9&=+"
TIMEOUT_MS = 1000


class Created(te.Proc):
    """An attempt to create an engine: .text is its error ("" if it came to be)."""

    def __init__(self, metadata, name="node-x", *options):
        super().__init__([te.Peer.binary(), metadata, name, *options])
        with self:
            self.wait()
        self.text = " ".join(line for line in self.lines if line.startswith("err "))


@stores.per_store()
class TwoEngines(stores.StoreCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = cls.Store()
        cls.addClassCleanup(cls.shared.close)

    def setUp(self):
        self.store = self.shared

    def tearDown(self):
        """Whoever leaves in good order leaves nothing behind."""
        self.assertEqual(self.store.keys(), [])

    def pair(self, *options):
        return self.peer("node-a", *options), self.peer("node-b", *options)

    def json_of(self, key):
        return json.loads(self.store.get(key))

    def test_round_trips_both_ways(self):
        one, two = self.pair()
        for peer, target in ((one, two), (two, one)):
            index, segment, remote = self.link(peer, target, max(SIZES) + 64)
            for seed, size in enumerate(SIZES):
                peer.round_trip(segment, index, size, remote + seed, seed)
        self.quit(one, two)

    def test_own_segment(self):
        """An engine's own name is its local segment, whatever the store says."""
        one = self.peer("node-a")
        self.assertEqual(one.open("node-a"), 0)
        _, remote = one.region(max(SIZES))
        index, _ = one.region(2 * max(SIZES))
        for seed, size in enumerate(SIZES):
            one.round_trip(0, index, size, remote, seed)
        self.quit(one)

    def test_keys_and_descriptor(self):
        one, two = self.pair()
        sizes = sorted(one.region(size)[1] for size in (4096, 8192, 12288))
        self.assertEqual(self.store.keys(),
                         sorted(stores.keys_of("node-a") + stores.keys_of("node-b")))
        where = self.json_of("mooncake/rpc_meta/node-a")
        self.assertEqual(set(where), {"ip_or_host_name", "rpc_port"})
        self.assertEqual(where["ip_or_host_name"], "127.0.0.1")
        segment = te.descriptor(("127.0.0.1", where["rpc_port"]))
        found = self.json_of("mooncake/ram/node-a")
        for key in ("name", "protocol", "tcp_data_port", "tcp_proto_version", "buffers", "te"):
            self.assertEqual(found[key], segment[key], key)
        self.assertEqual((found["name"], found["protocol"], found["tcp_proto_version"]),
                         ("node-a", "tcp", 2))
        self.assertRegex(found["timestamp"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        self.assertEqual(set(found["te"]) - {"host"}, {"incarnation", "tcp", "v", "version", "written"})
        self.assertEqual(sorted(b["addr"] for b in found["buffers"]), sizes)
        for buffer in found["buffers"]:
            self.assertEqual((set(buffer), buffer["name"]), ({"addr", "length", "name"}, "node-a"))
        for peer, name in ((one, "node-a"), (two, "node-b")):
            self.quit(peer)
            self.assertEqual(self.there(name), [])

    def test_cluster_id(self):
        one, two = self.pair("MC_METADATA_CLUSTER_ID=c1")
        self.assertEqual(self.store.keys(), sorted(stores.keys_of("node-a", "c1/") +
                                                   stores.keys_of("node-b", "c1/")))
        self.link(two, one, 4096)
        stranger = self.peer("node-c")
        self.assertIn("mooncake/ram/node-a", stranger.refused("open", "node-a"))
        self.quit(stranger, one, two)

    def test_absent_segment(self):
        one = self.peer("node-a")
        self.assertIn("mooncake/ram/nobody", one.refused("open", "nobody"))
        self.quit(one)

    def test_odd_name(self):
        one, two = self.peer(ODD_NAME), self.peer("node-b")
        self.assertEqual(one.segment, ODD_NAME)
        self.assertEqual(len(self.there(ODD_NAME)), 2)
        self.assertEqual(self.json_of(f"mooncake/ram/{ODD_NAME}")["name"], ODD_NAME)
        self.link(two, one, 4096)
        self.link(one, two, 4096)
        self.assertIn("a b", two.refused("open", "a%20b"))
        self.quit(one)
        self.assertEqual(self.there(ODD_NAME), [])
        self.quit(two)

    def test_name_taken_twice(self):
        """The newcomer warns and is the one that is found; the other leaves its keys alone."""
        one = self.peer("node-a")
        two = self.peer("node-a")
        two.wait_error("name node-a is that of an engine at")
        port = self.json_of("mooncake/rpc_meta/node-a")["rpc_port"]
        self.assertIn(f'"tcp_data_port":{self.json_of("mooncake/ram/node-a")["tcp_data_port"]}',
                      te.handshake(("127.0.0.1", port), te.METADATA, "{}").decode())
        self.quit(one)
        self.assertEqual(self.json_of("mooncake/rpc_meta/node-a")["rpc_port"], port)
        self.assertEqual(len(self.there("node-a")), 2)
        reader = self.peer("node-b")
        self.link(reader, two, 4096)
        self.quit(two, reader)

    def test_name_taken_over(self):
        """Once it knows, the earlier one leaves the name alone, and has it back when it is free."""
        one = self.peer("node-a", "TE_METADATA_TTL_S=2", "TE_METADATA_TIMEOUT_MS=5000")
        two = self.peer("node-a")
        port = self.json_of("mooncake/rpc_meta/node-a")["rpc_port"]
        _, wanted = two.region(4096)
        one.region(4096)
        one.wait_error("another engine has taken this name")
        one.region(8192)
        self.store.freeze()
        one.wait_error("cannot be asked")
        self.store.thaw()
        one.wait_error("in order again")
        time.sleep(2)  # at least: it looks again
        self.assertEqual([b["addr"] for b in self.json_of("mooncake/ram/node-a")["buffers"]], [wanted])
        self.assertEqual(self.json_of("mooncake/rpc_meta/node-a")["rpc_port"], port)
        self.quit(two)
        te.until(lambda: len(self.there("node-a")) == 2 and
                 len(self.json_of("mooncake/ram/node-a")["buffers"]) == 2, "the keys of the first")
        self.quit(one)

    def test_tools(self):
        for program, name in (("transfer_engine_bench", "bench"), ("transfer_engine_validator", "check")):
            with te.Target(metadata=self.store.url, name=f"{name}-a", program=program) as target:
                self.assertEqual(target.segment, f"{name}-a")
                proc = te.bench(target.segment, metadata=self.store.url, name=f"{name}-b", program=program)
                self.assertEqual(proc.rc, 0, proc)
                self.assertEqual(target.stop(), 0, target)

    def test_name_with_a_slash(self):
        got = Created(self.store.url, "a/b")
        self.assertEqual(got.process.returncode, 1, got)
        self.assertIn("a/b", got.text)


class BareAddress(stores.StoreCase):
    """host:port without a scheme is etcd."""
    Store = stores.Etcd

    def test_is_etcd(self):
        one, two = (self.peer(name, url=self.store.address) for name in ("node-a", "node-b"))
        self.assertEqual(len(self.there("node-a", "node-b")), 4)
        self.link(one, two, 4096)
        self.quit(one, two)


@stores.per_store()
class NotThere(unittest.TestCase):
    """No server behind the address."""
    Store = None

    def url_of(self, port):
        path = "/metadata" if self.Store is stores.Metad else ""
        return f"{self.Store.scheme}://127.0.0.1:{port}{path}"

    def fails(self, port):
        got = Created(self.url_of(port), "node-a", f"TE_METADATA_TIMEOUT_MS={TIMEOUT_MS}")
        self.assertIn(f"127.0.0.1:{port}", got.text, got)
        self.assertEqual(got.process.returncode, 1, got)

    def test_refused(self):
        self.fails(te.dead_port())

    def test_silent(self):
        """Connections are accepted, and nothing is answered."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.fails(listener.getsockname()[1])

    def test_closes_at_once(self):
        with Babbler(b"") as babbler:
            self.fails(babbler.port)

    def test_babbles(self):
        """Something else has the port."""
        says = [b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 4096, b"$-9\r\n", b"*1\r\n$1\r\nx\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
                b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"]
        if self.Store is stores.Etcd:  # any server that says 200 is an HTTP store
            says.append(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[[[[[")
        for said in says:
            with self.subTest(said=said[:30]), Babbler(said) as babbler:
                self.fails(babbler.port)


class Babbler:
    """A server that says one thing to everybody and hangs up."""

    def __init__(self, said):
        self.program = ("import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
                        "print(s.getsockname()[1], flush=True)\n"
                        "while True:\n c, _ = s.accept()\n"
                        f" try: c.sendall({said!r}); c.shutdown(1); c.recv(65536); c.close()\n"
                        " except OSError: pass\n")

    def __enter__(self):
        self.proc = te.Proc([sys.executable, "-c", self.program])
        self.port = int(self.proc.wait_line(r"^(\d+)$").group(1))
        return self

    def __exit__(self, *unused):
        self.proc.close()


class Refused(unittest.TestCase):
    """Connection strings that no server can be reached by."""

    def refused(self, url, *says):
        with self.subTest(url=url):
            got = Created(url, "node-a", f"TE_METADATA_TIMEOUT_MS={TIMEOUT_MS}")
            self.assertEqual(got.process.returncode, 1, got)
            for word in says:
                self.assertIn(word, got.text, got)

    def test_unknown_scheme(self):
        stores = [store for store in ("etcd", "redis", "http") if store in te.PARTS]
        self.refused("gopher://127.0.0.1:70", "gopher", *stores)
        self.refused("://127.0.0.1:70", "127.0.0.1:70")

    def test_bad_ports(self):
        for scheme in ("etcd", "redis", "http"):
            for port in ("99999", "abc", "0", "-1", "1 2"):
                self.refused(f"{scheme}://127.0.0.1:{port}", port)

    def test_no_host(self):
        for scheme in ("etcd", "redis", "http"):
            for rest in ("", ":2379", "/"):
                self.refused(f"{scheme}://{rest}", f"{scheme}://{rest}")
        for rest in (",", "127.0.0.1:1,,127.0.0.1:2", "[::1:2379"):
            self.refused(f"etcd://{rest}")
        self.refused("redis://[::1")


if __name__ == "__main__":
    te.main()
