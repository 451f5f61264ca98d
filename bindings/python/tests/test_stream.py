# SPDX-License-Identifier: Apache-2.0
"""Transfers that wait for streams and descriptors, and descriptors that wait for them."""

import ctypes
import os
import struct
import sys
import types
import unittest
from unittest import mock

import transfer_engine as te
from support import HOST, TCP, Case
from transfer_engine._stream import _stream


def eventfd():
    return ctypes.CDLL(None).eventfd(0, 0)


class Streams(Case):
    def test_descriptors(self):
        engine, peer = te.Engine(name=HOST, options=TCP), te.Engine(name=HOST, options=TCP)
        self.addCleanup(engine.close)
        self.addCleanup(peer.close)
        segment, theirs = engine.open(peer.name), bytearray(1000)
        memory, remote = bytearray(1000), peer.register(theirs).address
        with engine.register(memory), segment.prepare([memory], [remote]) as prepared:
            pages = te.Pages(memory, 10, 100), te.Pages(remote, 10, 100)
            ways = (
                lambda **order: segment.start_read([memory], [remote], **order),
                lambda **order: segment.start_write([memory], [remote], **order),
                lambda **order: prepared.start(te.Opcode.READ, **order),
                lambda **order: segment.start_pages(te.Opcode.READ, *pages, 100, 10, **order),
            )
            for way in ways:
                ready, over = os.pipe(), eventfd()
                with open(ready[0], "rb") as reader, way(after=reader, then=over) as batch:
                    self.assertEqual(batch.tasks()[0].state, te.TransferState.PENDING)
                    os.write(ready[1], b"1")
                    self.assertEqual(os.read(over, 8), struct.pack("=Q", 1))
                    self.assertEqual(batch.result(), 1000)
                os.close(ready[1])
                os.close(over)
            ready = eventfd()
            with segment.start_read([memory], [remote], after=ready, timeout=0.02) as batch:
                with self.assertRaises(te.TransferTimeout):
                    batch.result()
            with self.assertRaisesRegex(te.RequestError, "is no eventfd"), open(os.devnull) as other:
                segment.start_read([memory], [remote], then=other)
            with self.assertRaisesRegex(TypeError, "after must be an integer, not str"):
                segment.start_read([memory], [remote], after="cuda:0")
            with self.assertRaisesRegex(te.RequestError, "'cpu:0' is no device that has streams"):
                segment.start_read([memory], [remote], after=("cpu:0", 0))
            with self.assertRaisesRegex(te.RequestError, "at least one request"):
                segment.start_read([], [], then=ready)
            os.close(ready)

    def test_streams_of_others(self):
        device = types.SimpleNamespace(index=3)
        torch = types.SimpleNamespace(version=types.SimpleNamespace(hip=None))
        cupy = types.SimpleNamespace(
            cuda=types.SimpleNamespace(runtime=types.SimpleNamespace(is_hip=False, getDevice=lambda: 2))
        )
        with mock.patch.dict(sys.modules, torch=torch, cupy=cupy):
            stream = types.SimpleNamespace(cuda_stream=16, device=device)
            self.assertEqual(_stream(stream), ("cuda:3", 16))
            torch.version.hip = "6.0"
            self.assertEqual(_stream(stream), ("hip:3", 16))
            self.assertEqual(_stream(types.SimpleNamespace(npu_stream=16, device=device)), ("npu:3", 16))
            self.assertEqual(_stream(types.SimpleNamespace(ptr=8, device_id=1)), ("cuda:1", 8))
            self.assertEqual(_stream(types.SimpleNamespace(ptr=0, device_id=-1)), ("cuda:2", 0))
        self.assertEqual(_stream(("cuda:1", 8)), ("cuda:1", 8))
        self.assertIsNone(_stream(5))


if __name__ == "__main__":
    unittest.main()
