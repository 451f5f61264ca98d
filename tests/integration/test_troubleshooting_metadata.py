#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: metadata servers that speak HTTP, and what engines say while one is in disorder."""
import os
import unittest

import te_proc as te
import te_stores as stores
import te_trouble as trouble
from metad_server import Server
from test_metad_access import certificate, write
from te_trouble import provokes, provokes_one_of

OWN_FILE = object()  # the certificate of the server
OWN = "mooncake/rpc_meta/node"  # where the server keeps that an engine named "node" is up
SOON = ("TE_METADATA_TTL_S=3", "TE_METADATA_TIMEOUT_MS=2000")  # it looks after its keys each second


def answered(status, text="as I say"):
    """What an engine says to a server that answers everything so."""
    with trouble.Web(lambda *_: (status, text)) as server:
        return trouble.engine(metadata=server.url, name="node")


def with_tls(*flags, addr="127.0.0.1", **env):
    """What an engine says to a te_metad with TLS."""
    key, cert = certificate("own")
    server = Server("--tls-cert", cert, "--tls-key", key, *flags, addr=f"{addr}:0")
    try:
        return trouble.engine(metadata=f"https://{addr}:{server.port}/metadata", name="node",
                              env={name: cert if value is OWN_FILE else value for name, value in env.items()})
    finally:
        server.close()


def with_token(line):
    """What an engine says to a te_metad with that line in the file of tokens."""
    server = Server(f"--token-file={write('tokens', line + chr(10))}")
    try:
        return trouble.engine(metadata=f"http://127.0.0.1:{server.port}/metadata", name="node",
                              env={"TE_METADATA_TOKEN": "ours"})
    finally:
        server.close()


