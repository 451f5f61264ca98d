#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds this tree on other systems and runs its unit tests there, warnings being errors. On each system a program
is also linked with the archive and nothing else.

A row is a system, or this host with other switches. Systems are roots by tests/systems/roots.py: nothing of
this host is in them but the source tree, to be read, build/systems/ROW, and the cache of ccache if there is one.
A row whose archive is not reached is skipped, by its name, with the reason, and that is told once more at the end.
The last line counts. Exit status 1 if a row failed.
"""
import argparse
import concurrent.futures
import dataclasses
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import roots

SOURCE = roots.SOURCE
ENTER = os.path.join(roots.HERE, "enter.sh")
INSIDE_CCACHE = "/ccache"
# Headers that are not the C library's, in these folders.
HOST_HEADERS = ("/usr/include", *glob.glob("/usr/include/*-linux-gnu"))
FOREIGN = ("asm", "asm-generic", "curl", "hiredis", "hwloc", "hwloc.h", "infiniband", "jansson.h", "jansson_config.h", "liburing",
           "liburing.h", "linux", "microhttpd.h", "openssl", "rdma", "sqlite3.h", "sys/sdt.h", "sys/sdt-config.h", "utarray.h", "uthash.h",
           "utlist.h")

# Unit tests that fail under qemu-user because of what it emulates otherwise, or not at all. They pass under a real
# kernel of arm64: tests/lab/test_arm64_pages.py runs them there.
NOT_EMULATED = {
    "test_auth_keys": "reads in /proc/self/smaps whether a core dump has a page, which qemu-user does not tell",
    "test_mem_host": "reads VmFlags of /proc/self/smaps, which have nothing of what was advised",
    "test_gpuipc_page": "tells processes apart by what /proc/PID/stat says of their begin, which qemu-user makes up",
}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    what: str
    root: str = ""       # a recipe of roots.py; this host without one
    compiler: str = "gcc"
    switches: tuple = ()
    group: str = "systems"  # SYSTEMS='variants' runs that group
    target: str = "te_unit_tests"  # what is built beside library and tools; "": nothing, and no test runs
    demo: bool = False   # runs `make demo`'s script, too
    musl: bool = False   # builds nothing: compiles library and tools against the headers of musl
    kit_of: str = ""     # builds nothing: runs the archive that scripts/kit.sh makes of that row's build
    minutes: int = 30


def off(*names):
    return tuple(f"-D{name}=OFF" for name in names)


ROWS = (
    Row("debian-13", "its gcc", "debian-13", target="te_tests"),
    Row("debian-13-clang", "the newest clang that it has", "debian-13", "clang", target="te_tests"),
    Row("kit", "the archive of make kit in a Debian with nothing else", "bare-debian-13", kit_of="debian-13"),
    Row("ubuntu-24.04", "its gcc", "ubuntu-24.04", target="te_tests"),
    Row("ubuntu-22.04", "its gcc", "ubuntu-22.04", target="te_tests"),
    Row("arm64", "by a cross compiler, under qemu-user; two engines over tcp and over host", "arm64",
        "aarch64-linux-gnu-gcc", ("-DCMAKE_TOOLCHAIN_FILE=/src/tests/systems/aarch64.cmake",), target="te_tests"),
    Row("oldest-gcc", "gcc 11", "debian-12", "gcc-11", group="oldest", target="te_tests"),
    Row("oldest-clang", "clang 14", "debian-12", "clang-14", group="oldest", target="te_tests"),
    # Each test program would be optimised as a whole, library and all: its tools stand for them.
    Row("lto", "link-time optimisation", switches=("-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON",), group="variants", target="",
        demo=True),
    Row("o3", "-O3 -march=native -DNDEBUG", group="variants",
        switches=("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O3 -march=native -DNDEBUG")),
    Row("musl", "library and tools by the headers of musl, of which nothing is linked", group="variants", target="",
        musl=True),
    Row("no-tcp", "TE_USE_TCP=OFF: library and tools, as the tests need it", switches=off("TE_USE_TCP"), group="parts",
        target=""),
    Row("no-http", "TE_USE_HTTP=OFF", switches=off("TE_USE_HTTP"), group="parts"),
    Row("no-etcd", "TE_USE_ETCD=OFF", switches=off("TE_USE_ETCD"), group="parts"),
    Row("no-redis", "TE_USE_REDIS=OFF", switches=off("TE_USE_REDIS"), group="parts"),
    Row("no-rdma", "TE_USE_RDMA=OFF", switches=off("TE_USE_RDMA"), group="parts"),
    Row("no-uring", "TE_USE_URING=OFF", switches=off("TE_USE_URING"), group="parts"),
    Row("no-cuda", "TE_USE_CUDA=OFF", switches=off("TE_USE_CUDA"), group="parts"),
    Row("no-hip", "TE_USE_HIP=OFF", switches=off("TE_USE_HIP"), group="parts"),
    Row("no-ascend", "TE_USE_ASCEND=OFF", switches=off("TE_USE_ASCEND"), group="parts"),
    Row("no-vendors", "the switches that are part of TE_USE_CUDA and of TE_USE_HIP", group="parts",
        switches=off("TE_USE_MUSA", "TE_USE_MACA", "TE_USE_SUPA", "TE_USE_MNNVL", "TE_USE_INTRA_NVLINK")),
    Row("no-gpu", "TE_USE_CUDA=OFF TE_USE_HIP=OFF TE_USE_ASCEND=OFF", group="parts",
        switches=off("TE_USE_CUDA", "TE_USE_HIP", "TE_USE_ASCEND")),
    Row("no-nvmeof", "TE_USE_NVMEOF=OFF", switches=off("TE_USE_NVMEOF"), group="parts"),
    Row("least", "every TE_USE_ switch off but tcp, which the tests need, and te_metad", group="parts", target="te_tests",
        switches=off("TE_USE_HTTP", "TE_USE_ETCD", "TE_USE_REDIS", "TE_USE_RDMA", "TE_USE_URING", "TE_USE_NVMEOF",
                     "TE_USE_CUDA", "TE_USE_HIP", "TE_USE_ASCEND", "TE_BUILD_METAD")),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


class Failed(Exception):
    """A row did; where it was."""


def run_to_its_end(line, environment, log):
    """The exit status. Ended with this program, it has time to take away what it made."""
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment) as child:
        try:
            return child.wait()
        finally:
            child.terminate()


class Place:
    """Where a row is built: commands run there."""

    def __init__(self, row, jobs):
        self.row, self.jobs = row, jobs
        self.host_build = os.path.join(SOURCE, "build", "systems", row.name)
        self.root = roots.root_of(roots.RECIPES[row.root]) if row.root else None
        self.source, self.build = ("/src", "/build") if self.root else (SOURCE, self.host_build)
        self.compiler = self.newest_clang() if row.compiler == "clang" else row.compiler
        self.until = time.monotonic() + 60 * row.minutes
        self.set_up()

    def newest_clang(self):
        found = [re.fullmatch(r"clang-(\d+)", os.path.basename(path)) for path in glob.glob(f"{self.root}/usr/bin/clang-*")]
        return max((m for m in found if m), key=lambda m: int(m.group(1))).group(0)

    def set_up(self):
        """An empty build tree where it would be of another root or other switches."""
        stamp = os.path.join(self.host_build, "made-for")
        made_for = repr((self.root, self.row.compiler, self.row.switches))
        if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != made_for:
            roots.remove(self.host_build)
            os.makedirs(self.host_build)
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(made_for)

    def ccache(self):
        """(its folder, or None where this host has no ccache; what it takes in the environment)"""
        folder = os.environ.get("CCACHE_DIR") or os.path.expanduser("~/.cache/ccache")
        if not shutil.which("ccache"):
            return None, {}
        os.makedirs(folder, exist_ok=True)
        if self.root:
            return folder, {"CCACHE_DIR": INSIDE_CCACHE, "CMAKE_C_COMPILER_LAUNCHER": "ccache"}
        return folder, {"CCACHE_BASEDIR": SOURCE, "CCACHE_NOHASHDIR": "1", "CMAKE_C_COMPILER_LAUNCHER": "ccache"}

    def command(self, words):
        """(the command line, its environment)"""
        folder, settings = self.ccache()
        settings["PYTHONDONTWRITEBYTECODE"] = "1"
        if "CI" in os.environ:
            settings["CI"] = os.environ["CI"]
        if not self.root:
            return ["timeout", f"{self.minutes_left()}m", *words], dict(os.environ, **settings)
        line = [ENTER, "--minutes", str(self.minutes_left()), "--bind-ro", f"{SOURCE}:/src", "--bind",
                f"{self.host_build}:/build", "--chdir", "/build"]
        if folder:
            line += ["--bind", f"{folder}:{INSIDE_CCACHE}"]
        for name, value in settings.items():
            line += ["--set", f"{name}={value}"]
        return [*line, self.root, *words], None

    def minutes_left(self):
        return max(1, int((self.until - time.monotonic()) / 60) + 1)

    def run(self, log, *words):
        """What it prints goes to the log; the last of it is shown where it fails."""
        line, environment = self.command(words)
        path = os.path.join(self.host_build, f"{log}.log")
        with open(path, "w", encoding="utf-8") as f:
            rc = run_to_its_end(line, environment, f)
        with open(path, encoding="utf-8", errors="replace") as f:
            said = f.read()
        if rc == 77:
            raise roots.Missing(said.strip().splitlines()[-1])
        if rc:
            picked = [part for part in re.split(r"(?m)^", said) if re.search(r"error|\bFAILED\b|undefined|\*\*\*Failed", part)]
            print("".join(picked[:20]) + "  ...\n" + "".join(said.splitlines(True)[-25:]), flush=True)
            raise Failed(f"{log}, exit {rc}: {path}")
        return said


def check_switches(place):
    """A switch that the build does not know would change nothing."""
    with open(os.path.join(place.host_build, "CMakeCache.txt"), encoding="utf-8") as f:
        unknown = re.findall(r"^(TE_\w+):UNINITIALIZED=", f.read(), re.M)
    if unknown:
        raise Failed(f"the build knows no switch {', '.join(unknown)}")


def configure(place):
    place.run("configure", "cmake", "-S", place.source, "-B", place.build, f"-DCMAKE_C_COMPILER={place.compiler}",
              "-DTE_WERROR=ON", *(("-DTE_WHOLE_ARCHIVE=ON",) if place.root else ()), *place.row.switches)
    check_switches(place)


def build(place):
    configure(place)
    place.run("build", "cmake", "--build", place.build, "-j", str(place.jobs), "--target", "all", *filter(None, [place.row.target]),
              "--", "-k")  # tells every error at once


def unit_tests(place, *arguments):
    """The line of ctest that counts."""
    said = place.run("unit", "python3", f"{place.source}/scripts/run_tests.py", place.build, "-L", "unit", *arguments)
    return re.findall(r"^\d+ passed, .*$", said, re.M)[-1]


def archive_alone(place, *emulator):
    return place.run("archive", "sh", "/src/tests/systems/archive.sh", place.compiler, "/build", *emulator).strip()


def check_arm64(place):
    """The unit tests but those that qemu-user cannot run; two engines over each protocol; the archive by itself."""
    counted = unit_tests(place, "-E", "^unit/(" + "|".join(NOT_EMULATED) + ")$")
    for name, why in NOT_EMULATED.items():
        print(f"systems: arm64: unit/{name} is left out: {why}", flush=True)
    for protocol in ("tcp", "host"):
        said = place.run(f"pair-{protocol}", "sh", "/src/tests/systems/pair.sh", "/build/bin", protocol, "qemu-aarch64-static")
        counted += f"; {protocol}: " + said.strip().splitlines()[-1]
    return f"{counted}; {archive_alone(place, 'qemu-aarch64-static')}"


def check_kit(place):
    """Makes the archive where it can be built, and runs it where nothing is."""
    builder = Place(next(row for row in ROWS if row.name == place.row.kit_of), place.jobs)
    build(builder)
    archive = os.path.basename(builder.run("kit", "/src/scripts/kit.sh", "/build").split()[-1])
    shutil.copy(os.path.join(builder.host_build, archive), place.host_build)
    return place.run("kit", "sh", "/src/tests/systems/kit.sh", f"/build/{archive}").strip().splitlines()[-1]


def link_headers(place):
    """Folders with those of this host that musl does not have, and none of its C library."""
    folders = [os.path.join(place.host_build, "headers", str(i)) for i in range(len(HOST_HEADERS))]
    for folder, of in zip(folders, HOST_HEADERS):
        roots.remove(folder)
        for name in FOREIGN:
            if os.path.exists(os.path.join(of, name)):
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                os.symlink(os.path.join(of, name), os.path.join(folder, name))
    return folders


def syntax_of(place, entry, headers):
    """What the compiler says of one file with musl's headers before these; "" if nothing."""
    words = shlex.split(entry["command"])
    words = words[words.index(next(w for w in words if not w.endswith("ccache"))) + 1:]
    at = words.index("-o")
    del words[at:at + 2]
    # Macros of musl's headers convert signs.
    line = ["musl-gcc", *words, "-fsyntax-only", "-Wno-sign-conversion", *(f"-idirafter{folder}" for folder in headers)]
    done = subprocess.run(line, cwd=entry["directory"], stderr=subprocess.PIPE, text=True, check=False,
                          timeout=60 * place.minutes_left())
    return done.stderr or ("" if done.returncode == 0 else f"{entry['file']}: exit {done.returncode}\n")


