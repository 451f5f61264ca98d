# SPDX-License-Identifier: Apache-2.0
"""The programs of README.md, as they stand there."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

from support import HANG_S, HOST

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "README.md")
# Ahead of a program: each engine that it makes listens on the address of this host alone.
LISTENING = """
import os, socket, transfer_engine

made = transfer_engine.Engine.__init__

def listens(fd):
    try:
        with socket.socket(fileno=os.dup(int(fd))) as s:
            if s.family != socket.AF_UNIX and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return s.getsockname()[0]
    except OSError:  # it is no socket
        pass

def checked(self, *args, **kwargs):
    made(self, *args, **kwargs)
    places = [place for place in map(listens, os.listdir("/proc/self/fd")) if place]
    assert len(places) > 1 and set(places) == {"127.0.0.1"}, places

transfer_engine.Engine.__init__ = checked
"""


def programs(readme=README):
    """The text of each block of Python, in their order."""
    with open(readme, encoding="utf-8") as f:
        return re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)


class Readme(unittest.TestCase):
    def setUp(self):
        if not importlib.util.find_spec("numpy"):
            self.skipTest("no numpy")

    def runs(self, program, *arguments):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", LISTENING + program, *arguments],
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), program)
        return done.stdout

    def test_programs_run(self):
        alone = [p for p in programs() if "sys.argv" not in p]
        self.assertEqual(len(alone), 8)
        for program in alone:
            if "import torch" not in program:
                self.runs(program)

    def test_the_program_of_the_projects_page(self):
        page = os.path.join(os.environ.get("TE_TEST_SRC", ""), "README.md")
        if not os.path.exists(page):
            self.skipTest("TE_TEST_SRC does not say where README.md is")
        (program,) = programs(page)
        self.runs(program)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
    def test_torch(self):
        (program,) = [p for p in programs() if "import torch" in p]
        self.runs(program)

    def test_two_hosts(self):
        target, reader = [p for p in programs() if "sys.argv" in p]
        with subprocess.Popen(
            [sys.executable, "-c", target, HOST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as served:
            told = served.stdout.readline().split()
            self.assertEqual(
                self.runs(reader, HOST, *told), "4194304 bytes, the last element is 1048575\n"
            )
            served.communicate("\n", HANG_S)
        self.assertEqual(served.returncode, 0)


if __name__ == "__main__":
    unittest.main()
