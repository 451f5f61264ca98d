#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""The examples with torch."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_examples as examples  # noqa: E402
import te_proc as te  # noqa: E402


def setUpModule():
    examples.prepare()


class Torch(unittest.TestCase):
    def test_prefill_and_decode(self):
        """By either interface the answers are those of one process, and pages of what was given up are used again."""
        python = examples.python_with("torch")
        for words in ("", "--mooncake"):
            with examples.start("pd_disaggregation", python=python, words=words) as program:
                self.assertEqual(program.wait(4 * te.HANG_S), 0, program)
                self.assertEqual(program.errors, [], program)
                first, given_up, answers = program.lines
            self.assertRegex(first, r"^first token after [\d.]+ ms; [\d.]+ ms where layers go while later ones compute$")
            self.assertRegex(given_up, r"^given up with [1-9]\d* layers unsent; 17 of its 17 pages in use again$")
            self.assertEqual(answers, "11 answers of 8 tokens, all as in one process")

    def test_tensors(self):
        python = examples.python_with("torch")
        self.assertRegex(examples.says(self, "tensors.py", python),
                         r"^1118272 bytes in 4 tensors of (cpu|cuda); the models answer the same$")


if __name__ == "__main__":
    te.main()
