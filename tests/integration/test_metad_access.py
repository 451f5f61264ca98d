#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_metad: the token that it asks for, and TLS."""
import os
import shutil
import signal
import ssl
import subprocess
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
        files = {"missing": None, "empty": b"", "blank": b" \n\n", "words": b"two words\n",
                 "lines": b"one\ntwo\n", "nul": b"a\0b", "binary": b"\x01\xff", "long": b"x" * 4001,
                 "huge": b"x" * (1 << 20)}
        for name, data in files.items():
            path = os.path.join(te.Workdir.get(), name)
            if data is not None:
                write(name, data)
            rc, text = refused(f"--token-file={path}")
            self.assertEqual((rc, f"--token-file={path}: " in text, text.count("\n")), (1, True, 0),
                             text)
        self.assertEqual(refused("--token-file", te.Workdir.get())[0], 1)


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
