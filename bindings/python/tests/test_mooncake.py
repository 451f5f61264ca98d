# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine, as the shim gives it: what it has, what it returns, what its users call."""

import array
import ctypes
import inspect
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import unittest
from unittest import mock

import mooncake.engine
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from peer import noise
from support import HANG_S, HOST, Case, digest, pieces, until
from transfer_engine import _cuda
from transfer_engine._memory import span
from transfer_engine.mooncake import _PROTOCOLS

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

MIB = 1 << 20
TARGET = "target_hostname, buffer, peer_buffer_address, length"
TARGETS = "target_hostname, buffers, peer_buffer_addresses, lengths"
HINT = "transport_hint=''"

# Names, arguments and defaults of Mooncake's class. Where that has no name, ours is its own.
METHODS = {
    "initialize": "local_hostname, metadata_server, protocol, device_name",
    "initialize_ext": "local_hostname, metadata_server, protocol, device_name, metadata_type",
    "get_rpc_port": "",
    "allocate_managed_buffer": "length",
    "free_managed_buffer": "addr, length",
    "transfer_sync_write": f"{TARGET}, {HINT}",
    "transfer_sync_read": f"{TARGET}, {HINT}",
    "batch_transfer_sync_write": f"{TARGETS}, {HINT}",
    "batch_transfer_sync_read": f"{TARGETS}, {HINT}",
    "batch_transfer_async_write": f"{TARGETS}, {HINT}",
    "batch_transfer_async_read": f"{TARGETS}, {HINT}",
    "transfer_sync": f"{TARGET}, opcode, notify=None, {HINT}",
    "batch_transfer_sync": f"{TARGETS}, opcode, notify=None, {HINT}",
    "batch_transfer_async": f"{TARGETS}, opcode, {HINT}",
    "transfer_write_on_cuda": f"{TARGET}, stream_ptr=0, {HINT}",
    "transfer_read_on_cuda": f"{TARGET}, stream_ptr=0, {HINT}",
    "batch_transfer_write_on_cuda": f"{TARGETS}, stream_ptr=0, {HINT}",
    "batch_transfer_read_on_cuda": f"{TARGETS}, stream_ptr=0, {HINT}",
    "get_batch_transfer_status": "batch_ids",
    "transfer_submit_write": f"{TARGET}, {HINT}",
    "transfer_check_status": "batch_id",
    "write_bytes_to_buffer": "dest, data, length",
    "read_bytes_from_buffer": "addr, length",
    "register_memory": "buffer_addr, capacity, location='*'",
    "unregister_memory": "buffer_addr",
    "batch_register_memory": "buffer_addresses, capacities, location='*'",
    "batch_unregister_memory": "buffer_addresses",
    "get_local_topology": "device_name=None",
    "get_first_buffer_address": "segment_name",
    "warmup_efa_segment": "segment_name",
    "get_notifies": "",
    "send_probe": "peer_server_name",
    "get_engine": "",
    "get_engine_ptr": "",
}


def signature(function):
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters
    )


class Module(unittest.TestCase):
    def test_methods_and_arguments(self):
        public = {n for n in vars(TransferEngine) if not n.startswith("_")} - {"TransferOpcode"}
        self.assertEqual(public, set(METHODS))
        for name, wanted in METHODS.items():
            self.assertEqual(signature(getattr(TransferEngine, name)), wanted, name)
            self.assertIn("return", getattr(TransferEngine, name).__annotations__, name)

    def test_attributes(self):
        for name in ("CUDA", "EFA", "HIP", "INTRA_NVLINK", "MNNVL", "MUSA"):
            self.assertIs(getattr(mooncake.engine, f"SUPPORT_{name}"), False)
        self.assertTrue(hasattr(mooncake.engine, "InnerTransferEngine"))
        for name in mooncake.engine.__all__:
            self.assertTrue(hasattr(mooncake.engine, name))

    def test_opcode(self):
        self.assertIs(TransferEngine.TransferOpcode, TransferOpcode)
        self.assertIs(mooncake.engine.Read, TransferOpcode.Read)
        self.assertEqual([int(TransferOpcode.Read), TransferOpcode.Write.value], [0, 1])
        self.assertEqual(TransferOpcode.Write, 1)
        self.assertEqual(TransferOpcode.Read | TransferOpcode.Write, 1)
        self.assertTrue(TransferOpcode.Read < TransferOpcode.Write)
        self.assertIs(TransferOpcode(1), TransferOpcode.Write)
        self.assertEqual(repr(TransferOpcode.Read), "<TransferOpcode.Read: 0>")
        self.assertEqual(str(TransferOpcode.Read), "TransferOpcode.Read")
        self.assertEqual(list(TransferOpcode.__members__), ["Read", "Write"])

    def test_what_the_results_are(self):
        for name in METHODS:
            if "transfer" in name and "cuda" not in name and "status" not in name:
                failure = "0" if "async" in name or "submit" in name else "-1"
                self.assertRegex(getattr(TransferEngine, name).__doc__, rf"or {failure}\.", name)

    def test_notify(self):
        notify = TransferNotify("n", "m")
        notify.msg += "2"
        self.assertEqual((notify.name, notify.msg), ("n", "m2"))
        self.assertEqual(TransferNotify().name, "")
        self.assertEqual(TransferNotify(name="a", msg="b").msg, "b")


