# SPDX-License-Identifier: Apache-2.0
"""Transfers under way."""

from __future__ import annotations

import asyncio
import ctypes
import math
import time
import warnings
from ctypes import byref
from dataclasses import dataclass
from enum import IntEnum
from numbers import Real
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generator,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from ._errors import (
    NOT_FOUND,
    TIMEOUT,
    EngineClosed,
    TransferError,
    Unsafe,
    error_for,
    in_python,
)
from ._lease import Lease, raw_key
from ._memory import Numbers, integer, words
from ._native import (
    Message,
    NotifyParts,
    PageSide,
    Path,
    Range,
    Status,
    SubmitOptions,
    lib,
    message,
    text,
)
from ._native import Paths as RawPaths
from ._state import has_ended
from ._stream import Order

if TYPE_CHECKING:
    from ._counter import Adder
    from ._engine import Engine

_SLICE_MS = 200  # a blocking wait looks so often whether the interpreter got a signal
_UNSAFE = 1000  # ranges that an exception has
_MOST_SECONDS = 1e9  # longer than that is for ever


class Opcode(IntEnum):
    """The direction of a request: READ is from the peer, WRITE is to it."""

    READ = 0
    WRITE = 1


class TransferState(IntEnum):
    """How a request stands: the first two are under way, the others have ended (te.h)."""

    WAITING = 0
    PENDING = 1
    INVALID = 2
    CANCELED = 3
    COMPLETED = 4
    TIMEOUT = 5
    FAILED = 6


class TaskStatus(NamedTuple):
    """How one request stands. `message` says why it failed."""

    state: TransferState
    error: int
    nbytes: int
    message: str


class TaskPath(NamedTuple):
    """What carries one request, or has: "" for a transport or NIC that there is none of, or not yet.

    `changes` counts how often it, or a part of it, had failed and went another way then; `staged`: this side's
    memory of a device is copied through host memory.
    """

    transport: str
    nic: str
    changes: int
    staged: bool


def checked_timeout(timeout: Optional[float]) -> Optional[float]:
    """None for one that never passes."""
    if timeout is None:
        return None
    if type(timeout) is not float and not isinstance(timeout, Real):
        raise TypeError(f"timeout must be seconds or None, not {type(timeout).__name__}")
    if math.isnan(timeout):
        raise ValueError("timeout is not a number")
    return None if timeout > _MOST_SECONDS else timeout


Names = Union[None, str, Iterable[str]]


def _names(names: Names, what: str) -> Optional[bytes]:
    """A list of transports as te_paths has it."""
    if names is None:
        return None
    listed = (names,) if isinstance(names, str) else names
    return b",".join(text(name, what) for name in listed)


@dataclass(frozen=True)
class Paths:
    """Which transports may carry transfers (te_paths.h): names such as "rdma", or several of them.

    `require`: one of these or none, and what they cannot carry is refused at once; `prefer`: these before others,
    in this order; `forbid`: none of these. Batch.paths() tells what has carried a transfer.
    """

    require: Names = None
    prefer: Names = None
    forbid: Names = None

    def __post_init__(self) -> None:
        for what in ("require", "prefer", "forbid"):
            names = getattr(self, what)
            if names is not None and not isinstance(names, str):
                object.__setattr__(self, what, tuple(names))  # to be read more than once
        if _names(self.require, "require") == b"":
            raise ValueError("require names no transport; None leaves it open")

    def _raw(self) -> RawPaths:
        return RawPaths(
            ctypes.sizeof(RawPaths),
            _names(self.require, "require"),
            _names(self.prefer, "prefer"),
            _names(self.forbid, "forbid"),
        )


