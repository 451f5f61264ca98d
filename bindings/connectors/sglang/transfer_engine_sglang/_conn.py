# SPDX-License-Identifier: Apache-2.0
"""The classes that SGLang makes. Its own common ones find the other server and keep the states of requests; all else is a rank's."""

import json
import os
import time
from typing import Any, Dict, List, Optional

from aiohttp import web
from sglang.srt.disaggregation.base.conn import KVPoll, KVTransferDestination
from sglang.srt.disaggregation.common.conn import (
    CommonKVBootstrapServer,
    CommonKVManager,
    CommonKVReceiver,
    CommonKVSender,
)
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.utils.network import get_local_ip_auto

from . import _config
from ._pages import Pages
from ._protocol import DONE, FAILED, UNSAFE, Address
from ._rank import Incoming, Rank, address

_ENGINE = "transfer_engine"  # in what the bootstrap server tells of a rank
_ENDS = {
    FAILED: "the prefill server has not sent it, or cannot be asked; its log and this one tell why",
    UNSAFE: "the prefill server does not tell whether something is written still, so the pages are kept; the log tells what to do",
}


def _options(mode: DisaggregationMode, args: Any) -> _config.Options:
    leaf = get_context().config_leaf
    arguments = {name: leaf(name) for name in _config.ARGUMENTS}
    why = _config.refused(args, get_parallel(), arguments, os.environ, mode == DisaggregationMode.DECODE)
    if why is not None:
        raise ValueError(f"the transfer backend transfer_engine: {why}")
    model = f"{leaf('model_path')} {leaf('revision') or ''}".strip()
    return _config.options(os.environ, get_local_ip_auto(), model)


def _record(manager: CommonKVManager, room: int, why: str) -> None:
    """A failure; the first reason stays."""
    with manager.failure_lock:
        manager.failure_records.setdefault(room, why)
    manager.update_status(room, KVPoll.Failed)


def _kind(args: Any) -> str:
    return f"{args.kv_cache_dtype_str}/{args.page_size}/{getattr(args, 'kv_layout', None)}"


class TransferEngineKVManager(CommonKVManager):
    """One of each rank of a server. TRANSFER_ENGINE_SGLANG in the environment has its options."""

    supports_deferred_decode_kv_release = True

    def __init__(self, args: Any, disaggregation_mode: Any, server_args: Any, is_mla_backend: Optional[bool] = False) -> None:
        options = _options(disaggregation_mode, args)
        parallel = get_parallel()
        port = options.port + (parallel.dp_rank or 0) * parallel.tp_size + parallel.tp_rank if options.port else 0
        self.rank = Rank(options, port, Pages(args, _kind(args)), disaggregation_mode == DisaggregationMode.PREFILL)
        try:
            super().__init__(args, disaggregation_mode, server_args, is_mla_backend)
        except BaseException:
            self.rank.close()
            raise
        self.server_socket.close(linger=0)  # what ranks say to each other goes by their engines
        if disaggregation_mode == DisaggregationMode.DECODE:
            self._start_heartbeat_checker_thread()

    def _register_topology_row(self, url: str, payload: Dict[str, Any]) -> None:
        super()._register_topology_row(url, {**payload, _ENGINE: list(self.rank.address)})

    def is_abort_release_safe(self, bootstrap_room: int, required_acks: int) -> bool:
        """Whether SGLang may give pages of a failed request back. The rank has asked prefill itself."""
        return self.rank.is_quiet(bootstrap_room)

    def submit_prefill_recompute(self, kv_receiver: Any, payload: Dict[str, Any]) -> None:
        """A room is for one request: one that was taken back cannot be sent in it again."""
        self._fail_prefill_recompute(kv_receiver, "transfer_engine does not serve pause_generation with mode `retract`")

    def close(self) -> None:
        """Our memory is quiet when this returns."""
        if self.disaggregation_mode == DisaggregationMode.DECODE:
            self._heartbeat_shutdown.set()
        self.rank.close()


