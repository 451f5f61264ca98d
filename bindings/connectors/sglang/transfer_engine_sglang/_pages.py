# SPDX-License-Identifier: Apache-2.0
"""Where pages of the KV cache are, and rows of the metadata that prefill hands over with them.

Pages and the one row of a request are wanted as one list, the row last: it has a place of its own there, behind all pages.
"""

from typing import Any, List, Optional, Tuple

from . import _places
from ._places import Places
from ._protocol import Want
from ._sending import Moves

MOST_MOVES = 32768  # in one WRITE

Run = Tuple[int, int, int]  # the first page here, the first one there, and how many follow each other in both


class Pages:
    """Of KVArgs. `kind`: what neither addresses nor lengths tell of the numbers in pages."""

    def __init__(self, args: Any, kind: str) -> None:
        self.kv = _layers("kv", f"{kind} page", args.kv_data_ptrs, args.kv_item_lens)
        self.rows = _layers("row", "row", args.aux_data_ptrs, args.aux_item_lens)
        self.all: Places = {**self.kv, **self.rows}
        begins, lengths = [*args.kv_data_ptrs, *args.aux_data_ptrs], [*args.kv_data_lens, *args.aux_data_lens]
        self.memory = list(zip(begins, lengths))
        if not self.kv or len(self.kv) != len(args.kv_data_lens) or len(self.rows) != len(args.aux_data_lens):
            raise ValueError(f"{len(self.kv)} layers of a cache, {len(self.rows)} rows of metadata, and other numbers of lengths")
        self.count = min(size // length for size, length in zip(args.kv_data_lens, args.kv_item_lens))

    def groups(self, pages: int) -> List[List[str]]:
        """Layers of the cache, so many in one WRITE that it has no more than MOST_MOVES of so many pages."""
        names, each = list(self.kv), max(1, MOST_MOVES // max(pages, 1))
        return [names[i:i + each] for i in range(0, len(names), each)]

    def refuses(self, places: Any, blocks: List[int]) -> Optional[str]:
        return _places.refuses(self.all, places, max(blocks, default=0), "options of speculative decoding and of metadata",
                               "--page-size, --kv-cache-dtype, --tp-size and attention backend")

    def moves(self, names: List[str], first: int, pages: List[int], want: Want) -> Moves:
        """Of those layers or rows; `first` is the place of the first page in the request. Pages that follow each other go as one."""
        whole = Moves([], [], [])
        found = runs(first, pages, want)
        for name in names:
            (_, step, length, base), (_, there_step, _, there) = self.all[name], want.places[name]
            joined = step == length == there_step
            for ours, theirs, count in found:
                for i in range(1 if joined else count):
                    whole.ours.append(base + (ours + i) * step)
                    whole.theirs.append(there + (theirs + i) * there_step)
                    whole.lengths.append(length * count if joined else length)
        return whole


def _layers(name: str, layout: str, bases: List[int], lengths: List[int]) -> Places:
    if len(bases) != len(lengths):
        raise ValueError(f"{len(bases)} addresses of {name} and {len(lengths)} lengths")
    pairs = enumerate(zip(map(int, bases), map(int, lengths)))
    return {f"{name}.{i}": [f"{layout} of {length} bytes", length, length, base] for i, (base, length) in pairs}


def runs(first: int, pages: List[int], want: Want) -> List[Run]:
    """What of these pages is wanted."""
    begin, end = max(first, want.first), min(first + len(pages), want.first + len(want.blocks))
    found: List[Run] = []
    for i in range(begin, end):
        ours, theirs = pages[i - first], want.blocks[i - want.first]
        if found and ours == found[-1][0] + found[-1][2] and theirs == found[-1][1] + found[-1][2]:
            found[-1] = (*found[-1][:2], found[-1][2] + 1)
        else:
            found.append((ours, theirs, 1))
    return found
