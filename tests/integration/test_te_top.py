#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""te_top: what it tells of engines under load, of whom it may know, and its screen."""
import json
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import te_proc as te

TOP = os.path.join(te.BIN, "te_top")


def once(*flags, **more):
    return subprocess.run([TOP, "--once", "--interval=0.3", *flags], capture_output=True, text=True, check=False,
                          timeout=te.HANG_S, **more)


class Load:
    """A target, and a bench that reads from it until it is closed."""

    def __init__(self, **env):
        self.target = te.Target(env=env)
        self.bench = te.Proc([te.tool("transfer_engine_bench"), f"--metadata_server={te.P2P}", "--protocol=tcp",
                              f"--segment_id={self.target.segment}", "--local_server_name=127.0.0.1",
                              "--buffer_size=8M", "--threads=1", te.FOREVER], env={"TE_HOST_PATH": "0", **env})

    def close(self):
        self.bench.close()
        self.target.close()


class UnderLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.load = Load()

    @classmethod
    def tearDownClass(cls):
        cls.load.close()

    def engine(self, pid, busy):
        """What is told of the engine of a process, once it is busy by that rule."""
        def look():
            run = once("--json", f"--pid={pid}")
            engines = json.loads(run.stdout)["engines"] if run.returncode == 0 else []
            return engines[0] if engines and busy(engines[0]) else None
        return te.until(look, "a busy engine")

    def test_initiator(self):
        e = self.engine(self.load.bench.pid, lambda e: e["bytes"]["read"] > 0 and e["p50_s"] is not None)
        self.assertEqual(e["pid"], self.load.bench.pid)
        self.assertEqual(e["program"], "transfer_engine")  # the kernel keeps 15 characters
        self.assertEqual(e["failed"], {"read": 0, "write": 0})
        self.assertEqual(e["errors"], [])
        peers = {p["peer"]: p for p in e["peers"]}
        self.assertGreater(peers[self.load.target.segment]["bytes"], 0)
        self.assertGreater(peers[self.load.target.segment]["completed"], 0)
        self.assertEqual(peers["other"]["bytes"], 0)
        tcp = next(t for t in e["transports"] if t["transport"] == "tcp")
        self.assertGreater(tcp["bytes"], 0)
        self.assertGreater(tcp["connections"], 0)
        self.assertLessEqual(tcp["p50_s"], tcp["p99_s"])
        nic = next(n for n in e["nics"] if n["nic"] == "127.0.0.1")
        self.assertGreater(nic["received"], tcp["bytes"] / 10)

    def test_target(self):
        e = self.engine(self.load.target.pid, lambda e: e["served_sent"] > 0 and e["served_requests"] > 0)
        self.assertEqual(e["segment"], self.load.target.segment)
        self.assertEqual(e["completed"], {"read": 0, "write": 0})

    def test_all(self):
        both = {self.load.bench.pid, self.load.target.pid}
        te.until(lambda: both <= {e["pid"] for e in json.loads(once("--json").stdout)["engines"]}, "both engines")

    def test_text(self):
        run = once(f"--pid={self.load.bench.pid}")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(f"transfer_engine ({self.load.bench.pid})", run.stdout)
        self.assertRegex(run.stdout, rf"(?m)^ .*  {self.load.target.segment}$")
        self.assertRegex(run.stdout, r"(?m)^  tcp  ")
        self.assertNotIn("\x1b", run.stdout)

    def test_other_user(self):
        """Who is neither the engine's user nor root is told nothing."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to be somebody else")
        run = once(f"--pid={self.load.target.pid}", user=65534, group=65534)
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("run te_top as that user, or as root", run.stderr)

    def test_screen(self):
        """A screen of its own, which is left as it was by q."""
        main, side = pty.openpty()
        top = subprocess.Popen([TOP, "--interval=0.2", f"--pid={self.load.bench.pid}"], stdin=side, stdout=side,
                               stderr=side, env={**os.environ, "TERM": "xterm"})
        os.close(side)
        self.addCleanup(os.close, main)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        seen = self.read_until(main, b"PEER")
        self.assertIn(b"\x1b[?1049h", seen)
        os.write(main, b"q")
        self.read_until(main, b"\x1b[?1049l")
        self.assertEqual(top.wait(te.HANG_S), 0)

    def read_until(self, fd, what):
        seen = b""
        while what not in seen:
            ready, _, _ = select.select([fd], [], [], te.HANG_S)
            self.assertTrue(ready, f"no {what} in {seen}")
            seen += os.read(fd, 65536)
        return seen


class Played:
    """An engine that is played: it gives one text after the other, and the last one from then on."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(f"\0transfer_engine.{os.getpid()}.{id(self):016x}")
        self.sock.listen()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            with conn:
                if not conn.recv(4096):
                    continue  # another te_top looked whose it is
                text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
                conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + text.encode())

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def text_of(**values):
    """The text of an engine with these series; "_" stands for braces and what is in them."""
    return "".join(f"# TYPE transfer_engine_{name} counter\n" + "".join(
        f"transfer_engine_{name}{labels} {value}\n" for labels, value in series.items())
        for name, series in values.items())


