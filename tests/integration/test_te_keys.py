#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""te_keys: the files that it makes, changes, checks and shows, and engines that use them."""
import json
import os
import ssl
import stat
import subprocess

import te_auth
import te_proc as te

KEYS = te.tool("te_keys")


class Case(te_auth.Case):
    def run_keys(self, *words):
        return subprocess.run([KEYS, *words], cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=te.HANG_S)

    def does(self, *words):
        run = self.run_keys(*words)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout

    def fails(self, status, what, *words):
        run = self.run_keys(*words)
        self.assertEqual(run.returncode, status, run.stderr)
        self.assertIn(what, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1)
        return run.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def lines(self, name):
        """Its lines as pairs of id and key."""
        with open(self.path(name), encoding="ascii") as f:
            return [tuple(line.split(":")) for line in f.read().splitlines()]

    def ids(self, name):
        return [i for i, _ in self.lines(name)]

    def with_file(self, name):
        options = ("MC_LOG_LEVEL=INFO", "TE_AUTH=psk", f"TE_AUTH_KEYS={self.path(name)}", *te_auth.TCP_ONLY)
        peer = te.Peer(options=options, env=te.PATIENT)
        self.addCleanup(peer.close)
        return peer


class Make(Case):
    def test_a_cluster(self):
        self.assertEqual(self.does("make", "a", "b", "c", "--dir=k"), "k/a.keys\nk/b.keys\nk/c.keys\n")
        self.assertEqual([self.ids(f"k/{i}.keys") for i in "abc"], [["a", "b", "c"], ["b", "a", "c"], ["c", "a", "b"]])
        keys = {i: dict(self.lines(f"k/{i}.keys")) for i in "abc"}
        self.assertEqual(keys["a"], keys["b"])
        self.assertEqual(keys["a"], keys["c"])
        self.assertEqual(len(set(keys["a"].values())), 3)
        self.assertEqual({len(key) for key in keys["a"].values()}, {44})
        self.assertEqual(stat.S_IMODE(os.stat(self.path("k")).st_mode), 0o700)
        self.assertEqual({stat.S_IMODE(os.stat(self.path(f"k/{i}.keys")).st_mode) for i in "abc"}, {0o600})
        self.assertEqual(sorted(os.listdir(self.path("k"))), ["a.keys", "b.keys", "c.keys"])

    def test_engines_take_them(self):
        self.does("make", "a", "b")
        self.moves(self.with_file("a.keys"), self.with_file("b.keys"))

    def test_a_group(self):
        self.does("make", "--group", "kv")
        self.assertEqual(self.ids("kv.keys"), ["kv", "kv"])
        self.moves(self.with_file("kv.keys"), self.with_file("kv.keys"))

    def test_no_file_is_replaced(self):
        self.does("make", "a")
        before = self.lines("a.keys")
        self.fails(1, "a.keys is there already", "make", "a")
        self.assertEqual(self.lines("a.keys"), before)
        self.assertEqual(os.listdir(self.folder), ["a.keys"])

    def test_all_files_or_none(self):
        self.keys("b.keys", "old")
        self.assertEqual(self.fails(1, "b.keys is there already", "make", "a", "b"), "")
        self.assertEqual(os.listdir(self.folder), ["b.keys"])
        # The path of the second is longer than a path can be, with what it is written beside.
        self.assertEqual(self.fails(1, "the name is too long", "make", "a", "c" * 64, "--dir=" + "./" * 2011), "")
        self.assertEqual(os.listdir(self.folder), ["b.keys"])

    def test_usage(self):
        self.fails(2, "a command is missing")
        self.fails(2, "te_keys make ID...", "make")
        self.fails(2, "te_keys add ID FILE...", "add", "a")
        self.fails(2, "'a b' is not an id", "make", "a b")
        self.fails(2, "'../a' is not an id", "make", "../a")
        self.fails(2, "'a' stands twice", "make", "a", "a")
        self.fails(2, "--group takes one id", "make", "--group", "a", "b")
        self.fails(2, "check takes no --json", "check", "--json", "a")
        self.assertEqual(os.listdir(self.folder), [])


