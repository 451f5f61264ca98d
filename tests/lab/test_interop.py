# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=300
"""Mooncake's own engine, from its wheel, in one guest and ours in the other, over RDMA and in both roles.

The programs, and what is said to them, are those of tests/interop; all bytes are compared. A case is a row of
docs/compat.md, between two marks: one that "differs" asserts the difference.
"""
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import time

import te_lab

INTEROP = os.path.join(te_lab.SOURCE, "tests", "interop")
sys.path.insert(0, INTEROP)
import cases as tcp_cases  # pylint: disable=wrong-import-position
import te_interop  # pylint: disable=wrong-import-position
from te_interop import te  # pylint: disable=wrong-import-position

PAGE = os.path.join(te_lab.SOURCE, "docs", "compat.md")
BEGIN, END = "<!-- lab: rows of tests/lab/test_interop.py -->", "<!-- lab: end -->"
KB, MB = 1 << 10, 1 << 20
SIZES = (1, 63, 4097, 64 * KB + 1, MB + 1, 5 * MB - 3)
HUGE = 64 * MB
LOAD = ("--protocol=rdma --metadata_server=P2PHANDSHAKE --device_name=rxe0,rxe1 --threads=2 --buffer_size=16777216 "
        "--batch_size=8 --block_size=65536 --duration=1")
THEIR_ENV = {"MC_TRANSFER_TIMEOUT": 10, "LD_PRELOAD": "/run/lab/finite_retries.so"}


class Lab:
    """What the cases share; test() sets it."""
    machine = venv = None
    values = of_values = None  # what the last Pair was made of, and it: cases in a row share theirs

    @classmethod
    def pair(cls, values):
        if cls.values != values:
            cls.drop()
            cls.of_values, cls.values = Pair(**values), values
        return cls.of_values

    @classmethod
    def drop(cls):
        if cls.of_values:
            cls.of_values.close()
        cls.values = cls.of_values = None

    @classmethod
    def bench(cls, side):
        if side == "ours":
            return f"{te_lab.BUILD}/bin/transfer_engine_bench"
        te_interop.Venv.folder = cls.venv
        return te_interop.Venv.bench()


class Peer(te_interop.Words):
    """An engine in a guest, told by its standard input."""

    def __init__(self, side, guest, name=None, metadata=te.P2P, device="", env=None):
        self.side, self.guest, self.answered = side, guest, 0
        program = (f"{te_lab.BUILD}/tests/interop/ours" if side == "ours" else
                   f"{Lab.venv}/bin/python {INTEROP}/theirs.py")
        env = {**(THEIR_ENV if side == "theirs" else {}), **(env or {})}
        self.job = guest.start_job(f"exec env {' '.join(f'{k}={v}' for k, v in env.items())} {program}", talk=True)
        self.reply()
        got = self.start(name or guest.ip(), metadata, "rdma", device)
        if got["rc"] != 0:
            raise te_interop.Failure(f"init of {side}: {got}\n{self}")

    def send(self, op, **words):
        self.job.tell(json.dumps({"op": op, **words}))

    def reply(self):
        line = self.job.wait_line(r"^\{.*", 120, self.answered).group(0)
        self.answered += 1
        return json.loads(line)

    def close(self):
        self.job.kill()

    def __str__(self):
        """Without the heaps of lines that theirs tells of itself."""
        errors = [line for line in self.job.errors().splitlines() if not line.startswith("I")]
        return f"[guest {self.guest.number}, {self.side}]\n" + "\n".join(errors[-40:])


class Pair(tcp_cases.Pair):
    """Ours in guest 1, theirs in guest 0, each with a region: a is the initiator and b the target of a case."""

    def __init__(self, store=None, size=MB, nic=0, ours=None, theirs=None, names=None):
        self.size, self.server = size, store() if store else None
        self.metadata = self.server.url if store else te.P2P
        guests = dict(zip(("theirs", "ours"), Lab.machine.guests))
        env = {"ours": ours, "theirs": theirs}
        self.make = {side: lambda side=side: Peer(side, guests[side], (names or {}).get(side) or guests[side].ip(nic),
                                                  self.metadata, env=env[side]) for side in guests}
        self.peer, self.region = {}, {}
        for side in guests:
            self.begin(side)

    def begin(self, side):
        self.peer[side] = self.make[side]()
        self.region[side] = self.peer[side].register(self.size)

    def by(self, initiator):
        target = "theirs" if initiator == "ours" else "ours"
        self.a, self.local = self.peer[initiator], self.region[initiator]
        self.b, self.remote = self.peer[target], self.region[target]
        return self

    def again(self, peer):
        """Killed, and started again under its name."""
        initiator = self.a.side
        peer.close()
        self.begin(peer.side)
        self.by(initiator)

    def close(self):
        for peer in self.peer.values():
            peer.close()
        if self.server:
            self.server.close()

    def batches(self, count=40):
        super().batches(count)

    def read(self, length=300001):
        """The answer to a READ; if it is a success, the bytes are right."""
        seed, at = random.getrandbits(31), random.randrange(1000)
        self.b.do("fill", addr=self.remote + at, size=length, seed=seed)
        got = self.ask("read", at=at, length=length, local=7)
        if got["rc"] == 0:
            self.a.do("check", addr=self.local + 7, size=length, seed=seed)
        return got

    def read_well(self, **more):
        got = self.read(**more)
        expect(got["rc"] == 0, f"READ: {got}\n{self.a}\n{self.b}")


