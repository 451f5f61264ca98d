#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""Programs written for Mooncake's C++ class, in mooncake/, build and run with nothing but the installed prefix.

What they include they find as pkg-config's module mooncake-transfer-engine says, or, where they are listed as
plain, in <prefix>/include alone, as the specification says.
"""
import glob
import os
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))

import te_proc as te
import te_rdma
import te_stores as stores

CXX = os.environ.get("TE_TEST_CXX") or "c++"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
PLAIN = ("bench_with_notify", "c_handle", "graceful_shutdown", "own_headers", "scatter", "show_links")
CXX20 = ("scatter", "memory_pool")  # spans; members named when a struct is filled in
OPTIONS = {"MC_HANDSHAKE_PORT": "12077", "MC_SLICE_SIZE": "128k", "MC_IB_TC": "96", "MC_MTU": "1024",
           "MC_ENDPOINT_STORE_TYPE": "FIFO", "MC_DISABLE_METACACHE": "1",
           "MC_MLX5_QP_UDP_SPORTS": "49152,49153,50000"}  # what common.cc looks for


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=10 * te.HANG_S, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def prefix():
    return os.path.join(te.Workdir.get(), "prefix")


def binary(name):
    return os.path.join(te.Workdir.get(), name)


def flags(module, what):
    path = glob.glob(os.path.join(prefix(), "**", "pkgconfig"), recursive=True)[0]
    return run(["env", f"PKG_CONFIG_PATH={path}", "pkg-config", what, module]).split()


def build(name, output, *more):
    paths = ["-I", os.path.join(prefix(), "include")]
    if name not in PLAIN:
        paths = flags("mooncake-transfer-engine", "--cflags")
    language = "-std=c++20" if name in CXX20 else "-std=c++17"
    if "-fsanitize=thread" in te.CFLAGS:
        more += ("-D__SANITIZE_THREAD__",) if "clang" in os.path.basename(CXX) else ()  # gcc says it itself
    run([CXX, language, *WARNINGS, *te.CFLAGS, *paths, *more, os.path.join(HERE, "mooncake", name + ".cc"),
         *flags("transfer_engine-static", "--libs"), "-pthread", "-o", binary(output)])


def setUpModule():
    if not os.path.exists(os.path.join(te.BUILD, "lib", "libtransfer_engine.a")):
        te.skip("libtransfer_engine.a is not built")
    run(["cmake", "--install", te.BUILD, "--prefix", prefix()])
    names = [os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "mooncake", "*.cc"))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wanted = [pool.submit(build, name, name) for name in names]
        wanted.append(pool.submit(build, "own_headers", "own_headers_last", "-DOURS_FIRST"))
        for done in wanted:
            done.result()


class Programs(unittest.TestCase):
    def check(self, name, *arguments, env=None):
        with te.Proc([binary(name), *arguments], env=env or {}) as proc:
            self.assertEqual(proc.wait(), 0, proc)

    def test_bench(self):
        self.check("bench")

    def test_bench_with_notify(self):
        self.check("bench_with_notify")

    def test_scatter(self):
        self.check("scatter")

    def test_memory_pool(self):
        self.check("memory_pool")

    def test_validator(self):
        self.check("validator")

    def test_graceful_shutdown(self):
        with stores.Metad() as store:
            self.check("graceful_shutdown", store.url)
            self.assertEqual(store.keys(), [])

    def test_show_links(self):
        self.check("show_links")

    def test_topology(self):
        self.check("topology")

    def test_metadata(self):
        with stores.Metad() as store:
            self.check("metadata", store.url)
            self.assertEqual(store.keys(), [])

    def test_memory_location(self):
        self.check("memory_location")

    def test_common(self):
        self.check("common", env=OPTIONS)

    def test_transport_by_type(self):
        self.check("transport_by_type")

    def test_rdma(self):
        te.need("rdma")
        fabric = te_rdma.Fabric(gbps=100)
        self.addCleanup(fabric.remove)
        self.check("rdma", env={**fabric.environment("a"), **dict(o.split("=", 1) for o in fabric.options("a"))})

    def test_status(self):
        self.check("status")

    def test_own_headers(self):
        self.check("own_headers")
        self.check("own_headers_last")

    def test_c_handle(self):
        self.check("c_handle")


if __name__ == "__main__":
    te.main()