class Arithmetic(unittest.TestCase):
    def look(self, *texts, flags=("--json",)):
        engine = Played(*texts)
        self.addCleanup(engine.close)
        run = once(f"--pid={os.getpid()}", *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["engines"][0] if "--json" in flags else run.stdout

    def test_growth(self):
        """What has become less has begun anew; a series that comes in between began at 0."""
        info = {'{version="9",segment="a\\"b\\\\c"}': 1}
        e = self.look(
            text_of(info=info, peer_bytes_total={'{peer="x",opcode="read"}': 5000, '{peer="y",opcode="read"}': 9e9}),
            text_of(info=info, peer_bytes_total={'{peer="x",opcode="read"}': 5000, '{peer="y",opcode="read"}': 300,
                                                 '{peer="z",opcode="write"}': 600}))
        self.assertEqual((e["version"], e["segment"]), ("9", 'a"b\\c'))
        x, y, z = e["peers"]
        self.assertEqual((x["peer"], x["bytes"]), ("x", 0))
        self.assertEqual((y["peer"], z["peer"]), ("y", "z"))
        self.assertAlmostEqual(z["bytes"] / y["bytes"], 2)

    def test_errors(self):
        """Those that have ever happened, whether of late or not."""
        series = [{'{error="TE_ERR_PEER",class="path"}': 4, '{error="TE_ERR_LINK",class="path"}': n,
                   '{error="TE_ERR_JSON",class="request"}': 0} for n in (1, 7)]
        e = self.look(*[text_of(request_errors_total=s) for s in series])
        self.assertEqual([(x["error"], x["class"], x["total"], x["rate"] > 0) for x in e["errors"]],
                         [("TE_ERR_PEER", "path", 4, False), ("TE_ERR_LINK", "path", 7, True)])

    def test_times(self):
        """Of what has ended since, evenly spread within a bucket."""
        def text(*counts):
            return text_of(request_seconds_bucket={f'{{transport="tcp",opcode="read",le="{le}"}}': n
                                                   for le, n in zip(("0.001", "0.002", "+Inf"), counts)})
        e = self.look(text(50, 50, 50), text(50, 150, 150))
        self.assertAlmostEqual(e["p50_s"], 0.0015)
        self.assertAlmostEqual(e["p99_s"], 0.00199)
        self.assertIsNone(self.look(text(50, 50, 50))["p50_s"])

    def test_nics_and_names(self):
        """What a terminal would obey is not passed on."""
        text = text_of(nic_resent_total={'{transport="tcp",nic="10.0.0.1"}': 1},
                       nic_up={'{transport="tcp",nic="10.0.0.1"}': 0},
                       peer_bytes_total={'{peer="a\x1b[2Jb\x7f",opcode="read"}': 1})
        shown = self.look(text, flags=())
        self.assertNotIn("\x1b", shown)
        self.assertIn("a?[2Jb?", shown)
        self.assertRegex(shown, r"(?m)^  10\.0\.0\.1 .* down$")


    def test_controls_beyond_ascii(self):
        """CSI is one character of UTF-8, too; and a program gives its process any name."""
        with open("/proc/self/comm", "r+", encoding="utf-8") as f:
            before = f.read().strip()
            f.seek(0)
            f.write("x\x9by\x1bz\u00e9")
            f.flush()
            self.addCleanup(lambda: open("/proc/self/comm", "w", encoding="utf-8").write(before))
        text = text_of(peer_bytes_total={'{peer="a\x9b2Jb\u00e9",opcode="read"}': 1})
        e = self.look(text)
        self.assertEqual([p["peer"] for p in e["peers"]], ["a?2Jb\u00e9"])
        self.assertEqual(e["program"], "x?y?z\u00e9")

    def test_figures_beyond_reason(self):
        """The line of sparks takes any number."""
        for value in ("inf", "1e308", "3e307", "nan"):
            self.assertIn(f"({os.getpid()})", self.look(
                text_of(bytes_total={'{opcode="read"}': 1}),
                text_of(bytes_total={'{opcode="read"}': value, '{opcode="write"}': 7}), flags=()))


def crowd(there, end):
    """100 engines of nobody, by what their names tell of process 1."""
    os.setgid(65534)
    os.setuid(65534)
    socks = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(100)]
    for i, s in enumerate(socks):
        s.bind(f"\0transfer_engine.1.{os.getpid()}.{i}")
        s.listen()
    os.close(there)
    while True:
        for s in select.select([end, *socks], [], [])[0]:
            if s == end:
                return
            with s.accept()[0] as conn:
                if conn.recv(4096):
                    conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")


