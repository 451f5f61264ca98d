#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""docs/troubleshooting.md: what both sides are told where TE_AUTH refuses a peer."""
import os
import re
import socket
import ssl
import unittest

import te_auth
import te_proc as te
import te_trouble as trouble
from te_auth import TCP_ONLY, lines
from te_trouble import provokes

SIZE = 4096
A, B = lines("a", "b"), lines("b", "a")
OTHER_A = lines("a", "b", a=te_auth.KEYS["z"])
HEADER = os.path.join(te.SRC, "src", "auth", "auth.h")


def causes():
    """Label, meaning and remedy of each cause of a refusal, as the header has them."""
    with open(HEADER, encoding="utf-8") as f:
        text = re.sub(r'"\s*"', "", re.sub(r"\s*\\\n\s*", " ", f.read()))
    return re.findall(r'AUTH_CAUSE\([A-Z]+, "([^"]+)", "([^"]+)", "([^"]+)"\)', text)


def answers_http(sock):
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def says_nothing(sock):
    while sock.recv(65536):
        pass


class Refused(trouble.Section, te_auth.Case):
    title = "A peer is refused"

    def until_told(self, ask, *words):
        """All that ask() returns, again and again until all of these are in it: a busy host may be late instead."""
        told = []
        te.until(lambda: told.append(ask()) or all(w in " ".join(told) for w in words), lambda: f"{words} in {told}")
        return " ".join(told)

    def opens(self, ours, theirs, *words):
        """What both say where an open is refused, these words among it."""
        client, server = (self.engine(*TCP_ONLY, keys=keys) for keys in (ours, theirs))
        return self.until_told(lambda: client.refused("open", server.segment) + server.error_output(), *words)

    @provokes("... serves only those who have a key: set TE_AUTH=psk and TE_AUTH_KEYS here, or have our address in "
              "TE_AUTH_CLASSIC there",
              "... is refused (plain, ... so far): it shows no key; set TE_AUTH=psk there, or have its address in "
              "TE_AUTH_CLASSIC here")
    def no_key(self):
        return self.opens(None, B, "serves only those who have a key", "is refused (plain")

    @provokes("... refuses our id '...', which is not in its key file: add its line there (TE_AUTH_KEYS)",
              "... is refused (id, ... so far): its id is not in the key file here; add its line to the file of "
              "TE_AUTH_KEYS here")
    def unknown_id(self):
        return self.opens(lines("c", "b"), B, "which is not in its key file", "is refused (id")

    @provokes("... has another key for our id '...': give the id the same key in both files of TE_AUTH_KEYS",
              "... is refused (key, ... so far): its key is another one than that of its id here; give the id the same "
              "key in both files of TE_AUTH_KEYS")
    def another_key(self):
        return self.opens(OTHER_A, B, "has another key for our id", "is refused (key")

    @provokes("... refuses our id '...', which is its own, or is this engine itself: ...",
              "... is refused (own, ... so far): it shows the id of this engine, or is this engine itself; give each "
              "side an id of its own, or repeat the first line of the key file for a group that shares one")
    def its_own_id(self):
        return self.opens(lines("b"), B, "which is its own", "is refused (own")

    @provokes("... closes the connection when it is asked for TLS: ...",
              "... speaks TLS, as TE_AUTH=psk there makes it, and TE_AUTH is off here; ...")
    def off_there(self):
        client, server = self.engine(*TCP_ONLY, keys=A), self.engine(*TCP_ONLY)
        return self.until_told(lambda: client.refused("open", server.segment) + server.error_output(),
                               "closes the connection when it is asked for TLS", "speaks TLS")

    def at_fake(self, answer, words, *options):
        """What an open of a segment says, these words among it, where another program answers."""
        client = self.engine(*TCP_ONLY, *options, keys=A)
        with trouble.Fake(answer) as fake:
            return self.until_told(lambda: client.refused("open", fake.name), words)

    @provokes("... does not prove that it has our key: ...")
    def another_program(self):
        return self.at_fake(answers_http, "does not prove that it has our key")

    @provokes("...: no progress in time while proving who we are; ...")
    def nothing_is_said(self):
        return self.at_fake(says_nothing, "no progress in time while proving who we are", "MC_HANDSHAKE_CONNECT_TIMEOUT=3")

    def moves_not(self, words, ours, theirs, *options, explain=False):
        """What is said, these words among it, of a request to a segment that a metadata server tells of."""
        metad = te.Metad()
        self.addCleanup(metad.close)
        tcp = () if explain else TCP_ONLY
        client = self.engine(*tcp, keys=ours, metadata=metad.url, name="client")
        server = self.engine(*tcp, *options, keys=theirs, metadata=metad.url, name="server")
        _, remote = server.region(SIZE)
        mine, _ = client.region(SIZE)
        segment = client.open("server")
        if explain:
            return self.until_told(lambda: " ".join(client.ask("explain", "write", segment, mine, remote, SIZE)), words)
        return self.until_told(lambda: client.move("write", segment, mine, 0, remote, SIZE)[3] + client.error_output(), words)

    @provokes("the peer serves only those who have a key; ...")
    def data_no_key(self):
        return self.moves_not("serves only", None, B)

    @provokes("the peer proves nothing, since TE_AUTH is off there; ...")
    def data_off_there(self):
        return self.moves_not("proves nothing", A, None)

    @provokes("our id is not in the key file of the peer; add its line there")
    def data_unknown_id(self):
        return self.moves_not("not in the key file", lines("c", "b"), B)

    @provokes("the peer has another key for our id; ...")
    def data_another_key(self):
        return self.moves_not("has another key", OTHER_A, B)

    @provokes("our id is the peer's own; ...")
    def data_its_own_id(self):
        return self.moves_not("the peer's own", lines("b"), B)

    @provokes("the peer cannot prove who it is, and TE_AUTH=psk asks for it; ...")
    def data_older_protocol(self):
        return self.moves_not("cannot prove", A, None, "TE_TCP_NATIVE=0")

    @provokes("it serves only those who have a key; set TE_AUTH=psk and TE_AUTH_KEYS here")
    def host_no_key(self):
        return self.moves_not("serves only", None, B, explain=True)

    @provokes("process ... does not prove who it is: TE_AUTH is off there; ...")
    def host_off_there(self):
        return self.moves_not("does not prove", A, None, explain=True)

    @provokes("process ... refuses our id '...' (...): see its log")
    def host_unknown_id(self):
        return self.moves_not("refuses our id", lines("c", "b"), B, explain=True)

    @provokes("process ... has another key for our id '...', or is another engine")
    def host_another_key(self):
        return self.moves_not("has another key", OTHER_A, B, explain=True)

    @provokes("... is refused (malformed, ... so far): what it sends is no proof; look for a program of another kind that "
              "connects here")
    def malformed(self):
        server = self.engine(*TCP_ONLY, keys=B)
        context = ssl.create_default_context()

        def come():
            with socket.create_connection(te.split_address(server.segment), timeout=te.HANG_S) as plain:
                with self.assertRaises(OSError):
                    context.wrap_socket(plain, server_hostname="localhost")
            return server.error_output()

        return self.until_told(come, "is refused (malformed")

    @provokes("... is refused (late, ... so far): it has not proved itself in 1 s; look for a host that is overloaded")
    def late(self):
        server = self.engine(*TCP_ONLY, keys=B)
        with socket.create_connection(te.split_address(server.segment), timeout=te.HANG_S) as plain:
            self.assertEqual(plain.recv(1), b"")
        server.wait_error("is refused (late")
        return server.error_output()

    @provokes("the keys of before stay in use, until ... is mended: ...",
              "the keys of before stay in use, until key file ... is put back: ...")
    def a_file_that_is_broken_and_one_that_is_gone(self):
        server = self.engine(*TCP_ONLY, keys=B)
        self.change(server, "broken\n", "is mended")
        os.unlink(os.path.join(self.folder, server.key_file))
        server.wait_error("is put back")
        return server.error_output()

    def test_each_cause_has_a_text(self):
        self.assertEqual(len(causes()), 6)
        texts = trouble.sections()[self.title]
        for label, meaning, remedy in causes():
            self.assertIn(f"... is refused ({label}, ... so far): {meaning}; {remedy}", texts)


if __name__ == "__main__":
    te.main()
