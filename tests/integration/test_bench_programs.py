#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The programs and scripts behind `make bench`: they end by themselves, clean up, and judge rightly."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import te_proc as te

sys.path.insert(0, os.path.join(te.SRC, "scripts"))

BENCH = os.path.join(te.BUILD, "tests", "bench")
NETLAB = os.path.join(te.SRC, "scripts", "netlab.sh")
PROGRAMS = ("raw_stream", "raw_pingpong", "raw_memcpy", "raw_process_vm", "te_micro", "te_peers", "te_store", "raw_gpu", "te_gpu",
            "delay_relay")


def script_module(name):
    path = os.path.join(te.SRC, "scripts", f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def run(name, *flags):
    return te.run(name, *flags, folder=BENCH)


def namespaces():
    """Those whose processes are gone are left behind; a bench beside this test has its own."""
    out = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in out.splitlines() if line}


class Programs(unittest.TestCase):
    def test_every_program_is_named_here(self):
        there = {name[:-2] for name in os.listdir(os.path.join(te.SRC, "tests", "bench"))
                 if name.endswith(".c")}
        self.assertEqual(there, set(PROGRAMS))

    def test_help_and_wrong_calls(self):
        for name in PROGRAMS:
            proc = run(name, "--help")
            self.assertEqual(proc.rc, 0, proc)
            self.assertIn("--json", proc.output())
            for wrong in (("--no-such-option",), ("--json", "surplus")):
                proc = run(name, *wrong)
                self.assertEqual(proc.rc, 2, proc)
                self.assertTrue(proc.error_output().startswith(f"{name}: "), proc)

    def test_each_ends_with_a_line_of_json(self):
        short, small = "--seconds=0.2", "--buffer=4M"
        stream = ("raw_stream", "--seconds=100", "--bytes=3M", small)
        for name, *flags in (
                (*stream, "--streams=2", "--chunk=64K"),
                (*stream, "--window=256K", "--chunk=10000", "--ack=30000"),
                (*stream, "--window=64K", "--chunk=64K"),
                ("raw_pingpong", short, small, "--size=64"),
                ("raw_memcpy", short, small),
                ("te_peers", "--peers=20", "--processes=3"),
                ("te_micro", short, small, "--transport=tcp", "--memory=alloc",
                 "--block=64K", "--apart", "--batch=4", "--depth=3", "throughput"),
                ("te_micro", small, "--rounds=3", "--transport=tcp", "first"),
                ("te_micro", small, "--rounds=3", "--transport=tcp", "warm"),
                ("te_micro", small, "--rounds=2", "--batch=3000", "--transport=tcp", "submit"),
                ("te_micro", short, small, "--transport=rdma", "--nics=2", "--nic-mbps=100", "--slow-nic",
                 "--block=64K", "--batch=8", "throughput", "nics"),
                ("te_micro", short, small, "--transport=rdma", "--nics=2", "--striped", "--block=64K",
                 "--batch=8", "throughput", "nics"),
                ("te_micro", short, small, "--transport=rdma", "--nics=1", "--instant", "--block=4K",
                 "--batch=64", "--prepared", "--depth=2", "throughput", "nics")):
            if "--transport=rdma" in flags and "rdma" not in te.PARTS:
                continue
            proc = run(name, "--json", *flags)
            self.assertEqual(proc.rc, 0, proc)
            for line in proc.output().splitlines():
                record = json.loads(line)
                record.pop("nics_gb_s", None)  # 0 where there is no limit
                figures = [v for v in record.values() if isinstance(v, float)]
                self.assertTrue(figures and all(v > 0 for v in figures), (name, flags, record))

    def test_process_vm(self):
        for flags in (("--block=4K", "--list=128"), ("--write",)):
            proc = run("raw_process_vm", "--json", "--seconds=0.2", "--buffer=4M", *flags)
            if proc.rc == 77:
                self.skipTest(proc.error_output().strip())
            self.assertEqual(proc.rc, 0, proc)
            self.assertGreater(json.loads(proc.output())["gb_s"], 0)

    def test_faults(self):
        """each port costs something, and no request"""
        te.need("rdma")
        proc = run("te_micro", "--json", "--buffer=16M", "--transport=rdma", "--nics=2", "--nic-mbps=50",
                   "--depth=8", "--block=256K", "faults")
        self.assertEqual(proc.rc, 0, proc)
        records = [json.loads(line) for line in proc.output().splitlines()]
        self.assertEqual([(r["op"], r["failed"]) for r in records], [("local", 0), ("peer", 0)])
        for record in records:
            self.assertGreater(record["stall_ms"], 0)
            self.assertLess(record["without_gb_s"], 0.06)

    def test_nics_are_left_behind_by_nobody(self):
        te.need("rdma")
        with tempfile.TemporaryDirectory() as folder:
            for words, rc in ((("nics",), 0), (("faults",), 1)):
                proc = te.run("te_micro", "--buffer=4M", "--transport=rdma", "--nics=1", *words, folder=BENCH,
                              env={"TMPDIR": folder})
                self.assertEqual(proc.rc, rc, proc)
                self.assertEqual(os.listdir(folder), [])

    def test_instructions(self):
        te.need("rdma")
        proc = subprocess.run([os.path.join(te.SRC, "scripts", "bench_instructions.py"), "--build", te.BUILD,
                               "--seconds", "0.5", "--json"], capture_output=True, text=True, check=False)
        if "valgrind" in proc.stderr or te.SLOW > 1:
            self.skipTest(proc.stderr.strip())
        self.assertEqual(proc.returncode, 0, proc)
        self.assertGreater(json.loads(proc.stdout)["slice"], 100)

    def test_settings_may_hold_lists(self):
        """a word without '=' belongs to the value before it, and the option's own check says no"""
        proc = run("te_micro", "--set=TE_SPIN_US=1,2,TE_TCP_THREADS=1", "init")
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("TE_SPIN_US", proc.error_output())
        self.assertIn("1,2", proc.error_output())
        proc = run("te_micro", "--rounds=1", "--set=TE_SPIN_US=1,TE_TCP_THREADS=1", "init")
        self.assertEqual(proc.rc, 0, proc)
        proc = run("te_micro", "--peer-set=TE_NO_SUCH=1", "--buffer=1M", "path")
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("TE_NO_SUCH", proc.error_output())