class Hostile(unittest.TestCase):
    """Sockets of the name of an engine that are none."""

    def listen(self, name, backlog=16):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(sock.close)
        sock.bind("\0" + name)
        sock.listen(backlog)
        return sock

    def test_drips(self):
        """Who tells a little now and then has no more time than others; a signal ends it at once."""
        sock = self.listen(f"transfer_engine.{os.getpid()}.drip")
        told = set()

        def drip():
            while True:
                try:
                    conn, _ = sock.accept()
                    pid, _, _ = struct.unpack("3i", conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                    with conn:
                        while conn.recv(4096):
                            while conn.send(b"x"):
                                told.add(pid)
                                time.sleep(0.1)
                except ConnectionError:
                    continue
                except OSError:
                    return
        threading.Thread(target=drip, daemon=True).start()
        self.addCleanup(sock.shutdown, socket.SHUT_RDWR)
        run = once(f"--pid={os.getpid()}")
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"process {os.getpid()}: no answer", run.stderr)
        top = subprocess.Popen([TOP, "--json", f"--pid={os.getpid()}"], stdout=subprocess.DEVNULL)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        te.until(lambda: top.pid in told, "te_top to be told something")
        top.terminate()
        self.assertEqual(top.wait(te.HANG_S), 0)

    def test_queue_is_full(self):
        """Nobody waits for a place in a queue that is never taken from."""
        for i in range(40):
            name = f"transfer_engine.{os.getpid()}.full{i}"
            self.listen(name, 0)
            first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.addCleanup(first.close)
            first.connect("\0" + name)
        run = once(f"--pid={os.getpid()}")
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"process {os.getpid()}: no answer", run.stderr)

    def test_crowd(self):
        """Strangers take no places; and what stands in a name is not believed."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to be somebody else")
        there, there_end = os.pipe()
        end, end_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(end_end)  # it ends with this process at the latest
            try:
                crowd(there_end, end)
            finally:
                os._exit(0)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.close, end_end)
        os.close(there_end)
        os.close(end)
        self.assertEqual(os.read(there, 1), b"")  # they listen, or it has ended
        os.close(there)
        engine = Played(text_of(peer_bytes_total={'{peer="x",opcode="read"}': 1}))
        self.addCleanup(engine.close)

        def are_told():
            """Both, in time, and beside what engines the machine has otherwise."""
            run = once("--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            pids = [e["pid"] for e in json.loads(run.stdout)["engines"]]
            self.assertNotIn(1, pids)
            self.assertLessEqual(pids.count(pid), 16)
            return os.getpid() in pids and pids.count(pid) == 16

        te.until(are_told, "this engine, and 16 of the crowd")


class WithoutLoad(unittest.TestCase):
    def test_switched_off(self):
        with te.Target(env={"TE_TOP": "0"}) as target:
            run = once(f"--pid={target.pid}")
            self.assertEqual((run.returncode, run.stdout), (1, ""))
            self.assertIn("its user has set TE_TOP=0", run.stderr)

    def test_stopped(self):
        """A process that does not answer holds nobody up for long."""
        with te.Target() as target:
            target.freeze()
            run = once(f"--pid={target.pid}")
            self.assertEqual(run.returncode, 1, run.stdout)
            self.assertIn(f"process {target.pid}: no answer", run.stderr)

    def test_usage(self):
        run = once("--interval=0")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--interval", run.stderr)


if __name__ == "__main__":
    te.main()
