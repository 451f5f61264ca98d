#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what two engines of a version say to each other, and to metadata servers.

  tests/past/record.py VERSION           writes tests/past/VERSION/*.txt
  tests/past/record.py VERSION --check   records into a temporary folder, and compares what was said

VERSION is one of scripts/past.sh --list, which builds it. What the target listens on is a network
namespace of its own; in the one of the initiator this script listens at the same addresses and passes
everything on. So the bytes are those that the engines send, and the addresses the same in every run.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))

import te_hosts  # noqa: E402
import te_past as past  # noqa: E402
import te_past_play as play  # noqa: E402
import te_proc as te  # noqa: E402
import te_rdma  # noqa: E402
import te_stores  # noqa: E402

TARGET, INITIATOR = "127.0.0.1:15591", "127.0.0.1:15592"
STORE_OPTIONS = ("TE_HOST_PATH=0", "TE_METADATA_TTL_S=3600")  # keys need not be kept alive meanwhile
INSIDE = "TE_PAST_INSIDE"


class There:
    """A network namespace, whose lo is up, for the target. `prefix` runs a program in it."""

    def __init__(self):
        self.holder = te.Proc(["unshare", "--net", "sleep", "600"])
        self.path = f"/proc/{self.holder.pid}/ns/net"
        te.until(lambda: os.readlink(self.path) != os.readlink("/proc/self/ns/net"), "a namespace")
        self.prefix = ["nsenter", f"--net={self.path}"]
        self.run(te_hosts.ip, "link", "set", "lo", "up")

    def run(self, work, *args):
        return te_hosts.within(self.path, work, *args)


class Proxy:
    """Listens at an address, passes what comes on to the same address there, and notes it. With `upstream`
    that is a server, whose clients speak one at a time: what they say is noted as one conversation."""

    def __init__(self, address, there, kind, upstream=None):
        self.address, self.there, self.kind, self.upstream = address, there, kind, upstream
        self.connections, self.threads = [[]] if upstream else [], []
        self.cut = None
        self.listener = socket.create_server(address)
        self.threads.append(threading.Thread(target=self.accept, daemon=True))
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = te.connect(self.upstream) if self.upstream else self.there.run(te.connect, self.address)
            server.settimeout(None)
            chunks = self.connections[0] if self.upstream else []
            if not self.upstream:
                self.connections.append(chunks)
            log = [chunks]
            for way in ((">", client, server), ("<", server, client)):
                thread = threading.Thread(target=self.pump, args=(log, *way), daemon=True)
                self.threads.append(thread)
                thread.start()

    def pump(self, log, direction, source, sink):
        try:
            while data := source.recv(1 << 20):
                if direction == ">" and self.cut is not None:
                    data, self.cut = data[:self.cut], None
                    self.note(log[0], direction, data)
                    sink.sendall(data)
                    source.shutdown(socket.SHUT_RDWR)
                    return  # the other side is left as it is, with a request that has begun
                if data.startswith(b"POST /v3/watch "):
                    log[0] = []  # for etcd's changes; an engine that lives for a moment only does not come to it
                self.note(log[0], direction, data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @staticmethod
    def note(chunks, direction, data):
        if chunks and chunks[-1][0] == direction:
            chunks[-1] = (direction, chunks[-1][1] + data)
        else:
            chunks.append((direction, data))

    def close(self):
        """What was said. The engines have ended."""
        self.listener.shutdown(socket.SHUT_RDWR)  # which ends accept()
        self.threads.pop(0).join()
        self.listener.close()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive(), f"a connection to {self.address} is still open"
        return [(self.kind, chunks) for chunks in self.connections if chunks]


def native_messages(chunks):
    """One message for each frame: each answer stands behind the last request that it answers."""
    greeting, frames, rest = past.client_frames(past.sent(chunks, ">"))
    if greeting is None:
        return chunks
    answers = past.server_frames(past.sent(chunks, "<"), bool(greeting[10] & 1))
    messages = [(">", greeting)]
    at = 0
    for number, data in [(0, None)] + [(f.id, f.whole()) for f in frames]:
        if data:
            messages.append((">", data))
        while at < len(answers) and answers[at].id <= number:
            messages.append(("<", answers[at].whole()))
            at += 1
    whole = b"".join(data for way, data in messages if way == ">") + rest
    assert whole == past.sent(chunks, ">") and past.sent(messages, "<") == past.sent(chunks, "<")
    return messages + ([(">", rest)] if rest else [])


class Pair:
    """A target there and an initiator here, with what they say to each other."""

    def __init__(self, build, there, options=(), target_options=(), regions=(play.SIZE,)):
        self.target = build.peer(name=TARGET, prefix=there.prefix, options=("TE_HOST_PATH=0", *target_options))
        address = te.split_address(TARGET)
        self.regions = [self.target.region(size) for size in regions]
        for index, _ in self.regions:
            self.target.ask("fill", index, 0, play.SIZE, 1)
        descriptor = there.run(te.descriptor, address)
        self.handshake = Proxy(address, there, "handshake")
        self.data = Proxy((address[0], descriptor["tcp_data_port"]), there, "data")
        self.peer = build.peer(name=INITIATOR, options=("TE_HOST_PATH=0", "MC_TCP_LANES_PER_PEER=1", *options))
        self.index, _ = self.peer.region(play.SIZE)

    def open(self):
        return self.peer.open(TARGET), self.index, self.regions[0][1]

    def close(self):
        assert self.peer.quit() == 0, self.peer
        assert self.target.quit() == 0, self.target
        return self.handshake.close() + [(kind, native_messages(chunks)) for kind, chunks in self.data.close()]


def handshake(build, there):
    pair = Pair(build, there, regions=())
    pair.target.region(4096)
    segment = pair.peer.open(TARGET)
    pair.peer.ask("notify", segment, "name", "text")
    pair.peer.ask("probe", TARGET)
    assert pair.target.ask("inbox") == ["1", "name=text"]
    return pair.close()


def pages(build, there):
    """An engine asks for pages of 1 MiB and more, so it is this script that asks."""
    pair = Pair(build, there, regions=())
    pair.target.ask("regions", 100, 4096)
    begin = 0
    while begin < 100:
        asked = f'{{"te":{{"page":{{"from":{begin},"max":4096}}}}}}'
        page = json.loads(te.handshake(te.split_address(TARGET), te.METADATA, asked))["te"]["page"]
        begin += page["count"]
    return pair.close()


def tcp(*options):
    def record(build, there):
        pair = Pair(build, there, options)
        play.small_moves(pair.peer, *pair.open())
        return pair.close()
    return record


def tcp_cut(*options):
    def record(build, there):
        pair = Pair(build, there, options)

        def cut():
            pair.data.cut = 200

        play.cut_move(pair.peer, *pair.open(), cut)
        return pair.close()
    return record


def tcp_refused(*options):
    def record(build, there):
        pair = Pair(build, there, options)
        index, _ = pair.regions[0]
        play.refused_move(pair.peer, *pair.open(), lambda: pair.target.ask("drop", index))
        return pair.close()
    return record


def descriptor_of(address):
    """The connection that asks for a descriptor, and the descriptor."""
    body = te.handshake(address, te.METADATA, "{}")
    return ("handshake", [(">", te.frame(te.METADATA, "{}")), ("<", te.frame(te.METADATA, body))]), json.loads(body)


def said(sock, messages, data, fds):
    """Sends a packet and takes the answer: its descriptors."""
    sock.send(data)
    answer, got, _, _ = socket.recv_fds(sock, 100, fds)
    messages += [(">", data), ("<", answer)]
    return got


def host(build, there):  # pylint: disable=unused-argument
    """This script is an initiator first, then an owner that says what was said to it."""
    owner = build.peer(name=TARGET)
    for own in ((), ("own",)):
        owner.ask("region", play.SIZE, 3, *own)
    asked, keys = descriptor_of(te.split_address(TARGET))
    keys, messages = keys["te"]["host"], []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect("\0" + keys["socket"])
        hello = past.MESSAGE.pack(0x54534854, 1, play.HELLO, 0, 0, 0, 0, bytes.fromhex(keys["nonce"]))
        table = play.read_table(said(sock, messages, hello, 2)[0])
        slot = next(i for i, row in enumerate(past.told_table(table)[2]) if row[3])
        said(sock, messages, past.MESSAGE.pack(0x54534854, 1, play.WANT, 0, slot, 0, 0, bytes(16)), 1)
    assert owner.quit() == 0
    here = play.HostOwner((messages, table))
    peer = build.peer(name=INITIATOR)
    play.host_moves(peer, here, play.Served([asked], here.patch))
    assert peer.quit() == 0
    return [asked, ("owner", messages), ("table", [("<", table)]), ("initiator", here.heard)]


def rdma(build, there):
    """One queue pair over a simulated fabric. Its data is on no wire; a handshake goes before it."""
    te_rdma.Peer.program = build.compile(os.path.join(build.src, "tests", "integration", "rdma_peer.c"), "rdma_peer")
    fabric = te_rdma.Fabric(nics=1)
    shared = os.path.join(fabric.folder, "shared")
    with open(shared, "wb") as f:
        f.truncate(2 * 4096)
    address = te.split_address(TARGET)
    target = te_rdma.Peer(fabric, "b", shared, ["MC_NUM_QP_PER_EP=2"], TARGET, prefix=there.prefix)
    target.meet()
    target.ask("target")
    proxy = Proxy(address, there, "handshake")
    peer = te_rdma.Peer(fabric, "a", shared, ["MC_NUM_QP_PER_EP=2"], INITIATOR)
    peer.meet()
    peer.ask("open", TARGET, target.address)
    peer.ask("stream", "write", 4096, 1, os.path.join(fabric.folder, "report"))
    te.until(lambda: te_rdma.read_report(os.path.join(fabric.folder, "report")), "a request's end")
    assert peer.ask("stop")[1:] == ["0", "0"], peer
    for one in (peer, target):
        one.ask("close")
        one.close()
    fabric.remove()
    return proxy.close()


def gpu(protocol):
    def record(build, there):  # pylint: disable=unused-argument
        soft = os.environ.get("TE_TEST_SOFTGPU") or os.path.join(te.BUILD, "tests", "softgpu")
        with te.Target(f"--protocol={protocol}", name=TARGET, folder=build.bin, size="1M",
                       env={"LD_LIBRARY_PATH": soft, "SOFTGPU_DEVICES": "1"}) as target:
            asked, descriptor = descriptor_of(te.split_address(TARGET))
            keys = descriptor["te"][protocol]
            with open(f"/proc/{keys['pid']}/fd/{keys['fd']}", "rb") as f:
                page = f.read(64)
            target.stop()
        return [asked, ("page", [("<", page)])]
    return record


def store(make, kind):
    """One engine that others open, and one that opens it: what both say to the store."""
    def record(build, there):  # pylint: disable=unused-argument
        with make() as server:
            proxy = Proxy(("127.0.0.2", server.port), None, kind, ("127.0.0.1", server.port))
            url = server.url.replace("127.0.0.1", "127.0.0.2")
            owner = build.peer(name="past-owner", metadata=url, options=STORE_OPTIONS)
            _, remote = owner.region(play.SIZE)
            peer = build.peer(name="past-peer", metadata=url, options=STORE_OPTIONS)
            index, _ = peer.region(2 * play.SIZE)
            peer.round_trip(peer.open("past-owner"), index, 1000, remote, 1)
            assert peer.quit() == 0 and owner.quit() == 0
        return proxy.close()
    return record


def files(build, there):  # pylint: disable=unused-argument
    """te_segment: what it stores for files, and what it asks."""
    with te_stores.Metad() as server:
        proxy = Proxy(("127.0.0.2", server.port), None, "http", ("127.0.0.1", server.port))
        folder = tempfile.mkdtemp(prefix="te-past-", dir="/tmp")
        url = "--metadata_server=" + server.url.replace("127.0.0.1", "127.0.0.2")
        for words in (("register", "kv", f"--file={folder}/a,{folder}/b", "--create=65536", "--server_name=node01",
                       "--target=tcp://10.0.0.1:4420/nqn.2026-01.org.example:kv?nsid=1"),
                      ("mount", "kv", f"--path={folder}/b,{folder}/a", "--server_name=node02"),
                      ("register", "later"), ("show", "kv", "--server_name=node02"),
                      ("unmount", "kv", "--server_name=node02"),
                      ("unregister", "later")):
            proc = te.run("te_segment", url, *words, folder=build.bin)
            assert proc.rc == 0, proc
        shutil.rmtree(folder)
    return proxy.close()


CAPTURES = {
    "rdma": ("RDMA: the connection of queue pairs", rdma),
    "nvlink_intra": ("Memory of GPUs, nvlink_intra: descriptor and page", gpu("nvlink_intra")),
    "nvlink": ("Memory of GPUs, nvlink: descriptor and page", gpu("nvlink")),
    "hip": ("Memory of GPUs, hip: descriptor and page", gpu("hip")),
    "store_http": ("What engines say to an HTTP store", store(te_stores.Metad, "http")),
    "store_redis": ("What engines say to redis", store(te_stores.Redis, "redis")),
    "store_etcd": ("What engines say to etcd", store(te_stores.Etcd, "etcd")),
    "files": ("What te_segment says to an HTTP store", files),
    "host": ("The host transport: socket and table of an owner, and what an initiator says", host),
    "handshake": ("Opening a segment, a message, a probe", handshake),
    "pages": ("Opening a segment whose descriptor comes in pages", pages),
    "tcp_native": ("The native framing", tcp()),
    "tcp_native_crc": ("The native framing with checksums", tcp("TE_TCP_CRC32C=1")),
    "tcp_native_drop": ("The native framing: DROP, after a connection that was lost", tcp_cut()),
    "tcp_native_refused": ("The native framing: memory that is no more", tcp_refused()),
    "tcp_v2": ("Version 2", tcp("TE_TCP_NATIVE=0")),
    "tcp_v2_refused": ("Version 2: memory that is no more", tcp_refused("TE_TCP_NATIVE=0")),
    "tcp_v1": ("Version 1", tcp("MC_TCP_PROTO=1")),
}


def enter(argv):
    """This script again, in network and user namespaces of its own."""
    if not os.environ.get(INSIDE):
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", *user, "--net", sys.executable, os.path.abspath(__file__), *argv])
    te_hosts.ip("link", "set", "lo", "up")


def record(version, names, folder):
    build, there = past.past(version), There()
    for name in names:
        title, make = CAPTURES[name]
        past.write_capture(os.path.join(folder, name + ".txt"), f"{version}: {title}.", make(build, there))
        print(f"{name}: recorded", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", default=past.FIRST)
    parser.add_argument("--only", choices=sorted(CAPTURES), action="append", help="this capture alone")
    parser.add_argument("--check", action="store_true", help="compare with what was recorded before")
    args = parser.parse_args()
    enter(sys.argv[1:])
    names = args.only or list(CAPTURES)
    folder = os.path.join(past.CAPTURES, args.version)
    if not args.check:
        os.makedirs(folder, exist_ok=True)
        record(args.version, names, folder)
        return
    fresh = te.Workdir.get()
    record(args.version, names, fresh)
    for name in names:
        want, got = (past.told(past.read_capture(name, where)) for where in (folder, fresh))
        if want != got:
            sys.exit(f"{name}: other things are said than {folder} has\n--- recorded\n{want}\n--- now\n{got}")
    print(f"{len(names)} captures are as they were")


if __name__ == "__main__":
    main()
