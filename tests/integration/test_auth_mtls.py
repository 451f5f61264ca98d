#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""TE_AUTH=mtls between processes: whose certificate lets whom in, on each path, and what both ends are told."""
import json
import os
import shutil
import ssl
import subprocess
import unittest
import urllib.request

import te_auth
import te_mtls
import te_proc as te
import te_rdma
from te_auth import TCP_ONLY

class Good(te_mtls.Case):
    def both(self, *options, **more):
        return [self.member("127.0.0.1", *options, **more) for _ in range(2)]

    def test_over_tcp(self):
        a, b = self.both(*TCP_ONLY)
        self.moves(a, b, 1)
        self.moves(b, a, 2)
        self.assertEqual((self.refusals(a), self.refusals(b)), ({}, {}))

    def test_within_the_host(self):
        a, b = self.both()
        index, remote = b.region(te_auth.SIZE)
        mine, _ = a.region(2 * te_auth.SIZE)
        segment = a.open(b.segment)
        a.round_trip(segment, mine, te_auth.SIZE, remote, 3)
        b.ask("check", index, 0, te_auth.SIZE, 3)
        self.assertIn("host", " ".join(a.ask("explain", "write", segment, mine, remote, 100)))
        self.assertEqual((self.refusals(a), self.refusals(b)), ({}, {}))

    def test_messages_and_probes(self):
        a, b = self.both(*TCP_ONLY)
        a.ask("notify", a.open(b.segment), "name", "text")
        self.assertEqual(b.ask("inbox"), ["1", "name=text"])
        a.ask("probe", b.segment)

    def test_a_descriptor_of_many_buffers(self):
        a, b = self.both(*TCP_ONLY)
        b.ask("regions", 12000, 64)
        a.open(b.segment)

    def test_with_a_store_by_the_names_of_segments(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        a, b = (self.member(n, *TCP_ONLY, metadata=metad.url, name=n) for n in ("decode-0", "prefill-0"))
        self.moves(a, b)
        self.assertEqual((self.refusals(a), self.refusals(b)), ({}, {}))

    def test_tools_ask_engines_by_the_names_of_segments(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        a = self.member("a", *TCP_ONLY, metadata=metad.url, name="a")
        a.region(te_auth.SIZE)
        tool = {"TE_AUTH": "mtls", "TE_AUTH_CA": self.at("ca.pem"), **dict(o.split("=") for o in self.certificate("b"))}
        listed = te.run("te_segment", "list", f"--metadata_server={metad.url}", env=tool)
        self.assertRegex(listed.output(), r"(?m)^a\b.*\byes\b")
        refused = te.run("te_segment", "unregister", "a", f"--metadata_server={metad.url}", env=tool)
        self.assertNotEqual(refused.rc, 0)
        info = te.run("te_info", f"--metadata_server={metad.url}", "--segment=a", env=tool)
        self.assertEqual(info.rc, 0, info)
        b = self.member("b", *TCP_ONLY, metadata=metad.url, name="b")
        b.open("ram/a")
        self.moves(b, a)

    def over_rdma(self, *names, **more):
        """A round trip between two engines with certificates of these names."""
        fabric = te_rdma.Fabric(nics=1)
        self.addCleanup(fabric.remove)
        a, b = (self.member(name, "transport=rdma", *fabric.options(side), env=fabric.environment(side),
                            **{key: value if key != "name" else name for key, value in more.items()})
                for side, name in zip("ab", names))
        index, remote = b.region(te_auth.SIZE)
        mine, _ = a.region(2 * te_auth.SIZE)
        segment = a.open(b.segment)
        a.round_trip(segment, mine, te_auth.SIZE, remote, 6)
        b.ask("check", index, 0, te_auth.SIZE, 6)
        self.assertGreaterEqual(sum(nic["bytes"] for nic in fabric.stats().values()), 2 * te_auth.SIZE)
        self.moves(b, a, 7)
        self.assertEqual((self.refusals(a), self.refusals(b)), ({}, {}))

    def test_over_rdma(self):
        self.over_rdma("127.0.0.1", "127.0.0.1")

    def test_over_rdma_with_a_store(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        self.over_rdma("decode-0", "prefill-0", metadata=metad.url, name=None)

    def test_the_host_of_a_name_is_enough(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        a, b = (self.member("127.0.0.1", *TCP_ONLY, metadata=metad.url, name=f"127.0.0.1:{n}") for n in (1111, 2222))
        self.moves(a, b)

    def test_a_certificate_of_several_names(self):
        self.make("cert", "b,localhost,127.0.0.1")
        a, b = self.member("127.0.0.1", *TCP_ONLY), self.member("b", *TCP_ONLY)
        self.moves(a, b)
        port = b.segment.rsplit(":", 1)[1]
        a.open(f"localhost:{port}")

    def test_an_address_that_proves_nothing(self):
        a = self.member("127.0.0.1", "TE_AUTH_CLASSIC=127.0.0.1", *TCP_ONLY)
        b = self.engine(*TCP_ONLY)
        self.moves(a, b)
        self.moves(b, a, 2)


class Bad(te_mtls.Case):
    """Who does not come in; nothing is moved, and each side is told why."""

    def refused(self, client, server, at_client, cause, at_server):
        self.assertIn(at_client, client.refused("open", server.segment))
        if cause:
            self.until_refused(server, cause)
            server.wait_error(at_server)

    def good(self, *options):
        return self.member("127.0.0.1", *options, *TCP_ONLY)

    def test_a_client_of_another_authority(self):
        stranger = self.member("", *TCP_ONLY, certificate=self.other_authority())
        self.refused(stranger, self.good(), "refuses our certificate, which is signed by no authority of its TE_AUTH_CA",
                     "untrusted", "no authority of TE_AUTH_CA here has signed what it shows")

    def test_a_server_of_another_authority(self):
        stranger = self.member("", *TCP_ONLY, certificate=self.other_authority())
        self.refused(self.good(), stranger, "shows a certificate that is not taken here: ", None, None)

    def test_a_server_of_another_name(self):
        other = self.member("10.9.8.7", *TCP_ONLY)
        self.refused(self.good(), other, "shows the certificate of /CN=10.9.8.7, which is not one of '127.0.0.1'",
                     None, None)

    def test_a_store_that_leads_to_another_engine(self):
        """Whoever can write records can send nobody to another engine of the same authority."""
        metad = te.Metad()
        self.addCleanup(metad.close)
        a = self.member("a", *TCP_ONLY, metadata=metad.url, name="a")
        thief = self.member("thief", *TCP_ONLY, metadata=metad.url, name="b")
        self.refused(a, thief, "shows the certificate of /CN=thief, which is not one of 'b'", None, None)

    def test_a_store_with_the_record_of_another_engine(self):
        """The same, where the thief is what it says that it is, and the records of `b` are copies of its own."""
        metad = te.Metad()
        self.addCleanup(metad.close)
        a, thief = (self.member(n, *TCP_ONLY, metadata=metad.url, name=n) for n in ("a", "thief"))
        a.open("thief")
        for kind in ("ram", "rpc_meta"):
            with urllib.request.urlopen(f"{metad.url}?key=mooncake/{kind}/thief", timeout=te.HANG_S) as record:
                te.put(f"{metad.url}?key=mooncake/{kind}/b", record.read())
        self.assertIn("must be of that name", a.refused("open", "b"))

    def test_a_store_with_a_name_that_nobody_has_yet(self):
        """A record without buffers, of which no engine is up, must not lead to an engine of another name later."""
        metad = te.Metad()
        self.addCleanup(metad.close)
        a = self.member("a", *TCP_ONLY, metadata=metad.url, name="a")
        record = {"name": "thief", "protocol": "tcp", "buffers": [], "devices": [], "te": {"incarnation": "0123456789abcdef", "version": 1}}
        te.put(f"{metad.url}?key=mooncake/ram/b", json.dumps(record).encode())
        self.assertIn("must be of that name", a.refused("open", "b"))

    def test_one_that_says_that_it_were_another(self):
        """Over RDMA work goes by connections that the other side has asked for, so it must be who it says."""
        server = self.good()
        with self.talk(server, "127.0.0.1") as sock:
            self.assertNotIn("your certificate", self.connect(sock, "127.0.0.1:15000@mlx5_0"))
        with self.talk(server, "127.0.0.1") as sock:
            self.assertIn("your certificate is not of the name", self.connect(sock, "10.9.8.7:15000@mlx5_0"))

    def connect(self, sock, path):
        """The answer to a message of RDMA's that comes from that path."""
        te_mtls.ticket(sock)
        body = {"local_nic_path": path, "peer_nic_path": "", "qp_num": [1], "reply_msg": ""}
        sock.sendall(te.frame(0, json.dumps(body)))
        return te.read_frame(sock)[1].decode()

    def test_a_pre_shared_key(self):
        keys = self.engine(*TCP_ONLY, keys=te_auth.lines("a", "b"))
        server = self.good()
        self.refused(keys, server, "set TE_AUTH to the same at both ends", "kind", "it proves itself in another way")
        self.assertIn("TE_AUTH is another one there", server.refused("open", keys.segment))

    def test_nothing_at_all(self):
        server = self.good()
        self.refused(self.engine(*TCP_ONLY), server, "serves only those who", "plain", "it proves nothing")
        self.assertIn("TE_AUTH", server.refused("open", self.engine(*TCP_ONLY).segment))

    def test_one_that_is_not_valid_any_more(self):
        self.expire("old")
        old = self.member("old", *TCP_ONLY)
        self.refused(old, self.good(), "refuses our certificate, which is not valid today", "expired",
                     "its certificate is not valid today")

    def test_one_that_is_revoked(self):
        bad = self.member("bad,127.0.0.1", *TCP_ONLY)
        server = self.good(f"TE_AUTH_CRL={self.revoke('bad')}")
        self.refused(bad, server, "refuses our certificate, which is in its list of TE_AUTH_CRL", "revoked",
                     "its certificate is in the list of TE_AUTH_CRL here")
        self.assertIn("certificate revoked", server.refused("open", bad.segment))
        self.moves(self.good(), server)

    def test_a_list_of_another_authority(self):
        path = self.list_of_another_authority()
        server = self.good(f"TE_AUTH_CRL={path}")
        self.refused(self.good(), server, "refuses our certificate, which", "no_crl", "the list of TE_AUTH_CRL here")


class Changes(te_mtls.Case):
    """Files that change while engines run."""

    def pair(self, *options):
        a = self.member("127.0.0.1", *options)
        return a, self.member("b,127.0.0.1", f"TE_AUTH_CRL={self.revoke()}", *options)

    def setUp(self):
        super().setUp()
        self.make("cert", "127.0.0.1")
        self.make("cert", "b,127.0.0.1")

    def test_a_ticket_of_before(self):
        """It is refused, and another one asked for; requests do not fail for it."""
        a, b = self.pair(*TCP_ONLY)
        index, remote = b.region(te_auth.SIZE)
        mine, _ = a.region(2 * te_auth.SIZE)
        segment = a.open(b.segment)
        self.revoke()
        b.wait_error("the certificates were read anew")
        a.round_trip(segment, mine, te_auth.SIZE, remote, 4)
        b.ask("check", index, 0, te_auth.SIZE, 4)
        self.until_refused(b, "ticket")

    def cut_off(self, a, b, revoked, by):
        """A segment is open when the list of `by` changes; nothing is moved any more by a new connection."""
        mine, _ = a.region(te_auth.SIZE)
        index, remote = b.region(te_auth.SIZE)
        segment = a.open(b.segment)
        b.ask("fill", index, 0, te_auth.SIZE, 5)
        self.revoke(revoked)
        by.wait_error("the certificates were read anew")
        state, error, moved, _ = a.move("write", segment, mine, 0, remote, te_auth.SIZE)
        self.assertNotEqual(state, te.COMPLETED)
        self.assertEqual((moved, error != 0), (0, True))
        b.ask("check", index, 0, te_auth.SIZE, 5)

    def test_who_is_revoked_cannot_open_another_connection(self):
        a, b = self.pair(*TCP_ONLY)
        self.cut_off(a, b, "127.0.0.1", b)
        self.until_refused(b, "revoked")

    def test_a_server_that_is_revoked_keeps_nobody(self):
        """Whoever has a ticket of a server that he would not take any more does not use it."""
        a = self.member("127.0.0.1", f"TE_AUTH_CRL={self.revoke()}", *TCP_ONLY)
        self.cut_off(a, self.member("b,127.0.0.1", *TCP_ONLY), "b", a)

    def late(self, b, times):
        """Names of tickets of handshakes of `c` that began before the list was read the so many-th time."""
        begun = []  # by the old list, and then by the new one; each has a second
        te.until(lambda: begun.append(self.begin(b, "c")) or
                 b.error_output().count("the certificates were read anew") >= times, "the list is read")
        names = []
        for handshake in reversed(begun):
            with handshake[0]:
                try:
                    names.append(self.finish(*handshake))
                except (OSError, ssl.SSLError):
                    pass
        return names

    def test_a_handshake_that_takes_until_the_list_is_read(self):
        """Who was looked at by the old list gets a ticket of that time, which is of no use."""
        self.certificate("c")
        b = self.member("b,127.0.0.1", f"TE_AUTH_CRL={self.revoke()}", *TCP_ONLY)
        self.revoke("c")
        late = self.late(b, 1)
        for times in range(2, 20):  # a busy host may have been too slow for all of them
            if late:
                break
            self.unrevoke()
            b.wait_times("the certificates were read anew", 2 * times - 2)
            self.revoke("c")
            late = self.late(b, 2 * times - 1)
        self.assertTrue(late)
        with self.talk(b, "127.0.0.1") as sock:
            good = te_mtls.ticket(sock)
        self.assertNotIn(good.split(".")[0], [name.split(".")[0] for name in late])

    def begin(self, server, whose):
        """A handshake of which the ClientHello was sent, and the answer read."""
        sock = te_mtls.connect(server)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context(whose).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
        incoming.write(sock.recv(65536))
        return sock, incoming, outgoing, tls

    def finish(self, sock, incoming, outgoing, tls):
        """The name of the ticket that comes at its end."""
        got = b""
        while len(got) < te_mtls.TICKET:
            try:
                tls.do_handshake()
                sock.sendall(outgoing.read())
                got += tls.read(te_mtls.TICKET - len(got))
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                more = sock.recv(65536)
                if not more:
                    raise OSError("it was closed") from None
                incoming.write(more)
        return te_mtls.name(got)

    def test_a_file_that_is_broken_changes_nothing(self):
        a, b = self.pair(*TCP_ONLY)
        with open(self.at("b.pem.new"), "w", encoding="ascii") as f:
            f.write("no certificate")
        os.rename(self.at("b.pem.new"), self.at("b.pem"))
        b.wait_error("the keys of before stay in use")
        self.moves(a, b)

    def test_a_certificate_of_another_authority_of_the_list(self):
        """A change of the authority: both are in the list for a time."""
        a, b = self.pair(*TCP_ONLY)
        other = self.at("other")
        os.mkdir(other, 0o700)
        self.make("ca", folder=other)
        new = self.member("", *TCP_ONLY, certificate=self.certificate("127.0.0.1", other))
        self.assertIn("refuses our certificate", new.refused("open", a.segment))
        with open(self.at("ca.pem"), encoding="ascii") as old, open(f"{other}/ca.pem", encoding="ascii") as more:
            both = old.read() + more.read()
        with open(self.at("both.pem"), "w", encoding="ascii") as f:
            f.write(both)
        os.rename(self.at("both.pem"), self.at("ca.pem"))
        for peer in (a, b, new):
            peer.wait_error("the certificates were read anew")
        self.moves(new, a)
        self.moves(a, new, 2)


class Start(te_mtls.Case):
    def fails(self, **env):
        got = subprocess.run([te.Peer.binary(), te.P2P, "127.0.0.1"], env={**os.environ, "TE_AUTH": "mtls", **env},
                             capture_output=True, text=True, check=False, timeout=te.HANG_S,
                             stdin=subprocess.DEVNULL)
        self.assertNotEqual(got.returncode, 0)
        return got.stderr

    def test_what_cannot_be_is_an_error(self):
        self.make("cert", "a")
        self.make("cert", "b")
        good = {f"TE_AUTH_{k.upper()}": self.at(f) for k, f in (("ca", "ca.pem"), ("cert", "a.pem"), ("key", "a.key"))}
        with open(self.at("text"), "w", encoding="ascii") as f:
            f.write("no certificate\n")
        shutil.copy(self.at("a.key"), self.at("open.key"))
        os.chmod(self.at("open.key"), 0o644)
        subprocess.run(["openssl", "ec", "-in", self.at("a.key"), "-aes256", "-passout", "pass:word", "-out",
                        self.at("locked.key")], check=True, capture_output=True, timeout=te.HANG_S)
        os.chmod(self.at("locked.key"), 0o600)
        for option in good:
            self.assertIn(f"one of TE_AUTH_CA, TE_AUTH_CERT and TE_AUTH_KEY is empty", self.fails(**{**good, option: ""}))
            self.assertIn("/nonexistent cannot be looked at", self.fails(**{**good, option: "/nonexistent"}))
        text = self.at("text")
        self.assertIn("(TE_AUTH_CA)", self.fails(**{**good, "TE_AUTH_CA": text}))
        self.assertIn("(TE_AUTH_CERT)", self.fails(**{**good, "TE_AUTH_CERT": text}))
        self.assertIn("(TE_AUTH_CRL)", self.fails(**{**good, "TE_AUTH_CRL": text}))
        os.chmod(text, 0o600)
        self.assertIn("no private key in PEM without a passphrase", self.fails(**{**good, "TE_AUTH_KEY": text}))
        locked = self.at("locked.key")
        self.assertIn("no private key in PEM without a passphrase", self.fails(**{**good, "TE_AUTH_KEY": locked}))
        self.assertIn("give TE_AUTH_KEY and TE_AUTH_CERT one pair", self.fails(**{**good, "TE_AUTH_KEY": self.at("b.key")}))
        self.assertIn("chmod 600", self.fails(**{**good, "TE_AUTH_KEY": self.at("open.key")}))

    def test_whose_certificate_it_is_is_told(self):
        self.member("a", *TCP_ONLY).wait_error("TE_AUTH=mtls: this engine is /CN=a; whom the authority of")


if __name__ == "__main__":
    unittest.main()
