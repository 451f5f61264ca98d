#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""The container recipe and the Kubernetes manifests: what they say of te_metad and of engines is so."""
import glob
import json
import os
import re
import shutil
import subprocess
import unittest

import te_proc as te
from metad_server import Server

SERVICE = os.path.join(te.SRC, "service")
MANIFESTS = sorted(glob.glob(os.path.join(SERVICE, "kubernetes", "*.yaml")))


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def instruction(name):
    """The last line of the recipe with this instruction, continued lines joined, without the word itself."""
    text = read(os.path.join(SERVICE, "container", "Containerfile")).replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, re.M)[-1].strip()


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
        packages = " ".join(re.findall(r"apt-get install -y --no-install-recommends (.*?)&&",
                                       read(os.path.join(SERVICE, "container", "Containerfile")).replace("\\\n", " ")))
        lines = te.call("bash", os.path.join(te.SRC, "scripts", "deps.sh"), "--list", "build").stdout.splitlines()
        wanted = [line.split()[1].split("|") for line in lines if not line.split()[1].endswith("?")]
        self.assertGreater(len(wanted), 10)
        for names in wanted:
            self.assertTrue(set(names) & set(packages.split()), names)


class Kubernetes(unittest.TestCase):
    def test_flags_and_options(self):
        """Every flag is one of te_metad, every variable an option of engines."""
        text = "".join(map(read, MANIFESTS))
        known = set(re.findall(r"^  --([a-z_]+)", te.run("te_metad", "--help").output(), re.M))
        flags = {f.replace("-", "_") for f in re.findall(r'"--([a-z-]+)=', text)}
        self.assertGreater(len(flags), 2)
        self.assertLessEqual(flags, known)
        options = {row["name"] for row in json.loads(te.run("te_info", "--config", "--json").output())["config"]}
        named = set(re.findall(r"\b((?:TE|MC)_[A-Z_]+)\b", re.sub(r"(?m)^ *#.*$", "", text)))
        self.assertGreater(len(named), 2)
        self.assertLessEqual(named, options)

    def test_validate(self):
        program = shutil.which("kubernetes-validate")
        if not program:
            self.skipTest("kubernetes-validate is not installed (pip install kubernetes-validate)")
        run = subprocess.run([program, "--strict", *MANIFESTS], capture_output=True, text=True, check=False,
                             timeout=te.HANG_S)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    te.main()
