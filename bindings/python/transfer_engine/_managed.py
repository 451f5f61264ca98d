# SPDX-License-Identifier: Apache-2.0
"""Small registered buffers cut from large registered slabs, by the buddy method."""

from __future__ import annotations

import threading
from typing import Dict, Set, Tuple

from ._engine import Engine
from ._state import shared

_SMALLEST = 13  # 8 KiB
_LARGEST = 28  # 256 MiB; what is larger is a slab of its own
_SLAB = 26  # 64 MiB, or as much as the buffer that it is made for


class ManagedBuffers:
    """Blocks of 2**order bytes. A block's buddy is the other half of what they were cut from."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._slabs: Dict[int, Tuple[int, memoryview]] = {}  # address: order, memory
        self._free: Dict[int, Set[int]] = {k: set() for k in range(_SMALLEST, _LARGEST + 1)}
        self._used: Dict[int, Tuple[int, int]] = {}  # address: order (0: a slab), slab
        shared.add(self)

    def disown(self) -> None:
        """In a forked child: makes the lock anew."""
        self._lock = threading.Lock()

    def allocate(self, length: int) -> int:
        """The address of at least `length` registered bytes."""
        if length <= 0:
            raise ValueError(f"a buffer of {length} bytes")
        order = max((length - 1).bit_length(), _SMALLEST)
        with self._lock:
            if order > _LARGEST:
                address = self._slab(length, 0)
                self._used[address] = (0, address)
                return address
            found = next((k for k in range(order, _LARGEST + 1) if self._free[k]), 0)
            if not found:
                found = max(order, _SLAB)
                self._free[found].add(self._slab(1 << found, found))
            address = self._free[found].pop()
            while found > order:
                found -= 1
                self._free[found].add(address + (1 << found))
            self._used[address] = (order, self._slab_of(address))
            return address

    def free(self, address: int) -> None:
        """Gives one back. KeyError if none begins there."""
        with self._lock:
            order, slab = self._used[address]
            if not order:
                self._engine.unregister(address)  # while in use it stays
            del self._used[address]
            if not order:
                del self._slabs[address]
                return
            while order < self._slabs[slab][0]:
                buddy = slab + ((address - slab) ^ (1 << order))
                if buddy not in self._free[order]:
                    break
                self._free[order].remove(buddy)
                address = min(address, buddy)
                order += 1
            self._free[order].add(address)

    def _slab(self, length: int, order: int) -> int:
        memory = self._engine.alloc(length)
        address = self._engine.register(memory).address
        self._slabs[address] = (order, memory)
        return address

    def _slab_of(self, address: int) -> int:
        return max(slab for slab in self._slabs if slab <= address)
