# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=300
"""Segments of files over NVMe over fabrics, TCP and RDMA: a kernel target in one guest, te_segment and the bench
in the other; with every byte compared, over the device itself and over a file system on it, while the cable is
pulled and put back, and the transport's own tests on such a file system."""
import json
import re
import time

import te_lab

BIN = f"{te_lab.BUILD}/bin"
NQN = "nqn.2026-01.org.example:"
SERVER = "http://10.77.0.1:8080/metadata"
PORTS = {"tcp": 4420, "rdma": 4421}
LOAD = "--threads=1 --batch_size=8 --buffer_size=8M"
# What a target is given that goes away for a moment: seen after 2 s, tried again each second, for 60.
RECONNECT = "--keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=60"

SERVE = """
modprobe brd rd_nr=3 rd_size=262144
modprobe -a nvmet nvmet-tcp nvmet-rdma
nvmet=/sys/kernel/config/nvmet
port() {{
    mkdir $nvmet/ports/$2
    echo ipv4 >$nvmet/ports/$2/addr_adrfam
    echo $1 >$nvmet/ports/$2/addr_trtype
    echo {ip} >$nvmet/ports/$2/addr_traddr
    echo $3 >$nvmet/ports/$2/addr_trsvcid
}}
# One more namespace of a subsystem
namespace() {{
    mkdir $nvmet/subsystems/$1/namespaces/$2
    echo -n $3 >$nvmet/subsystems/$1/namespaces/$2/device_path
    echo 1 >$nvmet/subsystems/$1/namespaces/$2/enable
}}
subsystem() {{
    mkdir $nvmet/subsystems/$1
    echo 1 >$nvmet/subsystems/$1/attr_allow_any_host
    namespace $1 1 $3
    ln -s $nvmet/subsystems/$1 $nvmet/ports/$2/subsystems/$1
}}
port tcp 1 4420
port rdma 2 4421
mkfs.ext4 -q -F -b 4096 /dev/ram2
mkdir -p /run/fs
mount /dev/ram2 /run/fs
fallocate -l 24M /run/fs/cache
umount /run/fs
subsystem {nqn}tcp 1 /dev/ram0
subsystem {nqn}rdma 2 /dev/ram1
subsystem {nqn}fs 1 /dev/ram2
# What the file was made of was the target's: all of it is on the device.
sync
"""


def registry(guest, command, timeout=60):
    name = "" if command == "list" or command.startswith("show") else f"--server_name={guest.ip()}"
    return guest.run(f"exec {BIN}/te_segment --metadata_server={SERVER} {name} {command}", timeout)


def serve(target):
    target.run(SERVE.format(ip=target.ip(), nqn=NQN))
    job = target.start_job(f"exec {BIN}/te_metad --addr={target.ip()}:8080")
    target.run(f"until curl -s -o /dev/null '{SERVER}?key=x'; do nap 0.1; done")
    for name, device, place in (("tcp", "/dev/ram0", "tcp://{0}:4420/{1}tcp"), ("rdma", "/dev/ram1", "rdma://{0}:4421/{1}rdma"),
                                ("fs", "/dev/ram2", "tcp://{0}:4420/{1}fs?fs_path=cache")):
        length = " --length=24M" if name == "fs" else ""
        registry(target, f"register {name} --file={device} --target='{place.format(target.ip(), NQN)}'{length}")
    return job


def bench(guest, segment, flags):
    return (f"TE_FILE_PATHS=/dev:/run/te exec {BIN}/transfer_engine_bench --metadata_server={SERVER} "
            f"--local_server_name={guest.ip()} --segment_id={segment} --protocol=nvmeof {LOAD} {flags}")


def check_moves(host, segment, block):
    for operation in ("write", "read"):
        done = host.run(bench(host, segment, f"--operation={operation} --verify --json --block_size={block} --duration=2"))
        result = json.loads(done.output())
        print(f"{segment}, {operation}, {block}: {result['verified_bytes'] / 1e6:.0f} MB compared, "
              f"{result['throughput_bytes_per_s'] / 1e6:.0f} MB/s")
        assert result["verified_bytes"] > 200e3 and not result["failed"], result


def check_cable(host, segment):
    """Under load the cable is out for 4 s: no request fails, no byte is wrong, and bytes move after it."""
    job = host.start_job(bench(host, segment, "--operation=write --verify --json --block_size=64K --duration=12"))
    time.sleep(3)
    host.cable(0, False)
    time.sleep(4)
    host.cable(0, True)
    rc = job.wait(90)
    assert rc == 0, str(job)
    result = json.loads(job.output())
    slowest = result["batch_latency_us"]["max"] / 1e6
    print(f"{segment}, cable out for 4 s: {result['verified_bytes'] / 1e6:.0f} MB compared, none failed, "
          f"the slowest batch took {slowest:.1f} s")
    assert result["verified_bytes"] > 200e3 and not result["failed"], result
    assert slowest > 2, "the cable was out and nobody noticed"


def check_conformance(host, kind, folder):
    """The transport's own tests, their files on what is mounted from the other guest."""
    done = host.run(f"cd {folder} && {te_lab.BUILD}/tests/transport/test_nvmeof 2>&1", 120)
    print(f"conformance over NVMe/{kind}: " + " ".join(re.findall(r"\[       OK \] (\w+)", done.output())))


def device_of(host, segment):
    shown = json.loads(registry(host, f"show nvmeof/{segment} --json").output())
    return shown["buffers"][0]["local_path_map"][host.ip()]


def check_file_system(host, segment):
    """The same on a file system that this host makes there."""
    host.run(f"mkfs.ext4 -q -F {device_of(host, segment)} && mkdir -p /run/fs && "
             f"mount {device_of(host, segment)} /run/fs")
    check_conformance(host, segment.upper(), "/run/fs")
    # The kernel takes a ring apart, and with it lets go of its files, after the process has ended.
    host.run("for n in {1..100}; do umount /run/fs 2>/run/umount && exit; nap 0.1; done; cat /run/umount >&2; exit 1")


def test(machine):
    target, host = machine.guests
    metad = serve(target)
    host.run("modprobe -a nvme-tcp nvme-rdma")
    for name in ("tcp", "rdma", "fs"):
        options = RECONNECT + (" --host-traddr=" + host.ip() if name == "rdma" else "")
        print(registry(host, f"mount {name} --connect --nvme_options='{options}'").output(), end="")
    print(registry(host, "list").output(), end="")
    for name in ("nvmeof/tcp", "rdma", "nvmeof/fs"):  # one of them by its bare name
        check_moves(host, name, "64K")
    check_moves(host, "nvmeof/tcp", "33333")
    check_conformance(host, "TCP", "/run/te/nvmeof/fs/0")
    check_file_system(host, "rdma")
    for name in ("nvmeof/tcp", "nvmeof/rdma"):
        check_cable(host, name)
    for name in ("tcp", "rdma", "fs"):
        registry(host, f"unmount {name} --disconnect")
    left = host.run("ls /dev/nvme*n* 2>/dev/null || true").output()
    assert not left, f"devices are left: {left}"
    metad.kill()
