#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""The systemd unit of te_metad: systemd takes it, it is hardened, and its command line is a good one."""
import os
import re
import shlex
import shutil
import unittest

import te_proc as te
from metad_server import Server, ask

UNIT = os.path.join(te.SRC, "service", "te_metad.service")
EXPOSURE_MAX = 15  # of 100, ten times what systemd-analyze prints


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Unit(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            te.skip("systemd-analyze is not installed (package systemd)")
        self.path = os.path.join(te.Workdir.get(), "te_metad.service")
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(read(UNIT).replace("ExecStart=te_metad", f"ExecStart={te.tool('te_metad')}"))

    def test_verify(self):
        run = te.call("systemd-analyze", "verify", "--man=no", self.path)
        self.assertEqual((run.returncode, [line for line in run.stderr.splitlines() if "te_metad" in line]), (0, []),
                         run.stderr)

    def test_security(self):
        run = te.call("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager",
                      self.path)
        if "unrecognized option" in run.stderr:
            te.skip("this systemd-analyze judges no file (systemd 250 is needed)")
        self.assertEqual(run.returncode, 0, run.stdout[-300:] + run.stderr)


class Command(unittest.TestCase):
    def test_options(self):
        """What unit and /etc/default say is what the server takes."""
        options = re.search(r'^METAD_OPTIONS="(.*)"$', read(os.path.join(te.SRC, "service", "te_metad.default")), re.M)[1]
        self.assertIn(f"\nEnvironment=METAD_OPTIONS={options}\n", read(UNIT))
        command = re.search(r"^ExecStart=te_metad (.*)$", read(UNIT), re.M)[1]
        folder = os.path.join(te.Workdir.get(), "state")
        os.mkdir(folder)
        flags = shlex.split(command.replace("%S", folder).replace("$METAD_OPTIONS", options))
        self.assertEqual(flags, [f"--data-dir={folder}/te_metad", "--addr=127.0.0.1:8080"])
        with Server(flags[0]) as server:  # at a port of its own: another test may have this one
            self.assertEqual(server.once(ask, "GET", "/health")[:2], (200, b"ok"))
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    te.main()