class Compatible(Case):
    def setUp(self):
        logging.getLogger("transfer_engine").addHandler(logging.NullHandler())
        logging.getLogger("transfer_engine").propagate = False
        self.engine = TransferEngine()
        self.assertEqual(self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""), 0)
        self.addCleanup(self.engine._shut)

    def test_says_that_there_is_no_rdma(self):
        engine = TransferEngine()
        self.addCleanup(engine._shut)
        with self.assertLogs("transfer_engine", "WARNING") as log:
            self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", "rdma", "no_such_nic"), 0)
        self.assertIn("no RDMA device is called no_such_nic", log.output[0])
        self.assertIn("data goes by tcp", log.output[1])

    def test_says_that_there_is_no_such_protocol(self):
        engine = TransferEngine()
        self.addCleanup(engine._shut)
        for protocol, near in (("rmda", r" \(rdma\?\)"), ("RDMA", r" \(rdma\?\)"), ("ubshmem", "")):
            with self.assertLogs("transfer_engine", "WARNING") as log:
                self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", protocol, ""), 0)
            self.assertRegex(
                log.output[0], f"initialize: no protocol here is called '{protocol}'{near};"
            )
        with self.assertLogs("transfer_engine", "WARNING") as log:
            for protocol in ("", *_PROTOCOLS):
                engine.initialize(HOST, "P2PHANDSHAKE", protocol, "")
        self.assertEqual([line for line in log.output if "no protocol" in line], [])

    def test_the_protocols_are_the_transports_of_the_library(self):
        table = os.path.join(os.environ.get("TE_TEST_SRC", ""), "src", "transport", "transports.def")
        if not os.path.exists(table):
            self.skipTest("TE_TEST_SRC does not say where transports.def is")
        with open(table, encoding="utf-8") as f:
            found = re.findall(r"^TEI_TRANSPORT\((\w+)\)", f.read(), re.M)
        self.assertEqual(found, list(_PROTOCOLS))

    def test_a_host_in_the_place_of_the_metadata(self):
        with socket.socket() as closed:  # bound, so nobody else listens there
            closed.bind((HOST, 0))
            place = "%s:%d" % closed.getsockname()
            said = f"'{place}' has no scheme, so it is taken for etcd://{place}. Engines that need no"
            for server, hint in ((place, True), (f"etcd://{place}", False)):
                with self.logged() as log:
                    self.assertEqual(TransferEngine().initialize(HOST, server, "tcp", ""), -1)
                self.assertEqual(said in log.output[0], hint, log.output)

    def test_p2phandshake_misspelt(self):
        with self.logged() as log:
            self.assertEqual(TransferEngine().initialize(HOST, "P2PHANDSHAK", "tcp", ""), -1)
        self.assertEqual(log.output[0].count("P2PHANDSHAKE"), 1, log.output)
        self.assertIn("did you mean P2PHANDSHAKE?", log.output[0])

    def write_until_gone(self, *where):
        """What a write to an engine that was killed returns. Its memory outlives it by a moment."""
        return until(lambda: self.engine.transfer_sync_write(*where, 999))

    def logged(self):
        return self.assertLogs("transfer_engine", "ERROR")


