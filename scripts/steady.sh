#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests many times, on an idle machine and on bad ones, and lists each that failed even once.

A test is named as for make test: T=unit/test_conf, or without the T=. The exact name of a test is that one
test; anything else is a regular expression that the name contains. Several may be given; without any, all
tests run. They are to be built before (make tests). Each runs -n times in each of these conditions, side by side as scripts/run_tests.py runs them:

  idle      nothing else is started
  busy      beside four busy loops
  one-cpu   on one CPU
  nice      at nice 19, beside a loop that writes and syncs a file of 100 MiB in BUILD/steady

What failed is printed and is a file in BUILD/steady, named after the condition, the run and the test. So is
what a sanitizer reported. A test that was skipped in every run is named; a skipped run is no run. The status
is 1 if any run failed.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from run_tests import ctest_command, default_jobs, names_of, only, results_of, select

BUSY_LOOPS = 4
PROGRESS_SECONDS = 10
# Each ends by itself when this process is gone, even if that was killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"
WRITER = """
import os, sys
parent, piece = os.getppid(), os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as f:
    while os.getppid() == parent:
        f.seek(0)
        for i in range(100):
            f.write(piece)
            if i % 10 == 9:
                os.fsync(f.fileno())
"""
STARTED = re.compile(r"^\s*\d+/\d+ Test\s+#")


def one_cpu():
    return ["taskset", "-c", str(max(os.sched_getaffinity(0)))]


CONDITIONS = {  # name: (what ctest runs under, loops beside it)
    "idle": (lambda: [], lambda folder: []),
    "busy": (lambda: [], lambda folder: [[BUSY]] * BUSY_LOOPS),
    "one-cpu": (one_cpu, lambda folder: []),
    "nice": (lambda: ["nice", "-n", "19"], lambda folder: [[WRITER, os.path.join(folder, "written")]]),
}


class Children:
    """Processes that end, with what they have started, at the end of the `with`."""
    def __init__(self):
        self.all = []

    def start(self, command, **more):
        child = subprocess.Popen(command, start_new_session=True, **more)
        self.all.append(child)
        return child

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.all:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


class Record:
    """What became of the tests in all runs so far."""
    def __init__(self, build):
        self.build = build
        self.folder = os.path.join(build, "steady")
        self.began = time.monotonic()
        self.runs, self.skipped, self.failures = {}, {}, {}

    def failed(self):
        return sum(len(where) for where in self.failures.values())

    def say(self, what):
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        print(f"{what}; {self.failed()} failed so far; {minutes} min {seconds} s", flush=True)

    def fail(self, name, condition, run, text):
        path = os.path.join(self.folder, f"{condition}-{run}-{name.replace('/', '.')}.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text + "\n")
        self.failures.setdefault(name, []).append(f"{condition} run {run}: {path}")
        print(f"---- failed: {name}, {condition}, run {run}\n{text}\n----", flush=True)

    def add(self, condition, run, results):
        for name, result in sorted(results.items()):
            if result.state == "skipped":
                self.skipped[name] = result.last_line()
                continue
            self.runs[name] = self.runs.get(name, 0) + 1
            if result.state == "failed":
                self.fail(name, condition, run, result.text)
        self.add_reports(condition, run)

    def add_reports(self, condition, run):
        """Of sanitizers, which no test need have noticed."""
        folder = os.path.join(self.build, "reports")
        for report in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            with open(os.path.join(folder, report), encoding="utf-8", errors="replace") as f:
                self.fail(f"report {report}", condition, run, f.read())
        shutil.rmtree(folder, ignore_errors=True)

    def summary(self):
        for name, reason in sorted(self.skipped.items()):
            if name not in self.runs:
                print(f"skipped in every run: {name}: {reason}")
        for name, where in sorted(self.failures.items()):
            print(f"failed {len(where)} of {self.runs.get(name, '?')} runs: {name}")
            print("".join(f"    {line}\n" for line in where), end="")
        print(f"{sum(self.runs.values())} runs of {len(self.runs)} tests, {self.failed()} failed")


def run_once(record, children, numbers, prefix, title):
    """One run of the tests with these numbers of ctest; {test: Result}."""
    report = os.path.join(record.folder, "run.xml")
    command = prefix + ctest_command(record.build, default_jobs(), report, *only(numbers))
    ended, said = 0, time.monotonic()
    with open(os.path.join(record.folder, "ctest.log"), "w", encoding="utf-8") as log:
        ctest = children.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        for line in ctest.stdout:
            log.write(line)
            ended += STARTED.match(line) is not None
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                record.say(f"{title}, {ended} of {len(numbers)} tests have ended")
    ctest.wait()
    results = results_of(report)
    if len(results) < len(numbers):
        sys.exit(f"steady: {title}: ctest ran {len(results)} of {len(numbers)} tests: see {log.name}")
    return results


def run_condition(record, numbers, condition, n):
    prefix, loops = CONDITIONS[condition]
    with Children() as children:
        for loop in loops(record.folder):
            children.start([sys.executable, "-c", *loop])
        for run in range(1, n + 1):
            title = f"{condition}: run {run} of {n}"
            record.add(condition, run, run_once(record, children, numbers, prefix(), title))
            record.say(title + " has ended")
    written = os.path.join(record.folder, "written")
    if os.path.exists(written):
        os.unlink(written)


def only_short(record, names, numbers, seconds):
    """Those that took less, by the last report of run_tests.py, or else by a first run now."""
    known = {name: result.seconds for name, result in results_of(os.path.join(record.build, "tests.xml")).items()}
    path = os.path.join(record.folder, "seconds.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            known.update(json.load(f))
    unknown = [i for i in numbers if names[i - 1] not in known]
    if unknown:
        with Children() as children:
            results = run_once(record, children, unknown, [], "first run, to measure")
        record.add("first", 0, results)
        known.update({name: result.seconds for name, result in results.items()})
        with open(path, "w", encoding="utf-8") as f:
            json.dump(known, f, indent=0)
    short = [i for i in numbers if known[names[i - 1]] < seconds]
    print(f"{len(short)} of {len(numbers)} tests took less than {seconds:g} s")
    return short


def parse():
    parser = argparse.ArgumentParser(prog="scripts/steady.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="T=TEST", help="a name or a regular expression (default: all)")
    parser.add_argument("-n", type=int, default=10, help="runs in each condition (default: 10)")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), metavar="NAME,...", help="only these")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="only tests that took less when last measured")
    parser.add_argument("--build", default="build", help="build tree (default: build)")
    args = parser.parse_args()
    args.conditions = args.conditions.split(",")
    for condition in args.conditions:
        if condition not in CONDITIONS:
            parser.error(f"no such condition: {condition}: there are {', '.join(CONDITIONS)}")
    if args.n < 1:
        parser.error("-n must be at least 1")
    return args


def main():
    args = parse()
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: sys.exit(130))
    names = names_of(args.build)
    numbers = select([word[2:] if word.startswith("T=") else word for word in args.tests], names, args.build)
    record = Record(args.build)
    os.makedirs(record.folder, exist_ok=True)
    for name in os.listdir(record.folder):
        if name.endswith(".txt"):
            os.unlink(os.path.join(record.folder, name))
    shutil.rmtree(os.path.join(args.build, "reports"), ignore_errors=True)
    if args.max_seconds is not None:
        numbers = only_short(record, names, numbers, args.max_seconds)
    for condition in args.conditions if numbers else []:
        run_condition(record, numbers, condition, args.n)
    record.summary()
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(main())
