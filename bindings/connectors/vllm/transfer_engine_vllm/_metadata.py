# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's half of the connector and those of the workers tell each other with each step, and once."""

from dataclasses import dataclass, field
from typing import List, Optional, Set, Tuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from ._protocol import Address, Prompt


@dataclass
class Save:
    """Blocks of a request that are full after this step; `first` is the place of the first one in the request."""

    key: str
    request: str
    prompt: Prompt
    first: int
    blocks: List[int]
    last: bool


@dataclass
class Receive:
    """Blocks that prefill is to write, `first` as in Save. `ranks` is None where the request does not name prefill."""

    key: str
    request: str
    prompt: Prompt
    first: int
    blocks: List[int]
    ranks: Optional[List[Address]]


@dataclass
class Metadata(KVConnectorMetadata):
    saves: List[Save] = field(default_factory=list)
    receives: List[Receive] = field(default_factory=list)
    stopped: List[Tuple[str, str]] = field(default_factory=list)  # keys of what prefill does not complete, and their requests
    released: List[Receive] = field(default_factory=list)  # what decode does not need
    preempted: Set[str] = field(default_factory=set)
    finished: Set[str] = field(default_factory=set)  # requests whose blocks wait until the workers say that they are sent


@dataclass
class Kept(KVConnectorWorkerMetadata):
    """Blocks that something may still be written to, which nobody is to have meanwhile, and of these what is free again.

    Each with the name of the engine that may write. What is freed was kept before, in this one or an earlier one.
    """

    kept: List[Tuple[str, List[int]]] = field(default_factory=list)
    freed: List[Tuple[str, List[int]]] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "Kept":
        assert isinstance(other, Kept)
        return Kept(self.kept + other.kept, self.freed + other.freed)


@dataclass
class Handshake(KVConnectorHandshakeMetadata):
    address: Address