def submit_options(
    timeout: Optional[float],
    notify: Optional[NotifyParts],
    target: int,
    traceparent: Optional[str] = None,
    paths: Optional[Paths] = None,
    lease: Optional[Union[bytes, Lease]] = None,
    order: Order = Order(),
) -> Optional[SubmitOptions]:
    """te_submit_opts, None where all is as usual."""
    timeout = checked_timeout(timeout)
    if all(x is None for x in (timeout, notify, traceparent, paths, lease, *order)):
        return None
    options = SubmitOptions(size=ctypes.sizeof(SubmitOptions))
    if timeout is not None:
        options.deadline_ms = max(1, math.ceil(timeout * 1000))
    if notify is not None:
        options.follows = (target, message(notify))
    if traceparent is not None:
        if not isinstance(traceparent, str):
            raise TypeError(f"traceparent must be a str or None, not {type(traceparent).__name__}")
        options.traceparent = traceparent.replace("\0", "?").encode("ascii", "replace")
    if paths is not None:
        options.paths = ctypes.pointer(paths._raw())
    if lease is not None:
        options.lease = ctypes.pointer(raw_key(lease))
    order.put(options)
    return options


class Batch:
    """Requests that were started together; like a concurrent.futures.Future, and to be awaited.

    The objects that its requests name are kept alive until it has ended. close(), or the end of a
    with block, cancels what is unfinished and returns when the memory is quiet. A batch that is
    dropped goes on; it is put away later.
    """

    __slots__ = ("_engine", "_state", "_freed", "_ident", "count")

    def __init__(self, engine: Engine, count: int) -> None:
        self._ident = ctypes.c_uint64()
        self._engine = engine
        self._state = engine._state
        self.count = count
        self._freed = False

    @classmethod
    def start(
        cls,
        engine: Engine,
        n: int,
        keep: Any,
        options: Optional[SubmitOptions],
        submit: Callable[[int, int], int],
    ) -> Batch:
        """A batch of `n` requests, which submit(engine, batch) starts."""
        # It is there before its requests: whatever comes between, what was started is put away.
        batch = cls(engine, n)
        state = batch._state
        with state.inside:
            handle = state.handle()
            if state.orphans:
                state.reap()
            lib.check(lib.te_batch_alloc(handle, max(n, 1), byref(batch._ident)))
            # Before any of it can start: close() looks through this for what to cancel.
            state.live[batch.id] = keep
            begins = n or (options is not None and options.then)
            rc = submit(handle, batch.id) if begins else 0
            if rc >= 0 and options is not None and options.follows is not None:
                rc = batch._notify(handle, *options.follows)
            if rc < 0:
                failed = lib.error(rc)
                batch._free()
                raise failed
        return batch

    def _notify(self, handle: int, target: int, made: Message) -> int:
        """Behind the requests, which go on whatever is wrong with the message."""
        if not self.count:  # all of nothing is complete at once
            return int(lib.te_notify_bytes(handle, target, byref(made)))
        if lib.te_notify_after(handle, self.id, target, byref(made)) < 0:
            warnings.warn(
                f"the notification is not sent: {lib.reason()}", RuntimeWarning, stacklevel=4
            )
        return 0

    @property
    def id(self) -> int:
        """Its number in the library."""
        return self._ident.value

    def __repr__(self) -> str:
        what = "closed"
        if not self._freed:
            what = self._state.shown(lambda: self.status().state.name)
        return f"<{type(self).__name__} requests={self.count} {what}>"

    def _free(self) -> None:
        if not self._state.free(self.id):
            self._state.orphans.append(self.id)
        self._freed = True

    def status(self) -> TaskStatus:
        """How the whole stands: WAITING while any is unfinished, else the first failure's."""
        status = Status()
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_batch_status(handle, self.id, byref(status)))
        return TaskStatus(TransferState(status.state), status.error, status.bytes, "")

    def tasks(self) -> List[TaskStatus]:
        """How each request stands, in their order."""
        status, buffer = Status(), ctypes.create_string_buffer(1024)
        found = []
        with self._state.inside:
            handle = self._state.handle()
            for i in range(self.count):
                lib.check(lib.te_status(handle, self.id, i, byref(status)))
                message = ""
                if status.error:
                    lib.check(lib.te_status_msg(handle, self.id, i, buffer, len(buffer)))
                    message = in_python(buffer.value.decode("utf-8", "replace"))
                found.append(
                    TaskStatus(TransferState(status.state), status.error, status.bytes, message)
                )
        return found

    def paths(self) -> List[TaskPath]:
        """What carries each request, or has, in their order."""
        path = Path(size=ctypes.sizeof(Path))
        found = []
        with self._state.inside:
            handle = self._state.handle()
            for i in range(self.count):
                lib.check(lib.te_path(handle, self.id, i, byref(path)))
                found.append(
                    TaskPath(
                        path.transport.decode(),
                        path.nic.decode("utf-8", "replace"),
                        path.changes,
                        bool(path.staged),
                    )
                )
        return found

    def done(self) -> bool:
        """True once every request has ended, however."""
        with self._state.inside:
            handle = self._state.handle()
            return has_ended(handle, self.id)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until every request has ended, `timeout` seconds at most; true if they have.

        0 or less looks at once, as with a Future; so does result().
        """
        timeout = checked_timeout(timeout)
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._state.inside:
            handle = self._state.handle()
            while not self._freed:
                left_ms = max(0.0, until - time.monotonic()) * 1000
                rc = lib.te_wait(handle, self.id, math.ceil(min(_SLICE_MS, left_ms)))
                if rc == NOT_FOUND:  # freed by another thread, so it has ended
                    break
                if rc != TIMEOUT:
                    lib.check(rc)
                    return True
                if time.monotonic() >= until:
                    return False
        return True

    def result(self, timeout: Optional[float] = None) -> int:
        """The number of bytes moved, once all requests are complete; raises the first failure.

        TransferTimeout after `timeout` seconds: the transfer goes on, as with a Future.
        """
        if not self.wait(timeout):
            raise error_for(TIMEOUT, f"the batch has not ended within {timeout} s; it goes on")
        status = self.status()
        if status.error:
            raise self._failure(status.error)
        return status.nbytes

    def exception(self, timeout: Optional[float] = None) -> Optional[TransferError]:
        """What result() would raise, or None."""
        try:
            self.result(timeout)
        except TransferError as e:
            return e
        return None

    def _failure(self, error: int) -> TransferError:
        for i, task in enumerate(self.tasks()):
            if task.error:
                place = f"request {i} of {self.count}: " if self.count > 1 else ""
                return error_for(task.error, place + task.message)
        return error_for(error, "the batch failed")

    def cancel(self) -> None:
        """Asks that what is unfinished ends soon; wait() tells when it has."""
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_cancel(handle, self.id))

    def add_after(self, adder: Adder, n: int = 1) -> None:
        """Has the counter raised by `n` once nothing of it is unfinished; not at all if any request has failed.

        Returns at once. What the peer does not get is sent again, and counted once all the same.
        """
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_adder_after(handle, self.id, adder._opened(), integer(n, "n")))

    def fence(self, timeout: Optional[float] = None) -> None:
        """Returns when the peers' memory is quiet, too: nothing of the batch can change it any more.

        For a batch that has ended. Else raises why that is not known, after `timeout` seconds at most;
        `unsafe` of the exception has the ranges, a thousand at most. 0 or less does not wait, and has the
        peers asked, for those who poll.
        """
        timeout = checked_timeout(timeout)
        until = math.inf if timeout is None else time.monotonic() + timeout
        ranges, total = (Range * _UNSAFE)(), ctypes.c_size_t()
        with self._state.inside:
            handle = self._state.handle()
            while True:
                left_ms = max(0.0, until - time.monotonic()) * 1000
                slice_ms = math.ceil(min(_SLICE_MS, left_ms))
                rc = lib.te_fence(handle, self.id, slice_ms, ranges, _UNSAFE, byref(total))
                if rc != TIMEOUT or time.monotonic() >= until:
                    break
            if rc < 0:
                unknown = lib.error(rc)
                unknown.unsafe = [
                    Unsafe(r.target, r.target_offset, r.length) for r in ranges[: total.value]
                ]
                raise unknown

    def close(self) -> None:
        """Cancels what is unfinished, waits until the memory is quiet, and frees the batch."""
        if self._freed:
            return
        try:
            with self._state.inside:
                handle = self._state.handle()
                if not has_ended(handle, self.id):
                    for rc in (lib.te_cancel(handle, self.id), lib.te_wait(handle, self.id, -1)):
                        if rc != NOT_FOUND:  # freed by another thread
                            lib.check(rc)
                self._free()
        except EngineClosed:
            self._state.close()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_freed", True) and self.id:  # __init__() may have been interrupted
            self._state.orphans.append(self.id)

    def __await__(self) -> Generator[Any, None, int]:
        return self._finished().__await__()

    async def _finished(self) -> int:
        try:
            await self._engine._reactor.finished(self.id)
        except asyncio.CancelledError:
            try:
                self.cancel()
                await self._quiet()
            except EngineClosed:
                self._state.close()
            raise
        return self.result()

    async def _quiet(self) -> None:
        """Waits until the batch has ended, whoever else cancels the task meanwhile."""
        while not self.done():
            try:
                await self._engine._reactor.finished(self.id)
            except asyncio.CancelledError:
                continue


@dataclass(frozen=True)
class Pages:
    """One side of Segment.start_pages(): a pool of `pages` pages that begin `stride` bytes apart.

    `base` is where page 0 begins: an address, or on the local side an object that holds memory. `index`
    are the numbers of the pages to move: a list, or an array of integers of 32 or 64 bits (numpy, torch,
    array), which is not copied here; None for 0, 1, 2 and so on. Parts of a page begin `part_stride`
    bytes apart, layers `layer_stride`.
    """

    base: Any
    pages: int
    stride: int
    index: Any = None
    part_stride: int = 0
    layer_stride: int = 0

    def _side(self, what: str, base: int, index: Optional[Numbers]) -> PageSide:
        return PageSide(
            integer(base, f"{what} base"),
            integer(self.pages, f"{what} pages"),
            integer(self.stride, f"{what} stride"),
            integer(self.part_stride, f"{what} part_stride"),
            integer(self.layer_stride, f"{what} layer_stride"),
            None if index is None else index.address,
        )


class Prepared:
    """Pieces of one segment, looked up once. Threads may start from one list at the same time."""

    def __init__(self, engine: Engine, ident: int, segment: int, count: int, keep: Any) -> None:
        self._engine = engine
        self._segment = segment
        self._keep = keep
        self.id = ident
        self.count = count

    def __repr__(self) -> str:
        closed = not self.id or self._engine._state.closed
        return f"<{type(self).__name__} pieces={self.count}{' closed' if closed else ''}>"

    def start(
        self,
        opcode: Opcode,
        indexes: Optional[Sequence[int]] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
        after: Any = None,
        then: Any = None,
    ) -> Batch:
        """Starts the pieces of these numbers, in this order (None: all)."""
        opcode = Opcode(opcode)
        if not self.id:
            raise error_for(NOT_FOUND, "the list is closed; Segment.prepare() makes another one")
        table = None if indexes is None else words(indexes, "indexes", "I")
        n = self.count if table is None else len(table)
        where = None if table is None else table.buffer_info()[0]
        options = submit_options(
            timeout, notify, self._segment, traceparent, paths, lease, Order(after, then)
        )
        return Batch.start(
            self._engine,
            n,
            (self._keep, table),
            options,
            lambda handle, batch: int(
                lib.te_prep_submit(handle, batch, self.id, opcode, where, n, options)
            ),
        )

    def close(self) -> None:
        """Frees the list; what was started from it goes on."""
        state = self._engine._state
        if self.id and state.closed:
            state.close()
        elif self.id:
            with state.inside:
                handle = state.handle()
                lib.check(lib.te_prep_destroy(handle, self.id))
        self.id = 0

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
