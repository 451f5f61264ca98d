# SPDX-License-Identifier: Apache-2.0
"""Real metadata stores in processes of their own: etcd (one, or a cluster), redis, te_metad.

A store is read and written here by plain HTTP and RESP, so that nothing depends on the code under test.
"""
import base64
import json
import os
import shutil
import socket
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import te_hosts
import te_proc as te

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def program(name, package):
    path = shutil.which(name)
    if not path:
        te.skip(f"{name} (package {package}) is missing")
    return path


class BadStatus(AssertionError):
    """Neither 200 nor 404."""


def http(method, url, body=None, headers=None):
    """(body, headers) of a 200, (None, None) of a 404."""
    request = urllib.request.Request(url, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=te.HANG_S) as reply:
            return reply.read(), reply.headers
    except urllib.error.HTTPError as e:
        with e:
            if e.code == 404:
                return None, None
            raise BadStatus(f"{method} {url}: {e.code} {e.read()[:200]}") from None


# ---- What all stores have --------------------------------------------------------------------------

class Ended(AssertionError):
    """The server has ended by itself."""


class Store:
    """A server on one port. With `netns`, in that network namespace, on address `host` there."""
    scheme = None

    def __init__(self, host="127.0.0.1", netns=None):
        te.need(self.scheme)
        self.host, self.netns = host, netns
        self.port = self.process = None
        self.folder = tempfile.mkdtemp(prefix="te-store-", dir=MEMORY)
        try:
            self.start_anywhere()
        except BaseException:
            self.close()
            raise

    def choose_ports(self):
        self.port = te.free_port()

    def start_anywhere(self):
        """The ports are free now, but a stranger may be quicker to take one."""
        for last in (False,) * 20 + (True,):
            self.choose_ports()
            try:
                self.start()
                return
            except Ended:
                if last or not self.has_no_port():
                    raise
                self.clear()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    @property
    def url(self):
        return f"{self.scheme}://{self.address}"

    def command(self):
        raise NotImplementedError

    def answers(self):
        """Whether it serves; may raise OSError."""
        raise NotImplementedError

    def launch(self):
        prefix = ("ip", "netns", "exec", self.netns) if self.netns else ()
        self.process = te.Proc([*prefix, *self.command()])

    def start(self):
        self.launch()
        self.wait_ready()

    def has_no_port(self):
        return self.process.port_was_taken()

    def ready(self):
        if self.process.process.poll() is not None:
            raise Ended(f"ended: {self.process}")
        try:
            return self.reach(self.answers)
        except OSError:
            return False

    def wait_ready(self):
        te.until(self.ready, lambda: f"an answer of {self.process}")

    def reach(self, work, *args):
        """Runs work(*args) where the store can be reached."""
        return te_hosts.within(self.netns, work, *args) if self.netns else work(*args)

    def kill(self):
        self.process.close()

    def restart(self, empty=False):
        self.process.close()
        if empty:
            self.clear()
        self.start()

    def clear(self):
        self.process.close()
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)

    def freeze(self):
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def close(self):
        if self.process:
            self.process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    # Keys are text, or bytes that are none; values are bytes, None for an absent key.
    def get(self, key):
        return self.reach(self.do_get, to_bytes(key))

    def put(self, key, value):
        self.reach(self.do_put, to_bytes(key), to_bytes(value))

    def delete(self, key):
        self.reach(self.do_delete, to_bytes(key))

    def keys(self, prefix="mooncake/"):
        return sorted(k.decode("utf-8", "replace") for k in self.reach(self.do_keys, to_bytes(prefix)))


def to_bytes(text):
    return text.encode() if isinstance(text, str) else text


# ---- etcd ------------------------------------------------------------------------------------------

