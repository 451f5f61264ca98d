# SPDX-License-Identifier: Apache-2.0
"""A rank of a server: what goes out of its memory and comes into it, by rooms, the numbers that SGLang gives requests.

Rank i of prefill writes to rank i of decode. Nothing here is SGLang's.
"""

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _protocol
from ._config import Options
from ._exchange import Calls, Exchange
from ._pages import Pages
from ._protocol import DONE, FAILED, Address, Prompt, Want
from ._receiving import Receiving, State
from ._sending import Piece, Sending

_PROMPT = Prompt(0, "-")  # of every room: neither side is told what is computed
CLOSE_S = 3.0  # for what is under way, and for the answers to peers, when a rank is closed


class Rank:
    """`sends`: it is one of a prefill server. `page_size`: tokens of a page."""

    def __init__(self, options: Options, port: int, pages: Pages, sends: bool) -> None:
        self.pages = pages
        self._options, self._sends = options, sends
        self._incoming: Dict[str, "Incoming"] = {}  # by token
        calls = Calls(self._refuses, lambda _: None, lambda: (options.model, pages.all), self._has_ended, lambda _: None)
        self.exchange = Exchange(options.host, port, options.peers, options.limits, calls)
        try:
            self.exchange.link.engine.register_many(*zip(*pages.memory))
        except BaseException:
            self.close()
            raise
        self.address = self.exchange.link.address

    def send(self, room: int) -> "Outgoing":
        return Outgoing(self, str(room))

    def receive(self, room: int, peer: Address, first: int, pages: List[int], row: int) -> "Incoming":
        """Asks `peer` for pages, the first of which is at place `first` of the request, and for its row."""
        with self.exchange.lock:
            receiving = self.exchange.receiver.receive(str(room), str(room), peer, _PROMPT, first, [*pages, row])
            incoming = Incoming(self, receiving)
            if incoming.end is None:
                self._incoming[receiving.token] = incoming
        return incoming

    def release(self, room: int, peer: Address) -> None:
        """Tells that nothing is needed of a room."""
        self.exchange.receiver.release(str(room), peer)

    def is_quiet(self, room: int) -> bool:
        """Whether nothing of what was asked for in that room can be written any more. Raises where too many pages wait for that."""
        kept = self.exchange.receiver.kept()
        count = sum(len(receiving.blocks) - 1 for receiving in kept)
        if count > self._options.lost_share * self.pages.count:
            peers = ", ".join(sorted({receiving.peer[0] for receiving in kept}))
            raise RuntimeError(f"{count} of {self.pages.count} pages may still be written to by {peers}, more than lost_share "
                               "allows; this server has to be started anew")
        return self.exchange.receiver.is_quiet(str(room))

    def close(self) -> None:
        """Our memory is quiet when this returns."""
        self.exchange.close(CLOSE_S)

    # ----------------------------------------------------------- for the exchange, which holds its lock

    def _refuses(self, want: Want) -> Optional[str]:
        if not self._sends:
            return "this is a decode server, which sends nothing"
        if want.model != self._options.model:
            return (f"its model is '{want.model}' and that here '{self._options.model}': give both servers the same --model-path, "
                    "or the option `model`")
        if not want.blocks or len(want.blocks) - 1 > self.pages.count or want.first > self.pages.count:
            return f"{len(want.blocks)} pages from {want.first} on are none of a request here, where there are {self.pages.count}"
        return self.pages.refuses(want.places, want.blocks)

    def _has_ended(self, receiving: Receiving, end: str) -> None:
        incoming = self._incoming.pop(receiving.token, None)
        if incoming is not None:
            incoming.end = end


class Incoming:
    """What decode has asked for. `end` is DONE, FAILED or UNSAFE, or None until then; only DONE tells that all is there."""

    def __init__(self, rank: Rank, receiving: Receiving) -> None:
        self.end: Optional[str] = FAILED if receiving.state is State.OVER else None
        self.peer = receiving.peer
        self._receiver, self._receiving = rank.exchange.receiver, receiving

    def abort(self) -> None:
        """Has prefill stop. Rank.is_quiet() tells when it has."""
        self._receiver.abort(self._receiving)


class Outgoing:
    """What prefill sends in a room: chunks of pages as they are computed, and with the last one a row."""

    def __init__(self, rank: Rank, room: str) -> None:
        self._rank, self._room, self._sender = rank, room, rank.exchange.sender
        self._first = 0  # place of the first page that is sent
        self._pages = self._sent = 0  # that are to be sent, and those of them that were given
        self._sending: Optional[Sending] = self._sender.extend(room, room, _PROMPT, 0, 0)
        self.why = "the room was used before, or decode has given it up" if self._sending is None else ""

    def prefix(self) -> int:
        """Pages that decode has already."""
        want = self._want()
        return 0 if want is None else want.first

    def _want(self) -> Optional[Want]:
        return None if self._sending is None else self._sending.want

    def is_asked(self) -> bool:
        return self._want() is not None

    def has_begun(self) -> bool:
        sending = self._sending
        return sending is not None and (self._sent > 0 or sending.complete)

    def begin(self, pages: int) -> None:
        """So many are sent, behind those that decode has. It has asked by then."""
        want = self._want()
        if want is None or self._sending is None:
            self.fail("decode has not asked for it")
        elif len(want.blocks) != pages + 1:
            self.fail(f"decode wants {len(want.blocks) - 1} pages, and there are {pages}: both servers need the same prompt")
        elif want.first and self._sender.extend(self._room, self._room, _PROMPT, 0, want.first) is None:
            self.fail("what decode has already is not known here")
        else:
            self._first, self._pages = want.first, pages

    def add(self, pages: List[int], row: Optional[int], settled: Callable[[], Any]) -> None:
        """The next pages, when settled() has returned in a thread of the exchange; with a row they are the last ones."""
        sending, rank, place = self._sending, self._rank, self._first + self._sent
        self._sent += len(pages)
        if self._sent > self._pages or (row is not None and self._sent < self._pages):
            self.fail(f"{self._sent} pages were computed, and {self._pages} announced")
        if sending is None or self._sender.extend(self._room, self._room, _PROMPT, place, len(pages) + (row is not None)) is None:
            return
        for names in rank.pages.groups(len(pages)) if pages else ():
            self._sender.add(sending, Piece(settled, partial(rank.pages.moves, names, place, pages)))
        if row is not None:
            self._sender.add(sending, Piece(settled, partial(rank.pages.moves, list(rank.pages.rows), place + len(pages), [row])))
            self._sender.complete(sending)

    def state(self) -> Optional[str]:
        """DONE, or FAILED when nothing of our memory is read any more, or None."""
        sending = self._sending
        if sending is None:
            return FAILED
        if not sending.ended:
            return None
        return FAILED if sending.failed else DONE

    def fail(self, why: str) -> None:
        self.why = self.why or why
        self.quit()

    def quit(self) -> None:
        """It is sent no further, and its memory is quiet when this returns, or after a second at most."""
        if self._sending is not None and not self._sending.ended:
            self._sender.quit(self._sending)


def address(value: Any) -> Tuple[str, str]:
    """Of an engine, as SGLang's bootstrap server tells it. Raises ValueError."""
    try:
        return _protocol.address(value)
    except (TypeError, ValueError) as e:
        raise ValueError(f"{value!r} is not the name and the incarnation of an engine") from e
