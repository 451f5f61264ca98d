#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The Go module: its own tests, the examples of its README, and p2p-store with a real etcd."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_proc as te  # noqa: E402
import te_stores as stores  # noqa: E402

MODULE = os.path.join(te.SRC, "bindings", "go")
SHORT_TTL = "--ttl=3s"  # of who is to be forgotten
ASKS_ITS_PEERS = {"TE_HOST_PATH": "0"}  # and does not read the memory of one that is stopped
NOTICING_TTL = "--ttl=20s"  # of who looks often enough whether it is still wanted

# The switch as the build has it, with libraries that are there already.
PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(module NONE)
set(PROJECT_BINARY_DIR {build})
set(CMAKE_INSTALL_BINDIR bin)
add_custom_target(te_shared)
set(TE_GO {go})
set(TE_WITH_P2P_STORE ON)
include({src}/cmake/bindings.cmake)
"""


class Module:
    """The module, built once for all tests."""
    program = os.path.join(te.BUILD, "bin", "p2p-store")
    built = False

    @classmethod
    def build(cls):
        if cls.built:
            return
        stores.program("go", "golang-go")
        stores.program("pkg-config", "pkgconf")
        library = os.path.join(te.BUILD, "lib")
        if not os.path.exists(os.path.join(library, "libtransfer_engine.so")):
            te.skip(f"{library}/libtransfer_engine.so is not built")
        if "GOCACHE" not in os.environ:
            home = os.environ.get("HOME")
            os.environ["GOCACHE"] = (os.path.join(home, ".cache", "go-build") if home else
                                     os.path.join(te.BUILD, "go-cache"))
        project = os.path.join(te.Workdir.get(), "project")
        os.makedirs(project, exist_ok=True)
        with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as f:
            f.write(PROJECT.format(go=shutil.which("go"), src=te.SRC, build=te.BUILD))
        run("cmake", "-S", project, "-B", os.path.join(project, "build"))
        for name in list(os.environ): # would beat the file
            if re.fullmatch(r"GO(FLAGS|PROXY|TOOLCHAIN)|CGO_\w+|PKG_CONFIG", name):
                del os.environ[name]
        os.environ["GOENV"] = os.path.join(te.BUILD, "go", "env")
        run("cmake", "--build", os.path.join(project, "build"))
        cls.project = os.path.join(project, "build")
        cls.built = True


def run(*command, cwd=None, env=None, timeout=10 * te.HANG_S):
    """What it prints; fails the test when it does not exit 0."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def left(etcd):
    """The keys, but for those that for an hour tell of what was deleted."""
    return [key for key in etcd.keys() if not key.startswith("mooncake/te_p2p/deleted/")]


class ModuleTest(unittest.TestCase):
    """What go itself says of the module."""

    def setUp(self):
        Module.build()

    def test_format(self):
        gofmt = os.path.join(run("go", "env", "GOROOT").strip(), "bin", "gofmt")
        self.assertEqual(run(gofmt, "-l", MODULE), "")

    def test_vet(self):
        self.assertEqual(run("go", "vet", "./...", cwd=MODULE), "")

    def test_staticcheck(self):
        """With the checks of comments, which it leaves out unless asked."""
        if not shutil.which("staticcheck"):
            print("left out: staticcheck was not asked: there is none (go install honnef.co/go/tools/cmd/staticcheck@latest)")
            return
        self.assertEqual(run("staticcheck", "-checks=inherit,ST1000,ST1020,ST1021,ST1022", "./...", cwd=MODULE), "")

    def test_install(self):
        """What is installed finds the library that lies beside it, and knows nothing of the build tree."""
        prefix = os.path.join(te.Workdir.get(), "prefix")
        run("cmake", "--install", Module.project, "--prefix", prefix)
        self.assertIn("[$ORIGIN/../lib]", run("readelf", "-d", os.path.join(prefix, "bin", "p2p-store")))

    def test_pkg_config(self):
        """The library as pkg-config finds it. CGO_CFLAGS parts build trees: go's cache minds no .pc file."""
        library, include = os.path.join(te.BUILD, "lib"), os.path.join(te.SRC, "include")
        with open(os.path.join(te.BUILD, "go", "transfer_engine.pc"), "w", encoding="utf-8") as f:
            f.write(f"Name: transfer_engine\nDescription: as built\nVersion: 0\nCflags: -I{include}\n"
                    f"Libs: -L{library} -Wl,-rpath,{library} -ltransfer_engine\n")
        program = os.path.join(te.Workdir.get(), "p2p-store")
        run("go", "build", "-o", program, "./cmd/p2p-store", cwd=MODULE,
            env={"GOENV": "off", "GOFLAGS": "-buildvcs=false", "GOPROXY": "off", "GOTOOLCHAIN": "local",
                 "CGO_CFLAGS": f"-O2 -g -I{te.BUILD}",
                 "PKG_CONFIG_PATH": os.path.join(te.BUILD, "go")})
        self.assertIn("usage: p2p-store", run(program, "--help"))

    def test_packages(self):
        with stores.Etcd() as etcd:
            out = run("go", "test", "-count=1", "-vet=off", "-v", "-timeout=1200s", "./...", cwd=MODULE,
                      env={"TE_TEST_ETCD": etcd.url})
            self.assertNotIn("--- SKIP", out)
            self.assertGreater(out.count("--- PASS"), 25, out)
            self.assertGreater(out.count("--- PASS: Example"), 6, out)
            self.assertEqual(left(etcd), [])


