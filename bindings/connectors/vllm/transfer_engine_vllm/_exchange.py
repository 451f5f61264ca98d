# SPDX-License-Identifier: Apache-2.0
"""The two sides of a worker and what they share: a lock, a clock, and the link that their messages come by."""

import threading
from typing import Any, Callable, Optional

from ._link import Clock, Link
from ._protocol import Address, Limits, Want, number, word
from ._receiving import Receiver, Receiving
from ._sending import Sender, Sending

_CLOSE_S = 10.0  # for what is under way, and for the answers to peers, when it ends


class Exchange:
    """`refuses`, `sent` and `received` are those of Sender and Receiver."""

    def __init__(
        self,
        host: str,
        limits: Limits,
        refuses: Callable[[Want], Optional[str]],
        sent: Callable[[Sending], None],
        received: Callable[[Receiving], None],
    ) -> None:
        self.lock = threading.RLock()
        self._clock = Clock()
        self.sender = Sender(self.lock, self._clock, limits, refuses, sent)
        self.receiver = Receiver(self.lock, self._clock, limits, received)
        self.link = self.sender.link = self.receiver.link = Link(host, self._hear, self._tick)
        self.link.start()

    def _hear(self, kind: str, body: Any, sender: Address) -> None:
        """In a thread of the link. What is not as it ought to be raises there, and is told in the log."""
        with self.lock:
            self.receiver.heard(sender)
            if kind == "want":
                token, key, first, blocks, places = body
                self.sender.take(Want(sender, word(token), word(key), number(first), [number(b) for b in blocks], places))
            elif kind == "ask":
                states = [[token, self.sender.state(word(token), word(key), bool(aborted))] for token, key, aborted in body]
                self.link.say(sender, "is", states)
            elif kind == "is":
                for token, state in body:
                    self.receiver.stands(word(token), state, sender)
            elif kind == "welcome":
                self.receiver.welcomed(sender)
            elif kind == "stranger":
                self.receiver.estranged(sender, *body)

    def _tick(self) -> None:
        with self.lock:
            self._clock.tick()
            self.receiver.look_after()
            self.sender.expire()

    def close(self) -> None:
        """Our memory is quiet when this returns. Peers are told, as far as they listen."""
        self.sender.close()
        self.receiver.close()
        self.link.drain(_CLOSE_S, self.receiver.releases)
        self.link.close()
