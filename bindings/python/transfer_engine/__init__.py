# SPDX-License-Identifier: Apache-2.0
"""Zero-copy transfers between the memory of processes and hosts.

Engine and what it gives are the interface of this package; TransferEngine is Mooncake's, for
programs that were written for that.
"""

from ._batch import Batch, Opcode, Pages, Paths, Prepared, TaskPath, TaskStatus, TransferState
from ._counter import Adder, Counter
from ._engine import Access, Engine, Notice, RawNotice, Segment, Warmed
from ._errors import (
    EngineClosed,
    FatalError,
    NotRegistered,
    PathError,
    RequestError,
    TransferCanceled,
    TransferError,
    TransferTimeout,
    Unsafe,
)
from ._lease import Lease
from ._native import VERSION as __version__
from ._region import Region
from .mooncake import TransferEngine, TransferNotify, TransferOpcode

__all__ = [
    "Access",
    "Adder",
    "Batch",
    "Counter",
    "Engine",
    "EngineClosed",
    "FatalError",
    "Lease",
    "NotRegistered",
    "Notice",
    "Opcode",
    "Pages",
    "Paths",
    "PathError",
    "Prepared",
    "RawNotice",
    "Region",
    "RequestError",
    "Segment",
    "TaskPath",
    "TaskStatus",
    "TransferCanceled",
    "TransferEngine",
    "TransferError",
    "TransferNotify",
    "TransferOpcode",
    "TransferState",
    "TransferTimeout",
    "Warmed",
    "Unsafe",
    "__version__",
]
