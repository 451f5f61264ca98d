# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of objects are."""

import ctypes
import gc
import mmap
import unittest
from array import array

from transfer_engine._memory import local_words, sized_span, span, words

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


class Tensor:
    """What a tensor looks like, over a bytearray."""

    def __init__(self, data, contiguous=True, device="cpu"):
        self.data = (ctypes.c_char * len(data)).from_buffer(data)
        self.nbytes = len(data)
        self.contiguous = contiguous
        self.device = type("Device", (), {"type": device})

    def data_ptr(self):
        return ctypes.addressof(self.data)

    def is_contiguous(self):
        return self.contiguous


class Addresses(unittest.TestCase):
    def content(self, obj):
        where = span(obj)
        return ctypes.string_at(where.address, where.nbytes)

    def test_integers_are_addresses(self):
        self.assertEqual(span(1 << 47).address, 1 << 47)
        self.assertIsNone(span(5).nbytes)
        self.assertEqual(span(ctypes.c_void_p(99)).address, 99)

    def test_what_has_a_buffer(self):
        for obj in (
            b"some bytes",
            bytearray(b"some bytes"),
            memoryview(b"a longer text")[2:9],
            array("I", [1, 2, 3]),
            (ctypes.c_int * 5)(1, 2, 3),
        ):
            self.assertEqual(self.content(obj), bytes(memoryview(obj)), type(obj))
        with mmap.mmap(-1, 5000) as area:
            area[7:11] = b"mmap"
            self.assertEqual(self.content(area)[7:11], b"mmap")
            gc.collect()
        self.assertFalse(span(b"x").writable)
        self.assertTrue(span(bytearray(1)).writable)
        self.assertFalse(span(memoryview(bytearray(2)).toreadonly()).writable)

    def test_a_buffer_is_pinned(self):
        data = bytearray(100)
        where = span(data)
        with self.assertRaises(BufferError):
            data.extend(b"more")
        del where
        gc.collect()
        data.extend(b"more")

    def test_refused(self):
        for obj in (
            None,
            1.5,
            "text",
            [1, 2],
            object(),
            ctypes.c_char_p(b"x"),
            ctypes.pointer(ctypes.c_int(1)),
        ):
            with self.assertRaises(TypeError):
                span(obj)
        with self.assertRaises(BufferError):
            span(memoryview(bytearray(10))[::2])
        with self.assertRaises(BufferError):
            span(Tensor(bytearray(10), contiguous=False))

    def test_lengths(self):
        self.assertEqual(sized_span(bytearray(10), None)[1], 10)
        self.assertEqual(sized_span(bytearray(10), 7)[1], 7)
        with self.assertRaises(BufferError):
            sized_span(bytearray(10), 11)
        with self.assertRaises(BufferError):
            sized_span(b"read-only", None, written=True)
        with self.assertRaises(TypeError):
            sized_span(4096, None)
        with self.assertRaises(TypeError):
            sized_span(4096, 1.5)
        with self.assertRaises(OverflowError):
            sized_span(4096, -1)
        with self.assertRaises(OverflowError):
            sized_span((1 << 64) - 10, 11)
        self.assertEqual(sized_span((1 << 64) - 10, 10)[1], 10)

    def test_what_is_refused_is_named_with_a_remedy(self):
        sparse = Tensor(bytearray(8))
        sparse.layout = "torch.sparse_coo"
        of_meta = Tensor(bytearray(8), device="meta")
        for call, told in (
            (lambda: span(of_meta), "the Tensor is on the device 'meta'.*torch.empty_like"),
            (lambda: span(sparse), r"the Tensor is sparse .*\.to_dense\(\)"),
            (lambda: span(Tensor(bytearray(8), contiguous=False)), r"the Tensor .* \.contiguous\(\)"),
            (lambda: span(memoryview(bytes(8))[::2]), r"the memoryview .*bytearray\(m\)"),
            (lambda: sized_span(bytes(8), None, True), "the bytes is read-only.* a bytearray or"),
            (lambda: sized_span(bytes(8), 9), "9 bytes are more than the 8 of the bytes"),
        ):
            self.assertRaisesRegex(BufferError, told, call)

    def test_tensor_like(self):
        data = bytearray(b"tensor data")
        self.assertEqual(self.content(Tensor(data)), data)
        tensor = Tensor(data)
        tensor.nbytes = lambda: 6  # as a storage of torch has it
        self.assertEqual(self.content(tensor), b"tensor")
        self.assertTrue(span(Tensor(data, device="cuda")).device)
        self.assertFalse(span(Tensor(data)).device)

    def test_interfaces(self):
        data = (ctypes.c_uint16 * 24)(*range(24))
        for strides, fine in (
            (None, True),
            ((16, 4, 2), True),
            ((2, 4, 16), False),
            ((32, 4, 2), False),
        ):
            interface = {
                "shape": (3, 4, 2),
                "typestr": "<u2",
                "strides": strides,
                "data": (ctypes.addressof(data), False),
                "version": 3,
            }
            for name in ("__cuda_array_interface__", "__array_interface__"):
                obj = type("Array", (), {name: interface})()
                if not fine:
                    self.assertRaises(BufferError, span, obj)
                    continue
                self.assertEqual(span(obj)[:2], (ctypes.addressof(data), 48))
                self.assertEqual(span(obj).device, name.startswith("__cuda"))

    def test_times_and_objects(self):
        data = (ctypes.c_uint64 * 4)()
        interface = {"shape": (2,), "typestr": "<M8[s]", "strides": (16,), "version": 3}
        interface["data"] = (ctypes.addressof(data), False)
        times = type("Times", (), {"__array_interface__": interface})()
        self.assertRaises(BufferError, span, times)
        interface["strides"] = (8,)
        self.assertEqual(span(times).nbytes, 16)
        of_objects = type("Objects", (bytearray,), {"dtype": type("D", (), {"hasobject": True})})
        self.assertRaises(BufferError, span, of_objects(8))

    def test_words(self):
        self.assertEqual(words([0, 1, (1 << 64) - 1], "x").tolist(), [0, 1, (1 << 64) - 1])
        self.assertEqual(words((), "x").tolist(), [])
        for wrong in ([None], ["1"], [1.5], 7):
            self.assertRaises(TypeError, words, wrong, "x")
        for wrong in ([-1], [1 << 64]):
            self.assertRaises(OverflowError, words, wrong, "x")

    def test_mixed_lists(self):
        data = bytearray(33)
        addresses, sizes, keep = local_words([data, span(data).address + 5], [33, 4], True)
        self.assertEqual(addresses[1] - addresses[0], 5)
        self.assertEqual(sizes.tolist(), [33, 4])
        self.assertEqual(len(keep), 1)
        self.assertRaises(BufferError, local_words, [data, b"ro"], [1, 1], True)
        self.assertRaises(ValueError, local_words, [data], [1, 2], True)

    @unittest.skipUnless(numpy, "no numpy")
    def test_numpy(self):
        for dtype in ("u1", "f8", "c16", "U3", "M8[s]", "f2"):
            a = numpy.zeros((5, 7), dtype)
            self.assertEqual(span(a)[:2], (a.ctypes.data, a.nbytes), dtype)
            self.assertTrue(span(a).writable)
        a = numpy.arange(40).reshape(5, 8)
        self.assertEqual(span(a[2])[:2], (a.ctypes.data + 2 * 64, 64))
        for wrong in (a.T, a[:, 1:], a[::2]):
            self.assertRaisesRegex(BufferError, "the ndarray .*ascontiguousarray", span, wrong)
        self.assertRaises(BufferError, span, numpy.zeros(8, "M8[s]")[::2])
        self.assertRaises(BufferError, span, numpy.array([object()]))
        self.assertRaises(BufferError, span, memoryview(numpy.array([object()])))
        a.flags.writeable = False
        self.assertFalse(span(a).writable)
        self.assertEqual(span(numpy.int64(77)).address, 77)
        self.assertEqual(words(numpy.array([3, 4], "i8"), "x").tolist(), [3, 4])
        self.assertEqual(
            local_words(numpy.array([3, 4]), numpy.array([1, 2]), True)[1].tolist(), [1, 2]
        )

    @unittest.skipUnless(torch, "no torch")
    def test_torch(self):
        a = torch.arange(40, dtype=torch.int32).reshape(5, 8)
        self.assertEqual(span(a)[:2], (a.data_ptr(), 160))
        self.assertEqual(span(a[1]).address, a.data_ptr() + 32)
        self.assertRaises(BufferError, span, a.t())
        for wrong, told in (
            (a.to("meta"), "torch.empty_like"),
            (a.to_sparse(), "to_dense"),
            (a.t(), "contiguous"),
        ):
            self.assertRaisesRegex(BufferError, f"the Tensor .*{told}", span, wrong)
        self.assertEqual(span(torch.zeros(0)).nbytes, 0)
        # A tensor of one integer is memory, too, and not an address.
        one = torch.tensor([5])
        self.assertEqual(local_words([one], [8], True)[0].tolist(), [one.data_ptr()])


if __name__ == "__main__":
    unittest.main()
