# SPDX-License-Identifier: Apache-2.0
"""Prefill's side of the exchange: who has asked for which request, what is written, and when our memory is quiet."""

import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from transfer_engine import Batch, TransferError

from . import _protocol
from ._link import Clock, Link, Open
from ._protocol import DONE, FAILED, UNKNOWN, UNSAFE, WAITS, Address, Limits, Want, remember

_QUIET_S = 10.0  # for WRITEs that are canceled, of requests whose memory is needed
_log = logging.getLogger("transfer_engine")


class Moves(NamedTuple):
    """Addresses here and there, and lengths."""

    ours: List[int]
    theirs: List[int]
    lengths: List[int]


@dataclass
class Piece:
    settled: Callable[[], Any]  # waits until the memory has what is to be sent
    moves: Callable[[Want], Moves]
    round: int = 0


@dataclass
class Sending:
    """A request on its way out. Guarded by the exchange's lock; `ended` with what it was in the end."""

    key: str
    owner: str
    want: Optional[Want] = None
    pieces: List[Piece] = field(default_factory=list)  # that are not given to the link
    covered: int = 0  # blocks from the first one on of which there are pieces, or will be in this step
    complete: bool = False  # all pieces are there
    since: float = 0.0  # when that was so; before, when it began
    round: int = 0  # how often all was forgotten: pieces of an earlier one are not sent
    jobs: int = 0  # pieces that the link has
    doubts: int = 0  # WRITEs of which it is not known that they are over at the target
    batch: Optional[Batch] = None
    reading: bool = False  # our memory is read, or is about to be
    failed: bool = False
    ended: Optional[str] = None


