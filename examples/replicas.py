# SPDX-License-Identifier: Apache-2.0
"""Weights go from one process to eight replicas, each a process that reads them when it starts.

The source does nothing meanwhile but keep its memory. It tells the replicas its name, and where each array is.
"""
import multiprocessing
import sys
import time
import zlib

try:
    import numpy as np
except ImportError:
    print("replicas.py: numpy is missing (package python3-numpy)", file=sys.stderr)
    sys.exit(77)

import transfer_engine as te

REPLICAS, SECONDS = 8, 120
SHAPES = {"embedding": (4096, 512), "attention": (8, 512, 2048), "output": (512, 4096)}
LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other


def replica(name, where, answers):
    """Reads all arrays as one batch; answers with how long that took, and the checksums of what came."""
    arrays = {key: np.empty(shape, dtype=np.float32) for key, shape in SHAPES.items()}
    with te.Engine(options=LOOPBACK) as engine:
        engine.register_many(list(arrays.values()))
        with engine.open(name) as segment:
            began = time.monotonic()
            with segment.start_read(
                list(arrays.values()), [where[key] for key in arrays], timeout=SECONDS
            ) as batch:
                batch.result()
            took = time.monotonic() - began
    answers.put((took, {key: zlib.crc32(array) for key, array in arrays.items()}))


def main():
    random = np.random.default_rng(1)
    weights = {key: random.standard_normal(shape, dtype=np.float32) for key, shape in SHAPES.items()}
    sums = {key: zlib.crc32(array) for key, array in weights.items()}
    size = sum(array.nbytes for array in weights.values())
    spawn = multiprocessing.get_context("spawn")  # an engine is not for forked children
    answers = spawn.Queue()
    with te.Engine(options=LOOPBACK) as engine:
        regions = engine.register_many(list(weights.values()), access=te.Access.READ)
        where = {key: region.address for key, region in zip(weights, regions)}
        processes = [
            spawn.Process(target=replica, args=(engine.name, where, answers), daemon=True)
            for _ in range(REPLICAS)
        ]
        for process in processes:
            process.start()
        got = [answers.get(timeout=SECONDS) for _ in processes]
        for process in processes:
            process.join()
    right = sum(theirs == sums for _, theirs in got)
    slowest = max(took for took, _ in got)
    print(f"{right} of {REPLICAS} replicas have all {size >> 20} MiB; the slowest read took {slowest:.2f} s")
    return 0 if right == REPLICAS else 1


if __name__ == "__main__":
    sys.exit(main())
