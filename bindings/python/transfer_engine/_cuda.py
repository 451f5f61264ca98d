# SPDX-License-Identifier: Apache-2.0
"""Work of this process at its place in a stream of CUDA, by the driver."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from typing import Any, Callable, Dict, Optional

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ahead: Dict[int, Callable[[], None]] = {}  # what is in a stream and has not begun
_numbers = itertools.count(1)


@functools.lru_cache(maxsize=None)
def driver() -> Optional[Any]:
    """The driver, None where there is none."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
        found.cuLaunchHostFunc.argtypes = [ctypes.c_void_p, _FUNCTION, ctypes.c_void_p]
        found.cuGetErrorName.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    except (OSError, AttributeError):
        return None
    return found


def _begin(number: Any) -> None:
    # The thread of a stream may not call CUDA, which a transfer of a device's memory does.
    thread = threading.Thread(target=_ahead.pop(number), daemon=True)
    thread.start()
    thread.join()


_run = _FUNCTION(_begin)


def launch(stream: int, work: Callable[[], None]) -> None:
    """Puts `work` into the stream: what is behind it there waits until it has returned."""
    cuda = driver()
    if cuda is None:
        raise RuntimeError("there is no driver of CUDA here: libcuda.so.1 cannot be loaded")
    number = next(_numbers)
    _ahead[number] = work
    rc = cuda.cuLaunchHostFunc(stream, _run, number)
    if rc:
        del _ahead[number]
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(rc, ctypes.byref(name))
        raise RuntimeError(
            f"cuLaunchHostFunc: {(name.value or b'error').decode()} ({rc}): stream_ptr must be a stream,"
            " or 0, of the device whose context this thread has"
        )
