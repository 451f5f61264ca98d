#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a link that is out for 3 s does to transfers, for the picture docs/pictures/outage.svg.

Usage: scripts/outage.py [FILE]     (as root; FILE is docs/pictures/outage.csv unless another is named)

Two hosts, which are network namespaces, have one link of 400 Mbit/s (scripts/netlab.sh). Four writes of
256 KiB are under way at a time, with a deadline of 1 s each; when one ends, in whatever way, its thread
begins the next, with no other call. After 3 s the link goes down, 3 s later up again, and after 10 s it is
over. A row of FILE is a fifth of a second: when it began, the MB/s of the writes that completed in it, how
many ended TIMEOUT, and how many FAILED.
"""
import os
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.join(ROOT, "build", "lib", "libtransfer_engine.so")
os.environ.setdefault("TRANSFER_ENGINE_LIBRARY", LIBRARY)
sys.path.insert(0, os.path.join(ROOT, "bindings", "python"))
SIZE, WRITERS = 256 << 10, 4
DOWN, UP, END = 3, 6, 10
STEPS = 5  # a second


def serve(address):
    """On host A: memory that is written to, until the end of stdin."""
    import transfer_engine as te

    with te.Engine(options={"TE_BIND": address}) as engine:
        region = engine.register(bytearray(SIZE * WRITERS), access=te.Access.WRITE)
        print(engine.name, region.address, flush=True)
        sys.stdin.read()


def cut(began, netns):
    """The link of host A, from DOWN to UP."""
    for at, state in ((DOWN, "down"), (UP, "up")):
        time.sleep(max(0, began + at - time.monotonic()))
        subprocess.run(["ip", "-n", netns, "link", "set", "te0", state], check=True)


def write(segment, memory, remote, began, rows):
    import transfer_engine as te

    while time.monotonic() < began + END:
        try:
            ended = (segment.write(memory, remote, timeout=1), 0, 0)
        except te.TransferTimeout:
            ended = (0, 1, 0)
        except te.PathError:
            ended = (0, 0, 1)
        step = int((time.monotonic() - began) * STEPS)
        if step < len(rows):
            rows[step].append(ended)


def give(address, netns, name, remote, file):
    """On host B: writes, and what became of them."""
    import transfer_engine as te

    memory = memoryview(bytearray(SIZE * WRITERS))
    rows = [[] for _ in range(END * STEPS)]
    with te.Engine(options={"TE_BIND": address}) as engine, engine.register(memory), engine.open(name) as segment:
        began = time.monotonic()
        threads = [threading.Thread(target=cut, args=(began, netns))]
        for at in range(0, SIZE * WRITERS, SIZE):
            words = (segment, memory[at : at + SIZE], int(remote) + at, began, rows)
            threads.append(threading.Thread(target=write, args=words))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        version = te.__version__
    with open(file, "w", encoding="ascii") as f:
        f.write(f"# scripts/outage.py, version {version}: seconds, MB/s, writes that ended TIMEOUT, and FAILED\n")
        for step, ends in enumerate(rows):
            moved, late, failed = (sum(column) for column in zip((0, 0, 0), *ends))
            f.write(f"{step / STEPS:.1f},{moved * STEPS / 1e6:.1f},{late},{failed}\n")


def main(words):
    if words[:1] == ["--serve"]:
        return serve(*words[1:])
    if words[:1] == ["--give"]:
        return give(*words[1:])
    if words[:1] == ["--help"] or len(words) > 1:
        print(__doc__)
        return 0 if words[0] == "--help" else 2
    if "TE_NETNS" not in os.environ:
        network = [os.path.join(ROOT, "scripts", "netlab.sh"), "--links", "1", "--mbit", "400", "--"]
        os.execv(network[0], [*network, sys.executable, os.path.abspath(__file__), *words])
    (a, b), (on_a, on_b) = (os.environ[name].split(",") for name in ("TE_NETNS", "TE_ADDRESS"))
    within = [["ip", "netns", "exec", netns, sys.executable, __file__] for netns in (a, b)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*within[0], "--serve", on_a], **pipes) as target:
        name, remote = target.stdout.readline().split()
        file = words[0] if words else os.path.join(ROOT, "docs", "pictures", "outage.csv")
        return subprocess.run([*within[1], "--give", on_b, a, name, remote, file], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