def expect(condition, what):
    if not condition:
        raise te_interop.Failure(what)


# ---- The cases -----------------------------------------------------------------------------------

CASES = []
GROUP = "RDMA (SoftRoCE), two machines with two NICs each"


def by_each(name, what, run, differs=None):
    """A case of each initiator, whose name the function is handed; `differs` has what is different of it."""
    for initiator, words in (("ours", "ours → theirs"), ("theirs", "theirs → ours")):
        why = (differs or {}).get(initiator, "")
        CASES.append(tcp_cases.Case(f"rdma-{name}-{initiator}", GROUP, words, what, "differs" if why else "works", why,
                                    lambda by=initiator: run(by)))


def both(name, what, differs=None, **pair):
    """The function as such cases, handed a Pair that is made of the values."""
    def add(run):
        by_each(name, what, lambda initiator: run(Lab.pair(pair).by(initiator)), differs)
        return run
    return add


PLAIN = {"size": HUGE + 16 * KB, "ours": {"MC_MAX_MR_SIZE": 8 * MB}, "theirs": {"MC_MAX_MR_SIZE": 8 * MB}}


@both("transfers", "READ and WRITE of 1 B to 64 MiB at odd places, of memory registered in parts (`MC_MAX_MR_SIZE`), "
      "batches of 40; both NICs carry", **PLAIN)
def transfers(pair):
    before = [pair.a.guest.packets(nic) for nic in range(2)]
    pair.exchange(SIZES)
    seed = random.getrandbits(31)
    pair.a.do("fill", addr=pair.local + 3, size=HUGE, seed=seed)
    pair.do("write", local=3, at=5, length=HUGE)
    pair.b.do("check", addr=pair.remote + 5, size=HUGE, seed=seed)
    pair.do("read", local=77, at=5, length=HUGE)
    pair.a.do("check", addr=pair.local + 77, size=HUGE, seed=seed)
    moved = [pair.a.guest.packets(nic) - n for nic, n in enumerate(before)]
    expect(all(n > 100 for n in moved), f"a NIC carried nothing: {moved}")


@both("crossed", "each the initiator of the other, at once", **PLAIN)
def crossed(pair):
    ways = ((pair.a, pair.local, pair.b, pair.remote), (pair.b, pair.remote, pair.a, pair.local))
    for _ in range(3):
        for peer, own, _, _ in ways:
            peer.do("fill", addr=own, size=3 * MB, seed=own & 0xffffff)
        for peer, own, other, there in ways:
            peer.send("read", target=other.segment, local=own + 4 * MB, remote=there, length=3 * MB)
        for peer, _, _, _ in ways:
            expect(peer.reply()["rc"] == 0, f"{peer}")
        for peer, own, _, there in ways:
            peer.do("check", addr=own + 4 * MB, size=3 * MB, seed=there & 0xffffff)


@both("regions", "200 regions side by side, registered after the first request; one request over 100 of these; "
      "all unregistered", **PLAIN)
def regions(pair):
    part, count = 4120, 200
    many = pair.b.register(part, count=count, seed=9)
    at = random.randrange(part * 20)
    pair.a.do("read", target=pair.b.segment, local=pair.local, remote=many + at, length=part * 100)
    pair.a.do("check", addr=pair.local, size=part * 100, seed=9, offset=at)
    pair.b.do("unregister", addr=many, size=part, count=count)
    got = pair.a.ask("read", target=pair.b.segment, local=pair.local, remote=many + at, length=100)
    expect(got["rc"] != 0, "memory was read that is not registered any more")
    pair.read_well()


@both("messages", "notifications behind a transfer; probe; no bytes; ranges that are not registered, and what is well "
      "after those", **PLAIN)
