# SPDX-License-Identifier: Apache-2.0
"""One engine of the library, and who uses it at the moment.

te_engine_destroy() must be the last call on its engine, and threads come and go as they like; so
each call on the engine is made inside `with state as handle`, and close() waits until no one is
inside. What is inside for long, a wait for a batch, is ended by canceling the batches first.

Memory of te_alloc() goes with its engine, but a view of it may outlive Engine.close(). Then close()
ends all transfers and takes all regions away, and the engine itself goes with the last such view.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from array import array
from collections import deque
from typing import Any, Deque, Dict

from ._errors import CLOSED, error_for
from ._native import Status, lib

_EXIT_SECONDS = 5.0  # how long the end of the process waits for threads that are inside a call


_states: "weakref.WeakSet[State]" = weakref.WeakSet()


def has_ended(handle: int, batch: int) -> bool:
    """True once every request of the batch has ended, however."""
    status = Status()
    lib.check(lib.te_batch_status(handle, batch, ctypes.byref(status)))
    return bool(status.state > 1)  # neither WAITING nor PENDING


class State:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.live: Dict[int, Any] = {}  # batches that are not freed, and what they keep
        self.pins: Dict[int, Any] = {}  # regions by their address, and what they keep
        self.orphans: Deque[int] = deque()  # batches that nobody asks about any more
        self._foreign = False  # true in a child of the process that made the engine
        self._inside = 0
        self._views = 0
        self._closing = False
        self._lock = threading.RLock()  # reentrant: a finalizer may run inside of it
        self._changed = threading.Condition(self._lock)
        _states.add(self)

    def __enter__(self) -> int:
        with self._lock:
            if self._closing:
                raise error_for(CLOSED, "the engine is closed")
            self._inside += 1
        return self.handle

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._closing:
                self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closing

    def reap(self) -> None:
        """Frees the batches of `orphans` that have ended."""
        for _ in range(len(self.orphans)):
            try:
                batch = self.orphans.popleft()
            except IndexError:  # another thread reaps, too
                return
            if has_ended(self.handle, batch):
                lib.te_batch_free(self.handle, batch)
                self.live.pop(batch, None)
            else:
                self.orphans.append(batch)

    def close(self, seconds: float = threading.TIMEOUT_MAX) -> None:
        if self._foreign:
            return
        with self._changed:
            if self._closing:
                return
            self._closing = True
            for batch in list(self.live):
                lib.te_cancel(self.handle, batch)
            if not self._changed.wait_for(lambda: self._inside == 0, seconds):
                return  # a thread that never comes back: better left than taken its engine
            if self._views:
                self._quieten()
                return
        self._destroy()

    def disown(self) -> None:
        """In a forked child: the engine is the parent's, and a thread of that may hold the lock."""
        self._foreign = True
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def close_at_exit(self) -> None:
        self._views = 0
        self.close(_EXIT_SECONDS)

    def _quieten(self) -> None:
        for batch in list(self.live):
            lib.te_wait(self.handle, batch, -1)
            lib.te_batch_free(self.handle, batch)
        regions = array("L", list(self.pins))
        if regions:
            lib.te_unregister_batch(self.handle, regions.buffer_info()[0], len(regions))
        self.live.clear()
        self.pins.clear()

    def _destroy(self) -> None:
        lib.te_engine_destroy(self.handle)
        self.live.clear()
        self.pins.clear()

    def view_made(self) -> None:
        with self._changed:
            self._views += 1

    def view_gone(self, address: int) -> None:
        """The last reference to memory of te_alloc() went away."""
        if self._foreign:
            return
        with self._changed:
            self._views -= 1
            last = self._closing and self._views == 0
            if not self._closing:
                lib.te_free(self.handle, ctypes.c_void_p(address))
        if last:
            self._destroy()


@atexit.register
def _end_all() -> None:
    """Ends the engines that nobody closed, so that peers and metadata servers know."""
    for state in list(_states):
        state.close_at_exit()


def _disown_all() -> None:
    for state in list(_states):
        state.disown()


os.register_at_fork(after_in_child=_disown_all)
