#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""The examples in Python, Rust and Go, run as examples/README.md says; that with torch is in test_examples_torch.py."""
import json
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_examples as examples  # noqa: E402
import te_proc as te  # noqa: E402
import te_stores as stores  # noqa: E402


def setUpModule():
    for program, package in (("make", "make"), ("pkg-config", "pkgconf")):
        stores.program(program, package)
    examples.prepare()
    examples.make("target")


class Python(unittest.TestCase):
    def test_arrays(self):
        self.assertEqual(examples.says(self, "arrays.py", examples.python_with("numpy")),
                         "request 17: 786432 bytes in 24 blocks, all as they were sent")

    def test_pages(self):
        self.assertEqual(examples.says(self, "pages.py", sys.executable),
                         "163840 bytes in 8 requests, 0 of 40 pages are wrong")

    def test_kv_layers(self):
        for env in ({}, {"MC_FORCE_TCP": "1"}):
            with self.subTest(**env), examples.start("kv_layers.py", python=sys.executable, env=env) as program:
                self.assertEqual(program.wait(), 0, program)
                self.assertEqual((program.lines, program.errors), (examples.LAYERS, []))

    def test_asyncio(self):
        self.assertRegex(examples.says(self, "aio.py", sys.executable),
                         "^4194304 bytes in 64 pages, 0 of them wrong; beyond the end: TE_ERR_STALE; "
                         "1 ms for all: it was (canceled|quicker)$")

    def test_traces(self):
        self.assertEqual(examples.says(self, "traces.py", sys.executable), "3 spans here, 2 at the target, all of one trace")
        with open(os.path.join(examples.folder(), "spans.json"), encoding="utf-8") as f:
            sides = [json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"] for line in f]
        (root, *asked), served = sides
        self.assertEqual([s["name"] for s in served], ["serve write of 4096", "serve read of 4096"])
        self.assertEqual([s["parentSpanId"] for s in served], [s["spanId"] for s in asked])
        self.assertEqual({s["parentSpanId"] for s in asked}, {root["spanId"]})
        self.assertEqual({s["traceId"] for s in (root, *asked, *served)}, {root["traceId"]})
        for s in (root, *asked, *served):
            self.assertLessEqual(int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"]))

    def test_replicas(self):
        self.assertRegex(examples.says(self, "replicas.py", examples.python_with("numpy")),
                         "^8 of 8 replicas have all 48 MiB; ")


    def test_without_a_module(self):
        """What a machine lacks is named, and status 77."""
        for name, module in (("arrays.py", "numpy"), ("replicas.py", "numpy"), ("tensors.py", "torch"),
                             ("pd_disaggregation", "torch")):
            without = os.path.join(te.Workdir.get(), f"without-{module}")
            os.makedirs(without, exist_ok=True)
            with open(os.path.join(without, f"{module}.py"), "w", encoding="ascii") as f:
                f.write("raise ImportError\n")
            path = f"{without}:{examples.environment()['PYTHONPATH']}"
            program = name if name.endswith(".py") else "run.py"
            with self.subTest(name), examples.start(name, python=sys.executable, env={"PYTHONPATH": path}) as proc:
                self.assertEqual(proc.wait(), 77, proc)
                self.assertEqual(proc.errors, [f"{program}: {module} is missing (package python3-{module})"])


class OtherLanguages(unittest.TestCase):
    def test_rust(self):
        stores.program("cargo", "cargo")
        env = {"CARGO_NET_OFFLINE": "true", "CARGO_TARGET_DIR": os.path.join(te.BUILD, "rust-example")}
        examples.moves_and_inverts(self, "rust", "rust", env)
        if not shutil.which("rustfmt"):
            print("left out: the format of the Rust example: rustfmt is missing")
            return
        source = os.path.join(examples.SOURCE, "rust", "src", "main.rs")
        examples.run("rustfmt", "--edition", "2021", "--check", source)

    def test_go(self):
        stores.program("go", "golang-go")
        env = {"GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
        if "HOME" not in os.environ:
            env["GOCACHE"] = os.path.join(te.BUILD, "go-cache")
        examples.moves_and_inverts(self, "go", "go", env)
        gofmt = os.path.join(examples.run("go", "env", "GOROOT").strip(), "bin", "gofmt")
        self.assertEqual(examples.run(gofmt, "-l", os.path.join(examples.SOURCE, "go")), "")


if __name__ == "__main__":
    te.main()
