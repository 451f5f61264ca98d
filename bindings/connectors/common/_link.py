# SPDX-License-Identifier: Apache-2.0
"""What the exchange stands on: an engine, messages between engines, and their clock.

Whatever is said or written goes to one incarnation of a peer. That this one is over is known when the engine which has
its name now says so (TE_ERR_STALE): then `over` is called, and nothing else is proof of it.
"""

import json
import logging
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from transfer_engine import Engine, Paths, Segment, TransferError

from . import _protocol
from ._greetings import Greetings
from ._lanes import Job, Lanes, Open
from ._peers import Peers
from ._protocol import Address

Said = List[Tuple[str, Any]]
Messages = Callable[[], Said]
_NAME = "transfer-engine-connector"
_PATHS = Paths(forbid="rdma")  # a late WRITE of it cannot be fenced
_POLL_S = 0.01  # between two looks for messages where none came for a while
_TRIES = 3
_MOST_TEXT = 200  # of a message that is not understood, in the log
_log = logging.getLogger("transfer_engine")


def is_stale(error: TransferError) -> bool:
    return error.name == "TE_ERR_STALE"


class Link:
    """hear(kind, body, sender) is called for each message of who has greeted or was, tick() five times a second,
    met(sender) for whoever says anything, and over(peer) when an incarnation is found to be over."""

    def __init__(
        self,
        host: str,
        port: int,
        peers: Peers,
        hear: Callable[[str, Any, Address], None],
        met: Callable[[Address], None],
        over: Callable[[Address], None],
        tick: Callable[[], None],
    ) -> None:
        self.engine = _engine(host, port)
        self.address: Address = (_protocol.engine(self.engine.name), f"{self.engine.incarnation:016x}")
        self.lanes = Lanes(self._open)
        self.greetings = Greetings()
        self._peers, self._hear, self._met, self._over, self._tick = peers, hear, met, over, tick
        self._checks: Dict[Address, bool] = {}  # that are to be said
        self._checking = threading.Lock()
        self._complaints = Complaints()
        self._threads = [threading.Thread(target=work, name="te-link", daemon=True) for work in (self._listen, self._time)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def reaches(self, peer: Address) -> bool:
        """Whether it is a peer that is opened: another engine, on a host that is allowed."""
        try:
            name, life = self._peers.address(peer)
        except (ValueError, TypeError):
            return False
        return name != self.address[0] and life != self.address[1]

    def do(self, to: Address, job: Job) -> None:
        """A transfer, behind those that were given for this peer before. Raises OSError where that cannot be."""
        self._put("transfers", to, job)

    def say(self, to: Address, kind: str, body: Any) -> None:
        """A message, behind others."""
        self._tell(to, lambda: [(kind, body)], False, lambda _: None)

    def talk(self, to: Address, messages: Messages, done: Callable[[Said], None]) -> None:
        """What messages() gives once the peer has answered a greeting, each said once at most.

        done() follows in any case, with those of which the engine told that they are not said. A peer that has not
        answered is greeted instead, and hear("welcome") tells when it has.
        """
        self._tell(to, messages, True, done)

    def check(self, to: Address) -> None:
        """Has over(to) called if it is."""
        with self._checking:
            if to in self._checks:
                return
            self._checks[to] = True

        def checked(_: Said) -> None:
            with self._checking:
                self._checks.pop(to, None)

        self._tell(to, lambda: [("is", [])], False, checked)

    def close(self) -> None:
        """Ends the engine. Its transfers are canceled, and its memory is quiet, when this returns."""
        self.lanes.close()
        for thread in self._threads:
            thread.join()
        self.engine.close()

    # ------------------------------------------------------------------------------- messages

    def _open(self, to: Address) -> Segment:
        return self.engine.open(to[0], incarnation=int(to[1], 16), paths=_PATHS)

    def _put(self, kind: str, to: Address, job: Job) -> None:
        if not self.reaches(to):
            raise OSError(f"{to!r} is not an engine on a host that is allowed, or is this one itself")
        self.lanes.put(kind, to, job)

    def _tell(self, to: Address, messages: Messages, asks: bool, done: Callable[[Said], None]) -> None:
        def job(peer: Open) -> None:
            unsaid: Said = []
            try:
                self._say(to, messages, asks, peer, unsaid)
            except TransferError as e:
                _log.error("%s is not told anything any more: %s", to[0], e)
                self.greetings.forget(to)
                self._over(to)
            finally:
                done(unsaid)

        try:
            self._put("messages", to, job)
        except OSError as e:
            _log.error("%s is told nothing: %s", to[0], e)
            done([])

    def _say(self, to: Address, messages: Messages, asks: bool, peer: Open, unsaid: Said) -> None:
        """Raises TransferError where the peer's incarnation is over, and for no other reason."""
        why = "it does not answer"
        for attempt in range(_TRIES):
            try:
                segment = peer()
                if not asks or self.engine.probe(to[0]):
                    cookie = self.greetings.cookie_of(to)
                    if asks and not cookie:
                        self._notify(segment, to, "", "hello", [self.greetings.nonce(to)], [])
                        return
                    for kind, body in messages():
                        self._notify(segment, to, cookie or self.greetings.cookie_for(to), kind, body, unsaid)
                    return
            except TransferError as e:
                if is_stale(e):
                    raise
                why = str(e)
            if self.lanes.closed.wait(0.1 * 2**attempt):
                break
        self._complaints.tell("%s is not told what it should be: %s", to[0], why)

    def _notify(self, segment: Segment, to: Address, cookie: str, kind: str, body: Any, unsaid: Said) -> None:
        try:
            segment.notify(_NAME, json.dumps([self.address, cookie, kind, body]))
        except TransferError as e:
            if is_stale(e):
                raise
            self._complaints.tell("%s is not told '%s': %s", to[0], kind, e)
            unsaid.append((kind, body))

    def _welcome(self, to: Address, nonce: str) -> None:
        """To somebody who has not greeted before: one after the other for each host, and few of them."""

        def job(_: Open) -> None:
            try:
                with self._open(to) as segment:
                    self._notify(segment, to, "", "welcome", [nonce, self.greetings.cookie_for(to)], [])
            except TransferError as e:
                self._complaints.tell("%s is not welcome: %s", to[0], e)

        try:
            self.lanes.put("answers", (to[0].rpartition(":")[0] + ":0", ""), job)
        except OSError as e:
            self._complaints.tell("%s is not welcome: %s", to[0], e)

    # ----------------------------------------------------------------------------- what comes

    def _listen(self) -> None:
        pause = 0.001
        while not self.lanes.closed.wait(pause):
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
                    self._complaints.tell("a message is not understood, %r: %.*r", e, _MOST_TEXT, note.msg[:_MOST_TEXT])

    def _take(self, sender: Any, cookie: Any, kind: Any, body: Any) -> None:
        peer = self._peers.address(sender)
        if not self.reaches(peer):
            raise ValueError("it comes by this engine's own name")
        if kind == "hello":
            (nonce,) = body
            self._welcome(peer, _protocol.word(nonce))
        elif kind == "welcome":
            if self.greetings.is_welcome(peer, *body):
                self._hear(kind, None, peer)
        elif self.greetings.is_shared(peer, cookie):
            self._hear(kind, body, peer)
        else:
            raise ValueError("it comes from somebody who has not greeted")
        self._met(peer)

    def _time(self) -> None:
        while not self.lanes.closed.wait(0.2):
            try:
                self._tick()
            except Exception:  # pylint: disable=broad-except
                _log.exception("the clock of a connector goes on after an error")


def _engine(host: str, port: int) -> Engine:
    """With that port, if it is not 0."""
    engine = Engine(name=host, port=port)
    if port and engine.port != port:
        engine.close()
        raise OSError(f"port {port} is in use; the option `port` of the connector is that of the first worker's engine")
    return engine


class Complaints:
    """What strangers can bring about as often as they like is told once a second at most, and then how often it was."""

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read, self._lock = read, threading.Lock()
        self._next, self._untold = 0.0, 0

    def tell(self, text: str, *words: Any) -> None:
        with self._lock:
            now = self._read()
            if now < self._next:
                self._untold += 1
                return
            untold, self._untold, self._next = self._untold, 0, now + 1.0
        _log.warning(text + "%s", *words, f" ({untold} like it were not told)" if untold else "")


class Clock:
    """Seconds of a process that runs: what it was stopped for, or a host that slept, counts as one."""

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self.now, self._last = 0.0, read()

    def tick(self) -> None:
        last, self._last = self._last, self._read()
        self.now += min(self._last - last, 1.0)
