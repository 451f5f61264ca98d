# SPDX-License-Identifier: Apache-2.0
"""Virtual machines with SoftRoCE NICs, and jobs that run in them: what the tests of the lab are made of.

A machine has one or two guests, each with `nics` NICs: ethN with the RDMA device rxeN and the address
10.77.0.(1 + 16 * guest + N). All are on one Ethernet segment. Programs of the build run in the guests
from where they lie. tests/lab/guest.sh is the other end of all this.
"""
import ctypes
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("TE_TEST_BUILD") or os.path.join(SOURCE, "build")
MTU = 9000  # of the NICs: room for 4096 bytes of RDMA and its headers
BOOT_S = 300  # where it has a tenth of a processor
POLL_S = 0.01
# Slow to emulate: rep movsb (copies take five times as long) and pclmulqdq (the check sums of RoCE).
CPU = "max,-erms,-fsrm,-pclmulqdq"
# Without no_timer_check the kernel panics where a timer that it waits for by counting is late: on a busy host.
KERNEL = ("console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off nokaslr audit=0 random.trust_cpu=on "
          "cryptomgr.notests no_timer_check")
MODULES = "virtio_net rdma_rxe rdma_ucm ib_umad"


class Skip(Exception):
    """The test cannot run here; why."""


class Trouble(Exception):
    """The machine, not the test, has failed."""


@dataclasses.dataclass(frozen=True)
class Wants:
    """What a test wants of its machine."""
    guests: int = 1
    nics: int = 2
    cpus: int = 0  # of each guest; 0: 2, or 1 where two guests share two processors of this host
    mem: int = 2048  # MiB of each guest

    def per_guest(self):
        """More than the host has makes all of it several times as slow."""
        return self.cpus or (2 if self.guests == 1 or (os.cpu_count() or 1) > 3 else 1)


def wait_until(what, ready, timeout):
    """What ready() returns once that is true; AssertionError after so many seconds."""
    end = time.monotonic() + timeout
    while True:
        got = ready()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(POLL_S)