class Sender:
    """refuses(want) tells why one does not fit our memory, or None; sent(sending) is called at an end, with the lock."""

    def __init__(
        self,
        lock: threading.RLock,
        clock: Clock,
        limits: Limits,
        refuses: Callable[[Want], Optional[str]],
        sent: Callable[[Sending], None],
    ) -> None:
        self.limits = limits
        self.link: Link
        self._lock, self._quiet, self._clock = lock, threading.Condition(lock), clock
        self._refuses, self._sent = refuses, sent
        self._closing = False
        self._sendings: Dict[str, Sending] = {}  # by key
        self._wants: Dict[str, Tuple[float, Want]] = {}  # by key, of what has not begun
        self._over: Dict[str, None] = {}  # keys of which nothing is sent any more
        self._ends: Dict[str, str] = {}  # by token, what was answered
        self._unsafe: Set[str] = set()  # tokens of which that was UNSAFE: these are never forgotten

    # ------------------------------------------------------------------------------- for the worker

    def extend(self, key: str, owner: str, first: int, count: int) -> Optional[Sending]:
        """So many more blocks of a request follow, the first of which begins it; None where they are not to be sent."""
        with self._lock:
            sending = self._sendings.get(key)
            if sending is None and first == 0 and key not in self._over and not self._closing:
                _, want = self._wants.pop(key, (0.0, None))
                sending = self._sendings[key] = Sending(key, owner, want, since=self._clock.now)
            if sending is None or sending.owner != owner:
                _log.info("%s of request %s is not sent: it is not wanted, or was sent before", key, owner)
                return None
            if first != sending.covered:
                _log.error("%s: blocks from %d on follow %d", key, first, sending.covered)
                self._fail(sending)
                return None
            sending.covered += count
            return sending

    def add(self, sending: Sending, piece: Piece) -> None:
        with self._lock:
            if not sending.failed:
                piece.round = sending.round
                sending.pieces.append(piece)
                self._go_on(sending)

    def fail(self, sending: Sending) -> None:
        """What there is of it is not to be used."""
        with self._lock:
            self._fail(sending)

    def complete(self, sending: Sending) -> None:
        """There are no more pieces."""
        with self._lock:
            if not sending.complete:
                sending.complete, sending.since = True, self._clock.now
                self._go_on(sending)

    def forget(self, sendings: List[Sending]) -> None:
        """Their memory is needed now, and they begin anew. Returns when nothing of it is read any more.

        One that is read after so long fails: what was written of it may be wrong, and is never told as done.
        """
        with self._lock:
            for sending in sendings:
                sending.round += 1
                sending.pieces.clear()
                sending.covered, sending.complete, sending.since = 0, False, self._clock.now
                _cancel(sending.batch)
            self._quiet.wait_for(lambda: not any(sending.reading for sending in sendings), _QUIET_S)
            for sending in sendings:
                if sending.reading:
                    _log.error("%s: a canceled WRITE does not end in %s s, the request fails", sending.key, _QUIET_S)
                    self._fail(sending)

    def stop(self, key: str, owner: Optional[str] = None) -> None:
        """Nothing more of it is to be sent, or ever will be; of that owner, if one is named."""
        with self._lock:
            sending = self._sendings.get(key)
            if sending is None:
                remember(self._over, key, None)
                _, want = self._wants.pop(key, (0.0, None))
                if want is not None:
                    self._answer(want.to, want.token, FAILED)
            elif owner in (None, sending.owner):
                self._fail(sending)

    def close(self) -> None:
        """Nothing begins any more; who waits is told, what is under way is canceled and fenced in threads of the link."""
        with self._lock:
            self._closing = True
            for key in [*self._sendings, *self._wants]:
                self.stop(key)

    # ------------------------------------------------------------------------------------ the end

    def _fail(self, sending: Sending) -> None:
        sending.failed = True
        sending.pieces.clear()
        _cancel(sending.batch)
        self._go_on(sending)

    def _go_on(self, sending: Sending) -> None:
        """With the lock: gives the link what can be sent, and ends what is over."""
        want = sending.want
        if want is not None and sending.complete and want.first + len(want.blocks) > sending.covered:
            _log.error("%s: the peer wants more blocks than the %d there are", sending.key, sending.covered)
            sending.failed = True
        if want is not None:
            pieces, sending.pieces = sending.pieces, []
            self._give(sending, want, pieces)
        over = sending.failed or (want is not None and sending.complete)
        if over and not sending.jobs and sending.ended is None:
            self._end(sending)

    def _give(self, sending: Sending, want: Want, pieces: List[Piece]) -> None:
        for piece in pieces:
            if sending.failed:
                return
            sending.jobs += 1
            try:
                self.link.do(want.to[0], partial(self._push, sending, want, piece))
            except OSError as e:
                _log.error("%s: %s", sending.key, e)
                sending.jobs, sending.failed = sending.jobs - 1, True

    def _end(self, sending: Sending) -> None:
        """From now on our memory is not read; the answer tells of the peer's."""
        sending.ended = UNSAFE if sending.doubts else FAILED if sending.failed else DONE
        del self._sendings[sending.key]
        remember(self._over, sending.key, None)
        if sending.want is not None:
            self._answer(sending.want.to, sending.want.token, sending.ended)
        self._sent(sending)

    # ---------------------------------------------------------------------------------- the writes

    def _push(self, sending: Sending, want: Want, piece: Piece, peer: Open) -> None:
        """A job: a piece, whatever happens there."""
        well = False
        try:
            well = self._write(sending, want, piece, peer)
        except Exception as e:  # pylint: disable=broad-except
            _log.error("%s to %s: %s", sending.key, want.to[0], e, exc_info=not isinstance(e, TransferError))
        finally:
            with self._lock:
                sending.jobs -= 1
                self._is_read(sending, None)
                if not well and piece.round == sending.round:
                    self._fail(sending)
                else:
                    self._go_on(sending)

    def _is_dropped(self, sending: Sending, piece: Piece) -> bool:
        with self._lock:
            return sending.failed or piece.round != sending.round

    def _is_read(self, sending: Sending, batch: Optional[Batch], reading: bool = False) -> None:
        with self._lock:
            sending.batch, sending.reading = batch, reading
            self._quiet.notify_all()

    def _write(self, sending: Sending, want: Want, piece: Piece, peer: Open) -> bool:
        """Whether all of it is there. What is not, or is not known to be over at the peer, stays a doubt."""
        if self._is_dropped(sending, piece):
            return False
        piece.settled()
        moves = piece.moves(want)
        if not moves.ours:
            return True
        segment = peer()
        with self._lock:
            if self._is_dropped(sending, piece):
                return False
            self._is_read(sending, None, True)
        seconds = self.limits.write + sum(moves.lengths) * 1e-9
        with segment.start_write(*moves, timeout=seconds) as batch:
            with self._lock:
                sending.doubts += 1
                self._is_read(sending, batch, True)
                if self._is_dropped(sending, piece):
                    _cancel(batch)
            batch.wait()
            self._is_read(sending, None)
            error = batch.exception()
            if error is not None:
                _log.error("%s to %s: %s", sending.key, want.to[0], error)
                self._fence(sending, want, batch)
            with self._lock:
                sending.doubts -= 1
            return error is None

    def _fence(self, sending: Sending, want: Want, batch: Batch) -> None:
        try:
            batch.fence(self.limits.fence)
        except TransferError as e:
            what = f"{len(e.unsafe)} ranges of its memory may still change, it is told to keep them"
            _log.error("%s to %s: %s: %s", sending.key, want.to[0], what, e)
            raise

    # ---------------------------------------------------------------------------------- what is heard

    def take(self, want: Want) -> None:
        sending, known = self._known(want.key)
        if self._told(want.token) is not None or (known is not None and known.token == want.token):
            return  # said twice, or aborted before it came
        why = "it is shutting down" if self._closing else self._refuses(want)
        if why is not None and known is None:
            self.stop(want.key)
        if why is None and (known is not None or want.key in self._over or (sending is not None and sending.failed)):
            why = "it is not to be had, or somebody else has asked for it"
        if why is None and len(self._wants) >= _protocol.MOST_KNOWN:
            why = "too many requests are asked for that have not begun"
        if why is not None:
            _log.warning("%s wants %s: %s", want.to[0], want.key, why)
            self._answer(want.to, want.token, FAILED)
        elif sending is None:
            self._wants[want.key] = (self._clock.now, want)
        else:
            sending.want = want
            self._go_on(sending)

    def state(self, token: str, key: str, aborted: bool) -> str:
        """How a want stands; of one that is aborted nothing is begun from now on."""
        _, known = self._known(key)
        ours = known is not None and known.token == token
        if aborted and self._told(token) is None:
            if not ours:
                self._note(token, FAILED)
            if ours or known is None:
                self.stop(key)
        return self._told(token) or (WAITS if ours else UNKNOWN)

    def expire(self) -> None:
        """Ends what nobody has asked for, wants of what has not begun, and what is asked for and takes too long."""
        before, begun = self._clock.now - self.limits.hold, self._clock.now - self.limits.lease
        for sending in list(self._sendings.values()):
            if sending.want is None and sending.complete and sending.since < before:
                _log.error("%s: nobody has asked for its blocks", sending.key)
                self._fail(sending)
            elif sending.want is not None and sending.since < begun and not sending.failed:
                _log.error("%s is not sent after %s s, and canceled", sending.key, self.limits.lease)
                self._fail(sending)
        for key in [key for key, (since, _) in self._wants.items() if since < before]:
            self.stop(key)

    def _known(self, key: str) -> Tuple[Optional[Sending], Optional[Want]]:
        """Of a request: what is sent, and who has asked for it first."""
        sending = self._sendings.get(key)
        return sending, self._wants.get(key, (0.0, None))[1] if sending is None else sending.want

    def _answer(self, to: Address, token: str, state: str) -> None:
        """Says the end of a want."""
        self._note(token, state)
        self.link.say(to, "is", [[token, state]])

    def _note(self, token: str, state: str) -> None:
        if state == UNSAFE:
            self._unsafe.add(token)
        else:  # one that is forgotten is told as FAILED, and so it may be: nothing can arrive
            remember(self._ends, token, state)

    def _told(self, token: str) -> Optional[str]:
        return UNSAFE if token in self._unsafe else self._ends.get(token)


def _cancel(batch: Optional[Batch]) -> None:
    if batch is not None:
        try:
            batch.cancel()
        except TransferError:  # it has ended
            pass
