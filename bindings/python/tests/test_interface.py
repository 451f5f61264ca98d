# SPDX-License-Identifier: Apache-2.0
"""What the package says of itself: docstrings, types, and what its objects print as."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import unittest

import transfer_engine as te
from support import HANG_S, HOST
from test_readme import programs
from transfer_engine import mooncake


def public(members):
    """Those of a dict that have no underscore in front."""
    return [(name, value) for name, value in members.items() if not name.startswith("_")]


def documented():
    """(name, object) of all that has a docstring to have."""
    for found in pkgutil.walk_packages(te.__path__, "transfer_engine."):
        module = importlib.import_module(found.name)
        yield module.__name__, module
        for name, value in public(vars(module)):
            ours = getattr(value, "__module__", "").startswith("transfer_engine")
            if not ours or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            yield f"{module.__name__}.{name}", value
            for method, member in public(vars(value)) if inspect.isclass(value) else ():
                if inspect.isroutine(member) or isinstance(member, (property, classmethod)):
                    yield f"{module.__name__}.{name}.{method}", member


class Docstrings(unittest.TestCase):
    def test_everything_public_has_one(self):
        missing, n = [], 0
        for name, thing in documented():
            n += 1
            text = getattr(thing, "__func__", thing).__doc__
            # A NamedTuple that has none gets one of its fields.
            if not text or re.match(r"\w+\(\w+(, \w+)*\)$", text):
                missing.append(name)
        self.assertEqual(missing, [])
        self.assertGreater(n, 150)
        for name in te.__all__ + mooncake.__all__:
            self.assertTrue(hasattr(te, name) or hasattr(mooncake, name), name)


class Reprs(unittest.TestCase):
    def test_of_each_class_before_and_after(self):
        engine = te.Engine(name=HOST)
        name = engine.name
        region = engine.register(bytearray(100))
        segment = engine.open(name)
        batch = segment.start_write([region.address], [region.address + 50], [10])
        batch.wait()
        prepared = segment.prepare([region.address] * 2, [region.address] * 2, [5, 6])
        counter = engine.counter("a")
        for thing, there, closed in (
            (batch, "<Batch requests=1 COMPLETED>", "<Batch requests=1 closed>"),
            (prepared, "<Prepared pieces=2>", "<Prepared pieces=2 closed>"),
            (segment.adder("a"), "<Adder 'a'>", "<Adder 'a' closed>"),
            (counter, "<Counter 'a' value=0>", "<Counter 'a' closed>"),
            (segment, f"<Segment '{name}'>", f"<Segment '{name}' closed>"),
            (region, *[f"<Region {region.address:#x} + 100{s}>" for s in ("", " closed")]),
            (engine, f"<Engine '{name}'>", "<Engine closed>"),
        ):
            self.assertEqual(repr(thing), there)
            thing.close()
            self.assertEqual(repr(thing), closed)

    def test_of_what_an_engine_has_that_is_closed(self):
        engine = te.Engine(name=HOST)
        region, segment = engine.register(bytearray(100)), engine.open(engine.name)
        batch = segment.start_write([region.address], [region.address + 50], [10])
        prepared = segment.prepare([region.address], [region.address], [5])
        counter, adder = engine.counter("a"), segment.adder("a")
        engine.close()
        for thing in (engine, region, segment, batch, prepared, counter, adder):
            self.assertRegex(repr(thing), r" closed>$")

    def test_of_an_engine_that_was_not_made(self):
        engine = te.Engine.__new__(te.Engine)
        with self.assertRaises(ValueError):
            engine.__init__(name="a\0b")
        self.assertEqual(repr(engine), "<Engine closed>")

    def test_of_mooncakes_classes(self):
        engine = te.TransferEngine()
        self.assertEqual(repr(engine), "<TransferEngine not initialized>")
        self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""), 0)
        name = f"{HOST}:{engine.get_rpc_port()}"
        self.assertEqual(repr(engine), f"<TransferEngine <Engine '{name}'>>")
        inner = engine.get_engine()
        self.assertEqual(repr(inner), f"<InnerTransferEngine of <Engine '{name}'>>")
        inner.engine.close()
        self.assertEqual(repr(engine), "<TransferEngine <Engine closed>>")
        self.assertEqual(repr(te.TransferNotify("a", "b")), "TransferNotify('a', 'b')")


# The types of torch are of no concern here, and take minutes to read.
MYPY = """
[mypy]
strict = True
[mypy-numpy.*]
ignore_missing_imports = True
[mypy-torch.*]
follow_imports = skip
ignore_missing_imports = True
"""


def mypy(*paths):
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "mypy.ini")
        with open(config, "w", encoding="ascii") as f:
            f.write(MYPY)
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", folder, *paths],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_S,
        )
    return done.returncode, done.stdout


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is missing (pip install mypy)")
class Types(unittest.TestCase):
    def test_the_package_and_the_programs_of_the_readme(self):
        found = programs()
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, f"program_{i}.py") for i in range(len(found))]
            for path, program in zip(paths, found):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(program)
            code, said = mypy(os.path.dirname(te.__file__), *paths)
            self.assertEqual(code, 0, said)
            with open(paths[0], "a", encoding="utf-8") as f:
                f.write("te.Engine(port='1')\n")
            code, said = mypy(paths[0])
            self.assertEqual(code, 1, said)
            self.assertIn('"port"', said)


if __name__ == "__main__":
    unittest.main()
