#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The connector for vLLM between two processes, without vLLM: what it calls is made of the table of its interface."""
import os
import sys
import threading
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "connector_vllm"), os.path.join(HERE, "..", "integration")]
import remote  # noqa: E402
import standin  # noqa: E402
import te_proc as te  # noqa: E402
import cases  # noqa: E402


def setUpModule():
    remote.prepare()
    standin.install()


class Vllm(cases.Cases, cases.Interface, unittest.TestCase):
    def test_the_package(self):
        """It is complete by itself, and requires the version that its table is of."""
        standin.check_wheel(self)


class Parts(unittest.TestCase):
    """What lies below the connector, within one process."""

    def setUp(self):
        import transfer_engine_vllm._link as link
        self.module, self.heard, self.ticks = link, [], 0

    def link(self):
        made = self.module.Link("127.0.0.1", lambda *words: self.heard.append(words), self.tick)
        made.start()
        self.addCleanup(made.close)
        return made

    def tick(self):
        self.ticks += 1
        if self.ticks == 1:
            raise KeyError("the thread goes on after that")

    def count(self, link):
        return len(link._lanes)  # pylint: disable=protected-access

    def test_a_peer_that_nobody_talks_to_is_forgotten(self):
        """Its threads end, and what was opened for it is closed; later it is as before."""
        with mock.patch.dict(self.module._IDLE_S, messages=0.01, answers=0.01):
            one, two = self.link(), self.link()
            for said in range(2):
                one.say(two.address, "is", said)
                te.until(lambda: len(self.heard) == said + 1, "the word")
                te.until(lambda: not self.count(one), "its end")
        self.assertEqual(self.heard, [("is", said, one.address) for said in range(2)])

    def test_threads_go_on(self):
        """After a job, a tick or a word that raises."""
        one, done = self.link(), threading.Event()
        one.do("127.0.0.1:1", lambda peer: 1 / 0)
        one.do("127.0.0.1:1", lambda peer: done.set())
        self.assertTrue(done.wait(te.HANG_S))
        te.until(lambda: self.ticks > 1, "another tick")
        two = self.link()
        two._hear = lambda *words: self.heard.append(words) or 1 / 0  # pylint: disable=protected-access
        for said in range(2):
            one.say(two.address, "is", said)
            te.until(lambda: len(self.heard) == said + 1, "the word")

    def test_messages_are_taken_after_an_error(self):
        """Of the engine, when it is asked for them."""
        one, two = self.link(), self.module.Link("127.0.0.1", lambda *words: self.heard.append(words), self.tick)
        self.addCleanup(two.close)
        take, raised = two.engine.notifications, []

        def notifications():
            if not raised:
                raised.append(1)
                raise OSError("no memory")
            return take()
        two.engine = mock.Mock(wraps=two.engine, notifications=notifications)
        two.start()
        one.say(two.address, "is", 1)
        te.until(lambda: self.heard, "the word")
        self.assertEqual(raised, [1])

    def test_what_cannot_be_said(self):
        """It is told to who wants to say it."""
        one, two, unsaid = self.link(), self.link(), []

        def talk():
            one.talk(two.address, lambda: [("want", "x" * (1 << 27))], unsaid.extend)
            return unsaid
        te.until(talk, "an error")
        self.assertEqual(unsaid[0][0], "want")

    def test_strangers_are_few(self):
        """Of who greets nothing is kept but a lane for the answer, and of these there is a bound."""
        one = self.link()
        go_on, jobs = threading.Event(), self.module._MOST_PEERS["answers"]
        self.addCleanup(go_on.set)
        with mock.patch.object(one, "_say", lambda *_: go_on.wait()):
            for i in range(3 * jobs):
                for _ in range(2):
                    one._take(one.address[1], ["h:%d" % (i + 1), "l"], "", "hello", ["n", "a:1"])
            self.assertEqual(self.count(one), jobs)
            one.say(("peer:1", "l"), "is", [])
            self.assertEqual(self.count(one), jobs + 1)
            for _ in range(999):
                one._take(one.address[1], ["h:1", "l"], "", "hello", ["n", "a:1"])
            self.assertEqual(one._lanes["h:1", "answers"].pending, self.module._MOST_JOBS["answers"])
            go_on.set()
        self.assertEqual(one._greeted, {})

    def test_bounds(self):
        """Of peers, of jobs for one, and of threads."""
        one, go_on = self.link(), threading.Event()
        self.addCleanup(go_on.set)
        with mock.patch.dict(self.module._MOST_PEERS, transfers=2), mock.patch.dict(self.module._MOST_JOBS, transfers=2):
            for _ in range(2):
                one.do("a:1", lambda peer: go_on.wait())
            with self.assertRaisesRegex(OSError, "2 transfers wait for a:1"):
                one.do("a:1", lambda peer: None)
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
                with self.assertRaisesRegex(OSError, "no thread for b:1: can't start new thread"):
                    one.do("b:1", lambda peer: None)
            one.do("b:1", lambda peer: None)
            with self.assertRaisesRegex(OSError, "2 peers"):
                one.do("c:1", lambda peer: None)

    def test_names(self):
        """Nothing is opened but an engine, and that not our own; what cannot be told is over all the same."""
        one, over = self.link(), []
        for name in ("file:///etc/passwd", "nvmeof/x", "a", one.address[0]):
            with self.assertRaisesRegex(OSError, "is not the host:port of another engine"):
                one.do(name, lambda peer: None)
            one.talk((name, "life"), lambda: self.fail("it is opened"), lambda _, name=name: over.append(name))
            self.assertEqual(over.pop(), name)
        self.assertEqual(self.count(one), 0)

    def test_drained(self):
        """What was given is done first."""
        one, done = self.link(), []
        for _ in range(9):
            one.do("a:1", lambda peer: done.append(1))
        one.drain(te.HANG_S)
        self.assertEqual(len(done), 9)

    def test_closed(self):
        one = self.link()
        one.close()
        with self.assertRaisesRegex(OSError, "closed"):
            one.do("a:1", lambda peer: None)
        one.say(("a:1", "b"), "word", None)

    def test_clock(self):
        """A process that was stopped has not waited for so long."""
        clock = self.module.Clock(iter((10, 10.5, 99, 99.25)).__next__)
        for now in (0.5, 1.5, 1.75):
            clock.tick()
            self.assertEqual(clock.now, now)


if __name__ == "__main__":
    te.main()
