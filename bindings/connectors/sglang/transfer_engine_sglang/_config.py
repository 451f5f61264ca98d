# SPDX-License-Identifier: Apache-2.0
"""The options, and what of SGLang's the backend refuses when a server starts."""

import ipaddress
import json
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _protocol
from ._peers import Peers
from ._protocol import Limits

VARIABLE = "TRANSFER_ENGINE_SGLANG"
_HELD = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"
# Of get_parallel(): what has to be 1, and the flag that makes it more.
_SINGLE = (("pp_size", "--pp-size"), ("attn_cp_size", "--attn-cp-size"), ("attn_dcp_size", "--dcp-size"))
# Of the server's arguments: what has to be off, the flag, and why.
_OFF = (
    ("enable_kv_cache_sharding", "--enable-kv-cache-sharding", "each rank has a part of the pages"),
    ("enable_hisparse", "--enable-hisparse", "pages are in memory of two kinds"),
    ("enable_unified_memory", "--enable-unified-memory", "pages are moved while others are written to"),
    ("enable_memory_saver", "--enable-memory-saver", "memory goes away while something may be written to it"),
    ("enable_pd_role_switch", "--enable-pd-role-switch", "the one role would end while the other one has its memory"),
)
ARGUMENTS = (*(name for name, _, _ in _OFF), "tokenizer_worker_num")


class Options(NamedTuple):
    """Those of the environment variable TRANSFER_ENGINE_SGLANG."""

    host: str
    port: int  # of the first rank's engine, and of the others those behind it; 0: any
    peers: Peers
    model: str
    lost_share: float  # of all pages, that may be kept
    limits: Limits


def options(environment: Mapping[str, str], host: str, model: str) -> Options:
    """Raises ValueError, which names the option and the remedy. `host` and `model` are what SGLang has."""
    try:
        given = json.loads(environment.get(VARIABLE) or "{}")
        if not isinstance(given, dict):
            raise ValueError("it is not an object of JSON")
        return _options(given, host, model)
    except (TypeError, ValueError) as e:
        raise ValueError(f"the environment variable {VARIABLE}: {e}") from e


def _options(given: Dict[str, Any], host: str, model: str) -> Options:
    known = {f"{name}_s" for name in Limits._fields}
    port, share = given.pop("port", 0), float(given.pop("lost_share", 0.5))
    found = _host(given.pop("host", None) or host)
    peers, model = Peers(given.pop("peers", None)), _protocol.word(given.pop("model", None) or model)
    if given.keys() - known:
        others = ", ".join(sorted(known))
        raise ValueError(f"no option {min(given.keys() - known)}; there are host, lost_share, model, peers, port, {others}")
    limits = Limits(**{name[:-2]: float(value) for name, value in given.items()})
    if not all(0 < seconds < 1e9 for seconds in limits):
        raise ValueError(f"seconds of {limits} are not above 0")
    if not 0 < share <= 1:
        raise ValueError(f"lost_share is {share}: a number above 0 of 1 at most")
    if type(port) is not int or not 0 <= port < 65000:
        raise ValueError(f"port is {port!r}; it is a number below 65000, that of the first rank's engine, or 0 for any")
    return Options(found, port, peers, model, share, limits)


def _host(value: Any) -> str:
    """As peers are to spell it."""
    text = str(value).strip().lower().rstrip(".")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return _protocol.host(bare)
    return str(getattr(found, "ipv4_mapped", None) or found)


def refused(
    args: Any, parallel: Any, arguments: Mapping[str, Any], environment: Mapping[str, str], decodes: bool
) -> Optional[str]:
    """Why this server cannot be served, if that is so. `args`: KVArgs; `arguments`: those of the server that ARGUMENTS names."""
    for name, flag in _SINGLE:
        if getattr(parallel, name) > 1:
            return f"{name} is {getattr(parallel, name)}; start the server without {flag}: only tensors and data may be parallel"
    for name, flag, why in _OFF:
        if arguments[name]:
            return f"{why}; start the server without {flag}"
    if arguments["tokenizer_worker_num"] > 1:
        return "SGLang loads no plugins in tokenizer workers; start the server without --tokenizer-worker-num"
    if args.state_types or getattr(args, "is_hybrid_mla_backend", False):
        kinds = ", ".join(str(getattr(kind, "value", kind)) for kind in args.state_types) or "hybrid MLA"
        return (f"the model has state beside its KV cache ({kinds}), which is not moved; take another backend for models with linear "
                "attention, sliding windows, sparse indexes or scales of blocks")
    if _is_set(environment.get("SGLANG_RUST_SERVER")):
        return "the registry of the Rust server does not tell of engines; start the server without SGLANG_RUST_SERVER"
    return _released_early(environment) if decodes else None


def _is_set(value: Optional[str]) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "y")


def _released_early(environment: Mapping[str, str]) -> Optional[str]:
    """SGLang gives pages of a failed request back after a time, whatever is written to them then, unless it is told not to."""
    try:
        seconds = float(environment.get(f"{_HELD}_TIMEOUT") or 30)
    except ValueError:
        seconds = 30
    if seconds == math.inf and (environment.get(_HELD) is None or _is_set(environment[_HELD])):
        return None
    return ("SGLang would give pages back while something may still be written to them; start the decode server with "
            f"{_HELD}_TIMEOUT=inf in its environment, and without {_HELD}")


def mismatch(ours: int, info: Any) -> Optional[str]:
    """Of the prefill server that a decode server of so many tensor parallel ranks has found: PrefillServerInfo."""
    differs: List[Tuple[str, int, int]] = [
        ("ranks of tensor parallelism (--tp-size by --dp-size)", info.attn_tp_size, ours),
        ("ranks of context parallelism", info.attn_cp_size, 1),
        ("stages of a pipeline (--pp-size)", info.pp_size, 1),
    ]
    for what, theirs, needed in differs:
        if theirs != needed:
            return f"the prefill server has {theirs} {what}, and this one needs {needed}"
    return "the prefill server has --enable-kv-cache-sharding" if info.enable_kv_cache_sharding else None
