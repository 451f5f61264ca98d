#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_metad: its verbs and errors, odd keys, large values, hostile clients, kill -9, its command line.

usage: test_metad.py [FOLDER OF te_metad] [TEST]...    (or the folder in TE_BIN)
"""
import contextlib
import http.client
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
import unittest

if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
    os.environ["TE_TEST_BIN"] = sys.argv.pop(1)
elif os.environ.get("TE_BIN"):
    os.environ["TE_TEST_BIN"] = os.environ["TE_BIN"]

import te_proc as te  # noqa: E402 - it reads the folder from the environment
from metad_server import (Server, WithServer, ask, get, in_threads,  # noqa: E402
                          put, read_head, target)

JSON = "application/json; charset=utf-8"
MIB = 1 << 20
VERBS = ("GET", "HEAD", "PUT", "POST", "DELETE")


class Verbs(WithServer):
    def test_life_of_a_key(self):
        """GET 404, PUT, GET, overwrite, HEAD, DELETE, DELETE again, GET 404"""
        self.assertEqual(get(self.client, "k"), (404, b"metadata not found"))
        self.assertEqual(put(self.client, "k", b'{"a":1}'), (200, b"metadata updated"))
        status, body, response = ask(self.client, "GET", target("k"))
        self.assertEqual((status, body, response.getheader("Content-Type")),
                         (200, b'{"a":1}', JSON))
        self.assertEqual(put(self.client, "k", b'{"other":[2]}'), (200, b"metadata updated"))
        self.assertEqual(get(self.client, "k"), (200, b'{"other":[2]}'))
        status, body, response = ask(self.client, "HEAD", target("k"))
        self.assertEqual((status, body, response.getheader("Content-Length")), (200, b"", "13"))
        for _ in range(2):
            self.assertEqual(ask(self.client, "DELETE", target("k"))[:2],
                             (200, b"metadata deleted"))
        self.assertEqual(get(self.client, "k"), (404, b"metadata not found"))
        self.assertEqual(ask(self.client, "HEAD", target("k"))[0], 404)

    def test_any_value(self):
        """values are bytes: none, binary ones, 10 MB"""
        for value in (b"", b"\0", bytes(range(256)) * 3, os.urandom(10_000_000)):
            self.assertEqual(put(self.client, "v", value)[0], 200)
            status, body = get(self.client, "v")
            self.assertEqual((status, len(body)), (200, len(value)))
            self.assertTrue(body == value)

    def test_keys(self):
        """keys of any bytes but NUL and newline, however they are percent-encoded"""
        keys = ["mooncake/rpc_meta/10.0.0.2:12345", "a/b", "a:b", "100%", "%2F", "a b", "a+b",
                "a&b=c", "?", "#", "ключ", "鍵/é", "\x01\x7f\r", "k" * 60000, "/" * 20000]
        for number, key in enumerate(keys):
            self.assertEqual(put(self.client, key, b"%d" % number)[0], 200, key[:80])
        for number, key in enumerate(keys):
            self.assertEqual(get(self.client, key), (200, b"%d" % number), key[:80])
        raw = bytes(byte for byte in range(1, 256) if byte != 10)
        every = "/metadata?key=" + "".join(f"%{byte:02x}" for byte in raw)
        self.assertEqual(ask(self.client, "PUT", every, b"all")[0], 200)
        self.assertEqual(ask(self.client, "GET", every.upper().replace("/METADATA?KEY",
                                                                       "/metadata?key"))[1], b"all")
        # The same key with what needs no encoding left as it is, and a space as '+'.
        self.assertEqual(ask(self.client, "GET", "/metadata?x=1&key=a/b&y")[1], b"1")
        self.assertEqual(ask(self.client, "GET", "/metadata?key=a:b")[1], b"2")
        self.assertEqual(ask(self.client, "GET", "/metadata?key=a+b")[1], b"5")
        self.assertEqual(ask(self.client, "GET", "/metadata?key=a%2Bb")[1], b"6")

    def test_bad_keys(self):
        """400 for an empty key, no key, a NUL byte; and to put, a newline"""
        for where in ("/metadata?key=", "/metadata", "/metadata?kay=x", "/metadata?key",
                      "/metadata?key=a%00b"):
            for verb in VERBS:
                self.assertEqual(ask(self.client, verb, where, b"v" if verb == "PUT" else None)[0],
                                 400, f"{verb} {where}")
        status, body, _ = ask(self.client, "PUT", "/metadata?key=a%0Ab", b"v")
        self.assertEqual((status, b"newline" in body), (400, True))
        self.assertEqual(ask(self.client, "GET", "/metadata?key=a%0Ab")[0], 404)
        self.assertEqual(ask(self.client, "DELETE", "/metadata?key=a%0Ab")[0], 200)

    def test_other_methods_and_paths(self):
        """405 with Allow, 404, /health; the connection stays usable"""
        for verb in ("PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            status, _, response = ask(self.client, verb, target("k"), b"x" * 100000)
            self.assertEqual((status, response.getheader("Allow")),
                             (405, "GET, HEAD, PUT, POST, DELETE"), verb)
        status, body, _ = ask(self.client, "PUT", "/?key=k", b"v")
        self.assertEqual((status, body), (404, b"te_metad serves /metadata?key=... (and /health, /metrics)"))
        for where in ("/", "/metadat", "/metadata/?key=k", "/metadata2?key=k", "/../metadata"):
            for verb in VERBS:
                self.assertEqual(ask(self.client, verb, where, b"x" if verb == "PUT" else None)[0],
                                 404, where)
        self.assertEqual(ask(self.client, "GET", "/health")[:2], (200, b"ok"))
        status, _, response = ask(self.client, "PUT", "/health", b"x")
        self.assertEqual((status, response.getheader("Allow")), (405, "GET, HEAD"))

    def test_expect_continue(self):
        """Expect: 100-continue is answered before the body is sent; a refusal is final at once"""
        with self.server.raw() as sock:
            sock.sendall(b"PUT /metadata?key=e HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                         b"Expect: 100-continue\r\n\r\n")
            head, rest = read_head(sock)
            self.assertTrue(head.startswith("HTTP/1.1 100 "), head)
            self.assertEqual(rest, b"")
            sock.sendall(b"hello")
            self.assertTrue(read_head(sock)[0].startswith("HTTP/1.1 200 "))
        self.assertEqual(get(self.client, "e"), (200, b"hello"))
        with self.server.raw(b"PUT /metadata?key= HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                             b"Expect: 100-continue\r\n\r\n") as sock:
            self.assertTrue(read_head(sock)[0].startswith("HTTP/1.1 400 "))

    def test_chunked_body(self):
        """a body without a length"""
        parts = [os.urandom(n) for n in (1, 70000, 3)]
        self.client.request("PUT", target("c"), iter(parts), encode_chunked=True,
                            headers={"Transfer-Encoding": "chunked"})
        response = self.client.getresponse()
        self.assertEqual((response.status, response.read()), (200, b"metadata updated"))
        self.assertEqual(get(self.client, "c"), (200, b"".join(parts)))


class Limits(WithServer):
    flags = ("--max-value=100K", "--path=/kv/store", "--quiet")

    def test_max_value(self):
        """--max-value: exactly that much is taken; more is 413, with and without a length or Expect"""
        where = target("k", "/kv/store")
        self.assertEqual(ask(self.client, "PUT", where, b"x" * 102400)[0], 200)
        for size in (102401, 5 * MIB):
            status, body, _ = ask(self.client, "PUT", where, b"y" * size)
            self.assertEqual(status, 413)
            self.assertIn(b"--max-value", body)
            self.client.request("PUT", where, iter([b"y" * size]), encode_chunked=True,
                                headers={"Transfer-Encoding": "chunked"})
            response = self.client.getresponse()
            self.assertEqual((response.status, response.read()), (413, body))
        with self.server.raw(b"PUT " + where.encode() + b" HTTP/1.1\r\nHost: h\r\nContent-Length: "
                             b"999999999999\r\nExpect: 100-continue\r\n\r\n") as sock:
            self.assertTrue(read_head(sock)[0].startswith("HTTP/1.1 413 "))
        self.assertEqual(ask(self.client, "GET", where)[1], b"x" * 102400)

    def test_path(self):
        """--path moves the contents"""
        status, body = get(self.client, "k")
        self.assertEqual((status, body[:31]), (404, b"te_metad serves /kv/store?key=."))
        self.assertEqual(ask(self.client, "PUT", target("k", "/kv/store"), b"v")[0], 200)

    def test_quiet(self):
        """--quiet: not a line on standard error"""
        ask(self.client, "GET", "/nowhere")
        self.assertEqual(self.server.stop(signal.SIGINT), 0)
        self.assertEqual(self.server.error_output(), "")
        self.server.close()
        self.server = Server(*self.flags)  # for tearDown()
        self.addCleanup(self.server.close)


class Load(WithServer):
    def test_many_keys(self):
        """10,000 keys, written and read by 4 clients"""
        def work(number):
            client = self.server.client()
            for verb in (put, None):
                for n in range(number, 10000, 4):
                    key, value = f"mooncake/ram/node-{n}", b'{"n":%d}' % n
                    if verb:
                        self.assertEqual(put(client, key, value)[0], 200)
                    else:
                        self.assertEqual(get(client, key), (200, value))
            client.close()
        in_threads(4, work)

    def test_concurrent_clients(self):
        """100 keep-alive clients at once, each with its own key and all with one more"""
        gate = threading.Barrier(100)

        def work(number):
            client = self.server.client()
            client.connect()
            gate.wait(te.HANG_S)
            for turn in range(10):
                value = b"%d/%d" % (number, turn)
                self.assertEqual(put(client, f"own-{number}", value)[0], 200)
                self.assertEqual(put(client, "shared", value * 1000)[0], 200)
                self.assertEqual(get(client, f"own-{number}"), (200, value))
                status, shared = get(client, "shared")
                first = shared[:len(shared) // 1000]
                self.assertTrue(status == 200 and shared == first * 1000)
            client.close()
        in_threads(100, work)

    def test_pipelined(self):
        """requests sent without waiting for answers are answered in order"""
        request = b"PUT /metadata?key=p%d HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n%d"
        with self.server.raw(b"".join(request % (n, n) for n in range(10)) +
                             b"GET /metadata?key=p9 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
                             ) as sock:
            data = b""
            while part := sock.recv(65536):
                data += part
        self.assertEqual(data.count(b"HTTP/1.1 200 "), 11)
        self.assertTrue(data.endswith(b"\r\n\r\n9"))

    def test_held_memory_is_bounded_and_given_back(self):
        """too many large values at once are 503; when they are gone, there is room again"""
        began = b"PUT /metadata?key=h HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (15 * MIB)
        socks = []

        def large():
            return self.server.once(put, "h", b"y" * (15 * MIB))[0]

        def no_room():
            socks.append(self.server.raw(began + b"x" * (9 * MIB)))  # it may be refused, too
            return large() == 503

        te.until(no_room, "a refusal")
        self.assertEqual(self.server.once(put, "small", b"v")[0], 200)
        for sock in socks:
            sock.close()
        te.until(lambda: large() == 200, "room")


class Hostile(WithServer):
    flags = ("--max-connections=64",)  # silent clients are not cut off: who gets in does so beside them

    def test_garbage(self):
        """rubbish, broken requests and resets beside normal requests"""
        rng = random.Random(1)
        rubbish = [b"\0" * 5000, b"\r\n" * 1000, b"GET", b"GET / HTTP/9.9\r\n\r\n",
                   b"GET /metadata?key=%zz%f HTTP/1.1\r\nHost: h\r\n\r\n",
                   b"PUT /metadata?key=g HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\nxx",
                   b"PUT /metadata?key=g HTTP/1.1\r\nHost: h\r\nContent-Length: "
                   b"99999999999999999999999\r\n\r\nxx",
                   b"PUT /metadata?key=g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"zz\r\nx", b"GET /" + b"a" * 300000 + b" HTTP/1.1\r\n\r\n",
                   b"GET /metadata?" + b"key=a&" * 10000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
                   b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 30000 + b"\r\n",
                   b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500)]
        rubbish += [rng.randbytes(rng.randrange(1, 3000)) for _ in range(150)]
        put(self.client, "good", b"value")
        for number, data in enumerate(rubbish):
            try:
                with self.server.raw(data) as sock:
                    if number % 2:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    sock.settimeout(0.01)
                    sock.recv(4096)
            except OSError:
                pass  # What the server thinks of it is its own affair.
            self.assertEqual(get(self.client, "good"), (200, b"value"), f"after {data[:40]!r}")

    def drip(self, over, opened):
        """200 clients that send their headers a byte at a time and do not end them before the others are served."""
        socks = []
        for _ in range(200):
            try:
                socks.append(self.server.raw(b"GET /metadata?key=good HTTP/1.1\r\nHost: "))
            except OSError:
                pass
        opened.set()
        while not over.wait(0.1):
            for sock in socks:
                try:
                    sock.send(b"h")
                except OSError:
                    pass
        for sock in socks:
            sock.close()

    def test_slow_clients(self):
        """200 clients that never finish their headers, on 64 connections, keep nobody out"""
        put(self.client, "good", b"value")
        over, opened = threading.Event(), threading.Event()
        slow = threading.Thread(target=self.drip, args=(over, opened))
        slow.start()
        try:
            self.assertTrue(opened.wait(te.HANG_S))
            for _ in range(300):
                self.assertEqual(self.server.once(get, "good"), (200, b"value"))
        finally:
            over.set()
            slow.join()

    def test_slow_reader(self):
        """clients that never read a large value, or never end their own, keep nobody out"""
        put(self.client, "large", b"x" * 10 * MIB)
        socks = [self.server.raw(b"GET /metadata?key=large HTTP/1.1\r\nHost: h\r\n\r\n")
                 for _ in range(10)]
        socks += [self.server.raw(b"PUT /metadata?key=slow HTTP/1.1\r\nHost: h\r\n"
                                  b"Content-Length: 9000000\r\n\r\n" + b"x" * 100000)
                  for _ in range(10)]
        for n in range(100):
            self.assertEqual(put(self.client, f"k{n}", b"v")[0], 200)
        for sock in socks:  # none had to go for that
            sock.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while sock.recv(MIB):
                    pass
            sock.close()


class Idle(WithServer):
    flags = ("--idle-timeout=2",)

    def test_unfinished_put_changes_nothing(self):
        """a body that breaks off is not stored"""
        before = self.server.sockets()
        self.server.once(put, "half", b"whole")
        for size in (10, 200000):
            with self.server.raw(b"PUT /metadata?key=half HTTP/1.1\r\nHost: h\r\n"
                                 b"Content-Length: %d\r\n\r\n" % (size + 1) + b"x" * size):
                pass
            with self.server.raw(b"PUT /metadata?key=half HTTP/1.1\r\nHost: h\r\n"
                                 b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + b"x" * size):
                pass
        self.server.wait_sockets(before)  # it has done with them
        self.assertEqual(self.server.once(get, "half"), (200, b"whole"))

    def test_idle_connections_are_closed(self):
        """--idle-timeout: a silent connection is closed, and its descriptor with it"""
        before = self.server.sockets()
        with self.server.raw() as silent, self.server.raw(b"GET /meta") as partial:
            for sock in (silent, partial):
                while sock.recv(4096):
                    pass
        self.server.wait_sockets(before)


class Writer(threading.Thread):
    """PUTs until the server is gone; knows what was acknowledged and what was under way then."""

    def __init__(self, server, name, seed):
        super().__init__(daemon=True)
        self.client = server.client()
        self.name_of_own, self.rng = name, random.Random(seed)
        self.acknowledged, self.under_way, self.count = {}, None, 0
        self.start()

    def value(self):
        return self.rng.randbytes(self.rng.choice((20, 100, 5000, 300000)))

    def run(self):
        try:
            self.write()
        except (OSError, http.client.HTTPException):
            pass  # The server is gone.
        self.client.close()

    def write(self):
        while True:
            # Of nine writes, three make new keys and six replace values that are there.
            key = f"{self.name_of_own}/{self.count % 9 if self.count % 3 else self.count}"
            value = self.value()
            self.under_way = (key, value)
            if put(self.client, key, value)[0] != 200:
                return
            self.acknowledged[key] = value
            self.under_way = None
            self.count += 1


class Durable(unittest.TestCase):
    def folder(self):
        return os.path.join(te.Workdir.get(), self.id().rpartition(".")[2])

    def check(self, client, writers, kept):
        """Acknowledged values are there; of one under way, the old or the new; older ones as found."""
        expected = {key: [value] for key, value in kept.items()}
        for writer in writers:
            expected.update({key: [value] for key, value in writer.acknowledged.items()})
            if writer.under_way:
                key, value = writer.under_way
                expected.setdefault(key, [None]).append(value)
        for key, values in expected.items():
            status, body = get(client, key)
            found = body if status == 200 else None
            self.assertTrue(found in values, f"{key}: status {status}, {len(body)} bytes")
            kept[key] = found

    def test_kill(self):
        """kill -9 while 4 clients PUT without a pause, 3 times over: every acknowledged value is there, whole"""
        folder, kept, total = self.folder(), {}, 0
        for turn in range(3):
            with Server(f"--data-dir={folder}") as server:
                writers = [Writer(server, f"{turn % 2}/{n}", turn * 10 + n) for n in range(4)]
                for writer in writers:
                    te.until(lambda w=writer: w.count >= 30 or not w.is_alive(), "30 PUTs")
                server.kill()
                for writer in writers:
                    writer.join()
                    self.assertGreaterEqual(writer.count, 30)
                    total += len(writer.acknowledged)
            with Server(f"--data-dir={folder}") as server:
                server.once(self.check, writers, kept)
                self.assertEqual(server.stop(), 0, server)
            with contextlib.closing(sqlite3.connect(os.path.join(folder, "metadata.db"))) as db:
                self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        print(f"{total} acknowledged, all found ... ", end="", file=sys.stderr, flush=True)

    def test_restart(self):
        """contents, deletions and odd keys outlive a clean stop; the files are private"""
        folder = self.folder()
        keys = ["a/b:c", "ключ", "k" * 30000, "\x01 %"]
        with Server(f"--data-dir={folder}") as server:
            client = server.client()
            for key in [*keys, "gone"]:
                self.assertEqual(put(client, key, key.encode() * 2)[0], 200)
            self.assertEqual(put(client, "empty", b"")[0], 200)
            self.assertEqual(ask(client, "DELETE", target("gone"))[0], 200)
            client.close()
            self.assertEqual(server.stop(signal.SIGINT), 0, server)
        with Server("--data-dir", folder) as server:
            client = server.client()
            for key in keys:
                self.assertEqual(get(client, key), (200, key.encode() * 2))
            self.assertEqual(get(client, "empty"), (200, b""))
            self.assertEqual(get(client, "gone")[0], 404)
            client.close()
            self.assertEqual(server.stop(), 0, server)
            self.assertIn(f"{len(keys) + 1} keys", server.error_output())
        self.assertEqual(os.stat(folder).st_mode & 0o077, 0)
        self.assertEqual(sorted(os.listdir(folder)), ["metadata.db", "metadata.reserve"])

    def test_one_server_a_folder(self):
        """a second server on the same folder is refused, and leaves the first one alone"""
        folder = self.folder()
        with Server(f"--data-dir={folder}") as server:
            client = server.client()
            put(client, "k", b"v")
            second = te.run("te_metad", "--addr=127.0.0.1:0", f"--data-dir={folder}")
            self.assertEqual(second.rc, 1, second)
            self.assertIn("another te_metad", second.error_output())
            self.assertEqual(get(client, "k"), (200, b"v"))
            client.close()

    def test_bad_folders(self):
        """a folder that cannot be made, and a database that is none: told, and exit 1"""
        folder = self.folder()
        os.mkdir(folder)
        with open(os.path.join(folder, "metadata.db"), "wb") as f:
            f.write(b"not a database" * 1000)
        for place in (folder, os.path.join(folder, "a", "b"), "/dev/null"):
            proc = te.run("te_metad", "--addr=127.0.0.1:0", f"--data-dir={place}")
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn("--data-dir", proc.error_output())
            if place.endswith("/b"):
                self.assertIn("must exist: make that first", proc.error_output())


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


class CommandLine(unittest.TestCase):
    def test_bad_flags(self):
        """exit 2, and the flag is named"""
        cases = {"--adress=:1": "--adress", "--addr=": "--addr", "--addr=localhost": "--addr",
                 "--addr=:70000": "--addr", "--addr=:x": "--addr", "--addr=::1:80": "--addr",
                 "--addr=[]:80": "--addr", "--addr=[::1]80": "--addr", "--addr=http://h:80": "--addr",
                 "--addr=[localhost]:80": "--addr", "--max-value=0": "--max_value",
                 "--max-value=lots": "--max_value", "--max-value=100T": "--max_value",
                 "--max-bytes=0": "--max_bytes", "--max-keys=0": "--max_keys",
                 "--max-connections=0": "--max_connections", "--path=metadata": "--path",
                 "--path=/health": "--path", "--path=/a?b": "--path", "extra": "extra",
                 "--data-dir": "--data_dir"}
        for flag, named in cases.items():
            proc = te.run("te_metad", flag)
            self.assertEqual(proc.rc, 2, proc)
            self.assertIn(named, proc.error_output())
            self.assertEqual(proc.output(), "")

    def test_help_and_version(self):
        """--help and --version: exit 0"""
        proc = te.run("te_metad", "--help")
        self.assertEqual(proc.rc, 0)
        for flag in ("addr", "data_dir", "path", "max_value", "max_bytes", "max_keys", "token_file",
                     "tls_cert", "tls_key", "quiet"):
            self.assertIn(f"--{flag}=", proc.output())
        self.assertEqual(te.run("te_metad", "--version").rc, 0)

    def test_address_in_use(self):
        """an address in use: said so, exit 1; free again as soon as the server is gone"""
        with te.Metad() as server:  # at a port that nobody is given when it is free again
            address = f"127.0.0.1:{server.port}"
            client = http.client.HTTPConnection(address, timeout=te.HANG_S)
            put(client, "k", b"v")
            proc = te.run("te_metad", f"--addr={address}")
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn("in use", proc.error_output())
            server.kill()
            with Server(addr=address) as again:
                self.assertEqual(again.port, server.port)
            client.close()

    def test_addresses(self):
        """all interfaces over IPv4 and IPv6; addresses of others are refused"""
        proc = te.run("te_metad", "--addr=192.0.2.1:0")
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("--addr", proc.error_output())
        if not has_ipv6():
            te.skip("this host has no IPv6")
        with Server(addr="[::1]:0") as server:
            self.assertEqual(server.host, "::1")
            self.assertEqual(server.once(get, "k")[0], 404)
        with Server(addr=":0") as server:
            for host in ("127.0.0.1", "::1"):
                self.assertEqual(server.once(get, "k", host=host)[0], 404, host)

    def test_name_of_a_host(self):
        """the name of a host as address"""
        try:
            socket.getaddrinfo("localhost", None)
        except OSError:
            te.skip("this host does not know localhost")
        with Server(addr="localhost:0") as server:
            self.assertEqual(server.once(get, "k", host="localhost")[0], 404)

    def test_signals(self):
        """SIGTERM and SIGINT stop it cleanly, also with clients in the middle of requests; these need not leave"""
        for sig in (signal.SIGTERM, signal.SIGINT):
            with Server() as server:
                idle = server.client()
                put(idle, "k", b"v" * MIB)
                before = server.sockets()
                socks = [server.raw(b"PUT /metadata?key=x HTTP/1.1\r\nHost: h\r\n"
                                    b"Content-Length: 100\r\n\r\nabc"),
                         server.raw(b"GET /metadata?key=k HTTP/1.1\r\nHost: h\r\n\r\n")]
                te.until(lambda s=server, n=before: s.sockets() == n + 2, "both requests")
                self.assertEqual(server.stop(sig), 0, server)
                for sock in socks:
                    sock.close()
                idle.close()


if __name__ == "__main__":
    te.main()
