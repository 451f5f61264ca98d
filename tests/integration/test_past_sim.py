#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""Version 0.1, as it was recorded, under the simulation of today: it runs, and what it did wrong is found."""
import os
import re
import subprocess
import unittest

import te_past as past
import te_proc as te

SIM = os.path.join(te.BUILD, "tests", "sim", "sim")


class Past(unittest.TestCase):
    def test_older_bytes_are_found(self):
        library = os.path.join(past.past().build, "lib")
        r = subprocess.run([SIM, "--from=20", "--seeds=13", "--jobs=2", "--no-shrink", "--fabrics=0"], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, env={"LD_LIBRARY_PATH": library}, check=False)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertRegex(r.stderr, r"torn: byte \d+ of slot")
        done = re.search(r"(\d+) completed", r.stdout)
        self.assertIsNotNone(done, r.stdout)
        self.assertGreater(int(done[1]), 0)


if __name__ == "__main__":
    if not os.path.exists(SIM):
        te.skip("there is no simulation: it needs glibc")
    unittest.main(verbosity=2)