class Etcd(Store):
    """One etcd, or a member of a cluster: `cluster` is then [(name, peer port)] of all."""
    scheme = "etcd"

    def __init__(self, name="m0", cluster=None, flags=(), **more):
        self.name, self.flags, self.cluster = name, flags, cluster
        self.alone = cluster is None
        super().__init__(**more)

    def choose_ports(self):
        super().choose_ports()
        if self.alone:
            self.cluster = [(self.name, te.free_port())]

    def command(self):
        peers = [f"{name}=http://{self.host}:{port}" for name, port in self.cluster]
        own = dict(self.cluster)[self.name]
        return [program("etcd", "etcd-server"), "--name", self.name, "--log-level", "error",
                "--data-dir", os.path.join(self.folder, "data"),
                "--listen-client-urls", f"http://{self.address}",
                "--advertise-client-urls", f"http://{self.address}",
                "--listen-peer-urls", f"http://{self.host}:{own}",
                "--initial-advertise-peer-urls", f"http://{self.host}:{own}",
                "--initial-cluster", ",".join(peers), "--initial-cluster-state", "new", *self.flags]

    def answers(self):
        try:
            body, _ = http("GET", f"http://{self.address}/health")
        except BadStatus:  # it has no leader yet
            return False
        return json.loads(body)["health"] == "true"

    def ask(self, path, **fields):
        data = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in fields.items()}
        body, _ = http("POST", f"http://{self.address}/v3/kv/{path}", json.dumps(data).encode())
        return json.loads(body)

    def do_get(self, key):
        found = self.ask("range", key=key).get("kvs")
        return base64.b64decode(found[0].get("value", "")) if found else None

    def do_put(self, key, value):
        self.ask("put", key=key, value=value)

    def do_delete(self, key):
        self.ask("deleterange", key=key)

    def do_keys(self, prefix):
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        found = self.ask("range", key=prefix, range_end=end, keys_only=True).get("kvs", [])
        return [base64.b64decode(kv["key"]) for kv in found]


class EtcdCluster:
    """Three members; get() and the like ask one that lives."""

    class Member(Etcd):
        def wait_ready(self):
            """Members need each other: the cluster waits for all."""

    def __init__(self, count=3):
        self.members = []
        for last in (False,) * 20 + (True,):
            try:
                self.start(count)
                return
            except BaseException as failure:
                taken = isinstance(failure, Ended) and any(m.has_no_port() for m in self.members)
                self.close()
                if last or not taken:
                    raise

    def start(self, count):
        cluster = [(f"m{i}", te.free_port()) for i in range(count)]
        self.members = []
        for name, _ in cluster:
            self.members.append(EtcdCluster.Member(name, cluster))
        self.wait_ready()

    @property
    def url(self):
        return "etcd://" + ",".join(m.address for m in self.members)

    def wait_ready(self):
        for member in self.members:
            Etcd.wait_ready(member)

    def living(self):
        return next(m for m in self.members if m.process.process.poll() is None)

    def get(self, key):
        return self.living().get(key)

    def keys(self, prefix="mooncake/"):
        return self.living().keys(prefix)

    def used_by(self, proc):
        """The members that a process has a connection to."""
        return [m for m in self.members if m.port in connected_ports(proc)]

    def close(self):
        for member in self.members:
            member.close()


def connected_ports(proc):
    """The remote ports of the established TCP connections of a process."""
    own = {what[8:-1] for what in proc.fds().values() if what.startswith("socket:[")}
    with open(f"/proc/{proc.pid}/net/tcp", encoding="utf-8") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01" and row[9] in own}


# ---- redis -----------------------------------------------------------------------------------------

