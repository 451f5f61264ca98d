# SPDX-License-Identifier: Apache-2.0
"""Engines, registered memory and segments."""

from __future__ import annotations

import ctypes
import math
import re
import sys
import warnings
import weakref
from array import array
from ctypes import byref
from enum import IntFlag
from types import TracebackType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

from . import _log
from ._aio import Arrivals, Reactor
from ._batch import Batch, Opcode, Pages, Paths, Prepared, checked_timeout, submit_options
from ._counter import Adder, Counter
from ._errors import INVALID, METADATA, NOT_FOUND, TransferError, error_for, in_python
from ._lease import Lease, granted
from ._memory import integer, kind, listed, local_words, numbers, peers_access, sized_span, words
from ._native import (
    COUNTERS,
    Buffer,
    Message,
    NotifyParts,
    Options,
    Request,
    Stats,
    SubmitOptions,
    Warm,
    lib,
    listed_names,
    message,
    sized_text,
    text,
)
from ._native import Pages as RawPages
from ._region import Region
from ._state import Hold, State
from ._stream import Order

assert ctypes.sizeof(Request) == 40
P2P = "P2PHANDSHAKE"  # the metadata of engines that find each other by address
_INT = 1 if sys.byteorder == "little" else 1 << 32  # an int in the first half of a word


class Access(IntFlag):
    """What peers may do with a region: LOCAL_ONLY (nothing), READ, WRITE or READ_WRITE."""

    LOCAL_ONLY = 0
    READ = 1
    WRITE = 2
    READ_WRITE = 3


class Notice(NamedTuple):
    """A notification as text; what is no UTF-8 in it is replaced."""

    name: str
    msg: str


class Warmed(NamedTuple):
    """How a transport is connected: its paths by their state, why the first that failed did, and the time it took."""

    transport: str
    ready: int
    opening: int
    failed: int
    error: Optional[TransferError]
    seconds: float


class RawNotice(NamedTuple):
    """A notification as it came."""

    name: bytes
    msg: bytes


def create(
    metadata: str,
    name: Optional[str],
    address: Optional[str],
    port: int,
    auto_discover: bool,
    options: Mapping[str, str],
) -> int:
    """te_engine_create()."""
    port = integer(port, "port", 65535)
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a dict, not {type(options).__name__}")
    _log.follow(options)
    o = Options()
    lib.te_options_init_size(byref(o), ctypes.sizeof(o))
    o.metadata = text(metadata, "metadata")
    o.local_server_name = None if name is None else text(name, "name")
    o.ip_or_host_name = None if address is None else text(address, "address")
    o.rpc_port = port
    o.auto_discover = auto_discover
    handle = ctypes.c_void_p()
    try:
        for key, value in options.items():
            lib.check(lib.te_option_set(byref(o), text(key, "option"), text(str(value), key)))
        rc = lib.te_engine_create(byref(o), byref(handle))
        if rc < 0:
            raise error_for(rc, lib.reason() + _remedy(rc, metadata))
    finally:
        lib.te_options_fini(byref(o))
    assert handle.value is not None
    return handle.value


def _remedy(rc: int, metadata: str) -> str:
    """What is to be said of an engine that could not be made: a host was taken for etcd's."""
    if rc != METADATA or metadata == P2P or "://" in metadata:
        return ""
    return (
        f"; the metadata server {metadata!r} has no scheme, so it is taken for etcd://{metadata}."
        f" If that is to be the name of this engine: Engine(name={metadata!r})"
    )


def _asked_port(name: Optional[str], port: int) -> int:
    """The RPC port that an engine is to have, 0 for any."""
    found = re.fullmatch(r"(?:\[[^]]*\]|[^\s/:\[\]]*):(\d{1,5})", name or "")
    return port or (int(found[1]) if found else 0)


