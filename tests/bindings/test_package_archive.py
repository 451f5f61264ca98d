#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""The whole archive: programs link it by itself and move data, with every store, whatever names they have."""
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import te_proc as te
import te_stores as stores

HERE = os.path.dirname(os.path.abspath(__file__))
USER = os.path.join(HERE, "package")
CXX = os.environ.get("TE_TEST_CXX") or "c++"
OTHERS = [name for name in ("gcc", "clang") if shutil.which(name)]
LINE = ("-lpthread", "-ldl")  # what remains of the line that Mooncake's archive is linked with
MISSING = "libcurl does not start: libcurl.so.4 cannot be opened, or is older than 7.68: install the package libcurl4"


class Prefix:
    """What is installed."""
    root = archive = None

    @classmethod
    def install(cls):
        cls.root = os.path.join(te.Workdir.get(), "prefix")
        check("cmake", "--install", te.BUILD, "--prefix", cls.root)
        cls.archive, = glob.glob(os.path.join(cls.root, "**", "libtransfer_engine.a"), recursive=True)


def check(*command, **more):
    """The output of a command that succeeds."""
    done = te.call(*command, **{"timeout": 10 * te.HANG_S, **more})
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def link(name, *words, compiler=te.CC):
    out = os.path.join(te.Workdir.get(), name)
    check(compiler, "-D_GNU_SOURCE", *te.CFLAGS, "-I", os.path.join(Prefix.root, "include"), *words, "-o", out)
    return out


def user(name):
    return os.path.join(USER, name)


def names(*options):
    out = check("nm", "--format=posix", *options)
    return {line.split()[0].split("@")[0] for line in out.splitlines() if not line.endswith(":")}


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[lib([^\]]+?)\.so", check("readelf", "-d", path, env={**os.environ, "LC_ALL": "C"})))


def setUpModule():
    if "-ljansson" in te.private_libs():
        te.skip("libtransfer_engine.a is not whole in this build")
    Prefix.install()
    te.Peer.program = link("peer", os.path.join(te.SRC, "tests", "integration", "peer.c"), Prefix.archive, *LINE)


class Programs(unittest.TestCase):
    def runs(self, program):
        self.assertEqual(check(program), "ok\n")
        self.assertLessEqual(needed(program), {"c", "m", "pthread", "dl", "stdc++", "gcc_s", "rt"})

    def test_c(self):
        for compiler in OTHERS:
            self.runs(link("user", user("user.c"), Prefix.archive, *LINE, compiler=compiler))

    def test_cxx(self):
        headers = ("-std=c++17", "-I", os.path.join(Prefix.root, "include", "mooncake"))
        self.runs(link("user_cxx", *headers, user("user.cpp"), Prefix.archive, *LINE, compiler=CXX))

    def test_names_of_its_own(self):
        program = link("own", "-fno-builtin", user("user.c"), user("own_names.c"), Prefix.archive, *LINE)
        self.runs(program)
        self.assertLessEqual({"json_loads", "redisConnect", "curl_easy_init"}, names("-g", "--defined-only", program))

    def test_beside_the_libraries_themselves(self):
        program = link("beside", user("user.c"), Prefix.archive, "-Wl,--no-as-needed", "-ljansson", "-lhwloc", *LINE)
        self.assertEqual(check(program), "ok\n")

    def test_in_a_shared_library(self):
        library = link("libplugin.so", "-shared", "-Wl,-z,defs", "-Wl,--whole-archive", Prefix.archive,
                       "-Wl,--no-whole-archive", *LINE)
        check(sys.executable, "-c", f"""
import ctypes
library = ctypes.CDLL({library!r})
library.createTransferEngine.restype = ctypes.c_void_p
engine = library.createTransferEngine(b"P2PHANDSHAKE", b"127.0.0.1:0", b"127.0.0.1", 0, 0)
assert engine
library.destroyTransferEngine(ctypes.c_void_p(engine))
""")


