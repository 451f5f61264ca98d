#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mooncake's engine in a process of its own, told what to do line by line; run by a Python that has its wheel.

Each line of stdin is one JSON object, {"op": ..., ...}, and is answered by one line of stdout with one,
{"rc": ..., ...}: 0 or what the engine returned. An exception is {"rc": null, "error": text}. The program
`ours` speaks the same lines over our engine. Environment variables choose all that the lines do not.

  init        name, metadata [, protocol, device]  -> segment, port
  register    size [, seed, count, align]          -> addr; in `count` adjacent buffers, filled if a seed is given
  unregister  addr [, count, size]                 what register made
  fill, check addr, size, seed [, offset]          check: -> at, of the first byte that differs
  read, write target, local, remote, length [, notify: [name, msg]]
  batch_read, batch_write  target, local: [..], remote: [..], length: [..]
  polled_write  target, local, remote, length      -> polls: submit, then ask until it has ended
  notifies                                         -> list of [name, msg]
  probe       target
  first_buffer target                              -> addr, 0 for none
  version                                          -> version
  exit                                             ends as a program ends; end of input does the same

The bytes of a seed are those of random.Random(seed).randbytes() of a multiple of four.
"""
import ctypes
import importlib.metadata
import json
import mmap
import os
import random
import sys
import time

POLL_SECONDS = 60
WHEELS = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")


def stream(seed, size, offset=0):
    """Bytes offset .. offset + size of the stream of a seed."""
    return random.Random(seed).randbytes((offset + size + 3) // 4 * 4)[offset:offset + size]


class Peer:
    """The engine and its memory."""

    def __init__(self):
        from mooncake import engine  # pylint: disable=import-outside-toplevel,import-error
        self.module = engine
        self.engine = engine.TransferEngine()
        self.maps = []

    # ---- The engine --------------------------------------------------------------------------------

    def init(self, name, metadata, protocol="tcp", device=""):
        rc = self.engine.initialize(name, metadata, protocol, device)
        if rc:
            return {"rc": rc}
        port = self.engine.get_rpc_port()
        if metadata != "P2PHANDSHAKE":
            return {"rc": 0, "segment": name, "port": port}
        host = name if name.endswith("]") or ":" not in name else name.rpartition(":")[0]
        return {"rc": 0, "segment": f"{host}:{port}", "port": port}

    def version(self):
        for wheel in WHEELS:
            try:
                return {"rc": 0, "version": importlib.metadata.version(wheel), "wheel": wheel}
            except importlib.metadata.PackageNotFoundError:
                pass
        return {"rc": -1}

    # ---- Memory ------------------------------------------------------------------------------------

    def register(self, size, seed=None, count=1, align=0):
        """`align` is how many bytes after a page's beginning the memory begins."""
        memory = mmap.mmap(-1, size * count + align)
        self.maps.append(memory)
        addr = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + align
        if count == 1:
            rc = self.engine.register_memory(addr, size)
        else:
            rc = self.engine.batch_register_memory([addr + i * size for i in range(count)], [size] * count)
        if seed is not None:
            self.fill(addr, size * count, seed)
        return {"rc": rc, "addr": addr}

    def unregister(self, addr, count=1, size=0):
        if count == 1:
            return {"rc": self.engine.unregister_memory(addr)}
        return {"rc": self.engine.batch_unregister_memory([addr + i * size for i in range(count)])}

    def fill(self, addr, size, seed, offset=0):
        ctypes.memmove(addr, stream(seed, size, offset), size)
        return {"rc": 0}

    def check(self, addr, size, seed, offset=0):
        have, want = ctypes.string_at(addr, size), stream(seed, size, offset)
        if have == want:
            return {"rc": 0}
        return {"rc": -1, "at": next(i for i in range(size) if have[i] != want[i])}

    # ---- Transfers ---------------------------------------------------------------------------------

    def move(self, opcode, target, local, remote, length, notify):
        note = self.module.TransferNotify(*notify) if notify else None
        return {"rc": self.engine.transfer_sync(target, local, remote, length, opcode, note)}

    def read(self, target, local, remote, length, notify=None):
        return self.move(self.module.TransferOpcode.Read, target, local, remote, length, notify)

    def write(self, target, local, remote, length, notify=None):
        return self.move(self.module.TransferOpcode.Write, target, local, remote, length, notify)

    def batch_read(self, target, local, remote, length):
        return {"rc": self.engine.batch_transfer_sync_read(target, local, remote, length)}

    def batch_write(self, target, local, remote, length):
        return {"rc": self.engine.batch_transfer_sync_write(target, local, remote, length)}

    def polled_write(self, target, local, remote, length):
        batch = self.engine.transfer_submit_write(target, local, remote, length)
        if batch in (0, -1):
            return {"rc": -1, "polls": 0}
        end = time.monotonic() + POLL_SECONDS
        polls = 0
        while time.monotonic() < end:
            polls += 1
            got = self.engine.transfer_check_status(batch)
            if got:
                return {"rc": 0 if got == 1 else got, "polls": polls}
        return {"rc": -400, "polls": polls}

    # ---- Control -----------------------------------------------------------------------------------

    def notifies(self):
        return {"rc": 0, "list": [[n.name, n.msg] for n in self.engine.get_notifies()]}

    def probe(self, target):
        return {"rc": self.engine.send_probe(target)}

    def first_buffer(self, target):
        return {"rc": 0, "addr": self.engine.get_first_buffer_address(target)}


OPS = ("init", "version", "register", "unregister", "fill", "check", "read", "write", "batch_read",
       "batch_write", "polled_write", "notifies", "probe", "first_buffer")


def obey(peer, line):
    try:
        words = json.loads(line)
        op = words.pop("op")
        if op not in OPS:
            return {"rc": None, "error": f"no such op: {op}"}
        return getattr(peer, op)(**words)
    except Exception as e:  # pylint: disable=broad-except
        return {"rc": None, "error": f"{type(e).__name__}: {e}"}


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what the engine itself prints is no answer
    peer = Peer()
    print(json.dumps({"rc": 0, "ready": True}), file=answers)
    for line in sys.stdin:
        if '"exit"' in line and json.loads(line).get("op") == "exit":
            break
        print(json.dumps(obey(peer, line)), file=answers)


if __name__ == "__main__":
    main()
