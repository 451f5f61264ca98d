#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""Makes the wheels, installs them into a fresh environment, and runs bindings/python/tests there.

The environment lies in the build tree. Its interpreter is this one, or the system's where only that
one has numpy; it sees the packages of its host for numpy and torch, and this package's files from
its own.
"""

import glob
import hashlib
import importlib.machinery
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from concurrent.futures import ThreadPoolExecutor

SRC = os.environ.get("TE_TEST_SRC") or os.path.abspath(os.path.join(__file__, "..", "..", ".."))
BUILD = os.environ.get("TE_TEST_BUILD") or os.path.join(SRC, "build")
PACKAGE = os.path.join(SRC, "bindings", "python")
FOLDER = os.path.join(BUILD, "tests", "python")
WHEELS = os.path.join(FOLDER, "wheels")
PYTHON = os.path.join(FOLDER, "venv", "bin", "python")
LONGEST_FIRST = ["test_mooncake", "test_engine", "test_closing", "test_asyncio"]
sys.path.insert(0, PACKAGE)
sys.dont_write_bytecode = True


def environment():
    """This one, without what would lead past the installed package."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "MC_", "TE_")) or k.startswith("TE_TEST_")
    }
    env.pop("TRANSFER_ENGINE_LIBRARY", None)
    env.update(
        PYTHONDONTWRITEBYTECODE="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INDEX="1",
        PIP_ROOT_USER_ACTION="ignore",
        TE_TEST_SRC=SRC,
        TE_TEST_BIN=os.environ.get("TE_TEST_BIN", os.path.join(BUILD, "bin")),
    )
    return env


def run(*command, **variables):
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environment(), **variables),
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def interpreter():
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            os.path.exists(python)
            and subprocess.run(
                [python, "-c", "import numpy, venv, ensurepip"], stderr=subprocess.DEVNULL
            ).returncode
            == 0
        ):
            return python
    return sys.executable


