#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""record_interface.py WHEEL_OR_FOLDER: the names of vLLM's interface that the connector is written for, as JSON.

Of the modules and classes that the table beside it (interface.json) names already it tells the names of methods,
parameters and fields, of the version at hand; nothing is imported. tests/bindings/test_connector_vllm*.py compare our
class with the table, and the table with vLLM.
"""
import ast
import json
import os
import sys

from interface_source import Source, parameters

HERE = os.path.dirname(os.path.abspath(__file__))


def facts(node):
    """Of a class: bases, methods that others call, with their parameters, fields, and the values that are plain."""
    told = {"bases": [ast.unparse(base) for base in node.bases], "methods": {}, "abstract": [], "fields": {}}
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and (item.name == "__init__" or not item.name.startswith("_")):
            marks = [ast.unparse(d).split(".")[-1] for d in item.decorator_list]
            told["methods"][item.name] = ["@property"] if "property" in marks else parameters(item.args)
            told["abstract"] += [item.name] if "abstractmethod" in marks else []
        elif isinstance(item, ast.AnnAssign):
            told["fields"][item.target.id] = None
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
            told["fields"][item.targets[0].id] = item.value.value
        elif isinstance(item, ast.Assign) and ast.unparse(item.value) == "enum.auto()":
            told["fields"][item.targets[0].id] = item.targets[0].id
    return told


def record(source, tried):
    """The same table of another version."""
    modules = {}
    for module, classes in tried["modules"].items():
        tree = ast.parse(source.read(module.replace(".", "/") + ".py"))
        found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        modules[module] = {name: facts(found[name]) for name in classes}
    return {"version": source.version("vllm"), "modules": modules}


def table():
    """Of the version that the connector was tried with."""
    with open(os.path.join(HERE, "interface.json"), encoding="utf-8") as f:
        return json.load(f)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.splitlines()[0])
    print(json.dumps(record(Source(sys.argv[1]), table()), indent=1))


if __name__ == "__main__":
    main()
