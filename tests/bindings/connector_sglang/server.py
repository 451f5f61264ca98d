# SPDX-License-Identifier: Apache-2.0
"""A server of SGLang's in a process of its own, without a model: its manager's base, bootstrap server, metadata buffers and,
for decode, its queue of transfers, which takes pages back. What gives these to the allocator is the test's."""
import argparse
import json
import os
import socket
import types
from unittest import mock

import side
import standin
import te_proc as te
from side import PAGES, ROWS, SIZE

HELD = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT"


class Server(side.Side):
    def __init__(self, mode, bootstrap, port=0, layers=3, extra=None):  # pylint: disable=super-init-not-called
        from sglang.srt.disaggregation.utils import DisaggregationMode, KVClassType, MetadataBuffers, TransferBackend
        from sglang.srt.managers import disagg_service
        from sglang.srt.plugins import load_plugins
        from sglang.srt.runtime_context import get_context, get_parallel
        import torch
        load_plugins()
        given = {"peers": ["127.0.0.1"], "port": port, **side.SECONDS, **(extra or {})}
        os.environ.update({"TRANSFER_ENGINE_SGLANG": json.dumps(given), HELD: "inf"})
        self.arguments = get_context().override_server_args(
            disaggregation_mode=mode, disaggregation_transfer_backend="transfer_engine", disaggregation_bootstrap_port=bootstrap,
            host="127.0.0.1", page_size=1).install()
        get_parallel().override_permanently(tp_rank=0, pp_rank=0, dp_rank=None, attn_tp_rank=0, attn_cp_rank=0, attn_dp_rank=0,
                                            attn_dcp_rank=0, pp_group=None)
        self.mode, self.kinds, self.backend = DisaggregationMode(mode), KVClassType, TransferBackend("transfer_engine")
        self.get_kv_class, self.address_of_bootstrap = disagg_service.get_kv_class, f"127.0.0.1:{bootstrap}"
        self.metadata = MetadataBuffers(ROWS, hidden_size=16, hidden_states_dtype=torch.float32, max_sampling_mask_tokens=0)
        self.caches, self.size = [torch.zeros((PAGES, SIZE), dtype=torch.uint8) for _ in range(layers)], SIZE
        self.bootstrap = disagg_service.start_disagg_service()
        if self.bootstrap is not None:
            te.until(lambda: not socket.socket().connect_ex(("127.0.0.1", bootstrap)), "the bootstrap server")
        self.manager = self.get_kv_class(self.backend, KVClassType.MANAGER)(self._args(), self.mode, self.arguments, False)
        self.rank, self.exchange = self.manager.rank, self.manager.rank.exchange
        self.requests, self.released = {}, []
        if mode == "decode":
            self._make_queue()

    def _args(self, state=()):
        args = self.get_kv_class(self.backend, self.kinds.KVARGS)()
        given = side.args(self.caches, [])
        args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens = given.kv_data_ptrs, given.kv_data_lens, given.kv_item_lens
        args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens = self.metadata.get_buf_infos()
        args.engine_rank = args.pp_rank = args.prefill_start_layer = args.system_dp_rank = args.gpu_id = 0
        args.kv_cache_dtype_str, args.page_size, args.rust_http_port = "auto", 1, None
        args.state_types, args.state_item_lens, args.state_data_ptrs, args.state_data_lens = list(state), [], [], []
        args.kv_layer_ids, args.ib_device = list(range(len(self.caches))), None
        return args

    def _make_queue(self):
        """SGLang's own, which has a scheduler that does nothing; what it releases is told by its name."""
        from sglang.srt.disaggregation import decode
        from sglang.srt.runtime_context import get_parallel
        import torch.distributed as dist
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        get_parallel().override_permanently(attn_tp_group=types.SimpleNamespace(cpu_group=dist.group.WORLD))
        decode.release_kv_cache = lambda req, cache, checkpoint: self.released.append(req.rid)
        scheduler = mock.MagicMock(enable_decode_hicache=False, enable_hisparse=False, kv_checksum_computer=None,
                                   disagg_decode_prealloc_queue=None)
        scheduler.metrics_reporter.enable_metrics = False
        self.queue = decode.DecodeTransferQueue(mock.Mock(), self.metadata, scheduler, mock.Mock())
        self.request = decode.DecodeRequest

    def plugin(self):
        """What SGLang knows of the backend in a process that has loaded its plugins."""
        from sglang.srt.disaggregation import decode, prefill, utils
        from sglang.srt.server_args import ServerArgs
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        words = ["--model-path", "m", "--disaggregation-transfer-backend", "transfer_engine"]
        hooked = [module.get_kv_class(self.backend, kind).__name__ for module in (utils, decode, prefill)
                  for kind in utils.KVClassType]
        others = utils.get_kv_class(utils.TransferBackend.FAKE, utils.KVClassType.SENDER).__name__
        unknown = False
        try:
            utils.TransferBackend("unknown")
        except ValueError:
            unknown = True
        return (parser.parse_args(words).disaggregation_transfer_backend, repr(self.backend), hooked, others, unknown,
                utils.TransferBackend("transfer_engine") is self.backend)

    def refusal(self, state=(), environment=None, **settings):
        """Why a server of this kind does not start with those."""
        from sglang.srt.runtime_context import get_context
        from transfer_engine_sglang import _conn
        with get_context().override_server_args(**settings), mock.patch.dict(os.environ, environment or {}):
            try:
                return str(_conn._options(self.mode, self._args(state)))
            except ValueError as e:
                return str(e)

    def tell_width(self, ranks):
        """To who asks from now on: that this server has so many ranks."""
        self.bootstrap.attn_tp_size = self.bootstrap._registered_count = ranks

    # ---------------------------------------------------------------------------------- prefill

    def send(self, room):
        self.rooms = getattr(self, "rooms", {})
        kind = self.get_kv_class(self.backend, self.kinds.SENDER)
        self.rooms[room] = kind(mgr=self.manager, bootstrap_addr=self.address_of_bootstrap, bootstrap_room=room)

    def poll(self, room):
        return int(self.rooms[room].poll())

    def announce(self, room, pages, row=5):
        """As SGLang does when the bootstrap is done; how many tokens decode has already."""
        prefix = self.rooms[room].pop_decode_prefix_len()
        self.rooms[room].init(pages, row)
        return prefix

    def add(self, room, pages, row=None):
        import numpy as np
        if row is not None:
            self.metadata.output_ids[row] = room
            self.metadata.bootstrap_room[row, 0] = room
        self.rooms[room].send(np.array(pages, dtype=np.int32), None, num_kv_tokens=len(pages))

    def abort(self, room):
        (self.rooms if self.mode.value == "prefill" else self.requests)[room].abort()

    def why(self, room):
        """Of a request that has failed."""
        try:
            (self.rooms if self.mode.value == "prefill" else self.requests)[room].failure_exception()
        except Exception as e:  # pylint: disable=broad-except
            return str(e)
        return None

    def bytes_sent(self, room):
        return self.rooms[room].get_transfer_metric().transfer_total_bytes

    # ----------------------------------------------------------------------------------- decode

    def ask(self, room):
        """Until SGLang would allot pages: the state then."""
        kind = self.get_kv_class(self.backend, self.kinds.RECEIVER)
        receiver = self.requests[room] = kind(mgr=self.manager, bootstrap_addr=self.address_of_bootstrap, bootstrap_room=room)
        te.until(lambda: self.manager.try_ensure_parallel_info(self.address_of_bootstrap), "the prefill server")
        receiver.init(0)
        return int(receiver.poll())

    def want(self, room, pages, row, prefix=0):
        import numpy as np
        receiver = self.requests[room]
        receiver.send_metadata(np.array(pages, dtype=np.int32), row, [], decode_prefix_len=prefix)
        req = mock.MagicMock(rid=room, bootstrap_room=room, bootstrap_host="127.0.0.1", finished_reason=None, return_logprob=False,
                             return_sampling_mask=False, pd_rebootstrap_in_progress=False, output_ids=[])
        self.queue.add(self.request(req=req, kv_receiver=receiver, metadata_buffer_index=row))

    def step(self):
        """A turn of SGLang's loop: requests that have arrived, those whose pages it has given back, and those that it holds."""
        arrived = [req.rid for req in self.queue.pop_transferred()]
        self.queue.resolve_deferred_releases()
        return arrived, self.released, [entry[0].req.rid for entry in self.queue._deferred_releases]

    def kept(self):
        return len(self.exchange.receiver.kept())

    def handed_over(self, row):
        return int(self.metadata.output_ids[row, 0])

    def lose_node(self):
        """What SGLang does when the bootstrap server does not answer its heartbeat."""
        self.manager._handle_node_failure(self.address_of_bootstrap)

    def close(self):
        self.manager.close()
        if self.bootstrap is not None:
            self.bootstrap.close()


def serve(pipe, _):
    standin.serve(pipe, Server)
