#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs scripts/run_tests.py over trees of small tests, some of which fail."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RUNNER = os.path.join(ROOT, "scripts", "run_tests.py")
ONCE = "test -e again || { touch again; echo too slow; exit 1; }"


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="te-run-tests-")
        self.addCleanup(shutil.rmtree, self.root)
        with open(os.path.join(self.root, "CMakeCache.txt"), "w", encoding="utf-8") as f:
            f.write("TE_SANITIZE:STRING=\n")

    def run_tests(self, *tests, ci=False):
        """(exit status, output) over tests of (name, label, shell command)."""
        with open(os.path.join(self.root, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
            for name, label, command in tests:
                f.write(f'add_test({name} "sh" "-c" [=[{command}]=])\n'
                        f'set_tests_properties({name} PROPERTIES LABELS "{label};required" SKIP_RETURN_CODE 77 '
                        f'WORKING_DIRECTORY "{self.root}")\n')
        env = {**os.environ, "CI": "true" if ci else ""}
        run = subprocess.run([sys.executable, RUNNER, self.root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env=env, timeout=60, check=False)
        return run.returncode, run.stdout

    def counts(self, tests, rc, passed, failed, skipped=0, **more):
        got, text = self.run_tests(*tests, **more)
        self.assertEqual(got, rc, text)
        self.assertEqual(text.splitlines()[-1], f"{passed} passed, {failed} failed, {skipped} skipped", text)
        return text

    def test_all_pass(self):
        text = self.counts([("a/x", "unit", "true"), ("b/y", "integration", "true")], 0, 2, 0)
        self.assertNotIn("unsteady", text)

    def test_fails_beside_others(self):
        text = self.counts([("b/x", "integration", "true"), ("b/y", "integration", ONCE)], 0, 2, 0)
        self.assertIn("unsteady: b/y", text)
        self.assertIn("too slow", text)

    def test_fails_twice(self):
        self.assertNotIn("unsteady", self.counts([("b/x", "integration", "exit 1"), ("b/y", "transport", "true")],
                                                 1, 1, 1))

    def test_no_second_run(self):
        """Of unit tests, of what crashed or was not there, of one alone, and when many fail."""
        fine = ("b/fine", "integration", "true")
        for bad in (("a/x", "unit", ONCE), ("b/x", "transport", "test -e again || { touch again; kill -ABRT $$; }"),
                    ("b/x", "transport", "test -e again || { touch again; kill -SEGV $$; }")):
            self.counts([bad, fine], 1, 1, 1)
            os.unlink(os.path.join(self.root, "again"))
        self.counts([("b/x", "integration", ONCE)], 1, 0, 1)
        self.counts([(f"b/{i}", "integration", f"test -e {i} || {{ touch {i}; exit 1; }}") for i in range(4)], 1, 0, 4)

    def test_sanitizer_report(self):
        """One by any process counts, even if the test passes."""
        report = f"mkdir -p {self.root}/reports; echo WARNING: ThreadSanitizer: data race > {self.root}/reports/x.1"
        text = self.counts([("b/x", "integration", report), ("b/y", "integration", "true")], 1, 2, 0)
        self.assertIn("data race", text)
        text = self.counts([("b/x", "integration", report), ("b/y", "integration", ONCE)], 1, 1, 1)
        self.assertNotIn("again, alone", text)

    def test_leak_of_a_failed_assertion(self):
        """It may be no more than that; a second run without one tells."""
        leak = (f"mkdir -p {self.root}/reports; echo ==1==ERROR: LeakSanitizer: detected memory leaks "
                f"> {self.root}/reports/x.$$")
        fine = ("b/fine", "integration", "true")
        text = self.counts([("b/x", "integration", f"test -e again || {{ touch again; {leak}; exit 1; }}"), fine], 0, 2, 0)
        self.assertIn("unsteady: b/x", text)
        os.unlink(os.path.join(self.root, "again"))
        self.counts([("b/x", "integration", f"{leak}; test -e again || {{ touch again; exit 1; }}"), fine], 1, 2, 0)
        os.unlink(os.path.join(self.root, "again"))
        text = self.counts([("b/x", "integration", f"{leak}; true"), ("b/y", "integration", "true")], 1, 2, 0)
        self.assertNotIn("again, alone", text)
        other = f"{leak}; echo ==2==ERROR: AddressSanitizer: heap-use-after-free >> {self.root}/reports/x.$$"
        text = self.counts([("b/x", "integration", f"test -e again || {{ touch again; {other}; exit 1; }}"), fine], 1, 1, 1)
        self.assertNotIn("again, alone", text)

    def test_skips(self):
        skips = [("b/x", "integration", "echo no such device; exit 77"), ("b/y", "integration", "true")]
        self.assertIn("skipped (required): b/x: no such device", self.counts(skips, 0, 1, 0, 1))
        self.assertIn("failed: b/x may not be skipped", self.counts(skips, 1, 1, 1, 0, ci=True))


if __name__ == "__main__":
    unittest.main()
