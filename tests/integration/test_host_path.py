#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The path within a host, between real processes: what it carries, what it leaves to TCP, what ends it."""
import os
import shutil
import struct
import subprocess
import sys
import time
import unittest

import te_proc as te

SIZE = (3 << 20) + 12345
READ_ONLY, WRITE_ONLY, BOTH = 1, 2, 3
INVALID, FAILED = 2, 6
OK, FOREIGN = 0, 4  # of a welcome
ANY_NAMESPACE = "TE_HOST_ANY_NAMESPACE=1"


def taken(peer, segment, index, remote, opcode="read", length=1000):
    """The transport that a request would go by."""
    text = " ".join(peer.ask("explain", opcode, segment, index, remote, length))
    for line in text.split(";"):
        if line.startswith("transport ") and "taken" in line:
            return line.split(" ")[1].rstrip(":")
    raise AssertionError(text)


def region(peer, size, access=BOTH, own=False):
    index, address = peer.ask("region", size, access, *(["own"] if own else []))
    return int(index), int(address)


def memfds(proc):
    """What the process has mapped of te_alloc(), its own and that of others, by the numbers of the inodes."""
    with open(f"/proc/{proc.pid}/maps", encoding="utf-8") as f:
        return {line.split()[4] for line in f if "/memfd:te_alloc" in line}


