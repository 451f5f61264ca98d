#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the lab, tests/lab/test_*, in virtual machines with SoftRoCE NICs.

A test is a file. A test_NAME.py runs on this host: its function test(machine) has guests do things, by
tests/lab/te_lab.py. A test_NAME.sh runs in the guests, in each of them at once with `on=all`; exit status 77
says that it cannot, with the reason in its last line. A line in the first 40 may say, after "lab:", any of

    guests=N nics=N cpus=N mem=MIB   what the machine is to have at least; guests and cpus exactly
    timeout=SECONDS                  of this test (120)
    on=all                           see above
    spoils                           the machine is of no use to tests after it
    optional                         may be skipped in CI

Tests that can share a machine do, and the next test after one that failed gets a new one. A test has a second
try if the machine itself failed: a guest died, or one does not answer any more. That is told, too.
"""
import argparse
import dataclasses
import fcntl
import glob
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
import traceback

import te_lab

MACHINE_WORDS = [field.name for field in dataclasses.fields(te_lab.Wants)]
TEST_S = 120
TOTAL_S = 1800
IN_CI = os.environ.get("CI") == "true"


class Deadline(Exception):
    """The time of a test, or of all, is over."""


class Test:
    """One file, and what its header says."""

    def __init__(self, path):
        self.path = path
        self.name = re.sub(r"^test_|\.(py|sh)$", "", os.path.basename(path))
        with open(path, encoding="utf-8") as f:
            head = [line for _, line in zip(range(40), f)]
        self.words = {}
        for line in head:
            match = re.match(r"^#\s*lab:(.*)$", line)
            for word in match.group(1).split() if match else []:
                key, _, value = word.partition("=")
                self.words[key] = value
        unknown = set(self.words) - {*MACHINE_WORDS, "timeout", "on", "spoils", "optional"}
        if unknown:
            raise SystemExit(f"{path}: unknown words after 'lab:': {' '.join(sorted(unknown))}")
        self.wants = te_lab.Wants(**{k: int(v) for k, v in self.words.items() if k in MACHINE_WORDS})
        self.timeout = int(self.words.get("timeout", TEST_S))

    def run(self, machine):
        if self.path.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"lab_{self.name}", self.path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.test(machine)
        else:
            self.run_script(machine)

    def run_script(self, machine):
        guests = machine.guests if self.words.get("on") == "all" else machine.guests[:1]
        # Sourced, so that it can call what guest.sh has; the argument is for a bash that says where it is.
        jobs = [guest.start_job(f"set -euo pipefail\n. {self.path}") for guest in guests]
        for job in jobs:
            rc = job.wait(self.timeout)
            if rc == 77:
                raise te_lab.Skip((job.output().strip().split("\n") or ["?"])[-1])
            if rc:
                raise AssertionError(str(job))
        for job in jobs:
            print(job.output(), end="")


def group(tests):
    """Lists of tests that can share a machine, and what it has, in the order of their names."""
    groups = []
    for test in tests:
        for wants, members in groups:
            if (wants.guests, wants.per_guest()) == (test.wants.guests, test.wants.per_guest()):
                members.append(test)
                break
        else:
            groups.append((test.wants, [test]))
    return [(te_lab.Wants(wants.guests, max(t.wants.nics for t in members), wants.cpus,
                          max(t.wants.mem for t in members)), sorted(members, key=lambda t: "spoils" in t.words))
            for wants, members in groups]


class Runner:
    def __init__(self, cache, until):
        self.cache, self.until = cache, until
        self.machine = None
        self.failed, self.skipped, self.passed = [], [], []

    def close(self):
        if self.machine:
            self.machine.close()
        self.machine = None

    def boot(self, wants):
        begun = time.monotonic()
        self.machine = te_lab.Machine(wants, self.cache)
        self.machine.start()
        print(f"lab: a machine of {wants.guests} x {wants.per_guest()} CPUs, {wants.nics} NICs, {wants.mem} MiB is up "
              f"after {time.monotonic() - begun:.1f} s", flush=True)

    def run_group(self, wants, tests):
        try:
            for test in tests:
                print(f"lab: ---- {test.name}", flush=True)
                good = self.run_one(wants, test)
                if good is None:
                    self.close()
                    good = self.run_one(wants, test, last=True)
                if not good or "spoils" in test.words:
                    self.close()
        finally:
            self.close()

    def limited(self, wants, test):
        """Within its time, and that of all tests."""
        if not self.machine:
            signal.alarm(te_lab.BOOT_S + 30)
            self.boot(wants)
        signal.alarm(max(1, min(test.timeout, int(self.until - time.monotonic()))))
        test.run(self.machine)
        signal.alarm(30)
        self.machine.clear()

    def machine_failed(self, test, e, begun):
        """Whether it was the machine, and not the test."""
        try:
            signal.alarm(90)
            ails = str(e) if isinstance(e, te_lab.Trouble) else self.machine and self.machine.ails()
        except Deadline:
            ails = "it does not even tell"
        finally:
            signal.alarm(0)
        if ails:
            print(f"unsteady: the machine of {test.name} failed after {time.monotonic() - begun:.1f} s: {ails}", flush=True)
        return bool(ails)

    def run_one(self, wants, test, last=False):
        """True if the machine is as it was; None if it is to be tried again, with another machine."""
        begun = time.monotonic()
        try:
            self.limited(wants, test)
            self.tell(test, self.passed, "ok", begun)
            return True
        except te_lab.Skip as e:
            needed = IN_CI and "optional" not in test.words
            self.tell(test, self.failed if needed else self.skipped, f"skipped: {e}", begun)
        except Exception as e:  # whatever a test does wrong, the next one has its turn
            signal.alarm(0)
            if not last and self.machine_failed(test, e, begun):
                return None
            if not isinstance(e, (AssertionError, te_lab.Trouble, Deadline)):
                traceback.print_exc()
            self.tell(test, self.failed, f"FAILED: {e}", begun)
            if self.machine and not isinstance(e, te_lab.Trouble):
                print("".join(guest.last_words() for guest in self.machine.guests), end="", flush=True)
        finally:
            signal.alarm(0)
        return False

    @staticmethod
    def tell(test, where, result, begun):
        where.append(test.name)
        print(f"lab: {test.name}: {time.monotonic() - begun:.1f} s, {result}", flush=True)


def prepare():
    """The folder of kernel and initrd. Ends the program where they cannot be had."""
    done = subprocess.run([os.path.join(te_lab.HERE, "prepare.sh")], stdout=subprocess.PIPE, text=True, timeout=600,
                          check=False)
    if done.returncode == 77 and not IN_CI:
        print("lab: skipped, see above")
    if done.returncode:
        sys.exit(1 if IN_CI else done.returncode)
    return done.stdout.strip()


def take_turn(cache):
    """Two labs at once take more than twice as long, and run into their limits. The file that holds the lock."""
    lock = open(os.path.join(cache, "turn"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("lab: waits for another one on this machine", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def show(job, shown=0):
    """Prints what a job writes as it comes; its exit status."""
    while True:
        status = job.status()
        text = job.output()
        print(text[shown:], end="", flush=True)
        shown = len(text)
        if status is not None:
            return status
        job.guest.check()
        time.sleep(0.05)


def by_hand(cache, wants, commands):
    """A machine for commands: "1: ip addr" goes to guest 1, what has no number to guest 0. The last status."""
    machine, status = te_lab.Machine(wants, cache), 0
    try:
        machine.start()
        for line in commands:
            match = re.match(r"^([01]): *(.*)$", line.rstrip("\n"), re.S)
            number, command = (int(match.group(1)), match.group(2)) if match else (0, line)
            if command.strip():
                status = show(machine.guests[number].start_job(f"exec 2>&1\n{command}"))
        return status
    finally:
        machine.close()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tests")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="not this test")
    parser.add_argument("--list", action="store_true", help="name the tests and what they want, and run none")
    parser.add_argument("--do", metavar="COMMAND", help="run this in a guest instead of tests; - reads lines")
    parser.add_argument("--guests", type=int, default=1, help="of the machine for --do (1)")
    parser.add_argument("--nics", type=int, default=2, help="likewise (2)")
    parser.add_argument("--total", type=int, default=TOTAL_S, help=f"seconds for everything ({TOTAL_S})")
    return parser.parse_args()


def on_alarm(*_):
    raise Deadline("its time is over")


def on_signal(number, _):
    raise SystemExit(128 + number)


def work(arguments, tests, cache):
    until = time.monotonic() + arguments.total
    if arguments.do:
        commands = sys.stdin if arguments.do == "-" else [arguments.do]
        return by_hand(cache, te_lab.Wants(arguments.guests, arguments.nics), commands)
    runner = Runner(cache, until)
    for wants, members in group(tests):
        runner.run_group(wants, members)
    for what, names in (("skipped", runner.skipped), ("FAILED", runner.failed)):
        if names:
            print(f"lab: {what}: {' '.join(names)}")
    print(f"lab: {len(runner.passed)} passed, {len(runner.failed)} failed, {len(runner.skipped)} skipped, "
          f"{time.monotonic() + arguments.total - until:.0f} s")
    return 1 if runner.failed else 0


def main():
    arguments = parse_arguments()
    tests = [Test(path) for path in sorted(glob.glob(os.path.join(te_lab.HERE, "test_*.*")))
             if re.search(r"\.(py|sh)$", path)]
    unknown = {*arguments.names, *arguments.without} - {test.name for test in tests}
    if unknown:
        raise SystemExit(f"lab: no test {', '.join(sorted(unknown))}; --list tells which there are")
    tests = [test for test in tests if not arguments.names or test.name in arguments.names]
    tests = [test for test in tests if test.name not in arguments.without]
    if arguments.list:
        for test in tests:
            print(f"{test.name}: {test.wants}, {test.timeout} s")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGALRM, on_alarm)
    cache = prepare()
    with take_turn(cache):
        return work(arguments, tests, cache)


if __name__ == "__main__":
    sys.exit(main())
