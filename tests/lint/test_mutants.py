#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel
"""Each mutant of tests/mutants/list.txt applies to this tree, and is one of its operator."""
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "mutants"))
import mutate  # noqa: E402


class Mutants(unittest.TestCase):
    def setUp(self):
        self.mutants = mutate.frozen()

    def test_the_list(self):
        n = mutate.EACH * len(mutate.OPERATORS)
        self.assertEqual([m.number for m in self.mutants], [f"{i + 1:03}" for i in range(n)])
        for i, operator in enumerate(mutate.OPERATORS):
            self.assertEqual({m.operator for m in self.mutants[i * mutate.EACH:(i + 1) * mutate.EACH]}, {operator})

    def test_each_applies(self):
        for m in self.mutants:
            with self.subTest(m.number):
                text = m.applied()
                self.assertIsNotNone(text, "its function has changed: tests/mutants/mutate.py --again draws another one")
                self.assertNotEqual(text, mutate.read(m.path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
