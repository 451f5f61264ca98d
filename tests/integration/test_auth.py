#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=600
"""TE_AUTH between processes: who comes in on each path, who does not, and what both ends are told."""
import base64
import hmac
import os
import platform
import resource
import socket
import struct
import subprocess
import time

import te_auth
import te_prom
import te_proc as te
from te_auth import TCP_ONLY, lines

A, B = lines("a", "b"), lines("b", "a")
USES = (b"te psk 1 handshake port\1", b"te psk 1 data port\1", b"te psk 1 same host\1")


class RightKey(te_auth.Case):
    def both(self, *options, **more):
        return self.engine(*options, keys=A, **more), self.engine(*options, keys=B, **more)

    def test_over_tcp(self):
        a, b = self.both(*TCP_ONLY)
        self.moves(a, b, 1)
        self.moves(b, a, 2)
        self.assertEqual((self.refusals(a), self.refusals(b)), ({}, {}))

    def test_over_tcp_with_checksums(self):
        a, b = self.both("TE_TCP_CRC32C=1", *TCP_ONLY)
        self.moves(a, b)

    def test_within_the_host(self):
        a, b = self.both()
        index, remote = b.region(te_auth.SIZE)
        mine, _ = a.region(2 * te_auth.SIZE)
        segment = a.open(b.segment)
        a.round_trip(segment, mine, te_auth.SIZE, remote, 3)
        b.ask("check", index, 0, te_auth.SIZE, 3)
        told = " ".join(a.ask("explain", "write", segment, mine, remote, 100))
        self.assertIn("host", told)

    def test_messages_and_probes(self):
        a, b = self.both(*TCP_ONLY)
        a.ask("notify", a.open(b.segment), "name", "text")
        self.assertEqual(b.ask("inbox"), ["1", "name=text"])
        a.ask("probe", b.segment)

    def test_a_group_shares_one_id(self):
        group = lines("x", "x")
        a, b = self.engine(*TCP_ONLY, keys=group), self.engine(*TCP_ONLY, keys=group)
        self.moves(a, b)

    def test_with_a_store(self):
        metad = te.Metad()
        self.addCleanup(metad.close)
        a, b = (self.engine(*TCP_ONLY, keys=k, metadata=metad.url, name=n) for k, n in ((A, "a"), (B, "b")))
        self.moves(a, b)

    def test_a_descriptor_of_many_buffers(self):
        a, b = self.both(*TCP_ONLY)
        b.ask("regions", 12000, 64)  # pages of more bytes than are sent at once
        a.open(b.segment)


