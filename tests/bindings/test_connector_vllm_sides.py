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

PEER, OTHER = ("127.0.0.1:7", "life"), ("127.0.0.1:8", "life")


def setUpModule():
    remote.prepare()
    standin.install()


class Link:
    """Takes what is said, and does nothing before it is told to."""

    def __init__(self):
        self.said, self.jobs, self.talks, self.full = [], [], [], False

    def reaches(self, session):
        return session != "127.0.0.1:1"

    def do(self, session, job):
        if self.full:
            raise OSError("no thread")
        self.jobs.append((session, job))

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


class Side(unittest.TestCase):
    def setUp(self):
        from transfer_engine_vllm import _protocol
        self.protocol, self.clock, self.link = _protocol, types.SimpleNamespace(now=100.0), Link()
        self.limits = _protocol.Limits(hold=10, lease=100, lost=20)
        self.lock, self.ends = threading.RLock(), []

    def want(self, token="t", key="k", first=0, blocks=(1, 2)):
        return self.protocol.Want(PEER, token, key, first, list(blocks), {})


class Sends(Side):
    def setUp(self):
        super().setUp()
        from transfer_engine_vllm import _sending
        self.module, self.why = _sending, None
        self.sender = _sending.Sender(self.lock, self.clock, self.limits, lambda want: self.why, self.ends.append)
        self.sender.link = self.link

    def piece(self, settled=lambda: None):
        return self.module.Piece(settled, lambda want: self.module.Moves([], [], []))

    def told(self):
        told, self.link.said = [(kind, body) for _, kind, body in self.link.said], []
        return told

    def test_from_the_middle(self):
        """A request of which the beginning was not seen is not sent, nor is one with a gap: never is that told as done."""
        self.assertIsNone(self.sender.extend("k", "p", 2, 2))
        self.sender.take(self.want("t2", "k2", 0, range(6)))
        sending = self.sender.extend("k2", "p2", 0, 2)
        self.sender.add(sending, self.piece())
        self.assertIsNone(self.sender.extend("k2", "p2", 4, 2))
        self.assertEqual(self.told(), [])  # not before the job is over
        self.link.jobs.pop()[1](None)
        self.assertEqual(self.told(), [("is", [["t2", "failed"]])])
        self.assertEqual([ended.owner for ended in self.ends], ["p2"])
        self.sender.take(self.want("t3", "k3", 0, range(3)))
        self.sender.complete(self.sender.extend("k3", "p3", 0, 2))
        self.assertEqual(self.told(), [("is", [["t3", "failed"]])])

    def test_unsafe_is_never_forgotten(self):
        """However much has ended since; of the rest the newest is known."""
        with mock.patch.object(self.protocol, "MOST_KNOWN", 2):
            self.sender._note("u", "unsafe")
            for i in range(9):
                self.sender._note(f"t{i}", "done")
                self.sender.stop(f"k{i}")
        self.assertEqual((list(self.sender._ends), list(self.sender._over)), (["t7", "t8"], ["k7", "k8"]))
        self.clock.now += 1e9
        self.sender.expire()
        self.assertEqual(self.sender.state("u", "k", True), "unsafe")
        self.assertEqual([self.sender.state(t, "k", False) for t in ("u", "t0", "t8")], ["unsafe", "unknown", "done"])

    def test_hold(self):
        """Of a want that has nothing, and of a complete request that nobody wants; not of one that is wanted."""
        self.sender.take(self.want("early", "e"))
        for key in ("k", "k2"):
            self.sender.complete(self.sender.extend(key, key, 0, 2))
        self.sender.extend("computed", "c", 0, 2)
        sending = self.sender.extend("wanted2", "w", 0, 2)
        self.sender.add(sending, self.piece())
        self.sender.take(self.want("t", "wanted2"))
        self.clock.now += 9
        self.sender.expire()
        self.assertEqual(self.ends, [])
        self.clock.now += 2
        self.sender.expire()
        self.assertEqual(sorted(ended.owner for ended in self.ends), ["k", "k2"])
        self.assertEqual(self.told(), [("is", [["early", "failed"]])])
        self.assertIsNone(self.sender.extend("k", "again", 0, 2))

    def test_no_thread(self):
        """A piece that the link does not take ends the request: nobody waits for it."""
        self.sender.take(self.want())
        sending, self.link.full = self.sender.extend("k", "p", 0, 2), True
        for _ in range(2):
            self.sender.add(sending, self.piece())
        self.assertEqual((self.ends, sending.jobs), ([sending], 0))
        self.assertEqual(self.told(), [("is", [["t", "failed"]])])

    def test_what_is_dropped_waits_for_nothing(self):
        """Neither for the device nor for the peer."""
        self.sender.take(self.want())
        sending, waited = self.sender.extend("k", "p", 0, 2), []
        for _ in range(2):
            self.sender.add(sending, self.piece(lambda: waited.append(1)))
        self.sender.forget([sending])
        self.link.jobs.pop()[1](lambda: waited.append(2))
        self.assertEqual((waited, self.ends), ([], []))
        self.sender.stop("k")
        self.link.jobs.pop()[1](lambda: waited.append(2))
        self.assertEqual((waited, self.ends), ([], [sending]))

    def test_memory_that_does_not_become_quiet(self):
        """It is not waited for without end, once for all of them, and what is read then is never told as done."""
        self.sender.take(self.want())
        sendings = [self.sender.extend(key, key, 0, 2) for key in ("k", "k2")]
        for sending in sendings:
            sending.reading = True
        self.sender.add(sendings[0], self.piece())
        with mock.patch.object(self.module, "_QUIET_S", 0.01):
            self.sender.forget(sendings)
        self.link.jobs.pop()[1](None)
        self.assertEqual(self.told(), [("is", [["t", "failed"]])])
        self.assertEqual([sending.failed for sending in sendings], [True, True])

    def test_deadline(self):
        """Of what is wanted and does not end: it fails, and ends when its jobs are over."""
        self.sender.take(self.want())
        sending = self.sender.extend("k", "p", 0, 2)
        self.sender.add(sending, self.piece())
        self.clock.now += 99
        self.sender.expire()
        self.assertFalse(sending.failed)
        self.clock.now += 2
        self.sender.expire()
        self.assertEqual((sending.failed, self.ends), (True, []))
        self.link.jobs.pop()[1](None)
        self.assertEqual((self.ends, self.told()), ([sending], [("is", [["t", "failed"]])]))

    def test_stopped_by_its_owner(self):
        sending = self.sender.extend("k", "p", 0, 2)
        self.assertIsNone(self.sender.extend("k", "p2", 0, 2))
        self.sender.stop("k", "p2")
        self.assertFalse(sending.failed)
        self.sender.stop("k", "p")
        self.assertEqual(self.ends, [sending])

    def test_close(self):
        """Whoever has asked is told; who asks now, too; and nothing begins."""
        self.sender.take(self.want("early", "e"))
        self.sender.take(self.want())
        self.sender.extend("k", "p", 0, 2)
        self.sender.close()
        self.sender.take(self.want("late", "l"))
        self.assertEqual(self.told(), [("is", [[token, "failed"]]) for token in ("t", "early", "late")])
        self.assertIsNone(self.sender.extend("n", "n", 0, 2))

    def test_refused(self):
        """Nobody gets what does not fit, and its blocks are not held for anybody."""
        self.why = "it does not fit"
        self.sender.complete(self.sender.extend("k", "p", 0, 2))
        self.sender.take(self.want())
        self.assertEqual((self.told(), len(self.ends)), ([("is", [["t", "failed"]])], 1))


