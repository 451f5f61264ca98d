#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
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
HEADERS = ("te.h", "te_counter.h", "te_lease.h", "te_paths.h", "te_stream.h", "transfer_engine_c.h")
RECORD = ("libtransfer_engine.abi", "structs.abi", "constants.txt", "metrics.txt")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def format_of(text):
    """The version of libabigail's format, of what is in it."""
    return re.findall(r"\A<abi-corpus version='([\d.]+)'", text)


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
                       cwd=self.folder, check=True, timeout=600)


def abi(*arguments):
    run = subprocess.run([os.path.join(SRC, "scripts", "abi.sh"), *arguments], capture_output=True, text=True,
                         timeout=600, check=False, env={**os.environ, "CC": CC})
    return run.returncode, run.stdout + run.stderr


class AbiTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te-abi-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.library = Library(self.folder)

    def compare(self, *options):
        self.library.build()
        return abi("--build", BUILD, "--lib", os.path.join(self.folder, "library.so"), "--include", self.folder, *options)

    def record(self):
        return shutil.copytree(os.path.join(SRC, "abi"), os.path.join(self.folder, "record"))

    def breaks(self, *texts, options=()):
        rc, out = self.compare(*options)
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
        self.breaks("segment_desc", "port")

    def test_members_swapped(self):
        proto, ip = "            const char *proto;\n", "            const char *ip;\n"
        self.library.replace("transfer_engine_c.h", proto + ip, ip + proto)
        self.breaks("segment_desc", "proto", "ip")

    def test_members_of_one_size_swapped(self):
        old = "            void *addr;\n", "            uint64_t size;\n"
        self.library.replace("transfer_engine_c.h", "".join(old), "".join(reversed(old)))
        self.breaks("segment_desc", "addr")

    def test_type_that_is_a_macro(self):
        self.library.replace("transfer_engine_c.h", "#define segment_handle_t int32_t", "#define segment_handle_t uint32_t")
        self.breaks("was: segment_handle_t is signed, of 4 bytes")
        self.library.replace("transfer_engine_c.h", "#define segment_handle_t uint32_t", "#define segment_handle_t int64_t")
        self.breaks("was: segment_handle_t is signed, of 4 bytes")

    def test_function_removed(self):
        self.library.replace("exports.map", "    te_cancel;\n", "")
        self.breaks("te_cancel")

    def test_function_of_another_type(self):
        self.library.replace("te.h", "int te_wait(te_engine *e, te_batch b, int64_t timeout_ms)",
                             "int te_wait(te_engine *e, te_batch b, int timeout_ms)")
        self.breaks("te_wait", "'int'")

    def test_symbol_node_renamed(self):
        self.library.replace("exports.map", "TRANSFER_ENGINE_0 {", "TRANSFER_ENGINE_1 {")
        self.library.replace("exports.map", "} TRANSFER_ENGINE_0;", "} TRANSFER_ENGINE_1;")
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

    def test_struct_with_size_grows(self):
        for last in ("uint64_t metadata_down;", "const struct te_lease_key *lease;", "struct te_option_list *set;"):
            self.library.replace("te.h", f"    {last}", f"    {last}\n    uint64_t and_more;")
        rc, out = self.compare()
        self.assertEqual(rc, 1, out)
        for text in ("and_more", "te_stats", "te_submit_opts", "te_options", "has grown", "make abi"):
            self.assertIn(text, out)
        self.assertNotIn("SONAME", out)
        rc, out = self.compare("--record", "--against", self.record())
        self.assertEqual(rc, 0, out)

    def test_struct_with_size_grows_within(self):
        self.library.replace("te.h", "    int64_t deadline_ms;", "    uint64_t and_more;\n    int64_t deadline_ms;")
        self.breaks("te_submit_opts", "and_more")

    def test_other_struct_grows(self):
        self.library.replace("te.h", "    uint64_t bytes; /*", "    uint64_t bytes, and_more; /*")
        self.breaks("te_status", "and_more")

    def test_break_is_not_recorded_unasked(self):
        record = self.record()
        self.library.replace("exports.map", "    te_cancel;\n", "")
        rc, out = self.compare("--record", "--against", record)
        self.assertEqual(rc, 1, out)
        for text in ("te_cancel", "new SONAME", "--break"):
            self.assertIn(text, out)
        for name in RECORD:
            self.assertEqual(read(record, name), read(SRC, "abi", name))
        rc, out = self.compare("--record", "--break", "--against", record)
        self.assertEqual(rc, 0, out)
        self.assertNotIn("'te_cancel'", read(record, RECORD[0]))

    def metrics_were(self, change):
        """Options for a record whose metrics are those that `change` makes of the list of lines."""
        record = self.record()
        lines = change(read(record, "metrics.txt").splitlines(True))
        with open(os.path.join(record, "metrics.txt"), "w", encoding="utf-8") as f:
            f.writelines(sorted(lines))
        return "--against", record

    def test_metric_gone(self):
        """A metric, the label of one, and the type that one has had."""
        for was in ("transfer_engine_gone_total is a counter", "transfer_engine_bytes_total by direction",
                    "transfer_engine_regions is a counter"):
            with self.subTest(was):
                self.breaks(f"was: {was}", options=self.metrics_were(lambda lines, was=was: [*lines, was + "\n"]))
                shutil.rmtree(os.path.join(self.folder, "record"))

    def test_metric_added(self):
        name = "transfer_engine_bytes_total"
        options = self.metrics_were(lambda lines: [line for line in lines if not line.startswith(name + " ")])
        rc, out = self.compare(*options)
        self.assertEqual(rc, 1, out)
        for text in (f"new: {name} is a counter", f"new: {name} by opcode", "has grown", "make abi"):
            self.assertIn(text, out)
        self.assertNotIn("SONAME", out)

    def test_symbols_of_debian(self):
        out = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions",
                              os.path.join(BUILD, "lib", "libtransfer_engine.so")],
                             capture_output=True, text=True, check=True, timeout=600).stdout
        exported = {line.split()[-1].replace("@@", "@") for line in out.splitlines()}
        listed = re.findall(r"^ (\w+@\w+) \S+$", read(SRC, "debian", "libtransfer-engine0.symbols"), re.M)
        self.assertEqual({n for n in exported if "@" in n}, {n for n in listed if n.split("@")[0] != n.split("@")[1]})

    def test_record_is_the_same_again(self):
        record = os.path.join(self.folder, "record")
        rc, out = abi("--build", BUILD, "--record", "--against", record)
        self.assertEqual(rc, 0, out)
        for name in RECORD[1:]:
            if format_of(read(record, name)) == format_of(read(SRC, "abi", name)):  # else another libabigail wrote it
                self.assertEqual(read(record, name), read(SRC, "abi", name))
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
    rc, out = abi("--build", BUILD)
    if rc == 3:
        print("test_package_abi: " + out.strip())
        return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
