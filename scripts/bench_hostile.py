#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what honest peers of an engine notice of hostile clients, each of an address of its own.

For each kind of hostile client, rounds of three stretches: idle, attack, and load. In the second, CLIENTS processes of
that kind do what they can to the ports of one engine; in the third as many processes do nothing but use as much of the
processors as those did and the engine's threads that answered handshakes: what is taken from a host of few processors is
not there for anybody, whatever the engine does. In each stretch an honest peer asks the engine whether it lives, again and again, and another one reads from it. Printed are
the medians of the rounds: p50, p99 and the maximum of a probe in ms, reads in GB/s, and by how many MiB the
engine's memory had grown at most.

All of it is on 127.0.0.0/8 and ends by itself. The status is 0 whatever the figures are: a benchmark
reports, it asserts nothing. It needs what `make tests` builds.
"""
import argparse
import json
import multiprocessing
import os
import resource
import socket
import statistics
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "integration"))
import te_proc as te  # noqa: E402

MIB = 1 << 20
CLIENTS = 8
REGIONS = 100000  # of the engine, beside the one that is read
SIZE, BLOCKS = 16 * MIB, 256  # of that one, and how many requests read it
PAUSE = 0.02  # between two probes, in seconds
BURST = 0.01  # of a process that only uses a processor


# ---- Hostile clients: each gets (rpc port, data port, address to read, own address) and acts once ----

def dial(port, own, timeout=2):
    return socket.create_connection(("127.0.0.1", port), timeout=timeout, source_address=(own, 0))


def send(port, own, kind, text):
    with dial(port, own) as sock:
        sock.sendall(te.frame(kind, text))


NESTED = "[" + "[]," * ((MIB - 100) // 3) + "[]]"
PAGE = json.dumps({"te": {"page": {"from": 0, "max": 1000000}}})


def messages(place, own):
    send(place.rpc, own, te.NOTIFY, '{"name":"a","notify_msg":' + NESTED + "}")


def connections(place, own):
    send(place.rpc, own, te.CONNECTION, NESTED)


def pages(place, own):
    send(place.rpc, own, te.METADATA, PAGE)


def connects(place, own):
    dial(place.rpc, own).close()


def broken(place, own):
    with dial(place.rpc, own) as sock:
        sock.sendall(struct.pack("<Q", MIB) + os.urandom(2000))


def drops(place, own):
    """DROPs of connections that nobody has: what a stranger knows of others' is nothing."""
    with dial(place.data, own) as sock:
        sock.sendall(os.urandom(64))


def silent(place, own, held=[]):  # pylint: disable=dangerous-default-value
    """Half a header of the data port, on as many connections as there are places for."""
    if len(held) >= 600:
        held.pop(0).close()
    held.append(dial(place.data, own))
    held[-1].sendall(b"\x40" + b"\0" * 11)


def hogs(place, own, held=[]):  # pylint: disable=dangerous-default-value
    """READs that nobody takes."""
    if len(held) >= 60:
        time.sleep(0.05)
        held.pop(0).close()
    sock = dial(place.data, own)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(struct.pack("<QQB7x", SIZE, place.address, 0x80))
    held.append(sock)


KINDS = {act.__name__: act for act in (messages, connections, pages, connects, broken, drops, silent, hogs)}


# ---- What runs in processes --------------------------------------------------------------------------

class Place:
    """Where the engine is, and memory of it."""

    def __init__(self, peer):
        self.rpc = te.split_address(peer.segment)[1]
        self.data = te.descriptor(("127.0.0.1", self.rpc))["tcp_data_port"]
        self.address = peer.region(SIZE)[1]


def attack(kind, place, own, over, used):
    while not over.is_set():
        try:
            KINDS[kind](place, own)
        except OSError:
            time.sleep(0.001)
    used.put(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))


def burn(share, over):
    """That share of a processor, in bursts."""
    while not over.is_set():
        end = time.process_time() + BURST
        began = time.monotonic()
        while time.process_time() < end:
            pass
        time.sleep(max(0, BURST / max(share, 0.001) - (time.monotonic() - began)))


class Helpers:
    """Processes that end with the `with`."""

    def __init__(self, function, arguments):
        self.over = multiprocessing.Event()
        self.all = [multiprocessing.Process(target=function, args=(*a, self.over, *b), daemon=True)
                    for a, b in arguments]

    def __enter__(self):
        for one in self.all:
            one.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for one in self.all:
            one.join(10)
            if one.is_alive():
                one.kill()


