#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""transfer_engine.hpp: every snippet of every version of the interface as a program, and every call.

The programs in cpp/ are built with the compiler of the build and, where there is one, with the other of
g++ and clang++, warnings being errors; the two sides of a transfer are then programs of both.
"""
import os
import re
import shutil
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
OTHER = shutil.which("g++" if "clang" in os.path.basename(CXX) else "clang++")
SANITIZED = te.SLOW > 1
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wnon-virtual-dtor", "-pedantic", "-Werror"]
INCLUDE = os.path.join(te.SRC, "include")
# Old programs name the headers without a folder.
PATHS = ["-I", INCLUDE, "-I", os.path.join(INCLUDE, "mooncake")]
PROGRAMS = ("snippets_two_names", "snippets_four_arguments", "snippets_with_metadata", "newer_names", "calls")
OPTIONS = {"TE_HOST_PATH": "0"}  # the transport that the program installs, not the way within a host


def run_compiler(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=10 * te.HANG_S, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}:\n{done.stderr}")


def program(name, compiler):
    return os.path.join(te.Workdir.get(), f"{name}-{os.path.basename(compiler)}")


def link(name, compiler):
    library = os.path.join(te.BUILD, "lib", "libtransfer_engine.a")
    debug = ["-g"] if SANITIZED else []
    run_compiler([compiler, "-std=c++17", *debug, *STRICT, *te.CFLAGS, *PATHS, os.path.join(HERE, "cpp", name + ".cc"),
                  library, *te.private_libs(), "-pthread", "-o", program(name, compiler)])


def setUpModule():
    if not os.path.exists(os.path.join(te.BUILD, "lib", "libtransfer_engine.a")):
        te.skip("libtransfer_engine.a is not built")
    te.Workdir.get()  # one, for all threads
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(link, name, compiler) for name in PROGRAMS for compiler in compilers()]:
            done.result()


def compilers():
    """Another compiler's runtime does not go with the sanitizers of the build."""
    return [CXX, OTHER] if OTHER and not SANITIZED else [CXX]


class Headers(unittest.TestCase):
    """Each header alone, and the one that brings all of them in newer versions of the language."""
    NAMES = ("transfer_engine.h", "mooncake/transfer_engine.h", "topology.h", "transfer_metadata.h",
             "transport/transport.h", "common/base/status.h", "memory_location.h", "error.h", "common.h", "config.h",
             "cuda_alike.h", "multi_transport.h", "transport/tcp_transport/tcp_transport.h",
             "transport/rdma_transport/rdma_transport.h", "mooncake/transport/transport.h")

    def test_alone(self):
        if SANITIZED:
            return  # nothing runs here
        alone = os.path.join(te.Workdir.get(), "alone.cc")
        with open(alone, "w", encoding="utf-8") as f:
            f.write("#include HEADER\n")
        newest = "transfer_engine.hpp"  # the programs have it as C++17
        wanted = [(CXX, "c++17", name, []) for name in self.NAMES]
        wanted += [(compiler, std, newest, []) for compiler in compilers() for std in ("c++20", "c++2b")]
        wanted += [(CXX, "c++17", newest, ['-DP2PHANDSHAKE="P2PHANDSHAKE"', "-fno-exceptions", "-fno-rtti"])]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(run_compiler, [compiler, f"-std={std}", *STRICT, *PATHS, *more, "-fsyntax-only",
                                                    f"-DHEADER=<{name}>", alone])
                         for compiler, std, name, more in wanted]:
                done.result()


class Side(te.Proc):
    """One of the programs, as target or initiator."""

    def __init__(self, source, role, compiler, env=None, **arguments):
        super().__init__([program(source, compiler), role, *(f"{k}={v}" for k, v in arguments.items())],
                         env={**OPTIONS, **(env or {})}, stdin=True)

    def end(self):
        self.process.stdin.close()
        if self.wait():
            raise AssertionError(f"failed: {self}")


