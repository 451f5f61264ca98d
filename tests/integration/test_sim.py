#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""The engine under simulation: some seeds, those that once failed, and that the simulation finds what is wrong."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ.get("TE_TEST_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
SIM = os.path.join(BUILD, "tests", "sim", "sim")
SEEDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fabric", "sim", "seeds")


NICS = "--fabrics=12"
GPUS = "--fabrics=192"


def sim(*args, program=SIM):
    return subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Simulation(unittest.TestCase):
    def test_random_seeds(self):
        r = sim("--seeds=100", "--jobs=2")
        self.assertEqual(r.returncode, 0, r.stderr[-4000:])
        counts = re.search(r"(\d+) seeds, 0 failed; (\d+) batches, requests: (\d+) completed", r.stdout)
        self.assertIsNotNone(counts, r.stdout)
        self.assertEqual(int(counts[1]), 100)
        self.assertGreater(int(counts[3]), 1000)

    def test_a_seed_is_a_run(self):
        r = sim("--seeds=6", "--from=1000", "--check-hash")
        self.assertEqual(r.returncode, 0, r.stderr[-4000:])

    def test_many_hosts(self):
        r = sim("--seed=7", "--hosts=20", "--rounds=1")
        self.assertEqual(r.returncode, 0, r.stderr[-4000:])

    def test_a_seed_is_the_same_run_wherever_the_program_lies(self):
        with tempfile.TemporaryDirectory() as folder:
            tests = os.path.join(folder, "n" * 150)
            copy = os.path.join(tests, "sim", "sim")
            for stand_in in ("softverbs", "softgpu"):
                shutil.copytree(os.path.join(BUILD, "tests", stand_in), os.path.join(tests, stand_in))
            os.mkdir(os.path.dirname(copy))
            shutil.copy(SIM, copy)
            for seed in ("--seed=558", "--seed=563", "--seed=566"):
                here, there = sim(seed), sim(seed, program=copy)
                self.assertEqual(here.returncode, 0, here.stderr[-4000:])
                self.assertEqual(here.stdout.splitlines()[0], there.stdout.splitlines()[0], seed)

    def test_without_softverbs_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            r = sim("--seed=558", NICS, "--no-shrink", program=shutil.copy(SIM, folder))
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("softverbs/libibverbs.so.1 is not to be had: No such file or directory; runs without ", r.stderr)

    def test_a_seed_with_gpus_is_a_run(self):
        r = sim("--seeds=3", "--from=1000", GPUS, "--check-hash")
        self.assertEqual(r.returncode, 0, r.stderr[-4000:])

    def test_without_softgpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            r = sim("--seed=558", GPUS, "--no-shrink", program=shutil.copy(SIM, folder))
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("softgpu/libsoftgpu.so.0 is not to be had: No such file or directory; runs without ", r.stderr)

    def test_seeds_that_once_failed(self):
        with open(SEEDS, encoding="utf-8") as f:
            lines = [line.split("#")[0].split() for line in f]
        for args in filter(None, lines):
            with self.subTest(args=args):
                r = sim(*args)
                self.assertEqual(r.returncode, 0, r.stderr[-4000:])

    def test_a_spoilt_byte_is_found(self):
        r = sim("--seed=3", "--faults=128")
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("torn: ", r.stderr)
        self.assertIn("again: sim --seed=3 --faults=128", r.stderr)

    def test_a_failure_is_made_smaller(self):
        r = sim("--seeds=1", "--from=3", "--faults=129")
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertRegex(r.stderr, r"smallest found: sim --seed=3 .*--faults=128")

    def test_help_and_mistakes(self):
        self.assertIn("usage: sim", sim("--help").stdout)
        r = sim("--seeds=many")
        self.assertEqual(r.returncode, 2)
        self.assertIn("'many' is not a number", r.stderr)


if __name__ == "__main__":
    if not os.path.exists(SIM):
        print("there is no simulation: it needs glibc")
        raise SystemExit(77)
    unittest.main(verbosity=2)
