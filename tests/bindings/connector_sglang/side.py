# SPDX-License-Identifier: Apache-2.0
"""A rank of the backend for SGLang in a process of its own, without SGLang: pages and rows of bytes that follow from the prompt."""
import json
import os
import sys
import types

import memory
import standin
import te_proc as te

CONNECTOR = os.path.join(te.SRC, "bindings", "connectors", "sglang")
PAGES, SIZE, ROWS = 64, 4096, 8  # pages of a layer, bytes of one, rows of metadata
WIDTHS = 64, 192  # of the two kinds of rows
SECONDS = {f"{name}_s": 3600 for name in ("hold", "lease", "lost", "write", "fence", "settle")}


def install():
    sys.path[:0] = [CONNECTOR, os.path.join(te.SRC, "bindings", "python")]


def args(caches, rows, size=SIZE):
    """KVArgs, as far as the backend looks at them."""
    return types.SimpleNamespace(
        kv_data_ptrs=[cache.data_ptr() for cache in caches], kv_data_lens=[PAGES * size for _ in caches],
        kv_item_lens=[size for _ in caches], aux_data_ptrs=[row.data_ptr() for row in rows],
        aux_data_lens=[ROWS * width for width, _ in zip(WIDTHS, rows)], aux_item_lens=list(WIDTHS[:len(rows)]))


class Side:
    def __init__(self, sends, extra=None, port=0, at=0, layers=3, size=SIZE, kind="k", model="a model", rows=2):
        from transfer_engine_sglang import _config, _pages, _rank
        given = {"peers": ["127.0.0.1"], "port": port, **SECONDS, **(extra or {})}
        options = _config.options({_config.VARIABLE: json.dumps(given)}, "127.0.0.1", model)
        self.caches = memory.fixed(at, layers, (PAGES, size)) if at else [memory.cache((PAGES, size), False) for _ in range(layers)]
        self.rows = [memory.cache((ROWS, width), False) for width in WIDTHS[:rows]]
        self.size, self.rooms, self.wants = size, {}, {}
        self.rank = _rank.Rank(options, port, _pages.Pages(args(self.caches, self.rows, size), kind), sends)
        self.exchange = self.rank.exchange

    def address(self):
        return list(self.rank.address)

    # ---------------------------------------------------------------------------------- memory

    def _at(self, page):
        return [cache.data_ptr() + page * self.size for cache in self.caches]

    def compute(self, prompt, first, pages):
        for place, page in enumerate(pages, first):
            for layer, at in enumerate(self._at(page)):
                memory.put(at, memory.noise((prompt, layer, place), self.size))

    def write_row(self, prompt, row):
        for kind, cache in enumerate(self.rows):
            memory.put(cache.data_ptr() + row * WIDTHS[kind], memory.noise((prompt, "row", kind), WIDTHS[kind]))

    def wrong(self, prompt, first, pages, row=None):
        """How many pages and rows are not what they ought to be."""
        count = sum(memory.get(at, self.size) != memory.noise((prompt, layer, place), self.size)
                    for place, page in enumerate(pages, first) for layer, at in enumerate(self._at(page)))
        if row is not None:
            count += sum(memory.get(cache.data_ptr() + row * WIDTHS[kind], WIDTHS[kind]) !=
                         memory.noise((prompt, "row", kind), WIDTHS[kind]) for kind, cache in enumerate(self.rows))
        return count

    def fill(self, byte, pages=range(PAGES)):
        for page in pages:
            for at in self._at(page):
                memory.put(at, bytes([byte]) * self.size)

    def untouched(self, byte, pages=range(PAGES)):
        whole = bytes([byte]) * self.size
        return all(memory.get(at, self.size) == whole for page in pages for at in self._at(page))

    # ---------------------------------------------------------------------------------- prefill

    def send(self, room):
        self.rooms[room] = self.rank.send(room)

    def asked(self, room):
        return self.rooms[room].is_asked()

    def prefix(self, room):
        return self.rooms[room].prefix()

    def announce(self, room, pages):
        self.rooms[room].begin(pages)

    def add(self, room, pages, row=None):
        self.rooms[room].add(pages, row, lambda: None)

    def sent(self, room):
        return self.rooms[room].state()

    def why(self, room):
        return self.rooms[room].why

    def quit(self, room):
        self.rooms[room].quit()

    # ----------------------------------------------------------------------------------- decode

    def want(self, room, peer, first, pages, row):
        self.wants[room] = self.rank.receive(room, tuple(peer), first, pages, row)

    def outcome(self, room):
        return self.wants[room].end

    def abort(self, room):
        self.wants[room].abort()

    def release(self, room, peer):
        self.rank.release(room, tuple(peer))

    def quiet(self, room):
        return self.rank.is_quiet(room)

    # --------------------------------------------------------------------------- looks into the backend

    def limit(self, **seconds):
        for side in (self.exchange.sender, self.exchange.receiver):
            side.limits = side.limits._replace(**seconds)

    def under_way(self):
        """A WRITE that has begun and not ended."""
        return any(sending.batch is not None for sending in self.exchange.sender._sendings.values())

    def fencing(self):
        """A WRITE that has ended and is not known to be over at the peer."""
        with self.exchange.lock:
            return bool(self.exchange.sender._doubts.all())

    def known(self, room):
        """Decode's want has come."""
        with self.exchange.lock:
            return self.exchange.sender._known(str(room))[1] is not None

    def close(self):
        self.rank.close()


def serve(pipe, _):
    install()
    from transfer_engine_sglang import _rank
    _rank.CLOSE_S = te.HANG_S
    standin.serve(pipe, Side)
