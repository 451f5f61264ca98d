# SPDX-License-Identifier: Apache-2.0
"""The interface of this package, against an engine in another process."""

import asyncio
import ctypes
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from array import array

import transfer_engine as te
from peer import noise
from support import HANG_S, HOST, TCP, Case, digest, pieces, signal_in_a_call, until
from transfer_engine._batch import submit_options
from transfer_engine._engine import _asked_port
from transfer_engine._errors import _CODES
from transfer_engine._memory import span

MIB = 1 << 20

WITH_RECORDS = """
import logging, os
logging.basicConfig(level=logging.DEBUG, stream=open(os.devnull, "w"))
"""
ENDS_IN_THE_MIDDLE = """
import asyncio, atexit, threading

lock = threading.Lock()
def last():
    lock.acquire()  # one that a thread holds around its calls
    print("the lock is free")
    try:
        segment.write(address, address + 300000, 777)
    except te.EngineClosed as e:
        print(type(e).__name__)
atexit.register(last)  # handlers run in reverse order: after that of the package

import transfer_engine as te
from transfer_engine import mooncake

engine = te.Engine(name="127.0.0.1")
memory = engine.alloc(1 << 20)
segment = engine.open(engine.name)
address = engine.register(memory).address
batch = segment.start_write([address] * 50, [address + 500000] * 50, [9999] * 50)
theirs = mooncake.TransferEngine()
theirs.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
theirs.register_memory(address, 1 << 20)
started = threading.Barrier(7)

def plain():
    while True:
        segment.write(address, address + 300000, 777)
def locked():
    while True:
        with lock:
            segment.write(address, address + 300000, 777)
def reopened():
    while True:
        with engine.open(engine.name) as other, other.start_read([address], [address + 9], [5]) as b:
            try:
                b.result()
            except Exception:
                pass
def of_mooncake():
    while True:
        theirs.transfer_sync_write(engine.name, address, address + 300000, 777)
async def awaited():
    while True:
        await segment.write_async(address, address + 300000, 777)
def run(work):
    started.wait()
    work()

works = plain, plain, locked, reopened, of_mooncake, lambda: asyncio.run(awaited())
for work in works:
    threading.Thread(target=run, args=(work,), daemon=True).start()
started.wait()
"""


class NumpyScalar(int):
    """What one element of an array of numpy is: an integer of a dtype."""

    dtype = "int64"
    itemsize = 8


class NoItems(bytearray):
    """Memory of a dtype, that does not say how large its elements are."""

    dtype = "int64"



