# SPDX-License-Identifier: Apache-2.0
"""Threads for each peer, and the jobs that wait for them.

Each incarnation of a peer has a thread for transfers and one for messages, so a slow peer delays nobody else. They end
when they had nothing to do for a while, and their references to the peer's segment with them. Of threads, of those for
peers on one host, and of jobs there is a bound.
"""

import logging
import queue
import threading
from typing import Callable, Dict, List, Tuple

from transfer_engine import Segment, TransferError

from . import _protocol
from ._protocol import Address

Open = Callable[[], Segment]  # the peer's segment; raises where nobody answers
Job = Callable[[Open], None]
_IDLE_S = {"transfers": 60.0, "messages": 60.0, "answers": 1.0}
_MOST_LANES = {"transfers": 256, "messages": 256, "answers": 64}  # answers go to who has not greeted: a stranger, maybe
_MOST_OF_A_HOST = {"transfers": 64, "messages": 64, "answers": 1}
_MOST_JOBS = {"transfers": 4096, "messages": 4096, "answers": 64}
_log = logging.getLogger("transfer_engine")


class _Lane:
    """Jobs of one kind for one peer, one after the other. `pending` and the end are guarded by the lock of the lanes."""

    def __init__(self, lanes: "Lanes", kind: str, to: Address) -> None:
        self.pending = 0
        self._lanes, self._kind, self._to = lanes, kind, to
        self._jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        self._segment: List[Segment] = []
        self.thread = threading.Thread(target=self._run, name=f"te-{kind}", daemon=True)
        self.thread.start()

    def put(self, job: Job) -> None:
        self.pending += 1
        self._jobs.put(job)

    def _open(self) -> Segment:
        if not self._segment:
            self._segment.append(self._lanes.open(self._to))
        return self._segment[0]

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=0.05 if self._lanes.closed.is_set() else _IDLE_S[self._kind])
            except queue.Empty:
                if self._lanes.retire(self, (self._kind, self._to)):
                    break
                continue
            try:
                job(self._open)
            except Exception:  # pylint: disable=broad-except
                _log.exception("a job of a connector for %s failed", self._to[0])
            finally:
                self._lanes.done(self)
        self._lanes.give_up(self._to, self._segment)


class Lanes:
    """open(to) gives the segment of that incarnation of a peer; it is called in the threads."""

    def __init__(self, open_segment: Callable[[Address], Segment]) -> None:
        self.open = open_segment
        self.closed = threading.Event()
        self._changed = threading.Condition()
        self._lanes: Dict[Tuple[str, Address], _Lane] = {}
        self._pins: Dict[Address, int] = {}
        self._pinned: Dict[Address, List[Segment]] = {}  # that no lane has any more

    def put(self, kind: str, to: Address, job: Job) -> None:
        """Behind what was given for this peer before. Raises OSError where that cannot be."""
        with self._changed:
            if self.closed.is_set():
                raise OSError("the connector is closed")
            lane = self._lanes.get((kind, to)) or self._made(kind, to)
            if lane.pending >= _MOST_JOBS[kind]:
                raise OSError(f"{_MOST_JOBS[kind]} {kind} wait for {to[0]}")
            lane.put(job)

    def _made(self, kind: str, to: Address) -> _Lane:
        same = [known for k, known in self._lanes if k == kind]
        host = _protocol.split(to[0])[0]
        if len(same) >= _MOST_LANES[kind]:
            raise OSError(f"{_MOST_LANES[kind]} peers have {kind} already")
        if sum(_protocol.split(known[0])[0] == host for known in same) >= _MOST_OF_A_HOST[kind]:
            raise OSError(f"{_MOST_OF_A_HOST[kind]} peers on {host} have {kind} already")
        try:
            lane = self._lanes[kind, to] = _Lane(self, kind, to)
        except RuntimeError as e:  # of Thread.start()
            raise OSError(f"no thread for {to[0]}: {e}; is the limit of processes (ulimit -u) reached?") from e
        return lane

    def pin(self, to: Address, count: int) -> None:
        """While the sum of these is not 0, the segment stays open: what is to be fenced is forgotten with it."""
        closed: List[Segment] = []
        with self._changed:
            self._pins[to] = self._pins.get(to, 0) + count
            if not self._pins[to]:
                del self._pins[to]
                closed = self._pinned.pop(to, [])
        _close(to, closed)

    def drain(self, seconds: float, more: Callable[[], bool]) -> None:
        """Returns when all jobs are done and more() is false, or after that time."""
        with self._changed:
            self._changed.wait_for(lambda: not more() and not any(lane.pending for lane in self._lanes.values()), seconds)

    def look(self) -> None:
        """Has drain() look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing is taken any more; threads end when they have done what they have."""
        with self._changed:
            self.closed.set()
            for lane in self._lanes.values():
                lane.put(lambda _: None)  # wakes it

    # ------------------------------------------------------------------------------ for lanes

    def retire(self, lane: _Lane, key: Tuple[str, Address]) -> bool:
        """Whether a lane has nothing to do; then it is forgotten."""
        with self._changed:
            return not lane.pending and self._lanes.pop(key, None) is lane

    def give_up(self, to: Address, segments: List[Segment]) -> None:
        """References of a lane that has ended."""
        with self._changed:
            if to in self._pins:
                self._pinned.setdefault(to, []).extend(segments)
                return
        _close(to, segments)

    def done(self, lane: _Lane) -> None:
        with self._changed:
            lane.pending -= 1
            self._changed.notify_all()


def _close(to: Address, segments: List[Segment]) -> None:
    for segment in segments:
        try:
            segment.close()
        except TransferError as e:
            _log.warning("the segment of %s stays open: %s", to[0], e)
