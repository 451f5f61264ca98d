# SPDX-License-Identifier: Apache-2.0
"""Pages of a KV cache go layer by layer from one engine to another, whose cache lies page by page.

The numbers of the pages are arrays, which the library reads where they are; arrays of numpy and tensors do
as well. Two engines of this process stand for two.
"""
import sys
from array import array

import transfer_engine as te

LAYERS, PAGES, PAGE = 8, 64, 4096
LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other


def main():
    ours = bytearray((i * 7 + i // PAGE) % 256 for i in range(LAYERS * PAGES * PAGE))
    theirs = bytearray(len(ours))
    filled, free = array("I", [5, 3, 4, 60, 17]), array("I", [0, 1, 2, 7, 63])
    with te.Engine(options=LOOPBACK) as prefill, te.Engine(options=LOOPBACK) as decode:
        here = prefill.register(ours).address
        there = decode.register(theirs).address
        segment = prefill.open(decode.name)
        layers = [
            segment.start_pages(
                te.Opcode.WRITE,
                te.Pages(here + layer * PAGES * PAGE, PAGES, PAGE, filled),
                te.Pages(there + layer * PAGE, PAGES, LAYERS * PAGE, free),
                PAGE,
                timeout=60,
            )
            for layer in range(LAYERS)
        ]
        moved = sum(batch.result() for batch in layers)
    wrong = 0
    for layer in range(LAYERS):
        for i, k in zip(filled, free):
            to, at = (k * LAYERS + layer) * PAGE, (layer * PAGES + i) * PAGE
            wrong += theirs[to : to + PAGE] != ours[at : at + PAGE]
    print(f"{moved} bytes in {LAYERS} requests, {wrong} of {LAYERS * len(filled)} pages are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
