#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the curves of docs/pictures/throughput.svg and latency.svg: transfer_engine_bench --sweep, over TCP on loopback.

Usage: scripts/sweep.py [--rounds N] [--seconds S] [FILE]

FILE is docs/pictures/sweep.csv unless another is named. There are 5 rounds unless N says otherwise, each measures every
combination for 0.3 s unless S does, and beside it tests/bench/raw_pingpong, which has no engine; the best of the rounds
is written, for what else runs on a machine only takes away. A row of FILE is a size of blocks: its bytes, GB/s of reads
in batches of 16 by 1, 2 and 4 threads, then in us: p50 and p99 of a read alone, and p50 of raw_pingpong.
"""
import argparse
import json
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCKS, THREADS, BATCH = [4096 << 2 * step for step in range(6)], (1, 2, 4), 16
MORE, LESS = [*(f"{n} threads" for n in THREADS)], ["p50", "p99", "ping"]
COMMON = ("--metadata_server=P2PHANDSHAKE", "--protocol=tcp", "--local_server_name=127.0.0.1", "--buffer_size=512M")
ENV = {**os.environ, "TE_BIND": "127.0.0.1"}


def program(*path):
    bin_folder = os.environ.get("TE_BIN", os.path.join(ROOT, "build", "bin"))
    return os.path.join(os.path.dirname(bin_folder), *path)


def ask(*command):
    """The object that a program prints."""
    done = subprocess.run(command, env=ENV, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(segment, seconds):
    """{(block, figure): value} of one round."""
    bench = (program("bin", "transfer_engine_bench"), *COMMON, f"--segment_id={segment}", "--json", "--sweep",
             f"--duration={seconds}", f"--sweep_block_size={','.join(map(str, BLOCKS))}")
    rates = ask(*bench, f"--sweep_batch_size={BATCH}", f"--sweep_threads={','.join(map(str, THREADS))}")
    alone = ask(*bench, "--sweep_batch_size=1", "--sweep_threads=1")
    found = {(row["block_size"], f"{row['threads']} threads"): row["throughput_bytes_per_s"] / 1e9
             for row in rates["points"]}
    for row in alone["points"]:
        block, latency = row["block_size"], row["batch_latency_us"]
        found[block, "p50"], found[block, "p99"] = latency["p50"], latency["p99"]
        found[block, "ping"] = ask(program("tests", "bench", "raw_pingpong"), "--json", "--size", str(block),
                                   "--cc", "reno", "--seconds", str(seconds))["p50_us"]
    return found


def measured(rounds, block, column):
    """What was found; a round in which none has come within its time says 0."""
    return [of[block, column] for of in rounds if of[block, column]] or [0]


def record(rounds, file):
    with open(file, "w", encoding="ascii") as f:
        f.write(f"# scripts/sweep.py, the best of {len(rounds)} rounds, {os.cpu_count()} CPUs, {platform.machine()}: block, "
                f"{', '.join(MORE + LESS)}\n")
        for block in BLOCKS:
            best = [(min if column in LESS else max)(measured(rounds, block, column)) for column in MORE + LESS]
            f.write(",".join([str(block), *(f"{value:.3f}" for value in best)]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("file", nargs="?", default=os.path.join(ROOT, "docs", "pictures", "sweep.csv"))
    args = parser.parse_args()
    target = [program("bin", "transfer_engine_bench"), "--mode=target", *COMMON]
    with subprocess.Popen(target, env=ENV, stdout=subprocess.PIPE, text=True) as running:
        try:
            segment = running.stdout.readline().split()[-1]
            record([measure(segment, args.seconds) for _ in range(args.rounds)], args.file)
        finally:
            running.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
