#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional
"""The connector for vLLM against vLLM's own module of the interface, of a wheel or of what is installed."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "connector_vllm"), os.path.join(HERE, "..", "integration")]
import cases  # noqa: E402
import remote  # noqa: E402
import standin  # noqa: E402
import te_proc as te  # noqa: E402


class Itself(cases.Cases, cases.Interface, unittest.TestCase):
    """The base class is vLLM's, whatever else is a stand-in: so no torch is needed."""

    @classmethod
    def setUpClass(cls):
        remote.prepare()
        cls.path = standin.found()
        standin.install(cls.path)

    def test_the_table_is_that_of_vllm(self):
        table, source = standin.record_interface.table(), standin.record_interface.Source(self.path)
        self.assertEqual(standin.record_interface.record(source, table)["modules"], table["modules"])


if __name__ == "__main__":
    te.main()
