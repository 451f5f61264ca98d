# SPDX-License-Identifier: Apache-2.0
"""What is tried between the two engines: one function a row of docs/compat.md.

A case "works", or "differs" and says why; then the function asserts the difference itself, so that a row
is never older than what ran. The names of the cases are the first column of the table.
"""
import collections
import json
import os
import random
import re
import signal
import time

from te_interop import ENV, HERE, Failure, Ours, Theirs, TheirMaster, TheirMetad, Venv, te, te_stores

KB, MB = 1 << 10, 1 << 20
SIZES = (1, 2, 63, 4097, 64 * KB - 1, 64 * KB + 1, MB + 1, 5 * MB - 3, 64 * MB)
SMALL = (1, 4097, MB + 1)
GUARD = 64
V1 = {"MC_TCP_PROTO": "1"}
NO_CACHE = {"MC_DISABLE_METACACHE": "1"}

Case = collections.namedtuple("Case", "name group pair what result why run")
CASES = []


def case(name, group, pair, what, differs=None, **values):
    """Makes the function a case; `values` are handed to it."""
    def add(run):
        CASES.append(Case(name, group, pair, what, "differs" if differs else "works", differs or "",
                          lambda: run(**values)))
        return run
    return add


def sides(initiator):
    """(classes, words) of a pair."""
    pair = (Ours, Theirs) if initiator == "ours" else (Theirs, Ours)
    return pair, f"{pair[0].side} → {pair[1].side}"


def expect(condition, what):
    if not condition:
        raise Failure(what)


class Pair:
    """An initiator and a target, each with a region; a context."""
    count = 0

    def __init__(self, initiator, metadata=te.P2P, env=None, env_a=None, env_b=None, size=64 * KB,
                 host="127.0.0.1"):
        Pair.count += 1
        (first, second), _ = sides(initiator)
        names = (host, host) if metadata == te.P2P else (f"a{Pair.count}", f"b{Pair.count}")
        self.metadata, self.size = metadata, size
        self.b = second(names[1], metadata, env={**(env or {}), **(env_b or {})})
        self.a = first(names[0], metadata, env={**(env or {}), **(env_a or {})})
        self.local = self.a.register(size)
        self.remote = self.b.register(size)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.a.close()
        self.b.close()

    def ask(self, op, at=0, length=100, local=0, **more):
        return self.a.ask(op, target=self.b.segment, local=self.local + local, remote=self.remote + at,
                          length=length, **more)

    def do(self, op, **more):
        got = self.ask(op, **more)
        expect(got["rc"] == 0, f"{op} {more}: {got}\n{self.a}\n{self.b}")

    def fails(self, op, **more):
        got = self.ask(op, **more)
        expect(got["rc"] != 0, f"{op} {more} went well")
        return got

    def settled(self, peer, **words):
        """A check that may be early: version 1 of the framing does not acknowledge a WRITE."""
        te.until(lambda: peer.ask("check", **words)["rc"] == 0, lambda: f"{words}: {peer.last}")

    def fill(self, peer, addr, size, seed):
        """Random bytes and a margin around them, of which all is known."""
        peer.do("fill", addr=addr - GUARD, size=size + 2 * GUARD, seed=seed)

    def untouched(self, peer, addr, size, seed):
        peer.do("check", addr=addr - GUARD, size=GUARD, seed=seed)
        peer.do("check", addr=addr + size, size=GUARD, seed=seed, offset=GUARD + size)

    def round_trip(self, size):
        """One WRITE and one READ between odd places, of bytes that are new each time."""
        room = self.size - size - 2 * GUARD
        for op, source, sink in (("write", self.a, self.b), ("read", self.b, self.a)):
            places = {p: base + GUARD + random.randrange(room) // 2 * 2 + 1
                      for p, base in ((self.a, self.local - 1), (self.b, self.remote - 1))}
            seed, other = random.getrandbits(31), random.getrandbits(31)
            self.fill(source, places[source], size, seed)
            self.fill(sink, places[sink], size, other)
            self.do(op, local=places[self.a] - self.local, at=places[self.b] - self.remote, length=size)
            self.settled(sink, addr=places[sink], size=size, seed=seed, offset=GUARD)
            self.untouched(sink, places[sink], size, other)

    def batches(self, count=150):
        """Many pieces of odd sizes, next to each other here and in another order there."""
        lengths = [random.randrange(1, 40000) for _ in range(count)]
        places = dict(zip(range(count), offsets(lengths, range(count))))
        order = random.sample(range(count), count)
        there = dict(zip(order, offsets(lengths, order)))
        for op, source, sink in (("batch_write", self.a, self.b), ("batch_read", self.b, self.a)):
            seed = random.getrandbits(31)
            base = {self.a: self.local, self.b: self.remote}
            own = {self.a: places, self.b: there}
            source.do("fill", addr=base[source], size=sum(lengths), seed=seed)
            sink.do("fill", addr=base[sink], size=sum(lengths), seed=seed + 1)
            self.a.do(op, target=self.b.segment, length=lengths,
                      local=[self.local + places[i] for i in range(count)],
                      remote=[self.remote + there[i] for i in range(count)])
            for i in range(count):
                self.settled(sink, addr=base[sink] + own[sink][i], size=lengths[i], seed=seed,
                             offset=own[source][i])

    def exchange(self, sizes=SMALL, batches=True):
        for size in sizes:
            self.round_trip(size)
        if batches:
            self.batches()


