# SPDX-License-Identifier: Apache-2.0
"""The programs of README.md, as they stand there."""

import os
import re
import subprocess
import sys
import unittest

from support import HANG_S

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "README.md")


class Readme(unittest.TestCase):
    def test_programs_run(self):
        with open(README, encoding="utf-8") as f:
            programs = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
        self.assertEqual(len(programs), 4)
        for program in programs:
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)


if __name__ == "__main__":
    unittest.main()