class Snippets(unittest.TestCase):
    """Both ways between two processes; the memory of both is compared."""

    def exchange(self, source, target, initiator, env=({}, {}), **both):
        """`target` and `initiator` have the arguments that only they get. Returns the initiator's log."""
        seed = int.from_bytes(os.urandom(4), "little")
        with Side(source, "target", compilers()[0], env[0], seed=seed, **both, **target) as one:
            ready = one.wait_line(r"^ready (\S+) (\d+)$")
            with Side(source, "initiator", compilers()[-1], env[1], seed=seed, peer=ready.group(1),
                      address=ready.group(2), **both, **initiator) as other:
                if other.wait():
                    raise AssertionError(f"failed: {other}\nof {one}")
            one.process.stdin.write("check\n")
            one.process.stdin.flush()
            one.wait_line("^ok$")
            one.end()
        return other.errors

    def over_store(self, store, source, target=None, initiator=None, **more):
        log = self.exchange(source, {"name": "node-a", **(target or {})}, {"name": "node-b", **(initiator or {})},
                            **more)
        self.assertEqual(store.keys(), [])  # who ends withdraws what it has published
        return log

    def fabric(self):
        fabric = te_rdma.Fabric(gbps=100)
        self.addCleanup(fabric.remove)
        sides = [{**fabric.environment(s), **dict(o.split("=", 1) for o in fabric.options(s)), "MC_LOG_LEVEL": "DEBUG"}
                 for s in "ba"]
        return fabric, sides

    def assert_moved(self, fabric, nics, log):
        """All the data went through these NICs of the initiator, or others took over from one that it gave up.

        It gives up a connection without a completion for 200 ms, be it that nobody ran the simulated NIC.
        """
        moved = {nic: n["bytes"] for nic, n in fabric.stats().items() if nic[0] == "a" and n["bytes"]}
        self.assertGreater(sum(moved.values()), 8 << 20, moved)
        told = re.findall(r"^[DW]\d{4} .*\] rdma: (\w+) to \S+: (.*)$", "\n".join(log), re.M)
        self.assertIn("connected", [what for _, what in told], log)
        gave_up = {nic for nic, what in told if what not in ("connected", "this engine is closing")}
        if not gave_up & set(nics):
            self.assertLessEqual(set(moved), set(nics), f"{moved}\n{log}")

    def test_two_names_p2p(self):
        self.exchange("snippets_two_names", {}, {}, metadata=te.P2P, name="127.0.0.1")

    def test_two_names_http(self):
        with stores.Metad() as store:
            self.over_store(store, "snippets_two_names", metadata=store.url)

    def test_four_arguments_tcp_and_a_file(self):
        path = os.path.join(te.Workdir.get(), "a file")
        with open(path, "wb") as f:
            f.write(bytes(8 << 20))
        self.exchange("snippets_four_arguments", {"port": te.free_port()}, {"file": path}, metadata=te.P2P,
                      name="127.0.0.1", protocol="tcp")

    def test_four_arguments_rdma(self):
        fabric, env = self.fabric()
        with stores.Metad() as store:
            log = self.over_store(store, "snippets_four_arguments",
                                  {"nics": "b", "matrix": '{"cpu:0": [["b1"], ["b3"]]}'},
                                  {"nics": "a", "matrix": '{"cpu:0": [["a2", "a3"], []]}'}, env=env,
                                  metadata=store.url, protocol="rdma")
        self.assert_moved(fabric, ["a2", "a3"], log)

    def test_newer_names_p2p(self):
        self.exchange("newer_names", {}, {}, metadata=te.P2P, name="127.0.0.1", protocol="tcp", nics=0)

    def test_newer_names_rdma(self):
        fabric, env = self.fabric()
        with stores.Metad() as store:
            log = self.over_store(store, "newer_names", env=env, metadata=store.url, protocol="rdma", nics=4)
        self.assert_moved(fabric, ["a0", "a1", "a2", "a3"], log)

    def test_metadata_object_etcd(self):
        with stores.Etcd() as store:
            self.over_store(store, "snippets_with_metadata", {"port": te.free_port()}, metadata=store.address,
                            protocol="tcp")

    def with_preferred_nics(self, fabric, env):
        with stores.Metad() as store:
            return self.over_store(store, "snippets_with_metadata", {"matrix": '{"cpu:0": [["b2", "b3"], ["b0"]]}'},
                                   {"matrix": '{"cpu:0": [["a1"], ["a2"]]}'}, env=env, kind="http", protocol="rdma",
                                   metadata=store.url.split("://")[1])

    def test_metadata_object_http_rdma(self):
        fabric, env = self.fabric()
        self.assert_moved(fabric, ["a1"], self.with_preferred_nics(fabric, env))

    def test_another_nic_takes_over(self):
        """from the preferred one, which completes nothing"""
        fabric, env = self.fabric()
        fabric.control("hold a1")
        log = self.with_preferred_nics(fabric, env)
        self.assert_moved(fabric, ["a1"], log)
        self.assertRegex("\n".join(log), "rdma: a1 to .*: no completion for too long")
        self.assertGreater(fabric.stats()["a2"]["bytes"], 8 << 20)


class Calls(unittest.TestCase):
    def test_all(self):
        for compiler in compilers():
            with te.Proc([program("calls", compiler)], env=OPTIONS) as proc:
                self.assertEqual((proc.wait(), proc.lines), (0, ["ok"]), proc)


if __name__ == "__main__":
    te.main()
