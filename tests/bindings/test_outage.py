#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/outage.py, which records what docs/pictures/outage.svg shows, still does so."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_proc as te  # noqa: E402

SCRIPT = os.path.join(te.SRC, "scripts", "outage.py")
LIBRARY = os.path.join(te.BUILD, "lib", "libtransfer_engine.so")


class Outage(unittest.TestCase):
    def test_record(self):
        if not os.path.exists(LIBRARY):
            te.skip(f"{LIBRARY} is not built")
        file = os.path.join(te.Workdir.get(), "outage.csv")
        with te.Proc([sys.executable, SCRIPT, file], env={"TRANSFER_ENGINE_LIBRARY": LIBRARY}) as proc:
            status = proc.wait()
        if status == 77:
            te.skip(proc.errors[-1])
        self.assertEqual((status, proc.errors), (0, []), proc)
        with open(file, encoding="ascii") as f:
            rows = [[float(n) for n in line.split(",")] for line in f if not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], [step / 5 for step in range(50)])
        self.assertGreater(sum(row[1] for row in rows), 0)

    def test_words(self):
        for words, status in ((("--help",), 0), (("a", "b"), 2)):
            done = te.call(sys.executable, SCRIPT, *words)
            self.assertEqual(done.returncode, status)
            self.assertIn("Usage: scripts/outage.py [FILE]", done.stdout)


if __name__ == "__main__":
    te.main()
