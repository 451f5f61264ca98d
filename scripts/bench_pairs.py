#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets two builds of the engine side by side, to see what a change costs.

Each row is a measure of te_micro. A pair runs it with both builds, one right after the other, and the
build that goes first changes from pair to pair: what changes a machine's speed for longer than a second
changes both. The ratio of a pair is above 1 where AFTER is better. A row has the median of all ratios
and the interval that holds the true median with a probability of 95 % or more, by order statistics: nothing
is assumed of how the ratios are spread. "WORSE" is said where that whole interval lies beyond --beyond
per cent. The status is 0 whatever the figures are: a benchmark reports, it asserts nothing.

BEFORE and AFTER are build trees with the programs of the benchmark (make tests), for example a second clone of an
older commit and this one; or a file: a copy of this tree with that patch, which is built first, some minutes.
tests/bench/uncounted.patch says of itself what it takes away.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import patched

SECONDS = "0.3"  # of a measure by time


@dataclass(frozen=True)
class Row:
    """A run of te_micro, and the field of its line that counts."""

    part: str
    what: str
    arguments: tuple
    field: str
    op: str = ""  # of the line, where the program prints one for each operation
    more_is_better: bool = True

    def value_of(self, lines):
        for line in lines:
            if line.get("op", "") == self.op and self.field in line:
                return line[self.field]
        raise ValueError(f"te_micro printed no {self.field} for {self.what}")

    def ratio(self, before, after):
        return after / before if self.more_is_better else before / after


def throughput(part, name, *arguments):
    arguments += ("--seconds", SECONDS, "throughput")
    return [Row(part, f"{name} {op}", arguments, "gb_s", op) for op in ("read", "write")]


def processor(part, name, *arguments):
    """Microseconds that the one who asks needs a request: they waver less than the rate on a busy machine."""
    return [Row(part, f"{row.what}, CPU", row.arguments, "cpu_us", row.op, more_is_better=False)
            for row in throughput(part, name, *arguments)]


def latency(part, name, *arguments):
    return [Row(part, f"{name} p50", arguments + ("--seconds", SECONDS, "latency"), "p50_us", more_is_better=False)]


def submit(name, *arguments):
    return [Row("submit", name, ("--transport", "tcp") + arguments, "ns_request", more_is_better=False)]


def rows():
    tcp, host, two = ("--transport", "tcp"), ("--transport", "host"), ("--cpus", "0,1")
    found = throughput("tcp", "tcp 1 MiB x 16", *tcp, "--depth", "4")
    found += throughput("tcp", "tcp 64 KiB x 128", *tcp, "--depth", "4", "--block", "64K", "--batch", "128")
    small = (*tcp, "--depth", "4", "--block", "4K", "--batch", "128", "--apart")
    found += throughput("tcp", "tcp 4 KiB x 128", *small) + processor("tcp", "tcp 4 KiB x 128", *small)
    found += throughput("tcp", "tcp 1 MiB x 16, 4 threads", *tcp, "--depth", "2", "--threads", "4")
    for spin, how in (("none", "both sleep"), ("both", "both spin")):
        found += latency("latency", f"tcp 4 KiB, {how}", *tcp, *two, "--spin", spin, "--block", "4K")
    found += latency("latency", "tcp 4 KiB, one CPU", *tcp, "--cpus", "0,0", "--spin", "none", "--block", "4K")
    found += submit("submit, 256 a batch", "--batch", "256", "--rounds", "50", "submit")
    found += submit("submit, 1,024 a batch", "--rounds", "50", "submit")
    found += submit("prepared, 1,024 a batch", "--rounds", "50", "prep")
    found += submit("submit, 100,000 a batch", "--batch", "100000", *two, "--rounds", "3", "submit")
    found += throughput("host", "host 1 MiB x 16, process_vm", *host, "--memory", "malloc")
    found += throughput("host", "host 4 KiB x 128, process_vm", *host, "--memory", "malloc", "--block", "4K",
                        "--batch", "128", "--apart")
    found += throughput("host", "host 1 MiB x 16, shared", *host, "--memory", "alloc")
    found += latency("host", "host 4 KiB, shared", *host, *two, "--memory", "alloc", "--block", "4K")
    found += latency("local", "local 4 KiB", "--self", "--block", "4K")
    found += throughput("local", "local 1 MiB x 16", "--self")
    return found


def parts():
    return list(dict.fromkeys(row.part for row in rows()))


# ------------------------------------------------------------------------------------ figures

