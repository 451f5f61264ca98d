#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""The container recipe: what it says of te_metad is so."""
import json
import os
import re
import unittest

import te_proc as te
from metad_server import Server

RECIPE = os.path.join(te.SRC, "service", "container", "Containerfile")


def recipe():
    """Its text, continued lines joined."""
    with open(RECIPE, encoding="utf-8") as f:
        return f.read().replace("\\\n", " ")


def instruction(name):
    """The last line of the recipe with this instruction, without the word itself."""
    return re.findall(rf"^{name} +(.*)$", recipe(), re.M)[-1].strip()


class Container(unittest.TestCase):
    def test_is_rootless(self):
        self.assertGreater(int(instruction("USER").split(":")[0]), 0)

    def test_command(self):
        """te_metad takes the flags, and the volume is the one folder that it writes to."""
        flags = json.loads(instruction("CMD"))
        folder = os.path.join(te.Workdir.get(), "state")
        self.assertIn(f"--data-dir={instruction('VOLUME')}", flags)
        self.assertIn(f"--addr=:{instruction('EXPOSE')}", flags)
        mine = [f.replace(instruction("VOLUME"), folder) for f in flags if not f.startswith("--addr")]
        with Server(*mine) as server:
            self.assertEqual(server.stop(), 0)

    def test_health(self):
        """The check says whether the server answers."""
        self.assertIn("build --format docker ", recipe())  # or podman leaves it out
        check = re.search(r"CMD (\[.*\])$", instruction("HEALTHCHECK"))[1]
        with Server() as server:
            command = json.loads(check)
            command[-1] = command[-1].replace("/8080", f"/{server.port}")
            self.assertNotEqual(command, json.loads(check))
            self.assertEqual(te.call(*command).returncode, 0)
            server.stop()
            self.assertNotEqual(te.call(*command).returncode, 0)

    def test_packages(self):
        """The recipe installs what scripts/deps.sh does for a build, but for what a build may go without."""
        packages = " ".join(re.findall(r"apt-get install -y --no-install-recommends (.*?)&&", recipe()))
        lines = te.call("bash", os.path.join(te.SRC, "scripts", "deps.sh"), "--list", "build").stdout.splitlines()
        wanted = [line.split()[1].split("|") for line in lines if not line.split()[1].endswith("?")]
        self.assertGreater(len(wanted), 10)
        for names in wanted:
            self.assertTrue(set(names) & set(packages.split()), names)


if __name__ == "__main__":
    te.main()
