# SPDX-License-Identifier: Apache-2.0
"""Decode's side of the exchange: what was asked of whom, and when our memory is quiet.

    UNSAID    nobody else knows its places: it can end at any time, and its blocks are free
    WANTED    the sender may know them
    ABORTED   the sender is asked to stop
    KEPT      it is told as failed, and its blocks are kept from others: something may still be written to them.
              The sender is asked on and on, less and less often
    OVER      nothing is written any more

From WANTED and ABORTED a word of the sender leads to OVER (`done`, `failed`) or KEPT (`unsafe`), its silence, or its end,
to KEPT; from there only its word (`done`, `failed`), or, when its incarnation is over, settle_s after that was known.
"""

import logging
import secrets
import threading
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from . import _protocol
from ._link import Clock, Link
from ._protocol import DONE, FAILED, UNKNOWN, UNSAFE, WAITS, Address, Limits, Prompt

_ASK_S, _MOST_ASK_S = 1.0, 30.0  # between two askings
_MOST_BYTES = 65536  # about so many in one message, of what can be in several
_MOST_RELEASED = 4096  # transfers that are not needed, and of which their senders are to be told
_log = logging.getLogger("transfer_engine")


class State(Enum):
    UNSAID = 0
    WANTED = 1
    ABORTED = 2
    KEPT = 3
    OVER = 4


@dataclass
class Receiving:
    """A request on its way in. Guarded by the exchange's lock."""

    token: str
    key: str
    owner: str
    peer: Address
    prompt: Prompt
    first: int
    blocks: List[int]
    state: State = State.UNSAID
    since: float = 0.0  # when it was asked for; from ABORTED on, when it was aborted
    due: bool = True  # something is to be said of it
    again: bool = True  # and that is the want
    waits: bool = False  # the sender has said so
    next: float = 0.0  # KEPT: when it is asked for again, and how long after that once more
    wait: float = _ASK_S
    free_at: Optional[float] = None  # KEPT, and the sender is over


