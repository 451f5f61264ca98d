# SPDX-License-Identifier: Apache-2.0
"""What the tests share."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = "127.0.0.1"
HANG_S = 240  # of what never comes: no outcome depends on it
TCP = {
    "MC_FORCE_TCP": "1"
}  # not the way through the kernel, which needs no help of the other process


def until(condition):
    """What the condition gives, once that is true."""
    end = time.monotonic() + HANG_S
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {HANG_S} s")
        time.sleep(0.001)


def state_of(task, pid="self"):
    """What a thread does, in the kernel's letter."""
    with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as f:
        return f.read().rpartition(")")[2].split()[0]


def is_in(thread, function):
    """Whether the thread is in a function of that name, or in what that has called."""
    frame = sys._current_frames().get(thread)
    while frame and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def signal_in_a_call(engine, number):
    """Sends this thread the signal once it waits for a request that the engine was given."""
    main = threading.get_ident()

    def send():
        until(lambda: engine.stats()["requests_submitted"] and is_in(main, "wait"))
        signal.pthread_kill(main, number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


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
        until(lambda: self.states() == {"T"})

    def states(self):
        """What its threads do."""
        pid = self.process.pid
        return {state_of(task, pid) for task in os.listdir(f"/proc/{pid}/task")}

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(HANG_S)

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
