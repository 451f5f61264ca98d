#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""transfer_engine_bench --sweep --html: the rows, the page, its limits, what is refused."""
import json
import os
import re
import signal
import subprocess
import unittest
from xml.etree import ElementTree

import te_proc as te

BENCH = "transfer_engine_bench"
SIZES = ("4096", "65536", "1048576")
SWEEP = ("--sweep", "--sweep_block_size=4K,1M,64K", "--sweep_threads=1,2", "--sweep_batch_size=2",
         "--batches=5")


def path_of(name):
    return os.path.join(te.Workdir.get(), name)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(name, text):
    path = path_of(name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


class Page:
    """What a page shows. That it can be parsed at all shows that it is well formed."""

    def __init__(self, path):
        self.source = read(path)
        self.root = ElementTree.fromstring(self.source)
        self.charts = [Chart(e) for e in self.root.findall(".//svg")]
        self.text = "".join(self.root.itertext())

    def table(self, name):
        return [["".join(cell.itertext()) for cell in row]
                for row in self.root.findall(f".//table[@class='{name}']//tr")]

    def facts(self):
        return {row[0]: row[1] for row in self.table("words")}


class Chart:
    def __init__(self, element):
        self.label = element.get("aria-label")
        self.curves = [e.get("points").split() for e in element.findall(".//polyline")]
        self.dots = element.findall(".//circle[@class='dot']")
        self.titles = [e.text for e in element.findall(".//g[@class='point']/title")]
        self.limits = [e.text for e in element.findall(".//g[@class='limit']/title")]
        self.words = ["".join(e.itertext()) for e in element.findall(".//text")]


class Sweep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.target = te.Target(size="8M")
        os.environ["TE_TCP_CONGESTION"] = "reno"  # which every kernel has

    @classmethod
    def tearDownClass(cls):
        cls.target.close()
        del os.environ["TE_TCP_CONGESTION"]

    def bench(self, *flags, rc=0):
        proc = te.bench(self.target.segment, *flags)
        self.assertEqual(proc.rc, rc, proc)
        return proc

    def check_charts(self, page, points):
        """points: [threads][block] of JSON, the blocks as in the list"""
        for chart in page.charts:
            self.assertEqual(len(chart.curves), len(points), chart.label)
            for curve, row in zip(chart.curves, points):
                self.assertEqual(len(curve), len(row), chart.label)
                x = [float(point.split(",")[0]) for point in curve]
                self.assertEqual(x, sorted(x), chart.label)
            self.assertEqual(len(chart.dots), sum(len(c) for c in chart.curves))
            self.assertEqual(len(chart.titles), len(chart.dots))
            self.assertIn("Block size in bytes (log2 axis; K = 1,024)", chart.words)
            for size in ("4K", "64K", "1M"):
                self.assertIn(size, chart.words)

    def test_page_and_rows(self):
        path = path_of("page.html")
        proc = self.bench(*SWEEP, "--operation=write", f"--html={path}", "--json")
        result = json.loads(proc.output())
        self.assertIs(result["failed"], False)
        points = result["points"]
        self.assertEqual([(str(p["block_size"]), p["batch_size"], p["threads"]) for p in points],
                         [(b, 2, t) for t in (1, 2) for b in (SIZES[0], SIZES[2], SIZES[1])])
        self.assertNotIn("row 1", proc.error_output())  # that is for terminals
        page = Page(path)
        self.assertEqual([chart.label for chart in page.charts],
                         [f"{what} against block size, batches of 2" for what in
                          ("Throughput", "Batch latency, p50", "Batch latency, p99")])
        self.check_charts(page, [points[:3], points[3:]])
        numbers = page.table("numbers")
        self.assertEqual([row[:3] for row in numbers[1:]],
                         [[b, "2", t] for t in ("1", "2") for b in ("4K", "1M", "64K")])
        for row, point in zip(numbers[1:], points):
            self.assertEqual(point["batch_count"], 5 * point["threads"])
            self.assertAlmostEqual(float(row[3]), point["throughput_bytes_per_s"] / 1e9, delta=0.0006)
            self.assertAlmostEqual(float(row[6]), point["batch_latency_us"]["p50"], delta=0.06)
        self.check_facts(page)

    def check_facts(self, page):
        facts = page.facts()
        for name, value in {"Operation": "write", "Carried by": "tcp (protocol tcp)", "Target": self.target.segment,
                            "Requests a batch": "2", "Threads": "1, 2",
                            "Batches of each worker": "at most 5"}.items():
            self.assertEqual(facts[name], value)
        self.assertRegex(facts["Program"], r"^transfer_engine_bench \d+\.\d+\.\d+$")
        self.assertRegex(facts["CPUs"], r"^\d+, model .")
        self.assertRegex(facts["Date"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        self.assertRegex(facts["TCP congestion control"], "^.+, the system's; reno by TE_TCP_CONGESTION$")
        self.assertTrue(facts["Host of this side"].startswith(os.uname().nodename + ": "))
        self.assertRegex(facts["Most"], r"^\d+\.\d\d GB/s: blocks of (4K|64K|1M), 2 a batch, [12] threads?$")
        # Complete in itself: nothing is fetched, nothing runs.
        self.assertNotRegex(page.source, r"(?i)http|<script|<link|<img|url\(|@import|src=|href=")
        self.assertRegex(page.source, r"prefers-color-scheme: dark")
        # memcpy was measured here; of the network there is no figure, and the page says so.
        self.assertRegex(facts["memcpy of large buffers here, 1 thread"], r"^[\d.]+ GB/s")
        self.assertIn("No limit of the network was given", page.text)
        self.assertNotIn("Ended early", facts)

    def test_rows_alone(self):
        lines = self.bench(*SWEEP, "--sweep_block_size=4K", "--sweep_threads=1").lines
        self.assertEqual(re.split(r"\s{2,}", lines[0].strip()),
                         ["BlkSize (B)", "Batch", "Threads", "BW (GB/s)", "Avg Lat (us)", "P50 (us)",
                          "P99 (us)", "P999 (us)"])
        self.assertEqual(lines[1].split()[:3], ["4096", "2", "1"])
        self.assertEqual(len(lines), 2)

    def test_a_chart_for_each_batch(self):
        path = path_of("batches.html")
        self.bench(*SWEEP, "--sweep_batch_size=1,3", "--sweep_threads=1", "--sweep_block_size=4K",
                   "--verify", f"--html={path}")
        page = Page(path)
        self.assertEqual(len(page.charts), 6)
        self.assertIn("batches of 3", page.charts[5].label)
        self.assertEqual(page.facts()["Operation"], "write, read back and compare")

    def test_limits(self):
        """the lines that the raw programs print, as they print them"""
        path, limits = path_of("limits.html"), write("limits.json", "")
        with open(limits, "a", encoding="utf-8") as out:
            for name, *flags in (("raw_stream", "--bytes=16M", "--seconds=60"), ("raw_pingpong", "--count=50"),
                                 ("raw_memcpy", "--seconds=0.1")):
                program = te.tool(name, os.path.join(te.BUILD, "tests", "bench"))
                subprocess.run([program, *flags, "--json"], stdout=out, check=True, timeout=te.HANG_S)
            out.write('{"process_vm_GBps": 3.25}')
        self.bench(*SWEEP, f"--html={path}", f"--sweep_limits={limits}")
        page = Page(path)
        facts = page.facts()
        for name in ("raw_memcpy, 1 thread", "raw_pingpong, p50", "raw_pingpong, p99"):
            self.assertIn(name, facts)
        self.assertTrue(any(name.startswith("raw_stream, 1 stream, ") for name in facts), facts)
        self.assertTrue(facts["process_vm"].startswith("3.25 GB/s"), facts)
        self.assertNotIn("memcpy of large buffers here, 1 thread", facts)
        self.assertNotIn("No limit of the network", page.text)
        drawn = sum("GB/s" in value and "not drawn" not in value for name, value in facts.items() if name != "Most")
        self.assertEqual(len(page.charts[0].limits), drawn)
        for chart, quantile in zip(page.charts[1:], ("p50", "p99")):
            self.assertEqual(len(chart.limits), 1)
            self.assertTrue(chart.limits[0].startswith(f"raw_pingpong, {quantile}: "), chart.limits)

    def test_text_from_outside_is_no_markup(self):
        path = path_of("escaped.html")
        limits = write("evil.json", '{"bench": "raw_stream", "cc": "<script>&\\u0001", "gb_s": 0.01}')
        self.bench(*SWEEP, "--sweep_block_size=4K", f"--html={path}", f"--sweep_limits={limits}")
        page = Page(path)
        self.assertIn("raw_stream, <script>&\ufffd", page.facts())
        self.assertNotIn("<script", page.source)

    def test_batch_that_does_not_fit(self):
        """the target has 8 MiB: 16 blocks of 1 MiB for each of 2 threads do not fit"""
        proc = self.bench("--sweep", "--sweep_block_size=1M", "--sweep_batch_size=16",
                          "--sweep_threads=2", "--batches=3", "--json")
        self.assertIn("batch lowered from 16 to 4 for blocks of 1M and 2 threads",
                      proc.error_output())
        self.assertIn("--buffer_size", proc.error_output())
        (point,) = json.loads(proc.output())["points"]
        self.assertEqual((point["batch_size"], point["batch_size_asked"]), (4, 16))
        too_large = self.bench("--sweep", "--sweep_block_size=16M", "--sweep_threads=1", rc=1)
        self.assertIn("--buffer_size=16M ", too_large.error_output())

    def test_interrupt(self):
        """what was measured so far is a page"""
        path = path_of("early.html")
        rows = range(1, 61)  # which take twice as long as the first may take to be seen
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", "--buffer_size=8M", "--sweep",
                   "--sweep_block_size=4K", "--sweep_threads=1", "--sweep_batch_size=" + ",".join(map(str, rows)),
                   f"--duration={te.HANG_S / 30}", f"--html={path}"]
        with te.Proc(command) as proc:
            proc.wait_line(r"^ +4096 +1 +1 ")
            self.assertEqual(proc.stop(signal.SIGINT), 0, proc)
        page = Page(path)
        self.assertIn(f"of {len(rows)} points were measured", page.facts()["Ended early"])
        self.assertEqual([len(page.charts[i].curves[0]) for i in (0, -1)], [1, 0])

    def test_progress_line_on_a_terminal(self):
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", "--buffer_size=8M", "--sweep",
                   "--sweep_block_size=4K", "--sweep_batch_size=1,2", "--sweep_threads=1", f"--duration={te.HANG_S}"]
        rc, text = te.until_on_terminal(command, r"\rrow 1 of 2: [\d.]+ GB/s, \d+ batches, (\d+) s left")
        self.assertEqual(rc, 0, text)
        left = int(re.search(r"batches, (\d+) s left", text).group(1))
        self.assertGreater(left, te.HANG_S)  # the second row's time is part of it

    def test_file_that_cannot_be_written(self):
        for path in ("/nonexistent/folder/page.html", te.Workdir.get()):
            proc = self.bench(*SWEEP, f"--html={path}", "--json", rc=1)
            self.assertIn(path, proc.error_output())
            result = json.loads(proc.output())
            self.assertIs(result["failed"], True)
            self.assertIn(path, result["error"])
            self.assertNotIn("points", result)  # told before anything is measured
        self.assertEqual([n for n in os.listdir(te.Workdir.get()) if n.endswith(".tmp")], [])

    def refused(self, *flags, says, rc=2):
        proc = te.run(BENCH, "--metadata_server=P2PHANDSHAKE", "--segment_id=127.0.0.1:1",
                      "--local_server_name=127.0.0.1", "--protocol=tcp", *flags)
        self.assertEqual(proc.rc, rc, proc)
        self.assertIn(says, proc.error_output())

    def test_refusals(self):
        for flag in ("sweep_block_size", "sweep_batch_size", "sweep_threads"):
            for bad in ("", ",", "0", "x", "4K,", "1,,2"):
                self.refused("--sweep", f"--{flag}={bad}", says=f"bad value '{bad}' for --{flag}")
        self.refused("--html=page.html", says="--html goes with --sweep")
        self.refused("--sweep_limits=limits.json", says="--sweep_limits goes with --sweep")
        self.refused("--sweep", "--sweep_limits=limits.json", says="--sweep_limits goes with --html")
        self.refused("--sweep", "--html=", says="--html needs the name of a file")
        self.refused("--mode=target", "--sweep", says="--sweep is for the initiator")
        page = f"--html={path_of('never.html')}"
        self.refused("--sweep", page, "--sweep_limits=/nonexistent/limits", rc=1, says="/nonexistent/limits")
        for text, says in (("", "is empty"), ("{}", "no figure"), ("{", "no JSON")):
            path = write("bad.json", text)
            self.refused("--sweep", page, f"--sweep_limits={path}", rc=1, says=path)
            self.refused("--sweep", page, f"--sweep_limits={path}", rc=1, says=says)
        self.assertFalse(os.path.exists(path_of("never.html")))


if __name__ == "__main__":
    te.main()
