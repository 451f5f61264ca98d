# SPDX-License-Identifier: Apache-2.0
"""Where blocks are here and at a peer, whether both hold the same in the same order, and what is to be written where."""

from typing import Any, Dict, List, Optional, Tuple

from ._protocol import Want
from ._sending import Moves

# Of a layer: how a block is laid out, bytes from a block to the next, bytes of one, and where its parts begin.
Places = Dict[str, List[Any]]


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


def refuses(ours: Places, places: Any, last: int, server: str, options: str) -> Optional[str]:
    """Why blocks of these layers cannot be written to those of a peer, if that is so; `last` is the highest number of one.

    Both have to be started with the same model and `server`, and with the same `options`."""
    if not isinstance(places, dict) or places.keys() != ours.keys():
        return f"the layers there have other names: both servers need the same model and {server}"
    for layer, theirs in places.items():
        if not isinstance(theirs, list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in theirs[1:]):
            return f"{layer}: the places there are not numbers"
        if len(theirs) != len(ours[layer]) or (theirs[0], theirs[2]) != (ours[layer][0], ours[layer][2]):
            return (f"{layer}: a block there is '{theirs[:1]}' and here '{ours[layer][:1]}': both servers need the same "
                    f"{options}")
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
