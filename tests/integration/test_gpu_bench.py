#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The bench and the validator with buffers in memory of GPUs, and the programs that measure those."""
import ctypes
import json
import os
import subprocess
import unittest

import te_proc as te

SOFT = os.environ.get("TE_TEST_SOFTGPU") or os.path.join(te.BUILD, "tests", "softgpu")
BENCH = os.path.join(te.BUILD, "tests", "bench")
VALIDATOR = "transfer_engine_validator"
DEVICES = 2
OF_ONE_KIND = {"hip": "hip", "ascend": "npu", "musa": "musa", "maca": "maca", "supa": "supa"}
SMALL = ("--buffer_size=8M", "--batches=3", "--block_size=65537")


def setUpModule():
    if not os.path.exists(os.path.join(SOFT, "libcuda.so.1")):
        te.skip(f"{SOFT} has no libcuda.so.1")


def gpus(folder=SOFT):
    """The environment of a process that finds these drivers."""
    there = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{folder}:{there}" if there else folder, "SOFTGPU_DEVICES": str(DEVICES)}


def is_installed(library):
    """Whether the loader finds a library of that name without being told a folder."""
    known = subprocess.run(["ldconfig", "-p"], env={"PATH": "/sbin:/usr/sbin:" + os.environ["PATH"]}, capture_output=True,
                           text=True, check=True, timeout=te.HANG_S)
    return library in known.stdout.split()


def vram(on):
    return f"--use_vram={'true' if on else 'false'}"


class Tools(unittest.TestCase):
    def moved(self, protocol, target_flags=(), flags=(), env=None):
        """What a verified load between two processes told."""
        env = env or gpus()
        with te.Target(f"--protocol={protocol}", *target_flags, env=env) as target:
            proc = te.bench(target.segment, f"--protocol={protocol}", *SMALL, "--verify", "--json", *flags,
                            env=env)
            self.assertEqual(proc.rc, 0, f"{proc}\n{target}")
        told = json.loads(proc.output())
        self.assertFalse(told["corrupt"])
        self.assertGreater(told["verified_bytes"], 0)
        return told

    def test_every_direction(self):
        for protocol in ("tcp", "nvlink_intra", "nvlink", *OF_ONE_KIND):
            for there, here in ((True, True), (True, False), (False, True)):
                with self.subTest(protocol=protocol, target=there, initiator=here):
                    told = self.moved(protocol, [vram(there)], [vram(here)])
                    self.assertEqual(told["memory"].split(":")[0],
                                     OF_ONE_KIND.get(protocol, "cuda") if here else "cpu")

    def test_gpu_protocols_take_gpus_unless_told_otherwise(self):
        self.assertEqual(self.moved("nvlink_intra")["memory"], "cuda:0")
        for protocol, kind in OF_ONE_KIND.items():
            self.assertEqual(self.moved(protocol)["memory"], f"{kind}:0")
        self.assertEqual(self.moved("tcp")["memory"].split(":")[0], "cpu")

    def test_gpu_id(self):
        told = self.moved("nvlink_intra", ["--gpu_id=-1"], ["--gpu_id=-1", "--threads=3"])
        self.assertEqual((told["buffers"], told["memory"]), (DEVICES, "cuda:0"))
        told = self.moved("tcp", ["--use_vram", "--gpu_id=1"], ["--use_vram", f"--gpu_id={DEVICES - 1}"])
        self.assertEqual((told["buffers"], told["memory"]), (1, f"cuda:{DEVICES - 1}"))

    def test_hip_where_there_is_no_cuda(self):
        folder = os.path.join(te.Workdir.get(), "hip")
        os.mkdir(folder)
        for name in os.listdir(SOFT):
            if not name.startswith("libcu"):
                os.symlink(os.path.join(SOFT, name), os.path.join(folder, name))
        told = self.moved("tcp", ["--use_vram"], ["--use_vram"], env=gpus(folder))
        self.assertEqual(told["memory"], "hip:0")

    def test_libraries_under_further_names(self):
        """That of Hygon's devices, which is HIP's but for the name, and a later MUSA's."""
        for library, name, memory in (("libamdhip64.so.5", "libgalaxyhip.so.5", "hip:0"),
                                      ("libmusa.so.1", "libmusa.so.4", "musa:0")):
            folder = os.path.join(te.Workdir.get(), name)
            os.mkdir(folder)
            os.symlink(os.path.join(SOFT, library), os.path.join(folder, name))
            os.symlink(os.path.join(SOFT, "libsoftgpu.so.0"), os.path.join(folder, "libsoftgpu.so.0"))
            with self.subTest(library=name):
                if is_installed(library):
                    te.skip(f"{library} of this system comes before {name}")
                told = self.moved("tcp", ["--use_vram"], ["--use_vram"], env=gpus(folder))
                self.assertEqual(told["memory"], memory)

    def test_an_old_runtime_of_an_npu(self):
        """Without address ranges, UUIDs, pinning, and copies whose direction need not be said: staged."""
        folder = os.path.join(te.Workdir.get(), "old_npu")
        os.mkdir(folder)
        os.symlink(os.path.join(SOFT, "old", "libascendcl.so"), os.path.join(folder, "libascendcl.so"))
        os.symlink(os.path.join(SOFT, "libsoftgpu.so.0"), os.path.join(folder, "libsoftgpu.so.0"))
        env = {**gpus(folder), "SOFTGPU_ASCEND_DEFAULT": "0"}
        told = self.moved("tcp", ["--use_vram"], ["--use_vram"], env=env)
        self.assertEqual(told["memory"], "npu:0")

    def test_plain_load(self):
        for flags in (("--operation=read",), ("--operation=write", "--poll"), ("--noinit_mem",)):
            with te.Target("--protocol=nvlink_intra", env=gpus()) as target:
                proc = te.bench(target.segment, "--protocol=nvlink_intra", *SMALL, *flags, env=gpus())
                self.assertEqual(proc.rc, 0, proc)
                self.assertIn("Test completed", proc.output())

    def test_validator(self):
        with te.Target("--protocol=nvlink", program=VALIDATOR, env=gpus()) as target:
            proc = te.bench(target.segment, "--protocol=nvlink", *SMALL, "--gpu_id=-1", program=VALIDATOR,
                            env=gpus())
            self.assertEqual(proc.rc, 0, proc)
            self.assertEqual(proc.error_output().count("Data validation passed"), 2)

    def test_trace(self):
        path = os.path.join(te.Workdir.get(), "trace.jsonl")
        with open(path, "w", encoding="utf-8") as f:
            for i in range(12):
                ids = [0, 1, 2 + i, 3 + i % 5]
                f.write(json.dumps({"timestamp": i, "input_length": 512 * len(ids) - 100, "output_length": 1,
                                    "hash_ids": ids}) + "\n")
        with te.Target("--protocol=nvlink_intra", env=gpus()) as target:
            proc = te.bench(target.segment, "--protocol=nvlink_intra", f"--trace={path}", "--bytes_per_token=64",
                            "--verify", "--json", env=gpus())
        self.assertEqual(proc.rc, 0, proc)
        self.assertGreater(json.loads(proc.output())["verified_bytes"], 0)