def check_musl(place):
    """Every file of library and tools, once; headers of other libraries are this host's."""
    if not shutil.which("musl-gcc"):
        raise roots.Missing("no musl-gcc (package musl-tools)")
    configure(place)
    headers = link_headers(place)
    with open(os.path.join(place.host_build, "compile_commands.json"), encoding="utf-8") as f:
        entries = {entry["file"]: entry for entry in json.load(f)
                   if os.path.relpath(entry["file"], SOURCE).split(os.sep)[0] in ("src", "tools")}
    with concurrent.futures.ThreadPoolExecutor(place.jobs) as pool:
        said = [text for text in pool.map(lambda entry: syntax_of(place, entry, headers), entries.values()) if text]
    if said:
        print("".join(said), flush=True)
        raise Failed(f"{len(said)} of {len(entries)} files")
    return f"{len(entries)} files"


def run_row(row, jobs, only_build):
    place = Place(row, jobs)
    if row.kit_of:
        return "nothing to build" if only_build else check_kit(place)
    if row.musl:
        return check_musl(place)
    build(place)
    if only_build:
        return "built"
    if row.root == "arm64":
        return check_arm64(place)
    said = [unit_tests(place) if row.target else "built"]
    if row.demo:
        said.append(place.run("demo", "env", f"TE_BIN={place.build}/bin", f"{place.source}/scripts/demo.sh").strip().splitlines()[-1])
    if place.root:
        said.append(archive_alone(place))
    return "; ".join(said)


