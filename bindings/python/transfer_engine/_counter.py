# SPDX-License-Identifier: Apache-2.0
"""Counters: how a target learns that bytes have arrived (te_counter.h)."""

from __future__ import annotations

import ctypes
import math
import time
from ctypes import byref
from typing import TYPE_CHECKING, Callable, Optional

from ._batch import checked_timeout
from ._errors import CANCELED, CLOSED, INVALID, NOT_FOUND, REJECTED, STALE, TIMEOUT, TransferError, error_for
from ._memory import integer
from ._native import lib
from ._state import State

if TYPE_CHECKING:
    from ._engine import Engine

_SLICE_MS = 200  # a wait looks so often whether the interpreter got a signal, or the engine is being closed
_FOR_GOOD = (INVALID, CANCELED, CLOSED, NOT_FOUND, REJECTED, STALE)  # of a wait: waiting longer is in vain


def _waited(
    state: State, timeout: Optional[float], call: Callable[[int, int], int]
) -> Optional[TransferError]:
    """What comes of call(engine, milliseconds), which is made until it does well or the time is over."""
    timeout = checked_timeout(timeout)
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left_ms = max(0.0, until - time.monotonic()) * 1000
        with state.inside:
            handle = state.handle()
            rc = call(handle, math.ceil(min(_SLICE_MS, left_ms)))
            failed = lib.error(rc) if rc < 0 else None
        if failed is None or rc in _FOR_GOOD or time.monotonic() >= until:
            return failed


class Counter:
    """A sum that peers raise when their batches are done; the bytes are in our memory by then.

    Engine.counter() makes one. A context manager: its end closes it.
    """

    def __init__(self, engine: Engine, name: str, ident: int) -> None:
        self._engine = engine
        self.name = name
        self.id = ident

    def __repr__(self) -> str:
        what = self._engine._state.shown(lambda: f"value={self.value}") if self.id else "closed"
        return f"<{type(self).__name__} {self.name!r} {what}>"

    def _opened(self) -> int:
        """The id, of one that is not closed."""
        if not self.id:
            raise error_for(NOT_FOUND, f"the counter {self.name!r} is closed")
        return self.id

    @property
    def value(self) -> int:
        """What was added so far; never less than before."""
        ident, value = self._opened(), ctypes.c_uint64()
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            lib.check(lib.te_counter_value(handle, ident, byref(value)))
        return value.value

    def wait(self, at_least: int, timeout: Optional[float] = None) -> bool:
        """Waits until it is at least that, `timeout` seconds at most; true if it is.

        0 or less looks at once. Any number of threads may wait, for different values. One that waits when
        the counter is closed gets RequestError.
        """
        ident, at_least = self._opened(), integer(at_least, "at_least")
        failed = _waited(
            self._engine._state,
            timeout,
            lambda handle, ms: int(lib.te_counter_wait(handle, ident, at_least, ms)),
        )
        if failed is not None and failed.code != TIMEOUT:
            raise failed
        return failed is None

    async def wait_async(self, at_least: int) -> None:
        """wait() for asyncio, without a thread; asyncio.wait_for() limits the time."""
        await self._engine._arrivals.reached(self._opened(), integer(at_least, "at_least"))

    def close(self) -> None:
        """Ends the counter: its name is free, and adders that were opened before raise nothing more."""
        state = self._engine._state
        if self.id and state.closed:
            state.close()
        elif self.id:
            self._engine._arrivals.destroy(self.id)
        self.id = 0

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Adder:
    """A counter of a peer, to be raised with Batch.add_after(); Segment.adder() opens one.

    Threads may share it. A context manager: its end closes it, and what the peer has not counted by then
    is forgotten.
    """

    def __init__(self, engine: Engine, name: str, ident: int) -> None:
        self._engine = engine
        self.name = name
        self.id = ident

    def __repr__(self) -> str:
        closed = not self.id or self._engine._state.closed
        return f"<{type(self).__name__} {self.name!r}{' closed' if closed else ''}>"

    def _opened(self) -> int:
        """The id, of one that is not closed."""
        if not self.id:
            raise error_for(NOT_FOUND, f"the adder of {self.name!r} is closed")
        return self.id

    def flush(self, timeout: Optional[float] = None) -> None:
        """Returns once the batches have ended, and the peer has counted what they added.

        Else raises why that is not known, after `timeout` seconds at most: RequestError where it will never be
        counted, PathError where it is still being tried. 0 or less says how it stands.
        """
        ident = self._opened()
        failed = _waited(
            self._engine._state,
            timeout,
            lambda handle, ms: int(lib.te_adder_flush(handle, ident, ms)),
        )
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Gives the adder up. For one that no unfinished batch is to raise; RequestError then."""
        state = self._engine._state
        if self.id and state.closed:
            state.close()
        elif self.id:
            with state.inside:
                handle = state.handle()
                lib.check(lib.te_adder_close(handle, self.id))
        self.id = 0

    def __enter__(self) -> Adder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
