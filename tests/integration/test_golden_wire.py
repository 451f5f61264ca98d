#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""Speaks to an engine with nothing but sockets, byte for byte as the protocol's other engines do."""
import json
import os
import socket
import struct
import unittest

import te_proc as te

SIZE = 128 << 10
OK = bytes.fromhex("00000000 5654434d")
REJECTED = bytes.fromhex("01000000 5654434d")
READ, WRITE, V2 = 0, 1, 0x80
INVALID = 2
NO_DEVICE = (b'{"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"",'
             b'"qp_num":[],"reply_msg":""}\n')
FROM_RDMA = ('{"local_gid":"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02","local_lid":0,'
             '"local_nic_path":"127.0.0.1:16437@rxe1","payload":"",'
             '"peer_nic_path":"127.0.0.1:16129@rxe0","qp_num":[17,18],"ready_ack":false,'
             '"reply_msg":""}')


def header(length, address, opcode, padding=b"\0" * 7):
    return struct.pack("<QQB", length, address, opcode) + padding


class Wire:
    @classmethod
    def setUpClass(cls):
        cls.engine = te.Peer()
        cls.index, cls.address = cls.engine.region(SIZE)
        cls.engine.ask("fill", cls.index, 0, SIZE, 1)
        cls.port = te.split_address(cls.engine.segment)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def lives(self):
        self.assertEqual(te.handshake(self.port, te.PROBE, "{}"), b'{"status":"success"}\n')