def messages(pair):
    note = ["name", "späß {\"x\": 1}"]
    pair.do("write", length=777, notify=note)
    te_lab.wait_until("the notification", lambda: pair.b.do("notifies")["list"] == [note], 20)
    pair.a.do("probe", target=pair.b.segment)
    expect(pair.a.ask("probe", target="10.77.0.1:14999")["rc"] != 0, "nobody answers a probe")
    pair.do("read", length=0)
    pair.fails("read", at=pair.size - 5, length=10)
    pair.fails("write", at=1 << 40, length=10)
    pair.fails("write", local=1 << 40, length=10)
    pair.read_well()


@both("queue-pairs", "4 queue pairs there, 2 here (`MC_NUM_QP_PER_EP`)", theirs={"MC_NUM_QP_PER_EP": 4}, differs={
    "ours": "as between two of theirs, no connection: our log has their reason",
    "theirs": "as between two of theirs, no connection: their log has our reason, which names the variable"})
def queue_pairs(pair):
    expect(pair.read()["rc"] != 0, "READ went well")
    expect("QP count mismatch" in pair.a.job.errors(), f"{pair.a}")


class Server:
    """A store in guest 0."""

    def __init__(self, command, url, begun):
        self.url = url
        self.job = Lab.machine.guests[0].start_job(f"exec {command}")
        te_lab.wait_until(f"the start of {command}", lambda: begun in self.job.output() + self.job.errors(), 30)

    def close(self):
        self.job.kill()


def te_metad():
    return Server(f"{te_lab.BUILD}/bin/te_metad --addr 10.77.0.1:8080", "http://10.77.0.1:8080/metadata",
                  "listening on")


def their_metad():
    return Server(f"{Lab.venv}/bin/python -m mooncake.http_metadata_server --host 10.77.0.1 --port 8081",
                  "http://10.77.0.1:8081/metadata", "started on")


def etcd():
    client = "http://10.77.0.1:2379"
    return Server(f"etcd --data-dir /tmp/etcd.{time.monotonic_ns()} --listen-client-urls {client} "
                  f"--advertise-client-urls {client}", "etcd://10.77.0.1:2379", "serving insecure client requests")


NAMES = {"ours": "ours", "theirs": "theirs"}


@both("etcd", "metadata on etcd", store=etcd, names=NAMES)
@both("http-theirs", "metadata on their http_metadata_server", store=their_metad, names=NAMES)
@both("http-ours", "metadata on our te_metad", store=te_metad, names=NAMES)
def by_store(pair):
    pair.read_well()


@both("restart-name", "target, then initiator killed and started again under its name, at another port; te_metad",
      store=te_metad, names=NAMES, theirs={"MC_DISABLE_METACACHE": 1}, differs={
          "theirs": "theirs asks once for the port of a name, even with `MC_DISABLE_METACACHE`: after a restart of our "
          "target it has to be started again, unless the target has its port again (`rdma-restart-port-theirs`)"})
def restart_name(pair):
    pair.a.do("probe", target=pair.b.segment)
    pair.read_well()
    pair.again(pair.b)
    if pair.a.side == "theirs":
        for _ in range(2):
            expect(pair.read()["rc"] != 0, "their initiator has found the new port")
    else:
        pair.read_well()
    pair.again(pair.a)
    pair.read_well()


@both("restart-port", "the same without a store: ours at its port, theirs at another and so under another name",
      names={"ours": "10.77.0.17:15900"})
def restart_port(pair):
    pair.read_well()
    pair.b.close()
    expect(pair.ask("read", length=100000)["rc"] != 0, "READ from the dead went well")
    pair.again(pair.b)
    te_lab.wait_until("READ after the restart", lambda: pair.read()["rc"] == 0, 40)
    pair.again(pair.a)
    pair.read_well()


@both("one-nic", "one NIC there, two here (`MC_TE_FILTERS`)", size=4 * MB, theirs={"MC_TE_FILTERS": "rxe1"})
def one_nic(pair):
    pair.read_well(length=3000001)
    pair.exchange((4097, MB + 1), batches=False)


@both("cables", "the cable of a NIC pulled at the target, then at the initiator, and put back; READs all the while",
      size=4 * MB, nic=1)
def cables(pair):
    length = 3000001
    pair.read_well(length=length)
    for guest in (pair.b.guest, pair.a.guest):
        try:
            guest.cable(0, False)
            for _ in range(3):
                pair.read_well(length=length)
        finally:
            guest.cable(0, True)
        pair.read_well(length=length)


