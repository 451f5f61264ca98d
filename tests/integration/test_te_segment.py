#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""te_segment on each metadata server there is: segments before, with and after their engine."""
import http.server
import json
import os
import signal
import tempfile
import threading
import unittest

import te_proc as te
import te_rdma as rdma
import te_stores as stores

INVALID, STALE = 2, -407
SIZE = 65536
NO_LIFE = {"v": 1, "incarnation": "0" * 16, "version": 0}  # of what no engine has written


class NoLists:
    """An HTTP metadata server that cannot list its keys, as most."""

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_error(400, "empty key")

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metadata"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def get(store, key):
    """The value as text, None if there is none."""
    value = store.get(key)
    return None if value is None else value.decode()


def segment(*args, store=None, **variables):
    if store:
        args += (f"--metadata_server={store.url}",)
    return te.run("te_segment", *args, env=variables)


class Store:
    """A metadata server, te_segment and engines on it."""

    def setUp(self):
        self.store = self.kind()
        self.addCleanup(self.store.close)

    def good(self, *args, **variables):
        proc = segment(*args, store=self.store, **variables)
        self.assertEqual((proc.rc, proc.error_output()), (0, ""), proc)
        return proc.output()

    def bad(self, *args, says, rc=1, **variables):
        proc = segment(*args, store=self.store, **variables)
        self.assertEqual((proc.rc, len(proc.errors), proc.output()), (rc, 1, ""), proc)
        self.assertIn(says, proc.error_output())

    def peer(self, name, **more):
        peer = te.Peer(name=name, metadata=self.store.url, **more)
        self.addCleanup(peer.close)
        return peer

    def end(self, *peers):
        for peer in peers:
            self.assertEqual(peer.quit(), 0, peer)

    def listed(self, **variables):
        return {e["name"]: e for e in json.loads(self.good("list", "--json", **variables))}


