# SPDX-License-Identifier: Apache-2.0
"""Engines that find each other by a metadata server, by the HTTP client that the wheel brings."""

import os
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import transfer_engine as te
from mooncake.engine import TransferEngine
from support import HANG_S, HOST, Case, digest


class Http(Case):
    def setUp(self):
        server = os.path.join(os.environ.get("TE_TEST_BIN", ""), "te_metad")
        if not os.path.exists(server):
            self.skipTest("TE_TEST_BIN does not say where te_metad is")
        self.server = subprocess.Popen(
            [server, f"--addr={HOST}:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(self.stop)
        for line in self.server.stdout:
            port = re.search(r"listening on \S+:(\d+)$", line.rstrip())
            if port:
                break
        self.url = f"http://{HOST}:{port.group(1)}/metadata"

    def stop(self):
        self.server.terminate()
        self.server.stdout.close()
        self.server.wait(HANG_S)

    def test_both_interfaces(self):
        peer = self.peer(metadata=self.url, name="store", address=HOST)
        remote = peer.register(length=5000, seed=1)
        local = bytearray(5000)
        with te.Engine(self.url, name="reader", address=HOST) as engine, engine.register(local):
            engine.open("store").read(local, remote)
            self.assertEqual(peer.digest(address=remote, offset=0, length=5000), digest(local))
        compatible = TransferEngine()
        self.assertEqual(compatible.initialize(HOST, self.url, "tcp", ""), 0)
        self.addCleanup(compatible._shut)
        local[:] = os.urandom(5000)
        self.assertEqual(compatible.register_memory(local, 5000), 0)
        self.assertEqual(compatible.transfer_sync_write("store", local, remote, 5000), 0)
        self.assertEqual(peer.digest(address=remote, offset=0, length=5000), digest(local))


    def get(self, key):
        return urllib.request.urlopen(f"{self.url}?key=mooncake/{key}/ours", timeout=HANG_S)

    def test_closed_while_a_view_lives(self):
        """Peers find nothing any more; the end of the process takes the name away, too."""
        program = (
            "import sys, transfer_engine as te\n"
            "e = te.Engine(sys.argv[1], name='ours', address='127.0.0.1')\n"
            "view = e.alloc(65536)\n"
            "e.register(view)\n"
            "e.close()\n"
            "view[:5] = b'still'\n"
            "print(flush=True)\n"
            "sys.stdin.readline()\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program, self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(child.stdout.close)
        self.assertEqual(child.stdout.readline(), "\n")
        with te.Engine(self.url, name="reader", address=HOST) as engine, engine.open("ours") as ours:
            self.assertEqual(ours.buffers(), [])
        child.stdin.close()
        self.assertEqual(child.wait(HANG_S), 0)
        for key in ("rpc_meta", "ram"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                self.get(key)
            self.assertEqual(caught.exception.code, 404)
            caught.exception.close()


if __name__ == "__main__":
    unittest.main()