class Refusals(unittest.TestCase):
    def refused(self, *flags, says, env):
        for mode in (("--mode=target",), ("--segment_id=127.0.0.1:1",)):
            proc = te.run("transfer_engine_bench", "--metadata_server=P2PHANDSHAKE", *mode, "--buffer_size=1M",
                          "--threads=1", "--batch_size=1", *flags, env=env)
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn(says, proc.error_output())

    def test_no_such_gpu(self):
        self.refused("--protocol=tcp", "--use_vram", "--gpu_id=99", says="cuda:99", env=gpus())
        self.refused("--protocol=hip", "--gpu_id=7", says="hip:7", env=gpus())

    def test_more_than_a_gpu_has(self):
        self.refused("--protocol=nvlink", "--buffer_size=1T", says="cuda:0", env=gpus())

    def test_no_driver(self):
        for name in ("libcuda.so.1", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"):
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            self.skipTest(f"this host has {name}")
        self.refused("--protocol=tcp", "--use_vram", says="libcuda.so.1", env={})
        self.refused("--protocol=nvlink", says="there is no CUDA driver", env={})
        self.refused("--protocol=nvlink_intra", says="there is no CUDA driver", env={})
        self.refused("--protocol=hip", says="there is no HIP driver", env={})


class Programs(unittest.TestCase):
    """Stand-ins have no speed worth telling; that each figure is there is what counts."""

    def records(self, name):
        proc = te.run(name, "--json", "--buffer=16M", "--bytes=2M", "--rounds=2", folder=BENCH, env=gpus())
        self.assertEqual(proc.rc, 0, proc)
        return [json.loads(line) for line in proc.output().splitlines()]

    def test_raw(self):
        records = self.records("raw_gpu")
        self.assertEqual({r["path"] for r in records}, {"h2d", "d2h", "d2d", "peer", "ipc"})
        self.assertTrue(all(r["gb_s"] > 0 for r in records))

    def test_engine(self):
        records = self.records("te_gpu")
        self.assertEqual({r["path"] for r in records}, {"local h2d", "local d2h", "local d2d", "ipc read",
                                                        "ipc write", "tcp read", "tcp write"})
        self.assertTrue(all(r["gb_s"] > 0 and r["limit_gb_s"] > 0 for r in records))

    def test_without_a_driver(self):
        for name in ("raw_gpu", "te_gpu"):
            proc = te.run(name, folder=BENCH)
            if proc.rc == 0:
                self.skipTest("this host has a GPU")
            self.assertEqual(proc.rc, 77, proc)
            self.assertIn("libcuda.so.1", proc.error_output())


if __name__ == "__main__":
    te.main()
