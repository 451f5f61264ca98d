# SPDX-License-Identifier: Apache-2.0
"""The interface of Mooncake's module `mooncake.engine`, for programs that were written for it.

Its methods raise nothing but TypeError, for arguments of a wrong type: they return codes, and what
went wrong is told to the logger "transfer_engine". Those that end in _on_cuda have no code to return,
so they raise what is wrong before the transfer is in the stream. Wherever one takes an address of local memory,
it also takes an object that holds memory: a tensor, an array, anything with the buffer protocol.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import json
import logging
import operator
import os
from enum import IntEnum
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, Union, cast

from . import _cuda
from ._batch import Batch, Opcode, TransferState, submit_options
from ._engine import Engine, Segment
from ._errors import METADATA, TransferError, error_for
from ._managed import ManagedBuffers
from ._memory import listed, sized_span, span, words

__all__ = [
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "InnerTransferEngine",
    "Read",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
]

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

_P2P = "P2PHANDSHAKE"
_PROTOCOLS = ("local", "host", "rdma", "tcp", "nvlink_intra", "nvlink", "hip", "ascend", "musa", "maca", "supa", "nvmeof")
_log = logging.getLogger("transfer_engine")
_Method = TypeVar("_Method", bound=Callable[..., Any])


class TransferOpcode(IntEnum):
    """The direction of a transfer: Read is from the peer, Write is to it."""

    Read = 0
    Write = 1

    def __str__(self) -> str:
        return f"TransferOpcode.{self.name}"

    def __repr__(self) -> str:
        return f"<{self}: {self.value}>"


_TransferOpcode = TransferOpcode  # below, the class has an attribute of that name
Read = TransferOpcode.Read
Write = TransferOpcode.Write


def _tell_of_unknown_protocol(call: str, protocol: str) -> None:
    """The argument chooses nothing, so initialize() does not fail, either."""
    if protocol and protocol not in _PROTOCOLS:
        near = difflib.get_close_matches(protocol.lower(), _PROTOCOLS, 1)
        _log.warning(
            "%s: no protocol here is called %r%s; the engine uses what suits this host, as with any other",
            call,
            protocol,
            f" ({near[0]}?)" if near else "",
        )


def _tell_of_missing_devices(engine: Engine, call: str, protocol: str, device_name: str) -> None:
    """Neither argument makes initialize() fail without RDMA devices, so the log says that there are none."""
    nics = json.loads(engine.links(json=True))["local_nics"]
    here = [nic["device"] for nic in nics]
    for name in device_name.split(","):
        if name and name not in here:
            there = ", ".join(here) or "none"
            _log.warning("%s: no RDMA device is called %s; there are: %s", call, name, there)
    if protocol == "rdma" and not any(nic.get("used") for nic in nics):
        _log.warning(
            "%s: the protocol rdma was asked for, but no RDMA device can be used: data goes by tcp;"
            " get_engine().engine.links() tells of each device why",
            call,
        )


class TransferNotify:
    """A message to the peer, sent when a transfer is complete."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg

    def __repr__(self) -> str:
        return f"TransferNotify({self.name!r}, {self.msg!r})"


