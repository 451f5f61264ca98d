#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""The shells complete commands, flags and values of the tools: in bash and zsh, those of each --help."""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

SRC = os.environ.get("TE_TEST_SRC", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
BIN = os.environ.get("TE_TEST_BIN", os.path.join(SRC, "build", "bin"))
BASH = os.path.join(SRC, "completions", "bash", "transfer_engine")
ZSH = os.path.join(SRC, "completions", "zsh")
TOOLS = ("te_info", "te_keys", "te_metad", "te_segment", "te_top", "transfer_engine_bench", "transfer_engine_validator")
NO_WORDS = ("TEXT", "NUMBER", "NUMBER|-1", "BYTES", "SECONDS", "FACTOR")
FILES = ("file", "html", "nic_priority_matrix", "path", "sweep_limits", "tls_cert", "tls_key", "token_file", "trace")
FOLDERS = ("data_dir", "dir", "mount_dir", "sysfs")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def help_of(tool):
    return subprocess.run([os.path.join(BIN, tool), "--help"], capture_output=True, text=True, timeout=120,
                          check=True).stdout


def flags_of(tool):
    """{flag: kind}, "" for --help and --version"""
    return dict(re.findall(r"^  --(\w+)=?(.*)$", help_of(tool), re.M))


def transports():
    names = re.findall(r"^TEI_TRANSPORT\((\w+)\)", read(SRC, "src", "transport", "transports.def"), re.M)
    return sorted(set(names) - {"local"})


def bash(line, breaks_at_equals=True, folder=SRC, bin_folder=BIN, env=()):
    """What bash offers at the end of a line."""
    pattern = r"=|[^\s=]+|(?<=[\s=])$" if breaks_at_equals else r"\S+|(?<=\s)$"
    words = re.findall(pattern, line)
    if words[-1] == "" and words[-2] == "=":
        words.pop()
    words[0] = os.path.join(bin_folder, words[0])
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_transfer_engine "$1" "${@: -1}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"')
    run = subprocess.run(["bash", "--norc", "-c", script, "bash", BASH, *words], capture_output=True, text=True,
                         timeout=120, check=False, cwd=folder, env={**os.environ, **dict(env)})
    assert run.returncode == 0 and not run.stderr, (line, run)
    return sorted(filter(None, run.stdout.split("\n")))


def terminal(argv, setup, keys, pattern):
    """What a shell has written once it has been typed `keys` and `pattern` has come, or after two minutes."""
    pid, fd = pty.fork()
    if pid == 0:
        path = BIN + os.pathsep + os.environ["PATH"]
        os.execvpe(argv[0], argv, {"TERM": "dumb", "PATH": path, "HOME": "/nonexistent", "LC_ALL": "C"})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 500, 250, 0, 0))
    seen = ""

    def until(wanted):
        nonlocal seen
        end = time.monotonic() + 120
        while not re.search(wanted, seen, re.S) and time.monotonic() < end:
            if select.select([fd], [], [], 0.2)[0]:
                seen += os.read(fd, 65536).decode("utf-8", "replace")

    try:
        os.write(fd, (setup + "; echo begin$((40 + 2))\n").encode())
        until("begin42")
        seen = ""
        os.write(fd, keys.encode())
        until(pattern)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    return seen


