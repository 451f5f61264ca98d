#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The Rust crate: its own tests, its bench against the one in C, and what CMake makes of it."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SRC = os.environ.get("TE_TEST_SRC") or os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(SRC, "tests", "integration"))
import te_proc as te  # noqa: E402

CRATE = os.path.join(te.SRC, "bindings", "rust")
LIB = os.path.join(te.BUILD, "lib")
CARGO_OUT = os.path.join(te.BUILD, "rust")
EXAMPLES = os.path.join(CARGO_OUT, "debug", "examples")
BENCH = "transfer_engine_bench"
SMALL = ("--threads=3", "--batch_size=5", "--block_size=10001", "--buffer_size=4M")
SIDES = {"C": None, "Rust": EXAMPLES}


def setUpModule():
    if not shutil.which("cargo"):
        te.skip("cargo is missing")
    if not os.path.exists(os.path.join(LIB, "libtransfer_engine.so")):
        te.skip(f"{LIB} has no shared library")
    built = cargo("test", "--no-run")
    if built.returncode:
        raise AssertionError(built.stdout)


def cargo(command, *flags, **variables):
    """Runs cargo without a network on the crate as it lies there."""
    env = {**os.environ, **variables, "CARGO_TARGET_DIR": CARGO_OUT, "TRANSFER_ENGINE_LIB_DIR": LIB, "LD_LIBRARY_PATH": LIB,
           "TE_TEST_CC": te.CC, "TRANSFER_ENGINE_INCLUDE_DIR": os.path.join(te.SRC, "include")}
    return subprocess.run(["cargo", command, "--offline", "--locked", *flags], cwd=CRATE, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10 * te.HANG_S, check=False)