def choose(names):
    """The rows that are named, or are of groups that are; without a name, other systems."""
    known = {row.name for row in ROWS} | set(GROUPS) | {"all"}
    unknown = set(names) - known
    if unknown:
        raise SystemExit(f"systems: no row {', '.join(sorted(unknown))}; --list tells which there are")
    names = names or ["systems"]
    return [row for row in ROWS if row.name in names or "all" in names or row.group in names]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ROW", help="these rows, or groups of them: systems (the default), "
                        "oldest, variants, parts, all")
    parser.add_argument("--list", action="store_true", help="name the rows, and run none")
    parser.add_argument("--only-build", action="store_true", help="run no tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time (one per core)")
    return parser.parse_args()


def on_signal(number, _):
    raise SystemExit(128 + number)


def main():
    arguments = parse_arguments()
    if arguments.list:
        for row in ROWS:
            print(f"{row.name}: {row.what} ({row.group})")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    begun, results = time.monotonic(), {"passed": [], "failed": [], "skipped": []}
    for row in choose(arguments.names):
        started = time.monotonic()
        print(f"systems: ---- {row.name}: {row.what}", flush=True)
        try:
            how, text = "passed", run_row(row, arguments.jobs, arguments.only_build)
        except roots.Missing as e:
            how, text = "skipped", str(e)
        except (Failed, RuntimeError, subprocess.SubprocessError) as e:
            how, text = "failed", str(e)
        results[how].append(f"{how}: {row.name}: {text}")
        print(f"{results[how][-1]} ({time.monotonic() - started:.0f} s)", flush=True)
    for line in (*results["skipped"], *results["failed"]):
        print(line)
    print(f"systems: {len(results['passed'])} passed, {len(results['failed'])} failed, {len(results['skipped'])} skipped, "
          f"{time.monotonic() - begun:.0f} s")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
