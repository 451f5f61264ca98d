# SPDX-License-Identifier: Apache-2.0
"""The workers' half: it moves the blocks. Worker i of prefill writes to worker i of decode."""

import logging
import os
from functools import partial
from typing import Any, Dict, Optional, Set, Tuple

from . import _caches, _places
from ._config import Config
from ._exchange import Calls, Exchange
from ._metadata import Kept, Metadata
from ._protocol import DONE, UNSAFE, Want
from ._receiving import Receiving, State
from ._sending import Piece, Sending

_SHARE = 0.6  # of the time that vLLM gives a worker to end: for what is under way, and for the answers to peers
_log = logging.getLogger("transfer_engine")


def close_s() -> float:
    """Of VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS, after which vLLM ends a worker by a signal."""
    return _SHARE * float(os.environ.get("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS") or 5)


class Worker:
    """What vLLM's thread and those of the exchange share is guarded by the lock of the latter."""

    def __init__(self, config: Config) -> None:
        if not 0 <= config.rank < config.workers:
            raise ValueError(f"TransferEngineConnector: a worker of rank {config.rank} where tensors are {config.workers} parallel")
        self._config = config
        self._caches: Dict[str, Any] = {}
        self._layers: _places.Places = {}
        self._saved: Set[str] = set()  # layers of this step
        self._sending: Dict[str, Sending] = {}  # by request
        self._receiving: Dict[str, Receiving] = {}  # by request
        self._finished: Set[str] = set()  # requests whose end is to be told
        self._received: Set[str] = set()
        self._failed: Set[str] = set()
        self._kept = Kept()
        self._open: Optional[Metadata] = None  # of a step that has begun and not ended
        calls = Calls(self._refuses, self._is_sent, lambda: (config.model, self._layers), self._has_arrived, self._is_freed)
        port = config.port + config.rank if config.port else 0
        self._exchange = Exchange(config.host, port, config.peers, config.limits, calls)
        self._sender, self._receiver = self._exchange.sender, self._exchange.receiver
        self.address = self._exchange.link.address

    def register(self, caches: Dict[str, Any]) -> None:
        blocks, kind = self._config.blocks, f"{self._config.cache_dtype}/{self._config.block_size}"
        layers = {name: _caches.parts(name, cache, blocks, kind) for name, cache in caches.items()}
        begins, lengths = zip(*_places.spans(layers, blocks))
        self._exchange.link.engine.register_many(begins, lengths)
        self._caches, self._layers = dict(caches), layers

    # ------------------------------------------------------------------------------------ each step

    def preempted(self, requests: Set[str]) -> None:
        """Returns when nothing of them is read any more: their blocks are overwritten next."""
        with self._exchange.lock:
            sendings = [self._sending[request] for request in requests & self._sending.keys()]
        if sendings:
            self._sender.forget(sendings)

    def begin(self, metadata: Metadata) -> None:
        if self._open is not None:  # vLLM's model runner V2 calls nothing where a step raises
            self.raised(self._open)
        self._open = metadata
        self._saved.clear()
        for save in metadata.saves:
            with self._exchange.lock:
                sending = self._sender.extend(save.key, save.request, save.prompt, save.first, len(save.blocks))
                if sending is not None:
                    self._sending[save.request] = sending
        for key, request in metadata.stopped:
            self._sender.stop(key, request)
        self._finished |= metadata.finished

    def save(self, metadata: Metadata, layer: str) -> None:
        """The blocks of this step, in a layer that was computed."""
        if self._config.layerwise:
            self._save(metadata, layer)

    def _save(self, metadata: Metadata, layer: str) -> None:
        if not metadata.saves or layer in self._saved or layer not in self._layers:
            return
        self._saved.add(layer)
        settled = _caches.settled(self._caches[layer])
        for save in metadata.saves:
            sending = self._sending.get(save.request)
            if sending is not None and save.blocks:
                self._sender.add(sending, Piece(settled, partial(_places.moves, self._layers, layer, save.first, save.blocks)))

    def raised(self, metadata: Metadata) -> None:
        """The step has ended by an exception: what it computed of these requests is not to be used."""
        self._open = None
        for save in metadata.saves:
            sending = self._sending.get(save.request)
            if sending is not None:
                _log.error("request %s is not sent: its step has raised", save.request)
                self._sender.fail(sending)

    def saved(self, metadata: Metadata) -> None:
        self._open = None
        for layer in self._layers:
            self._save(metadata, layer)
        for save in metadata.saves:
            sending = self._sending.get(save.request)
            if sending is not None and save.last:
                self._sender.complete(sending)

    def load(self, metadata: Metadata) -> None:
        for receive in metadata.receives:
            peer = None if receive.ranks is None else receive.ranks[self._config.rank]
            with self._exchange.lock:
                asked = (receive.key, receive.request, peer, receive.prompt, receive.first, receive.blocks)
                receiving = self._receiver.receive(*asked)
                if receiving.state is not State.OVER:
                    self._receiving[receive.request] = receiving
        for receive in metadata.released:
            if receive.ranks is not None:
                self._receiver.release(receive.key, receive.ranks[self._config.rank])

    def results(self, finished: Set[str]) -> Tuple[Set[str], Set[str], Set[str]]:
        """Requests that are sent, received (or never will be), and of these those that failed."""
        with self._exchange.lock:
            for request in finished & self._receiving.keys():
                self._receiver.abort(self._receiving[request])
            sent = self._finished - self._sending.keys()
            self._finished -= sent
            received, failed = self._received, self._failed
            self._received, self._failed = set(), set()
            return sent, received, failed

    def kept(self) -> Optional[Kept]:
        """Behind results(): blocks of what failed there that must not be used yet, and of earlier ones that may be again."""
        with self._exchange.lock:
            kept, self._kept = self._kept, Kept()
            return kept if kept.kept or kept.freed else None

    # ----------------------------------------------------------- for the exchange, which holds its lock

    def _refuses(self, want: Want) -> Optional[str]:
        config = self._config
        if not config.sends:
            return "this server is a kv_consumer, which sends nothing"
        if want.model != config.model:
            return f"its model is '{want.model}' and that here '{config.model}': give both servers the same --model and --revision"
        if want.first + len(want.blocks) > -(-want.prompt.tokens // config.block_size) or want.prompt.tokens > config.most_tokens:
            return f"{len(want.blocks)} blocks from {want.first} on are none of a prompt of {want.prompt.tokens} tokens here"
        return _caches.refuses(self._layers, want.places, max(want.blocks, default=0))

    def _is_sent(self, sending: Sending) -> None:
        self._sending.pop(sending.owner, None)

    def _has_arrived(self, receiving: Receiving, end: str) -> None:
        self._receiving.pop(receiving.owner, None)
        self._received.add(receiving.owner)
        if end != DONE:
            self._failed.add(receiving.owner)
        if end == UNSAFE:
            self._kept.kept.append((receiving.peer[0], receiving.blocks))

    def _is_freed(self, receiving: Receiving) -> None:
        self._kept.freed.append((receiving.peer[0], receiving.blocks))

    def close(self) -> None:
        self._exchange.close(close_s())
