# SPDX-License-Identifier: Apache-2.0
"""Two ways to send pages of a cache: by the engine's own interface, and by Mooncake's, as connectors of vLLM and SGLang do.

Both have open() for the side that offers memory and, for the side that sends, layer(), done() and abort().
"""
import queue
import threading

import transfer_engine as te

LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other
SECONDS = 60


class Native:
    """Each layer is a batch, which goes on while the next one is computed; an abort cancels those under way."""

    def __init__(self, memory, access=te.Access.LOCAL_ONLY):
        self.engine = te.Engine(options=LOOPBACK)
        self.engine.register(memory, access=access)
        self.name, self.batches, self.segment = self.engine.name, [], None

    def layer(self, peer, ours, theirs):
        self.segment = self.segment or self.engine.open(peer)
        self.batches.append((self.segment.start_write(ours, theirs, timeout=SECONDS), ours, theirs))

    def done(self):
        for batch, _, _ in self.batches:
            batch.result()
            batch.close()
        self.batches.clear()

    def abort(self):
        """How many pieces were canceled. Afterwards the pages may be used for anything: a WRITE to a place of one that
        has been canceled is completed only when nothing of that can arrive any more, so a few bytes to each page do."""
        canceled = 0
        for batch, _, _ in self.batches:
            batch.cancel()
            batch.wait()
            canceled += sum(task.state == te.TransferState.CANCELED for task in batch.tasks())
            batch.close()
        for _, ours, theirs in self.batches:
            with self.segment.start_write([page[0, 0, 0] for page in ours], theirs, timeout=SECONDS) as fence:
                fence.result()
        self.batches.clear()
        return canceled

    def close(self):
        self.engine.close()


class Mooncake:
    """A thread sends what a queue holds by calls that wait; an abort empties the queue and waits for the call."""

    def __init__(self, memory, access=None):
        self.engine, self.queue, self.failed = te.TransferEngine(), queue.Queue(), False
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
            raise OSError("no engine")
        self.name = f"127.0.0.1:{self.engine.get_rpc_port()}"
        self.engine.register_memory(memory.data_ptr(), memory.numel() * memory.element_size())
        threading.Thread(target=self.send, daemon=True).start()

    def send(self):
        while True:
            peer, ours, theirs = self.queue.get()
            lengths = [page.numel() * page.element_size() for page in ours]
            addresses = [page.data_ptr() for page in ours]
            self.failed |= self.engine.batch_transfer_sync_write(peer, addresses, theirs, lengths) != 0
            self.queue.task_done()

    def layer(self, peer, ours, theirs):
        self.queue.put((peer, ours, theirs))

    def done(self):
        self.queue.join()
        if self.failed:
            raise OSError("a transfer failed: the log says why")

    def abort(self):
        dropped = 0
        while not self.queue.empty():
            try:
                dropped += len(self.queue.get_nowait()[1])
                self.queue.task_done()
            except queue.Empty:
                break
        self.done()
        return dropped

    def close(self):
        self.queue.join()