# ---- Honest peers ------------------------------------------------------------------------------------

class Probes(threading.Thread):
    """Milliseconds of each handshake."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.took, self.over = port, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            began = time.monotonic()
            try:
                te.handshake(("127.0.0.1", self.port), te.PROBE, "{}")
            except OSError:
                pass  # its time counts all the same
            self.took.append(1e3 * (time.monotonic() - began))
            time.sleep(PAUSE)

    def figures(self):
        self.over.set()
        self.join()
        took = sorted(self.took)
        return took[len(took) // 2], took[len(took) * 99 // 100], took[-1]


def memory_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def answering(pid):
    """Seconds of a processor that the threads of the handshake port have taken."""
    took = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as f:
            name, _, rest = f.read().partition("(")[2].rpartition(")")
        if name in ("te/ctl", "te/aux"):
            took += sum(int(word) for word in rest.split()[11:13]) / os.sysconf("SC_CLK_TCK")
    return took


class Memory(threading.Thread):
    """The most that a process has of it, in MiB."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.over = pid, memory_of(pid), threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, memory_of(self.pid))

    def figure(self):
        self.over.set()
        self.join()
        return self.most


class Reader(te.Peer):
    """An engine that reads what is at a place, all of it each time."""

    def __init__(self, peer, place):
        super().__init__(options=("TE_HOST_PATH=off",))
        self.place, self.segment_of_peer = place, self.open(peer.segment)
        self.here, _ = self.region(SIZE)

    def read(self, seconds):
        """GB/s, of what has been read."""
        began, got = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            got += self.move("read", self.segment_of_peer, self.here, 0, self.place.address, SIZE // BLOCKS, BLOCKS)[2]
        return got / (time.monotonic() - began) / 1e9


def stretch(peer, reader, seconds):
    """(p50, p99, most, GB/s, MiB at most) while whatever is beside it goes on."""
    memory, probes = Memory(peer.pid), Probes(reader.place.rpc)
    speed = reader.read(seconds)
    return (*probes.figures(), speed, memory.figure())


def measure(kind, peer, reader, seconds):
    """{stretch: figures} of one round, and how many processors the clients took."""
    before = memory_of(peer.pid)
    figures = {"idle": stretch(peer, reader, seconds)}
    used = multiprocessing.Queue()
    began, answered = time.monotonic(), answering(peer.pid)
    with Helpers(attack, [((kind, reader.place, f"127.0.1.{i + 1}"), (used,)) for i in range(CLIENTS)]):
        figures["attack"] = stretch(peer, reader, seconds)
    took = sum(used.get(timeout=10) for _ in range(CLIENTS)) + answering(peer.pid) - answered
    processors = took / (time.monotonic() - began)
    with Helpers(burn, [((processors / CLIENTS,), ())] * CLIENTS):
        figures["load"] = stretch(peer, reader, seconds)
    return {name: (*f[:4], f[4] - before) for name, f in figures.items()}, processors


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help=f"these alone: {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how many (5)")
    parser.add_argument("--seconds", type=int, default=3, help="of each stretch, three of which are a round (3)")
    args = parser.parse_args()
    args.kinds = args.kinds.split(",")
    for kind in args.kinds:
        if kind not in KINDS:
            parser.error(f"no kind '{kind}'; there are: {', '.join(KINDS)}")
    return args


def main():
    args = parse()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'kind':12} {'':7} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8} {'reads GB/s':>11} {'MiB more':>9}")
    for kind in args.kinds:
        rounds = []
        with te.Peer() as peer:
            peer.ask("regions", REGIONS, 64)
            with Reader(peer, Place(peer)) as reader:
                for i in range(args.rounds):
                    rounds.append(measure(kind, peer, reader, args.seconds))
                    print(f"bench_hostile.py: {kind}, {i + 1} of {args.rounds} rounds", file=sys.stderr, flush=True)
        for name in ("idle", "load", "attack"):
            medians = [statistics.median(figures[name][i] for figures, _ in rounds) for i in range(5)]
            print(f"{kind:12} {name:7} {medians[0]:8.1f} {medians[1]:8.1f} {medians[2]:8.1f} {medians[3]:11.2f} "
                  f"{medians[4]:9.0f}", flush=True)
        kept = statistics.median(f["attack"][3] / f["load"][3] for f, _ in rounds)
        processors = statistics.median(took for _, took in rounds)
        print(f"{kind:12} attack keeps {kept:.2f} of the reads beside load, which took {processors:.1f} processors\n")


if __name__ == "__main__":
    main()
