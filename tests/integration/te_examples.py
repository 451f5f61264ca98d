# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/, in a copy of that folder and over a prefix of their own, by the commands of its README."""
import glob
import os
import re
import shutil
import subprocess
import sys

import te_proc as te

SOURCE = os.path.join(te.SRC, "examples")
LAYERS = [f"request {number}: {what}, 0 pages are wrong"
          for number, what in ((1, "all layers"), (2, "given up"), (3, "all layers"))]  # what kv_layers prints


def folder():
    return os.path.join(te.Workdir.get(), "tree", "examples")


def prefix():
    return os.path.join(te.Workdir.get(), "te")


def prepare():
    """The installed prefix, and the copy, with what it refers to beside it as in the tree."""
    for name in ("libtransfer_engine.a", "libtransfer_engine.so"):
        if not os.path.exists(os.path.join(te.BUILD, "lib", name)):
            te.skip(f"{name} is not built")
    shutil.copytree(SOURCE, folder(), ignore=lambda *_: ("target", "initiator", "mooncake", "pages", "kv_layers", "Cargo.lock"))
    for name in ("bindings", "scripts"):
        os.symlink(os.path.join(te.SRC, name), os.path.join(te.Workdir.get(), "tree", name))
    run("cmake", "--install", te.BUILD, "--prefix", prefix())


def environment():
    """What README.md tells to export, and the package of the tree, in front of what is there."""
    (pkgconfig,) = glob.glob(os.path.join(prefix(), "**", "pkgconfig"), recursive=True)
    library = os.path.dirname(pkgconfig)
    paths = {"PKG_CONFIG_PATH": pkgconfig, "LD_LIBRARY_PATH": library,
             "PYTHONPATH": os.path.join(te.SRC, "bindings", "python")}
    return {**{name: f"{path}:{os.environ.get(name, '')}".rstrip(":") for name, path in paths.items()},
            "TE_BIND": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1",
            "TRANSFER_ENGINE_LIBRARY": os.path.join(library, "libtransfer_engine.so")}


def python_with(module):
    """An interpreter that has this module: this one, or else the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and te.call(python, "-c", f"import {module}").returncode == 0:
            return python
    return te.skip(f"{module} (package python3-{module}) is missing")


def make(*words):
    """Builds by the Makefile, whatever was said to a make that runs this test."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run("make", "-C", folder(), f"CC={te.CC}", *words, env={**env, **environment()})


def run(*command, **more):
    """What it prints; fails the test when it does not exit 0."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=10 * te.HANG_S, check=False, **more)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def rows():
    """file -> its command, of each row of the table in README.md"""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        return dict(re.findall(r"^\| \[([\w.]+)\]\(\S+\) \|.*\| `([^`]+)` \|$", f.read(), re.M))


def start(name, peer="", python="python3", env=None, words=""):
    """The example of that name, begun as README.md says, with more words behind."""
    command = f"{rows()[name]} {words}".replace("NAME", peer).replace("python3", python)
    if not command.startswith("("):
        command = "exec " + command  # so that it is what ends when it is told to
    return te.Proc(["bash", "-c", f"cd '{folder()}' && {command}"], env={**environment(), **(env or {})})


def moves_and_inverts(test, name, speaker, env=None):
    """Runs target.c beside one of its peers, which is called `speaker` in what it prints; both end well."""
    with start("target.c") as target:
        segment = target.wait_line(r"^target: (127\.0\.0\.1:\d+)$").group(1)
        with start(name, segment, env=env) as peer:
            test.assertEqual(peer.wait(), 0, peer)
            test.assertRegex(peer.output(), rf"(?m)^{speaker}: 2097152 bytes read, 0 of them wrong, and written back")
            test.assertEqual(target.wait(), 0, target)
            test.assertRegex(target.lines[1], r'^target: message "written": by \w')
            test.assertEqual(target.lines[2], "target: 2097152 bytes came back inverted, 0 of them wrong")
    return peer


def says(test, name, python):
    """The one line that an example in Python prints, once it has ended well."""
    with start(name, python=python) as program:
        test.assertEqual(program.wait(), 0, program)
        test.assertEqual((len(program.lines), program.errors), (1, []), program)
        return program.lines[0]
