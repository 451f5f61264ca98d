# SPDX-License-Identifier: Apache-2.0
"""Finished batches and raised counters for asyncio.

An engine has one event descriptor, and te_done() tells each finish once; the batches may belong to
several loops in several threads. So every loop with someone waiting watches the descriptor,
whichever wakes first takes all that is told, and a finish of another loop is passed on to that
loop.

Who waits first says so and then looks whether the batch has ended already; a finish that was told
before was also visible before, so none is missed. A loop watches a duplicate of the descriptor,
which is its own to close: an engine may be closed, and the number used again, while the loop still
knows it.

A counter has one descriptor, which tells of one value. It is set to the least that someone waits for, and
set anew each time that it has told.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from ctypes import byref
from typing import Dict, List, Sequence

from ._errors import CANCELED, EngineClosed, TransferError, error_for
from ._native import lib
from ._state import State, has_ended, shared

_AT_ONCE = 64
_MOST = (1 << 64) - 1  # that a counter can be


class _Watch:
    """The descriptor as one loop watches it, and how many wait in that loop."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = 0


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _wake_all(futures: "Sequence[asyncio.Future[None]]") -> None:
    """Of any loops."""
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
            _wake_all(futures)

    def close(self) -> None:
        """The engine is gone: whoever waits learns it."""
        with self._lock:
            futures = [f for waiting in self._futures.values() for f in waiting]
        _wake_all(futures)


class _Waiter:
    """Who waits in a loop for a counter, which the loop watches by a descriptor of its own."""

    def __init__(self, at_least: int, future: "asyncio.Future[None]") -> None:
        self.at_least = at_least
        self.future = future
        self.fd = -1
        self.ended = False  # the counter was


class Arrivals:
    """Those who wait for counters of one engine."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.RLock()  # reentrant: a finalizer may run inside of it
        self._waiters: Dict[int, List[_Waiter]] = {}
        state.when_closed.append(self.close)
        shared.add(self)

    def disown(self) -> None:
        """In a forked child: makes the lock anew."""
        self._lock = threading.RLock()

    async def reached(self, counter: int, at_least: int) -> None:
        """Returns when the counter is at least that."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(at_least, loop.create_future())
        try:
            self._join(counter, waiter)
            loop.add_reader(waiter.fd, self._look, counter)
            await waiter.future
        finally:
            self._leave(loop, counter, waiter)
        if self._state.closed:
            raise self._state.closed_error()
        if waiter.ended:
            raise error_for(CANCELED, "the counter was closed")

    def _join(self, counter: int, waiter: _Waiter) -> None:
        with self._state.inside:
            handle = self._state.handle()
            with self._lock:
                waiters = self._waiters.setdefault(counter, [])
                waiters.append(waiter)
                least = min(w.at_least for w in waiters)
                waiter.fd = os.dup(lib.check(lib.te_counter_fd(handle, counter, least)))

    def _leave(self, loop: asyncio.AbstractEventLoop, counter: int, waiter: _Waiter) -> None:
        with self._lock:
            waiters = self._waiters.get(counter, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(counter, None)
        if waiter.fd >= 0:
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.remove_reader(waiter.fd)
            os.close(waiter.fd)

    def _look(self, counter: int) -> None:
        """Wakes those whose value the counter has got to. Runs in any of the loops."""
        value = ctypes.c_uint64()
        try:
            with self._state.inside:
                handle = self._state.handle()
                with self._lock:
                    lib.check(lib.te_counter_value(handle, counter, byref(value)))
                    waiters = self._waiters.get(counter, [])
                    futures = [w.future for w in waiters if w.at_least <= value.value]
                    others = [w.at_least for w in waiters if w.at_least > value.value]
                    least = min(others, default=min(value.value + 1, _MOST))
                    lib.check(lib.te_counter_fd(handle, counter, least))
        except TransferError:
            return  # destroy() or close() wakes them all
        _wake_all(futures)

    def destroy(self, counter: int) -> None:
        """Ends the counter: whoever waits learns it."""
        with self._state.inside:
            handle = self._state.handle()
            with self._lock:
                lib.check(lib.te_counter_destroy(handle, counter))
                waiters = list(self._waiters.get(counter, []))
        for waiter in waiters:
            waiter.ended = True
        _wake_all([w.future for w in waiters])

    def close(self) -> None:
        """The engine is gone: whoever waits learns it."""
        with self._lock:
            futures = [w.future for waiters in self._waiters.values() for w in waiters]
        _wake_all(futures)
