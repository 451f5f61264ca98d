# SPDX-License-Identifier: Apache-2.0
"""Registered memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ._engine import Engine


class Region:
    """Registered memory, `nbytes` from `address` on, which is what peers are told of it.

    A context manager: its end takes the registration away.
    """

    def __init__(self, engine: Engine, address: int, nbytes: int) -> None:
        self._engine: Optional[Engine] = engine
        self.address = address
        self.nbytes = nbytes

    def __repr__(self) -> str:
        engine = self._engine  # close() may take it away meanwhile
        closed = engine is None or engine._state.closed
        what = f"{self.address:#x} + {self.nbytes}{' closed' if closed else ''}"
        return f"<{type(self).__name__} {what}>"

    def close(self) -> None:
        """Takes the region away. Afterwards no peer can touch its memory any more."""
        engine = self._engine
        if engine is not None and engine._state.closed:
            engine.close()
        elif engine is not None:
            engine.unregister(self.address)
        self._engine = None

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
