# SPDX-License-Identifier: Apache-2.0
"""The class that vLLM makes, once in its scheduler and once in each worker."""

import sys
from typing import Any, Dict, Optional, Set, Tuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
)

from ._config import config
from ._metadata import Handshake, Kept, Metadata
from ._scheduler import Scheduler
from ._worker import Worker


class TransferEngineConnector(KVConnectorBase_V1):
    """Prefill writes the blocks of a request to where decode wants them, layer by layer while later ones compute.

    README.md tells the options of kv_connector_extra_config.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        found = config(vllm_config, kv_cache_config)
        self._metadata: Optional[Metadata] = None
        self._scheduler: Optional[Scheduler] = None
        self._worker: Optional[Worker] = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = Scheduler(found)
        else:
            self._worker = Worker(found)

    # ------------------------------------------------------------------------------- in the scheduler

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Tuple[Optional[int], bool]:
        assert self._scheduler is not None
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Metadata:
        assert self._scheduler is not None
        return self._scheduler.step(scheduler_output)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.keeping.pool = gpu_block_pool

    def update_connector_output(self, connector_output: Any) -> None:
        assert self._scheduler is not None
        self._scheduler.ended(connector_output)

    def request_finished(self, request: Any, block_ids: Any) -> Tuple[bool, Optional[Dict[str, Any]]]:
        assert self._scheduler is not None
        return self._scheduler.finished(request)

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.waits()

    def set_xfer_handshake_metadata(self, metadata: Dict[int, Handshake]) -> None:
        assert self._scheduler is not None
        self._scheduler.ranks = [metadata[rank].address for rank in sorted(metadata)]

    # --------------------------------------------------------------------------------- in the workers

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        assert self._worker is not None
        self._worker.register(kv_caches)

    def get_handshake_metadata(self) -> Optional[Handshake]:
        return None if self._worker is None else Handshake(self._worker.address)

    def handle_preemptions(self, kv_connector_metadata: Metadata) -> None:
        assert self._worker is not None
        self._worker.preempted(kv_connector_metadata.preempted)

    def bind_connector_metadata(self, connector_metadata: Metadata) -> None:
        assert self._worker is not None
        super().bind_connector_metadata(connector_metadata)
        self._metadata = connector_metadata
        self._worker.begin(connector_metadata)

    def clear_connector_metadata(self) -> None:
        super().clear_connector_metadata()
        self._metadata = None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        assert self._worker is not None and self._metadata is not None
        self._worker.load(self._metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A request is not scheduled before all of its layers are there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        assert self._worker is not None and self._metadata is not None
        self._worker.save(self._metadata, layer_name)

    def wait_for_save(self) -> None:
        """Sends what save_kv_layer() was not called for, and waits for nothing: blocks are kept until they are sent."""
        assert self._worker is not None and self._metadata is not None
        if sys.exc_info()[0] is None:
            self._worker.saved(self._metadata)
        else:  # vLLM calls this while an exception leaves the step, too
            self._worker.raised(self._metadata)

    def get_transfer_results(self, finished_req_ids: Set[str]) -> KVConnectorTransferResults:
        assert self._worker is not None
        sent, received, failed = self._worker.results(finished_req_ids)
        return KVConnectorTransferResults(finished_sending=sent, finished_recving=received, failed_recving=failed)

    def build_connector_worker_meta(self) -> Optional[Kept]:
        return None if self._worker is None else self._worker.kept()

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Dict[str, Any]) -> bool:
        """Within a graph of the whole model nobody would call save_kv_layer(), which only `layerwise` needs."""
        return bool(extra_config.get("layerwise", True))

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """The caches are registered once, and blocks may be kept for long."""
        return False
