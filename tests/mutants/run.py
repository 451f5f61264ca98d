#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts each mutant of list.txt into a copy of the library, one at a time, and prints who finds it, as the rows of
README.md here: the comparison of the models of lock-free structures with the text of the library; the simulation, in
so many seeds; the tests of units and transports, of which the first that fails is named. A mutant that nobody finds is
"left". The simulation itself is that of the build tree, and is not built anew."""
import argparse
import os
import re
import resource
import sys
import tempfile

import mutate

sys.path.insert(0, os.path.join(mutate.ROOT, "scripts"))
sys.path.insert(0, os.path.join(mutate.ROOT, "tests", "fabric", "sim"))
import find_faults  # noqa: E402
import patched  # noqa: E402

TESTS = "^(unit|transport)/"
ADDRESSES = 72 << 30  # of a run; the simulation takes 64 GiB for itself, and a mutant may take all there is
FAILED = re.compile(r"Test +#\d+: (\S+) .*\*\*\*(?!Skipped)")


def by_simulation(tree, args):
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, before[1]))
    try:
        seed, _, ran, said = find_faults.simulate(os.path.join(tree, "build", "lib"), [], args)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return f"simulation, seed {seed} | {said}" if seed else "", ran


def by_models(tree):
    r = patched.run(sys.executable, os.path.join(tree, "tests", "lint", "test_models.py"), cwd=tree)
    said = re.search(r"^AssertionError: (.*)", r.stdout, re.M)
    return f"models | {said[1] if said else 'differs'}" if r.returncode else ""


def by_tests(tree, args):
    problem = patched.build(tree, "te_tests", args.jobs)
    if problem:
        return f"tests do not compile | {problem[-200:]}"
    r = patched.run("ctest", "--test-dir", os.path.join(tree, "build"), "-R", TESTS, "-j", str(args.jobs),
                    "--stop-on-failure", "--timeout", str(args.limit), "--output-on-failure")
    failed = FAILED.search(r.stdout)
    said = re.search(r"(?:ERROR|FAILED).*", r.stdout)
    return f"{failed[1]} | {said[0] if said else 'ended, or was too late'}" if failed else ""


def found(mutant, tree, args):
    """Who finds it, and what was said."""
    path = os.path.join(tree, mutant.path)
    text = mutate.read(mutant.path)
    with open(path, "w", encoding="utf-8") as f:
        f.write(mutant.applied())
    try:
        problem = patched.build(tree, "te_shared", args.jobs)
        if problem:
            return f"does not compile | {problem[-200:]}"
        ran, row = 0, "models" in args.by and by_models(tree)
        if not row and "sim" in args.by:
            row, ran = by_simulation(tree, args)
        return row or ("tests" in args.by and by_tests(tree, args)) or f"left | {ran} seeds"
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="at most, for each (1000)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="beginning with this seed (1)")
    parser.add_argument("--seconds", type=float, default=1800, help="of simulation at most, for each (1800)")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a test (300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--by", default="models,sim,tests", help="who is asked (models,sim,tests)")
    parser.add_argument("numbers", nargs="*", help="of list.txt; default: all")
    args = parser.parse_args()
    mutants = [m for m in mutate.frozen() if not args.numbers or m.number in args.numbers]
    if not os.path.exists(find_faults.SIM):
        sys.exit(f"{find_faults.SIM} is missing: make tests")
    with tempfile.TemporaryDirectory() as tree:
        patched.copy_tree(tree)
        print("| Number | Mutant | Function | Found by | Said |\n| --- | --- | --- | --- | --- |", flush=True)
        for m in mutants:
            where = f"`{m.path[len('src/'):]}` {m.function}()"
            row = "does not apply |" if m.applied() is None else found(m, tree, args).replace("\n", " ")
            print(f"| {m.number} | {m.operator} | {where} | {row} |", flush=True)


if __name__ == "__main__":
    main()