class ReadmeTest(unittest.TestCase):
    """The examples, as they stand."""

    def setUp(self):
        Module.build()
        with open(os.path.join(MODULE, "README.md"), encoding="utf-8") as f:
            self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", f.read(), re.M | re.S)
        self.home = os.path.join(te.Workdir.get(), self.id())
        os.makedirs(os.path.join(self.home, "work"))
        os.symlink(te.SRC, os.path.join(self.home, "transfer-engine"))

    def block(self, language, begin):
        return next(text for kind, text in self.blocks if kind == language and text.startswith(begin))

    def shell(self, text, **env):
        return run("bash", "-euc", text, cwd=os.path.join(self.home, "work"), env={"HOME": self.home, **env})

    def test_engine(self):
        with open(os.path.join(self.home, "work", "main.go"), "w", encoding="utf-8") as f:
            f.write(self.block("go", "package main"))
        out = self.shell(self.block("sh", "go mod init"))
        self.assertIn("got: hello from the other side\n", out)

    def test_store(self):
        """The commands one by one, with etcd on a port of the test's own."""
        with stores.Etcd() as etcd:
            lines = self.block("sh", "etcd &").splitlines()
            self.assertEqual([line.split()[0] for line in lines], ["etcd"] + ["p2p-store"] * 4)
            model, server = os.path.join(self.home, "work", "model.bin"), f"--metadata_server={etcd.url}"
            data = random.Random(1).randbytes(3 << 20)
            with open(model, "wb") as f:
                f.write(data)
            words = lines[1].replace("model.bin", model).rstrip(" &").split()[1:]
            trainer = te.Proc([Module.program, *words, server])
            self.addCleanup(trainer.close)
            trainer.wait_line("^registered")
            path = os.path.dirname(Module.program) + ":" + os.environ["PATH"]
            out = "".join(self.shell(f"{line} {server}", PATH=path) for line in lines[2:])
            for text in ("got llm/100: ", "llm/100: 3145728 bytes", "  trainer: gold", "deleted llm/100"):
                self.assertIn(text, out)
            with open(os.path.join(self.home, "work", "replica", "buffer-0"), "rb") as f:
                self.assertEqual(f.read(), data)


