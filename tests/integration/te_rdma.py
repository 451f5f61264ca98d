# SPDX-License-Identifier: Apache-2.0
"""Two engines with RDMA, each a process of its own, over a simulated fabric whose parts can be made to fail."""
import bisect
import collections
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

import te_proc as te

NICS = 4
MIB = 1 << 20
NS = 1_000_000_000
Request = collections.namedtuple("Request", "begun ended state error text")


class Fabric:
    """`nics` NICs for each of the two sides, "a" and "b", of `gbps` each; or those that are named."""

    def __init__(self, nics=NICS, gbps=1.6, names=None, **keys):
        softverbs = os.path.join(te.BUILD, "tests", "softverbs")
        self.library = os.path.join(softverbs, "libibverbs.so.1")
        self.program = os.path.join(softverbs, "softverbs_ctl")
        if not os.path.exists(self.library) or not os.path.exists(self.program):
            te.skip("softverbs is not built")
        self.folder = tempfile.mkdtemp(prefix="fabric-", dir=te.Workdir.get())
        self.path = os.path.join(self.folder, "fabric.json")
        self.names = names or {side: [f"{side}{i}" for i in range(nics)] for side in "ab"}
        rows = [{"name": name, "host": side, "gbps": gbps, "gids": [f"::ffff:10.0.{i}.{1 + (side == 'b')}"],
                 **keys} for side in "ab" for i, name in enumerate(self.names[side])]
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump({"nics": rows}, f)
        self.control("setup")

    def control(self, command):
        done = subprocess.run([self.program, self.path, *command.split()], capture_output=True, text=True,
                              timeout=te.HANG_S, check=False)
        if done.returncode:
            raise AssertionError(f"softverbs_ctl {command}: {done.stderr}")
        return done.stdout

    def stats(self):
        """{NIC: {counter: number}}"""
        found = {}
        for line in self.control("stats").splitlines():
            words = dict(word.split("=", 1) for word in line.split())
            found[words.pop("nic").split("/")[-1]] = {k: int(v) for k, v in words.items() if v.isdigit()}
        return found

    def environment(self, side):
        return {"SOFTVERBS": self.path, "SOFTVERBS_HOST": side}

    def options(self, side):
        return ["TE_HOST_PATH=0", f"TE_IBVERBS_PATH={self.library}", f"TE_SYSFS_PATH={self.folder}/{side}/sys",
                f"TE_DEV_PATH={self.folder}/{side}/dev"]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Peer(te.Proc):
    """tests/integration/rdma_peer.c on one side of a fabric."""
    program = None
    ask = te.Peer.ask
    send = te.Peer.send
    reply = te.Peer.reply

    def __init__(self, fabric, side, shared, options=(), name="127.0.0.1", prefix=()):
        super().__init__([*prefix, Peer.binary(), te.P2P, name, shared, *fabric.options(side), *options], stdin=True,
                         env=fabric.environment(side))
        self.segment = self.address = self.answered = None

    def meet(self):
        """Waits until it is there."""
        ready = self.wait_line(r"^ready (\S+) (\d+)$")
        self.segment, self.address = ready.group(1), int(ready.group(2))
        self.answered = len(self.lines)

    @classmethod
    def binary(cls):
        if Peer.program is None:
            Peer.program = te.compile_program(os.path.join(te.SRC, "tests", "integration", "rdma_peer.c"), "rdma_peer")
        return Peer.program

    def warnings(self):
        """Lines of the log that tell of something wrong."""
        return [line for line in self.errors if re.match(r"[WE]\d{4} ", line)]


def read_report(path):
    requests = []
    with open(path, encoding="utf-8", errors="backslashreplace") as f:
        for line in f:
            words = line.rstrip("\n").split(" ", 4)
            if not line.endswith("\n"):
                break
            requests.append(Request(*(int(w) for w in words[:4]), words[4]))
    return sorted(requests, key=lambda r: r.ended)


class Stream:
    """What a stream of requests of one length did, by the times at which they ended."""

    def __init__(self, requests, length):
        self.requests, self.length = requests, length
        self.good = [r for r in requests if r.state == te.COMPLETED]
        self.bad = [r for r in requests if r.state != te.COMPLETED]
        self.ends = [r.ended for r in self.good]

    def rate(self, begin, end):
        """Bytes a second that completed between two times."""
        n = bisect.bisect_right(self.ends, end) - bisect.bisect_left(self.ends, begin)
        return n * self.length * NS / max(end - begin, 1)

    def stall_ms(self, begin, end):
        """The longest time in which nothing completed."""
        within = [t for t in self.ends if begin <= t <= end]
        return max((b - a for a, b in zip([begin, *within], [*within, end])), default=0) / 1e6

    def longest_ms(self, begin, end):
        """The longest that a request took which was under way in that time."""
        return max((r.ended - r.begun for r in self.requests if r.ended >= begin and r.begun <= end), default=0) / 1e6

    def back_ms(self, since, rate, window_ms=100):
        """How long after `since` the rate is `rate` again, in windows; None: not by the end."""
        window = window_ms * 1_000_000
        for begin in [since, *(t for t in self.ends if t > since)]:
            if not self.ends or begin + window > self.ends[-1]:
                return None
            if self.rate(begin, begin + window) >= rate:
                return max(begin - since, 0) / 1e6
        return None


class Pair:
    """An initiator and a target with memory in common, and a stream of requests between the two."""

    def __init__(self, options=(), length=MIB, inflight=8, gbps=1.6, prepare=None, **keys):
        self.fabric = Fabric(gbps=gbps, **keys)
        if prepare:
            prepare(self)
        self.length, self.inflight = length, inflight
        self.options = options
        fd, self.shared = tempfile.mkstemp(prefix="te-rdma-", dir="/dev/shm")
        os.ftruncate(fd, 2 * (length * inflight * 2 - length))
        os.close(fd)
        self.report = os.path.join(self.fabric.folder, "report")
        self.name = f"127.0.0.1:{te.free_port()}"
        self.target = self.initiator = None
        self.start_target()
        self.initiator = Peer(self.fabric, "a", self.shared, options)

    def start_target(self):
        self.target = Peer(self.fabric, "b", self.shared, self.options, self.name)
        self.registered = False

    def open(self):
        """Registers the memory at both sides, and opens the target's segment."""
        for peer in (self.target, self.initiator):
            if not peer.segment:
                peer.meet()
        if not self.registered:
            self.target.ask("target")
        self.registered = True
        self.initiator.ask("open", self.target.segment, self.target.address)

    def begin(self, direction):
        self.initiator.ask("stream", direction.lower(), self.length, self.inflight, self.report)

    def so_far(self):
        return Stream(read_report(self.report), self.length)

    def end(self):
        """(Stream, number of requests that brought wrong bytes)"""
        wrong = int(self.initiator.ask("stop")[2])
        return self.so_far(), wrong

    def leaks(self):
        """Ends the engines that live, and tells what the devices still hold of them."""
        for peer in (self.initiator, self.target):
            if peer.process.poll() is None:
                peer.ask("close")
        return [f"{nic}: {n['qps']} QPs, {n['mrs']} MRs" for nic, n in self.fabric.stats().items()
                if n["qps"] or n["mrs"]]

    def close(self):
        for peer in (self.initiator, self.target):
            if peer:
                peer.close()
        os.unlink(self.shared)
        self.fabric.remove()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def now():
    return time.monotonic_ns()
