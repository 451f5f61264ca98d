# SPDX-License-Identifier: Apache-2.0
"""Prints the NIC priority matrix of this host, with the flags of Mooncake's module of this name."""

import argparse
import os
import sys
from typing import List, Optional

import transfer_engine

_CUSTOM = "MC_CUSTOM_TOPO_JSON"


def _arguments(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="transfer_engine_topology_dump", description="Prints the NIC priority matrix of this host."
    )
    parser.add_argument("--device-name", default="", help="only these NICs, separated by commas")
    parser.add_argument(
        "--backend", choices=("auto", "te", "tent"), default="auto", help="tent is not in this package"
    )
    parser.add_argument(
        "--use-custom-topo", action="store_true", help=f"the matrix of the file that {_CUSTOM} names"
    )
    parser.add_argument("--custom-topo-json", metavar="PATH", help="the matrix of this file")
    found = parser.parse_args(argv)
    if found.backend == "tent":
        parser.error("this package has no TENT: --backend te is what there is")
    return found


def main(argv: Optional[List[str]] = None) -> int:
    """Prints the matrix; 1 if there is none."""
    arguments = _arguments(argv)
    custom = arguments.custom_topo_json
    if not custom and arguments.use_custom_topo:
        custom = os.environ.get(_CUSTOM)
    if custom and not os.access(custom, os.R_OK):
        print(f"transfer_engine_topology_dump: {custom} cannot be read", file=sys.stderr)
        return 1
    options = {_CUSTOM: custom or ""}
    if arguments.device_name:
        options["MC_TE_FILTERS"] = arguments.device_name
    try:
        with transfer_engine.Engine(name="127.0.0.1", options=options) as engine:
            topology = engine.topology()
    except transfer_engine.TransferError as e:
        print(f"transfer_engine_topology_dump: {e}", file=sys.stderr)
        return 1
    print(f"Local topology [te/{f'custom ({custom})' if custom else 'discover'}]: {topology}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
