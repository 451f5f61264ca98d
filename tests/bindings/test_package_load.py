#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""What the library and the tools load: the libraries they are linked with, and no vendor's."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_proc as te

LIBRARY = os.path.join(te.BUILD, "lib", "libtransfer_engine.so")
TOOLS = ("te_info", "te_keys", "te_metad", "te_segment", "te_top", "transfer_engine_bench", "transfer_engine_validator")
# libcurl comes in a flavour for each of its TLS libraries; older C libraries stand apart in pieces.
ENGINE = {"jansson", "hwloc", "uring", "curl", "hiredis"}
SYSTEM = {"c", "m", "dl", "pthread", "rt"}
VENDORS = ("libibverbs.so.1", "libmlx5.so.1", "libefa.so.1", "librdmacm.so.1", "libcuda.so.1", "libcudart.so.12",
           "libnvidia-ml.so.1", "libcufile.so.0", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7",
           "libhsa-runtime64.so.1")


def needed(path):
    out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True, timeout=te.HANG_S,
                         env={**os.environ, "LC_ALL": "C"}).stdout
    names = re.findall(r"\(NEEDED\).*\[(?:lib)?([^\]]+?)(?:-gnutls|-nss)?\.so[.\d]*\]", out)
    return {n for n in names if not n.startswith("ld-linux")} - SYSTEM


def switched_off():
    """Libraries that this build does without."""
    with open(os.path.join(te.BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        on = dict(re.findall(r"^TE_(USE_\w+):\w+=(\w+)", f.read(), re.M))
    off = {name for name, value in on.items() if value.upper() in ("OFF", "0", "NO", "FALSE")}
    # Without a word from the user, io_uring is used where the library is new enough.
    with open(os.path.join(te.BUILD, "compile_commands.json"), encoding="utf-8") as f:
        threads = {"uring"} if "TE_USE_URING=0" in f.read() else set()
    return threads | ({"hiredis"} if "USE_REDIS" in off else set()) | ({"curl"} if {"USE_HTTP", "USE_ETCD"} <= off else set())


class Linked(unittest.TestCase):
    def test_library(self):
        self.assertEqual(needed(LIBRARY), ENGINE - switched_off())

    def test_tools(self):
        for tool in TOOLS:
            more = {"microhttpd", "sqlite3"} if tool == "te_metad" else set()
            self.assertLessEqual(needed(te.tool(tool)), ENGINE | more, tool)


class Loaded(unittest.TestCase):
    """With empty libraries of the vendors' names at hand, so that it shows if one is loaded."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="te-load-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in VENDORS:
            subprocess.run([te.CC, "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", os.path.join(self.folder, name),
                            f"-Wl,-soname,{name}"], check=True, timeout=te.HANG_S)
        self.env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": os.path.join(self.folder, "ld"),
                    "LD_LIBRARY_PATH": self.folder}

    def loaded(self, processes):
        """Names of the libraries that the programs have loaded."""
        logs = [name for name in os.listdir(self.folder) if name.startswith("ld.")]
        self.assertEqual(len(logs), processes)
        names = set()
        for log in logs:
            with open(os.path.join(self.folder, log), encoding="utf-8") as f:
                found = set(re.findall(r"calling init: \S*/(\S+)", f.read()))
            self.assertTrue(any(n.startswith("libjansson.so") for n in found), log)
            names |= found
        return names

    def no_vendor(self, names):
        self.assertEqual(names & set(VENDORS), set())

    def test_transfer_by_tcp(self):
        flags = ("--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--protocol=tcp", "--buffer_size=8M")
        env = {**self.env, "TE_HOST_PATH": "off"}
        with te.Proc([te.tool("transfer_engine_bench"), "--mode=target", *flags], env=env) as target:
            segment = target.wait_line("^segment: (.*)").group(1)
            proc = te.run("transfer_engine_bench", *flags, f"--segment_id={segment}", "--verify", "--block_size=65537",
                          "--batch_size=8", "--threads=2", "--batches=3", env=env)
            self.assertEqual(proc.rc, 0, proc)
            self.assertRegex(proc.output(), r"(?m)^Verified: \d+ bytes, 0 errors$")
            target.stop()
        self.no_vendor(self.loaded(2))

    def test_program_of_the_shared_library(self):
        program = os.path.join(self.folder, "user")
        lib = os.path.dirname(LIBRARY)
        subprocess.run([te.CC, *te.CFLAGS, "-I", os.path.join(te.SRC, "include"), "-o", program,
                        os.path.join(te.SRC, "tests", "bindings", "package", "user.c"), "-L", lib, "-ltransfer_engine",
                        f"-Wl,-rpath,{lib}"], check=True, timeout=te.HANG_S)
        out = subprocess.run([program], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=te.HANG_S,
                             check=True).stdout
        self.assertEqual(out, "ok\n")
        names = self.loaded(1)
        self.no_vendor(names)
        self.assertIn("libtransfer_engine.so.0", names)

    def test_it_shows_when_one_is_loaded(self):
        te.run("te_info", "--version", env={**self.env, "LD_PRELOAD": "libibverbs.so.1"})
        self.assertIn("libibverbs.so.1", self.loaded(1))


if __name__ == "__main__":
    te.main()
