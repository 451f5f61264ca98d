#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts each fault of tests/fabric/sim/faults into a copy of the library, runs the simulation until a seed fails, and
prints the table of docs/simulation.md. The simulation itself is that of the build tree, and is not built anew. Each
patch begins with where the fault is, what it is, and, if its runs have other arguments than --fabrics=0, these."""
import argparse
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import patched  # noqa: E402

FAULTS = os.path.join(ROOT, "tests", "fabric", "sim", "faults")
SIM = os.path.join(os.environ.get("TE_TEST_BUILD") or os.path.join(ROOT, "build"), "tests", "sim", "sim")
SAID = re.compile(r"^ *\d+\.\d{6} host \d+ .{14} (.*)")  # what was wrong, behind the time, the host and the thread


def simulate(library, knobs, args):
    """(the first seed that fails, None if none did; after how many seconds; the seeds that ran; what was wrong)"""
    begin, ran, said = time.monotonic(), 0, ""
    p = subprocess.Popen([SIM, f"--seeds={args.seeds}", f"--from={args.first}", f"--jobs={args.jobs}", "--no-shrink",
                          *knobs],
                         text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                         env={"LD_LIBRARY_PATH": library})
    os.set_blocking(p.stderr.fileno(), False)
    watch = selectors.DefaultSelector()
    watch.register(p.stderr, selectors.EVENT_READ)
    try:
        while (left := begin + args.seconds - time.monotonic()) > 0:
            if not watch.select(left):
                break
            line = p.stderr.readline()
            if not line:
                break
            said = said or (SAID.match(line) or [""] * 2)[1]
            seed = re.search(r"^again: sim --seed=(\d+)|^seed (\d+): ", line)
            if seed:
                return int(seed[1] or seed[2]), time.monotonic() - begin, ran, said or line.strip()
            progress = re.match(r"sim: (\d+) ", line)
            ran = int(progress[1]) if progress else ran
        return None, time.monotonic() - begin, ran, ""
    finally:
        try:
            os.killpg(p.pid, signal.SIGKILL)  # its runs, too
        except ProcessLookupError:
            pass
        p.wait()


def try_one(name, tree, args):
    """A row of the table, and what was wrong."""
    path = os.path.join(FAULTS, name + ".patch")
    with open(path, encoding="utf-8") as f:
        head = dict(line.rstrip("\n").split(": ", 1) for line in f.readlines()[:3] if line.strip())
    row = f"| {head['Where']} | {head['Fault']} |"
    if patched.run("git", "apply", path, cwd=tree).returncode:
        return f"{row} - | does not apply |", ""
    try:
        problem = patched.build(tree, "te_shared", args.jobs, "-DTE_BUILD_TESTS=OFF", "-DTE_BUILD_TOOLS=OFF")
        if problem:
            return f"{row} - | does not compile |", problem[-400:]
        seed, seconds, ran, said = simulate(os.path.join(tree, "build", "lib"), head.get("With", "--fabrics=0").split(), args)
        return f"{row} {seed} | {seconds:.1f} s |" if seed else f"{row} - | not in {ran} |", said
    finally:
        patched.run("git", "apply", "-R", path, cwd=tree)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each fault (60)")
    parser.add_argument("--seeds", type=int, default=600, help="at most (600)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="beginning with this seed (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("names", nargs="*", help="of the files in faults, without .patch; default: all")
    args = parser.parse_args()
    names = args.names or sorted(n[:-6] for n in os.listdir(FAULTS) if n.endswith(".patch"))
    if not os.path.exists(SIM):
        sys.exit(f"{SIM} is missing: make tests")
    with tempfile.TemporaryDirectory() as tree:
        patched.copy_tree(tree)
        print("| Where | Fault | First seed | After |\n| --- | --- | --- | --- |", flush=True)
        for name in names:
            row, said = try_one(name, tree, args)
            print(row, flush=True)
            print(f"{name}: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
