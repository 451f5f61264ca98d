#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what honest peers of an engine notice of hostile clients, each of an address of its own.

For each kind of hostile client, rounds of five stretches. In all but the second an honest peer asks the engine
whether it lives, again and again, and another one reads from it.

    idle       nothing else is done
    alone      CLIENTS processes of that kind do what they can to the ports of the engine, and nobody is honest
    attack     the same beside honest peers
    load       as many processes use as much of the processors as the attack took, and do nothing else
    elsewhere  the same attack, on another engine of this host

What is taken from a host of few processors is not there for anybody, whatever an engine does; so an attack is
judged by what the honest peers keep of their reads beside a load of the same size. What an attack takes is what
its processes use, and what the engine's threads and the kernel's softirq threads use for them; softirqs that run
within a process count as that process's. It is not found as what honest peers left over: then whatever these
lost, by queues, locks, or by being served late, would count as taken by the attack, and nothing could ever be
lost. Alone, all that the engine does is done for the attack: that gives how much it does for a second of the
attackers' own time, and in the attack only their own time is measured.

Beside processes that always want to run a thread that sleeps and wakes waits longer than beside a load that rests
now and then. So the attack elsewhere is the second measure: it takes the same from the host, in the same way, and
what honest peers lose beside that is what they lose by sharing the engine. What the host has only one of, such as
memory for sockets, shows in the first measure alone.

Printed are the medians of the rounds: p50, p99 and the maximum of a probe in ms, reads in GB/s, and by how many
MiB the engine's memory had grown at most.

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
BURST = 0.002  # of a process that only uses a processor


# ---- Hostile clients: each gets (rpc port, data port, address to read, own address) and acts once ----

BIND_ADDRESS_NO_PORT = 24  # of IPPROTO_IP, in linux/in.h


def dial(port, own):
    """
    The local port is chosen as the socket connects, where one that waits for late packets of a connection before
    can be had again: else a client would soon be out of ports, and do nothing but look for one.
    """
    sock = socket.socket()
    try:
        sock.settimeout(2)
        sock.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        sock.bind((own, 0))
        sock.connect(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


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


def burn(share, over, used):
    """That share of a processor, in bursts; what it could not get it makes up for, as soon as it can."""
    began = time.monotonic()
    while not over.is_set():
        end = time.process_time() + BURST
        while time.process_time() < end:
            pass
        time.sleep(max(0, end / max(share, 0.001) - (time.monotonic() - began)))
    used.put(time.process_time())


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
            one.join(te.HANG_S)
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


def used_by(pid, name=""):
    """Seconds of a processor that the threads of a process have used, those whose names begin so."""
    took = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="ascii", errors="replace") as f:
            if not f.read().startswith(name):
                continue
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as f:
            took += int(f.read().split()[0]) / 1e9
    return took


def softirqs():
    """The same of the kernel's threads that handle what is left over of interrupts, one for each processor."""
    took = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            took += used_by(pid, "ksoftirqd/")
        except OSError:
            pass  # it has ended
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


class Counted(Helpers):
    """CLIENTS processes. After the `with`, `processors` is how many of them they took."""

    def __init__(self, function, arguments):
        self.used = multiprocessing.Queue()
        super().__init__(function, [(a, (self.used,)) for a in arguments])

    def __enter__(self):
        self.began = time.monotonic()
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.processors = sum(self.used.get(timeout=te.HANG_S) for _ in self.all) / (time.monotonic() - self.began)


def attackers(kind, place):
    return Counted(attack, [(kind, place, f"127.0.1.{i + 1}") for i in range(CLIENTS)])


def served_for(kind, peer, place, seconds):
    """What the engine and the kernel use for an attack, in the attackers' own time."""
    before = used_by(peer.pid) + softirqs()
    with attackers(kind, place) as alone:
        time.sleep(seconds)
    took = (used_by(peer.pid) + softirqs() - before) / (time.monotonic() - alone.began)
    return took / alone.processors


def measure(kind, peer, reader, elsewhere, seconds):
    """{stretch: figures} of one round, and how many processors the attack took, and the load."""
    before = memory_of(peer.pid)
    figures = {"idle": stretch(peer, reader, seconds)}
    served = served_for(kind, peer, reader.place, seconds)
    with attackers(kind, reader.place) as beside:
        figures["attack"] = stretch(peer, reader, seconds)
    processors = beside.processors * (1 + served)
    with Counted(burn, [(processors / CLIENTS,)] * CLIENTS) as load:
        figures["load"] = stretch(peer, reader, seconds)
    with attackers(kind, elsewhere):
        figures["elsewhere"] = stretch(peer, reader, seconds)
    return {name: (*f[:4], f[4] - before) for name, f in figures.items()}, (processors, load.processors)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help=f"these alone: {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how many (5)")
    parser.add_argument("--seconds", type=int, default=3, help="of each stretch, five of which are a round (3)")
    args = parser.parse_args()
    args.kinds = args.kinds.split(",")
    for kind in args.kinds:
        if kind not in KINDS:
            parser.error(f"no kind '{kind}'; there are: {', '.join(KINDS)}")
    return args


def report(kind, rounds):
    for name in ("idle", "load", "elsewhere", "attack"):
        medians = [statistics.median(figures[name][i] for figures, _ in rounds) for i in range(5)]
        print(f"{kind:12} {name:9} {medians[0]:8.1f} {medians[1]:8.1f} {medians[2]:8.1f} {medians[3]:11.2f} "
              f"{medians[4]:9.0f}")
    kept = [statistics.median(f["attack"][3] / f[name][3] for f, _ in rounds) for name in ("load", "elsewhere")]
    took = [statistics.median(took[i] for _, took in rounds) for i in range(2)]
    print(f"{kind:12} attack, which took {took[0]:.1f} processors, keeps {kept[0]:.2f} of the reads beside a load, which "
          f"took {took[1]:.1f}, and {kept[1]:.2f} of those beside the same attack elsewhere\n", flush=True)


def main():
    args = parse()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'kind':12} {'':9} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8} {'reads GB/s':>11} {'MiB more':>9}")
    for kind in args.kinds:
        rounds = []
        with te.Peer() as peer, te.Peer() as other:
            for one in (peer, other):
                one.ask("regions", REGIONS, 64)
            elsewhere = Place(other)
            with Reader(peer, Place(peer)) as reader:
                for i in range(args.rounds):
                    rounds.append(measure(kind, peer, reader, elsewhere, args.seconds))
                    print(f"bench_hostile.py: {kind}, {i + 1} of {args.rounds} rounds", file=sys.stderr, flush=True)
        report(kind, rounds)


if __name__ == "__main__":
    main()
