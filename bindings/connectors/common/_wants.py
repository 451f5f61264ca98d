# SPDX-License-Identifier: Apache-2.0
"""What each peer has asked for, and how that ended: bounded for each of them, so that none takes the room of others."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from . import _protocol
from ._protocol import Address, Want

_MOST_PEERS = 1024
MOST_WANTS = 1024  # of a peer that have not ended
MOST_BLOCKS = 1 << 20  # in all of these
_MOST_ENDS = 8192  # of a peer that are remembered
_MOST_STOPPED = 1024  # transfers that a peer does not need, remembered as well


@dataclass
class _Peer:
    wants: Dict[str, Want] = field(default_factory=dict)  # by token, that have not ended
    ends: Dict[str, str] = field(default_factory=dict)  # by token
    stopped: Dict[str, None] = field(default_factory=dict)  # keys
    blocks: int = 0


class Wants:
    def __init__(self) -> None:
        self._peers: Dict[Address, _Peer] = {}

    def why_not(self, want: Want) -> Optional[str]:
        """Why there is no room for one, if that is so."""
        peer = self._peer(want.to)
        if peer is None:
            return f"{_MOST_PEERS} peers have asked already"
        if len(peer.wants) >= MOST_WANTS or peer.blocks + len(want.blocks) > MOST_BLOCKS:
            return f"the peer has asked for {len(peer.wants)} requests of {peer.blocks} blocks that have not ended"
        return None

    def add(self, want: Want) -> Want:
        """The same, with places that it shares with others of its peer: they are long."""
        peer = self._peers[want.to]
        for other in peer.wants.values():
            if other.places == want.places:
                want = want._replace(places=other.places)
            break
        peer.wants[want.token] = want
        peer.blocks += len(want.blocks)
        return want

    def get(self, to: Address, token: str) -> Optional[Want]:
        peer = self._peers.get(to)
        return None if peer is None else peer.wants.get(token)

    def of(self, to: Address) -> List[Want]:
        peer = self._peers.get(to)
        return [] if peer is None else list(peer.wants.values())

    def peers(self) -> List[Address]:
        return list(self._peers)

    def end(self, to: Address, token: str, state: str) -> None:
        """Of one that was added, or was refused, or is not to begin."""
        peer = self._peer(to)
        if peer is None:
            return
        want = peer.wants.pop(token, None)
        peer.blocks -= 0 if want is None else len(want.blocks)
        _protocol.remember(peer.ends, token, state, _MOST_ENDS)

    def ended(self, to: Address, token: str) -> Optional[str]:
        """One that is forgotten may be told as FAILED: nothing of it can arrive."""
        peer = self._peers.get(to)
        return None if peer is None else peer.ends.get(token)

    def stop(self, to: Address, key: str) -> None:
        """Nobody needs that transfer, says this peer."""
        peer = self._peer(to)
        if peer is not None:
            _protocol.remember(peer.stopped, key, None, _MOST_STOPPED)

    def is_stopped(self, key: str) -> bool:
        return any(key in peer.stopped for peer in self._peers.values())

    def forget(self, to: Address) -> None:
        self._peers.pop(to, None)

    def _peer(self, to: Address) -> Optional[_Peer]:
        """The newest are known, and those with wants; None where there is no room for another one."""
        peer = self._peers.pop(to, None)
        if peer is None and len(self._peers) >= _MOST_PEERS:
            idle = next((known for known, one in self._peers.items() if not one.wants), None)
            if idle is None:
                return None
            del self._peers[idle]
        self._peers[to] = _Peer() if peer is None else peer
        return self._peers[to]


