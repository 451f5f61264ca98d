#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the tables of docs/tuning.md again and prints them as Markdown.

Each table varies one option over its rows and a way of use over its columns. All cells of a table are
measured in turns, in every round once; a cell is the ratio of its median to that of the base cell, so
that absolute speed, which is the machine's, does not appear.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Optional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NETLAB = os.path.join(ROOT, "scripts", "netlab.sh")


@dataclass(frozen=True)
class Sweep:
    """Rows and columns are {label: words for te_micro}; both words together make a cell."""

    name: str
    what: str
    corner: str
    rows: dict
    columns: dict
    base: tuple  # (row, column or None: each column has its own)
    field: str = "gb_s"
    measure: tuple = ("--only", "read", "throughput")


def setting(name, *values, shown=None):
    """Rows for the values of an option."""
    return {(shown or str)(value): (f"--set={name}={value}",) for value in values}


LANES = "MC_TCP_LANES_PER_PEER"
SMALL = ("--block=64K", "--batch=128")
DELAYS = {"100 us, 64 KiB x 128": ("delay:100", *SMALL), "1 ms, 64 KiB x 128": ("delay:1000", *SMALL),
          "1 ms, 1 MiB x 16": ("delay:1000",)}

SWEEPS = [
    Sweep("lanes", "Connections to a peer, each with a thread, and congestion control, 1 MiB x 16 read, loopback", LANES,
          {n: (f"--set={LANES}={n}", f"--set=TE_TCP_THREADS={n}") for n in ("1", "2", "4", "8")},
          {cc: (f"--set=TE_TCP_CONGESTION={cc}",) for cc in ("bbr", "cubic", "reno")}, ("2", "bbr")),
    Sweep("io", "I/O threads, loopback", "TE_TCP_THREADS", setting("TE_TCP_THREADS", 1, 2, 4),
          {"1 MiB x 16": (), "1 MiB x 16, 4 threads": ("--threads=4",), "64 KiB x 128": SMALL,
           "4 KiB x 128": ("--block=4K", "--batch=128")}, ("2", None)),
    Sweep("call", "Bytes a system call, loopback", "MC_TCP_SLICE_SIZE",
          setting("MC_TCP_SLICE_SIZE", "64K", "256K", "1M", "4M"),
          {"1 MiB x 16": (), "8 MiB x 8": ("--block=8M", "--batch=8")}, ("1M", None)),
    Sweep("piece", "Bytes after which a request is split over connections, loopback", "TE_TCP_PIECE_SIZE",
          setting("TE_TCP_PIECE_SIZE", "1M", "4M", "16M"),
          {"8 MiB x 1": ("--block=8M", "--batch=1"), "8 MiB x 8": ("--block=8M", "--batch=8"),
           "64 MiB x 1": ("--block=64M", "--batch=1")}, ("4M", None)),
    Sweep("blocks", "Block and batch, 1 thread, read, loopback", "block",
          {b: (f"--block={b}",) for b in ("4K", "16K", "64K", "256K", "1M", "4M")},
          {f"batch of {n}": (f"--batch={n}",) for n in (1, 4, 16, 64)}, ("1M", "batch of 16")),
    Sweep("threads", "Threads that submit, batches of 16, read, loopback", "threads",
          {n: (f"--threads={n}",) for n in ("1", "2", "4", "8")},
          {b: (f"--block={b}",) for b in ("4K", "64K", "1M")}, ("1", None)),
    Sweep("spin", "Spinning: p50 of a 4 KiB read (less is better)", "TE_SPIN_US",
          setting("TE_SPIN_US", 0, 20, 50, 200),
          {"two CPUs": ("--cpus=0,1",), "one CPU": ("--cpus=0,0",)}, ("20", "two CPUs"), "p50_us",
          ("latency",)),
    Sweep("submit", "Cost of te_submit() for a request of 64 bytes (less is better)", "batch",
          {n: (f"--batch={n}",) for n in ("1", "16", "256", "1024", "8192")}, {"time a request": ()},
          ("1024", None), "ns_request", ("--rounds=100", "submit")),
    Sweep("delay", "A long cable: connections to a peer, read (needs root)", LANES,
          setting(LANES, 1, 2, 4, 8, 16), DELAYS, ("4", None)),
]


def command(args, sweep, words):
    """What measures a cell; in a network of its own where the words ask for a delay."""
    micro = [os.path.join(args.build, "tests", "bench", "te_micro"), "--json", "--transport=tcp",
             f"--seconds={args.seconds}"]
    delay: Optional[str] = None
    settings = []
    for word in words:
        if word.startswith("delay:"):
            delay = word.partition(":")[2]
        elif word.startswith("--set="):
            settings.append(word.partition("=")[2])
        else:
            micro.append(word)
    micro += [f"--set={','.join(settings)}"] if settings else []
    if delay is None:
        return micro + list(sweep.measure)
    inside = f'exec {shlex.join(micro)} --netns "$TE_NETNS" --address "$TE_ADDRESS" '
    return [NETLAB, "--build", args.build, "--delay-us", delay, "--", "sh", "-c",
            inside + shlex.join(sweep.measure)]


def measure(args, sweep):
    """{(row, column): median}; a cell that failed is missing, and its complaint is printed."""
    samples = {}
    for number in range(1, args.rounds + 1):
        print(f"{sweep.name}: round {number} of {args.rounds}", file=sys.stderr)
        for row, row_words in sweep.rows.items():
            for column, column_words in sweep.columns.items():
                proc = subprocess.run(command(args, sweep, [*row_words, *column_words]), check=False,
                                      capture_output=True, text=True, timeout=240)
                if proc.returncode != 0:
                    print(f"{sweep.name}: {row}, {column}: {proc.stderr.strip()}", file=sys.stderr)
                    continue
                value = json.loads(proc.stdout.splitlines()[0])[sweep.field]
                samples.setdefault((row, column), []).append(value)
    return {cell: statistics.median(values) for cell, values in samples.items()}


def rounded(ratio):
    """To a twentieth where it is near 1; no more is meant."""
    return f"{round(ratio * 20) / 20:.2f}" if 0.25 <= ratio < 10 else f"{ratio:.2g}"


def table(sweep, medians):
    base_row, base_column = sweep.base
    lines = [f"**{sweep.what}**", "", f"| {sweep.corner} | " + " | ".join(sweep.columns) + " |",
             "|" + "---|" * (len(sweep.columns) + 1)]
    for row in sweep.rows:
        cells = []
        for column in sweep.columns:
            base = medians.get((base_row, base_column or column))
            value = medians.get((row, column))
            cells.append(rounded(value / base) if value and base else "")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build tree (build)")
    parser.add_argument("--rounds", type=int, default=3, help="so many rounds (3)")
    parser.add_argument("--seconds", type=float, default=0.6, help="how long a cell is measured (0.6)")
    parser.add_argument("--only", default=",".join(s.name for s in SWEEPS),
                        help="these tables alone: " + ", ".join(s.name for s in SWEEPS))
    args = parser.parse_args()
    known = {sweep.name: sweep for sweep in SWEEPS}
    for name in args.only.split(","):
        if name not in known:
            parser.error(f"no table '{name}'; there are: {', '.join(known)}")
    for name in args.only.split(","):
        print(table(known[name], measure(args, known[name])), flush=True)


if __name__ == "__main__":
    main()
