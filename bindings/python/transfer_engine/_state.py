# SPDX-License-Identifier: Apache-2.0
"""One engine of the library, and who uses it at the moment.

te_engine_destroy() must be the last call on its engine, and threads come and go as they like; so
each call on the engine is made inside `with state.inside`, a reentrant lock of the thread's own,
and close() takes each of these locks once: then no one is inside. Python's locks are taken and
given back (almost, see is_inside()) without a moment at which a signal could come between, so an
interrupted thread is not counted as inside for ever. What is inside for long, a wait for a batch, is ended by canceling the
batches first.

Memory of te_alloc() goes with its engine, but a view of it may outlive Engine.close(). Then close()
ends all transfers and takes all regions away, and the engine itself goes with the last such view,
at the latest when the process ends.

Daemon threads go on while the process ends, and an exception that nobody expects would be printed by
an interpreter that is being taken down, which may abort it. So then they are told to end, by
SystemExit: that is silent, and gives back the locks that other handlers of the exit may want.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from array import array
from collections import deque
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, Optional, Set

from . import _log
from ._errors import BUSY, CLOSED, NOT_FOUND, NOT_REGISTERED, TransferError, error_for
from ._native import Request, Status, lib

_EXIT_SECONDS = 5.0  # how long the end of the process waits for threads that are inside a call
_MOMENT = 0.02  # seconds: calls that leave by themselves within it are not cut short by close()


class _Shared:
    """What a forked child must make anew: its locks may be held by threads that it does not have.

    An object that has such locks is added to `objects`, and has disown().
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: a finalizer may run inside of it
        self.objects: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self.exiting = False  # the process ends, and its handlers of that run

    def add(self, thing: Any) -> None:
        """Has disown() of this object called in a forked child, for as long as it lives."""
        with self.lock:
            self.objects.add(thing)

    def all(self) -> List[Any]:
        """Those that live."""
        with self.lock:
            return list(self.objects)

    def disown(self) -> None:
        """In a forked child: makes all locks anew."""
        self.lock = threading.RLock()
        for thing in self.all():
            thing.disown()


shared = _Shared()


class _Mine(threading.local):
    """The lock of each thread, which it holds while it is inside."""

    def __init__(self, state: State) -> None:
        self.lock: Any = threading.RLock()
        state.add_lock(self.lock)


def has_ended(handle: int, batch: int) -> bool:
    """True once every request of the batch has ended, however; one that was freed has."""
    status = Status()
    rc = lib.te_batch_status(handle, batch, ctypes.byref(status))
    if rc == NOT_FOUND:
        return True
    lib.check(rc)
    return bool(status.state > 1)  # neither WAITING nor PENDING


class Hold:
    """What one registration keeps alive."""

    __slots__ = ("keep",)

    def __init__(self, keep: Any) -> None:
        self.keep = keep


