#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A maker of devices is one file of at most 300 lines and one row, docs/gpu.md counts the lines of each as they are, and
the kit for hosts with devices looks for the libraries that the engine opens."""
import glob
import os
import re
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import makers  # noqa: E402

PLAT = os.path.join(ROOT, "src", "plat")
MOST = 300


def lines(name):
    with open(os.path.join(PLAT, name), encoding="utf-8") as f:
        return sum(1 for _ in f)


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


class Makers(unittest.TestCase):
    def test_a_maker_is_one_short_file(self):
        files = {os.path.basename(p) for p in glob.glob(os.path.join(PLAT, "mem_*.c"))} - {"mem_host.c"}
        apis = set(re.findall(r"\btei_api_(\w+)", text("src", "plat", "makers.c")))
        self.assertEqual(files, {f"mem_{api}.c" for api in apis})
        for name in files:
            self.assertLessEqual(lines(name), MOST, name)

    def test_every_kind_has_a_row(self):
        kinds = re.findall(r"^ +X\((\w+), \"\w+\"\)", text("src", "model", "model.h"), re.M)
        rows = re.findall(r"\[TEI_MEM_(\w+)\] = MAKER\(", text("src", "plat", "makers.c"))
        self.assertGreaterEqual(len(kinds), 6)
        self.assertEqual(sorted(kinds), sorted(rows))

    def test_the_page_counts_them(self):
        page = text("docs", "gpu.md")
        self.assertEqual(page, makers.filled(page), "run make docs")
        for name in glob.glob(os.path.join(PLAT, "mem_*.c")):
            if os.path.basename(name) != "mem_host.c":
                self.assertIn(f"| `{os.path.basename(name)}` | {lines(name)} |", page)

    def test_a_page_without_a_place_for_them_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no lines"):
            makers.filled("# A page\n" + makers.BEGIN)

    def test_the_kit_looks_for_the_same_libraries(self):
        ours = set(re.findall(r'"(lib\w+\.so[.\d]*)"', text("src", "plat", "makers.c")))
        kinds = re.search(r'^kinds="(.*?)"$', text("tests", "device", "run.sh"), re.M | re.S).group(1)
        theirs = {name for line in kinds.splitlines() for name in line.split()[1].split(",")}
        self.assertGreaterEqual(len(ours), 10)
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
