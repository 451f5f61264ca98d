# SPDX-License-Identifier: Apache-2.0
"""Two engines with RDMA in guests, and a stream of requests between the two, each of which is compared byte by byte.

The program is tests/integration/rdma_peer.c; what a stream did is read as tests/integration/te_rdma.py does.
"""
import os
import sys
import time

import te_lab

sys.path.insert(0, os.path.join(te_lab.SOURCE, "tests", "integration"))
import te_proc  # pylint: disable=wrong-import-position
import te_rdma  # pylint: disable=wrong-import-position

LENGTH = 256 << 10
INFLIGHT = 4
MEMORY = 2 * LENGTH * 32  # of which half is read from and half is written to
TIMEOUT, LINK, PEER, STALE = -400, -405, -406, -407
SOCKET, METADATA, NOT_YET, INVALID = -102, -200, -404, -1
GONE = (LINK, PEER, SOCKET, METADATA, NOT_YET, INVALID, STALE)  # what a peer that died may look like


class Pair:
    """A target and an initiator, each in a guest and with some of its NICs. In one guest they share memory, and READ
    and WRITE are compared; in two, the initiator knows what READ has to bring."""

    def __init__(self, machine, target, initiator, options=()):
        self.machine, self.options = machine, options
        self.program = machine.share(te_proc.compile_program(
            os.path.join(te_lab.SOURCE, "tests", "integration", "rdma_peer.c"), "rdma_peer"))
        self.target_guest, self.target_nics = target
        self.initiator_guest, self.initiator_nics = initiator
        self.name = self.target_guest.ip(self.target_nics[0]) + ":15900"
        self.memory = f"/dev/shm/te-{machine.next_name()}"
        self.report = f"report.{machine.next_name()}"
        for guest in {self.target_guest, self.initiator_guest}:
            self.make_memory(guest)
        self.target = self.initiator = None
        self.start_target()
        self.initiator = self.start(self.initiator_guest, self.initiator_nics,
                                    self.initiator_guest.ip(self.initiator_nics[0]))
        self.apart = self.target_guest is not self.initiator_guest
        if self.apart:
            self.initiator.ask("fill")
        self.open()

    def make_memory(self, guest):
        guest.run(f"truncate -s {MEMORY} {self.memory}")

    def start(self, guest, nics, name):
        names = ",".join(f"rxe{nic}" for nic in nics)
        peer = guest.start_job(f"exec {self.program} P2PHANDSHAKE {name} {self.memory} TE_HOST_PATH=0 "
                               f"MC_TE_FILTERS={names} {' '.join(self.options)}", talk=True)
        ready = peer.wait_line(r"^ready (\S+) (\d+)$")
        peer.answered = 1
        peer.where = ready.groups()
        return peer

    def start_target(self):
        self.target = self.start(self.target_guest, self.target_nics, self.name)
        self.target.ask("target")

    def open(self):
        self.initiator.ask("open", *self.target.where)

    def begin(self, direction):
        assert direction == "read" or not self.apart, "what a WRITE left in another guest is not compared"
        self.initiator.ask("stream", direction, LENGTH, INFLIGHT, f"/run/lab/{self.report}")
        self.wait_more(8, 30)

    def so_far(self):
        path = os.path.join(self.machine.folder, self.report)
        return te_rdma.Stream(te_rdma.read_report(path) if os.path.exists(path) else [], LENGTH)

    def wait_more(self, n, timeout, what="requests to go well again"):
        """Until so many more requests have gone well; how long that took."""
        begun, before = time.monotonic(), len(self.so_far().good)
        te_lab.wait_until(what, lambda: self.initiator.guest.check() or len(self.so_far().good) >= before + n, timeout)
        return time.monotonic() - begun

    def end(self, codes=()):
        """The stream, once it has ended; no byte was wrong, and requests failed only with such codes."""
        wrong = int(self.initiator.ask("stop", timeout=60)[2])
        stream = self.so_far()
        assert wrong == 0, f"{wrong} requests brought wrong bytes"
        others = [f"{r.error} {r.text}" for r in stream.bad if r.error not in codes]
        assert not others, f"{len(others)} of {len(stream.requests)} requests failed: {others[0]}\n{self.initiator}"
        return stream

    def close(self):
        for peer in (self.initiator, self.target):
            if peer.guest.alive():
                peer.ask("close")
                peer.kill()
        self.initiator_guest.run(f"rm -f {self.memory}")
