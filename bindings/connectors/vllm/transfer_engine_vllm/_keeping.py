# SPDX-License-Identifier: Apache-2.0
"""Blocks of vLLM's pool that are kept from all requests while something may still be written to them.

Each worker that keeps a block has a reference to it, as a request has. It is given back when that worker says so. Where
too many are kept the server cannot do its work: that is an error, which ends it.
"""

import logging
from collections import Counter
from typing import Any, Dict, List

from ._metadata import Kept

_log = logging.getLogger("transfer_engine")


class Keeping:
    def __init__(self, blocks: int, share: float) -> None:
        self.pool: Any = None  # vLLM's of blocks
        self._most, self._all = share * blocks, blocks
        self._references: Dict[int, int] = {}  # of ours, by block
        self._by_peer: "Counter[str]" = Counter()

    def change(self, told: Kept) -> None:
        """Before vLLM frees anything of what the workers tell in this step. Raises RuntimeError where too many are kept."""
        for peer, blocks in told.kept:
            self._keep(peer, blocks)
        for peer, blocks in told.freed:
            self._free(peer, blocks)
        if told.kept or told.freed:
            _log.warning("%d of %d blocks of the KV cache are kept%s", len(self._references), self._all, self._peers())
        if len(self._references) > self._most:
            raise RuntimeError(
                f"TransferEngineConnector: {len(self._references)} of {self._all} blocks of the KV cache are kept, since something may "
                f"still be written to them{self._peers()}; that is more than lost_share allows. Start this server anew, which has all "
                "blocks again, and look why those servers do not answer"
            )

    def _peers(self) -> str:
        names = ", ".join(name for name, _ in self._by_peer.most_common(3))
        return f", by {names}" if names else ""

    def _keep(self, peer: str, blocks: List[int]) -> None:
        self.pool.touch([self.pool.blocks[block] for block in blocks])
        self._by_peer[peer] += len(blocks)
        for block in blocks:
            self._references[block] = self._references.get(block, 0) + 1

    def _free(self, peer: str, blocks: List[int]) -> None:
        self.pool.free_blocks([self.pool.blocks[block] for block in blocks])
        self._by_peer[peer] -= len(blocks)
        if not self._by_peer[peer]:
            del self._by_peer[peer]
        for block in blocks:
            self._references[block] -= 1
            if not self._references[block]:
                del self._references[block]
