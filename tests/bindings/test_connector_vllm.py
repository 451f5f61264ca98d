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
        import transfer_engine_vllm._lanes as lanes
        import transfer_engine_vllm._link as link
        from transfer_engine_vllm._peers import Peers
        self.module, self.lanes, self.heard, self.met, self.over, self.ticks = link, lanes, [], [], [], 0
        self.peers = Peers(["127.0.0.1", "a", "b", "c", *(f"h{i}" for i in range(300))])

    def made(self):
        def hear(*words):
            if words[0] != "welcome":  # which may be said twice
                self.heard.append(words)
        return self.module.Link("127.0.0.1", 0, self.peers, hear, self.met.append, self.over.append, self.tick)

    def link(self):
        made = self.made()
        made.start()
        self.addCleanup(made.close)
        return made

    def tick(self):
        self.ticks += 1
        if self.ticks == 1:
            raise KeyError("the thread goes on after that")

    def count(self, link):
        return len(link.lanes._lanes)  # pylint: disable=protected-access

    def peer(self, name):
        return name, "0123456789abcdef"

    def greet(self, one, two):
        def welcome():
            one.talk(two.address, lambda: [], lambda _: None)
            return one.greetings.cookie_of(two.address)
        te.until(welcome, "a welcome")

    def test_a_peer_that_nobody_talks_to_is_forgotten(self):
        """Its threads end, and what was opened for it is closed; later it is as before."""
        with mock.patch.dict(self.lanes._IDLE_S, messages=0.01, answers=0.01):
            one, two = self.link(), self.link()
            self.greet(one, two)
            for said in range(2):
                one.say(two.address, "is", said)
                te.until(lambda: len(self.heard) == said + 1, "the word")
                te.until(lambda: not self.count(one), "its end")
        self.assertEqual(self.heard, [("is", said, one.address) for said in range(2)])

    def test_what_is_to_be_fenced_stays_open(self):
        """Though no thread waits for its peer any more: a fence knows nothing of what was closed."""
        with mock.patch.dict(self.lanes._IDLE_S, transfers=0.01):
            one, two = self.link(), self.link()
            opened = []
            one.lanes.pin(two.address, 1)
            one.do(two.address, lambda peer: opened.append(peer()))
            te.until(lambda: opened and not self.count(one), "the end of the thread")
            te.until(lambda: two.address in one.lanes._pinned, "its segment")
            self.assertGreaterEqual(opened[0].id, 0)
            one.lanes.pin(two.address, -1)
            self.assertEqual((opened[0].id, one.lanes._pinned, one.lanes._pins), (-1, {}, {}))

    def test_threads_go_on(self):
        """After a job, a tick or a word that raises."""
        one, done = self.link(), threading.Event()
        one.do(self.peer("127.0.0.1:1"), lambda peer: 1 / 0)
        one.do(self.peer("127.0.0.1:1"), lambda peer: done.set())
        self.assertTrue(done.wait(te.HANG_S))
        te.until(lambda: self.ticks > 1, "another tick")
        two = self.link()
        self.greet(one, two)
        two._hear = lambda *words: self.heard.append(words) or 1 / 0  # pylint: disable=protected-access
        for said in range(2):
            one.say(two.address, "is", said)
            te.until(lambda: len(self.heard) == said + 1, "the word")

    def test_messages_are_taken_after_an_error(self):
        """Of the engine, when it is asked for them."""
        one, two = self.link(), self.made()
        self.addCleanup(two.close)
        take, raised = two.engine.notifications, []

        def notifications():
            if not raised:
                raised.append(1)
                raise OSError("no memory")
            return take()
        two.engine = mock.Mock(wraps=two.engine, notifications=notifications)
        two.start()
        self.greet(one, two)
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

    def test_one_life(self):
        """What is said to an incarnation that is over gets to nobody, and is told once it is known."""
        one, two = self.link(), self.made()
        two.start()
        self.greet(one, two)
        two.close()
        three = self.module.Engine(name="127.0.0.1", port=int(two.address[0].rpartition(":")[2]))
        self.addCleanup(three.close)
        self.assertEqual(three.name, two.address[0])
        one.check(two.address)
        te.until(lambda: self.over == [two.address], "the end")
        self.assertEqual((three.notifications(), one.greetings.cookie_of(two.address)), ([], ""))
        one.check(self.peer(three.name))
        te.until(lambda: self.over == [two.address, self.peer(three.name)], "that of one that never was")

    def test_a_port_that_is_taken(self):
        """Is an error: a server that is started anew is to have the name of the one before it."""
        port = int(self.link().address[0].rpartition(":")[2])
        with self.assertRaisesRegex(OSError, f"port {port} is in use; the option `port` of the connector"), \
                self.assertWarns(RuntimeWarning):
            self.module._engine("127.0.0.1", port)  # pylint: disable=protected-access

    def test_never_by_rdma(self):
        """A WRITE of it that is late cannot be fenced."""
        one, two = self.link(), self.link()
        one.engine = mock.Mock(wraps=one.engine)
        opened = []
        one.do(two.address, lambda peer: opened.append(peer()))
        te.until(lambda: opened, "the segment")
        _, named = one.engine.open.call_args
        self.assertEqual((named["paths"].forbid, named["incarnation"]), ("rdma", two.engine.incarnation))

    def test_strangers_are_few(self):
        """Of who greets nothing is kept but a lane for each host that it may come from, and of these there is a bound."""
        one, life = self.link(), "0123456789abcdef"
        go_on, hosts, jobs = threading.Event(), self.lanes._MOST_LANES["answers"], self.lanes._MOST_JOBS["answers"]
        self.addCleanup(go_on.set)
        with mock.patch.object(one, "_open", side_effect=lambda _: go_on.wait() and mock.MagicMock()):
            for i in range(3 * hosts):
                for port in (1, 2):
                    one._take([f"h{i}:{port}", life], "", "hello", ["n"])
            self.assertEqual(self.count(one), hosts)
            one.lanes.put("messages", ("a:1", life), lambda _: None)
            self.assertEqual(self.count(one), hosts + 1)
            for port in range(1, 999):
                one._take([f"h1:{port}", life], "", "hello", ["n"])
            self.assertEqual(one.lanes._lanes["answers", ("h1:0", "")].pending, jobs)
            go_on.set()
        self.assertEqual(one.greetings._greeted, {})

    def test_complaints(self):
        """Of what strangers say: one a second, and how many there were."""
        now = iter((5.0, 5.5, 5.9, 6.5))
        complaints = self.module.Complaints(now.__next__)
        with self.assertLogs("transfer_engine", "WARNING") as log:
            for i in range(4):
                complaints.tell("word %d", i)
        self.assertEqual([record.getMessage() for record in log.records], ["word 0", "word 3 (2 like it were not told)"])

    def test_bounds(self):
        """Of peers, of those on one host, of jobs for one, and of threads."""
        one, go_on = self.link(), threading.Event()
        self.addCleanup(go_on.set)
        with mock.patch.dict(self.lanes._MOST_LANES, transfers=3), mock.patch.dict(self.lanes._MOST_JOBS, transfers=2), \
                mock.patch.dict(self.lanes._MOST_OF_A_HOST, transfers=2):
            for _ in range(2):
                one.do(self.peer("a:1"), lambda peer: go_on.wait())
            with self.assertRaisesRegex(OSError, "2 transfers wait for a:1"):
                one.do(self.peer("a:1"), lambda peer: None)
            one.do(self.peer("a:2"), lambda peer: go_on.wait())
            with self.assertRaisesRegex(OSError, "2 peers on a have transfers"):
                one.do(self.peer("a:3"), lambda peer: None)
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
                with self.assertRaisesRegex(OSError, "no thread for b:1: can't start new thread"):
                    one.do(self.peer("b:1"), lambda peer: None)
            one.do(self.peer("b:1"), lambda peer: go_on.wait())
            with self.assertRaisesRegex(OSError, "3 peers"):
                one.do(self.peer("c:1"), lambda peer: None)

    def test_names(self):
        """Nothing is opened but an engine, and that not our own; what cannot be told is over all the same."""
        one, over = self.link(), []
        life = self.peer("a")[1]
        for peer in (("file:///etc/passwd", life), ("nvmeof/x", life), ("a", life), (one.address[0], life), ("a:1", one.address[1]),
                     ("other:1", life), ("a:1", "life")):
            with self.assertRaisesRegex(OSError, "is not an engine on a host that is allowed, or is this one itself"):
                one.do(peer, lambda peer: None)
            one.talk(peer, lambda: self.fail("it is opened"), lambda _, peer=peer: over.append(peer))
            self.assertEqual(over.pop(), peer)
        self.assertEqual(self.count(one), 0)

    def test_drained(self):
        """What was given is done first, and what is waited for, in a bounded time."""
        one, done = self.link(), []
        for _ in range(9):
            one.do(self.peer("a:1"), lambda peer: done.append(1))
        one.lanes.drain(te.HANG_S, lambda: False)
        self.assertEqual(len(done), 9)
        one.lanes.drain(0.01, lambda: True)

    def test_closed(self):
        one = self.link()
        one.close()
        with self.assertRaisesRegex(OSError, "closed"):
            one.do(self.peer("a:1"), lambda peer: None)
        one.say(self.peer("a:1"), "word", None)

    def test_clock(self):
        """A process that was stopped has not waited for so long."""
        clock = self.module.Clock(iter((10, 10.5, 99, 99.25)).__next__)
        for moment in (0.5, 1.5, 1.75):
            clock.tick()
            self.assertEqual(clock.now, moment)


if __name__ == "__main__":
    te.main()