class Transfers(Case):
    def both(self, **options):
        engine = te.Engine(name=HOST, options=options)
        self.addCleanup(engine.close)
        peer = self.peer(options=options)
        return engine, peer, engine.open(peer.name())

    def move(self, **options):
        engine, peer, segment = self.both(**options)
        remote = peer.register(length=3 * MIB, seed=1)
        there = noise(1, 3 * MIB)
        local = bytearray(os.urandom(3 * MIB))
        with engine.register(local):
            view = memoryview(local)
            for size, a, b in (
                (1, 0, 5),
                (4095, 3, 77),
                (65537, 11, 123),
                (2 * MIB + 3, 1001, 999),
            ):
                self.assertEqual(segment.write(view[a : a + size], remote + b), size)
                self.assertEqual(
                    peer.digest(address=remote, offset=b, length=size), digest(view[a : a + size])
                )
            peer.fill(address=remote, seed=1)
            for size, a, b in ((1, 9, 5), (8191, 13, 7), (100003, 17, 4097), (2 * MIB - 1, 5, 3)):
                before = bytes(local)
                self.assertEqual(segment.read(span(local).address + a, remote + b, size), size)
                self.assertSameBytes(local, before[:a] + there[b : b + size] + before[a + size :])

    def test_sizes_and_offsets(self):
        self.move()

    def test_sizes_and_offsets_over_tcp(self):
        self.move(**TCP)

    def test_batches(self):
        engine, peer, segment = self.both()
        total = 4 * MIB
        remote, local = peer.register(length=total, seed=2), engine.alloc(total)
        expected = bytearray(noise(2, total))
        local[:] = os.urandom(total)
        base = span(local).address
        with engine.register(local):
            plan = pieces(3, total, total // 700, 512)
            for a, b, n in plan:
                expected[b : b + n] = local[a : a + n]
            with segment.start_write(
                [base + a for a, _, _ in plan],
                [remote + b for _, b, _ in plan],
                [n for _, _, n in plan],
            ) as batch:
                self.assertEqual(batch.result(), sum(n for _, _, n in plan))
                self.assertTrue(batch.done())
                self.assertTrue(all(t.state == te.TransferState.COMPLETED for t in batch.tasks()))
            self.assertEqual(peer.digest(address=remote, offset=0, length=total), digest(expected))

            # Objects instead of addresses, of many kinds at once, and back.
            parts = [bytearray(1 + 37 * i) for i in range(40)]
            regions = engine.register_many(parts)
            offsets = [5003 * i for i in range(40)]
            with segment.start_read(parts, [remote + b for b in offsets]) as batch:
                batch.result()
            for part, b in zip(parts, offsets):
                self.assertSameBytes(part, expected[b : b + len(part)])
            engine.unregister(*[region.address for region in regions])

            with segment.prepare(
                [base + 4096 * i for i in range(9)],
                [remote + 8192 * i for i in range(9)],
                [1111 + i for i in range(9)],
            ) as prepared:
                prepared.start(te.Opcode.READ).result()
                prepared.start(te.Opcode.WRITE, [8, 2, 2]).result()
            for i in range(9):
                self.assertSameBytes(
                    local[4096 * i : 4096 * i + 1111 + i], expected[8192 * i : 8192 * i + 1111 + i]
                )
            with engine.start(
                [
                    (te.Opcode.READ, local[:100], segment, remote, None),
                    (te.Opcode.WRITE, base + 5000, segment, remote + 200, 50),
                ]
            ) as batch:
                self.assertEqual(batch.result(), 150)
            self.assertEqual(segment.start_read([], [], []).result(), 0)
            self.assertEqual(segment.buffers(), [(remote, total)])

    def test_warm(self):
        """What it has connected a transfer finds there; a closed segment and one that is gone are refused."""
        with te.Engine(name=HOST) as a, te.Engine(name=HOST) as b:
            segment = a.open(b.name)
            warmed = {by.transport: by for by in segment.warm(60)}
            self.assertGreater(warmed["tcp"].ready, 0)
            self.assertGreater(warmed["tcp"].seconds, 0)
            self.assertEqual([by.error for by in warmed.values()], [None] * len(warmed))
            again = {by.transport: by for by in segment.warm(0)}
            self.assertEqual(again["tcp"].ready, warmed["tcp"].ready)
            self.assertEqual(again["tcp"].opening + again["tcp"].failed, 0)
            with self.assertRaises(TypeError):
                segment.warm("1")
            b.close()

            def fails():
                try:
                    segment.warm(60)
                except te.TransferError as error:
                    return error
                return None

            gone = until(fails)  # its connections may still look whole
            self.assertEqual({by.transport for by in gone.warmed}, set(warmed))
            self.assertTrue(any(by.failed and by.error for by in gone.warmed))
            segment.close()
            with self.assertRaises(te.RequestError):
                segment.warm()

    def test_pages(self):
        """As a loop over the pages would move them, whatever array their numbers are in."""
        layers, blocks, size = 3, 40, 501
        ours = bytearray(os.urandom(layers * blocks * size))
        theirs = bytearray(layers * blocks * (size + 3))
        here, there = [5, 3, 4, 39, 0], [0, 1, 2, 17, 39]
        indexes = [(here, there), (array("I", here), array("I", there))]
        indexes += [(array("q", here), array("L", there)), (memoryview(array("Q", here)), there)]
        with te.Engine(name=HOST) as a, te.Engine(name=HOST) as b:
            a.register(ours)
            base = b.register(theirs).address
            segment = a.open(b.name)
            for mine, yours in indexes:
                theirs[:] = bytes(len(theirs))
                local = te.Pages(ours, blocks, size, mine, layer_stride=blocks * size)
                remote = te.Pages(base, blocks, layers * (size + 3), yours, layer_stride=size + 3)
                with segment.start_pages(te.Opcode.WRITE, local, remote, size, layers=layers) as w:
                    self.assertEqual(w.result(), layers * len(here) * size)
                expected = bytearray(len(theirs))
                for layer in range(layers):
                    for i, k in zip(here, there):
                        to, at = (k * layers + layer) * (size + 3), (layer * blocks + i) * size
                        expected[to : to + size] = ours[at : at + size]
                self.assertSameBytes(theirs, expected)
            ours[:] = bytes(len(ours))
            local, remote = te.Pages(ours, blocks, size), te.Pages(base, blocks, size)
            with segment.start_pages(te.Opcode.READ, local, remote, size, 7) as r:
                self.assertEqual(r.result(), 7 * size)
            self.assertSameBytes(ours[: 7 * size], theirs[: 7 * size])

    def test_pages_that_are_refused(self):
        with te.Engine(name=HOST) as a:
            ours = bytearray(1000)
            a.register(ours)
            s = a.open(a.name)
            pool = te.Pages(ours, 10, 100, [1, 10])
            theirs = bytearray(1000)
            here = te.Pages(a.register(theirs).address, 10, 100)
            for pages, error, text in [
                (pool, te.RequestError, r"local.index\[1\] is page 10, and local.pages is 10"),
                (te.Pages(ours, 11, 100, [1, 2]), BufferError, "1100 bytes are more than the 1000"),
                (te.Pages(ours, 10, 100, array("h", [1])), TypeError, "of 32 or 64 bits, not h"),
                (te.Pages(ours, 10, 100, NumpyScalar(5)), TypeError, "not the NumpyScalar"),
                (te.Pages(ours, 10, 100, NoItems(b"12345678")), TypeError, "of 32 or 64 bits"),
                (te.Pages(ours, 10, 100), TypeError, "count must be given"),
                (te.Pages(ours, 10, -1, [1]), ValueError, "local stride: -1 is negative"),
                (te.Pages(ours, 10, 99, [1]), te.RequestError, "overlap"),
            ]:
                with self.assertRaisesRegex(error, text):
                    s.start_pages(te.Opcode.READ, pages, here, 100)
            with self.assertRaisesRegex(ValueError, "must be as many"):
                s.start_pages(te.Opcode.READ, pool, here, 100, 3)
            with self.assertRaisesRegex(ValueError, "parts: -1 is negative"):
                s.start_pages(te.Opcode.READ, pool, here, 100, parts=-1)
            with self.assertRaisesRegex(TypeError, "layers must be an integer, not str"):
                s.start_pages(te.Opcode.READ, pool, here, 100, layers="2")
            whole = te.Pages(ours, 10, 100, part_stride=1000, layer_stride=1000)
            with s.start_pages(te.Opcode.READ, whole, here, 100, 10, parts=0, layers=0) as r:
                self.assertEqual(r.result(), 1000)
            long = te.Pages(ours, 11, 100, part_stride=1000)
            with self.assertRaisesRegex(BufferError, "1100 bytes are more than the 1000"):
                s.start_pages(te.Opcode.READ, long, here, 100, 10, parts=0)

    def test_errors_have_text_and_class(self):
        engine, peer, segment = self.both()
        remote = peer.register(length=1000, seed=1)
        local = bytearray(2000)
        with self.assertRaises(te.NotRegistered) as caught:
            segment.write(local, remote)
        self.assertIn("[TE_ERR_NOT_REGISTERED]", str(caught.exception))
        with engine.register(local):
            with self.assertRaises(te.RequestError) as caught:
                segment.write(local, remote)
            self.assertEqual(caught.exception.name, "TE_ERR_STALE")
            batch = segment.start_write(
                [local, span(local).address], [remote, remote], [2000, 1000]
            )
            self.assertIn("request 0 of 2", str(batch.exception()))
            self.assertEqual([t.error for t in batch.tasks()], [-407, 0])
            batch.close()
            for wrong in ((local, 1.5), (None, remote), ("text", remote)):
                self.assertRaises(TypeError, segment.write, *wrong)
            self.assertRaises(BufferError, segment.read, bytes(10), remote)
            self.assertRaises(BufferError, segment.write, memoryview(local)[::2], remote)
            self.assertRaises(ValueError, segment.start_write, [local], [remote, remote], [1])
        self.assertRaises(te.RequestError, engine.register, 4096, 0)
        self.assertRaises(te.PathError, engine.open, f"{HOST}:1")
        self.assertRaises(te.RequestError, te.Engine, name=HOST, options={"NO_SUCH_OPTION": "1"})
        self.assertRaises(BufferError, engine.register, bytearray())
        self.assertRaises(ValueError, te.Engine, name="a\0b")
        self.assertRaises(ValueError, engine.alloc, 100, "cuda:0")

    def test_a_host_in_the_place_of_the_metadata(self):
        with socket.socket() as closed:  # bound, so nobody else listens there
            closed.bind((HOST, 0))
            place = "%s:%d" % closed.getsockname()
            with self.assertRaises(te.PathError) as caught:
                te.Engine(place)
            self.assertIn(f"it is taken for etcd://{place}", str(caught.exception))
            self.assertIn(f"Engine(name={place!r})", str(caught.exception))
            with self.assertRaises(te.PathError) as caught:
                te.Engine(f"etcd://{place}")
            self.assertNotIn("Engine(", str(caught.exception))

    def test_a_port_that_is_taken(self):
        with te.Engine(name=HOST) as engine:
            for arguments in ({"name": engine.name}, {"name": HOST, "port": engine.port}):
                said = f"^port {engine.port} cannot be bound, .* has port "
                with self.assertWarnsRegex(RuntimeWarning, said) as caught:
                    other = te.Engine(**arguments)
                with other:
                    self.assertIn(repr(other.name), str(caught.warning))
                    self.assertTrue(str(caught.warning).endswith(f"has port {other.port} instead"))
                self.assertEqual(caught.filename, __file__)
            theirs = te.TransferEngine()
            self.addCleanup(theirs._shut)
            with self.assertWarnsRegex(RuntimeWarning, "cannot be bound") as caught:
                self.assertEqual(theirs.initialize(engine.name, "P2PHANDSHAKE", "tcp", ""), 0)
            self.assertEqual(caught.filename, __file__)
            self.assertNotEqual(theirs.get_rpc_port(), engine.port)

    def test_which_port_is_asked_for(self):
        for name, port, asked in (
            (f"{HOST}:15005", 0, 15005),
            (f"{HOST}:15005", 15006, 15006),
            ("[::1]:15005", 0, 15005),
            (":15005", 0, 15005),
            ("::1", 0, 0),
            (HOST, 0, 0),
            ("node 1:15005", 0, 0),
            (None, 0, 0),
        ):
            self.assertEqual(_asked_port(name, port), asked, name)

    def test_a_name_by_its_place(self):
        with self.assertWarnsRegex(DeprecationWarning, "name=") as caught:
            engine = te.Engine("P2PHANDSHAKE", HOST)
        self.assertEqual(caught.filename, __file__)
        with engine:
            self.assertTrue(engine.name.startswith(HOST))
        self.assertRaises(TypeError, te.Engine, "P2PHANDSHAKE", HOST, "other")
        self.assertRaises(TypeError, te.Engine, "P2PHANDSHAKE", HOST, name=HOST)

    def test_the_table_of_errors_is_that_of_the_header(self):
        header = os.environ.get("TE_TEST_SRC")
        if not header:
            self.skipTest("TE_TEST_SRC does not say where include/te.h is")
        with open(os.path.join(header, "include", "te.h"), encoding="utf-8") as f:
            rows = re.findall(r"X\((\w+), (-?\d+), (\w+), ", f.read())
        rows = {int(code): (f"TE_ERR_{name}", kind) for name, code, kind in rows if code != "0"}
        self.assertEqual(
            {c: name for c, (name, _) in _CODES.items()}, {c: r[0] for c, r in rows.items()}
        )
        kinds = {"REQUEST": te.RequestError, "PATH": te.PathError, "FATAL": te.FatalError}
        for code, (_, kind) in _CODES.items():
            self.assertTrue(issubclass(kind, kinds[rows[code][1]]), code)

    def test_notifications_and_counters(self):
        engine, peer, segment = self.both()
        remote = peer.register(length=1000, seed=1)
        with engine.register(os.urandom(1000)) as region:  # bytes: for reading only
            segment.write(region.address, remote, 1000, notify=("block", "7 \u00e9"))
            segment.notify("hello", "there")
        found = []
        until(lambda: found.extend(peer.notifications()) or len(found) >= 2)
        self.assertEqual(sorted(found), [["block", "7 \u00e9"], ["hello", "there"]])
        peer.notify(target=engine.name, name="back", msg="")
        self.assertEqual(engine.notifications(), [("back", "")])
        self.assertEqual(engine.notifications(), [])
        stats = engine.stats()
        self.assertEqual((stats["bytes_written"], stats["requests_failed"]), (1000, 0))
        self.assertIn('\ntransfer_engine_bytes_total{opcode="write"} 1000\n', engine.metrics_text())
        self.assertEqual(stats["regions"], 0)
        self.assertTrue(engine.probe(peer.name()))
        self.assertFalse(engine.probe(f"{HOST}:1"))
        self.assertIn("cpu:0", engine.topology())
        self.assertIn("local_nics", engine.links(json=True))
        with engine.register(bytearray(10)) as region:
            self.assertIn(
                "tcp", engine.explain(te.Opcode.WRITE, region.address, segment, remote, 10)
            )

    def test_notifications_of_bytes(self):
        with te.Engine(name=HOST) as engine, te.Engine(name=HOST) as other:
            segment = engine.open(other.name)
            everything = bytes(range(256))
            segment.notify(b"", everything)
            segment.notify("text", bytearray(b"a\0b"))
            self.assertEqual(other.raw_notifications(), [(b"", everything), (b"text", b"a\0b")])
            target = other.register(bytearray(1000))
            with engine.register(bytearray(os.urandom(1000))) as region:
                address = target.address
                segment.write(region.address, address, 1000, notify=(b"\xff\0", everything))
                found = []
                until(lambda: found.extend(other.raw_notifications()) or found)
                self.assertEqual(found, [(b"\xff\0", everything)])
                # A bad one does not concern the transfer.
                with self.assertWarnsRegex(RuntimeWarning, "MC_HANDSHAKE_MAX_LENGTH"):
                    self.assertEqual(
                        segment.write(region.address, address, 1000, notify=("n", bytes(1 << 20))), 1000
                    )
            segment.notify(b"a\xff", "")
            self.assertEqual(other.notifications(), [("a\ufffd", "")])
            segment.notify("a\0b", "")
            self.assertEqual(other.notifications(), [("a\0b", "")])
            with self.assertRaisesRegex(TypeError, "msg must be a str or bytes, not int"):
                segment.notify("a", 1)
            target.close()

    def test_trace_contexts(self):
        context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        engine, peer, segment = self.both()
        remote = peer.register(length=1000, seed=1)
        memory = bytearray(1000)
        with engine.register(memory), segment.prepare([memory], [remote]) as prepared:
            pages = te.Pages(memory, 10, 100), te.Pages(remote, 10, 100)

            async def read():
                return await segment.read_async(memory, remote, traceparent=context)

            ways = (
                lambda: segment.read(memory, remote, traceparent=context),
                lambda: segment.write(memory, remote, traceparent=context),
                lambda: asyncio.run(read()),
                lambda: segment.start_read([memory], [remote], traceparent=context).result(),
                lambda: segment.start_write([memory], [remote], traceparent=context).result(),
                lambda: prepared.start(te.Opcode.READ, traceparent=context).result(),
                lambda: segment.start_pages(
                    te.Opcode.READ, *pages, 100, 10, traceparent=context
                ).result(),
            )
            self.assertEqual([way() for way in ways], [1000] * len(ways))
            for wrong in ("", context[:-1], context + "0", context.replace("4", "0\0"), "\u00e9" * 55):
                with self.assertRaisesRegex(te.RequestError, "te_submit_opts: traceparent"):
                    segment.read(memory, remote, traceparent=wrong)
            with self.assertRaisesRegex(TypeError, "traceparent must be a str or None, not bytes"):
                segment.read(memory, remote, traceparent=context.encode())

    def test_paths_asked_for(self):
        engine, peer, segment = self.both()
        remote = peer.register(length=1000, seed=1)
        memory, tcp = bytearray(1000), te.Paths(require="tcp", prefer=["tcp", "host"])
        with engine.register(memory), segment.prepare([memory], [remote]) as prepared:
            pages = te.Pages(memory, 10, 100), te.Pages(remote, 10, 100)
            ways = (
                lambda paths: segment.start_read([memory], [remote], paths=paths),
                lambda paths: segment.start_write([memory], [remote], paths=paths),
                lambda paths: prepared.start(te.Opcode.READ, paths=paths),
                lambda paths: segment.start_pages(te.Opcode.READ, *pages, 100, 10, paths=paths),
            )
            for way in ways:
                with way(tcp) as batch:
                    self.assertEqual(batch.result(), 1000)
                    self.assertEqual(batch.paths(), [te.TaskPath("tcp", "", 0, False)])
                with self.assertRaisesRegex(te.RequestError, "no path to segment .* local: not possible"):
                    way(te.Paths(require=["local"]))
            self.assertEqual(segment.read(memory, remote, paths=tcp), 1000)
            self.assertEqual(segment.write(memory, remote, paths=tcp), 1000)
            with self.assertRaisesRegex(te.RequestError, "'tpc' is not built in"):
                segment.read(memory, remote, paths=te.Paths(forbid="tpc"))
            with self.assertRaisesRegex(TypeError, "forbid must be a str"):
                segment.read(memory, remote, paths=te.Paths(forbid=[1]))
            for nothing in ("", [], iter(())):
                with self.assertRaisesRegex(ValueError, "require names no transport"):
                    te.Paths(require=nothing)
            once = te.Paths(require=(name for name in ["local"]), prefer=[])
            for _ in range(2):  # a generator is read once, and counts each time
                with self.assertRaisesRegex(te.RequestError, "no path to segment"):
                    segment.read(memory, remote, paths=once)
        name = segment.name
        with self.assertRaisesRegex(te.RequestError, "open already, with other paths: any"):
            engine.open(name, paths=tcp)
        segment.close()
        with engine.open(name, paths=tcp) as again, engine.register(memory):
            with again.start_read([memory], [remote]) as batch:
                batch.result()
                self.assertEqual([path.transport for path in batch.paths()], ["tcp"])

    def test_read_only_memory_is_not_written_by_peers(self):
        engine, peer, _ = self.both()
        data = bytes(100)
        with self.assertRaises(BufferError):
            engine.register(data, access=te.Access.READ_WRITE)
        other = te.Engine(name=HOST)
        self.addCleanup(other.close)
        mine = bytearray(os.urandom(100))
        with engine.register(data) as region, other.register(mine):
            segment = other.open(engine.name)
            segment.read(mine, region.address)
            self.assertSameBytes(mine, data)
            with self.assertRaises(te.RequestError) as caught:
                segment.write(mine, region.address)
            self.assertEqual(caught.exception.name, "TE_ERR_ACCESS")
        self.assertTrue(peer.name())


class Arguments(Case):
    """What is wrong with a call is said in its words."""

    def setUp(self):
        self.engine = te.Engine(name=HOST)
        self.addCleanup(self.engine.close)
        self.local = bytearray(100)
        self.region = self.engine.register(self.local)
        self.segment = self.engine.open(self.engine.name)

    def each(self, kind, calls):
        for said, call in calls.items():
            with self.assertRaisesRegex(kind, said):
                call()

    def test_closed(self):
        s, e, local, there = self.segment, self.engine, self.local, self.region.address
        prepared = s.prepare([local], [there])
        prepared.close()
        s.close()
        for call in (
            lambda: s.write(local, there),
            lambda: s.start_read([local], [there]),
            lambda: s.prepare([local], [there]),
            lambda: s.notify("a", "b"),
            s.buffers,
            lambda: e.start([(te.Opcode.READ, local, s, there, None)]),
            lambda: e.explain(te.Opcode.READ, local, s, there),
        ):
            with self.assertRaisesRegex(te.RequestError, f"the segment '{s.name}' is closed; open"):
                call()
        with self.assertRaisesRegex(te.RequestError, "the list is closed"):
            prepared.start(te.Opcode.READ)

    def test_numbers_out_of_range(self):
        s, e, local, there = self.segment, self.engine, self.local, self.region.address
        calls = {
            "^remote address: -5 is negative": lambda: s.write(local, -5),
            "^remote address: 36893488147419103232 is more than": lambda: s.write(local, 1 << 65),
            "^remote addresses: -6 is negative": lambda: s.start_write([local] * 2, [there, -6]),
            "^length: -7 is negative": lambda: s.read(there, there, -7),
            "^length: -17 is negative": lambda: e.alloc(-17),
            "^lengths: -8 is negative": lambda: s.start_write([there], [there], [-8]),
            "^local addresses: -9 is negative": lambda: s.start_write([-9], [there], [1]),
            "^local address: -10 is negative": lambda: s.write(-10, there, 1),
            "^regions: -11 is negative": lambda: e.unregister(-11),
            "^indexes: 4294967296 is more than 4294967295": lambda: s.prepare(
                [local], [there]
            ).start(te.Opcode.READ, [1 << 32]),
            "^port: 65536 is more than 65535": lambda: te.Engine(name=HOST, port=65536),
            "timeout is not a number": lambda: s.write(local, there, timeout=float("nan")),
        }
        self.each(ValueError, calls)
        for call in list(calls.values())[:-1]:
            self.assertRaises(OverflowError, call)  # what it was in 0.1.0

    def test_types(self):
        s, e, local, there = self.segment, self.engine, self.local, self.region.address
        self.each(
            TypeError,
            {
                "^remote address must be an integer, not bytearray": lambda: s.write(local, local),
                "^remote addresses must be a list, not int": lambda: s.start_write([local], there),
                "^remote addresses must be integers": lambda: s.start_write([local], [1.5]),
                "^local pieces must be a list, not bytearray": lambda: s.start_write(local, [there]),
                "^lengths must be a list, not int": lambda: s.start_write([local], [there], 5),
                "^length must be an integer, not str": lambda: s.write(local, there, "5"),
                "^timeout must be seconds or None, not str": lambda: s.write(
                    local, there, timeout="5"
                ),
                "^notify must be a pair": lambda: s.write(local, there, notify="ab"),
                "^a request is .opcode, local": lambda: e.start([(te.Opcode.READ, local, s)]),
                "^requests must be a list, not int": lambda: e.start(5),
                "^segment must be a Segment, not str": lambda: e.start(
                    [(te.Opcode.READ, local, s.name, there, None)]
                ),
                "^buffers must be a list, not int": lambda: e.register_many(5),
                "^port must be an integer, not str": lambda: te.Engine(name=HOST, port="1"),
                "^options must be a dict, not list": lambda: te.Engine(name=HOST, options=["a"]),
            },
        )
        with s.start_write([there], [there + 50], [10]) as batch:
            with self.assertRaisesRegex(TypeError, "^timeout must be seconds"):
                batch.wait("5")

    def test_an_array_in_place_of_a_list_of_them(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no numpy")
        with self.assertRaisesRegex(TypeError, "not one ndarray of float32"):
            self.segment.start_write(np.zeros(3, dtype="f4"), [self.region.address])
        with self.assertRaisesRegex(TypeError, "remote address must be an integer, not ndarray"):
            self.segment.write(self.local, np.zeros(3, dtype=int))

    def test_a_time_that_is_over(self):
        """Of a transfer it is the shortest that there is, of a wait it is none."""
        for timeout in (0, -1):
            self.assertEqual(submit_options(timeout, None, 0).deadline_ms, 1)
            with self.segment.start_write([self.local], [self.region.address]) as batch:
                until(batch.done)
                self.assertTrue(batch.wait(timeout))
                self.assertEqual(batch.result(timeout), 100)


class Segments(Case):
    def test_one_that_is_open_is_given_again(self):
        """As open() says: at once, whether its engine lives or not, which probe() tells."""
        peer = self.peer()
        with te.Engine(name=HOST) as engine:
            name = peer.name()
            segment = engine.open(name)
            peer.kill()
            self.assertEqual(engine.open(name).id, segment.id)
            self.assertFalse(engine.probe(name))
            self.assertRaises(te.PathError, engine.refresh, name)


    def test_one_life(self):
        with te.Engine(name=HOST) as engine:
            first = te.Engine(name=HOST)
            name, port, number = first.name, first.port, first.incarnation
            segment = engine.open(name, incarnation=number)
            self.assertEqual(engine.open(name, incarnation=0).id, segment.id)
            self.assertNotEqual(engine.open(name).id, segment.id)
            with self.assertRaisesRegex(te.RequestError, f"{number ^ 1:016x}.* has its name now"):
                engine.open(name, incarnation=number ^ 1)
            self.assertRaises(TypeError, engine.open, name, incarnation="1")
            segment.notify("to", "the first")
            self.assertEqual(first.notifications(), [te.Notice("to", "the first")])
            first.close()
            with te.Engine(name=HOST, port=port) as second:
                self.assertEqual(second.name, name)
                self.assertNotEqual(second.incarnation, number)
                with self.assertRaisesRegex(te.RequestError, "started again"):
                    segment.notify("to", "the first")
                engine.open(name).notify("to", "any")
                self.assertEqual(second.notifications(), [te.Notice("to", "any")])


class Lifetimes(Case):
    def test_closed(self):
        engine = te.Engine(name=HOST)
        segment = engine.open(engine.name)
        region = engine.register(bytearray(100))
        batch = segment.start_read([region.address], [region.address + 50], [50])
        engine.close()
        engine.close()
        for call in (
            lambda: engine.name,
            lambda: engine.open("x"),
            lambda: engine.register(bytearray(1)),
            batch.done,
            batch.result,
            lambda: segment.read(region.address, 0, 1),
        ):
            self.assertRaises(te.EngineClosed, call)
        for thing in (batch, segment, region):
            thing.close()

    def test_memory_outlives_its_engine(self):
        engine = te.Engine(name=HOST)
        memory = engine.alloc(100000)
        part = memory[5000:6000]
        engine.register(memory)
        state = engine._state
        engine.close()
        del memory
        gc.collect()
        part[:] = bytes(range(250)) * 4
        self.assertSameBytes(part, bytes(range(250)) * 4)
        self.assertEqual(len(state.views), 1)
        del part
        gc.collect()
        self.assertEqual(len(state.views), 0)

    def test_memory_is_freed_with_its_last_view(self):
        with te.Engine(name=HOST) as engine:
            memory = engine.alloc(1 << 20)
            address = span(memory).address
            region = engine.register(memory)
            del memory
            gc.collect()
            ctypes.string_at(address, 1 << 20)  # the region holds it
            region.close()
            gc.collect()
            self.assertEqual(len(engine._state.views), 0)

    def test_a_dropped_engine_goes(self):
        engine = te.Engine(name=HOST)
        state = engine._state
        del engine
        gc.collect()
        self.assertTrue(state.closed)

    def test_dropped_batches_end_and_are_put_away(self):
        with te.Engine(name=HOST) as engine, engine.open(engine.name) as segment:
            memory = engine.alloc(1 << 20)
            engine.register(memory)
            address = span(memory).address
            for i in range(200):
                segment.start_write([address], [address + (1 << 19)], [1000 + i])
            until(lambda: engine._state.reap() or not engine._state.live)

    def test_a_child_does_not_have_the_engine(self):
        with te.Engine(name=HOST) as engine:
            child = os.fork()
            if child == 0:
                try:
                    engine.stats()
                except te.EngineClosed:
                    engine.close()
                    os._exit(7)
                os._exit(1)
            self.assertEqual(os.WEXITSTATUS(os.waitpid(child, 0)[1]), 7)
            self.assertEqual(engine.stats()["regions"], 0)

    def test_the_process_may_end_in_any_state(self):
        for begin in ("", WITH_RECORDS, WITH_RECORDS):
            done = subprocess.run(
                [sys.executable, "-c", begin + ENDS_IN_THE_MIDDLE],
                capture_output=True,
                text=True,
                timeout=HANG_S,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, "the lock is free\nEngineClosed\n")


class Blocked(Case):
    """A stopped peer answers nothing: a transfer stays under way for as long as we like."""

    def setUp(self):
        self.remote_peer = self.peer(options=TCP)
        self.remote = self.remote_peer.register(length=8 * MIB, seed=1)
        self.engine = te.Engine(name=HOST, options=TCP)
        self.addCleanup(self.engine.close)
        self.segment = self.engine.open(self.remote_peer.name())
        self.local = self.engine.alloc(8 * MIB)
        self.engine.register(self.local)
        self.remote_peer.freeze()

    def go_on(self):
        self.remote_peer.thaw()

    def test_the_interpreter_goes_on_while_a_call_waits(self):
        thread = threading.Thread(target=self.segment.read, args=(self.local, self.remote))
        thread.start()
        until(lambda: self.engine.stats()["requests_submitted"])
        for _ in range(20):
            time.sleep(0.001)
        self.assertTrue(thread.is_alive())
        self.go_on()
        thread.join()
        self.assertSameBytes(self.local, noise(1, 8 * MIB))

    def test_memory_is_quiet_after_a_timeout(self):
        with self.assertRaises(te.TransferTimeout) as raised:
            self.segment.read(self.local, self.remote, timeout=0.1)
        self.assertIsInstance(raised.exception, TimeoutError)
        before = bytes(self.local)
        self.go_on()
        self.remote_peer.name()
        self.assertSameBytes(self.local, before)  # quiet, although the peer could answer now

    def test_result_with_a_timeout_leaves_it_going(self):
        with self.segment.start_read([self.local], [self.remote]) as batch:
            self.assertRaises(te.TransferTimeout, batch.result, 0.05)
            self.assertFalse(batch.wait(0))
            self.assertFalse(batch.done())
            self.go_on()
            self.assertEqual(batch.result(), 8 * MIB)
            self.assertEqual(batch.paths(), [te.TaskPath("tcp", "", 0, False)])
        self.assertSameBytes(self.local, noise(1, 8 * MIB))

    def test_cancel(self):
        batch = self.segment.start_write([self.local], [self.remote])
        batch.cancel()
        self.assertRaises(te.TransferCanceled, batch.result)
        batch.close()

    def canceled(self):
        batch = self.segment.start_write([self.local], [self.remote])
        time.sleep(0.001)
        batch.cancel()
        batch.wait()
        return batch

    def unknown(self):
        """A batch of which bytes were sent that the peer has not taken, and what its fence() says."""
        batch = self.canceled()
        try:
            batch.fence(0)
        except te.TransferTimeout as error:
            return batch, error
        batch.close()
        return None

    def certified(self, batch):
        try:
            batch.fence(1)
        except te.PathError:
            return False
        return True

    def test_fence(self):
        self.go_on()
        self.segment.write(self.local, self.remote)  # the connection is up, so that bytes are sent
        self.remote_peer.freeze()
        batch, error = until(self.unknown)
        self.assertEqual(error.unsafe, [te.Unsafe(self.segment.id, self.remote, 8 * MIB)])
        self.assertRaises(te.PathError, batch.fence, 0.3)
        self.go_on()
        until(lambda: self.certified(batch))
        batch.close()
        self.assertRaises(te.RequestError, batch.fence)

    def test_fence_of_what_is_unfinished(self):
        with self.segment.start_write([self.local], [self.remote]) as batch:
            self.assertRaises(te.RequestError, batch.fence)

    def test_the_end_of_a_block_cancels(self):
        with self.segment.start_write([self.local], [self.remote]) as batch:
            pass
        self.assertNotIn(batch.id, self.engine._state.live)

    def test_close_ends_threads_that_wait(self):
        ends = []

        def blocked():
            try:
                self.segment.read(self.local, self.remote)
            except te.TransferError as e:
                ends.append(type(e))

        threads = [threading.Thread(target=blocked) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: self.engine.stats()["requests_submitted"] == 4)
        self.engine.close()
        for thread in threads:
            thread.join()
        self.assertEqual(len(ends), 4)
        self.assertLessEqual(set(ends), {te.TransferCanceled, te.EngineClosed})

    def test_signals_are_seen(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        old = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        with self.assertRaises(KeyboardInterrupt):
            thread = signal_in_a_call(self.engine, signal.SIGALRM)
            self.segment.read(self.local, self.remote)
        thread.join()
        self.assertEqual(len(self.engine._state.live), 0)


class Threads(Case):
    def test_many_threads_move_at_once(self):
        with te.Engine(name=HOST) as engine:
            peer = self.peer()
            remote = peer.register(length=8 * 100000, seed=1)
            segment = engine.open(peer.name())
            wrong = []

            def work(i):
                mine = bytearray(100000)
                back = bytearray(100000)
                with engine.register(mine), engine.register(back):
                    for turn in range(20):
                        n = 1 + (i * 7919 + turn * 104729) % 99999
                        mine[:n] = os.urandom(n)
                        segment.write(memoryview(mine)[:n], remote + i * 100000)
                        segment.read(memoryview(back)[:n], remote + i * 100000)
                        if mine[:n] != back[:n]:
                            wrong.append((i, turn))

            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.assertEqual(len(engine._state.live), 0)
            self.assertEqual(engine.stats()["regions"], 0)


if __name__ == "__main__":
    unittest.main()
