# SPDX-License-Identifier: Apache-2.0
"""What the tests of file segments share: files, records, stand-ins for nvme(1), mount(8) and sysfs."""
import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest
import urllib.parse

import te_proc as te

MIB = 1 << 20
ZEROS = "0" * 16

# What stands in for nvme, mount and umount: it notes how it was called, and does to the made-up
# trees what the program does to real ones, as plan.json says.
PROGRAM = r'''#!%(python)s
import json, os, shutil, sys, time
root = %(root)r
name = os.path.basename(sys.argv[0])
args = sys.argv[1:]
with open(f"{root}/calls", "a") as f:
    f.write(json.dumps([name, *args]) + "\n")
with open(f"{root}/plan.json") as f:
    plan = json.load(f)
word = args[0] if name == "nvme" else name
print(f"{word} says hello")
if word in plan.get("hang", []):
    time.sleep(600)
if word in plan.get("fail", []) and word not in plan.get("late", []):
    sys.exit(f"{word}: no such luck")
subsystems = f"{root}/sys/class/nvme-subsystem"
if word == "connect":
    nqn = args[args.index("-n") + 1]
    what = plan["subsystems"][nqn]
    folder = f"{subsystems}/nvme-subsys{what['number']}"
    controller = f"nvme{what['number']}"
    os.makedirs(f"{folder}/{controller}")
    with open(f"{folder}/subsysnqn", "w") as f:
        f.write(nqn + "\n")
    for device, nsid in what["namespaces"].items():
        place = folder if what.get("multipath", True) else f"{folder}/{controller}"
        os.mkdir(f"{place}/{device}")
        with open(f"{place}/{device}/nsid", "w") as f:
            f.write(f"{nsid}\n")
        with open(f"{place}/{device}/wwid", "w") as f:
            f.write(f"uuid.{device}\n")
        if what.get("multipath", True):
            os.mkdir(f"{folder}/{controller}/{controller}c0n{nsid}")
elif word == "disconnect":
    nqn = args[args.index("-n") + 1]
    shutil.rmtree(f"{subsystems}/nvme-subsys{plan['subsystems'][nqn]['number']}")
elif word == "mount":
    device, folder = args[-2:]
    for path, size in plan["trees"][os.path.basename(device)].items():
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        if isinstance(size, str):
            os.symlink(size, f"{folder}/{path}")
        else:
            with open(f"{folder}/{path}", "wb") as f:
                f.truncate(size)
elif word == "umount":
    for entry in os.listdir(args[0]):
        path = f"{args[0]}/{entry}"
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
if word in plan.get("fail", []):
    sys.exit(f"{word}: no such luck, but late")
'''


def target(nqn, nsid=1, traddr="10.0.0.1", transport="tcp", trsvcid="4420", **more):
    return {"transport": transport, "traddr": traddr, "trsvcid": trsvcid, "subnqn": nqn, "nsid": nsid, **more}


def record(name, files, targets=None, server_name="node01"):
    """A record as other tools write it; files: [(path, length, {host: path}), ...]."""
    told = {"name": f"nvmeof/{name}", "server_name": server_name, "protocol": "nvmeof",
            "tcp_data_port": 0, "tcp_proto_version": 1, "timestamp": "2026-01-01 00:00:00.000000",
            "buffers": [{"file_path": path, "length": length, "local_path_map": hosts}
                        for path, length, hosts in files]}
    if targets is not None:
        told["te"] = {"v": 1, "incarnation": ZEROS, "version": 0, "nvmeof": {"target": targets}}
    return told


