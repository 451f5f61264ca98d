# SPDX-License-Identifier: Apache-2.0
"""Prefill's side of the exchange: who has asked for which request, what is written, and when our memory is quiet.

A sending waits for its want and for pieces; a job has one piece of it in hand at a time. It ends as soon as nothing of
our memory is read, whatever else waits for its peer. A WRITE that did not end well leaves a doubt (_doubts.py): while
there is one no other piece begins, and the want has no other end than `failed`, once the doubt is over.
"""

import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from transfer_engine import Batch, Segment, TransferError

from ._doubts import Doubt, Doubts, is_over
from ._lanes import Open
from ._link import Clock, Link, is_stale
from ._protocol import DONE, FAILED, UNKNOWN, UNSAFE, WAITS, Address, Limits, Prompt, Want, remember
from ._wants import Wants

_QUIET_S = 1.0  # for a WRITE that is canceled, of a request whose memory is needed
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
    """A request on its way out. Guarded by the exchange's lock."""

    key: str
    owner: str
    prompt: Prompt
    want: Optional[Want] = None
    pieces: List[Piece] = field(default_factory=list)  # that no job has in hand
    covered: int = 0  # blocks from the first one on of which there are pieces, or will be in this step
    complete: bool = False  # all pieces are there
    since: float = 0.0  # when that was so; before, when it began
    round: int = 0  # how often all was forgotten: pieces of an earlier one are not sent
    queued: bool = False  # a job waits in the peer's lane
    busy: bool = False  # a job has a piece in hand
    reading: bool = False  # our memory is read, or is about to be
    batch: Optional[Batch] = None
    failed: bool = False
    ended: bool = False


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
        self._early: Dict[str, Tuple[float, Want]] = {}  # by key, of what has not begun
        self._over: Dict[str, None] = {}  # keys of which nothing is sent any more
        self._wants = Wants()
        self._doubts = Doubts(lambda to, count: self.link.lanes.pin(to, count))

    # ------------------------------------------------------------------------------- for the worker

    def extend(self, key: str, owner: str, prompt: Prompt, first: int, count: int) -> Optional[Sending]:
        """So many more blocks of a request follow, the first of which begins it; None where they are not to be sent."""
        with self._lock:
            sending = self._sendings.get(key)
            if sending is None and first == 0 and not self._is_stopped(key) and not self._closing:
                sending = self._begin(Sending(key, owner, prompt, since=self._clock.now))
            if sending is None or sending.owner != owner:
                _log.info("%s of request %s is not sent: it is not wanted, or was sent before", key, owner)
                return None
            if first != sending.covered:
                _log.error("%s: blocks from %d on follow %d, so request %s is not sent", key, first, sending.covered, owner)
                self.fail(sending)
                return None
            sending.covered += count
            return sending

    def _begin(self, sending: Sending) -> Sending:
        self._sendings[sending.key] = sending
        _, want = self._early.pop(sending.key, (0.0, None))
        if want is not None and want.prompt != sending.prompt:
            self._refuse(want, _other_prompt(sending.prompt, want))
        else:
            sending.want = want
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
            sending.failed = True
            sending.pieces.clear()
            _cancel(sending.batch)
            self._go_on(sending)

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
                    _log.error("%s: a canceled WRITE does not end in %s s, so request %s fails", sending.key, _QUIET_S, sending.owner)
                    self.fail(sending)

    def quit(self, sending: Sending) -> None:
        """Fails it, and returns when nothing of its memory is read any more, which is needed now.

        What is read after a second all the same goes to a request that is never told as done.
        """
        with self._lock:
            self.fail(sending)
            if not self._quiet.wait_for(lambda: not sending.reading, _QUIET_S):
                _log.error("%s: a canceled WRITE of request %s does not end in %s s", sending.key, sending.owner, _QUIET_S)

    def stop(self, key: str, owner: Optional[str] = None) -> None:
        """Nothing more of it is to be sent, or ever will be; of that owner, if one is named."""
        with self._lock:
            sending = self._sendings.get(key)
            if sending is None:
                remember(self._over, key, None)
                self._stop_early(key)
            elif owner in (None, sending.owner):
                self.fail(sending)

    def close(self) -> None:
        """Nothing begins any more; who waits is told, what is under way is canceled and fenced in threads of the link."""
        with self._lock:
            self._closing = True
            for key in [*self._sendings, *self._early]:
                self.stop(key)

    def is_busy(self) -> bool:
        """Whether a certificate is waited for, or a WRITE."""
        return bool(self._sendings or self._doubts.all())

    # ------------------------------------------------------------------------------------ the end

    def _is_stopped(self, key: str) -> bool:
        return key in self._over or self._wants.is_stopped(key)

    def _stop_early(self, key: str) -> None:
        _, want = self._early.pop(key, (0.0, None))
        if want is not None:
            self._answer(want, FAILED)

    def _go_on(self, sending: Sending) -> None:
        """With the lock: gives the link what can be sent, and ends what is over."""
        want = sending.want
        if sending.ended or sending.reading:
            return
        if want is not None and sending.complete and want.first + len(want.blocks) > sending.covered:
            _log.error("%s: %s wants more blocks than the %d there are", sending.key, want.to[0], sending.covered)
            sending.failed = True
        if sending.failed:
            self._end(sending, FAILED)
        elif want is None or sending.busy or sending.queued or self._doubts.get(want) is not None:
            return
        elif sending.pieces:
            self._queue(sending, want)
        elif sending.complete:
            self._end(sending, DONE)

    def _queue(self, sending: Sending, want: Want) -> None:
        sending.queued = True
        try:
            self.link.do(want.to, partial(self._push, sending, want))
        except OSError as e:
            _log.error("%s is not sent: %s", sending.key, e)
            sending.queued, sending.failed = False, True
            self._end(sending, FAILED)

    def _end(self, sending: Sending, state: str) -> None:
        """From now on our memory is not read; the answer tells of the peer's, at once or when there is no doubt."""
        sending.ended = True
        sending.pieces.clear()
        del self._sendings[sending.key]
        remember(self._over, sending.key, None)
        want = sending.want
        if want is not None:
            doubt = self._doubts.get(want)
            if doubt is None:
                self._answer(want, state)
            elif doubt.late:
                self.link.say(want.to, "is", [[want.token, UNSAFE]])
        self._sent(sending)

    # ---------------------------------------------------------------------------------- the writes

    def _push(self, sending: Sending, want: Want, peer: Open) -> None:
        """A job: one piece, whatever happens there."""
        with self._lock:
            sending.queued = False
            if sending.ended or sending.failed or not sending.pieces or self._doubts.get(want) is not None:
                return
            piece, sending.busy = sending.pieces.pop(0), True
        well = False
        try:
            well = self._write(sending, want, piece, peer)
        except Exception as e:  # pylint: disable=broad-except
            _log.error("%s to %s: %s", sending.key, want.to[0], e, exc_info=not isinstance(e, TransferError))
            if isinstance(e, TransferError) and is_stale(e):
                self.link.check(want.to)
        finally:
            with self._lock:
                sending.busy = False
                if not well and piece.round == sending.round:
                    self.fail(sending)
                else:
                    self._go_on(sending)

    def _is_dropped(self, sending: Sending, piece: Piece) -> bool:
        return sending.failed or sending.ended or piece.round != sending.round

    def _write(self, sending: Sending, want: Want, piece: Piece, peer: Open) -> bool:
        """Whether all of it is there."""
        piece.settled()
        moves = piece.moves(want)
        if not moves.ours:
            return True
        segment = peer()
        with self._lock:
            if self._is_dropped(sending, piece):
                return False
            sending.reading = True
        batch, well = None, False
        try:
            batch = self._started(sending, piece, segment, moves)
            batch.wait()
            error = batch.exception()
            well = error is None
            if error is not None:
                raise error
            return True
        finally:
            with self._lock:
                sending.batch, sending.reading = None, False
                if batch is not None:
                    self._put_away(want, batch, well)
                self._quiet.notify_all()

    def _started(self, sending: Sending, piece: Piece, segment: Segment, moves: Moves) -> Batch:
        batch = segment.start_write(*moves, timeout=self.limits.write + sum(moves.lengths) * 1e-9)
        with self._lock:
            sending.batch = batch
            if self._is_dropped(sending, piece):
                _cancel(batch)
        return batch

    def _put_away(self, want: Want, batch: Batch, well: bool) -> None:
        """A WRITE that has ended: one that did not end well is doubted, if its target lives."""
        if well or self._wants.get(want.to, want.token) is None:
            batch.close()
        else:
            self._doubts.add(want, batch, self._clock.now)

    # ----------------------------------------------------------------------------------- the doubts

    def ask(self) -> None:
        """Of each doubt whether it is over; without the lock, and without a wait."""
        with self._lock:
            due = self._doubts.due(self._clock.now)
        over = [doubt for doubt in due if is_over(doubt)]
        for peer in {doubt.want.to for doubt in due if doubt.late and doubt not in over}:
            self.link.check(peer)
        with self._lock:
            for doubt in over:
                self._certified(doubt)
            for doubt in self._doubts.all():
                if not doubt.late and self._clock.now - doubt.since > self.limits.fence:
                    self._is_late(doubt)
        if over:
            self.link.lanes.look()

    def _sending_of(self, want: Want) -> Optional[Sending]:
        sending = self._sendings.get(want.key)
        return sending if sending is not None and sending.want is want else None

    def _certified(self, doubt: Doubt) -> None:
        if not self._doubts.end(doubt):
            return
        sending = self._sending_of(doubt.want)
        if sending is None:
            self._answer(doubt.want, FAILED)
        else:
            self._go_on(sending)

    def _is_late(self, doubt: Doubt) -> None:
        doubt.late = True
        want, sending = doubt.want, self._sending_of(doubt.want)
        _log.error("%s: for %s s nothing tells that a WRITE to %s is over; the blocks there are kept until something does, which is "
                   "asked for as long as it takes. Is that host reached?", want.key, self.limits.fence, want.to[0])
        if sending is None:
            self.link.say(want.to, "is", [[want.token, UNSAFE]])
        else:
            self.fail(sending)

    # ---------------------------------------------------------------------------------- what is heard

    def take(self, want: Want) -> None:
        """A want. It is not heard where it was said before, or was aborted before it came."""
        if self._wants.get(want.to, want.token) is not None or self._wants.ended(want.to, want.token) is not None:
            return
        sending, known = self._known(want.key)
        why = "it is shutting down" if self._closing else self._refuses(want)
        if why is not None and known is None and (sending is None or sending.prompt == want.prompt):
            self._need_not(want.to, want.key)
        why = why or self._wants.why_not(want)
        if why is None and (known is not None or self._is_stopped(want.key) or (sending is not None and sending.failed)):
            why = "it is not to be had, or somebody else has asked for it"
        if why is None and sending is not None and sending.prompt != want.prompt:
            why = _other_prompt(sending.prompt, want)
        if why is not None:
            self._refuse(want, why)
            return
        want = self._wants.add(want)
        if sending is None:
            self._early[want.key] = (self._clock.now, want)
        else:
            sending.want = want
            self._go_on(sending)

    def state(self, to: Address, token: str, key: str, aborted: bool) -> str:
        """How a want stands; of one that is aborted nothing is begun from now on."""
        want = self._wants.get(to, token)
        if want is not None and aborted:
            self.stop(want.key)
            want = self._wants.get(to, token)
        if want is not None:
            doubt = self._doubts.get(want)
            if doubt is None or not doubt.late:
                return WAITS
            self._doubts.hurry(doubt)
            return UNSAFE
        if aborted and self._wants.ended(to, token) is None:
            self._wants.end(to, token, FAILED)
            if self._known(key)[1] is None:
                self._need_not(to, key)
        return self._wants.ended(to, token) or UNKNOWN

    def _need_not(self, to: Address, key: str) -> None:
        """Who would have asked for it, and nobody else has, does not get it: its blocks are held for nobody."""
        self._wants.stop(to, key)
        if key in self._sendings:
            self.stop(key)

    def expire(self) -> None:
        """Ends what nobody has asked for, wants of what has not begun, and what is asked for and takes too long."""
        before, begun = self._clock.now - self.limits.hold, self._clock.now - self.limits.lease
        for sending in list(self._sendings.values()):
            if sending.want is None and sending.complete and sending.since < before:
                _log.error("%s of request %s: nobody has asked for its blocks in hold_s, %s s", sending.key, sending.owner,
                           self.limits.hold)
                self.fail(sending)
            elif sending.want is not None and sending.since < begun and not sending.failed:
                _log.error("%s is not sent to %s in lease_s, %s s, and canceled", sending.key, sending.want.to[0], self.limits.lease)
                self.fail(sending)
        for key in [key for key, (since, _) in self._early.items() if since < before]:
            self._stop_early(key)

    def peers(self) -> Set[Address]:
        return set(self._wants.peers())

    def over(self, peer: Address) -> None:
        """That incarnation has ended: what was for it fails, and its memory is nobody's."""
        wants = self._wants.of(peer)
        self._wants.forget(peer)
        for doubt in self._doubts.of(peer):
            self._doubts.end(doubt)
        for want in wants:
            sending = self._sending_of(want)
            if sending is not None:
                _log.error("%s of request %s is not sent: %s was started anew", want.key, sending.owner, peer[0])
                self.fail(sending)
            elif self._early.get(want.key, (0.0, None))[1] is want:
                self.stop(want.key)

    def _known(self, key: str) -> Tuple[Optional[Sending], Optional[Want]]:
        """Of a request: what is sent, and who has asked for it first."""
        sending = self._sendings.get(key)
        return sending, self._early.get(key, (0.0, None))[1] if sending is None else sending.want

    def _refuse(self, want: Want, why: str) -> None:
        _log.warning("%s wants %s, and gets nothing: %s", want.to[0], want.key, why)
        self._wants.end(want.to, want.token, FAILED)
        self.link.say(want.to, "is", [[want.token, FAILED]])

    def _answer(self, want: Want, state: str) -> None:
        """The end of a want, if its peer lives."""
        if self._wants.get(want.to, want.token) is not None:
            self._wants.end(want.to, want.token, state)
            self.link.say(want.to, "is", [[want.token, state]])


def _other_prompt(ours: Prompt, want: Want) -> str:
    if ours.tokens != want.prompt.tokens:
        return f"its prompt has {want.prompt.tokens} tokens there and {ours.tokens} here: both servers need the same prompt"
    return "its prompt has other tokens there, or another adapter: both servers need the same request"


def _cancel(batch: Optional[Batch]) -> None:
    if batch is not None:
        try:
            batch.cancel()
        except TransferError:  # it has ended
            pass
