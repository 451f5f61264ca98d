# SPDX-License-Identifier: Apache-2.0
"""The shared library: where it is found, and its functions as ctypes knows them (te.h and what it includes)."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (
    CDLL,
    POINTER,
    PyDLL,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Union

from ._errors import TOO_LARGE, TransferError, error_for, in_python

VERSION = "0.1.0"
SONAME = "libtransfer_engine.so.0"
LIBRARY_VARIABLE = "TRANSFER_ENGINE_LIBRARY"
_REMEMBERED = 256


class Options(Structure):
    """te_options."""

    _fields_ = [
        ("size", c_size_t),
        ("metadata", c_char_p),
        ("local_server_name", c_char_p),
        ("ip_or_host_name", c_char_p),
        ("rpc_port", c_uint32),
        ("auto_discover", c_int),
        ("set", c_void_p),
    ]


class Buffer(Structure):
    """te_buffer."""

    _fields_ = [("addr", c_void_p), ("length", c_size_t)]


class Request(Structure):
    """te_request."""

    _fields_ = [
        ("opcode", c_int),
        ("source", c_void_p),
        ("target", c_int32),
        ("target_offset", c_uint64),
        ("length", c_uint64),
    ]


class Range(Structure):
    """te_range."""

    _fields_ = [("target", c_int32), ("target_offset", c_uint64), ("length", c_uint64)]


NotifyParts = Tuple[Union[str, bytes], Union[str, bytes]]  # name and message


class Status(Structure):
    """struct te_status."""

    _fields_ = [("state", c_int), ("error", c_int), ("bytes", c_uint64)]


class Path(Structure):
    """struct te_path."""

    _fields_ = [
        ("size", c_size_t),
        ("transport", c_char * 32),
        ("nic", c_char * 64),
        ("changes", c_uint32),
        ("staged", c_uint32),
    ]


class WarmedBy(Structure):
    """struct te_warmed."""

    _fields_ = [
        ("transport", c_char * 32),
        ("error", c_int),
        ("ready", c_uint32),
        ("opening", c_uint32),
        ("failed", c_uint32),
        ("time_ns", c_uint64),
        ("reserved", c_uint64 * 2),
    ]


class Warm(Structure):
    """struct te_warm."""

    _fields_ = [
        ("size", c_size_t),
        ("n", c_size_t),
        ("time_ns", c_uint64),
        ("by", WarmedBy * 16),
    ]


class Paths(Structure):
    """te_paths."""

    _fields_ = [("size", c_size_t), ("require", c_char_p), ("prefer", c_char_p), ("forbid", c_char_p)]


class Stream(Structure):
    """te_stream."""

    _fields_ = [("size", c_size_t), ("location", c_char_p), ("stream", c_void_p), ("fd", c_int)]


class LeaseKey(Structure):
    """te_lease_key."""

    _fields_ = [("bytes", c_uint8 * 24)]


class SubmitOptions(Structure):
    """te_submit_opts."""

    _fields_ = [
        ("size", c_size_t),
        ("deadline_ms", c_int64),
        ("notify_name", c_char_p),
        ("notify_msg", c_char_p),
        ("notify_target", c_int32),
        ("traceparent", c_char_p),
        ("paths", POINTER(Paths)),
        ("after", POINTER(Stream)),
        ("then", POINTER(Stream)),
        ("lease", POINTER(LeaseKey)),
    ]
    follows: Any = None  # (segment, Message) for te_notify_after()


class Message(Structure):
    """te_message."""

    _fields_ = [
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("msg", c_void_p),
        ("msg_len", c_size_t),
    ]
    keep: Any = None  # what the pointers need


class PageSide(Structure):
    """te_page_side."""

    _fields_ = [
        ("base", c_uint64),
        ("pages", c_uint64),
        ("stride", c_uint64),
        ("part_stride", c_uint64),
        ("layer_stride", c_uint64),
        ("index", c_void_p),
    ]


class Pages(Structure):
    """te_pages."""

    _fields_ = [
        ("size", c_size_t),
        ("opcode", c_int),
        ("target", c_int32),
        ("length", c_uint64),
        ("n", c_size_t),
        ("parts", c_size_t),
        ("layers", c_size_t),
        ("index_bits", c_uint),
        ("local", PageSide),
        ("remote", PageSide),
    ]


COUNTERS = (
    "requests_submitted requests_completed requests_failed bytes_read bytes_written"
    " served_requests served_bytes_out served_bytes_in served_rejected"
    " retries reconnects refreshes connections regions segments_open"
    " notifications_sent notifications_received metadata_failures metadata_down"
).split()


class Stats(Structure):
    """struct te_stats."""

    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in COUNTERS]


_E, _B, _S = c_void_p, c_uint64, c_int32
_U64P, _SIZEP = POINTER(c_uint64), POINTER(c_size_t)

# Every function here may wait, for the network or for a lock, or log a line: the interpreter goes on
# meanwhile. It may be one of its threads that reads the pipe to which the log is written.
_BLOCKING: Dict[str, Tuple[Any, List[Any]]] = {
    "te_version": (c_char_p, []),
    "te_log_set_sink": (None, [c_void_p, c_void_p]),
    "te_log_set_level": (None, [c_int]),
    "te_log_to_fd": (None, [c_void_p, c_int, c_char_p]),
    "te_options_init_size": (None, [POINTER(Options), c_size_t]),
    "te_option_set": (c_int, [POINTER(Options), c_char_p, c_char_p]),
    "te_options_fini": (None, [POINTER(Options)]),
    "te_engine_create": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "te_engine_destroy": (None, [_E]),
    "te_engine_addr": (c_int, [_E, c_char_p, c_size_t]),
    "te_engine_name": (c_int, [_E, c_char_p, c_size_t]),
    "te_transport_install": (c_int, [_E, c_char_p, c_char_p]),
    "te_transport_uninstall": (c_int, [_E, c_char_p]),
    "te_topology_json": (c_int, [_E, c_char_p, c_size_t]),
    "te_register_batch": (c_int, [_E, c_void_p, c_size_t, c_char_p, c_uint]),
    "te_register_allow": (c_int, [_E, c_void_p, c_size_t, c_char_p, c_uint, c_char_p]),
    "te_unregister_batch": (c_int, [_E, c_void_p, c_size_t]),
    "te_alloc": (c_int, [_E, c_size_t, c_char_p, POINTER(c_void_p)]),
    "te_free": (c_int, [_E, c_void_p]),
    "te_lease_grant": (
        c_int,
        [_E, c_void_p, c_size_t, c_uint, c_int64, _U64P, POINTER(LeaseKey)],
    ),
    "te_lease_grant_allow": (
        c_int,
        [_E, c_void_p, c_size_t, c_uint, c_int64, c_char_p, _U64P, POINTER(LeaseKey)],
    ),
    "te_revoke": (c_int, [_E, c_uint64]),
    "te_incarnation": (c_uint64, [_E]),
    "te_open_life": (c_int, [_E, c_char_p, c_uint64, POINTER(Paths), POINTER(_S)]),
    "te_open_with": (c_int, [_E, c_char_p, POINTER(Paths), POINTER(_S)]),
    "te_close": (c_int, [_E, _S]),
    "te_refresh": (c_int, [_E, c_char_p]),
    "te_segment_buffers": (c_int, [_E, _S, POINTER(Buffer), c_size_t, _SIZEP]),
    "te_batch_alloc": (c_int, [_E, c_size_t, _U64P]),
    "te_batch_free": (c_int, [_E, _B]),
    "te_submit": (c_int, [_E, _B, c_void_p, c_size_t, POINTER(SubmitOptions)]),
    "te_submit_pages": (c_int, [_E, _B, POINTER(Pages), POINTER(SubmitOptions)]),
    "te_prep_create": (c_int, [_E, _S, c_void_p, c_void_p, c_void_p, c_size_t, _U64P]),
    "te_prep_submit": (
        c_int,
        [_E, _B, c_uint64, c_int, c_void_p, c_size_t, POINTER(SubmitOptions)],
    ),
    "te_prep_destroy": (c_int, [_E, c_uint64]),
    "te_status": (c_int, [_E, _B, c_size_t, POINTER(Status)]),
    "te_batch_status": (c_int, [_E, _B, POINTER(Status)]),
    "te_status_msg": (c_int, [_E, _B, c_size_t, c_char_p, c_size_t]),
    "te_wait": (c_int, [_E, _B, c_int64]),
    "te_path": (c_int, [_E, _B, c_size_t, POINTER(Path)]),
    "te_cancel": (c_int, [_E, _B]),
    "te_fence": (c_int, [_E, _B, c_int64, POINTER(Range), c_size_t, _SIZEP]),
    "te_event_fd": (c_int, [_E]),
    "te_done": (c_int, [_E, _U64P, c_size_t]),
    "te_notify_bytes": (c_int, [_E, _S, POINTER(Message)]),
    "te_notify_after": (c_int, [_E, _B, _S, POINTER(Message)]),
    "te_notify_recv_bytes": (c_int, [_E, POINTER(POINTER(Message)), _SIZEP]),
    "te_message_free": (None, [POINTER(Message), c_size_t]),
    "te_counter_create": (c_int, [_E, c_char_p, _U64P]),
    "te_counter_destroy": (c_int, [_E, c_uint64]),
    "te_counter_value": (c_int, [_E, c_uint64, _U64P]),
    "te_counter_wait": (c_int, [_E, c_uint64, c_uint64, c_int64]),
    "te_counter_fd": (c_int, [_E, c_uint64, c_uint64]),
    "te_adder_open": (c_int, [_E, _S, c_char_p, _U64P]),
    "te_adder_after": (c_int, [_E, _B, c_uint64, c_uint64]),
    "te_adder_flush": (c_int, [_E, c_uint64, c_int64]),
    "te_adder_close": (c_int, [_E, c_uint64]),
    "te_probe": (c_int, [_E, c_char_p]),
    "te_warm": (c_int, [_E, _S, c_int64, POINTER(Warm)]),
    "te_stats": (c_int, [_E, POINTER(Stats)]),
    "te_explain": (c_int, [_E, POINTER(Request), c_char_p, c_size_t]),
    "te_stats_text": (c_int, [_E, c_char_p, c_size_t]),
    "te_links": (c_int, [_E, c_int, c_char_p, c_size_t]),
}

# This ends at once and never logs.
_QUICK: Dict[str, Tuple[Any, List[Any]]] = {
    "te_errmsg": (c_char_p, []),
}


class Library:
    """The functions of te.h, by their names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.raised = [0] * _REMEMBERED  # threads that have raised an error, the last ones
        self._n_raised = 0
        self._bind(CDLL(path), _BLOCKING)
        self._bind(PyDLL(path), _QUICK)
        version: bytes = self.te_version()
        if version.decode().split(".")[:2] != VERSION.split(".")[:2]:
            raise OSError(f"it is version {version.decode()}, this package is for {VERSION}")

    def _bind(self, library: Any, functions: Dict[str, Tuple[Any, List[Any]]]) -> None:
        for name, (result, arguments) in functions.items():
            try:
                function = getattr(library, name)
            except AttributeError as e:
                raise OSError(f"it has no function {name}") from e
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def check(self, rc: int) -> int:
        """The result of a call that did not fail, else its error as an exception."""
        if rc < 0:
            raise self.error(rc)
        return rc

    def reason(self) -> str:
        """Why this thread's last call failed, which it is about to raise."""
        self.raised[self._n_raised % _REMEMBERED] = threading.get_native_id()
        self._n_raised += 1
        return in_python(self.te_errmsg().decode("utf-8", "replace"))

    def error(self, rc: int) -> TransferError:
        """That as an exception."""
        return error_for(rc, self.reason())


