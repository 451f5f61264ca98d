# SPDX-License-Identifier: Apache-2.0
"""Ends at bad moments: signals, finalizers, views, forks and other threads in the middle of calls."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest
from unittest import mock

import transfer_engine as te
from support import HANG_S, HOST, TCP, Case, signal_in_a_call, state_of, until
from transfer_engine import _batch, _engine, _state
from transfer_engine._memory import span

MIB = 1 << 20
LOG_IS_A_PIPE_OF_OURS = """
import os, threading, time, transfer_engine as te
engine = te.Engine(name="127.0.0.1")
segment, memory = engine.open(engine.name), bytearray(10)
address = engine.register(memory).address
batch = segment.start_write([address], [address], [5])
batch.wait()
there, here = os.pipe()
os.dup2(here, 2)
os.set_blocking(here, False)
try:
    while True:
        os.write(here, b"x")
except BlockingIOError:
    os.set_blocking(here, True)
def read():
    time.sleep(0.2)
    while True:
        os.read(there, 4096)
threading.Thread(target=read, daemon=True).start()
lib, ident = te._native.lib, batch.id
batch.close()
with engine._state.inside:
    handle = engine._state.handle()
    codes = lib.te_batch_free(handle, ident), lib.te_done(handle, None, 1)
    codes += (lib.te_batch_status(handle, ident, None), lib.te_status(handle, ident, 0, None))
print(all(code < 0 for code in codes), flush=True)
os._exit(0)
"""


class Slow:
    """Who connects here is not answered: te_open() waits until end()."""

    OPTIONS = {"MC_HANDSHAKE_CONNECT_TIMEOUT": str(HANG_S)}

    def __init__(self, engine):
        self.socket = socket.socket()
        self.socket.bind((HOST, 0))
        self.socket.listen(8)
        self.engine = engine
        self.thread = threading.Thread(target=self.open)
        self.thread.start()
        self.asks = self.socket.accept()[0]  # now it waits for an answer

    def open(self):
        try:
            self.engine.open("%s:%d" % self.socket.getsockname())
        except te.TransferError:
            pass

    def end(self):
        self.socket.close()
        self.asks.close()
        self.thread.join()


class Closing(Case):
    def setUp(self):
        self.engine = te.Engine(name=HOST, options=Slow.OPTIONS)
        self.addCleanup(self.engine.close)

    def closing(self):
        thread = threading.Thread(target=self.engine.close)
        thread.start()
        until(lambda: self.engine._state.closed)
        return thread

    def test_the_last_view_goes_while_close_waits(self):
        view, found = self.engine.alloc(65536), []
        destroy = _state.lib.te_engine_destroy

        def watched(handle):
            found.append(slow.thread.is_alive())
            destroy(handle)

        slow = Slow(self.engine)
        with mock.patch.object(_state.lib, "te_engine_destroy", watched):
            thread = self.closing()
            del view
            gc.collect()
            self.assertEqual(found, [])
            slow.end()
            thread.join()
        self.assertEqual(len(found), 1)

    def test_whatever_is_closed_meanwhile_waits(self):
        memory = bytearray(8192)
        region, segment = self.engine.register(memory), self.engine.open(self.engine.name)
        batch = segment.start_write([region.address], [region.address + 4096], [100])
        prepared = segment.prepare([region.address], [region.address + 9], [9])
        slow = Slow(self.engine)
        first, found = self.closing(), []

        def close(thing):
            thing.close()
            memory.append(1)  # pinned no more
            found.append(self.engine._state._destroyed)

        things = (self.engine, region, segment, batch, prepared)
        threads = [threading.Thread(target=close, args=(thing,)) for thing in things]
        for thread in threads:
            thread.start()
        until(lambda: {state_of(thread.native_id) for thread in threads} == {"S"})
        self.assertEqual(found, [])
        slow.end()
        for thread in [first, *threads]:
            thread.join()
        self.assertEqual(found, [True] * 5)

    def test_what_was_freed_meanwhile_is_not_canceled(self):
        """The library would log that there is no such batch."""
        memory = bytearray(8192)
        region, segment = self.engine.register(memory), self.engine.open(self.engine.name)
        batch = segment.start_write([region.address], [region.address + 4096], [100])
        batch.wait()
        state, cancel, found = self.engine._state, _state.lib.te_cancel, []

        class Freed(dict):
            """Another thread frees the batches as soon as close() has listed them."""

            def __iter__(self):
                idents = list(self.keys())
                thread = threading.Thread(target=lambda: found.extend(map(state.free, idents)))
                thread.start()
                thread.join()
                return iter(idents)

        def watched(handle, ident):
            found.append(("canceled", cancel(handle, ident)))

        slow = Slow(self.engine)
        state.live = Freed(state.live)
        with mock.patch.object(_state.lib, "te_cancel", watched):
            thread = self.closing()
            until(lambda: found)
            slow.end()
            thread.join()
        self.assertEqual(found, [True])

    def test_from_a_signal_handler(self):
        """The interrupted call ends before its engine does."""
        peer = self.peer(options=TCP)
        remote = peer.register(length=8 * MIB, seed=1)
        engine = te.Engine(name=HOST, options=TCP)
        segment, memory = engine.open(peer.name()), bytearray(8 * MIB)
        engine.register(memory)
        peer.freeze()
        old = signal.signal(signal.SIGALRM, lambda *_: engine.close())
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        with self.assertRaises((te.TransferCanceled, te.EngineClosed)):
            thread = signal_in_a_call(engine, signal.SIGALRM)
            segment.read(memory, remote)
        thread.join()
        engine.close()
        self.assertTrue(engine._state._destroyed)


class Interrupts(Case):
    def setUp(self):
        self.engine = te.Engine(name=HOST)
        self.addCleanup(self.engine.close)
        self.segment = self.engine.open(self.engine.name)
        self.memory = bytearray(1000)
        self.address = self.engine.register(self.memory).address

    def write(self):
        return self.segment.write(self.address, self.address + 500, 100)

    def test_storm(self):
        """However many interrupts there were, what they cut off is put away and close() returns."""

        def interrupt(_, frame):
            if frame.f_globals["__name__"].startswith("transfer_engine"):
                raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda _: None
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0011)
        count = 0
        while count < 500:
            try:
                while True:
                    self.write()
            except KeyboardInterrupt:
                count += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertFalse(self.engine._state.is_inside())
        self.assertEqual(self.write(), 100)
        thread = threading.Thread(target=self.engine.close, daemon=True)
        thread.start()
        thread.join(HANG_S)
        self.assertFalse(thread.is_alive())

    def interrupted(self, module, name):
        """A write that a signal meets just after the library's function of this name."""
        function = getattr(module.lib, name)

        def then_interrupt(*arguments):
            function(*arguments)
            setattr(module.lib, name, function)
            raise KeyboardInterrupt

        setattr(module.lib, name, then_interrupt)
        self.assertRaises(KeyboardInterrupt, self.write)
        gc.collect()

    def test_at_every_call(self):
        for name in ("te_submit", "te_wait", "te_batch_status", "te_batch_free"):
            self.interrupted(_batch, name)
            for _ in range(500):
                self.assertEqual(self.write(), 100)
                if not self.engine._state.live:
                    break
            self.assertEqual(self.engine._state.live, {}, name)

    def test_the_log_may_be_a_pipe_that_this_process_reads(self):
        done = subprocess.run(
            [sys.executable, "-c", LOG_IS_A_PIPE_OF_OURS],
            env={**os.environ, "MC_LOG_LEVEL": "WARNING"},  # the library's own, on standard error
            stdout=subprocess.PIPE,
            timeout=HANG_S,
        )
        self.assertEqual(done.stdout, b"True\n")