@both("gids", "the initiator's NICs have an address that the target's do not: unique-local IPv6", differs={
    "theirs": "as between two of theirs, no connection: theirs speaks from one address whatever the peer has; give it "
    "`MC_GID_INDEX`"})
def gids(pair):
    guest = pair.a.guest
    addresses = [f"fd77::{nic + 1}/64 dev eth{nic}" for nic in range(2)]
    try:
        guest.run("; ".join(f"ip addr add {a} nodad" for a in addresses) + "; nap 0.5")
        pair.again(pair.a)
        if pair.a.side == "theirs":
            expect(pair.read()["rc"] != 0, "theirs has found an address that both have")
        else:
            pair.read_well()
    finally:
        guest.run("; ".join(f"ip addr del {a}" for a in addresses))


@both("nic-down", "a NIC of the target has no link when the initiator first sees it", nic=1)
def nic_down(pair):
    guest = pair.b.guest
    try:
        guest.cable(0, False)
        guest.run("for ((n = 0; n < 200; n++)); do\n"
                  "[[ $(</sys/class/infiniband/rxe0/ports/1/state) == *DOWN ]] && break\nnap 0.05\ndone")
        pair.again(pair.a)
        pair.read_well()
    finally:
        guest.cable(0, True)


def bench(initiator):
    to, by = Lab.machine.guests if initiator == "ours" else Lab.machine.guests[::-1]
    target = "theirs" if initiator == "ours" else "ours"
    server = to.start_job(f"exec {Lab.bench(target)} {LOAD} --mode=target --local_server_name={to.ip()}")
    found = te_lab.wait_until("the bench's name", lambda: re.search(
        r"(?:^segment: |listening on )(\S+)", server.output() + server.errors(), re.M), 30)
    # Each says its name before its memory is registered.
    te_lab.wait_until("the bench's buffer", lambda: "taken" in by.run(
        f"{te_lab.BUILD}/bin/te_info --metadata_server=P2PHANDSHAKE --segment={found.group(1)}", check=False).output(), 30)
    for operation in ("read", "write"):
        done = by.run(f"{Lab.bench(initiator)} {LOAD} --operation={operation} --local_server_name={by.ip()} "
                      f"--segment_id={found.group(1)} {'--verify' if initiator == 'ours' else ''}", timeout=60)
        count = re.search(r"batch count (\d+)", done.output() + done.errors())
        expect(count and int(count.group(1)) > 0, str(done))
        if initiator == "ours":
            expect(" 0 errors" in done.output() + done.errors(), str(done))
    server.kill()


by_each("bench", "transfer_engine_bench READ and WRITE, ours with `--verify`; the other's is the target", bench)


# ---- What runs them ------------------------------------------------------------------------------

def provide():
    """The environment with the wheel, made on this host: guests reach no network."""
    made = subprocess.run([os.path.join(INTEROP, "run.sh"), "--prepare"], capture_output=True, text=True,
                          timeout=150, check=False)
    if made.returncode == 77:
        raise te_lab.Skip(made.stderr.strip().splitlines()[-1])
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def load(machine):
    """What says that the wheel does not load in a guest is the reason to skip."""
    ran = machine.guests[0].start_job(f"exec {Lab.venv}/bin/python -c 'from mooncake import engine'")
    if ran.wait(60):
        raise te_lab.Skip(f"Mooncake's wheel does not load: {ran.errors().strip().splitlines()[-1]}")


def make_finite(machine):
    """What theirs needs to hear of a peer that is gone."""
    path = os.path.join(machine.folder, "finite_retries.so")
    subprocess.run([*te.CC.split(), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", path,
                    os.path.join(te_lab.HERE, "finite_retries.c"), "-ldl"], check=True, timeout=60)


def rows():
    spec = importlib.util.spec_from_file_location("interop_run", os.path.join(INTEROP, "run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.rows(CASES)


def check_page():
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    held = text.partition(BEGIN)[2].partition(END)[0].strip()
    expect(held == "\n".join(rows()), f"{PAGE} holds other rows between its marks than {__file__} has; they are\n"
           + "\n".join(rows()))


def test(machine):
    Lab.machine, Lab.venv = machine, provide()
    load(machine)
    make_finite(machine)
    only = os.environ.get("TE_LAB_CASES", "").split()
    for case in CASES:
        if not only or any(word in case.name for word in only):
            begun = time.monotonic()
            case.run()
            print(f"{case.name}: {time.monotonic() - begun:.1f} s, {case.result}", flush=True)
    Lab.drop()
    check_page()


if __name__ == "__main__":
    print("\n".join(rows()))
