# SPDX-License-Identifier: Apache-2.0
"""Where the sources of a package are read from, and how a function of them is called, for the scripts record_interface.py."""
import ast
import os
import re
import zipfile


class Source:
    """The files of a package: those of a wheel, or of a folder that holds one unpacked or installed."""

    def __init__(self, path):
        self._path = path
        self._names = zipfile.ZipFile(path).namelist() if os.path.isfile(path) else os.listdir(path)

    def read(self, name):
        if os.path.isdir(self._path):
            with open(os.path.join(self._path, name), encoding="utf-8") as f:
                return f.read()
        with zipfile.ZipFile(self._path) as wheel:
            return wheel.read(name).decode()

    def version(self, package):
        """Of the wheel's name for itself; None in a folder without that."""
        infos = {name.split("/")[0] for name in self._names if re.match(rf"{package}-[^/]*\.dist-info(/|$)", name)}
        return next((re.search(r"-([^-]+)\.dist-info$", info).group(1) for info in infos), None)


def parameters(arguments):
    """The names, as a call has to give them: *, ** and = mark what they mark in Python."""
    plain = arguments.posonlyargs + arguments.args
    bare = len(plain) - len(arguments.defaults)
    names = [a.arg + ("=" if i >= bare else "") for i, a in enumerate(plain)]
    if arguments.vararg or arguments.kwonlyargs:
        names.append("*" + (arguments.vararg.arg if arguments.vararg else ""))
    names += [a.arg + ("=" if d else "") for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return names + (["**" + arguments.kwarg.arg] if arguments.kwarg else [])