class LineOfTheDocuments(unittest.TestCase):
    """What Mooncake's documents, and docs/migrating.md, link with, word for word."""

    def setUp(self):
        with open(os.path.join(te.SRC, "docs", "migrating.md"), encoding="utf-8") as f:
            line, = re.findall(r"^(-I/path/to/include .*\n.*)\n", f.read(), re.M)
        self.standins = os.path.join(te.Workdir.get(), "standins")
        os.makedirs(self.standins, exist_ok=True)
        self.words = line.split()
        self.assertLessEqual({"-ltransfer_engine", "-lglog", "-lgrpc"}, set(self.words))
        for name in (f"lib{word[2:]}.so" for word in self.words if word.startswith("-l") and word != "-ltransfer_engine"):
            if not os.path.isabs(check(te.CC, f"-print-file-name={name}").strip()):  # not installed here
                check(te.CC, "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", os.path.join(self.standins, name))

    def runs(self, folder, compiler, source, *more):
        words = [word.replace("/path/to/include", os.path.join(Prefix.root, "include")).replace("/path/to/lib", folder)
                 for word in self.words]
        program = os.path.join(te.Workdir.get(), "of_the_documents")
        check(compiler, "-D_GNU_SOURCE", *te.CFLAGS, *more, user(source), *words, f"-L{self.standins}", "-o", program)
        path = ":".join((folder, self.standins))
        self.assertEqual(check(program, env={**os.environ, "LD_LIBRARY_PATH": path}), "ok\n")
        return needed(program)

    def test_it_links_either_library(self):
        shared = os.path.dirname(Prefix.archive)
        alone = os.path.join(te.Workdir.get(), "alone")
        os.makedirs(alone, exist_ok=True)
        shutil.copy(Prefix.archive, alone)
        for compiler in OTHERS:
            self.assertIn("transfer_engine", self.runs(shared, compiler, "user.c"))
            self.assertNotIn("transfer_engine", self.runs(alone, compiler, "user.c"))
        headers = ("-std=c++17", "-I", os.path.join(Prefix.root, "include", "mooncake"))
        self.runs(shared, CXX, "user.cpp", *headers)
        self.runs(alone, CXX, "user.cpp", *headers)


class Archive(unittest.TestCase):
    def test_global_names_are_those_of_the_shared_library(self):
        library = os.path.join(os.path.dirname(Prefix.archive), "libtransfer_engine.so")
        exported = {name for name in names("-D", "--defined-only", library) if not name.startswith("TRANSFER_ENGINE_")}
        self.assertEqual(names("-g", "--defined-only", Prefix.archive), exported)

    def test_nothing_of_the_libraries_is_undefined(self):
        wanted = [name for name in names("-u", Prefix.archive)
                  if re.match(r"tei?_|json_|hwloc_|io_uring|redis|curl_|udev_", name)]
        self.assertEqual(wanted, [])

    def test_the_module_names_nothing_more(self):
        folder = os.path.join(os.path.dirname(Prefix.archive), "pkgconfig")
        for module, flags in (("transfer_engine", ["--static"]), ("transfer_engine-static", [])):
            out = check("pkg-config", *flags, "--libs-only-l", module, env={**os.environ, "PKG_CONFIG_PATH": folder})
            self.assertLessEqual(set(out.split()), {"-ltransfer_engine", "-lpthread", "-ldl", "-lm"}, module)

    def test_what_it_finds_out_is_the_same(self):
        """hwloc without its plugins and without libudev sees what the shared one does."""
        source = os.path.join(te.Workdir.get(), "topology.c")
        with open(source, "w", encoding="utf-8") as f:
            f.write(TOPOLOGY)
        folder = os.path.dirname(Prefix.archive)
        shared = link("topology_shared", source, f"-L{folder}", "-ltransfer_engine", f"-Wl,-rpath,{folder}")
        ours = check(link("topology", source, Prefix.archive, *LINE))
        self.assertEqual(ours, check(shared))
        self.assertIn("cpu:0", ours)