def die_with_parent():
    """Of a process that is about to be QEMU: no guest outlives its runner, however that ends."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    os.nice(5)


class Job:
    """Commands of the shell that run in a guest."""

    def __init__(self, guest, command, talk):
        self.guest, self.command = guest, command
        self.name = guest.machine.next_name()
        self.folder = os.path.join(guest.machine.folder, self.name)
        self.answered = 0
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, "command"), "w", encoding="utf-8") as f:
            f.write(command + "\n")
        guest.send(f"{'talk' if talk else 'run'} {self.name}")

    def _read(self, what):
        try:
            with open(os.path.join(self.folder, what), encoding="utf-8", errors="backslashreplace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def output(self):
        return self._read("out")

    def errors(self):
        return self._read("err")

    def status(self):
        """The exit status; None while it runs."""
        text = self._read("rc")
        return int(text) if text.endswith("\n") else None

    def wait(self, timeout=60):
        """The exit status. A job that does not end in time fails the test."""
        def ended():
            self.guest.check()
            return self.status() is not None
        wait_until(f"the end of {self}", ended, timeout)
        return self.status()

    def wait_line(self, pattern, timeout=60, start=0):
        """The match of the first whole line of its output, from number `start` on, that has the pattern."""
        def found():
            self.guest.check()
            ended = self.status() is not None
            for line in self.output().split("\n")[start:-1]:
                match = re.search(pattern, line)
                if match:
                    return match
            if ended:
                raise AssertionError(f"no line '{pattern}' from {self}")
            return None
        return wait_until(f"a line '{pattern}' from {self.command}", found, timeout)

    def kill(self, sig=signal.SIGKILL, timeout=20):
        """Ends it, and all that it has started; a job that has ended is none the worse."""
        if self.status() is not None or not self.guest.alive():
            return
        pid = wait_until(f"{self.command} to begin", lambda: self._read("pid").strip(), timeout)
        self.guest.send(f"kill {int(sig)} {pid}")
        self.wait(timeout)

    def tell(self, *words):
        self.guest.send(f"tell {self.name} " + " ".join(str(w) for w in words))

    def reply(self, timeout=60):
        """The words of the next answer of a program that answers each line by one, "ok" or "err" first."""
        line = self.wait_line(r"^(ok|err)\b.*", timeout, self.answered).group(0)
        self.answered += 1
        return line.split(" ")

    def ask(self, *words, timeout=60):
        """What it answers after "ok"; an "err" fails the test."""
        self.tell(*words)
        got = self.reply(timeout)
        if got[0] != "ok":
            raise AssertionError(f"{words}: {' '.join(got)}\n{self}")
        return got[1:]

    def __str__(self):
        return (f"[guest {self.guest.number}] {self.command} (exit {self.status()})\n--- output\n{self.output()}"
                f"--- errors\n{self.errors()}")


class Guest:
    """One virtual machine of the machine."""

    def __init__(self, machine, number):
        self.machine, self.number = machine, number
        self.qemu = self.port = self.monitor_socket = None
        self.monitor_answers = None
        self.jobs = []

    def path(self, what):
        return os.path.join(self.machine.folder, f"{what}.{self.number}")

    def ip(self, nic=0):
        return f"10.77.0.{1 + 16 * self.number + nic}"

    # ---- its process

    def _command(self):
        m, cache = self.machine, self.machine.cache
        plain = "security_model=none,multidevs=remap"
        command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", CPU,
                   "-smp", str(m.wants.per_guest()), "-m", str(m.wants.mem),
                   "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                   "-serial", f"file:{self.path('console')}",
                   "-kernel", f"{cache}/vmlinux", "-initrd", f"{cache}/initrd",
                   "-append", f"{KERNEL} lab.guest={self.number}",
                   "-device", "virtio-serial-pci",
                   "-chardev", f"socket,id=orders,path={self.path('orders')},server=on,wait=off",
                   "-device", "virtserialport,chardev=orders,nr=1",
                   "-chardev", f"socket,id=mon,path={self.path('mon')},server=on,wait=off", "-mon", "mon",
                   "-chardev", f"socket,id=ctl,path={self.path('mon')}",
                   "-device", "virtserialport,chardev=ctl,nr=2",
                   "-qmp", f"unix:{self.path('qmp')},server=on,wait=off",
                   "-virtfs", f"local,path={m.folder},mount_tag=run,{plain}",
                   "-virtfs", f"local,path=/,mount_tag=host,readonly=on,{plain}"]
        for i in range(m.wants.nics):
            command += ["-device", f"pcie-root-port,id=port{i},bus=pcie.0,chassis={i + 1}",
                        "-netdev", f"hubport,id=net{i},hubid=0", "-device", self.nic_device(i)]
        if m.wants.guests == 2:
            command += ["-netdev", "hubport,id=trunk,hubid=0,netdev=peer",
                        "-netdev", f"dgram,id=peer,local.type=unix,local.path={m.folder}/net.{self.number},"
                                   f"remote.type=unix,remote.path={m.folder}/net.{1 - self.number}"]
        return command

    def nic_device(self, i):
        """A NIC as QEMU is told of it. A queue of the usual 256 entries loses packets."""
        return (f"virtio-net-pci,id=nic{i},netdev=net{i},bus=port{i},mac=52:54:00:77:0{self.number}:{i:02x},"
                f"host_mtu={MTU},rx_queue_size=1024")

    def start(self):
        for what in ("up", "orders", "mon", "qmp", "net"):
            if os.path.exists(self.path(what)):
                os.unlink(self.path(what))
        with open(self.path("qemu"), "w", encoding="utf-8") as log:
            self.qemu = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         preexec_fn=die_with_parent)

    def _wait_for(self, what):
        try:
            wait_until(what, lambda: self.check() or os.path.exists(self.path(what)), BOOT_S)
        except AssertionError as e:
            raise Trouble(f"guest {self.number}: {e}\n{self.last_words()}") from None

    def connect(self):
        self.port = self._connect("orders")  # before the guest looks: a port without a host reads as ended
        self.monitor_socket = self._connect("qmp")
        self.monitor_answers = self.monitor_socket.makefile(encoding="utf-8")
        self.monitor_answers.readline()
        self._qmp("qmp_capabilities")

    def wait_up(self):
        self._wait_for("up")

    def _connect(self, what):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        self._wait_for(what)
        while s.connect_ex(self.path(what)) != 0:  # there, but nobody listens yet
            self.check()
            time.sleep(POLL_S)
        return s

    def alive(self):
        return self.qemu is not None and self.qemu.poll() is None

    def check(self):
        if not self.alive():
            raise Trouble(f"guest {self.number} has died\n{self.last_words()}")

    def last_words(self):
        """The ends of its console and of what QEMU said."""
        text = ""
        for what in ("qemu", "console"):
            if os.path.exists(self.path(what)):
                with open(self.path(what), encoding="utf-8", errors="backslashreplace") as f:
                    text += "".join(f"  {what}: {line}" for line in f.readlines()[-40:])
        return text

    def kill(self):
        """As when the power fails."""
        for s in (self.monitor_answers, self.monitor_socket, self.port):
            if s:
                s.close()
        self.port = self.monitor_socket = self.monitor_answers = None
        if self.qemu:
            self.qemu.kill()
            self.qemu.wait()
        self.qemu = None
        self.jobs = []

    # ---- what is done in it

    def send(self, line):
        self.check()
        self.port.sendall(line.encode() + b"\n")

    def start_job(self, command, talk=False):
        """Begins; a program that is to be killed or told something is best the last, behind `exec`."""
        job = Job(self, command, talk)
        self.jobs.append(job)
        return job

    def run(self, command, timeout=60, check=True):
        """The job, at its end. An exit status but 0 fails the test."""
        job = self.start_job(command)
        job.wait(timeout)
        if check and job.status() != 0:
            raise AssertionError(str(job))
        return job

    def end_jobs(self):
        for job in self.jobs:
            job.kill()
        self.jobs = []

    def now(self):
        """Its clock, which programs in it tell times by, in nanoseconds; to the hundredth of a second."""
        return int(float(self.run("read -r up _ </proc/uptime; echo $up").output()) * 1e9)

    def packets(self, nic):
        """How many its RDMA device has sent and received."""
        folder = f"/sys/class/infiniband/rxe{nic}/ports/1/hw_counters"
        return sum(int(n) for n in self.run(f"echo $(<{folder}/sent_pkts) $(<{folder}/rcvd_pkts)").output().split())

    # ---- what is done to it

    def _qmp(self, command, **arguments):
        self.monitor_socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self.monitor_answers.readline() or '{"error": "no answer"}')
            if "error" in answer:
                raise Trouble(f"QEMU, {command} {arguments}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def monitor(self, command):
        """One command of QEMU's monitor, as people type it. What it prints is a complaint, mostly."""
        said = self._qmp("human-monitor-command", **{"command-line": command})
        if said:
            raise AssertionError(f"QEMU, {command}: {said}")

    def cable(self, nic, plugged):
        self.monitor(f"set_link nic{nic} {'on' if plugged else 'off'}")

    def unplug_nic(self, nic):
        """The card is gone, unasked."""
        self.monitor(f"device_del nic{nic}")

    def plug_nic(self, nic):
        wait_until(f"NIC {nic} to be gone", lambda: all(
            device["name"] != f"nic{nic}" for device in self._qmp("qom-list", path="/machine/peripheral")), 30)
        self.monitor("device_add " + self.nic_device(nic))
        self.run(f"until [ -e /sys/class/net/eth{nic} ]; do nap 0.05; done\n"
                 f"lab_nic {nic} && lab_wait_nic {nic}")


