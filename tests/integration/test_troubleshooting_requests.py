#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: requests that are refused or end badly, memory and notifications."""
import re
import unittest

import te_proc as te
import te_trouble as trouble
from te_trouble import provokes

SIZE = 65536
STATUS_OK = (0x4D435456 << 32).to_bytes(8, "little")
OLD = ("TE_HOST_PATH=0", "TE_TCP_NATIVE=0", "MC_RETRY_CNT=0")  # the framing with a header and a status alone


class Refused(trouble.Section, unittest.TestCase):
    title = "A submit is refused"

    @provokes("request ...: source ... is not inside one registered region; te_register() it first",
              "... is not inside one registered region: region ... ends ... bytes before the end of the range",
              "request ...: target ... is not registered in this engine",
              "request ...: segment ... is not open in this engine; ...",
              "request ...: no installed transport reaches segment ... of protocol '...'; te_explain() says why",
              "request ...: item ..., ..., is not inside one registered region any more",
              "request ...: the prepared list has no item ..., only ... items",
              "batch has room for ... more requests of ..., not for ...",
              "batch ... does not exist",
              "engine belongs to the parent process; make one of your own after fork()")
    def calls(self):
        said = trouble.misuse()
        self.assertRegex(said, r"source 0x\w+ \+ 64 is not inside one registered region: region 0x\w+ \+ 65536 ends "
                               r"24 bytes before the end of the range")
        return said

    elsewhere = {
        "request ...: no path to segment ... that te_paths allows: ...": (
            "integration/test_paths.c", " that te_paths allows: "),
        "te_pages: local.index[...] is page ..., and local.pages is ...": (
            "integration/test_pages.c", ", and local.pages is "),
        "te_pages: pages at ...base, which are written to, overlap: ...": (
            "integration/test_pages.c", "base, which are written to, overlap"),
        "te_pages: the pool at ...base wraps around the address space, ...": (
            "integration/test_pages.c", "base wraps around"),
        "te_pages: the pool at local.base, ..., is not inside one registered region": (
            "integration/test_pages.c", "is not inside one registered region"),
    }

    not_provoked = {
        "...: no installed transport reaches its engine":
            "a descriptor fetched again must lack all that this engine can use, in the middle of a request"}


def one_request(peer, name, opcode="read", remote=0, deadline_ms=0):
    """The text of the status of a request to the segment of that name."""
    index, _ = peer.region(SIZE)
    state, error, _, text = peer.move(opcode, peer.open(name), index, 0, remote, SIZE, deadline_ms=deadline_ms)
    if state == te.COMPLETED or not error:
        raise AssertionError(f"it is COMPLETED: {peer}")
    return text + "\n" + trouble.said(peer)


def under_way():
    """What misuse.c says while a request goes on, as the data port does not answer."""
    kept = []  # connections

    with te.Peer() as target, trouble.Fake(lambda sock: kept.append(sock.dup())) as data, \
            trouble.Claims(target, True, tcp_data_port=te.split_address(data.name)[1],
                   buffers=[{"addr": 4096, "length": SIZE, "name": "cpu:0"}]) as server:
        try:
            return trouble.misuse("busy", server.name)
        finally:
            for sock in kept:
                sock.close()


