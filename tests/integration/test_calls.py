#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=300
"""System calls that fail: fault_sweep.c fails the n-th of one sort in each phase of an engine's life, and all from
the n-th on, with an error that the kernel has for it, against a peer in a process of its own.

A few of the sorts, the phases and the n are taken here, other ones each time (the seed is printed: --seed=N takes
the same); every one in `make soak`, which is

    test_calls.py --whole [PHASE|CALL:ERROR...]
"""
import re
import subprocess
import sys
import unittest

import te_proc as te
import te_stores
import te_sweep
from te_sweep import PHASES, WITH_STORE, asked

FEW = 12  # sweeps of each test
AGAIN = 10  # times, where no such call was made: a request may go by TCP before the other way is known
NOTHING = re.compile(r": 0 of about \d+ calls")
PROMPT = ["TE_METADATA_TIMEOUT_MS=3000", "MC_HANDSHAKE_CONNECT_TIMEOUT=3", "TE_HOST_TIMEOUT_MS=3000",
          "TE_METADATA_TTL_S=600"]
# What has found something once: taken each time.
ALWAYS = {
    "tcp": (("connect", "connect:ECONNREFUSED -a"), ("connect", "epoll_ctl:ENOSPC -a"), ("connect", "sendmsg:ENOBUFS -a")),
    "host": (("connect", "process_vm:EPERM -a"),),
    "http": (("create", "socket:EMFILE -a"),),
    "redis": (("open", "send:ECONNRESET"),),
    "etcd": (("create", "socket:EMFILE -a"),),
}


def faults():
    """["-c", CALL:ERROR] of each, and the same with "-a" where it may go on"""
    listed = subprocess.run([te_sweep.PROGRAM, "-l"], capture_output=True, text=True, check=True, timeout=te.HANG_S)
    for line in listed.stdout.splitlines():
        name, *more = line.split()
        yield ["-c", name]
        if more:
            yield ["-c", name, *more]


def is_wanted(mode, phase):
    names = [word for word in asked.words if ":" in word]
    phases = [word for word in asked.words if ":" not in word]
    return (not names or mode[1] in names) and (not phases or phase in phases)


class Sweep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        te_sweep.need_program()

    def sweep_some(self, where, phases, metadata, name, options=()):
        print(f"---- {metadata} {' '.join(options)}", flush=True)
        cells = [(mode, phase) for phase in phases for mode in faults() if is_wanted(mode, phase)]
        always = [(["-c", *fault.split()], phase) for phase, fault in ALWAYS[where]]
        with te.Peer(name, metadata=metadata, options=options) as peer:
            _, address = peer.region(te_sweep.SIZE)
            place = [metadata, peer.segment, str(address), *PROMPT, *options]
            for mode, phase in always + (cells if asked.whole or asked.words else asked.chance.sample(cells, FEW)):
                with self.subTest(phase=phase, mode=mode):
                    told = te_sweep.sweep(self, mode, phase, place)
                    for _ in range(AGAIN if (mode, phase) in always else 0):
                        if NOTHING.search(told):
                            told = te_sweep.sweep(self, mode, phase, place)
                    if (mode, phase) in always:
                        self.assertNotRegex(told, NOTHING, "nothing has failed")

    def test_tcp(self):
        self.sweep_some("tcp", PHASES, te.P2P, "127.0.0.1", ("TE_HOST_PATH=0",))

    def test_host(self):
        self.sweep_some("host", PHASES, te.P2P, "127.0.0.1")

    def test_http(self):
        with te.Metad() as server:
            self.sweep_some("http", WITH_STORE, server.url, "calls_peer")

    def test_redis(self):
        with te_stores.Redis() as server:
            self.sweep_some("redis", WITH_STORE, server.url, "calls_peer")

    def test_etcd(self):
        with te_stores.Etcd() as server:
            self.sweep_some("etcd", WITH_STORE, server.url, "calls_peer")


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    te.main()