class StoreTest(unittest.TestCase):
    """p2p-store: each peer is a process."""

    def setUp(self):
        Module.build()
        self.etcd = stores.Etcd()
        self.addCleanup(self.etcd.close)
        self.folder = os.path.join(te.Workdir.get(), self.id())
        os.makedirs(self.folder)
        self.peers = 0

    def start(self, *words, env=None):
        self.peers += 1
        proc = te.Proc([Module.program, f"--local_server_name=peer-{self.peers}", *words,
                        f"--metadata_server={self.etcd.url}", "--verbose",
                        *([] if any("--ttl" in word for word in words) else ["--ttl=600s"])], env=env)
        self.addCleanup(proc.close)
        return proc

    def ask(self, *words, rc=0):
        """What a command that ends prints."""
        proc = self.start(*words)
        self.assertEqual(proc.wait(), rc, proc)
        return proc.output() if rc == 0 else proc.error_output()

    def register(self, name, sizes, shard_size, *words, seed=0):
        """A peer that serves random files, and their bytes."""
        rng = random.Random(seed)
        data, files = [rng.randbytes(n) for n in sizes], []
        for i, content in enumerate(data):
            files.append(os.path.join(self.folder, f"file-{i}"))
            with open(files[-1], "wb") as f:
                f.write(content)
        proc = self.start("register", name, *files, f"--shard_size={shard_size}", *words)
        proc.wait_line(f"^registered {name}: {sum(sizes)} bytes")
        return proc, data

    def get(self, name, *words, env=None):
        output = os.path.join(self.folder, f"out-{self.peers}")
        proc = self.start("get", name, f"--output={output}", *words, env=env)
        proc.output_folder = output
        return proc

    def compare(self, proc, data):
        proc.wait_line("^got ")
        for i, content in enumerate(data):
            with open(os.path.join(proc.output_folder, f"buffer-{i}"), "rb") as f:
                self.assertTrue(f.read() == content, f"buffer {i} of {proc}")

    def holders(self):
        return self.etcd.keys("mooncake/te_p2p/holder/")

    def wait_holders(self, count):
        te.until(lambda: len(self.holders()) == count, lambda: f"{count} holders; there are {self.holders()}")

    def test_spread(self):
        """One after the other, at once, and without the origin, which leaves."""
        trainer, data = self.register("m/1", (10_000_019, 1, 4096, 3_333_333), "256K")
        first = self.get("m/1")
        self.compare(first, data)
        both = [self.get("m/1"), self.get("m/1", "--protocol=tcp")]
        for peer in both:
            self.compare(peer, data)
        out = self.ask("list", "m/")
        self.assertEqual(len(re.findall(r"replica, (\d+) of \1 shards", out)), 3, out)
        self.assertIn("gold", out)
        self.assertEqual(trainer.stop(signal.SIGINT), 0, trainer)
        self.assertEqual(len(self.holders()), 3)
        late = self.get("m/1", "--leave")
        self.compare(late, data)
        self.assertEqual(late.wait(), 0, late)
        for peer in (first, *both):
            self.assertEqual(peer.stop(signal.SIGTERM), 0, peer)
        self.assertEqual(self.etcd.keys(), [])
        self.assertIn("no such checkpoint", self.ask("get", "m/1", rc=1))

    def test_holder_killed(self):
        """In the middle of a fetch; those that are left serve on, and the dead are forgotten."""
        trainer, data = self.register("big", (50_000_017, 20_000_003), "8K", SHORT_TTL)
        other = self.get("big", SHORT_TTL)
        self.compare(other, data)
        fetch = self.get("big", "--parallel=2", SHORT_TTL)
        fetch.wait_error("got big: 10 %")
        trainer.kill()
        self.compare(fetch, data)
        self.wait_holders(2)
        other.kill()
        self.wait_holders(1)
        last = self.get("big", "--leave")
        self.compare(last, data)
        fetch.kill()
        self.wait_holders(0)
        self.assertEqual(self.ask("list"), "")
        self.assertEqual(self.etcd.keys("mooncake/te_p2p/"), [])

    def get_midway(self, trainer, size, *words):
        """One that is in the middle of these bytes that only this holder has, which is stopped."""
        while True:
            fetch = self.get("big", "--parallel=1", "--protocol=tcp", *words, env=ASKS_ITS_PEERS)
            fetch.wait_error("got big: 10 %")
            trainer.freeze()
            # One that has all closes its connections, and what they carried is not counted any more.
            if size // 10 <= te.bytes_given(trainer) < size:
                return fetch
            trainer.thaw()  # it was quicker than this test
            fetch.wait_line("^got ")
            self.assertEqual(fetch.stop(signal.SIGINT), 0, fetch)

    def test_none_left(self):
        """Who fetches when the last holder dies gives up, says why, and withdraws."""
        trainer, _ = self.register("big", (60_000_001,), "4K", SHORT_TTL)
        fetch = self.get_midway(trainer, 60_000_001, "--patience=2s")
        trainer.kill()
        self.assertEqual(fetch.wait(), 1, fetch)
        self.assertIn("no peer gives what is missing", fetch.error_output())
        self.assertEqual([key for key in self.holders() if key.endswith(f"peer-{self.peers}")], [])

    def test_interrupted(self):
        trainer, _ = self.register("big", (60_000_001,), "4K")
        fetch = self.get_midway(trainer, 60_000_001)
        self.assertEqual(fetch.stop(signal.SIGINT), 1, fetch)
        self.assertIn("interrupted", fetch.error_output())
        self.assertEqual(len(self.holders()), 1)

    def test_holder_frozen(self):
        """What was asked of a peer that no longer answers is asked of another once it is forgotten."""
        trainer, data = self.register("m", (10_000_019,), "64K", SHORT_TTL)
        other = self.get("m")
        self.compare(other, data)
        trainer.freeze()
        fetch = self.get("m", "--protocol=tcp", env=ASKS_ITS_PEERS)
        self.compare(fetch, data)
        trainer.thaw()
        self.wait_holders(3)

    def test_restarted(self):
        """The same peer, after a crash, with other bytes: its old life is not in the way."""
        again = "--local_server_name=trainer"
        self.register("m", (100_003,), "10000", again, SHORT_TTL)[0].kill()
        _, data = self.register("m", (70_001, 3), "9999", again, seed=1)
        fetch = self.get("m", "--leave")
        self.compare(fetch, data)

    def test_deleted(self):
        trainer, data = self.register("m", (100_003,), "10000", NOTICING_TTL)
        peer = self.get("m", NOTICING_TTL)
        self.compare(peer, data)
        self.assertEqual(self.ask("delete", "m"), "deleted m")
        for proc in (trainer, peer):
            proc.wait_error("it is served no more")
            self.assertEqual(proc.wait(), 0, proc)
        self.assertEqual(left(self.etcd), [])
        self.assertIn("no such checkpoint", self.ask("delete", "m", rc=1))

    def test_hostile(self):
        """Records of anybody's making."""
        key = "mooncake/te_p2p/checkpoint/bad"
        for value, why in ((b"\xff{", "broken"), ('{"sizes":[9000000000000000],"shard_size":1}', "more than"),
                           ('{"sizes":[7000000000000000000],"shard_size":7000000000000000000,"id":"x"}',
                            "no such"),
                           ('{"sizes":[5],"shard_size":5,"crc32c":"AA=="}', "checksums")):
            self.etcd.put(key, value)
            self.assertIn(why, self.ask("get", "bad", rc=1))
        self.assertIn("bad: broken", self.ask("list"))
        size = 7_000_000_000_000_000_000
        self.etcd.put(key, f'{{"sizes":[{size}],"shard_size":{size},"id":"x"}}')
        self.etcd.put("mooncake/te_p2p/holder/bad/it", '{"segment":"it","addresses":[0],"id":"x"}')
        self.assertIn(f"bad: {size} bytes", self.ask("list"))
        self.assertIn(f"{size} bytes", self.ask("get", "bad", rc=1))
        self.etcd.delete("mooncake/te_p2p/holder/bad/it")
        self.register("bad", (100,), "10")
        self.assertIn("gold, 10 of 10 shards", self.ask("list"))

    def test_usage(self):
        out = run(Module.program, "--help")
        for word in ("register NAME FILE", "get NAME", "list [PREFIX]", "delete NAME", "-metadata_server"):
            self.assertIn(word, out)
        for words, why in (((), "no command"), (("fly",), "not a command"), (("get",), "not its arguments"),
                           (("register", "x"), "needs files"), (("register", "x", "/no/such"), "no such file"),
                           (("register", "x", "--generate=1Q"), "no size"),
                           (("register", "x", self.folder), "no file"),
                           (("register", "x", "--generate=1M", "--shard_size=0"), "no size"),
                           (("register", "x", "--generate=8", "--protocol=pigeon"), "pigeon"),
                           (("register", "x", "--generate=8", "--ttl=5ms"), "TTL of 5ms"),
                           (("get", "x", "--parallel=5000"), "5000 shards at once"),
                           (("register", "x", "--generate=8M", "--shard_size=4"), "more than"),
                           (("register", "x", "--generate=4M", "--shard_size=4"), "larger shards"),
                           (("list", "--fly"), "fly")):
            self.assertIn(why, self.ask(*words, rc=1))


if __name__ == "__main__":
    te.main()
