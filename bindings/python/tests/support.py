# SPDX-License-Identifier: Apache-2.0
"""What the tests share."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = "127.0.0.1"
TCP = {
    "MC_FORCE_TCP": "1"
}  # not the way through the kernel, which needs no help of the other process


class RemotePeer:
    """peer.py as a process: a call of a method here is one there."""

    def __init__(self, **arguments):
        arguments.setdefault("name", HOST)
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "peer.py"), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __getattr__(self, method):
        def call(**arguments):
            print(json.dumps({"call": method, **arguments}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the peer has ended")
            return json.loads(line)

        return call

    def freeze(self):
        """Stops every thread of the process, and returns when all have stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        tasks = f"/proc/{self.process.pid}/task"
        for _ in range(2000):
            states = set()
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/stat", encoding="ascii") as f:
                    states.add(f.read().rpartition(")")[2].split()[0])
            if states == {"T"}:
                return
            time.sleep(0.001)
        raise RuntimeError("the peer does not stop")

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)

    def kill(self):
        self.process.kill()
        self.stop()


class Case(unittest.TestCase):
    def peer(self, **arguments):
        peer = RemotePeer(**arguments)
        self.addCleanup(lambda: peer.process.returncode is None and peer.kill())
        return peer

    def assertSameBytes(self, one, other):
        self.assertEqual(len(one), len(other))
        if bytes(one) != bytes(other):
            at = next(i for i, (a, b) in enumerate(zip(bytes(one), bytes(other))) if a != b)
            self.fail(f"the bytes differ from offset {at} on")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def pieces(seed, total, most, n):
    """n random (local offset, remote offset, length), not overlapping on the remote side."""
    rng = random.Random(seed)
    room = total // n
    return [
        (
            rng.randrange(total - most),
            i * room + rng.randrange(room // 4),
            rng.randrange(1, room // 2),
        )
        for i in range(n)
    ]