class Calls(Compatible):
    def setUp(self):
        super().setUp()
        self.other = self.peer()
        self.host = self.other.name()
        self.remote = self.other.register(length=MIB, seed=3)
        self.there = noise(3, MIB)
        self.local = ctypes.create_string_buffer(MIB)
        self.address = ctypes.addressof(self.local)
        self.assertEqual(self.engine.register_memory(self.address, MIB), 0)

    def fill(self, n):
        data = os.urandom(n)
        self.assertEqual(self.engine.write_bytes_to_buffer(self.address, data, n), 0)
        return data

    def remotely(self, offset, n):
        return self.other.digest(address=self.remote, offset=offset, length=n)

    def test_single(self):
        for n in (1, 4097, 99991):
            data = self.fill(n)
            self.assertEqual(
                self.engine.transfer_sync_write(self.host, self.address, self.remote + 3, n), 0
            )
            self.assertEqual(self.remotely(3, n), digest(data))
            self.assertEqual(
                self.engine.transfer_sync_read(
                    target_hostname=self.host,
                    buffer=self.address,
                    peer_buffer_address=self.remote + 3,
                    length=n,
                    transport_hint="tcp",
                ),
                0,
            )
            self.assertEqual(self.engine.read_bytes_from_buffer(self.address, n), data)

    def test_single_with_opcode_and_notify(self):
        data = self.fill(5000)
        self.assertEqual(
            self.engine.transfer_sync(
                self.host,
                self.address,
                self.remote,
                5000,
                TransferOpcode.Write,
                TransferNotify("block", "5"),
            ),
            0,
        )
        self.assertEqual(self.remotely(0, 5000), digest(data))
        self.assertEqual(until(self.other.notifications), [["block", "5"]])
        # What is in the message does not concern the bytes that are moved.
        data = self.fill(5000)
        for name, msg in (("a\0b", "\0\u00ff"), ("", "")):
            notify = TransferNotify(name, msg)
            self.assertEqual(
                self.engine.transfer_sync(
                    self.host, self.address, self.remote, 5000, TransferOpcode.Write, notify
                ),
                0,
            )
            self.assertEqual(self.remotely(0, 5000), digest(data))
            self.assertEqual(until(self.other.notifications), [[name, msg]])
        self.assertEqual(
            self.engine.transfer_sync(
                self.host, self.address + 9, self.remote, 5000, TransferOpcode.Read
            ),
            0,
        )
        self.assertEqual(self.engine.read_bytes_from_buffer(self.address + 9, 5000), data)
        for wrong in (1, "Write", None):
            self.assertRaises(
                TypeError, self.engine.transfer_sync, self.host, self.address, self.remote, 1, wrong
            )
        self.assertRaises(
            TypeError,
            self.engine.transfer_sync,
            self.host,
            self.address,
            self.remote,
            1,
            TransferOpcode.Read,
            "notify",
        )

    def lists(self, seed):
        plan = pieces(seed, MIB, 4000, 200)
        return plan, [
            [self.address + a for a, _, _ in plan],
            [self.remote + b for _, b, _ in plan],
            [n for _, _, n in plan],
        ]

    def check_written(self, plan):
        expected = bytearray(self.there)
        for a, b, n in plan:
            expected[b : b + n] = self.local.raw[a : a + n]
        self.assertEqual(self.remotely(0, MIB), digest(expected))

    def test_batches(self):
        for how in (
            lambda lists: self.engine.batch_transfer_sync_write(self.host, *lists),
            lambda lists: self.engine.batch_transfer_sync(
                self.host, *lists, TransferOpcode.Write, notify=TransferNotify("a", "b")
            ),
            lambda lists: self.engine.batch_transfer_sync_write(self.host, *map(tuple, lists)),
            lambda lists: self.engine.batch_transfer_sync_write(
                self.host, *[array.array("Q", x) for x in lists]
            ),
        ):
            self.other.fill(address=self.remote, seed=3)
            plan, lists = self.lists(11)
            self.fill(MIB)
            self.assertEqual(how(lists), 0)
            self.check_written(plan)

    def test_batches_read(self):
        lists = [
            [self.address + 6000 * i for i in range(100)],
            [self.remote + 7001 * i for i in range(100)],
            [1 + 59 * i for i in range(100)],
        ]
        for how in (
            self.engine.batch_transfer_sync_read,
            lambda *a: self.engine.batch_transfer_sync(*a, TransferOpcode.Read),
            lambda *a: self.engine.get_batch_transfer_status(
                [self.engine.batch_transfer_async_read(*a)]
            ),
        ):
            self.fill(MIB)
            self.assertEqual(how(self.host, *lists), 0)
            for a, b, n in zip(*lists):
                self.assertSameBytes(
                    ctypes.string_at(a, n), self.there[b - self.remote : b - self.remote + n]
                )

    def test_asynchronous(self):
        plan, lists = self.lists(12)
        self.fill(MIB)
        one = self.engine.batch_transfer_async_write(self.host, *lists)
        two = self.engine.batch_transfer_async(self.host, *lists, TransferOpcode.Write)
        self.assertGreater(min(one, two), 0)
        self.assertEqual(self.engine.get_batch_transfer_status([one, two]), 0)
        self.check_written(plan)
        with self.logged():
            self.assertEqual(self.engine.get_batch_transfer_status([one]), -1)
        three = self.engine.transfer_submit_write(self.host, self.address, self.remote, MIB)
        self.assertEqual(until(lambda: self.engine.transfer_check_status(three)), 1)
        self.assertEqual(self.remotely(0, MIB), digest(self.local.raw))
        with self.logged():
            self.assertEqual(self.engine.transfer_check_status(three), -1)
        self.assertEqual(self.engine._running()._state.live, {})

    def test_empty_batches(self):
        self.assertEqual(self.engine.batch_transfer_sync_write(self.host, [], [], []), 0)
        notify = TransferNotify("nothing", "0")
        self.assertEqual(
            self.engine.batch_transfer_sync(self.host, [], [], [], TransferOpcode.Write, notify), 0
        )
        self.assertEqual(self.other.notifications(), [["nothing", "0"]])
        ident = self.engine.batch_transfer_async_write(self.host, [], [], [])
        self.assertEqual(self.engine.get_batch_transfer_status([ident]), 0)
        self.assertEqual(self.engine.get_batch_transfer_status([]), 0)
        self.assertEqual(self.engine.batch_register_memory([], []), 0)

    def test_failures_are_codes(self):
        e = self.engine
        bad = self.remote + 2 * MIB
        for call, code in (
            (lambda: e.transfer_sync_write(self.host, self.address, bad, 10), -1),
            (lambda: e.transfer_sync_write(f"{HOST}:1", self.address, self.remote, 10), -1),
            (lambda: e.transfer_sync_write(self.host, 4096, self.remote, 10), -1),
            (lambda: e.transfer_sync_read(self.host, bytes(10), self.remote, 10), -1),
            (lambda: e.transfer_sync_write(self.host, bytearray(9), self.remote, 10), -1),
            (
                lambda: e.transfer_sync_write(
                    self.host, memoryview(self.local)[::2], self.remote, 1
                ),
                -1,
            ),
            (lambda: e.transfer_sync_write("a\0b", self.address, self.remote, 10), -1),
            (lambda: e.batch_transfer_sync_write(self.host, [self.address], [], [1]), -1),
            (lambda: e.batch_transfer_async_write(self.host, [self.address], [], [1]), 0),
            (lambda: e.batch_transfer_async_write(self.host, [4096], [self.remote], [1]), 0),
            (lambda: e.transfer_submit_write(f"{HOST}:1", self.address, self.remote, 10), 0),
            (lambda: e.transfer_check_status(12345), -1),
            (lambda: e.register_memory(self.address + 5, 10), -7),
            (lambda: e.register_memory(self.address + 5, 0), -1),
            (lambda: e.unregister_memory(4096), -3),
            (lambda: e.batch_register_memory([1 << 40], [1, 2]), -1),
            (lambda: e.get_first_buffer_address(f"{HOST}:1"), 0),
            (lambda: e.free_managed_buffer(4096, 10), -1),
            (lambda: e.allocate_managed_buffer(0), 0),
            (lambda: e.write_bytes_to_buffer(self.address, b"ab", 3), -1),
            (lambda: e.transfer_sync_write(self.host, 0, self.remote, 1), -1),
            (lambda: e.transfer_sync_read(self.host, ctypes.c_void_p(), self.remote, 1), -1),
            (lambda: e.batch_transfer_async_write(self.host, [0], [self.remote], [1]), 0),
            (lambda: e.batch_register_memory([0], [10]) < 0, True),
            (lambda: e.unregister_memory(0) < 0, True),
            (lambda: e.free_managed_buffer(0, 10), -1),
            (lambda: TransferEngine().initialize(HOST, "P2PHANDSHAKE", "xgmi", ""), -1),
            (lambda: TransferEngine().initialize(HOST, "nosuch://x", "tcp", ""), -1),
            (lambda: TransferEngine().get_rpc_port(), -1),
            (lambda: TransferEngine().transfer_sync_write("h", 1, 1, 1), -1),
        ):
            with self.logged():
                self.assertEqual(call(), code)
        self.assertNotEqual(e.send_probe(f"{HOST}:1"), 0)
        ident = e.batch_transfer_async_write(self.host, [self.address], [bad], [1])
        with self.logged():
            self.assertEqual(e.get_batch_transfer_status([ident]), -1)
        self.assertIsNone(TransferEngine().get_engine())

    def test_the_log_names_what_was_called(self):
        one, many = (4096, self.remote, 1), ([4096], [self.remote], [1])
        calls = {
            "transfer_sync_write": one,
            "transfer_sync_read": one,
            "transfer_sync": (*one, TransferOpcode.Read),
            "batch_transfer_sync_write": many,
            "batch_transfer_sync_read": many,
            "batch_transfer_sync": (*many, TransferOpcode.Read),
            "batch_transfer_async_write": many,
            "batch_transfer_async_read": many,
            "batch_transfer_async": (*many, TransferOpcode.Read),
            "transfer_submit_write": one,
        }
        for name, arguments in calls.items():
            with self.logged() as log:
                self.assertLessEqual(getattr(self.engine, name)(self.host, *arguments), 0)
            self.assertRegex(log.output[0], f"^ERROR:transfer_engine:{name}: ")
            with self.assertRaisesRegex(TypeError, rf"^{name}\(\): .*: -1 is negative"):
                wrong = (arguments[0], arguments[1], [-1] if "batch" in name else -1, *arguments[3:])
                getattr(self.engine, name)(self.host, *wrong)
        wrong = HOST, "nosuch://x", "tcp", ""
        for name, arguments in (("initialize", wrong), ("initialize_ext", (*wrong, "etcd"))):
            with self.logged() as log:
                self.assertEqual(getattr(TransferEngine(), name)(*arguments), -1)
            self.assertRegex(log.output[0], f"^ERROR:transfer_engine:{name}: ")
            with self.assertRaisesRegex(TypeError, rf"^{name}\(\) takes strings, not int"):
                getattr(TransferEngine(), name)(5, *arguments[1:])

    def test_lists_are_lists(self):
        e = self.engine
        for said, call in {
            "buffers": lambda: e.batch_transfer_sync_write(self.host, self.address, [1], [1]),
            "peer_buffer_addresses": lambda: e.batch_transfer_async_read(self.host, [1], 1, [1]),
            "lengths": lambda: e.batch_transfer_sync_read(self.host, [self.address], [1], 1),
            "buffer_addresses": lambda: e.batch_register_memory(self.address, [1]),
            "capacities": lambda: e.batch_register_memory([self.address], 1),
            "batch_ids": lambda: e.get_batch_transfer_status(5),
        }.items():
            with self.assertRaisesRegex(TypeError, f"{said} must be a list, not int"):
                call()

    def test_wrong_types_raise(self):
        e = self.engine
        for call in (
            lambda: e.transfer_sync_write(5, self.address, self.remote, 10),
            lambda: e.transfer_sync_write(self.host, None, self.remote, 10),
            lambda: e.transfer_sync_write(self.host, self.address, self.remote, -1),
            lambda: e.transfer_sync_write(self.host, self.address, -5, 1),
            lambda: e.transfer_sync_write(self.host, self.address, self.remote, 1.5),
            lambda: e.transfer_sync_write(self.host, self.address, self.remote),
            lambda: e.batch_transfer_sync_write(self.host, 5, [self.remote], [1]),
            lambda: e.batch_transfer_sync_write(self.host, [self.address], ["x"], [1]),
            lambda: e.register_memory("x", 5),
            lambda: e.register_memory(self.address, None),
            lambda: e.get_batch_transfer_status(5),
            lambda: e.transfer_check_status("x"),
            lambda: e.register_memory((1 << 64) + self.address, 5),
            lambda: e.write_bytes_to_buffer(self.address, 3, 3),
            lambda: e.write_bytes_to_buffer(0, b"abc", 3),
            lambda: e.write_bytes_to_buffer(ctypes.c_void_p(), b"abc", 3),
            lambda: e.read_bytes_from_buffer(0, 3),
            lambda: e.read_bytes_from_buffer(ctypes.c_void_p(), 3),
            lambda: e.write_bytes_to_buffer(self.address, [1, 2, 3], 3),
            lambda: e.initialize(HOST, "P2PHANDSHAKE", "tcp", None),
            lambda: e.send_probe(None),
        ):
            self.assertRaises(TypeError, call)

    def test_objects_in_place_of_addresses(self):
        e, remote = self.engine, self.remote
        objects = [
            bytearray(os.urandom(1001)),
            (ctypes.c_uint32 * 50)(*range(50)),
            array.array("d", [1.5, 2.5, 3.5]),
        ]
        if numpy:
            objects.append(numpy.random.default_rng(1).random((7, 9)))
        if torch:
            objects.append(torch.randn(5, 11))
        sizes = [span(obj).nbytes for obj in objects]
        content = [ctypes.string_at(span(obj).address, n) for obj, n in zip(objects, sizes)]
        self.assertEqual(e.batch_register_memory(objects, sizes), 0)
        offsets = [5000 * i + 1 for i in range(len(objects))]
        self.assertEqual(
            e.batch_transfer_sync_write(self.host, objects, [remote + b for b in offsets], sizes), 0
        )
        for obj, n, data, b in zip(objects, sizes, content, offsets):
            self.assertEqual(self.remotely(b, n), digest(data))
            ctypes.memset(span(obj).address, 0, n)
            self.assertEqual(e.transfer_sync_read(self.host, obj, remote + b, n), 0)
            self.assertEqual(e.read_bytes_from_buffer(obj, n), data)
        self.assertEqual(e.batch_unregister_memory(objects), 0)
        fixed = os.urandom(333)  # read-only memory: a source, and readable for peers
        self.assertEqual(e.register_memory(fixed, 333), 0)
        self.assertEqual(e.transfer_sync_write(self.host, fixed, remote, 333), 0)
        self.assertEqual(self.remotely(0, 333), digest(fixed))
        self.assertEqual(e.unregister_memory(fixed), 0)

    def test_registered_objects_stay_alive(self):
        data = bytearray(os.urandom(10000))
        kept, address = bytes(data), span(data).address
        self.assertEqual(self.engine.register_memory(data, 10000), 0)
        del data
        self.assertEqual(self.engine.transfer_sync_write(self.host, address, self.remote, 10000), 0)
        self.assertEqual(self.remotely(0, 10000), digest(kept))
        self.assertEqual(self.engine.unregister_memory(address), 0)

    def test_managed_buffers(self):
        e = self.engine
        sizes = [1, 8192, 8193, 100000, 1 << 20, 3 << 20, 64 << 20, (256 << 20) + 1]
        found = [e.allocate_managed_buffer(n) for n in sizes]
        self.assertNotIn(0, found)
        ranges = sorted(zip(found, sizes))
        for (a, n), (b, _) in zip(ranges, ranges[1:]):
            self.assertLessEqual(a + n, b)
        data = os.urandom(100000)
        e.write_bytes_to_buffer(found[3], data, 100000)
        self.assertEqual(e.transfer_sync_write(self.host, found[3], self.remote, 100000), 0)
        self.assertEqual(self.remotely(0, 100000), digest(data))
        for address, n in zip(found, sizes):
            self.assertEqual(e.free_managed_buffer(address, n), 0)
        free = {k: len(v) for k, v in e._managed._free.items() if v}
        self.assertEqual(sum(free.values()), len(e._managed._slabs))  # all halves joined again
        again = {e.allocate_managed_buffer(8192) for _ in range(1000)}
        self.assertEqual(len(again), 1000)
        for address in again:
            self.assertEqual(e.free_managed_buffer(address, 8192), 0)
        with self.logged():
            self.assertEqual(e.free_managed_buffer(address, 8192), -1)

    def on_cuda(self, *more, folder=os.environ.get("TE_TEST_SOFTGPU", "")):
        if not os.path.exists(os.path.join(folder, "libcuda.so.1")):
            self.skipTest("TE_TEST_SOFTGPU does not say where a libcuda.so.1 is")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_cuda.py")
        return subprocess.run(
            [sys.executable, program, self.host, str(self.remote), *more],
            env={**os.environ, "LD_LIBRARY_PATH": folder},
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )

    def test_streams_of_cuda(self):
        """What is ahead in the stream is done before the transfer, what is behind it after."""
        done = self.on_cuda()
        self.assertEqual((done.returncode, done.stdout), (0, "fine\n"), done.stderr)
        half = MIB // 2
        self.assertEqual(self.remotely(0, MIB), digest(bytes([11]) * half + bytes([9]) * half))

    def test_a_failure_in_a_stream_of_cuda_ends_the_process(self):
        done = self.on_cuda("bad")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("a transfer in a stream of CUDA failed, the process ends", done.stderr)

    def test_without_cuda(self):
        with mock.patch.object(_cuda, "driver", return_value=None):
            with self.assertRaisesRegex(RuntimeError, "libcuda.so.1 cannot be loaded"):
                self.engine.transfer_write_on_cuda(self.host, self.address, self.remote, 1)

    def test_what_else_there_is(self):
        e = self.engine
        self.assertEqual(e.get_first_buffer_address(self.host), self.remote)
        own = e.get_first_buffer_address(f"{HOST}:{e.get_rpc_port()}")
        self.assertTrue(0 < own <= self.address)
        self.assertEqual(e.get_first_buffer_address(e.get_engine().engine.name), own)
        for name in (self.host, f"{HOST}:1"):  # whatever comes of it
            self.assertEqual(e.warmup_efa_segment(name), 0)
        self.assertEqual(e.send_probe(self.host), 0)
        self.assertIn("cpu:0", json.loads(e.get_local_topology()))
        self.assertIn("cpu:0", json.loads(e.get_local_topology("mlx5_0")))
        self.assertNotEqual(e.get_engine_ptr(), 0)
        self.assertIsInstance(e.get_engine(), mooncake.engine.InnerTransferEngine)
        self.other.notify(target=f"{HOST}:{e.get_rpc_port()}", name="n", msg="m")
        (notify,) = e.get_notifies()
        self.assertEqual((notify.name, notify.msg), ("n", "m"))
        self.assertEqual(e.get_notifies(), [])

    def test_a_peer_that_comes_back(self):
        """The same name and port, other memory: the next transfer reaches the new process."""
        self.assertEqual(
            self.engine.transfer_sync_write(self.host, self.address, self.remote, 999), 0
        )
        self.other.kill()
        with self.logged():
            self.assertEqual(self.write_until_gone(self.host, self.address, self.remote), -1)
        self.other = self.peer(name=self.host)
        self.assertEqual(self.other.name(), self.host)
        remote = self.other.register(length=5000, seed=8)
        data = self.fill(4999)
        self.assertEqual(self.engine.transfer_sync_write(self.host, self.address, remote, 4999), 0)
        self.assertEqual(self.other.digest(address=remote, offset=0, length=4999), digest(data))

    def test_threads(self):
        results = []

        def work(i):
            buffer = ctypes.create_string_buffer(20000)
            address = ctypes.addressof(buffer)
            ok = self.engine.register_memory(address, 20000) == 0
            for turn in range(30):
                data = os.urandom(1 + (i * 997 + turn * 331) % 9999)
                ctypes.memmove(address, data, len(data))
                at = self.remote + i * 10000
                ok = ok and self.engine.transfer_sync_write(self.host, address, at, len(data)) == 0
                ident = self.engine.batch_transfer_async_read(
                    self.host, [address + 10000], [at], [len(data)]
                )
                ok = ok and self.engine.get_batch_transfer_status([ident]) == 0
                ok = ok and ctypes.string_at(address + 10000, len(data)) == data
            results.append(ok and self.engine.unregister_memory(address) == 0)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 8)


