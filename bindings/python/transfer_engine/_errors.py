# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions: one class per thing that a program can do about it."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Match, NamedTuple, Tuple, Type


class Unsafe(NamedTuple):
    """A range of a peer's memory that may still change."""

    segment: int  # Segment.id
    address: int
    nbytes: int


class TransferError(Exception):
    """An error of the engine; `code` is its number in te.h, `name` its name there."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.unsafe: List[Unsafe] = []  # of Batch.fence()
        self.warmed: List[Any] = []  # of Segment.warm(): each a Warmed

    @property
    def name(self) -> str:
        """The name of the code in te.h, such as "TE_ERR_PEER"."""
        return _CODES[self.code][0] if self.code in _CODES else "TE_ERR_UNKNOWN"

    def __str__(self) -> str:
        return f"{self.text} [{self.name}]"


class RequestError(TransferError):
    """The call or request is wrong or was refused; the same again fails again."""


class PathError(TransferError):
    """A link, a connection or the peer failed; a later try may work."""


class FatalError(TransferError):
    """The engine or this host is at fault."""


class NotRegistered(RequestError):
    """The local memory is not, or not whole, inside a registered region."""


class TransferCanceled(RequestError):
    """The transfer was canceled."""


class EngineClosed(RequestError):
    """The engine was closed, or belongs to the parent of this process."""


class TransferTimeout(PathError, TimeoutError):
    """A deadline passed."""


_CODES: Dict[int, Tuple[str, Type[TransferError]]] = {
    -1: ("TE_ERR_INVALID", RequestError),
    -2: ("TE_ERR_TOO_MANY", RequestError),
    -3: ("TE_ERR_NOT_REGISTERED", NotRegistered),
    -4: ("TE_ERR_BUSY", RequestError),
    -6: ("TE_ERR_NO_DEVICE", FatalError),
    -7: ("TE_ERR_OVERLAP", RequestError),
    -101: ("TE_ERR_DNS", PathError),
    -102: ("TE_ERR_SOCKET", PathError),
    -103: ("TE_ERR_JSON", RequestError),
    -104: ("TE_ERR_REJECTED", RequestError),
    -200: ("TE_ERR_METADATA", PathError),
    -201: ("TE_ERR_ENDPOINT", PathError),
    -202: ("TE_ERR_CONTEXT", FatalError),
    -300: ("TE_ERR_NUMA", FatalError),
    -301: ("TE_ERR_CLOCK", FatalError),
    -302: ("TE_ERR_MEMORY", FatalError),
    -303: ("TE_ERR_NOT_IMPLEMENTED", RequestError),
    -400: ("TE_ERR_TIMEOUT", TransferTimeout),
    -401: ("TE_ERR_CANCELED", TransferCanceled),
    -402: ("TE_ERR_CLOSED", EngineClosed),
    -403: ("TE_ERR_NOT_FOUND", RequestError),
    -404: ("TE_ERR_PROTOCOL", PathError),
    -405: ("TE_ERR_LINK", PathError),
    -406: ("TE_ERR_PEER", PathError),
    -407: ("TE_ERR_STALE", RequestError),
    -408: ("TE_ERR_ACCESS", RequestError),
    -409: ("TE_ERR_UNSUPPORTED", RequestError),
    -410: ("TE_ERR_TOO_LARGE", RequestError),
    -411: ("TE_ERR_EXISTS", RequestError),
    -412: ("TE_ERR_SYSTEM", FatalError),
}
INVALID, NOT_REGISTERED, BUSY = -1, -3, -4
METADATA, TIMEOUT, CANCELED, CLOSED, NOT_FOUND = -200, -400, -401, -402, -403
REJECTED, STALE, TOO_LARGE = -104, -407, -410


# What the library's texts tell to call, and what that is here.
_CALLS = {
    "te_adder_close": "Adder.close",
    "te_adder_flush": "Adder.flush",
    "te_alloc": "alloc",
    "te_batch_free": "Batch.close",
    "te_cancel": "cancel",
    "te_counter_destroy": "Counter.close",
    "te_engine_name": "Engine.name",
    "te_explain": "explain",
    "te_fence": "Batch.fence",
    "te_lease_grant": "grant",
    "te_notify": "notify",
    "te_notify_recv": "notifications",
    "te_open": "open",
    "te_open_life": "open",
    "te_open_with": "open",
    "te_prep_destroy": "Prepared.close",
    "te_register": "register",
    "te_register_allow": "register",
    "te_revoke": "Lease.revoke",
    "te_segment_buffers": "Segment.buffers",
    "te_transport_install": "install",
    "te_unregister": "unregister",
    "te_wait": "wait",
}
_PROPERTIES = {"Engine.name"}  # of these: what is not called


def in_python(text: str) -> str:
    """A text of the library, with the names of this package for its functions, and with the page of
    the options for the tool that lists them: wheels have no tools."""

    def name(found: Match[str]) -> str:
        here = _CALLS.get(found[1], found[1])
        return here if here in _PROPERTIES else here + "()"

    return re.sub(r"\b(te_\w+)\(\)", name, text.replace("te_info --config", "docs/config.md"))


def error_for(code: int, text: str) -> TransferError:
    """The exception of an error code."""
    return _CODES.get(code, ("", TransferError))[1](code, text)
