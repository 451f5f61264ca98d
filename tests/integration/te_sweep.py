# SPDX-License-Identifier: Apache-2.0
"""fault_sweep.c: allocations, or calls of the system, that fail in each phase of an engine's life.

A failure names the command of the sweep. That with -n N, and OOM_TRACE=1 in the environment, shows it again, with
the places of what leaked; SWEEP_LOG=1 shows the log.
"""
import os
import random
import re
import subprocess
import sys

import te_proc as te

PROGRAM = os.path.join(te.BUILD, "tests", "faults", "fault_sweep")
SIZE = 4 << 20
RUNS = 5  # of a phase
PHASES = ("first", "create", "open", "register", "unregister", "connect", "submit", "cancel", "prep", "events", "notify", "notify-peer",
          "links", "refresh", "install", "serve", "destroy")
WITH_STORE = ("first", "create", "open", "register", "refresh", "destroy")


class Asked:
    """The command line of a test: [--whole] [--seed=N] [WORD...]"""
    def __init__(self, arguments):
        self.whole = "--whole" in arguments
        self.words = [word for word in arguments if not word.startswith("-")]
        self.seed = next((int(word[7:]) for word in arguments if word.startswith("--seed=")),
                         random.SystemRandom().randrange(1 << 20))
        self.chance = random.Random(self.seed)


asked = Asked(sys.argv[1:])


def need_program():
    if not os.access(PROGRAM, os.X_OK):
        te.skip(f"{PROGRAM} is not built: it needs glibc, and no sanitizer")
    print(f"seed {asked.seed}", flush=True)


def named(text):
    """With the names of functions, where a line is an address in a program or a library."""
    def name(match):
        found = te.call("addr2line", "-f", "-e", match[1], hex(int(match[2], 16) - 1)).stdout.split("\n")[0]
        return f"  {match[1].rpartition('/')[2]}: {found}"
    try:
        return re.sub(r"^(/\S+)\(\+(0x[0-9a-f]+)\)\[0x[0-9a-f]+\]$", name, text, flags=re.M)
    except FileNotFoundError:  # no binutils here
        return text


def sweep(test, mode, phase, place):
    """All of a phase where asked for, else a few of it. Returns what the sweep says."""
    few = [] if asked.whole else ["-r", str(RUNS), "-o", str(asked.chance.randrange(1 << 20))]
    command = [PROGRAM, *few, *mode, phase, *place]
    run = subprocess.run(command, capture_output=True, text=True, check=False,
                         timeout=None if asked.whole else te.HANG_S * 2,
                         env={**os.environ, "MALLOC_PERTURB_": "165"})
    print(run.stdout, end="", flush=True)
    if run.returncode != 0:
        test.fail(f"{' '.join(command)}: exit {run.returncode}\n{named(run.stderr)}")
    return run.stdout
