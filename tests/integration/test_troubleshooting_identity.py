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
import te_mtls
import te_proc as te
import te_trouble as trouble
from te_auth import TCP_ONLY, lines
from te_trouble import provokes

SIZE = 4096
A, B = lines("a", "b"), lines("b", "a")
OTHER_A = lines("a", "b", a=te_auth.KEYS["z"])
HEADER = os.path.join(te.SRC, "src", "auth", "auth_causes.h")


def causes():
    """Label, meaning and remedy of each cause of a refusal, as the header has them."""
    with open(HEADER, encoding="utf-8") as f:
        text = re.sub(r'"\s*"', "", re.sub(r"\s*\\\n\s*", " ", f.read()))
    return re.findall(r'AUTH_CAUSE\([A-Z_]+, "([^"]+)", "([^"]+)", "([^"]+)"\)', text)


def answers_http(sock):
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def says_nothing(sock):
    while sock.recv(65536):
        pass


class Refused(trouble.Section, te_mtls.Case):
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

    @provokes("... serves only those who prove who they are: set TE_AUTH here as it is there, or have our address in "
              "TE_AUTH_CLASSIC there",
              "... is refused (plain, ... so far): it proves nothing; set TE_AUTH there as it is here, or have its "
              "address in TE_AUTH_CLASSIC here")
    def no_key(self):
        return self.opens(None, B, "serves only those who prove who they are", "is refused (plain")

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
              "... speaks TLS, as TE_AUTH there makes it, and it is off here; ...")
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

    def certified(self, client, server, *words):
        """What both say where an open of one by the other is refused, these words among it."""
        return self.until_told(lambda: client.refused("open", server.segment) + server.error_output(), *words)

    def good(self, *options):
        return self.member("127.0.0.1", *options, *TCP_ONLY)

    @provokes("... refuses our certificate, which ...",
              "... is refused (untrusted, ... so far): no authority of TE_AUTH_CA here has signed what it shows; have one "
              "sign its certificate, or add its authority to TE_AUTH_CA here")
    def certificate_of_another_authority(self):
        stranger = self.member("", *TCP_ONLY, certificate=self.other_authority())
        return self.certified(stranger, self.good(), "refuses our certificate", "is refused (untrusted")

    @provokes("... shows a certificate that is not taken here: ...; see TE_AUTH_CA and TE_AUTH_CRL here, and TE_AUTH_CERT "
              "there")
    def certificate_of_a_server_of_another_authority(self):
        stranger = self.member("", *TCP_ONLY, certificate=self.other_authority())
        return self.certified(self.good(), stranger, "that is not taken here")

    @provokes("... shows the certificate of ..., which is not one of '...': ...")
    def certificate_of_another_name(self):
        return self.certified(self.good(), self.member("b", *TCP_ONLY), "which is not one of")

    @provokes("... does not use pre-shared keys: set TE_AUTH to the same at both ends",
              "... is refused (kind, ... so far): it proves itself in another way; set TE_AUTH to the same at both ends")
    def keys_and_certificates(self):
        return self.certified(self.engine(*TCP_ONLY, keys=A), self.good(), "does not use pre-shared keys", "is refused (kind")

    @provokes("... does not prove who it is: ...")
    def another_program_and_certificates(self):
        client = self.good()
        with trouble.Fake(answers_http) as fake:
            return self.until_told(lambda: client.refused("open", fake.name), "does not prove who it is")

    @provokes("... is refused (expired, ... so far): its certificate is not valid today; give it another one in TE_AUTH_CERT, "
              "or set the clock of one of the hosts")
    def certificate_of_before(self):
        self.expire("old")
        return self.certified(self.member("old", *TCP_ONLY), self.good(), "is refused (expired")

    @provokes("... is refused (revoked, ... so far): its certificate is in the list of TE_AUTH_CRL here; give it another "
              "certificate, if it may come")
    def certificate_that_is_revoked(self):
        bad = self.member("bad", *TCP_ONLY)
        return self.certified(bad, self.good(f"TE_AUTH_CRL={self.revoke('bad')}"), "is refused (revoked")

    @provokes("... is refused (no_crl, ... so far): the list of TE_AUTH_CRL here is not of its authority, or not of today; "
              "give TE_AUTH_CRL here the list that its authority issues now")
    def list_that_is_of_no_use(self):
        server = self.good(f"TE_AUTH_CRL={self.list_of_another_authority()}")
        return self.certified(self.good(), server, "is refused (no_crl")

    @provokes("... is refused (ticket, ... so far): its ticket is outdated, as by files here that were read anew; none "
              "is needed: it asks for another one")
    def ticket_of_before(self):
        a, b = self.good(), self.good(f"TE_AUTH_CRL={self.revoke()}")
        _, remote = b.region(SIZE)
        mine, _ = a.region(SIZE)
        segment = a.open(b.segment)
        self.revoke()
        b.wait_error("the certificates were read anew")
        self.assertEqual(a.move("write", segment, mine, 0, remote, SIZE)[0], te.COMPLETED)
        return self.until_told(b.error_output, "is refused (ticket")

    @provokes("... is refused (denied, ... so far): what it asks for is for others alone; its id, or a name of its "
              "certificate, must be in the memory's or lease's list")
    def memory_of_others(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        client, server = (self.engine(*TCP_ONLY, keys=keys, metadata=metad.url, name=name)
                          for keys, name in ((A, "client"), (B, "server")))
        _, remote = server.ask("region_for", "c", SIZE)
        mine, _ = client.region(SIZE)
        segment = client.open("server")
        self.assertIn("others alone", client.move("write", segment, mine, 0, int(remote), SIZE)[3])
        return self.until_told(server.error_output, "id 'a' is refused (denied")

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

    @provokes("the peer serves only those who prove who they are; ...")
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

    @provokes("the peer cannot prove who it is, and TE_AUTH asks for it; ...")
    def data_older_protocol(self):
        return self.moves_not("cannot prove", A, None, "TE_TCP_NATIVE=0")

    @provokes("it serves only those who prove who they are; set TE_AUTH here as it is there")
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
        self.assertEqual(len(causes()), 13)
        texts = trouble.sections()[self.title]
        for label, meaning, remedy in causes():
            self.assertIn(f"... is refused ({label}, ... so far): {meaning}; {remedy}", texts)


if __name__ == "__main__":
    te.main()
