# SPDX-License-Identifier: Apache-2.0
"""Who has greeted whom: nonces of our greetings, cookies of peers, and the cookies that we make for them."""

import hashlib
import hmac
import json
import secrets
import threading
from typing import Any, Dict, List

from . import _protocol
from ._protocol import Address

_MOST_GREETED = 1024


class Greetings:
    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._greeted: Dict[Address, List[str]] = {}  # by us: the nonce, and the cookie of the welcome or ""

    def nonce(self, peer: Address) -> str:
        with self._lock:
            nonce, _ = self._greeted.setdefault(peer, [secrets.token_hex(8), ""])
            if len(self._greeted) > _MOST_GREETED:  # the oldest is greeted once more when it is talked to
                del self._greeted[next(iter(self._greeted))]
        return nonce

    def cookie_of(self, peer: Address) -> str:
        """That which the peer has made for us, or "" where it has not answered."""
        with self._lock:
            return self._greeted.get(peer, ["", ""])[1]

    def cookie_for(self, peer: Address) -> str:
        """Nothing is kept of who greets us: the cookie tells that it came to that name."""
        return hmac.new(self._secret, json.dumps(peer).encode(), hashlib.sha256).hexdigest()

    def is_shared(self, peer: Address, cookie: Any) -> bool:
        """Whether that is the cookie which we have made for this peer, or it for us."""
        return isinstance(cookie, str) and any(
            ours != "" and hmac.compare_digest(cookie.encode(), ours.encode())
            for ours in (self.cookie_for(peer), self.cookie_of(peer))
        )

    def is_welcome(self, peer: Address, nonce: Any, cookie: Any) -> bool:
        """Takes the cookie that answers our greeting."""
        with self._lock:
            greeted = self._greeted.get(peer)
            if greeted is None or not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), greeted[0].encode()):
                return False
            greeted[1] = _protocol.word(cookie)
            return True

    def forget(self, peer: Address) -> None:
        with self._lock:
            self._greeted.pop(peer, None)
