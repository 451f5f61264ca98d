#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one build tree with ctest and judges the skipped ones.

A test that exits 77 is skipped. In CI (the environment has CI=true) a skipped test that is labelled
"required" is a failure; elsewhere it is named and forgiven. What a test that passes has left out it says in lines
"left out: ...", which are shown at the end.

One failure is a failure: nothing runs a second time. What a sanitizer reports in any process of any test
is a file in BUILD/reports, is printed, and is a failure, too. The last line counts: N passed, N failed, N
skipped. scripts/steady.sh runs tests many times, to find the ones that do not always pass.

A test is named as unit/test_conf. The exact name of a test is that one test; anything else is a regular
expression that the name contains. Arguments that are not listed here go to ctest, for example -L unit.
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


def names_of(build):
    """Of all tests, in the order of the numbers that ctest gives them."""
    if not os.path.exists(os.path.join(build, "CTestTestfile.cmake")):
        sys.exit(f"{build} is no build tree with tests: `make tests` makes build/")
    return list(properties_of(build))


def select(words, names, build):
    """The numbers that ctest gives the tests of these names or expressions; all of them if there is no word."""
    numbers = set()
    for word in words or [""]:
        try:
            found = [names.index(word) + 1] if word in names else [
                i for i, name in enumerate(names, 1) if re.search(word, name)]
        except re.error as e:
            sys.exit(f"'{word}' is neither the name of a test nor a regular expression: {e}")
        if not found:
            sys.exit(f"no test is named '{word}', or contains that: ctest --test-dir {build} -N lists them")
        numbers.update(found)
    return sorted(numbers)


def only(numbers):
    """The arguments of ctest for these tests."""
    return ["-I", ",".join(map(str, [numbers[0], numbers[0], 1, *numbers[1:]]))]


def targets_of(words, names, build):
    """What has to be built before these tests run: each unit test is a target of its own."""
    chosen = [names[i - 1] for i in select(words, names, build)] if words and names else []
    if chosen and all(name.startswith("unit/") for name in chosen):
        return ["all", *(name.replace("/", "_") for name in chosen)]
    return ["all", "te_tests"]  # which says what is missing where there are no tests


def default_jobs():
    return len(os.sched_getaffinity(0)) + 2


class Result:
    """Of one test: passed, failed or skipped, how long it took, and what it wrote."""
    def __init__(self, case):
        skipped = case.find("skipped")
        self.text = (case.findtext("system-out") or "").strip()
        self.seconds = float(case.get("time") or 0)
        self.state = {"run": "passed", "disabled": "skipped"}.get(case.get("status"), "failed")
        if skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE"):
            self.state = "skipped"

    def left_out(self):
        """The parts of it that did not run, although it passed."""
        return re.findall(r"^left out: (.*)$", self.text, re.M) if self.state == "passed" else []

    def last_line(self):
        return self.text.splitlines()[-1] if self.text else "no reason given"


def ctest_command(build, jobs, report, *arguments):
    """Of a run that writes its results into the file `report`, which is not there yet."""
    if os.path.exists(report):
        os.unlink(report)
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
               "--no-label-summary", "--test-output-size-passed", str(1 << 20), "--output-junit", os.path.abspath(report), "-j", str(jobs), *arguments]
    return without_address_randomisation() + command if is_thread_sanitized(build) else command


def results_of(report):
    """{test: Result}; none if there was nothing to run."""
    cases = ElementTree.parse(report).getroot().iter("testcase") if os.path.exists(report) else ()
    return {case.get("name"): Result(case) for case in cases}


def sanitizer_reports(build):
    """Prints what processes of the tests have left there; the names."""
    folder = os.path.join(build, "reports")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        print(f"---- {os.path.join(folder, name)}")
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
            print(f.read())
    return names


def judge_skips(results, properties):
    """The required tests that were skipped where that is not allowed."""
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    refused = []
    for name, result in sorted(results.items()):
        for part in result.left_out():
            print(f"skipped in part: {name}: {part}")
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
    parser.add_argument("-j", "--jobs", type=int, default=default_jobs(),
                        help="tests at a time; many of them wait more than they compute")
    parser.add_argument("-T", "--test", action="append", metavar="NAME", help="these tests only; may be repeated")
    parser.add_argument("--targets", action="store_true",
                        help="print what has to be built for these tests, and run nothing")
    args, rest = parser.parse_known_args()
    names = names_of(args.build)
    if args.targets:
        print(*targets_of(args.test, names, args.build))
        return 0
    if args.test:
        rest += only(select(args.test, names, args.build))

    shutil.rmtree(os.path.join(args.build, "reports"), ignore_errors=True)
    report = os.path.join(args.build, "tests.xml")
    rc = subprocess.run(ctest_command(args.build, args.jobs, report, *rest), check=False).returncode
    results = results_of(report)
    if not results:
        return rc or 1
    properties = properties_of(args.build)
    reported = sanitizer_reports(args.build)
    refused = judge_skips(results, properties)
    count = {state: sum(1 for r in results.values() if r.state == state)
             for state in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed'] + len(refused)} failed, "
          f"{count['skipped'] - len(refused)} skipped")
    return 1 if rc or refused or reported else 0


if __name__ == "__main__":
    sys.exit(main())
