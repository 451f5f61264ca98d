#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: two processes of one host, NUMA nodes, GPUs and NICs, the last two simulated."""
import os
import shutil
import subprocess
import unittest

import te_proc as te
import te_rdma as rdma
import te_trouble as trouble
from te_trouble import provokes

SIZE = 65536
READ, WRITE, BOTH = 1, 2, 3
ANY_NAMESPACE = "TE_HOST_ANY_NAMESPACE=1"


def explained(peer, name, remote=4096):
    """What te_explain() says of a request to the segment of that name."""
    index, _ = peer.region(SIZE)
    return " ".join(peer.ask("explain", "read", peer.open(name), index, remote, 1000))


def unlike(key, value):
    """What is said of a peer of which that key tells another value than ours."""
    with te.Peer() as target, te.Peer() as peer:
        target.region(SIZE)
        keys = te.descriptor(te.split_address(target.segment))["te"]
        with trouble.Claims(target, te={**keys, "host": {**keys["host"], key: value}}) as server:
            return explained(peer, server.name)


def with_pair(target_more, peer_more, access=BOTH, own=False):
    """What is said of a request between two such engines."""
    with te.Peer(**target_more) as target, te.Peer(**peer_more) as peer:
        _, remote = target.ask("region", SIZE, access, *(["own"] if own else []))
        return explained(peer, target.segment, remote)


def unshared():
    command = ["unshare", "--mount"]
    if os.geteuid() != 0 or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        te.skip("unshare --mount is not permitted")
    return command


def as_user():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        te.skip("running as another user needs root and setpriv")
    os.chmod(os.path.dirname(te.Peer.binary()), 0o755)
    return ["setpriv", "--reuid=12345", "--clear-groups"]


def without_process_vm():
    program = te.compile_program(os.path.join(te.SRC, "tests", "integration", "forbid_process_vm.c"), "forbid_process_vm")
    if subprocess.run([program, "ENOSYS", "true"], check=False).returncode != 0:
        te.skip("seccomp filters are not permitted")
    return [program, "ENOSYS"]


