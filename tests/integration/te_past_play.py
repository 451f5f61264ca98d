# SPDX-License-Identifier: Apache-2.0
"""Servers that say what was recorded of an engine, and the requests that were recorded, to be made again."""
import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import threading

import te_past as past
import te_proc as te

SIZE = 64 << 10  # of the target's region, which holds random bytes of seed 1
INVALID = 2


# ---- The host transport ----------------------------------------------------------------------------

HELLO, WELCOME, WANT, MEMORY = 1, 2, 3, 4
TABLE_SIZE, TABLE_SLOTS = 8192 + (64 << 20), 8192
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4
PR_SET_PTRACER = 0x59616D61


def read_table(fd):
    """What is recorded of a table: its first 64 bytes, the entries of its log, the slots that were ever used."""
    head = os.pread(fd, 64, 0)
    slots, entries = past.table_counts(head)
    return head + os.pread(fd, 4 * entries, 64) + os.pread(fd, slots * past.SLOT_SIZE, TABLE_SLOTS)


def sealed(data, size):
    fd = os.memfd_create("te-past", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    os.pwrite(fd, data, 0)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
    return fd


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class HostOwner:
    """This process as the owner of two regions, one plain and one in a memfd, for one initiator. What it
    says is what was recorded; its own are the addresses, and the names of the memory."""

    def __init__(self, recorded, size=SIZE):
        messages, table = recorded
        self.answers = {data[6]: data for way, data in messages if way == "<"}
        self.heard = []
        self.nonce = mmap.mmap(-1, 4096)
        self.nonce[:16] = os.urandom(16)
        memory = sealed(b"", size)
        self.regions = {False: mmap.mmap(-1, size), True: mmap.mmap(memory, size)}
        self.fds = {WELCOME: [self.table(table), sealed(b"", 4096)], MEMORY: [memory]}
        self.socket = f"te-past-{os.urandom(8).hex()}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind("\0" + self.socket)
        self.listener.listen(1)
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1 & (1 << 64) - 1), 0, 0, 0)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def table(self, recorded):
        """The recorded table, its slots standing for the memory that is here."""
        _, entries = past.table_counts(recorded)
        begin = 64 + 4 * entries
        slots = bytearray(recorded[begin:])
        for at in range(0, len(slots), past.SLOT_SIZE):
            in_memfd = bool(struct.unpack("=Q", slots[at + 24:at + 32])[0])
            slots[at + 8:at + 16] = struct.pack("=Q", address_of(self.regions[in_memfd]))
        return sealed(recorded[:begin].ljust(TABLE_SLOTS, b"\0") + slots, TABLE_SIZE)

    def serve(self):
        sock, _ = self.listener.accept()
        with sock:
            while data := sock.recv(100):
                self.heard.append((">", data))
                kind = WELCOME if data[6] == HELLO else MEMORY
                socket.send_fds(sock, [self.answers[kind]], self.fds[kind])

    def patch(self, descriptor):
        """Puts what is here into a descriptor that was recorded; another way than this there is not."""
        descriptor["tcp_data_port"] = 1
        for buffer, memory in zip(descriptor["buffers"], self.regions.values()):
            buffer["addr"] = address_of(memory)
        descriptor["te"]["host"] |= {"socket": self.socket, "boot": word("/proc/sys/kernel/random/boot_id"),
               "machine": word("/etc/machine-id"), "pid_ns": os.stat("/proc/self/ns/pid").st_ino,
               "net_ns": os.stat("/proc/self/ns/net").st_ino, "nonce": self.nonce[:16].hex(),
               "nonce_at": address_of(self.nonce), "uid": os.geteuid(), "pid": os.getpid()}


