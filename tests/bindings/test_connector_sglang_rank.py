#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend for SGLang between two processes, without SGLang: pages of random bytes, aborts, and peers that are killed."""
import os
import sys
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, name) for name in ("connector_sglang", "connector_vllm", os.path.join("..", "integration"))]
import remote  # noqa: E402
import side  # noqa: E402
import te_proc as te  # noqa: E402
from side import PAGES  # noqa: E402

HELD, REUSED = 0x55, 0xAA
OURS, THEIRS = [3, 4, 5, 9, 8, 20, 21], [7, 8, 9, 30, 31, 33, 32]  # pages of a request, some behind each other on both sides


def setUpModule():
    remote.prepare()
    side.install()


class Ranks(unittest.TestCase):
    def side(self, sends, **arguments):
        made = remote.Remote(self, side.serve, sends=sends, **arguments)
        if not sends:
            made.fill(HELD)
        return made

    def pair(self, **arguments):
        return self.side(True), self.side(False, **arguments)

    def ask(self, prefill, decode, room=1, first=0, pages=tuple(THEIRS)):
        """Prefill knows what decode wants."""
        prefill.send(room)
        decode.want(room, prefill.address(), first, list(pages), 2)
        te.until(lambda: prefill.asked(room), "what decode asks")

    def ended(self, decode, room=1):
        return te.until(lambda: decode.outcome(room), "an end")

    def sent(self, prefill, room=1):
        return te.until(lambda: prefill.sent(room), "an end of the sending")

    def held(self, **arguments):
        """Two ranks with a WRITE under way that decode, which is stopped, does not take."""
        prefill, decode = self.pair(**arguments)
        self.whole(prefill, decode, 9)
        self.ask(prefill, decode)
        prefill.compute("one", 0, OURS)
        prefill.announce(1, len(OURS))
        decode.fill(HELD)
        decode.freeze()
        prefill.add(1, OURS[:3])
        te.until(prefill.under_way, "a WRITE under way")
        return prefill, decode

    def whole(self, prefill, decode, room, prompt="whole"):
        self.ask(prefill, decode, room)
        prefill.compute(prompt, 0, OURS)
        prefill.write_row(prompt, 5)
        prefill.announce(room, len(OURS))
        prefill.add(room, OURS, 5)
        self.assertEqual((self.ended(decode, room), self.sent(prefill, room)), ("done", "done"))
        self.assertEqual(decode.wrong(prompt, 0, THEIRS, 2), 0)

    def test_chunks(self):
        """They go as they are computed, the row last; nothing beside them is touched."""
        prefill, decode = self.pair()
        self.ask(prefill, decode)
        prefill.announce(1, len(OURS))
        prefill.compute("one", 0, OURS[:4])
        prefill.add(1, OURS[:4])
        te.until(lambda: not decode.wrong("one", 0, THEIRS[:4]), "the first chunk")
        self.assertEqual((decode.outcome(1), prefill.sent(1)), (None, None))
        prefill.compute("one", 4, OURS[4:])
        prefill.write_row("one", 5)
        prefill.add(1, OURS[4:], 5)
        self.assertEqual((self.ended(decode), self.sent(prefill)), ("done", "done"))
        self.assertEqual(decode.wrong("one", 0, THEIRS, 2), 0)
        self.assertTrue(decode.untouched(HELD, sorted(set(range(PAGES)) - set(THEIRS))))
        self.assertTrue(decode.quiet(1))

    def test_what_decode_has(self):
        """Only the rest is sent, or the row alone."""
        prefill, decode = self.pair()
        self.ask(prefill, decode, first=2, pages=THEIRS[2:])
        self.assertEqual(prefill.prefix(1), 2)
        prefill.compute("one", 0, OURS)
        prefill.write_row("one", 5)
        prefill.announce(1, len(OURS) - 2)
        prefill.add(1, OURS[2:], 5)
        self.assertEqual(self.ended(decode), "done")
        self.assertEqual(decode.wrong("one", 2, THEIRS[2:], 2), 0)
        self.assertTrue(decode.untouched(HELD, THEIRS[:2]))
        self.ask(prefill, decode, 2, first=7, pages=())
        prefill.write_row("two", 6)
        prefill.announce(2, 0)
        prefill.add(2, [], 6)
        self.assertEqual(self.ended(decode, 2), "done")
        self.assertEqual(decode.wrong("two", 0, [], 2), 0)

    def test_decode_aborts(self):
        """Between two chunks: its pages are used again at once, and the second chunk goes nowhere."""
        prefill, decode = self.pair()
        self.ask(prefill, decode)
        prefill.compute("one", 0, OURS)
        prefill.announce(1, len(OURS))
        prefill.add(1, OURS[:3])
        te.until(lambda: not decode.wrong("one", 0, THEIRS[:3]), "the first chunk")
        decode.abort(1)
        te.until(lambda: decode.quiet(1), "prefill's word")
        decode.fill(REUSED)
        prefill.add(1, OURS[3:], 5)
        self.assertEqual((decode.outcome(1), self.sent(prefill)), ("failed", "failed"))
        self.whole(prefill, decode, 2)
        self.assertTrue(decode.untouched(REUSED, sorted(set(range(PAGES)) - set(THEIRS))))

    def test_decode_aborts_a_write_under_way(self):
        """Its pages are not quiet before a fence has certified it, and stay what they are from then on."""
        prefill, decode = self.held()
        prefill.freeze()
        decode.thaw()
        decode.abort(1)
        self.assertFalse(decode.quiet(1))
        prefill.thaw()
        te.until(lambda: decode.quiet(1), "prefill's word")
        decode.fill(REUSED)
        prefill.add(1, OURS[3:], 5)
        self.assertEqual(self.sent(prefill), "failed")
        self.assertFalse(prefill.fencing())
        self.assertTrue(decode.untouched(REUSED))

    def test_prefill_aborts_a_write_under_way(self):
        """Its own pages are overwritten at once; decode has its own back when it is fenced."""
        prefill, decode = self.held()
        prefill.quit(1)
        self.assertFalse(prefill.under_way())
        prefill.fill(REUSED)
        self.assertEqual(self.sent(prefill), "failed")
        self.assertTrue(prefill.fencing())
        decode.thaw()
        self.assertEqual(self.ended(decode), "failed")
        self.assertTrue(decode.quiet(1))
        decode.fill(HELD)
        te.until(lambda: not prefill.fencing(), "the end of the doubt")
        self.assertTrue(decode.untouched(HELD))

    def test_late_write(self):
        """One that takes longer than write_s fails, and decode keeps its pages as long as nothing tells that it is over."""
        prefill, decode = self.pair()
        self.whole(prefill, decode, 9)
        self.ask(prefill, decode)
        prefill.limit(write=0.1, fence=0.1)
        prefill.announce(1, len(OURS))
        decode.freeze()
        prefill.add(1, OURS[:3])
        self.assertEqual(self.sent(prefill), "failed")
        decode.thaw()
        self.assertIn(self.ended(decode), ("failed", "unsafe"))
        te.until(lambda: decode.quiet(1), "prefill's word")
        decode.fill(REUSED)
        te.until(lambda: not prefill.fencing(), "the end of the doubt")
        self.assertTrue(decode.untouched(REUSED))

    def test_prefill_is_killed(self):
        """Decode is told, and keeps the pages until another process has that name: then nothing is written any more."""
        prefill, decode = self.pair(extra={"settle_s": 0.2})
        name, _ = prefill.address()
        self.ask(prefill, decode)
        prefill.compute("one", 0, OURS)
        prefill.announce(1, len(OURS))
        prefill.add(1, OURS[:3])
        te.until(lambda: not decode.wrong("one", 0, THEIRS[:3]), "the first chunk")
        prefill.kill()
        decode.limit(lost=1)
        self.assertEqual(self.ended(decode), "unsafe")
        decode.abort(1)
        self.assertFalse(decode.quiet(1))
        decode.fill(HELD)
        self.side(True, port=int(name.rpartition(":")[2]))
        te.until(lambda: decode.quiet(1), "that the one before is over")
        self.assertTrue(decode.untouched(HELD))

    def test_too_many_are_kept(self):
        """It is an error that tells of whom it waits."""
        prefill, decode = self.pair(extra={"lost_share": 0.1})
        name, _ = prefill.address()
        self.ask(prefill, decode)
        prefill.kill()
        decode.limit(lost=1)
        self.assertEqual(self.ended(decode), "unsafe")
        with self.assertRaisesRegex(AssertionError, f"7 of {PAGES} pages may still be written to by {name}.*lost_share"):
            decode.quiet(1)
        decode.kill()

    def test_decode_is_killed(self):
        """Prefill has its pages back."""
        prefill, decode = self.held()
        decode.kill()
        prefill.limit(write=0.1)
        prefill.quit(1)
        self.assertEqual(self.sent(prefill), "failed")
        self.assertFalse(prefill.under_way())

    def test_decode_is_started_anew(self):
        """Another process with its name and its cache at the same place gets nothing that was meant for it."""
        place = 1 << 45
        prefill, decode = self.pair(at=place)
        name, life = decode.address()
        self.ask(prefill, decode)
        decode.kill()
        late = self.side(False, port=int(name.rpartition(":")[2]), at=place)
        self.assertEqual((late.address()[0], late.address()[1] != life), (name, True))
        prefill.announce(1, len(OURS))
        prefill.add(1, OURS, 5)
        self.assertEqual(self.sent(prefill), "failed")
        self.assertTrue(late.untouched(HELD))
        late.want(2, prefill.address(), 0, [1], 1)
        self.assertEqual(late.outcome(2), None)
        late.abort(2)
        te.until(lambda: late.quiet(2), "its end")

    def test_what_is_refused(self):
        """Nothing is written where a server has another model, other pages or rows, or sends nothing at all."""
        prefill = self.side(True)
        others = ({"model": "another"}, {"size": 2048}, {"layers": 2}, {"kind": "fp8"}, {"rows": 1})
        for room, arguments in enumerate(others, 1):
            decode = self.side(False, **arguments)
            prefill.send(room)
            decode.want(room, prefill.address(), 0, [1, 2], 1)
            self.assertEqual(self.ended(decode, room), "failed")
            self.assertEqual(self.sent(prefill, room), "failed")
            self.assertTrue(decode.quiet(room) and decode.untouched(HELD))
        first, second = self.side(False), self.side(False)
        first.want(9, second.address(), 0, [1], 1)
        self.assertEqual(self.ended(first, 9), "failed")
        stranger = self.side(False, extra={"peers": ["10.0.0.1"]})
        stranger.want(9, prefill.address(), 0, [1], 1)
        self.assertEqual(stranger.outcome(9), "failed")

    def test_other_numbers_of_pages(self):
        """Than were announced, or than decode wants: nothing is told as done."""
        for pages, chunks in ((6, ()), (7, ([3, 4], [5])), (7, (list(range(8)),))):
            prefill, decode = self.pair()
            self.ask(prefill, decode)
            prefill.announce(1, pages)
            for i, chunk in enumerate(chunks, 1):
                prefill.add(1, chunk, 5 if i == len(chunks) else None)
            self.assertEqual((self.sent(prefill), self.ended(decode)), ("failed", "failed"))
            self.assertRegex(prefill.why(1), "there are 6" if pages == 6 else "pages were computed, and 7 announced")

    def test_a_room_is_for_one_request(self):
        prefill, decode = self.pair()
        self.whole(prefill, decode, 1)
        prefill.send(1)
        self.assertEqual((prefill.sent(1), prefill.why(1)), ("failed", "the room was used before, or decode has given it up"))
        decode.release(2, prefill.address())
        te.until(lambda: prefill.send(2) or prefill.sent(2), "what decode does not need")
        self.assertEqual(prefill.sent(2), "failed")


