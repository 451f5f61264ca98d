#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions that the engine spends on a slice of rdma, from submit to completion.

te_micro moves blocks of one slice over simulated NICs that complete at once, under callgrind. What
counts are instructions in files of src/, and of the C library where src/ called it; neither those
of the simulated NIC nor those of the benchmark. The engine's start and end are in it, spread over
all slices. Prints one line, with --json an object.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

NAME = re.compile(r"^(\w+)=(?:\((\d+)\))? ?(.*)$")
KINDS = {"ob": "ob", "cob": "ob", "fl": "fl", "fi": "fl", "fe": "fl", "cfi": "fl", "cfl": "fl",
         "fn": "fn", "cfn": "fn"}


def is_ours(path):
    return "/src/" in path and "/tests/" not in path


def count(lines):
    """Instructions of the engine in a profile."""
    names, now = {}, {}
    total, is_call = 0, False
    for line in lines:
        match = NAME.match(line)
        if match and match[1] in KINDS:
            key = (KINDS[match[1]], match[2])
            if match[2] and match[3]:
                names[key] = match[3]
            now[match[1]] = names.get(key, match[3])
            if match[1] == "fl":
                now["home"] = now["fl"]
        elif line.startswith("calls="):
            is_call = True
        elif line[:1] in "0123456789+-*" and "home" in now:
            cost = int(line.split()[1])
            if is_ours(now["home"]) and (not is_call or leaves(now)):
                total += cost
            if is_call:
                now.pop("cob", None)
            is_call = False
    return total


def leaves(now):
    """Whether a call is to another library than the simulated one: it has no lines of its own here."""
    to = now.get("cob", now["ob"])
    return to != now["ob"] and "libibverbs" not in to


def fail(reason):
    print(f"bench_instructions.py: {reason}", file=sys.stderr)
    sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the build tree")
    parser.add_argument("--seconds", default="4", help="how long to move blocks, at valgrind's speed")
    parser.add_argument("--block", default="64K", help="bytes a slice")
    parser.add_argument("--json", action="store_true", help="print an object")
    args = parser.parse_args()
    if not shutil.which("valgrind"):
        fail("valgrind is not installed")
    program = os.path.join(args.build, "tests", "bench", "te_micro")
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile")
        proc = subprocess.run(
            ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={profile}", program, "--json",
             "--transport=rdma", "--nics=1", "--instant", "--buffer=16M", f"--block={args.block}",
             "--batch=64", "--depth=2", "--only=read", f"--seconds={args.seconds}", "throughput", "nics"],
            capture_output=True, text=True, check=False, timeout=170)
        if proc.returncode:
            fail(proc.stderr.strip().rpartition("\n")[2] or f"te_micro ended with {proc.returncode}")
        slices = json.loads(proc.stdout.splitlines()[-1])["wrs"]
        with open(profile, encoding="utf-8") as lines:
            each = count(lines) / slices
    if args.json:
        print(json.dumps({"bench": "instructions", "slice": round(each, 1), "slices": slices}))
    else:
        print(f"instructions: {each:.0f} a slice of {args.block} (over {slices} slices)")


if __name__ == "__main__":
    main()
