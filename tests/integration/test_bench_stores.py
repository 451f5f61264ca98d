#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional timeout=600
"""scripts/bench_stores.py and tests/bench/te_store: each measure gives figures of te_metad and of etcd."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import te_proc as te
import te_stores as stores

SCRIPT = os.path.join(te.SRC, "scripts", "bench_stores.py")
PROGRAM = os.path.join(te.BUILD, "tests", "bench")
STORES = ["te_metad", "etcd, one member", "etcd, three members"]


def run(*words):
    return te.call(SCRIPT, *words, timeout=10 * te.HANG_S, env={**te.PATIENT, **os.environ, "TE_TEST_BUILD": te.BUILD})


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        te.need("http")
        te.need("etcd")
        stores.program("etcd", "etcd-server")

    def test_each_measure(self):
        """A row for each figure, a column for each server; what te_metad does not do is said."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            ended = run("--rounds=1", "--seconds=0.2", "--keys=40", "--watchers=3", f"--folder={folder}", f"--json={path}")
            self.assertEqual(ended.returncode, 0, ended)
            with open(path, encoding="utf-8") as f:
                found = json.load(f)
            self.assertEqual(os.listdir(folder), ["figures.json"])  # the servers have left nothing
        for row, columns in found.items():
            self.assertEqual(list(columns), STORES[1:] if "told" in row else STORES, row)
            for figures in columns.values():
                self.assertEqual(len(figures), 1)
                self.assertGreater(figures[0], 0, row)
        head, _, *lines = ended.stdout.splitlines()
        self.assertEqual(head, f"| what | {' | '.join(STORES)} |")
        self.assertEqual([line.split(" | ")[0][2:] for line in lines], list(found))
        self.assertEqual(len(lines), 10)
        for line in lines:
            self.assertRegex(line, r"^\| [^|]+ \| (none|\d\S* \(\S+-\S+\))( \| \d\S* \(\S+-\S+\)){2} \|$")
            self.assertEqual(" | none | " in line, "told" in line)

    def test_a_server_that_is_away(self):
        ended = te.run("te_store", f"--store=http://127.0.0.1:{te.dead_port()}/metadata", "put", folder=PROGRAM)
        self.assertEqual(ended.rc, 1, ended)
        self.assertRegex(ended.errors[-1], r"^te_store: put: TE_ERR_METADATA: .*[Cc]onnect")

    def test_no_changes(self):
        """A store that tells none is no hang."""
        with stores.Metad() as store:
            ended = te.run("te_store", f"--store={store.url}", "watch", folder=PROGRAM)
        self.assertEqual((ended.rc, ended.error_output().strip()), (1, "te_store: this store tells no changes"))


class Calls(unittest.TestCase):
    def test_wrong(self):
        for words, says in ((("--only=no-such",), "no measure 'no-such'"), (("--rounds=0",), "at least 1 round"),
                            (("--keys=1",), "16 keys")):
            ended = run(*words)
            self.assertEqual(ended.returncode, 2, ended)
            self.assertIn(says, ended.stderr)

    def test_without_etcd(self):
        """It ends with 77 and says what is missing."""
        te.need("http")
        te.need("etcd")
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run([sys.executable, SCRIPT, "--rounds=1", "--only=puts", "--seconds=0.1"],
                                   capture_output=True, text=True, check=False, timeout=10 * te.HANG_S,
                                   env={**te.PATIENT, **os.environ, "TE_TEST_BUILD": te.BUILD, "PATH": folder})
        self.assertEqual(ended.returncode, 77, ended)
        self.assertTrue(re.search(r"etcd \(package etcd-server\) is missing", ended.stdout), ended)


if __name__ == "__main__":
    te.main()
