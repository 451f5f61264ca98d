# SPDX-License-Identifier: Apache-2.0
"""What all servers of the test import, once: SGLang takes minutes for that on a machine that is busy."""
import logging
import os
import warnings

warnings.filterwarnings("ignore")
WHY = ""
if os.environ.get("TE_TEST_SGLANG_PRELOAD"):
    try:
        import sglang.srt.disaggregation.decode  # noqa: F401
        import sglang.srt.managers.disagg_service  # noqa: F401
    except ImportError as e:
        WHY = str(e)


def ready(pipe):
    pipe.send(WHY)
