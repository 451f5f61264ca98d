#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""Each patch of tests/bench, for scripts/bench_pairs.py, applies to this tree, and what it changes compiles."""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ["TE_TEST_BUILD"]


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def commands():
    """{source: (the folder where it is compiled, how)}"""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
        return {os.path.relpath(c["file"], ROOT): (c["directory"], shlex.split(c["command"])) for c in json.load(f)}


class Patches(unittest.TestCase):
    def compiles(self, source, tree):
        """in the copy, without a file that comes of it"""
        folder, words = commands()[source]
        words = [word.replace(os.path.join(ROOT, "src"), os.path.join(tree, "src")) for word in words]
        del words[words.index("-o"):words.index("-o") + 2]
        self.assertIn(os.path.join(tree, source), words)
        r = run(*words, "-fsyntax-only", "-Werror", cwd=folder)
        self.assertEqual(r.returncode, 0, r.stdout)

    def test_each(self):
        patches = sorted(glob.glob(os.path.join(ROOT, "tests", "bench", "*.patch")))
        self.assertIn("uncounted.patch", [os.path.basename(path) for path in patches])
        for path in patches:
            with self.subTest(path), tempfile.TemporaryDirectory() as tree:
                shutil.copytree(os.path.join(ROOT, "src"), os.path.join(tree, "src"))
                r = run("git", "apply", path, cwd=tree)
                self.assertEqual(r.returncode, 0, f"{r.stdout}make it anew, or take it away")
                with open(path, encoding="utf-8") as f:
                    changed = re.findall(r"^\+\+\+ b/(src/\S+\.c)$", f.read(), re.M)
                self.assertTrue(changed)
                for source in set(changed) & set(commands()):  # a transport may be left out of this build
                    self.compiles(source, tree)


if __name__ == "__main__":
    if not shutil.which("git"):
        print("there is no git")
        raise SystemExit(77)
    unittest.main(verbosity=2)
