#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_metad: keys that expire and are kept, lists of keys, over restarts and with older databases."""
import contextlib
import os
import signal
import sqlite3
import time
import unittest
import urllib.parse

import te_proc as te
from metad_server import (Server, WithServer, ask, get, in_threads, put, target)

KEPT = (200, b"metadata kept")
GONE = (404, b"metadata not found")


def put_ttl(client, key, value, ttl):
    """The status, and the Metadata-TTL of the answer."""
    status, _, response = ask(client, "PUT", target(key), value, **{"Metadata-TTL": str(ttl)})
    return status, response.getheader("Metadata-TTL")


def keep(client, key, ttl, body=None):
    return ask(client, "POST", target(key), body, **{"Metadata-TTL": str(ttl)})[:2]


def keys(client, prefix=""):
    """The keys of a list, whose header and order are checked."""
    where = "/metadata?prefix=" + urllib.parse.quote(prefix, safe="")
    status, body, response = ask(client, "GET", where)
    assert (status, response.getheader("Content-Type")) == (200, "text/plain; charset=utf-8"), body
    lines = body.split(b"\n")
    assert lines.pop() == b"" and lines == sorted(lines)
    assert response.getheader("Metadata-Keys") == str(len(lines))
    return [line.decode() for line in lines]


def wait_gone(client, key):
    te.until(lambda: get(client, key) == GONE, f"the end of {key}")


class Kept:
    """A key with a TTL that is kept by POST. Only a client that was itself late by the TTL may find it gone; it
    puts it anew then. The key has been there from .since to .told at least."""

    def __init__(self, client, key, ttl):
        self.client, self.key, self.first_ttl = client, key, ttl
        self.put()

    def put(self):
        self.since = self.told = time.monotonic()
        self.ttl = self.first_ttl
        assert put_ttl(self.client, self.key, b"v", self.ttl) == (200, str(self.ttl))

    def keep(self, ttl=None, body=None):
        while True:
            now = time.monotonic()
            got = keep(self.client, self.key, ttl or self.ttl, body)
            if got == KEPT:
                self.told, self.ttl = now, ttl or self.ttl
                return
            assert got == GONE and time.monotonic() - self.told >= self.ttl, (self.key, got)
            self.put()


def let_pass(client, ttl):
    """Until what now has this TTL, or less of it left, would be gone."""
    put_ttl(client, "let pass", b"", ttl)
    wait_gone(client, "let pass")


