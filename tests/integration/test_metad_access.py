#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_metad: the token that it asks for, and TLS."""
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import unittest

import te_proc as te
from metad_server import Server, ask, get, in_threads, put, target

TOKEN = "s3cret-Token_of~this.test/+=="
VERBS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")


def write(name, data):
    path = os.path.join(te.Workdir.get(), name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def refused(*flags):
    """What a server that cannot start says."""
    proc = te.run("te_metad", "--addr=127.0.0.1:0", *flags)
    return proc.rc, proc.error_output()


def certificate(name, *more):
    """The files of a new key and its own certificate."""
    if not shutil.which("openssl"):
        te.skip("there is no openssl command")
    key, cert = (os.path.join(te.Workdir.get(), f"{name}.{part}") for part in ("key", "crt"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1,DNS:localhost", *(more or ["-nodes"])],
                   check=True, timeout=te.HANG_S, capture_output=True)
    return key, cert


class Openness(unittest.TestCase):
    """Who is let in by no token, and whose the secrets are, is told at the start."""
    OPEN = "can read and change everything: --token-file=FILE"

    def told(self, *flags, **more):
        with Server(*flags, **more) as server:
            self.assertEqual(server.stop(), 0, server)
            return server.error_output()

    def test_open_to_all(self):
        self.assertRegex(self.told(addr=":0"), rf"whoever reaches (\[::\]|0\.0\.0\.0):[0-9]+ {self.OPEN}")
        self.assertEqual(self.told("--quiet", addr=":0"), "")
        told = self.told("--token-file", write("token", TOKEN), addr=":0")
        self.assertNotIn("whoever", told)
        self.assertRegex(told, r"tokens are sent to \S+:[0-9]+ in the clear: --tls-cert and --tls-key encrypt")
        self.assertNotIn("whoever", self.told(addr="127.0.0.2:0"))

    def test_secrets_of_all(self):
        path = write("token", TOKEN)
        for mode, word in ((0o644, "read"), (0o606, "change"), (0o640, None), (0o600, None)):
            os.chmod(path, mode)
            told = self.told("--token-file", path)
            if word:
                self.assertIn(f"--token-file={path}: every user of this host can {word} it: chmod o-rwx", told)
            else:
                self.assertNotIn("every user", told)


class Token(unittest.TestCase):
    def setUp(self):
        self.server = Server("--token-file", write("token", f"\n {TOKEN}\t\r\n"))
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def with_token(self, text, verb="GET", where="/metadata?key=k", body=None):
        return ask(self.client, verb, where, body, Authorization=text)

    def test_right(self):
        """all verbs with the token; the name of the scheme in any case"""
        for scheme in ("Bearer", "bearer", "BEARER"):
            right = f"{scheme} {TOKEN}"
            self.assertEqual(self.with_token(right, "PUT", body=b"v")[0], 200)
            self.assertEqual(self.with_token(right)[:2], (200, b"v"))
            self.assertEqual(self.with_token(right, where="/metadata?prefix=")[:2], (200, b"k\n"))
            self.assertEqual(self.with_token(right, "DELETE")[0], 200)
            self.assertEqual(self.with_token(right, where="/nowhere")[0], 404)

    def test_wrong(self):
        """401 for none and for any other, whatever is asked; nothing is changed; /health is open"""
        self.assertEqual(self.with_token(f"Bearer {TOKEN}", "PUT", body=b"v")[0], 200)
        wrong = ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", f"Bearer {TOKEN}x",
                 f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}{TOKEN}", "Bearer " + "x" * len(TOKEN),
                 f"Bearer x{TOKEN[1:]}", f"Bearer {TOKEN.upper()}", "Bearer " + "x" * 50000,
                 f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer \xff\xfe"]
        for text in wrong:
            status, body, response = self.with_token(text)
            self.assertEqual((status, response.getheader("WWW-Authenticate")), (401, "Bearer"), text)
            self.assertIn(b"Authorization: Bearer", body)
            self.assertNotIn(TOKEN.encode(), body)
        for verb in VERBS:
            for where in ("/metadata?key=k", "/metadata", "/metadata?prefix=", "/nowhere"):
                status, _, response = ask(self.client, verb, where, b"new" if verb[0] == "P" else None)
                self.assertEqual((status, response.getheader("WWW-Authenticate")), (401, "Bearer"))
        self.assertEqual(self.with_token(f"Bearer {TOKEN}")[:2], (200, b"v"))
        self.assertEqual(ask(self.client, "GET", "/health")[:2], (200, b"ok"))

    def test_at_once(self):
        """a client that waits for 100 Continue is refused before it sends"""
        with self.server.raw(b"PUT /metadata?key=k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                             b"Expect: 100-continue\r\n\r\n") as sock:
            self.assertTrue(sock.recv(4096).startswith(b"HTTP/1.1 401 "))

    def test_not_shown(self):
        """the token is in no line of the server"""
        self.with_token("Bearer wrong")
        self.assertEqual(self.server.stop(signal.SIGINT), 0, self.server)
        self.assertNotIn(TOKEN, str(self.server))

    def test_bad_files(self):
        """files that hold no token: told, and exit 1"""
        files = {"missing": None, "empty": b"", "blank": b" \n\n", "comment": b"# a token\n", "words": b"two words\n",
                 "right": b"tok rx node\n", "many": b"tok rw node prod\n", "slash": b"tok rw /node\n",
                 "key": b"tok rw mooncake/ram/node\n", "files": b"tok\ntok ro nvmeof/disk\n", "kind": b"tok ro ram/\n",
                 "nul": b"a\0b", "binary": b"\x01\xff", "second": b"one\n\x7f rw\n", "long": b"x" * 4001,
                 "huge": b"x" * (1 << 20)}
        for name, data in files.items():
            path = os.path.join(te.Workdir.get(), name)
            if data is not None:
                write(name, data)
            rc, text = refused(f"--token-file={path}")
            self.assertEqual((rc, f"--token-file={path}: " in text, text.count("\n")), (1, True, 0),
                             text)
            self.assertNotIn("tok ", text)
        self.assertEqual(refused("--token-file", te.Workdir.get())[0], 1)


# Who may read and write which of the keys below; "both" has two lines, "gone" none.
TOKENS = """# every line is a right
everything
admin rw
reader\tro  \r
one rw node-1

both rw node-1
both ro
prod rw prod/node-
prodall ro prod/
deep ro a/b/x
"""
# key -> the tokens that may write it, and those that may read it besides
KEYS = {
    "mooncake/ram/node-1": ("everything admin one both", "reader"),
    "mooncake/rpc_meta/node-1": ("everything admin one both", "reader"),
    "mooncake/nvmeof/node-1": ("everything admin one both", "reader"),
    "mooncake/rpc_meta/node-10:15000": ("everything admin one both", "reader"),
    "mooncake/ram/node-2": ("everything admin", "reader both"),
    "mooncake/ram/a-node-1": ("everything admin", "reader both"),
    "mooncake/prod/ram/node-1": ("everything admin prod", "reader both prodall"),
    "mooncake/prod/rpc_meta/other": ("everything admin", "reader both prodall"),
    "mooncake/prod/ram/ram/node-1": ("everything admin", "reader both"),
    "mooncake/prod2/ram/node-1": ("everything admin", "reader both"),
    "mooncake/a/b/ram/x1": ("everything admin", "reader both deep"),
    "mooncake/a/ram/x1": ("everything admin", "reader both"),
    "mooncake//ram/node-1": ("everything admin", "reader both"),
    "mooncake//node-1": ("everything admin", "reader both"),
    "mooncake/node-1": ("everything admin", "reader both"),
    "mooncake/ram/": ("everything admin", "reader both"),
    "mooncake/ram/node-1/": ("everything admin", "reader both"),
    "other/ram/node-1": ("everything admin", "reader both"),
    "node-1": ("everything admin", "reader both"),
}


class Tokens(unittest.TestCase):
    def setUp(self):
        self.path = write("tokens", TOKENS)
        self.server = Server("--token-file", self.path)
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def ask(self, token, verb, where, body=None, **more):
        return ask(self.client, verb, where, body, Authorization=f"Bearer {token}", **more)

    def rights(self):
        """(key, token, may read, may write) of all."""
        names = {line.split()[0] for line in TOKENS.splitlines() if line.strip() and line[0] != "#"}
        for key, (writers, readers) in KEYS.items():
            for name in sorted(names):
                write_too = name in writers.split()
                yield key, name, write_too or name in readers.split(), write_too

    def test_rights(self):
        """rw, ro and prefixes: 403 for what a token may not do, and nothing is changed by that"""
        ttl = {"Metadata-TTL": "600"}
        for key, token, reads, writes in self.rights():
            with self.subTest(key=key, token=token):
                self.assertEqual(self.ask("admin", "PUT", target(key), b"old", **ttl)[0], 200)
                for verb, body, may in (("GET", None, reads), ("HEAD", None, reads), ("PUT", b"new", writes),
                                        ("POST", None, writes), ("DELETE", None, writes)):
                    headers = ttl if verb[0] == "P" else {}
                    status, text, _ = self.ask(token, verb, target(key), body, **headers)
                    self.assertEqual(status, 200 if may else 403, verb)
                    if not may and verb != "HEAD":
                        self.assertIn(b"--token-file", text)
                expected = (404, b"metadata not found") if writes else (200, b"old")
                self.assertEqual(self.ask("admin", "GET", target(key))[:2], expected)

    def test_lists(self):
        """a list shows what may be read, and counts that"""
        for key in KEYS:
            self.assertEqual(self.ask("admin", "PUT", target(key), b"v")[0], 200)
        for token in ("everything", "admin", "reader", "one", "both", "prod", "prodall", "deep"):
            for prefix in ("", "mooncake/", "mooncake/prod/", "x"):
                shown = sorted(key for key, name, reads, _ in self.rights()
                               if name == token and reads and key.startswith(prefix))
                status, body, response = self.ask(token, "GET", f"/metadata?prefix={prefix}")
                self.assertEqual((status, body.decode().splitlines()), (200, shown), (token, prefix))
                self.assertEqual(response.getheader("Metadata-Keys"), str(len(shown)))

    def test_strangers(self):
        """401 for what is no token: words, lines and beginnings of the file, none"""
        for token in ("", "#", "rw", "ro", "node-1", "one rw node-1", "on", "onetwo", "every", "everythingadmin"):
            for verb in ("GET", "PUT", "DELETE"):
                self.assertEqual(self.ask(token, verb, target("mooncake/ram/node-1"), b"v" if verb == "PUT" else None)[0],
                                 401, token)
        self.assertEqual(self.ask("one", "GET", "/nowhere")[0], 404)
        self.assertEqual(self.ask("one", "GET", "/metadata")[0], 400)

    def test_engines(self):
        """An engine needs rw for its name; to be found it needs no more, to find others ro."""
        te.need("http")
        url = f"http://127.0.0.1:{self.server.port}/metadata"

        def peer(name, token):
            made = te.Peer(name=name, metadata=url, options=(f"TE_METADATA_TOKEN={token}",))
            self.addCleanup(made.close)
            return made

        one, other = peer("node-1", "one"), peer("node-10", "both")
        _, remote = one.region(65536)
        index, _ = other.region(2 * 65536)
        other.round_trip(other.open("node-1"), index, 65536, remote, 1)
        self.assertIn("TE_METADATA_TOKEN", one.refused("open", "somebody"))  # which it may not look for
        with self.assertRaises(AssertionError) as caught:
            peer("node-2", "both")
        self.assertIn("may not change this key", str(caught.exception))
        self.assertEqual((one.quit(), other.quit()), (0, 0))
        self.assertEqual(self.ask("admin", "GET", "/metadata?prefix=")[1], b"")

    def test_not_shown(self):
        """no token is in a line of the server"""
        self.ask("wrong", "GET", "/metadata")
        self.assertEqual(self.server.stop(), 0, self.server)
        for word in ("everything", "prodall"):
            self.assertNotIn(word, str(self.server))


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.key, cls.cert = certificate("server")

    def setUp(self):
        self.server = Server(f"--tls-cert={self.cert}", f"--tls-key={self.key}",
                             "--max-connections=64", ca=self.cert)
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def tearDown(self):
        self.assertEqual(self.server.once(ask, "GET", "/health")[:2], (200, b"ok"))
        self.assertEqual(self.server.stop(), 0, self.server)

    def test_verbs(self):
        """values of all sizes, a TTL, a list"""
        for value in (b"", b"{}", os.urandom(10_000_000)):
            self.assertEqual(put(self.client, "k", value)[0], 200)
            self.assertTrue(get(self.client, "k") == (200, value))
        status, _, response = ask(self.client, "PUT", target("k"), b"v", **{"Metadata-TTL": "60"})
        self.assertEqual((status, response.getheader("Metadata-TTL")), (200, "60"))
        self.assertEqual(ask(self.client, "GET", "/metadata?prefix=")[1], b"k\n")

    def test_many_clients(self):
        """30 clients at once"""
        def work(number):
            client = self.server.client()
            for turn in range(5):
                self.assertEqual(put(client, f"{number}", b"%d" % turn)[0], 200)
                self.assertEqual(get(client, f"{number}"), (200, b"%d" % turn))
            client.close()
        in_threads(30, work)

    def test_strangers(self):
        """plain HTTP and garbage get no answer of HTTP; a certificate of nobody known is refused"""
        for data in (b"GET /metadata?key=k HTTP/1.1\r\nHost: h\r\n\r\n", b"\0" * 1000,
                     b"\x16\x03\x01\xff\xff\x01" + b"x" * 70000, b"\x16\x03\x03\x00\x05hello"):
            with Server(f"--tls-cert={self.cert}", f"--tls-key={self.key}", "--idle-timeout=2", ca=self.cert) as server:
                try:
                    with server.raw(data) as sock:
                        self.assertNotIn(b"HTTP/", sock.recv(4096))
                except OSError:
                    pass  # A reset is no answer either.
                self.assertEqual(server.once(get, "k")[0], 404)
        strict = ssl.create_default_context()
        with self.server.raw() as sock, self.assertRaises(ssl.SSLCertVerificationError):
            strict.wrap_socket(sock, server_hostname="localhost")

    def test_versions(self):
        """TLS 1.2 and 1.3, nothing older"""
        for version in ("tls1", "tls1_1", "tls1_2", "tls1_3"):
            done = subprocess.run(
                ["openssl", "s_client", f"-{version}", "-cipher", "ALL:@SECLEVEL=0", "-connect",
                 f"127.0.0.1:{self.server.port}"], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=te.HANG_S, check=False)
            self.assertEqual(b"BEGIN CERTIFICATE" in done.stdout, version in ("tls1_2", "tls1_3"),
                             version)

    def test_silent_clients(self):
        """200 clients that do not finish the handshake, on 64 connections, keep nobody out"""
        socks = [self.server.raw(b"\x16\x03\x01") for _ in range(200)]
        for _ in range(5):
            self.assertEqual(self.server.once(get, "k")[0], 404)
        for sock in socks:
            sock.close()

    def test_token_too(self):
        """both together"""
        path = write("both", TOKEN)
        with Server(f"--tls-cert={self.cert}", f"--tls-key={self.key}", f"--token-file={path}",
                    ca=self.cert) as server:
            self.assertEqual(server.once(get, "k")[0], 401)
            client = server.client()
            self.assertEqual(ask(client, "GET", target("k"), Authorization=f"Bearer {TOKEN}")[0], 404)
            client.close()

    def test_certificates_of_clients(self):
        """nobody but those whose certificate an authority of the server has signed; /health is open; and a token, too"""
        folder = tempfile.mkdtemp(dir=te.Workdir.get())
        for words in (("ca",), ("cert", "engine"), ("cert", "127.0.0.1"), ("ca", "--dir", f"{folder}/other"),
                      ("cert", "engine", "--dir", f"{folder}/other")):
            subprocess.run([te.tool("te_keys"), *words, *(() if "--dir" in words else ("--dir", folder))], check=True,
                           timeout=te.HANG_S, capture_output=True)
        flags = [f"--tls-cert={folder}/127.0.0.1.pem", f"--tls-key={folder}/127.0.0.1.key", f"--tls-client-ca={folder}/ca.pem"]
        with Server(*flags, ca=f"{folder}/ca.pem") as server:
            self.assertEqual(server.once(ask, "GET", "/health")[:2], (200, b"ok"))
            for where in ("/metadata?key=k", "/metrics", "/nowhere"):
                status, body, _ = server.once(ask, "GET", where)
                self.assertEqual(status, 403)
                self.assertIn(b"--tls-client-ca", body)
            self.assertEqual(server.once(put, "k", b"v")[0], 403)

            def as_engine(where, *more, pair=folder):
                env = {"TE_METADATA_CA": f"{folder}/ca.pem", "TE_METADATA_CERT": f"{pair}/engine.pem",
                       "TE_METADATA_KEY": f"{pair}/engine.key"}
                return te.run("te_segment", "list", f"--metadata_server=https://{where}/metadata", *more, env=env)
            self.assertEqual(as_engine(f"127.0.0.1:{server.port}").rc, 0)
            stranger = as_engine(f"127.0.0.1:{server.port}", pair=f"{folder}/other")
            self.assertNotEqual(stranger.rc, 0)
            self.assertIn("403", stranger.error_output())

    def test_stop_with_clients(self):
        """it ends while clients are in the middle of a handshake or a request, and need not leave for that"""
        with Server(f"--tls-cert={self.cert}", f"--tls-key={self.key}", ca=self.cert) as server:
            idle = server.client()
            put(idle, "k", b"v")
            half = server.raw(b"\x16\x03\x01")
            self.assertEqual(server.stop(), 0, server)
            half.close()
            idle.close()


class TlsFiles(unittest.TestCase):
    def test_bad_files(self):
        """a certificate and a key that do not fit, or are none: told, and exit 1"""
        key, cert = certificate("one")
        other, _ = certificate("other")
        locked, locked_cert = certificate("locked", "-passout", "pass:secret")
        rubbish, missing = write("rubbish", "rubbish\n"), os.path.join(te.Workdir.get(), "none")
        for bad_cert, bad_key in ((cert, other), (key, cert), (rubbish, key), (cert, rubbish),
                                  (locked_cert, locked)):
            rc, text = refused(f"--tls-cert={bad_cert}", f"--tls-key={bad_key}")
            self.assertEqual((rc, text.count("\n")), (1, 0), text)
            self.assertIn("--tls-cert and --tls-key must be", text)
        for bad_cert, bad_key, named in ((missing, key, "--tls-cert="), (cert, missing, "--tls-key="),
                                         (cert, write("no", b""), "--tls-key=")):
            rc, text = refused(f"--tls-cert={bad_cert}", f"--tls-key={bad_key}")
            self.assertEqual((rc, named in text), (1, True), text)
        for flag in (f"--tls-cert={cert}", f"--tls-key={key}"):
            rc, text = refused(flag)
            self.assertEqual((rc, "belong together" in text), (2, True), text)


if __name__ == "__main__":
    te.main()
