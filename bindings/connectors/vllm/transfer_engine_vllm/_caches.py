# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of KV caches are, and whether those of a peer hold the same in the same order."""

import math
from typing import Any, Callable, List, Optional

from . import _places
from ._places import Places


def parts(layer: str, cache: Any, blocks: int, kind: str) -> List[Any]:
    """Of one layer, which has one part, or keys and values apart. `kind`: what no tensor tells of its numbers."""
    if getattr(cache, "device", None) is None or cache.device.type not in ("cpu", "cuda"):
        where = getattr(getattr(cache, "device", None), "type", type(cache).__name__)
        raise ValueError(f"{layer}: a KV cache in memory of kind '{where}'; the connector moves tensors of 'cuda' and 'cpu'")
    shape, strides, item = tuple(cache.shape), cache.stride(), cache.element_size()
    if blocks not in shape[:2]:
        raise ValueError(f"{layer}: a cache of shape {shape}: none of its first two dimensions has {blocks} blocks")
    at = shape[:2].index(blocks)
    apart = at == 1 and strides[0] > strides[1]
    inner = [d for d in range(len(shape)) if d != at and not (apart and d == 0)]
    length = math.prod(shape[d] for d in inner)
    if sum((shape[d] - 1) * strides[d] for d in inner) + 1 != length:
        raise ValueError(f"{layer}: a cache of shape {shape} and strides {strides}: its blocks have gaps")
    layout = f"{kind} {cache.dtype} {[shape[d] for d in inner]} {[strides[d] for d in inner]}"
    bases = [cache.data_ptr() + i * strides[0] * item for i in range(shape[0] if apart else 1)]
    return [layout, strides[at] * item, length * item, *bases]


def settled(cache: Any) -> Callable[[], Any]:
    """A wait for what the device was told until now; on a CPU there is nothing to wait for."""
    if cache.device.type == "cpu":
        return lambda: None
    import torch  # pylint: disable=import-outside-toplevel

    event = torch.cuda.Event(blocking=True)  # so that the thread sleeps, and does not take a core
    event.record()
    return event.synchronize


def refuses(ours: Places, places: Any, last: int) -> Optional[str]:
    """As that of _places.py."""
    options = "--block-size, --kv-cache-dtype, --tensor-parallel-size and attention backend"
    return _places.refuses(ours, places, last, "vLLM", options)
