# SPDX-License-Identifier: Apache-2.0
"""The library's log lines as records of `logging`, of the logger "transfer_engine.library".

The library logs from its own threads, with its locks held, so none of them may wait for the
interpreter or for a handler. It writes to a pipe that does not block, and a thread of ours reads
that and makes the records: they come a moment later, and what a full pipe refuses is missing.

An error that a call of this package raises is a line of the library, too. That is a record of the
level DEBUG, since the exception tells the same. Where nobody has configured logging, no line is
printed; that is what the NullHandler is for.

Whoever asks for the library's own log, by MC_LOG_LEVEL, MC_LOG_DIR or MC_VERBOSE, has it: on standard
error or in a file, and not here.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import stat
import threading
from typing import Mapping, Optional

from ._errors import in_python
from ._native import lib

logger = logging.getLogger("transfer_engine.library")
logger.addHandler(logging.NullHandler())

_OF_THE_LIBRARY = ("MC_LOG_LEVEL", "MC_LOG_DIR", "MC_VERBOSE")
_LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # by enum te_log_level
_AT_ONCE = 1 << 16
_EXIT_SECONDS = 5.0


def _threshold() -> int:
    """The level of te.h below which the logger wants nothing."""
    return next((i for i, n in enumerate(_LEVELS) if logger.isEnabledFor(n)), len(_LEVELS))


def _is_raised(thread: int, text: str) -> bool:
    """True for the error of a call that a thread of the interpreter made, and raises as well.

    That thread is still inside the call, or has raised since, and may have ended.
    """
    return text.startswith("TE_ERR_") and (
        thread in lib.raised or any(t.native_id == thread for t in threading.enumerate())
    )


def _record(line: bytes) -> None:
    level, thread, text = line.decode("utf-8", "replace").split(" ", 2)
    of_record = _LEVELS[int(level)]
    if of_record >= logging.WARNING and _is_raised(int(thread), text):
        of_record = logging.DEBUG
    with contextlib.suppress(Exception):  # of a filter or handler: the next line may pass
        logger.log(of_record, "%s", in_python(text))


class _Pipe:
    """What the library writes to, and the thread that reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads = self._writes = -1
        self._inode = 0
        self._thread: Optional[threading.Thread] = None
        self._ending = False
        self._rest = b""

    def listen(self) -> None:
        """Has the library write to the pipe, at the level of the logger."""
        with self._lock:
            if not self._is_ours():
                self._reads, self._writes = os.pipe()
                self._made()
            self._ending = False
            if self._thread is None:
                # Without a thread, which no interpreter starts that is ending, stop() reads.
                with contextlib.suppress(RuntimeError):
                    thread = threading.Thread(target=self._read, name="te log", daemon=True)
                    thread.start()
                    self._thread = thread
            lib.te_log_set_sink(ctypes.cast(lib.te_log_to_fd, ctypes.c_void_p), self._writes)
            lib.te_log_set_level(_threshold())

    def _made(self) -> None:
        os.set_blocking(self._writes, False)
        self._inode = os.fstat(self._writes).st_ino
        self._thread, self._rest = None, b""

    def _is_ours(self) -> bool:
        """False if there is none, or somebody has closed it, as programs do that become daemons."""
        try:
            found = os.fstat(self._writes)
            return stat.S_ISFIFO(found.st_mode) and found.st_ino == self._inode
        except OSError:
            return False

    def _take(self) -> bool:
        """Makes records of what is there; False at the end of the pipe."""
        data = os.read(self._reads, _AT_ONCE)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line:
                _record(line)
        return bool(data)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # somebody has closed it
            while self._take() and not self._ending:
                pass

    def stop(self) -> None:
        """Back to the library's own log. What was written before is made records of.

        The pipe stays open: a thread may be about to write to it.
        """
        if not self._is_ours():
            return
        lib.te_log_set_sink(None, None)
        self._ending = True
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes its reader, too
            os.write(self._writes, b"\n")
        if self._thread is not None:
            self._thread.join(_EXIT_SECONDS)
            if self._thread.is_alive():
                return
        os.set_blocking(self._reads, False)
        with contextlib.suppress(BlockingIOError):
            while self._take():
                pass

    def disown(self) -> None:
        """In a forked child: under the same numbers a pipe of its own, for its own library."""
        self._lock = threading.Lock()
        if not self._is_ours():
            return
        for old, new in zip((self._reads, self._writes), os.pipe()):
            os.dup2(new, old, inheritable=False)
            os.close(new)
        self._made()


_pipe = _Pipe()


def follow(options: Mapping[str, str]) -> None:
    """Before an engine is made with these options: where the log goes from now on."""
    if any(options.get(name, os.environ.get(name)) for name in _OF_THE_LIBRARY):
        lib.te_log_set_sink(None, None)
    else:
        _pipe.listen()


def stop() -> None:
    """When the process ends, and has no engines any more."""
    _pipe.stop()


os.register_at_fork(after_in_child=_pipe.disown)
