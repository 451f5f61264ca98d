# SPDX-License-Identifier: Apache-2.0
"""Blocks of a KV cache, arrays of numpy, go from the process that has read a prompt to the one that answers.

The blocks of all layers are one batch with a deadline. The message behind it says where they are.
"""
import multiprocessing
import sys
import time

try:
    import numpy as np
except ImportError:
    print("arrays.py: numpy is missing (package python3-numpy)", file=sys.stderr)
    sys.exit(77)

import transfer_engine as te

LAYERS, BLOCKS = 8, 64
SHAPE = (LAYERS, BLOCKS, 2, 16, 8, 64)  # keys and values, tokens, heads, width
LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other
SECONDS = 60


def decode(pipe):
    """Offers its cache, and returns the blocks that the message of the peer names."""
    cache = np.zeros(SHAPE, dtype=np.float16)
    with te.Engine(options=LOOPBACK) as engine, engine.register(cache, access=te.Access.WRITE) as region:
        pipe.send((engine.name, region.address))
        end = time.monotonic() + SECONDS
        while not (notices := engine.notifications()):
            if time.monotonic() > end:
                sys.exit("decode: no message came")
            time.sleep(0.001)
    request, blocks = notices[0]
    pipe.send((request, cache[:, [int(b) for b in blocks.split()]]))


def prefill(pipe):
    """Writes three blocks of each layer to the places that the peer has free; whether all came."""
    cache = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32).astype(np.float16)
    filled, free = [5, 3, 60], [0, 1, 2]
    name, there = pipe.recv()
    size = cache[0, 0].nbytes
    with te.Engine(options=LOOPBACK) as engine, engine.register(cache), engine.open(name) as segment:
        with segment.start_write(
            [cache[layer, block] for layer in range(LAYERS) for block in filled],
            [there + (layer * BLOCKS + block) * size for layer in range(LAYERS) for block in free],
            timeout=SECONDS,
            notify=("request 17", " ".join(map(str, free))),
        ) as batch:
            moved = batch.result()
        request, came = pipe.recv()
    same = np.array_equal(came, cache[:, filled])
    print(f"{request}: {moved} bytes in {LAYERS * len(filled)} blocks, {'all' if same else 'not'} as they were sent")
    return same


def main():
    spawn = multiprocessing.get_context("spawn")  # an engine is not for forked children
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=decode, args=(theirs,), daemon=True)
    child.start()
    theirs.close()  # so that recv() ends if the child does
    same = prefill(ours)
    child.join()
    return 0 if same and child.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
