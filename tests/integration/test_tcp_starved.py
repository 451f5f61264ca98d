#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""An engine that got no processor for a while: what came up, or came, meanwhile was in time."""
import select
import time
import unittest

import te_proc as te
import te_trouble as trouble

SIZE = 4096
CONNECT_S = 1.25  # how long the engine waits for one


def connecting(port):
    """How many sockets of this host wait for an answer from that port."""
    remote = f"0100007F:{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f]
    return sum(row[2] == remote and row[3] == "02" for row in rows[1:])


def unread(side, port):
    """Whether bytes wait in a socket at that port, or at the other end of one (side 1, 2)."""
    rows = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="ascii") as f:
            rows += [line.split() for line in f][1:]
    return any(row[side].endswith(f":{port:04X}") and row[3] == "01" and int(row[4].split(":")[1], 16) for row in rows)


def ready(sock):
    """Whether a connection or the end of one can be read."""
    return bool(select.select([sock], [], [], 0.1)[0])


class Starved(unittest.TestCase):
    def accepted(self, listener):
        """The connection of the engine, behind those that their clients have closed."""
        while True:
            te.until(lambda: ready(listener), "a connection")
            conn = listener.accept()[0]
            if not ready(conn):
                return conn
            conn.close()

    def frozen_on_the_way(self, peer, move, listener, clients):
        """Freezes the peer while its connection waits for an answer, and then lets that one come; None: too late."""
        port, before = listener.getsockname()[1], connecting(listener.getsockname()[1])
        begun = time.monotonic()
        move()
        te.until(lambda: connecting(port) > before or peer.has_replied(), lambda: f"a connection of {peer}")
        peer.freeze()
        try:
            if connecting(port) <= before:
                return None
            for client in clients:  # they make room
                client.close()
            conn = self.accepted(listener)
            time.sleep(max(0, begun + 2 * CONNECT_S - time.monotonic()))
            return conn
        finally:
            peer.thaw()

    def test_a_connection_that_came_up_is_used(self):
        for _ in range(20):
            with te.Peer() as target, te.Peer(options=("TE_HOST_PATH=0", "TE_TCP_NATIVE=0")) as peer, \
                    trouble.Silent() as data:
                port = data.listener.getsockname()[1]
                with trouble.Claims(target, True, tcp_data_port=port,
                                    buffers=[{"addr": 4096, "length": SIZE, "name": "cpu:0"}]) as server:
                    index, _ = peer.region(SIZE)
                    segment = peer.open(server.name)
                    conn = self.frozen_on_the_way(peer, lambda: peer.send_move("read", segment, index, 0, 4096, SIZE),
                                                  data.listener, data.clients)
                    if not conn:
                        continue
                    with conn:
                        conn.settimeout(te.HANG_S)
                        self.assertNotEqual(conn.recv(1), b"", f"it was closed: {peer}")
                    return
        te.skip("the engine has always given up before it could be frozen")

    def read_while_frozen(self, target, peer, limit_s):
        """What a read ended with whose answer came to the frozen peer, which went on after its deadline; None: too late."""
        port = te.descriptor(te.split_address(target.segment))["tcp_data_port"]
        _, address = target.region(SIZE)
        index, _ = peer.region(SIZE)
        segment = peer.open(target.segment)
        self.assertEqual(peer.move("read", segment, index, 0, address, SIZE)[0], te.COMPLETED)
        target.freeze()
        deadline = time.monotonic() + limit_s
        peer.send_move("read", segment, index, 0, address, SIZE, deadline_ms=int(1000 * limit_s))
        te.until(lambda: unread(1, port) or peer.has_replied(), lambda: f"a request of {peer}")
        peer.freeze()
        in_time = time.monotonic() < deadline
        target.thaw()
        if in_time:
            te.until(lambda: unread(2, port), lambda: f"an answer of {target}")
            time.sleep(max(0, deadline + 0.1 - time.monotonic()))
        peer.thaw()
        got = peer.moved()
        return got if in_time else None

    def test_an_answer_that_came_counts(self):
        for native in (0, 1):
            for limit_s in (0.5, 2, 8, 30):
                with te.Peer() as target, te.Peer(options=("TE_HOST_PATH=0", f"TE_TCP_NATIVE={native}")) as peer:
                    got = self.read_while_frozen(target, peer, limit_s)
                if got:
                    self.assertEqual(got[:3], (te.COMPLETED, 0, SIZE), got)
                    break
            else:
                te.skip("the engine could never be frozen in time")


if __name__ == "__main__":
    te.main()
