#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional timeout=1200
"""The example with tensors of torch, where that is installed."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_examples as examples  # noqa: E402
import te_proc as te  # noqa: E402


class Torch(unittest.TestCase):
    def test_tensors(self):
        python = examples.python_with("torch")
        examples.prepare()
        self.assertEqual(examples.says(self, "tensors.py", python),
                         "1118272 bytes in 4 tensors; the models answer the same")


if __name__ == "__main__":
    te.main()
