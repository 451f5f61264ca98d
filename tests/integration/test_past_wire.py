#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=120
"""What was recorded of released versions (tests/past), said to this one: it answers as they did, and moves
data with a server that says what they said."""
import json
import os
import socket
import struct
import sys
import unittest

import te_past as past
import te_past_play as play
import te_past_store as recorded
import te_proc as te
import te_rdma
import te_stores

ONE = ("MC_TCP_LANES_PER_PEER=1", "TE_HOST_PATH=0")
VERIFIED = r"Verified: [1-9]\d* bytes, 0 errors"
# How the client was set while this was recorded.
TCP = {"tcp_native": (), "tcp_native_crc": ("TE_TCP_CRC32C=1",), "tcp_v2": ("TE_TCP_NATIVE=0",),
       "tcp_v1": ("MC_TCP_PROTO=1",), "tcp_native_drop": (), "tcp_native_refused": (),
       "tcp_v2_refused": ("TE_TCP_NATIVE=0",)}


def in_form(value, form):
    """The keys that the form has, with the values that are given."""
    if isinstance(form, dict):
        return {key: in_form(value[key], part) for key, part in form.items()}
    if isinstance(form, list) and form and isinstance(form[0], dict):
        return [in_form(mine, part) for mine, part in zip(value, form)]
    return value


def versions():
    """The folders of tests/past that have captures."""
    return sorted(entry.path for entry in os.scandir(past.CAPTURES) if entry.is_dir() and entry.name[0].isdigit())


def softgpu():
    """The folder of the simulated drivers."""
    folder = os.environ.get("TE_TEST_SOFTGPU") or os.path.join(te.BUILD, "tests", "softgpu")
    if not os.path.exists(os.path.join(folder, "libcuda.so.1")):
        te.skip(f"{folder} has no libcuda.so.1")
    return folder


class Case(unittest.TestCase):
    folder = None

    def capture(self, name):
        return past.read_capture(name, self.folder)

    def peer(self, **more):
        peer = te.Peer(**more)
        self.addCleanup(peer.close)
        return peer

    def rdma_peer(self, side):
        """An engine on one side of a simulated fabric, as the recorded ones were; and a folder."""
        fabric = te_rdma.Fabric(nics=1)
        self.addCleanup(fabric.remove)
        shared = os.path.join(fabric.folder, "shared")
        with open(shared, "wb") as f:
            f.truncate(8192)
        peer = te_rdma.Peer(fabric, side, shared, ["MC_NUM_QP_PER_EP=2"])
        self.addCleanup(peer.close)
        peer.meet()
        return peer, fabric.folder

    def holds(self, got, want, where="$"):
        """All that was recorded is there; keys of objects that have come since are no matter."""
        if isinstance(want, dict) and isinstance(got, dict):
            for key, value in want.items():
                self.assertIn(key, got, where)
                self.holds(got[key], value, f"{where}.{key}")
        elif where.endswith(".framing"):  # the highest version that is known
            self.assertGreaterEqual(got, want, where)
        elif isinstance(want, list) and isinstance(got, list):
            self.assertEqual(len(got), len(want), where)
            for i, (mine, theirs) in enumerate(zip(got, want)):
                self.holds(mine, theirs, f"{where}[{i}]")
        else:
            self.assertEqual(got, want, where)

    def asks(self, address, connections, names):
        """Sends what was recorded to a handshake port; `names` are (recorded, today's) for the answers."""
        for kind, messages in connections:
            if kind != "handshake":
                continue
            (_, request), (_, answer) = messages
            for theirs, ours in names:
                answer = answer.replace(theirs.encode(), ours.encode())
            with te.connect(address) as sock:
                sock.sendall(request)
                got_kind, body = te.read_frame(sock)
            self.holds([got_kind, past.told_json(body)], past.told_handshake(answer))


# ---- This version as the server --------------------------------------------------------------------

