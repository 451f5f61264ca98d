# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half: which blocks of which request are sent, received, and kept for how long."""

import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Set, Tuple

from ._config import Config
from ._keeping import Keeping
from ._metadata import Kept, Metadata, Receive, Save
from ._prompt import prompt
from ._protocol import Address, Prompt, remember, word

_WELL = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
_log = logging.getLogger("transfer_engine")


@dataclass
class _Outgoing:
    """A request that is to be decoded elsewhere. `given`: so many of its blocks were given to the workers."""

    key: str
    prompt: Prompt
    blocks: List[int] = field(default_factory=list)
    given: int = 0
    complete: bool = False

    def forget(self) -> None:
        self.blocks, self.given, self.complete = [], 0, False


def _params(request: Any) -> Dict[str, Any]:
    params = request.kv_transfer_params
    return params if isinstance(params, dict) else {}


class Scheduler:
    def __init__(self, config: Config) -> None:
        self.ranks: List[Address] = []  # of our workers
        self.keeping = Keeping(config.blocks, config.lost_share)
        self._config, self._block_size, self._workers = config, config.block_size, config.workers
        self._computed: Dict[str, int] = {}
        self._outgoing: Dict[str, _Outgoing] = {}
        self._keys: Dict[str, str] = {}  # requests, by the transfer that each has named first
        self._incoming: Set[str] = set()
        self._waiting: Set[str] = set()  # finished, and their blocks are in use
        self._next = Metadata()
        if config.peers.is_any():
            _log.warning("peers on any host are allowed: `peers` of kv_connector_extra_config lists those that may be")

    # ------------------------------------------------------------------------------ blocks that come

    def matched(self, request: Any, computed: int) -> Tuple[int, bool]:
        if not self._is_received(request):
            return 0, False
        self._computed[request.request_id] = computed
        missing = max(request.num_prompt_tokens - computed, 0)
        return missing, missing > 0

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        params, name = _params(request), request.request_id
        if params.get("do_remote_decode"):
            self._begin(request)
        if not self._is_received(request):
            return
        params["do_remote_prefill"] = False  # once: what is lost later is computed here
        computed = self._computed.pop(name, 0)
        first, end = computed // self._block_size, -(-(computed + external) // self._block_size)
        receive = self._receive(request, first, blocks.get_block_ids()[0][first:end] if external else [])
        if external:
            self._next.receives.append(receive)
            self._incoming.add(name)
        elif receive.ranks is not None:
            self._next.released.append(receive)

    def _is_received(self, request: Any) -> bool:
        if not _params(request).get("do_remote_prefill"):
            return False
        if not self._config.receives:
            _log.error("request %s is computed here: this server is a kv_producer, which receives nothing", request.request_id)
            _params(request)["do_remote_prefill"] = False
        return self._config.receives

    def _receive(self, request: Any, first: int, blocks: List[int]) -> Receive:
        params, name = _params(request), request.request_id
        try:
            key, ranks = self._take(params.get("transfer_id"), name), self._ranks(params.get("remote_ranks"))
        except (ValueError, TypeError) as e:
            _log.error("request %s fails, its kv_transfer_params are wrong: %s", name, e)
            return Receive("", name, Prompt(0, ""), first, list(blocks), None)
        return Receive(key, name, prompt(request), first, list(blocks), ranks)

    def _ranks(self, value: Any) -> List[Address]:
        """Engines of prefill's workers."""
        if not isinstance(value, (list, tuple)) or len(value) != self._workers:
            raise ValueError(f"remote_ranks are not those of a prefill with {self._workers} workers")
        ranks = [self._config.peers.address(pair) for pair in value]
        if {part for rank in ranks for part in rank} & {part for rank in self.ranks for part in rank}:
            raise ValueError("remote_ranks name this server itself")
        return ranks

    def _take(self, value: Any, name: str) -> str:
        """A transfer is of one request, which is known by its name whatever it does."""
        key = word(value)
        if self._keys.get(key, name) != name:
            raise ValueError(f"transfer_id {key} is that of request {self._keys[key]}: it is used once, and `n` must be 1")
        remember(self._keys, key, name)
        return key

    # -------------------------------------------------------------------------------- blocks that go

    def _begin(self, request: Any) -> None:
        name = request.request_id
        if name in self._outgoing:
            return
        if not self._config.sends:
            _log.error("nothing of request %s is sent: this server is a kv_consumer", name)
            return
        own = name if len(name) <= 256 else hashlib.sha256(name.encode()).hexdigest()
        try:
            key = self._take(_params(request).get("transfer_id", own), name)
        except ValueError as e:
            _log.error("nothing of request %s is sent: its transfer_id: %s", name, e)
        else:
            self._outgoing[name] = _Outgoing(key, prompt(request))

    def step(self, output: Any) -> Metadata:
        self._next.preempted = set(output.preempted_req_ids or ())
        for name in self._next.preempted & self._outgoing.keys():
            self._outgoing[name].forget()
        for new in output.scheduled_new_reqs:
            self._scheduled(new.req_id, new.block_ids, True, new.num_computed_tokens, output)
        cached = output.scheduled_cached_reqs
        for name, blocks, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            self._scheduled(name, blocks, name in cached.resumed_req_ids, computed, output)
        told, self._next = self._next, Metadata()
        return told

    def _scheduled(self, name: str, blocks: Any, anew: bool, computed: int, output: Any) -> None:
        """After this step so many more blocks are full. Who was preempted has others: all are given again."""
        outgoing = self._outgoing.get(name)
        if outgoing is None or (outgoing.complete and not anew):
            return
        if anew:
            outgoing.forget()
        outgoing.blocks += blocks[0] if blocks else []
        end = computed + output.num_scheduled_tokens[name]
        outgoing.complete = end >= outgoing.prompt.tokens
        full = -(-outgoing.prompt.tokens // self._block_size) if outgoing.complete else end // self._block_size
        piece = outgoing.blocks[outgoing.given : full]
        self._next.saves.append(Save(outgoing.key, name, outgoing.prompt, outgoing.given, piece, outgoing.complete))
        outgoing.given = full

    # ------------------------------------------------------------------------------------- the end

    def finished(self, request: Any) -> Tuple[bool, Optional[Dict[str, Any]]]:
        """Whether the blocks are in use still, and what decode is to be asked with.

        Blocks that come are kept by vLLM itself, until the workers report that nothing arrives any more.
        """
        name, outgoing = request.request_id, self._outgoing.pop(request.request_id, None)
        self._computed.pop(name, None)
        if name in self._incoming:
            self._waiting.add(name)
        elif self._is_received(request):
            receive = self._receive(request, 0, [])
            self._next.released += [] if receive.ranks is None else [receive]
        if outgoing is None:
            return False, None
        well = outgoing.complete and request.status.name in _WELL
        if not well:
            self._next.stopped.append((outgoing.key, name))
        if not outgoing.blocks:
            return False, None
        self._waiting.add(name)
        self._next.finished.add(name)
        return True, self._answer(outgoing) if well else None

    def _answer(self, outgoing: _Outgoing) -> Dict[str, Any]:
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "transfer_id": outgoing.key,
            "remote_ranks": [list(address) for address in self.ranks],
        }

    def ended(self, output: Any) -> None:
        """Called before vLLM frees anything of what the workers tell here."""
        kept = output.kv_connector_worker_meta
        if isinstance(kept, Kept):
            self.keeping.change(kept)
        self._waiting.difference_update(output.finished_sending or (), output.finished_recving or ())
        self._incoming.difference_update(output.finished_recving or ())

    def waits(self) -> bool:
        return bool(self._waiting)
