# SPDX-License-Identifier: Apache-2.0
"""Makes the wheels, as PEP 517 has it, with nothing but the standard library.

pip calls build_wheel() for `pip install bindings/python`; scripts/wheel.sh does, too. The wheel of
the package transfer_engine brings the shared library along, and the libraries that this one needs.
It takes them from build/lib; TRANSFER_ENGINE_BUNDLE=PATH in the environment names another one, and
TRANSFER_ENGINE_BUNDLE=none leaves all of them out.
"""

import base64
import configparser
import csv
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile

import bundle

WHEEL = (
    "Wheel-Version: 1.0\nGenerator: transfer-engine\nRoot-Is-Purelib: {pure}\nTag: py3-none-{tag}\n"
)


def _root():
    """The top of the source tree, of which the project is a folder."""
    folder = os.getcwd()
    while not os.path.exists(os.path.join(folder, "include", "te.h")):
        above = os.path.dirname(folder)
        if above == folder:
            raise FileNotFoundError("include/te.h: build this inside of the project's source tree")
        folder = above
    return folder


def _version(root):
    with open(os.path.join(root, "include", "te.h"), encoding="utf-8") as f:
        return re.search(r'TE_VERSION_STRING "(.*)"', f.read()).group(1)


def _settings():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read("pyproject.toml", encoding="utf-8")
    return {name: {k: json.loads(v) for k, v in parser[name].items()} for name in parser.sections()}


def _metadata(project, version, licences):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    lines += [f"License-File: {name}" for name in licences]
    lines += [f"Requires-Dist: {name}=={version}" for name in project["dependencies"]]
    with open(project["readme"], encoding="utf-8") as f:
        return "\n".join(lines) + "\n\n" + f.read()


class _Wheel:
    """The file: an archive whose last member lists the others."""

    def __init__(self, path, info):
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = io.StringIO()
        self._rows = csv.writer(self._record, lineterminator="\n")
        self._info = info

    def add(self, name, data, mode=0o644):
        self._write(name, data, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._rows.writerow([name, f"sha256={digest}", len(data)])

    def _write(self, name, data, mode=0o644):
        member = zipfile.ZipInfo(name)  # of 1980: the same files make the same wheel
        member.external_attr = (0o100000 | mode) << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(member, data)

    def add_file(self, name, path, mode=0o644):
        with open(path, "rb") as f:
            self.add(name, f.read(), mode)

    def close(self):
        record = f"{self._info}/RECORD"
        self._rows.writerow([record, "", ""])
        self._write(record, self._record.getvalue())
        self._archive.close()


def _library(root, tool):
    """The path of the library to bring along, or None."""
    if not tool["library"]:
        return None
    asked = os.environ.get("TRANSFER_ENGINE_BUNDLE")
    if asked == "none":
        return None
    path = asked or os.path.join(root, "build", "lib", tool["library"])
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: build the library first (make), or set TRANSFER_ENGINE_BUNDLE to its path, or"
            " to none for a package that uses the library of the system"
        )
    return path


def _sources(package):
    for name in sorted(os.listdir(package)):
        if name.endswith((".py", ".pyi")) or name == "py.typed":
            yield f"{package}/{name}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    root, settings = _root(), _settings()
    project, tool = settings["project"], settings["tool.build_backend"]
    version = _version(root)
    library = _library(root, tool)
    with tempfile.TemporaryDirectory() as folder:
        tag, licences = bundle.collect(library, folder) if library else ("any", {})
        with open(os.path.join(root, "LICENSE"), "rb") as f:
            licences = dict(LICENSE=f.read(), **dict(sorted(licences.items())))
        stem = f"{project['name'].replace('-', '_')}-{version}"
        name = f"{stem}-py3-none-{tag}.whl"
        info = f"{stem}.dist-info"
        wheel = _Wheel(os.path.join(wheel_directory, name), info)
        for source in _sources(tool["package"]):
            wheel.add_file(source, source)
        for brought in sorted(os.listdir(folder)):
            wheel.add_file(f"{tool['package']}/lib/{brought}", os.path.join(folder, brought), 0o755)
        wheel.add(f"{info}/METADATA", _metadata(project, version, licences).encode())
        wheel.add(
            f"{info}/WHEEL", WHEEL.format(pure="false" if library else "true", tag=tag).encode()
        )
        for licence, text in licences.items():
            wheel.add(f"{info}/licenses/{licence}", text)
        wheel.close()
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("the source of this package is the source tree of the library")


class UnsupportedOperation(Exception):
    """What PEP 517 wants raised."""
