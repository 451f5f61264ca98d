#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=900
"""A cluster is upgraded, te_metad and node by node, and back, under load: every node writes to and reads from every
other one all the time, all bytes are compared, and segments that are open stay so. Each released version beside today's.
"""
import itertools
import threading
import time
import unittest

import te_past as past
import te_proc as te
import te_prom
import te_stores as stores

NODES = 3
SIZE = 64 << 10
KEPT_S = 0.15  # an engine gives a text of its metrics once more for 0.1 s
PASSES = 3  # of its own that each node ends in each state of the cluster


class Node(threading.Thread):
    """An engine, and a thread that has it write and read to and from all that `others` lists."""

    def __init__(self, cluster, number, build):
        super().__init__(daemon=True)
        self.cluster, self.number, self.build = cluster, number, build
        self.name = f"node-{number}"
        has_metrics = build is past.today()
        self.peer = build.peer(name=self.name, metadata=cluster.metad.url, options=("TE_HOST_PATH=0",),
                               env=te_prom.serve() if has_metrics else {})
        self.metrics = te_prom.address_of(self.peer) if has_metrics else None
        _, self.address = self.peer.region(NODES * SIZE)
        self.index, _ = self.peer.region(2 * SIZE)
        self.passes, self.leaving, self.failure = 0, False, None

    def run(self):
        seeds = itertools.count(self.number * 1000)
        try:
            while not self.leaving:
                for other in self.cluster.targets_of(self):
                    self.peer.round_trip(other.segment_for(self), self.index, SIZE,
                                         other.address + self.number * SIZE, next(seeds))
                self.passes += 1
        except (AssertionError, OSError) as e:
            builds = [(node.number, node.build.src) for node in self.cluster.nodes]
            self.failure = AssertionError(f"node {self.number} of {self.build.src}, among {builds}: {e}\n{self.peer}")

    def segment_for(self, node):
        """The id of this node's segment in another one, opened once in that one's life."""
        key = (node, self.number)
        if key not in self.cluster.opened:
            self.cluster.opened[key] = node.peer.open(self.name)
        return self.cluster.opened[key]

    def told(self):
        """(requests in flight, requests of peers served so far), as its metrics tell of a moment after the call."""
        time.sleep(KEPT_S)
        families = te_prom.parse(te_prom.get(self.metrics)[1])
        return (families["transfer_engine_inflight_requests"].value(),
                families["transfer_engine_served_requests_total"].total())


class Cluster:
    def __init__(self, metad, builds):
        self.metad, self.opened, self.lock = metad, {}, threading.Lock()
        self.nodes = [Node(self, i, build) for i, build in enumerate(builds)]
        self.serving = set(self.nodes)
        for node in self.nodes:
            node.start()

    def targets_of(self, node):
        with self.lock:
            return [other for other in self.serving if other is not node]

    def check(self):
        for node in self.nodes:
            if node.failure:
                raise node.failure

    def move_on(self, but=None):
        """Each node, but for one, ends some more passes, the first of which may have begun before now."""
        wanted = {node: node.passes + 1 + PASSES for node in self.nodes if node is not but}

        def done():
            self.check()
            return all(node.passes >= passes for node, passes in wanted.items())
        te.until(done, "passes of all nodes")

    def replace_metad(self, build):
        """The nodes move on without it, and it has their keys when it is back."""
        if self.metad.process.stop():
            raise AssertionError(f"it did not end well: {self.metad.process}")
        self.move_on()
        self.metad.build = build
        self.metad.restart()
        keys = [key for node in self.nodes for key in stores.keys_of(node.name)]
        te.until(lambda: all(self.metad.get(key) for key in keys), lambda: f"{keys}; there are {self.metad.keys()}")
        self.move_on()

    def quiet(self, node):
        """Whether it has nothing in flight, and was asked for nothing while the other ones moved on."""
        before = node.told()
        self.move_on(but=node)
        return before[0] == 0 and before == node.told()

    def replace(self, number, build):
        """As docs/operations.md says: nobody asks it for anything new, what it does ends, it is stopped, and another
        one starts. The other ones move on meanwhile."""
        old = self.nodes[number]
        with self.lock:
            self.serving.remove(old)
        old.leaving = True
        old.join(te.HANG_S)
        self.check()
        self.move_on(but=old)
        if old.metrics:
            te.until(lambda: self.quiet(old), lambda: f"its end of work: {old.told()}")
        old.peer.process.stdin.close()
        if old.peer.wait():
            raise AssertionError(f"it did not end well: {old.peer}")
        self.move_on(but=old)
        new = Node(self, number, build)
        self.nodes[number] = new
        with self.lock:
            self.serving.add(new)
        new.start()
        self.move_on()

    def close(self):
        for node in self.nodes:
            node.leaving = True
        for node in self.nodes:
            node.join(te.HANG_S)
        for node in self.nodes:
            node.peer.close()


class Rolling(unittest.TestCase):
    def test_up_and_back(self):
        for version in past.versions():
            old, new = past.past(version), past.today()
            with self.subTest(version), past.BuildMetad(old, durable=True) as metad:
                cluster = Cluster(metad, [old] * NODES)
                try:
                    cluster.move_on()
                    for build in (new, old):
                        cluster.replace_metad(build)
                        for number in range(NODES):
                            cluster.replace(number, build)
                        at_work = cluster.nodes[0]
                        self.assertFalse(at_work.metrics and cluster.quiet(at_work), at_work.peer)
                finally:
                    cluster.close()
                cluster.check()


if __name__ == "__main__":
    te.main()
