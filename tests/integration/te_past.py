# SPDX-License-Identifier: Apache-2.0
"""Versions that have been released: their builds, and what was recorded of them (tests/past/README.md)."""
import base64
import functools
import itertools
import json
import os
import re
import struct
import subprocess

import te_proc as te
import te_stores as stores

CAPTURES = os.path.join(te.SRC, "tests", "past")
FIRST = "0.1"
SCRIPT = os.path.join(te.SRC, "scripts", "past.sh")
BUILD_LIMIT_S = 720
# It loads HIP's library for each te_explain() and closes it again, and that of ROCm 5 ends a process that loads it twice.
ENVIRONMENTS = {FIRST: {"MC_DISABLE_HIP": "1"}}


# ---- Builds ----------------------------------------------------------------------------------------

class Build:
    """Source tree, build tree and peer program of one version."""

    made = itertools.count()

    def __init__(self, src, build, flags=(), env=None):
        self.src, self.build, self.flags, self.env = src, build, flags, env or {}
        self.number = next(Build.made)  # source trees of two versions may have one name
        self.bin = os.path.join(build, "bin")
        self.programs = {}

    def compile(self, source, name, shared=None):
        """Compiles one C file against this version's headers; links its static library, or the shared one of
        that folder, which LD_LIBRARY_PATH then has to find."""
        key = (source, shared)
        if key not in self.programs:
            out = os.path.join(te.Workdir.get(), f"{name}-{len(self.programs)}-{self.number}")
            if shared:
                link = [os.path.join(shared, "libtransfer_engine.so")]
            else:
                with open(os.path.join(self.build, "transfer_engine.pc"), encoding="utf-8") as f:
                    private = re.search(r"^Libs\.private:(.*)$", f.read(), re.M).group(1).split()
                link = [os.path.join(self.build, "lib", "libtransfer_engine.a"), *private]
            subprocess.run([te.CC, "-std=c17", "-D_GNU_SOURCE", "-g", *self.flags, "-I",
                            os.path.join(self.src, "include"), source, *link, "-o", out], check=True, timeout=120)
            self.programs[key] = out
        return self.programs[key]

    def peer(self, env=None, **more):
        """An engine of this version: the peer program of its own source."""
        program = self.compile(os.path.join(self.src, "tests", "integration", "peer.c"), "peer")
        return te.Peer(program=program, env={**self.env, **(env or {})}, **more)


class BuildMetad(stores.Metad):
    """te_metad of one version; another one's takes over its folder and port where .build is that and it is restarted."""

    def __init__(self, build, **more):
        self.build = build
        super().__init__(**more)

    def command(self):
        return [te.tool("te_metad", self.build.bin), *super().command()[1:]]


@functools.cache
def today():
    return Build(te.SRC, te.BUILD, te.CFLAGS)


def versions():
    """Those that scripts/past.sh knows."""
    out = subprocess.run([SCRIPT, "--list"], capture_output=True, text=True, timeout=60, check=True).stdout
    return [line.split()[0] for line in out.splitlines()]


@functools.cache
def past(version=FIRST):
    """That version, built now if it is not there. Skips where the clone lacks its commit."""
    done = subprocess.run([SCRIPT, version], capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode == 3:
        te.skip(done.stderr.strip())
    if done.returncode:
        raise AssertionError(f"{SCRIPT} {version}: exit {done.returncode}\n{done.stderr}")
    folder = done.stdout.strip()
    return Build(os.path.join(folder, "src"), os.path.join(folder, "build"), env=ENVIRONMENTS.get(version))


# ---- Captures --------------------------------------------------------------------------------------
# A capture is a list of connections, (kind, [(direction, bytes)]), ">" being what the client sent. In a
# file a line ">" or "<" has bytes in hexadecimal, ">t" a line of text with its newline, ">T" one without.

def to_lines(direction, data):
    """A message as lines of a file: binary, or text, or a frame of the handshake port, which is both."""
    if len(data) > 9 and data[8] < 4 and struct.unpack("<Q", data[:8])[0] == len(data) - 8:
        yield f"{direction} {data[:9].hex()}"
        data = data[9:]
    text = data.decode("utf-8", "backslashreplace")
    if all(c.isprintable() or c in "\r\n" for c in text) and text.encode() == data:
        for line in text.splitlines(True) if "\r" not in text else re.findall(r"[^\n]*\n|[^\n]+$", text):
            mark = "t" if line.endswith("\n") else "T"
            yield f"{direction}{mark} " + line.rstrip("\n").replace("\\", "\\\\").replace("\r", "\\r")
        return
    for at in range(0, len(data), 32):
        yield f"{direction} {data[at:at + 32].hex()}"


def from_line(mark, rest):
    if len(mark) == 1:
        return bytes.fromhex(rest)
    text = re.sub(r"\\(.)", lambda m: {"r": "\r", "\\": "\\"}[m.group(1)], rest)
    return text.encode() + (b"\n" if mark[1] == "t" else b"")


def nameless(data):
    """Without the ids that this machine has, and the names of temporary folders; of the same length."""
    data = re.sub(rb"/tmp/te-past-\w{8}", b"/tmp/te-past-00000000", data)
    for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                own = f.read().strip()
            data = data.replace(own.encode(), re.sub("[0-9a-f]", "0", own).encode())
    return data


def write_capture(path, title, connections):
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"# {title}\n")
        for kind, messages in connections:
            f.write(f"\nconnection {kind}\n")
            for direction, data in messages:
                f.write("\n".join(to_lines(direction, nameless(data))) + "\n.\n")


