#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=240
"""
Faults of NICs, ports, paths and processes, each made in a stream of requests between two processes.

Without arguments, a part of the cases, and the check that docs/failure-model.md tells of all of them.
    --full          all cases
    --only WORDS    the cases whose title has all these words
    --markdown      all cases, and then the table of docs/failure-model.md as it was measured
    --gbps N        of each of the four NICs of either side
What is asserted of times is far more than what is expected, since the machine may be busy.
"""
import dataclasses
import os
import signal
import sys
import time
import unittest

import te_proc as te
import te_rdma as rdma

DOC = os.path.join(te.SRC, "docs", "failure-model.md")
COLUMNS = ("Fault", "When", "Side", "Direction", "What the user sees", "Longest stall", "Recovery")
WARM_S = 0.35 * te.SLOW  # of stream before the fault
LEARN_S = 0.15 * te.SLOW  # of it that does not count for the rate
LOG_MAX = 40  # lines of WARN and ERROR of one process in one case
LOOSE = 3 * te.SLOW  # times what is expected
LINK, PEER, TIMEOUT, CONTEXT, STALE, INVALID = -405, -406, -400, -202, -407, -1
arguments = {"full": False, "only": [], "markdown": False, "gbps": 0.8}
measured = {}  # title of a case: (longest stall in ms, how it recovered)


@dataclasses.dataclass
class Case:
    """What is done: `steps`, each (seconds after the one before, command of softverbs_ctl or a callable of the
    pair); {n} is a NIC of the side that fails, {m} another one, {o} and {p} those of the other side with
    the same numbers. What is seen: `sees`, at most `stall_ms`, and the old rate `back_ms` after the last step
    if that is not None."""
    fault: str
    when: str
    side: str
    direction: str
    steps: list
    sees: str = "nothing: requests take other NICs"
    stall_ms: float = 300
    back_ms: float = None
    fails: bool = False  # requests may fail, with a code that is one of
    codes: tuple = ()
    after: float = 0.5  # seconds of stream after the last step
    share: float = 0.95  # of the old rate that comes back
    quick: bool = False  # runs without --full, too
    options: tuple = ()
    check: object = None  # called with the test, the pair and the stream
    keys: dict = dataclasses.field(default_factory=dict)  # of the fabric's NICs

    @property
    def title(self):
        return ", ".join((self.fault, self.when, self.side, self.direction))


# ---- The cases -------------------------------------------------------------------------------------

SIDES = ("initiator", "target")
READ, WRITE = "READ", "WRITE"
cases = []


def both(fault, when, steps, quick=(), sides=SIDES, directions=(READ, WRITE), **more):
    """A case for each side and direction; `quick` names those that always run, as "initiator READ"."""
    for side in sides:
        for direction in directions:
            own = dict(more)
            for key in ("stall_ms", "sees", "back_ms"):
                if isinstance(own.get(key), dict):
                    own[key] = own[key][side]
            cases.append(Case(fault, when, side, direction, steps, quick=f"{side} {direction}" in quick, **own))


def kill_target(pair):
    pair.target.kill()


def restart_target(pair):
    pair.start_target()
    pair.open()


def stop_target(pair):
    os.kill(pair.target.pid, signal.SIGSTOP)


def go_on_target(pair):
    os.kill(pair.target.pid, signal.SIGCONT)


MID, BEFORE, AGAIN = "in mid-transfer", "before the first request", "while another is handled"
PORT_MS = {"initiator": 50, "target": 300}
WAITS = "nothing: requests wait for as long as it lasts"

both("port down", BEFORE, [(0, "port {n} down")], ("initiator READ",))
both("port down", MID, [(0, "port {n} down")], ("initiator READ", "target WRITE"), stall_ms=PORT_MS)
both("port down", AGAIN, [(0, "port {n} down"), (0.02, "port {m} down")], ("initiator WRITE", "target READ"),
     stall_ms={"initiator": 100, "target": 600})
both("port down and up", MID, [(0, "port {n} down"), (0.3, "port {n} up")], ("initiator WRITE", "target READ"),
     stall_ms=PORT_MS, back_ms=1000, after=1.3)
both("port down and up, five times", MID, [(0.05, f"port {{n}} {state}") for state in ("down", "up") * 5],
     ("initiator READ",), stall_ms=PORT_MS, back_ms=1000, after=1.3)
both("silent port: no completion, no event", MID, [(0, "stall {n} 1500")], ("initiator READ", "target WRITE"),
     stall_ms=600, after=1.2)
both("lost completions", MID, [(0, "drop {n} 3")], ("initiator READ",), sides=("initiator",), stall_ms=600,
     back_ms=1000, after=1.3)
both("device fatal", BEFORE, [(0, "kill {n}")], ("target WRITE",), sides=SIDES)
both("device fatal", MID, [(0, "kill {n}")], ("initiator READ", "target WRITE"), stall_ms=PORT_MS)
both("device fatal and revived", MID, [(0, "kill {n}"), (0.3, "revive {n}")], ("initiator WRITE", "target READ"),
     stall_ms=PORT_MS, back_ms=2000, after=2.3)