class Handshake(Wire, unittest.TestCase):
    def test_metadata(self):
        with te.connect(self.port) as sock:
            sock.sendall(bytes.fromhex("0400000000000000 01 7b7d0a"))
            kind, body = te.read_frame(sock)
        self.assertEqual(kind, te.METADATA)
        got = json.loads(body)
        self.assertEqual(body, json.dumps(got, sort_keys=True, separators=(",", ":")).encode() + b"\n")
        self.assertEqual(set(got) - {"te"}, {"buffers", "name", "protocol", "server_name", "tcp_data_port",
                                             "tcp_proto_version", "timestamp"})
        self.assertEqual(got["buffers"], [{"addr": self.address, "length": SIZE,
                                           "name": self.engine.segment}])
        self.assertEqual((got["name"], got["server_name"]), (self.engine.segment,) * 2)
        self.assertEqual(got["protocol"], "tcp")
        self.assertIs(type(got["tcp_data_port"]), int)
        self.assertEqual(got["tcp_proto_version"], 2)
        self.assertRegex(got["timestamp"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")

    def test_metadata_of_a_requester_that_sends_its_own(self):
        own = json.dumps({"buffers": [], "name": "h:1", "protocol": "tcp", "tcp_data_port": 1,
                          "tcp_proto_version": 2, "timestamp": "2026-11-20 12:48:12.712577"})
        self.assertEqual(json.loads(te.handshake(self.port, te.METADATA, own))["name"], self.engine.segment)

    def test_notify(self):
        self.engine.ask("inbox")
        body = te.handshake(self.port, te.NOTIFY, '{"name": "n1", "notify_msg": "hello"}')
        self.assertEqual(body, b'{"name":"","notify_msg":"success"}\n')
        self.assertEqual(self.engine.ask("inbox"), ["1", "n1=hello"])

    def test_notify_that_is_none(self):
        for text in ("[1]", "{", "", '{"name":1,"notify_msg":[]}'):
            body = json.loads(te.handshake(self.port, te.NOTIFY, text))
            self.assertEqual(body["notify_msg"], "", text)
        self.assertEqual(self.engine.ask("inbox"), ["0"])

    def test_notify_of_bytes(self):
        self.engine.ask("inbox")
        for name, msg in (("AA==", "/w=="), ("", ""), ("YQ==", "YgBj")):
            body = te.handshake(self.port, te.NOTIFY, json.dumps({"te": {"bytes": [name, msg]}}))
            self.assertEqual(body, b'{"name":"","notify_msg":"success"}\n')
        self.assertEqual(self.engine.ask("inbox_bytes"), ["3", "00=ff", "=", "61=620063"])
        for told in (5, "x", [], ["AA=="], ["AA==", 5], ["AA==", "A"], ["AA==", "?w=="], {"0": ""}):
            body = json.loads(te.handshake(self.port, te.NOTIFY, json.dumps(
                {"name": "n", "notify_msg": "m", "te": {"bytes": told}})))
            self.assertEqual(body["notify_msg"], "", told)
        self.assertEqual(self.engine.ask("inbox"), ["0"])

    def test_probe(self):
        self.lives()
        self.assertEqual(te.handshake(self.port, te.PROBE, '{"te":{}}'),
                         b'{"status":"success","te":{"notify":1}}\n')

    def test_connection(self):
        self.assertEqual(te.handshake(self.port, te.CONNECTION, FROM_RDMA), NO_DEVICE)

    def test_pieces(self):
        """Length, type and JSON come in separate writes, and the JSON byte by byte."""
        message = te.frame(te.PROBE, "{}")
        for cuts in ([8, 9], list(range(1, len(message)))):
            with te.connect(self.port) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for start, end in zip([0] + cuts, cuts + [len(message)]):
                    sock.sendall(message[start:end])
                self.assertEqual(te.read_frame(sock), (te.PROBE, b'{"status":"success"}\n'))

    def test_closes_after_the_reply(self):
        with te.connect(self.port) as sock:
            sock.sendall(te.frame(te.PROBE, "{}"))
            te.read_frame(sock)
            self.assertEqual(sock.recv(1), b"")

    def test_frame_without_type(self):
        """The older form: no type byte, neither in the request nor in the reply."""
        text = (FROM_RDMA + "\n").encode()
        with te.connect(self.port) as sock:
            sock.sendall(struct.pack("<Q", len(text)) + text)
            (length,) = struct.unpack("<Q", te.read_exactly(sock, 8))
            self.assertEqual(te.read_exactly(sock, length), NO_DEVICE)

    def test_array_in_place_of_an_object(self):
        with te.connect(self.port) as sock:
            sock.sendall(struct.pack("<Q", 4) + bytes.fromhex("00 5b315d"))
            kind, body = te.read_frame(sock)
        self.assertEqual(kind, te.CONNECTION)
        self.assertNotEqual(json.loads(body)["reply_msg"], "")
        self.lives()

    def test_deep_nesting(self):
        text = b"[" * (60 << 10)
        with te.connect(self.port) as sock:
            sock.sendall(struct.pack("<Q", len(text)) + text)
            (length,) = struct.unpack("<Q", te.read_exactly(sock, 8))
            self.assertNotEqual(json.loads(te.read_exactly(sock, length))["reply_msg"], "")
        self.lives()

    def test_lengths_that_cannot_be(self):
        for length in (0, (1 << 20) + 1, 1 << 63, (1 << 64) - 1):
            with te.connect(self.port) as sock:
                sock.sendall(struct.pack("<Q", length) + b"\x01{}\n")
                try:
                    self.assertEqual(sock.recv(1), b"", length)
                except ConnectionResetError:
                    pass
        self.lives()

    def test_largest_length(self):
        """Of what may be long; a probe or a connection is short, or not read."""
        answer = te.handshake(self.port, te.METADATA, "{" + " " * ((1 << 20) - 4) + "}")
        self.assertIn("buffers", json.loads(answer))
        self.assertEqual(te.handshake(self.port, te.PROBE, "{" + " " * ((64 << 10) - 4) + "}"),
                         b'{"status":"success"}\n')
        for kind in (te.PROBE, te.CONNECTION):
            with te.connect(self.port) as sock:
                sock.sendall(struct.pack("<Q", (64 << 10) + 1) + bytes([kind]))
                self.assertEqual(sock.recv(1), b"", kind)
        self.lives()

    def test_speakers_of_something_else(self):
        for text in (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            with te.connect(self.port) as sock:
                sock.sendall(text)
                try:
                    self.assertEqual(sock.recv(1), b"")
                except ConnectionResetError:
                    pass
        self.lives()


class Data(Wire, unittest.TestCase):
    def setUp(self):
        self.data = (self.port[0], te.descriptor(self.port)["tcp_data_port"])
        with te.connect(self.data) as sock:
            self.content = self.read_v2(sock, 0, SIZE)

    def read_v2(self, sock, offset, length):
        sock.sendall(header(length, self.address + offset, READ | V2))
        self.assertEqual(te.read_exactly(sock, 8), OK)
        return te.read_exactly(sock, length)

    def write_v2(self, sock, offset, data):
        sock.sendall(header(len(data), self.address + offset, WRITE | V2) + data)
        self.assertEqual(te.read_exactly(sock, 8), OK)

    def closed(self, sock):
        try:
            self.assertEqual(sock.recv(1), b"")
        except ConnectionResetError:
            pass

    def test_v2_one_connection_many_requests(self):
        with te.connect(self.data) as sock:
            for offset, length in ((0, 64), (1, 1), (63, 65537), (SIZE - 1, 1), (0, SIZE)):
                data = os.urandom(length)
                self.write_v2(sock, offset, data)
                self.assertEqual(self.read_v2(sock, offset, length), data)

    def test_v2_write_is_seen_by_the_process(self):
        with te.connect(self.data) as sock:
            data = self.read_v2(sock, 0, 5000)
            self.engine.ask("fill", self.index, 0, 5000, 99)
            random = self.read_v2(sock, 0, 5000)
            self.assertNotEqual(random, data)
            self.write_v2(sock, 5001, random)
            self.engine.ask("check", self.index, 5001, 5000, 99)

    def test_padding_is_ignored(self):
        with te.connect(self.data) as sock:
            sock.sendall(header(64, self.address, READ | V2, b"\xff" * 7))
            self.assertEqual(te.read_exactly(sock, 72), OK + self.content[:64])

    def test_header_in_pieces(self):
        with te.connect(self.data) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in header(64, self.address, READ | V2):
                sock.sendall(bytes([byte]))
            self.assertEqual(te.read_exactly(sock, 72), OK + self.content[:64])

    def test_v1_read(self):
        with te.connect(self.data) as sock:
            for offset, length in ((0, 64), (5, 100000)):
                sock.sendall(header(length, self.address + offset, READ))
                self.assertEqual(te.read_exactly(sock, length), self.content[offset:offset + length])

    def test_v1_write(self):
        data = os.urandom(100000)
        with te.connect(self.data) as sock:
            sock.sendall(header(len(data), self.address + 3, WRITE) + data)
            # There is no acknowledgement; requests of one connection are served in order.
            sock.sendall(header(len(data), self.address + 3, READ))
            self.assertEqual(te.read_exactly(sock, len(data)), data)

    def test_v1_client_of_one_request(self):
        data = os.urandom(1000)
        with te.connect(self.data) as sock:
            sock.sendall(header(len(data), self.address, WRITE) + data)
            sock.shutdown(socket.SHUT_WR)
            self.closed(sock)
        with te.connect(self.data) as sock:
            self.assertEqual(self.read_v2(sock, 0, len(data)), data)

    BAD = ((0, 0), (-1, 64), (SIZE - 63, 64), (SIZE, 1), (0, SIZE + 1), (0, (1 << 64) - 1))

    def test_v2_rejection(self):
        for opcode in (READ | V2, WRITE | V2):
            for offset, length in self.BAD:
                with te.connect(self.data) as sock:
                    sock.sendall(header(length, self.address + offset, opcode))
                    self.assertEqual(te.read_exactly(sock, 8), REJECTED, (opcode, offset, length))
                    self.closed(sock)
            with te.connect(self.data) as sock:
                sock.sendall(header((1 << 64) - 64, 128, opcode))
                self.assertEqual(te.read_exactly(sock, 8), REJECTED)
                self.closed(sock)
        with te.connect(self.data) as sock:
            self.assertEqual(self.read_v2(sock, 0, SIZE), self.content)

    def test_v2_rejection_comes_before_the_payload(self):
        """The frame is sent at once, although the client still has most of its data."""
        with te.connect(self.data) as sock:
            sock.sendall(header(1 << 30, self.address, WRITE | V2) + b"x" * 1000)
            self.assertEqual(te.read_exactly(sock, 8), REJECTED)
        with te.connect(self.data) as sock:
            self.assertEqual(self.read_v2(sock, 0, SIZE), self.content)

    def test_v1_rejection(self):
        for opcode in (READ, WRITE):
            for offset, length in self.BAD:
                with te.connect(self.data) as sock:
                    sock.sendall(header(length, self.address + offset, opcode))
                    self.closed(sock)

    def test_client_that_goes_away_in_mid_write(self):
        for opcode in (WRITE, WRITE | V2):
            with te.connect(self.data) as sock:
                sock.sendall(header(SIZE, self.address, opcode) + b"y" * 1000)
        with te.connect(self.data) as sock:
            self.assertEqual(self.read_v2(sock, 1000, SIZE - 1000), self.content[1000:])


class Sent(unittest.TestCase):
    """What our engine sends as a client: this test is the server."""

    def serve_handshake(self, listener, reply):
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(te.HANG_S)
            kind, body = te.read_frame(sock)
            sock.sendall(te.frame(kind, reply))
            sock.shutdown(socket.SHUT_WR)
            self.assertEqual(sock.recv(1), b"")
        return kind, body

    def listener(self):
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen(8)
        sock.settimeout(te.HANG_S)
        self.addCleanup(sock.close)
        return sock, sock.getsockname()[1]

    def open_here(self, version):
        """A peer that opened the segment this test publishes: (peer, index, segment, data listener)."""
        self.rpc, port = self.listener()
        data, data_port = self.listener()
        name = f"127.0.0.1:{port}"
        self.own = {"buffers": [{"addr": 0x10000, "length": 1 << 20, "name": name}], "name": name,
                    "protocol": "tcp", "tcp_data_port": data_port,
                    "timestamp": "2026-11-20 12:48:12.712577"}
        if version:
            self.own["tcp_proto_version"] = version
        peer = te.Peer()
        self.addCleanup(peer.close)
        index, _ = peer.region(1 << 20)
        peer.send("open", name)
        kind, body = self.serve_handshake(self.rpc, json.dumps(self.own))
        self.assertEqual(kind, te.METADATA)
        self.assertTrue(body.endswith(b"\n"))
        self.assertIsInstance(json.loads(body), dict)
        got = peer.reply()
        self.assertEqual(got[0], "ok", got)
        return peer, index, int(got[1]), data

    def accept(self, data):
        sock, _ = data.accept()
        sock.settimeout(te.HANG_S)
        self.addCleanup(sock.close)
        return sock

    def test_notification_that_is_no_text(self):
        """The peer is asked first. One that takes text alone is sent nothing; text goes without asking."""
        peer, _, segment, _ = self.open_here(2)
        for answer in ('{"status":"success"}', '{"status":"success","te":{"notify":0}}', '{"te":[]}', "[]"):
            peer.send("notify_bytes", segment, "ff00", "00")
            self.assertEqual(self.serve_handshake(self.rpc, answer), (te.PROBE, b'{"te":{}}\n'))
            self.assertRegex(" ".join(peer.reply()), "^err .*takes text alone: it is of another make")
        peer.send("notify_bytes", segment, b"n".hex(), "größer".encode().hex())
        kind, body = self.serve_handshake(self.rpc, '{"name":"","notify_msg":"success"}')
        self.assertEqual((kind, json.loads(body)), (te.NOTIFY, {"name": "n", "notify_msg": "größer"}))
        self.assertEqual(peer.reply(), ["ok"])
        peer.send("notify_bytes", segment, "ff00", "-")
        self.serve_handshake(self.rpc, '{"status":"success","te":{"notify":1}}')
        kind, body = self.serve_handshake(self.rpc, '{"name":"","notify_msg":"success"}')
        self.assertEqual((kind, json.loads(body)),
                         (te.NOTIFY, {"name": "", "notify_msg": "", "te": {"bytes": ["/wA=", ""]}}))
        self.assertEqual(peer.reply(), ["ok"])

    def test_v2(self):
        peer, index, segment, data = self.open_here(2)
        peer.ask("fill", index, 0, 64, 5)
        peer.send_move("write", segment, index, 0, 0x10040, 64)
        sock = self.accept(data)
        got = te.read_exactly(sock, 24)
        self.assertEqual(got, header(64, 0x10040, WRITE | V2))
        payload = te.read_exactly(sock, 64)
        sock.sendall(OK)
        self.assertEqual(peer.moved()[:3], (te.COMPLETED, 0, 64))
        peer.send_move("read", segment, index, 64, 0x10040, 64)
        self.assertEqual(te.read_exactly(sock, 24), header(64, 0x10040, READ | V2))
        sock.sendall(OK + payload)
        self.assertEqual(peer.moved()[:3], (te.COMPLETED, 0, 64))
        peer.ask("check", index, 64, 64, 5)

    def test_v2_rejected(self):
        """It asks once for the descriptor again, tries once more, and gives up."""
        peer, index, segment, data = self.open_here(2)
        for attempt in range(2):
            if attempt == 0:
                peer.send_move("read", segment, index, 0, 0x10000, 64)
            else:
                self.serve_handshake(self.rpc, json.dumps(self.own))
            sock = self.accept(data)
            self.assertEqual(te.read_exactly(sock, 24), header(64, 0x10000, READ | V2))
            sock.sendall(REJECTED)
            sock.close()
        state, error, _, text = peer.moved()
        self.assertEqual(state, INVALID, text)
        self.assertLess(error, 0)
        self.assertNotEqual(text, "")

    def test_v1_when_no_version_is_published(self):
        for version in (None, 1):
            peer, index, segment, data = self.open_here(version)
            peer.ask("fill", index, 0, 64, 6)
            peer.send_move("write", segment, index, 0, 0x10000, 64)
            sock = self.accept(data)
            self.assertEqual(te.read_exactly(sock, 24), header(64, 0x10000, WRITE))
            payload = te.read_exactly(sock, 64)
            sock.close()
            self.assertEqual(peer.moved()[:3], (te.COMPLETED, 0, 64))
            # An old server ends the connection after each request, so a new one is made.
            peer.send_move("read", segment, index, 64, 0x10000, 64)
            sock = self.accept(data)
            self.assertEqual(te.read_exactly(sock, 24), header(64, 0x10000, READ))
            sock.sendall(payload)
            sock.close()
            self.assertEqual(peer.moved()[:3], (te.COMPLETED, 0, 64))
            peer.ask("check", index, 64, 64, 6)



if __name__ == "__main__":
    te.main()
