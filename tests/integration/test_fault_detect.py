#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""A byte that is flipped on the way must be seen: by the demo, by --verify and by the validator."""
import os
import re
import unittest

import te_proc as te

FLIP = {"TE_FAULT": "flip=1"}


class FlippedByte(unittest.TestCase):
    def run_against_target(self, env, program, *flags):
        with te.Target(folder=te.FAULT_BIN) as target:
            return te.bench(target.segment, "--batches=8", *flags, program=program, folder=te.FAULT_BIN,
                            env=env)

    def demo(self, env):
        te.tool("transfer_engine_bench", te.FAULT_BIN)
        command = ["bash", os.path.join(te.SRC, "scripts", "demo.sh")]
        with te.Proc(command, env={"TE_BIN": te.FAULT_BIN, **env}) as proc:
            proc.rc = proc.wait()
        return proc

    def test_verify(self):
        proc = self.run_against_target(FLIP, "transfer_engine_bench", "--verify")
        self.assertEqual(proc.rc, 1, proc)
        self.assertRegex(proc.error_output(), r"Detect data integrity problem: .* byte at offset \d+ ")

    def test_validator(self):
        proc = self.run_against_target(FLIP, "transfer_engine_validator")
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("Detect data integrity problem", proc.error_output())

    def test_colour(self):
        with te.Target(folder=te.FAULT_BIN) as target:
            rc, text = te.on_terminal([te.tool("transfer_engine_bench", te.FAULT_BIN), "--metadata_server=P2PHANDSHAKE",
                                       "--local_server_name=127.0.0.1", f"--segment_id={target.segment}", "--verify",
                                       "--protocol=tcp", "--threads=1", "--batch_size=4", "--buffer_size=8M",
                                       "--batches=8", te.FOREVER], FLIP)
        self.assertEqual(rc, 1, text)
        self.assertIn("\033[31mDetect data integrity problem\033[m: worker 0", text)
        self.assertIn("\033[31mTest failed\033[m ", text)

    def test_demo(self):
        proc = self.demo(FLIP)
        self.assertEqual(proc.rc, 1, proc)
        self.assertRegex(proc.lines[-1], r"^demo: \d+ bytes verified, [1-9]\d* errors$")

    def test_the_same_programs_pass_without_it(self):
        for program, flags in (("transfer_engine_bench", ("--verify",)), ("transfer_engine_validator", ())):
            proc = self.run_against_target({}, program, *flags)
            self.assertEqual(proc.rc, 0, proc)


class Demo(unittest.TestCase):
    def passes(self):
        te.tool("transfer_engine_bench")
        with te.Proc(["bash", os.path.join(te.SRC, "scripts", "demo.sh")],
                     env={"TE_BIN": te.BIN}) as proc:
            self.assertEqual(proc.wait(), 0, proc)
        match = re.search(r"^demo: (\d+) bytes verified, 0 errors$", proc.lines[-1])
        self.assertTrue(match, proc)
        self.assertGreaterEqual(int(match.group(1)), 2**30)

    if te.SLOW == 1:  # a sanitizer would take a minute for what the other tests show it anyway
        test_demo_passes = passes


if __name__ == "__main__":
    te.main()