class State:
    """An engine of the library: who is inside a call of it, and what must live as long as it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.live: Dict[int, Any] = {}  # batches that are not freed, and what they keep
        self.pins: Dict[int, List[Hold]] = {}  # by the address of their region, oldest first
        self.orphans: Deque[int] = deque()  # batches that nobody asks about any more
        self.views: Set[int] = set()  # memory of te_alloc() that is in use
        self.when_closed: List[Callable[[], None]] = []
        self._foreign = False  # true in a child of the process that made the engine
        self._closing = False
        self._quiet = False  # no one is inside, and nothing is under way
        self._destroyed = False
        self._make_locks()
        shared.add(self)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()  # reentrant: a finalizer may run inside of it
        self._closer = threading.RLock()
        self._locks: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._mine = _Mine(self)

    def add_lock(self, lock: Any) -> None:
        """The lock of a thread that has come."""
        with self._lock:
            self._locks.add(lock)

    @property
    def inside(self) -> Any:
        """The lock to hold while the engine is used."""
        lock = self._mine.lock
        if lock._is_owned():
            self.is_inside()
        return lock

    def is_inside(self) -> bool:
        """True if this thread is: then this is a finalizer, or the handler of a signal.

        Before Python 3.11 a signal may come between the body of a with statement and its end, and
        the lock is kept. So where no function below has a handle, the lock is given back here.
        """
        lock = self._mine.lock
        if not lock._is_owned():
            return False
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__package__") == __package__ and (
                "handle" in frame.f_locals or frame.f_code.co_name == "handle"
            ):
                return True
            frame = frame.f_back
        while lock._is_owned():
            lock.release()
        return False

    def handle(self) -> int:
        """The engine, for who is inside."""
        if self._closing:
            raise self.closed_error()
        return self._handle

    @staticmethod
    def closed_error() -> BaseException:
        """What a call raises that finds the engine closed."""
        thread = threading.current_thread()
        # Not for a thread that C code made: there, SystemExit may end the process.
        if shared.exiting and thread.daemon and not isinstance(thread, threading._DummyThread):
            return SystemExit()
        return error_for(CLOSED, "the engine is closed")

    @property
    def closed(self) -> bool:
        """True once close() has begun."""
        return self._closing

    def shown(self, what: Callable[[], str]) -> str:
        """What this says of the engine for a __repr__, which never raises; "closed" if it is."""
        try:
            return "closed" if self._closing else what()
        except (TransferError, SystemExit):  # it was closed meanwhile
            return "closed"

    # -------------------------------------------------------------------- batches and registrations

    def reap(self) -> None:
        """Frees the batches of `orphans` that have ended."""
        for _ in range(len(self.orphans)):
            try:
                batch = self.orphans.popleft()
            except IndexError:  # another thread reaps, too
                return
            if has_ended(self._handle, batch) and self.free(batch):
                continue
            self.orphans.append(batch)

    def free(self, batch: int) -> bool:
        """Frees a batch that has ended; false if another thread waits for it at this moment."""
        with self._lock:  # so that _cancel() finds it either here or freed
            rc = lib.te_batch_free(self._handle, batch)
            if rc == BUSY:
                return False
            if rc != NOT_FOUND:
                lib.check(rc)
            self.live.pop(batch, None)
        return True

    def _cancel(self, batch: int) -> None:
        """Cancels a batch, unless another thread has freed it by now."""
        with self._lock:
            if batch in self.live:
                lib.te_cancel(self._handle, batch)

    def pin(self, address: int, hold: Hold) -> None:
        """Before a registration: there are never fewer holds than registrations."""
        with self._lock:
            self.pins.setdefault(address, []).append(hold)

    def unpin(self, address: int, hold: Optional[Hold] = None) -> None:
        """Lets go of one hold; None: of the oldest, for a younger one is of a new registration."""
        with self._lock:
            holds = self.pins.get(address, [])
            if hold is None:
                del holds[:1]
            elif hold in holds:
                holds.remove(hold)
            if not holds:
                self.pins.pop(address, None)

    def is_registered(self, address: int) -> bool:
        """Whether a region holds this address."""
        request = Request(1, address, 0, address, 1)
        text = ctypes.create_string_buffer(16)
        rc = lib.te_explain(self._handle, ctypes.byref(request), text, len(text))
        return bool(rc != NOT_REGISTERED)

    # --------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        """Returns when the memory is quiet, also where another thread closes already.

        A thread that is inside cannot wait for itself to leave: there, another one closes.
        """
        if self._foreign or (self._destroyed and not self.when_closed):
            return
        if self.is_inside():
            self._closing = True
            threading.Thread(target=self.close, daemon=True).start()
            return
        with self._closer:
            self._end(None)

    def drop(self) -> None:
        """close() for a finalizer, which may run in any call of any engine."""
        if not self._foreign and any(s.is_inside() for s in shared.all() if isinstance(s, State)):
            threading.Thread(target=self.close, daemon=True).start()
        else:
            self.close()

    def close_at_exit(self) -> None:
        """close() that gives up on threads that never come back."""
        if not self._foreign and self._closer.acquire(timeout=_EXIT_SECONDS):
            try:
                self._end(_EXIT_SECONDS)
                self._destroy(forced=True)
            finally:
                self._closer.release()

    def disown(self) -> None:
        """In a forked child: the engine is the parent's."""
        self._foreign = True
        self._make_locks()

    def _end(self, seconds: Optional[float]) -> None:
        self._closing = True
        if not self._quiet:
            if not self._all_are_outside(_MOMENT):
                for batch in list(self.live):
                    self._cancel(batch)
                if not self._all_are_outside(seconds):
                    return  # a thread that never comes back: better left than taken its engine
            if self.views:
                self._quieten()
            self._quiet = True
        self._destroy()
        while self.when_closed:
            self.when_closed[-1]()
            self.when_closed.pop()

    def _all_are_outside(self, seconds: Optional[float]) -> bool:
        with self._lock:
            locks = list(self._locks)
        until = time.monotonic() + (seconds or 0)
        for lock in locks:
            if seconds is None:
                with lock:
                    continue
            if not lock.acquire(timeout=max(0, until - time.monotonic())):
                return False
            lock.release()
        return True

    def _quieten(self) -> None:
        for batch in list(self.live):
            lib.te_cancel(self._handle, batch)
            lib.te_wait(self._handle, batch, -1)
            lib.te_batch_free(self._handle, batch)
            del self.live[batch]
        regions = array("L", list(self.pins))
        rc = 0
        if regions:
            rc = lib.te_unregister_batch(self._handle, regions.buffer_info()[0], len(regions))
        for address in regions:
            if rc == 0 or not self.is_registered(address):
                self.pins.pop(address, None)

    def _destroy(self, forced: bool = False) -> None:
        """The only place where the engine goes: once, when quiet, and with the last view."""
        with self._lock:
            if self._destroyed or not self._quiet or (self.views and not forced):
                return
            self._destroyed = True
        lib.te_engine_destroy(self._handle)
        self.live.clear()
        self.pins.clear()

    def view_made(self, address: int) -> None:
        """Memory of te_alloc() was given away."""
        with self._lock:
            self.views.add(address)

    def view_gone(self, address: int) -> None:
        """The last reference to memory of te_alloc() went away."""
        if self._foreign:
            return
        with self._lock:
            self.views.discard(address)
            if not self._destroyed:
                lib.te_free(self._handle, ctypes.c_void_p(address))
        self._destroy()


@atexit.register
def _end_all() -> None:
    """Ends the engines that nobody closed, so that peers and metadata servers know."""
    shared.exiting = True
    for state in shared.all():
        if isinstance(state, State):
            state.close_at_exit()
    _log.stop()


os.register_at_fork(after_in_child=shared.disown)
