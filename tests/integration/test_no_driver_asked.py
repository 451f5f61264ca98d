#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=300
"""
An engine with host memory alone never has the loader look for a library of any maker of devices: what the loader
says it searches (LD_DEBUG) names none of those in src/plat/makers.c and src/transport/nvmeof, over a load between
two processes, with the transport named and with all discovered. The tool that asks for drivers on purpose shows that
such a search would be seen.
"""
import glob
import os
import re
import unittest

import te_proc as te


def libraries():
    """Names of the makers' libraries, without their versions."""
    with open(os.path.join(te.SRC, "src", "plat", "makers.c"), encoding="utf-8") as f:
        names = re.findall(r'"(lib\w+\.so)', f.read())
    return sorted(set(names + ["libcufile.so"]))


class NoDriver(unittest.TestCase):
    def traced(self, name):
        """The environment of a process whose loader tells what it looks for, and where it tells that."""
        folder = os.path.join(te.Workdir.get(), name)
        os.mkdir(folder)
        return {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": os.path.join(folder, "trace")}, folder

    def searched(self, folder):
        text = ""
        for path in glob.glob(os.path.join(folder, "trace.*")):
            with open(path, encoding="utf-8", errors="replace") as f:
                text += f.read()
        if "find library=" not in text:
            te.skip("this loader tells nothing of its searches")
        return text

    def check_none_is_looked_for(self, name, *flags):
        env, folder = self.traced(name)
        with te.Target(*flags, env=env) as target:
            proc = te.bench(target.segment, *flags, "--buffer_size=8M", "--batches=3", "--verify", env=env)
            self.assertEqual(proc.rc, 0, f"{proc}\n{target}")
        text = self.searched(folder)
        self.assertGreaterEqual(len(libraries()), 7)
        for library in libraries():
            self.assertNotIn(library, text)

    def test_none_is_looked_for(self):
        self.check_none_is_looked_for("load", "--protocol=tcp")

    def test_nor_by_discovery(self):
        """Where the engine finds devices and transports by itself, GPUs are none of them until somebody has one."""
        self.check_none_is_looked_for("discovery", "--auto_discovery=true")

    def test_a_search_would_be_seen(self):
        env, folder = self.traced("asked")
        te.run("te_info", "--check", env=env)
        self.assertIn("libascendcl.so", self.searched(folder))


if __name__ == "__main__":
    unittest.main()