def read_capture(name, folder=os.path.join(CAPTURES, FIRST)):
    connections, part, direction = [], b"", None
    with open(os.path.join(folder, name + ".txt"), encoding="utf-8", newline="\n") as f:
        for line in f.read().split("\n"):
            mark, _, rest = line.partition(" ")
            if mark == "connection":
                connections.append((rest, []))
            elif mark == ".":
                connections[-1][1].append((direction, part))
                part = b""
            elif mark[:1] in ("<", ">"):
                direction = mark[0]
                part += from_line(mark, rest)
    return connections


# ---- What is on the wire ---------------------------------------------------------------------------

GREETING = bytes.fromhex("54454e41544956ff")
OK_V2 = bytes.fromhex("000000005654434d")
READ, WRITE, DROP, DATA, ACK = 1, 2, 3, 17, 18
CRC_TABLE = []
MESSAGE = struct.Struct("=IHHIIQQ16s")  # on the socket of the host transport
SLOT_SIZE = 64


def crc32c(data):
    if not CRC_TABLE:
        for n in range(256):
            for _ in range(8):
                n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
            CRC_TABLE.append(n)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Bytes:
    """take(n) of bytes that are there; a socket's is te.read_exactly()."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        part = self.data[self.at:self.at + n]
        if len(part) < n:
            raise EOFError(f"{len(part)} bytes of {n}")
        self.at += n
        return part

    def left(self):
        return len(self.data) - self.at


class Frame:
    """A frame of the native framing. `.whole()` is its bytes, with right checksums."""

    def __init__(self, take, crc, from_client):
        head = take(32)
        (self.type, self.count, self.crc, self.id, self.length, self.verdict,
         self.index) = struct.unpack("<BxHIQQII", head)
        self.blocks = [struct.unpack("<QII", take(16)) for _ in range(self.count)]
        carries = self.type == WRITE or not from_client
        self.payload = take(self.length) if carries else b""
        self.with_crc = crc
        self.trailer = take(4) if crc and self.payload else b""

    def head(self, crc):
        return struct.pack("<BxHIQQII", self.type, self.count, crc, self.id, self.length, self.verdict,
                           self.index) + b"".join(struct.pack("<QII", *b) for b in self.blocks)

    def sums(self):
        """The checksums that it must have: (header, trailer)"""
        if not self.with_crc:
            return 0, b""
        return crc32c(self.head(0)), struct.pack("<I", crc32c(self.payload)) if self.payload else b""

    def whole(self):
        crc, trailer = self.sums()
        return self.head(crc) + self.payload + trailer

    def rebase(self, by):
        """Moves the addresses of its blocks."""
        if self.type != DROP:
            self.blocks = [(addr + by, length, zero) for addr, length, zero in self.blocks]
        return self

    def told(self, base):
        """What it says, apart from what is another thing in each run."""
        # The number of a connection is another one each time.
        blocks = [(self.type != DROP and addr - base, length, zero) for addr, length, zero in self.blocks]
        return [self.type, self.id, self.length, self.verdict, self.index, blocks, self.payload.hex()]


def client_frames(data):
    """(greeting, frames, what is left of one that was cut off) of what a client sent; (None, [], data) if
    that is not the native framing."""
    if data[:8] != GREETING:
        return None, [], data
    source, frames = Bytes(data[48:]), []
    crc = bool(data[10] & 1)
    while source.left():
        at = source.at
        try:
            frames.append(Frame(source.take, crc, True))
        except EOFError:
            return data[:48], frames, source.data[at:]
    return data[:48], frames, b""


def server_frames(data, crc):
    source, frames = Bytes(data), []
    while source.left():
        # What answers a greeting with a refusal has no checksum; none of the captures has one.
        frames.append(Frame(source.take, crc, False))
    return frames


def sent(messages, direction):
    return b"".join(data for way, data in messages if way == direction)


# What is another number or word in each run, wherever the key stands in a descriptor or a handshake.
VARY = {"addr", "timestamp", "incarnation", "tcp_data_port", "rpc_port", "id", "addresses", "socket", "boot",
        "machine", "pid_ns", "net_ns", "nonce", "nonce_at", "uid", "pid", "fd", "qp_num", "lkey", "rkey",
        "shm_name", "version"}


def kind_of(value):
    return "" if value is None else type(value).__name__


def mask(value, key=None):
    """JSON whose varying parts are the names of their types; arrays of such keep their length."""
    if key in VARY and not isinstance(value, dict):
        return [kind_of(v) for v in value] if isinstance(value, list) else kind_of(value)
    if key == "memory":  # of te.nvlink_intra and its like: address, length, handle, slot, generation, device
        return [[kind_of(a), length, kind_of(h), kind_of(s), kind_of(g), kind_of(u)]
                for a, length, h, s, g, u in value]
    if key == "te" and isinstance(value, dict):  # 0.1 alone says where it is by what that is called
        value = {k: v for k, v in value.items() if k not in ("host", "gpu", "nvlink_intra", "nvlink", "hip")}
    if isinstance(value, dict):
        return {k: mask(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [mask(v) for v in value]
    return value


def told_json(text):
    try:
        return mask(json.loads(text))
    except ValueError:
        return text.decode("utf-8", "backslashreplace")


def told_handshake(data):
    """A message of the handshake port: its type, and what its JSON says."""
    return [data[8], told_json(data[9:])] if len(data) > 9 else [data.hex()]


def told_native(messages, base):
    greeting, frames, rest = client_frames(sent(messages, ">"))
    answers = [f.told(base) for f in server_frames(sent(messages, "<"), bool(greeting[10] & 1))]
    # How many WRITEs an ACK answers is a matter of time.
    kept = [a for a, after in zip(answers, answers[1:] + [[0]]) if not a[0] == after[0] == ACK or a[3]]
    return [greeting[:16].hex(), [f.told(base) for f in frames], len(rest), kept]


def mooncake_requests(data):
    """(size, address, opcode, payload) of each request of version 1 or 2."""
    source, requests = Bytes(data), []
    while source.left():
        size, address, opcode, padding = struct.unpack("<QQB7s", source.take(24))
        assert padding == bytes(7)
        requests.append((size, address, opcode, source.take(size) if opcode & 0x7F == 1 else b""))
    return requests


def told_data(messages, base):
    if sent(messages, ">")[:8] == GREETING:
        return told_native(messages, base)
    return [[(size, address - base, opcode, payload.hex())
             for size, address, opcode, payload in mooncake_requests(sent(messages, ">"))],
            sent(messages, "<").hex()]


def base_of(connections):
    """Where the first buffer lies of the first descriptor that was asked for; 0 if none was."""
    for kind, messages in connections:
        if kind == "handshake" and messages[0][1][8] == te.METADATA:
            buffers = json.loads(messages[1][1][9:])["buffers"]
            return buffers[0]["addr"] if buffers else 0
    return 0


def told_unix(data):
    magic, version, kind, status, slot, memory, size, nonce = MESSAGE.unpack(data)
    return [magic, version, kind, status, slot, bool(memory), size, nonce != bytes(16)]


def table_counts(head):
    """How many slots of a table of the host transport were ever used, and entries of its log."""
    high, _, log = struct.unpack("=IIQ", head[16:32])
    return high, log


def told_table(data):
    """The counts at the beginning, and of each slot: epoch, access, length, whether in a memfd, and where."""
    _, entries = table_counts(data)
    rows = [struct.unpack("=IIQQQQ", data[at:at + 40]) for at in range(64 + 4 * entries, len(data), SLOT_SIZE)]
    return [struct.unpack("=6IQ", data[:32]), data[64:64 + 4 * entries].hex(),
            [(epoch & 1, access, length, bool(memory), at) for epoch, access, _, length, memory, at in rows]]


def told(connections):
    """What was said, apart from what is another thing in each run."""
    base = base_of(connections)
    return [[kind, told_data(messages, base) if kind == "data" else
             [[way, TOLD[kind](data)] for way, data in messages]]
            for kind, messages in connections]


def told_etcd(value, key=None):
    """The same of a body of etcd's gateway: what is base64 in clear, and not what etcd numbers."""
    if isinstance(value, dict):
        return {k: told_etcd(v, k) for k, v in value.items() if k not in ("header", "create_revision", "mod_revision")}
    if isinstance(value, list):
        return [told_etcd(v, key) for v in value]
    if key in ("key", "value"):
        return told_json(base64.b64decode(value))
    return kind_of(value) if key in ("lease", "ID", "version") else value


def told_http(data, body_of=told_json):
    """A request or an answer: the first line, what the body is, the time to live, the body."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    request = not first.startswith("HTTP/")
    return [first, headers.get("content-type") if request else "", headers.get("metadata-ttl"),
            body_of(body) if body else ""]


def told_redis(data):
    """The parts of a request or an answer, without their lengths."""
    return [told_json(part) for part in data.split(b"\r\n") if part[:1] != b"$" or part == b"$-1"]


TOLD = {"http": told_http, "etcd": lambda data: told_http(data, lambda body: told_etcd(json.loads(body))),
        "redis": told_redis, "page": lambda data: [data[:16].hex(), len(data)], "handshake": told_handshake, "initiator": told_unix, "owner": told_unix, "table": told_table}