def offsets(lengths, order):
    at = 0
    for i in order:
        yield at
        at += lengths[i]


def both(name, group, what, differs=None, **values):
    """The case once for each initiator; `differs` maps the initiator to the difference it has."""
    def add(run):
        for initiator in ("ours", "theirs"):
            case(f"{name}-{initiator}", group, sides(initiator)[1], what, (differs or {}).get(initiator),
                 initiator=initiator, **values)(run)
        return run
    return add


# ---- Transfers -----------------------------------------------------------------------------------

TRANSFERS = "Transfers over TCP"
DATA = "READ and WRITE of 1 B to 64 MiB at odd places, batches of 150"


def transfer(initiator, version, pool):
    env = {"MC_TCP_PROTO": version, "MC_TCP_ENABLE_CONNECTION_POOL": pool}
    with Pair(initiator, env_a=env, size=64 * MB + 16 * KB) as pair:
        pair.exchange(SIZES)


for v in "21":
    for p, kept in (("1", "kept"), ("0", "one per request")):
        both(f"tcp-v{v}-{'pool' if p == '1' else 'single'}", TRANSFERS,
             f"version {v}, connections {kept}: {DATA}", version=v, pool=p)(transfer)


@both("polled", TRANSFERS, "20 WRITEs submitted, each asked for in a loop until it has ended")
def polled(initiator):
    with Pair(initiator, size=8 * MB) as pair:
        for i in range(20):
            length = random.randrange(1, 7 * MB)
            pair.a.do("fill", addr=pair.local + i, size=length, seed=i)
            pair.do("polled_write", local=i, at=2 * i, length=length)
            pair.b.do("check", addr=pair.remote + 2 * i, size=length, seed=i)


@both("zero-length", TRANSFERS, "READ and WRITE of no bytes: done at once, nothing moves")
def zero_length(initiator):
    with Pair(initiator) as pair:
        pair.b.do("fill", addr=pair.remote, size=pair.size, seed=1)
        pair.do("read", length=0)
        pair.do("write", length=0)
        pair.b.do("check", addr=pair.remote, size=pair.size, seed=1)


@both("crowd", TRANSFERS, "four initiators at once, each in memory of its own")
def crowd(initiator):
    (first, second), _ = sides(initiator)
    size, part = 8 * MB, 2 * MB
    with second() as target:
        remote = target.register(size, seed=1)
        peers = [first() for _ in range(4)]
        places = [(peer, peer.register(part, seed=10 + i), remote + i * part) for i, peer in enumerate(peers)]
        for op in ("write", "read"):
            for peer, local, there in places:
                peer.send(op, target=target.segment, local=local, remote=there, length=part)
            for peer in peers:
                got = peer.reply()
                expect(got["rc"] == 0, f"{op}: {got}")
            for i, (peer, local, there) in enumerate(places):
                target.do("check", addr=there, size=part, seed=10 + i)
                target.do("fill", addr=there, size=part, seed=10 + i)
                peer.do("fill" if op == "write" else "check", addr=local, size=part, seed=10 + i)
        for peer in peers:
            peer.close()


@both("ipv6", TRANSFERS, "over [::1], `MC_USE_IPV6` on both sides")
def ipv6(initiator):
    env = {"MC_USE_IPV6": "1", "MC_TCP_BIND_ADDRESS": "::1"}
    with Pair(initiator, env=env, host="[::1]", size=8 * MB) as pair:
        pair.exchange()


@both("both-ways", TRANSFERS, "each reads from and writes to the other at the same time, 20 times 4 MiB")
def both_ways(initiator):
    part = 4 * MB
    with Pair(initiator, size=4 * part) as pair:
        moves = ((pair.a, pair.b, pair.local, pair.remote), (pair.b, pair.a, pair.remote, pair.local))
        for i in range(20):
            op, shift = ("write", part) if i % 2 else ("read", 2 * part)
            for peer, _, own, _ in moves:
                peer.do("fill", addr=own, size=part, seed=2 * i + (peer is pair.a))
            for peer, other, own, there in moves:
                ends = {"local": own, "remote": there + shift} if op == "write" else \
                    {"local": own + shift, "remote": there}
                peer.send(op, target=other.segment, length=part, **ends)
            for peer, *_ in moves:
                got = peer.reply()
                expect(got["rc"] == 0, f"{op}: {got}\n{peer}")
            for peer, _, own, _ in moves:
                peer.do("check", addr=own + shift, size=part, seed=2 * i + (peer is pair.b))


