# SPDX-License-Identifier: Apache-2.0
"""What Mooncake's module of this name has, of the package transfer_engine."""

from transfer_engine.mooncake import *
from transfer_engine.mooncake import __all__ as __all__
