# SPDX-License-Identifier: Apache-2.0
"""For tests of te_metad: the server as a process, and clients of it."""
import http.client
import socket
import ssl
import threading
import unittest
import urllib.parse

import te_proc as te


def target(key, path="/metadata"):
    return f"{path}?key={urllib.parse.quote(key, safe='')}"


class Server(te.Proc):
    """te_metad on a free port; .port and .host are from the line that it prints. `ca`: over TLS. `prefix`: a command
    that runs it."""

    # No client of a test is cut off as the machine has let it wait.
    patience = "--idle-timeout=86400"

    def __init__(self, *flags, addr="127.0.0.1:0", ca=None, prefix=()):
        self.tls = ssl.create_default_context(cafile=ca) if ca else None
        super().__init__([*prefix, te.tool("te_metad"), f"--addr={addr}", self.patience, *flags])
        match = self.wait_line(r"^te_metad: listening on (\S+):(\d+)$")
        self.host, self.port = match.group(1).strip("[]"), int(match.group(2))

    def client(self, host=None):
        if self.tls:
            return http.client.HTTPSConnection(host or self.host, self.port, context=self.tls,
                                               timeout=te.HANG_S)
        return http.client.HTTPConnection(host or self.host, self.port, timeout=te.HANG_S)

    def once(self, do, *args, host=None):
        """do(client, *args) on a connection of its own."""
        client = self.client(host)
        try:
            return do(client, *args)
        finally:
            client.close()

    def raw(self, data=b""):
        sock = socket.create_connection((self.host, self.port), timeout=te.HANG_S)
        sock.sendall(data)
        return sock


def ask(client, verb, where, body=None, **headers):
    """(status, body, response) of one request on a connection that stays open."""
    client.request(verb, where, body, headers)
    response = client.getresponse()
    return response.status, response.read(), response


def put(client, key, value):
    return ask(client, "PUT", target(key), value, **{"Content-Type": "application/json"})[:2]


def get(client, key):
    return ask(client, "GET", target(key))[:2]


def read_head(sock):
    """One response's status line and headers, and what came after them."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(4096)
        if not part:
            raise AssertionError(f"closed after {data!r}")
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode(), rest


def in_threads(count, work):
    """Runs work(number) in each of `count` threads; the first failure is raised."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class WithServer(unittest.TestCase):
    flags = ()

    def setUp(self):
        self.server = Server(*self.flags)
        self.addCleanup(self.server.close)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def tearDown(self):
        """Whatever the test did, the server works, and stops cleanly."""
        self.assertEqual(self.server.once(ask, "GET", "/health")[:2], (200, b"ok"))
        self.assertEqual(self.server.stop(), 0, self.server)
