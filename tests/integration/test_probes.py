#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""The probes of the library are those of docs/tracing.md, with as many arguments; its scripts name no others."""
import os
import re
import shutil
import unittest

import te_proc as te

LIBRARY = os.path.join(te.BUILD, "lib", "libtransfer_engine.so")


def page():
    with open(os.path.join(te.SRC, "docs", "tracing.md"), encoding="utf-8") as f:
        return f.read()


def described():
    """{name: number of arguments} of the table."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page(), re.M)
    return {name: len(re.sub(r"\([^)]*\)", "", arguments).split(",")) for name, arguments in rows}


class Probes(unittest.TestCase):
    def test_library(self):
        if not shutil.which("readelf"):
            te.skip("there is no readelf (package binutils)")
        notes = te.call("readelf", "--wide", "--notes", LIBRARY).stdout
        if "NT_STAPSDT" not in notes:
            te.skip("the library was built without <sys/sdt.h> (package systemtap-sdt-dev)")
        found = re.findall(r"Provider: transfer_engine\n\s*Name: (\w+)\n.*\n\s*Arguments: (.*)$", notes, re.M)
        self.assertEqual({name: len(arguments.split()) for name, arguments in found}, described())

    def test_scripts(self):
        """Each names probes that there are, and no argument beyond theirs."""
        scripts = re.findall(r"```bpftrace\n(.*?)```", page(), re.S)
        self.assertGreater(len(scripts), 1)
        known = described()
        for name, body in re.findall(r"transfer_engine:(\w+)\s*(.*?)\n\}", "".join(scripts), re.S):
            self.assertIn(name, known)
            self.assertLess(max(map(int, re.findall(r"\barg(\d)", body))), known[name], name)


if __name__ == "__main__":
    te.main()
