# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: paths, processes, the peer program, handshake frames, HTTP."""
import atexit
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

SRC = os.environ.get("TE_TEST_SRC") or os.path.abspath(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("TE_TEST_BUILD") or os.path.join(SRC, "build")
BIN = os.environ.get("TE_TEST_BIN") or os.path.join(BUILD, "bin")
FAULT_BIN = os.environ.get("TE_TEST_FAULT_BIN") or os.path.join(BUILD, "tests", "fault")
CC = os.environ.get("TE_TEST_CC") or "cc"
CFLAGS = (os.environ.get("TE_TEST_CFLAGS") or "").split()
SLOW = 4 if any("sanitize" in f for f in CFLAGS) else 1
PARTS = os.environ.get("TE_TEST_PARTS", "http etcd redis rdma uring").split()
# The one bound of all waits, in seconds: whatever is not done by then never will be. No outcome depends on it.
HANG_S = 120 * SLOW
# The limits of the product itself that a busy machine could run into. Tests that are about one set it.
PATIENT = {"TE_METADATA_TIMEOUT_MS": "60000", "TE_METADATA_TTL_S": "600", "MC_HANDSHAKE_CONNECT_TIMEOUT": "60",
           "TE_HOST_TIMEOUT_MS": "60000"}
P2P = "P2PHANDSHAKE"

CONNECTION, METADATA, NOTIFY, PROBE = 0, 1, 2, 3
COMPLETED = 4


def skip(reason):
    """Ends this test case, class or module: it cannot run here."""
    raise unittest.SkipTest(reason)


def need(part):
    """Skips what needs a part of the library that this build does without."""
    if part not in PARTS:
        skip(f"{part} is not in this build")


def main():
    """Runs what can run. Exits 1 after a failure, 77 with the reason last if something was skipped."""
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped:
        sys.stderr.flush()
        print("skipped: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(77)


class Workdir:
    """A temporary folder that is gone when the test ends."""
    path = None

    @classmethod
    def get(cls):
        if cls.path is None:
            cls.path = tempfile.mkdtemp(prefix="te-test-")
            atexit.register(shutil.rmtree, cls.path, ignore_errors=True)
        return cls.path


# ---- Waiting ---------------------------------------------------------------------------------------

def until(condition, what):
    """What the condition gives, once that is true. `what` is a text, or gives one, for where it hangs."""
    end = time.monotonic() + HANG_S
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {HANG_S} s: {what() if callable(what) else what}")
        time.sleep(0.02)


# ---- Processes -------------------------------------------------------------------------------------

class Proc:
    """A process whose output is read as it comes. It is killed, by its pid, when the test ends."""
    running = []
    defaults = PATIENT

    def __init__(self, command, env=None, stdin=False):
        self.command = command
        self.lines = []
        self.errors = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="backslashreplace", bufsize=1,
            env={**self.defaults, **os.environ, **(env or {})})
        self.pid = self.process.pid
        Proc.running.append(self)
        self.readers = [threading.Thread(target=self._read, args=args, daemon=True)
                        for args in ((self.process.stdout, self.lines),
                                     (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()

    def _read(self, stream, lines):
        for line in stream:
            with self.changed:
                lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_line(self, pattern, start=0):
        """The match of the first line of stdout, from number `start` on, that has the pattern."""
        return self._wait_in(self.lines, lambda line: re.search(pattern, line), f"line '{pattern}'", start)

    def wait_error(self, text):
        """Until stderr has the text: it may arrive after an answer on stdout that was written later."""
        self._wait_in(self.errors, lambda line: text in line, f"'{text}' on stderr")

    def wait_times(self, text, times):
        """Until stderr has that many lines with the text."""
        if times:
            self._wait_in(self.errors, lambda _: sum(text in line for line in self.errors) >= times, f"'{text}' {times} times")

    def wait_found(self, found):
        """The first of what found() gives for the lines of stderr that counts as true."""
        return self._wait_in(self.errors, found, "line on stderr")

    def _wait_in(self, lines, found, what, start=0):
        end = time.monotonic() + HANG_S
        with self.changed:
            while True:
                last = not any(r.is_alive() for r in self.readers)
                for line in lines[start:]:
                    match = found(line)
                    if match:
                        return match
                if last or time.monotonic() > end:
                    raise AssertionError(f"no {what} from {self}")
                self.changed.wait(0.2)

    def wait(self, seconds=HANG_S):
        """The exit status, when all that it wrote has been read."""
        try:
            rc = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end in {seconds} s: {self}") from None
        self._end_readers()
        return rc

    def _end_readers(self):
        for reader in self.readers:
            reader.join(HANG_S)
            if reader.is_alive():
                raise AssertionError(f"another process holds the output of {self}")

    def stop(self, sig=signal.SIGTERM):
        if self.process.poll() is None:
            os.kill(self.pid, sig)
        return self.wait()

    def freeze(self):
        """Stops the process; returns when all its threads have stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self):
        until(lambda: set(self.states().values()) <= {"T", "t"}, lambda: f"a stop of {self}")

    def thaw(self):
        os.kill(self.pid, signal.SIGCONT)

    def states(self):
        """thread -> what it does, in the kernel's letter"""
        found = {}
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/stat", encoding="utf-8", errors="replace") as f:
                    found[int(task)] = f.read().rpartition(")")[2].split()[0]
            except OSError:
                pass  # it has ended
        return found

    def port_was_taken(self):
        """Whether it has ended as somebody else has the port that it was given."""
        return self.process.poll() is not None and self.wait() != 0 and "in use" in str(self).lower()

    def kill(self):
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait()

    def close(self):
        self.kill()
        self._end_readers()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream and not stream.closed:
                try:
                    stream.close()
                except OSError:
                    pass
        if self in Proc.running:
            Proc.running.remove(self)

    def sockets(self):
        """How many sockets the process has open."""
        return len(self.socket_names())

    def socket_names(self):
        return {fd for fd in self.fds().values() if fd.startswith("socket:")}

    def wait_new_socket(self, before):
        """Until it has one that was not among those: somebody has connected."""
        until(lambda: self.socket_names() - before, lambda: f"a connection to {self}")

    def wait_sockets(self, most):
        """Until it has no more than so many."""
        until(lambda: self.sockets() <= most, lambda: f"{self.sockets()} sockets, not {most}: {self}")

    def fds(self):
        """number -> what it is, of every open descriptor"""
        found = {}
        folder = f"/proc/{self.pid}/fd"
        for name in os.listdir(folder):
            try:
                found[int(name)] = os.readlink(os.path.join(folder, name))
            except OSError:
                pass
        return found

    def output(self):
        return "\n".join(self.lines)

    def error_output(self):
        return "\n".join(self.errors)

    def __str__(self):
        return (f"{' '.join(self.command)} (exit {self.process.poll()})\n--- stdout\n"
                f"{self.output()}\n--- stderr\n{self.error_output()}")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


@atexit.register
def close_all():
    for proc in list(Proc.running):
        proc.close()


held_ports = []  # what keeps ports from other programs until this process ends


def free_port():
    """A port that is free, below those that the system hands out by itself, and that no other test is given
    before this process ends: an abstract unix socket of its number says who has it. For servers that cannot
    choose one themselves, and those that come back on theirs. A stranger may still take it: see free_ports()."""
    return free_neighbours(1)


def free_neighbours(count):
    """The first of so many that are free in the same way."""
    for _ in range(200):
        first = 20000 + int.from_bytes(os.urandom(2), "little") % (10001 - count)
        claims = [claim(port) for port in range(first, first + count)]
        if all(claims):
            held_ports.extend(claims)
            return first
        for taken in claims:
            if taken:
                taken.close()
    raise AssertionError("no free port")


def claim(port):
    """What keeps a port from other tests, or None if it is not to be had."""
    held = socket.socket(socket.AF_UNIX)
    with socket.socket() as s:
        try:
            held.bind(f"\0te-test-port-{port}")
            s.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            return None
    return held


def own_ports():
    """Options for an engine whose ports no engine of another test takes once it has ended. They are so many that
    strangers, who may still take one, leave another."""
    first = free_neighbours(8)
    return [f"MC_MIN_RPC_PORT={first}", f"MC_MAX_RPC_PORT={first + 7}"]


def free_ports():
    """One to try after the other, for a server that found the last one taken."""
    for _ in range(20):
        yield free_port()
    raise AssertionError("20 ports in a row were taken")


def dead_port():
    """A port at which nobody answers, nor will before this process ends."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))  # who has it, but does not listen, keeps others from it
    held_ports.append(sock)
    return sock.getsockname()[1]


def tool(name, folder=None):
    path = os.path.join(folder or BIN, name)
    if not os.access(path, os.X_OK):
        skip(f"{path} is not built")
    return path


def run(name, *flags, folder=None, env=None, prefix=()):
    """Runs a tool to its end; the Proc has .rc."""
    with Proc([*prefix, tool(name, folder), *flags], env=env) as proc:
        proc.rc = proc.wait()
    return proc


def call(*command, **more):
    """subprocess.run() of what ends by itself, its output captured as text."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, "timeout": HANG_S, **more})


def bytes_given(proc):
    """What a process has sent on the TCP connections that it has now, or has given to the kernel to be sent."""
    run = subprocess.run(["ss", "-tniOHp"], capture_output=True, text=True, check=True, timeout=HANG_S)
    total = 0
    for line in run.stdout.splitlines():
        if f"pid={proc.pid}," in line:
            acked = re.search(r"bytes_acked:(\d+)", line)
            total += int(line.split()[2]) + (int(acked.group(1)) if acked else 0)
    return total


class Target(Proc):
    """A tool in --mode=target; .segment is its name."""

    def __init__(self, *flags, metadata=P2P, name="127.0.0.1", program="transfer_engine_bench",
                 folder=None, env=None, size="64M", prefix=()):
        command = [*prefix, tool(program, folder), "--mode=target", f"--metadata_server={metadata}",
                   "--protocol=tcp", f"--buffer_size={size}", "--threads=1", "--batch_size=1"]
        if name:
            command.append(f"--local_server_name={name}")
        super().__init__(command + list(flags), env=env)
        self.segment = self.wait_line(r"^segment: (\S+)$").group(1)


def until_on_terminal(command, pattern):
    """(exit status, text) of a program whose stderr is a terminal, and that is interrupted once the pattern is
    there."""
    ours, theirs = pty.openpty()
    text = ""
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs) as process:
            os.close(theirs)
            try:
                end = time.monotonic() + HANG_S
                while not re.search(pattern, text) and time.monotonic() < end:
                    if select.select([ours], [], [], 0.2)[0]:
                        text += os.read(ours, 65536).decode()
                if not re.search(pattern, text):
                    raise AssertionError(f"no '{pattern}' from {' '.join(command)}: {text}")
                process.send_signal(signal.SIGINT)
                return process.wait(HANG_S), text
            finally:
                process.kill()
    finally:
        os.close(ours)


def on_terminal(command, env=None):
    """(exit status, text) of a program whose stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    text = b""
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                              env={**Proc.defaults, **os.environ, "TERM": "xterm", **(env or {})}) as process:
            os.close(theirs)
            try:
                end = time.monotonic() + HANG_S
                while time.monotonic() < end:
                    if not select.select([ours], [], [], 0.2)[0]:
                        continue
                    try:
                        text += os.read(ours, 65536)
                    except OSError:  # nobody has the other end any more
                        break
                return process.wait(HANG_S), text.decode().replace("\r\n", "\n")
            finally:
                process.kill()
    finally:
        os.close(ours)


FOREVER = f"--duration={100 * HANG_S}"  # of a load that ends by other means


def bench(segment, *flags, metadata=P2P, name="127.0.0.1", **more):
    """Runs an initiator against a segment, with small defaults: so many batches, however long they take."""
    names = [f"--local_server_name={name}"] if name else []
    return run(more.pop("program", "transfer_engine_bench"), f"--metadata_server={metadata}",
               f"--segment_id={segment}", "--protocol=tcp", "--buffer_size=8M", "--threads=2",
               "--batch_size=4", "--batches=20", FOREVER, *names, *flags, **more)


class Metad(Proc):
    """The HTTP metadata server; .url is what --metadata_server takes."""

    def __init__(self, port=None, data_dir=None, host="127.0.0.1", prefix=()):
        need("http")
        more = [f"--data-dir={data_dir}"] if data_dir else []
        for self.port in [port] if port else free_ports():
            super().__init__([*prefix, tool("te_metad"), f"--addr={host}:{self.port}", *more])
            try:
                self.wait_line(r"listening on \S+:\d+")
                break
            except AssertionError:
                if port or not self.port_was_taken():
                    raise
            self.close()
        self.url = f"http://{host}:{self.port}/metadata"


def put(url, body):
    """PUTs one value; any status but 200 raises."""
    urllib.request.urlopen(urllib.request.Request(url, body, method="PUT"), timeout=HANG_S).close()


# ---- The peer program ------------------------------------------------------------------------------

def private_libs():
    """What a program links with after libtransfer_engine.a, from the pkg-config file of the build."""
    with open(os.path.join(BUILD, "transfer_engine.pc"), encoding="utf-8") as f:
        return re.search(r"^Libs\.private:(.*)$", f.read(), re.M).group(1).split()


def compile_program(source, name):
    """Compiles one C file against the static library of the build."""
    library = os.path.join(BUILD, "lib", "libtransfer_engine.a")
    if not os.path.exists(library):
        skip(f"{library} is not built")
    out = os.path.join(Workdir.get(), name)
    subprocess.run([CC, "-std=c17", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", *CFLAGS,
                    "-I", os.path.join(SRC, "include"), source, library, *private_libs(), "-o", out],
                   check=True, timeout=10 * HANG_S)
    return out


class Peer(Proc):
    """An engine that does what it is told: tests/integration/peer.c."""
    program = None

    def __init__(self, name="127.0.0.1", metadata=P2P, options=(), prefix=(), env=None, program=None):
        super().__init__([*prefix, program or Peer.binary(), metadata, name or "-", *options], stdin=True, env=env)
        self.segment = self.wait_line(r"^ready (.+)$").group(1)
        self.answered = len(self.lines)

    @classmethod
    def at_a_port(cls, **more):
        """One that can come back under its address: nobody is given the port meanwhile."""
        for port in free_ports():
            peer = cls(name=f"127.0.0.1:{port}", **more)
            if peer.segment == f"127.0.0.1:{port}":
                return peer
            peer.close()
        return None

    @classmethod
    def binary(cls):
        if Peer.program is None:
            Peer.program = compile_program(os.path.join(SRC, "tests", "integration", "peer.c"), "peer")
        return Peer.program

    def send(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def reply(self):
        line = self.wait_line(r"^(ok|err)\b.*", self.answered).group(0)
        self.answered += 1
        return line.split(" ")

    def has_replied(self):
        """Whether reply() has something to give at once."""
        with self.changed:
            return any(re.match(r"(ok|err)\b", line) for line in self.lines[self.answered:])

    def ask(self, *words):
        """The words of the answer after "ok"; an "err" fails the test."""
        self.send(*words)
        got = self.reply()
        if got[0] != "ok":
            raise AssertionError(f"{words}: {' '.join(got)}\n{self}")
        return got[1:]

    def refused(self, *words):
        """The text of the error that the words are answered with; an "ok" fails the test."""
        self.send(*words)
        got = self.reply()
        if got[0] != "err":
            raise AssertionError(f"{words}: {' '.join(got)}\n{self}")
        return " ".join(got[2:])

    def open(self, name):
        """The id of a segment, whatever bytes its name has."""
        return int(self.ask("open", urllib.parse.quote(name))[0])

    def region(self, size):
        """(index, address) of a new region."""
        index, address = self.ask("region", size)
        return int(index), int(address)

    def send_move(self, opcode, segment, index, offset, remote, length, count=1, deadline_ms=0):
        self.send("move", opcode, segment, index, offset, remote, length, count, deadline_ms)

    def move(self, *args, **more):
        """(state, error, bytes, text) of a batch."""
        self.send_move(*args, **more)
        return self.moved()

    def moved(self):
        got = self.reply()
        if got[0] != "ok":
            raise AssertionError(f"move: {' '.join(got)}\n{self}")
        return int(got[1]), int(got[2]), int(got[3]), " ".join(got[4:])

    def round_trip(self, segment, index, size, remote, seed):
        """Random bytes there and back through two halves of a region; fails the test on a difference."""
        self.ask("fill", index, 0, size, seed)
        for opcode, offset in (("write", 0), ("read", size)):
            state, error, moved, text = self.move(opcode, segment, index, offset, remote, size)
            if (state, error, moved) != (COMPLETED, 0, size):
                raise AssertionError(f"{opcode}: state {state}, error {error}, {moved} bytes: {text}")
        self.ask("check", index, size, size, seed)

    def quit(self):
        self.process.stdin.close()
        return self.wait()


# ---- Wire ------------------------------------------------------------------------------------------

def split_address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def connect(address):
    return socket.create_connection(address, timeout=HANG_S)


def read_exactly(sock, n):
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise AssertionError(f"connection closed after {len(data)} of {n} bytes")
        data += part
    return data


def frame(kind, text):
    body = bytes([kind]) + (text if isinstance(text, bytes) else (text + "\n").encode())
    return struct.pack("<Q", len(body)) + body


def read_frame(sock):
    """(type, body) of one frame."""
    (length,) = struct.unpack("<Q", read_exactly(sock, 8))
    body = read_exactly(sock, length)
    return body[0], body[1:]


def handshake(address, kind, text):
    """The body of the reply to one request on the handshake port."""
    with connect(address) as sock:
        sock.sendall(frame(kind, text))
        got, body = read_frame(sock)
        if got != kind:
            raise AssertionError(f"type {got} in reply to type {kind}")
        return body


def descriptor(address):
    """What the engine with this handshake port publishes about itself."""
    return json.loads(handshake(address, METADATA, "{}"))
