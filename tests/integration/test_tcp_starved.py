#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""An engine that got no processor for a while: a connection that came up meanwhile is no failed one."""
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


if __name__ == "__main__":
    te.main()
