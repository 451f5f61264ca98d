# SPDX-License-Identifier: Apache-2.0
"""A connector for vLLM, by the class of Mooncake's engine. README.md tells how it is named to vLLM."""

from ._connector import TransferEngineConnector

__all__ = ["TransferEngineConnector"]