class Ending(trouble.Section, unittest.TestCase):
    title = "A request ends badly"
    elsewhere = {
        "peer broke the protocol: the peer demands an option of the framing that is not known here": (
            "transport/test_tcp_options.c", "the peer demands an option of the framing that is not known here"),
        "...: the peer does not know this version of the framing": (
            "transport/test_tcp_native_client.c", "the peer does not know this version of the framing"),
        "... has not registered the range, or for other peers alone; ...": (
            "integration/test_allow.c", "registered the range, or for other peers alone; "),
        "... the target lets others alone do this: its list of peers does not name ...": (
            "integration/test_allow.c", "the target lets others alone do this"),
        "... the target has no lease with this key: ...": ("integration/test_lease.c", "no lease with this key"),
        "... the time of the lease is over; ...": ("integration/test_lease.c", "the time of the lease is over"),
        "... the lease does not reach all of the range, or does not allow this direction; ...": (
            "integration/test_lease.c", "not allow this direction"),
    }

    def claimed(self, options=OLD, opcode="read", **more):
        """A request to an engine whose descriptor claims more than it has."""
        with te.Peer() as target, te.Peer(options=options) as peer:
            _, remote = target.region(SIZE)
            with trouble.Claims(target, **more) as server:
                return one_request(peer, server.name, opcode, remote if "buffers" not in more else 4096)

    def with_data_port(self, answer, options=OLD, opcode="read"):
        """The same where another server has the data port, of an engine of another make."""
        with trouble.Fake(answer) as data:
            return self.claimed(options, opcode, tcp_data_port=te.split_address(data.name)[1], other=True)

    @provokes("target does not have this address range: the target refused the address range; ...")
    def rejected(self):
        return self.claimed(buffers=[{"addr": 4096, "length": SIZE, "name": "cpu:0"}], other=True)

    @provokes("target does not have this address range: its owner has not registered the range; ...")
    def stale(self):
        with te.Peer() as target, te.Peer() as peer:
            return one_request(peer, target.segment, remote=4096)

    @provokes("target does not have this address range: region ... ends ... bytes before the end of the range; ...")
    def too_long(self):
        with te.Peer() as target, te.Peer() as peer:
            _, remote = target.region(SIZE)
            said = one_request(peer, target.segment, remote=remote + 100)
            self.assertRegex(said, rf"region {remote:#x} \+ {SIZE} ends 100 bytes before the end of the range; "
                                   r"ask for less, or te_register\(\) more at the target$")
            return said

    @provokes("tcp: region ... is registered, but a peer cannot be served: not all of it is mapped and open to this "
              "process; ...")
    def unmapped(self):
        said = trouble.misuse("unmapped", MC_RETRY_CNT="0")
        self.assertEqual(said.count("a peer cannot be served"), 1, said)
        self.assertEqual(said.count("connection lost during the transfer"), 2, said)
        return said

    @provokes("target does not allow this access; ...")
    def access(self):
        with te.Peer() as target, te.Peer() as peer:
            _, remote = (int(word) for word in target.ask("region", SIZE, 1))
            return one_request(peer, target.segment, "write", remote)

    @provokes("peer cannot be reached: connecting to the data port ...: ...; is the target running? a firewall? two of its "
              "ports, of 15000-17000 by default, are needed")
    def data_port(self):
        port = te.dead_port()
        text = self.claimed(("TE_HOST_PATH=0", "MC_RETRY_CNT=0"), tcp_data_port=port)
        self.assertIn(f"connecting to the data port 127.0.0.1:{port}: Connection refused; is the target", text)
        return text

    @provokes("connection lost during the transfer: ...; look at the target and the link to it, and submit the "
              "request again")
    def lost(self):
        return self.with_data_port(lambda sock: te.read_exactly(sock, SIZE // 2), opcode="write")

    @provokes("deadline passed: waiting for the peer; allow more time, or look whether the target is overloaded or "
              "frozen, or the link to it down")
    def frozen(self):
        with te.Peer() as target, te.Peer(options=OLD) as peer:
            index, _ = peer.region(SIZE)
            _, remote = target.region(SIZE)
            segment = peer.open(target.segment)
            peer.round_trip(segment, index, SIZE // 2, remote, 1)
            target.freeze()
            try:
                return peer.move("read", segment, index, 0, remote, SIZE, deadline_ms=300)[3]
            finally:
                target.thaw()

    @provokes("deadline passed: waiting for a free connection; ...")
    def one_connection(self):
        return under_way()

    @provokes("peer cannot be reached: cannot connect to ...: Connection refused; is the target running? use the name "
              "that te_engine_name() gives there ...")
    def gone(self):
        with te.Peer() as target, te.Peer(options=OLD) as peer:
            index, _ = peer.region(SIZE)
            _, remote = target.region(SIZE)
            segment = peer.open(target.segment)
            target.kill()
            text = peer.move("read", segment, index, 0, remote, SIZE)[3]
            self.assertEqual(text.count("is the target running?"), 1, text)
            return text

    @provokes("...: another program answers at the data port")
    def stranger(self):
        return self.with_data_port(lambda sock: sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n"))

    @provokes("peer broke the protocol: the reply is no status of this protocol")
    def garbage(self):
        def answer(sock):
            for status in (STATUS_OK, b"no status"):
                te.read_exactly(sock, 24 + SIZE)
                sock.sendall(status)

        with te.Peer() as target, te.Peer(options=OLD) as peer, trouble.Fake(answer) as data:
            _, remote = target.region(SIZE)
            with trouble.Claims(target, tcp_data_port=te.split_address(data.name)[1], other=True) as server:
                index, _ = peer.region(SIZE)
                segment = peer.open(server.name)
                self.assertEqual(peer.move("write", segment, index, 0, remote, SIZE)[0], te.COMPLETED)
                return peer.move("write", segment, index, 0, remote, SIZE)[3]


class Memory(trouble.Section, unittest.TestCase):
    title = "Memory"

    @provokes("region ... overlaps the registered ...", "no region begins at ...",
              "region ...: not all of it is mapped in this process; ...")
    def calls(self):
        return trouble.misuse()

    @provokes("region ... of ... bytes cannot be published: JSON numbers of peers end at 2^63 - 1; register it as "
              "TE_LOCAL_ONLY")
    def high(self):
        """Also where nothing is published: peers ask this engine, and could not read what it says."""
        said = trouble.misuse("high")
        self.assertEqual(len(re.findall(r"(?m)^TE_ERR_INVALID: region .* cannot be published", said)), 3, said)
        self.assertRegex(said, r"(?m)^TE_ERR_OK: $")
        return said

    @provokes("requests of this engine use the region at ...; wait for them or cancel them",
              "transport ...: transfers use it")
    def busy(self):
        return under_way()

    @provokes("PUT ..., key ...: the server takes no value of ... bytes (413 ...); ...")
    def too_large(self):
        te.need("http")
        for port in te.free_ports():
            with te.Proc([te.tool("te_metad"), f"--addr=127.0.0.1:{port}", "--max-value=4K"]) as metad:
                try:
                    metad.wait_line("listening")
                except AssertionError:
                    continue
                with te.Peer(name="a", metadata=f"http://127.0.0.1:{port}/metadata") as peer:
                    return peer.refused("regions", 1000, 4096)
        return ""

    not_provoked = {
        "binding memory to ...: ...": "the kernel must refuse mbind() for a node that the machine has",
        "there is no NUMA node ...": "a machine with a node of number 1024 or more"}


class Notifications(trouble.Section, unittest.TestCase):
    title = "Notifications"

    @provokes("inbox is full: of 65536 notifications and 67108864 bytes one sender's address may have half; "
              "te_notify_recv() takes them", "... did not take the notification")
    def full(self):
        return trouble.misuse()

    @provokes("notification: it is no text (UTF-8 without NUL), and the engine at ... takes text alone ...")
    def bytes(self):
        def answer(sock):
            kind, body = te.read_frame(sock)
            sock.sendall(te.frame(kind, body))

        with te.Peer() as target, te.Peer() as peer, trouble.Claims(target) as server:
            segment = peer.open(server.name)
            server.answer = answer
            return peer.refused("notify_bytes", segment, "00ff", "00ff")

    @provokes("the requests are submitted without their notification: notification of ... bytes ...")
    def long(self):
        return trouble.misuse()


if __name__ == "__main__":
    te.main()