class Ttl(WithServer):
    def test_expiry(self):
        """a key is gone so many seconds after its PUT, not before: for GET, HEAD, POST and lists"""
        began = time.monotonic()
        self.assertEqual(put_ttl(self.client, "k", b"v", 1), (200, "1"))
        found = get(self.client, "k")
        if time.monotonic() - began < 0.9:
            self.assertEqual(found, (200, b"v"))
        wait_gone(self.client, "k")
        self.assertGreater(time.monotonic() - began, 0.99)
        self.assertEqual(ask(self.client, "HEAD", target("k"))[0], 404)
        self.assertEqual(keep(self.client, "k", 10), GONE)
        self.assertEqual(keys(self.client), [])
        self.assertEqual(put(self.client, "k", b"again")[0], 200)
        self.assertEqual(get(self.client, "k"), (200, b"again"))

    def test_keep(self):
        """POST keeps a key, and its value, for as long as it is repeated"""
        kept = Kept(self.client, "k", 3)
        while kept.told - kept.since < 4.5:
            time.sleep(0.5)
            kept.keep()
        kept.keep(600, b"a body is ignored")
        self.assertEqual(get(self.client, "k"), (200, b"v"))
        kept.keep(1)
        wait_gone(self.client, "k")

    def test_keep_for_longer(self):
        """the seconds of the last PUT or POST count"""
        Kept(self.client, "k", 1).keep(600)
        put_ttl(self.client, "again", b"v", 1)
        put_ttl(self.client, "again", b"w", 600)
        let_pass(self.client, 1)
        self.assertEqual(get(self.client, "k"), (200, b"v"))
        self.assertEqual(get(self.client, "again"), (200, b"w"))

    def test_keys_that_stay(self):
        """a PUT without a TTL takes an earlier one away; a POST does not make it end"""
        put_ttl(self.client, "put", b"v", 1)
        status, _, response = ask(self.client, "PUT", target("put"), b"w")
        self.assertEqual((status, response.getheader("Metadata-TTL")), (200, None))
        put_ttl(self.client, "deleted", b"v", 1)
        ask(self.client, "DELETE", target("deleted"))
        put(self.client, "deleted", b"x")
        put(self.client, "kept", b"y")
        self.assertEqual(keep(self.client, "kept", 1), KEPT)
        let_pass(self.client, 1)
        self.assertEqual([get(self.client, key)[1] for key in ("put", "deleted", "kept")],
                         [b"w", b"x", b"y"])

    def test_keep_refused(self):
        """404 for what is not there, 400 without Metadata-TTL"""
        self.assertEqual(keep(self.client, "nothing", 5), GONE)
        put_ttl(self.client, "k", b"v", 600)
        status, body, _ = ask(self.client, "POST", target("k"), b"v")
        self.assertEqual((status, b"Metadata-TTL" in body), (400, True))

    def test_bad_numbers(self):
        """400 for a TTL that is none, and nothing is changed; 1 and 86400 are the limits"""
        put(self.client, "k", b"v")
        bad = ["", "0", "00000", "-1", "+1", "1.5", "86401", "99999", "100000", "1s", "0x10", "1 2",
               "one", "1,1", "\xb2", "4294967297", "18446744073709551617", "9" * 5000, "1\t1", "%31"]
        for text in bad:
            for verb in ("PUT", "POST"):
                status, body, response = ask(self.client, verb, target("k"), b"new",
                                             **{"Metadata-TTL": text})
                self.assertEqual((status, response.getheader("Metadata-TTL")), (400, None), text[:40])
                self.assertIn(b"1 to 86400", body)
        self.assertEqual(get(self.client, "k"), (200, b"v"))
        for ttl in (1, 86400):
            self.assertEqual(put_ttl(self.client, "k", b"v", ttl), (200, str(ttl)))
        with self.server.raw(b"PUT /metadata?key=k HTTP/1.1\r\nHost: h\r\nMetadata-TTL: 0\r\n"
                             b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n") as sock:
            self.assertTrue(sock.recv(4096).startswith(b"HTTP/1.1 400 "))

    def test_many_at_once(self):
        """threads that put, keep, read and list; in the end all of it is gone"""
        def work(number):
            client = self.server.client()
            for turn in range(60):
                key = f"{number}/{turn % 20}"
                self.assertEqual(put_ttl(client, key, b"v" * turn, 2), (200, "2"))
                self.assertIn(keep(client, f"{number}/{turn % 7}", 2), (KEPT, GONE))
                self.assertIn(get(client, f"{(number + 1) % 8}/{turn}")[0], (200, 404))
                if turn % 10 == 0:
                    self.assertTrue(all(k.startswith("1") for k in keys(client, "1")))
            client.close()
        in_threads(8, work)
        te.until(lambda: not keys(self.client), "the end of all keys")

    def switches(self):
        count = 0
        for thread in os.listdir(f"/proc/{self.server.pid}/task"):
            with open(f"/proc/{self.server.pid}/task/{thread}/status", encoding="utf-8") as f:
                count += int(f.read().split("voluntary_ctxt_switches:")[1].split()[0])
        return count

    def test_idle(self):
        """a server without clients does not wake up, also when keys expire meanwhile"""
        if te.SLOW > 1:
            print("left out: whether an idle server wakes up: a sanitizer has a thread that does")
            return
        idle = self.server.sockets()

        def slept_through():
            """A while in which a key expires. What wakes up by itself does so in each."""
            put_ttl(self.client, "k", b"v", 1)
            self.client.close()
            self.server.wait_sockets(idle)
            before = self.switches()
            time.sleep(3)
            return self.switches() - before <= 2

        te.until(slept_through, "a server that sleeps while nobody asks")


class Lists(WithServer):
    def test_prefix(self):
        """sorted, by bytes of any kind, with their number in the header"""
        self.assertEqual(keys(self.client), [])
        names = ["mooncake/ram/b", "mooncake/ram/a", "mooncake/rpc_meta/a", "mooncake/ramp", "z",
                 "%", "%41", "a&b=c", "a+b", "a b", "ключ", "\r", "\x7f"]
        for name in names:
            put(self.client, name, b"v")
        put_ttl(self.client, "mooncake/ram/c", b"v", 3600)
        put_ttl(self.client, "mooncake/ram/short", b"v", 1)
        wait_gone(self.client, "mooncake/ram/short")
        by_bytes = sorted([*names, "mooncake/ram/c"], key=str.encode)
        self.assertEqual(keys(self.client), by_bytes)
        self.assertEqual(keys(self.client, "mooncake/ram/"),
                         ["mooncake/ram/a", "mooncake/ram/b", "mooncake/ram/c"])
        for prefix in ("mooncake/ram", "a", "a+", "a b", "%", "клю", "z", "zz", "\r", "\x00"):
            self.assertEqual(keys(self.client, prefix),
                             [name for name in by_bytes if name.startswith(prefix)], prefix)
        for where in ("/metadata?prefix=", "/metadata?prefix"):
            _, body, response = ask(self.client, "HEAD", where)
            self.assertEqual((body, response.getheader("Metadata-Keys")), (b"", str(len(by_bytes))))
        ask(self.client, "DELETE", target("mooncake/ram/b"))
        self.assertEqual(keys(self.client, "mooncake/ram/b"), [])

    def test_end_of_all_bytes(self):
        """a prefix of bytes that have no successor"""
        for key in ("%FE", "%FF", "%FF%FF", "%FF%FF%01"):
            ask(self.client, "PUT", "/metadata?key=" + key, b"v")
        self.assertEqual(ask(self.client, "GET", "/metadata?prefix=%FF%FF")[1],
                         b"\xff\xff\n\xff\xff\x01\n")
        self.assertEqual(ask(self.client, "GET", "/metadata?prefix=%FF%FF%FF")[1], b"")

    def test_refused(self):
        """400 for both a key and a prefix, and for a prefix with another method than GET"""
        for verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            for where in ("/metadata?key=a&prefix=a", "/metadata?prefix=&key="):
                self.assertEqual(ask(self.client, verb, where)[0], 400, where)
        for verb in ("PUT", "POST", "DELETE"):
            self.assertEqual(ask(self.client, verb, "/metadata?prefix=a")[0], 400)

    def test_too_long(self):
        """a list beyond 64 MiB is refused, and a longer prefix helps"""
        for n in range(1200):
            self.assertEqual(put(self.client, f"{n:04}" + "k" * 60000, b"")[0], 200)
        status, body, _ = ask(self.client, "GET", "/metadata?prefix=")
        self.assertEqual((status, b"longer prefix" in body), (500, True))
        self.assertEqual(len(keys(self.client, "00")), 100)


class Restarts(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.join(te.Workdir.get(), self.id().rpartition(".")[2])
        self.client = None

    @contextlib.contextmanager
    def serving(self, ending=signal.SIGTERM):
        with Server(f"--data-dir={self.folder}") as server:
            self.client = server.client()
            yield server
            self.client.close()
            if ending == signal.SIGKILL:
                server.kill()
            else:
                self.assertEqual(server.stop(ending), 0, server)

    def rows(self, table):
        with contextlib.closing(sqlite3.connect(os.path.join(self.folder, "metadata.db"))) as db:
            return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def test_down_for_longer(self):
        """what ran out while the server was down has its TTL once more; then it is gone"""
        for ending in (signal.SIGTERM, signal.SIGKILL):
            te.until(lambda how=ending: self.comes_back(how), "a restart in less time than the TTL")

    def comes_back(self, ending):
        """False: this test was itself late by the TTL, and cannot tell."""
        with self.serving(ending):
            put_ttl(self.client, "alive", b"v", 3)
            put_ttl(self.client, "dead", b"v", 3)
            put(self.client, "stays", b"v")
        time.sleep(3.2)  # at least
        began = time.monotonic()
        with self.serving():
            found = get(self.client, "dead"), keep(self.client, "alive", 600)
            if time.monotonic() - began >= 3:
                return False
            self.assertEqual(found, ((200, b"v"), KEPT))
            wait_gone(self.client, "dead")
            self.assertGreater(time.monotonic() - began, 2.99)
            self.assertEqual(keys(self.client), ["alive", "stays"])
        return True

    def test_seconds_are_kept(self):
        """the seconds of the last PUT or POST are on the disk, also after kill -9"""
        with self.serving(signal.SIGKILL):
            Kept(self.client, "longer", 1).keep(600)
            put_ttl(self.client, "stays", b"v", 1)
            put(self.client, "stays", b"v")
            put_ttl(self.client, "anew", b"v", 1)
            ask(self.client, "DELETE", target("anew"))
            put(self.client, "anew", b"v")
            put_ttl(self.client, "shorter", b"v", 600)
            self.assertEqual(keep(self.client, "shorter", 1), KEPT)
        with self.serving():
            let_pass(self.client, 1)  # what has one second has it anew since the start
            self.assertEqual(keys(self.client), ["anew", "longer", "stays"])

    def test_expired_before_the_end(self):
        """what ran out before a clean end does not come back"""
        with self.serving():
            put_ttl(self.client, "k", b"v", 1)
            time.sleep(1.1)  # at least, and without a request, which might remove it
        self.assertEqual((self.rows("metadata"), self.rows("lifetime")), (0, 0))
        with self.serving():
            self.assertEqual(get(self.client, "k"), GONE)

    def test_removed_from_the_disk(self):
        """a few requests remove thousands of expired keys from the file while the server runs"""
        with self.serving(signal.SIGKILL) as server:
            def work(number):
                client = server.client()
                for n in range(700):
                    self.assertEqual(put_ttl(client, f"{number}/{n}", b"v" * 500, 1)[0], 200)
                client.close()
            in_threads(4, work)
            put(self.client, "stays", b"v")
            te.until(lambda: keys(self.client) == ["stays"], "the end of the others")
            time.sleep(1.1)  # at least: it looks for them once a second at most
            for _ in range(5):
                self.assertEqual(get(self.client, "stays"), (200, b"v"))
        self.assertEqual((self.rows("metadata"), self.rows("lifetime")), (1, 0))

    def test_older_database(self):
        """a folder of an older te_metad is opened and served, and keys get a TTL"""
        os.mkdir(self.folder)
        with contextlib.closing(sqlite3.connect(os.path.join(self.folder, "metadata.db"))) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE metadata (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
            db.executemany("INSERT INTO metadata VALUES (?, ?)",
                           [(b"old", b"1"), (b"older", b"2" * 100000), (b"with\nnewline", b"3")])
            db.commit()
        with self.serving():
            self.assertEqual(get(self.client, "older"), (200, b"2" * 100000))
            self.assertEqual(get(self.client, "with\nnewline"), (200, b"3"))
            self.assertEqual(keys(self.client), ["old", "older"])
            self.assertEqual(put_ttl(self.client, "older", b"new", 600), (200, "600"))
        with self.serving():
            self.assertEqual(get(self.client, "older"), (200, b"new"))
            self.assertEqual(get(self.client, "old"), (200, b"1"))
            self.assertEqual(ask(self.client, "DELETE", target("with\nnewline"))[0], 200)
        self.assertEqual((self.rows("metadata"), self.rows("lifetime")), (2, 1))

    def test_hostile_database(self):
        """lifetimes that no te_metad wrote do no harm"""
        with self.serving():
            put(self.client, "stays", b"v")
        with contextlib.closing(sqlite3.connect(os.path.join(self.folder, "metadata.db"))) as db:
            db.executemany("INSERT INTO lifetime VALUES (?, ?)",
                           [(b"nothing", -5), (b"huge", 1 << 62), (b"text", "x"), (b"blob", b"\xff")])
            db.execute("CREATE TABLE expiry (key BLOB PRIMARY KEY, at INTEGER)")
            db.commit()
        with self.serving():
            self.assertEqual(keys(self.client), ["stays"])
            for key in ("nothing", "huge", "text", "blob"):
                self.assertEqual(keep(self.client, key, 5)[0], 404, key)


if __name__ == "__main__":
    te.main()