def _above_the_package() -> int:
    """The stacklevel of a warning that is to name the line of the program, not one of ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level


def _name_of(positional: Tuple[str, ...], name: Optional[str]) -> str:
    """The name, of an engine that was given it by its place."""
    if name is not None or len(positional) > 1:
        raise TypeError("Engine() takes one positional argument, metadata; all else goes by keyword")
    warnings.warn(
        "the name of an engine goes by keyword: Engine(metadata, name=...)",
        DeprecationWarning,
        stacklevel=3,
    )
    return positional[0]


def _request(opcode: int, source: int, segment: Segment, remote: int, length: int) -> Request:
    """ctypes would cut what is out of range."""
    if not isinstance(segment, Segment):
        raise TypeError(f"segment must be a Segment, not {type(segment).__name__}")
    return Request(
        Opcode(opcode), source, segment._opened(), integer(remote, "remote address"), length
    )


def _five(request: Any) -> Any:
    """A request of start(), which is told what one has."""
    if not isinstance(request, (tuple, list)) or len(request) != 5:
        raise TypeError(
            f"a request is (opcode, local, segment, remote address, length or None), not {request!r:.80}"
        )
    return request


class Engine:
    """An engine: its threads, sockets and registered memory.

    metadata       how engines find each other: "P2PHANDSHAKE", by address, or a metadata server,
                   "http://...", "etcd://..." or "redis://..."
    name           the segment's name, unique in the cluster; "host:port" asks for that RPC port
    address        what peers are told, where that is not what the name says
    port           the RPC port that is asked for, where the name has none or another; if it is taken,
                   the engine gets another one, with a RuntimeWarning
    auto_discover  install the transports that suit this host; else only "local"
    options        by the names of their environment variables, which they beat (docs/config.md).
                   TE_BIND is the address to listen on: without it all. TE_AUTH=psk lets only peers in that
                   have a key of TE_AUTH_KEYS; by default there is no authentication

    All but `metadata` go by keyword. Every method may be called from any thread. close(), or the end
    of a with block, ends all transfers.
    """

    def __init__(
        self,
        metadata: str = P2P,
        *positional: str,
        name: Optional[str] = None,
        address: Optional[str] = None,
        port: int = 0,
        auto_discover: bool = True,
        options: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Makes and starts the engine. `positional` is for programs that give the name so."""
        if positional:
            name = _name_of(positional, name)
        self._state = State(
            create(metadata, name, address, port, auto_discover, {} if options is None else options)
        )
        self._reactor = Reactor(self._state)
        self._arrivals = Arrivals(self._state)
        weakref.finalize(self, self._state.drop).atexit = False
        asked = _asked_port(name, port)
        if asked and asked != self.port:
            warnings.warn(
                f"port {asked} cannot be bound, another program may have it: the engine"
                f" {self.name!r} has port {self.port} instead",
                RuntimeWarning,
                stacklevel=_above_the_package(),
            )

    def __repr__(self) -> str:
        state = getattr(self, "_state", None)  # None where __init__() has raised
        what = "closed" if state is None else state.shown(lambda: repr(self.name))
        return f"<{type(self).__name__} {what}>"

    def close(self) -> None:
        """Ends all transfers and the engine; afterwards its memory is touched no more.

        Calls of other threads are waited for, and every close() returns only then. In the handler
        of a signal that interrupts a call of this engine, and in a finalizer, it returns at once
        and another thread closes. As long as there are views of memory of alloc(), the name stays
        known to peers, who find nothing behind it; all of it goes with the last view.
        """
        self._state.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    @property
    def handle(self) -> int:
        """The te_engine *, for other code that calls the library."""
        with self._state.inside:
            handle = self._state.handle()
            return handle

    @property
    def name(self) -> str:
        """The name of this engine's segment, which peers open."""
        with self._state.inside:
            handle = self._state.handle()
            return sized_text(lambda buffer, n: lib.te_engine_name(handle, buffer, n), INVALID)

    @property
    def address(self) -> str:
        """host:port of the RPC listener as peers are told it."""
        with self._state.inside:
            handle = self._state.handle()
            return sized_text(lambda buffer, n: lib.te_engine_addr(handle, buffer, n), INVALID)

    @property
    def port(self) -> int:
        """The port of the RPC listener, which peers connect to first."""
        return int(self.address.rpartition(":")[2])

    # ----------------------------------------------------------------------------- transports

    def install(self, transport: str, argument: Optional[str] = None) -> None:
        """Installs a transport that auto_discover did not."""
        with self._state.inside:
            handle = self._state.handle()
            lib.check(
                lib.te_transport_install(
                    handle,
                    text(transport, "transport"),
                    None if argument is None else text(argument, "argument"),
                )
            )

    def uninstall(self, transport: str) -> None:
        """Takes a transport away: requests from now on go by another one, or fail."""
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_transport_uninstall(handle, text(transport, "transport")))

    def topology(self) -> str:
        """The NIC priority matrix, as JSON."""
        with self._state.inside:
            handle = self._state.handle()
            return sized_text(lambda buffer, n: lib.te_topology_json(handle, buffer, n))

    def links(self, json: bool = False) -> str:
        """The NICs and the topology, as text or as JSON."""
        with self._state.inside:
            handle = self._state.handle()
            return sized_text(lambda buffer, n: lib.te_links(handle, json, buffer, n))

    # --------------------------------------------------------------------------------- memory

    def register(
        self,
        buffer: Any,
        length: Optional[int] = None,
        *,
        location: str = "*",
        access: Optional[Access] = None,
        allow: Union[None, str, Sequence[str]] = None,
    ) -> Region:
        """Registers memory: an object that holds some, or an address and a length.

        The object is kept alive until the region is closed. What cannot be written to, such as
        bytes, is registered for reading only, unless `access` says otherwise. `allow` names those
        peers for whom alone it is, with TE_AUTH: ids of keys, or names of certificates.
        """
        lengths = None if length is None else [length]
        return self.register_many([buffer], lengths, location, access, allow)[0]

    def register_many(
        self,
        buffers: Sequence[Any],
        lengths: Optional[Sequence[int]] = None,
        location: str = "*",
        access: Optional[Access] = None,
        allow: Union[None, str, Sequence[str]] = None,
    ) -> List[Region]:
        """Registers all of them or none, and tells peers of them at once."""
        listed(buffers, "buffers")
        if lengths is not None and len(listed(lengths, "lengths")) != len(buffers):
            raise ValueError(f"{len(buffers)} buffers and {len(lengths)} lengths")
        spans = [
            sized_span(b, None if lengths is None else lengths[i]) for i, b in enumerate(buffers)
        ]
        for buffer, (where, length) in zip(buffers, spans):
            if not length and where.nbytes is not None:
                raise BufferError(f"{kind(buffer)} has 0 bytes, none to register; leave it out")
        may = peers_access(spans, access)
        names = None if allow is None else listed_names(allow)
        table = (Buffer * len(spans))(*[Buffer(where.address, length) for where, length in spans])
        with self._state.inside:
            handle = self._state.handle()
            holds = [(where.address, Hold(where.keep)) for where, _ in spans]
            for address, hold in holds:
                self._state.pin(address, hold)
            how = handle, table, len(spans), text(location, "location"), may
            rc = lib.te_register_batch(*how) if names is None else lib.te_register_allow(*how, names)
            if rc < 0:
                failed = lib.error(rc)
                for address, hold in holds:
                    self._state.unpin(address, hold)
                raise failed
        return [Region(self, where.address, length) for where, length in spans]

    def unregister(self, *regions: int) -> None:
        """Takes away the regions that begin at these addresses; goes on after a failure."""
        table = words(regions, "regions")
        with self._state.inside:
            handle = self._state.handle()
            rc = lib.te_unregister_batch(handle, table.buffer_info()[0], len(table))
            failed = lib.error(rc) if rc < 0 else None
            for address in set(table):
                if failed is None or not self._state.is_registered(address):
                    self._state.unpin(address)
            if failed is not None:
                raise failed

    def grant(
        self,
        buffer: Any,
        length: Optional[int] = None,
        *,
        access: Access,
        seconds: Optional[float] = None,
        allow: Union[None, str, Sequence[str]] = None,
    ) -> Lease:
        """Lets whoever has the key do `access`, which the memory's own may lack, in a part of a region.

        `seconds` from now on; None: until it is revoked. Memory for leases alone is registered as Access.LOCAL_ONLY.
        With `allow` the key is of use to those peers alone, as of register().
        """
        return granted(self, buffer, length, int(access), seconds, allow)

    def alloc(self, length: int, location: str = "*") -> memoryview:
        """Zeroed memory of this host, page-aligned, on a NUMA node ("cpu:N") or any.

        Engines of other processes of this host reach it fastest. It is freed when no view of it is
        left and no region holds it.
        """
        if location != "*" and not location.startswith("cpu"):
            raise ValueError(
                "alloc() is for memory of the host; take a tensor for that of a device"
            )
        length = integer(length, "length", (1 << 63) - 1)
        address = ctypes.c_void_p()
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_alloc(handle, length, text(location, "location"), byref(address)))
            assert address.value is not None
            owner = (ctypes.c_ubyte * length).from_address(address.value)
            weakref.finalize(owner, self._state.view_gone, address.value).atexit = False
            self._state.view_made(address.value)
        return memoryview(owner).cast("B")

    # ------------------------------------------------------------------------------- segments

    @property
    def incarnation(self) -> int:
        """The random number of this engine, which the next one of its name has not: see open()."""
        with self._state.inside:
            return int(lib.te_incarnation(self._state.handle()))

    def open(
        self, name: str, *, paths: Optional[Paths] = None, incarnation: Optional[int] = None
    ) -> Segment:
        """Opens the segment of that name, and asks its engine what it holds. Its transfers go by these paths.

        One that is open already is given once more at once, and nobody is asked, whether its engine
        still lives or not; refresh() asks again, and probe() whether there is an engine.
        With `incarnation`, the number of that engine (0: of whichever has the name now), it is of that one alone: what
        is meant for it never gets to the next engine of the name, but fails.
        """
        ident, asked = ctypes.c_int32(), None if paths is None else paths._raw()
        life = None if incarnation is None else integer(incarnation, "incarnation")
        with self._state.inside:
            handle, where = self._state.handle(), text(name, "name")
            given = None if asked is None else byref(asked)
            if life is None:
                lib.check(lib.te_open_with(handle, where, given, byref(ident)))
            else:
                lib.check(lib.te_open_life(handle, where, life, given, byref(ident)))
        return Segment(self, name, ident.value)

    def refresh(self, name: Optional[str] = None) -> None:
        """Asks again what a segment holds (None: every open one); transfers do so by themselves."""
        with self._state.inside:
            where = None if name is None else text(name, "name")
            lib.check(lib.te_refresh(self._state.handle(), where))

    def probe(self, name: str) -> bool:
        """True if the engine of that name answers."""
        with self._state.inside:
            return int(lib.te_probe(self._state.handle(), text(name, "name"))) == 0

    # ------------------------------------------------------------------------------ transfers

    def start(
        self,
        requests: Sequence[Tuple[Opcode, Any, Segment, int, Optional[int]]],
        *,
        timeout: Optional[float] = None,
    ) -> Batch:
        """Starts (opcode, local, segment, remote address, length or None) as one batch."""
        table, keep = bytearray(), []
        for opcode, local, segment, remote, length in map(_five, listed(requests, "requests")):
            where, length = sized_span(local, length, opcode == Opcode.READ)
            table += _request(opcode, where.address, segment, remote, length)
            keep.append(where.keep)
        raw = (ctypes.c_char * len(table)).from_buffer(table)
        options = submit_options(timeout, None, 0)
        return Batch.start(
            self,
            len(requests),
            keep,
            options,
            lambda handle, batch: int(
                lib.te_submit(handle, batch, raw, len(requests), options)
            ),
        )

    def explain(
        self,
        opcode: Opcode,
        local: Any,
        segment: Segment,
        remote: int,
        length: Optional[int] = None,
    ) -> str:
        """Which transport would carry this request, and why no other one; nothing is started."""
        where, length = sized_span(local, length)
        request = _request(opcode, where.address, segment, remote, length)
        buffer = ctypes.create_string_buffer(8192)
        with self._state.inside:
            handle = self._state.handle()
            rc = lib.te_explain(handle, byref(request), buffer, len(buffer))
            if rc < 0 and not buffer.value:
                lib.check(rc)
        return in_python(buffer.value.decode("utf-8", "replace"))

    # --------------------------------------------------------------------- messages, counters

    def notifications(self) -> List[Notice]:
        """The notifications received since the last call, oldest first."""
        return [
            Notice(name.decode("utf-8", "replace"), msg.decode("utf-8", "replace"))
            for name, msg in self.raw_notifications()
        ]

    def raw_notifications(self) -> List[RawNotice]:
        """The same as bytes, as they came. Either call takes what there is."""
        found = ctypes.POINTER(Message)()
        n = ctypes.c_size_t()
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_notify_recv_bytes(handle, byref(found), byref(n)))
            notices = [
                RawNotice(
                    ctypes.string_at(found[i].name, found[i].name_len),
                    ctypes.string_at(found[i].msg, found[i].msg_len),
                )
                for i in range(n.value)
            ]
            lib.te_message_free(found, n.value)
        return notices

    def counter(self, name: str) -> Counter:
        """Makes a counter of that name, which is 0, for peers to raise (Segment.adder())."""
        ident = ctypes.c_uint64()
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_counter_create(handle, text(name, "name"), byref(ident)))
        return Counter(self, name, ident.value)

    def stats(self) -> Dict[str, int]:
        """Counters since the engine was made, by the names of struct te_stats."""
        stats = Stats(size=ctypes.sizeof(Stats))
        with self._state.inside:
            handle = self._state.handle()
            lib.check(lib.te_stats(handle, byref(stats)))
        return {name: getattr(stats, name) for name in COUNTERS}

    def metrics_text(self) -> str:
        """The metrics as Prometheus scrapes them; docs/metrics.md lists them."""
        with self._state.inside:
            handle = self._state.handle()
            return sized_text(lambda buffer, n: lib.te_stats_text(handle, buffer, n))


