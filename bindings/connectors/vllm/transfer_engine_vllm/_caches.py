# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of KV caches are, and whether those of a peer hold the same in the same order."""

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._protocol import Want
from ._sending import Moves

# Of a layer: how a block is laid out, bytes from a block to the next, bytes of one, and where its parts begin.
Places = Dict[str, List[Any]]


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


def spans(layers: Places, blocks: int) -> List[Tuple[int, int]]:
    """The memory of all layers, of which some may lie between each other: addresses and lengths."""
    found: List[Tuple[int, int]] = []
    for begin, end in sorted(
        (base, base + (blocks - 1) * step + length) for _, step, length, *bases in layers.values() for base in bases
    ):
        if found and begin < sum(found[-1]):
            begin, end = found[-1][0], max(end, sum(found.pop()))
        found.append((begin, end - begin))
    return found


def settled(cache: Any) -> Callable[[], Any]:
    """A wait for what the device was told until now; on a CPU there is nothing to wait for."""
    if cache.device.type == "cpu":
        return lambda: None
    import torch  # pylint: disable=import-outside-toplevel

    event = torch.cuda.Event(blocking=True)  # so that the thread sleeps, and does not take a core
    event.record()
    return event.synchronize


def refuses(ours: Places, places: Any, last: int) -> Optional[str]:
    """Why blocks of these layers cannot be written to those of a peer, if that is so; `last` is the highest number of one."""
    if not isinstance(places, dict) or places.keys() != ours.keys():
        return "the layers there have other names: both servers need the same model and vLLM"
    for layer, theirs in places.items():
        if not isinstance(theirs, list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in theirs[1:]):
            return f"{layer}: the places there are not numbers"
        if len(theirs) != len(ours[layer]) or (theirs[0], theirs[2]) != (ours[layer][0], ours[layer][2]):
            return (f"{layer}: a block there is '{theirs[:1]}' and here '{ours[layer][:1]}': both servers need the same "
                    "--block-size, --kv-cache-dtype, --tensor-parallel-size and attention backend")
        if max(theirs[3:]) + last * theirs[1] + theirs[2] >= 1 << 64:
            return f"{layer}: block {last} there ends beyond all memory"
    return None


def moves(layers: Places, layer: str, first: int, blocks: List[int], want: Want) -> Moves:
    """Of those blocks of a layer that are wanted; `first` is the place of the first one in the request."""
    ours, theirs = layers[layer], want.places[layer]
    begin, end = max(first, want.first), min(first + len(blocks), want.first + len(want.blocks))
    pairs = [(blocks[i - first], want.blocks[i - want.first]) for i in range(begin, end)]
    here = [base + block * ours[1] for base in ours[3:] for block, _ in pairs]
    there = [base + block * theirs[1] for base in theirs[3:] for _, block in pairs]
    return Moves(here, there, [ours[2]] * len(here))
