# SPDX-License-Identifier: Apache-2.0
"""A connector for vLLM, by the class of Mooncake's engine. README.md tells how it is named to vLLM."""

from importlib import metadata

_VLLM = "0.33.0"  # whose interface is that of interface.json
try:
    _found = metadata.version("vllm")
except metadata.PackageNotFoundError:  # run from its sources: nothing is known of it
    _found = _VLLM
if _found.partition("+")[0] != _VLLM:
    raise ImportError(f"transfer-engine-vllm is written for vllm {_VLLM}, and {_found} is installed: pip install vllm=={_VLLM}")

from ._connector import TransferEngineConnector  # noqa: E402  # pylint: disable=wrong-import-position

__all__ = ["TransferEngineConnector"]
