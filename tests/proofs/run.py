#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bounded proofs of functions of src/ by CBMC: make proofs. tests/proofs/README.md says what they show.

A proof is a file tests/proofs/NAME.c with a function proof() and a line that tells the options of CBMC for it. CBMC 6
is this host's, or that of a root by tests/systems/roots.py, which is made once and kept. Prints a line for each proof,
with the processor's seconds, and what was not proved.

--faults shows that they can fail: the end of each proof is reached, and each patch of tests/proofs/faults, in a copy
of the sources, is found by the proof that its first line names.

Exit status 1 if a proof failed, or a fault was not found; 77 with the reason where CBMC cannot be had.
"""
import argparse
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(SOURCE, "tests", "systems"), os.path.join(SOURCE, "scripts")]
import patched  # noqa: E402
import roots  # noqa: E402

FAULTS = os.path.join(HERE, "faults")
MEMORY = 8 << 30
OPTIONS = ["-D_GNU_SOURCE", "-I", "include", "-I", "src", "-I", "tests/proofs", "--pointer-overflow-check"]
PROVED, REFUTED = 0, 10  # exit statuses of CBMC
LATE = (124, 128 + signal.SIGXCPU)
END = "the end is reached"


def has_cbmc():
    """Whether this host has one that checks what the proofs rely on without being asked."""
    return int(re.match(r"\d*", roots.output("cbmc", "--version"))[0] or 0) >= 6


class Cbmc:
    def __init__(self, seconds):
        self.root = "" if has_cbmc() else roots.root_of(roots.RECIPES["proofs"])
        self.seconds = seconds

    def run(self, tree, name, function="proof", *more):
        """(exit status, processor's seconds, what it said) of a proof of the sources in `tree`."""
        command = ["prlimit", f"--as={MEMORY}", f"--cpu={self.seconds}", "timeout", str(5 * self.seconds),
                   "cbmc", f"tests/proofs/{name}.c", "--function", function, *OPTIONS, *options_of(name),
                   *more]
        if self.root:
            command = [os.path.join(roots.HERE, "enter.sh"), "--bind-ro", f"{tree}:/src", "--chdir", "/src",
                       self.root, *command]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = patched.run(*command, cwd=tree)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode == 77:
            raise roots.Missing(done.stdout.strip())
        return done.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def options_of(name):
    return re.search(r"^/\* proof:(.*)\*/$", read(os.path.join(HERE, name + ".c")), re.M)[1].split()


def names_of(pattern):
    return sorted(os.path.splitext(os.path.basename(path))[0] for path in glob.glob(pattern))


def refuted(said):
    """The properties that do not hold."""
    return re.findall(r"^(\[.*): FAILURE$", said, re.M)


def problem(rc, said):
    """Why it is no proof, in lines."""
    if rc in LATE:
        return ["not done in time (--seconds)"]
    return refuted(said) or said.splitlines()[-10:] or [f"exit status {rc}"]


def tell(good, name, seconds, what=""):
    print(f"{'ok' if good else 'FAILED':<8}{name:<28}{seconds:6.1f} s  {what}".rstrip(), flush=True)


def prove(cbmc, names):
    """How many failed."""
    failed, total = 0, 0.0
    for name in names:
        rc, seconds, said = cbmc.run(SOURCE, name)
        total += seconds
        failed += rc != PROVED
        tell(rc == PROVED, name, seconds)
        for line in [] if rc == PROVED else problem(rc, said):
            print(f"        {line}", flush=True)
    print(f"proofs: {len(names) - failed} of {len(names)} proved, in {total:.0f} s")
    return failed


def reach_ends(cbmc, names):
    """Were there no input that an assumption leaves, nothing would be shown. How many there are of these."""
    failed = 0
    for name in names:
        rc, seconds, said = cbmc.run(SOURCE, name, "reach_end", "--property", "reach_end.assertion.1")
        good = rc == REFUTED and any(END in line for line in refuted(said))
        failed += not good
        tell(good, name, seconds, END if good else "its end is not reached")
    return failed


def find_faults(cbmc, names):
    """(how many were not found, of how many) of the faults for these proofs."""
    missed = tried = 0
    for fault in names_of(os.path.join(FAULTS, "*.patch")):
        path = os.path.join(FAULTS, fault + ".patch")
        name = re.match(r"Proof: (\w+)\n", read(path))[1]
        if name not in names:
            continue
        with tempfile.TemporaryDirectory() as tree:
            patched.copy_tree(tree)
            applied = patched.run("git", "apply", path, cwd=tree)
            rc, seconds, said = (-1, 0, applied.stdout) if applied.returncode else cbmc.run(tree, name)
        tried += 1
        missed += rc != REFUTED
        tell(rc == REFUTED, fault, seconds, f"by {name}: " + (problem(rc, said) if rc else ["not found"])[0])
    return missed, tried


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="proofs whose names contain it; default: all")
    parser.add_argument("--faults", action="store_true", help="show that they can fail instead")
    parser.add_argument("--seconds", type=int, default=90,
                        help="of the processor, for each proof at most (90), and five times as many by the clock")
    parser.add_argument("--list", action="store_true", help="name the proofs, and run nothing")
    args = parser.parse_args()
    names = [name for name in names_of(os.path.join(HERE, "*.c"))
             if not args.names or any(n in name for n in args.names)]
    if args.list or not names:
        print("\n".join(names) or f"no proof is named so: {' '.join(args.names)}")
        return 0 if names else 2
    for program in ("prlimit", "timeout", "git"):
        if not shutil.which(program):
            print(f"proofs: skipped: no {program}")
            return 77
    try:
        cbmc = Cbmc(args.seconds)
        if not args.faults:
            return 1 if prove(cbmc, names) else 0
        unreached = reach_ends(cbmc, names)
        missed, tried = find_faults(cbmc, names)
    except roots.Missing as e:
        print(f"proofs: skipped: no cbmc 6 here, and no root with it: {e}")
        return 77
    except (RuntimeError, subprocess.SubprocessError) as e:
        print(f"proofs: failed: {e}")
        return 1
    print(f"proofs: {len(names) - unreached} of {len(names)} ends reached, {tried - missed} of {tried} faults found")
    return 1 if unreached or missed else 0


if __name__ == "__main__":
    sys.exit(main())