TOPOLOGY = """
#include <stdio.h>
#include <stdlib.h>
#include <te.h>

int main(void)
{
    static char text[1 << 20];
    te_options options;
    te_engine *engine;

    te_options_init(&options);
    options.local_server_name = "127.0.0.1";
    if (te_engine_create(&options, &engine) || te_topology_json(engine, text, sizeof text))
        return puts(te_errmsg()), 1;
    puts(text);
    te_engine_destroy(engine);
    return 0;
}
"""


class OverTcp(unittest.TestCase):
    def test_round_trips(self):
        options = ("TE_HOST_PATH=0",)
        with te.Peer(options=options) as one, te.Peer(options=options) as two:
            index, _ = one.region(1 << 20)
            _, remote = two.region(1 << 20)
            segment = one.open(two.segment)
            for seed, size in enumerate((1, 4097, 400001)):
                one.round_trip(segment, index, size, remote + seed, seed)


@stores.per_store()
class Stores(stores.StoreCase):
    options = ("TE_HOST_PATH=0",)

    def test_round_trips(self):
        one, two = self.peer("node-a"), self.peer("node-b")
        index, segment, remote = self.link(one, two, 70000)
        one.round_trip(segment, index, 65537, remote + 3, 7)
        self.quit(one, two)


class NoCurl(unittest.TestCase):
    def setUp(self):
        te.need("http")
        self.folder = os.path.join(te.Workdir.get(), "nothing")
        os.makedirs(self.folder, exist_ok=True)
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):  # in their place: libraries with nothing in them
            check(te.CC, "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", os.path.join(self.folder, name))

    def test_the_error_names_the_package(self):
        for url in ("http://127.0.0.1:1/metadata", "etcd://127.0.0.1:1"):
            with te.Proc([te.Peer.program, url, "node"], env={"LD_LIBRARY_PATH": self.folder}) as proc:
                self.assertEqual(proc.wait(), 1, proc)
            self.assertIn(MISSING, proc.output())

    def test_without_a_store_that_needs_it(self):
        with te.Peer(env={"LD_LIBRARY_PATH": self.folder}) as peer:
            self.assertEqual(peer.quit(), 0)


class Switch(unittest.TestCase):
    def configure(self, *switches):
        folder = os.path.join(te.Workdir.get(), "configured")
        shutil.rmtree(folder, ignore_errors=True)
        done = te.call("cmake", "-S", te.SRC, "-B", folder, "-DTE_BUILD_TOOLS=OFF", "-DTE_BUILD_TESTS=OFF", *switches,
                       timeout=10 * te.HANG_S)
        return done.returncode, " ".join((done.stdout + done.stderr).split()), folder

    def private_libs(self, *switches):
        rc, text, folder = self.configure(*switches)
        self.assertEqual(rc, 0, text)
        with open(os.path.join(folder, "transfer_engine.pc"), encoding="utf-8") as f:
            return set(re.search(r"^Libs\.private:(.*)$", f.read(), re.M).group(1).split()), text

    def test_off(self):
        libs, _ = self.private_libs("-DTE_WHOLE_ARCHIVE=OFF")
        self.assertLessEqual({"-ljansson", "-lhwloc"}, libs)

    def test_on(self):
        libs, text = self.private_libs("-DTE_WHOLE_ARCHIVE=ON", "-DTE_USE_REDIS=OFF", "-DTE_USE_HTTP=OFF", "-DTE_USE_ETCD=OFF")
        self.assertEqual(libs, {"-lm", "-ldl", "-lpthread"})
        self.assertIn("libtransfer_engine.a is whole", text)

    def test_where_it_cannot_be(self):
        lto = "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"
        libs, text = self.private_libs(lto)
        self.assertIn("-ljansson", libs)
        self.assertIn("libtransfer_engine.a is not whole", text)
        for switch in (lto, "-DCMAKE_C_FLAGS=-flto", "-DTE_SANITIZE=address", "-DCMAKE_OBJCOPY=/bin/false"):
            rc, text, _ = self.configure("-DTE_WHOLE_ARCHIVE=ON", switch)
            self.assertNotEqual(rc, 0, switch)
            self.assertIn("-DTE_WHOLE_ARCHIVE=ON: libtransfer_engine.a cannot be whole", text)


if __name__ == "__main__":
    te.main()