def interval(ratios):
    """The narrowest of the symmetric order statistics between which the median lies with 95 % or more."""
    ordered, n = sorted(ratios), len(ratios)
    outside, k = 0.0, 0  # k: how many are cut off at either end
    while k < n // 2:
        outside += 2 * math.comb(n, k) / 2 ** n
        if outside > 0.05:
            break
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else None


def line_of(row, values, beyond):
    """One line of the table."""
    if not values:
        return f"{row.what:34} nothing was measured"
    ratios = [row.ratio(before, after) for before, after in values]
    before, after = (statistics.median(side) for side in zip(*values))
    bounds = interval(ratios)
    text = f"{row.what:34} {before:12.4g} {after:12.4g} {row.field:10} {statistics.median(ratios):7.3f}"
    if bounds is None:
        return text + "   (too few pairs for an interval: 6 are needed)"
    worse = bounds[1] < 1 - beyond / 100
    return text + f"   {bounds[0]:.3f} to {bounds[1]:.3f}" + ("   WORSE" if worse else "")


# ------------------------------------------------------------------------------------ running

def build_with(patch, tree):
    """A build tree of this source with the patch."""
    print(f"bench_pairs.py: building a copy of this tree with {patch}", file=sys.stderr, flush=True)
    patched.copy_tree(tree)
    applied = patched.run("git", "apply", os.path.abspath(patch), cwd=tree)
    if applied.returncode:
        sys.exit(f"bench_pairs.py: {patch} does not apply to this tree:\n{applied.stdout}")
    problem = patched.build(tree, "bench_te_micro", os.cpu_count())
    if problem:
        sys.exit(f"bench_pairs.py: this tree does not build with {patch}:\n{problem}")
    return os.path.join(tree, "build")


def program_of(build):
    program = os.path.join(build, "tests", "bench", "te_micro")
    if not os.access(program, os.X_OK):
        sys.exit(f"bench_pairs.py: there is no {program}: `make tests` builds it")
    return program


def measure(program, arguments):
    """The lines that it prints."""
    ended = subprocess.run([program, "--json", *arguments], capture_output=True, text=True, check=False, timeout=120,
                           env=dict(os.environ, TE_BIND="127.0.0.1"))
    if ended.returncode:
        sys.exit(f"bench_pairs.py: {' '.join([program, *arguments])} ended with {ended.returncode}:\n{ended.stderr}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def run_pair(programs, chosen, first):
    """{row: (before, after)}; rows with the same arguments share one run."""
    values = {}
    for arguments in dict.fromkeys(row.arguments for row in chosen):
        lines = [None, None]
        for side in (first, 1 - first):
            lines[side] = measure(programs[side], arguments)
        for row in chosen:
            if row.arguments == arguments:
                values[row] = (row.value_of(lines[0]), row.value_of(lines[1]))
    return values


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE", help="a build tree, or a patch")
    parser.add_argument("after", metavar="AFTER", help="another one, or a patch")
    parser.add_argument("--pairs", type=int, default=20, help="how many (20)")
    parser.add_argument("--only", metavar="PART,...", help=f"these parts alone: {', '.join(parts())}")
    parser.add_argument("--rows", metavar="TEXT", default="", help="of these, rows with the text in their names alone")
    parser.add_argument("--beyond", type=float, default=2, metavar="PERCENT", help="what is WORSE (2)")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else parts()
    for part in args.only:
        if part not in parts():
            parser.error(f"no part '{part}'; there are: {', '.join(parts())}")
    args.chosen = [row for row in rows() if row.part in args.only and args.rows in row.what]
    if not args.chosen:
        parser.error(f"no row of these parts has '{args.rows}' in its name")
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    return args


def compare(args, programs):
    values = {row: [] for row in args.chosen}
    began = time.monotonic()
    for pair in range(args.pairs):
        for row, both in run_pair(programs, args.chosen, pair % 2).items():
            if all(both):
                values[row].append(both)
            else:
                print(f"bench_pairs.py: {row.what}: {both}, nothing was measured: left out", file=sys.stderr)
        print(f"bench_pairs.py: {pair + 1} of {args.pairs} pairs, {time.monotonic() - began:.0f} s", file=sys.stderr,
              flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({row.what: values[row] for row in args.chosen}, f, indent=1)
    print(f"{'':34} {'before':>12} {'after':>12} {'':10} {'ratio':>7}   95 % of the median")
    for row in args.chosen:
        print(line_of(row, values[row], args.beyond))


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        compare(args, [program_of(side if not os.path.isfile(side) else build_with(side, os.path.join(folder, name)))
                       for name, side in (("before", args.before), ("after", args.after))])


if __name__ == "__main__":
    main()