class Racy:
    """An HTTP store without lists that has nvmeof/kv, and whose value others replace: after_put(number,
    old, new) gives what is there after a put, None for nothing."""

    def __init__(self, value, after_put=lambda number, old, new: new):
        self.values = {"mooncake/nvmeof/kv": json.dumps(value).encode()}
        self.puts = 0
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def key(self):
                return urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query).get("key", [""])[0]

            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                value = store.values.get(self.key())
                if value is None:
                    self.answer(404 if self.key() else 400)
                else:
                    self.answer(200, value)

            def do_PUT(self):
                new = self.rfile.read(int(self.headers["Content-Length"]))
                old = store.values[self.key()]
                store.puts += 1
                store.values[self.key()] = new
                then = after_put(store.puts, json.loads(old), json.loads(new))
                store.values = {self.key(): json.dumps(then).encode()} if then else {}
                self.answer(200)

            def log_message(self, *unused):
                pass

        te.need("http")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metadata"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def get(self, key):
        return self.values.get(key)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class FilesCase(unittest.TestCase):
    """A test with a store, .store, and a folder, .root."""
    kind = None

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="te-files-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        if self.kind:
            self.store = self.kind()
            self.addCleanup(self.store.close)

    def path(self, name, size=None):
        """A path below the folder; with a size, of a new file."""
        path = os.path.join(os.path.realpath(self.root), name)
        if size is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.truncate(size)
        return path

    def run_tool(self, *args, url=None, prefix=(), **variables):
        return te.run("te_segment", *args, f"--metadata_server={url or self.store.url}", env=variables,
                      prefix=prefix)

    def good(self, *args, **more):
        proc = self.run_tool(*args, **more)
        self.assertEqual((proc.rc, proc.error_output()), (0, ""), proc)
        return proc.output()

    def bad(self, *args, says, rc=1, **more):
        """It fails with one line that says that, and prints nothing."""
        proc = self.run_tool(*args, **more)
        self.assertEqual((proc.rc, len(proc.errors), proc.output()), (rc, 1, ""), proc)
        self.assertIn(says, proc.error_output())

    def stored(self, name):
        value = self.store.get(f"mooncake/nvmeof/{name}")
        return None if value is None else json.loads(value)

    def put(self, name, told):
        self.store.put(f"mooncake/nvmeof/{name}", told if isinstance(told, (str, bytes)) else json.dumps(told))

    def maps(self, name):
        return [b.get("local_path_map", {}) for b in self.stored(name)["buffers"]]


class FabricCase(FilesCase):
    """The same, with stand-ins for the programs, and made-up /sys and /dev."""

    def setUp(self):
        super().setUp()
        for name in ("bin", "sys/class/nvme-subsystem", "dev"):
            os.makedirs(self.path(name))
        for name in ("nvme", "mount", "umount"):
            with open(self.path(f"bin/{name}"), "w", encoding="utf-8") as f:
                f.write(PROGRAM % {"python": sys.executable, "root": os.path.realpath(self.root)})
            os.chmod(self.path(f"bin/{name}"), 0o755)
        self.plan()

    def plan(self, **what):
        with open(self.path("plan.json"), "w", encoding="utf-8") as f:
            json.dump(what, f)

    def variables(self):
        return {"PATH": self.path("bin"), "TE_SYSFS_PATH": self.path("sys"), "TE_DEV_PATH": self.path("dev")}

    def run_tool(self, *args, **more):
        if args[0] in ("mount", "unmount") and ("--connect" in args or "--disconnect" in args):
            args += (f"--mount_dir={self.path('mnt')}",)
        return super().run_tool(*args, **{**self.variables(), **more})

    def fails(self, *args, says, rc=1, **more):
        """It fails, and says that among what the programs say; returns all of it."""
        proc = self.run_tool(*args, **more)
        self.assertEqual((proc.rc, proc.output()), (rc, ""), proc)
        self.assertIn(says, proc.error_output())
        return proc.error_output()

    def calls(self):
        """How the programs were called since the last time this was asked."""
        if not os.path.exists(self.path("calls")):
            return []
        with open(self.path("calls"), encoding="utf-8") as f:
            lines = f.readlines()
        os.unlink(self.path("calls"))
        return [json.loads(line) for line in lines]
