# SPDX-License-Identifier: Apache-2.0
"""Memory that one peer reaches by a key, until it is revoked (te_lease.h)."""

from __future__ import annotations

import ctypes
import math
from ctypes import byref
from numbers import Real
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from ._memory import kind, sized_span
from ._native import LeaseKey, lib, listed_names

if TYPE_CHECKING:
    from ._engine import Engine

_WRITE = 2  # Access.WRITE
_MOST_SECONDS = 1e9
_KEY = ctypes.sizeof(LeaseKey)


class Lease:
    """What whoever has `key`, 24 bytes, may do in a part of our memory; Engine.grant() makes one.

    The peer gives the key with its transfers, as `lease=`. Send it where others do not read, and keep it out of logs.
    A context manager: its end revokes the lease. One that is dropped stays until its region or engine is closed.
    """

    def __init__(self, engine: Engine, ident: int, key: bytes, address: int, nbytes: int) -> None:
        self._engine: Optional[Engine] = engine
        self.id = ident
        self.key = key
        self.address = address
        self.nbytes = nbytes

    def __repr__(self) -> str:
        engine = self._engine  # revoke() may take it away meanwhile
        over = engine is None or engine._state.closed
        what = f"{self.address:#x} + {self.nbytes}{' revoked' if over else ''}"
        return f"<{type(self).__name__} {what}>"  # without the key, which is secret

    def revoke(self) -> None:
        """When it returns no byte is read or written by the lease, now or later; no peer is waited for."""
        engine = self._engine
        if engine is not None and engine._state.closed:
            engine.close()
        elif engine is not None:
            with engine._state.inside:
                handle = engine._state.handle()
                lib.check(lib.te_revoke(handle, self.id))
        self._engine = None

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.revoke()


def granted(
    engine: Engine,
    buffer: Any,
    length: Optional[int],
    access: int,
    seconds: Optional[float],
    allow: Union[None, str, Sequence[str]],
) -> Lease:
    """te_lease_grant(), te_lease_grant_allow()."""
    where, nbytes = sized_span(buffer, length)
    if not where.writable and access & _WRITE:
        raise BufferError(f"peers cannot write to {kind(buffer)}, which is read-only")
    lifetime_ms, ident, key = _milliseconds(seconds), ctypes.c_uint64(), LeaseKey()
    names = None if allow is None else listed_names(allow)
    with engine._state.inside:
        what = engine._state.handle(), where.address, nbytes, access, lifetime_ms
        if names is None:
            rc = lib.te_lease_grant(*what, byref(ident), byref(key))
        else:
            rc = lib.te_lease_grant_allow(*what, names, byref(ident), byref(key))
        lib.check(rc)
    return Lease(engine, ident.value, bytes(key.bytes), where.address, nbytes)


def _milliseconds(seconds: Optional[float]) -> int:
    """A lifetime as the library takes it, for which 0 is for ever."""
    if seconds is None:
        return 0
    if not isinstance(seconds, Real):
        raise TypeError(f"seconds must be a number or None, not {type(seconds).__name__}")
    if not seconds > 0:  # nor is a NaN
        raise ValueError(f"a lease of {seconds} seconds; None: until it is revoked")
    return math.ceil(min(seconds, _MOST_SECONDS) * 1000)


def raw_key(lease: Union[bytes, Lease]) -> LeaseKey:
    """te_lease_key."""
    key = lease.key if isinstance(lease, Lease) else lease
    if not isinstance(key, bytes):
        raise TypeError(f"lease must be a Lease or the bytes of its key, not {type(key).__name__}")
    if len(key) != _KEY:
        raise ValueError(f"the key of a lease has {_KEY} bytes, not {len(key)}")
    return LeaseKey.from_buffer_copy(key)
