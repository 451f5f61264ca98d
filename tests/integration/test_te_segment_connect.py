#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_segment mount --connect and unmount --disconnect, with stand-ins for nvme(1), mount(8) and sysfs.

Records here are as hostile as any that a server may hold: nothing of them may become an option of a program.
"""
import json
import os
import signal
import subprocess
import unittest

import te_files as files
import te_proc as te
import te_stores as stores
from te_files import MIB, record, target

# Of a step that does not come to its end. The stand-ins, which do, are interpreters that take a moment to start.
WAIT_S = 15 * te.SLOW
A, B = "nqn.2026-01.org.example:a", "nqn.2026-01.org.example:b"


def connect(nqn, transport="tcp", traddr="10.0.0.1", trsvcid="4420"):
    return ["nvme", "connect", "-t", transport, "-a", traddr, "-s", trsvcid, "-n", nqn]


def disconnect(nqn):
    return ["nvme", "disconnect", "-n", nqn]


class Case(files.FabricCase):
    kind = stores.Metad

    def mount(self, *args):
        return self.good_but_loud("mount", "kv", "--connect", "--server_name=me", *args)

    def unmount(self, *args):
        return self.good_but_loud("unmount", "kv", "--disconnect", "--server_name=me", *args)

    def good_but_loud(self, *args):
        """What the tool prints; what the programs print is on standard error."""
        proc = self.run_tool(*args)
        self.assertEqual(proc.rc, 0, proc)
        for line in proc.errors:
            self.assertIn("says hello", line)
        return proc.output()

    def mine(self, name="kv"):
        return [hosts.get("me") for hosts in self.maps(name)]

    def mounted(self, device, n):
        return ["mount", "-o", "nosuid,nodev,noexec", self.path(f"dev/{device}"), self.path(f"mnt/kv/{n}")]

    def umounted(self, n):
        return ["umount", self.path(f"mnt/kv/{n}")]

    def two_devices(self, **more):
        """One subsystem with two namespaces, the files themselves."""
        self.plan(subsystems={A: {"number": 3, "namespaces": {"nvme3n1": 1, "nvme3n2": 2}, **more}})
        self.path("dev/nvme3n1", MIB)
        self.path("dev/nvme3n2", 2 * MIB)
        self.put("kv", record("kv", [("/a", MIB, {"x": "/a"}), ("/b", 2 * MIB, {"x": "/b"})],
                              [target(A, 1), target(A, 2)]))

    def two_trees(self):
        """Two subsystems with a file system each."""
        self.plan(subsystems={A: {"number": 0, "namespaces": {"nvme0n1": 7}},
                              B: {"number": 11, "namespaces": {"nvme11n1": 1}}},
                  trees={"nvme0n1": {"dir/file": MIB}, "nvme11n1": {"f": 2 * MIB}})
        self.path("dev/nvme0n1", 1)
        self.path("dev/nvme11n1", 1)
        self.put("kv", record("kv", [("/a", MIB, {}), ("/b", 2 * MIB, {})],
                              [target(A, 7, fs_path="dir/file"), target(B, 1, "fd00::1", "rdma", "4421", fs_path="f")]))


class Connect(Case):
    def devices(self, **more):
        self.two_devices(**more)
        paths = [self.path(f"dev/nvme3n{n}") for n in (1, 2)]
        text = self.mount()
        self.assertEqual(text.split("\n"), ["mounted nvmeof/kv on me", f"  {paths[0]}  {MIB} bytes",
                                            f"  {paths[1]}  {2 * MIB} bytes"])
        self.assertEqual(self.calls(), [connect(A)])
        self.assertEqual(self.maps("kv"), [{"x": "/a", "me": paths[0]}, {"x": "/b", "me": paths[1]}])
        self.assertFalse(os.path.exists(self.path("mnt")))
        self.mount()
        self.assertEqual(self.calls(), [])
        self.assertEqual(self.unmount(), f"unmounted nvmeof/kv on me\ndisconnected {A}")
        self.assertEqual(self.calls(), [disconnect(A)])
        self.assertEqual(self.maps("kv"), [{"x": "/a"}, {"x": "/b"}])
        self.unmount()
        self.assertEqual(self.calls(), [])

    def test_devices(self):
        self.devices()

    def test_devices_without_multipath(self):
        self.devices(multipath=False)

    def test_file_systems(self):
        self.two_trees()
        self.mount()
        self.assertEqual(self.calls(), [connect(A), self.mounted("nvme0n1", 0),
                                        connect(B, "rdma", "fd00::1", "4421"), self.mounted("nvme11n1", 1)])
        self.assertEqual(self.mine(), [self.path("mnt/kv/0/dir/file"), self.path("mnt/kv/1/f")])
        text = self.good("show", "nvmeof/kv", "--server_name=me")
        self.assertIn(f"here         {self.path('mnt/kv/1/f')} (as me): usable", text)
        self.assertEqual(self.unmount().split("\n"), [
            "unmounted nvmeof/kv on me", f"unmounted {self.path('mnt/kv/1')}", f"unmounted {self.path('mnt/kv/0')}",
            f"disconnected {A}", f"disconnected {B}"])
        self.assertEqual(self.calls(), [self.umounted(1), self.umounted(0), disconnect(A), disconnect(B)])
        self.assertEqual((self.mine(), os.listdir(self.path("mnt"))), ([None, None], []))

    def test_some_files_have_no_target(self):
        self.two_devices()
        told = self.stored("kv")
        told["te"]["nvmeof"]["target"][0] = None
        self.put("kv", told)
        text = self.mount()
        self.assertIn("(file 0 is left as it is)", text)
        self.assertEqual(self.mine(), [None, self.path("dev/nvme3n2")])

    def test_options(self):
        self.two_devices()
        self.mount("--nvme_options= --host-traddr=10.0.0.2\t-i 4 ")
        self.assertEqual(self.calls(), [connect(A) + ["--host-traddr=10.0.0.2", "-i", "4"]])
        self.unmount()
        self.fails("mount", "kv", "--connect", "--nvme_options=" + "-x " * 33, says="more than 32 words", rc=2)

    def test_device_that_comes_late(self):
        self.two_devices()
        os.rename(self.path("dev/nvme3n2"), self.path("dev/later"))
        proc = te.Proc([te.tool("te_segment"), "mount", "kv", "--connect", "--server_name=me", f"--wait={te.HANG_S}",
                        f"--metadata_server={self.store.url}"], env=self.variables())
        self.addCleanup(proc.close)
        proc.wait_error("connect says hello")
        te.until(lambda: self.sleeps(proc), lambda: f"a wait for the device: {proc}")
        os.rename(self.path("dev/later"), self.path("dev/nvme3n2"))
        self.assertEqual(proc.wait(), 0, proc)
        self.assertEqual(self.mine(), [self.path("dev/nvme3n1"), self.path("dev/nvme3n2")])

    def sleeps(self, proc):
        """Whether it waits, its program having ended."""
        with open(f"/proc/{proc.pid}/task/{proc.pid}/children", encoding="utf-8") as f:
            return not f.read().strip() and set(proc.states().values()) == {"S"}

    def test_names_that_outlive_a_restart(self):
        """Links of udev's are preferred, if they lead to the device."""
        self.two_devices()
        os.makedirs(self.path("dev/disk/by-id"))
        first, second = (self.path(f"dev/disk/by-id/nvme-uuid.nvme3n{n}") for n in (1, 2))
        os.symlink("../../nvme3n1", first)
        os.symlink("../../nvme3n1", second)
        self.mount()
        self.assertEqual(self.mine(), [first, self.path("dev/nvme3n2")])

    def test_a_file_that_is_longer(self):
        """It is another one, unless how long the file was is not known."""
        self.two_trees()
        kv = record("kv", [("/a", MIB // 2, {})], [target(A, 7, fs_path="dir/file")])
        self.put("kv", kv)
        self.fails("mount", "kv", "--connect", "--server_name=me", says="has 1048576 bytes, the one that was registered 524288")
        kv["te"]["nvmeof"]["file_length"] = [None]
        self.put("kv", kv)
        self.mount()
        self.assertEqual(self.mine(), [self.path("mnt/kv/0/dir/file")])

    def test_connected_by_another_meanwhile(self):
        """nvme fails as somebody else was first: it is used, and left to them."""
        self.two_devices()
        with open(self.path("plan.json"), encoding="utf-8") as f:
            plan = json.load(f)
        self.plan(**plan, fail=["connect"], late=["connect"])
        proc = self.run_tool("mount", "kv", "--connect", "--server_name=me")
        self.assertEqual(proc.rc, 0, proc)
        self.assertEqual(self.mine(), [self.path("dev/nvme3n1"), self.path("dev/nvme3n2")])
        os.truncate(self.path("dev/nvme3n2"), 1)
        self.calls()
        self.fails("mount", "kv", "--connect", says="has 1 bytes")
        self.assertEqual(self.calls(), [])

    def test_other_subsystems_are_left_alone(self):
        """A subsystem whose name only begins alike, one without a controller, and things that are none."""
        self.two_devices()
        base = "sys/class/nvme-subsystem"
        for name, nqn, inside in (("nvme-subsys0", A + "a", "nvme0/nvme0n1"), ("nvme-subsys1", A, "power"),
                                  ("bogus", A, "nvme9"), ("nvme-subsys2", "", "nvme2")):
            os.makedirs(self.path(f"{base}/{name}/{inside}"))
            with open(self.path(f"{base}/{name}/subsysnqn"), "w", encoding="utf-8") as f:
                f.write(nqn + "\n")
        self.mount()
        self.assertEqual(self.calls(), [connect(A)])


class Undo(Case):
    """A step that fails takes the ones before it back, the last first."""

    def check(self, *args, says, calls):
        before = self.store.get("mooncake/nvmeof/kv")
        text = self.fails("mount", "kv", "--connect", "--server_name=me", *args, says=says)
        self.assertEqual(self.calls(), calls)
        self.assertEqual(self.store.get("mooncake/nvmeof/kv"), before)
        self.assertEqual(os.listdir(self.path("sys/class/nvme-subsystem")), [])
        if os.path.exists(self.path("mnt")):
            self.assertEqual(os.listdir(self.path("mnt")), [])
        return text

    def edit_plan(self, **what):
        with open(self.path("plan.json"), encoding="utf-8") as f:
            self.plan(**{**json.load(f), **what})

    def all_steps(self):
        return [connect(A), self.mounted("nvme0n1", 0), connect(B, "rdma", "fd00::1", "4421"),
                self.mounted("nvme11n1", 1)]

    def test_connect_fails(self):
        self.two_trees()
        self.edit_plan(fail=["connect"])
        text = self.check(says="nvme connect failed with status 1", calls=[connect(A)])
        self.assertIn("connect: no such luck", text)

    def test_connect_hangs(self):
        self.two_trees()
        self.edit_plan(hang=["connect"])
        self.check(f"--wait={WAIT_S}", says=f"nvme was not done in {WAIT_S} s and is ended", calls=[connect(A)])

    def test_mount_fails(self):
        self.two_trees()
        self.edit_plan(fail=["mount"])
        self.check(says="mount failed with status 1",
                   calls=[connect(A), self.mounted("nvme0n1", 0), disconnect(A)])

    def test_file_is_too_short(self):
        self.two_trees()
        self.edit_plan(trees={"nvme0n1": {"dir/file": MIB}, "nvme11n1": {"f": 2 * MIB - 1}})
        self.check(says=f"has {2 * MIB - 1} bytes, less than the {2 * MIB} registered", calls=[
            *self.all_steps(), self.umounted(1), disconnect(B), self.umounted(0), disconnect(A)])

    def test_link_that_leads_out(self):
        outside = self.path("outside/file", MIB)
        for link in (outside, "../../../../outside/file", "/dev/null"):
            self.two_trees()
            self.edit_plan(trees={"nvme0n1": {"dir/file": link}})
            self.check(says="is a link that leads out of its file system", calls=[
                connect(A), self.mounted("nvme0n1", 0), self.umounted(0), disconnect(A)])
        self.two_trees()
        self.edit_plan(trees={"nvme0n1": {"dir/other": MIB}})
        self.check(says="No such file or directory", calls=[
            connect(A), self.mounted("nvme0n1", 0), self.umounted(0), disconnect(A)])

    def test_no_such_namespace(self):
        self.two_devices()
        self.edit_plan(subsystems={A: {"number": 3, "namespaces": {"nvme3n1": 1}}})
        self.check(f"--wait={WAIT_S}", says=f"subsystem {A} is connected, but shows no such namespace within {WAIT_S} s",
                   calls=[connect(A), disconnect(A)])

    def test_no_device(self):
        self.two_devices()
        os.unlink(self.path("dev/nvme3n1"))
        self.check(f"--wait={WAIT_S}", says=f"there is no {self.path('dev/nvme3n1')} within {WAIT_S} s",
                   calls=[connect(A), disconnect(A)])

    def test_mount_hangs(self):
        self.two_trees()
        self.edit_plan(hang=["mount"])
        self.check(f"--wait={WAIT_S}", says=f"mount was not done in {WAIT_S} s and is ended",
                   calls=[connect(A), self.mounted("nvme0n1", 0), disconnect(A)])

    def test_server_goes_away(self):
        """The last step is the record itself."""
        self.two_trees()
        with open(self.path("bin/mount"), "a", encoding="utf-8") as f:
            f.write(f"os.kill({self.store.process.pid}, 9)\n")
        self.edit_plan(subsystems={A: {"number": 0, "namespaces": {"nvme0n1": 7}}})
        self.put("kv", record("kv", [("/a", MIB, {})], [target(A, 7, fs_path="dir/file")]))
        self.fails("mount", "kv", "--connect", says="is the metadata server up")
        self.assertEqual(self.calls(), [connect(A), self.mounted("nvme0n1", 0), self.umounted(0), disconnect(A)])
        self.assertEqual(os.listdir(self.path("mnt")), [])

    def test_record_cannot_be_changed(self):
        self.two_devices()
        told = self.stored("kv")
        with open(self.path("bin/nvme"), encoding="utf-8") as f:
            program = f.read()
        told["buffers"][0]["length"] = MIB - 1
        # While nvme connects, the segment is registered anew.
        with open(self.path("bin/nvme"), "w", encoding="utf-8") as f:
            f.write(program + "import urllib.request\nif word == 'connect':\n"
                    f"    urllib.request.urlopen(urllib.request.Request({self.store.where('mooncake/nvmeof/kv')!r},\n"
                    f"        {json.dumps(told).encode()!r}, method='PUT')).close()\n")
        self.fails("mount", "kv", "--connect", "--server_name=me", says="registered anew meanwhile")
        self.assertEqual(self.calls(), [connect(A), disconnect(A)])
        self.assertEqual(self.mine(), [None, None])

    def test_connected_before_stays_connected(self):
        self.two_devices()
        subprocess.run([self.path("bin/nvme"), *connect(A)[1:]], check=True, stdout=subprocess.DEVNULL)
        self.calls()
        os.truncate(self.path("dev/nvme3n2"), 5)
        self.fails("mount", "kv", "--connect", says="has 5 bytes")
        self.assertEqual(self.calls(), [])

    def test_stopped(self):
        self.two_devices()
        os.unlink(self.path("dev/nvme3n2"))
        for number in (signal.SIGINT, signal.SIGTERM):
            proc = te.Proc([te.tool("te_segment"), "mount", "kv", "--connect", "--server_name=me",
                            f"--metadata_server={self.store.url}"], env=self.variables())
            self.addCleanup(proc.close)
            proc.wait_error("connect says hello")
            self.assertEqual(proc.stop(number), 1, proc)
            self.assertRegex(proc.error_output(), "te_segment: stopped (while waiting for|before all files)")
            self.assertEqual((self.calls(), self.mine()), ([connect(A), disconnect(A)], [None, None]))

    def test_no_program(self):
        self.two_devices()
        os.unlink(self.path("bin/nvme"))
        self.fails("mount", "kv", "--connect", says="no program 'nvme' in PATH: install it (package nvme-cli)")
        self.assertEqual(self.calls(), [])


class Disconnect(Case):
    def test_umount_fails(self):
        """The record says so already; the rest is done when it is tried again."""
        self.two_trees()
        self.mount()
        with open(self.path("plan.json"), encoding="utf-8") as f:
            plan = json.load(f)
        self.plan(**plan, fail=["umount"])
        self.calls()
        proc = self.run_tool("unmount", "kv", "--disconnect", "--server_name=me")
        self.assertEqual((proc.rc, proc.output()), (1, "unmounted nvmeof/kv on me"), proc)
        self.assertIn(f"umount {self.path('mnt/kv/1')} failed with status 1", proc.error_output())
        self.assertEqual((self.calls(), self.mine()), ([self.umounted(1)], [None, None]))
        self.plan(**plan)
        self.unmount()
        self.assertEqual(self.calls(), [self.umounted(1), self.umounted(0), disconnect(A), disconnect(B)])

    def test_another_segment_uses_it(self):
        self.two_devices()
        self.mount()
        other = record("other", [("/a", MIB, {"you": "/a"})], [target(A, 1)])
        self.put("other", other)
        self.put("bad", "[")
        self.assertIn(f"disconnected {A}", self.unmount())
        self.mount()
        other["buffers"][0]["local_path_map"]["me"] = "/a"
        self.put("other", other)
        self.calls()
        self.assertIn(f"{A} stays connected: nvmeof/other uses it", self.unmount())
        self.assertEqual(self.calls(), [])
        self.assertIn(f"disconnected {A}", self.unmount("--force"))
        self.assertEqual(self.calls(), [disconnect(A)])


class NoLists(Case):
    """A server that cannot tell which other segments there are."""
    kind = None

    def test_disconnect(self):
        self.store = files.Racy(record("kv", [("/a", MIB, {})], [target(A)]))
        self.addCleanup(self.store.close)
        self.plan(subsystems={A: {"number": 3, "namespaces": {"nvme3n1": 1}}})
        self.path("dev/nvme3n1", MIB)
        self.mount()
        self.calls()
        proc = self.run_tool("unmount", "kv", "--disconnect", "--server_name=me")
        self.assertEqual((proc.rc, proc.output()), (1, "unmounted nvmeof/kv on me"), proc)
        self.assertRegex(proc.error_output(), f"{A} stays connected, as other segments may use it: .*; --force")
        self.assertEqual(self.calls(), [])
        self.assertEqual(self.unmount("--force"), f"disconnected {A}")
        self.assertEqual(self.calls(), [disconnect(A)])


class Hostile(Case):
    """Records that no tool of ours writes."""

    def each_bad(self):
        good = record("kv", [("/a", MIB, {"x": "/a"})], [target(A)])

        def with_file(**what):
            return {**good, "buffers": [{**good["buffers"][0], **what}]}

        def with_target(**what):
            return {**good, "te": {**good["te"], "nvmeof": {"target": [{**target(A), **what}]}}}

        for path in ("a", "", "/", "/a/", "//a", "/a//b", "/a/../b", "/..", "/./a", "/a\nb", "/a\x1b[2J", "/a\x7f",
                     "/a\x9b2J", "/" + "x" * 4096, 5, None, ["/a"], {}):
            yield with_file(file_path=path), r"buffers\[0\]: 'file_path' is"
            yield with_file(local_path_map={"x": path}), r"buffers\[0\]: ('local_path_map' has for x what is no abs|the path of host 'x' is)"
        for host in ("", "a\nb", "\x1b", "h" * 2000):
            yield with_file(local_path_map={host: "/a"}), "'local_path_map' has a key that is no host"
        yield with_file(local_path_map=[]), "'local_path_map' is "
        for length in (0, -1, -2**63, 1.5, "1", None, [], True):
            yield with_file(length=length), r"buffers\[0\]: 'length' is"
        for buffers in (5, "x", {}, True):
            yield {**good, "buffers": buffers}, "'buffers' is"
        for file in (5, None, "x", []):
            yield {**good, "buffers": [file]}, r"buffers\[0\]"
        yield ({**good, "buffers": [{**good["buffers"][0], "length": 2**63 - 1}] * 2},
               r"buffers\[1\]: .* wraps")
        yield {**good, "server_name": "a\nb"}, "'server_name' is no name of a host"
        for told in (5, {}, "x"):
            yield {**good, "te": {**good["te"], "nvmeof": {"target": told}}}, "te.nvmeof.target is no array"
        yield {**good, "te": {**good["te"], "nvmeof": {"target": [None] * 2}}}, "longer than 'buffers'"
        for told, says in ((5, "is no array"), ({}, "is no array"), ([9] * 2, "is longer than 'buffers'"),
                           ([good["buffers"][0]["length"] - 1], "is less than"), (["x"], "is less than")):
            yield {**good, "te": {**good["te"], "nvmeof": {"file_length": told}}}, rf"te\.nvmeof\.file_length.*{says}"
        for key, texts in (
                ("transport", ("fc", "", "-t", 5, None)),
                ("traddr", ("-a", "--help", "", "10.0.0.1,host_traddr=x", "a b", "a\n", "$(x)", "x" * 300, 5)),
                ("trsvcid", ("-s", "0", "65536", "4420,x", " 1", "", 4420, None)),
                ("subnqn", ("-n", "--nqn", "", "a,hostnqn=b", "a b", "a\nb", "\u00e4", "x" * 224, 5, None)),
                ("nsid", (0, -1, 2**32 - 1, 2**62, "1", 1.0, None)),
                ("fs_path", ("/a", "../a", "a/../../b", "", "a//b", "a/", "./a", "a\nb", "x" * 4096, 5, None))):
            for text in texts:
                yield with_target(**{key: text}), rf"te\.nvmeof\.target\[0\]: '{key}'"
        yield {**good, "te": {**good["te"], "nvmeof": {"target": [5]}}}, r"te\.nvmeof\.target\[0\]: it is no object"

    def test_all_of_them(self):
        a = self.path("a", MIB)
        count = 0
        bad = list(self.each_bad())
        for i, (told, says) in enumerate(bad):
            self.put(f"bad{i:03}", told)
        listed = {e["name"]: e for e in json.loads(self.good("list", "--json"))}
        for i, (told, says) in enumerate(bad):
            self.assertRegex(listed[f"nvmeof/bad{i:03}"]["error"], says, told)
        self.assertEqual(len(listed), len(bad))
        self.assertGreater(len(bad), 100)
        # One line each, and nothing on it that a terminal obeys.
        text = self.good("list")
        self.assertEqual(len(text.split("\n")), len(bad) + 1)
        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f]")
        for i in range(0, len(bad), 3):
            for args in (("mount", "--path=" + a), ("mount", "--connect"), ("unmount", "--disconnect")):
                count += 1
                self.bad(args[0], f"bad{i:03}", *args[1:], says=f"segment 'nvmeof/bad{i:03}' is malformed: ")
        self.assertGreater(count, 100)
        self.assertEqual(self.calls(), [])

    def test_bytes_that_are_no_json(self):
        a = self.path("a", MIB)
        good = json.dumps(record("kv", [("/a", MIB, {})]))
        for value in ("", "x", "[", "null", "5", good[:-5], good.replace("/a", "/a\\u0000b"), b"\xff\xfe",
                      good.replace("/a", "/a\xff").encode("latin-1"), "[" * 100000, '{"a":' * 5000,
                      good.replace('"length": 1048576', '"length": 99999999999999999999'),
                      good.replace('{"file_path"', '{"length": 5, "file_path"')):
            self.put("kv", value)
            if value:
                self.assertIn("error", json.loads(self.good("list", "--json"))[0], value[:80])
            self.bad("mount", "kv", f"--path={a}", says="segment 'nvmeof/kv'")
            self.bad("show", "nvmeof/kv", says="segment 'nvmeof/kv'")

    def test_half_a_million_files(self):
        one = '{"file_path":"/a","length":1}'
        self.put("kv", '{"name":"nvmeof/kv","protocol":"nvmeof","buffers":[' + ",".join([one] * 500000) + "]}")
        self.assertEqual(json.loads(self.good("list", "--json"))[0]["error"], "500000 files are more than 65536")
        self.bad("mount", "kv", "--connect", says="500000 files are more than 65536")
        self.put("kv", '{"name":"nvmeof/kv","protocol":"nvmeof","buffers":[' + ",".join([one] * 65536) + "]}")
        self.assertEqual(json.loads(self.good("list", "--json"))[0]["bytes"], 65536)
        self.assertEqual(len(self.good("show", "nvmeof/kv").split("\n")), 3 * 65536 + 5)

    def test_names_of_folders(self):
        for name in ("..", "."):
            self.put(name, record("kv", [("/a", MIB, {})], [target(A, fs_path="a")]))
            self.bad("mount", name, "--connect", says=f"segment 'nvmeof/{name}': no folder can have its name")
            self.bad("unmount", name, "--disconnect", says=f"segment 'nvmeof/{name}': no folder can have its name")


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    te.main()
