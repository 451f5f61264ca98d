# SPDX-License-Identifier: Apache-2.0
"""Modules by the names of vLLM's, with the classes that the connector imports.

They are made of the table beside the connector. Where the package is at hand, the module of the interface is its
own, and what that imports and the machine lacks is empty.
"""
import abc
import dataclasses
import enum
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import subprocess
import sys
import types
import zipfile

import te_proc as te

CONNECTOR = os.path.join(te.SRC, "bindings", "connectors", "vllm")
sys.path.append(CONNECTOR)
import record_interface  # noqa: E402

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"


class Empty(type):
    """A class of which whatever is asked is None."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Anything(types.ModuleType):
    """Whatever is asked of it is an empty class, no more than a name in an annotation."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Empty(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
        setattr(self, name, made)
        return made


class Lacking(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nobody else does, below those packages."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        if module.__name__ == "vllm.logger":
            module.init_logger = logging.getLogger


def made_class(name, facts, known):
    """A class with those methods, which do nothing, abstract where they are; an Enum or a record likewise."""
    values = {field: value for field, value in facts["fields"].items() if value is not None}
    if facts["bases"] and facts["bases"][-1].endswith("Enum"):
        return enum.Enum(name, values)
    if not facts["bases"] and facts["fields"] and not values:
        return dataclasses.make_dataclass(name, [(field, object, None) for field in facts["fields"]])
    bases = tuple(known[base] for base in facts["bases"] if base in known) or (abc.ABC,)
    body = dict(values)
    for method in facts["methods"]:
        def nothing(self, *_, **__):
            return None
        body[method] = abc.abstractmethod(nothing) if method in facts["abstract"] else nothing
    return type(name, bases, body)


def install(path=None):
    """Puts the modules of the table where imports find them; that of the base class from vLLM in `path`, if any."""
    sys.meta_path.append(Lacking("vllm", *(["torch"] if path else [])))
    for name, classes in record_interface.table()["modules"].items():
        module, made = types.ModuleType(name), {}
        sys.modules[name] = module
        if path and name == BASE:
            exec(compile(record_interface.Source(path).read(name.replace(".", "/") + ".py"), name, "exec"), vars(module))
            continue
        for cls, facts in classes.items():
            made[cls] = made_class(cls, facts, made)
        vars(module).update(made)
    sys.path[:0] = [CONNECTOR, os.path.join(te.SRC, "bindings", "python")]


def found():
    """Where vLLM is: what TE_TEST_VLLM names, a wheel or a folder, or where it is installed."""
    path = os.environ.get("TE_TEST_VLLM")
    if not path:
        spec = importlib.util.find_spec("vllm")
        path = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else None
    if not path:
        te.skip("vllm is not installed, and TE_TEST_VLLM names no wheel of it")
    here, tried = record_interface.Source(path).version("vllm"), record_interface.table()["version"]
    if here not in (None, tried):
        te.skip(f"vllm {here} is here; the connector was tried with {tried}")
    return path


def check_wheel(test):
    """The wheel has all that the package's folder has, and requires the version that the table is of."""
    program = "import sys, build_backend; print(build_backend.build_wheel(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", program, te.Workdir.get()], cwd=CONNECTOR, check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": CONNECTOR})
    with zipfile.ZipFile(os.path.join(te.Workdir.get(), made.stdout.strip())) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("transfer_engine_vllm/")]
        metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()
    folder = os.path.join(CONNECTOR, "transfer_engine_vllm")
    test.assertEqual(sorted(os.path.basename(name) for name in names),
                     sorted(name for name in os.listdir(folder) if name.endswith((".py", ".typed"))))
    test.assertIn("Classifier: Typing :: Typed\n", metadata)
    test.assertIn(f"Requires-Dist: vllm=={record_interface.table()['version']}\n", metadata)
    test.assertRegex(metadata, r"Requires-Dist: transfer-engine==[\d.]+\n")


def serve(pipe, kind):
    """Does what comes through a pipe, until its other end is gone: makes servers, has them work, and shuts them."""
    server = None
    while True:
        try:
            method, words, named = pipe.recv()
        except EOFError:
            return
        try:
            if method == "make":
                server, answer = kind(**named), None
            elif method == "shut":
                server, answer = server and server.close(), None
            else:
                answer = getattr(server, method)(*words, **named)
            pipe.send((True, answer))
        except Exception as e:  # pylint: disable=broad-except
            pipe.send((False, f"{method}: {e!r}"))
            raise


def parameters(function):
    """As record_interface.py has them."""
    kinds, names = inspect.Parameter, []
    for name, p in inspect.signature(function).parameters.items():
        if p.kind is kinds.KEYWORD_ONLY and not any(n.startswith("*") for n in names):
            names.append("*")
        mark = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        names.append(mark + name + ("" if p.default is kinds.empty else "="))
    return names


def differences(cls, facts):
    """What a caller by those facts would miss or get wrong in our class."""
    told = [f"{name} is abstract" for name in sorted(getattr(cls, "__abstractmethods__", ()))]
    told += [f"{name} is missing" for name in facts["abstract"] if name not in vars(cls)]
    for name, item in vars(cls).items():
        if name.startswith("_") and name != "__init__":
            continue
        theirs = facts["methods"].get(name)
        function = getattr(item, "__func__", item)
        if isinstance(item, property) or not callable(function):
            told += [] if theirs == ["@property"] or name in facts["fields"] else [f"{name} is not in the interface"]
        elif theirs is None:
            told.append(f"{name} is not in the interface")
        elif parameters(function) != theirs:
            told.append(f"{name}{parameters(function)} is called as {name}{theirs}")
    return told
