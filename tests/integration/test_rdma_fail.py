#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""
Faults of NICs, ports, paths and processes, each made in a stream of requests between two processes.

Without arguments, a part of the cases, by what becomes of requests and in which order, and the check that
docs/failure-model.md tells of all of them. With any, times are looked at, too: on a machine of one's own.
    --full          all cases
    --only WORD...  the cases whose title has all these words
    --markdown      all cases, and then the table of docs/failure-model.md as it was measured
    --gbps N        of each of the four NICs of either side
What is asserted of times is far more than what is expected.
"""
import dataclasses
import os
import re
import signal
import sys
import time
import unittest

import te_proc as te
import te_rdma as rdma

DOC = os.path.join(te.SRC, "docs", "failure-model.md")
COLUMNS = ("Fault", "When", "Side", "Direction", "What the user sees", "Nothing for", "Longest request", "Recovery")
WARM_S = 0.3 * te.SLOW  # of stream before the fault,
LEARN_S = 0.1 * te.SLOW  # of which so much does not count for the rate
LOG_MAX = 40 * te.SLOW  # lines of WARN and ERROR of one process in one case
LOOSE = 3 * te.SLOW  # times what is expected
ROUGH = 0.8  # of the rate that is expected
TIMEOUT, LINK, PEER, STALE = -400, -405, -406, -407
INVALID, SOCKET, METADATA, NO_RDMA_YET = -1, -102, -200, -404
MORE = 32  # requests that go well
arguments = {"full": False, "only": [], "markdown": False, "gbps": 0.8 / te.SLOW, "times": False}
measured = {}  # title of a case: the last three columns


@dataclasses.dataclass
class Case:
    """`steps` are done, each (seconds after the one before, command of softverbs_ctl or a callable of the pair).
    {n} is a NIC of the side that fails, {m} another one, * all of them; {o} the NIC of the other side with the
    number of {n}; SLOW and FULL are rates. The user sees `sees`; no request takes longer than `stall_ms`; the
    old rate is back `back_ms` after the last step."""
    fault: str
    when: str
    side: str
    direction: str
    steps: list
    sees: str = "nothing: other NICs carry the requests"
    stall_ms: float = 300
    back_ms: float = None  # None: it is not to come back
    codes: tuple = ()  # with which requests may fail
    refuses: str = None  # what registering memory fails with
    after: float = 0.3  # seconds of stream after the last step, at least
    quick: bool = False  # runs without --full, too
    options: tuple = ()

    @property
    def key(self):
        return (self.fault, self.when, self.side, self.direction)

    @property
    def title(self):
        return ", ".join(self.key)


# ---- The cases -------------------------------------------------------------------------------------

SIDES = ("initiator", "target")
READ, WRITE = "READ", "WRITE"
cases = []


def add(fault, when, steps, quick=(), sides=SIDES, **more):
    """A case for each side and direction; `quick` names those that always run, as "initiator READ". Values
    that are a dict are by side."""
    for side in sides:
        own = {k: v[side] if isinstance(v, dict) else v for k, v in more.items()}
        for direction in (READ, WRITE):
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


START, BEFORE, MID, AGAIN = "from the start", "before the first request", "in mid-transfer", "after another fault"
PORT_MS = {"initiator": 50, "target": 300}  # with time to hear of it; with none
TWICE_MS = {"initiator": 100, "target": 600}
WAITS = "nothing: requests wait for as long as it lasts"
QUARTER = "less: the NIC carries a quarter of its share"

add("port down", BEFORE, [(0, "port {n} down")])
add("port down", MID, [(0, "port {n} down")], ("initiator READ", "target WRITE"), stall_ms=PORT_MS)
add("port down", AGAIN, [(0, "port {n} down"), (0.02, "port {m} down")], ("initiator WRITE", "target READ"),
    stall_ms=TWICE_MS)
add("port down and up", MID, [(0, "port {n} down"), (0.3, "port {n} up")], ("initiator WRITE", "target READ"),
    stall_ms=PORT_MS, back_ms=1000)
add("port down for 5 s and up", MID, [(0, "port {n} down"), (5, "port {n} up")], stall_ms=PORT_MS, back_ms=1000)
add("port down and up, five times", MID, [(0.05, f"port {{n}} {state}") for state in ("down", "up") * 5],
    ("target WRITE",), stall_ms=TWICE_MS, back_ms=1000)
add("all ports down and up", MID, [(0, "port * down"), (1, "port * up")], ("target WRITE",),
    stall_ms=2000, back_ms=1000, sees=WAITS)
add("all ports down for 5 s and up", MID, [(0, "port * down"), (5, "port * up")], stall_ms=6000, back_ms=1000,
    sees=WAITS)
add("all ports down for longer than TE_TRANSFER_TIMEOUT_MS", MID, [(0, "port * down")], ("initiator READ",),
    stall_ms=1500, after=1.5, options=("TE_TRANSFER_TIMEOUT_MS=1000",), codes=(TIMEOUT, LINK),
    sees="requests fail: TE_ERR_TIMEOUT")
add("port is silent: no event, no completion", MID, [(0, "stall {n} 600000")], ("target WRITE",), stall_ms=600,
    after=0.8)
add("port is silent: no event, no completion", AGAIN, [(0, "port {m} down"), (0.05, "stall {n} 600000")],
    stall_ms=900, after=0.8)
add("three completions are lost", MID, [(0, "drop {n} 3")], ("initiator WRITE",), ("initiator",), stall_ms=800,
    back_ms=1000)
add("device fails", BEFORE, [(0, "kill {n}")])
add("device fails", MID, [(0, "kill {n}")], ("target WRITE",), stall_ms=PORT_MS)
add("device fails", AGAIN, [(0, "port {m} down"), (0.02, "kill {n}")], stall_ms=TWICE_MS)
add("device fails and is revived", MID, [(0, "kill {n}"), (0.2, "revive {n}")], ("initiator WRITE", "target READ"),
    stall_ms=PORT_MS, back_ms=1500)
add("completion queue fails", MID, [(0, "cq_err {n}")], ("initiator WRITE",), stall_ms=PORT_MS, back_ms=1500)
add("queue pairs fail", MID, [(0, "qp_fatal {n}")], ("target READ",), stall_ms=PORT_MS, back_ms=1000)
for error, runs in (("RETRY_EXC", "initiator READ"), ("RNR_RETRY_EXC", ""), ("REM_OP", ""), ("FATAL", ""),
                    ("WR_FLUSH", ""), ("LOC_PROT", "initiator READ"), ("LOC_QP_OP", ""), ("GENERAL", "")):
    add(f"a completion tells {error}", MID, [(0, f"fail {{n}} nth=5 status={error}")], (runs,), ("initiator",),
        stall_ms=50, back_ms=1000)
add("a completion tells RETRY_EXC", AGAIN, [(0, "port {m} down"), (0.02, "fail {n} nth=2 status=RETRY_EXC")], (),
    ("initiator",), stall_ms=100)
add("four completions in a row tell RETRY_EXC", MID, [(0, "fail {n} nth=3 count=4 status=RETRY_EXC")], (),
    ("initiator",), stall_ms=100, back_ms=3000)
for error, runs in (("REM_ACCESS", "initiator WRITE"), ("REM_INV_REQ", "")):
    add(f"a completion tells {error}", MID, [(0, f"fail {{n}} nth=5 status={error}")], (runs,), ("initiator",),
        stall_ms=50, back_ms=1000, codes=(STALE,),
        sees="that request fails: TE_ERR_STALE; others are not touched")
add("NIC four times as slow", MID, [(0, "slow {n} SLOW")], stall_ms=150, after=0.8, sees=QUARTER)
add("NIC four times as slow, and as before", MID, [(0, "slow {n} SLOW"), (0.4, "slow {n} FULL")], ("target WRITE",),
    stall_ms=150, back_ms=1000, sees=QUARTER)
add("a pair of NICs is cut off", BEFORE, [(0, "block {n} {o}")], (), ("initiator",))
add("a pair of NICs is cut off", MID, [(0, "block {n} {o}")], ("initiator READ",), ("initiator",))
add("NIC cut off from all of the other side", MID, [(0, f"block {{n}} b{i}") for i in range(rdma.NICS)],
    ("initiator WRITE",), ("initiator",), stall_ms=600, after=0.6)
add("GID changes", MID, [(0, "gid_change {n} 0 ::ffff:10.9.9.9")], ("initiator READ",), back_ms=1000)
add("no queue pair can be made", BEFORE, [(0, "deny {n} create_qp")], ("target WRITE",), after=0.6)
add("memory cannot be registered", START, [(0, "deny {n} reg_mr")], ("initiator READ", "target WRITE"),
    refuses="TE_ERR_MEMORY|does not register", sees="te_register() fails: TE_ERR_MEMORY, with the NIC and the remedy")
add("process killed", MID, [(0, kill_target)], ("target READ",), ("target",), codes=(LINK, PEER, SOCKET), after=2,
    stall_ms=2000, sees="requests fail: TE_ERR_LINK, TE_ERR_PEER")
add("process killed, and started again under its name", MID, [(0, kill_target), (0.5, restart_target)],
    ("target WRITE",), ("target",), codes=(LINK, PEER, SOCKET, METADATA, STALE, INVALID, NO_RDMA_YET), stall_ms=2000,
    back_ms=2000, sees="requests fail until it is back: TE_ERR_LINK, TE_ERR_PEER")
add("process stopped for 2 s", MID, [(0, stop_target), (2, go_on_target)], (), ("target",), stall_ms=50, back_ms=1000,
    sees="nothing: the CPUs of the target have no part in a transfer")


# ---- Running one -----------------------------------------------------------------------------------

class Run:
    """A case on its pair of processes."""

    def __init__(self, case, pair):
        self.case, self.pair = case, pair
        side, other = "ab" if case.side == SIDES[0] else "ba"
        self.nics = pair.fabric.names[side]
        self.words = {"n": f"{side}1", "m": f"{side}2", "o": f"{other}1"}
        self.times = []  # of the steps

    def do(self, step):
        self.times.append(rdma.now())
        if callable(step):
            step(self.pair)
            return
        full = arguments["gbps"]
        command = step.format(**self.words).replace("SLOW", str(full / 4)).replace("FULL", str(full))
        for nic in self.nics if "*" in command else [""]:
            self.pair.fabric.control(command.replace("*", nic))

    def steps(self, *whens):
        for seconds, step in self.case.steps if self.case.when in whens else ():
            time.sleep(seconds)
            self.do(step)

    def back_ms(self, share=1.0):
        done = self.done or self.pair.so_far()
        return done.back_ms(self.times[-1], self.before * 0.95 * share)

    def more(self, what):
        """Until more requests have gone well."""
        wanted = len(self.pair.so_far().good) + MORE
        te.until(lambda: len(self.pair.so_far().good) >= wanted, f"{MORE} more requests that go well, {what}")

    def wait_states(self):
        """Until what is to be seen has happened, however long that takes."""
        if self.case.codes and not self.case.back_ms:
            te.until(lambda: self.pair.so_far().bad, "a request that fails")
            return
        self.more("after the last step")
        if self.case.back_ms and self.case.side == SIDES[0]:
            nic, before = self.words["n"], self.pair.fabric.stats()
            te.until(lambda: self.pair.fabric.stats()[nic]["bytes"] > before[nic]["bytes"] + 4 * self.pair.length,
                     f"{nic} to carry again")

    def wait(self):
        """Until what is to be seen can be seen."""
        if not arguments["times"]:
            self.wait_states()
            return
        time.sleep(self.case.after * te.SLOW)
        end = self.times[-1] + int((self.case.back_ms or 0) * LOOSE * 1e6)
        while self.case.back_ms and rdma.now() < end and self.back_ms() is None:
            time.sleep(0.1)

    def all(self):
        self.done = None
        self.steps(START)
        self.pair.open()
        self.steps(BEFORE)
        self.begun = rdma.now()
        self.pair.begin(self.case.direction)
        self.more("before the fault")
        if arguments["times"]:
            time.sleep(WARM_S)
        warm = rdma.now()
        self.before = self.pair.so_far().rate(self.begun + int(LEARN_S * 1e9), warm)
        self.steps(MID, AGAIN)
        self.wait()
        self.end = rdma.now()
        self.done, self.wrong = self.pair.end()
        self.fault = self.times[0] if self.case.when in (MID, AGAIN) else self.begun


class Faults(unittest.TestCase):
    def check_failures(self, case, run):
        for r in run.done.bad:
            self.assertIn(r.error, case.codes, f"{len(run.done.bad)} requests failed, one with: {r.text}")
            self.assertNotEqual(r.text, "", r.error)

    def check_back(self, case, run):
        if case.back_ms is None:
            return
        back = run.back_ms(ROUGH)
        self.assertIsNotNone(back, f"{run.before / 1e6:.0f} MB/s before, "
                             f"{run.done.rate(run.end - 2 * 10**8, run.end) / 1e6:.0f} at the end")
        self.assertLessEqual(back, case.back_ms * LOOSE)

    def note(self, case, run):
        """The figures of a case, as they go into the table."""
        back = run.back_ms() if case.back_ms else None
        nothing, longest = (f(run.fault, run.end) for f in (run.done.stall_ms, run.done.longest_ms))
        told = "full rate not awaited" if not case.back_ms else "not seen" if back is None else \
            f"full rate after {back:.0f} ms"
        measured[case.key] = (f"{nothing:.0f} ms", f"{longest:.0f} ms", told)
        print(f"{case.title}: nothing for {nothing:.1f} ms, longest request {longest:.1f} ms, {told}, "
              f"{run.before / 1e6:.0f} MB/s before, {run.done.rate(run.end - 2 * 10**8, run.end) / 1e6:.0f} at the "
              f"end, {len(run.done.bad)} of {len(run.done.requests)} failed, "
              f"{len(run.pair.initiator.warnings())} and {len(run.pair.target.warnings())} warnings", flush=True)
        return longest

    def check_logs(self, pair):
        for peer in (pair.initiator, pair.target):
            lines = peer.warnings()
            self.assertLessEqual(len(lines), LOG_MAX, "\n".join(lines))

    def transfer(self, case, pair):
        run = Run(case, pair)
        run.all()
        longest = self.note(case, run)
        self.assertEqual(run.wrong, 0, "wrong bytes")
        self.check_failures(case, run)
        self.assertGreater(len(run.done.good), 0)
        if not arguments["times"]:
            return
        self.check_back(case, run)
        usual = run.done.longest_ms(run.begun, run.fault) if run.fault > run.begun else 0
        self.assertLessEqual(longest, (case.stall_ms + usual) * LOOSE)

    def refused(self, case, pair):
        run = Run(case, pair)
        run.steps(START)
        with self.assertRaisesRegex(AssertionError, case.refuses):
            pair.open()
        measured[case.key] = ("-", "-", "registered again later")
        pair.fabric.control(run.words["n"].join(("allow ", " reg_mr")))
        pair.open()

    def run_case(self, case):
        with rdma.Pair(case.options, gbps=arguments["gbps"]) as pair:
            (self.refused if case.refuses else self.transfer)(case, pair)
            self.check_logs(pair)
            self.assertEqual(pair.leaks(), [])

    def one(self, case):
        try:
            self.run_case(case)
        except AssertionError as e:
            raise AssertionError(f"{case.title}: {e}") from None


# ---- The table -------------------------------------------------------------------------------------

def row(words):
    return "| " + " | ".join(words) + " |"


def table():
    rows = [row([*c.key, c.sees, *measured.get(c.key, ("failed", "", ""))]) for c in cases]
    return "\n".join([row(COLUMNS), row(["---"] * len(COLUMNS)), *rows])


class Document(unittest.TestCase):
    def test_its_rows_are_the_cases(self):
        with open(DOC, encoding="utf-8") as f:
            rows = [[w.strip() for w in line.split("|")[1:-1]] for line in f if line.startswith("|")]
        at = rows.index(list(COLUMNS))
        told = [tuple(words[:5]) for words in rows[at + 2:at + 2 + len(cases)]]
        self.assertEqual(told, [(*c.key, c.sees) for c in cases])


def add_tests():
    everything = arguments["full"] or arguments["markdown"] or arguments["only"]
    for i, case in enumerate(cases):
        if not (case.quick or everything) or not all(w in case.title for w in arguments["only"]):
            continue

        def test(self, case=case):
            self.one(case)
        words = re.sub(r"\W+", "_", case.title)
        setattr(Faults, f"test_{i:03}_{words}", test)


if __name__ == "__main__":
    arguments["times"] = len(sys.argv) > 1
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
    try:
        te.main()
    finally:
        if arguments["markdown"]:
            print(table())
