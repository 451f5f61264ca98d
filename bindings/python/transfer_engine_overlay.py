# SPDX-License-Identifier: Apache-2.0
"""Gives Mooncake's own package the engine of this one: `mooncake.engine` is ours, all else is theirs.

The file transfer_engine_overlay.pth beside this one imports it when the interpreter starts and
TRANSFER_ENGINE_OVERLAY=1 is in the environment. Nothing of Mooncake's is changed or loaded by that.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Optional, Sequence

_NAME = "mooncake.engine"


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked before the folders are looked at, so that it comes before Mooncake's file of that name."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != _NAME:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="transfer_engine.mooncake")

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module("transfer_engine.mooncake")
        names = ours.__all__
        vars(module).update({name: getattr(ours, name) for name in names}, __all__=list(names))


if _NAME in sys.modules:
    raise ImportError(
        f"{_NAME} was imported before transfer_engine_overlay; set TRANSFER_ENGINE_OVERLAY=1 before"
        " the interpreter starts, or import transfer_engine_overlay first"
    )
sys.meta_path.insert(0, Finder())
