#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""Each fault that tests/fabric/sim/find_faults.py puts into the library applies to this tree, and docs/simulation.md
says what became of it."""
import os
import re
import shutil
import subprocess
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FAULTS = os.path.join(ROOT, "tests", "fabric", "sim", "faults")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Faults(unittest.TestCase):
    def setUp(self):
        self.names = sorted(name for name in os.listdir(FAULTS) if name.endswith(".patch"))
        self.assertGreater(len(self.names), 50)

    def test_each_applies(self):
        for name in self.names:
            with self.subTest(name):
                r = subprocess.run(["git", "apply", "--check", os.path.join(FAULTS, name)], cwd=ROOT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(r.returncode, 0, f"{r.stdout}make it anew, or take it away")

    def test_each_is_documented(self):
        rows = {tuple(cell.strip() for cell in line.split("|")[1:3])
                for line in read(os.path.join(ROOT, "docs", "simulation.md")).splitlines() if line.startswith("| ")}
        for name in self.names:
            with self.subTest(name):
                head = re.match(r"Where: (.+)\nFault: (.+)\n(?:With: --.+\n)?\n--- a/", read(os.path.join(FAULTS, name)))
                self.assertIsNotNone(head, "its head is not as find_faults.py reads it")
                self.assertIn((head[1], head[2]), rows)


if __name__ == "__main__":
    if not shutil.which("git"):
        print("there is no git")
        raise SystemExit(77)
    unittest.main(verbosity=2)