both("device fatal", AGAIN, [(0, "port {m} down"), (0.02, "kill {n}")], ("initiator READ",),
     stall_ms={"initiator": 100, "target": 600})
both("completion queue fails", MID, [(0, "cq_err {n}")], ("initiator WRITE", "target READ"), stall_ms=PORT_MS,
     back_ms=2000, after=2.3)
both("queue pairs fail", MID, [(0, "qp_fatal {n}")], ("initiator READ", "target WRITE"), stall_ms=PORT_MS,
     back_ms=1000, after=1.3)
for status in ("RETRY_EXC", "RNR_RETRY_EXC", "REM_OP", "WR_FLUSH", "FATAL", "GENERAL", "LOC_PROT", "LOC_QP_OP"):
    quick = {"RETRY_EXC": ("initiator READ",), "WR_FLUSH": ("initiator WRITE",), "LOC_PROT": ("initiator READ",),
             "REM_OP": ("initiator WRITE",)}
    both(f"one completion of {status}", MID, [(0, f"fail {{n}} nth=5 status={status}")], quick.get(status, ()),
         sides=("initiator",), stall_ms=50, back_ms=1000, after=1.3)
both("ten completions of RETRY_EXC", MID, [(0, "fail {n} nth=3 count=10 status=RETRY_EXC")], ("initiator WRITE",),
     sides=("initiator",), stall_ms=50, back_ms=2000, after=2.3)
for status in ("REM_ACCESS", "REM_INV_REQ"):
    both(f"one completion of {status}", MID, [(0, f"fail {{n}} nth=5 status={status}")],
         ("initiator READ",) if status == "REM_ACCESS" else (), sides=("initiator",), stall_ms=50, back_ms=1000,
         after=1.3, fails=True, codes=(STALE,),
         sees="the request fails, TE_ERR_STALE: the peer does not grant that memory; all others go on")
both("NIC slow, a quarter", MID, [(0, "slow {n} SLOW")], ("initiator READ",), stall_ms=100, after=0.8,
     sees="the rate that is left: the NIC gets a quarter of its share")
both("NIC slow, then as before", MID, [(0, "slow {n} SLOW"), (0.4, "slow {n} FULL")], ("target WRITE",),
     stall_ms=100, back_ms=1000, after=1.3, sees="the rate that is left: the NIC gets a quarter of its share")
both("all ports of a side down and up", MID, [(0, "port * down"), (1.0, "port * up")],
     ("initiator READ", "target WRITE"), stall_ms=1600, back_ms=1000, after=1.6, sees=WAITS)
both("all ports of a side down", MID, [(0, "port * down")], ("initiator WRITE", "target READ"), stall_ms=1e9,
     after=1.6, sees="requests end after TE_TRANSFER_TIMEOUT_MS without progress, TE_ERR_TIMEOUT or TE_ERR_LINK",
     options=("TE_TRANSFER_TIMEOUT_MS=1000",), fails=True, codes=(TIMEOUT, LINK, PEER))
both("two NICs cannot reach each other", MID, [(0, "block {n} {o}")], ("initiator READ",), sides=("initiator",),
     stall_ms=300, after=0.8)
both("two NICs cannot reach each other", BEFORE, [(0, "block {n} {o}")], ("initiator WRITE",), sides=("initiator",),
     stall_ms=300, after=0.8)
both("a NIC reaches no other", MID, [(0, f"block {{n}} b{i}") for i in range(4)], ("initiator WRITE",),
     sides=("initiator",), stall_ms=600, after=0.8)
both("GID changes", MID, [(0, "gid_change {n} 0 ::ffff:10.9.9.9")], ("initiator READ", "target WRITE"),
     stall_ms=300, back_ms=1000, after=1.3)
both("memory cannot be registered with a NIC", "at the start", [("start", "deny {n} reg_mr after=0")],
     ("initiator READ", "target WRITE"))
both("queue pairs cannot be made", BEFORE, [(0, "deny {n} create_qp after=0")], ("initiator READ", "target WRITE"),
     stall_ms=300, after=0.8)
both("target killed", MID, [(0, kill_target)], ("target READ", "target WRITE"), sides=("target",), fails=True,
     codes=(LINK, PEER, TIMEOUT, -102, -201), stall_ms=1e9, after=2.0,
     sees="requests fail, TE_ERR_LINK or TE_ERR_PEER")
both("target killed and restarted under its name", MID, [(0, kill_target), (0.5, restart_target)],
     ("target READ",), sides=("target",), fails=True,
     codes=(LINK, PEER, TIMEOUT, STALE, INVALID, -102, -200, -201), stall_ms=1e9, back_ms=2000, after=2.3,
     sees="requests fail, TE_ERR_LINK or TE_ERR_PEER, until it is back")
both("target stopped (SIGSTOP) for 2 s", MID, [(0, stop_target), (2.0, go_on_target)], (), sides=("target",),
     stall_ms=2600, back_ms=1000, after=1.6, sees="nothing: the target's CPU has no part in a transfer")


# ---- Running one -----------------------------------------------------------------------------------