class Base(Store):
    """What holds with every store."""

    def test_engine_comes_later(self):
        a = self.peer("node-a")
        index, _ = a.region(2 * SIZE)
        a.send("open", "node-b")
        self.assertEqual(a.reply()[0], "err")
        self.good("register", "node-b")
        seg = a.ask("open", "node-b")[0]
        self.assertEqual(a.ask("buffers", seg), ["0"])
        for words in (("notify", seg, "n", "early"), ("probe", "node-b")):
            a.send(*words)
            self.assertRegex(" ".join(a.reply()), r"^err .*node-b.* not up yet")
        state, error, moved, text = a.move("write", seg, index, 0, 4096, SIZE)
        self.assertEqual((state, error, moved), (INVALID, STALE, 0), text)

        b = self.peer("node-b")
        a.ask("notify", seg, "n", "up")
        state, error, moved, text = a.move("write", seg, index, 0, 4096, SIZE)
        self.assertEqual((state, error, moved), (INVALID, STALE, 0), text)
        there, remote = b.region(SIZE)
        a.round_trip(seg, index, SIZE, remote, 5)
        b.ask("check", there, 0, SIZE, 5)
        a.ask("notify", seg, "n", "later")
        self.assertEqual(b.ask("inbox"), ["2", "n=up", "n=later"])
        self.end(b, a)
        self.assertIsNone(get(self.store, "mooncake/ram/node-b"))

    def test_submit_is_the_first_to_see_the_engine(self):
        """No refresh, no second open: the transfer itself finds the engine that came up."""
        a = self.peer("node-a")
        index, _ = a.region(2 * SIZE)
        # As another registrar may write it: an older key, a port nobody listens on.
        self.store.put("mooncake/ram/node-b", json.dumps(
            {"server_name": "node-b", "protocol": "tcp", "tcp_data_port": 4711, "buffers": []}))
        seg = a.ask("open", "node-b")[0]
        b = self.peer("node-b")
        there, remote = b.region(SIZE)
        a.round_trip(seg, index, SIZE, remote, 6)
        b.ask("check", there, 0, SIZE, 6)
        self.end(b, a)

    def test_what_register_writes(self):
        self.good("register", "node-b")
        told = json.loads(get(self.store, "mooncake/ram/node-b"))
        self.assertRegex(told.pop("timestamp"), r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
        self.assertGreater(told["te"].pop("written"), 0)
        self.assertEqual(told, {"buffers": [], "name": "node-b", "server_name": "node-b", "protocol": "tcp",
                                "tcp_data_port": 0, "tcp_proto_version": 1, "te": NO_LIFE})
        self.assertIsNone(get(self.store, "mooncake/rpc_meta/node-b"))

    def test_what_register_knows_of_rdma(self):
        rows = {"cpu:0": [["mlx5_2"], ["mlx5_3"]], "cuda:0": [["mlx5_3"], ["mlx5_2"]]}
        path = os.path.join(te.Workdir.get(), "matrix.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(rows, f)
        far = "mlx5_2/17/fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:01,mlx5_3/0x16/::ffff:10.0.0.2"
        self.good("register", "node-b", "--protocol=rdma", f"--devices={far}", f"--matrix={path}")
        told = json.loads(get(self.store, "mooncake/ram/node-b"))
        del told["timestamp"], told["te"]["written"]
        devices = [{"name": "mlx5_2", "lid": 17, "gid": "fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:01"},
                   {"name": "mlx5_3", "lid": 22, "gid": "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:02"}]
        self.assertEqual(told, {"buffers": [], "name": "node-b", "server_name": "node-b", "protocol": "rdma",
                                "devices": devices, "priority_matrix": rows,
                                "tcp_data_port": 0, "tcp_proto_version": 1, "te": NO_LIFE})
        self.assertRegex(self.good("show", "node-b"), r"(?m)^  gid fe:80:\S+  lid 17  name mlx5_2$")

    def test_registered_already(self):
        self.good("register", "node-b")
        self.bad("register", "node-b", says="registered already, and has no engine; --force")
        self.good("register", "--force", "node-b")
        b = self.peer("node-b")
        b.region(4096)
        before = get(self.store, "mooncake/ram/node-b")
        self.bad("register", "node-b", says="by an engine at 127.0.0.1 port")
        self.assertEqual(get(self.store, "mooncake/ram/node-b"), before)
        self.good("register", "node-b", "--force")
        self.assertEqual(json.loads(get(self.store, "mooncake/ram/node-b"))["buffers"], [])
        self.end(b)

    def test_announced_but_not_yet_published(self):
        self.store.put("mooncake/rpc_meta/x", '{"ip_or_host_name":"127.0.0.1","rpc_port":1}')
        self.bad("register", "x", says="by an engine at 127.0.0.1 port 1")

    def test_clusters(self):
        self.good("register", "a", MC_METADATA_CLUSTER_ID="blue")
        self.good("register", "b", "--cluster_id=red/", MC_METADATA_CLUSTER_ID="blue")
        self.good("register", "c", "--cluster_id=", MC_METADATA_CLUSTER_ID="blue")
        self.assertIn("a", get(self.store, "mooncake/blue/ram/a"))
        self.assertIn("b", get(self.store, "mooncake/red/ram/b"))
        self.assertIn("c", get(self.store, "mooncake/ram/c"))
        self.bad("show", "a", says="no segment 'a'")
        self.assertIn("none is up", self.good("show", "a", "--cluster-id", "blue"))
        self.assertEqual(list(self.listed()), ["c"])
        self.assertEqual(list(self.listed(MC_METADATA_CLUSTER_ID="blue")), ["a"])

    def test_list(self):
        self.assertEqual(self.good("list").split("\n"),
                         ["NAME  KIND  PROTOCOL  BUFFERS  BYTES  HOSTS  AGE  ENGINE  ANSWERS"])
        b = self.peer("node-b")
        b.region(4096)
        b.region(8192)
        self.good("register", "node-a")
        self.store.put("mooncake/nvmeof/disk", json.dumps(
            {"server_name": "node-b", "protocol": "nvmeof",
             "buffers": [{"length": 1 << 40, "file_path": "/mnt/x", "local_path_map": {"a": "/x", "b": "/y"}}]}))
        self.store.put("mooncake/ram/bad", '{"name":"bad"}')
        self.store.put("mooncake/ram/odd", '{"name":"odd","protocol":"\\u001b[31m"}')
        self.store.put("mooncake/rpc_meta/odd", '{"ip_or_host_name":"h"}')
        self.store.put("mooncake/blue/ram/other", "{}")
        where = json.loads(get(self.store, "mooncake/rpc_meta/node-b"))
        engine = f"{where['ip_or_host_name']}:{where['rpc_port']}"
        lines = self.good("list").split("\n")
        rows = [line.split(None, 9) for line in lines]
        ages = [row.pop(6) for row in rows]
        self.assertEqual(rows, [
            ["NAME", "KIND", "PROTOCOL", "BUFFERS", "BYTES", "HOSTS", "ENGINE", "ANSWERS"],
            ["bad", "ram", "-", "-", "-", "-", "-", "-",
             "malformed: segment descriptor: key 'protocol' is missing, must be a string"],
            ["node-a", "ram", "tcp", "0", "0", "-", "-", "-"],
            ["node-b", "ram", "tcp", "2", "12288", "-", engine, "yes"],
            ["nvmeof/disk", "nvmeof", "nvmeof", "1", str(1 << 40), "2", engine, "yes"],
            ["odd", "ram", "?[31m", "0", "0", "-", "-", "-",
             "malformed: rpc_meta of odd: key 'rpc_port' is no port"]])
        self.assertRegex(" ".join(ages), r"^AGE - \d+[sm] \d+[sm] - -$")
        for word in ("KIND", "PROTOCOL", "ENGINE", "ANSWERS"):
            at = lines[0].index(word)
            for line in lines[1:]:
                self.assertRegex(line[at - 1:at + 1], r"^ \S", lines)
        told = self.listed()
        self.assertEqual(list(told), ["bad", "node-a", "node-b", "nvmeof/disk", "odd"])
        self.assertIn("protocol", told["bad"]["error"])
        self.assertGreaterEqual(told["node-b"].pop("age_s"), 0)
        self.assertEqual(told["node-b"], {"name": "node-b", "kind": "ram", "protocol": "tcp",
                                          "buffers": 2, "bytes": 12288, "rpc": engine, "answers": True})
        self.assertEqual([told["node-a"][key] for key in ("rpc", "answers")], [None] * 2)
        self.assertGreaterEqual(told["node-a"]["age_s"], 0)
        self.end(b)

    def test_show(self):
        b = self.peer("node-b")
        addresses = [int(b.ask("region", 4096, right)[1]) for right in (1, 2, 3)]
        stored = get(self.store, "mooncake/ram/node-b")
        self.assertEqual(self.good("show", "node-b", "--json"), stored.rstrip("\n"))
        text = self.good("show", "node-b")
        told = json.loads(stored)
        self.assertRegex(text, r"(?m)^name +node-b$")
        self.assertRegex(text, rf"(?m)^incarnation +{told['te']['incarnation']}, version \d+$")
        self.assertRegex(text, rf"(?m)^tcp_data_port +{told['tcp_data_port']}$")
        self.assertRegex(text, r"(?m)^engine +127\.0\.0\.1:\d+, answers$")
        self.assertRegex(text, r"(?m)^buffers +3, 12288 bytes$")
        rights = sorted(zip(addresses, ("read", "write", "read, write")))
        self.assertEqual([line.split(None, 2) for line in text.split("\n") if "0x" in line],
                         [[f"0x{a:016x}", "4096", right] for a, right in rights])
        self.end(b)

    def test_show_of_other_makes(self):
        self.store.put("mooncake/ram/r", json.dumps(
            {"name": "r", "protocol": "rdma", "buffers": [], "extra": "\x1b[2J", "long": list(range(999)),
             "devices": [{"name": "mlx5_2", "lid": 17, "gid": "fe:00"}],
             "priority_matrix": {"cpu:0": [["mlx5_2"], ["mlx5_3", "mlx5_4"]], "cpu:1": [[], []]}}))
        self.store.put("mooncake/cxl/d", json.dumps(
            {"server_name": "n", "protocol": "cxl", "buffers": [{"length": 5, "name": "n", "offset": 64}]}))
        text = self.good("show", "/ram/r")
        self.assertRegex(text, r"(?m)^devices +1\n  name mlx5_2  lid 17  gid fe:00$")
        self.assertRegex(text, r"(?m)^  cpu:0 +preferred: mlx5_2  others: mlx5_3 mlx5_4$")
        self.assertRegex(text, r"(?m)^  cpu:1 +preferred: none  others: none$")
        self.assertRegex(text, r"(?m)^extra +\?\[2J$")
        self.assertRegex(text, r"(?m)^long +\(\d+ bytes, which --json shows\)$")
        text = self.good("show", "cxl/d")
        self.assertIn("buffers            1, 5 bytes\n  length 5  name n  offset 64", text)
        self.store.put("mooncake/ram/bad", "[")
        self.bad("show", "bad", says="malformed")
        self.assertEqual(self.good("show", "bad", "--json"), "[")
        self.bad("show", "none", says="no segment 'none'")

    def test_wrong_names(self):
        """They are told with those that may have been meant."""
        for name in ("prefill-0", "decode-0", "decode-1"):
            self.good("register", name)
        self.store.put("mooncake/nvmeof/kvcache", '{"server_name":"x","protocol":"nvmeof"}')
        for command in ("show", "unregister"):
            self.bad(command, "prefil-0", says="did you mean 'prefill-0'?")
            self.bad(command, "decode-7", says="did you mean 'decode-")
            self.bad(command, "nvmeof/kvcahe", says="did you mean 'nvmeof/kvcache'?")
            self.bad(command, "router", says="there is no segment 'router'")
            self.bad(command, "router", says="te_segment list shows what is there")
        self.bad("mount", "kvcach", "--path=/x", says="did you mean 'nvmeof/kvcache'?")

    def test_unregister(self):
        self.good("register", "node-a")
        self.assertEqual(self.good("unregister", "node-a"), "removed mooncake/ram/node-a")
        self.bad("unregister", "node-a", says="nothing was removed")
        b = self.peer("node-b")
        self.bad("unregister", "node-b", says="its engine answers at 127.0.0.1 port")
        self.assertIsNotNone(get(self.store, "mooncake/ram/node-b"))
        b.stop(signal.SIGKILL)
        both = "removed mooncake/rpc_meta/node-b\nremoved mooncake/ram/node-b"
        self.assertEqual(self.good("unregister", "node-b"), both)
        c = self.peer("node-b")
        self.assertEqual(self.good("unregister", "--force", "node-b"), both)
        self.end(c)

    def test_unregister_of_files_leaves_the_engine_alone(self):
        b = self.peer("node-b")
        self.store.put("mooncake/nvmeof/node-b", '{"server_name":"node-b","protocol":"nvmeof"}')
        self.assertEqual(self.good("unregister", "nvmeof/node-b"), "removed mooncake/nvmeof/node-b")
        self.assertIsNotNone(get(self.store, "mooncake/rpc_meta/node-b"))
        self.store.put("mooncake/ram/bad", "[")
        self.store.put("mooncake/rpc_meta/bad", "[")
        self.good("unregister", "bad")
        self.end(b)

    def test_unregister_of_a_bare_name(self):
        """Files go where no segment of memory has the name; a kind that is given counts."""
        self.store.put("mooncake/nvmeof/kv", '{"server_name":"x","protocol":"nvmeof"}')
        self.good("register", "kv")
        self.assertEqual(self.good("unregister", "kv"), "removed mooncake/ram/kv")
        self.bad("unregister", "ram/kv", says="no segment 'kv': nothing was removed")
        self.assertEqual(self.good("unregister", "kv"), "removed mooncake/nvmeof/kv")
        self.bad("unregister", "kv", says="no segment 'kv': nothing was removed")

    def test_names_that_are_refused(self):
        for name in ("a/b", "nvmeof/a", "/a", "x" * 600):
            self.bad("register", name, says="cannot register", rc=2)
        self.bad("register", "", says="name is missing", rc=2)
        for name in ("rpc_meta/x", "a/b/c", "nvmeof/", "/", "ram/"):
            self.bad("show", name, says="no name of a segment", rc=2)
            self.bad("unregister", name, says="no name of a segment", rc=2)


for _kind in (stores.Metad, stores.Redis, stores.Etcd):
    globals()["On" + _kind.__name__] = type("On" + _kind.__name__, (Base, unittest.TestCase),
                                            {"kind": _kind})
del _kind


class Rdma(Store, unittest.TestCase):
    """What register takes for an engine that will speak rdma, with the NICs of this host and without."""
    kind = stores.Metad

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=te.Workdir.get())
        self.environment = {"TE_SYSFS_PATH": self.folder}

    def file(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def nic(self, name, lid, *gids):
        port = f"class/infiniband/{name}/ports/1"
        self.file(f"{port}/state", "4: ACTIVE\n")
        self.file(f"{port}/lid", f"0x{lid:x}\n")
        for i, gid in enumerate(gids):
            self.file(f"{port}/gids/{i}", gid + "\n")

    def told(self, *args, **variables):
        self.good("register", "b", "--force", "--protocol=rdma", *args, **self.environment, **variables)
        root = json.loads(get(self.store, "mooncake/ram/b"))
        return [tuple(d.values()) for d in root["devices"]], root["priority_matrix"]

    def refused(self, *args, says, rc=2):
        self.bad("register", "b", *args, says=says, rc=rc, **self.environment)
        self.assertIsNone(get(self.store, "mooncake/ram/b"))

    def test_nics_of_this_host(self):
        self.nic("n0", 17, "fe80:0000:0000:0000:0000:0000:0000:0001")
        self.nic("n1", 0, "0000:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:ffff:0a00:0002",
                 "2001:0db8:0000:0000:0000:0000:0000:0003")
        for node in (0, 2):
            os.makedirs(f"{self.folder}/devices/system/node/node{node}")
        n0 = ("fe:80" + ":00" * 13 + ":01", 17, "n0")
        n1 = ("00" + ":00" * 9 + ":ff:ff:0a:00:00:02", 0, "n1")
        devices, matrix = self.told("--devices=n1,n0")
        self.assertEqual(devices, [n1, n0])
        self.assertEqual(matrix, {at: [["n1", "n0"], []] for at in ("cpu:0", "cpu:2", "cuda:0", "hip:0")})
        rows = {"cpu:0": [["n0"], ["n1"]]}
        self.assertEqual(self.told(f"--matrix={self.file('m', json.dumps(rows))}"), ([n0, n1], rows))
        devices, _ = self.told("--devices=n1", MC_GID_INDEX="2")
        self.assertEqual(devices, [("20:01:0d:b8" + ":00" * 11 + ":03", 0, "n1")])
        devices, _ = self.told("--devices=n0/3/2001:db8::1,n1")
        self.assertEqual(devices, [("20:01:0d:b8" + ":00" * 11 + ":01", 3, "n0"), n1])

    def test_refused(self):
        self.nic("n0", 17, "fe80:0000:0000:0000:0000:0000:0000:0001")
        self.nic("deaf", 17)
        matrix = self.file("m", '{"cpu:0":[["n0"],["n1"]]}')
        rdma = "--protocol=rdma"
        self.refused("--protocol=rmda", says="expected tcp|rdma")
        self.refused("--devices=n0", says="are of --protocol=rdma")
        self.refused(f"--matrix={matrix}", says="are of --protocol=rdma")
        self.refused(rdma, says="takes the NICs by --devices or --matrix")
        self.refused(rdma, "--devices=", says="takes the NICs by --devices or --matrix")
        self.refused(rdma, "--file=/x", says="--protocol is of a segment of memory")
        self.refused(rdma, "--devices=n7", says="no device 'n7': for an engine of another host", rc=1)
        self.refused(rdma, "--devices=deaf", says="has no GID at its port 1", rc=1)
        for item, says in (("n0,n0", "names 'n0' twice"), ("n0,", "'' is no name of a device"),
                           ("n0/1", "neither NAME nor NAME/LID/GID"), ("n0/x/::1", "'x' is no LID"),
                           ("n0/65536/::1", "'65536' is no LID"), ("n0/-1/::1", "'-1' is no LID"),
                           ("n0/1/", "'' is no GID"), ("n0/1/fe:80", "'fe:80' is no GID"),
                           ("n0/1/" + "0:" * 15 + "0", "is no GID"), ("n0/1/::", "not all of it is 0"),
                           ("n0/1/" + "00:" * 15 + "00", "not all of it is 0"), ("n" * 64 + "/1/::1", "is no name of a device"),
                           (",".join(f"d{i}/0/::1" for i in range(257)), "names more than 256 devices")):
            self.refused(rdma, f"--devices={item}", says=says)
        self.refused(rdma, f"--matrix={matrix}", says="no device 'n1'", rc=1)
        self.refused(rdma, "--devices=n0", f"--matrix={matrix}", says="--matrix names 'n1', which --devices does not")
        self.refused(rdma, "--devices=n0,n1/0/::1,n2/0/::1", f"--matrix={matrix}",
                     says="--devices names 3 devices, --matrix only 2 of them")
        self.refused(rdma, "--matrix=/none", says="cannot read --matrix=/none: No such file", rc=1)
        self.refused(rdma, f"--matrix={self.folder}", says="Is a directory", rc=1)
        self.refused(rdma, f"--matrix={self.file('empty', '{}')}", says="names no NIC")
        self.refused(rdma, f"--matrix={self.file('bad', '[]')}", says="topology: it is no JSON object", rc=1)
        self.refused(rdma, f"--matrix={self.file('big', ' ' * (1 << 20))}", says="is larger than", rc=1)

    def test_engine_comes_later(self):
        """Peers open what is known in advance, and reach the engine when it is up."""
        fabric = rdma.Fabric(nics=2)
        self.addCleanup(fabric.remove)

        def peer(name, side):
            return self.peer(name, options=["transport=rdma", *fabric.options(side)], env=fabric.environment(side))

        here = dict(option.split("=", 1) for option in fabric.options("b"))
        self.good("register", "node-b", "--protocol=rdma", "--devices=b0,b1", **here)
        a = peer("node-a", "a")
        index, _ = a.region(2 * SIZE)
        seg = a.ask("open", "node-b")[0]
        state, error, moved, text = a.move("write", seg, index, 0, 4096, SIZE)
        self.assertEqual((state, error, moved), (INVALID, STALE, 0), text)
        b = peer("node-b", "b")
        there, remote = b.region(SIZE)
        a.round_trip(seg, index, SIZE, remote, 5)
        b.ask("check", there, 0, SIZE, 5)
        self.end(b, a)
        self.assertIsNone(get(self.store, "mooncake/ram/node-b"))


class Usage(unittest.TestCase):
    def check(self, *args, says, rc=2, **variables):
        proc = segment(*args, **variables)
        self.assertEqual((proc.rc, proc.output()), (rc, ""), proc)
        self.assertIn(says, proc.error_output())

    def test_wrong(self):
        server = "--metadata_server=http://127.0.0.1:1/metadata"
        self.check(says="a command is missing")
        self.check("bogus", server, says="unknown command 'bogus'")
        self.check("list", says="etcd://127.0.0.1:2379")
        self.check("list", "--metadata_server=P2PHANDSHAKE", says="stores nothing")
        self.check("list", "x", server, says="takes no name")
        self.check("show", server, says="the name is missing")
        self.check("show", "x", "y", server, says="'y'")
        self.check("mount", "x", "--json", "--path=/x", server, says="mount takes no --json")
        self.check("unregister", "x", "--file=/x", server, says="unregister takes no --file")
        self.check("show", "x", "--force", server, says="takes no --force")
        self.check("register", "x", "--json", server, says="takes no --json")
        self.check("list", "--bogus", server, says="--bogus")
        self.check("list", server, server, says="--metadata_server is given twice")
        self.check("list", server, "--json", "--nojson", says="--json is given twice")
        self.check("register", "x", server, "--file=/x", "--length=1", "--length=2", says="--length is given twice")
        self.check("list", server, "--cluster_id=" + "x" * 300, says="MC_METADATA_CLUSTER_ID")
        self.check("list", "--metadata_server=gopher://x", says="gopher", rc=1)

    def test_server_that_is_away(self):
        te.need("http")
        server = f"--metadata_server=http://127.0.0.1:{te.dead_port()}/metadata"
        for args in (("list",), ("show", "x"), ("register", "x"), ("unregister", "x"),
                     ("register", "x", "--force"), ("unregister", "x", "--force")):
            self.check(*args, server, says="is the metadata server up", rc=1)

    def test_server_that_cannot_list(self):
        te.need("http")
        store = NoLists()
        self.addCleanup(store.close)
        self.check("list", f"--metadata_server={store.url}", says="gives no list of keys (status 400", rc=1)

    def test_help(self):
        proc = segment("--help")
        self.assertEqual(proc.rc, 0, proc)
        for word in ("COMMAND [NAME]", "register NAME", "list", "show NAME", "unregister NAME",
                     "register NAME --file", "mount NAME --path", "mount NAME --connect", "unmount NAME"):
            self.assertIn(word, proc.output())
        self.assertRegex(segment("--version").output(), r"^te_segment \d")


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    te.main()