class Machine:
    """Guests on one segment, and a folder that host and guests share: /run/lab in these."""

    def __init__(self, wants, cache):
        self.wants, self.cache = wants, cache
        self.jobs_begun = 0
        self.folder = tempfile.mkdtemp(prefix="te-lab-")
        with open(os.path.join(cache, "release"), encoding="utf-8") as f:
            release = f.read().strip()
        config = {"LAB_RELEASE": release, "LAB_CACHE": cache, "LAB_SOURCE": SOURCE, "LAB_BUILD": BUILD,
                  "LAB_GUESTS": wants.guests, "LAB_NICS": wants.nics, "LAB_MTU": MTU, "LAB_MODULES": MODULES}
        with open(os.path.join(self.folder, "config"), "w", encoding="utf-8") as f:
            f.writelines(f"{name}={shlex.quote(str(value))}\n" for name, value in config.items())
        self.guests = [Guest(self, i) for i in range(wants.guests)]

    def start(self):
        self.boot(*self.guests)

    @staticmethod
    def boot(*guests):
        """Also of one that was killed."""
        for step in (Guest.start, Guest.connect, Guest.wait_up):
            for guest in guests:
                step(guest)

    def next_name(self):
        self.jobs_begun += 1
        return f"job{self.jobs_begun}"

    def share(self, path):
        """Copies a file of the host to where guests see it, and returns that place."""
        shutil.copy(path, self.folder)
        return f"/run/lab/{os.path.basename(path)}"

    def ails(self):
        """What is wrong with it, not with what runs in it; None: nothing is."""
        try:
            for guest in self.guests:
                guest.run("true", timeout=20)
            for guest, other in zip(self.guests, self.guests[1:]):
                nics = " ".join(other.ip(nic) for nic in range(self.wants.nics))
                guest.run(f"for ip in {nics}; do busybox ping -q -c 1 -W 2 $ip && exit; done; exit 1", timeout=40)
        except (AssertionError, OSError, Trouble) as e:
            return f"a guest does not answer: {str(e).splitlines()[0]}"
        return None

    def clear(self):
        """Ends all that a test has left."""
        for guest in self.guests:
            guest.end_jobs()
        for name in os.listdir(self.folder):
            if name.startswith("barrier."):
                os.unlink(os.path.join(self.folder, name))

    def close(self):
        for guest in self.guests:
            guest.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
