# SPDX-License-Identifier: Apache-2.0
"""WRITEs that have ended, and of which it is not known that they are over at the target.

Each is asked for (Batch.fence()) until that is certified, or its target is found to be over: at first at every tick,
later less often, and never given up, since blocks of the target wait for it.
"""

import logging
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

from transfer_engine import Batch, TransferError

from ._protocol import Address, Want

_FIRST_S, _MOST_S = 0.2, 300.0  # between two askings, where the target does not ask itself
_log = logging.getLogger("transfer_engine")


@dataclass
class Doubt:
    want: Want
    batch: Batch
    since: float
    next: float
    wait: float = _FIRST_S
    late: bool = False  # the fence has not come in time


class Doubts:
    """One for each want at most. All with the lock of the exchange held. pin() as that of the lanes."""

    def __init__(self, pin: Callable[[Address, int], None]) -> None:
        self._pin = pin
        self._doubts: Dict[Tuple[Address, str], Doubt] = {}

    def add(self, want: Want, batch: Batch, now: float) -> None:
        self._pin(want.to, 1)
        self._doubts[want.to, want.token] = Doubt(want, batch, now, now)

    def get(self, want: Want) -> Optional[Doubt]:
        return self._doubts.get((want.to, want.token))

    def of(self, peer: Address) -> List[Doubt]:
        return [doubt for doubt in self._doubts.values() if doubt.want.to == peer]

    def all(self) -> List[Doubt]:
        return list(self._doubts.values())

    def due(self, now: float) -> List[Doubt]:
        """Those whose time has come."""
        found = [doubt for doubt in self._doubts.values() if now >= doubt.next]
        for doubt in found:
            doubt.next, doubt.wait = now + doubt.wait, min(1.5 * doubt.wait, _MOST_S)
        return found

    def hurry(self, doubt: Doubt) -> None:
        """Its target has asked, so it lives: the next asking is that of a new doubt."""
        doubt.next, doubt.wait = 0.0, _FIRST_S

    def end(self, doubt: Doubt) -> bool:
        """Whether it was one still."""
        if self.get(doubt.want) is not doubt:
            return False
        del self._doubts[doubt.want.to, doubt.want.token]
        try:
            doubt.batch.close()
        except TransferError as e:
            _log.warning("%s: a batch that has ended is not closed: %s", doubt.want.key, e)
        self._pin(doubt.want.to, -1)
        return True


def is_over(doubt: Doubt) -> bool:
    """Asks, and does not wait. Without a lock."""
    try:
        doubt.batch.fence(0)
    except TransferError:
        return False
    return True