# ---- Metadata ------------------------------------------------------------------------------------

METADATA = "Metadata"
SERVERS = {"te-metad": (te_stores.Metad, "our te_metad"),
           "their-http": (TheirMetad, "their mooncake.http_metadata_server"),
           "etcd": (te_stores.Etcd, "etcd")}


def store(initiator, server, cluster=None):
    env = {"MC_METADATA_CLUSTER_ID": cluster} if cluster else None
    with SERVERS[server][0]() as service, Pair(initiator, service.url, env=env, size=8 * MB) as pair:
        pair.exchange()
        keys = [key for peer in (pair.a, pair.b)
                for key in te_stores.keys_of(peer.segment, f"{cluster}/" if cluster else "")]
        there = [key for key in keys if service.get(key) is not None]
        expect(there == keys, f"{there} of {keys}")
        pair.do("write", notify=["note", "from here"])
        te.until(lambda: pair.b.ask("notifies")["list"] == [["note", "from here"]], "the note")
        pair.a.do("probe", target=pair.b.segment)
        expect(pair.a.do("first_buffer", target=pair.b.segment)["addr"] == pair.remote, "the first buffer")
        expect((pair.a.leave(), pair.b.leave()) == (0, 0), "an exit status")
        left = [key for key in keys if service.get(key) is not None]
        expect(not left, f"left: {left}")


for key, (_, words) in SERVERS.items():
    both(key, METADATA, f"{words}: data, notify, probe, first buffer; no key is left", server=key)(store)
both("cluster", METADATA, "`MC_METADATA_CLUSTER_ID` on both sides, our te_metad", server="te-metad",
     cluster="west")(store)


def commits(service):
    try:
        service.put("interop", "x")
    except (AssertionError, OSError):
        return False
    return True


@both("etcd-cluster", METADATA, "three members of etcd, all in the connection string; one is killed, and once the others "
      "have a leader both engines go on")
def etcd_cluster(initiator):
    cluster = te_stores.EtcdCluster()
    try:
        with Pair(initiator, cluster.url, size=8 * MB) as pair:
            pair.exchange((999,), batches=False)
            cluster.members[0].kill()
            te.until(lambda: commits(cluster.living()), "a leader")
            pair.remote = pair.b.register(8 * MB)
            pair.exchange((999,), batches=False)
            (first, _), _ = sides(initiator)
            with first("fresh", cluster.url) as fresh:
                local = fresh.register(100)
                fresh.do("read", target=pair.b.segment, local=local, remote=pair.remote, length=100)
    finally:
        cluster.close()


@both("etcd-bare", METADATA, "`host:port` without a scheme, which means etcd")
def etcd_bare(initiator):
    with te_stores.Etcd() as service, Pair(initiator, service.address) as pair:
        pair.exchange((999,), batches=False)


@both("te-metad-restart", METADATA, "our te_metad with `--data-dir`, killed and started again: both go on")
def metad_restart(initiator):
    with te_stores.Metad(durable=True) as service, Pair(initiator, service.url) as pair:
        pair.exchange((999,), batches=False)
        service.restart()
        pair.remote = pair.b.register(pair.size)
        pair.exchange((999,), batches=False)
        with type(pair.a)("fresh", service.url) as fresh:
            local = fresh.register(100)
            fresh.do("read", target=pair.b.segment, local=local, remote=pair.remote, length=100)


@both("legacy-ports", METADATA, "`MC_LEGACY_RPC_PORT_BINDING` on both sides: the name says host and port")
def legacy_ports(initiator):
    env = {**ENV, "MC_LEGACY_RPC_PORT_BINDING": "1"}
    (first, second), _ = sides(initiator)
    with te_stores.Metad() as service:
        names = [f"127.0.0.1:{te.free_port()}" for _ in range(2)]
        with second(names[1], service.url, env=env) as target, first(names[0], service.url, env=env) as peer:
            where = json.loads(service.get(te_stores.keys_of(names[1])[0]))
            expect(f"{where['ip_or_host_name']}:{where['rpc_port']}" == names[1], f"{where}")
            remote, local = target.register(100, seed=1), peer.register(100)
            peer.do("read", target=names[1], local=local, remote=remote, length=100)
            peer.do("check", addr=local, size=100, seed=1)
            peer.do("probe", target=names[1])


@case("redis", METADATA, "theirs", "redis as the metadata server",
      differs="the wheel is built without redis, and ends the process; a build of theirs with redis and "
      "ours would use the same keys (not run)")
