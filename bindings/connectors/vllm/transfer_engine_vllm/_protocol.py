# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers of blocks say to each other.

A receiver says `hello`, with a nonce, until a `welcome` with that nonce brings it a cookie, which is made for its name
alone: so each knows that the other one speaks these words, and is reached by the name that it gives. What comes without
that cookie is not looked at. A `hello` that comes back to its own sender, by an alias of its name, is of a `stranger`.

Then a receiver says `want`, with a token that is used once and the places that it has; the sender writes pieces as they
come, and says at the end `is` with one of

    done      all is there
    failed    not all is there, and nothing will change those places any more: each WRITE that did not end well was fenced
    unsafe    not all is there, and something may still arrive: a fence did not certify that nothing will

The receiver says `ask` every second, and that with a flag where it wants no more; the sender answers `is` as it stands:
`waits`, or what it was in the end, or `unknown`. `stranger` is the answer of an engine that was started in its place.
So each message has an answer or is said again, until the answer, the lease or the silence of the peer ends it.
"""

import re
from typing import Any, Dict, List, NamedTuple, Tuple, TypeVar

WAITS, DONE, FAILED, UNSAFE, UNKNOWN = "waits", "done", "failed", "unsafe", "unknown"
MOST_KNOWN = 65536  # requests, wants and ends of them that are remembered
_ENGINE = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_Value = TypeVar("_Value")

Address = Tuple[str, str]  # an engine's name, and which life of it: that of a restarted one is another


class Limits(NamedTuple):
    """Seconds."""

    hold: float = 480  # of what is complete and nobody asks for, and of what is asked for and does not begin
    lease: float = 600  # of a want, after which it is aborted
    lost: float = 60  # without a word of the sender, after which it is given up
    write: float = 30  # for a WRITE, and as many nanoseconds as it has bytes
    fence: float = 30  # for the certificate of one that did not end well


class Want(NamedTuple):
    """What a receiver has said: `first` is the place of its first block in the request."""

    to: Address
    token: str
    key: str
    first: int
    blocks: List[int]
    places: Any


def word(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        raise ValueError("not a text of 1 to 256 characters")
    return value


def number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("not a number of a block")
    return value


def engine(value: Any) -> str:
    """A name that is opened: a host and a port, so none of a file, of NVMe-oF or of a metadata server."""
    name = word(value)
    found = _ENGINE.fullmatch(name)
    if found is None or not 0 < int(found[1]) < 65536:
        raise ValueError(f"{name!r} is not the host:port of an engine")
    return name


def address(value: Any) -> Address:
    name, life = value
    return engine(name), word(life)


def remember(known: Dict[str, _Value], key: str, value: _Value) -> None:
    """The newest ones: the oldest makes room."""
    known[key] = value
    if len(known) > MOST_KNOWN:
        del known[next(iter(known))]