class Lab(unittest.TestCase):
    def lab(self, *words):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        proc = subprocess.run([NETLAB, *words], capture_output=True, text=True, check=False,
                              timeout=2 * te.HANG_S)
        if proc.returncode == 77 or "cannot make a TUN device" in proc.stderr:
            self.skipTest(proc.stderr.strip())
        return proc

    def inside(self, name, *flags):
        return ["sh", "-c", f'echo $TE_NETNS; exec {BENCH}/{name} --netns $TE_NETNS '
                f'--address $TE_ADDRESS --json {" ".join(flags)}']

    def record(self, proc):
        self.assertEqual(proc.returncode, 0, proc)
        names, line = proc.stdout.splitlines()[:2]
        self.assertFalse(set(names.split(",")) & namespaces())
        return json.loads(line)

    def test_delay(self):
        """no round trip is shorter than the delay"""
        for us in (500, 2000):
            proc = self.lab("--build", te.BUILD, "--delay-us", str(us), "--",
                            *self.inside("raw_pingpong", "--seconds=1.5", "--buffer=1M", "--count=50"))
            self.assertGreaterEqual(self.record(proc)["p50_us"], us)

    def test_engine_over_the_cable(self):
        proc = self.lab("--build", te.BUILD, "--delay-us", "2000", "--",
                        *self.inside("te_micro", "--transport=tcp --buffer=4M --rounds=2 first"))
        self.assertGreaterEqual(self.record(proc)["first_ms"], 2.0)

    def test_links_are_as_fast_as_said(self):
        command = self.inside("raw_stream", "--seconds=100", "--bytes=10M", "--buffer=4M", "--chunk=64K")
        command[-1] = command[-1].replace("exec ", "date +%s.%N; ") + "; date +%s.%N"
        proc = self.lab("--links", "2", "--mbit", "80", "--slow", "--", *command)
        self.assertEqual(proc.returncode, 0, proc)
        names, begin, line, end = proc.stdout.splitlines()
        self.assertFalse(set(names.split(",")) & namespaces())
        # 80 Mbit/s, and the burst at the start
        self.assertGreater(float(end) - float(begin), (json.loads(line)["bytes"] - (128 << 10)) / 10e6)

    def test_nothing_is_left_after_a_failure(self):
        proc = self.lab("--links", "3", "--", "sh", "-c", "echo $TE_NETNS $TE_TARGETS; exit 3")
        self.assertEqual(proc.returncode, 3, proc)
        names, targets = proc.stdout.split()
        self.assertEqual(targets.count(","), 2)
        self.assertFalse(set(names.split(",")) & namespaces())

    def test_wrong_calls(self):
        for words in (("--delay-us", "x", "--", "true"), ("--links", "1"), ("--", "true"), ("--what",)):
            proc = subprocess.run([NETLAB, *words], capture_output=True, text=True, check=False)
            self.assertEqual(proc.returncode, 2, proc)
            self.assertIn("netlab.sh: ", proc.stderr)
        proc = subprocess.run([NETLAB, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(proc.returncode, 0, proc)


class Table(unittest.TestCase):
    """scripts/bench_table.py on samples made up here"""

    @classmethod
    def setUpClass(cls):
        cls.table = script_module("bench_table")

    def judged(self, lines, part="crc", ccs=("bbr",)):
        with tempfile.NamedTemporaryFile("w", suffix=".samples") as f:
            for number, tag, what in lines:
                f.write(f"{number}\t{tag}\t{what if isinstance(what, str) else json.dumps(what)}\n")
            f.flush()
            records, complaints = self.table.load(f.name)
        return {r["what"]: r for r in (self.table.judge(row, part, records, complaints)
                                       for row in self.table.rows_of(part, ccs))}

    def crc(self, *ours, limit=(1.0, 1.0, 1.0)):
        lines = [(n, "crc_on", {"op": "read", "gb_s": v}) for n, v in enumerate(ours, 1)]
        lines += [(n, "crc_off", {"op": "read", "gb_s": v}) for n, v in enumerate(limit, 1)]
        return self.judged(lines)["1 MiB x 16 read, with CRC32C"]

    def test_at_least(self):
        for ours, met, words in ((0.9, True, "yes"), (0.89, False, "NO"), (0.77, False, "NO"),
                                 (0.76, False, "NO, under 0.85 of it")):
            result = self.crc(ours, ours, ours)
            self.assertIs(result["met"], met, ours)
            self.assertEqual(self.table.verdict(result), words, ours)

    def test_at_most(self):
        for ns, words in ((150.0, "yes"), (151.0, "NO"), (176.0, "NO"),
                          (177.0, "NO, under 0.85 of it")):
            result = self.judged([(1, "submit256", {"ns_request": ns})], "core")["submit, batch of 256"]
            self.assertEqual(self.table.verdict(result), words, ns)

    def test_medians_and_range(self):
        """the ratio is the median of those of the rounds, not that of the medians"""
        result = self.crc(1.0, 4.0, 5.0, limit=(2.0, 4.0, 2.0))
        self.assertEqual((result["ours"], result["limit_value"], result["ratio"]), (4.0, 2.0, 1.0))
        self.assertEqual((result["ratio_low"], result["ratio_high"]), (0.5, 2.5))

    def test_what_was_not_measured_is_not_met(self):
        reason = "te_micro: TE_TCP_CRC32C: TE_ERR_NOT_FOUND: there is no option TE_TCP_CRC32C"
        limit = (1, "crc_off", {"op": "read", "gb_s": 1.0})
        for lines, words in (([limit, (1, "crc_on", "!" + reason)], "there is no option TE_TCP_CRC32C"),
                             ([limit, (1, "crc_on", "!")], "it failed without a word"),
                             ([limit, (1, "crc_on", "{broken")], "not JSON"),
                             ([limit], "no sample"),
                             ([], "no sample"),
                             ([(1, "crc_on", {"op": "read", "gb_s": 2.0})], "no sample"),
                             ([(1, "part:crc", "!needs root")], "needs root")):
            result = self.judged(lines)["1 MiB x 16 read, with CRC32C"]
            self.assertIsNone(result["met"], lines)
            self.assertIn(f"not measured: {words}", self.table.verdict(result))

    def test_parts_without_a_sample(self):
        for what, empty in (("!why", [("crc", "why")]), ({"op": "read", "gb_s": 1.0}, [])):
            results = self.judged([(1, "crc_on", what)])
            self.assertEqual(self.table.empty_parts(results.values(), {}), empty)
            self.assertEqual(self.table.empty_parts(results.values(), {"part:crc": "needs root"}), [])

    def test_best_chunk(self):
        """of the medians, not of the single lucky round"""
        values = {"256K": (9.0, 1.0, 1.0), "1M": (2.0, 2.0, 2.0), "4M": (1.5, 1.5, 1.5)}
        lines = [(n, f"raw1_{chunk}@bbr", {"gb_s": v})
                 for chunk, of in values.items() for n, v in enumerate(of, 1)]
        lines += [(n, "e1M@bbr", {"op": "read", "gb_s": 1.9}) for n in (1, 2, 3)]
        result = self.judged(lines, "stream")["1 MiB x 16 read, 1 thread, bbr"]
        self.assertEqual(result["limit_value"], 2.0)
        self.assertTrue(result["limit"].endswith(", 1M"), result["limit"])
        self.assertIs(result["met"], True)

    def test_sums(self):
        lines = [(1, "l1_raw", {"gb_s": 1.0}), (1, "slow_raw", {"gb_s": 0.25}),
                 (1, "l4slow_engine", {"op": "read", "gb_s": 3.0}),
                 (1, "l4_engine", {"op": "read", "gb_s": 3.0}),
                 (1, "d1000_ping", {"p50_us": 1000.0}),
                 (1, "d1000_first", {"first_ms": 4.0, "total_ms": 4.1})]
        links = self.judged(lines, "links")
        self.assertEqual(links["4 links, one at a quarter, read"]["limit_value"], 3.25)
        self.assertIs(links["4 links, one at a quarter, read"]["met"], True)
        self.assertIs(links["4 links, read"]["met"], False)
        delay = self.judged(lines, "delay")
        self.assertIs(delay["first transfer to a peer, 1 ms"]["met"], True)
        self.assertIsNone(delay["the same with te_open, 1 ms"]["met"])

    def test_every_row_is_printed_once(self):
        for part in self.table.PARTS:
            rows = self.table.rows_of(part, ("bbr", "reno"))
            self.assertEqual(len({row.what for row in rows}), len(rows), part)
        lines = self.table.table(list(self.judged([]).values())).splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1)


class Script(unittest.TestCase):
    SCRIPT = os.path.join(te.SRC, "scripts", "bench.sh")

    def bench(self, *words):
        return subprocess.run([self.SCRIPT, "--build", te.BUILD, *words], capture_output=True, text=True,
                              check=False, timeout=10 * te.HANG_S)

    def test_one_part(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            proc = self.bench("--quick", "--rounds", "1", "--only", "peers", "--json", path)
            self.assertEqual(proc.returncode, 0, proc)
            self.assertIn("bench.sh: round 1 of 1: peers", proc.stderr)
            self.assertIn("1,000 peers: resident memory each", proc.stdout)
            self.assertNotIn("1 MiB x 16", proc.stdout)
            with open(path, encoding="utf-8") as f:
                figures = json.load(f)
            self.assertEqual(len(figures["rows"]), 2)
            self.assertEqual(len(figures["samples"]["peers"]), 1)

    def test_a_part_without_a_sample(self):
        """is an error that says why"""
        with tempfile.TemporaryDirectory() as folder:
            bench = os.path.join(folder, "tests", "bench")
            os.makedirs(bench)
            for name in ("te_micro", "te_peers"):
                path = os.path.join(bench, name)
                with open(path, "w", encoding="ascii") as f:
                    f.write(f"#!/bin/sh\necho {name}: the batch ended in state 6 >&2\nexit 1\n")
                os.chmod(path, 0o755)
            proc = self.bench("--build", folder, "--rounds", "1", "--only", "peers")
        self.assertEqual(proc.returncode, 1, proc)
        self.assertIn("bench.sh: peers has left no sample: te_peers: the batch ended in state 6", proc.stderr)
        self.assertIn("1,000 peers: resident memory each", proc.stdout)

    def tuning(self, *words):
        return subprocess.run([os.path.join(te.SRC, "scripts", "bench_tuning.py"), "--build", te.BUILD,
                               *words], capture_output=True, text=True, check=False,
                              timeout=10 * te.HANG_S)

    def test_tuning(self):
        """a table of ratios to the base cell"""
        proc = self.tuning("--only", "submit", "--rounds", "1", "--seconds", "0.1")
        self.assertEqual(proc.returncode, 0, proc)
        self.assertIn("| batch | time a request |\n|---|---|\n", proc.stdout)
        self.assertIn("| 1024 | 1.00 |", proc.stdout)
        proc = self.tuning("--only", "no-such")
        self.assertEqual(proc.returncode, 2, proc)
        self.assertIn("no-such", proc.stderr)

    def test_every_table_of_the_tuning_guide_can_be_made_again(self):
        with open(os.path.join(te.SRC, "docs", "tuning.md"), encoding="utf-8") as f:
            guide = f.read()
        for sweep in script_module("bench_tuning").SWEEPS:
            head = f"**{sweep.what}**\n\n| {sweep.corner} | {' | '.join(sweep.columns)} |\n"
            self.assertIn(head, guide)
            for row in sweep.rows:
                self.assertIn(f"\n| {row} | ", guide)

    def script(self, name, *words):
        return subprocess.run([os.path.join(te.SRC, "scripts", name), *words], capture_output=True, text=True,
                              check=False, timeout=10 * te.HANG_S, env={**os.environ, "TE_TEST_BUILD": te.BUILD})

    def test_pairs(self):
        """a line for each measure, with both builds' figures, their ratio and in time an interval"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            proc = self.script("bench_pairs.py", te.BUILD, te.BUILD, "--pairs", "1", "--only", "local", "--json", path)
            self.assertEqual(proc.returncode, 0, proc)
            with open(path, encoding="utf-8") as f:
                figures = json.load(f)
        names = ["local 4 KiB p50", "local 1 MiB x 16 read", "local 1 MiB x 16 write"]
        self.assertEqual(list(figures), names)
        head, *lines = proc.stdout.splitlines()
        self.assertEqual(head.split()[:3], ["before", "after", "ratio"])
        self.assertEqual(len(lines), len(names), proc)
        for name, line in zip(names, lines):
            ((before, after),) = figures[name]
            self.assertGreater(min(before, after), 0)
            self.assertRegex(line, rf"^{name} +[\d.e+-]+ +[\d.e+-]+ (p50_us|gb_s) +[\d.]+   \(too few pairs")
        proc = self.script("bench_pairs.py", te.BUILD, te.BUILD, "--only", "local", "--rows", "64 B")
        self.assertEqual(proc.returncode, 2, proc)
        self.assertIn("no row of these parts has '64 B' in its name", proc.stderr)
        proc = self.script("bench_pairs.py", te.BUILD, "/nonexistent", "--only", "local")
        self.assertEqual(proc.returncode, 1, proc)
        self.assertIn("there is no /nonexistent/tests/bench/te_micro", proc.stderr)

    @unittest.skipUnless(os.path.exists(os.path.join(te.SRC, ".git")), "the tree is copied by git's list of files")
    def test_pairs_with_a_patch(self):
        """one that does not apply ends it before anything is built"""
        with tempfile.NamedTemporaryFile("w", suffix=".patch") as patch:
            patch.write("--- a/README.md\n+++ b/README.md\n@@ -1,1 +1,1 @@\n-This line was never there.\n+Nor was this.\n")
            patch.flush()
            proc = self.script("bench_pairs.py", patch.name, te.BUILD, "--pairs", "1", "--only", "local")
        self.assertEqual(proc.returncode, 1, proc)
        self.assertRegex(proc.stderr, rf"{re.escape(patch.name)} does not apply to this tree:\n.*README\.md")

    def test_judgement_of_pairs(self):
        pairs = script_module("bench_pairs")
        self.assertIsNone(pairs.interval([1.0] * 5))
        self.assertEqual(pairs.interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]), (1.0, 6.0))
        row = next(r for r in pairs.rows() if r.more_is_better)
        for after, worse in ((0.97, True), (0.99, False), (1.5, False)):
            self.assertEqual(pairs.line_of(row, [(1.0, after)] * 6, beyond=2).endswith("WORSE"), worse)
        self.assertTrue(pairs.line_of(row, [], beyond=2).endswith("nothing was measured"))

    def test_hostile(self):
        """four lines of figures for each kind, and what the honest peer keeps"""
        proc = self.script("bench_hostile.py", "--kinds", "connects", "--rounds", "1", "--seconds", "1")
        self.assertEqual(proc.returncode, 0, proc)
        head, *lines = proc.stdout.split("\n")
        self.assertEqual(head.split(), "kind p50 ms p99 ms most ms reads GB/s MiB more".split())
        for name, line in zip(("idle", "load", "elsewhere", "attack"), lines):
            self.assertRegex(line, rf"^connects +{name} +(\d+\.\d +){{3}}\d+\.\d\d +-?\d+$", proc)
            p50, p99, most = (float(word) for word in line.split()[2:5])
            self.assertLessEqual(p50, p99)
            self.assertLessEqual(p99, most)
        self.assertRegex(lines[4], r"^connects +attack, which took \d+\.\d processors, keeps \d+\.\d\d of the reads ")
        proc = self.script("bench_hostile.py", "--kinds", "no-such")
        self.assertEqual(proc.returncode, 2, proc)
        self.assertIn("no-such", proc.stderr)

    def test_wrong_calls(self):
        for words, says in ((("--only", "no-such"), "no-such"), (("--rounds", "0"), "--rounds"),
                            (("--what",), "--what"), (("--json",), "--json")):
            proc = self.bench(*words)
            self.assertEqual(proc.returncode, 2, proc)
            self.assertIn(says, proc.stderr)


if __name__ == "__main__":
    te.main()