def redis():
    with te_stores.Redis() as service, Theirs(start=False) as peer:
        peer.send("init", name="a", metadata=service.url)
        expect(peer.wait() == -signal.SIGABRT, f"it did not abort: {peer}")
        peer.wait_error("Unable to find metadata storage plugin redis")


# ---- Notify, probe -------------------------------------------------------------------------------

CONTROL = "Notify and probe"


@both("notify", CONTROL, "messages with WRITEs, of any text up to 60,000 bytes; in order")
def notify(initiator):
    texts = [["a", "b"], ["name", "line\nline"], ["ü€", "\"quoted\" \\ \t"], ["long", "x" * 60000]]
    with Pair(initiator) as pair:
        for text in texts:
            pair.do("write", notify=text)
        got = []
        te.until(lambda: got.extend(pair.b.ask("notifies")["list"]) or len(got) >= len(texts),
                        lambda: got)
        expect(got == texts, f"{got}")
        expect(pair.b.ask("notifies")["list"] == [], "told twice")


@case("notify-alone", CONTROL, "ours → theirs", "a message without a transfer")
def notify_alone():
    with Pair("ours") as pair:
        pair.a.do("notify", target=pair.b.segment, name="n", msg="m")
        expect(pair.b.ask("notifies")["list"] == [["n", "m"]], f"{pair.b.last}")


@both("probe", CONTROL, "of a peer that lives, that was killed, and of a port where nobody is")
def probe(initiator):
    with Pair(initiator) as pair:
        pair.a.do("probe", target=pair.b.segment)
        pair.b.kill()
        for target in (pair.b.segment, f"127.0.0.1:{te.dead_port()}"):
            expect(pair.a.ask("probe", target=target)["rc"] != 0, f"{target} lives")


def tool(program, service, *words):
    """What one of our tools prints."""
    ran = te.run(program, f"--metadata_server={service.url}", *words, env=ENV)
    expect(ran.rc == 0, f"{ran}")
    return ran.output()


# ---- Restart -------------------------------------------------------------------------------------

RESTART = "Restart"
KEEPS = ("theirs asks for a peer's address once and never again: it goes on with the old port, until it is "
         "started again or has {}")


def restart(pair, name=None):
    """Kills the target and starts another of its name, on other ports, with other memory."""
    pair.exchange((999,), batches=False)
    pair.b.kill()
    pair.fails("write")
    pair.b = type(pair.b)(name or pair.b.segment, pair.metadata)
    pair.remote = pair.b.register(pair.size)


@case("restart-theirs", RESTART, "ours → theirs",
      "theirs is killed and starts again at its name, on our te_metad: the next transfer finds it")
def restart_theirs():
    with te_stores.Metad() as service, Pair("ours", service.url) as pair:
        restart(pair)
        pair.exchange((1, 9999), batches=False)
        pair.a.do("probe", target=pair.b.segment)


@case("restart-theirs-etcd", RESTART, "ours → theirs", "the same on etcd")
def restart_theirs_etcd():
    with te_stores.Etcd() as service, Pair("ours", service.url) as pair:
        restart(pair)
        pair.exchange((1, 9999), batches=False)


@case("restart-theirs-their-http", RESTART, "ours → theirs", "the same on their metadata server",
      differs="their server refuses a second `rpc_meta` of one name, so their engine does not start; after our "
      "`te_segment unregister NAME` it does. On our te_metad it starts at once")
def restart_theirs_their_http():
    with TheirMetad() as service, Pair("ours", service.url) as pair:
        name = pair.b.segment
        pair.b.kill()
        with Theirs(start=False) as again:
            expect(again.start(name, service.url)["rc"] != 0, "it started")
            again.wait_error("Duplicate rpc_meta key not allowed")
        tool("te_segment", service, "unregister", name)
        pair.b = Theirs(name, service.url)
        pair.remote = pair.b.register(pair.size)
        pair.exchange((999,), batches=False)


def restart_ours(server, env=None, found=True, probed=True):
    with SERVERS[server][0]() as service, Pair("theirs", service.url, env_a=env) as pair:
        restart(pair)
        if found:
            pair.exchange((1, 9999), batches=False)
        else:
            pair.fails("write")
        lives = pair.a.ask("probe", target=pair.b.segment)["rc"] == 0
        expect(lives == probed, f"probe: {lives}")
        with Theirs("fresh", service.url) as fresh:
            local = fresh.register(100, seed=1)
            fresh.do("write", target=pair.b.segment, local=local, remote=pair.remote, length=100)
            fresh.do("probe", target=pair.b.segment)


case("restart-ours", RESTART, "theirs → ours",
     "ours is killed and starts again at its name, on our te_metad; a new process of theirs finds it at once",
     differs=KEEPS.format("`MC_DISABLE_METACACHE` set"), server="te-metad", found=False,
     probed=False)(restart_ours)
