#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a run of scripts/demo.sh, for the picture docs/pictures/demo.svg.

Usage: scripts/demo_record.py [FILE]     (FILE is docs/pictures/demo.csv unless another is named)

A row of FILE is a line that the demo has printed: the seconds since it began, a comma, and the line.
"""
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main(words):
    if words[:1] == ["--help"] or len(words) > 1:
        print(__doc__)
        return 0 if words[0] == "--help" else 2
    rows, began = [(0, "$ make demo")], time.monotonic()
    with subprocess.Popen([os.path.join(ROOT, "scripts", "demo.sh")], stdout=subprocess.PIPE, text=True) as demo:
        rows += [(time.monotonic() - began, line.rstrip()) for line in demo.stdout]
    if demo.returncode:
        return demo.returncode
    with open(words[0] if words else os.path.join(ROOT, "docs", "pictures", "demo.csv"), "w", encoding="ascii") as f:
        f.write("# scripts/demo_record.py: seconds, line\n")
        f.writelines(f"{seconds:.2f},{line}\n" for seconds, line in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
