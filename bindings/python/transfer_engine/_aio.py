# SPDX-License-Identifier: Apache-2.0
"""Finished batches for asyncio.

An engine has one event descriptor, and te_done() tells each finish once; the batches may belong to
several loops in several threads. So every loop with someone waiting watches the descriptor,
whichever wakes first takes all that is told, and a finish of another loop is passed on to that
loop.

Who waits first says so and then looks whether the batch has ended already; a finish that was told
before was also visible before, so none is missed. A loop watches a duplicate of the descriptor,
which is its own to close: an engine may be closed, and the number used again, while the loop still
knows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from typing import Dict, List

from ._errors import EngineClosed
from ._native import lib
from ._state import State, has_ended, shared

_AT_ONCE = 64


class _Watch:
    """The descriptor as one loop watches it, and how many wait in that loop."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = 0


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Reactor:
    """Those who wait for batches of one engine."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.RLock()  # reentrant: a finalizer may run inside of it
        self._futures: Dict[int, List["asyncio.Future[None]"]] = {}
        self._loops: Dict[asyncio.AbstractEventLoop, _Watch] = {}
        state.when_closed.append(self.close)
        shared.add(self)

    def disown(self) -> None:
        """In a forked child: makes the lock anew."""
        self._lock = threading.RLock()

    async def finished(self, batch: int) -> None:
        """Returns when every request of the batch has ended."""
        loop = asyncio.get_running_loop()
        future: "asyncio.Future[None]" = loop.create_future()
        self._join(loop, batch, future)
        try:
            if not self._has_ended(batch):
                await future
        finally:
            self._leave(loop, batch, future)
        if self._state.closed:
            raise self._state.closed_error()

    def _has_ended(self, batch: int) -> bool:
        with self._state.inside:
            handle = self._state.handle()
            return has_ended(handle, batch)

    def _join(
        self, loop: asyncio.AbstractEventLoop, batch: int, future: "asyncio.Future[None]"
    ) -> None:
        with self._state.inside:
            handle = self._state.handle()
            fd = lib.check(lib.te_event_fd(handle))
            with self._lock:
                watch = self._loops.get(loop)
                if watch is None:
                    watch = self._loops[loop] = _Watch(os.dup(fd))
                    loop.add_reader(watch.fd, self._drain)
                watch.waiting += 1
                self._futures.setdefault(batch, []).append(future)

    def _leave(
        self, loop: asyncio.AbstractEventLoop, batch: int, future: "asyncio.Future[None]"
    ) -> None:
        with self._lock:
            waiting = self._futures[batch]
            waiting.remove(future)
            if not waiting:
                del self._futures[batch]
            watch = self._loops[loop]
            watch.waiting -= 1
            if watch.waiting == 0:
                del self._loops[loop]
                with contextlib.suppress(RuntimeError):  # that loop is closed
                    loop.remove_reader(watch.fd)
                os.close(watch.fd)

    def _drain(self) -> None:
        """Takes what is told and wakes who waits for it. Runs in any of the loops."""
        ids = (ctypes.c_uint64 * _AT_ONCE)()
        told = _AT_ONCE
        while told == _AT_ONCE:
            try:
                with self._state.inside:
                    handle = self._state.handle()
                    told = lib.check(lib.te_done(handle, ids, _AT_ONCE))
            except EngineClosed:
                return  # close() wakes them all
            with self._lock:
                futures = [f for batch in ids[:told] for f in self._futures.get(batch, ())]
            self._wake(futures)

    def _wake(self, futures: List["asyncio.Future[None]"]) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for future in futures:
            if future.get_loop() is here:
                _wake(future)
                continue
            try:
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:
                pass  # that loop is closed, so nobody waits

    def close(self) -> None:
        """The engine is gone: whoever waits learns it."""
        with self._lock:
            futures = [f for waiting in self._futures.values() for f in waiting]
        self._wake(futures)
