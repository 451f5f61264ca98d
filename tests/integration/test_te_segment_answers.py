#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""te_segment list and show tell the age of each segment, and whether its engine answers now."""
import json
import os
import re
import signal
import socket
import threading
import time
import unittest

import te_proc as te
import te_stores as stores

SHORT = "2"  # seconds that an engine has to answer, where one is frozen
FOREVER = "3599"
DEAD = 40


class Silent:
    """A port that answers nobody, and ends all connections once it has so many."""

    def __init__(self, wanted):
        self.most = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=wanted)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(wanted,))
        self.thread.start()

    def serve(self, wanted):
        here = []
        while len(here) < wanted:
            try:
                here.append(self.listener.accept()[0])
            except OSError:  # closed
                break
            self.most = len(here)
        for sock in here:
            sock.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


class Answers(unittest.TestCase):
    def setUp(self):
        self.store = stores.Metad()
        self.addCleanup(self.store.close)

    def output(self, *words, wait_s="60"):
        proc = te.run("te_segment", *words, f"--metadata_server={self.store.url}",
                      env={"MC_HANDSHAKE_CONNECT_TIMEOUT": wait_s})
        self.assertEqual((proc.rc, proc.errors), (0, []), proc)
        return proc.output()

    def listed(self, wait_s="60"):
        return {e["name"]: e for e in json.loads(self.output("list", "--json", wait_s=wait_s))}

    def cells(self, name):
        """The line of `name`, by column."""
        lines = [line.split() for line in self.output("list").split("\n")]
        return dict(zip(lines[0], next(line for line in lines if line[0] == name)))

    def peer(self, name):
        peer = te.Peer(name=name, metadata=self.store.url)
        self.addCleanup(peer.close)
        return peer

    def test_live_killed_frozen(self):
        live, killed, frozen = (self.peer(name) for name in ("live", "killed", "frozen"))
        self.assertEqual([e["answers"] for e in self.listed().values()], [True] * 3)
        killed.stop(signal.SIGKILL)
        found = self.listed()
        self.assertEqual({n: e["answers"] for n, e in found.items()}, {"live": True, "frozen": True, "killed": False})
        self.assertRegex(found["killed"]["silent"], "refused|another engine")
        self.assertNotIn("silent", found["live"])
        self.assertEqual([self.cells(n)["ANSWERS"] for n in ("live", "killed")], ["yes", "no"])
        self.assertRegex(self.output("show", "live"), r"(?m)^engine +127\.0\.0\.1:\d+, answers$")
        self.assertRegex(self.output("show", "killed"), r"(?m)^engine +127.*, does not answer: \S")
        frozen.freeze()
        try:
            found = self.listed(SHORT)
        finally:
            frozen.thaw()
        self.assertEqual([found[n]["answers"] for n in ("frozen", "killed")], [False, False])
        self.assertRegex(found["frozen"]["silent"], r"no answer|in time")
        self.assertTrue(self.listed()["frozen"]["answers"])
        for peer in (live, frozen):
            self.assertEqual(peer.quit(), 0, peer)

    def test_silent_ones_are_asked_side_by_side(self):
        """Each keeps its caller waiting until all are asked, which never is if they are one after the other."""
        silent = Silent(DEAD)
        self.addCleanup(silent.close)
        self.output("register", "f0")
        text = self.store.get("mooncake/ram/f0")
        where = json.dumps({"ip_or_host_name": "127.0.0.1", "rpc_port": silent.port})
        for i in range(DEAD):
            self.store.put(f"mooncake/rpc_meta/f{i}", where)
            self.store.put(f"mooncake/ram/f{i}", text.replace(b'"f0"', b'"f%d"' % i))
        found = self.listed(FOREVER)
        self.assertEqual([e["answers"] for e in found.values()], [False] * DEAD)
        self.assertEqual(silent.most, DEAD)

    def test_another_engine_on_its_port(self):
        here = self.peer("here")
        self.store.put("mooncake/rpc_meta/gone", self.store.get("mooncake/rpc_meta/here"))
        self.store.put("mooncake/ram/gone", self.store.get("mooncake/ram/here").replace(b'"here"', b'"gone"'))
        found = self.listed()
        self.assertEqual((found["here"]["answers"], found["gone"]["answers"]), (True, False))
        self.assertIn("another engine answers there, here", found["gone"]["silent"])
        self.assertEqual(here.quit(), 0, here)

    def test_another_engine_does_not_keep_it(self):
        """unregister asks as list does: that the port answers is not enough."""
        here = self.peer("here")
        self.store.put("mooncake/rpc_meta/gone", self.store.get("mooncake/rpc_meta/here"))
        self.store.put("mooncake/ram/gone", self.store.get("mooncake/ram/here").replace(b'"here"', b'"gone"'))
        self.assertEqual(self.output("unregister", "gone"),
                         "removed mooncake/rpc_meta/gone\nremoved mooncake/ram/gone")
        self.assertEqual(here.quit(), 0, here)

    def test_age_of_what_was_registered(self):
        """by its time in UTC, and not roughly"""
        self.output("register", "early")
        told = json.loads(self.store.get("mooncake/ram/early"))
        self.assertLess(abs(time.time() - told["te"]["written"] / 1000), 1800)
        self.assertEqual((told["te"]["v"], told["te"]["incarnation"]), (1, "0" * 16))
        self.assertRegex(self.cells("early")["AGE"], r"^\d+[sm]$")
        self.assertEqual([self.listed()["early"]["answers"]], [None])

    def test_age(self):
        peer = self.peer("node")
        told = json.loads(self.store.get("mooncake/ram/node"))
        self.assertLess(abs(time.time() - told["te"]["written"] / 1000), 1800)
        self.assertGreaterEqual(self.listed()["node"]["age_s"], 0)
        for age, cell in ((0, r"\d+[sm]"), (90, r"9\ds|\d\d\ds|\dm"), (7300, "2h"), (3 * 86400 + 5, "3d"), (-3600, "0s")):
            told["te"]["written"] = int((time.time() - age) * 1000)
            self.store.put("mooncake/ram/node", json.dumps(told))
            self.assertRegex(self.cells("node")["AGE"], f"^({cell})$")
            self.assertGreaterEqual(self.listed()["node"]["age_s"], max(age, 0))
        for wrong in (None, "x", -1, 1.5):
            told["te"]["written"] = wrong
            self.store.put("mooncake/ram/node", json.dumps(told))
            self.assertIsNone(self.listed()["node"]["age_s"])
        self.assertEqual(peer.quit(), 0, peer)

    def test_age_of_other_makes(self):
        """They tell the local time alone: near the truth where both hosts have one time zone."""
        for name, age in (("old", 3 * 86400 + 60), ("ahead", -7200)):
            when = time.strftime("%Y-%m-%d %H:%M:%S.000001", time.localtime(time.time() - age))
            self.store.put(f"mooncake/ram/{name}", json.dumps({"name": name, "protocol": "tcp", "timestamp": when}))
        self.store.put("mooncake/ram/none", '{"name":"none","protocol":"tcp","timestamp":"yesterday"}')
        self.assertEqual([self.cells(n)["AGE"] for n in ("old", "ahead", "none")], ["~3d", "-", "-"])
        self.assertEqual({(e["age_s"], e["answers"]) for e in self.listed().values()}, {(None, None)})
        self.assertTrue(re.search(r"(?m)^age +~3d$", self.output("show", "old")))


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    te.main()
