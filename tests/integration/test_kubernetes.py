#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=300
"""The Kubernetes manifests: what they say of te_metad and of engines is so, and they are what the schemas of Kubernetes
want, as kubernetes-validate of PyPI says, which scripts/test_wheels.sh downloads."""
import glob
import json
import os
import re
import sys
import unittest

import te_proc as te

MANIFESTS = sorted(glob.glob(os.path.join(te.SRC, "service", "kubernetes", "*.yaml")))
WHEELS = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "te-wheels",
                      sys.implementation.cache_tag)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def downloaded():
    """The wheels of it and of what it needs."""
    wheels = glob.glob(os.path.join(WHEELS, "*.whl"))
    if not any(os.path.basename(w).startswith("kubernetes_validate-") for w in wheels):
        te.skip("kubernetes-validate is not there: scripts/test_wheels.sh downloads it")
    return wheels


class Names(unittest.TestCase):
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


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Python reads it out of its wheel, which has some 17,000 files; what it needs is installed."""
        wheels, others = downloaded(), os.path.join(te.Workdir.get(), "others")
        own = next(w for w in wheels if os.path.basename(w).startswith("kubernetes_validate-"))
        run = te.call(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                      "--no-deps", "--target", others, *(w for w in wheels if w != own))
        if run.returncode:
            te.skip(f"pip does not install what {WHEELS} has: {(run.stderr.strip().splitlines() or ['?'])[-1]}")
        cls.path = os.pathsep.join((own, others))

    def validate(self, *paths):
        """(exit status, what was said)"""
        run = te.call(sys.executable, "-m", "kubernetes_validate", "--strict", *paths,
                      env={**os.environ, "PYTHONPATH": self.path})
        return run.returncode, run.stdout + run.stderr

    def test_manifests(self):
        rc, said = self.validate(*MANIFESTS)
        self.assertEqual(rc, 0, said)
        for path in MANIFESTS:
            self.assertIn(f"{path} passed", said)

    def test_it_would_say(self):
        """A field that is misspelt, and one of another type, are seen."""
        text = read(next(path for path in MANIFESTS if path.endswith("te_metad.yaml")))
        for old, new in (("readinessProbe:", "readynessProbe:"), ("replicas: 1", "replicas: one")):
            path = os.path.join(te.Workdir.get(), "changed.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            rc, said = self.validate(path)
            self.assertEqual(text.count(old), 1)
            self.assertNotEqual(rc, 0, said)
            self.assertIn(new.split(":")[0], said)


if __name__ == "__main__":
    te.main()
