#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""te_segment with segments of files on each metadata server: register, mount, unmount, list, show."""
import json
import os
import socket
import unittest

import te_files as files
import te_proc as te
import te_stores as stores
from te_files import MIB, record, target

NQN = "nqn.2026-01.org.example:kv"


class Base:
    """What holds with every store."""

    def test_what_register_writes(self):
        a, b = self.path("a", 3 * MIB), self.path("b", MIB + 1)
        text = self.good("register", "kv", f"--file={a},{b}", "--server_name=node01")
        self.assertEqual(text, f"registered nvmeof/kv\n  {a}  {3 * MIB} bytes\n  {b}  {MIB + 1} bytes")
        told = self.stored("kv")
        self.assertRegex(told.pop("timestamp"), r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
        self.assertEqual(told, {
            "name": "nvmeof/kv", "server_name": "node01", "protocol": "nvmeof", "tcp_data_port": 0,
            "tcp_proto_version": 1, "buffers": [
                {"file_path": a, "length": 3 * MIB, "local_path_map": {"node01": a}},
                {"file_path": b, "length": MIB + 1, "local_path_map": {"node01": b}}]})
        self.assertEqual(self.store.keys(), ["mooncake/nvmeof/kv"])

    def test_lists_that_are_given_in_parts(self):
        a, b, c = (self.path(name, MIB) for name in "abc")
        self.good("register", "kv", f"--file={a},{b}", f"--file={c}", "--server_name=x")
        self.assertEqual(self.maps("kv"), [{"x": a}, {"x": b}, {"x": c}])
        self.good("mount", "kv", f"--path={c}", "--path=", f"--path={a}", "--server_name=y")
        self.assertEqual(self.maps("kv"), [{"x": a, "y": c}, {"x": b}, {"x": c, "y": a}])
        for args in (("register", "kv", f"--file={a}", "--server_name=x", "--server_name=y"),
                     ("mount", "kv", f"--path={a}", "--server_name=x", "--server_name=x")):
            self.bad(*args, says="--server_name is given twice", rc=2)

    def test_register_again(self):
        a, b = self.path("a", MIB), self.path("b", MIB)
        self.good("register", "nvmeof/kv", f"--file={a}")
        self.assertEqual(self.maps("kv"), [{socket.gethostname(): a}])
        self.bad("register", "kv", f"--file={b}", says="registered already; --force replaces it, and hosts")
        self.good("register", "/nvmeof/kv", f"--file={b}", "--force", "--server_name=x")
        self.assertEqual(self.maps("kv"), [{"x": b}])

    def test_mount_and_unmount(self):
        here, there = [self.path(f"here/{i}", MIB) for i in "01"], [self.path(f"there/{i}", MIB) for i in "01"]
        self.good("register", "kv", "--file=" + ",".join(here), "--server_name=node01", f"--length={MIB // 2}")
        self.assertEqual([b["length"] for b in self.stored("kv")["buffers"]], [MIB // 2] * 2)
        self.assertEqual(self.stored("kv")["te"], {"v": 1, "incarnation": files.ZEROS, "version": 0,
                                                   "nvmeof": {"file_length": [MIB] * 2}})
        text = self.good("mount", "kv", "--path=" + ",".join(there), "--server_name=node02")
        self.assertEqual(text.split("\n"), ["mounted nvmeof/kv on node02"] +
                         [f"  {path}  {MIB // 2} bytes" for path in there])
        both = [{"node01": h, "node02": t} for h, t in zip(here, there)]
        self.assertEqual(self.maps("kv"), both)
        # One of them elsewhere, the other one as it is.
        self.good("mount", "nvmeof/kv", f"--path=,{here[1]}", "--server_name=node02")
        self.assertEqual(self.maps("kv"), [both[0], {"node01": here[1], "node02": here[1]}])
        self.assertEqual(self.good("unmount", "kv", "--server_name=node02"), "unmounted nvmeof/kv on node02")
        self.assertEqual(self.maps("kv"), [{"node01": path} for path in here])
        self.bad("unmount", "kv", "--server_name=node02", says="has no path of node02: nothing was removed")
        self.good("unmount", "kv", "--server_name=node01")
        self.assertEqual(self.maps("kv"), [{}, {}])

    def test_what_others_wrote_stays(self):
        told = record("kv", [("/mnt/nvme0", 5, {"node07": "/x"})], [target(NQN)])
        del told["name"], told["buffers"][0]["local_path_map"]
        told.update(extra={"deep": [1, None]})
        self.put("kv", told)
        path = self.path("a", 5)
        self.good("mount", "kv", f"--path={path}", "--server_name=node02")
        told["buffers"][0]["local_path_map"] = {"node02": path}
        now = self.stored("kv")
        self.assertNotEqual(now.pop("timestamp"), told.pop("timestamp"))
        self.assertEqual(now, told)

    def test_mounts_at_the_same_time(self):
        names = [f"node{i:02}" for i in range(5)]
        path = self.path("a", MIB)
        self.good("register", "kv", f"--file={path}", "--server_name=node99")
        procs = [te.Proc([te.tool("te_segment"), "mount", "kv", f"--path={path}", f"--server_name={name}",
                          f"--metadata_server={self.store.url}"]) for name in names]
        for proc in procs:
            self.addCleanup(proc.close)
            self.assertEqual(proc.wait(), 0, proc)
        self.assertEqual(self.maps("kv"), [dict.fromkeys([*names, "node99"], path)])

    def test_list(self):
        a, b = self.path("a", MIB), self.path("b", MIB)
        self.good("register", "kv", f"--file={a},{b}", "--server_name=node01")
        self.good("mount", "kv", f"--path={a},", "--server_name=node02")
        self.good("register", "memory")
        self.put("bad", record("bad", [("/mnt/../x", 1, {})]))
        lines = [line.split(None, 9) for line in self.good("list").split("\n")]
        ages = [line.pop(6) for line in lines]
        self.assertRegex(" ".join(ages), r"^AGE \d+[sm] (~\d+d|-) ~\d+[sm]$")
        self.assertEqual(lines[0], ["NAME", "KIND", "PROTOCOL", "BUFFERS", "BYTES", "HOSTS", "ENGINE", "ANSWERS"])
        self.assertEqual(lines[1:], [
            ["memory", "ram", "tcp", "0", "0", "-", "-", "-"],
            ["nvmeof/bad", "nvmeof", "nvmeof", "1", "1", "-", "-", "-",
             "malformed: buffers[0]: 'file_path' is no absolute path"],
            ["nvmeof/kv", "nvmeof", "nvmeof", "2", str(2 * MIB), "2", "-", "-"]])
        told = {e["name"]: e for e in json.loads(self.good("list", "--json"))}
        self.assertEqual(told["nvmeof/kv"], {"name": "nvmeof/kv", "kind": "nvmeof", "protocol": "nvmeof",
                                             "buffers": 2, "bytes": 2 * MIB, "hosts": 2, "rpc": None,
                                             "age_s": None, "answers": None})
        self.assertNotIn("hosts", told["nvmeof/bad"])
        self.assertIn("file_path", told["nvmeof/bad"]["error"])

    def test_show(self):
        a, b, c = self.path("a", MIB), self.path("b", 2 * MIB), self.path("c", 3 * MIB)
        self.good("register", "kv", f"--file={a},{b}", "--server_name=node01",
                  f"--target=tcp://10.0.0.1:4420/{NQN}?nsid=3")
        self.good("mount", "kv", f"--path=,{c}", "--server_name=node02", "--force")
        host = socket.gethostname()

        def shown(*args):
            text = self.good("show", "nvmeof/kv", *args)
            self.assertRegex(text, rf"(?m)^buffers +2, {3 * MIB} bytes$")
            self.assertNotIn("engine", text)
            return [line.split(None, 1) for line in text[text.index("  file 0"):].split("\n")]

        expected = [
            ["file", f"0: {MIB} bytes from offset 0"], ["file_path", a], ["on", f"node01    {a}"],
            ["here", "no path: te_segment mount records one"],
            ["target", f"tcp://10.0.0.1:4420/{NQN}?nsid=3"],
            ["file", f"1: {2 * MIB} bytes from offset {MIB}"], ["file_path", b],
            ["on", f"node01    {b}"], ["on", f"node02    {c}"],
            ["here", "no path: te_segment mount records one"],
            ["target", f"tcp://10.0.0.1:4420/{NQN}?nsid=4"]]
        self.assertEqual(shown(), expected)
        expected[9][1] = f"{c} (as node02): usable"
        self.assertEqual(shown("--server_name=node02:15000"), expected)
        os.truncate(c, 2 * MIB - 1)
        expected[9][1] = (f"{c} (as node02): not usable: it has {2 * MIB - 1} bytes, less than the "
                          f"{2 * MIB} registered")
        self.assertEqual(shown("--server_name=node02"), expected)
        os.unlink(b)
        expected[3][1] = f"{a} (as node01): usable"
        expected[9][1] = f"{b} (as node01): not usable: there is no such file"
        self.assertEqual(shown("--server_name=node01"), expected)
        # The host that registered takes file_path though it has been taken out of the record.
        self.good("unmount", "kv", "--server_name=node01")
        del expected[7], expected[2]
        self.assertEqual(shown("--server_name=node01"), expected)
        # The name of the host itself comes last.
        self.good("mount", "kv", f"--path={a},", f"--server_name={host}")
        self.assertIn(f"here         {a} (as {host}): usable", self.good("show", "nvmeof/kv", "--server_name=x"))

    def test_every_host(self):
        a, b = self.path("a", MIB), self.path("b", MIB)
        self.put("kv", record("kv", [("/a", MIB, {})], server_name="node02"))
        self.good("mount", "kv", f"--path={a}", "--server_name=*")
        self.assertEqual(self.maps("kv"), [{"*": a}])
        self.assertIn(f"here         {a} (as *): usable", self.good("show", "kv", "--server_name=node02"))
        self.good("mount", "kv", f"--path={b}", "--server_name=node02")
        self.assertIn(f"here         {b} (as node02): usable", self.good("show", "kv", "--server_name=node02"))

    def test_show_without_the_kind(self):
        self.put("kv", record("kv", [("/a", 5, {})]))
        self.assertRegex(self.good("show", "kv"), r"(?m)^name +nvmeof/kv$")
        self.good("register", "kv")
        self.assertRegex(self.good("show", "kv"), r"(?m)^name +kv$")
        self.assertRegex(self.good("show", "nvmeof/kv"), r"(?m)^name +nvmeof/kv$")
        self.bad("show", "none", says="no segment 'none'")
        self.store.put("mooncake/nvmeof/odd", '{"name":"odd","protocol":"tcp","buffers":[]}')
        self.bad("mount", "odd", "--path=/dev/null", says="segment 'nvmeof/odd' is none of files")

    def test_unregister(self):
        a = self.path("a", MIB)
        self.good("register", "kv", f"--file={a}")
        self.assertEqual(self.good("unregister", "nvmeof/kv"), "removed mooncake/nvmeof/kv")
        self.assertEqual(os.path.getsize(a), MIB)
        self.good("register", "kv", f"--file={a}")
        self.assertEqual(self.good("unregister", "kv"), "removed mooncake/nvmeof/kv")
        self.bad("mount", "kv", f"--path={a}", says="no segment 'nvmeof/kv'; te_segment list shows")
        self.bad("unmount", "kv", says="no segment 'nvmeof/kv'")

    def test_clusters(self):
        a = self.path("a", MIB)
        self.good("register", "kv", f"--file={a}", "--server_name=x", "--cluster_id=red")
        self.assertIsNone(self.stored("kv"))
        self.good("mount", "kv", f"--path={a}", "--server_name=y", MC_METADATA_CLUSTER_ID="red")
        told = json.loads(self.store.get("mooncake/red/nvmeof/kv"))
        self.assertEqual(told["buffers"][0]["local_path_map"], {"x": a, "y": a})


for _kind in (stores.Metad, stores.Redis, stores.Etcd):
    globals()["On" + _kind.__name__] = type("On" + _kind.__name__, (Base, files.FilesCase), {"kind": _kind})
del _kind


class Register(files.FilesCase):
    """What register takes for a file, a length and a target."""
    kind = stores.Metad

    def setUp(self):
        super().setUp()
        self.a = self.path("a", MIB)

    def refused(self, name, *args, says, rc=1):
        self.bad("register", name, *args, says=says, rc=rc)
        self.assertEqual(self.store.keys(), [])

    def test_files_that_are_refused(self):
        os.mkfifo(self.path("fifo"))
        os.symlink(self.a, self.path("link"))
        os.link(self.a, self.path("second"))
        self.path("empty", 0)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(self.path("socket"))
        for name, says in (("none", "there is no such file"), ("fifo", "neither a regular file nor a block"),
                           ("socket", "neither a regular file nor a block"), ("", "it is a folder"),
                           ("empty", "it is empty"), ("a/x", "Not a directory")):
            self.refused("kv", f"--file={self.path(name)}", says=says)
        self.refused("kv", f"--file={self.a},", says="has an empty path", rc=2)
        self.refused("kv", "--file=/dev/null", says="neither a regular file nor a block")
        for name in ("link", "second", "a"):
            self.refused("kv", f"--file={self.a},{self.path(name)}", says="would be in the segment twice")
        self.refused("kv", "--file=", says="--file has no path", rc=2)
        self.refused("kv", f"--file={self.a}" + f",{self.a}" * 1024, says="names 1025 files, more than 1024", rc=2)

    def test_paths_that_a_record_cannot_have(self):
        for name in (b"new\nline", b"esc\x1b", b"c1\xc2\x9b", b"not\xff-utf8"):
            path = os.fsencode(self.path("")) + name
            with open(path, "wb") as f:
                f.write(b"x")
            proc = self.run_tool("register", "kv", b"--file=" + path)
            self.assertEqual((proc.rc, proc.output()), (1, ""), proc)
            self.assertIn("a character that a record cannot have", proc.error_output())
        self.assertEqual(self.store.keys(), [])

    def test_no_right_to_write(self):
        """A program that runs cannot be written, not by root either."""
        tool = te.tool("te_segment")
        self.refused("kv", f"--file={tool}", says="can be opened for reading only")
        self.put("kv", record("kv", [("/a", 5, {})]))
        self.good("mount", "kv", f"--path={tool}", "--server_name=x", "--force")
        self.assertIn(" (as x): usable for reading only", self.good("show", "kv", "--server_name=x"))

    def test_real_path(self):
        os.mkdir(self.path("folder"))
        os.symlink("folder", self.path("away"))
        self.path("folder/f", 7)
        self.good("register", "kv", f"--file={self.path('.')}/folder/../away//f", "--server_name=x")
        self.assertEqual(self.maps("kv"), [{"x": self.path("folder/f")}])

    def test_names(self):
        for name in ("ram/x", "other/x", "a/b/c", "nvmeof/a/b", "nvmeof/", "..", "nvmeof/.", "a\nb", "x" * 300):
            proc = self.run_tool("register", name, f"--file={self.a}")
            self.assertEqual((proc.rc, proc.output()), (2, ""), proc)
            self.assertIn("cannot register", proc.error_output())
        self.assertEqual(self.store.keys(), [])
        for name in ("rpc_meta/x", "ram/x", "x/y"):
            self.bad("mount", name, f"--path={self.a}", says="no name of a segment" if name == "rpc_meta/x"
                     else "is no segment of files", rc=2)
        for host, says in (("x" * 600, "too long"), ("a\x1bb", "no name of a host")):
            self.refused("kv", f"--file={self.a}", f"--server_name={host}", says=says, rc=2)

    def test_length(self):
        self.refused("kv", f"--file={self.a}", f"--length={MIB + 1}",
                     says=f"has {MIB} bytes, less than --length={MIB + 1}")
        self.refused("kv", f"--file={self.a}", "--length=-1", says="bad value", rc=2)
        self.good("register", "kv", f"--file={self.a}", "--length=4K")
        self.assertEqual(self.stored("kv")["buffers"][0]["length"], 4096)

    def test_create(self):
        new = self.path("new")
        text = self.good("register", "kv", f"--file={self.a},{new}", "--create=1M")
        self.assertIn(f"{new}  {MIB} bytes, made", text)
        self.assertNotIn(f"{self.a}  {MIB} bytes, made", text)
        st = os.stat(new)
        self.assertEqual((st.st_size, st.st_mode & 0o777), (MIB, 0o600))
        self.assertGreaterEqual(st.st_blocks * 512, MIB)
        self.good("unregister", "nvmeof/kv")
        self.refused("kv", f"--file={self.a}", "--create=2M", says="less than --create: remove it or make it larger")
        self.refused("kv", f"--file={self.path('none/x')}", "--create=2M", says="it cannot be made: No such file")
        # What was made is taken away again.
        other = self.path("other")
        self.refused("kv", f"--file={other},{self.path('none')}/x", "--create=1M", says="it cannot be made")
        self.refused("kv", f"--file={other}", "--create=1M", "--target=bogus", says="has not the form", rc=2)
        self.refused("kv", f"--file={other}", "--create=8000P", says="bad value", rc=2)
        self.refused("kv", f"--file={other}", "--create=8000000T", says="cannot be allocated")
        self.bad("register", "kv", f"--file={other}", "--create=1M", says="is the metadata server up",
                 url=f"http://127.0.0.1:{te.dead_port()}/metadata")
        self.assertFalse(os.path.exists(other))

    def targets(self, *urls, count=1):
        paths = [self.path(f"t{i}", 10) for i in range(count)]
        self.good("register", "kv", "--force", "--file=" + ",".join(paths), "--target=" + ",".join(urls))
        te_object = self.stored("kv")["te"]
        self.assertEqual({k: v for k, v in te_object.items() if k != "nvmeof"},
                         {"v": 1, "incarnation": files.ZEROS, "version": 0})
        return te_object["nvmeof"]["target"]

    def test_targets(self):
        self.assertEqual(self.targets(f"tcp://10.0.0.1/{NQN}"), [target(NQN)])
        self.assertEqual(self.targets(f"rdma://[fd00::1%eth0]:4421/{NQN}?nsid=7"),
                         [target(NQN, 7, "fd00::1%eth0", "rdma", "4421")])
        self.assertEqual(self.targets(f"tcp://[::1]/{NQN}"), [target(NQN, traddr="::1")])
        self.assertEqual(self.targets(f"tcp://host-a:1/{NQN}?nsid=7", count=3),
                         [target(NQN, nsid, "host-a", trsvcid="1") for nsid in (7, 8, 9)])
        self.assertEqual(self.targets(f"tcp://h/{NQN}?fs_path=a/b&nsid=2", f"tcp://h/x:y/z?nsid=4294967294", count=2),
                         [target(NQN, 2, "h", fs_path="a/b"), target("x:y/z", 4294967294, "h")])
        self.assertIn(f"target       tcp://h:4420/{NQN}?nsid=2&fs_path=a/b", self.good("show", "nvmeof/kv"))
        self.targets(f"rdma://[fd00::1]/{NQN}")
        self.assertIn(f"target       rdma://[fd00::1]:4420/{NQN}?nsid=1", self.good("show", "nvmeof/kv"))

    def test_targets_that_are_refused(self):
        b = self.path("b", MIB)
        for url, says in (
                ("x", "has not the form"), ("tcp://h", "has not the form"), ("tcp://h/", "'subnqn'"),
                (f"fc://h/{NQN}", "'transport'"), (f"tcp:///{NQN}", "'traddr'"), (f"tcp://-h/{NQN}", "'traddr'"),
                (f"tcp://a b/{NQN}", "'traddr'"), (f"tcp://h:0/{NQN}", "'trsvcid'"), (f"tcp://h:x/{NQN}", "'trsvcid'"),
                (f"tcp://h:65536/{NQN}", "'trsvcid'"), (f"tcp://h:/{NQN}", "'trsvcid'"),
                (f"tcp://[::1/{NQN}", "has not the form"), (f"tcp://[::1]x/{NQN}", "has not the form"),
                ("tcp://h/-n", "'subnqn'"), ("tcp://h/a b", "'subnqn'"), ("tcp://h/" + "n" * 224, "'subnqn'"),
                (f"tcp://h/{NQN}?", "has not the form"), (f"tcp://h/{NQN}?nsid=0", "'nsid'"),
                (f"tcp://h/{NQN}?nsid=4294967295", "has not the form"), (f"tcp://h/{NQN}?nsid=-1", "has not the form"),
                (f"tcp://h/{NQN}?nsid=99999999999999999999", "has not the form"),
                (f"tcp://h/{NQN}?nsid=1&nsid=2", "has not the form"), (f"tcp://h/{NQN}?bogus=1", "has not the form"),
                (f"tcp://h/{NQN}?fs_path=/a", "'fs_path'"), (f"tcp://h/{NQN}?fs_path=a/../b", "'fs_path'"),
                (f"tcp://h/{NQN}?fs_path=", "'fs_path'"), (f"tcp://h/{NQN}?fs_path=a//b", "'fs_path'")):
            self.refused("kv", f"--file={self.a}", f"--target={url}", says=says, rc=2)
        self.refused("kv", f"--file={self.a},{b}", f"--target=tcp://h/{NQN}?nsid=4294967294", says="'nsid'", rc=2)
        self.refused("kv", f"--file={self.a},{b}", f"--target=tcp://h/{NQN}?fs_path=x",
                     says="with fs_path give one for each of the 2 files", rc=2)
        self.refused("kv", f"--file={self.a}", f"--target=tcp://h/{NQN},tcp://h/{NQN}",
                     says="names 2 targets for 1 files", rc=2)


class Mount(files.FilesCase):
    """What mount --path refuses, and that nothing is changed then."""
    kind = stores.Metad

    def setUp(self):
        super().setUp()
        self.a, self.b = self.path("a", MIB), self.path("b", MIB - 1)
        self.good("register", "kv", f"--file={self.a}", "--server_name=x")
        self.before = self.stored("kv")

    def refused(self, *args, says, rc=1):
        self.bad("mount", "kv", *args, says=says, rc=rc)
        self.assertEqual(self.stored("kv"), self.before)

    def test_refused(self):
        self.refused(f"--path={self.b}", says=f"has {MIB - 1} bytes, less than the {MIB} registered")
        self.refused("--path=/dev/null", says="neither a regular file")
        self.refused(f"--path={self.path('none')}", says="there is no such file")
        self.refused(f"--path={self.a},{self.a}", says="names 2 paths, the segment has 1 files", rc=2)
        self.refused("--path=,", says="names 2 paths", rc=2)
        self.refused(says="either --path=PATH[,PATH...] or --connect", rc=2)
        self.refused(f"--path={self.a}", "--connect", says="either --path", rc=2)
        self.refused("--connect", says="does not say how its files are reached")
        self.refused("--connect", "--mount_dir=run/x", says="--mount_dir='run/x' is no absolute path", rc=2)
        self.bad("unmount", "kv", "--force", says="--force with --disconnect only", rc=2)
        self.bad("register", "kv", "--length=1", says="--length is of a segment of files", rc=2)
        self.bad("register", "kv", f"--target=tcp://h/{NQN}", says="--target is of a segment of files", rc=2)

    def test_another_length(self):
        """A file that is not as long as the one that was registered is another one."""
        c = self.path("c", 2 * MIB)
        says = f"has {2 * MIB} bytes, the one that was registered {MIB}: "
        self.refused(f"--path={c}", says=says)
        self.good("mount", "kv", f"--path={c}", "--server_name=y", "--force")
        self.assertEqual(self.maps("kv"), [{"x": self.a, "y": c}])
        self.bad("mount", "kv", f"--path={self.b}", "--force", says=f"less than the {MIB} registered")
        # Of one whose first bytes were registered counts what it had.
        self.good("register", "kv", "--force", f"--file={c}", f"--length={MIB}", "--server_name=x")
        self.bad("mount", "kv", f"--path={self.a}", says=f"has {MIB} bytes, the one that was registered {2 * MIB}: ")
        self.good("mount", "kv", f"--path={self.path('d', 2 * MIB)}", "--server_name=y")

    def test_nothing_to_mount(self):
        self.put("none", record("none", []))
        self.bad("mount", "none", f"--path={self.a}", says="has no files")
        self.put("two", record("two", [(self.a, 1, {}), (self.a, 1, {})]))
        self.bad("mount", "two", "--path=,", says="--path has no path", rc=2)

    def test_again_is_no_change(self):
        self.good("mount", "kv", f"--path={self.a}", "--server_name=x")
        self.assertEqual(self.stored("kv"), self.before)


class Engine(files.FilesCase):
    """An engine takes the path that was mounted for it."""
    kind = stores.Metad

    def holds_data(self, path):
        with open(path, "rb") as f:
            return any(f.read())

    def test_write(self):
        a, b, c = (self.path(name, 4 * MIB) for name in "abc")
        self.good("register", "kv", f"--file={a},{b}", "--server_name=node01")
        self.good("mount", "kv", f"--path={c},{b}", "--server_name=node02")
        proc = te.bench("nvmeof/kv", "--operation=write", metadata=self.store.url, name="node02")
        self.assertNotEqual(proc.rc, 0, proc)
        self.assertRegex(proc.error_output(), f"{c} is not at or below a path in TE_FILE_PATHS")
        allowed = {"TE_FILE_PATHS": f"{a}:{b}:{c}"}
        proc = te.bench("nvmeof/kv", "--verify", "--operation=write", "--block_size=64K",
                        metadata=self.store.url, name="node02", env=allowed)
        self.assertEqual(proc.rc, 0, proc)
        self.assertFalse(self.holds_data(a))
        self.assertTrue(self.holds_data(c))
        self.good("unmount", "kv", "--server_name=node02")
        proc = te.bench("nvmeof/kv", "--operation=write", metadata=self.store.url, name="node02", env=allowed)
        self.assertNotEqual(proc.rc, 0, proc)
        self.assertIn("te_segment mount", proc.error_output())
        proc = te.bench("kv", "--operation=write", metadata=self.store.url, name="node01:0", env=allowed)
        self.assertNotEqual(proc.rc, 0, proc)
        self.assertIn("opened as nvmeof/kv", proc.error_output())
        self.assertFalse(self.holds_data(a))
        proc = te.bench("kv", "--protocol=nvmeof", "--verify", "--operation=write", "--block_size=64K",
                        metadata=self.store.url, name="node01:0", env=allowed)
        self.assertEqual(proc.rc, 0, proc)
        self.assertTrue(self.holds_data(a))


class LostUpdates(files.FilesCase):
    """Another host that has read the record before we put it, and puts its own after."""

    def setUp(self):
        super().setUp()
        self.a = self.path("a", MIB)

    def serve(self, value, after_put):
        self.store = files.Racy(value, after_put)
        self.addCleanup(self.store.close)

    def test_mount(self):
        """Ours is undone, and with it what was there; all three are there in the end."""
        def other(number, old, new):
            if number > 2:
                return new
            old["buffers"][0]["local_path_map"] = {f"other{number}": "/o"}
            return old

        self.serve(record("kv", [("/x", MIB, {"before": "/b"})]), other)
        self.good("mount", "kv", f"--path={self.a}", "--server_name=me")
        self.assertEqual(self.maps("kv"), [{"before": "/b", "other1": "/o", "other2": "/o", "me": self.a}])
        self.assertEqual(self.store.puts, 3)

    def test_unmount(self):
        self.serve(record("kv", [("/x", MIB, {"me": "/m", "other": "/o"})]),
                   lambda number, old, new: old if number == 1 else new)
        self.good("unmount", "kv", "--server_name=me")
        self.assertEqual((self.maps("kv"), self.store.puts), ([{"other": "/o"}], 2))

    def test_for_ever(self):
        self.serve(record("kv", [("/x", MIB, {})]), lambda number, old, new: old)
        self.bad("mount", "kv", f"--path={self.a}", says="others change it all the time")
        self.assertGreater(self.store.puts, 5)

    def test_gone_meanwhile(self):
        self.serve(record("kv", [("/x", MIB, {})]), lambda number, old, new: None)
        self.bad("mount", "kv", f"--path={self.a}", says="there is no segment 'nvmeof/kv'")

    def test_registered_anew_meanwhile(self):
        self.serve(record("kv", [("/x", MIB, {})]), lambda number, old, new: record("kv", [("/y", MIB, {})]))
        self.bad("mount", "kv", f"--path={self.a}", says="registered anew meanwhile")
        self.assertEqual(self.maps("kv"), [{}])


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    te.main()
