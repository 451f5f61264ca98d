#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one build tree with ctest and judges the skipped ones.

A test that exits 77 is skipped. In CI (the environment has CI=true) a skipped test that is labelled
"required" is a failure; elsewhere it is named and forgiven.

Tests share the machine with each other, and some watch how real processes keep up. So when at most
MAX_AGAIN tests fail, and not by the report of a sanitizer, those run a second time, one by one. What
passes then is named as unsteady, which is a defect of that test, and counted as passed. Unit tests and
lint get no second run. The last line counts: N passed, N failed, N skipped.
Arguments after the build tree go to ctest, for example -L unit or -R tcp.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

MAX_AGAIN = 3
SANITIZER_REPORT = re.compile(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:")


def without_address_randomisation():
    """The thread sanitizer cannot map its shadow where the kernel randomises too many bits."""
    wrapper = ["setarch", platform.machine(), "-R"]
    try:
        ok = subprocess.run(wrapper + ["true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        ok = False
    return wrapper if ok else []


def is_thread_sanitized(build):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
        return any(line.startswith("TE_SANITIZE:") and "thread" in line for line in f)


def labels_of(build):
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                         capture_output=True, text=True, check=True).stdout
    labels = {}
    for test in json.loads(out).get("tests", []):
        for prop in test.get("properties", []):
            if prop["name"] == "LABELS":
                labels[test["name"]] = prop["value"]
    return labels


class Result:
    """Of one test: passed, failed or skipped, and what it wrote."""
    def __init__(self, case):
        self.text = (case.findtext("system-out") or "").strip()
        self.state = "passed"
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            self.state = "skipped"
        if case.find("failure") is not None or case.get("status") == "fail":
            self.state = "failed"

    def last_line(self):
        return self.text.splitlines()[-1] if self.text else "no reason given"


def run_ctest(build, jobs, *arguments):
    """(exit status, {test: Result}); no results if there was nothing to run."""
    report = os.path.abspath(os.path.join(build, "tests.xml"))
    if os.path.exists(report):
        os.unlink(report)
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
               "--no-label-summary", "--output-junit", report, "-j", str(jobs), *arguments]
    if is_thread_sanitized(build):
        command = without_address_randomisation() + command
    rc = subprocess.run(command, check=False).returncode
    cases = ElementTree.parse(report).getroot().iter("testcase") if os.path.exists(report) else ()
    return rc, {case.get("name"): Result(case) for case in cases}


def deserves_another(name, result, labels):
    return not {"unit", "lint"} & set(labels.get(name, [])) and not SANITIZER_REPORT.search(result.text)


def run_again(build, results, labels):
    """Puts the second result in the place of the first; whether nothing has failed then."""
    failed = sorted(name for name, result in results.items() if result.state == "failed")
    again = [name for name in failed if deserves_another(name, results[name], labels)]
    if not failed or len(failed) > MAX_AGAIN:
        return False
    for name in again:
        print(f"again, alone: {name}", flush=True)
        _, alone = run_ctest(build, 1, "-R", f"^{re.escape(name)}$")
        if name in alone and alone[name].state == "passed":
            results[name] = alone[name]
            print(f"unsteady: {name} failed beside other tests and passed alone; its first output stands above")
    return all(results[name].state != "failed" for name in failed)


def judge_skips(results, labels):
    """The required tests that were skipped where that is not allowed."""
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    refused = []
    for name, result in sorted(results.items()):
        if result.state != "skipped":
            continue
        required = "required" in labels.get(name, [])
        print(f"skipped{' (required)' if required else ''}: {name}: {result.last_line()}")
        if required and strict:
            refused.append(name)
    for name in refused:
        print(f"failed: {name} may not be skipped in CI: make it run, or mark it 'te-test: optional'")
    return refused


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build tree, for example build or build/asan")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1,
                        help="tests at a time; many of them wait more than they compute")
    args, rest = parser.parse_known_args()

    rc, results = run_ctest(args.build, args.jobs, *rest)
    if not results:
        return rc or 1
    labels = labels_of(args.build)
    if rc and run_again(args.build, results, labels):
        rc = 0
    refused = judge_skips(results, labels)
    count = {state: sum(1 for r in results.values() if r.state == state)
             for state in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed'] + len(refused)} failed, "
          f"{count['skipped'] - len(refused)} skipped")
    return 1 if rc or refused else 0


if __name__ == "__main__":
    sys.exit(main())