class Run:
    """One case being run: the commands with their NICs filled in, and the times at which they were given."""

    def __init__(self, case, pair):
        self.case, self.pair = case, pair
        side = "ab"[SIDES.index(case.side)]
        other = "ba"[SIDES.index(case.side)]
        self.nics = pair.fabric.names[side]
        self.words = {"n": f"{side}1", "m": f"{side}2", "o": f"{other}1", "p": f"{other}2"}
        self.times = []

    def do(self, step):
        self.times.append(rdma.now())
        if callable(step):
            step(self.pair)
            return
        full = arguments["gbps"]
        command = step.format(**self.words).replace("SLOW", str(full / 4)).replace("FULL", str(full))
        for nic in self.nics if "*" in command else [""]:
            self.pair.fabric.control(command.replace("*", nic))

    def all(self):
        for seconds, step in self.case.steps:
            if seconds == "start":
                continue
            time.sleep(seconds)
            self.do(step)


def start(case):
    """The pair of a case, with what is to be wrong from the start."""
    early = [step for seconds, step in case.steps if seconds == "start"]

    def prepare(pair):
        run = Run(case, pair)
        for step in early:
            run.do(step)

    return rdma.Pair(case.options, gbps=arguments["gbps"], prepare=prepare, **case.keys)


def stream(case, pair):
    """(Run, Stream, begin of the stream, end of it, requests with wrong bytes)"""
    run = Run(case, pair)
    early = case.when != MID and case.when != AGAIN
    pair.open()
    if early:
        run.all()
    begun = rdma.now()
    pair.begin(case.direction)
    time.sleep(WARM_S)
    if not early:
        run.all()
    time.sleep(case.after * te.SLOW)
    end = rdma.now()
    done, wrong = pair.end()
    return run, done, begun, end, wrong


class Faults(unittest.TestCase):
    def check_failures(self, case, done):
        if not case.fails:
            self.assertEqual([r.text for r in done.bad[:3]], [], f"{len(done.bad)} of {len(done.requests)} failed")
        for r in done.bad:
            self.assertIn(r.error, case.codes, r.text)
            self.assertNotEqual(r.text, "", r.error)

    def check_logs(self, pair):
        for peer in (pair.initiator, pair.target):
            lines = peer.warnings()
            self.assertLessEqual(len(lines), LOG_MAX, "\n".join(lines))

    def check_rate(self, case, done, run, before):
        back = done.back_ms(run.times[-1], before * case.share)
        told = "not needed" if case.back_ms is None else "none" if back is None else f"{back:.0f} ms"
        if case.back_ms is not None:
            limit = case.back_ms * LOOSE
            again = done.back_ms(run.times[-1], before * case.share * 0.8)
            self.assertIsNotNone(again, f"{before / 1e6:.0f} MB/s before, "
                                 f"{done.rate(run.times[-1] + 10**9, run.times[-1] + 2 * 10**9) / 1e6:.0f} after")
            self.assertLessEqual(again, limit)
        return told

    def run_case(self, case):
        with start(case) as pair:
            run, done, begun, end, wrong = stream(case, pair)
            early = not run.times or run.times[0] < begun
            first = begun if early else run.times[0]
            before = done.rate(begun + int(LEARN_S * 1e9), begun + int(WARM_S * 1e9))
            stall = done.stall_ms(first, end)
            told = "not needed" if early else self.check_rate(case, done, run, before)
            row = (f"{case.title}: stall {stall:.1f} ms, longest request {done.longest_ms(first, end):.1f} ms, "
                   f"{before / 1e6:.0f} MB/s before, {done.rate(end - 3 * 10**8, end) / 1e6:.0f} at the end, "
                   f"back {told}, {len(done.bad)} failed, "
                   f"{len(pair.initiator.warnings())}+{len(pair.target.warnings())} warnings")
            print(row, flush=True)
            measured[case.title] = (stall, told)
            self.assertEqual(wrong, 0, "wrong bytes")
            self.check_failures(case, done)
            self.assertLessEqual(stall, case.stall_ms * LOOSE)
            self.check_logs(pair)
            self.assertEqual(pair.leaks(), [])

    def one(self, case):
        try:
            self.run_case(case)
        except AssertionError as e:
            raise AssertionError(f"{case.title}: {e}") from None


def add_tests():
    for i, case in enumerate(cases):
        everything = arguments["full"] or arguments["markdown"] or arguments["only"]
        if not (case.quick or everything) or not all(w in case.title for w in arguments["only"]):
            continue

        def test(self, case=case):
            self.one(case)
        test.__doc__ = case.title
        setattr(Faults, f"test_{i:03}", test)


if __name__ == "__main__":
    while len(sys.argv) > 1:
        word = sys.argv.pop(1)
        if word in ("--full", "--markdown"):
            arguments[word[2:]] = True
        elif word == "--only":
            arguments["only"] = sys.argv[1:]
            del sys.argv[1:]
        elif word == "--gbps":
            arguments["gbps"] = float(sys.argv.pop(1))
        else:
            sys.exit(__doc__)
    add_tests()
    te.main()
