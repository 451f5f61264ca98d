#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""What others may have put into a metadata store: bad descriptors, huge values, odd names."""
import gc
import json
import urllib.parse

import te_proc as te
import te_stores as stores

MIB = 1 << 20
SIZE = 64 << 10
WHERE = b'{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
VALUE_MAX = 16 * MIB  # of TE_METADATA_MAX_VALUE
SLACK = 6 * MIB
TREE = 8 * MIB  # of keys other than lists, whatever they are
BUFFER = {"addr": 4096, "length": 4096, "name": "x"}
GOOD = {"name": "x", "protocol": "tcp", "tcp_data_port": 1, "tcp_proto_version": 2, "buffers": [BUFFER],
        "timestamp": "2026-01-01 00:00:00.000000"}
RDMA = {"name": "x", "protocol": "rdma", "devices": [{"name": "d0", "lid": 0, "gid": "00:00"}],
        "priority_matrix": {"cpu:0": [["d0"], []]}}
CXL = {"name": "x", "protocol": "cxl", "cxl_name": "/dev/dax0.0", "cxl_base_addr": 4096,
       "buffers": [{"name": "x", "offset": 0, "length": 4096}]}
UNSUPPORTED = -409
ODD_NAMES = ("a b", "\u00e9\u4e16\U0001f600", "100%", "%41", "a?b", "a#b", "a&key=b", "a=b", "a+b", "a;b", 'a"b',
             "a\\b", "a\nb", "a\tb", "a\r\nGET * HTTP*1.1", "'; DROP TABLE x; --", "*", "a*", "[a]", "..",
             "x" * 200, b"\xff\xfe", b"\x01\x7f")


def without(key):
    return {k: v for k, v in GOOD.items() if k != key}


def with_buffer(**changes):
    return {**GOOD, "buffers": [{**BUFFER, **changes}]}


# what is in the store, and the words of which the error must have one
BAD = (
    (b"", ()), (b"\n", ()), (b"{", ()), (b"[]", ()), (b"7", ()), (b'"x"', ()), (b"null", ()), (b"{}", ("name",)),
    (b"\0" * 100, ()), (b"\xff\xfe\xfd" * 100, ()), (b"[" * 100000, ()), (b'{"name":"x\xff"}', ()),
    (json.dumps(GOOD).encode()[:-1], ()), (json.dumps(GOOD).encode() + b"}", ()),
    (b'{"name":"x\nW1120 te] no such thing', ()), (b'{"name":\r\nW1120', ()), (b'{"name":"x","name":', ()),
    (b'{"a":' * 5000, ()),
    (without("name"), ("name",)), (without("protocol"), ("protocol",)),
    ({**GOOD, "name": 7}, ("name",)), ({**GOOD, "name": ""}, ("name",)), ({**GOOD, "name": None}, ("name",)),
    ({**GOOD, "protocol": ["tcp", "rdma"]}, ("protocol",)), ({**GOOD, "protocol": {}}, ("protocol",)),
    ({**GOOD, "tcp_data_port": "15000"}, ("tcp_data_port",)), ({**GOOD, "tcp_data_port": 65536}, ("tcp_data_port",)),
    ({**GOOD, "tcp_data_port": -1}, ("tcp_data_port",)), ({**GOOD, "tcp_data_port": 1.5}, ("tcp_data_port",)),
    ({**GOOD, "tcp_proto_version": "2"}, ("tcp_proto_version",)),
    ({**GOOD, "tcp_data_host": 7}, ("tcp_data_host",)), ({**GOOD, "tcp_data_host": "a b"}, ("tcp_data_host",)),
    ({**GOOD, "tcp_data_host": "127.0.0.1:80"}, ("tcp_data_host",)),
    ({**GOOD, "buffers": {}}, ("buffers",)), ({**GOOD, "buffers": [7]}, ("buffer",)),
    ({**GOOD, "buffers": [BUFFER, BUFFER], "te": {"v": 1, "incarnation": "0" * 16, "version": 1}}, ("buffer",)),
    (with_buffer(addr="4096"), ("addr",)), (with_buffer(addr=-1), ("addr",)), (with_buffer(addr=0), ("addr",)),
    (with_buffer(addr=1 << 63), ("addr", "int")), (with_buffer(length=0), ("length",)),
    (with_buffer(length=(1 << 63) - 1), ("buffers[0]",)), (with_buffer(length=None), ("length",)),
    (with_buffer(name=7), ("name",)),
    ({**GOOD, "te": {"v": 1, "incarnation": 7, "version": 1}}, ("incarnation",)),
    ({**GOOD, "te": {"v": 1, "incarnation": "00", "version": 1}}, ("incarnation",)),
)
# keys that belong to a transport which a build need not have
BAD_RDMA = (
    ({**RDMA, "buffers": [{**BUFFER, "lkey": [1, 2], "rkey": [1, 2]}]}, ("lkey", "rkey")),
    ({**RDMA, "buffers": [{**BUFFER, "lkey": [1, 2], "rkey": [1]}]}, ("lkey", "rkey")),
    ({**RDMA, "devices": "d0", "buffers": []}, ("devices",)),
    ({**RDMA, "priority_matrix": {"cpu:0": [["d0"]]}, "buffers": []}, ("priority_matrix", "cpu:0")),
)
BAD_WHERE = (b"", b"{", b"[]", b"{}", b'{"ip_or_host_name":"127.0.0.1"}', b'{"rpc_port":15000}',
             b'{"ip_or_host_name":"","rpc_port":15000}', b'{"ip_or_host_name":7,"rpc_port":15000}',
             b'{"ip_or_host_name":"127.0.0.1","rpc_port":0}', b'{"ip_or_host_name":"127.0.0.1","rpc_port":65536}',
             b'{"ip_or_host_name":"127.0.0.1","rpc_port":"15000"}',
             b'{"ip_or_host_name":"' + b"h" * 5000 + b'","rpc_port":15000}', b"\0" * 5000)