def _places() -> Sequence[Tuple[str, str]]:
    """(what the place is called, the path) of each place to look at, best first."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [(f"${LIBRARY_VARIABLE}", named)]
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)
    return [("in this package", bundled), ("of the system", SONAME)]


def load() -> Library:
    """The first library that can be loaded."""
    tried = []
    for what, path in _places():
        try:
            return Library(path)
        except OSError as e:
            tried.append(f"  {what}: {path}: {e}")
    raise ImportError(
        "the library of the Transfer Engine cannot be loaded:\n" + "\n".join(tried) + "\n"
        "Install the wheel transfer-engine, which brings it, or the package libtransfer-engine0, or"
        f" set {LIBRARY_VARIABLE} to the path of {SONAME}."
    )


lib = load()


def text(value: str, what: str) -> bytes:
    """A string as the library takes it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"{what} holds a NUL character")
    return data


def listed_names(allow: Any) -> bytes:
    """A list of peers as the library takes it: of one name, or of several."""
    if not isinstance(allow, Iterable):
        raise TypeError(f"allow must be a name or a list of names, not {type(allow).__name__}")
    names = [allow] if isinstance(allow, str) and allow else list(allow)
    if not names:
        raise ValueError("allow names nobody: give names, or None for everybody")
    for name in names:
        if b"," in text(name, "a name in allow"):
            raise ValueError(f"{name!r} in allow has a comma: give a list of names")
    return text(",".join(names), "allow")


def part(value: Any, what: str) -> bytes:
    """A part of a message: a string, which may have NUL characters, or bytes as they are."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str or bytes, not {type(value).__name__}")
    return value.encode("utf-8", "surrogateescape")


def message(parts: Tuple[Any, Any]) -> Message:
    """A te_message, which keeps what it points to."""
    if not isinstance(parts, (tuple, list)) or len(parts) != 2:
        raise TypeError(f"notify must be a pair, (name, message), not {parts!r:.80}")
    name, msg = part(parts[0], "name"), part(parts[1], "msg")
    keep = (ctypes.c_char_p(name), ctypes.c_char_p(msg))
    made = Message(
        ctypes.cast(keep[0], c_void_p), len(name), ctypes.cast(keep[1], c_void_p), len(msg)
    )
    made.keep = keep
    return made


def sized_text(call: Any, too_small: int = TOO_LARGE) -> str:
    """What `call(buffer, size)` writes, with a larger buffer until it fits."""
    size, most = 4096, 1 << 26
    while True:
        buffer = ctypes.create_string_buffer(size)
        rc = call(buffer, size)
        if rc != too_small or size >= most:
            lib.check(rc)
            return buffer.value.decode("utf-8", "replace")
        size *= 4
