#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mooncake's store and our engine in one process, by the overlay: overlay.py PORT-OF-MASTER TARGET ADDRESS.

Stores objects at their master while our engine, by the name mooncake.engine, moves bytes to the target and
back. Without arguments it prints where mooncake.engine is from.
"""
import os
import sys

import mooncake.engine
import mooncake.store

SIZES = (1, 4097, 1000003)


def main(master, target, address):
    import transfer_engine  # pylint: disable=import-outside-toplevel
    assert mooncake.engine.TransferEngine is transfer_engine.TransferEngine
    engine = mooncake.engine.TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    memory = bytearray(2 * max(SIZES))
    assert engine.register_memory(memory, len(memory)) == 0
    store = mooncake.store.MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", f"127.0.0.1:{master}") == 0
    kept = {}
    for size in SIZES:
        view = memoryview(memory)
        view[:size] = data = os.urandom(size)
        kept[f"object-{size}"] = data
        assert store.put(f"object-{size}", data) == 0
        assert engine.transfer_sync_write(target, view[:size], int(address), size) == 0
        assert engine.transfer_sync_read(target, view[size:], int(address), size) == 0
        assert view[size:2 * size] == data, f"{size} bytes came back as others"
    for name, data in kept.items():
        assert store.get(name) == data, f"{name} is another one"
    store.close()
    print("fine")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        print(mooncake.engine.__spec__.origin)
