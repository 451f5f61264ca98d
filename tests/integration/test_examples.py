#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""The examples in C and C++: built by their Makefile over an installed prefix, run as examples/README.md says."""
import os
import re
import shutil
import unittest

import te_examples as examples
import te_proc as te

CXX = os.environ.get("TE_TEST_CXX") or "c++"
WARNINGS = "-Wall -Wextra -Werror -pedantic"


def build(*targets):
    """By the Makefile, with the compilers and sanitizers of the tree that is tested, warnings being errors."""
    flags = " ".join([WARNINGS, *te.CFLAGS])
    examples.make(f"CXX={CXX}", f"CFLAGS=-std=c17 {flags}", f"CXXFLAGS=-std=c++17 {flags}", *targets)


def setUpModule():
    for program in ("make", "pkg-config"):
        if not shutil.which(program):
            te.skip(f"{program} is missing")
    examples.prepare()
    build()


class Programs(unittest.TestCase):
    def test_initiator(self):
        peer = examples.moves_and_inverts(self, "initiator.c", "initiator")
        completed = int(re.search(r"of 32 canceled requests (\d+) completed$", peer.output()).group(1))
        self.assertLessEqual(completed, 32)

    def test_pages(self):
        with examples.start("pages.c") as program:
            self.assertEqual(program.wait(), 0, program)
            self.assertEqual(program.lines, ["pages: 163840 bytes in 8 requests, success", "pages: 0 of 40 pages are wrong"])

    def test_kv_layers(self):
        for env in ({}, {"MC_FORCE_TCP": "1"}):
            with self.subTest(**env), examples.start("kv_layers.c", env=env) as program:
                self.assertEqual(program.wait(), 0, program)
                self.assertEqual(program.lines, examples.LAYERS)

    def test_mooncake(self):
        examples.moves_and_inverts(self, "mooncake.cc", "mooncake")

    def test_two_hosts(self):
        with examples.start("two_hosts.sh") as script:
            status = script.wait()
        if status == 77:
            te.skip(script.errors[-1])
        self.assertEqual(status, 0, script)
        self.assertRegex(script.lines[0], r"^target: 10\.231\.80\.1:\d+$")
        self.assertRegex(script.lines[1], "^initiator: 2097152 bytes read, 0 of them wrong, and written back inverted")
        self.assertEqual(script.lines[3], "target: 2097152 bytes came back inverted, 0 of them wrong")

    def secured(self, **env):
        script = examples.start("secured_pair.sh", env=env)
        self.addCleanup(script.close)
        return script, script.wait()

    def test_secured_pair(self):
        script, status = self.secured(PATH=f"{examples.prefix()}/bin:{os.environ['PATH']}")
        if status == 77:
            te.skip(script.errors[-1])
        self.assertEqual(status, 0, script)
        self.assertEqual(script.lines[:2], ["secured_pair: a.keys -> b.keys: yes", "secured_pair: b.keys -> a.keys: yes"])
        self.assertRegex(script.lines[2], r"^target: 127\.0\.0\.1:\d+$")
        self.assertEqual(script.lines[3], "secured_pair: without a key: set TE_AUTH here as it is there")
        self.assertRegex(script.lines[4], "^initiator: 2097152 bytes read, 0 of them wrong, and written back inverted")
        self.assertEqual(script.lines[6], "target: 2097152 bytes came back inverted, 0 of them wrong")

    def test_secured_pair_without_te_keys(self):
        without = os.path.join(te.Workdir.get(), "without_te_keys")
        os.mkdir(without)
        for name in ("bash", "dirname"):
            os.symlink(shutil.which(name), os.path.join(without, name))
        script, status = self.secured(PATH=without)
        self.assertEqual(status, 77, script)
        self.assertIn("te_keys is not in PATH", script.error_output())

    def test_containers(self):
        with examples.start("containers.sh") as script:
            status = script.wait()
        if status == 77:
            te.skip(script.errors[-1])
        self.assertEqual(status, 0, script)
        self.assertRegex(script.lines[0], "^(two containers, by (podman|docker)|two namespaces of one user)$")
        self.assertRegex(script.output(), r"(?m)^target: (\d+\.){3}\d+:\d+$")
        self.assertRegex(script.output(), "(?m)^initiator: 2097152 bytes read, 0 of them wrong, and written back inverted")
        self.assertEqual(script.lines[-1], "target: 2097152 bytes came back inverted, 0 of them wrong")

    def test_containers_without_any(self):
        """Where nothing can be made it is told, by name."""
        without = os.path.join(te.Workdir.get(), "without")
        os.mkdir(without)
        for name in ("podman", "docker", "unshare"):
            with open(os.path.join(without, name), "w", encoding="ascii") as f:
                f.write("#!/bin/sh\necho not permitted >&2\nexit 1\n")
            os.chmod(os.path.join(without, name), 0o755)
        with examples.start("containers.sh", env={"PATH": f"{without}:{os.environ['PATH']}"}) as script:
            self.assertEqual(script.wait(), 77, script)
            self.assertIn("neither podman nor docker runs a container here, and no namespaces: not permitted",
                          script.error_output())

    def test_small_makefile(self):
        with open(os.path.join(examples.SOURCE, "Makefile"), encoding="utf-8") as f:
            lines = [line for line in f.read().splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 3)


class Refuted(unittest.TestCase):
    """They say what is wrong, and end with another status."""

    def test_nobody_is_there(self):
        for name in ("initiator.c", "mooncake.cc"):
            with examples.start(name, f"127.0.0.1:{te.dead_port()}") as peer:
                self.assertEqual(peer.wait(), 1, peer)
                self.assertIn("is the target running?", peer.error_output())

    def test_usage(self):
        for name in ("initiator.c", "mooncake.cc"):
            with examples.start(name) as peer:
                self.assertEqual(peer.wait(), 2, peer)
                self.assertIn("usage: ", peer.error_output())

    def test_another_segment(self):
        with te.Target() as target, examples.start("initiator.c", target.segment) as peer:
            self.assertEqual(peer.wait(), 1, peer)
            self.assertIn("this is not the segment of target.c", peer.error_output())

    def test_wrong_bytes(self):
        """What is not inverted the target finds."""
        path = os.path.join(examples.folder(), "initiator.c")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        changed = text.replace("(unsigned char)~memory[i]", "(unsigned char)(i == 70000 ? 1 : ~memory[i])")
        self.assertNotEqual(text, changed)
        for content in (changed, text):
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
            build("-B", "initiator")
            with examples.start("target.c") as target:
                segment = target.wait_line(r"^target: (\S+)$").group(1)
                with examples.start("initiator.c", segment) as peer:
                    self.assertEqual(peer.wait(), 0, peer)
                self.assertEqual(target.wait(), int(content == changed), target)
                self.assertEqual(target.lines[2], "target: 2097152 bytes came back inverted, "
                                                  f"{int(content == changed)} of them wrong")


class Readme(unittest.TestCase):
    def test_table_lists_all(self):
        there = {name for name in os.listdir(examples.SOURCE)
                 if name in ("rust", "go", "pd_disaggregation") or name.endswith((".c", ".cc", ".py", ".sh"))}
        self.assertEqual(set(examples.rows()), there)


if __name__ == "__main__":
    te.main()
