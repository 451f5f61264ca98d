#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""The tools between two processes that have four simulated NICs each: verified data, by all NICs."""
import json
import os
import re
import unittest

import te_proc as te
import te_rdma

NICS = 4
VALIDATOR = "transfer_engine_validator"


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fabric = te_rdma.Fabric(nics=NICS, gbps=0.2)
        cls.target = te.Target("--protocol=rdma", "--auto_discovery", env=cls.env("b"))

    @classmethod
    def tearDownClass(cls):
        cls.target.close()
        cls.fabric.remove()

    @classmethod
    def env(cls, side):
        options = dict(option.split("=", 1) for option in cls.fabric.options(side))
        return {**cls.fabric.environment(side), **options}

    def moved(self, *flags, **more):
        """What a tool said that moved bytes, and how many each NIC of the initiator moved."""
        before = self.fabric.stats()
        proc = te.bench(self.target.segment, "--protocol=rdma", "--auto_discovery", *flags,
                        env=self.env("a"), **more)
        self.assertEqual(proc.rc, 0, proc)
        after = self.fabric.stats()
        return proc, [after[nic]["bytes"] - before[nic]["bytes"] for nic in self.fabric.names["a"]]

    def validated(self, block, batch):
        """Random blocks there and back, compared; all of them over the NICs."""
        proc, each = self.moved(f"--block_size={block}", f"--batch_size={batch}", program=VALIDATOR)
        batches = int(re.search(r"batch count (\d+)", proc.output()).group(1))
        self.assertGreater(batches, 0, proc)
        self.assertEqual(proc.error_output().count("Data validation passed"), 2, proc)
        self.shared_fairly(each, batches * (batch * block - 63))  # which it leaves for odd places

    def shared_fairly(self, each, least):
        """All bytes went over the NICs, and each had a part. How even the parts are is shown where time is
        simulated: here a NIC may wait for a CPU while others go on."""
        self.assertGreaterEqual(sum(each), least)
        for carried in each:
            self.assertGreater(carried, sum(each) / NICS / 20, each)

    def test_verified(self):
        self.validated(256 << 10, 4)

    def test_verified_odd(self):
        """lengths that are no multiple of a slice, and unaligned places"""
        self.validated(98765, 7)

    def test_both_operations(self):
        for operation in ("read", "write"):
            proc, each = self.moved(f"--operation={operation}", "--block_size=1M", "--json")
            result = json.loads(proc.output())
            self.assertEqual((result["protocol"], result["operation"], result["failed"]),
                             ("rdma", operation, False))
            self.shared_fairly(each, result["bytes"])

    def test_devices_by_name(self):
        """two NICs alone when the matrix has no others"""
        names = self.fabric.names["a"]
        before = self.fabric.stats()
        proc = te.bench(self.target.segment, "--protocol=rdma", f"--device_name={names[1]},{names[3]}",
                        "--block_size=1M", env=self.env("a"))
        self.assertEqual(proc.rc, 0, proc)
        after = self.fabric.stats()
        self.assertEqual([after[n]["bytes"] > before[n]["bytes"] for n in names],
                         [False, True, False, True])

    def by_device(self, *flags, side="a", **env):
        """A tool that is not told a protocol, only devices."""
        return te.run("transfer_engine_bench", "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                      f"--segment_id={self.target.segment}", "--buffer_size=8M", "--threads=2", "--batch_size=4",
                      "--batches=20", te.FOREVER, *flags, env={**self.env(side), **env})

    def matrix(self, *names):
        path = os.path.join(te.Workdir.get(), "matrix.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"cpu:0": [list(names), []]}, f)
        return f"--nic_priority_matrix={path}"

    def test_named_device_that_is_not_there(self):
        """an error, whichever way it is named: nothing else is measured in its place"""
        for flags in (("--device_name=nosuch_9",), (self.matrix("nosuch_9"),),
                      ("--device_name=nosuch_9", "--auto_discovery"), (self.matrix("nosuch_9"), "--auto_discovery")):
            proc = self.by_device(*flags)
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn("nosuch_9", proc.error_output())
            self.assertIn("--protocol=tcp", proc.error_output())
            self.assertNotIn("Test completed", proc.output())
        # Named beside tcp it is not asked for.
        target = te.Target(env=self.env("b"))
        proc = te.bench(target.segment, "--device_name=nosuch_9", env=self.env("a"))
        target.close()
        self.assertEqual(proc.rc, 0, proc)

    def test_named_device_whose_port_is_down(self):
        """as one that is not there; beside another that works it is used once it is up"""
        down, works = self.fabric.names["b"][:2]
        self.fabric.control(f"port {down} down")
        self.addCleanup(self.fabric.control, f"port {down} up")
        for flags in ((f"--device_name={down}",), (self.matrix(down),)):
            proc = self.by_device(*flags, side="b")
            self.assertEqual(proc.rc, 1, proc)
            self.assertRegex(proc.error_output(), f"asks for: .*{down}: its port is not active")
        with te.Target("--protocol=rdma", f"--device_name={down},{works}", env=self.env("b")) as target:
            te.until(lambda: f"NIC {down} is not used: its port is not active" in target.error_output(), str(target))
            where = te.split_address(target.segment)
            self.assertEqual(self.preferred(where), {works})
            self.fabric.control(f"port {down} up")
            te.until(lambda: self.preferred(where) == {down, works}, lambda: te.descriptor(where))

    @staticmethod
    def preferred(where):
        return {nic for entry in te.descriptor(where)["priority_matrix"].values() for nic in entry[0]}

    def test_named_device_that_is_there_in_part(self):
        """the others carry, a line tells of it, and peers are told of those that work alone"""
        name = self.fabric.names["b"][2]
        for flags in ((f"--device_name=nosuch_9,{name}",), (self.matrix("nosuch_9", name),),
                      (f"--device_name=nosuch_9,{name}", "--auto_discovery")):
            target = te.Target("--protocol=rdma", *flags, env=self.env("b"))
            self.assertTrue([line for line in target.errors if ": WARN: " in line and "nosuch_9" in line], target)
            shown = te.descriptor(te.split_address(target.segment))
            self.assertEqual([device["name"] for device in shown["devices"]], [name])
            self.assertNotRegex(shown["devices"][0]["gid"], "^[0:]*$")
            self.assertNotIn("nosuch_9", json.dumps(shown))
            for buffer in shown["buffers"]:
                self.assertEqual([len(buffer[key]) for key in ("lkey", "rkey")], [1, 1])
                self.assertNotIn(0, buffer["rkey"])
            proc = te.bench(target.segment, "--protocol=rdma", f"--device_name={self.fabric.names['a'][0]},nosuch_8",
                            program=VALIDATOR, env=self.env("a"))
            target.close()
            self.assertEqual(proc.rc, 0, proc)
            self.assertEqual(proc.error_output().count("Data validation passed"), 2, proc)

    def test_links(self):
        """te_info tells all NICs of the side that it looks at, and that each can be used"""
        proc = te.run("te_info", "--links", f"--sysfs={self.fabric.folder}/a/sys", env=self.env("a"))
        self.assertEqual(proc.rc, 0, proc)
        for nic in self.fabric.names["a"]:
            self.assertRegex(proc.output(), rf"(?m)^  {nic} .*\n.*ACTIVE, 0.2 Gb/s.*\n.*\n +used,")
        self.assertRegex(proc.output(), r"others: a0 a1 a2 a3$")
        for nic in self.fabric.names["b"]:
            self.assertIsNone(re.search(rf"\b{nic}\b", proc.output()), proc)


if __name__ == "__main__":
    te.main()
