# SPDX-License-Identifier: Apache-2.0
"""What the exchange stands on: an engine, messages between engines, and threads for both.

Each peer has two threads of its own, one for transfers and one for messages, so a slow peer delays nobody else.
They end when they had nothing to do for a while, and their references to the peer's segment with them.
"""

import hashlib
import hmac
import json
import logging
import queue
import secrets
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from transfer_engine import Engine, Segment, TransferError

from . import _protocol
from ._protocol import Address

Open = Callable[[], Segment]  # the peer's segment; raises where nobody answers
Job = Callable[[Open], None]
Said = List[Tuple[str, Any]]
Messages = Callable[[], Said]
_NAME = "transfer-engine-connector"
_IDLE_S = {"transfers": 60.0, "messages": 60.0, "answers": 1.0}
_POLL_S = 0.01  # between two looks for messages where none came for a while
_TRIES = 3
_MOST_PEERS = {"transfers": 256, "messages": 256, "answers": 64}  # answers go to who has not greeted: a stranger, maybe
_MOST_JOBS = {"transfers": 100000, "messages": 100000, "answers": 64}
_MOST_GREETED = 1024
_log = logging.getLogger("transfer_engine")


class _Lane:
    """Jobs of one kind for one peer, one after the other. `pending` and the end are guarded by the lock of the link."""

    def __init__(self, link: "Link", session: str, kind: str) -> None:
        self.pending = 0
        self._link, self._session, self._kind = link, session, kind
        self._jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        self._segment: List[Segment] = []
        self.thread = threading.Thread(target=self._run, name=f"te-{kind}", daemon=True)
        self.thread.start()

    def put(self, job: Job) -> None:
        self.pending += 1
        self._jobs.put(job)

    def _open(self) -> Segment:
        if not self._segment:
            self._segment.append(self._link.engine.open(self._session))
        return self._segment[0]

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=0.05 if self._link.closed.is_set() else _IDLE_S[self._kind])
            except queue.Empty:
                if self._link.retire(self, (self._session, self._kind)):
                    break
                continue
            try:
                job(self._open)
            except Exception:  # pylint: disable=broad-except
                _log.exception("a job of a connector for %s failed", self._session)
            finally:
                self._link.done(self)
        for segment in self._segment:
            try:
                segment.close()
            except TransferError as e:
                _log.warning("the segment of %s stays open: %s", self._session, e)