class Receives(Side):
    def setUp(self):
        super().setUp()
        from transfer_engine_vllm import _receiving
        self.module = _receiving
        self.receiver = _receiving.Receiver(self.lock, self.clock, self.limits, self.ends.append)
        self.receiver.link = self.link

    def receive(self, key="k", peer=PEER):
        return self.receiver.receive(key, "d" + key, peer, 0, [1, 2], {})

    def stands(self, receiving, state):
        self.receiver.stands(receiving.token, state, PEER)

    def after(self, seconds):
        self.clock.now += seconds
        self.receiver.look_after()

    def kinds(self):
        return [kind for _, kind, _ in self.link.answered()]

    def test_forgotten_by_the_sender(self):
        """What it does not know is said again; what it knew before may have been begun."""
        receiving = self.receive()
        self.assertEqual(self.kinds(), ["want"])
        self.stands(receiving, "unknown")
        self.assertEqual(self.kinds(), ["want"])
        self.stands(receiving, "waits")
        self.stands(receiving, "unknown")
        self.assertEqual((receiving.ended, self.ends), ("unsafe", [receiving]))

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
        """Any word of a peer counts for all that it was asked for; without one, what it may know of is unsafe."""
        one, two, other = self.receive(), self.receive("k2"), self.receive("k3", OTHER)
        self.after(1)
        for _ in range(3):
            self.after(15)
            self.receiver.heard(PEER)
        self.assertEqual((self.ends, other.ended), ([other], "failed"))  # nobody has told it anything
        self.link.answered()
        self.after(19)
        self.assertEqual(len(self.ends), 1)
        three = self.receive("k4")
        self.after(2)
        self.assertEqual([one.ended, two.ended, three.ended], ["unsafe", "unsafe", None])

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
        self.assertIsNone(receiving.ended)
        self.hearing(9)
        self.assertEqual(receiving.ended, "unsafe")
        late = self.receive("k2")
        self.link.answered()
        self.hearing(99)
        self.assertIsNone(late.aborted)
        self.hearing(9)
        self.assertEqual(self.link.answered()[-1][2], [[late.token, "k2", True]])
        self.stands(late, "failed")
        self.assertEqual(late.ended, "failed")

    def test_aborted_before_anything_is_said(self):
        receiving = self.receive()
        self.receiver.abort(receiving)
        self.assertEqual(receiving.ended, "failed")
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
        self.assertIsNone(receiving.ended)
        self.assertEqual([body for _, _, body in self.link.answered()], [[[receiving.token, "k", True]]])
        self.stands(receiving, "failed")
        self.assertEqual(receiving.ended, "failed")

    def test_a_want_counts_as_said_before_it_is(self):
        receiving = self.receive()
        (_, messages, _), = self.link.talks
        messages()
        self.after(21)
        self.assertEqual(receiving.ended, "unsafe")

    def test_welcomed(self):
        """What waits for a greeting is said when that is answered, and never to a stranger."""
        one, other = self.receive(), self.receive("k2", OTHER)
        for _, _, over in self.link.talks:
            over([])
        self.link.talks.clear()
        self.receiver.welcomed(PEER)
        self.assertEqual([to for to, _, _ in self.link.talks], [PEER])
        self.link.answered()
        for peer in (PEER, OTHER):
            self.receiver.estranged((peer[0], ""), "life", "hello", ["n", peer[0]])
        self.assertEqual((one.ended, other.ended), (None, "failed"))

    def test_another_life(self):
        """Only what the stranger names is ended, and what nobody else was told of is safe."""
        one, two, three = self.receive(), self.receive("k2"), self.receive("k3")
        self.link.answered()
        self.stands(two, "unknown")
        self.link.answered()
        stranger = (PEER[0], "another")
        self.receiver.estranged(stranger, "life", "want", [one.token, "k", 0, [], {}])
        self.receiver.estranged(stranger, "life", "ask", [[two.token, "k2", False]])
        self.receiver.estranged(stranger, "no such", "want", [three.token])
        self.receiver.estranged((OTHER[0], "another"), "life", "want", [three.token])
        self.assertEqual([one.ended, two.ended, three.ended], ["failed", "unsafe", None])

    def test_bounds(self):
        """Of a message, and of what is asked for; nobody asks itself."""
        with mock.patch.object(self.module, "_MOST_BYTES", 200):
            for i in range(5):
                self.receive(f"{i:0100}")
            self.link.answered()
            self.after(1)
            self.assertEqual([len(body) for _, kind, body in self.link.answered() if kind == "ask"], [1] * 5)
        with mock.patch.object(self.protocol, "MOST_KNOWN", 5):
            self.assertEqual(self.receive("more").ended, "failed")
        self.assertEqual(self.receive("own", ("127.0.0.1:1", "life")).ended, "failed")
        self.assertEqual(self.receive("none", None).ended, "failed")

    def test_close(self):
        """Senders are told that nobody wants what they have."""
        receiving = self.receive()
        self.link.answered()
        self.receiver.close()
        self.assertEqual([body for _, _, body in self.link.answered()], [[[receiving.token, "k", True]]])


