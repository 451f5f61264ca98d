#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two sides of the exchange of the connector for vLLM, its scheduler's half and its checks, each alone: the clock,
the link and vLLM are what the test says they are."""
import os
import sys
import threading
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "connector_vllm"), os.path.join(HERE, "..", "integration")]
import memory  # noqa: E402
import remote  # noqa: E402
import server  # noqa: E402
import standin  # noqa: E402
import te_proc as te  # noqa: E402

PEER, OTHER = ("127.0.0.1:7", "1" * 16), ("127.0.0.1:8", "2" * 16)


def setUpModule():
    remote.prepare()
    standin.install()


class Link:
    """Takes what is said, and does nothing before it is told to."""

    def __init__(self):
        self.said, self.jobs, self.talks, self.checked, self.pins, self.full = [], [], [], [], {}, False
        self.lanes = types.SimpleNamespace(pin=self.pin, look=lambda: None)

    def pin(self, to, count):
        self.pins[to] = self.pins.get(to, 0) + count

    def reaches(self, peer):
        return peer[0] != "127.0.0.1:1"

    def do(self, to, job):
        if self.full:
            raise OSError("no thread")
        self.jobs.append((to, job))

    def check(self, to):
        self.checked.append(to)

    def say(self, to, kind, body):
        self.said.append((to, kind, body))

    def talk(self, to, messages, over):
        self.talks.append((to, messages, over))

    def answered(self):
        """Peers answer: what they are told."""
        talks, self.talks, told = self.talks, [], []
        for to, messages, over in talks:
            told += [(to, *words) for words in messages()]
            over([])
        return told


class Write:
    """A batch that ends as the test says."""

    def __init__(self, error=None):
        self.error, self.certified, self.canceled, self.closed = error, False, False, False
        self.ended = threading.Event()

    def wait(self):
        assert self.ended.wait(te.HANG_S)

    def exception(self):
        return self.error

    def cancel(self):
        self.canceled = True

    def fence(self, seconds):
        from transfer_engine import TransferError
        assert seconds == 0
        if not self.certified:
            raise TransferError(-400, "not yet")

    def close(self):
        self.closed = True


class Side(unittest.TestCase):
    def setUp(self):
        from transfer_engine_vllm import _protocol
        self.protocol, self.clock, self.link = _protocol, types.SimpleNamespace(now=100.0), Link()
        self.limits = _protocol.Limits(hold=10, lease=100, lost=20, fence=5, settle=50)
        self.lock, self.ends, self.freed = threading.RLock(), [], []
        self.prompt = _protocol.Prompt(8, "digest")

    def want(self, token="t", key="k", first=0, blocks=(1, 2), to=PEER, prompt=None, places=None):
        return self.protocol.Want(to, token, key, prompt or self.prompt, first, list(blocks), "model", places or {})


class Sends(Side):
    def setUp(self):
        super().setUp()
        from transfer_engine_vllm import _sending, _wants
        self.module, self.wants, self.why = _sending, _wants, None
        self.sender = _sending.Sender(self.lock, self.clock, self.limits, lambda want: self.why, self.ends.append)
        self.sender.link = self.link

    def extend(self, key, owner, first=0, count=2, prompt=None):
        return self.sender.extend(key, owner, prompt or self.prompt, first, count)

    def piece(self, settled=lambda: None, bytes_of_it=0):
        moves = self.module.Moves([1], [2], [bytes_of_it]) if bytes_of_it else self.module.Moves([], [], [])
        return self.module.Piece(settled, lambda want: moves)

    def told(self):
        told, self.link.said = [(kind, body) for _, kind, body in self.link.said], []
        return told

    def failed(self, key="k", token="t", to=PEER):
        """A sending of which a WRITE has ended by an error: that."""
        from transfer_engine import TransferError
        self.sender.take(self.want(token, key, to=to))
        self.sender.add(self.extend(key, "p" + key), self.piece(bytes_of_it=9))
        write = Write(TransferError(-405, "the link"))
        write.ended.set()
        self.link.jobs.pop()[1](lambda: types.SimpleNamespace(start_write=lambda *_, **__: write))
        return write

    def test_from_the_middle(self):
        """A request of which the beginning was not seen is not sent, nor is one with a gap: never is that told as done."""
        self.assertIsNone(self.extend("k", "p", 2))
        self.sender.take(self.want("t2", "k2", 0, range(6)))
        sending = self.extend("k2", "p2")
        self.sender.add(sending, self.piece())
        self.assertIsNone(self.extend("k2", "p2", 4))
        self.assertEqual(self.told(), [("is", [["t2", "failed"]])])
        self.assertEqual([ended.owner for ended in self.ends], ["p2"])
        self.sender.take(self.want("t3", "k3", 0, range(3)))
        self.sender.complete(self.extend("k3", "p3"))
        self.assertEqual(self.told(), [("is", [["t3", "failed"]])])

    def test_a_failed_one_waits_for_no_queue(self):
        """Its memory is free though its job has not begun, whatever its peer does with others; and while the device is waited for."""
        self.sender.take(self.want())
        sending, waited = self.extend("k", "p"), []
        self.sender.add(sending, self.piece(lambda: waited.append(1)))
        self.sender.stop("k")
        self.assertEqual((self.ends, self.told()), ([sending], [("is", [["t", "failed"]])]))
        self.link.jobs.pop()[1](lambda: waited.append(2))
        self.assertEqual(waited, [])
        self.sender.take(self.want("t2", "k2"))
        two = self.extend("k2", "p2")
        self.sender.add(two, self.piece(lambda: self.sender.stop("k2"), 9))
        self.link.jobs.pop()[1](lambda: types.SimpleNamespace(start_write=lambda *_, **__: waited.append(3)))
        self.assertEqual((waited, self.ends), ([], [sending, two]))

    def test_not_while_it_is_read(self):
        """Memory is not free, nor is anything told, before a WRITE that is canceled has ended."""
        self.sender.take(self.want())
        sending, write = self.extend("k", "p"), Write()
        self.sender.add(sending, self.piece(bytes_of_it=9))
        job = threading.Thread(target=self.link.jobs.pop()[1], args=[lambda: types.SimpleNamespace(start_write=lambda *_, **__: write)])
        job.start()
        te.until(lambda: sending.batch is write, "the WRITE")
        self.sender.stop("k")
        self.assertEqual((write.canceled, self.ends, self.told()), (True, [], []))
        write.ended.set()
        job.join()
        self.assertEqual((self.ends, self.told()), ([sending], [("is", [["t", "failed"]])]))

    def test_doubt(self):
        """Nothing is told before the fence: then failed, or unsafe when it is late, and failed whenever it comes after that."""
        write = self.failed()
        self.assertEqual([ended.owner for ended in self.ends], ["pk"])  # our memory is quiet
        self.assertEqual((self.told(), self.link.pins), ([], {PEER: 1}))
        self.sender.ask()
        self.assertEqual(self.sender.state(PEER, "t", "k", True), "waits")
        self.clock.now += 6
        self.sender.ask()
        self.assertEqual(self.told(), [("is", [["t", "unsafe"]])])
        for _ in range(99):  # who has no end is asked seldom, and whether it is over at all
            self.clock.now += 301
            self.link.checked.clear()
            self.sender.ask()
            self.assertEqual(self.link.checked, [PEER])
        self.assertEqual(self.told(), [])
        write.certified = True
        self.clock.now += 1
        self.sender.ask()
        self.assertEqual(self.told(), [])
        self.assertEqual(self.sender.state(PEER, "t", "k", True), "unsafe")  # who asks lives
        self.sender.ask()
        self.assertEqual((self.told(), self.link.pins, write.closed), ([("is", [["t", "failed"]])], {PEER: 0}, True))
        self.assertEqual(self.sender.state(PEER, "t", "k", True), "failed")

    def test_a_doubt_of_a_preempted_one(self):
        """What is computed anew is not written before it is over, and fails where it is late."""
        from transfer_engine import TransferError
        self.sender.take(self.want())
        sending, write = self.extend("k", "p"), Write(TransferError(-401, "canceled"))
        self.sender.add(sending, self.piece(bytes_of_it=9))

        def begun(*_, **__):
            self.sender._lock.acquire()
            sending.round += 1  # as forget() has it
            self.sender._lock.release()
            write.ended.set()
            return write
        self.link.jobs.pop()[1](lambda: types.SimpleNamespace(start_write=begun))
        self.sender.add(sending, self.piece())
        self.assertEqual((self.link.jobs, self.ends), ([], []))
        write.certified = True
        self.sender.ask()
        self.assertEqual((len(self.link.jobs), self.told()), (1, []))

    def test_another_life(self):
        """Of a peer that was started anew: its wants and sendings fail, its doubts are over; those of others are not touched."""
        self.failed("k1", "t1")
        self.sender.take(self.want("t2", "k2"))
        self.sender.take(self.want("t3", "k3"))
        self.sender.take(self.want("t4", "k4", to=OTHER))
        sending = self.extend("k3", "p3")
        self.sender.over(PEER)
        self.assertEqual((self.ends[1:], self.link.pins, self.told()), ([sending], {PEER: 0}, []))
        self.assertIsNone(self.extend("k2", "p2"))
        self.assertIs(self.extend("k4", "p4").want.to, OTHER)
        self.assertEqual(self.sender.state(PEER, "t1", "k1", False), "unknown")

    def test_a_write_that_ends_after_its_peer(self):
        """Nobody is asked whether it is over."""
        from transfer_engine import TransferError
        self.sender.take(self.want())
        sending, write = self.extend("k", "p"), Write(TransferError(-407, "stale"))
        self.sender.add(sending, self.piece(bytes_of_it=9))

        def begun(*_, **__):
            self.sender.over(PEER)
            write.ended.set()
            return write
        self.link.jobs.pop()[1](lambda: types.SimpleNamespace(start_write=begun))
        self.assertEqual((self.ends, write.canceled, write.closed, self.link.pins), ([sending], True, True, {}))
        self.assertEqual((self.sender._doubts.all(), self.link.checked), ([], [PEER]))

    def test_one_peer_takes_no_room_of_another(self):
        """Wants, blocks, ends and stopped transfers of a peer are bounded for it; what it shares is kept once."""
        places = [{"l": ["layout", 1, 1, i]} for i in (0, 0, 1)]
        with mock.patch.object(self.wants, "MOST_WANTS", 2), mock.patch.object(self.wants, "MOST_BLOCKS", 9):
            for i, of in enumerate(places):
                self.sender.take(self.want(f"t{i}", f"k{i}", places=of))
            self.assertEqual(self.told(), [("is", [["t2", "failed"]])])
            self.assertIs(self.sender._wants.get(PEER, "t0").places, self.sender._wants.get(PEER, "t1").places)
            self.sender.take(self.want("o", "o", 0, range(10), to=OTHER))
            self.assertEqual(self.told(), [("is", [["o", "failed"]])])
            self.sender.take(self.want("o2", "o2", to=OTHER))
            self.assertEqual(self.told(), [])
            self.sender.stop("k1")
            self.sender.take(self.want("t3", "k3"))
            self.assertEqual(self.told(), [("is", [["t1", "failed"]])])
        with mock.patch.object(self.wants, "_MOST_ENDS", 5), mock.patch.object(self.wants, "_MOST_STOPPED", 5):
            self.assertEqual(self.sender.state(OTHER, "x", "kx", True), "failed")
            for i in range(99):
                self.assertEqual(self.sender.state(PEER, f"x{i}", f"kx{i}", True), "failed")
            self.assertEqual(self.sender.state(OTHER, "x", "kx", False), "failed")
            self.assertEqual(self.sender.state(PEER, "x1", "kx1", False), "unknown")
            self.assertIsNone(self.extend("kx", "px"))
        self.assertEqual([len(peer.stopped) for peer in self.sender._wants._peers.values()], [1, 5])

    def test_peers_are_few(self):
        """One that waits for nothing makes room for another one, and none that waits."""
        with mock.patch.object(self.wants, "_MOST_PEERS", 2):
            for i in range(9):
                self.sender.state((f"h:{i + 1}", "1" * 16), "t", "k", True)
            self.assertEqual(len(self.sender.peers()), 2)
            for i, to in enumerate((PEER, OTHER, ("127.0.0.1:9", "1" * 16))):
                self.sender.take(self.want("t", f"w{i}", to=to))
            self.assertEqual(([to for to, _, _ in self.link.said], self.sender.peers()), ([("127.0.0.1:9", "1" * 16)], {PEER, OTHER}))

    def test_another_prompt(self):
        """Of another length, or with other tokens: that want fails, early or late, and the right one gets it."""
        long, other = self.protocol.Prompt(9, "digest"), self.protocol.Prompt(8, "other")
        for i, wrong in enumerate((long, other)):
            self.sender.take(self.want(f"early{i}", f"k{i}", prompt=wrong))
            with self.assertLogs("transfer_engine", "WARNING") as log:
                sending = self.extend(f"k{i}", f"p{i}")
                self.sender.take(self.want(f"late{i}", f"k{i}", prompt=wrong))
            self.assertIn(("9 tokens there and 8 here", "other tokens there")[i], log.output[0])
            self.assertEqual(self.told(), [("is", [[f"early{i}", "failed"]]), ("is", [[f"late{i}", "failed"]])])
            self.sender.take(self.want(f"right{i}", f"k{i}"))
            self.sender.complete(sending)
            self.assertEqual(self.told(), [("is", [[f"right{i}", "done"]])])

    def test_ends_are_remembered(self):
        """The newest of own requests."""
        with mock.patch.object(self.protocol.remember, "__defaults__", (2,)):
            for i in range(9):
                self.sender.stop(f"k{i}")
        self.assertEqual(list(self.sender._over), ["k7", "k8"])

    def test_hold(self):
        """Of a want that has nothing, and of a complete request that nobody wants; not of one that is wanted."""
        self.sender.take(self.want("early", "e"))
        for key in ("k", "k2"):
            self.sender.complete(self.extend(key, key))
        self.extend("computed", "c")
        sending = self.extend("wanted2", "w")
        self.sender.add(sending, self.piece())
        self.sender.take(self.want("t", "wanted2"))
        self.clock.now += 9
        self.sender.expire()
        self.assertEqual(self.ends, [])
        self.clock.now += 2
        self.sender.expire()
        self.assertEqual(sorted(ended.owner for ended in self.ends), ["k", "k2"])
        self.assertEqual(self.told(), [("is", [["early", "failed"]])])
        self.assertIsNone(self.extend("k", "again"))

    def test_no_thread(self):
        """A piece that the link does not take ends the request: nobody waits for it."""
        self.sender.take(self.want())
        sending, self.link.full = self.extend("k", "p"), True
        for _ in range(2):
            self.sender.add(sending, self.piece())
        self.assertEqual((self.ends, sending.queued), ([sending], False))
        self.assertEqual(self.told(), [("is", [["t", "failed"]])])

    def test_what_is_dropped_waits_for_nothing(self):
        """Neither for the device nor for the peer; and one job waits for a request, however many pieces it has."""
        self.sender.take(self.want())
        sending, waited = self.extend("k", "p"), []
        for _ in range(2):
            self.sender.add(sending, self.piece(lambda: waited.append(1)))
        self.sender.forget([sending])
        (_, job), = self.link.jobs
        job(lambda: waited.append(2))
        self.assertEqual((waited, self.ends), ([], []))

    def test_memory_that_does_not_become_quiet(self):
        """It is not waited for without end, once for all of them, and what is read then is never told as done."""
        self.sender.take(self.want())
        sendings = [self.extend(key, key) for key in ("k", "k2")]
        for sending in sendings:
            sending.reading = True
        with mock.patch.object(self.module, "_QUIET_S", 0.01):
            self.sender.forget(sendings)
        self.assertEqual((self.told(), self.ends), ([], []))
        self.assertEqual([sending.failed for sending in sendings], [True, True])

    def test_deadline(self):
        """Of what is wanted and does not end: it fails."""
        self.sender.take(self.want())
        sending = self.extend("k", "p")
        self.sender.add(sending, self.piece())
        self.clock.now += 99
        self.sender.expire()
        self.assertFalse(sending.failed)
        self.clock.now += 2
        self.sender.expire()
        self.assertEqual((self.ends, self.told()), ([sending], [("is", [["t", "failed"]])]))

    def test_stopped_by_its_owner(self):
        sending = self.extend("k", "p")
        self.assertIsNone(self.extend("k", "p2"))
        self.sender.stop("k", "p2")
        self.assertFalse(sending.failed)
        self.sender.stop("k", "p")
        self.assertEqual(self.ends, [sending])

    def test_close(self):
        """Whoever has asked is told; who asks now, too; and nothing begins."""
        self.sender.take(self.want("early", "e"))
        self.sender.take(self.want())
        self.extend("k", "p")
        self.sender.close()
        self.sender.take(self.want("late", "l"))
        self.assertEqual(self.told(), [("is", [[token, "failed"]]) for token in ("t", "early", "late")])
        self.assertIsNone(self.extend("n", "n"))
        self.assertFalse(self.sender.is_busy())
        self.sender._closing = False
        self.failed("k5", "t5")
        self.assertTrue(self.sender.is_busy())

    def test_refused(self):
        """Nobody gets what does not fit, and its blocks are not held for anybody; but who asks with another prompt changes nothing."""
        sending = self.extend("k", "p")
        self.sender.complete(sending)
        self.why = "it does not fit"
        self.sender.take(self.want("t0", prompt=self.protocol.Prompt(9, "other")))
        self.assertEqual((self.told(), self.ends), ([("is", [["t0", "failed"]])], []))
        self.sender.take(self.want())
        self.assertEqual((self.told(), self.ends), ([("is", [["t", "failed"]])], [sending]))
        self.sender.take(self.want("early", "e"))
        self.assertIsNone(self.extend("e", "e"))


class Receives(Side):
    def setUp(self):
        super().setUp()
        from transfer_engine_vllm import _receiving
        self.module = _receiving
        self.told_of = {}
        self.receiver = _receiving.Receiver(self.lock, self.clock, self.limits, lambda: ("model", {}), self.end, self.freed.append)
        self.receiver.link = self.link

    def end(self, receiving, end):
        assert receiving.owner not in self.told_of, receiving
        self.told_of[receiving.owner] = end

    def receive(self, key="k", peer=PEER):
        return self.receiver.receive(key, "d" + key, peer, self.prompt, 0, [1, 2])

    def stands(self, receiving, state, sender=PEER):
        self.receiver.stands(receiving.token, state, sender)

    def after(self, seconds):
        self.clock.now += seconds
        self.receiver.look_after()

    def kinds(self):
        return [kind for _, kind, _ in self.link.answered()]

    def asked(self):
        """What is asked now, and whether with the flag."""
        return [(words[1], words[2]) for _, kind, body in self.link.answered() if kind == "ask" for words in body]

    def test_forgotten_by_the_sender(self):
        """What it does not know is said again; what it knew before it is asked to stop, and tells when it has."""
        receiving = self.receive()
        self.assertEqual(self.kinds(), ["want"])
        self.stands(receiving, "unknown")
        self.assertEqual(self.kinds(), ["want"])
        self.stands(receiving, "waits")
        self.stands(receiving, "unknown")
        self.assertEqual((self.told_of, self.asked()), ({}, [("k", True)]))
        self.stands(receiving, "unknown")
        self.assertEqual(self.told_of, {})
        self.stands(receiving, "failed")
        self.assertEqual(self.told_of, {"dk": "failed"})

    def test_unsafe_is_not_the_end(self):
        """Its blocks are kept, it is asked on and on, and they are free by a word of the sender alone."""
        for i, end in enumerate(("done", "failed")):
            receiving = self.receive(f"k{i}")
            self.link.answered()
            self.stands(receiving, "unsafe")
            self.assertEqual((self.told_of[f"dk{i}"], self.freed), ("unsafe", []))
            pauses = []
            for _ in range(8):
                before = self.clock.now
                te.until(lambda: self.after(1) or self.asked() == [(f"k{i}", True)], "a question")
                pauses.append(self.clock.now - before)
            self.assertEqual((pauses[0], pauses[-1], sorted(pauses)), (1.0, 30.0, pauses))
            for state in ("waits", "unknown", "unsafe", [], None):
                self.stands(receiving, state)
            self.stands(receiving, end, OTHER)
            self.stands(receiving, end, (PEER[0], OTHER[1]))
            self.assertEqual(self.freed, [])
            self.stands(receiving, end)
            self.assertEqual(self.freed, [receiving])
            self.assertEqual(self.receiver.peers(), set())
            self.freed.clear()

    def test_asked_every_second(self):
        """Whatever else is to be said; and one talk at a time waits for a peer that does not answer."""
        one = self.receive()
        self.link.answered()
        two = self.receive("k2")
        for _ in range(3):
            self.after(1)
        self.assertEqual(len(self.link.talks), 1)
        (_, wants, want), (_, asks, ask) = self.link.answered()
        self.assertEqual((wants, want[0], asks, ask), ("want", two.token, "ask", [[one.token, "k", False]]))
        self.after(1)
        self.assertEqual(self.kinds(), ["ask"])

    def test_said_while_a_talk_is_under_way(self):
        """It is not left to the next second."""
        self.receive()
        (_, messages, over), = self.link.talks
        messages()
        self.link.talks.clear()
        self.receive("k2")
        self.assertEqual(self.kinds(), ["want"])
        over([])

    def test_lost(self):
        """Any word of a peer counts for all that it was asked for; without one, what it may know of is kept, and asked for."""
        one, two, other = self.receive(), self.receive("k2"), self.receive("k3", OTHER)
        self.after(1)
        for _ in range(3):
            self.after(15)
            self.receiver.heard(PEER)
        self.assertEqual(self.told_of, {"dk3": "failed"})  # nobody has told it anything
        self.assertEqual(other.state, self.module.State.OVER)
        self.link.answered()
        self.after(19)
        self.assertEqual(len(self.told_of), 1)
        self.receive("k4")
        self.after(2)
        self.assertEqual(self.told_of, {"dk3": "failed", "dk": "unsafe", "dk2": "unsafe"})
        self.link.answered()
        self.stands(one, "failed")
        self.stands(two, "done")
        self.assertEqual(self.freed, [one, two])

    def hearing(self, seconds):
        """The peer says something all the time."""
        for _ in range(seconds // 9):
            self.after(9)
            self.receiver.heard(PEER)

    def test_lease(self):
        """It is counted from when a request was asked for, and once more from when it was aborted."""
        receiving = self.receive()
        self.link.answered()
        self.hearing(9)
        self.receiver.abort(receiving)
        self.assertEqual(self.link.answered()[0][2], [[receiving.token, "k", True]])
        self.hearing(99)
        self.assertEqual(self.told_of, {})
        self.hearing(9)
        self.assertEqual(self.told_of, {"dk": "unsafe"})
        late = self.receive("k2")
        self.link.answered()
        self.hearing(99)
        self.assertEqual(late.state, self.module.State.WANTED)
        self.hearing(9)
        self.assertIn([late.token, "k2", True], self.link.answered()[-1][2])
        self.stands(late, "failed")
        self.assertEqual(self.told_of["dk2"], "failed")

    def test_aborted_before_anything_is_said(self):
        receiving = self.receive()
        self.receiver.abort(receiving)
        self.assertEqual(self.told_of, {"dk": "failed"})
        self.assertTrue(self.receiver.releases())
        self.assertEqual([(kind, body[0][1:]) for _, kind, body in self.link.answered()], [("ask", ["k", True])])
        self.assertFalse(self.receiver.releases())
        self.receiver.release("k2", PEER)
        self.after(21)
        self.assertFalse(self.receiver.releases())

    def test_a_want_that_cannot_be_said(self):
        """It is aborted, and ends by the peer's word, as nobody knows what has come of it."""
        receiving = self.receive()
        (_, messages, over), = self.link.talks
        self.link.talks.clear()
        over(messages())
        self.assertEqual(self.told_of, {})
        self.assertEqual([body for _, _, body in self.link.answered()], [[[receiving.token, "k", True]]])
        self.stands(receiving, "failed")
        self.assertEqual(self.told_of, {"dk": "failed"})

    def test_a_want_counts_as_said_before_it_is(self):
        self.receive()
        (_, messages, _), = self.link.talks
        messages()
        self.after(21)
        self.assertEqual(self.told_of, {"dk": "unsafe"})

    def test_welcomed(self):
        """What waits for a greeting is said when that is answered."""
        self.receive()
        self.receive("k2", OTHER)
        for _, _, over in self.link.talks:
            over([])
        self.link.talks.clear()
        self.receiver.welcomed(PEER)
        self.assertEqual([to for to, _, _ in self.link.talks], [PEER])

    def test_another_life(self):
        """Of a sender that was started anew: what nobody has heard of is free at once, and what it may have written when that
        can be on the network no more; others are not touched."""
        aborted, wanted, kept, other = [self.receive(f"k{i}", peer) for i, peer in enumerate((PEER, PEER, PEER, OTHER))]
        self.link.answered()
        self.receiver.abort(aborted)
        self.stands(kept, "unsafe")
        self.receive("k4")
        self.receiver.release("k5", PEER)
        self.receiver.over(PEER)
        self.assertEqual(self.told_of, {"dk0": "unsafe", "dk1": "unsafe", "dk2": "unsafe", "dk4": "failed"})
        self.assertFalse(self.receiver.releases())
        self.link.talks.clear()
        for _ in range(49):
            self.after(1)
            self.receiver.heard(OTHER)
            self.receiver.over(PEER)  # that it is known once more changes nothing
        self.assertEqual((self.freed, {to for to, _, _ in self.link.talks}), ([], {OTHER}))
        self.after(1)
        self.assertEqual(self.freed, [aborted, wanted, kept])
        self.assertEqual(self.receiver.peers(), {OTHER})
        self.assertEqual(other.state, self.module.State.WANTED)

    def test_bounds(self):
        """Of a message, and of what is not needed; nobody asks itself."""
        with mock.patch.object(self.module, "_MOST_BYTES", 200):
            for i in range(5):
                self.receive(f"{i:0100}")
            self.link.answered()
            self.after(1)
            self.assertEqual([len(body) for _, kind, body in self.link.answered() if kind == "ask"], [1] * 5)
        with mock.patch.object(self.protocol, "MOST_ASKED", 3):
            self.after(1)
            self.assertEqual([len(body) for _, kind, body in self.link.answered() if kind == "ask"], [3, 2])
        with mock.patch.object(self.module, "_MOST_RELEASED", 2):
            for i in range(9):
                self.receiver.release(f"r{i}", PEER)
            self.assertEqual([key for _, key, _ in self.receiver._released.values()], ["r7", "r8"])
        self.receive("own", ("127.0.0.1:1", "3" * 16))
        self.receive("none", None)
        self.assertEqual(self.told_of, {"down": "failed", "dnone": "failed"})

    def test_close(self):
        """Senders are told that nobody wants what they have."""
        receiving = self.receive()
        self.link.answered()
        self.receiver.close()
        self.assertEqual([body for _, _, body in self.link.answered()], [[[receiving.token, "k", True]]])