class Parts(unittest.TestCase):
    """What lies beside the exchange."""

    def pages(self, layers=2, size=10):
        from transfer_engine_sglang._pages import Pages
        given = types.SimpleNamespace(kv_data_ptrs=[1000 * i for i in range(1, layers + 1)], kv_data_lens=[size * 20] * layers,
                                      kv_item_lens=[size] * layers, aux_data_ptrs=[9000], aux_data_lens=[64], aux_item_lens=[8])
        return Pages(given, "k"), given

    def want(self, blocks, places, first=0):
        from transfer_engine_sglang._protocol import Prompt, Want
        return Want(("a:1", "1" * 16), "t", "k", Prompt(0, "-"), first, blocks, "m", places)

    def test_moves(self):
        """Pages that follow each other on both sides go as one."""
        pages, _ = self.pages()
        theirs = {name: [layout, step, length, base + 50000] for name, (layout, step, length, base) in pages.all.items()}
        want = self.want([5, 6, 8, 9, 2], theirs)
        self.assertEqual(tuple(pages.moves(["kv.0", "kv.1"], 0, [1, 2, 3, 7], want)),
                         ([1010, 1030, 1070, 2010, 2030, 2070], [51050, 51080, 51090, 52050, 52080, 52090], [20, 10, 10] * 2))
        self.assertEqual(tuple(pages.moves(["row.0"], 4, [3], want)), ([9024], [59016], [8]))
        self.assertEqual(tuple(pages.moves(["kv.0"], 9, [3], want)), ([], [], []))
        apart = {**theirs, "kv.0": ["", 32, 10, 0]}
        self.assertEqual(tuple(pages.moves(["kv.0"], 0, [1, 2], self.want([5, 6, 0], apart))), ([1010, 1020], [160, 192], [10, 10]))

    def test_groups(self):
        """Of layers: so many that one WRITE is not too long."""
        from transfer_engine_sglang import _pages
        pages, _ = self.pages(layers=5)
        for count, sizes in ((1, [5]), (_pages.MOST_MOVES // 2, [2, 2, 1]), (2 * _pages.MOST_MOVES, [1] * 5)):
            self.assertEqual([len(group) for group in pages.groups(count)], sizes)

    def test_arguments(self):
        """Lists of different lengths are told."""
        pages, given = self.pages()
        self.assertEqual((pages.count, pages.memory), (20, [(1000, 200), (2000, 200), (9000, 64)]))
        for name in ("kv_data_lens", "kv_item_lens", "aux_item_lens", "aux_data_lens"):
            with mock.patch.object(given, name, []), self.assertRaisesRegex(ValueError, "lengths"):
                type(pages)(given, "k")

    def options(self, text="", host="10.0.0.1"):
        from transfer_engine_sglang import _config
        return _config.options({_config.VARIABLE: text}, host, "a model")

    def test_options(self):
        found = self.options('{"port": 15500, "hold_s": "7", "peers": ["10.0.0.0/8"], "lost_share": 0.2, "host": "[::1]"}')
        self.assertEqual((found.host, found.port, found.limits.hold, found.lost_share, found.model),
                         ("::1", 15500, 7, 0.2, "a model"))
        self.assertEqual((self.options().host, self.options().port), ("10.0.0.1", 0))
        for text in ("[]", "{", '{"holds": 1}', '{"hold_s": 0}', '{"hold_s": "nan"}', '{"hold_s": null}', '{"lost_share": 0}',
                     '{"port": "1"}', '{"port": true}', '{"port": 65000}', '{"peers": []}', '{"peers": ["A"]}', '{"host": "a:1"}',
                     '{"model": 7}'):
            with self.assertRaisesRegex(ValueError, "the environment variable TRANSFER_ENGINE_SGLANG: ."):
                self.options(text)

    def refused(self, environment=None, decodes=False, state=(), parallel=None, hybrid=False, **arguments):
        from transfer_engine_sglang import _config
        sizes = types.SimpleNamespace(**{**{name: 1 for name, _ in _config._SINGLE}, **(parallel or {})})
        off = {**dict.fromkeys(_config.ARGUMENTS, False), "tokenizer_worker_num": 1, **arguments}
        return _config.refused(types.SimpleNamespace(state_types=list(state), is_hybrid_mla_backend=hybrid), sizes, off,
                               environment or {}, decodes)

    def test_refused(self):
        """When a server starts, by the setting's name."""
        from transfer_engine_sglang import _config
        self.assertIsNone(self.refused())
        for name, flag in _config._SINGLE:
            self.assertRegex(self.refused(parallel={name: 2}), f"{name} is 2; start the server without {flag}")
        for name, flag, _ in _config._OFF:
            self.assertRegex(self.refused(**{name: True}), f"start the server without {flag}")
        self.assertRegex(self.refused(tokenizer_worker_num=2), "without --tokenizer-worker-num")
        self.assertRegex(self.refused(state=["mamba", "swa"]), "state beside its KV cache .mamba, swa.")
        self.assertRegex(self.refused(hybrid=True), "hybrid MLA")
        self.assertRegex(self.refused({"SGLANG_RUST_SERVER": "1"}), "without SGLANG_RUST_SERVER")

    def test_pages_that_would_be_given_back_early(self):
        """A decode server is to be started so that SGLang waits for the backend's word."""
        held = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"
        self.assertIsNone(self.refused({f"{held}_TIMEOUT": "inf"}, decodes=True))
        self.assertIsNone(self.refused({f"{held}_TIMEOUT": "inf", held: "true"}, decodes=True))
        self.assertIsNone(self.refused({}))
        for environment in ({}, {f"{held}_TIMEOUT": "30"}, {f"{held}_TIMEOUT": "x"}, {f"{held}_TIMEOUT": "inf", held: "0"}):
            self.assertRegex(self.refused(environment, decodes=True), f"start the decode server with {held}_TIMEOUT=inf")

    def test_mismatch(self):
        """Of the two servers: what pairs of ranks cannot carry."""
        from transfer_engine_sglang import _config
        info = dict(attn_tp_size=2, attn_cp_size=1, pp_size=1, enable_kv_cache_sharding=False)
        self.assertIsNone(_config.mismatch(2, types.SimpleNamespace(**info)))
        for name, value, text in (("attn_tp_size", 4, "--tp-size"), ("attn_cp_size", 2, "context"), ("pp_size", 2, "--pp-size"),
                                  ("enable_kv_cache_sharding", True, "--enable-kv-cache-sharding")):
            self.assertIn(text, _config.mismatch(2, types.SimpleNamespace(**{**info, name: value})))

    def test_version(self):
        """Of SGLang: another one is told when the package is imported."""
        import importlib.metadata
        import transfer_engine_sglang
        for version in ("0.5.22", "0.6.0+cpu"):
            with mock.patch.object(importlib.metadata, "version", return_value=version):
                with self.assertRaisesRegex(ImportError, "is written for sglang 0.5.23, and " + version.replace("+", ".")):
                    importlib.reload(transfer_engine_sglang)
        with mock.patch.object(importlib.metadata, "version", return_value="0.5.23"):
            importlib.reload(transfer_engine_sglang)

    def test_addresses(self):
        from transfer_engine_sglang._rank import address
        self.assertEqual(address(["127.0.0.1:7", "1" * 16]), ("127.0.0.1:7", "1" * 16))
        for wrong in (None, [], ["a", "b"], ["127.0.0.1:7", "0" * 16], "ab"):
            with self.assertRaisesRegex(ValueError, "is not the name and the incarnation of an engine"):
                address(wrong)


if __name__ == "__main__":
    te.main()