def word(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""




# ---- A server that says what was recorded ----------------------------------------------------------

RECORDED_NAME, RECORDED_INITIATOR = "127.0.0.1:15591", "127.0.0.1:15592"


class Served:
    """The handshake port of a recorded engine, .name being where it is. It says what that engine said, with
    this name in place of its own, and what patch() does to descriptors; .heard is what it was asked.
    .names are other names that have changed, {recorded: today's}."""

    def __init__(self, connections, patch=None):
        self.patch, self.heard, self.names = patch, [], {}
        self.answers = {}
        for kind, messages in connections:
            if kind == "handshake":
                asked, answered = messages[0][1], messages[1][1]
                self.answers.setdefault(asked[8], []).append(answered[9:])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                kind, body = te.read_frame(sock)
                self.heard.append([kind, past.told_json(body)])
                sock.sendall(te.frame(kind, self.answer(kind)))
                sock.shutdown(socket.SHUT_WR)
                sock.recv(1)

    def answer(self, kind):
        left = self.answers[kind]
        text = left.pop(0) if len(left) > 1 else left[0]
        for recorded, name in {RECORDED_NAME: self.name, **self.names}.items():
            text = text.replace(recorded.encode(), name.encode())
        if kind != te.METADATA:
            return text
        descriptor = json.loads(text)
        if self.patch:
            self.patch(descriptor)
        return json.dumps(descriptor, sort_keys=True, separators=(",", ":"))

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Data:
    """The data port of a recorded engine, for the clients that were recorded: it takes as many bytes as
    they sent, and says what was answered. .heard has the connections as they were this time."""

    def __init__(self, connections):
        self.recorded = [messages for kind, messages in connections if kind == "data"]
        self.heard = [[] for _ in self.recorded]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(60 * te.SLOW)
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self):
        for messages, heard in zip(self.recorded, self.heard):
            sock, _ = self.listener.accept()
            sock.settimeout(60 * te.SLOW)
            self.threads.append(threading.Thread(target=self.say, args=(sock, messages, heard), daemon=True))
            self.threads[-1].start()

    @staticmethod
    def say(sock, messages, heard):
        with sock:
            for way, data in messages:
                if way == ">":
                    heard.append((">", te.read_exactly(sock, len(data))))
                else:
                    sock.sendall(data)
                    heard.append(("<", data))
            cut_off = past.client_frames(past.sent(messages, ">"))[2] if messages[0][1][:8] == past.GREETING else b""
            if not cut_off and sock.recv(1):
                heard.append((">", b"more than was recorded"))

    def close(self):
        """The connections; the client has ended."""
        for thread in self.threads:
            thread.join(60 * te.SLOW)
        self.listener.close()
        return [("data", heard) for heard in self.heard]


# ---- What was done while it was recorded, and is done again -----------------------------------------

def done(got, length):
    if got[:3] != (te.COMPLETED, 0, length):
        raise AssertionError(got)


def small_moves(peer, segment, index, remote):
    """Small requests, one after the other and several at once; all that comes back is compared."""
    done(peer.move("read", segment, index, 0, remote, 301), 301)
    peer.ask("check", index, 0, 301, 1)
    peer.ask("fill", index, 0, 4096, 5)
    for at, length, count in ((1, 37, 1), (4096, 301, 1), (8192, 13, 5)):
        done(peer.move("write", segment, index, 0, remote + at, length, count), length * count)
        done(peer.move("read", segment, index, 8192, remote + at, length, count), length * count)
        peer.ask("check", index, 8192, length * count, 5)


def cut_move(peer, segment, index, remote, cut):
    """A WRITE whose connection is lost in the middle, cut() having seen to it: it is done once more."""
    peer.ask("fill", index, 0, 4096, 6)
    done(peer.move("write", segment, index, 0, remote + 3, 10), 10)
    cut()
    done(peer.move("write", segment, index, 0, remote + 200, 300), 300)
    done(peer.move("read", segment, index, 8192, remote + 200, 300), 300)
    peer.ask("check", index, 8192, 300, 6)


def refused_move(peer, segment, index, remote, unregister):
    """A READ of memory that unregister() has taken back meanwhile."""
    done(peer.move("read", segment, index, 0, remote, 100), 100)
    unregister()
    state, error, _, _ = peer.move("read", segment, index, 0, remote, 100)
    if state != INVALID or error >= 0:
        raise AssertionError((state, error))


def host_moves(peer, owner, served):
    """Bytes to and from both kinds of memory of a HostOwner, by the host transport alone."""
    index, _ = peer.region(SIZE)
    segment = peer.open(served.name)
    for memory in owner.regions.values():
        remote, length = address_of(memory), 12345
        text = " ".join(peer.ask("explain", "read", segment, index, remote, 1000))
        if "transport host" not in text.split("taken")[0].split(";")[-1]:
            raise AssertionError(text)
        peer.ask("fill", index, 0, 20000, 7)
        done(peer.move("write", segment, index, 0, remote + 1, 20000), 20000)
        done(peer.move("read", segment, index, 20000, remote + 1, 20000), 20000)
        peer.ask("check", index, 20000, 20000, 7)
        memory[100:100 + length] = memory[1:1 + length]
        done(peer.move("read", segment, index, 40000, remote + 100, length), length)
        peer.ask("check", index, 40000, length, 7)


def read_http(stream):
    """One request or answer, as it is."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise EOFError(head)
        head += line
    length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return head + stream.read(length[0] if length else 0)