def memory(proc, what):
    """VmRSS or VmHWM of a process, in bytes."""
    with open(f"/proc/{proc.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(what))


def reset_peak(proc):
    with open(f"/proc/{proc.pid}/clear_refs", "w", encoding="utf-8") as f:
        f.write("5")


class Hostile(stores.StoreCase):
    def make_store(self):
        return self.Store(flags=("--max-value=128M",)) if self.Store is stores.Metad else self.Store()

    env = None  # of the engine

    def setUp(self):
        super().setUp()
        self.node = self.peer("node-b", env=self.env)

    def tearDown(self):
        """Whatever it read, the engine works."""
        target = self.peer("node-a")
        self.link(self.node, target, SIZE)
        self.quit(self.node, target)

    def refused(self, name):
        text = self.node.refused("open", urllib.parse.quote(name))
        self.assertLess(len(text), 2000)
        return text


@stores.per_store()
class Descriptors(Hostile):
    def test_bad_descriptors(self):
        self.store.put("mooncake/rpc_meta/x", WHERE)
        for value, words in BAD:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            with self.subTest(value=data[:120]):
                self.store.put("mooncake/ram/x", data)
                text = self.refused("x")
                self.assertNotIn("has no key", text)
                self.assertNotIn("\\x", text)  # nothing of the value can end a line of a log
                self.assertTrue(any(word in text for word in words or ("mooncake/ram/x", "segment x")), text)

    def test_keys_of_a_transport(self):
        """They are refused by name, or nothing is carried there."""
        self.store.put("mooncake/rpc_meta/x", WHERE)
        index, _ = self.node.region(SIZE)
        for value, words in BAD_RDMA:
            with self.subTest(value=value):
                self.store.put("mooncake/ram/x", json.dumps(value).encode())
                self.node.send("open", "x")
                answer = self.node.reply()
                if answer[0] == "err":
                    self.assertTrue(any(word in " ".join(answer) for word in words), answer)
                    continue
                self.node.send_move("read", answer[1], index, 0, BUFFER["addr"], 64, deadline_ms=3000)
                moved = self.node.reply()
                self.assertNotEqual(moved[:2], ["ok", str(te.COMPLETED)], moved)
                self.node.ask("close", answer[1])

    def test_offsets_into_a_device(self):
        """They are no memory that is missing, but out of reach."""
        self.store.put("mooncake/rpc_meta/x", WHERE)
        self.store.put("mooncake/ram/x", json.dumps(CXL).encode())
        index, _ = self.node.region(SIZE)
        segment = self.node.open("x")
        _, error, moved, text = self.node.move("read", segment, index, 0, 4096, 64)
        self.assertEqual((error, moved), (UNSUPPORTED, 0), text)
        self.assertIn("no installed transport reaches its engine", text)
        self.node.ask("close", segment)

    def test_bad_rpc_meta(self):
        self.store.put("mooncake/ram/x", json.dumps(GOOD).encode())
        self.assertIn("mooncake/rpc_meta/x", self.refused("x"))
        for value in BAD_WHERE:
            with self.subTest(value=value[:120]):
                self.store.put("mooncake/rpc_meta/x", value)
                text = self.refused("x")
                self.assertNotIn("has no key", text)
                self.assertIn("rpc_meta", text)

    def test_name_of_another(self):
        """A descriptor that bears another name than its key leads to nobody, or to whom it names."""
        self.store.put("mooncake/ram/x", json.dumps({**GOOD, "name": "nobody"}).encode())
        self.store.put("mooncake/rpc_meta/x", WHERE)
        self.assertIn("mooncake/rpc_meta/nobody", self.refused("x"))

    def test_bad_after_open(self):
        """A peer that is open goes on when its keys are spoilt; refresh and reopening end in good order."""
        target = self.peer("node-a")
        index, segment, remote = self.link(self.node, target, SIZE)
        for value in (b"", b"[", b"{}", b"\0" * 1000):
            for key in stores.keys_of("node-a"):
                self.store.put(key, value)
                self.node.round_trip(segment, index, SIZE, remote, 1)
                self.node.send("refresh", "node-a")
                self.assertIn(self.node.reply()[0], ("ok", "err"))
                self.node.round_trip(segment, index, SIZE, remote, 2)
        self.node.ask("close", segment)
        target.close()


@stores.per_store()
class Names(Hostile):
    def test_odd_names(self):
        for name in ODD_NAMES:
            with self.subTest(name=name):
                raw = stores.to_bytes(name)
                self.assertIn("has no key", self.refused(name))
                if self.Store is stores.Metad and b"\n" in raw:
                    continue  # te_metad refuses such a key
                self.store.put(b"mooncake/ram/" + raw, b'{"name":7}')
                text = self.refused(name)
                self.assertNotIn("has no key", text)
                self.assertIn("name", text)

    def test_engines_of_odd_names(self):
        """Whoever can be created can be found."""
        for name in ODD_NAMES:
            if isinstance(name, bytes) or any(c < " " for c in name):
                continue
            with self.subTest(name=name), self.peer(name) as target:
                self.assertEqual(target.segment, name)
                self.assertEqual(len(self.there(name)), 2)
                _, remote = target.region(SIZE)
                segment = self.node.open(name)
                index, _ = self.node.region(2 * SIZE)
                self.node.round_trip(segment, index, SIZE, remote, 1)
                self.node.ask("close", segment)
                self.quit(target)
                self.assertEqual(self.there(name), [])

    def test_name_with_a_slash(self):
        """It is a whole key below the prefix."""
        self.store.put("mooncake/nvmeof/x", b'{"name":7}')
        self.assertIn("name", self.refused("nvmeof/x"))
        self.assertIn("mooncake/nvmeof/y", self.refused("nvmeof/y"))


@stores.per_store()
class Huge(Hostile):
    """Values as large as any that is taken, and larger."""
    options = ("TE_METADATA_TIMEOUT_MS=60000",)
    env = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # what is freed is given back at once

    def make_store(self):
        if self.Store is stores.Etcd:
            return self.Store(flags=("--max-request-bytes", str(256 * MIB)))
        return super().make_store()

    def setUp(self):
        super().setUp()
        self.store.put("mooncake/rpc_meta/x", WHERE)
        self.node.refused("open", "x")
        self.before = memory(self.node, "VmRSS")

    def opened(self, value, most):
        """What the engine says to it; its memory grows by so much at most meanwhile, and by little in the end."""
        self.store.put("mooncake/ram/x", value)
        gc.collect()
        reset_peak(self.node)
        text = self.refused("x")
        if te.SLOW == 1:  # a sanitizer keeps what was freed
            self.assertLess(memory(self.node, "VmHWM") - self.before, most + SLACK)
            self.node.refused("open", "y")  # a connection may hold its last answer until the next
            self.assertLess(memory(self.node, "VmRSS") - self.before, SLACK)
        return text

    def test_large_values(self):
        """as large as they may be: read, with three times their memory; etcd has a third more, in base64"""
        text = 4 * VALUE_MAX // 3 if self.Store is stores.Etcd else VALUE_MAX
        for head, fill in ((b"", b"\0"), (b'{"name":"', b"x"), (b"", b"["), (b"", b" "), (b'{"name":"x","pad":"', b"y"),
                           (b"", b"\xff")):
            with self.subTest(head=head, fill=fill):
                said = self.opened(head + fill * (VALUE_MAX - len(head)), 3 * text)
                self.assertTrue("mooncake/ram/x" in said or "segment x" in said, said)
        self.store.delete("mooncake/ram/x")

    def test_values_of_much(self):
        """as large as they may be, of small things: no tree is made of them"""
        text = 4 * VALUE_MAX // 3 if self.Store is stores.Etcd else VALUE_MAX
        for head, fill in ((b'{"name":"x","protocol":"tcp","y":[', b"[],"), (b'{"name":"x","protocol":"tcp","y":[', b"{},"),
                           (b'{"name":"x","protocol":"tcp","buffers":[', b"[],"),
                           (b'{"name":"x","protocol":"nvmeof","buffers":[{"file_path":"/x","length":1,"y":[', b"{},"),
                           (b'{"buffers":[' + b'{"addr":1,"length":1,"name":"x"},' * 1000 + b"7,", b"{},")):
            tail = b"0]" + b"}]" * (b"file_path" in head) + (b',"name":"x","protocol":"tcp"}' if b"7," in head else b"}")
            value = head + fill * ((VALUE_MAX - len(head) - len(tail)) // len(fill)) + tail
            with self.subTest(head=head[:60], fill=fill):
                said = self.opened(value, 3 * text + TREE)
                self.assertTrue("segment descriptor" in said or "segment 'x'" in said, said)
        self.store.delete("mooncake/ram/x")

    def test_larger_values(self):
        """larger by a byte, or by much: refused before anything is made of them"""
        for size in (VALUE_MAX + 1, 40 * MIB):
            if self.Store is not stores.Metad and size == VALUE_MAX + 1:
                size += 65536  # there is room for what is around a value
            for head, fill in ((b"", b"[],"), (b'{"name":"x","pad":"', b"y")):
                with self.subTest(size=size, head=head, fill=fill):
                    said = self.opened((head + fill * (size // len(fill) + 1))[:size], 4 * VALUE_MAX // 3)
                    self.assertIn("TE_METADATA_MAX_VALUE", said)
        self.store.delete("mooncake/ram/x")

    def test_limit_is_an_option(self):
        """the descriptor of an engine that raises it is read by those that do, too"""
        value = {**GOOD, "pad": "y" * (VALUE_MAX + MIB)}
        self.store.put("mooncake/ram/x", json.dumps(value).encode())
        self.assertIn("TE_METADATA_MAX_VALUE", self.refused("x"))
        with te.Peer(name="node-c", metadata=self.store.url,
                     options=(*self.options, f"TE_METADATA_MAX_VALUE={32 * MIB}")) as other:
            other.open("x")
            self.quit(other)
        self.store.delete("mooncake/ram/x")

    def test_huge_rpc_meta(self):
        self.store.put("mooncake/ram/x", json.dumps(GOOD).encode())
        for size in (5000, VALUE_MAX - 20, VALUE_MAX + 100000):
            self.store.put("mooncake/rpc_meta/x", b'{"ip_or_host_name":"' + b"h" * size)
            self.assertIn("rpc_meta", self.refused("x"))


if __name__ == "__main__":
    te.main()