class Schedules(unittest.TestCase):
    """The scheduler's half."""

    def setUp(self):
        from transfer_engine_vllm._scheduler import Scheduler
        self.scheduler = Scheduler(types.SimpleNamespace(block_size=server.BLOCK, workers=1, sends=True, receives=True))
        self.scheduler.ranks = [("127.0.0.1:1", "own")]

    def receive(self, name, **params):
        request = server.Request(name, "one", 8, {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [PEER], **params})
        missing, later = self.scheduler.matched(request, 0)
        self.assertTrue(later)
        self.scheduler.allocated(request, server.Blocks([1, 2]), missing)
        return self.scheduler._next.receives[-1]

    def test_names(self):
        """Of engines alone, and of others."""
        self.assertEqual(self.receive("d").ranks, [PEER])
        for i, name in enumerate(("file:///etc/passwd", "file:80", "nvmeof/x", "127.0.0.1:1", "host", ":80", "host:", "host:0", "a b:1",
                                  "host:70000", "http://a:1", "a/b:1", "[::1]", "[::1:80", "a:1\n", "x" * 300 + ":1", 7, None, ["a:1"])):
            expected = [(name, "l")] if name == "file:80" else None  # a host may be called so
            self.assertEqual(self.receive(f"d{i}", transfer_id=f"k{i}", remote_ranks=[[name, "l"]]).ranks, expected, name)
        for name in ("[::1]:80", "[fe80::1%eth0]:80", "a-b.c_d:65535"):
            self.assertEqual(self.receive(name, transfer_id=name, remote_ranks=[[name, "l"]]).ranks, [(name, "l")])

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
        self.assertEqual(self.config(tensor_parallel_size=2, rank=1)[2:6], (2, 1, server.BLOCKS, 7))
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
        for wrong in ({"holds": 1}, {"hold_s": 0}, {"hold_s": -1}, {"hold_s": "nan"}, {"hold_s": "inf"}, {"hold_s": "x"}):
            with self.assertRaises(ValueError):
                self.config(extra=wrong)

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
        self.assertIsNone(refuses(ours, places((8, 4, 6))))
        for theirs in (places((8, 6, 4)), places((8, 4, 6), kind="fp8_e5m2/4"), places((8, 4, 6), kind="auto/2"),
                       places((8, 4, 6), dtype="int8"), places((8, 4, 6), swapped=True)):
            self.assertEqual(theirs["l"][1:3], ours["l"][1:3])
            self.assertRegex(refuses(ours, theirs), "l: a block there .*--kv-cache-dtype")


if __name__ == "__main__":
    te.main()
