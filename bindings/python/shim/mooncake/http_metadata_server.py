# SPDX-License-Identifier: Apache-2.0
"""te_metad, the HTTP metadata server, with the flags of Mooncake's module of this name."""

import argparse
import os
import shutil
import sys
from typing import List, Optional

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _program() -> Optional[str]:
    """te_metad of this interpreter's environment, else that of PATH."""
    beside = os.path.join(sys.prefix, "bin")
    return shutil.which("te_metad", path=beside) or shutil.which("te_metad")


def main(argv: Optional[List[str]] = None) -> int:
    """Becomes te_metad; returns only if it cannot."""
    parser = argparse.ArgumentParser(
        prog="mooncake_http_metadata_server",
        description="Serves /metadata, as te_metad, which has more flags: te_metad --help.",
    )
    parser.add_argument("--port", type=int, default=8080, help="where to listen (8080)")
    parser.add_argument(
        "--host",
        default="0.0.0.0",
        help="the address to listen on (0.0.0.0, all: whoever reaches it can read and change everything)",
    )
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="INFO", help="from WARNING on, it is quiet (INFO)"
    )
    found = parser.parse_args(argv)
    program = _program()
    if program is None:
        print(
            "mooncake_http_metadata_server: te_metad is not in PATH: install the package"
            " transfer-engine-tools, or make install",
            file=sys.stderr,
        )
        return 1
    host = f"[{found.host}]" if ":" in found.host else found.host
    words = [program, f"--addr={host}:{found.port}"]
    if _LEVELS.index(found.log_level) >= _LEVELS.index("WARNING"):
        words.append("--quiet")
    sys.stdout.flush()
    try:
        os.execv(program, words)
    except OSError as e:
        print(f"mooncake_http_metadata_server: {program}: {e.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