class Keeps(unittest.TestCase):
    """The references that the scheduler's half has to blocks of vLLM's pool."""

    def setUp(self):
        from transfer_engine_vllm._keeping import Keeping
        from transfer_engine_vllm._metadata import Kept
        self.kept, self.keeping, self.pool = Kept, Keeping(server.BLOCKS, 0.25), server.Pool(server.BLOCKS)
        self.keeping.pool = self.pool

    def test_until_it_is_told(self):
        """By each worker that keeps them; in the same step, too."""
        self.keeping.change(self.kept([("a:1", [1, 2])]).aggregate(self.kept([("b:1", [2])])))
        self.assertEqual(self.pool.free(), [0, *range(3, server.BLOCKS)])
        self.keeping.change(self.kept([("a:1", [3])], [("a:1", [1, 2]), ("a:1", [3])]))
        self.assertEqual(self.pool.free(), [0, 1, *range(3, server.BLOCKS)])
        self.keeping.change(self.kept(freed=[("b:1", [2])]))
        self.assertEqual((len(self.pool.free()), self.keeping._references, self.keeping._by_peer), (server.BLOCKS, {}, {}))

    def test_share(self):
        """More than lost_share of all are an error that tells of whom they wait, and what to do; a block counts once."""
        for _ in range(3):
            self.keeping.change(self.kept([("a:1", list(range(10)))]))
        with self.assertRaisesRegex(RuntimeError, "11 of 40 blocks .* by a:1, b:1; that is more than lost_share .*Start this server anew"):
            self.keeping.change(self.kept([("b:1", [10])]))


