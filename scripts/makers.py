#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines of what a maker of devices takes, for the table of docs/gpu.md, and writes that.

usage: scripts/makers.py [PAGE]    (default: docs/gpu.md)
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "gpu.md")
BEGIN, END = "<!-- makers: rows of scripts/makers.py, by make docs -->\n", "<!-- makers: end -->\n"
PLAT, FACES = "src/plat", "tests/fabric/softgpu"
# A folder, a file, what it is where its name does not say so, and its headers.
FILES = (
    (PLAT, "mem_cuda.c", "", ("cuda.h", "cuda_table.h")),
    (PLAT, "cuda_scatter.c", "the kernel for small copies", ()),
    (PLAT, "mem_hip.c", "", ("hip.h",)),
    (PLAT, "mem_ascend.c", "", ("acl.h",)),
    (PLAT, "gpu_row.h", "what CUDA and HIP have alike", ()),
    (FACES, "softascend.c", "the face of a stand-in", ()),
)


def lines(folder, name):
    with open(os.path.join(ROOT, folder, name), encoding="utf-8") as f:
        return sum(1 for _ in f)


def row(folder, name, what, headers):
    """A maker's file by its name; what is elsewhere by its path."""
    shown = f"`{name if folder == PLAT else folder + '/' + name}`" + (f", {what}" if what else "")
    counts = ", ".join(str(lines(folder, header)) for header in headers)
    cells = (shown, str(lines(folder, name)), ", ".join(f"`{header}`" for header in headers), counts)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"


def table():
    return "| File | Lines | Its header | Lines |\n|---|---|---|---|\n" + "".join(row(*entry) for entry in FILES)


def filled(page):
    """The page with the rows as they are today."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"makers: the page has no lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + table() + END + after


def main(words):
    if words[:1] == ["--help"] or len(words) > 1:
        print(__doc__)
        return 0 if words[0] == "--help" else 2
    path = words[0] if words else PAGE
    with open(path, encoding="utf-8") as f:
        page = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(filled(page))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
