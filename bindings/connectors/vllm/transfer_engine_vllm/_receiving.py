# SPDX-License-Identifier: Apache-2.0
"""Decode's side of the exchange: what was asked of whom, and when our memory is quiet."""

import logging
import secrets
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from . import _protocol
from ._link import Clock, Link
from ._protocol import DONE, FAILED, UNKNOWN, UNSAFE, WAITS, Address, Limits

_ASK_S = 1.0
_MOST_BYTES = 65536  # about so many in one message, of what can be in several
_log = logging.getLogger("transfer_engine")


@dataclass
class Receiving:
    """A request on its way in. `ended` with what it was in the end."""

    token: str
    key: str
    owner: str
    peer: Optional[Address]
    first: int
    blocks: List[int]
    places: Any
    since: float = 0.0
    due: bool = True  # something is to be said of it
    again: bool = True  # and that is the want
    said: int = 0  # how often the sender may have been told of the places
    waits: bool = False  # the sender has said so
    aborted: Optional[float] = None  # when
    ended: Optional[str] = None


class Receiver:
    """received(receiving) is called at an end, with the lock held."""

    def __init__(self, lock: threading.RLock, clock: Clock, limits: Limits, received: Callable[[Receiving], None]) -> None:
        self.limits = limits
        self.link: Link
        self._lock, self._clock, self._received = lock, clock, received
        self._receivings: Dict[str, Receiving] = {}  # by token
        self._heard: Dict[Address, float] = {}  # when a sender said the last word, whatever that was
        self._talking: Set[Address] = set()  # a talk with them is to begin
        self._released: Dict[str, Tuple[Address, str, float]] = {}  # by token: of whom which key is not needed, since when
        self._asked = 0.0

    # ------------------------------------------------------------------------------- for the worker

    def receive(self, key: str, owner: str, peer: Optional[Address], first: int, blocks: List[int], places: Any) -> Receiving:
        """Asks `peer` for blocks; None as the peer is one that nobody knows."""
        receiving = Receiving(secrets.token_hex(8), key, owner, peer, first, blocks, places)
        with self._lock:
            if peer is None or not self.link.reaches(peer[0]) or len(self._receivings) >= _protocol.MOST_KNOWN:
                self._arrived(receiving, FAILED)
                return receiving
            receiving.since = self._clock.now
            self._receivings[receiving.token] = receiving
            self._talk(peer)
        return receiving

    def release(self, key: str, peer: Address) -> None:
        """Tells that nothing is needed of a request."""
        with self._lock:
            if self.link.reaches(peer[0]):
                _protocol.remember(self._released, secrets.token_hex(8), (peer, key, self._clock.now))
                self._talk(peer)

    def releases(self) -> bool:
        """Whether there is something of that to be told."""
        return bool(self._released)

    def abort(self, receiving: Receiving) -> None:
        """Ends it as soon as the sender says that nothing arrives any more."""
        with self._lock:
            if receiving.aborted is not None or receiving.ended is not None:
                return
            assert receiving.peer is not None
            receiving.aborted, receiving.due, receiving.again = self._clock.now, True, False
            if receiving.said:
                self._talk(receiving.peer)
            else:
                self.release(receiving.key, receiving.peer)
                self._arrived(receiving, FAILED)

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
                    _log.error("%s cannot be asked for and is aborted", receiving.key)
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
                    receiving.again, receiving.said = False, receiving.said + 1
                    said.append(("want", [receiving.token, receiving.key, receiving.first, receiving.blocks, receiving.places]))
                else:
                    asked.append([receiving.token, receiving.key, receiving.aborted is not None])
            for token in self._releases_of(peer):
                asked.append([token, self._released.pop(token)[1], True])
        size = 0
        for words in asked:
            if size == 0 or size > _MOST_BYTES:
                said.append(("ask", []))
                size = 0
            said[-1][1].append(words)
            size += 4 * len(words[1]) + 64  # a character may have many bytes as JSON
        return said

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
        if receiving is None or receiving.peer != sender:
            return
        if state in (DONE, FAILED, UNSAFE):
            self._arrived(receiving, state)
        elif state == WAITS:
            receiving.waits = True
        elif state == UNKNOWN and receiving.waits:
            self._lose(receiving, "the peer knew it, and does not know how it ended")
        elif state == UNKNOWN and receiving.aborted is None:
            receiving.due = receiving.again = True
            self._talk(sender)

    def estranged(self, sender: Address, life: Any, kind: Any, body: Any) -> None:
        """What was said to `life` came to an engine in its place. Of a want's first word nobody else knows."""
        if kind == "hello":  # of what was not said nobody knows anything
            for token in self._releases_of((sender[0], life)):
                del self._released[token]
            for receiving in [r for r in self._receivings.values() if r.peer == (sender[0], life) and not r.said]:
                self._lose(receiving, "who is there is a stranger")
            return
        for token in [body[0]] if kind == "want" else [words[0] for words in body]:
            receiving = self._receivings.get(_protocol.word(token))
            if receiving is not None and receiving.peer == (sender[0], life):
                if kind == "want" and receiving.said == 1:
                    receiving.said = 0
                self._lose(receiving, "another engine was started in the peer's place")

    # ------------------------------------------------------------------------------------------ the end

    def look_after(self) -> None:
        """Once a second: asks each sender, and ends what takes too long."""
        now = self._clock.now
        if now - self._asked < _ASK_S:
            return
        self._asked = now
        peers = {receiving.peer for receiving in self._receivings.values() if receiving.peer is not None}
        self._released = {t: r for t, r in self._released.items() if now - r[2] <= self.limits.lost}
        peers |= {peer for peer, _, _ in self._released.values()}
        self._heard = {peer: self._heard.get(peer, 0.0) for peer in peers}
        for receiving in list(self._receivings.values()):
            receiving.due = True
            self._look_after(receiving, now)
        for peer in peers:
            self._talk(peer)

    def _look_after(self, receiving: Receiving, now: float) -> None:
        assert receiving.peer is not None
        if now - max(receiving.since, self._heard[receiving.peer]) > self.limits.lost:
            self._lose(receiving, f"not a word for {self.limits.lost} s")
        elif receiving.aborted is not None and now - receiving.aborted > self.limits.lease:
            self._lose(receiving, "it was aborted, and does not end")
        elif now - receiving.since > self.limits.lease and receiving.aborted is None:
            _log.error("%s is not there after %s s and is aborted", receiving.key, self.limits.lease)
            self.abort(receiving)

    def _lose(self, receiving: Receiving, why: str) -> None:
        _log.error("%s of %s is given up: %s", receiving.key, receiving.peer, why)
        self._arrived(receiving, UNSAFE if receiving.said else FAILED)

    def _arrived(self, receiving: Receiving, end: str) -> None:
        """With the lock."""
        self._receivings.pop(receiving.token, None)
        receiving.ended = end
        self._received(receiving)