class InnerTransferEngine:
    """The engine below; of use to other code of this library only, as in Mooncake."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.engine!r}>"


def _returns(failure: Any) -> Callable[[_Method], _Method]:
    """What a method returns when it fails, unless the error has a code of its own."""

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except OverflowError as e:
                raise TypeError(f"{method.__name__}(): {e}") from None
            except (TransferError, BufferError, ValueError, LookupError, OSError) as e:
                _log.error("%s: %s", method.__name__, e)
                if failure is _CODE:
                    return getattr(e, "code", -1)
                return failure

        return cast(_Method, call)

    return decorate


_CODE = object()


def _here(obj: Any, length: int, written: bool = False) -> Tuple[int, int]:
    """Address and length of memory that this process itself reads or writes."""
    where, length = sized_span(obj, length, written)
    if length and not where.address:
        raise TypeError("the address is NULL")
    if where.device:
        raise ValueError("the memory is a device's")
    return where.address, length


def _sync_timeout() -> float:
    """Seconds that a transfer may take: MC_TRANSFER_TIMEOUT, as docs/config.md has it."""
    text = os.environ.get("MC_TRANSFER_TIMEOUT", "").strip()
    return float(text) if text.isdecimal() and 5 <= int(text) <= 86400 else 30.0


def _opcode(value: Any) -> Opcode:
    if not isinstance(value, TransferOpcode):
        raise TypeError(f"opcode must be a TransferOpcode, not {type(value).__name__}")
    return Opcode(value)


def _notify(value: Any) -> Optional[Tuple[str, str]]:
    if value is None:
        return None
    if not isinstance(value, TransferNotify):
        raise TypeError(f"notify must be a TransferNotify, not {type(value).__name__}")
    return value.name, value.msg


def _total(buffers: Any, peers: Any, lengths: Sequence[int]) -> int:
    """The bytes of a batch, whose lists are as long as each other."""
    try:
        n, total = (len(buffers), len(peers), len(lengths)), sum(lengths)
    except TypeError:
        listed(buffers, "buffers")
        listed(peers, "peer_buffer_addresses")
        words(lengths, "lengths")
        raise
    if not n[0] == n[1] == n[2]:
        raise ValueError(f"{n[0]} buffers, {n[1]} addresses, {n[2]} lengths")
    return total


def _connection(metadata_server: str, metadata_type: str) -> str:
    """The library takes a bare host for etcd's, and refuses one that is nearly called P2PHANDSHAKE."""
    if "://" in metadata_server or metadata_server == _P2P or metadata_type == "etcd":
        return metadata_server
    return f"{metadata_type}://{metadata_server}"


def _remedy(code: int, metadata_server: str, metadata_type: str) -> str:
    """What is to be said where P2PHANDSHAKE may have been meant: it was taken for a host."""
    if code != METADATA or "://" in metadata_server:
        return ""
    return (
        f"; the metadata server {metadata_server!r} has no scheme, so it is taken for"
        f" {metadata_type}://{metadata_server}. Engines that need no server have {_P2P!r} there"
    )


