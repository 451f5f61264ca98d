#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=600
"""Runs scripts/steady.sh over a tree of three small tests: one good, one unsteady, one that is skipped."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
STEADY = os.path.join(ROOT, "scripts", "steady.sh")
TESTS = {
    "a/good": "echo ran >> good",
    "a/third": "echo ran >> third; test $(($(wc -l < third) % 3)) -ne 0 || { echo the third time; exit 1; }",
    "b/skips": "echo no such device; exit 77",
}

WHERE = """
import glob, os
loops = 0
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(path, "rb") as f, open(os.path.dirname(path) + "/environ", "rb") as own:
            loops += b"while os.getppid()" in f.read() and os.environb[b"TE_STEADY_TEST"] in own.read()
    except OSError:
        pass
print(os.nice(0), len(os.sched_getaffinity(0)), loops)
"""


BEGUN = 19  # where in stat() it says when the process has begun


def stat(pid):
    """What /proc tells of a process behind its name: state, parent, ...; nothing if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class SteadyTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="te-steady-")
        self.addCleanup(shutil.rmtree, self.root)
        self.write("CMakeCache.txt", "TE_SANITIZE:STRING=\n")
        self.tree(TESTS)

    def tree(self, tests):
        self.write("CTestTestfile.cmake", "".join(
            f'add_test({name} "sh" "-c" [=[{command}]=])\nset_tests_properties({name} PROPERTIES '
            f'SKIP_RETURN_CODE 77 WORKING_DIRECTORY "{self.root}")\n' for name, command in tests.items()))

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as f:
            f.write(text)

    def lines(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as f:
            return f.read().splitlines()

    def steady(self, *args):
        """(exit status, output)"""
        run = subprocess.run([STEADY, "--build", self.root, *args], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=1200, check=False,
                             env={**os.environ, "TE_STEADY_TEST": self.root})  # tells our loops from others
        return run.returncode, run.stdout

    def test_all_conditions(self):
        rc, text = self.steady("-n", "2")
        self.assertEqual(rc, 1, text)
        self.assertIn("---- failed: a/third, busy, run 1\nthe third time\n", text)
        self.assertIn("failed 2 of 8 runs: a/third\n", text)
        self.assertIn("skipped in every run: b/skips: no such device\n", text)
        self.assertEqual(text.splitlines()[-1], "16 runs of 2 tests, 2 failed")
        for condition in ("idle", "busy", "one-cpu", "nice"):
            self.assertIn(f"{condition}: run 2 of 2 has ended; ", text)
        self.assertEqual(self.lines("steady/busy-1-a.third.txt"), ["the third time"])
        self.assertEqual(len(self.lines("good")), 8)
        self.assertFalse(os.path.exists(os.path.join(self.root, "steady", "written")))

    def test_selects(self):
        """By name, which is no expression then, and by expression, in one condition."""
        self.tree({**TESTS, "a/good2": "echo ran >> good2"})
        rc, text = self.steady("-n", "3", "--conditions", "idle", "T=a/good", "T=^b")
        self.assertEqual((rc, text.splitlines()[-1]), (0, "3 runs of 1 tests, 0 failed"))
        self.assertFalse(os.path.exists(os.path.join(self.root, "good2")))
        self.assertEqual(self.steady("T=nothing")[0], 1)
        self.assertEqual(self.steady("--conditions", "hot")[0], 2)

    def test_short_ones(self):
        self.tree({"a/good": TESTS["a/good"], "a/long": "echo ran >> long; sleep 9"})
        for runs in (4, 7):  # one to measure, the first time
            rc, text = self.steady("-n", "3", "--conditions", "idle", "--max-seconds", "8")
            self.assertEqual(rc, 0, text)
            self.assertEqual((len(self.lines("good")), len(self.lines("long"))), (runs, 1))

    def test_where_they_run(self):
        self.write("where.py", WHERE)
        self.tree({"a/where": f"{sys.executable} where.py >> where"})
        nice, cpus, where = os.nice(0), len(os.sched_getaffinity(0)), {}
        for condition in ("idle", "busy", "one-cpu", "nice"):
            rc, text = self.steady("-n", "1", "--conditions", condition)
            self.assertEqual(rc, 0, text)
            where[condition] = [int(n) for n in self.lines("where")[-1].split()]
        self.assertEqual(where, {"idle": [nice, cpus, 0], "busy": [nice, cpus, 4], "one-cpu": [nice, 1, 0],
                                 "nice": [min(nice + 19, 19), cpus, 1]})

    def test_ended_from_outside(self):
        """Nothing of it stays behind."""
        self.tree({"a/waits": "echo $$ > waits; exec sleep 600"})
        run = subprocess.Popen([STEADY, "--build", self.root, "--conditions", "busy"], stdout=subprocess.DEVNULL)
        while not os.path.exists(os.path.join(self.root, "waits")) or not self.lines("waits"):
            self.assertIsNone(run.poll())
            time.sleep(0.01)
        children = [pid for pid in os.listdir("/proc") if pid.isdigit() and stat(pid)[1:2] == [str(run.pid)]]
        self.assertEqual(len(children), 5)  # ctest and four loops
        children += self.lines("waits")
        begun = {pid: stat(pid)[BEGUN:BEGUN + 1] for pid in children}
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=600), 130)
        for pid in children:  # or another one that has its number by now
            while begun[pid] and stat(pid)[BEGUN:BEGUN + 1] == begun[pid] and stat(pid)[:1] != ["Z"]:
                time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
