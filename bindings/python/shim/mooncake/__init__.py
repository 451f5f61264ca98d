# SPDX-License-Identifier: Apache-2.0
"""The name `mooncake.engine` for the engine of the package transfer_engine."""

import importlib.machinery
import os
import sys


def _refuse_company() -> None:
    """Mooncake's own package would win over this one for its engine, half and half."""
    if "transfer_engine_overlay" in sys.modules:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        other = os.path.join(here, "engine" + suffix)
        if os.path.exists(other):
            raise ImportError(
                f"{other} is of Mooncake's own package, which cannot be installed beside"
                " transfer-engine-mooncake. Uninstall both (pip uninstall mooncake-transfer-engine"
                " mooncake-transfer-engine-non-cuda transfer-engine-mooncake), then install one; or"
                " install Mooncake's and transfer-engine, and set TRANSFER_ENGINE_OVERLAY=1."
            )


_refuse_company()
