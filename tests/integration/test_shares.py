#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=600
"""Clients that take all they can of what there is only so much of, and others beside them, by address."""
import json
import resource
import socket
import struct
import threading
import unittest

import te_proc as te

HOSTILE = 8  # addresses
PLACES = 1024
HOGS = 160  # connections of each: more than there are places for together
REQUESTS = 100
ROOM = 64 << 20  # of the inbox
MESSAGE = 1_000_000
OK = bytes([0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d])


def dial(address, source):
    return socket.create_connection(address, timeout=te.HANG_S, source_address=(source, 0))


def read_request(at, length):
    return struct.pack("<QQB7x", length, at, 0x80)


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


class Hog(threading.Thread):
    """Asks for everything on many connections, reads nothing, and comes again when it is thrown out."""

    def __init__(self, address, source, request):
        super().__init__(daemon=True)
        self.address, self.source, self.request = address, source, request
        self.socks = []
        self.full, self.over = threading.Event(), threading.Event()
        self.start()

    def add(self):
        try:
            sock = dial(self.address, self.source)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(self.request)
            sock.setblocking(False)
            self.socks.append(sock)
        except OSError:
            pass

    def is_alive_at_port(self, sock):
        try:
            return sock.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            sock.close()
            return False

    def run(self):
        while not self.over.is_set():
            for _ in range(HOGS):
                if len(self.socks) < HOGS:
                    self.add()
            self.full.set()
            self.socks = [s for s in self.socks if self.is_alive_at_port(s)]
            self.over.wait(0.05)
        for sock in self.socks:
            sock.close()


class Shares(unittest.TestCase):
    def test_places_of_the_data_port(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < HOSTILE * HOGS + 1000:
            te.skip(f"{hard} descriptors are too few for {HOSTILE * HOGS} clients")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with te.Target(env={"TE_HOST_PATH": "0", "TE_TCP_MAX_SESSIONS": str(PLACES)}) as target:
            rpc = te.split_address(target.segment)
            description = te.descriptor(rpc)
            data = (rpc[0], description["tcp_data_port"])
            buffer = description["buffers"][0]
            before = resident(target.pid)
            hogs = [Hog(data, f"127.0.0.{10 + i}", read_request(buffer["addr"], buffer["length"]))
                    for i in range(HOSTILE)]
            try:
                for hog in hogs:
                    self.assertTrue(hog.full.wait(te.HANG_S))
                for _ in range(REQUESTS):  # each with a connection of its own
                    with dial(data, "127.0.0.1") as sock:
                        sock.sendall(read_request(buffer["addr"], 64))
                        self.assertEqual(te.read_exactly(sock, len(OK) + 64)[:len(OK)], OK)
                proc = te.bench(target.segment, "--verify", "--batches=20")
                self.assertEqual(proc.rc, 0, proc)
                self.assertLess(resident(target.pid) - before, 64 << 20)
            finally:
                for hog in hogs:
                    hog.over.set()
                for hog in hogs:
                    hog.join(te.HANG_S)

    def fill(self, rpc, source):
        """As many messages as are taken from that address."""
        text = json.dumps({"name": source, "notify_msg": "x" * MESSAGE})
        taken = 0
        while self.send(rpc, source, text):
            taken += 1
            self.assertLessEqual(taken * MESSAGE, ROOM)
        return taken

    def send(self, rpc, source, text):
        with dial(rpc, source) as sock:
            sock.sendall(te.frame(te.NOTIFY, text))
            _, body = te.read_frame(sock)
            return json.loads(body)["notify_msg"] == "success"

    def test_inbox(self):
        honest = json.dumps({"name": "honest", "notify_msg": "y" * 1000})
        with te.Peer() as peer:
            rpc = te.split_address(peer.segment)
            shares = []
            for i in range(HOSTILE):  # each gets half of the room that it finds, or a bit more
                room = ROOM - sum(shares) * MESSAGE
                shares.append(self.fill(rpc, f"127.0.0.{10 + i}"))
                self.assertAlmostEqual(shares[-1] * MESSAGE, room / 2, delta=1.1 * MESSAGE)
                self.assertTrue(self.send(rpc, "127.0.0.1", honest))
            self.assertEqual(self.fill(rpc, "127.0.0.10"), 0)
            taken = peer.ask("inbox")
            self.assertEqual(int(taken[0]), sum(shares) + HOSTILE)
            self.assertEqual(self.fill(rpc, "127.0.0.10"), shares[0])
            self.assertEqual(peer.quit(), 0, peer)


if __name__ == "__main__":
    te.main()
