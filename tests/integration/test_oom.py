#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=120
"""Out of memory: fault_sweep.c fails the n-th allocation in each phase of an engine's life, and all from the n-th
on, against a peer in a process of its own and each metadata store.

Of the n a few are taken here, other ones each time (the seed is printed: --seed=N takes the same); every one in
`make soak`, which is

    test_oom.py --whole [PHASE...]
"""
import sys
import unittest

import te_proc as te
import te_stores
import te_sweep
from te_sweep import PHASES, WITH_STORE, asked

PATIENT = [f"{name}={value}" for name, value in te.PATIENT.items()]  # limits of time are not what is tested
MODES = ([], ["-a"])


class Sweep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        te_sweep.need_program()

    def sweep_all(self, phases, metadata, name, options=()):
        print(f"---- {metadata} {' '.join(options)}", flush=True)
        with te.Peer(name, metadata=metadata, options=options) as peer:
            _, address = peer.region(te_sweep.SIZE)
            place = [metadata, peer.segment, str(address), *PATIENT, *options]
            for phase in phases:
                for mode in MODES if asked.whole else [asked.chance.choice(MODES)]:
                    if not asked.words or phase in asked.words:
                        with self.subTest(phase=phase, mode=mode):
                            te_sweep.sweep(self, mode, phase, place)

    def test_tcp(self):
        self.sweep_all(PHASES, te.P2P, "127.0.0.1", ("TE_HOST_PATH=0",))

    def test_host(self):
        self.sweep_all(PHASES, te.P2P, "127.0.0.1")

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
