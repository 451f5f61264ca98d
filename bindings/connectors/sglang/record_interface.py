#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""record_interface.py WHEEL_OR_FOLDER: the names of SGLang's interface that the backend is written for, as JSON.

Of the functions, classes and methods that the table beside it (interface.json) names already it tells the parameters,
fields and bases, of the version at hand; nothing is imported. tests/bindings/test_connector_sglang.py compares the table
with SGLang.
"""
import ast
import json
import os
import sys

from interface_source import Source, parameters

HERE = os.path.dirname(os.path.abspath(__file__))


def functions(node, names):
    """Those of a module or a class; None where there is none."""
    found = {item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return {name: parameters(found[name].args) if name in found else None for name in names}


def abstract(node):
    return [item.name for item in node.body if isinstance(item, ast.FunctionDef)
            and "abstractmethod" in [ast.unparse(mark).split(".")[-1] for mark in item.decorator_list]]


def fields(node, names):
    """What is assigned or declared in a class or in a module: the value where it is written, else the declared type."""
    told = dict.fromkeys(names)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id in told:
            told[item.target.id] = ast.unparse(item.annotation)
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id in told:
            told[item.targets[0].id] = ast.unparse(item.value)
    return told


def record(source, tried):
    """The same table of another version."""
    modules = {}
    for module, parts in tried["modules"].items():
        path = module.replace(".", "/")
        try:
            tree = ast.parse(source.read(path + ".py"))
        except (KeyError, FileNotFoundError):
            tree = ast.parse(source.read(path + "/__init__.py"))
        found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        classes = {name: {"bases": [ast.unparse(base) for base in found[name].bases], "abstract": abstract(found[name]),
                          "methods": functions(found[name], facts["methods"]), "fields": fields(found[name], facts["fields"])}
                   for name, facts in parts["classes"].items()}
        modules[module] = {"functions": functions(tree, parts["functions"]), "fields": fields(tree, parts["fields"]),
                           "classes": classes}
    return {"version": source.version("sglang"), "modules": modules}


def table():
    """Of the version that the backend was tried with."""
    with open(os.path.join(HERE, "interface.json"), encoding="utf-8") as f:
        return json.load(f)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.splitlines()[0])
    print(json.dumps(record(Source(sys.argv[1]), table()), indent=1))


if __name__ == "__main__":
    main()
