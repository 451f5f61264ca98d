#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""What Prometheus's own checker, promtool, says of the metrics of an engine."""
import unittest

import te_proc as te
import te_prom
from te_prom import address_of, get, serve


class Promtool(unittest.TestCase):
    def test_engine(self):
        with te.Target(env=serve()) as target:
            self.assertEqual(te.bench(target.segment, env={"TE_HOST_PATH": "0"}).rc, 0)
            said = te_prom.promtool(get(address_of(target))[1])
        if said is None:
            te.skip("promtool is not installed (package prometheus)")
        self.assertEqual(said, "")


if __name__ == "__main__":
    te.main()
