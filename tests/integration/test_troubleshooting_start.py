#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: an engine that does not start, a segment that cannot be opened, and lines at DEBUG."""
import json
import os
import re
import tempfile
import socket
import struct
import subprocess
import unittest

import te_proc as te
import te_stores as stores
import te_trouble as trouble
from te_trouble import provokes

SIZE = 65536


class Page(unittest.TestCase):
    def test_every_section_with_texts_has_a_test(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        claimed = []
        for name in sorted(os.listdir(folder)):
            if re.fullmatch(r"test_troubleshooting_\w+\.py", name):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    claimed += re.findall(r'^    title = "(.+)"$', f.read(), re.M)
        self.assertCountEqual(claimed, [title for title, texts in trouble.sections().items() if texts])


class Debug(unittest.TestCase):
    def test_connections_are_logged(self):
        with te.Peer(env={"MC_LOG_LEVEL": "DEBUG"}, options=("TE_HOST_PATH=0",)) as target, \
                te.Peer(env={"MC_LOG_LEVEL": "DEBUG"}, options=("TE_HOST_PATH=0",)) as peer:
            _, remote = target.region(SIZE)
            index, _ = peer.region(2 * SIZE)
            peer.round_trip(peer.open(target.segment), index, SIZE, remote, 1)
            peer.wait_error(f"handshake port: connected to {target.segment}")
            peer.wait_error("tcp: connected to the data port 127.0.0.1:")
            target.wait_found(lambda line: re.search(r"handshake port: \S+ has connected$", line))
            target.wait_error("has connected to the data port")

    def test_not_at_info(self):
        with te.Peer(env={"MC_LOG_LEVEL": "INFO"}) as target, te.Peer(env={"MC_LOG_LEVEL": "INFO"}) as peer:
            peer.open(target.segment)
            peer.quit()
            target.quit()
            self.assertNotIn("connected", trouble.said(peer) + trouble.said(target))


class Starting(trouble.Section, unittest.TestCase):
    title = "An engine does not start"

    @provokes("te_options: size is ...; set it to sizeof(te_options), here ..., first")
    def options(self):
        return trouble.misuse()

    @provokes("'...' is no host:port: ...")
    def name(self):
        return trouble.engine(name="[::1")

    @provokes("local_server_name '...' holds a '/'")
    def slash(self):
        te.need("http")
        said = trouble.engine(metadata="http://127.0.0.1:1/metadata", name="a/b")
        self.assertNotIn("host:port", said)
        return said

    @provokes("TE_AUTH is '...': it must be off, psk or mtls")
    def auth_word(self):
        return trouble.engine(env={"TE_AUTH": "on"})

    @provokes("TE_AUTH is mtls, and one of TE_AUTH_CA, TE_AUTH_CERT and TE_AUTH_KEY is empty: ...")
    def auth_certificates(self):
        return trouble.engine(env={"TE_AUTH": "mtls"})

    def with_certificates(self, change):
        """What an engine says with a pair that te_keys has made and change() has spoilt."""
        with tempfile.TemporaryDirectory() as folder:
            for words in (("ca",), ("cert", "a"), ("cert", "b")):
                subprocess.run([te.tool("te_keys"), *words, "--dir", folder], check=True, capture_output=True,
                               timeout=te.HANG_S)
            change(folder)
            files = {"TE_AUTH_CA": "ca.pem", "TE_AUTH_CERT": "a.pem", "TE_AUTH_KEY": "a.key"}
            return trouble.engine(env={"TE_AUTH": "mtls", **{k: os.path.join(folder, f) for k, f in files.items()}})

    @provokes("... cannot be looked at: ... (TE_AUTH=mtls)")
    def auth_no_certificate(self):
        return self.with_certificates(lambda folder: os.remove(f"{folder}/ca.pem"))

    @provokes("... holds no certificate in PEM that is of use: ... (TE_AUTH_CERT)")
    def auth_bad_certificate(self):
        return self.with_certificates(lambda folder: os.truncate(f"{folder}/a.pem", 40))

    @provokes("key file ... holds no private key in PEM without a passphrase: ... (TE_AUTH_KEY)")
    def auth_bad_key(self):
        return self.with_certificates(lambda folder: os.truncate(f"{folder}/a.key", 40))

    @provokes("key file ... is not of the certificate ...: give TE_AUTH_KEY and TE_AUTH_CERT one pair")
    def auth_other_key(self):
        return self.with_certificates(lambda folder: os.rename(f"{folder}/b.key", f"{folder}/a.key"))

    @provokes("TE_AUTH is psk, and TE_AUTH_KEYS is empty: ...")
    def auth_no_file(self):
        return trouble.engine(env={"TE_AUTH": "psk"})

    def with_keys(self, text, mode=0o600, **env):
        """What an engine says that has a key file with that text."""
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as f:
            f.write(text)
            f.flush()
            os.chmod(f.name, mode)
            return trouble.engine(env={"TE_AUTH": "psk", "TE_AUTH_KEYS": f.name, **env})

    @provokes("key file ... has mode ..., so that others than its owner reach it: chmod 600 ...")
    def auth_mode(self):
        return self.with_keys("", 0o644)

    @provokes("key file ..., line ...: ...")
    def auth_line(self):
        said = self.with_keys("a:secret\n")
        self.assertNotIn("secret", said)
        return said

    @provokes("TE_AUTH_CLASSIC is '...': it must be at most ... addresses or networks, such as ...")
    def auth_classic(self):
        return self.with_keys("", TE_AUTH_CLASSIC="somewhere")

    @provokes("metadata '...': scheme '...' is not in this build, which has: ...")
    def scheme(self):
        return trouble.engine(metadata="carrier-pigeon://127.0.0.1")

    @provokes("metadata '...': did you mean P2PHANDSHAKE? ...")
    def misspelt(self):
        for word in ("P2PHANDSHAK", "p2phandshakes", "P2P-HANDSHAKE"):
            self.assertIn(f"metadata '{word}': did you mean P2PHANDSHAKE?", trouble.engine(metadata=word))
        return trouble.engine(metadata="P2PHANDSHAKE2")

    @provokes("the metadata URL '...' is not of the form http://host:port/path")
    def url(self):
        te.need("http")
        return trouble.engine(metadata="http://127.0.0.1:1/#x")

    @provokes("metadata '...': '...' is no endpoint of the form host:port; ...")
    def endpoint(self):
        te.need("etcd")
        return trouble.engine(metadata="etcd://127.0.0.1:99999")

    @provokes("metadata 'redis://...': ...; it has the form ...")
    def redis(self):
        te.need("redis")
        return trouble.engine(metadata="redis://127.0.0.1:99999")

    @provokes("ports ... of ... are all in use; ...")
    def ports(self):
        port = te.free_port()
        return trouble.engine(f"MC_MIN_RPC_PORT={port}", f"MC_MAX_RPC_PORT={port}")

    @provokes("cannot listen on port ...")
    def listen(self):
        return trouble.engine("TE_BIND=fe80::1")  # of which interface it does not say

    @provokes("cannot listen on ...: it is no address of this host; set TE_BIND to ...")
    def absent(self):
        return trouble.engine("TE_BIND=203.0.113.1")

    @provokes("rpc port ... cannot be bound (...); taking one of ...")
    def taken(self):
        with te.Peer() as first:
            return trouble.engine(name=first.segment)

    @provokes("transport '...' is not built in; there are: ...")
    def transport(self):
        return trouble.engine("transport=pigeon")

    @provokes("MC_FORCE_... is on and MC_FORCE_... is on: only one of them may be on")
    def forced(self):
        return trouble.engine("MC_FORCE_TCP=1", "MC_FORCE_HCA=1")

    @provokes("transport '...' cannot run on this host: ...")
    def cannot_run(self):
        te.need("rdma")
        return trouble.engine("transport=rdma", "MC_TE_FILTERS=no_such_nic")

    @provokes("... in the environment is '...', which must be ...; using the default, ...",
              "variables of the environment without effect: ...; te_info --config lists those that have one")
    def environment(self):
        return trouble.engine(env={"MC_RETRY_CNT": "often", "MC_FORC_TCP": "1"})

    @provokes("TE_TCP_ADDRESSES: '...' is no address in numbers; ...")
    def addresses(self):
        return trouble.engine("TE_TCP_ADDRESSES=here")

    @provokes("there is no option ...: te_info --config lists all")
    def option(self):
        return trouble.engine("FAST=1")


def opening(name, *options, **more):
    """What is said when a segment of that name cannot be opened."""
    with te.Peer(options=options, **more) as peer:
        said = peer.refused("open", name)
        peer.quit()
        return said + "\n" + trouble.said(peer)


def ignored(port_of, text):
    """What an engine says of an address that only connects to a port of it, beside another that is served."""
    with te.Peer(options=("TE_HOST_PATH=0",)) as target, te.Peer(options=("TE_HOST_PATH=0",)) as peer:
        _, remote = target.region(SIZE)
        index, _ = peer.region(2 * SIZE)
        peer.round_trip(peer.open(target.segment), index, SIZE, remote, 1)
        where = "127.0.0.1", port_of(target)
        for sock in [socket.create_connection(where, te.HANG_S, ("127.0.0.9", 0)) for _ in range(80)]:
            sock.close()
        target.wait_error(text)
        return trouble.said(target)


def replying(body):
    """An engine's handshake port that answers every request with these bytes."""
    def answer(sock):
        te.read_frame(sock)
        sock.sendall(body)
    return trouble.Fake(answer)


class Opening(trouble.Section, unittest.TestCase):
    title = "A segment cannot be opened"

    @provokes("cannot connect to ...: Connection refused; is the target running? use the name that te_engine_name() gives "
              "there ...")
    def refused(self):
        return opening(f"127.0.0.1:{te.dead_port()}")

    @provokes("no connection to ... in time; a firewall? two ports of the target, of 15000-17000 by default, are needed")
    def silent(self):
        with trouble.Silent() as server:
            return opening(server.name, "MC_HANDSHAKE_CONNECT_TIMEOUT=1")

    @provokes("cannot connect to ...: No route to host; a firewall? ...")
    def no_route(self):
        if os.geteuid() != 0:
            te.skip("a network namespace needs root")
        lead = "ip link set lo up && ip route add unreachable 203.0.113.1 && exec \"$@\""
        return opening("203.0.113.1:15000", prefix=("unshare", "-n", "sh", "-c", lead, "sh"))

    @provokes("handshake port: ... has had too many connections that got no reply; ...")
    def ignored_at_the_handshake_port(self):
        return ignored(lambda target: te.split_address(target.segment)[1], "too many connections that got no reply")

    @provokes("tcp: ... has had too many connections without a request; ...")
    def ignored_at_the_data_port(self):
        return ignored(lambda target: te.descriptor(te.split_address(target.segment))["tcp_data_port"],
                       "too many connections without a request")

    @provokes("host '...' cannot be resolved: ...")
    def resolved(self):
        return opening("a..b:15000")

    @provokes("peers are told address '...', which this host cannot resolve: ...")
    def unresolved(self):
        return trouble.engine(name="a..b")

    @provokes("the metadata server has no key ...: segment ... is not there, is gone, or was published under another "
              "MC_METADATA_CLUSTER_ID; ...", "...; did you mean '...'?", "...; te_segment list shows what is there")
    def unknown(self):
        with te.Metad() as metad, te.Peer(name="decode-1", metadata=metad.url), \
                te.Peer(name="decode-3", metadata=metad.url), \
                te.Peer(name="prefill", metadata=metad.url), \
                te.Peer(name="decode-4", metadata=metad.url) as peer:
            near = peer.refused("open", "decode-2")  # it is not told its own name
            self.assertRegex(near, r"; did you mean 'decode-[13]', 'decode-[13]'\?$")
            again = peer.refused("open", "decode-2")  # at once: the server is not asked for another list
            self.assertTrue(again.endswith("; te_segment list shows what is there"), again)
            return near + "\n" + again

    @provokes("the metadata server has no key ...: segment ... has no engine: it is not up yet, is gone, or uses "
              "another MC_METADATA_CLUSTER_ID")
    def no_engine(self):
        with te.Metad() as metad, te.Peer(name="a", metadata=metad.url) as target, \
                te.Peer(name="b", metadata=metad.url) as peer:
            target.region(SIZE)
            stores.http("DELETE", metad.url + "?key=mooncake/rpc_meta/a")
            return peer.refused("open", "a")

    @provokes("... answers with ... bytes, at most ... are taken; raise MC_HANDSHAKE_MAX_LENGTH")
    def too_long(self):
        with replying((100 << 20).to_bytes(8, "little")) as server:
            return opening(server.name)

    @provokes("the segment of ... changes faster than its pages can be read; ...")
    def changing(self):
        with te.Peer() as target:
            target.ask("regions", 3, 4096)
            segment = te.descriptor(te.split_address(target.segment))
        asked = []

        def answer(sock):
            _, body = te.read_frame(sock)
            first = json.loads(body)["te"]["page"]["from"]
            asked.append(first)
            page = {**segment, "buffers": segment["buffers"][first:first + 1],
                    "te": {**segment["te"], "version": len(asked),
                           "page": {"from": first, "count": 1, "total": len(segment["buffers"])}}}
            sock.sendall(te.frame(te.METADATA, json.dumps(page)))

        with trouble.Fake(answer) as server:
            return opening(server.name)

    @provokes("segment descriptor: ...")
    def no_descriptor(self):
        with replying(te.frame(te.METADATA, "[]")) as server:
            return opening(server.name)

    @provokes("...: connection closed while reading the reply; was the engine ended, or is this no handshake port?",
              "...; the name has no port, so ... (MC_HANDSHAKE_PORT) was taken; without a metadata server a name is HOST:PORT")
    def closed(self):
        with replying(b"") as server:
            said = opening(server.name)
        no_port = opening("localhost", f"MC_HANDSHAKE_PORT={te.dead_port()}")
        self.assertRegex(no_port, "Connection refused;.*; the name has no port, so ")
        self.assertNotIn("the name has no port", said)
        return said + no_port

    @provokes("segment '...': no engine has port 0; ...")
    def port_0(self):
        return opening("127.0.0.1:0")

    @provokes("...: Connection reset by peer while ...")
    def reset(self):
        def end(sock):
            te.read_exactly(sock, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        with trouble.Fake(end) as server:
            return opening(server.name)

    @provokes("... is this engine's own name; give --local_server_name=NAME with another one")
    def own_name(self):
        name = f"127.0.0.1:{te.free_port()}"
        return trouble.tool("transfer_engine_bench", f"--metadata_server={te.P2P}", f"--local_server_name={name}",
                            f"--segment_id={name}", "--protocol=tcp")

    @provokes("--metadata_server is missing")
    def no_metadata(self):
        return trouble.tool("transfer_engine_bench", "--mode=initiator", "--segment_id=a")

    @provokes("--segment_id is missing")
    def no_segment(self):
        return trouble.tool("transfer_engine_bench", "--mode=initiator", f"--metadata_server={te.P2P}")


if __name__ == "__main__":
    te.main()
