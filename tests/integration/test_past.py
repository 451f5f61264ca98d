#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=900
"""This version beside released ones: libraries and tools of both, each in either role, all bytes compared.

Those versions are built from their commits (scripts/past.sh) when this test first runs, which takes a
minute or two and is why it has so much time. Where the clone has not got the commits, as in a tarball,
the test is skipped. It is required all the same: continuous integration works in a clone with its whole
history.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import te_past as past
import te_past_play as play
import te_proc as te
import te_rdma
import te_stores as stores

SIZE = (3 << 20) + 12345
TCP_ONLY = ("TE_HOST_PATH=0",)
KINDS = {"native": (), "crc": ("TE_TCP_CRC32C=1",), "version 2": ("TE_TCP_NATIVE=0",), "version 1": ("MC_TCP_PROTO=1",)}
# Today's initiator has a trace context for its requests, which 0.1 knows nothing of.
TRACED = {"TE_TEST_TRACEPARENT": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
SOFTGPU = os.environ.get("TE_TEST_SOFTGPU") or os.path.join(te.BUILD, "tests", "softgpu")


def environment(options):
    return dict(option.split("=", 1) for option in options)


class Case(unittest.TestCase):
    """.old, of .version, and .new are builds; a test that needs both roles is in a class of Pairs."""
    version = old = new = None

    @classmethod
    def setUpClass(cls):
        cls.old, cls.new = past.past(cls.version), past.today()

    def peer(self, build, *options, **more):
        peer = build.peer(options=options, **more)
        self.addCleanup(peer.close)
        return peer

    def verified(self, build, segment, *flags, **more):
        """A tool of that version writes, reads and compares."""
        proc = te.bench(segment, "--verify", *flags, folder=build.bin, **more)
        self.assertEqual(proc.rc, 0, proc)
        self.assertRegex(proc.output(), r"Verified: [1-9]\d* bytes, 0 errors")


class Pairs(Case):
    """A target of one version and an initiator of the other."""
    target = initiator = None
    old_is_target = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.target, cls.initiator = (cls.old, cls.new) if cls.old_is_target else (cls.new, cls.old)

    def start(self, *options, size=SIZE, **more):
        """(initiator, its region of 2 * size, target, address of its region, the target's segment)"""
        target, peer = self.peer(self.target, *options, **more), self.peer(self.initiator, *options, env=TRACED)
        _, remote = target.region(size)
        index, _ = peer.region(2 * size)
        return peer, index, target, remote, peer.open(target.segment)

    def test_tools_over_tcp(self):
        with te.Target(folder=self.target.bin, env=environment(TCP_ONLY)) as target:
            for kind, options in KINDS.items():
                for block, batch in ((1, 4), (4095, 4), (65537, 4), (1048573, 2)):
                    with self.subTest(kind=kind, block=block):
                        self.verified(self.initiator, target.segment, f"--block_size={block}",
                                      f"--batch_size={batch}", "--batches=5", env=environment(TCP_ONLY + options))

    def test_requests_over_tcp(self):
        for kind, options in KINDS.items():
            with self.subTest(kind=kind):
                peer, index, target, remote, segment = self.start(*TCP_ONLY, *options)
                for seed, (at, length) in enumerate(((0, 1), (1, 4095), (4097, SIZE - 4097), (SIZE - 1, 1))):
                    peer.round_trip(segment, index, length, remote + at, seed)
                    target.ask("check", 0, at, length, seed)
                target.ask("fill", 0, 0, 500 * 300, 9)
                self.assertEqual(peer.move("read", segment, index, 3, remote, 500, 300)[:3],
                                 (te.COMPLETED, 0, 500 * 300))
                peer.ask("check", index, 3, 500 * 300, 9)

    def test_host(self):
        """Versions of the path within a host do not meet: both know it, and move the bytes by TCP."""
        target, peer = self.peer(self.target), self.peer(self.initiator)
        index, _ = peer.region(2 * SIZE)
        segment = peer.open(target.segment)
        for own in ((), ("own",)):  # of te_alloc(), and not
            there, remote = (int(word) for word in target.ask("region", SIZE, 3, *own))
            peer.ask("refresh")
            told = " ".join(peer.ask("explain", "read", segment, index, remote, 1000))
            self.assertRegex(told, "transport host: not possible: same host: the peer speaks version [12] of it")
            self.assertIn("transport tcp: score 50, taken", told)
            for at, length in ((0, 1), (4097, SIZE - 4097)):
                peer.round_trip(segment, index, length, remote + at, at + 1)
                target.ask("check", there, at, length, at + 1)
            target.ask("drop", there)
            self.assertEqual(peer.move("read", segment, index, 0, remote, 1000)[0], play.INVALID)

    def test_tools_over_host(self):
        with te.Target("--protocol=host", folder=self.target.bin) as target:
            self.verified(self.initiator, target.segment, "--protocol=host", "--block_size=65537", "--batches=20")

    def test_tools_over_rdma(self):
        fabric = te_rdma.Fabric(nics=2)
        self.addCleanup(fabric.remove)
        environments = [{**fabric.environment(side), **environment(fabric.options(side))} for side in "ab"]
        flags = ("--protocol=rdma", "--auto_discovery")
        with te.Target(*flags, folder=self.target.bin, env=environments[1]) as target:
            for block in (37, 65537, (1 << 20) + 1):
                self.verified(self.initiator, target.segment, *flags, f"--block_size={block}", "--batches=3",
                              env=environments[0])
        self.assertGreater(sum(stats["bytes"] for stats in fabric.stats().values()), 0)

    def test_tools_over_gpu_memory(self):
        if not os.path.exists(os.path.join(SOFTGPU, "libcuda.so.1")):
            te.skip(f"{SOFTGPU} has no libcuda.so.1")
        env = {"LD_LIBRARY_PATH": SOFTGPU, "SOFTGPU_DEVICES": "2"}
        for protocol in ("nvlink_intra", "nvlink", "hip"):
            with self.subTest(protocol=protocol), te.Target(f"--protocol={protocol}", size="8M",
                                                            folder=self.target.bin, env=env) as target:
                self.verified(self.initiator, target.segment, f"--protocol={protocol}", "--block_size=65537",
                              "--batches=3", env=env)

    def test_messages(self):
        peer, _, target, _, segment = self.start(size=4096)
        target.ask("inbox")  # empty, and so this is what has come since
        peer.ask("notify", segment, "name", "text")
        self.assertEqual(target.ask("inbox"), ["1", "name=text"])
        peer.ask("probe", target.segment)

    def test_pages(self):
        """A descriptor of more than a megabyte, which is asked for in pages."""
        target, peer = self.peer(self.target, *TCP_ONLY), self.peer(self.initiator, *TCP_ONLY)
        count, each = 20000, 4096
        _, remote = (int(word) for word in target.ask("regions", count, each))
        index, _ = peer.region(4 * each)
        segment = peer.open(target.segment)
        self.assertEqual(int(peer.ask("buffers", segment)[0]), count)
        peer.round_trip(segment, index, 2 * each - 2, remote + count * each - 2 * each + 1, 3)

    def test_restart_as_the_other(self):
        """The target is replaced by the other version, under its name, and then by its own again."""
        peer, index, target, remote, segment = self.start(*TCP_ONLY, name=f"127.0.0.1:{te.free_port()}")
        peer.round_trip(segment, index, SIZE, remote, 1)
        for seed, build in ((2, self.initiator), (3, self.target)):
            name = target.segment
            self.assertEqual(target.quit(), 0, target)
            target = self.peer(build, *TCP_ONLY, name=name)
            self.assertEqual(target.segment, name)
            _, remote = target.region(SIZE)
            peer.ask("refresh", name)
            peer.round_trip(segment, index, SIZE, remote, seed)


class Stores(Case):
    """Engines of both versions on one metadata server, a .Store."""
    Store = None

    def store(self):
        return self.Store(self.old) if self.Store is past.BuildMetad else self.Store()

    def test_engines(self):
        with self.store() as store:
            old, new = (self.peer(build, *TCP_ONLY, name=name, metadata=store.url)
                        for build, name in ((self.old, "old"), (self.new, "new")))
            for seed, (peer, target) in enumerate(((old, new), (new, old))):
                _, remote = target.region(SIZE)
                index, _ = peer.region(2 * SIZE)
                peer.round_trip(peer.open(target.segment), index, SIZE, remote, seed)
            listed = {build: te.run("te_segment", f"--metadata_server={store.url}", "list", folder=build.bin)
                      for build in (self.old, self.new)}
            for proc in listed.values():
                self.assertEqual(proc.rc, 0, proc)
                self.assertEqual([line for line in ("old", "new") if line in proc.output()], ["old", "new"])
            self.assertEqual(old.quit(), 0, old)
            self.assertEqual([key for key in store.keys() if key.endswith("/old")], [])
            # The other version takes the name over.
            index, _ = new.region(2 * SIZE)
            again = self.peer(self.new, *TCP_ONLY, name="old", metadata=store.url)
            _, remote = again.region(SIZE)
            new.round_trip(new.open("old"), index, SIZE, remote, 5)
            self.assertEqual((again.quit(), new.quit()), (0, 0))
            self.assertEqual(store.keys(), [])

    def test_segments_of_files(self):
        for first, second in ((self.old, self.new), (self.new, self.old)):
            with self.store() as store:
                self.share_files(store, first, second)

    def share_files(self, store, first, second):
        """One version registers files, the other says where it has them, and both write and read."""
        folder = tempfile.mkdtemp(dir=te.Workdir.get())

        def segment(build, *words):
            proc = te.run("te_segment", f"--metadata_server={store.url}", *words, folder=build.bin)
            self.assertEqual(proc.rc, 0, proc)
            return proc.output()

        paths = [f"{folder}/{name}" for name in "abcd"]
        for path in paths:
            with open(path, "wb") as f:
                f.truncate(4 << 20)
        segment(first, "register", "kv", "--file=" + ",".join(paths[:2]), "--server_name=node01",
                "--target=tcp://10.0.0.1:4420/nqn.2026-01.org.example:kv?nsid=1")
        segment(second, "mount", "kv", "--path=" + ",".join(paths[2:]), "--server_name=node02")
        shown = {build: segment(build, "--json", "show", "kv", "--server_name=node01") for build in (first, second)}
        self.assertEqual(shown[first], shown[second])
        for build, node in ((second, "node01"), (first, "node02")):
            self.verified(build, "nvmeof/kv", "--operation=write", "--block_size=64K", "--batches=3",
                          metadata=store.url, name=f"{node}:0", env={"TE_FILE_PATHS": folder})
        segment(first, "unmount", "kv", "--server_name=node02")
        segment(second, "unregister", "nvmeof/kv")
        self.assertEqual(store.keys(), [])


class Programs(Case):
    """What was compiled for the old version's shared library, with this version's in its place."""

    def program(self, source, name):
        program = self.old.compile(source, name, os.path.join(self.old.build, "lib"))
        return program, {"LD_LIBRARY_PATH": os.path.join(self.new.build, "lib")}

    def test_both_headers(self):
        program, env = self.program(os.path.join(past.CAPTURES, "abi.c"), "abi")
        with te.Proc([program], env=env) as proc:
            self.assertEqual(proc.wait(), 0, proc)
            version = subprocess.run([te.tool("te_info"), "--version"], capture_output=True, text=True, check=True)
            self.assertIn(f"library {version.stdout.split()[-1]},", proc.output())

    def test_peer(self):
        program, env = self.program(os.path.join(self.old.src, "tests", "integration", "peer.c"), "peer")
        peers = [te.Peer(program=program, env=env) for _ in range(2)]
        for peer in peers:
            self.addCleanup(peer.close)
            maps = f"/proc/{peer.pid}/maps"
            with open(maps, encoding="utf-8") as f:
                self.assertIn(os.path.realpath(os.path.join(self.new.build, "lib", "libtransfer_engine.so")), f.read())
        peer, target = peers
        _, remote = target.region(SIZE)
        index, _ = peer.region(2 * SIZE)
        segment = peer.open(target.segment)
        peer.round_trip(segment, index, SIZE, remote, 1)
        peer.ask("prepare", segment, index, 0, remote, SIZE)
        self.assertEqual(peer.ask("prepared", "read"), [str(te.COMPLETED), "0", str(SIZE)])
        peer.ask("check", index, 0, SIZE, 1)

    def test_symbols(self):
        """Every function, in the version of the symbol that programs ask for."""
        old, new = ({line.split()[-1] for line in self.symbols(build)} for build in (self.old, self.new))
        self.assertGreater(len(old), 50)
        self.assertEqual(sorted(old - new), [])

    @staticmethod
    def symbols(build):
        library = os.path.join(build.build, "lib", "libtransfer_engine.so")
        out = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True,
                             text=True, check=True, timeout=60)
        return out.stdout.splitlines()


