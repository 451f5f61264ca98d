#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""Hundreds of clients that are slow, silent or send rubbish, to both ports, while others work."""
import json
import os
import resource
import socket
import struct
import threading
import time
import unittest

import te_proc as te

SLOW_CLIENTS = 300  # on each port
HANDSHAKES = 100
REGIONS = 60  # more than a page of 4096 bytes has


class Nuisance(threading.Thread):
    """Runs `act` again and again until told to stop; what the other side does about it is its affair."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.act = act
        self.over = threading.Event()
        self.rounds = 0
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                self.act()
            except OSError:
                pass
            self.rounds += 1

    def end(self):
        self.over.set()
        self.join(te.HANG_S)


class SlowClients:
    """Connections that each send their first bytes one at a time, and never all of them."""

    def __init__(self, address, message, count):
        self.address, self.message = address, message
        self.socks = []
        for _ in range(count):
            self.socks.append([self.open(), 0])

    def open(self):
        try:
            sock = socket.create_connection(self.address, timeout=te.HANG_S)
            sock.setblocking(False)
            return sock
        except OSError:
            return None

    def drip(self):
        """One more byte from each; those that were thrown out come again."""
        for entry in self.socks:
            sock, sent = entry
            try:
                if sock is None:
                    raise OSError
                if sent < len(self.message) - 1:
                    entry[1] += sock.send(self.message[sent:sent + 1])
                elif sock.recv(1) == b"":
                    raise OSError
            except BlockingIOError:
                pass
            except OSError:
                if sock is not None:
                    sock.close()
                entry[0], entry[1] = self.open(), 0
        time.sleep(0.05)

    def close(self):
        for sock, _ in self.socks:
            if sock is not None:
                sock.close()


def rubbish(address):
    def act():
        with socket.create_connection(address, timeout=2) as sock:
            sock.settimeout(2)
            sock.sendall(os.urandom(1 + int.from_bytes(os.urandom(2), "little")))
            sock.recv(64)
    return act


def false_length(address):
    """Promises a frame of the largest size and goes silent, or goes away."""
    def act():
        with socket.create_connection(address, timeout=2) as sock:
            sock.sendall(struct.pack("<Q", 1 << 20) + b"\x01" + b" " * 5000)
            time.sleep(0.02)
    return act


class Pages(unittest.TestCase):
    """A descriptor is written once for each version of it, whoever asks for what part of it how often."""

    def page(self, address, start, length=4096):
        return json.loads(te.handshake(address, te.METADATA, json.dumps({"te": {"page": {"from": start, "max": length}}})))

    def test_written_once(self):
        with te.Peer() as peer:
            address = te.split_address(peer.segment)
            there = [peer.region(4096)[1] for _ in range(REGIONS)]
            whole = te.descriptor(address)
            pages = [self.page(address, start, length) for start in (0, 1, REGIONS // 2, REGIONS - 1, REGIONS, 10 * REGIONS)
                     for length in (1, 4096, 5000, 1 << 20)]
            self.assertEqual({p["timestamp"] for p in pages}, {whole["timestamp"]})
            self.assertEqual({p["te"]["version"] for p in pages}, {whole["te"]["version"]})
            for p in pages:
                start = p["te"]["page"]["from"]
                self.assertEqual(p["buffers"], whole["buffers"][start:start + p["te"]["page"]["count"]])
                self.assertTrue(p["buffers"] or start >= REGIONS)
            self.assertEqual(sorted(b["addr"] for b in whole["buffers"]), sorted(there))
            peer.region(4096)
            more = [self.page(address, start) for start in (0, 1, REGIONS)]
            self.assertEqual(len({p["timestamp"] for p in more} | {whole["timestamp"]}), 2)
            self.assertEqual({p["te"]["page"]["total"] for p in more}, {REGIONS + 1})


class Hostile(unittest.TestCase):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if hard < 2 * SLOW_CLIENTS + 200:
            te.skip(f"{hard} descriptors are too few for {2 * SLOW_CLIENTS} clients")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def handshakes(self, address):
        """They are answered while the slow clients are in the middle of theirs."""
        for _ in range(HANDSHAKES):
            for kind in (te.METADATA, te.PROBE):
                te.handshake(address, kind, "{}")

    def besiege(self, rpc, data):
        slow = [SlowClients(rpc, te.frame(te.METADATA, "{}" + " " * 4000), SLOW_CLIENTS),
                SlowClients(data, b"\x40" + b"\0" * 23, SLOW_CLIENTS)]
        return slow, [Nuisance(s.drip) for s in slow] + [
            Nuisance(act) for act in (rubbish(rpc), rubbish(data), false_length(rpc))]

    def test_work_goes_on(self):
        with te.Target() as target:
            rpc = te.split_address(target.segment)
            data = (rpc[0], te.descriptor(rpc)["tcp_data_port"])
            before = target.sockets()
            slow, nuisances = self.besiege(rpc, data)
            try:
                worker = te.Proc([te.tool("transfer_engine_bench"), "--metadata_server=P2PHANDSHAKE",
                                  "--local_server_name=127.0.0.1", f"--segment_id={target.segment}",
                                  "--protocol=tcp", "--verify", "--batches=200", te.FOREVER,
                                  "--threads=2", "--batch_size=4", "--buffer_size=8M"])
                self.handshakes(rpc)
                self.assertEqual(worker.wait(), 0, worker)
                for nuisance in nuisances:
                    te.until(lambda n=nuisance: n.rounds > 0, "a round of each nuisance")
                self.assertRegex(worker.output(), r"(?m)^Verified: [1-9]\d* bytes, 0 errors$")
                worker.close()
                # A new engine gets in as well.
                proc = te.bench(target.segment)
                self.assertEqual(proc.rc, 0, proc)
            finally:
                for nuisance in nuisances:
                    nuisance.end()
                for s in slow:
                    s.close()
            self.assertTrue(all(n.rounds > 0 for n in nuisances))
            target.wait_sockets(before + 4)
            proc = te.bench(target.segment, "--verify", "--batches=2")
            self.assertEqual(proc.rc, 0, proc)
            self.assertEqual(target.stop(), 0, target)


if __name__ == "__main__":
    te.main()