class Redis(Store):
    scheme = "redis"

    def __init__(self, durable=False, flags=(), **more):
        self.durable, self.flags = durable, flags
        super().__init__(**more)

    def command(self):
        return [program("redis-server", "redis-server"), "--port", str(self.port), "--bind", self.host,
                "--protected-mode", "no", "--save", "", "--dir", self.folder, "--appendonly",
                "yes" if self.durable else "no", "--appendfsync", "always", *self.flags]

    def answers(self):
        return self.ask(b"PING") == b"PONG"

    def ask(self, *words):
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        with socket.create_connection((self.host, self.port), timeout=te.HANG_S) as sock:
            sock.sendall(request)
            with sock.makefile("rb") as stream:
                return read_reply(stream)

    def do_get(self, key):
        return self.ask(b"GET", key)

    def do_put(self, key, value):
        self.ask(b"SET", key, value)

    def do_delete(self, key):
        self.ask(b"DEL", key)

    def do_keys(self, prefix):
        return [k for k in self.ask(b"KEYS", b"*") if k.startswith(prefix)]


def read_reply(stream):
    """One RESP value; an error is raised, and so an OSError while the server is loading."""
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read_reply(stream) for _ in range(int(rest))]
    raise ConnectionError(f"redis answers {line[:200]!r}")


# ---- te_metad --------------------------------------------------------------------------------------

class Metad(Store):
    """te_metad; what is written here stays until it is deleted, as with any HTTP store."""
    scheme = "http"

    def __init__(self, durable=False, flags=(), **more):
        self.durable, self.flags = durable, flags
        super().__init__(**more)

    @property
    def url(self):
        return f"{super().url}/metadata"

    def command(self):
        data = [f"--data-dir={os.path.join(self.folder, 'data')}"] if self.durable else []
        return [te.tool("te_metad"), f"--addr={self.address}", *data, *self.flags]

    def answers(self):
        return http("GET", f"http://{self.address}/health")[0] is not None

    def where(self, key, name="key"):
        return f"{self.url}?{name}={urllib.parse.quote(key, safe='')}"

    def do_get(self, key):
        return http("GET", self.where(key))[0]

    def do_put(self, key, value):
        http("PUT", self.where(key), value)

    def do_delete(self, key):
        http("DELETE", self.where(key))

    def do_keys(self, prefix):
        body, _ = http("GET", self.where(prefix, "prefix"))
        return body.splitlines()


STORES = (Etcd, Redis, Metad)


# ---- Tests over stores -----------------------------------------------------------------------------

def per_store(*stores):
    """Replaces a test class by one for each store; .Store is its class there."""
    def decorate(case):
        module = sys.modules[case.__module__]
        for store in stores or STORES:
            name = f"{case.__name__}{store.__name__}"
            setattr(module, name, type(name, (case,), {"Store": store, "__module__": case.__module__,
                                                       "__doc__": case.__doc__}))
    return decorate


class StoreCase(unittest.TestCase):
    """A test with a store of its own, .store; `options` go to every engine."""
    Store = None
    options = ()

    def setUp(self):
        self.store = self.make_store()
        self.addCleanup(self.store.close)

    def make_store(self):
        return self.Store()

    def peer(self, name, *options, url=None, **more):
        peer = te.Peer(name=name, metadata=url or self.store.url, options=(*self.options, *options), **more)
        self.addCleanup(peer.close)
        return peer

    def quit(self, *peers):
        for peer in peers:
            self.assertEqual(peer.quit(), 0, peer)

    def link(self, peer, target, size, seed=1):
        """Opens a new region of the target: (index, segment, remote) for Peer.round_trip()."""
        _, remote = target.region(size)
        index, _ = peer.region(2 * size)
        segment = peer.open(target.segment)
        peer.round_trip(segment, index, size, remote, seed)
        return index, segment, remote

    def there(self, *names):
        """Which keys of these engines the store has."""
        return [key for name in names for key in keys_of(name) if self.store.get(key) is not None]

    def wait_keys(self, *names):
        te.until(lambda: len(self.there(*names)) == 2 * len(names),
                 lambda: f"keys of {names}; there are {self.there(*names)}")

    def wait_no_keys(self, *names):
        te.until(lambda: not self.there(*names),
                 lambda: f"the end of the keys of {names}; there are {self.there(*names)}")


def keys_of(name, cluster=""):
    return [f"mooncake/{cluster}{kind}/{name}" for kind in ("rpc_meta", "ram")]