class Metadata(trouble.Section, unittest.TestCase):
    title = "The metadata server"

    def setUp(self):
        te.need("http")

    @provokes("...; is the metadata server up?")
    def away(self):
        return trouble.engine(metadata=f"http://127.0.0.1:{te.dead_port()}/metadata", name="node")

    @provokes("...: no reply in time; ...")
    def slow(self):
        return trouble.redis(None, "TE_METADATA_TIMEOUT_MS=200")

    @provokes("NAME: the metadata server cannot be asked (...); open segments go on", "... is in order again")
    def disorder(self):
        with trouble.Keys() as server, te.Peer(name="node", metadata=server.url, options=SOON) as peer:
            server.refuses["GET"] = 500, "out of order"
            peer.wait_error("open segments go on")
            server.refuses.clear()
            peer.wait_error("is in order again")
            return trouble.said(peer)

    @provokes("NAME: the metadata server has lost this engine's keys; putting them again",
              "NAME: the metadata server does not take this engine's keys (...); ...", "... takes keys again")
    def lost(self):
        with trouble.Keys() as server, te.Peer(name="node", metadata=server.url, options=SOON) as peer:
            server.refuses["PUT"] = 500, "out of order"
            server.keys.clear()
            peer.wait_error("does not take this engine's keys")
            server.refuses.clear()
            peer.wait_error("takes keys again")
            return trouble.said(peer)

    @provokes("NAME: another engine has taken this name ...", "NAME: this name is free again ...",
              "another engine has taken the name ...; its keys stay")
    def taken(self):
        other = '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
        with trouble.Keys() as server, te.Peer(name="node", metadata=server.url, options=SOON) as peer:
            server.keys[OWN] = other
            peer.wait_error("another engine has taken this name")
            del server.keys[OWN]
            peer.wait_error("is free again")
            te.until(lambda: OWN in server.keys, "the key again")
            server.keys[OWN] = other
            peer.quit()
            return trouble.said(peer)

    @provokes("name ... is that of an engine at ..., which is not found any more from now on")
    def twice(self):
        with trouble.Keys() as server, te.Peer(name="node", metadata=server.url):
            return trouble.engine(metadata=server.url, name="node")

    @provokes("replaced key ... of an earlier engine")
    def replaced(self):
        with trouble.Keys() as server:
            put = server.reply
            server.reply = lambda method, key, body: (
                (400, "the key is there") if method == "PUT" and key in server.keys else put(method, key, body))
            server.keys[OWN] = '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
            return trouble.engine(metadata=server.url, name="node", env={"MC_LOG_LEVEL": "INFO"})

    @provokes("... status ..., must be 200: ...")
    def strange(self):
        return answered(418)

    @provokes("... the server refuses who asks (status 401 ...)")
    def unauthorized(self):
        return answered(401)

    @provokes("(status 403: the token may not read this key ...)")
    def may_not_read(self):
        return with_token("ours ro other")

    @provokes("... may not change this key ...")
    def may_not_change(self):
        return with_token("ours ro")

    @provokes("... takes no value of ... bytes (413 ...)")
    def too_large(self):
        with trouble.Keys() as server:
            server.refuses["PUT"] = 413, "too large"
            return trouble.engine(metadata=server.url, name="node")

    @provokes("... the answer has more than the ... bytes of TE_METADATA_MAX_VALUE; ...")
    def long_answer(self):
        with trouble.Web(lambda *_: (200, "x" * 100000)) as server:
            return trouble.engine("TE_METADATA_MAX_VALUE=65536", metadata=server.url, name="node")

    @provokes("... status 507 ...: cannot store: all keys and values may have ... bytes (--max-bytes of te_metad) ...")
    def max_bytes(self):
        return self.limited("--max-bytes=4K")

    @provokes("there may be ... keys (--max-keys ...)")
    def max_keys(self):
        return self.limited("--max-keys=1")

    def limited(self, flag):
        server = Server(flag)
        try:
            with te.Peer(name="node", metadata=f"http://127.0.0.1:{server.port}/metadata") as peer:
                peer.send("regions", 500, 4096)
                peer.reply()
                return trouble.said(peer)
        except AssertionError as e:
            return str(e)
        finally:
            server.close()

    @provokes("... SSL certificate problem: ...; TE_METADATA_CA must hold ...")
    def unknown_authority(self):
        return with_tls()

    @provokes("... no alternative certificate subject name matches ...")
    def wrong_host(self):
        return with_tls(addr="127.0.0.2", TE_METADATA_CA=OWN_FILE)

    @provokes("error setting certificate file: ...")
    def no_authority(self):
        return with_tls(TE_METADATA_CA="/no/such/file")

    @provokes("could not load PEM client certificate ...")
    def no_certificate(self):
        return with_tls(TE_METADATA_CA=OWN_FILE, TE_METADATA_CERT="/no/such/file", TE_METADATA_KEY="/no/such/file")

    @provokes("wrong version number")
    def tls_to_plain(self):
        with trouble.Fake(lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
            return trouble.engine(metadata=f"https://{server.name}/metadata", name="node")

    @provokes("Empty reply from server")
    def plain_to_tls(self):
        with trouble.Fake(lambda sock: sock.recv(1 << 20)) as server:
            return trouble.engine(metadata=f"http://{server.name}/metadata", name="node")

    @provokes_one_of("SSL_ERROR_SYSCALL", "unexpected eof while reading")
    def tls_to_nobody(self):
        with trouble.Fake(lambda sock: sock.recv(1 << 20)) as server:
            return trouble.engine(metadata=f"https://{server.name}/metadata", name="node")

    @provokes("key ...: the value has ... bytes, more than TE_METADATA_MAX_VALUE ...")
    def long_value(self):
        with trouble.Keys() as server, te.Peer(name="node", metadata=server.url,
                                               options=["TE_METADATA_MAX_VALUE=65536"]) as peer:
            return peer.refused("regions", 2000, 4096)

    @provokes("etcd at ... takes no request of ... bytes: ...")
    def etcd_too_large(self):
        return trouble.etcd(lambda path: (400, '{"code":3,"message":"etcdserver: request is too large"}'))

    @provokes("... raise the server's proto-max-bulk-len, ...")
    def redis_too_large(self):
        return trouble.redis(b"-ERR Protocol error: invalid bulk length\r\n")

    @provokes("... the answer has more than 65536 JSON values; is it etcd?")
    def many_values(self):
        return trouble.etcd(lambda path: (200, "[" + "0," * 70000 + "0]"))

    @provokes("... the reply has arrays of more than 65536 elements; ...")
    def many_elements(self):
        return trouble.redis(b"*70000\r\n")

    elsewhere = {
        "the disk of --data-dir of te_metad is full ...":
            ("integration/test_metad_full.py", "the disk of --data-dir of te_metad is full"),
        "libcurl does not start: libcurl.so.4 cannot be opened, or is older than 7.68: ...":
            ("bindings/test_package_archive.py", "libcurl.so.4 cannot be opened, or is older than 7.68")}
    not_provoked = {
        "the metadata server does not take this engine's descriptor; the log says why":
            "two calls of one engine must wait for one put of its descriptor",
        "... tells more changes at once than TE_METADATA_MAX_VALUE ...":
            "an etcd must tell very many changes at once, as unit tests of the store do, without the log",
        "alert bad certificate": "the words are of the library that curl has for TLS"}


if __name__ == "__main__":
    te.main()
