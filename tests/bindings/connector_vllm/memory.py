# SPDX-License-Identifier: Apache-2.0
"""Caches of bytes for the connectors' tests: tensors of torch where one is told to take them, else what has their methods."""
import ctypes
import hashlib
import math
import types


class Bytes:
    """A tensor of bytes, as far as a connector looks at one."""

    device, dtype = types.SimpleNamespace(type="cpu"), "bytes"

    def __init__(self, shape, of=None, at=0):
        self.shape, self._memory, self._at = tuple(shape), of, at
        self._strides = [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
        if of is None:
            self._memory = ctypes.create_string_buffer(self.numel())

    def __getitem__(self, index):
        """The view [:, i]."""
        view = Bytes(self.shape[:1] + self.shape[2:], self._memory, index[1] * self._strides[1])
        view._strides = self._strides[:1] + self._strides[2:]
        return view

    def numel(self):
        return math.prod(self.shape)

    def stride(self):
        return tuple(self._strides)

    def element_size(self):
        return 1

    def data_ptr(self):
        return ctypes.addressof(self._memory) + self._at


def cache(shape, torch):
    if not torch:
        return Bytes(shape)
    import torch as there
    return there.zeros(shape, dtype=there.uint8)


_fixed = {}


def fixed(address, count, shape):
    """So many caches, one behind the other from that address on, of which nothing else is in use. It stays with this process."""
    size, made = math.prod(shape), []
    if address in _fixed:
        ctypes.memset(address, 0, count * size)
        return _fixed[address]
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    mmap.restype = ctypes.c_void_p
    if mmap(address, count * size, 3, 0x100022, -1, 0) != address:  # read and write; private, anonymous, fixed, not in use
        raise OSError(ctypes.get_errno(), f"no memory at {address:#x}")
    for i in range(count):
        made.append(Bytes(shape, (ctypes.c_char * size).from_address(address + i * size)))
    _fixed[address] = made
    return made


def put(address, data):
    ctypes.memmove(address, data, len(data))


def get(address, length):
    return ctypes.string_at(address, length)


def noise(what, length):
    """The same bytes for the same words, in every process."""
    return hashlib.shake_128(repr(what).encode()).digest(length)
