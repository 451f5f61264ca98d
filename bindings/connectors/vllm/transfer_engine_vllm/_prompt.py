# SPDX-License-Identifier: Apache-2.0
"""What tells one prompt from another: both servers have to compute the same."""

import hashlib
from array import array
from typing import Any

from ._protocol import Prompt


def prompt(request: Any) -> Prompt:
    """Of vLLM's request: its tokens and its adapter (LoRA). Media and embeddings have no names that both servers give alike."""
    known = hashlib.sha256(array("q", request.prompt_token_ids or ()).tobytes())
    known.update(getattr(request.lora_request, "lora_name", "").encode())
    return Prompt(request.num_prompt_tokens, known.hexdigest())