case("restart-ours-their-http", RESTART, "theirs → ours",
     "the same on their metadata server, which refuses a second `rpc_meta`: ours deletes its dead one first",
     differs=KEEPS.format("`MC_DISABLE_METACACHE` set"), server="their-http", found=False,
     probed=False)(restart_ours)
case("restart-ours-no-cache", RESTART, "theirs → ours",
     "the same on etcd, with `MC_DISABLE_METACACHE` on their side: the next transfer finds it",
     differs="their probe still asks at the old port", server="etcd", env=NO_CACHE, probed=False)(restart_ours)


@case("restart-ours-refresh", RESTART, "theirs → ours",
      "the same with `MC_TE_METADATA_REFRESH_INTERVAL_SECONDS` of 1 on their side instead: found in seconds")
def restart_ours_refresh():
    env = {"MC_TE_METADATA_REFRESH_INTERVAL_SECONDS": "1"}
    with te_stores.Etcd() as service, Pair("theirs", service.url, env_a=env) as pair:
        restart(pair)
        te.until(lambda: pair.ask("read")["rc"] == 0, "a READ")
        pair.exchange((999,), batches=False)


@case("restart-ours-p2p", RESTART, "theirs → ours",
      "P2PHANDSHAKE, ours again at its host:port, `MC_DISABLE_METACACHE` on their side: the next transfer "
      "finds it")
def restart_ours_p2p():
    with Pair("theirs", env_a=NO_CACHE) as pair:
        segment = pair.b.segment
        restart(pair)
        expect(pair.b.segment == segment, f"now at {pair.b.segment}")
        pair.exchange((1, 9999), batches=False)
        pair.a.do("probe", target=segment)


@case("stale-memory", RESTART, "ours → theirs",
      "theirs was killed and starts again at its name; ours asks for memory of the dead one",
      differs="theirs takes the dead one's buffers out of the metadata as its own and tries to serve them: "
      "TE_ERR_LINK where nothing is there any more, other memory of it where something is. Delete "
      "`ram/NAME` before it starts again; ours begins with no buffers")
def stale_memory():
    with te_stores.Metad() as service, Pair("ours", service.url) as pair:
        pair.b.kill()
        pair.b = Theirs(pair.b.segment, service.url)
        buffers_told = json.loads(service.get(te_stores.keys_of(pair.b.segment)[1]))["buffers"]
        expect([b["addr"] for b in buffers_told] == [pair.remote], f"{buffers_told}")
        got = pair.ask("read")
        expect(got["rc"] in (0, -405), f"{got}")


@case("stale-overlap", RESTART, "ours → theirs",
      "the same where the new memory lies in the dead one's: the new one counts")
def stale_overlap():
    with te_stores.Metad() as service, Pair("ours", service.url) as pair:
        pair.b.kill()
        pair.b = Theirs(pair.b.segment, service.url)
        pair.remote = pair.b.register(pair.size)
        key = te_stores.keys_of(pair.b.segment)[1]
        told = json.loads(service.get(key))
        expect([b["addr"] for b in told["buffers"]][1:] == [pair.remote], f"{told}")
        # Where it lay is chance.
        told["buffers"][0]["addr"] = pair.remote - 4096
        service.put(key, json.dumps(told))
        pair.exchange((999,), batches=False)


@case("stale-memory-ours", RESTART, "theirs → ours", "the same with ours killed: refused, nothing is touched")
def stale_memory_ours():
    with te_stores.Metad() as service, Pair("theirs", service.url, env_a=NO_CACHE) as pair:
        old = pair.remote
        restart(pair)
        expect(old != pair.remote, "the memory lies where the old one lay")
        pair.remote, new = old, pair.remote
        for op in ("read", "write"):
            pair.fails(op)
        pair.remote = new
        pair.exchange((999,), batches=False)


@both("killed-initiator", RESTART, "the initiator is killed while it writes 64 MiB; the target serves the next")
def killed_initiator(initiator):
    (first, _), _ = sides(initiator)
    with Pair(initiator, size=8 * MB) as pair:
        # What was sent before arrives after, too: in memory of its own.
        remote = pair.b.register(64 * MB)
        for wait in (0.0, 0.005, 0.02):
            with first() as doomed:
                local = doomed.register(64 * MB)
                doomed.send("write", target=pair.b.segment, local=local, remote=remote, length=64 * MB)
                time.sleep(wait)
                doomed.kill()
        pair.exchange()


@both("killed-target", RESTART, "the target is killed under a READ of 64 MiB: it fails, the engine goes on")
def killed_target(initiator):
    (_, second), _ = sides(initiator)
    with Pair(initiator, size=64 * MB) as pair, second() as other:
        os.kill(pair.b.pid, signal.SIGSTOP)
        pair.a.send("read", target=pair.b.segment, local=pair.local, remote=pair.remote, length=64 * MB)
        time.sleep(0.1)
        pair.b.kill()
        got = pair.a.reply()
        expect(got["rc"] != 0, f"{got}")
        remote = other.register(1000, seed=7)
        pair.a.do("read", target=other.segment, local=pair.local, remote=remote, length=1000)
        pair.a.do("check", addr=pair.local, size=1000, seed=7)