class Schedules(unittest.TestCase):
    """The scheduler's half."""

    def setUp(self):
        from transfer_engine_vllm._scheduler import Scheduler
        from transfer_engine_vllm._peers import Peers
        self.scheduler = Scheduler(types.SimpleNamespace(block_size=server.BLOCK, workers=1, sends=True, receives=True, blocks=9,
                                                         lost_share=1.0, peers=Peers(None)))
        self.scheduler.ranks = [("127.0.0.1:1", "3" * 16)]

    def receive(self, name, **params):
        request = server.Request(name, "one", 8, {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [PEER], **params})
        missing, later = self.scheduler.matched(request, 0)
        self.assertTrue(later)
        self.scheduler.allocated(request, server.Blocks([1, 2]), missing)
        return self.scheduler._next.receives[-1]

    def test_names(self):
        """Of engines alone, each spelt in one way, and of others; with an incarnation, not our own by another name either."""
        life = "0123456789abcdef"
        wrong = ("file:///etc/passwd", "nvmeof/x", "127.0.0.1:1", "host", ":80", "host:", "host:0", "a b:1", "host:70000", "http://a:1",
                 "a/b:1", "[::1]", "[::1:80", "a:1\n", "x" * 300 + ":1", 7, None, ["a:1"], "127.1:80", "0x7f.1:80", "2130706433:80",
                 "Host:80", "host.:80", "host:080", "127.0.0.01:80", "[::FFFF:127.0.0.1]:80", "[::ffff:127.0.0.1]:80", "[0:0::1]:80",
                 "::1:80", "-a:1", "a..b:1")
        for i, name in enumerate(wrong):
            self.assertIsNone(self.receive(f"d{i}", transfer_id=f"k{i}", remote_ranks=[[name, life]]).ranks, name)
        for name in ("file:80", "[::1]:80", "[fe80::1%eth0]:80", "a-b.c_d:65535", "10.0.0.1:1", "a1.b2:1"):  # a host may be called so
            self.assertEqual(self.receive(name, transfer_id=name, remote_ranks=[[name, life]]).ranks, [(name, life)])
        for i, its in enumerate(("life", "", None, 7, life.upper(), "0" * 16, life + "0", "3" * 16)):
            self.assertIsNone(self.receive(f"l{i}", transfer_id=f"l{i}", remote_ranks=[["a:1", its]]).ranks, its)

    def test_prompts(self):
        """Their number of tokens, the tokens themselves and the adapter tell them from each other."""
        from transfer_engine_vllm._prompt import prompt
        requests = [server.Request("a", "one", 8, None) for _ in range(5)]
        requests[2].prompt_token_ids = [*requests[2].prompt_token_ids[:-1], 7]
        requests[3].lora_request = types.SimpleNamespace(lora_name="adapter")
        requests[4].prompt_token_ids = None  # of embeddings
        prompts = [prompt(request) for request in requests]
        self.assertEqual((prompts[0], len(set(prompts))), (prompts[1], 4))
        self.assertEqual(prompts[0].tokens, 8)

    def test_one_id_of_two_requests(self):
        """With n > 1 vLLM makes several of one: the first has it, the others fail by name."""
        self.assertIsNotNone(self.receive("0_d").ranks)
        with self.assertLogs("transfer_engine", "ERROR") as log:
            self.assertIsNone(self.receive("1_d").ranks)
        self.assertIn("transfer_id k is that of request 0_d: it is used once, and `n` must be 1", log.output[0])