class Receiver:
    """With the lock held received(receiving, end) is called once, with DONE, FAILED or UNSAFE: that of one that is KEPT.
    freed(receiving) follows in the latter case, if it can. `places()` are our own, and the name of the model."""

    def __init__(
        self,
        lock: threading.RLock,
        clock: Clock,
        limits: Limits,
        places: Callable[[], Tuple[str, Any]],
        received: Callable[[Receiving, str], None],
        freed: Callable[[Receiving], None],
    ) -> None:
        self.limits = limits
        self.link: Link
        self._lock, self._clock, self._places, self._received, self._freed = lock, clock, places, received, freed
        self._receivings: Dict[str, Receiving] = {}  # by token
        self._heard: Dict[Address, float] = {}  # when a sender said the last word, whatever that was
        self._talking: Set[Address] = set()  # a talk with them is to begin
        self._released: Dict[str, Tuple[Address, str, float]] = {}  # by token: of whom which key is not needed, since when
        self._asked = 0.0

    # ------------------------------------------------------------------------------- for the worker

    def receive(self, key: str, owner: str, peer: Optional[Address], prompt: Prompt, first: int, blocks: List[int]) -> Receiving:
        """Asks `peer` for blocks; None as the peer is one that nobody knows."""
        receiving = Receiving(secrets.token_hex(16), key, owner, peer or ("", ""), prompt, first, blocks)
        with self._lock:
            if peer is None or not self.link.reaches(peer):
                self._end(receiving, FAILED)
                return receiving
            receiving.since = self._clock.now
            self._receivings[receiving.token] = receiving
            self._talk(peer)
        return receiving

    def release(self, key: str, peer: Address) -> None:
        """Tells that nothing is needed of a request."""
        with self._lock:
            if self.link.reaches(peer):
                _protocol.remember(self._released, secrets.token_hex(16), (peer, key, self._clock.now), _MOST_RELEASED)
                self._talk(peer)

    def releases(self) -> bool:
        """Whether there is something of that to be told."""
        return bool(self._released)

    def abort(self, receiving: Receiving) -> None:
        """Ends it as soon as the sender says that nothing arrives any more."""
        with self._lock:
            if receiving.state is State.UNSAID:
                self.release(receiving.key, receiving.peer)
                self._end(receiving, FAILED)
            elif receiving.state is State.WANTED:
                receiving.state, receiving.since, receiving.due, receiving.again = State.ABORTED, self._clock.now, True, False
                self._talk(receiving.peer)

    def is_quiet(self, owner: str) -> bool:
        """Whether nothing of what that one has asked for can be written any more."""
        with self._lock:
            return all(receiving.owner != owner for receiving in self._receivings.values())

    def kept(self) -> List[Receiving]:
        """Those whose blocks nobody may have yet, though they have failed."""
        with self._lock:
            return [receiving for receiving in self._receivings.values() if receiving.state is State.KEPT]

    def close(self) -> None:
        with self._lock:
            for receiving in list(self._receivings.values()):
                self.abort(receiving)

    # ----------------------------------------------------------------------------------- what is said

    def _talk(self, peer: Address) -> None:
        """With the lock: has all said to it that is due by then, once it has answered."""
        if peer not in self._talking:
            self._talking.add(peer)
            self.link.talk(peer, partial(self._due, peer), partial(self._has_begun, peer))

    def _has_begun(self, peer: Address, unsaid: Sequence[Tuple[str, Any]] = ()) -> None:
        with self._lock:
            self._talking.discard(peer)
            for receiving in [self._receivings.get(body[0]) for kind, body in unsaid if kind == "want"]:
                if receiving is not None:
                    _log.error("%s of request %s: %s cannot be asked, and it is aborted", receiving.key, receiving.owner, peer[0])
                    self.abort(receiving)

    def _due(self, peer: Address) -> List[Tuple[str, Any]]:
        """What is said in this talk. A message that may or may not have come is made good by the next one."""
        said: List[Tuple[str, Any]] = []
        asked: List[List[Any]] = []
        with self._lock:
            self._has_begun(peer)
            for receiving in [r for r in self._receivings.values() if r.due and r.peer == peer]:
                receiving.due = False
                if receiving.again:
                    receiving.again = False
                    receiving.state = State.WANTED
                    said.append(("want", self._want(receiving)))
                else:
                    asked.append([receiving.token, receiving.key, receiving.state is not State.WANTED])
            for token in self._releases_of(peer):
                asked.append([token, self._released.pop(token)[1], True])
        return said + _cut(asked)

    def _want(self, receiving: Receiving) -> List[Any]:
        tokens, digest = receiving.prompt
        return [receiving.token, receiving.key, tokens, digest, receiving.first, receiving.blocks, *self._places()]

    # ---------------------------------------------------------------------------------- what is heard

    def heard(self, sender: Address) -> None:
        if sender in self._heard:
            self._heard[sender] = self._clock.now

    def welcomed(self, peer: Address) -> None:
        """It has answered our greeting: what is to be said is said now."""
        if any(receiving.peer == peer for receiving in self._receivings.values()) or self._releases_of(peer):
            self._talk(peer)

    def _releases_of(self, peer: Address) -> List[str]:
        return [token for token, (of, _, _) in self._released.items() if of == peer]

    def stands(self, token: str, state: Any, sender: Address) -> None:
        receiving = self._receivings.get(token)
        if receiving is None or receiving.peer != sender or receiving.state is State.UNSAID:
            return
        if state in (DONE, FAILED):
            self._end(receiving, state)
        elif state == UNSAFE:
            self._keep(receiving, "the sender cannot tell yet whether something is written still")
        elif state == WAITS:
            receiving.waits = True
        elif state == UNKNOWN and receiving.state is State.WANTED:
            self._forgotten(receiving)

    def _forgotten(self, receiving: Receiving) -> None:
        """The sender knows nothing of it: it is asked again, or, where it did know, to stop."""
        if receiving.waits:
            _log.error("%s of request %s: %s has forgotten it, and it is aborted", receiving.key, receiving.owner, receiving.peer[0])
            self.abort(receiving)
        else:
            receiving.due = receiving.again = True
            self._talk(receiving.peer)

    def peers(self) -> Set[Address]:
        return {receiving.peer for receiving in self._receivings.values()}

    def over(self, peer: Address) -> None:
        """That incarnation of a sender has ended. What it has sent may be on the network still."""
        for token in self._releases_of(peer):
            del self._released[token]
        for receiving in [receiving for receiving in self._receivings.values() if receiving.peer == peer]:
            self._lose(receiving, "its process has ended, or was started anew")
            if receiving.free_at is None:
                receiving.free_at = self._clock.now + self.limits.settle

    # ------------------------------------------------------------------------------------------ the end

    def look_after(self) -> None:
        """Once a second: asks each sender, and ends what takes too long."""
        now = self._clock.now
        if now - self._asked < _ASK_S:
            return
        self._asked = now
        self._released = {t: r for t, r in self._released.items() if now - r[2] <= self.limits.lost}
        peers = self.peers() | {peer for peer, _, _ in self._released.values()}
        self._heard = {peer: self._heard.get(peer, 0.0) for peer in peers}
        for receiving in list(self._receivings.values()):
            if receiving.state is State.KEPT:
                self._look_after_kept(receiving, now)
            else:
                receiving.due = True
                self._look_after(receiving, now)
        for peer in {r.peer for r in self._receivings.values() if r.due} | {peer for peer, _, _ in self._released.values()}:
            self._talk(peer)

    def _look_after(self, receiving: Receiving, now: float) -> None:
        if now - max(receiving.since, self._heard[receiving.peer]) > self.limits.lost:
            self._lose(receiving, f"it has said no word for lost_s, {self.limits.lost} s")
        elif now - receiving.since <= self.limits.lease:
            return
        elif receiving.state is State.ABORTED:
            self._lose(receiving, f"it was aborted, and has no end in lease_s, {self.limits.lease} s")
        else:
            _log.error("%s of request %s: %s has not sent it in lease_s, %s s, and it is aborted", receiving.key, receiving.owner,
                       receiving.peer[0], self.limits.lease)
            self.abort(receiving)

    def _look_after_kept(self, receiving: Receiving, now: float) -> None:
        if receiving.free_at is not None:
            if now >= receiving.free_at:
                self._end(receiving, FAILED)
        elif now >= receiving.next:
            receiving.due, receiving.wait = True, min(2 * receiving.wait, _MOST_ASK_S)
            receiving.next = now + receiving.wait

    def _lose(self, receiving: Receiving, why: str) -> None:
        if receiving.state is State.UNSAID:
            _log.error("%s of request %s: %s: %s", receiving.key, receiving.owner, receiving.peer[0], why)
            self._end(receiving, FAILED)
        else:
            self._keep(receiving, why)

    def _keep(self, receiving: Receiving, why: str) -> None:
        if receiving.state in (State.KEPT, State.OVER):
            return
        _log.error("%s of request %s fails, and its %d blocks are kept until %s tells that nothing is written to them: %s. Is that "
                   "server reached? If it is gone for good, start it anew with the same host and `port`, or this one", receiving.key,
                   receiving.owner, len(receiving.blocks), receiving.peer[0], why)
        receiving.state, receiving.due, receiving.again = State.KEPT, False, False
        receiving.next = self._clock.now + receiving.wait
        self._received(receiving, UNSAFE)

    def _end(self, receiving: Receiving, end: str) -> None:
        """With the lock."""
        before, receiving.state = receiving.state, State.OVER
        self._receivings.pop(receiving.token, None)
        if before is State.KEPT:
            _log.warning("%s of request %s: its %d blocks are free again", receiving.key, receiving.owner, len(receiving.blocks))
            self._freed(receiving)
        else:
            self._received(receiving, end)


def _cut(asked: List[List[Any]]) -> List[Tuple[str, Any]]:
    """In messages of no great length."""
    said: List[Tuple[str, Any]] = []
    size = 0
    for words in asked:
        if not said or size > _MOST_BYTES or len(said[-1][1]) >= _protocol.MOST_ASKED:
            said.append(("ask", []))
            size = 0
        said[-1][1].append(words)
        size += 4 * len(words[1]) + 64  # a character may have many bytes as JSON
    return said
