# SPDX-License-Identifier: Apache-2.0
"""Counters that a peer raises behind its batches: waiting in threads and loops, closing, peers that are stopped."""

import asyncio
import threading
import unittest

import transfer_engine as te
from peer import noise
from support import HANG_S, HOST, TCP, Case, is_in, until

LAYERS, SIZE = 8, 98765


class Counters(Case):
    def setUp(self):
        self.here = te.Engine(name=HOST, options=TCP)
        self.addCleanup(self.here.close)
        self.there = te.Engine(name=HOST, options=TCP)
        self.addCleanup(self.there.close)
        self.segment = self.here.open(self.there.name)

    def add(self, adder, n):
        """At once: behind a batch of nothing."""
        with self.segment.start_write([], []) as batch:
            batch.add_after(adder, n)
        adder.flush(HANG_S)

    def layers(self, counter):
        """Starts to write LAYERS pieces, each with an addition of its own, and gives what is written where."""
        ours, theirs = self.here.alloc(LAYERS * SIZE), self.there.alloc(LAYERS * SIZE)
        ours[:] = noise(3, LAYERS * SIZE)
        self.here.register(ours)
        remote = self.there.register(theirs).address
        adder = self.segment.adder(counter.name)
        batches = []
        for i in range(LAYERS):
            piece = ours[i * SIZE : (i + 1) * SIZE]
            batches.append(self.segment.start_write([piece], [remote + i * SIZE]))
            batches[-1].add_after(adder, 1 << i)
        return ours, theirs, batches

    def check_layers(self, value, ours, theirs):
        """Those that the counter says to be there."""
        for i in range(LAYERS):
            if value >> i & 1:
                at = slice(i * SIZE, (i + 1) * SIZE)
                self.assertSameBytes(ours[at], theirs[at])

    def test_layers_are_there_when_it_says_so(self):
        with self.there.counter("layers") as counter:
            ours, theirs, batches = self.layers(counter)
            value = 0
            while value < (1 << LAYERS) - 1:
                self.assertTrue(counter.wait(value + 1, HANG_S))
                value = counter.value
                self.check_layers(value, ours, theirs)
            for batch in batches:
                self.assertEqual(batch.result(HANG_S), SIZE)
                batch.close()

    def test_layers_in_a_loop(self):
        async def main(counter):
            ours, theirs, batches = self.layers(counter)
            value = 0
            while value < (1 << LAYERS) - 1:
                await counter.wait_async(value + 1)
                value = counter.value
                self.check_layers(value, ours, theirs)
            self.assertEqual(await asyncio.gather(*batches), [SIZE] * LAYERS)

        with self.there.counter("layers") as counter:
            asyncio.run(main(counter))
            self.assertEqual(self.there._arrivals._waiters, {})

    def test_what_fails_adds_nothing(self):
        local = self.here.alloc(100)
        self.here.register(local)
        with self.there.counter("none") as counter, self.segment.adder("none") as adder:
            with self.segment.start_write([local], [4096]) as batch:
                batch.add_after(adder)
                self.assertIsInstance(batch.exception(HANG_S), te.RequestError)
            self.add(adder, 100)
            self.assertTrue(counter.wait(100, HANG_S))
            self.assertEqual(counter.value, 100)

    def test_wait_and_its_timeout(self):
        with self.there.counter("wait") as counter, self.segment.adder("wait") as adder:
            self.assertTrue(counter.wait(0, 0))
            self.assertFalse(counter.wait(1, 0))
            self.assertFalse(counter.wait(1, 0.01))
            self.add(adder, 3)
            self.assertTrue(counter.wait(3, HANG_S))
            self.assertFalse(counter.wait(4, -1))
            self.assertRaises(TypeError, counter.wait, "4")
            self.assertRaises(ValueError, counter.wait, -1)
            self.assertRaises(ValueError, counter.wait, 1 << 64)
            self.assertRaises(TypeError, counter.wait, 4, "soon")

    def test_tasks_that_wait_for_different_values(self):
        """In two loops of two threads; each is woken at its own, whichever loop looks."""
        reached = []

        async def wait_for(counter, value):
            await counter.wait_async(value)
            reached.append(value)

        async def main(counter, values):
            await asyncio.gather(*[wait_for(counter, value) for value in values])

        with self.there.counter("tasks") as counter, self.segment.adder("tasks") as adder:
            loops = [
                threading.Thread(target=asyncio.run, args=(main(counter, values),))
                for values in ((1, 4, 4, 6), (2, 3, 5, 1 << 60))
            ]
            for loop in loops:
                loop.start()
            until(lambda: sum(map(len, self.there._arrivals._waiters.values())) == 8)
            for n in range(1, 7):
                self.add(adder, 1)
                until(lambda n=n: sorted(reached) == sorted(v for v in (1, 4, 4, 6, 2, 3, 5) if v <= n))
            self.add(adder, 1 << 60)
            for loop in loops:
                loop.join()
            self.assertEqual(len(reached), 8)

    def test_a_task_that_is_canceled(self):
        async def main(counter):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(counter.wait_async(1), 0.01)
            self.assertEqual(self.there._arrivals._waiters, {})

        with self.there.counter("canceled") as counter:
            asyncio.run(main(counter))

    def ended_while(self, wait, end, *expected):
        """One that waits in a thread when `end` is called gets one of these errors."""
        ends = []

        def waiting():
            try:
                wait()
            except te.TransferError as error:
                ends.append(type(error))

        thread = threading.Thread(target=waiting)
        thread.start()
        until(lambda: is_in(thread.ident, "_waited") or self.there._arrivals._waiters)
        end()
        thread.join()
        self.assertEqual(len(ends), 1)
        self.assertIn(ends[0], expected)

    def test_the_end_of_a_counter_ends_those_who_wait(self):
        counter = self.there.counter("ends")
        self.ended_while(
            lambda: counter.wait(1), counter.close, te.TransferCanceled, te.RequestError
        )
        counter = self.there.counter("ends")
        self.ended_while(
            lambda: asyncio.run(counter.wait_async(1)), counter.close, te.TransferCanceled
        )

    def test_the_end_of_an_engine_ends_those_who_wait(self):
        counter = self.there.counter("ends")
        self.ended_while(lambda: counter.wait(1), self.there.close, te.EngineClosed)

    def test_the_end_of_an_engine_ends_tasks(self):
        counter = self.there.counter("ends")
        self.ended_while(
            lambda: asyncio.run(counter.wait_async(1)), self.there.close, te.EngineClosed
        )
        counter.close()

    def test_what_is_wrong(self):
        with self.there.counter("one") as counter:
            with self.assertRaisesRegex(te.RequestError, r"TE_ERR_EXISTS"):
                self.there.counter("one")
            for name in ("", "x" * 256):
                self.assertRaises(te.RequestError, self.there.counter, name)
            self.assertRaises(te.RequestError, self.segment.adder, "two")
            adder = self.segment.adder("one")
            with self.segment.start_write([], []) as batch:
                self.assertRaises(ValueError, batch.add_after, adder, -1)
                self.assertRaises(te.RequestError, batch.add_after, adder, 1 << 63)
            self.assertRaises(te.RequestError, batch.add_after, adder)
        for closed in (counter, adder):
            closed.close()
            closed.close()
        for call in (lambda: counter.value, lambda: counter.wait(1), adder.flush):
            with self.assertRaisesRegex(te.RequestError, "'one' is closed"):
                call()
        with self.assertRaisesRegex(te.RequestError, "'one' is closed"):
            asyncio.run(counter.wait_async(1))
        self.there.counter("one").close()

    def test_a_counter_that_is_gone(self):
        counter = self.there.counter("gone")
        with self.segment.adder("gone") as adder:
            counter.close()
            with self.there.counter("gone") as other:
                with self.segment.start_write([], []) as batch:
                    batch.add_after(adder)
                with self.assertRaisesRegex(te.RequestError, "TE_ERR_STALE"):
                    adder.flush(HANG_S)
                self.assertEqual(other.value, 0)


class OtherProcess(Case):
    def test_a_peer_that_is_stopped(self):
        """What it was not told is told once it goes on, and counted once."""
        peer = self.peer(options=TCP)
        peer.counter(name="stopped")
        with te.Engine(name=HOST, options={**TCP, "MC_HANDSHAKE_CONNECT_TIMEOUT": "1"}) as engine:
            segment = engine.open(peer.name())
            with segment.adder("stopped") as adder:
                peer.freeze()
                with segment.start_write([], []) as batch:
                    batch.add_after(adder, 7)
                self.assertRaises(te.PathError, adder.flush, 0)
                self.assertRaises(te.PathError, adder.flush, 0.3)
                peer.thaw()
                adder.flush(HANG_S)
                self.assertEqual(peer.value(name="stopped"), 7)


if __name__ == "__main__":
    unittest.main()