class Answers(Case):
    def test_handshake(self):
        target = self.peer(options=("TE_HOST_PATH=0",))
        target.region(4096)
        self.asks(te.split_address(target.segment), self.capture("handshake"), [(play.RECORDED_NAME, target.segment)])
        self.assertEqual(target.ask("inbox"), ["1", "name=text"])

    def test_pages(self):
        target = self.peer(options=("TE_HOST_PATH=0",))
        target.ask("regions", 100, 4096)
        connections = self.capture("pages")
        self.assertGreater(len(connections), 1)
        # How many buffers a page has depends on the length of the name.
        self.assertEqual(len(target.segment), len(play.RECORDED_NAME))
        self.asks(te.split_address(target.segment), connections, [(play.RECORDED_NAME, target.segment)])

    def serve(self, name):
        """(target, its address of the region, descriptor, what is to be added to recorded addresses)"""
        target = self.peer(options=("TE_HOST_PATH=0",))
        index, address = target.region(play.SIZE)
        target.ask("fill", index, 0, play.SIZE, 1)
        descriptor = te.descriptor(te.split_address(target.segment))
        return target, descriptor, address - past.base_of(self.capture(name))

    def say(self, sock, data, descriptor, by):
        """What a client said, to this target."""
        if data[:8] == past.GREETING:
            target = struct.pack("<Q", int(descriptor["te"]["tcp"]["id"], 16))
            sock.sendall(data[:16] + target + data[24:])
        elif self.native:
            source = past.Bytes(data)
            try:
                data = past.Frame(source.take, self.crc, True).rebase(by).whole()
            except EOFError:  # of one that was cut off the block is there
                data = data[:32] + struct.pack("<Q", struct.unpack("<Q", data[32:40])[0] + by) + data[40:]
            sock.sendall(data)
        else:
            for size, address, opcode, payload in past.mooncake_requests(data):
                sock.sendall(struct.pack("<QQB7x", size, address + by, opcode) + payload)

    def answered(self, sock, data, by):
        if not self.native:
            self.assertEqual(te.read_exactly(sock, len(data)), data)
            return
        want = past.Frame(past.Bytes(data).take, self.crc, False)
        got = past.Frame(lambda n: te.read_exactly(sock, n), self.crc, False)
        self.assertEqual(got.told(0), want.told(0))
        self.assertEqual((got.crc, got.trailer), got.sums())

    def replay(self, name):
        target, descriptor, by = self.serve(name)
        connections = [messages for kind, messages in self.capture(name) if kind == "data"]
        self.assertGreater(len(connections), 0)
        for messages in connections:
            first = messages[0][1]
            self.native = first[:8] == past.GREETING
            self.crc = self.native and bool(first[10] & 1)
            sock = te.connect(("127.0.0.1", descriptor["tcp_data_port"]))
            self.addCleanup(sock.close)
            last = max(i for i, (way, _) in enumerate(messages) if way == ">")
            for i, (way, data) in enumerate(messages):
                if name.endswith("_refused") and i == last:
                    target.ask("drop", 0)
                if way == ">":
                    self.say(sock, data, descriptor, by)
                else:
                    self.answered(sock, data, by)
            if messages[-1][0] == ">" and not self.native:  # a WRITE of version 1
                sock.shutdown(socket.SHUT_WR)
                self.assertEqual(sock.recv(1), b"")

    def test_data(self):
        for name in TCP:
            with self.subTest(capture=name):
                self.replay(name)

    def test_host(self):
        """The first version of the path within a host proved nothing of who is there: it is left alone."""
        connections = dict(self.capture("host"))
        owner = self.peer()
        owner.ask("region", play.SIZE, 3)
        keys = te.descriptor(te.split_address(owner.segment))["te"]["host"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(20 * te.SLOW)
            sock.connect("\0" + keys["socket"])
            hello = connections["initiator"][0][1]
            self.assertEqual(hello[6], play.HELLO)
            sock.send(hello[:32] + bytes.fromhex(keys["nonce"]))
            self.assertEqual(socket.recv_fds(sock, 100, 2)[:2], (b"", []))

    def test_rdma(self):
        connections = self.capture("rdma")
        target, _ = self.rdma_peer("b")
        target.ask("target")
        # The sender's name stays what it was; the receiver's is this one's.
        renamed = [(kind, [(way, self.rename(data, target.segment)) for way, data in messages])
                   for kind, messages in connections]
        self.asks(te.split_address(target.segment), renamed, [])
        target.ask("close")

    @staticmethod
    def rename(data, name):
        body = data[9:].replace(play.RECORDED_NAME.encode(), name.encode())
        return te.frame(data[8], body)

    def test_gpu_keys(self):
        soft = softgpu()
        for protocol in ("nvlink_intra", "nvlink", "hip"):
            connections = self.capture(protocol)
            with te.Target(f"--protocol={protocol}", size="1M",
                           env={"LD_LIBRARY_PATH": soft, "SOFTGPU_DEVICES": "1"}) as target:
                address = te.split_address(target.segment)
                self.asks(address, connections, [(play.RECORDED_NAME, target.segment)])
                keys = te.descriptor(address)["te"]["gpu"][protocol]
                with open(f"/proc/{target.pid}/fd/{keys['fd']}", "rb") as f:
                    self.assertEqual(f.read(16), dict(connections)["page"][0][1][:16])

    def test_metadata_server(self):
        for name in ("store_http", "files"):
            with te_stores.Metad() as server, self.subTest(capture=name):
                self.replay_http(server, self.capture(name))

    def replay_http(self, server, connections):
        for _, messages in connections:
            with te.connect(("127.0.0.1", server.port)) as sock, sock.makefile("rb") as stream:
                for way, data in messages:
                    if way == ">":
                        sock.sendall(data)
                    else:
                        self.assertEqual(past.told_http(play.read_http(stream)), past.told_http(data))


# ---- This version as the client --------------------------------------------------------------------

class Asks(Case):
    def served(self, connections, patch=None):
        served = play.Served(connections, patch)
        self.addCleanup(served.close)
        return served

    def test_handshake(self):
        connections = self.capture("handshake")
        served, peer = self.served(connections), self.peer()
        segment = peer.open(served.name)
        peer.ask("notify", segment, "name", "text")
        peer.ask("probe", served.name)
        for got, (_, messages) in zip(served.heard, connections):
            self.holds(got, past.told_handshake(messages[0][1]))
        self.assertEqual(len(served.heard), len(connections))

    def test_pages(self):
        connections = self.capture("pages")
        served, peer = self.served(connections), self.peer()
        self.assertEqual(peer.ask("buffers", peer.open(served.name))[0], "100")
        self.assertEqual([asked[1]["te"]["page"]["from"] for asked in served.heard],
                         [json.loads(messages[0][1][9:])["te"]["page"]["from"] for _, messages in connections])

    def play(self, name, options):
        connections = self.capture(name)
        data = play.Data(connections)

        def patch(descriptor):
            if descriptor["tcp_data_port"]:
                descriptor["tcp_data_port"] = data.port

        served, peer = self.served(connections, patch), self.peer(options=(*ONE, *options))
        index, _ = peer.region(play.SIZE)
        where = (peer.open(served.name), index, past.base_of(connections))
        if name.endswith("_drop"):
            play.cut_move(peer, *where, lambda: None)
        elif name.endswith("_refused"):
            play.refused_move(peer, *where, lambda: None)
        else:
            play.small_moves(peer, *where)
        self.assertEqual(peer.quit(), 0)
        base = past.base_of(connections)
        for (kind, want), (_, got) in zip((c for c in connections if c[0] == "data"), data.close()):
            self.assertEqual(past.told_data(got, base), past.told_data(want, base), kind)

    def test_data(self):
        for name, options in TCP.items():
            with self.subTest(capture=name):
                self.play(name, options)

    def test_host(self):
        capture = dict(self.capture("host"))
        owner = play.HostOwner((capture["owner"], capture["table"][0][1]))
        served = self.served([("handshake", capture["handshake"])], owner.patch)
        peer = self.peer()
        index, _ = peer.region(play.SIZE)
        segment = peer.open(served.name)
        remote = play.address_of(owner.regions[False])
        text = " ".join(peer.ask("explain", "read", segment, index, remote, 1000))
        self.assertIn("transport host: not possible: same host: the peer speaks version 1 of it", text)
        self.assertIn("transport tcp: score 50, taken", text)
        self.assertEqual(owner.heard, [])

    def test_rdma(self):
        """What a connection begins with. The queue pairs that the server tells of are not there."""
        connections = self.capture("rdma")
        served = self.served(connections)
        peer, folder = self.rdma_peer("a")
        served.names = {play.RECORDED_INITIATOR: peer.segment}
        peer.ask("open", served.name, past.base_of(connections))
        peer.ask("stream", "write", 4096, 1, os.path.join(folder, "report"))
        te.until(lambda: len(served.heard) >= len(connections), lambda: f"{served.heard} {peer}")
        peer.kill()
        for got, (_, messages) in zip(served.heard, connections):
            request = messages[0][1]
            for recorded_name, name in ((play.RECORDED_NAME, served.name), *served.names.items()):
                request = request.replace(recorded_name.encode(), name.encode())
            self.holds(got, past.told_handshake(request))

    def test_gpu_keys(self):
        """A target whose descriptor has the keys that were recorded, and no others, with its own values."""
        env = {"LD_LIBRARY_PATH": softgpu(), "SOFTGPU_DEVICES": "1"}
        for protocol in ("nvlink_intra", "nvlink", "hip"):
            with te.Target(f"--protocol={protocol}", size="8M", env=env) as target:
                live = te.descriptor(te.split_address(target.segment))

                # Its place as 0.1 gives it.
                keys = live["te"].pop("gpu")[protocol]
                live["te"][protocol] = {**keys, "v": 1, "pid": target.pid, "host": {
                    "boot": play.word("/proc/sys/kernel/random/boot_id"), "machine": play.word("/etc/machine-id")}}

                def patch(descriptor, live=live):
                    name = descriptor["name"]
                    del descriptor["te"]["host"]  # of its version there is no live one
                    descriptor |= {**in_form(live, descriptor), "name": name}

                served = self.served(self.capture(protocol)[:1], patch)
                proc = te.bench(served.name, f"--protocol={protocol}", "--verify", "--block_size=65537",
                                "--batches=3", env=env)
                self.assertEqual(proc.rc, 0, proc)
                self.assertRegex(proc.output(), VERIFIED)

    def test_stores(self):
        for name, form in recorded.FORMS.items():
            with self.subTest(capture=name):
                self.by_store(form, self.capture(name)[0][1])

    def by_store(self, form, messages):
        """Finds a recorded engine in a recorded store, and moves data with it."""
        native = self.capture("tcp_native")
        data, store = play.Data(native), recorded.RecordedStore(form, messages)
        self.addCleanup(store.close)
        owner = recorded.stored(form, messages, "/past-owner")
        descriptor = json.loads(owner["mooncake/ram/past-owner"])
        descriptor["tcp_data_port"] = data.port
        store.values = {**owner, "mooncake/ram/past-owner": json.dumps(descriptor).encode()}
        peer = self.peer(name="past-peer", metadata=store.url, options=ONE)
        index, _ = peer.region(2 * play.SIZE)  # as the recorded one had
        remote = descriptor["buffers"][0]["addr"]
        play.small_moves(peer, peer.open("past-owner"), index, remote)
        for key, value in recorded.stored(form, messages, "/past-peer").items():
            self.holds(past.told_json(store.values[key]), past.told_json(value))
        self.assertEqual(peer.quit(), 0)
        self.assertEqual(sorted(store.values), sorted(owner))
        (_, want), (_, got) = next(c for c in native if c[0] == "data"), data.close()[0]
        self.assertEqual(past.told_data(got, remote), past.told_data(want, past.base_of(native)))

    def test_files(self):
        """te_segment reads what that version stored for files, and an engine uses them."""
        connections = self.capture("files")
        value = json.loads(recorded.stored(recorded.Http, connections[0][1], "/nvmeof/kv")["mooncake/nvmeof/kv"])
        folder = te.Workdir.get()
        for buffer in value["buffers"]:
            path = os.path.join(folder, os.path.basename(buffer["file_path"]))
            with open(path, "wb") as f:
                f.truncate(buffer["length"])
            buffer["file_path"] = path
            buffer["local_path_map"] = {"node01": path}
        with te_stores.Metad() as server:
            server.put("mooncake/nvmeof/kv", json.dumps(value))
            shown = te.run("te_segment", f"--metadata_server={server.url}", "show", "kv", "--server_name=node01")
            self.assertEqual(shown.rc, 0, shown)
            for buffer in value["buffers"]:
                self.assertIn(buffer["file_path"], shown.output())
            proc = te.bench("nvmeof/kv", "--verify", "--operation=write", "--block_size=4K", "--batches=2",
                            metadata=server.url, name="node01:0", env={"TE_FILE_PATHS": folder})
            self.assertEqual(proc.rc, 0, proc)
            self.assertRegex(proc.output(), VERIFIED)


class Recorded(Case):
    def test_checksums(self):
        """Those of the captures are right, so what is read of frames here is what they say."""
        seen = 0
        for name in ("tcp_native", "tcp_native_crc"):
            for kind, messages in self.capture(name):
                if kind != "data":
                    continue
                greeting, frames, _ = past.client_frames(past.sent(messages, ">"))
                answers = past.server_frames(past.sent(messages, "<"), bool(greeting[10] & 1))
                for frame in frames + answers:
                    self.assertEqual((frame.crc, frame.trailer), frame.sums())
                    seen += bool(frame.crc)
        self.assertGreater(seen, 0)


def per_version(*cases):
    """One class for each version that has captures."""
    module = sys.modules[__name__]
    for case in cases:
        delattr(module, case.__name__)
        for folder in versions():
            name = case.__name__ + os.path.basename(folder).replace(".", "_")
            setattr(module, name, type(name, (case,), {"folder": folder, "__module__": __name__}))


per_version(Answers, Asks, Recorded)

if __name__ == "__main__":
    te.main()