class Crate(unittest.TestCase):
    def test_its_own_tests(self):
        """units, two processes, the README's example, and what must not compile"""
        done = cargo("test")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"Readme \(line \d+\) \.\.\. ok")
        refused = re.findall(r"compile fail \.\.\. ok", done.stdout)
        self.assertGreaterEqual(len(refused), 6, done.stdout)
        examples = set(re.findall(r"^test src/\w+\.rs - (\S+) \(line \d+\)(?: - compile)? \.\.\. ok$", done.stdout, re.M))
        for item in ("engine::Engine", "engine::EngineBuilder", "region::Region", "segment::Segment", "batch::Batch",
                     "prepared::Prepared", "request::SubmitOptions", "event::Events", "counter::Counter", "lease::Lease",
                     "log::set_log_sink"):
            self.assertIn(item, examples)

    def test_documentation(self):
        """each public item has some, and no link in it leads nowhere"""
        done = cargo("doc", "--no-deps", RUSTDOCFLAGS="-D warnings")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(os.path.exists(os.path.join(CARGO_OUT, "doc", "transfer_engine", "struct.Engine.html")))
        with open(os.path.join(CRATE, "src", "lib.rs"), encoding="utf-8") as f:
            self.assertRegex(f.read(), r"(?m)^#!\[deny\(missing_docs\b")

    def test_clippy(self):
        if not shutil.which("cargo-clippy"):
            print("left out: clippy was not asked: cargo-clippy is missing")
            return
        done = cargo("clippy", "--all-targets", "--", "-D", "warnings")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_format(self):
        if not shutil.which("cargo-fmt"):
            print("left out: the format of the crate: cargo-fmt is missing")
            return
        done = subprocess.run(["cargo", "fmt", "--check"], cwd=CRATE, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def build_script(self, **env):
        """What build.rs tells cargo in this environment, and its status."""
        scripts = glob.glob(os.path.join(CARGO_OUT, "debug", "build", "transfer-engine-*", "build-script-build"))
        clean = {name: value for name, value in os.environ.items()
                 if name not in ("TRANSFER_ENGINE_LIB_DIR", "PKG_CONFIG_PATH")}
        done = subprocess.run([max(scripts, key=os.path.getmtime)], cwd=CRATE, env={**clean, **env}, text=True,
                              capture_output=True, timeout=te.HANG_S, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def test_where_the_library_is_looked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            asked = os.path.join(folder, "pkg-config")
            with open(asked, "w", encoding="utf-8") as script:
                script.write('#!/bin/sh\necho "-L$PKG_CONFIG_PATH -lm -ltransfer_engine"\n')
            os.chmod(asked, 0o755)
            lib, search = os.path.realpath(LIB), "cargo:rustc-link-search=native="
            user = {"PKG_CONFIG": asked, "PKG_CONFIG_PATH": "/user's"}
            status, empty, _ = self.build_script(TRANSFER_ENGINE_LIB_DIR="", **user)
            self.assertEqual((status, empty), self.build_script(**user)[:2])
            self.assertIn(f"{search}/user's", empty)
            relative = os.path.relpath(lib, os.path.realpath(CRATE))
            self.assertIn(search + lib, self.build_script(TRANSFER_ENGINE_LIB_DIR=relative)[1])
            status, _, said = self.build_script(TRANSFER_ENGINE_LIB_DIR="no/such/folder")
            self.assertNotEqual(status, 0)
            self.assertIn("no/such/folder", said)
            told = self.build_script(TRANSFER_ENGINE_LIB_DIR=lib, CARGO_FEATURE_STATIC="1", **user)[1]
            self.assertIn(f"cargo:rerun-if-changed={lib}/libtransfer_engine.a", told)
            self.assertIn(f"{search}{lib}/pkgconfig:{os.path.dirname(lib)}:/user's", told)
            self.assertIn("cargo:rustc-link-lib=static=transfer_engine", told)
            self.assertNotIn("cargo:rustc-link-lib=transfer_engine", told)

    def test_package(self):
        listed = cargo("package", "--list", "--allow-dirty")
        self.assertEqual(listed.returncode, 0, listed.stdout)
        for name in ("Cargo.toml", "LICENSE", "README.md", "build.rs", "src/lib.rs", "src/sys/tests.rs"):
            self.assertIn(name, listed.stdout.splitlines())
        with open(os.path.join(te.SRC, "include", "te.h"), encoding="utf-8") as header:
            version = re.search(r'TE_VERSION_STRING "(.+)"', header.read()).group(1)
        with open(os.path.join(CRATE, "Cargo.toml"), encoding="utf-8") as manifest:
            self.assertIn(f'\nversion = "{version}"\n', manifest.read())


class Bench(unittest.TestCase):
    """SIDES has the folder of each bench: they take the same flags."""

    def pair(self, target, initiator, *flags, metadata=te.P2P, names=("127.0.0.1", "127.0.0.1")):
        with te.Target(folder=SIDES[target], metadata=metadata, name=names[0]) as served:
            proc = te.bench(served.segment, *SMALL, *flags, folder=SIDES[initiator], metadata=metadata,
                            name=names[1])
            self.assertEqual(proc.rc, 0, proc)
            line = r"^Test completed: duration \d+\.\d\d, batch count [1-9]\d*, throughput \d+\.\d\d GB/s$"
            self.assertRegex(proc.output().splitlines()[0], line)
            self.assertEqual(served.stop(), 0, served)
            return proc

    def test_verified_between_both_languages(self):
        for target, initiator in (("C", "Rust"), ("Rust", "C"), ("Rust", "Rust")):
            with self.subTest(target=target, initiator=initiator):
                proc = self.pair(target, initiator, "--verify", "--batches=30")
                (checked,) = re.findall(r"^Verified: (\d+) bytes, 0 errors$", proc.output(), re.M)
                self.assertGreater(int(checked), 3 * 30 * 5 * 10001 * 0.9)

    def test_reads_and_writes(self):
        for operation in ("read", "write"):
            for target, initiator in (("C", "Rust"), ("Rust", "C")):
                proc = self.pair(target, initiator, f"--operation={operation}", "--deadline_ms=600000")
                for line in ("IOPS: ", "Batch latency: avg ", "Request latency (batch latency / requests): avg "):
                    self.assertIn("\n" + line, proc.output())

    def test_metadata_server(self):
        with te.Metad() as server:
            self.pair("C", "Rust", "--verify", "--batches=3", metadata=server.url, names=("target-c", "initiator-r"))
            self.pair("Rust", "C", "--verify", "--batches=3", metadata=server.url, names=("target-r", "initiator-c"))

    def test_same_flags_and_defaults(self):
        """every flag of the bench in Rust is in C, with its default"""
        def flags(folder):
            text = te.run(BENCH, "--help", folder=folder).output()
            rows = re.findall(r"^  --(\w+)=(\S+)\n((?:      .*\n)+)", text, re.M)
            return {name: (kind, help_text.strip().rsplit("(default: ", 1)[-1]) for name, kind, help_text in rows}
        ours, theirs = flags(EXAMPLES), flags(None)
        self.assertGreater(len(ours), 20)
        self.assertEqual(ours, {name: theirs.get(name) for name in ours})
        self.assertIn(BENCH, te.run(BENCH, "--version", folder=EXAMPLES).output())

    def test_without_rdma(self):
        """both say alike which transports they take in its place"""
        for folder in SIDES.values():
            proc = te.run(BENCH, "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                          "--segment_id=127.0.0.1:1", folder=folder, env={"TE_IBVERBS_PATH": "/nonexistent"})
            self.assertIn(": WARN: rdma cannot run here, using tcp, and host to a target on this host (",
                          proc.error_output())

    def test_wrong_calls(self):
        for flags, status, said in (
                ((), 2, "--metadata_server is missing"),
                (("--metadata_server=P2PHANDSHAKE",), 2, "--segment_id is missing"),
                (("--no-such-flag",), 2, "unknown flag --no-such-flag"),
                (("surplus",), 2, "unexpected argument 'surplus'"),
                (("--threads=0",), 2, "bad value '0' for --threads"),
                (("--block_size",), 2, "needs a value")):
            proc = te.run(BENCH, *flags, folder=EXAMPLES)
            self.assertEqual(proc.rc, status, proc)
            self.assertIn(said, proc.error_output())
        proc = te.bench(f"127.0.0.1:{te.dead_port()}", *SMALL, folder=EXAMPLES)
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("cannot open segment", proc.error_output())

    def endless(self, served):
        """An initiator that goes on for longer than any test, once it has a connection."""
        idle = served.socket_names()
        initiator = te.Proc([te.tool(BENCH, EXAMPLES), f"--metadata_server={te.P2P}", "--protocol=tcp",
                             f"--segment_id={served.segment}", "--local_server_name=127.0.0.1", te.FOREVER,
                             *SMALL])
        served.wait_new_socket(idle)
        return initiator

    def test_a_signal_ends_an_initiator(self):
        with te.Target(folder=EXAMPLES) as served, self.endless(served) as initiator:
            self.assertEqual(initiator.stop(signal.SIGINT), 0, initiator)
            self.assertRegex(initiator.output(), r"^Test completed: ")

    def test_a_target_that_dies(self):
        with te.Target(folder=None) as served, self.endless(served) as initiator:
            served.kill()
            self.assertEqual(initiator.wait(), 1, initiator)
            self.assertRegex(initiator.output() + initiator.error_output(), "Test failed|cannot open segment")


class CMake(unittest.TestCase):
    def test_the_switch_builds_the_bench(self):
        """bindings/rust/example.cmake in a tree of its own, over the library that is built"""
        folder = os.path.join(CARGO_OUT, "cmake")
        tree = os.path.join(folder, "build")
        os.makedirs(tree, exist_ok=True)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as f:
            f.write("cmake_minimum_required(VERSION 3.21)\nproject(example NONE)\nset(TE_WITH_RUST_EXAMPLE ON)\n"
                    f"set(CMAKE_INSTALL_BINDIR bin)\nadd_custom_target(te_shared)\ninclude({te.SRC}/cmake/bindings.cmake)\n")
        if not os.path.islink(os.path.join(tree, "lib")):
            os.symlink(LIB, os.path.join(tree, "lib"))
        # A user's choice of another target does not move the program to another folder.
        env = {**os.environ, "CARGO_BUILD_TARGET": "no-such-target"}
        for command in (["cmake", "-S", folder, "-B", tree], ["cmake", "--build", tree]):
            done = subprocess.run(command, env=env, text=True, capture_output=True, timeout=10 * te.HANG_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        proc = te.run(f"{BENCH}_rust", "--help", folder=os.path.join(tree, "bin"))
        self.assertEqual(proc.rc, 0, proc)
        for _ in range(2):  # over what is there, too
            self.installed(tree, os.path.join(folder, "prefix"))

    def installed(self, tree, prefix):
        """what is installed finds the library that lies beside it, and knows nothing of the build tree"""
        subprocess.run(["cmake", "--install", tree, "--prefix", prefix], capture_output=True, timeout=te.HANG_S, check=True)
        program = os.path.join(prefix, "bin", f"{BENCH}_rust")
        path = subprocess.run(["readelf", "-d", program], text=True, capture_output=True, check=True).stdout
        self.assertIn("[$ORIGIN/../lib]", path)


if __name__ == "__main__":
    te.main()
