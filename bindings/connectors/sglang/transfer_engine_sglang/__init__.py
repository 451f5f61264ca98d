# SPDX-License-Identifier: Apache-2.0
"""A transfer backend of SGLang's prefill and decode servers, by transfer-engine. README.md tells how it is chosen."""

from importlib import metadata

_SGLANG = "0.5.23"  # whose interface is that of interface.json
try:
    _found = metadata.version("sglang")
except metadata.PackageNotFoundError:  # run from its sources: nothing is known of it
    _found = _SGLANG
if _found.partition("+")[0] != _SGLANG:
    raise ImportError(
        f"transfer-engine-sglang is written for sglang {_SGLANG}, and {_found} is installed: pip install sglang=={_SGLANG}"
    )

__all__ = ["register"]


def register() -> None:
    """Adds the backend `transfer_engine`. SGLang calls it in each of its processes: it is an entry point of sglang.srt.plugins."""
    from ._register import add  # pylint: disable=import-outside-toplevel

    add()