def zsh(line, pattern):
    setup = (f"PS1='$ '; fpath=({ZSH} $fpath); LISTMAX=10000; zstyle ':completion:*' verbose no; "
             "autoload -U compinit; compinit -u -D")
    return terminal(["zsh", "-f", "-i"], setup, line + "\t", pattern)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te-complete-")
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("one.json", "one two.json"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
                pass
        os.mkdir(os.path.join(self.folder, "one.d"))


class BashTest(Files):
    def test_flags(self):
        for tool in TOOLS:
            flags = flags_of(tool)
            self.assertGreater(len(flags), 4)
            offered = bash(f"{tool} --")
            self.assertEqual([f.rstrip("=").lstrip("-") for f in offered], sorted(flags))
            for flag, kind in flags.items():
                self.assertEqual(f"--{flag}=" in offered, kind not in ("", "true|false"), flag)
        self.assertEqual(bash("te_info --meta"), ["--metadata_server="])

    def test_values(self):
        count = 0
        for tool in TOOLS:
            for flag, kind in flags_of(tool).items():
                if kind and kind not in NO_WORDS:
                    count += 1
                    words = sorted(kind.split("|"))
                    self.assertEqual(bash(f"{tool} --{flag}="), words)
                    self.assertEqual(bash(f"{tool} --{flag}=", False), [f"--{flag}={w}" for w in words])
                    if kind != "true|false":
                        self.assertEqual(bash(f"{tool} --{flag} "), words)
        self.assertGreater(count, 20)
        self.assertEqual(bash("transfer_engine_bench --mode=ta"), ["target"])
        self.assertEqual(bash("transfer_engine_bench --json --threads=4 --operation=w"), ["write"])
        self.assertEqual(bash("transfer_engine_bench --block_size="), [])

    def test_names(self):
        for tool in ("transfer_engine_bench", "transfer_engine_validator"):
            self.assertEqual(bash(f"{tool} --protocol="), transports())
            self.assertEqual(bash(f"{tool} --metadata_type="), ["etcd", "http", "redis"])
            self.assertEqual(bash(f"{tool} --metadata_server=P"), ["P2PHANDSHAKE"])
        self.assertEqual(bash("te_segment --metadata_server="), [])

    def test_files(self):
        seen = set()
        for tool in TOOLS:
            for flag in flags_of(tool):
                if f"{tool}:{flag}" == "te_metad:path":
                    self.assertEqual(bash(f"{tool} --{flag}=one", folder=self.folder), [])
                elif flag in FILES:
                    seen.add(flag)
                    self.assertEqual(bash(f"{tool} --{flag}=one", folder=self.folder),
                                     ["one two.json", "one.d", "one.json"])
                elif flag in FOLDERS:
                    seen.add(flag)
                    self.assertEqual(bash(f"{tool} --{flag} on", folder=self.folder), ["one.d"])
        self.assertEqual(seen, {*FILES, *FOLDERS})

    def test_hyphens(self):
        self.assertEqual(bash("te_metad --data-dir=on", folder=self.folder), ["one.d"])

    def test_commands(self):
        commands = sorted(set(re.findall(r"^  ([a-z]+) ", help_of("te_segment"), re.M)))
        self.assertEqual(len(commands), 6)
        self.assertEqual(bash("te_segment "), commands)
        self.assertEqual(bash("te_segment --json un"), ["unmount", "unregister"])
        self.assertEqual(bash("te_segment list "), [])
        self.assertIn("--path=", bash("te_segment mount kv --"))
        self.assertEqual(bash("te_info "), [])
        self.assertEqual(bash("te_keys "), ["add", "ca", "cert", "check", "first", "make", "remove", "show"])
        self.assertEqual(bash("te_keys add a one", folder=self.folder), ["one two.json", "one.d", "one.json"])

    def test_command_as_typed(self):
        name = os.path.basename(BIN)
        home = {"HOME": os.path.dirname(BIN), "here": name, "self": "$self"}
        for folder in (f"~/{name}", f"$HOME/{name}", f"${{HOME}}/{name}", "$HOME/$here", "~/${here}", "~root/" + "../" * 9 + BIN):
            self.assertEqual(bash("te_info --meta", bin_folder=folder, env=home.items()), ["--metadata_server="], folder)
        for folder in ("$self", "$(echo >&2 run)", "~nobody-at-all/x", "$none"):
            self.assertEqual(bash("te_info --meta", bin_folder=folder, env=home.items()), [])

    def test_no_flags(self):
        for word in ("--a/b", "--a/b=", "--s/x/y/;e", "--[", "--.*", "--a\\"):
            for line in (f"te_info {word}", f"te_info {word} "):
                self.assertEqual(bash(line), [], line)

    def test_in_a_shell(self):
        out = terminal(["bash", "--norc", "-i"], f"PS1='$ '; source {BASH}", "te_segment unr\tx --jso\ty", "--json y")
        self.assertIn("te_segment unregister x --json y", out)


class ZshTest(Files):
    def setUp(self):
        super().setUp()
        if not shutil.which("zsh"):
            self.skipTest("zsh is missing")

    def test_flags(self):
        for tool in TOOLS:
            flags = sorted(flags_of(tool))
            out = zsh(f"{tool} --", rf"--{flags[-1]}\b.*\$ {tool} --")
            self.assertEqual(sorted(set(re.findall(r"(?<=--)\w+", out.split("\n", 1)[1]))), flags)

    def test_values(self):
        for line, words in (("transfer_engine_bench --operation=", ["read", "write"]),
                            ("transfer_engine_validator --mode=", ["initiator", "target"]),
                            ("transfer_engine_bench --protocol=", transports()),
                            ("te_segment ", ["list", "mount", "register", "show", "unmount", "unregister"])):
            out = zsh(line, rf"{words[-1]}\b.*\$ {line}")
            self.assertEqual(sorted(out.split("\n", 1)[1].split("$")[0].split()), words)

    def test_files(self):
        self.assertIn("--data_dir=", zsh(f"te_metad --data_dir={self.folder}/on", r"one\.d/"))
        for line in (f"te_metad --tls_key={self.folder}/one\\ t", f"te_keys check {self.folder}/one\\ t",
                     f"te_segment register kv --file=a,{self.folder}/one\\ t"):
            self.assertIn("two.json", zsh(line, r"two\.json"))

    def test_same_names_as_bash(self):
        other = read(ZSH, "_transfer_engine")
        for name in (*FILES, *FOLDERS):
            self.assertRegex(other, rf"[(|]{name}[|)]")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.wasSuccessful() and result.skipped:
        print("test_package_completion: zsh is missing")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