class References(Case):
    def test_batches_outlive_the_name_of_their_engine(self):
        with te.Engine(name=HOST) as theirs:
            there = theirs.register(bytearray(MIB))

            def start(prepared):
                engine, memory = te.Engine(name=HOST), bytearray(MIB)
                region, segment = engine.register(memory), engine.open(theirs.name)
                if prepared:
                    return segment.prepare([region.address], [there.address], [MIB])
                return segment.start_write([memory], [there.address])

            self.assertEqual(start(False).result(), MIB)
            self.assertEqual(start(True).start(te.Opcode.WRITE).result(), MIB)

    def test_a_cycle(self):
        class Cycle:
            pass

        def make():
            cycle = Cycle()
            cycle.engine, cycle.itself = te.Engine(name=HOST), cycle
            address = cycle.engine.register(bytearray(100)).address
            segment = cycle.engine.open(cycle.engine.name)
            return segment.start_write([address] * 3000, [address + 50] * 3000, [1] * 3000)

        batch = make()
        batch.wait()
        state = batch._state
        self.assertEqual(len(batch.tasks()), 3000)
        del batch
        gc.collect()
        self.assertTrue(state._destroyed)

    def test_two_threads_wait_for_one_batch(self):
        with te.Engine(name=HOST) as engine, engine.open(engine.name) as segment:
            address = engine.register(bytearray(MIB)).address
            failures = []

            def wait(batch):
                try:
                    batch.wait()
                    batch.close()
                except te.TransferError as e:
                    failures.append(e)

            for _ in range(200):
                batch = segment.start_write([address], [address + MIB // 2], [MIB // 2])
                thread = threading.Thread(target=wait, args=(batch,))
                thread.start()
                with batch:
                    batch.wait()
                thread.join()
            self.assertEqual(failures, [])
            segment.write(address, address + 10, 10)
            self.assertEqual(len(engine._state.live), 0)

    def test_a_child_takes_no_lock_of_another_thread(self):
        engine = te.Engine(name=HOST)
        self.addCleanup(engine.close)
        held, go_on = threading.Event(), threading.Event()

        def hold():
            with engine._reactor._lock, engine._state._lock, engine._state._closer:
                with _state.shared.lock:
                    held.set()
                    go_on.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                with te.Engine(name=HOST) as own:
                    own.stats()
                engine.close()
                os._exit(7)
            finally:
                os._exit(1)
        go_on.set()
        thread.join()
        try:
            until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        finally:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        self.assertEqual(os.WEXITSTATUS(status), 7)


class Registrations(Case):
    def test_registered_anew_while_unregister_returns(self):
        with te.Engine(name=HOST) as engine:
            memory = bytearray(8192)
            region = engine.register(memory)
            unregister = _engine.lib.te_unregister_batch

            def and_again(*arguments):
                rc = unregister(*arguments)
                thread = threading.Thread(target=engine.register, args=(memory,))
                thread.start()
                thread.join()
                return rc

            with mock.patch.object(_engine.lib, "te_unregister_batch", and_again):
                region.close()
            self.assertEqual(engine.stats()["regions"], 1)
            self.assertRaises(BufferError, memory.append, 1)
            engine.unregister(region.address)
            memory.append(1)
            self.assertEqual(engine._state.pins, {})

    def test_what_could_not_be_unregistered_is_kept(self):
        peer = self.peer(options=TCP)
        remote = peer.register(length=8 * MIB, seed=1)
        with te.Engine(name=HOST, options=TCP) as engine:
            busy, idle = bytearray(8 * MIB), bytearray(100)
            addresses = [r.address for r in engine.register_many([busy, idle])]
            segment = engine.open(peer.name())
            peer.freeze()
            with segment.start_read([addresses[0]], [remote], [8 * MIB]):
                with self.assertRaises(te.RequestError) as caught:
                    engine.unregister(*addresses, 4096)
                self.assertEqual(caught.exception.name, "TE_ERR_BUSY")
                idle.append(1)
                self.assertRaises(BufferError, busy.append, 1)
            engine.unregister(addresses[0])
            busy.append(1)
            self.assertRaises(te.RequestError, engine.register_many, [busy, busy])
            busy.append(1)

    def test_what_is_out_of_range(self):
        with te.Engine(name=HOST) as engine, engine.open(engine.name) as segment:
            memory = bytearray(100)
            address = engine.register(memory).address
            wraps = (1 << 64) + address
            for call in (
                lambda: engine.alloc((1 << 64) + 4096),
                lambda: engine.alloc(-5),
                lambda: engine.register(wraps, 10),
                lambda: engine.unregister(wraps),
                lambda: engine.start([(te.Opcode.WRITE, memory, segment, wraps, 10)]),
                lambda: engine.explain(te.Opcode.WRITE, memory, segment, wraps, 10),
                lambda: segment.write(memory, wraps, 10),
                lambda: segment.write(wraps, address, 10),
            ):
                self.assertRaises(OverflowError, call)
            nan = float("nan")
            for call in (
                lambda: te.Engine(name=HOST, port=-1),
                lambda: te.Engine(name=HOST, port=1 << 33),
                lambda: engine.register_many([memory], [10, 20]),
                lambda: engine.register_many([memory, memory], [10]),
                lambda: engine.start([(1 << 32, memory, segment, address, 10)]),
                lambda: segment.write(memory, address, 10, timeout=nan),
                lambda: segment.start_write([memory], [address]).wait(nan),
            ):
                self.assertRaises(ValueError, call)
            for forever in (float("inf"), 1e30):
                self.assertEqual(segment.write(span(memory).address, address, 5, timeout=forever), 5)
            self.assertEqual(len(engine._state.views), 0)
            self.assertEqual(len(engine._state.pins), 1)

    def test_a_message_with_nothing(self):
        with te.Engine(name=HOST) as engine, te.Engine(name=HOST) as other:
            segment = engine.open(other.name)
            self.assertEqual(segment.start_write([], [], notify=("none", "0")).result(), 0)
            self.assertEqual(other.notifications(), [("none", "0")])


if __name__ == "__main__":
    unittest.main()
