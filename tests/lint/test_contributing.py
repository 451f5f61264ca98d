#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""The worked examples of CONTRIBUTING.md, and the first step of docs/transports.md, do what they say, pasted one after
the other in a copy of the tree.

Of what they change and build, make lint names what is missing, and finds nothing once they are followed to the end.
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

SRC = os.environ.get("TE_TEST_SRC", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
BUILD = os.environ.get("TE_TEST_BUILD", os.path.join(SRC, "build"))
SECTIONS = ("Run one test", "Add an option", "Add an error", "Add a flag to a tool")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def blocks():
    """{section: its blocks of shell}"""
    examples = re.search(r"^## Worked examples\n(.*?)^## ", read(SRC, "CONTRIBUTING.md"), re.M | re.S).group(1)
    parts = re.split(r"^### (.*)\n", examples, flags=re.M)
    return {title: re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for title, text in zip(parts[1::2], parts[2::2])}


def begin_a_transport():
    """The block that copies the example transport, but for the format where there is no program for that."""
    block = textwrap.dedent(re.search(r"^ +```sh\n(.*?)^ +```$", read(SRC, "docs", "transports.md"), re.M | re.S).group(1))
    return block if shutil.which("clang-format") else block.replace("make format\n", "")


def own_files():
    """Those of the working tree that git knows or does not ignore."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=SRC,
                            capture_output=True, text=True, timeout=600, check=False)
    return [name for name in listed.stdout.split("\0") if name]


def copy_tree(folder):
    for name in own_files():
        path = os.path.join(SRC, name)
        if os.path.lexists(path):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copy2(path, os.path.join(folder, name), follow_symlinks=False)


def switches():
    """Arguments for CMake: not optimised, with the parts that the build tree has, and by ccache where that is."""
    cache = read(BUILD, "CMakeCache.txt")
    found = [f"-D{name}={value}" for name, value in re.findall(r"^(TE_USE_\w+|TE_BUILD_METAD):\w+=(\w+)$", cache, re.M)]
    found += ["-DCMAKE_BUILD_TYPE=Debug", "-DTE_WERROR=ON", "-DTE_WHOLE_ARCHIVE=OFF"]
    if os.environ.get("TE_TEST_CC"):
        found.append("-DCMAKE_C_COMPILER=" + os.environ["TE_TEST_CC"])
    if shutil.which("ccache"):
        found.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
    return " ".join(found)


class ContributingTest(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="te-contributing-"))
        self.addCleanup(shutil.rmtree, self.root)
        copy_tree(self.root)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MC_", "TE_", "MAKE", "MFLAGS", "GIT_"))}
        self.env = {**clean, "SKIP_DEPS": "1", "JOBS": "2", "CMAKE_ARGS": switches(),
                    "GIT_CEILING_DIRECTORIES": os.path.dirname(self.root), "CCACHE_BASEDIR": self.root,
                    "CCACHE_NOHASHDIR": "1", "CCACHE_DIR": os.path.join(BUILD, "ccache"), "CCACHE_MAXSIZE": "200M"}

    def run_here(self, *command):
        return subprocess.run(command, cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=1100, check=False)

    def paste(self, block):
        """What the lines of a block print, each of which has to succeed."""
        run = self.run_here("bash", "-euo", "pipefail", "-c", block)
        self.assertEqual(run.returncode, 0, f"{block}\n{run.stdout}")
        return run.stdout

    def lint(self, *rules):
        return self.run_here(sys.executable, "scripts/lint.py", *rules).stdout

    def as_far_as_possible(self, block):
        """The block, without what takes a program that is not here."""
        if not shutil.which("clang-format"):
            rules = sorted(set(re.findall(r"^  ([a-z][a-z-]*)  ", self.lint("--help"), re.M)) - {"format"})
            block = block.replace("make lint\n", f"python3 scripts/lint.py {' '.join(rules)}\n")
        if self.run_here("scripts/abi.sh").returncode == 3 or not shutil.which("abidw"):
            block = block.replace("make abi\n", "echo 'TE_ERR_QUOTA = -413' >>abi/constants.txt\n")
        return block

    def strerror(self, code):
        library = ctypes.CDLL(os.path.join(self.root, "build", "lib", "libtransfer_engine.so"))
        library.te_strerror.restype = ctypes.c_char_p
        return library.te_strerror(code).decode()

    def follow(self, title, *findings):
        """Pastes the blocks of an example. With its patch applied and built, make lint has those findings, and none
        of them at its end. Returns what the blocks behind the patch printed."""
        patch, rest = self.examples[title]
        self.paste(patch)
        if title == "Add an option":  # everything is to be compiled now, and so a test is, too
            self.assertIn("1 passed, 0 failed, 0 skipped", self.paste(*self.examples["Run one test"]))
        self.paste("make\n")
        lint = self.lint("config-doc", "flags", "errors")
        for finding in findings:
            self.assertRegex(lint, finding)
        self.assertIn(f", {len(findings)} findings\n", lint)
        said = self.paste(self.as_far_as_possible(rest))
        self.assertIn(", 0 findings\n", said)
        return said

    def test_the_examples(self):
        self.examples = blocks()
        self.assertEqual(tuple(self.examples), SECTIONS)

        said = self.follow("Add an option", r"docs/config\.md:\d+: config-doc: .*: run make docs\n",
                           r"man/man5/transfer_engine\.5:\d+: config-doc: .*: run make docs\n")
        self.assertRegex(said, r"TE_LABEL = cache +\[environment\]")
        self.assertIn("1 passed, 0 failed, 0 skipped", said)
        for page in ("docs/config.md", "man/man5/transfer_engine.5"):
            self.assertIn("TE_LABEL", read(self.root, page))

        said = self.follow("Add an error", r"abi/constants\.txt:1: errors: TE_ERR_QUOTA .*: run make abi\n")
        self.assertIn("1 passed, 0 failed, 0 skipped", said)
        self.assertEqual(self.strerror(-413), "more than the quota")
        self.assertIn("TE_ERR_QUOTA = -413\n", read(self.root, "abi", "constants.txt"))

        said = self.follow("Add a flag to a tool")
        self.assertRegex(said, r"(?m)^  --names\b")
        self.assertRegex(said, r"(?m)^MC_FORCE_TCP\n")
        self.assertIn(self.root, read(self.root, "build", "compile_commands.json"))

        self.assertRegex(self.paste(begin_a_transport()), r"PASSED +\] +24 test")
        said = self.lint("layers", "transports", "names", "sizes", "spdx", "symbols")
        self.assertIn(", 0 findings\n", said, said)


if __name__ == "__main__":
    if not shutil.which("git") or not own_files():
        print("git is missing, or this tree is no clone: it does not tell which files are its own")
        sys.exit(77)
    unittest.main()
