# SPDX-License-Identifier: Apache-2.0
"""How SGLang gets to know the backend: a name for its options, a value of its enumeration, and four classes."""

from typing import Any, Callable, Optional

from sglang.srt.arg_groups import choices
from sglang.srt.disaggregation import utils
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

NAME = "transfer_engine"


def _member() -> Any:
    """What TransferBackend("transfer_engine") gives. An enumeration takes no members later, but can be asked for what it lacks."""
    member = object.__new__(utils.TransferBackend)
    member._name_, member._value_ = NAME.upper(), NAME
    return member


def _kv_class(theirs: Callable[..., Any], transfer_backend: Any, class_type: Any) -> Optional[type]:
    """Around SGLang's get_kv_class(). KVArgs are the same for all backends."""
    if getattr(transfer_backend, "value", None) != NAME or class_type is utils.KVClassType.KVARGS:
        found: Optional[type] = theirs(transfer_backend, class_type)
        return found
    from . import _conn  # pylint: disable=import-outside-toplevel

    return {
        utils.KVClassType.MANAGER: _conn.TransferEngineKVManager,
        utils.KVClassType.SENDER: _conn.TransferEngineKVSender,
        utils.KVClassType.RECEIVER: _conn.TransferEngineKVReceiver,
        utils.KVClassType.BOOTSTRAP_SERVER: _conn.TransferEngineKVBootstrapServer,
    }[class_type]


def add() -> None:
    """Once: what is there already stays as it is."""
    if NAME in choices.DISAGG_TRANSFER_BACKEND_CHOICES:
        return
    backend, others = _member(), utils.TransferBackend._missing_
    utils.TransferBackend._missing_ = classmethod(lambda _, value: backend if value == NAME else others(value))
    HookRegistry.register("sglang.srt.disaggregation.utils.get_kv_class", _kv_class, HookType.AROUND)
    choices.add_disagg_transfer_backend_choices([NAME])