# ---- Memory --------------------------------------------------------------------------------------

MEMORY = "Memory"


@both("more-memory", MEMORY, "the target registers more after it was opened: it can be used at once")
def more_memory(initiator):
    with Pair(initiator) as pair:
        pair.exchange((100,), batches=False)
        for i in range(5):
            pair.remote = pair.b.register(pair.size, align=i)
            pair.exchange((999,), batches=False)


@both("unregister", MEMORY, "memory that the target unregistered is refused; the rest goes on")
def unregister(initiator):
    with Pair(initiator) as pair:
        other = pair.b.register(pair.size, seed=5)
        pair.exchange((100,), batches=False)
        pair.b.do("unregister", addr=pair.remote)
        for op in ("read", "write"):
            got = pair.fails(op)
            expect(initiator == "theirs" or got["rc"] == -407, f"{got}")
        pair.remote = other
        pair.exchange((1, 999), batches=False)


def buffers(initiator, count, env=None):
    """The descriptor with all buffers, and 200 pieces of it."""
    size, pieces = 64, 200
    (first, second), _ = sides(initiator)
    with second(env=env) as target, first(env=env) as peer:
        remote = target.register(size, count=count, seed=1)
        local = peer.register(size * pieces)
        picked = random.sample(range(count), pieces)
        words = {"target": target.segment, "local": [local + k * size for k in range(pieces)],
                 "remote": [remote + i * size for i in picked], "length": [size] * pieces}
        got = peer.ask("batch_read", **words)
        if got["rc"]:
            return got
        for k, i in enumerate(picked):
            peer.do("check", addr=local + k * size, size=size, seed=1, offset=i * size)
        target.do("unregister", addr=remote, count=count, size=size)
        return got


@both("many-buffers", MEMORY, "a descriptor of 5,000 buffers, and READs of 200 of them", count=5000)
def many_buffers(initiator, count, env=None):
    got = buffers(initiator, count, env)
    expect(got["rc"] == 0, f"{got}")


case("too-many-buffers", MEMORY, "theirs → ours", "a descriptor of 30,000 buffers, with "
     "`MC_HANDSHAKE_MAX_LENGTH` of 16 MiB on their side", initiator="theirs", count=30000,
     env={"MC_HANDSHAKE_MAX_LENGTH": str(16 * MB)})(many_buffers)


@case("too-many-buffers-default", MEMORY, "theirs → ours", "the same without",
      differs="theirs takes no descriptor over 1 MiB, some 15,000 buffers, unless `MC_HANDSHAKE_MAX_LENGTH` "
      "allows it")
def too_many_buffers():
    expect(buffers("theirs", 30000)["rc"] != 0, "it went well")


# ---- Errors --------------------------------------------------------------------------------------

ERRORS = "Errors"


def bad_range(initiator, version):
    """Ranges over the end, before the beginning, and of an address where nothing is."""
    silent = 0
    with Pair(initiator, env_a={"MC_TCP_PROTO": version}) as pair:
        pair.exchange((100,), batches=False)
        pair.b.do("fill", addr=pair.remote, size=pair.size, seed=3)
        for op in ("read", "write"):
            for at, length in 3 * ((pair.size - 10, 20), (-10, 20), (-pair.remote + 4096, 100)):
                got = pair.ask(op, at=at, length=length)
                silent += op == "write" and got["rc"] == 0
                expect(got["rc"] != 0 or (op, version) == ("write", "1"), f"{op} at {at}: {got}")
                expect(initiator == "theirs" or (got["rc"], got["state"]) == (-407, 2), f"{got}")
        te.until(lambda: pair.ask("read")["rc"] == 0, "a READ that goes well again")
        pair.b.do("check", addr=pair.remote, size=pair.size, seed=3)
    expect((silent > 0) == (version == "1"), f"{silent} WRITEs were called done")


case("bad-range-ours", ERRORS, "ours → theirs", "a range that the target has not: INVALID, TE_ERR_STALE, and "
     "nothing is sent", initiator="ours", version="2")(bad_range)
case("bad-range-theirs", ERRORS, "theirs → ours", "the same in version 2: -1; nothing is touched",
     initiator="theirs", version="2")(bad_range)
case("bad-range-theirs-v1", ERRORS, "theirs → ours", "the same in version 1: nothing is touched",
     differs="version 1 has no answer to a WRITE, so theirs calls it done; the next transfer on that "
     "connection may fail in its place", initiator="theirs", version="1")(bad_range)


@case("stopped-target", ERRORS, "ours → theirs",
      "the target is stopped: TIMEOUT after `TE_TRANSFER_TIMEOUT_MS`, and works again when it goes on")