class WrongKey(te_auth.Case):
    def refused(self, ours, theirs, at_client, cause, at_server):
        """An open from one to the other that fails; what each is told, and what is counted."""
        client, server = (self.engine(*TCP_ONLY, keys=k) for k in (ours, theirs))
        self.assertIn(at_client, client.refused("open", server.segment))
        if cause:
            self.until_refused(server, cause)
        if at_server:
            server.wait_error(at_server)

    def test_another_key(self):
        self.refused(lines("a", "b", a=te_auth.KEYS["z"]), B, "another key for our id 'a'", "key", "the same key in both")

    def test_an_unknown_id(self):
        self.refused(lines("c", "b"), B, "its key file: add its line there", "id", "add its line to the file")

    def test_the_id_of_the_server(self):
        self.refused(lines("b"), B, "repeat the first line", "own", "repeat the first line")

    def test_no_key(self):
        self.refused(None, B, "set TE_AUTH here as it is there", "plain", "set TE_AUTH there as it is here")

    def test_no_key_at_the_server(self):
        self.refused(A, None, "TE_AUTH is off there", None, "set it here as it is there")

    def test_the_log_is_bounded(self):
        client, server = self.engine(*TCP_ONLY), self.engine(*TCP_ONLY, keys=B)
        begun = time.monotonic()
        for _ in range(20):
            client.refused("open", server.segment)
        self.until_refused(server, "plain", 20)
        server.wait_error("is refused (plain")
        self.assertLessEqual(server.error_output().count("is refused (plain"), 1 + (time.monotonic() - begun) // 10)


class DataPort(te_auth.Case):
    """Through a store the descriptors are there for all; the data port is what keeps them out."""

    def setUp(self):
        super().setUp()
        self.metad = te.Metad()
        self.addCleanup(self.metad.close)

    def pair(self, ours, theirs, *options, server_options=()):
        return (self.engine(*TCP_ONLY, *options, keys=ours, metadata=self.metad.url, name="client"),
                self.engine(*TCP_ONLY, *server_options, keys=theirs, metadata=self.metad.url, name="server"))

    def refused(self, ours, theirs, at_client, cause, *options):
        client, server = self.pair(ours, theirs, *options)
        self.fails_to_move(client, server, at_client)
        if cause:
            self.until_refused(server, cause)
            server.wait_error(f"is refused ({cause}")

    def test_another_key(self):
        self.refused(lines("a", "b", a=te_auth.KEYS["z"]), B, "the peer has another key for our id", None)

    def test_an_unknown_id(self):
        self.refused(lines("c", "b"), B, "our id is not in the key file of the peer", "id")

    def test_the_id_of_the_server(self):
        self.refused(lines("b"), B, "our id is the peer's own", "own")

    def test_no_key(self):
        self.refused(None, B, "set TE_AUTH here as it is there", "plain")

    def test_no_key_at_the_server(self):
        self.refused(A, None, "TE_AUTH is off there", None)

    def test_no_key_and_an_older_protocol(self):
        self.refused(None, B, "", "plain", "TE_TCP_NATIVE=0")

    def test_a_server_with_an_older_protocol(self):
        client, server = self.pair(A, None, server_options=("TE_TCP_NATIVE=0",))
        self.fails_to_move(client, server, "cannot prove who it is")

    def test_an_address_that_needs_no_proof(self):
        client, server = self.pair(A, None, "TE_AUTH_CLASSIC=127.0.0.0/8", server_options=("TE_TCP_NATIVE=0",))
        self.moves(client, server, 1)
        client, server = self.pair(None, B, server_options=("TE_AUTH_CLASSIC=127.0.0.1",))
        self.moves(client, server, 2)

    def test_rotation(self):
        client, server = self.pair(A, B)
        self.moves(client, server, 1)
        self.change(server, lines("y", "x", "a"), "was read anew: 3 ids")
        self.change(client, lines("x", "y"), "was read anew: 2 ids")
        client.ask("close", client.open(server.segment))
        self.moves(client, server, 2)
        self.assertEqual(self.refusals(server), {})
        self.change(server, "broken\n", "the keys of before stay in use")
        self.moves(client, server, 3)


class Classic(te_auth.Case):
    """Programs that speak the protocols by hand."""

    def setUp(self):
        super().setUp()
        self.server = self.engine(*TCP_ONLY, keys=B)
        other = self.engine(*TCP_ONLY, keys=A)
        self.index, self.remote = self.server.region(4096)
        self.server.ask("fill", self.index, 0, 4096, 5)
        self.moves(other, self.server, 4)
        pid = self.server.pid
        ports = {row.split()[1].split(":")[1] for table in ("tcp", "tcp6") if os.path.exists(f"/proc/{pid}/net/{table}")
                 for row in open(f"/proc/{pid}/net/{table}", encoding="ascii").readlines()[1:]
                 if row.split()[3] == "0A" and f"socket:[{row.split()[9]}]" in self.inodes(pid)}
        handshake = te.split_address(self.server.segment)[1]
        metrics = te_prom.address_of(self.server)[1]
        self.data = [p for p in (int(text, 16) for text in ports) if p not in (handshake, metrics)]
        self.assertEqual(len(self.data), 1)

    @staticmethod
    def inodes(pid):
        return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}

    def says(self, port, data):
        """All that the server says to these bytes before it closes."""
        got = b""
        with socket.create_connection(("127.0.0.1", port), timeout=te.HANG_S) as s:
            s.sendall(data)
            try:
                while part := s.recv(65536):
                    got += part
            except ConnectionResetError:
                pass
        return got

    def unharmed(self):
        self.server.ask("check", self.index, 0, 4096, 5)

    def test_versions_1_and_2(self):
        for version in (1, 2):
            for opcode in (0, 1):
                got = self.says(self.data[0], te_auth.classic(opcode, self.remote, 4096, version) + b"x" * 4096 * opcode)
                self.assertLessEqual(len(got), 8)
                if got:
                    self.assertEqual(struct.unpack("<II", got), (1, 0x4D435456))
        self.until_refused(self.server, "plain", 4)
        self.unharmed()

    def test_a_native_greeting_without_a_proof(self):
        hello = struct.pack("<QHHHHQQQQ", te_auth.HELLO_MAGIC, 2, 0, 0, 0, 1, 2, 3, 0)
        read = struct.pack("<BBHIQQII", 1, 0, 1, 0, 1, 0, 0, 0) + struct.pack("<QII", self.remote, 4096, 0)
        got = self.says(self.data[0], hello + read)
        self.assertEqual(len(got), 32)
        self.assertEqual(struct.unpack_from("<II", got, 24), (5, 0))
        self.unharmed()

    def test_a_proof_that_is_made_up(self):
        option = struct.pack("<HH", 0x8001, 33) + os.urandom(32) + b"a" + bytes(3)
        hello = struct.pack("<QHHHHQQQQ", te_auth.HELLO_MAGIC, 2, 0, len(option) // 8, 0, 1, 2, 3, 0) + option
        self.assertEqual(len(self.says(self.data[0], hello)), 32)  # the target is another instance

    def test_requests_of_the_handshake_port(self):
        port = te.split_address(self.server.segment)[1]
        for kind in (te.CONNECTION, te.METADATA, te.NOTIFY, te.PROBE):
            got = self.says(port, te.frame(kind, '{"name":"n","notify_msg":"m"}'))
            self.assertEqual(got[:2], b"\x15\x03")
            self.assertEqual(len(got), 14)
        self.until_refused(self.server, "plain", 4)
        self.assertEqual(self.server.ask("inbox"), ["0"])

    def test_an_address_that_needs_no_proof_is_never_late_with_it(self):
        server = self.engine("TE_AUTH_CLASSIC=127.0.0.1", *TCP_ONLY, keys=B)
        with socket.create_connection(te.split_address(server.segment), timeout=te.HANG_S) as s:
            begin = time.monotonic()
            self.assertEqual(s.recv(1), b"")
            self.assertGreater(time.monotonic() - begin, 3)  # as with TE_AUTH=off
        self.assertEqual(self.refusals(server), {})

    def test_one_that_says_nothing(self):
        port = te.split_address(self.server.segment)[1]
        with socket.create_connection(("127.0.0.1", port), timeout=te.HANG_S) as s, \
                socket.create_connection(("127.0.0.1", self.data[0]), timeout=te.HANG_S) as t:
            self.assertEqual((s.recv(1), t.recv(1)), (b"", b""))
        self.until_refused(self.server, "late", 2)


class SameHost(te_auth.Case):
    """With a store, so that the descriptor is there."""

    def explained(self, ours, theirs):
        metad = te.Metad()
        self.addCleanup(metad.close)
        client = self.engine(keys=ours, metadata=metad.url, name="client")
        server = self.engine(keys=theirs, metadata=metad.url, name="server")
        _, remote = server.region(4096)
        mine, _ = client.region(4096)
        segment = client.open("server")
        return client.ask("explain", "write", segment, mine, remote, 4096), server

    def test_who_has_no_key(self):
        told, server = self.explained(None, B)
        self.assertIn("set TE_AUTH here as it is there", " ".join(told))
        self.assertGreaterEqual(self.refusals(server)["plain"], 1)

    def test_who_has_another_key(self):
        told, _ = self.explained(lines("a", "b", a=te_auth.KEYS["z"]), B)
        self.assertIn("has another key for our id 'a'", " ".join(told))

    def test_an_owner_without_a_key(self):
        told, _ = self.explained(A, None)
        self.assertIn("set it as it is here", " ".join(told))


class Start(te_auth.Case):
    def fails(self, **env):
        got = subprocess.run([te.Peer.binary(), te.P2P, "127.0.0.1"], env={**os.environ, **env}, capture_output=True,
                             text=True, check=False, timeout=te.HANG_S, stdin=subprocess.DEVNULL)
        self.assertNotEqual(got.returncode, 0)
        return got.stderr

    def test_what_cannot_be_is_an_error(self):
        path = self.keys("k", A)
        self.assertIn("TE_AUTH_KEYS is empty", self.fails(TE_AUTH="psk"))
        self.assertIn("must be off, psk or mtls", self.fails(TE_AUTH="on", TE_AUTH_KEYS=path))
        self.assertIn("TE_AUTH_KEYS", self.fails(TE_AUTH="psk", TE_AUTH_KEYS="/nonexistent"))
        self.assertIn("at most 255", self.fails(TE_AUTH="p" * 300))
        self.assertIn("chmod 600", self.fails(TE_AUTH="psk", TE_AUTH_KEYS=self.keys("open", A, 0o640)))
        self.assertIn("TE_AUTH_CLASSIC", self.fails(TE_AUTH="psk", TE_AUTH_KEYS=path, TE_AUTH_CLASSIC="x/1"))

    def test_off_is_told_once(self):
        self.engine().wait_error("TE_AUTH is off: whoever reaches")

    def test_no_key_in_memory_that_is_dumped(self):
        raw = [os.urandom(32), os.urandom(32)]  # of one letter they are what strcasecmp() compares with, in a register
        text = [base64.b64encode(key) for key in raw]
        secrets = [*raw, *text, *(hmac.digest(key, use, "sha256") for key in raw for use in USES)]
        told = {c: key.decode() for c, key in zip("ab", text)}
        a, b = (self.engine(*TCP_ONLY, keys=lines(*ids, **told)) for ids in ("ab", "ba"))
        self.moves(a, b, 1)
        self.moves(b, a, 2)
        looked = 0
        for proc in (a, b):
            for begin, end in self.dumped(proc.pid):
                data = self.memory(proc.pid, begin, end)
                looked += len(data)
                for i, secret in enumerate(secrets):
                    at = data.find(secret)
                    self.assertEqual(at, -1, f"secret {i} is at {begin + at:#x}")
        self.assertGreater(looked, 1 << 20)

    @staticmethod
    def stack_pointers(pid):
        """Of its threads; None while one of them runs, as then the kernel does not tell."""
        found = []
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/syscall", encoding="ascii") as f:
                    words = f.read().split()
            except OSError:  # it has ended
                return None
            if len(words) < 2:
                return None
            found.append(int(words[-2], 16))
        return found

    @classmethod
    def dumped(cls, pid):
        """
        The writable mappings that a core dump would have; where registers are not cleared (src/auth/auth_keys.c), and
        in a tree with sanitizers, without the stacks. Those of threads that ended are kept by the C library for others,
        and have the size of one.
        """
        found, now, stacks = [], None, te.until(lambda: cls.stack_pointers(pid), "all threads at rest")
        size = resource.getrlimit(resource.RLIMIT_STACK)[0]
        if platform.machine() == "x86_64" and not te.CFLAGS:
            stacks, size = [], 0
        with open(f"/proc/{pid}/smaps", encoding="utf-8") as f:
            for line in f:
                words = line.split()
                if "-" in words[0] and not words[0].endswith(":"):
                    now = [int(x, 16) for x in words[0].split("-")] if words[1].startswith("rw") else None
                elif (words[0] == "VmFlags:" and now and "dd" not in words and now[1] - now[0] != size
                      and not any(now[0] <= at < now[1] for at in stacks)):
                    found.append(now)
        return found

    @staticmethod
    def memory(pid, begin, end):
        data = b""
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
            f.seek(begin)
            try:
                while begin + len(data) < end and (part := f.read(min(end - begin - len(data), 1 << 20))):
                    data += part
            except OSError:  # pages that are not there
                pass
        return data


if __name__ == "__main__":
    te.main()
