# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers of blocks say to each other, and what of it is taken for what it should be.

An engine is known by its name and its incarnation, the number that the next engine of that name does not have. All that
is said or written to it goes by a segment of that incarnation (Engine.open()), so nothing gets to another one.

A receiver says `hello`, with a nonce, until a `welcome` with that nonce brings it a cookie, which is made for its name
and incarnation alone: so each knows that the other one speaks these words, and is reached by the name that it gives.
What comes without that cookie is not looked at.

Then a receiver says `want`, with a token that is used once and the places that it has; the sender writes pieces as they
come, and says at the end `is` with one of

    done      all is there
    failed    not all is there, and nothing will change those places any more: each WRITE that did not end well was fenced
    unsafe    not all is there, and something may still arrive. That is not the end: `failed` follows, when a fence says so

The receiver says `ask` every second, and that with a flag where it wants no more; the sender answers `is` as it stands:
`waits`, or what it was in the end, or `unknown`, which is never the answer to an `ask` with the flag. Of what the
receiver has given up it asks less and less often, and never stops. So each message has an answer or is said again,
until the answer, or until the sender's incarnation is found to be over.
"""

import ipaddress
import re
from typing import Any, Dict, List, NamedTuple, Tuple, TypeVar

WAITS, DONE, FAILED, UNSAFE, UNKNOWN = "waits", "done", "failed", "unsafe", "unknown"
MOST_KNOWN = 65536  # ends of own requests that are remembered
MOST_ASKED = 2048  # transfers in one `ask` or `is`
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as the last label of a host: another spelling of an address
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LIFE = re.compile(r"[0-9a-f]{16}")
_Value = TypeVar("_Value")

Address = Tuple[str, str]  # an engine's name, and its incarnation in 16 hexadecimal digits


class Limits(NamedTuple):
    """Seconds."""

    hold: float = 480  # of what is complete and nobody asks for, and of what is asked for and does not begin
    lease: float = 600  # of a want, after which it is aborted
    lost: float = 60  # without a word of the sender, after which the request is told as failed
    write: float = 30  # for a WRITE, and as many nanoseconds as it has bytes
    fence: float = 30  # for the certificate of one that did not end well, before that is told as unsafe
    settle: float = 180  # from when the sender's incarnation is over until nothing of it can be on the network


class Prompt(NamedTuple):
    """What is computed: how many tokens, and a digest of them and of what else the cache depends on."""

    tokens: int
    digest: str


class Want(NamedTuple):
    """What a receiver has said: `first` is the place of its first block in the request."""

    to: Address
    token: str
    key: str
    prompt: Prompt
    first: int
    blocks: List[int]
    model: str
    places: Any


def word(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        raise ValueError("not a text of 1 to 256 characters")
    return value


def number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("not a number of a block")
    return value


def listed(value: Any, most: int) -> List[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"not a list of {most} at most")
    return value


def want(sender: Address, body: Any) -> Want:
    """`places` are looked at by who knows his own."""
    token, key, tokens, digest, first, blocks, model, places = body
    numbers = [number(block) for block in listed(blocks, 1 << 24)]
    return Want(sender, word(token), word(key), Prompt(number(tokens), word(digest)), number(first), numbers, word(model), places)


def host(value: str) -> str:
    """The one spelling of a host that is taken, or ValueError, which tells it where there is one."""
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        if _HOST.fullmatch(value) is None or len(value) > 253 or _NUMBER.fullmatch(value.rpartition(".")[2]):
            raise ValueError(f"{value!r} is not a host: an address, or a name in small letters") from None
        return value
    mapped = getattr(found, "ipv4_mapped", None)
    if str(mapped or found) != value:
        raise ValueError(f"the host {value!r} is spelt {str(mapped or found)!r} here")
    return value


def split(name: str) -> Tuple[str, str]:
    """The host and the port of host:port or [host]:port, neither of them looked at."""
    before, _, port = name.rpartition(":")
    if before.startswith("[") and before.endswith("]") and ":" in before:
        return before[1:-1], port
    if ":" in before:
        raise ValueError(f"{name!r} is not the host:port of an engine")
    return before, port


def engine(value: Any) -> str:
    """A name that is opened: a host and a port, so none of a file, of NVMe-oF or of a metadata server."""
    name = word(value)
    before, port = split(name)
    if not before or _PORT.fullmatch(port) is None or int(port) > 65535:
        raise ValueError(f"{name!r} is not the host:port of an engine")
    host(before)
    return name


def life(value: Any) -> str:
    if _LIFE.fullmatch(word(value)) is None or int(value, 16) == 0:
        raise ValueError(f"{value!r} is not the incarnation of an engine: 16 hexadecimal digits")
    return str(value)


def address(value: Any) -> Address:
    name, number_of_it = value
    return engine(name), life(number_of_it)


def remember(known: Dict[str, _Value], key: str, value: _Value, most: int = MOST_KNOWN) -> None:
    """The newest ones: the oldest makes room."""
    if key in known:
        del known[key]
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]
