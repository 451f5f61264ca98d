#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The long campaigns of a tree in which `make tests` has run; `make soak` does both.

Without --hours each of them (or of those that are named) runs whole, one after the other. With --hours they take
turns until that time is over, each time with other seeds, samples and inputs, and a table tells what has run: that of
docs/reliability.md. What each says is kept in build/soak/NAME.log. Exit 1 when one failed; the others still run.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build", "soak")
JOBS = os.cpu_count()


def now():
    return str(int(time.time()))


class Campaign(collections.namedtuple("Campaign", "name text whole turn figures")):
    """`whole` and `turn` are commands, or give one; figures: {what the table calls it: where an output has it}, of which
    the numbers are added up."""
    __slots__ = ()

    def command(self, takes_turns):
        command = self.turn if takes_turns else self.whole
        return command() if callable(command) else command


CAMPAIGNS = (
    Campaign("oom", "each allocation of each phase of an engine fails, alone and with all after it (about an hour)",
             ["python3", "tests/integration/test_oom.py", "--whole"], ["python3", "tests/integration/test_oom.py"],
             {"allocations that failed": r": (\d+) of about \d+ allocations"}),
    Campaign("calls", "each call of the system of each sort fails, alone and with all after it (about an hour)",
             ["python3", "tests/integration/test_calls.py", "--whole"], ["python3", "tests/integration/test_calls.py"],
             {"calls that failed": r": (\d+) of about \d+ calls"}),
    Campaign("late", "WRITEs that end early, towards a target that is stopped and goes on, 100,000 rounds of each framing "
                     "(75 minutes; 5,000 in a turn)",
             ["build/tests/integration/test_late_write", "100000"], ["build/tests/integration/test_late_write", "5000"],
             {"WRITEs that ended early": r"rounds, (\d+) WRITEs"}),
    Campaign("sim", "the simulation, with other seeds each time, until 2,000,000 batches have run (about an hour of a "
                    "processor; 1,000 seeds in a turn)",
             lambda: ["build/tests/sim/sim", "--batches=2000000", f"--from={now()}", f"--jobs={JOBS}"],
             lambda: ["build/tests/sim/sim", "--seeds=1000", f"--from={now()}", f"--jobs={JOBS}"],
             {"seeds": r"(?m)^sim: (\d+) seeds, \d+ failed; ", "batches": r"seeds, \d+ failed; (\d+) batches"}),
    Campaign("fuzz", "every fuzz target for an hour (60 s in a turn); what it finds new stays in build/fuzz/corpus",
             ["make", "fuzz", "FUZZ_SECONDS=3600"], ["make", "fuzz", "FUZZ_SECONDS=60"],
             {"inputs": r"stat::number_of_executed_units: +(\d+)"}),
)


def run(campaign, takes_turns):
    """(status, seconds, figures)"""
    command = campaign.command(takes_turns)
    print(f"soak: ---- {campaign.name}: {' '.join(command)}", flush=True)
    began, text = time.monotonic(), []
    with open(os.path.join(LOGS, campaign.name + ".log"), "a", encoding="utf-8") as log, subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as p:
        for line in p.stdout:
            log.write(line)
            text.append(line)
            if not takes_turns:
                print(line, end="", flush=True)
    took, found = time.monotonic() - began, {}
    for what, pattern in campaign.figures.items():
        found[what] = sum(int(n) for n in re.findall(pattern, "".join(text)))
    print(f"soak: ---- {campaign.name} {'FAILED' if p.returncode else 'ok'}, {took:.0f} s: "
          + ", ".join(f"{n:,} {what}" for what, n in found.items()), flush=True)
    if p.returncode:
        print("".join(text[-40:]), end="", flush=True)
    return p.returncode, took, found


class Total:
    def __init__(self):
        self.turns = self.failed = 0
        self.seconds = 0.0
        self.figures = collections.Counter()

    def add(self, status, took, found):
        self.turns += 1
        self.failed += status != 0
        self.seconds += took
        self.figures.update(found)


def table(campaigns, totals):
    print("| Campaign | Hours | Turns | What has run | Turns that failed |\n| --- | --- | --- | --- | --- |")
    for c in campaigns:
        t = totals[c.name]
        print(f"| {c.name} | {t.seconds / 3600:.2f} | {t.turns} | "
              f"{', '.join(f'{n:,} {what}' for what, n in t.figures.items())} | {t.failed} |")
    print(f"soak: {sum(t.seconds for t in totals.values()) / 3600:.2f} hours, {JOBS} processors, "
          f"{sum(t.failed for t in totals.values())} failed", flush=True)


def parse():
    names = "".join(f"  {c.name:5}  {c.text}\n" for c in CAMPAIGNS)
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", description=__doc__, epilog=names,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="prints their names")
    parser.add_argument("--hours", type=float, help="they take turns for so long")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of those below; default: all")
    args = parser.parse_args()
    for name in args.names:
        if name not in [c.name for c in CAMPAIGNS]:
            parser.error(f"no campaign '{name}' (see --list)")
    return args


def main():
    args = parse()
    campaigns = [c for c in CAMPAIGNS if not args.names or c.name in args.names]
    if args.list:
        print("\n".join(c.name for c in CAMPAIGNS))
        return 0
    os.makedirs(LOGS, exist_ok=True)
    for c in campaigns:
        open(os.path.join(LOGS, c.name + ".log"), "w", encoding="utf-8").close()
    totals, until = {c.name: Total() for c in campaigns}, time.monotonic() + 3600 * (args.hours or 0)
    while True:
        for c in campaigns:
            totals[c.name].add(*run(c, args.hours is not None))
            if args.hours is not None and time.monotonic() >= until:
                break
        if time.monotonic() >= until:
            break
    table(campaigns, totals)
    return 1 if any(t.failed for t in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