class Change(Case):
    def test_a_new_key_step_by_step(self):
        self.does("make", "a", "b")
        server, client = self.with_file("b.keys"), self.with_file("a.keys")
        self.moves(client, server, 1)
        steps = (("add", "a2", "a.keys", "b.keys"), ("first", "a2", "a.keys"), ("remove", "a", "a.keys", "b.keys"))
        looks = {client: 0, server: 0}
        for seed, step in enumerate(steps, 2):
            self.does(*step)
            for peer, name in ((client, "a.keys"), (server, "b.keys")):
                looks[peer] += name in step
                peer.wait_times("was read anew", looks[peer])
            client.ask("close", client.open(server.segment))
            self.moves(client, server, seed)
        self.assertEqual((self.ids("a.keys"), self.ids("b.keys")), (["a2", "b"], ["b", "a2"]))
        self.assertEqual(dict(self.lines("a.keys")), dict(self.lines("b.keys")))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("a.keys")).st_mode), 0o600)

    def test_a_group(self):
        self.does("make", "--group", "old")
        steps = ((("add", "new"), ["old", "old", "new"]), (("first", "new"), ["new", "new", "old"]),
                 (("remove", "old"), ["new", "new"]))
        for step, ids in steps:
            self.does(*step, "old.keys")
            self.assertEqual(self.ids("old.keys"), ids)

    def test_all_files_or_none(self):
        self.does("make", "a", "b")
        before = self.lines("a.keys"), self.lines("b.keys")
        self.fails(1, "a.keys has a line of 'b' already", "add", "b", "a.keys")
        self.fails(1, "b.keys has no line of 'c'", "first", "c", "b.keys")
        self.fails(1, "b.keys shows 'b'", "remove", "b", "a.keys", "b.keys")
        self.fails(1, "none cannot be opened", "add", "c", "a.keys", "none")
        self.assertEqual((self.lines("a.keys"), self.lines("b.keys")), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.keys", "b.keys"])

    def test_a_link_stays_one(self):
        self.does("make", "a")
        os.symlink("a.keys", self.path("link"))
        self.does("add", "b", "link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.ids("a.keys"), ["a", "b"])


class Look(Case):
    def test_check_says_line_and_remedy(self):
        self.does("make", "a", "b")
        self.assertEqual(self.does("check", "a.keys"), "a.keys: good: shows 'a', lets in 1\n")
        for text, what in (("a:short\n", "line 1: a key is 32 to 64 random bytes"), ("#\n\na\n", "line 3: it has no ':'"),
                           (f"a b:{te_auth.KEYS['a']}\n", "line 1: an id is"), ("", "has no line ID:KEY"),
                           (te_auth.lines("a", "b", "b"), "line 3: its id stands in an earlier line")):
            self.keys("bad", text)
            self.assertIn("a.keys: good", self.fails(1, what, "check", "bad", "a.keys"))
        self.keys("open", te_auth.lines("a"), 0o644)
        self.fails(1, "chmod 600 open", "check", "open")

    def test_a_file_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to give a file to somebody else")
        self.does("make", "a")
        os.chown(self.path("a.keys"), 65534, 65534)
        self.fails(1, "run te_keys as that user", "check", "a.keys")

    def test_a_path_that_json_cannot_hold(self):
        self.keys("a", te_auth.lines("a", "b"))
        os.rename(self.path("a"), os.path.join(os.fsencode(self.folder), b"\xff"))
        run = subprocess.run([KEYS, "show", "--json", b"\xff"], cwd=self.folder, capture_output=True, check=False,
                             timeout=te.HANG_S)
        self.assertEqual((run.returncode, run.stdout), (1, b""))
        self.assertIn(b"is not UTF-8", run.stderr)

    def test_show(self):
        self.does("make", "a", "b")
        self.keys("c", te_auth.lines("c", "a"))
        self.keys("d", te_auth.lines("a", "c"))
        self.keys("e", te_auth.lines("c", "c"))
        told = self.does("show", "a.keys", "b.keys", "c", "d", "e")
        for line in ("a.keys\n  shows itself as: a\n  lets in: b\n", "a.keys -> b.keys: yes", "c -> d: yes", "d -> c: yes",
                     "c -> a.keys: refused: its id is not in that file", "c -> e: yes", "a.keys -> c: refused: that file has another key",
                     "d -> a.keys: refused: both show the same id", "has the keys of 2 ids"):
            self.assertIn(line, told)
        pairs = {(p["from"], p["to"]): p["refused"] for p in json.loads(self.does("show", "--json", "a.keys", "b.keys", "c"))["pairs"]}
        self.assertEqual(len(pairs), 6)
        self.assertIsNone(pairs["a.keys", "b.keys"])
        self.assertIn("te_keys add", pairs["b.keys", "c"])
        for secret in (*dict(self.lines("a.keys")).values(), te_auth.KEYS["a"], te_auth.KEYS["c"]):
            self.assertNotIn(secret, told)


class Certificates(Case):
    def setUp(self):
        super().setUp()
        run = self.run_keys("ca", "--dir=c")
        if "need OpenSSL 3" in run.stderr:
            te.skip(run.stderr)
        self.assertEqual((run.returncode, run.stdout), (0, "c/ca.key\nc/ca.pem\n"))

    def meet(self, server, client, name, authority="c/ca.pem"):
        """A handshake by TLS in which both show a certificate; the client expects that name."""
        purpose = {server: ssl.Purpose.CLIENT_AUTH, client: ssl.Purpose.SERVER_AUTH}
        contexts, ends = [], [ssl.MemoryBIO(), ssl.MemoryBIO()]
        for who in (server, client):
            context = ssl.create_default_context(purpose[who], cafile=self.path(authority))
            context.load_cert_chain(self.path(f"c/{who}.pem"), self.path(f"c/{who}.key"))
            context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
        sides = [contexts[0].wrap_bio(*ends, server_side=True), contexts[1].wrap_bio(*reversed(ends), server_hostname=name)]
        waiting = [sides[1], sides[0]]
        for _ in range(20):
            side = waiting.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
            if not waiting:
                return sides[0].getpeercert()
        self.fail("the handshake does not end")

    def test_hosts_and_addresses(self):
        self.assertEqual(self.does("cert", "--dir=c", "127.0.0.1,localhost", "b"),
                         "c/127.0.0.1.key\nc/127.0.0.1.pem\nc/b.key\nc/b.pem\n")
        for name in ("127.0.0.1", "localhost"):
            told = self.meet("127.0.0.1", "b", name)
            self.assertEqual(told["subjectAltName"], (("DNS", "b"),))
        with self.assertRaisesRegex(ssl.SSLCertVerificationError, "mismatch"):
            self.meet("b", "127.0.0.1", "c")
        self.does("ca", "--dir=other")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.meet("b", "127.0.0.1", "b", "other/ca.pem")

    def test_modes(self):
        self.does("cert", "--dir=c", "b")
        self.assertEqual({n: stat.S_IMODE(os.stat(self.path(f"c/{n}")).st_mode) for n in os.listdir(self.path("c"))},
                         {"ca.key": 0o600, "ca.pem": 0o644, "b.key": 0o600, "b.pem": 0o644})

    def test_names_as_long_as_they_may_be(self):
        name = ".".join(["a" * 60] * 4)
        self.does("cert", "--dir=c", name, "b")
        self.assertEqual(self.meet("b", name, "b")["subjectAltName"], (("DNS", name),))

    def test_what_cannot_be(self):
        self.fails(1, "c/ca.key is there already", "ca", "--dir=c")
        self.fails(1, "te_keys ca makes it", "cert", "b")
        self.fails(2, "ca takes no word", "ca", "b")
        self.fails(2, "te_keys cert NAME", "cert")
        for name in ("a,", "a b", "../a", "a/b", "", "x" * 254):
            self.fails(2, f"'{name}' is not NAME", "cert", "--dir=c", name)
        self.keys("c/y.pem", "old")
        self.assertEqual(self.fails(1, "c/y.pem is there already", "cert", "--dir=c", "x", "y"), "")
        os.unlink(self.path("c/y.pem"))
        os.rename(self.path("c/ca.key"), self.path("c/old.key"))
        self.does("ca", "--dir=d")
        os.rename(self.path("d/ca.key"), self.path("c/ca.key"))
        self.fails(1, "are not a certificate and its key", "cert", "--dir=c", "b")
        self.assertEqual(sorted(os.listdir(self.path("c"))), ["ca.key", "ca.pem", "old.key"])

    def test_a_metadata_server(self):
        te.need("http")
        self.does("cert", "--dir=c", "127.0.0.1")
        server = te.Proc([te.tool("te_metad"), "--addr=127.0.0.1:0", f"--tls-cert={self.path('c/127.0.0.1.pem')}",
                          f"--tls-key={self.path('c/127.0.0.1.key')}"])
        self.addCleanup(server.close)
        url = "https://" + server.wait_line(r"listening on (\S+)").group(1) + "/metadata"
        a, b = (self.engine(*te_auth.TCP_ONLY, f"TE_METADATA_CA={self.path('c/ca.pem')}", keys=k, metadata=url, name=n)
                for k, n in ((te_auth.lines("a", "b"), "a"), (te_auth.lines("b", "a"), "b")))
        self.moves(a, b)


if __name__ == "__main__":
    te.main()
