#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one build tree with ctest and judges the skipped ones.

A test that exits 77 is skipped. In CI (the environment has CI=true) a skipped test that is labelled
"required" is a failure; elsewhere it is named and forgiven. The last line counts: N passed, N failed.
Arguments after the build tree go to ctest, for example -L unit or -R tcp.
"""
import argparse
import json
import os
import platform
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


def labels_of(build):
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                         capture_output=True, text=True, check=True).stdout
    labels = {}
    for test in json.loads(out).get("tests", []):
        for prop in test.get("properties", []):
            if prop["name"] == "LABELS":
                labels[test["name"]] = prop["value"]
    return labels


def results_of(path):
    """name -> (state, last line of output), state one of passed, failed, skipped"""
    results = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        text = (case.findtext("system-out") or "").strip().splitlines()
        state = "passed"
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            state = "skipped"
        if case.find("failure") is not None or case.get("status") == "fail":
            state = "failed"
        results[case.get("name")] = (state, text[-1] if text else "no reason given")
    return results


def judge_skips(results, labels):
    """The required tests that were skipped where that is not allowed."""
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    refused = []
    for name, (state, why) in sorted(results.items()):
        if state != "skipped":
            continue
        required = "required" in labels.get(name, [])
        print(f"skipped{' (required)' if required else ''}: {name}: {why}")
        if required and strict:
            refused.append(name)
    for name in refused:
        print(f"failed: {name} may not be skipped in CI: make it run, or mark it 'te-test: optional'")
    return refused


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build tree, for example build or build/asan")
    parser.add_argument("-j", "--jobs", default=str(len(os.sched_getaffinity(0)) + 2),
                        help="tests at a time; many of them wait more than they compute")
    args, rest = parser.parse_known_args()

    report = os.path.abspath(os.path.join(args.build, "tests.xml"))
    if os.path.exists(report):
        os.unlink(report)
    command = ["ctest", "--test-dir", args.build, "--output-on-failure", "--no-tests=error",
               "--no-label-summary", "--output-junit", report, "-j", args.jobs] + rest
    if is_thread_sanitized(args.build):
        command = without_address_randomisation() + command
    rc = subprocess.run(command).returncode
    if not os.path.exists(report):
        return rc or 1

    results = results_of(report)
    refused = judge_skips(results, labels_of(args.build))
    count = {state: sum(1 for r in results.values() if r[0] == state)
             for state in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed'] + len(refused)} failed, "
          f"{count['skipped'] - len(refused)} skipped")
    return 1 if rc or refused else 0


if __name__ == "__main__":
    sys.exit(main())
