# SPDX-License-Identifier: Apache-2.0
"""Transfers in streams of CUDA, by a driver without devices of its own: on_cuda.py SESSION REMOTE [bad]."""

import ctypes
import sys

from mooncake.engine import TransferEngine
from support import HOST

SIZE = 1 << 20


class Driver:
    """Calls of the driver, each of which must succeed."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        def call(*arguments):
            rc = getattr(self.library, name)(*arguments)
            assert rc == 0, (name, rc)

        return call


def main(session, remote, bad):
    cuda = Driver()
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    memory, other = ctypes.c_uint64(), ctypes.c_uint64()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    engine = TransferEngine()
    assert engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") == 0
    try:
        engine.transfer_write_on_cuda(session, 4096, remote, 1)
    except RuntimeError as e:
        assert "of the device whose context this thread has" in str(e), e
    else:
        raise AssertionError("a thread without a context has a stream")
    cuda.cuCtxPushCurrent_v2(context)
    cuda.cuStreamCreate(ctypes.byref(stream), 1)
    for pointer in (memory, other):
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(SIZE))
        assert engine.register_memory(pointer.value, SIZE, "cuda:0") == 0
    back = ctypes.create_string_buffer(SIZE)

    def fill(pointer, byte, at):
        cuda.cuMemsetD8Async(pointer, byte, ctypes.c_size_t(SIZE), at)

    def of_device(pointer):
        cuda.cuMemcpy(ctypes.c_uint64(ctypes.addressof(back)), pointer, ctypes.c_size_t(SIZE))
        return set(back.raw)

    if bad:
        engine.transfer_write_on_cuda(session, memory.value, 4096, SIZE, stream.value)
        cuda.cuStreamSynchronize(stream)
        raise AssertionError("the process goes on")
    half = SIZE // 2
    for at in (stream, None):
        number = 0 if at is None else at.value
        for byte in (7, 11):
            fill(memory, byte, at)
            assert engine.transfer_write_on_cuda(session, memory.value, remote, SIZE, number) is None
            fill(memory, 9, at)
            halves = [memory.value + half, memory.value], [remote + half, remote], [half, half]
            engine.batch_transfer_write_on_cuda(session, *[x[:1] for x in halves], number)
            engine.transfer_read_on_cuda(session, other.value, remote, SIZE, stream_ptr=number)
            fill(memory, 13, at)
            engine.batch_transfer_read_on_cuda(session, *halves, stream_ptr=number)
            cuda.cuStreamSynchronize(at)
            assert of_device(other) == {byte, 9}, byte
            assert back.raw == bytes([byte]) * half + bytes([9]) * half
            assert of_device(memory) == {byte, 9}, byte
    for wrong in (ValueError, [1, 2], [remote], [1, 1]), (TypeError, [memory.value], [remote], ["x"]):
        try:
            engine.batch_transfer_write_on_cuda(session, *wrong[1:], stream.value)
        except wrong[0]:
            continue
        raise AssertionError(wrong)
    print("fine")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3)