class Case(unittest.TestCase):
    def start(self, **more):
        peer = te.Peer(**more)
        self.addCleanup(peer.close)
        return peer

    def both(self, **more):
        """An initiator with a region, a target, and the target as a segment."""
        peer = self.start()
        target = self.start(**more)
        index, _ = region(peer, 4 * SIZE)
        return peer, target, index, peer.open(target.segment)

    def stop_midway(self, peer, target, segment, index, remote, own):
        """Stops the initiator in the middle of a write to memory of either kind."""
        if not own:  # copied by the process itself only when it has mapped it
            te.until(lambda: memfds(peer) & memfds(target), lambda: f"a mapping in {peer}")
        peer.ask(*(["stop_in_write"] if own else ["stop_in_copy", index]))
        peer.send_move("write", segment, index, 0, remote, 2 * SIZE // 64, 64)
        peer.wait_stopped()

    def drop(self, target, there, *peers):
        """Unregisters; another process may be in the way for as long as it does not run."""
        def gone():
            target.send("drop", there)
            got = " ".join(target.reply())
            self.assertTrue(got == "ok" or any(f"process {p.pid} " in got for p in peers), got)
            return got == "ok"

        te.until(gone, "the end of the registration")


    def fails(self, peer, opcode, segment, index, remote):
        """Until a transfer fails: mapped pages outlive their owner, and that it has gone is told by a socket."""
        def refused():
            got = peer.move(opcode, segment, index, 0, remote, SIZE)
            return got[0] != te.COMPLETED and got

        state, error, _, text = te.until(refused, f"a {opcode} that fails")
        self.assertEqual(state, FAILED, text)
        self.assertLess(error, 0)
        self.assertNotEqual(text, "")


class Carries(Case):
    def test_memory_of_both_kinds(self):
        peer, target, index, segment = self.both()
        for own in (False, True):
            there, remote = region(target, 2 * SIZE, own=own)
            peer.ask("refresh")
            for at, length in ((0, 1), (1, 4095), (4097, SIZE), (SIZE - 1, SIZE)):
                self.assertEqual(taken(peer, segment, index, remote + at, length=length), "host")
                peer.round_trip(segment, index, length, remote + at, seed=at + own)
                target.ask("check", there, at, length, at + own)

    def test_many_small_requests(self):
        peer, target, index, segment = self.both()
        for own in (False, True):
            there, remote = region(target, 1 << 20, own=own)
            target.ask("fill", there, 0, 1000 * 512, 5)
            self.assertEqual(peer.move("read", segment, index, 7, remote, 512, 1000)[0], te.COMPLETED)
            peer.ask("check", index, 7, 1000 * 512, 5)

    def test_rights(self):
        peer, target, index, segment = self.both()
        for own in (False, True):
            _, readable = region(target, SIZE, READ_ONLY, own)
            there, writable = region(target, SIZE, WRITE_ONLY, own)
            self.assertEqual(peer.move("read", segment, index, 0, readable, SIZE)[0], te.COMPLETED)
            self.assertEqual(peer.move("write", segment, index, 0, readable, SIZE)[0], INVALID)
            peer.ask("fill", index, 0, SIZE, 9)
            self.assertEqual(peer.move("write", segment, index, 0, writable, SIZE)[0], te.COMPLETED)
            target.ask("check", there, 0, SIZE, 9)
            self.assertEqual(peer.move("read", segment, index, 0, writable, SIZE)[0], INVALID)

    def test_frozen_target(self):
        """It is not asked, so it need not run."""
        peer, target, index, segment = self.both()
        _, remote = region(target, SIZE)
        peer.round_trip(segment, index, SIZE, remote, 1)
        target.freeze()
        try:
            peer.round_trip(segment, index, SIZE, remote, 2)
        finally:
            target.thaw()


class Ends(Case):
    def test_unregister_while_it_is_written(self):
        for own in (False, True):
            peer, target, index, segment = self.both()
            there, remote = region(target, 2 * SIZE, own=own)
            peer.round_trip(segment, index, SIZE, remote, 1)
            for round_ in range(5):
                peer.ask("fill", index, 0, SIZE, 1)
                for opcode in ("write", "read"):
                    peer.send_move(opcode, segment, index, 0, remote, 4096, 700)
                    time.sleep(0.001 * round_)
                    self.drop(target, there, peer)
                    target.ask("fill", there, 0, 2 * SIZE, 70 + round_)
                    self.assertIn(peer.moved()[0], (te.COMPLETED, INVALID, FAILED))
                    target.ask("check", there, 0, 2 * SIZE, 70 + round_)
                    there, remote = region(target, 2 * SIZE, own=own)
                    peer.round_trip(segment, index, SIZE, remote, round_)

    def test_killed_target(self):
        """None of its ports is another engine's by then, which would answer, and refuse."""
        for own in (False, True):
            for opcode in ("read", "write"):
                peer, target, index, segment = self.both(options=te.own_ports())
                _, remote = region(target, 4 * SIZE, own=own)
                peer.round_trip(segment, index, SIZE, remote, 1)
                peer.send_move(opcode, segment, index, 0, remote, 12 * 1024, 1000)
                target.kill()
                got = peer.moved()
                self.assertIn(got[0], (te.COMPLETED, FAILED), got)
                self.fails(peer, opcode, segment, index, remote)
                peer.close()

    def test_killed_initiator(self):
        """What it was doing holds up nothing, and costs no descriptor."""
        target = self.start()
        for own in (False, True):
            there, remote = region(target, 2 * SIZE, own=own)
            before = len(target.fds())
            for _ in range(3):
                with te.Peer() as peer:
                    index, _ = region(peer, 2 * SIZE)
                    segment = peer.open(target.segment)
                    peer.round_trip(segment, index, SIZE, remote, 1)
                    self.stop_midway(peer, target, segment, index, remote, own)
            target.ask("drop", there)
            te.until(lambda n=before: len(target.fds()) <= n, lambda: f"fewer descriptors than {target.fds()}")

    def test_stopped_initiator(self):
        """te_unregister() is not held up: it says who is in the way, while that one still is."""
        peer, target, _, segment = self.both()
        for own in (False, True):
            index, _ = region(peer, 2 * SIZE)
            there, remote = region(target, 2 * SIZE, own=own)
            peer.round_trip(segment, index, SIZE, remote, 1)
            self.stop_midway(peer, target, segment, index, remote, own)
            self.assertIn(f"process {peer.pid} ", target.refused("drop", there))
            peer.thaw()
            self.assertIn(peer.moved()[0], (te.COMPLETED, INVALID, FAILED))
            self.drop(target, there, peer)
            target.ask("fill", there, 0, SIZE, 3)
            self.assertEqual(peer.move("write", segment, index, 0, remote, SIZE)[0], INVALID)
            target.ask("check", there, 0, SIZE, 3)

    def test_engine_gone_with_its_process_alive(self):
        """A restart under the same address is found, the host path with it."""
        first = te.Peer.at_a_port()
        self.addCleanup(first.close)
        address = first.segment
        first.kill()
        peer = self.start()
        index, _ = region(peer, 2 * SIZE)
        for seed in range(3):
            with te.Peer(name=address) as target:
                _, remote = region(target, SIZE)
                segment = peer.open(address)
                peer.round_trip(segment, index, SIZE, remote, seed)
                self.assertEqual(taken(peer, segment, index, remote), "host")
                peer.ask("close", segment)
                self.assertEqual(target.quit(), 0, target)


class LeftToTcp(Case):
    def linked(self, target, peer):
        index, _ = region(peer, 2 * SIZE)
        _, remote = region(target, SIZE)
        return peer, index, peer.open(target.segment), remote

    def check(self, target, peer=None):
        peer, index, segment, remote = self.linked(target, peer or self.start())
        self.assertEqual(taken(peer, segment, index, remote), "tcp")
        peer.round_trip(segment, index, SIZE, remote, 1)

    def test_options(self):
        for option in ("TE_HOST_PATH=0", "MC_FORCE_TCP=1"):
            self.check(self.start(options=[option]))
            self.check(self.start(), self.start(options=[option]))
            self.check(self.start(env=dict([option.split("=")])))

    def test_switched_off_here(self):
        """What is said of it names the option."""
        target, peer = self.start(), self.start(options=["TE_HOST_PATH=0"])
        index, _ = region(peer, SIZE)
        _, remote = region(target, SIZE)
        text = " ".join(peer.ask("explain", "read", peer.open(target.segment), index, remote, SIZE))
        self.assertIn("transport host: not installed: TE_HOST_PATH is off", text)

    def test_another_user(self):
        """Root is one, too: what it may do to others' processes is not for them to make it do."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            te.skip("running as another user needs root and setpriv")
        os.chmod(os.path.dirname(te.Peer.binary()), 0o755)
        user = ["setpriv", "--reuid=12345", "--clear-groups"]
        self.check(self.start(), self.start(prefix=user))
        self.check(self.start(prefix=user), self.start())
        other = ["setpriv", "--reuid=12346", "--clear-groups"]
        self.check(self.start(prefix=user), self.start(prefix=other))

    def test_without_pages_to_share(self):
        """No room for the table is no error of the engine's."""
        if not shutil.which("prlimit"):
            te.skip("a limit of sizes needs prlimit")
        small = ["prlimit", "--fsize=1000000"]
        for one, other in ((small, []), ([], small)):
            target, peer = self.start(prefix=one), self.start(prefix=other)
            self.check(target, peer)
            for end in (target, peer):
                self.assertNotIn("TE_ERR", "".join(end.errors))

    def greeted(self, keys, prefix, by_a_child=False):
        """The status of the answer to a hello from a process run with that prefix; None if there is none."""
        hello = struct.pack("=IHHIIQQ", 0x54534854, 2, 1, 0, 0, 0, 0) + bytes.fromhex(keys["nonce"])
        script = ("import os,socket,sys\n"
                  "s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n"
                  f"s.settimeout({te.HANG_S})\n"
                  "s.connect('\\0'+sys.argv[1])\n"
                  "if sys.argv[3]=='True' and os.fork():\n sys.exit(os.wait()[1])\n"
                  "try:\n s.send(bytes.fromhex(sys.argv[2]))\n got,fds,_,_=socket.recv_fds(s,100,2)\n"
                  "except (ConnectionError,BrokenPipeError):\n got,fds=b'',[]\n"
                  "print(got.hex(),len(fds))")
        run = subprocess.run([*prefix, sys.executable, "-c", script, keys["socket"], hello.hex(), str(by_a_child)],
                             capture_output=True, text=True, check=True, timeout=te.HANG_S)
        got, fds = run.stdout.split(" ")
        got = bytes.fromhex(got)
        status = struct.unpack("=I", got[8:12])[0] if got else None
        self.assertEqual(int(fds), 2 if status == OK else 0)
        return status

    def test_other_namespaces(self):
        """The same user in a container of its own is somebody else, and is given nothing."""
        target = self.start()
        keys = te.descriptor(te.split_address(target.segment))["te"]["host"]
        self.assertEqual(self.greeted(keys, []), OK)
        allowed = self.start(options=[ANY_NAMESPACE])
        for flags in (["--mount"], ["--pid", "--fork"], ["--user", "--map-root-user"]):
            prefix = self.unshared(*flags)
            self.assertEqual(self.greeted(keys, prefix), FOREIGN, flags)
            known = te.descriptor(te.split_address(allowed.segment))["te"]["host"]
            self.assertEqual(self.greeted(known, prefix), OK, flags)
        prefix = self.unshared("--mount")
        self.check(target, self.start(prefix=prefix))
        self.check(self.start(prefix=prefix), self.start())
        self.check(self.start(prefix=prefix), self.start(options=[ANY_NAMESPACE]))
        peer, index, segment, remote = self.linked(allowed, self.start(prefix=prefix, options=[ANY_NAMESPACE]))
        self.assertEqual(taken(peer, segment, index, remote), "host")
        peer.round_trip(segment, index, SIZE, remote, 1)

    def test_hello_of_a_child(self):
        """Who says it is looked at, so a process that has gone cannot lend its number."""
        target = self.start()
        keys = te.descriptor(te.split_address(target.segment))["te"]["host"]
        self.assertEqual(self.greeted(keys, [], by_a_child=True), FOREIGN)

    def test_users_without_a_number(self):
        """In a user namespace all that it does not know show as one user, who may be the engine's own."""
        prefix = self.unshared("--user", "--map-user=65534")
        if not shutil.which("setpriv"):
            te.skip("running as another user needs setpriv")
        other = ["setpriv", "--reuid=12345", "--clear-groups"]
        for owner, status in (([], None), (prefix, None), (other, 0)):
            target = self.start(prefix=owner)
            keys = te.descriptor(te.split_address(target.segment))["te"]["host"]
            self.assertEqual(self.greeted(keys, other), status)

    def unshared(self, flag, *more):
        command = ["unshare", flag, *more]
        if os.geteuid() != 0 or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
            te.skip(f"unshare {flag} is not permitted")
        return command

    def test_another_pid_namespace(self):
        prefix = self.unshared("--pid", "--fork", "--mount-proc", "--kill-child")
        self.check(self.start(prefix=prefix))
        self.check(self.start(), self.start(prefix=prefix))

    def test_a_proc_of_another_namespace(self):
        """Where /proc does not tell the namespaces apart, the socket does."""
        prefix = self.unshared("--pid", "--fork", "--kill-child")
        self.check(self.start(prefix=prefix))


class MappedOnly(Case):
    """What the cases of owners whose memory may not be read have in common."""

    def score_of(self, peer, segment, index, remote, length=1000):
        text = " ".join(peer.ask("explain", "read", segment, index, remote, length))
        return next(line for line in text.split(";") if line.startswith("transport host"))

    def wait_for_host(self, peer, segment, index, remote, length=1000):
        te.until(lambda: taken(peer, segment, index, remote, length=length) == "host",
                 lambda: self.score_of(peer, segment, index, remote, length))

    def both_ways(self, peer, target, segment, index, there, remote):
        for at, length in ((0, 1), (1, 4095), (4097, SIZE), (SIZE - 1, SIZE)):
            peer.round_trip(segment, index, length, remote + at, seed=at + there)
            target.ask("check", there, at, length, at + there)

    def check_both_kinds(self, peer, target, index, segment):
        """What can be mapped goes this way, the rest by TCP."""
        there, remote = region(target, 2 * SIZE)
        own, beyond = region(target, 2 * SIZE, own=True)
        peer.ask("refresh")
        peer.round_trip(segment, index, SIZE, remote, 1)
        target.ask("check", there, 0, SIZE, 1)
        self.wait_for_host(peer, segment, index, remote)
        for _ in range(2):
            self.both_ways(peer, target, segment, index, there, remote)
            self.both_ways(peer, target, segment, index, own, beyond)
            self.assertEqual(taken(peer, segment, index, remote), "host")
            self.assertEqual(taken(peer, segment, index, beyond), "tcp")
        self.assertIn("not shareable and process_vm is refused", self.score_of(peer, segment, index, beyond))


class NoProcessVm(MappedOnly):
    """A seccomp profile, or a kernel built without it, keeps process_vm from one side or both."""

    def setUp(self):
        self.program = te.compile_program(os.path.join(te.SRC, "tests", "integration", "forbid_process_vm.c"),
                                          "forbid_process_vm")
        if subprocess.run([self.program, "ENOSYS", "true"], check=False).returncode != 0:
            te.skip("seccomp filters are not permitted")

    def pair(self, error, forbidden_there):
        peer = self.start(prefix=[self.program, error])
        target = self.start(prefix=[self.program, error] if forbidden_there else [])
        index, _ = region(peer, 4 * SIZE)
        return peer, target, index, peer.open(target.segment)

    def test_on_both_sides(self):
        for error in ("ENOSYS", "EPERM"):
            self.check_both_kinds(*self.pair(error, True))

    def test_here_alone(self):
        for error in ("ENOSYS", "EPERM"):
            self.check_both_kinds(*self.pair(error, False))

    def test_there_alone(self):
        """The owner copies nothing, so it lacks nothing."""
        peer, target, index, segment = self.both(prefix=[self.program, "ENOSYS"])
        for own in (False, True):
            there, remote = region(target, 2 * SIZE, own=own)
            peer.ask("refresh")
            self.assertEqual(taken(peer, segment, index, remote), "host")
            self.both_ways(peer, target, segment, index, there, remote)

    def test_it_is_said(self):
        peer = self.start(prefix=[self.program, "ENOSYS"], env=dict(os.environ, MC_LOG_LEVEL="INFO"))
        peer.wait_error("host: process_vm_readv: Function not implemented")


class MemfdOnly(MappedOnly):
    """The kernel lets nobody read the owner's memory."""
    USER = ["setpriv", "--reuid=12345", "--clear-groups"]

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            te.skip("running without CAP_SYS_PTRACE needs root and setpriv")
        os.chmod(os.path.dirname(te.Peer.binary()), 0o755)

    def pair(self, before=True):
        """An initiator with a region, an undumpable target of its user, and that as a segment."""
        peer, target = (self.start(prefix=self.USER, options=[ANY_NAMESPACE, *te.own_ports()]) for _ in range(2))
        index, _ = region(peer, 4 * SIZE)
        if before:
            target.ask("undumpable")
        return peer, target, index, peer.open(target.segment)

    def test_memory_of_both_kinds(self):
        self.check_both_kinds(*self.pair())

    def test_of_an_unknown_namespace(self):
        """What /proc does not tell is not taken for ours, unless that is asked for."""
        peer, target = (self.start(prefix=self.USER) for _ in range(2))
        index, _ = region(peer, SIZE)
        _, remote = region(target, SIZE)
        target.ask("undumpable")
        segment = peer.open(target.segment)
        self.assertEqual(taken(peer, segment, index, remote), "tcp")
        text = " ".join(peer.ask("explain", "read", segment, index, remote, 1000))
        self.assertIn("in an unknown user namespace", text)

    def test_root_and_a_user(self):
        """Where both say that namespaces do not count: memfds, and never by the number of the process."""
        target, peer = self.start(prefix=self.USER, options=[ANY_NAMESPACE]), self.start(options=[ANY_NAMESPACE])
        index, _ = region(peer, 4 * SIZE)
        self.check_both_kinds(peer, target, index, peer.open(target.segment))

    def test_what_goes_by_host_needs_no_running_owner(self):
        """A target that is stopped answers nothing by TCP, so this is the mapping."""
        peer, target, index, segment = self.pair()
        there, remote = region(target, SIZE)
        peer.ask("refresh")
        self.wait_for_host(peer, segment, index, remote)
        target.freeze()
        try:
            peer.round_trip(segment, index, SIZE, remote, 2)
        finally:
            target.thaw()
        target.ask("check", there, 0, SIZE, 2)

    def test_a_prepared_list(self):
        """One that was made before the memory was mapped changes over too."""
        _, target, _, _ = self.pair()
        there, remote = region(target, SIZE)
        peer = self.start(prefix=self.USER, options=[ANY_NAMESPACE])
        index, _ = region(peer, SIZE)
        segment = peer.open(target.segment)
        target.ask("fill", there, 0, SIZE, 6)
        peer.ask("prepare", segment, index, 0, remote, SIZE)
        self.wait_for_host(peer, segment, index, remote)
        target.freeze()
        try:
            self.assertEqual(peer.ask("prepared", "read"), [str(te.COMPLETED), "0", str(SIZE)])
        finally:
            target.thaw()
        peer.ask("check", index, 0, SIZE, 6)

    def test_a_range_of_many_regions(self):
        peer, target, index, segment = self.pair()
        there, remote = map(int, target.ask("regions", 3, 1 << 20))
        peer.ask("refresh")
        self.wait_for_host(peer, segment, index, remote, 3 << 20)
        peer.round_trip(segment, index, 3 << 20, remote, 3)
        target.ask("check", there, 0, 3 << 20, 3)

    def test_rights(self):
        """Memory that peers may only read is mapped if they can never write to it; that which they may only
        write is not, or they could read it."""
        peer, target, index, segment = self.pair()
        _, readable = region(target, SIZE, READ_ONLY)
        there, writable = region(target, SIZE, WRITE_ONLY)
        peer.ask("refresh")
        self.wait_for_host(peer, segment, index, readable)
        for _ in range(2):
            self.assertEqual(peer.move("read", segment, index, 0, readable, SIZE)[0], te.COMPLETED)
            self.assertEqual(peer.move("write", segment, index, 0, readable, SIZE)[0], INVALID)
            peer.ask("fill", index, 0, SIZE, 9)
            self.assertEqual(peer.move("write", segment, index, 0, writable, SIZE)[0], te.COMPLETED)
            target.ask("check", there, 0, SIZE, 9)
            self.assertEqual(peer.move("read", segment, index, 0, writable, SIZE)[0], INVALID)
        self.assertEqual(len(memfds(peer) & memfds(target)), 1)

    def test_unregister_while_it_is_written(self):
        peer, target, index, segment = self.pair()
        there, remote = region(target, 2 * SIZE)
        for round_ in range(5):
            peer.ask("refresh")
            self.wait_for_host(peer, segment, index, remote)
            peer.ask("fill", index, 0, SIZE, 1)
            for opcode in ("write", "read"):
                peer.send_move(opcode, segment, index, 0, remote, 4096, 700)
                time.sleep(0.001 * round_)
                self.drop(target, there, peer)
                target.ask("fill", there, 0, 2 * SIZE, 70 + round_)
                self.assertIn(peer.moved()[0], (te.COMPLETED, INVALID, FAILED))
                target.ask("check", there, 0, 2 * SIZE, 70 + round_)
                there, remote = region(target, 2 * SIZE)
                peer.round_trip(segment, index, SIZE, remote, round_)

    def test_killed_target(self):
        peer, target, index, segment = self.pair()
        _, remote = region(target, SIZE)
        peer.ask("refresh")
        self.wait_for_host(peer, segment, index, remote)
        target.kill()
        self.fails(peer, "write", segment, index, remote)

    def test_undumpable_afterwards(self):
        """Both kinds go by host, until the next process_vm call finds the owner closed."""
        peer, target, index, segment = self.pair(before=False)
        there, remote = region(target, 2 * SIZE)
        own, beyond = region(target, 2 * SIZE, own=True)
        for at in (remote, beyond):
            peer.round_trip(segment, index, SIZE, at, 4)
            self.assertEqual(taken(peer, segment, index, at), "host")
        target.ask("undumpable")
        self.both_ways(peer, target, segment, index, own, beyond)
        self.both_ways(peer, target, segment, index, there, remote)
        self.assertEqual(taken(peer, segment, index, beyond), "tcp")
        self.wait_for_host(peer, segment, index, remote)
        self.both_ways(peer, target, segment, index, there, remote)


class Tools(Case):
    def test_protocol(self):
        for protocol in ("tcp", "host"):
            with te.Target(f"--protocol={protocol}", size="8M") as target:
                found = te.descriptor(te.split_address(target.segment))
                self.assertEqual(found["protocol"], "tcp")
                self.assertEqual("host" in found["te"], protocol == "host")
                proc = te.bench(target.segment, f"--protocol={protocol}", "--verify")
                self.assertEqual(proc.rc, 0, proc)


if __name__ == "__main__":
    te.main()
