#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one build tree with ctest and judges the skipped ones.

A test that exits 77 is skipped. In CI (the environment has CI=true) a skipped test that is labelled
"required" is a failure; elsewhere it is named and forgiven.

Tests share the machine with each other, and some watch how real processes keep up. So where at most
MAX_AGAIN have failed an assertion beside others, each runs a second time, alone. What passes then is
named as unsteady, which is a defect of that test, and counted as passed. Unit tests and lint get no
second run, nor does a crash, a test that hangs, or anything at all if a process of any test has made a
sanitizer report: those are files in BUILD/reports, and printed. A test that fails an assertion leaves its
memory behind, so reports of leaks alone, no more of them than tests have failed, do not keep these from a
second run, in which nothing may leak. The last line counts: N passed, N failed, N skipped.
Arguments after the build tree go to ctest, for example -L unit or -R tcp.
"""
import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

MAX_AGAIN = 3
FAILED_HOW = re.compile(r"^\s+\d+ - (\S+) \((.+)\)\s*$")  # of ctest's list at the end


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


def properties_of(build):
    """{test: {property: value}}"""
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                         capture_output=True, text=True, check=True).stdout
    return {test["name"]: {p["name"]: p["value"] for p in test.get("properties", [])}
            for test in json.loads(out).get("tests", [])}


class Result:
    """Of one test: passed, failed (and how, in ctest's word) or skipped, and what it wrote."""
    def __init__(self, case, how):
        skipped = case.find("skipped")
        self.text = (case.findtext("system-out") or "").strip()
        self.how = how or "not run"
        self.state = {"run": "passed", "disabled": "skipped"}.get(case.get("status"), "failed")
        if skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE"):
            self.state = "skipped"

    def last_line(self):
        return self.text.splitlines()[-1] if self.text else "no reason given"


def run_ctest(build, jobs, report, *arguments):
    """(exit status, {test: Result}); no results if there was nothing to run."""
    report = os.path.abspath(os.path.join(build, report))
    if os.path.exists(report):
        os.unlink(report)
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
               "--no-label-summary", "--output-junit", report, "-j", str(jobs), *arguments]
    if is_thread_sanitized(build):
        command = without_address_randomisation() + command
    how = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            print(line, end="", flush=True)
            found = FAILED_HOW.match(line)
            if found:
                how[found[1]] = found[2]
    cases = ElementTree.parse(report).getroot().iter("testcase") if os.path.exists(report) else ()
    return ctest.returncode, {case.get("name"): Result(case, how.get(case.get("name"))) for case in cases}


def deserves_another(result, properties):
    return (result.how == "Failed" and not properties.get("RUN_SERIAL") and
            not {"unit", "lint"} & set(properties.get("LABELS", [])))


def run_again(build, results, properties):
    """Puts second results in the place of the first ones; whether nothing has failed then."""
    failed = sorted(name for name, result in results.items() if result.state == "failed")
    if not 0 < len(failed) <= MAX_AGAIN or not all(deserves_another(results[n], properties[n]) for n in failed):
        return False
    for name in failed:
        print(f"again, alone: {name}", flush=True)
        _, alone = run_ctest(build, 1, "again.xml", "-R", f"^{re.escape(name)}$")
        if name in alone and alone[name].state == "passed":
            results[name] = alone[name]
            print(f"unsteady: {name} failed beside other tests and passed alone; its first output stands above")
    return all(results[name].state != "failed" for name in failed)


def sanitizer_reports(build):
    """Prints what processes of the tests have left there; the names."""
    folder = os.path.join(build, "reports")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        print(f"---- {os.path.join(folder, name)}")
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
            print(f.read())
    return names


def is_leak(build, name):
    with open(os.path.join(build, "reports", name), encoding="utf-8", errors="replace") as f:
        text = f.read()
    return text.count("ERROR: ") == 1 and "ERROR: LeakSanitizer" in text and "runtime error" not in text


def forget_leaks(build, names, results):
    """Whether all reports may be what failed assertions have left behind; then they are taken away."""
    failed = sum(1 for result in results.values() if result.state == "failed")
    if len(names) > failed or not all(is_leak(build, name) for name in names):
        return False
    shutil.rmtree(os.path.join(build, "reports"), ignore_errors=True)
    return True


def judge_skips(results, properties):
    """The required tests that were skipped where that is not allowed."""
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    refused = []
    for name, result in sorted(results.items()):
        if result.state != "skipped":
            continue
        required = "required" in properties[name].get("LABELS", [])
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
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 2,
                        help="tests at a time; many of them wait more than they compute")
    args, rest = parser.parse_known_args()

    shutil.rmtree(os.path.join(args.build, "reports"), ignore_errors=True)
    rc, results = run_ctest(args.build, args.jobs, "tests.xml", *rest)
    if not results:
        return rc or 1
    properties = properties_of(args.build)
    crowded = args.jobs > 1 and len(results) > 1 and "--repeat" not in rest
    reported = sanitizer_reports(args.build)
    if rc and crowded and forget_leaks(args.build, reported, results):
        rc = 0 if run_again(args.build, results, properties) else rc
        reported = sanitizer_reports(args.build)
    refused = judge_skips(results, properties)
    count = {state: sum(1 for r in results.values() if r.state == state)
             for state in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed'] + len(refused)} failed, "
          f"{count['skipped'] - len(refused)} skipped")
    return 1 if rc or refused or reported else 0


if __name__ == "__main__":
    sys.exit(main())
