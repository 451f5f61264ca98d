# SPDX-License-Identifier: Apache-2.0
# lab: nics=2 timeout=900 spoils
"""The archive of `make kit` carried into a guest with two NICs and a folder on NVMe over TCP, which a kernel target of
the same guest serves: what the archive runs over these passes, and its report says which rows of the documents that
fills."""
import os
import re
import subprocess

import te_lab

SLOW_S = 900  # until a step ends that runs where every instruction is emulated; the test has its own limit
SEEN = "SoftRoCE devices in virtual machines"
NQN = "nqn.2026-01.org.example:kit"
MOUNT = """
modprobe brd rd_nr=1 rd_size=262144
modprobe -a nvmet nvmet-tcp nvme-tcp
nvmet=/sys/kernel/config/nvmet
mkdir $nvmet/ports/1 $nvmet/subsystems/{nqn}
cd $nvmet/ports/1
echo ipv4 >addr_adrfam
echo tcp >addr_trtype
echo 127.0.0.1 >addr_traddr
echo 4420 >addr_trsvcid
cd $nvmet/subsystems/{nqn}
echo 1 >attr_allow_any_host
mkdir namespaces/1
echo -n /dev/ram0 >namespaces/1/device_path
echo 1 >namespaces/1/enable
ln -s $nvmet/subsystems/{nqn} $nvmet/ports/1/subsystems/{nqn}
nvme connect --transport=tcp --traddr=127.0.0.1 --trsvcid=4420 --nqn={nqn}
until [ -b /dev/nvme0n1 ]; do nap 0.1; done
mkfs.ext4 -q -F /dev/nvme0n1
mkdir /run/fs
mount /dev/nvme0n1 /run/fs
"""
RUN = """
tar -C /tmp -xf {archive}
cd /
TE_DEVICE_FILES=/run/fs OUT=/run/lab/kit /tmp/te-kit-*/run.sh --short --patient run
"""


def carry_in(machine):
    """The archive of this build, where the guest sees it."""
    made = subprocess.run([os.path.join(te_lab.SOURCE, "scripts", "kit.sh"), te_lab.BUILD], stdout=subprocess.PIPE,
                          text=True, timeout=120, check=True)
    return machine.share(made.stdout.split()[-1])


def rows(report):
    """Results and remarks of the steps, by their names."""
    return {name: (result, note) for name, result, note in
            re.findall(r"^\| (.+?) \| (\S+) \| [\d.]* ?\| (.*?) ?\|$", report, re.M)}


def check_report(report, nics):
    """All that this host has has passed, whole; what it lacks is skipped, and fills no row of a document."""
    steps = rows(report)
    passed = {name for name, (result, _) in steps.items() if result == "passed"}
    assert passed == {"bench, host to host, host", "bench, host to host, tcp", f"test_rdma, {nics}", f"bench, rdma, {nics}",
                      "test_nvmeof, /run/fs"}, report
    assert {result for result, _ in steps.values()} == {"passed", "skipped"}, report
    for name in (f"test_rdma, {nics}", "test_nvmeof, /run/fs"):
        assert re.fullmatch(r"[1-9]\d* cases passed, 0 skipped", steps[name][1]), report
    assert f"| NICs | {nics}; made by the kernel, without hardware: {nics} |\n" in report, report
    filled = report.partition("It fills:\n\n")[2]
    assert filled == (f'- docs/rdma.md, "{SEEN}", without figures: NICs {nics}\n'
                      "- docs/nvmeof.md: what was tried on /run/fs\n"), report
    with open(f"{te_lab.SOURCE}/docs/rdma.md", encoding="utf-8") as f:
        assert SEEN in " ".join(f.read().split()), f"docs/rdma.md says nothing of {SEEN}"


def test(machine):
    guest = machine.guests[0]
    archive = carry_in(machine)
    guest.run(MOUNT.format(nqn=NQN), SLOW_S)
    print(guest.run(RUN.format(archive=archive), SLOW_S).output(), end="")
    with open(os.path.join(machine.folder, "kit", "report.md"), encoding="utf-8") as f:
        report = f.read()
    print(report, end="")
    check_report(report, ",".join(f"rxe{i}" for i in range(machine.wants.nics)))
