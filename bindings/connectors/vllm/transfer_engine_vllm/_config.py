# SPDX-License-Identifier: Apache-2.0
"""What of vLLM's configuration the connector goes by, and what it refuses when the server starts."""

import ipaddress
import os
import socket
from typing import Any, Dict, NamedTuple

from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from . import _protocol
from ._peers import Peers
from ._protocol import Limits

_SINGLE = ("pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size")
_ROLES = {"kv_producer": (True, False), "kv_consumer": (False, True), "kv_both": (True, True)}  # sends, receives
_LOST_SHARE = 0.5


class Options(NamedTuple):
    """Those of kv_connector_extra_config."""

    host: str
    port: int
    peers: Peers
    limits: Limits
    lost_share: float
    layerwise: bool
    model: str


class Config(NamedTuple):
    host: str
    port: int  # of the first worker's engine, and of the others those behind it; 0: any
    peers: Peers
    limits: Limits
    lost_share: float  # of all blocks, that may be kept
    layerwise: bool
    model: str
    workers: int
    rank: int  # of this worker
    blocks: int
    block_size: int  # tokens of a block
    most_tokens: int  # that all blocks have
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
    options = _options(dict(vllm_config.kv_transfer_config.kv_connector_extra_config), vllm_config.model_config)
    size, blocks = _block_size(kv_cache_config), int(kv_cache_config.num_blocks)
    return Config(*options, parallel.tensor_parallel_size, parallel.rank, blocks, size, blocks * size,
                  str(vllm_config.cache_config.cache_dtype), *_ROLES[role])


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


def _options(extra: Dict[str, Any], model_config: Any) -> Options:
    host = _host(extra.pop("host", None) or os.environ.get("VLLM_HOST_IP") or socket.gethostname())
    port, share, layerwise = extra.pop("port", 0), float(extra.pop("lost_share", _LOST_SHARE)), extra.pop("layerwise", True)
    model = extra.pop("model", None) or f"{model_config.model} {model_config.revision or ''}".strip()
    try:
        peers, model = Peers(extra.pop("peers", None)), _protocol.word(model)
    except ValueError as e:
        raise _refused(f"`peers` or `model` of kv_connector_extra_config: {e}") from e
    known = {f"{name}_s" for name in Limits._fields}
    if extra.keys() - known:
        others = "host, layerwise, lost_share, model, peers, port"
        raise _refused(f"no option {min(extra.keys() - known)}; there are {others}, {', '.join(sorted(known))}")
    limits = Limits(**{name[:-2]: float(value) for name, value in extra.items()})
    if not all(0 < seconds < 1e9 for seconds in limits):
        raise _refused(f"seconds of {limits} are not above 0")
    if not 0 < share <= 1 or not isinstance(layerwise, bool):
        raise _refused(f"lost_share is {share} and layerwise {layerwise!r}: a number above 0 of 1 at most, and true or false")
    if type(port) is not int or not 0 <= port < 65000:
        raise _refused(f"port is {port!r}; it is a number below 65000, that of the first worker's engine, or 0 for any")
    return Options(host, port, peers, limits, share, layerwise, model)


def _host(value: Any) -> str:
    """As peers are to spell it. A port in it would be that of all workers."""
    text = str(value).strip().lower().rstrip(".")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        if ":" in bare:
            raise _refused(f"host is {value!r}; it is an address or a name, and `port` is another option") from None
    else:
        bare = str(getattr(found, "ipv4_mapped", None) or found)
    try:
        return _protocol.host(bare)
    except ValueError as e:
        raise _refused(f"host (VLLM_HOST_IP, or the host's name): {e}") from e
