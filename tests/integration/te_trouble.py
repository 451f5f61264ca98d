# SPDX-License-Identifier: Apache-2.0
"""Texts of docs/troubleshooting.md, each compared with what is really said.

What stands there in bold and code, **`like this`**, is a text. A section's test has a case for each: a method,
marked with the texts that it provokes, that returns all that was said. '...' and NAME in a text match anything.
"""
import json
import os
import re
import socket
import threading
import urllib.parse

import te_proc as te

PAGE = os.path.join(te.SRC, "docs", "troubleshooting.md")
FIXED_MIN = 12  # bytes of a fixed part that says which text is meant


def plain(text):
    return " ".join(text.split())


def sections():
    """title -> the texts in it"""
    with open(PAGE, encoding="utf-8") as page:
        parts = re.split(r"^## (.+)$", page.read(), flags=re.M)
    return {title: [plain(t) for t in re.findall(r"\*\*`([^`]+)`[^*]*\*\*", body)]
            for title, body in zip(parts[1::2], parts[2::2])}


def pattern(text):
    """A regular expression for the text."""
    return ".*".join(re.escape(part).replace(r"\ ", r"\s+") for part in re.split(r"\s*(?:\.\.\.|\bNAME\b)\s*", text))


def provokes(*texts):
    """Marks the case of these texts."""
    def mark(method):
        method.texts = texts
        method.pattern = None
        return method
    return mark


def provokes_one_of(*texts):
    """Marks the case of texts of which one is said: which, depends on the versions of other libraries."""
    def mark(method):
        method = provokes(*texts)(method)
        method.pattern = "|".join(map(pattern, texts))
        return method
    return mark


class Section:
    """A section's cases. `elsewhere`: text -> (another test that provokes it, a fixed part of the text that stands
    there). `not_provoked`: text -> why nothing here provokes it."""
    title = None
    elsewhere = {}
    not_provoked = {}

    @classmethod
    def cases(cls):
        """text -> its case"""
        methods = [getattr(cls, name) for name in dir(cls) if hasattr(getattr(cls, name), "texts")]
        return {text: method for method in methods for text in method.texts}

    def test_every_text_is_claimed_once(self):
        claimed = [*self.cases(), *self.elsewhere, *self.not_provoked]
        self.assertCountEqual(claimed, sections()[self.title])

    def test_each_text_is_what_is_said(self):
        said = {}
        for text, case in self.cases().items():
            with self.subTest(text):
                if case not in said:
                    said[case] = case(self)
                self.assertRegex(plain(said[case]), case.pattern or pattern(text))

    def test_other_tests_have_the_rest(self):
        for text, (path, fixed) in self.elsewhere.items():
            with self.subTest(text), open(os.path.join(te.SRC, "tests", path), encoding="utf-8") as f:
                self.assertGreaterEqual(len(fixed), FIXED_MIN)
                self.assertIn(fixed, text)
                self.assertIn(fixed, re.sub(r'"\s*"', "", f.read()))


# ---- Provoking --------------------------------------------------------------------------------------

def said(proc):
    """All that a process has said, once it has ended or been asked to."""
    return proc.output() + "\n" + proc.error_output()


def tool(name, *flags, **more):
    """What a tool says that fails."""
    proc = te.run(name, *flags, **more)
    if proc.rc == 0:
        raise AssertionError(f"it did not fail: {proc}")
    return said(proc)


def engine(*options, metadata=te.P2P, name="127.0.0.1", **more):
    """What is said by an engine that does not start, or starts and ends."""
    with te.Proc([te.Peer.binary(), metadata, name, *options], **more) as proc:
        proc.wait()
    return said(proc)


def peer(*options, **more):
    """An engine that does what it is told."""
    return te.Peer(options=options, **more)


def misuse(*args, **env):
    """What tests/integration/misuse.c says, once for all."""
    key = (args, *sorted(env.items()))
    if key not in misuse.said:
        program = te.compile_program(os.path.join(te.SRC, "tests", "integration", "misuse.c"), "misuse")
        with te.Proc([program, *args], env=env) as proc:
            if proc.wait():
                raise AssertionError(proc)
        misuse.said[key] = said(proc)
    return misuse.said[key]


misuse.said = {}


class Fake:
    """A TCP server that gives each connection to answer(socket), and closes it after that; .name is its host:port."""

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with conn:
                try:
                    self.answer(conn)
                except (OSError, AssertionError):
                    pass  # the client has gone

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class Claims(Fake):
    """A handshake port that says of itself what an engine says, and more; `other`: one of another make."""

    def __init__(self, target, other=False, **more):
        segment = te.descriptor(te.split_address(target.segment))
        if other:
            del segment["te"]
        super().__init__(self._describe)
        self.segment = {**segment, "name": self.name, "server_name": self.name, **more}

    def _describe(self, sock):
        kind, _ = te.read_frame(sock)
        sock.sendall(te.frame(kind, json.dumps(self.segment)))


class Silent:
    """A port at which connections are not answered: the queue of its listener is full."""

    def __enter__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.clients = []
        refused = 0
        while not refused:  # none is ever accepted: in the end the kernel drops what comes
            client = socket.socket()
            client.settimeout(0.1)
            self.clients.append(client)
            refused = client.connect_ex(self.listener.getsockname())
        return self

    def __exit__(self, *unused):
        for sock in (*self.clients, self.listener):
            sock.close()


class Web(Fake):
    """An HTTP server whose reply(method, key, body) gives the status and the text; .url is what engines take."""

    def __init__(self, reply):
        super().__init__(self._respond)
        self.reply = reply
        self.url = f"http://{self.name}/metadata"

    def _respond(self, sock):
        with sock.makefile("rb") as stream:
            method, path, _ = stream.readline().decode().split(" ", 2)
            length = 0
            for line in iter(stream.readline, b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
            key = query.get("key", [path])[0]
            status, text = self.reply(method, key, stream.read(length).decode())
        sock.sendall(f"HTTP/1.1 {status} Said\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())


class Keys(Web):
    """A metadata server whose keys are in .keys, and that answers a method in .refuses with that status and text."""

    def __init__(self):
        self.keys, self.refuses = {}, {}
        super().__init__(self._of_key)

    def _of_key(self, method, key, body):
        if method in self.refuses:
            return self.refuses[method]
        if method == "PUT":
            self.keys[key] = body
        if method == "DELETE":
            self.keys.pop(key, None)
        return (200, self.keys.get(key, "")) if method != "GET" or key in self.keys else (404, "")


def etcd(reply, *options, **env):
    """What an engine says to an etcd whose gateway answers a path under /v3 by reply(path): (status, JSON)."""
    te.need("etcd")
    with Web(lambda _, key, __: reply(key.partition("/v3/")[2])) as server:
        return engine(*options, metadata=f"etcd://{server.name}", name="node", env={"MC_LOG_LEVEL": "INFO", **env})


def redis(reply, *options):
    """What an engine says to a redis that answers everything so; None: nothing."""
    te.need("redis")

    def answer(sock):
        while sock.recv(65536):
            if reply is not None:
                sock.sendall(reply)

    with Fake(answer) as server:
        return engine(*options, metadata=f"redis://{server.name}", name="node")