def stopped_target():
    with Pair("ours", env_a={"TE_TRANSFER_TIMEOUT_MS": "1500"}, size=8 * MB) as pair:
        pair.exchange((100,), batches=False)
        pair.b.freeze()
        got = pair.fails("read", length=8 * MB)
        expect(got["rc"] == -400, f"{got}")
        os.kill(pair.b.pid, signal.SIGCONT)
        pair.exchange((999,), batches=False)


@case("stopped-target-theirs", ERRORS, "theirs → ours",
      "the same with ours stopped: -1 after `MC_TRANSFER_TIMEOUT` (5 s here), and works again",
      differs="their call returns while the READ is under way, and the bytes arrive later")
def stopped_target_theirs():
    with Pair("theirs", size=8 * MB) as pair:
        pair.exchange((100,), batches=False)
        pair.b.freeze()
        pair.fails("read", length=4 * MB)
        pair.a.do("fill", addr=pair.local, size=4 * MB, seed=8)
        os.kill(pair.b.pid, signal.SIGCONT)
        te.until(lambda: pair.a.ask("check", addr=pair.local, size=4 * MB, seed=8)["rc"] != 0,
                        "a late write")
        pair.b.do("fill", addr=pair.remote + 5 * MB, size=MB, seed=9)
        te.until(lambda: pair.ask("read", at=5 * MB, local=5 * MB, length=MB)["rc"] == 0, "a READ")
        pair.a.do("check", addr=pair.local + 5 * MB, size=MB, seed=9)


# ---- Other makes ---------------------------------------------------------------------------------

OTHERS = "Transports that only theirs has"
BUFFER = {"addr": 4096, "length": 4096, "name": "x"}
RDMA = {"devices": [{"name": "d0", "lid": 0, "gid": ":".join(["00"] * 16)}],
        "priority_matrix": {"cpu:0": [["d0"], []]}, "buffers": [{**BUFFER, "lkey": [1], "rkey": [1]}]}
HANDLE = {"buffers": [{**BUFFER, "shm_name": "AB" * 64}]}
# What their builds with these publish; there is no device of them here to do it with.
SEGMENTS = {
    "ascend": {"devices": [{"name": "d", "lid": 0}], "buffers": [{**BUFFER, "device_id": 0}], "rank_info": {}},
    "ascend_direct": {"buffers": [BUFFER]}, "heterogeneous": RDMA, "efa": RDMA, "cxi": RDMA, "barex": RDMA,
    "ub": {"devices": [{"name": "d", "eid": "e"}], "buffers": [{**BUFFER, "tseg": [1]}], "priority_matrix": {}},
    "ubshmem": HANDLE, "maca": HANDLE, "musa": HANDLE, "sunrise_link": HANDLE,
    "nccl": {"buffers": [{**BUFFER, "device_id": 0}]},
    "cxl": {"cxl_name": "/dev/dax0.0", "cxl_base_addr": 4096,
            "buffers": [{"name": "x", "offset": 0, "length": 4096}]},
}


@case("other-transports", OTHERS, "ours → theirs",
      "segments as builds of theirs with " + ", ".join(SEGMENTS) + " publish them, and install of each",
      differs="TE_ERR_UNSUPPORTED, with a text that names segment and protocol; probe and notify work")
def other_transports():
    with te_stores.Metad() as service, Pair("ours", service.url,
                                            env_a={"MC_CXL_DEV_PATH": "/dev/dax0.0"}) as pair:
        for name, keys in SEGMENTS.items():
            where = {"ip_or_host_name": "127.0.0.1", "rpc_port": pair.b.port}
            told = {"name": name, "protocol": name, "tcp_data_port": 0, "tcp_proto_version": 1,
                    "timestamp": "2026-01-01 00:00:00.000000", **keys}
            for key, value in zip(te_stores.keys_of(name), (where, told)):
                service.put(key, json.dumps(value))
            got = pair.a.ask("read", target=name, local=pair.local, remote=4096, length=100)
            expect(got["rc"] == -409 and f"segment '{name}'" in got["error"], f"{got}")
            got = pair.a.ask("install", protocol=name)
            known = name in ("ascend", "maca", "musa") # which are built in, and have no device here
            expect(got["rc"] == -409 and (known or f"transport '{name}' is not built in" in got["error"]), f"{got}")
            pair.a.do("probe", target=name)
            pair.a.do("notify", target=name, name="n", msg=name)
        expect([msg for _, msg in pair.b.do("notifies")["list"]] == list(SEGMENTS), f"{pair.b.last}")
        service.put("mooncake/ram/cxl", json.dumps({"name": "cxl", "protocol": ["tcp", "ascend"]}))
        with Ours("fresh", service.url) as fresh:
            got = fresh.ask("read", target="cxl", local=0, remote=0, length=1)
            expect(got["rc"] == -103 and "protocol" in got["error"], f"{got}")
        pair.exchange((999,), batches=False)


