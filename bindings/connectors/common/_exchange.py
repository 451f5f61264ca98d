# SPDX-License-Identifier: Apache-2.0
"""The two sides of a worker and what they share: a lock, a clock, and the link that their messages come by."""

import threading
from typing import Any, Callable, NamedTuple, Optional, Tuple

from ._link import Clock, Link
from ._peers import Peers
from ._protocol import MOST_ASKED, Address, Limits, Want, listed, want, word
from ._receiving import Receiver, Receiving
from ._sending import Sender, Sending



class Calls(NamedTuple):
    """As Sender and Receiver have them."""

    refuses: Callable[[Want], Optional[str]]
    sent: Callable[[Sending], None]
    places: Callable[[], Tuple[str, Any]]
    received: Callable[[Receiving, str], None]
    freed: Callable[[Receiving], None]


class Exchange:
    def __init__(self, host: str, port: int, peers: Peers, limits: Limits, calls: Calls) -> None:
        self.lock = threading.RLock()
        self._clock = Clock()
        self.sender = Sender(self.lock, self._clock, limits, calls.refuses, calls.sent)
        self.receiver = Receiver(self.lock, self._clock, limits, calls.places, calls.received, calls.freed)
        link = Link(host, port, peers, self._hear, self._met, self._over, self._tick)
        self.link = self.sender.link = self.receiver.link = link
        self.link.start()

    def _hear(self, kind: str, body: Any, sender: Address) -> None:
        """In a thread of the link. What is not as it ought to be raises there, and is told in the log."""
        with self.lock:
            self.receiver.heard(sender)
            if kind == "want":
                self.sender.take(want(sender, body))
            elif kind == "ask":
                asked = [(word(token), word(key), bool(aborted)) for token, key, aborted in listed(body, MOST_ASKED)]
                self.link.say(sender, "is", [[token, self.sender.state(sender, token, key, stop)] for token, key, stop in asked])
            elif kind == "is":
                for token, state in listed(body, MOST_ASKED):
                    self.receiver.stands(word(token), state, sender)
            elif kind == "welcome":
                self.receiver.welcomed(sender)

    def _met(self, sender: Address) -> None:
        """Somebody is there: whether another incarnation of that name is over is known when that one is asked."""
        with self.lock:
            older = [peer for peer in self.sender.peers() | self.receiver.peers() if peer[0] == sender[0] and peer != sender]
        for peer in older:
            self.link.check(peer)

    def _over(self, peer: Address) -> None:
        with self.lock:
            self.sender.over(peer)
            self.receiver.over(peer)

    def _tick(self) -> None:
        with self.lock:
            self._clock.tick()
            self.receiver.look_after()
            self.sender.expire()
        self.sender.ask()

    def close(self, seconds: float) -> None:
        """Our memory is quiet when this returns. Peers are told, as far as they listen and it takes no longer than that."""
        self.sender.close()
        self.receiver.close()
        self.link.lanes.drain(seconds, lambda: self.receiver.releases() or self.sender.is_busy())
        self.link.close()