class OneHost(trouble.Section, unittest.TestCase):
    title = "Two processes of one host, and TCP carries it"

    @provokes("the peer does not offer it ...")
    def not_offered(self):
        return with_pair({"options": ["TE_HOST_PATH=0"]}, {})

    @provokes("the peer is on another host")
    def host(self):
        return unlike("host", "00" * 16)

    @provokes("the peer is on another machine")
    def machine(self):
        if not (os.path.exists("/etc/machine-id") and os.path.getsize("/etc/machine-id")):
            te.skip("this host has no machine id, so it cannot be told from another one")
        return unlike("machine", "00" * 16)

    @provokes("the peer is in another network namespace ...")
    def network(self):
        return unlike("net_ns", "00" * 16)

    @provokes("the peer is in another pid namespace ...")
    def pids(self):
        return unlike("pid_ns", "00" * 16)

    @provokes("the peer speaks version 1 of it, this engine 2")
    def version(self):
        return unlike("v", 1)

    @provokes("process ... is in another mnt namespace ...")
    def mounts(self):
        return with_pair({"prefix": unshared()}, {})

    @provokes("process ... refuses this one: we are in other namespaces ...")
    def refused(self):
        return with_pair({}, {"prefix": unshared(), "options": [ANY_NAMESPACE]})

    @provokes("... in an unknown user namespace ...")
    def unknown(self):
        user = as_user()
        with te.Peer(prefix=user) as target, te.Peer(prefix=user) as peer:
            target.region(SIZE)
            target.ask("undumpable")
            return explained(peer, target.segment)

    @provokes("process ... runs as user ..., and this one as user ...")
    def user(self):
        return with_pair({}, {"prefix": as_user()})

    @provokes("score 0: its memory is not shareable and process_vm is refused (ptrace_scope, seccomp, not dumpable, or "
              "another user's) ...")
    def not_shareable(self):
        return with_pair({}, {"prefix": without_process_vm()}, own=True)

    @provokes("score 0: ... its memfd is given away only while every byte of the allocation is registered ...")
    def one_direction(self):
        with te.Peer() as target, te.Peer(prefix=without_process_vm()) as peer:
            target.ask("region", SIZE, WRITE)
            remote = int(target.ask("region", SIZE, WRITE)[1])
            return te.until(lambda: (lambda text: text if "given away" in text else "")(
                explained(peer, target.segment, remote)), "the answer about its memory")

    @provokes("process ... has not answered in ... ms")
    def frozen(self):
        with te.Peer() as target, te.Peer(options=["TE_HOST_TIMEOUT_MS=100"]) as peer:
            target.region(SIZE)
            keys = te.descriptor(te.split_address(target.segment))["te"]
            with trouble.Claims(target, te=keys) as server:
                target.freeze()
                try:
                    return explained(peer, server.name)
                finally:
                    target.thaw()

    @provokes("host: process ... has been writing in region ... for a second ...")
    def in_the_middle(self):
        with te.Peer() as target, te.Peer() as peer:
            index, _ = peer.region(SIZE)
            there, remote = (int(word) for word in target.ask("region", SIZE, BOTH, "own"))
            segment = peer.open(target.segment)
            peer.round_trip(segment, index, SIZE // 2, remote, 1)
            peer.ask("stop_in_write")
            peer.send_move("write", segment, index, 0, remote, 4096)
            peer.wait_stopped()
            return target.refused("drop", there)

    not_provoked = {"score 0: process_vm does not reach its memory, and its memfd ... is not here yet":
                    "it holds for the moment between a request and its answer alone"}


class Nodes(trouble.Section, unittest.TestCase):
    title = "Where memory is"

    @provokes("location '...' cannot be: of NUMA nodes this machine has ...; ...")
    def node(self):
        return trouble.misuse()


def with_gpus(**env):
    """What the library says where there are simulated GPUs."""
    te.need("cuda")
    folder = os.environ.get("TE_TEST_SOFTGPU") or os.path.join(te.BUILD, "tests", "softgpu")
    if not os.path.exists(os.path.join(folder, "libcuda.so.1")):
        te.skip("softgpu is not built")
    return trouble.misuse(LD_LIBRARY_PATH=folder, **env)


class Gpus(trouble.Section, unittest.TestCase):
    title = "Memory of GPUs"

    @provokes("there is no CUDA driver: ...")
    def no_driver(self):
        te.need("cuda")
        said = trouble.misuse()
        if "there is no cuda:" in said or "there is no CUDA" not in said:
            te.skip("this machine has a CUDA driver")
        return said

    @provokes("... does not start: ...")
    def no_start(self):
        return with_gpus(SOFTGPU_FAULTS="fail init error=803")

    @provokes("... has no device")
    def no_device(self):
        return with_gpus(CUDA_VISIBLE_DEVICES="")

    @provokes("there is no cuda:9: the driver has ...", "location '...' is not where ... is: in memory of ...")
    def no_such_device(self):
        return with_gpus()

    @provokes("no installed transport reaches segment ...")
    def no_transport(self):
        return trouble.misuse()

    not_provoked = {
        "... bytes at ... leave the allocation they begin in: ...": "a program must have memory of a device in two parts",
        "rdma: no NIC reaches the memory at cuda:0 (...)": "a program must have memory of a device beside a NIC"}


class Rails:
    """Two engines with a simulated NIC each."""

    def __init__(self, *options, other=()):
        self.fabric = rdma.Fabric(nics=1)
        self.peers = [self.start("a", *options), self.start("b", *other)]
        _, self.remote = self.peers[1].region(SIZE)

    def start(self, side, *options):
        return te.Peer(options=["transport=rdma", *self.fabric.options(side), *options],
                       env=self.fabric.environment(side))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for peer in self.peers:
            peer.close()
        self.fabric.remove()

    def move(self, *before, name=None):
        """What is said of a request, before which the fabric was told so. `name` stands in for the target."""
        peer, target = self.peers
        index, _ = peer.region(SIZE)
        segment = peer.open(name or target.segment)
        for command in before:
            self.fabric.control(command)
        text = peer.move("read", segment, index, 0, self.remote, 4096)[3]
        return text + "\n" + trouble.said(peer) + "\n" + trouble.said(target)


class Nics(trouble.Section, unittest.TestCase):
    title = "A NIC stops carrying"

    def setUp(self):
        te.need("rdma")

    @provokes("deadline passed: no connection to the peer's NIC")
    def no_answer(self):
        with Rails("TE_TRANSFER_TIMEOUT_MS=300") as rails, trouble.Claims(rails.peers[1]) as server:
            return rails.move(name=server.name)  # which answers an invitation to connect by what it is

    @provokes("rdma: NIC ... port ... is not used: its port is not active")
    def port(self):
        with Rails("TE_TRANSFER_TIMEOUT_MS=300") as rails:
            return rails.move("port a0 down")

    @provokes("rdma: ... to ...: transport retry counter exceeded (status 12, ...)")
    def retries(self):
        with Rails() as rails:  # which carries it at the second try
            return rails.move("fail a0 nth=1 count=1 status=RETRY_EXC")

    @provokes("rdma: ... refuses ...: NIC ... is not used", "deadline passed: ...")
    def refuses(self):
        with Rails("TE_TRANSFER_TIMEOUT_MS=1000") as rails:
            return rails.move("port b0 down")

    @provokes("... QP count mismatch ...")
    def count(self):
        with Rails("TE_TRANSFER_TIMEOUT_MS=300", "MC_NUM_QP_PER_EP=3", other=["MC_NUM_QP_PER_EP=2"]) as rails:
            return rails.move()

    @provokes("rdma: NIC ... does not register ... bytes at ...: Cannot allocate memory; ...")
    def memory(self):
        with Rails() as rails:
            rails.fabric.control("deny a0 reg_mr")
            return rails.peers[0].refused("region", SIZE)


if __name__ == "__main__":
    te.main()