# ---- Tools ---------------------------------------------------------------------------------------

TOOLS = "Tools"
LOAD = ("--protocol=tcp", "--buffer_size=8388608", "--threads=2", "--batch_size=4", "--block_size=65536",
        "--duration=1")


def their_bench(*flags):
    return te.Proc([Venv.bench(), *LOAD, *flags], env=Theirs.env)


def addresses(server):
    """(context, url, names) of a place to meet."""
    if server == te.P2P:
        return None, te.P2P, ("127.0.0.1", "127.0.0.1")
    service = te_stores.Metad()
    return service, service.url, ("bench-a", "bench-b")


def end(*processes):
    for process in processes:
        if process:
            process.close()


def bench_of_theirs(server):
    service, url, (first, second) = addresses(server)
    target = te.Target(metadata=url, name=second, env=Ours.env)
    for operation in ("read", "write"):
        with their_bench("--mode=initiator", f"--metadata_server={url}", f"--local_server_name={first}",
                         f"--segment_id={target.segment}", f"--operation={operation}") as bench:
            expect(bench.wait() == 0, f"{bench}")
            done = re.search(r"batch count (\d+)", bench.error_output())
            expect(done and int(done.group(1)) > 0, f"{bench}")
    expect(target.stop() == 0, f"{target}")
    end(target, service)


def bench_of_ours(server):
    service, url, (first, second) = addresses(server)
    target = their_bench("--mode=target", f"--metadata_server={url}", f"--local_server_name={second}")
    target.wait_error("DRAM is used")
    segment = second if service else re.search(r"listening on (\S+)", target.error_output()).group(1)
    asked = ("te_info", f"--metadata_server={url}", f"--segment={segment}")
    te.until(lambda: "taken" in te.run(*asked, env=Ours.env).output(), "their bench's buffer")
    flags = (f"--metadata_server={url}", f"--local_server_name={first}", f"--segment_id={segment}", *LOAD)
    for program, more in (("transfer_engine_bench", "--operation=read"),
                          ("transfer_engine_bench", "--operation=write"),
                          ("transfer_engine_bench", "--verify=true"), ("transfer_engine_validator", "--threads=1")):
        ran = te.run(program, *flags, more, env=Ours.env)
        expect(ran.rc == 0, f"{ran}")
        if more == "--verify=true":
            expect(re.search(r"^Verified: [1-9]\d* bytes, 0 errors", ran.output(), re.M), f"{ran}")
    target.stop(signal.SIGINT)
    end(target, service)


for key, words in ((te.P2P, "P2PHANDSHAKE"), ("http", "our te_metad")):
    case(f"bench-ours-{'p2p' if key == te.P2P else key}", TOOLS, "ours → theirs",
         f"our transfer_engine_bench (READ, WRITE, `--verify`) and validator, their bench the target; {words}",
         server=key)(bench_of_ours)
    case(f"bench-theirs-{'p2p' if key == te.P2P else key}", TOOLS, "theirs → ours",
         f"their transfer_engine_bench (READ, WRITE), ours the target; {words}", server=key)(bench_of_theirs)


@case("te-segment", TOOLS, "ours → theirs", "our te_segment (list, show) and te_info over a segment of theirs")
def te_segment():
    with te_stores.Metad() as service, Pair("ours", service.url) as pair:
        name = pair.b.segment
        listed = tool("te_segment", service, "list")
        expect(re.search(rf"^{name} .*tcp .*127\.0\.0\.1:\d+ +yes *$", listed, re.M), listed)
        shown = tool("te_segment", service, "show", name)
        expect(re.search(rf"^buffers +1, {pair.size} bytes$", shown, re.M), shown)
        explained = tool("te_info", service, f"--segment={name}")
        expect(re.search(r"transport tcp: score \d+, taken", explained), explained)


@case("overlay", TOOLS, "ours → theirs", "`TRANSFER_ENGINE_OVERLAY=1`: their mooncake.store and our mooncake.engine in "
      "one process, objects stored and bytes moved to their engine and back")
def overlay():
    python, program = Venv.with_ours(), os.path.join(HERE, "overlay.py")
    for value, ours in (("0", False), ("1", True)):
        told = te.call(python, program, env={**os.environ, **ENV, "TRANSFER_ENGINE_OVERLAY": value})
        expect((told.stdout.strip() == "transfer_engine.mooncake") == ours, f"{told}")
    with TheirMaster() as master, Theirs() as target:
        ran = te.call(python, program, str(master.port), target.segment, str(target.register(MB)),
                      env={**os.environ, **ENV, "TRANSFER_ENGINE_OVERLAY": "1"})
        expect(ran.returncode == 0 and ran.stdout.endswith("fine\n"), f"{ran}")
