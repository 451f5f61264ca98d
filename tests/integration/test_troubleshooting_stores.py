#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: what engines say of etcd and redis, by servers that answer what these would."""
import base64
import json
import unittest

import te_proc as te
import te_trouble as trouble
from te_trouble import provokes


def refusing(code, message, status=400):
    return lambda path: (status, f'{{"code":{code},"message":"{message}"}}')


def watching(watch, says):
    """What an engine says that has opened a segment of an etcd which answers a watch so."""
    te.need("etcd")
    segment = {"name": "other", "server_name": "other", "protocol": "tcp", "tcp_data_port": 1, "tcp_proto_version": 1,
               "buffers": []}
    other = base64.b64encode(json.dumps(segment).encode()).decode()
    key_of_other = base64.b64encode(b"mooncake/ram/other").decode()
    replies = {"lease/grant": {"ID": "7"}, "lease/keepalive": {"result": {"TTL": "600"}}, "kv/txn": {"succeeded": True}}

    def reply(_, path, body):
        path = path.partition("/v3/")[2]
        if path == "watch":
            return watch
        if path == "kv/range" and json.loads(body)["key"] == key_of_other:
            return 200, json.dumps({"header": {"revision": "5"}, "kvs": [{"value": other}]})
        return 200, json.dumps(replies.get(path, {}))

    with trouble.Web(reply) as server, te.Peer(name="node", metadata=f"etcd://{server.name}",
                                               env={"MC_LOG_LEVEL": "INFO"}) as peer:
        peer.open("other")
        peer.wait_error(says)
        return trouble.said(peer)


class Stores(trouble.Section, unittest.TestCase):
    title = "etcd and redis"

    @provokes("etcd at ... is full: ...")
    def full(self):
        return trouble.etcd(refusing(8, "etcdserver: mvcc: database space exceeded", 429))

    @provokes("etcd at ... refuses access: ...")
    def access(self):
        return trouble.etcd(refusing(16, "etcdserver: invalid auth token", 401))

    @provokes("etcd at ... wants no login: ...")
    def no_login(self):
        return trouble.etcd(refusing(9, "etcdserver: authentication is not enabled"),
                            TE_METADATA_USERNAME="me", TE_METADATA_PASSWORD="secret")

    @provokes("... has no JSON gateway under /v3: ...")
    def no_gateway(self):
        return trouble.etcd(lambda path: (404, "page not found"))

    @provokes("etcd at ...: the answer is no JSON object; ...")
    def no_object(self):
        return trouble.etcd(lambda path: (200, "[]"))

    @provokes("etcd's answer is not base64")
    def no_base64(self):
        return trouble.etcd(lambda path: (200, '{"kvs":[{"value":"%%%"}]}'))

    @provokes("etcd's answer has no lease")
    def no_lease(self):
        return trouble.etcd(lambda path: (200, "{}"))

    @provokes("key ...: etcd forgets leases at once: ...")
    def forgotten(self):
        put = refusing(5, "etcdserver: requested lease not found", 404)
        return trouble.etcd(lambda path: put(path) if path == "kv/put" else
                            (200, '{"ID":"7"}' if path == "lease/grant" else "{}"))

    @provokes("... the server says '...'; ...")
    def redis_says(self):
        return trouble.redis(b"-NOAUTH Authentication required.\r\n")

    @provokes("... the reply is not of the kind that this command has; is it a redis server?")
    def odd(self):
        return trouble.redis(b":1\r\n")

    @provokes("...; is it a redis server, without TLS?")
    def no_redis(self):
        return trouble.redis(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    @provokes("etcd at ...: watch: ...")
    def broken_watch(self):
        return watching((200, '{"error":{"message":"no more"}}\n'), "watch: no more")

    @provokes("sends no stream of changes: polling")
    def no_watch(self):
        return watching((404, ""), "sends no stream of changes")


if __name__ == "__main__":
    te.main()
