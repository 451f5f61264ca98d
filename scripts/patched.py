#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies of this tree that are changed by patches, for scripts that set builds side by side. Not run by itself."""
import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


def copy_tree(to):
    """The files that git knows, as they are now."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, files.decode().split("\0")):
        if os.path.exists(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(to, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(to, name), follow_symlinks=False)


def build(tree, target, jobs, *options):
    """In tree/build, as `make` builds it. What the compiler says, or nothing if it is built."""
    where = os.path.join(tree, "build")
    if not os.path.exists(where):
        r = run("cmake", "-S", tree, "-B", where, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *options)
        if r.returncode:
            return r.stdout
    r = run("cmake", "--build", where, "--target", target, f"-j{jobs}")
    return r.stdout if r.returncode else ""