def install():
    """Both wheels, into an environment that is made anew when they or the interpreter changed."""
    run(os.path.join(SRC, "scripts", "wheel.sh"), "--build", BUILD, "--out", WHEELS)
    wheels = sorted(glob.glob(os.path.join(WHEELS, "*.whl")))
    python = interpreter()
    state = hashlib.sha256(
        run(python, "-c", "import sys; print(sys.executable, sys.version)").encode()
    )
    for wheel in wheels:
        with open(wheel, "rb") as f:
            state.update(f.read())
    stamp = os.path.join(FOLDER, "stamp")
    if os.path.exists(stamp):
        with open(stamp, encoding="ascii") as f:
            if f.read() == state.hexdigest():
                return
        os.remove(stamp)
    shutil.rmtree(os.path.join(FOLDER, "venv"), ignore_errors=True)
    run(python, "-m", "venv", "--system-site-packages", os.path.join(FOLDER, "venv"))
    run(PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--ignore-installed", *wheels)
    with open(stamp, "w", encoding="ascii") as f:
        f.write(state.hexdigest())


def source_archive(folder):
    """The name of the archive of the sources, made in this folder."""
    program = f"import build_backend; print(build_backend.build_sdist({folder!r}))"
    return subprocess.run(
        [PYTHON, "-c", program],
        cwd=PACKAGE,
        env=dict(environment(), PYTHONPATH=PACKAGE),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def source_tree(folder):
    """The folder that the archive of the sources makes in this one."""
    name = source_archive(folder)
    with tarfile.open(os.path.join(folder, name)) as archive:
        archive.extractall(folder)
    return os.path.join(folder, name[: -len(".tar.gz")])


# Compares what an engine has written into the memory of another one, by the library of the package itself.
MOVE = """
import ctypes, os, transfer_engine as te
data = os.urandom(1 << 20)
ours, theirs = (ctypes.c_char * len(data)).from_buffer_copy(data), (ctypes.c_char * len(data))()
with te.Engine(options={"TE_BIND": "127.0.0.1"}) as here, te.Engine(options={"TE_BIND": "127.0.0.1"}) as there:
    here.register(ours)
    there.register(theirs)
    with here.open(there.name) as segment:
        segment.write(ours, ctypes.addressof(theirs))
assert theirs.raw == data
print({line.split()[-1] for line in open("/proc/self/maps") if "libtransfer_engine" in line})
"""


class Package(unittest.TestCase):
    def test_what_was_installed_is_what_runs(self):
        path = run(PYTHON, "-c", "import transfer_engine as t; print(t._native.lib.path)").strip()
        self.assertTrue(path.startswith(FOLDER), path)
        with open(os.path.join(SRC, "include", "te.h"), encoding="utf-8") as f:
            version = re.search(r'TE_VERSION_STRING "(.*)"', f.read()).group(1)
        program = (
            "import importlib.metadata as m, transfer_engine as t\n"
            "of = ('transfer-engine', 'transfer-engine-mooncake')\n"
            "print(t.__version__, *map(m.version, of))"
        )
        self.assertEqual(run(PYTHON, "-c", program).split(), [version] * 3)

    def test_programs_of_migrating_md(self):
        """As that page types them, once both packages are there."""
        with open(os.path.join(SRC, "docs", "migrating.md"), encoding="utf-8") as f:
            programs = re.findall(r"^(?:TE_BIND=127.0.0.1 )?python3 -c '(.*)' *(?:# (.*))?$", f.read(), re.M)
        said = [(run(PYTHON, "-c", program).strip(), told or "0") for program, told in programs]
        self.assertEqual(len(said), 2)
        for text, told in said:
            self.assertEqual(text, told)

    def test_commands_that_install(self):
        """As the pages type them, where the wheels of both architectures are, as after make wheel."""
        pages = ["README.md", "docs/*.md", "bindings/python/README.md", "bindings/python/shim/README.md"]
        commands = set()
        for path in [p for page in pages for p in glob.glob(os.path.join(SRC, page))]:
            with open(path, encoding="utf-8") as f:
                commands.update(re.findall(r"(pip install [^`#\n]*(?:build/wheel|bindings/)[^`#\n]*)", f.read()))
        self.assertGreaterEqual(len(commands), 5)
        with tempfile.TemporaryDirectory() as folder:
            there = os.path.join(folder, "build", "wheel")
            shutil.copytree(WHEELS, there)
            os.symlink(os.path.join(SRC, "bindings"), os.path.join(folder, "bindings"))
            (ours,) = glob.glob(os.path.join(there, "*manylinux*.whl"))
            machine = os.uname().machine
            other = "x86_64" if machine == "aarch64" else "aarch64"
            shutil.copy(ours, ours.replace(machine, other))
            for i, command in enumerate(sorted(commands)):
                line = f'cd "$0" && "$1" -m {command.strip()} -q --ignore-installed --target there-{i}'
                library = os.path.join(BUILD, "lib", "libtransfer_engine.so.0")
                run("bash", "-c", line, folder, PYTHON, TRANSFER_ENGINE_BUNDLE=library)
                got = os.listdir(os.path.join(folder, f"there-{i}"))
                self.assertIn("transfer_engine", got, command)
                self.assertEqual("mooncake" in got, "mooncake" in command or "shim" in command, command)

    def test_make_wheel_takes_arguments(self):
        told = run("make", "-C", SRC, "SKIP_DEPS=1", "wheel", "WHEEL=--help")
        self.assertIn("usage: scripts/wheel.sh [--arch ARCH]", told)

    def test_only_the_c_library_is_the_hosts(self):
        import bundle

        path = run(PYTHON, "-c", "import transfer_engine as t; print(t._native.lib.path)").strip()
        for name, where in re.findall(r"(\S+) => (\S+)", run("ldd", path)):
            if not bundle.OF_THE_HOST.match(name):
                self.assertEqual(os.path.dirname(os.path.realpath(where)), os.path.dirname(path))
                self.assertRegex(name, r"-[0-9a-f]{8}\.so")

    def test_licences_and_modes(self):
        """What is brought along has the text of its licence, and every file a mode."""
        (path,) = [p for p in glob.glob(os.path.join(WHEELS, "*.whl")) if "manylinux" in p]
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            modes = {m.filename: (m.external_attr >> 16) & 0o777 for m in wheel.infolist()}
            (metadata,) = [n for n in names if n.endswith("/METADATA")]
            text = wheel.read(metadata).decode()
        folder = os.path.dirname(metadata) + "/licenses/"
        self.assertEqual(
            sorted(re.findall("^License-File: (.*)$", text, re.M)),
            sorted(n[len(folder) :] for n in names if n.startswith(folder)),
        )
        self.assertIn(folder + "LICENSE", names)
        for name in names:
            self.assertEqual(modes[name], 0o755 if "/lib/" in name else 0o644, name)
        if shutil.which("dpkg"):
            curl = [n for n in names if re.search(r"/lib/libcurl\b", n)]
            texts = [n for n in names if re.search(r"/licenses/libcurl[^/]*/copyright$", n)]
            self.assertEqual(bool(curl), bool(texts))

    def test_metadata(self):
        """What an index shows of the packages, and twine's opinion of it where that is installed."""
        wheels = glob.glob(os.path.join(WHEELS, "*.whl"))
        for path in wheels:
            with zipfile.ZipFile(path) as wheel:
                (metadata,) = [n for n in wheel.namelist() if n.endswith("/METADATA")]
                text = wheel.read(metadata).decode()
                self.assertTrue([n for n in wheel.namelist() if n.endswith("/py.typed")])
            fields, _, description = text.partition("\n\n")
            for field in ("Summary", "Author", "License-Expression", "Keywords", "Requires-Python"):
                self.assertRegex(fields, rf"(?m)^{field}: \S")
            for topic in ("Development Status", "Operating System", "Programming Language", "Typing"):
                self.assertIn(f"\nClassifier: {topic} :: ", fields)
            self.assertRegex(description, r"^# \S")
        with tempfile.TemporaryDirectory() as folder:
            checked = wheels + [os.path.join(folder, source_archive(folder))]
            twine = [sys.executable, "-m", "twine"]
            told = subprocess.run([*twine, "--version"], capture_output=True, text=True).stdout
            version = re.match(r"twine version (\d+)", told)
            if not version or int(version.group(1)) < 6:  # which knows metadata 2.4
                print("left out: twine was not asked about the metadata: there is none of version 6 (pip install twine)")
                return
            self.assertEqual(run(*twine, "--no-color", "check", "--strict", *checked).count("PASSED"), 3)

    def test_pip_makes_the_same_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            for bundled in (os.path.join(BUILD, "lib", "libtransfer_engine.so.0"), "none"):
                pip = ("-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, PACKAGE)
                run(PYTHON, *pip, TRANSFER_ENGINE_BUNDLE=bundled)
            without, name = sorted(os.listdir(folder), key=len)
            self.assertTrue(without.endswith("-py3-none-any.whl"))
            with zipfile.ZipFile(os.path.join(folder, without)) as made:
                self.assertFalse([n for n in made.namelist() if "/lib/" in n])
            with zipfile.ZipFile(os.path.join(folder, name)) as made:
                with zipfile.ZipFile(os.path.join(WHEELS, name)) as wheel:
                    self.assertIsNone(wheel.testzip())
                    for member in wheel.namelist():
                        self.assertEqual(made.read(member), wheel.read(member), member)

    def test_the_archive_of_the_sources(self):
        """It makes the wheel that the tree makes, and says what is missing where it cannot."""
        with tempfile.TemporaryDirectory() as folder:
            tree = source_tree(folder)
            for part in ("src", "include", "cmake"):
                there = {os.path.relpath(p, tree) for p in glob.glob(f"{tree}/{part}/**", recursive=True)}
                here = {os.path.relpath(p, SRC) for p in glob.glob(f"{SRC}/{part}/**", recursive=True)}
                self.assertEqual(there, here)
            pip = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, tree)
            library = os.path.join(BUILD, "lib", "libtransfer_engine.so.0")
            run(PYTHON, *pip, TRANSFER_ENGINE_BUNDLE=library)
            (made,) = glob.glob(os.path.join(folder, "*.whl"))
            with zipfile.ZipFile(made) as one:
                with zipfile.ZipFile(os.path.join(WHEELS, os.path.basename(made))) as other:
                    self.assertEqual(one.namelist(), other.namelist())
            stub = os.path.join(folder, "cmake")
            with open(stub, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\necho jansson is missing\nexit 1\n")
            os.chmod(stub, 0o755)
            program = f"import os; os.chdir({tree!r}); import build_backend; build_backend.build_wheel({folder!r})"
            for path, told in ((folder, "jansson is missing"), ("/nonexistent", "cmake is missing")):
                with self.assertRaisesRegex(AssertionError, told):
                    run(PYTHON, "-c", program, PATH=path, PYTHONPATH=tree)

    def test_the_archive_builds_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, site = source_tree(folder), os.path.join(folder, "site")
            run(PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, tree)
            (made,) = glob.glob(os.path.join(folder, "*.whl"))
            run(PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--target", site, made)
            library = os.path.join(site, "transfer_engine", "lib", "libtransfer_engine.so.0")
            self.assertEqual(run(PYTHON, "-c", MOVE, PYTHONPATH=site).strip(), str({library}))

    def test_the_tag_is_of_the_library(self):
        """Not of the machine that packs it."""
        import bundle

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lib.so")
            shutil.copy(os.path.join(BUILD, "lib", "libtransfer_engine.so.0"), path)
            for number, name in ((183, "aarch64"), (62, "x86_64")):
                with open(path, "r+b") as f:
                    f.seek(18)
                    f.write(number.to_bytes(2, sys.byteorder))
                self.assertEqual(bundle._machine(path), name)

    def test_without_a_library(self):
        """The package alone names every place it looked at, and takes the library it is told."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(
                os.path.join(PACKAGE, "transfer_engine"), os.path.join(folder, "transfer_engine")
            )
            program = "import transfer_engine as t; print(t._native.lib.path)"
            library = os.path.join(BUILD, "lib", "libtransfer_engine.so.0")
            for value, fine in ((library, True), ("/nowhere/lib.so", False), ("libm.so.6", False)):
                env = dict(environment(), PYTHONPATH=folder, TRANSFER_ENGINE_LIBRARY=value)
                done = subprocess.run(
                    [sys.executable, "-c", program], env=env, capture_output=True, text=True
                )
                if fine:
                    self.assertEqual(done.stdout.strip(), library)
                    continue
                self.assertIn("ImportError", done.stderr)
                self.assertIn(f"$TRANSFER_ENGINE_LIBRARY: {value}", done.stderr)
                self.assertIn("Install the wheel", done.stderr)

    def test_the_shim_refuses_company(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(
                os.path.join(PACKAGE, "shim", "mooncake"), os.path.join(folder, "mooncake")
            )
            suffix = importlib.machinery.EXTENSION_SUFFIXES[-1]
            with open(os.path.join(folder, "mooncake", "engine" + suffix), "wb"):
                pass
            env = dict(environment(), PYTHONPATH=folder)
            done = subprocess.run(
                [sys.executable, "-c", "import mooncake.engine"],
                env=env,
                capture_output=True,
                text=True,
            )
            self.assertIn("pip uninstall mooncake-transfer-engine", done.stderr)

    def test_the_overlay(self):
        """Beside another package `mooncake` its engine is ours if the variable says so, and nothing else."""
        program = (
            "import mooncake.store, mooncake.engine as e, transfer_engine as t\n"
            "print(mooncake.store.NAME, getattr(e, 'TransferEngine', None) is t.TransferEngine)"
        )
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "mooncake"))
            for name in ("__init__", "engine", "store"):
                with open(os.path.join(folder, "mooncake", name + ".py"), "w", encoding="ascii") as f:
                    f.write("NAME = 'theirs'\n")
            for value, ours in (("1", True), ("0", False), ("", False), (None, False)):
                variables = {} if value is None else {"TRANSFER_ENGINE_OVERLAY": value}
                told = run(PYTHON, "-c", program, PYTHONPATH=folder, **variables)
                self.assertEqual(told.split(), ["theirs", str(ours)], value)
            path = "import sys; print('transfer_engine_overlay' in sys.modules)"
            self.assertEqual(run(PYTHON, "-c", path).strip(), "False")

    def test_the_overlay_and_the_shim(self):
        """Both in one environment, where the shim alone would refuse."""
        program = "import mooncake.engine as e, transfer_engine as t; print(e.TransferEngine is t.TransferEngine)"
        self.assertEqual(run(PYTHON, "-c", program, TRANSFER_ENGINE_OVERLAY="1").strip(), "True")


def in_the_environment(name):
    """The outcome of one file of bindings/python/tests."""
    try:
        done = subprocess.run(
            [PYTHON, os.path.join(PACKAGE, "tests", name + ".py")],
            cwd=FOLDER,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
        )
    except subprocess.TimeoutExpired as e:
        return name, "not done after 1200 s", e.stdout or ""
    return name, done.returncode, done.stdout


def the_package():
    """The outcome of the tests of this file."""
    output = io.StringIO()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Package)
    result = unittest.TextTestRunner(output, verbosity=2).run(suite)
    return "the package", 0 if result.wasSuccessful() else 1, output.getvalue()


def main():
    for tool in ("patchelf", "readelf", "strip"):
        if not shutil.which(tool):
            print(f"test_python: {tool} is missing (scripts/deps.sh build test)")
            sys.exit(77)
    os.makedirs(WHEELS, exist_ok=True)
    install()
    found = sorted(
        os.path.basename(p)[:-3] for p in glob.glob(os.path.join(PACKAGE, "tests", "test_*.py"))
    )
    names = LONGEST_FIRST + [name for name in found if name not in LONGEST_FIRST]
    failed = []
    with ThreadPoolExecutor(2) as pool:
        outcomes = [pool.submit(the_package)] + [pool.submit(in_the_environment, n) for n in names]
        for outcome in outcomes:
            name, code, output = outcome.result()
            print(f"---- {name}: {code or 'ok'}\n{output}", flush=True)
            if code:
                failed.append(name)
    if failed:
        sys.exit(f"test_python: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
