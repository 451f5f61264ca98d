#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets te_metad beside etcd, of one member and of three, for the table of docs/operations.md.

Each round starts each of them anew, on 127.0.0.1 with a folder of its own that its contents are written to, and asks
them by tests/bench/te_store, which puts as engines do:

    puts       values of 4 KiB that are put a second by 1 and 16 clients, and the median time of one
    watch      the time from the beginning of a put until those who follow the key are told; te_metad tells nobody
    failover   the longest time in which nothing could be put, while the server is killed (SIGKILL) and started again
               at once, or the leader of three is killed and stays away
    held       how long 16 clients take to put that many descriptors, and what the server then has in memory, the
               largest of three, and on the disk

Printed are medians of all rounds, beside them the least and the most. The status is 0 whatever the figures are: a
benchmark reports, it asserts nothing. It needs what `make tests` builds, and etcd.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "integration"))
import te_proc as te  # noqa: E402
import te_stores as stores  # noqa: E402

PROGRAM = os.path.join(te.BUILD, "tests", "bench", "te_store")
BOUND_S = 1800  # of any run: it only ends a hang
MANY = 16  # clients
MIB = 1 << 20


class Client(te.Proc):
    """With the limits that engines have, not those of tests."""
    defaults = {}


# ---- The servers, each of one that can be put out of service and of one that comes back -------------

class Metad(stores.Metad):
    what = "te_metad"

    def __init__(self, args):
        super().__init__(durable=True, flags=(f"--max-keys={2 * args.keys + 100000}", "--max-bytes=16G"))

    def servers(self):
        return [self]

    def fail(self):
        self.kill()
        self.start()


class Etcd(stores.Etcd):
    what = "etcd, one member"

    def __init__(self, _):
        super().__init__()

    servers, fail = Metad.servers, Metad.fail


class Cluster(stores.EtcdCluster):
    what = "etcd, three members"

    def __init__(self, _):
        super().__init__()

    def servers(self):
        return self.members

    def fail(self):
        self.leader().kill()

    def leader(self):
        def is_leader(member):
            body, _ = stores.http("POST", f"http://{member.address}/v3/maintenance/status", b"{}")
            said = json.loads(body)
            return said.get("leader") == said["header"]["member_id"]
        return te.until(lambda: next((m for m in self.members if is_leader(m)), None), "a leader")


STORES = (Metad, Etcd, Cluster)


# ---- Measures: {row: figure} ------------------------------------------------------------------------

def ask(store, what, **flags):
    words = [PROGRAM, "--json", f"--store={store.url}", *(f"--{k}={v}" for k, v in flags.items()), what]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BOUND_S)
    if ended.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {ended.returncode}:\n{ended.stderr}")
    return json.loads(ended.stdout)


def puts(store, args):
    one = ask(store, "put", seconds=args.seconds)
    many = ask(store, "put", seconds=args.seconds, clients=MANY)
    return {"puts/s, 1 client": one["puts_s"], "ms a put, 1 client": one["p50_ms"],
            f"puts/s, {MANY} clients": many["puts_s"], f"ms a put, {MANY} clients": many["p50_ms"]}


def watch(store, args):
    if isinstance(store, Metad):
        return {}
    said = ask(store, "watch", watchers=args.watchers)
    return {f"ms until one of {args.watchers} is told": said["told_ms"],
            f"ms until all {args.watchers} are told": said["last_ms"]}


def number(store):
    """What was put last; -1: the server is away."""
    try:
        return int(store.get("mooncake/ram/bench-0") or -1)
    except (OSError, ValueError, stores.BadStatus):
        return -1


def more_are_put(store):
    first = te.until(lambda: max(0, number(store)), "a number")
    te.until(lambda: number(store) > first + 1, "a larger one")


def failover(store, _):
    with Client([PROGRAM, "--json", f"--store={store.url}", "--seconds=120", "outage"], stdin=True) as client:
        te.until(lambda: number(store) > 10, "puts")
        store.fail()
        more_are_put(store)
        client.process.stdin.close()
        said = json.loads(client.wait_line(r"^\{.*").group(0))
    return {"s without a put, after a kill": said["longest_s"]}


def resident(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) * 1024


def on_disk(server):
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512
               for folder, _, names in os.walk(server.folder) for name in names)


def held(store, args):
    said = ask(store, "fill", keys=args.keys, clients=MANY)
    what = f"{args.keys:,} keys of 4 KiB"
    return {f"{what}: s to put them": said["seconds"],
            f"{what}: MiB of memory": max(resident(s) for s in store.servers()) / MIB,
            f"{what}: MiB on the disk": max(on_disk(s) for s in store.servers()) / MIB}


MEASURES = {measure.__name__: measure for measure in (puts, watch, failover, held)}


def one_round(args, found):
    for kind in STORES:
        for measure in args.only:
            store = kind(args)
            try:
                for row, figure in MEASURES[measure](store, args).items():
                    found.setdefault(row, {}).setdefault(kind.what, []).append(figure)
            finally:
                store.close()


# ---- The table --------------------------------------------------------------------------------------

def cell(figures):
    if not figures:
        return "none"
    low, middle, high = min(figures), statistics.median(figures), max(figures)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def table(found):
    lines = ["| what | " + " | ".join(kind.what for kind in STORES) + " |", "|---" * (1 + len(STORES)) + "|"]
    for row, columns in found.items():
        lines.append(f"| {row} | " + " | ".join(cell(columns.get(kind.what)) for kind in STORES) + " |")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how many (5)")
    parser.add_argument("--seconds", type=float, default=3, help="of puts by 1 and by 16 clients (3)")
    parser.add_argument("--watchers", type=int, default=100, help="that follow one key (100)")
    parser.add_argument("--keys", type=int, default=100000, help="that a server is filled with (100000)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the servers write, on the disk to measure")
    parser.add_argument("--only", metavar="MEASURE,...", help=f"these alone: {', '.join(MEASURES)}")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else list(MEASURES)
    for measure in args.only:
        if measure not in MEASURES:
            parser.error(f"no measure '{measure}'; there are: {', '.join(MEASURES)}")
    if args.rounds < 1 or args.keys < MANY:
        parser.error(f"at least 1 round, and {MANY} keys, please")
    return args


def main():
    args = parse()
    stores.MEMORY = args.folder  # else they would write to /dev/shm
    te.tool("te_store", os.path.dirname(PROGRAM))
    stores.program("etcd", "etcd-server")
    found, began = {}, time.monotonic()
    for turn in range(args.rounds):
        one_round(args, found)
        print(f"bench_stores.py: {turn + 1} of {args.rounds} rounds, {time.monotonic() - began:.0f} s", file=sys.stderr,
              flush=True)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump(found, f, indent=1)
    print(table(found))


if __name__ == "__main__":
    try:
        main()
    except unittest.SkipTest as missing:
        print(f"bench_stores.py: {missing}")
        sys.exit(77)
