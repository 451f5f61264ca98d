# SPDX-License-Identifier: Apache-2.0
# lab: guests=1 nics=1 timeout=300 spoils
"""The packaged unit of te_metad under a real systemd: it starts, as a user of its own, answers, keeps what it was told
over a restart and over its own death, writes to the journal, and is as exposed as docs/metad.md says."""
import os
import re
import shlex
import shutil
import subprocess

import te_lab

ADDRESS = "http://127.0.0.1:8080"
SLOW_S = 240  # to start systemd where every instruction is emulated
# The first process of a namespace of its own, since guest.sh is that of the guest. Of what a host starts only what
# units begin after is wanted here, and a journal without the host's own, that may be slow.
BOOT = """
mkdir -p /etc/systemd/journald.conf.d /etc/systemd/system/systemd-journald.service.d
printf '[Journal]\\nStorage=volatile\\n' >/etc/systemd/journald.conf.d/lab.conf
printf '[Service]\\nTimeoutStartSec=infinity\\nWatchdogSec=0\\n' >/etc/systemd/system/systemd-journald.service.d/lab.conf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cat >/etc/systemd/system/lab.target <<'UNIT'
[Unit]
Requires=systemd-journald.service
After=systemd-journald.service
UNIT
exec unshare --pid --fork --kill-child --mount-proc --mount env container=lab \
    /lib/systemd/systemd --system --unit=lab.target --log-target=console --show-status=no 2>&1
"""


def install(machine, guest):
    """What the packages have, in the guest alone: the installed tree, and /etc/default."""
    root = f"{machine.folder}/root"
    subprocess.run(["cmake", "--install", te_lab.BUILD, "--prefix", "/usr"], env={**os.environ, "DESTDIR": root},
                   stdout=subprocess.DEVNULL, check=True, timeout=120)
    wanted = "usr/bin/te_metad usr/lib/systemd/system/te_metad.service"
    guest.run(f"for f in {wanted}; do cp /run/lab/root/$f /$f; done\n"
              "cp service/te_metad.default /etc/default/te_metad", SLOW_S)


def inside(guest, command):
    """Where systemd is the first process: it talks to nobody of another namespace."""
    return guest.run("exec nsenter --target=$(pgrep -o -x systemd) --pid --mount "
                     f"env SYSTEMD_BUS_TIMEOUT={SLOW_S} /bin/bash -c {shlex.quote(command)}",
                     SLOW_S).output().strip()


def systemctl(guest, arguments):
    return inside(guest, f"systemctl {arguments}")


def answers(guest):
    """Its /health says that it works; the unit is simple, so that systemctl does not wait for it."""
    inside(guest, f"until [ \"$(curl -s {ADDRESS}/health)\" = ok ]; do "
                  "[ \"$(systemctl is-failed te_metad)\" != failed ] || exit 1; sleep 0.2; done")


def check_state(guest, after):
    got = guest.run(f"curl -s -f '{ADDRESS}/metadata?key=lab'", SLOW_S).output()
    assert got == "kept", f"after {after}: {got!r}"


def check_user(guest):
    """A user of its own, without capabilities, whose folder nobody else enters."""
    lines = guest.run("cat /proc/$(pgrep -x te_metad)/status", SLOW_S).output().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    uid = int(status["Uid"].split()[0])
    assert 61184 <= uid <= 65519, f"not a dynamic user: {uid}"
    assert not int(status["CapBnd"], 16) and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    folder = guest.run("stat -L -c '%u %a' /var/lib/te_metad", SLOW_S).output().split()
    assert folder == [str(uid), "700"], folder
    print(f"user {uid}, folder {folder}")


def check_journal(guest):
    """What it writes comes there, in its own time."""
    inside(guest, "until journalctl --unit=te_metad --output=cat | grep -q '^te_metad: listening on '; do sleep 0.2; done")


def check_exposure(guest):
    """As docs/metad.md says of a version of systemd; others may count a little otherwise."""
    with open(f"{te_lab.SOURCE}/docs/metad.md", encoding="utf-8") as f:
        told = re.search(r'security te_metad` of systemd (\d+) gives it (\S+) of 10,\s"(\w+)"', f.read()).groups()
    said = inside(guest, "systemctl --version && systemd-analyze security --no-pager te_metad")
    found = (re.match(r"systemd (\d+)", said)[1],
             *re.search(r"Overall exposure level for te_metad.service: (\S+) (\w+)", said).groups())
    print("\n".join(line.rstrip() for line in said.splitlines() if line.startswith("✗")), f"\nexposure {found}")
    assert found[2] == told[2] and (found == told or found[0] != told[0]), f"docs: {told}, systemd: {found}"


def test(machine):
    if not shutil.which("/lib/systemd/systemd"):
        raise te_lab.Skip("there is no systemd")
    guest = machine.guests[0]
    install(machine, guest)
    guest.start_job(BOOT)
    guest.run("until [ -S /run/systemd/private ]; do nap 0.2; done", SLOW_S)
    inside(guest, "until systemctl is-active lab.target; do sleep 0.5; done")
    systemctl(guest, "start te_metad")
    answers(guest)
    check_user(guest)
    check_journal(guest)
    check_exposure(guest)
    guest.run(f"curl -s -f -X PUT --data kept '{ADDRESS}/metadata?key=lab'", SLOW_S)
    check_state(guest, "a PUT")
    systemctl(guest, "restart te_metad")
    answers(guest)
    check_state(guest, "a restart")
    systemctl(guest, "kill --kill-whom=main --signal=KILL te_metad")
    inside(guest, "until [ \"$(systemctl show --value --property=NRestarts te_metad)\" = 1 ]; do sleep 0.2; done")
    answers(guest)
    check_state(guest, "its death")
    systemctl(guest, "stop te_metad")
    assert systemctl(guest, "show --value --property=Result te_metad") == "success"
    left = guest.run("pgrep -x te_metad", SLOW_S, check=False).output()
    assert not left, f"it runs on: {left}"