class Captures(Case):
    def test_they_are_what_it_says(self):
        """Recorded once more, that version says what tests/past has of it."""
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        tried = subprocess.run(["unshare", *user, "--net", "true"], capture_output=True, text=True, check=False)
        if tried.returncode:
            te.skip(f"network namespaces cannot be made here: {tried.stderr.strip()}")
        script = os.path.join(past.CAPTURES, "record.py")
        with te.Proc([sys.executable, script, self.version, "--check"]) as proc:
            self.assertEqual(proc.wait(), 0, proc)


class Script(unittest.TestCase):
    def test_shallow_clone(self):
        """The script says what to do where the commit is not there."""
        if not os.path.exists(os.path.join(te.SRC, ".git")):
            te.skip("this is no git clone")
        clone = os.path.join(te.Workdir.get(), "shallow")
        subprocess.run(["git", "init", "-q", clone], check=True, timeout=60)
        git = ["git", "-C", clone, "-c", "user.name=n", "-c", "user.email=e"]
        os.mkdir(os.path.join(clone, "scripts"))
        script = shutil.copy(os.path.join(te.SRC, "scripts", "past.sh"), os.path.join(clone, "scripts"))
        for words in (("add", "-A"), ("commit", "-q", "-m", "one")):
            subprocess.run([*git, *words], check=True, timeout=60)
        whole = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(whole.returncode, 3, whole)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
        with open(os.path.join(clone, ".git", "shallow"), "w", encoding="utf-8") as f:
            f.write(head)
        shallow = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(shallow.returncode, 3, shallow)
        self.assertIn("run git fetch --unshallow", shallow.stderr)


def load_tests(loader, _, __):
    """One class for each version, and within it for each role and each store."""
    suite = unittest.TestSuite([loader.loadTestsFromTestCase(Script)])
    for version in past.versions():
        cases = [("OldTarget", Pairs, {"old_is_target": True}), ("NewTarget", Pairs, {"old_is_target": False}),
                 ("Programs", Programs, {}), ("Captures", Captures, {})]
        cases += [(store.__name__, Stores, {"Store": store}) for store in (*stores.STORES, past.BuildMetad)]
        for name, case, more in cases:
            one = type(f"{name} {version}", (case,), {"__module__": __name__, "version": version, **more})
            suite.addTests(loader.loadTestsFromTestCase(one))
    return suite


if __name__ == "__main__":
    te.main()
