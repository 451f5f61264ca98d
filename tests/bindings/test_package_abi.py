#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The binary interface of the library is the recorded one, and scripts/abi.sh sees what differs.

For the second, libraries are made of the public headers alone, each function with an empty body: one that
is as recorded, and from it some that differ in one thing.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SRC = os.environ.get("TE_TEST_SRC", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
BUILD = os.environ.get("TE_TEST_BUILD", os.path.join(SRC, "build"))
CC = os.environ.get("TE_TEST_CC", "cc")
HEADERS = ("te.h", "transfer_engine_c.h")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


class Library:
    """Headers and a version script in a folder, to be changed, and the library that they make."""

    def __init__(self, folder):
        self.folder = folder
        self.texts = {name: read(SRC, "include", name) for name in HEADERS}
        self.texts["exports.map"] = read(SRC, "src", "transfer_engine.map")

    def replace(self, name, old, new):
        assert self.texts[name].count(old) >= 1, f"{name} has no {old}"
        self.texts[name] = self.texts[name].replace(old, new, 1)

    def build(self):
        code = ""
        for name in HEADERS:
            plain = re.sub(r"/\*.*?\*/", "", self.texts[name], flags=re.S)
            prototypes = re.findall(r"^TE_API ([^;]*\));", plain, re.M)
            code += f'#include "{name}"\n' + "".join(f"{p} {{ __builtin_trap(); }}\n" for p in prototypes)
        for name, text in {**self.texts, "library.c": code}.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        subprocess.run([CC, "-std=c17", "-g", "-w", "-fPIC", "-fvisibility=hidden", "-shared", "library.c", "-o",
                        "library.so", "-Wl,-soname,libtransfer_engine.so.0", "-Wl,--version-script=exports.map"],
                       cwd=self.folder, check=True, timeout=60)


def abi(*arguments):
    run = subprocess.run([os.path.join(SRC, "scripts", "abi.sh"), *arguments], capture_output=True, text=True,
                         timeout=120, check=False, env={**os.environ, "CC": CC})
    return run.returncode, run.stdout + run.stderr


class AbiTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te-abi-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.library = Library(self.folder)

    def compare(self):
        self.library.build()
        return abi("--lib", os.path.join(self.folder, "library.so"), "--include", self.folder)

    def breaks(self, *texts):
        rc, out = self.compare()
        self.assertEqual(rc, 1, out)
        for text in ("new SONAME", *texts):
            self.assertIn(text, out)

    def test_as_recorded(self):
        rc, out = abi("--build", BUILD)
        self.assertEqual(rc, 0, out)

    def test_headers_alone_are_as_recorded(self):
        rc, out = self.compare()
        self.assertEqual(rc, 0, out)

    def test_field_inserted(self):
        self.library.replace("te.h", "    te_segment target;", "    int priority;\n    te_segment target;")
        self.breaks("te_request", "priority")

    def test_field_of_another_type(self):
        self.library.replace("transfer_engine_c.h", "    uint64_t transferred_bytes;", "    double transferred_bytes;")
        self.breaks("transfer_status", "transferred_bytes")

    def test_type_that_no_function_takes(self):
        self.library.replace("transfer_engine_c.h", "            uint64_t port;", "            char port[32];")
        self.breaks("sizeof(struct segment_desc)")

    def test_function_removed(self):
        self.library.replace("exports.map", "    te_cancel;\n", "")
        self.breaks("te_cancel")

    def test_function_of_another_type(self):
        self.library.replace("te.h", "int te_wait(te_engine *e, te_batch b, int64_t timeout_ms)",
                             "int te_wait(te_engine *e, te_batch b, int timeout_ms)")
        self.breaks("te_wait", "'int'")

    def test_symbol_node_renamed(self):
        self.library.replace("exports.map", "TRANSFER_ENGINE_0", "TRANSFER_ENGINE_1")
        self.breaks("te_wait@@TRANSFER_ENGINE_0")

    def test_constant_changed(self):
        self.library.replace("te.h", "TE_COMPLETED = 4", "TE_COMPLETED = 14")
        self.breaks("was: TE_COMPLETED = 4")
        self.library.replace("transfer_engine_c.h", "#define OPCODE_WRITE (1)", "#define OPCODE_WRITE (2)")
        self.breaks("was: OPCODE_WRITE = 1")

    def test_added(self):
        self.library.replace("te.h", "TE_API int te_cancel", "TE_API int te_more(int n);\nTE_API int te_cancel")
        self.library.replace("exports.map", "    te_cancel;\n", "    te_cancel;\n    te_more;\n")
        rc, out = self.compare()
        self.assertEqual(rc, 1, out)
        for text in ("te_more", "has grown", "make abi"):
            self.assertIn(text, out)
        self.assertNotIn("SONAME", out)

    def test_record_is_the_same_again(self):
        record = os.path.join(self.folder, "record")
        rc, out = abi("--build", BUILD, "--record", "--against", record)
        self.assertEqual(rc, 0, out)
        self.assertEqual(read(record, "constants.txt"), read(SRC, "abi", "constants.txt"))
        rc, out = abi("--build", BUILD, "--against", record)
        self.assertEqual(rc, 0, out)


def main():
    version = subprocess.run([CC, "--version"], capture_output=True, text=True, check=True).stdout
    if "clang" in version or platform.machine() != "x86_64":
        print("test_package_abi: the record in abi/ is of gcc on x86_64")
        return 77
    if not shutil.which("abidiff"):
        print("test_package_abi: abidiff is missing (abigail-tools)")
        return 77
    sections = subprocess.run(["readelf", "-S", os.path.join(BUILD, "lib", "libtransfer_engine.so")],
                              capture_output=True, text=True, check=True).stdout
    if ".debug_info" not in sections:
        print("test_package_abi: this build has no debug information")
        return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