class Deadlines(Case):
    def test_a_stopped_peer(self):
        """After the time that MC_TRANSFER_TIMEOUT gives, memory is quiet and the batch is freed."""
        logging.getLogger("transfer_engine").addHandler(logging.NullHandler())
        logging.getLogger("transfer_engine").propagate = False
        with mock.patch.dict(os.environ, MC_TRANSFER_TIMEOUT="5", MC_FORCE_TCP="1"):
            engine, other = TransferEngine(), self.peer()
            self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""), 0)
        self.addCleanup(engine._shut)
        self.assertEqual(engine._timeout, 5.0)
        engine._timeout = HANG_S
        remote = other.register(length=4 * MIB, seed=1)
        local = bytearray(4 * MIB)
        self.assertEqual(engine.register_memory(local, 4 * MIB), 0)
        host = other.name()
        self.assertEqual(engine.transfer_sync_read(host, local, remote, 1), 0)
        engine._timeout = 0.5
        other.freeze()
        self.assertEqual(engine.transfer_sync_read(host, local, remote, 4 * MIB), -1)
        self.assertEqual(engine._running()._state.live, {})
        ident = engine.batch_transfer_async_read(host, [local], [remote], [4 * MIB])
        status = until(lambda: engine.transfer_check_status(ident))
        self.assertEqual((status, engine.transfer_check_status(ident)), (-2, -2))
        self.assertEqual(engine.get_batch_transfer_status([ident]), -1)
        before = bytes(local)
        other.thaw()
        self.assertEqual(other.name(), host)
        self.assertSameBytes(local, before)
        engine._timeout = HANG_S
        self.assertEqual(engine.transfer_sync_read(host, local, remote, 4 * MIB), 0)
        self.assertSameBytes(local, noise(1, 4 * MIB))


    def test_a_large_managed_buffer_that_is_in_use(self):
        logging.getLogger("transfer_engine").addHandler(logging.NullHandler())
        logging.getLogger("transfer_engine").propagate = False
        with mock.patch.dict(os.environ, MC_FORCE_TCP="1"):
            engine, other = TransferEngine(), self.peer()
            self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""), 0)
        self.addCleanup(engine._shut)
        remote, host, size = other.register(length=4 * MIB, seed=1), other.name(), (256 << 20) + 1
        address = engine.allocate_managed_buffer(size)
        self.assertEqual(engine.get_first_buffer_address(host), remote)
        other.freeze()
        ident = engine.transfer_submit_write(host, address, remote, 4 * MIB)
        self.assertEqual(engine.free_managed_buffer(address, size), -1)
        other.thaw()
        self.assertEqual(engine.get_batch_transfer_status([ident]), 0)
        self.assertEqual(engine.free_managed_buffer(address, size), 0)
        self.assertEqual(engine.free_managed_buffer(address, size), -1)