class TransferEngineKVSender(CommonKVSender):
    """A request on a prefill server."""

    _early_send_wait_event: Any

    def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, req_has_disagg_prefill_dp_rank: bool = False) -> None:
        super().__init__(mgr, bootstrap_addr, bootstrap_room, req_has_disagg_prefill_dp_rank)
        self._outgoing = mgr.rank.send(bootstrap_room)

    def pop_decode_prefix_len(self) -> int:
        return int(self._outgoing.prefix() * self.kv_mgr.kv_args.page_size)

    def init(self, num_kv_indices: int, aux_index: Optional[int] = None) -> None:
        super().init(num_kv_indices, aux_index)
        self._outgoing.begin(num_kv_indices)

    def send(self, kv_indices: Any, state_indices: Optional[List[Any]] = None, num_kv_tokens: Optional[int] = None) -> None:
        if self.conclude_state in (KVPoll.Success, KVPoll.Failed):
            return
        kv_indices, _, last, _ = self._prepare_send_indices(kv_indices, state_indices)
        event = self._early_send_wait_event  # of what has to be computed first, where SGLang sends it early
        self._early_send_wait_event = None
        settled = (lambda: None) if event is None else event.synchronize
        self._outgoing.add([int(page) for page in kv_indices], self.aux_index if last else None, settled)
        self._record_transfer_indices(kv_indices, None)

    def poll(self) -> Any:
        status = self._poll_with_status(self._status)
        if status == KVPoll.Failed:
            self._outgoing.quit()
        return status

    def _status(self, room: int) -> Any:
        state = self._outgoing.state()
        if state == DONE:
            self.kv_mgr.update_status(room, KVPoll.Success)
        elif state == FAILED:
            why = self._outgoing.why or "decode has aborted it, or could not be written to; the log tells which"
            _record(self.kv_mgr, room, why)
        elif self._outgoing.has_begun():
            self.kv_mgr.update_status(room, KVPoll.Transferring)
        elif self._outgoing.is_asked():
            self.kv_mgr.update_status(room, KVPoll.WaitingForInput)
        return self.kv_mgr.check_status(room)

    def clear(self) -> None:
        super().clear()
        self._outgoing.quit()

    def abort(self) -> None:
        """SGLang gives pages back next."""
        super().abort()
        self._outgoing.quit()


class TransferEngineKVReceiver(CommonKVReceiver):
    """A request on a decode server. When it has failed, TransferEngineKVManager.is_abort_release_safe() tells of its pages."""

    _incoming: Optional[Incoming] = None
    _prefill: Optional[Address] = None

    def init(self, prefill_dp_rank: int) -> None:
        info = self.kv_mgr.prefill_info_table.get(self.bootstrap_addr)
        why = None if info is None else _config.mismatch(self.kv_mgr.attn_tp_size, info)
        if why is not None:
            self._fail(why)
            return
        super().init(prefill_dp_rank)
        if self.conclude_state == KVPoll.Failed:
            return
        try:
            self._prefill = address(self.bootstrap_infos[0].get(_ENGINE))
        except ValueError as e:
            self._fail(f"{e}: start both servers with --disaggregation-transfer-backend transfer_engine")

    def _fail(self, why: str) -> None:
        """The first reason stays. What is known of the prefill server is asked for anew by the next request."""
        _record(self.kv_mgr, self.bootstrap_room, why)
        self.invalidate_cached_bootstrap_infos()

    def _register_kv_args(self) -> bool:
        return self.bootstrap_infos is not None  # each want has all that there is to tell

    def send_metadata(
        self,
        kv_indices: Any,
        aux_index: Optional[int] = None,
        state_indices: Optional[List[Any]] = None,
        decode_prefix_len: Optional[int] = None,
        destination: Any = KVTransferDestination.DEVICE,
    ) -> None:
        if destination != KVTransferDestination.DEVICE:
            raise NotImplementedError("transfer_engine writes to the device's pages alone")
        size, prefix = self.kv_mgr.kv_args.page_size, decode_prefix_len or 0
        if self._prefill is None or aux_index is None or prefix % size:
            self._fail(f"no prefill server, no row of metadata, or a prefix of {prefix} tokens that ends within a page of {size}")
            return
        pages = [int(page) for page in kv_indices]
        self._incoming = self.kv_mgr.rank.receive(self.bootstrap_room, self._prefill, prefix // size, pages, int(aux_index))
        self.init_time = time.time()  # SGLang counts from here how long it waits

    def _poll(self) -> Any:
        end = None if self._incoming is None else self._incoming.end
        if end == DONE:
            self.kv_mgr.update_status(self.bootstrap_room, KVPoll.Success)
        elif end is not None and self.conclude_state is None:
            self._fail(_ENDS[end])
        return super()._poll()

    def _send_abort_notification(self, *, force_arm: bool = False) -> None:
        if self._incoming is not None:
            self._incoming.abort()
        elif self._prefill is not None:
            self.kv_mgr.rank.release(self.bootstrap_room, self._prefill)

    def _clear(self) -> None:
        super()._clear()
        if self._incoming is not None:
            self._incoming.abort()


class TransferEngineKVBootstrapServer(CommonKVBootstrapServer):
    """SGLang's, which tells of each rank the name and the incarnation of its engine, too."""

    def __init__(self, host: str, port: int) -> None:
        self._engines: Dict[str, Any] = {}  # by the address that a rank has given
        super().__init__(host, port)

    async def _handle_route_put(self, request: web.Request) -> web.Response:
        told = await request.json()
        answer: web.Response = await super()._handle_route_put(request)
        if answer.status == 200:
            self._engines[f"{told['rank_ip']} {told['rank_port']}"] = told.get(_ENGINE)
        return answer

    async def _handle_route_get(self, request: web.Request) -> web.Response:
        answer: web.Response = await super()._handle_route_get(request)
        if answer.status != 200:
            return answer
        told = json.loads(answer.text or "{}")
        engine = self._engines.get(f"{told.get('rank_ip')} {told.get('rank_port')}")
        return answer if engine is None else web.json_response({**told, _ENGINE: engine})
