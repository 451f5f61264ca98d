#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/pictures/topology.svg: what te_info --topology --svg says of the host that topology.json describes.

Usage: scripts/topology.py [FILE]     (FILE is docs/pictures/topology.svg unless another is named; TE_BIN names
                                       the folder of the tools)

The host is a folder laid out as /sys, with two NUMA nodes and the NICs of topology.json; the matrix there stands
in for what discovery finds on a host with such GPUs.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURES = os.path.join(ROOT, "docs", "pictures")


def write(root, path, text):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="ascii") as f:
        f.write(text + "\n")


def build(root, host):
    """The host, and the variables by which te_info finds it."""
    for node, distances in enumerate(("10 21", "21 10")):
        write(root, f"devices/system/node/node{node}/distance", distances)
    os.makedirs(os.path.join(root, "dev", "infiniband"))
    for number, (name, nic) in enumerate(host["nics"].items()):
        port = f"class/infiniband/{name}/ports/1"
        write(root, f"class/infiniband/{name}/device/numa_node", str(nic["numa"]))
        write(root, f"{port}/state", nic["state"])
        write(root, f"{port}/rate", "400 Gb/sec (4X NDR)")
        write(root, f"{port}/link_layer", "InfiniBand")
        write(root, f"{port}/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001")
        write(root, f"class/infiniband_verbs/uverbs{number}/ibdev", name)
        os.symlink("/dev/null", os.path.join(root, f"dev/infiniband/uverbs{number}"))
    write(root, "matrix.json", json.dumps(host["matrix"]))
    return {"TE_DEV_PATH": os.path.join(root, "dev"), "MC_CUSTOM_TOPO_JSON": os.path.join(root, "matrix.json"),
            "TE_BIND": "127.0.0.1"}


def draw():
    with open(os.path.join(PICTURES, "topology.json"), encoding="ascii") as f:
        host = json.load(f)
    tool = os.path.join(os.environ.get("TE_BIN", os.path.join(ROOT, "build", "bin")), "te_info")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "TE_"))}
    with tempfile.TemporaryDirectory(prefix="te-topology-") as root:
        env = {**plain, **build(root, host)}
        command = [tool, "--topology", "--svg", f"--sysfs={root}"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"topology.py: te_info ended with {done.returncode}: {done.stderr}")
        return done.stdout


def main(words):
    if words[:1] == ["--help"] or len(words) > 1:
        print(__doc__)
        return 0 if words[0] == "--help" else 2
    picture = draw()
    with open(words[0] if words else os.path.join(PICTURES, "topology.svg"), "w", encoding="ascii") as f:
        f.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
