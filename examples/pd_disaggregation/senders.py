# SPDX-License-Identifier: Apache-2.0
"""Two ways to send pages of a cache: by the engine's own interface, and by Mooncake's, as connectors of vLLM and SGLang do.

The side that offers its cache calls expect(), came() and forget() for each request; the side that sends connect()
once, and for each request begin(), layer(), and done() or abort().
"""
import queue
import threading
from array import array

import torch

import transfer_engine as te

OPTIONS = {
    "TE_BIND": "127.0.0.1",  # the address that they listen on, and no other
    "TE_HOST_PATH": "0",  # by TCP, as between two hosts
}
SECONDS = 60


def page_size(cache):
    """Bytes of a page, in one layer."""
    return cache[0, 0].numel() * cache.element_size()


class Native:
    """Each layer is a request, which goes on while the next one is computed, and adds a bit of its own to a counter of
    the other side; that one uses each layer as it comes."""

    counts = True  # nobody needs to be told that all is there

    def __init__(self, cache, offered=False):
        self.cache, self.engine, self.batches = cache, te.Engine(options=OPTIONS), []
        access = te.Access.WRITE if offered else te.Access.LOCAL_ONLY
        self.base = self.engine.register(cache, access=access).address
        self.name = self.engine.name

    def expect(self, number):
        self.counter = self.engine.counter(f"request {number}")

    def came(self, layer):
        """Waits for a layer of the request."""
        while not (have := self.counter.value) >> layer & 1:
            if not self.counter.wait(have + 1, SECONDS):
                raise TimeoutError(f"layer {layer} has not come")

    def forget(self):
        self.counter.close()

    def connect(self, peer, there):
        self.segment, self.there = self.engine.open(peer), there

    def begin(self, number):
        self.adder = self.segment.adder(f"request {number}")

    def layer(self, layer, pages):
        """The first pages of a layer here, to these there. A GPU computes it later than the call that has it computed
        returns: they are sent when its stream has got there, without this thread."""
        stream = torch.cuda.current_stream() if self.cache.is_cuda else None
        size, in_all = page_size(self.cache), self.cache.shape[1]
        ours = te.Pages(self.base + layer * in_all * size, in_all, size)
        theirs = te.Pages(self.there + layer * in_all * size, in_all, size, array("I", pages))
        batch = self.segment.start_pages(te.Opcode.WRITE, ours, theirs, size, timeout=SECONDS, after=stream)
        batch.add_after(self.adder, 1 << layer)
        self.batches.append(batch)

    def done(self):
        """Waits until all is there, and counted."""
        for batch in self.batches:
            batch.result()
        self.adder.flush(SECONDS)
        self.end()

    def abort(self):
        """How many layers were canceled. Afterwards nothing of the request changes the pages there any more."""
        for batch in self.batches:
            batch.cancel()
            batch.wait()
            batch.fence(SECONDS)
        canceled = sum(batch.tasks()[0].state == te.TransferState.CANCELED for batch in self.batches)
        self.end()
        return canceled

    def end(self):
        for batch in self.batches:
            batch.close()
        self.batches.clear()
        self.adder.close()

    def close(self):
        self.engine.close()


class Mooncake:
    """A thread sends what a queue holds by calls that wait; an abort empties the queue and waits for the call. The
    other side is told when all is there."""

    counts = False

    def __init__(self, cache, offered=False):
        self.cache, self.engine, self.queue, self.failed = cache, te.TransferEngine(), queue.Queue(), False
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
            raise OSError("no engine")
        self.name, self.base = f"127.0.0.1:{self.engine.get_rpc_port()}", cache.data_ptr()
        self.engine.register_memory(self.base, cache.numel() * cache.element_size())
        threading.Thread(target=self.send, daemon=True).start()

    def send(self):
        while True:
            moves = self.queue.get()
            self.failed |= self.engine.batch_transfer_sync_write(self.peer, *moves) != 0
            self.queue.task_done()

    def expect(self, number):
        pass

    def came(self, layer):
        pass

    def forget(self):
        pass

    def connect(self, peer, there):
        self.peer, self.there = peer, there

    def begin(self, number):
        pass

    def layer(self, layer, pages):
        size, in_all = page_size(self.cache), self.cache.shape[1]
        if self.cache.is_cuda:
            torch.cuda.current_stream().synchronize()
        ours = [self.base + (layer * in_all + page) * size for page in range(len(pages))]
        theirs = [self.there + (layer * in_all + page) * size for page in pages]
        self.queue.put((ours, theirs, [size] * len(pages)))

    def done(self):
        self.queue.join()
        if self.failed:
            raise OSError("a transfer failed: the log says why")

    def abort(self):
        dropped = 0
        while not self.queue.empty():
            try:
                self.queue.get_nowait()
                self.queue.task_done()
                dropped += 1
            except queue.Empty:
                break
        self.done()
        return dropped

    def close(self):
        self.queue.join()
