# SPDX-License-Identifier: Apache-2.0
"""Batches as awaitables: many tasks, loops and threads, cancellation, closing."""

import asyncio
import threading
import unittest

import transfer_engine as te
from peer import noise
from support import HOST, TCP, Case
from transfer_engine._memory import span

MIB = 1 << 20


class Asyncio(Case):
    def test_many_tasks_at_once(self):
        peer = self.peer()
        total = 1 << 22
        remote = peer.register(length=total, seed=5)
        there = noise(5, total)

        async def piece(segment, local, i):
            n = 1 + i * 97
            at = i * 8192
            await segment.read_async(local[at : at + n], remote + at)
            return bytes(local[at : at + n]) == there[at : at + n]

        async def main(engine):
            local = engine.alloc(total)
            with engine.register(local), engine.open(peer.name()) as segment:
                fine = await asyncio.gather(*[piece(segment, local, i) for i in range(300)])
                self.assertTrue(all(fine))
                self.assertEqual(await segment.write_async(local[:5], remote), 5)
                with segment.start_read(
                    [local[:77], local[100:200]], [remote, remote + 100]
                ) as batch:
                    self.assertEqual(await batch, 177)
                    self.assertEqual(await batch, 177)

        with te.Engine(name=HOST) as engine:
            asyncio.run(main(engine))
            self.assertEqual(len(engine._state.live), 0)
            self.assertEqual(engine._reactor._loops, {})

    def test_failures_are_raised(self):
        async def main(engine):
            memory = engine.alloc(1000)
            region = engine.register(memory)
            segment = engine.open(engine.name)
            with self.assertRaises(te.RequestError):
                await segment.read_async(memory, region.address + 500)
            with self.assertRaises(te.NotRegistered):
                await segment.write_async(bytearray(5), region.address)

        with te.Engine(name=HOST) as engine:
            asyncio.run(main(engine))

    def test_many_engines_loops_and_threads(self):
        """Each thread has a loop of its own; all use both engines."""
        engines = [te.Engine(name=HOST) for _ in range(2)]
        for engine in engines:
            self.addCleanup(engine.close)
        peer = self.peer()
        name, remote = peer.name(), peer.register(length=MIB, seed=9)
        there = noise(9, MIB)
        wrong, done = [], []

        async def work(number):
            memory = [engine.alloc(70000) for engine in engines]
            regions = [e.register(m) for e, m in zip(engines, memory)]
            segments = [engine.open(name) for engine in engines]
            for turn in range(30):
                n = 1 + (number * 7919 + turn * 104729) % 69999
                at = (turn * 31337) % (MIB - 70000)
                await asyncio.gather(
                    *[s.read_async(m[:n], remote + at) for s, m in zip(segments, memory)]
                )
                wrong.extend(turn for m in memory if bytes(m[:n]) != there[at : at + n])
            for region in regions:
                region.close()
            done.append(number)

        threads = [threading.Thread(target=lambda i=i: asyncio.run(work(i))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((wrong, len(done)), ([], 4))


class Blocked(Case):
    def setUp(self):
        self.remote_peer = self.peer(options=TCP)
        self.remote = self.remote_peer.register(length=8 * MIB, seed=1)
        self.engine = te.Engine(name=HOST, options=TCP)
        self.addCleanup(self.engine.close)
        self.segment = self.engine.open(self.remote_peer.name())
        self.local = self.engine.alloc(8 * MIB)
        self.engine.register(self.local)
        self.remote_peer.freeze()

    def test_a_canceled_task_leaves_quiet_memory(self):
        async def main():
            task = asyncio.ensure_future(self.segment.read_async(self.local, self.remote))
            while self.engine.stats()["requests_submitted"] == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(len(self.engine._state.live), 0)
            self.local[:] = bytes(8 * MIB)
            self.remote_peer.thaw()
            self.remote_peer.name()
            self.assertSameBytes(self.local, bytes(8 * MIB))
            await self.segment.read_async(self.local, self.remote)
            self.assertSameBytes(self.local, noise(1, 8 * MIB))

        asyncio.run(main())

    def test_wait_for(self):
        async def main():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.segment.write_async(self.local, self.remote), 0.1)
            with self.assertRaises(te.TransferTimeout):
                await self.segment.write_async(self.local, self.remote, timeout=0.1)
            self.assertEqual(len(self.engine._state.live), 0)

        asyncio.run(main())

    def test_closing_the_engine_wakes_who_waits(self):
        async def main():
            tasks = [
                asyncio.ensure_future(self.segment.read_async(self.local[i : i + 99], self.remote))
                for i in range(5)
            ]
            await asyncio.sleep(0)
            self.engine.close()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertLessEqual({type(e) for e in ends}, {te.EngineClosed, te.TransferCanceled})

        asyncio.run(main())

    def test_the_loop_does_other_things_meanwhile(self):
        async def main():
            task = asyncio.ensure_future(self.segment.read_async(self.local, self.remote))
            for _ in range(50):
                await asyncio.sleep(0.001)
            self.assertFalse(task.done())
            self.remote_peer.thaw()
            self.assertEqual(await task, 8 * MIB)
            self.assertSameBytes(self.local, noise(1, 8 * MIB))
            self.assertEqual(span(self.local).nbytes, 8 * MIB)

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