class Link:
    """hear(kind, body, sender) is called for each message of who has greeted or was, tick() five times a second."""

    def __init__(self, host: str, hear: Callable[[str, Any, Address], None], tick: Callable[[], None]) -> None:
        self.engine = Engine(name=host)
        self.address: Address = (_protocol.engine(self.engine.name), secrets.token_hex(8))
        self.closed = threading.Event()
        self._hear, self._tick = hear, tick
        self._secret = secrets.token_bytes(32)
        self._greeted: Dict[Address, List[str]] = {}  # by us: the nonce, and the cookie of the welcome or ""
        self._greets = threading.Lock()
        self._changed = threading.Condition()
        self._lanes: Dict[Tuple[str, str], _Lane] = {}
        self._threads = [threading.Thread(target=work, name="te-link", daemon=True) for work in (self._listen, self._time)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def reaches(self, session: str) -> bool:
        """Whether it is a name that is opened: the host:port of another engine."""
        try:
            return _protocol.engine(session) != self.address[0]
        except ValueError:
            return False

    def do(self, session: str, job: Job) -> None:
        """A transfer, behind those that were given for this peer before. Raises OSError where that cannot be."""
        self._put(session, "transfers", job)

    def say(self, to: Address, kind: str, body: Any) -> None:
        """A message, behind others."""
        self._tell(to, "messages", lambda: [(kind, body)], False, lambda _: None)

    def talk(self, to: Address, messages: Messages, over: Callable[[Said], None]) -> None:
        """What messages() gives once the peer has answered a greeting, each said once at most.

        over() follows in any case, with those of which the engine told that they are not said. A peer that has not
        answered is greeted instead, and hear("welcome") tells when it has.
        """
        self._tell(to, "messages", messages, True, over)

    def drain(self, seconds: float, more: Callable[[], bool] = lambda: False) -> None:
        """Returns when all jobs are done and more() is false, or after that time."""
        with self._changed:
            self._changed.wait_for(lambda: not more() and not any(lane.pending for lane in self._lanes.values()), seconds)

    def close(self) -> None:
        """Ends the engine. Its transfers are canceled, and its memory is quiet, when this returns."""
        self.closed.set()
        for thread in self._threads:
            thread.join()
        with self._changed:
            for lane in self._lanes.values():
                lane.put(lambda _: None)  # wakes it
        self.engine.close()

    # ------------------------------------------------------------------------------ for lanes

    def retire(self, lane: _Lane, key: Tuple[str, str]) -> bool:
        """Whether a lane has nothing to do; then it is forgotten."""
        with self._changed:
            return not lane.pending and self._lanes.pop(key, None) is lane

    def done(self, lane: _Lane) -> None:
        with self._changed:
            lane.pending -= 1
            self._changed.notify_all()

    def _put(self, session: str, kind: str, job: Job) -> None:
        if not self.reaches(session):
            raise OSError(f"{session!r} is not the host:port of another engine")
        with self._changed:
            if self.closed.is_set():
                raise OSError("the connector is closed")
            lane = self._lanes.get((session, kind))
            if lane is None:
                if sum(k == kind for _, k in self._lanes) >= _MOST_PEERS[kind]:
                    raise OSError(f"{_MOST_PEERS[kind]} peers have {kind} already")
                try:
                    lane = self._lanes[session, kind] = _Lane(self, session, kind)
                except RuntimeError as e:  # of Thread.start()
                    raise OSError(f"no thread for {session}: {e}; is the limit of processes (ulimit -u) reached?") from e
            if lane.pending >= _MOST_JOBS[kind]:
                raise OSError(f"{_MOST_JOBS[kind]} {kind} wait for {session}")
            lane.put(job)

    # ------------------------------------------------------------------------------- messages

    def _tell(self, to: Address, lane: str, messages: Messages, asks: bool, over: Callable[[Said], None]) -> None:
        def job(peer: Open) -> None:
            unsaid: Said = []
            try:
                self._say(to, messages, asks, peer, unsaid)
            finally:
                over(unsaid)

        try:
            self._put(to[0], lane, job)
        except OSError as e:
            _log.error("%s is told nothing: %s", to[0], e)
            over([])

    def _say(self, to: Address, messages: Messages, asks: bool, peer: Open, unsaid: Said) -> None:
        why = "it does not answer"
        for attempt in range(_TRIES):
            try:
                segment = peer()
                if not asks or self.engine.probe(to[0]):
                    cookie = self._cookie_of(to)
                    for kind, body in messages() if cookie or not asks else [self._hello(to)]:
                        self._notify(segment, to, cookie, kind, body, unsaid)
                    return
            except TransferError as e:
                why = str(e)
            if self.closed.wait(0.1 * 2**attempt):
                break
        _log.warning("%s is not told what it should be: %s", to[0], why)

    def _notify(self, segment: Segment, to: Address, cookie: str, kind: str, body: Any, unsaid: Said) -> None:
        try:
            segment.notify(_NAME, json.dumps([to[1], self.address, cookie, kind, body]))
        except TransferError as e:
            _log.warning("%s is not told '%s': %s", to[0], kind, e)
            unsaid.append((kind, body))

    def _answer(self, to: Address, kind: str, body: Any) -> None:
        """To somebody who has not greeted, or is about to: there is room for few of them, and not for long."""
        self._tell(to, "answers", lambda: [(kind, body)], False, lambda _: None)

    # ------------------------------------------------------------------------------ greetings

    def _hello(self, to: Address) -> Tuple[str, Any]:
        with self._greets:
            nonce, _ = self._greeted.setdefault(to, [secrets.token_hex(8), ""])
            if len(self._greeted) > _MOST_GREETED:  # the oldest is greeted once more when it is talked to
                del self._greeted[next(iter(self._greeted))]
        return "hello", [nonce, to[0]]

    def _cookie_of(self, peer: Address) -> str:
        """That which the peer has made for us, or "" where it has not answered."""
        with self._greets:
            return self._greeted.get(peer, ["", ""])[1]

    def _cookie_for(self, peer: Address) -> str:
        """Nothing is kept of who greets us: the cookie tells that it came to that name."""
        return hmac.new(self._secret, json.dumps(peer).encode(), hashlib.sha256).hexdigest()

    def _is_welcome(self, peer: Address, nonce: Any, cookie: Any) -> bool:
        with self._greets:
            greeted = self._greeted.get(peer)
            if greeted is None or nonce != greeted[0]:
                return False
            greeted[1] = _protocol.word(cookie)
            return True

    # ----------------------------------------------------------------------------- what comes

    def _listen(self) -> None:
        pause = 0.001
        while not self.closed.wait(pause):
            try:
                notes = [note for note in self.engine.notifications() if note.name == _NAME]
            except Exception:  # pylint: disable=broad-except
                _log.exception("messages are not taken, and looked for again")
                notes, pause = [], _POLL_S
            pause = 0.001 if notes else min(2 * pause, _POLL_S)
            for note in notes:
                try:
                    self._take(*json.loads(note.msg))
                except Exception as e:  # pylint: disable=broad-except
                    _log.error("a message is not understood, %r: %.200r", e, note.msg)

    def _take(self, life: Any, sender: Any, cookie: Any, kind: Any, body: Any) -> None:
        sender = _protocol.address(sender)
        if sender[0] == self.address[0]:
            self._is_own(life, kind, body)
        elif life != self.address[1]:
            if kind in ("hello", "want", "ask"):
                self._answer(sender, "stranger", [life, kind, body[:1] if kind == "want" else body])
        elif kind == "hello":
            self._answer(sender, "welcome", [_protocol.word(body[0]), self._cookie_for(sender)])
        elif kind == "welcome":
            if self._is_welcome(sender, *body):
                self._hear(kind, None, sender)
        elif kind in ("is", "stranger"):  # these name a token, or a life, that only who was greeted knows
            self._hear(kind, body, sender)
        elif hmac.compare_digest(_protocol.word(cookie), self._cookie_for(sender)):
            self._hear(kind, body, sender)
        else:
            raise ValueError("it comes from somebody who has not greeted")

    def _is_own(self, life: Any, kind: Any, body: Any) -> None:
        """What comes from our own name is not taken; if we have said it, the name it went to is an alias of ours."""
        if kind == "hello":
            nonce, name = body
            if self._is_greeted((_protocol.word(name), _protocol.word(life)), nonce):
                self._hear("stranger", [life, "hello", body], (name, ""))
                return
        raise ValueError("it comes from this engine's own name")

    def _is_greeted(self, peer: Address, nonce: Any) -> bool:
        with self._greets:
            return self._greeted.get(peer, [None])[0] == nonce

    def _time(self) -> None:
        while not self.closed.wait(0.2):
            try:
                self._tick()
            except Exception:  # pylint: disable=broad-except
                _log.exception("the clock of a connector goes on after an error")


class Clock:
    """Seconds of a process that runs: what it was stopped for, or a host that slept, counts as one."""

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self.now, self._last = 0.0, read()

    def tick(self) -> None:
        last, self._last = self._last, self._read()
        self.now += min(self._last - last, 1.0)
