#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a file with fio, as the engine moves it: io_uring, O_DIRECT, file and memory registered.

Prints one line for reads and one for writes, with --json objects.
"""

import argparse
import json
import shutil
import subprocess
import sys


def fail(reason):
    print(f"bench_fio.py: {reason}", file=sys.stderr)
    sys.exit(1)


def measure(args, operation):
    """Bytes a second, in order through the file and from its start again."""
    proc = subprocess.run(
        ["fio", "--name=x", f"--filename={args.file}", f"--rw={operation}", f"--bs={args.block}",
         f"--iodepth={args.depth}", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1",
         "--time_based", f"--runtime={args.seconds * 1000:.0f}ms", f"--ramp_time={args.ramp * 1000:.0f}ms",
         "--output-format=json"],
        capture_output=True, text=True, check=False, timeout=60 + 2 * args.seconds)
    if proc.returncode:
        fail(proc.stderr.strip().rpartition("\n")[2] or f"fio ended with {proc.returncode}")
    job = json.loads(proc.stdout[proc.stdout.index("{"):])["jobs"][0][operation]
    return job["bw_bytes"], job["iops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", required=True, help="what is read and WRITTEN OVER; it must be there")
    parser.add_argument("--block", default="64K", help="bytes a request (64K)")
    parser.add_argument("--depth", type=int, default=32, help="requests under way (32)")
    parser.add_argument("--seconds", type=float, default=1, help="how long, reads and writes each (1)")
    parser.add_argument("--ramp", type=float, default=0.1, help="seconds before that which do not count (0.1)")
    parser.add_argument("--json", action="store_true", help="print objects")
    args = parser.parse_args()
    if not shutil.which("fio"):
        fail("fio is not installed")
    for operation in ("read", "write"):
        rate, iops = measure(args, operation)
        if args.json:
            print(json.dumps({"bench": "fio", "op": operation, "gb_s": round(rate / 1e9, 4),
                              "requests_s": round(iops), "block": args.block, "depth": args.depth}))
        else:
            print(f"fio: {operation} {rate / 1e9:.2f} GB/s, {iops:.0f} requests a second")


if __name__ == "__main__":
    main()
