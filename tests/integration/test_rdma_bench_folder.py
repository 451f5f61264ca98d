#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=600
"""The bench and the validator in the folder of the build tree where Mooncake's documents have them, with the
commands of these documents."""
import os
import unittest

import te_proc as te
import te_rdma

FOLDER = os.path.join(te.BUILD, "mooncake-transfer-engine", "example")
# So that it ends soon: the documents let it run with the defaults, for ten seconds.
SHORT = "--batches=20 --threads=2 --batch_size=4 --buffer_size=8M"
TARGET = """./{tool} --mode=target \\
                        --metadata_server={metadata} \\
                        {name} \\
                        {devices} --buffer_size=8M --threads=1 --batch_size=1"""
INITIATOR = """./{tool} --metadata_server={metadata} \\
                        --segment_id={segment} \\
                        {name} \\
                        {devices} """ + SHORT


class Typed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fabric = te_rdma.Fabric(names={"a": ["erdma_1"], "b": ["erdma_0"]})
        cls.metad = te.Metad()

    @classmethod
    def tearDownClass(cls):
        cls.metad.close()
        cls.fabric.remove()

    def type(self, text, side, tool, metadata, **words):
        """A shell in that folder that runs the command as a user of that side types it."""
        te.tool(tool, FOLDER)
        options = dict(option.split("=", 1) for option in self.fabric.options(side))
        command = text.format(tool=tool, metadata=metadata or self.metad.url, **words)
        return te.Proc(["sh", "-c", f'cd "$0" && export MC_GID_INDEX=0 && exec {command}', FOLDER],
                       env={**self.fabric.environment(side), **options})

    def moved(self, target, initiator, tool="transfer_engine_bench", metadata=None):
        """(name, devices) of both sides: data goes over the NIC of the initiator, and the target ends well."""
        before = self.fabric.stats()["erdma_1"]["bytes"]
        name, devices = target
        with self.type(TARGET, "b", tool, metadata, name=name, devices=devices) as serving:
            segment = serving.wait_line(r"^segment: (\S+)$").group(1)
            name, devices = initiator
            with self.type(INITIATOR, "a", tool, metadata, segment=segment, name=name, devices=devices) as proc:
                self.assertEqual(proc.wait(), 0, proc)
                self.assertIn("Test completed", proc.output())
            self.assertEqual(serving.stop(), 0, serving)
        self.assertGreater(self.fabric.stats()["erdma_1"]["bytes"], before)

    def test_by_devices(self):
        for tool in ("transfer_engine_bench", "transfer_engine_validator"):
            self.moved(("--local_server_name=TARGET_NAME", "--device_name=erdma_0"),
                       ("--local_server_name=INITIATOR_NAME", "--device_name=erdma_1"), tool)

    def test_by_discovery(self):
        """in both spellings"""
        self.moved(("--local_server_name=TARGET_NAME", "--auto-discovery"),
                   ("--local_server_name=INITIATOR_NAME", "--auto_discovery"))

    def test_by_addresses(self):
        """names with a port, and the kind of metadata in a flag of its own, as older documents write it"""
        names = [f"--local_server_name=127.0.0.1:{te.free_port()} --metadata_type=http" for _ in range(2)]
        self.moved((names[0], "--device_name=erdma_0"), (names[1], "--device_name=erdma_1"))


if __name__ == "__main__":
    te.main()
