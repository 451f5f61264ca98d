# SPDX-License-Identifier: Apache-2.0
"""What a connector of vLLM's kind has to do, between servers in two processes."""
import json

import standin
import te_proc as te
from remote import Remote
from server import BLOCKS as ALL, digest, serve

DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
TOKENS, BLOCKS = 22, 6  # of a prompt; the last of its blocks is not full
HELD, REUSED = 0x55, 0xAA
PLACE = 1 << 45  # where two processes have their caches, one after the other



class Cases:
    """Mixed into a TestCase. `path`: where the package is, or None; `torch`: whether caches are its tensors."""
    path, torch = None, False

    def server(self, **arguments):
        return Remote(self, serve, self.path, torch=self.torch, **arguments)

    def pair(self, **arguments):
        return self.server(**arguments), self.server(**arguments)

    def prefill(self, server, name="p", prompt="one", **more):
        """A whole prompt in one step: what decode is asked with."""
        server.add(name, prompt, TOKENS, {**DECODE, **more})
        self.assertEqual(server.allocate(name), 0)
        server.step({name: TOKENS})
        kept, params = server.finish(name)
        self.assertTrue(kept)
        return params

    def asked_early(self, server, key="k"):
        """What decode is asked with before prefill has begun, by who knows its workers."""
        return {"do_remote_prefill": True, "transfer_id": key, "remote_ranks": server.ranks()}

    def decode(self, server, params, name="d", prompt="one", cached=0):
        server.add(name, prompt, TOKENS, dict(params), cached)
        self.assertEqual(server.allocate(name), TOKENS - cached)
        server.step()

    def outcome(self, server, name):
        """That of a request, after as many steps without work as that takes."""
        return te.until(lambda: server.step().get(name), f"the end of {name}")

    def quiet(self, *servers):
        for server in servers:
            te.until(lambda: server.step() is not None and not server.waits(), "nothing to wait for")
            self.assertEqual(server.count_free(), ALL)

    def test_after_prefill(self):
        """Blocks are kept until decode has them, however a cache is laid out."""
        for layouts in (("apart", "apart"), ("within", "within"), ("between", "within")):
            prefill, decode = [self.server(layout=layout) for layout in layouts]
            params = self.prefill(prefill)
            self.assertEqual((prefill.step(), prefill.waits()), ({}, True))
            decode.add("other", "two", 8, None)
            decode.allocate("other")  # so that the blocks have other numbers here
            self.decode(decode, params)
            self.assertEqual(self.outcome(decode, "d"), "received")
            self.assertEqual(decode.wrong("d"), 0)
            self.assertEqual(self.outcome(prefill, "p"), "sent")
            decode.finish("d")
            decode.finish("other")
            self.quiet(prefill, decode)

    def test_layer_by_layer(self):
        """A layer is there while the next one is not computed; chunks of a prompt go as they are computed."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.step({"p": 8}, stop=1)
        te.until(lambda: decode.wrong("d", ["layer.0"]) == 2 * (TOKENS - 8), "the first layer")
        self.assertEqual(decode.wrong("d", ["layer.1", "layer.2"]), 4 * TOKENS)
        prefill.go_on()
        prefill.step({"p": 7})
        self.assertEqual(decode.step(), {})
        prefill.step({"p": TOKENS - 15})
        self.assertTrue(prefill.finish("p")[0])
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_decode_aborts(self):
        """In the middle of a step: its blocks are used again as soon as prefill has answered, and stay what they are."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.step({"p": TOKENS}, stop=1)
        te.until(lambda: decode.wrong("d", ["layer.0"]) == 0, "the first layer")
        self.assertEqual(decode.abort("d"), (False, None))
        free = decode.count_free()
        self.assertTrue(decode.waits())
        self.assertEqual(self.outcome(decode, "d"), "failed")
        self.assertEqual((free, decode.count_free()), (ALL - BLOCKS, ALL))
        decode.fill(decode.blocks("d"), REUSED)
        prefill.go_on()
        self.assertTrue(prefill.finish("p")[0])
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(decode.blocks("d"), REUSED))
        again = self.prefill(prefill, "p2", "two")
        self.decode(decode, again, "d2", "two")
        self.assertEqual(self.outcome(decode, "d2"), "received")
        self.assertEqual(decode.wrong("d2"), 0)
        decode.finish("d2")
        self.quiet(prefill, decode)

    def test_decode_aborts_before_prefill(self):
        """Before anything is computed, or allotted: prefill computes for nobody, and keeps nothing."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        decode.abort("d")
        self.assertEqual(self.outcome(decode, "d"), "failed")
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        params = self.prefill(prefill, "p2")
        decode.add("d2", "one", TOKENS, dict(params))
        self.assertEqual(decode.abort("d2"), (False, None))
        decode.step()
        self.assertEqual(self.outcome(prefill, "p2"), "sent")

    def test_prefill_aborts(self):
        """Between two chunks: decode is told, and blocks of both sides are free."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.step({"p": 8})
        self.assertEqual(prefill.abort("p"), (True, None))
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        late = self.server()
        self.decode(late, self.asked_early(prefill))
        self.assertEqual(self.outcome(late, "d"), "failed")
        late.finish("d")
        self.quiet(prefill, decode)

    def test_preempted(self):
        """What was computed before goes to other blocks, and is sent from there."""
        prefill, decode = self.pair()
        prefill.add("p", "one", TOKENS, DECODE)
        prefill.allocate("p")
        prefill.step({"p": 8})
        old = prefill.preempt("p")
        prefill.step()
        prefill.fill(old, HELD)
        prefill.step({"p": 12})
        prefill.step({"p": TOKENS - 12})
        self.decode(decode, prefill.finish("p")[1])
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_what_decode_has(self):
        """Only the rest is written; if it has all, prefill keeps nothing."""
        prefill, decode = self.pair()
        params = self.prefill(prefill)
        self.decode(decode, params, cached=8)
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual((decode.wrong("d"), decode.wrong("d", begin=8)), (2 * 3 * 8, 0))
        self.assertTrue(decode.untouched(decode.blocks("d")[:2], 0))
        decode.finish("d")
        params = self.prefill(prefill, "p2")
        decode.add("d2", "one", TOKENS, dict(params), TOKENS)
        self.assertEqual(decode.allocate("d2"), 0)
        decode.step()
        self.assertEqual(self.outcome(prefill, "p2"), "sent")
        decode.finish("d2")
        self.quiet(prefill, decode)

    def test_nobody_asks(self):
        prefill, decode = self.server(extra={"hold_s": 0.05}), self.server()
        params = self.prefill(prefill)
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.quiet(prefill)
        self.assertEqual(params["transfer_id"], "p")
        self.decode(decode, {**params, "transfer_id": "never"})
        self.assertEqual(te.until(lambda: prefill.step() is not None and decode.step().get("d"), "an answer"), "failed")

    def test_other_blocks(self):
        """Of another size on the other side, or of other numbers in as many bytes: nothing is written."""
        for theirs in ({"block": 8}, {"dtype": "fp8_e5m2"}):
            prefill, decode = self.server(), self.server(**theirs)
            params = self.prefill(prefill)
            decode.fill(range(ALL), HELD)
            self.decode(decode, params)
            self.assertEqual(self.outcome(decode, "d"), "failed")
            self.assertTrue(decode.untouched(range(ALL), HELD))
            self.assertEqual(self.outcome(prefill, "p"), "sent")

    def test_other_models(self):
        """Or other prompts, by their tokens or by their number: nothing is written, and both have their blocks."""
        prefill, decode, other = self.server(), self.server(), self.server(extra={"model": "another"})
        for i, (side, prompt) in enumerate(((other, "one"), (decode, "two"), (decode, "three"))):
            self.decode(side, self.asked_early(prefill, f"k{i}"), f"d{i}", prompt)
            side.fill(range(ALL), HELD)
            te.until(lambda: prefill.step() is not None and prefill.answers() if side is other else prefill.asked(f"k{i}"), "a want")
            if i == 2:
                prefill.add(f"p{i}", prompt, TOKENS - 1, {**DECODE, "transfer_id": f"k{i}"})
                prefill.allocate(f"p{i}")
                prefill.step({f"p{i}": TOKENS - 1})
                prefill.abort(f"p{i}")
            else:
                self.prefill(prefill, f"p{i}", transfer_id=f"k{i}")
            self.assertEqual(self.outcome(side, f"d{i}"), "failed")
            self.assertTrue(side.untouched(range(ALL), HELD))
            side.finish(f"d{i}")
        self.quiet(decode, other)

    def test_peers_that_are_not_listed(self):
        """They are not answered, and not asked: whoever is not on the list of the other one gets nothing, and keeps nothing."""
        prefill, decode = self.server(extra={"peers": ["10.0.0.1", "10.2.0.0/16"]}), self.server()
        self.decode(decode, self.asked_early(prefill))
        decode.limit(lost=1)
        self.assertEqual(self.outcome(decode, "d"), "failed")
        self.assertEqual((prefill.opened(), prefill.asked("k")), ([], False))
        decode.finish("d")
        self.decode(prefill, self.asked_early(decode), "d2")
        self.assertEqual(self.outcome(prefill, "d2"), "failed")
        self.assertEqual(prefill.opened(), [])
        prefill.finish("d2")
        self.quiet(prefill, decode)

    def test_two_workers(self):
        """Each writes to the one of its number. An abort between two chunks has the blocks of both."""
        prefill, decode = self.pair(workers=2)
        self.decode(decode, self.prefill(prefill))
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.decode(decode, self.asked_early(prefill), "d2", "two")
        prefill.add("p2", "two", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p2")
        prefill.step({"p2": 8})
        decode.abort("d2")
        self.assertEqual(self.outcome(decode, "d2"), "failed")
        prefill.abort("p2")
        self.assertEqual(self.outcome(prefill, "p2"), "sent")
        self.quiet(prefill, decode)

    def test_workers_of_other_number(self):
        one, two = self.server(), self.server(workers=2)
        self.decode(two, self.prefill(one))
        self.assertEqual(self.outcome(two, "d"), "failed")
        two.finish("d")
        self.quiet(two)

    def test_scheduled_ahead(self):
        """As vLLM does by default: a step is scheduled before the one in front of it has run, or been aborted."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.schedule({"p": 8})
        for tokens in (7, TOKENS - 15, 0):
            prefill.schedule({"p": tokens} if tokens else {})
            prefill.run()
        params = prefill.finish("p")[1]
        prefill.run()
        self.assertEqual(params["transfer_id"], "k")
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.decode(decode, self.asked_early(prefill, "k2"), "d2")
        prefill.add("p2", "one", TOKENS, {**DECODE, "transfer_id": "k2"})
        prefill.allocate("p2")
        prefill.schedule({"p2": 8})
        prefill.schedule({"p2": 7})
        self.assertEqual(prefill.abort("p2"), (True, None))
        prefill.run()
        prefill.run()
        self.assertEqual(self.outcome(prefill, "p2"), "sent")
        self.assertEqual(self.outcome(decode, "d2"), "failed")
        decode.finish("d2")
        self.quiet(prefill, decode)

    def test_shut(self):
        """Prefill ends: who has asked is told at once, and who has a WRITE under way when that is fenced."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        prefill.shut()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_shut_with_a_write_under_way(self):
        prefill, decode = self.held()
        prefill.begin("shut")
        decode.thaw()
        prefill.end()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_decode_is_shut(self):
        """Prefill has its blocks back, and computes for nobody."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        decode.shut()
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.quiet(prefill)

    def test_aborted_when_complete(self):
        """Vllm may abort a request whose last step is scheduled: decode is not asked for it, or is told that it failed."""
        prefill, decode = self.pair()
        for key in ("k", None):
            prefill.add(f"p{key}", "one", TOKENS, {**DECODE, **({"transfer_id": key} if key else {})})
            prefill.allocate(f"p{key}")
            prefill.step({f"p{key}": TOKENS})
            self.assertEqual(prefill.abort(f"p{key}"), (True, None))
            self.assertEqual(self.outcome(prefill, f"p{key}"), "sent")
        self.decode(decode, self.asked_early(prefill))
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_preempted_when_complete(self):
        """Prefill forgets that, too: decode gets what is computed anew."""
        prefill, decode = self.pair()
        prefill.add("p", "one", TOKENS, DECODE)
        prefill.allocate("p")
        prefill.step({"p": TOKENS})
        old = prefill.preempt("p")
        prefill.step()
        prefill.fill(old, HELD)
        self.decode(decode, self.asked_early(prefill, "p"))
        te.until(lambda: prefill.asked("p"), "what decode asks")
        self.assertEqual(decode.wrong("d"), 6 * TOKENS)
        prefill.step({"p": TOKENS})
        prefill.finish("p")
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_asked_twice(self):
        """The second one fails, whoever asks."""
        prefill, first, second = self.server(), self.server(), self.server()
        for decode in (first, second):
            self.decode(decode, self.asked_early(prefill))
            te.until(lambda: prefill.asked("k"), "what decode asks")
        self.assertEqual(self.outcome(second, "d"), "failed")
        self.assertEqual(first.step(), {})
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(first, "d"), "received")
        for decode in (first, second):
            decode.finish("d")
        self.quiet(prefill, first, second)

    def test_one_key_of_two_requests(self):
        """Nothing of the second one is sent, nor kept, and nobody is told to ask for it."""
        prefill, decode = self.pair()
        self.prefill(prefill, transfer_id="k")
        prefill.add("p2", "two", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p2")
        prefill.step({"p2": TOKENS})
        self.assertEqual(prefill.finish("p2"), (False, None))
        self.decode(decode, self.asked_early(prefill))
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        self.decode(decode, self.asked_early(prefill), "d2")
        self.assertEqual(self.outcome(decode, "d2"), "failed")
        for name in ("d", "d2"):
            decode.finish(name)
        self.quiet(prefill, decode)

    # ----------------------------------------------------------------- what is wrong, or hostile

    def test_hostile_params(self):
        """Of a request: it fails alone. Of decode's tokens none is written."""
        prefill, decode = self.pair()
        good = self.asked_early(prefill)
        bad = [{**good, "remote_ranks": ranks} for ranks in
               (None, 7, "text", [], [[]], [None], [["a"]], [["a", "b", "c"]], [[1, 2]], [[["a"], "b"]],
                good["remote_ranks"] * 2, {"a": "b"}, [["x" * 999, "y"]])]
        bad += [{**good, "transfer_id": key} for key in (None, 7, "", [], {}, "x" * 999)]
        bad += [{"do_remote_prefill": True}]
        for i, params in enumerate(bad):
            self.decode(decode, params, f"d{i}")
            self.assertEqual(self.outcome(decode, f"d{i}"), "failed", params)
            decode.finish(f"d{i}")
            decode.add(f"w{i}", "one", TOKENS, dict(params))
            decode.abort(f"w{i}")
        for i, key in enumerate((7, None, "", [], {}, "x" * 999)):
            prefill.add(f"p{i}", "one", TOKENS, {**DECODE, "transfer_id": key})
            prefill.allocate(f"p{i}")
            prefill.step({f"p{i}": TOKENS})
            self.assertEqual(prefill.finish(f"p{i}"), (False, None))
        for params in ("text", ["do_remote_prefill"], 7):
            decode.add(f"n{params}", "one", TOKENS, params)
            self.assertEqual(decode.allocate(f"n{params}"), 0)
            decode.abort(f"n{params}")
        decode.step()
        self.quiet(prefill, decode)

    def test_hostile_messages(self):
        """What is no want is told in the log; a want that does not fit is answered; and all goes on."""
        prefill, decode = self.pair()
        peer, = prefill.ranks()
        layout = "auto/4 bytes [4, 24] [24, 1]"
        places = {f"layer.{i}": [layout, 96, 96, 1 << 40, 1 << 41] for i in range(3)}
        decode.greet(peer)
        life = "0123456789abcdef"
        own = json.dumps([peer, "", "want", []])
        for text in (own, "", "{", "7", "[]", "null", '[7, "", "want", []]', f'[["127.0.0.1:9", "{life}"], "", [], {{}}]', "[" * 100000,
                     f'[["127.0.0.1:9", "{life}"], "", "hello", [7]]', f'[["127.0.0.1:9", "{life}"], 7, "hello", []]'):
            decode.shout_text(peer[0], text)
        good = ["t", "k", 22, digest("one"), 0, [1], "a model", {}]
        wrong = [[*good[:i], value, *good[i + 1:]] for i, value in
                 ((0, []), (0, "x" * 999), (1, ["k"]), (2, -1), (2, "22"), (3, 7), (4, -1), (4, 1.5), (5, [-1]), (5, 7), (6, 7), (6, ""))]
        for kind, body in (("want", None), ("want", []), *[("want", words) for words in wrong], ("ask", 7), ("ask", [[[], "k", 1]]),
                           ("ask", [["t", "k", True]] * 3000), ("is", [["t", []]]), ("is", {}), ("is", 7), ("welcome", None),
                           ("stranger", [None, "want", None]), ("no such", 1), (7, 7)):
            decode.shout(peer, kind, body)
        for name in ("file:///etc/passwd", "nvmeof/x", "/etc/passwd", "localhost"):
            for its in (peer[1], life):
                decode.shout_text(peer[0], json.dumps([[name, its], "", "want", [name, *good[1:]]]))
        wants = {"fields": None, "names": {}, "short": {**places, "layer.1": [layout, 96, 96]},
                 "text": {**places, "layer.1": "96"}, "negative": {**places, "layer.1": [layout, 96, 96, -1, 0]},
                 "size": {**places, "layer.1": [layout, 96, 95, 0, 0]}, "layout": {**places, "layer.1": [7, 96, 96, 0, 0]}}
        for token, layers in wants.items():
            decode.shout(peer, "want", [token, "k", 22, digest("one"), 0, [1], "a model", layers])
        for token, first, blocks in (("many", 0, list(range(7))), ("far", 6, [1]), ("further", 1 << 60, [1])):
            decode.shout(peer, "want", [token, "q", 22, digest("one"), first, blocks, "a model", places])
        decode.shout(peer, "want", ["long", "q", 1 << 50, digest("one"), 0, [1], "a model", places])
        decode.shout(peer, "want", ["huge", "q", 22, digest("one"), 0, [1 << 61], "a model", places])
        decode.shout(peer, "want", ["nowhere", "p", 22, digest("one"), 0, [1 << 20], "a model", places])
        te.until(lambda: prefill.asked("p"), "the last one")
        self.prefill(prefill, "p")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        te.until(lambda: {*prefill.answers().values()} == {"failed"} and "nowhere" in prefill.answers(), "the last answer")
        self.assertEqual(set(prefill.answers()), wants.keys() | {"huge", "nowhere", "many", "far", "further", "long"})
        self.assertEqual(set(prefill.opened()) - {"127.0.0.1:0", "127.0.0.1:9"}, {decode.ranks()[0][0]})
        self.decode(decode, self.prefill(prefill, "r"))
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_who_has_not_greeted(self):
        """A want in the name of another engine is not honoured, nor one with a cookie made for another name."""
        prefill, decode, victim = self.server(), self.server(), self.server()
        (peer,), (name,) = prefill.ranks(), victim.ranks()
        for cookie in ("", 7, decode.greet(peer)):
            decode.shout_text(peer[0], json.dumps([name, cookie, "want", ["t", "p", 22, digest("one"), 0, [1], "a model", {}]]))
            decode.shout_text(peer[0], json.dumps([name, cookie, "ask", [["t", "p", True]]]))
        decode.shout(peer, "want", ["u", "q", 22, digest("one"), 0, [1], "a model", {}])
        te.until(lambda: "u" in prefill.answers(), "the last one")
        self.assertNotIn("t", prefill.answers())

    def test_words_in_the_name_of_prefill(self):
        """Without the cookie that both know they end nothing, whatever they say."""
        prefill, decode, stranger = self.server(), self.server(), self.server()
        (peer,), (name,) = prefill.ranks(), decode.ranks()
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        token, = decode.tokens()
        for cookie in ("", 7, stranger.greet(name)):
            for kind, body in (("is", [[token, "failed"]]), ("is", [[token, "unsafe"]]), ("welcome", ["nonce", "cookie"]),
                               ("stranger", [peer[1], "want", [token]]), ("stranger", [peer[1], "hello", ["n", peer[0]]])):
                stranger.shout_text(name[0], json.dumps([peer, cookie, kind, body]))
        stranger.shout(name, "want", ["t", "k", 22, digest("one"), 0, [1], "a model", {}])
        te.until(lambda: "t" in decode.answers(), "the last one")
        self.assertEqual((decode.step(), decode.states()), ({}, {"d": "WANTED"}))
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(decode, "d"), "received")

    def test_an_alias_of_the_own_name(self):
        """Nothing is asked for, and the blocks are free at once."""
        decode = self.server(extra={"peers": ["127.0.0.1", "localhost"]})
        (name, life), = decode.ranks()
        alias = f"localhost:{name.rpartition(':')[2]}"
        self.decode(decode, {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [[alias, life]]})
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_an_engine_that_does_not_speak(self):
        """Nobody answers the greeting: nothing was asked for, so all blocks are free when it is given up."""
        decode, other = self.server(), self.server()
        (name, life), = other.ranks()
        other.mute()
        self.decode(decode, {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [[name, life]]})
        decode.limit(lost=1)
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_roles(self):
        """A producer receives nothing and a consumer sends nothing, whatever a request says."""
        prefill, decode = self.server(role="kv_producer"), self.server(role="kv_consumer")
        self.decode(decode, self.prefill(prefill))
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        decode.add("p", "one", TOKENS, DECODE)
        decode.allocate("p")
        decode.step({"p": TOKENS})
        self.assertEqual(decode.finish("p"), (False, None))
        prefill.add("d", "one", TOKENS, self.asked_early(decode))
        self.assertEqual(prefill.allocate("d"), 0)
        prefill.finish("d")
        both = self.server()
        self.decode(both, self.asked_early(decode))
        self.assertEqual(self.outcome(both, "d"), "failed")
        both.finish("d")
        self.quiet(prefill, decode, both)

    def test_a_step_that_raises(self):
        """What it has computed is not told as done."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.step({"p": TOKENS}, stop=1)
        prefill.raise_in_step()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_a_step_that_raises_and_tells_nothing(self):
        """As under vLLM's model runner V2: that is known when the next one begins."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        prefill.step({"p": TOKENS}, stop=1)
        prefill.drop_step()
        prefill.step()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(decode)

    def test_not_layer_by_layer(self):
        """With `layerwise` false all goes at the end of a step, so graphs of the whole model may be used."""
        prefill, decode = self.server(extra={"layerwise": False}), self.server()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        te.until(lambda: prefill.asked("k"), "what decode asks")
        prefill.step({"p": TOKENS}, stop=2)
        self.assertFalse(prefill.queued())
        prefill.go_on()
        prefill.finish("p")
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_long_name(self):
        """Of a request of 300 characters, which is no name of a transfer."""
        prefill, decode = self.pair()
        params = self.prefill(prefill, "p" * 300)
        self.assertEqual(len(params["transfer_id"]), 64)
        self.decode(decode, params)
        self.assertEqual(self.outcome(decode, "d"), "received")
        decode.finish("d")
        self.quiet(prefill, decode)

    # ------------------------------------------------------------------- peers that are slow or gone

    def known(self, at=0):
        """Two servers that have opened each other."""
        prefill, decode = self.server(), self.server(at=at)
        self.decode(decode, self.prefill(prefill, "first"), "first")
        self.assertEqual(self.outcome(decode, "first"), "received")
        decode.finish("first")
        return prefill, decode

    def held(self, at=0, **seconds):
        """Two servers with a WRITE under way that decode, which is stopped, does not take. `seconds`: prefill's limits."""
        prefill, decode = self.known(at)
        decode.address, = decode.ranks()
        self.decode(decode, self.asked_early(prefill))
        prefill.add("p", "one", TOKENS, {**DECODE, "transfer_id": "k"})
        prefill.allocate("p")
        te.until(lambda: prefill.asked("k"), "what decode asks")
        prefill.limit(**seconds)
        decode.freeze()
        prefill.step({"p": TOKENS}, stop=1)
        te.until(prefill.under_way, "a WRITE under way")
        return prefill, decode

    def keeps(self, decode):
        """The blocks of a request that has failed are nobody's; all others are free."""
        old = decode.blocks("d")
        decode.finish("d")
        self.assertEqual((decode.count_free(), decode.states()), (ALL - BLOCKS, {"d": "KEPT"}))
        decode.add("other", "two", TOKENS, None)
        decode.allocate("other")
        self.assertEqual(set(old) & set(decode.blocks("other")), set())
        decode.finish("other")

    def gives_back(self, decode):
        """They are free again, and stay what they are."""
        te.until(lambda: decode.step() is not None and decode.count_free() == ALL, "all blocks")
        decode.fill(range(ALL), REUSED)

    def test_outage_that_heals(self):
        """A WRITE goes on where it was."""
        prefill, decode = self.held()
        prefill.go_on()
        prefill.finish("p")
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_outage_during_an_abort_of_prefill(self):
        """Decode is not told before a fence has certified that nothing comes. Its blocks are used again at once."""
        prefill, decode = self.held()
        prefill.go_on()
        prefill.abort("p")
        prefill.step()
        te.until(prefill.fencing, "a fence")
        self.assertEqual(list(prefill.answers().values()), ["done"])  # of the first one
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.fill(range(ALL), REUSED)
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_outage_longer_than_the_fence(self):
        """Prefill says that it does not know, and goes on to ask: decode keeps the blocks until then, and no longer."""
        prefill, decode = self.held(fence=0.1)
        prefill.go_on()
        prefill.abort("p")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        te.until(lambda: sorted(prefill.answers().values()) == ["done", "unsafe"], "the end of the fence")
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.gives_back(decode)
        self.assertEqual(sorted(prefill.answers().values()), ["done", "failed"])
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        self.quiet(prefill)

    def test_a_failed_one_waits_for_no_other(self):
        """Of one peer: its blocks are free while a WRITE for another request is under way, which its own would have followed."""
        prefill, decode = self.known()
        for name in ("1", "2"):
            self.decode(decode, self.asked_early(prefill, "k" + name), "d" + name)
            te.until(lambda: prefill.asked("k" + name), "what decode asks")  # pylint: disable=cell-var-from-loop
            prefill.add("p" + name, "one", TOKENS, {**DECODE, "transfer_id": "k" + name})
            prefill.allocate("p" + name)
        decode.freeze()
        prefill.step({"p1": TOKENS})
        te.until(prefill.under_way, "a WRITE under way")
        prefill.step({"p2": TOKENS})
        prefill.abort("p2")
        self.assertEqual(self.outcome(prefill, "p2"), "sent")
        self.assertTrue(prefill.under_way())
        prefill.finish("p1")
        decode.thaw()
        self.assertEqual([self.outcome(decode, name) for name in ("d1", "d2")], ["received", "failed"])

    def test_late_write(self):
        """One that takes longer than write_s is canceled and fenced."""
        prefill, decode = self.held(write=0.1)
        te.until(prefill.fencing, "a fence")
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.fill(range(ALL), REUSED)
        prefill.go_on()
        prefill.finish("p")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_decode_aborts_a_write_under_way(self):
        """Its blocks are used again as soon as they are free, and stay what they are."""
        prefill, decode = self.held()
        decode.begin("abort", "d")
        decode.thaw()
        decode.end()
        self.assertIn(self.outcome(decode, "d"), ("failed", "received"))
        self.assertEqual(decode.count_free(), ALL)
        decode.fill(range(ALL), REUSED)
        prefill.go_on()
        prefill.finish("p")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        self.quiet(prefill, decode)

    def test_preempted_with_a_write_under_way(self):
        """Its blocks are overwritten while decode does not answer; decode gets what is computed anew, and that last."""
        prefill, decode = self.held()
        prefill.go_on()
        old = prefill.preempt("p")
        prefill.step()
        self.assertFalse(prefill.under_way())
        prefill.fill(old, HELD)
        prefill.step({"p": TOKENS})
        prefill.finish("p")
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_a_peer_that_does_not_answer_delays_no_other(self):
        prefill, silent = self.held()
        prefill.go_on()
        prefill.finish("p")
        decode = self.server()
        self.decode(decode, self.prefill(prefill, "p2", "two"), prompt="two")
        self.assertEqual(self.outcome(decode, "d"), "received")
        self.assertEqual(decode.wrong("d"), 0)
        self.assertTrue(prefill.under_way())
        silent.thaw()
        self.assertEqual(self.outcome(silent, "d"), "received")

    def test_prefill_is_killed(self):
        """Decode has asked: nobody can tell what is under way still, before another one has its name. It has not: nothing can be."""
        prefill, decode = self.server(), self.server(extra={"settle_s": 0.2})
        params = self.asked_early(prefill)
        port = int(params["remote_ranks"][0][0].rpartition(":")[2])
        self.decode(decode, params)
        te.until(lambda: prefill.asked("k"), "what decode asks")
        prefill.kill()
        decode.limit(lost=1)
        self.assertEqual(self.outcome(decode, "d"), "failed")
        self.keeps(decode)
        free = decode.count_free()
        self.decode(decode, {**params, "transfer_id": "k2"}, "d2")
        self.assertEqual(self.outcome(decode, "d2"), "failed")
        decode.finish("d2")
        self.assertEqual(decode.count_free(), free)
        self.server(port=port)
        self.gives_back(decode)
        self.assertTrue(decode.untouched(range(ALL), REUSED))

    def successor(self, decode, **arguments):
        """Another process with the name of that one, which is killed, and with its cache at the same place."""
        name, life = decode.address
        decode.kill()
        late = self.server(port=int(name.rpartition(":")[2]), at=PLACE, **arguments)
        (its, number), = late.ranks()
        self.assertEqual((its, number != life), (name, True))
        late.fill(range(ALL), HELD)
        return late

    def test_decode_is_started_anew(self):
        """While prefill computes for the one before it: nothing of that gets to it, and prefill has its blocks back."""
        prefill, decode = self.server(), self.server(at=PLACE)
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        decode.address, = decode.ranks()
        late = self.successor(decode)
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(late.untouched(range(ALL), HELD))
        self.quiet(prefill)

    def test_decode_is_started_anew_with_a_write_under_way(self):
        """Which the one before it has not taken."""
        prefill, decode = self.held(PLACE)
        prefill.go_on()
        late = self.successor(decode)
        prefill.finish("p")
        late.greet(prefill.ranks()[0])
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        te.until(lambda: not prefill.fencing(), "the end of what was doubted")
        self.assertTrue(late.untouched(range(ALL), HELD))
        self.quiet(prefill)

    def test_a_word_of_the_next_one(self):
        """It ends what was asked for by the one before it, early or with a WRITE that is doubted; prefill computes for nobody."""
        prefill, decode = self.server(), self.server(at=PLACE)
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        decode.address, = decode.ranks()
        late = self.successor(decode)
        late.greet(prefill.ranks()[0])
        te.until(lambda: not prefill.asked("k"), "the end of what was asked for")
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.decode(late, self.prefill(prefill, "p2"), "d2")
        self.assertEqual(self.outcome(late, "d2"), "received")
        self.assertEqual(late.wrong("d2"), 0)

    def test_another_one_in_its_place(self):
        """That knows nothing of what the one before it was asked for."""
        prefill, decode = self.pair()
        params = self.asked_early(prefill)
        params["remote_ranks"][0][1] = "0123456789abcdef"
        self.decode(decode, params)
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_prefill_is_silent(self):
        """It is stopped in the middle of a WRITE, and goes on when decode has given it up: then the blocks are free."""
        prefill, decode = self.held()
        prefill.freeze()
        decode.thaw()
        decode.limit(lost=1)
        self.assertEqual(self.outcome(decode, "d"), "failed")
        self.keeps(decode)
        decode.fill(set(range(ALL)) - set(decode.blocks("d")), REUSED)
        prefill.thaw()
        prefill.go_on()
        prefill.finish("p")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(set(range(ALL)) - set(decode.blocks("d")), REUSED))
        self.gives_back(decode)
        self.assertTrue(decode.untouched(range(ALL), REUSED))

    def test_too_many_are_kept(self):
        """It is an error of the server's, which tells of whom it waits."""
        prefill, decode = self.server(), self.server(extra={"lost_share": 0.1})
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        prefill.kill()
        decode.limit(lost=1)
        with self.assertRaisesRegex(AssertionError, "6 of 40 blocks .*more than lost_share allows"):
            self.outcome(decode, "d")
        decode.kill()

    def test_sending_that_does_not_end(self):
        """It is canceled when it is overdue, and decode is told behind a fence."""
        prefill, decode = self.held()
        prefill.go_on()
        prefill.finish("p")
        prefill.overdue()
        te.until(prefill.fencing, "a fence")
        decode.thaw()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.fill(range(ALL), REUSED)
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        decode.finish("d")
        self.quiet(prefill, decode)

    def test_decode_is_killed(self):
        """Prefill has its blocks back."""
        prefill, decode = self.held()
        prefill.go_on()
        prefill.finish("p")
        decode.kill()
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.quiet(prefill)

    def test_lease(self):
        """Prefill answers, and does not begin."""
        prefill, decode = self.pair()
        self.decode(decode, self.asked_early(prefill))
        te.until(lambda: prefill.asked("k"), "what decode asks")
        decode.overdue()
        self.assertEqual(self.outcome(decode, "d"), "failed")
        decode.fill(range(ALL), REUSED)
        decode.finish("d")
        self.prefill(prefill, transfer_id="k")
        self.assertEqual(self.outcome(prefill, "p"), "sent")
        self.assertTrue(decode.untouched(range(ALL), REUSED))
        self.quiet(prefill, decode)


class Interface:
    """Mixed into a TestCase that has called standin.install()."""

    def test_the_class_is_what_is_called(self):
        from transfer_engine_vllm import TransferEngineConnector
        facts = standin.record_interface.table()["modules"][standin.BASE]
        self.assertEqual(standin.differences(TransferEngineConnector, facts["KVConnectorBase_V1"]), [])
        self.assertEqual(len(facts["KVConnectorBase_V1"]["abstract"]), 7)
        self.assertFalse(TransferEngineConnector.supports_sleep_mode(None))