class TransferEngine:
    """Mooncake's class of this name: its methods return codes, and log why something failed.

    Its addresses of local memory may also be objects that hold memory. `transport_hint` chooses
    nothing.
    """

    TransferOpcode = TransferOpcode

    def __init__(self) -> None:
        self._engine: Optional[Engine] = None
        self._managed: Optional[ManagedBuffers] = None
        self._segments: Dict[str, Segment] = {}
        self._batches: Dict[int, Batch] = {}
        self._timeout = 30.0

    def __repr__(self) -> str:
        what = "not initialized" if self._engine is None else repr(self._engine)
        return f"<{type(self).__name__} {what}>"

    def _running(self) -> Engine:
        if self._engine is None:
            raise ValueError("initialize() was not called, or failed")
        return self._engine

    # --------------------------------------------------------------------------------------- making

    @_returns(-1)
    def initialize(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str
    ) -> int:
        """Makes and starts the engine: 0, or -1. `protocol` chooses nothing (docs/migrating.md)."""
        self._initialize(
            "initialize", local_hostname, metadata_server, protocol, device_name, "etcd"
        )
        return 0

    @_returns(-1)
    def initialize_ext(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: str,
        metadata_type: str,
    ) -> int:
        """initialize() with `metadata_type`, the scheme of a metadata_server that names none."""
        self._initialize(
            "initialize_ext", local_hostname, metadata_server, protocol, device_name, metadata_type
        )
        return 0

    def _initialize(
        self,
        call: str,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: str,
        metadata_type: str,
    ) -> None:
        for value in (local_hostname, metadata_server, protocol, device_name, metadata_type):
            if not isinstance(value, str):
                raise TypeError(f"{call}() takes strings, not {type(value).__name__}")
        if protocol == "xgmi":
            raise ValueError("the protocol xgmi is not supported")
        _tell_of_unknown_protocol(call, protocol)
        options = {"MC_TE_FILTERS": device_name} if device_name else {}
        self._shut()
        self._timeout = _sync_timeout()
        try:
            self._engine = Engine(
                _connection(metadata_server, metadata_type), name=local_hostname, options=options
            )
        except TransferError as e:
            raise error_for(e.code, e.text + _remedy(e.code, metadata_server, metadata_type)) from e
        self._managed = ManagedBuffers(self._engine)
        if protocol == "rdma" or device_name:
            _tell_of_missing_devices(self._engine, call, protocol, device_name)

    def _shut(self) -> None:
        engine, self._engine, self._managed = self._engine, None, None
        self._segments.clear()
        self._batches.clear()
        if engine is not None:
            engine.close()

    @_returns(-1)
    def get_rpc_port(self) -> int:
        """The port that peers connect to first; -1 without an engine."""
        return self._running().port

    def get_engine(self) -> Optional[InnerTransferEngine]:
        """The engine below, for other code of this library; None before initialize()."""
        return None if self._engine is None else InnerTransferEngine(self._engine)

    @_returns(0)
    def get_engine_ptr(self) -> int:
        """The transfer_engine_t, which is also the te_engine *."""
        return self._running().handle

    @_returns("")
    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """The NIC priority matrix of this host as JSON, of all NICs or of those named."""
        options = {"MC_TE_FILTERS": device_name} if device_name else {}
        with Engine(_P2P, auto_discover=False, options=options) as engine:
            return engine.topology()

    # --------------------------------------------------------------------------------------- memory

    @_returns(_CODE)
    def register_memory(self, buffer_addr: Any, capacity: int, location: str = "*") -> int:
        """Registers memory for transfers in both directions; what is read-only, for reads: 0, or a negative code."""
        self._running().register(buffer_addr, capacity, location=location)
        return 0

    @_returns(_CODE)
    def unregister_memory(self, buffer_addr: Any) -> int:
        """Takes away the region that begins at this address: 0, or a negative code."""
        self._running().unregister(span(buffer_addr).address)
        return 0

    @_returns(_CODE)
    def batch_register_memory(
        self, buffer_addresses: Sequence[Any], capacities: Sequence[int], location: str = "*"
    ) -> int:
        """Registers all of these buffers: 0, or none of them and a negative code."""
        listed(buffer_addresses, "buffer_addresses")
        if len(buffer_addresses) != len(listed(capacities, "capacities")):
            raise ValueError(f"{len(buffer_addresses)} buffers and {len(capacities)} capacities")
        if len(buffer_addresses):
            self._running().register_many(buffer_addresses, capacities, location)
        return 0

    @_returns(_CODE)
    def batch_unregister_memory(self, buffer_addresses: Sequence[Any]) -> int:
        """Takes away the regions that begin at these addresses: 0, or a negative code."""
        if len(listed(buffer_addresses, "buffer_addresses")):
            self._running().unregister(*[span(b).address for b in buffer_addresses])
        return 0

    @_returns(0)
    def allocate_managed_buffer(self, length: int) -> int:
        """The address of registered memory; 0 on failure."""
        self._running()
        assert self._managed is not None
        return self._managed.allocate(operator.index(length))

    @_returns(-1)
    def free_managed_buffer(self, addr: int, length: int) -> int:
        """Gives back what allocate_managed_buffer() gave; `length` is not needed."""
        self._running()
        assert self._managed is not None
        operator.index(length)
        self._managed.free(span(addr).address)
        return 0

    @_returns(-1)
    def write_bytes_to_buffer(self, dest: Any, data: Union[bytes, str], length: int) -> int:
        """Copies the first `length` bytes of `data` to memory of this process."""
        raw = data.encode() if isinstance(data, str) else bytes(memoryview(data))
        address, length = _here(dest, length, written=True)
        if length > len(raw):
            raise ValueError(f"{length} bytes of {len(raw)}")
        ctypes.memmove(address, raw, length)
        return 0

    @_returns(b"")
    def read_bytes_from_buffer(self, addr: Any, length: int) -> bytes:
        """A copy of memory of this process."""
        address, length = _here(addr, length)
        # Not string_at(), which knows lengths below 2 GiB only.
        return bytes((ctypes.c_char * length).from_address(address))

    # ------------------------------------------------------------------------------------- segments

    def _segment(self, name: str) -> Segment:
        segment = self._segments.get(name)
        if segment is None:
            segment = self._segments[name] = self._running().open(name)
        return segment

    @_returns(0)
    def get_first_buffer_address(self, segment_name: str) -> int:
        """The lowest address that is registered there, our own name included; 0 if there is none."""
        buffers = self._segment(segment_name).buffers()
        return buffers[0][0] if buffers else 0

    @_returns(0)
    def warmup_efa_segment(self, segment_name: str) -> int:
        """Begins to connect to the segment, by whatever transports there are: 0, whatever comes of it."""
        self._segment(segment_name).warm(0)
        return 0

    @_returns(-1)
    def send_probe(self, peer_server_name: str) -> int:
        """0 if the engine of that name answers, else -1."""
        return 0 if self._running().probe(peer_server_name) else -1

    @_returns([])
    def get_notifies(self) -> List[TransferNotify]:
        """The notifications received since the last call, oldest first."""
        return [TransferNotify(*notice) for notice in self._running().notifications()]

    # ------------------------------------------------------------------------------------ transfers

    def _seconds(self, size: int) -> float:
        return self._timeout + size * 1e-9

    def _start(
        self,
        opcode: Opcode,
        target: str,
        buffers: Sequence[Any],
        peers: Sequence[int],
        lengths: Sequence[int],
        notify: Optional[Tuple[str, str]] = None,
    ) -> Batch:
        """A batch whose requests end within the time that this interface gives them."""
        total, segment = _total(buffers, peers, lengths), self._segment(target)
        options = submit_options(self._seconds(total), notify, segment.id)
        return segment._start(opcode, buffers, peers, lengths, options)

    def _sync(
        self,
        opcode: Opcode,
        target: str,
        buffers: Sequence[Any],
        peers: Sequence[int],
        lengths: Sequence[int],
        notify: Optional[Tuple[str, str]] = None,
    ) -> int:
        with self._start(opcode, target, buffers, peers, lengths, notify) as batch:
            batch.result()
        return 0

    def _async(
        self,
        opcode: Opcode,
        target: str,
        buffers: Sequence[Any],
        peers: Sequence[int],
        lengths: Sequence[int],
    ) -> int:
        batch = self._start(opcode, target, buffers, peers, lengths)
        self._batches[batch.id] = batch
        return batch.id

    @_returns(-1)
    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Copies local memory to the peer's and waits for the end: 0, or -1."""
        return self._sync(Opcode.WRITE, target_hostname, [buffer], [peer_buffer_address], [length])

    @_returns(-1)
    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Copies the peer's memory to local memory and waits for the end: 0, or -1."""
        return self._sync(Opcode.READ, target_hostname, [buffer], [peer_buffer_address], [length])

    @_returns(-1)
    def transfer_sync(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        opcode: _TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """One of the two, by `opcode`: 0, or -1. `notify` is sent once the bytes are there."""
        return self._sync(
            _opcode(opcode),
            target_hostname,
            [buffer],
            [peer_buffer_address],
            [length],
            _notify(notify),
        )

    @_returns(-1)
    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """transfer_sync_write() of many pieces at once: 0 once all are there, or -1."""
        return self._sync(Opcode.WRITE, target_hostname, buffers, peer_buffer_addresses, lengths)

    @_returns(-1)
    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """transfer_sync_read() of many pieces at once: 0 once all are there, or -1."""
        return self._sync(Opcode.READ, target_hostname, buffers, peer_buffer_addresses, lengths)

    @_returns(-1)
    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: _TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """transfer_sync() of many pieces at once: 0 once all are there, or -1."""
        return self._sync(
            _opcode(opcode),
            target_hostname,
            buffers,
            peer_buffer_addresses,
            lengths,
            _notify(notify),
        )

    @_returns(0)
    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Starts to copy many pieces to the peer: the number of the batch, or 0."""
        return self._async(Opcode.WRITE, target_hostname, buffers, peer_buffer_addresses, lengths)

    @_returns(0)
    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Starts to copy many pieces from the peer: the number of the batch, or 0."""
        return self._async(Opcode.READ, target_hostname, buffers, peer_buffer_addresses, lengths)

    @_returns(0)
    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: _TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """One of the two, by `opcode`: the number of the batch, or 0."""
        return self._async(
            _opcode(opcode), target_hostname, buffers, peer_buffer_addresses, lengths
        )

    @_returns(0)
    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Starts to copy one piece to the peer: the number of the batch, or 0."""
        return self._async(Opcode.WRITE, target_hostname, [buffer], [peer_buffer_address], [length])

    # ---------------------------------------------------------------------------- in streams of CUDA

    def _on_cuda(
        self,
        opcode: Opcode,
        target: str,
        buffers: Sequence[Any],
        peers: Sequence[int],
        lengths: Sequence[int],
        stream: int,
    ) -> None:
        """Puts a transfer into the stream. One that fails there ends the process, as Mooncake's does:
        what is behind it would work on wrong bytes."""
        seconds = self._seconds(_total(buffers, peers, lengths))
        segment = self._segment(target)
        local, remote, sizes = list(buffers), list(peers), list(lengths)

        def transfer() -> None:
            try:
                options = submit_options(seconds, None, segment.id)
                with segment._start(opcode, local, remote, sizes, options) as batch:
                    batch.result()
            except BaseException as e:  # pylint: disable=broad-except
                _log.critical("a transfer in a stream of CUDA failed, the process ends: %s", e)
                os._exit(1)

        _cuda.launch(operator.index(stream), transfer)

    def transfer_write_on_cuda(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """transfer_sync_write() at its place in a stream of CUDA."""
        one = [buffer], [peer_buffer_address], [length]
        self._on_cuda(Opcode.WRITE, target_hostname, *one, stream_ptr)

    def transfer_read_on_cuda(
        self,
        target_hostname: str,
        buffer: Any,
        peer_buffer_address: int,
        length: int,
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """transfer_sync_read() at its place in a stream of CUDA."""
        one = [buffer], [peer_buffer_address], [length]
        self._on_cuda(Opcode.READ, target_hostname, *one, stream_ptr)

    def batch_transfer_write_on_cuda(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """batch_transfer_sync_write() at its place in a stream of CUDA."""
        many = buffers, peer_buffer_addresses, lengths
        self._on_cuda(Opcode.WRITE, target_hostname, *many, stream_ptr)

    def batch_transfer_read_on_cuda(
        self,
        target_hostname: str,
        buffers: Sequence[Any],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """batch_transfer_sync_read() at its place in a stream of CUDA."""
        many = buffers, peer_buffer_addresses, lengths
        self._on_cuda(Opcode.READ, target_hostname, *many, stream_ptr)

    @_returns(-1)
    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Waits for all of them and frees them: 0, or -1 if any failed."""
        failures = 0
        for ident in listed(batch_ids, "batch_ids"):
            batch = self._batches.pop(operator.index(ident), None)
            error = ValueError("there is no such batch") if batch is None else batch.exception()
            if error is not None:
                _log.error("get_batch_transfer_status: batch %d: %s", ident, error)
                failures += 1
            if batch is not None:
                batch.close()
        return -1 if failures else 0

    @_returns(-1)
    def transfer_check_status(self, batch_id: int) -> int:
        """1 complete (and freed), 0 under way, -1 failed (and freed), -2 out of time (not freed)."""
        batch = self._batches.get(operator.index(batch_id))
        if batch is None:
            raise ValueError(f"there is no batch {batch_id}")
        if not batch.done():
            return 0
        if batch.status().state == TransferState.TIMEOUT:
            return -2
        del self._batches[batch.id]
        with batch:
            batch.result()
        return 1
