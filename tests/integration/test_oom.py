#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=120
"""Out of memory: oom_sweep.c fails the n-th allocation in each phase of an engine's life, and all from the n-th
on, against a peer in a process of its own and each metadata store.

Of the n a few are taken here, other ones each time (the seed is printed: --seed=N takes the same); every one in
`make soak`, which is

    test_oom.py --whole [PHASE...]

A failure names the command of the sweep. That with -n N, and OOM_TRACE=1 in the environment, shows it again, with
the places of what leaked; OOM_LOG=1 shows the log.
"""
import os
import random
import re
import subprocess
import sys

import te_proc as te
import te_stores
import unittest

SIZE = 4 << 20
RUNS = 5  # of a phase
ALL = ("first", "create", "open", "register", "unregister", "connect", "submit", "cancel", "prep", "events", "notify", "notify-peer",
       "links", "refresh", "install", "serve", "destroy")
WITH_STORE = ("first", "create", "open", "register", "refresh", "destroy")
PATIENT = [f"{name}={value}" for name, value in te.PATIENT.items()]  # limits of time are not what is tested
MODES = ([], ["-a"])

arguments = sys.argv[1:]
whole = "--whole" in arguments
wanted = [word for word in arguments if not word.startswith("-")]
seed = next((int(word[7:]) for word in arguments if word.startswith("--seed=")), random.SystemRandom().randrange(1 << 20))
choice = random.Random(seed)


def named(text):
    """With the names of functions, where a line is an address in a program or a library."""
    def name(match):
        found = te.call("addr2line", "-f", "-e", match[1], hex(int(match[2], 16) - 1)).stdout.split("\n")[0]
        return f"  {match[1].rpartition('/')[2]}: {found}"
    try:
        return re.sub(r"^(/\S+)\(\+(0x[0-9a-f]+)\)\[0x[0-9a-f]+\]$", name, text, flags=re.M)
    except FileNotFoundError:  # no binutils here
        return text


class Sweep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = os.path.join(te.BUILD, "tests", "oom", "oom_sweep")
        if not os.access(cls.program, os.X_OK):
            te.skip(f"{cls.program} is not built: it needs glibc, and no sanitizer")
        print(f"seed {seed}", flush=True)

    def sweep(self, phase, mode, place):
        few = [] if whole else ["-r", str(RUNS), "-o", str(choice.randrange(1 << 20))]
        command = [self.program, *few, *mode, phase, *place]
        run = subprocess.run(command, capture_output=True, text=True, check=False,
                             timeout=None if whole else te.HANG_S * 2,
                             env={**os.environ, "MALLOC_PERTURB_": "165"})
        print(run.stdout, end="", flush=True)
        if run.returncode != 0:
            self.fail(f"{' '.join(command)}: exit {run.returncode}\n{named(run.stderr)}")

    def sweep_all(self, phases, metadata, name, options=()):
        print(f"---- {metadata} {' '.join(options)}", flush=True)
        with te.Peer(name, metadata=metadata, options=options) as peer:
            _, address = peer.region(SIZE)
            place = [metadata, peer.segment, str(address), *PATIENT, *options]
            for phase in phases:
                for mode in MODES if whole else [choice.choice(MODES)]:
                    if not wanted or phase in wanted:
                        with self.subTest(phase=phase, mode=mode):
                            self.sweep(phase, mode, place)

    def test_tcp(self):
        self.sweep_all(ALL, te.P2P, "127.0.0.1", ("TE_HOST_PATH=0",))

    def test_host(self):
        self.sweep_all(ALL, te.P2P, "127.0.0.1")

    def test_http(self):
        with te.Metad() as server:
            self.sweep_all(WITH_STORE, server.url, "oom_peer")

    def test_redis(self):
        with te_stores.Redis() as server:
            self.sweep_all(WITH_STORE, server.url, "oom_peer")

    def test_etcd(self):
        with te_stores.Etcd() as server:
            self.sweep_all(WITH_STORE, server.url, "oom_peer")


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    te.main()