class Segment:
    """What another engine lets us reach, addressed by the addresses of its process.

    `local` is an address or an object that holds memory, inside a registered region of ours; without `length` the
    whole object is meant. `timeout` is in seconds: what has not ended by then ends with TransferTimeout; 0 or less, of
    a time that is over, is as 1 ms. `notify` is a (name, message) that the peer gets once all of it is complete;
    either may be bytes. One that cannot be sent is a RuntimeWarning, and the data is moved. `traceparent` is the W3C
    trace context of the span around the transfer, "00-...", which the logs and probes of both sides have. `paths` are
    the transports that may carry it; they narrow those of Engine.open(). `lease` is a Lease of the peer, or its key.
    It is begun when what was given to `after` so far is done, and what is given to `then` later waits until it has
    ended, failed or not: streams of PyTorch or CuPy, or ("cuda:0", handle); or a number or an object with fileno(): a
    descriptor that gets readable, an eventfd that is written.
    """

    def __init__(self, engine: Engine, name: str, ident: int) -> None:
        self._engine = engine
        self.name = name
        self.id = ident

    def __repr__(self) -> str:
        closed = self.id < 0 or self._engine._state.closed
        return f"<{type(self).__name__} {self.name!r}{' closed' if closed else ''}>"

    def _opened(self) -> int:
        """The id, of one that is not closed."""
        if self.id < 0:
            raise error_for(
                NOT_FOUND, f"the segment {self.name!r} is closed; open() gives another one"
            )
        return self.id

    def close(self) -> None:
        """Gives up this reference to the segment. Whatever else is called then raises RequestError."""
        if self.id >= 0 and self._engine._state.closed:
            self._engine.close()
        elif self.id >= 0:
            with self._engine._state.inside:
                handle = self._engine._state.handle()
                lib.check(lib.te_close(handle, self.id))
        self.id = -1

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def buffers(self) -> List[Tuple[int, int]]:
        """(address, length) of each of its buffers, in the order of their addresses."""
        ident, total = self._opened(), ctypes.c_size_t(64)
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            while True:
                n = total.value
                table = (Buffer * n)()
                lib.check(lib.te_segment_buffers(handle, ident, table, n, byref(total)))
                if total.value <= n:
                    return [(b.addr or 0, b.length) for b in table[: total.value]]

    def warm(self, timeout: Optional[float] = 10.0) -> List[Warmed]:
        """Connects ahead by all transports that reach the segment; `timeout` in seconds, None: none, 0: only begins.

        Raises where all paths of a transport failed, else TransferTimeout where some are still opening; `warmed` of
        the exception is what would have been returned.
        """
        ident, limit = self._opened(), checked_timeout(timeout)
        made = Warm(size=ctypes.sizeof(Warm))
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            wait_ms = -1 if limit is None else math.ceil(max(0.0, limit) * 1000)
            rc = lib.te_warm(handle, ident, wait_ms, byref(made))
            failed = lib.error(rc) if rc < 0 else None
        warmed = [
            Warmed(
                by.transport.decode(),
                by.ready,
                by.opening,
                by.failed,
                error_for(by.error, "") if by.error else None,
                by.time_ns / 1e9,
            )
            for by in made.by[: made.n]
        ]
        if failed:
            failed.warmed = warmed
            raise failed
        return warmed

    def notify(self, name: Union[str, bytes], msg: Union[str, bytes]) -> None:
        """Sends a message; returns when the peer has it. Engines of other makes take text alone."""
        ident, made = self._opened(), message((name, msg))
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            lib.check(lib.te_notify_bytes(handle, ident, byref(made)))

    def adder(self, name: str) -> Adder:
        """Opens the counter of that name that the peer has made, to be raised behind batches."""
        segment, ident = self._opened(), ctypes.c_uint64()
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            lib.check(lib.te_adder_open(handle, segment, text(name, "name"), byref(ident)))
        return Adder(self._engine, name, ident.value)

    def write(
        self,
        local: Any,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
    ) -> int:
        """Copies local memory to the peer's; returns the number of bytes."""
        options = submit_options(timeout, notify, self._opened(), traceparent, paths, lease)
        with self._one(Opcode.WRITE, local, remote, length, options) as batch:
            return batch.result()

    def read(
        self,
        local: Any,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
    ) -> int:
        """Copies the peer's memory to local memory; returns the number of bytes."""
        options = submit_options(timeout, notify, self._opened(), traceparent, paths, lease)
        with self._one(Opcode.READ, local, remote, length, options) as batch:
            return batch.result()

    async def write_async(
        self,
        local: Any,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
    ) -> int:
        """write() for asyncio. A task that is canceled ends when its memory is quiet."""
        options = submit_options(timeout, notify, self._opened(), traceparent, paths, lease)
        with self._one(Opcode.WRITE, local, remote, length, options) as batch:
            return await batch

    async def read_async(
        self,
        local: Any,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
    ) -> int:
        """read() for asyncio. A task that is canceled ends when its memory is quiet."""
        options = submit_options(timeout, notify, self._opened(), traceparent, paths, lease)
        with self._one(Opcode.READ, local, remote, length, options) as batch:
            return await batch

    def _one(
        self,
        opcode: Opcode,
        local: Any,
        remote: int,
        length: Optional[int],
        options: Optional[SubmitOptions],
    ) -> Batch:
        where, length = sized_span(local, length, opcode == Opcode.READ)
        return self._submit(
            opcode,
            array("L", (where.address,)),
            [integer(remote, "remote address")],
            array("L", (length,)),
            where.keep,
            options,
        )

    def start_write(
        self,
        locals: Sequence[Any],
        remotes: Sequence[int],
        lengths: Optional[Sequence[int]] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
        after: Any = None,
        then: Any = None,
    ) -> Batch:
        """Starts to copy many pieces of local memory to the peer's."""
        ident, order = self._opened(), Order(after, then)
        options = submit_options(timeout, notify, ident, traceparent, paths, lease, order)
        return self._start(Opcode.WRITE, locals, remotes, lengths, options)

    def start_read(
        self,
        locals: Sequence[Any],
        remotes: Sequence[int],
        lengths: Optional[Sequence[int]] = None,
        *,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
        after: Any = None,
        then: Any = None,
    ) -> Batch:
        """Starts to copy many pieces of the peer's memory to local memory."""
        ident, order = self._opened(), Order(after, then)
        options = submit_options(timeout, notify, ident, traceparent, paths, lease, order)
        return self._start(Opcode.READ, locals, remotes, lengths, options)

    def _start(
        self,
        opcode: Opcode,
        locals: Sequence[Any],
        remotes: Sequence[int],
        lengths: Optional[Sequence[int]],
        options: Optional[SubmitOptions],
    ) -> Batch:
        addresses, sizes, keep = local_words(locals, lengths, opcode == Opcode.READ)
        return self._submit(opcode, addresses, remotes, sizes, keep, options)

    def _submit(
        self,
        opcode: Opcode,
        addresses: "array[int]",
        remotes: Sequence[int],
        sizes: "array[int]",
        keep: Any,
        options: Optional[SubmitOptions],
    ) -> Batch:
        n, ident = len(addresses), self._opened()
        targets = words(remotes, "remote addresses")
        if not n == len(targets) == len(sizes):
            raise ValueError(
                f"{n} local pieces, {len(targets)} remote ones and {len(sizes)} lengths"
            )
        # te_request as five words; no loop of the interpreter runs over the requests.
        table = array("L", (_INT * opcode, 0, _INT * ident, 0, 0)) * n
        table[1::5] = addresses
        table[3::5] = targets
        table[4::5] = sizes
        return Batch.start(
            self._engine,
            n,
            keep,
            options,
            lambda handle, batch: int(
                lib.te_submit(handle, batch, table.buffer_info()[0], n, options)
            ),
        )

    def start_pages(
        self,
        opcode: Opcode,
        local: Pages,
        remote: Pages,
        length: int,
        count: Optional[int] = None,
        *,
        parts: int = 1,
        layers: int = 1,
        timeout: Optional[float] = None,
        notify: Optional[NotifyParts] = None,
        traceparent: Optional[str] = None,
        paths: Optional[Paths] = None,
        lease: Optional[Union[bytes, Lease]] = None,
        after: Any = None,
        then: Any = None,
    ) -> Batch:
        """Starts to move pages between two pools, as one request (te_submit_pages()).

        Of each page `parts` parts of `length` bytes are moved, in each of `layers` layers; 0 of either
        are 1. `count` is how many pages, where neither side has an index.
        """
        opcode = Opcode(opcode)
        parts = max(integer(parts, "parts"), 1)
        layers = max(integer(layers, "layers"), 1)
        ident = self._opened()
        ours = None if local.index is None else numbers(local.index, "local index")
        theirs = None if remote.index is None else numbers(remote.index, "remote index")
        given = [x for x in (ours, theirs) if x is not None]
        if count is None and not given:
            raise TypeError("without page numbers on either side count must be given")
        n = given[0].size if count is None else integer(count, "count")
        if any(x.size != n or x.bits != given[0].bits for x in given):
            raise ValueError("both sides' page numbers must be as many, and of as many bits")
        reach = max(
            0,
            (local.pages - 1) * local.stride
            + (parts - 1) * local.part_stride
            + (layers - 1) * local.layer_stride
            + length,
        )
        where, _ = sized_span(local.base, reach, opcode == Opcode.READ)
        pages = RawPages(
            ctypes.sizeof(RawPages),
            opcode,
            ident,
            integer(length, "length"),
            n,
            parts,
            layers,
            given[0].bits if given else 0,
            local._side("local", where.address, ours),
            remote._side("remote", remote.base, theirs),
        )
        order = Order(after, then)
        options = submit_options(timeout, notify, ident, traceparent, paths, lease, order)
        return Batch.start(
            self._engine,
            1,
            (where.keep, given),
            options,
            lambda handle, batch: int(
                lib.te_submit_pages(handle, batch, byref(pages), options)
            ),
        )

    def prepare(
        self, locals: Sequence[Any], remotes: Sequence[int], lengths: Optional[Sequence[int]] = None
    ) -> Prepared:
        """A list of pieces that are looked up once and moved again and again, by their numbers."""
        addresses, sizes, keep = local_words(locals, lengths, False)
        targets = words(remotes, "remote addresses")
        if not len(addresses) == len(targets) == len(sizes):
            raise ValueError("the three lists differ in length")
        segment, ident = self._opened(), ctypes.c_uint64()
        with self._engine._state.inside:
            handle = self._engine._state.handle()
            lib.check(
                lib.te_prep_create(
                    handle,
                    segment,
                    addresses.buffer_info()[0],
                    targets.buffer_info()[0],
                    sizes.buffer_info()[0],
                    len(addresses),
                    byref(ident),
                )
            )
        return Prepared(self._engine, ident.value, segment, len(addresses), keep)
