#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel
"""Each proof of tests/proofs is in the table of its README.md, with the options that run.py reads, and each fault that
shows that they can fail is, too, and applies to this tree. CBMC is not needed."""
import os
import re
import shutil
import subprocess
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROOFS = os.path.join(ROOT, "tests", "proofs")
FAULTS = os.path.join(PROOFS, "faults")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def names(folder, end):
    return sorted(name[:-len(end)] for name in os.listdir(folder) if name.endswith(end))


class Proofs(unittest.TestCase):
    def setUp(self):
        self.rows = [re.findall(r"(?<=\| ).+?(?= \|)", line) for line in read(PROOFS, "README.md").splitlines()
                     if line.startswith("| `")]

    def test_table_of_proofs(self):
        self.assertEqual([row[0].strip("`") for row in self.rows if len(row) == 5], names(PROOFS, ".c"))

    def test_options(self):
        for name in names(PROOFS, ".c"):
            with self.subTest(name):
                self.assertRegex(read(PROOFS, name + ".c"), r"\n/\* proof: (--[^\n]+ )?\*/\n")

    def test_table_of_faults(self):
        told = []
        for name in names(FAULTS, ".patch"):
            head = re.match(r"Proof: (\w+)\nFault: (.+)\n\n--- a/", read(FAULTS, name + ".patch"))
            self.assertIsNotNone(head, f"the head of {name} is not as run.py reads it")
            self.assertIn(head[1], names(PROOFS, ".c"), f"{name}: there is no such proof")
            told.append([f"`{name}`", head[2], f"`{head[1]}`"])
        self.assertEqual([row for row in self.rows if len(row) == 3], told)

    @unittest.skipUnless(shutil.which("git"), "there is no git")
    def test_faults_apply(self):
        for name in names(FAULTS, ".patch"):
            with self.subTest(name):
                r = subprocess.run(["git", "apply", "--check", os.path.join(FAULTS, name + ".patch")], cwd=ROOT,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                self.assertEqual(r.returncode, 0, f"{r.stdout}make it anew, or take it away")


if __name__ == "__main__":
    unittest.main(verbosity=2)
