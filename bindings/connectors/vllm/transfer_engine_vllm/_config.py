# SPDX-License-Identifier: Apache-2.0
"""What of vLLM's configuration the connector goes by, and what it refuses when the server starts."""

import os
import socket
from typing import Any, Dict, NamedTuple, Tuple

from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from ._protocol import Limits

_SINGLE = ("pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size")


_ROLES = {"kv_producer": (True, False), "kv_consumer": (False, True), "kv_both": (True, True)}  # sends, receives


class Config(NamedTuple):
    host: str
    limits: Limits
    workers: int
    rank: int  # of this worker
    blocks: int
    block_size: int  # tokens of a block
    cache_dtype: str
    sends: bool
    receives: bool


def config(vllm_config: Any, kv_cache_config: Any) -> Config:
    """Raises ValueError, which names the setting and the remedy."""
    parallel = vllm_config.parallel_config
    for name in _SINGLE:
        if getattr(parallel, name) > 1:
            flag = "--" + name.replace("_", "-")
            raise _refused(f"{name} is {getattr(parallel, name)}; start the server without {flag}: only tensors may be parallel")
    if parallel.use_ubatching:
        raise _refused("microbatches call it for parts of a step; start the server without --enable-dbo and --ubatch-size")
    role = vllm_config.kv_transfer_config.kv_role
    if role not in _ROLES:
        raise _refused(f"kv_role is {role!r}; it is kv_producer (prefill), kv_consumer (decode) or kv_both")
    host, limits = _options(dict(vllm_config.kv_transfer_config.kv_connector_extra_config))
    return Config(host, limits, parallel.tensor_parallel_size, parallel.rank, kv_cache_config.num_blocks,
                  _block_size(kv_cache_config), str(vllm_config.cache_config.cache_dtype), *_ROLES[role])


def _refused(why: str) -> ValueError:
    return ValueError(f"TransferEngineConnector: {why}")


def _block_size(kv_cache_config: Any) -> int:
    """Of caches of which no block is freed while its request runs."""
    groups = kv_cache_config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    kinds = {type(spec) for uniform in specs for spec in getattr(uniform, "kv_cache_specs", {"": uniform}).values()}
    if len(specs) != 1 or not kinds <= {FullAttentionSpec, MLAAttentionSpec}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise _refused(f"it moves one group of KV caches of full attention, and the model has {len(specs)} of {names}; "
                       "try --disable-hybrid-kv-cache-manager")
    if groups[0].host_resident:
        raise _refused("the KV caches are in host memory that no tensor tells of; start the server without their offload")
    return int(specs[0].block_size)


def _options(extra: Dict[str, Any]) -> Tuple[str, Limits]:
    """Of kv_connector_extra_config: `host`, `hold_s`, `lease_s` and so on."""
    host = extra.pop("host", None) or os.environ.get("VLLM_HOST_IP") or socket.gethostname()
    known = {f"{name}_s" for name in Limits._fields}
    if extra.keys() - known:
        raise _refused(f"no option {min(extra.keys() - known)}; there are host, {', '.join(sorted(known))}")
    limits = Limits(**{name[:-2]: float(value) for name, value in extra.items()})
    if not all(0 < seconds < 1e9 for seconds in limits):
        raise _refused(f"seconds of {limits} are not above 0")
    return host, limits
