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


def rows(text):
    """{what the first column has: {column: text}} of the tables"""
    found, head = {}, None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif not cells[0].startswith("---"):
            found[cells[0]] = dict(zip(head, cells))
    return found


class Fleet(unittest.TestCase):
    """Twenty engines in virtual time; docs/scale.md has a thousand."""

    @classmethod
    def setUpClass(cls):
        cls.run_ = sim("--fleet=20")
        cls.rows = rows(cls.run_.stdout)

    def test_it_passes(self):
        self.assertEqual(self.run_.returncode, 0, self.run_.stderr[-4000:])
        self.assertRegex(self.run_.stdout, r"All have ended within [0-9.]+ s, and left 0 descriptors")

    def test_what_opening_costs_the_metadata_server(self):
        self.assertLessEqual(float(self.rows["all have opened all"]["Store requests an engine"]), 2 * 19 + 10)

    def test_nobody_else_is_held_up(self):
        for phase in ("one is slow", "one is frozen", "one is dead", "it is back", "the metadata server is away"):
            row = self.rows[phase]
            self.assertTrue(row["Failed"].startswith("0 of "), (phase, row))
            self.assertLess(float(row["p99, before = 1"]), 1.05, (phase, row))

    def test_who_is_concerned(self):
        failed, of = map(int, self.rows["one is dead"]["From or to that engine failed"].split(" of "))
        self.assertEqual(failed, of)
        self.assertTrue(self.rows["it is back"]["From or to that engine failed"].startswith("0 of "))

    def test_all_start_again(self):
        self.assertTrue(self.rows["after that"]["Failed"].startswith("0 of "))
        self.assertLess(float(self.rows["after that"]["p99, before = 1"]), 1.05)


if __name__ == "__main__":
    if not os.path.exists(SIM):
        print("there is no simulation: it needs glibc")
        raise SystemExit(77)
    unittest.main(verbosity=2)