class Users(Compatible):
    """What serving stacks call, in their order. The other side is an engine in another process."""

    def start(self, length):
        other = self.peer()
        return other, other.name(), other.register(length=length, seed=21)

    def test_vllm(self):
        """MooncakeConnector: blocks of a KV cache, written to where the decoder wants them."""
        other, session, base = self.start(1 << 20)
        self.assertGreater(self.engine.get_rpc_port(), 0)
        layers = [bytearray(os.urandom(1 << 18)) for _ in range(4)]
        pointers = [span(layer).address for layer in layers]
        self.assertEqual(self.engine.batch_register_memory(pointers, [1 << 18] * 4), 0)
        sources, targets, lengths = [], [], []
        for layer, pointer in enumerate(pointers):
            for block in (3, 7, 8, 31):
                sources.append(pointer + block * 4096)
                targets.append(base + layer * (1 << 18) + (31 - block) * 4096)
                lengths.append(4096)
        self.assertEqual(
            self.engine.batch_transfer_sync_write(session, sources, targets, lengths), 0
        )
        for layer, content in enumerate(layers):
            for block in (3, 7, 8, 31):
                at = layer * (1 << 18) + (31 - block) * 4096
                self.assertEqual(
                    other.digest(address=base, offset=at, length=4096),
                    digest(content[block * 4096 : (block + 1) * 4096]),
                )

    def test_sglang(self):
        other, session, base = self.start(100000)
        data = bytearray(os.urandom(50000))
        pointer = span(data).address
        self.assertEqual(self.engine.register_memory(pointer, 50000), 0)
        self.assertEqual(self.engine.unregister_memory(pointer), 0)
        self.assertEqual(
            self.engine.batch_register_memory([pointer, pointer + 30000], [30000, 20000]), 0
        )
        self.assertGreaterEqual(self.engine.transfer_sync_write(session, pointer, base, 29999), 0)
        self.assertGreaterEqual(
            self.engine.batch_transfer_sync_write(
                session, [pointer + 30000, pointer], [base + 30000, base], [20000, 30000]
            ),
            0,
        )
        self.assertEqual(other.digest(address=base, offset=0, length=50000), digest(data))
        self.assertEqual(self.engine.send_probe(session), 0)
        self.assertIsNotNone(self.engine.get_engine())
        other.kill()
        self.assertLess(self.write_until_gone(session, pointer, base), 0)
        self.assertNotEqual(self.engine.send_probe(session), 0)
        self.assertEqual(self.engine.batch_unregister_memory([pointer, pointer + 30000]), 0)

    def test_lmcache(self):
        other, session, base = self.start(1 << 20)
        pool = bytearray(os.urandom(1 << 20))
        self.assertEqual(self.engine.register_memory(span(pool).address, len(pool)), 0)
        for page in (0, 5, 255):
            self.assertEqual(
                self.engine.transfer_sync_write(
                    session, span(pool).address + page * 4096, base + page * 4096, 4096
                ),
                0,
            )
            self.assertEqual(
                other.digest(address=base, offset=page * 4096, length=4096),
                digest(pool[page * 4096 : (page + 1) * 4096]),
            )

    def test_checkpoint_engine(self):
        _, session, base = self.start(300001)
        weights = [bytearray(n) for n in (100000, 200001)]
        pointers = [span(w).address for w in weights]
        self.assertEqual(self.engine.batch_register_memory(pointers, [100000, 200001]), 0)
        self.assertEqual(
            self.engine.batch_transfer_sync_read(
                session, pointers, [base, base + 100000], [100000, 200001]
            ),
            0,
        )
        self.assertSameBytes(b"".join(weights), noise(21, 300001))
        self.assertEqual(self.engine.batch_unregister_memory(pointers), 0)
        for _ in range(3):  # it makes engines again and again, on ports that may be taken
            again = TransferEngine()
            self.assertEqual(again.initialize(HOST, "P2PHANDSHAKE", "rdma", ""), 0)
            self.assertNotEqual(again.get_rpc_port(), self.engine.get_rpc_port())


if __name__ == "__main__":
    unittest.main()
