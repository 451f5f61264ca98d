# SPDX-License-Identifier: Apache-2.0
"""Two hosts: network namespaces joined by a veth pair, each with an interface that leads nowhere."""
import ctypes
import json
import os
import shutil
import subprocess
import threading
import unittest

import te_proc as te

HOST_A, HOST_B = "10.231.77.1", "10.231.77.2"
CLONE_NEWNET = 0x40000000


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=te.HANG_S)


def carried(netns, name):
    """Bytes that an interface has sent and received."""
    stats = json.loads(ip("-n", netns, "-s", "-j", "link", "show", name).stdout)[0]["stats64"]
    return stats["tx"]["bytes"] + stats["rx"]["bytes"]


class Hosts:
    """Creates the two hosts; `a` and `b` are the command prefixes to run something in them."""

    def __init__(self):
        self.names = [f"te{os.getpid()}{side}" for side in "ab"]
        self.made = []
        self.a, self.b = (("ip", "netns", "exec", name) for name in self.names)

    def make(self):
        for name in self.names:
            ip("netns", "add", name)
            self.made.append(name)
            # Comes first in every list of interfaces, as the bridge of a container engine may.
            ip("-n", name, "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1")
            ip("-n", name, "addr", "add", "172.29.0.1/16", "dev", "aaa0")
            for link in ("lo", "aaa0", "aaa1"):
                ip("-n", name, "link", "set", link, "up")
        first, second = self.names
        ip("link", "add", "te0", "netns", first, "type", "veth", "peer", "name", "te0", "netns", second)
        for name, own in ((first, HOST_A), (second, HOST_B)):
            ip("-n", name, "addr", "add", f"{own}/24", "dev", "te0")
            ip("-n", name, "link", "set", "te0", "up")
        self.route_back()

    def link(self, state, side=0):
        ip("-n", self.names[side], "link", "set", "te0", state)

    def route_back(self):
        """The default routes, which go with a link."""
        for name, other in zip(self.names, (HOST_B, HOST_A)):
            ip("-n", name, "route", "replace", "default", "via", other)

    def remember(self):
        """The second host keeps the first one's hardware address, so that it hears of nothing while the link is down."""
        mac = json.loads(ip("-n", self.names[0], "-j", "link", "show", "te0").stdout)[0]["address"]
        ip("-n", self.names[1], "neigh", "replace", HOST_A, "lladdr", mac, "dev", "te0", "nud", "permanent")

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=te.HANG_S)


def make():
    """The hosts, for a module's setUpModule(); gone when the module ends. Skips where not permitted."""
    if os.geteuid() != 0:
        te.skip("network namespaces need root")
    if not shutil.which("ip"):
        te.skip("ip (package iproute2) is missing")
    hosts = Hosts()
    try:
        hosts.make()
    except subprocess.CalledProcessError as e:
        hosts.close()
        te.skip(f"network namespaces cannot be made here: {e.stderr.strip()}")
    unittest.addModuleCleanup(hosts.close)
    return hosts


def within(netns, work, *args):
    """work(*args) in a network namespace, by name or path: in a thread of its own, which alone enters it."""
    got = []

    def run():
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = os.open(os.path.join("/run/netns", netns), os.O_RDONLY)
            rc = libc.setns(fd, CLONE_NEWNET)
            os.close(fd)
            if rc:
                raise AssertionError(f"setns {netns}: {os.strerror(ctypes.get_errno())}")
            got.extend((work(*args), None))
        except BaseException as failure:  # pylint: disable=broad-except
            got.extend((None, failure))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if got[1]:
        raise got[1]
    return got[0]
