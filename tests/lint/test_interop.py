#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""docs/compat.md holds the rows that tests/interop makes of its cases, and each case says why it differs."""
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "interop"))

import run  # noqa: E402
from cases import CASES  # noqa: E402


class InteropTest(unittest.TestCase):
    def test_rows_are_those_of_the_cases(self):
        self.maxDiff = None
        self.assertEqual(run.rows_of_page(), run.rows(CASES),
                         "put what tests/interop/run.sh --markdown prints between the marks of docs/compat.md")

    def test_names(self):
        names = [case.name for case in CASES]
        self.assertEqual(len(set(names)), len(names))
        for case in CASES:
            self.assertRegex(case.name, r"^[a-z0-9-]+$")
            self.assertNotIn("|", case.what + case.why)


if __name__ == "__main__":
    unittest.main(verbosity=2)
