#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""scripts/sweep.py and scripts/demo_record.py, which record what pictures of docs/pictures show, still do so."""
import os
import unittest

import te_proc as te


def script(name):
    return os.path.join(te.SRC, "scripts", name)


def record(test, name, *words):
    """The rows that it writes."""
    file = os.path.join(te.Workdir.get(), "rows.csv")
    env = {**os.environ, "TE_BIN": te.BIN}
    done = te.call(script(name), *words, file, env=env, timeout=10 * te.HANG_S)
    test.assertEqual(done.returncode, 0, done.stderr)
    with open(file, encoding="ascii") as f:
        first, *rows = f.read().splitlines()
    test.assertTrue(first.startswith(f"# scripts/{name}"), first)
    return rows


class Recorders(unittest.TestCase):
    def test_sweep(self):
        if not os.path.exists(os.path.join(te.BUILD, "tests", "bench", "raw_pingpong")):
            te.skip("raw_pingpong is not built")
        for seconds in (0.05, 0.5, 5):  # in the least of which nothing may come on a machine that stalls
            rows = [[float(n) for n in row.split(",")]
                    for row in record(self, "sweep.py", "--rounds=1", f"--seconds={seconds}")]
            if min(rows[0]) > 0:
                break
        self.assertEqual([row[0] for row in rows], [4096, 16384, 65536, 262144, 1048576, 4194304])
        for row in rows:
            self.assertEqual(len(row), 7)
            self.assertLessEqual(row[4], row[5])  # p50 and p99
        self.assertGreater(min(rows[0]), 0)  # of the largest none may have come within the time

    def test_demo(self):
        rows = [row.split(",", 1) for row in record(self, "demo_record.py")]
        times = [float(seconds) for seconds, _ in rows]
        self.assertEqual(times, sorted(times))
        self.assertEqual(rows[0][1], "$ make demo")
        self.assertEqual(sum(line.endswith("  ok") for _, line in rows), 9)
        self.assertRegex(rows[-1][1], r"^demo: \d+ bytes verified, 0 errors$")

    def test_words(self):
        for name in ("demo_record.py", "topology.py"):
            for words, status in ((("--help",), 0), (("a", "b"), 2)):
                done = te.call(script(name), *words)
                self.assertEqual(done.returncode, status)
                self.assertIn(f"Usage: scripts/{name} [FILE]", done.stdout)


if __name__ == "__main__":
    te.main()
