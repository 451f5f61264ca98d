# SPDX-License-Identifier: Apache-2.0
"""The modules of the shim that are programs, by `python -m` and by the names that the wheel installs."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import transfer_engine as te
from support import HANG_S, HOST, Case, digest

TOOLS = os.environ.get("TE_TEST_BIN", "")
MATRIX = {"cpu:0": [["nic7"], []], "cpu:1": [[], ["nic7"]]}


def run(name, *flags, **variables):
    return subprocess.run(
        [sys.executable, "-m", f"mooncake.{name}", *flags],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


class MetadataServer(Case):
    def setUp(self):
        if not os.path.exists(os.path.join(TOOLS, "te_metad")):
            self.skipTest("TE_TEST_BIN does not say where te_metad is")

    def serve(self, *flags):
        server = subprocess.Popen(
            [sys.executable, "-m", "mooncake.http_metadata_server", "--port", "0", *flags],
            env={**os.environ, "PATH": TOOLS},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.stop, server)
        return server

    def stop(self, server):
        server.terminate()
        self.assertEqual(server.wait(HANG_S), 0)
        server.stdout.close()

    def test_engines_find_each_other(self):
        for host in (HOST, "::1"):
            server = self.serve("--host", host)
            line = next(line for line in server.stdout if "listening on" in line)
            url = f"http://{re.search(r'listening on (.*:[0-9]+)$', line.rstrip()).group(1)}/metadata"
            peer = self.peer(metadata=url, name="store", address=HOST)
            remote = peer.register(length=5000, seed=1)
            local = bytearray(5000)
            with te.Engine(url, name="reader", address=HOST) as engine, engine.register(local):
                engine.open("store").read(local, remote)
            self.assertEqual(peer.digest(address=remote, offset=0, length=5000), digest(local))

    def test_flags(self):
        self.assertEqual(run("http_metadata_server", "--log-level", "LOUD").returncode, 2)
        self.assertEqual(run("http_metadata_server", "--port", "x").returncode, 2)
        self.assertIn("--log-level", run("http_metadata_server", "--help").stdout)
        wrong = run("http_metadata_server", "--port", "99999", "--host", HOST, PATH=TOOLS)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("99999", wrong.stderr)

    def test_without_te_metad(self):
        done = run("http_metadata_server", PATH="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("te_metad is not in PATH: install", done.stderr)


class TopologyDump(Case):
    def dump(self, *flags, **variables):
        """(what is said to be shown, the matrix)"""
        done = run("transfer_engine_topology_dump", *flags, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        what, text = re.fullmatch(r"Local topology \[(.*?)\]: (.*)", done.stdout, re.S).groups()
        return what, json.loads(text)

    def test_what_is_here(self):
        with te.Engine(name=HOST, options={"MC_CUSTOM_TOPO_JSON": ""}) as engine:
            here = json.loads(engine.topology())
        for flags in ((), ("--backend", "te"), ("--device-name", "")):
            self.assertEqual(self.dump(*flags), ("te/discover", here))

    def test_a_matrix_of_ones_own(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(MATRIX, f)
            f.flush()
            custom = (f"te/custom ({f.name})", MATRIX)
            variable = {"MC_CUSTOM_TOPO_JSON": f.name}
            self.assertEqual(self.dump("--custom-topo-json", f.name), custom)
            self.assertEqual(self.dump("--use-custom-topo", **variable), custom)
            self.assertEqual(self.dump(**variable)[0], "te/discover")
            self.assertNotEqual(self.dump(**variable)[1], MATRIX)

    def test_what_cannot_be(self):
        for flags, code, told in (
            (("--backend", "tent"), 2, "no TENT"),
            (("--backend", "other"), 2, "invalid choice"),
            (("--custom-topo-json", "/nonexistent/matrix"), 1, "/nonexistent/matrix cannot be read"),
        ):
            done = run("transfer_engine_topology_dump", *flags)
            self.assertEqual((done.returncode, done.stdout), (code, ""))
            self.assertIn(told, done.stderr)


class Scripts(unittest.TestCase):
    def test_names(self):
        folder = os.path.dirname(sys.executable)
        for name in ("mooncake_http_metadata_server", "transfer_engine_topology_dump"):
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                self.skipTest("the wheels are not installed here")
            done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=HANG_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"usage: {name}", done.stdout)


if __name__ == "__main__":
    unittest.main()
