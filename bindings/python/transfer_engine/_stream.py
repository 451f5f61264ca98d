# SPDX-License-Identifier: Apache-2.0
"""What transfers wait for, and what waits for them (te_stream.h)."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple, Optional

from ._memory import integer
from ._native import Stream as RawStream
from ._native import SubmitOptions, text


class Order(NamedTuple):
    """`after` and `then` of one call."""

    after: Any = None
    then: Any = None

    def put(self, options: SubmitOptions) -> None:
        """Into te_submit_opts."""
        if self.after is not None:
            options.after = ctypes.pointer(_raw(self.after, "after"))
        if self.then is not None:
            options.then = ctypes.pointer(_raw(self.then, "then"))


def _raw(given: Any, what: str) -> RawStream:
    raw = RawStream(size=ctypes.sizeof(RawStream))
    place = _stream(given)
    if place is not None:
        raw.location = text(place[0], f"{what} location")
        raw.stream = integer(place[1], f"{what} stream") or None
    else:
        number = given.fileno() if hasattr(given, "fileno") else given
        raw.fd = integer(number, what, 2**31 - 1)
    return raw


def _is_hip(module: Any) -> bool:
    return getattr(getattr(module, "version", None), "hip", None) is not None


def _stream(given: Any) -> Optional[Any]:
    """The location and the handle of a stream: of PyTorch, of CuPy, or of the two themselves. None: a descriptor."""
    if isinstance(given, tuple):
        location, handle = given
        return location, handle
    if hasattr(given, "cuda_stream"):  # torch.cuda.Stream
        maker = "hip" if _is_hip(sys.modules.get("torch")) else "cuda"
        return f"{maker}:{given.device.index or 0}", given.cuda_stream
    if hasattr(given, "npu_stream"):  # torch_npu
        return f"npu:{given.device.index or 0}", given.npu_stream
    if hasattr(given, "ptr") and hasattr(given, "device_id"):  # cupy.cuda.Stream
        cuda = sys.modules["cupy"].cuda if "cupy" in sys.modules else None
        device = given.device_id
        if device < 0:  # a default stream is of the current device
            device = 0 if cuda is None else cuda.runtime.getDevice()
        hip = cuda is not None and getattr(cuda.runtime, "is_hip", False)
        return f"{'hip' if hip else 'cuda'}:{device}", given.ptr
    return None
