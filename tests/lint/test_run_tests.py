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

    def run_tests(self, *tests, ci=False, more=()):
        """(exit status, output) over tests of (name, label, shell command)."""
        with open(os.path.join(self.root, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
            for name, label, command in tests:
                f.write(f'add_test({name} "sh" "-c" [=[{command}]=])\n'
                        f'set_tests_properties({name} PROPERTIES LABELS "{label};required" SKIP_RETURN_CODE 77 '
                        f'WORKING_DIRECTORY "{self.root}")\n')
        env = {**os.environ, "CI": "true" if ci else ""}
        run = subprocess.run([sys.executable, RUNNER, self.root, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env=env, timeout=600, check=False)
        return run.returncode, run.stdout

    def counts(self, tests, rc, passed, failed, skipped=0, **more):
        got, text = self.run_tests(*tests, **more)
        self.assertEqual(got, rc, text)
        self.assertEqual(text.splitlines()[-1], f"{passed} passed, {failed} failed, {skipped} skipped", text)
        return text

    def test_all_pass(self):
        self.counts([("a/x", "unit", "true"), ("b/y", "integration", "true")], 0, 2, 0)

    def test_one_failure_is_a_failure(self):
        """Even if a second run would pass."""
        text = self.counts([("b/x", "integration", "true"), ("b/y", "integration", ONCE)], 1, 1, 1)
        self.assertIn("too slow", text)

    def test_selects(self):
        tests = [("unit/a", "unit", "true"), ("unit/ab", "unit", "true"), ("c/x", "c", "false")]
        self.counts(tests, 0, 1, 0, more=("-T", "unit/a"))  # a name in full, and no expression then
        self.counts(tests, 0, 2, 0, more=("-T", "^unit/"))
        self.counts(tests, 1, 1, 1, more=("-T", "unit/a", "-T", "x$"))
        for word in ("unit/a,", "nosuch"):
            rc, text = self.run_tests(*tests, more=("-T", "unit/ab", "-T", word))
            self.assertEqual((rc, text), (1, f"no test is named '{word}', or contains that: "
                                             f"ctest --test-dir {self.root} -N lists them\n"))
        self.assertIn("nor a regular expression", self.run_tests(*tests, more=("-T", "("))[1])

    def test_targets(self):
        tests = [("unit/a", "unit", "true"), ("c/x", "c", "false")]
        for words, targets in ((("unit/a",), "all unit_a"), (("unit/a", "c/x"), "all te_tests"), ((), "all te_tests")):
            more = [argument for word in words for argument in ("-T", word)]
            self.assertEqual(self.run_tests(*tests, more=("--targets", *more)), (0, targets + "\n"))
        self.assertEqual(self.run_tests(more=("--targets", "-T", "unit/a")), (0, "all te_tests\n"))  # which says why

    def test_sanitizer_report(self):
        """One by any process counts, even if the test passes."""
        report = f"mkdir -p {self.root}/reports; echo WARNING: ThreadSanitizer: data race > {self.root}/reports/x.1"
        text = self.counts([("b/x", "integration", report), ("b/y", "integration", "true")], 1, 2, 0)
        self.assertIn("data race", text)

    def test_skips(self):
        skips = [("b/x", "integration", "echo no such device; exit 77"), ("b/y", "integration", "true")]
        self.assertIn("skipped (required): b/x: no such device", self.counts(skips, 0, 1, 0, 1))
        self.assertIn("failed: b/x may not be skipped", self.counts(skips, 1, 1, 1, 0, ci=True))

    def test_parts_that_are_left_out(self):
        """They are told of, however much the test has said after that; of tests that fail it is no matter."""
        much = "yes said | head -n 5000"
        text = self.counts([("b/x", "integration", f"echo left out: no linter; {much}"),
                            ("b/y", "integration", "echo left out: no printer; exit 1")], 1, 1, 1, ci=True)
        self.assertIn("\nskipped in part: b/x: no linter\n", text)
        self.assertNotIn("skipped in part: b/y", text)


if __name__ == "__main__":
    unittest.main()
