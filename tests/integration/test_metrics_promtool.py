#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""What Prometheus's own checker, promtool, says of the metrics of an engine."""
import os
import re
import shutil
import unittest

import te_proc as te
import te_prom
from te_prom import address_of, get, serve


class Promtool(unittest.TestCase):
    def test_alerts(self):
        """The rules of docs/operations.md."""
        program = shutil.which("promtool")
        if not program:
            te.skip("promtool is not installed (package prometheus)")
        with open(os.path.join(te.SRC, "docs", "operations.md"), encoding="utf-8") as f:
            rules = re.search(r"```yaml\n(groups:.*?)```", f.read(), re.S)[1]
        path = os.path.join(te.Workdir.get(), "rules.yml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(rules)
        run = te.call(program, "check", "rules", path)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_engine(self):
        with te.Target(env=serve()) as target:
            self.assertEqual(te.bench(target.segment, env={"TE_HOST_PATH": "0"}).rc, 0)
            said = te_prom.promtool(get(address_of(target))[1])
        if said is None:
            te.skip("promtool is not installed (package prometheus)")
        self.assertEqual(said, "")


if __name__ == "__main__":
    te.main()