class Refuses(unittest.TestCase):
    """What does not fit: when the server starts, and of a peer."""

    def config(self, kinds=None, extra=None, **parallel):
        from transfer_engine_vllm._config import config
        from vllm.v1.kv_cache_interface import FullAttentionSpec
        return config(server.config(extra or {}, **parallel), server.groups(*(kinds or [FullAttentionSpec]), block=7))

    def test_parallel(self):
        self.assertEqual(self.config(tensor_parallel_size=2, rank=1)[7:12], (2, 1, server.BLOCKS, 7, 7 * server.BLOCKS))
        for kind in ("pipeline", "data", "prefill_context", "decode_context"):
            flag = f"--{kind.replace('_', '-')}-parallel-size"
            with self.assertRaisesRegex(ValueError, f"{kind}_parallel_size is 2; start the server without {flag}"):
                self.config(**{f"{kind}_parallel_size": 2})
        with self.assertRaisesRegex(ValueError, "microbatches.*without --enable-dbo and --ubatch-size"):
            self.config(use_ubatching=True)

    def test_roles(self):
        from transfer_engine_vllm._config import config
        from vllm.v1.kv_cache_interface import FullAttentionSpec
        for role, does in (("kv_producer", (True, False)), ("kv_consumer", (False, True)), ("kv_both", (True, True))):
            self.assertEqual(config(server.config({}, role=role), server.groups(FullAttentionSpec))[-2:], does)
        for role in (None, "both", ""):
            with self.assertRaisesRegex(ValueError, "kv_producer .*kv_consumer .*kv_both"):
                config(server.config({}, role=role), server.groups(FullAttentionSpec))

    def test_version(self):
        """Of vLLM: another one is told when the package is imported."""
        import importlib.metadata
        import transfer_engine_vllm
        for version in ("0.33.1", "0.34.0+cpu"):
            with mock.patch.object(importlib.metadata, "version", return_value=version):
                with self.assertRaisesRegex(ImportError, "is written for vllm 0.33.0, and " + version.replace("+", ".")):
                    importlib.reload(transfer_engine_vllm)
        with mock.patch.object(importlib.metadata, "version", return_value="0.33.0+cpu"):
            importlib.reload(transfer_engine_vllm)

    def test_rank(self):
        from transfer_engine_vllm._worker import Worker
        with self.assertRaisesRegex(ValueError, "a worker of rank 2 where tensors are 2 parallel"):
            Worker(self.config(tensor_parallel_size=2, rank=2))

    def test_kinds_of_caches(self):
        """Of those whose blocks are freed while a request runs, or of more than one kind, nothing is moved."""
        from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec
        window, uniform = type("SlidingWindowSpec", (FullAttentionSpec,), {}), types.SimpleNamespace
        for kind in (FullAttentionSpec, MLAAttentionSpec, lambda: uniform(kv_cache_specs={"a": FullAttentionSpec()})):
            self.assertEqual(self.config([kind]).block_size, 7)
        for kinds in ([window], [FullAttentionSpec, FullAttentionSpec], [lambda: uniform(kv_cache_specs={"a": window()})]):
            with self.assertRaisesRegex(ValueError, "one group of KV caches of full attention.*--disable-hybrid-kv-cache-manager"):
                self.config(kinds)
        from transfer_engine_vllm._config import _block_size
        for groups in (server.groups(), server.groups(FullAttentionSpec)):
            for group in groups.kv_cache_groups:
                group.host_resident = True
            with self.assertRaises(ValueError):
                _block_size(groups)

    def test_options(self):
        self.assertEqual(self.config(extra={"hold_s": "7", "lease_s": 9, "lost_s": 2}).limits[:3], (7, 9, 2))
        for wrong in ({"holds": 1}, {"hold_s": 0}, {"hold_s": -1}, {"hold_s": "nan"}, {"hold_s": "inf"}, {"hold_s": "x"},
                      {"lost_share": 0}, {"lost_share": 1.1}, {"layerwise": 1}, {"model": "x" * 300}, {"peers": []}, {"peers": "a"},
                      {"port": "1"}, {"port": -1}, {"port": 65000}, {"peers": [7]}, {"peers": ["A"]},
                      {"peers": ["10.0.0.0/33"]}, {"peers": ["a:1"]}):
            with self.assertRaises(ValueError):
                self.config(extra=wrong)
        self.assertEqual((self.config(extra={"model": "m"}).model, self.config().model), ("m", "a model"))

    def test_host(self):
        """As it is to be spelt; without a port, which would be that of every worker."""
        for given, host in (("10.0.0.1", "10.0.0.1"), ("Host.", "host"), ("[::0001]", "::1"), ("::ffff:10.0.0.1", "10.0.0.1")):
            self.assertEqual(self.config(extra={"host": given}).host, host)
        for wrong in ("10.0.0.1:15500", "host:80", "[::1]:80", "a b", "127.1"):
            with self.assertRaisesRegex(ValueError, "host"):
                self.config(extra={"host": wrong})

    def test_peers(self):
        """Those that are listed: hosts, addresses and networks."""
        from transfer_engine_vllm._peers import Peers
        peers = Peers(["host", "10.0.0.7", "10.1.0.0/16", "fd00::/8"])
        allowed = [name for name in ("host:1", "10.0.0.7:1", "10.1.2.3:9", "[fd00::9]:1", "other:1", "10.0.0.8:1", "[::1]:1", "10.2.0.0:1")
                   if peers.allow(name)]
        self.assertEqual(allowed, ["host:1", "10.0.0.7:1", "10.1.2.3:9", "[fd00::9]:1"])
        with self.assertRaisesRegex(ValueError, "other:1 is on none of the hosts that `peers`"):
            peers.address(["other:1", "1" * 16])
        self.assertTrue(Peers(None).allow("any:1"))

    def test_graphs(self):
        """Only what is sent layer by layer needs graphs of pieces."""
        from transfer_engine_vllm import TransferEngineConnector
        for extra, needs in (({}, True), ({"layerwise": True}, True), ({"layerwise": False}, False)):
            self.assertEqual(TransferEngineConnector.requires_piecewise_for_cudagraph(extra), needs)

    def test_time_to_end(self):
        """It is less than vLLM gives a worker."""
        from transfer_engine_vllm._worker import close_s
        for value, seconds in ((None, 5), ("", 5), ("20", 20)):
            with mock.patch.dict(os.environ, {} if value is None else {"VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": value}):
                self.assertEqual(close_s(), 0.6 * seconds)

    def test_caches(self):
        """What the connector does not move is told when it is registered."""
        from transfer_engine_vllm._caches import parts
        cache = memory.cache((2, 8, 4, 6), False)
        self.assertEqual(parts("l", cache, 8, "k"), ["k bytes [4, 6] [6, 1]", 24, 24, cache.data_ptr(), cache.data_ptr() + 192])
        for device in ("meta", "xpu", "npu"):
            cache.device = types.SimpleNamespace(type=device)
            with self.assertRaisesRegex(ValueError, f"l: .*'{device}'"):
                parts("l", cache, 8, "k")
        with self.assertRaisesRegex(ValueError, "l: .*'list'"):
            parts("l", [cache], 8, "k")
        with self.assertRaisesRegex(ValueError, "none of its first two dimensions has 9 blocks"):
            parts("l", memory.cache((2, 8, 4, 6), False), 9, "k")

    def test_waits_for_a_device(self):
        """Asleep, and for what it was told until then."""
        from transfer_engine_vllm._caches import settled
        cache = memory.cache((8, 4), False)
        self.assertIsNone(settled(cache)())
        cache.device, torch = types.SimpleNamespace(type="cuda"), mock.MagicMock()
        with mock.patch.dict(sys.modules, torch=torch):
            wait = settled(cache)
        torch.cuda.Event.assert_called_once_with(blocking=True)
        event = torch.cuda.Event.return_value
        event.record.assert_called_once_with()
        event.synchronize.assert_not_called()
        wait()
        event.synchronize.assert_called_once_with()

    def test_layouts(self):
        """Of the same length, and not the same: another kind of numbers, another shape, the other order of it."""
        from transfer_engine_vllm._caches import parts, refuses

        def places(shape, kind="auto/4", dtype="bytes", swapped=False):
            cache = memory.cache(shape, False)
            cache.dtype = dtype
            if swapped:
                cache.shape = (shape[0], shape[2], shape[1])
                cache._strides[1:] = cache._strides[:0:-1]
            return {"l": parts("l", cache, 8, kind)}

        ours = places((8, 4, 6))
        self.assertIsNone(refuses(ours, places((8, 4, 6)), 7))
        self.assertRegex(refuses(ours, places((8, 4, 6)), 1 << 60), "l: block .* ends beyond all memory")
        for theirs in (places((8, 6, 4)), places((8, 4, 6), kind="fp8_e5m2/4"), places((8, 4, 6), kind="auto/2"),
                       places((8, 4, 6), dtype="int8"), places((8, 4, 6), swapped=True)):
            self.assertEqual(theirs["l"][1:3], ours["l"][1:3])
            self.assertRegex(refuses(ours, theirs, 7), "l: a block there .*--kv-cache-dtype")


if __name__ == "__main__":
    te.main()
