#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""What tests/lab/run.py makes of tests that go well, fail, cannot run, and take too long; without machines."""
import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "lab"))
import run  # pylint: disable=wrong-import-position
import te_lab  # pylint: disable=wrong-import-position


class Machine:
    """In place of one with guests."""
    booted = []

    def __init__(self, wants, _cache):
        self.wants, self.guests, self.closed = wants, [], False
        Machine.booted.append(self)

    def start(self):
        if self.wants.nics == 13:
            raise te_lab.Trouble("does not boot")

    def clear(self):
        pass

    def ails(self):
        return "a guest is gone" if self.wants.mem == 3000 and len(Machine.booted) == 1 else None

    def close(self):
        self.closed = True


class Lab(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te-lab-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(setattr, te_lab, "Machine", te_lab.Machine)
        self.addCleanup(setattr, run, "IN_CI", run.IN_CI)
        te_lab.Machine, run.IN_CI, Machine.booted = Machine, False, []

    def write(self, name, head, body="pass"):
        path = os.path.join(self.folder, f"test_{name}.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"# lab: {head}\nimport time\nimport te_lab\n\ndef test(machine):\n    {body}\n")
        return run.Test(path)

    def run_all(self, *tests, seconds=3600):
        runner, self.said = run.Runner("no cache", time.monotonic() + seconds), io.StringIO()
        with contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
            for wants, members in run.group(tests):
                runner.run_group(wants, members)
        self.assertTrue(all(machine.closed for machine in Machine.booted))
        return runner.passed, runner.failed, runner.skipped

    def test_each_ends_as_it_ends(self):
        tests = [self.write("good", ""), self.write("bad", "", "assert False, 'so bad'"),
                 self.write("broken", "", "undefined()"), self.write("cannot", "", "raise te_lab.Skip('no such thing')"),
                 self.write("last", "")]
        self.assertEqual(self.run_all(*tests), (["good", "last"], ["bad", "broken"], ["cannot"]))
        self.assertRegex(self.said.getvalue(), r"good: \d+\.\d s, ok")
        for text in ("FAILED: so bad", "undefined", "skipped: no such thing"):
            self.assertIn(text, self.said.getvalue())
        self.assertEqual(len(Machine.booted), 4)  # the first, and one after each that did not go well

    def test_skipping_fails_in_ci(self):
        run.IN_CI = True
        tests = [self.write("needed", "", "raise te_lab.Skip('x')"), self.write("not", "optional", "raise te_lab.Skip('x')")]
        self.assertEqual(self.run_all(*tests), ([], ["needed"], ["not"]))

    def test_machines_are_shared(self):
        tests = [self.write("a", "nics=2 spoils"), self.write("b", "nics=4"), self.write("c", "guests=2"),
                 self.write("d", "mem=4096")]
        self.assertEqual(self.run_all(*tests)[0], ["b", "d", "a", "c"])
        self.assertEqual([(m.wants.guests, m.wants.nics, m.wants.mem) for m in Machine.booted],
                         [(1, 4, 4096), (2, 2, 2048)])

    def test_time_is_limited(self):
        self.assertEqual(self.run_all(self.write("slow", "timeout=1", "time.sleep(3600)"), self.write("next", "")),
                         (["next"], ["slow"], []))
        self.assertIn("its time is over", self.said.getvalue())

    def test_a_machine_that_does_not_boot(self):
        self.assertEqual(self.run_all(self.write("first", "nics=13"), self.write("second", "")),
                         ([], ["first", "second"], []))
        self.assertIn("does not boot", self.said.getvalue())

    def test_a_machine_that_fails_has_one_more_try(self):
        once = "assert machine.__class__.booted[1:], 'so bad'"
        self.assertEqual(self.run_all(self.write("unlucky", "mem=3000", once)), (["unlucky"], [], []))
        self.assertIn("unsteady: the machine of unlucky failed", self.said.getvalue())
        self.assertEqual(self.run_all(self.write("bad", "mem=3000", "assert False, 'so bad'")), ([], ["bad"], []))

    def test_unknown_words(self):
        with self.assertRaisesRegex(SystemExit, "unknown words.*guest"):
            self.write("x", "guest=2")

    def test_the_headers_of_all(self):
        folder = os.path.join(ROOT, "tests", "lab")
        tests = [run.Test(os.path.join(folder, n)) for n in sorted(os.listdir(folder)) if n.startswith("test_")]
        self.assertIn("conformance", [test.name for test in tests])
        # A limit is a few times what its test takes, and all tests fit into the limit of all.
        self.assertLess(max(test.timeout for test in tests), run.TOTAL_S)
        self.assertLess(sum(test.timeout for test in tests), 3 * run.TOTAL_S)


if __name__ == "__main__":
    run.signal.signal(run.signal.SIGALRM, run.on_alarm)
    unittest.main()
