# SPDX-License-Identifier: Apache-2.0
"""Processes of both engines, told what to do in one language (theirs.py says which), and their servers."""
import glob
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))

import te_proc as te  # noqa: E402
import te_stores  # noqa: E402

# All of both engines stays on this host; theirs looks at the first interface otherwise. A proxy of the
# environment would be asked for the metadata.
ENV = {"MC_FORCE_TCP": "1", "MC_TCP_BIND_ADDRESS": "127.0.0.1", "MC_TRANSFER_TIMEOUT": "5",
       "no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}


class Venv:
    """Where the wheel is; run.py sets it."""
    folder = None

    @classmethod
    def program(cls, name):
        return os.path.join(cls.folder, "bin", name)

    @classmethod
    def bench(cls):
        """Their transfer_engine_bench itself: what is in bin/ starts it as a child, which signals do not reach."""
        found = glob.glob(os.path.join(cls.folder, "lib", "python3*", "site-packages", "mooncake",
                                       "transfer_engine_bench"))
        return found[0]

    @classmethod
    def with_ours(cls):
        """The Python of an environment that has the wheel and our package; that of Mooncake's stays as it is."""
        folder = tempfile.mkdtemp(prefix="overlay-", dir=te.Workdir.get())
        script = os.path.join(te.SRC, "scripts", "wheel.sh")
        cls.need(script, "--build", te.BUILD, "--out", folder)
        cls.need(cls.program("python"), "-m", "venv", os.path.join(folder, "venv"))
        site = glob.glob(os.path.join(folder, "venv", "lib", "python3*", "site-packages"))[0]
        with open(os.path.join(site, "theirs.pth"), "w", encoding="utf-8") as f:
            f.write(glob.glob(os.path.join(cls.folder, "lib", "python3*", "site-packages"))[0] + "\n")
        python = os.path.join(folder, "venv", "bin", "python")
        wheel = glob.glob(os.path.join(folder, "transfer_engine-*.whl"))
        cls.need(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
                 *wheel)
        return python

    @staticmethod
    def need(*command):
        ran = te.call(*command)
        if ran.returncode:
            raise Failure(f"{' '.join(command)}: {ran.stdout}{ran.stderr}")


class Failure(AssertionError):
    """An engine did not do what a case needs."""


class Words:
    """How an engine is told what to do; .last is its last answer. The process has send() and reply()."""
    side = None
    segment = port = last = None

    def start(self, name, metadata, protocol="tcp", device=""):
        got = self.ask("init", name=name, metadata=metadata, protocol=protocol, device=device)
        self.segment, self.port = got.get("segment"), got.get("port")
        return got

    def ask(self, op, **words):
        """The answer, whatever it says."""
        self.send(op, **words)
        self.last = self.reply()
        return self.last

    def do(self, op, **words):
        """The answer, which must be a success."""
        got = self.ask(op, **words)
        if got["rc"] != 0:
            raise Failure(f"{self.side}: {op} {words}: {got}\n{self}")
        return got

    def register(self, size, **more):
        return self.do("register", size=size, **more)["addr"]


class Peer(Words, te.Proc):
    """One engine on this host."""
    env = ENV
    defaults = {}  # the limits of both engines as they are

    def __init__(self, name="127.0.0.1", metadata=te.P2P, protocol="tcp", device="", env=None, start=True):
        super().__init__([str(c) for c in self.make_command()], env={**self.env, **(env or {})}, stdin=True)
        self.answered = 0
        self.reply()
        if start:
            self.last = self.start(name, metadata, protocol, device)
            if self.last["rc"] != 0:
                raise Failure(f"init of {self.side}: {self.last}\n{self}")

    def make_command(self):
        raise NotImplementedError

    def reply(self):
        line = self.wait_line(r"^\{.*", self.answered).group(0)
        self.answered = self.lines.index(line, self.answered) + 1
        return json.loads(line)

    def send(self, op, **words):
        self.process.stdin.write(json.dumps({"op": op, **words}) + "\n")
        self.process.stdin.flush()

    def leave(self):
        """Ends as a program ends that closes its engine: the exit status."""
        self.send("exit")
        return self.wait()


class Ours(Peer):
    side = "ours"

    def make_command(self):
        return [os.path.join(te.BUILD, "tests", "interop", "ours")]


class Theirs(Peer):
    side = "theirs"

    def make_command(self):
        return [Venv.program("python"), os.path.join(HERE, "theirs.py")]


class TheirMetad(te_stores.Store):
    """Mooncake's HTTP metadata server, which lists nothing."""
    scheme = "http"

    @property
    def url(self):
        return f"{super().url}/metadata"

    def command(self):
        return [Venv.program("python"), "-m", "mooncake.http_metadata_server", "--host", self.host,
                "--port", str(self.port)]

    def answers(self):
        return te_stores.http("GET", f"{self.url}?key=none")[1] is None

    def do_get(self, key):
        return te_stores.http("GET", f"{self.url}?key={te_stores.urllib.parse.quote(key, safe='')}")[0]


class TheirMaster(te_stores.Store):
    """The master of Mooncake's store."""
    scheme = "http"

    def choose_ports(self):
        self.port, self.metrics = te.free_port(), te.free_port()

    def command(self):
        return [Venv.bench().replace("transfer_engine_bench", "mooncake_master"), f"-rpc_address={self.host}",
                f"-rpc_port={self.port}", f"-metrics_host={self.host}", f"-metrics_port={self.metrics}"]

    def answers(self):
        with te.socket.create_connection((self.host, self.port), 1):
            return True
